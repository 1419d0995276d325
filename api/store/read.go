package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

// Takeover is what an heir needs, at one revision. Records that cannot be read are there without a Record, and Corrupt
// says why; a key that cannot be read is only there.
type Takeover struct {
	Revision     int64
	Reservations []StoredReservation
	Intents      []StoredIntents
	Corrupt      []Corrupt
}

// ReadForTakeover reads all reservations and all intents at one revision, which is the store's newest, and at least
// minRevision.
func (s *Store) ReadForTakeover(ctx context.Context, minRevision int64) (*Takeover, error) {
	s.raise(minRevision) // somebody saw it: a store that answers with less is another one
	for {
		out := &Takeover{}
		err := s.page(ctx, keyIntents, 100, &out.Revision, func(kv *mvccpb.KeyValue) error {
			r, err := s.intents(kv)
			if r.Incarnation != "" {
				out.Intents = append(out.Intents, r)
			}
			return err
		}, &out.Corrupt)
		if err == nil {
			err = s.page(ctx, keyReservations, 1000, &out.Revision, func(kv *mvccpb.KeyValue) error {
				r, err := s.reservation(kv)
				if r.GangUID != "" {
					out.Reservations = append(out.Reservations, r)
				}
				return err
			}, &out.Corrupt)
		}
		switch {
		case err == nil:
			return out, nil
		case errors.Is(err, rpctypes.ErrCompacted) && ctx.Err() == nil: // while we were reading: again, at a newer one
			continue
		default:
			return nil, fmt.Errorf("read for takeover: %w", err)
		}
	}
}

// load fills a coordinator's state at the revision that is set in it. It fails with ErrCompacted when that is compacted
// meanwhile.
func (s *Store) load(ctx context.Context, out *State) error {
	err := s.page(ctx, keyLimits, 1000, &out.Revision, func(kv *mvccpb.KeyValue) error {
		r, err := s.limits(kv)
		out.Limits = append(out.Limits, r)
		return err
	}, &out.Corrupt)
	if err != nil {
		return err
	}
	err = s.page(ctx, keyReservations, 1000, &out.Revision, func(kv *mvccpb.KeyValue) error {
		r, err := s.reservation(kv)
		if r.GangUID != "" {
			out.Reservations = append(out.Reservations, r)
		}
		return err
	}, &out.Corrupt)
	if err != nil {
		return err
	}
	err = s.page(ctx, keyShards, 1000, &out.Revision, func(kv *mvccpb.KeyValue) error {
		r, err := s.shard(kv)
		if err == nil {
			out.Shards = append(out.Shards, r)
		}
		return err
	}, &out.Corrupt)
	if err != nil {
		return err
	}
	resp, err := s.get(ctx, s.key(keyTable), clientv3.WithRev(out.Revision))
	if err != nil {
		return err
	}
	for _, kv := range resp.Kvs {
		if out.Table, err = table(kv); err != nil {
			out.Corrupt = append(out.Corrupt, Corrupt{string(kv.Key), err})
			out.Table = nil
		}
	}
	return nil
}

// Pages of a read begin with firstPage keys, and have about pageBytes where records are large: an answer has to arrive within
// the timeout of one request.
const (
	firstPage = 32
	pageBytes = 8 << 20
)

// page reads all keys of a kind at a revision, at most most at a time; a revision of 0 is set to the store's newest.
func (s *Store) page(ctx context.Context, kind string, most int64, revision *int64, each func(*mvccpb.KeyValue) error, corrupt *[]Corrupt) error {
	from, end := s.key(kind), clientv3.GetPrefixRangeEnd(s.key(kind))
	limit := min(most, firstPage)
	for {
		resp, err := s.get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(limit), clientv3.WithRev(*revision))
		if err != nil {
			return err
		}
		bytes := 0
		for _, kv := range resp.Kvs {
			bytes += len(kv.Key) + len(kv.Value)
		}
		limit = nextPage(limit, most, bytes)
		if *revision == 0 {
			*revision = resp.Header.Revision
		}
		for _, kv := range resp.Kvs {
			if err := each(kv); err != nil {
				*corrupt = append(*corrupt, Corrupt{string(kv.Key), err})
			}
		}
		if !resp.More {
			return nil
		}
		from = string(resp.Kvs[len(resp.Kvs)-1].Key) + "\x00"
	}
}

