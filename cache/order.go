package cache

import (
	"math"
	"math/bits"
	"slices"
)

const (
	leafSize = 64 // entries of a leaf, at most
	fan      = 16 // positions that one position of the next level sums up: two cache lines of words
)

// order keeps slots sorted by key and with each a row of bits, and finds the first slot that has a bit without looking at
// those before it. Leaves hold some entries each, in no order; they stand in a list by key, and levels above the list say
// for each stretch of it which bits occur there. A leaf splits when it is full and joins its neighbour when both are nearly
// empty.
//
// What counts at many nodes is how many cache lines are touched that nobody touched lately. A search reads the keys of a leaf
// and one word of its rows, so each word stands together for all entries of a leaf. No entry moves because another goes, and
// an entry that goes is not even looked at: the levels promise at least what is there, and who finds a leaf without what is
// promised puts the promise right. Nothing here is a pointer, so the garbage collector does not look through it.
type order struct {
	words   int      // of a row
	most    int      // entries of a leaf, 2 to leafSize
	where   []int32  // by slot, its entry +1; 0 when it is not in
	entries []uint64 // of each leaf: the keys of its entries, of which the low half is the slot, then of their rows word after word
	leaves  []leaf   // by number
	list    []int32  // numbers of leaves, by key
	low     []uint64 // low[p] <= keys of list[p] < low[p+1], low[0] = 0
	levels  []level  // levels[0] has a position for each leaf of the list, the last has room for fan
	spare   []int32  // numbers of leaves
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

// size is how many words a leaf has.
func (o *order) size() int { return o.most * (1 + o.words) }

// place is where the key of an entry is; the words of its row follow, each o.most on.
func (o *order) place(e int) int { return e/leafSize*o.size() + e%leafSize }

func (o *order) key(e int) uint64 { return o.entries[o.place(e)] }

func (o *order) word(e, w int) *uint64 { return &o.entries[o.place(e)+(1+w)*o.most] }

// covers tells whether an entry has every bit of a mask.
func (o *order) covers(e int, mask []uint64) bool {
	at := o.place(e)
	for _, m := range mask {
		at += o.most
		if o.entries[at]&m != m {
			return false
		}
	}
	return true
}

// column returns of all entries of a leaf the keys, or one word of their rows: column 1 and following.
func (o *order) column(l int32, i int) []uint64 {
	at := int(l)*o.size() + i*o.most
	return o.entries[at : at+o.most : at+o.most]
}

// or sums up one word of a leaf.
func (o *order) or(l int32, w int) uint64 {
	or := uint64(0)
	has := o.column(l, 1+w)
	for used := o.leaves[l].used; used != 0; used &= used - 1 {
		or |= has[bits.TrailingZeros64(used)]
	}
	return or
}

// each returns the first entry of a leaf, and which ones from there on are in use.
func (o *order) each(l int32) (first int, used uint64) { return int(l) * leafSize, o.leaves[l].used }

func (o *order) full(l int32) bool { return bits.OnesCount64(o.leaves[l].used) == o.most }

// or sums up what position p of the next level stands for.
func (lv *level) or(w, p int) uint64 {
	or := uint64(0)
	for _, b := range lv.bits[w*lv.room+p*fan : w*lv.room+(p+1)*fan] {
		or |= b
	}
	return or
}

// reset empties the order for rows of so many words, and takes up sorted keys.
func (o *order) reset(words, slots int, keys []uint64, row func(s int32) []uint64) {
	o.words = words
	o.where = slices.Grow(o.where[:0], slots)[:slots]
	clear(o.where)
	o.entries, o.leaves, o.spare = nil, o.leaves[:0], o.spare[:0]
	o.list, o.low = o.list[:0], o.low[:0]
	full := max(1, o.most*3/4)
	o.entries = large(make([]uint64, 0, (1+len(keys)/full)*5/4*o.size()))
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
		return l
	}
	o.leaves = append(o.leaves, leaf{})
	n := len(o.leaves) * o.size()
	o.entries = grown(o.entries, n-len(o.entries))[:n]
	return int32(len(o.leaves) - 1)
}

