package server

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/shard/cores"
	"basalt.dev/basalt/shard/event"
	"basalt.dev/basalt/shard/home"
	"basalt.dev/basalt/shard/node"
)

// value reads a metric: a counter, a gauge, or how often a histogram observed something.
func value(t *testing.T, m prometheus.Metric) float64 {
	t.Helper()
	var out dto.Metric
	if err := m.Write(&out); err != nil {
		t.Fatal(err)
	}
	return out.GetCounter().GetValue() + out.GetGauge().GetValue() + float64(out.GetHistogram().GetSampleCount())
}

func newLoop() *loop {
	return &loop{
		self: "s", inbox: make(chan item, inboxSize), log: slog.New(slog.DiscardHandler), metrics: newMetrics(prometheus.NewRegistry()),
		cores: cores.New("s", home.Config{}, node.Config{}),
	}
}

// The cores hear that nothing more is at hand when that is so, and after so many events even when it is not.
func TestLoopDrains(t *testing.T) {
	batch := func(n int) item {
		return item{events: slices.Repeat([]event.Event{event.NamespaceGone{Name: "x"}}, n)}
	}
	question := item{ask: func() {}}
	for _, c := range []struct {
		what  string
		inbox []item
		steps int // with those of Drained
	}{
		{"one", []item{batch(1)}, 1 + 1},
		{"a few", slices.Repeat([]item{batch(1)}, 5), 5 + 1},
		{"as many as may wait, and one", slices.Repeat([]item{batch(1)}, 3*drainAfter+1), 3*drainAfter + 1 + 4},
		{"one fewer", slices.Repeat([]item{batch(1)}, 3*drainAfter), 3*drainAfter + 3},
		{"a large batch", []item{batch(5000)}, 1 + 1},
		{"large batches", []item{batch(600), batch(600), batch(600)}, 3 + 2},
		{"questions count as well", slices.Repeat([]item{question}, drainAfter+1), 2},
		{"empty batches count as well", slices.Repeat([]item{batch(0)}, drainAfter+1), drainAfter + 1 + 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := newLoop()
			for _, i := range c.inbox {
				l.inbox <- i
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { defer close(done); l.run(ctx) }()
			synctest.Wait()
			if got := value(t, l.metrics.steps); got != float64(c.steps) {
				t.Errorf("%s: %g steps, want %d", c.what, got, c.steps)
			}
			before := value(t, l.metrics.steps)
			time.Sleep(10*time.Second + time.Millisecond)
			if got := value(t, l.metrics.steps) - before; got != 100 {
				t.Errorf("%s: %g ticks in 10 s, want 100", c.what, got)
			}
			if err := l.beat.Stuck(); err != nil {
				t.Errorf("%s: %v", c.what, err)
			}
			cancel()
			<-done
		})
	}
}

// What the cores say to each other without end is given to them in parts, and none of it is forgotten.
func TestLongTalks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct{ said, steps int }{{0, 0}, {1, 1}, {stepAtMost - 1, 1}, {stepAtMost, 2}, {2*stepAtMost - 2, 2}, {2*stepAtMost - 1, 3}} {
			l := newLoop()
			for range c.said {
				l.cores.Put(event.NamespaceGone{Name: "x"})
			}
			ctx, cancel := context.WithCancel(t.Context())
			go l.run(ctx)
			synctest.Wait()
			if got := value(t, l.metrics.steps); got != float64(c.steps) || l.cores.Waiting() != 0 {
				t.Errorf("%d were said: %g steps and %d left, want %d steps", c.said, got, l.cores.Waiting(), c.steps)
			}
			cancel()
			synctest.Wait()
		}
	})
}

// A question is answered between two steps, and whoever asks does not wait for a loop that has ended.
func TestAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLoop()
		ctx, cancel := context.WithCancel(t.Context())
		go l.run(ctx)
		asked := false
		if err := l.ask(t.Context(), func() { asked = true }); err != nil || !asked {
			t.Errorf("asked %t: %v", asked, err)
		}
		cancel()
		synctest.Wait()
		waits, enough := context.WithTimeout(t.Context(), time.Second)
		defer enough()
		if err := l.ask(waits, func() {}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the loop has ended: %v", err)
		}
		for len(l.inbox) < cap(l.inbox) {
			l.inbox <- item{}
		}
		if err := l.ask(waits, func() {}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the inbox is full: %v", err)
		}
	})
}

