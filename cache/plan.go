package cache

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"

	"basalt.dev/basalt/api"
)

// limits are the same for all caches; tests make them small.
type limits struct {
	// planned bounds the classes that are remembered although no pod of them is charged, and the sets of constraints that
	// have a verdict for each slot.
	planned int
	// bits bounds the classes with a bit in the index. They cost a word a slot for each 64, and time on each change.
	bits int
	// idle is for how many plannings a class has not been asked for before its bit goes to another although there is room
	// for more.
	idle uint64
	// leaf bounds the entries of a leaf of the order.
	leaf int
	// dead bounds the columns that are kept although no node names them any more: a device plugin that restarts takes its
	// resource away for a moment, and dropping a column touches every charge.
	dead int
	// wishes bounds those of which the score of each node is known: a byte a slot.
	wishes int
	// counted bounds how many slots Why looks at for each change of a slot, where it has counted for a class before;
	// clusters up to exact slots are always counted anew.
	counted, exact uint64
}

// Leaves of 64: a search reads the same two stretches of memory whatever their size; of fewer, there are more levels' lines,
// which do not stay in the processor's caches.
var defaultLimits = limits{planned: 1024, bits: 512, idle: 50000, leaf: 64, dead: 32, wishes: 256, counted: 4, exact: 1024}

// CanPlace returns what keeps one more pod of a class from a node now. A pod that is already charged there is asked about
// with CanStay.
func (c *Cache) CanPlace(class *api.Class, nodeName string) Misfit {
	n := c.nodes[nodeName]
	if n == nil || n.object == nil {
		return Misfit{Obstacle: NoNode, Subject: nodeName}
	}
	cl := c.find(class)
	what, detail := c.obstacle(cl, n.slot, c.verdict(cl, n.slot))
	return c.misfit(cl, n, what, detail)
}

// CanStay asks the same about a pod that has a charge, for its node, as if the pod came last: what is asked before a hold
// becomes an intent.
func (c *Cache) CanStay(uid string) Misfit {
	ch, ok := c.pods.get(uid)
	if !ok {
		return Misfit{Obstacle: NoNode}
	}
	n, cl := c.bySlot[c.pods.at(ch).slot], c.classOf(ch)
	if n.object == nil {
		return Misfit{Obstacle: NoNode, Subject: n.name}
	}
	if what, detail := constraint(c.verdict(cl, n.slot)); what != Nothing {
		return c.misfit(cl, n, what, detail)
	}
	// The pod is counted in what is free, so there is room for it exactly if nothing is negative that it requests, or that anybody may
	// not lack.
	if c.slots[n.slot].broken != 0 {
		return Misfit{Obstacle: OutOfSync}
	}
	for i := range cl.requests {
		if a := &cl.requests[i]; a.amount > 0 && (a.col < 0 || c.freeOf(n.slot)[a.col] < 0) { // a device that the node has no more
			return c.misfit(cl, n, Insufficient, i)
		}
	}
	if what := c.exclusiveConflict(n, cl.set.exclusives, []uint32{ch}); what != Nothing {
		return Misfit{Obstacle: what}
	}
	if cl.grouped {
		return Misfit{Obstacle: c.groupsConflict(n, cl, []uint32{ch})}
	}
	return Misfit{}
}

// Place returns the best node for one more pod of a class: by its wishes, then by the policy; equally good ones by lowest slot. It charges
// nothing.
func (c *Cache) Place(class *api.Class) (nodeName string, ok bool) { return c.place(class, nil, true) }

// place is Place on the nodes that the caller allows; nil allows all. Wishes are heeded or not.
func (c *Cache) place(class *api.Class, allow func(number int32) bool, heed bool) (nodeName string, ok bool) {
	cl := c.plan(class)
	s, ok := int32(-1), false
	if (cl.wishful || c.reluctant > 0) && heed {
		s, ok = c.bestWished(cl, 0, allow)
	} else if allow == nil {
		s, ok = c.best(cl)
	} else {
		s, ok = c.bestWithin(cl, allow)
	}
	if ok {
		c.fetch(s, c.pods.next()) // a charge comes next
		c.chosen = s
		return c.names[s], true
	}
	return "", false
}

