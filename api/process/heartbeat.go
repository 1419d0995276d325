package process

import (
	"fmt"
	"sync/atomic"
	"time"
)

// StuckAfter is how long a loop may take for one turn. One that takes longer is stuck: /livez fails, and a peer that pings
// this process gets no answer.
const StuckAfter = 30 * time.Second

// Heartbeat records the turns of a loop. The zero value belongs to a loop that does not run, which is never stuck.
type Heartbeat struct{ last atomic.Pointer[time.Time] }

// Beat is called by the loop, a few times a second.
func (h *Heartbeat) Beat() {
	now := time.Now()
	h.last.Store(&now)
}

// Stop is called when the loop has ended.
func (h *Heartbeat) Stop() { h.last.Store(nil) }

// Stuck returns an error when the loop runs and its last turn began longer ago than StuckAfter.
func (h *Heartbeat) Stuck() error {
	last := h.last.Load()
	if last == nil {
		return nil
	}
	if since := time.Since(*last); since > StuckAfter {
		return fmt.Errorf("the main loop has not turned for %s", since.Round(time.Second))
	}
	return nil
}
