//go:build doors

package doors

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/bench/stage/kubelet"
	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/localtest"
)

// TestLeaderWorkerSetController: the groups of a LeaderWorkerSet start whole or not at all, with its own controller and its webhook, which
// writes on each pod the group and its size. There are no PodGroups.
func TestLeaderWorkerSetController(t *testing.T) {
	w := install(t, local.Options{ControllerManager: true})
	if err := local.Programs(t.Context(), w.cluster.Root(), os.Stderr, "lws-controller"); err != nil {
		t.Fatal(err)
	}
	if err := w.cluster.DefineLeaderWorkerSet(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.start()
	go func() { _ = kubelet.Run(t.Context(), kubelet.Options{Client: w.kube.Core}) }()
	found := w.audit()
	w.queue("team", "7")
	sets := dynamic.NewForConfigOrDie(w.cluster.Config(local.Admin)).Resource(schema.GroupVersionResource{Group: "leaderworkerset.x-k8s.io", Version: "v1", Resource: "leaderworkersets"}).Namespace("default")
	w.leaderWorkerSetController()
	localtest.Wait(t, patience, "the webhooks to answer", func(ctx context.Context) error {
		_, err := sets.Create(ctx, leaderWorkerSet("dry"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	})

	// Two groups of a leader and two workers, of two CPUs each, do not fit into the queue: one of them waits whole. A shard dies.
	if _, err := sets.Create(t.Context(), leaderWorkerSet("serve"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	group := func(i int) string {
		return fmt.Sprintf("leaderworkerset.sigs.k8s.io/name=serve,leaderworkerset.sigs.k8s.io/group-index=%d", i)
	}
	w.eachHas(3, group(0), group(1))
	w.charged("team", map[string]string{"cpu": "6", "pods": "3"})
	_, bound, err := w.countBy(t.Context(), group(0))
	if err != nil {
		t.Fatal(err)
	}
	waiting := group(0)
	if bound > 0 {
		waiting = group(1)
	}
	w.waits(w.podBy(waiting), "QuotaExceeded", `queue "team"`)
	w.all[1].Kill()
	w.allWait(waiting, 3)
	raised := []byte(`{"spec":{"capability":{"cpu":"12"}}}`)
	if err := w.kube.Basalt.Patch(types.MergePatchType).Resource("queues").Name("team").Body(raised).Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
	w.allRun(group(0), 3)
	w.allRun(group(1), 3)
	w.charged("team", map[string]string{"cpu": "12", "pods": "6"})

	// A leader is deleted: its group is made again, and takes the place of the former one.
	before := w.uidsBy(group(0))
	if err := w.kube.Core.CoreV1().Pods("default").Delete(t.Context(), "serve-0", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	localtest.Wait(t, patience, "new pods of the group", func(context.Context) error {
		for uid := range w.uidsBy(group(0)) {
			if before[uid] {
				return fmt.Errorf("%s is still there", uid)
			}
		}
		return nil
	})
	w.allRun(group(0), 3)
	w.charged("team", map[string]string{"cpu": "12", "pods": "6"})
	found()
}

// eachHas waits until there are so many pods with each of these labels.
func (w *world) eachHas(pods int, selectors ...string) {
	w.t.Helper()
	for _, selector := range selectors {
		localtest.Wait(w.t, patience, fmt.Sprintf("%d pods with %s", pods, selector), func(ctx context.Context) error {
			has, _, err := w.countBy(ctx, selector)
			if err == nil && has != pods {
				err = fmt.Errorf("%d pods", has)
			}
			return err
		})
	}
}

// leaderWorkerSetController starts LeaderWorkerSet's controller, and has the API server call the webhooks that fill in its objects.
func (w *world) leaderWorkerSetController() {
	w.t.Helper()
	dir, port := w.webhookServer()
	config := fmt.Sprintf(`{"apiVersion": "config.lws.x-k8s.io/v1alpha1", "kind": "Configuration", "leaderElection": {"leaderElect": false},
		"internalCertManagement": {"enable": false}, "webhook": {"host": "127.0.0.1", "port": %d, "certDir": %q},
		"metrics": {"bindAddress": "127.0.0.1:0"}, "health": {"healthProbeBindAddress": "127.0.0.1:0"}}`, port, dir)
	if err := os.WriteFile(filepath.Join(dir, "config.yaml"), []byte(config), 0o600); err != nil {
		w.t.Fatal(err)
	}
	w.controller("lws-controller", "--config="+filepath.Join(dir, "config.yaml"))
	ca, err := os.ReadFile(filepath.Join(w.cluster.Dir(), "ca.crt"))
	if err != nil {
		w.t.Fatal(err)
	}
	hook := func(name, path, group, resource string) string {
		return fmt.Sprintf(`{name: %s, admissionReviewVersions: [v1], sideEffects: None, failurePolicy: Fail, clientConfig: {url: "https://127.0.0.1:%d%s", caBundle: %s},
  rules: [{apiGroups: [%q], apiVersions: [v1], operations: [CREATE], resources: [%s]}]}`, name, port, path, base64.StdEncoding.EncodeToString(ca), group, resource)
	}
	w.apply(`
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: lws}
webhooks:
- ` + hook("mleaderworkerset.kb.io", "/mutate-leaderworkerset-x-k8s-io-v1-leaderworkerset", "leaderworkerset.x-k8s.io", "leaderworkersets") + `
- ` + hook("mpod.kb.io", "/mutate--v1-pod", "", "pods"))
}

// leaderWorkerSet is one of two groups of a leader and two workers.
func leaderWorkerSet(name string) *unstructured.Unstructured {
	type m = map[string]any
	pod := m{"metadata": m{"labels": m{api.LabelQueue: "team"}, "annotations": m{kubelet.RunSeconds: "600"}},
		"spec": m{"schedulerName": api.SchedulerName, "containers": []any{m{"name": "c", "image": "none", "resources": m{"requests": m{"cpu": "2"}}}}}}
	return &unstructured.Unstructured{Object: m{"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "metadata": m{"name": name}, "spec": m{
		"replicas": int64(2), "startupPolicy": "LeaderCreated", "leaderWorkerTemplate": m{"size": int64(3), "restartPolicy": "RecreateGroupOnPodRestart", "workerTemplate": pod}}}}
}
