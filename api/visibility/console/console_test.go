package console

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/visibility"
)

// tenant gives a user what a tenant of a namespace has.
func (c *cluster) tenant(user, namespace string) {
	for _, right := range []string{"list podgroups", "get podgroups", "list pods"} {
		c.may(user, right+" in "+namespace)
	}
}

// TestIsolation: a viewer of one namespace is answered the same, on every page and in every stream, whether or not
// another namespace has something in it.
func TestIsolation(t *testing.T) {
	const secret = "covert"
	queue := &v1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Name: "covert-queue"}}
	asks := []string{
		"/work",
		"/work?n=a",
		"/work?n=b",
		"/work?n=a,b",
		"/work?n=a&text=covert",
		"/work?n=a&reason=CovertReason",
		"/work?n=a&show=waits&page=2",
		"/work?n=a&sort=place",
		"/work?n=a&planned=queue=covert-queue,cpu=1",
		"/gangs/b/NAME",
		"/gangs/b/NAME?change=covert-queue:weight=2",
		"/gangs/a/NAME",
		"/gangs/b/none",
		"/queues",
		"/queues?n=a",
		"/queues?n=b",
		"/queues?n=a&under=QUEUE",
		"/queues/QUEUE",
		"/queues/QUEUE?n=a",
		"/queues/QUEUE?n=b",
		"/queues/QUEUE?n=a&change=covert-queue:weight=2",
		"/cluster",
		"/cluster/cells",
		"/cluster?resource=cpu",
		"/cluster/cells?resource=cpu",
		"/queues/QUEUE?n=a&change=covert-queue:weight=2&asked=covert-queue@7",
		"/work?n=a&asked=covert-queue@7",
		"/gangs/a/mine?asked=covert-queue@7",
		"/",
		"/assets/console.js",
		"/nothing",
		"/login",
		"/readyz",
	}
	var before map[string]string
	for _, there := range []bool{false, true} {
		c := startCluster(t)
		c.tenant("system:serviceaccount:a:viewer", "a")
		c.gang("a", "mine", "QuotaExceeded", "queue is full")
		if there {
			c.gang("b", "covert-gang", "CovertReason", "covert words")
			c.put(queue)
		}
		c.answer = func(user, path string) (any, error) { // as package visibility does: the same whether there is one
			switch {
			case strings.HasPrefix(path, "/namespaces/a/queues?"), path == "/namespaces/a/queues":
				return visibility.UsableQueues{Namespace: "a", Queues: []visibility.QueueStands{{Queue: "open"}}}, nil
			case path == "/namespaces/a/gangs/mine/why":
				return visibility.Why{Namespace: "a", Name: "mine", Message: "queue is full"}, nil
			}
			if strings.HasPrefix(path, "/namespaces/b/gangs/") { // it is not even asked, or the object would speak
				return nil, answered{503, "no"}
			}
			return nil, answered{403, "no"}
		}
		s := c.console(func(s *server) { s.timing.streamEach = 5 * time.Millisecond })
		b := s.login("system:serviceaccount:a:viewer")
		wait(t, "the list", has(b, "/work?n=a", "mine"))
		said := map[string]string{}
		for _, path := range asks {
			path = strings.NewReplacer("NAME", "covert-gang", "QUEUE", "covert-queue").Replace(path)
			code, text := b.get(path)
			said[path] = fmt.Sprint(code, " ", text)
			if code >= 500 {
				t.Errorf("%s: %d %s", path, code, text)
			}
			if p, _, _ := strings.Cut(path, "?"); strings.HasPrefix(p, "/work") || strings.HasPrefix(p, "/gangs") ||
				strings.HasPrefix(p, "/queues") || p == "/cluster" {
				events, stop := b.stream(path)
				said["stream "+path] = <-events
				stop()
			}
		}
		for path, text := range said {
			echo := strings.NewReplacer("covert-gang", "", "covert-queue", "", "text=covert", "",
				`"covert"`, "", `\"covert\"`, "",
				"CovertReason", "").
				Replace(text)
				// what was asked may be repeated
			if strings.Contains(echo, secret) {
				t.Errorf("%s tells a stranger:\n%s", path, text)
			}
			if there && text != before[path] {
				t.Errorf("%s tells whether there is something:\n%s\nbefore\n%s", path, text, before[path])
			}
		}
		before = said
		// A stream is silent while others' gangs change.
		quiet, _ := b.stream("/queues?n=a")
		next(t, quiet, "main")
		defer func() {
			select {
			case e := <-quiet:
				t.Errorf("the stream of queues says %s", e)
			default:
			}
		}()
		events, stop := b.stream("/work?n=a")
		first := next(t, events, "main")
		if !strings.Contains(first, "mine") {
			t.Errorf("the stream says %s", first)
		}
		for i := range 20 {
			c.gang("b", "covert-gang", "CovertReason", fmt.Sprint("covert words ", i))
			c.put(&v1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Name: "covert-queue", Generation: int64(i)}})
		}
		c.gang("a", "mine", "QuotaExceeded", "and now this")
		if e := <-events; !strings.Contains(e, "and now this") {
			t.Errorf("the stream says %s", e)
		}
		stop()
	}
}

