package topology

import (
	"fmt"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/shard/event"
)

// rulesOf are those of a pod that the judged world knows.
func (j *judged) rulesOf(t *testing.T, uid string) *Rules {
	t.Helper()
	r, ok := j.RulesOf("ns", j.pods[uid].Class.With(j.pods[uid].Labels))
	if !ok || r == nil {
		t.Fatalf("pod %s has no rules", uid)
	}
	return r
}

// apartFrom is a pod that keeps away from those of an app in its domain, in its own namespace or in others.
func apartFrom(label, app string, namespaces ...string) v1.PodSpec {
	terms := []v1.PodAffinityTerm{{TopologyKey: label, Namespaces: namespaces,
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}}}
	return v1.PodSpec{Affinity: &v1.Affinity{
		PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms}}}
}

// TestOpen: how many pods of a class may be placed one after another, as far as domains are concerned.
func TestOpen(t *testing.T) {
	for _, c := range []struct {
		name, kind string
		there      func(j *judged)
		most, more int
		want       int
	}{
		{"nothing bounds them", "apart", func(*judged) {}, 9, 0, 9},
		{"the first of their app founds it", "beside", func(*judged) {}, 9, 0, 1},
		{"some of their app are bound", "beside", func(j *judged) { j.pod("q", "11", "x", "", "a1") }, 9, 0, 9},
		{"some are on their way", "beside", func(j *judged) {
			j.pod("q", "11", "x", "", "")
			j.rows(5, "q@11>a1")
		}, 9, 0, 0},
		{"those that they ask for are not there", "beside y", func(*judged) {}, 9, 0, 0},
		{"one in each zone", "even", func(*judged) {}, 9, 0, 2},
		{"with one more in each", "even", func(*judged) {}, 9, 1, 4},
		{"at most so many", "even", func(*judged) {}, 1, 0, 1},
		{"a zone has one", "even", func(j *judged) {
			j.pod("q", "11", "x", "", "")
			j.rows(5, "q@11>a1")
		}, 9, 0, 1},
		{"a zone has no nodes any more", "even", func(j *judged) {
			j.node("c1")
			j.step(event.NodeGone{Name: "c1"})
		}, 9, 0, 2},
		{"those that count are others", "even y", func(*judged) {}, 9, 0, 9},
		{"those that it asks for are in a zone, and in no rack", "", func(j *judged) {
			j.pod("q", "11", "y", "", "a1")
			p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", UID: "p", ResourceVersion: "10"}}
			p.Spec.SchedulerName, p.Spec.Affinity = api.SchedulerName, &v1.Affinity{PodAffinity: &v1.PodAffinity{}}
			for _, label := range []string{"rack", "zone"} {
				p.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution = append(
					p.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution, v1.PodAffinityTerm{TopologyKey: label,
						LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "y"}}})
			}
			j.pods["p"] = api.FromPod(p, nil, api.Rules{})
		}, 9, 0, 0},
	} {
		j := newJudged()
		j.pod("p", "10", "x", c.kind, "")
		if c.kind != "" {
			j.rulesOf(t, "p") // what they ask for is counted from now on
		}
		c.there(j)
		if got := j.rulesOf(t, "p").Open(c.most, c.more); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

// TestUnsupported: the pods that an affinity asks for are nowhere, unless it is the first of them.
func TestUnsupported(t *testing.T) {
	j := newJudged()
	for kind, want := range map[string]bool{"beside": false, "beside y": true, "beside z": false, "even": false} {
		j.pod("z", "9", "z", "", "b1")
		j.pod("p", "10", "x", kind, "")
		if got := j.rulesOf(t, "p").Unsupported(); got != want {
			t.Errorf("%s: %t", kind, got)
		}
	}
}

// TestSpreads: only a spread is judged otherwise once pods that are on their way are bound.
func TestSpreads(t *testing.T) {
	j := newJudged()
	for kind, want := range map[string]bool{"beside": false, "apart": false, "even": true} {
		j.pod("p", "10", "x", kind, "")
		if got := j.rulesOf(t, "p").Spreads(); got != want {
			t.Errorf("%s: %t", kind, got)
		}
	}
}

// spread has a pod of app x spread over some labels, the first of them over so many domains at least.
func (j *judged) spread(uid string, least int32, labels ...string) {
	p := &v1.Pod{Spec: v1.PodSpec{SchedulerName: api.SchedulerName}}
	p.Namespace, p.Name, p.UID, p.ResourceVersion, p.Labels = "ns", uid, "p", "10", map[string]string{"app": "x"}
	for i, label := range labels {
		c := v1.TopologySpreadConstraint{MaxSkew: 1, TopologyKey: label, WhenUnsatisfiable: v1.DoNotSchedule,
			LabelSelector: &metav1.LabelSelector{MatchLabels: p.Labels}}
		if i == 0 && least > 0 {
			c.MinDomains = &least
		}
		p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, c)
	}
	j.pods[uid] = api.FromPod(p, nil, api.Rules{})
	j.step(event.PodSeen{Pod: j.pods[uid]})
}

