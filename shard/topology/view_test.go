package topology

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/shard/event"
)

// world is a random cluster, and what a naive recount over all of its pods says.
type world struct {
	t       *testing.T
	die     *rand.Rand
	view    *View
	version int
	nodes   map[string]*v1.Node
	spaces  map[string]map[string]string
	pods    map[string]*v1.Pod
	rows    map[string]string // pod -> node
	n       uint64
}

func (w *world) pick(of ...string) string { return of[w.die.IntN(len(of))] }

func (w *world) step(ev event.Event) { w.view.Step(time.Unix(1000, 0), ev) }

func (w *world) term() v1.PodAffinityTerm {
	t := v1.PodAffinityTerm{TopologyKey: w.pick("zone", "rack"), LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": w.pick("a", "b")}}}
	switch w.die.IntN(6) {
	case 0:
		t.NamespaceSelector = &metav1.LabelSelector{}
	case 1:
		t.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "x"}}
	case 2:
		t.Namespaces = []string{"n1"}
	}
	return t
}

func (w *world) pod(name string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.pick("n0", "n1"), UID: types.UID(name), Labels: map[string]string{"app": w.pick("a", "b", "c")}}}
	p.Spec.SchedulerName = api.SchedulerName
	p.Spec.Affinity = &v1.Affinity{}
	if w.die.IntN(3) == 0 {
		p.Spec.Affinity.PodAntiAffinity = &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{w.term()}}
	}
	if w.die.IntN(4) == 0 {
		p.Spec.Affinity.PodAffinity = &v1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{w.term()}}
		if w.die.IntN(3) == 0 {
			p.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution = append(p.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution, w.term())
		}
	}
	for range w.die.IntN(3) {
		c := v1.TopologySpreadConstraint{MaxSkew: 1 + int32(w.die.IntN(2)), TopologyKey: w.pick("zone", "rack"), WhenUnsatisfiable: v1.DoNotSchedule,
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": w.pick("a", "b")}}}
		if w.die.IntN(4) == 0 {
			n := int32(1 + w.die.IntN(4))
			c.MinDomains = &n
		}
		if w.die.IntN(4) == 0 {
			honor := v1.NodeInclusionPolicyHonor
			c.NodeTaintsPolicy = &honor
		}
		p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, c)
	}
	if w.die.IntN(4) == 0 {
		p.Spec.NodeSelector = map[string]string{"disk": "ssd"}
	}
	return p
}

func (w *world) show(p *v1.Pod) {
	w.version++
	p.ResourceVersion = strconv.Itoa(w.version)
	w.pods[p.Name] = p
	w.step(event.PodSeen{Pod: api.FromPod(p, nil, api.Rules{})})
	if r, ok := w.rows[p.Name]; ok && r != "" {
		delete(w.rows, p.Name) // its version is another now
	}
}

