package kube_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"path"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/bench/stage/local/localtest"
)

// write is a line of a history: "7 a" writes object a at version 7, "8 -a" deletes it, "9" is about another kind.
type write struct {
	version int
	name    string
	deleted bool
}

func writes(t *testing.T, lines ...string) (all []write) {
	t.Helper()
	for _, l := range lines {
		version, name, _ := strings.Cut(l, " ")
		v, err := strconv.Atoi(version)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, write{v, strings.TrimPrefix(name, "-"), strings.HasPrefix(name, "-")})
	}
	return all
}

// historyServer is an API server that has PodGroups of one namespace. As the real one it takes a watch from a version that
// it has not reached, and shows what comes after that.
type historyServer struct {
	mu        sync.Mutex
	history   []write
	compacted int           // up to here nothing can be read
	changed   chan struct{} // closed when there is more
	cut       chan struct{} // closed when watches break
	lists     int           // of all objects
	reads     int           // of one, or of the version
}

func newHistoryServer(h []write) *historyServer {
	return &historyServer{history: h, changed: make(chan struct{}), cut: make(chan struct{})}
}

func (s *historyServer) add(w ...write) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.history = append(s.history, w...)
	close(s.changed)
	s.changed = make(chan struct{})
}

// restore has the server go on with another history.
func (s *historyServer) restore(h []write, cut bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.history = h
	if !cut {
		return
	}
	close(s.cut)
	s.cut = make(chan struct{})
}

func (s *historyServer) at(version int) (now int, objects map[string]int) {
	objects = map[string]int{}
	for _, w := range s.history {
		if now == 0 || w.version <= version {
			now = w.version
			if w.name != "" {
				objects[w.name] = w.version
			}
			if w.deleted {
				delete(objects, w.name)
			}
		}
	}
	return now, objects
}

const forever = 1 << 30

func (s *historyServer) state() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, objects := s.at(forever)
	return objects
}

func object(name string, version int) string {
	return fmt.Sprintf(`{"apiVersion":"scheduling.basalt.dev/v1beta1","kind":"PodGroup","metadata":{"namespace":"ns","name":%q,"uid":"u-%s","resourceVersion":"%d"}}`, name, name, version)
}

