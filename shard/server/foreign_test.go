package server

import (
	"flag"
	"fmt"
	"runtime"
	"testing"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/shard/cores"
	"basalt.dev/basalt/shard/event"
	"basalt.dev/basalt/shard/home"
	"basalt.dev/basalt/shard/node"
)

var foreignPods = flag.Int("foreign", 100_000, "so many pods of other shards are there in BenchmarkForeign")

var foreignListed = flag.Bool("foreign.listed", false, "a takeover lists pods anew, as when the watch is behind")

const foreignShards = 64

// timed are the cores of one of 64 shards, which owns a 64th of the buckets. What they ask for is not done.
type timed struct {
	*cores.Cores
	now     time.Time
	spent   [3]time.Duration // in each of them
	class   *api.Class
	version int
}

// step gives the cores an event, as the loop does, and returns how long that takes.
func (c *timed) step(ev event.Event) time.Duration {
	began := time.Now()
	c.View.Step(c.now, ev)
	one := time.Now()
	c.Home.Step(c.now, ev)
	c.Home.Outputs()
	two := time.Now()
	c.Node.Step(c.now, ev)
	c.Node.Outputs()
	end := time.Now()
	for i, d := range [...]time.Duration{one.Sub(began), two.Sub(one), end.Sub(two)} {
		c.spent[i] += d
	}
	return end.Sub(began)
}

// tableWithout is a table of all shards but one, whose buckets the first has.
func tableWithout(gone int, epoch api.Epoch) *api.Table {
	t := &api.Table{Epoch: epoch, Revision: int64(epoch)}
	for i := range foreignShards {
		name := fmt.Sprint("s", i)
		t.Members = append(t.Members, api.Member{Incarnation: api.Incarnation(name), Name: name})
	}
	for b := range t.Owners {
		if t.Owners[b] = uint16(b % foreignShards); b%foreignShards == gone {
			t.Owners[b], t.Changed[b] = 0, epoch
		}
	}
	return t
}

func newTimed() *timed {
	c := &timed{Cores: cores.New("s0", home.Config{}, node.Config{}), now: time.Unix(1_700_000_000, 0)}
	c.class = api.NewClass(api.FromMap(map[string]int64{"cpu": 1000, "memory": 2 << 30, "pods": 1}), nil)
	for i := range 1000 {
		room := api.FromMap(map[string]int64{"cpu": 64000, "memory": 256 << 30, "pods": 1100})
		c.step(event.NodeSeen{Node: &api.Node{Name: fmt.Sprint("node-", i), UID: fmt.Sprint("n", i),
			ResourceVersion: "1", Allocatable: room}})
	}
	for i := range 100 {
		c.step(event.NamespaceSeen{Name: fmt.Sprint("team-", i), Queue: ""})
	}
	c.step(event.LogRead{Revision: 1})
	c.step(event.TableSeen{Table: tableWithout(-1, 1)})
	c.step(event.StoreRead{Sequence: 1, Revision: 1})
	c.step(event.PodsReplaced{Sequence: 1})
	return c
}

// foreignName returns a name of a bucket of other shards, of some that are alike.
func foreignName(prefix string, i int) string {
	for ; ; i += 1000 {
		if name := fmt.Sprint(prefix, i); int(api.BucketOf(name))%foreignShards > 1 {
			return name
		}
	}
}

// pod is the i-th pod of other shards, on a node of theirs or not.
func (c *timed) pod(i int, bound, finished bool) *api.Pod {
	c.version++
	p := &api.Pod{UID: fmt.Sprintf("5bb1-4f0e-9d3c-2f3f2d1c0b0a-%08d", i), Namespace: fmt.Sprint("team-", i/10%100),
		Name: fmt.Sprintf("train-%d-abcde", i), ResourceVersion: fmt.Sprint(1000 + c.version), Created: c.now,
		Ours: true, Class: c.class, Group: fmt.Sprint("train-", i/10), GroupKind: api.ImpliedGroup, GroupMin: 10,
		Queue: foreignName("queue-", i/10%200), Finished: finished}
	if bound {
		p.Node, p.Gang, p.Started = foreignName("node-", i%1000), "g", true
	}
	return p
}

// BenchmarkForeign is what a pod of other shards costs a shard, behind its watches: a life, with its row in the log of
// intents, while others stand; what it keeps of one that stands; and the longest step of a takeover of a 64th of the
// buckets, which concern none of these pods.
func BenchmarkForeign(b *testing.B) {
	b.Run("life", func(b *testing.B) {
		c := newTimed()
		for i := range *foreignPods {
			c.step(event.PodSeen{Pod: c.pod(i, true, false)})
		}
		made := make([][4]event.Event, b.N)
		for k := range made {
			i := *foreignPods + k
			pending, bound, finished := c.pod(i, false, false), c.pod(i, true, false), c.pod(i, true, true)
			rows := []*wire.IntentRow{{PodUid: pending.UID, PodResourceVersion: pending.ResourceVersion,
				Namespace: pending.Namespace, Name: pending.Name, Node: bound.Node}}
			logged := event.LoggedIntents{Incarnation: "s9", N: uint64(k), Place: int64(k) + 2,
				Record: &wire.IntentsRecord{Rows: rows}}
			made[k] = [4]event.Event{event.PodSeen{Pod: pending},
				event.LogSeen{Revision: logged.Place, Intents: []event.LoggedIntents{logged}},
				event.PodSeen{Pod: bound}, event.PodSeen{Pod: finished}}
		}
		runtime.GC()
		c.spent = [3]time.Duration{}
		b.ReportAllocs()
		b.ResetTimer()
		for k := range made {
			for _, ev := range made[k] {
				c.step(ev)
			}
			deleted := event.LoggedIntents{Incarnation: "s9", N: uint64(k)}
			c.step(event.LogSeen{Revision: int64(k) + 2, Intents: []event.LoggedIntents{deleted}})
			p := made[k][0].(event.PodSeen).Pod
			c.step(event.PodGone{UID: p.UID, Namespace: p.Namespace, Name: p.Name})
			if k%100 == 0 { // 1,000 pods a second
				c.now = c.now.Add(100 * time.Millisecond)
				c.step(event.Tick{})
			}
		}
		b.StopTimer()
		for i, core := range [...]string{"topology", "home", "node"} {
			b.ReportMetric(float64(c.spent[i].Nanoseconds())/float64(b.N), core+"-ns/op")
		}
	})
	b.Run("standing", func(b *testing.B) {
		least := time.Hour
		for range b.N {
			c := newTimed()
			before := liveHeap()
			all := make([]*api.Pod, *foreignPods)
			for i := range all {
				all[i] = c.pod(i, true, false)
				c.step(event.PodSeen{Pod: all[i]})
			}
			b.ReportMetric(float64(liveHeap()-before)/float64(len(all)), "B/pod")
			longest := c.step(event.TableSeen{Table: tableWithout(1, 2)})
			longest = max(longest, c.step(event.StoreRead{Sequence: 2, Revision: 2}))
			began := time.Now() // as loop.listed does
			ev := event.PodsReplaced{Sequence: 2, Pods: all}
			if !*foreignListed {
				nodes, rows := c.Node.Asks()
				ev.Seen, ev.Pods = true, c.Home.Pods(nil, nodes, rows)
			}
			c.step(ev)
			longest = max(longest, time.Since(began), c.step(event.Drained{}), c.step(event.Tick{}))
			least = min(least, longest)
			runtime.KeepAlive(all)
		}
		b.ReportMetric(least.Seconds()*1000, "longest-ms") // of the run that others disturbed least
	})
}

func liveHeap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
