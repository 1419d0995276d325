//go:build doors

package doors

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	batch "volcano.sh/apis/pkg/apis/batch/v1alpha1"
	bus "volcano.sh/apis/pkg/apis/bus/v1alpha1"
	"volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"basalt.dev/basalt/bench/stage/kubelet"
	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/localtest"
)

// TestVolcanoControllers: vcjobs run from beginning to end with Volcano's own controllers, as its users have them, and Basalt in place of
// its scheduler. The controllers of PodGroups for bare pods and of Queues are off, as deploy/overlays/volcano says.
func TestVolcanoControllers(t *testing.T) {
	w := installFor(t, "vc-controller-manager")
	w.volcanoQueue("default", "root", "")
	w.volcanoQueue("research", "root", "4")
	w.volcanoQueue("team", "research", "")
	found := w.inPlaceOfVolcano()
	w.controller("vc-controller-manager", "--controllers=*,-queue-controller,-pg-controller,-sharding-controller", "--leader-elect=false", "--logtostderr", "-v=3")
	w.shows("team", v1beta1.QueueStateOpen, "", "")

	// A job of a task of one and a task of two takes three of four CPUs. A second one waits, and its controller makes no pods for it.
	w.job("first", "team", "25")
	w.jobIs("first", batch.Running)
	w.bound("first-master-0", "first-worker-0", "first-worker-1")
	w.shows("research", v1beta1.QueueStateOpen, "3", "3")
	w.job("second", "team", "")
	w.saysOf("second", `queue "research" has insufficient cpu`)
	w.jobIs("second", batch.Pending)
	if pods := w.podsOf("second"); len(pods) > 0 {
		t.Errorf("pods %v of a job were made that its queue has no quota for", pods)
	}

	// A shard dies. The first job ends, the second one begins.
	w.all[1].Kill()
	w.jobIs("first", batch.Completed)
	w.jobIs("second", batch.Running)
	w.bound("second-master-0", "second-worker-0", "second-worker-1")

	// Its PodGroup is deleted under its running pods: nothing is evicted. When a pod is deleted too, the controller makes the PodGroup
	// again, and the pod once that is running.
	before, group := w.uidsOf("second"), w.groupOf("second")
	w.deleteGroup(group.Name)
	time.Sleep(5 * time.Second)
	if after := w.uidsOf("second"); !slices.Equal(before, after) {
		t.Errorf("pods whose PodGroup was deleted: %v, before %v", after, before)
	}
	w.shows("research", v1beta1.QueueStateOpen, "3", "3")
	w.delete("second-worker-1")
	w.again("second", before, 1)
	localtest.Wait(t, patience, "the PodGroup of second that was made again to be Running", func(context.Context) error {
		if now := w.groupOf("second"); now == nil || now.UID == group.UID || now.Status.Phase != v1beta1.PodGroupRunning {
			return fmt.Errorf("it is %+v", now)
		}
		return nil
	})
	w.shows("research", v1beta1.QueueStateOpen, "3", "3")

	// The whole job is restarted by a Command.
	before = w.uidsOf("second")
	w.jobCommand("restart", bus.RestartJobAction, "second")
	w.again("second", before, 3)
	w.jobIs("second", batch.Running)
	w.shows("research", v1beta1.QueueStateOpen, "3", "3")

	// A queue that is closed takes no job; the one that runs goes on. A job that is aborted gives all of its quota back.
	w.command("close", bus.CloseQueueAction, "research")
	w.shows("research", v1beta1.QueueStateClosing, "3", "3")
	w.jobCommand("abort", bus.AbortJobAction, "second")
	w.jobIs("second", batch.Aborted)
	w.shows("research", v1beta1.QueueStateClosed, "", "")
	w.job("third", "team", "5")
	w.saysOf("third", `queue "research" is closed`)
	w.command("open", bus.OpenQueueAction, "research")
	w.jobIs("third", batch.Completed)
	w.shows("research", v1beta1.QueueStateOpen, "", "")

	if lines := w.refusedWrites("queues"); len(lines) > 0 {
		t.Errorf("the API server refused writes of queues: %q", lines)
	}
	found()
}

