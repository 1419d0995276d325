// Package leadership decides what a coordinator's process does around its core: when it campaigns, leads and resigns, what must
// follow when a term ends, when the process is unhealthy (Terms), which shards it takes for down although their leases last
// (Suspicions), and which shards joined, changed or left (Members). The coordinator's process and the simulator both run it.
//
// Like a core it has no clock, no goroutine and no client: the time is an argument, and what is to be done is returned.
//
// Invariants:
//   - A term that ended gives the leader key back before the next campaign, whatever ended it, unless the store itself was
//     replaced. A key that is not given back is kept alive for as long as its process lives: nobody else can lead, and the
//     process waits for a key of its own.
//   - A process that keeps the leader key alive without a term fails its liveness probe.
//   - An error that comes back in each term does not become a hot loop: the pause between terms grows.
package leadership

import (
	"errors"
	"fmt"
	"time"

	"basalt.dev/basalt/api/fault"
)

const (
	// LoadWithin bounds the time from winning the election until the core runs.
	LoadWithin = time.Minute
	// ResignWithin bounds giving back the leader key. A key that cannot be given back runs out with its lease.
	ResignWithin = 2 * time.Second
	// IdleAtMost is how long the leader key may be kept alive without a term before /livez fails. It is longer than ResignWithin.
	IdleAtMost = 5 * ResignWithin

	// CampaignPause is the pause after a campaign that failed.
	CampaignPause = 2 * ShortestPause
	// ShortestPause is the pause after a term that ended early. It doubles up to LongestPause while terms go on to end early. A
	// term that lasted for LongestPause starts again with the shortest.
	ShortestPause = 250 * time.Millisecond
	LongestPause  = 20 * ShortestPause
)

// Step is what the process does now.
type Step uint8

// Steps. Each names the method that reports what became of it.
const (
	Campaign Step = iota + 1 // wait until nobody leads, and win: Won or NotElected
	Lead                     // load the state within LoadWithin: Runs. Step the core until the term ends: Ended
	Resign                   // give the leader key back within ResignWithin: Resigned
	Pause                    // wait for Wait: Paused
	Stop                     // end the process, with Err
)

func (s Step) String() string {
	return [...]string{"", "campaign", "lead", "resign", "pause", "stop"}[s]
}

// End is why a campaign or a term ended. Both fields may be set beside an error of which they are the cause.
type End struct {
	Err      error
	Stopping bool // the process was asked to stop
	Replaced bool // the control store is not the one that was opened
}

// Terms are the terms of one process, one after another.
type Terms struct {
	step     Step
	wait     time.Duration // with Pause
	pause    time.Duration // after the next term that ends early
	began    time.Time     // of the newest term
	number   int64         // of the newest term, 0 before the first
	runsBy   time.Time     // when a term must run, at the latest; zero while one runs
	stopping bool
	err      error
}

// New returns the terms of a process that begins to campaign.
func New() *Terms { return &Terms{step: Campaign, pause: ShortestPause} }

// Step returns what the process does now.
func (t *Terms) Step() Step { return t.step }

// Wait returns how long a Pause is.
func (t *Terms) Wait() time.Duration { return t.wait }

// Err returns why the process ends with Stop; nil when it was asked to.
func (t *Terms) Err() error { return t.err }

func (t *Terms) stop(err error) { t.step, t.err = Stop, err }

// NotElected reports that a campaign failed.
func (t *Terms) NotElected(end End) {
	switch {
	case end.Stopping:
		t.stop(nil)
	case end.Replaced:
		t.stop(fmt.Errorf("start over: %w", end.Err))
	default:
		t.step, t.wait = Pause, CampaignPause
	}
}

// Won reports that the election was won. A process that was asked to stop meanwhile resigns.
func (t *Terms) Won(now time.Time, number int64, stopping bool) {
	t.step, t.number, t.began, t.runsBy = Lead, number, now, now.Add(LoadWithin+IdleAtMost)
	if stopping {
		t.step, t.stopping = Resign, true
	}
}

// Runs reports that the term's core runs.
func (t *Terms) Runs() { t.runsBy = time.Time{} }

// Ended reports that the term is over.
func (t *Terms) Ended(now time.Time, end End) {
	t.runsBy = now.Add(IdleAtMost)
	switch {
	case end.Stopping:
		t.step, t.stopping = Resign, true
		return
	case end.Replaced: // there is no key of ours in the other store
		t.stop(fmt.Errorf("start over: %w", end.Err))
		return
	}
	if now.Sub(t.began) >= LongestPause {
		t.pause = ShortestPause
	}
	t.step, t.wait = Resign, t.pause
	t.pause = min(2*t.pause, LongestPause)
	if fault.On(fault.TermKeepsKey) {
		t.step = Pause
	}
}

// Resigned reports that the leader key was given back, or that it could not be.
func (t *Terms) Resigned(err error) {
	if t.stopping {
		t.stop(err)
		return
	}
	t.step = Pause
}

// Paused reports that a pause is over, or was cut short because the process was asked to stop.
func (t *Terms) Paused(stopping bool) {
	if t.step = Campaign; stopping {
		t.stop(nil)
	}
}

// ErrIdle says that a process keeps others from leading, and does not lead.
var ErrIdle = errors.New("this process holds the leader key and no term runs")

// Stuck returns an error wrapping ErrIdle when the process keeps the leader key alive, so that nobody else can lead, and runs
// no term. kept says that the lease of the newest term is being kept alive.
func (t *Terms) Stuck(now time.Time, kept bool) error {
	if !kept || t.number == 0 || t.runsBy.IsZero() || now.Before(t.runsBy) {
		return nil
	}
	return fmt.Errorf("%w: term %d", ErrIdle, t.number)
}
