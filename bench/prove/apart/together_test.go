package apart

import (
	"fmt"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1beta1"
)

// TestTogether has gangs start whose pods require or avoid one another: by affinity to a leader that requires nothing itself, in a domain that the gang
// requires, too, and where the only domain with room for all is not the one in which a pod would go first. Its nodes are those of three shards.
func TestTogether(t *testing.T) {
	w := start(t, 9) // three zones of three nodes, each of 16 cpus
	w.namespace("together")

	// Six pods of 3 cpus would fit on any node that is empty; in zones 0 and 1 each node has room for one.
	for i := range 9 {
		if i%3 < 2 {
			w.pod("together", fmt.Sprint("full-", i), foreign(fmt.Sprint("node-", i)), label("kind", "full"), cpu("12"))
		}
	}
	w.count("together", "kind", "full", 6)

	for i := range 3 {
		name := fmt.Sprint("self-", i)
		w.podGroup("together", name, 6)
		for k := range 6 {
			w.pod("together", fmt.Sprint(name, "-", k), label(api.LabelPodGroup, name), label("kind", name), joins(zone), cpu("3"))
		}
		w.startsIn(name, 1)
		for k := range 6 {
			w.delete("together", fmt.Sprint(name, "-", k))
		}
	}

	for i := range 4 {
		name := fmt.Sprint("led-", i)
		var topology []v1beta1.TopologyConstraint
		if i%2 == 1 {
			topology = []v1beta1.TopologyConstraint{{Key: zone}}
		}
		w.podGroup("together", name, 5, topology...)
		for k := range 4 {
			w.pod("together", fmt.Sprintf("%s-%d", name, k), label(api.LabelPodGroup, name), requires(zone, "leads", name), cpu("900m"))
		}
		w.pod("together", name+"-leader", label(api.LabelPodGroup, name), label("leads", name), cpu("500m"))
		w.startsIn(name, 1)
	}

	// One zone that the gang requires, and in it two pods on each node: none may have the second before each has the first.
	w.podGroup("together", "even", 6, v1beta1.TopologyConstraint{Key: zone})
	for k := range 6 {
		w.pod("together", fmt.Sprint("even-", k), label(api.LabelPodGroup, "even"), label("kind", "even"), spread(corev1.LabelHostname, 1), func(p *corev1.Pod) {
			p.Spec.NodeSelector = map[string]string{zone: "zone-2"} // only its nodes are counted
		})
	}
	w.startsIn("even", 1)

	// Slices each of which is to be in one zone, and which are to be spread over them, or which repel each other.
	slices := v1beta1.TopologyConstraint{Key: zone, SliceSize: 2}
	w.podGroup("together", "third", 6, slices)
	for k := range 6 {
		w.pod("together", fmt.Sprint("third-", k), label(api.LabelPodGroup, "third"), label("kind", "third"), spread(zone, 1))
	}
	w.startsIn("third", 3)
	w.podGroup("together", "half", 4, slices)
	for k := range 4 {
		roles := []string{"red", "blue"}
		w.pod("together", fmt.Sprint("half-", k), label(api.LabelPodGroup, "half"), label("role", roles[k/2]), repels(zone, "role", roles[1-k/2]))
	}
	w.startsIn("half", 2)

	// Pods that come at once and would rather be apart.
	var wg sync.WaitGroup
	for k := range 63 {
		wg.Go(func() {
			w.pod("together", fmt.Sprint("apart-", k), label("kind", "apart"), func(p *corev1.Pod) {
				p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{
					Weight: 1, PodAffinityTerm: corev1.PodAffinityTerm{TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kind": "apart"}}}}}}}
			})
		})
	}
	wg.Wait()
	w.nobodyWaits("together", "apart-")
	nodes := map[string]int{}
	for _, p := range w.seen.pods() {
		if p.Labels["kind"] == "apart" {
			nodes[p.Spec.NodeName]++
		}
	}
	t.Logf("pods by node: %v", nodes)
	for node, n := range nodes {
		if n > 14 { // twice as many as if they were even
			t.Errorf("%d of 63 pods that would rather be apart are on %s of 9 nodes: %v", n, node, nodes)
		}
	}
	for _, found := range w.seen.report() {
		t.Error(found)
	}
	w.audited()
}

// startsIn waits until a gang runs, in so many zones.
func (w *world) startsIn(name string, zones int) {
	w.t.Helper()
	w.nobodyWaits("together", name+"-")
	in := map[string]int{}
	for _, p := range w.seen.pods() {
		if p.Labels[api.LabelPodGroup] == name {
			in[w.seen.zoneOf(p.Spec.NodeName)]++
		}
	}
	if len(in) != zones {
		w.t.Errorf("gang %s is in zones %v", name, in)
	}
}
