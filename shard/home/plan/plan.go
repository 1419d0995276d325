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
	"math/bits"
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
	Apart    bool // at most one of them on a node
}

// Node is what a node shard said of a node.
type Node struct {
	Shard   api.Incarnation
	Domain  string // that it is in, and which part of it, for FindTogether; "" for none
	Part    string
	Free    api.Resources // of the resources of the classes
	Classes []uint32      // indexes of the classes that it admits
	Leaves  []Leaves
}

// Leaves is the room that a gang's pods, or one pod, have on a node.
type Leaves struct {
	Gang    string
	Amounts api.Resources
	Anyway  bool // its pods are being deleted already
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

// leaf is what one unit has on one node. The amounts are in finder.amounts.
type leaf struct {
	node   int32
	gang   int32 // index of the unit, -1 for one that leaves anyway
	anyway int32 // index in finder.others of that one
}

// unit is what goes all together or not at all, a gang or a surplus pod, with its amounts by number of resource.
type unit struct {
	of     Single  // Pod is -1 for all of the gang
	frees  []int64 // by quota resource
	leaves []int32 // indexes of leaf
	lacks  []bool  // whether it is in or below the queue of each lack
	side   int32   // -1 for none
	family *family // of a gang with surplus pods, nil for none
}

// family is a gang with its surplus pods.
type family struct {
	whole int32 // unit, -1 if it is none
	pods  []int32
	most  int // pods that may go
	gone  int // that are chosen
}

// limit is so much of a quota resource.
type limit struct {
	of    int
	value int64
}

type side struct {
	parent       int32
	above, spare []limit
	borrowed     bool
	freed        []int64 // by quota resource: what the victims in it free
	smallest     []int64 // the smallest of these amounts, 0 for none
}

// finder is the state of one search for a plan.
type finder struct {
	classes []Class
	order   []int // classes, the hardest first
	nodes   []Node
	m       *Mandate
	pods    int

	room     int     // number of room resources
	requests []int64 // class*room
	free     []int64 // node*room
	admits   []uint64
	leaves   []leaf
	amounts  []int64 // leaf*room
	at       []int32 // first leaf of each node; leaves of a node follow each other
	others   []string

	quota      int // number of quota resources
	lacks      []limit
	least      []limit
	sides      []side
	candidates []unit
	families   []*family
	leaving    []int32 // leaves whose pods leave anyway
	leavingOn  []int32 // their nodes

	// What is chosen.
	avail   []int64 // node*room: free, and what leaves, less what is placed
	placed  []int32 // node*len(classes)
	missing []int   // by class
	lost    int     // sum of missing
	chosen  []bool
	freed   []int64 // by lack
	total   []int64 // by quota resource: what all victims free

	start   *start
	options []option // scratch space of fill

	left int // of the budget
	read int // work that is not taken out of it
}

// start is what fits without victims, in the present order of classes.
type start struct {
	avail   []int64
	placed  []int32
	missing []int
	lost    int
}

func newFinder(classes []Class, nodes []Node, m *Mandate, units []Single, budget int) *finder {
	f := &finder{classes: classes, nodes: nodes, m: m, left: budget}
	for _, c := range classes {
		f.pods += c.Pods
	}
	var names []string
	names, f.requests = requestsOf(classes)
	f.room = len(names)
	index := f.readUnits(units)
	f.free = make([]int64, len(nodes)*f.room)
	f.admits = make([]uint64, len(nodes))
	f.at = make([]int32, len(nodes)+1)
	other := map[string]int32{}
	largest := make([]int64, f.room)
	for i, n := range nodes {
		fillIn(f.free[i*f.room:], names, n.Free)
		for _, class := range n.Classes {
			if int(class) < len(classes) {
				f.admits[i] |= 1 << class
			}
		}
		all := slices.Clone(f.free[i*f.room : (i+1)*f.room])
		f.at[i] = int32(len(f.leaves))
		for _, l := range n.Leaves {
			k, known := index[l.Gang]
			of := leaf{node: int32(i), gang: k, anyway: -1}
			f.read++
			switch {
			case l.Anyway:
				if _, named := other[l.Gang]; !named {
					other[l.Gang] = int32(len(f.others))
					f.others = append(f.others, l.Gang)
				}
				of.gang, of.anyway = -1, other[l.Gang]
				f.leaving, f.leavingOn = append(f.leaving, int32(len(f.leaves))), append(f.leavingOn, int32(i))
			case !known:
				continue
			default:
				f.candidates[k].leaves = append(f.candidates[k].leaves, int32(len(f.leaves)))
			}
			f.leaves = append(f.leaves, of)
			f.amounts = slices.Grow(f.amounts, f.room)[:len(f.amounts)+f.room]
			amounts := f.amounts[len(f.amounts)-f.room:]
			fillIn(amounts, names, l.Amounts)
			for r, v := range amounts {
				all[r] = api.AddSat(all[r], max(0, v))
			}
		}
		for r := range largest {
			largest[r] = max(largest[r], all[r])
		}
	}
	f.at[len(nodes)] = int32(len(f.leaves))
	f.order = make([]int, len(classes))
	hard := make([]int64, len(classes))
	for i := range classes {
		f.order[i] = i
		for r, need := range f.requests[i*f.room : (i+1)*f.room] {
			if need > 0 {
				hard[i] = max(hard[i], share(need, largest[r]))
			}
		}
	}
	slices.SortStableFunc(f.order, func(a, b int) int { return cmp.Compare(hard[b], hard[a]) })
	f.leavingOn = slices.Compact(f.leavingOn)
	f.readQuota()
	f.read += f.perNode() + len(f.leaves)*(8+f.room) + len(f.candidates)*(16+2*len(f.lacks)+2*f.quota) + len(f.sides)*(1+f.quota)
	return f
}

// requestsOf returns the resources that classes request, and what each class requests of them (class*resource).
func requestsOf(classes []Class) (names []string, requests []int64) {
	for _, c := range classes {
		for _, a := range c.Requests {
			if a.Value > 0 && !slices.Contains(names, a.Resource) {
				names = append(names, a.Resource)
			}
		}
	}
	requests = make([]int64, len(classes)*len(names))
	for i, c := range classes {
		fillIn(requests[i*len(names):], names, c.Requests)
	}
	return names, requests
}

// readUnits takes note of what may be chosen, and returns whose room is whose, by UID.
func (f *finder) readUnits(units []Single) map[string]int32 {
	index := make(map[string]int32, len(units))
	families := map[int]*family{}
	f.candidates = make([]unit, len(units))
	for i, of := range units {
		f.candidates[i].of = of
		c := &f.m.Candidates[of.Candidate]
		if of.Pod < 0 {
			index[c.Gang] = int32(i)
			for _, p := range c.Pods {
				if _, single := index[p.UID]; !single {
					index[p.UID] = int32(i)
				}
			}
			if k := families[of.Candidate]; k != nil {
				k.whole, f.candidates[i].family = int32(i), k
			}
			continue
		}
		index[c.Pods[of.Pod].UID] = int32(i)
		k := families[of.Candidate]
		if k == nil {
			k = &family{whole: -1, most: c.Surplus}
			families[of.Candidate] = k
			f.families = append(f.families, k)
		}
		k.pods = append(k.pods, int32(i))
		f.candidates[i].family = k
	}
	return index
}

// isWhole reports whether a unit is all of a gang.
func (f *finder) isWhole(v int) bool { return f.candidates[v].of.Pod < 0 }

// goes reports whether a unit is chosen, itself or with its gang.
func (f *finder) goes(v int) bool {
	k := f.candidates[v].family
	return f.chosen[v] || k != nil && k.whole >= 0 && f.chosen[k.whole]
}

// frees returns the leaves that come free with a unit, those of its pods included. With fresh, without those that are free already.
func (f *finder) frees(v int, fresh bool) []int32 {
	c := &f.candidates[v]
	if c.family == nil || !f.isWhole(v) {
		return c.leaves
	}
	out := slices.Clone(c.leaves)
	for _, pod := range c.family.pods {
		if !fresh || !f.chosen[pod] {
			out = append(out, f.candidates[pod].leaves...)
		}
	}
	f.left -= len(c.family.pods) + len(out)/8
	return out
}

// share returns a/b in thousandths.
func share(a, b int64) int64 {
	if b <= 0 {
		return 1 << 32
	}
	if a > 1<<50 {
		return a / max(1, b/1000)
	}
	return 1000 * a / b
}

// fillIn writes amounts by number of resource.
func fillIn(to []int64, names []string, amounts api.Resources) {
	for r, name := range names {
		to[r] = amounts.Value(name)
	}
}

func (f *finder) readQuota() {
	var names []string
	number := func(name string) int {
		i := slices.Index(names, name)
		if i < 0 {
			i = len(names)
			names = append(names, name)
		}
		return i
	}
	limits := func(of api.Resources) (out []limit) {
		for _, a := range of {
			out = append(out, limit{number(a.Resource), a.Value})
		}
		return out
	}
	for _, l := range f.m.Lacks {
		f.lacks = append(f.lacks, limit{number(l.Resource), l.Short})
	}
	f.least = limits(f.m.AtLeast)
	for i, s := range f.m.Sides {
		parent := int32(s.Parent) - 1
		if parent >= int32(i) { // a parent comes before its children
			parent = -1
		}
		f.sides = append(f.sides, side{parent: parent, above: limits(s.Above), spare: limits(s.Spare), borrowed: s.Borrowed})
	}
	f.quota = len(names)
	for i := range f.sides {
		f.sides[i].freed, f.sides[i].smallest = make([]int64, f.quota), make([]int64, f.quota)
	}
	frees, lacks := make([]int64, len(f.candidates)*f.quota), make([]bool, len(f.candidates)*len(f.lacks))
	for i := range f.candidates {
		of := &f.candidates[i]
		c := &f.m.Candidates[of.of.Candidate]
		demand := c.Demand
		if of.of.Pod >= 0 {
			demand = c.Pods[of.of.Pod].Amounts
		}
		of.frees, frees = frees[:f.quota], frees[f.quota:]
		fillIn(of.frees, names, demand)
		of.lacks, lacks = lacks[:len(f.lacks)], lacks[len(f.lacks):]
		for k, l := range f.m.Lacks {
			of.lacks[k] = api.Under(c.Queue, l.Queue)
		}
		if of.side = int32(c.Side) - 1; of.side >= int32(len(f.sides)) {
			of.side = -1
		}
	}
}

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
	if f.classes[class].Apart {
		most = min(most, 1-int(f.placed[n*len(f.classes)+class]))
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
