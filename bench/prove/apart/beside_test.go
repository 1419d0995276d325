package apart

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/localtest"
)

// TestBeside has kube-scheduler place pods beside Basalt, on nodes of its own, in the same namespace and the same zones: pods of one spread,
// and pods that repel each other. No Binding of Basalt's may contradict what kube-scheduler bound more than 10 s before; and none at all once
// kube-scheduler has been at rest for so long.
func TestBeside(t *testing.T) {
	const late, nodes = 10 * time.Second, 12
	w := start(t, nodes)
	w.seen.late, w.seen.spread = late, "web"
	localtest.Programs(t, "kube-scheduler")
	_, err := w.cluster.StartScheduler(t.Context(), -1, 0)
	w.check(err)
	w.namespace("beside")
	schedulers := []string{local.SchedulerName, api.SchedulerName}
	for i := range nodes { // zones are numbers modulo 3, so each has two nodes of either scheduler's
		owner := fmt.Sprintf(`{"metadata":{"labels":{"owner":%q}}}`, schedulers[i/3%2])
		_, err := w.kube.Core.CoreV1().Nodes().Patch(t.Context(), fmt.Sprint("node-", i), "application/merge-patch+json", []byte(owner), metav1.PatchOptions{})
		w.check(err)
	}
	by := func(scheduler string) edit {
		return func(p *corev1.Pod) {
			p.Spec.SchedulerName, p.Spec.NodeSelector = scheduler, map[string]string{"owner": scheduler}
		}
	}
	web := func(p *corev1.Pod) {
		p.Labels["app"] = "web"
		p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{TopologyKey: zone, MaxSkew: 1, WhenUnsatisfiable: corev1.DoNotSchedule,
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, NodeAffinityPolicy: new(corev1.NodeInclusionPolicyIgnore)}}
	}

	// Both at once. Of three pods that repel each other by zone, one or two are kube-scheduler's; all three have a zone if nobody is late.
	for i := range 25 {
		for j, scheduler := range schedulers {
			w.pod("beside", fmt.Sprintf("web-%d-%d", i, j), by(scheduler), web)
		}
		for j := range 3 {
			group := fmt.Sprint("three-", i)
			w.pod("beside", fmt.Sprintf("%s-%d", group, j), label("app", group), by(schedulers[(i+j)%2]), repels(zone, "app", group))
		}
		time.Sleep(100 * time.Millisecond)
	}
	w.nobodyWaits("beside", "web-")

	// kube-scheduler's alone, long before ours.
	for i := range 20 {
		group := fmt.Sprint("later-", i)
		w.pod("beside", group+"-first", label("app", group), by(local.SchedulerName), repels(zone, "app", group))
		w.pod("beside", group+"-second", label("app", group), by(local.SchedulerName))
	}
	for i := range 9 {
		w.pod("beside", fmt.Sprint("more-", i), by(local.SchedulerName), web)
	}
	w.nobodyWaits("beside", "later-")
	w.nobodyWaits("beside", "more-")
	time.Sleep(late + time.Second)
	w.seen.mu.Lock()
	w.seen.late = 0
	w.seen.mu.Unlock()
	for i := range 20 {
		group := fmt.Sprint("later-", i)
		w.pod("beside", group+"-third", label("app", group), by(api.SchedulerName))
		w.pod("beside", fmt.Sprint("last-", i), by(api.SchedulerName), web)
	}
	w.nobodyWaits("beside", "later-")
	w.nobodyWaits("beside", "last-")

	for _, found := range w.seen.report() {
		t.Error(found)
	}
	w.audited()
	foreign := 0
	for _, p := range w.seen.pods() {
		if p.Spec.NodeName != "" && p.Spec.SchedulerName != api.SchedulerName {
			foreign++
		}
	}
	t.Logf("%d pods were bound by kube-scheduler; %d of those that repel each other wait", foreign, len(w.waiting("beside", "three-")))
}
