package coordinator

import (
	"fmt"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

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
	g := c.roster.at(r.GetGang())
	g.attempt = r.GetAttempt()
	c.roster.admit(g, c.tree.at(g.key.queue))
	g.res.attempt, g.res.rank, g.res.forced = r.GetAttempt(), wire.ToRank(r.GetRank()), r.GetForced()
	g.res.closing = r.GetState() == wire.ReservationState_RESERVATION_CLOSING
	g.res.started, g.res.revision = r.GetStarted(), s.Revision
	g.res.granted, g.res.preemptible, g.res.kept, g.res.awaits, g.res.within = r.GetGrantedUnixMs(), r.GetPreemptible(), r.GetKept(), r.GetAwaits(), r.GetWithin()
	g.res.who = whoSaid(r.GetUser(), r.GetGroups())
	c.roster.limit(g.res, max(0, r.GetRunsMs()))
	c.ledger.charge(g, demand)
	if err := c.loadSurplus(g, r); err != nil {
		c.log(LevelError, "part of a reservation ignored", "key", s.Key, "error", err)
	}
	c.yields(g, r.GetYields())
	pods, err := g.podSet(r.GetPods())
	if err == nil && len(c.roster.elsewhere(g, pods)) > 0 {
		err = fmt.Errorf("pods: some are named by another reservation")
	}
	if err != nil {
		c.log(LevelWarn, "reservation with an invalid set of pods", "key", s.Key, "error", err)
	}
	c.roster.name(g, pods)
	return true
}

// release takes the reservation away.
func (c *Core) release(g *gang) {
	for _, path := range c.roster.release(g) {
		c.due[path], c.finalizers[path] = true, true
	}
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
	c.roster.chargedFor(now, reservationFor(c, b, r), r)
	if len(c.waits) < waitsAtMost {
		c.waits = append(c.waits, now.Sub(r.arrived))
	}
	c.withdraw(r)
	c.ledger.charge(g, r.demand)
	c.roster.name(g, r.pods)
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
func (o *roster) chargedFor(now time.Time, r *reservation, q *request) {
	r.follow(q)
	r.least = q.least
	if r.granted == 0 {
		r.granted = now.UnixMilli()
		o.limit(r, q.runs)
	}
}

// sendGranted answers now when the record is in the store, otherwise once it is.
func (c *Core) sendGranted(now time.Time, b *batch, to api.Incarnation, g *gang) {
	body := &wire.Envelope{Body: &wire.Envelope_Granted{Granted: &wire.Granted{
		GangUid: g.key.uid, Attempt: g.res.attempt, Serial: g.serial, ReservationRevision: g.res.revision,
		Demand: wire.FromResources(uncounted(g.res.demand)), Rank: wire.FromRank(g.res.rank),
		Patient: c.patience.allows(now, g)}}}
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
		Gang: g.ref, Attempt: r.attempt, Demand: wire.FromResources(uncounted(r.demand)), Rank: wire.FromRank(r.rank),
		State: state, Term: uint64(c.term), Forced: r.forced, Started: r.started, GrantedUnixMs: r.granted, Preemptible: r.preemptible, Kept: r.kept,
		Claim: r.claimRecord(), Awaits: r.awaits, Within: r.within, Yields: r.yields, Least: uint32(r.least),
		Condemned: writeSurplus(r.condemned), Shrinks: r.shrinks, Most: wire.FromResources(uncounted(r.most)), RunsMs: r.runs}
	record.User, record.Groups = r.who.said()
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
	c.mandates.end(g)
	c.roster.bury(now, g)
}

// reservationFor returns the reservation of the gang that asks, which it gets if it has none.
func reservationFor(c *Core, b *batch, r *request) *reservation {
	if g := r.gang; g.res == nil {
		c.roster.admit(g, r.queue)
		g.res.rank, g.res.who = r.firstRank(b.id), r.who
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

// namedElsewhere is how many pods a Denied names that are charged to other gangs. Who lets go of these is told of more.
const namedElsewhere = 1000

// refuseElsewhere answers for a gang with pods that are charged to other gangs. Its home asks again.
func (c *Core) refuseElsewhere(now time.Time, from api.Incarnation, g *gang, others, pods []uint64) {
	refuseWith(c, now, from, g, &wire.Denied{Reason: wire.DenyReason_DENY_CHARGED_ELSEWHERE,
		Message:   fmt.Sprintf("pods that are charged to other gangs: %d of %d", len(others), len(pods)),
		Elsewhere: others[:min(len(others), namedElsewhere)]})
}

// refuse denies a gang what it asks for without keeping the request. What it is charged already stays.
func (c *Core) refuse(now time.Time, from api.Incarnation, g *gang, reason wire.DenyReason, message string) {
	refuseWith(c, now, from, g, &wire.Denied{Reason: reason, Message: message})
}

func refuseWith(c *Core, now time.Time, from api.Incarnation, g *gang, denied *wire.Denied) {
	if g.req != nil {
		c.withdraw(g.req)
	}
	g.refused = true
	denied.GangUid, denied.Attempt, denied.Serial, denied.Queue = g.key.uid, g.attempt, g.serial, g.key.queue
	denied.ReservationRevision, denied.Demand = g.charged()
	c.send(from, &wire.Envelope{Body: &wire.Envelope_Denied{Denied: denied}})
	c.forget(now, g)
}
