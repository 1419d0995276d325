package topology

import (
	"slices"
	"time"

	"basalt.dev/basalt/api/fault"
)

// weight is how a pod counts.
type weight uint8

const (
	bound     weight = iota
	promised         // by a row
	nominated        // by another scheduler, which may never bind it: nothing relies on it
	held             // by a hold of this shard
	weights
)

// counts are numbers of pods by weight.
type counts [weights]int32

func (c *counts) add(o counts, by int32) {
	for i := range c {
		c[i] += by * o[i]
	}
}

func (c *counts) none() bool { return *c == counts{} }

// all is the number of pods, those that are only held included or not.
func (c *counts) all(holds bool) int32 {
	n := c[bound] + c[promised] + c[nominated]
	if holds {
		n += c[held]
	}
	return n
}

// tally counts by the domains of a topology key, on the nodes that are admitted.
type tally struct {
	counter *counter
	carrier *carrier // whose counter it is, nil for none
	column  *column
	beside  []*column // a node has to have these labels, too
	filter  *filter   // nil admits all
	domain  []counts
	nodes   []int32 // by domain: those admitted
	domains int     // with nodes
	total   counts

	maker string // in counting.tallied, "" if it is not that of a spread
	used  time.Time

	members int            // nodes that are in some domain
	numbers [ways]spectrum // of pods in the domains with nodes; those that nobody asked for are not kept
}

// way is one way to count the pods of a domain.
type way uint8

const (
	boundOnly   way = iota // those that others rely on now,
	soon                   // once the pods that are on their way are bound,
	soonAndHeld            // those with holds among them
	anyPods                // all that are there or may come
	ways
)

// repels is the same for the only tally of a carrier.
func (t *tally) repels() bool { return t.all(true) > 0 }

// countIn returns how many pods a domain has.
func (t *tally) countIn(d int32, w way) int32 {
	switch w {
	case boundOnly:
		return t.boundIn(d)
	case anyPods:
		return t.of(d, true)
	default:
		return t.soonIn(d, w == soonAndHeld)
	}
}

// spectrumOf returns the spectrum of one way to count, which is kept from then on.
func (t *tally) spectrumOf(w way) *spectrum {
	s := &t.numbers[w]
	if !s.kept {
		s.kept = true
		for d, n := range t.nodes {
			if n > 0 {
				s.measure(t.countIn(int32(d), w), 1)
			}
		}
	}
	return s
}

// measure brings a domain as it is now into the spectra, or takes it out.
func (t *tally) measure(d, by int32) {
	if t.nodes[d] == 0 {
		return
	}
	for w := range t.numbers {
		if s := &t.numbers[w]; s.kept {
			s.measure(t.countIn(d, way(w)), by)
		}
	}
}

// at returns the domain of a node, -1 if it does not count.
func (t *tally) at(n int32) int32 {
	d := t.column.at(n)
	if d < 0 || t.filter != nil && !t.filter.admits[n] {
		return -1
	}
	for _, c := range t.beside {
		if c.at(n) < 0 {
			return -1
		}
	}
	return d
}

func (t *tally) add(n int32, c counts, by int32) {
	d := t.at(n)
	if d < 0 {
		return
	}
	t.fit(d)
	t.measure(d, -1)
	t.domain[d].add(c, by)
	t.measure(d, 1)
	t.total.add(c, by)
}

func (t *tally) fit(d int32) {
	if n := int(d) + 1 - len(t.domain); n > 0 {
		t.domain = append(t.domain, make([]counts, n)...)
		t.nodes = append(t.nodes, make([]int32, n)...)
	}
}

// put brings a node in, or takes it out.
func (t *tally) put(n, by int32) {
	d := t.at(n)
	if d < 0 {
		return
	}
	t.fit(d)
	if before := t.nodes[d]; before == 0 || before+by == 0 {
		t.domains += int(by)
	}
	t.measure(d, -1)
	t.nodes[d] += by
	t.members += int(by)
	c := t.counter.on[n]
	t.domain[d].add(c, by)
	t.measure(d, 1)
	t.total.add(c, by)
}

