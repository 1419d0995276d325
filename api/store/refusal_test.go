package store_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"basalt.dev/basalt/api/store"
	"basalt.dev/basalt/api/store/protocol"
	"basalt.dev/basalt/api/wire"
)

// told collects what a store says of refusals.
type told struct {
	mu      sync.Mutex
	reasons []string
	log     strings.Builder
}

func (o *told) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.log.Write(b)
}

func (o *told) refused(reason string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.reasons = append(o.reasons, reason)
}

func (o *told) has(t *testing.T, reason, words string) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	if !slices.Contains(o.reasons, reason) || !strings.Contains(o.log.String(), words) {
		t.Errorf("refusals %q, and the log does not say %q: %s", o.reasons, words, o.log.String())
	}
	if n := strings.Count(o.log.String(), "refuses requests"); n > 2 {
		t.Errorf("%d lines", n)
	}
}

func openTold(t *testing.T, o store.Options) (*store.Store, *told) {
	t.Helper()
	words := &told{}
	o.RequestTimeout, o.Refused, o.Logger = 2*time.Second, words.refused, slog.New(slog.NewTextHandler(words, nil))
	s, err := store.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s, words
}

// While the store refuses, neither a term nor a session ends, and both go on when it takes requests again.
func TestARefusalIsWaitedOut(t *testing.T) {
	for _, c := range []struct {
		reason string
		err    error
		words  string
	}{
		{store.RefusedNoSpace, rpctypes.ErrGRPCNoSpace, "which disarms the alarm"},
		{store.RefusedCorrupt, rpctypes.ErrGRPCCorrupt, "replace the member"},
		{store.RefusedPermission, rpctypes.ErrGRPCPermissionDenied, "the right to read and write"},
		{store.RefusedPermission, rpctypes.ErrGRPCInvalidAuthToken, "invalid auth token"},
		{store.RefusedPermission, rpctypes.ErrGRPCAuthOldRevision, "auth store is old"},
	} {
		t.Run(c.err.Error(), func(t *testing.T) {
			p := newRPCProxy(t, startEtcd(t).Endpoints()[0])
			s, words := openTold(t, store.Options{Endpoints: p.endpoints()})
			term, _ := lead(t, s, "c1")
			table := commit(t, term, protocol.PutTable(tableOf(1, "s1")))
			x := join(t, s, "s1")
			p.set(func(method string, _ []byte) error {
				if method == "Txn" || method == "Range" {
					return c.err
				}
				return nil
			}, nil)
			var wg sync.WaitGroup
			var done atomic.Int32
			wg.Go(func() {
				if _, err := term.Commit(t.Context(), []protocol.Change{protocol.PutReservation(reservation("q", "g", 1))}); err != nil {
					t.Errorf("commit: %v", err)
				}
				done.Add(1)
			})
			wg.Go(func() {
				if r, err := x.WriteIntents(t.Context(), 1, intents("p"), table, nil); err != nil || r.Outcome != protocol.Written {
					t.Errorf("write: %+v %v", r, err)
				}
				done.Add(1)
			})
			wg.Go(func() {
				if _, err := s.ReadForTakeover(t.Context(), 1, nil); err != nil {
					t.Errorf("read: %v", err)
				}
				done.Add(1)
			})
			time.Sleep(4 * time.Second) // longer than the leader's lease
			if done.Load() != 0 {
				t.Error("something did not wait")
			}
			p.set(nil, nil)
			wg.Wait()
			words.has(t, c.reason, c.words)
			commit(t, term, protocol.DeleteReservation("q", "g"))
		})
	}
}

// A process that has no right to begin with says so at once.
func TestOpenWithoutRights(t *testing.T) {
	p := newRPCProxy(t, startEtcd(t).Endpoints()[0])
	p.set(func(string, []byte) error { return rpctypes.ErrGRPCPermissionDenied }, nil)
	began := time.Now()
	_, err := store.Open(t.Context(), store.Options{Endpoints: p.endpoints()})
	if err == nil || !strings.Contains(err.Error(), "permission denied") || time.Since(began) > 5*time.Second {
		t.Errorf("%v after %s", err, time.Since(began))
	}
}

