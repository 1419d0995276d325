package node

import (
	"fmt"
	"slices"
	"testing"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/shard/event"
)

// TestProbedNamesPinned: an answer names the domains that a question pins, however many others have more room.
func TestProbedNamesPinned(t *testing.T) {
	c := manyNodes(0, 1)
	for i := range maxDomains + 10 {
		c.Step(epoch0, event.NodeSeen{Node: &api.Node{Name: fmt.Sprint("n", i), Labels: map[string]string{"rack": fmt.Sprint("r", i)}, Allocatable: api.FromMap(map[string]int64{"cpu": 1000 * int64(1+i), "pods": 110})}})
	}
	c.Outputs()
	class := wireClass(api.NewClass(api.FromMap(map[string]int64{"cpu": 1000}), nil))
	for _, o := range []struct {
		pinned []string
		named  bool
	}{{nil, false}, {[]string{"r0"}, true}, {slices.Repeat([]string{"r9"}, maxPinned), false}, {append(slices.Repeat([]string{"r9"}, maxPinned), "r0"), false}} {
		m := &wire.Probe{Namespace: "ns", Classes: class, Keys: []string{"rack"}, Serial: 1}
		for _, value := range o.pinned {
			m.Pinned = append(m.Pinned, &wire.Domain{Values: []string{value}})
		}
		c.Step(epoch0, event.Message{From: "a", Body: &wire.Envelope{Body: &wire.Envelope_Probe{Probe: m}}})
		var reply *wire.Probed
		for _, out := range c.Outputs() {
			if s, ok := out.(event.Send); ok && s.Body.GetProbed() != nil {
				reply = s.Body.GetProbed()
			}
		}
		named := slices.ContainsFunc(reply.GetDomains(), func(d *wire.Domain) bool { return d.GetValues()[0] == "r0" })
		if len(reply.GetDomains()) != maxDomains || !reply.GetMore() || named != o.named {
			t.Errorf("%d pinned: %d domains are named, r0 among them %t, want %t", len(o.pinned), len(reply.GetDomains()), named, o.named)
		}
	}
}