// installFor builds controllers of others, and makes a cluster with Volcano's definitions and the rights of its component.
func installFor(t *testing.T, programs ...string) *world {
	t.Helper()
	w := install(t, local.Options{ControllerManager: true})
	if err := local.Programs(t.Context(), w.cluster.Root(), os.Stderr, programs...); err != nil {
		t.Fatal(err)
	}
	if err := w.cluster.DefineVolcano(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	w.overlay()
	w.volcanoQueue("root", "", "")
	return w
}

// inPlaceOfVolcano starts Basalt as its component for Volcano does, nodes that run pods, and an audit; the function that it returns
// ends that.
func (w *world) inPlaceOfVolcano() (found func()) {
	w.t.Helper()
	flags := []string{"--volcano=write"}
	w.startWith(local.BasaltOptions{ShardFlags: append(flags, "--scheduler-names=basalt,volcano"), CoordinatorFlags: flags})
	go func() { _ = kubelet.Run(w.t.Context(), kubelet.Options{Client: w.kube.Core}) }()
	return w.audit("basalt", "volcano")
}

// controller starts a controller of others. When the test fails, the end of its log is shown.
func (w *world) controller(name string, args ...string) {
	w.t.Helper()
	p, err := w.cluster.StartController(name, args...)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if text, err := os.ReadFile(p.Log()); err == nil && w.t.Failed() {
			lines := strings.Split(string(text), "\n")
			w.t.Logf("the end of %s:\n%s", p.Log(), strings.Join(lines[max(0, len(lines)-40):], "\n"))
		}
	})
}

// job makes a vcjob of three pods, which run for some seconds, or until they are deleted.
func (w *world) job(name, queue, seconds string) {
	w.t.Helper()
	template := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{}},
		Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "i",
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}}}}},
	}
	if seconds != "" {
		template.Annotations[kubelet.RunSeconds] = seconds
	}
	one := int32(1)
	two := int32(2)
	job := &batch.Job{
		TypeMeta: metav1.TypeMeta{APIVersion: batch.SchemeGroupVersion.String(), Kind: "Job"}, ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: batch.JobSpec{SchedulerName: "volcano", Queue: queue, MinAvailable: 3, MaxRetry: 3, Tasks: []batch.TaskSpec{
			{Name: "master", Replicas: one, MinAvailable: &one, Template: template, MaxRetry: 3},
			{Name: "worker", Replicas: two, MinAvailable: &two, Template: template, MaxRetry: 3}},
			// As Volcano's webhook would fill it in.
			Policies: []batch.LifecyclePolicy{{Event: bus.TaskCompletedEvent, Action: bus.SyncJobAction}},
		},
	}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(job)
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.jobs().Create(w.t.Context(), &unstructured.Unstructured{Object: object}, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) jobs() dynamic.ResourceInterface {
	return dynamic.NewForConfigOrDie(w.cluster.Config(local.Admin)).Resource(batch.SchemeGroupVersion.WithResource("jobs")).Namespace("default")
}

// jobIs waits until a vcjob has a phase.
func (w *world) jobIs(name string, phase batch.JobPhase) {
	w.t.Helper()
	localtest.Wait(w.t, patience, fmt.Sprintf("job %s to be %s", name, phase), func(ctx context.Context) error {
		o, err := w.jobs().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if now, _, _ := unstructured.NestedString(o.Object, "status", "state", "phase"); now != string(phase) {
			return fmt.Errorf("it is %q; its PodGroup: %+v", now, w.groupOf(name))
		}
		return nil
	})
}

// groupOf returns the PodGroup that Volcano's controller made for a vcjob, nil if there is none.
func (w *world) groupOf(job string) *v1beta1.PodGroup {
	w.t.Helper()
	list := &v1beta1.PodGroupList{}
	if err := w.kube.Volcano.Get().Namespace("default").Resource("podgroups").Do(w.t.Context()).Into(list); err != nil {
		w.t.Fatal(err)
	}
	for i := range list.Items {
		if strings.HasPrefix(list.Items[i].Name, job+"-") {
			return &list.Items[i]
		}
	}
	return nil
}

// saysOf waits until the PodGroup of a vcjob is Pending, and says why.
func (w *world) saysOf(job, why string) {
	w.t.Helper()
	localtest.Wait(w.t, patience, "the PodGroup of job "+job, func(context.Context) error {
		if w.groupOf(job) == nil {
			return errors.New("it is not there")
		}
		return nil
	})
	w.phase(w.groupOf(job).Name, v1beta1.PodGroupPending, why)
	for _, c := range w.groupOf(job).Status.Conditions {
		w.t.Logf("the PodGroup of job %s is %s=%s, %s: %s", job, c.Type, c.Status, c.Reason, c.Message)
	}
}

