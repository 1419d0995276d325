package coordinator

import (
	"fmt"
	"math"
	"math/rand"
	"slices"
	"testing"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/bench/prove/seeds"
)

// judged is a queue as an independent judge of what it deserves and of its fair share sees it, in floating-point
// numbers.
type judged struct {
	*queue
	children           []*judged
	wants, deserves, F map[string]float64
}

func judge(q *queue, names []string) *judged {
	j := &judged{queue: q, wants: map[string]float64{}, deserves: map[string]float64{}, F: map[string]float64{}}
	for _, c := range q.children {
		j.children = append(j.children, judge(c, names))
	}
	for _, name := range names {
		if len(j.children) == 0 {
			j.wants[name] = float64(q.charged.get(name).amount() + q.asked.get(name).amount())
		}
		for _, c := range j.children {
			j.wants[name] += c.wants[name]
			j.deserves[name] += c.deserves[name]
		}
		if q.limits != nil {
			if d, is := q.limits.deserved.Get(name); is {
				j.deserves[name] = float64(d)
			}
			if limit, limited := q.limits.capability.Get(name); limited {
				j.wants[name], j.deserves[name] = min(j.wants[name], float64(limit)), min(j.deserves[name], float64(limit))
			}
		}
	}
	return j
}

// cut divides what a queue deserves among its children: those that say something first, in proportion.
func (j *judged) cut(names []string) {
	for _, name := range names {
		left := j.deserves[name]
		for _, says := range []bool{true, false} {
			sum := 0.0
			of := func(f func(c *judged)) {
				for _, c := range j.children {
					if c.limits != nil && c.names(name) == says || c.limits == nil && !says {
						f(c)
					}
				}
			}
			of(func(c *judged) { sum += c.deserves[name] })
			if sum > left {
				of(func(c *judged) { c.deserves[name] *= left / sum })
			}
			left -= min(sum, left)
		}
	}
	for _, c := range j.children {
		c.cut(names)
	}
}

// pour gives the children what they deserve or want, and then has all those of one priority take a little in turn, in
// proportion to their weights of what they want the largest part of the parent's limit of, among what they want more
// of than there is.
func (j *judged) pour(names []string) {
	left := map[string]float64{}
	for _, name := range names {
		left[name] = j.F[name]
		for _, c := range j.children {
			c.F[name] = min(c.wants[name], c.deserves[name])
			left[name] -= c.F[name]
		}
	}
	group := func(c *judged) int64 {
		g := -2 * int64(c.limits.priority())
		if c.limits.weight() == 0 {
			g++
		}
		return g
	}
	groups := map[int64][]*judged{}
	var order []int64
	for _, c := range j.children {
		if groups[group(c)] == nil {
			order = append(order, group(c))
		}
		groups[group(c)] = append(groups[group(c)], c)
	}
	slices.Sort(order)
	for _, g := range order {
		lacked := map[string]bool{}
		for _, name := range names {
			sum := 0.0
			for _, c := range groups[g] {
				sum += c.wants[name] - c.F[name]
			}
			lacked[name] = sum > left[name]
		}
		pace := map[*judged]map[string]float64{}
		for _, c := range groups[g] {
			pace[c] = map[string]float64{}
			top := 0.0
			for _, name := range names {
				if !lacked[name] {
					left[name] -= c.wants[name] - c.F[name]
					c.F[name] = c.wants[name]
				} else if limit := float64(j.pool.Value(name)); limit > 0 {
					pace[c][name] = c.wants[name] - c.F[name]
					top = max(top, pace[c][name]/limit)
				}
			}
			for name := range pace[c] {
				pace[c][name] *= max(1, float64(c.limits.weight())) / max(top, 1e-12) / 8000
			}
		}
		for more := true; more; {
			more = false
			for _, name := range names {
				for _, c := range groups[g] {
					if d := min(pace[c][name], c.wants[name]-c.F[name], left[name]); d > 1e-6 {
						more = true
						c.F[name] += d
						left[name] -= d
					}
				}
			}
		}
	}
	for _, c := range j.children {
		c.pour(names)
	}
}

