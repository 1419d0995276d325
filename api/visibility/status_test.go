package visibility

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

// control is what a control store says.
type control struct {
	table  *api.Table
	shards []*wire.ShardRecord
	leader *wire.LeaderRecord
	err    error
}

func (c *control) Table(context.Context) (*api.Table, error) { return c.table, c.err }
func (c *control) Shards(context.Context) ([]*wire.ShardRecord, error) {
	return slices.Clone(c.shards), c.err
}
func (c *control) Leader(context.Context) (*wire.LeaderRecord, int64, error) {
	return c.leader, 7, c.err
}

// owned returns a table in which shards own so many buckets, one after another; the rest is the first one's.
func owned(names []string, counts ...int) *api.Table {
	t := &api.Table{Epoch: 12}
	b := 0
	for i, name := range names {
		t.Members = append(t.Members, api.Member{Incarnation: api.Incarnation("i-" + name), Name: name})
		for range counts[i] {
			t.Owners[b] = uint16(i)
			b++
		}
	}
	return t
}

func record(name string, draining bool) *wire.ShardRecord {
	return &wire.ShardRecord{Name: name, Incarnation: "i-" + name, Address: name + ":7600", Draining: draining, Protocol: 4, Version: "v1"}
}

func amounts(what map[string]int64) []*wire.Amount { return wire.FromResources(api.FromMap(what)) }

// answers are what processes say, by incarnation; of all others it is an error.
func answers(all map[string]*wire.StatusReply) Ask {
	return func(_ context.Context, who api.Incarnation, address string) (*wire.StatusReply, error) {
		if r := all[string(who)]; r != nil {
			return r, nil
		}
		return nil, fmt.Errorf("dial %s: refused", address)
	}
}

func world() (*control, Ask) {
	c := &control{table: owned([]string{"a", "b", "c", "d"}, 400, 300, 200, 124), shards: []*wire.ShardRecord{record("c", false), record("b", true), record("a", false)},
		leader: &wire.LeaderRecord{Name: "coordinator-0", Incarnation: "i-leader", Address: "coordinator-0:7600", Protocol: 4, Version: "v1"}}
	gang := func(uid, name, queue string, since time.Duration) *wire.GangStatus {
		return &wire.GangStatus{Gang: &wire.GangRef{Uid: uid, Namespace: "ns", Name: name, Queue: queue}, State: "waiting", Reason: "QuotaExceeded", Message: "6 short",
			SinceUnixMs: now.Add(-since).UnixMilli(), Pods: 3, MinCount: 4, Bound: 1}
	}
	return c, answers(map[string]*wire.StatusReply{
		"i-leader": {Role: "coordinator", QueuesTotal: 4, Queues: []*wire.QueueUsage{
			{Queue: "root", Charged: amounts(map[string]int64{"cpu": 1500}), ReadyReason: "Ready", Admitted: 2, Waiting: 2},
			{Queue: "a", Charged: amounts(map[string]int64{"cpu": 1500, "gpu": 1, "x": 0}), Capability: amounts(map[string]int64{"cpu": 4000, "nic": 2}), ReadyReason: "Ready", Admitted: 2, Waiting: 1},
			{Queue: "a.b", ReadyReason: "ParentMissing", Message: "m"}}},
		"i-a": {GangsTotal: 5, Intents: 2, Summary: &wire.Summary{Nodes: 3, OutOfSync: 1, Free: amounts(map[string]int64{"cpu": 2500})},
			Gangs: []*wire.GangStatus{gang("2", "young", "a.b", time.Minute), gang("3", "other", "z", time.Second)}},
		"i-b": {GangsTotal: 1, Gangs: []*wire.GangStatus{gang("1", "old", "a", time.Hour)}},
	})
}

