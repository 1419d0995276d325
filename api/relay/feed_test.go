package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/api/wire"
)

// upstream is the API server's side of a script: it says what the test says, and writes down who asks.
type upstream struct {
	mu    sync.Mutex
	asked []string
	open  *watch.FakeWatcher
	err   error

	old   bool        // it was restored from an older state
	marks []kube.Mark // that it was asked about
}

func (u *upstream) restored(_ context.Context, at kube.Mark) <-chan struct{} {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.marks = append(u.marks, at)
	answer := make(chan struct{})
	if u.old {
		close(answer)
	}
	return answer
}

func (u *upstream) watch(ctx context.Context, version string) (watch.Interface, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.asked = append(u.asked, version)
	if u.err != nil {
		return nil, u.err
	}
	w := watch.NewFakeWithChanSize(10000, false)
	u.open = w
	context.AfterFunc(ctx, w.Stop)
	return w, nil
}

func (u *upstream) now() (open *watch.FakeWatcher, asked string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.open, strings.Join(u.asked, " ")
}

func namespace(version int) *v1.Namespace {
	return &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "n", ResourceVersion: fmt.Sprint(version)}}
}

const pace = 20 * time.Millisecond

type noServer struct{}

func (noServer) RegisterService(*grpc.ServiceDesc, any) {}

// start makes a relay whose only kind is watched at u, and that asks itself.
func start(u *upstream, maxEvents int) (*Relay, *source) {
	return startLogged(u, maxEvents, slog.DiscardHandler)
}

func startLogged(u *upstream, maxEvents int, log slog.Handler) (*Relay, *source) {
	r := New(Options{Self: "me", Log: slog.New(log), Registry: prometheus.NewRegistry()}, noServer{})
	k := &kind{resource: "namespaces", watch: u.watch, restored: u.restored, encode: encode, relay: r, pace: pace, limits: windowLimits}
	k.limits.maxEvents = maxEvents
	r.kinds[k.resource] = k
	r.Ask("me")
	return r, &source{relay: r, kind: k, decode: func(b []byte) (runtime.Object, error) {
		n := &v1.Namespace{}
		return n, n.Unmarshal(b)
	}}
}

// subscribe opens a watch and returns what it says: versions, "p" before those of packed objects, "-" before those of
// deletions and "b" before bookmarks, and "end".
func subscribe(t *testing.T, s *source, version string) <-chan string {
	t.Helper()
	w, err := s.Watch(t.Context(), version)
	if err != nil {
		t.Fatalf("watch from %s: %v", version, err)
	}
	said := make(chan string, 10000)
	go func() {
		for batch := range w.Batches() {
			for _, e := range batch {
				switch o := e.Object.(type) {
				case *v1.Namespace:
					said <- map[watch.EventType]string{watch.Deleted: "-"}[e.Type] + o.ResourceVersion
				case *kube.Packed:
					said <- map[watch.EventType]string{watch.Deleted: "-"}[e.Type] + "p" + o.Version
				case *metav1.PartialObjectMetadata:
					said <- "b" + o.ResourceVersion
				}
			}
		}
		said <- "end"
	}()
	return said
}

func heard(said <-chan string) string {
	synctest.Wait()
	var all []string
	for {
		select {
		case s := <-said:
			all = append(all, s)
		default:
			return strings.Join(all, " ")
		}
	}
}

// objects splits what was heard into the objects and the version that was reached. Where bookmarks stand between the objects
// depends on which events went together; they may stand anywhere, as long as versions grow.
func objects(t *testing.T, heard string) (seen string, reached uint64) {
	t.Helper()
	var all []string
	for _, s := range strings.Fields(heard) {
		version, err := strconv.ParseUint(strings.TrimLeft(s, "b-"), 10, 64)
		if err != nil || version <= reached {
			t.Errorf("%q: %s after version %d", heard, s, reached)
		}
		if reached = version; s[0] != 'b' {
			all = append(all, s)
		}
	}
	return strings.Join(all, " "), reached
}

