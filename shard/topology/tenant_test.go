package topology

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/shard/event"
)

// What one tenant makes must not stay, and must not be compared again and again for others.

// tenants is a View that hears of pods of several namespaces.
type tenants struct {
	*View
	at time.Time
	n  int
}

func newTenants() *tenants {
	w := &tenants{View: New(), at: time.Unix(1000, 0)}
	w.step(event.NodeSeen{Node: &api.Node{Name: "n", ResourceVersion: "1", Labels: map[string]string{"zone": "a"}}})
	w.step(event.LogRead{Revision: 1})
	return w
}

func (w *tenants) step(ev event.Event) { w.Step(w.at, ev) }

func (w *tenants) pass(d time.Duration) {
	w.at = w.at.Add(d)
	w.step(event.Tick{})
}

func (w *tenants) pod(namespace, name, node string, labels map[string]string, spec v1.PodSpec) *api.Pod {
	w.n++
	spec.NodeName, spec.SchedulerName = node, api.SchedulerName
	return api.FromPod(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + "/" + name), ResourceVersion: fmt.Sprint(w.n), Labels: labels}, Spec: spec}, nil, api.Rules{})
}

func (w *tenants) see(p *api.Pod) *api.Pod {
	w.step(event.PodSeen{Pod: p})
	return p
}

func spreadOver(label, app string) v1.PodSpec {
	return v1.PodSpec{TopologySpreadConstraints: []v1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: label, WhenUnsatisfiable: v1.DoNotSchedule, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}}}}
}

func TestNodesThatNobodySaw(t *testing.T) {
	w := newTenants()
	if _, ok := w.RulesOf("x", w.pod("x", "waits", "", nil, spreadOver("zone", "a")).Class); !ok {
		t.Fatal("no rules")
	}
	for round := range 3 {
		for i := range 1000 {
			p := w.see(w.pod("x", fmt.Sprint("p", i), fmt.Sprintf("none-%d-%d", round, i), nil, v1.PodSpec{}))
			if i%10 > 0 {
				w.step(event.PodGone{Namespace: "x", UID: p.UID})
			}
		}
		w.pass(countKept)
		if len(w.byName) != 101 { // each round moves the pods that stay
			t.Fatalf("round %d: %d nodes are known", round, len(w.byName))
		}
	}
	if len(w.nodes) > 1200 {
		t.Errorf("%d nodes are kept", len(w.nodes))
	}
	w.step(event.NodeSeen{Node: &api.Node{Name: "none-2-0", ResourceVersion: "2", Labels: map[string]string{"zone": "a"}}})
	for s := range w.counters {
		if c := w.counters[s].tallies[0].total[bound]; c != 0 {
			t.Errorf("%d pods of app a are counted", c)
		}
	}
	if err := w.check(); err != nil {
		t.Error(err)
	}
}

// check compares what is kept with what it should be.
func (w *tenants) check() error {
	uses := make([]int, len(w.nodes))
	for _, s := range w.spaces {
		for _, p := range s.pods {
			for _, e := range p.entries {
				uses[e.node]++
			}
			for k, claim := range p.object.Claims {
				if u := s.users[claim][p.uses[k].at]; u.pod != p || int(u.k) != k {
					return fmt.Errorf("pod %s is not where it should be among the users of %s", p.object.UID, claim)
				}
			}
		}
		for claim, list := range s.users {
			if n := len(list); n == 0 {
				return fmt.Errorf("claim %s is kept without users", claim)
			}
			for _, u := range list {
				if s.pods[u.pod.object.UID] != u.pod {
					return fmt.Errorf("claim %s has a user that is gone", claim)
				}
			}
		}
		var want []*carrier
		for _, c := range w.anywhere {
			if c.term.Concerns(s.name, s.labels) {
				want = append(want, c)
			}
		}
		if got := w.concerning(s); !slices.Equal(got, want) {
			return fmt.Errorf("namespace %s: %d terms that select namespaces concern it, %d are known", s.name, len(want), len(got))
		}
	}
	for n := range w.nodes {
		if w.nodes[n].entries != uses[n] {
			return fmt.Errorf("node %q has %d pods, %d are counted", w.nodes[n].name, uses[n], w.nodes[n].entries)
		}
	}
	return nil
}

