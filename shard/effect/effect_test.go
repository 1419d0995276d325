package effect

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"basalt.dev/basalt/api/store/protocol"
	"basalt.dev/basalt/shard/event"
)

// An error about one record is an answer to the core; the loss of the session and every other error end the process.
func TestWhatFailedWritesMean(t *testing.T) {
	record := fmt.Errorf("write intents 3: %w", &protocol.RecordError{Key: "intents/a/3", Err: protocol.ErrTooLarge})
	away := errors.New("the control store was replaced")
	for _, c := range []struct {
		what    string
		outcome protocol.Outcome
		err     error
		written event.WriteOutcome
		record  bool
		end     error
	}{
		{"written", protocol.Written, nil, event.Written, false, nil},
		{"the table moved", protocol.TableMoved, nil, event.TableMoved, false, nil},
		{"a reservation moved", protocol.ReservationMoved, nil, event.ReservationMoved, false, nil},
		{"the session is lost", protocol.SessionLost, nil, event.SessionLost, false, protocol.ErrSessionLost},
		{"a record that cannot be written", 0, record, event.Unwritable, true, nil},
		{"another store", 0, away, event.SessionLost, false, away},
	} {
		w := IntentsWritten(event.WriteIntents{N: 3}, protocol.WriteResult{Outcome: c.outcome}, c.err)
		if got := w.Event.(event.IntentsWritten); got.N != 3 || got.Outcome != c.written || (w.Record != nil) != c.record || !errors.Is(w.End, c.end) || (w.End == nil) != (c.end == nil) {
			t.Errorf("%s: %+v", c.what, w)
		}
		w = IntentsRewritten(event.RewriteIntents{Incarnation: "a", N: 3, ModRevision: 7}, protocol.RewriteResult{Outcome: c.outcome, Now: protocol.StoredIntents{ModRevision: 9}}, c.err)
		got := w.Event.(event.IntentsRewritten)
		if got.Incarnation != "a" || got.N != 3 || got.Done != (c.outcome == protocol.Written) || got.Unwritable != c.record || (w.Record != nil) != c.record || !errors.Is(w.End, c.end) || (w.End == nil) != (c.end == nil) {
			t.Errorf("%s: %+v", c.what, w)
		}
		if want := map[bool]int64{true: 7, false: 9}[c.record]; got.ModRevision != want {
			t.Errorf("%s: the key is at %d, want %d", c.what, got.ModRevision, want)
		}
	}
	now := []protocol.StoredIntents{{N: 3, ModRevision: 7}}
	for _, err := range []error{nil, protocol.ErrSessionLost, away} {
		w := IntentsDeleted(now, err)
		if got := w.Event.(event.IntentsDeleted); len(got.Keys) != 1 || got.Keys[0] != (event.IntentKey{N: 3, ModRevision: 7}) || w.End != err || w.Record != nil {
			t.Errorf("deleted with %v: %+v", err, w)
		}
	}
}

func TestBindDone(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	for _, c := range []struct {
		err  error
		want event.BindOutcome
	}{
		{nil, event.BindOK},
		{apierrors.NewConflict(pods, "p", errors.New("it moved")), event.BindConflict},
		{fmt.Errorf("bind: %w", apierrors.NewNotFound(pods, "p")), event.BindNotFound},
		{apierrors.NewTooManyRequests("later", 1), event.BindUnknown},
		{errors.New("connection reset"), event.BindUnknown},
	} {
		o := event.BindPod{Row: event.RowID{PodUID: "u", N: 3}}
		if got := BindDone(o, c.err); got != (event.BindDone{Row: o.Row, Outcome: c.want}) {
			t.Errorf("%v: %+v", c.err, got)
		}
	}
}

