package cache

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// The index answers "which node is the best of those that take a pod of this class" for all classes at once. The order of
// nodes by the policy does not depend on the class: only which of them fit does. So there is one order of slots, and each
// slot's row has a bit for each class that is asked for often, set where a pod of it fits; the best node of a class is the
// first with its bit. Finding out all bits of a row together costs a binary search and an AND a resource: the bits of the
// classes that ask for at most so much of it are made beforehand, for each amount that any of them asks for.
//
// A class that is asked for rarely has no bit. A node that takes it also takes every class that asks for less under the
// same constraints, so the search for it skips whatever lacks one of their bits, or one of the rungs: bits that say that so
// much of one resource is free, whoever asks. When looking at nodes has cost a class as much as a bit would have, it gets
// one, in place of a class that was not asked for lately if there are many.
type index struct {
	words  int      // of a row: one of rungs, the others of classes
	rungs  []rung   // the bits of the first word
	owners []*class // by bit, nil for none
	alive  []uint64 // the bits that mean something
	ported []uint64 // bits of classes with host ports
	sets   []*set   // those with bits
	steps  []steps  // for each resource that some bit is about
	stale  bool     // steps and rows, since a column came or went
	admits shared   // rows: what constraints allow on nodes
	order  order
	dirty  []int32 // slots that changed since the order was right
	row    []uint64
	mask   []uint64

	fetched uint64 // nothing, see fetch
}

// rung is a bit for "so much of a resource is free".
type rung struct {
	col    int
	amount int64
}

const (
	rungBits   = 64
	rungsOfCol = 12 // halves of the most that a node has
)

// steps tells for an amount free of one resource which bits it is enough for.
type steps struct {
	col    int
	at     []int64  // amounts asked for, ascending
	enough []uint64 // row i: bits that ask for at most at[i-1]; row 0: for none of it
	from   [512]uint16
}

// gradeOf rounds an amount down to its first four binary digits, and numbers what comes out.
func gradeOf(amount int64) int {
	if amount <= 0 {
		return 0
	}
	n := bits.Len64(uint64(amount))
	return n<<3 | int(uint64(amount)<<(64-n)>>60&7)
}

// row looks at the amounts of one grade alone: from says how many are of lower ones.
func (st *steps) row(words int, free int64) []uint64 {
	lo := int(st.from[gradeOf(free)])
	for lo < len(st.at) && st.at[lo] <= free {
		lo++
	}
	return st.enough[lo*words : (lo+1)*words]
}

// fetch reads a word of all that a change of a slot and its settling will read, and of the claim that comes or that the next
// charge takes over. It is not needed for anything but time: the processor waits for all of it at once, here, and not for one
// after the other.
func (c *Cache) fetch(s int32, number uint32) {
	x := &c.index
	free := int64(0)
	if of := c.freeOf(s); len(of) > 0 { // else no node ever offered anything
		free = of[0] ^ of[len(of)-1]
	}
	x.fetched = uint64(c.slots[s].n) ^ uint64(free) ^ uint64(x.order.where[s])
	if int(number) < len(c.pods.claims)*slab {
		x.fetched ^= c.pods.claim(number).rank.Order
	}
}

// touch notes that a slot changed.
func (c *Cache) touch(s int32) {
	if at := &c.slots[s]; !at.marked {
		at.marked = true
		c.changes++
		c.index.dirty = append(c.index.dirty, s)
	}
}

// settle makes the order right for now.
func (c *Cache) settle() {
	x := &c.index
	if x.stale || len(x.dirty) > max(64, len(c.slots)/4) {
		c.makeRungs()
		c.makeSteps()
		c.reorder()
	}
	for _, s := range x.dirty {
		at := &c.slots[s]
		at.marked = false
		if !at.there || at.broken != 0 {
			x.order.remove(s)
		} else {
			x.order.put(s, c.keyOf(s))
			x.order.fill(s, c.rowOf(s))
		}
	}
	x.dirty = x.dirty[:0]
}

