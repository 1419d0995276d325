package cache

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

// index is a bitmap index that answers, for all classes at once, which node is the best of those that a pod of the class fits.
//
// The policy orders nodes in the same way for all classes; classes differ only in which nodes fit. So there is one order of
// slots, a B+-tree (order.go), and the row of each slot has a bit for each class that is requested often, set if a pod of the
// class fits the node. The best node of a class is the first slot with its bit.
//
// A row is computed for all classes together. For each resource, the free amount is looked up in the sorted list of all amounts
// that classes request; the result is a precomputed bitmap of the classes that request no more than that. The row is the
// bitwise AND of these bitmaps and of the bitmap of the classes whose constraints the node satisfies.
//
// A class that is requested rarely has no bit. A node that fits it also fits every class with the same constraints and smaller
// requests, so its search skips every subtree that lacks one of their bits, or one of the rungs: bits that mean "at least this
// much of one resource is free". Once the searches for a class have cost as much as a bit would have, the class gets one. If
// there are too many, the class that was not used for longest loses its own.
//
// Invariants: after refresh, each node that is there and in sync has an entry, and each of its bits that is alive is exact.
type index struct {
	words     int      // of a row: the first for rungs, the others for classes
	rungs     []rung   // bits of the first word
	owners    []*class // by bit, nil for none
	alive     []uint64 // bits in use
	exclusive []uint64 // bits of classes with exclusives
	grouped   []uint64 // bits of classes whose pods belong to groups, or avoid some;
	groups    bool     // false: there are none
	sets      []*set   // those with bits
	steps     []steps  // one for each resource that some bit depends on
	stale     bool     // a column was added or removed, so steps and rows must be rebuilt
	admits    shared   // distinct rows of the classes whose constraints a node satisfies
	order     order
	dirty     []int32 // slots that changed since the last refresh
	row       []uint64
	mask      []uint64

	fetched uint64 // meaningless, see fetch
}

// rung is a bit that means "at least this much of a resource is free".
type rung struct {
	col    int
	amount int64
}

const (
	rungBits   = 64
	rungsOfCol = 12 // each is half of the one before, starting at the most that a node has
)

// steps maps a free amount of one resource to the bits that it is enough for.
type steps struct {
	col    int
	at     []int64     // requested amounts, ascending
	enough []uint64    // row i: bits that request at most at[i-1]; row 0: bits that request none
	from   [512]uint16 // by grade: index of the first amount of at least this grade
}

// gradeOf returns the number of an amount's size class: its length in bits and its three bits after the first.
func gradeOf(amount int64) int {
	if amount <= 0 {
		return 0
	}
	n := bits.Len64(uint64(amount))
	return n<<3 | int(uint64(amount)<<(64-n)>>60&7)
}

// row returns the bits that an amount is enough for. It compares only amounts of the same grade.
func (st *steps) row(words int, free int64) []uint64 {
	lo := int(st.from[gradeOf(free)])
	for lo < len(st.at) && st.at[lo] <= free {
		lo++
	}
	return st.enough[lo*words : (lo+1)*words]
}

// fetch prefetches what a change of a slot and refresh will read, and the detail that is added or that the next charge reuses. It
// has no other effect: the processor waits for all of it at once, rather than for one cache line after another.
func (c *Cache) fetch(s int32, number uint32) {
	x := &c.index
	free := int64(0)
	if of := c.freeOf(s); len(of) > 0 { // else no node ever offered anything
		free = of[0] ^ of[len(of)-1]
	}
	x.fetched = uint64(c.slots[s].n) ^ uint64(free) ^ uint64(x.order.where[s])
	if int(number) < len(c.pods.details)*slab {
		x.fetched ^= c.pods.detail(number).rank.Order
	}
}

// touch marks a slot as changed.
func (c *Cache) touch(s int32) {
	if at := &c.slots[s]; !at.marked {
		at.marked = true
		c.changes++
		c.index.dirty = append(c.index.dirty, s)
	}
}

