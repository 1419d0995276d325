package server

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/bench/prove/growth"
	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/localtest"
	"basalt.dev/basalt/coordinator"
)

func TestMain(m *testing.M) { localtest.Run(m) }

// A new list of as many queues as an API server may hold is compared with the old one in a moment.
func TestNewListIsComparedInLinearTime(t *testing.T) {
	const queues = 64_000
	list := func(from, to int) (out []*v1beta1.Queue) {
		for i := from; i < to; i++ {
			name := strconv.Itoa(i)
			out = append(out, &v1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}})
		}
		return out
	}
	var r roster[*v1beta1.Queue] // of the last one
	var gone []*v1beta1.Queue
	growth.Linear(t, queues, func(queues int) func() {
		compared := roster[*v1beta1.Queue]{}
		if gone := compared.replace(list(0, queues)); len(gone) != 0 {
			t.Fatalf("%d are gone of none", len(gone))
		}
		newer := list(3, queues+2)
		return func() { r, gone = compared, compared.replace(newer) }
	})
	var names []string
	for _, q := range gone {
		names = append(names, q.Name)
	}
	slices.Sort(names)
	if !slices.Equal(names, []string{"0", "1", "2"}) || len(r) != queues-1 {
		t.Errorf("gone: %v, %d are left", names, len(r))
	}
	// One of the same name is another.
	renewed := list(3, 4)
	renewed[0].UID = "another"
	if gone := r.replace(renewed); len(gone) != queues-1 || len(r) != 1 {
		t.Errorf("%d are gone, %d are left", len(gone), len(r))
	}
}

// Finalizers of others stay, edits of others are not lost, and a namesake is left alone.
func TestFinalizersAreSetBesideOthers(t *testing.T) {
	ctx := t.Context()
	cluster := localtest.Shared(t)
	admin, err := kube.ConnectConfig(cluster.Config(local.Admin), "test")
	if err != nil {
		t.Fatal(err)
	}
	ours, err := kube.ConnectConfig(cluster.Config(local.Coordinator), "test") // with the coordinator's rights only
	if err != nil {
		t.Fatal(err)
	}
	get := func() *v1beta1.Queue {
		t.Helper()
		var q v1beta1.Queue
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
	err = setFinalizer(ctx, ours, "team", uid, true)
	if wg.Wait(); err != nil {
		t.Fatal(err)
	}
	q := get()
	if !slices.Contains(q.Finalizers, v1beta1.FinalizerCharged) || !slices.Contains(q.Finalizers, "example.com/theirs") || len(q.Annotations["edit"]) != 20 {
		t.Fatalf("finalizers %v, annotations %v", q.Finalizers, q.Annotations)
	}
	if err := setFinalizer(ctx, ours, "team", "another-uid", false); err != nil {
		t.Fatal(err)
	}
	if q := get(); !slices.Contains(q.Finalizers, v1beta1.FinalizerCharged) {
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
	if err := admin.Basalt.Patch(types.MergePatchType).Resource("queues").Name("team").Body([]byte(`{"metadata":{"finalizers":null}}`)).Do(ctx).Error(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []bool{true, false} { // a queue that nobody else holds
		if err := setFinalizer(ctx, ours, "team", uid, want); err != nil {
			t.Fatal(err)
		}
		if q := get(); slices.Contains(q.Finalizers, v1beta1.FinalizerCharged) != want {
			t.Fatalf("finalizers %v, ours: %t", q.Finalizers, want)
		}
	}
}

// With the coordinator's rights, namespaces are heard of: first all, then each change of their labels.
func TestNamespacesAreFollowed(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cluster := localtest.Shared(t)
	admin, err := kube.ConnectConfig(cluster.Config(local.Admin), "test")
	if err != nil {
		t.Fatal(err)
	}
	ours, err := kube.ConnectConfig(cluster.Config(local.Coordinator), "test")
	if err != nil {
		t.Fatal(err)
	}
	namespaces := admin.Core.CoreV1().Namespaces()
	if _, err := namespaces.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "early", Labels: map[string]string{"team": "x"}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	m := &term{clients: ours, log: slog.New(slog.DiscardHandler), inbox: make(chan item, 1000), done: ctx.Done()}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { m.followNamespaces(ctx) })
	await := func(what string, is func(coordinator.Event) bool) {
		t.Helper()
		for {
			select {
			case i := <-m.inbox:
				if is(i.event) {
					return
				}
			case <-ctx.Done():
				t.Fatalf("waited for %s", what)
			}
		}
	}
	seen := func(name, team string) func(coordinator.Event) bool {
		return func(ev coordinator.Event) bool {
			n, is := ev.(coordinator.NamespaceSeen)
			return is && n.Name == name && n.Labels["team"] == team && n.Labels[corev1.LabelMetadataName] == name
		}
	}
	before := true
	await("the first list", func(ev coordinator.Event) bool {
		if seen("early", "x")(ev) {
			before = false
		}
		return ev == coordinator.NamespacesSynced{}
	})
	if before {
		t.Error("all are said to be known before one of them was told")
	}
	patch := []byte(`{"metadata":{"labels":{"team":"y"},"annotations":{"large":"` + strings.Repeat("x", 10000) + `"}}}`)
	if _, err := namespaces.Patch(ctx, "early", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	await("another label", seen("early", "y"))
	if _, err := namespaces.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "late"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	await("a new namespace", seen("late", ""))
}

// Nothing is kept of a namespace but who it is and its labels.
func TestNamespacesAreStripped(t *testing.T) {
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u", Labels: map[string]string{"team": "x"}, Annotations: map[string]string{"large": "x"}}}
	s := stripNamespace(n)
	if s.Name != "n" || s.UID != "u" || s.Labels["team"] != "x" || s.Annotations != nil {
		t.Errorf("kept: %+v", s.ObjectMeta)
	}
}
