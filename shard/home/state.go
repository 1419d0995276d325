package home

import "time"

// A gang's life. Every arrow is taken in advance, from what is known then, not from the event that brought it:
//
//	             minCount pods may be placed                granted
//	collecting ───────────────────────────────▶ waiting ─────────────▶ ready
//	   ▲  ▲                                        │                     │ its turn
//	   │  │ Unreserved        not enough pods      │                     ▼
//	   │  └──────────── releasing ◀────────────────┘                  holding ◀─┐ a hold was lost and
//	   │                    ▲                                             │     │ nothing is prepared
//	   │                    │                           room for all of it│     │
//	   │                    │   none bound                                ▼     │
//	   │                    ├────────────── withdrawing ◀──────────── preparing ┘
//	   │                    │                 │     ▲   a pod or a fence │
//	   │                    │     some bound  │     │   moved, no room   │ prepared everywhere
//	   │                    │                 ▼     │                    ▼
//	   │                    │               binding ◀────────────────────┘
//	   │ no pod left        │ closing, evicting │   │ the minimum is bound
//	   └────────────────────┴◀──────────────────┘   ▼
//	                           too long in part   running
//
// withdrawing is entered from wherever capacity may have been requested (retreat), and left when every shard that was asked has
// answered. What comes after it is decided from the cause and from what is bound then (resume). running is left only when nothing is
// charged any more and the PodGroup is gone: a gang that started is never rolled back.
//
// collecting is one state on purpose, although it has four reasons: too few pods, something in the way, no domain that takes its only pod,
// and a pause after a failure. Nothing is outstanding in any of them, and each event looks at all of them anew; which one holds is in
// gang.blocked and search.sleep.

// A claim (claim.go) is no state: it goes on in waiting, where quota lacks, and in ready and holding, where room does, and ends with them.
// gang.claim has the work on a mandate, and charge.awaits what the record says once a claim was accepted.

type state uint8

const (
	collecting  state = iota // fewer than minCount pods can be placed, or it is blocked, or it waits after a failure
	waiting                  // a Reserve was sent
	ready                    // reserved; waits for its turn to search for capacity
	holding                  // requests holds from node shards, one after another
	preparing                // Commits were sent
	binding                  // Bindings may have been sent: it is completed, or closed
	running                  // its minimum was bound once
	withdrawing              // Withdraws were sent
	releasing                // an Unreserve was sent
	closing                  // a Close was sent
	evicting                 // closed; its bound pods are being evicted
)

func (s state) String() string {
	return [...]string{"collecting", "waiting", "ready", "holding", "preparing", "binding", "running", "withdrawing", "releasing", "closing", "evicting"}[s]
}

// follows are the states that may follow each state. A gang that goes away, loses its reservation, or is bound by somebody else
// leaves whatever it was doing, except waiting for an answer that tells what is left of it. A takeover withdraws whatever it finds.
var follows = [...]states{
	collecting:  leave | of(waiting, ready, binding, closing),
	waiting:     leave | of(ready, closing), // closing: some of its pods run, and it is stale
	ready:       leave | of(holding, binding, closing),
	holding:     leave | of(preparing, binding, closing),
	preparing:   leave | of(holding, binding),
	binding:     leave | of(closing),
	running:     leave | of(closing), // likewise
	withdrawing: of(collecting, binding, running, evicting),
	releasing:   of(collecting, withdrawing),
	closing:     of(withdrawing),
	evicting:    of(running, withdrawing, releasing, binding),
}

// seeking are the states of a gang that asks for quota and room, and has not found room yet.
const seeking states = 1<<waiting | 1<<ready | 1<<holding

const leave states = 1<<collecting | 1<<running | 1<<withdrawing | 1<<releasing

// states is a set of states.
type states uint16

func of(list ...state) (s states) {
	for _, one := range list {
		s |= 1 << one
	}
	return s
}

// become changes the state of a gang. Nothing else does.
func (c *Core) become(g *gang, to state) {
	if to != g.state && follows[g.state]&(1<<to) == 0 {
		c.broken("a gang that is " + g.state.String() + " does not become " + to.String())
	}
	if seeking&(1<<to) == 0 {
		c.rules.leaveEntry(g, to)
	}
	if to != g.state && g.state == preparing {
		g.volumesSince = time.Time{}
	}
	g.state = to
}