// add puts an entry into a leaf, and returns it; its row is not right yet, and the levels do not know it.
func (o *order) add(l int32, key uint64) (e int) {
	used := &o.leaves[l].used
	i := bits.TrailingZeros64(^*used)
	*used |= 1 << i
	e = int(l)*leafSize + i
	o.entries[o.place(e)] = key
	o.where[slotOf(key)] = int32(e) + 1
	return e
}

// write writes the row of an entry.
func (o *order) write(e int, row []uint64) {
	at := o.place(e)
	for _, has := range row {
		at += o.most
		o.entries[at] = has
	}
}

// move puts an entry into another leaf.
func (o *order) move(e int, l int32) {
	from := o.place(e)
	to := o.place(o.add(l, o.entries[from]))
	for range o.words {
		from, to = from+o.most, to+o.most
		o.entries[to] = o.entries[from]
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
		lv.bits[w*lv.room+p] = o.or(l, w)
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

// correct promises of a leaf what it has.
func (o *order) correct(w, p int) {
	has := o.or(o.list[p], w)
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
	if e := int(o.where[s]) - 1; e >= 0 {
		if p := int(o.leaves[e/leafSize].at); o.low[p] > key || p+1 < len(o.low) && key >= o.low[p+1] {
			o.remove(s)
		} else {
			o.entries[o.place(e)] = key
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
	e := int(o.where[s]) - 1
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
	e := int(o.where[s]) - 1
	if e < 0 {
		return
	}
	o.where[s] = 0
	l := &o.leaves[e/leafSize]
	l.used &^= 1 << (e % leafSize)
	p := int(l.at)
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
	for i, used := o.each(l); used != 0; used &= used - 1 {
		sorted = append(sorted, o.key(i+bits.TrailingZeros64(used)))
	}
	slices.Sort(sorted)
	middle := sorted[len(sorted)/2]
	upper := o.newLeaf()
	for i, used := o.each(l); used != 0; used &= used - 1 {
		k := bits.TrailingZeros64(used)
		if o.key(i+k) >= middle {
			o.leaves[l].used &^= 1 << k
			o.move(i+k, upper)
		}
	}
	o.list, o.low = slices.Insert(o.list, p+1, upper), slices.Insert(o.low, p+1, middle)
	o.relist(p, 1)
}

// join moves all of the next leaf into this one.
func (o *order) join(p int) {
	next := o.list[p+1]
	for i, used := o.each(next); used != 0; used &= used - 1 {
		o.move(i+bits.TrailingZeros64(used), o.list[p])
	}
	o.drop(p + 1)
	for w := range o.words {
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
			has[p], has[p+1] = o.or(o.list[p], w), o.or(o.list[p+1], w)
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
		p := o.descend(w, bit%64)
		if p < 0 {
			return -1, false
		}
		l, with := o.list[p], uint64(0)
		has := o.column(l, 1+w)
		for used := o.leaves[l].used; used != 0; used &= used - 1 { // no jump: it would wait for memory, and the next one for it
			i := bits.TrailingZeros64(used)
			with |= has[i] >> (bit % 64) & 1 << i
		}
		if with != 0 {
			best, keys := uint64(math.MaxUint64), o.column(l, 0)
			for ; with != 0; with &= with - 1 {
				best = min(best, keys[bits.TrailingZeros64(with)])
			}
			return slotOf(best), true
		}
		o.correct(w, p)
	}
}

// descend returns the first position of which a bit of a word is promised, or -1.
func (o *order) descend(w, bit int) int {
	p := 0
	for k := len(o.levels) - 1; k >= 0; k-- {
		lv := &o.levels[k]
		has := uint64(0) // which of the group do: no jump that could not be guessed
		for i, b := range lv.bits[w*lv.room+p*fan:][:fan] {
			has |= b >> bit & 1 << i
		}
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
