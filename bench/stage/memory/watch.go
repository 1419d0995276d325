package memory

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// bookmarkEvery is how often a watch that allows it hears which version it has seen everything of.
const bookmarkEvery = 10 * time.Second

// filter is what a list or watch asks for.
type filter struct {
	labels labels.Selector // nil: all
	fields fields.Selector
}

func parseFilter(o metav1.ListOptions) (filter, error) {
	var f filter
	var err error
	if o.LabelSelector != "" {
		if f.labels, err = labels.Parse(o.LabelSelector); err != nil {
			return f, apierrors.NewBadRequest(err.Error())
		}
	}
	if o.FieldSelector != "" {
		if f.fields, err = fields.ParseSelector(o.FieldSelector); err != nil {
			return f, apierrors.NewBadRequest(err.Error())
		}
		for _, r := range f.fields.Requirements() {
			switch r.Field {
			case "metadata.name", "metadata.namespace", "spec.nodeName", "spec.schedulerName", "status.phase":
			default:
				return f, apierrors.NewBadRequest(fmt.Sprintf("%q is not a known field selector", r.Field))
			}
		}
	}
	return f, nil
}

func (f filter) matches(o Object) bool {
	return (f.labels == nil || f.labels.Matches(labels.Set(o.GetLabels()))) && (f.fields == nil || f.fields.Matches(objectFields{o}))
}

type objectFields struct{ Object }

func (o objectFields) Has(string) bool { return true }

func (o objectFields) Get(name string) string {
	switch name {
	case "metadata.name":
		return o.GetName()
	case "metadata.namespace":
		return o.GetNamespace()
	}
	if pod, ok := o.Object.(*corev1.Pod); ok {
		switch name {
		case "spec.nodeName":
			return pod.Spec.NodeName
		case "spec.schedulerName":
			return pod.Spec.SchedulerName
		case "status.phase":
			return string(pod.Status.Phase)
		}
	}
	return ""
}

// watcher follows the log of one kind.
type watcher struct {
	server    *Server
	kind      *kind
	namespace string
	keep      filter
	bookmarks bool
	wake      chan struct{}
	result    chan watch.Event
	stop      func()
	next      int // position in the log, counted from the first change ever
}

// pace is the time between two batches of a watch that has them. It stands for the relay from which shards hear of objects
// (api/relay), whose pace is 20 ms for pods.
const pace = 5 * time.Millisecond

// batched is a watch that hands over at once what there is: kube.Batches.
type batched struct {
	*watcher
	batches chan []watch.Event
}

func (b *batched) Batches() <-chan []watch.Event { return b.batches }

func (b *batched) hand(ctx context.Context, events []watch.Event) bool {
	if len(events) == 0 {
		return true
	}
	select {
	case b.batches <- events:
	case <-ctx.Done():
		return false
	}
	select {
	case <-time.After(pace):
		return true
	case <-ctx.Done():
		return false
	}
}

// Watch follows a kind from a version on, until the context ends or Stop. From version "" or "0" it begins with the
// objects that exist.
func (s *Server) Watch(ctx context.Context, resource, namespace string, o metav1.ListOptions) (watch.Interface, error) {
	w, start, err := s.newWatcher(ctx, resource, namespace, o)
	if err != nil {
		return nil, err
	}
	w.result = make(chan watch.Event, 256)
	start(w.hand, func() { close(w.result) })
	return w, nil
}

// WatchBatches is Watch, with batches.
func (s *Server) WatchBatches(ctx context.Context, resource, namespace string, o metav1.ListOptions) (watch.Interface, error) {
	w, start, err := s.newWatcher(ctx, resource, namespace, o)
	if err != nil {
		return nil, err
	}
	b := &batched{w, make(chan []watch.Event)}
	start(b.hand, func() { close(b.batches) })
	return b, nil
}

