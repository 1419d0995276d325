package process

import (
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/api/v1alpha1"
	"basalt.dev/basalt/bench/local"
	"basalt.dev/basalt/bench/local/localtest"
)

func TestMain(m *testing.M) { localtest.Run(m) }

// The API server refuses all of these; objects may be older than its rules.
func TestQueueSeenNamesWhatCannotBeRead(t *testing.T) {
	list := func(name, amount string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceName(name): resource.MustParse(amount)}
	}
	for _, c := range []struct {
		name, queue string
		spec        v1alpha1.QueueSpec
		says        string // "" for nothing
	}{
		{"fine", "a.b", v1alpha1.QueueSpec{Capability: list("cpu", "2")}, ""},
		{"no path", "A", v1alpha1.QueueSpec{}, `"A"`},
		{"negative", "a", v1alpha1.QueueSpec{Capability: list("cpu", "-1")}, "spec.capability: cpu"},
		{"zero", "a", v1alpha1.QueueSpec{Guarantee: list("memory", "0")}, "spec.guarantee: memory"},
		{"too large", "a", v1alpha1.QueueSpec{Capability: list("cpu", "9E")}, "spec.capability: cpu"},
		{"absurd", "a", v1alpha1.QueueSpec{Capability: list("memory", "1e400")}, "spec.capability: memory"},
		{"half a device", "a", v1alpha1.QueueSpec{Capability: list("nvidia.com/gpu", "0.5")}, "spec.capability: nvidia.com/gpu"},
	} {
		ev := queueSeen(&v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Name: c.queue}, Spec: c.spec})
		if (ev.Invalid == "") != (c.says == "") || !strings.Contains(ev.Invalid, c.says) {
			t.Errorf("%s: invalid %q, want %q in it", c.name, ev.Invalid, c.says)
		}
	}
}

// Finalizers of others stay, edits of others are not lost, and a namesake is left alone.
func TestFinalizersAreSetBesideOthers(t *testing.T) {
	ctx := t.Context()
	cluster := localtest.Shared(t)
	if err := cluster.Install(ctx); err != nil {
		t.Fatal(err)
	}
	admin, err := kube.ConnectConfig(cluster.Config(local.Admin), "test")
	if err != nil {
		t.Fatal(err)
	}
	ours, err := kube.ConnectConfig(cluster.Config(local.Coordinator), "test") // with the coordinator's rights only
	if err != nil {
		t.Fatal(err)
	}
	get := func() *v1alpha1.Queue {
		t.Helper()
		var q v1alpha1.Queue
		if err := admin.Basalt.Get().Resource("queues").Name("team").Do(ctx).Into(&q); err != nil {
			t.Fatal(err)
		}
		return &q
	}
	for range 2 { // the second time it exists
		if err := createQueue(ctx, ours, "team"); err != nil {
			t.Fatal(err)
		}
	}
	uid := string(get().UID)
	patch := []byte(`{"metadata":{"finalizers":["example.com/theirs"]}}`)
	if err := admin.Basalt.Patch(types.MergePatchType).Resource("queues").Name("team").Body(patch).Do(ctx).Error(); err != nil {
		t.Fatal(err)
	}

	var wg sync.WaitGroup
	wg.Go(func() { // somebody edits all the time
		for i := range 20 {
			body := []byte(`{"metadata":{"annotations":{"edit":"` + strings.Repeat("x", i+1) + `"}}}`)
			if err := admin.Basalt.Patch(types.MergePatchType).Resource("queues").Name("team").Body(body).Do(ctx).Error(); err != nil {
				t.Error(err)
			}
		}
	})
	if err := setFinalizer(ctx, ours, "team", uid, true); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	q := get()
	if !slices.Contains(q.Finalizers, v1alpha1.FinalizerCharged) || !slices.Contains(q.Finalizers, "example.com/theirs") || len(q.Annotations["edit"]) != 20 {
		t.Fatalf("finalizers %v, annotations %v", q.Finalizers, q.Annotations)
	}
	if err := setFinalizer(ctx, ours, "team", "another-uid", false); err != nil {
		t.Fatal(err)
	}
	if q := get(); !slices.Contains(q.Finalizers, v1alpha1.FinalizerCharged) {
		t.Fatal("the finalizer of a namesake was removed")
	}
	if err := setFinalizer(ctx, ours, "team", uid, false); err != nil {
		t.Fatal(err)
	}
	if q := get(); len(q.Finalizers) != 1 || q.Finalizers[0] != "example.com/theirs" {
		t.Fatalf("finalizers %v", q.Finalizers)
	}
	if err := setFinalizer(ctx, ours, "gone", uid, false); err != nil {
		t.Fatalf("a queue that is gone: %v", err)
	}
}
