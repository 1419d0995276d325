package plan

import (
	"errors"
	"fmt"
	"math/bits"
	"math/rand"
	"slices"
	"testing"

	"basalt.dev/basalt/api"
)

// problem is a small one for which all sets of victims can be tried.
type problem struct {
	classes []Class
	nodes   []Node
	m       *Mandate
}

func (p *problem) String() string {
	return fmt.Sprintf("classes %v\nnodes %v\nmandate %+v", p.classes, p.nodes, *p.m)
}

func some(rng *rand.Rand, resources []string, most int64) api.Resources {
	m := map[string]int64{}
	for _, r := range resources {
		if v := rng.Int63n(most + 1); v > 0 {
			m[r] = v
		}
	}
	return api.FromMap(m)
}

// shunned reports whether a node has a pod of a class that pods of this one may not meet.
func shunned(c Class, on []int) bool {
	for class, n := range on {
		if c.Shuns&(1<<class) != 0 && n > 0 {
			return true
		}
	}
	return false
}

// random makes a problem; in an elastic one, gangs may lose single pods.
func random(rng *rand.Rand, elastic bool) *problem {
	resources := []string{"cpu", "gpu"}[:1+rng.Intn(2)]
	p := &problem{m: &Mandate{}}
	for range 1 + rng.Intn(2) {
		c := Class{Requests: some(rng, resources, 4).Max(api.Resources{{Resource: "cpu", Value: 1}}), Pods: 1 + rng.Intn(3)}
		p.classes = append(p.classes, c)
	}
	for i := range p.classes {
		for k := range i + 1 {
			if rng.Intn(6) == 0 {
				p.classes[i].Shuns |= 1 << k
				p.classes[k].Shuns |= 1 << i
			}
		}
	}
	queues := []string{"a.x", "a.y", "b.x", "b.y"}
	most := 7
	if elastic {
		most = 4
	}
	for i := range 1 + rng.Intn(most) {
		queue := queues[rng.Intn(len(queues))]
		p.m.Candidates = append(p.m.Candidates, Candidate{Gang: fmt.Sprintf("v%d", i), Queue: queue, Demand: api.Resources{}})
	}
	for n := range 1 + rng.Intn(4) {
		node := Node{Shard: api.Incarnation(fmt.Sprintf("s%d", n%2)), Free: some(rng, resources, 3)}
		for class := range p.classes {
			if rng.Intn(5) > 0 {
				node.Classes = append(node.Classes, uint32(class))
			}
		}
		for i := range p.m.Candidates {
			if c := &p.m.Candidates[i]; rng.Intn(3) == 0 {
				amounts := some(rng, resources, 3)
				anyway := rng.Intn(8) == 0
				node.Leaves = append(node.Leaves, Leaves{Gang: c.Gang, Amounts: amounts, Anyway: anyway})
				if !anyway {
					c.Demand = c.Demand.Add(amounts)
				}
			}
		}
		if rng.Intn(6) == 0 {
			node.Leaves = append(node.Leaves, Leaves{Gang: "gone", Amounts: some(rng, resources, 3), Anyway: true})
		}
		p.nodes = append(p.nodes, node)
	}
	if elastic {
		p.divide(rng)
	}
	if rng.Intn(2) == 0 {
		for range 1 + rng.Intn(2) {
			p.m.Lacks = append(p.m.Lacks, Lack{Queue: []string{"a", "b", "a.x", "root"}[rng.Intn(4)], Resource: resources[rng.Intn(len(resources))], Short: 1 + rng.Int63n(6)})
		}
	}
	if rng.Intn(2) == 0 {
		sides := map[string]int{}
		for _, path := range []string{"a", "b", "a.x", "a.y", "b.x", "b.y"} {
			s := Side{Parent: sides[path[:1]], Above: some(rng, resources, 8), Borrowed: rng.Intn(6) == 0}
			if rng.Intn(3) == 0 {
				s.Spare = some(rng, resources, 9)
			}
			p.m.Sides = append(p.m.Sides, s)
			sides[path] = len(p.m.Sides)
		}
		for i := range p.m.Candidates {
			p.m.Candidates[i].Side = sides[p.m.Candidates[i].Queue]
		}
	} else if rng.Intn(3) == 0 {
		p.m.AtLeast = some(rng, resources, 4)
	}
	return p
}

