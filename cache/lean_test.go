package cache

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	v1 "k8s.io/api/core/v1"

	"basalt.dev/basalt/api"
)

// around is a Leaning of some numbers by node.
type around struct {
	near, crowd       []int64
	hasNear, hasCrowd bool
}

func (a *around) Has() (near, crowd bool) { return a.hasNear, a.hasCrowd }

func (a *around) At(n int32) (near, crowd int64) {
	if a.hasNear {
		near = a.near[n]
	}
	if a.hasCrowd {
		crowd = a.crowd[n]
	}
	return near, crowd
}

func (a *around) bounds() (low, high [2]int64) {
	for n := range a.near {
		near, crowd := a.At(int32(n))
		low[0], high[0] = min(low[0], near), max(high[0], near)
		if n == 0 || crowd >= 0 && crowd < low[1] {
			low[1] = max(crowd, 0)
		}
		high[1] = max(high[1], crowd)
	}
	return low, high
}

func (a *around) Best() (near, crowd int64) {
	low, high := a.bounds()
	return high[0], low[1]
}

func (a *around) Worst() (near, crowd int64) {
	low, high := a.bounds()
	return low[0], high[1]
}

// pinTo requires nodes of some host names.
func pinTo(s *v1.PodSpec, hosts ...string) {
	s.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
		MatchExpressions: []v1.NodeSelectorRequirement{{Key: api.LabelHostname, Operator: v1.NodeSelectorOpIn, Values: hosts}}}}}}}
}

// TestLeaningsAreWeighedLikeKubeScheduler compares the node that is chosen with the sum of kube-scheduler's plugins over all nodes that fit.
func TestLeaningsAreWeighedLikeKubeScheduler(t *testing.T) {
	t.Parallel()
	die := rand.New(rand.NewPCG(1, 1))
	placed, best, partly, ofTiers := 0, 0, 0, 0
	for range 600 {
		c := New(Config{Policy: Policy(die.IntN(2))})
		a := &around{hasNear: die.IntN(2) == 0, hasCrowd: die.IntN(2) == 0}
		for i := range 1 + die.IntN(80) {
			n := plainNode(fmt.Sprintf("n%02d", i), map[string]string{"zone": string('a' + rune(die.IntN(3))), api.LabelHostname: fmt.Sprint("h", i)})
			if die.IntN(8) == 0 {
				n.Taints = []v1.Taint{soft}
			}
			n.Tiers = api.Tiers{{Class: "t", Tier: uint8(die.IntN(4))}}
			c.SetNode(n)
			c.Number(n.Name, int32(i))
			a.near, a.crowd = append(a.near, int64(die.IntN(9)-4)), append(a.crowd, int64(die.IntN(5)-1))
		}
		class := pod(map[string]string{"cpu": "1"}, func(s *v1.PodSpec) {
			if die.IntN(3) == 0 {
				prefer(int32(1+die.IntN(100)), expression("zone", v1.NodeSelectorOpIn, "a"))(s)
			}
			switch die.IntN(6) {
			case 0:
				s.NodeSelector = map[string]string{"zone": "b"}
			case 1:
				pinTo(s, "h1", "h2", "h3")
			}
		})
		if die.IntN(4) == 0 {
			class = tiered(class, "t")
		}
		closed := die.IntN(5)
		allow := func(n int32) bool { return int(n)%5 != closed }
		if closed == 0 {
			allow = nil
		}
		for i := range 12 {
			var all []stand
			var least, most stand
			var w *wish
			cl := c.plan(class)
			pinned := cl.set.pins != nil
			if pinned {
				w = c.newWish(cl.set, class.Wishes)
			} else if c.Heeds(class) {
				w = c.wishOf(cl)
			}
			at := map[string]stand{}
			for name, n := range c.nodes {
				if !c.CanPlace(class, name).Fits() || allow != nil && !allow(n.number) {
					continue
				}
				s := stand{}
				if s.near, s.crowd = a.At(n.number); w != nil && c.Heeds(class) {
					if s.wish = 0; pinned {
						s.wish = int64(w.alone(w.likes(n.object))) - api.LeastGrade
					} else {
						s.wish = w.kinds[w.kind[n.slot]].score
					}
				}
				at[name] = s
				all = append(all, s)
			}
			for i, s := range all {
				if i == 0 {
					least, most = s, s
				}
				least.near, most.near = min(least.near, s.near), max(most.near, s.near)
				if s.crowd >= 0 && (least.crowd < 0 || s.crowd < least.crowd) {
					least.crowd = s.crowd
				}
				most.crowd = max(most.crowd, s.crowd)
			}
			q := leanSearch{near: a.hasNear, crowd: a.hasCrowd}
			top := int64(-1)
			for _, s := range all {
				top = max(top, q.score(s, least, most))
			}
			name, _, grade, ok := c.PlaceLeaning(class, 0, api.Rank{}, allow, a)
			if ok != (len(all) > 0) {
				t.Fatalf("%d nodes fit, found one: %t", len(all), ok)
			}
			if !ok {
				break
			}
			placed++
			if got := q.score(at[name], least, most); got != top {
				t.Fatalf("%s has %+v: %d; the best has %d", name, at[name], got, top)
			}
			if len(class.Wishes) > 0 && class.BestGrade() > api.BestGrade {
				tier := c.nodes[name].object.Tiers.Of("t")
				for other := range at {
					if c.nodes[other].object.Tiers.Of("t") < tier {
						t.Fatalf("%s is of tier %d, and %s is better", name, tier, other)
					}
				}
				ofTiers++
			}
			if grade == api.BestLeaning {
				best++
			} else if _, _, again, ok := c.PlaceLeaning(class, grade+1, api.Rank{}, allow, a); ok || again != grade {
				t.Fatalf("above grade %d there is one of grade %d", grade, again)
			} else if partly++; grade < api.LeastGrade {
				t.Fatal("a node has no grade")
			}
			c.Charge(fmt.Sprint("p", i), name, class, Bound, "", api.Rank{})
			n := c.nodes[name].number
			a.crowd[n] += die.Int64N(2)
			a.near[n] += die.Int64N(2)
		}
		if err := c.Check(); err != nil {
			t.Fatal(err)
		}
	}
	if placed < 3000 || best < 500 || partly < 500 || ofTiers < 500 {
		t.Errorf("%d placed, %d of the best grade, %d of others, %d by tiers", placed, best, partly, ofTiers)
	}
}