func TestTenantsRandomly(t *testing.T) {
	for seed := range uint64(20) {
		w, r := newTenants(), rand.New(rand.NewPCG(seed, 0))
		for range 400 {
			namespace, name := fmt.Sprint("ns", r.IntN(4)), fmt.Sprint("p", r.IntN(12))
			switch r.IntN(10) {
			case 0:
				w.step(event.NamespaceSeen{Name: namespace, Labels: map[string]string{"team": fmt.Sprint(r.IntN(3))}})
			case 1:
				w.pass(time.Duration(r.IntN(90)) * time.Second)
			case 2, 3, 4:
				w.step(event.PodGone{Namespace: namespace, UID: namespace + "/" + name})
			default:
				var spec v1.PodSpec
				if r.IntN(2) == 0 {
					spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{
						TopologyKey: "zone", LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": fmt.Sprint(r.IntN(3))}},
						NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": fmt.Sprint(r.IntN(3))}}}}}}
				}
				if w.podOf(namespace, namespace+"/"+name) == nil {
					for i := range r.IntN(4) {
						spec.Volumes = append(spec.Volumes, v1.Volume{Name: fmt.Sprint(i), VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: fmt.Sprint("c", r.IntN(3))}}})
					}
					w.see(w.pod(namespace, name, fmt.Sprint("m", r.IntN(5)), map[string]string{"app": fmt.Sprint(r.IntN(3))}, spec))
				}
			}
			if p := w.pod(namespace, "asks", "", map[string]string{"app": "1"}, spreadOver("zone", "1")); p.Class != nil {
				w.RulesOf(namespace, p.Class.With(p.Labels))
			}
			if err := w.check(); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
	}
}

func TestOpenedByOthers(t *testing.T) {
	w := newTenants()
	term := v1.PodAffinityTerm{TopologyKey: "zone", LabelSelector: &metav1.LabelSelector{}, NamespaceSelector: &metav1.LabelSelector{}}
	repels := v1.PodSpec{Affinity: &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{term}}}}
	w.see(w.pod("bad", "one", "n", map[string]string{"v": "0"}, repels))
	if rules, ok := w.RulesOf("good", w.pod("good", "p", "", nil, v1.PodSpec{}).Class.With(nil)); !ok || rules == nil {
		t.Fatal("the term does not concern the other namespace")
	}
	w.Opened()
	w.see(w.pod("bad", "one", "n", map[string]string{"v": "1"}, repels))
	if of := w.Opened(); !of["bad"] || of["good"] {
		t.Errorf("a pod of bad was relabelled: %v", of)
	}
	w.step(event.NodeSeen{Node: &api.Node{Name: "n", ResourceVersion: "2", Labels: map[string]string{"zone": "b"}}})
	if of := w.Opened(); !of["good"] {
		t.Errorf("a node was relabelled: %v", of)
	}
}

// Each node that changes is compared with the filters of all namespaces.
func TestFiltersAreBounded(t *testing.T) {
	w := newTenants()
	ask := func(namespace string, i int) bool {
		spec := spreadOver("zone", "a")
		terms := make([]string, 300)
		for k := range terms {
			terms[k] = fmt.Sprintf("value-%d-%d", i, k)
		}
		spec.NodeSelector = map[string]string{"i": fmt.Sprint(i)}
		spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{
			{MatchExpressions: []v1.NodeSelectorRequirement{{Key: "k", Operator: v1.NodeSelectorOpIn, Values: terms}}}}}}}
		_, ok := w.RulesOf(namespace, w.pod(namespace, "p", "", nil, spec).Class.With(nil))
		w.at = w.at.Add(10 * time.Millisecond)
		w.now = w.at
		return ok
	}
	refused := 0
	for i := range 1000 {
		if !ask("bad", i) {
			refused++
		}
	}
	bytes := 0
	for id := range w.filters {
		bytes += len(id)
	}
	if refused == 0 || bytes > filterBytes || bytes < filterBytes/2 {
		t.Errorf("%d of 1000 were refused, the filters have %d bytes", refused, bytes)
	}
	if !ask("good", 5000) {
		t.Error("another namespace cannot have one")
	}
	w.pass(2 * countKept)
	w.pass(2 * countKept)
	if len(w.filters) > 0 || len(w.filtered) > 0 {
		t.Errorf("%d filters of %v are kept", len(w.filters), w.filtered)
	}
}
