package cache

import (
	"iter"
	"math"
	"math/bits"
	"slices"
)

const (
	leafSize  = 64 // entries of a leaf, at most
	blockSize = 8  // entries of a block
	blocks    = leafSize / blockSize
	fan       = 2 * blockSize // positions that one position of the next level sums up
)

// order is a B+-tree of slots, sorted by key, whose inner nodes are bitmaps: a bitmap index over a sorted list. Each entry has a
// row of bits, and first returns the first slot that has a given bit without looking at the slots before it.
//
// A leaf holds up to 64 entries, in blocks of eight and in no particular order. The list holds the leaves in the order of their
// keys. A leaf splits when it is full, and merges with its successor when both are nearly empty. Summaries are the bitwise OR of
// the rows below them: one for each block (in its leaf), one for each leaf (levels[0]), and one for each group of 16 summaries
// of the level below.
//
// Invariants:
//   - low[p] <= keys of list[p] < low[p+1], and low[0] = 0.
//   - A summary has every bit that occurs below it, and may have others: removing an entry does not clear the bits of its
//     summaries. A search that finds a bit in a summary, but not below it, tightens the summaries on its way and searches again.
//   - An entry does not move because another one is removed.
//
// There is one exception to lazy clearing: removing the entry that the last search found tightens its block at once. It was the
// first entry with its bits, so the next search for each of them would otherwise look there in vain.
//
// With many nodes, the cost is the number of cache lines that are not in the processor's cache. A search reads one line of
// summaries of a leaf and, of one block, one line of bits and one line of keys. A removal does not read the entry. There are no
// pointers, so the garbage collector does not scan the order.
type order struct {
	words   int      // of a row
	most    int      // capacity of a leaf, 2 to leafSize
	where   []uint32 // by slot: number of its entry + 1; 0 if it has none
	size    int      // lines of a leaf
	entries []line   // for each leaf: the summaries of its blocks, word by word; then for each block its keys (the low half is the slot) and its rows, word by word
	leaves  []leaf   // by number
	list    []int32  // numbers of the leaves, in the order of their keys
	low     []uint64 // lower bounds of their keys
	levels  []level  // levels[0] has a position for each leaf of the list, the last level has at most fan
	spare   []int32  // numbers of unused leaves
	found   int32    // the slot that the last search found; -1 for none
}

// line is a cache line: one word of eight entries, blocks or positions.
type line [blockSize]uint64

// or returns the bitwise OR of all eight words.
func (b *line) or() uint64 { return b[0] | b[1] | b[2] | b[3] | b[4] | b[5] | b[6] | b[7] }

// orOf returns the bitwise OR of the words that a mask selects.
func (b *line) orOf(mask *line) uint64 {
	return b[0]&mask[0] | b[1]&mask[1] | b[2]&mask[2] | b[3]&mask[3] | b[4]&mask[4] | b[5]&mask[5] | b[6]&mask[6] | b[7]&mask[7]
}

// having returns which of the eight words have a bit. It has no branches: a branch would wait for memory, and stall what follows.
func (b *line) having(bit int) uint64 {
	bit &= 63
	return b[0]>>bit&1 | b[1]>>bit&1<<1 | b[2]>>bit&1<<2 | b[3]>>bit&1<<3 |
		b[4]>>bit&1<<4 | b[5]>>bit&1<<5 | b[6]>>bit&1<<6 | b[7]>>bit&1<<7
}

// leaf number l has entries l*leafSize and following.
type leaf struct {
	used uint64 // bitmap of the entries in use
	at   int32  // position in the list
}

// level holds one summary for each position.
type level struct {
	n    int      // positions in use
	room int      // a multiple of fan
	bits []uint64 // word w of position p is at w*room+p; zero from n on
}

func slotOf(key uint64) int32 { return int32(uint32(key)) }

// block returns where the keys of a block are; the words of its rows follow. Entry e is one of block e/blockSize and of leaf
// e/leafSize.
func (o *order) block(b uint) int { return int(b/blocks)*o.size + o.words + int(b%blocks)*(1+o.words) }

func (o *order) key(e uint) uint64 { return o.entries[o.block(e/blockSize)][e%blockSize] }

func (o *order) word(e uint, w int) *uint64 { return &o.entries[o.block(e/blockSize)+1+w][e%blockSize] }

// sums returns one word of the summaries of the blocks of a leaf.
func (o *order) sums(l int32, w int) *line { return &o.entries[int(l)*o.size+w] }

// inUse returns which entries of a block are in use.
func (o *order) inUse(b uint) uint64 {
	return o.leaves[b/blocks].used >> (b % blocks * blockSize) & (1<<blockSize - 1)
}