const said = `COORDINATOR  coordinator-0  term 7      protocol 4 v1  answers
TABLE        epoch 12       1024 buckets

SHARD  INCARNATION  BUCKETS  NODES  OUT OF SYNC  CPU FREE  GANGS  WAITING  INTENTS  VERSION        STATE
a      i-a          400      3      1            2500m     5      2        2        protocol 4 v1  ok
b      i-b          300      0      0            -         1      1        0        protocol 4 v1  draining
c      i-c          200                                                             protocol 4 v1  does not answer: dial c:7600: refused
d      i-d          124                                                                            gone: its buckets are being reassigned

QUEUE  CPU      MEMORY  OTHER         ADMITTED  WAITING  READY          MESSAGE
root   1500m    0                     2         2        Ready          
a      1500m/4  0       gpu 1 nic 0/2  2         1        Ready          
  a.b  0        0                     0         0        ParentMissing  m
and 1 more

WAITING GANG  QUEUE  PODS  BOUND  STATE    FOR     WHY
ns/old        a      3/4   1      waiting  1h0m0s  QuotaExceeded: 6 short
ns/young      a.b    3/4   1      waiting  1m0s    QuotaExceeded: 6 short
and 1 more
`

// TestChanges: who took over what, as far as the table still says it.
func TestChanges(t *testing.T) {
	table := owned([]string{"a", "b"}, 1000, 24)
	for b := range table.Changed {
		table.Changed[b] = 3
	}
	for b := range 10 {
		table.Changed[b] = api.Epoch(5 + b/5)
	}
	table.Owners[0] = api.Nobody
	const want = "[{6 a 5} {5  1} {5 a 4} {3 a 990} {3 b 24}]"
	if got := fmt.Sprint(changesOf(table)); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for b := range table.Changed {
		table.Changed[b] = api.Epoch(b)
	}
	if got := changesOf(table); len(got) != maxChanges || got[0].Epoch != 1023 {
		t.Errorf("%v", got)
	}
	s := &wire.StatusReply{SinceUnixMs: now.UnixMilli()}
	if got := shardOf(record("a", false), table, s, nil); got.Since == nil || !got.Since.Equal(now) {
		t.Errorf("%+v", got)
	}
}

// squeeze makes the columns of two tables comparable.
func squeeze(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = strings.Join(strings.Fields(line), " ")
	}
	return strings.Join(lines, "\n")
}

func text(t *testing.T, s *Status) string { return textOf(t, s, true) }

