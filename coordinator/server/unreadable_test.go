package server

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/api/process"
	"basalt.dev/basalt/coordinator"
)

// A Queue that cannot be read does not stop the others, in a list or in a watch. Of a status only what cannot be read is
// lost; a spec that cannot be read is told to the core, which keeps the limits in force.
func TestUnreadableQueues(t *testing.T) {
	queue := func(name string, version int, cpu, status string) string {
		return fmt.Sprintf(`{"kind":"Queue","metadata":{"name":%q,"uid":%q,"resourceVersion":"%d"},"spec":{"capability":{"cpu":%q}},"status":%s}`, name, "uid-"+name, version, cpu, status)
	}
	const badTime = `{"epoch":3,"conditions":[{"type":"Ready","lastTransitionTime":"2026-01-01T00:00:00.5z"}]}`
	const badAmount = `{"epoch":4,"charged":{"cpu":"99999999999999999999e999999999"}}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Get("watch") == "" {
			fmt.Fprintf(w, `{"kind":"QueueList","items":[%s,%s,%s],"metadata":{"resourceVersion":"10"}}`,
				queue("a", 1, "1", badTime), queue("b", 2, "5..5", `{"epoch":1}`), queue("c", 3, "3", badAmount))
			return
		}
		for _, e := range []string{queue("a", 11, "1", badAmount), queue("c", 12, "x", badTime), queue("d", 13, "4", `{}`)} {
			fmt.Fprintf(w, `{"type":"MODIFIED","object":%s}`+"\n", e)
		}
		fmt.Fprintf(w, `{"type":"DELETED","object":%s}`+"\n", queue("b", 14, "x", badTime))
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	defer server.Close()
	clients, err := kube.ConnectConfig(&rest.Config{Host: server.URL}, "test")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	term := &term{clients: clients, log: log, inbox: make(chan item, 100)}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { term.followQueues(ctx) })

	var got []string
	for len(got) < 8 {
		select {
		case <-ctx.Done():
			t.Fatalf("heard only %q", got)
		case i := <-term.inbox:
			switch e := i.event.(type) {
			case coordinator.QueueSeen:
				reason, _, _ := strings.Cut(e.Invalid, ": cpu:")
				got = append(got, fmt.Sprint(e.Name, " ", e.ResourceVersion, " ", e.Capability, " epoch ", e.StatusEpoch, " ", reason))
			case coordinator.QueueGone:
				got = append(got, "gone "+e.Name+" "+e.UID)
			case coordinator.QueuesSynced:
				got = append(got, "synced")
			}
		}
	}
	want := []string{
		"a 1 cpu=1 epoch 3 ", "b 2  epoch 0 spec: capability", "c 3 cpu=3 epoch 4 ", "synced",
		"a 11 cpu=1 epoch 4 ", "c 12  epoch 0 spec: capability", "d 13 cpu=4 epoch 0 ", "gone b uid-b",
	}
	if got, want := strings.Join(got, "\n"), strings.Join(want, "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}

	epoch := (&candidate{process: &process.Process{Kube: clients, Log: log}}).maxStatusEpoch(ctx)
	if epoch != 4 {
		t.Errorf("the largest epoch in a status is %d, want 4: the others can be read", epoch)
	}
}