// divide lets some gangs lose single pods: each of what a gang has on a node becomes that of one pod, or two.
func (p *problem) divide(rng *rand.Rand) {
	for i := range p.m.Candidates {
		c := &p.m.Candidates[i]
		if rng.Intn(3) == 0 {
			continue
		}
		for n := range p.nodes {
			var leaves []Leaves
			for _, l := range p.nodes[n].Leaves {
				if l.Gang != c.Gang || l.Anyway || len(c.Pods) == 4 {
					leaves = append(leaves, l)
					continue
				}
				rest := l.Amounts
				for k := rng.Intn(2); k >= 0; k-- {
					amounts := rest
					if k > 0 {
						amounts = some(rng, []string{"cpu", "gpu"}, 2).Min(rest)
						rest = rest.Sub(amounts).Positive()
					}
					pod := Pod{UID: fmt.Sprintf("%s-%d", c.Gang, len(c.Pods)), Amounts: amounts}
					c.Pods = append(c.Pods, pod)
					leaves = append(leaves, Leaves{Gang: pod.UID, Amounts: amounts})
				}
			}
			p.nodes[n].Leaves = leaves
		}
		rng.Shuffle(len(c.Pods), func(a, b int) { c.Pods[a], c.Pods[b] = c.Pods[b], c.Pods[a] })
		if c.Surplus = rng.Intn(3); len(c.Pods) <= c.Surplus {
			c.Surplus = max(0, len(c.Pods)-1)
		}
	}
}

// sets calls f with all sets of victims: of each gang nothing, all, or some of the pods that it may lose.
func (p *problem) sets(f func([]Single)) {
	var set []Single
	var add func(i int)
	add = func(i int) {
		if i == len(p.m.Candidates) {
			f(set)
			return
		}
		c := &p.m.Candidates[i]
		for pods := range 1 << len(c.Pods) {
			if bits.OnesCount(uint(pods)) > c.Surplus {
				continue
			}
			n := len(set)
			for k := range c.Pods {
				if pods&(1<<k) != 0 {
					set = append(set, Single{i, k})
				}
			}
			add(i + 1)
			set = set[:n]
		}
		set = append(set, Single{i, -1})
		add(i + 1)
		set = set[:len(set)-1]
	}
	add(0)
}

func (p *Plan) all() (out []Single) {
	for _, v := range p.Victims {
		out = append(out, Single{v, -1})
	}
	return append(out, p.Pods...)
}

func (p *problem) demand(v Single) api.Resources {
	if v.Pod < 0 {
		return p.m.Candidates[v.Candidate].Demand
	}
	return p.m.Candidates[v.Candidate].Pods[v.Pod].Amounts
}

// lawful judges the victims with regard to quota, straight from the words of the specification.
func (p *problem) lawful(victims []Single) (allowed, covers bool) {
	covers = true
	var all api.Resources
	for _, l := range p.m.Lacks {
		var freed int64
		for _, v := range victims {
			if c := p.m.Candidates[v.Candidate]; api.Under(c.Queue, l.Queue) {
				freed += p.demand(v).Value(l.Resource)
			}
		}
		covers = covers && freed >= l.Short
	}
	for _, v := range victims {
		all = all.Add(p.demand(v))
	}
	covers = covers && p.m.AtLeast.Fits(all)
	allowed = true
	for i, s := range p.m.Sides {
		var freed, smallest api.Resources
		within := 0
		for _, v := range victims {
			inside := false
			for k := p.m.Candidates[v.Candidate].Side; k > 0; k = p.m.Sides[k-1].Parent {
				inside = inside || k == i+1
			}
			if !inside {
				continue
			}
			within++
			d := p.demand(v).Positive()
			freed = freed.Add(d)
			for _, a := range d {
				if has, known := smallest.Get(a.Resource); !known {
					smallest = smallest.Add(api.Resources{a})
				} else if a.Value < has {
					smallest = smallest.Add(api.Resources{{Resource: a.Resource, Value: a.Value - has}})
				}
			}
		}
		if within == 0 {
			continue
		}
		enough := s.Borrowed
		for _, a := range s.Above {
			enough = enough || freed.Value(a.Resource)-smallest.Value(a.Resource) < a.Value
		}
		for _, a := range s.Spare {
			enough = enough && freed.Value(a.Resource) <= a.Value
		}
		allowed = allowed && enough
	}
	return allowed, covers
}