// TestWords: what a page says are the words of why, escaped.
func TestWords(t *testing.T) {
	c := startCluster(t)
	c.tenant("u", "a")
	evil := "<script>alert(1)</script> \u202Eevil\u202C & \"more\"\x07"
	name := strings.Repeat("n", 63)
	g := c.gang("a", name, "QuotaExceeded", evil)
	g.Status.Position = 3
	c.put(g)
	c.events = []corev1.Event{{Reason: v1beta1.ReasonPreempted, Message: "for " + evil,
		LastTimestamp: metav1.NewTime(time.Now().Add(-time.Minute))}}
	c.pods = []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: name + "-0"}, Spec: corev1.PodSpec{NodeName: "node-7"}}}
	at := time.Now().Add(time.Hour)
	why := visibility.Why{Namespace: "a", Name: name, Gang: "PodGroup a/" + name, Message: evil, Queue: "research",
		Created: g.CreationTimestamp.Time, Next: "it is admitted <soon>", Pods: 2, MinCount: 2, Position: 3, Waiting: 7,
		Standing: visibility.Standing{Eviction: "2 gangs are evicted for it", At: &at}}
	c.answer = func(_, path string) (any, error) {
		if strings.Contains(path, "/what-if?") {
			return visibility.WhatIf{Changes: []string{"research:weight=3"}}, nil
		}
		return why, nil
	}
	s := c.console()
	b := s.login("u")
	wait(t, "the list", has(b, "/work?n=a", name))
	safe := "&lt;script&gt;alert(1)&lt;/script&gt; \uFFFDevil\uFFFD &amp; &#34;more&#34;\uFFFD"
	text := b.shows("/work?n=a", 200, safe, `<a href="/gangs/a/`+name+`">`, `data-l="place">3<`)
	page := b.shows("/gangs/a/"+name+"?change=research:weight=3%0D%0Aresearch:capability.cpu=80", 200, safe, "node-7",
		"evicted", "Expected to start in ", "2 gangs are evicted for it", "Nothing was changed.",
		`kubectl patch bq research --type=merge -p &#39;{&#34;spec&#34;:{&#34;capability&#34;:{&#34;cpu&#34;:&#34;80&#34;},`+
			`&#34;weight&#34;:3}}&#39;`)
	for _, row := range why.Rows(time.Now(), true) {
		if row.What != "since" && row.What != "claims" &&
			!strings.Contains(page, strings.NewReplacer("<", "&lt;", ">", "&gt;").Replace(row.Text)) {
			t.Errorf("the page does not say %q", row.Text)
		}
	}
	for _, text := range []string{text, page} {
		if strings.Contains(text, "<script>alert") || strings.Contains(text, "\u202E") {
			t.Error("a message is not escaped")
		}
	}
	b.shows("/gangs/a/"+strings.Repeat("x", 253), 200, strings.Repeat("x", 253)) // a pod's name
	b.shows("/gangs/a/"+strings.Repeat("x", 254), 400)
	b.shows("/gangs/a/%3Cb%3E", 400)
	b.shows("/work?n=%3Cb%3E", 400, "&lt;b&gt;")
	b.shows("/work?n="+strings.Repeat("x", maxQuery), 414)

	t.Run("while Basalt does not answer", func(t *testing.T) {
		c.mu.Lock()
		c.answer = func(string, string) (any, error) { return nil, answered{503, "no shard is <ready>"} }
		c.mu.Unlock()
		b.shows("/gangs/a/"+name, 200, "Basalt could not be asked", "no shard is &lt;ready&gt;", safe)
		b.shows("/gangs/a/none", 503, "no shard is &lt;ready&gt;")
	})
}

// TestNames: names as long as they may be, and what users may be called, are text.
func TestNames(t *testing.T) {
	c := startCluster(t)
	const user = "<b>\u202Eeve\u2066&amp;"
	c.may(user, "list podgroups", "get podgroups", "list pods in a", "list queues", "get queues", "list shards",
		"list nodes")
	long := strings.Repeat("n", 63) + strings.Repeat("."+strings.Repeat("m", 62), 3) + "x"
	path := strings.Repeat("q", api.MaxPathLength)
	if len(long) != 253 {
		t.Fatal(len(long))
	}
	g := c.gang("a", long, "QuotaExceeded", "so")
	g.Status.Queue = path
	c.put(g)
	c.put(&v1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Name: path}, Status: &v1beta1.QueueStatus{
		Charged:    corev1.ResourceList{"<i>\u202E/x": resource.MustParse("1")},
		Conditions: []metav1.Condition{{Type: "Ready", Status: "False", Reason: "<u>\u202E", Message: "<s>\u202E"}}}})
	c.events = []corev1.Event{{Reason: "<u>\u202E", Message: "<s>\u202E"}}
	c.pods = []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: long}, Status: corev1.PodStatus{
		Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: "False", Reason: "<u>\u202E"}}}}}
	c.answer = func(_, path string) (any, error) {
		switch {
		case path == "/nodes":
			return visibility.NodeShares{Resources: []string{"<i>\u202E/x"}}, nil
		case strings.HasPrefix(path, "/status"):
			return visibility.Status{Coordinator: &visibility.Coordinator{Name: "<u>", Error: "<s>\u202E"},
				Shards: []visibility.Shard{{Name: "<u>", Error: "<s>\u202E"}},
				Table:  &visibility.Table{Changes: []visibility.Change{{Shard: "<u>\u202E"}}},
				Gangs:  []visibility.Gang{{Gang: "a/" + long, Message: "<s>\u202E", Queue: path}}}, nil
		}
		return nil, answered{503, "<s>\u202E"}
	}
	s := c.console()
	b := s.login(user)
	wait(t, "the list", has(b, "/work", long))
	wait(t, "the queues", has(b, "/queues", path))
	for _, path := range []string{"/work", "/work?text=%3Cu%3E%E2%80%AE", "/work?reason=%3Cu%3E%E2%80%AE",
		"/gangs/a/" + long,
		"/gangs/a/" + long + "?change=%3Cu%3E%E2%80%AE", "/queues", "/queues?resource=%3Cu%3E", "/queues/" + path, "/cluster",
		"/cluster?resource=%3Cu%3E%E2%80%AE", "/nothing%3Cu%3E%E2%80%AE"} {
		code, text := b.get(path)
		if !strings.Contains(path, "/nothing") && code != 200 {
			t.Errorf("%s: %d", path, code)
		}
		for _, bad := range []string{"<b>\uFFFD", "<u>", "<s>", "<i>", "\u202E", "\u2066"} {
			if strings.Contains(text, bad) {
				t.Errorf("%s has %q", path, bad)
			}
		}
	}
}

// TestPlain: characters that would turn or hide text are replaced, everywhere on a page.
func TestPlain(t *testing.T) {
	for in, want := range map[string]string{"": "", "so\n\tit is: ●, é, 漢, 👍": "so\n\tit is: ●, é, 漢, 👍",
		"\u202Eevil\u202C": "\uFFFDevil\uFFFD", "a\x00b\rc\x7f\u0085": "a\uFFFDb\uFFFDc\uFFFD\uFFFD",
		"\u2066\u2069\u200e\u200f\u061c\u2028": strings.Repeat("\uFFFD", 6), "a\xffb\uFFFD": "a\uFFFDb\uFFFD"} {
		if is := string(plain([]byte(in))); is != want {
			t.Errorf("%q becomes %q, want %q", in, is, want)
		}
	}
}