func TestShares(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ part, all, want int64 }{
		{-1, 5, 0}, {0, 5, 0}, {5, 5, whole}, {6, 5, whole}, {1, 2, whole / 2}, {2, 3, whole * 2 / 3},
		{1<<44 - 1, 1 << 44, whole - 1}, {1 << 43, 1 << 44, whole / 2}, {math.MaxInt64 - 1, math.MaxInt64, whole - 1},
	} {
		if got := shareOf(row.part, row.all); got != row.want {
			t.Errorf("%d of %d: %d, want %d", row.part, row.all, got, row.want)
		}
	}
	if of := bestOfWishes + nearWeight*maxScore + crowdWeight*maxScore; of >= api.TierStep {
		t.Errorf("a tier of the configuration is %d better than the next, and all preferences count %d", api.TierStep, of)
	} else if all := of + int(tierOf(0)); all > math.MaxInt64/whole {
		t.Errorf("weights of %d overflow", all)
	}
}

// TestLeaningsInADomain compares the node that is chosen in a domain with the sum of kube-scheduler's plugins over all nodes of the domain that
// fit. Of nodes that are equally good it is the first in the order of the policy.
func TestLeaningsInADomain(t *testing.T) {
	t.Parallel()
	die := rand.New(rand.NewPCG(2, 1))
	placed, chosen, pinned := 0, 0, 0
	for range 300 {
		c := New(Config{Policy: Policy(die.IntN(2))})
		a := &around{hasNear: die.IntN(2) == 0, hasCrowd: die.IntN(2) == 0}
		for i := range 1 + die.IntN(40) {
			n := plainNode(fmt.Sprintf("n%02d", i), map[string]string{"rack": string('a' + rune(die.IntN(3))), "zone": string('a' + rune(die.IntN(2))), api.LabelHostname: fmt.Sprint("h", i)})
			n.Tiers = api.Tiers{{Class: "t", Tier: uint8(die.IntN(4))}}
			c.SetNode(n)
			c.Number(n.Name, int32(i))
			a.near, a.crowd = append(a.near, int64(die.IntN(9)-4)), append(a.crowd, int64(die.IntN(5)-1))
		}
		class := pod(map[string]string{"cpu": "1"}, func(s *v1.PodSpec) {
			switch die.IntN(4) {
			case 0:
				prefer(50, expression("zone", v1.NodeSelectorOpIn, "a"))(s)
			case 1:
				pinTo(s, "h1", "h2", "h3", "h4")
			}
		})
		if die.IntN(4) == 0 {
			class = tiered(class, "t")
		}
		for i := range 12 {
			cl := c.plan(class)
			at := map[string]stand{}
			least, most := stand{crowd: -1}, stand{}
			for name, n := range c.nodes {
				if n.object.Labels["rack"] != "a" || !c.CanPlace(class, name).Fits() {
					continue
				}
				s := stand{}
				if s.near, s.crowd = a.At(n.number); c.Heeds(class) && cl.set.pins == nil {
					w := c.wishOf(cl)
					s.wish = w.kinds[w.kind[n.slot]].score
				} else if c.Heeds(class) {
					w := c.newWish(cl.set, class.Wishes)
					s.wish = int64(w.alone(w.likes(n.object))) - api.LeastGrade
				}
				if len(at) == 0 {
					least.near, most.near = s.near, s.near
				}
				least.near, most.near = min(least.near, s.near), max(most.near, s.near)
				if s.crowd >= 0 && (least.crowd < 0 || s.crowd < least.crowd) {
					least.crowd = s.crowd
				}
				most.crowd = max(most.crowd, s.crowd)
				at[name] = s
			}
			least.crowd = max(least.crowd, 0)
			q := leanSearch{near: a.hasNear, crowd: a.hasCrowd}
			top, first := int64(-1), ""
			for name, s := range at {
				if v := q.score(s, least, most); v > top || v == top && c.keyOf(c.nodes[name].slot) < c.keyOf(c.nodes[first].slot) {
					top, first = v, name
				}
			}
			name, _, ok := c.PlaceIn(class, api.Rank{}, []string{"rack"}, []string{"a"}, nil, true, a)
			if ok != (len(at) > 0) || name != first {
				t.Fatalf("%q, %t; the best of %d is %q: %+v", name, ok, len(at), first, at)
			}
			if !ok {
				break
			}
			placed++
			chosen += int(truth(len(at) > 1))
			pinned += int(truth(cl.set.pins != nil))
			c.Charge(fmt.Sprint("p", i), name, class, Bound, "", api.Rank{})
			a.crowd[c.nodes[name].number] += die.Int64N(2)
			a.near[c.nodes[name].number] += die.Int64N(2)
		}
	}
	if placed < 1000 || chosen < 800 || pinned < 50 {
		t.Errorf("%d placed, %d of them with a choice, %d pinned", placed, chosen, pinned)
	}
}
