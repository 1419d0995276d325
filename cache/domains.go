package cache

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"strings"

	"basalt.dev/basalt/api"
)

// Topology domains of gangs. A domain is the nodes with the same values of some labels: a rack, or a rack of a block. Survey counts how many
// pods fit into each, and PlaceIn places inside one. Neither uses the index: a survey walks the slots in their order, which is that of memory,
// and a domain has few nodes.
//
// The domains of a list of labels are found when they are first asked for, and kept up to date from then on, for the lists used last.

// Domain is the room of a topology domain.
type Domain struct {
	Values []string // of the labels
	Pods   []int64  // that fit, by class, each as if it came alone
	Spare  int64    // free amount of the first resource that the first class requests, on all its nodes
	pinned int      // how many of its values are pinned
}

// maxPartitions bounds the lists of labels whose domains are known.
const maxPartitions = 8

// partition is the domains of one list of labels.
type partition struct {
	labels  []string
	of      []int32          // by slot: number of its domain, -1 for none
	numbers map[string]int32 // by joined values
	domains [][]string       // values
	slots   [][]int32        // by domain, in no order
	use     uint64
}

// joined makes one string of values of labels, or of labels, which contain no zero byte.
func joined(values []string) string { return strings.Join(values, "\x00") }

// valuesOf returns the values of labels that a node has, ok if it has all of them.
func valuesOf(n *api.Node, labels []string) (values []string, ok bool) {
	values = make([]string, len(labels))
	for i, label := range labels {
		if values[i], ok = n.Labels[label]; !ok {
			return nil, false
		}
	}
	return values, len(labels) > 0
}

// partitionOf returns the domains of a list of labels, and finds them if they are not known.
func (c *Cache) partitionOf(labels []string) *partition {
	key := joined(labels)
	in := c.partitions[key]
	if in != nil && len(in.domains) > 64+2*c.there { // most of them have no node any more
		delete(c.partitions, key)
		in = nil
	}
	if in == nil {
		if len(c.partitions) >= maxPartitions {
			oldest := ""
			for other, in := range c.partitions { // in any order: no two are used at once
				if oldest == "" || in.use < c.partitions[oldest].use {
					oldest = other
				}
			}
			delete(c.partitions, oldest)
		}
		in = &partition{labels: slices.Clone(labels), of: make([]int32, 0, cap(c.slots)), numbers: map[string]int32{}}
		for s := range c.slots {
			in.put(int32(s), c.bySlot[s])
		}
		c.compared += lookCost * int64(len(c.slots))
		if c.partitions == nil {
			c.partitions = map[string]*partition{}
		}
		c.partitions[key] = in
	}
	c.uses++
	in.use = c.uses
	return in
}

// put finds out in which domain a slot is.
func (in *partition) put(s int32, n *node) {
	for len(in.of) <= int(s) {
		in.of = append(in.of, -1)
	}
	now := int32(-1)
	if n != nil && n.object != nil {
		if values, ok := valuesOf(n.object, in.labels); ok {
			key := joined(values)
			number, known := in.numbers[key]
			if !known {
				number = int32(len(in.domains))
				in.numbers[key] = number
				in.domains, in.slots = append(in.domains, values), append(in.slots, nil)
			}
			now = number
		}
	}
	before := in.of[s]
	if before == now {
		return
	}
	if before >= 0 {
		list := in.slots[before]
		i := slices.Index(list, s)
		list[i] = list[len(list)-1]
		in.slots[before] = list[:len(list)-1]
	}
	if now >= 0 {
		in.slots[now] = append(in.slots[now], s)
	}
	in.of[s] = now
}

// relocate notes that a slot has another node, or one with other labels.
func (c *Cache) relocate(s int32) {
	for _, in := range c.partitions { // each by itself
		in.put(s, c.bySlot[s])
	}
}

