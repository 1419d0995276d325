package node

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/cache"
	"basalt.dev/basalt/shard/event"
)

// Check is the judge of the other tests and of the simulator: whatever of the state is broken, it says so.
func TestCheckFindsWhatIsBroken(t *testing.T) {
	prepared := func(c *Core) *row { return c.rows["p2"][0] }
	for _, broken := range []struct {
		name string
		by   func(c *Core)
		want string
	}{
		{"nothing", func(*Core) {}, ""},
		{"a hold's charge is gone", func(c *Core) { c.cache.Release("p1") }, "hold of pod p1"},
		{"a hold is charged on another node", func(c *Core) { c.gangs["g1/q"].holds["p1"].node = "n2" }, "hold of pod p1"},
		{"a hold is charged as something else", func(c *Core) {
			h := c.gangs["g1/q"].holds["p1"]
			c.cache.Charge("p1", h.node, h.class, cache.Intent, "g1/q", api.Rank{})
		}, "hold of pod p1"},
		{"a hold is charged for another gang", func(c *Core) {
			h := c.gangs["g1/q"].holds["p1"]
			c.cache.Charge("p1", h.node, h.class, cache.Hold, "g2/q", api.Rank{})
		}, "hold of pod p1"},
		{"a pod has a hold and a row", func(c *Core) { c.rows["p1"] = c.rows["p2"] }, "p1 has a hold and is on its way"},
		{"a row's charge is gone", func(c *Core) { c.cache.Release("p2") }, "row of pod p2"},
		{"a row is charged as something else", func(c *Core) {
			r := prepared(c)
			c.cache.Charge("p2", r.node, r.class, cache.Bound, "", api.Rank{})
		}, "row of pod p2"},
		{"a finished row is charged", func(c *Core) { prepared(c).phase = done }, "done and charged"},
		{"two rows share a charge", func(c *Core) { c.gangs["g2/q"].rows = append(c.gangs["g2/q"].rows, prepared(c)) }, "used twice"},
		{"a row is not listed", func(c *Core) { delete(c.rows, "p2") }, "listed"},
		{"a dropped row is listed", func(c *Core) { prepared(c).phase = dropped }, "listed"},
		{"a durable row has no key", func(c *Core) { prepared(c).key = nil }, "has no key"},
		{"a durable row's key is gone", func(c *Core) { delete(c.intents.keys, prepared(c).key.id) }, "has no key"},
		{"a durable row's key does not know it", func(c *Core) { delete(prepared(c).key.rows, "p2") }, "has no key"},
		{"a bound pod's charge is gone", func(c *Core) { c.cache.Release("p3") }, "p3 is bound"},
		{"a bound pod is charged on another node", func(c *Core) {
			c.bound["p3"] = boundPod{node: "n2", kin: c.bound["p3"].kin}
		}, "p3 is bound"},
		{"a bound pod is charged as something else", func(c *Core) {
			p, _ := c.cache.Lookup("p3")
			c.cache.Charge("p3", "n1", p.Class, cache.Intent, "g2/q", api.Rank{})
		}, "p3 is bound"},
		{"a bound pod's node is not ours", func(c *Core) { c.buckets[api.BucketOf("n1")] = foreign }, "p3 is bound"},
		{"a bound pod has rows", func(c *Core) { c.rows["p3"] = c.rows["p2"] }, "p3 is bound and has rows"},
	} {
		t.Run(broken.name, func(t *testing.T) {
			s := newScript(t)
			for _, line := range []string{"table 5 a:n1,n2 home:q", "node n1 cpu=9", "node n2 cpu=9", "store 1 5", "pods 1", "hold g1 p1 serial=1 cpu=1",
				"commit g2 p2@n1 serial=1 table=5 cpu=1", "written 1 60", "pod p3@n1 cpu=1"} {
				s.run(line)
			}
			broken.by(s.core)
			switch err := s.core.Check(); {
			case broken.want == "" && err != nil:
				t.Errorf("Check says %v", err)
			case broken.want != "" && (err == nil || !strings.Contains(err.Error(), broken.want)):
				t.Errorf("Check says %v, want %q", err, broken.want)
			}
		})
	}
}

