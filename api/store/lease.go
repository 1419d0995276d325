package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// lease is a lease that is kept alive until etcd says that it is over. etcd's own client ends a lease by the local clock
// after a TTL without an answer; here an etcd that is away for a while ends nothing, for safety rests on compares, and a
// fleet that restarts because its store was away is a storm. With strict, the local clock ends it too.
type lease struct {
	store *Store
	id    clientv3.LeaseID
	ttl   time.Duration
	ctx   context.Context // ends with the lease
	over  context.CancelFunc
}

// grant makes a lease and keeps it.
func (s *Store) grant(ctx context.Context, ttl time.Duration, strict bool) (*lease, error) {
	seconds := int64((ttl + time.Second - 1) / time.Second)
	l := &lease{store: s}
	var asked time.Time
	err := s.try(ctx, s.opts.RequestTimeout, func(ctx context.Context) error {
		asked = time.Now()
		resp, err := s.client.Grant(ctx, seconds) // granted twice, the forgotten one runs out
		if err != nil {
			return err
		}
		l.id, l.ttl = resp.ID, time.Duration(resp.TTL)*time.Second
		return s.checkCluster(ctx, resp.ResponseHeader)
	})
	if err != nil {
		return nil, fmt.Errorf("grant lease: %w", err)
	}
	l.ctx, l.over = context.WithCancel(s.ctx)
	s.wg.Go(func() {
		defer l.over()
		l.keep(asked, strict)
	})
	return l, nil
}

// limit ends a context with the lease, for that cause.
func (l *lease) limit(ctx context.Context, cause error) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(l.ctx, func() { cancel(cause) })
	return ctx, func() { stop(); cancel(nil) }
}

// keep returns when the lease is over.
func (l *lease) keep(confirmed time.Time, strict bool) {
	remote := pb.NewLeaseClient(l.store.client.ActiveConnection())
	every := l.ttl / 3
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-tick.C:
		}
		asked := time.Now()
		within, cancel := context.WithTimeout(l.ctx, every)
		over, err := l.beat(within, remote)
		cancel()
		switch {
		case over:
			return
		case err == nil:
			confirmed = asked
		case strict && time.Since(confirmed) >= l.ttl:
			l.store.log.Warn("control store did not confirm the lease in time", "ttl", l.ttl, "error", err)
			return
		}
	}
}

func (l *lease) beat(ctx context.Context, remote pb.LeaseClient) (over bool, err error) {
	stream, err := remote.LeaseKeepAlive(clientv3.WithRequireLeader(ctx))
	if err != nil {
		return false, err
	}
	if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(l.id)}); err != nil {
		return false, err
	}
	resp, err := stream.Recv()
	if err != nil {
		return false, err
	}
	_ = stream.CloseSend()
	if err := l.store.checkCluster(ctx, resp.Header); err != nil {
		return errors.Is(err, ErrReplaced), err
	}
	return resp.TTL <= 0, nil
}

// revoke gives the lease back, with all keys under it.
func (l *lease) revoke(ctx context.Context) error {
	l.over()
	err := l.store.try(ctx, l.store.opts.RequestTimeout, func(ctx context.Context) error {
		_, err := l.store.client.Revoke(ctx, l.id)
		return err
	})
	if err != nil && !leaseGone(err) && !errors.Is(err, ErrReplaced) {
		return fmt.Errorf("revoke lease: %w", err)
	}
	return nil
}
