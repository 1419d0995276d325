package doors

import (
	"context"
	"fmt"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/bench/stage/kubelet"
	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/localtest"
)

// TestImplied: pods that say by themselves which others they start with, and how many of them, are gangs without any object: those of a
// Job, those that name a gang, and those of Kueue's pod groups.
func TestImplied(t *testing.T) {
	t.Parallel()
	w := install(t, local.Options{ControllerManager: true})
	w.start()
	go func() { _ = kubelet.Run(t.Context(), kubelet.Options{Client: w.kube.Core}) }()
	found := w.audit()
	w.queue("team", "7")
	w.queue("free", "8")

	// Two Jobs of three pods do not fit into the queue: the second one waits whole, though one of its pods would fit. A shard dies.
	w.indexed("first", 3, "3")
	w.jobHas("first", 3, 3)
	w.charged("team", map[string]string{"cpu": "6", "pods": "3"})
	w.indexed("second", 3, "3")
	w.waits(w.podOf("second"), "QuotaExceeded", `queue "team"`)
	w.all[1].Kill()
	w.jobHas("second", 3, 0)

	// A pod of the first Job is deleted and made again: it takes its place, for the gang has started.
	w.delete(w.podOf("first"))
	w.jobHas("first", 3, 3)
	w.jobHas("second", 3, 0)
	background := metav1.DeletePropagationBackground
	if err := w.kube.Core.BatchV1().Jobs("default").Delete(t.Context(), "first", metav1.DeleteOptions{PropagationPolicy: &background}); err != nil {
		t.Fatal(err)
	}
	w.jobHas("second", 3, 3)
	w.charged("team", map[string]string{"cpu": "6", "pods": "3"})

	// Pods without a controller name their gang. Once all are gone, it begins anew.
	pair := func(p *corev1.Pod) {
		p.Labels = map[string]string{api.LabelQueue: "free"}
		p.Annotations = map[string]string{api.AnnotationGangName: "pair", api.AnnotationGangMin: "2"}
	}
	w.pod("pair-0", "", "", "1", pair)
	w.pod("pair-1", "", "", "1", pair)
	w.bound("pair-0", "pair-1")
	w.delete("pair-0", "pair-1")
	w.charged("free", nil)
	w.pod("pair-0", "", "", "1", pair)

	// Kueue makes no object either: its pods have a label and a count.
	group := func(p *corev1.Pod) {
		p.Labels = map[string]string{"kueue.x-k8s.io/pod-group-name": "set", api.LabelQueue: "free"}
		p.Annotations["kueue.x-k8s.io/pod-group-total-count"] = "2"
	}
	w.pod("set-0", "", "", "1", group, func(p *corev1.Pod) {
		p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "kueue.x-k8s.io/admission"}}
	})
	w.pod("set-1", "", "", "1", group)
	w.waits("set-1", "NotEnoughPods", "1 of the 2 pods that start together can be scheduled, 1 more has scheduling gates")
	if _, err := w.kube.Core.CoreV1().Pods("default").Patch(t.Context(), "set-0", "application/merge-patch+json", []byte(`{"spec":{"schedulingGates":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	w.bound("set-0", "set-1")

	w.waits("pair-0", "NotEnoughPods", "1 of the 2 pods that start together can be scheduled")
	w.pod("pair-2", "", "", "1", pair)
	w.bound("pair-0", "pair-2")

	// What cannot be read says so at the pod, and keeps the others of its gang waiting.
	w.pod("bad-0", "", "", "1", pair, func(p *corev1.Pod) {
		p.Annotations[api.AnnotationGangName], p.Annotations[api.AnnotationGangMin] = "bad", "all"
	})
	w.waits("bad-0", "UnsupportedConstraint", `metadata.annotations[scheduling.basalt.dev/gang-min] is "all": not a number of pods from 1 to 100000`)
	w.pod("bad-1", "", "", "1", pair, func(p *corev1.Pod) { p.Annotations[api.AnnotationGangName] = "bad" })
	w.waits("bad-1", "UnsupportedConstraint", "bad-0")
	w.charged("free", map[string]string{"cpu": "4", "pods": "4"})
	found()
}

// indexed makes a Job whose pods say how many of them start together, unless that is "".
func (w *world) indexed(name string, pods int32, least string) {
	w.t.Helper()
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: batchv1.JobSpec{Parallelism: &pods, Completions: &pods, CompletionMode: new(batchv1.IndexedCompletion),
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{api.LabelQueue: "team"}, Annotations: map[string]string{kubelet.RunSeconds: "600"}},
			Spec: corev1.PodSpec{SchedulerName: api.SchedulerName, RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "none",
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("2")}}}}},
		}}}
	if least != "" {
		j.Spec.Template.Annotations[api.AnnotationGangMin] = least
	}
	if _, err := w.kube.Core.BatchV1().Jobs("default").Create(w.t.Context(), j, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) podsOfJob(ctx context.Context, name string) ([]corev1.Pod, error) {
	list, err := w.kube.Core.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: batchv1.JobNameLabel + "=" + name})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// podOf returns a pod of a Job, when it has one that is not being deleted.
func (w *world) podOf(name string) (pod string) {
	w.t.Helper()
	localtest.Wait(w.t, patience, "a pod of "+name, func(ctx context.Context) error {
		pods, err := w.podsOfJob(ctx, name)
		for _, p := range pods {
			if p.DeletionTimestamp == nil {
				pod = p.Name
				return nil
			}
		}
		return fmt.Errorf("it has none: %v", err)
	})
	return pod
}

// jobHas waits until a Job has so many pods, of which so many have nodes.
func (w *world) jobHas(name string, pods, bound int) {
	w.t.Helper()
	localtest.Wait(w.t, patience, fmt.Sprintf("%d pods of %s, %d of them bound", pods, name, bound), func(ctx context.Context) error {
		all, err := w.podsOfJob(ctx, name)
		if err != nil {
			return err
		}
		n, has := 0, 0
		for _, p := range all {
			if p.DeletionTimestamp != nil {
				continue
			}
			if n++; p.Spec.NodeName != "" {
				has++
			}
		}
		if n != pods || has != bound {
			return fmt.Errorf("it has %d, of which %d are bound", n, has)
		}
		return nil
	})
}
