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
	// changes bounds how many changes a planned class can be behind before it scans instead.
	changes int
	// planned bounds the classes with a verdict for each slot and a tree. At 20,000 nodes one takes half a megabyte.
	planned int
	// replay is how many slots can be scanned in the time that one change takes to replay.
	replay int
	// dead bounds the columns that are kept although no node names them any more: a device plugin that restarts takes its
	// resource away for a moment, and dropping a column touches every charge.
	dead int
}

var defaultLimits = limits{changes: 4096, planned: 128, replay: 2, dead: 32}

// nowhere is the key of a slot that does not fit. Other keys are the score, lower being better, above the slot.
const nowhere = math.MaxUint64

// CanPlace tells what keeps one more pod of a class from a node now. A pod that is already charged there is asked about
// with CanStay.
func (c *Cache) CanPlace(class *api.Class, nodeName string) Misfit {
	n := c.nodes[nodeName]
	if n == nil || n.object == nil {
		return Misfit{Obstacle: NoNode, Subject: nodeName}
	}
	cl := c.find(class)
	what, detail := c.obstacle(cl, n.slot, c.verdictOn(cl, n))
	return c.misfit(cl, n, what, detail)
}

// CanStay asks the same about a pod that has a charge, for its node, as if the pod came last: what is asked before a hold
// becomes an intent.
func (c *Cache) CanStay(uid string) Misfit {
	ch := c.pods[uid]
	if ch == nil {
		return Misfit{Obstacle: NoNode}
	}
	n, cl := ch.node, ch.class
	if n.object == nil {
		return Misfit{Obstacle: NoNode, Subject: n.name}
	}
	if what, detail := constraint(c.verdictOn(cl, n)); what != Nothing {
		return c.misfit(cl, n, what, detail)
	}
	// The pod is counted in what is free, so there is room for it exactly if nothing is negative.
	if c.broken[n.slot] != 0 {
		return Misfit{Obstacle: OutOfSync}
	}
	if len(cl.ports) > 0 && n.portsConflict(cl.ports, []*charge{ch}) {
		return Misfit{Obstacle: HostPort}
	}
	return Misfit{}
}

// Place returns the best node for one more pod of a class by the policy; equally good ones by lowest slot. It charges
// nothing.
func (c *Cache) Place(class *api.Class) (nodeName string, ok bool) {
	cl := c.plan(class)
	if best := cl.tree[1]; best != nowhere {
		return c.slots[uint32(best)].name, true
	}
	return "", false
}

// PlaceTaking is Place, and where no node has room, it may count away holds of a worse rank than the given one: victims are
// the UIDs of the pods whose holds have to be released first. It charges and releases nothing.
//
// The node chosen is the one whose best-ranked victim ranks worst, then the one with the fewest victims, then the lowest
// slot. A node out of sync is left alone: holds are no remedy for it.
func (c *Cache) PlaceTaking(class *api.Class, rank api.Rank) (nodeName string, victims []string, ok bool) {
	if nodeName, ok = c.Place(class); ok {
		return nodeName, nil, true
	}
	cl := c.plan(class)
	var best []*charge
	for s, n := range c.slots {
		if n == nil || n.holds == 0 || cl.verdict[s] != admitted || c.broken[s] != 0 || !c.fitsEmpty(cl, int32(s)) {
			continue
		}
		taken := c.taking(cl, n, rank)
		if taken == nil {
			continue
		}
		if best != nil {
			// Victims are in order of rank, worst first.
			k := taken[len(taken)-1].rank.Compare(best[len(best)-1].rank)
			if k < 0 || k == 0 && len(taken) >= len(best) {
				continue
			}
		}
		best = taken
	}
	if best == nil {
		return "", nil, false
	}
	for _, ch := range best {
		victims = append(victims, ch.uid)
	}
	return best[0].node.name, victims, true
}

