package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wait"
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
	// Current says that what was heard until now is what a list would say that answers the ticket. Nil: Relist always lists.
	Current func(Ticket)
	// Flush says that nothing more is at hand: what was heard since the last one came together. May be nil.
	Flush func()
	// Packed hears of what is behind a Packed event of a relay, and whether that is gone. Nil where no relay packs.
	Packed func(of any, gone bool)
	// Unreadable is asked what to take in place of an object whose spec cannot be decoded, of which only the metadata is
	// given; false leaves it out. Nil leaves all of them out. What is left out of a watch is as it was seen last, what is left
	// out of a list is gone.
	Unreadable func(o T, err error) (T, bool)
}

// Follower lists and watches one kind.
type Follower[T runtime.Object] struct {
	what     string
	source   cache.ListerWatcherWithContext
	listInto func(ctx context.Context, take func(decoded[T])) (version string, err error)
	// readMarked reads the store's version and that of a mark's object.
	readMarked func(context.Context, Mark, metav1.ListOptions) (version, written string, err error)
	inProcess  bool
	handle     Handler[T]
	strip      func(T) T
	relay      Relay // nil for none
	log        *slog.Logger
	asked      atomic.Uint64 // Relist calls so far
	unread     *unread
	relist     chan struct{}
	synced     chan struct{}
	listTook   time.Duration // the last one
	wanted     bool          // Relist was called, and the watch goes on
	mark       Mark          // how far lists and watches have come

	catchUpFrom time.Duration // a list that takes so long is not made where the watch can do
}

// Relay is another place to watch from, where a watch costs the API server nothing. Only lists come from the API server
// then; a watch that cannot be had from the relay, or breaks there, does too.
type Relay interface {
	// Watch is what the API server's watch from a version is: every event after it, once, in order, until the channel is
	// closed. The error may be TooOld.
	Watch(ctx context.Context, version string) (Batches, error)
	// Changed is closed when what Watch answers may be another.
	Changed() <-chan struct{}
}

// Batches is a watch whose events are handed on as they came together: to hand over each by itself wakes a thread for each.
type Batches interface {
	Stop()
	Batches() <-chan []watch.Event
}

// Packed is the object of a relay's event in another form, which only Handler.Packed reads.
type Packed struct {
	Version, Namespace, Name string
	Of                       any
}

// GetObjectKind implements runtime.Object.
func (p *Packed) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object: nobody changes it.
func (p *Packed) DeepCopyObject() runtime.Object { return p }

// TooOld is a Relay's answer to a version before what it has: events after Oldest can be had.
type TooOld struct{ Oldest uint64 }

func (e TooOld) Error() string {
	return fmt.Sprintf("too old: there is only what comes after %d", e.Oldest)
}

// Lister is a client that lists and watches in other ways than by requests: an API server in the same process. Its watches
// may be Batches.
type Lister interface {
	ListerWatcher(resource string) cache.ListerWatcherWithContext
}

// Follow makes a Follower of a resource in all namespaces; Run starts it.
func Follow[T runtime.Object](client rest.Interface, resource string, log *slog.Logger, handle Handler[T]) *Follower[T] {
	u := newUnread(resource, log)
	requests := cache.NewListWatchFromClient(client, resource, metav1.NamespaceAll, fields.Everything())
	requests.WatchFuncWithContext = watchStream[T](client, resource, u)
	source := cache.ToListerWatcherWithContext(requests)
	listInto := func(ctx context.Context, take func(decoded[T])) (string, error) {
		return listStream(ctx, client.Get().Resource(resource), take)
	}
	readMarked := func(ctx context.Context, at Mark, o metav1.ListOptions) (version, written string, err error) {
		return readOne[T](ctx, client, resource, at, o)
	}
	l, inProcess := client.(Lister)
	if inProcess {
		source = l.ListerWatcher(resource)
		listInto = func(ctx context.Context, take func(decoded[T])) (string, error) { return listWhole(ctx, source, take) }
	}
	return &Follower[T]{
		what: resource, source: source, listInto: listInto, readMarked: readMarked, inProcess: inProcess, handle: handle, strip: func(o T) T { return o }, log: log,
		unread: u, relist: make(chan struct{}, 1), synced: make(chan struct{}), catchUpFrom: catchUpFrom,
	}
}