// packs reports whether pods of each class fit on the nodes of a shard ("" for all) once some gangs are gone there: exactly.
func (p *problem) packs(pods []int, shard api.Incarnation, gone func(Leaves) bool) bool {
	var free []api.Resources
	var nodes []Node
	for _, n := range p.nodes {
		if shard != "" && n.Shard != shard {
			continue
		}
		has := n.Free
		for _, l := range n.Leaves {
			if gone(l) {
				has = has.Add(l.Amounts)
			}
		}
		free, nodes = append(free, has), append(nodes, n)
	}
	on := make([][]int, len(nodes))
	for i := range on {
		on[i] = make([]int, len(p.classes))
	}
	left := slices.Clone(pods)
	var place func(class, from int) bool
	place = func(class, from int) bool {
		for class < len(left) && left[class] == 0 {
			class, from = class+1, 0
		}
		if class == len(left) {
			return true
		}
		c := p.classes[class]
		for n := from; n < len(nodes); n++ {
			if !slices.Contains(nodes[n].Classes, uint32(class)) || shunned(c, on[n]) || !c.Requests.Fits(free[n]) {
				continue
			}
			free[n] = free[n].Sub(c.Requests)
			on[n][class]++
			left[class]--
			if place(class, n) {
				return true
			}
			free[n] = free[n].Add(c.Requests)
			on[n][class]--
			left[class]++
		}
		return false
	}
	return place(0, 0)
}

func (p *problem) all() (pods []int) {
	for _, c := range p.classes {
		pods = append(pods, c.Pods)
	}
	return pods
}

func (p *problem) uid(v Single) string {
	if v.Pod < 0 {
		return p.m.Candidates[v.Candidate].Gang
	}
	return p.m.Candidates[v.Candidate].Pods[v.Pod].UID
}

// uids of victims, and of all pods of those that go as a whole.
func (p *problem) uids(victims []Single) (out []string) {
	for _, v := range victims {
		out = append(out, p.uid(v))
		if c := &p.m.Candidates[v.Candidate]; v.Pod < 0 {
			for _, pod := range c.Pods {
				out = append(out, pod.UID)
			}
		}
	}
	return out
}

// fine reports whether a set of victims is a plan.
func (p *problem) fine(victims []Single) bool {
	allowed, covers := p.lawful(victims)
	uids := p.uids(victims)
	return allowed && covers && p.packs(p.all(), "", func(l Leaves) bool { return l.Anyway || slices.Contains(uids, l.Gang) })
}

// valid says what is wrong with a plan whose pods go where shares say, nil for nothing.
func (p *problem) valid(got *Plan, shares []Share) error {
	victims := got.all()
	if len(victims) == 0 {
		return errors.New("has no victims")
	}
	if allowed, covers := p.lawful(victims); !allowed || !covers {
		return fmt.Errorf("is allowed %t and covers %t", allowed, covers)
	}
	for i, v := range victims {
		if _, still := p.lawful(slices.Delete(slices.Clone(victims), i, i+1)); still && !slices.Contains(got.Awaits, p.uid(v)) {
			return fmt.Errorf("does not need victim %v", v)
		}
	}
	uids := p.uids(victims)
	for _, uid := range got.Awaits {
		leaves := slices.ContainsFunc(p.nodes, func(n Node) bool {
			return slices.ContainsFunc(n.Leaves, func(l Leaves) bool { return l.Gang == uid && l.Anyway })
		})
		if !slices.Contains(uids, uid) && !leaves {
			return fmt.Errorf("awaits %s, which stays", uid)
		}
	}
	sum := make([]int, len(p.classes))
	for _, shard := range []api.Incarnation{"s0", "s1"} {
		pods := make([]int, len(p.classes))
		for _, s := range shares {
			if s.Shard == shard {
				pods[s.Class] += s.Pods
				sum[s.Class] += s.Pods
			}
		}
		gone := func(l Leaves) bool {
			if l.Anyway {
				return slices.Contains(got.Awaits, l.Gang)
			}
			return slices.ContainsFunc(victims, func(v Single) bool { // a gang that is awaited is so with all of its pods
				return slices.Contains(got.Awaits, p.uid(v)) && slices.Contains(p.uids([]Single{v}), l.Gang)
			})
		}
		if !p.packs(pods, shard, gone) {
			return fmt.Errorf("has no room at %s", shard)
		}
	}
	if !slices.Equal(sum, p.all()) {
		return fmt.Errorf("places %v pods", sum)
	}
	return nil
}