// A real store that used up its space: who starts then waits too, and all go on when there is space again.
func TestAStoreWithoutSpace(t *testing.T) {
	e := startEtcd(t)
	s, words := openTold(t, store.Options{Endpoints: e.Endpoints()})
	term, _ := lead(t, s, "c1")
	alarm(t, e, pb.AlarmRequest_ACTIVATE, pb.AlarmType_NOSPACE)
	again, newer := openTold(t, store.Options{Endpoints: e.Endpoints()}) // a restarted process
	if again.ID() != s.ID() {
		t.Errorf("identity %s became %s", s.ID(), again.ID())
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := term.Commit(t.Context(), []protocol.Change{protocol.PutReservation(reservation("q", "g", 1))}); err != nil {
			t.Errorf("commit: %v", err)
		}
	})
	wg.Go(func() {
		x, err := again.Register(t.Context(), &wire.ShardRecord{Incarnation: "s1", Name: "s1", Address: "s1:1"}, 3*time.Second)
		if err != nil {
			t.Errorf("register: %v", err)
			return
		}
		_ = x.Deregister(t.Context())
	})
	time.Sleep(2 * time.Second)
	alarm(t, e, pb.AlarmRequest_DEACTIVATE, pb.AlarmType_NOSPACE)
	wg.Wait()
	words.has(t, store.RefusedNoSpace, "which disarms the alarm")
	newer.has(t, store.RefusedNoSpace, "which disarms the alarm")
}

func alarm(t *testing.T, e *etcd, action pb.AlarmRequest_AlarmAction, which pb.AlarmType) {
	t.Helper()
	status, err := e.raw.Status(t.Context(), e.Endpoints()[0])
	if err != nil {
		t.Fatal(err)
	}
	_, err = pb.NewMaintenanceClient(e.raw.ActiveConnection()).Alarm(t.Context(), &pb.AlarmRequest{Action: action, MemberID: status.Header.MemberId, Alarm: which})
	if err != nil {
		t.Fatal(err)
	}
}

// old makes answers look like those of a member whose data went back: the header names a revision of long ago.
func old(left *atomic.Int64) func(string, []byte) []byte {
	return func(method string, b []byte) []byte {
		switch method {
		case "Range":
			r := &pb.RangeResponse{}
			if proto.Unmarshal(b, r) != nil || left.Add(-1) < 0 {
				return b
			}
			r.Header.Revision = 1
			b, _ = proto.Marshal(r)
		case "Txn":
			r := &pb.TxnResponse{}
			if proto.Unmarshal(b, r) != nil || left.Add(-1) < 0 {
				return b
			}
			r.Header.Revision = 1
			b, _ = proto.Marshal(r)
		}
		return b
	}
}

// One answer with an old revision, or one member that gives them for ever, changes nothing.
func TestOneOldAnswerIsNotBelieved(t *testing.T) {
	for _, c := range []struct {
		name    string
		answers int64
		alone   bool // no other endpoint
	}{
		{"one answer", 1, true},
		{"one member for ever", 1 << 40, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := startEtcd(t)
			p := newRPCProxy(t, e.Endpoints()[0])
			endpoints := p.endpoints()
			if !c.alone {
				endpoints = append(endpoints, e.Endpoints()...)
			}
			s, words := openTold(t, store.Options{Endpoints: endpoints, CheckEvery: time.Hour})
			term, _ := lead(t, s, "c1")
			table := commit(t, term, protocol.PutTable(tableOf(1, "s1")))
			x := join(t, s, "s1")
			identity := e.modRevision("store")
			for n := range uint64(4) {
				left := &atomic.Int64{}
				left.Store(c.answers)
				p.set(nil, old(left))
				switch n {
				case 0:
					if got, err := s.Table(t.Context()); err != nil || got.Revision != table {
						t.Errorf("read: %+v %v", got, err)
					}
				case 1:
					commit(t, term, protocol.PutReservation(reservation("q", "g", 1)))
				default:
					if r, err := x.WriteIntents(t.Context(), n, intents("p"), table, nil); err != nil || r.Outcome != protocol.Written {
						t.Errorf("write: %+v %v", r, err)
					}
				}
				p.set(nil, nil)
			}
			select {
			case err := <-s.Lost():
				t.Errorf("lost: %v", err)
			default:
			}
			if e.modRevision("store") != identity {
				t.Error("the identity was rewritten")
			}
			if c.alone { // else it depends on which endpoint was asked
				words.has(t, store.RefusedBehind, "it is at revision 1, and was at")
			}
		})
	}
}

