package rival

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/bench/measure/scenario"
	"basalt.dev/basalt/bench/stage/local"
)

// selected lists and watches the pods of a namespace, or only those that a field selector names.
type selected struct {
	rest.Interface
	namespace string
	selector  fields.Selector
}

func (s selected) ListerWatcher(resource string) cache.ListerWatcherWithContext {
	return cache.ToListerWatcherWithContext(cache.NewListWatchFromClient(s.Interface, resource, s.namespace, s.selector))
}

// follow follows the pods of the namespaces, by one watch also where there are several: of all namespaces then, and what is in others is dropped.
func follow(c *kube.Clients, namespaces []string, selector fields.Selector, h kube.Handler[*v1.Pod]) *kube.Follower[*v1.Pod] {
	namespace := namespaces[0]
	if len(namespaces) > 1 {
		namespace, h = metav1.NamespaceAll, within(namespaces, h)
	}
	return kube.Follow(selected{c.Core.CoreV1().RESTClient(), namespace, selector}, "pods", slog.Default(), h)
}

// within hands on what is in the namespaces.
func within(namespaces []string, h kube.Handler[*v1.Pod]) kube.Handler[*v1.Pod] {
	in := map[string]bool{}
	for _, n := range namespaces {
		in[n] = true
	}
	out := kube.Handler[*v1.Pod]{
		Replaced: func(pods []*v1.Pod, t kube.Ticket) {
			h.Replaced(slices.DeleteFunc(slices.Clone(pods), func(p *v1.Pod) bool { return !in[p.Namespace] }), t)
		},
		Seen: func(p *v1.Pod) {
			if in[p.Namespace] {
				h.Seen(p)
			}
		},
		Gone: func(p *v1.Pod) {
			if in[p.Namespace] {
				h.Gone(p)
			}
		},
	}
	return out
}

// create makes one object; one that is there already was made by a call whose answer was lost.
func create(what string, f func() error) error {
	if err := f(); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create %s: %w", what, err)
	}
	return nil
}

// each runs f on all items with so many at a time and returns the first error.
func each[T any](ctx context.Context, workers int, items []T, f func(context.Context, T) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	var next atomic.Int64
	for range workers {
		wg.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(items) {
					return
				}
				if err := f(ctx, items[i]); err != nil {
					cancel(err)
				}
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// load makes the gangs when they are due, in order, and never waits for the scheduler. The pods of a gang follow its PodGroup.
type load struct {
	clients   *kube.Clients
	namespace string // the one without a number, of the scenario's
	scheduler string
	groups    bool // PodGroups are served
	volcano   bool // they are Volcano's
	workers   int

	made atomic.Int64
	late atomic.Int64 // the most that a create's answer was behind its time, in nanoseconds
}

type task struct {
	gang  *scenario.Gang
	pod   int           // -1 for its PodGroup
	ready chan struct{} // closed when the PodGroup is there
}

func (l *load) run(ctx context.Context, begin time.Time, gangs []scenario.Gang) error {
	total := 0
	for i := range gangs {
		total += len(gangs[i].Pods) + 1
	}
	tasks := make(chan task, total) // arrivals do not wait for workers
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for range l.workers {
		wg.Go(func() {
			for t := range tasks {
				if err := l.make(ctx, t); err != nil {
					cancel(err)
				}
				late := int64(time.Since(begin) - t.gang.At)
				for old := l.late.Load(); late > old && !l.late.CompareAndSwap(old, late); old = l.late.Load() {
				}
			}
		})
	}
	for i := range gangs {
		g := &gangs[i]
		if wait := time.Until(begin.Add(g.At)); wait > 0 {
			select {
			case <-time.After(wait):
			case <-ctx.Done():
			}
		}
		if ctx.Err() != nil {
			break
		}
		ready, first := make(chan struct{}), -1
		if g.Plain || !l.groups && g.Topology == "" {
			first = 0
			close(ready)
		}
		for j := first; j < len(g.Pods); j++ {
			tasks <- task{g, j, ready}
		}
	}
	close(tasks)
	wg.Wait()
	return context.Cause(ctx)
}

func (l *load) make(ctx context.Context, t task) error {
	namespace := t.gang.Namespace(l.namespace)
	if t.pod < 0 {
		defer close(t.ready)
		return create("PodGroup "+t.gang.Name, func() error {
			if t.gang.Topology != "" {
				_, err := l.clients.Core.SchedulingV1beta1().PodGroups(namespace).Create(ctx, t.gang.KubernetesPodGroup(l.namespace), metav1.CreateOptions{})
				return err
			}
			if l.volcano {
				return l.clients.Volcano.Post().Namespace(namespace).Resource("podgroups").Body(volcanoPodGroup(t.gang, namespace)).Do(ctx).Error()
			}
			return l.clients.Basalt.Post().Namespace(namespace).Resource("podgroups").Body(t.gang.PodGroup(l.namespace)).Do(ctx).Error()
		})
	}
	select {
	case <-t.ready:
	case <-ctx.Done():
		return nil
	}
	p := t.gang.Pod(t.pod, l.namespace, l.scheduler)
	if l.volcano && !t.gang.Plain && t.gang.Topology == "" {
		delete(p.Labels, api.LabelPodGroup)
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, v1beta1.KubeGroupNameAnnotationKey, t.gang.Name)
	}
	err := create("pod "+p.Name, func() error {
		_, err := l.clients.Core.CoreV1().Pods(namespace).Create(ctx, p, metav1.CreateOptions{})
		return err
	})
	l.made.Add(1)
	return err
}

// volcanoPodGroup makes a gang's PodGroup of Volcano's.
func volcanoPodGroup(g *scenario.Gang, namespace string) *v1beta1.PodGroup {
	return &v1beta1.PodGroup{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1beta1.SchemeGroupVersion.String(), Kind: "PodGroup"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: g.Name},
		Spec:       v1beta1.PodGroupSpec{Queue: g.Queue, MinMember: int32(g.MinCount)},
	}
}

