//go:build doors

package standing

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/localtest"
	"basalt.dev/basalt/bench/stage/programs"
)

// TestVolcanoControllers: with Volcano's controllers, jobs as Volcano's users write them run to their end.
func TestVolcanoControllers(t *testing.T) {
	localtest.Programs(t, "basalt", local.VolcanoControllers)
	t.Setenv(programs.Built, os.Getenv(programs.Built)+" basalt "+local.VolcanoControllers) // this root has no sources
	root := repository(t)
	s, said := up(t, root, Shape{Shards: 2, Coordinators: 1, Volcano: true})
	example := filepath.Join(root, "deploy", "examples", "volcano")
	if !strings.Contains(said, "Volcano's controllers run") || !strings.Contains(said, example) {
		t.Errorf("up does not mention Volcano, or an example:\n%s", said)
	}
	config, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if err := local.Apply(t.Context(), config, example, nil); err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	jobs := client.Resource(schema.GroupVersionResource{Group: "batch.volcano.sh", Version: "v1alpha1", Resource: "jobs"}).
		Namespace(metav1.NamespaceDefault)
	bare := &unstructured.Unstructured{Object: map[string]any{ // it gets all that Volcano's webhooks would add
		"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job",
		"metadata": map[string]any{"name": "bare"},
		"spec": map[string]any{"tasks": []any{map[string]any{"replicas": int64(2), "template": map[string]any{
			"spec": map[string]any{"restartPolicy": "Never", "containers": []any{map[string]any{
				"name": "c", "image": "none", "command": []any{"sleep", "1"},
			}}},
		}}}},
	}}
	if _, err := jobs.Create(t.Context(), bare, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	ends := func(name, want string) {
		t.Helper()
		localtest.Wait(t, 3*time.Minute, "job "+name+" to be "+want, func(ctx context.Context) error {
			j, err := jobs.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			phase, _, _ := unstructured.NestedString(j.Object, "status", "state", "phase")
			if phase != want {
				return fmt.Errorf("%q: %v", phase, j.Object["status"])
			}
			return nil
		})
	}
	ends("bare", "Completed")
	ends("train", "Completed") // after a minute, as it says
}
