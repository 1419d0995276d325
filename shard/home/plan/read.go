package plan

import (
	"cmp"
	"fmt"
	"slices"

	"basalt.dev/basalt/api"
)

// What a plan is made of: the input, in arrays, and what may be chosen.

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

// A class that somebody bars requests so much of a resource of its own.
const (
	passage = 1 << 16
	passes  = passage << 20 // as good as without end
)

// withBars makes bars room that is lacking: a class that somebody bars from a node requests a resource, of which a node
// has as much as anybody wants, or nothing until all who bar the class have left; of several, for one pod.
func withBars(classes []Class, nodes []Node) ([]Class, []Node) {
	barred := map[uint32]string{}
	for i := range nodes {
		for _, l := range nodes[i].Leaves {
			for _, class := range l.Bars {
				if int(class) < len(classes) {
					barred[class] = fmt.Sprintf("passage of class %d", class)
				}
			}
		}
	}
	if len(barred) == 0 {
		return classes, nodes
	}
	classes, nodes = slices.Clone(classes), slices.Clone(nodes)
	for _, class := range api.SortedKeys(barred) {
		name := barred[class]
		of := func(value int64) api.Resources { return api.FromMap(map[string]int64{name: value}) }
		classes[class].Requests = classes[class].Requests.Add(of(passage))
		for i := range nodes {
			n := &nodes[i]
			bars := func(l Leaves) bool { return slices.Contains(l.Bars, class) }
			count := int64(0)
			for _, l := range n.Leaves {
				count += int64(flag(bars(l)))
			}
			if count == 0 {
				n.Free = n.Free.Add(of(passes))
				continue
			}
			gives := int64(passes)
			if count > 1 {
				gives = passage - (count-1)*(passage/count)
			}
			n.Leaves = slices.Clone(n.Leaves)
			for k := range n.Leaves {
				if l := &n.Leaves[k]; bars(*l) {
					l.Amounts = l.Amounts.Add(of(gives))
					gives = passage / count
				}
			}
		}
	}
	for i := range nodes { // they are room now
		n := &nodes[i]
		n.Leaves = slices.Clone(n.Leaves)
		for k := range n.Leaves {
			n.Leaves[k].Bars = nil
		}
	}
	return classes, nodes
}

func flag(b bool) int {
	if b {
		return 1
	}
	return 0
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
