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
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/wire"
)

const clique = "clique"

// labels shows a node with labels, of which empty ones are none.
func (w *world) labels(name, inZone, inClique string) {
	w.shows(name, func(n *v1.Node) {
		n.Labels = map[string]string{}
		for key, value := range map[string]string{zone: inZone, clique: inClique} {
			if value != "" {
				n.Labels[key] = value
			}
		}
	})
}

// shaped shows PodGroup gg with what it requires.
func (w *world) shaped(least int32, of ...v1beta1.TopologyConstraint) {
	g := &v1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{UID: "gg", Namespace: "ns", Name: "job"}}
	g.Spec.Queue, g.Spec.SchedulingPolicy.Gang.MinCount = "team.a", least
	g.Spec.SchedulingConstraints = &v1beta1.SchedulingConstraints{Topology: of}
	w.a.Observe(w.now, audit.PodGroupSeen{PodGroup: g})
}

// starts has pods of gg bound to nodes, POD@NODE or POD@NODE/MILLICORES, their intents first.
func (w *world) starts(n int, all ...string) {
	w.reserve("gg", 4000, func(r *wire.ReservationRecord) {
		r.Demand = append(r.Demand, &wire.Amount{Resource: "pods", Value: 40})
	})
	var keys, pods, nodes, cpu []string
	for i, text := range all {
		pod, at, _ := strings.Cut(text, "@")
		node, amount, has := strings.Cut(at, "/")
		if !has {
			amount = "100m"
		}
		pods, nodes, cpu = append(pods, pod), append(nodes, node), append(cpu, amount)
		w.pod(pod, amount, of("job"))
		keys = append(keys, w.intend(n+i, "gg", 100, map[string]string{pod: node}))
	}
	for i := range pods {
		w.pod(pods[i], cpu[i], on(nodes[i]), of("job"), func(p *v1.Pod) { p.Labels[api.LabelGang] = "gg" })
		w.put(keys[i], nil)
	}
}

