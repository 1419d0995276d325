package plan

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/shard/home/pack"
)

// MaxSlicedClasses bounds the classes of pods that FindTogether plans for in slices.
const MaxSlicedClasses = 16

// FindTogether makes plans for so many domains at once: those with the most free room, and some of the others, in turn.
const (
	domainsBest   = 4
	domainsInTurn = 4
)

// Together is where the pods of a gang are that are all in one domain, or its slices each in one part of it.
type Together struct {
	Domain string
	Parts  []string // of the slices
	Shares []Share  // where the pods go: as in Plan, but Class counts in Of, if there are slices
	Of     []PartClass
}

// PartClass is a class in a part of a domain.
type PartClass struct {
	Class int
	Part  string
}

// FindTogether returns a plan for pods that are all to be in one domain (Node.Domain), and each of some slices in one part of it (Node.Part): of
// the plans for single domains the one that evicts the fewest pods. Victims elsewhere give quota alone. Where slices are given, they are all pods.
//
// It looks at a few domains. turn decides at which: when it counts up, each of n domains that might have room is looked at within n/4 turns.
func FindTogether(classes []Class, list []pack.Slice, nodes []Node, m *Mandate, turn, budget int) (Plan, Together, Result) {
	if len(list) > 0 && len(classes) > MaxSlicedClasses {
		return Plan{Why: fmt.Sprintf("its slices are of pods of %d different kinds, the limit is %d", len(classes), MaxSlicedClasses)}, Together{}, None
	}
	classes, nodes = withBars(classes, nodes)
	domains, work := domainsOf(classes, nodes)
	if len(domains) == 0 {
		return Plan{Why: noDomain, Work: work}, Together{}, None
	}
	domains = inTurn(domains, turn)
	work += len(list) * (8 + len(classes))
	shapes := pack.Shapes(list)
	var best Plan
	var at Together
	lost, why, result := cost{pods: math.MaxInt64}, "", None
	for _, d := range domains {
		p, to, r := d.find(classes, list, shapes, m, max(1, cmp.Or(budget, Budget)/len(domains)))
		if work += p.Work; r != Found {
			if p.Why == roomThere {
				p.Work = work
				return p, Together{}, None
			}
			why, result = cmp.Or(why, p.Why), max(result, r)
			continue
		}
		if c := p.costOf(m); c.compare(lost) < 0 {
			best, at, lost = p, to, c
		}
	}
	best.Work = work
	if lost.pods == math.MaxInt64 {
		best.Why = why
		return best, Together{}, result
	}
	return best, at, Found
}

// FindNear is FindTogether, or Find if the pods need not be in one domain, for pods that would rather be in a domain
// that is smaller: in one of Node.Near. Nobody is evicted for what is only preferred: a plan for such a domain has to
// evict as few as the best plan without, and no better ones. kind says which kind of domain the plan is for, -1 for
// none.
func FindNear(
	classes []Class, list []pack.Slice, nodes []Node, m *Mandate, together bool, turn, budget int,
) (best Plan, at Together, kind int, result Result) {
	kinds := 0
	for i := range nodes {
		kinds = max(kinds, len(nodes[i].Near))
	}
	budget = cmp.Or(budget, Budget) / (1 + kinds)
	if together {
		best, at, result = FindTogether(classes, list, nodes, m, turn, budget)
	} else {
		best, result = Find(classes, nodes, m, budget)
		at.Shares = best.Shares
	}
	if result != Found {
		return best, at, -1, result
	}
	work := best.Work
	for kind := range kinds {
		in := slices.Clone(nodes)
		for i := range in {
			if in[i].Domain = ""; kind < len(in[i].Near) {
				in[i].Domain = in[i].Near[kind]
			}
		}
		p, to, r := FindTogether(classes, list, in, m, turn, budget)
		if work += p.Work; r == Found && p.costOf(m).compare(best.costOf(m)) <= 0 {
			p.Work = work
			return p, to, kind, Found
		}
	}
	best.Work = work
	return best, at, -1, Found
}

// inTurn returns the best domains, and those others whose turn it is.
func inTurn(domains []*domain, turn int) []*domain {
	if len(domains) <= domainsBest+domainsInTurn {
		return domains
	}
	out, rest := slices.Clone(domains[:domainsBest]), domains[domainsBest:]
	for i := range domainsInTurn {
		out = append(out, rest[(turn%len(rest)*domainsInTurn+i)%len(rest)])
	}
	return out
}