// reorder makes the order again from nothing.
func (c *Cache) reorder() {
	x := &c.index
	keys := make([]uint64, 0, len(c.slots))
	for s := range c.slots {
		at := &c.slots[s]
		at.marked = false
		if at.there && at.broken == 0 {
			keys = append(keys, c.keyOf(int32(s)))
		}
	}
	slices.Sort(keys)
	x.order.reset(x.words, len(c.slots), keys, c.rowOf)
	x.dirty = x.dirty[:0]
}

// rowOf is the row of a slot whose node is in sync.
func (c *Cache) rowOf(s int32) []uint64 {
	x := &c.index
	row := x.row
	copy(row, x.admits.at(c.slots[s].admits))
	for w := range row {
		row[w] &= x.alive[w]
	}
	free := c.freeOf(s)
	for i := range x.steps {
		st := &x.steps[i]
		for w, enough := range st.row(x.words, free[st.col]) {
			row[w] &= enough
		}
	}
	if c.slots[s].ported {
		n := c.bySlot[s]
		for w := range row {
			for b := row[w] & x.ported[w]; b != 0; b &= b - 1 {
				if i := bits.TrailingZeros64(b); c.portsConflict(n, x.owners[w*64+i-rungBits].set.ports, nil) {
					row[w] &^= 1 << i
				}
			}
		}
	}
	return row
}

// admit finds out for all classes with bits what their constraints say of a slot.
func (c *Cache) admit(s int32) {
	x := &c.index
	row := x.row
	clear(row)
	row[0] = math.MaxUint64
	for _, st := range x.sets {
		if c.verdictOf(st, s) == admitted {
			for w, b := range st.row {
				row[w] |= b
			}
		}
	}
	c.slots[s].admits = x.admits.swap(c.slots[s].admits, row)
}

// admitTo finds out for all slots whether the constraints of a new bit allow it.
func (c *Cache) admitTo(st *set, w int, m uint64) {
	x := &c.index
	twins := make([]int32, len(x.admits.users)) // of rows: the number of the same row with the bit the other way, 0 for not known
	for s := range c.slots {
		at := &c.slots[s]
		if !at.there {
			continue
		}
		row := x.admits.at(at.admits)
		if (row[w]&m != 0) == (c.verdictOf(st, int32(s)) == admitted) {
			continue
		}
		old := at.admits // its slots without the right bit all go the same way
		if twins[old] == 0 {
			copy(x.row, row)
			x.row[w] ^= m
			twins[old] = x.admits.find(x.row)
		}
		at.admits = twins[old]
		x.admits.pass(old, at.admits)
	}
}

// maskOf says which bits a slot must have for a class to fit it: rungs, and classes of the same constraints that ask for no
// more of anything.
func (c *Cache) maskOf(cl *class) []uint64 {
	x := &c.index
	mask := x.mask
	clear(mask)
	copy(mask, cl.set.row)
	mask[0] = math.MaxUint64
	for w := range mask {
		mask[w] &= x.alive[w]
	}
	for i := range x.steps {
		st, amount := &x.steps[i], int64(0)
		for j := range cl.asks {
			if cl.asks[j].col == st.col {
				amount = cl.asks[j].amount
			}
		}
		for w, enough := range st.row(x.words, amount) {
			mask[w] &= enough
		}
	}
	return mask
}

// best returns the first slot in the order that a class fits.
func (c *Cache) best(cl *class) (s int32, ok bool) {
	if cl.unreadable != "" {
		return -1, false
	}
	for i := range cl.asks {
		if cl.asks[i].col < 0 {
			return -1, false
		}
	}
	c.settle()
	if cl.bit < 0 && cl.cost > len(c.slots) {
		c.adopt(cl)
	}
	if cl.bit >= 0 {
		s, ok = c.index.order.first(cl.bit)
	} else {
		s, ok = c.search(cl)
	}
	c.index.order.found = s
	return s, ok
}

// What looking costs, in slots that adopt looks at: to begin, a leaf, and a constraint judged.
const (
	searchCost = 16
	leafCost   = 8
	judgeCost  = 8
)

