package process

import (
	"context"
	"log/slog"
	"sync"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/api/v1alpha1"
	"basalt.dev/basalt/shard/event"
)

// watches turns what the API server shows into events.
type watches struct {
	clients  *kube.Clients
	log      *slog.Logger
	ignore   map[string]bool // resources on the ignore list: read once, never changed
	emit     func(event.Event)
	emitPods func([]*api.Pod, kube.Ticket)
	claims   *claims
	pods     *kube.Follower[*corev1.Pod]
}

// run follows everything but pods, and returns once each kind was listed. Pods follow when a takeover asks for them.
func (w *watches) run(ctx, stopping context.Context, wg *sync.WaitGroup) error {
	core, scheduling := w.clients.Core.CoreV1().RESTClient(), w.clients.Core.SchedulingV1().RESTClient()
	w.claims = newClaims(w.ignore, func(p *api.Pod) { w.emit(event.PodSeen{Pod: p}) })

	var synced []<-chan struct{}
	start := func(run func(context.Context), done <-chan struct{}) {
		wg.Go(func() { run(ctx) })
		synced = append(synced, done)
	}
	nodeSeen, nodeGone := w.nodeEvents()
	nodeSeen, nodeGone = w.withStorm(ctx, nodeSeen, nodeGone)
	nodes := follow(w, core, "nodes", objectKey[*corev1.Node], nodeSeen, nodeGone)
	start(nodes.Run, nodes.Synced())
	namespaces := follow(w, core, "namespaces", objectKey[*corev1.Namespace],
		func(n *corev1.Namespace) event.Event {
			return event.NamespaceSeen{Name: n.Name, Queue: n.Labels[api.LabelQueue]}
		},
		func(n *corev1.Namespace) event.Event { return event.NamespaceGone{Name: n.Name} })
	start(namespaces.Run, namespaces.Synced())
	priorities := follow(w, scheduling, "priorityclasses", objectKey[*schedulingv1.PriorityClass],
		func(p *schedulingv1.PriorityClass) event.Event {
			return event.PriorityClassSeen{Name: p.Name, Value: int64(p.Value), Default: p.GlobalDefault}
		},
		func(p *schedulingv1.PriorityClass) event.Event { return event.PriorityClassGone{Name: p.Name} })
	start(priorities.Run, priorities.Synced())
	queues := follow(w, w.clients.Basalt, "queues", objectKey[*v1alpha1.Queue],
		func(q *v1alpha1.Queue) event.Event { return event.QueueSeen{Queue: q} },
		func(q *v1alpha1.Queue) event.Event { return event.QueueGone{Name: q.Name, UID: string(q.UID)} })
	start(queues.Run, queues.Synced())
	groups := follow(w, w.clients.Basalt, "podgroups", objectKey[*v1alpha1.PodGroup],
		func(g *v1alpha1.PodGroup) event.Event { return event.PodGroupSeen{PodGroup: g} },
		func(g *v1alpha1.PodGroup) event.Event {
			return event.PodGroupGone{UID: string(g.UID), Namespace: g.Namespace, Name: g.Name}
		})
	start(groups.Run, groups.Synced())
	volumes := kube.Follow(core, "persistentvolumes", w.log, w.claims.volumes())
	start(volumes.Run, volumes.Synced())
	volumeClaims := kube.Follow(core, "persistentvolumeclaims", w.log, w.claims.claims())
	start(volumeClaims.Run, volumeClaims.Synced())

	w.pods = kube.Follow(core, "pods", w.log, kube.Handler[*corev1.Pod]{
		Replaced: func(list []*corev1.Pod, ticket kube.Ticket) {
			w.claims.replaced(list, func(pods []*api.Pod) { w.emitPods(pods, ticket) })
		},
		Seen: w.claims.seen,
		Gone: func(p *corev1.Pod) {
			w.claims.gone(p)
			w.emit(event.PodGone{UID: string(p.UID), Namespace: p.Namespace, Name: p.Name})
		},
	})
	for _, s := range synced {
		select {
		case <-s:
		case <-stopping.Done():
			return stopping.Err()
		}
	}
	return nil
}

// key tells an object from others, a namesake that was made after it included.
type key struct {
	namespace, name string
	uid             types.UID
}

func objectKey[T metav1.Object](o T) key { return key{o.GetNamespace(), o.GetName(), o.GetUID()} }

// follow makes a follower whose new lists become events too: those that a list lacks are gone.
func follow[T runtime.Object](w *watches, client rest.Interface, resource string, keyOf func(T) key, seen, gone func(T) event.Event) *kube.Follower[T] {
	known := map[key]T{}
	return kube.Follow(client, resource, w.log, kube.Handler[T]{
		Replaced: func(list []T, _ kube.Ticket) {
			now := make(map[key]T, len(list))
			for _, o := range list {
				now[keyOf(o)] = o
			}
			for k, o := range known {
				if _, still := now[k]; !still {
					w.emit(gone(o))
				}
			}
			known = now
			for _, o := range list {
				w.emit(seen(o))
			}
		},
		Seen: func(o T) {
			known[keyOf(o)] = o
			w.emit(seen(o))
		},
		Gone: func(o T) {
			delete(known, keyOf(o))
			w.emit(gone(o))
		},
	})
}
