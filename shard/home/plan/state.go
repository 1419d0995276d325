package plan

import (
	"cmp"
	"math/bits"
	"slices"

	"basalt.dev/basalt/api"
)

// What is chosen and placed so far, and whether more may be chosen.

// restart forgets what was chosen, and places what fits without victims.
func (f *finder) restart() {
	f.left -= 4 + (f.perNode()+len(f.candidates)/8)/16 + len(f.families)/4 + len(f.sides)*(8+f.quota)/8
	if f.chosen == nil {
		f.chosen = make([]bool, len(f.candidates))
		f.freed, f.total = make([]int64, len(f.lacks)), make([]int64, f.quota)
	}
	clear(f.chosen)
	for _, k := range f.families {
		k.gone = 0
	}
	clear(f.freed)
	clear(f.total)
	for i := range f.sides {
		clear(f.sides[i].freed)
		clear(f.sides[i].smallest)
	}
	if f.start == nil {
		f.begin()
	}
	f.avail, f.placed, f.missing, f.lost = append(f.avail[:0], f.start.avail...), append(f.placed[:0], f.start.placed...), append(f.missing[:0], f.start.missing...), f.start.lost
}

// begin finds out what fits without victims.
func (f *finder) begin() {
	f.avail = append(f.avail[:0], f.free...)
	f.placed = make([]int32, len(f.nodes)*len(f.classes))
	f.missing = make([]int, len(f.classes))
	f.lost = 0
	for i, c := range f.classes {
		f.missing[i] = c.Pods
		f.lost += c.Pods
	}
	f.fill(nil)
	for _, l := range f.leaving {
		f.give(l, 1)
	}
	if len(f.leaving) > 0 {
		f.fill(f.leavingOn)
	}
	f.left -= len(f.leaving)
	f.start = &start{avail: slices.Clone(f.avail), placed: slices.Clone(f.placed), missing: slices.Clone(f.missing), lost: f.lost}
}

// perNode is how many numbers there are by node.
func (f *finder) perNode() int { return len(f.nodes) * (1 + f.room + len(f.classes)) }

// give adds the room of a leaf to that of its node, or takes it away.
func (f *finder) give(l int32, sign int64) {
	n := int(f.leaves[l].node)
	for r := range f.room {
		f.avail[n*f.room+r] += sign * f.amounts[int(l)*f.room+r]
	}
}

// fits returns how many pods of a class fit on a node, at most `most`.
func (f *finder) fits(n, class, most int) int {
	f.left -= 1 + f.room/8
	if f.admits[n]&(1<<class) == 0 {
		return 0
	}
	if shuns := f.classes[class].Shuns; shuns != 0 {
		placed := f.placed[n*len(f.classes):]
		for left := shuns; left != 0; left &= left - 1 {
			if placed[bits.TrailingZeros64(left)] > 0 {
				return 0
			}
		}
		if shuns&(1<<class) != 0 {
			most = min(most, 1)
		}
	}
	avail, need := f.avail[n*f.room:], f.requests[class*f.room:]
	for r := range f.room {
		if want := need[r]; want > 0 {
			if have := avail[r]; have < want {
				return 0
			} else if have/want < int64(most) {
				most = int(have / want)
			}
		}
	}
	return max(0, most)
}

// put places pods of a class on a node; a negative number removes them.
func (f *finder) put(n, class, pods int) {
	for r := range f.room {
		f.avail[n*f.room+r] -= int64(pods) * f.requests[class*f.room+r]
	}
	f.placed[n*len(f.classes)+class] += int32(pods)
	f.missing[class] -= pods
	f.lost -= pods
}

// option is how many pods of a class fit on a node.
type option struct {
	node int32
	fits int32
}

// fill places pods that are missing on some nodes, or on all, the tightest first.
func (f *finder) fill(nodes []int32) {
	options := f.options
	for _, class := range f.order {
		if f.missing[class] == 0 {
			continue
		}
		options = options[:0]
		try := func(n int) {
			if k := f.fits(n, class, 1<<30); k > 0 {
				options = append(options, option{int32(n), int32(k)})
			}
		}
		if nodes == nil {
			for n := range f.nodes {
				try(n)
			}
		} else {
			for _, n := range nodes {
				try(int(n))
			}
		}
		f.left -= len(options) * bits.Len(uint(len(options))) / 4
		slices.SortFunc(options, func(a, b option) int { return cmp.Or(cmp.Compare(a.fits, b.fits), cmp.Compare(a.node, b.node)) })
		for _, o := range options {
			if f.missing[class] == 0 {
				break
			}
			f.put(int(o.node), class, min(int(o.fits), f.missing[class]))
		}
	}
	f.options = options[:0]
}

func (f *finder) spent() bool { return f.left <= 0 }

// covers reports whether the victims free all quota that is lacking.
func (f *finder) covers() bool {
	for i, l := range f.lacks {
		if f.freed[i] < l.value {
			return false
		}
	}
	for _, l := range f.least {
		if f.total[l.of] < l.value {
			return false
		}
	}
	return true
}

func (f *finder) done() bool { return f.lost == 0 && f.covers() }

