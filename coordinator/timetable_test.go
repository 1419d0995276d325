package coordinator

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"basalt.dev/basalt/api"
)

// tenure is what somebody has of a queue, from a time to another in ms.
type tenure struct {
	queue    *queue
	amounts  api.Resources
	from, to int64
}

// oracle judges by a list of all that run at a time, from root down.
type oracle struct {
	tree *tree
	all  []tenure
}

// held is what the subtree of a queue holds of a resource at a time: its own, and of each child what that holds or is
// guaranteed, whichever is more.
func (o *oracle) held(q *queue, resource string, at int64) (sum int64) {
	for _, x := range o.all {
		if x.queue == q && x.from <= at && at < x.to {
			sum += x.amounts.Value(resource)
		}
	}
	for _, child := range q.children {
		sum += max(o.held(child, resource, at), child.guarantee.Value(resource))
	}
	return sum
}

// fits reports whether everybody fits at a time, somebody more among them. Where that one changes nothing, it is not
// asked whether there is too much already.
func (o *oracle) fits(q *queue, more api.Resources, at int64) bool {
	with := &oracle{o.tree, append(append([]tenure(nil), o.all...), tenure{q, more, at, at + 1})}
	for _, d := range more {
		for p := q; p != nil; p = p.parent {
			after := with.held(p, d.Resource, at)
			if limit, limited := p.capability(d.Resource); limited && after > limit && after > o.held(p, d.Resource, at) {
				return false
			}
		}
		total := d.Value
		for _, x := range o.all {
			if x.from <= at && at < x.to {
				total += x.amounts.Value(d.Resource)
			}
		}
		if limit, limited := o.tree.root.gate.limit(d.Resource, nil); limited && total > limit {
			return false
		}
	}
	return true
}

// drawTree makes a tree of up to three levels with capabilities and guarantees, and says what its nodes have.
func drawTree(r *rand.Rand) (*tree, []*queue) {
	t := newTree()
	var leaves []*queue
	limit := func(q *queue, most int) {
		l := &limits{}
		for _, name := range []string{"cpu", "gpu"} {
			if r.IntN(3) > 0 {
				c := int64(1 + r.IntN(most))
				l.capability = l.capability.Add(api.Resources{{Resource: name, Value: c}})
				if q.parent != nil && r.IntN(2) == 0 {
					l.guarantee = l.guarantee.Add(api.Resources{{Resource: name, Value: r.Int64N(c + 1)}})
				}
			}
		}
		q.limits = l
	}
	limit(t.root, 60)
	for i := range 1 + r.IntN(4) {
		q := t.at(fmt.Sprint("q", i))
		limit(q, 40)
		n := r.IntN(4)
		for k := range n {
			leaf := t.at(fmt.Sprintf("q%d.l%d", i, k))
			limit(leaf, 30)
			leaves = append(leaves, leaf)
		}
		if n == 0 {
			leaves = append(leaves, q)
		}
	}
	if r.IntN(2) == 0 {
		t.root.gate.pool = api.Resources{{Resource: "cpu", Value: int64(20 + r.IntN(60))}}
	}
	t.dirty = true
	t.recompute()
	return t, leaves
}

// TestTimetable compares a timetable with a list of all ends: random trees with guarantees and nodes that are too few,
// gangs that leave, and gangs that are given places one after another.
func TestTimetable(t *testing.T) {
	placed, waited, nowhere := 0, 0, 0
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 48))
		tree, leaves := drawTree(r)
		demand := func() (d api.Resources) {
			for _, name := range []string{"cpu", "gpu"} {
				if n := r.Int64N(8); n > 0 {
					d = append(d, api.Amount{Resource: name, Value: n})
				}
			}
			return d
		}
		lasts := func() int64 {
			if r.IntN(4) == 0 {
				return math.MaxInt64
			}
			return 1 + r.Int64N(int64(1)<<(10+r.IntN(20)))
		}
		ask := leaves
		if r.IntN(2) == 0 { // others are counted above, where they have no guarantee
			ask = leaves[:1+r.IntN(len(leaves))]
		}
		o, table := &oracle{tree: tree}, newTimetable(tree.root, ask)
		var leave []func()
		for range r.IntN(10) {
			q, d, ms := leaves[r.IntN(len(leaves))], demand(), lasts()
			tree.charge(q, d)
			to := int64(math.MaxInt64)
			if slot := slotAt(ms); slot < never {
				to = slotStarts[slot]
			}
			o.all = append(o.all, tenure{q, d, 0, to})
			leave = append(leave, func() { table.leave(q, d, ms) })
		}
		for _, f := range leave {
			f()
		}
		for range 12 {
			q, d, ms := ask[r.IntN(len(ask))], demand(), lasts()
			slot := table.first(q, nil, d, ms)
			if got, want := slot, o.first(q, d, ms); got != want {
				t.Fatalf("seed %d: %v in %s for %d ms: slot %d, and by the list of all ends %d", seed, d, q.path, ms, got, want)
			}
			switch {
			case slot == never:
				nowhere++
				continue
			case slot > 0:
				waited++
			}
			placed++
			table.stay(q, d, slot, ms)
			o.all = append(o.all, tenure{q, d, slotStarts[slot], o.until(slot, ms)})
		}
		for _, q := range append(ask[:len(ask):len(ask)], tree.root) { // and the sums are the same in each slot
			for _, name := range []string{"cpu", "gpu"} {
				if _, limited := q.effective.Get(name); !limited {
					continue // nobody asks
				}
				for _, slot := range []int{0, 1, 20, 100, slots - 1} {
					if got, want := table.held(table.of[q], name)[slot].amount(), o.held(q, name, slotStarts[slot]); got != want {
						t.Fatalf("seed %d: %s has %d %s in slot %d, and by the list %d", seed, q.path, got, name, slot, want)
					}
				}
			}
		}
	}
	if placed < 1000 || waited < 300 || nowhere < 300 {
		t.Errorf("%d placed, %d of them later, %d nowhere: too few of a kind", placed, waited, nowhere)
	}
	t.Logf("%d placed, %d of them later, %d nowhere", placed, waited, nowhere)
}

// until is when somebody has left who comes in a slot.
func (o *oracle) until(slot int, ms int64) int64 {
	if ms != math.MaxInt64 {
		for _, at := range slotStarts {
			if at >= slotStarts[slot]+ms {
				return at
			}
		}
	}
	return math.MaxInt64
}

// first tries each slot, and in each whether it fits until it has left.
func (o *oracle) first(q *queue, more api.Resources, ms int64) int {
	for slot := range slots {
		until, fits := o.until(slot, ms), true
		for k := slot; k < slots && slotStarts[k] < until && fits; k++ {
			fits = o.fits(q, more, slotStarts[k])
		}
		if fits {
			return slot
		}
	}
	return never
}