// A store is taken for another only after three rounds of old answers, with a pause after each; a round in which nobody answers does
// not count.
func TestADoubtTakesThreeRounds(t *testing.T) {
	p := newRPCProxy(t, startEtcd(t).Endpoints()[0])
	s, words := openTold(t, store.Options{Endpoints: p.endpoints(), CheckEvery: time.Hour})
	lead(t, s, "c1")
	left, asked := &atomic.Int64{}, &atomic.Int64{}
	left.Store(3) // that of the read, and two rounds
	p.set(func(method string, _ []byte) error {
		if n := asked.Add(1); method == "Range" && n >= 3 && n < 7 {
			return status.Error(codes.Unavailable, "away")
		}
		return nil
	}, old(left))
	began := time.Now()
	if _, err := s.Table(t.Context()); err != nil || asked.Load() < 9 || time.Since(began) < time.Second {
		t.Errorf("after %d requests, in %s: %v", asked.Load(), time.Since(began), err)
	}
	words.has(t, store.RefusedBehind, "it is at revision 1, and was at")
}

// The answer to a commit is not believed, and the commit is given up before another answer comes: it may have landed, and the
// term is over.
func TestACommitThatIsGivenUp(t *testing.T) {
	e := startEtcd(t)
	p := newRPCProxy(t, e.Endpoints()[0])
	ctx, cancel := context.WithCancel(t.Context())
	var refusals atomic.Int64
	s, err := store.Open(t.Context(), store.Options{Endpoints: p.endpoints(), CheckEvery: time.Hour, Refused: func(string) {
		if refusals.Add(1) == 2 { // the first is of who asked all endpoints
			cancel()
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	term, _ := lead(t, s, "c1")
	left := &atomic.Int64{}
	left.Store(1)
	p.set(nil, old(left))
	_, err = term.Commit(ctx, []protocol.Change{protocol.PutReservation(reservation("q", "g", 1))})
	if !errors.Is(err, context.Canceled) || e.modRevision(reservationKey("q", "g")) == 0 {
		t.Errorf("commit: %v", err)
	}
	if _, again := term.Commit(t.Context(), nil); again == nil || !strings.Contains(again.Error(), "fate is open") {
		t.Errorf("the term goes on, although a commit of it may land: %v", again)
	}
}

// When all answers are old, the store was restored.
func TestOldAnswersOfAllAreBelieved(t *testing.T) {
	e := startEtcd(t)
	p := newRPCProxy(t, e.Endpoints()[0])
	s, _ := openTold(t, store.Options{Endpoints: p.endpoints(), CheckEvery: time.Hour})
	lead(t, s, "c1")
	left := &atomic.Int64{}
	left.Store(1 << 40)
	p.set(nil, old(left))
	if _, err := s.Table(t.Context()); !errors.Is(err, store.ErrReplaced) || !strings.Contains(err.Error(), "it is at revision 1, and was at") {
		t.Errorf("read: %v", err)
	}
}

// A compaction between two pages of a load is no reason to end a term.
func TestLoadDuringCompaction(t *testing.T) {
	e := startEtcd(t)
	p := newRPCProxy(t, e.Endpoints()[0])
	s, log := openTold(t, store.Options{Endpoints: p.endpoints()})
	term, _ := lead(t, s, "c1")
	const n = 1500 // more than a page
	for from := 0; from < n; from += 100 {
		var ops []protocol.Change
		for i := range 100 {
			ops = append(ops, protocol.PutReservation(reservation("q", "g"+string(rune('a'+i%26))+time.Duration(from+i).String(), 1)))
		}
		commit(t, term, ops...)
	}
	if err := term.Resign(t.Context()); err != nil {
		t.Fatal(err)
	}
	next, err := s.Campaign(t.Context(), &wire.LeaderRecord{Incarnation: "c2", Name: "c2", Address: "c2:1"})
	if err != nil {
		t.Fatal(err)
	}
	var compacted atomic.Int32
	p.set(nil, func(method string, b []byte) []byte {
		r := &pb.RangeResponse{}
		if method == "Range" && proto.Unmarshal(b, r) == nil && r.More && compacted.Add(1) <= 2 {
			newest := e.putRaw("unrelated", "x")
			if _, err := e.raw.Compact(context.Background(), newest); err != nil {
				t.Error(err)
			}
		}
		return b
	})
	state, err := next.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(state.Reservations) != n || compacted.Load() < 3 {
		t.Errorf("%d reservations, %d pages with more; %q", len(state.Reservations), compacted.Load(), log.log.String())
	}
	commit(t, next, protocol.DeleteReservation("q", "g"))
}

// An etcd that takes less than its default: an answer about the record, and the session goes on.
func TestAnEtcdThatTakesLess(t *testing.T) {
	for _, refusal := range []error{rpctypes.ErrGRPCRequestTooLarge, status.Error(codes.ResourceExhausted, "grpc: received message larger than max (900 vs. 100)")} {
		p := newRPCProxy(t, startEtcd(t).Endpoints()[0])
		s, _ := openTold(t, store.Options{Endpoints: p.endpoints()})
		term, _ := lead(t, s, "c1")
		table := commit(t, term, protocol.PutTable(tableOf(1, "s1")))
		x := join(t, s, "s1")
		p.set(func(method string, b []byte) error {
			if method == "Txn" && len(b) > 10_000 {
				return refusal
			}
			return nil
		}, nil)
		wide := reservation("q", "g", 1)
		wide.Gang.Name = strings.Repeat("x", 20_000)
		within, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		if _, err := term.Commit(within, []protocol.Change{protocol.PutReservation(wide)}); status.Code(err) != status.Code(refusal) && !errors.Is(err, rpctypes.ErrRequestTooLarge) {
			t.Errorf("commit, %v: %v", refusal, err)
		}
		commit(t, term, protocol.PutReservation(reservation("q", "g", 1))) // the term goes on
		long := intents("p")
		long.Rows[0].Node = strings.Repeat("x", 20_000)
		var record *protocol.RecordError
		if _, err := x.WriteIntents(t.Context(), 1, long, table, nil); !errors.As(err, &record) || !errors.Is(err, protocol.ErrTooLarge) {
			t.Errorf("%v: %v", refusal, err)
		}
		r, err := x.WriteIntents(t.Context(), 2, intents("p"), table, nil)
		if err != nil || r.Outcome != protocol.Written {
			t.Errorf("%+v %v", r, err)
		}
		key, record := protocol.IntentKey{Incarnation: "s1", N: 2, ModRevision: r.ModRevision}, (*protocol.RecordError)(nil)
		if _, err := x.RewriteIntents(t.Context(), key, long, table); !errors.As(err, &record) || !errors.Is(err, protocol.ErrTooLarge) {
			t.Errorf("rewritten, %v: %v", refusal, err)
		}
		if r, err := x.RewriteIntents(t.Context(), key, intents("q"), table); err != nil || r.Outcome != protocol.Written {
			t.Errorf("rewritten: %+v %v", r, err)
		}
	}
}