func expect(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func tooOld(t *testing.T, s *source, version string, oldest uint64) {
	t.Helper()
	_, err := s.Watch(t.Context(), version)
	if old, ok := errors.AsType[kube.TooOld](err); !ok || old.Oldest != oldest {
		t.Errorf("watch from %s: %v, want too old, %d is the oldest", version, err, oldest)
	}
}

// One watch of the API server serves many, each from its own version.
func TestOneWatchServesAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &upstream{}
		r, s := start(u, 5)
		defer r.Close()

		first := subscribe(t, s, "10")
		up, asked := u.now()
		expect(t, "watches of the API server", asked, "10")
		up.Add(namespace(11))
		up.Modify(namespace(13))
		up.Delete(namespace(14))
		time.Sleep(2 * pace)
		expect(t, "events", heard(first), "11 13 -14")

		expect(t, "resumed in the middle", heard(subscribe(t, s, "12")), "13 -14")
		tooOld(t, s, "9", 10)
		ahead := subscribe(t, s, "15") // its own list was newer than what the relay has seen
		expect(t, "ahead", heard(ahead), "")
		up.Modify(namespace(15)) // in that list already
		up.Modify(namespace(16))
		time.Sleep(2 * pace)
		expect(t, "ahead", heard(ahead), "16")
		expect(t, "events", heard(first), "15 16")

		up.Action(watch.Bookmark, namespace(40))
		time.Sleep(2 * pace)
		expect(t, "bookmark", heard(first), "b40")
		expect(t, "bookmark", heard(ahead), "b40")
		up.Modify(namespace(41))
		time.Sleep(2 * pace)
		expect(t, "events", heard(first), "41")
		tooOld(t, s, "10", 11) // the window has five
		expect(t, "resumed at its end", heard(subscribe(t, s, "11")), "13 -14 15 16 41")

		_, asked = u.now()
		expect(t, "watches of the API server", asked, "10")
	})
}

// Servers end every watch now and then: the relay's goes on, and nobody notices.
func TestWatchEndsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &upstream{}
		r, s := start(u, 100)
		defer r.Close()
		said := subscribe(t, s, "10")
		up, _ := u.now()
		time.Sleep(5 * time.Minute)
		up.Add(namespace(20))
		synctest.Wait()
		up.Stop()
		synctest.Wait()
		up, asked := u.now()
		expect(t, "watches of the API server", asked, "10 20")
		up.Modify(namespace(21))
		time.Sleep(2 * pace)
		expect(t, "events", heard(said), "20 21")
		if want := []kube.Mark{{Version: "20", Name: "n", Written: "20"}}; !slices.Equal(u.marks, want) {
			t.Errorf("the API server was asked whether its history contains %+v, want %+v", u.marks, want)
		}
		time.Sleep(time.Second - 2*pace) // one that lasted for a second did not end at once
		up.Stop()
		synctest.Wait()
		up, asked = u.now()
		expect(t, "watches of the API server", asked, "10 20 21")
		up.Modify(namespace(22))
		time.Sleep(2 * pace)
		expect(t, "events", heard(said), "22")
	})
}

// The more readers a kind has, the fewer messages go to each.
func TestPaceOfManyReaders(t *testing.T) {
	for _, c := range []struct {
		pace    time.Duration
		readers int
		want    time.Duration
	}{
		{20, 0, 20}, {20, 1, 20}, {20, 7, 20}, {20, 8, 50}, {20, 14, 50}, {20, 15, 100}, {20, 1000, 100},
		{50, 3, 50}, {50, 5, 50}, {50, 6, 100}, {50, 1000, 100}, {100, 1000, 100}, {200, 1000, 200},
	} {
		f := &feed{kind: &kind{pace: c.pace * time.Millisecond}, callers: c.readers}
		if got := f.pace(); got != c.want*time.Millisecond {
			t.Errorf("%d readers at %d ms: %s, want %d ms", c.readers, c.pace, got, c.want)
		}
	}
}

// Why a watch failed is in the log, and that it was ended is not.
func TestFailedWatchesAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &upstream{}
		var log strings.Builder
		r, s := startLogged(u, 100, slog.NewTextHandler(&log, nil))
		said := subscribe(t, s, "10")
		up, _ := u.now()
		up.Error(&metav1.Status{Status: metav1.StatusFailure, Code: 410, Reason: metav1.StatusReasonExpired, Message: "the-reason"})
		expect(t, "the stream", heard(said), "end")
		again := subscribe(t, s, "10")
		r.Close()
		expect(t, "the stream", heard(again), "end")
		if n := strings.Count(log.String(), "\n"); n != 1 || !strings.Contains(log.String(), "the-reason") {
			t.Errorf("the log says %s", &log)
		}
	})
}

