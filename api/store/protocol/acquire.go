package protocol

import (
	"errors"
	"fmt"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

// Acquire makes a process's own key under a lease: the leader key of a coordinator (NewCampaign) or shards/<itself> of a shard
// (NewRegistration). Step says what to do next, and each step has a method that reports what became of it. The lease is kept
// alive by the runner from the moment it is granted, until it is over or given back.
//
// A campaign is granted its lease only after the leader key was seen absent, so the lease cannot run out while the campaign
// waits, which is how one can end without leadership.
type Acquire struct {
	keys        Keys
	campaign    bool
	incarnation api.Incarnation
	key         string
	value       Value

	step   AcquireStep
	lease  *Lease
	create *Create
	slow   bool // wait before the next try
	err    error
}

// AcquireStep is what an Acquire needs done.
type AcquireStep uint8

// Steps of an Acquire.
const (
	AwaitAbsent AcquireStep = iota + 1 // wait until Key is absent, then Absent
	GrantLease                         // then Granted
	CreateKey                          // run Create, then Created
	RevokeLease                        // give the lease back, for which one try is enough, then Revoked
	WaitAgain                          // back off, then Waited
	Acquired                           // done: Term or Session
	NotAcquired                        // done: Err
)

// ErrRegistered says that another process has registered the same incarnation.
var ErrRegistered = errors.New("this incarnation is registered already")

// NewCampaign begins an Acquire that waits until nobody leads, and then leads. Of several that wait, one wins.
func NewCampaign(k Keys, record *wire.LeaderRecord) (*Acquire, error) {
	value, err := Encode(k.Leader(), record)
	return &Acquire{keys: k, campaign: true, key: k.Leader(), value: value, step: AwaitAbsent}, err
}

// NewRegistration begins an Acquire that registers a shard.
func NewRegistration(k Keys, record *wire.ShardRecord) (*Acquire, error) {
	if record.GetIncarnation() == "" {
		return nil, errors.New("no incarnation")
	}
	who := api.Incarnation(record.Incarnation)
	value, err := Encode(k.Shard(who), record)
	return &Acquire{keys: k, incarnation: who, key: k.Shard(who), value: value, step: GrantLease}, err
}

// Step returns what is to be done now.
func (m *Acquire) Step() AcquireStep { return m.step }

// Key is the key that is made.
func (m *Acquire) Key() string { return m.key }

// Absent reports that the key was absent a moment ago.
func (m *Acquire) Absent() { m.step = GrantLease }

// Granted reports that a lease was granted on a request that was sent at asked, and returns what its holder has to know.
func (m *Acquire) Granted(id int64, ttl time.Duration, asked time.Time) *Lease {
	m.lease = &Lease{id: id, ttl: ttl, strict: m.campaign, confirmed: asked}
	m.create, m.step = NewCreate(m.key, m.value, id), CreateKey
	return m.lease
}

// Create returns the machine that creates the key.
func (m *Acquire) Create() *Create { return m.create }

// Created reports that the machine of Create is done, or that it was given up with an error; final says that there is no use
// in trying again.
func (m *Acquire) Created(err error, final bool) {
	c := m.create
	switch {
	case err == nil && c.Revision > 0:
		m.step = Acquired
	case m.campaign:
		// Another was faster, or the fate of our try is open: without its lease it cannot land, or will not stay.
		m.step, m.slow = RevokeLease, err != nil || c.LeaseGone
		if final {
			m.err = err
		}
	case err != nil:
		m.step, m.err = NotAcquired, err
	case c.LeaseGone: // it ran out before its first use
		m.step = GrantLease
	default:
		m.step, m.err = NotAcquired, fmt.Errorf("%w: %s", ErrRegistered, m.incarnation)
	}
}

// Revoked reports that the lease was given back, or that the try failed.
func (m *Acquire) Revoked() {
	switch {
	case m.err != nil:
		m.step = NotAcquired
	case m.slow:
		m.step = WaitAgain
	default:
		m.step = AwaitAbsent
	}
}

// Waited reports that the backoff is over.
func (m *Acquire) Waited() { m.step = AwaitAbsent }

// Err returns why the key was not acquired.
func (m *Acquire) Err() error { return m.err }

// Lease returns the lease that was granted last.
func (m *Acquire) Lease() *Lease { return m.lease }

// Term returns the term of a campaign that was won.
func (m *Acquire) Term() *Term { return NewTerm(m.keys, m.create.Revision) }

// Session returns the session of a shard that was registered.
func (m *Acquire) Session() *Session {
	return NewSession(m.keys, m.incarnation, m.lease.id, m.create.Revision, m.value)
}
