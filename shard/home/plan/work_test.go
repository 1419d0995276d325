package plan

import (
	"fmt"
	"testing"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/shard/home/pack"
)

// hard is a problem that takes much work.
type hard struct {
	name    string
	classes []Class
	list    []pack.Slice
	nodes   []Node
	m       *Mandate
	single  bool // for Find
}

func cpus(n int64) api.Resources { return api.Resources{{Resource: "cpu", Value: n}} }

// hardest returns the problems that take most work: of each step, one that does it as often as possible.
func hardest() (out []hard) {
	const most = 4096 // candidates, as in coordinator/offer.go
	one := func(i int) Candidate {
		return Candidate{Gang: fmt.Sprintf("victim-with-a-long-uid-%d", i), Queue: "root.a.b.q", Demand: cpus(1), Side: 1}
	}
	pods := []Class{{Requests: cpus(1), Pods: 1}}
	ten := func() *Mandate { // of which ten may go, and fifty are needed
		m := &Mandate{Lacks: []Lack{{"root.a.b.q", "cpu", 50}}, Sides: []Side{{Above: cpus(10)}}}
		for i := range most {
			m.Candidates = append(m.Candidates, one(i))
		}
		return m
	}
	free := func(domains int) (nodes []Node) {
		for i := range domains {
			nodes = append(nodes, Node{Shard: "s0", Domain: fmt.Sprint(i), Free: cpus(100), Classes: []uint32{0}})
		}
		return nodes
	}
	out = append(out, hard{name: "sets", classes: pods, nodes: free(8), m: ten()}, hard{name: "sets, one domain", classes: pods, nodes: free(1), m: ten(), single: true})
	deep := ten() // sides below sides
	for i := range 16 {
		deep.Sides = append(deep.Sides, Side{Parent: i + 1, Above: cpus(10), Spare: cpus(4000)})
	}
	for i := range deep.Candidates {
		deep.Candidates[i].Side = len(deep.Sides)
	}
	out = append(out, hard{name: "deep sides", classes: pods, nodes: free(8), m: deep})

	surplus := ten()
	for i := range surplus.Candidates[:most/4] { // as many surplus pods as a home looks at
		c := &surplus.Candidates[i]
		c.Demand, c.Surplus = cpus(4), 3
		for k := range 4 {
			c.Pods = append(c.Pods, Pod{UID: fmt.Sprintf("%s-%d", c.Gang, k), Amounts: cpus(1)})
		}
	}
	out = append(out, hard{name: "surplus", classes: pods, nodes: free(8), m: surplus})

	// All candidates are on each of the eight nodes, and needed there together.
	crowd := &Mandate{Sides: []Side{{Above: cpus(1 << 40)}}}
	for i := range most {
		c := one(i)
		c.Demand = cpus(8)
		crowd.Candidates = append(crowd.Candidates, c)
	}
	var crowded []Node
	for i := range 8 {
		n := Node{Shard: "s0", Domain: fmt.Sprint(i), Classes: []uint32{0, 1, 2, 3}}
		for _, c := range crowd.Candidates {
			n.Leaves = append(n.Leaves, Leaves{Gang: c.Gang, Amounts: cpus(1)})
		}
		crowded = append(crowded, n)
	}
	kinds := func(n int) (classes []Class) {
		for i := range n {
			classes = append(classes, Class{Requests: cpus(int64(1 + i)), Pods: most / n / (i + 1)})
		}
		return classes
	}
	out = append(out, hard{name: "crowded nodes", classes: kinds(4), nodes: crowded, m: crowd},
		hard{name: "a crowded node and a large pod", classes: []Class{{Requests: cpus(most), Pods: 1}}, nodes: crowded, m: crowd})

	// Each candidate has a pod on 8 of 4,096 nodes, and the pods that take their room are of several kinds.
	spread := &Mandate{Lacks: []Lack{{"root", "cpu", 8 * most / 2}}, Sides: []Side{{Above: cpus(1 << 40)}}}
	nodes := make([]Node, most)
	for n := range nodes {
		nodes[n] = Node{Shard: "s0", Domain: fmt.Sprint(n % 8), Part: fmt.Sprint(n), Free: cpus(int64(n % 3))}
		for i := range 16 {
			nodes[n].Classes = append(nodes[n].Classes, uint32(i))
		}
	}
	for i := range most {
		c := one(i)
		c.Demand = cpus(8)
		for k := range 8 {
			n := &nodes[(i*7+k*512+k)%most]
			n.Leaves = append(n.Leaves, Leaves{Gang: c.Gang, Amounts: cpus(1)})
		}
		spread.Candidates = append(spread.Candidates, c)
	}
	var several []Class
	for i := range 16 {
		several = append(several, Class{Requests: cpus(int64(1 + i%5)), Pods: 40})
	}
	out = append(out, hard{name: "many kinds", classes: several, nodes: nodes, m: spread},
		hard{name: "many kinds, anywhere", classes: several, nodes: nodes, m: spread, single: true})

	// Of gangs with surplus pods, these go first, and then the gangs in their place.
	replaced := &Mandate{Sides: []Side{{Above: cpus(1 << 40), Spare: cpus(1 << 40)}, {Parent: 1, Above: cpus(1 << 40), Spare: cpus(3000)}}}
	homes := make([]Node, most)
	for n := range homes {
		homes[n] = Node{Shard: "s0", Domain: fmt.Sprint(n % 8), Classes: []uint32{0, 1}}
		c := one(n)
		c.Side, c.Demand, c.Surplus, c.Pods = 2, cpus(2), 1, []Pod{{UID: c.Gang + "-1", Amounts: cpus(1)}}
		homes[n].Leaves = []Leaves{{Gang: c.Gang, Amounts: cpus(1)}, {Gang: c.Gang + "-1", Amounts: cpus(1)}}
		replaced.Candidates = append(replaced.Candidates, c)
	}
	both := []Class{{Requests: cpus(2), Pods: 300}, {Requests: cpus(1), Pods: 300}}
	out = append(out, hard{name: "gangs in place of their surplus", classes: both, nodes: homes, m: replaced, single: true})

	// 64 kinds of pods with 16 resources each.
	var rich []Class
	for i := range MaxClasses {
		c := Class{Pods: 40}
		for r := range 16 {
			c.Requests = c.Requests.Add(api.Resources{{Resource: fmt.Sprintf("example.com/r%d", r), Value: int64(1 + (i+r)%7)}})
		}
		rich = append(rich, c)
	}
	wide := &Mandate{Lacks: []Lack{{"root", "example.com/r0", 5000}}, Sides: []Side{{Spare: cpus(1 << 40)}}}
	fields := make([]Node, most)
	for n := range fields {
		fields[n] = Node{Shard: "s0", Domain: fmt.Sprint(n % 8)}
		for i := range rich {
			fields[n].Classes = append(fields[n].Classes, uint32(i))
		}
		c := one(n)
		c.Demand = rich[n%MaxClasses].Requests
		wide.Sides[0].Above = c.Demand.Add(c.Demand)
		fields[n].Leaves = []Leaves{{Gang: c.Gang, Amounts: c.Demand}, {Gang: fmt.Sprint("other-", n%5), Amounts: c.Demand, Anyway: n%3 == 0}}
		wide.Candidates = append(wide.Candidates, c)
	}
	out = append(out, hard{name: "64 kinds of 16 resources", classes: rich, nodes: fields, m: wide}, hard{name: "64 kinds of 16 resources, anywhere", classes: rich, nodes: fields, m: wide, single: true})

	// Large pods take the room of many small ones, so that removing a victim displaces one of them, for which there is seldom room.
	displaced := &Mandate{Sides: []Side{{Above: cpus(1 << 40)}}}
	yards := make([]Node, 1024)
	for n := range yards {
		yards[n] = Node{Shard: "s0", Domain: fmt.Sprint(n % 8), Free: cpus(int64(n % 9)), Classes: []uint32{0, 1, 2}}
	}
	for i := range most {
		c := one(i)
		for k := range 10 {
			n := (i*13 + k*97) % len(yards)
			yards[n].Leaves = append(yards[n].Leaves, Leaves{Gang: c.Gang, Amounts: cpus(1)})
			c.Demand = c.Demand.Add(cpus(1))
		}
		displaced.Candidates = append(displaced.Candidates, c)
	}
	odd := []Class{{Requests: cpus(17), Pods: 1024}, {Requests: cpus(5), Pods: 2048}, {Requests: cpus(3), Pods: 2800}}
	out = append(out, hard{name: "displaced pods", classes: odd, nodes: yards, m: displaced, single: true})

	var list []pack.Slice
	small := []Class{}
	for i := range 16 {
		small = append(small, Class{Requests: cpus(1), Pods: 512 / 16})
		for range 512 / 16 {
			s := pack.Slice{Pods: make([]int64, 16), In: -1}
			s.Pods[i]++
			list = append(list, s)
		}
	}
	out = append(out, hard{name: "slices", classes: small, list: list, nodes: nodes, m: spread})
	var shapes []pack.Slice // no two of them alike
	for i := range 2000 {
		s := pack.Slice{Pods: make([]int64, 16), In: -1}
		s.Pods[i%16], s.Pods[(i+1+i/16%15)%16], s.Pods[(i+5)%16] = 1, 1, int64(1+i/240)
		shapes = append(shapes, s)
	}
	for i := range small {
		small[i].Pods = 0
		for _, s := range shapes[:20] {
			small[i].Pods += int(s.Pods[i])
		}
	}
	out = append(out, hard{name: "slices of many shapes", classes: small, list: shapes, nodes: nodes, m: spread})
	return out
}

