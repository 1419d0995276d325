package home

import (
	"fmt"
	"testing"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/shard/event"
)

// sleepers runs single pods that have quota and find no room for some seconds, with a summary of new room every 200 ms. It
// returns how many messages were sent in a second, and the CPU time of the longest tick.
func sleepers(gangs int, lasts time.Duration) (messages int, longest, total time.Duration) {
	c := logged(New(Config{Self: "a", Strict: true}))
	now := epoch0
	t := &api.Table{Epoch: 1, Revision: 10, Members: []api.Member{{Incarnation: "a", Name: "a"}}}
	for i := range t.Changed {
		t.Changed[i] = 1
	}
	sent := 0
	var queue []event.Event
	step := func(ev event.Event) {
		for queue = append(queue[:0], ev); len(queue) > 0; {
			ev := queue[0]
			queue = queue[1:]
			c.Step(now, ev)
			for _, o := range c.Outputs() {
				s, ok := o.(event.Send)
				if !ok {
					continue
				}
				sent++
				answer := func(body *wire.Envelope) { queue = append(queue, event.Message{From: s.To, Body: body}) }
				switch m := s.Body.Body.(type) {
				case *wire.Envelope_Reserve:
					r := m.Reserve
					answer(&wire.Envelope{Body: &wire.Envelope_Granted{Granted: &wire.Granted{GangUid: r.Gang.Uid, Attempt: r.Attempt, Serial: r.Serial, ReservationRevision: 5, Demand: r.Demand}}})
				case *wire.Envelope_Unreserve:
					answer(&wire.Envelope{Body: &wire.Envelope_Unreserved{Unreserved: &wire.Unreserved{GangUid: m.Unreserve.Gang.Uid, Serial: m.Unreserve.Serial}}})
				case *wire.Envelope_HoldRequest:
					answer(&wire.Envelope{Body: &wire.Envelope_HoldReply{HoldReply: &wire.HoldReply{GangUid: m.HoldRequest.Gang.Uid, Serial: m.HoldRequest.Serial, Refused: []*wire.Refusal{{Pods: 1}}}}})
				case *wire.Envelope_Withdraw:
					answer(&wire.Envelope{Body: &wire.Envelope_Withdrawn{Withdrawn: &wire.Withdrawn{GangUid: m.Withdraw.Gang.Uid, Serial: m.Withdraw.Serial}}})
				}
			}
		}
	}
	summary := func(room uint64) {
		step(event.Message{From: "a", Body: &wire.Envelope{Body: &wire.Envelope_Summary{Summary: &wire.Summary{TableEpoch: 1, Nodes: 10, RoomVersion: room,
			Allocatable: wire.FromResources(cores(1000, 1000)), Largest: wire.FromResources(cores(100, 110))}}}})
	}
	step(event.NamespaceSeen{Name: "ns"})
	step(event.TableSeen{Table: t})
	step(event.StoreRead{Sequence: 1, Revision: 10})
	step(event.PodsReplaced{Sequence: 1})
	summary(0)
	class := api.NewClass(cores(1, 1), nil)
	for i := range gangs {
		uid := fmt.Sprintf("w%d", i)
		step(event.PodSeen{Pod: &api.Pod{UID: uid, Namespace: "ns", Name: uid, ResourceVersion: "1", Created: now, Ours: true, Class: class}})
	}
	ticks := int(lasts / (100 * time.Millisecond))
	for i := range 2 * ticks {
		if i == ticks { // by then all have been refused once
			sent, longest, total = 0, 0, 0
		}
		now = now.Add(100 * time.Millisecond)
		began := time.Now()
		if i%2 == 0 {
			summary(uint64(i))
		}
		step(event.Tick{})
		took := time.Since(began)
		total += took
		longest = max(longest, took)
	}
	return sent / int(lasts/time.Second), longest, total / (lasts / time.Second)
}

// TestSleepersAreBounded: what gangs that find no room say does not grow with their number.
func TestSleepersAreBounded(t *testing.T) {
	few, _, _ := sleepers(2000, 6*time.Second)
	many, _, _ := sleepers(20000, 6*time.Second)
	t.Logf("messages a second: %d with 2,000 gangs, %d with 20,000", few, many)
	if limit := 10 * wakesPerSecond; many > limit {
		t.Errorf("%d messages a second with 20,000 gangs, at most %d are meant", many, limit)
	}
}

// BenchmarkSleepers reports what gangs cost that have quota and find no room.
func BenchmarkSleepers(b *testing.B) {
	for _, gangs := range []int{5000, 50000} {
		b.Run(fmt.Sprint(gangs), func(b *testing.B) {
			for range b.N {
				messages, longest, total := sleepers(gangs, 20*time.Second)
				b.ReportMetric(float64(messages), "messages/s")
				b.ReportMetric(float64(longest.Milliseconds()), "ms/longest-tick")
				b.ReportMetric(float64(total.Milliseconds()), "ms-CPU/s")
			}
		})
	}
}