// Strip says how to leave out of an object what nobody looks at, without changing the object that is given. It is called
// before Run, as is Through. From an API server in this process nothing is left out: its objects are shared, not kept.
func (f *Follower[T]) Strip(strip func(T) T) {
	if !f.inProcess {
		f.strip = strip
	}
}

// Named gives what is followed another name in logs and at relays: resources of two API groups may have the same.
func (f *Follower[T]) Named(name string) { f.what, f.unread.resource = name, name }

// Through has the follower watch through a relay where it can.
func (f *Follower[T]) Through(r Relay) { f.relay = r }

// Resource is what is followed.
func (f *Follower[T]) Resource() string { return f.what }

// InProcess reports whether the API server is one in this process.
func (f *Follower[T]) InProcess() bool { return f.inProcess }

// Stripped is what the handler would get.
func (f *Follower[T]) Stripped(o T) T { return f.strip(o) }

// Relist asks for a new list: one that is made entirely after this call, or the same from the watch. The current watch ends.
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
	backoff, relayed := newBackoff(), newRelayed(f.relay)
	watchFailures.WithLabelValues(f.what) // with 0, so that the first one is seen to increase it
	Unread.WithLabelValues(f.what)
	defer watchProgress.DeleteLabelValues(f.what) // what is not followed any more is not behind
	for ctx.Err() == nil {
		var err error
		switch {
		case version == "":
			select { // this list answers whoever asked until now
			case <-f.relist:
			default:
			}
			version, err = f.list(ctx)
		case f.wanted:
			f.wanted = false
			version = f.catchUp(ctx, version)
		case relayed.due(version):
			version = f.watchRelay(ctx, version, relayed)
		default:
			version, err = f.watch(ctx, version, backoff, relayed)
		}
		if err != nil && ctx.Err() == nil {
			watchFailures.WithLabelValues(f.what).Inc()
			f.log.Warn("list or watch failed, retrying", "resource", f.what, "error", err)
			backoff.Wait(ctx)
		}
	}
}

// list makes a consistent list: an empty resourceVersion is never answered from a lagging cache.
func (f *Follower[T]) list(ctx context.Context) (version string, err error) {
	ticket := Ticket(f.asked.Load()) // before the list begins
	began := time.Now()
	defer func() { f.listTook = time.Since(began) }()
	var items []T
	var mark Mark
	version, err = f.listInto(ctx, func(d decoded[T]) {
		note(f.unread, d)
		if d.there {
			if m, err := meta.Accessor(d.object); err == nil {
				mark.listed(m)
			}
		}
		if d.err == nil && d.there {
			items = append(items, f.strip(d.object))
		} else if o, ok := f.unreadable(d); ok {
			items = append(items, o)
		}
	})
	if err != nil {
		return "", fmt.Errorf("list %s: %w", f.what, err)
	}
	mark.Version = version
	f.mark = mark
	watchLists.WithLabelValues(f.what).Inc()
	f.handle.Replaced(items, ticket)
	f.flush()
	select {
	case <-f.synced:
	default:
		close(f.synced)
	}
	return version, nil
}

// unreadable is what to take in place of an object that could not be decoded.
func (f *Follower[T]) unreadable(d decoded[T]) (o T, ok bool) {
	if !d.there || f.handle.Unreadable == nil {
		return o, false
	}
	return f.handle.Unreadable(d.object, d.err)
}

