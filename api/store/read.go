package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/store/protocol"
	"basalt.dev/basalt/api/wait"
	"basalt.dev/basalt/api/wire"
)

// ReadForTakeover reads the reservations of buckets, which are sorted, and all intents at one revision, which is the
// store's newest, and at least minRevision.
func (s *Store) ReadForTakeover(
	ctx context.Context, minRevision int64, buckets []api.BucketID,
) (*protocol.Takeover, error) {
	s.raise(minRevision) // somebody saw it: a store that answers with less is another one
	m := protocol.NewReadTakeover(s.keys, buckets)
	if err := s.run(ctx, m); err != nil {
		return nil, fmt.Errorf("read for takeover: %w", err)
	}
	return &m.Takeover, nil
}

// ReservationEvicts reports whether a gang's reservation is closed at this moment, or condemns a pod, under no later attempt than the given one.
func (s *Store) ReservationEvicts(ctx context.Context, b api.BucketID, gangUID string, attempt uint64, pod string) (bool, error) {
	m := protocol.NewReadReservation(s.keys, b, gangUID)
	if err := s.run(ctx, m); err != nil {
		return false, err
	}
	s.corrupt(m.Corrupt)
	return m.Evicts(attempt, pod), nil
}

// corrupt logs records that could not be read.
func (s *Store) corrupt(found []protocol.Corrupt) {
	for _, c := range found {
		s.log.Error("cannot decode control store record", "key", c.Key, "error", c.Err)
	}
}

// Table reads the table; nil when there is none.
func (s *Store) Table(ctx context.Context) (*api.Table, error) {
	resp, err := s.get(ctx, s.keys.Table())
	if err != nil || len(resp.Kvs) == 0 {
		return nil, err
	}
	t, err := protocol.DecodeTable(foundOne(resp.Kvs[0]))
	if err != nil {
		return nil, fmt.Errorf("key %q: %w", resp.Kvs[0].Key, err)
	}
	return t, nil
}

// Shards reads the shards that are registered, by incarnation. Records that cannot be read are logged and left out.
func (s *Store) Shards(ctx context.Context) ([]*wire.ShardRecord, error) {
	resp, err := s.get(ctx, s.keys.Shards(), clientv3.WithPrefix())
	if err != nil {
		return nil, err
	}
	out := make([]*wire.ShardRecord, 0, len(resp.Kvs))
	for _, kv := range resp.Kvs {
		if r, err := s.keys.DecodeShard(foundOne(kv)); err == nil {
			out = append(out, r)
		} else {
			s.log.Error("cannot decode control store record", "key", string(kv.Key), "error", err)
		}
	}
	return out, nil
}

// WatchTable tells the table, and each newer one, until ctx ends. Tables between two calls may be left out; their
// revisions only grow. One that cannot be read is logged and not told.
func (s *Store) WatchTable(ctx context.Context, changed func(*api.Table)) error {
	var last int64
	return s.follow(ctx, s.keys.Table(), false, &s.tableHint, func(keys map[string]*mvccpb.KeyValue, _ int64) {
		for _, kv := range keys {
			if kv.ModRevision <= last {
				continue
			}
			last = kv.ModRevision
			t, err := protocol.DecodeTable(foundOne(kv))
			if err != nil {
				s.log.Error("cannot decode control store record", "key", string(kv.Key), "error", err)
				continue
			}
			changed(t)
		}
	})
}

// WatchShards tells the shards that are registered, by incarnation, after each change, until ctx ends.
func (s *Store) WatchShards(ctx context.Context, changed func([]*wire.ShardRecord)) error {
	return s.follow(ctx, s.keys.Shards(), true, nil, func(keys map[string]*mvccpb.KeyValue, _ int64) {
		out := make([]*wire.ShardRecord, 0, len(keys))
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			if r, err := s.keys.DecodeShard(foundOne(keys[key])); err == nil {
				out = append(out, r)
			} else {
				s.log.Error("cannot decode control store record", "key", key, "error", err)
			}
		}
		changed(out)
	})
}

