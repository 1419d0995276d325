// Package plan finds out which gangs have to be evicted so that another one can start: a small set of victims, and room for every pod
// once they are gone.
//
// It decides which candidates of a mandate become victims, or which of their surplus pods, how many pods of each class are requested from each
// shard, and in which topology domain, if they are all to be in one (FindTogether). It owns nothing: its functions are pure. It refuses to judge
// whether a candidate may be evicted at all: the mandate says so.
//
// The problem is a set cover over bin packing, so Find is a heuristic with a budget of work. What it returns is always valid: it covers
// every lack, every pod has room, and no queue loses more than its side allows. It may miss a plan where there is one; plan_test.go
// measures how often. Sides are downward closed (every subset of an allowed set is allowed), so it never has to
// be judged again after a victim is removed.
//
// The steps, in this order:
//
//  1. Pods go into free room, the tightest nodes first, then into the room of pods that leave anyway.
//  2. Candidates are taken in the mandate's order, skipping those that give nothing that is lacking (inOrder). Where pods need the room
//     of several candidates on one node, the node with the fewest victims is taken first (byNode).
//  3. If sides forbid what step 2 came to, it is tried in the other order, and then by a bounded depth-first search (search).
//  4. Victims that are not needed are removed, the last ones first (prune).
//
// A gang that has more pods than its minimum may lose single ones (Candidate.Surplus). Surplus pods go before any gang goes as a whole, so
// all of this is done up to three times, until there is a plan: with surplus pods alone; with surplus pods, and then whole gangs; and with
// whole gangs alone. A gang that is chosen as a whole takes the place of those of its pods that were chosen before.
package plan

import (
	"cmp"
	"fmt"
	"slices"

	"basalt.dev/basalt/api"
)

// MaxClasses bounds the classes of pods that Find plans for.
const MaxClasses = 64

// Budget is how much work Find does by default. The unit is one comparison of a class with a node, five to ten nanoseconds; all other loops are
// charged by what they take of it. What reads the input, or writes the plan, is counted in Plan.Work, but limited by their size alone.
const Budget = 5_000_000

// Class is so many pods with the same requests.
type Class struct {
	Requests api.Resources // and places for volumes (api.Class.Room)
	Pods     int
	Shuns    uint64 // bits of the classes, its own included, of which none may be on the node of one of these
}

// Node is what a node shard said of a node.
type Node struct {
	Shard   api.Incarnation
	Domain  string // that it is in, and which part of it, for FindTogether; "" for none
	Part    string
	Near    []string      // the domains that FindNear would rather have all pods in, by kind, the best kind first
	Free    api.Resources // of the resources of the classes
	Classes []uint32      // indexes of the classes that it admits
	Leaves  []Leaves
}

// Leaves is the room that a gang's pods, or one pod, have on a node.
type Leaves struct {
	Gang    string
	Amounts api.Resources
	Anyway  bool     // its pods are being deleted already
	Bars    []uint32 // classes of which no pod fits while these are there, whatever room there is
}

// Mandate says from whom may be taken, as wire.Mandate does.
type Mandate struct {
	Lacks      []Lack
	Sides      []Side
	Candidates []Candidate // who should go first, first
	AtLeast    api.Resources
}

// Lack is quota that is missing: victims in the queue or below it have to free so much.
type Lack struct {
	Queue, Resource string
	Short           int64
}

// Side is what a queue may lose, as in wire.Side: of one of the amounts above, what its victims free without the smallest of them is
// less than that amount, unless it is borrowed; and of nothing that spare names more than that.
type Side struct {
	Parent   int // index plus 1, 0 for none
	Above    api.Resources
	Spare    api.Resources
	Borrowed bool
}

// Candidate is a gang that may be evicted.
type Candidate struct {
	Gang   string
	Queue  string
	Demand api.Resources
	Side   int // index plus 1, 0 for none
	Alike  int // those with the same number are as good as each other, and better than those with a higher one

	Surplus int   // so many of the pods below may go by themselves
	Pods    []Pod // that should go first, first
}

// Pod is one of a candidate's. What it has on its node is in Leaves under its own UID, and not in those of its gang.
type Pod struct {
	UID     string
	Amounts api.Resources // that its gang is charged for it
}

// Result is how a search for a plan ended.
type Result uint8