// TestClocks: neither the browser's clock, nor the console's, nor that of whoever wrote a time, breaks a page.
func TestClocks(t *testing.T) {
	c := startCluster(t)
	c.may("admin", "list podgroups", "get podgroups", "list queues", "get queues", "list shards")
	future := time.Now().Add(1000 * time.Hour).Truncate(time.Second)
	g := c.gang("a", "tomorrow", "QuotaExceeded", "so")
	g.CreationTimestamp = metav1.NewTime(future)
	c.put(g)
	c.answer = func(_, path string) (any, error) {
		if strings.HasPrefix(path, "/status") {
			return visibility.Status{Coordinator: &visibility.Coordinator{Name: "c", Since: &future},
				Shards: []visibility.Shard{{Name: "s", Since: &future}}}, nil
		}
		before := time.Now().Add(-time.Hour)
		return visibility.Why{Created: future, Complete: &future, Ends: &before,
			Standing: visibility.Standing{At: &before}}, nil
	}
	s := c.console()
	b := s.login("admin")
	wait(t, "the list", has(b, "/work", "tomorrow"))
	b.shows("/work", 200, ">now<")
	for _, path := range []string{"/gangs/a/tomorrow", "/cluster", "/queues"} {
		if text := b.shows(path, 200); strings.Contains(text, ">-") || strings.Contains(text, "invalid") {
			t.Errorf("%s:\n%s", path, text)
		}
	}
	if text := b.shows("/gangs/a/tomorrow", 200); strings.Contains(text, "Expected to start") {
		t.Errorf("it is expected in the past:\n%s", text)
	}

	h, now := newHistory(), time.Now()
	queue := []*v1beta1.Queue{{ObjectMeta: metav1.ObjectMeta{Name: "q"},
		Status: &v1beta1.QueueStatus{Charged: corev1.ResourceList{"cpu": resource.MustParse("1")}}}}
	for _, at := range []time.Duration{0, sampleEach, 30 * time.Hour, -30 * time.Hour, 0, -sampleEach, 0} { // it jumps
		h.take(now.Add(at), queue)
	}
	if l := h.of("q", "cpu", now); l == nil || !strings.Contains(l.Words, "between 1 and 1") {
		t.Errorf("after its clock has jumped it has %+v", l)
	}
	if h.of("q", "cpu", now.Add(1000*time.Hour)) != nil {
		t.Error("what is long past is shown")
	}
}

// TestQueues: the tree, bars and balances are those of the objects.
func TestQueues(t *testing.T) {
	c := startCluster(t)
	c.may("admin", "list podgroups", "list queues", "get queues")
	amounts := func(cpu string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
	}
	for name, q := range map[string]struct{ charged, deserved, wanted string }{
		"root": {"120", "180", "120"}, "a": {"96", "60", "140"}, "a.b": {"96", "60", "96"}, "z": {"24", "60", "24"},
		"m": {"0", "60", "90"}} {
		c.put(
			&v1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: &v1beta1.QueueStatus{Charged: amounts(q.charged),
				Wanted: amounts(q.wanted), AdmittedGangs: 4, WaitingGangs: 2,
				Limits:     v1beta1.LimitsInForce{Deserved: amounts(q.deserved), Capability: amounts("160")},
				Conditions: []metav1.Condition{{Type: "Ready", Status: "True", Reason: "Ready", Message: v1beta1.MessageReady}}}},
		)
	}
	c.answer = func(_, path string) (any, error) {
		if path != "/queues/a/why" {
			return nil, answered{503, path}
		}
		return visibility.WhyQueue{
			QueueStands: visibility.QueueStands{Queue: "a", Admitted: 4, Amounts: []visibility.QueueResource{
				{Resource: "cpu", Charged: "96", Deserved: "60", Capability: "160", Wanted: "140", Guarantee: "20"}}},
			Next: &visibility.NextGang{},
		}, nil
	}
	s := c.console()
	b := s.login("admin")
	wait(t, "the queues", has(b, "/queues", ">z<"))
	text := b.shows("/queues", 200, "borrows 36", "lends 36", "misses 60", `<b>96</b> of 160`, `width="60%"`,
		`aria-label="cpu: charged 96, capability 160, deserves 60, wants 140"`)
	var last int
	for _, name := range []string{"root", "a", "a.b", "m", "z"} {
		at := strings.Index(text, `id="q/`+name+`"`)
		if at <= last {
			t.Errorf("%s is not in its place", name)
		}
		last = at
	}
	b.shows("/queues?under=a", 200, `id="q/a.b"`)
	t.Run("the oldest gang", func(t *testing.T) {
		old := c.gang("t", "old", "QuotaExceeded", "so")
		old.Status.Queue = "a.b"
		c.put(old)
		young := c.gang("t2", "young", "QuotaExceeded", "so")
		young.Status.Queue, young.CreationTimestamp = "a", metav1.NewTime(began.Add(time.Hour))
		c.put(young)
		run := c.gang("t", "runs", "Scheduled", "")
		run.Status.Queue, run.CreationTimestamp, run.Status.Bound = "m", metav1.NewTime(began.Add(-time.Hour)), 2
		run.Status.Conditions = []metav1.Condition{{Type: v1beta1.ConditionPodGroupInitiallyScheduled, Status: "True"}}
		c.put(run)
		wait(t, "the gangs", has(b, "/work", "t2/"))
		s.objects.mu.Lock()
		clear(s.objects.oldests)
		s.objects.mu.Unlock()
		text := b.shows("/queues", 200, "Waits longest")
		for queue, want := range map[string]string{"root": "t/old", "a": "t/old", "a.b": "t/old", "m": "", "z": ""} {
			row, _, _ := strings.Cut(text[strings.Index(text, `id="q/`+queue+`"`):], "</tr>")
			if want == "" && strings.Contains(row, "/gangs/") || !strings.Contains(row, want) {
				t.Errorf("%s has not %q: %s", queue, want, row)
			}
		}
		c.may("lister", "list queues", "list podgroups in t2")
		lister := s.login("lister")
		if text := lister.shows("/queues", 200); strings.Contains(text, "longest") || strings.Contains(text, "/gangs/") {
			t.Errorf("who may list Queues alone sees gangs:\n%s", text)
		}
		if text := lister.shows("/queues?n=t2", 200, "t2/young"); strings.Contains(text, "t/old") {
			t.Errorf("gangs of others:\n%s", text)
		}
		if text := lister.shows("/queues?n=t", 200); strings.Contains(text, "t/old") {
			t.Errorf("gangs of others:\n%s", text)
		}
	})
	b.shows("/queues?under=A", 400)
	b.shows(
		"/queues/a",
		200,
		"4 gangs are charged",
		"a gang of another namespace",
		"a borrows 36; m misses 60, z lends 36",
	)
	b.shows("/queues/none", 503)

	s.history.take(time.Now().Add(-sampleEach), s.objects.tree())
	s.history.take(time.Now(), s.objects.tree())
	b.shows("/queues/a", 200, "charged between 96 and 96 in 5m0s", "<polyline")

	t.Run("a thousand", func(t *testing.T) {
		for i := range 1000 {
			c.put(&v1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("a.t%d.q%d", i/10, i)}})
			if i%10 == 0 {
				c.put(&v1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("a.t%d", i/10)}})
			}
		}
		wait(t, "all", func() error {
			if n := len(s.objects.tree()); n != 1105 {
				return fmt.Errorf("%d", n)
			}
			return nil
		})
		text := b.shows("/queues", 200, "unfold all", ">+10</a>")
		if n := strings.Count(text, `<tr id="q/`); n != 105 {
			t.Errorf("%d rows", n)
		}
		if n := strings.Count(b.shows("/queues?all=1", 200), `<tr id="q/`); n != 1105 {
			t.Errorf("%d rows of all", n)
		}
		if n := strings.Count(b.shows("/queues?under=a.t7", 200), `<tr id="q/`); n != 11 {
			t.Errorf("%d rows below one", n)
		}
	})
}