// each iterates over the entries of a leaf.
func (o *order) each(l int32) iter.Seq[uint] {
	return func(yield func(uint) bool) {
		for used := o.leaves[l].used; used != 0; used &= used - 1 {
			if !yield(uint(l)*leafSize + uint(bits.TrailingZeros64(used))) {
				return
			}
		}
	}
}

// covering iterates over the entries of a leaf that have every bit of a mask.
func (o *order) covering(l int32, mask []uint64) iter.Seq[uint] {
	return func(yield func(uint) bool) {
		for b := range uint(blocks) {
			if !covers(o.entries[int(l)*o.size:], b, mask) {
				continue
			}
			b += uint(l) * blocks
			rows := o.entries[o.block(b)+1:]
			for used := o.inUse(b); used != 0; used &= used - 1 {
				if i := uint(bits.TrailingZeros64(used)); covers(rows, i, mask) && !yield(b*blockSize+i) {
					return
				}
			}
		}
	}
}

// covers reports whether row i has every bit of a mask. Word w of the row is word i of line w.
func covers(rows []line, i uint, mask []uint64) bool {
	for w, m := range mask {
		if rows[w][i%blockSize]&m != m {
			return false
		}
	}
	return true
}

// tidy tightens one word of the summary of a block, and reports whether it changed.
func (o *order) tidy(b uint, w int) bool {
	var mask line
	for i, used := 0, o.inUse(b); i < blockSize; i++ {
		mask[i] = -(used >> i & 1)
	}
	sum, has := &o.sums(int32(b/blocks), w)[b%blocks], o.entries[o.block(b)+1+w].orOf(&mask)
	if *sum == has {
		return false
	}
	*sum = has
	return true
}

// tidyAll tightens one word of the summaries of all blocks of a leaf.
func (o *order) tidyAll(l int32, w int) {
	for b := range uint(blocks) {
		o.tidy(uint(l)*blocks+b, w)
	}
}

func (o *order) full(l int32) bool { return bits.OnesCount64(o.leaves[l].used) == o.most }

// group returns the summaries that position p of the next level summarizes.
func (lv *level) group(w, p int) (a, b *line) {
	bits := lv.bits[w*lv.room+p*fan:][:fan]
	return (*line)(bits[:blockSize]), (*line)(bits[blockSize:])
}

func (lv *level) or(w, p int) uint64 {
	a, b := lv.group(w, p)
	return a.or() | b.or()
}

// reset builds the order from sorted keys, with rows of so many words.
func (o *order) reset(words, slots int, keys []uint64, row func(s int32) []uint64) {
	o.words, o.size, o.found = words, words+blocks*(1+words), -1
	o.where = slices.Grow(o.where[:0], slots)[:slots]
	clear(o.where)
	o.entries, o.leaves, o.spare = nil, o.leaves[:0], o.spare[:0]
	o.list, o.low = o.list[:0], o.low[:0]
	full := max(1, o.most*3/4)
	o.entries = large(make([]line, 0, (1+len(keys)/full)*5/4*o.size))
	for len(o.list) == 0 || len(keys) > 0 {
		l := o.newLeaf()
		low := uint64(0)
		if len(o.list) > 0 {
			low = keys[0]
		}
		o.leaves[l].at = int32(len(o.list))
		o.list, o.low = append(o.list, l), append(o.low, low)
		n := min(full, len(keys))
		for _, key := range keys[:n] {
			o.write(o.add(l, key), row(slotOf(key)))
		}
		keys = keys[n:]
	}
	o.relevel()
}

func (o *order) newLeaf() int32 {
	if k := len(o.spare) - 1; k >= 0 {
		l := o.spare[k]
		o.spare = o.spare[:k]
		clear(o.entries[int(l)*o.size:][:o.words])
		return l
	}
	o.leaves = append(o.leaves, leaf{})
	n := len(o.leaves) * o.size
	o.entries = grown(o.entries, n-len(o.entries))[:n]
	return int32(len(o.leaves) - 1)
}

// add puts an entry into a leaf and returns it. Its row is not set yet, and no summary includes it.
func (o *order) add(l int32, key uint64) (e uint) {
	used := &o.leaves[l].used
	i := uint(bits.TrailingZeros64(^*used))
	*used |= 1 << i
	e = uint(l)*leafSize + i
	o.entries[o.block(e/blockSize)][e%blockSize] = key
	o.where[slotOf(key)] = uint32(e) + 1
	return e
}

