package server

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/api/process"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/coordinator"
	"basalt.dev/basalt/coordinator/owners"
)

// answering returns clients of an API server that answers as a test says.
func answering(t *testing.T, answer http.HandlerFunc) *kube.Clients {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	clients, err := kube.ConnectConfig(&rest.Config{Host: server.URL}, "test")
	if err != nil {
		t.Fatal(err)
	}
	return clients
}

// A finalizer that somebody else's edits keep from being set is tried a few times, one that is refused is not.
func TestFinalizersThatCannotBeSet(t *testing.T) {
	for _, c := range []struct {
		code, patches int
		fails         bool
	}{{200, 1, false}, {404, 1, false}, {403, 1, true}, {409, 6, true}, {422, 6, true}} {
		patches := 0
		clients := answering(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if r.Method == http.MethodGet {
				fmt.Fprint(w, `{"metadata":{"name":"a","uid":"u","resourceVersion":"3"}}`)
				return
			}
			patches++
			body, _ := io.ReadAll(r.Body)
			for _, part := range []string{`"/metadata/uid","value":"u"`, `"/metadata/finalizers","value":null`, v1beta1.FinalizerCharged} {
				if !strings.Contains(string(body), part) {
					t.Errorf("the patch lacks %s: %s", part, body)
				}
			}
			w.WriteHeader(c.code)
			reason := map[int]metav1.StatusReason{403: metav1.StatusReasonForbidden, 404: metav1.StatusReasonNotFound, 409: metav1.StatusReasonConflict, 422: metav1.StatusReasonInvalid}[c.code]
			fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,"reason":%q}`, c.code, reason)
		})
		err := setFinalizer(t.Context(), clients, "a", "u", true)
		if (err != nil) != c.fails || patches != c.patches {
			t.Errorf("code %d: %d patches and %v, want %d", c.code, patches, err, c.patches)
		}
	}
}

// A finalizer that is as it should be is not written.
func TestFinalizersThatAreSet(t *testing.T) {
	for _, has := range []bool{true, false} {
		clients := answering(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodGet {
				t.Errorf("%s of a queue whose finalizer is as it should be", r.Method)
			}
			finalizers := map[bool]string{true: `"` + v1beta1.FinalizerCharged + `"`}[has]
			fmt.Fprintf(w, `{"metadata":{"name":"a","uid":"u","resourceVersion":"3","finalizers":[%s]}}`, finalizers)
		})
		if err := setFinalizer(t.Context(), clients, "a", "u", has); err != nil {
			t.Error(err)
		}
	}
}

// An epoch that cannot be true hides no other.
func TestLargestEpochInStatuses(t *testing.T) {
	for _, c := range []struct {
		epochs []api.Epoch
		want   api.Epoch
	}{
		{nil, 0}, {[]api.Epoch{3, 9, 4}, 9},
		{[]api.Epoch{3, owners.MaxStatusEpoch}, owners.MaxStatusEpoch},
		{[]api.Epoch{3, owners.MaxStatusEpoch + 1}, 3},
	} {
		var items []string
		for i, e := range c.epochs {
			items = append(items, fmt.Sprintf(`{"metadata":{"name":"q%d"},"status":{"epoch":%d}}`, i, e))
		}
		clients := answering(t, func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `{"metadata":{"resourceVersion":"3"},"items":[%s]}`, strings.Join(items, ","))
		})
		x := &candidate{process: &process.Process{Kube: clients, Log: slog.New(slog.DiscardHandler)}}
		if got := x.maxStatusEpoch(t.Context()); got != c.want {
			t.Errorf("%v: %d, want %d", c.epochs, got, c.want)
		}
	}
	clients := answering(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
	x := &candidate{process: &process.Process{Kube: clients, Log: slog.New(slog.DiscardHandler)}}
	if got := x.maxStatusEpoch(t.Context()); got != 0 {
		t.Errorf("none can be read: %d", got)
	}
}

// Grants are counted, and the core's sums are copied every two seconds.
func TestMetrics(t *testing.T) {
	counted := func(c prometheus.Metric) float64 {
		var out dto.Metric
		if err := c.Write(&out); err != nil {
			t.Fatal(err)
		}
		return out.GetCounter().GetValue()
	}
	m := newMetrics(prometheus.NewRegistry())
	m.sent(&wire.Envelope{Body: &wire.Envelope_Granted{Granted: &wire.Granted{}}})
	m.sent(&wire.Envelope{Body: &wire.Envelope_Denied{Denied: &wire.Denied{}}})
	if counted(m.grants) != 1 || counted(m.messages.WithLabelValues("Granted")) != 1 || counted(m.messages.WithLabelValues("Denied")) != 1 {
		t.Errorf("%g grants", counted(m.grants))
	}
	synctest.Test(t, func(t *testing.T) {
		core := coordinator.New(coordinator.Config{}, coordinator.Elected{Now: time.Now(), Term: 1, Incarnation: "c", FreshStore: true})
		m.observe(core)
		began := m.observed
		for _, c := range []struct {
			after time.Duration
			anew  bool
		}{{0, false}, {2*time.Second - 1, false}, {1, true}} {
			time.Sleep(c.after)
			if m.observe(core); m.observed.After(began) != c.anew {
				t.Errorf("observed %s after %s", m.observed.Sub(began), time.Since(began))
			}
		}
	})
}

// A line of the core at error level, or above, is a broken invariant.
func TestBrokenInvariantsAreCounted(t *testing.T) {
	c, m := &candidate{metrics: newMetrics(prometheus.NewRegistry())}, &term{log: slog.New(slog.DiscardHandler)}
	var wg sync.WaitGroup
	for level, want := range map[coordinator.Level]float64{coordinator.LevelError - 1: 0, coordinator.LevelError: 1, coordinator.LevelError + 1: 1} {
		var before, after dto.Metric
		_ = c.metrics.brokenInvariants.Write(&before)
		c.carryOut(t.Context(), &wg, m, coordinator.Log{Level: level, Message: "test"}, nil)
		_ = c.metrics.brokenInvariants.Write(&after)
		if got := after.GetCounter().GetValue() - before.GetCounter().GetValue(); got != want {
			t.Errorf("level %d counts %g times, want %g", level, got, want)
		}
	}
}