// TestMany: ten thousand gangs are counted, and shown page by page.
func TestMany(t *testing.T) {
	c := startCluster(t)
	c.may("admin", "list podgroups", "get podgroups", "list queues")
	for i := range 10000 {
		c.gang(fmt.Sprint("n", i%10), fmt.Sprintf("g-%05d", i), "QuotaExceeded", "it waits")
	}
	s := c.console()
	b := s.login("admin")
	wait(t, "all", has(b, "/work", "<b>10000</b>"))
	for _, e := range []struct {
		path  string
		words string
	}{{"/work?page=100", "9901 to 10000 of 10000"}, {"/work?page=1000000", "9901 to 10000 of 10000"},
		{"/work?page=-3", "1 to 100 of 10000"}, {"/work?n=n3", "1 to 100 of 1000"}, {"/work?text=g-0123", "1 to 10 of 10"},
		{"/work?show=runs", "No gang is like that"}, {"/work?reason=None", "No gang is like that"}} {
		text := b.shows(e.path, 200, e.words)
		if len(text) > 200<<10 {
			t.Errorf("%s has %d bytes", e.path, len(text))
		}
	}
}

// TestSessions: what a browser that has no session gets, and when one ends.
func TestSessions(t *testing.T) {
	c := startCluster(t)
	c.tenant("u", "a")
	c.gang("a", "mine", "Pending", "so")
	s := c.console()
	if code, text := s.browser().get("/work?n=a"); code != 200 || !strings.Contains(text, `name="token"`) ||
		!strings.Contains(text, `value="/work?n=a"`) {
		t.Errorf("without a session: %d %s", code, text)
	}
	for _, path := range []string{"/stream/work?n=a", "/cluster/cells"} {
		if code, _ := s.browser().get(path); code != 401 {
			t.Errorf("%s without a session: %d", path, code)
		}
	}
	for token, code := range map[string]int{"": 400, "stranger": 401, "u v": 400, strings.Repeat("x", maxToken+1): 400} {
		r, err := s.browser().http.PostForm(s.web.URL+"/login", url.Values{"token": {token}})
		if err != nil || r.StatusCode != code {
			t.Errorf("log in with %.20q: %v %v, want %d", token, r, err, code)
		}
	}
	for to, want := range map[string]string{"//evil.example": "/work", "https://evil.example/": "/work", `/\evil`: "/work",
		"/queues?n=a": "/queues?n=a"} {
		if is := local(to); is != want {
			t.Errorf("%s leads to %s", to, is)
		}
	}
	plain := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	r, err := plain.PostForm(s.web.URL+"/login", url.Values{"token": {"u"}})
	if err != nil {
		t.Fatal(err)
	}
	cookie := r.Header.Get("Set-Cookie")
	for _, word := range []string{"HttpOnly", "SameSite=Strict", "Max-Age=900", "Path=/"} {
		if !strings.Contains(cookie, word) {
			t.Errorf("the cookie is not %s: %s", word, cookie)
		}
	}
	for name, want := range map[string]string{"Content-Security-Policy": "default-src 'self'",
		"Referrer-Policy":        "no-referrer",
		"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"} {
		if is := r.Header.Get(name); !strings.HasPrefix(is, want) {
			t.Errorf("%s: %q", name, is)
		}
	}
	cross, _ := http.NewRequest(http.MethodPost, s.web.URL+"/login", strings.NewReader("token=u"))
	cross.Header.Set("Sec-Fetch-Site", "cross-site")
	if r, err := plain.Do(cross); err != nil || r.StatusCode != 403 {
		t.Errorf("a login from another site: %v %v", r, err)
	}

	t.Run("the token expires", func(t *testing.T) {
		b := s.login("u")
		b.shows("/work?n=a", 200)
		c.mayNot("u", "")
		s.forget()
		b.shows("/work?n=a", 401, "the API server does not accept this token")
		if code, text := b.get("/work?n=a"); code != 200 || !strings.Contains(text, `name="token"`) {
			t.Errorf("after that: %d %s", code, text)
		}
		c.tenant("u", "a")
	})
	t.Run("log out", func(t *testing.T) {
		b := s.login("u")
		if _, err := b.http.Post(b.at+"/logout", "", nil); err != nil {
			t.Fatal(err)
		}
		b.shows("/work?n=a", 200, `name="token"`)
	})
	t.Run("bounds", func(t *testing.T) {
		now := time.Now()
		all := &sessions{all: map[[32]byte]*session{}, each: time.Minute}
		first := all.add(&viewer{name: "u"}, now)
		request := func(id string) *http.Request {
			r, _ := http.NewRequest(http.MethodGet, "/", nil)
			r.AddCookie(&http.Cookie{Name: cookieName, Value: id})
			return r
		}
		for range maxOwnSessions {
			now = now.Add(time.Millisecond)
			all.add(&viewer{name: "u"}, now)
		}
		if all.find(request(first), now, false) != nil || len(all.all) != maxOwnSessions {
			t.Errorf("%d sessions of one user", len(all.all))
		}
		for i := range maxSessions {
			all.add(&viewer{name: fmt.Sprint(i)}, now)
		}
		if len(all.all) != maxSessions {
			t.Errorf("%d sessions", len(all.all))
		}
		last := all.add(&viewer{name: "last"}, now)
		of := all.find(request(last), now.Add(50*time.Second), true)
		for i := range maxOwnStreams + 1 {
			if _, ok := all.stream(of); ok != (i < maxOwnStreams) {
				t.Errorf("stream %d: %v", i, ok)
			}
		}
		if all.find(request(last), now.Add(100*time.Second), false) == nil ||
			all.find(request(last), now.Add(3*time.Minute), false) != nil ||
			len(all.all) != 0 {
			t.Errorf("a session does not end with its time, or without: %d are left", len(all.all))
		}
		select {
		case <-of.done:
		default:
			t.Error("streams of a session that is over go on")
		}
	})
}

