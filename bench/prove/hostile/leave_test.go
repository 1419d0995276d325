package hostile

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"k8s.io/client-go/rest"

	"basalt.dev/basalt/api/kube"
)

// A row that was judged is in the result, too, when the run is stopped while it removes what the attack has left, and when Basalt
// did not come back.
func TestLeave(t *testing.T) {
	down := errors.New("a process did not start")
	for _, c := range []struct {
		name    string
		stopped string // before it begins, or at the first request
		judged  error
		want    error
		rows    int
	}{
		{name: "stopped during the judgement", stopped: "before", want: context.Canceled, rows: 0},
		{name: "stopped while it cleans up", stopped: "at the first request", want: context.Canceled, rows: 1},
		{name: "Basalt does not come back", judged: down, want: down, rows: 1},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		config := &rest.Config{Host: "http://127.0.0.1:1"}
		config.Wrap(func(http.RoundTripper) http.RoundTripper { return refuse(cancel) })
		clients, err := kube.ConnectConfig(config, "test")
		if err != nil {
			t.Fatal(err)
		}
		if c.stopped == "before" {
			cancel()
		}
		r := &run{Options: Options{Log: t.Logf}, view: newView(), admin: clients}
		r.view.pods["left"] = &pod{namespace: evil}
		err = r.leave(ctx, nil, Row{Attack: "any", Accepted: 7}, c.judged)
		if !errors.Is(err, c.want) || len(r.result.Rows) != c.rows {
			t.Errorf("%s: %v, rows %+v", c.name, err, r.result.Rows)
		} else if c.rows > 0 && (r.result.Rows[0].Accepted != 7 || len(r.result.Rows[0].Problems) > 0) {
			t.Errorf("%s: row %+v", c.name, r.result.Rows[0])
		}
	}
}

// refuse is called at each request, none of which is made.
type refuse func()

func (f refuse) RoundTrip(*http.Request) (*http.Response, error) {
	f()
	return nil, errors.New("stopped")
}