// TestLacks: what only other nodes would help.
func TestLacks(t *testing.T) {
	bothZones := func(j *judged) {
		j.pod("q", "11", "x", "", "a1")
		j.pod("r", "12", "x", "", "b1")
	}
	for _, c := range []struct {
		name string
		pod  func(j *judged)
		want Lack
	}{
		{"there are enough domains", func(j *judged) { j.spread("p", 2, "zone"); bothZones(j) }, Lack{}},
		{"there are too few, but they are empty", func(j *judged) { j.spread("p", 3, "zone") }, Lack{}},
		{"there are too few, and each has a pod", func(j *judged) { j.spread("p", 3, "zone"); bothZones(j) },
			Lack{"zone", true, 2, 3}},
		{"no node has the label", func(j *judged) { j.spread("p", 0, "rack") }, Lack{"rack", true, 0, 1}},
		{"no node has the other label", func(j *judged) { j.spread("p", 0, "zone", "rack") }, Lack{"rack", true, 0, 1}},
		{"no node has both labels", func(j *judged) {
			j.step(event.NodeSeen{Node: &api.Node{Name: "r", ResourceVersion: "1", Labels: map[string]string{"rack": "1"}}})
			j.spread("p", 0, "zone", "rack")
		}, Lack{"zone", true, 0, 1}},
		{"those that it asks for are nowhere, which is no lack of nodes", func(j *judged) {
			j.pod("p", "10", "x", "beside y", "")
		}, Lack{}},
		{"it is the first of its app", func(j *judged) { j.pod("p", "10", "x", "beside", "") }, Lack{}},
		{"and no node is in a zone", func(j *judged) {
			for _, name := range []string{"a1", "a2", "b1"} {
				j.step(event.NodeGone{Name: name})
			}
			j.pod("p", "10", "x", "beside", "")
		}, Lack{"zone", false, 0, 1}},
	} {
		j := newJudged()
		c.pod(j)
		if got, some := j.rulesOf(t, "p").Lacks(); got != c.want && some || some != (c.want != Lack{}) {
			t.Errorf("%s: %+v, %t; want %+v", c.name, got, some, c.want)
		}
	}
}

// TestTies: the labels in whose domains a class requires pods of its gang, and those whose domains it may have to
// itself.
func TestTies(t *testing.T) {
	j := newJudged()
	app := func(name string) []*api.Labels {
		return []*api.Labels{api.NewLabels(map[string]string{"app": name})}
	}
	for _, c := range []struct {
		kind      string
		of        string
		ties      []string
		separates bool
	}{
		{"beside y", "y", []string{"zone"}, false},
		{"beside y", "x", nil, false},
		{"even", "x", nil, true},
		{"apart", "x", nil, true},
		{"", "x", nil, false},
	} {
		j.pod("p", "10", "x", c.kind, "")
		class := j.pods["p"].Class
		if got := j.Ties("ns", class, app(c.of)); !slices.Equal(got, c.ties) {
			t.Errorf("%q is tied to %s by %q, want %q", c.kind, c.of, got, c.ties)
		}
		if got := j.Separates(class, "zone"); got != c.separates || j.Separates(class, "rack") {
			t.Errorf("%q is alone in its zone: %t", c.kind, got)
		}
	}
	unreadable := &api.Class{Key: "unreadable", Joins: []byte{0xff}}
	if got := j.Ties("ns", unreadable, app("x")); got != nil || j.Separates(unreadable, "zone") {
		t.Errorf("joins that cannot be read tie by %q", got)
	}
}

// TestAwaits: a row may bind its pod until it is given up.
func TestAwaits(t *testing.T) {
	j := newJudged()
	j.rows(5, "p@10>a1", "q@10>b1")
	j.log(5, &wire.IntentsRecord{GivenUp: []string{"p"}})
	for uid, want := range map[string]bool{"p": false, "q": true, "r": false} {
		if got := j.Awaits("s", 5, uid); got != want {
			t.Errorf("%s: %t", uid, got)
		}
	}
	if j.Awaits("s", 6, "q") {
		t.Error("there is no such key")
	}
}

