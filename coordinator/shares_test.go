package coordinator

import (
	"fmt"
	"math"
	"math/rand"
	"testing"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/bench/prove/seeds"
)

// Fair shares are those that result when each child takes a little in turn, for as long as there is something that it wants.
func TestFairShares(t *testing.T) {
	rng, rounds := rand.New(rand.NewSource(1)), 300
	if !seeds.InFull() {
		rng, rounds = rand.New(rand.NewSource(int64(seeds.ByDate(t, 1)))), 40
	}
	names := []string{"cpu", "gpu", "memory"}
	for round := range rounds {
		tree := newTree()
		amounts := func(most int64, of ...string) api.Resources {
			m := map[string]int64{}
			for _, name := range of {
				m[name] = rng.Int63n(most)
			}
			return api.FromMap(m)
		}
		tree.root.limits = &limits{record: &wire.LimitsRecord{}, capability: amounts(1_000_000, names...)}
		n := 1 + rng.Intn(5)
		for i := range n {
			q := tree.at(fmt.Sprint("q", i))
			q.limits = &limits{record: &wire.LimitsRecord{Weight: new(uint32(rng.Intn(4))), Priority: int32(rng.Intn(2))}}
			if rng.Intn(3) == 0 {
				q.limits.capability = amounts(1_000_000, "cpu")
			}
			if rng.Intn(2) == 0 {
				q.limits.deserved = amounts(300_000, names[:1+rng.Intn(3)]...)
			}
			tree.charge(q, amounts(200_000, names...))
			q.ask(amounts(1_000_000, names[rng.Intn(2):]...), 1)
		}
		tree.dirty = true
		c := &Core{tree: tree}
		c.updateFair(time.UnixMilli(1))

		// The naive way.
		pool := tree.root.limits.capability
		wanted, has, most, top := make([]map[string]float64, n), make([]map[string]float64, n), make([]map[string]float64, n), make([]float64, n)
		left := map[string]float64{}
		for _, name := range names {
			left[name] = float64(pool.Value(name))
		}
		for i, q := range tree.root.children {
			wanted[i], has[i], most[i] = map[string]float64{}, map[string]float64{}, map[string]float64{}
			for _, name := range names {
				w := float64(q.charged.get(name).amount() + q.asked.get(name).amount())
				if limit, limited := q.limits.capability.Get(name); limited {
					w = min(w, float64(limit))
				}
				has[i][name] = min(w, float64(q.deserved.Value(name)))
				wanted[i][name] = w
				most[i][name] = w - has[i][name]
				left[name] = max(0, left[name]-has[i][name])
				if v := float64(pool.Value(name)); v > 0 {
					top[i] = max(top[i], most[i][name]/v)
				}
			}
		}
		for group := 0; group < 4; group++ {
			const step = 1.0 / 20000
			for more := true; more; {
				more = false
				for i, q := range tree.root.children {
					w := float64(q.limits.weight())
					if g := 2*(1-int(q.limits.priority())) + map[bool]int{true: 1}[w == 0]; g != group || top[i] == 0 {
						continue
					}
					for _, name := range names {
						// A step of its dominant share for each weight.
						d := min(step*max(w, 1)*most[i][name]/top[i], wanted[i][name]-has[i][name], left[name])
						if d > 1e-9 {
							more = true
							has[i][name] += d
							left[name] -= d
						}
					}
				}
			}
		}
		for i, q := range tree.root.children {
			for _, name := range names {
				want, got := has[i][name], q.fair.Value(name)
				if off := math.Abs(want - float64(got)); off > 0.001*float64(pool.Value(name))+2 {
					t.Errorf("round %d: the fair share of %s in %s is %d, want %.0f of %d", round, q.path, name, got, want, pool.Value(name))
				}
			}
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
