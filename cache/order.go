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

// order keeps slots sorted by key and with each a row of bits, and finds the first slot that has a bit without looking at
// those before it. Leaves hold some entries each, in no order; they stand in a list by key, and levels above the list say
// for each stretch of it which bits occur there. The entries of a leaf are in blocks of eight, and sums say which bits occur in
// each. A leaf splits when it is full and joins its neighbour when both are nearly empty.
//
// What counts at many nodes is how many cache lines are touched that nobody touched lately. Of a leaf, a search reads a line of
// sums, and of one block a line of words and one of keys. No entry moves because another goes, and an entry that goes is not
// even looked at: sums and levels promise at least what is there, and who finds nothing where something is promised puts the
// promise right. But when the entry that was found last goes, what only it had is no longer promised: it was the first that had
// its bits, so the next searches for them would come there in vain. Nothing here is a pointer, so the garbage collector does not
// look through it.
type order struct {
	words   int      // of a row
	most    int      // entries of a leaf, 2 to leafSize
	where   []uint32 // by slot, its entry +1; 0 when it is not in
	size    int      // lines of a leaf
	entries []line   // of each leaf: sums of its blocks, word after word; then of each block the keys, of which the low half is the slot, and the rows, word after word
	leaves  []leaf   // by number
	list    []int32  // numbers of leaves, by key
	low     []uint64 // low[p] <= keys of list[p] < low[p+1], low[0] = 0
	levels  []level  // levels[0] has a position for each leaf of the list, the last has room for fan
	spare   []int32  // numbers of leaves
	found   int32    // a slot, by the last search; -1 for none
}

// line is a cache line: one word of eight entries, blocks or positions.
type line [blockSize]uint64

// or sums up all eight, and orOf those of a mask.
func (b *line) or() uint64 { return b[0] | b[1] | b[2] | b[3] | b[4] | b[5] | b[6] | b[7] }

func (b *line) orOf(mask *line) uint64 {
	return b[0]&mask[0] | b[1]&mask[1] | b[2]&mask[2] | b[3]&mask[3] | b[4]&mask[4] | b[5]&mask[5] | b[6]&mask[6] | b[7]&mask[7]
}

// having tells which of them have a bit. There is no jump: it would wait for memory, and the next one for it.
func (b *line) having(bit int) uint64 {
	bit &= 63
	return b[0]>>bit&1 | b[1]>>bit&1<<1 | b[2]>>bit&1<<2 | b[3]>>bit&1<<3 |
		b[4]>>bit&1<<4 | b[5]>>bit&1<<5 | b[6]>>bit&1<<6 | b[7]>>bit&1<<7
}

// leaf number l has entries l*leafSize and following.
type leaf struct {
	used uint64 // those that are in use
	at   int32  // position in the list
}

// level is what the rows below each position promise together.
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

// sums returns one word of what is promised of the blocks of a leaf.
func (o *order) sums(l int32, w int) *line { return &o.entries[int(l)*o.size+w] }

// inUse tells which entries of a block are.
func (o *order) inUse(b uint) uint64 {
	return o.leaves[b/blocks].used >> (b % blocks * blockSize) & (1<<blockSize - 1)
}

// each walks over the entries of a leaf that are in use.
func (o *order) each(l int32) iter.Seq[uint] {
	return func(yield func(uint) bool) {
		for used := o.leaves[l].used; used != 0; used &= used - 1 {
			if !yield(uint(l)*leafSize + uint(bits.TrailingZeros64(used))) {
				return
			}
		}
	}
}

// covering walks over the entries of a leaf that have every bit of a mask.
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

// covers reports whether a row has every bit of a mask. Each of its words is the one of that number in a line.
func covers(rows []line, i uint, mask []uint64) bool {
	for w, m := range mask {
		if rows[w][i%blockSize]&m != m {
			return false
		}
	}
	return true
}

// tidy promises of a block what its entries have, and reports whether that is less than what was promised.
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

// tidyAll promises of the blocks of a leaf what their entries have.
func (o *order) tidyAll(l int32, w int) {
	for b := range uint(blocks) {
		o.tidy(uint(l)*blocks+b, w)
	}
}

