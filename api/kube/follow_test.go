package kube

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// place is where a script's follower watches: the API server, or a relay. It answers each request as the script says, and
// writes down what it was asked.
type place struct {
	name    string
	began   time.Time
	isRelay bool
	said    *record

	mu      sync.Mutex
	refuse  error // the answer to the next watches; nil takes them
	open    *watch.FakeWatcher
	changed chan struct{} // of a relay
}

// answer sets the answer to the next watches.
func (p *place) answer(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = err
}

// watch returns the last watch that was taken.
func (p *place) watch() *watch.FakeWatcher {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.open
}

// replace says that the relay is another one now.
func (p *place) replace() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.changed)
	p.changed = make(chan struct{})
}

// record is what happened, in its order.
type record struct {
	mu    sync.Mutex
	lines []string
}

func (r *record) add(line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, line)
}

// take returns what happened since the last call.
func (r *record) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	lines := r.lines
	r.lines = nil
	return lines
}

func (p *place) note(format string, args ...any) {
	p.said.add(fmt.Sprintf("%s %s %s", time.Since(p.began).Round(time.Millisecond), p.name, fmt.Sprintf(format, args...)))
}

func (p *place) ListWithContext(context.Context, metav1.ListOptions) (runtime.Object, error) {
	p.note("list")
	return &v1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "10"}}, nil
}

func (p *place) List(metav1.ListOptions) (runtime.Object, error) { panic("not called") }

func (p *place) Watch(metav1.ListOptions) (watch.Interface, error) { panic("not called") }

func (p *place) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	limit := ""
	if n := *o.TimeoutSeconds; !p.isRelay && (n < 300 || n >= 600) { // that is how long a watch lasts as a rule
		limit = fmt.Sprintf(" for %d s", n)
	}
	p.note("watch from %s%s", o.ResourceVersion, limit)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refuse != nil {
		return nil, p.refuse
	}
	p.open = watch.NewFakeWithChanSize(100, false)
	context.AfterFunc(ctx, p.open.Stop)
	return p.open, nil
}

// relayPlace makes a place a Relay.
type relayPlace struct{ *place }

func (r relayPlace) Changed() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed
}

func (r relayPlace) Watch(ctx context.Context, version string) (Batches, error) {
	w, err := r.WatchWithContext(ctx, metav1.ListOptions{ResourceVersion: version, TimeoutSeconds: new(int64)})
	if err != nil {
		return nil, err
	}
	b := &oneByOne{w, make(chan []watch.Event)}
	go func() {
		defer close(b.batches)
		for e := range w.ResultChan() {
			select {
			case b.batches <- []watch.Event{e}:
			case <-ctx.Done():
				return
			}
		}
	}()
	return b, nil
}

type oneByOne struct {
	watch.Interface
	batches chan []watch.Event
}

func (b *oneByOne) Batches() <-chan []watch.Event { return b.batches }

// following is a follower between an API server and a relay of a script.
type following struct {
	*Follower[*v1.Pod]
	t             *testing.T
	server, relay *place
	said          record // what was asked and told
	start         func() // the first expect does
}

// follow runs a script with a follower. withRelay false is one without a relay.
func follow(t *testing.T, withRelay bool, script func(*following)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		x := &following{t: t}
		began := time.Now()
		x.server = &place{name: "server", began: began, said: &x.said}
		x.relay = &place{name: "relay", isRelay: true, began: began, said: &x.said, changed: make(chan struct{})}
		log := slog.New(slog.DiscardHandler)
		x.Follower = &Follower[*v1.Pod]{
			what: "pods", source: x.server, strip: func(p *v1.Pod) *v1.Pod { return p }, log: log, unread: newUnread("pods", log),
			relist: make(chan struct{}, 1), synced: make(chan struct{}), catchUpFrom: catchUpFrom,
			readMarked: func(_ context.Context, at Mark, _ metav1.ListOptions) (version, written string, err error) {
				return "1000000", at.Written, nil // it was never restored
			},
			listInto: func(ctx context.Context, take func(decoded[*v1.Pod])) (string, error) {
				return listWhole(ctx, x.server, take)
			},
			handle: Handler[*v1.Pod]{
				Replaced: func(_ []*v1.Pod, ticket Ticket) { x.said.add(fmt.Sprint("replaced ", ticket)) },
				Seen:     func(p *v1.Pod) { x.said.add("seen " + p.ResourceVersion) },
				Gone:     func(p *v1.Pod) { x.said.add("gone " + p.ResourceVersion) },
			},
		}
		if withRelay {
			x.Through(relayPlace{x.relay})
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		x.start = sync.OnceFunc(func() { running.Go(func() { x.Run(ctx) }) })
		script(x)
		cancel()
		running.Wait()
	})
}

