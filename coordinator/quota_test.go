package coordinator

import (
	"fmt"
	"math"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/bench/prove/growth"
)

func TestWideSumsComeBack(t *testing.T) {
	rng := rand.New(rand.NewSource(1))
	amounts := []int64{0, 1, -1, math.MaxInt64, math.MinInt64, math.MinInt64 + 1, api.MaxAmount, -api.MaxAmount, 1 << 32}
	for range 1000 {
		var w wide
		var added []int64
		for range 40 {
			v := amounts[rng.Intn(len(amounts))]
			w = w.plus(v)
			added = append(added, v)
		}
		o := w.add(w).sub(w)
		if o != w || w.max(o) != w {
			t.Fatalf("%v + %v - %v = %v", w, w, w, o)
		}
		rng.Shuffle(len(added), func(i, j int) { added[i], added[j] = added[j], added[i] })
		for _, v := range added {
			w = w.sub(wide{}.plus(v))
		}
		if w != (wide{}) {
			t.Fatalf("%v is left of a sum that was taken away again", w)
		}
	}
	for _, c := range []struct {
		parts []int64
		want  int64
	}{
		{[]int64{math.MaxInt64, 1}, math.MaxInt64},
		{[]int64{math.MaxInt64, 1, -1}, math.MaxInt64},
		{[]int64{math.MaxInt64, 1, -2}, math.MaxInt64 - 1},
		{[]int64{math.MinInt64, -1}, math.MinInt64},
		{[]int64{math.MinInt64, -1, 2}, math.MinInt64 + 1},
		{[]int64{-5, 3}, -2},
	} {
		var w wide
		for _, v := range c.parts {
			w = w.plus(v)
		}
		if got := w.amount(); got != c.want {
			t.Errorf("sum of %v is %d, want %d", c.parts, got, c.want)
		}
	}
}

func TestShareOfABudget(t *testing.T) {
	for _, c := range []struct {
		want, budget int64
		sum          wide
		got          int64
	}{
		{4, 10, wide{}.plus(10), 4},
		{4, 9, wide{}.plus(12), 3},
		{8, 9, wide{}.plus(12), 6},
		{5, 3, wide{}.plus(10), 1}, // rounds down: shares never sum to more than the budget
		{5, 0, wide{}.plus(10), 0},
		{5, -3, wide{}.plus(10), 0},
		{0, 3, wide{}.plus(10), 0},
		{math.MaxInt64, math.MaxInt64 - 1, wide{}.plus(math.MaxInt64), math.MaxInt64 - 1},
		{math.MaxInt64, 1000, wide{}.plus(math.MaxInt64).plus(math.MaxInt64), 500},
		{math.MaxInt64, 1000, wide{hi: 1}, 499},
	} {
		if got := share(c.want, c.budget, c.sum); got != c.got {
			t.Errorf("share(%d, %d, %v) = %d, want %d", c.want, c.budget, c.sum, got, c.got)
		}
	}
}

// limit is one line of a table: a queue with its limits and what its own gangs hold of cpu.
type limit struct {
	path                  string
	capability, guarantee int64 // -1 for none
	charged               int64
}

func treeOf(lines []limit) *tree {
	t := newTree()
	vector := func(v int64) api.Resources {
		if v < 0 {
			return nil
		}
		return api.Resources{{Resource: "cpu", Value: v}}
	}
	for _, l := range lines {
		q := t.at(l.path)
		q.limits = &limits{record: &wire.LimitsRecord{}, capability: vector(l.capability), guarantee: vector(l.guarantee)}
		t.dirty = true
	}
	t.recompute()
	for _, l := range lines {
		t.charge(t.at(l.path), vector(l.charged))
	}
	return t
}

