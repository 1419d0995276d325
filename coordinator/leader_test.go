package coordinator

import (
	"time"

	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/bench/prove/lab/loop"
)

// tell gives a core an event, and answers its transactions at once.
func tell(c *Core, now time.Time, ev Event, carry func(Output)) {
	loop.Tell(c, now, ev, func(o Output) []Event {
		if t, is := o.(Txn); is {
			return []Event{TxnDone{ID: t.ID, Revision: int64(t.ID) + 1}}
		}
		if carry != nil {
			carry(o)
		}
		return nil
	})
}

// leader is a coordinator's core in virtual time, over a control store. Scripts, random histories and the rush of
// claims have one: they differ in when they answer transactions, and in what homes say.
type leader struct {
	core  *Core
	store *store
	now   time.Time
	term  int64
}

func newLeader() leader { return leader{store: newStore(), now: time.UnixMilli(1_000_000)} }

// reads begins a term, and returns what its leader reads: what the store holds, and which shards are there.
func (l *leader) reads(shards ...*wire.ShardRecord) Elected {
	l.term++
	e := l.store.elected(l.now, l.term)
	e.Shards = shards
	return e
}

// leads makes the core of a term.
func (l *leader) leads(cfg Config, e Elected) { l.core = New(cfg, e) }

// tell gives the core an event, and what carry answers its outputs.
func (l *leader) tell(ev Event, carry func(Output) []Event) { loop.Tell(l.core, l.now, ev, carry) }

// commit carries out a transaction, compares the core's sums with what the store holds then, and returns the answer.
func (l *leader) commit(t Txn) TxnDone {
	done := TxnDone{ID: t.ID, Revision: l.store.commit(t)}
	l.store.rebuilt(l.core)
	return done
}
