package cache

import "github.com/cespare/xxhash/v2"

// pods finds charges by UID. It is a map with linear probing that keeps of each UID only a hash: with a million pods a
// look-up in Go's map waits for memory four or five times, here twice, of which one is the charge that is wanted anyway.
type pods struct {
	cells []uint64 // hash and number of a charge, +1; 0 for none
	n     int
	slabs [][]charge // charges by number
	spare []uint32
}

const slab = 512 // charges

// charge is a pod that counts on a node. What a release reads stands first, in a cache line of its own.
type charge struct {
	uid    string
	node   *node
	class  *class
	at     int32 // index in node.charges
	number uint32
	kind   Kind
	_      [16]byte

	claim claim
	_     [16]byte
}

func (p *pods) at(number uint32) *charge { return &p.slabs[number/slab][number%slab] }

// find returns where the charge of a UID is, or would be.
func (p *pods) find(uid string, hash uint32) (cell int, ch *charge) {
	mask := len(p.cells) - 1
	i := int(hash) & mask
	for ; p.cells[i] != 0; i = (i + 1) & mask {
		if uint32(p.cells[i]>>32) == hash {
			if ch := p.at(uint32(p.cells[i]) - 1); ch.uid == uid {
				return i, ch
			}
		}
	}
	return i, nil
}

func hashOf(uid string) uint32 { return uint32(xxhash.Sum64String(uid)) }

func (p *pods) get(uid string) *charge {
	if p.n == 0 {
		return nil
	}
	_, ch := p.find(uid, hashOf(uid))
	return ch
}

// add makes an empty charge for a UID that has none.
func (p *pods) add(uid string) *charge {
	if 4*(p.n+1) > 3*len(p.cells) {
		p.grow()
	}
	var number uint32
	if k := len(p.spare) - 1; k >= 0 {
		number, p.spare = p.spare[k], p.spare[:k]
	} else {
		number = uint32(p.n)
		if number%slab == 0 {
			p.slabs = append(p.slabs, make([]charge, slab))
		}
	}
	hash := hashOf(uid)
	i, _ := p.find(uid, hash)
	p.cells[i] = uint64(hash)<<32 | uint64(number+1)
	p.n++
	ch := p.at(number)
	ch.uid, ch.number = uid, number
	return ch
}

func (p *pods) grow() {
	old := p.cells
	p.cells = make([]uint64, max(64, 2*len(old)))
	mask := len(p.cells) - 1
	for _, c := range old {
		if c == 0 {
			continue
		}
		i := int(c>>32) & mask
		for p.cells[i] != 0 {
			i = (i + 1) & mask
		}
		p.cells[i] = c
	}
}

// remove forgets a charge.
func (p *pods) remove(ch *charge) {
	i, _ := p.find(ch.uid, hashOf(ch.uid))
	mask := len(p.cells) - 1
	for j := (i + 1) & mask; p.cells[j] != 0; j = (j + 1) & mask { // close the gap, that later ones are still found
		if home := int(p.cells[j]>>32) & mask; (j-home)&mask >= (j-i)&mask {
			p.cells[i], i = p.cells[j], j
		}
	}
	p.cells[i] = 0
	p.n--
	p.spare = append(p.spare, ch.number)
	ch.uid, ch.node, ch.class = "", nil, nil // its claim is in the other line, and goes when the charge is used again
}
