package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/api/wire"
)

// Term is one coordinator's time in office. It is over when its lease is, and Commit finds that out by itself, whatever
// the clock says.
type Term struct {
	store  *Store
	number int64 // CreateRevision of the leader key
	lease  *lease

	mu       sync.Mutex // one transaction at a time
	loaded   bool
	broken   error  // a transaction whose fate stayed open: nothing more may be written
	revision int64  // ModRevision of seq
	value    uint64 // the largest sequence value ever tried
}

// Op is one put or delete of a coordinator transaction.
type Op struct {
	key   func(*Store) string
	value proto.Message // nil deletes
}

// PutLimits writes the limits in force of a queue.
func PutLimits(r *wire.LimitsRecord) Op {
	return Op{func(s *Store) string { return s.key(keyLimits + r.Queue) }, r}
}

// DeleteLimits forgets a queue.
func DeleteLimits(queue string) Op {
	return Op{func(s *Store) string { return s.key(keyLimits + queue) }, nil}
}

// PutReservation writes a reservation, under its queue's bucket and its gang's UID.
func PutReservation(r *wire.ReservationRecord) Op {
	return Op{func(s *Store) string {
		return s.reservationKey(api.BucketOf(r.GetGang().GetQueue()), r.GetGang().GetUid())
	}, r}
}

// DeleteReservation releases a reservation.
func DeleteReservation(queue, gangUID string) Op {
	return Op{func(s *Store) string { return s.reservationKey(api.BucketOf(queue), gangUID) }, nil}
}

// PutTable writes the table. Its Revision is ignored: it will be the transaction's.
func PutTable(t *api.Table) Op {
	return Op{func(s *Store) string { return s.key(keyTable) }, wire.FromTable(t)}
}

// MaxOps is how many Ops one Commit takes.
const MaxOps = maxOps - 1 // and seq

// Campaign waits until nobody leads and then leads. Several may wait; one wins. The lease is granted only after the leader
// key was seen gone, so it cannot run out while waiting, which is how a campaign can end without leadership.
func (s *Store) Campaign(ctx context.Context, record *wire.LeaderRecord) (*Term, error) {
	key := s.key(keyLeader)
	value, err := encode(key, record)
	if err != nil {
		return nil, fmt.Errorf("campaign: %w", err)
	}
	pause := newBackoff()
	for {
		if err := s.awaitGone(ctx, key); err != nil {
			return nil, fmt.Errorf("campaign: %w", err)
		}
		l, err := s.grant(ctx, s.opts.LeaderTTL, true)
		if err != nil {
			return nil, fmt.Errorf("campaign: %w", err)
		}
		number, err := s.create(ctx, key, value, l)
		if err == nil && number > 0 {
			return &Term{store: s, number: number, lease: l}, nil
		}
		// Another was faster, or the fate of our try is open: without its lease it cannot land, or will not stay.
		within, cancel := context.WithTimeout(s.ctx, s.opts.LeaderTTL)
		_ = l.revoke(within)
		cancel()
		if err != nil && !leaseGone(err) && (definite(err) || ctx.Err() != nil || s.ctx.Err() != nil) {
			return nil, fmt.Errorf("campaign: %w", err)
		}
		if err != nil && !pause.wait(ctx) {
			return nil, fmt.Errorf("campaign: %w", context.Cause(ctx))
		}
	}
}

// create puts a key that must be absent under a lease and returns its CreateRevision, 0 when somebody else's is there. It
// is sent until the answer is definite: the key that is there with our lease is ours.
func (s *Store) create(ctx context.Context, key string, value []byte, l *lease) (revision int64, err error) {
	err = s.try(ctx, s.opts.RequestTimeout, func(ctx context.Context) error {
		resp, err := s.txn(ctx, []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "=", 0)},
			[]clientv3.Op{clientv3.OpPut(key, string(value), clientv3.WithLease(l.id))}, []clientv3.Op{clientv3.OpGet(key)})
		if err != nil {
			return err
		}
		revision = resp.Header.Revision
		if !resp.Succeeded {
			revision = 0
			if kv := first(resp, 0); kv != nil && kv.Lease == int64(l.id) {
				revision = kv.CreateRevision
			}
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("create %q: %w", key, err)
	}
	return revision, nil
}

