package store_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/store"
	"basalt.dev/basalt/api/store/protocol"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/localtest"
)

const limit = 30 * time.Second

// etcd is a real one with a client of the test's own beside those of the stores.
type etcd struct {
	*local.Etcd
	t   testing.TB
	dir string
	raw *clientv3.Client
}

func startEtcd(t testing.TB) *etcd {
	t.Helper()
	root := localtest.Programs(t, "etcd")
	dir := t.TempDir()
	server, err := local.StartEtcd(t.Context(), local.EtcdOptions{Root: root, Dir: dir, Name: "etcd", NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop() })
	raw, err := clientv3.New(clientv3.Config{Endpoints: server.Endpoints(), Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = raw.Close() })
	return &etcd{Etcd: server, t: t, dir: filepath.Join(dir, "etcd"), raw: raw}
}

func (e *etcd) open(endpoints ...string) *store.Store {
	e.t.Helper()
	if len(endpoints) == 0 {
		endpoints = e.Endpoints()
	}
	return e.openWith(store.Options{Endpoints: endpoints, RequestTimeout: 2 * time.Second})
}

func (e *etcd) openWith(o store.Options) *store.Store {
	e.t.Helper()
	o.Logger = slog.New(slog.NewTextHandler(e.t.Output(), nil))
	s, err := store.Open(e.t.Context(), o)
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() {
		if err := s.Close(); err != nil {
			e.t.Error(err)
		}
	})
	return s
}

func (e *etcd) put(key string, m proto.Message) int64 {
	e.t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		e.t.Fatal(err)
	}
	return e.putRaw(key, string(b))
}

func (e *etcd) putRaw(key, value string) int64 {
	e.t.Helper()
	resp, err := e.raw.Put(e.t.Context(), key, value)
	if err != nil {
		e.t.Fatal(err)
	}
	return resp.Header.Revision
}

// modRevision is 0 for a key that does not exist.
func (e *etcd) modRevision(key string) int64 {
	e.t.Helper()
	resp, err := e.raw.Get(e.t.Context(), key)
	if err != nil {
		e.t.Fatal(err)
	}
	if len(resp.Kvs) == 0 {
		return 0
	}
	return resp.Kvs[0].ModRevision
}

func (e *etcd) wait(what string, ask func() error) {
	e.t.Helper()
	localtest.Wait(e.t, limit, what, func(context.Context) error { return ask() })
}

// lead campaigns and loads.
func lead(t *testing.T, s *store.Store, name string) (*store.Term, *protocol.State) {
	t.Helper()
	term, err := s.Campaign(t.Context(), &wire.LeaderRecord{Incarnation: name, Name: name, Address: name + ":1"})
	if err != nil {
		t.Fatal(err)
	}
	state, err := term.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return term, state
}

func join(t *testing.T, s *store.Store, name string) *store.Session {
	t.Helper()
	x, err := s.Register(t.Context(), &wire.ShardRecord{Incarnation: name, Name: name, Address: name + ":1"}, 3*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func reservation(queue, gang string, cpu int64) *wire.ReservationRecord {
	return &wire.ReservationRecord{
		Gang: &wire.GangRef{Uid: gang, Namespace: "ns", Name: gang, Queue: queue}, Attempt: 1,
		Demand: []*wire.Amount{{Resource: "cpu", Value: cpu}}, State: wire.ReservationState_RESERVATION_OPEN,
	}
}

func reservationKey(queue, gang string) string {
	return "reservations/" + api.BucketOf(queue).Label() + "/" + gang
}

func intents(pods ...string) *wire.IntentsRecord {
	r := &wire.IntentsRecord{
		Gangs:   []*wire.GangRef{{Uid: "g", Queue: "q"}},
		Demands: []*wire.Demand{{Amounts: []*wire.Amount{{Resource: "cpu", Value: 1}}}},
	}
	for _, p := range pods {
		r.Rows = append(r.Rows, &wire.IntentRow{PodUid: p, PodResourceVersion: "1", Namespace: "ns", Name: p, Node: "n1"})
	}
	return r
}

func tableOf(epoch api.Epoch, owners ...string) *api.Table {
	t := &api.Table{Epoch: epoch}
	for _, o := range owners {
		t.Members = append(t.Members, api.Member{Incarnation: api.Incarnation(o), Name: o})
	}
	for b := range t.Owners {
		t.Owners[b], t.Changed[b] = uint16(b%len(owners)), epoch
	}
	return t
}

func commit(t *testing.T, term *store.Term, ops ...protocol.Change) int64 {
	t.Helper()
	revision, err := term.Commit(t.Context(), ops)
	if err != nil {
		t.Fatal(err)
	}
	return revision
}

func TestIdentity(t *testing.T) {
	e := startEtcd(t)
	a := e.open()
	b := e.open()
	if !a.Fresh() || b.Fresh() || a.ID() != b.ID() || len(a.ID()) != 32 {
		t.Errorf("first: fresh %v, id %q; second: fresh %v, id %q", a.Fresh(), a.ID(), b.Fresh(), b.ID())
	}
}

func TestCloseLeavesNothingBehind(t *testing.T) {
	e := startEtcd(t)
	before := goleak.IgnoreCurrent()
	s, err := store.Open(t.Context(), store.Options{Endpoints: e.Endpoints()})
	if err != nil {
		t.Fatal(err)
	}
	term, _ := lead(t, s, "c1")
	x := join(t, s, "s1")
	ended := make(chan error, 2)
	go func() { ended <- s.WatchTable(t.Context(), func(*api.Table) {}) }()
	go func() {
		_, err := s.Campaign(t.Context(), &wire.LeaderRecord{Incarnation: "c2"})
		ended <- err
	}()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("a call that waited ended with %v", err)
		}
	}
	<-term.Done()
	<-x.Done()
	if _, err := s.Table(t.Context()); !errors.Is(err, context.Canceled) {
		t.Errorf("a read after Close: %v", err)
	}
	if _, err := term.Commit(t.Context(), nil); !errors.Is(err, context.Canceled) || errors.Is(err, protocol.ErrFenced) {
		t.Errorf("a commit after Close: %v", err)
	}
	goleak.VerifyNone(t, before)
}