func TestGrantAtEveryAncestor(t *testing.T) {
	const none = -1
	five := []limit{ // five levels, limited at every other
		{"a", 10, none, 0}, {"a.b", none, none, 0}, {"a.b.c", 6, none, 0}, {"a.b.c.d", none, none, 0}, {"a.b.c.d.e", 4, none, 1},
		{"a.b.c.f", none, none, 2}, {"a.g", none, none, 3},
	}
	cousins := []limit{ // p keeps 4 for a, which is two levels below
		{"p", 10, none, 0}, {"p.x", none, none, 0}, {"p.x.a", none, 4, 0}, {"p.x.b", none, none, 4}, {"p.y", none, none, 1},
	}
	for _, c := range []struct {
		name   string
		tree   []limit
		queue  string
		grows  int64
		demand int64 // grows when 0
		reason wire.DenyReason
		lacks  string
		short  int64
	}{
		{"fits exactly", five, "a.b.c.d.e", 3, 0, 0, "", 0},
		{"the leaf lacks", five, "a.b.c.d.e", 4, 0, wire.DenyReason_DENY_QUOTA, "a.b.c.d.e", 1},
		{"an ancestor lacks", five, "a.b.c.f", 4, 0, wire.DenyReason_DENY_QUOTA, "a.b.c", 1},
		{"the top lacks", five, "a.g", 5, 0, wire.DenyReason_DENY_QUOTA, "a", 1},
		{"both lack: the nearest is named", five, "a.b.c.f", 6, 0, wire.DenyReason_DENY_QUOTA, "a.b.c", 3},
		{"above a capability", five, "a.b.c.f", 7, 0, wire.DenyReason_DENY_NEVER_FITS, "a.b.c", 1},
		{"grown above a capability", five, "a.b.c.d.e", 1, 5, wire.DenyReason_DENY_NEVER_FITS, "a.b.c.d.e", 1},
		{"nothing grows", five, "a.b.c.d.e", 0, 9, 0, "", 0},
		{"shrinks", five, "a.b.c.d.e", -1, 9, 0, "", 0},
		{"saturates", five, "a.g", math.MaxInt64, 0, wire.DenyReason_DENY_NEVER_FITS, "a", math.MaxInt64 - 10},
		{"no limit", []limit{{"a", none, none, 5}}, "a", math.MaxInt64, 0, 0, "", 0},
		{"a capability of zero", []limit{{"a", 0, none, 0}}, "a", 1, 0, wire.DenyReason_DENY_NEVER_FITS, "a", 1},
		{"over the limit already", []limit{{"a", 5, none, 7}}, "a", 1, 0, wire.DenyReason_DENY_QUOTA, "a", 3},
		{"beside a cousin's guarantee", cousins, "p.y", 1, 0, 0, "", 0},
		{"into a cousin's guarantee", cousins, "p.y", 2, 0, wire.DenyReason_DENY_GUARANTEE, "p", 1},
		{"a sibling into it", cousins, "p.x.b", 2, 0, wire.DenyReason_DENY_GUARANTEE, "p", 1},
		{"inside one's own", cousins, "p.x.a", 4, 0, 0, "", 0},
		{"beyond one's own", cousins, "p.x.a", 6, 0, wire.DenyReason_DENY_QUOTA, "p", 1},
		{"inside one's own though others are over", append(cousins[:4:4], limit{"p.y", none, none, 5}), "p.x.a", 1, 0, 0, "", 0},
		{"guarantees of the root's children", []limit{{"root", 8, none, 0}, {"a", none, 5, 0}, {"b", none, none, 2}}, "b", 2, 0, wire.DenyReason_DENY_GUARANTEE, "root", 1},
		{"no ancestor is limited", []limit{{"a", none, 5, 0}, {"b", none, none, 2}}, "b", 1000, 0, 0, "", 0},
	} {
		tree := treeOf(c.tree)
		if c.demand == 0 {
			c.demand = c.grows
		}
		l := tree.over(tree.at(c.queue), api.Resources{{Resource: "cpu", Value: c.grows}}, api.Resources{{Resource: "cpu", Value: c.demand}}, nil)
		switch {
		case l == nil && c.reason == 0:
		case l == nil:
			t.Errorf("%s: granted", c.name)
		case l.reason != c.reason || l.queue.path != c.lacks || l.short != c.short:
			t.Errorf("%s: %v at %s, %d short; want %v at %s, %d short", c.name, l.reason, l.queue.path, l.short, c.reason, c.lacks, c.short)
		}
	}
}