// Why tells for each node what keeps one more pod of a class from it now.
func (c *Cache) Why(class *api.Class) Reasons {
	cl := c.plan(class)
	r := Reasons{Never: true}
	counts := map[Misfit]int{}
	short := make([]int, len(cl.asks))
	for s, n := range c.slots {
		if n == nil {
			continue
		}
		r.Nodes++
		if cl.verdict[s] == admitted && c.fitsEmpty(cl, int32(s)) {
			r.Never = false
		}
		what, detail := c.obstacle(cl, int32(s), cl.verdict[s])
		switch what {
		case Nothing:
			r.Fit++
		case Insufficient: // every resource that is short, as kube-scheduler counts them
			for i := detail; i < len(cl.asks); i++ {
				if c.short(&cl.asks[i], int32(s)) {
					short[i]++
				}
			}
		default:
			counts[c.misfit(cl, n, what, detail)]++
		}
	}
	for i, k := range short {
		if k > 0 {
			counts[Misfit{Obstacle: Insufficient, Subject: cl.asks[i].name}] = k
		}
	}
	for m, k := range counts {
		r.Counts = append(r.Counts, ReasonCount{Reason: m.String(), Nodes: k})
	}
	r.sort()
	return r
}

// obstacle finds the first thing that keeps one more pod of a class from a slot whose verdict is known. The detail is the
// index of the taint, or of the request that is short. Planning and committing both come through here.
func (c *Cache) obstacle(cl *class, s int32, v verdict) (what Obstacle, detail int) {
	if v != admitted {
		return constraint(v)
	}
	if c.broken[s] != 0 {
		return OutOfSync, 0
	}
	if len(cl.ports) > 0 && c.slots[s].portsConflict(cl.ports, nil) {
		return HostPort, 0
	}
	for i := range cl.asks {
		if c.short(&cl.asks[i], s) {
			return Insufficient, i
		}
	}
	return Nothing, 0
}

func (c *Cache) short(a *ask, s int32) bool {
	return a.col < 0 || c.columns[a.col].free[s] < a.amount
}

// fitsEmpty tells whether a slot would have enough of everything if nothing ran there.
func (c *Cache) fitsEmpty(cl *class, s int32) bool {
	for i := range cl.asks {
		if a := &cl.asks[i]; a.col < 0 || c.columns[a.col].alloc[s] < a.amount {
			return false
		}
	}
	return true
}

func constraint(v verdict) (what Obstacle, detail int) {
	switch v {
	case admitted:
		return Nothing, 0
	case absent:
		return NoNode, 0
	case unreadable:
		return Unreadable, 0
	case unschedulable:
		return Unschedulable, 0
	case mismatched:
		return Affinity, 0
	}
	return Taint, int(v - tainted)
}

func (c *Cache) verdictOn(cl *class, n *node) verdict {
	if cl.planned {
		return cl.verdict[n.slot]
	}
	return c.judge(cl, n.object)
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
		m.Subject = cl.asks[detail].name
	}
	return m
}

// portsConflict tells whether one of the wanted ports is in use on the node by pods other than the ones left out.
func (n *node) portsConflict(want []port, without []*charge) bool {
	for _, p := range want {
		for i := range n.ports {
			u := &n.ports[i]
			if !p.conflicts(u.port) {
				continue
			}
			pods := u.pods
			for _, ch := range without {
				for _, q := range ch.class.ports {
					if q == u.port {
						pods--
					}
				}
			}
			if pods > 0 {
				return true
			}
		}
	}
	return false
}

