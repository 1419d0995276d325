package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"basalt.dev/basalt/api/visibility"
)

// A shard that cannot answer is followed by the next; what is an answer is not asked for again; and who gets none learns of the other way.
func TestShardsAreTriedInOrder(t *testing.T) {
	var asked string
	at := func(name string, code int, body string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked += name
			if r.Header.Get("Authorization") != "Bearer token" || r.URL.Path != "/v1/status" {
				code, body = http.StatusTeapot, r.URL.Path
			}
			w.WriteHeader(code)
			_, _ = w.Write([]byte(body))
		}))
		t.Cleanup(s.Close)
		return s.URL
	}
	dead := httptest.NewServer(nil)
	dead.Close()
	good, bad := at("g", 200, `{"gangs":[{"gang":"ns/g"}]}`), at("b", 503, `{"error":"starting"}`)
	denied, other, long := at("d", 403, `{"error":"you may not"}`), at("o", 200, "<html>"), at("l", 200, `"`+strings.Repeat("x", visibility.MaxAnswer)+`"`)
	for _, row := range []struct {
		servers []string
		asked   string
		fails   []string
		hint    bool
	}{
		{servers: []string{good}, asked: "g"},
		{servers: []string{good, bad}, asked: "g"},
		{servers: []string{dead.URL, bad, good}, asked: "bg"},
		{servers: []string{"", denied, good}, asked: "d", fails: []string{"you may not"}},
		{servers: []string{dead.URL, bad}, asked: "b", fails: []string{"refused", "starting"}, hint: true},
		{servers: []string{other}, asked: "o", fails: []string{"read the answer"}, hint: true},
		{servers: []string{long, good}, asked: "lg"},
		{servers: []string{long}, asked: "l", fails: []string{"the answer has more than"}, hint: true},
	} {
		asked = ""
		var answer visibility.Status
		e := endpoint{server: strings.Join(row.servers, ",")}
		err := e.call(t.Context(), &rest.Config{BearerToken: "token"}, http.MethodGet, "/status", &answer)
		if asked != row.asked {
			t.Errorf("%v: asked %q, want %q", row.servers, asked, row.asked)
		}
		if row.fails == nil {
			if err != nil || len(answer.Gangs) != 1 {
				t.Errorf("%v: %v, %+v", row.servers, err, answer)
			}
			continue
		}
		for _, words := range row.fails {
			if err == nil || !strings.Contains(err.Error(), words) {
				t.Errorf("%v: %v, want %q", row.servers, err, words)
			}
		}
		if hint := strings.Contains(noWay("status", err).Error(), "basalt status --etcd="); hint != row.hint {
			t.Errorf("%v: the other way is named: %v", row.servers, hint)
		}
	}
}

// steps are what a shard says one time after another.
type steps struct {
	first visibility.Drain
	then  []any // visibility.Drain or error
}

func (s *steps) order(context.Context, string, bool) (visibility.Drain, error) { return s.first, nil }
func (s *steps) every() time.Duration                                          { return time.Millisecond }
func (s *steps) draining(context.Context, string) (visibility.Drain, error) {
	now := s.then[0]
	if len(s.then) > 1 {
		s.then = s.then[1:]
	}
	if err, failed := now.(error); failed {
		return visibility.Drain{}, err
	}
	return now.(visibility.Drain), nil
}

// A drain is waited for until the shard owns nothing, whatever happens meanwhile.
func TestDrainWaits(t *testing.T) {
	is := func(buckets int, incarnation string, draining bool) visibility.Drain {
		return visibility.Drain{Shard: "s", Incarnation: incarnation, Draining: draining, Buckets: buckets}
	}
	before := is(0, "i", true)
	before.Before = true
	for _, row := range []struct {
		what    string
		first   visibility.Drain
		then    []any
		cancel  bool
		timeout time.Duration
		prints  string
		fails   string
	}{
		{what: "moves", first: is(9, "i", true), then: []any{is(9, "i", true), is(4, "i", true), is(4, "i", true), is(0, "i", true)}, timeout: time.Minute,
			prints: "s is draining, and owns 9 buckets\ns owns 4 buckets\ns owns 0 buckets\n"},
		{what: "before", first: before, then: []any{errors.New("asked")}, timeout: time.Minute, prints: "s is drained already: it owns no buckets\n"},
		{what: "no wait", first: is(9, "i", true), then: []any{errors.New("asked")}, prints: "s is draining, and owns 9 buckets\n"},
		{what: "cancel", first: is(9, "i", false), cancel: true, timeout: time.Minute, prints: "s is not draining any more, and takes its part again; it owns 9 buckets\n"},
		{what: "a shard that does not answer for a moment", first: is(9, "i", true), then: []any{fmt.Errorf("x: %w", refusal{503, "starting"}), refusal{429, "too many"}, is(0, "i", true)}, timeout: time.Minute,
			prints: "s is draining, and owns 9 buckets\ns owns 0 buckets\n"},
		{what: "restarted", first: is(9, "i", true), then: []any{is(0, "j", false)}, timeout: time.Minute, prints: "s is draining, and owns 9 buckets\n", fails: "drain s: it was restarted, and takes its part again"},
		{what: "cancelled", first: is(9, "i", true), then: []any{is(9, "i", false)}, timeout: time.Minute, prints: "s is draining, and owns 9 buckets\n", fails: "drain s: somebody else cancelled it"},
		{what: "gone", first: is(9, "i", true), then: []any{refusal{404, "there is no shard"}}, timeout: time.Minute, prints: "s is draining, and owns 9 buckets\n", fails: "drain s: there is no shard"},
		{what: "for ever", first: is(9, "i", true), then: []any{is(9, "i", true)}, timeout: 20 * time.Millisecond, prints: "s is draining, and owns 9 buckets\n", fails: "drain s: it still owns buckets after 20ms"},
	} {
		var out strings.Builder
		err := drain(t.Context(), &steps{row.first, row.then}, "s", row.cancel, row.timeout, &out)
		if out.String() != row.prints || (err == nil) != (row.fails == "") || err != nil && !strings.Contains(err.Error(), row.fails) {
			t.Errorf("%s: %v, %q", row.what, err, out.String())
		}
	}
}