// forget has the console ask anew what viewers may do.
func (s *site) forget() {
	s.sessions.mu.Lock()
	defer s.sessions.mu.Unlock()
	for _, each := range s.sessions.all {
		each.viewer.mu.Lock()
		clear(each.viewer.known)
		each.viewer.mu.Unlock()
	}
}

// TestStreams: a change comes by itself, a right that is taken ends the stream, and so do its session and its token.
func TestStreams(t *testing.T) {
	c := startCluster(t)
	quick := func(s *server) {
		s.timing = timing{
			write: patience, session: time.Hour,
			streamReview: time.Millisecond,
			streamEach:   5 * time.Millisecond,
			streamIdle:   20 * time.Millisecond,
		}
	}
	for name, end := range map[string]struct {
		how   func(s *site, user string)
		words string
	}{
		"the right":   {func(_ *site, user string) { c.mayNot(user, "list podgroups in a") }, "may not list PodGroups"},
		"the token":   {func(_ *site, user string) { c.mayNot(user, "") }, "does not accept this token"},
		"the session": {func(s *site, _ string) { s.sessions.expire(time.Now().Add(2 * time.Hour)) }, "the session is over"},
	} {
		t.Run(name, func(t *testing.T) {
			user := strings.ReplaceAll(name, " ", "")
			c.tenant(user, "a")
			c.gang("a", "mine", "Pending", "first words")
			s := c.console(quick)
			b := s.login(user)
			wait(t, "the list", has(b, "/work?n=a", "mine"))
			events, _ := b.stream("/work?n=a")
			if text := next(t, events, "main"); !strings.Contains(text, "first words") {
				t.Errorf("the stream says %s", text)
			}
			c.gang("a", "mine", "Pending", "second words")
			if text := next(t, events, "main"); !strings.Contains(text, "second words") {
				t.Errorf("then it says %s", text)
			}
			if e := <-events; e != ": " && !strings.HasPrefix(e, "event: main") {
				t.Errorf("between changes it says %q", e)
			}
			s.sessions.mu.Lock()
			s.sessions.mu.Unlock()
			end.how(s, user)
			if text := next(t, events, "end"); !strings.Contains(text, end.words) {
				t.Errorf("it ends with %q", text)
			}
			for range events {
				t.Error("it goes on")
			}
		})
	}
	t.Run("too many, and cut", func(t *testing.T) {
		c.tenant("v", "a")
		s := c.console(quick)
		b := s.login("v")
		var stops []func()
		for range maxOwnStreams {
			_, stop := b.stream("/work?n=a")
			stops = append(stops, stop)
		}
		if code, _ := b.get("/stream/work?n=a"); code != 429 {
			t.Errorf("one stream too many: %d", code)
		}
		for _, stop := range stops {
			stop()
		}
		taken := func(most int) { // the server hears later that a browser has gone
			wait(t, "places are free again", func() error {
				s.sessions.mu.Lock()
				defer s.sessions.mu.Unlock()
				if s.sessions.streams > most {
					return fmt.Errorf("%d are taken", s.sessions.streams)
				}
				return nil
			})
		}
		for range 20 { // each is cut at once
			taken(maxOwnStreams - 1)
			events, stop := b.stream("/work?n=a")
			<-events
			stop()
		}
		taken(0)
	})
}

// TestEverythingAtOnce: a browser that asks for everything at once is refused some of it, and others are not.
func TestEverythingAtOnce(t *testing.T) {
	c := startCluster(t)
	c.tenant("greedy", "a")
	c.tenant("other", "a")
	c.gang("a", "mine", "Pending", "so")
	hold := make(chan struct{})
	c.answer = func(user, _ string) (any, error) {
		if user == "greedy" {
			<-hold
		}
		return visibility.Why{Message: "said"}, nil
	}
	s := c.console(func(s *server) { s.asks.SetLimit(1e6); s.asks.SetBurst(1e6) })
	greedy, other := s.login("greedy"), s.login("other")
	wait(t, "the list", has(other, "/work?n=a", "mine"))
	var wg sync.WaitGroup
	codes := make(chan int, 100)
	for range 100 {
		wg.Go(func() {
			r, err := greedy.http.Get(greedy.at + "/gangs/a/mine")
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.Copy(io.Discard, r.Body)
			r.Body.Close()
			codes <- r.StatusCode
		})
	}
	for range 100 - ownUnderWay {
		if code := <-codes; code != 429 {
			t.Errorf("%d while %d are under way", code, ownUnderWay)
		}
	}
	other.shows("/gangs/a/mine", 200, "said")
	close(hold)
	wg.Wait()
}

// TestQuestionsAreInTurn: however many sessions a user has, no more than some of his questions to Basalt wait with
// those of others.
func TestQuestionsAreInTurn(t *testing.T) {
	c := startCluster(t)
	c.tenant("greedy", "a")
	c.tenant("other", "a")
	c.gang("a", "mine", "Pending", "so")
	hold := make(chan struct{})
	var asked atomic.Int32
	c.answer = func(user, _ string) (any, error) {
		if user == "greedy" {
			asked.Add(1)
			<-hold
		}
		return visibility.Why{Message: "said"}, nil
	}
	s := c.console(func(s *server) { s.asks.SetLimit(1e6); s.asks.SetBurst(1e6) })
	other := s.login("other")
	wait(t, "the list", has(other, "/work?n=a", "mine"))
	var wg sync.WaitGroup
	for range 5 {
		greedy := s.login("greedy")
		for range ownAsks {
			wg.Go(func() {
				r, err := greedy.http.Get(greedy.at + "/gangs/a/mine")
				if err != nil {
					t.Error(err)
					return
				}
				r.Body.Close()
			})
		}
	}
	wait(t, "the first questions", func() error {
		if n := asked.Load(); n < ownAsks {
			return fmt.Errorf("%d questions were asked", n)
		}
		return nil
	})
	other.shows("/gangs/a/mine", 200, "said")
	if n := asked.Load(); n != ownAsks {
		t.Errorf("one user asks %d questions at the same time", n)
	}
	close(hold)
	wg.Wait()
	if n := asked.Load(); n <= ownAsks {
		t.Errorf("only %d of the questions were asked in the end", n)
	}
}