// noDomain says that no domain would do even if all candidates were gone.
const noDomain = "no domain has room for all of its pods, even without the gangs that may be evicted"

// noParts says so of slices.
const noParts = "no domain has room for each of its slices, even without the gangs that may be evicted"

// domain is a domain with its nodes.
type domain struct {
	name  string
	nodes []Node
	free  int64 // which part of the pods of a class finds room there now, of the class that finds least, of wholeClass
}

// wholeClass is all pods of a class.
const wholeClass = 1 << 20

// domainsOf returns the domains that might have room for all pods once everybody is gone, those with the most free room first, and the work that
// it was to find them.
func domainsOf(classes []Class, nodes []Node) (out []*domain, work int) {
	all := map[string]*domain{}
	for i := range nodes {
		n := &nodes[i]
		if n.Domain == "" {
			continue
		}
		d := all[n.Domain]
		if d == nil {
			d = &domain{name: n.Domain}
			all[n.Domain] = d
		}
		d.nodes = append(d.nodes, *n)
	}
	for _, name := range api.SortedKeys(all) {
		d := all[name]
		work += workOfRooms(classes, d.nodes)
		free, sometime, enough := rooms(classes, d.nodes)
		enough = enough && len(classes) > 0
		d.free = math.MaxInt64
		for i, n := range sometime {
			enough = enough && n >= int64(classes[i].Pods)
			d.free = min(d.free, min(free[i], 1<<40)*wholeClass/int64(max(1, classes[i].Pods)))
		}
		if enough {
			out = append(out, d)
		}
	}
	slices.SortStableFunc(out, func(a, b *domain) int { return cmp.Compare(b.free, a.free) })
	return out, work
}

// rooms returns how many pods of each class fit on some nodes, each class as if it came alone: now, and once everybody is gone who may go.
// Then, enough reports whether these nodes have together what all pods request.
func rooms(classes []Class, nodes []Node) (free, sometime []int64, enough bool) {
	names, requests := requestsOf(classes)
	free, sometime = make([]int64, len(classes)), make([]int64, len(classes))
	often := func(class uint32, room []int64) int64 {
		n := int64(math.MaxInt64)
		if classes[class].Shuns&(1<<class) != 0 {
			n = 1
		}
		for r, need := range requests[int(class)*len(names) : (int(class)+1)*len(names)] {
			if need > 0 {
				n = min(n, max(0, room[r])/need)
			}
		}
		return n
	}
	now, later, sum := make([]int64, len(names)), make([]int64, len(names)), make([]int64, len(names))
	for i := range nodes {
		n := &nodes[i]
		if len(n.Classes) == 0 {
			continue
		}
		fillIn(now, names, n.Free)
		copy(later, now)
		for _, l := range n.Leaves {
			for r, name := range names {
				later[r] = api.AddSat(later[r], l.Amounts.Value(name))
			}
		}
		for r, v := range later {
			sum[r] = api.AddSat(sum[r], max(0, v))
		}
		for _, k := range n.Classes {
			if int(k) < len(classes) {
				free[k] = api.AddSat(free[k], often(k, now))
				sometime[k] = api.AddSat(sometime[k], often(k, later))
			}
		}
	}
	for i, c := range classes {
		for r, need := range requests[i*len(names) : (i+1)*len(names)] {
			sum[r] = api.AddSat(sum[r], -api.MulSat(need, int64(c.Pods)))
		}
	}
	return free, sometime, !slices.ContainsFunc(sum, func(left int64) bool { return left < 0 })
}

// workOfRooms is how much work rooms does.
func workOfRooms(classes []Class, nodes []Node) (work int) {
	names, _ := requestsOf(classes)
	for i := range nodes {
		work += 8 + (1+len(names))*(2+2*len(nodes[i].Leaves)) + len(nodes[i].Classes)*(2+len(names)/2)
	}
	return work
}

