package console

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"basalt.dev/basalt/api/v1beta1"
)

// cluster stands in for an API server: it knows tokens and rights, and has objects that can be listed and watched. The
// real one is asked in bench/prove/console.
type cluster struct {
	t      *testing.T
	server *httptest.Server

	mu      sync.Mutex
	version int
	gangs   map[string]*v1beta1.PodGroup
	queues  map[string]*v1beta1.Queue
	watches map[chan []byte]string // -> resource
	rights  map[string]map[string]bool
	reviews int
	events  []corev1.Event
	pods    []corev1.Pod
	answer  func(user, path string) (any, error) // of Basalt
}

func startCluster(t *testing.T) *cluster {
	c := &cluster{t: t, gangs: map[string]*v1beta1.PodGroup{}, queues: map[string]*v1beta1.Queue{},
		watches: map[chan []byte]string{}, rights: map[string]map[string]bool{"console": {
			"list podgroups": true, "list queues": true}}}
	c.answer = func(string, string) (any, error) { return nil, answered{503, "nobody answers"} }
	c.server = httptest.NewServer(http.HandlerFunc(c.serve))
	t.Cleanup(func() { c.server.CloseClientConnections(); c.server.Close() })
	return c
}

// may gives a user, whose token has his name, rights such as "list podgroups in a".
func (c *cluster) may(user string, rights ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rights[user] == nil {
		c.rights[user] = map[string]bool{}
	}
	for _, r := range rights {
		c.rights[user][r] = true
	}
}

func (c *cluster) mayNot(user, right string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if delete(c.rights[user], right); right == "" {
		delete(c.rights, user)
	}
}

func (c *cluster) serve(w http.ResponseWriter, r *http.Request) {
	user := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	c.mu.Lock()
	rights, known := c.rights[user]
	c.mu.Unlock()
	say := func(code int, o any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(o)
	}
	if !known {
		say(401, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure",
			Reason: metav1.StatusReasonUnauthorized, Code: 401, Message: "Unauthorized"})
		return
	}
	switch path := r.URL.Path; {
	case strings.HasSuffix(path, "/selfsubjectreviews"):
		say(201, authentication.SelfSubjectReview{TypeMeta: metav1.TypeMeta{Kind: "SelfSubjectReview",
			APIVersion: "authentication.k8s.io/v1"},
			Status: authentication.SelfSubjectReviewStatus{UserInfo: authentication.UserInfo{Username: user}}})
	case strings.HasSuffix(path, "/selfsubjectaccessreviews"):
		var review authorization.SelfSubjectAccessReview
		body, _ := io.ReadAll(r.Body) // protobuf, as client-go likes it
		if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, &review); err != nil {
			c.t.Error(err)
			return
		}
		a := review.Spec.ResourceAttributes
		right := a.Verb + " " + a.Resource
		c.mu.Lock()
		c.reviews++
		review.Status.Allowed = rights[right] || a.Namespace != "" && rights[right+" in "+a.Namespace]
		c.mu.Unlock()
		say(201, review)
	case strings.HasSuffix(path, "/podgroups"), strings.HasSuffix(path, "/queues"):
		c.list(w, r, path[strings.LastIndex(path, "/")+1:])
	case strings.HasSuffix(path, "/pods") && rights["list pods in "+strings.Split(path, "/")[4]]:
		say(200, corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, Items: c.pods})
	case strings.HasSuffix(path, "/events") && rights["list pods in "+strings.Split(path, "/")[4]]:
		say(200, corev1.EventList{TypeMeta: metav1.TypeMeta{Kind: "EventList", APIVersion: "v1"}, Items: c.events})
	case strings.HasSuffix(path, "/nodes") && rights["list nodes"]:
		say(200, nodeTable(map[string]string{"n1": "Ready", "n2": "Ready,SchedulingDisabled", "n3": "NotReady"}))
	default:
		say(403, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure",
			Reason: metav1.StatusReasonForbidden, Code: 403, Message: user + " may not " + path})
	}
}

func nodeTable(nodes map[string]string) metav1.Table {
	table := metav1.Table{TypeMeta: metav1.TypeMeta{Kind: "Table", APIVersion: "meta.k8s.io/v1"},
		ColumnDefinitions: []metav1.TableColumnDefinition{{Name: "Name"}, {Name: "Status"}}}
	for name, status := range nodes {
		raw, _ := json.Marshal(metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name,
			Labels: map[string]string{corev1.LabelTopologyZone: "z<1>"}}})
		table.Rows = append(table.Rows, metav1.TableRow{Cells: []any{name, status},
			Object: runtime.RawExtension{Raw: raw}})
	}
	return table
}

