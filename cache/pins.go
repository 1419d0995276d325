package cache

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"basalt.dev/basalt/api"
)

// Pods that are pinned to nodes by name: a volume of one node, a pod that Kueue or a DaemonSet-like controller places, a host name that a
// user wrote. There are as many sets of constraints as nodes then, and to compare each with every node would cost the square of their
// number. So the few nodes that such a set may allow are looked up, and no other is ever compared with it.

// pins are the nodes that a set may allow: the ones of these names, and those with these host names.
type pins struct {
	names, hosts []string
}

// maxPins is how many nodes a set names at most to be looked up.
const maxPins = 64

// pinsOf finds them; nil if the constraints allow nodes by anything else than their names.
func pinsOf(s *v1.PodSpec) *pins {
	if host := s.NodeSelector[api.LabelHostname]; host != "" {
		return &pins{hosts: []string{host}}
	}
	if s.Affinity == nil || s.Affinity.NodeAffinity == nil || s.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	out := &pins{}
	for _, t := range s.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		pinned := false
		for _, f := range t.MatchFields {
			if f.Operator == v1.NodeSelectorOpIn && f.Key == "metadata.name" && !pinned {
				pinned, out.names = true, append(out.names, f.Values...)
			}
		}
		for _, e := range t.MatchExpressions {
			if e.Operator == v1.NodeSelectorOpIn && e.Key == api.LabelHostname && !pinned {
				pinned, out.hosts = true, append(out.hosts, e.Values...)
			}
		}
		if !pinned && len(t.MatchFields)+len(t.MatchExpressions) > 0 || len(out.names)+len(out.hosts) > maxPins {
			return nil
		}
	}
	return out
}

// candidates returns the slots of the nodes that a pinned set may allow, each once.
func (c *Cache) candidates(p *pins) (slots []int32) {
	for _, name := range p.names {
		if n := c.nodes[name]; n != nil && n.object != nil {
			slots = append(slots, n.slot)
		}
	}
	for _, host := range p.hosts {
		slots = append(slots, c.hosts[host]...)
	}
	slices.Sort(slots)
	return slices.Compact(slots)
}

// setHostOf has a node that is there, or was, found by its host name, or no more by the one before.
func (c *Cache) setHostOf(s int32, before, now string) {
	if before == now {
		return
	}
	if before != "" {
		if c.hosts[before] = slices.DeleteFunc(c.hosts[before], func(o int32) bool { return o == s }); len(c.hosts[before]) == 0 {
			delete(c.hosts, before)
		}
	}
	if now != "" {
		c.hosts[now] = append(c.hosts[now], s)
	}
}

// bestPinned is best for a class whose set is pinned.
func (c *Cache) bestPinned(cl *class) (best int32, ok bool) {
	for _, s := range c.candidates(cl.set.pins) {
		if what, _ := c.obstacle(cl, s, c.verdict(cl, s)); what == Nothing && (!ok || c.keyOf(s) < c.keyOf(best)) {
			best, ok = s, true
		}
	}
	return best, ok
}
