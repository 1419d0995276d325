package apart

import (
	"context"
	"fmt"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/bench/stage/local/localtest"
)

// anyway has 30 pods that come at once spread over the zones, and, by what they prefer of each other, over the nodes.
func (w *world) anyway(t *testing.T) {
	w = w.in(t)
	w.namespace("anyway")
	selects := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	spread := func(p *corev1.Pod) {
		p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: zone, WhenUnsatisfiable: corev1.ScheduleAnyway, LabelSelector: selects}}
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{
			Weight: 100, PodAffinityTerm: corev1.PodAffinityTerm{TopologyKey: corev1.LabelHostname, LabelSelector: selects}}}}}
	}
	var wg sync.WaitGroup
	for k := range 6 {
		wg.Go(func() {
			for i := k; i < 30; i += 6 {
				w.pod("anyway", fmt.Sprint("web-", i), label("app", "web"), spread)
			}
		})
	}
	wg.Wait()
	localtest.Wait(t, patience, "30 pods", func(context.Context) error {
		if n := len(w.placed("anyway", "web")); n != 30 {
			return fmt.Errorf("%d have nodes", n)
		}
		return nil
	})
	zones, nodes := map[string]int{}, map[string]int{}
	for _, p := range w.seen.pods() {
		if p.Namespace == "anyway" {
			zones[w.seen.zoneOf(p.Spec.NodeName)]++
			nodes[p.Spec.NodeName]++
		}
	}
	t.Logf("by zone %v, by node %v", zones, nodes)
	for _, n := range zones {
		if n < 9 || n > 11 {
			t.Errorf("the pods are spread so: %v", zones)
		}
	}
}
