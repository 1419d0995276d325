package coordinator

import (
	"time"

	"basalt.dev/basalt/api/wire"
)

// leader is a coordinator's core in virtual time, over a control store. Scripts, random histories and the rush of
// claims drive one: they differ in when they answer transactions, and in what homes say.
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

// tell gives the core an event, and returns its outputs.
func (l *leader) tell(ev Event) []Output {
	l.core.Step(l.now, ev)
	return l.core.Outputs()
}

// commit carries out a transaction, compares the core's sums with what the store holds then, and returns the answer.
func (l *leader) commit(t Txn) TxnDone {
	done := TxnDone{ID: t.ID, Revision: l.store.commit(t)}
	l.store.rebuilt(l.core)
	return done
}
