package node

import (
	"fmt"
	"testing"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/shard/event"
)

// BenchmarkPodLife is what one pod of its own costs the core from hold to deleted intent, on 5,000 nodes, with 256 pods
// on their way at a time and everything answered at once.
func BenchmarkPodLife(b *testing.B) {
	c := logged(New(Config{Self: "a"}))
	t := &api.Table{Epoch: 1, Revision: 1, Members: []api.Member{{Incarnation: "a"}}}
	now := epoch0
	c.Step(now, event.TableSeen{Table: t})
	for i := range 5000 {
		c.Step(now, event.NodeSeen{Node: &api.Node{Name: fmt.Sprint("n", i), Allocatable: api.FromMap(map[string]int64{"cpu": 64000, "pods": 110})}})
	}
	c.Step(now, event.StoreRead{Sequence: 1, Revision: 1})
	c.Step(now, event.PodsReplaced{Sequence: 1})
	c.Outputs()
	class := api.NewClass(api.FromMap(map[string]int64{"cpu": 1000, "pods": 1}), nil)
	classes := wireClass(class)
	say := func(body *wire.Envelope) { c.Step(now, event.Message{From: "a", Body: body}) }
	var ends []string
	next, underWay := 0, 0
	b.ResetTimer()
	for done := 0; done < b.N; {
		for ; underWay < 256; underWay++ {
			next++
			gang := &wire.GangRef{Uid: fmt.Sprint("p", next), Queue: "q"}
			say(&wire.Envelope{Body: &wire.Envelope_HoldRequest{HoldRequest: &wire.HoldRequest{Gang: gang, Serial: 1, Classes: classes, Pods: []*wire.PodWant{{PodUid: gang.Uid}}}}})
		}
		now = now.Add(20 * time.Millisecond)
		c.Step(now, event.Tick{})
		for out := c.Outputs(); len(out) > 0; out = c.Outputs() {
			for _, o := range out {
				switch o := o.(type) {
				case event.Send:
					if r := o.Body.GetHoldReply(); r != nil && len(r.Held) == 1 {
						uid := r.Held[0].PodUid
						say(&wire.Envelope{Body: &wire.Envelope_Commit{Commit: &wire.Commit{Gang: &wire.GangRef{Uid: uid, Queue: "q"}, Serial: 2, TableRevision: 1, ReservationRevision: 1,
							Classes: classes, Bind: true, Pods: []*wire.PodRef{{Uid: uid, ResourceVersion: "1", Namespace: "ns", Name: uid, Node: r.Held[0].Node}}}}})
					}
				case event.WriteIntents:
					c.Step(now, event.IntentsWritten{N: o.N, Outcome: event.Written, ModRevision: 9})
				case event.BindPod:
					c.Step(now, event.BindDone{Row: o.Row, Outcome: event.BindOK})
					c.Step(now, event.PodSeen{Pod: &api.Pod{UID: o.Row.PodUID, Node: o.Node, Class: class}})
					ends = append(ends, o.Row.PodUID)
					underWay--
					done++
				case event.DeleteIntents:
					var keys []event.IntentKey
					for _, k := range o.Keys {
						keys = append(keys, event.IntentKey{N: k.N})
					}
					c.Step(now, event.IntentsDeleted{Keys: keys})
				}
			}
		}
		if len(ends) > 20000 {
			for _, uid := range ends[:10000] {
				c.Step(now, event.PodGone{UID: uid})
			}
			ends = append(ends[:0:0], ends[10000:]...)
		}
	}
}
