package cache

import (
	"math"
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
// What counts at many nodes is how many cache lines are touched that nobody touched lately. So an entry is in one line or
// two, and when one goes its leaf is not read through: the levels promise at least what is there, and who finds a leaf
// without what is promised puts the promise right.
type order struct {
	words  int // of a row
	most   int // entries of a leaf, 2 to leafSize
	where  []spot
	leaves []*leaf
	low    []uint64 // low[p] <= keys of leaves[p] < low[p+1], low[0] = 0
	levels []level  // levels[0] has a position for each leaf, the last has room for fan
	spare  []*leaf
}

// spot is where a slot stands; no leaf when it does not.
type spot struct {
	leaf *leaf
	i    int
}

type leaf struct {
	n       int
	at      int      // position in the list
	entries []uint64 // of each its key, of which the low half is the slot, and its row
}

// level is what the rows below each position promise together.
type level struct {
	n    int      // positions in use
	room int      // a multiple of fan
	bits []uint64 // word w of position p is at w*room+p; zero from n on
}

func slotOf(key uint64) int32 { return int32(uint32(key)) }

// entry returns the key and the row of an entry.
func (o *order) entry(l *leaf, i int) []uint64 {
	return l.entries[i*(o.words+1) : (i+1)*(o.words+1)]
}

// or sums up one word of a leaf.
func (o *order) or(l *leaf, w int) uint64 {
	or := uint64(0)
	for i := w + 1; i < l.n*(o.words+1); i += o.words + 1 {
		or |= l.entries[i]
	}
	return or
}

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
	if words != o.words {
		o.spare = nil
	} else {
		o.spare = append(o.spare, o.leaves...)
	}
	o.words = words
	o.where = slices.Grow(o.where[:0], slots)[:slots]
	clear(o.where)
	o.leaves, o.low = o.leaves[:0], o.low[:0]
	full := max(1, o.most*3/4)
	for len(o.leaves) == 0 || len(keys) > 0 {
		l := o.newLeaf()
		l.at = len(o.leaves)
		low := uint64(0)
		if l.at > 0 {
			low = keys[0]
		}
		o.leaves, o.low = append(o.leaves, l), append(o.low, low)
		n := min(full, len(keys))
		for _, key := range keys[:n] {
			o.add(l, key, row(slotOf(key)))
		}
		keys = keys[n:]
	}
	o.relevel()
}

func (o *order) newLeaf() *leaf {
	if k := len(o.spare) - 1; k >= 0 {
		l := o.spare[k]
		o.spare = o.spare[:k]
		l.n = 0
		return l
	}
	return &leaf{entries: make([]uint64, (o.words+1)*o.most)}
}

// add puts an entry into a leaf; the levels do not know it yet.
func (o *order) add(l *leaf, key uint64, row []uint64) {
	e := o.entry(l, l.n)
	e[0] = key
	copy(e[1:], row)
	o.where[slotOf(key)] = spot{l, l.n}
	l.n++
}

