package home

import (
	"fmt"
	"testing"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/shard/event"
)

// BenchmarkPod takes single pods from first sight to finished and gone, with thousands of gangs waiting beside them that
// the coordinator has denied. The answers come at once.
func BenchmarkPod(b *testing.B) {
	for _, waiting := range []int{0, 10000} {
		b.Run(fmt.Sprintf("waiting=%d", waiting), func(b *testing.B) {
			c := logged(New(Config{Self: "a", Strict: true}))
			now := epoch0
			t := &api.Table{Epoch: 1, Revision: 10, Members: []api.Member{{Incarnation: "a", Name: "a"}}}
			for i := range t.Changed {
				t.Changed[i] = 1
			}
			deny := map[string]bool{}
			class := api.NewClass(cores(1, 1), nil)
			var step func(ev event.Event)
			step = func(ev event.Event) {
				c.Step(now, ev)
				for _, o := range append([]event.Output(nil), c.Outputs()...) {
					s, ok := o.(event.Send)
					if !ok {
						continue
					}
					answer := func(body *wire.Envelope) { step(event.Message{From: s.To, Body: body}) }
					switch m := s.Body.Body.(type) {
					case *wire.Envelope_Reserve:
						r := m.Reserve
						if deny[r.Gang.Uid] {
							answer(&wire.Envelope{Body: &wire.Envelope_Denied{Denied: &wire.Denied{GangUid: r.Gang.Uid, Attempt: r.Attempt, Serial: r.Serial, Reason: wire.DenyReason_DENY_QUOTA}}})
							continue
						}
						answer(&wire.Envelope{Body: &wire.Envelope_Granted{Granted: &wire.Granted{GangUid: r.Gang.Uid, Attempt: r.Attempt, Serial: r.Serial, ReservationRevision: 5, Demand: r.Demand}}})
					case *wire.Envelope_Unreserve:
						answer(&wire.Envelope{Body: &wire.Envelope_Unreserved{Unreserved: &wire.Unreserved{GangUid: m.Unreserve.Gang.Uid, Serial: m.Unreserve.Serial}}})
					case *wire.Envelope_HoldRequest:
						r := m.HoldRequest
						reply := &wire.HoldReply{GangUid: r.Gang.Uid, Serial: r.Serial}
						for _, p := range r.Pods {
							reply.Held = append(reply.Held, &wire.Held{PodUid: p.PodUid, Node: "n"})
						}
						answer(&wire.Envelope{Body: &wire.Envelope_HoldReply{HoldReply: reply}})
					case *wire.Envelope_Commit:
						answer(&wire.Envelope{Body: &wire.Envelope_CommitReply{CommitReply: &wire.CommitReply{GangUid: m.Commit.Gang.Uid, Serial: m.Commit.Serial, Outcome: wire.CommitOutcome_COMMIT_PREPARED}}})
						for _, p := range m.Commit.Pods {
							answer(&wire.Envelope{Body: &wire.Envelope_BindResults{BindResults: &wire.BindResults{GangUid: m.Commit.Gang.Uid, Serial: m.Commit.Serial,
								Results: []*wire.BindResult{{PodUid: p.Uid, Outcome: wire.BindOutcome_BIND_BOUND, Node: "n"}}}}})
						}
					}
				}
			}
			pod := func(uid, node string, finished bool) event.Event {
				return event.PodSeen{Pod: &api.Pod{UID: uid, Namespace: "ns", Name: uid, ResourceVersion: "1", Created: now, Ours: true, Node: node, Finished: finished, Class: class, Gang: uid}}
			}
			step(event.NamespaceSeen{Name: "ns"})
			step(event.TableSeen{Table: t})
			step(event.StoreRead{Sequence: 1, Revision: 10})
			step(event.PodsReplaced{Sequence: 1})
			for i := range waiting {
				uid := fmt.Sprintf("w%d", i)
				deny[uid] = true
				step(pod(uid, "", false))
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				uid := fmt.Sprintf("p%d", i)
				step(pod(uid, "", false))
				step(pod(uid, "n", false))
				step(pod(uid, "n", true))
				step(event.PodGone{UID: uid})
				if i%100 == 0 { // 1,000 pods a second
					now = now.Add(100 * time.Millisecond)
					step(event.Tick{})
				}
			}
		})
	}
}

// BenchmarkManyClasses reports what gangs cost that find no room and each of whose pods has other constraints, of 30 KiB.
func BenchmarkManyClasses(b *testing.B) {
	for _, shape := range []struct{ gangs, pods, bytes int }{{1, 2000, 30 << 10}, {1, 2000, 0}, {2000, 1, 30 << 10}, {2000, 1, 0}} {
		b.Run(fmt.Sprintf("gangs=%d/pods=%d/bytes=%d", shape.gangs, shape.pods, shape.bytes), func(b *testing.B) {
			e := newEditor(false)
			e.step(event.NamespaceSeen{Name: "ns"})
			for g := range shape.gangs {
				if shape.bytes > 0 {
					e.heavyGang("ns", fmt.Sprint("g", g), shape.pods, shape.bytes)
				} else {
					e.gang("ns", fmt.Sprint("g", g), shape.pods)
				}
			}
			b.ResetTimer()
			for n := range b.N { // a second each
				for i := range 10 {
					e.now = e.now.Add(100 * time.Millisecond)
					e.summary(uint64(10*n + i))
					e.step(event.Tick{})
				}
			}
		})
	}
}
