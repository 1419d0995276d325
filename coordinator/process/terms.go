package process

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/api/store"
	"basalt.dev/basalt/api/wire"
)

const (
	// loadWithin bounds the time from winning the election until the core runs.
	loadWithin = time.Minute
	// resignWithin bounds giving back the leader key. A key that cannot be given back runs out with its lease.
	resignWithin = 2 * time.Second
	// idleAtMost is how long the leader key may be kept alive without a term before /livez fails. It is longer than resignWithin.
	idleAtMost = 10 * time.Second

	// The pause after a term that ended early grows from shortestPause to longestPause: an error that comes back in every term
	// must not become a hot loop. A term that lasted for longestPause starts again with the shortest.
	shortestPause = 250 * time.Millisecond
	longestPause  = 5 * time.Second
)

// terms campaigns and leads, one term after the other, until stopping ends, which is no error, or the process must start
// over. Whatever ends a term, the leader key is given back before the next campaign, so that a standby takes over at once and
// this process never waits for a key of its own.
func (c *candidate) terms(stopping context.Context, record *wire.LeaderRecord, lead func(*store.Term) error) error {
	p := c.process
	pause := shortestPause
	for {
		held, err := p.Store.Campaign(stopping, record)
		if stopping.Err() != nil {
			return nil
		}
		if err != nil {
			if errors.Is(err, store.ErrReplaced) {
				return fmt.Errorf("start over: %w", err)
			}
			p.Log.Warn("campaign failed, retrying", "error", err)
			if !wait(stopping, 500*time.Millisecond) {
				return nil
			}
			continue
		}
		fault.Crash(fault.TermWon)
		began := time.Now()
		c.office.won(held.Number(), held.Done())
		err = lead(held)
		c.office.ended()

		if stopping.Err() != nil {
			fault.Crash(fault.TermEnding)
			return resign(held)
		}
		if errors.Is(err, store.ErrReplaced) {
			p.Log.Warn("the term is over", "term", held.Number(), "error", err)
			return fmt.Errorf("start over: %w", err)
		}
		if time.Since(began) >= longestPause {
			pause = shortestPause
		}
		p.Log.Warn("the term is over", "term", held.Number(), "error", err, "pause", pause)
		c.metrics.termEnded(err)
		if err := resign(held); err != nil {
			p.Log.Warn("cannot delete the leader key, which expires with its lease", "term", held.Number(), "error", err)
		}
		if !wait(stopping, pause) {
			return nil
		}
		pause = min(2*pause, longestPause)
	}
}

func resign(held *store.Term) error {
	ctx, cancel := context.WithTimeout(context.Background(), resignWithin)
	defer cancel()
	return held.Resign(ctx)
}

// wait reports whether the time passed before ctx ended.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// live is the process's answer to /livez: nil unless it must be restarted.
func (c *candidate) live() error {
	if err := c.beat.Stuck(); err != nil {
		return err
	}
	return c.office.stuck()
}

// office is what /livez knows about this process's terms.
type office struct {
	mu     sync.Mutex
	number int64
	lease  <-chan struct{} // closed when the leader key is no longer kept alive; nil before the first term
	runsBy time.Time       // when a term must run, at the latest; zero while one runs
}

// won is called when the election was won.
func (o *office) won(number int64, lease <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.number, o.lease, o.runsBy = number, lease, time.Now().Add(loadWithin+idleAtMost)
}

// runs is called when the term's core runs.
func (o *office) runs() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.runsBy = time.Time{}
}

// ended is called when the term is over.
func (o *office) ended() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.runsBy = time.Now().Add(idleAtMost)
}

// stuck returns an error when this process keeps the leader key alive, so that nobody else can lead, and runs no term.
func (o *office) stuck() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.lease == nil || o.runsBy.IsZero() || time.Now().Before(o.runsBy) {
		return nil
	}
	select {
	case <-o.lease:
		return nil
	default:
		return fmt.Errorf("this process holds the leader key of term %d and no term runs", o.number)
	}
}