// expect compares what happened since the last call. Times are left out where want has none.
func (x *following) expect(what string, want ...string) {
	x.t.Helper()
	x.start()
	synctest.Wait()
	var got []string
	for _, s := range x.said.take() {
		if i := strings.Index(s, " server "); i > 0 {
			s = s[i+1:]
		} else if i := strings.Index(s, " relay "); i > 0 {
			s = s[i+1:]
		}
		got = append(got, s)
	}
	if g, w := strings.Join(got, "; "), strings.Join(want, "; "); g != w {
		x.t.Errorf("%s: %q, want %q", what, g, w)
	}
}

func podAt(version int) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: types.UID("u"), ResourceVersion: strconv.Itoa(version)}}
}

func statusOf(code int32, reason metav1.StatusReason) *metav1.Status {
	return &metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason}
}

// Without a relay: a watch that ends goes on from where it was, one that is too old is a new list, and a server that fails, or
// ends each watch at once, is not called in a tight loop.
func TestFollowTheServer(t *testing.T) {
	follow(t, false, func(x *following) {
		x.expect("the start", "server list", "replaced 0", "server watch from 10")
		x.server.watch().Add(podAt(11))
		x.server.watch().Delete(podAt(12))
		x.server.watch().Action(watch.Bookmark, podAt(20))
		x.expect("events", "seen 11", "gone 12")
		time.Sleep(5 * time.Minute)
		x.server.watch().Stop()
		x.expect("it ended after long", "server watch from 20")
		x.server.watch().Stop()
		x.expect("it ended at once")
		time.Sleep(75 * time.Millisecond) // the pause is of 25 to 75 ms
		x.expect("after a pause", "server watch from 20")
		time.Sleep(time.Second)
		x.server.watch().Stop()
		x.expect("it ended after a second", "server watch from 20")
		for _, reason := range []metav1.StatusReason{metav1.StatusReasonExpired, metav1.StatusReasonGone} {
			x.server.watch().Add(podAt(30))
			x.server.watch().Error(statusOf(410, reason))
			x.expect("too old", "seen 30")
			time.Sleep(75 * time.Millisecond)
			x.expect("after a pause", "server list", "replaced 0", "server watch from 10")
		}
	})
}

// A server that says of each list that its version is too old to be watched is asked for a few lists, not for one after the
// other.
func TestFollowAServerWhoseListsAreTooOld(t *testing.T) {
	for _, refused := range []error{apierrors.NewResourceExpired("too old"), apierrors.NewGone("too old")} {
		follow(t, false, func(x *following) {
			x.expect("the start", "server list", "replaced 0", "server watch from 10")
			x.server.answer(refused)
			x.server.watch().Stop()
			time.Sleep(time.Minute)
			synctest.Wait()
			lists := 0
			for _, s := range x.said.take() {
				if strings.HasSuffix(s, "server list") {
					lists++
				}
			}
			if lists < 60/3 || lists > 60+10 {
				t.Errorf("%d lists in a minute", lists)
			}
			x.server.answer(nil)
			time.Sleep(3 * time.Second)
			x.expect("it is mended", "server list", "replaced 0", "server watch from 10")
		})
	}
}

// What a server that goes on failing is asked, and how often.
func TestFollowAServerThatFails(t *testing.T) {
	follow(t, false, func(x *following) {
		x.expect("the start", "server list", "replaced 0", "server watch from 10")
		time.Sleep(time.Minute)
		x.server.answer(errors.New("down"))
		x.server.watch().Error(statusOf(500, metav1.StatusReasonInternalError))
		x.expect("an error")
		time.Sleep(time.Minute)
		synctest.Wait()
		asked := x.said.take()
		for _, s := range asked {
			if !strings.HasSuffix(s, "server watch from 10") {
				t.Fatalf("%q", s)
			}
		}
		if n := len(asked); n < 60/3 || n > 60+10 { // each after at most 3 s and, after the first ones, at least 1 s
			t.Errorf("asked %d times in a minute", n)
		}
		x.server.answer(nil)
		time.Sleep(3 * time.Second)
		x.expect("it answers again", "server watch from 10")
		x.server.watch().Add(podAt(11))
		x.expect("an event", "seen 11")
		x.server.watch().Stop()
		time.Sleep(75 * time.Millisecond)
		x.expect("the pause is short again", "server watch from 11")
	})
}

