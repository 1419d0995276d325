package sim

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1beta1"
)

// TestPreferredWhenOthersGo: a gang for which others are evicted ends in the rack that it prefers, where that costs no
// more, whether it requires a zone beside it or not.
func TestPreferredWhenOthersGo(t *testing.T) {
	for _, one := range []struct{ racks, shards, pods int }{{2, 1, 2}, {2, 3, 2}, {3, 2, 3}, {5, 3, 4}} {
		for _, required := range []string{"zone", ""} {
			t.Run(fmt.Sprintf("%+v, required %q", one, required), func(t *testing.T) {
				w := bareWorld(0)
				w.act("queue q1 capability - guarantee - preempts yes runtime 0s delay 1s")
				for i := range one.shards {
					w.act(fmt.Sprintf("shard s%d", i))
				}
				pod := func(name string, priority int32) *corev1.Pod {
					p := w.podOf(name, 1)
					p.Labels[api.LabelQueue] = "q1"
					p.Spec.Priority = &priority
					p.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Name: name, UID: "job", Controller: new(true)}}
					return p
				}
				for i := range one.racks * one.pods {
					labels := map[string]string{"rack": fmt.Sprint(i % one.racks), "zone": "z"}
					w.plainNode(fmt.Sprint("h", i), labels, 1)
					w.api.create(w.api.pods, pod(fmt.Sprint("low-", i), 1))
				}
				w.until(20*time.Second, func() bool { return false })
				g := &v1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "g"}}
				g.Spec.Queue, g.Spec.SchedulingPolicy.Gang.MinCount = "q1", int32(one.pods)
				topology := []v1beta1.TopologyConstraint{{Key: "rack", Mode: v1beta1.TopologyPreferred}}
				if required != "" {
					topology = append(topology, v1beta1.TopologyConstraint{Key: required})
				}
				g.Spec.SchedulingConstraints = &v1beta1.SchedulingConstraints{Topology: topology}
				w.api.create(w.api.groups, g)
				for i := range one.pods {
					p := pod(fmt.Sprint("g-", i), 100)
					p.Labels[api.LabelPodGroup] = "g"
					w.api.create(w.api.pods, p)
				}
				w.until(time.Minute, func() bool { return false })
				racks, low, bound := map[string]bool{}, 0, 0
				for _, p := range w.load.pods(func(p *corev1.Pod) bool { return p.Spec.NodeName != "" }) {
					if p.Labels[api.LabelPodGroup] == "" {
						low++
						continue
					}
					racks[w.api.node(p.Spec.NodeName).Labels["rack"]] = true
					bound++
				}
				if bound != one.pods || len(racks) != 1 || low != (one.racks-1)*one.pods {
					t.Errorf("%d pods are bound in %d racks, %d others are left", bound, len(racks), low)
				}
			})
		}
	}
}
