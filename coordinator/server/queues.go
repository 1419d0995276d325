package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/coordinator"
	"basalt.dev/basalt/coordinator/effect"
)

// roster remembers the objects of a kind, so that a new list tells which are gone.
type roster[T metav1.Object] map[types.UID]T

// replace takes a new list and returns what it does not name any more. It is linear in both.
func (r roster[T]) replace(list []T) (gone []T) {
	listed := make(map[types.UID]bool, len(list))
	for _, o := range list {
		listed[o.GetUID()] = true
	}
	for uid, o := range r {
		if !listed[uid] {
			gone = append(gone, o)
			delete(r, uid)
		}
	}
	for _, o := range list {
		r[o.GetUID()] = o
	}
	return gone
}

// follow turns the objects of a kind into events, until ctx ends.
func follow[T interface {
	metav1.Object
	runtime.Object
}](t *term, ctx context.Context, client rest.Interface, resource string, strip func(T) T, seen, gone func(T) coordinator.Event, synced coordinator.Event) {
	known := roster[T]{}
	first := true
	unreadable := map[types.UID]error{} // of which only the metadata could be read, until they are handed on
	post := func(o T, listed bool) {    // kube.Follow makes only consistent lists
		ev := seen(o)
		if q, ok := ev.(coordinator.QueueSeen); ok {
			q.Listed = listed
			if err := unreadable[o.GetUID()]; err != nil { // the limits in force stay
				q.Invalid = "spec: " + err.Error()
			}
			ev = q
		}
		delete(unreadable, o.GetUID())
		t.post(ctx, ev)
	}
	f := kube.Follow(client, resource, t.log, kube.Handler[T]{
		Replaced: func(list []T, _ kube.Ticket) {
			for _, o := range known.replace(list) {
				t.post(ctx, gone(o))
			}
			for _, o := range list {
				post(o, true)
			}
			if first {
				first = false
				t.post(ctx, synced)
			}
		},
		Seen: func(o T) {
			known[o.GetUID()] = o
			post(o, false)
		},
		Gone: func(o T) {
			delete(known, o.GetUID())
			t.post(ctx, gone(o))
		},
		Unreadable: func(o T, err error) (T, bool) {
			unreadable[o.GetUID()] = err
			return o, true
		},
	})
	f.Strip(strip)
	f.Run(ctx)
}

// followQueues turns Queues into events, until ctx ends.
func (t *term) followQueues(ctx context.Context) {
	follow(t, ctx, t.clients.Basalt, "queues", func(q *v1beta1.Queue) *v1beta1.Queue { return q },
		func(q *v1beta1.Queue) coordinator.Event { return effect.QueueSeen(q) },
		func(q *v1beta1.Queue) coordinator.Event {
			return coordinator.QueueGone{Name: q.Name, UID: string(q.UID)}
		},
		coordinator.QueuesSynced{})
}

// followNamespaces turns namespaces into events, until ctx ends.
func (t *term) followNamespaces(ctx context.Context) {
	follow(t, ctx, t.clients.Core.CoreV1().RESTClient(), "namespaces", stripNamespace,
		func(n *corev1.Namespace) coordinator.Event {
			return coordinator.NamespaceSeen{Name: n.Name, Labels: n.Labels}
		},
		func(n *corev1.Namespace) coordinator.Event { return coordinator.NamespaceGone{Name: n.Name} },
		coordinator.NamespacesSynced{})
}

// stripNamespace keeps the labels: a selector looks at nothing else.
func stripNamespace(n *corev1.Namespace) *corev1.Namespace {
	out := &corev1.Namespace{ObjectMeta: api.StripMeta(&n.ObjectMeta)}
	out.Labels = n.Labels
	return out
}

// setFinalizer adds or removes our finalizer on the Queue with this UID. The patch replaces the whole list of finalizers, which others edit,
// too. So it names the list that it was made from, and not a version of the object: whoever edits something else all the time is not in the way.
func setFinalizer(ctx context.Context, c *kube.Clients, name, uid string, want bool) error {
	for try := 0; ; try++ {
		var q metav1.PartialObjectMetadata // the rest of the object may be unreadable
		raw, err := c.Basalt.Get().Resource("queues").Name(name).Do(ctx).Raw()
		if err == nil {
			err = json.Unmarshal(raw, &q)
		}
		if apierrors.IsNotFound(err) || err == nil && string(q.UID) != uid {
			return nil
		}
		if err != nil {
			return fmt.Errorf("set finalizer of queue %s: %w", name, err)
		}
		if slices.Contains(q.Finalizers, v1beta1.FinalizerCharged) == want {
			return nil
		}
		finalizers := slices.DeleteFunc(slices.Clone(q.Finalizers), func(f string) bool { return f == v1beta1.FinalizerCharged })
		if want {
			finalizers = append(finalizers, v1beta1.FinalizerCharged)
		}
		patch, err := json.Marshal([]map[string]any{
			{"op": "test", "path": "/metadata/uid", "value": uid},
			{"op": "test", "path": "/metadata/finalizers", "value": q.Finalizers},
			{"op": "add", "path": "/metadata/finalizers", "value": finalizers}})
		if err != nil {
			return err
		}
		err = c.Basalt.Patch(types.JSONPatchType).Resource("queues").Name(name).Body(patch).Do(ctx).Error()
		if err == nil || apierrors.IsNotFound(err) {
			return nil
		}
		if !apierrors.IsConflict(err) && !apierrors.IsInvalid(err) || try == 5 { // invalid: a test failed
			return fmt.Errorf("set finalizer of queue %s: %w", name, err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// createQueue makes an empty Queue; that it exists by now is fine.
func createQueue(ctx context.Context, c *kube.Clients, name string) error {
	q := &v1beta1.Queue{TypeMeta: metav1.TypeMeta{APIVersion: v1beta1.SchemeGroupVersion.String(), Kind: "Queue"}, ObjectMeta: metav1.ObjectMeta{Name: name}}
	err := c.Basalt.Post().Resource("queues").Body(q).Do(ctx).Error()
	if err != nil && !apierrors.IsAlreadyExists(err) && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("create queue %s: %w", name, err)
	}
	return nil
}
