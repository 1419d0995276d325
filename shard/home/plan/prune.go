package plan

import (
	"cmp"
	"slices"

	"basalt.dev/basalt/api"
)

// Victims that are not needed are removed, and the plan is written.

// prune removes victims that are not needed, the last ones first. It reports whether it removed all of them within the budget.
func (f *finder) prune() bool {
	slack := f.slack()
	for removed := true; removed; {
		removed = false
		f.left -= len(f.candidates) / 8
		for v := len(f.candidates) - 1; v >= 0; v-- {
			if f.spent() {
				return false
			}
			if f.chosen[v] && !f.givesNeeded(v) && f.remove(v, slack) {
				removed = true
			}
		}
	}
	return true
}

// givesNeeded reports whether quota would be lacking without a victim.
func (f *finder) givesNeeded(v int) bool {
	f.left -= 1 + (len(f.lacks)+len(f.least))/8
	c := &f.candidates[v]
	for i, l := range f.lacks {
		if c.lacks[i] && f.freed[i]-max(0, c.frees[l.of]) < l.value {
			return true
		}
	}
	for _, l := range f.least {
		if f.total[l.of]-max(0, c.frees[l.of]) < l.value {
			return true
		}
	}
	return false
}

// slack returns for each class the nodes that have room for one more pod of it.
func (f *finder) slack() [][]int32 {
	out := make([][]int32, len(f.classes))
	for class := range f.classes {
		for n := range f.nodes {
			if f.fits(n, class, 1) > 0 {
				out[class] = append(out[class], int32(n))
			}
		}
	}
	return out
}

// remove gives a victim up, if the pods that were to use its room fit elsewhere.
func (f *finder) remove(v int, slack [][]int32) bool {
	type move struct{ node, class, pods int }
	var moves []move
	leaves := f.frees(v, false)
	before := make([]int, len(slack))
	for class := range slack {
		before[class] = len(slack[class])
	}
	f.left -= 2 + len(slack)/2 + len(leaves)*(1+f.room/4)
	put := func(n, class, pods int) {
		f.put(n, class, pods)
		moves = append(moves, move{n, class, pods})
	}
	for _, l := range leaves {
		f.give(l, -1)
		n := int(f.leaves[l].node)
		for r := range f.room {
			for _, class := range f.order {
				short := -f.avail[n*f.room+r]
				if short <= 0 {
					break
				}
				f.left--
				if need, has := f.requests[class*f.room+r], f.placed[n*len(f.classes)+class]; need > 0 && has > 0 {
					put(n, class, -min(int(has), int((short+need-1)/need)))
				}
			}
		}
		if f.lost > 0 {
			for class := range f.classes { // what was displaced may have left room for others
				if f.fits(n, class, 1) > 0 {
					slack[class] = append(slack[class], int32(n))
				}
			}
		}
	}
	for _, class := range f.order {
		for _, n := range slack[class] {
			if f.missing[class] == 0 || f.spent() {
				break
			}
			if k := f.fits(int(n), class, f.missing[class]); k > 0 {
				put(int(n), class, k)
			}
		}
	}
	if f.lost > 0 {
		f.left -= len(moves) * (1 + f.room/8)
		for _, m := range slices.Backward(moves) {
			f.put(m.node, m.class, -m.pods)
		}
		for class, n := range before {
			slack[class] = slack[class][:n]
		}
		for _, l := range leaves {
			f.give(l, 1)
		}
		return false
	}
	f.forget(v)
	return true
}

// plan returns what was chosen.
func (f *finder) plan() (p Plan) {
	for v := range f.candidates {
		switch of := f.candidates[v].of; {
		case !f.chosen[v]:
		case f.isWhole(v):
			p.Victims = append(p.Victims, of.Candidate)
		default:
			p.Pods = append(p.Pods, of)
		}
	}
	f.read += f.perNode() + 4*len(f.leaves) + len(f.candidates)
	awaited := f.awaited()
	for i, uid := range f.others {
		if awaited[-1-i] {
			p.Awaits = append(p.Awaits, uid)
		}
	}
	named := api.SetOf(p.Awaits)
	for v := range f.candidates {
		of := f.candidates[v].of
		uid := f.m.Candidates[of.Candidate].Gang
		if !f.isWhole(v) {
			uid = f.m.Candidates[of.Candidate].Pods[of.Pod].UID
		}
		if awaited[v] && !named[uid] {
			named[uid] = true
			p.Awaits = append(p.Awaits, uid)
		}
	}
	shares := map[Share]int{}
	for n := range f.nodes {
		for class := range f.classes {
			if k := f.placed[n*len(f.classes)+class]; k > 0 {
				shares[Share{Shard: f.nodes[n].Shard, Class: class}] += int(k)
			}
		}
	}
	for s, k := range shares {
		s.Pods = k
		p.Shares = append(p.Shares, s)
	}
	slices.SortFunc(p.Shares, func(a, b Share) int {
		return cmp.Or(cmp.Compare(a.Shard, b.Shard), cmp.Compare(a.Class, b.Class))
	})
	return p
}

// awaited returns whose room is used: units by index, and those that leave anyway as -1 less their index.
func (f *finder) awaited() map[int]bool {
	out := map[int]bool{}
	for n := range f.nodes {
		used := make([]int64, f.room)
		uses := false
		for class := range f.classes {
			if k := int64(f.placed[n*len(f.classes)+class]); k > 0 {
				uses = true
				for r := range used {
					used[r] += k * f.requests[class*f.room+r]
				}
			}
		}
		if !uses {
			continue
		}
		over := func(without int32) bool { // the room that is left, less that of one leaf
			for r := range f.room {
				if has := f.avail[n*f.room+r]; used[r] > 0 && has < f.amounts[int(without)*f.room+r] {
					return true
				}
			}
			return false
		}
		var here []int32
		for l := f.at[n]; l < f.at[n+1]; l++ {
			if v := f.leaves[l].gang; v < 0 || f.goes(int(v)) {
				here = append(here, l)
			}
		}
		slices.SortStableFunc(here, func(a, b int32) int { return cmp.Compare(f.leaves[a].gang, f.leaves[b].gang) })
		for _, l := range slices.Backward(here) {
			if !over(l) {
				f.give(l, -1) // it is not needed here; nothing is placed after this
				continue
			}
			if v := int(f.leaves[l].gang); v >= 0 {
				if !f.chosen[v] {
					v = int(f.candidates[v].family.whole)
				}
				out[v] = true
			} else {
				out[-1-int(f.leaves[l].anyway)] = true
			}
		}
	}
	return out
}
