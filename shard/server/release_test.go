package server

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/shard/event"
)

// The rules are those of the API server's release, before the first pod is shown and after an upgrade; where it is not
// told, those that held before 1.38.
func TestRelease(t *testing.T) {
	spread := corev1.TopologySpreadConstraint{MaxSkew: 1, TopologyKey: "zone", WhenUnsatisfiable: corev1.DoNotSchedule,
		LabelSelector: &metav1.LabelSelector{}}
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "p"},
		Spec: corev1.PodSpec{SchedulerName: api.SchedulerName}}
	p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{spread}
	for _, row := range []struct {
		name string
		says []string // one after another; the last one stays
		all  bool
	}{
		{"1.37", []string{`{"gitVersion":"v1.37.1"}`}, false},
		{"1.38", []string{`{"gitVersion":"v1.38.0"}`}, true},
		{"a pre-release", []string{`{"gitVersion":"v1.38.0-alpha.2"}`}, true},
		{"a vendor's", []string{`{"major":"1","minor":"39+","gitVersion":"v1.39.2-eks-1234"}`}, true},
		{"after an error", []string{"500", `{"gitVersion":"v1.38.0"}`}, true},
		{"not to be asked", []string{"403"}, false},
		{"not served", []string{"404"}, false},
		{"nonsense", []string{"<html>"}, false},
		{"not a release", []string{`{"gitVersion":"x"}`}, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int64
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				says := row.says[min(int(asked.Add(1)), len(row.says))-1]
				code := http.StatusOK
				if _, err := fmt.Sscan(says, &code); err != nil || r.URL.Path != "/version" {
					code = http.StatusOK
				}
				w.WriteHeader(code)
				_, _ = w.Write([]byte(says))
			}))
			defer server.Close()
			client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
			if err != nil {
				t.Fatal(err)
			}
			counts := make(chan bool, 2)
			show := func(events []event.Event) {
				for _, ev := range events {
					joins, err := api.ReadJoins(ev.(event.PodSeen).Pod.Class.Joins)
					if err != nil {
						t.Error(err)
					}
					counts <- joins.Spread[0].Counts(api.NewLabels(nil))
				}
			}
			w := &watches{clients: &kube.Clients{Core: client}, log: slog.New(slog.DiscardHandler)}
			w.storage = newStorage(api.Rules{}, func([]event.Event) {}, nil)
			w.storage.step(event.CaughtUp[*corev1.Pod]{Ticket: 1})
			w.storage.post = show
			w.storage.step(event.Changed[*corev1.Pod]{Object: p})
			if <-counts {
				t.Error("before it is known, it counts all")
			}
			ctx, cancel := context.WithCancel(t.Context())
			known := make(chan struct{})
			go w.followRelease(ctx, func() { close(known) })
			<-known
			cancel()
			select {
			case events := <-w.storage.inbox:
				w.storage.step(events...)
			default: // it is not known
			}
			if shown := len(counts); shown > 0 != row.all || row.all && !<-counts {
				t.Errorf("the pod was shown %d times again", shown)
			}
			w.storage.step(event.ReleaseSeen{})
			if shown := len(counts); shown > 0 != row.all || row.all && <-counts {
				t.Errorf("back again: the pod was shown %d times", shown)
			}
		})
	}
}