// With any doubt every stream ends, and whoever comes next begins anew, from its own version.
func TestDoubtEndsEveryStream(t *testing.T) {
	gone := &metav1.Status{Status: metav1.StatusFailure, Code: 410, Reason: metav1.StatusReasonExpired}
	for what, doubt := range map[string]func(*upstream, *watch.FakeWatcher){
		"expired":           func(_ *upstream, w *watch.FakeWatcher) { w.Error(gone) },
		"a version again":   func(_ *upstream, w *watch.FakeWatcher) { w.Modify(namespace(12)) },
		"an older version":  func(_ *upstream, w *watch.FakeWatcher) { w.Modify(namespace(11)) },
		"an older bookmark": func(_ *upstream, w *watch.FakeWatcher) { w.Action(watch.Bookmark, namespace(11)) },
		"no number":         func(_ *upstream, w *watch.FakeWatcher) { n := namespace(0); n.ResourceVersion = "a1"; w.Modify(n) },
		"ended at once":     func(_ *upstream, w *watch.FakeWatcher) { w.Stop() },
		"another kind":      func(_ *upstream, w *watch.FakeWatcher) { w.Modify(&metav1.Status{}) },
		"restored from an older state": func(u *upstream, w *watch.FakeWatcher) {
			u.old = true
			time.Sleep(time.Minute)
			w.Stop()
		},
		"cannot be continued": func(u *upstream, w *watch.FakeWatcher) {
			u.err = errors.New("refused")
			time.Sleep(time.Minute)
			w.Stop()
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				u := &upstream{}
				r, s := start(u, 100)
				defer r.Close()
				a, b := subscribe(t, s, "10"), subscribe(t, s, "11")
				up, _ := u.now()
				up.Add(namespace(12))
				time.Sleep(2 * pace)
				doubt(u, up)
				synctest.Wait()
				expect(t, "first", heard(a), "12 end")
				expect(t, "second", heard(b), "12 end")
				u.mu.Lock()
				u.err, u.asked = nil, nil
				u.mu.Unlock()
				again := subscribe(t, s, "12")
				up, asked := u.now()
				expect(t, "watches of the API server", asked, "12")
				up.Add(namespace(13))
				time.Sleep(2 * pace)
				expect(t, "again", heard(again), "13")
				tooOld(t, s, "11", 12)
			})
		})
	}
}

// A watch that the API server does not answer is not waited for.
func TestUnansweredWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &upstream{err: errors.New("refused")}
		r, s := start(u, 100)
		defer r.Close()
		if _, err := s.Watch(t.Context(), "10"); err == nil {
			t.Error("a watch was had from a relay that has none")
		}
		s.kind.watch = func(ctx context.Context, _ string) (watch.Interface, error) { <-ctx.Done(); return nil, ctx.Err() }
		began := time.Now()
		if _, err := s.Watch(t.Context(), "10"); err == nil || time.Since(began) > patience {
			t.Errorf("%v after %s", err, time.Since(began))
		}
	})
}

// served is a stream to a peer that ends with its first message.
type served struct {
	grpc.ServerStreamingServer[wire.RelayEvents]
	ctx  context.Context
	sent int
}

func (s *served) Context() context.Context { return s.ctx }

func (s *served) Send(*wire.RelayEvents) error { s.sent++; return errors.New("the peer is gone") }

// A request that is meant for another incarnation, or for a kind that is not relayed, is refused.
func TestRequestsOfPeers(t *testing.T) {
	r, _ := start(&upstream{}, 10)
	defer r.Close()
	for _, c := range []struct {
		to, resource string
		code         codes.Code
		sent         int
	}{
		{"me", "namespaces", codes.Unavailable, 1}, {"before", "namespaces", codes.FailedPrecondition, 0}, {"", "namespaces", codes.FailedPrecondition, 0}, {"me", "pods", codes.NotFound, 0},
	} {
		stream := &served{ctx: t.Context()}
		err := r.Watch(&wire.RelayRequest{To: c.to, Resource: c.resource, Version: 10}, stream)
		if status.Code(err) != c.code || stream.sent != c.sent {
			t.Errorf("%+v: %v after %d messages", c, err, stream.sent)
		}
	}
}

