package topology

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/fault"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
)

// Bounds of what the pods of a namespace may have counted. A term about namespaces with some labels counts as many, for it is compared
// with the pods of all.
const (
	countedByNamespace = 1024                   // different selectors that they ask for, and as many terms that they carry while they wait
	carriedByNamespace = 2 * countedByNamespace // terms of all pods: those that wait in one process cannot have those left out that are bound by others
	anywhereCounts     = 16
	talliesByNamespace = 2048        // of spreads: one selector may be counted by many topology keys, and on many sets of nodes
	countKept          = time.Minute // without a pod that asks for it
	remembered         = 4096        // terms read, and rules made
	// countedRate is what counting something new may take for a namespace in a second: kins and nodes looked at.
	countedRate   = 1 << 21
	countedAtOnce = 3 * countedRate

	// A change of a pod is counted by all selectors that match it. Those of a namespace beyond freeCounts are paid for, at countCost each, from
	// another budget of the same size: some 130,000 a second.
	freeCounts = 64
	countCost  = 16

	// filterBytes bounds the constraints of filters that a namespace made: each node that changes is compared with all of them.
	filterBytes = 1 << 20
)

// counter counts pods by node, and by domain for those who ask.
type counter struct {
	number  int
	id      string
	matches func(k *kin) bool // nil for the pods that carry a term
	spaces  []string          // whose pods may match; nil: any
	on      map[int32]counts
	tallies []*tally
	by      map[string]bool // namespaces of pods that ask
	maker   string          // in View.made, or View.carried
	weight  int
	used    time.Time
	givenUp bool   // it counts no longer
	opened  uint64 // how often something was counted otherwise, so that a pod may fit that did not before
}

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

// repels is the same for the only tally of a carrier.
func (t *tally) repels() bool { return t.all(true) > 0 }

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

	maker string // in View.tallied, "" if it is not that of a spread
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

// spectrum counts the domains of a tally that have nodes by their numbers of pods, so that the least and the most of them are known,
// however many domains there are.
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

// filter says which nodes a spread counts for pods with some constraints.
type filter struct {
	id       string
	maker    string // in View.filtered
	admits   []bool // by node
	affinity *nodeaffinity.RequiredNodeAffinity
	taints   bool
	tolerate []v1.Toleration
}

func (s *counter) add(n int32, c counts, by int32) {
	on := s.on[n]
	on.add(c, by)
	if on.none() {
		delete(s.on, n)
	} else {
		s.on[n] = on
	}
	for _, t := range s.tallies {
		t.add(n, c, by)
	}
}

func (s *counter) addAll(k *kin, by int32) {
	for n, c := range k.on {
		s.add(n, c, by)
	}
}