// givesQuota reports whether a candidate frees quota that is still lacking.
func (f *finder) givesQuota(v int) bool {
	f.left -= 1 + (len(f.lacks)+len(f.least))/8
	c := &f.candidates[v]
	for i, l := range f.lacks {
		if c.lacks[i] && f.freed[i] < l.value && c.frees[l.of] > 0 {
			return true
		}
	}
	for _, l := range f.least {
		if f.total[l.of] < l.value && c.frees[l.of] > 0 {
			return true
		}
	}
	return false
}

// givesRoom reports whether a pod that is missing fits where a candidate leaves.
func (f *finder) givesRoom(v int) bool {
	if f.lost == 0 {
		return false
	}
	for _, l := range f.frees(v, true) {
		n := int(f.leaves[l].node)
		f.left -= 1 + len(f.classes)/8
		f.give(l, 1)
		fits := false
		for class := range f.classes {
			if fits = f.missing[class] > 0 && f.fits(n, class, 1) > 0; fits {
				break
			}
		}
		f.give(l, -1)
		if fits {
			return true
		}
	}
	return false
}

// allowed reports whether the sides allow a further victim.
func (f *finder) allowed(v int) bool {
	c := &f.candidates[v]
	k := c.family
	if k != nil && !f.isWhole(v) && (k.gone >= k.most || f.goes(v)) {
		return false
	}
	replaces := k != nil && f.isWhole(v) && k.gone > 0
	for s := c.side; s >= 0; s = f.sides[s].parent {
		of := &f.sides[s]
		f.left -= 1 + (len(of.above)+len(of.spare))/4
		had, least := of.freed, of.smallest
		if replaces {
			had, least = f.without(s, k)
		}
		enough := of.borrowed
		for _, l := range of.above {
			if enough {
				break
			}
			freed, smallest := had[l.of]+c.frees[l.of], least[l.of]
			if k := c.frees[l.of]; k > 0 && (smallest == 0 || k < smallest) {
				smallest = k
			}
			enough = freed-smallest < l.value
		}
		if !enough {
			return false
		}
		for _, l := range of.spare {
			if c.frees[l.of] > 0 && had[l.of]+c.frees[l.of] > l.value {
				return false
			}
		}
	}
	return true
}

// without returns what a side has lost, but for the pods of a family.
func (f *finder) without(s int32, k *family) (freed, smallest []int64) {
	freed, smallest = make([]int64, f.quota), make([]int64, f.quota)
	f.left -= 4 + len(f.candidates)/8
	for v := range f.candidates {
		c := &f.candidates[v]
		if !f.chosen[v] || c.family == k {
			continue
		}
		f.left -= 1 + f.quota/8
		for at := c.side; at >= s; at = f.sides[at].parent { // parents have lower numbers
			if at == s {
				lose(freed, smallest, c.frees)
			}
		}
	}
	return freed, smallest
}

// lose adds a victim's amounts to what a side loses.
func lose(freed, smallest, amounts []int64) {
	for q, value := range amounts {
		if value > 0 {
			freed[q] = api.AddSat(freed[q], value)
			if smallest[q] == 0 || value < smallest[q] {
				smallest[q] = value
			}
		}
	}
}

// choose makes a candidate a victim, and places pods into its room.
func (f *finder) choose(v int) {
	f.place(f.count(v))
}

// count lets a candidate count as a victim, and returns the leaves that come free.
func (f *finder) count(v int) []int32 {
	c := &f.candidates[v]
	opens := f.frees(v, true)
	f.left -= 1 + (len(f.lacks)+f.quota)/8
	if k := c.family; k != nil && !f.isWhole(v) {
		k.gone++
	} else if k != nil && k.gone > 0 { // it takes their place
		for s := c.side; s >= 0; s = f.sides[s].parent {
			f.sides[s].freed, f.sides[s].smallest = f.without(s, k)
		}
		for _, pod := range k.pods {
			if f.chosen[pod] {
				f.forget(int(pod))
			}
		}
	}
	f.chosen[v] = true
	for i, l := range f.lacks {
		if c.lacks[i] {
			f.freed[i] = api.AddSat(f.freed[i], max(0, c.frees[l.of]))
		}
	}
	for q, value := range c.frees {
		f.total[q] = api.AddSat(f.total[q], max(0, value))
	}
	for s := c.side; s >= 0; s = f.sides[s].parent {
		f.left -= 1 + f.quota/4
		lose(f.sides[s].freed, f.sides[s].smallest, c.frees)
	}
	return opens
}

// forget lets a candidate not count as a victim any more, but for what sides have lost.
func (f *finder) forget(v int) {
	c := &f.candidates[v]
	f.chosen[v] = false
	if c.family != nil && !f.isWhole(v) {
		c.family.gone--
	}
	for i, l := range f.lacks {
		if c.lacks[i] {
			f.freed[i] -= max(0, c.frees[l.of])
		}
	}
	for q, value := range c.frees {
		f.total[q] -= max(0, value)
	}
}

// place gives some leaves to their nodes, and places pods there.
func (f *finder) place(leaves []int32) {
	if len(leaves) == 0 {
		return
	}
	f.left -= len(leaves) * (2 + f.room/8)
	nodes := make([]int32, 0, len(leaves))
	for _, l := range leaves {
		f.give(l, 1)
		nodes = append(nodes, f.leaves[l].node)
	}
	if f.lost > 0 {
		slices.Sort(nodes)
		f.fill(slices.Compact(nodes))
	}
}