func TestOpenSaysWhatIsWrong(t *testing.T) {
	e := startEtcd(t)
	open := func(o store.Options) error {
		s, err := store.Open(t.Context(), o)
		if err == nil {
			s.Close()
		}
		return err
	}
	// A port that nobody listens on.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := "http://" + l.Addr().String()
	l.Close()

	tests := []struct {
		name    string
		key     string
		options store.Options
		words   []string
	}{
		{"unreachable", "", store.Options{Endpoints: []string{nobody}, ConnectTimeout: time.Second}, []string{nobody, "connection refused"}},
		{"no endpoints", "", store.Options{}, []string{"no endpoints"}},
		{"short lease", "", store.Options{Endpoints: e.Endpoints(), LeaderTTL: time.Second}, []string{"1s", "2s"}},
		{"newer", string(marshal(t, &wire.StoreIdentity{Id: "x", Format: 2})), store.Options{Endpoints: e.Endpoints()}, []string{`"store"`, "format 2", "newer version"}},
		{"corrupt", "\xff\xff", store.Options{Endpoints: e.Endpoints()}, []string{`"store"`, "corrupt"}},
		{"empty", "", store.Options{Endpoints: e.Endpoints()}, []string{`"store"`, "corrupt"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			e.putRaw("store", test.key)
			err := open(test.options)
			if err == nil {
				t.Fatal("no error")
			}
			for _, w := range test.words {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("error %q does not name %q", err, w)
				}
			}
		})
	}
}