// Results of Find.
const (
	None  Result = iota // no plan was found
	Found               // the plan is valid
	Spent               // no plan was found before the budget was spent
)

// Plan is what Find found.
type Plan struct {
	Victims []int    // indexes of candidates that go as a whole, in order
	Pods    []Single // that go by themselves, in order
	Awaits  []string // UIDs of gangs and pods whose room is used: victims and those that leave anyway, in order
	Shares  []Share  // where the pods go
	Why     string   // there is no plan, for people
	Work    int      // that finding it, or finding none, took, in units of Budget
}

// Single is a pod of a candidate.
type Single struct{ Candidate, Pod int }

// Share is how many pods of a class a shard has room for.
type Share struct {
	Shard api.Incarnation
	Class int
	Pods  int
}

// Find returns a plan for pods of some classes. budget is how much work it does, 0 for Budget: the step in which it is spent is the last.
func Find(classes []Class, nodes []Node, m *Mandate, budget int) (Plan, Result) {
	if len(classes) > MaxClasses {
		return Plan{Why: fmt.Sprintf("its pods are of %d different kinds, the limit is %d", len(classes), MaxClasses)}, None
	}
	classes, nodes = withBars(classes, nodes)
	budget = cmp.Or(budget, Budget)
	var units []Single
	for i, c := range m.Candidates {
		for k := range c.Pods {
			if c.Surplus > 0 {
				units = append(units, Single{i, k})
			}
		}
	}
	var wholes []Single
	for i := range m.Candidates {
		wholes = append(wholes, Single{i, -1})
	}
	work := 0
	try := func(pass []Single, budget int) (Plan, Result) {
		f := newFinder(classes, nodes, m, pass, budget)
		p, result := f.find()
		work += f.read + budget - f.left
		p.Work = work
		return p, result
	}
	if len(units) > 0 {
		for _, pass := range [][]Single{units, slices.Concat(units, wholes)} {
			if p, result := try(pass, budget/4); result == Found {
				return p, Found
			}
		}
		budget /= 2
	}
	return try(wholes, budget)
}

func (f *finder) find() (Plan, Result) {
	why := ""
	for _, order := range f.orders() {
		f.order, f.start = order, nil
		if words := f.hopeless(); words == roomThere {
			return Plan{Why: words}, None
		} else if words != "" {
			why = cmp.Or(why, words)
			continue
		}
		if f.spent() {
			return Plan{Why: tooMuch}, Spent
		}
		for _, try := range []func() bool{
			func() bool { return f.inOrder() && f.byNode() },
			func() bool { return f.byNode() && f.inOrder() },
			f.search,
		} {
			f.restart()
			if try() && f.done() {
				if !f.prune() {
					return Plan{Why: tooMuch}, Spent
				}
				if !slices.Contains(f.chosen, true) {
					return Plan{Why: roomThere}, None
				}
				return f.plan(), Found
			}
			if f.spent() {
				return Plan{Why: tooMuch}, Spent
			}
		}
		why = fmt.Sprintf("no set of gangs that may be evicted together makes room for all of its %d pods", f.pods)
		if !f.covers() {
			why = "the queues of the gangs that could be evicted may not lose so much"
		}
	}
	return Plan{Why: why}, None
}

// orders returns orders in which classes are placed: the hardest first, and where there are several classes also those first that the
// fewest nodes admit, and the reverse.
func (f *finder) orders() [][]int {
	if len(f.classes) < 2 {
		return [][]int{f.order}
	}
	f.read += f.perNode() / 4
	admit := make([]int, len(f.classes))
	for _, set := range f.admits {
		for class := range f.classes {
			admit[class] += int(set >> class & 1)
		}
	}
	few := slices.Clone(f.order)
	slices.SortStableFunc(few, func(a, b int) int { return cmp.Compare(admit[a], admit[b]) })
	all := [][]int{f.order}
	for _, order := range [][]int{few, slices.Clone(f.order)} {
		if len(all) == 2 || slices.Equal(few, f.order) {
			slices.Reverse(order)
		}
		if !slices.ContainsFunc(all, func(o []int) bool { return slices.Equal(o, order) }) {
			all = append(all, order)
		}
	}
	return all
}

// tooMuch says that the budget was spent.
const tooMuch = "finding a plan takes too much work"

// roomThere says that nobody has to be evicted.
const roomThere = "there is room for all of its pods, now or when those are gone that leave anyway"
