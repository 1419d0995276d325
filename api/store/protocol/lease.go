package protocol

import (
	"errors"
	"fmt"
	"time"
)

// Why a lease is over for its holder.
var (
	errLeaseGone        = errors.New("the store has ended the lease")
	errLeaseUnconfirmed = errors.New("the lease was not confirmed in time")
)

// Lease is what its holder knows of a lease. The holder sends a request to keep it alive every Every, and reports to Kept what
// became of each.
//
// The lease of a session is over when the store says so, and only then: a store that is away for a while ends nothing, for
// safety rests on compares, and a fleet that restarts because its store was away is a storm. The lease of a term is strict: it
// is over, too, when it was not confirmed for as long as it lasts, so that no leader goes on that others have replaced.
type Lease struct {
	id        int64
	ttl       time.Duration
	strict    bool
	confirmed time.Time // when the newest request was sent that the store answered
}

// KeepAlive is what became of a request to keep a lease alive.
type KeepAlive uint8

// What can become of it.
const (
	Unanswered KeepAlive = iota
	KeptAlive
	LeaseOver // the store does not have the lease any more
)

// ID returns the store's name of the lease.
func (l *Lease) ID() int64 { return l.id }

// Every returns how long the holder waits before a request to keep the lease alive, and for its answer.
func (l *Lease) Every() time.Duration { return l.ttl / 3 }

// Kept notes what became of a request that was sent at asked. It returns why the lease is over, nil while it is not.
func (l *Lease) Kept(asked, now time.Time, answer KeepAlive) error {
	switch {
	case answer == LeaseOver:
		return errLeaseGone
	case answer == KeptAlive:
		l.confirmed = asked
	case l.strict && now.Sub(l.confirmed) >= l.ttl:
		return fmt.Errorf("%w: %s", errLeaseUnconfirmed, l.ttl)
	}
	return nil
}
