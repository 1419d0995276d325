package kube

import (
	"io"
	"log/slog"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"basalt.dev/basalt/api/v1beta1"
)

// What a stream of lines says, up to the first thing that is no event. The last line of each is cut off and says nothing.
func TestWatchOfLines(t *testing.T) {
	const cut = `{"type":"MODIFIED","object":{"metadata":{"name":"cut off`
	long := strings.Repeat("x", 100<<10) // more than the reader holds
	for _, test := range []struct {
		what, stream, want string
	}{
		{"nothing", "", ""},
		{"events", `{"type":"ADDED","object":{"kind":"Queue","metadata":{"name":"a","resourceVersion":"1"}}}
{"type":"MODIFIED","object":{"kind":"Queue","metadata":{"name":"a","resourceVersion":"2"}}}
{"type":"BOOKMARK","object":{"kind":"Queue","metadata":{"resourceVersion":"3"}}}
{"type":"DELETED","object":{"kind":"Queue","metadata":{"name":"a","resourceVersion":"4"}}}
`, "ADDED a 1, MODIFIED a 2, BOOKMARK  3, DELETED a 4"},
		{"one longer than the buffer, and one after it", `{"type":"ADDED","object":{"metadata":{"name":"a","annotations":{"k":"` + long + `"},"resourceVersion":"1"}}}
{"type":"ADDED","object":{"metadata":{"name":"b","resourceVersion":"2"}}}
`, "ADDED a 1, ADDED b 2"},
		{"a status, whose fields are not a Queue's", `{"type":"ERROR","object":{"kind":"Status","status":"Failure","message":"too old","reason":"Expired","code":410}}
`, "ERROR expired"},
		{"a type that nobody knows", `{"type":"RENAMED","object":{"metadata":{"name":"a"}}}
`, "ERROR"},
		{"an event without an object", `{"type":"ADDED","object":[]}
{"type":"ADDED","object":{"metadata":{"name":"b","resourceVersion":"2"}}}
`, "ADDED b 2"},
		{"no JSON", "OK\n", "ERROR"},
	} {
		t.Run(test.what, func(t *testing.T) {
			w := newEventStream(io.NopCloser(strings.NewReader(test.stream+cut)), lines[*v1beta1.Queue](newUnread("queues", slog.New(slog.DiscardHandler))))
			defer w.Stop()
			var got []string
			for e := range w.ResultChan() {
				switch o := e.Object.(type) {
				case *v1beta1.Queue:
					got = append(got, string(e.Type)+" "+o.Name+" "+o.ResourceVersion)
				case *metav1.Status:
					if got = append(got, string(e.Type)); apierrors.IsResourceExpired(apierrors.FromObject(o)) {
						got[len(got)-1] += " expired"
					}
				}
			}
			if got := strings.Join(got, ", "); got != test.want {
				t.Fatalf("got %q, want %q", got, test.want)
			}
		})
	}
}

// Stop ends the reading, whoever waits for what.
func TestWatchOfLinesStops(t *testing.T) {
	in, out := io.Pipe()
	w := newEventStream(in, lines[*v1beta1.Queue](newUnread("queues", slog.New(slog.DiscardHandler))))
	if _, err := io.WriteString(out, `{"type":"ADDED","object":{"metadata":{"name":"a"}}}`+"\n"); err != nil {
		t.Fatal(err)
	}
	w.Stop() // while the event waits to be taken, or before it was read
	for e := range w.ResultChan() {
		if e.Type != watch.Added {
			t.Fatalf("%+v", e)
		}
	}
	if _, err := io.WriteString(out, "\n"); err == nil {
		t.Fatal("the stream is still open")
	}
}
