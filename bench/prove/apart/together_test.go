package apart

import (
	"context"
	"fmt"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1alpha1"
	"basalt.dev/basalt/bench/stage/local/localtest"
)

const zone = "example.com/zone"

// TestTogether has gangs start whose pods require or avoid one another: by affinity to a leader that requires nothing itself, in a domain that the gang
// requires, too, and where the only domain with room for all is not the one in which a pod would go first. Its nodes are those of three shards.
func TestTogether(t *testing.T) {
	w := start(t, 9) // three zones of three nodes, each of 16 cpus
	w.namespace("together")

	// Six pods of 3 cpus would fit on any node that is empty; in zones 0 and 1 each node has room for one.
	for i := range 9 {
		if i%3 < 2 {
			w.pod("together", fmt.Sprint("full-", i), foreign(fmt.Sprint("node-", i)), cpu("12"))
		}
	}
	localtest.Wait(t, patience, "the pods that fill zones", func(context.Context) error {
		if n := len(w.placed("together", "full-")); n != 6 {
			return fmt.Errorf("%d are seen", n)
		}
		return nil
	})

	for i := range 3 {
		name := fmt.Sprint("self-", i)
		w.podGroup(name, 6)
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
		var topology []v1alpha1.TopologyConstraint
		if i%2 == 1 {
			topology = []v1alpha1.TopologyConstraint{{Key: zone}}
		}
		w.podGroup(name, 5, topology...)
		worker := func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
				{TopologyKey: zone, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"leads": name}}}}}}
		}
		for k := range 4 {
			w.pod("together", fmt.Sprintf("%s-%d", name, k), label(api.LabelPodGroup, name), worker, cpu("900m"))
		}
		w.pod("together", name+"-leader", label(api.LabelPodGroup, name), label("leads", name), cpu("500m"))
		w.startsIn(name, 1)
	}

	// One zone that the gang requires, and in it two pods on each node: none may have the second before each has the first.
	w.podGroup("even", 6, v1alpha1.TopologyConstraint{Key: zone})
	for k := range 6 {
		w.pod("together", fmt.Sprint("even-", k), label(api.LabelPodGroup, "even"), label("kind", "even"), spread(corev1.LabelHostname, 1), func(p *corev1.Pod) {
			p.Spec.NodeSelector = map[string]string{zone: "zone-2"} // only its nodes are counted
		})
	}
	w.startsIn("even", 1)

	// Slices each of which is to be in one zone, and which are to be spread over them, or which repel each other.
	slices := v1alpha1.TopologyConstraint{Key: zone, SliceSize: 2}
	w.podGroup("third", 6, slices)
	for k := range 6 {
		w.pod("together", fmt.Sprint("third-", k), label(api.LabelPodGroup, "third"), label("kind", "third"), spread(zone, 1))
	}
	w.startsIn("third", 3)
	w.podGroup("half", 4, slices)
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

func cpu(amount string) edit {
	return func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse(amount) }
}

func (w *world) podGroup(name string, size int32, topology ...v1alpha1.TopologyConstraint) {
	w.t.Helper()
	g := &v1alpha1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "together", Name: name}}
	g.Spec.SchedulingPolicy.Gang.MinCount = size
	if len(topology) > 0 {
		g.Spec.SchedulingConstraints = &v1alpha1.SchedulingConstraints{Topology: topology}
	}
	w.check(w.kube.Basalt.Post().Namespace("together").Resource("podgroups").Body(g).Do(w.t.Context()).Error())
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
