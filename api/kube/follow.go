package kube

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// Ticket counts the calls of Relist.
type Ticket uint64

// Handler hears what a Follower sees, on one goroutine, in order. Replaced comes first, and again after each new list:
// what it does not name is gone. The list was begun after the Relist that returned its ticket, and so after all earlier
// ones.
type Handler[T runtime.Object] struct {
	Replaced func([]T, Ticket)
	Seen     func(T)
	Gone     func(T)
}

// Follower lists and watches one kind.
type Follower[T runtime.Object] struct {
	what   string
	source cache.ListerWatcherWithContext
	handle Handler[T]
	log    *slog.Logger
	asked  atomic.Uint64 // Relist calls so far
	relist chan struct{}
	synced chan struct{}
}

// Lister is a client that lists and watches in other ways than by requests: an API server in the same process.
type Lister interface {
	ListerWatcher(resource string) cache.ListerWatcherWithContext
}

// Follow makes a Follower of a resource in all namespaces; Run starts it.
func Follow[T runtime.Object](client rest.Interface, resource string, log *slog.Logger, handle Handler[T]) *Follower[T] {
	source := cache.ToListerWatcherWithContext(cache.NewListWatchFromClient(client, resource, metav1.NamespaceAll, fields.Everything()))
	if l, ok := client.(Lister); ok {
		source = l.ListerWatcher(resource)
	}
	return &Follower[T]{
		what: resource, source: source, handle: handle, log: log,
		relist: make(chan struct{}, 1), synced: make(chan struct{}),
	}
}

// Relist asks for a new list: one that is made entirely after this call. The current watch ends.
func (f *Follower[T]) Relist() Ticket {
	ticket := Ticket(f.asked.Add(1))
	select {
	case f.relist <- struct{}{}:
	default: // one that has not begun yet is asked for already
	}
	return ticket
}

// Synced is closed after the first list.
func (f *Follower[T]) Synced() <-chan struct{} { return f.synced }

// Run follows until ctx ends.
func (f *Follower[T]) Run(ctx context.Context) {
	var version string // "" asks for a list
	backoff := newBackoff()
	for ctx.Err() == nil {
		var err error
		if version == "" {
			select { // this list answers whoever asked until now
			case <-f.relist:
			default:
			}
			if version, err = f.list(ctx); err == nil {
				backoff.reset()
			}
		} else {
			version, err = f.watch(ctx, version, backoff)
		}
		if err != nil && ctx.Err() == nil {
			f.log.Warn("list or watch failed, trying again", "resource", f.what, "error", err)
			backoff.wait(ctx)
		}
	}
}

// list makes a consistent list: an empty resourceVersion is never answered from a lagging cache.
func (f *Follower[T]) list(ctx context.Context) (version string, err error) {
	ticket := Ticket(f.asked.Load()) // before the list begins
	l, err := f.source.ListWithContext(ctx, metav1.ListOptions{})
	if err != nil {
		return "", fmt.Errorf("list %s: %w", f.what, err)
	}
	accessor, err := meta.ListAccessor(l)
	if err != nil {
		return "", fmt.Errorf("list %s: %w", f.what, err)
	}
	items := make([]T, 0, meta.LenList(l))
	err = meta.EachListItem(l, func(o runtime.Object) error {
		if t, ok := o.(T); ok {
			items = append(items, t)
		}
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("list %s: %w", f.what, err)
	}
	f.handle.Replaced(items, ticket)
	select {
	case <-f.synced:
	default:
		close(f.synced)
	}
	return accessor.GetResourceVersion(), nil
}

// watch follows from a version and returns the one to go on from, "" for a new list.
func (f *Follower[T]) watch(ctx context.Context, version string, backoff *backoff) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	timeout := int64(300 + rand.IntN(300)) // as client-go: so that servers can shed and spread watches
	w, err := f.source.WatchWithContext(ctx, metav1.ListOptions{ResourceVersion: version, AllowWatchBookmarks: true, TimeoutSeconds: &timeout})
	if err != nil {
		if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
			return "", nil
		}
		return version, fmt.Errorf("watch %s: %w", f.what, err)
	}
	defer w.Stop()
	started := time.Now()
	for {
		select {
		case <-ctx.Done():
			return version, ctx.Err()
		case <-f.relist:
			return "", nil
		case e, open := <-w.ResultChan():
			if !open {
				if time.Since(started) < time.Second { // a server that cuts at once must not be called in a tight loop
					backoff.wait(ctx)
				}
				return version, nil
			}
			if e.Type == watch.Error {
				err := apierrors.FromObject(e.Object)
				if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
					return "", nil
				}
				return version, fmt.Errorf("watch %s: %w", f.what, err)
			}
			m, err := meta.Accessor(e.Object)
			if err != nil {
				return "", fmt.Errorf("watch %s: %w", f.what, err)
			}
			version = m.GetResourceVersion()
			backoff.reset()
			o, ok := e.Object.(T)
			if !ok {
				continue
			}
			switch e.Type {
			case watch.Added, watch.Modified:
				f.handle.Seen(o)
			case watch.Deleted:
				f.handle.Gone(o)
			}
		}
	}
}

type backoff struct{ next time.Duration }

func newBackoff() *backoff { return &backoff{next: 50 * time.Millisecond} }

func (b *backoff) reset() { b.next = 50 * time.Millisecond }

func (b *backoff) wait(ctx context.Context) {
	t := time.NewTimer(b.next/2 + rand.N(b.next))
	defer t.Stop()
	b.next = min(2*b.next, 2*time.Second)
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