// takeHolds is PlaceWithin where no node has room.
func (c *Cache) takeHolds(cl *class, rank api.Rank, allow func(number int32) bool) (nodeName string, victims []string, ok bool) {
	if c.holding == 0 || !rank.Before(c.worst) || c.never(cl) {
		return "", nil, false
	}
	var best []uint32
	var worst api.Rank
	ranked := false
	held := c.held
	c.held = held[:0]
	for _, s := range held {
		at, n := &c.slots[s], c.bySlot[s]
		if at.held = at.holds > 0; !at.held {
			continue
		}
		c.held = append(c.held, s)
		for ch := range c.charges(n) {
			if c.pods.at(ch).kind == Hold {
				if r := c.pods.detail(ch).rank; !ranked || worst.Before(r) {
					ranked, worst = true, r
				}
			}
		}
		if !at.there || at.broken != 0 || c.verdict(cl, s) != admitted || !c.fitsEmpty(cl, s) || allow != nil && !allow(n.number) {
			continue
		}
		taken := c.taking(cl, n, rank)
		if taken == nil {
			continue
		}
		if best != nil {
			// Victims are in order of rank, worst first.
			k := c.pods.detail(taken[len(taken)-1]).rank.Compare(c.pods.detail(best[len(best)-1]).rank)
			if k == 0 {
				k = len(best) - len(taken)
			}
			if k < 0 || k == 0 && s > c.pods.at(best[0]).slot {
				continue
			}
		}
		best = taken
	}
	c.worst = worst
	if best == nil {
		return "", nil, false
	}
	for _, ch := range best {
		victims = append(victims, c.pods.detail(ch).uid)
	}
	return c.names[c.pods.at(best[0]).slot], victims, true
}

// Why returns, for each node, what keeps one more pod of a class from it now. In a cluster of thousands of nodes the counts may be
// some time old, if it was asked before: pods that fit nowhere ask again and again, and an answer looks at each node. Never is
// always of now, and whether there are nodes that fit.
func (c *Cache) Why(class *api.Class) Reasons {
	cl := c.plan(class)
	never := c.never(cl)
	if cl.counted && uint64(len(c.slots)) > c.limits.exact && c.changes < cl.due && cl.why.Never == never {
		if _, fits := c.best(cl); fits == (cl.why.Fit > 0) {
			why := cl.why
			why.Counts = slices.Clone(why.Counts)
			return why
		}
	}
	if !cl.counted {
		cl.counted = true
		c.counted++
	}
	cl.due = c.changes + c.counted*uint64(len(c.slots))/c.limits.counted // together they keep the bound
	why := c.count(cl, nil)
	why.Never = never
	cl.why = why
	cl.why.Counts = slices.Clone(why.Counts)
	return why
}

// Never reports whether no node would take a pod of a class even if it were empty.
func (c *Cache) Never(class *api.Class) bool { return c.never(c.plan(class)) }

// never reports whether no node would take a pod of a class even if it were empty. It knows one that would, or that there was none
// and which nodes changed since.
func (c *Cache) never(cl *class) bool {
	could := func(s int32) bool {
		return c.slots[s].there && c.verdict(cl, s) == admitted && c.fitsEmpty(cl, s)
	}
	if cl.could != 0 && could(cl.could-1) {
		return false
	}
	since := c.facts - cl.looked
	known := cl.sought && cl.could == 0 && since <= uint64(len(c.changed))
	cl.sought, cl.looked, cl.could = true, c.facts, 0
	if known {
		for i := range since {
			if s := c.changed[(c.facts-1-i)%uint64(len(c.changed))]; could(s) {
				cl.could = s + 1
				return false
			}
		}
		return true
	}
	if cl.set.pins != nil {
		for _, s := range c.candidates(cl.set.pins) {
			if could(s) {
				cl.could = s + 1
				return false
			}
		}
		return true
	}
	for s := range c.slots {
		if could(int32(s)) {
			cl.could = int32(s) + 1
			return false
		}
	}
	return true
}