// nextPage returns how many keys the page after one of limit keys and so many bytes has: up to four times as many, so that
// it is expected to have pageBytes.
func nextPage(limit, most int64, bytes int) int64 {
	return max(1, min(most, 4*limit, limit*pageBytes/int64(max(1, bytes))))
}

// Table reads the table; nil when there is none.
func (s *Store) Table(ctx context.Context) (*api.Table, error) {
	resp, err := s.get(ctx, s.key(keyTable))
	if err != nil || len(resp.Kvs) == 0 {
		return nil, err
	}
	t, err := table(resp.Kvs[0])
	if err != nil {
		return nil, fmt.Errorf("key %q: %w", resp.Kvs[0].Key, err)
	}
	return t, nil
}

// Shards reads the shards that are registered, by incarnation. Records that cannot be read are logged and left out.
func (s *Store) Shards(ctx context.Context) ([]*wire.ShardRecord, error) {
	resp, err := s.get(ctx, s.key(keyShards), clientv3.WithPrefix())
	if err != nil {
		return nil, err
	}
	out := make([]*wire.ShardRecord, 0, len(resp.Kvs))
	for _, kv := range resp.Kvs {
		if r, err := s.shard(kv); err == nil {
			out = append(out, r)
		} else {
			s.log.Error("cannot read record of the control store", "key", string(kv.Key), "error", err)
		}
	}
	return out, nil
}

// WatchTable tells the table, and each newer one, until ctx ends. Tables between two calls may be left out; their
// revisions only grow. One that cannot be read is logged and not told.
func (s *Store) WatchTable(ctx context.Context, changed func(*api.Table)) error {
	var last int64
	return s.follow(ctx, s.key(keyTable), false, &s.tableHint, func(keys map[string]*mvccpb.KeyValue, _ int64) {
		for _, kv := range keys {
			if kv.ModRevision <= last {
				continue
			}
			last = kv.ModRevision
			t, err := table(kv)
			if err != nil {
				s.log.Error("cannot read record of the control store", "key", string(kv.Key), "error", err)
				continue
			}
			changed(t)
		}
	})
}

// WatchShards tells the shards that are registered, by incarnation, after each change, until ctx ends.
func (s *Store) WatchShards(ctx context.Context, changed func([]*wire.ShardRecord)) error {
	return s.follow(ctx, s.key(keyShards), true, nil, func(keys map[string]*mvccpb.KeyValue, _ int64) {
		out := make([]*wire.ShardRecord, 0, len(keys))
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			if r, err := s.shard(keys[key]); err == nil {
				out = append(out, r)
			} else {
				s.log.Error("cannot read record of the control store", "key", key, "error", err)
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
		if err := s.watch(ctx, key, opts, keys, resp.Header.Revision, newer, pause, changed); err != nil && ctx.Err() == nil {
			s.log.Warn("watch on the control store broke, reading again", "key", key, "error", err)
		}
		if !pause.wait(ctx) {
			return fmt.Errorf("watch %q: %w", key, context.Cause(ctx))
		}
	}
}

func (s *Store) watch(ctx context.Context, key string, opts []clientv3.OpOption, keys map[string]*mvccpb.KeyValue, revision int64, newer *hint, pause *backoff, changed func(map[string]*mvccpb.KeyValue, int64)) error {
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
				if e.Type == mvccpb.DELETE {
					delete(keys, string(e.Kv.Key))
				} else {
					keys[string(e.Kv.Key)] = e.Kv
				}
				revision = max(revision, e.Kv.ModRevision)
			}
			s.raise(revision)
			pause.reset()
			changed(keys, revision)
		}
	}
}
