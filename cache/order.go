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
// for each stretch of it which bits occur there: a tree whose inner nodes are one word a stretch, so that following a bit
// down reads two cache lines a level. A leaf splits when it is full and joins its neighbour when both are nearly empty.
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
	n    int
	at   int              // position in the list
	keys [leafSize]uint64 // the low half is the slot
	rows []uint64         // word w of entry i is at w*leafSize+i
}

// level is what a row of each position would be, OR-ed over what it sums up.
type level struct {
	n    int      // positions in use
	room int      // a multiple of fan
	bits []uint64 // word w of position p is at w*room+p; zero from n on
}

func slotOf(key uint64) int32 { return int32(uint32(key)) }

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
	for first := true; first || len(keys) > 0; first = false {
		l := o.newLeaf()
		l.at = len(o.leaves)
		low := uint64(0)
		if !first {
			low = keys[0]
		}
		o.leaves, o.low = append(o.leaves, l), append(o.low, low)
		l.n = min(full, len(keys))
		for i, key := range keys[:l.n] {
			l.keys[i] = key
			o.where[slotOf(key)] = spot{l, i}
			for w, bits := range row(slotOf(key)) {
				l.rows[w*leafSize+i] = bits
			}
		}
		keys = keys[l.n:]
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
	return &leaf{rows: make([]uint64, o.words*leafSize)}
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
		lv.bits[w*lv.room+p] = l.or(w)
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

func (l *leaf) or(w int) uint64 {
	or := uint64(0)
	for _, b := range l.rows[w*leafSize : w*leafSize+l.n] {
		or |= b
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

// raise writes one word of a leaf's position and what follows above.
func (o *order) raise(w, p int, bits uint64) {
	for k := range o.levels {
		lv := &o.levels[k]
		at := w*lv.room + p
		if lv.bits[at] == bits {
			return
		}
		lv.bits[at] = bits
		if k+1 < len(o.levels) {
			p /= fan
			bits = lv.or(w, p)
		}
	}
}

// put takes a slot up, or moves it.
func (o *order) put(s int32, key uint64, row []uint64) {
	at := o.where[s]
	if l := at.leaf; l != nil {
		if o.low[l.at] <= key && (l.at+1 == len(o.low) || key < o.low[l.at+1]) {
			l.keys[at.i] = key
			for w, bits := range row {
				cell := &l.rows[w*leafSize+at.i]
				old := *cell
				if old == bits {
					continue
				}
				*cell = bits
				if old&^bits == 0 {
					o.raise(w, l.at, o.levels[0].bits[w*o.levels[0].room+l.at]|bits)
				} else {
					o.raise(w, l.at, l.or(w))
				}
			}
			return
		}
		o.remove(s)
	}
	p := o.find(key)
	if o.leaves[p].n == o.most {
		o.split(p)
		if key >= o.low[p+1] {
			p++
		}
	}
	l := o.leaves[p]
	l.keys[l.n] = key
	o.where[s] = spot{l, l.n}
	lv := &o.levels[0]
	for w, bits := range row {
		l.rows[w*leafSize+l.n] = bits
		if bits != 0 {
			o.raise(w, p, lv.bits[w*lv.room+p]|bits)
		}
	}
	l.n++
}

// remove takes a slot out, if it is in.
func (o *order) remove(s int32) {
	l, i := o.where[s].leaf, o.where[s].i
	if l == nil {
		return
	}
	o.where[s] = spot{}
	l.n--
	last := l.n
	if i != last {
		l.keys[i] = l.keys[last]
		o.where[slotOf(l.keys[i])].i = i
	}
	for w := range o.words {
		row := l.rows[w*leafSize:]
		bits := row[i]
		row[i] = row[last]
		if bits != 0 {
			o.raise(w, l.at, l.or(w))
		}
	}
	p := l.at
	switch {
	case l.n == 0 && len(o.leaves) > 1:
		o.drop(p)
	case p+1 < len(o.leaves) && l.n+o.leaves[p+1].n <= o.most/4:
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
	var sorted [leafSize]uint64
	copy(sorted[:], l.keys[:l.n])
	slices.Sort(sorted[:l.n])
	middle := sorted[l.n/2]
	upper := o.newLeaf()
	kept := 0
	for i, key := range l.keys[:l.n] {
		to, j := upper, upper.n
		if key < middle {
			to, j = l, kept
			kept++
		} else {
			upper.n++
		}
		to.keys[j] = key
		o.where[slotOf(key)] = spot{to, j}
		for w := range o.words {
			to.rows[w*leafSize+j] = l.rows[w*leafSize+i]
		}
	}
	l.n = kept
	o.leaves, o.low = slices.Insert(o.leaves, p+1, upper), slices.Insert(o.low, p+1, middle)
	o.relist(p, 1)
}

// join moves all of the next leaf into this one.
func (o *order) join(p int) {
	l, next := o.leaves[p], o.leaves[p+1]
	for i, key := range next.keys[:next.n] {
		l.keys[l.n] = key
		o.where[slotOf(key)] = spot{l, l.n}
		for w := range o.words {
			l.rows[w*leafSize+l.n] = next.rows[w*leafSize+i]
		}
		l.n++
	}
	o.drop(p + 1)
	for w := range o.words {
		o.raise(w, p, l.or(w))
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
			bits[p], bits[p+1] = o.leaves[p].or(w), o.leaves[p+1].or(w)
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
	p := 0
	for k := len(o.levels) - 1; k >= 0; k-- {
		lv := &o.levels[k]
		found := false
		group := lv.bits[w*lv.room+p*fan : w*lv.room+(p+1)*fan]
		for i, b := range group {
			if b&m != 0 {
				p, found = p*fan+i, true
				break
			}
		}
		if !found {
			return -1, false
		}
	}
	l := o.leaves[p]
	best := uint64(math.MaxUint64)
	for i, b := range l.rows[w*leafSize : w*leafSize+l.n] {
		if b&m != 0 && l.keys[i] < best {
			best = l.keys[i]
		}
	}
	return slotOf(best), true
}

// next returns the first position from p on whose leaf has every bit of a mask somewhere, or -1.
func (o *order) next(p int, mask []uint64) int {
	for p < o.levels[0].n {
		k := 0
		for k+1 < len(o.levels) && p%pow(k+1) == 0 && !o.levels[k+1].has(o.words, p/pow(k+1), mask) {
			k++
		}
		if k > 0 {
			p += pow(k)
			continue
		}
		if o.levels[0].has(o.words, p, mask) {
			return p
		}
		p++
	}
	return -1
}

func pow(k int) int {
	n := 1
	for range k {
		n *= fan
	}
	return n
}

func (lv *level) has(words, p int, mask []uint64) bool {
	for w := range words {
		if lv.bits[w*lv.room+p]&mask[w] != mask[w] {
			return false
		}
	}
	return true
}
