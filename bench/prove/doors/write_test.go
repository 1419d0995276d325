package doors

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/localtest"
)

// TestVolcanoWrite: with --volcano=write, Basalt stands where Volcano's scheduler stood. A controller that waits for the phase of a
// PodGroup before it makes pods, as Volcano's does for a vcjob, is stood in for by this test.
func TestVolcanoWrite(t *testing.T) {
	t.Parallel()
	w := install(t, local.Options{})
	w.define()
	w.overlay()
	core := w.kube.Core.CoreV1()
	w.start("--volcano=write", "--scheduler-names=basalt,volcano")
	found := w.audit("basalt", "volcano")
	w.queue("team", "4")
	history := w.follow()

	// As the vcjob controller writes it: amounts under their own names and under those of a ResourceQuota.
	needs := func(cpu string) *corev1.ResourceList {
		return &corev1.ResourceList{"cpu": resource.MustParse(cpu), "requests.cpu": resource.MustParse(cpu), "pods": resource.MustParse("2"), "count/pods": resource.MustParse("2")}
	}
	asVolcano := func(p *corev1.Pod) { p.Spec.SchedulerName = "volcano" }
	w.group("first", v1beta1.PodGroupSpec{MinMember: 2, Queue: "team", MinResources: needs("3")})
	w.phase("first", v1beta1.PodGroupInqueue, "")
	w.charged("team", map[string]string{"cpu": "3", "pods": "2"})
	w.group("second", v1beta1.PodGroupSpec{MinMember: 2, Queue: "team", MinResources: needs("2")})
	w.phase("second", v1beta1.PodGroupPending, `queue "team" has insufficient cpu`)

	w.pod("first-0", "first", "", "1", asVolcano)
	w.pod("first-1", "first", "", "2", asVolcano)
	w.bound("first-0", "first-1")
	w.phase("first", v1beta1.PodGroupRunning, "")

	w.all[1].Kill() // the heir of its queues goes on
	raised := []byte(`{"spec":{"capability":{"cpu":"6"}}}`)
	if err := w.kube.Basalt.Patch(types.MergePatchType).Resource("queues").Name("team").Body(raised).Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
	w.phase("second", v1beta1.PodGroupInqueue, "")
	w.pod("second-0", "second", "", "1", asVolcano)
	w.pod("second-1", "second", "", "1", asVolcano)
	w.bound("second-0", "second-1")
	w.phase("second", v1beta1.PodGroupRunning, "")

	// A PodGroup that is made again under running pods is told at once that it runs.
	w.deleteGroup("first")
	w.group("first", v1beta1.PodGroupSpec{MinMember: 2, Queue: "team", MinResources: needs("3")})
	w.phase("first", v1beta1.PodGroupRunning, "")
	w.bound("first-0", "first-1")

	// All pods of one end.
	for _, name := range []string{"second-0", "second-1"} {
		if _, err := core.Pods("default").Patch(t.Context(), name, types.MergePatchType, []byte(`{"status":{"phase":"Succeeded"}}`), metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
	}
	w.phase("second", v1beta1.PodGroupCompleted, "")
	w.charged("team", map[string]string{"cpu": "3", "pods": "2"})

	// Somebody else binds a pod that Basalt serves: the pod says so.
	w.group("lone", v1beta1.PodGroupSpec{MinMember: 2, Queue: "team"})
	w.pod("lone-0", "lone", "", "1", asVolcano)
	w.waits("lone-0", "NotEnoughPods", "1 of the 2 pods")
	stolen := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "lone-0"}, Target: corev1.ObjectReference{Kind: "Node", Name: "node-0"}}
	if err := core.Pods("default").Bind(t.Context(), stolen, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	localtest.Wait(t, patience, "the event on a pod that somebody else bound", func(ctx context.Context) error {
		list, err := w.kube.Core.EventsV1().Events("default").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, e := range list.Items {
			if e.Regarding.Name == "lone-0" && e.Reason == "BoundByOthers" && e.Type == corev1.EventTypeWarning {
				return nil
			}
		}
		return fmt.Errorf("there are %d events, and none says so", len(list.Items))
	})
	w.deleteGroup("lone")
	w.delete("lone-0")
	w.charged("team", map[string]string{"cpu": "3", "pods": "2"})

	// Volcano's scheduler takes the Lease: Basalt writes no status and places none of its pods any more, and takes both up again when it
	// is given back.
	w.hold("volcano-scheduler", 600)
	time.Sleep(12 * time.Second) // renewDeadline, and some more
	w.group("third", v1beta1.PodGroupSpec{MinMember: 1, Queue: "team", MinResources: needs("1")})
	inTeam := func(p *corev1.Pod) { p.Labels = map[string]string{api.LabelQueue: "team"} }
	w.pod("theirs", "", "", "1", asVolcano, inTeam)
	w.pod("ours", "", "", "1", inTeam)
	w.bound("ours")
	time.Sleep(5 * time.Second)
	if p, err := core.Pods("default").Get(t.Context(), "theirs", metav1.GetOptions{}); err != nil || p.Spec.NodeName != "" || len(p.Status.Conditions) > 0 {
		t.Errorf("a pod of Volcano's scheduler was placed or told something while somebody else held the Lease: %v, %+v", err, p)
	}
	if g := w.find("third"); g == nil || g.Status.Phase != "" && g.Status.Phase != v1beta1.PodGroupPending || len(g.Status.Conditions) > 0 {
		t.Errorf("the status of PodGroup third was written while somebody else held the Lease: %+v", g)
	}
	w.hold("", 1)
	w.phase("third", v1beta1.PodGroupInqueue, "")
	w.bound("theirs")

	for name, want := range map[string][]v1beta1.PodGroupPhase{
		"first":  {"", "Inqueue", "Running", "", "Running"},
		"second": {"", "Pending", "Inqueue", "Running", "Completed"},
		"third":  {"", "Inqueue"},
	} {
		localtest.Wait(t, patience, "the phases of PodGroup "+name, func(context.Context) error { // the watch may lag behind
			if got := history(name); !slices.Equal(got, want) {
				return fmt.Errorf("they were %q, want %q", got, want)
			}
			return nil
		})
	}
	found()
}

