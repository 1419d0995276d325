package relay

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/api/wire"
)

// Sizes and times.
const (
	batchEvents = 1024 // in one message
	batchSize   = 512 << 10

	// From so many readers on the pace of a kind slows down with their number.
	fewReaders = 3

	// heartbeat is how often a stream that said nothing since the last says so, silence after how long the other end gives it
	// up.
	heartbeat = time.Second
	silence   = 4 * heartbeat
	// linger is how long a watch is kept that nobody asks for: when shards start, the first is asked by all for a moment.
	linger = 5 * time.Second
	// reopen is how long the API server may take to let a watch go on that it ended; callers can see for themselves then.
	reopen = 2 * time.Second
)

// windowLimits are long enough for a shard that lists 100,000 pods before it asks.
var windowLimits = limits{maxEvents: 65536, maxSize: 32 << 20, maxAge: 2 * time.Minute}

// slowerPaces are those that a kind may slow down to: few, so that different kinds speak at the same times.
var slowerPaces = []time.Duration{50 * time.Millisecond, 100 * time.Millisecond}

// kind is one resource.
type kind struct {
	resource string
	watch    func(ctx context.Context, version string) (watch.Interface, error) // of the API server
	restored func(ctx context.Context, at kube.Mark) <-chan struct{}            // closed if its history does not contain the mark
	encode   func(runtime.Object) ([]byte, error)
	form     string // of what packers make, "" for none
	packer   func() func(runtime.Object) *Pack
	relay    *Relay

	pace   time.Duration // between two messages of a stream with few readers
	limits limits        // of the window

	mu   sync.Mutex
	feed *feed // nil while nobody asks
}

// feed is one watch of the API server and the window over it. It ends for good with the first doubt.
type feed struct {
	kind   *kind
	cancel context.CancelFunc
	opened chan struct{} // closed when the API server has taken the watch, or the feed has ended

	callers int         // guarded by kind.mu
	idle    *time.Timer // runs while there are none

	// Only the goroutine that reads the watch has these.
	mark    kube.Mark // how far it has come
	pack    func(runtime.Object) *Pack
	settled map[uint64]uint64 // the hashes of objects whose versions do not matter

	mu      sync.Mutex
	window  *window
	public  uint64        // up to here events may be sent
	whole   uint64        // later ones have their objects, also where they are packed; never if nobody asked for one
	changed chan struct{} // closed when public grows, and at the end
	err     error         // why it ended
}

// join returns the feed, and begins one at a version if there is none.
func (k *kind) join(version uint64, form string) *feed {
	k.mu.Lock()
	defer k.mu.Unlock()
	f := k.feed
	if f == nil {
		ctx, cancel := context.WithCancel(k.relay.ctx)
		f = &feed{
			kind: k, cancel: cancel, opened: make(chan struct{}),
			window: newWindow(version, k.limits), public: version, changed: make(chan struct{}),
			whole: math.MaxUint64, settled: map[uint64]uint64{},
		}
		if k.packer != nil {
			f.pack = k.packer()
		}
		k.feed = f
		k.relay.wg.Go(func() { f.run(ctx, version) })
	}
	if !k.packs(form) {
		f.mu.Lock()
		f.whole = min(f.whole, f.window.newest)
		f.mu.Unlock()
	}
	f.callers++
	if f.idle != nil {
		f.idle.Stop()
		f.idle = nil
	}
	k.relay.metrics.streams.WithLabelValues(k.resource).Inc()
	return f
}

// packs reports whether a reader is sent packed objects.
func (k *kind) packs(form string) bool { return k.form != "" && form == k.form }

func (k *kind) leave(f *feed) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.relay.metrics.streams.WithLabelValues(k.resource).Dec()
	if f.callers--; f.callers > 0 {
		return
	}
	f.idle = time.AfterFunc(linger, func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if f.callers == 0 {
			k.drop(f)
			f.cancel()
		}
	})
}