// write sets the row of an entry, and adds it to the summary of its block.
func (o *order) write(e uint, row []uint64) {
	rows, sums := o.entries[o.block(e/blockSize)+1:], o.entries[int(e/leafSize)*o.size:]
	for w, has := range row {
		rows[w][e%blockSize] = has
		sums[w][e/blockSize%blocks] |= has
	}
}

// move copies an entry to another leaf.
func (o *order) move(e uint, l int32) {
	to := o.add(l, o.key(e))
	for w := range o.words {
		has := *o.word(e, w)
		*o.word(to, w) = has
		o.sums(l, w)[to/blockSize%blocks] |= has
	}
}

// relevel rebuilds all levels, with room for twice as many leaves.
func (o *order) relevel() {
	o.levels = o.levels[:0]
	room := 2 * len(o.list)
	for n := len(o.list); ; n = (n + fan - 1) / fan {
		room = (room + fan - 1) / fan * fan
		o.levels = append(o.levels, level{n: n, room: room, bits: make([]uint64, room*o.words)})
		if room == fan {
			break
		}
		room /= fan
	}
	for w := range o.words {
		o.sum(w)
	}
}

// sum recomputes one word of all levels.
func (o *order) sum(w int) {
	lv := &o.levels[0]
	for p, l := range o.list {
		lv.bits[w*lv.room+p] = o.sums(l, w).or()
	}
	o.sumAbove(w, 0)
}

// sumAbove recomputes one word of all levels but the first, from a position of the list on.
func (o *order) sumAbove(w, from int) {
	for k := 1; k < len(o.levels); k++ {
		from /= fan
		for p := from; p < o.levels[k].n; p++ {
			o.levels[k].bits[w*o.levels[k].room+p] = o.levels[k-1].or(w, p)
		}
	}
}

// promise adds bits to the summaries of the leaf at position p.
func (o *order) promise(w, p int, has uint64) {
	for k := range o.levels {
		lv := &o.levels[k]
		cell := &lv.bits[w*lv.room+p]
		if *cell&has == has {
			return
		}
		*cell |= has
		p /= fan
	}
}

// correct tightens one word of the summaries of the leaf at position p.
func (o *order) correct(w, p int) {
	has := o.sums(o.list[p], w).or()
	for k := range o.levels {
		lv := &o.levels[k]
		cell := &lv.bits[w*lv.room+p]
		if *cell == has {
			return
		}
		*cell = has
		if k+1 < len(o.levels) {
			p /= fan
			has = lv.or(w, p)
		}
	}
}

// put inserts a slot, or moves it to a new key. Its row is not set until fill.
func (o *order) put(s int32, key uint64) {
	if at := o.where[s]; at != 0 {
		e := uint(at - 1)
		if p := int(o.leaves[e/leafSize].at); o.low[p] > key || p+1 < len(o.low) && key >= o.low[p+1] {
			o.remove(s)
		} else {
			o.entries[o.block(e/blockSize)][e%blockSize] = key
			return
		}
	}
	p := o.find(key)
	if o.full(o.list[p]) {
		o.split(p)
		if key >= o.low[p+1] {
			p++
		}
	}
	o.add(o.list[p], key)
}

// fill sets the row of a slot that was just put. It is separate from put so that the entry is fetched from memory while the
// caller computes the row.
func (o *order) fill(s int32, row []uint64) {
	e := uint(o.where[s] - 1)
	o.write(e, row)
	p := int(o.leaves[e/leafSize].at)
	for w, has := range row {
		if has != 0 {
			o.promise(w, p, has)
		}
	}
}

// remove removes a slot, if the order has it.
func (o *order) remove(s int32) {
	if o.where[s] == 0 {
		return
	}
	e := uint(o.where[s] - 1)
	o.where[s] = 0
	l := &o.leaves[e/leafSize]
	l.used &^= 1 << (e % leafSize)
	p := int(l.at)
	if s == o.found {
		o.found = -1
		for w := range o.words {
			if o.tidy(e/blockSize, w) {
				o.correct(w, p)
			}
		}
	}
	switch {
	case l.used == 0 && len(o.list) > 1:
		o.drop(p)
	case p+1 < len(o.list) && bits.OnesCount64(l.used)+bits.OnesCount64(o.leaves[o.list[p+1]].used) <= o.most/8:
		o.join(p)
	}
}

// find returns the position of the leaf in whose range a key lies.
func (o *order) find(key uint64) int {
	lo := 0
	for n := len(o.low); n > 1; { // low[lo] <= key
		half := n / 2
		if o.low[lo+half] <= key { // a single assignment compiles to no branch, which would be mispredicted
			lo += half
		}
		n -= half
	}
	return lo
}

