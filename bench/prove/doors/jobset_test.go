//go:build doors

package doors

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/bench/stage/kubelet"
	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/localtest"
	"basalt.dev/basalt/deploy"
)

// TestJobSetController: JobSets start whole or not at all, with JobSet's own controller, which knows nothing of gangs, and the policies
// of deploy/gangs. One whose job fails is made again by its controller, and starts whole again.
func TestJobSetController(t *testing.T) {
	w := install(t, local.Options{ControllerManager: true})
	if err := local.Programs(t.Context(), w.cluster.Root(), os.Stderr, "jobset-controller"); err != nil {
		t.Fatal(err)
	}
	if err := w.cluster.DefineJobSet(t.Context()); err != nil {
		t.Fatal(err)
	}
	policies, err := deploy.Files.ReadFile("gangs/workloads.yaml")
	if err != nil {
		t.Fatal(err)
	}
	w.apply(string(policies))
	w.labelNamespace("default", "gangs")
	w.start()
	go func() { _ = kubelet.Run(t.Context(), kubelet.Options{Client: w.kube.Core}) }()
	found := w.audit()
	w.queue("team", "7")
	w.jobSetController()
	localtest.Wait(t, patience, "the policies to be in force", func(context.Context) error {
		u, err := w.jobSets().Create(t.Context(), jobSet("dry"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			return err
		}
		if least, _ := annotationOf(u, "spec.replicatedJobs.0.template.spec.template", api.AnnotationGangMin); least != "3" {
			return fmt.Errorf("the minimum is %q", least)
		}
		return nil
	})

	// Two JobSets of a driver and two workers, of two CPUs each, do not fit into the queue: the second waits whole. A shard dies.
	w.makeJobSet("first")
	w.allRun("jobset.sigs.k8s.io/jobset-name=first", 3)
	w.charged("team", map[string]string{"cpu": "6", "pods": "3"})
	w.makeJobSet("second")
	w.allWait("jobset.sigs.k8s.io/jobset-name=second", 3)
	w.waits(w.podBy("jobset.sigs.k8s.io/jobset-name=second"), "QuotaExceeded", `queue "team"`)
	w.all[1].Kill()

	// A worker of the first one fails: its controller deletes all of its Jobs and makes them again.
	before := w.uidsBy("jobset.sigs.k8s.io/jobset-name=first")
	if _, err := w.kube.Core.CoreV1().Pods("default").Patch(t.Context(), w.podBy("jobset.sigs.k8s.io/jobset-name=first,jobset.sigs.k8s.io/replicatedjob-name=worker"), types.MergePatchType,
		[]byte(`{"status":{"phase":"Failed"}}`), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	localtest.Wait(t, patience, "new pods of first", func(context.Context) error {
		for uid := range w.uidsBy("jobset.sigs.k8s.io/jobset-name=first") {
			if before[uid] {
				return fmt.Errorf("%s is still there", uid)
			}
		}
		return nil
	})
	w.oneRuns("first", "second")
	background := metav1.DeletePropagationBackground
	for _, name := range []string{"first", "second"} { // whichever ran, the other one follows
		if err := w.jobSets().Delete(t.Context(), name, metav1.DeleteOptions{PropagationPolicy: &background}); err != nil {
			t.Fatal(err)
		}
		if name == "first" {
			w.allRun("jobset.sigs.k8s.io/jobset-name=second", 3)
		}
	}
	w.charged("team", nil)
	found()
}

// oneRuns waits until all pods of one of two JobSets run, and none of the other.
func (w *world) oneRuns(a, b string) {
	w.t.Helper()
	localtest.Wait(w.t, patience, "one of two JobSets to run whole", func(ctx context.Context) error {
		_, first, err := w.countBy(ctx, "jobset.sigs.k8s.io/jobset-name="+a)
		if err != nil {
			return err
		}
		_, second, err := w.countBy(ctx, "jobset.sigs.k8s.io/jobset-name="+b)
		if err == nil && (first+second != 3 || first*second > 0) {
			err = fmt.Errorf("%d and %d of their pods are bound", first, second)
		}
		return err
	})
}

// jobSetController starts JobSet's controller. Nobody calls its webhooks, and what they would fill in, jobSet has.
func (w *world) jobSetController() {
	w.t.Helper()
	dir, port := w.webhookServer()
	config := fmt.Sprintf(`{"apiVersion": "config.jobset.x-k8s.io/v1alpha1", "kind": "Configuration", "leaderElection": {"leaderElect": false},
		"internalCertManagement": {"enable": false}, "webhook": {"host": "127.0.0.1", "port": %d, "certDir": %q}}`, port, dir)
	if err := os.WriteFile(filepath.Join(dir, "config.yaml"), []byte(config), 0o600); err != nil {
		w.t.Fatal(err)
	}
	w.controller("jobset-controller", "--config="+filepath.Join(dir, "config.yaml"), "--metrics-bind-address=127.0.0.1:0", "--health-probe-bind-address=127.0.0.1:0")
}

// webhookServer returns a folder with a certificate of the cluster's for a server of webhooks, and a port for it.
func (w *world) webhookServer() (dir string, port int) {
	w.t.Helper()
	dir = w.t.TempDir()
	for from, to := range map[string]string{"server.crt": "tls.crt", "server.key": "tls.key"} {
		b, err := os.ReadFile(filepath.Join(w.cluster.Dir(), from))
		if err != nil {
			w.t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, to), b, 0o600); err != nil {
			w.t.Fatal(err)
		}
	}
	ports, err := local.FreePorts(1)
	if err != nil {
		w.t.Fatal(err)
	}
	return dir, ports[0]
}

func (w *world) jobSets() dynamic.ResourceInterface {
	return dynamic.NewForConfigOrDie(w.cluster.Config(local.Admin)).Resource(schema.GroupVersionResource{Group: "jobset.x-k8s.io", Version: "v1alpha2", Resource: "jobsets"}).Namespace("default")
}

func (w *world) makeJobSet(name string) {
	w.t.Helper()
	if _, err := w.jobSets().Create(w.t.Context(), jobSet(name), metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// jobSet is one of a driver and two workers.
func jobSet(name string) *unstructured.Unstructured {
	type m = map[string]any
	job := func(role string, pods int64) m {
		return m{"name": role, "replicas": int64(1), "template": m{"spec": m{"parallelism": pods, "completions": pods, "completionMode": "Indexed", "backoffLimit": int64(0),
			"template": m{"metadata": m{"labels": m{api.LabelQueue: "team"}, "annotations": m{kubelet.RunSeconds: "600"}},
				"spec": m{"schedulerName": api.SchedulerName, "restartPolicy": "Never", "containers": []any{m{"name": "c", "image": "none", "resources": m{"requests": m{"cpu": "2"}}}}}}}}}
	}
	return &unstructured.Unstructured{Object: m{"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": m{"name": name}, "spec": m{
		"successPolicy": m{"operator": "All"}, "startupPolicy": m{"startupPolicyOrder": "AnyOrder"}, "failurePolicy": m{"maxRestarts": int64(3)},
		"network": m{"enableDNSHostnames": true, "publishNotReadyAddresses": true}, "replicatedJobs": []any{job("driver", 1), job("worker", 2)}}}}
}

// countBy returns how many pods there are with a label that are not being deleted, and how many of them have a node.
func (w *world) countBy(ctx context.Context, selector string) (pods, bound int, err error) {
	list, err := w.listBy(ctx, selector)
	for _, p := range list {
		if p.Spec.NodeName != "" {
			bound++
		}
	}
	return len(list), bound, err
}

func (w *world) listBy(ctx context.Context, selector string) (pods []corev1.Pod, err error) {
	list, err := w.kube.Core.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, err
	}
	for _, p := range list.Items {
		if p.DeletionTimestamp == nil {
			pods = append(pods, p)
		}
	}
	return pods, nil
}

// podBy returns the name of a pod with a label, uidsBy the UIDs of all.
func (w *world) podBy(selector string) string {
	w.t.Helper()
	list, err := w.listBy(w.t.Context(), selector)
	if err != nil || len(list) == 0 {
		w.t.Fatalf("no pod has %s: %v", selector, err)
	}
	return list[0].Name
}

func (w *world) uidsBy(selector string) map[types.UID]bool {
	w.t.Helper()
	list, err := w.listBy(w.t.Context(), selector)
	if err != nil {
		w.t.Fatal(err)
	}
	uids := map[types.UID]bool{}
	for _, p := range list {
		uids[p.UID] = true
	}
	return uids
}

// allRun waits until there are so many pods with a label, and all have a node.
func (w *world) allRun(selector string, pods int) {
	w.t.Helper()
	localtest.Wait(w.t, patience, fmt.Sprintf("%d pods with %s", pods, selector), func(ctx context.Context) error {
		has, bound, err := w.countBy(ctx, selector)
		if err == nil && (has != pods || bound != pods) {
			err = fmt.Errorf("%d pods, %d of them bound", has, bound)
		}
		return err
	})
}

// allWait waits until there are so many pods with a label, none of which may have a node.
func (w *world) allWait(selector string, pods int) {
	w.t.Helper()
	localtest.Wait(w.t, patience, fmt.Sprintf("%d waiting pods with %s", pods, selector), func(ctx context.Context) error {
		has, bound, err := w.countBy(ctx, selector)
		if bound > 0 {
			w.t.Fatalf("%d of %d pods with %s are bound, which have no quota", bound, has, selector)
		}
		if err == nil && has != pods {
			err = fmt.Errorf("%d pods", has)
		}
		return err
	})
}
