package deploy_test

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"

	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/localtest"
	"basalt.dev/basalt/deploy/install"
)

// likeGKE has an API server ask for a quota for critical pods, as GKE's does.
const likeGKE = `
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: ResourceQuota
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: ResourceQuotaConfiguration
    limitedResources:
    - resource: pods
      matchScopes:
      - {scopeName: PriorityClass, operator: In, values: [system-cluster-critical, system-node-critical]}
`

// Critical pods are admitted where the cluster wants a quota for them, however Basalt was installed, and under the
// pod security standard of the namespace. It takes 20 seconds for a control plane with admission of its own.
func TestCriticalPodsAreAdmitted(t *testing.T) {
	file := filepath.Join(t.TempDir(), "admission.yaml")
	if err := os.WriteFile(file, []byte(likeGKE), 0o600); err != nil {
		t.Fatal(err)
	}
	c := localtest.Bare(t, local.Options{ControllerManager: true,
		APIServerFlags: []string{"--admission-control-config-file=" + file}})
	admin := must[*kubernetes.Clientset](t)(kubernetes.NewForConfig(c.Config(local.Admin)))
	for in, objects := range map[string][]*unstructured.Unstructured{
		namespace: base(t),
		"batch": append(parse(t, "{apiVersion: v1, kind: Namespace, metadata: {name: batch}}"),
			parse(t, must[string](t)(run(t, "", "helm", "template", "prod", "chart", "--namespace", "batch")))...),
	} {
		apply := func(kinds ...string) {
			t.Helper()
			some := slices.DeleteFunc(slices.Clone(objects), func(o *unstructured.Unstructured) bool {
				return !slices.Contains(kinds, o.GetKind())
			})
			if err := install.Apply(t.Context(), c.Config(local.Admin), some, false); err != nil || len(some) == 0 {
				t.Fatalf("%d of %v, %v", len(some), kinds, err)
			}
		}
		apply("Namespace")
		apply("ServiceAccount")
		all := pods(t, objects)
		create := func(name string) error {
			pod := all[name]
			if name == "basalt-etcd" { // its claim is the StatefulSet's
				pod.Volumes = append(slices.Clone(pod.Volumes), corev1.Volume{Name: "data"})
			}
			_, err := admin.CoreV1().Pods(in).Create(t.Context(),
				&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: pod}, metav1.CreateOptions{})
			return err
		}
		if err := create("basalt-shard"); err == nil || !strings.Contains(err.Error(), "insufficient quota") {
			t.Errorf("%s: a critical pod without a quota: %v", in, err)
		}
		apply("ResourceQuota")
		for _, name := range slices.Sorted(maps.Keys(all)) {
			localtest.Wait(t, time.Minute, name+" in "+in, func(context.Context) error { return create(name) })
		}
	}
}
