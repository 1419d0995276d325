package protocol

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

// MaxRequest is etcd's own limit of the bytes of a request.
const MaxRequest = 1536 << 10

const maxOps = 128 // of compares, and of operations, that etcd takes in one transaction

// MaxRecord bounds the encoded bytes of one record, MaxCommit those of all keys and records of one Commit: a transaction
// stays within etcd's 1.5 MiB.
const (
	MaxRecord = 1 << 20
	MaxCommit = MaxRequest - 64<<10
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

// ErrUnreadable is for a record that cannot be decoded.
var ErrUnreadable = errors.New("corrupt record")

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
	Place       int64 // the revision at which the key was created: its place in the log of intents
	ModRevision int64
	Record      *wire.IntentsRecord
}

// Encode returns what is written of a record. It returns a RecordError for a record that is too large or cannot be encoded, such as one with a string that is not
// UTF-8. The record must not be changed afterwards.
func Encode(key string, m proto.Message) (Value, error) {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err == nil && len(b) > MaxRecord {
		err = fmt.Errorf("%w: %d bytes, the limit is %d", ErrTooLarge, len(b), MaxRecord)
	}
	if err != nil {
		return Value{}, &RecordError{Key: key, Err: fmt.Errorf("encode %s: %w", m.ProtoReflect().Descriptor().Name(), err)}
	}
	return Value{b, m}, nil
}

// DecodeLimits reads the limits in force of a queue.
func (k Keys) DecodeLimits(kv KV) (StoredLimits, error) {
	out := StoredLimits{Queue: strings.TrimPrefix(kv.Key, k.Limits("")), ModRevision: kv.Mod}
	r, err := decode(kv.Value, &wire.LimitsRecord{})
	if err == nil && r.Queue != out.Queue {
		err = fmt.Errorf("%w: it is of queue %q", ErrUnreadable, r.Queue)
	}
	if err == nil {
		err = readable(r.Capability, r.Guarantee, r.Deserved)
	}
	if err == nil {
		out.Record = r
	}
	return out, err
}

// DecodeReservation reads a reservation. Its GangUID is empty when even the key cannot be read.
func (k Keys) DecodeReservation(kv KV) (StoredReservation, error) {
	out := StoredReservation{ModRevision: kv.Mod}
	bucket, uid, ok := strings.Cut(strings.TrimPrefix(kv.Key, k.Reservations()), "/")
	b, err := strconv.ParseUint(bucket, 10, 16)
	if !ok || err != nil || b >= api.Buckets || api.BucketID(b).Label() != bucket || uid == "" {
		return out, fmt.Errorf("%w: the key is not reservations/<bucket>/<gang UID>", ErrUnreadable)
	}
	out.Bucket, out.GangUID = api.BucketID(b), uid
	r, err := decode(kv.Value, &wire.ReservationRecord{})
	if err != nil {
		return out, err
	}
	switch {
	case r.GetGang().GetUid() != uid:
		return out, fmt.Errorf("%w: it is of gang %q", ErrUnreadable, r.GetGang().GetUid())
	case api.BucketOf(r.Gang.Queue) != out.Bucket:
		return out, fmt.Errorf("%w: queue %q is of bucket %s", ErrUnreadable, r.Gang.Queue, api.BucketOf(r.Gang.Queue).Label())
	case r.State != wire.ReservationState_RESERVATION_OPEN && r.State != wire.ReservationState_RESERVATION_CLOSING:
		return out, fmt.Errorf("%w: state %d", ErrUnreadable, r.State)
	}
	if err := readable(r.Demand); err != nil {
		return out, err
	}
	out.Record = r
	return out, nil
}

// DecodeIntents reads an intent key. Its Incarnation is empty when even the key cannot be read.
func (k Keys) DecodeIntents(kv KV) (StoredIntents, error) {
	out := StoredIntents{Place: kv.Create, ModRevision: kv.Mod}
	incarnation, n, ok := strings.Cut(strings.TrimPrefix(kv.Key, k.AllIntents()), "/")
	number, err := strconv.ParseUint(n, 16, 64)
	if !ok || err != nil || incarnation == "" || k.Intents(api.Incarnation(incarnation), number) != kv.Key {
		return out, fmt.Errorf("%w: the key is not intents/<incarnation>/<n>", ErrUnreadable)
	}
	out.Incarnation, out.N = api.Incarnation(incarnation), number
	r, err := decode(kv.Value, &wire.IntentsRecord{})
	if err != nil {
		return out, err
	}
	for i, row := range r.Rows {
		if row.GetPodUid() == "" || row.GetNode() == "" || int(row.GetGang()) >= len(r.Gangs) || int(row.GetDemand()) >= len(r.Demands) {
			return out, fmt.Errorf("%w: row %d", ErrUnreadable, i)
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

// DecodeShard reads a shard's own record.
func (k Keys) DecodeShard(kv KV) (*wire.ShardRecord, error) {
	r, err := decode(kv.Value, &wire.ShardRecord{})
	if err != nil {
		return nil, err
	}
	if k.Shard(api.Incarnation(r.Incarnation)) != kv.Key {
		return nil, fmt.Errorf("%w: it is of incarnation %q", ErrUnreadable, r.Incarnation)
	}
	return r, nil
}

// DecodeTable reads the table.
func DecodeTable(kv KV) (*api.Table, error) {
	r, err := decode(kv.Value, &wire.TableRecord{})
	if err != nil {
		return nil, err
	}
	t, err := wire.ToTable(r, kv.Mod)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	return t, nil
}

// DecodeLeader reads who coordinates.
func DecodeLeader(kv KV) (*wire.LeaderRecord, error) {
	r, err := decode(kv.Value, &wire.LeaderRecord{})
	if err != nil {
		return nil, err
	}
	if r.Incarnation == "" {
		return nil, fmt.Errorf("%w: it names no incarnation", ErrUnreadable)
	}
	return r, nil
}

func readable(vectors ...[]*wire.Amount) error {
	for _, v := range vectors {
		r, err := wire.ToResources(v)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrUnreadable, err)
		}
		for _, a := range r {
			if a.Value < 0 || a.Resource == "" {
				return fmt.Errorf("%w: %d of resource %q", ErrUnreadable, a.Value, a.Resource)
			}
		}
	}
	return nil
}
