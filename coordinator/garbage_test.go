package coordinator

import (
	"testing"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/bench/prove/lab/loop"
	"basalt.dev/basalt/coordinator/owners"
)

// TestGarbage: what cannot be read harms itself alone.
func TestGarbage(t *testing.T) {
	now := time.UnixMilli(1_000_000)
	amount := func(name string, v int64) []*wire.Amount { return []*wire.Amount{{Resource: name, Value: v}} }
	unsorted := []*wire.Amount{{Resource: "b", Value: 1}, {Resource: "a", Value: 1}}
	ref := func(uid, queue string) *wire.GangRef { return &wire.GangRef{Uid: uid, Queue: queue} }
	table, _ := owners.Assign(nil, []owners.Shard{{Incarnation: "s1", Name: "s1"}}, false, 0)
	table.Revision = 3
	c := New(Config{}, Elected{Now: now, Term: 1, Table: table, Shards: []*wire.ShardRecord{nil, {}, {Incarnation: "s1"}},
		Limits: []StoredLimits{{Key: "a"}, {Key: "b", Record: &wire.LimitsRecord{}}, {Key: "c", Record: &wire.LimitsRecord{Queue: "a..b"}},
			{Key: "d", Record: &wire.LimitsRecord{Queue: "d", Capability: unsorted}}, {Key: "e", Record: &wire.LimitsRecord{Queue: "e", Guarantee: unsorted}},
			{Key: "good", Record: &wire.LimitsRecord{Queue: "good", Uid: "u", ResourceVersion: "x", Capability: amount("cpu", 5)}}},
		Reservations: []StoredReservation{{Key: "a"}, {Key: "b", Record: &wire.ReservationRecord{}}, {Key: "c", Record: &wire.ReservationRecord{Gang: ref("g", "")}},
			{Key: "d", Record: &wire.ReservationRecord{Gang: ref("g", "good"), Demand: amount("cpu", -1)}},
			{Key: "e", Record: &wire.ReservationRecord{Gang: ref("g", "good"), Demand: unsorted}},
			{Key: "good", Record: &wire.ReservationRecord{Gang: ref("good", "good"), Attempt: 1, Demand: amount("cpu", 2),
				Condemned: []*wire.SurplusPod{{Uid: "p", Amounts: amount("cpu", -1)}}}}},
	})
	errors := 0
	drain := func() (answers []*wire.Envelope) {
		loop.Drain(c, now, func(o Output) []Event {
			switch o := o.(type) {
			case Log:
				if o.Level == LevelError {
					errors++
				}
			case Send:
				answers = append(answers, o.Body)
			case Txn:
				return []Event{TxnDone{ID: o.ID, Revision: int64(100 + o.ID)}}
			}
			return nil
		})
		return answers
	}
	drain()
	if errors != 11 {
		t.Errorf("%d complaints, 10 records are bad and one has a pod that is", errors)
	}
	reserve := func(m *wire.Reserve) Message {
		return Message{From: "s1", Body: &wire.Envelope{Body: &wire.Envelope_Reserve{Reserve: m}}}
	}
	for _, ev := range []Event{
		nil, Message{}, Message{From: "s1", Body: &wire.Envelope{}}, reserve(nil), reserve(&wire.Reserve{}), reserve(&wire.Reserve{Gang: ref("", "good")}),
		reserve(&wire.Reserve{Gang: ref("x", "good"), Serial: 1, TableEpoch: 9, Demand: unsorted}),
		reserve(&wire.Reserve{Gang: ref("x", "good"), Serial: 2, TableEpoch: 9, Demand: amount("cpu", -5)}),
		reserve(&wire.Reserve{Gang: ref("x", "good"), Serial: 3, TableEpoch: 9, Demand: amount("cpu", 1), Bound: unsorted}),
		reserve(&wire.Reserve{Gang: ref("x", "good.but.much.too.deep.for.a.queue.of.this.kind"), Serial: 4, TableEpoch: 9, Demand: amount("cpu", 1)}),
		Message{From: "s1", Body: &wire.Envelope{Body: &wire.Envelope_Close{Close: &wire.Close{Gang: ref("never", "good"), Serial: 5, TableEpoch: 9}}}},
		Message{From: "s1", Body: &wire.Envelope{Body: &wire.Envelope_Unreserve{}}}, Message{From: "s1", Body: &wire.Envelope{Body: &wire.Envelope_Close{}}},
		Message{From: "s1", Body: &wire.Envelope{Body: &wire.Envelope_Refilled{}}}, Message{From: "s1", Body: &wire.Envelope{Body: &wire.Envelope_Summary{}}},
		QueueSeen{}, QueueSeen{Name: "a..b", UID: "u", ResourceVersion: "7"}, QueueSeen{Name: "root.x"}, QueueGone{}, QueueGone{Name: "never"},
		ShardUp{}, ShardDown{}, ShardLinked{Incarnation: "never"}, TxnDone{ID: 99}, Tick{},
	} {
		c.Step(now, ev)
		for _, a := range drain() {
			if d := a.GetDenied(); a.GetQueueUsages() == nil && a.GetClosed().GetGangUid() != "never" && (d == nil || d.Message == "") {
				t.Errorf("%v is answered with %v", ev, a)
			}
		}
	}
	c.tree.recompute()
	q := c.tree.byPath["good"]
	if q.charged.get("cpu").amount() != 2 || q.members.admitted != 1 || q.effective.Value("cpu") != 5 {
		t.Errorf("the good queue has %v charged", q.charged.amounts())
	}
	if left := c.tree.root.charged.amounts(); !left.Equal(api.Resources{{Resource: "cpu", Value: 2}}) {
		t.Errorf("%v is charged in all", left)
	}
	c.Step(now.Add(2*tombstoneTTL), Tick{})
	if len(c.roster.gangs) != 1 {
		t.Errorf("%d gangs are remembered, one has something", len(c.roster.gangs))
	}
}