// TestWorkIsBounded has problems that take most work: what was done never exceeds the budget by more than reading the problem, and one step in each
// domain. With the smallest budget, that is all that is done; a later step takes at most as much again.
func TestWorkIsBounded(t *testing.T) {
	for _, p := range hardest() {
		least, _ := p.find(1)
		for _, budget := range []int{100_000, 1_000_000, Budget} {
			if got, _ := p.find(budget); got.Work > budget+2*least.Work || got.Work == 0 {
				t.Errorf("%s: %d of a budget of %d, and reading and one step are %d", p.name, got.Work, budget, least.Work)
			}
		}
	}
}

// TestSetsAreCharged counts the sets that are tried: each costs what it takes to forget the one before it, also where no node is compared.
func TestSetsAreCharged(t *testing.T) {
	for _, p := range hardest() {
		if p.name != "sets, one domain" && p.name != "deep sides" {
			continue
		}
		var units []Single
		for i := range p.m.Candidates {
			units = append(units, Single{i, -1})
		}
		f := newFinder(p.classes, p.nodes[:1], p.m, units, Budget)
		f.restart()
		before := f.left
		f.restart()
		if cost, least := before-f.left, len(f.candidates)/128+len(f.sides); cost < least {
			t.Errorf("%s: to start over costs %d, want at least %d", p.name, cost, least)
		}
		before = f.left
		if f.allowed(0); before-f.left < len(f.sides) {
			t.Errorf("%s: to look at %d sides costs %d", p.name, len(f.sides), before-f.left)
		}
		before = f.left
		if f.choose(0); before-f.left < len(f.sides) {
			t.Errorf("%s: to count a victim at %d sides costs %d", p.name, len(f.sides), before-f.left)
		}
		if n := testing.AllocsPerRun(10, f.restart); n > 0 {
			t.Errorf("%s: to start over allocates %f times", p.name, n)
		}
	}
}

