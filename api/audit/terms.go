package audit

import (
	"time"

	"google.golang.org/protobuf/proto"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

// terms is who leads, and what shows that the coordinators follow each other.
type terms struct {
	leaders   map[string]int64 // election key -> CreateRevision; the smallest is the term
	led       time.Time        // since when the same coordinator leads
	term      int64            // the newest that a write carried
	sequence  uint64
	sequenced bool
	table     *api.Table
}

// leader returns the term that is in force, 0 when nobody leads.
func (s *terms) leader() int64 {
	term := int64(0)
	for _, r := range s.leaders {
		if term == 0 || r < term {
			term = r
		}
	}
	return term
}

func (a *Auditor) sequencePut(e StoreRevision, c StoreChange) {
	var r wire.Sequence
	if err := proto.Unmarshal(c.Value, &r); err != nil {
		a.unreadable(e, c, err)
		return
	}
	if !e.Snapshot && a.store.sequenced && r.GetValue() <= a.store.sequence {
		a.storeViolation(Term, "seq", []int64{e.Revision}, "the sequence went from %d to %d", a.store.sequence, r.GetValue())
	}
	a.store.sequence, a.store.sequenced = r.GetValue(), true
	a.termWritten(e, c.Key, r.GetTerm())
}

// termWritten judges the term that a coordinator's write carries.
func (a *Auditor) termWritten(e StoreRevision, key string, term uint64) {
	s := &a.store
	if e.Snapshot {
		s.term = max(s.term, int64(term))
		return
	}
	switch leader := s.leader(); {
	case int64(term) < s.term:
		a.storeViolation(Term, key, []int64{e.Revision}, "carries term %d after a write of term %d", term, s.term)
	case leader != 0 && int64(term) != leader:
		a.storeViolation(Term, key, []int64{e.Revision}, "carries term %d while the leader's is %d", term, leader)
	case leader == 0:
		a.storeViolation(Term, key, []int64{e.Revision}, "carries term %d while nobody leads", term)
	}
	s.term = max(s.term, int64(term))
}

func (a *Auditor) tablePut(e StoreRevision, c StoreChange) {
	var r wire.TableRecord
	if err := proto.Unmarshal(c.Value, &r); err != nil {
		a.unreadable(e, c, err)
		return
	}
	t, err := wire.ToTable(&r, e.Revision)
	if err != nil {
		a.unreadable(e, c, err)
		return
	}
	if old := a.store.table; old != nil && !e.Snapshot {
		if t.Epoch <= old.Epoch {
			a.storeViolation(Table, "table", []int64{old.Revision, e.Revision}, "epoch %d was followed by epoch %d", old.Epoch,
				t.Epoch)
		}
		for b := range api.BucketID(api.Buckets) {
			moved, marked := t.Owner(b) != old.Owner(b), t.Changed[b] == t.Epoch
			if moved && !marked {
				a.storeViolation(Table, "bucket "+b.Label(), []int64{old.Revision, e.Revision},
					"went from %q to %q at epoch %d, but is said to have changed hands at epoch %d",
					old.Owner(b), t.Owner(b), t.Epoch, t.Changed[b])
			}
			if !moved && t.Changed[b] < old.Changed[b] {
				a.storeViolation(Table, "bucket "+b.Label(), []int64{old.Revision, e.Revision},
					"changed hands at epoch %d, then it is said to have done so at epoch %d", old.Changed[b], t.Changed[b])
			}
		}
	}
	seen := map[api.Incarnation]bool{}
	for _, m := range t.Members {
		if seen[m.Incarnation] {
			a.storeViolation(Table, "table", []int64{e.Revision}, "epoch %d names %q twice", t.Epoch, m.Incarnation)
		}
		seen[m.Incarnation] = true
	}
	a.store.table = t
}
