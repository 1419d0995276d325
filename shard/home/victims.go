package home

import (
	"slices"
	"strings"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/shard/home/pack"
	"basalt.dev/basalt/shard/home/plan"
)

// What a mandate is answered with: node shards are asked what room there would be without the candidates, and package
// plan finds the fewest of them whose end is enough.

// findPlan makes the plan of a mandate, and notes the domains that it is for. Its namespace is charged for the work.
func (c *claims) findPlan(g *gang, x *claiming, m *plan.Mandate) (found plan.Plan, shares []plan.Share, ok bool) {
	defer func() { c.plans.Spend(c.now, g.name.Namespace, int64(found.Work)) }()
	outer, inner := g.domainKeys()
	nodes := x.nodes
	there := func(p *pod) bool { return p.hasRoom() || p.isBound() } // by an earlier plan, or it has started
	if len(g.pick(there)) > 0 && g.mustBeTogether() {
		if inner != "" {
			return plan.Plan{Why: "it has room for some of its slices already"}, nil, false
		}
		if pin, _ := c.census.pinned(g, []string{outer}, there); pin != nil {
			nodes = slices.DeleteFunc(nodes, func(n plan.Node) bool { return n.Domain != domainID(pin) })
		}
	}
	var parts []part
	var list []pack.Slice
	kinds := map[*pod]int{}
	if inner != "" {
		for i, pods := range x.members {
			for _, p := range pods {
				kinds[p] = i
			}
		}
		parts = c.census.partsOf(g, domainKeys(outer, inner), x.pods)
		list = shapesOf(parts, kinds, len(x.kinds), g.group.Slice.Size)
	}
	found, to, near, result := plan.FindNear(x.kinds, list, nodes, m, g.mustBeTogether(), g.planned, 0)
	g.planned++
	if result != plan.Found {
		return found, nil, false
	}
	if near >= 0 {
		value, _, _ := strings.Cut(to.Domain[1:], "\x00")
		x.closer = &wire.Label{Key: x.near[near][0], Value: value}
	}
	if outer != "" {
		x.within = &wire.Label{Key: outer, Value: valueOf(to.Domain)}
	}
	if inner != "" {
		x.slices = map[string]string{}
		members := make([][]*pod, len(to.Of))
		for i, o := range parts {
			for _, p := range o.pods {
				x.slices[p.UID] = valueOf(to.Parts[i])
				k := slices.Index(to.Of, plan.PartClass{Class: kinds[p], Part: to.Parts[i]})
				members[k] = append(members[k], p)
			}
		}
		x.members = members
	}
	return found, to.Shares, true
}

// shapesOf returns the parts of a gang by the kinds of their pods.
func shapesOf(parts []part, kinds map[*pod]int, n, size int) []pack.Slice {
	list := make([]pack.Slice, len(parts))
	for i, o := range parts {
		list[i] = pack.Slice{Pods: make([]int64, n), In: -1}
		for _, p := range o.pods {
			list[i].Pods[kinds[p]]++
		}
		if o.lone(size) {
			list[i].Wish = slices.Clone(list[i].Pods)
			list[i].Wish[kinds[o.pods[len(o.pods)-1]]] += int64(size - len(o.pods))
		}
	}
	return list
}

// assign decides which pods are requested from which shard: those that are held there already first.
func assign(shares []plan.Share, members [][]*pod) map[api.Incarnation][]*pod {
	out := map[api.Incarnation][]*pod{}
	taken := map[*pod]bool{}
	take := func(s plan.Share, left int, wanted func(*pod) bool) int {
		for _, p := range members[s.Class] {
			if left > 0 && !taken[p] && wanted(p) {
				taken[p] = true
				out[s.Shard] = append(out[s.Shard], p)
				left--
			}
		}
		return left
	}
	left := make([]int, len(shares))
	for i, s := range shares {
		left[i] = take(s, s.Pods, func(p *pod) bool { return p.hasRoom() && p.shard == s.Shard })
	}
	for _, anywhere := range []bool{false, true} {
		for i, s := range shares {
			left[i] = take(s, left[i], func(p *pod) bool { return anywhere || p.stage == nowhere })
		}
	}
	return out
}
