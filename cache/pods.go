package cache

import (
	"github.com/cespare/xxhash/v2"

	"basalt.dev/basalt/api"
)

// pods finds charges by UID. It is a map with linear probing that keeps of each UID only a hash: with a million pods a
// look-up in Go's map waits for memory four or five times, here twice, of which one is the charge that is wanted anyway.
// Charges have numbers instead of addresses: what a release reads of one is a cache line without a pointer, that the
// garbage collector need not look through.
type pods struct {
	cells   []podCell
	n       int
	slabs   [][]charge // charges by number
	details [][]detail // by number, too
	spare   []uint32

	nextCharges []charge // for slabs to come
	nextDetails []detail
}

// podCell knows the slot, too, so that a release need not wait for the charge to know what else it will read.
type podCell struct {
	hash   uint64
	number uint32 // of the charge, +1; 0 for none
	slot   int32
}

const slab = 512 // charges

// charge is a pod that counts on a node: one cache line.
type charge struct {
	uid    [shortUID]byte // the beginning
	length uint16         // of the UID, at most
	kind   Kind
	slot   int32 // of the node
	class  int32 // number
}

// shortUID is the longest UID that is compared without its string. Those of Kubernetes have 36 bytes.
const shortUID = 52

// detail is the rest of a charge: what is seldom asked for. The rank matters for holds.
type detail struct {
	uid  string
	gang string
	rank api.Rank
}

func newPods() pods { return pods{cells: make([]podCell, 64)} }

func (p *pods) at(number uint32) *charge { return &p.slabs[number/slab][number%slab] }

func (p *pods) detail(number uint32) *detail { return &p.details[number/slab][number%slab] }

func (p *pods) is(number uint32, uid string) bool {
	ch := p.at(number)
	if int(ch.length) != min(len(uid), shortUID+1) {
		return false
	}
	if len(uid) <= shortUID {
		return string(ch.uid[:len(uid)]) == uid
	}
	return p.detail(number).uid == uid
}

// find returns where the charge of a UID is, or would be, and its number.
func (p *pods) find(uid string, hash uint64) (cell int, number uint32, ok bool) {
	mask := len(p.cells) - 1
	i := int(hash) & mask
	for ; p.cells[i].number != 0; i = (i + 1) & mask {
		if at := &p.cells[i]; at.hash == hash && p.is(at.number-1, uid) {
			return i, at.number - 1, true
		}
	}
	return i, 0, false
}

func hashOf(uid string) uint64 { return xxhash.Sum64String(uid) }

func (p *pods) get(uid string) (number uint32, ok bool) {
	_, number, ok = p.find(uid, hashOf(uid))
	return number, ok
}

// next is the number that add will give out.
func (p *pods) next() uint32 {
	if k := len(p.spare) - 1; k >= 0 {
		return p.spare[k]
	}
	return uint32(p.n)
}

// add makes a charge for a UID that has none, where find said that it would be.
func (p *pods) add(cell int, uid string, hash uint64, slot int32) (number uint32) {
	if 4*(p.n+1) > 3*len(p.cells) {
		p.grow()
		cell, _, _ = p.find(uid, hash)
	}
	number = p.next()
	if k := len(p.spare) - 1; k >= 0 {
		p.spare = p.spare[:k]
	} else if number%slab == 0 {
		p.extend()
	}
	p.cells[cell] = podCell{hash: hash, number: number + 1, slot: slot}
	p.n++
	ch := p.at(number)
	ch.slot = slot
	copy(ch.uid[:], uid)
	ch.length = uint16(min(len(uid), shortUID+1))
	p.detail(number).uid = uid
	return number
}

// extend makes room for another slab. Memory comes in stretches that grow with what there is: large ones can have large pages.
func (p *pods) extend() {
	if len(p.nextCharges) == 0 {
		n := max(1, p.n/4/slab) * slab
		p.nextCharges, p.nextDetails = large(make([]charge, n)), large(make([]detail, n))
	}
	p.slabs, p.nextCharges = append(p.slabs, p.nextCharges[:slab:slab]), p.nextCharges[slab:]
	p.details, p.nextDetails = append(p.details, p.nextDetails[:slab:slab]), p.nextDetails[slab:]
}

func (p *pods) grow() {
	old := p.cells
	p.cells = large(make([]podCell, 2*len(old)))
	mask := len(p.cells) - 1
	for _, c := range old {
		if c.number == 0 {
			continue
		}
		i := int(c.hash) & mask
		for p.cells[i].number != 0 {
			i = (i + 1) & mask
		}
		p.cells[i] = c
	}
}

// remove forgets a charge, found in a cell.
func (p *pods) remove(i int) {
	number := p.cells[i].number - 1
	mask := len(p.cells) - 1
	for j := (i + 1) & mask; p.cells[j].number != 0; j = (j + 1) & mask { // close the gap, that later ones are still found
		if home := int(p.cells[j].hash) & mask; (j-home)&mask >= (j-i)&mask {
			p.cells[i], i = p.cells[j], j
		}
	}
	p.cells[i] = podCell{}
	p.n--
	p.spare = append(p.spare, number)
	// The strings of its detail go when the charge is used again: they are in another line.
}
