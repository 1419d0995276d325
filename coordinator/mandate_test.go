package coordinator

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

// BenchmarkMandate gives one gang a mandate, where so many gangs in 200 queues may be evicted for it.
func BenchmarkMandate(b *testing.B) {
	for _, gangs := range []int{1000, 10_000, 100_000} {
		b.Run(fmt.Sprint(gangs), func(b *testing.B) {
			now := time.UnixMilli(1_000_000)
			c := New(Config{}, Elected{Now: now, Term: 1, Shards: []*wire.ShardRecord{{Name: "s1", Incarnation: "s1"}}})
			rev := int64(1)
			var step func(ev Event)
			step = func(ev Event) {
				c.Step(now, ev)
				for _, o := range c.Outputs() {
					if t, ok := o.(Txn); ok {
						rev++
						step(TxnDone{ID: t.ID, Revision: rev})
					}
				}
			}
			cpu := func(n int) api.Resources { return api.FromMap(map[string]int64{"cpu": int64(n) * 1000}) }
			queue := func(name string, capability, deserved api.Resources) {
				step(QueueSeen{Name: name, UID: "u", ResourceVersion: "1", HasFinalizer: true, Capability: capability, Deserved: deserved,
					Policy: &wire.QueuePolicy{ReclaimMinRuntimeMs: new(int64(0)), PreemptionDelayMs: new(int64(0))}})
			}
			queue("root", cpu(gangs), nil)
			queue("a", nil, cpu(gangs/2))
			for i := range 200 {
				queue(fmt.Sprintf("q%d", i), nil, cpu(1))
			}
			step(QueuesSynced{})
			now = now.Add(2 * time.Second)
			step(Tick{})
			serial := uint64(0)
			reserve := func(uid, queue string, demand api.Resources) {
				serial++
				step(Message{From: "s1", Body: &wire.Envelope{Body: &wire.Envelope_Reserve{Reserve: &wire.Reserve{Gang: &wire.GangRef{Uid: uid, Queue: queue},
					Attempt: 1, Serial: serial, TableEpoch: 1, SinceUnixMs: int64(serial), Demand: wire.FromResources(demand), Preemptible: true, Claims: true}}}})
			}
			for i := range gangs {
				now = now.Add(time.Millisecond)
				reserve(fmt.Sprint("g", i), fmt.Sprintf("q%d", i%200), cpu(1))
			}
			reserve("claimant", "a", cpu(gangs/100))
			g := c.gangs[gangKey{"a", "claimant"}]
			if g.req == nil || len(c.ring) != 1 {
				b.Fatal("it does not wait")
			}
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			began, candidates := threadTime(), 0
			for b.Loop() {
				c.endMandate(g)
				g.pause = pause{}
				c.giveMandate(now, g)
				if g.mandate == nil {
					b.Fatal("no mandate")
				}
				for _, o := range c.out {
					if m := o.(Send).Body.GetMandate(); m != nil {
						candidates = len(m.Candidates)
					}
				}
				c.out = nil
			}
			b.ReportMetric(float64((threadTime()-began).Microseconds())/float64(b.N)/1000, "cpu-ms/op")
			b.ReportMetric(float64(candidates), "candidates")
		})
	}
}

// TestMandateLooksAtAllQueues: a queue with more gangs than a mandate looks at leaves a part of them to the queues after it, which have more
// above what they deserve.
func TestMandateLooksAtAllQueues(t *testing.T) {
	r := newRush(false)
	const large, small = lookedAtMost + 500, 300
	r.queue("root", rushCPU(large+small), nil)
	r.queue("a", nil, rushCPU(10))
	r.queue("b0", nil, rushCPU(large-20))
	r.queue("b1", nil, rushCPU(1))
	r.step(QueuesSynced{})
	r.step(ShardLinked{Incarnation: "s1"})
	r.pass(2 * time.Second)
	for i := range large {
		r.reserve(fmt.Sprint("l", i), "b0", 1)
	}
	for i := range small {
		r.reserve(fmt.Sprint("s", i), "b1", 1)
	}
	if !r.until(time.Hour, func() bool { return len(r.granted) == large+small }) {
		t.Fatalf("%d granted", len(r.granted))
	}
	a := ask{queue: r.c.tree.byPath["a"], demand: rushCPU(10)}
	rule, s := r.c.offerFor(r.now, &gang{}, a, a.lacks(), &r.c.found)
	if rule != wire.Rule_RULE_RECLAIM || !s.enough || s.looked > lookedAtMost || s.looked < lookedAtMost-1 {
		t.Errorf("%v, enough %t, after a look at %d gangs", rule, s.enough, s.looked)
	}
	for _, v := range s.first() {
		if v.side.queue.path != "b1" {
			t.Errorf("gang %s of queue %s goes first", v.uid, v.side.queue.path)
		}
	}
}