// relevel makes all levels again, with room for twice the leaves.
func (o *order) relevel() {
	o.levels = o.levels[:0]
	room := 2 * len(o.leaves)
	for n := len(o.leaves); ; n = (n + fan - 1) / fan {
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
	for p, l := range o.leaves {
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
func (o *order) promise(w, p int, bits uint64) {
	for k := range o.levels {
		lv := &o.levels[k]
		cell := &lv.bits[w*lv.room+p]
		if *cell&bits == bits {
			return
		}
		*cell |= bits
		p /= fan
	}
}

// correct promises of a leaf what it has.
func (o *order) correct(w, p int) {
	bits := o.or(o.leaves[p], w)
	for k := range o.levels {
		lv := &o.levels[k]
		cell := &lv.bits[w*lv.room+p]
		if *cell == bits {
			return
		}
		*cell = bits
		if k+1 < len(o.levels) {
			p /= fan
			bits = lv.or(w, p)
		}
	}
}

// put takes a slot up, or moves it.
func (o *order) put(s int32, key uint64, row []uint64) {
	at := o.where[s]
	p := -1
	if l := at.leaf; l != nil {
		if p = l.at; o.low[p] > key || p+1 < len(o.low) && key >= o.low[p+1] {
			o.remove(s)
			p = -1
		} else {
			e := o.entry(l, at.i)
			e[0] = key
			copy(e[1:], row)
		}
	}
	if p < 0 {
		p = o.find(key)
		if o.leaves[p].n == o.most {
			o.split(p)
			if key >= o.low[p+1] {
				p++
			}
		}
		o.add(o.leaves[p], key, row)
	}
	for w, bits := range row {
		if bits != 0 {
			o.promise(w, p, bits)
		}
	}
}

// remove takes a slot out, if it is in.
func (o *order) remove(s int32) {
	l, i := o.where[s].leaf, o.where[s].i
	if l == nil {
		return
	}
	o.where[s] = spot{}
	l.n--
	if i != l.n {
		e := o.entry(l, i)
		copy(e, o.entry(l, l.n))
		o.where[slotOf(e[0])].i = i
	}
	p := l.at
	switch {
	case l.n == 0 && len(o.leaves) > 1:
		o.drop(p)
	case p+1 < len(o.leaves) && l.n+o.leaves[p+1].n <= o.most/8:
		o.join(p)
	}
}

// find returns the position of the leaf in whose range a key lies.
func (o *order) find(key uint64) int {
	lo, n := 0, len(o.low)
	for n > 1 { // low[lo] <= key
		half := n / 2
		if o.low[lo+half] <= key {
			lo += half
		}
		n -= half
	}
	return lo
}

// split moves the upper half of a leaf into a new one after it.
func (o *order) split(p int) {
	l := o.leaves[p]
	var keys [leafSize]uint64
	sorted := keys[:0]
	for i := range l.n {
		sorted = append(sorted, o.entry(l, i)[0])
	}
	slices.Sort(sorted)
	middle := sorted[l.n/2]
	upper, n := o.newLeaf(), l.n
	l.n = 0
	for i := range n {
		e := o.entry(l, i)
		if e[0] < middle {
			o.add(l, e[0], e[1:])
		} else {
			o.add(upper, e[0], e[1:])
		}
	}
	o.leaves, o.low = slices.Insert(o.leaves, p+1, upper), slices.Insert(o.low, p+1, middle)
	o.relist(p, 1)
}

// join moves all of the next leaf into this one.
func (o *order) join(p int) {
	l, next := o.leaves[p], o.leaves[p+1]
	for i := range next.n {
		e := o.entry(next, i)
		o.add(l, e[0], e[1:])
	}
	o.drop(p + 1)
	for w := range o.words {
		o.correct(w, p)
	}
}

// drop takes a leaf that is not needed any more out of the list.
func (o *order) drop(p int) {
	o.spare = append(o.spare, o.leaves[p])
	o.leaves, o.low = slices.Delete(o.leaves, p, p+1), slices.Delete(o.low, p, p+1)
	o.low[0] = 0
	o.relist(p, -1)
}

// relist follows a leaf that came after position p, or went from there.
func (o *order) relist(p, by int) {
	for q := p; q < len(o.leaves); q++ {
		o.leaves[q].at = q
	}
	lv := &o.levels[0]
	if len(o.leaves) > lv.room {
		o.relevel()
		return
	}
	for w := range o.words {
		bits := lv.bits[w*lv.room : (w+1)*lv.room]
		if by > 0 {
			copy(bits[p+1:lv.n+1], bits[p:lv.n])
			bits[p], bits[p+1] = o.or(o.leaves[p], w), o.or(o.leaves[p+1], w)
		} else {
			copy(bits[p:lv.n-1], bits[p+1:lv.n])
			bits[lv.n-1] = 0
		}
	}
	lv.n = len(o.leaves)
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
	w, m := bit/64, uint64(1)<<(bit%64)
	for {
		p := 0
		for k := len(o.levels) - 1; k >= 0; k-- {
			lv := &o.levels[k]
			group := lv.bits[w*lv.room+p*fan : w*lv.room+(p+1)*fan]
			i := 0
			for i < len(group) && group[i]&m == 0 {
				i++
			}
			if i == len(group) {
				return -1, false
			}
			p = p*fan + i
		}
		l := o.leaves[p]
		best := uint64(math.MaxUint64)
		for i := 0; i < l.n*(o.words+1); i += o.words + 1 {
			if l.entries[i+1+w]&m != 0 && l.entries[i] < best {
				best = l.entries[i]
			}
		}
		if best != math.MaxUint64 {
			return slotOf(best), true
		}
		o.correct(w, p)
	}
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