func textOf(t *testing.T, s *Status, wide bool) string {
	t.Helper()
	var b strings.Builder
	if err := s.Text(&b, now, wide); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// A status says what each process says of itself, and who does not.
func TestStatus(t *testing.T) {
	c, ask := world()
	s, err := Collect(t.Context(), c, ask, Scope{Gangs: 2})
	if err != nil {
		t.Fatal(err)
	}
	if got := text(t, s); squeeze(got) != squeeze(said) {
		t.Errorf("%s\nwant\n%s", got, said)
	}
	narrow := textOf(t, s, false)
	if strings.Contains(narrow, "INCARNATION") || strings.Contains(narrow, "VERSION") ||
		!strings.Contains(narrow, "3      1            2500m     5      2        2        ok") {
		t.Errorf("without -o wide:\n%s", narrow)
	}
	s.Shards[1].Speaks = "protocol 4 v2"
	if narrow := textOf(t, s, false); !strings.Contains(narrow, "VERSION") {
		t.Errorf("of two versions:\n%s", narrow)
	}
	b, err := json.Marshal(s)
	var again Status
	if err == nil {
		err = json.Unmarshal(b, &again)
	}
	if err != nil || text(t, &again) != text(t, s) {
		t.Errorf("%v: JSON loses something: %s", err, b)
	}
	if len(s.Shards) != 4 || s.Shards[0].State != ShardOK || s.Shards[1].State != ShardDraining || s.Shards[2].State != ShardSilent || s.Shards[3].State != ShardGone {
		t.Errorf("%+v", s.Shards)
	}

	s, err = Collect(t.Context(), c, ask, Scope{Gangs: 20, Queue: "a"})
	if got := text(t, s); err != nil || strings.Contains(got, "root") || strings.Contains(got, "ns/other") || !strings.Contains(got, "ns/young") {
		t.Errorf("of one queue: %v\n%s", err, got)
	}
	s, err = Collect(t.Context(), c, ask, Scope{Gangs: 20, Gang: "ns/young"})
	if err != nil || len(s.Gangs) != 1 || s.Gangs[0].Gang != "ns/young" {
		t.Errorf("of one gang: %v, %+v", err, s)
	}
	s, err = Collect(t.Context(), &control{}, ask, Scope{})
	if got := text(t, s); err != nil || !strings.HasPrefix(got, "COORDINATOR  none: nothing is admitted") || !strings.Contains(got, "TABLE        none yet") || !strings.HasSuffix(got, "\nNo gang is waiting.\n") {
		t.Errorf("of nothing: %v\n%s", err, got)
	}
	if _, err = Collect(t.Context(), &control{err: errors.New("no leader")}, ask, Scope{}); err == nil {
		t.Error("a control store that does not answer is no status")
	}
}

// Whatever there is, a status fits into an answer, and says how much there was no room for.
func TestStatusIsBounded(t *testing.T) {
	long := strings.Repeat("<", 2000)
	c := &control{leader: &wire.LeaderRecord{Name: "c", Incarnation: "i-leader"}, table: &api.Table{}}
	replies := map[string]*wire.StatusReply{}
	leader := &wire.StatusReply{QueuesTotal: 20_000}
	for i := range 20_000 {
		leader.Queues = append(leader.Queues, &wire.QueueUsage{Queue: fmt.Sprint("q", i), Message: long, Charged: amounts(map[string]int64{"cpu": 1, "memory": 1})})
	}
	replies["i-leader"] = leader
	for i := range maxShards + 5 {
		r := record(fmt.Sprintf("s%04d", i), false)
		c.shards = append(c.shards, r)
		if i < 10 {
			reply := &wire.StatusReply{}
			for j := range 1000 {
				reply.Gangs = append(reply.Gangs, &wire.GangStatus{Gang: &wire.GangRef{Uid: fmt.Sprint(i, "-", j), Namespace: "ns", Name: long[:253], Queue: long[:253]}, Message: long, SinceUnixMs: now.UnixMilli()})
			}
			replies[r.Incarnation] = reply
		}
	}
	calls := answers(replies)
	s, err := Collect(t.Context(), c, func(ctx context.Context, who api.Incarnation, address string) (*wire.StatusReply, error) {
		r, err := calls(ctx, who, address)
		if err != nil {
			err = errors.New(long)
		}
		return r, err
	}, Scope{Gangs: MaxGangs})
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Gangs) != MaxGangs || s.MoreGangs != 10_000-MaxGangs || len(s.Shards) != maxShards || s.MoreShards != 5 || len(s.Queues)+s.MoreQueues != 20_000 || s.MoreQueues == 0 {
		t.Errorf("%d gangs and %d more, %d shards and %d, %d queues and %d", len(s.Gangs), s.MoreGangs, len(s.Shards), s.MoreShards, len(s.Queues), s.MoreQueues)
	}
	if b, err := json.Marshal(s); err != nil || len(b) > MaxAnswer {
		t.Errorf("%v, %d bytes", err, len(b))
	}
	for n, want := range map[int]bool{-1: false, 0: true, MaxGangs: true, MaxGangs + 1: false} {
		if err := (Scope{Gangs: n}).Check(); (err == nil) != want {
			t.Errorf("%d gangs: %v", n, err)
		}
	}
}