// TestLaptop: the URL opens one session, with the rights of the kubeconfig, of which namespaces are watched one by one
// if it has no others; and no other host leads here.
func TestLaptop(t *testing.T) {
	c := startCluster(t)
	c.tenant("me", "a")
	c.tenant("me", "a2")
	c.gang("a", "mine", "Pending", "so")
	c.gang("b", "hidden", "Pending", "so")
	s := c.consoleFor("me", false)
	once := "/open?once=" + s.once
	if code, _ := s.browser().get("/work"); code != 401 {
		t.Errorf("without the URL: %d", code)
	}
	if code, _ := s.browser().get("/open?once=x"); code != 401 {
		t.Errorf("with another: %d", code)
	}
	if code, text := s.browser().get("/login"); code != 401 || strings.Contains(text, "token") {
		t.Errorf("log in: %d", code)
	}
	b := s.browser()
	b.shows(once, 200, "My work")
	if code, _ := s.browser().get(once); code != 401 {
		t.Errorf("a second time: %d", code)
	}
	b.shows("/work?n=a", 200, "mine")
	b.shows("/work?n=b", 403, `may not list PodGroups in namespace &#34;b&#34;`)
	for i := range maxNamespaces + 2 {
		c.tenant("me", fmt.Sprint("t", i))
		code, _ := b.get(fmt.Sprint("/work?n=t", i))
		if want := map[bool]int{true: 200, false: 429}[i < maxNamespaces-1]; code != want {
			t.Errorf("namespace %d: %d", i, code)
		}
	}
	r, _ := http.NewRequest(http.MethodGet, s.web.URL+"/work", nil)
	r.Host = "evil.example"
	if answer, err := b.http.Do(r); err != nil || answer.StatusCode != 421 {
		t.Errorf("under another name: %v %v", answer, err)
	}
	if _, err := Serve(t.Context(), Options{Address: "0.0.0.0:0", LogIn: true, Config: &rest.Config{}}); err == nil {
		t.Error("without TLS it listens to everybody")
	}
}

// TestCluster: leader, shards, who took what over, and nodes with what is free there, each to whoever may see it.
func TestCluster(t *testing.T) {
	c := startCluster(t)
	c.may("admin", "list podgroups", "list queues", "list shards", "list nodes")
	c.may("watcher", "list podgroups", "list shards")
	c.may("lister", "list podgroups", "list nodes")
	since := time.Now().Add(-time.Hour)
	status := visibility.Status{Coordinator: &visibility.Coordinator{Name: "c-0", Term: 7, Since: &since},
		Table: &visibility.Table{Epoch: 9, Buckets: 1024, Changes: []visibility.Change{{Epoch: 9, Shard: "s-0", Buckets: 3},
			{Epoch: 8, Buckets: 2}, {Epoch: 1, Shard: "s-1", Buckets: 512}}},
		Shards: []visibility.Shard{{Name: "s-0", Incarnation: "s-0-1", State: "ok", Since: &since, Buckets: 512},
			{Name: "s-1", Incarnation: "s-1-1", State: "silent", Buckets: 512}}}
	free := visibility.NodeShares{Resources: []string{"cpu", "memory"}, Silent: []string{"s-1"},
		Nodes: []visibility.NodeFree{{Name: "n1", Free: []int8{49, 100}}, {Name: "n2", Free: []int8{0, 0}}}}
	fails := 0
	c.answer = func(_, path string) (any, error) {
		switch {
		case fails != 0:
			return nil, answered{fails, "secret of who asked"}
		case path == "/nodes":
			return free, nil
		}
		return status, nil
	}
	c.put(&v1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Name: "q"},
		Status: &v1beta1.QueueStatus{Stamp: v1beta1.Stamp{Epoch: 8, Writer: "s-0-1"}}})
	s := c.console()
	b := s.login("admin")
	wait(t, "the queues", func() error {
		if s.objects.queue("q") == nil {
			return errors.New("none")
		}
		return nil
	})
	c.put(&v1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Name: "q"},
		Status: &v1beta1.QueueStatus{Stamp: v1beta1.Stamp{Epoch: 9, Writer: "s-0-1"}}})
	wait(t, "a status of epoch 9", func() error {
		if s.objects.epochSeen(9).IsZero() {
			return errors.New("none")
		}
		return nil
	})
	text := b.shows("/cluster", 200, "c-0 leads with term 7", "s-1", "1 ready, 1 cordoned, 1 not ready", "z&lt;1&gt;",
		"coordinator c-0 leads, with term 7", "epoch 8: 2 buckets lost their shard, and have none",
		stamp(s.objects.epochSeen(9))+"</time> <bdi>epoch 9: shard s-0 took over 3 buckets, and has them",
		"at a time that is not known</span> <bdi>epoch 1: shard s-1 took over 512 buckets",
		"which do not answer: s-1", `>memory</a>`, `<td class="n">60m</td>`)
	if !strings.Contains(text, `<td class="n">0</td><td class="n">1</td><td class="n">0</td><td class="n">0</td>`) {
		t.Errorf("what is free is not in the table:\n%s", text)
	}
	b.shows("/cluster/cells", 200, `"Cells":"4cn"`)
	b.shows("/cluster/cells?resource=memory", 200, `"Cells":"acn"`)
	b.shows("/cluster/cells?resource=%3Cb%3E", 200, `"Cells":"4cn"`)
	b.shows("/cluster?resource=%3Cb%3E", 200, "cpu")
	s.login("watcher").shows("/cluster", 200, "may not list nodes")
	s.login("watcher").shows("/cluster/cells", 403)
	s.login("lister").shows("/cluster", 403)
	s.login("lister").shows("/cluster/cells", 403)
	for code, words := range map[int]string{403: "ClusterRole basalt-status", 404: "an earlier version"} {
		c.mu.Lock()
		fails = code
		c.mu.Unlock()
		s.nodes.mu.Lock()
		s.nodes.until = time.Time{}
		s.nodes.mu.Unlock()
		b.shows("/cluster/cells", 200, `"Cells":"ucn"`)
		if text := b.shows("/cluster", 200, words, "How full they are is not known"); strings.Contains(
			text[strings.Index(text, "h-nodes"):], "secret of who asked") {
			t.Errorf("it tells what another one was told:\n%s", text)
		}
	}

	cells := nodeMap{Resources: []string{"x"}, racks: []rackNodes{{nodes: []node{
		{state: 'r', free: []int8{-1}}, {state: 'r'},
		{state: 'r', free: []int8{9}}, {state: 'r', free: []int8{10}}, {state: 'r', free: []int8{50}},
		{state: 'r', free: []int8{99}}, {state: 'r', free: []int8{100}}, {state: 'n', free: []int8{100}}}}}}
	r := cells.zones("x")[0].Racks[0]
	if r.Cells != "-u0159an" || r.Free != [4]int{1, 1, 2, 1} || r.Unknown != 2 || r.NotReady != 1 {
		t.Errorf("%+v", r)
	}
	e := epochs{seen: map[int64]time.Time{}}
	for i := range int64(1000) {
		e.see(i)
	}
	if len(e.seen) != maxEpochs || e.seen[999].IsZero() {
		t.Errorf("%d epochs are remembered", len(e.seen))
	}
}