// TestLabelAppears: rules about a label that no node has, and the same once one has it.
func TestLabelAppears(t *testing.T) {
	w := newTenants()
	w.see(w.pod("ns", "there", "n", map[string]string{"app": "a"}, v1.PodSpec{}))
	p := w.see(w.pod("ns", "p", "", map[string]string{"app": "b"}, apartFrom("rack", "a")))
	obstacle := func() Obstacle {
		r, ok := w.RulesOf("ns", p.Class.With(p.Labels))
		if !ok {
			t.Fatal("no rules")
		}
		if r == nil {
			return None
		}
		return r.Obstacle(w.Node("n"), true)
	}
	for round := range 2 { // a label may go, and come again
		if got := obstacle(); got != None {
			t.Errorf("round %d: no node has the label: %v", round, got)
		}
		w.step(event.NodeSeen{Node: &api.Node{Name: "n", ResourceVersion: "2", Labels: map[string]string{"rack": "1"}}})
		if got := obstacle(); got != Avoids {
			t.Errorf("round %d: a pod of the app is in the domain: %v", round, got)
		}
		w.step(event.NodeSeen{Node: &api.Node{Name: "n", ResourceVersion: "3"}})
	}
}

// TestTaintChanges: a spread that heeds taints counts a node until it has one that is not tolerated, though its value
// is the same.
func TestTaintChanges(t *testing.T) {
	w := newTenants()
	taint := func(key string, effect v1.TaintEffect) {
		w.step(event.NodeSeen{Node: &api.Node{Name: "m", ResourceVersion: "2", Labels: map[string]string{"zone": "b"},
			Taints: []v1.Taint{{Key: key, Effect: effect}}}})
	}
	taint("k", v1.TaintEffectNoSchedule)
	honor, spec := v1.NodeInclusionPolicyHonor, spreadOver("zone", "a")
	spec.TopologySpreadConstraints[0].NodeTaintsPolicy = &honor
	spec.Tolerations = []v1.Toleration{{Key: "k", Operator: v1.TolerationOpExists}}
	w.see(w.pod("ns", "there", "n", map[string]string{"app": "a"}, v1.PodSpec{}))
	p := w.see(w.pod("ns", "p", "", map[string]string{"app": "a"}, spec))
	for _, c := range []struct {
		key    string
		effect v1.TaintEffect
		want   Obstacle // zone b is empty, if it counts
	}{
		{"k", v1.TaintEffectNoSchedule, Skewed},
		{"l", v1.TaintEffectNoSchedule, None},
		{"l", v1.TaintEffectPreferNoSchedule, Skewed},
		{"l", v1.TaintEffectNoExecute, None},
	} {
		taint(c.key, c.effect)
		r, ok := w.RulesOf("ns", p.Class.With(p.Labels))
		if !ok || r == nil {
			t.Fatal("no rules")
		}
		if got := r.Obstacle(w.Node("n"), true); got != c.want {
			t.Errorf("taint %s:%s: %v, want %v", c.key, c.effect, got, c.want)
		}
	}
}

// TestHolds: a hold counts until it ends, whatever else is seen of its pod, and never beside what binds it.
func TestHolds(t *testing.T) {
	w := newTenants()
	w.step(event.NodeSeen{Node: &api.Node{Name: "m", ResourceVersion: "1", Labels: map[string]string{"zone": "b"}}})
	asks := w.see(w.pod("ns", "asks", "", nil, apartFrom("zone", "a")))
	rules, ok := w.RulesOf("ns", asks.Class.With(asks.Labels))
	if !ok {
		t.Fatal("no rules")
	}
	app := func(name, node string) *api.Pod {
		return w.see(w.pod("ns", "p", node, map[string]string{"app": name}, v1.PodSpec{}))
	}
	check := func(when string, n, m Obstacle) {
		t.Helper()
		got := []Obstacle{rules.Obstacle(w.Node("n"), true), rules.Obstacle(w.Node("m"), true)}
		if !slices.Equal(got, []Obstacle{n, m}) {
			t.Errorf("%s: %v", when, got)
		}
	}
	p := app("a", "")
	w.Hold("ns", p.UID, "n")
	check("held", Avoids, None)
	if rules.Obstacle(w.Node("n"), false) != None {
		t.Error("a hold counts for those who do not ask for holds")
	}
	app("b", "")
	check("with other labels", None, None)
	p = app("a", "")
	check("with its labels again", Avoids, None)
	w.step(event.PodsReplaced{Pods: []*api.Pod{asks, p}})
	check("after a list", Avoids, None)
	w.Hold("ns", p.UID, "m")
	check("held elsewhere", None, Avoids)
	w.Hold("ns", p.UID, "")
	check("held no longer", None, None)
	w.Hold("ns", p.UID, "m")
	app("a", "n")
	check("bound", Avoids, None)
	w.Hold("ns", p.UID, "m")
	check("bound, and to be held", Avoids, None)
	w.step(event.NodeGone{Name: "never"})
	check("after a node is gone that nobody saw", Avoids, None)
	other := w.pod("ns", "other", "m", map[string]string{"app": "a"}, v1.PodSpec{})
	w.step(event.PodsReplaced{Pods: []*api.Pod{asks, nil, other}})
	check("after a list with another", None, Avoids)
	asked := Asked{}
	asked.Rules(rules)
	trial := w.Try(asked)
	trial.Leave([][2]string{{"ns", "never"}, {"ns", other.UID}}, func() { check("left out", None, None) })
	check("as before", None, Avoids)
	trial.End()
}

