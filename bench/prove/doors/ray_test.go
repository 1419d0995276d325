//go:build doors

package doors

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/bench/stage/local"
)

// TestRayController: clusters of Ray start whole or not at all, and grow and shrink, with KubeRay's own operator, which makes PodGroups
// of Volcano's for them. It makes all pods at once, and compares no status.
func TestRayController(t *testing.T) {
	w := installFor(t, "kuberay-operator")
	if err := w.cluster.DefineRay(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.volcanoQueue("research", "root", "7")
	w.volcanoQueue("team", "research", "")
	found := w.inPlaceOfVolcano()
	w.controller("kuberay-operator", "--batch-scheduler=volcano", "--enable-leader-election=false", "--metrics-addr=127.0.0.1:0", "--health-probe-bind-address=127.0.0.1:0")

	w.ray("first", 2)
	w.allRun("ray.io/cluster=first", 3)
	w.phase("ray-first-pg", v1beta1.PodGroupRunning, "")
	w.shows("research", v1beta1.QueueStateOpen, "3", "3")

	// A second one needs five of the four CPUs that are left. A shard dies. The first one grows by two.
	w.ray("second", 4)
	w.phase("ray-second-pg", v1beta1.PodGroupPending, `queue "research" has insufficient cpu`)
	w.allWait("ray.io/cluster=second", 5)
	w.all[1].Kill()
	w.scale("first", 4)
	w.allRun("ray.io/cluster=first", 5)
	w.shows("research", v1beta1.QueueStateOpen, "5", "5")
	w.allWait("ray.io/cluster=second", 5)

	// It shrinks, and the second one starts whole. Then the first one ends.
	w.scale("first", 1)
	w.allRun("ray.io/cluster=second", 5)
	w.phase("ray-second-pg", v1beta1.PodGroupRunning, "")
	w.allRun("ray.io/cluster=first", 2)
	w.shows("research", v1beta1.QueueStateOpen, "7", "7")
	if err := w.rays().Delete(t.Context(), "first", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.shows("research", v1beta1.QueueStateOpen, "5", "5")
	w.allRun("ray.io/cluster=second", 5)
	if err := w.rays().Delete(t.Context(), "second", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.shows("research", v1beta1.QueueStateOpen, "", "")

	// A job of Ray: its cluster starts whole, and then the pod that submits the job, of the same PodGroup.
	jobs := dynamic.NewForConfigOrDie(w.cluster.Config(local.Admin)).Resource(schema.GroupVersionResource{Group: "ray.io", Version: "v1", Resource: "rayjobs"}).Namespace("default")
	w.makeRay(jobs, "RayJob", "train", map[string]any{"entrypoint": "x", "rayClusterSpec": raySpec(2)})
	w.allRun("ray.io/cluster", 3)
	w.phase("ray-train-pg", v1beta1.PodGroupRunning, "")
	w.allRun("job-name=train", 1)
	if p := w.podNamed(w.podBy("job-name=train")); p.Annotations[v1beta1.KubeGroupNameAnnotationKey] != "ray-train-pg" || p.Labels[api.LabelGang] == "" {
		t.Errorf("the pod that submits is %+v", p.ObjectMeta)
	}
	found()
}

func (w *world) rays() dynamic.ResourceInterface {
	return dynamic.NewForConfigOrDie(w.cluster.Config(local.Admin)).Resource(schema.GroupVersionResource{Group: "ray.io", Version: "v1", Resource: "rayclusters"}).Namespace("default")
}

// ray makes a cluster of Ray with a head and workers, each with one CPU.
func (w *world) ray(name string, workers int64) {
	w.t.Helper()
	w.makeRay(w.rays(), "RayCluster", name, raySpec(workers))
}

func (w *world) makeRay(in dynamic.ResourceInterface, kind, name string, spec map[string]any) {
	w.t.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "ray.io/v1", "kind": kind,
		"metadata": map[string]any{"name": name, "labels": map[string]any{"volcano.sh/queue-name": "team"}}, "spec": spec}}
	if _, err := in.Create(w.t.Context(), o, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// raySpec is a cluster of Ray.
func raySpec(workers int64) map[string]any {
	type m = map[string]any
	pod := func(container string) m {
		one := m{"cpu": "1", "memory": "1Mi"}
		return m{"spec": m{"containers": []any{m{"name": container, "image": "i", "resources": m{"requests": one, "limits": one}}}}}
	}
	return m{
		"headGroupSpec": m{"rayStartParams": m{}, "template": pod("head")},
		"workerGroupSpecs": []any{m{"groupName": "workers", "replicas": workers, "minReplicas": int64(0), "maxReplicas": int64(10),
			"rayStartParams": m{}, "template": pod("worker")}},
	}
}

func (w *world) scale(name string, workers int) {
	w.t.Helper()
	patch := fmt.Appendf(nil, `[{"op": "replace", "path": "/spec/workerGroupSpecs/0/replicas", "value": %d}]`, workers)
	if _, err := w.rays().Patch(w.t.Context(), name, types.JSONPatchType, patch, metav1.PatchOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) podNamed(name string) *corev1.Pod {
	w.t.Helper()
	p, err := w.kube.Core.CoreV1().Pods("default").Get(w.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}