// Gangs are bound where their PodGroup requires: n1 and n2 are in zone z1 and cliques c1 and c2, m1 and m2 in z2 and c3, and bare is nowhere.
func TestTogether(t *testing.T) {
	const long, short = 20 * time.Second, 5 * time.Second
	inZone := v1beta1.TopologyConstraint{Key: zone, Mode: v1beta1.TopologyRequired}
	preferred := v1beta1.TopologyConstraint{Key: zone, Mode: v1beta1.TopologyPreferred}
	pairs := v1beta1.TopologyConstraint{Key: clique, SliceSize: 2}
	for _, test := range []struct {
		name   string
		in     string // of the violation's message, "" for none
		spared bool   // and nothing is judged
		run    func(w *world)
	}{
		{"one zone", "", false, func(w *world) { w.shaped(2, inZone); w.starts(1, "p@n1", "q@n2") }},
		{"two zones", `PodGroup ns/job: pod ns/q was bound to node m1 in zone "z2", and pod ns/p of the gang to node n1 in "z1"; it requires one`, false, func(w *world) {
			w.shaped(2, inZone)
			w.starts(1, "p@n1", "q@m1")
		}},
		{"no zone", "pod ns/q was bound to node bare, which has no label zone", false, func(w *world) { w.shaped(2, inZone); w.starts(1, "p@n1", "q@bare") }},
		{"a zone is preferred", "", true, func(w *world) { w.shaped(2, preferred); w.starts(1, "p@n1", "q@m1") }},
		{"a further pod in the zone", "", false, func(w *world) {
			w.shaped(1, inZone)
			w.starts(1, "p@n1")
			w.pass(long)
			w.starts(2, "q@n2")
		}},
		{"a further pod elsewhere", "ns/q", false, func(w *world) {
			w.shaped(1, inZone)
			w.starts(1, "p@n1")
			w.pass(long)
			w.starts(2, "q@m1")
		}},
		{"a further pod elsewhere, and the others are gone", "", false, func(w *world) {
			w.shaped(1, inZone)
			w.starts(1, "p@n1")
			w.pass(long)
			w.gone("p")
			w.starts(2, "q@m1")
		}},
		{"a node was labelled otherwise long before", "ns/q", false, func(w *world) {
			w.labels("n2", "z2", "")
			w.pass(long)
			w.shaped(2, inZone)
			w.starts(1, "p@n1", "q@n2")
		}},
		{"a node was labelled otherwise shortly before", "", true, func(w *world) {
			w.labels("n2", "z2", "")
			w.pass(short)
			w.shaped(2, inZone)
			w.starts(1, "p@n1", "q@n2")
		}},
		{"a node is labelled otherwise after", "", true, func(w *world) {
			w.shaped(2, inZone)
			w.starts(1, "p@n1", "q@n2")
			w.labels("n2", "z2", "")
		}},
		{"a node left, and came back with other labels", "", true, func(w *world) {
			w.a.Observe(w.now, audit.Gone[*v1.Node]{Object: &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}}})
			w.labels("n2", "z2", "")
			w.shaped(2, inZone)
			w.starts(1, "p@n1", "q@n2")
		}},
		{"the constraint came later", "", true, func(w *world) {
			w.shaped(2)
			w.starts(1, "p@n1", "q@m1")
			w.pass(time.Second)
			w.shaped(2, inZone)
			w.starts(3, "r@n1")
		}},
		{"somebody else bound one", "", true, func(w *world) {
			w.shaped(1, inZone)
			w.pod("q", "100m", of("job"))
			w.pod("q", "100m", of("job"), func(p *v1.Pod) { p.Spec.NodeName = "m1" })
			w.starts(1, "p@n1")
		}},
		{"whole slices", "", false, func(w *world) { w.shaped(4, pairs); w.starts(1, "p@n1", "q@n1", "r@m1", "s@m2") }},
		{"divided slices", `its slices of 2 pods in one clique are divided, of those that request cpu=100m pods=1 there are 1 in "c1", 3 in "c3"`, false, func(w *world) {
			w.shaped(4, pairs)
			w.starts(1, "p@n1", "q@m1", "r@m1", "s@m2")
		}},
		{"the last slice has fewer", "", false, func(w *world) { w.shaped(3, pairs); w.starts(1, "p@n1", "q@m1", "r@m2") }},
		{"slices of different pods", "", false, func(w *world) { w.shaped(2, pairs); w.starts(1, "p@n1/100m", "q@m1/200m") }},
		{"a slice outside any clique", "pod ns/q was bound to node bare, which has no label clique", false, func(w *world) { w.shaped(2, pairs); w.starts(1, "p@n1", "q@bare") }},
		{"slices in one zone", "", false, func(w *world) { w.shaped(4, inZone, pairs); w.starts(1, "p@n1", "q@n1", "r@n2", "s@n2") }},
		{"slices in two zones", "it requires one", false, func(w *world) { w.shaped(4, inZone, pairs); w.starts(1, "p@n1", "q@n1", "r@m1", "s@m2") }},
		{"a divided slice of which one has left", "", false, func(w *world) {
			w.shaped(4, pairs)
			w.starts(1, "p@n1", "q@n1", "r@m1", "s@m2")
			w.pass(long)
			w.gone("q")
			w.starts(5, "t@n2")
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, audit.Config{})
			for name, at := range map[string][2]string{"n1": {"z1", "c1"}, "n2": {"z1", "c2"}, "m1": {"z2", "c3"}, "m2": {"z2", "c3"}, "bare": {"", ""}} {
				w.labels(name, at[0], at[1])
			}
			w.pass(long)
			test.run(w)
			w.pass(long)
			r := w.a.Report()
			if got := r.Counts[audit.Domain]; (got > 0) != (test.in != "") {
				t.Errorf("%d violations: %v", got, r.Violations)
			}
			if test.in != "" && !slices.ContainsFunc(r.Violations, func(v audit.Violation) bool { return v.Kind == audit.Domain && strings.Contains(v.Message, test.in) }) {
				t.Errorf("%q is missing in %v", test.in, r.Violations)
			}
			if judged := r.Recounts > 0; judged == test.spared {
				t.Errorf("%d recounts, %d spared", r.Recounts, r.Spared)
			}
		})
	}
}