// awaitGone waits until a key does not exist.
func (s *Store) awaitGone(ctx context.Context, key string) error {
	within, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	gone := errors.New("gone")
	err := s.follow(within, key, false, nil, func(keys map[string]*mvccpb.KeyValue, _ int64) {
		if len(keys) == 0 {
			cancel(gone)
		}
	})
	if errors.Is(err, gone) {
		return nil
	}
	return err
}

// Number is the term: the CreateRevision of the leader key. Later terms have larger numbers.
func (t *Term) Number() int64 { return t.number }

// Done is closed when the lease is over or could not be confirmed in time.
func (t *Term) Done() <-chan struct{} { return t.lease.ctx.Done() }

// Resign ends the term so that another can lead at once.
func (t *Term) Resign(ctx context.Context) error {
	t.lease.over() // no further Commit begins
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.lease.revoke(ctx); err != nil {
		return fmt.Errorf("resign: %w", err)
	}
	return nil
}

// State is what a coordinator begins its term with, all of it at one revision.
type State struct {
	Revision     int64
	Sequence     uint64     // value of seq: every transaction of this term has a larger one
	Table        *api.Table // nil when there is none, or when Corrupt names it
	Limits       []StoredLimits
	Reservations []StoredReservation
	Shards       []*wire.ShardRecord
	Corrupt      []Corrupt
}

// Load writes a fenced transaction that changes nothing, after which no transaction of an earlier term can land, and
// reads the state at its revision. It must come before the first Commit.
func (t *Term) Load(ctx context.Context) (*State, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, key := t.store, t.store.key(keySequence)
	out := &State{}
	resp, err := s.get(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("load state: %w", err)
	}
	t.revision = 0
	if len(resp.Kvs) == 1 {
		kv, seq := resp.Kvs[0], &wire.Sequence{}
		t.revision = kv.ModRevision
		if err := decode(kv, seq); err != nil {
			// Every transaction made a revision, so the revision is a value that was never reached.
			out.Corrupt = append(out.Corrupt, Corrupt{key, err})
			seq.Value = uint64(resp.Header.Revision)
		}
		t.value = max(t.value, seq.Value)
	}
	t.loaded = true
	corrupt := out.Corrupt
	for {
		out = &State{Corrupt: slices.Clone(corrupt)}
		if out.Revision, err = t.commit(ctx, nil); err != nil {
			return nil, fmt.Errorf("load state: %w", err)
		}
		out.Sequence = t.value
		err = s.load(ctx, out)
		switch {
		case err == nil:
			return out, nil
		case errors.Is(err, rpctypes.ErrCompacted) && ctx.Err() == nil: // while it was read: again, at a newer revision
			continue
		default:
			return nil, fmt.Errorf("load state: %w", err)
		}
	}
}