// refresh applies the changes of slots to the order.
func (c *Cache) refresh() {
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

// reorder rebuilds the order.
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

// rowOf computes the row of a slot whose node is in sync. The result is valid until the next call.
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
	if c.slots[s].exclusive {
		n := c.bySlot[s]
		for w := range row {
			for b := row[w] & x.exclusive[w]; b != 0; b &= b - 1 {
				if i := bits.TrailingZeros64(b); c.exclusiveConflict(n, x.owners[w*64+i-rungBits].set.exclusives, nil) != Nothing {
					row[w] &^= 1 << i
				}
			}
		}
	}
	if !x.groups {
		return row
	}
	for w := range row {
		for b := row[w] & x.grouped[w]; b != 0; b &= b - 1 {
			if i := bits.TrailingZeros64(b); c.groupsConflict(c.bySlot[s], x.owners[w*64+i-rungBits], nil) != Nothing {
				row[w] &^= 1 << i
			}
		}
	}
	return row
}

// admit evaluates the constraints of all classes with bits for a slot.
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

// admitTo evaluates the constraints of a new bit for all slots.
func (c *Cache) admitTo(st *set, w int, m uint64) {
	x := &c.index
	twins := make([]int32, len(x.admits.users)) // by row: number of the row that differs from it in this bit, 0 if not known
	for s := range c.slots {
		at := &c.slots[s]
		if !at.there {
			continue
		}
		row := x.admits.at(at.admits)
		if (row[w]&m != 0) == (c.verdictOf(st, int32(s)) == admitted) {
			continue
		}
		old := at.admits // all of its slots whose bit is wrong change to the same row
		if twins[old] == 0 {
			copy(x.row, row)
			x.row[w] ^= m
			twins[old] = x.admits.find(x.row)
		}
		at.admits = twins[old]
		x.admits.pass(old, at.admits)
	}
}

// maskOf returns bits that every slot has that a class fits: those of rungs, and of classes with the same constraints that request
// no more of any resource. Those whose pods belong to groups may be kept away from slots that the class fits.
func (c *Cache) maskOf(cl *class) []uint64 {
	x := &c.index
	mask := x.mask
	clear(mask)
	copy(mask, cl.set.row)
	mask[0] = math.MaxUint64
	for w := range mask {
		mask[w] &= x.alive[w] &^ x.grouped[w]
	}
	for i := range x.steps {
		st, amount := &x.steps[i], int64(0)
		for j := range cl.requests {
			if cl.requests[j].col == st.col {
				amount = cl.requests[j].amount
			}
		}
		for w, enough := range st.row(x.words, amount) {
			mask[w] &= enough
		}
	}
	return mask
}

