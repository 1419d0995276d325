package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

// Session is a shard's right to write: its key shards/<incarnation> under a lease.
type Session struct {
	store       *Store
	incarnation api.Incarnation
	lease       *lease
	created     int64 // CreateRevision of the key

	mu  sync.Mutex
	own ownKey // as it was seen last
}

// ownKey is a version of a shard's own key.
type ownKey struct {
	modRevision int64
	value       []byte
}

func (x *Session) lastOwn() ownKey {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.own
}

func (x *Session) sawOwn(modRevision int64, value []byte) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if modRevision > x.own.modRevision {
		x.own = ownKey{modRevision, value}
	}
}

// Outcome is how a shard's transaction ended. It is always definite: of an outcome other than Written, nothing was written
// and nothing will be.
type Outcome uint8

// Outcomes.
const (
	Written          Outcome = iota + 1
	TableMoved               // the table is another than the one named
	ReservationMoved         // a reservation is another than the one named, or gone
	KeyMoved                 // the key is at another revision than the one named, or gone
	SessionLost              // this incarnation may not write any more
)

// ReservationFence names a reservation and the only ModRevision that it may have.
type ReservationFence struct {
	Bucket   api.BucketID // of the gang's queue
	GangUID  string
	Revision int64
}

// WriteResult is what WriteIntents came to.
type WriteResult struct {
	Outcome       Outcome
	ModRevision   int64    // with Written: of the key
	TableRevision int64    // with TableMoved: the table's now, 0 when there is none
	Moved         []string // with ReservationMoved: the UIDs of the gangs
}

// IntentKey names an intent key at a revision.
type IntentKey struct {
	Incarnation api.Incarnation
	N           uint64
	ModRevision int64
}

// RewriteResult is what RewriteIntents came to.
type RewriteResult struct {
	Outcome       Outcome
	Now           StoredIntents // the key as it is now; ModRevision 0 when it does not exist
	TableRevision int64         // with TableMoved: the table's now
}

// MaxFences is how many reservations one WriteIntents can name, MaxDeletes how many keys one DeleteIntents transaction has.
const (
	MaxFences  = 100
	MaxDeletes = 100
)

// Register puts a shard's record under a lease that is kept until Deregister or until etcd says that it is over. An etcd
// that is away for a while ends no session.
func (s *Store) Register(ctx context.Context, record *wire.ShardRecord, ttl time.Duration) (*Session, error) {
	if record.GetIncarnation() == "" {
		return nil, errors.New("register shard: no incarnation")
	}
	key := s.key(keyShards + record.Incarnation)
	value, err := encode(key, record)
	if err != nil {
		return nil, fmt.Errorf("register shard: %w", err)
	}
	for {
		l, err := s.grant(ctx, max(ttl, 2*time.Second), false)
		if err != nil {
			return nil, fmt.Errorf("register shard: %w", err)
		}
		created, err := s.create(ctx, key, value, l)
		if err == nil && created > 0 {
			return &Session{store: s, incarnation: api.Incarnation(record.Incarnation), lease: l, created: created, own: ownKey{created, value}}, nil
		}
		l.over()
		switch {
		case err != nil && leaseGone(err) && ctx.Err() == nil:
			continue // it ran out before its first use
		case err == nil:
			return nil, fmt.Errorf("register shard: incarnation %s is registered already", record.Incarnation)
		default:
			return nil, fmt.Errorf("register shard: %w", err)
		}
	}
}

// Done is closed when the session is over.
func (x *Session) Done() <-chan struct{} { return x.lease.ctx.Done() }

// Deregister ends the session in order: the key is gone when it returns without error.
func (x *Session) Deregister(ctx context.Context) error {
	if err := x.lease.revoke(ctx); err != nil {
		return fmt.Errorf("deregister shard: %w", err)
	}
	return nil
}

func (x *Session) key() string { return x.store.key(keyShards + string(x.incarnation)) }

// Update replaces the shard's own record, to say that it drains.
func (x *Session) Update(ctx context.Context, record *wire.ShardRecord) error {
	if api.Incarnation(record.GetIncarnation()) != x.incarnation {
		return fmt.Errorf("update shard: the record is of incarnation %q", record.GetIncarnation())
	}
	value, err := encode(x.key(), record)
	if err != nil {
		return fmt.Errorf("update shard: %w", err)
	}
	resp, err := x.definite(ctx, nil, always(clientv3.OpPut(x.key(), string(value), clientv3.WithLease(x.lease.id))), nil)
	if err != nil {
		return fmt.Errorf("update shard: %w", err)
	}
	if !resp.Succeeded {
		return fmt.Errorf("update shard: %w", ErrSessionLost)
	}
	x.sawOwn(resp.Header.Revision, value)
	return nil
}