// TestFindAgainstAllSets compares Find with a search over all sets of candidates. Every plan that it finds has to be valid: the sides
// allow the victims, they cover what is lacking, the pods of each shard have room there once the gangs that it awaits are gone, and
// no victim that gives quota alone can be left out. Where there is a plan, Find has to find one in at least 96 of 100 cases (97.2 when this was written; most of the others are missed because pods take free room first).
//
// Where gangs may lose single pods, no gang goes as a whole where surplus pods alone would do, but in 1 of 25 such cases (1 of 33 when this was written).
func TestFindAgainstAllSets(t *testing.T) {
	t.Run("gangs", func(t *testing.T) { testFind(t, false) })
	t.Run("surplus", func(t *testing.T) { testFind(t, true) })
}

func testFind(t *testing.T, elastic bool) {
	singles, whole := 0, 0
	solvable, found, smallest, reducible, missed := 0, 0, 0, 0, 0
	const problems = 30000
	for seed := range int64(problems) {
		p := random(rand.New(rand.NewSource(seed)), elastic)
		got, result := Find(p.classes, p.nodes, p.m, 0)
		least := -1
		spares := false // surplus pods alone would do
		isWhole := func(v Single) bool { return v.Pod < 0 }
		p.sets(func(victims []Single) {
			better := least < 0 || len(victims) < least
			if alone := !slices.ContainsFunc(victims, isWhole) && len(victims) > 0; (better || alone && !spares) && p.fine(victims) {
				spares = spares || alone
				if better {
					least = len(victims)
				}
			}
		})
		if len(p.m.Lacks) == 0 && p.packs(p.all(), "", func(l Leaves) bool { return l.Anyway }) {
			least = 0 // AtLeast alone evicts nobody
		}
		if least == 0 {
			if result == Found && len(p.m.Lacks) == 0 && len(got.Victims) > 0 {
				reducible++
			}
			if result != Found {
				continue
			}
		} else if least > 0 {
			solvable++
		}
		if result == Spent {
			t.Fatalf("seed %d: the budget was spent\n%s", seed, p)
		}
		if result == None {
			if least > 0 && missed < 6 && testing.Verbose() {
				missed++
				t.Logf("seed %d: missed one of %d: %s\n%s", seed, least, got.Why, p)
			}
			if got.Why == "" {
				t.Fatalf("seed %d: no plan, and no reason\n%s", seed, p)
			}
			continue
		}
		if least > 0 {
			found++
		}
		victims := got.all()
		if len(victims) == least {
			smallest++
		}
		if spares && least > 0 {
			if singles++; len(got.Victims) > 0 {
				whole++
			}
		}
		for i, c := range p.m.Candidates {
			n := 0
			for _, v := range got.Pods {
				if v.Candidate == i {
					n++
				}
			}
			if n > c.Surplus || n > 0 && slices.Contains(got.Victims, i) {
				t.Fatalf("seed %d: %+v takes %d pods of gang %d\n%s", seed, got, n, i, p)
			}
		}
		if err := p.valid(&got, got.Shares); err != nil {
			t.Fatalf("seed %d: %+v %v\n%s", seed, got, err, p)
		}
		for i := range victims {
			if p.fine(slices.Delete(slices.Clone(victims), i, i+1)) {
				reducible++
				break
			}
		}
	}
	t.Logf("%d of %d problems have a plan; found %d (%.2f%%), %d of them with the fewest victims, %d with one too many",
		solvable, problems, found, 100*float64(found)/float64(solvable), smallest, reducible)
	if elastic {
		t.Logf("in %d of %d cases in which surplus pods would do, a gang goes as a whole", whole, singles)
		if whole > singles/25 {
			t.Errorf("too many")
		}
	}
	if found < solvable*96/100 {
		t.Errorf("found %d of %d plans", found, solvable)
	}
}