// TestOpenedBySupport: a pod that an affinity asks for is bound, so those that ask may fit now, also where leanings ask
// for the same.
func TestOpenedBySupport(t *testing.T) {
	j := newJudged()
	j.pod("p", "10", "x", "beside y", "")
	j.rulesOf(t, "p")
	j.Opened()
	j.pod("q", "11", "y", "", "a1")
	if !j.Opened()["ns"] {
		t.Error("nobody is woken for a pod that was asked for")
	}
	soft := spreadOver("zone", "z")
	soft.TopologySpreadConstraints[0].WhenUnsatisfiable = v1.ScheduleAnyway
	w := newTenants()
	required := w.pod("ns", "p", "", nil, spreadOver("zone", "z"))
	if _, ok := w.RulesOf("ns", required.Class.With(required.Labels)); !ok {
		t.Fatal("no rules")
	}
	w.LeaningsOf("ns", w.pod("ns", "l", "", nil, soft).Class)
	w.see(w.pod("ns", "q", "n", map[string]string{"app": "z"}, v1.PodSpec{}))
	if !w.Opened()["ns"] {
		t.Error("nobody is woken where leanings ask for what is required, too")
	}
}

// TestRemembered: of what is read of pods only so much is remembered.
func TestRemembered(t *testing.T) {
	w := newTenants()
	for i := range remembered + 1 {
		repels := string(w.pod("ns", "p", "", nil, apartFrom("zone", fmt.Sprint(i), "other")).Class.Repels)
		if terms := w.wide("ns", repels); len(w.readWide(repels, w.shared)) != 1 || len(terms) > 1 {
			t.Fatalf("%d terms", len(terms))
		}
		w.onePodOf(repels)
		w.joinsOf(w.pod("ns", "p", "", nil, spreadOver("zone", fmt.Sprint(i))).Class)
	}
	kept := map[string]int{"terms": len(w.terms), "terms of a namespace": len(w.in("ns").terms), "claims": len(w.onePod),
		"joins": len(w.joins)}
	for what, n := range kept {
		if n == 0 || n > remembered {
			t.Errorf("%s: %d are remembered", what, n)
		}
	}
}

// TestCarriedTermsAreBounded: of the terms of pods that wait so many are counted for a namespace, of all its pods twice
// as many.
func TestCarriedTermsAreBounded(t *testing.T) {
	w := newTenants()
	w.step(event.NamespaceSeen{Name: "ns"})
	apart := func(i int) v1.PodSpec { return apartFrom("none", fmt.Sprint(i)) }
	asked := 0
	for i := range countedByNamespace + 10 {
		if _, ok := w.RulesOf("ns", w.pod("ns", "p", "", nil, apart(i)).Class.With(nil)); ok {
			asked++
		}
	}
	if asked != countedByNamespace {
		t.Errorf("%d terms of pods that wait are counted", asked)
	}
	for i := range carriedByNamespace + 1 {
		if len(w.Excess) > 0 {
			t.Fatalf("%d terms of pods that are bound are counted", i)
		}
		w.see(w.pod("ns", fmt.Sprint("b", i), "n", nil, apart(i)))
	}
	if !w.Excess["ns"] || !w.Full("ns") {
		t.Error("there is no end to what a namespace may have counted")
	}
	for i := range carriedByNamespace + 1 {
		w.step(event.PodGone{Namespace: "ns", UID: fmt.Sprint("ns/b", i)})
	}
	w.pass(2 * CountKept)
	w.pass(2 * CountKept)
	if len(w.carriers)+len(w.carried) > 0 || w.Full("ns") {
		t.Errorf("all are gone, and %d terms are kept: %v", len(w.carriers), w.carried)
	}
}