func (w *world) change() {
	switch name := fmt.Sprintf("p%d", w.die.IntN(12)); w.die.IntN(9) {
	case 0:
		n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node%d", w.die.IntN(6)), Labels: map[string]string{}}}
		for _, key := range []string{"zone", "rack"} {
			if w.die.IntN(5) > 0 {
				n.Labels[key] = w.pick("1", "2", "3")
			}
		}
		if w.die.IntN(2) == 0 {
			n.Labels["disk"] = "ssd"
		}
		if w.die.IntN(4) == 0 {
			n.Spec.Taints = []v1.Taint{{Key: "k", Effect: v1.TaintEffectNoSchedule}}
		}
		w.nodes[n.Name] = n
		w.step(event.NodeSeen{Node: api.FromNode(n, nil)})
	case 1:
		if name := fmt.Sprintf("node%d", w.die.IntN(6)); w.nodes[name] != nil && w.die.IntN(3) == 0 {
			delete(w.nodes, name)
			w.step(event.NodeGone{Name: name})
		}
	case 2:
		space, labels := w.pick("n0", "n1"), map[string]string{"team": w.pick("x", "y")}
		labels[api.LabelRepelsOthers] = w.pick("true", "")
		w.spaces[space] = labels
		w.step(event.NamespaceSeen{Name: space, Labels: labels})
	case 3, 4:
		if w.pods[name] == nil {
			w.show(w.pod(name))
		}
	case 5, 6:
		p := w.pods[name]
		if p == nil || p.Spec.NodeName != "" || w.rows[name] != "" {
			return
		}
		switch node := fmt.Sprintf("node%d", w.die.IntN(6)); {
		case w.die.IntN(4) == 0:
			p = p.DeepCopy()
			p.Spec.SchedulerName, p.Status.NominatedNodeName = "other", node
			w.show(p)
		case p.Spec.SchedulerName == "other", w.die.IntN(2) == 0:
			p = p.DeepCopy()
			p.Spec.NodeName = node
			w.show(p)
		default:
			w.n++
			w.rows[name] = node
			w.step(event.LogSeen{Revision: int64(w.n), Intents: []event.LoggedIntents{{Incarnation: "s", N: w.n, Place: int64(w.n), Record: &wire.IntentsRecord{
				Rows: []*wire.IntentRow{{PodUid: name, PodResourceVersion: p.ResourceVersion, Namespace: p.Namespace, Name: name, Node: node}}}}}})
		}
	case 7:
		if p := w.pods[name]; p != nil {
			p = p.DeepCopy()
			if w.die.IntN(2) == 0 {
				p.Labels = map[string]string{"app": w.pick("a", "b", "c")}
			} else {
				now := metav1.Now()
				p.DeletionTimestamp = &now
			}
			w.show(p)
		}
	case 8:
		if p := w.pods[name]; p != nil && w.die.IntN(2) == 0 {
			delete(w.pods, name)
			delete(w.rows, name)
			w.step(event.PodGone{UID: name, Namespace: p.Namespace, Name: name})
		}
	}
}

// at returns where a pod counts, whether it is bound there, and whether others may rely on it.
func (w *world) at(p *v1.Pod) (node string, bound, row bool) {
	if p.Spec.NodeName != "" {
		return p.Spec.NodeName, true, true
	}
	if p.Status.NominatedNodeName != "" {
		return p.Status.NominatedNodeName, false, false
	}
	return w.rows[p.Name], false, true
}

func (w *world) matches(t v1.PodAffinityTerm, of, p *v1.Pod) bool {
	spaces := t.Namespaces
	if len(spaces) == 0 && t.NamespaceSelector == nil {
		spaces = []string{of.Namespace}
	}
	in := slices.Contains(spaces, p.Namespace)
	if t.NamespaceSelector != nil {
		s, _ := metav1.LabelSelectorAsSelector(t.NamespaceSelector)
		in = in || s.Matches(labels.Set(w.spaces[p.Namespace]))
	}
	s, _ := metav1.LabelSelectorAsSelector(t.LabelSelector)
	return in && s.Matches(labels.Set(p.Labels))
}

// repels is matches for anti-affinity, which crosses namespaces only by right.
func (w *world) repels(t v1.PodAffinityTerm, of, p *v1.Pod) bool {
	return w.matches(t, of, p) && (of.Namespace == p.Namespace || w.spaces[of.Namespace][api.LabelRepelsOthers] == "true")
}

