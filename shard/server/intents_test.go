package server

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/store"
	"basalt.dev/basalt/api/store/protocol"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/bench/stage/local/localtest"
	"basalt.dev/basalt/shard/event"
)

// A record that the control store cannot take is an answer to the core that asked; the process and its session go on. Only
// the loss of the session ends the process.
func TestUnwritableIntentsEndNoProcess(t *testing.T) {
	ctx := t.Context()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	s, err := store.Open(ctx, store.Options{Endpoints: localtest.Etcd(t).Endpoints(), Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	term, err := s.Campaign(ctx, &wire.LeaderRecord{Incarnation: "c"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := term.Load(ctx); err != nil {
		t.Fatal(err)
	}
	revision, err := term.Commit(ctx, []protocol.Change{protocol.PutTable(&api.Table{Epoch: 1})})
	if err != nil {
		t.Fatal(err)
	}
	session, err := s.Register(ctx, &wire.ShardRecord{Incarnation: "a", Name: "a"}, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	var failed error
	l := &loop{self: "a", session: session, log: log, metrics: newMetrics(prometheus.NewRegistry()), fail: func(err error) { failed = err }}
	record := func(bytes int, name string) *wire.IntentsRecord {
		return &wire.IntentsRecord{Gangs: []*wire.GangRef{{Uid: "g"}}, Demands: []*wire.Demand{{Constraints: []byte(strings.Repeat("x", bytes))}},
			Rows: []*wire.IntentRow{{PodUid: "p", PodResourceVersion: "1", Name: name, Node: "n"}}}
	}
	for n, c := range []struct {
		what   string
		record *wire.IntentsRecord
		want   event.WriteOutcome
	}{
		{"1.2 MiB", record(1200<<10, "p"), event.Unwritable},
		{"a name that is not UTF-8", record(10, "p\xff"), event.Unwritable},
		{"a small one", record(10, "p"), event.Written},
	} {
		ev := l.writeIntents(ctx, event.WriteIntents{N: uint64(n + 1), Record: c.record, TableRevision: revision}).(event.IntentsWritten)
		if ev.Outcome != c.want || ev.N != uint64(n+1) || failed != nil {
			t.Fatalf("%s: %+v, want outcome %d; the process ended: %v", c.what, ev, c.want, failed)
		}
		if ev.Outcome != event.Written {
			continue
		}
		again := l.rewriteIntents(ctx, event.RewriteIntents{Incarnation: "a", N: uint64(n + 1), ModRevision: ev.ModRevision, Record: record(1200<<10, "p"), TableRevision: revision}).(event.IntentsRewritten)
		if !again.Unwritable || again.Done || again.ModRevision != ev.ModRevision || failed != nil {
			t.Fatalf("rewritten to 1.2 MiB: %+v; the process ended: %v", again, failed)
		}
		again = l.rewriteIntents(ctx, event.RewriteIntents{Incarnation: "a", N: uint64(n + 1), ModRevision: ev.ModRevision, TableRevision: revision}).(event.IntentsRewritten)
		if !again.Done || failed != nil {
			t.Fatalf("deleted: %+v; the process ended: %v", again, failed)
		}
	}
	if err := session.Deregister(ctx); err != nil {
		t.Fatal(err)
	}
	if ev := l.writeIntents(ctx, event.WriteIntents{N: 9, Record: record(10, "p"), TableRevision: revision}).(event.IntentsWritten); ev.Outcome != event.SessionLost || failed == nil {
		t.Fatalf("without a session: %+v; the process ended: %v", ev, failed)
	}
}