// What queues deserve, and their fair shares, are right at every level: in random trees with 2 to 4 resources of
// which some nobody lacks, siblings that deserve more than there is, and queues that say nothing of what they
// deserve.
func TestFairShares(t *testing.T) {
	rng, rounds := rand.New(rand.NewSource(1)), 300
	if !seeds.InFull() {
		rng, rounds = rand.New(rand.NewSource(int64(seeds.ByDate(t, 1)))), 40
	}
	for round := range rounds {
		names := []string{"cpu", "gpu", "memory", "pods"}[:2+rng.Intn(3)]
		tree := newTree()
		amounts := func(most int64, of ...string) api.Resources {
			m := map[string]int64{}
			for _, name := range of {
				m[name] = rng.Int63n(most)
			}
			return api.FromMap(m)
		}
		some := func() []string { return names[:rng.Intn(len(names)+1)] }
		tree.root.limits = &limits{record: &wire.LimitsRecord{}}
		pool := amounts(1_000_000, names...)
		if rng.Intn(2) == 0 { // what nobody lacks
			pool[rng.Intn(len(pool))].Value = 1_000_000_000
		}
		if rng.Intn(2) == 0 {
			tree.root.gate.pool = pool
		} else {
			tree.root.limits.capability = pool
		}
		var below func(path string, level int)
		below = func(path string, level int) {
			q := tree.at(path)
			q.limits = &limits{record: &wire.LimitsRecord{Weight: new(uint32(rng.Intn(4))), Priority: int32(rng.Intn(8) / 7)}}
			if rng.Intn(3) == 0 {
				q.limits.capability = amounts(1_000_000, some()...)
			}
			if rng.Intn(2) == 0 {
				q.limits.deserved = amounts(400_000, some()...)
			}
			if level < 3 && rng.Intn(2) == 0 {
				for i := range 1 + rng.Intn(3) {
					below(fmt.Sprintf("%s.q%d", path, i), level+1)
				}
				return
			}
			tree.charge(q, amounts(200_000, names...))
			q.ask(amounts(1_000_000, some()...), 1)
		}
		for i := range 1 + rng.Intn(4) {
			below(fmt.Sprint("q", i), 1)
		}
		tree.dirty = true
		(&Core{tree: tree}).updateFair(time.UnixMilli(1))
		want := judge(tree.root, names)
		for _, name := range names {
			want.F[name] = float64(pool.Value(name))
			want.deserves[name] = min(want.deserves[name], want.F[name])
		}
		want.cut(names)
		want.pour(names)
		var compare func(j *judged)
		compare = func(j *judged) {
			for _, name := range names {
				off := 0.004*min(float64(pool.Value(name)), 4_000_000) + 4
				if got := float64(j.fair.Value(name)); j.parent != nil && math.Abs(min(got, j.wants[name])-j.F[name]) > off {
					t.Errorf("round %d: the fair share of %s in %s is %.0f, want %.0f of %d",
						round, j.path, name, got, j.F[name], pool.Value(name))
				}
				if got := float64(j.deserved.Value(name)); math.Abs(got-j.deserves[name]) > 8 {
					t.Errorf("round %d: %s deserves %.0f of %s, want %.0f", round, j.path, got, name, j.deserves[name])
				}
			}
			for _, c := range j.children {
				compare(c)
			}
		}
		if compare(want); t.Failed() {
			return
		}
	}
}

// Three queues that want 9 each share 9: a fair share of 2.999 would entitle none of them to a third gang of 1.
func TestFairSharesAreExact(t *testing.T) {
	tree := newTree()
	tree.root.limits = &limits{record: &wire.LimitsRecord{}, capability: api.FromMap(map[string]int64{"cpu": 9000})}
	for i := range 3 {
		tree.at(fmt.Sprint("q", i)).ask(api.FromMap(map[string]int64{"cpu": 9000}), 1)
	}
	tree.dirty = true
	(&Core{tree: tree}).updateFair(time.UnixMilli(1))
	for _, q := range tree.root.children {
		if got := q.fair.Value("cpu"); got != 3000 {
			t.Errorf("%s has a fair share of %d", q.path, got)
		}
	}
}

// What is left over by rounding is nobody's: it would change hands for nothing. Of what comes out even, nothing is
// lost.
func TestFairSharesOfFew(t *testing.T) {
	for _, c := range []struct {
		have    int64
		weights []uint32
		want    []int64
	}{
		{5, []uint32{1, 1}, []int64{2, 2}},
		{10, []uint32{1, 1, 2}, []int64{2, 2, 5}},
		{9, []uint32{1, 2}, []int64{3, 6}},
		{7, []uint32{1, 1, 1}, []int64{2, 2, 2}},
		{1, []uint32{1, 1}, []int64{0, 0}},
		{1 << 50, []uint32{1, 1, 2}, []int64{1 << 48, 1 << 48, 1 << 49}},
	} {
		tree := newTree()
		pool := api.FromMap(map[string]int64{"gpu": c.have, "pods": 1000})
		tree.root.limits = &limits{record: &wire.LimitsRecord{}, capability: pool}
		for i, w := range c.weights {
			q := tree.at(fmt.Sprint("top.q", i))
			q.limits = &limits{record: &wire.LimitsRecord{Weight: new(w)}}
			q.ask(api.FromMap(map[string]int64{"gpu": c.have, "pods": 1 + 300*int64(i)}), 1)
		}
		tree.dirty = true
		(&Core{tree: tree}).updateFair(time.UnixMilli(1))
		for i, q := range tree.root.children[0].children {
			if got := q.fair.Value("gpu"); got < c.want[i] || got > c.want[i]+c.want[i]>>30 {
				t.Errorf("%d by weights %v: the fair share of %s is %d, want %d", c.have, c.weights, q.path, got, c.want[i])
			}
		}
	}
}

// More than all amounts together can never be given, whatever is asked for.
func TestFairSharesAreNotAboveTheLimit(t *testing.T) {
	rng := rand.New(rand.NewSource(2))
	for round := range 2000 {
		tree := newTree()
		huge := func() api.Resources { return api.FromMap(map[string]int64{"memory": rng.Int63() >> rng.Intn(63)}) }
		tree.root.limits = &limits{record: &wire.LimitsRecord{}, capability: huge()}
		for i := range 1 + rng.Intn(4) {
			for j := range rng.Intn(3) {
				q := tree.at(fmt.Sprintf("q%d.q%d", i, j))
				q.limits = &limits{record: &wire.LimitsRecord{Weight: new(uint32(rng.Intn(3)))}, deserved: huge()}
				q.ask(huge(), 1+rng.Int63n(1000))
			}
		}
		tree.dirty = true
		c := &Core{tree: tree}
		c.updateFair(time.UnixMilli(1))
		tree.root.walk(func(q *queue) {
			var sum float64
			for _, child := range q.children {
				sum += float64(child.fair.Value("memory"))
			}
			if limit := float64(q.fair.Value("memory")); len(q.children) > 0 && sum > limit*(1+1e-9)+1 {
				t.Errorf("round %d: the children of %s have %.0f of %.0f", round, q.path, sum, limit)
			}
		})
	}
}