// A relay whose address is not known yet is not dialled, and neither is one that is no longer to be asked.
func TestRelayThatCannotBeDialled(t *testing.T) {
	r, s := start(&upstream{}, 10)
	defer r.Close()
	address := ""
	r.opts.Address = func(api.Incarnation) string { return address }
	var dialled []string
	r.opts.Dial = func(who api.Incarnation, address string) (*grpc.ClientConn, error) {
		dialled = append(dialled, string(who)+" at "+address)
		return nil, errors.New("test")
	}
	r.Ask("other")
	for _, c := range []struct{ address, want string }{{"", "the address of relay other is not known"}, {"a:1", "test"}} {
		address = c.address
		if _, err := s.Watch(t.Context(), "10"); err == nil || err.Error() != c.want {
			t.Errorf("at %q: %v", address, err)
		}
	}
	if _, err := r.dial("another"); err == nil {
		t.Error("a relay was dialled that is not to be asked")
	}
	r.Ask("")
	if _, err := s.Watch(t.Context(), "10"); err == nil {
		t.Error("nobody is to be asked, and a watch was had")
	}
	if got := strings.Join(dialled, ", "); got != "other at a:1" {
		t.Errorf("dialled %s", got)
	}
	r.cancel()
	r.mu.Lock()
	r.from = "other"
	r.mu.Unlock()
	if _, err := r.dial("other"); err == nil || len(dialled) != 1 {
		t.Errorf("dialled after the end: %v", err)
	}
}

// Events that come together go in one message; the first after a pause waits for nothing.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &upstream{}
		r, s := start(u, 100000)
		defer r.Close()
		var sizes []int
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			done <- s.kind.serve(ctx, 0, "", func(m *wire.RelayEvents) error {
				if len(m.Events) > 0 {
					sizes = append(sizes, len(m.Events))
				}
				return nil
			})
		}()
		synctest.Wait()
		up, _ := u.now()
		time.Sleep(time.Minute)
		began := time.Now()
		for v := range 2000 { // 2,000 a second
			up.Modify(namespace(v + 1))
			time.Sleep(500 * time.Microsecond)
		}
		took := time.Since(began)
		time.Sleep(2 * pace)
		cancel()
		<-done
		all := 0
		for _, n := range sizes {
			all += n
		}
		if all != 2000 || sizes[0] != 1 || len(sizes) > int(took/pace)+2 {
			t.Errorf("%d events in %d messages in %s, %d in the first", all, len(sizes), took, sizes[0])
		}
	})
}

// More than one message takes comes in several, and nothing is left out between them.
func TestManyAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &upstream{}
		r, s := start(u, 100000)
		defer r.Close()
		said := subscribe(t, s, "0")
		up, _ := u.now()
		for v := range 3 * batchEvents {
			up.Modify(namespace(v + 1))
		}
		time.Sleep(2 * pace)
		all := strings.Fields(heard(said))
		for i, version := range all {
			if version != fmt.Sprint(i+1) {
				t.Fatalf("version %s is number %d", version, i+1)
			}
		}
		if len(all) != 3*batchEvents {
			t.Fatalf("%d events", len(all))
		}
	})
}

// Who reads slower than events come is cut and told from which version on there is something; the others go on.
func TestSlowReaderIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &upstream{}
		r, s := start(u, 10)
		defer r.Close()
		said := subscribe(t, s, "0")
		var slow []string
		resume := make(chan struct{})
		done := make(chan error)
		go func() {
			done <- s.kind.serve(t.Context(), 0, "", func(m *wire.RelayEvents) error {
				if len(m.Events) > 0 {
					slow = append(slow, fmt.Sprint(m.Events[0].Version, "..", m.Version))
					<-resume
				}
				if m.Oldest != 0 {
					slow = append(slow, fmt.Sprint("oldest ", m.Oldest))
				}
				return nil
			})
		}()
		synctest.Wait()
		up, _ := u.now()
		for v := range 31 {
			up.Modify(namespace(v + 1))
			time.Sleep(2 * pace)
		}
		close(resume)
		if err := <-done; err != nil {
			t.Error(err)
		}
		expect(t, "slow", strings.Join(slow, ", "), "1..1, oldest 21")
		if n := len(strings.Fields(heard(said))); n != 31 {
			t.Errorf("the other one heard %d events", n)
		}
	})
}

