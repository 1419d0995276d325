package fair

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// peer is a scheduler that looks at everything once a second (a session, or cycle): it starts what fits, in the order of its rules, and then
// evicts for gangs that do not fit. The rules are those of another project, from its documents; see the package comment.
type peer struct {
	hall   *hall
	rules  rules
	leaves []*leaf
	all    []*leafNode // parents before children
	free   []int64     // what nothing runs in
	going  []int64     // what evicted gangs still have
	of     map[*team]*leaf
}

// rules are what differs.
type rules interface {
	begin(p *peer)                                              // of a session
	share(n *leafNode) float64                                  // the queue with the least goes first
	may(p *peer, g *gang) bool                                  // others may be evicted for a gang
	victims(p *peer, g *gang, needed []int64) (victims []*gang) // that make room for it, nil for none
}

// minRuntime is how long a gang has to have run before it is evicted, by each of the rules: all have it, by one name or another.
const minRuntime = time.Minute

// rounding is what a sum of parts of the whole may be off.
const rounding = 1e-9

// firstTried is for how many gangs of a queue that do not fit a session looks for victims.
const firstTried = 16

// leafNode is a queue, at any level.
type leafNode struct {
	*node
	parent   *leafNode
	children []*leafNode
	leaf     *leaf
	deserved []float64 // as the queue's spec says: infinite where it names nothing
	has      []float64 // what runs or is about to run there, without what leaves, in parts of the whole
	wants    []float64 // and what waits
	fair     []float64 // by rules that have such a thing
}

type leaf struct {
	node    *leafNode
	waits   []*gang // the oldest first
	runs    []*gang
	next    int // of waits, in a session
	blocked []*gang
}

func newPeer(h *hall, r rules) *peer {
	p := &peer{hall: h, rules: r, free: slices.Clone(h.whole), going: make([]int64, len(h.whole)), of: map[*team]*leaf{}}
	nodes := map[*node]*leafNode{}
	var add func(n *node, parent *leafNode)
	add = func(n *node, parent *leafNode) {
		q := &leafNode{node: n, parent: parent, has: make([]float64, len(h.whole)), deserved: slices.Clone(n.deserved)}
		for r := range q.deserved {
			if !h.named[r] {
				q.deserved[r] = math.Inf(1)
			}
		}
		nodes[n] = q
		p.all = append(p.all, q)
		if parent != nil {
			parent.children = append(parent.children, q)
		}
		for _, c := range n.children {
			add(c, q)
		}
	}
	add(h.root, nil)
	for _, t := range h.teams {
		l := &leaf{node: nodes[t.node]}
		l.node.leaf = l
		p.leaves = append(p.leaves, l)
		p.of[t] = l
	}
	return p
}

// part is a gang's demand in parts of the whole.
func (p *peer) part(g *gang, r int) float64 { return float64(g.demand[r]) / float64(p.hall.whole[r]) }

// account adds a gang to what its queues have.
func (p *peer) account(g *gang, times float64) {
	for n := p.of[g.team].node; n != nil; n = n.parent {
		for r := range n.has {
			n.has[r] += times * p.part(g, r)
		}
	}
}

func (p *peer) ask(g *gang) {
	l := p.of[g.team]
	at, _ := slices.BinarySearchFunc(l.waits, g, func(a, b *gang) int { return cmp.Or(cmp.Compare(a.came, b.came), cmp.Compare(a.uid, b.uid)) })
	l.waits = slices.Insert(l.waits, at, g)
}

func (p *peer) left(g *gang) {
	l := p.of[g.team]
	at := slices.Index(l.runs, g)
	if at < 0 { // evicted: it is in going
		add(p.going, g.demand, -1)
	} else {
		l.runs = slices.Delete(l.runs, at, at+1)
		p.account(g, -1)
	}
	add(p.free, g.demand, 1)
}

