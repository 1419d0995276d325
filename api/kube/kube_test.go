package kube_test

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/localtest"
)

func TestMain(m *testing.M) { localtest.Run(m) }

func connect(t *testing.T) *kube.Clients {
	t.Helper()
	c, err := kube.ConnectConfig(localtest.Shared(t).Config(local.Admin), "basalt-test")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func makePod(t *testing.T, c *kube.Clients, name string) *v1.Pod {
	t.Helper()
	pod, err := c.Core.CoreV1().Pods("default").Create(t.Context(), &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1.PodSpec{SchedulerName: api.SchedulerName, Containers: []v1.Container{{Name: "c", Image: "none"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

func removePod(t *testing.T, c *kube.Clients, name string) {
	t.Helper()
	var now int64
	if err := c.Core.CoreV1().Pods("default").Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		t.Fatal(err)
	}
}

func name(p *v1.Pod) kube.Pod {
	return kube.Pod{Namespace: p.Namespace, Name: p.Name, UID: string(p.UID)}
}

// What a Binding may do, and what resolving finds: facts of the API server that the protocol stands on.
func TestBindingsAndResolving(t *testing.T) {
	c := connect(t)
	ctx := t.Context()

	t.Run("a stale version is refused, and resolving finds the pod free", func(t *testing.T) {
		pod := makePod(t, c, "stale")
		found, err := c.Resolve(ctx, name(pod), pod.ResourceVersion, "one")
		if err != nil || found != (kube.Resolution{Version: found.Version}) || found.Version == pod.ResourceVersion {
			t.Fatalf("Resolve = %+v, %v; the pod was made as version %s", found, err, pod.ResourceVersion)
		}
		if err := c.Bind(ctx, name(pod), pod.ResourceVersion, "n1", nil, nil); !apierrors.IsConflict(err) {
			t.Fatalf("a Binding of the version before the resolving: %v", err)
		}
		before := found.Version
		if found, err = c.Resolve(ctx, name(pod), before, "one"); err == nil {
			t.Fatalf("Resolve with a value that was used before = %+v", found)
		}
		if found, err = c.Resolve(ctx, name(pod), before, "two"); err != nil || found != (kube.Resolution{Version: found.Version}) || found.Version == before {
			t.Fatalf("Resolve = %+v, %v", found, err)
		}
		if again, err := c.Resolve(ctx, name(pod), before, "three"); err != nil || again != found {
			t.Fatalf("Resolve of a version that is over = %+v, %v, want %+v: nothing has to be written", again, err, found)
		}
		if err := c.Bind(ctx, name(pod), found.Version, "n1", nil, nil); err != nil {
			t.Fatalf("a Binding of the version that resolving made: %v", err)
		}
	})
	t.Run("a Binding that landed is found, with its labels", func(t *testing.T) {
		pod := makePod(t, c, "landed")
		labels := map[string]string{api.LabelGang: "0007"}
		if err := c.Bind(ctx, name(pod), pod.ResourceVersion, "n1", labels, nil); err != nil {
			t.Fatal(err)
		}
		if err := c.Bind(ctx, name(pod), pod.ResourceVersion, "n2", nil, nil); !apierrors.IsConflict(err) {
			t.Fatalf("a second Binding: %v", err)
		}
		found, err := c.Resolve(ctx, name(pod), pod.ResourceVersion, "x")
		if err != nil || found.Node != "n1" {
			t.Fatalf("Resolve = %+v, %v", found, err)
		}
		got, err := c.Core.CoreV1().Pods("default").Get(ctx, "landed", metav1.GetOptions{})
		if err != nil || got.Labels[api.LabelGang] != "0007" {
			t.Fatalf("labels %v, %v", got.Labels, err)
		}
	})
	t.Run("a pod whose annotations are at the limit can be resolved", func(t *testing.T) {
		pod := makePod(t, c, "full")
		const limit = 256 << 10 // of Kubernetes, keys and values together
		patch := func(bytes int) error {
			body := fmt.Sprintf(`{"metadata":{"annotations":{"a":%q}}}`, strings.Repeat("x", bytes-1))
			got, err := c.Core.CoreV1().Pods("default").Patch(ctx, "full", types.MergePatchType, []byte(body), metav1.PatchOptions{})
			if err == nil {
				pod = got
			}
			return err
		}
		if err := patch(limit); err != nil {
			t.Fatal(err)
		}
		if err := patch(limit + 1); !apierrors.IsInvalid(err) {
			t.Fatalf("one byte more: %v", err)
		}
		found, err := c.Resolve(ctx, name(pod), pod.ResourceVersion, "one")
		if err != nil || found.Node != "" || found.Version == pod.ResourceVersion {
			t.Fatalf("Resolve = %+v, %v", found, err)
		}
	})
	t.Run("a pod that is edited all the time can be resolved", func(t *testing.T) {
		pod := makePod(t, c, "edited")
		ctx, cancel := context.WithCancel(ctx)
		var wg sync.WaitGroup
		defer wg.Wait()
		defer cancel()
		for editor := range 4 {
			wg.Go(func() {
				for i := 0; ctx.Err() == nil; i++ {
					body := fmt.Sprintf(`{"metadata":{"labels":{"e%d":"%d"}}}`, editor, i)
					_, _ = c.Core.CoreV1().Pods("default").Patch(ctx, "edited", types.MergePatchType, []byte(body), metav1.PatchOptions{})
				}
			})
		}
		version := pod.ResourceVersion
		for i := range 20 {
			found, err := c.Resolve(ctx, name(pod), version, fmt.Sprint(i))
			if err != nil || found.Gone || found.Node != "" || found.Version == version {
				t.Fatalf("try %d: Resolve = %+v, %v", i, found, err)
			}
			if err := c.Bind(ctx, name(pod), version, "n1", nil, nil); !apierrors.IsConflict(err) {
				t.Fatalf("try %d: a Binding of the version before the resolving: %v", i, err)
			}
			version = found.Version
		}
	})
	t.Run("nothing meant for a pod touches its namesake", func(t *testing.T) {
		old := makePod(t, c, "again")
		removePod(t, c, "again")
		if found, err := c.Resolve(ctx, name(old), old.ResourceVersion, "x"); err != nil || !found.Gone {
			t.Fatalf("Resolve of a deleted pod = %+v, %v", found, err)
		}
		pod := makePod(t, c, "again")
		if err := c.Bind(ctx, name(old), "", "n1", nil, nil); err == nil {
			t.Fatal("the namesake was bound")
		}
		if found, err := c.Resolve(ctx, name(old), old.ResourceVersion, "x"); err != nil || !found.Gone {
			t.Fatalf("Resolve of the old pod = %+v, %v", found, err)
		}
		if err := c.Evict(ctx, name(old), "test"); err != nil {
			t.Fatalf("Evict of the old pod: %v", err)
		}
		if _, err := c.ExplainPod(ctx, name(old), pod.ResourceVersion, "Unschedulable", "x"); err == nil {
			t.Fatal("the namesake was explained")
		}
		got, err := c.Core.CoreV1().Pods("default").Get(ctx, "again", metav1.GetOptions{})
		if err != nil || got.ResourceVersion != pod.ResourceVersion {
			t.Fatalf("the namesake changed: %v", err)
		}
	})
	t.Run("explaining names the version, and says the next", func(t *testing.T) {
		pod := makePod(t, c, "explained")
		next, err := c.ExplainPod(ctx, name(pod), pod.ResourceVersion, "Unschedulable", "no room")
		if err != nil || next == pod.ResourceVersion {
			t.Fatalf("ExplainPod = %q, %v", next, err)
		}
		if _, err := c.ExplainPod(ctx, name(pod), pod.ResourceVersion, "Unschedulable", "again"); !apierrors.IsConflict(err) {
			t.Fatalf("explaining an old version: %v", err)
		}
		if err := c.Bind(ctx, name(pod), next, "n1", nil, nil); err != nil {
			t.Fatalf("a Binding of the version that explaining returned: %v", err)
		}
	})
	t.Run("eviction marks, then deletes", func(t *testing.T) {
		pod := makePod(t, c, "evicted")
		if err := c.Evict(ctx, name(pod), "rolled back"); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Core.CoreV1().Pods("default").Get(ctx, "evicted", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Fatalf("the pod is still there: %v", err)
		}
	})
}

// heard is what a Follower of pods has told.
type heard struct {
	mu      sync.Mutex
	present map[types.UID]string // names
	ticket  kube.Ticket
	lists   int
}

func newHeard() *heard { return &heard{present: map[types.UID]string{}} }

func (h *heard) handler() kube.Handler[*v1.Pod] {
	return kube.Handler[*v1.Pod]{
		Replaced: func(list []*v1.Pod, n kube.Ticket) {
			h.mu.Lock()
			defer h.mu.Unlock()
			clear(h.present)
			for _, p := range list {
				h.present[p.UID] = p.Name
			}
			h.ticket = n
			h.lists++
		},
		Seen: func(p *v1.Pod) { h.mu.Lock(); defer h.mu.Unlock(); h.present[p.UID] = p.Name },
		Gone: func(p *v1.Pod) { h.mu.Lock(); defer h.mu.Unlock(); delete(h.present, p.UID) },
	}
}

// run follows until the test ends, and returns after the first list.
func (h *heard) run(t *testing.T, f *kube.Follower[*v1.Pod]) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { f.Run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	<-f.Synced()
}

// wait waits for the answer to a Relist, and judges what is present by then.
func (h *heard) wait(t *testing.T, what string, want kube.Ticket, judge func(present map[types.UID]string)) {
	t.Helper()
	localtest.Wait(t, 30*time.Second, what, func(context.Context) error {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.ticket < want {
			return context.DeadlineExceeded
		}
		judge(h.present)
		return nil
	})
}

func (h *heard) remove(t *testing.T, c *kube.Clients, pod *v1.Pod) {
	t.Helper()
	removePod(t, c, pod.Name)
	localtest.Wait(t, 30*time.Second, "the deletion", func(context.Context) error {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.present[pod.UID] != "" {
			return context.DeadlineExceeded
		}
		return nil
	})
}

// A Follower sees every object, and a list that was asked for begins after it was asked for.
func TestFollowerListsWhenAsked(t *testing.T) {
	c, h := connect(t), newHeard()
	f := kube.Follow(c.Core.CoreV1().RESTClient(), "pods", slog.New(slog.DiscardHandler), h.handler())
	h.run(t, f)
	for i := range 20 {
		pod := makePod(t, c, "listed-"+strconv.Itoa(i))
		want := f.Relist()
		h.wait(t, "the list that was asked for", want, func(present map[types.UID]string) {
			if present[pod.UID] == "" {
				t.Fatalf("list %d was begun after %s was created and lacks it", want, pod.Name)
			}
		})
		if i%2 == 0 {
			h.remove(t, c, pod)
		}
	}
}

// A Follower that catches up makes one list, and says only what is true: at Current it has shown what was there when Relist
// was called, and shows what comes later.
func TestFollowerCatchesUp(t *testing.T) {
	c, h := connect(t), newHeard()
	handler := h.handler()
	handler.Current = func(n kube.Ticket) { h.mu.Lock(); defer h.mu.Unlock(); h.ticket = n }
	f := kube.Follow(c.Core.CoreV1().RESTClient(), "pods", slog.New(slog.DiscardHandler), handler)
	f.CatchUpAlways()
	h.run(t, f)
	var gone *v1.Pod
	for i := range 6 {
		pod := makePod(t, c, "caught-"+strconv.Itoa(i))
		if gone != nil {
			removePod(t, c, gone.Name)
		}
		if i >= 4 { // the newest version is not one of a pod: only a bookmark says that there is nothing more
			other := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "other-"}}
			if _, err := c.Core.CoreV1().ConfigMaps("default").Create(t.Context(), other, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		want := f.Relist()
		h.wait(t, "the watch to catch up", want, func(present map[types.UID]string) {
			if present[pod.UID] == "" {
				t.Fatalf("caught up with %d without %s, which was created before it was asked", want, pod.Name)
			}
			if gone != nil && present[gone.UID] != "" {
				t.Fatalf("caught up with %d, and %s is there, which was deleted before it was asked", want, gone.Name)
			}
		})
		gone = pod
		if i%2 == 0 {
			gone = nil
			h.remove(t, c, pod)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lists != 1 {
		t.Errorf("%d lists were made", h.lists)
	}
}