// search is best for a class without a bit.
func (c *Cache) search(cl *class) (int32, bool) {
	o := &c.index.order
	mask := c.maskOf(cl)
	cl.cost += searchCost
	for p := o.next(0, mask); p >= 0; p = o.next(p+1, mask) {
		cl.cost += leafCost
		best := uint64(math.MaxUint64)
		passed := false
		for e := range o.covering(o.list[p], mask) {
			passed = true
			key := o.key(e)
			if key >= best {
				continue
			}
			s := slotOf(key)
			cl.cost++
			if cl.set.verdict[s] == unknown {
				cl.cost += judgeCost
			}
			if what, _ := c.obstacle(cl, s, c.verdictOf(cl.set, s)); what == Nothing {
				best = key
			}
		}
		if best != math.MaxUint64 {
			return slotOf(best), true
		}
		if !passed {
			for w, m := range mask {
				if m != 0 {
					o.tidyAll(o.list[p], w)
					o.correct(w, p)
				}
			}
		}
	}
	return -1, false
}

// adopt gives a class a bit.
func (c *Cache) adopt(cl *class) {
	x := &c.index
	var oldest *class
	owners := 0
	for _, o := range x.owners {
		if o != nil {
			owners++
			if oldest == nil || o.lastUse < oldest.lastUse {
				oldest = o
			}
		}
	}
	bit := slices.Index(x.owners, nil)
	if owners >= c.limits.bits || bit < 0 && oldest != nil && c.idle(oldest) {
		bit = oldest.bit - rungBits
		c.dismiss(oldest)
	} else if bit < 0 {
		bit = len(x.owners)
		x.owners = append(x.owners, make([]*class, 64)...)
	}
	x.owners[bit] = cl
	cl.bit = rungBits + bit
	grown := c.fitWords()
	w, m := cl.bit/64, uint64(1)<<(cl.bit%64)
	if !slices.Contains(x.sets, cl.set) {
		x.sets = append(x.sets, cl.set)
	}
	cl.set.row[w] |= m
	if grown {
		c.makeRungs()
		c.makeSteps()
		for s := range c.slots {
			if c.slots[s].there {
				c.admit(int32(s))
			}
		}
		c.reorder()
		return
	}
	c.makeSteps()
	c.admitTo(cl.set, w, m)
	mask := c.maskOf(cl) // what lacks one of these need not be looked at
	mask[w] &^= m
	for _, l := range x.order.list {
		for e := range x.order.each(l) {
			*x.order.word(e, w) &^= m
		}
		for e := range x.order.covering(l, mask) {
			s := slotOf(x.order.key(e))
			if what, _ := c.obstacle(cl, s, c.verdictOf(cl.set, s)); what == Nothing {
				*x.order.word(e, w) |= m
			}
		}
		x.order.tidyAll(l, w)
	}
	x.order.sum(w)
}

// dismiss takes a class's bit away.
func (c *Cache) dismiss(cl *class) {
	x := &c.index
	if cl.bit < 0 {
		return
	}
	w, m := cl.bit/64, uint64(1)<<(cl.bit%64)
	x.owners[cl.bit-rungBits] = nil
	x.alive[w] &^= m
	x.ported[w] &^= m
	cl.bit, cl.cost = -1, 0
	cl.set.row[w] &^= m
	if !slices.ContainsFunc(cl.set.row, func(b uint64) bool { return b != 0 }) {
		i := slices.Index(x.sets, cl.set)
		x.sets = slices.Delete(x.sets, i, i+1)
	}
}

// fitWords makes rows as wide as there are owners, and reports whether they grew. Rows are then to be made again.
func (c *Cache) fitWords() bool {
	x := &c.index
	words := 1 + len(x.owners)/64
	if words == x.words {
		return false
	}
	x.words = words
	x.admits.reset(words)
	for s := range c.slots {
		c.slots[s].admits = 0
	}
	x.alive, x.ported, x.row, x.mask = make([]uint64, words), make([]uint64, words), make([]uint64, words), make([]uint64, words)
	for _, st := range c.sets { // each by itself
		st.row = append(st.row, make([]uint64, words-len(st.row))...)
	}
	return true
}

