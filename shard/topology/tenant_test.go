package topology

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
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
		w.pass(CountKept)
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
	for id, c := range w.counters {
		if err := w.checkCounter(c, c.matches); err != nil {
			return fmt.Errorf("%q: %w", id, err)
		}
	}
	for _, app := range []string{"0", "1"} {
		for _, s := range w.spaces {
			if err := w.checkAvoided(s.name, app); err != nil {
				return fmt.Errorf("a plain pod of %s with app %s: %w", s.name, app, err)
			}
		}
	}
	for id, c := range w.carriers {
		if err := w.checkCounter(&c.counter, func(k *kin) bool { return slices.Contains(k.terms, c) }); err != nil {
			return fmt.Errorf("term %q: %w", id, err)
		}
	}
	return nil
}

// checkAvoided asks every pod whether it repels a plain one from a node, and compares that with the rules of this one,
// which are nil if none does from any.
func (w *tenants) checkAvoided(namespace, app string) error {
	p := w.pod(namespace, "plain", "", map[string]string{"app": app}, v1.PodSpec{})
	rules, ok := w.RulesOf(namespace, p.Class.With(p.Labels))
	some := false
	for n := range w.nodes {
		repelled := false
		for _, s := range w.spaces {
			for _, o := range s.pods {
				for _, t := range w.wide(s.name, string(o.object.Class.Repels)) {
					for _, e := range o.entries {
						d, at := w.columnOf(t.Topology).at(e.node), w.columnOf(t.Topology).at(int32(n))
						same := d >= 0 && d == at
						repelled = repelled || same && t.Matches(namespace, w.in(namespace).labels, p.Labels)
					}
				}
			}
		}
		some = some || repelled
		if got := rules != nil && rules.Obstacle(int32(n), true) == Avoided; !ok || got != repelled {
			return fmt.Errorf("node %q: repelled is %v, want %v", w.nodes[n].name, got, repelled)
		}
	}
	if some != (rules != nil) {
		return fmt.Errorf("rules %v, repelled from some node is %v", rules, some)
	}
	return nil
}

// checkCounter counts the pods of a counter anew, by node and by domain.
func (w *tenants) checkCounter(c *counter, matches func(*kin) bool) error {
	want := map[int32]counts{}
	for _, s := range w.spaces {
		for _, p := range s.pods {
			for _, e := range p.entries {
				if (c.spaces == nil || slices.Contains(c.spaces, s.name)) && matches(e.kin) {
					var one counts
					one[e.weight] = 1
					on := want[e.node]
					on.add(one, 1)
					want[e.node] = on
				}
			}
		}
	}
	if !maps.Equal(c.on, want) {
		return fmt.Errorf("counted are %v, there are %v", c.on, want)
	}
	for _, t := range c.tallies {
		domains, nodes, some := map[int32]counts{}, map[int32]int32{}, 0
		for n := range w.nodes {
			if d := t.at(int32(n)); d >= 0 {
				if nodes[d]++; nodes[d] == 1 {
					some++
				}
				of := domains[d]
				of.add(want[int32(n)], 1)
				domains[d] = of
			}
		}
		if t.domains != some {
			return fmt.Errorf("%d domains of %s have nodes, %d are counted", some, t.column.label, t.domains)
		}
		for d := range t.domain {
			if t.domain[d] != domains[int32(d)] || t.nodes[d] != nodes[int32(d)] {
				return fmt.Errorf("domain %s of %s has %d nodes and pods %v; counted are %d and %v", t.column.values[d], t.column.label, nodes[int32(d)], domains[int32(d)], t.nodes[d], t.domain[d])
			}
		}
	}
	return nil
}