// TestLife: moments and phases of gangs.
func TestLife(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	at := func(minutes int) time.Time { return now.Add(time.Duration(minutes) * time.Minute) }
	complete, ends := at(-50), at(30)
	running := &v1beta1.PodGroup{Status: &v1beta1.PodGroupStatus{Conditions: []metav1.Condition{
		{Type: v1beta1.ConditionQuotaReserved, Status: "True", LastTransitionTime: metav1.NewTime(at(-20))},
		{Type: v1beta1.ConditionPodGroupInitiallyScheduled, Status: "True", LastTransitionTime: metav1.NewTime(at(-10))}}}}
	for _, c := range []struct {
		name   string
		gang   *v1beta1.PodGroup
		why    visibility.Why
		events []eventRow
		life   string
		phases string
	}{
		{"waits", nil, visibility.Why{Created: at(-60)}, nil, "created, now waits for pods for 1h0m",
			"waits for pods 1h0m 0+100"},
		{"complete", nil, visibility.Why{Created: at(-60), Complete: &complete}, nil,
			"created, complete +10m0s, now waits for quota for 50m0s",
			"waits for pods 10m0s 0+16.6; waits for quota 50m0s 16.6+83.3"},
		{"runs", running, visibility.Why{Created: at(-60), Complete: &complete, Started: true, Ends: &ends}, nil,
			"created, complete +10m0s, quota +30m0s, started +10m0s, now runs for 10m0s, limit in 30m0s",
			"waits for pods 10m0s 0+16.6; waits for quota 30m0s 16.6+50; waits for nodes 10m0s 66.6+16.6; runs 10m0s 83.3+16.6"},
		{"evicted before", nil, visibility.Why{Created: at(-60), Complete: &complete},
			[]eventRow{{At: at(-30), Reason: v1beta1.ReasonPreempted}, {At: at(-40), Reason: "FailedScheduling"}},
			"created, complete +10m0s, evicted +20m0s, now waits for quota for 50m0s",
			"waits for pods 10m0s 0+16.6; waits for quota 50m0s 16.6+83.3"},
		{"expected", nil, visibility.Why{Created: at(-60), Complete: &complete,
			Standing: visibility.Standing{At: &ends, Eviction: "x"}}, nil,
			"created, complete +10m0s, now waits for quota for 50m0s, expected in 30m0s",
			"waits for pods 10m0s 0+16.6; waits for quota 50m0s 16.6+83.3"},
		{"finished", running, visibility.Why{Created: at(-60), Reason: v1beta1.ReasonFinished}, nil,
			"created, quota +40m0s, started +10m0s", ""},
		{"the clock is off", nil, visibility.Why{Created: at(5)}, nil, "created", ""},
	} {
		life, phases := lifeOf(c.gang, &c.why, c.events, now)
		var said, parts []string
		for _, m := range life {
			words := []string{m.What, m.After}
			if m.What == "now" {
				words = []string{m.What, m.Says, m.After}
			}
			said = append(said, strings.TrimSpace(strings.Join(words, " ")))
		}
		for _, p := range phases {
			parts = append(parts, fmt.Sprintf("%s %s %s+%s", p.What, p.Took, p.X, p.Width))
		}
		if is := strings.Join(said, ", "); is != c.life {
			t.Errorf("%s: %s\nwant %s", c.name, is, c.life)
		}
		if is := strings.Join(parts, "; "); is != c.phases {
			t.Errorf("%s: %s\nwant %s", c.name, is, c.phases)
		}
	}
}

// TestCommands: a change becomes what kubectl would be told, with a test of the generation where the Queue may be got.
// bench/prove/console has the API server take each field.
func TestCommands(t *testing.T) {
	full := &v1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Generation: 7}, Spec: v1beta1.QueueSpec{Weight: new(int32(2)),
		Deserved: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("4")}}}
	empty := &v1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Generation: 1}}
	const tests = `kubectl patch bq a --type=json -p '[{"op":"test","path":"/metadata/generation","value":7}`
	for _, c := range []struct {
		changes string
		queue   *v1beta1.Queue
		want    string
	}{
		{"a:weight=3", nil, `kubectl patch bq a --type=merge -p '{"spec":{"weight":3}}'`},
		{"a:spec.weight=0", nil, `kubectl patch bq a --type=merge -p '{"spec":{"weight":0}}'`},
		{"a:capability.nvidia.com/gpu=8 a:closed=true b.c:deserved.cpu=", nil, `kubectl patch bq a --type=merge -p ` +
			`'{"spec":{"capability":{"nvidia.com/gpu":"8"},"closed":true}}'; ` +
			`kubectl patch bq b.c --type=merge -p '{"spec":{"deserved":{"cpu":null}}}'`},
		{"a:preemptionDelay=1m'x", nil, `kubectl patch bq a --type=merge -p '{"spec":{"preemptionDelay":"1m'\''x"}}'`},
		{"nothing", nil, ""},
		{"a:weight=0 a:priority= a:weight=", full, tests + `,{"op":"add","path":"/spec/weight","value":0},` +
			`{"op":"remove","path":"/spec/weight"}]'`},
		{"a:capability.cpu=8 a:capability.memory=4Gi a:guarantee.cpu= a:guarantee.cpu=1", full, tests +
			`,{"op":"add","path":"/spec/capability","value":{"cpu":"8"}},{"op":"add","path":"/spec/capability/memory",` +
			`"value":"4Gi"},{"op":"add","path":"/spec/guarantee","value":{"cpu":"1"}}]'`},
		{"a:deserved.nvidia.com/gpu= a:closed=false", full, tests +
			`,{"op":"remove","path":"/spec/deserved/nvidia.com~1gpu"},` + `{"op":"add","path":"/spec/closed","value":false}]'`},
		{"a:weight=3 a:deserved.cpu= a:priority=", empty, `kubectl patch bq a --type=json -p '[{"op":"test","path":` +
			`"/metadata/generation","value":1},{"op":"add","path":"/spec","value":{"weight":3}}]'`},
	} {
		is := strings.Join(commandsFor(strings.Fields(c.changes), func(string) *v1beta1.Queue { return c.queue }), "; ")
		if is != c.want {
			t.Errorf("%s: %s\nwant %s", c.changes, is, c.want)
		}
	}
}

