package sim

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// TestNarrowFirst: of pods that came in the same second and wait at the same time, those that few nodes take go first,
// also between apps. Each app of a node pool has a pod with a host port for each node of it; other pods fill 90 % of
// the cluster.
func TestNarrowFirst(t *testing.T) {
	bound, narrow := 0, 0
	for seed := range 12 {
		die := rand.New(rand.NewPCG(uint64(seed), 7))
		w := bareWorld(0)
		var pods []*corev1.Pod
		left := 0
		for i := range 12 + die.IntN(20) {
			pool := fmt.Sprint(die.IntN(4))
			w.plainNode(fmt.Sprint("h", i), map[string]string{"pool": pool}, 8)
			left += 7
			if pool > "1" {
				continue
			}
			p := w.podOf(fmt.Sprint("narrow-", i), 1)
			p.Labels["app"] = "narrow"
			p.Spec.NodeSelector = map[string]string{"pool": pool}
			p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80}}
			pods = append(pods, p)
			narrow, left = narrow+1, left-1
		}
		for i := 0; left > 0; i++ {
			cpu := 1 + die.IntN(3)
			pods, left = append(pods, w.podOf(fmt.Sprint("any-", i), cpu)), left-cpu
		}
		die.Shuffle(len(pods), func(i, j int) { pods[i], pods[j] = pods[j], pods[i] })
		for _, p := range pods {
			w.api.create(w.api.pods, p)
		}
		w.until(2*time.Second, func() bool { return false })
		for i := range 1 + seed%3 {
			w.act(fmt.Sprintf("shard s%d", i))
		}
		w.until(40*time.Second, func() bool { return false })
		bound += len(w.load.pods(func(p *corev1.Pod) bool { return p.Labels["app"] == "narrow" && p.Spec.NodeName != "" }))
	}
	t.Logf("%d of %d pods are bound that few nodes take", bound, narrow)
	if bound*100 < narrow*95 {
		t.Errorf("%d of %d pods are bound that few nodes take", bound, narrow)
	}
}

// TestNarrowPassesNobody: who names nodes does not pass a pod that was made a second before.
func TestNarrowPassesNobody(t *testing.T) {
	w := bareWorld(0)
	w.plainNode("h", map[string]string{"pool": "a"}, 1)
	w.api.create(w.api.pods, w.podOf("first", 1))
	w.after(time.Second, func() {
		p := w.podOf("a-narrow", 1)
		p.Spec.NodeSelector = map[string]string{"pool": "a"}
		p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80}}
		w.api.create(w.api.pods, p)
	})
	w.until(3*time.Second, func() bool { return false })
	w.act("shard s0")
	w.until(20*time.Second, func() bool { return false })
	if p := w.api.pod("ns", "first"); p.Spec.NodeName != "h" || w.api.pod("ns", "a-narrow").Spec.NodeName != "" {
		t.Errorf("the pod that came first is bound to %q, want h", p.Spec.NodeName)
	}
}