// always is the same operations in each try.
func always(ops ...clientv3.Op) func(int) []clientv3.Op {
	return func(int) []clientv3.Op { return ops }
}

// definite sends a transaction whose compares are monotone until it is answered; then gives the operations of a try,
// counted from 1. Besides the store's identity it compares the shard's own key, and ErrSessionLost says that this one
// failed.
func (x *Session) definite(ctx context.Context, compares []clientv3.Cmp, then func(try int) []clientv3.Op, otherwise []clientv3.Op) (*clientv3.TxnResponse, error) {
	s := x.store
	ctx, stop := x.lease.limit(ctx, ErrSessionLost) // no use in waiting for an answer longer than the lease lives
	defer stop()
	compares = append([]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(x.key()), "=", x.created)}, compares...)
	otherwise = append([]clientv3.Op{clientv3.OpGet(x.key(), clientv3.WithKeysOnly())}, otherwise...)
	var resp *clientv3.TxnResponse
	tries := 0
	err := s.try(ctx, s.opts.RequestTimeout, func(ctx context.Context) (err error) {
		tries++
		resp, err = s.txn(ctx, compares, then(tries), otherwise)
		return err
	})
	switch {
	case err != nil && s.ctx.Err() != nil: // which ends the lease too
		return nil, context.Cause(s.ctx)
	case leaseGone(err):
		return nil, ErrSessionLost
	case err != nil:
		return nil, err
	}
	if !resp.Succeeded {
		if kv := first(resp, 0); kv == nil || kv.CreateRevision != x.created {
			x.lease.over()
			return nil, ErrSessionLost
		}
		resp.Responses = resp.Responses[1:]
	}
	return resp, nil
}

