// Package observe keeps what the control store holds, decoded: who leads, the table, and the limits, reservations and intents. A
// Store follows an auditor's watch (follow.Options.Tap); Read reads the control store once. After a gap of the watch, which does
// not tell what was deleted, a Store holds what the snapshot names and nothing else.
//
// It does not measure time: each measurement has its own clocks, which begin and end where its report says. It does not keep
// pods: each run needs something else of them. It does not judge: what it cannot decode is missing, and the auditor reports it.
package observe

import (
	"context"
	"fmt"
	"path"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/audit"
	"basalt.dev/basalt/api/wire"
)

// Store is the content of the control store. The zero value is an empty one. It has no lock.
type Store struct {
	Leader       *wire.LeaderRecord // nil: nobody leads
	Term         int64              // the leader's, 0 when nobody leads
	Table        *api.Table
	Limits       map[string]*wire.LimitsRecord      // by queue
	Reservations map[string]*wire.ReservationRecord // by UID of the gang: the auditor finds gangs that have two
	Intents      map[string]*wire.IntentsRecord     // by the key without "intents/"
}

// Read reads the control store as it is now.
func Read(ctx context.Context, etcd *clientv3.Client) (*Store, error) {
	got, err := etcd.Get(ctx, "", clientv3.WithPrefix())
	if err != nil {
		return nil, fmt.Errorf("read control store: %w", err)
	}
	e := audit.StoreRevision{Snapshot: true}
	for _, kv := range got.Kvs {
		e.Changes = append(e.Changes, audit.StoreChange{Key: string(kv.Key), Value: kv.Value, CreateRevision: kv.CreateRevision, ModRevision: kv.ModRevision})
	}
	s := &Store{}
	s.Observe(e)
	return s, nil
}

// Observe takes the next revision. Deletions go first: one revision may delete a reservation in one bucket and write it in another.
func (s *Store) Observe(e audit.StoreRevision) {
	if e.Snapshot || s.Limits == nil {
		*s = Store{Limits: map[string]*wire.LimitsRecord{}, Reservations: map[string]*wire.ReservationRecord{}, Intents: map[string]*wire.IntentsRecord{}}
	}
	for _, deleted := range []bool{true, false} {
		for _, c := range e.Changes {
			if c.Deleted == deleted {
				s.change(c)
			}
		}
	}
}

func (s *Store) change(c audit.StoreChange) {
	switch kind, rest, _ := strings.Cut(c.Key, "/"); kind {
	case "leader":
		s.Leader, s.Term = decode[wire.LeaderRecord](c), 0
		if s.Leader != nil {
			s.Term = c.CreateRevision
		}
	case "table":
		s.Table = nil
		if r := decode[wire.TableRecord](c); r != nil {
			if t, err := wire.ToTable(r, c.ModRevision); err == nil {
				s.Table = t
			}
		}
	case "queues":
		put(s.Limits, rest, decode[wire.LimitsRecord](c))
	case "reservations":
		put(s.Reservations, path.Base(rest), decode[wire.ReservationRecord](c))
	case "intents":
		put(s.Intents, rest, decode[wire.IntentsRecord](c))
	}
}

// decode returns nil for a key that is deleted or cannot be decoded.
func decode[T any, M interface {
	*T
	proto.Message
}](c audit.StoreChange) M {
	r := M(new(T))
	if c.Deleted || proto.Unmarshal(c.Value, r) != nil {
		return nil
	}
	return r
}

func put[T any](to map[string]*T, key string, record *T) {
	if delete(to, key); record != nil {
		to[key] = record
	}
}
