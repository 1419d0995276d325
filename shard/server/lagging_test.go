package server

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/api/relay"
	"basalt.dev/basalt/shard/cores"
	"basalt.dev/basalt/shard/event"
	"basalt.dev/basalt/shard/home"
	"basalt.dev/basalt/shard/node"
)

// laggingServer is an API server whose caches lag behind: a list that does not ask for the newest is answered as things were
// long ago, and watches are late. It fails in the ways in which API servers fail. Of pods it has a history, of other kinds
// nothing.
type laggingServer struct {
	mu      sync.Mutex
	rng     *rand.Rand
	faults  bool
	version int
	pods    map[string]*corev1.Pod
	history []watch.Event
	grown   chan struct{}
	slow    time.Duration // how long the answer to a list takes
	gate    chan struct{} // lists are answered once it is closed; nil for at once
	listing chan struct{} // told of each list that has begun
	lists   int
}

func newLaggingServer(seed uint64) *laggingServer {
	return &laggingServer{rng: rand.New(rand.NewPCG(seed, 7)), version: 10, pods: map[string]*corev1.Pod{}, grown: make(chan struct{}), listing: make(chan struct{}, 1000)}
}

// change makes, binds or deletes a pod.
func (s *laggingServer) change(name, node string, deleted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name), ResourceVersion: strconv.Itoa(s.version)}, Spec: corev1.PodSpec{SchedulerName: api.SchedulerName, NodeName: node}}
	kind := watch.Modified
	switch {
	case deleted:
		kind = watch.Deleted
		delete(s.pods, name)
	default:
		if s.pods[name] == nil {
			kind = watch.Added
		}
		s.pods[name] = p
	}
	s.history = append(s.history, watch.Event{Type: kind, Object: p})
	close(s.grown)
	s.grown = make(chan struct{})
}

// now returns where the pods are.
func (s *laggingServer) now() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]string{}
	for name, p := range s.pods {
		out[name] = p.Spec.NodeName
	}
	return out
}

func encode(o runtime.Object) []byte {
	var b bytes.Buffer
	_ = protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(o, &b)
	return b.Bytes()
}

func (s *laggingServer) refuse(w http.ResponseWriter, code int, reason metav1.StatusReason) {
	if code == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "0")
	}
	w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf")
	w.WriteHeader(code)
	_, _ = w.Write(encode(&metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: int32(code), Reason: reason}))
}

func (s *laggingServer) chance(n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.faults && s.rng.IntN(n) == 0
}

func (s *laggingServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	resource := path.Base(r.URL.Path)
	if resource != "pods" {
		s.other(w, r, resource)
		return
	}
	switch {
	case s.chance(8):
		s.refuse(w, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests)
	case s.chance(10):
		s.refuse(w, http.StatusInternalServerError, metav1.StatusReasonInternalError)
	case s.chance(12):
		panic(http.ErrAbortHandler)
	case q.Get("watch") != "":
		s.watch(w, r)
	case q.Has("fieldSelector"):
		s.one(w, r)
	default:
		s.list(w, r)
	}
}

// one lists one pod, as it is in the store or was at a version.
func (s *laggingServer) one(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	s.mu.Lock()
	defer s.mu.Unlock()
	version := s.version
	if q.Get("resourceVersionMatch") == string(metav1.ResourceVersionMatchExact) {
		version, _ = strconv.Atoi(q.Get("resourceVersion"))
	}
	list := &corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}
	list.ResourceVersion = strconv.Itoa(version)
	for _, e := range s.history {
		p := e.Object.(*corev1.Pod)
		if v, _ := strconv.Atoi(p.ResourceVersion); v > version || "metadata.name="+p.Name != q.Get("fieldSelector") {
			continue
		}
		if list.Items = nil; e.Type != watch.Deleted {
			list.Items = []corev1.Pod{*p}
		}
	}
	w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf")
	_, _ = w.Write(encode(list))
}