func (o *order) full(l int32) bool { return bits.OnesCount64(o.leaves[l].used) == o.most }

// group returns what position p of the next level stands for.
func (lv *level) group(w, p int) (a, b *line) {
	bits := lv.bits[w*lv.room+p*fan:][:fan]
	return (*line)(bits[:blockSize]), (*line)(bits[blockSize:])
}

func (lv *level) or(w, p int) uint64 {
	a, b := lv.group(w, p)
	return a.or() | b.or()
}

// reset empties the order for rows of so many words, and takes up sorted keys.
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

// add puts an entry into a leaf, and returns it; its row is not right yet, and nothing is promised of it.
func (o *order) add(l int32, key uint64) (e uint) {
	used := &o.leaves[l].used
	i := uint(bits.TrailingZeros64(^*used))
	*used |= 1 << i
	e = uint(l)*leafSize + i
	o.entries[o.block(e/blockSize)][e%blockSize] = key
	o.where[slotOf(key)] = uint32(e) + 1
	return e
}

// write writes the row of an entry, and promises it of the block.
func (o *order) write(e uint, row []uint64) {
	rows, sums := o.entries[o.block(e/blockSize)+1:], o.entries[int(e/leafSize)*o.size:]
	for w, has := range row {
		rows[w][e%blockSize] = has
		sums[w][e/blockSize%blocks] |= has
	}
}

// move puts an entry into another leaf.
func (o *order) move(e uint, l int32) {
	to := o.add(l, o.key(e))
	for w := range o.words {
		has := *o.word(e, w)
		*o.word(to, w) = has
		o.sums(l, w)[to/blockSize%blocks] |= has
	}
}

// relevel makes all levels again, with room for twice the leaves.
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

// sum makes one word of all levels again.
func (o *order) sum(w int) {
	lv := &o.levels[0]
	for p, l := range o.list {
		lv.bits[w*lv.room+p] = o.sums(l, w).or()
	}
	o.sumAbove(w, 0)
}

// sumAbove makes one word of the levels above the list again, from a position of the list on.
func (o *order) sumAbove(w, from int) {
	for k := 1; k < len(o.levels); k++ {
		from /= fan
		for p := from; p < o.levels[k].n; p++ {
			o.levels[k].bits[w*o.levels[k].room+p] = o.levels[k-1].or(w, p)
		}
	}
}

// promise adds bits to what is promised of a leaf.
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

// correct promises of a leaf what is promised of its blocks.
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

// put takes a slot up, or moves it. Its row is not right until fill.
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

// fill writes the row of a slot that was just put. It comes after put, so that memory brings the entry while the row is made.
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

// remove takes a slot out, if it is in.
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
		if o.low[lo+half] <= key { // one assignment, so that it is no jump: it could not be guessed
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

// join moves all of the next leaf into this one.
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

// drop takes a leaf that is not needed any more out of the list.
func (o *order) drop(p int) {
	o.leaves[o.list[p]].used = 0
	o.spare = append(o.spare, o.list[p])
	o.list, o.low = slices.Delete(o.list, p, p+1), slices.Delete(o.low, p, p+1)
	o.low[0] = 0
	o.relist(p, -1)
}

// relist follows a leaf that came after position p, or went from there.
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
		l, best, vain := o.list[p], uint64(math.MaxUint64), false
		for in := o.sums(l, w).having(bit); in != 0; in &= in - 1 {
			b := uint(l)*blocks + uint(bits.TrailingZeros64(in))
			at := o.block(b)
			with := o.entries[at+1+w].having(bit) & o.inUse(b)
			if with == 0 {
				o.tidy(b, w)
				vain = true
			}
			for ; with != 0; with &= with - 1 {
				best = min(best, o.entries[at][bits.TrailingZeros64(with)&(blockSize-1)])
			}
		}
		if vain || best == math.MaxUint64 {
			o.correct(w, p)
		}
		if best != math.MaxUint64 {
			return slotOf(best), true
		}
	}
}

// descend returns the first position of which a bit of a word is promised, or -1.
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

// next returns the first position from p on of whose leaf every bit of a mask is promised, or -1.
func (o *order) next(p int, mask []uint64) int {
	for p < o.levels[0].n {
		step := 0 // how far whole stretches without it go
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
