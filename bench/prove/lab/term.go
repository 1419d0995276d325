package lab

import (
	"time"

	"basalt.dev/basalt/bench/prove/lab/loop"
	"basalt.dev/basalt/coordinator"
)

// Term is a coordinator's core, whose transactions take effect at once.
type Term struct{ *coordinator.Core }

// NewTerm makes the core of a coordinator that leads for the first time, and of no queues yet.
func NewTerm(cfg coordinator.Config, e coordinator.Elected) Term {
	e.Term = 1
	return Term{coordinator.New(cfg, e)}
}

// Step gives the core an event. It calls carry with each output but transactions, in order.
func (x Term) Step(now time.Time, ev coordinator.Event, carry func(coordinator.Output)) {
	loop.Tell(x.Core, now, ev, func(o coordinator.Output) []coordinator.Event {
		if t, is := o.(coordinator.Txn); is {
			return []coordinator.Event{coordinator.TxnDone{ID: t.ID, Revision: int64(t.ID) + 1}}
		}
		carry(o)
		return nil
	})
}