// Metrics of the cores' state are copied once a second.
func TestMetricsAreCopiedOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLoop()
		l.metrics.observe(l)
		l.inbox <- item{}
		for _, c := range []struct {
			after time.Duration
			want  float64
		}{{time.Second - 1, 0}, {1, 1}} {
			time.Sleep(c.after)
			l.metrics.observe(l)
			if got := value(t, l.metrics.inbox); got != c.want {
				t.Errorf("%g wait in the inbox, want %g", got, c.want)
			}
		}
	})
}

// What counts as held, refused and lost.
func TestMessagesAreCounted(t *testing.T) {
	m := newMetrics(prometheus.NewRegistry())
	send := func(to api.Incarnation, body *wire.Envelope) { m.sent("s", event.Send{To: to, Body: body}) }
	reply := &wire.Envelope{Body: &wire.Envelope_HoldReply{HoldReply: &wire.HoldReply{Held: make([]*wire.Held, 3), Refused: []*wire.Refusal{{Pods: 4}, {Pods: 5}}}}}
	send("s", reply)
	send("other", reply)
	send("other", reply)
	send(event.ToCoordinator, &wire.Envelope{Body: &wire.Envelope_HoldsLost{HoldsLost: &wire.HoldsLost{PodUids: []string{"a", "b"}}}})
	for what, c := range map[string]struct{ got, want float64 }{
		"held":                    {value(t, m.held), 9},
		"refused":                 {value(t, m.refused), 27},
		"lost":                    {value(t, m.lost), 2},
		"said to itself":          {value(t, m.messageKinds.WithLabelValues("HoldReply", "self")), 1},
		"said to others":          {value(t, m.messageKinds.WithLabelValues("HoldReply", "shard")), 2},
		"said to the coordinator": {value(t, m.messageKinds.WithLabelValues("HoldsLost", "coordinator")), 1},
	} {
		if c.got != c.want {
			t.Errorf("%s: %g, want %g", what, c.got, c.want)
		}
	}
}

// A line of a core at error level, or above, is a broken invariant.
func TestBrokenInvariantsAreCounted(t *testing.T) {
	l := newLoop()
	for level, want := range map[slog.Level]float64{slog.LevelError - 1: 0, slog.LevelError: 1, slog.LevelError + 1: 1} {
		before := value(t, l.metrics.brokenInvariants)
		l.carryOut(t.Context(), event.Log{Level: level, Message: "test"})
		if got := value(t, l.metrics.brokenInvariants) - before; got != want {
			t.Errorf("level %d counts %g times, want %g", level, got, want)
		}
	}
}

// What the cores hear of a write.
func TestWritten(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	l := newLoop()
	for _, c := range []struct {
		err  error
		want event.StatusOutcome
		name string
	}{
		{nil, event.StatusOK, "ok"},
		{apierrors.NewNotFound(pods, "p"), event.StatusGone, "gone"},
		{apierrors.NewConflict(pods, "p", errors.New("it moved")), event.StatusConflict, "conflict"},
		{apierrors.NewInvalid(schema.GroupKind{Kind: "Queue"}, "q", nil), event.StatusConflict, "conflict"},
		{apierrors.NewForbidden(pods, "p", errors.New("denied")), event.StatusFailed, "failed"},
		{errors.New("connection reset"), event.StatusFailed, "failed"},
	} {
		before := value(t, l.metrics.writes.WithLabelValues("pod", c.name))
		got := l.written("pod", 7, "9", c.err).(event.StatusWritten)
		if got.ID != 7 || got.Outcome != c.want || got.ResourceVersion != "9" || (got.Error == "") != (c.err == nil) {
			t.Errorf("%v: %+v", c.err, got)
		}
		if value(t, l.metrics.writes.WithLabelValues("pod", c.name)) != before+1 {
			t.Errorf("%v is not counted as %s", c.err, c.name)
		}
	}
}