// What is ordered of a shard, and what people are told.
func TestDrain(t *testing.T) {
	three := &control{table: owned([]string{"a", "b", "c", "d"}, 400, 300, 324, 0), shards: []*wire.ShardRecord{record("a", false), record("b", true), record("c", false)}}
	gone := &control{table: owned([]string{"a", "b"}, 1000, 24), shards: []*wire.ShardRecord{record("a", false)}}
	last := &control{table: owned([]string{"a", "b"}, 1024, 0), shards: []*wire.ShardRecord{record("a", false), record("b", true)}}
	many := &control{}
	for i := range 50 {
		many.shards = append(many.shards, record(fmt.Sprintf("s%02d", i), false))
	}
	for _, row := range []struct {
		what   string
		store  *control
		shard  string
		cancel bool
		called bool
		says   string
		fails  string
		final  bool
	}{
		{what: "a shard", store: three, shard: "a", called: true, says: "a is draining, and owns 400 buckets"},
		{what: "one that drains", store: three, shard: "b", says: "b is draining already, and owns 300 buckets"},
		{what: "one that is drained", store: last, shard: "b", says: "b is drained already: it owns no buckets"},
		{what: "cancel", store: three, shard: "b", cancel: true, called: true, says: "b is not draining any more, and takes its part again; it owns 300 buckets"},
		{what: "cancel nothing", store: three, shard: "c", cancel: true, says: "c was not draining; it owns 324 buckets"},
		{what: "the last", store: gone, shard: "a", fails: `shard "a" is the only one: no other could take its buckets`, final: true},
		{what: "the last that does not drain", store: last, shard: "a", fails: `all other shards are draining, too, so none could take the buckets of "a": b`, final: true},
		{what: "cancel at the last", store: gone, shard: "a", cancel: true, says: "a was not draining; it owns 1000 buckets"},
		{what: "unknown", store: three, shard: "x", fails: `there is no shard "x"; registered are: a, b, c`, final: true},
		{what: "a member without buckets", store: three, shard: "d", fails: `there is no shard "d"`, final: true},
		{what: "gone", store: gone, shard: "b", fails: `shard "b" is gone: the 24 buckets that it owned are being reassigned, as if it had been drained`, final: true},
		{what: "none", store: &control{}, shard: "x", fails: `there is no shard "x"; registered are: none`, final: true},
		{what: "many", store: many, shard: "x", fails: "s18, s19 and 30 more", final: true},
		{what: "no name", store: three, shard: "", fails: "1 to 253 printable characters", final: true},
		{what: "a long name", store: three, shard: strings.Repeat("x", 254), fails: "1 to 253 printable characters", final: true},
		{what: "a line", store: three, shard: "a\nb", fails: "1 to 253 printable characters", final: true},
		{what: "no control store", store: &control{err: errors.New("no leader")}, shard: "a", fails: "no leader"},
	} {
		called := false
		d, err := Order(t.Context(), row.store, row.shard, row.cancel, func(_ context.Context, r *wire.ShardRecord) error {
			called = r.Name == row.shard
			return nil
		})
		if row.fails != "" {
			if err == nil || !strings.Contains(err.Error(), row.fails) || called || Final(err) != row.final {
				t.Errorf("%s: %v, called %v, final %v", row.what, err, called, Final(err))
			}
			continue
		}
		if err != nil || d.Line() != row.says || called != row.called {
			t.Errorf("%s: %v, %q, called %v", row.what, err, d.Line(), called)
		}
		if now, err := Draining(t.Context(), row.store, row.shard); err != nil || now.Before || now.Buckets != d.Buckets {
			t.Errorf("%s: %v, %+v and %+v", row.what, err, now, d)
		}
	}
	if _, err := Order(t.Context(), three, "a", false, func(context.Context, *wire.ShardRecord) error { return status.Error(codes.Unavailable, "refused") }); err == nil || !Final(err) ||
		err.Error() != `shard "a" at a:7600 cannot be reached, or cannot do it now: refused; the others take over the buckets of a dead shard by themselves` {
		t.Errorf("a shard that is dead: %v", err)
	}
	refuses := errors.New("refuses")
	if _, err := Order(t.Context(), three, "a", false, func(context.Context, *wire.ShardRecord) error { return refuses }); !errors.Is(err, refuses) {
		t.Errorf("a shard that refuses: %v", err)
	}
}
