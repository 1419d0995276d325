package coordinator

import (
	"flag"
	"fmt"
	"math/bits"
	"math/rand"
	"slices"
	"strings"
	"testing"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

// closed is a world in which no gang comes or goes for good: a gang that is evicted asks again, alike. A state is the set of gangs that
// have quota, as bits.
type closed struct {
	tree  *tree
	gangs []holding
	names []string
}

// enter charges the gangs of a state.
func (w *closed) enter(state uint) {
	for i, g := range w.gangs {
		if state>>i&1 == 1 {
			w.tree.charge(g.queue, g.amounts)
		}
	}
}

func (w *closed) leave(state uint) {
	for i, g := range w.gangs {
		if state>>i&1 == 1 {
			w.tree.charge(g.queue, api.Resources(nil).Sub(g.amounts))
		}
	}
}

func (w *closed) ask(i int) ask {
	return ask{queue: w.gangs[i].queue, demand: w.gangs[i].amounts, priority: w.gangs[i].priority}
}

// rules are those of reclaim.go and displacement.go, or others to compare them with.
type rules struct {
	lawful    func(w *closed, a ask, victims []holding) bool
	bars      bool
	remembers bool // displacements
}

func lawful(_ *closed, a ask, victims []holding) bool {
	return a.lawful(wire.Rule_RULE_RECLAIM, victims) || a.lawful(wire.Rule_RULE_PREEMPT, victims)
}

var ours = rules{lawful, true, true}

// move is an edge: an eviction or a grant.
type move struct {
	to      uint
	who     int
	victims uint
}

// asks are all that may happen in a state if nothing is remembered.
type asks struct {
	claims []move  // by the gang that claims
	lacks  uint    // gangs that lack something
	barred [8]uint // by each gang, those that it bars from borrowing, if it may claim or lacks nothing
}

// asksOf returns what may happen in a state. Any lawful set of victims may be taken: the planner is left open.
func (w *closed) asksOf(state uint, r rules) (out asks) {
	w.enter(state)
	defer w.leave(state)
	for i := range w.gangs {
		if state>>i&1 == 1 {
			continue
		}
		a := w.ask(i)
		lacks := a.lacks()
		before := len(out.claims)
		for set := uint(1); len(lacks) > 0 && set < 1<<len(w.gangs); set++ {
			if set&^state != 0 {
				continue
			}
			var victims []holding
			for v := range w.gangs {
				if set>>v&1 == 1 {
					victims = append(victims, w.gangs[v])
				}
			}
			if r.lawful(w, a, victims) {
				out.claims = append(out.claims, move{state&^set | 1<<i, i, set})
			}
		}
		if len(lacks) > 0 {
			out.lacks |= 1 << i
		}
		for o := range w.gangs {
			bars := r.bars && state>>o&1 == 0 && (len(lacks) == 0 || len(out.claims) > before)
			if bars && a.bars(w.ask(o), lacks) {
				out.barred[i] |= 1 << o
			}
		}
	}
	return out
}

// memory is what is remembered of evictions: for whom each gang was evicted last, plus 1; 0 for nobody.
type memory [8]uint8

// displaced returns those who displaced a gang.
func (m memory) displaced(w *closed, i int) (by uint) {
	d := displacements{}
	for v, claimant := range m {
		if claimant > 0 {
			d.add(w.identity(v), w.identity(int(claimant)-1), w.tree.root, 0)
		}
	}
	before := d.before(w.identity(i), func(displacement) bool { return true }) // nothing comes or goes in a closed world
	for o := range w.gangs {
		if before[w.identity(o)] {
			by |= 1 << o
		}
	}
	return by
}

func (w *closed) identity(i int) identity { return identity(w.names[i]) }

// place is a state with what is remembered.
type place struct {
	state  uint
	memory memory
}

// moves returns all that may happen. Any gang that may be granted may be the next one: the order of the queues is left open.
func (w *closed) moves(p place, of []asks, r rules) (out []move) {
	all := &of[p.state]
	var mayClaim uint
	for i := range w.gangs {
		if all.lacks>>i&1 == 0 {
			continue
		}
		var displaced uint
		if r.remembers && p.memory[i] > 0 {
			displaced = p.memory.displaced(w, i)
		}
		for _, m := range all.claims {
			if m.who == i && m.victims&displaced == 0 {
				mayClaim |= 1 << i
				out = append(out, m)
			}
		}
	}
	var barred uint // what is free is theirs who are entitled to it
	for i := range w.gangs {
		if p.state>>i&1 == 0 && (all.lacks>>i&1 == 0 || mayClaim>>i&1 == 1) {
			barred |= all.barred[i]
		}
	}
	for i := range w.gangs {
		if p.state>>i&1 == 0 && (all.lacks|barred)>>i&1 == 0 {
			out = append(out, move{p.state | 1<<i, i, 0})
		}
	}
	return out
}

// after is where a move leads.
func (p place) after(m move, r rules) place {
	next := place{m.to, p.memory}
	for v := range p.memory {
		if r.remembers && m.victims>>v&1 == 1 {
			next.memory[v] = uint8(m.who) + 1
		}
	}
	return next
}

// loop returns moves that lead from a state back to it, with an eviction among them, nil if there are none. It also counts the evictions
// of all moves of the states in which nothing is remembered yet.
func (w *closed) loop(r rules) (way []string, evictions int) {
	n := uint(1) << len(w.gangs)
	of := make([]asks, n)
	for s := range n {
		if w.fits(s) {
			of[s] = w.asksOf(s, r)
			for _, m := range of[s].claims {
				evictions += bits.OnesCount(m.victims)
			}
		}
	}
	if evictions == 0 {
		return nil, 0
	}
	// Strongly connected components, by Tarjan's algorithm.
	type node struct {
		index, low, component int
		moves                 []move
	}
	nodes := map[place]*node{}
	var stack, order []place
	index, components := 0, 0
	var visit func(p place) *node
	visit = func(p place) *node {
		index++
		x := &node{index: index, low: index, moves: w.moves(p, of, r)}
		nodes[p] = x
		stack, order = append(stack, p), append(order, p)
		for _, m := range x.moves {
			to := p.after(m, r)
			if y := nodes[to]; y == nil {
				x.low = min(x.low, visit(to).low)
			} else if y.component == 0 {
				x.low = min(x.low, y.index)
			}
		}
		if x.low == x.index {
			components++
			for {
				last := stack[len(stack)-1]
				stack = stack[:len(stack)-1]
				nodes[last].component = components
				if last == p {
					break
				}
			}
		}
		return x
	}
	for s := range n {
		if p := (place{state: s}); w.fits(s) && nodes[p] == nil {
			visit(p)
		}
	}
	for _, p := range order {
		for _, m := range nodes[p].moves {
			if m.victims > 0 && nodes[p.after(m, r)].component == nodes[p].component {
				return w.way(p, m, of, r), evictions
			}
		}
	}
	return nil, evictions
}

// way returns the moves from a place back to it, the first of which is known.
func (w *closed) way(from place, first move, of []asks, r rules) []string {
	type step struct {
		at   place
		by   move
		prev int
	}
	steps, known := []step{{from.after(first, r), first, -1}}, map[place]bool{}
	for i := 0; i < len(steps); i++ {
		if steps[i].at == from {
			var way []string
			for j := i; j >= 0; j = steps[j].prev {
				way = append([]string{w.say(steps[j].by)}, way...)
			}
			return append([]string{"in " + w.set(from.state)}, way...)
		}
		for _, m := range w.moves(steps[i].at, of, r) {
			if to := steps[i].at.after(m, r); !known[to] {
				known[to] = true
				steps = append(steps, step{to, m, i})
			}
		}
	}
	panic("no way back within a strongly connected component")
}

func (w *closed) fits(state uint) bool {
	w.enter(state)
	defer w.leave(state)
	ok := true
	w.tree.root.walk(func(q *queue) {
		if q.limits != nil {
			for _, a := range q.limits.capability {
				ok = ok && q.charged.get(a.Resource).amount() <= a.Value
			}
		}
	})
	for _, a := range w.tree.root.gate.pool {
		limit, _ := w.tree.root.gate.limit(a.Resource, nil)
		ok = ok && w.tree.root.charged.get(a.Resource).amount() <= limit
	}
	return ok
}

func (w *closed) set(state uint) string {
	var out []string
	for i := range w.gangs {
		if state>>i&1 == 1 {
			out = append(out, w.names[i])
		}
	}
	return "{" + strings.Join(out, " ") + "}"
}

func (w *closed) say(m move) string {
	if m.victims == 0 {
		return w.names[m.who] + " starts"
	}
	return w.names[m.who] + " evicts " + w.set(m.victims)
}

// draw makes a random world: 2 or 3 queues in one or two levels, up to 6 gangs, up to 3 resources that queues name, and up to 2 that none does.
func draw(rng *rand.Rand, fair bool) *closed {
	w := &closed{tree: newTree()}
	resources := []string{"cpu", "gpu", "memory"}[:1+rng.Intn(3)]
	amounts := func(most int64, all bool) api.Resources {
		m := map[string]int64{}
		for _, name := range resources {
			if all || rng.Intn(2) == 0 {
				m[name] = rng.Int63n(most + 1)
			}
		}
		return api.FromMap(m)
	}
	set := func(path string, capability, deserved api.Resources) {
		l := &limits{record: &wire.LimitsRecord{}, capability: capability, deserved: deserved.Min(lowest(capability, deserved))}
		if rng.Intn(3) == 0 {
			l.record.Weight = new(uint32(rng.Intn(4)))
		}
		if rng.Intn(4) == 0 {
			l.guarantee = amounts(2, false)
		}
		w.tree.at(path).limits = l
		if fair {
			l.record.Policy = &wire.QueuePolicy{Reclaim: wire.Reclaim_RECLAIM_FAIR_SHARE}
		}
	}
	set("root", amounts(8, true), nil)
	if rng.Intn(3) == 0 { // nothing but the nodes limits it
		w.tree.root.gate.pool, w.tree.root.limits.capability = w.tree.root.limits.capability, nil
	}
	limit := func(resource string, most int64) {
		more := api.FromMap(map[string]int64{resource: most})
		if root := w.tree.root; root.gate.pool != nil && rng.Intn(2) == 0 {
			root.gate.pool = root.gate.pool.Add(more)
		} else {
			root.limits.capability = root.limits.capability.Add(more)
		}
	}
	disk, pods := rng.Intn(3) == 0, rng.Intn(3) == 0 // no queue names these
	if disk {
		limit("disk", 1+rng.Int63n(6))
	}
	if pods && rng.Intn(3) > 0 { // else nothing limits them
		limit("pods", 2+rng.Int63n(8))
	}
	paths := []string{"a", "b", "c"}[:2+rng.Intn(2)]
	var leaves []string
	for _, path := range paths {
		var capability api.Resources
		if rng.Intn(4) == 0 {
			capability = amounts(6, false)
		}
		set(path, capability, amounts(5, false))
		if rng.Intn(3) > 0 {
			leaves = append(leaves, path)
			continue
		}
		for _, leaf := range []string{path + ".x", path + ".y"} {
			set(leaf, nil, amounts(4, false))
			leaves = append(leaves, leaf)
		}
	}
	for i := range 3 + rng.Intn(4) {
		m := amounts(4, false).Positive()
		if len(m) == 0 {
			m = api.FromMap(map[string]int64{resources[0]: 1})
		}
		if disk && rng.Intn(3) > 0 {
			m = m.Add(api.FromMap(map[string]int64{"disk": 1 + rng.Int63n(3)}))
		}
		if pods {
			m = m.Add(api.FromMap(map[string]int64{"pods": 1 + rng.Int63n(3)}))
		}
		w.gangs = append(w.gangs, holding{queue: w.tree.at(leaves[rng.Intn(len(leaves))]), amounts: m, priority: int64(rng.Intn(3))})
		w.names = append(w.names, fmt.Sprintf("%s%d[%s p%d]", w.gangs[i].queue.path, i, m, w.gangs[i].priority))
	}
	w.settle()
	return w
}

func lowest(capability, deserved api.Resources) api.Resources {
	out := deserved.Clone()
	for i := range out {
		if limit, limited := capability.Get(out[i].Resource); limited {
			out[i].Value = min(out[i].Value, limit)
		}
	}
	return out
}

// circle is a world of three queues, each with a gang that uses two resources: one that its queue deserves, and one that the next one's does.
func circle(rng *rand.Rand, _ bool) *closed {
	w := &closed{tree: newTree()}
	set := func(path string, capability, deserved api.Resources) *queue {
		q := w.tree.at(path)
		q.limits = &limits{record: &wire.LimitsRecord{}, capability: capability, deserved: deserved}
		return q
	}
	names := []string{"cpu", "gpu", "memory"}
	rng.Shuffle(3, func(i, j int) { names[i], names[j] = names[j], names[i] })
	set("root", api.FromMap(map[string]int64{"cpu": 1, "gpu": 1, "memory": 1}), nil)
	for i, path := range []string{"a", "b", "c"} {
		has, next := names[i], names[(i+1)%3]
		deserved := api.FromMap(map[string]int64{has: 1, next: 1})
		for n := range deserved {
			if deserved[n].Resource == next {
				deserved[n].Value = 0
			}
		}
		q := set(path, nil, deserved)
		w.gangs = append(w.gangs, holding{queue: q, amounts: api.FromMap(map[string]int64{has: 1, next: 1})})
		w.names = append(w.names, path)
	}
	w.settle()
	return w
}

// borrowed is a world in which a queue borrows idle room before its sibling asks for it.
func borrowed(*rand.Rand, bool) *closed {
	w := &closed{tree: newTree()}
	w.tree.at("root").limits = &limits{record: &wire.LimitsRecord{}, capability: api.FromMap(map[string]int64{"cpu": 4})}
	for _, path := range []string{"a", "b"} {
		w.tree.at(path).limits = &limits{record: &wire.LimitsRecord{}, deserved: api.FromMap(map[string]int64{"cpu": 2})}
	}
	for i, g := range []struct {
		queue         string
		cpu, priority int64
	}{{"a", 4, 2}, {"a", 1, 1}, {"a", 2, 0}, {"a", 1, 0}, {"b", 1, 1}, {"b", 3, 0}} {
		w.gangs = append(w.gangs, holding{queue: w.tree.at(g.queue), amounts: api.FromMap(map[string]int64{"cpu": g.cpu}), priority: g.priority})
		w.names = append(w.names, fmt.Sprintf("%s%d[%d p%d]", g.queue, i, g.cpu, g.priority))
	}
	w.settle()
	return w
}

// settle makes thresholds of what all gangs want.
func (w *closed) settle() {
	w.tree.dirty = true
	for _, g := range w.gangs {
		g.queue.ask(g.amounts, 1)
	}
	w.tree.updateFair(time.UnixMilli(1))
}

func (w *closed) String() string {
	var b strings.Builder
	w.tree.root.walk(func(q *queue) {
		if q.parent == nil && q.gate.pool != nil {
			fmt.Fprintf(&b, "nodes: [%v]\n", q.gate.pool)
		}
		fmt.Fprintf(&b, "%s: capability [%v] guarantee [%v] deserved [%v] fair [%v]\n", q.path, q.limits.capability, q.guarantee, q.deserved, q.fair)
	})
	return b.String()
}

// turns is a world in which a queue that deserves a GPU and one that deserves CPU are entitled in turn.
func turns(*rand.Rand, bool) *closed {
	w := &closed{tree: newTree()}
	set := func(path string, capability, deserved map[string]int64) {
		w.tree.at(path).limits = &limits{record: &wire.LimitsRecord{}, capability: api.FromMap(capability), deserved: api.FromMap(deserved)}
	}
	set("root", map[string]int64{"cpu": 3, "gpu": 4}, nil)
	set("a", nil, map[string]int64{"gpu": 2})
	set("b", nil, map[string]int64{"cpu": 1})
	for i, g := range []struct {
		queue              string
		cpu, gpu, priority int64
	}{{"a", 2, 2, 0}, {"b", 2, 0, 0}, {"a", 1, 2, 1}, {"b", 3, 0, 2}, {"b", 1, 3, 0}, {"a", 1, 3, 2}} {
		amounts := api.FromMap(map[string]int64{"cpu": g.cpu, "gpu": g.gpu}).Positive()
		w.gangs = append(w.gangs, holding{queue: w.tree.at(g.queue), amounts: amounts, priority: g.priority})
		w.names = append(w.names, fmt.Sprintf("%s%d[%s p%d]", g.queue, i, amounts, g.priority))
	}
	w.settle()
	return w
}

var worldsFlag = flag.Int("worlds", 4000, "how many worlds TestReclaimEnds draws")

// In a closed world evictions end, whichever of the gangs that may go first does, and whichever lawful victims it takes.
func TestReclaimEnds(t *testing.T) {
	worlds := *worldsFlag
	rng := rand.New(rand.NewSource(1))
	evictions, ofNodes, unnamed, forgetful := 0, 0, 0, 0
	for n := range worlds {
		w := draw(rng, n%2 == 1)
		switch {
		case n < 10:
			w = circle(rng, false)
		case n < 11:
			w = borrowed(rng, false)
		case n < 12:
			w = turns(rng, false)
		}
		way, evicted := w.loop(ours)
		if way != nil {
			t.Fatalf("world %d, by fair share %t:\n%v%s", n, n%2 == 1, w, strings.Join(way, "\n"))
		}
		if evictions += evicted; w.tree.root.gate.pool != nil {
			ofNodes += evicted
		}
		if w.limitsUnnamed() {
			unnamed += evicted
		}
		if evicted > 0 && worlds > 4000 {
			if way, _ := w.loop(rules{lawful, true, false}); way != nil {
				forgetful++
				t.Logf("world %d, by fair share %t, has a circle if displacements are forgotten:\n%v%s", n, n%2 == 1, w, strings.Join(way, "\n"))
			}
		}
	}
	if evictions < worlds || ofNodes < worlds/4 || unnamed < worlds/4 {
		t.Errorf("only %d evictions could happen in %d worlds, %d of them where nothing but the nodes is a limit, %d where what no queue names is limited", evictions, worlds, ofNodes, unnamed)
	}
	t.Logf("%d evictions in %d worlds, %d of them where nothing but the nodes is a limit, %d where what no queue names is limited; %d worlds would have circles if displacements were forgotten",
		evictions, worlds, ofNodes, unnamed, forgetful)
}

// limitsUnnamed reports whether root limits a resource that no queue below it deserves.
func (w *closed) limitsUnnamed() bool {
	return slices.ContainsFunc(w.tree.root.pool, func(limit api.Amount) bool {
		return !slices.ContainsFunc(w.tree.root.children, func(q *queue) bool { return q.names(limit.Resource) })
	})
}

// The same search finds loops of rules that were dropped.
func TestOtherRulesDoNotEnd(t *testing.T) {
	dominant := func(q *queue, more api.Resources) float64 {
		share := 0.0
		for _, limit := range q.parent.pool {
			if limit.Value > 0 {
				share = max(share, float64(q.charged.get(limit.Resource).amount()+more.Value(limit.Resource))/float64(limit.Value))
			}
		}
		return share / max(0.001, float64(q.limits.weight()))
	}
	needed := func(a ask, victims []holding) bool {
		lacks := a.lacks()
		return len(lacks) > 0 && a.covers(victims, lacks) && a.irreducible(victims, lacks)
	}
	for _, c := range []struct {
		name  string
		rules rules
		world func(*rand.Rand, bool) *closed
	}{
		// Kueue's rule S2-b: the claimant's share with the gang is below the victim's before it goes.
		{"present shares are compared", rules{func(_ *closed, a ask, victims []holding) bool {
			for _, h := range victims {
				if h.queue == a.queue {
					return false
				}
				mine, other := apart(a.queue, h.queue)
				if dominant(mine, a.demand) >= dominant(other, nil) {
					return false
				}
			}
			return needed(a, victims)
		}, true, false}, draw},
		{"only what is lacking is judged", rules{func(_ *closed, a ask, victims []holding) bool {
			lacks := a.lacks()
			lacking := ask{queue: a.queue, priority: a.priority}
			for _, d := range a.demand {
				for _, l := range lacks {
					if l.resource == d.Resource && lacking.demand.Value(d.Resource) == 0 {
						lacking.demand = append(lacking.demand, d)
					}
				}
			}
			for _, h := range victims {
				if h.queue == a.queue || !lacking.mayReclaim(h, lacks) {
					return false
				}
			}
			return needed(a, victims)
		}, true, false}, circle},
		{"one may borrow what is being reclaimed", rules{lawful, false, false}, borrowed},
		{"displacements are forgotten", rules{lawful, true, false}, turns},
		{"a preemption may borrow more than it frees", rules{func(_ *closed, a ask, victims []holding) bool {
			lacks := a.lacks()
			for _, h := range victims {
				if !a.mayPreempt(h, lacks) {
					return lawful(nil, a, victims)
				}
			}
			return needed(a, victims)
		}, true, false}, draw},
		{"victims of both rules at once", rules{func(_ *closed, a ask, victims []holding) bool {
			lacks := a.lacks()
			for _, h := range victims {
				if !a.mayReclaim(h, lacks) && !a.mayPreempt(h, lacks) {
					return false
				}
			}
			return needed(a, victims)
		}, true, false}, draw},
	} {
		t.Run(c.name, func(t *testing.T) {
			rng := rand.New(rand.NewSource(3))
			for n := range 20_000 {
				w := c.world(rng, n%2 == 1)
				if way, _ := w.loop(c.rules); way != nil {
					t.Logf("world %d, by fair share %t:\n%v%s", n, n%2 == 1, w, strings.Join(way, "\n"))
					return
				}
			}
			t.Error("no loop was found")
		})
	}
}