// naive says what keeps a pod from a node, now or once what has a row is bound, by looking at all pods for each
// question.
func (w *world) naive(p *v1.Pod, name string, later bool) Obstacle {
	node := w.nodes[name]
	const any, bound, lasting = 0, 1, 2 // whom count counts
	minimum := bound
	if later {
		minimum = lasting
	}
	count := func(key, value string, counts func(*v1.Pod) bool, who int, admits func(*v1.Node) bool) (n int64) {
		for _, o := range w.pods {
			at, is, row := w.at(o)
			if other := w.nodes[at]; o.Name != p.Name && other != nil && (is || who == any || who == lasting && row) && admits(other) && counts(o) {
				if v, has := other.Labels[key]; has && (value == "*" || v == value) {
					n++
				}
			}
		}
		return n
	}
	all := func(*v1.Node) bool { return true }
	for _, c := range p.Spec.TopologySpreadConstraints {
		value, has := node.Labels[c.TopologyKey]
		if !has {
			return NoDomain
		}
		s, _ := metav1.LabelSelectorAsSelector(c.LabelSelector)
		counts := func(o *v1.Pod) bool {
			return o.Namespace == p.Namespace && o.DeletionTimestamp == nil && s.Matches(labels.Set(o.Labels))
		}
		admits := func(n *v1.Node) bool {
			for _, o := range p.Spec.TopologySpreadConstraints {
				if _, has := n.Labels[o.TopologyKey]; !has {
					return false
				}
			}
			return (len(p.Spec.NodeSelector) == 0 || n.Labels["disk"] == "ssd") && (c.NodeTaintsPolicy == nil || len(n.Spec.Taints) == 0)
		}
		least, domains := int64(-1), map[string]bool{}
		for _, n := range w.nodes {
			if v := n.Labels[c.TopologyKey]; admits(n) && !domains[v] {
				domains[v] = true
				if k := count(c.TopologyKey, v, counts, minimum, admits); least < 0 || k < least {
					least = k
				}
			}
		}
		if least < 0 || c.MinDomains != nil && len(domains) < int(*c.MinDomains) {
			least = 0
		}
		self := int64(0)
		if s.Matches(labels.Set(p.Labels)) {
			self = 1
		}
		if count(c.TopologyKey, value, counts, any, admits)+self-least > int64(c.MaxSkew) {
			return Skewed
		}
	}
	if a := p.Spec.Affinity.PodAffinity; a != nil {
		terms := a.RequiredDuringSchedulingIgnoredDuringExecution
		counts := func(o *v1.Pod) bool {
			return !slices.ContainsFunc(terms, func(t v1.PodAffinityTerm) bool { return !w.matches(t, p, o) })
		}
		supported, none := true, true
		for _, t := range terms {
			value, has := node.Labels[t.TopologyKey]
			if !has {
				return Lonely
			}
			supported = supported && count(t.TopologyKey, value, counts, bound, all) > 0
			none = none && count(t.TopologyKey, "*", counts, any, all) == 0
		}
		if !supported && !(none && counts(p)) {
			return Lonely
		}
	}
	if a := p.Spec.Affinity.PodAntiAffinity; a != nil {
		for _, t := range a.RequiredDuringSchedulingIgnoredDuringExecution {
			value, has := node.Labels[t.TopologyKey]
			if has && count(t.TopologyKey, value, func(o *v1.Pod) bool { return w.repels(t, p, o) }, any, all) > 0 {
				return Avoids
			}
		}
	}
	for _, o := range w.pods {
		at, _, _ := w.at(o)
		if a := o.Spec.Affinity.PodAntiAffinity; o.Name != p.Name && a != nil && w.nodes[at] != nil {
			for _, t := range a.RequiredDuringSchedulingIgnoredDuringExecution {
				value, has := node.Labels[t.TopologyKey]
				there, is := w.nodes[at].Labels[t.TopologyKey]
				if has && is && value == there && w.repels(t, o, p) {
					return Avoided
				}
			}
		}
	}
	return None
}

// checkSpectra compares the least and the most pods of a domain with a scan of all domains.
func (w *world) checkSpectra() {
	for _, t := range w.view.tallies {
		for i := range ways {
			if t.domains == 0 || !t.numbers[i].kept {
				continue
			}
			first, least, most := true, int32(0), int32(0)
			for d, n := range t.nodes {
				if c := t.countIn(int32(d), i); n > 0 {
					if first {
						first, least, most = false, c, c
					}
					least, most = min(least, c), max(most, c)
				}
			}
			if gotLeast, gotMost := t.numbers[i].bounds(); gotLeast != least || gotMost != most {
				w.t.Fatalf("%s, counted by %d: %d to %d pods in a domain, a scan says %d to %d", t.column.label, i, gotLeast, gotMost, least, most)
			}
		}
	}
}

