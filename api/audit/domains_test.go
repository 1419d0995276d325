package audit_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/audit"
	"basalt.dev/basalt/api/wire"
)

func apps(name string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
}

// joins gives a pod an affinity to the pods of an app.
func joins(name string, change ...func(*v1.PodAffinityTerm)) func(*v1.Pod) {
	return func(p *v1.Pod) {
		t := v1.PodAffinityTerm{TopologyKey: zone, LabelSelector: apps(name)}
		for _, f := range change {
			f(&t)
		}
		p.Spec.Affinity = &v1.Affinity{PodAffinity: &v1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{t}}}
	}
}

// spreads has a pod spread with those of an app.
func spreads(name string, skew int32, change ...func(*v1.TopologySpreadConstraint)) func(*v1.Pod) {
	return func(p *v1.Pod) {
		c := v1.TopologySpreadConstraint{TopologyKey: zone, MaxSkew: skew, WhenUnsatisfiable: v1.DoNotSchedule, LabelSelector: apps(name)}
		for _, f := range change {
			f(&c)
		}
		p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, c)
	}
}

// inTeam has a term select the namespaces of team x.
func inTeam(t *v1.PodAffinityTerm) {
	t.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "x"}}
}

func (w *world) namespace(name, team string) {
	w.space(name, map[string]string{"team": team})
}

func (w *world) space(name string, labels map[string]string) {
	o := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	w.a.Observe(w.now, audit.Seen[*v1.Namespace]{Object: o})
}

// mayRepel shows a namespace that has had the right to repel others for a while.
func (w *world) mayRepel(name string) {
	w.space(name, map[string]string{api.LabelRepelsOthers: "true"})
	w.pass(time.Minute)
}

func deleting(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }

// charged reserves for a gang of one.
func (w *world) charged(uid string) {
	w.reserve(uid, 100, func(r *wire.ReservationRecord) {
		r.Demand, r.Gang.Single = append(r.Demand, &wire.Amount{Resource: "pods", Value: 1}), true
	})
}

// gangOf has the pods of a gang bound, with their intents in the order given: where[i] is the node of pods[i].
func (w *world) gangOf(n int, pods, where []string, change ...func(*v1.Pod)) {
	w.group("gg", "job", int32(len(pods)))
	w.reserve("gg", int64(100*len(pods)), func(r *wire.ReservationRecord) {
		r.Demand = append(r.Demand, &wire.Amount{Resource: "pods", Value: int64(len(pods))})
	})
	change = append(slices.Clip(change), of("job"))
	var keys []string
	for i, p := range pods {
		w.pod(p, "100m", change...)
		keys = append(keys, w.intend(n+i, "gg", 100, map[string]string{p: where[i]}))
	}
	for i, p := range pods {
		w.pod(p, "100m", slices.Concat([]func(*v1.Pod){on(where[i])}, change)...)
		w.put(keys[i], nil)
	}
}