func (p *peer) tick() {
	for _, n := range slices.Backward(p.all) {
		n.wants = slices.Clone(n.has)
		if n.leaf != nil {
			n.leaf.next, n.leaf.blocked = 0, nil
			for _, g := range n.leaf.waits {
				for r := range n.wants {
					n.wants[r] += p.part(g, r)
				}
			}
		}
		for _, c := range n.children {
			for r := range n.wants {
				n.wants[r] += c.wants[r] - c.has[r]
			}
		}
	}
	p.rules.begin(p)
	// Room that evicted gangs leave is kept for those that were given it in this session, in their order: it does not go to two.
	future := slices.Clone(p.free)
	add(future, p.going, 1)
	var kept []*gang
	for {
		g := p.take(future)
		if g == nil {
			break
		}
		add(future, g.demand, -1)
		p.account(g, 1)
		if !fits(g.demand, p.free) {
			kept = append(kept, g) // it waits for what leaves
			continue
		}
		p.start(g)
	}
	for _, l := range p.inOrder() {
		for i, g := range l.blocked {
			if i == firstTried || !p.rules.may(p, g) {
				break
			}
			if !p.reclaim(g, future) {
				continue
			}
			add(future, g.demand, -1)
			p.account(g, 1)
			kept = append(kept, g)
		}
	}
	for _, g := range kept {
		p.account(g, -1)
	}
}

func fits(demand, room []int64) bool {
	for r, d := range demand {
		if d > room[r] {
			return false
		}
	}
	return true
}

func (p *peer) start(g *gang) {
	l := p.of[g.team]
	l.waits = slices.DeleteFunc(l.waits, func(o *gang) bool { return o == g })
	l.next--
	l.runs = append(l.runs, g)
	add(p.free, g.demand, -1)
	p.hall.grant(g)
}

// take returns the next gang that fits, from the queue that is next, nil for none. Those that do not fit are left out for this session.
func (p *peer) take(room []int64) *gang {
	var from func(n *leafNode) *gang
	from = func(n *leafNode) *gang {
		if l := n.leaf; l != nil {
			for l.next < len(l.waits) {
				g := l.waits[l.next]
				if l.next++; fits(g.demand, room) {
					return g
				}
				l.blocked = append(l.blocked, g)
			}
			return nil
		}
		for _, c := range p.sorted(n.children) {
			if g := from(c); g != nil {
				return g
			}
		}
		return nil
	}
	return from(p.all[0])
}

func (p *peer) sorted(nodes []*leafNode) []*leafNode {
	out := slices.Clone(nodes)
	slices.SortStableFunc(out, func(a, b *leafNode) int { return cmp.Compare(p.rules.share(a), p.rules.share(b)) })
	return out
}

// inOrder returns the leaves, level by level the one with the least share first.
func (p *peer) inOrder() (out []*leaf) {
	var walk func(n *leafNode)
	walk = func(n *leafNode) {
		if n.leaf != nil {
			out = append(out, n.leaf)
		}
		for _, c := range p.sorted(n.children) {
			walk(c)
		}
	}
	walk(p.all[0])
	return out
}

// reclaim evicts others for a gang, and reports whether it has room then.
func (p *peer) reclaim(g *gang, future []int64) bool {
	needed := make([]int64, len(g.demand))
	for r, d := range g.demand {
		needed[r] = max(0, d-future[r])
	}
	victims := p.rules.victims(p, g, needed)
	for _, v := range victims {
		l := p.of[v.team]
		l.runs = slices.DeleteFunc(l.runs, func(o *gang) bool { return o == v })
		p.account(v, -1)
		add(p.going, v.demand, 1)
		add(future, v.demand, 1)
		p.hall.evict(v)
	}
	return len(victims) > 0
}

// candidates are the gangs of other leaves that have run for long enough.
func (p *peer) candidates(of *leaf) (out []*gang) {
	for _, l := range p.leaves {
		if l == of {
			continue
		}
		for _, g := range l.runs {
			if p.hall.now-g.began >= minRuntime {
				out = append(out, g)
			}
		}
	}
	return out
}

// apart returns the two children of the lowest common ancestor of two leaves.
func apart(a, b *leafNode) (mine, other *leafNode) {
	for mine = a; mine.parent != nil; mine = mine.parent {
		for other = b; other.parent != nil; other = other.parent {
			if other.parent == mine.parent {
				return mine, other
			}
		}
	}
	return a, b
}

// depth is how far a queue is from root.
func (n *leafNode) depth() (d int) {
	for ; n.parent != nil; n = n.parent {
		d++
	}
	return d
}

// youngest orders gangs of one queue as both projects order victims: who was made last goes first.
func youngest(a, b *gang) int {
	return cmp.Or(cmp.Compare(b.came, a.came), cmp.Compare(b.uid, a.uid))
}