// listWhole lists by what the source gives.
func listWhole[T runtime.Object](ctx context.Context, source cache.ListerWatcherWithContext, take func(decoded[T])) (version string, err error) {
	l, err := source.ListWithContext(ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	accessor, err := meta.ListAccessor(l)
	if err != nil {
		return "", err
	}
	err = meta.EachListItem(l, func(o runtime.Object) error {
		if t, ok := o.(T); ok {
			take(decoded[T]{object: t, there: true})
		}
		return nil
	})
	return accessor.GetResourceVersion(), err
}

// relisted is the version to go on from when a list is asked for: none, or where that would take long, this one.
func (f *Follower[T]) relisted(version string) string {
	if f.handle.Current == nil || f.inProcess || f.listTook < f.catchUpFrom {
		return ""
	}
	f.wanted = true
	return version
}

// catchUpWatch is how long the watch of catchUp lasts. An API server says how far a watch has come two seconds before its end.
const catchUpWatch = 3

// catchUp goes on with the watch until it has shown everything that a list would show which began now, and returns the
// version that was reached; "" if that cannot be known. Of 100,000 pods a list takes seconds at both ends, this one.
func (f *Follower[T]) catchUp(ctx context.Context, version string) string {
	ticket := Ticket(f.asked.Load())
	ctx, cancel := context.WithTimeout(ctx, 3*catchUpWatch*time.Second)
	defer cancel()
	version, err := f.reach(ctx, version)
	switch {
	case errors.Is(err, ErrRestored):
		f.relistRestored()
		return ""
	case err != nil:
		f.log.Info("cannot determine the progress of the watch, listing instead", "resource", f.what, "error", err)
		return ""
	}
	f.handle.Current(ticket)
	f.flush()
	return version
}

// reach watches until the version that the API server has now.
func (f *Follower[T]) reach(ctx context.Context, version string) (string, error) {
	from := f.mark
	now, err := f.now(ctx) // consistent, as every list without a version
	if err != nil {
		return "", err
	}
	if api.NewerVersion(version, now) {
		return "", ErrRestored
	}
	until, err := strconv.ParseUint(now, 10, 64)
	if err != nil {
		return "", err
	}
	for range 2 { // an API server that is busy with lists of others may say it late
		if version, err = f.watchUntil(ctx, version, until); err == nil || !errors.Is(err, errNotReached) {
			break
		}
	}
	if err != nil {
		return "", err
	}
	restored, err := f.isRestored(ctx, from)
	if err == nil && restored {
		err = ErrRestored
	}
	return version, err
}

var errNotReached = errors.New("the watch ended before it was there")

// watchUntil watches until a version, and returns the one that was reached.
func (f *Follower[T]) watchUntil(ctx context.Context, version string, until uint64) (string, error) {
	w, err := f.open(ctx, version, catchUpWatch)
	if err != nil {
		return "", err
	}
	defer w.Stop()
	for {
		if v, err := strconv.ParseUint(version, 10, 64); err != nil {
			return "", err
		} else if v >= until {
			return version, nil
		}
		e, open := <-w.ResultChan() // it ends with ctx
		switch {
		case !open:
			return version, fmt.Errorf("at %s, to reach %d: %w", version, until, errNotReached)
		case e.Type == watch.Error:
			return "", apierrors.FromObject(e.Object)
		}
		if version, err = f.take(e, true); err != nil {
			return "", err
		}
	}
}

// Watch opens a watch at the API server, with bookmarks. Its objects are not stripped.
func (f *Follower[T]) Watch(ctx context.Context, version string) (watch.Interface, error) {
	return f.open(ctx, version, int64(300+rand.IntN(300))) // as client-go: so that servers can shed and spread watches
}

func (f *Follower[T]) open(ctx context.Context, version string, timeout int64) (watch.Interface, error) {
	return f.source.WatchWithContext(ctx, metav1.ListOptions{ResourceVersion: version, AllowWatchBookmarks: true, TimeoutSeconds: &timeout})
}

// watch follows the API server from a version and returns the one to go on from, "" for a new list. It ends, too, when the
// relay is due.
func (f *Follower[T]) watch(ctx context.Context, version string, backoff *wait.Backoff, relayed *relayed) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	started := time.Now()
	changed, again := relayed.watch()
	defer again.Stop()
	var w watch.Interface
	var err error
	if relayed.hurry() {
		w, err = f.open(ctx, version, 5)
	} else {
		w, err = f.Watch(ctx, version)
	}
	if err != nil {
		return f.failed(ctx, version, err, backoff)
	}
	defer w.Stop()
	restored := f.Restored(ctx, f.mark)
	one, batches := w.ResultChan(), (<-chan []watch.Event)(nil)
	if b, ok := w.(Batches); ok {
		one, batches = nil, b.Batches()
	}
	for {
		var single [1]watch.Event
		var events []watch.Event
		var open bool
		select {
		case <-ctx.Done():
			return version, ctx.Err()
		case <-f.relist:
			return f.relisted(version), nil
		case <-restored:
			f.relistRestored()
			return "", nil
		case <-changed:
			relayed.reset()
			return version, nil
		case <-again.C:
			if relayed.due(version) {
				return version, nil
			}
			continue
		case single[0], open = <-one:
			events = single[:]
		case events, open = <-batches:
		}
		if !open {
			if time.Since(started) < time.Second { // a server that cuts at once must not be called in a tight loop
				backoff.Wait(ctx)
			}
			return version, nil
		}
		for _, e := range events {
			if e.Type == watch.Error {
				f.flush()
				return f.failed(ctx, version, apierrors.FromObject(e.Object), backoff)
			}
			if version, err = f.take(e, true); err != nil {
				return "", err
			}
		}
		f.flush()
		backoff.Reset()
		if relayed.waits && relayed.due(version) {
			return version, nil
		}
	}
}