// find makes a plan for one domain. The slices have so many shapes.
func (d *domain) find(classes []Class, list []pack.Slice, shapes int, m *Mandate, budget int) (Plan, Together, Result) {
	to := Together{Domain: d.name}
	if len(list) == 0 {
		p, r := Find(classes, d.nodes, m, budget)
		to.Shares = p.Shares
		return p, to, r
	}
	// What reads the nodes is not taken out of the budget, as in Find.
	work := workOfRooms(classes, d.nodes) + len(list)*len(classes)*4 + len(d.nodes)*8
	parts, spent, r := d.divide(classes, list, shapes, budget)
	if r == Spent {
		return Plan{Why: tooMuch, Work: work + spent}, to, Spent
	} else if r == None {
		return Plan{Why: noParts, Work: work + spent}, to, None
	}
	to.Parts = parts
	// Each class in each part that is used is a class of its own, which only the nodes of the part admit.
	var parted []Class
	in := map[string][]uint32{}
	for s, part := range to.Parts {
		for class, n := range list[s].Pods {
			if n == 0 {
				continue
			}
			k := slices.Index(to.Of, PartClass{class, part})
			if k < 0 {
				if k = len(to.Of); k == MaxClasses {
					return Plan{Why: fmt.Sprintf("its slices would be in too many domains: its kinds of pods in each of them are more than %d, the limit", MaxClasses), Work: work + spent}, to, None
				}
				to.Of = append(to.Of, PartClass{class, part})
				parted = append(parted, classes[class])
				parted[k].Pods = 0
				in[part] = append(in[part], uint32(k))
			}
			parted[k].Pods += int(n)
		}
	}
	for k := range parted {
		parted[k].Shuns = 0
		for o, of := range to.Of {
			parted[k].Shuns |= classes[to.Of[k].Class].Shuns >> of.Class & 1 << o
		}
	}
	nodes := make([]Node, 0, len(d.nodes))
	for _, n := range d.nodes {
		admits := n.Classes
		n.Classes = nil
		for _, k := range in[n.Part] {
			if slices.Contains(admits, uint32(to.Of[k].Class)) {
				n.Classes = append(n.Classes, k)
			}
		}
		if len(n.Classes) > 0 {
			nodes = append(nodes, n)
		}
	}
	p, r := Find(parted, nodes, m, max(1, budget-spent))
	to.Shares = p.Shares
	p.Work += work + spent
	return p, to, r
}

// divide chooses a part for each slice, those that have room now first, and returns the work that it did.
func (d *domain) divide(classes []Class, list []pack.Slice, shapes, budget int) (parts []string, work int, r Result) {
	byPart := map[string][]Node{}
	for _, n := range d.nodes {
		if n.Part != "" {
			byPart[n.Part] = append(byPart[n.Part], n)
		}
	}
	names := api.SortedKeys(byPart)
	free, sometime, left := make([][]int64, len(names)), make([][]int64, len(names)), make([][]int64, len(names))
	for i, name := range names {
		free[i], sometime[i], _ = rooms(classes, byPart[name])
		left[i] = slices.Clone(sometime[i])
	}
	each := shapes*(len(names)+bits.Len(uint(shapes)))*(2+len(classes)) + len(list)*(8+len(classes)+len(names)/64)
	if work = 2 * each; work > budget {
		return nil, 0, Spent
	}
	at, _ := pack.Into(free, list, true)
	var rest []pack.Slice
	for s, part := range at {
		if part < 0 {
			rest = append(rest, list[s])
			continue
		}
		for class, n := range list[s].Pods {
			left[part][class] -= n
		}
	}
	later, put := pack.Into(left, rest, true)
	if put < len(rest) { // what is free now is not where the others would go
		if work += 2 * each; work > budget {
			return nil, work - 2*each, Spent
		}
		if at, put = pack.Into(sometime, list, true); put < len(list) {
			if at, put = pack.Into(sometime, list, false); put < len(list) {
				return nil, work, None
			}
		}
		later = nil
	}
	parts = make([]string, len(list))
	for s, part := range at {
		if part < 0 {
			part, later = later[0], later[1:]
		}
		parts[s] = names[part]
	}
	return parts, work, Found
}

// cost is what a plan destroys.
type cost struct {
	pods  int64 // that it evicts, as far as is known
	gangs int   // that go as a whole
	who   []int // Candidate.Alike of each victim
}

func (c cost) compare(o cost) int {
	return cmp.Or(cmp.Compare(c.pods, o.pods), cmp.Compare(c.gangs, o.gangs), slices.Compare(c.who, o.who))
}

func (p *Plan) costOf(m *Mandate) cost {
	c := cost{pods: int64(len(p.Pods)), gangs: len(p.Victims)}
	for _, v := range p.Victims {
		c.pods += max(1, m.Candidates[v].Demand.Value("pods"))
		c.who = append(c.who, m.Candidates[v].Alike)
	}
	for _, s := range p.Pods {
		c.who = append(c.who, m.Candidates[s.Candidate].Alike)
	}
	slices.Sort(c.who)
	return c
}
