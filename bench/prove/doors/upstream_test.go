package doors

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/localtest"
)

// TestUpstream: pods that name a PodGroup of Kubernetes' own are gangs, where the API server serves these. Their statuses have other
// writers, too.
func TestUpstream(t *testing.T) {
	localtest.Needs(t, "1.37", "scheduling.k8s.io/v1beta1")
	t.Parallel()
	w := install(t, local.Options{APIServerFlags: []string{"--feature-gates=GenericWorkload=true", "--runtime-config=scheduling.k8s.io/v1beta1=true"}})
	w.start()
	found := w.audit()
	w.queue("team", "8")
	groups := w.kube.Core.SchedulingV1beta1().PodGroups("default")
	group := func(name, queue string, policy schedulingv1beta1.PodGroupSchedulingPolicy, edits ...func(*schedulingv1beta1.PodGroup)) {
		t.Helper()
		g := &schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{api.LabelQueue: queue}}}
		g.Spec.SchedulingPolicy = policy
		for _, edit := range edits {
			edit(g)
		}
		if _, err := groups.Create(t.Context(), g, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	in := func(name string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &name} }
	}
	says := func(name, kind string, status metav1.ConditionStatus, reason, message string) {
		t.Helper()
		localtest.Wait(t, patience, fmt.Sprintf("PodGroup %s to say %s=%s", name, kind, status), func(ctx context.Context) error {
			g, err := groups.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			c := meta.FindStatusCondition(g.Status.Conditions, kind)
			if c == nil || c.Status != status || c.Reason != reason || !strings.Contains(c.Message, message) {
				return fmt.Errorf("it says %+v", g.Status.Conditions)
			}
			return nil
		})
	}
	const scheduled, reserved = schedulingv1beta1.PodGroupInitiallyScheduled, "QuotaReserved"
	gang := func(least int32) schedulingv1beta1.PodGroupSchedulingPolicy {
		return schedulingv1beta1.PodGroupSchedulingPolicy{Gang: &schedulingv1beta1.GangSchedulingPolicy{MinCount: least}}
	}

	// A pod comes before its group. Three pods of two cores do not fit into what another one leaves of the queue.
	w.pod("first", "", "", "4", func(p *corev1.Pod) { p.Labels = map[string]string{api.LabelQueue: "team"} })
	w.bound("first")
	w.pod("g-0", "", "", "2", in("g"))
	w.waits("g-0", "PodGroupNotFound", "PodGroup of scheduling.k8s.io default/g does not exist (spec.schedulingGroup)")
	group("g", "team", gang(3))
	w.pod("g-1", "", "", "2", in("g"))
	w.waits("g-0", "NotEnoughPods", "of the 3 pods that start together can be scheduled")
	w.pod("g-2", "", "", "2", in("g"))
	says("g", reserved, metav1.ConditionFalse, "QuotaExceeded", `queue "team"`)
	says("g", scheduled, metav1.ConditionFalse, "QuotaExceeded", `queue "team"`)

	// What others have written stays.
	others := []byte(`{"status":{"conditions":[{"type":"DisruptionTarget","status":"False","reason":"Other","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`)
	if _, err := groups.Patch(t.Context(), "g", types.StrategicMergePatchType, others, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	raised := []byte(`{"spec":{"capability":{"cpu":"12"}}}`)
	if err := w.kube.Basalt.Patch(types.MergePatchType).Resource("queues").Name("team").Body(raised).Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
	w.bound("g-0", "g-1", "g-2")
	says("g", scheduled, metav1.ConditionTrue, "Scheduled", "")
	says("g", reserved, metav1.ConditionTrue, "Reserved", `queue "team"`)
	w.charged("team", map[string]string{"cpu": "10", "pods": "4"})
	g, err := groups.Get(t.Context(), "g", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if meta.FindStatusCondition(g.Status.Conditions, "DisruptionTarget") == nil || len(g.Status.Conditions) != 3 {
		t.Errorf("the status is %+v", g.Status)
	}

	// A basic group starts pod by pod. A group whose pods are another scheduler's is not Basalt's to speak of.
	group("free", "team", schedulingv1beta1.PodGroupSchedulingPolicy{Basic: &schedulingv1beta1.BasicSchedulingPolicy{}})
	w.pod("free-0", "", "", "1", in("free"))
	w.bound("free-0")
	says("free", scheduled, metav1.ConditionTrue, "Scheduled", "")
	group("other", "team", gang(1))
	w.pod("other-0", "", "", "1", in("other"), func(p *corev1.Pod) { p.Spec.SchedulerName = "default-scheduler" })

	w.all[1].Kill() // its heir knows the groups as well
	w.pod("g-3", "", "", "1", in("g"))
	w.bound("g-3")
	if g, err := groups.Get(t.Context(), "other", metav1.GetOptions{}); err != nil || len(g.Status.Conditions) > 0 {
		t.Errorf("the group of another scheduler: %v %+v", err, g.Status)
	}
	found()
}

// TestUpstreamGate: an API server begins to serve PodGroups of Kubernetes' own, and ends to, while Basalt runs.
func TestUpstreamGate(t *testing.T) {
	localtest.Needs(t, "1.37", "scheduling.k8s.io/v1beta1")
	t.Parallel()
	w := install(t, local.Options{})
	w.start()
	found := w.audit()
	w.queue("team", "8")
	in := func(p *corev1.Pod) { p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: new("g")} }
	w.pod("before", "", "", "1")
	w.bound("before")

	w.restart("--feature-gates=GenericWorkload=true", "--runtime-config=scheduling.k8s.io/v1beta1=true")
	g := &schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Name: "g", Labels: map[string]string{api.LabelQueue: "team"}}}
	g.Spec.SchedulingPolicy.Gang = &schedulingv1beta1.GangSchedulingPolicy{MinCount: 2}
	if _, err := w.kube.Core.SchedulingV1beta1().PodGroups("default").Create(t.Context(), g, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.pod("g-0", "", "", "1", in)
	w.waits("g-0", "NotEnoughPods", "1 of the 2 pods that start together can be scheduled")
	w.pod("g-1", "", "", "1", in)
	w.bound("g-0", "g-1")
	w.charged("team", map[string]string{"cpu": "2", "pods": "2"})

	// What is bound stays charged when its kind is not served any more.
	w.restart()
	w.pod("after", "", "", "1")
	w.bound("after")
	w.charged("team", map[string]string{"cpu": "2", "pods": "2"})
	w.delete("g-0", "g-1")
	w.charged("team", nil)
	for _, b := range w.all {
		if n := b.Starts(); n != 1 {
			t.Errorf("%s was started %d times", b.Name(), n)
		}
	}
	found()
}

// restart restarts the API server with some flags.
func (w *world) restart(flags ...string) {
	w.t.Helper()
	if err := w.cluster.StopAPIServer(); err != nil {
		w.t.Fatal(err)
	}
	w.cluster.SetAPIServerFlags(flags...)
	if err := w.cluster.StartAPIServer(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}