func TestTenantsRandomly(t *testing.T) {
	keys := []string{"zone", "zone", "rare", "none"}
	zones := []map[string]string{nil, {"zone": "a"}, {"zone": "b"}, {"zone": "c"}, {"zone": "a", "rare": "a"}}
	for seed := range uint64(20) {
		w, r := newTenants(), rand.New(rand.NewPCG(seed, 0))
		for range 400 {
			namespace, name := fmt.Sprint("ns", r.IntN(4)), fmt.Sprint("p", r.IntN(12))
			switch r.IntN(10) {
			case 0:
				right := []string{"true", "true", "", "false"}[r.IntN(4)]
				w.step(event.NamespaceSeen{Name: namespace, Labels: map[string]string{
					"team": fmt.Sprint(r.IntN(3)), api.LabelRepelsOthers: right}})
			case 1:
				node := &api.Node{Name: fmt.Sprint("m", r.IntN(5)), ResourceVersion: fmt.Sprint(w.n)}
				node.Labels = zones[r.IntN(len(zones))]
				w.step(event.NodeSeen{Node: node})
			case 2:
				w.pass(time.Duration(r.IntN(90)) * time.Second)
			case 3, 4:
				w.step(event.PodGone{Namespace: namespace, UID: namespace + "/" + name})
			default:
				var spec v1.PodSpec
				if r.IntN(2) == 0 {
					spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{
						TopologyKey:       keys[r.IntN(len(keys))],
						LabelSelector:     &metav1.LabelSelector{MatchLabels: map[string]string{"app": fmt.Sprint(r.IntN(3))}},
						NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": fmt.Sprint(r.IntN(3))}}}}}}
				}
				if w.podOf(namespace, namespace+"/"+name) == nil {
					for i := range r.IntN(4) {
						spec.Volumes = append(spec.Volumes, v1.Volume{Name: fmt.Sprint(i), VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: fmt.Sprint("c", r.IntN(3))}}})
					}
					w.see(w.pod(namespace, name, []string{"", "m0", "m1", "m2", "m3", "n"}[r.IntN(6)], map[string]string{"app": fmt.Sprint(r.IntN(3))}, spec))
				}
			}
			p := w.pod(namespace, "asks", "", map[string]string{"app": "1"}, spreadOver("zone", "1"))
			rules, _ := w.RulesOf(namespace, p.Class.With(p.Labels))
			if r.IntN(3) == 0 { // a trial, during which holds end and are made
				asked := Asked{}
				asked.Rules(rules)
				trial := w.Try(asked)
				for range r.IntN(4) {
					switch uid := fmt.Sprint(namespace, "/p", r.IntN(12)); r.IntN(3) {
					case 0:
						trial.Without(namespace, uid)
					case 1:
						trial.Add(namespace, uid, fmt.Sprint("m", r.IntN(5)))
					default:
						other := fmt.Sprint("ns", r.IntN(4))
						if uid := fmt.Sprint(other, "/p", r.IntN(12)); other != namespace {
							w.Hold(other, uid, []string{"", "m1", "m2"}[r.IntN(3)])
						}
					}
				}
				trial.End()
			}
			if err := w.check(); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
	}
}