// The defaults are those that Config names.
func TestDefaults(t *testing.T) {
	want := Config{HoldTTL: 5 * time.Second, MaxHoldTTL: 30 * time.Second, MaxPatientTTL: 10 * time.Minute, PreparedLimit: 10 * time.Second, ConfirmLimit: 30 * time.Second,
		ResolveGrace: 2 * time.Second, Remember: 2 * time.Minute, SummaryEvery: 5 * time.Second, SummaryPace: time.Second, RecentFor: time.Minute, DeleteEvery: 500 * time.Millisecond,
		MaxFences: 100, MaxRows: 1000, MaxBytes: 768 << 10, MaxClassBytes: 256 << 10, MaxNamed: 16000, MaxDeletes: 100, MaxRewrites: 16, MaxResolving: 64, MaxClasses: 16, MaxRoom: 4096}
	if got := (Config{}).withDefaults(); got != want {
		t.Errorf("defaults %+v, want %+v", got, want)
	}
	given := Config{HoldTTL: 1, MaxHoldTTL: 2, MaxPatientTTL: 3, PreparedLimit: 4, ConfirmLimit: 5, ResolveGrace: 6, Remember: 7, SummaryEvery: 8, SummaryPace: 9, RecentFor: 10, WriteEvery: 11, DeleteEvery: 12,
		MaxFences: 1, MaxRows: 2, MaxBytes: 3, MaxClassBytes: 4, MaxNamed: 5, MaxDeletes: 6, MaxRewrites: 7, MaxResolving: 8, MaxClasses: 9, MaxRoom: 10}
	if got := given.withDefaults(); got != given {
		t.Errorf("given %+v, became %+v", given, got)
	}
}

// Limits in bytes are of what a record takes: as much as the limit is taken, a byte more is not.
func TestBytesAtTheLimit(t *testing.T) {
	commits := []string{"commit g1 p1@n1 serial=1 table=5 cpu=1 weight=1000", "commit g2 p2@n1 serial=1 table=5 cpu=1 weight=2000", "commit g3 p3@n1 serial=1 table=5 cpu=1 weight=3000"}
	play := func(cfg Config) (outputs []event.Output, size int, c *Core) {
		s := newScript(t)
		cfg.Self, cfg.Strict = "a", true
		s.core = New(cfg)
		for _, line := range []string{"table 5 a:n1 home:q", "node n1 cpu=9", "store 1 5", "pods 1", "commit g0 p0@n1 serial=1 table=5 cpu=1"} {
			s.run(line)
		}
		for _, line := range commits { // they wait for the first
			name, w := s.parse(line)
			m := &wire.Commit{Gang: w.gang(), Serial: 1, TableRevision: 5, ReservationRevision: 50, Classes: wireClass(w.class())}
			uid, node, _ := strings.Cut(w.plain[1], "@")
			m.Pods = append(m.Pods, &wire.PodRef{Uid: uid, ResourceVersion: "7", Namespace: "ns", Name: uid, Node: node})
			if name != "commit" {
				t.Fatal(line)
			}
			s.core.Step(s.now, event.Message{From: "home", Body: &wire.Envelope{Body: &wire.Envelope_Commit{Commit: m}}})
			outputs = append(outputs, s.core.Outputs()...)
		}
		s.core.Step(s.now, event.IntentsWritten{N: 1, Outcome: event.Written, ModRevision: 60})
		if s.core.writes.writing != nil {
			size = s.core.writes.writing.size
		}
		return append(outputs, s.core.Outputs()...), size, s.core
	}
	_, all, c := play(Config{})
	if got := len(c.writes.writing.rows); got != 3 || all <= proto.Size(c.writes.writing.record) {
		t.Fatalf("%d rows in a record of %d bytes, counted as %d", got, proto.Size(c.writes.writing.record), all)
	}
	for limit, rows := range map[int]int{all: 3, all - 1: 2} {
		if _, _, c := play(Config{MaxBytes: limit}); len(c.writes.writing.rows) != rows {
			t.Errorf("with a limit of %d bytes for a record and three rows of %d: %d go together, want %d", limit, all,
				len(c.writes.writing.rows), rows)
		}
	}
	s := newScript(t)
	_, w := s.parse(commits[2])
	largest := demandSize(w.class())
	for limit, refused := range map[int]int{largest: 0, largest - 1: 1} {
		outputs, _, _ := play(Config{MaxClassBytes: limit})
		got := 0
		for _, o := range outputs {
			if m, ok := o.(event.Send); ok && m.Body.GetCommitReply().GetOutcome() == wire.CommitOutcome_COMMIT_HOLD_GONE {
				got++
			}
		}
		if got != refused {
			t.Errorf("with a limit of %d bytes for a class and one of %d: %d commits refused, want %d", limit, largest, got, refused)
		}
	}
}