func (s *historyServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	q := r.URL.Query()
	from, _ := strconv.Atoi(q.Get("resourceVersion"))
	if q.Get("watch") != "" {
		s.watch(w, r, from)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	version := forever
	if q.Get("resourceVersionMatch") == "Exact" {
		if version = from; version <= s.compacted {
			w.WriteHeader(http.StatusGone)
			fmt.Fprint(w, `{"kind":"Status","status":"Failure","reason":"Expired","code":410}`)
			return
		}
	}
	now, objects := s.at(version)
	only, one := strings.CutPrefix(q.Get("fieldSelector"), "metadata.name=")
	if one || q.Get("limit") != "" {
		s.reads++
	} else {
		s.lists++
	}
	var items []string
	for name, v := range objects {
		if !one || name == only && strings.HasSuffix(path.Dir(r.URL.Path), "/namespaces/ns") {
			items = append(items, object(name, v))
		}
	}
	fmt.Fprintf(w, `{"apiVersion":"scheduling.basalt.dev/v1beta1","kind":"PodGroupList","metadata":{"resourceVersion":"%d"},"items":[%s]}`, now, strings.Join(items, ","))
}

func (s *historyServer) watch(w http.ResponseWriter, r *http.Request, from int) {
	w.(http.Flusher).Flush()
	short := r.URL.Query().Get("timeoutSeconds") == "3" // of a watch that catches up
	for {
		s.mu.Lock()
		changed, cut := s.changed, s.cut
		var b bytes.Buffer
		now := from
		for _, e := range s.history {
			if e.version <= from {
				continue
			}
			now = e.version
			kind := map[bool]string{false: "MODIFIED", true: "DELETED"}[e.deleted]
			if e.name != "" {
				fmt.Fprintf(&b, `{"type":%q,"object":%s}`+"\n", kind, object(e.name, e.version))
			}
		}
		s.mu.Unlock()
		if from = now; short {
			fmt.Fprintf(&b, `{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"%d"}}}`+"\n", now)
		}
		_, _ = w.Write(b.Bytes())
		w.(http.Flusher).Flush()
		select {
		case <-changed:
		case <-cut:
			panic(http.ErrAbortHandler)
		case <-r.Context().Done():
			return
		}
	}
}

func (s *historyServer) clients(t *testing.T) *kube.Clients {
	t.Helper()
	server := httptest.NewServer(s)
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	c, err := kube.ConnectConfig(&rest.Config{Host: server.URL}, "test")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// histories are what an API server may have when a watch is opened that has come to version 12 of the first one, where the
// newest write of the kind was that of object b at version 11.
var histories = []struct {
	what      string
	history   []string
	compacted int
	restored  bool
	reads     int // that it takes to know
}{
	{"the same", []string{"5 a", "8 b", "11 b", "12"}, 0, false, 1},
	{"the same, further on", []string{"5 a", "8 b", "11 b", "12", "13 c", "14 -a"}, 0, false, 1},
	{"the same, and the newest object was written again", []string{"5 a", "8 b", "11 b", "12", "13 b"}, 0, false, 2},
	{"the same, and the newest object was deleted", []string{"5 a", "8 b", "11 b", "12", "13 -b"}, 0, false, 2},
	{"the same, and too much was compacted to tell", []string{"5 a", "8 b", "11 b", "12", "13 -b"}, 12, false, 1},

	{"an older one", []string{"5 a", "8 b"}, 0, true, 1},
	{"an older one that was written to", []string{"5 a", "8 b", "9 -a", "10 b"}, 0, true, 1},
	{"an older one that has come as far", []string{"5 a", "8 b", "9 c", "12"}, 0, true, 1},
	{"an older one that has come further", []string{"5 a", "8 b", "9 c", "20 c"}, 0, true, 1},
	{"one without the newest object, that has come further", []string{"5 a", "20 c"}, 0, true, 2},
	{"one in which the newest object was deleted", []string{"5 a", "8 b", "9 -b", "20 c"}, 0, true, 2},
	{"one in which the newest object was written later", []string{"5 a", "8 b", "14 b", "20"}, 0, true, 2},
	{"one in which another object was written at that version", []string{"5 a", "8 b", "11 c", "14 b"}, 0, true, 2},
}

// Whether the API server's history is the one that a watch goes on in is known from one request, or from two where the
// newest object that the watch has seen has changed.
func TestRestoredHistories(t *testing.T) {
	for _, test := range histories {
		t.Run(test.what, func(t *testing.T) {
			s := newHistoryServer(writes(t, test.history...))
			s.compacted = test.compacted
			f := kube.Follow(s.clients(t).Basalt, "podgroups", slog.New(slog.DiscardHandler), kube.Handler[*v1beta1.PodGroup]{})
			got, err := f.IsRestored(t.Context(), kube.Mark{Version: "12", Namespace: "ns", Name: "b", Written: "11"})
			if err != nil || got != test.restored || s.reads != test.reads || s.lists != 0 {
				t.Errorf("%v, %v after %d reads and %d lists, want %v after %d reads", got, err, s.reads, s.lists, test.restored, test.reads)
			}
			now, _ := s.at(forever)
			got, err = f.IsRestored(t.Context(), kube.Mark{Version: "12"}) // of a kind that has no objects
			if err != nil || got != (now < 12) {
				t.Errorf("without an object: %v, %v, where the server's version is %d", got, err, now)
			}
		})
	}
}

// scripted is a relay that takes every watch and says what the test says.
type scripted struct {
	mu      sync.Mutex
	open    chan []watch.Event
	changed chan struct{}
}

func (r *scripted) Changed() <-chan struct{} { r.mu.Lock(); defer r.mu.Unlock(); return r.changed }

func (r *scripted) Watch(context.Context, string) (kube.Batches, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return batches(r.open), nil
}

// replace has another relay asked, one that has not come as far as who asks it.
func (r *scripted) replace() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open = make(chan []watch.Event)
	close(r.changed)
	r.changed = make(chan struct{})
}

type batches chan []watch.Event

func (b batches) Stop()                         {}
func (b batches) Batches() <-chan []watch.Event { return b }

// followed is what a follower has told.
type followed struct {
	mu      sync.Mutex
	present map[string]int // versions
	ticket  kube.Ticket
}

func (f *followed) handler(catchUp bool) kube.Handler[*v1beta1.PodGroup] {
	f.present = map[string]int{}
	seen := func(g *v1beta1.PodGroup) { f.present[g.Name], _ = strconv.Atoi(g.ResourceVersion) }
	h := kube.Handler[*v1beta1.PodGroup]{
		Replaced: func(all []*v1beta1.PodGroup, n kube.Ticket) {
			f.mu.Lock()
			defer f.mu.Unlock()
			clear(f.present)
			for _, g := range all {
				seen(g)
			}
			f.ticket = n
		},
		Seen: func(g *v1beta1.PodGroup) { f.mu.Lock(); defer f.mu.Unlock(); seen(g) },
		Gone: func(g *v1beta1.PodGroup) { f.mu.Lock(); defer f.mu.Unlock(); delete(f.present, g.Name) },
	}
	if catchUp {
		h.Current = func(n kube.Ticket) { f.mu.Lock(); defer f.mu.Unlock(); f.ticket = n }
	}
	return h
}

// wait waits until the follower has what the API server has, and has answered a Relist.
func (f *followed) wait(t *testing.T, what string, s *historyServer, ticket kube.Ticket) {
	t.Helper()
	localtest.Wait(t, 30*time.Second, what, func(context.Context) error {
		want := s.state()
		f.mu.Lock()
		defer f.mu.Unlock()
		if !maps.Equal(f.present, want) || f.ticket < ticket {
			return fmt.Errorf("it has %v at ticket %d, the API server has %v", f.present, f.ticket, want)
		}
		return nil
	})
}

// Whoever follows the API server directly, through a relay, or catches up, comes to what there is after a restore, by one
// list, and logs it once.
func TestFollowerAfterARestore(t *testing.T) {
	for _, test := range histories {
		for _, how := range []string{"directly", "through a relay", "catching up"} {
			if !test.restored {
				continue
			}
			t.Run(test.what+"/"+how, func(t *testing.T) {
				s := newHistoryServer(writes(t, "5 a", "8 b", "10"))
				var heard followed
				var log bytes.Buffer
				f := kube.Follow(s.clients(t).Basalt, "podgroups", slog.New(slog.NewTextHandler(&log, nil)), heard.handler(how == "catching up"))
				f.CatchUpAlways()
				relay := &scripted{open: make(chan []watch.Event), changed: make(chan struct{})}
				if how == "through a relay" {
					f.Through(relay)
				}
				ctx, cancel := context.WithCancel(t.Context())
				var wg sync.WaitGroup
				wg.Go(func() { f.Run(ctx) })
				defer wg.Wait()
				defer cancel()
				heard.wait(t, "the first list", s, 0)
				s.add(writes(t, "11 b", "12")...)
				if how == "through a relay" {
					relay.open <- []watch.Event{podGroup(watch.Modified, "b", "11"), podGroup(watch.Bookmark, "", "12")}
				}
				heard.wait(t, "the newest write", s, 0)
				switch how {
				case "directly":
					s.restore(writes(t, test.history...), true)
					heard.wait(t, "what there is after the restore", s, 0)
				case "through a relay":
					s.restore(writes(t, test.history...), true)
					relay.replace()
					heard.wait(t, "what there is after the restore", s, 0)
				case "catching up":
					s.restore(writes(t, test.history...), false)
					heard.wait(t, "what there is after the restore", s, f.Relist())
				}
				// What a watch that goes on shows may be all there is, before the follower knows that it must list.
				localtest.Wait(t, 30*time.Second, "the list after the restore", func(context.Context) error {
					s.mu.Lock()
					defer s.mu.Unlock()
					if s.lists < 2 {
						return fmt.Errorf("%d lists were made", s.lists)
					}
					return nil
				})
				cancel()
				wg.Wait()
				if n := strings.Count(log.String(), "restored"); n != 1 || s.lists != 2 {
					t.Errorf("%d lists were made, and the restore was logged %d times:\n%s", s.lists, n, log.String())
				}
			})
		}
	}
}

func podGroup(kind watch.EventType, name, version string) watch.Event {
	g := &v1beta1.PodGroup{}
	g.Namespace, g.Name, g.ResourceVersion = "ns", name, version
	return watch.Event{Type: kind, Object: g}
}