// count is Why by looking at each node. The caller may have a reason of its own.
func (c *Cache) count(cl *class, reason func(number int32) string) Reasons {
	r := Reasons{}
	counts, others := map[Misfit]int{}, map[string]int{}
	short := make([]int, len(cl.requests))
	slots := func(yield func(int32) bool) {
		for s := range c.bySlot {
			if c.slots[s].there && !yield(int32(s)) {
				return
			}
		}
	}
	if cl.set.pins != nil { // like kube-scheduler, with one reason for all nodes that are not named
		named := c.candidates(cl.set.pins)
		slots = slices.Values(named)
		if unnamed := c.there - len(named); unnamed > 0 {
			r.Nodes += unnamed
			counts[Misfit{Obstacle: Affinity}] = unnamed
		}
	}
	for s := range slots {
		n := c.bySlot[s]
		r.Nodes++
		what, detail := c.obstacle(cl, int32(s), c.verdict(cl, int32(s)))
		switch what {
		case Nothing:
			if reason != nil {
				if why := reason(n.number); why != "" {
					others[why]++
					continue
				}
			}
			r.Fit++
		case Insufficient: // every resource that is short, as kube-scheduler counts them
			for i := detail; i < len(cl.requests); i++ {
				if !c.short(&cl.requests[i], int32(s)) {
					continue
				}
				if m := c.misfit(cl, n, Insufficient, i); m.Obstacle == NoDriver {
					counts[m]++
				} else {
					short[i]++
				}
			}
		default:
			counts[c.misfit(cl, n, what, detail)]++
		}
	}
	for i, k := range short {
		if k > 0 {
			counts[Misfit{Obstacle: Insufficient, Subject: cl.requests[i].name}] = k
		}
	}
	for m, k := range counts {
		others[m.String()] += k
	}
	for why, k := range others {
		r.Counts = append(r.Counts, api.ReasonCount{Reason: why, Nodes: k})
	}
	r.Sort()
	return r
}

// obstacle finds the first thing that keeps one more pod of a class from a slot whose verdict is known. The detail is the
// index of the taint, or of the request that is short. Planning and committing both come through here.
func (c *Cache) obstacle(cl *class, s int32, v verdict) (what Obstacle, detail int) {
	if v != admitted {
		return constraint(v)
	}
	if c.slots[s].broken != 0 {
		return OutOfSync, 0
	}
	if cl.choosy {
		if c.slots[s].exclusive {
			if what := c.exclusiveConflict(c.bySlot[s], cl.set.exclusives, nil); what != Nothing {
				return what, 0
			}
		}
		if cl.grouped {
			if what := c.groupsConflict(c.bySlot[s], cl, nil); what != Nothing {
				return what, 0
			}
		}
	}
	for i := range cl.requests {
		if c.short(&cl.requests[i], s) {
			return Insufficient, i
		}
	}
	return Nothing, 0
}

func (c *Cache) short(a *request, s int32) bool {
	return a.col < 0 || c.frees[int(s)*c.width+a.col] < a.amount
}

// fitsEmpty reports whether a slot would have enough of everything if nothing ran there.
func (c *Cache) fitsEmpty(cl *class, s int32) bool {
	for i := range cl.requests {
		if a := &cl.requests[i]; a.col < 0 || int64(c.hasOf(s)[a.col]) < a.amount {
			return false
		}
	}
	return true
}

func constraint(v verdict) (what Obstacle, detail int) {
	switch v {
	case admitted:
		return Nothing, 0
	case unreadable:
		return Unreadable, 0
	case unschedulable:
		return Unschedulable, 0
	case mismatched:
		return Affinity, 0
	case lacking:
		return Features, 0
	}
	return Taint, int(v - tainted)
}

// verdict is what constraints say of a slot with a node.
func (c *Cache) verdict(cl *class, s int32) verdict {
	if cl.unreadable != "" {
		return unreadable
	}
	return c.verdictOf(cl.set, s)
}

func (c *Cache) misfit(cl *class, n *node, what Obstacle, detail int) Misfit {
	m := Misfit{Obstacle: what}
	switch what {
	case NoNode:
		m.Subject = n.name
	case Unreadable:
		m.Subject = cl.unreadable
	case Taint:
		t := &n.object.Taints[detail]
		m.Subject = fmt.Sprintf("%s: %s", t.Key, t.Value)
	case Insufficient:
		m.Subject = cl.requests[detail].name
		if driver := api.VolumeDriver(m.Subject); driver != "" && slices.ContainsFunc(n.object.Attachable, func(a api.Attachable) bool { return a.Driver == driver && a.Missing }) {
			m = Misfit{NoDriver, driver}
		}
	}
	return m
}

// exclusiveConflict returns what is in the way if one of the wanted exclusives is in use on the node by pods other than the ones left out.
func (c *Cache) exclusiveConflict(n *node, want []api.Exclusive, without []uint32) Obstacle {
	for _, e := range want {
		for i := range n.exclusives {
			u := &n.exclusives[i]
			if !e.Conflicts(u.Exclusive) {
				continue
			}
			pods := u.pods
			for _, ch := range without {
				for _, q := range c.classOf(ch).set.exclusives {
					if q == u.Exclusive {
						pods--
					}
				}
			}
			if pods > 0 {
				return obstacleOf(e)
			}
		}
	}
	return Nothing
}