// other answers for a kind that has no objects.
func (s *laggingServer) other(w http.ResponseWriter, r *http.Request, resource string) {
	if r.URL.Query().Get("watch") != "" {
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return
	}
	switch resource {
	case "v1beta1", "v1": // of scheduling.k8s.io and resource.k8s.io: not served
		http.NotFound(w, r)
	case "queues", "podgroups":
		fmt.Fprint(w, `{"items":[],"metadata":{"resourceVersion":"10"}}`)
	default: // an empty list of any built-in kind looks the same
		_, _ = w.Write(encode(&corev1.NodeList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"}, ListMeta: metav1.ListMeta{ResourceVersion: "10"}}))
	}
}

func (s *laggingServer) list(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	list := &corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}
	s.mu.Lock()
	version := strconv.Itoa(s.version)
	if q.Get("resourceVersion") == "" { // from the store, as it is when the list begins
		for _, p := range s.pods {
			list.Items = append(list.Items, *p)
		}
	} else { // from a cache that lags by more than the test lasts
		version = "10"
	}
	list.ResourceVersion = version
	gate, slow := s.gate, s.slow
	s.lists++
	s.mu.Unlock()
	s.listing <- struct{}{}
	if gate != nil {
		select {
		case <-gate:
		case <-r.Context().Done():
			return
		}
	}
	if q.Get("limit") == "" {
		time.Sleep(slow)
	} else if len(list.Items) > 1 {
		list.Items, list.Continue = list.Items[:1], "more"
	}
	b := encode(list)
	w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf")
	if s.chance(5) && len(b) > 20 { // cut in the middle
		_, _ = w.Write(b[:len(b)/2])
		panic(http.ErrAbortHandler)
	}
	_, _ = w.Write(b)
}

func (s *laggingServer) watch(w http.ResponseWriter, r *http.Request) {
	from, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	seconds, _ := strconv.Atoi(r.URL.Query().Get("timeoutSeconds"))
	if s.chance(6) {
		s.refuse(w, http.StatusGone, metav1.StatusReasonExpired)
		return
	}
	if s.chance(8) {
		s.refuse(w, http.StatusGatewayTimeout, metav1.StatusReasonTimeout) // too large resource version
		return
	}
	w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf;stream=watch")
	w.(http.Flusher).Flush()
	frames := protobuf.LengthDelimitedFramer.NewFrameWriter(w)
	send := func(kind watch.EventType, o runtime.Object) {
		_ = protobuf.NewRawSerializer(scheme.Scheme, scheme.Scheme).Encode(&metav1.WatchEvent{Type: string(kind), Object: runtime.RawExtension{Raw: encode(o)}}, frames)
		w.(http.Flusher).Flush()
	}
	end := time.NewTimer(time.Duration(seconds)*time.Second - 300*time.Millisecond)
	defer end.Stop()
	for {
		s.mu.Lock()
		grown := s.grown
		var events []watch.Event
		for _, e := range s.history {
			p := e.Object.(*corev1.Pod).DeepCopy()
			if v, _ := strconv.Atoi(p.ResourceVersion); v > from {
				p.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
				events = append(events, watch.Event{Type: e.Type, Object: p})
				from = v
			}
		}
		s.mu.Unlock()
		time.Sleep(20 * time.Millisecond) // the watch is late
		for _, e := range events {
			if s.chance(15) {
				send(watch.Error, &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: 410, Reason: metav1.StatusReasonExpired})
				return
			}
			send(e.Type, e.Object)
			if s.chance(15) {
				panic(http.ErrAbortHandler)
			}
		}
		select {
		case <-grown:
		case <-r.Context().Done():
			return
		case <-end.C:
			if !s.chance(3) { // else the bookmark is missing
				bookmark := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}}
				bookmark.ResourceVersion = strconv.Itoa(from)
				send(watch.Bookmark, bookmark)
			}
			return
		}
	}
}

// lagging is the shipping shell in front of such a server, up to what its home core would be told.
type lagging struct {
	*loop
	events chan event.Event
	n      uint64
	told   map[string]string // nodes of pods, by name, as the cores were told
}

func startLagging(t *testing.T, s *laggingServer) *lagging {
	t.Helper()
	server := httptest.NewServer(s)
	clients, err := kube.ConnectConfig(&rest.Config{Host: server.URL}, "test")
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	r := relay.New(relay.Options{Self: "s", Log: log, Registry: prometheus.NewRegistry()}, grpc.NewServer())
	x := &lagging{loop: &loop{self: "s", clients: clients, log: log, metrics: newMetrics(prometheus.NewRegistry()),
		cores: cores.New("s", home.Config{}, node.Config{})},
		events: make(chan event.Event, 100_000), told: map[string]string{}}
	x.watches = &watches{clients: clients, log: log, relay: r, post: func(events []event.Event) {
		for _, ev := range events {
			x.events <- ev
		}
	}}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	t.Cleanup(func() { cancel(); wg.Wait(); r.Close(); server.CloseClientConnections(); server.Close() })
	if err := x.watches.run(ctx, ctx, &wg); err != nil {
		t.Fatal(err)
	}
	wg.Go(func() { x.watches.pods.Run(ctx) })
	return x
}

// ask asks for a list, as a core does that has read the control store.
func (x *lagging) ask(ctx context.Context) {
	x.n++
	x.carryOut(ctx, event.ListPods{Sequence: x.n})
}