// An intent of another shard whose gang or demand its record does not have is counted all the same: as a gang of its own, and as
// one pod without requests.
func TestInheritsWhatItCanRead(t *testing.T) {
	gangs := []*wire.GangRef{{Uid: "g0", Queue: "q"}, {Uid: "g1", Queue: "q"}, {}}
	cpu := func(n int64) *wire.Demand {
		return &wire.Demand{Amounts: wire.FromResources(api.FromMap(map[string]int64{"cpu": 1000 * n, "pods": 1}))}
	}
	unreadable := &wire.Demand{Amounts: []*wire.Amount{{Resource: "pods", Value: 1}, {Resource: "cpu", Value: 1}}} // not in order
	demands := []*wire.Demand{cpu(1), cpu(2), unreadable}
	for _, c := range []struct {
		name         string
		gang, demand uint32
		wantGang     string
		wantFree     int64
		warned       bool
	}{
		{"the first of each", 0, 0, "g0/q", 8000, false},
		{"the last readable of each", 1, 1, "g1/q", 7000, false},
		{"a gang without a UID", 2, 1, "p1/", 7000, false},
		{"a gang just beyond the end", 3, 1, "p1/", 7000, false},
		{"a gang far beyond", 1 << 31, 1, "p1/", 7000, false},
		{"a demand that cannot be read", 0, 2, "g0/q", 9000, true},
		{"a demand just beyond the end", 0, 3, "g0/q", 9000, true},
		{"a demand far beyond", 0, 1 << 31, "g0/q", 9000, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScript(t)
			s.run("table 5 a:n1 home:q")
			s.run("node n1 cpu=9")
			s.core.Step(s.now, event.StoreRead{Sequence: 1, Revision: 5, Intents: []event.StoredIntents{{Incarnation: "z", N: 1, ModRevision: 4,
				Record: &wire.IntentsRecord{Gangs: gangs, Demands: demands, Rows: []*wire.IntentRow{{PodUid: "p1", PodResourceVersion: "7", Namespace: "ns", Name: "p1", Node: "n1", Gang: c.gang, Demand: c.demand}}}}}})
			warned := false
			for _, o := range s.core.Outputs() {
				l, ok := o.(event.Log)
				warned = warned || ok && strings.Contains(l.Message, "cannot decode the demand of an intent")
			}
			s.run("pods 1 p1")
			view, _ := s.core.cache.Node("n1")
			if view.Free.Value("cpu") != c.wantFree || view.Free.Value("pods") != 109 || s.core.gangs[c.wantGang] == nil || len(s.core.gangs) != 1 || warned != c.warned {
				t.Errorf("free %v, gangs %v, warned %v", view.Free, api.SortedKeys(s.core.gangs), warned)
			}
		})
	}
}

func TestOnly(t *testing.T) {
	amounts := func(names string) (out api.Resources) {
		for i, name := range names {
			out = append(out, api.Amount{Resource: string(name), Value: int64(1 + i)})
		}
		return out
	}
	for _, c := range [][3]string{
		{"abc", "abc", "abc"}, {"abc", "b", "b"}, {"bd", "abcd", "bd"}, {"ac", "b", ""}, {"c", "ab", ""}, {"", "a", ""},
	} {
		got := ""
		for _, a := range only(amounts(c[0]), amounts(c[1])) {
			got += a.Resource
		}
		if got != c[2] {
			t.Errorf("of %q, %q are in %q, want %q", c[0], got, c[1], c[2])
		}
	}
}