// TestViewCountsLikeANaiveRecount compares what the rules say with a recount over all pods, in random clusters that
// change all the time.
func TestViewCountsLikeANaiveRecount(t *testing.T) {
	t.Parallel()
	met := map[Obstacle]int{}
	for seed := range uint64(300) {
		w := &world{t: t, die: rand.New(rand.NewPCG(seed, 1)), view: New(), nodes: map[string]*v1.Node{}, spaces: map[string]map[string]string{}, pods: map[string]*v1.Pod{}, rows: map[string]string{}}
		w.step(event.LogRead{Revision: 1})
		for i := range 120 {
			w.change()
			w.checkSpectra()
			if i%3 != 0 {
				continue
			}
			p := w.pod("new")
			object := api.FromPod(p, nil, api.Rules{})
			if object.Refused != nil {
				t.Fatal(object.Refused)
			}
			rules, ok := w.view.RulesOf(p.Namespace, object.Class.With(object.Labels))
			if !ok {
				t.Fatalf("seed %d: refused", seed)
			}
			for name := range w.nodes {
				got, later := None, None
				if rules != nil {
					got, later = rules.Obstacle(w.view.Node(name), true), rules.Later(w.view.Node(name), true)
				}
				want := w.naive(p, name, false)
				if met[want]++; got != want {
					t.Fatalf("seed %d step %d: %s on %s: got %q, a recount says %q", seed, i, p.Spec.String(), name, got, want)
				}
				if want := w.naive(p, name, true); later != want {
					t.Fatalf("seed %d step %d: %s on %s: later %q, a recount says %q", seed, i, p.Spec.String(), name, later, want)
				}
			}
		}
	}
	for o := range obstacles {
		if met[o] < 100 && o != InUse { // which is about no node: TestJudge
			t.Errorf("%q occurred %d times", o, met[o])
		}
	}
}

// TestNamespaceRelabelled: with other labels of its namespace a pod may match its own affinity, and then go first.
func TestNamespaceRelabelled(t *testing.T) {
	v := New()
	now := time.Unix(1000, 0)
	v.Step(now, event.NamespaceSeen{Name: "ns"})
	v.Step(now, event.NodeSeen{Node: api.FromNode(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", Labels: map[string]string{"zone": "1"}}}, nil)})
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: "p", ResourceVersion: "1"}}
	p.Spec.SchedulerName = api.SchedulerName
	p.Spec.Affinity = &v1.Affinity{PodAffinity: &v1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{
		{TopologyKey: "zone", LabelSelector: &metav1.LabelSelector{}, NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "x"}}}}}}
	seen := api.FromPod(p, nil, api.Rules{})
	v.Step(now, event.PodSeen{Pod: seen})
	obstacle := func() Obstacle {
		r, ok := v.RulesOf("ns", seen.Class.With(seen.Labels))
		if !ok || r == nil {
			t.Fatal("the pod has no rules")
		}
		return r.Obstacle(v.Node("node"), true)
	}
	if o := obstacle(); o != Lonely {
		t.Errorf("the first pod of a group to which it does not belong: %q", o)
	}
	v.Opened()
	v.Step(now, event.NamespaceSeen{Name: "ns", Labels: map[string]string{"team": "x"}})
	if !v.Opened()["ns"] {
		t.Error("it is not said that more may fit")
	}
	if o := obstacle(); o != None {
		t.Errorf("the first pod of its own group: %q", o)
	}
}

// TestSharedHostname: of two nodes with one hostname, each is in the domain of the other, and maybe another shard's.
func TestSharedHostname(t *testing.T) {
	v := New()
	now := time.Unix(1000, 0)
	node := func(name, host string) {
		v.Step(now, event.NodeSeen{Node: api.FromNode(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{api.LabelHostname: host}}}, nil)})
	}
	pod := func(name string) *v1.Pod {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns", UID: types.UID(name), ResourceVersion: "1", Labels: map[string]string{"app": "a"}}}
		p.Spec.SchedulerName = api.SchedulerName
		return p
	}
	v.Step(now, event.NamespaceSeen{Name: "ns"})
	node("n1", "h")
	node("n2", "i")
	x := pod("x")
	x.Spec.NodeName = "n1"
	x.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{
		{TopologyKey: api.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}}}}}
	v.Step(now, event.PodSeen{Pod: api.FromPod(x, nil, api.Rules{})})
	p := api.FromPod(pod("p"), nil, api.Rules{})
	class := p.Class.With(p.Labels)
	if r, ok := v.RulesOf("ns", class); r != nil || !ok {
		t.Error("terms about hostnames of their own are counted")
	}
	node("n2", "h")
	r, ok := v.RulesOf("ns", class)
	if r == nil || !ok {
		t.Fatal("a term about a shared hostname is not counted")
	}
	if o := r.Obstacle(v.Node("n2"), true); o != Avoided {
		t.Errorf("the pod may go beside one that repels it: %v", o)
	}
	v.Step(now, event.PodGone{UID: "x", Namespace: "ns", Name: "x"})
	if o := r.Obstacle(v.Node("n2"), true); o != None {
		t.Errorf("what repelled it is gone: %v", o)
	}
}

