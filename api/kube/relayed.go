package kube

import (
	"errors"
	"math/rand/v2"
	"strconv"
	"time"
)

// When a watch is taken from another shard.

// relayed is when a follower asks its relay: at once, and after a failure again and again, less and less often; after
// TooOld when it has come far enough by itself.
type relayed struct {
	relay   Relay
	next    time.Time // not before
	pause   time.Duration
	waits   bool // until the version is at least oldest
	oldest  uint64
	hurried bool
}

func newRelayed(r Relay) *relayed { return &relayed{relay: r, pause: relayShortest} }

// due reports whether the relay is to be asked for a version.
func (r *relayed) due(version string) bool {
	if r.relay == nil {
		return false
	}
	v, err := strconv.ParseUint(version, 10, 64)
	return err == nil && (r.waits && v >= r.oldest || !time.Now().Before(r.next))
}

// watch returns what tells that it may be due.
func (r *relayed) watch() (changed <-chan struct{}, again *time.Timer) {
	if r.relay == nil {
		again = time.NewTimer(0)
		again.Stop()
		return nil, again
	}
	return r.relay.Changed(), time.NewTimer(time.Until(r.next))
}

func (r *relayed) failed(err error) {
	old, tooOld := errors.AsType[TooOld](err)
	r.waits, r.oldest, r.hurried = tooOld, old.Oldest, false
	if tooOld {
		r.next = time.Now().Add(90 * time.Second)
		return
	}
	r.next = time.Now().Add(r.pause/2 + rand.N(r.pause))
	r.pause = min(2*r.pause, relayLongest)
}

// hurry reports whether the next watch is to be a short one. An API server says how far a watch has come once a
// minute and shortly before the watch is over: of a kind that nothing happens to nothing else would say it.
func (r *relayed) hurry() bool {
	if !r.waits || r.hurried {
		return false
	}
	r.hurried = true
	return true
}

func (r *relayed) reset() { r.next, r.pause, r.waits = time.Time{}, relayShortest, false }
