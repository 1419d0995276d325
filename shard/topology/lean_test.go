package topology

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/shard/event"
)

// leans gives a pod leanings.
func (w *world) leans(p *v1.Pod) {
	p.Spec.TopologySpreadConstraints, p.Spec.Affinity = nil, &v1.Affinity{PodAffinity: &v1.PodAffinity{}, PodAntiAffinity: &v1.PodAntiAffinity{}}
	for range w.die.IntN(3) {
		t := v1.WeightedPodAffinityTerm{Weight: 1 + int32(w.die.IntN(3)), PodAffinityTerm: w.term()}
		if w.die.IntN(2) == 0 {
			p.Spec.Affinity.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution = append(p.Spec.Affinity.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution, t)
		} else {
			p.Spec.Affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution = append(p.Spec.Affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution, t)
		}
	}
	for range w.die.IntN(3) {
		c := v1.TopologySpreadConstraint{MaxSkew: 1 + int32(w.die.IntN(2)), TopologyKey: w.pick("zone", "rack"), WhenUnsatisfiable: v1.ScheduleAnyway,
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": w.pick("a", "b")}}}
		if w.die.IntN(4) == 0 {
			honor := v1.NodeInclusionPolicyHonor
			c.NodeTaintsPolicy = &honor
		}
		p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, c)
	}
}

// recount is Leanings.At by looking at all pods.
func (w *world) recount(p *v1.Pod, name string) (near, crowd int64) {
	count := func(key string, counts func(*v1.Pod) bool, admits func(*v1.Node) bool) (n int64) {
		for _, o := range w.pods {
			at, _, _ := w.at(o)
			if other := w.nodes[at]; other != nil && admits(other) && counts(o) {
				if v, has := other.Labels[key]; has && v == w.nodes[name].Labels[key] {
					n++
				}
			}
		}
		return n
	}
	terms := func(terms []v1.WeightedPodAffinityTerm, sign int64) {
		for _, t := range terms {
			if _, has := w.nodes[name].Labels[t.PodAffinityTerm.TopologyKey]; has {
				near += sign * int64(t.Weight) * count(t.PodAffinityTerm.TopologyKey, func(o *v1.Pod) bool { return w.matches(t.PodAffinityTerm, p, o) }, func(*v1.Node) bool { return true })
			}
		}
	}
	terms(p.Spec.Affinity.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution, 1)
	terms(p.Spec.Affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution, -1)
	sum := 0.0
	for _, c := range p.Spec.TopologySpreadConstraints {
		if _, has := w.nodes[name].Labels[c.TopologyKey]; !has {
			return near, -1
		}
		selector, _ := metav1.LabelSelectorAsSelector(c.LabelSelector)
		admits := func(n *v1.Node) bool {
			for _, o := range p.Spec.TopologySpreadConstraints {
				if _, has := n.Labels[o.TopologyKey]; !has {
					return false
				}
			}
			return (len(p.Spec.NodeSelector) == 0 || n.Labels["disk"] == "ssd") && (c.NodeTaintsPolicy == nil || len(n.Spec.Taints) == 0)
		}
		domains := map[string]bool{}
		for _, n := range w.nodes {
			if admits(n) {
				domains[n.Labels[c.TopologyKey]] = true
			}
		}
		n := count(c.TopologyKey, func(o *v1.Pod) bool {
			return o.Namespace == p.Namespace && o.DeletionTimestamp == nil && selector.Matches(labels.Set(o.Labels))
		}, admits)
		sum += float64(n)*math.Log(float64(len(domains)+2)) + float64(c.MaxSkew-1)
	}
	return near, int64(math.Round(sum))
}

