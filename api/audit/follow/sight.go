package follow

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"basalt.dev/basalt/api/audit"
)

const (
	fresh   = 5 * time.Second // for how long a server's word that we are up to date holds
	catchUp = 2 * time.Second // what a watch that was just opened takes to tell what it has
)

// Sight is what an auditor could see.
type Sight struct {
	From  int64         // the first revision of the control store that was judged
	Gaps  int           // times that revisions were missed: compacted, or another store
	Blind time.Duration // in all, since everything was seen first
}

// sight is the running account of it, under the Auditor's lock.
type sight struct {
	Sight
	newest    int64     // revision of the control store
	store     time.Time // the watch has shown what the control store had then
	revision  int64     // up to there
	mark      int64     // what it had at a later time, 0 for none: the watch has not shown it yet
	marked    time.Time
	apiServer time.Time            // when it last answered
	watches   map[string]time.Time // of kinds of the API server, since when: zero while one is closed
	relists   map[string]int

	seen bool // everything, once
	last time.Time
}

func newSight() sight { return sight{watches: map[string]time.Time{}, relists: map[string]int{}} }

// found takes note of the revision that the control store has at some time.
func (s *sight) found(at time.Time, revision int64) {
	s.newest = revision
	if s.mark == 0 {
		s.mark, s.marked = revision, at
	}
}

// shown takes note of a revision that the watch has shown, or that was read anew.
func (s *sight) shown(r audit.StoreRevision) {
	if r.Snapshot {
		s.revision, s.mark = 0, 0
	}
	s.confirmed(r.Revision)
}

// confirmed takes note that the watch has shown all up to a revision. That alone says nothing about the present: the
// member of the control store that serves the watch may be behind the others.
func (s *sight) confirmed(revision int64) {
	s.revision = max(s.revision, revision)
	if s.mark > 0 && s.revision >= s.mark {
		s.store, s.mark = s.marked, 0
	}
}

// confirm says that all up to a revision was sent.
func (a *Auditor) confirm(ctx context.Context, revision int64) {
	select {
	case a.events <- timed{at: time.Now(), confirmed: revision}:
	case <-ctx.Done():
	}
}

// blind reports whether a stream may be behind, and counts the time of it.
func (s *sight) blind(now time.Time) bool {
	blind := now.Sub(s.store) > fresh || now.Sub(s.apiServer) > fresh
	for _, since := range s.watches {
		blind = blind || since.IsZero() || now.Sub(since) < catchUp
	}
	if s.seen && blind && !s.last.IsZero() {
		s.Blind += now.Sub(s.last)
	}
	s.seen = s.seen || !blind
	s.last = now
	return blind
}

// Sight returns what could be seen so far.
func (a *Auditor) Sight() Sight {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.sight.Sight
}

// askAPIServer asks every second whether it is there: a watch over a connection that is silent does not tell.
func (a *Auditor) askAPIServer(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		within, stop := context.WithTimeout(ctx, 2*time.Second)
		err := a.core.CoreV1().RESTClient().Get().AbsPath("/readyz").Do(within).Error()
		stop()
		if err == nil || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
			a.mu.Lock()
			a.sight.apiServer = time.Now()
			a.mu.Unlock()
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// seeing notes when a kind's watch opens and ends, and when the kind is not served any more.
func (a *Auditor) seeing(kind string, inner *cache.ListWatch) *cache.ListWatch {
	a.mu.Lock()
	a.sight.watches[kind] = time.Time{}
	a.mu.Unlock()
	gone := func(err error) {
		if apierrors.IsNotFound(err) {
			a.mu.Lock()
			delete(a.sight.watches, kind)
			a.mu.Unlock()
		}
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := inner.ListWithContext(ctx, o)
			gone(err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := inner.WatchWithContext(ctx, o)
			if err != nil {
				gone(err)
				return nil, err
			}
			since := time.Now()
			a.mu.Lock()
			a.sight.watches[kind] = since
			a.mu.Unlock()
			return watchedUntil(w, func() {
				a.mu.Lock()
				defer a.mu.Unlock()
				if a.sight.watches[kind].Equal(since) { // else the next one is open
					a.sight.watches[kind] = time.Time{}
				}
			}), nil
		},
		DisableChunking: inner.DisableChunking,
	}
}

// watched passes a watch on.
type watched struct {
	inner watch.Interface
	out   chan watch.Event
	stop  sync.Once
	done  chan struct{}
}

func (w *watched) ResultChan() <-chan watch.Event { return w.out }
func (w *watched) Stop()                          { w.stop.Do(func() { close(w.done) }); w.inner.Stop() }

// watchedUntil passes a watch on, and says when it has ended.
func watchedUntil(inner watch.Interface, ended func()) watch.Interface {
	w := &watched{inner: inner, out: make(chan watch.Event), done: make(chan struct{})}
	go func() {
		defer close(w.out)
		defer ended()
		for e := range inner.ResultChan() {
			select {
			case w.out <- e:
			case <-w.done:
				return
			}
		}
	}()
	return w
}
