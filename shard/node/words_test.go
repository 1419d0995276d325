package node

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/link"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/shard/event"
)

// A reply says of many classes, each of which lacks many resources with long names, that there is no room, in a message that
// can be sent; so does a summary of nodes that offer more different resources than it names.
// It takes 20 s to add all those resources.
func TestRepliesAndSummariesAreBounded(t *testing.T) {
	c := logged(New(Config{Self: "a", Strict: true}))
	table := &api.Table{Epoch: 5, Revision: 5, Members: []api.Member{{Incarnation: "a", Name: "a"}}}
	c.Step(epoch0, event.TableSeen{Table: table})
	offer := func(i int) event.Event {
		offers := map[string]int64{"cpu": 1000, "pods": 10}
		for j := range 200 {
			offers[fmt.Sprintf("%0*d", api.MaxResourceName, 200*i+j)] = 1
		}
		return event.NodeSeen{Node: &api.Node{Name: fmt.Sprintf("n%d", i), UID: "u", Allocatable: api.FromMap(offers)}}
	}
	for i := range 30 {
		c.Step(epoch0, offer(i))
	}
	c.Step(epoch0, event.StoreRead{Sequence: 1, Revision: 5})
	c.Step(epoch0, event.PodsReplaced{Sequence: 1})
	m := &wire.HoldRequest{Gang: &wire.GangRef{Uid: "g", Queue: "q"}, Serial: 1, Short: true}
	for i := range 300 {
		requests := map[string]int64{"pods": 1}
		for j := range api.MaxPodResources {
			requests[fmt.Sprintf("%0*d", api.MaxResourceName, 100000+100*i+j)] = 1
		}
		m.Classes = append(m.Classes, &wire.PodClass{Requests: wire.FromResources(api.FromMap(requests))})
		m.Pods = append(m.Pods, &wire.PodWant{PodUid: fmt.Sprint(i), PodClass: uint32(i)})
	}
	c.Step(epoch0, event.Message{From: "a", Body: &wire.Envelope{Body: &wire.Envelope_HoldRequest{HoldRequest: m}}})
	c.Step(epoch0, event.Message{From: "a", Body: &wire.Envelope{Body: &wire.Envelope_Explain{Explain: &wire.Explain{Namespace: "ns", PodClass: m.Classes[0], Serial: 7}}}})
	c.Step(epoch0, event.Message{From: "z", Body: &wire.Envelope{Body: &wire.Envelope_Explain{Explain: &wire.Explain{Namespace: "ns", PodClass: m.Classes[0], Serial: 8}}}}) // of nobody's
	c.Step(epoch0.Add(time.Second), event.Tick{})
	replies, explained, summaries, warnings := 0, 0, 0, 0
	for _, o := range c.Outputs() {
		switch o := o.(type) {
		case event.Send:
			if n := proto.Size(o.Body); n > link.MaxMessage/2 {
				t.Errorf("a message of %d bytes", n)
			}
			if r := o.Body.GetHoldReply(); r != nil {
				replies++
				if len(r.GetRefused()) != 300 {
					t.Errorf("%d refusals", len(r.GetRefused()))
				}
			}
			if x := o.Body.GetExplained(); x != nil {
				explained++
				if n := len(x.GetReasons()); n != maxReasons || x.GetNodes() != 30 || x.GetSerial() != 7 || x.GetReasons()[0].GetReason() == "" {
					t.Errorf("%d reasons of %d nodes", n, x.GetNodes())
				}
			}
			if s := o.Body.GetSummary(); s != nil {
				summaries++
				free, err := wire.ToResources(s.GetFree())
				if err != nil || len(s.GetAllocatable()) != maxSummaryResources || len(free) != maxSummaryResources || len(s.GetLargest()) != maxSummaryResources || free.Value("cpu") != 30000 {
					t.Errorf("allocatable %d, free %d, largest %d, %v", len(s.GetAllocatable()), len(free), len(s.GetLargest()), err)
				}
			}
		case event.Log:
			if strings.Contains(o.Message, "too many different resources") {
				warnings++
			}
		}
	}
	if replies != 1 || explained != 1 || summaries == 0 || warnings != 1 {
		t.Errorf("%d replies, %d explained, %d summaries, %d warnings", replies, explained, summaries, warnings)
	}

	// Once the nodes offer no more than can be named, it is worth another warning when they do again.
	warnings = 0
	warned := func(after time.Duration) int {
		c.Step(epoch0.Add(after), event.Tick{})
		for _, o := range c.Outputs() {
			if l, ok := o.(event.Log); ok && strings.Contains(l.Message, "too many different resources") {
				warnings++
			}
		}
		return warnings
	}
	for i := range 10 {
		c.Step(epoch0, event.NodeGone{Name: fmt.Sprintf("n%d", i)})
	}
	if n := warned(2 * time.Second); n != 0 {
		t.Errorf("%d warnings of what is within the limit", n)
	}
	c.Step(epoch0, offer(0))
	c.Step(epoch0, offer(1))
	if n := warned(3 * time.Second); n != 1 || warned(4*time.Second) != 1 {
		t.Errorf("%d warnings the second time", n)
	}
}