// What the cores hear of what resolving found.
func TestResolve(t *testing.T) {
	free := corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u", ResourceVersion: "7"}}
	for _, c := range []struct {
		what string
		code int
		pod  corev1.Pod
		want event.ResolveDone
	}{
		{"answered", 200, free, event.ResolveDone{Outcome: event.ResolvedFree, Version: "7"}},
		{"the same version", 200, free, event.ResolveDone{Outcome: event.ResolveRetry}},
		{"another version", 200, corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u", ResourceVersion: "8"}}, event.ResolveDone{Outcome: event.ResolvedFree, Version: "8"}},
		{"a node", 200, corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u", ResourceVersion: "8"}, Spec: corev1.PodSpec{NodeName: "n"}}, event.ResolveDone{Outcome: event.ResolvedBound, Node: "n"}},
		{"another pod", 200, corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "v", ResourceVersion: "8"}}, event.ResolveDone{Outcome: event.ResolvedGone}},
		{"no pod", 404, corev1.Pod{}, event.ResolveDone{Outcome: event.ResolvedGone}},
		{"no answer", 500, corev1.Pod{}, event.ResolveDone{Outcome: event.ResolveRetry}},
	} {
		t.Run(c.what, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				var o any = &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: int32(c.code),
					Reason: map[int]metav1.StatusReason{404: metav1.StatusReasonNotFound, 500: metav1.StatusReasonInternalError}[c.code]}
				if c.code == 200 {
					c.pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
					o = &c.pod
				}
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(c.code)
				_ = json.NewEncoder(w).Encode(o)
			}))
			defer server.Close()
			l := newLoop()
			var err error
			if l.clients, err = kube.ConnectConfig(&rest.Config{Host: server.URL}, "test"); err != nil {
				t.Fatal(err)
			}
			c.want.Row = event.RowID{PodUID: "u"}
			o := event.ResolveBinding{Row: c.want.Row, Namespace: "ns", Name: "p", ResourceVersion: "7", Value: "v"}
			o.Answered = c.what == "answered"
			if got := l.resolve(t.Context(), o); got != c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
}

// A span of the cores as it is exported.
func TestSpan(t *testing.T) {
	began := time.Unix(1, 0)
	o := event.Span{Name: "n", Start: began, End: began.Add(time.Second), TraceID: []byte("0123456789abcdef"), SpanID: []byte("01234567"), Parent: []byte("89abcdef"),
		Attributes: []slog.Attr{slog.Int("pods", 3)}}
	want := []api.Attribute{{Key: "pods", Value: "3"}}
	got := span(o)
	if got.Name != "n" || got.Start != o.Start || got.End != o.End || string(got.TraceID[:]) != "0123456789abcdef" || string(got.SpanID[:]) != "01234567" ||
		string(got.ParentID[:]) != "89abcdef" || !slices.Equal(got.Attributes, want) {
		t.Errorf("%+v", got)
	}
	o.Failed = "why"
	if got := span(o).Attributes; !slices.Equal(got, append(want, api.Attribute{Key: "error.message", Value: "why"})) {
		t.Errorf("with an error: %+v", got)
	}
}

// The loop never waits for the volumes core, however long that takes for something else. What it says stays in order.
func TestLoopDoesNotWaitForVolumes(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := newStorage(api.Rules{}, func([]event.Event) {}, func(event.Output) {})
	l := &loop{watches: &watches{storage: s}, bindings: newWorkers(ctx, 1)}
	row := event.RowID{PodUID: "p"}
	const rows = 2 * storageInbox
	for range rows { // nobody takes them yet
		l.carryOut(ctx, event.BindVolumes{Row: row, Namespace: "ns", Name: "p", Node: "n1"})
		l.carryOut(ctx, event.EndVolumes{Row: row, Undo: true})
	}
	for i := range rows {
		begins, ends := (<-s.inbox)[0], (<-s.inbox)[0]
		if _, is := begins.(event.BindVolumes); !is {
			t.Fatalf("%T is event %d", begins, 2*i)
		}
		if _, is := ends.(event.EndVolumes); !is {
			t.Fatalf("%T is event %d", ends, 2*i+1)
		}
	}
}
