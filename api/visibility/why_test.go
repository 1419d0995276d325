package visibility

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api/wire"
)

var now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func ms(before time.Duration) int64 { return now.Add(-before).UnixMilli() }

// What people read, for each kind of wait.
func TestText(t *testing.T) {
	for _, c := range []struct {
		what string
		said *wire.WhyReply
		wide bool
		want string
	}{
		{"quota", &wire.WhyReply{Known: true, Title: "PodGroup ns/g", Queue: "a.b", Reason: "QuotaExceeded", Message: `queue "a" has insufficient cpu: 6 short`, Next: "it is admitted when others end",
			CreatedUnixMs: ms(90 * time.Minute), CompleteUnixMs: ms(30 * time.Second), Pods: 3, MinCount: 3, Position: 2, Waiting: 17, ShortQueue: "a", ShortResource: "cpu", Short: 6000}, false,
			`PodGroup ns/g waits: queue "a" has insufficient cpu: 6 short
  since    2026-01-01T10:30:00Z (1h30m0s ago), complete for 30s
  pods     3 exist, 0 are bound, 3 start together
  queue    a.b
  order    2nd of the 17 gangs that wait in its queue
  quota    queue "a" lacks cpu=6
  next     it is admitted when others end
`},
		{"order", &wire.WhyReply{Known: true, Title: "PodGroup ns/g", Queue: "a", Message: "no quota",
			CreatedUnixMs: ms(0), Pods: 1, MinCount: 1, Position: 1, Waiting: 1, Order: new(int64(math.MinInt64))}, false,
			`PodGroup ns/g waits: no quota
  since    2026-01-01T12:00:00Z (0s ago)
  pods     1 exist, 0 are bound, 1 start together
  queue    a
  order    first in its queue (spec.order: -9223372036854775808)
`},
		{"no order", &wire.WhyReply{Known: true, Title: "PodGroup ns/g", Queue: "a", Message: "no quota",
			CreatedUnixMs: ms(0), Pods: 1, MinCount: 1, Position: 3, Waiting: 4, Order: new(int64(0)),
			OrderFailed: "column 3: no key: due"}, false,
			`PodGroup ns/g waits: no quota
  since    2026-01-01T12:00:00Z (0s ago)
  pods     1 exist, 0 are bound, 1 start together
  queue    a
  order    3rd of the 4 gangs that wait in its queue (spec.order fails for it and counts as 0: column 3: no key: due)
`},
		{"supply", &wire.WhyReply{Known: true, Title: "pod ns/p", Queue: "a", Message: "the nodes lack room for it", CreatedUnixMs: ms(0), Pods: 1, MinCount: 1, ShortResource: "cpu", Short: 6000}, false,
			`pod ns/p waits: the nodes lack room for it
  since    2026-01-01T12:00:00Z (0s ago)
  pods     1 exist, 0 are bound, 1 start together
  queue    a
  supply   the nodes lack cpu=6
`},
		{"room", &wire.WhyReply{Known: true, Title: "pod ns/p", Queue: "a", Message: "0/9 nodes are available", CreatedUnixMs: ms(1500 * time.Millisecond), Pods: 1, MinCount: 1, Position: 1, Waiting: 1,
			Charged: []*wire.Amount{{Resource: "cpu", Value: 500}, {Resource: "pods", Value: 1}}, Nodes: 9, Fit: 1,
			NodeReasons: []*wire.NodeReason{{Reason: "a", Nodes: 3}, {Reason: "b", Nodes: 1}, {Reason: "c", Nodes: 1}, {Reason: "d", Nodes: 1}, {Reason: "e", Nodes: 1}, {Reason: "f", Nodes: 1}}}, false,
			`pod ns/p waits: 0/9 nodes are available
  since    2026-01-01T11:59:58Z (1.5s ago)
  pods     1 exist, 0 are bound, 1 start together
  queue    a
  order    first in its queue
  charged  cpu=500m
           pods=1
  nodes    1 of 9 take one of its pods now
           3 a
           1 b
           1 c
           1 d
           1 e
           and 1 other reasons (-o wide)
`},
		{"started", &wire.WhyReply{Known: true, Title: "PodGroup ns/g", Started: true, CreatedUnixMs: ms(0), Pods: 4, Bound: 4, MinCount: 2}, false,
			`PodGroup ns/g has started: 4 of 4 pods are bound
  since    2026-01-01T12:00:00Z (0s ago)
  pods     4 exist, 4 are bound, 2 start together
`},
		{"evicted", &wire.WhyReply{Known: true, Title: "PodGroup ns/g", Message: "no quota", CreatedUnixMs: ms(0), Pods: 4, MinCount: 2, Evicted: "evicted so that gang ns/h of queue \"q\" can start"}, false,
			`PodGroup ns/g waits: no quota
  since    2026-01-01T12:00:00Z (0s ago)
  pods     4 exist, 0 are bound, 2 start together
  evicted  so that gang ns/h of queue "q" can start
`},
		{"room to come", lacksRoom(roomFor(1, 0), roomFor(1, -1), roomFor(1, -1), roomFor(5, -2)), false, noRoom +
			"  room     for 3 of 4 such pods by 2026-01-01T13:00:00Z, for 4 of 4 such pods by 2026-01-01T14:00:00Z, " +
			"if what runs on the nodes leaves by its limit\n"},
		{"room to come for a part", lacksRoom(roomFor(1, 1), roomFor(1, -1)), false, noRoom +
			"  room     for 2 of 4 such pods by 2026-01-01T13:00:00Z, if what runs on the nodes leaves by its limit\n"},
		{"room enough", lacksRoom(roomFor(4, 0), roomFor(1, -1)), false, noRoom},
		{"a limit", &wire.WhyReply{Known: true, Title: "PodGroup ns/g", Message: "no quota", CreatedUnixMs: ms(0),
			Pods: 4, MinCount: 2, LimitMs: 5400_000, LimitBy: "spec.defaultRuntime of queue team"}, false,
			`PodGroup ns/g waits: no quota
  since    2026-01-01T12:00:00Z (0s ago)
  pods     4 exist, 0 are bound, 2 start together
  limit    1h30m0s (spec.defaultRuntime of queue team)
`},
		{"within its limit", &wire.WhyReply{Known: true, Title: "PodGroup ns/g", Started: true, CreatedUnixMs: ms(0),
			Pods: 4, Bound: 4, MinCount: 2, LimitMs: 5400_000, LimitBy: "its pods", EndsUnixMs: ms(-90 * time.Minute)}, false,
			`PodGroup ns/g has started: 4 of 4 pods are bound
  since    2026-01-01T12:00:00Z (0s ago)
  pods     4 exist, 4 are bound, 2 start together
  limit    past it at 2026-01-01T13:30:00Z
`},
		{"past its limit", &wire.WhyReply{Known: true, Title: "PodGroup ns/g", Started: true,
			CreatedUnixMs: ms(2 * time.Hour), Pods: 4, Bound: 4, MinCount: 2, LimitMs: 5400_000, LimitBy: "its pods",
			EndsUnixMs: ms(30 * time.Minute)}, false,
			`PodGroup ns/g has started: 4 of 4 pods are bound
  since    2026-01-01T10:00:00Z (2h0m0s ago)
  pods     4 exist, 4 are bound, 2 start together
  limit    past it since 30m0s: it is evicted before others that are not
`},
		{"further pods", &wire.WhyReply{Known: true, Title: "PodGroup ns/g", Started: true, Message: "no room", CreatedUnixMs: ms(0), Pods: 4, Bound: 3, MinCount: 2}, false,
			`PodGroup ns/g has started, and further pods wait: no room
  since    2026-01-01T12:00:00Z (0s ago)
  pods     4 exist, 3 are bound, 2 start together
`},
		{"finished", &wire.WhyReply{Known: true, Title: "PodGroup ns/g", Queue: "a", Started: true, Reason: "Finished",
			Message: "2 pods have succeeded", CreatedUnixMs: ms(0), MinCount: 2}, false,
			`PodGroup ns/g has finished: 2 pods have succeeded
  since    2026-01-01T12:00:00Z (0s ago)
  queue    a
`},
		{"a pod that succeeded", OfEnded(ended(corev1.PodSucceeded, "", "")), false,
			`pod ns/p has finished: it succeeded at 2026-01-01T11:59:00Z
  since    2026-01-01T11:00:00Z (1h0m0s ago)
`},
		{"a pod that failed", OfEnded(ended(corev1.PodFailed, "Evicted", "The node was low on resource: memory.")), false,
			`pod ns/p has finished: it failed at 2026-01-01T11:59:00Z: Evicted: The node was low on resource: memory.
  since    2026-01-01T11:00:00Z (1h0m0s ago)
`},
	} {
		w := FromReply("ns", "g", c.said)
		if got := w.Text(now, c.wide); got != c.want {
			t.Errorf("%s:\n%s\nwant:\n%s", c.what, got, c.want)
		}
		b, err := json.Marshal(w)
		var again Why
		if err == nil {
			err = json.Unmarshal(b, &again)
		}
		if err != nil || again.Text(now, true) != w.Text(now, true) {
			t.Errorf("%s: %v: JSON loses something: %s", c.what, err, b)
		}
	}
	if w := FromReply("ns", "g", &wire.WhyReply{Message: "m"}); w.Line() != "ns/g waits: m" {
		t.Error(w.Line())
	}
	for n, want := range map[int]string{1: "1st", 2: "2nd", 3: "3rd", 4: "4th", 11: "11th", 12: "12th", 13: "13th", 21: "21st", 111: "111th", 1002: "1002nd"} {
		if got := ordinal(n); got != want {
			t.Errorf("%d is %s", n, got)
		}
	}
}

