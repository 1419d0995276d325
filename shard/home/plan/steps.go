package plan

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"

	"basalt.dev/basalt/api"
)

// The steps by which victims are chosen.

// hopeless says why even all candidates together are not enough, "" if they may be.
func (f *finder) hopeless() string {
	f.restart()
	if f.lost == 0 && len(f.lacks) == 0 {
		return roomThere
	}
	for v := range f.candidates {
		if f.spent() {
			return ""
		}
		if k := f.candidates[v].family; k == nil || f.isWhole(v) || k.whole < 0 {
			f.choose(v)
		}
	}
	for i, l := range f.lacks {
		if f.freed[i] < l.value {
			name := f.m.Lacks[i].Resource
			return fmt.Sprintf("all gangs that could be evicted together free %s=%s of the %s that queue %q lacks", name,
				api.FormatAmount(name, f.freed[i]), api.FormatAmount(name, l.value), f.m.Lacks[i].Queue)
		}
	}
	if f.lost > 0 {
		return fmt.Sprintf("%d of %d pods would have no room even without all gangs that could be evicted", f.lost, f.pods)
	}
	if !f.covers() {
		return "all gangs that could be evicted together use less than it would"
	}
	return ""
}

// inOrder chooses candidates in the mandate's order that give something that is lacking. It reports whether to go on.
func (f *finder) inOrder() bool {
	for v := range f.candidates {
		if f.done() {
			break
		}
		if f.spent() {
			return false
		}
		if !f.goes(v) && (f.givesQuota(v) || f.givesRoom(v)) && f.allowed(v) {
			f.choose(v)
		}
	}
	return true
}

// need is what it takes to place a pod on a node.
type need struct {
	node   int32
	wholes int   // victims that are gangs,
	count  int   // and all of them
	last   int32 // of them in the mandate's order
}

func compareNeeds(a, b need) int {
	return cmp.Or(cmp.Compare(a.wholes, b.wholes), cmp.Compare(a.count, b.count), cmp.Compare(a.last, b.last), cmp.Compare(a.node, b.node))
}

func (f *finder) needOf(n int, who []int32) need {
	x := need{node: int32(n), count: len(who), last: slices.Max(who)}
	for _, v := range who {
		if f.isWhole(int(v)) {
			x.wholes++
		}
	}
	return x
}

// byNode chooses the candidates on one node after another whose room is needed together, those nodes first on which they are the
// fewest. It reports whether to go on.
func (f *finder) byNode() bool {
	var together []int32
	for _, class := range f.order {
		if f.missing[class] == 0 {
			continue
		}
		var queue needs
		for n := range f.nodes {
			if f.spent() {
				return false
			}
			if who := f.neededOn(n, class, together[:0]); len(who) > 0 {
				together = who
				queue = append(queue, f.needOf(n, who))
			}
		}
		queue.init()
		for len(queue) > 0 && f.missing[class] > 0 {
			if f.spent() {
				return false
			}
			top := queue[0]
			who := f.neededOn(int(top.node), class, together[:0])
			if together = who; len(who) == 0 {
				queue.pop()
				continue
			}
			if now := f.needOf(int(top.node), who); now != top { // others were chosen since
				queue[0] = now
				queue.down(0)
				continue
			}
			if before := f.missing[class]; !f.chooseAll(who) || f.missing[class] == before {
				queue.pop()
			}
		}
	}
	return true
}

// chooseAll chooses candidates if the sides allow all of them.
func (f *finder) chooseAll(who []int32) bool {
	if len(who) == 1 {
		if !f.allowed(int(who[0])) {
			return false
		}
		f.choose(int(who[0]))
		return true
	}
	f.left -= len(f.candidates)/16 + 4*len(who)
	all := who
	who = slices.DeleteFunc(slices.Clone(who), func(v int32) bool { // it goes with its gang
		k := f.candidates[v].family
		if k == nil || f.isWhole(int(v)) {
			return false
		}
		f.left -= len(all) / 8
		return slices.Contains(all, k.whole)
	})
	type before struct{ freed, smallest []int64 }
	saved, gone := map[int32]before{}, map[*family]int{}
	for _, v := range who {
		c := &f.candidates[v]
		if c.family != nil {
			gone[c.family] = c.family.gone
		}
		for s := c.side; s >= 0; s = f.sides[s].parent {
			f.left -= 2
			if _, known := saved[s]; !known {
				f.left -= 8 + f.quota/4
				saved[s] = before{slices.Clone(f.sides[s].freed), slices.Clone(f.sides[s].smallest)}
			}
		}
	}
	chosen, freed, total := slices.Clone(f.chosen), slices.Clone(f.freed), slices.Clone(f.total)
	var leaves []int32
	for _, v := range who {
		if f.spent() || !f.allowed(int(v)) {
			f.chosen, f.freed, f.total = chosen, freed, total
			for s, b := range saved {
				f.sides[s].freed, f.sides[s].smallest = b.freed, b.smallest
			}
			for k, n := range gone {
				k.gone = n
			}
			return false
		}
		leaves = append(leaves, f.count(int(v))...)
	}
	f.place(leaves)
	return true
}

