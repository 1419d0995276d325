package cache

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unsafe"
)

// TestLines: what is looked at for every pod is a cache line or two, no more and no less, so that none begins within one.
func TestLines(t *testing.T) {
	if s, c := unsafe.Sizeof(slot{}), unsafe.Sizeof(charge{}); s != 128 || c != 64 {
		t.Errorf("a slot has %d bytes, a charge %d", s, c)
	}
}

// TestOrder moves slots about in an order and in a plain list, over sizes that have leaves split, join and go.
func TestOrder(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 3))
		o := order{most: []int{2, 3, 8, leafSize}[r.IntN(4)]}
		slots, words := 1+r.IntN(3000), 1+r.IntN(3)
		have := map[int32][]uint64{} // slot -> key, row
		o.reset(words, slots, nil, nil)
		row := func() []uint64 {
			out := make([]uint64, words)
			for w := range out {
				out[w] = r.Uint64() & r.Uint64() & r.Uint64() & r.Uint64() & r.Uint64()
			}
			return out
		}
		keys := uint64(1 + r.IntN(2000)) // few keys: many slots of one rating
		for range 40 {
			filling, draining := r.IntN(2) == 0, r.IntN(8) == 0
			moves := r.IntN(1 + slots/4)
			if draining { // most go, so that leaves join
				moves = 3 * slots
			}
			for range moves {
				s := int32(r.IntN(slots))
				if draining || !filling && r.IntN(2) == 0 {
					at := o.where[s]
					o.found = s
					o.remove(s)
					delete(have, s)
					if at == 0 || o.leaves[(at-1)/leafSize].used == 0 {
						continue
					}
					l, b := int32((at-1)/leafSize), uint((at-1)/blockSize)
					for w := range words { // what was found and goes leaves no promise behind
						p := int(o.leaves[l].at)
						if o.tidy(b, w) || o.levels[0].bits[w*o.levels[0].room+p] != o.sums(l, w).or() {
							t.Fatalf("seed %d: more is promised of a leaf than it has", seed)
						}
					}
					continue
				}
				key := r.Uint64N(keys)<<32 | uint64(s)
				bits := row()
				o.put(s, key)
				o.fill(s, bits)
				have[s] = append([]uint64{key}, bits...)
			}
			if err := o.check(); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			for range 20 {
				bit := r.IntN(64 * words)
				mask := make([]uint64, words)
				for range 2 {
					b := r.IntN(64 * words)
					mask[b/64] |= 1 << (b % 64)
				}
				var one, both []uint64 // keys
				for _, e := range have {
					if e[1+bit/64]>>(bit%64)&1 == 1 {
						one = append(one, e[0])
					}
					all := true
					for w, m := range mask {
						all = all && e[1+w]&m == m
					}
					if all {
						both = append(both, e[0])
					}
				}
				s, ok := o.first(bit)
				if ok != (len(one) > 0) || ok && s != slotOf(slices.Min(one)) {
					t.Fatalf("seed %d: first(%d) = %d %t", seed, bit, s, ok)
				}
				if len(both) > 0 { // next may promise too much, never too little
					p := o.next(0, mask)
					if leaf := o.find(slices.Min(both)); p < 0 || p > leaf {
						t.Fatalf("seed %d: the first with %x is in leaf %d, next is %d", seed, mask, leaf, p)
					}
				}
			}
		}
	}
}

// TestPods compares the table of charges with a map, with names that collide often, some too long to lie in a charge.
func TestPods(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 4))
	p := newPods()
	have := map[string]uint32{}
	for i := range 20000 {
		uid := fmt.Sprint(r.IntN(1 + i%3000))
		switch len(uid) {
		case 3:
			uid = strings.Repeat("-", shortUID-3) + uid
		case 4:
			uid = strings.Repeat("-", shortUID) + uid
		}
		cell, number, ok := p.find(uid, hashOf(uid))
		if want, wantOK := have[uid]; ok != wantOK || ok && number != want {
			t.Fatalf("%s: %d %t, want %d %t", uid, number, ok, want, wantOK)
		}
		if ok {
			p.remove(cell)
			delete(have, uid)
		} else {
			have[uid] = p.add(cell, uid, hashOf(uid), 0)
		}
		if p.n != len(have) {
			t.Fatalf("%d charges, want %d", p.n, len(have))
		}
	}
	numbers := map[uint32]bool{}
	for uid, number := range have {
		if got, ok := p.get(uid); !ok || got != number || p.detail(number).uid != uid || numbers[number] {
			t.Fatalf("%s is lost", uid)
		}
		numbers[number] = true
	}
}
