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

const zone = "zone"

// app gives a pod a label, without taking others away.
func app(name string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		if p.Labels == nil {
			p.Labels = map[string]string{}
		}
		p.Labels["app"] = name
	}
}

// repels gives a pod a term about the pods of an app.
func repels(name, topology string, change ...func(*v1.PodAffinityTerm)) func(*v1.Pod) {
	return func(p *v1.Pod) {
		t := v1.PodAffinityTerm{TopologyKey: topology, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}}
		for _, f := range change {
			f(&t)
		}
		p.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{t}}}
	}
}

func elsewhere(p *v1.Pod) { p.Namespace = "other" }

// place has a pod of ours bound, as a gang of one.
func (w *world) place(n int, uid, node string, change ...func(*v1.Pod)) {
	w.pod(uid, "100m", change...)
	w.reserve(uid, 100, func(r *wire.ReservationRecord) {
		r.Demand, r.Gang.Single = append(r.Demand, &wire.Amount{Resource: "pods", Value: 1}), true
	})
	k := w.intend(n, uid, 100, map[string]string{uid: node})
	w.pod(uid, "100m", slices.Concat([]func(*v1.Pod){on(node)}, change)...)
	w.put(k, nil)
}

// stranger shows a pod that another scheduler bound.
func (w *world) stranger(uid, node string, change ...func(*v1.Pod)) {
	w.pod(uid, "100m", append(change, func(p *v1.Pod) { foreign(p); p.Spec.NodeName = node })...)
}

