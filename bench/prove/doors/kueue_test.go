//go:build doors

package doors

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/bench/stage/kubelet"
	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/localtest"
)

// TestKueueController: Kueue decides what starts and Basalt where. Jobs come suspended, groups of pods come with gates that Kueue takes
// away one after another, and pods whose topology Kueue chose are pinned to one node.
func TestKueueController(t *testing.T) {
	w := install(t, local.Options{ControllerManager: true})
	if err := local.Programs(t.Context(), w.cluster.Root(), os.Stderr, "kueue"); err != nil {
		t.Fatal(err)
	}
	if err := w.cluster.DefineKueue(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.start()
	go func() { _ = kubelet.Run(t.Context(), kubelet.Options{Client: w.kube.Core}) }()
	found := w.audit()
	w.queue("team", "100") // Kueue has the quota
	w.kueueController()
	localtest.Wait(t, patience, "Kueue to take objects", func(context.Context) error { return w.tryApply(kueueObjects) })

	// Kueue has quota for one Job of three pods of two CPUs each. The second one has no pods until the first one is gone. A shard dies.
	w.kueueJob("first", "plain", 3)
	w.jobHas("first", 3, 3)
	w.charged("team", map[string]string{"cpu": "6", "pods": "3"})
	w.kueueJob("second", "plain", 3)
	if second, err := w.kube.Core.BatchV1().Jobs("default").Get(t.Context(), "second", metav1.GetOptions{}); err != nil || second.Spec.Suspend == nil || !*second.Spec.Suspend {
		t.Errorf("a Job for which Kueue has no quota is not suspended: %v", err)
	}
	w.all[1].Kill()
	w.deleteJob("first")
	w.jobHas("second", 3, 3)
	w.deleteJob("second")
	w.charged("team", nil)

	// A group of four pods, of which Kueue makes one whole. Three of them alone are gated; a fourth comes, and all are bound.
	group := func(p *corev1.Pod) {
		p.Labels = map[string]string{"kueue.x-k8s.io/pod-group-name": "set", "kueue.x-k8s.io/queue-name": "plain", api.LabelQueue: "team"}
		p.Annotations["kueue.x-k8s.io/pod-group-total-count"] = "4"
	}
	for i := range 3 {
		w.pod(fmt.Sprint("set-", i), "", "", "1", group)
	}
	w.eachHas(3, "kueue.x-k8s.io/pod-group-name=set")
	for _, p := range w.must(w.listBy(t.Context(), "kueue.x-k8s.io/pod-group-name=set")) {
		if len(p.Spec.SchedulingGates) == 0 {
			t.Errorf("pod %s of a group that is not complete has no scheduling gate", p.Name)
		}
	}
	w.pod("set-3", "", "", "1", group)
	w.bound("set-0", "set-1", "set-2", "set-3")
	w.charged("team", map[string]string{"cpu": "4", "pods": "4"})

	// The pods of a Job that asks for one host are pinned to it by Kueue, and bound there together. Each takes half of a node.
	w.kueueJob("near", "near", 2, func(j *batchv1.Job) {
		j.Spec.Template.Annotations["kueue.x-k8s.io/podset-required-topology"] = "kubernetes.io/hostname"
	})
	w.jobHas("near", 2, 2)
	nodes := map[string]bool{}
	for _, p := range w.must(w.podsOfJob(t.Context(), "near")) {
		nodes[p.Spec.NodeName] = true
		if p.Spec.NodeSelector["kubernetes.io/hostname"] != p.Spec.NodeName {
			t.Errorf("pod %s is bound to %s, and Kueue pinned it to %v", p.Name, p.Spec.NodeName, p.Spec.NodeSelector)
		}
	}
	if len(nodes) != 1 {
		t.Errorf("the pods of a Job that asks for one host are on %v", nodes)
	}
	w.charged("team", map[string]string{"cpu": "8", "pods": "6"})
	found()
}

// kueueObjects are two queues of Kueue's: plain has seven CPUs, and in near Kueue chooses the nodes.
const kueueObjects = `
apiVersion: kueue.x-k8s.io/v1beta2
kind: Topology
metadata: {name: hosts}
spec: {levels: [{nodeLabel: kubernetes.io/hostname}]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: plain}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: hosts}
spec: {topologyName: hosts, nodeLabels: {pool: near}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: plain}
spec: {namespaceSelector: {}, resourceGroups: [{coveredResources: [cpu], flavors: [{name: plain, resources: [{name: cpu, nominalQuota: 7}]}]}]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: near}
spec: {namespaceSelector: {}, resourceGroups: [{coveredResources: [cpu], flavors: [{name: hosts, resources: [{name: cpu, nominalQuota: 16}]}]}]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: plain, namespace: default}
spec: {clusterQueue: plain}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: near, namespace: default}
spec: {clusterQueue: near}
`

// kueueJob makes a Job in a queue of Kueue's. Its pods have two CPUs each, and start together.
func (w *world) kueueJob(name, queue string, n int32, edits ...func(*batchv1.Job)) {
	w.t.Helper()
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kueue.x-k8s.io/queue-name": queue}}}
	job.Spec.Parallelism, job.Spec.Completions = &n, &n
	job.Spec.Template.Labels = map[string]string{api.LabelQueue: "team"}
	job.Spec.Template.Annotations = map[string]string{api.AnnotationGangMin: fmt.Sprint(n), kubelet.RunSeconds: "600"}
	job.Spec.Template.Spec = corev1.PodSpec{SchedulerName: api.SchedulerName, RestartPolicy: corev1.RestartPolicyNever,
		Containers: []corev1.Container{{Name: "c", Image: "none", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("2")}}}}}
	for _, edit := range edits {
		edit(job)
	}
	if _, err := w.kube.Core.BatchV1().Jobs("default").Create(w.t.Context(), job, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) deleteJob(name string) {
	w.t.Helper()
	background := metav1.DeletePropagationBackground
	if err := w.kube.Core.BatchV1().Jobs("default").Delete(w.t.Context(), name, metav1.DeleteOptions{PropagationPolicy: &background}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) must(pods []corev1.Pod, err error) []corev1.Pod {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
	return pods
}

// kueueController starts Kueue, and has the API server call the webhooks that suspend Jobs and gate pods. Kueue makes the certificates of
// its webhooks, fills them in where they are registered, and goes on once they are in its folder.
func (w *world) kueueController() {
	w.t.Helper()
	for i := range 4 {
		label := []byte(`{"metadata":{"labels":{"pool":"near"}}}`)
		if _, err := w.kube.Core.CoreV1().Nodes().Patch(w.t.Context(), fmt.Sprint("node-", i), types.MergePatchType, label, metav1.PatchOptions{}); err != nil {
			w.t.Fatal(err)
		}
	}
	ports, err := local.FreePorts(1)
	if err != nil {
		w.t.Fatal(err)
	}
	service := func(path string) string {
		return fmt.Sprintf(`{service: {namespace: kueue-system, name: kueue-webhook-service, path: %s, port: %d}}`, path, ports[0])
	}
	hook := func(name, path, group, version, resource string) string {
		return fmt.Sprintf(`- {name: %s, admissionReviewVersions: [v1], sideEffects: None, failurePolicy: Fail, clientConfig: %s,
  rules: [{apiGroups: [%q], apiVersions: [%s], operations: [CREATE], resources: [%s]}]}
`, name, service(path), group, version, resource)
	}
	w.apply(`
apiVersion: v1
kind: Secret
metadata: {name: kueue-webhook-server-cert, namespace: kueue-system}
---
apiVersion: v1
kind: Service
metadata: {name: kueue-webhook-service, namespace: kueue-system}
spec: {type: ExternalName, externalName: localhost}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: kueue-validating-webhook-configuration}
webhooks:
` + hook("vjob.kb.io", "/validate-batch-v1-job", "batch", "v1", "jobs") + `
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: kueue-mutating-webhook-configuration}
webhooks:
` + hook("mjob.kb.io", "/mutate-batch-v1-job", "batch", "v1", "jobs") +
		hook("mpod.kb.io", "/mutate--v1-pod", "", "v1", "pods") +
		hook("mclusterqueue.kb.io", "/mutate-kueue-x-k8s-io-v1beta2-clusterqueue", "kueue.x-k8s.io", "v1beta2", "clusterqueues") +
		hook("mresourceflavor.kb.io", "/mutate-kueue-x-k8s-io-v1beta2-resourceflavor", "kueue.x-k8s.io", "v1beta2", "resourceflavors") +
		hook("mworkload.kb.io", "/mutate-kueue-x-k8s-io-v1beta2-workload", "kueue.x-k8s.io", "v1beta2", "workloads"))
	definitions := dynamic.NewForConfigOrDie(w.cluster.Config(local.Admin)).Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	for _, name := range []string{"localqueues", "clusterqueues", "cohorts", "workloads", "multikueueclusters"} {
		patch, err := yaml.YAMLToJSON([]byte(`{spec: {conversion: {strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: ` + service("/convert") + `}}}}`))
		if err != nil {
			w.t.Fatal(err)
		}
		if _, err := definitions.Patch(w.t.Context(), name+".kueue.x-k8s.io", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			w.t.Fatal(err)
		}
	}

	dir := w.t.TempDir()
	config := fmt.Sprintf(`{"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", "leaderElection": {"leaderElect": false},
		"webhook": {"host": "127.0.0.1", "port": %d, "certDir": %q}, "metrics": {"bindAddress": "0"}, "health": {"healthProbeBindAddress": "127.0.0.1:0"},
		"featureGates": {"VisibilityOnDemand": false}, "integrations": {"frameworks": ["batch/job", "pod"]}}`, ports[0], dir)
	if err := os.WriteFile(filepath.Join(dir, "config.yaml"), []byte(config), 0o600); err != nil {
		w.t.Fatal(err)
	}
	w.controller("kueue", "--config="+filepath.Join(dir, "config.yaml"))
	localtest.Wait(w.t, patience, "the certificates of Kueue's webhooks", func(ctx context.Context) error { // mounts them, as a kubelet does
		secret, err := w.kube.Core.CoreV1().Secrets("kueue-system").Get(ctx, "kueue-webhook-server-cert", metav1.GetOptions{})
		if err != nil || len(secret.Data) == 0 {
			return fmt.Errorf("%v, %d bytes", err, len(secret.Data))
		}
		for _, name := range []string{"tls.key", "ca.crt", "tls.crt"} {
			err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), secret.Data[name], 0o600))
		}
		return err
	})
}