func (w *world) podsOf(job string) []corev1.Pod {
	w.t.Helper()
	list, err := w.kube.Core.CoreV1().Pods("default").List(w.t.Context(), metav1.ListOptions{LabelSelector: batch.JobNameKey + "=" + job})
	if err != nil {
		w.t.Fatal(err)
	}
	return list.Items
}

// uidsOf returns the pods of a vcjob as name and UID, in order.
func (w *world) uidsOf(job string) (out []string) {
	w.t.Helper()
	for _, p := range w.podsOf(job) {
		out = append(out, p.Name+" "+string(p.UID))
	}
	slices.Sort(out)
	return out
}

// again waits until so many of three pods of a vcjob are others than before, and all are bound.
func (w *world) again(job string, before []string, others int) {
	w.t.Helper()
	localtest.Wait(w.t, patience, fmt.Sprintf("%d pods of job %s to be made again", others, job), func(context.Context) error {
		fresh, pods := 0, w.podsOf(job)
		for _, p := range pods {
			if p.Spec.NodeName == "" || p.DeletionTimestamp != nil {
				return fmt.Errorf("pod %s is on node %q", p.Name, p.Spec.NodeName)
			}
			if !slices.Contains(before, p.Name+" "+string(p.UID)) {
				fresh++
			}
		}
		if len(pods) != 3 || fresh != others {
			return fmt.Errorf("%d pods, %d of them made again", len(pods), fresh)
		}
		return nil
	})
}

// jobCommand makes a Command for a vcjob, as vcctl does.
func (w *world) jobCommand(name string, action bus.Action, job string) {
	w.t.Helper()
	o, err := w.jobs().Get(w.t.Context(), job, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	c := &bus.Command{TypeMeta: metav1.TypeMeta{APIVersion: bus.SchemeGroupVersion.String(), Kind: "Command"}, ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Action: string(action),
		TargetObject: metav1.NewControllerRef(o, batch.SchemeGroupVersion.WithKind("Job"))}
	if err := w.kube.VolcanoBus.Post().Namespace("default").Resource("commands").Body(c).Do(w.t.Context()).Error(); err != nil && !apierrors.IsAlreadyExists(err) {
		w.t.Fatal(err)
	}
}

// TestVolcanoPodGroupController: Volcano's controller makes a PodGroup for each controller of bare pods, names it on pods that exist
// already, and deletes it by name when its controller has no replicas. A Deployment that goes from one to none to one, and to two, runs
// each time, whatever comes late.
func TestVolcanoPodGroupController(t *testing.T) {
	w := installFor(t, "vc-controller-manager")
	w.volcanoQueue("default", "root", "4")
	found := w.inPlaceOfVolcano()
	w.controller("vc-controller-manager", "--controllers=*,-queue-controller,-sharding-controller", "--leader-elect=false", "--logtostderr", "-v=3")

	labels := map[string]string{"app": "web"}
	deployments := w.kube.Core.AppsV1().Deployments("default")
	if _, err := deployments.Create(t.Context(), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{SchedulerName: "volcano",
			Containers: []corev1.Container{{Name: "c", Image: "i", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}}}}}}}},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	uids := map[types.UID]bool{}
	for round, replicas := range []int{1, 0, 1, 0, 2, 1, 0, 3, 4} {
		patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
		if _, err := deployments.Patch(t.Context(), "web", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		localtest.Wait(t, patience, fmt.Sprintf("%d replicas in round %d", replicas, round), func(ctx context.Context) error {
			list, err := w.kube.Core.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "app=web"})
			if err != nil {
				return err
			}
			bound := 0
			for _, p := range list.Items {
				if uids[p.UID] = true; p.Spec.NodeName != "" && p.DeletionTimestamp == nil {
					bound++
				}
			}
			if bound != replicas || len(list.Items) != replicas {
				return fmt.Errorf("%d pods, %d of them bound: %+v", len(list.Items), bound, w.groupOf("podgroup"))
			}
			return nil
		})
	}
	w.charged("default", map[string]string{"cpu": "4", "pods": "4"})
	time.Sleep(5 * time.Second) // for what comes late
	list, err := w.kube.Core.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
	if err != nil || len(list.Items) != 4 {
		t.Fatalf("%v, %d pods", err, len(list.Items))
	}
	for _, p := range list.Items {
		if !uids[p.UID] || p.Annotations[v1beta1.KubeGroupNameAnnotationKey] == "" {
			t.Errorf("pod %s was made again, or has no PodGroup: %v", p.Name, p.Annotations)
		}
	}
	found()
}