// A relay is asked first. While it cannot be had the API server is watched, and it is asked again: less and less often.
func TestFollowTheRelay(t *testing.T) {
	follow(t, true, func(x *following) {
		x.expect("the start", "server list", "replaced 0", "relay watch from 10")
		x.relay.watch().Add(podAt(11))
		x.expect("an event", "seen 11")
		x.relay.answer(errors.New("down"))
		x.relay.watch().Stop()
		x.expect("it breaks", "server watch from 11")
		x.server.watch().Add(podAt(12))
		x.expect("an event of the server", "seen 12")
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		var asked []time.Duration
		for _, s := range x.said.take() {
			if at, what, _ := strings.Cut(s, " "); what == "relay watch from 12" {
				d, err := time.ParseDuration(at)
				if err != nil {
					t.Fatal(err)
				}
				asked = append(asked, d)
			}
		}
		// The pauses are between half and one and a half of 0.25, 0.5, 1, 2, 4, 8, 10, 10 s and so on.
		for i, last, pause := 0, time.Duration(0), relayShortest; i < len(asked); i, last, pause = i+1, asked[i], min(2*pause, relayLongest) {
			if wait := asked[i] - last; wait < pause/2-time.Millisecond || wait > pause*3/2+time.Millisecond { // rounded to milliseconds
				t.Errorf("try %d is %s after the one before, want about %s", i, wait, pause)
			}
		}
		if len(asked) < 40 {
			t.Errorf("asked %d times in ten minutes", len(asked))
		}
		// Another relay is asked at once, and the pauses begin anew.
		x.relay.replace()
		x.expect("another relay", "relay watch from 12", "server watch from 12")
		time.Sleep(relayShortest * 3 / 2)
		synctest.Wait()
		if asked := x.said.take(); len(asked) < 2 || !strings.HasSuffix(asked[0], "relay watch from 12") {
			t.Errorf("after the first pause: %q", asked)
		}
		x.relay.answer(nil)
		time.Sleep(time.Second)
		x.expect("it can be had", "relay watch from 12")
		x.relay.watch().Add(podAt(13))
		x.expect("an event", "seen 13")
		x.Relist()
		x.expect("a list is asked for", "server list", "replaced 1", "relay watch from 10")
	})
}

// A relay that has only newer events is asked again once the version is one that it has: nothing is missed, and nobody waits.
func TestFollowARelayThatIsAhead(t *testing.T) {
	follow(t, true, func(x *following) {
		x.relay.answer(TooOld{Oldest: 15})
		x.expect("the start", "server list", "replaced 0", "relay watch from 10", "server watch from 10 for 5 s")
		x.server.watch().Add(podAt(14))
		x.expect("not far enough", "seen 14")
		x.relay.answer(nil)
		x.server.watch().Action(watch.Bookmark, podAt(15))
		x.expect("far enough", "relay watch from 15")
		x.relay.answer(TooOld{Oldest: 100})
		x.relay.watch().Stop()
		x.expect("cut", "server watch from 15")
		time.Sleep(relayShortest * 3 / 2)
		x.expect("it is asked again, and is ahead", "relay watch from 15", "server watch from 15 for 5 s")
		time.Sleep(5 * time.Second)
		x.server.watch().Stop()
		x.expect("only one watch is short", "server watch from 15")
		time.Sleep(time.Minute)
		x.expect("its version is not reached")
		time.Sleep(31 * time.Second)
		x.expect("in the end it is asked all the same", "relay watch from 15", "server watch from 15 for 5 s")
	})
}

// An event that is no object ends the watch, and a list makes up for it.
func TestFollowWhatIsNoObject(t *testing.T) {
	follow(t, true, func(x *following) {
		x.expect("the start", "server list", "replaced 0", "relay watch from 10")
		x.relay.watch().Modify(&metav1.Status{})
		x.expect("from the relay", "server list", "replaced 0", "server watch from 10")
		x.server.watch().Modify(&metav1.Status{})
		time.Sleep(75 * time.Millisecond)
		x.expect("from the server", "server list", "replaced 0", "server watch from 10")
	})
}

// What cannot be read is logged once a version, and what is remembered for that has a bound.
func TestUnreadIsLoggedOnce(t *testing.T) {
	var log bytes.Buffer
	u := newUnread("pods", slog.New(slog.NewTextHandler(&log, nil)))
	object := func(uid, version int) decoded[*v1.Pod] {
		p := podAt(version)
		p.UID = types.UID(fmt.Sprint("u", uid))
		return decoded[*v1.Pod]{object: p, there: true, err: errors.New("test")}
	}
	lines := func(what string, want int) {
		t.Helper()
		if got := bytes.Count(log.Bytes(), []byte("\n")); got != want {
			t.Errorf("%s: %d lines, want %d", what, got, want)
		}
		log.Reset()
	}
	for range 3 {
		note(u, object(1, 1))
	}
	lines("one version", 1)
	note(u, object(1, 2))
	lines("the next version", 1)
	note(u, decoded[*v1.Pod]{object: podAt(1), there: true})
	lines("one that can be read", 0)
	for i := range 3 * maxTold {
		note(u, object(i, 1))
		if len(u.told) > maxTold {
			t.Fatalf("%d versions are remembered", len(u.told))
		}
	}
	log.Reset()
	note(u, object(3*maxTold-1, 1))
	lines("one of those that are remembered", 0)
}
