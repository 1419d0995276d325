package home

import (
	"log/slog"
	"slices"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/shard/event"
)

// Pods that somebody else bound, by spec.nodeName or another scheduler. They are charged whatever the limits say, and anybody
// who may create pods may create such ones. So they are charged only for what they can use:
//
//   - nothing while their node does not exist: no kubelet runs them;
//   - once the kubelet has accepted the pod (api.Pod.Started), what it requests;
//   - before that, what it requests if its node has that much, together with all others that are charged so on this node. The
//     kubelet refuses what exceeds its node, and a refused pod has failed and uses nothing.
//
// A pod that its gang's reservation names is charged already: an earlier home may have bound it. What was charged stays charged until
// the pod ends. A pod that is not charged yet is looked at again when it starts, when its node appears or grows, and when another one
// on its node starts or ends.

// census knows the nodes of the cluster, what others bound there, and what a gang has.
type census struct {
	*common

	clusterNodes   map[string]*api.Node  // all nodes of the cluster (foreign.go)
	foreign        map[string]*foreignOn // node -> pods there that somebody else bound
	priorities     map[string]int64
	warnedOfOthers time.Time
}

// foreignOn is what is known of such pods on one node.
type foreignOn struct {
	sum     api.Resources   // requested by those that are charged and have not started
	waiting map[string]bool // pods that are not charged, by UID,
	order   []string        // in the order in which they came, with some that wait no more
}

// recheckAtOnce is how many of the pods that wait on a node are looked at again when another one there starts or ends.
const recheckAtOnce = 16

// boundByOthers warns that a pod which this shard had to place was bound by somebody else: another scheduler serves a name of Basalt's,
// and neither of the two knows what the other one is about to bind to a node.
func (c *census) boundByOthers(p *pod) {
	c.BoundByOthers++
	if c.now.Before(c.warnedOfOthers.Add(warnOfOthers)) {
		return
	}
	c.warnedOfOthers = c.now
	c.log(slog.LevelWarn, "pod bound by another scheduler under our schedulerName",
		slog.String("pod", p.Namespace+"/"+p.Name), slog.String("node", p.Node), slog.Uint64("so far", c.BoundByOthers))
	c.emit(event.ObjectEvent{About: aboutPod(p), Warning: true, Reason: v1beta1.ReasonBoundByOthers,
		Message: "bound to node " + p.Node + " by another scheduler under our schedulerName"})
}

// warnOfOthers is the pause between two such warnings.
const warnOfOthers = 10 * time.Second

// isChargeable reports whether the pod is bound and to be charged.
func (p *pod) isChargeable() bool {
	return p.isBound() && p.burden != ofOthers && p.absence != lost && (p.others.asks() || !p.isElsewhere())
}

// judgeForeign decides whether a bound pod is to be charged.
func (c *census) judgeForeign(p *pod) {
	switch {
	case p.burden != ofOthers:
		if p.seldom().counted != nil && p.Started {
			c.uncount(p)
		}
		return
	case p.Node == "" || p.gang.charge.reserved() && p.gang.charge.names(p.gang, p) ||
		fault.On(fault.ForeignInFull):
		p.burden = chargeable
		return
	}
	n, on := c.clusterNodes[p.Node], c.foreign[p.Node]
	if on == nil {
		on = &foreignOn{waiting: map[string]bool{}}
		c.foreign[p.Node] = on
	}
	sum := p.Class.Requests
	if on.sum != nil {
		sum = on.sum.Add(sum)
	}
	switch {
	case n != nil && p.Started:
		p.burden = chargeable
	case n != nil && sum.Fits(n.Allocatable):
		p.burden, p.some().counted, on.sum = chargeable, p.Class.Requests, sum
	case !on.waiting[p.UID]:
		on.waiting[p.UID] = true
		on.order = append(on.order, p.UID)
	}
	if p.burden != ofOthers {
		delete(on.waiting, p.UID)
	}
	c.forgetForeign(p.Node)
}

// forgetCharge ends what owe decided.
func (c *census) forgetCharge(p *pod) {
	c.uncount(p)
	if p.burden == chargeable {
		p.burden = ofOthers
	}
	if on := c.foreign[p.Node]; on != nil {
		delete(on.waiting, p.UID)
		c.forgetForeign(p.Node)
	}
}

// uncount takes a pod out of the sum of its node, and has others there looked at.
func (c *census) uncount(p *pod) {
	if p.seldom().counted == nil {
		return
	}
	on := c.foreign[p.Node]
	on.sum, p.few.counted = on.sum.Sub(p.few.counted), nil
	c.lookAtForeign(p.Node, recheckAtOnce)
}

// lookAtForeign has some of the pods looked at that wait to be charged on a node.
func (c *census) lookAtForeign(node string, most int) {
	on := c.foreign[node]
	if on == nil {
		return
	}
	for looked := 0; len(on.order) > 0 && looked < min(most, len(on.waiting)); {
		uid := on.order[0]
		on.order = on.order[1:]
		if !on.waiting[uid] {
			continue
		}
		on.order = append(on.order, uid)
		looked++
		if p := c.pods[uid]; p != nil && p.gang != nil {
			c.touch(p.gang)
		}
	}
	c.forgetForeign(node)
}

func (c *census) forgetForeign(node string) {
	if on := c.foreign[node]; on != nil && len(on.waiting) == 0 && on.sum.IsZero() {
		delete(c.foreign, node)
	} else if on != nil && len(on.order) > 2*len(on.waiting)+recheckAtOnce {
		on.order = slices.DeleteFunc(on.order, func(uid string) bool { return !on.waiting[uid] })
	}
}

func (c *census) onNodeSeen(n *api.Node) {
	if n == nil || n.Name == "" {
		return
	}
	before := c.clusterNodes[n.Name]
	c.clusterNodes[n.Name] = n
	if on := c.foreign[n.Name]; on != nil && (before == nil || !before.Allocatable.Equal(n.Allocatable)) {
		c.lookAtForeign(n.Name, len(on.waiting))
	}
}