// Commit carries out all ops in one transaction and returns its revision. It returns only when the outcome is definite:
// no error means written; an error wrapping ErrFenced means that the term is over. After any other error the term must be
// given up too, unless the ops themselves could not be sent (too many, too large, a key twice).
func (t *Term) Commit(ctx context.Context, ops []Op) (int64, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.loaded {
		return 0, errors.New("commit: the state was not loaded")
	}
	if len(ops) > MaxOps {
		return 0, fmt.Errorf("commit: %d operations, at most %d are possible", len(ops), MaxOps)
	}
	s := t.store
	seen, size := map[string]bool{}, 0
	largest, most := "", 0
	puts := make([]clientv3.Op, 0, len(ops)+1)
	for _, op := range ops {
		key := op.key(s)
		if seen[key] {
			return 0, fmt.Errorf("commit: key %q twice", key)
		}
		seen[key] = true
		if op.value == nil {
			puts = append(puts, clientv3.OpDelete(key))
			continue
		}
		value, err := encode(key, op.value)
		if err != nil {
			return 0, fmt.Errorf("commit: %w", err)
		}
		if size += len(key) + len(value); len(value) > most {
			largest, most = key, len(value)
		}
		puts = append(puts, clientv3.OpPut(key, string(value)))
	}
	if size > MaxCommit {
		return 0, fmt.Errorf("commit: %w: %d operations of %d bytes, the limit is %d; the largest is key %q with %d", ErrTooLarge, len(ops), size, MaxCommit, largest, most)
	}
	revision, err := t.commit(ctx, puts)
	if err != nil {
		return 0, fmt.Errorf("commit %s: %w", keysOf(puts), err)
	}
	return revision, nil
}

// keysOf names the keys of a transaction, the first few of many.
func keysOf(ops []clientv3.Op) string {
	const most = 8
	var names []string
	for _, op := range ops[:min(most, len(ops))] {
		names = append(names, strconv.Quote(string(op.KeyBytes())))
	}
	if more := len(ops) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}

// deniedAtMost is how long a term waits for a right to write that it lacks: then a standby may have it. For space, or for a
// member to be replaced, it waits as long as it takes, for others would have to wait, too.
const deniedAtMost = 30 * time.Second

// commit sends one transaction. An answer that does not come is settled by moving seq with an empty transaction that
// compares the same seq: of the two at most one can land. Each try has a sequence value of its own, so that whichever
// landed is told by reading seq.
func (t *Term) commit(ctx context.Context, puts []clientv3.Op) (int64, error) {
	if t.broken != nil {
		return 0, t.broken
	}
	ctx, cancel := t.store.bound(ctx)
	defer cancel()
	over := fmt.Errorf("%w: term %d lost its lease", ErrFenced, t.number)
	ctx, stop := t.lease.limit(ctx, over) // a hanging request ends with the lease
	defer stop()

	wanted := map[uint64]bool{} // the sequence values under which puts were sent
	open := false               // some try on the current seq may still land
	var denied time.Time        // since when the store says that this process has no right
	pause := newBackoff()
	for {
		if t.lease.ctx.Err() != nil && t.store.ctx.Err() == nil {
			return 0, t.fail(over)
		}
		if ctx.Err() != nil {
			cause := context.Cause(ctx)
			if t.store.ctx.Err() != nil {
				cause = context.Cause(t.store.ctx)
			}
			if open {
				return 0, t.fail(fmt.Errorf("%w, with a transaction whose fate is open", cause))
			}
			return 0, cause
		}
		send := puts
		if open {
			send = nil
		}
		t.value++
		value := t.value
		if !open {
			wanted[value] = true
		}
		moved, err := t.send(ctx, send, value)
		switch {
		case errors.Is(err, ErrFenced), errors.Is(err, ErrReplaced):
			return 0, t.fail(err)
		case t.store.refused(err): // and did nothing; an earlier try may still land
			if refusal(err) != RefusedPermission {
				denied = time.Time{}
			} else if denied.IsZero() {
				denied = time.Now()
			} else if time.Since(denied) > deniedAtMost && !open {
				return 0, err
			} else if time.Since(denied) > deniedAtMost {
				return 0, t.fail(fmt.Errorf("%w, with a transaction whose fate is open", err))
			}
			if refusal(err) == RefusedBehind { // the answer is not believed, but something may have been written
				open = true
			}
			_ = pause.wait(ctx) // or return above
		case err != nil && definite(err) && !open:
			return 0, err
		case err != nil:
			t.store.log.Warn("answer of a control store transaction is missing, settling it", "term", t.number, "error", err)
			open = true
			fault.Crash(fault.CommitUncertain)
			if !pause.wait(ctx) {
				continue // and return above
			}
		case wanted[moved]:
			return t.revision, nil
		default: // an empty one landed, so those before it never will
			open = false
		}
	}
}

