package coordinator

import (
	"fmt"
	"math/bits"
	"math/rand"
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

// rules are those of reclaim.go, or others to compare them with.
type rules struct {
	lawful func(w *closed, a ask, victims []holding) bool
	bars   bool
}

var ours = rules{func(_ *closed, a ask, victims []holding) bool {
	return a.lawful(wire.Rule_RULE_RECLAIM, victims) || a.lawful(wire.Rule_RULE_PREEMPT, victims)
}, true}

// move is an edge: an eviction or a grant.
type move struct {
	to      uint
	who     int
	victims uint
}

// moves returns all that may happen in a state. Any gang that may be granted may be the next one, and any lawful set of victims be taken:
// the order of the queues and the planner are left open.
func (w *closed) moves(state uint, r rules) (out []move) {
	w.enter(state)
	defer w.leave(state)
	var first []ask // what is free is theirs, as far as they are entitled
	for i := range w.gangs {
		if state>>i&1 == 1 {
			continue
		}
		a := w.ask(i)
		if len(a.lacks()) == 0 {
			first = append(first, a)
			continue
		}
		may := false
		for set := uint(1); set < 1<<len(w.gangs); set++ {
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
				may = true
				out = append(out, move{state&^set | 1<<i, i, set})
			}
		}
		if may {
			first = append(first, a)
		}
	}
	for i := range w.gangs {
		if state>>i&1 == 1 {
			continue
		}
		a := w.ask(i)
		barred := len(a.lacks()) > 0
		for _, f := range first {
			barred = barred || r.bars && f.bars(a, f.lacks())
		}
		if !barred {
			out = append(out, move{state | 1<<i, i, 0})
		}
	}
	return out
}

// loop returns moves that lead from a state back to it, with an eviction among them, nil if there are none.
func (w *closed) loop(r rules) []string {
	n := uint(1) << len(w.gangs)
	edges := make([][]move, n)
	for s := range n {
		if w.fits(s) {
			edges[s] = w.moves(s, r)
		}
	}
	for s := range n {
		for _, m := range edges[s] {
			if m.victims == 0 {
				continue
			}
			// Is there a way back?
			from := map[uint]int{m.to: -1}
			type step struct {
				state uint
				by    move
				prev  int
			}
			steps := []step{{m.to, m, -1}}
			for i := 0; i < len(steps); i++ {
				if steps[i].state == s {
					var way []string
					for j := i; j >= 0; j = steps[j].prev {
						way = append([]string{w.say(steps[j].by)}, way...)
					}
					return append([]string{"in " + w.set(s)}, way...)
				}
				for _, next := range edges[steps[i].state] {
					if _, known := from[next.to]; !known {
						from[next.to] = i
						steps = append(steps, step{next.to, next, i})
					}
				}
			}
		}
	}
	return nil
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

// draw makes a random world: 2 or 3 queues in one or two levels, up to 6 gangs, up to 3 resources.
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
	pods := rng.Intn(3) == 0 // no queue limits these
	if pods && w.tree.root.gate.pool != nil {
		w.tree.root.gate.pool = w.tree.root.gate.pool.Add(api.FromMap(map[string]int64{"pods": 4 + rng.Int63n(8)}))
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
	(&Core{tree: w.tree}).updateFair(time.UnixMilli(1))
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

// In a closed world evictions end, whichever of the gangs that may go first does, and whichever lawful victims it takes.
func TestReclaimEnds(t *testing.T) {
	rng := rand.New(rand.NewSource(1))
	evictions, ofNodes := 0, 0
	const worlds = 4000
	for n := range worlds {
		w := draw(rng, n%2 == 1)
		switch {
		case n < 10:
			w = circle(rng, false)
		case n < 11:
			w = borrowed(rng, false)
		}
		if way := w.loop(ours); way != nil {
			t.Fatalf("world %d, by fair share %t:\n%v%s", n, n%2 == 1, w, strings.Join(way, "\n"))
		}
		for s := range uint(1) << len(w.gangs) {
			if w.fits(s) {
				for _, m := range w.moves(s, ours) {
					evictions += bits.OnesCount(m.victims)
					if w.tree.root.gate.pool != nil {
						ofNodes += bits.OnesCount(m.victims)
					}
				}
			}
		}
	}
	if evictions < worlds || ofNodes < worlds/4 {
		t.Errorf("only %d evictions could happen in %d worlds, %d of them where nothing but the nodes is a limit", evictions, worlds, ofNodes)
	}
	t.Logf("%d evictions in %d worlds, %d of them where nothing but the nodes is a limit", evictions, worlds, ofNodes)
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
		}, true}, draw},
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
		}, true}, circle},
		{"one may borrow what is being reclaimed", rules{ours.lawful, false}, borrowed},
		{"a preemption may borrow more than it frees", rules{func(_ *closed, a ask, victims []holding) bool {
			lacks := a.lacks()
			for _, h := range victims {
				if !a.mayPreempt(h, lacks) {
					return ours.lawful(nil, a, victims)
				}
			}
			return needed(a, victims)
		}, true}, draw},
		{"victims of both rules at once", rules{func(_ *closed, a ask, victims []holding) bool {
			lacks := a.lacks()
			for _, h := range victims {
				if !a.mayReclaim(h, lacks) && !a.mayPreempt(h, lacks) {
					return false
				}
			}
			return needed(a, victims)
		}, true}, draw},
	} {
		t.Run(c.name, func(t *testing.T) {
			rng := rand.New(rand.NewSource(2))
			for n := range 20_000 {
				w := c.world(rng, n%2 == 1)
				if way := w.loop(c.rules); way != nil {
					t.Logf("world %d, by fair share %t:\n%v%s", n, n%2 == 1, w, strings.Join(way, "\n"))
					return
				}
			}
			t.Error("no loop was found")
		})
	}
}
