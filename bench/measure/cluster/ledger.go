package cluster

import (
	"context"
	"errors"
	"fmt"
	"path"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"basalt.dev/basalt/api/wire"
)

// ledger is what the control store's records say of claims, from a watch: when each was decided, when its victims were closed, and that no
// victim is taken by two. Times are those at which the watch showed a record.
type ledger struct {
	mu       sync.Mutex
	changed  chan struct{} // closed with the next record
	decided  map[string]time.Time
	standing map[string][]victim // by claimant
	taken    map[victim]string   // by whom
	closed   map[victim]time.Time
	problems []string
}

// victim is a gang under one attempt.
type victim struct {
	uid     string
	attempt uint64
}

// followClaims follows all reservations, until ctx ends.
func followClaims(ctx context.Context, wg *sync.WaitGroup, etcd *clientv3.Client, fail func(error)) (*ledger, error) {
	l := &ledger{changed: make(chan struct{}), standing: map[string][]victim{}}
	l.begin()
	events := etcd.Watch(ctx, reservations, clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	if r, open := <-events; !open || r.Err() != nil {
		return nil, fmt.Errorf("watch reservations: %w", errors.Join(r.Err(), ctx.Err()))
	}
	wg.Go(func() {
		for r := range events {
			if err := r.Err(); err != nil {
				fail(fmt.Errorf("watch reservations: %w", err))
				return
			}
			now := time.Now()
			for _, e := range r.Events {
				record := &wire.ReservationRecord{}
				if e.Type == clientv3.EventTypeDelete {
					record = nil
				} else if err := proto.Unmarshal(e.Kv.Value, record); err != nil {
					fail(fmt.Errorf("read reservation %s: %w", e.Kv.Key, err))
					return
				}
				l.take(now, path.Base(string(e.Kv.Key)), record)
			}
		}
	})
	return l, nil
}

const reservations = "reservations/"

// begin forgets what is over: a round begins.
func (l *ledger) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.decided, l.taken, l.closed, l.problems = map[string]time.Time{}, map[victim]string{}, map[victim]time.Time{}, nil
}

// take takes the next record of a gang, nil if it is deleted.
func (l *ledger) take(now time.Time, uid string, record *wire.ReservationRecord) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer func() {
		close(l.changed)
		l.changed = make(chan struct{})
	}()
	if record.GetState() == wire.ReservationState_RESERVATION_CLOSING {
		if v := (victim{uid, record.GetAttempt()}); l.closed[v].IsZero() {
			l.closed[v] = now
		}
	}
	claim := record.GetClaim()
	if claim == nil {
		for _, v := range l.standing[uid] { // granted, or dropped: then who is not closed is spared
			if l.closed[v].IsZero() {
				delete(l.taken, v)
			}
		}
		delete(l.standing, uid)
		return
	}
	if l.decided[uid].IsZero() {
		l.decided[uid] = now
	}
	var all []victim
	for _, w := range claim.GetVictims() {
		v := victim{w.GetGang().GetUid(), w.GetAttempt()}
		if by := l.taken[v]; by != "" && by != uid {
			l.problems = append(l.problems, fmt.Sprintf("gang %s, attempt %d, is a victim of %s and of %s", v.uid, v.attempt, by, uid))
		}
		l.taken[v] = uid
		all = append(all, v)
	}
	l.standing[uid] = all
}

// claims is how many claims stand.
func (l *ledger) claims() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.standing)
}

// allDecided waits until the claims of all these gangs were decided since the round began.
func (l *ledger) allDecided(ctx context.Context, uids []string) error {
	for {
		l.mu.Lock()
		n, changed := 0, l.changed
		for _, uid := range uids {
			if !l.decided[uid].IsZero() {
				n++
			}
		}
		l.mu.Unlock()
		if n == len(uids) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%d of %d claims were decided: %w", n, len(uids), context.Cause(ctx))
		}
	}
}

// tell writes down what the claims of a round's gangs came to, since a moment, and returns which victims were taken by two claims, whosoever.
func (l *ledger) tell(out *Round, since time.Time, uids []string) (problems []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := map[string]bool{}
	for _, uid := range uids {
		of[uid] = true
		if at := l.decided[uid]; !at.IsZero() {
			out.Decided.Record(at.Sub(since))
		}
	}
	for v, by := range l.taken {
		if !of[by] {
			continue
		}
		out.Victims++
		if at := l.closed[v]; !at.IsZero() {
			out.Closed.Record(at.Sub(since))
		}
	}
	return l.problems
}
