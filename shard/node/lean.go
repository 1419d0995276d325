package node

import (
	"basalt.dev/basalt/api"
	"basalt.dev/basalt/shard/topology"
)

// Leanings (packages topology and cache) decide where a pod is placed, as wishes do, and nothing after that: charges, intents and bound pods
// are of a class without them, and nobody judges them. Holds of classes with leanings are counted while they are only holds, so that the pods
// of a Deployment that come together are spread like those that come one by one.
//
// A HoldRequest with a grade asks for nodes of at least that grade among all nodes of the cluster, by the sum of wishes and leanings. A
// refusal says what the best node has. Summaries do not, for that changes with each pod.

// leaned is the leanings of a class of a request.
type leaned struct {
	of    *topology.Leanings // nil: none, or they are not heeded
	grade uint32             // of the best node, when it was last looked for
}

// lean reads the leanings of classes, and reports whether there are some.
func (p *planned) lean(classes []*api.Class, ok []bool) (some bool) {
	for i, class := range classes {
		if len(class.Leanings) == 0 || !ok[i] {
			continue
		}
		if p.leaned == nil {
			p.leaned = make([]leaned, len(classes))
		}
		p.leaned[i].of = p.core.topology.LeaningsOf(p.namespace, class)
		some = some || p.leaned[i].of != nil
	}
	return some
}

// leans reports whether leanings of a class are heeded.
func (p *planned) leans(i int) bool { return p.leaningsOf(i) != nil }

func (p *planned) leaningsOf(i int) *topology.Leanings {
	if i >= len(p.leaned) {
		return nil
	}
	return p.leaned[i].of
}

// placeWhere finds a node that is allowed.
func (p *planned) placeWhere(i int, in *domain, counted *api.Class, least uint32, rank api.Rank, allow func(int32) bool) (node string, victims []string, ok bool) {
	c := p.core
	switch {
	case in != nil:
		return c.placeIn(in, p.namespace, counted, rank, allow, p.leaningsOf(i))
	case len(p.asked[i].Leanings) == 0:
		return c.place(p.namespace, counted, least, rank, allow)
	case !p.leans(i) || c.spent.Spent(c.now, p.namespace) >= comparedAtOnce || !c.mayGrade(p.namespace, counted):
		return c.place(p.namespace, counted, 0, rank, allow) // the grade is about leanings
	}
	before := c.cache.Compared()
	defer c.spend(p.namespace, before)
	l := &p.leaned[i]
	node, victims, l.grade, ok = c.cache.PlaceLeaning(counted, least, rank, allow, l.of)
	return node, victims, ok
}

// grade returns the grade of the best node with room, after a search for it.
func (p *planned) grade(i int, counted *api.Class) uint32 {
	if p.leans(i) {
		return p.leaned[i].grade
	}
	return p.core.grade(p.namespace, counted)
}