// TestFind has examples, one for each step.
func TestFind(t *testing.T) {
	cpu := func(n int64) api.Resources { return api.Resources{{Resource: "cpu", Value: n}} }
	victim := func(uid string, n int64) Candidate { return Candidate{Gang: uid, Queue: "q", Demand: cpu(n)} }
	for _, test := range []struct {
		name    string
		classes []Class
		nodes   []Node
		m       Mandate
		want    string
	}{
		{"quota alone", []Class{{Requests: cpu(1), Pods: 2}}, []Node{{Shard: "a", Free: cpu(2), Classes: []uint32{0}}},
			Mandate{Lacks: []Lack{{"q", "cpu", 2}}, Candidates: []Candidate{victim("u", 1), victim("v", 2)}}, "1 [1] [] awaits [] [{a 0 2}]"},
		{"room of one that leaves anyway", []Class{{Requests: cpu(1), Pods: 1}}, []Node{{Shard: "a", Classes: []uint32{0}, Leaves: []Leaves{{Gang: "gone", Amounts: cpu(1), Anyway: true}}}},
			Mandate{Lacks: []Lack{{"q", "cpu", 1}}, Candidates: []Candidate{victim("v", 1)}}, "1 [0] [] awaits [gone] [{a 0 1}]"},
		{"two on one node", []Class{{Requests: cpu(4), Pods: 1}}, []Node{
			{Shard: "a", Classes: []uint32{0}, Leaves: []Leaves{{Gang: "u", Amounts: cpu(2)}}},
			{Shard: "b", Classes: []uint32{0}, Leaves: []Leaves{{Gang: "v", Amounts: cpu(2)}, {Gang: "w", Amounts: cpu(2)}}}},
			Mandate{Candidates: []Candidate{victim("u", 2), victim("v", 2), victim("w", 2)}}, "1 [1 2] [] awaits [v w] [{b 0 1}]"},
		{"the large one, as both are too many", []Class{{Requests: cpu(1), Pods: 1}}, []Node{{Shard: "a", Free: cpu(1), Classes: []uint32{0}}},
			Mandate{Lacks: []Lack{{"q", "cpu", 5}}, Sides: []Side{{Above: cpu(3)}}, Candidates: []Candidate{
				{Gang: "u", Queue: "q", Demand: cpu(1), Side: 1}, {Gang: "v", Queue: "q", Demand: cpu(5), Side: 1}, {Gang: "w", Queue: "q", Demand: cpu(4), Side: 1}}}, "1 [1] [] awaits [] [{a 0 1}]"},
		{"places for volumes", []Class{{Requests: api.FromMap(map[string]int64{"cpu": 1, api.VolumesOf("d"): 1}), Pods: 2}}, []Node{
			{Shard: "a", Free: api.FromMap(map[string]int64{api.VolumesOf("d"): 1}), Classes: []uint32{0}, Leaves: []Leaves{{Gang: "u", Amounts: cpu(2)}}},
			{Shard: "b", Free: api.FromMap(map[string]int64{api.VolumesOf("d"): 1}), Classes: []uint32{0}, Leaves: []Leaves{{Gang: "v", Amounts: cpu(1)}}}},
			Mandate{Candidates: []Candidate{victim("u", 2), victim("v", 1)}}, "1 [0 1] [] awaits [u v] [{a 0 1} {b 0 1}]"},
		{"too little", []Class{{Requests: cpu(3), Pods: 1}}, []Node{{Shard: "a", Classes: []uint32{0}, Leaves: []Leaves{{Gang: "v", Amounts: cpu(2)}}}},
			Mandate{Candidates: []Candidate{victim("v", 2)}}, "0 1 of 1 pods would have no room even without all gangs that could be evicted"},
		{"too little quota", []Class{{Requests: cpu(1), Pods: 1}}, []Node{{Shard: "a", Free: cpu(1), Classes: []uint32{0}}},
			Mandate{Lacks: []Lack{{"q", "cpu", 5000}}, Candidates: []Candidate{victim("v", 2000)}}, `0 all gangs that could be evicted together free cpu=2 of the 5 that queue "q" lacks`},
		{"nobody", []Class{{Requests: cpu(1), Pods: 1}}, []Node{{Shard: "a", Free: cpu(1), Classes: []uint32{0}}}, Mandate{Candidates: []Candidate{victim("v", 2)}}, "0 " + roomThere},
		{"surplus before a gang", []Class{{Requests: cpu(1), Pods: 1}}, []Node{
			{Shard: "a", Classes: []uint32{0}, Leaves: []Leaves{{Gang: "u", Amounts: cpu(1)}, {Gang: "v-2", Amounts: cpu(1)}, {Gang: "v", Amounts: cpu(1)}}}},
			Mandate{Lacks: []Lack{{"q", "cpu", 1}}, Candidates: []Candidate{victim("u", 1), {Gang: "v", Queue: "q", Demand: cpu(2), Surplus: 1, Pods: []Pod{{"v-2", cpu(1)}}}}}, "1 [] [{1 0}] awaits [v-2] [{a 0 1}]"},
		{"a gang in place of its surplus", []Class{{Requests: cpu(3), Pods: 1}}, []Node{
			{Shard: "a", Classes: []uint32{0}, Leaves: []Leaves{{Gang: "v-2", Amounts: cpu(1)}, {Gang: "v", Amounts: cpu(2)}, {Gang: "w-2", Amounts: cpu(1)}}}},
			Mandate{Lacks: []Lack{{"q", "cpu", 3}}, Candidates: []Candidate{
				{Gang: "v", Queue: "q", Demand: cpu(3), Surplus: 1, Pods: []Pod{{"v-2", cpu(1)}}}, {Gang: "w", Queue: "q", Demand: cpu(2), Surplus: 1, Pods: []Pod{{"w-2", cpu(1)}}}}}, "1 [0] [] awaits [v] [{a 0 1}]"},
		// What follows are cases from the tests of KAI-Scheduler and YuniKorn in which room decides, told anew.
		{"nobody where another node has room", []Class{{Requests: cpu(3), Pods: 1}}, []Node{
			{Shard: "a", Free: cpu(8), Classes: []uint32{0}}, {Shard: "b", Classes: []uint32{0}, Leaves: []Leaves{{Gang: "v", Amounts: cpu(2)}}}},
			Mandate{Candidates: []Candidate{victim("v", 2)}}, "0 " + roomThere},
		{"nobody for half a gang", []Class{{Requests: cpu(1), Pods: 2}}, []Node{{Shard: "a", Classes: []uint32{0}, Leaves: []Leaves{{Gang: "v", Amounts: cpu(1)}}}},
			Mandate{Candidates: []Candidate{victim("v", 1)}}, "0 1 of 2 pods would have no room even without all gangs that could be evicted"},
		{"nobody where two nodes do not make one", []Class{{Requests: cpu(5), Pods: 1}}, []Node{
			{Shard: "a", Free: cpu(1), Classes: []uint32{0}, Leaves: []Leaves{{Gang: "u", Amounts: cpu(2)}}},
			{Shard: "b", Free: cpu(1), Classes: []uint32{0}, Leaves: []Leaves{{Gang: "v", Amounts: cpu(2)}}}},
			Mandate{Lacks: []Lack{{"q", "cpu", 3}}, Candidates: []Candidate{victim("u", 2), victim("v", 2)}}, "0 1 of 1 pods would have no room even without all gangs that could be evicted"},
		{"nobody for a pod that fits no node", []Class{{Requests: cpu(1), Pods: 1}}, full(1000, 8, nil), Mandate{Candidates: victims(1000, 8)},
			"0 1 of 1 pods would have no room even without all gangs that could be evicted"},
	} {
		t.Run(test.name, func(t *testing.T) {
			p, result := Find(test.classes, test.nodes, &test.m, 0)
			got := fmt.Sprintf("%d %v %v awaits %v %v", result, p.Victims, p.Pods, p.Awaits, p.Shares)
			if result != Found {
				got = fmt.Sprintf("%d %s", result, p.Why)
			}
			if got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

// TestFindAll evicts everybody for a gang that needs all of a cluster, as KAI-Scheduler's test of a full drain does: 11 nodes with four victims
// each, for 11 pods that need a node each.
func TestFindAll(t *testing.T) {
	nodes, candidates := full(11, 4, []uint32{0}), victims(11, 4)
	p, result := Find([]Class{{Requests: api.Resources{{Resource: "cpu", Value: 4}}, Pods: 11}}, nodes, &Mandate{Candidates: candidates}, 0)
	if result != Found || len(p.Victims) != len(candidates) || len(p.Shares) != len(nodes) {
		t.Fatalf("%d: %d victims of %d, on %d nodes, %s", result, len(p.Victims), len(candidates), len(p.Shares), p.Why)
	}
}

// full are nodes with so many victims of one CPU each, and nothing free.
func full(nodes, each int, classes []uint32) (out []Node) {
	for n := range nodes {
		node := Node{Shard: api.Incarnation(fmt.Sprintf("s%d", n)), Classes: classes}
		for v := range each {
			node.Leaves = append(node.Leaves, Leaves{Gang: fmt.Sprintf("v%d-%d", n, v), Amounts: api.Resources{{Resource: "cpu", Value: 1}}})
		}
		out = append(out, node)
	}
	return out
}

// victims are those of full.
func victims(nodes, each int) (out []Candidate) {
	for n := range nodes {
		for v := range each {
			out = append(out, Candidate{Gang: fmt.Sprintf("v%d-%d", n, v), Queue: "q", Demand: api.Resources{{Resource: "cpu", Value: 1}}})
		}
	}
	return out
}

// BenchmarkFind is a gang of 10,000 pods, for which 1,000 gangs with 10 pods each are evicted on 5,000 nodes.
func BenchmarkFind(b *testing.B) {
	for _, lacks := range []bool{false, true} {
		rng := rand.New(rand.NewSource(1))
		pod := api.FromMap(map[string]int64{"cpu": 1000, "memory": 4 << 30, "pods": 1})
		classes := []Class{{Requests: pod, Pods: 10000}}
		m := &Mandate{}
		nodes := make([]Node, 5000)
		for n := range nodes {
			nodes[n] = Node{Shard: api.Incarnation(fmt.Sprintf("s%d", n%8)), Classes: []uint32{0}, Free: api.FromMap(map[string]int64{"cpu": 500, "memory": 1 << 30, "pods": 80})}
		}
		for v := range 1000 {
			c := Candidate{Gang: fmt.Sprintf("v%d", v), Queue: "q.a", Side: 1}
			for range 10 {
				n := rng.Intn(len(nodes))
				nodes[n].Leaves = append(nodes[n].Leaves, Leaves{Gang: c.Gang, Amounts: pod})
				c.Demand = c.Demand.Add(pod)
			}
			m.Candidates = append(m.Candidates, c)
		}
		m.Sides = []Side{{Above: api.Resources{{Resource: "cpu", Value: 1 << 40}}}}
		if lacks {
			m.Lacks = []Lack{{"q", "cpu", 10_000_000}, {"q", "memory", 10000 * 4 << 30}}
		}
		b.Run(fmt.Sprintf("lacks=%t", lacks), func(b *testing.B) {
			for b.Loop() {
				if p, result := Find(classes, nodes, m, 0); result != Found || len(p.Victims) != 1000 {
					b.Fatalf("%d: %d victims, %s", result, len(p.Victims), p.Why)
				}
			}
		})
	}
}

// BenchmarkFindHalf is one where half of 2,000 gangs, with 8 small pods each on one of 2,000 nodes, have to go for 1,000 pods that
// need a node each.
func BenchmarkFindHalf(b *testing.B) {
	rng := rand.New(rand.NewSource(1))
	small, large := api.FromMap(map[string]int64{"cpu": 1000, "pods": 1}), api.FromMap(map[string]int64{"cpu": 8000, "pods": 1})
	m := &Mandate{}
	nodes := make([]Node, 2000)
	for n := range nodes {
		nodes[n] = Node{Shard: api.Incarnation(fmt.Sprintf("s%d", n%8)), Classes: []uint32{0}, Free: api.FromMap(map[string]int64{"pods": 80})}
		for i := range 4 {
			c := Candidate{Gang: fmt.Sprintf("v%d-%d", n, i), Queue: "q.a", Demand: small.Add(small)}
			nodes[n].Leaves = append(nodes[n].Leaves, Leaves{Gang: c.Gang, Amounts: c.Demand})
			m.Candidates = append(m.Candidates, c)
		}
	}
	rng.Shuffle(len(m.Candidates), func(i, j int) { m.Candidates[i], m.Candidates[j] = m.Candidates[j], m.Candidates[i] })
	for b.Loop() {
		if p, result := Find([]Class{{Requests: large, Pods: 1000}}, nodes, m, 0); result != Found || len(p.Victims) != 4000 {
			b.Fatalf("%d: %d victims, %s", result, len(p.Victims), p.Why)
		}
	}
}

// Who bars a class from a node goes, whatever room there is; of several all, and nobody where it may go anyhow.
func TestBars(t *testing.T) {
	cpu := func(n int64) api.Resources { return api.FromMap(map[string]int64{"cpu": n}) }
	m := &Mandate{}
	for _, gang := range []string{"v", "w", "x"} {
		m.Candidates = append(m.Candidates, Candidate{Gang: gang, Demand: cpu(1)})
	}
	barred := func(by ...string) Node {
		n := Node{Shard: "s", Free: cpu(9), Classes: []uint32{0, 1}}
		for _, gang := range []string{"v", "w", "x"} {
			l := Leaves{Gang: gang, Amounts: cpu(1)}
			if slices.Contains(by, gang) {
				l.Bars = []uint32{0}
			}
			n.Leaves = append(n.Leaves, l)
		}
		return n
	}
	other := func(l Leaves) []Node {
		return []Node{{Shard: "s", Free: cpu(9), Classes: []uint32{0}, Leaves: []Leaves{l}}}
	}
	const noRoom = "1 of 1 pods would have no room even without all gangs that could be evicted"
	for name, o := range map[string]struct {
		pods  [2]int // of a class that is barred, and of another one
		nodes []Node
		want  string
	}{
		"one":                  {[2]int{1, 0}, []Node{barred("w")}, "[1]"},
		"one of many pods":     {[2]int{5, 1}, []Node{barred("w")}, "[1]"},
		"two":                  {[2]int{1, 0}, []Node{barred("v", "x")}, "[0 2]"},
		"three":                {[2]int{1, 3}, []Node{barred("v", "w", "x")}, "[0 1 2]"},
		"the fewest":           {[2]int{1, 0}, []Node{barred("v", "x"), barred("w")}, "[1]"},
		"nobody":               {[2]int{1, 0}, []Node{barred("v", "x"), barred()}, roomThere},
		"another class":        {[2]int{0, 3}, []Node{barred("v", "x")}, roomThere},
		"who is no candidate":  {[2]int{1, 0}, other(Leaves{Gang: "z", Bars: []uint32{0}}), noRoom},
		"who leaves anyway":    {[2]int{1, 0}, other(Leaves{Gang: "z", Anyway: true, Bars: []uint32{0}}), roomThere},
		"a class out of range": {[2]int{1, 0}, other(Leaves{Gang: "v", Bars: []uint32{7}}), roomThere},
	} {
		classes := []Class{{Requests: cpu(1), Pods: o.pods[0]}, {Requests: cpu(1), Pods: o.pods[1]}}
		if o.pods[1] == 0 {
			classes = classes[:1]
		}
		p, result := Find(classes, o.nodes, m, 0)
		got := p.Why
		if result == Found {
			got = fmt.Sprint(p.Victims)
		}
		if got != o.want {
			t.Errorf("%s: %s, want %s", name, got, o.want)
		}
		for i := range o.nodes {
			o.nodes[i].Domain = "d"
		}
		together, _, found := FindTogether(classes, nil, o.nodes, m, 0, 0)
		if found != result || found == Found && !slices.Equal(together.Victims, p.Victims) {
			t.Errorf("%s, in one domain: %v %v", name, found, together)
		}
	}
}
