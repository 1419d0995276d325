package server

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/shard/event"
)

// A PodGroup whose spec cannot be read stays as it was read last, also in a new list; one that was never read is not there.
// One whose status cannot be read keeps what can be read of it.
func TestUnreadablePodGroups(t *testing.T) {
	group := func(name string, version int, minCount, status string) string {
		return fmt.Sprintf(`{"metadata":{"namespace":"ns","name":%q,"uid":%q,"resourceVersion":"%d"},"spec":{"schedulingPolicy":{"gang":{"minCount":%s}}},"status":%s}`, name, "uid-"+name, version, minCount, status)
	}
	const badTime = `{"epoch":3,"conditions":[{"type":"QuotaReserved","status":"True","lastTransitionTime":"2026-01-01T00:00:00.5z"},{"type":"PodGroupInitiallyScheduled","status":"True"}]}`
	var lists atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		list := func(version int, items ...string) {
			fmt.Fprintf(w, `{"items":[%s],"metadata":{"resourceVersion":"%d"}}`, strings.Join(items, ","), version)
		}
		switch {
		case r.URL.Query().Has("fieldSelector") && lists.Load() == 1: // whether the history is the same
			list(10, group("c", 3, "1e30", "{}"))
		case r.URL.Query().Has("fieldSelector"):
			list(20, group("a", 18, "1e30", "{}"))
		case r.URL.Query().Get("watch") == "" && lists.Add(1) == 1:
			list(10, group("a", 1, "1", badTime), group("b", 2, "2", "{}"), group("c", 3, "1e30", "{}"))
		case r.URL.Query().Get("watch") == "":
			list(20, group("a", 18, "1e30", "{}"), group("c", 3, "1e30", "{}"))
		case r.URL.Query().Get("resourceVersion") == "10":
			fmt.Fprintf(w, `{"type":"MODIFIED","object":%s}`+"\n", group("b", 12, "1e30", "{}"))
			fmt.Fprintf(w, `{"type":"MODIFIED","object":%s}`+"\n", group("d", 13, "4", "{}"))
			fmt.Fprintf(w, `{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}`+"\n")
		default:
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}
	}))
	defer server.Close()
	clients, err := kube.ConnectConfig(&rest.Config{Host: server.URL}, "test")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	heard := make(chan event.Event, 100)
	w := &watches{log: slog.New(slog.DiscardHandler), post: func(events []event.Event) {
		for _, ev := range events {
			heard <- ev
		}
	}}
	f := follow(w, clients.Basalt, "podgroups", nil,
		func(g *v1beta1.PodGroup) event.Event { return event.PodGroupSeen{PodGroup: g} },
		func(g *v1beta1.PodGroup) event.Event { return event.PodGroupGone{UID: string(g.UID)} })
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { f.Run(ctx) })

	gone := map[string]bool{}
	for _, want := range []string{
		"a 1 min 1 [True True]", "b 2 min 2 []", // the first list
		"b 2 min 2 []", "d 13 min 4 []", // the watch
		"gone", "gone", "a 1 min 1 [True True]", // the second list
	} {
		select {
		case <-ctx.Done():
			t.Fatalf("not heard: %q", want)
		case ev := <-heard:
			var got string
			switch ev := ev.(type) {
			case event.PodGroupSeen:
				g := ev.PodGroup
				got = fmt.Sprint(g.Name, " ", g.ResourceVersion, " min ", g.Spec.SchedulingPolicy.Gang.MinCount, " ", conditions(g.Status))
			case event.PodGroupGone:
				gone[ev.UID], got = true, "gone"
			}
			if got != want {
				t.Fatalf("heard %q, want %q", got, want)
			}
		}
	}
	if !gone["uid-b"] || !gone["uid-d"] {
		t.Errorf("gone are %v, want b and d, which the list does not have", gone)
	}
}

func conditions(s *v1beta1.PodGroupStatus) (out []metav1.ConditionStatus) {
	for _, c := range s.Conditions {
		out = append(out, c.Status)
	}
	return out
}

// Amounts in a Queue's status that take minutes to compare are left out of it, and the object that was seen stays as it is.
func TestCountable(t *testing.T) {
	amounts := corev1.ResourceList{"cpu": resource.MustParse("1e2000000000"), "memory": resource.MustParse("1Gi")}
	q := &v1beta1.Queue{Status: &v1beta1.QueueStatus{Charged: amounts, Limits: v1beta1.LimitsInForce{Capability: amounts, Guarantee: amounts}, AdmittedGangs: 7}}
	got := countable(q).Status
	for _, l := range []corev1.ResourceList{got.Charged, got.Limits.Capability, got.Limits.Guarantee} {
		if len(l) != 1 || l.Memory().Value() != 1<<30 {
			t.Errorf("got %v", l)
		}
	}
	if got.AdmittedGangs != 7 || len(amounts) != 2 {
		t.Errorf("more was changed: %+v, of %v", got, amounts)
	}
	delete(amounts, "cpu")
	if countable(q) != q {
		t.Error("a status without such amounts was copied")
	}
}