// Survey counts how many pods of each class fit into each domain, which is a value of each label; allow, by class, says which nodes the
// caller allows by their numbers, nil all. Domains without room for any of them are left out. The others come in the order of their values, at
// most so many: those inside of pinned ones, which are values of the first labels, and then those with the most room for the first class. more
// reports whether some were left out.
func (c *Cache) Survey(classes []*api.Class, labels []string, allow []func(number int32) bool, pinned [][]string, most int) (domains []Domain, more bool) {
	in := c.partitionOf(labels)
	n := len(in.domains)
	pods, spare := make([]int64, n*len(classes)), make([]int64, n)
	for i, class := range classes {
		cl := c.plan(class)
		may := func(s int32) bool { return true }
		if i < len(allow) && allow[i] != nil {
			may = func(s int32) bool { return allow[i](c.bySlot[s].number) }
			c.compared += lookCost * int64(len(c.slots))
		}
		once := cl.set.once || cl.grouped && slices.ContainsFunc(class.In, func(g uint32) bool { return slices.Contains(class.Avoids, g) })
		row := pods[i*n : (i+1)*n]
		var sum []int64
		if i == 0 {
			sum = spare
		}
		if i >= len(allow) || allow[i] == nil {
			if c.countPlain(cl, in.of, row, sum) {
				continue
			}
		}
		if sum != nil && len(cl.requests) > 0 && cl.requests[0].col >= 0 {
			for s, d := range in.of {
				if d >= 0 {
					sum[d] = api.AddSat(sum[d], max(0, c.freeOf(int32(s))[cl.requests[0].col]))
				}
			}
		}
		if cl.set.pins != nil {
			for _, s := range c.candidates(cl.set.pins) {
				if d := in.of[s]; d >= 0 {
					if room := c.roomFor(cl, s, once); room > 0 && may(s) {
						row[d] += room
					}
				}
			}
			continue
		}
		for s, d := range in.of {
			if d >= 0 {
				if room := c.roomFor(cl, int32(s), once); room > 0 && may(int32(s)) {
					row[d] += room
				}
			}
		}
	}
	pins := map[string]bool{}
	for _, values := range pinned {
		pins[joined(values)] = true
	}
	for d := range n {
		out := Domain{Values: in.domains[d], Pods: make([]int64, len(classes)), Spare: spare[d]}
		some := false
		for i := range classes {
			out.Pods[i] = pods[i*n+d]
			some = some || out.Pods[i] > 0
		}
		if !some {
			continue
		}
		for k := 1; k <= len(out.Values) && len(pins) > 0; k++ {
			if pins[joined(out.Values[:k])] {
				out.pinned = k
			}
		}
		domains = append(domains, out)
	}
	byValues := func(a, b Domain) int { return slices.Compare(a.Values, b.Values) }
	if more = len(domains) > most; more {
		slices.SortFunc(domains, func(a, b Domain) int {
			return cmp.Or(cmp.Compare(b.pinned, a.pinned), cmp.Compare(b.Pods[0], a.Pods[0]), byValues(a, b))
		})
		domains = slices.Clip(domains[:most])
	}
	slices.SortFunc(domains, byValues)
	return domains, more
}

// countPlain adds up by domain what roomFor returns, for a class that only its constraints and requests keep from nodes, and reports whether
// it is one. It reads three arrays in their order. What is spare is added up, too, unless sum is nil.
func (c *Cache) countPlain(cl *class, of []int32, row, sum []int64) bool {
	if cl.grouped || len(cl.set.exclusives) > 0 || cl.set.verdict == nil || cl.unreadable != "" || c.outOfSync > 0 || len(cl.requests) == 0 {
		return false
	}
	type want struct {
		col    int
		amount int64
	}
	var few [8]want
	wants := few[:0]
	for _, a := range cl.requests {
		if a.col < 0 {
			return true
		}
		wants = append(wants, want{a.col, a.amount})
	}
	first := wants[0]
	var free, room int64 // the last division: many nodes are alike
slots:
	for s, d := range of {
		if d < 0 {
			continue
		}
		frees := c.freeOf(int32(s))
		f := frees[first.col]
		if sum != nil {
			sum[d] = api.AddSat(sum[d], max(0, f))
		}
		if f < first.amount {
			continue
		}
		if v := cl.set.verdict[s]; v != admitted && (v != unknown || c.verdictOf(cl.set, int32(s)) != admitted) {
			continue
		}
		if f != free {
			free, room = f, f/first.amount
		}
		n := room
		for i := 1; i < len(wants); i++ {
			a := &wants[i]
			f := frees[a.col]
			if f < a.amount {
				continue slots
			}
			if hi, lo := bits.Mul64(uint64(a.amount), uint64(n)); hi > 0 || lo > uint64(f) { // else another resource is scarcer
				n = f / a.amount
			}
		}
		row[d] += min(n, math.MaxInt32)
	}
	return true
}