// follow keeps a copy of one key, or of all with a prefix, and tells it after each change, on the caller's goroutine, until
// ctx ends or the store is lost. After anything that goes wrong it reads everything again. The copy is only lent.
func (s *Store) follow(ctx context.Context, key string, prefix bool, newer *hint, changed func(keys map[string]*mvccpb.KeyValue, revision int64)) error {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	var opts []clientv3.OpOption
	if prefix {
		opts = append(opts, clientv3.WithPrefix())
	}
	pause := newBackoff()
	for {
		resp, err := s.get(ctx, key, opts...)
		if err != nil {
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			return fmt.Errorf("watch %q: %w", key, err)
		}
		keys := make(map[string]*mvccpb.KeyValue, len(resp.Kvs))
		for _, kv := range resp.Kvs {
			keys[string(kv.Key)] = kv
		}
		changed(keys, resp.Header.Revision)
		err = s.watch(ctx, key, opts, resp.Header.Revision, newer, pause, func(events []*clientv3.Event, revision int64) {
			for _, e := range events {
				if e.Type == mvccpb.DELETE {
					delete(keys, string(e.Kv.Key))
				} else {
					keys[string(e.Kv.Key)] = e.Kv
				}
			}
			changed(keys, revision)
		})
		if err != nil && ctx.Err() == nil {
			s.log.Warn("control store watch failed, reading again", "key", key, "error", err)
		}
		if !pause.Wait(ctx) {
			return fmt.Errorf("watch %q: %w", key, context.Cause(ctx))
		}
	}
}

// Intents are keys of the log of intents, in order of their revisions, the last of which is Revision.
type Intents struct {
	Revision int64
	Keys     []protocol.StoredIntents // deleted ones without a Record
}

// WatchIntents tells the log of intents: all of it at one revision, and then each change after that, on the caller's goroutine, until
// ctx ends or the store is lost. After anything that goes wrong it reads all of it again.
func (s *Store) WatchIntents(ctx context.Context, all, some func(Intents)) error {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	key, pause := s.keys.AllIntents(), newBackoff()
	for {
		m := protocol.NewReadLog(s.keys)
		if err := s.run(ctx, m); err != nil {
			if cause := context.Cause(ctx); cause != nil {
				return fmt.Errorf("watch %q: %w", key, cause)
			}
			s.log.Warn("cannot read the control store, retrying", "key", key, "error", err)
		} else {
			s.corrupt(m.Corrupt)
			all(Intents{m.Revision, m.Intents})
			err := s.watch(ctx, key, []clientv3.OpOption{clientv3.WithPrefix()}, m.Revision, nil, pause, func(events []*clientv3.Event, revision int64) {
				change := Intents{Revision: revision, Keys: make([]protocol.StoredIntents, 0, len(events))}
				for _, e := range events {
					stored, err := s.keys.DecodeIntents(foundOne(e.Kv))
					if e.Type == mvccpb.DELETE {
						stored.Record = nil
					} else if err != nil {
						s.log.Error("cannot decode control store record", "key", string(e.Kv.Key), "error", err)
					}
					if stored.Incarnation != "" {
						change.Keys = append(change.Keys, stored)
					}
				}
				some(change)
			})
			if err != nil && ctx.Err() == nil {
				s.log.Warn("control store watch failed, reading again", "key", key, "error", err)
			}
		}
		if !pause.Wait(ctx) {
			return fmt.Errorf("watch %q: %w", key, context.Cause(ctx))
		}
	}
}

// watch tells what follows a revision.
func (s *Store) watch(ctx context.Context, key string, opts []clientv3.OpOption, revision int64, newer *hint, pause *wait.Backoff, changed func([]*clientv3.Event, int64)) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	events := s.client.Watch(ctx, key, append([]clientv3.OpOption{clientv3.WithRev(revision + 1)}, opts...)...)
	for {
		var hinted <-chan struct{}
		if newer != nil {
			var known int64
			if known, hinted = newer.get(); known > revision {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-hinted:
		case resp, ok := <-events:
			if !ok {
				return errors.New("the watch ended")
			}
			if err := resp.Err(); err != nil {
				return err
			}
			if err := s.checkCluster(ctx, resp.Header); err != nil {
				return err
			}
			if len(resp.Events) == 0 {
				continue
			}
			for _, e := range resp.Events {
				revision = max(revision, e.Kv.ModRevision)
			}
			s.raise(revision)
			pause.Reset()
			changed(resp.Events, revision)
		}
	}
}