// taking returns the holds on a node that have to go for a pod of a class with a rank, worst rank first; nil when it does
// not help. None of them could be left out alone.
func (c *Cache) taking(cl *class, n *node, rank api.Rank) []uint32 {
	var worse []uint32
	for ch := range c.charges(n) {
		if c.pods.at(ch).kind == Hold && rank.Before(c.pods.detail(ch).rank) {
			worse = append(worse, ch)
		}
	}
	slices.SortFunc(worse, func(x, y uint32) int {
		a, b := c.pods.detail(x), c.pods.detail(y)
		if k := b.rank.Compare(a.rank); k != 0 {
			return k
		}
		return strings.Compare(a.uid, b.uid)
	})
	for k := range worse {
		if !c.fitsWithout(cl, n, worse[:k+1]) {
			continue
		}
		taken := slices.Clone(worse[:k+1])
		for i := len(taken) - 1; i >= 0 && len(taken) > 1; i-- { // spare the best ranks first
			if spared := slices.Delete(slices.Clone(taken), i, i+1); c.fitsWithout(cl, n, spared) {
				taken = spared
			}
		}
		return taken
	}
	return nil
}

// fitsWithout reports whether a pod of a class has enough room on a node that is in sync, once some charges are gone.
func (c *Cache) fitsWithout(cl *class, n *node, gone []uint32) bool {
	return c.fitsBeside(cl, n, gone, nil)
}

// fitsBeside is fitsWithout with less free than there is.
func (c *Cache) fitsBeside(cl *class, n *node, gone []uint32, less api.Resources) bool {
	for i := range cl.requests {
		a := &cl.requests[i]
		free := c.freeOf(n.slot)[a.col]
		for _, ch := range gone {
			for _, b := range c.classOf(ch).requests {
				if b.col == a.col {
					free = api.AddSat(free, b.amount)
				}
			}
		}
		if len(less) > 0 {
			free -= min(less.Value(a.name), max(free, 0))
		}
		if free < a.amount {
			return false
		}
	}
	return c.exclusiveConflict(n, cl.set.exclusives, gone) == Nothing && (!cl.grouped || c.groupsConflict(n, cl, gone) == Nothing)
}

// plan returns the class, and remembers it for a while.
func (c *Cache) plan(a *api.Class) *class { return c.remember(c.find(a)) }

// remember has a class planned.
func (c *Cache) remember(cl *class) *class {
	c.uses++
	cl.lastUse = c.uses
	if cl.planned {
		cl.used = true
		return cl
	}
	c.keep(cl)
	cl.planned = true
	if len(c.planned) < c.limits.planned {
		c.planned = append(c.planned, cl)
	} else {
		for range 2 * len(c.planned) { // if all are in use, the one where the hand began goes
			if cl := c.planned[c.hand]; !cl.used && (cl.bit < 0 || c.idle(cl)) {
				break
			}
			c.planned[c.hand].used = false
			c.hand = (c.hand + 1) % len(c.planned)
		}
		c.unplan(c.planned[c.hand])
		c.planned[c.hand] = cl
		c.hand = (c.hand + 1) % len(c.planned)
	}
	st := cl.set
	if st.planned++; st.verdict == nil && st.pins == nil && st.wish == nil {
		st.judged = 0
		if k := len(c.verdicts) - 1; k >= 0 {
			st.verdict, c.verdicts = c.verdicts[k], c.verdicts[:k]
			clear(st.verdict)
		} else {
			st.verdict = make([]verdict, len(c.slots), cap(c.slots))
		}
	}
	return cl
}

// idle reports whether a class with a bit has not been asked for in a long time. Until then its bit is safe from the many
// that are asked for once: bits are dear to make, and those that pass by are found with the help of them.
func (c *Cache) idle(cl *class) bool { return c.uses-cl.lastUse > c.limits.idle }

func (c *Cache) unplan(cl *class) {
	c.dismiss(cl)
	cl.planned, cl.used, cl.cost = false, false, 0
	if cl.counted {
		cl.counted, cl.why = false, Reasons{}
		c.counted--
	}
	cl.sought, cl.could = false, 0
	st := cl.set
	if st.planned--; st.planned == 0 && st.verdict != nil {
		c.verdicts, st.verdict, st.judged = append(c.verdicts, st.verdict), nil, 0
	}
	c.letGo(cl)
}

// permille of an amount that is at most the whole, which is not zero.
func permille(part, whole int64) int64 {
	if part <= math.MaxInt64/1000 {
		return part * 1000 / whole
	}
	hi, lo := bits.Mul64(uint64(part), 1000)
	q, _ := bits.Div64(hi, lo, uint64(whole))
	return int64(q)
}
