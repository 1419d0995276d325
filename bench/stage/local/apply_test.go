package local_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/localtest"
)

// After Install the shards' user has the rights of deploy/ and no more, and the CRDs are served. It can be repeated.
func TestInstall(t *testing.T) {
	c := localtest.Shared(t)
	ctx := t.Context()
	for range 2 {
		if err := c.Install(ctx); err != nil {
			t.Fatal(err)
		}
	}
	client, err := dynamic.NewForConfig(c.Config(local.Shard))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []schema.GroupVersionResource{
		{Version: "v1", Resource: "nodes"}, {Group: "scheduling.basalt.dev", Version: "v1beta1", Resource: "queues"},
	} {
		localtest.Wait(t, time.Minute, "a shard to list "+r.Resource, func(ctx context.Context) error {
			_, err := client.Resource(r).List(ctx, metav1.ListOptions{})
			return err
		})
	}
	if _, err := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "secrets"}).List(ctx, metav1.ListOptions{}); err == nil {
		t.Error("a shard can list secrets")
	}
}

// The objects come in an order that the API server can take, whatever the files are called, and errors name the object.
func TestApplyOrderAndErrors(t *testing.T) {
	c := localtest.Shared(t)
	dir := t.TempDir()
	write := func(name, content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("a.yaml", "# first\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: in-it, namespace: apply-order}\n")
	write("b.yaml", "apiVersion: v1\nkind: Namespace\nmetadata: {name: apply-order}\n")
	write("notes.txt", "not yaml: [")
	if err := local.Apply(t.Context(), c.Config(local.Admin), dir, nil); err != nil {
		t.Fatal(err)
	}
	_, err := client(t, c, local.Admin).CoreV1().ConfigMaps("apply-order").Get(t.Context(), "in-it", metav1.GetOptions{})
	if err != nil {
		t.Error(err)
	}
	write("c.yaml", "apiVersion: v1\nkind: Service\nmetadata: {name: wrong, namespace: apply-order}\nspec: {ports: [{port: 0}]}\n")
	err = local.Apply(t.Context(), c.Config(local.Admin), dir, nil)
	if err == nil || !strings.Contains(err.Error(), "apply Service wrong") || !strings.Contains(err.Error(), "spec.ports[0].port") {
		t.Errorf("error %v", err)
	}
}