// roomFor returns how many pods of a class fit a slot whose node is there, at most one if its pods exclude each other from a node.
func (c *Cache) roomFor(cl *class, s int32, once bool) int64 {
	room := int64(math.MaxInt32)
	frees := c.freeOf(s)
	for i := range cl.requests { // first: most nodes of a full cluster end here
		a := &cl.requests[i]
		if a.col < 0 || frees[a.col] < a.amount {
			return 0
		}
	}
	if c.outOfSync > 0 && c.slots[s].broken != 0 { // most often there is none, and no line of memory more to read
		return 0
	}
	if cl.grouped || len(cl.set.exclusives) > 0 {
		if what, _ := c.obstacle(cl, s, c.verdict(cl, s)); what != Nothing {
			return 0
		}
	} else if c.verdict(cl, s) != admitted {
		return 0
	}
	if once {
		return 1
	}
	for i := range cl.requests {
		a := &cl.requests[i]
		if hi, lo := bits.Mul64(uint64(a.amount), uint64(room)); hi > 0 || lo > uint64(frees[a.col]) { // else another resource is scarcer
			room = frees[a.col] / a.amount
		}
	}
	return room
}

// Labelled reports whether there is a node with all of some labels.
func (c *Cache) Labelled(labels []string) bool {
	return slices.ContainsFunc(c.partitionOf(labels).slots, func(in []int32) bool { return len(in) > 0 })
}

// In reports whether a node is in a domain.
func (c *Cache) In(nodeName string, labels, values []string) bool {
	n := c.nodes[nodeName]
	if n == nil || n.object == nil {
		return false
	}
	has, ok := valuesOf(n.object, labels)
	return ok && slices.Equal(has, values)
}

// PlaceIn is PlaceWithin on the nodes of a domain, all of which have numbers. Wishes of the class are heeded or not; with leanings, nil for none,
// they are.
func (c *Cache) PlaceIn(class *api.Class, rank api.Rank, labels, values []string, allow func(number int32) bool, heed bool, l Leaning) (nodeName string, victims []string, ok bool) {
	in := c.partitionOf(labels)
	d, known := in.numbers[joined(values)]
	if !known || len(in.slots[d]) == 0 {
		return "", nil, false
	}
	cl := c.plan(class)
	c.compared += int64(len(in.slots[d]))
	best, top := int32(-1), int64(-1)
	var w *wish
	var q *leanSearch
	switch {
	case l != nil:
		q = c.searchLeaning(cl, l)
		q.unordered = true
		c.compared += int64(len(in.slots[d]))
	case (cl.wishful || c.reluctant > 0) && heed && cl.set.pins == nil:
		w = c.wishOf(cl)
	}
	for _, s := range in.slots[d] {
		if c.roomFor(cl, s, true) == 0 || allow != nil && !allow(c.bySlot[s].number) {
			continue
		}
		if q != nil {
			q.look(s)
			continue
		}
		score := int64(0)
		if w != nil {
			score = w.kinds[w.kind[s]].score
		}
		if score > top || score == top && c.keyOf(s) < c.keyOf(best) {
			best, top = s, score
		}
	}
	if q != nil {
		best, _ = q.choose()
	}
	if best >= 0 {
		c.chosen = best
		return c.names[best], nil, true
	}
	if c.holding == 0 {
		return "", nil, false
	}
	inside := map[int32]bool{}
	for _, s := range in.slots[d] {
		inside[c.bySlot[s].number] = true
	}
	return c.takeHolds(cl, rank, func(number int32) bool { return inside[number] && (allow == nil || allow(number)) })
}