// WriteIntents makes rows durable in one transaction: the key intents/<self>/<n> must be absent, the table and every
// reservation at exactly the revisions named. It comes back with a definite outcome; an error means that ctx ended, the
// store was replaced, and then the fate of the rows may be open, or that the record cannot be written at all: a
// RecordError. Then nothing was written, and the session goes on.
//
// That the key is absent becomes true again once it is deleted, so a try whose answer was lost could make it anew. Therefore
// each try compares the version of the shard's own key, too, and every try but the first writes that key as it is: when
// such a one lands, no other can any more. When it was the first that landed, the key is written before this returns.
func (x *Session) WriteIntents(ctx context.Context, n uint64, record *wire.IntentsRecord, tableRevision int64, fences []ReservationFence) (WriteResult, error) {
	s := x.store
	if len(fences) > MaxFences {
		return WriteResult{}, fmt.Errorf("write intents %d: %d reservations, at most %d are possible", n, len(fences), MaxFences)
	}
	key, tableKey := s.intentsKey(x.incarnation, n), s.key(keyTable)
	value, err := encode(key, record)
	if err != nil {
		return WriteResult{}, fmt.Errorf("write intents %d: %w", n, err)
	}
	if len(value) == 0 {
		return WriteResult{}, fmt.Errorf("write intents %d: no rows", n)
	}
	// Revision 0 would compare that there is none, which can become true again.
	if tableRevision <= 0 {
		return WriteResult{Outcome: TableMoved}, nil
	}
	var never []string
	for _, f := range fences {
		if f.Revision <= 0 {
			never = append(never, f.GangUID)
		}
	}
	if len(never) > 0 {
		return WriteResult{Outcome: ReservationMoved, Moved: never}, nil
	}

	compares := []clientv3.Cmp{
		clientv3.Compare(clientv3.CreateRevision(key), "=", 0),
		clientv3.Compare(clientv3.ModRevision(tableKey), "=", tableRevision),
	}
	otherwise := []clientv3.Op{clientv3.OpGet(key, clientv3.WithKeysOnly()), clientv3.OpGet(tableKey, clientv3.WithKeysOnly())}
	for _, f := range fences {
		k := s.reservationKey(f.Bucket, f.GangUID)
		compares = append(compares, clientv3.Compare(clientv3.ModRevision(k), "=", f.Revision))
		otherwise = append(otherwise, clientv3.OpGet(k, clientv3.WithKeysOnly()))
	}
	otherwise = append(otherwise, clientv3.OpGet(x.key()))
	put := clientv3.OpPut(key, string(value))
	var resp *clientv3.TxnResponse
	for {
		own := x.lastOwn()
		again := false
		resp, err = x.definite(ctx, append(compares, clientv3.Compare(clientv3.ModRevision(x.key()), "=", own.modRevision)), func(try int) []clientv3.Op {
			if again = try > 1; again {
				return []clientv3.Op{put, clientv3.OpPut(x.key(), string(own.value), clientv3.WithLease(x.lease.id))}
			}
			return []clientv3.Op{put}
		}, otherwise)
		if errors.Is(err, ErrSessionLost) {
			return WriteResult{Outcome: SessionLost}, nil
		}
		if !again && tooLarge(err) { // etcd's limit is lower than its default
			err = &RecordError{Key: key, Err: fmt.Errorf("%w: %d bytes: %w", ErrTooLarge, len(value), err)}
		}
		if err != nil {
			return WriteResult{}, fmt.Errorf("write intents %d: %w", n, err)
		}
		if resp.Succeeded {
			if again {
				x.sawOwn(resp.Header.Revision, own.value)
			}
			return WriteResult{Outcome: Written, ModRevision: resp.Header.Revision}, nil
		}
		now := first(resp, len(otherwise)-1)
		x.sawOwn(now.ModRevision, now.Value) // it exists, or the session were lost
		// Only this session writes new keys under its incarnation and each number once: a key that is there is an earlier try
		// of this call, perhaps rewritten by an heir since.
		if kv := first(resp, 0); kv != nil {
			if again && now.ModRevision == own.modRevision { // of several tries one landed, perhaps the first: end the others
				err := x.touch(ctx, own)
				if errors.Is(err, ErrSessionLost) {
					return WriteResult{Outcome: SessionLost}, nil
				}
				if err != nil {
					return WriteResult{}, fmt.Errorf("write intents %d: %w", n, err)
				}
			}
			return WriteResult{Outcome: Written, ModRevision: kv.ModRevision}, nil
		}
		if now.ModRevision == own.modRevision {
			break
		}
		// Its record was written meanwhile: no try so far can land any more, nor have they.
	}
	out := WriteResult{Outcome: ReservationMoved}
	if kv := first(resp, 1); kv == nil || kv.ModRevision != tableRevision {
		out.Outcome = TableMoved
		if kv != nil {
			out.TableRevision = kv.ModRevision
			s.tableHint.raise(kv.ModRevision) // a watch that hangs learns of it
		}
		return out, nil
	}
	for i, f := range fences {
		if kv := first(resp, 2+i); kv == nil || kv.ModRevision != f.Revision {
			out.Moved = append(out.Moved, f.GangUID)
		}
	}
	return out, nil
}

// touch moves the version of the shard's own key, if nobody did: no transaction that compares this one can land any more.
func (x *Session) touch(ctx context.Context, own ownKey) error {
	resp, err := x.definite(ctx, []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(x.key()), "=", own.modRevision)},
		always(clientv3.OpPut(x.key(), string(own.value), clientv3.WithLease(x.lease.id))), []clientv3.Op{clientv3.OpGet(x.key())})
	if err != nil {
		return err
	}
	if resp.Succeeded {
		x.sawOwn(resp.Header.Revision, own.value)
	} else if now := first(resp, 0); now != nil {
		x.sawOwn(now.ModRevision, now.Value)
	}
	return nil
}

// DeleteIntents deletes keys, each at exactly its ModRevision, MaxDeletes in a transaction. A key that is at another
// revision is left alone. It returns each key as it is now, in the order given: ModRevision 0 once it is gone.
func (x *Session) DeleteIntents(ctx context.Context, keys []IntentKey) ([]StoredIntents, error) {
	out := make([]StoredIntents, 0, len(keys))
	for len(keys) > 0 {
		n := min(len(keys), MaxDeletes)
		now, err := x.deleteIntents(ctx, keys[:n])
		if err != nil {
			return out, fmt.Errorf("delete intents: %w", err)
		}
		out, keys = append(out, now...), keys[n:]
	}
	return out, nil
}