// TestTwoAdministrators: whoever has asked what a change would do is told on the open page when somebody else has
// changed that Queue since; a status of it changes nothing, and who may not get the Queue is told nothing.
func TestTwoAdministrators(t *testing.T) {
	c := startCluster(t)
	c.may("admin", "list podgroups", "list queues", "get queues")
	c.tenant("tenant", "a")
	queue := func(generation int64, charged string) {
		c.put(&v1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Name: "shared", Generation: generation},
			Status: &v1beta1.QueueStatus{Charged: corev1.ResourceList{"cpu": resource.MustParse(charged)}}})
	}
	queue(4, "1")
	c.answer = func(_, path string) (any, error) {
		if strings.Contains(path, "/what-if?") {
			return visibility.WhatIf{Changes: []string{"shared:weight=3"}}, nil
		}
		return visibility.WhyQueue{QueueStands: visibility.QueueStands{Queue: "shared"}}, nil
	}
	s := c.console(func(s *server) { s.timing.streamEach, s.timing.streamIdle = 5*time.Millisecond, 50*time.Millisecond })
	b := s.login("admin")
	wait(t, "the queues", has(b, "/queues", "shared"))
	page := b.shows("/queues/shared?change=shared:weight=3", 200, "/metadata/generation", "asked=shared%404",
		"is refused as invalid if somebody has changed")
	stream, _, _ := strings.Cut(page[strings.Index(page, `data-stream="/stream`)+len(`data-stream="/stream`):], `"`)
	events, _ := b.stream(strings.ReplaceAll(stream, "&amp;", "&"))
	if text := next(t, events, "main"); strings.Contains(text, "Somebody has changed") {
		t.Errorf("before anything: %s", text)
	}
	queue(4, "2")
	queue(5, "2")
	for !strings.Contains(next(t, events, "main"), "Somebody has changed shared since you asked") {
	}
	c.mu.Lock()
	before := c.reviews
	c.mu.Unlock()
	many := "/stream/queues/shared?asked=" + strings.Repeat("q@1,", 500) + "shared@4"
	for i := range 500 {
		many = strings.Replace(many, "q@1,", fmt.Sprintf("q%d@1,", i), 1)
	}
	if len(many) > maxQuery {
		t.Fatal(len(many))
	}
	events, stop := b.stream(strings.TrimPrefix(many, "/stream"))
	next(t, events, "main")
	stop()
	c.mu.Lock()
	if n := c.reviews - before; n > 4*maxChanges {
		t.Errorf("one request has the API server review %d times", n)
	}
	c.mu.Unlock()
	stranger := s.login("tenant")
	text := stranger.shows("/queues/shared?n=a&change=shared:weight=3", 200, "--type=merge")
	if strings.Contains(text, "generation") || strings.Contains(text, "asked=") {
		t.Errorf("a tenant is told the generation:\n%s", text)
	}
	events, _ = stranger.stream("/queues/shared?n=a&change=shared:weight=3&asked=shared@4")
	if text := next(t, events, "main"); strings.Contains(text, "Somebody") {
		t.Errorf("a tenant is told of a change: %s", text)
	}
}

// TestAssetsAreSmall: all that a browser loads, and nothing of it from elsewhere.
func TestAssetsAreSmall(t *testing.T) {
	all, err := assets.ReadDir("assets")
	if err != nil {
		t.Fatal(err)
	}
	sum := 0
	for _, f := range all {
		b, err := assets.ReadFile("assets/" + f.Name())
		if err != nil {
			t.Fatal(err)
		}
		sum += len(b)
		text := strings.ReplaceAll(string(b), "http://www.w3.org/2000/svg", "")
		for _, bad := range []string{"http://", "https://", " style=\"", " onclick", "eval(", "innerHTML"} {
			if strings.Contains(text, bad) {
				t.Errorf("%s has %q", f.Name(), bad)
			}
		}
	}
	if sum > 60<<10 {
		t.Errorf("the assets have %d bytes", sum)
	}
}

// TestStreamAsksAgain: a page whose object changed right after Basalt was asked is brought up to date soon, not when it
// is looked at for its ages.
func TestStreamAsksAgain(t *testing.T) {
	c := startCluster(t)
	c.tenant("u", "a")
	c.gang("a", "mine", "Pending", "first words")
	c.answer = func(string, string) (any, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		return visibility.Why{Message: c.gangs["a/mine"].Status.Message}, nil
	}
	s := c.console(func(s *server) { s.timing.streamEach, s.timing.streamIdle = 5*time.Millisecond, time.Hour })
	b := s.login("u")
	wait(t, "the list", has(b, "/work?n=a", "mine"))
	events, _ := b.stream("/gangs/a/mine")
	if text := next(t, events, "main"); !strings.Contains(text, "first words") {
		t.Errorf("the stream says %s", text)
	}
	c.gang("a", "mine", "Pending", "second words")
	for !strings.Contains(next(t, events, "main"), "waits: second words") {
	}
}

// TestListsAskNobody: however many look at lists, and whatever changes there, Basalt is asked nothing.
func TestListsAskNobody(t *testing.T) {
	c := startCluster(t)
	c.may("admin", "list podgroups", "list queues")
	c.gang("a", "mine", "Pending", "first words")
	c.answer = func(_, path string) (any, error) {
		t.Errorf("Basalt is asked %s", path)
		return nil, answered{503, "no"}
	}
	s := c.console(func(s *server) { s.timing.streamEach = 5 * time.Millisecond })
	b := s.login("admin")
	wait(t, "the list", has(b, "/work", "mine"))
	for range maxOwnStreams / 2 {
		b.stream("/work")
		b.stream("/queues")
	}
	events, _ := s.login("admin").stream("/work")
	for i := range 20 {
		c.put(&v1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("q", i)}})
		c.gang("a", "mine", "Pending", fmt.Sprint("words ", i))
		for !strings.Contains(next(t, events, "main"), fmt.Sprint("words ", i)) {
		}
	}
}

// TestStreamsAreQuiet: a stream of HTTP/2 that has nothing to say for longer than a write may take goes on.
func TestStreamsAreQuiet(t *testing.T) {
	c := startCluster(t)
	c.tenant("u", "a")
	c.gang("a", "mine", "Pending", "first words")
	s := c.console(func(s *server) {
		s.TLS = &tls.Config{}
		s.timing.streamEach, s.timing.streamIdle, s.timing.write = 5*time.Millisecond, time.Hour, 20*time.Millisecond
	})
	b := s.login("u")
	wait(t, "the list", has(b, "/work?n=a", "mine"))
	events, _ := b.stream("/work?n=a")
	next(t, events, "main")
	select {
	case e, ok := <-events:
		t.Fatalf("it says %q, %v", e, ok)
	case <-time.After(200 * time.Millisecond):
	}
	c.gang("a", "mine", "Pending", "second words")
	if text := next(t, events, "main"); !strings.Contains(text, "second words") {
		t.Errorf("then it says %q", text)
	}
}