// A term costs nobody anything while no pod that carries it is in a domain. Then it does, also in a trial of those that
// come with it.
func TestTermsThatRepelNobody(t *testing.T) {
	everybody := func(label string) v1.PodSpec {
		all := &metav1.LabelSelector{}
		return v1.PodSpec{Affinity: &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{
				{TopologyKey: label, LabelSelector: all, NamespaceSelector: all},
				{TopologyKey: label, LabelSelector: all, Namespaces: []string{"good"}}}}}}
	}
	for name, o := range map[string]struct {
		make  func(w *tenants)
		rules bool
	}{
		"no node has the label":    {func(w *tenants) { w.see(w.pod("bad", "p", "n", nil, everybody("none"))) }, false},
		"its node lacks the label": {func(w *tenants) { w.see(w.pod("bad", "p", "bare", nil, everybody("zone"))) }, false},
		"its node is not there":    {func(w *tenants) { w.see(w.pod("bad", "p", "gone", nil, everybody("zone"))) }, false},
		"it waits, and asks for nodes": {func(w *tenants) {
			p := w.see(w.pod("bad", "p", "", nil, everybody("zone")))
			w.RulesOf("bad", p.Class.With(nil))
		}, false},
		"its namespace may not": {func(w *tenants) {
			w.step(event.NamespaceSeen{Name: "bad"})
			w.see(w.pod("bad", "p", "n", nil, everybody("zone")))
		}, false},
		"its namespace may not any more": {func(w *tenants) {
			w.see(w.pod("bad", "p", "n", nil, everybody("zone")))
			w.RulesOf("good", w.pod("good", "q", "", nil, v1.PodSpec{}).Class.With(nil))
			w.step(event.NamespaceSeen{Name: "bad"})
		}, false},
		"its namespace may now": {func(w *tenants) {
			w.step(event.NamespaceSeen{Name: "bad"})
			w.see(w.pod("bad", "p", "n", nil, everybody("zone")))
			w.RulesOf("good", w.pod("good", "q", "", nil, v1.PodSpec{}).Class.With(nil))
			w.step(event.NamespaceSeen{Name: "bad", Labels: map[string]string{api.LabelRepelsOthers: "true"}})
		}, true},
		"it is gone": {func(w *tenants) {
			w.see(w.pod("bad", "p", "n", nil, everybody("zone")))
			w.RulesOf("good", w.pod("good", "q", "", nil, v1.PodSpec{}).Class.With(nil))
			w.step(event.PodGone{Namespace: "bad", UID: "bad/p"})
		}, false},
		"it is there": {func(w *tenants) { w.see(w.pod("bad", "p", "n", nil, everybody("zone"))) }, true},
		"a node gets the label": {func(w *tenants) {
			w.see(w.pod("bad", "p", "bare", nil, everybody("none")))
			w.RulesOf("good", w.pod("good", "q", "", nil, v1.PodSpec{}).Class.With(nil))
			w.step(event.NodeSeen{Node: &api.Node{Name: "bare", ResourceVersion: "2", Labels: map[string]string{"none": "x"}}})
		}, true},
	} {
		w := newTenants()
		w.step(event.NodeSeen{Node: &api.Node{Name: "bare", ResourceVersion: "1"}})
		w.step(event.NamespaceSeen{Name: "bad", Labels: map[string]string{api.LabelRepelsOthers: "true"}})
		o.make(w)
		p := w.pod("good", "asks", "", map[string]string{"app": "a"}, v1.PodSpec{})
		for _, class := range []*api.Class{p.Class, p.Class.With(p.Labels)} {
			if r, ok := w.RulesOf("good", class); !ok || (r != nil) != o.rules || w.Concerned("good") != o.rules {
				t.Errorf("%s: rules %v, want some: %v", name, r, o.rules)
			}
		}
		if err := w.check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	w := newTenants()
	carries := w.see(w.pod("good", "carries", "", nil, everybody("zone")))
	plain := w.see(w.pod("good", "plain", "", nil, v1.PodSpec{}))
	for _, elsewhere := range []bool{false, true} {
		classes, others := []*api.Class{plain.Class.With(nil), carries.Class.With(nil)}, []string(nil)
		if elsewhere {
			classes, others = classes[:1], []string{carries.UID}
		}
		rules := w.RulesAmong("good", classes, others, []bool{true, true})
		asked := Asked{}
		asked.Rules(rules[0])
		trial := w.Try(asked)
		before := rules[0].Obstacle(w.Node("n"), true)
		trial.Add("good", carries.UID, "n")
		if after := rules[0].Obstacle(w.Node("n"), true); before != None || after != Avoided {
			t.Errorf("pods that come together, elsewhere %v: before %v, after %v", elsewhere, before, after)
		}
		trial.End()
	}
}

// manySelectors has a namespace ask for pods x by so many selectors, each of a pod that is made as well.
func (w *tenants) manySelectors(namespace string, n int) (pods []*api.Pod) {
	for i := range n {
		w.at = w.at.Add(10 * time.Millisecond)
		w.step(event.Tick{})
		spec := spreadOver("zone", "")
		spec.TopologySpreadConstraints[0].LabelSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: []string{"x", fmt.Sprint("other-", i)}}}}
		pods = append(pods, w.see(w.pod(namespace, fmt.Sprint("asks-", i), "", map[string]string{"app": "x"}, spec)))
	}
	return pods
}

func (w *tenants) answered(pods []*api.Pod) (n int) {
	for _, p := range pods {
		if _, ok := w.RulesOf(p.Namespace, p.Class.With(p.Labels)); ok {
			n++
		}
	}
	return n
}