// fail makes an error final for the term.
func (t *Term) fail(err error) error {
	t.broken = err
	return err
}

// send sends one try, and returns the value that seq has now, which is this try's or an earlier one's.
func (t *Term) send(ctx context.Context, puts []clientv3.Op, value uint64) (uint64, error) {
	s := t.store
	record, err := encode(s.key(keySequence), &wire.Sequence{Value: value, Term: uint64(t.number)})
	if err != nil {
		return 0, err
	}
	leaderKey, seqKey := s.key(keyLeader), s.key(keySequence)
	one, cancel := context.WithTimeout(ctx, s.opts.RequestTimeout)
	defer cancel()
	resp, err := s.txn(one,
		[]clientv3.Cmp{
			clientv3.Compare(clientv3.CreateRevision(leaderKey), "=", t.number),
			clientv3.Compare(clientv3.ModRevision(seqKey), "=", t.revision),
		},
		append([]clientv3.Op{clientv3.OpPut(seqKey, string(record))}, puts...),
		[]clientv3.Op{clientv3.OpGet(leaderKey), clientv3.OpGet(seqKey)})
	if err != nil {
		return 0, err
	}
	if resp.Succeeded {
		t.revision = resp.Header.Revision
		return value, nil
	}
	if kv := first(resp, 0); kv == nil || kv.CreateRevision != t.number {
		t.lease.over()
		return 0, fmt.Errorf("%w: another took over from term %d", ErrFenced, t.number)
	}
	// The term is ours, so what moved seq is an earlier try of this very transaction: nobody else may write it.
	kv, seq := first(resp, 1), &wire.Sequence{}
	if kv == nil || decode(kv, seq) != nil || seq.Term != uint64(t.number) || kv.ModRevision <= t.revision {
		return 0, fmt.Errorf("%w: somebody else wrote %q", ErrFenced, seqKey)
	}
	t.revision = kv.ModRevision
	return seq.Value, nil
}

// Leader reads who coordinates and its term; nil and 0 when nobody does.
func (s *Store) Leader(ctx context.Context) (*wire.LeaderRecord, int64, error) {
	resp, err := s.get(ctx, s.key(keyLeader))
	if err != nil || len(resp.Kvs) == 0 {
		return nil, 0, err
	}
	r, err := leader(resp.Kvs[0])
	if err != nil {
		return nil, 0, fmt.Errorf("key %q: %w", resp.Kvs[0].Key, err)
	}
	return r, resp.Kvs[0].CreateRevision, nil
}

// WatchLeader tells who coordinates, and each change, until ctx ends: nil and 0 for nobody.
func (s *Store) WatchLeader(ctx context.Context, changed func(record *wire.LeaderRecord, term int64)) error {
	return s.follow(ctx, s.key(keyLeader), false, nil, func(keys map[string]*mvccpb.KeyValue, _ int64) {
		for _, kv := range keys {
			if r, err := leader(kv); err == nil {
				changed(r, kv.CreateRevision)
				return
			} else {
				s.log.Error("cannot read record of the control store", "key", string(kv.Key), "error", err)
			}
		}
		changed(nil, 0)
	})
}

// first returns the key that the i-th read of a transaction found, nil for none.
func first(resp *clientv3.TxnResponse, i int) *mvccpb.KeyValue {
	if i >= len(resp.Responses) {
		return nil
	}
	kvs := resp.Responses[i].GetResponseRange().GetKvs()
	if len(kvs) == 0 {
		return nil
	}
	return kvs[0]
}

func leaseGone(err error) bool {
	return errors.Is(rpctypes.Error(err), rpctypes.ErrLeaseNotFound) || errors.Is(err, rpctypes.ErrLeaseNotFound)
}