// answer waits for the list that answers the last ask, and returns where it says that the pods are, or where the watch
// said it before if it has come as far.
func (x *lagging) answer(t *testing.T, limit time.Duration) map[string]string {
	t.Helper()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			t.Fatalf("list %d is not answered", x.n)
		case ev := <-x.events:
			if listed, ok := ev.(event.PodsListed); ok {
				ev = x.listed(listed)
			}
			x.cores.Home.Step(time.Unix(1, 0), ev)
			x.cores.Home.Outputs()
			switch ev := ev.(type) {
			case event.PodSeen:
				x.told[ev.Pod.Name] = ev.Pod.Node
			case event.PodGone:
				delete(x.told, ev.Name)
			case event.PodsReplaced:
				if !ev.Seen {
					clear(x.told)
				}
				for _, p := range ev.Pods {
					x.told[p.Name] = p.Node
				}
				if ev.Sequence == x.n {
					return maps.Clone(x.told)
				}
			}
		}
	}
}

// A list that began before it was asked for does not answer, however late it comes: what was bound in between would be missing.
func TestTheListBeginsAfterTheQuestion(t *testing.T) {
	s := newLaggingServer(1)
	s.gate = make(chan struct{})
	x := startLagging(t, s)
	<-s.listing // the first list has begun, and is held
	s.change("bound-meanwhile", "n1", false)
	x.ask(t.Context())
	s.mu.Lock()
	gate := s.gate
	s.gate = nil
	s.mu.Unlock()
	close(gate)
	if got := x.answer(t, 30*time.Second); got["bound-meanwhile"] != "n1" {
		t.Fatalf("the answer is %v: it lacks a pod that was bound before it was asked for", got)
	}
}

// Whatever the server does, a list is no older than the question: of each pod it says what was so then, or later.
func TestListsAreNotOlderThanTheQuestion(t *testing.T) {
	for _, test := range []struct {
		what  string
		seeds uint64
		slow  time.Duration
		asks  int
	}{
		{"lists", 6, 0, 8},
		{"lists that take long, so that the watch catches up", 2, 1100 * time.Millisecond, 2}, // see kube.catchUpFrom
	} {
		t.Run(test.what, func(t *testing.T) {
			for seed := range test.seeds {
				t.Run(fmt.Sprint(seed), func(t *testing.T) {
					t.Parallel()
					s := newLaggingServer(seed)
					s.slow = test.slow
					s.change("before", "", false)
					x := startLagging(t, s)
					s.mu.Lock()
					s.faults = true
					s.mu.Unlock()
					rng := rand.New(rand.NewPCG(seed, 3))
					for i := range test.asks {
						for range 1 + rng.IntN(4) {
							name := fmt.Sprint("p", rng.IntN(6))
							switch node, there := s.now()[name]; {
							case !there:
								s.change(name, "", false)
							case node == "":
								s.change(name, "n1", false)
							default:
								s.change(name, "", true)
							}
						}
						want := s.now()
						x.ask(t.Context())
						if got := x.answer(t, time.Minute); !maps.Equal(got, want) {
							t.Fatalf("list %d says %v, want %v", i, got, want)
						}
					}
				})
			}
		})
	}
}

// What a shard makes of each answer to a Binding: only one that says so means that the pod is bound.
func TestBindAnswers(t *testing.T) {
	for code, want := range map[int]event.BindOutcome{
		201: event.BindOK, 409: event.BindConflict, 404: event.BindNotFound,
		0: event.BindUnknown, 401: event.BindUnknown,
		400: event.BindRejected, 403: event.BindRejected, 413: event.BindRejected, 422: event.BindRejected,
		429: event.BindUnknown, 500: event.BindUnknown, 503: event.BindUnknown, 504: event.BindUnknown,
	} {
		t.Run(strconv.Itoa(code), func(t *testing.T) {
			requests := make(chan string, 1)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				var b bytes.Buffer
				_, _ = b.ReadFrom(r.Body)
				select {
				case requests <- r.Method + " " + r.URL.Path + " " + b.String():
				default: // it is asked once more
				}
				if code == 0 {
					panic(http.ErrAbortHandler) // after the write took effect, or not
				}
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(code)
				status := "Failure"
				if code == 201 {
					status = "Success"
				}
				fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":%q,"code":%d}`, status, code)
			}))
			defer server.Close()
			clients, err := kube.ConnectConfig(&rest.Config{Host: server.URL}, "test")
			if err != nil {
				t.Fatal(err)
			}
			l := &loop{clients: clients, log: slog.New(slog.DiscardHandler), metrics: newMetrics(prometheus.NewRegistry())}
			done := l.bind(t.Context(), event.BindPod{Row: event.RowID{PodUID: "the-uid"}, ResourceVersion: "4711",
				Namespace: "ns", Name: "p", Node: "n1", Gang: "g"})
			if done.Outcome != want || done.Row.PodUID != "the-uid" {
				t.Errorf("got %+v, want outcome %d", done, want)
			}
			body := <-requests
			for _, part := range []string{"POST /api/v1/namespaces/ns/pods/p/binding", "the-uid", "4711", "n1"} {
				if !strings.Contains(body, part) {
					t.Errorf("the request lacks %q: %q", part, body)
				}
			}
		})
	}
}
