package store

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

const (
	keyStore        = "store"
	keyLeader       = "leader/coordinator"
	keySequence     = "seq"
	keyTable        = "table"
	keyShards       = "shards/"
	keyLimits       = "queues/"
	keyReservations = "reservations/"
	keyIntents      = "intents/"
)

const (
	maxRequest = 1536 << 10 // etcd's own limit of a request
	maxOps     = 128        // of compares, and of operations, that etcd takes in one transaction
)

// MaxRecord bounds the encoded bytes of one record, MaxCommit those of all keys and records of one Commit: a transaction
// stays within etcd's 1.5 MiB.
const (
	MaxRecord = 1 << 20
	MaxCommit = maxRequest - 64<<10
)

// ErrTooLarge says that a record, or the sum of a transaction's records, exceeds what the store takes.
var ErrTooLarge = errors.New("too large for the control store")

// RecordError says that one record cannot be written: it is too large (ErrTooLarge) or cannot be encoded. It is an answer
// about that record: nothing of the transaction was written, and the session or the term goes on.
type RecordError struct {
	Key string
	Err error
}

func (e *RecordError) Error() string { return fmt.Sprintf("key %q: %v", e.Key, e.Err) }
func (e *RecordError) Unwrap() error { return e.Err }

// errUnreadable is for a record that cannot be decoded.
var errUnreadable = errors.New("corrupt record")

// Corrupt names a record that cannot be read.
type Corrupt struct {
	Key string
	Err error
}

// StoredLimits are limits in force as they were found. Record is nil when they cannot be read.
type StoredLimits struct {
	Queue       string
	ModRevision int64
	Record      *wire.LimitsRecord
}

// StoredReservation is a reservation as it was found. Record is nil when it cannot be read.
type StoredReservation struct {
	Bucket      api.BucketID
	GangUID     string
	ModRevision int64
	Record      *wire.ReservationRecord
}

// StoredIntents is an intent key as it was found. Record is nil when it cannot be read: its rows are unknown.
type StoredIntents struct {
	Incarnation api.Incarnation
	N           uint64
	ModRevision int64
	Record      *wire.IntentsRecord
}

// encode returns a RecordError for a record that is too large or cannot be encoded, such as one with a string that is not
// UTF-8.
func encode(key string, m proto.Message) ([]byte, error) {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err == nil && len(b) > MaxRecord {
		err = fmt.Errorf("%w: %d bytes, the limit is %d", ErrTooLarge, len(b), MaxRecord)
	}
	if err != nil {
		return nil, &RecordError{Key: key, Err: fmt.Errorf("encode %s: %w", m.ProtoReflect().Descriptor().Name(), err)}
	}
	return b, nil
}

func (s *Store) reservationKey(b api.BucketID, gangUID string) string {
	return s.key(keyReservations + b.Label() + "/" + gangUID)
}

func (s *Store) intentsKey(i api.Incarnation, n uint64) string {
	return s.key(fmt.Sprintf("%s%s/%016x", keyIntents, i, n))
}

func (s *Store) limits(kv *mvccpb.KeyValue) (StoredLimits, error) {
	out := StoredLimits{Queue: strings.TrimPrefix(string(kv.Key), s.key(keyLimits)), ModRevision: kv.ModRevision}
	r := &wire.LimitsRecord{}
	err := decode(kv, r)
	if err == nil && r.Queue != out.Queue {
		err = fmt.Errorf("%w: it is of queue %q", errUnreadable, r.Queue)
	}
	if err == nil {
		err = readable(r.Capability, r.Guarantee)
	}
	if err == nil {
		out.Record = r
	}
	return out, err
}

