package coordinator

import (
	"fmt"
	"math"
	"math/rand"
	"testing"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/bench/prove/progress"
	"basalt.dev/basalt/bench/prove/seeds"
)

// judge returns a queue, and those below it, as package progress judges them.
func judge(q *queue, names []string) *progress.Share {
	j := &progress.Share{Path: q.path, Says: map[string]float64{}, Limits: map[string]float64{},
		Pool: map[string]float64{}, Wants: map[string]float64{}}
	j.Priority, j.Weight = int64(q.limits.priority()), float64(q.limits.weight())
	for _, c := range q.children {
		j.Children = append(j.Children, judge(c, names))
	}
	for _, name := range names {
		j.Pool[name] = float64(q.pool.Value(name))
		if len(q.children) == 0 {
			j.Wants[name] = float64(q.charged.get(name).amount() + q.asked.get(name).amount())
		}
		if q.limits == nil {
			continue
		}
		if d, is := q.limits.deserved.Get(name); is {
			j.Says[name] = float64(d)
		}
		if limit, limited := q.limits.capability.Get(name); limited {
			j.Limits[name] = float64(limit)
		}
	}
	return j
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
		tree.updateFair(time.UnixMilli(1))
		want, of := judge(tree.root, names), map[string]float64{}
		for _, name := range names {
			of[name] = float64(pool.Value(name))
		}
		want.Divide(names, of)
		var compare func(j *progress.Share)
		compare = func(j *progress.Share) {
			q := tree.at(j.Path)
			for _, name := range names {
				off := 0.004*min(float64(pool.Value(name)), 4_000_000) + 4
				if got := float64(q.fair.Value(name)); q.parent != nil && math.Abs(min(got, j.Wants[name])-j.Fair[name]) > off {
					t.Errorf("round %d: the fair share of %s in %s is %.0f, want %.0f of %d",
						round, j.Path, name, got, j.Fair[name], pool.Value(name))
				}
				if got := float64(q.deserved.Value(name)); math.Abs(got-j.Deserves[name]) > 8 {
					t.Errorf("round %d: %s deserves %.0f of %s, want %.0f", round, j.Path, got, name, j.Deserves[name])
				}
			}
			for _, c := range j.Children {
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
	tree.updateFair(time.UnixMilli(1))
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
		tree.updateFair(time.UnixMilli(1))
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
		c.tree.updateFair(time.UnixMilli(1))
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