// taking returns the holds on a node that have to go for a pod of a class with a rank, worst rank first; nil when it does
// not help. None of them could be left out alone.
func (c *Cache) taking(cl *class, n *node, rank api.Rank) []*charge {
	var worse []*charge
	for _, ch := range n.charges {
		if ch.kind == Hold && rank.Before(ch.rank) {
			worse = append(worse, ch)
		}
	}
	slices.SortFunc(worse, func(a, b *charge) int {
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

// fitsWithout tells whether a pod of a class has enough room on a node that is in sync, once some charges are gone.
func (c *Cache) fitsWithout(cl *class, n *node, gone []*charge) bool {
	for i := range cl.asks {
		a := &cl.asks[i]
		free := c.columns[a.col].free[n.slot]
		for _, ch := range gone {
			for _, b := range ch.class.asks {
				if b.col == a.col {
					free = api.AddSat(free, b.amount)
				}
			}
		}
		if free < a.amount {
			return false
		}
	}
	return !n.portsConflict(cl.ports, gone)
}

// touch notes that a slot's score may have changed.
func (c *Cache) touch(s int32) {
	c.log[c.logged%uint64(len(c.log))] = s
	c.logged++
}

// plan returns the class with verdicts and a tree that are right for now.
func (c *Cache) plan(a *api.Class) *class {
	cl := c.find(a)
	c.uses++
	cl.lastUse = c.uses
	if !cl.planned {
		if len(c.planned) >= c.limits.planned {
			c.unplanOldest()
		}
		c.classes[cl.api.Key] = cl
		cl.planned = true
		c.planned = append(c.planned, cl)
		cl.verdict = make([]verdict, len(c.slots), cap(c.slots))
		for s, n := range c.slots {
			cl.verdict[s] = absent
			if n != nil {
				cl.verdict[s] = c.judge(cl, n.object)
			}
		}
	}
	behind := c.logged - cl.synced
	if len(cl.tree) < 2*len(c.slots) || cl.tree == nil || behind > uint64(len(c.log)) || behind*uint64(c.limits.replay) > uint64(len(c.slots)) {
		if behind > 0 || cl.tree == nil {
			c.build(cl)
		}
	} else {
		for i := cl.synced; i < c.logged; i++ {
			s := c.log[i%uint64(len(c.log))]
			cl.set(s, c.key(cl, s))
		}
	}
	cl.synced = c.logged
	return cl
}

func (c *Cache) unplanOldest() {
	oldest := 0
	for i, cl := range c.planned {
		if cl.lastUse < c.planned[oldest].lastUse {
			oldest = i
		}
	}
	cl := c.planned[oldest]
	c.planned = slices.Delete(c.planned, oldest, oldest+1)
	cl.planned, cl.verdict, cl.tree = false, nil, nil
	c.letGo(cl)
}

// build makes the tree of a class: a binary tree in an array, leaves in its upper half, one a slot, and above each two the
// smaller key of both, so that the smallest of all is at index 1.
func (c *Cache) build(cl *class) {
	half := 1
	for half < len(c.slots) {
		half *= 2
	}
	if len(cl.tree) != 2*half {
		cl.tree = make([]uint64, 2*half)
		for i := range cl.tree {
			cl.tree[i] = nowhere
		}
	}
	for s := range c.slots {
		cl.tree[half+s] = c.key(cl, int32(s))
	}
	for i := half - 1; i > 0; i-- {
		cl.tree[i] = min(cl.tree[2*i], cl.tree[2*i+1])
	}
}

func (cl *class) set(s int32, key uint64) {
	i := len(cl.tree)/2 + int(s)
	if cl.tree[i] == key {
		return
	}
	cl.tree[i] = key
	for i > 1 {
		i /= 2
		m := min(cl.tree[2*i], cl.tree[2*i+1])
		if cl.tree[i] == m {
			return
		}
		cl.tree[i] = m
	}
}

func (c *Cache) key(cl *class, s int32) uint64 {
	if what, _ := c.obstacle(cl, s, cl.verdict[s]); what != Nothing {
		return nowhere
	}
	return uint64(c.score(cl, s))<<32 | uint64(uint32(s))
}

// score rates a slot that fits; lower is better. All shares are per mille of what the node has.
//
// Pack is best fit: the smallest share that would remain of the resource that remains most. Devices go before everything
// else in it: a class that asks for none avoids nodes that have some free, where it would strand them, and for a class that
// asks for some, it is their remaining share that counts, and the others' only between equals.
//
// Spread takes the node whose fullest resource would be emptiest.
func (c *Cache) score(cl *class, s int32) uint32 {
	var base, device, full int64
	for i := range cl.asks {
		a := &cl.asks[i]
		if a.weight == unweighted {
			continue
		}
		col := c.columns[a.col]
		remains := permille(col.free[s]-a.amount, col.alloc[s])
		full = max(full, 1000-remains)
		if a.weight == weighsDevice {
			device = max(device, remains)
		} else {
			base = max(base, remains)
		}
	}
	if c.cfg.Policy == Spread {
		return uint32(full)
	}
	score := device<<10 | base
	if !cl.device && c.devices[s] > 0 {
		score |= 1 << 20
	}
	return uint32(score)
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
