//go:build doors

package doors

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"basalt.dev/basalt/bench/stage/kubelet"
	"basalt.dev/basalt/bench/stage/local"
)

// TestMPIController: MPIJobs start whole or not at all, with Kubeflow's own operator, which makes PodGroups of Volcano's for them.
func TestMPIController(t *testing.T) {
	w := installFor(t, "mpi-operator")
	if err := w.cluster.DefineMPI(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.volcanoQueue("research", "root", "4")
	w.volcanoQueue("team", "research", "")
	found := w.inPlaceOfVolcano()
	w.controller("mpi-operator", "--gang-scheduling=volcano")

	// A launcher and two workers take three of four CPUs. A second job waits whole, and a shard dies. The first one ends, and the second
	// one starts whole.
	w.mpi("first", "40")
	w.allRun("training.kubeflow.org/job-name=first", 3)
	w.phase("first", v1beta1.PodGroupRunning, "")
	w.shows("research", v1beta1.QueueStateOpen, "3", "3")
	w.mpi("second", "600")
	w.phase("second", v1beta1.PodGroupPending, `queue "research" has insufficient cpu`)
	w.allWait("training.kubeflow.org/job-name=second", 3)
	w.all[1].Kill()
	w.allRun("training.kubeflow.org/job-name=second", 3)
	w.phase("second", v1beta1.PodGroupRunning, "")
	w.shows("research", v1beta1.QueueStateOpen, "3", "3")
	found()
}

// mpi makes an MPIJob of a launcher, which runs for some seconds, and two workers, which are deleted then.
func (w *world) mpi(name, seconds string) {
	w.t.Helper()
	type m = map[string]any
	pod := func(container, seconds string) m {
		return m{"metadata": m{"annotations": m{kubelet.RunSeconds: seconds}},
			"spec": m{"containers": []any{m{"name": container, "image": "i", "resources": m{"requests": m{"cpu": "1"}}}}}}
	}
	o := &unstructured.Unstructured{Object: m{"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": m{"name": name}, "spec": m{
		"slotsPerWorker": int64(1), "runPolicy": m{"cleanPodPolicy": "All", "schedulingPolicy": m{"queue": "team"}},
		"mpiReplicaSpecs": m{"Launcher": m{"replicas": int64(1), "template": pod("launcher", seconds)}, "Worker": m{"replicas": int64(2), "template": pod("worker", "600")}}}}}
	jobs := dynamic.NewForConfigOrDie(w.cluster.Config(local.Admin)).Resource(schema.GroupVersionResource{Group: "kubeflow.org", Version: "v2beta1", Resource: "mpijobs"}).Namespace("default")
	if _, err := jobs.Create(w.t.Context(), o, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}