// ended is a pod that has ended a minute ago.
func ended(phase corev1.PodPhase, reason, message string) *corev1.Pod {
	p := &corev1.Pod{Status: corev1.PodStatus{Phase: phase, Reason: reason, Message: message}}
	p.Namespace, p.Name, p.CreationTimestamp = "ns", "p", metav1.NewTime(now.Add(-time.Hour))
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{FinishedAt: metav1.NewTime(now.Add(-time.Minute))}}}}
	return p
}

// Of a pod that has not ended, its home has more to say.
func TestNotEnded(t *testing.T) {
	for _, phase := range []corev1.PodPhase{"", corev1.PodPending, corev1.PodRunning, corev1.PodUnknown} {
		if said := OfEnded(ended(phase, "", "")); said != nil {
			t.Errorf("%q: %v", phase, said)
		}
	}
}

// Requests carry tokens: without TLS they are taken on this machine alone.
func TestPlainTextOnLoopbackAlone(t *testing.T) {
	if _, err := Serve(t.Context(), Options{Address: ":0"}); err == nil || !strings.Contains(err.Error(), "only a loopback address") {
		t.Errorf("tokens are taken in plain text from everywhere: %v", err)
	}
	if at, err := Serve(t.Context(), Options{}); at != nil || err != nil {
		t.Errorf("without an address: %v, %v", at, err)
	}
	if _, err := Serve(t.Context(), Options{Address: "nowhere"}); err == nil || !strings.Contains(err.Error(), "--visibility") {
		t.Errorf("an address that is none: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	at, err := Serve(ctx, Options{Address: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"/": "what may be asked is", "/v1/namespaces/a/gangs/b/why": "a bearer token is needed"} {
		response, err := http.Get("http://" + at.String() + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || !strings.Contains(string(body), want) {
			t.Errorf("%s: %v: %s", path, err, body)
		}
	}
	cancel()
	for {
		if _, err := http.Get("http://" + at.String() + "/"); err != nil {
			return
		}
	}
}

// With TLS a client shows no certificate, and plain text is not understood.
func TestTLS(t *testing.T) {
	certificate := selfSigned(t)
	at, err := Serve(t.Context(), Options{Address: "127.0.0.1:0", TLS: &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return certificate, nil }}})
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // a test of what is said, not to whom
	response, err := client.Get("https://" + at.String() + "/v1/namespaces/a/gangs/b/why")
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusUnauthorized || response.Header.Get("WWW-Authenticate") == "" {
		t.Errorf("the answer is %s %v", response.Status, response.Header)
	}
	if response, err := http.Get("http://" + at.String() + "/"); err == nil {
		response.Body.Close()
		if response.StatusCode == http.StatusOK || response.StatusCode == http.StatusNotFound {
			t.Errorf("plain text is answered: %s", response.Status)
		}
	}
}

// noRoom is what is said of a gang that lacks room.
const noRoom = `PodGroup ns/g waits: no room
  since    2026-01-01T12:00:00Z (0s ago)
  pods     4 exist, 0 are bound, 4 start together
  nodes    0 of 9 take one of its pods now
`

// lacksRoom is a gang of four pods that lacks room, and when there is some.
func lacksRoom(by ...*wire.RoomBy) *wire.WhyReply {
	return &wire.WhyReply{Known: true, Title: "PodGroup ns/g", Message: "no room", CreatedUnixMs: now.UnixMilli(),
		Pods: 4, MinCount: 4, Nodes: 9, Missing: 4, RoomBy: by}
}

// roomFor is room for so many more pods so many hours ago, 0 for now.
func roomFor(pods uint32, ago time.Duration) *wire.RoomBy {
	if ago == 0 {
		return &wire.RoomBy{Pods: pods}
	}
	return &wire.RoomBy{UnixMs: now.Add(-ago * time.Hour).UnixMilli(), Pods: pods}
}