// hand hands over events one by one, until the context ends.
func (w *watcher) hand(ctx context.Context, events []watch.Event) bool {
	for _, e := range events {
		select {
		case w.result <- e:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// newWatcher makes a watcher, and start has it hand events to a function, and call done at its end.
func (s *Server) newWatcher(ctx context.Context, resource, namespace string, o metav1.ListOptions) (
	_ *watcher, start func(hand func(context.Context, []watch.Event) bool, done func()), _ error) {
	keep, err := parseFilter(o)
	if err != nil {
		return nil, nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	k, err := s.kind(resource)
	if err != nil {
		return nil, nil, err
	}
	w := &watcher{server: s, kind: k, namespace: namespace, keep: keep, bookmarks: o.AllowWatchBookmarks, wake: make(chan struct{}, 1)}
	var first []watch.Event
	if o.ResourceVersion == "" || o.ResourceVersion == "0" {
		w.next = k.dropped + len(k.log)
		for _, name := range sortedNames(k) {
			if o := k.objects[name]; w.wants(o) {
				first = append(first, watch.Event{Type: watch.Added, Object: o})
			}
		}
	} else {
		from, err := strconv.ParseInt(o.ResourceVersion, 10, 64)
		if err != nil {
			return nil, nil, apierrors.NewBadRequest(fmt.Sprintf("resourceVersion %q is no version", o.ResourceVersion))
		}
		if from < k.oldest {
			return nil, nil, apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", from, k.oldest))
		}
		lo, hi := 0, len(k.log)
		for lo < hi {
			if mid := (lo + hi) / 2; k.log[mid].version <= from {
				lo = mid + 1
			} else {
				hi = mid
			}
		}
		w.next = k.dropped + lo
	}
	cancel := func() {}
	if o.TimeoutSeconds != nil {
		ctx, cancel = context.WithTimeout(ctx, time.Duration(*o.TimeoutSeconds)*time.Second)
	}
	ctx, stop := context.WithCancel(ctx)
	w.stop = func() { stop(); cancel() }
	k.watchers[w] = struct{}{}
	w.wake <- struct{}{}
	return w, func(hand func(context.Context, []watch.Event) bool, done func()) { go w.run(ctx, first, hand, done) }, nil
}

func (w *watcher) wants(o Object) bool {
	return (w.namespace == "" || o.GetNamespace() == w.namespace) && w.keep.matches(o)
}

func (w *watcher) run(ctx context.Context, first []watch.Event, hand func(context.Context, []watch.Event) bool, done func()) {
	defer func() {
		w.stop()
		w.server.mu.Lock()
		delete(w.kind.watchers, w)
		w.server.mu.Unlock()
		done()
	}()
	if !hand(ctx, first) {
		return
	}
	bookmark := time.NewTicker(bookmarkEvery)
	defer bookmark.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-bookmark.C:
			w.server.mu.Lock()
			version, current := w.server.version, w.next == w.kind.dropped+len(w.kind.log)
			w.server.mu.Unlock()
			if w.bookmarks && current {
				o := w.kind.make()
				o.SetResourceVersion(strconv.FormatInt(version, 10))
				if !hand(ctx, []watch.Event{{Type: watch.Bookmark, Object: o}}) {
					return
				}
			}
		case <-w.wake:
			for {
				changes, fell := w.take()
				if fell {
					status := apierrors.NewResourceExpired("the watch fell behind").Status()
					hand(ctx, []watch.Event{{Type: watch.Error, Object: &status}})
					return
				}
				if len(changes) == 0 {
					break
				}
				events := make([]watch.Event, 0, len(changes))
				for _, c := range changes {
					if e, ok := w.event(c); ok {
						events = append(events, e)
					}
				}
				if !hand(ctx, events) {
					return
				}
			}
		}
	}
}

// take returns what was not handed out yet. A log is never changed in place, so that the slice stays good.
func (w *watcher) take() (batch []change, fell bool) {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	if w.next < w.kind.dropped {
		return nil, true
	}
	batch = w.kind.log[w.next-w.kind.dropped:]
	w.next += len(batch)
	w.server.counts.WatchEvents[w.kind.resource] += int64(len(batch))
	return batch, false
}

// event is what a change looks like through the filter.
func (w *watcher) event(c change) (watch.Event, bool) {
	if w.keep.labels == nil && w.keep.fields == nil && w.namespace == "" {
		return watch.Event{Type: c.event, Object: c.after}, true
	}
	was, is := c.before != nil && w.wants(c.before), c.event != watch.Deleted && w.wants(c.after)
	switch {
	case was && is:
		return watch.Event{Type: watch.Modified, Object: c.after}, true
	case is:
		return watch.Event{Type: watch.Added, Object: c.after}, true
	case was && c.event == watch.Deleted:
		return watch.Event{Type: watch.Deleted, Object: c.after}, true
	case was: // it left the filter: the state that passed it, under the version of the change
		last := c.before.DeepCopyObject().(Object)
		last.SetResourceVersion(c.after.GetResourceVersion())
		return watch.Event{Type: watch.Deleted, Object: last}, true
	}
	return watch.Event{}, false
}

func (w *watcher) ResultChan() <-chan watch.Event { return w.result }

func (w *watcher) Stop() { w.stop() }

// lister lists and watches one kind in all namespaces, by function call.
type lister struct {
	server   *Server
	resource string
}

func (l lister) ListWithContext(_ context.Context, o metav1.ListOptions) (runtime.Object, error) {
	return l.server.listObject(l.resource, "", o)
}

func (l lister) List(o metav1.ListOptions) (runtime.Object, error) {
	return l.ListWithContext(context.Background(), o)
}

func (l lister) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	return l.server.WatchBatches(ctx, l.resource, "", o)
}

func (l lister) Watch(o metav1.ListOptions) (watch.Interface, error) {
	return l.WatchWithContext(context.Background(), o)
}

func (s *Server) listObject(resource, namespace string, o metav1.ListOptions) (runtime.Object, error) {
	keep, err := parseFilter(o)
	if err != nil {
		return nil, err
	}
	objects, version, err := s.List(resource, namespace, keep)
	if err != nil {
		return nil, err
	}
	return s.kinds[resource].list(version, objects), nil
}

func sortedNames(k *kind) []types.NamespacedName {
	return slices.SortedFunc(maps.Keys(k.objects), func(a, b types.NamespacedName) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
}