// split moves the upper half of a leaf into a new one after it.
func (o *order) split(p int) {
	l := o.list[p]
	var keys [leafSize]uint64
	sorted := keys[:0]
	for e := range o.each(l) {
		sorted = append(sorted, o.key(e))
	}
	slices.Sort(sorted)
	middle := sorted[len(sorted)/2]
	upper := o.newLeaf()
	for e := range o.each(l) {
		if o.key(e) >= middle {
			o.leaves[l].used &^= 1 << (e % leafSize)
			o.move(e, upper)
		}
	}
	for w := range o.words {
		o.tidyAll(l, w)
	}
	o.list, o.low = slices.Insert(o.list, p+1, upper), slices.Insert(o.low, p+1, middle)
	o.relist(p, 1)
}

// join merges the next leaf into the one at position p.
func (o *order) join(p int) {
	for e := range o.each(o.list[p+1]) {
		o.move(e, o.list[p])
	}
	o.drop(p + 1)
	for w := range o.words {
		o.tidyAll(o.list[p], w)
		o.correct(w, p)
	}
}

// drop removes a leaf from the list.
func (o *order) drop(p int) {
	o.leaves[o.list[p]].used = 0
	o.spare = append(o.spare, o.list[p])
	o.list, o.low = slices.Delete(o.list, p, p+1), slices.Delete(o.low, p, p+1)
	o.low[0] = 0
	o.relist(p, -1)
}

// relist updates positions and levels after a leaf was inserted after position p (by > 0), or removed there.
func (o *order) relist(p, by int) {
	for q := p; q < len(o.list); q++ {
		o.leaves[o.list[q]].at = int32(q)
	}
	lv := &o.levels[0]
	if len(o.list) > lv.room {
		o.relevel()
		return
	}
	for w := range o.words {
		has := lv.bits[w*lv.room : (w+1)*lv.room]
		if by > 0 {
			copy(has[p+1:lv.n+1], has[p:lv.n])
			has[p], has[p+1] = o.sums(o.list[p], w).or(), o.sums(o.list[p+1], w).or()
		} else {
			copy(has[p:lv.n-1], has[p+1:lv.n])
			has[lv.n-1] = 0
		}
	}
	lv.n = len(o.list)
	n := lv.n
	for k := 1; k < len(o.levels); k++ {
		n = (n + fan - 1) / fan
		up := &o.levels[k]
		if n < up.n {
			for w := range o.words {
				up.bits[w*up.room+n] = 0
			}
		}
		up.n = n
	}
	for w := range o.words {
		o.sumAbove(w, p)
	}
}

// first returns the first slot that has a bit.
func (o *order) first(bit int) (s int32, ok bool) {
	w := bit / 64
	for {
		p := o.descend(w, bit)
		if p < 0 {
			return -1, false
		}
		l, best, falsePositive := o.list[p], uint64(math.MaxUint64), false
		for in := o.sums(l, w).having(bit); in != 0; in &= in - 1 {
			b := uint(l)*blocks + uint(bits.TrailingZeros64(in))
			at := o.block(b)
			with := o.entries[at+1+w].having(bit) & o.inUse(b)
			if with == 0 {
				o.tidy(b, w)
				falsePositive = true
			}
			for ; with != 0; with &= with - 1 {
				best = min(best, o.entries[at][bits.TrailingZeros64(with)&(blockSize-1)])
			}
		}
		if falsePositive || best == math.MaxUint64 {
			o.correct(w, p)
		}
		if best != math.MaxUint64 {
			return slotOf(best), true
		}
	}
}

// descend returns the first position of the list whose summary has a bit, or -1.
func (o *order) descend(w, bit int) int {
	p := 0
	for k := len(o.levels) - 1; k >= 0; k-- {
		lv := &o.levels[k]
		a, b := lv.group(w, p)
		has := a.having(bit) | b.having(bit)<<blockSize
		if has == 0 {
			return -1
		}
		p = p*fan + bits.TrailingZeros64(has)
	}
	return p
}

// next returns the first position from p on whose summary has every bit of a mask, or -1.
func (o *order) next(p int, mask []uint64) int {
	for p < o.levels[0].n {
		step := 0 // length of the largest group that begins here and can be skipped
		for k, size := 1, fan; k < len(o.levels) && p%size == 0 && !o.levels[k].has(p/size, mask); k, size = k+1, size*fan {
			step = size
		}
		if step == 0 {
			if o.levels[0].has(p, mask) {
				return p
			}
			step = 1
		}
		p += step
	}
	return -1
}

func (lv *level) has(p int, mask []uint64) bool {
	for w, m := range mask {
		if lv.bits[w*lv.room+p]&m != m {
			return false
		}
	}
	return true
}