// Full reports whether the pods of a namespace ask for about as much as is counted for it.
func (v *View) Full(namespace string) bool {
	const most = countedByNamespace - anywhereCounts
	return v.made[namespace] > most || v.carried[namespace] > most || v.tallied[namespace] >= talliesByNamespace
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

// all is the number of pods, those that are only held included or not.
func (c *counts) all(holds bool) int32 {
	n := c[bound] + c[promised] + c[nominated]
	if holds {
		n += c[held]
	}
	return n
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
	s.tallies, v.tallies = append(s.tallies, t), append(v.tallies, t)
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

// spreadTally returns the tally of a spread of a namespace's pods, nil if the namespace has so many, or has had too much counted lately.
func (v *View) spreadTally(c *counter, by string, s *api.Spread, beside []string, own *v1.PodSpec, constraints []byte, most int) *tally {
	full := v.tallied[by] >= most || v.spent.Spent(v.now, by) >= countedAtOnce
	f, ok := v.filterOf(s, own, constraints, by, !full)
	if !ok {
		return nil
	}
	t := v.knownTally(c, s.Topology, beside, f)
	if t == nil && full {
		return nil
	}
	if t == nil {
		t = v.newTally(c, s.Topology, beside, f)
		t.maker = by
		v.tallied[by]++
		v.spent.Spend(v.now, by, int64(v.there*(1+len(beside))))
	}
	t.used = v.now
	return t
}

// counterOf returns the counter of what a namespace asks for, which it makes if it is new. It is nil if the namespace has too many, or
// has had too much counted lately.
func (v *View) counterOf(id, by string, spaces []string, matches func(k *kin) bool) *counter {
	if s := v.counters[id]; s != nil {
		s.used = v.now
		s.by[by] = true
		return s
	}
	weight := 1
	if spaces == nil {
		weight = anywhereCounts
	}
	if v.made[by]+weight > countedByNamespace || v.made[by]+weight > freeCounts && v.isBusy(by) || v.spent.Spent(v.now, by) >= countedAtOnce {
		return nil
	}
	all := spaces
	if spaces == nil {
		v.allCounted()
		all = api.SortedKeys(v.spaces)
	}
	looked, matching := int64(v.there), []*kin(nil)
	for _, name := range all {
		of := v.in(name)
		v.watch(of)
		for _, list := range of.kins {
			for _, k := range list {
				looked++
				if matches(k) {
					matching = append(matching, k)
					looked += int64(len(k.in) + len(k.on))
				}
			}
		}
	}
	v.spent.Spend(v.now, by, looked)
	v.made[by] += weight
	v.last++
	s := &counter{number: v.last, id: id, matches: matches, spaces: spaces, on: map[int32]counts{}, by: map[string]bool{by: true}, maker: by, weight: weight, used: v.now}
	v.counters[id] = s
	if spaces == nil {
		v.countAnywhere = append(v.countAnywhere, s)
	}
	for _, name := range spaces {
		v.spaces[name].counters = append(v.spaces[name].counters, s)
	}
	for _, k := range matching {
		k.in = append(slices.Clip(k.in), s)
		k.weigh()
		s.addAll(k, 1)
	}
	return s
}

// weigh finds out which namespaces pay for a change of the kin's pods: those of which many selectors match it.
func (k *kin) weigh() {
	k.dear = nil
	if len(k.in) <= freeCounts {
		return
	}
	of := map[string]int64{}
	for _, s := range k.in {
		of[s.maker]++
	}
	for _, maker := range api.SortedKeys(of) {
		if n := of[maker]; n > freeCounts {
			k.dear = append(k.dear, price{maker, n - freeCounts})
		}
	}
}

// charge has a namespace pay for a change that so many of its selectors have to count. If it has paid too much, all but its oldest are given up
// when no trial is under way. Its pods that ask for the others wait until these can be counted again.
func (v *View) charge(maker string, n int64) {
	v.busy.Spend(v.now, maker, n*countCost)
	if v.isBusy(maker) {
		v.overspent[maker] = true
	}
}

// isBusy reports whether the changes of pods cost too much of late because of the selectors of a namespace.
func (v *View) isBusy(maker string) bool { return v.busy.Spent(v.now, maker) >= countedAtOnce }

// giveUp ends selectors of the namespaces that charge found.
func (v *View) giveUp() {
	if len(v.overspent) == 0 {
		return
	}
	var theirs []*counter
	for _, s := range v.counters {
		if v.overspent[s.maker] {
			theirs = append(theirs, s)
		}
	}
	slices.SortFunc(theirs, func(a, b *counter) int { return cmp.Compare(a.number, b.number) })
	dead, kept := map[*counter]bool{}, map[string]int{}
	for _, s := range theirs {
		if kept[s.maker]++; kept[s.maker] > freeCounts {
			dead[s] = true
			s.givenUp = true
			v.drop(s, v.made)
			delete(v.counters, s.id)
		}
	}
	clear(v.overspent)
	v.forget(dead)
}

// drop takes a counter from what its maker has.
func (v *View) drop(s *counter, made map[string]int) {
	if made[s.maker] -= s.weight; made[s.maker] <= 0 {
		delete(made, s.maker)
	}
}

// forget removes counters from all that they are kept in.
func (v *View) forget(dead map[*counter]bool) {
	if len(dead) == 0 {
		return
	}
	gone := func(s *counter) bool { return dead[s] }
	v.countAnywhere = slices.DeleteFunc(v.countAnywhere, gone)
	for _, s := range v.spaces {
		s.counters = slices.DeleteFunc(s.counters, gone)
		for _, list := range s.kins {
			for _, k := range list {
				if slices.ContainsFunc(k.in, gone) {
					k.in = slices.DeleteFunc(slices.Clone(k.in), gone)
					k.weigh()
				}
			}
		}
	}
	v.forgetTallies(func(t *tally) bool { return dead[t.counter] })
}

func (v *View) forgetTallies(gone func(*tally) bool) {
	v.tallies = slices.DeleteFunc(v.tallies, func(t *tally) bool {
		if !gone(t) {
			return false
		}
		if t.maker != "" {
			if v.tallied[t.maker]--; v.tallied[t.maker] <= 0 {
				delete(v.tallied, t.maker)
			}
		}
		t.counter.tallies = slices.DeleteFunc(t.counter.tallies, func(o *tally) bool { return o == t })
		return true
	})
}

// carrierOf returns the counter of the pods that carry a term. It is nil if their namespace has so many.
func (v *View) carrierOf(t *api.Term, by string, most int) *carrier {
	if c := v.carriers[t.ID]; c != nil {
		c.used = v.now
		c.by[by] = true
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
		c.by[name] = true
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

// filterOf returns the filter of a spread for pods with some constraints, nil if it admits all nodes. Their own selectors are those of
// the constraints unless they are given. It is not ok if it is new and may not be made.
func (v *View) filterOf(s *api.Spread, own *v1.PodSpec, constraints []byte, by string, may bool) (_ *filter, ok bool) {
	if !s.Affinity && !s.Taints {
		return nil, true
	}
	spec, err := api.ReadConstraints(constraints)
	if err != nil {
		return nil, true
	}
	if own != nil {
		spec.NodeSelector, spec.Affinity = own.NodeSelector, own.Affinity
		if constraints, err = spec.Marshal(); err != nil {
			return nil, true
		}
	}
	selects := s.Affinity && (len(spec.NodeSelector) > 0 || spec.Affinity != nil)
	if !selects && !s.Taints {
		return nil, true
	}
	id := string([]byte{flag(selects), flag(s.Taints)}) + string(constraints)
	if f := v.filters[id]; f != nil || !may || v.filtered[by]+len(id) > filterBytes {
		return f, f != nil
	}
	v.filtered[by] += len(id)
	v.spent.Spend(v.now, by, int64(v.there*(1+len(constraints)/64)))
	f := &filter{id: id, maker: by, admits: make([]bool, len(v.nodes)), taints: s.Taints, tolerate: spec.Tolerations}
	if selects {
		a := nodeaffinity.NewRequiredNodeAffinity(spec.NodeSelector, spec.Affinity)
		f.affinity = &a
	}
	for n := range v.nodes {
		f.judge(v, int32(n))
	}
	v.filters[id] = f
	return f, true
}

func flag(b bool) byte {
	if b {
		return 1
	}
	return 0
}

func (f *filter) judge(v *View, n int32) {
	o := v.nodes[n].object
	f.admits[n] = false
	if o == nil {
		return
	}
	if f.affinity != nil {
		if match, _ := f.affinity.Match(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: o.Name, Labels: o.Labels}}); !match {
			return
		}
	}
	if f.taints {
		if _, untolerated := corev1.FindMatchingUntoleratedTaint(klog.Logger{}, o.Taints, f.tolerate, repels, false); untolerated {
			return
		}
	}
	f.admits[n] = true
}

func repels(t *v1.Taint) bool {
	return t.Effect == v1.TaintEffectNoSchedule || t.Effect == v1.TaintEffectNoExecute
}

func sameTaint(a, b v1.Taint) bool { return a.MatchTaint(&b) && a.Value == b.Value }

// sweep forgets what nobody asked for lately.
func (v *View) sweep() {
	v.settleBlind()
	if v.now.Sub(v.swept) < countKept/6 {
		return
	}
	v.swept = v.now
	v.spent.Forget(v.now)
	v.busy.Forget(v.now)
	old := v.now.Add(-countKept)
	clear(v.rules)
	clear(v.leaning.made)
	for _, s := range v.spaces {
		for key, list := range s.kins {
			list = slices.DeleteFunc(list, func(k *kin) bool {
				if len(k.on) > 0 {
					return false
				}
				for _, c := range k.terms {
					c.kins--
				}
				return true
			})
			if s.kins[key] = list; len(list) == 0 {
				delete(s.kins, key)
			}
		}
	}
	dead := map[*counter]bool{}
	for id, s := range v.counters {
		if s.used.Before(old) {
			dead[s] = true
			v.drop(s, v.made)
			delete(v.counters, id)
		}
	}
	idle := false
	for id, c := range v.carriers {
		if c.heeded && !c.repels() {
			c.heeded, idle = false, true
		}
		if c.kins == 0 && c.used.Before(old) {
			dead[&c.counter] = true
			v.drop(&c.counter, v.carried)
			delete(v.carriers, id)
		}
	}
	if idle {
		unheeded := func(c *carrier) bool { return !c.heeded }
		v.anywhere = slices.DeleteFunc(v.anywhere, unheeded)
		for _, s := range v.spaces {
			s.carriers, s.concerned = slices.DeleteFunc(s.carriers, unheeded), slices.DeleteFunc(s.concerned, unheeded)
		}
	}
	v.forget(dead)
	v.forgetTallies(func(t *tally) bool { return t.maker != "" && t.used.Before(old) })
	for name, s := range v.spaces {
		if len(s.pods)+len(s.kins)+len(s.counters)+len(s.carriers)+len(s.labels) == 0 {
			delete(v.spaces, name)
		}
	}
	filters, columns := map[*filter]bool{}, map[*column]bool{}
	for _, t := range v.tallies {
		filters[t.filter], columns[t.column] = true, true
		for _, c := range t.beside {
			columns[c] = true
		}
	}
	maps.DeleteFunc(v.filters, func(_ string, f *filter) bool {
		if filters[f] {
			return false
		}
		if v.filtered[f.maker] -= len(f.id); v.filtered[f.maker] <= 0 {
			delete(v.filtered, f.maker)
		}
		return true
	})
	maps.DeleteFunc(v.columns, func(_ string, c *column) bool { return !columns[c] })
	for n := range v.nodes { // anybody can make pods that name nodes which do not exist
		if of := &v.nodes[n]; of.object == nil && !of.seen && of.entries == 0 && of.name != "" {
			delete(v.byName, of.name)
			*of = node{}
			v.free = append(v.free, int32(n))
		}
	}
}

// allCounted has the pods of all namespaces counted from now on, and of those that come.
func (v *View) allCounted() {
	v.everywhere = true
	for _, name := range api.SortedKeys(v.spaces) {
		v.watch(v.spaces[name])
	}
}