// failed returns the version to go on from after a watch failed, "" for a new list where the version is too old. An API server
// may say that of a list that was made just now, again and again: so the list, too, waits.
func (f *Follower[T]) failed(ctx context.Context, version string, err error, backoff *wait.Backoff) (string, error) {
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		backoff.Wait(ctx)
		return "", nil
	}
	return version, fmt.Errorf("watch %s: %w", f.what, err)
}

// watchRelay follows the relay from a version and returns the one to go on from, "" for a new list.
func (f *Follower[T]) watchRelay(ctx context.Context, version string, relayed *relayed) string {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	changed, again := relayed.watch()
	again.Stop()
	w, err := f.relay.Watch(ctx, version)
	if err != nil {
		f.log.Debug("cannot watch the relay, watching the API server", "resource", f.what, "error", err)
		select {
		case <-changed: // it was another one that failed
			relayed.reset()
		default:
			relayed.failed(err)
		}
		return version
	}
	defer w.Stop()
	restored := f.Restored(ctx, f.mark)
	began := time.Now()
	for {
		select {
		case <-ctx.Done():
			return version
		case <-f.relist:
			return f.relisted(version)
		case <-restored:
			f.relistRestored()
			return ""
		case <-changed:
			relayed.reset()
			return version
		case events, open := <-w.Batches():
			for i := 0; i < len(events) && err == nil; i++ {
				version, err = f.take(events[i], false)
			}
			f.flush()
			if !open || err != nil {
				if time.Since(began) > relayLongest {
					relayed.reset()
				}
				relayed.failed(err)
				return version
			}
		}
	}
}

// flush says that nothing more is at hand, after a list, events, or a bookmark.
func (f *Follower[T]) flush() {
	watchProgress.WithLabelValues(f.what).SetToCurrentTime()
	if f.handle.Flush != nil {
		f.handle.Flush()
	}
}

// take hands an event on and returns its version. Those of the relay are stripped.
func (f *Follower[T]) take(e watch.Event, strip bool) (version string, err error) {
	if p, packed := e.Object.(*Packed); packed {
		f.handle.Packed(p.Of, e.Type == watch.Deleted)
		f.mark.reach(e.Type, p.Version, p.Namespace, p.Name)
		return f.mark.Version, nil
	}
	m, err := meta.Accessor(e.Object)
	if err != nil {
		return "", fmt.Errorf("watch %s: %w", f.what, err)
	}
	o, ok := e.Object.(T)
	if ok && strip && e.Type != watch.Bookmark {
		o = f.strip(o)
	}
	if u, unreadable := e.Object.(*Unreadable); unreadable {
		if o, ok = u.Object.(T); ok && e.Type != watch.Deleted { // who is gone is gone, whatever it was
			o, ok = f.unreadable(decoded[T]{object: o, there: true, err: u.Err})
		}
	}
	switch {
	case !ok:
	case e.Type == watch.Added, e.Type == watch.Modified:
		f.handle.Seen(o)
	case e.Type == watch.Deleted:
		f.handle.Gone(o)
	}
	f.mark.Reach(e.Type, m)
	return f.mark.Version, nil
}

const (
	relayShortest = 250 * time.Millisecond
	relayLongest  = 10 * time.Second
)

// newBackoff returns a backoff whose pauses are 25 to 75 ms at first, and 1 to 3 s at last.
func newBackoff() *wait.Backoff {
	return &wait.Backoff{Min: 25 * time.Millisecond, Max: time.Second, Jitter: 2}
}
