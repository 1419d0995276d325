package audit_test

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"

	"basalt.dev/basalt/api/audit"
	"basalt.dev/basalt/api/wire"
)

// blind lets time pass without sight.
func (w *world) blind(d time.Duration) {
	for ; d > 0; d -= 500 * time.Millisecond {
		w.now = w.now.Add(500 * time.Millisecond)
		w.a.Observe(w.now, audit.Tick{Blind: true})
	}
}

// snapshot is what an auditor reads that missed revisions: the table, the leader, the fence, and more.
func (w *world) snapshot(replaced bool, more map[string]proto.Message) {
	w.t.Helper()
	e := audit.StoreRevision{Revision: w.revision, Snapshot: true, Replaced: replaced}
	all := map[string]proto.Message{"leader/c/1": &wire.LeaderRecord{}, "table": wire.FromTable(w.table), "seq": &wire.Sequence{Value: w.seq, Term: w.term}}
	for k, m := range more {
		all[k] = m
	}
	for k, m := range all {
		b, err := proto.Marshal(m)
		if err != nil {
			w.t.Fatal(err)
		}
		c := audit.StoreChange{Key: k, Value: b, CreateRevision: w.revision, ModRevision: w.revision}
		if k == "leader/c/1" {
			c.CreateRevision = int64(w.term)
		}
		e.Changes = append(e.Changes, c)
	}
	w.a.Observe(w.now, e)
}

// charged is a reservation of one pod of two cores.
func charged(r *wire.ReservationRecord) {
	r.Demand = append(r.Demand, &wire.Amount{Resource: "pods", Value: 1})
}

// What an auditor could not see is held against nobody; what is still wrong when it sees again is.
func TestAuditorThatIsBlind(t *testing.T) {
	for _, test := range []struct {
		name string
		want audit.Kind
		run  func(*world)
	}{
		{"an intent that comes when sight is back", "", func(w *world) {
			w.reserve("g", 2000, charged)
			w.pod("g", "2", on("n1"))
			w.blind(time.Minute)
			k := w.intend(1, "g", 2000, map[string]string{"g": "n1"})
			w.pass(10 * time.Second)
			w.put(k, nil)
			w.pass(time.Minute)
		}},
		{"an intent that never comes", audit.Binding, func(w *world) {
			w.reserve("g", 2000, charged)
			w.pod("g", "2")
			w.pod("g", "2", on("n1"))
			w.blind(time.Minute)
			w.pass(6 * time.Second)
		}},
		{"a leak, not for long enough in sight", "", func(w *world) {
			w.reserve("g", 1000)
			w.pass(20 * time.Second)
			w.blind(time.Minute)
			w.pass(9 * time.Second)
		}},
		{"a leak, for long enough in sight", audit.Leak, func(w *world) {
			w.reserve("g", 1000)
			w.pass(20 * time.Second)
			w.blind(time.Minute)
			w.pass(12 * time.Second)
		}},
		{"what one revision shows is judged blind, too", audit.Quota, func(w *world) {
			w.blind(time.Minute)
			w.reserve("g", 9000)
		}},
		{"told to be Unschedulable after a gap, in which it may have had quota", "", func(w *world) {
			w.pod("p", "1")
			w.pass(10 * time.Second)
			w.revision += 10
			w.snapshot(false, nil)
			w.pass(10 * time.Second)
			w.pod("p", "1", condition(v1.PodScheduled, v1.ConditionFalse, v1.PodReasonUnschedulable, "0/2 nodes"))
			w.pass(10 * time.Second)
		}},
		{"told to be Unschedulable without quota, and made after the gap", audit.Condition, func(w *world) {
			w.revision += 10
			w.snapshot(false, nil)
			w.pass(10 * time.Second)
			w.pod("p", "1")
			w.pod("p", "1", condition(v1.PodScheduled, v1.ConditionFalse, v1.PodReasonUnschedulable, "0/2 nodes"))
			w.pass(10 * time.Second)
		}},
		{"bound in a gap", "", func(w *world) {
			w.pass(time.Second)
			w.pod("early", "1", on("n1")) // seen before the gap is
			w.revision += 10              // their intents came and went
			w.snapshot(false, map[string]proto.Message{
				key("early", "team.a"): withPods(reservation("early", "team.a", 1, 1000, w.term)),
				key("late", "team.a"):  withPods(reservation("late", "team.a", 1, 1000, w.term)),
			})
			w.pass(time.Second)
			w.pod("late", "1", on("n1"))
			w.pass(time.Minute)
		}},
		{"bound long after a gap", audit.Binding, func(w *world) {
			w.revision += 10
			w.snapshot(false, nil)
			w.pass(10 * time.Second)
			w.reserve("g", 1000, charged)
			w.pod("g", "1")
			w.pod("g", "1", on("n1"))
			w.pass(6 * time.Second)
		}},
		{"terms go on after a gap", audit.Term, func(w *world) {
			w.put("leader/c/1", nil)
			w.put("leader/c/2", &wire.LeaderRecord{})
			old := w.term
			w.term = uint64(w.revision)
			w.reserve("a", 1)
			w.revision += 10
			w.term = old
			w.snapshot(false, nil)
			w.reserve("b", 1)
		}},
		{"terms begin anew in another store", "", func(w *world) {
			w.put("leader/c/1", nil)
			w.put("leader/c/2", &wire.LeaderRecord{})
			old := w.term
			w.term = uint64(w.revision)
			w.reserve("a", 1, func(r *wire.ReservationRecord) { r.Attempt = 7 })
			w.revision, w.seq, w.term = w.revision-3, 1, old
			w.snapshot(true, nil)
			w.reserve("a", 1)
			w.pod("a", "1")
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, audit.Config{})
			test.run(w)
			r := w.a.Report()
			if r.Sum() != r.Counts[test.want] || (test.want != "") != (r.Sum() > 0) {
				t.Errorf("want only %q, found %v", test.want, r.Violations)
			}
		})
	}
}

func withPods(r *wire.ReservationRecord) *wire.ReservationRecord { charged(r); return r }

// What lasts is counted as standing while it does, and as found for ever.
func TestStanding(t *testing.T) {
	w := newWorld(t, audit.Config{})
	const what = "leak: reservation without pods"
	w.reserve("g", 1000)
	w.pass(20 * time.Second)
	if r := w.a.Report(); r.Sum() != 0 || len(r.Standing) != 0 {
		t.Fatalf("too early: %+v", r)
	}
	w.pass(12 * time.Second)
	if r := w.a.Report(); r.Standing[what] != 1 || r.StandingOf(audit.Leak) != 1 || r.Counts[audit.Leak] != 1 {
		t.Errorf("a leak: %+v", r)
	}
	w.release("g")
	if r := w.a.Report(); r.StandingOf(audit.Leak) != 0 || r.Counts[audit.Leak] != 1 {
		t.Errorf("a leak that ended: %+v", r)
	}
}