func (s *Store) reservation(kv *mvccpb.KeyValue) (StoredReservation, error) {
	out := StoredReservation{ModRevision: kv.ModRevision}
	bucket, uid, ok := strings.Cut(strings.TrimPrefix(string(kv.Key), s.key(keyReservations)), "/")
	b, err := strconv.ParseUint(bucket, 10, 16)
	if !ok || err != nil || b >= api.Buckets || api.BucketID(b).Label() != bucket || uid == "" {
		return out, fmt.Errorf("%w: the key is not reservations/<bucket>/<gang UID>", errUnreadable)
	}
	out.Bucket, out.GangUID = api.BucketID(b), uid
	r := &wire.ReservationRecord{}
	if err := decode(kv, r); err != nil {
		return out, err
	}
	switch {
	case r.GetGang().GetUid() != uid:
		return out, fmt.Errorf("%w: it is of gang %q", errUnreadable, r.GetGang().GetUid())
	case api.BucketOf(r.Gang.Queue) != out.Bucket:
		return out, fmt.Errorf("%w: queue %q is of bucket %s", errUnreadable, r.Gang.Queue, api.BucketOf(r.Gang.Queue).Label())
	case r.State != wire.ReservationState_RESERVATION_OPEN && r.State != wire.ReservationState_RESERVATION_CLOSING:
		return out, fmt.Errorf("%w: state %d", errUnreadable, r.State)
	}
	if err := readable(r.Demand); err != nil {
		return out, err
	}
	out.Record = r
	return out, nil
}

func (s *Store) intents(kv *mvccpb.KeyValue) (StoredIntents, error) {
	out := StoredIntents{ModRevision: kv.ModRevision}
	incarnation, n, ok := strings.Cut(strings.TrimPrefix(string(kv.Key), s.key(keyIntents)), "/")
	number, err := strconv.ParseUint(n, 16, 64)
	if !ok || err != nil || incarnation == "" || s.intentsKey(api.Incarnation(incarnation), number) != string(kv.Key) {
		return out, fmt.Errorf("%w: the key is not intents/<incarnation>/<n>", errUnreadable)
	}
	out.Incarnation, out.N = api.Incarnation(incarnation), number
	r := &wire.IntentsRecord{}
	if err := decode(kv, r); err != nil {
		return out, err
	}
	for i, row := range r.Rows {
		if row.GetPodUid() == "" || row.GetNode() == "" || int(row.GetGang()) >= len(r.Gangs) || int(row.GetDemand()) >= len(r.Demands) {
			return out, fmt.Errorf("%w: row %d", errUnreadable, i)
		}
	}
	for _, d := range r.Demands {
		if err := readable(d.GetAmounts()); err != nil {
			return out, err
		}
	}
	out.Record = r
	return out, nil
}

func (s *Store) shard(kv *mvccpb.KeyValue) (*wire.ShardRecord, error) {
	r := &wire.ShardRecord{}
	if err := decode(kv, r); err != nil {
		return nil, err
	}
	if s.key(keyShards+r.Incarnation) != string(kv.Key) {
		return nil, fmt.Errorf("%w: it is of incarnation %q", errUnreadable, r.Incarnation)
	}
	return r, nil
}

func table(kv *mvccpb.KeyValue) (*api.Table, error) {
	r := &wire.TableRecord{}
	if err := decode(kv, r); err != nil {
		return nil, err
	}
	t, err := wire.ToTable(r, kv.ModRevision)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUnreadable, err)
	}
	return t, nil
}

func leader(kv *mvccpb.KeyValue) (*wire.LeaderRecord, error) {
	r := &wire.LeaderRecord{}
	if err := decode(kv, r); err != nil {
		return nil, err
	}
	if r.Incarnation == "" {
		return nil, fmt.Errorf("%w: it names no incarnation", errUnreadable)
	}
	return r, nil
}

func decode(kv *mvccpb.KeyValue, into proto.Message) error {
	if err := proto.Unmarshal(kv.Value, into); err != nil {
		return fmt.Errorf("%w: %w", errUnreadable, err)
	}
	return nil
}

func readable(vectors ...[]*wire.Amount) error {
	for _, v := range vectors {
		r, err := wire.ToResources(v)
		if err != nil {
			return fmt.Errorf("%w: %w", errUnreadable, err)
		}
		for _, a := range r {
			if a.Value < 0 || a.Resource == "" {
				return fmt.Errorf("%w: %d of resource %q", errUnreadable, a.Value, a.Resource)
			}
		}
	}
	return nil
}