// overlay applies the rights of deploy/overlays/volcano.
func (w *world) overlay() {
	w.t.Helper()
	if err := w.cluster.AllowVolcano(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

// hold has somebody take the Lease of Volcano's scheduler.
func (w *world) hold(holder string, seconds int32) {
	w.t.Helper()
	leases := w.kube.Core.CoordinationV1().Leases("volcano-system")
	localtest.Wait(w.t, patience, "the Lease to be taken", func(ctx context.Context) error {
		lease, err := leases.Get(ctx, "volcano", metav1.GetOptions{})
		if err != nil {
			return err
		}
		now := metav1.NowMicro()
		lease.Spec.HolderIdentity, lease.Spec.RenewTime, lease.Spec.LeaseDurationSeconds = &holder, &now, &seconds
		_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
		return err
	})
}

// phase waits until a PodGroup has a phase, and a condition Unschedulable that says something.
func (w *world) phase(name string, phase v1beta1.PodGroupPhase, says string) {
	w.t.Helper()
	localtest.Wait(w.t, patience, fmt.Sprintf("PodGroup %s to be %s", name, phase), func(context.Context) error {
		g := w.find(name)
		if g == nil || g.Status.Phase != phase {
			return fmt.Errorf("it is %+v", g)
		}
		for _, c := range g.Status.Conditions {
			if c.Type == v1beta1.PodGroupUnschedulableType && c.Status == corev1.ConditionTrue {
				if says == "" || c.Message[:min(len(c.Message), len(says))] != says {
					return fmt.Errorf("it says %s: %s", c.Reason, c.Message)
				}
				return nil
			}
		}
		if says != "" {
			return fmt.Errorf("no condition says %q: %+v", says, g.Status.Conditions)
		}
		return nil
	})
}

// follow watches PodGroups. The function that it returns says which phases one had, each once in a row.
func (w *world) follow() (phases func(name string) []v1beta1.PodGroupPhase) {
	w.t.Helper()
	var mu sync.Mutex
	seen := map[string][]v1beta1.PodGroupPhase{}
	stream, err := w.kube.Volcano.Get().Namespace("default").Resource("podgroups").VersionedParams(&metav1.ListOptions{Watch: true}, metav1.ParameterCodec).Watch(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(stream.Stop)
	go func() {
		for e := range stream.ResultChan() {
			g, ok := e.Object.(*v1beta1.PodGroup)
			if !ok || e.Type == "DELETED" {
				continue
			}
			mu.Lock()
			if had := seen[g.Name]; len(had) == 0 || had[len(had)-1] != g.Status.Phase {
				seen[g.Name] = append(had, g.Status.Phase)
			}
			mu.Unlock()
		}
	}()
	return func(name string) []v1beta1.PodGroupPhase {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(seen[name])
	}
}