// A stream says something every second, so that one that says nothing is given up; and a watch that nobody asks for ends.
func TestSilenceAndLinger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &upstream{}
		r, s := start(u, 10)
		defer r.Close()

		said := subscribe(t, s, "5")
		time.Sleep(10 * time.Minute)
		expect(t, "in ten quiet minutes", heard(said), "")
		r.Ask("") // the follower would stop its watch now
		r.Ask("me")

		ctx, cancel := context.WithCancel(t.Context())
		mute := make(chan *wire.RelayEvents, 1)
		mute <- &wire.RelayEvents{Version: 5}
		w := &stream{batches: make(chan []watch.Event), cancel: cancel}
		began := time.Now()
		err := s.pump(ctx, w, 5, &wire.RelayEvents{Version: 5}, limited(cancel, func() (*wire.RelayEvents, error) {
			select {
			case m := <-mute:
				return m, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}))
		if err == nil || time.Since(began) != silence {
			t.Errorf("a mute relay: %v after %s", err, time.Since(began))
		}
	})
	synctest.Test(t, func(t *testing.T) {
		u := &upstream{}
		r, s := start(u, 10)
		defer r.Close()
		for _, pause := range []time.Duration{linger / 2, linger / 2, 2 * linger} {
			w, err := s.Watch(t.Context(), "5")
			if err != nil {
				t.Fatal(err)
			}
			w.Stop()
			time.Sleep(pause)
			synctest.Wait()
		}
		expect(t, "watches of the API server", func() string { _, a := u.now(); return a }(), "5")
		heard(subscribe(t, s, "7"))
		expect(t, "watches of the API server", func() string { _, a := u.now(); return a }(), "5 7")
	})
}

// What a relay says is checked: an event that is not after the one before ends the watch.
func TestBadRelay(t *testing.T) {
	good, _ := namespace(0).Marshal()
	wentOn := errors.New("went on")
	for what, m := range map[string]*wire.RelayEvents{
		"an event of the past": {Version: 9, Events: []*wire.RelayEvent{{Type: wire.RelayEvent_SEEN, Version: 5, Object: good}}},
		"no order":             {Version: 9, Events: []*wire.RelayEvent{{Type: wire.RelayEvent_SEEN, Version: 7, Object: good}, {Type: wire.RelayEvent_SEEN, Version: 6, Object: good}}},
		"not an object":        {Version: 9, Events: []*wire.RelayEvent{{Type: wire.RelayEvent_SEEN, Version: 9, Object: []byte("?")}}},
		"no type":              {Version: 9, Events: []*wire.RelayEvent{{Version: 9, Object: good}}},
		"an empty event":       {Version: 9, Events: []*wire.RelayEvent{nil}},
		"cut":                  {Oldest: 9},
	} {
		r, s := start(&upstream{}, 10)
		defer r.Close()
		w := &stream{batches: make(chan []watch.Event, 10)}
		messages := []*wire.RelayEvents{m}
		err := s.pump(t.Context(), w, 5, &wire.RelayEvents{Version: 5}, func() (*wire.RelayEvents, error) {
			if len(messages) == 0 {
				return nil, wentOn
			}
			m := messages[0]
			messages = messages[1:]
			return m, nil
		})
		if errors.Is(err, wentOn) {
			t.Errorf("%s: the watch went on", what)
		}
	}
}

// An object that cannot be read does not stop its kind: readers keep what they saw of it last, and hear when it is gone.
func TestUnreadableObjectsAreLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &upstream{}
		r, s := start(u, 10)
		defer r.Close()

		said := subscribe(t, s, "10")
		up, _ := u.now()
		unreadable := func(version int) *kube.Unreadable {
			return &kube.Unreadable{Object: namespace(version), Err: errors.New("test")}
		}
		up.Add(namespace(11))
		up.Modify(unreadable(12))
		up.Modify(namespace(13))
		up.Modify(unreadable(14))
		up.Delete(unreadable(15))
		up.Modify(unreadable(16))
		time.Sleep(time.Second)
		seen, reached := objects(t, heard(said))
		expect(t, "a reader", seen, "11 13 -15")
		expect(t, "the version that it reached", fmt.Sprint(reached), "16")
		_, asked := u.now()
		expect(t, "watches of the API server", asked, "10")
		seen, reached = objects(t, heard(subscribe(t, s, "12")))
		expect(t, "a reader from the version of one that was left out", seen, "13 -15")
		expect(t, "the version that it reached", fmt.Sprint(reached), "16")
	})
}