// TestTooManyParts ends at the limit of kinds of pods by domain.
func TestTooManyParts(t *testing.T) {
	var nodes []Node
	var list []pack.Slice
	for i := range 1000 {
		nodes = append(nodes, Node{Shard: "s0", Domain: "d", Part: fmt.Sprint(i), Classes: []uint32{0}, Leaves: []Leaves{{Gang: "v", Amounts: cpus(1)}}})
		list = append(list, pack.Slice{Pods: []int64{1}, In: -1})
	}
	m := &Mandate{Candidates: []Candidate{{Gang: "v", Queue: "q", Demand: cpus(1000)}}}
	p, to, result := FindTogether([]Class{{Requests: cpus(1), Pods: 1000}}, list, nodes, m, 0, 0)
	if want := "its slices would be in too many domains: its kinds of pods in each of them are more than 64, the limit"; result != None || p.Why != want || len(to.Of) > MaxClasses {
		t.Errorf("%d: %d kinds, %s, want %s", result, len(to.Of), p.Why, want)
	}
}

// TestFindTogetherInTurn has many domains that look better than the only one that has a plan: in each, either of two pods has room, but not both.
func TestFindTogetherInTurn(t *testing.T) {
	const domains = 40
	classes := []Class{{Requests: cpus(4), Pods: 1}, {Requests: cpus(3), Pods: 1}}
	for late := range domains {
		m := &Mandate{Candidates: []Candidate{{Gang: "v", Queue: "q", Demand: cpus(7)}}}
		var nodes []Node
		for i := range domains {
			domain := fmt.Sprintf("d%02d", i)
			sizes, free := []int64{5, 2}, []int64{4, 2}
			if i == late {
				sizes, free = []int64{4, 3}, []int64{0, 0}
			}
			for k, size := range sizes {
				nodes = append(nodes, Node{Shard: "s0", Domain: domain, Free: cpus(free[k]), Classes: []uint32{0, 1}, Leaves: []Leaves{{Gang: "v", Amounts: cpus(size - free[k])}}})
			}
		}
		for _, first := range []int{0, 7} {
			found := false
			for turn := first; turn < first+domains/4 && !found; turn++ {
				_, to, result := FindTogether(classes, nil, nodes, m, turn, 0)
				found = result == Found && to.Domain == fmt.Sprintf("d%02d", late)
			}
			if !found {
				t.Errorf("a plan in domain %d is not found within %d turns", late, domains/4)
			}
		}
	}
}