// On many nodes each new selector costs something: a namespace that asks for a thousand in a moment waits for the last
// of them, and nobody else does.
func TestSelectorsAtOnce(t *testing.T) {
	const nodes = 7000
	w := newTenants()
	for n := range nodes {
		node := &api.Node{Name: fmt.Sprint("n", n), ResourceVersion: "1", Labels: map[string]string{"zone": "a"}}
		w.step(event.NodeSeen{Node: node})
	}
	asking := func(namespace string, n int) (pods []*api.Pod) {
		for i := range n {
			selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": fmt.Sprint(i)}}
			terms := []v1.PodAffinityTerm{{TopologyKey: "zone", LabelSelector: selector}}
			joins := &v1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms}
			spec := v1.PodSpec{Affinity: &v1.Affinity{PodAffinity: joins}}
			pods = append(pods, w.see(w.pod(namespace, fmt.Sprint(i), "", nil, spec)))
		}
		return pods
	}
	good, bad := asking("good", 10), asking("bad", 1000)
	if n := w.answered(bad); n < countedAtOnce/nodes/2 || n > countedAtOnce/nodes+1 {
		t.Errorf("%d are counted at once", n)
	}
	if n := w.answered(good); n != 10 {
		t.Errorf("%d of 10 of another namespace are counted", n)
	}
	w.pass(5 * time.Second)
	if n := w.answered(bad); n != 1000 {
		t.Errorf("%d of 1000 are counted later", n)
	}
}

// Where each pod of a namespace is counted by a thousand selectors of its own, its pods may change for a while; then
// all but the oldest are given up until the namespace is less busy. Nobody else is concerned, and what is counted is
// always right.
func TestBusySelectors(t *testing.T) {
	w := newTenants()
	good, bad := w.manySelectors("good", freeCounts), w.manySelectors("bad", 1000)
	if g, b := w.answered(good), w.answered(bad); g != freeCounts || b != 1000 {
		t.Fatalf("%d of 64 and %d of 1000 are counted", g, b)
	}
	events := 0
	for ; w.made["bad"] == 1000 && events < 2000; events++ {
		w.see(w.pod("bad", fmt.Sprint("p", events), "n", map[string]string{"app": "x"}, v1.PodSpec{}))
		w.see(w.pod("good", fmt.Sprint("p", events), "n", map[string]string{"app": "x"}, v1.PodSpec{}))
	}
	if w.made["bad"] != freeCounts || w.made["good"] != freeCounts || events*(1000-freeCounts)*countCost < countedAtOnce*9/10 {
		t.Errorf("after %d changes %v are counted", events, w.made)
	}
	if g, b := w.answered(good), w.answered(bad); g != freeCounts || b != freeCounts {
		t.Errorf("%d of 64 and %d of 64 are answered", g, b)
	}
	if err := w.check(); err != nil {
		t.Error(err)
	}
	for range 20 {
		w.pass(CountKept / 60)
	}
	if b := w.answered(bad); b != 1000 {
		t.Errorf("%d of 1000 are answered later", b)
	}
	if err := w.check(); err != nil {
		t.Error(err)
	}
}

// A gang each of whose pods is counted by the selectors of all others is not judged, for that would take a second;
// one with fewer is.
func TestHeavyGang(t *testing.T) {
	w := newTenants()
	pods := w.manySelectors("bad", 1000)
	if n := w.answered(pods); n != 1000 {
		t.Fatalf("%d of 1000 are counted", n)
	}
	record := &wire.IntentsRecord{}
	var members []Member
	for _, p := range pods {
		members = append(members, Member{UID: p.UID, Namespace: p.Namespace, Version: p.ResourceVersion, Node: "n", Class: p.Class})
		record.Rows = append(record.Rows, &wire.IntentRow{PodUid: p.UID, PodResourceVersion: p.ResourceVersion, Namespace: p.Namespace, Name: p.Name, Node: "n"})
	}
	w.step(event.LogSeen{Revision: 2, Intents: []event.LoggedIntents{{Incarnation: "s", N: 1, Place: 2, Record: record}}})
	w.pass(time.Second)
	if n := w.answered(pods); n < freeCounts {
		t.Fatalf("%d of 1000 are counted", n)
	}
	if v := w.Judge(2, members); !v.Wait {
		t.Errorf("all of it are judged: %v", v.Against)
	}
	if v := w.Judge(2, members[:freeCounts]); v.Wait || len(v.Against) > 0 { // there is one zone: they are even
		t.Errorf("some of it: wait %t, against %v", v.Wait, v.Against)
	}
}

func TestOpenedByOthers(t *testing.T) {
	w := newTenants()
	w.step(event.NamespaceSeen{Name: "bad", Labels: map[string]string{api.LabelRepelsOthers: "true"}})
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
	w.pass(2 * CountKept)
	w.pass(2 * CountKept)
	if len(w.filters) > 0 || len(w.filtered) > 0 {
		t.Errorf("%d filters of %v are kept", len(w.filters), w.filtered)
	}
}