// One selector may be counted by many topology keys: by so many for a namespace, and none of them for longer than
// somebody asks.
func TestSpreadsOfANamespaceAreBounded(t *testing.T) {
	v := New()
	now := time.Unix(1000, 0)
	for _, name := range []string{"n1", "n2", "n3"} {
		v.Step(now, event.NodeSeen{Node: api.FromNode(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"zone": name}}}, nil)})
	}
	const each = 8
	class := func(namespace string, i int) *api.Class {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("p", i), Namespace: namespace, UID: types.UID(fmt.Sprint(namespace, i)), Labels: map[string]string{"app": "a"}}, Spec: v1.PodSpec{SchedulerName: api.SchedulerName}}
		for k := range each {
			p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, v1.TopologySpreadConstraint{MaxSkew: 1, TopologyKey: fmt.Sprintf("key-%d-%d", i, k),
				WhenUnsatisfiable: v1.DoNotSchedule, LabelSelector: &metav1.LabelSelector{MatchLabels: p.Labels}})
		}
		seen := api.FromPod(p, nil, api.Rules{})
		return seen.Class.With(seen.Labels)
	}
	for _, namespace := range []string{"ns", "other"} {
		v.Step(now, event.NamespaceSeen{Name: namespace})
	}
	full := talliesByNamespace / each
	for i := range full {
		if r, ok := v.RulesOf("ns", class("ns", i)); !ok || r == nil {
			t.Fatalf("%d of %d are not counted", i, full)
		}
	}
	if _, ok := v.RulesOf("ns", class("ns", full)); ok {
		t.Error("there is no end to what a namespace may have counted")
	}
	for _, is := range []struct {
		namespace string
		i         int
	}{{"ns", 0}, {"other", full}} {
		if _, ok := v.RulesOf(is.namespace, class(is.namespace, is.i)); !ok {
			t.Errorf("%+v is not counted any more", is)
		}
	}
	for range 10 {
		now = now.Add(CountKept / 6)
		v.Step(now, event.Tick{})
		if _, ok := v.RulesOf("ns", class("ns", 0)); !ok {
			t.Error("who still asks is forgotten")
		}
	}
	if n := len(v.tallies); n != each {
		t.Errorf("%d tallies are kept, %d are in use", n, each)
	}
	if _, ok := v.RulesOf("ns", class("ns", full)); !ok || v.tallied["ns"] != 2*each || v.tallied["other"] != 0 {
		t.Errorf("what nobody asks for still counts: %v", v.tallied)
	}
	if o, _ := v.RulesOf("ns", class("ns", 0)); o.Obstacle(v.Node("n1"), true) == None {
		t.Error("a node without the labels takes such a pod")
	}
	v.Step(now.Add(2*CountKept), event.Tick{})
	if len(v.tallied)+len(v.tallies)+len(v.made) > 0 {
		t.Errorf("nobody asks, and kept are %v and %v", v.tallied, v.made)
	}
}

// TestSeenAgain: where the watch stood for a list, nothing is gone.
func TestSeenAgain(t *testing.T) {
	v := New()
	p := &api.Pod{UID: "u", Namespace: "a", Name: "p", ResourceVersion: "1", Node: "n", Class: api.NewClass(nil, nil)}
	for _, one := range []struct {
		ev    event.Event
		knows bool
	}{
		{event.PodSeen{Pod: p}, true}, {event.PodsReplaced{Seen: true}, true}, {event.PodsReplaced{}, false},
	} {
		if v.Step(time.Unix(1, 0), one.ev); v.Knows("a", "u") != one.knows {
			t.Errorf("after %T, the pod is known: %v", one.ev, !one.knows)
		}
	}
}