// TestHopelessDomains leaves out domains which do not have together what the pods request, although each kind of pods has room there.
func TestHopelessDomains(t *testing.T) {
	classes := []Class{{Requests: cpus(4), Pods: 1}, {Requests: cpus(3), Pods: 1}}
	var nodes []Node
	for i := range 40 {
		nodes = append(nodes, Node{Shard: "s0", Domain: fmt.Sprint(i), Free: cpus(6), Classes: []uint32{0, 1}})
	}
	nodes = append(nodes, Node{Shard: "s0", Domain: "z", Classes: []uint32{0, 1}, Leaves: []Leaves{{Gang: "v", Amounts: cpus(7)}}})
	m := &Mandate{Candidates: []Candidate{{Gang: "v", Queue: "q", Demand: cpus(7)}}}
	if p, to, result := FindTogether(classes, nil, nodes, m, 0, 0); result != Found || to.Domain != "z" {
		t.Errorf("%d in %q: %s", result, to.Domain, p.Why)
	}
}

// BenchmarkHardest measures the problems that take most work. None takes much longer than what the budget of work stands for.
func BenchmarkHardest(b *testing.B) {
	for _, p := range hardest() {
		b.Run(p.name, func(b *testing.B) {
			work := 0
			for b.Loop() {
				found, _ := p.find(0)
				work = found.Work
			}
			b.ReportMetric(float64(work), "work")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(work), "ns/work")
		})
	}
}

func (p *hard) find(budget int) (Plan, Result) {
	if p.single {
		return Find(p.classes, p.nodes, p.m, budget)
	}
	plan, _, result := FindTogether(p.classes, p.list, p.nodes, p.m, 0, budget)
	return plan, result
}