func TestGuaranteesInForce(t *testing.T) {
	const none = -1
	for _, c := range []struct {
		name string
		tree []limit
		want map[string]int64
	}{
		{"the own, or the children's together", []limit{{"a", none, 4, 0}, {"a.x", none, 3, 0}, {"a.y", none, 3, 0},
			{"b", none, 5, 0}, {"b.x", none, 1, 0}, {"c.x", none, 2, 0}},
			map[string]int64{"root": 11, "a": 4, "a.x": 2, "a.y": 2, "b": 5, "b.x": 1, "c": 2}},
		{"cut in proportion", []limit{{"a", 9, none, 0}, {"a.x", none, 8, 0}, {"a.y", none, 4, 0}},
			map[string]int64{"root": 9, "a": 9, "a.x": 6, "a.y": 3}},
		{"cut by what is far above", []limit{{"a", 6, none, 0}, {"a.x", none, none, 0}, {"a.x.u", none, 8, 0}, {"a.x.v", none, 4, 0}},
			map[string]int64{"a": 6, "a.x": 6, "a.x.u": 4, "a.x.v": 2}},
		{"cut twice", []limit{{"a", 6, none, 0}, {"a.x", 4, none, 0}, {"a.x.u", none, 8, 0}, {"a.y", none, 4, 0}},
			map[string]int64{"a": 6, "a.x": 2, "a.x.u": 2, "a.y": 4}}, // a.y says what is guaranteed to it, and a.x does not
		{"above the own capability", []limit{{"a", 3, 5, 0}}, map[string]int64{"root": 3, "a": 3}},
		{"beyond int64", []limit{{"a", 1000, none, 0}, {"a.x", none, math.MaxInt64, 0}, {"a.y", none, math.MaxInt64, 0}},
			map[string]int64{"a": 1000, "a.x": 500, "a.y": 500}},
	} {
		tree := treeOf(c.tree)
		for path, want := range c.want {
			if got := tree.at(path).guarantee.Value("cpu"); got != want {
				t.Errorf("%s: %s has %d guaranteed, want %d", c.name, path, got, want)
			}
		}
	}
}

// TestSumsAgainstAMap charges many names at random, and compares the sums with maps. What nobody holds is forgotten.
func TestSumsAgainstAMap(t *testing.T) {
	rng := rand.New(rand.NewSource(1))
	tree := newTree()
	guarantee := api.Resources{{Resource: "cpu", Value: 30}, {Resource: "n40", Value: 50}}
	tree.at("a.b").limits = &limits{record: &wire.LimitsRecord{}, guarantee: guarantee}
	tree.dirty = true
	tree.recompute()
	queues := []*queue{tree.at("a.b"), tree.at("a.c"), tree.at("d")}
	charged := map[*queue]map[string]int64{tree.root: {}, tree.at("a"): {}}
	type charge struct {
		queue  *queue
		demand api.Resources
	}
	var open []charge
	change := func(c charge, sign int64) {
		delta := c.demand
		if sign < 0 {
			delta = api.Resources(nil).Sub(delta)
		}
		tree.charge(c.queue, delta)
		for p := c.queue; p != nil; p = p.parent {
			if charged[p] == nil {
				charged[p] = map[string]int64{}
			}
			for _, a := range delta {
				charged[p][a.Resource] += a.Value
			}
		}
	}
	check := func() {
		t.Helper()
		fresh := newTree()
		fresh.at("a.b").limits = &limits{record: &wire.LimitsRecord{}, guarantee: guarantee}
		fresh.dirty = true
		for _, c := range open {
			fresh.charge(fresh.at(c.queue.path), c.demand)
		}
		fresh.recompute()
		for q, want := range charged {
			if got := q.charged.amounts(); !got.Equal(api.FromMap(want)) || !slices.IsSortedFunc(q.charged, func(a, b total) int { return strings.Compare(a.resource, b.resource) }) {
				t.Fatalf("queue %s: charged %v, want %v", q.path, got, want)
			}
			if got, want := q.held.amounts(), fresh.at(q.path).held.amounts(); !got.Equal(want) {
				t.Fatalf("queue %s: held %v, made again %v", q.path, got, want)
			}
			for resource, v := range want {
				if q.charged.get(resource).amount() != v {
					t.Fatalf("queue %s: %s is %d, want %d", q.path, resource, q.charged.get(resource).amount(), v)
				}
			}
			if named := len(q.charged.amounts()); len(q.charged) > 2*named+2*keptZeros {
				t.Fatalf("queue %s: %d names are kept for %d that are held", q.path, len(q.charged), named)
			}
		}
	}
	for range 200 {
		if len(open) > 0 && rng.Intn(2) == 0 {
			i := rng.Intn(len(open))
			change(open[i], -1)
			open = slices.Delete(open, i, i+1)
		} else {
			m := map[string]int64{"cpu": rng.Int63n(9)}
			for range rng.Intn(60) * rng.Intn(2) {
				m[fmt.Sprint("n", rng.Intn(300))] = rng.Int63n(5)
			}
			open = append(open, charge{queues[rng.Intn(len(queues))], api.FromMap(m)})
			change(open[len(open)-1], 1)
		}
		check()
		if rng.Intn(50) == 0 {
			tree.dirty = true
			tree.recompute()
			check()
		}
	}
	for ; len(open) > 0; open = open[1:] {
		change(open[0], -1)
	}
	for q := range charged {
		if len(q.charged) > keptZeros || len(q.held) > keptZeros+len(guarantee) {
			t.Errorf("queue %s: %d names are kept and nobody holds any", q.path, len(q.charged))
		}
	}
}

