package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"basalt.dev/basalt/api/store/protocol"
)

// lease is a lease that is kept alive until it is over. etcd's own client ends each lease by the local clock, after a TTL without
// an answer; here protocol.Lease decides.
type lease struct {
	store *Store
	*protocol.Lease
	ctx  context.Context // ends with the lease
	over context.CancelFunc
}

// acquire runs a machine that makes a key of this process's own, and returns its lease. It keeps no lease when it fails.
func (s *Store) acquire(ctx context.Context, m *protocol.Acquire, ttl time.Duration) (*lease, error) {
	var l *lease
	pause := newBackoff()
	for {
		switch m.Step() {
		case protocol.AwaitAbsent:
			if err := s.awaitGone(ctx, m.Key()); err != nil {
				return nil, err
			}
			m.Absent()
		case protocol.GrantLease:
			if l != nil { // one that ran out before its first use
				l.over()
				if ctx.Err() != nil {
					return nil, context.Cause(ctx)
				}
			}
			id, granted, asked, err := s.grant(ctx, ttl)
			if err != nil {
				return nil, err
			}
			l = s.keepAlive(m.Granted(id, granted, asked))
		case protocol.CreateKey:
			err := s.run(ctx, m.Create())
			if err != nil {
				err = fmt.Errorf("create %q: %w", m.Key(), err)
			}
			m.Created(err, err != nil && (definite(err) || ctx.Err() != nil || s.ctx.Err() != nil))
		case protocol.RevokeLease:
			within, cancel := context.WithTimeout(s.ctx, ttl)
			_ = l.revoke(within)
			cancel()
			l = nil
			m.Revoked()
		case protocol.WaitAgain:
			if !pause.Wait(ctx) {
				return nil, context.Cause(ctx)
			}
			m.Waited()
		case protocol.Acquired:
			return l, nil
		default:
			if l != nil {
				l.over()
			}
			return nil, m.Err()
		}
	}
}

// grant makes a lease, and returns when the request was sent that made it.
func (s *Store) grant(ctx context.Context, wanted time.Duration) (id int64, ttl time.Duration, asked time.Time, err error) {
	seconds := int64((wanted + time.Second - 1) / time.Second)
	err = s.try(ctx, s.opts.RequestTimeout, func(ctx context.Context) error {
		asked = time.Now()
		resp, err := s.client.Grant(ctx, seconds) // granted twice, the forgotten one runs out
		if err != nil {
			return err
		}
		id, ttl = int64(resp.ID), time.Duration(resp.TTL)*time.Second
		return s.checkCluster(ctx, resp.ResponseHeader)
	})
	if err != nil {
		return 0, 0, asked, fmt.Errorf("grant lease: %w", err)
	}
	return id, ttl, asked, nil
}

// keepAlive keeps a lease until it is over.
func (s *Store) keepAlive(own *protocol.Lease) *lease {
	l := &lease{store: s, Lease: own}
	l.ctx, l.over = context.WithCancel(s.ctx)
	s.wg.Go(func() {
		defer l.over()
		l.keep()
	})
	return l
}

// limit ends a context with the lease, for that cause.
func (l *lease) limit(ctx context.Context, cause error) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(l.ctx, func() { cancel(cause) })
	return ctx, func() { stop(); cancel(nil) }
}

// keep returns when the lease is over.
func (l *lease) keep() {
	remote := pb.NewLeaseClient(l.store.client.ActiveConnection())
	tick := time.NewTicker(l.Every())
	defer tick.Stop()
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-tick.C:
		}
		asked := time.Now()
		within, cancel := context.WithTimeout(l.ctx, l.Every())
		answer, err := l.beat(within, remote)
		cancel()
		if over := l.Kept(asked, time.Now(), answer); over != nil {
			if l.ctx.Err() == nil {
				l.store.log.Warn("a lease of the control store is over", "lease", l.ID(), "reason", over, "error", err)
			}
			return
		}
	}
}

// beat sends one request to keep the lease alive. A store that was replaced does not have the lease.
func (l *lease) beat(ctx context.Context, remote pb.LeaseClient) (protocol.KeepAlive, error) {
	stream, err := remote.LeaseKeepAlive(clientv3.WithRequireLeader(ctx))
	if err != nil {
		return protocol.Unanswered, err
	}
	if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: l.ID()}); err != nil {
		return protocol.Unanswered, err
	}
	resp, err := stream.Recv()
	if err != nil {
		return protocol.Unanswered, err
	}
	_ = stream.CloseSend()
	if err := l.store.checkCluster(ctx, resp.Header); err != nil {
		if errors.Is(err, ErrReplaced) {
			return protocol.LeaseOver, err
		}
		return protocol.Unanswered, err
	}
	if resp.TTL <= 0 {
		return protocol.LeaseOver, nil
	}
	return protocol.KeptAlive, nil
}

// revoke gives the lease back, with all keys under it.
func (l *lease) revoke(ctx context.Context) error {
	l.over()
	err := l.store.try(ctx, l.store.opts.RequestTimeout, func(ctx context.Context) error {
		_, err := l.store.client.Revoke(ctx, clientv3.LeaseID(l.ID()))
		return err
	})
	if err != nil && !leaseGone(err) && !errors.Is(err, ErrReplaced) {
		return fmt.Errorf("revoke lease: %w", err)
	}
	return nil
}