// Pods are bound to domains as their affinity and their spread require it at the place of their intents: nodes n1, n2 are in z1, m1 is in
// z2, l1 in z3, and bare in no zone.
func TestDomains(t *testing.T) {
	const long, short = 20 * time.Second, 5 * time.Second
	a, friend, even := app("a"), joins("a"), spreads("a", 1)
	hosts := func(c *v1.TopologySpreadConstraint) { c.TopologyKey = v1.LabelHostname }
	tests := []struct {
		name string
		kind audit.Kind // "" for a clean report
		in   string     // of the message
		run  func(w *world)
	}{
		{"affinity: its pod is in the zone", "", "", func(w *world) { w.place(1, "p", "n1", a); w.place(2, "q", "n2", friend) }},
		{"affinity: its pod is elsewhere", audit.Affinity, "ns/q was bound to node m1: no pod that its affinity asks for was in its zone, and some were elsewhere", func(w *world) {
			w.place(1, "p", "n1", a)
			w.place(2, "q", "m1", friend)
		}},
		{"affinity: its pod is nowhere", audit.Affinity, "no pod that its affinity asks for was in its zone", func(w *world) { w.place(2, "q", "m1", friend) }},
		{"affinity: the first of a group", "", "", func(w *world) { w.place(1, "q", "m1", a, friend) }},
		{"affinity: the second of a group, elsewhere", audit.Affinity, "ns/q", func(w *world) { w.place(1, "p", "n1", a, friend); w.place(2, "q", "m1", a, friend) }},
		{"affinity: two first of a group, the intent of the one seen bound first is the later one", audit.Affinity, "ns/q was bound to node m1", func(w *world) {
			w.pod("p", "100m", a, friend)
			w.pod("q", "100m", a, friend)
			w.charged("p")
			w.charged("q")
			k := w.intend(1, "p", 100, map[string]string{"p": "n1"})
			l := w.intend(2, "q", 100, map[string]string{"q": "m1"})
			w.pod("q", "100m", on("m1"), a, friend)
			w.pod("p", "100m", on("n1"), a, friend)
			w.put(k, nil)
			w.put(l, nil)
		}},
		{"affinity: the first of a group, and others later in the order", "", "", func(w *world) {
			w.place(1, "p", "n1", a, friend)
			w.place(2, "q", "n2", a, friend)
		}},
		{"affinity: a gang of its own in two zones", "", "", func(w *world) { w.gangOf(1, []string{"p", "q"}, []string{"n1", "n2"}, a, friend) }},
		{"affinity: a pod of the same gang whose Binding is seen last", "", "", func(w *world) {
			w.place(1, "o", "m1", a)
			w.gangOf(2, []string{"p", "q"}, []string{"m1", "m1"}, a, friend)
		}},
		{"affinity: its pod ended a moment ago", "", "", func(w *world) {
			w.place(1, "o", "m1", a)
			w.place(2, "p", "n1", a)
			w.pod("p", "100m", on("n1"), a, done)
			w.pass(short)
			w.place(3, "q", "n2", friend)
		}},
		{"affinity: its pod was deleted a moment ago", "", "", func(w *world) {
			w.place(1, "o", "m1", a)
			w.place(2, "p", "n1", a)
			w.gone("p")
			w.pass(short)
			w.place(3, "q", "n2", friend)
		}},
		{"affinity: its pod ended long ago", audit.Affinity, "ns/q", func(w *world) {
			w.place(1, "p", "n1", a)
			w.pod("p", "100m", on("n1"), a, done)
			w.pass(long)
			w.place(2, "q", "n2", friend)
		}},
		{"affinity: its pod ended after the Binding", "", "", func(w *world) {
			w.place(1, "p", "n1", a)
			w.place(2, "q", "n2", friend)
			w.gone("p")
		}},
		{"affinity: its pod was labelled otherwise a moment ago", "", "", func(w *world) {
			w.place(1, "p", "n1", a)
			w.pod("p", "100m", on("n1"), app("b"))
			w.pass(short)
			w.place(2, "q", "n2", friend)
		}},
		{"affinity: the node of its pod went to another zone a moment ago", "", "", func(w *world) {
			w.place(1, "p", "n1", a)
			w.labelled("n1", "z2")
			w.pass(short)
			w.place(2, "q", "n2", friend)
		}},
		{"affinity: the node of its pod went to another zone long ago", audit.Affinity, "ns/q", func(w *world) {
			w.place(1, "p", "n1", a)
			w.labelled("n1", "z2")
			w.pass(long)
			w.place(2, "q", "n2", friend)
		}},
		{"affinity: the node of its pod was removed a moment ago", "", "", func(w *world) {
			w.place(1, "o", "m1", a)
			w.place(2, "p", "n1", a)
			w.a.Observe(w.now, audit.Gone[*v1.Node]{Object: &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}})
			w.place(3, "q", "n2", friend)
		}},
		{"affinity: another namespace", audit.Affinity, "ns/q", func(w *world) { w.place(1, "p", "n1", a, elsewhere); w.place(2, "q", "n2", friend) }},
		{"affinity: namespaces with labels", "", "", func(w *world) {
			w.namespace("other", "x")
			w.pass(long)
			w.place(1, "p", "n1", a, elsewhere)
			w.place(2, "q", "n2", joins("a", inTeam))
		}},
		{"affinity: a namespace with other labels", audit.Affinity, "ns/q", func(w *world) {
			w.namespace("other", "y")
			w.pass(long)
			w.place(1, "p", "n1", a, elsewhere)
			w.place(2, "q", "n2", joins("a", inTeam))
		}},
		{"affinity: a namespace that had such labels just now", "", "", func(w *world) {
			w.namespace("other", "x")
			w.pass(long)
			w.place(1, "p", "n1", a, elsewhere)
			w.namespace("other", "y")
			w.place(2, "q", "n2", joins("a", inTeam))
		}},
		{"affinity: another scheduler's pod, just now", "", "", func(w *world) { w.stranger("f", "n1", a); w.place(1, "q", "n2", friend) }},
		{"affinity: somebody else bound ours", "", "", func(w *world) {
			w.pod("q", "100m", friend)
			w.pod("q", "100m", friend, func(p *v1.Pod) { p.Spec.NodeName = "n1" })
		}},

		{"anti-affinity over zones: the later", audit.AntiAffinity, "ns/q", func(w *world) { w.place(1, "p", "n1", a); w.place(2, "q", "n2", repels("a", zone)) }},
		{"anti-affinity over zones: the earlier", audit.AntiAffinity, "ns/q", func(w *world) { w.place(1, "p", "n1", repels("a", zone)); w.place(2, "q", "n2", a) }},
		{"anti-affinity over zones: two zones", "", "", func(w *world) {
			w.place(1, "p", "n1", a, repels("a", zone))
			w.place(2, "q", "m1", a, repels("a", zone))
		}},
		{"anti-affinity over zones: the earlier ended", "", "", func(w *world) {
			w.place(1, "p", "n1", a, repels("a", zone))
			w.gone("p")
			w.place(2, "q", "n2", a, repels("a", zone))
		}},
		{"anti-affinity over zones: its node was away meanwhile", "", "", func(w *world) {
			w.place(1, "p", "n1", a, repels("a", zone))
			w.a.Observe(w.now, audit.Gone[*v1.Node]{Object: &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}})
			w.pass(short)
			w.place(2, "q", "n2", a, repels("a", zone))
			w.labelled("n1", "z1")
		}},

		{"spread: one in each zone", "", "", func(w *world) {
			w.place(1, "p", "n1", a, even)
			w.place(2, "q", "m1", a, even)
			w.place(3, "r", "l1", a, even)
			w.place(4, "s", "n2", a, even)
		}},
		{"spread: two in a zone while another has none", audit.Spread, "ns/q was bound to node n2: its zone z1 had 2 pods that its spread counts, and another one no more than 0, with a maxSkew of 1", func(w *world) {
			w.place(1, "p", "n1", a, even)
			w.place(2, "q", "n2", a, even)
		}},
		{"spread: a maxSkew of two", "", "", func(w *world) { w.place(1, "p", "n1", a); w.place(2, "q", "n2", a, spreads("a", 2)) }},
		{"spread: ScheduleAnyway", "", "", func(w *world) {
			w.place(1, "p", "n1", a)
			w.place(2, "q", "n2", a, spreads("a", 1, func(c *v1.TopologySpreadConstraint) { c.WhenUnsatisfiable = v1.ScheduleAnyway }))
		}},
		{"spread: the later intent does not count for the earlier", "", "", func(w *world) {
			w.charged("q")
			w.pod("q", "100m", a, even)
			k := w.intend(1, "q", 100, map[string]string{"q": "n2"})
			w.place(2, "p", "n1", a)
			w.pod("q", "100m", on("n2"), a, even)
			w.put(k, nil)
		}},
		{"spread: an intent of the same key, before", audit.Spread, "ns/q", func(w *world) {
			w.gangOf(1, []string{"o"}, []string{"bare"})
			w.charged("p")
			w.charged("q")
			w.pod("p", "100m", a)
			w.pod("q", "100m", a, even)
			k := w.intend(9, "p", 100, map[string]string{"p": "n1"}, func(r *wire.IntentsRecord) {
				r.Gangs = append(r.Gangs, &wire.GangRef{Uid: "q"})
				r.Rows = append(r.Rows, &wire.IntentRow{PodUid: "q", Node: "n1", Gang: 1})
			})
			w.pod("p", "100m", on("n1"), a)
			w.pod("q", "100m", on("n1"), a, even)
			w.put(k, nil)
		}},
		{"spread: it does not count itself", "", "", func(w *world) { w.place(1, "p", "n1", a); w.place(2, "q", "n2", even) }},
		{"spread: a pod that is being deleted", "", "", func(w *world) {
			w.place(1, "p", "n1", a)
			w.pod("p", "100m", on("n1"), a, deleting)
			w.place(2, "q", "n2", a, even)
		}},
		{"spread: a pod that ended", "", "", func(w *world) {
			w.place(1, "p", "n1", a)
			w.pod("p", "100m", on("n1"), a, done)
			w.place(2, "q", "n2", a, even)
		}},
		{"spread: those in the minimum ended a moment ago", "", "", func(w *world) {
			w.place(1, "p", "n1", a)
			w.place(2, "m", "m1", a)
			w.place(3, "l", "l1", a)
			w.pod("m", "100m", on("m1"), a, done)
			w.gone("l")
			w.pass(short)
			w.place(4, "q", "n2", a, even)
		}},
		{"spread: those in the minimum ended long ago", audit.Spread, "ns/q", func(w *world) {
			w.place(1, "p", "n1", a)
			w.place(2, "m", "m1", a)
			w.place(3, "l", "l1", a)
			w.gone("m")
			w.gone("l")
			w.pass(long)
			w.place(4, "q", "n2", a, even)
		}},
		{"spread: the node of one in the minimum was removed a moment ago", "", "", func(w *world) {
			w.labelled("l2", "z3")
			w.pass(long)
			w.place(1, "p", "n1", a)
			w.place(2, "m", "m1", a)
			w.place(3, "l", "l1", a)
			w.gone("l")
			w.a.Observe(w.now, audit.Gone[*v1.Node]{Object: &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "l1"}}})
			w.place(4, "q", "n2", a, even)
		}},
		{"spread: a zone whose only node was away meanwhile", "", "", func(w *world) {
			w.place(1, "p", "n1", a)
			w.place(2, "m", "m1", a)
			w.a.Observe(w.now, audit.Gone[*v1.Node]{Object: &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "l1"}}})
			w.pass(long)
			w.place(3, "q", "n2", a, even)
			w.labelled("l1", "z3")
		}},
		{"spread: the node of one that counts was in another zone a moment ago", "", "", func(w *world) {
			w.place(1, "p", "m1", a)
			w.labelled("m1", "z1")
			w.pass(short)
			w.place(2, "q", "n1", a, even)
		}},
		{"spread: of a gang", "", "", func(w *world) {
			w.gangOf(1, []string{"p", "q", "r", "s"}, []string{"n1", "n2", "m1", "l1"}, a, even)
		}},
		{"spread: of a gang, one of which was deleted before it was bound", "", "", func(w *world) {
			w.group("gg", "job", 2)
			w.reserve("gg", 300, func(r *wire.ReservationRecord) { r.Demand = append(r.Demand, &wire.Amount{Resource: "pods", Value: 3}) })
			w.place(9, "l", "l1", a)
			var keys []string
			for i, x := range [][2]string{{"p", "n1"}, {"q", "n2"}, {"r", "m1"}} {
				w.pod(x[0], "100m", a, even, of("job"))
				keys = append(keys, w.intend(20+i, "gg", 100, map[string]string{x[0]: x[1]}))
			}
			w.pod("p", "100m", on("n1"), a, even, of("job"))
			w.gone("r")
			w.pod("q", "100m", on("n2"), a, even, of("job"))
			w.pass(time.Second)
			w.reserve("gg", 200, func(r *wire.ReservationRecord) { r.Demand = append(r.Demand, &wire.Amount{Resource: "pods", Value: 2}) })
			for _, k := range keys {
				w.put(k, nil)
			}
		}},
		{"spread: of a gang, all in one zone", audit.Spread, "ns/q", func(w *world) { w.gangOf(1, []string{"p", "q"}, []string{"n1", "n2"}, a, even) }},
		{"spread: over hosts", audit.Spread, "its kubernetes.io/hostname n1 had 2", func(w *world) {
			w.place(1, "p", "n1", a)
			w.place(2, "q", "n1", a, spreads("a", 1, hosts))
		}},
		{"spread: over zones and hosts, a node without zone does not count", "", "", func(w *world) {
			for i, n := range []string{"n1", "n2", "m1", "l1"} {
				w.place(i+1, "p"+n, n, a)
			}
			w.place(9, "q", "m1", a, even, spreads("a", 1, hosts))
		}},
		{"spread: fewer zones than minDomains", audit.Spread, "ns/q", func(w *world) {
			for i, n := range []string{"n1", "m1", "l1"} {
				w.place(i+1, "p"+n, n, a)
			}
			w.place(9, "q", "n2", a, spreads("a", 1, func(c *v1.TopologySpreadConstraint) { c.MinDomains = new(int32(4)) }))
		}},
		{"spread: a zone that its node selector excludes", "", "", func(w *world) {
			w.place(1, "p", "n1", a)
			w.place(2, "q", "n2", a, even, func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{zone: "z1"} })
		}},
		{"spread: a zone that its node selector excludes, which is ignored", audit.Spread, "ns/q", func(w *world) {
			w.place(1, "p", "n1", a)
			w.place(2, "q", "n2", a, func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{zone: "z1"} },
				spreads("a", 1, func(c *v1.TopologySpreadConstraint) { c.NodeAffinityPolicy = new(v1.NodeInclusionPolicyIgnore) }))
		}},
		{"spread: matchLabelKeys", "", "", func(w *world) {
			version := func(v string) func(*v1.Pod) { return func(p *v1.Pod) { p.Labels["version"] = v } }
			w.place(1, "p", "n1", a, version("1"))
			w.place(2, "q", "n2", a, version("2"), spreads("a", 1, func(c *v1.TopologySpreadConstraint) { c.MatchLabelKeys = []string{"version"} }))
		}},
		{"spread: a selector about the label of our Bindings", "", "", func(w *world) {
			gang := spreads("", 1, func(c *v1.TopologySpreadConstraint) {
				c.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{api.LabelGang: "g"}}
			})
			w.place(1, "p", "n1", gang)
			w.place(2, "q", "n2", gang)
		}},
		{"spread: another scheduler's pod, for long", audit.Spread, "ns/q", func(w *world) { w.stranger("f", "n1", a); w.pass(long); w.place(1, "q", "n2", a, even) }},
		{"spread: another scheduler's pod, lately", "", "", func(w *world) { w.stranger("f", "n1", a); w.pass(short); w.place(1, "q", "n2", a, even) }},
		{"spread: a pod that was labelled so a moment ago", "", "", func(w *world) {
			w.place(1, "p", "n1", app("b"))
			w.pass(long)
			w.pod("p", "100m", on("n1"), a)
			w.pass(short)
			w.place(2, "q", "n2", a, even)
		}},
		{"spread: the intents show after the Binding", audit.Spread, "ns/q", func(w *world) {
			w.place(1, "p", "n1", a)
			w.charged("q")
			w.pod("q", "100m", a, even)
			w.pod("q", "100m", on("n2"), a, even)
			w.pass(time.Second)
			w.put(w.intend(2, "q", 100, map[string]string{"q": "n2"}), nil)
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, audit.Config{})
			for name, value := range map[string]string{"n1": "z1", "n2": "z1", "m1": "z2", "l1": "z3"} {
				w.labelled(name, value)
			}
			w.node("bare", "4")
			w.pass(15 * time.Second)
			test.run(w)
			w.pass(8 * time.Second)
			r := w.a.Report()
			if test.kind == "" {
				if r.Sum() != 0 {
					t.Fatalf("found %v", r.Violations)
				}
				return
			}
			if r.Counts[test.kind] != 1 || r.Sum() != 1 || !strings.Contains(r.Violations[0].Message, test.in) {
				t.Fatalf("want one %s with %q, found %v", test.kind, test.in, r.Violations)
			}
		})
	}
}