func (x *Session) deleteIntents(ctx context.Context, keys []IntentKey) ([]StoredIntents, error) {
	s := x.store
	out := make([]StoredIntents, len(keys))
	var left []int // indexes of keys that are still to be deleted
	for i, k := range keys {
		out[i] = StoredIntents{Incarnation: k.Incarnation, N: k.N}
		if k.ModRevision > 0 {
			left = append(left, i)
		}
	}
	for len(left) > 0 {
		var compares []clientv3.Cmp
		var then, otherwise []clientv3.Op
		for _, i := range left {
			key := s.intentsKey(keys[i].Incarnation, keys[i].N)
			compares = append(compares, clientv3.Compare(clientv3.ModRevision(key), "=", keys[i].ModRevision))
			then = append(then, clientv3.OpDelete(key))
			otherwise = append(otherwise, clientv3.OpGet(key, clientv3.WithKeysOnly()))
		}
		resp, err := x.definite(ctx, compares, always(then...), otherwise)
		if err != nil {
			return out, err
		}
		if resp.Succeeded {
			return out, nil
		}
		// A revision that moved never comes back, so each round loses at least one key.
		var again []int
		for j, i := range left {
			kv := first(resp, j)
			switch {
			case kv == nil: // gone
			case kv.ModRevision == keys[i].ModRevision:
				again = append(again, i)
			default:
				if out[i], err = s.readIntents(ctx, keys[i]); err != nil {
					return out, err
				}
			}
		}
		if len(again) == len(left) {
			return out, errors.New("the transaction failed, but no key had moved")
		}
		left = again
	}
	return out, nil
}

func (s *Store) readIntents(ctx context.Context, k IntentKey) (StoredIntents, error) {
	resp, err := s.get(ctx, s.intentsKey(k.Incarnation, k.N))
	if err != nil {
		return StoredIntents{}, err
	}
	if len(resp.Kvs) == 0 {
		return StoredIntents{Incarnation: k.Incarnation, N: k.N}, nil
	}
	now, err := s.intents(resp.Kvs[0])
	if err != nil {
		s.log.Error("cannot read record of the control store", "key", string(resp.Kvs[0].Key), "error", err)
	}
	return now, nil
}

// RewriteIntents replaces the record of any incarnation's key, or deletes the key when record is nil, if the key and the
// table are at exactly the revisions named. Otherwise it returns the key as it is.
func (x *Session) RewriteIntents(ctx context.Context, k IntentKey, record *wire.IntentsRecord, tableRevision int64) (RewriteResult, error) {
	s := x.store
	fail := func(err error) (RewriteResult, error) {
		return RewriteResult{}, fmt.Errorf("rewrite intents %s/%d: %w", k.Incarnation, k.N, err)
	}
	if k.ModRevision <= 0 || tableRevision <= 0 {
		return fail(errors.New("revision 0 can be no fence"))
	}
	key, tableKey := s.intentsKey(k.Incarnation, k.N), s.key(keyTable)
	then := clientv3.OpDelete(key)
	var value []byte
	if record != nil {
		var err error
		if value, err = encode(key, record); err != nil {
			return fail(err)
		}
		then = clientv3.OpPut(key, string(value))
	}
	resp, err := x.definite(ctx,
		[]clientv3.Cmp{
			clientv3.Compare(clientv3.ModRevision(key), "=", k.ModRevision),
			clientv3.Compare(clientv3.ModRevision(tableKey), "=", tableRevision),
		}, always(then), []clientv3.Op{clientv3.OpGet(key), clientv3.OpGet(tableKey, clientv3.WithKeysOnly())})
	if errors.Is(err, ErrSessionLost) {
		return RewriteResult{Outcome: SessionLost}, nil
	}
	if err != nil {
		return fail(err)
	}
	out := RewriteResult{Outcome: Written, Now: StoredIntents{Incarnation: k.Incarnation, N: k.N}}
	if resp.Succeeded {
		if record != nil {
			out.Now.ModRevision, out.Now.Record = resp.Header.Revision, record
		}
		return out, nil
	}
	if kv := first(resp, 0); kv != nil {
		if out.Now, err = s.intents(kv); err != nil {
			s.log.Error("cannot read record of the control store", "key", key, "error", err)
		}
		if record != nil && kv.ModRevision != k.ModRevision && bytes.Equal(kv.Value, value) {
			return out, nil // an earlier try of this call, or somebody wrote just the same
		}
	} else if record == nil {
		return out, nil
	}
	if kv := first(resp, 1); kv == nil || kv.ModRevision != tableRevision {
		out.Outcome, out.TableRevision = TableMoved, revisionOf(kv)
		s.tableHint.raise(out.TableRevision)
		return out, nil
	}
	out.Outcome = KeyMoved
	return out, nil
}

func revisionOf(kv *mvccpb.KeyValue) int64 {
	if kv == nil {
		return 0
	}
	return kv.ModRevision
}