// makeRungs chooses the rungs anew. All rows have to be made again then.
func (c *Cache) makeRungs() {
	x := &c.index
	x.rungs = x.rungs[:0]
	for i, col := range c.columns {
		if col == nil {
			continue
		}
		top := bits.Len64(uint64(c.most(col)))
		for k := 0; k < rungsOfCol && top-k > 0 && len(x.rungs) < rungBits; k++ {
			x.rungs = append(x.rungs, rung{col: i, amount: 1 << (top - 1 - k)})
		}
	}
}

// makeSteps makes steps again, and which bits mean something.
func (c *Cache) makeSteps() {
	x := &c.index
	type want struct {
		col    int
		amount int64
		bit    int
	}
	var wants []want
	clear(x.alive)
	clear(x.ported)
	for i, r := range x.rungs {
		x.alive[0] |= 1 << i
		wants = append(wants, want{r.col, r.amount, i})
	}
	for _, cl := range x.owners {
		if cl == nil || slices.ContainsFunc(cl.asks, func(a ask) bool { return a.col < 0 }) {
			continue
		}
		x.alive[cl.bit/64] |= 1 << (cl.bit % 64)
		if len(cl.set.ports) > 0 {
			x.ported[cl.bit/64] |= 1 << (cl.bit % 64)
		}
		for _, a := range cl.asks {
			wants = append(wants, want{a.col, a.amount, cl.bit})
		}
	}
	slices.SortFunc(wants, func(a, b want) int {
		return cmp.Or(cmp.Compare(a.col, b.col), cmp.Compare(a.amount, b.amount), cmp.Compare(a.bit, b.bit))
	})
	x.steps = x.steps[:0]
	for len(wants) > 0 {
		n := 0
		for n < len(wants) && wants[n].col == wants[0].col {
			n++
		}
		st := steps{col: wants[0].col, enough: slices.Clone(x.alive)}
		for _, a := range wants[:n] {
			st.enough[a.bit/64] &^= 1 << (a.bit % 64)
		}
		for _, a := range wants[:n] {
			if k := len(st.at); k == 0 || st.at[k-1] != a.amount {
				st.at = append(st.at, a.amount)
				st.enough = append(st.enough, st.enough[len(st.enough)-x.words:]...)
			}
			st.enough[len(st.at)*x.words+a.bit/64] |= 1 << (a.bit % 64)
		}
		k := 0
		for g := range st.from {
			for k < len(st.at) && gradeOf(st.at[k]) < g {
				k++
			}
			st.from[g] = uint16(k)
		}
		x.steps = append(x.steps, st)
		wants = wants[n:]
	}
	x.stale = false
}

// keyOf is where a slot stands in the order: its rating, then its number.
func (c *Cache) keyOf(s int32) uint64 { return uint64(c.rating(s))<<32 | uint64(uint32(s)) }

// rating rates a node, whoever asks; lower is better. Shares are per mille of what the node has.
//
// Pack is best fit: the node with the fewest free devices goes first, by number and not by share: what asks for none does
// not strand them, and what asks for one leaves the nodes whole that still have eight. (By share, an empty node of two was
// as good as an empty one of eight; a real cluster then stood at 72 % of its CPU where it reaches 80.) Among equals the
// node goes first of which most is used, summed over native resources.
//
// Spread takes the node whose fullest resource is emptiest.
func (c *Cache) rating(s int32) uint32 {
	var used, devices, full int64
	has, frees := c.hasOf(s), c.freeOf(s)
	for i, col := range c.columns {
		alloc, rest := int64(has[i]), max(frees[i], 0)
		if alloc == 0 {
			continue
		}
		free := permille(rest, alloc)
		full = max(full, 1000-free)
		switch {
		case col.device:
			devices += min(rest, math.MaxUint16)
		case col.name != string(v1.ResourcePods): // their number says nothing about how full a node is
			used += 1000 - free
		}
	}
	if c.cfg.Policy == Spread {
		return uint32(full)
	}
	return uint32(min(devices, math.MaxUint16)<<16 | (math.MaxUint16 - min(used, math.MaxUint16)))
}