// TestManyNames: charging and releasing takes time that is about linear in the names.
func TestManyNames(t *testing.T) {
	tree := newTree()
	for _, path := range []string{"root", "a", "a.b", "a.b.c"} {
		tree.at(path).limits = &limits{record: &wire.LimitsRecord{}, capability: api.FromMap(map[string]int64{"cpu": 5})}
	}
	tree.dirty = true
	tree.recompute()
	q := tree.at("a.b.c")
	growth.Linear(t, 32_000, func(names int) func() {
		m := map[string]int64{}
		for i := range names {
			m[fmt.Sprint("example.com/device-", i)] = 1
		}
		demand := api.FromMap(m)
		return func() {
			if tree.over(q, demand, demand, nil) != nil || tree.exceeds(q, demand) || !demand.Fits(demand) ||
				forces(demand, demand, demand) {
				t.Fatal("it does not fit")
			}
			tree.charge(q, demand)
			tree.charge(q, api.Resources(nil).Sub(demand))
		}
	})
}

// What a namespace has in a queue is exact, and names of which it has nothing any more are forgotten.
func TestTenantForgetsNames(t *testing.T) {
	rng := rand.New(rand.NewSource(1))
	ten := &tenant{}
	want := map[string]int64{}
	for round := range 3000 {
		m := map[string]int64{}
		for range 1 + rng.Intn(30)*rng.Intn(2) {
			m[fmt.Sprint("n", rng.Intn(200)+round/10)] = 1 + rng.Int63n(5)
		}
		delta := api.FromMap(m)
		if rng.Intn(3) > 0 { // most of what is there goes
			delta = nil
			for _, name := range api.SortedKeys(want) {
				if rng.Intn(3) > 0 {
					delta = append(delta, api.Amount{Resource: name, Value: -want[name]})
				}
			}
		}
		ten.charged.add(delta, 1)
		for _, a := range delta {
			if want[a.Resource] += a.Value; want[a.Resource] == 0 {
				delete(want, a.Resource)
			}
		}
		if got := ten.charged.amounts(); !got.Equal(api.FromMap(want)) {
			t.Fatalf("round %d: charged %v, want %v", round, got, want)
		}
		if len(ten.charged.sums) > 2*len(want)+2*keptZeros {
			t.Fatalf("round %d: %d names are kept for %d that are charged", round, len(ten.charged.sums), len(want))
		}
	}
}