// ---- Volcano

type volcano struct{}

func newVolcano(h *hall) scheduler { return newPeer(h, volcano{}) }

func (volcano) begin(*peer) {}

// names reports whether the queue says what it deserves of a resource.
func (n *leafNode) names(r int) bool { return !math.IsInf(n.deserved[r], 1) }

// share is what the queue has of what it deserves, of the resource of which that is most.
func (volcano) share(n *leafNode) (share float64) {
	for r, has := range n.has {
		share = max(share, has/n.deserved[r])
	}
	return share
}

// may reports whether the queue stays within what it deserves in one of the resources that the gang requests and the queue names.
func (volcano) may(p *peer, g *gang) bool {
	n := p.of[g.team].node
	for r, d := range g.demand {
		if d > 0 && n.names(r) && n.has[r]+p.part(g, r) <= n.deserved[r]+rounding {
			return true
		}
	}
	return false
}

func (v volcano) victims(p *peer, g *gang, needed []int64) []*gang {
	mine := p.of[g.team]
	type bundle struct {
		*gang
		near  int     // how far down the tree it is apart from the claimant
		share float64 // of its queue
		worth int     // in steps of 5 %: how much of what it has is needed
	}
	var list []bundle
	for _, c := range p.candidates(mine) {
		gain, cost := 0.0, 0.0
		for r, n := range needed {
			if n > 0 {
				gain += float64(min(n, c.demand[r])) / float64(n)
				cost += float64(c.demand[r]) / float64(n)
			}
		}
		if gain == 0 {
			continue
		}
		q := p.of[c.team].node
		_, other := apart(mine.node, q)
		list = append(list, bundle{c, other.depth(), v.share(q), int(math.Round(20 * gain / cost))})
	}
	slices.SortFunc(list, func(a, b bundle) int {
		return cmp.Or(cmp.Compare(b.near, a.near), cmp.Compare(b.share, a.share), cmp.Compare(a.team.path, b.team.path), cmp.Compare(b.worth, a.worth), youngest(a.gang, b.gang))
	})
	left := map[*leafNode][]float64{}
	needed = slices.Clone(needed)
	var out []*gang
	for _, b := range list {
		q := p.of[b.team].node
		if left[q] == nil {
			left[q] = slices.Clone(q.has)
		}
		if !v.yields(p, q, b.gang, left[q]) {
			continue
		}
		out = append(out, b.gang)
		add(needed, b.demand, -1)
		if slices.Max(needed) <= 0 {
			return out
		}
	}
	return nil
}

// yields reports whether all pods of a gang may be victims, one after the other, and takes those that may from what its queue has: before
// each of them it has to have more than it deserves of something that the pod requests and the queue names. A pod that requests nothing
// of that may always be one.
func (volcano) yields(p *peer, q *leafNode, g *gang, has []float64) bool {
	for range g.pods {
		named, over := false, false
		for r, d := range g.demand {
			if d > 0 && q.names(r) {
				named = true
				over = over || has[r] > q.deserved[r]+rounding
			}
		}
		if named && !over {
			return false
		}
		for r := range has {
			has[r] -= p.part(g, r) / float64(g.pods)
		}
	}
	return true
}

// ---- KAI

// kai knows two strategies, of which the first may be left out.
type kai struct{ fair bool }

func newKaiQuota(h *hall) scheduler { return newPeer(h, kai{}) }
func newKaiFair(h *hall) scheduler  { return newPeer(h, kai{fair: true}) }

// begin divides the whole: each queue gets its quota or what it requests, and then the rest by weight, resource by resource, level by level.
func (kai) begin(p *peer) {
	p.all[0].fair = []float64{1, 1, 1}
	for _, n := range p.all {
		for _, c := range n.children {
			c.fair = make([]float64, len(n.fair))
		}
		for r, left := range n.fair {
			for _, c := range n.children {
				c.fair[r] = min(c.deserved[r], c.wants[r], 1)
				left -= c.fair[r]
			}
			for left > 1e-9 {
				sum := 0.0
				for _, c := range n.children {
					if c.wants[r]-c.fair[r] > 1e-9 {
						sum += c.weight
					}
				}
				if sum == 0 {
					break
				}
				given := 0.0
				for _, c := range n.children {
					if more := c.wants[r] - c.fair[r]; more > 1e-9 {
						more = min(more, left*c.weight/sum)
						c.fair[r] += more
						given += more
					}
				}
				left -= given
			}
		}
	}
}

