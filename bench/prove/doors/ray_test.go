//go:build doors

package doors

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"volcano.sh/apis/pkg/apis/scheduling/v1beta1"

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
	found()
}

func (w *world) rays() dynamic.ResourceInterface {
	return dynamic.NewForConfigOrDie(w.cluster.Config(local.Admin)).Resource(schema.GroupVersionResource{Group: "ray.io", Version: "v1", Resource: "rayclusters"}).Namespace("default")
}

// ray makes a cluster of Ray with a head and workers, each with one CPU.
func (w *world) ray(name string, workers int64) {
	w.t.Helper()
	type m = map[string]any
	pod := func(container string) m {
		one := m{"cpu": "1", "memory": "1Mi"}
		return m{"spec": m{"containers": []any{m{"name": container, "image": "i", "resources": m{"requests": one, "limits": one}}}}}
	}
	o := &unstructured.Unstructured{Object: m{
		"apiVersion": "ray.io/v1", "kind": "RayCluster",
		"metadata": m{"name": name, "labels": m{"volcano.sh/queue-name": "team"}},
		"spec": m{
			"headGroupSpec": m{"rayStartParams": m{}, "template": pod("head")},
			"workerGroupSpecs": []any{m{"groupName": "workers", "replicas": workers, "minReplicas": int64(0), "maxReplicas": int64(10),
				"rayStartParams": m{}, "template": pod("worker")}},
		},
	}}
	if _, err := w.rays().Create(w.t.Context(), o, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) scale(name string, workers int) {
	w.t.Helper()
	patch := fmt.Appendf(nil, `[{"op": "replace", "path": "/spec/workerGroupSpecs/0/replicas", "value": %d}]`, workers)
	if _, err := w.rays().Patch(w.t.Context(), name, types.JSONPatchType, patch, metav1.PatchOptions{}); err != nil {
		w.t.Fatal(err)
	}
}
