package topology

import (
	"slices"
	"strings"

	"basalt.dev/basalt/api"
)

// carrier counts the pods that carry a term, and so repel those that match it. While none of them is in a domain they
// repel nobody, whatever the term matches: then no rules are about it, and it costs nobody anything.
type carrier struct {
	counter
	term   *api.Term
	kins   int
	heeded bool // it is in the lists of those that rules are about: one has been in a domain since the last sweep
	serial int  // order in which they came to be heeded
}

// repelling is what a View knows of carriers.
type repelling struct {
	carriers  map[string]*carrier // by term
	carried   map[string]int      // by namespace
	anywhere  []*carrier          // those heeded whose terms select namespaces
	serial    int                 // of the last of them
	Strangers uint64              // how often pods of some namespace began to be repelled by those of others
}

// repels reports whether a pod that carries the term is in a domain, or may come to be.
func (c *carrier) repels() bool { return c.tallies[0].repels() }

// carrierOf returns the counter of the pods that carry a term. It is nil if their namespace has so many.
func (v *View) carrierOf(t *api.Term, by string, most int) *carrier {
	if c := v.carriers[t.ID]; c != nil {
		c.keep(v.now)
		c.tell(by)
		return c
	}
	_, selects := t.Namespaces()
	weight := 1
	if selects {
		weight = anywhereCounts
	}
	if v.carried[by]+weight > most {
		return nil
	}
	v.carried[by] += weight
	c := &carrier{term: t, counter: counter{id: t.ID, on: map[int32]counts{}, by: map[string]bool{by: true}}}
	c.maker, c.weight, c.used = by, weight, v.now
	v.carriers[t.ID] = c
	v.tallyOf(&c.counter, t.Topology, nil, nil).carrier = c
	return c
}

// heed has rules be about a carrier once a pod that it counts is in a domain. A nil one is none.
func (c *carrier) heed(v *View) {
	if c == nil || c.heeded || !c.repels() {
		return
	}
	c.heeded = true
	named, selects := c.term.Namespaces()
	for _, name := range named {
		s := v.in(name)
		if len(s.carriers) == 0 && name != c.maker {
			v.Strangers++
		}
		s.carriers = append(s.carriers, c)
		s.generation++
		c.tell(name)
	}
	if selects {
		if len(v.anywhere) == 0 {
			v.Strangers++
		}
		v.serial++
		c.serial = v.serial
		v.anywhere = append(v.anywhere, c)
	}
}

// heedThoseInDomains has rules be about the carriers whose pods are in a domain since a node has changed.
func heedThoseInDomains(v *View) {
	var reach []*carrier
	for _, c := range v.carriers {
		if !c.heeded && c.repels() {
			reach = append(reach, c)
		}
	}
	slices.SortFunc(reach, func(a, b *carrier) int { return strings.Compare(a.term.ID, b.term.ID) })
	for _, c := range reach {
		c.heed(v)
	}
}

// Concerned reports whether pods of a namespace may be ones that a term is about of some pod in a domain.
func (v *View) Concerned(namespace string) bool {
	if s := v.spaces[namespace]; s != nil && slices.ContainsFunc(s.carriers, (*carrier).repels) {
		return true
	}
	return len(v.anywhere) > 0 && slices.ContainsFunc(v.concerning(v.in(namespace)), (*carrier).repels)
}

// concerning returns the carriers that select namespaces, and this among them. Each is compared once, for any tenant
// may make many.
func (v *View) concerning(s *space) []*carrier {
	if s.compared == v.serial {
		return s.concerned
	}
	i := len(v.anywhere)
	for i > 0 && v.anywhere[i-1].serial > s.compared {
		i--
	}
	for _, c := range v.anywhere[i:] {
		if c.term.Concerns(s.name, s.labels) {
			s.concerned = append(s.concerned, c)
			s.generation++
		}
	}
	s.compared = v.serial
	return s.concerned
}