// TestLeaningsCountLikeANaiveRecount compares what leanings make of each node with a recount over all pods, and their
// bounds with all nodes.
func TestLeaningsCountLikeANaiveRecount(t *testing.T) {
	t.Parallel()
	met, exact := map[[2]int64]int{}, 0
	for seed := range uint64(200) {
		w := &world{t: t, die: rand.New(rand.NewPCG(seed, 2)), view: New(), nodes: map[string]*v1.Node{}, spaces: map[string]map[string]string{}, pods: map[string]*v1.Pod{}, rows: map[string]string{}}
		w.step(event.LogRead{Revision: 1})
		for i := range 120 {
			w.change()
			if i%3 != 0 {
				continue
			}
			p := w.pod("new")
			w.leans(p)
			object := api.FromPod(p, nil, api.Rules{})
			l := w.view.LeaningsOf(p.Namespace, object.Class)
			if len(object.Class.Leanings) == 0 {
				if l != nil {
					t.Fatalf("seed %d: leanings of a class without any", seed)
				}
				continue
			}
			if rules, ok := w.view.RulesOf(p.Namespace, object.Class); !ok || rules != nil && len(rules.spread)+len(rules.anti)+len(rules.affinity) > 0 {
				t.Fatalf("seed %d: leanings are rules", seed)
			}
			bestNear, bestCrowd := l.Best()
			worstNear, worstCrowd := l.Worst()
			some := false
			for name := range w.nodes {
				near, crowd := l.At(w.view.Node(name))
				wantNear, wantCrowd := w.recount(p, name)
				if met[[2]int64{near, crowd}]++; near != wantNear || crowd != wantCrowd {
					t.Fatalf("seed %d step %d: %s on %s: %d and %d, a recount says %d and %d", seed, i, p.Spec.String(), name, near, crowd, wantNear, wantCrowd)
				}
				admitted := crowd >= 0 && len(p.Spec.NodeSelector) == 0 && len(w.nodes[name].Spec.Taints) == 0
				if near > bestNear || near < worstNear || admitted && (crowd < bestCrowd || crowd > worstCrowd) {
					t.Fatalf("seed %d step %d: %s on %s: %d and %d are not from %d, %d to %d, %d", seed, i, p.Spec.String(), name, near, crowd, bestNear, bestCrowd, worstNear, worstCrowd)
				}
				some = some || near == bestNear && crowd == bestCrowd
			}
			if single := len(l.near)+len(l.crowd) == 1; single && some {
				exact++
			}
		}
	}
	if len(met) < 50 || exact < 500 {
		t.Errorf("%d different results; the best was reached %d times", len(met), exact)
	}
}

// TestLogarithms compares the fixed-point logarithm with that of the library.
func TestLogarithms(t *testing.T) {
	t.Parallel()
	check := func(n uint32) {
		if got, want := float64(ln(n))/(1<<lnBits), math.Log(float64(n)); math.Abs(got-want) > 0.51/(1<<lnBits) {
			t.Errorf("ln %d: %v, want %v", n, got, want)
		}
	}
	for n := range uint32(100000) {
		check(n + 1)
	}
	for n := uint32(1); n > 0; n <<= 1 {
		check(n)
		check(n - 1 | 1)
		check(math.MaxUint32 / n)
	}
}

// TestLargestCrowd: the sum of as many constraints as a pod may have, of as many pods and domains as can be counted,
// does not overflow.
func TestLargestCrowd(t *testing.T) {
	t.Parallel()
	r, want := crowdRule{each: ln(math.MaxUint32), some: math.MaxInt32 - 1}, 0.0
	var sum crowding
	for range api.MaxLeanings {
		sum.add(&r, math.MaxInt32)
		want += math.MaxInt32*math.Log(math.MaxUint32) + math.MaxInt32 - 1
	}
	if got := sum.rounded(); math.Abs(float64(got)-want) > 32 || got >= 1<<42 {
		t.Errorf("%d, want %f", got, want)
	}
}

// TestLeaningsLeaveRoom: leanings of a namespace take half of what it may have counted, what is required may take the
// rest; nobody is woken for leanings.
func TestLeaningsLeaveRoom(t *testing.T) {
	v := New()
	v.Step(time.Unix(1, 0), event.LogRead{Revision: 1})
	v.Step(time.Unix(1, 0), event.NodeSeen{Node: &api.Node{Name: "n", Labels: map[string]string{"zone": "a"}}})
	spec := func(i int, when v1.UnsatisfiableConstraintAction) *api.Class {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}, Spec: v1.PodSpec{SchedulerName: api.SchedulerName, TopologySpreadConstraints: []v1.TopologySpreadConstraint{{
			MaxSkew: 1, TopologyKey: "zone", WhenUnsatisfiable: when, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": fmt.Sprint("a", i)}}}}}}
		object := api.FromPod(p, nil, api.Rules{})
		return object.Class.With(object.Labels)
	}
	heeded := 0
	for i := range 2 * countedByNamespace {
		if v.LeaningsOf("ns", spec(i, v1.ScheduleAnyway)) != nil {
			heeded++
		}
	}
	if heeded != countedByNamespace/2 {
		t.Errorf("the leanings of %d classes are heeded", heeded)
	}
	v.Step(time.Unix(2, 0), event.PodSeen{Pod: &api.Pod{UID: "p", Namespace: "ns", Node: "n", ResourceVersion: "1", Labels: api.NewLabels(map[string]string{"app": "a0"}), Class: &api.Class{}}})
	if near, crowd := v.LeaningsOf("ns", spec(0, v1.ScheduleAnyway)).At(v.Node("n")); near != 0 || crowd != 1 {
		t.Errorf("%d, %d", near, crowd)
	}
	if opened := v.Opened(); len(opened) > 0 {
		t.Errorf("%v are woken", opened)
	}
	required := 0
	for i := range 2 * countedByNamespace {
		if _, ok := v.RulesOf("ns", spec(i, v1.DoNotSchedule)); ok {
			required++
		}
	}
	if required < countedByNamespace { // the selectors that are counted already are counted once
		t.Errorf("the rules of %d classes are known", required)
	}
}