// list answers a list or a watch.
func (c *cluster) list(w http.ResponseWriter, r *http.Request, resource string) {
	in := ""
	if parts := strings.Split(r.URL.Path, "/namespaces/"); len(parts) == 2 {
		in, _, _ = strings.Cut(parts[1], "/")
	}
	w.Header().Set("Content-Type", "application/json")
	c.mu.Lock()
	if r.URL.Query().Get("watch") == "" {
		items := []any{}
		for _, g := range c.gangs {
			if resource == "podgroups" && (in == "" || g.Namespace == in) {
				items = append(items, g)
			}
		}
		for _, q := range c.queues {
			if resource == "queues" {
				items = append(items, q)
			}
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"kind": "List", "apiVersion": v1beta1.SchemeGroupVersion.String(),
			"metadata": map[string]any{"resourceVersion": strconv.Itoa(c.version + 1)}, "items": items})
		c.mu.Unlock()
		return
	}
	events := make(chan []byte, 1000)
	c.watches[events] = resource + " " + in
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.watches, events)
	}()
	w.WriteHeader(200)
	_ = http.NewResponseController(w).Flush()
	for {
		select {
		case e := <-events:
			_, _ = w.Write(e)
			_ = http.NewResponseController(w).Flush()
		case <-r.Context().Done():
			return
		}
	}
}

// put changes an object, and tells those who watch.
func (c *cluster) put(o metav1.Object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.version += 2
	o.SetResourceVersion(strconv.Itoa(c.version + 1))
	resource := "queues "
	switch o := o.(type) {
	case *v1beta1.PodGroup:
		o.TypeMeta = metav1.TypeMeta{Kind: "PodGroup", APIVersion: v1beta1.SchemeGroupVersion.String()}
		resource, c.gangs[o.Namespace+"/"+o.Name] = "podgroups ", o
	case *v1beta1.Queue:
		o.TypeMeta = metav1.TypeMeta{Kind: "Queue", APIVersion: v1beta1.SchemeGroupVersion.String()}
		c.queues[o.Name] = o
	}
	text, err := json.Marshal(map[string]any{"type": "MODIFIED", "object": o})
	if err != nil {
		c.t.Error(err)
	}
	text = append(text, '\n')
	for events, of := range c.watches {
		if of == resource || of == resource+o.GetNamespace() {
			events <- text
		}
	}
}

// began is when gangs were made.
var began = time.Now().Add(-80 * time.Hour).Truncate(time.Second)

// gang makes one that waits, with a message.
func (c *cluster) gang(namespace, name, reason, message string) *v1beta1.PodGroup {
	g := &v1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
		CreationTimestamp: metav1.NewTime(began)},
		Spec: v1beta1.PodGroupSpec{SchedulingPolicy: v1beta1.SchedulingPolicy{
			Gang: v1beta1.GangSchedulingPolicy{MinCount: 2}}},
		Status: &v1beta1.PodGroupStatus{Queue: "research", Pods: 2, Reason: reason, Message: message}}
	c.put(g)
	return g
}

// answered is what Basalt says in place of an answer.
type answered struct {
	code int
	text string
}

func (a answered) Code() int     { return a.code }
func (a answered) Error() string { return a.text }

func (c *cluster) ask(_ context.Context, config *rest.Config, path string, answer any) error {
	c.mu.Lock()
	say := c.answer
	c.mu.Unlock()
	said, err := say(config.BearerToken, path)
	if err != nil {
		return err
	}
	text, err := json.Marshal(said)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, answer)
}

// site is a console, and how browsers reach it.
type site struct {
	*server
	t   *testing.T
	web *httptest.Server
}

func (c *cluster) console(change ...func(*server)) *site {
	c.t.Helper()
	return c.consoleFor("console", true, change...)
}