// reap deletes the pods and the PodGroup of each gang that has ended, as what made them would.
func (t *trial) reap(ctx context.Context) {
	var wg sync.WaitGroup
	for range nullWorkers {
		wg.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case g := <-t.watch.ended:
					namespace := g.Namespace(t.namespace)
					for j := range g.Pods {
						t.forget("pod "+g.PodName(j), t.clients.Core.CoreV1().Pods(namespace).Delete(ctx, g.PodName(j), metav1.DeleteOptions{}))
					}
					if t.served && !g.Plain {
						client := t.clients.Basalt
						if t.subject.Volcano == VolcanoGroups {
							client = t.clients.Volcano
						}
						t.forget("PodGroup "+g.Name, client.Delete().Namespace(namespace).Resource("podgroups").Name(g.Name).Do(ctx).Error())
					}
				}
			}
		})
	}
	wg.Wait()
}

// forget says that a delete failed; what is left of it stays until the run ends.
func (t *trial) forget(what string, err error) {
	if err != nil && !apierrors.IsNotFound(err) && !errors.Is(err, context.Canceled) {
		slog.Warn("the load could not delete "+what, "error", err)
	}
}

// nullWorkers is how many Bindings are in flight at most: as many as a shard of Basalt's has.
const nullWorkers = 32

// null binds every unbound pod of the namespaces to the next node. It decides nothing, and remembers only which pods it has
// sent a Binding for.
func null(ctx context.Context, c *kube.Clients, namespaces, nodes []string) {
	type ref struct {
		namespace, name string
		uid             types.UID
	}
	todo := make(chan ref, 1<<20)
	sent := map[types.UID]bool{} // of the watch's goroutine
	offer := func(p *v1.Pod) {
		if p.Spec.NodeName != "" || p.Spec.SchedulerName != Null().Scheduler || sent[p.UID] {
			return
		}
		sent[p.UID] = true
		select {
		case todo <- ref{p.Namespace, p.Name, p.UID}:
		case <-ctx.Done():
		}
	}
	f := follow(c, namespaces, fields.OneTermEqualSelector("spec.nodeName", ""), kube.Handler[*v1.Pod]{
		Replaced: func(pods []*v1.Pod, _ kube.Ticket) {
			for _, p := range pods {
				offer(p)
			}
		},
		Seen: offer,
		Gone: func(p *v1.Pod) { delete(sent, p.UID) },
	})
	var wg sync.WaitGroup
	wg.Go(func() { f.Run(ctx) })
	var next atomic.Int64
	for range nullWorkers {
		wg.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case r := <-todo:
					node := nodes[int(next.Add(1)-1)%len(nodes)]
					err := c.Bind(ctx, kube.Pod{Namespace: r.namespace, Name: r.name, UID: string(r.uid)}, "", node, nil, nil)
					if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) && ctx.Err() == nil {
						slog.Warn("null: a Binding failed", "pod", r.name, "error", err)
					}
				}
			}
		})
	}
	wg.Wait()
}

// ready waits until Basalt is, and has pages of a console opened, if any.
func (t *trial) ready(ctx context.Context, all []*local.Basalt) error {
	if err := local.WaitReady(ctx, all); err != nil || t.subject.Views == 0 {
		return err
	}
	return t.cluster.Browse(ctx, t.subject.Views)
}