// neededOn returns the candidates on a node that have to go so that a pod of a class fits there, nil if it does not fit even then.
func (f *finder) neededOn(n, class int, who []int32) []int32 {
	if f.admits[n]&(1<<class) == 0 || f.at[n] == f.at[n+1] {
		f.left--
		return nil
	}
	var taken []int32 // leaves
	for l := f.at[n]; l < f.at[n+1]; l++ {
		if v := f.leaves[l].gang; v >= 0 && !f.goes(int(v)) {
			taken = append(taken, l)
		}
	}
	f.left -= 4 + int(f.at[n+1]-f.at[n])/2 + len(taken)*(bits.Len(uint(len(taken)))+2*(1+f.room/8))
	slices.SortStableFunc(taken, func(a, b int32) int { return cmp.Compare(f.leaves[a].gang, f.leaves[b].gang) })
	taken = f.withinSurplus(taken)
	k := 0
	for ; k < len(taken) && f.fits(n, class, 1) == 0; k++ {
		f.give(taken[k], 1)
	}
	fits := f.fits(n, class, 1) > 0
	var needed []int32
	for k--; k >= 0; k-- { // the last first: without it?
		if f.give(taken[k], -1); fits && f.fits(n, class, 1) == 0 {
			f.give(taken[k], 1)
			needed = append(needed, taken[k])
		}
	}
	for _, l := range needed {
		f.give(l, -1)
		if v := f.leaves[l].gang; len(who) == 0 || who[len(who)-1] != v { // they are in order
			who = append(who, v)
		}
	}
	if !fits {
		return nil
	}
	return who
}

// withinSurplus returns leaves without those of pods that are more than their gangs may lose.
func (f *finder) withinSurplus(leaves []int32) []int32 {
	var here map[*family]int
	return slices.DeleteFunc(leaves, func(l int32) bool {
		v := f.leaves[l].gang
		k := f.candidates[v].family
		if k == nil || f.isWhole(int(v)) {
			return false
		}
		if here == nil {
			here = map[*family]int{}
		}
		here[k]++
		return k.gone+here[k] > k.most
	})
}

// searched is how many candidates the depth-first search looks at.
const searched = 24

// search is a depth-first search over sets of candidates, within the budget.
func (f *finder) search() bool {
	var useful []int
	for v := range f.candidates {
		if len(useful) == searched || f.spent() {
			break
		}
		if f.givesQuota(v) || f.lost > 0 && len(f.frees(v, false)) > 0 {
			useful = append(useful, v)
		}
	}
	var set []int
	replay := func() bool {
		f.restart()
		for _, v := range set {
			if !f.allowed(v) {
				return false
			}
			f.choose(v)
		}
		return true
	}
	var descend func(from int) bool
	descend = func(from int) bool {
		if f.spent() || !replay() {
			return false
		}
		if f.done() {
			return true
		}
		for i := from; i < len(useful) && !f.spent(); i++ {
			set = append(set, useful[i])
			if descend(i + 1) {
				return true
			}
			set = set[:len(set)-1]
		}
		return false
	}
	return descend(0)
}

// needs is a heap.
type needs []need

func (q needs) init() {
	for i := len(q)/2 - 1; i >= 0; i-- {
		q.down(i)
	}
}

func (q needs) down(i int) {
	for {
		k := 2*i + 1
		if k >= len(q) {
			return
		}
		if k+1 < len(q) && compareNeeds(q[k+1], q[k]) < 0 {
			k++
		}
		if compareNeeds(q[k], q[i]) >= 0 {
			return
		}
		q[i], q[k] = q[k], q[i]
		i = k
	}
}

func (q *needs) pop() {
	old := *q
	old[0] = old[len(old)-1]
	*q = old[:len(old)-1]
	q.down(0)
}
