package auditlog_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"basalt.dev/basalt/api/audit"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/bench/prove/auditlog"
)

const shard = auditlog.Users + "basalt-shard"

var begin = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func line(user, verb, resource, sub, name string, code int, body string) string {
	if body == "" {
		body = "null"
	}
	return fmt.Sprintf(`{"kind":"Event","apiVersion":"audit.k8s.io/v1","stage":"ResponseComplete","verb":%q,"user":{"username":%q},"objectRef":{"resource":%q,"namespace":"ns","name":%q,"subresource":%q},"responseStatus":{"metadata":{},"code":%d},"requestObject":%s,"requestReceivedTimestamp":%q}`+"\n",
		verb, user, resource, name, sub, code, body, begin.Format(time.RFC3339Nano))
}

func bind(name, uid, version, node string, code int) string {
	return line(shard, "create", "pods", "binding", name, code,
		fmt.Sprintf(`{"kind":"Binding","metadata":{"name":%q,"uid":%q,"resourceVersion":%q},"target":{"kind":"Node","name":%q}}`, name, uid, version, node))
}

func intents(t *testing.T, at time.Time, rows ...*wire.IntentRow) *auditlog.Intents {
	b, err := proto.Marshal(&wire.IntentsRecord{Rows: rows})
	if err != nil {
		t.Fatal(err)
	}
	in := auditlog.NewIntents()
	in.Observe(at, audit.StoreRevision{Changes: []audit.StoreChange{{Key: "intents/a/1", Value: b}}})
	return in
}

func TestRead(t *testing.T) {
	row := &wire.IntentRow{PodUid: "u1", PodResourceVersion: "7", Node: "n1"}
	tests := []struct {
		name string
		log  string
		in   *auditlog.Intents
		want string
	}{
		{"nothing", "", nil, "writes 0 bindings 0/0 status 0/0 two [] none [] uid []"},
		{"a Binding with its intent", bind("p", "u1", "7", "n1", 201), intents(t, begin, row), "writes 1 bindings 1/1 status 0/0 two [] none [] uid []"},
		{"its intent seen a little later", bind("p", "u1", "7", "n1", 201), intents(t, begin.Add(time.Second), row), "writes 1 bindings 1/1 status 0/0 two [] none [] uid []"},
		{"its intent came after it", bind("p", "u1", "7", "n1", 201), intents(t, begin.Add(time.Minute), row), "writes 1 bindings 1/1 status 0/0 two [] none [ns/p (u1) to n1: seen 1m0s after the Binding] uid []"},
		{"an intent for another version", bind("p", "u1", "8", "n1", 201), intents(t, begin, row), "writes 1 bindings 1/1 status 0/0 two [] none [ns/p (u1) to n1 at version 8: never] uid []"},
		{"an intent for another node", bind("p", "u1", "7", "n2", 409), intents(t, begin, row), "writes 1 bindings 1/0 status 0/0 two [] none [ns/p (u1) to n2 at version 7: never] uid []"},
		{"two nodes, one refused", bind("p", "u1", "7", "n1", 201) + bind("p", "u1", "7", "n2", 409), nil, "writes 2 bindings 2/1 status 0/0 two [ns/p (u1): n1 and n2] none [] uid []"},
		{"the same node again", bind("p", "u1", "7", "n1", 500) + bind("p", "u1", "8", "n1", 201), nil, "writes 2 bindings 2/1 status 0/0 two [] none [] uid []"},
		{"another pod of the name", bind("p", "u1", "7", "n1", 201) + bind("p", "u2", "9", "n2", 201), nil, "writes 2 bindings 2/2 status 0/0 two [] none [] uid []"},
		{"a Binding without a UID", bind("p", "", "7", "n1", 201), nil, "writes 1 bindings 1/1 status 0/0 two [] none [] uid [ns/p]"},
		{"statuses", line(shard, "patch", "queues", "status", "q", 200, "{}") + line(shard, "patch", "queues", "status", "q", 422, "{}") +
			line(shard, "patch", "pods", "status", "p", 409, "{}") + line(shard, "patch", "podgroups", "status", "p", 404, "{}"),
			nil, "writes 4 bindings 0/0 status 4/1 two [] none [] uid []"},
		{"what others write and what is read", line("bench-load", "create", "pods", "", "p", 201, "") + line("x"+shard, "create", "pods", "", "p", 201, "") + line(shard, "watch", "pods", "", "", 200, ""),
			nil, "writes 0 bindings 0/0 status 0/0 two [] none [] uid []"},
		{"a line that is being written", line(shard, "create", "events", "", "e", 201, "") + `{"user":{"username":"` + shard, nil, "writes 1 bindings 0/0 status 0/0 two [] none [] uid []"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r, err := auditlog.Read(strings.NewReader(test.log), test.in)
			if err != nil {
				t.Fatal(err)
			}
			got := fmt.Sprintf("writes %d bindings %d/%d status %d/%d two %v none %v uid %v", r.Writes, r.Bindings, r.Bound, r.StatusWrites, r.StatusConflicts, r.TwoNodes, r.NoIntent, r.NoUID)
			if got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
	if _, err := auditlog.Read(strings.NewReader("not json "+shard+"\n"), nil); err == nil {
		t.Error("a broken line was accepted")
	}
}

func TestRequestsOfAnyUser(t *testing.T) {
	log := line("rival", "create", "pods", "binding", "p", 201, "") + line("rival", "create", "pods", "binding", "p", 409, "") +
		line("rival", "create", "events", "", "e", 201, "") + line("other", "create", "pods", "", "p", 201, "")
	is := func(user string) bool { return user == "rival" }
	requests, failed, err := auditlog.Requests(strings.NewReader(log), begin, is)
	if err != nil || len(requests) != 2 || requests["create pods/binding"] != 2 || requests["create events"] != 1 || len(failed) != 1 || failed["create pods/binding 409"] != 1 {
		t.Errorf("%v, %v, %v", requests, failed, err)
	}
	if requests, _, err = auditlog.Requests(strings.NewReader(log), begin.Add(time.Second), is); err != nil || len(requests) != 0 {
		t.Errorf("from later on: %v, %v", requests, err)
	}
}