// best returns the first slot of the order that a class fits.
func (c *Cache) best(cl *class) (s int32, ok bool) {
	if cl.unreadable != "" {
		return -1, false
	}
	for i := range cl.requests {
		if cl.requests[i].col < 0 {
			return -1, false
		}
	}
	if cl.set.pins != nil {
		return c.bestPinned(cl)
	}
	c.refresh()
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

// Cost of a search without a bit, in units of what adopt spends on a slot: to begin, for a leaf, for evaluating constraints.
const (
	searchCost = 16
	leafCost   = 8
	judgeCost  = 8
)

// search does the work of best for a class without a bit.
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
			if cl.set.wish == nil && cl.set.verdict[s] == unknown {
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

// adopt assigns a bit to a class.
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
	mask := c.maskOf(cl) // entries that lack one of these cannot fit
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

// dismiss takes the bit of a class away.
func (c *Cache) dismiss(cl *class) {
	x := &c.index
	if cl.bit < 0 {
		return
	}
	w, m := cl.bit/64, uint64(1)<<(cl.bit%64)
	x.owners[cl.bit-rungBits] = nil
	x.alive[w] &^= m
	x.exclusive[w] &^= m
	x.grouped[w] &^= m
	cl.bit, cl.cost = -1, 0
	cl.set.row[w] &^= m
	if !slices.ContainsFunc(cl.set.row, func(b uint64) bool { return b != 0 }) {
		i := slices.Index(x.sets, cl.set)
		x.sets = slices.Delete(x.sets, i, i+1)
	}
}

// fitWords adjusts the width of rows to the number of owners, and reports whether it changed. If so, the caller must rebuild all rows.
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
	for _, row := range []*[]uint64{&x.alive, &x.exclusive, &x.grouped, &x.row, &x.mask} {
		*row = make([]uint64, words)
	}
	for _, st := range c.sets { // each by itself
		st.row = append(st.row, make([]uint64, words-len(st.row))...)
	}
	return true
}

// makeRungs chooses new rungs. The caller must rebuild all rows.
func (c *Cache) makeRungs() {
	x := &c.index
	x.rungs = x.rungs[:0]
	for i, col := range c.columns {
		if col == nil || col.driver != "" {
			continue
		}
		top := bits.Len64(uint64(c.most(col)))
		for k := 0; k < rungsOfCol && top-k > 0 && len(x.rungs) < rungBits; k++ {
			x.rungs = append(x.rungs, rung{col: i, amount: 1 << (top - 1 - k)})
		}
	}
}

// makeSteps recomputes the steps and the bits in use.
func (c *Cache) makeSteps() {
	x := &c.index
	type want struct {
		col    int
		amount int64
		bit    int
	}
	var wants []want
	clear(x.alive)
	clear(x.exclusive)
	clear(x.grouped)
	x.groups = false
	for i, r := range x.rungs {
		x.alive[0] |= 1 << i
		wants = append(wants, want{r.col, r.amount, i})
	}
	for _, cl := range x.owners {
		if cl == nil || slices.ContainsFunc(cl.requests, func(a request) bool { return a.col < 0 }) {
			continue
		}
		x.alive[cl.bit/64] |= 1 << (cl.bit % 64)
		if len(cl.set.exclusives) > 0 {
			x.exclusive[cl.bit/64] |= 1 << (cl.bit % 64)
		}
		if cl.grouped {
			x.grouped[cl.bit/64] |= 1 << (cl.bit % 64)
			x.groups = true
		}
		for _, a := range cl.requests {
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

// keyOf returns the key of a slot in the order: its rating, then its number.
func (c *Cache) keyOf(s int32) uint64 { return uint64(c.rating(s))<<32 | uint64(uint32(s)) }

// rating rates a node, regardless of the class; lower is better. Shares are per mille of what the node has.
//
// Pack is best fit. The node with the fewest free devices goes first, by number and not by share, so that pods without devices
// do not strand any, and pods with one leave nodes whole that still have eight free. (By share, an empty node with two devices
// rated the same as an empty one with eight; a real cluster then reached 72 % CPU allocation instead of 80 %.) Among equals, the
// node with the most in use goes first, summed over native resources.
//
// Spread prefers the node whose most used resource is least used. For the others, see allocated.
func (c *Cache) rating(s int32) uint32 {
	if c.cfg.Policy >= LeastAllocated {
		return c.allocated(s)
	}
	var used, devices, full int64
	has, frees := c.hasOf(s), c.freeOf(s)
	for i, col := range c.columns {
		alloc, rest := int64(has[i]), max(frees[i], 0)
		if alloc == 0 || col.kind == ofVolumes {
			continue
		}
		free := permille(rest, alloc)
		full = max(full, 1000-free)
		switch col.kind {
		case ofDevices:
			devices += min(rest, math.MaxUint16)
		case ofResource:
			used += 1000 - free
		}
	}
	if c.cfg.Policy == Spread {
		return uint32(full)
	}
	return uint32(min(devices, math.MaxUint16)<<16 | (math.MaxUint16 - min(used, math.MaxUint16)))
}
