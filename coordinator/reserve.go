package coordinator

import (
	"fmt"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

// tombstone remembers the last serial of a gang that has nothing left, so that a late duplicate of its Reserve does not charge it
// again. A home's stream is in order, so this is needed only around a broken connection.
type tombstone struct {
	key    gangKey
	number uint64
	until  time.Time
}

const tombstoneTTL = time.Minute

// loadReservation charges what a record says, and reports whether it could be read.
func (c *Core) loadReservation(s StoredReservation) bool {
	r := s.Record
	demand, err := wire.ToResources(r.GetDemand())
	if err == nil {
		err = sound(demand)
	}
	switch {
	case r == nil:
		err = fmt.Errorf("not readable")
	case err != nil:
	case r.GetGang().GetUid() == "":
		err = fmt.Errorf("gang.uid is empty")
	default:
		err = api.ValidatePath(r.GetGang().GetQueue())
	}
	if err != nil {
		c.log(LevelError, "reservation ignored", "key", s.Key, "error", err)
		return false
	}
	g := c.gang(r.GetGang())
	g.attempt = r.GetAttempt()
	c.admit(g, c.tree.at(g.key.queue))
	g.res.attempt, g.res.rank, g.res.forced = r.GetAttempt(), wire.ToRank(r.GetRank()), r.GetForced()
	g.res.closing = r.GetState() == wire.ReservationState_RESERVATION_CLOSING
	g.res.started, g.res.revision = r.GetStarted(), s.Revision
	g.res.granted, g.res.preemptible, g.res.kept, g.res.awaits, g.res.within = r.GetGrantedUnixMs(), r.GetPreemptible(), r.GetKept(), r.GetAwaits(), r.GetWithin()
	c.ledger.charge(g, demand)
	if err := c.loadSurplus(g, r); err != nil {
		c.log(LevelError, "part of a reservation ignored", "key", s.Key, "error", err)
	}
	c.yields(g, r.GetYields())
	pods, err := g.podSet(r.GetPods())
	if err == nil && c.elsewhere(g, pods) > 0 {
		err = fmt.Errorf("pods: some are named by another reservation")
	}
	if err != nil {
		c.log(LevelWarn, "reservation with an invalid set of pods", "key", s.Key, "error", err)
	}
	c.name(g, pods)
	return true
}

// gang returns the gang of a reference, made if need be.
func (c *Core) gang(ref *wire.GangRef) *gang {
	key := gangKey{ref.GetQueue(), ref.GetUid()}
	g := c.gangs[key]
	if g == nil {
		g = &gang{key: key, ref: ref}
		c.gangs[key] = g
	}
	return g
}

// admit gives the gang an empty reservation.
func (c *Core) admit(g *gang, q *queue) {
	g.res = &reservation{queue: q, tenant: q.join(g.ref.GetNamespace())}
	q.admits(g)
	c.open++
	if c.charged[g.key.uid] == nil {
		c.charged[g.key.uid] = g
	}
}

// release takes the reservation away.
func (c *Core) release(g *gang) {
	if g.res.claim != nil {
		c.ledger.endClaim(g.res.claim)
	}
	c.ledger.charge(g, nil)
	c.name(g, nil)
	q := g.res.queue
	for _, path := range q.releases(g) {
		c.due[path], c.finalizers[path] = true, true
	}
	g.res = nil
	c.open--
	if c.charged[g.key.uid] == g {
		delete(c.charged, g.key.uid)
	}
	c.tree.prune(q)
}

// refuseMoved answers for a gang whose queue was changed while its pods are charged to another: each pod is charged once.
// Its home asks again.
func (c *Core) refuseMoved(now time.Time, from api.Incarnation, g, charged *gang) {
	c.send(from, &wire.Envelope{Body: &wire.Envelope_Denied{Denied: &wire.Denied{
		GangUid: g.key.uid, Attempt: g.attempt, Serial: g.serial, Reason: wire.DenyReason_DENY_CLOSING, Queue: g.key.queue,
		Message: fmt.Sprintf("its pods are still charged to queue %q", charged.key.queue)}}})
	c.forget(now, g)
}

// forces reports whether some of demand is bound and not charged yet.
func forces(charged, demand, bound api.Resources) bool {
	for _, a := range bound {
		if min(a.Value, demand.Value(a.Resource)) > charged.Value(a.Resource) {
			return true
		}
	}
	return false
}

// grant charges a request whole.
func (c *Core) grant(now time.Time, b *batch, r *request) {
	g := r.gang
	reservationFor(c, b, r).chargedFor(now, r)
	if len(c.waits) < waitsAtMost {
		c.waits = append(c.waits, now.Sub(r.arrived))
	}
	c.withdraw(r)
	c.ledger.charge(g, r.demand)
	c.name(g, r.pods)
	c.put(b, g)
	c.sendGranted(now, b, r.from, g)
	if t := r.trace; len(t.GetTraceId()) == 16 && len(t.GetSpanId()) == 8 {
		s := api.Span{Name: "coordinator.reserve", Start: r.arrived, End: now,
			SpanID:     api.SpanIDOf("coordinator.reserve", g.key.uid, fmt.Sprint(r.serial)),
			Attributes: []api.Attribute{{Key: "queue", Value: g.key.queue}}}
		copy(s.TraceID[:], t.GetTraceId())
		copy(s.ParentID[:], t.GetSpanId())
		b.traces = append(b.traces, Trace{Span: s})
	}
}

// follow takes what a request says of the gang. How many pods it needs follows with the charge.
func (r *reservation) follow(q *request) {
	r.attempt, r.started, r.preemptible, r.kept = q.attempt, q.started, q.preemptible, q.kept
}

// chargedFor takes what a request says of the gang that is charged for it, and when that was first so.
func (r *reservation) chargedFor(now time.Time, q *request) {
	r.follow(q)
	r.least = q.least
	if r.granted == 0 {
		r.granted = now.UnixMilli()
	}
}

// sendGranted answers now when the record is in the store, otherwise once it is.
func (c *Core) sendGranted(now time.Time, b *batch, to api.Incarnation, g *gang) {
	body := &wire.Envelope{Body: &wire.Envelope_Granted{Granted: &wire.Granted{
		GangUid: g.key.uid, Attempt: g.res.attempt, Serial: g.serial, ReservationRevision: g.res.revision,
		Demand: wire.FromResources(g.res.demand), Rank: wire.FromRank(g.res.rank), Patient: c.mayBePatient(now, g)}}}
	if g.res.revision != 0 {
		c.send(to, body)
	} else {
		b.replies = append(b.replies, reply{to, body})
	}
}

// put writes the gang's record.
func (c *Core) put(b *batch, g *gang) {
	r := g.res
	c.ledger.setForced(g, r.forced && c.tree.exceeds(r.queue, r.demand))
	r.revision = 0
	state := wire.ReservationState_RESERVATION_OPEN
	if r.closing {
		state = wire.ReservationState_RESERVATION_CLOSING
	}
	g.batch = b.id
	b.puts = append(b.puts, g)
	record := &wire.ReservationRecord{
		Gang: g.ref, Attempt: r.attempt, Demand: wire.FromResources(r.demand), Rank: wire.FromRank(r.rank),
		State: state, Term: uint64(c.term), Forced: r.forced, Started: r.started, GrantedUnixMs: r.granted, Preemptible: r.preemptible, Kept: r.kept,
		Claim: r.claimRecord(), Awaits: r.awaits, Within: r.within, Yields: r.yields, Least: uint32(r.least),
		Condemned: writeSurplus(r.condemned), Shrinks: r.shrinks, Most: wire.FromResources(r.most)}
	if !g.ref.GetSingle() {
		record.Pods = r.pods
	}
	b.add(PutReservation{Record: record}, c.recordBytes(g))
}

// forget leaves a tombstone for a gang that has nothing left.
func (c *Core) forget(now time.Time, g *gang) {
	if g.res != nil || g.req != nil {
		return
	}
	c.endMandate(g)
	g.tombstone++
	c.tombstones = append(c.tombstones, tombstone{g.key, g.tombstone, now.Add(tombstoneTTL)})
}

func (c *Core) expireTombstones(now time.Time) {
	n := 0
	for ; n < len(c.tombstones) && !now.Before(c.tombstones[n].until); n++ {
		v := c.tombstones[n]
		if g := c.gangs[v.key]; g != nil && g.tombstone == v.number && g.res == nil && g.req == nil {
			delete(c.gangs, v.key)
		}
	}
	c.tombstones = c.tombstones[n:]
}

// sender reports whether the table names the sender of a request for the bucket of the gang's queue, since before the
// epoch under which it asks.
func (c *Core) sender(m Message) (gangKey, bool) {
	var ref *wire.GangRef
	var epoch uint64
	switch body := m.Body.GetBody().(type) {
	case *wire.Envelope_Reserve:
		ref, epoch = body.Reserve.GetGang(), body.Reserve.GetTableEpoch()
	case *wire.Envelope_Unreserve:
		ref, epoch = body.Unreserve.GetGang(), body.Unreserve.GetTableEpoch()
	case *wire.Envelope_Close:
		ref, epoch = body.Close.GetGang(), body.Close.GetTableEpoch()
	case *wire.Envelope_Claim:
		ref, epoch = body.Claim.GetGang(), body.Claim.GetTableEpoch()
	case *wire.Envelope_Condemn:
		ref, epoch = body.Condemn.GetGang(), body.Condemn.GetTableEpoch()
	case *wire.Envelope_Stuck:
		ref, epoch = body.Stuck.GetGang(), body.Stuck.GetTableEpoch()
	}
	if c.owners.Table() == nil || ref.GetUid() == "" || ref.GetQueue() == "" {
		return gangKey{}, false
	}
	bucket := api.BucketOf(ref.GetQueue())
	owns := c.owners.Table().Owner(bucket) == m.From && api.Epoch(epoch) >= c.owners.Table().Changed[bucket]
	return gangKey{ref.GetQueue(), ref.GetUid()}, owns
}

// reservationFor returns the reservation of the gang that asks, which it gets if it has none.
func reservationFor(c *Core, b *batch, r *request) *reservation {
	if g := r.gang; g.res == nil {
		c.admit(g, r.queue)
		g.res.rank = r.firstRank(b.id)
	}
	return r.gang.res
}

// firstRank is the rank of a gang's new reservation: the one of its earlier attempts, if there were any.
func (r *request) firstRank(transaction uint64) api.Rank {
	rank := r.rank
	if rank.Order == 0 {
		rank = api.Rank{Priority: r.priority, Order: transaction}
	}
	rank.Gang = r.gang.key.uid
	return rank
}