// TestFull: a namespace asks for about as much as is counted for it once a term about all namespaces does not fit any
// more.
func TestFull(t *testing.T) {
	const most = countedByNamespace - anywhereCounts
	for _, c := range []struct {
		made, carried, tallied int
		want                   bool
	}{
		{most, most, talliesByNamespace - 1, false},
		{most + 1, 0, 0, true},
		{0, most + 1, 0, true},
		{0, 0, talliesByNamespace, true},
	} {
		v := New()
		v.made["ns"], v.carried["ns"], v.tallied["ns"] = c.made, c.carried, c.tallied
		if got := v.Full("ns"); got != c.want {
			t.Errorf("%+v: %t", c, got)
		}
	}
}

// TestHeavyAtTheBound: a trial may change so many counters.
func TestHeavyAtTheBound(t *testing.T) {
	w := newTenants()
	asked, uids := Asked{}, []string(nil)
	for i := range 64 {
		uids = append(uids, w.see(w.pod("ns", fmt.Sprint("p", i), "", nil, v1.PodSpec{})).UID)
	}
	k := w.kinOf(w.in("ns"), w.podOf("ns", uids[0]).object)
	for range triedAtOnce / len(uids) {
		c := &counter{}
		k.in, asked[c] = append(k.in, c), true
	}
	asked[&counter{}] = true // one that counts others
	if w.Heavy(asked, "ns", uids) {
		t.Error("as many as are allowed are too many")
	}
	uids = append(uids, w.see(w.pod("ns", "more", "", nil, v1.PodSpec{})).UID)
	if !w.Heavy(asked, "ns", uids) {
		t.Error("more than are allowed are tried")
	}
}

// TestStrangers: it is counted how often a namespace begins to be repelled by pods of others, and by how many terms
// does not matter.
func TestStrangers(t *testing.T) {
	w := newTenants()
	w.step(event.NamespaceSeen{Name: "bad", Labels: map[string]string{api.LabelRepelsOthers: "true"}})
	for _, c := range []struct {
		name string
		spec v1.PodSpec
		node string
		want uint64
	}{
		{"in no domain", apartFrom("none", "a", "good"), "n", 0},
		{"about their own namespace", apartFrom("zone", "a", "bad"), "n", 0},
		{"about another", apartFrom("zone", "a", "good"), "n", 1},
		{"once more about it", apartFrom("zone", "b", "good"), "n", 1},
		{"about a third", apartFrom("zone", "a", "good", "third"), "n", 2},
	} {
		w.see(w.pod("bad", c.name, c.node, nil, c.spec))
		if w.Strangers != c.want {
			t.Errorf("%s: %d, want %d", c.name, w.Strangers, c.want)
		}
	}
	w.at = w.at.Add(time.Second)
	if err := w.check(); err != nil {
		t.Error(err)
	}
}

// TestBoundsOfLeanings: where all nodes have the label, the worst of them has as many pods as any, also after a node
// came and went.
func TestBoundsOfLeanings(t *testing.T) {
	w := newTenants()
	terms := []v1.WeightedPodAffinityTerm{{Weight: 5,
		PodAffinityTerm: v1.PodAffinityTerm{TopologyKey: "zone", LabelSelector: &metav1.LabelSelector{}}}}
	spec := v1.PodSpec{Affinity: &v1.Affinity{
		PodAffinity: &v1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: terms}}}
	w.see(w.pod("ns", "there", "n", nil, v1.PodSpec{}))
	class := w.pod("ns", "p", "", nil, spec).Class
	check := func(when string, want int64) {
		t.Helper()
		l := w.LeaningsOf("ns", class)
		near, crowd := l.Has()
		if !near || crowd {
			t.Errorf("%s: terms %t, spreads %t", when, near, crowd)
		}
		if worst, _ := l.Worst(); worst != want {
			t.Errorf("%s: %d, want %d", when, worst, want)
		}
	}
	check("one node", 5)
	w.step(event.NodeSeen{Node: &api.Node{Name: "bare", ResourceVersion: "1"}})
	check("a node without the label", 0)
	w.step(event.NodeGone{Name: "bare"})
	check("it is gone", 5)
}