// drop has the next caller begin a new feed. k.mu is held.
func (k *kind) drop(f *feed) {
	if k.feed == f {
		k.feed = nil
	}
}

func (f *feed) run(ctx context.Context, version uint64) {
	defer f.cancel()
	open := sync.OnceFunc(func() { close(f.opened) })
	err := f.follow(ctx, version, open)
	f.kind.mu.Lock()
	f.kind.drop(f)
	f.kind.mu.Unlock()
	f.mu.Lock()
	f.err = err
	close(f.changed)
	f.mu.Unlock()
	open()
	if ctx.Err() == nil {
		f.kind.relay.log.Warn("relay watch failed, its readers fall back to the API server", "resource", f.kind.resource, "error", err)
	}
}

// follow watches until there is a doubt, and says which.
func (f *feed) follow(ctx context.Context, version uint64, open func()) error {
	for first := true; ; first = false {
		began := time.Now()
		ctx, cancel := context.WithCancel(ctx)
		late := time.AfterFunc(reopen, cancel)
		w, err := f.kind.watch(ctx, strconv.FormatUint(version, 10))
		if err == nil && !late.Stop() {
			w.Stop()
			err = errors.New("the API server does not answer")
		}
		if err != nil {
			cancel()
			return fmt.Errorf("watch %s: %w", f.kind.resource, err)
		}
		open()
		var restored <-chan struct{}
		if !first { // the first one is checked by each reader, which begins where its own list was
			restored = f.kind.restored(ctx, f.mark)
		}
		version, err = f.read(ctx, w, restored)
		w.Stop()
		cancel()
		switch {
		case err != nil:
			return fmt.Errorf("watch %s: %w", f.kind.resource, err)
		case time.Since(began) < time.Second:
			return fmt.Errorf("watch %s: the API server ended it at once", f.kind.resource)
		} // else its time was over: servers end every watch after some minutes
	}
}

// read takes events into the window until the API server ends the watch, and returns the version that was reached.
func (f *feed) read(ctx context.Context, w watch.Interface, restored <-chan struct{}) (uint64, error) {
	var last time.Time // of publication
	due := time.NewTimer(f.kind.pace)
	due.Stop()
	defer due.Stop()
	waiting := false
	for {
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-restored:
			return 0, kube.ErrRestored
		case <-due.C:
			last, waiting = time.Now(), false
			f.publish()
		case e, open := <-w.ResultChan():
			if !open {
				f.publish()
				return f.window.newest, ctx.Err()
			}
			if err := f.take(e); err != nil {
				return 0, err
			}
			if !waiting {
				waiting = true
				wait := f.pace()
				if time.Since(last) < wait {
					wait = untilNext(wait)
				} else {
					wait = 0
				}
				due.Reset(wait)
			}
		}
	}
}

// pace is the time between two messages of a stream. What a message costs does not depend on what is in it, and each goes to
// every reader: with more than a few they are fewer.
func (f *feed) pace() time.Duration {
	f.kind.mu.Lock()
	defer f.kind.mu.Unlock()
	pace := f.kind.pace
	for _, slower := range slowerPaces {
		if slower > pace && slower <= f.kind.pace*time.Duration(f.callers)/fewReaders {
			pace = slower
		}
	}
	return pace
}

