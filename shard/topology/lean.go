package topology

import (
	"math/bits"

	"basalt.dev/basalt/api"
)

// Leanings (api.Class.Leanings) are counted as rules are, by kube-scheduler's formulas InterPodAffinity and
// PodTopologySpread, and never keep a pod from a node. So nobody judges them, and nobody is woken when something is
// counted otherwise.
//
// What a namespace may have counted for leanings is half of what it may have in all: the other half is left for what
// its pods require. A class beyond that is placed without its leanings.

// Leanings make nodes better or worse for the pods of a class. They hold until the next event.
type Leanings struct {
	generation uint64
	near       []nearRule
	crowd      []crowdRule
	asks       []*counter
	view       *View
}

// nearRule is a preferred term; its weight is negative for anti-affinity.
type nearRule struct {
	*tally
	weight int64
}

// crowdRule is a spread constraint. A domain costs what it has times each, and some.
type crowdRule struct {
	*tally
	each uint64 // with lnBits fraction bits
	some int64
}

// crowding adds up what domains cost. It has 128 bits, as products of a number of pods and a logarithm do not fit 64.
type crowding struct {
	high, low uint64 // with lnBits fraction bits
	some      int64
}

func (c *crowding) add(r *crowdRule, pods int32) {
	high, low := bits.Mul64(uint64(max(pods, 0)), r.each)
	var carry uint64
	c.low, carry = bits.Add64(c.low, low, 0)
	c.high += high + carry
	c.some += r.some
}

// rounded returns the sum, rounded half up. With api.MaxLeanings constraints it is below 1 << 42.
func (c *crowding) rounded() int64 {
	low, carry := bits.Add64(c.low, 1<<(lnBits-1), 0)
	return int64((c.high+carry)<<(64-lnBits)|low>>lnBits) + c.some
}

// LeaningsOf returns the leanings of the pods of a class, nil if it has none or its namespace has too much counted.
func (v *View) LeaningsOf(namespace string, class *api.Class) *Leanings {
	if len(class.Leanings) == 0 {
		return nil
	}
	key := ruleKey{namespace, class.Key}
	l := v.leanings[key]
	if l == nil || l.generation != v.generation || givenUp(l.asks) {
		if l = v.lean(namespace, class); l == nil {
			return nil
		}
		l.generation = v.generation
		v.leanings.put(key, l)
	}
	for _, s := range l.asks {
		s.keep(v.now)
	}
	for i := range l.crowd {
		r := &l.crowd[i]
		r.each = ln(uint32(r.domains) + 2) // so that constraints with few domains weigh as much as those with many
	}
	return l
}

func (v *View) lean(namespace string, class *api.Class) *Leanings {
	read := v.leaningsOf(class)
	if read == nil {
		return nil
	}
	l := &Leanings{view: v}
	for _, t := range read.Terms {
		spaces, selects := t.Namespaces()
		if selects {
			spaces = nil
		}
		s := v.softCounter("near\x00"+t.ID, namespace, spaces, func(k *kin) bool { return t.Matches(k.space.name, k.space.labels, k.labels) })
		if s == nil {
			return nil
		}
		l.asks = append(l.asks, s)
		l.near = append(l.near, nearRule{v.tallyOf(s, t.Topology, nil, nil), t.Weight})
	}
	keys := topologies(read.Spread)
	for _, c := range read.Spread {
		s := v.softCounter(spreadID(namespace, c), namespace, []string{namespace}, spreadCounts(c))
		if s == nil {
			return nil
		}
		t := v.spreadTally(s, namespace, c, keys, nil, class.Constraints, talliesByNamespace/2)
		if t == nil {
			return nil
		}
		l.asks = append(l.asks, s)
		l.crowd = append(l.crowd, crowdRule{tally: t, some: c.MaxSkew - 1})
	}
	return l
}

// softCounter is counterOf for what is not required: within half of the bounds, and without a word to sleeping gangs.
func (v *View) softCounter(id, by string, spaces []string, matches func(k *kin) bool) *counter {
	weight := 1
	if spaces == nil {
		weight = anywhereCounts
	}
	s := v.counters[id]
	if s == nil && (v.made[by]+weight > countedByNamespace/2 || v.spent.Spent(v.now, by) >= countedAtOnce/2) {
		return nil
	}
	required := s != nil && s.by[by]
	if s = v.counterOf(id, by, spaces, matches); s != nil && !required {
		delete(s.by, by)
	}
	return s
}

// At returns the weights of the terms that are fulfilled on a node, with multiplicity, and how crowded its domains
// are; -1 for a node that lacks the label of a spread. With api.MaxLeanings terms of at most api.MaxTermWeight the
// first is within 1 << 43 of zero.
func (l *Leanings) At(n int32) (near, crowd int64) {
	for i := range l.near {
		r := &l.near[i]
		if d := r.column.at(n); d >= 0 {
			near += r.weight * int64(r.of(d, true))
		}
	}
	if len(l.crowd) == 0 {
		return near, 0
	}
	var sum crowding
	for i := range l.crowd {
		r := &l.crowd[i]
		d := r.column.at(n)
		if d < 0 {
			return near, -1
		}
		sum.add(r, r.of(d, true))
	}
	return near, sum.rounded()
}

// Best returns bounds of what At returns: no node of the cluster is better than the one or worse than the other,
// except for those that lack a label. They are exact for a single term or constraint.
func (l *Leanings) Best() (near, crowd int64) { return l.bound(true) }

// Worst is the other bound.
func (l *Leanings) Worst() (near, crowd int64) { return l.bound(false) }

func (l *Leanings) bound(best bool) (near, crowd int64) {
	var sum crowding
	for i := range l.near {
		r := &l.near[i]
		least, most := r.spectrumOf(anyPods).bounds()
		switch {
		case r.weight > 0 == best:
			near += r.weight * int64(most)
		case r.members >= l.view.there: // else a node without the label has none of it
			near += r.weight * int64(least)
		}
	}
	for i := range l.crowd {
		of, most := l.crowd[i].spectrumOf(anyPods).bounds()
		if !best {
			of = most
		}
		sum.add(&l.crowd[i], of)
	}
	return near, sum.rounded()
}

// Has reports whether there are terms, and whether there are spread constraints.
func (l *Leanings) Has() (near, crowd bool) { return len(l.near) > 0, len(l.crowd) > 0 }

// lnBits is how many fraction bits a logarithm has.
const lnBits = 32

// ln returns the natural logarithm of n, which is positive. Repeated squaring gives the fraction bits of that to base
// 2.
func ln(n uint32) uint64 {
	const binary = 40 // fraction bits of log, more than are kept
	length := bits.Len32(n)
	log, x := uint64(length-1), uint64(n)<<(64-length) // x is from 1 to below 2, with 63 fraction bits
	for range binary {
		log <<= 1
		high, low := bits.Mul64(x, x) // 126 fraction bits
		if high>>63 == 1 {
			log, x = log|1, high
		} else {
			x = high<<1 | low>>63
		}
	}
	const ln2 = 0xb17217f7d1cf79ab // with 64 fraction bits
	product, _ := bits.Mul64(log, ln2)
	return (product + 1<<(binary-lnBits-1)) >> (binary - lnBits)
}
