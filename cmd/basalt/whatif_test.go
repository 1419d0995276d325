package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What is given to basalt why becomes one question, and nothing is asked that cannot be.
func TestWhatIfAsks(t *testing.T) {
	var asked *url.URL
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/apis/scheduling.k8s.io/v1/priorityclasses/high":
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"kind":"PriorityClass","apiVersion":"scheduling.k8s.io/v1","metadata":{"name":"high"},"value":1000,"preemptionPolicy":"Never"}`)
		case "/v1/namespaces/red/what-if", "/v1/namespaces/blue/what-if":
			asked = r.URL
			fmt.Fprint(w, `{"changes":["batch:weight=3"],"queues":[{"queue":"batch","before":{"weightedShare":7},"after":{"weightedShare":2}}]}`)
		default:
			http.NotFound(w, r)
		}
	}))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(file, []byte(`{apiVersion: v1, kind: Config, current-context: x, clusters: [{name: c, cluster: {server: "`+server.URL+`"}}], users: [{name: u, user: {token: t}}],
contexts: [{name: x, context: {cluster: c, user: u, namespace: red}}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct{ args, query, fails string }{
		{args: "--what-if batch:weight=3", query: "change=batch:weight=3"},
		{args: "--what-if batch:weight=3 --what-if a.b:deserved.nvidia.com/gpu= queue/a.b", query: "change=batch:weight=3&change=a.b:deserved.nvidia.com/gpu=&queue=a.b"},
		{args: "--what-if batch:weight=3 train", query: "change=batch:weight=3&gang=red/train"},
		{args: "--what-if batch:weight=3 blue/train", query: "change=batch:weight=3&gang=blue/train"},
		{args: "--gang queue=a,cpu=8,pods=2", query: "namespace=red&planned=queue=a,cpu=8,pods=2"},
		{args: "--gang queue=a,priority=high,cpu=8 -n blue --what-if a:weight=2", query: "change=a:weight=2&namespace=blue&planned=queue=a,priority=1000,preemptionPolicy=Never,cpu=8"},
		{args: "", fails: "name a PodGroup, a pod or queue/NAME; or give --what-if or --gang"},
		{args: "--what-if weight=3", fails: `--what-if: change "weight=3": it is QUEUE:FIELD=VALUE`},
		{args: "--gang queue=a,gpus=8", fails: `--gang: gang: "gpus" is neither queue`},
		{args: "--gang queue=a,priority=none", fails: `read PriorityClass "none"`},
		{args: "--gang queue=a red/train", fails: "--gang is about a gang that does not exist: leave out red/train"},
	} {
		asked = nil
		cmd, out := whyCommand(), &bytes.Buffer{}
		cmd.SilenceUsage, cmd.SilenceErrors = true, true
		cmd.SetOut(out)
		cmd.SetErr(io.Discard)
		cmd.SetArgs(append(strings.Fields(row.args), "--kubeconfig", file, "--basalt-server", server.URL))
		err := cmd.ExecuteContext(t.Context())
		if row.fails != "" {
			if err == nil || !strings.Contains(err.Error(), row.fails) || asked != nil {
				t.Errorf("basalt why %s: %v, want %q; asked %v", row.args, err, row.fails, asked)
			}
			continue
		}
		if err != nil || asked == nil {
			t.Errorf("basalt why %s: %v", row.args, err)
			continue
		}
		if got, err := url.QueryUnescape(asked.RawQuery); err != nil || got != row.query {
			t.Errorf("basalt why %s asks %s, %v, want %s", row.args, got, err, row.query)
		}
		if !strings.Contains(out.String(), "batch   7 -> 2") || !strings.HasSuffix(out.String(), "Nothing was changed.\n") {
			t.Errorf("basalt why %s prints\n%s", row.args, out)
		}
	}
}

func TestNamedPriority(t *testing.T) {
	class := func(name string) (int32, bool, error) {
		if name == "" {
			return 0, false, errors.New("no name")
		}
		return 5, name == "meek", nil
	}
	for gang, want := range map[string]string{
		"queue=a": "queue=a", "queue=a,priority=7": "queue=a,priority=7", "queue=a,priority=high,cpu=1": "queue=a,priority=5,cpu=1", "priority=meek": "priority=5,preemptionPolicy=Never",
		"priority=meek,preemptionPolicy=PreemptLowerPriority": "priority=5,preemptionPolicy=PreemptLowerPriority", "priority=": "",
	} {
		if got, err := namedPriority(gang, class); got != want || (err != nil) != (want == "") {
			t.Errorf("%s: %s, %v", gang, got, err)
		}
	}
}