// minimum returns how many bound pods the domain with the fewest has.
func (t *tally) minimum(domains int64) int32 {
	if int64(t.domains) < domains || t.domains == 0 {
		return 0
	}
	least, _ := t.spectrumOf(boundOnly).bounds()
	return least
}

// expected returns the minimum once the pods that are on their way are bound, at most Ahead above the minimum.
func (t *tally) expected(domains int64, holds bool) int32 {
	least := t.minimum(domains)
	if int64(t.domains) < domains || t.domains == 0 {
		return least
	}
	w := soon
	if holds {
		w = soonAndHeld
	}
	later, _ := t.spectrumOf(w).bounds()
	return min(max(least, later), least+Ahead)
}

// of returns how many pods a domain has or may come to have.
func (t *tally) of(d int32, holds bool) int32 {
	if int(d) >= len(t.domain) {
		return 0
	}
	return t.domain[d].all(holds)
}

// soonIn returns how many it will have for others to rely on.
func (t *tally) soonIn(d int32, holds bool) int32 {
	if int(d) >= len(t.domain) {
		return 0
	}
	return t.domain[d].all(holds) - t.domain[d][nominated]
}

func (t *tally) boundIn(d int32) int32 {
	if int(d) >= len(t.domain) {
		return 0
	}
	if fault.On(fault.RowsSupport) {
		return t.domain[d][bound] + t.domain[d][promised]
	}
	return t.domain[d][bound]
}

func (t *tally) all(holds bool) int32 {
	return t.total.all(holds)
}

// spectrum counts the domains of a tally that have nodes by their numbers of pods, so that the least and the most of
// them are known, however many domains there are.
type spectrum struct {
	kept        bool
	domains     []int32 // by number of pods
	least, most int32
}

func (s *spectrum) measure(n, by int32) {
	n = max(0, n)
	for int(n) >= len(s.domains) {
		s.domains = append(s.domains, 0)
	}
	if s.domains[n] += by; by > 0 {
		s.least, s.most = min(s.least, n), max(s.most, n)
	}
}

// bounds returns the least and the most pods of a domain; there is one.
func (s *spectrum) bounds() (least, most int32) {
	for s.least < s.most && s.domains[s.least] == 0 {
		s.least++
	}
	for s.most > s.least && s.domains[s.most] == 0 {
		s.most--
	}
	return s.least, s.most
}

// tallyOf returns the tally of a counter over a topology key, which it makes if it is new.
func (v *View) tallyOf(s *counter, label string, beside []string, f *filter) *tally {
	if t := v.knownTally(s, label, beside, f); t != nil {
		return t
	}
	return v.newTally(s, label, beside, f)
}

func (v *View) newTally(s *counter, label string, beside []string, f *filter) *tally {
	t := &tally{counter: s, column: v.columnOf(label), filter: f}
	for _, b := range beside {
		if b != label {
			t.beside = append(t.beside, v.columnOf(b))
		}
	}
	if f == nil && len(t.beside) == 0 { // its nodes are those of the column, which need not be looked at
		t.nodes, t.domains, t.members = slices.Clone(t.column.nodes), t.column.domains, t.column.placed
		t.domain = make([]counts, len(t.nodes))
		for n, c := range s.on {
			t.add(n, c, 1)
		}
	} else {
		for n := range v.nodes {
			t.put(int32(n), 1)
		}
	}
	v.enterTally(t)
	return t
}

// knownTally returns the tally that tallyOf would, nil if that is new.
func (v *View) knownTally(s *counter, label string, beside []string, f *filter) *tally {
	var others []*column
	for _, b := range beside {
		if b != label {
			others = append(others, v.columns[b])
		}
	}
	for _, t := range s.tallies {
		if t.column == v.columns[label] && t.filter == f && slices.Equal(t.beside, others) {
			return t
		}
	}
	return nil
}