// Of two pods one of which repels the other, none is bound where the other one is.
func TestAntiAffinity(t *testing.T) {
	self, long, short := repels("a", v1.LabelHostname), 20*time.Second, 5*time.Second
	tests := []struct {
		name string
		in   string // of the message, "" for a clean report
		run  func(w *world)
	}{
		{"two that repel each other, on two nodes", "", func(w *world) { w.place(1, "p", "n1", app("a"), self); w.place(2, "q", "n2", app("a"), self) }},
		{"two that repel each other", "ns/q was bound to node n1, and ns/p is on node n1", func(w *world) {
			w.place(1, "p", "n1", app("a"), self)
			w.place(2, "q", "n1", app("a"), self)
		}},
		{"two of a gang", "ns/q was bound to node n1", func(w *world) {
			w.group("gg", "job", 2)
			w.pod("p", "100m", app("a"), self, of("job"))
			w.pod("q", "100m", app("a"), self, of("job"))
			w.reserve("gg", 200, func(r *wire.ReservationRecord) { r.Demand = append(r.Demand, &wire.Amount{Resource: "pods", Value: 2}) })
			k := w.intend(1, "gg", 100, map[string]string{"p": "n1", "q": "n1"})
			w.pod("p", "100m", on("n1"), app("a"), self, of("job"))
			w.pod("q", "100m", on("n1"), app("a"), self, of("job"))
			w.put(k, nil)
		}},
		{"one that the earlier repels", "ns/q", func(w *world) { w.place(1, "p", "n1", self); w.place(2, "q", "n1", app("a")) }},
		{"one that repels the earlier", "ns/q", func(w *world) { w.place(1, "p", "n1", app("a")); w.place(2, "q", "n1", self) }},
		{"a term about others", "", func(w *world) { w.place(1, "p", "n1", self); w.place(2, "q", "n1", app("b")) }},
		{"a pod of another namespace", "", func(w *world) { w.place(1, "p", "n1", self); w.place(2, "q", "n1", app("a"), elsewhere) }},
		{"a namespace that the term names", "other/q", func(w *world) {
			w.mayRepel("ns")
			w.place(1, "p", "n1", repels("a", v1.LabelHostname, func(t *v1.PodAffinityTerm) { t.Namespaces = []string{"other"} }))
			w.place(2, "q", "n1", app("a"), elsewhere)
		}},
		{"not the namespace that the term names", "", func(w *world) {
			w.place(1, "p", "n1", repels("a", v1.LabelHostname, func(t *v1.PodAffinityTerm) { t.Namespaces = []string{"other"} }))
			w.place(2, "q", "n1", app("a"))
		}},
		{"all namespaces, of one that may not repel others", "", func(w *world) {
			w.namespace("ns", "x")
			w.pass(time.Minute)
			all := func(t *v1.PodAffinityTerm) { t.NamespaceSelector = &metav1.LabelSelector{} }
			w.place(1, "p", "n1", repels("a", v1.LabelHostname, all))
			w.place(2, "q", "n1", app("a"), elsewhere)
		}},
		{"its own namespace, of one that may not repel others", "ns/q", func(w *world) {
			all := func(t *v1.PodAffinityTerm) { t.NamespaceSelector = &metav1.LabelSelector{} }
			w.place(1, "p", "n1", repels("a", v1.LabelHostname, all))
			w.place(2, "q", "n1", app("a"))
		}},
		{"a namespace that may repel others no more", "", func(w *world) {
			w.mayRepel("ns")
			all := func(t *v1.PodAffinityTerm) { t.NamespaceSelector = &metav1.LabelSelector{} }
			w.place(1, "p", "n1", repels("a", v1.LabelHostname, all))
			w.namespace("ns", "x")
			w.place(2, "q", "n1", app("a"), elsewhere)
		}},
		{"a namespace that may repel others since a moment ago", "", func(w *world) {
			all := func(t *v1.PodAffinityTerm) { t.NamespaceSelector = &metav1.LabelSelector{} }
			w.place(1, "p", "n1", repels("a", v1.LabelHostname, all))
			w.space("ns", map[string]string{api.LabelRepelsOthers: "true"})
			w.place(2, "q", "n1", app("a"), elsewhere)
		}},
		{"all namespaces", "other/q", func(w *world) {
			w.mayRepel("ns")
			w.place(1, "p", "n1", repels("a", v1.LabelHostname, func(t *v1.PodAffinityTerm) { t.NamespaceSelector = &metav1.LabelSelector{} }))
			w.place(2, "q", "n1", app("a"), elsewhere)
		}},
		{"a namespace that was not seen", "", func(w *world) {
			w.place(1, "p", "n1", repels("a", v1.LabelHostname, inTeam))
			w.place(2, "q", "n1", app("a"))
		}},
		{"a namespace with such labels", "other/q", func(w *world) {
			w.mayRepel("ns")
			w.namespace("other", "x")
			w.pass(time.Minute)
			w.place(1, "p", "n1", repels("a", v1.LabelHostname, inTeam))
			w.place(2, "q", "n1", app("a"), elsewhere)
		}},
		{"a namespace that had other labels before, as is seen later", "", func(w *world) {
			w.mayRepel("ns")
			w.namespace("other", "x")
			w.pass(time.Minute)
			w.place(1, "p", "n1", repels("a", v1.LabelHostname, inTeam))
			w.place(2, "q", "n1", app("a"), elsewhere)
			w.namespace("other", "y")
		}},
		{"a namespace that got such labels just now", "", func(w *world) {
			w.mayRepel("ns")
			w.namespace("other", "y")
			w.pass(time.Minute)
			w.place(1, "p", "n1", repels("a", v1.LabelHostname, inTeam))
			w.namespace("other", "x")
			w.place(2, "q", "n1", app("a"), elsewhere)
		}},
		{"the earlier finished", "", func(w *world) {
			w.place(1, "p", "n1", app("a"), self)
			w.pod("p", "100m", on("n1"), app("a"), self, done)
			w.place(2, "q", "n1", app("a"), self)
		}},
		{"the earlier is gone", "", func(w *world) {
			w.place(1, "p", "n1", app("a"), self)
			w.gone("p")
			w.place(2, "q", "n1", app("a"), self)
		}},
		{"both are gone when it is judged", "ns/q", func(w *world) {
			w.place(1, "p", "n1", app("a"), self)
			w.place(2, "q", "n1", app("a"), self)
			w.pass(5 * time.Second)
			w.gone("p")
			w.gone("q")
		}},
		{"a node without the label", "", func(w *world) {
			w.node("n3", "4")
			w.place(1, "p", "n3", app("a"), self)
			w.place(2, "q", "n3", app("a"), self)
		}},
		{"a node that lately had no label", "", func(w *world) {
			w.node("n3", "4")
			w.pass(time.Minute)
			w.labelled("n3", "z1")
			w.pass(short)
			w.place(1, "p", "n3", app("a"), self)
			w.place(2, "q", "n3", app("a"), self)
		}},

		// What others did.
		{"another scheduler's, for long", "ns/q", func(w *world) { w.stranger("f", "n1", app("a")); w.pass(long); w.place(1, "q", "n1", self) }},
		{"another scheduler's that repels, for long", "ns/q", func(w *world) { w.stranger("f", "n1", self); w.pass(long); w.place(1, "q", "n1", app("a")) }},
		{"another scheduler's, lately", "", func(w *world) { w.stranger("f", "n1", app("a")); w.pass(short); w.place(1, "q", "n1", self) }},
		{"a Binding that takes long after its intent", "", func(w *world) {
			w.reserve("q", 100, func(r *wire.ReservationRecord) { r.Demand = append(r.Demand, &wire.Amount{Resource: "pods", Value: 1}) })
			w.pod("q", "100m", self)
			k := w.intend(1, "q", 100, map[string]string{"q": "n1"})
			w.stranger("f", "n1", app("a"))
			w.pass(long)
			w.pod("q", "100m", on("n1"), self)
			w.put(k, nil)
		}},
		{"our pod that somebody else bound", "", func(w *world) {
			w.place(1, "p", "n1", app("a"), self)
			w.pod("q", "100m", app("a"), self)
			w.pod("q", "100m", app("a"), self, func(p *v1.Pod) { p.Spec.NodeName = "n1" })
		}},
		{"relabelled for long", "ns/q", func(w *world) {
			w.place(1, "p", "n1", app("b"))
			w.pod("p", "100m", on("n1"), app("a"))
			w.pass(long)
			w.place(2, "q", "n1", self)
		}},
		{"relabelled lately", "", func(w *world) {
			w.place(1, "p", "n1", app("b"))
			w.pass(long)
			w.pod("p", "100m", on("n1"), app("a"))
			w.pass(short)
			w.place(2, "q", "n1", self)
		}},
		{"relabelled out of the term", "", func(w *world) {
			w.place(1, "p", "n1", app("a"))
			w.pod("p", "100m", on("n1"), app("b"))
			w.place(2, "q", "n1", self)
		}},
		{"a term about the label of our Bindings", "", func(w *world) {
			gang := repels("", v1.LabelHostname, func(t *v1.PodAffinityTerm) {
				t.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{api.LabelGang: "g"}}
			})
			w.place(1, "p", "n1")
			w.place(2, "q", "n1", gang)
		}},

		// Larger domains.
		{"another scheduler's pod in the zone", "ns/q was bound to node n2, and ns/f is on node n1", func(w *world) {
			w.stranger("f", "n1", repels("a", zone))
			w.pass(long)
			w.place(1, "q", "n2", app("a"))
		}},
		{"another scheduler's pod in the zone, lately", "", func(w *world) {
			w.stranger("f", "n1", repels("a", zone))
			w.pass(short)
			w.place(1, "q", "n2", app("a"))
		}},
		{"another scheduler's pod of another zone", "", func(w *world) {
			w.labelled("n3", "z2")
			w.stranger("f", "n1", repels("a", zone))
			w.pass(long)
			w.place(1, "q", "n3", app("a"))
		}},
		{"another scheduler's pod that left the zone", "", func(w *world) {
			w.stranger("f", "n1", repels("a", zone))
			w.pass(long)
			w.gone("f")
			w.place(1, "q", "n2", app("a"))
		}},
		{"a node that came into the zone lately", "", func(w *world) {
			w.labelled("n3", "z2")
			w.stranger("f", "n1", repels("a", zone))
			w.pass(long)
			w.labelled("n3", "z1")
			w.pass(short)
			w.place(1, "q", "n3", app("a"))
		}},
		{"a node that came into the zone long ago", "ns/q was bound to node n3", func(w *world) {
			w.labelled("n3", "z2")
			w.stranger("f", "n1", repels("a", zone))
			w.pass(long)
			w.labelled("n3", "z1")
			w.pass(long)
			w.place(1, "q", "n3", app("a"))
		}},
		{"a hostname term of a pod elsewhere", "", func(w *world) {
			w.stranger("f", "n1", repels("a", zone), repels("a", v1.LabelHostname))
			w.pass(long)
			w.place(1, "q", "n2", app("a"))
		}},

		// What the auditor did not see.
		{"bound when it was first seen", "", func(w *world) {
			w.place(1, "p", "n1", app("a"), self)
			w.reserve("q", 100, func(r *wire.ReservationRecord) { r.Demand = append(r.Demand, &wire.Amount{Resource: "pods", Value: 1}) })
			k := w.intend(2, "q", 100, map[string]string{"q": "n1"})
			w.pod("q", "100m", on("n1"), app("a"), self)
			w.put(k, nil)
		}},
		{"no sight since the Binding", "", func(w *world) {
			w.place(1, "p", "n1", app("a"), self)
			w.place(2, "q", "n1", app("a"), self)
			w.blind(time.Minute)
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, audit.Config{})
			w.labelled("n1", "z1")
			w.labelled("n2", "z1")
			w.pass(15 * time.Second)
			test.run(w)
			if test.name != "no sight since the Binding" {
				w.pass(8 * time.Second)
			}
			r := w.a.Report()
			if test.in == "" {
				if r.Sum() != 0 {
					t.Fatalf("found %v", r.Violations)
				}
				return
			}
			if r.Counts[audit.AntiAffinity] != 1 || r.Sum() != 1 || !strings.Contains(r.Violations[0].Message, test.in) {
				t.Fatalf("want one with %q, found %v", test.in, r.Violations)
			}
		})
	}
}

// labelled shows a node with its hostname and a zone.
func (w *world) labelled(name, value string) {
	w.shows(name, func(n *v1.Node) { n.Labels = map[string]string{v1.LabelHostname: name, zone: value} })
}
