package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// An answer that shows another etcd cluster, or a revision that is lower than one seen before, means that the store was
// restored or exchanged: every process has to start over, and reservations are refilled. It may as well be the fault of one
// member or of one wrong route. So one such answer is not believed. All endpoints are asked, several times, over new
// connections, and the store is lost only when none of them answers as it should. Until that is known, no request is sent:
// nothing may be written to a store that was perhaps exchanged.
const (
	doubtRounds = 3 // in which at least one endpoint answered
	doubtPause  = 300 * time.Millisecond
	askTimeout  = 2 * time.Second
)

// errBehind says that an answer is not to be used. The request may be sent again.
var errBehind = errors.New("an answer of the control store is not believed")

type doubts struct {
	mu   sync.Mutex
	open chan struct{} // closed when the doubt is settled; nil: none
}

// check judges the header of an answer to a linearizable request; floor is the highest revision that was known when the
// request was sent. It returns errBehind or ErrReplaced for an answer that is not to be used.
func (s *Store) check(ctx context.Context, h *pb.ResponseHeader, floor int64) error {
	if id := s.cluster.Load(); id != 0 && h.GetClusterId() != id {
		return s.doubt(ctx, fmt.Sprintf("etcd cluster %x became %x", id, h.GetClusterId()), floor)
	}
	if h.GetRevision() < floor {
		return s.doubt(ctx, fmt.Sprintf("it is at revision %d, and was at %d", h.GetRevision(), floor), floor)
	}
	s.raise(h.GetRevision())
	return nil
}

// checkCluster judges the header of an answer that tells nothing about the revision.
func (s *Store) checkCluster(ctx context.Context, h *pb.ResponseHeader) error {
	if id := s.cluster.Load(); id != 0 && h.GetClusterId() != id {
		return s.doubt(ctx, fmt.Sprintf("etcd cluster %x became %x", id, h.GetClusterId()), s.highest.Load())
	}
	return nil
}

// doubt makes sure that the endpoints are being asked, and waits for the result or for ctx.
func (s *Store) doubt(ctx context.Context, why string, floor int64) error {
	d := &s.doubts
	d.mu.Lock()
	if d.open == nil && s.ctx.Err() == nil {
		open := make(chan struct{})
		d.open = open
		s.wg.Go(func() {
			s.askAll(why, floor)
			d.mu.Lock()
			d.open = nil
			d.mu.Unlock()
			close(open)
		})
	}
	d.mu.Unlock()
	if err := s.settled(ctx); err != nil {
		return err
	}
	return fmt.Errorf("%w: %s", errBehind, why)
}

// settled waits until there is no doubt about the store, or ctx ends.
func (s *Store) settled(ctx context.Context) error {
	d := &s.doubts
	d.mu.Lock()
	open := d.open
	d.mu.Unlock()
	if open != nil {
		select {
		case <-open:
		case <-ctx.Done():
		}
	}
	if cause := context.Cause(s.ctx); cause != nil {
		return cause
	}
	return ctx.Err()
}

// askAll asks all endpoints until one of them answers as it should, or doubtRounds were answered and none did.
func (s *Store) askAll(why string, floor int64) {
	var clients []*clientv3.Client
	for _, endpoint := range s.opts.Endpoints {
		c, err := clientv3.New(s.opts.config([]string{endpoint}))
		if err != nil {
			s.log.Warn("cannot verify a suspicious control store response at this endpoint", "endpoint", endpoint, "error", err)
			continue
		}
		defer c.Close()
		clients = append(clients, c)
	}
	for round := 0; s.ctx.Err() == nil; {
		headers := s.ask(clients)
		for _, h := range headers {
			if h.GetClusterId() == s.cluster.Load() && h.GetRevision() >= floor {
				s.raise(h.GetRevision())
				s.refused(fmt.Errorf("%w: %s; another answer is at revision %d", errBehind, why, h.GetRevision()))
				return
			}
		}
		if len(headers) > 0 {
			round++
		}
		if round == doubtRounds {
			s.renounce()
			_ = s.lose(why)
			return
		}
		select {
		case <-s.ctx.Done():
		case <-time.After(doubtPause):
		}
	}
}

// ask makes a linearizable read at each of the clients, and returns the headers of those that answer.
func (s *Store) ask(clients []*clientv3.Client) (answers []*pb.ResponseHeader) {
	ctx, cancel := context.WithTimeout(s.ctx, askTimeout)
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, c := range clients {
		wg.Go(func() {
			resp, err := c.Get(ctx, s.keys.Identity(), clientv3.WithKeysOnly())
			if err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			answers = append(answers, resp.Header)
		})
	}
	wg.Wait()
	return answers
}
