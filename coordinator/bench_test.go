package coordinator

import (
	"fmt"
	"testing"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

// BenchmarkNames charges a gang that names so many resources, below three limited queues, and releases it again.
func BenchmarkNames(b *testing.B) {
	for _, names := range []int{3, 64, 1000, 8000} {
		b.Run(fmt.Sprint(names), func(b *testing.B) {
			now := time.UnixMilli(1_000_000)
			c := New(Config{}, Elected{Now: now, Term: 1, Shards: []*wire.ShardRecord{{Name: "s1", Incarnation: "s1"}}})
			var step func(ev Event)
			step = func(ev Event) {
				c.Step(now, ev)
				for _, o := range c.Outputs() {
					if t, ok := o.(Txn); ok {
						step(TxnDone{ID: t.ID, Revision: int64(t.ID) + 1})
					}
				}
			}
			limits := api.FromMap(map[string]int64{"cpu": 1 << 50, "memory": 1 << 50})
			for _, q := range []string{"root", "a", "a.b", "a.b.c"} {
				step(QueueSeen{Name: q, UID: "u", ResourceVersion: "1", HasFinalizer: true, Capability: limits})
			}
			step(QueuesSynced{})
			now = now.Add(2 * time.Second)
			step(Tick{})
			m := map[string]int64{"cpu": 1000, "memory": 1 << 30, "pods": 1}
			for i := range names - 3 {
				m[fmt.Sprintf("example.com/device-%d", i)] = 1
			}
			demand := wire.FromResources(api.FromMap(m))
			serial := uint64(0)
			life := func(uid string, release bool) {
				serial++
				ref := &wire.GangRef{Uid: uid, Queue: "a.b.c", Namespace: "ns", Name: "g"}
				step(Message{From: "s1", Body: &wire.Envelope{Body: &wire.Envelope_Reserve{Reserve: &wire.Reserve{Gang: ref, Attempt: serial, Serial: serial, TableEpoch: 1, Demand: demand}}}})
				if release {
					serial++
					step(Message{From: "s1", Body: &wire.Envelope{Body: &wire.Envelope_Unreserve{Unreserve: &wire.Unreserve{Gang: ref, Attempt: serial, Serial: serial, TableEpoch: 1}}}})
				}
			}
			life("stays", false)
			b.ResetTimer()
			for range b.N {
				life("g", true)
			}
		})
	}
}

// BenchmarkCharge is the arithmetic alone, in its steady state: three names, three queues.
func BenchmarkCharge(b *testing.B) {
	t := newTree()
	limits := &limits{record: &wire.LimitsRecord{}, capability: api.FromMap(map[string]int64{"cpu": 1 << 50, "memory": 1 << 50})}
	for _, path := range []string{"root", "a", "a.b", "a.b.c"} {
		t.at(path).limits = limits
	}
	t.dirty = true
	t.settle()
	q := t.at("a.b.c")
	up := api.FromMap(map[string]int64{"cpu": 1000, "memory": 1 << 30, "pods": 1})
	down := api.Resources(nil).Sub(up)
	t.charge(q, up)
	for range b.N {
		if t.over(q, up, up, nil) != nil {
			b.Fatal("denied")
		}
		t.charge(q, up)
		t.charge(q, down)
	}
}