// take adds what the API server says to the window.
func (f *feed) take(e watch.Event) error {
	if e.Type == watch.Error {
		return apierrors.FromObject(e.Object)
	}
	m, err := meta.Accessor(e.Object)
	if err != nil {
		return err
	}
	version, err := strconv.ParseUint(m.GetResourceVersion(), 10, 64)
	if err != nil {
		return fmt.Errorf("resourceVersion of %s/%s: %w", m.GetNamespace(), m.GetName(), err)
	}
	f.mark.Reach(e.Type, m)
	object := e.Object
	if u, ok := object.(*kube.Unreadable); ok {
		object = u.Object
		if e.Type != watch.Deleted { // to the readers the object is as they saw it last
			f.mu.Lock()
			defer f.mu.Unlock()
			return f.window.bookmark(version)
		}
	}
	event := &wire.RelayEvent{Version: version}
	switch e.Type {
	case watch.Added, watch.Modified:
		event.Type = wire.RelayEvent_SEEN
	case watch.Deleted:
		event.Type = wire.RelayEvent_GONE
	case watch.Bookmark:
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.window.bookmark(version)
	default:
		return fmt.Errorf("event of type %q", e.Type)
	}
	f.kind.relay.metrics.events.WithLabelValues(f.kind.resource).Inc()
	var pack *Pack
	if f.pack != nil {
		pack = f.pack(object)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if pack != nil {
		if f.settles(pack, event.Type) {
			return f.window.bookmark(version)
		}
		event.Packed = pack.Bytes
	}
	if pack == nil || f.whole < math.MaxUint64 {
		if event.Object, err = f.kind.encode(object); err != nil {
			return fmt.Errorf("encode %s/%s: %w", m.GetNamespace(), m.GetName(), err)
		}
	}
	return f.window.add(event, time.Now())
}

// settles reports whether an event says nothing new, and notes what it says.
func (f *feed) settles(pack *Pack, t wire.RelayEvent_Type) bool {
	was, known := f.settled[pack.ID]
	if t == wire.RelayEvent_GONE || !pack.Settled {
		delete(f.settled, pack.ID)
		return false
	}
	f.settled[pack.ID] = pack.Hash
	return known && was == pack.Hash
}

func (f *feed) publish() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.public == f.window.newest {
		return
	}
	f.public = f.window.newest
	close(f.changed)
	f.changed = make(chan struct{})
}

// after returns what comes after a version in one message, and a channel that is closed when there is more.
func (f *feed) after(version uint64, packed bool) (*wire.RelayEvents, <-chan struct{}, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return nil, nil, f.err
	}
	if !packed && version < f.whole {
		return nil, nil, kube.TooOld{Oldest: f.whole}
	}
	events, ok := f.window.after(version, f.public)
	if !ok {
		return nil, nil, kube.TooOld{Oldest: f.window.oldest}
	}
	m := &wire.RelayEvents{Version: max(version, f.public), Events: events}
	if n := len(events); n > 0 {
		m.Version = events[n-1].Version
	}
	return m, f.changed, nil
}

// serve sends what comes after a version until ctx ends, the feed ends, or the reader is too slow.
func (k *kind) serve(ctx context.Context, version uint64, form string, send func(*wire.RelayEvents) error) error {
	f := k.join(version, form)
	defer k.leave(f)
	select {
	case <-f.opened:
	case <-ctx.Done():
		return ctx.Err()
	}
	beat := time.NewTimer(untilNext(heartbeat))
	defer beat.Stop()
	quiet := false // since the last beat
	for taken := false; ; {
		m, changed, err := f.after(version, k.packs(form))
		if old, ok := errors.AsType[kube.TooOld](err); ok {
			k.relay.metrics.refused.WithLabelValues(k.resource).Inc()
			if taken {
				k.relay.log.Info("relay reader is too slow, closing its stream", "resource", k.resource, "version", version, "oldest", old.Oldest)
			}
			return send(&wire.RelayEvents{Oldest: old.Oldest})
		}
		if err != nil {
			return err
		}
		if !taken || m.Version > version {
			if err := send(m); err != nil {
				return err
			}
			taken, quiet, version = true, false, m.Version
			continue // there may be more than one message takes
		}
		select {
		case <-changed:
		case <-beat.C:
			if quiet {
				if err := send(&wire.RelayEvents{Version: version}); err != nil {
					return err
				}
			}
			quiet = true
			beat.Reset(untilNext(heartbeat))
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// untilNext is the time until the clock shows the next multiple of a duration. What different kinds say at such times goes
// in one packet to each reader, and wakes it once.
func untilNext(d time.Duration) time.Duration {
	now := time.Now()
	return now.Truncate(d).Add(d).Sub(now)
}