func (c *cluster) consoleFor(user string, logIn bool, change ...func(*server)) *site {
	c.t.Helper()
	ctx, cancel := context.WithCancel(c.t.Context())
	web := httptest.NewUnstartedServer(nil)
	s, err := newServer(ctx, Options{Config: &rest.Config{Host: c.server.URL, BearerToken: user}, LogIn: logIn,
		Ask: c.ask, Log: slog.New(slog.NewTextHandler(io.Discard, nil))}, web.Listener.Addr().String())
	if err != nil {
		c.t.Fatal(err)
	}
	for _, do := range change {
		do(s)
	}
	if web.Config.Handler = s.handler(); s.TLS != nil { // HTTP/2
		web.EnableHTTP2 = true
		web.StartTLS()
	} else {
		web.Start()
	}
	c.t.Cleanup(func() { cancel(); web.CloseClientConnections(); web.Close() })
	return &site{s, c.t, web}
}

// browser is somebody's.
type browser struct {
	t    *testing.T
	at   string
	http *http.Client
}

func (s *site) browser() *browser {
	jar, _ := cookiejar.New(nil)
	return &browser{s.t, s.web.URL, &http.Client{Jar: jar, Transport: s.web.Client().Transport}}
}

// login returns the browser of a user who has logged in.
func (s *site) login(user string) *browser {
	s.t.Helper()
	b := s.browser()
	r, err := b.http.PostForm(b.at+"/login", url.Values{"token": {user}, "to": {"/work"}})
	if err != nil {
		s.t.Fatal(err)
	}
	r.Body.Close()
	if r.StatusCode != 200 && r.StatusCode != 403 || r.Request.URL.Path != "/work" {
		s.t.Fatalf("log in as %s: %d at %s", user, r.StatusCode, r.Request.URL)
	}
	return b
}

func (b *browser) get(path string) (int, string) {
	b.t.Helper()
	r, err := b.http.Get(b.at + path)
	if err != nil {
		b.t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return r.StatusCode, string(text)
}

// shows fails unless a page has all these words.
func (b *browser) shows(path string, code int, words ...string) string {
	b.t.Helper()
	is, text := b.get(path)
	if is != code {
		b.t.Fatalf("%s: %d, want %d:\n%s", path, is, code, text)
	}
	for _, w := range words {
		if !strings.Contains(text, w) {
			b.t.Errorf("%s does not have %q:\n%s", path, w, text)
		}
	}
	return text
}

// stream reads events of a page, until the test ends or stop is called.
func (b *browser) stream(path string) (events <-chan string, stop func()) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.t.Context())
	request, _ := http.NewRequestWithContext(ctx, http.MethodGet, b.at+"/stream"+path, nil)
	r, err := b.http.Do(request)
	if err != nil {
		b.t.Fatal(err)
	}
	if r.StatusCode != 200 {
		text, _ := io.ReadAll(r.Body)
		b.t.Fatalf("stream of %s: %d %s", path, r.StatusCode, text)
	}
	out := make(chan string, 100)
	go func() {
		defer close(out)
		defer r.Body.Close()
		var pending strings.Builder
		piece := make([]byte, 64<<10)
		for {
			n, err := r.Body.Read(piece)
			pending.Write(piece[:n])
			for {
				text := pending.String()
				event, rest, whole := strings.Cut(text, "\n\n")
				if !whole {
					break
				}
				pending.Reset()
				pending.WriteString(rest)
				if !strings.HasPrefix(event, "retry") {
					out <- event
				}
			}
			if err != nil {
				return
			}
		}
	}()
	b.t.Cleanup(cancel)
	return out, cancel
}

// patience is how long anything may take that must happen. It is no measure.
const patience = 30 * time.Second

// next returns the next event of a kind, "" at the end of the stream.
func next(t *testing.T, events <-chan string, kind string) string {
	t.Helper()
	for {
		select {
		case e, ok := <-events:
			if !ok {
				return ""
			}
			if rest, is := strings.CutPrefix(e, "event: "+kind+"\ndata: "); is {
				var text string
				if err := json.Unmarshal([]byte(rest), &text); err != nil {
					t.Fatalf("%v: %s", err, rest)
				}
				return text
			}
		case <-time.After(patience):
			t.Fatalf("no event %s", kind)
		}
	}
}

// wait waits until something is so.
func wait(t *testing.T, what string, is func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if err = is(); err == nil {
			return
		}
	}
	t.Fatalf("%s: %v", what, err)
}

func has(b *browser, path, words string) func() error {
	return func() error {
		if _, text := b.get(path); !strings.Contains(text, words) {
			return fmt.Errorf("no %q in %s", words, text)
		}
		return nil
	}
}
