package coordinator

import (
	"fmt"
	"testing"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

// committing is a core whose transactions are committed at once.
type committing struct {
	now  time.Time
	core *Core
}

// newCommitting makes one with queues that all have the same capability.
func newCommitting(capability map[string]int64, queues ...string) *committing {
	c := &committing{now: time.UnixMilli(1_000_000)}
	c.core = New(Config{}, Elected{Now: c.now, Term: 1, Shards: []*wire.ShardRecord{{Name: "s1", Incarnation: "s1"}}})
	for _, q := range queues {
		c.step(QueueSeen{Name: q, UID: "u", ResourceVersion: "1", HasFinalizer: true, Capability: api.FromMap(capability)})
	}
	c.step(QueuesSynced{})
	c.now = c.now.Add(2 * time.Second)
	c.step(Tick{})
	return c
}

func (c *committing) step(ev Event) {
	tell(c.core, c.now, ev, nil)
}

// BenchmarkNames charges a gang that names so many resources, below three limited queues, and releases it again.
func BenchmarkNames(b *testing.B) {
	for _, names := range []int{3, 64, 1000, 8000} {
		b.Run(fmt.Sprint(names), func(b *testing.B) {
			c := newCommitting(map[string]int64{"cpu": 1 << 50, "memory": 1 << 50}, "root", "a", "a.b", "a.b.c")
			m := map[string]int64{"cpu": 1000, "memory": 1 << 30, "pods": 1}
			for i := range names - 3 {
				m[fmt.Sprintf("example.com/device-%d", i)] = 1
			}
			demand := wire.FromResources(api.FromMap(m))
			serial := uint64(0)
			life := func(uid string, release bool) {
				serial++
				ref := &wire.GangRef{Uid: uid, Queue: "a.b.c", Namespace: "ns", Name: "g"}
				c.step(Message{From: "s1", Body: &wire.Envelope{Body: &wire.Envelope_Reserve{Reserve: &wire.Reserve{Gang: ref, Attempt: serial, Serial: serial, TableEpoch: 1, Demand: demand}}}})
				if release {
					serial++
					c.step(Message{From: "s1", Body: &wire.Envelope{Body: &wire.Envelope_Unreserve{Unreserve: &wire.Unreserve{Gang: ref, Attempt: serial, Serial: serial, TableEpoch: 1}}}})
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
	t.recompute()
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

// BenchmarkShares finds out what is to be said of queues that all compete, and of which nothing else has changed.
func BenchmarkShares(b *testing.B) {
	for _, queues := range []int{1000, 10_000} {
		b.Run(fmt.Sprint(queues), func(b *testing.B) {
			paths := []string{"root"}
			for i := range queues {
				paths = append(paths, fmt.Sprint("q", i))
			}
			c := newCommitting(nil, paths...)
			c.core.tree.root.limits.capability = api.FromMap(map[string]int64{"cpu": int64(queues) * 1000, "memory": int64(queues) << 30, "gpu": int64(queues)})
			c.core.tree.dirty = true
			for i, q := range c.core.tree.root.children {
				demand := api.FromMap(map[string]int64{"cpu": 1000 + int64(i%7)*500, "memory": 1 << 30, "gpu": 1})
				c.core.tree.charge(q, demand)
				q.ask(demand, 3)
			}
			for b.Loop() {
				c.now = c.now.Add(wantedEvery)
				c.core.reports.lookAtShares(c.now, c.core.tree)
			}
		})
	}
}