func marshal(t *testing.T, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestTermLoadsAndCommits(t *testing.T) {
	e := startEtcd(t)
	s := e.open()
	first, state := lead(t, s, "c1")
	if state.Table != nil || len(state.Reservations)+len(state.Limits)+len(state.Shards)+len(state.Corrupt) != 0 {
		t.Errorf("an empty store gave %+v", state)
	}
	revision := commit(t, first,
		protocol.PutReservation(reservation("a.b", "g1", 5)), protocol.PutReservation(reservation("a", "g2", 7)),
		protocol.PutLimits(&wire.LimitsRecord{Queue: "a", Uid: "u"}), protocol.PutTable(tableOf(3, "s1")))
	later := commit(t, first, protocol.DeleteReservation("a", "g2"))
	if later <= revision {
		t.Errorf("revision %d after %d", later, revision)
	}
	join(t, s, "s1")
	e.putRaw(reservationKey("a", "bad"), "\xff")
	e.putRaw("queues/bad", "\xff")
	if err := first.Resign(t.Context()); err != nil {
		t.Fatal(err)
	}

	second, state := lead(t, e.open(), "c2")
	if second.Number() <= first.Number() {
		t.Errorf("term %d after %d", second.Number(), first.Number())
	}
	if len(state.Reservations) != 2 || state.Table == nil || state.Table.Revision != revision || state.Table.Epoch != 3 || len(state.Shards) != 1 || len(state.Limits) != 2 {
		t.Fatalf("loaded %+v", state)
	}
	for _, r := range state.Reservations {
		switch {
		case r.GangUID == "g1" && r.ModRevision == revision && r.Record.GetDemand()[0].Value == 5:
		case r.GangUID == "bad" && r.Record == nil:
		default:
			t.Errorf("loaded %+v", r)
		}
	}
	keys := []string{}
	for _, c := range state.Corrupt {
		keys = append(keys, c.Key)
	}
	if want := []string{"queues/bad", reservationKey("a", "bad")}; !slices.Equal(keys, want) {
		t.Errorf("corrupt: %q, want %q", keys, want)
	}
	if state.Sequence < 4 {
		t.Errorf("sequence %d after 4 transactions", state.Sequence)
	}
	record, number, err := s.Leader(t.Context())
	if err != nil || record.GetIncarnation() != "c2" || number != second.Number() {
		t.Errorf("leader %v in term %d: %v", record, number, err)
	}
}

func TestCommitRefusesWhatEtcdWould(t *testing.T) {
	s := startEtcd(t).open()
	term, _ := lead(t, s, "c1")
	many := []protocol.Change{}
	for i := range protocol.MaxChanges + 1 {
		many = append(many, protocol.DeleteReservation("q", fmt.Sprint(i)))
	}
	if _, err := term.Commit(t.Context(), many); err == nil {
		t.Error("too many operations passed")
	}
	if _, err := term.Commit(t.Context(), []protocol.Change{many[0], many[0]}); err == nil {
		t.Error("one key twice passed")
	}
	named := func(uid, name string) protocol.Change {
		r := reservation("q", uid, 1)
		r.Gang.Name = name
		return protocol.PutReservation(r)
	}
	for _, c := range []struct {
		name     string
		ops      []protocol.Change
		record   bool // a RecordError, and so about one record
		tooLarge bool
		says     string
	}{
		{"one record too large", []protocol.Change{named("g", strings.Repeat("x", protocol.MaxRecord))}, true, true, "/g\""},
		{"a record that cannot be encoded", []protocol.Change{named("g", "\xff")}, true, false, "/g\""},
		{"too large together", []protocol.Change{named("g1", strings.Repeat("x", protocol.MaxCommit/2-200)), named("g2", strings.Repeat("x", protocol.MaxCommit/2+100))}, false, true, "/g2\""},
	} {
		_, err := term.Commit(t.Context(), c.ops)
		var record *protocol.RecordError
		if err == nil || errors.As(err, &record) != c.record || errors.Is(err, protocol.ErrTooLarge) != c.tooLarge || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	x := join(t, s, "s1")
	long := intents("p")
	long.Rows[0].Node = strings.Repeat("x", protocol.MaxRecord)
	table := commit(t, term, protocol.PutTable(&api.Table{Epoch: 1}))
	if _, err := x.WriteIntents(t.Context(), 7, long, table, nil); !errors.Is(err, protocol.ErrTooLarge) || !strings.Contains(err.Error(), "intents/s1/0000000000000007") {
		t.Errorf("write intents: %v", err)
	}
	if r, err := x.WriteIntents(t.Context(), 8, intents("p"), table, nil); err != nil || r.Outcome != protocol.Written {
		t.Errorf("the session does not go on: %v %v", r, err)
	}
	commit(t, term, many[:protocol.MaxChanges]...) // and the term lives
}

// The leader's requests and its lease stand still, as in a pause, until another leads. Then they go on.
func TestPausedLeaderIsFenced(t *testing.T) {
	e := startEtcd(t)
	p := newProxy(t, e.Endpoints()[0])
	old := e.open(p.endpoints()...)
	term, _ := lead(t, old, "c1")
	commit(t, term, protocol.PutReservation(reservation("q", "g", 1)))

	p.holdRequests()
	answer := make(chan error, 1)
	go func() {
		_, err := term.Commit(t.Context(), []protocol.Change{protocol.PutReservation(reservation("q", "g", 2))})
		answer <- err
	}()
	e.wait("the commit to be on its way", func() error {
		if p.held() == 0 {
			return errors.New("nothing waits")
		}
		return nil
	})
	next, state := lead(t, e.open(), "c2") // after the lease ran out
	commit(t, next, protocol.PutReservation(reservation("q", "g", 3)))
	deliver := p.cut()
	deliver()
	if err := <-answer; !errors.Is(err, protocol.ErrFenced) {
		t.Errorf("the old leader's commit: %v", err)
	}
	<-term.Done()
	if _, err := term.Commit(t.Context(), nil); !errors.Is(err, protocol.ErrFenced) {
		t.Errorf("another commit of the old leader: %v", err)
	}
	if len(state.Reservations) != 1 || state.Reservations[0].Record.Demand[0].Value != 1 {
		t.Errorf("the next leader found %v", state.Reservations)
	}
	settled(t, e, next, "g", 3)
}

// settled checks a reservation after one more transaction, so that whatever was on its way before has arrived or failed.
func settled(t *testing.T, e *etcd, term *store.Term, gang string, cpu int64) {
	t.Helper()
	commit(t, term)
	state, err := term.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range state.Reservations {
		if r.GangUID == gang && r.Record.GetDemand()[0].Value == cpu {
			return
		}
	}
	t.Errorf("reservations are %v, want %s with cpu %d", state.Reservations, gang, cpu)
}

func TestCommitWhoseAnswerIsLost(t *testing.T) {
	e := startEtcd(t)
	p := newProxy(t, e.Endpoints()[0])
	term, _ := lead(t, e.open(p.endpoints()...), "c1")
	commit(t, term)

	p.loseAnswers()
	type result struct {
		revision int64
		err      error
	}
	answer := make(chan result, 1)
	go func() {
		revision, err := term.Commit(t.Context(), []protocol.Change{protocol.PutReservation(reservation("q", "g", 1))})
		answer <- result{revision, err}
	}()
	e.wait("the commit to land", func() error {
		if e.modRevision(reservationKey("q", "g")) == 0 {
			return errors.New("it has not")
		}
		return nil
	})
	landed := e.modRevision(reservationKey("q", "g"))
	p.cut()
	if r := <-answer; r.err != nil || r.revision != landed {
		t.Errorf("commit gave revision %d, %v; it landed at %d", r.revision, r.err, landed)
	}
	if now := e.modRevision(reservationKey("q", "g")); now != landed {
		t.Errorf("written again at %d", now)
	}
	commit(t, term, protocol.DeleteReservation("q", "g"))
}

// A request is held back until the term has settled it and moved on; delivered then, it must not land.
func TestCommitThatArrivesLate(t *testing.T) {
	e := startEtcd(t)
	p := newProxy(t, e.Endpoints()[0])
	term, _ := lead(t, e.open(p.endpoints()...), "c1")
	commit(t, term)

	p.holdRequests()
	answer := make(chan error, 1)
	go func() {
		_, err := term.Commit(t.Context(), []protocol.Change{protocol.PutReservation(reservation("q", "g", 1))})
		answer <- err
	}()
	e.wait("the commit to be on its way", func() error {
		if p.held() == 0 {
			return errors.New("nothing waits")
		}
		return nil
	})
	deliver := p.cut()
	if err := <-answer; err != nil {
		t.Fatal(err)
	}
	commit(t, term, protocol.PutReservation(reservation("q", "g", 2)))
	before := e.modRevision(reservationKey("q", "g"))
	deliver()
	settled(t, e, term, "g", 2)
	if now := e.modRevision(reservationKey("q", "g")); now != before {
		t.Errorf("the late commit landed at %d, after %d", now, before)
	}
}

func TestOneLeaderAtATime(t *testing.T) {
	e := startEtcd(t)
	first, _ := lead(t, e.open(), "c1")
	type won struct {
		term *store.Term
		err  error
	}
	results := make(chan won, 3)
	for i := range 3 {
		s := e.open()
		go func() {
			term, err := s.Campaign(t.Context(), &wire.LeaderRecord{Incarnation: fmt.Sprintf("w%d", i)})
			results <- won{term, err}
		}()
	}
	// Those that wait hold no lease that could run out meanwhile: the trap of etcd's own election.
	e.wait("no lease but the leader's", func() error {
		leases, err := e.raw.Leases(t.Context())
		if err != nil {
			return err
		}
		if len(leases.Leases) != 1 {
			return fmt.Errorf("%d leases", len(leases.Leases))
		}
		return nil
	})
	commit(t, first)
	last := first
	for range 3 {
		if err := last.Resign(t.Context()); err != nil {
			t.Fatal(err)
		}
		next := <-results
		if next.err != nil {
			t.Fatal(next.err)
		}
		if next.term.Number() <= last.Number() {
			t.Errorf("term %d after %d", next.term.Number(), last.Number())
		}
		if _, err := last.Commit(t.Context(), nil); !errors.Is(err, protocol.ErrFenced) {
			t.Errorf("commit after resigning: %v", err)
		}
		if _, err := next.term.Load(t.Context()); err != nil {
			t.Error(err)
		}
		if len(results) > 0 {
			t.Error("two lead at once")
		}
		last = next.term
	}
}

// The lease of a leader is taken away while it lives: it learns of it and is fenced.
func TestLeaseTakenAway(t *testing.T) {
	e := startEtcd(t)
	term, _ := lead(t, e.open(), "c1")
	resp, err := e.raw.Get(t.Context(), "leader/coordinator")
	if err != nil || len(resp.Kvs) != 1 {
		t.Fatal(err, resp)
	}
	if _, err := e.raw.Revoke(t.Context(), clientv3.LeaseID(resp.Kvs[0].Lease)); err != nil {
		t.Fatal(err)
	}
	if _, err := term.Commit(t.Context(), nil); !errors.Is(err, protocol.ErrFenced) {
		t.Errorf("commit: %v", err)
	}
	<-term.Done()
}

func TestWriteIntentsIsFenced(t *testing.T) {
	e := startEtcd(t)
	s := e.open()
	term, _ := lead(t, s, "c1")
	table := commit(t, term, protocol.PutTable(tableOf(1, "s1")))
	granted := commit(t, term, protocol.PutReservation(reservation("q", "g1", 1)), protocol.PutReservation(reservation("q", "g2", 1)))
	x := join(t, s, "s1")
	bucket := api.BucketOf("q")
	fence := func(gang string, revision int64) protocol.ReservationFence {
		return protocol.ReservationFence{Bucket: bucket, GangUID: gang, Revision: revision}
	}
	write := func(n uint64, table int64, fences ...protocol.ReservationFence) protocol.WriteResult {
		t.Helper()
		r, err := x.WriteIntents(t.Context(), n, intents("p"), table, fences)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}

	if r := write(1, table, fence("g1", granted), fence("g2", granted)); r.Outcome != protocol.Written || r.ModRevision != e.modRevision("intents/s1/0000000000000001") {
		t.Errorf("first write: %+v", r)
	}
	moved := commit(t, term, protocol.PutReservation(reservation("q", "g2", 2)), protocol.DeleteReservation("q", "g1"))
	if r := write(2, table, fence("g1", granted), fence("g2", granted)); r.Outcome != protocol.ReservationMoved || !slices.Equal(r.Moved, []string{"g1", "g2"}) {
		t.Errorf("reservations moved: %+v", r)
	}
	if r := write(3, table, fence("g1", granted), fence("g2", moved)); r.Outcome != protocol.ReservationMoved || !slices.Equal(r.Moved, []string{"g1"}) {
		t.Errorf("one reservation gone: %+v", r)
	}
	if r := write(4, table, fence("absent", 0)); r.Outcome != protocol.ReservationMoved || !slices.Equal(r.Moved, []string{"absent"}) {
		t.Errorf("a fence on nothing: %+v", r)
	}
	newer := commit(t, term, protocol.PutTable(tableOf(2, "s1", "s2")))
	if r := write(5, table, fence("g2", moved)); r.Outcome != protocol.TableMoved || r.TableRevision != newer {
		t.Errorf("table moved: %+v, now %d", r, newer)
	}
	if r := write(6, newer, fence("g2", moved)); r.Outcome != protocol.Written {
		t.Errorf("under the new table: %+v", r)
	}
	for n := 2; n <= 5; n++ {
		if e.modRevision(fmt.Sprintf("intents/s1/%016x", n)) != 0 {
			t.Errorf("refused intents %d were written", n)
		}
	}
	// The fences of a full transaction fit into etcd's limit.
	full := []protocol.ReservationFence{}
	ops := []protocol.Change{}
	for i := range protocol.MaxFences {
		ops = append(ops, protocol.PutReservation(reservation("q", fmt.Sprint("f", i), 1)))
	}
	at := commit(t, term, ops...)
	for i := range protocol.MaxFences {
		full = append(full, fence(fmt.Sprint("f", i), at))
	}
	if r := write(7, newer, full...); r.Outcome != protocol.Written {
		t.Errorf("with %d fences: %+v", len(full), r)
	}
	if err := x.Deregister(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := write(8, newer); r.Outcome != protocol.SessionLost || e.modRevision("intents/s1/0000000000000008") != 0 {
		t.Errorf("after the session: %+v", r)
	}
}

// A session that ended on the server's side only, as after a pause.
func TestSessionTakenAway(t *testing.T) {
	e := startEtcd(t)
	s := e.open()
	term, _ := lead(t, s, "c1")
	table := commit(t, term, protocol.PutTable(tableOf(1, "s1")))
	x := join(t, s, "s1")
	if _, err := s.Register(t.Context(), &wire.ShardRecord{Incarnation: "s1"}, 0); err == nil {
		t.Error("an incarnation registered twice")
	}
	if err := x.Update(t.Context(), &wire.ShardRecord{Incarnation: "s1", Draining: true}); err != nil {
		t.Fatal(err)
	}
	if all, err := s.Shards(t.Context()); err != nil || len(all) != 1 || !all[0].Draining {
		t.Errorf("shards %v, %v", all, err)
	}
	resp, err := e.raw.Get(t.Context(), "shards/s1")
	if err != nil || len(resp.Kvs) != 1 {
		t.Fatal(err, resp)
	}
	if _, err := e.raw.Revoke(t.Context(), clientv3.LeaseID(resp.Kvs[0].Lease)); err != nil {
		t.Fatal(err)
	}
	e.putRaw("shards/s1", "somebody else")
	if r, err := x.WriteIntents(t.Context(), 1, intents("p"), table, nil); err != nil || r.Outcome != protocol.SessionLost {
		t.Errorf("write: %+v, %v", r, err)
	}
	<-x.Done()
	if err := x.Update(t.Context(), &wire.ShardRecord{Incarnation: "s1"}); !errors.Is(err, protocol.ErrSessionLost) {
		t.Errorf("update: %v", err)
	}
	if e.modRevision("intents/s1/0000000000000001") != 0 {
		t.Error("the intents were written")
	}
}

// Whichever call is the first to find that the session is over says so, and ends it here, too.
func TestEachCallFindsThatTheSessionIsOver(t *testing.T) {
	e := startEtcd(t)
	s := e.open()
	term, _ := lead(t, s, "c1")
	table := commit(t, term, protocol.PutTable(tableOf(1, "s1")))
	for name, call := range map[string]func(*store.Session, protocol.IntentKey) (over bool, err error){
		"update": func(x *store.Session, k protocol.IntentKey) (bool, error) {
			err := x.Update(t.Context(), &wire.ShardRecord{Incarnation: string(k.Incarnation)})
			return errors.Is(err, protocol.ErrSessionLost), err
		},
		"write": func(x *store.Session, _ protocol.IntentKey) (bool, error) {
			r, err := x.WriteIntents(t.Context(), 2, intents("p"), table, nil)
			return r.Outcome == protocol.SessionLost && err == nil, err
		},
		"delete": func(x *store.Session, k protocol.IntentKey) (bool, error) {
			now, err := x.DeleteIntents(t.Context(), []protocol.IntentKey{k})
			return errors.Is(err, protocol.ErrSessionLost) && len(now) == 0, err
		},
		"rewrite": func(x *store.Session, k protocol.IntentKey) (bool, error) {
			r, err := x.RewriteIntents(t.Context(), k, nil, table)
			return r.Outcome == protocol.SessionLost && err == nil, err
		},
	} {
		x, err := s.Register(t.Context(), &wire.ShardRecord{Incarnation: name}, time.Hour) // kept alive too rarely to notice
		if err != nil {
			t.Fatal(err)
		}
		r, err := x.WriteIntents(t.Context(), 1, intents("p"), table, nil)
		if err != nil || r.Outcome != protocol.Written {
			t.Fatal(r, err)
		}
		if _, err := e.raw.Delete(t.Context(), "shards/"+name); err != nil {
			t.Fatal(err)
		}
		if over, err := call(x, protocol.IntentKey{Incarnation: api.Incarnation(name), N: 1, ModRevision: r.ModRevision}); !over {
			t.Errorf("%s: %v", name, err)
			continue
		}
		<-x.Done()
		if now := e.modRevision("intents/" + name + "/0000000000000001"); now != r.ModRevision {
			t.Errorf("%s: the key is at %d, and was at %d", name, now, r.ModRevision)
		}
	}
}

func TestWriteIntentsWhoseAnswerIsLost(t *testing.T) {
	e := startEtcd(t)
	p := newProxy(t, e.Endpoints()[0])
	term, _ := lead(t, e.open(), "c1")
	table := commit(t, term, protocol.PutTable(tableOf(1, "s1")))
	x := join(t, e.open(p.endpoints()...), "s1")
	const key = "intents/s1/0000000000000001"

	type result struct {
		protocol.WriteResult
		err error
	}
	write := func(n uint64) chan result {
		answer := make(chan result, 1)
		go func() {
			r, err := x.WriteIntents(t.Context(), n, intents("p"), table, nil)
			answer <- result{r, err}
		}()
		return answer
	}

	p.loseAnswers()
	answer := write(1)
	e.wait("the write to land", func() error {
		if e.modRevision(key) == 0 {
			return errors.New("it has not")
		}
		return nil
	})
	landed := e.modRevision(key)
	p.cut()
	if r := <-answer; r.err != nil || r.Outcome != protocol.Written || r.ModRevision != landed || e.modRevision(key) != landed {
		t.Errorf("%+v; it landed at %d and is at %d", r, landed, e.modRevision(key))
	}

	// The other way: the request waits somewhere, the table moves, and the shard is told so. It must not land later.
	if _, err := e.open().Table(t.Context()); err != nil {
		t.Fatal(err)
	}
	e.wait("the shard to be connected again", func() error {
		_, err := x.DeleteIntents(t.Context(), nil)
		if err == nil {
			err = x.Update(t.Context(), &wire.ShardRecord{Incarnation: "s1"})
		}
		return err
	})
	p.holdRequests()
	answer = write(2)
	e.wait("the write to be on its way", func() error {
		if p.held() == 0 {
			return errors.New("nothing waits")
		}
		return nil
	})
	moved := commit(t, term, protocol.PutTable(tableOf(2, "s1", "s2")))
	deliver := p.cut()
	if r := <-answer; r.err != nil || r.Outcome != protocol.TableMoved || r.TableRevision != moved {
		t.Errorf("%+v, table at %d", r, moved)
	}
	deliver()
	commit(t, term)
	if e.modRevision("intents/s1/0000000000000002") != 0 {
		t.Error("refused intents landed late")
	}
}

// TestLateIntentsDoNotComeBack: the first try of a write waits somewhere; the second one lands, its rows are settled and
// the key is deleted. Then the first arrives, and the key is as absent as when it was sent.
func TestLateIntentsDoNotComeBack(t *testing.T) {
	e := startEtcd(t)
	p := newProxy(t, e.Endpoints()[0])
	term, _ := lead(t, e.open(), "c1")
	table := commit(t, term, protocol.PutTable(tableOf(1, "s1")))
	x := join(t, e.open(p.endpoints()...), "s1")
	p.holdRequests()
	answer := make(chan error, 1)
	var written protocol.WriteResult
	go func() {
		var err error
		written, err = x.WriteIntents(t.Context(), 1, intents("p"), table, nil)
		answer <- err
	}()
	e.wait("the write to be on its way", func() error {
		if p.held() == 0 {
			return errors.New("nothing waits")
		}
		return nil
	})
	deliver := p.cut()
	if err := <-answer; err != nil || written.Outcome != protocol.Written {
		t.Fatalf("%+v, %v", written, err)
	}
	if _, err := x.DeleteIntents(t.Context(), []protocol.IntentKey{{Incarnation: "s1", N: 1, ModRevision: written.ModRevision}}); err != nil {
		t.Fatal(err)
	}
	deliver()
	commit(t, term) // whatever was on its way lies before this
	if e.modRevision("intents/s1/0000000000000001") != 0 {
		t.Error("the first try landed after its rows were settled")
	}
	// The session goes on, whatever became of its own key, its record included.
	if err := x.Update(t.Context(), &wire.ShardRecord{Incarnation: "s1", Draining: true}); err != nil {
		t.Fatal(err)
	}
	if r, err := x.WriteIntents(t.Context(), 2, intents("p"), table, nil); err != nil || r.Outcome != protocol.Written {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestDeleteAndRewriteIntents(t *testing.T) {
	e := startEtcd(t)
	s := e.open()
	term, _ := lead(t, s, "c1")
	table := commit(t, term, protocol.PutTable(tableOf(1, "s1")))
	x, heir := join(t, s, "s1"), join(t, s, "s2")
	var keys []protocol.IntentKey
	for n := range uint64(5) {
		r, err := x.WriteIntents(t.Context(), n, intents("p1", "p2"), table, nil)
		if err != nil || r.Outcome != protocol.Written {
			t.Fatal(r, err)
		}
		keys = append(keys, protocol.IntentKey{Incarnation: "s1", N: n, ModRevision: r.ModRevision})
	}
	// An heir removes a row of one key, all of another, and names an old revision.
	rewritten, err := heir.RewriteIntents(t.Context(), keys[1], intents("p2"), table)
	if err != nil || rewritten.Outcome != protocol.Written || len(rewritten.Now.Record.Rows) != 1 {
		t.Fatalf("rewrite: %+v, %v", rewritten, err)
	}
	if r, err := heir.RewriteIntents(t.Context(), keys[2], nil, table); err != nil || r.Outcome != protocol.Written || r.Now.ModRevision != 0 {
		t.Errorf("rewrite to nothing: %+v, %v", r, err)
	}
	if r, err := heir.RewriteIntents(t.Context(), keys[1], intents("p1"), table); err != nil || r.Outcome != protocol.KeyMoved || r.Now.ModRevision != rewritten.Now.ModRevision || r.Now.Record.Rows[0].PodUid != "p2" {
		t.Errorf("rewrite of an old revision: %+v, %v", r, err)
	}
	// The owner deletes all but one: what an heir left is reported, the rest goes.
	now, err := x.DeleteIntents(t.Context(), keys[:4])
	if err != nil || len(now) != 4 {
		t.Fatal(now, err)
	}
	for i, want := range []int64{0, rewritten.Now.ModRevision, 0, 0} {
		if now[i].N != uint64(i) || now[i].ModRevision != want || (want != 0) != (now[i].Record != nil) {
			t.Errorf("key %d after the delete: %+v, want revision %d", i, now[i], want)
		}
		if got := e.modRevision(fmt.Sprintf("intents/s1/%016x", i)); got != want {
			t.Errorf("key %d is at %d, want %d", i, got, want)
		}
	}
	moved := commit(t, term, protocol.PutTable(tableOf(2, "s2")))
	if r, err := heir.RewriteIntents(t.Context(), keys[4], nil, table); err != nil || r.Outcome != protocol.TableMoved || r.TableRevision != moved || r.Now.ModRevision != keys[4].ModRevision {
		t.Errorf("rewrite under an old table: %+v, %v", r, err)
	}
	if r, err := heir.RewriteIntents(t.Context(), keys[4], nil, moved); err != nil || r.Outcome != protocol.Written {
		t.Errorf("rewrite under the new table: %+v, %v", r, err)
	}
	if r, err := heir.RewriteIntents(t.Context(), keys[4], nil, moved); err != nil || r.Outcome != protocol.Written {
		t.Errorf("a delete that was done already: %+v, %v", r, err)
	}
}

func TestDeleteManyIntents(t *testing.T) {
	e := startEtcd(t)
	s := e.open()
	x := join(t, s, "s1")
	var keys []protocol.IntentKey
	for n := range uint64(2*protocol.MaxDeletes + 1) {
		keys = append(keys, protocol.IntentKey{Incarnation: "s1", N: n, ModRevision: e.put(fmt.Sprintf("intents/s1/%016x", n), intents("p"))})
	}
	now, err := x.DeleteIntents(t.Context(), keys)
	if err != nil || len(now) != len(keys) {
		t.Fatalf("%d of %d keys: %v", len(now), len(keys), err)
	}
	if left, err := s.ReadForTakeover(t.Context(), 0, nil); err != nil || len(left.Intents) != 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
}

func TestReadForTakeover(t *testing.T) {
	e := startEtcd(t)
	s := e.open()
	const many = 250 // more than one page of intents
	for n := range uint64(many) {
		e.put(fmt.Sprintf("intents/s%d/%016x", n%3, n), intents("p"))
	}
	e.put(reservationKey("q", "g"), reservation("q", "g", 1))
	// Everything that can be wrong with a record, each alone.
	e.putRaw("intents/s1/zzz", "")
	e.putRaw("intents/s1/00000000000000ff0", "")
	e.putRaw("intents/s9/0000000000000001", "\xff")
	bad := intents("p")
	bad.Rows[0].Gang = 7
	e.put("intents/s9/0000000000000002", bad)
	e.put(reservationKey("q", "other"), reservation("q", "g", 1))
	e.put("reservations/1024/g", reservation("q", "g", 1))
	e.put(reservationKey("q2", "g"), reservation("q", "g", 1))
	e.put(reservationKey("q", "negative"), reservation("q", "negative", -1))
	last := e.putRaw(reservationKey("q", "nonsense"), "\xff")

	var all []api.BucketID
	for b := range api.BucketID(api.Buckets) {
		all = append(all, b)
	}
	of, err := s.ReadForTakeover(t.Context(), last, []api.BucketID{api.BucketOf("q")})
	if err != nil {
		t.Fatal(err)
	}
	if len(of.Reservations) != 4 || len(of.Corrupt) != 7 { // without those of q2, and of bucket 1024, which is none
		t.Errorf("of one bucket: %v, corrupt: %v", of.Reservations, of.Corrupt)
	}
	got, err := s.ReadForTakeover(t.Context(), last, all)
	if err != nil {
		t.Fatal(err)
	}
	good, unread := 0, 0
	for _, i := range got.Intents {
		if i.Record != nil {
			good++
		} else {
			unread++
		}
	}
	if got.Revision < last || good != many || unread != 2 {
		t.Errorf("at revision %d of %d: %d intents and %d unreadable", got.Revision, last, good, unread)
	}
	good = 0
	for _, r := range got.Reservations {
		if r.Record != nil {
			good++
		}
	}
	if good != 1 || len(got.Reservations) != 5 || len(got.Corrupt) != 9 {
		t.Errorf("%d good of %d reservations, corrupt: %v", good, len(got.Reservations), got.Corrupt)
	}
}

func TestReservationEvicts(t *testing.T) {
	e := startEtcd(t)
	s := e.open()
	for i, c := range []struct {
		state   wire.ReservationState
		attempt uint64 // of the reservation, 0 for none
		pod     string // that it condemns
		want    bool   // whether that is closed, or condemns p, under attempt 7 at most
	}{
		{0, 0, "", false},
		{wire.ReservationState_RESERVATION_OPEN, 7, "", false},
		{wire.ReservationState_RESERVATION_OPEN, 7, "q", false},
		{wire.ReservationState_RESERVATION_OPEN, 7, "p", true},
		{wire.ReservationState_RESERVATION_OPEN, 8, "p", false},
		{wire.ReservationState_RESERVATION_CLOSING, 6, "", true},
		{wire.ReservationState_RESERVATION_CLOSING, 7, "", true},
		{wire.ReservationState_RESERVATION_CLOSING, 8, "", false},
	} {
		gang := fmt.Sprintf("g%d", i)
		if c.attempt > 0 {
			r := reservation("q", gang, 1)
			r.State, r.Attempt = c.state, c.attempt
			if c.pod != "" {
				r.Condemned = []*wire.SurplusPod{{Uid: c.pod}}
			}
			e.put(reservationKey("q", gang), r)
		}
		if got, err := s.ReservationEvicts(t.Context(), api.BucketOf("q"), gang, 7, "p"); err != nil || got != c.want {
			t.Errorf("%s, attempt %d, condemns %q: evicts %t, %v", c.state, c.attempt, c.pod, got, err)
		}
	}
	e.putRaw(reservationKey("q", "bad"), "\xff")
	if got, err := s.ReservationEvicts(t.Context(), api.BucketOf("q"), "bad", 7, "p"); err != nil || got {
		t.Errorf("one that cannot be read: evicts %t, %v", got, err)
	}
}

// latest keeps what a watch told last, and checks that revisions grow.
type latest[T any] struct{ ch chan T }

func watch[T any](t *testing.T, run func(ctx context.Context, told func(T)) error) *latest[T] {
	t.Helper()
	l := &latest[T]{ch: make(chan T, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, func(v T) {
			select {
			case <-l.ch:
			default:
			}
			l.ch <- v
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) && !errors.Is(err, store.ErrReplaced) {
			t.Errorf("watch ended: %v", err)
		}
	})
	return l
}

func (l *latest[T]) until(t *testing.T, what string, ok func(T) bool) {
	t.Helper()
	deadline := time.After(limit)
	for {
		select {
		case v := <-l.ch:
			if ok(v) {
				return
			}
		case <-deadline:
			t.Fatalf("waited for %s", what)
		}
	}
}

func TestWatchesOutliveEtcd(t *testing.T) {
	e := startEtcd(t)
	s := e.open()
	tables := watch(t, s.WatchTable)
	shards := watch(t, s.WatchShards)
	type led struct {
		name string
		term int64
	}
	leaders := watch(t, func(ctx context.Context, told func(led)) error {
		return s.WatchLeader(ctx, func(r *wire.LeaderRecord, term int64) { told(led{r.GetIncarnation(), term}) })
	})
	leaders.until(t, "nobody to lead", func(l led) bool { return l == led{} })
	term, _ := lead(t, s, "c1")
	leaders.until(t, "the leader", func(l led) bool { return l == led{"c1", term.Number()} })
	x := join(t, s, "s1")
	shards.until(t, "a shard", func(all []*wire.ShardRecord) bool { return len(all) == 1 && all[0].Incarnation == "s1" })
	commit(t, term, protocol.PutTable(tableOf(1, "s1")))
	tables.until(t, "the table", func(t *api.Table) bool { return t.Epoch == 1 })

	e.putRaw("table", "\xff") // isolated: logged, not told
	e.Kill()
	if err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	commit(t, term, protocol.PutTable(tableOf(2, "s1")))
	tables.until(t, "the table after a restart", func(t *api.Table) bool { return t.Epoch == 2 })
	join(t, s, "s2")
	shards.until(t, "two shards after a restart", func(all []*wire.ShardRecord) bool { return len(all) == 2 })
	select {
	case <-x.Done():
		t.Error("the restart ended a session")
	default:
	}

	// Compaction behind a watch's back, while it cannot hear.
	now := commit(t, term, protocol.PutTable(tableOf(3, "s1")))
	if _, err := e.raw.Compact(t.Context(), now); err != nil {
		t.Fatal(err)
	}
	e.Kill()
	if err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	commit(t, term, protocol.PutTable(tableOf(4, "s1")))
	tables.until(t, "the table after a compaction", func(t *api.Table) bool { return t.Epoch == 4 })
	if err := term.Resign(t.Context()); err != nil {
		t.Fatal(err)
	}
	leaders.until(t, "nobody to lead", func(l led) bool { return l == led{} })
}

func TestEmptiedStoreIsAnother(t *testing.T) {
	tests := []struct {
		name  string
		empty func(*etcd)
	}{
		{"data gone", func(e *etcd) {
			e.Kill()
			if err := os.RemoveAll(e.dir); err != nil {
				t.Fatal(err)
			}
			if err := e.Start(e.t.Context()); err != nil {
				e.t.Fatal(err)
			}
		}},
		{"other identity at a later revision", func(e *etcd) {
			e.put("store", &wire.StoreIdentity{Id: "another", Format: 1})
		}},
		{"identity deleted", func(e *etcd) {
			if _, err := e.raw.Delete(e.t.Context(), "store"); err != nil {
				e.t.Fatal(err)
			}
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			e := startEtcd(t)
			s := e.openWith(store.Options{Endpoints: e.Endpoints(), CheckEvery: time.Hour})
			silent := e.openWith(store.Options{Endpoints: e.Endpoints(), CheckEvery: 100 * time.Millisecond})
			watch(t, silent.WatchTable)
			term, _ := lead(t, s, "c1")
			table := commit(t, term, protocol.PutTable(tableOf(1, "s1")))
			x := join(t, s, "s1")
			test.empty(e)
			// The identity is compared in the transaction itself: this store looks by itself only once an hour.
			if _, err := term.Commit(t.Context(), []protocol.Change{protocol.PutReservation(reservation("q", "g", 1))}); !errors.Is(err, store.ErrReplaced) && !errors.Is(err, protocol.ErrFenced) {
				t.Errorf("commit: %v", err)
			}
			if r, err := x.WriteIntents(t.Context(), 1, intents("p"), table, nil); !errors.Is(err, store.ErrReplaced) && r.Outcome != protocol.SessionLost {
				t.Errorf("write: %+v, %v", r, err)
			}
			for name, one := range map[string]*store.Store{"one that writes": s, "one that only watches": silent} {
				select {
				case err := <-one.Lost():
					if !errors.Is(err, store.ErrReplaced) {
						t.Errorf("%s lost: %v", name, err)
					}
				case <-time.After(limit):
					t.Fatalf("%s was not told of the loss", name)
				}
			}
			if _, err := s.Table(t.Context()); !errors.Is(err, store.ErrReplaced) {
				t.Errorf("a read after the loss: %v", err)
			}
			<-term.Done()
			<-x.Done()
			if e.modRevision(reservationKey("q", "g"))+e.modRevision("intents/s1/0000000000000001") != 0 {
				t.Error("the other store was written to")
			}
			if test.name == "data gone" {
				if again := e.open(); !again.Fresh() {
					t.Error("starting over found an old store")
				}
			}
		})
	}
}

// A copy of the store has its identity: who saw it go back makes that known to those who did not.
func TestRestoredStoreIsAnother(t *testing.T) {
	e := startEtcd(t)
	s := e.openWith(store.Options{Endpoints: e.Endpoints(), CheckEvery: 100 * time.Millisecond})
	ignorant := e.openWith(store.Options{Endpoints: e.Endpoints(), CheckEvery: time.Hour})
	reader := e.openWith(store.Options{Endpoints: e.Endpoints(), CheckEvery: 100 * time.Millisecond, ReadOnly: true})
	term, _ := lead(t, s, "c1")
	commit(t, term, protocol.PutTable(tableOf(7, "s1")))
	x := join(t, ignorant, "s1")
	e.Kill()
	backup := t.TempDir()
	if err := os.CopyFS(backup, os.DirFS(e.dir)); err != nil {
		t.Fatal(err)
	}
	if err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for n := range 5 {
		e.putRaw("reservations/later", strconv.Itoa(n))
	}
	if _, err := s.Table(t.Context()); err != nil { // and so it knows the newest revision
		t.Fatal(err)
	}
	e.Kill()
	if err := os.RemoveAll(e.dir); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(e.dir, os.DirFS(backup)); err != nil {
		t.Fatal(err)
	}
	if err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-s.Lost():
		if !errors.Is(err, store.ErrReplaced) || !strings.Contains(err.Error(), "it is at revision") {
			t.Errorf("lost: %v", err)
		}
	case <-time.After(limit):
		t.Fatal("nobody saw it go back")
	}
	again := e.open()
	if again.ID() == s.ID() || again.Fresh() {
		t.Errorf("identity %s, before %s; fresh %v", again.ID(), s.ID(), again.Fresh())
	}
	if got, err := again.Table(t.Context()); err != nil || !got.Refilling || got.Epoch != 8 || got.Owned("s1") != api.Buckets {
		t.Errorf("table %+v, %v", got, err)
	}
	if r, err := x.WriteIntents(t.Context(), 1, intents("p"), 1, nil); !errors.Is(err, store.ErrReplaced) && r.Outcome != protocol.SessionLost {
		t.Errorf("who saw nothing goes on: %+v, %v", r, err)
	}
	select {
	case err := <-reader.Lost():
		if !errors.Is(err, store.ErrReplaced) {
			t.Errorf("lost: %v", err)
		}
	case <-time.After(limit):
		t.Error("a reader was not told")
	}
}