// share is the saturation ratio: what the queue has of its fair share.
func (kai) share(n *leafNode) float64 { return n.saturation(n.has) }

// saturation is what a queue would have of its fair share, or of the whole where its quota is unlimited.
func (n *leafNode) saturation(has []float64) (ratio float64) {
	for r := range has {
		most := 1.0
		if n.names(r) {
			most = max(n.fair[r], 1e-12)
		}
		if has[r] > 1e-12 {
			ratio = max(ratio, has[r]/most)
		}
	}
	return ratio
}

func (k kai) may(p *peer, g *gang) bool {
	n := p.of[g.team].node
	return k.fair && n.within(p, g, n.fair) || n.within(p, g, n.deserved)
}

// within reports whether a queue stays within an amount when it is given a gang, in all that this requests and that is limited.
func (n *leafNode) within(p *peer, g *gang, most []float64) bool {
	for r, d := range g.demand {
		if d > 0 && n.names(r) && n.has[r]+p.part(g, r) > most[r]+rounding {
			return false
		}
	}
	return true
}

func (k kai) victims(p *peer, g *gang, needed []int64) []*gang {
	mine := p.of[g.team].node
	list := p.candidates(mine.leaf)
	left := map[*leafNode][]float64{}
	has := func(n *leafNode) []float64 {
		if left[n] == nil {
			left[n] = slices.Clone(n.has)
		}
		return left[n]
	}
	// The queue that is saturated the most gives first, level by level.
	queues := map[*leafNode][]*gang{}
	for _, c := range list {
		queues[p.of[c.team].node] = append(queues[p.of[c.team].node], c)
	}
	for _, of := range queues {
		slices.SortFunc(of, youngest)
	}
	var next func(n *leafNode) *gang
	next = func(n *leafNode) *gang {
		if n.leaf != nil {
			for len(queues[n]) > 0 {
				v := queues[n][0]
				queues[n] = queues[n][1:]
				useful := false
				for r, need := range needed {
					useful = useful || need > 0 && v.demand[r] > 0
				}
				if useful && k.allows(p, g, v, has) {
					return v
				}
			}
			return nil
		}
		order := slices.Clone(n.children)
		slices.SortStableFunc(order, func(a, b *leafNode) int {
			return cmp.Compare(b.saturation(has(b)), a.saturation(has(a)))
		})
		for _, c := range order {
			if v := next(c); v != nil {
				return v
			}
		}
		return nil
	}
	var out []*gang
	needed = slices.Clone(needed)
	for slices.Max(needed) > 0 {
		v := next(p.all[0])
		if v == nil {
			return nil
		}
		out = append(out, v)
		add(needed, v.demand, -1)
		for n := p.of[v.team].node; n != nil; n = n.parent {
			of := has(n)
			for r := range of {
				of[r] -= p.part(v, r)
			}
		}
	}
	// Who still has room when the claimant has is not evicted after all: the oldest first.
	slices.SortFunc(out, func(a, b *gang) int { return youngest(b, a) })
	return slices.DeleteFunc(out, func(v *gang) bool {
		for r, need := range needed {
			if need+v.demand[r] > 0 {
				return false
			}
		}
		add(needed, v.demand, 1)
		return true
	})
}

// allows reports whether one of the strategies allows that a gang is evicted, where others were chosen before.
func (k kai) allows(p *peer, g, v *gang, has func(*leafNode) []float64) bool {
	mine, other := apart(p.of[g.team].node, p.of[v.team].node)
	after, taken := make([]float64, len(mine.has)), make([]float64, len(mine.has))
	for r := range after {
		after[r] = mine.has[r] + p.part(g, r)
		taken[r] = has(other)[r] - p.part(v, r)
	}
	over := func(most []float64) bool { // in something that the claimant requests
		for r, d := range g.demand {
			if d > 0 && other.names(r) && has(other)[r] > most[r]+rounding {
				return true
			}
		}
		return false
	}
	if mine.within(p, g, mine.deserved) && over(other.deserved) {
		return true
	}
	return k.fair && mine.within(p, g, mine.fair) && over(other.fair) && mine.saturation(after) <= other.saturation(taken)+rounding
}