// What the API server rejects, and is likely to reject again, is told from what it could not do now.
func TestBindRejected(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	long := strings.Repeat("x", 600)
	hook := func(code int32) error {
		says := `admission webhook "w" denied the request: no`
		return &apierrors.StatusError{ErrStatus: metav1.Status{Code: code, Message: says}}
	}
	proxy := apierrors.NewGenericServerResponse(403, "create", pods, "p", "<html>", 0, true)
	for _, c := range []struct {
		err  error
		want string
	}{
		{apierrors.NewForbidden(pods, "p", errors.New("policy\n denied")), `pods "p" is forbidden: policy denied`},
		{fmt.Errorf("bind: %w", apierrors.NewBadRequest("no")), "bind: no"},
		{&apierrors.StatusError{ErrStatus: metav1.Status{Code: 422, Message: long}}, long[:509] + "..."},
		{&apierrors.StatusError{ErrStatus: metav1.Status{Code: 413, Message: "no"}}, "no"},
		{hook(409), `admission webhook "w" denied the request: no`},
		{hook(404), `admission webhook "w" denied the request: no`},
		{hook(500), `admission webhook "w" denied the request: no`},
		{proxy, ""},
		{apierrors.NewUnauthorized("no"), ""},
		{apierrors.NewInternalError(errors.New("failed calling webhook")), ""},
		{apierrors.NewServiceUnavailable("no"), ""},
		{errors.New("denied the request"), ""},
	} {
		got := BindDone(event.BindPod{}, c.err)
		if got.Outcome != event.BindRejected {
			got.Why = "" // of what could not be judged
		}
		if got.Why != c.want || (got.Outcome == event.BindRejected) != (c.want != "") {
			t.Errorf("%v: %+v", c.err, got)
		}
	}
}

// Where the API server could not judge a Binding, and may not for a while, its words are kept. Whether the pod is bound
// is not known all the same.
func TestBindNotJudged(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	hook := errors.New(`failed calling webhook "w": connection refused`)
	for _, c := range []struct {
		err  error
		want string
	}{
		{apierrors.NewInternalError(hook), `Internal error occurred: failed calling webhook "w": connection refused`},
		{apierrors.NewUnauthorized("no"), "no"},
		{apierrors.NewMethodNotSupported(pods, "create"), `create is not supported on resources of kind "pods"`},
		{apierrors.NewGenericServerResponse(500, "create", pods, "p", "<html>", 0, true), ""},
		{apierrors.NewServerTimeout(pods, "create", 1), ""},
		{apierrors.NewTooManyRequests("later", 1), ""},
		{apierrors.NewServiceUnavailable("no"), ""},
		{errors.New("connection reset"), ""},
	} {
		if got := BindDone(event.BindPod{}, c.err); got.Why != c.want || got.Outcome != event.BindUnknown {
			t.Errorf("%v: %+v", c.err, got)
		}
	}
}

func TestResolveDone(t *testing.T) {
	row := event.RowID{PodUID: "u", N: 3}
	for _, c := range []struct {
		what  string
		found Found
		err   error
		want  event.ResolveDone
	}{
		{"bound", Found{Node: "n1", Version: "8"}, nil, event.ResolveDone{Outcome: event.ResolvedBound, Node: "n1"}},
		{"free", Found{Version: "8"}, nil, event.ResolveDone{Outcome: event.ResolvedFree, Version: "8"}},
		{"gone", Found{Gone: true}, nil, event.ResolveDone{Outcome: event.ResolvedGone}},
		{"no answer", Found{}, errors.New("connection reset"), event.ResolveDone{Outcome: event.ResolveRetry}},
		{"no answer, and what a try before it found", Found{Node: "n1", Version: "8"}, errors.New("connection reset"), event.ResolveDone{Outcome: event.ResolveRetry}},
	} {
		c.want.Row = row
		if got := ResolveDone(event.ResolveBinding{Row: row}, c.found, c.err); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.what, got, c.want)
		}
	}
}

func TestStatusWritten(t *testing.T) {
	queues := schema.GroupResource{Resource: "queues"}
	for _, c := range []struct {
		version string
		err     error
		want    event.StatusOutcome
	}{
		{"8", nil, event.StatusOK},
		{"", apierrors.NewNotFound(queues, "q"), event.StatusGone},
		{"", fmt.Errorf("write: %w", apierrors.NewConflict(queues, "q", errors.New("another UID"))), event.StatusConflict},
		{"", apierrors.NewInvalid(schema.GroupKind{Kind: "Queue"}, "q", nil), event.StatusConflict},
		{"", apierrors.NewForbidden(queues, "q", errors.New("denied")), event.StatusFailed},
		{"", apierrors.NewTooManyRequests("later", 1), event.StatusFailed},
		{"", errors.New("connection reset"), event.StatusFailed},
	} {
		want := event.StatusWritten{ID: 5, Outcome: c.want, ResourceVersion: c.version}
		if c.err != nil {
			want.Error = c.err.Error()
		}
		if got := StatusWritten(5, c.version, c.err); got != want {
			t.Errorf("%v: %+v, want %+v", c.err, got, want)
		}
	}
}
