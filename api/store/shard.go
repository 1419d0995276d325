package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"basalt.dev/basalt/api/store/protocol"
	"basalt.dev/basalt/api/wire"
)

// Session is a shard's right to write: its key shards/<incarnation> under a lease.
type Session struct {
	store *Store
	lease *lease

	mu  sync.Mutex // guards own while a machine decides, not while a request is on its way
	own *protocol.Session
}

// Register puts a shard's record under a lease that is kept until Deregister or until etcd says that it is over. An etcd
// that is away for a while ends no session.
func (s *Store) Register(ctx context.Context, record *wire.ShardRecord, ttl time.Duration) (*Session, error) {
	m, err := protocol.NewRegistration(s.keys, record)
	if err != nil {
		return nil, fmt.Errorf("register shard: %w", err)
	}
	l, err := s.acquire(ctx, m, max(ttl, 2*time.Second))
	if err != nil {
		return nil, fmt.Errorf("register shard: %w", err)
	}
	return &Session{store: s, lease: l, own: m.Session()}, nil
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

// run drives a machine of the session. There is no use in waiting for an answer longer than the lease lives: ErrSessionLost.
func (x *Session) run(ctx context.Context, m protocol.Machine) error {
	ctx, stop := x.lease.limit(ctx, protocol.ErrSessionLost)
	defer stop()
	err := x.store.run(ctx, locked{&x.mu, m})
	if err != nil && x.store.ctx.Err() != nil { // which ends the lease too
		return context.Cause(x.store.ctx)
	}
	return err
}

// ended notes what became of a machine of the session: an outcome of SessionLost ends the lease here, too.
func (x *Session) ended(outcome protocol.Outcome, corrupt []protocol.Corrupt) {
	if outcome == protocol.SessionLost {
		x.lease.over()
	}
	x.store.corrupt(corrupt)
}

// locked is a machine whose decisions are made one after another with those of others.
type locked struct {
	mu *sync.Mutex
	protocol.Machine
}

func (l locked) Next() (protocol.Txn, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Machine.Next()
}

func (l locked) Answered(r protocol.Result) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.Machine.Answered(r)
}

func (l locked) Lost() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.Machine.Lost()
}

// Update replaces the shard's own record, to say that it drains.
func (x *Session) Update(ctx context.Context, record *wire.ShardRecord) error {
	x.mu.Lock()
	m, err := x.own.Update(record)
	x.mu.Unlock()
	if err == nil {
		err = x.run(ctx, m)
	}
	if err == nil && m.Outcome == protocol.SessionLost {
		x.ended(m.Outcome, nil)
		err = protocol.ErrSessionLost
	}
	if err != nil {
		return fmt.Errorf("update shard: %w", err)
	}
	return nil
}

// WriteIntents makes rows durable in one transaction: the key intents/<self>/<n> must be absent, the table and every
// reservation at exactly the revisions named. It comes back with a definite outcome; an error means that ctx ended, the
// store was replaced, and then the fate of the rows may be open, or that the record cannot be written at all: a
// RecordError. Then nothing was written, and the session goes on.
func (x *Session) WriteIntents(ctx context.Context, n uint64, record *wire.IntentsRecord, tableRevision int64, fences []protocol.ReservationFence) (protocol.WriteResult, error) {
	x.mu.Lock()
	m, err := x.own.WriteIntents(n, record, tableRevision, fences)
	x.mu.Unlock()
	if err == nil {
		err = x.run(ctx, m)
	}
	switch {
	case errors.Is(err, protocol.ErrSessionLost):
		return protocol.WriteResult{Outcome: protocol.SessionLost}, nil
	case m != nil && tooLarge(err): // etcd's limit is lower than its default
		err = m.TooLarge(err)
	}
	if err != nil {
		return protocol.WriteResult{}, fmt.Errorf("write intents %d: %w", n, err)
	}
	x.ended(m.Outcome, nil)
	x.store.tableHint.raise(m.TableRevision) // a watch that hangs learns of it
	return m.WriteResult, nil
}

// DeleteIntents deletes keys, each at exactly its ModRevision. A key that is at another revision is left alone. It returns
// each key as it is now, in the order given: ModRevision 0 once it is gone.
func (x *Session) DeleteIntents(ctx context.Context, keys []protocol.IntentKey) ([]protocol.StoredIntents, error) {
	m := x.own.DeleteIntents(keys)
	err := x.run(ctx, m)
	if x.ended(m.Outcome, m.Corrupt); err == nil {
		err = m.Failed()
	}
	if err != nil {
		return m.Now(), fmt.Errorf("delete intents: %w", err)
	}
	return m.Now(), nil
}

// RewriteIntents replaces the record of any incarnation's key, or deletes the key when record is nil, if the key and the
// table are at exactly the revisions named. Otherwise it returns the key as it is.
func (x *Session) RewriteIntents(ctx context.Context, k protocol.IntentKey, record *wire.IntentsRecord, tableRevision int64) (protocol.RewriteResult, error) {
	m, err := x.own.RewriteIntents(k, record, tableRevision)
	if err == nil {
		err = x.run(ctx, m)
	}
	if errors.Is(err, protocol.ErrSessionLost) {
		return protocol.RewriteResult{Outcome: protocol.SessionLost}, nil
	}
	if m != nil && tooLarge(err) {
		err = m.TooLarge(err)
	}
	if err != nil {
		return protocol.RewriteResult{}, fmt.Errorf("rewrite intents %s/%d: %w", k.Incarnation, k.N, err)
	}
	x.ended(m.Outcome, m.Corrupt)
	x.store.tableHint.raise(m.TableRevision)
	return m.RewriteResult, nil
}
