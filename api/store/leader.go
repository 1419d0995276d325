package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/api/store/protocol"
	"basalt.dev/basalt/api/wire"
)

// Term is one coordinator's time in office. It is over when its lease is, and Commit finds that out by itself, whatever
// the clock says.
type Term struct {
	store  *Store
	number int64 // CreateRevision of the leader key
	lease  *lease

	mu     sync.Mutex // one transaction at a time
	own    *protocol.Term
	loaded bool
	broken error // a transaction whose fate stayed open: nothing more may be written
}

// Campaign waits until nobody leads and then leads. Several may wait; one wins.
func (s *Store) Campaign(ctx context.Context, record *wire.LeaderRecord) (*Term, error) {
	m, err := protocol.NewCampaign(s.keys, record)
	if err != nil {
		return nil, fmt.Errorf("campaign: %w", err)
	}
	l, err := s.acquire(ctx, m, s.opts.LeaderTTL)
	if err != nil {
		return nil, fmt.Errorf("campaign: %w", err)
	}
	own := m.Term()
	return &Term{store: s, number: own.Number(), lease: l, own: own}, nil
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

// Load writes a fenced transaction that changes nothing, after which no transaction of an earlier term can land, and
// reads the state at its revision. It must come before the first Commit.
func (t *Term) Load(ctx context.Context) (*protocol.State, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := t.own.Load()
	if err := t.run(ctx, m); err != nil {
		return nil, fmt.Errorf("load state: %w", err)
	}
	t.loaded = true
	return &m.State, nil
}

// Commit carries out all changes in one transaction and returns its revision. It returns only when the outcome is definite:
// no error means written; an error wrapping ErrFenced means that the term is over. After any other error the term must be
// given up too, unless the changes themselves could not be sent (too many, too large, a key twice).
func (t *Term) Commit(ctx context.Context, changes []protocol.Change) (int64, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.loaded {
		return 0, errors.New("commit: the state was not loaded")
	}
	m, err := t.own.Commit(changes)
	if err != nil {
		return 0, fmt.Errorf("commit: %w", err)
	}
	if err := t.run(ctx, m); err != nil {
		return 0, fmt.Errorf("commit %s: %w", m.Describe(), err)
	}
	return m.Revision, nil
}

// deniedAtMost is how long a term waits for a right to write that it lacks: then a standby may have it. For space, or for a
// member to be replaced, it waits as long as it takes, for others would have to wait, too.
const deniedAtMost = 30 * time.Second

// termMachine is a machine of a term. Open reports whether a lost transaction may have landed or may still, Fenced that the
// term is over.
type termMachine interface {
	protocol.Machine
	Open() bool
	Fenced() error
}

// run drives a machine of the term. An error leaves the term as it was where nothing that was sent can land any more, and is
// final for it otherwise.
func (t *Term) run(ctx context.Context, m termMachine) error {
	if t.broken != nil {
		return t.broken
	}
	ctx, cancel := t.store.bound(ctx)
	defer cancel()
	over := fmt.Errorf("%w: term %d lost its lease", protocol.ErrFenced, t.number)
	ctx, stop := t.lease.limit(ctx, over) // a hanging request ends with the lease
	defer stop()

	var denied time.Time // since when the store says that this process has no right
	pause := newBackoff()
	for {
		if t.lease.ctx.Err() != nil && t.store.ctx.Err() == nil {
			return t.fail(over)
		}
		if ctx.Err() != nil {
			cause := context.Cause(ctx)
			if t.store.ctx.Err() != nil {
				cause = context.Cause(t.store.ctx)
			}
			if m.Open() {
				return t.fail(fmt.Errorf("%w, with a transaction whose fate is open", cause))
			}
			return cause
		}
		txn, more := m.Next()
		if !more {
			if err := m.Fenced(); err != nil {
				t.lease.over()
				return t.fail(err)
			}
			return nil
		}
		r, err := t.send(ctx, txn)
		_, read := txn.PlainRead()
		switch {
		case errors.Is(err, ErrReplaced):
			return t.fail(err)
		case err != nil && read: // it was retried for as long as possible
			return err
		case t.store.refused(err): // and did nothing; an earlier try may still land
			if refusal(err) != RefusedPermission {
				denied = time.Time{}
			} else if denied.IsZero() {
				denied = time.Now()
			} else if time.Since(denied) > deniedAtMost && !m.Open() {
				return err
			} else if time.Since(denied) > deniedAtMost {
				return t.fail(fmt.Errorf("%w, with a transaction whose fate is open", err))
			}
			if refusal(err) == RefusedBehind { // the answer is not believed, but something may have been written
				m.Lost()
			}
			_ = pause.Wait(ctx) // or return above
		case err != nil && definite(err) && !m.Open():
			return err
		case err != nil:
			t.store.log.Warn("no response to a control store transaction, resolving its outcome", "term", t.number, "error", err)
			m.Lost()
			fault.Crash(fault.CommitUncertain)
			_ = pause.Wait(ctx) // or return above
		default:
			m.Answered(r)
		}
	}
}

// send sends a transaction once, and a plain read until it is answered.
func (t *Term) send(ctx context.Context, txn protocol.Txn) (r protocol.Result, err error) {
	s := t.store
	one := func(ctx context.Context) error {
		r, err = s.send(ctx, txn)
		return err
	}
	if read, is := txn.PlainRead(); is {
		if err := s.try(ctx, s.opts.RequestTimeout, one); err != nil {
			return r, fmt.Errorf("read %q: %w", read.Key, err)
		}
		return r, nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.opts.RequestTimeout)
	defer cancel()
	return r, one(ctx)
}

// fail makes an error final for the term.
func (t *Term) fail(err error) error {
	t.broken = err
	return err
}

// Leader reads who coordinates and its term; nil and 0 when nobody does.
func (s *Store) Leader(ctx context.Context) (*wire.LeaderRecord, int64, error) {
	resp, err := s.get(ctx, s.keys.Leader())
	if err != nil || len(resp.Kvs) == 0 {
		return nil, 0, err
	}
	r, err := protocol.DecodeLeader(foundOne(resp.Kvs[0]))
	if err != nil {
		return nil, 0, fmt.Errorf("key %q: %w", resp.Kvs[0].Key, err)
	}
	return r, resp.Kvs[0].CreateRevision, nil
}

// WatchLeader tells who coordinates, and each change, until ctx ends: nil and 0 for nobody.
func (s *Store) WatchLeader(ctx context.Context, changed func(record *wire.LeaderRecord, term int64)) error {
	return s.follow(ctx, s.keys.Leader(), false, nil, func(keys map[string]*mvccpb.KeyValue, _ int64) {
		for _, kv := range keys {
			if r, err := protocol.DecodeLeader(foundOne(kv)); err == nil {
				changed(r, kv.CreateRevision)
				return
			} else {
				s.log.Error("cannot decode control store record", "key", string(kv.Key), "error", err)
			}
		}
		changed(nil, 0)
	})
}
