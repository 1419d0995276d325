package node

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/cache"
	"basalt.dev/basalt/shard/event"
	"basalt.dev/basalt/shard/topology"
)

// An Explained has no more reasons than this, each of no more bytes: taints may have as many values as there are nodes.
const (
	maxReasons     = 64
	maxReasonBytes = 256
)

// explain tells a home shard why nodes do not take a pod of a class. It is silent during a takeover, when not all pods are counted.
func (c *Core) explain(from api.Incarnation, m *wire.Explain) {
	if !c.ready || c.takeover.stage != idle || !c.table.Has(from) {
		c.ignored++
		return
	}
	classes, err := readClasses([]*wire.PodClass{m.GetPodClass()})
	if err != nil {
		c.ignored++
		return
	}
	class, ok := c.placed(c.kinOf(m.GetNamespace(), classes[0]), classes[0], true)
	rules, known := c.topology.RulesOf(m.GetNamespace(), classes[0])
	ok = ok && known
	reply := &wire.Explained{Serial: m.GetSerial(), Later: !ok || !c.mayCompare(m.GetNamespace(), class)}
	if !reply.Later {
		before := c.cache.Compared()
		why := c.why(rules, class)
		if rules == nil { // what those ask may change with all who leave
			reply.By = roomBy(c, class)
		}
		c.spend(m.GetNamespace(), before)
		reply.Nodes, reply.Fit = uint32(why.Nodes), uint32(why.Fit)
		for _, r := range why.Counts[:min(len(why.Counts), maxReasons)] {
			reply.Reasons = append(reply.Reasons, &wire.NodeReason{Reason: api.Shorten(r.Reason, maxReasonBytes), Nodes: uint32(r.Nodes)})
		}
	}
	c.emit(event.Send{To: from, Body: &wire.Envelope{Body: &wire.Envelope_Explained{Explained: reply}}})
}

// maxShareResources bounds of how many resources Shares tells.
const maxShareResources = 8

// Shares tells how full the nodes are, nil during a takeover, when not all pods are counted.
func Shares(c *Core) *wire.NodesReply {
	if !c.ready || c.takeover.stage != idle {
		return nil
	}
	offered := slices.DeleteFunc(c.cache.Totals().Allocatable,
		func(a api.Amount) bool { return a.Resource == string(v1.ResourcePods) })
	kept, _ := offered.Foremost(maxShareResources, nil)
	reply := &wire.NodesReply{}
	for _, a := range kept {
		reply.Resources = append(reply.Resources, a.Resource)
	}
	reply.Nodes, reply.Free = cache.Shares(c.cache, reply.Resources)
	return reply
}

// why counts why nodes do not take a pod of a class that has rules, or has none.
func (c *Core) why(rules *topology.Rules, class *api.Class) cache.Reasons {
	if rules == nil {
		return c.cache.Why(class)
	}
	return c.cache.WhyWithin(class, func(number int32) string {
		c.cache.Look(rules.Cost())
		return rules.Obstacle(number, true).String()
	})
}
