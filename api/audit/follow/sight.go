package follow

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

const (
	fresh   = 5 * time.Second // for how long a server's word that we are up to date holds
	catchUp = 2 * time.Second // what a watch that was just opened takes to tell what it has
	watches = 4               // of the API server
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
	store     time.Time // when its watch was last known to be up to date
	revision  int64     // up to there
	apiServer time.Time // when it last answered
	open      map[string]time.Time
	relists   map[string]int

	seen bool // everything, once
	last time.Time
}

func newSight() sight { return sight{open: map[string]time.Time{}, relists: map[string]int{}} }

func (s *sight) confirmed(revision int64) { s.store, s.revision = time.Now(), revision }

// confirm says that all up to a revision was sent.
func (a *Auditor) confirm(ctx context.Context, revision int64) {
	select {
	case a.events <- timed{at: time.Now(), confirmed: revision}:
	case <-ctx.Done():
	}
}

// blind reports whether a stream may be behind, and counts the time of it.
func (s *sight) blind(now time.Time) bool {
	blind := now.Sub(s.store) > fresh || now.Sub(s.apiServer) > fresh || len(s.open) < watches
	for _, since := range s.open {
		blind = blind || now.Sub(since) < catchUp
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

// seeing notes when a kind's watch opens and ends.
func (a *Auditor) seeing(resource string, lw *cache.ListWatch) *cache.ListWatch {
	inner := lw.WatchFuncWithContext
	lw.WatchFunc = nil
	lw.WatchFuncWithContext = func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		w, err := inner(ctx, o)
		if err != nil {
			return nil, err
		}
		a.mu.Lock()
		a.sight.open[resource] = time.Now()
		a.mu.Unlock()
		return a.watched(resource, w), nil
	}
	return lw
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

func (a *Auditor) watched(resource string, inner watch.Interface) watch.Interface {
	w := &watched{inner: inner, out: make(chan watch.Event), done: make(chan struct{})}
	go func() {
		defer func() {
			a.mu.Lock()
			delete(a.sight.open, resource)
			a.mu.Unlock()
			close(w.out)
		}()
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
