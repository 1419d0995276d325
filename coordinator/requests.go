package coordinator

import (
	"slices"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/api/wire"
)

// What homes ask: their messages in the order in which they came, and what can be answered without waiting.

// changeReservations fills the transaction with what the inbox asks for and with grants.
func (c *Core) changeReservations(now time.Time, b *batch) {
	c.tree.recompute()
	most := c.cfg.BatchOps
	if len(c.turns.leaves)+len(c.turns.freed)+len(c.postponed) > 0 || c.turns.next() != nil {
		most -= most / 4 // releases and resizes do not starve those who wait
	}
	bytes := c.cfg.BatchBytes
	if most < c.cfg.BatchOps {
		bytes -= bytes / 4
	}
	if c.crowded {
		most = 0
	}
	c.forceEntitled(now, b, most, bytes)
	taken := 0
	var later []Message
	var put map[gangKey]bool // gangs with a message left for later: their order is kept
	for _, m := range c.inbox {
		if len(b.ops) >= most {
			break
		}
		key, ok := c.sender(m)
		if ok && !b.fits(c.requestBytes(key, m.Body), bytes) {
			break
		}
		taken++
		if !ok {
			continue
		}
		g := c.roster.gangs[key]
		if x := c.changes(g, m.Body.GetReserve()); x != nil && !put[key] && g.batch != b.id {
			c.dropClaim(now, b, x, "it asks for something else")
			// and the rest with the next transaction: the store takes a key once
		}
		if put[key] || g != nil && g.batch == b.id {
			if put == nil {
				put = map[gangKey]bool{}
			}
			put[key] = true
			later = append(later, m)
			continue
		}
		switch body := m.Body.GetBody().(type) {
		case *wire.Envelope_Reserve:
			c.reserve(now, b, m.From, body.Reserve)
		case *wire.Envelope_Unreserve:
			c.unreserve(now, b, m.From, body.Unreserve)
		case *wire.Envelope_Close:
			c.close(now, b, m.From, body.Close)
		case *wire.Envelope_Claim:
			c.claim(now, b, m.From, body.Claim)
		case *wire.Envelope_Condemn:
			c.condemn(now, b, m.From, body.Condemn)
		}
	}
	c.inbox, c.asked = append(later, c.inbox[taken:]...), 0
	c.advanceClaims(now, b)
	c.offer(now, b)
}

// changes returns the gang's claim if a Reserve asks for something else than that is for, nil otherwise.
func (c *Core) changes(g *gang, m *wire.Reserve) *claim {
	if m == nil || g == nil || g.res == nil || g.res.claim == nil || m.GetTerm() != 0 && m.GetTerm() != c.term ||
		m.GetSerial() <= g.serial || m.GetAttempt() < g.attempt {
		return nil
	}
	demand, err := wire.ToResources(m.GetDemand())
	promised := c.tree.counted(demand).Sub(g.res.demand).Equal(g.res.claim.promised)
	if err != nil || !m.GetVain() && g.res.attempt == m.GetAttempt() && promised {
		return nil
	}
	return g.res.claim
}

// accepting is a Reserve that is being answered. It is refused at once where no waiting would help; granted at once if
// the gang asks for no more than it is charged; and else it waits for its turn.
type accepting struct {
	*Core
	now  time.Time
	b    *batch
	from api.Incarnation
	m    *wire.Reserve
	g    *gang

	demand, bound api.Resources
	current       api.Resources // what the gang is charged
	pods          []uint64
	shrunk        bool // its record has to be written: pods that a claim took are gone, or it is opened again
}

// reserve answers a Reserve, or has the answer wait.
func (c *Core) reserve(now time.Time, b *batch, from api.Incarnation, m *wire.Reserve) {
	if m.GetTerm() != 0 && m.GetTerm() != c.term {
		return // late: what followed it in its term is not known here, and all that is open is said again in this one
	}
	g := c.roster.at(m.GetGang())
	switch {
	case (m.GetSerial() < g.serial || m.GetAttempt() < g.attempt) && !fault.On(fault.LateReserve):
		return // late
	case m.GetSerial() == g.serial && (g.req != nil || g.res != nil && g.serial != 0 && !g.refused):
		if g.res != nil && fault.On(fault.NoIdempotency) {
			c.tree.charge(g.res.queue, g.res.demand)
		}
		g.asksPatience = m.GetPatient()
		c.repeat(now, b, from, g)
		return
	}
	g.serial, g.attempt, g.ref = m.GetSerial(), m.GetAttempt(), m.GetGang()
	g.asksPatience, g.refused = m.GetPatient(), false
	c.mandates.end(g)
	a := accepting{Core: c, now: now, b: b, from: from, m: m, g: g}
	switch {
	case !a.read():
	case g.res != nil && a.demand.Sub(a.current).Fits(nil):
		a.shrink()
	default:
		a.wait()
	}
}

// read takes in the request, and reports whether it may be answered by quota. Else it is refused.
func (a *accepting) read() bool {
	var err error
	if a.demand, err = wire.ToResources(a.m.GetDemand()); err == nil {
		a.bound, err = wire.ToResources(a.m.GetBound())
	}
	if err == nil {
		err = sound(a.demand)
	}
	if err == nil {
		a.demand, a.bound = a.tree.counted(a.demand), a.tree.counted(a.bound)
		a.pods, err = a.g.podSet(a.m.GetPods())
	}
	if err != nil {
		a.refuse(a.now, a.from, a.g, wire.DenyReason_DENY_NEVER_FITS, err.Error())
		return false
	}
	if err := api.ValidatePath(a.g.key.queue); err != nil {
		a.refuse(a.now, a.from, a.g, wire.DenyReason_DENY_QUEUE_NOT_FOUND, err.Error())
		return false
	}
	if why := a.g.tooLarge(a.demand, a.pods); why != "" {
		a.refuse(a.now, a.from, a.g, wire.DenyReason_DENY_TOO_LARGE, why)
		return false
	}
	if o := a.roster.other(a.g); o != nil {
		if a.g.req != nil {
			a.withdraw(a.g.req)
		}
		a.refuseMoved(a.now, a.from, a.g, o)
		return false
	}
	if others := a.roster.elsewhere(a.g, a.pods); len(others) > 0 {
		a.refuseElsewhere(a.now, a.from, a.g, others, a.pods)
		return false
	}
	opened, closing := reopen(a.Core, a.now, a.g, a.m, a.demand)
	if closing {
		refuseClosing(a.now, a.Core, a.b, a.from, a.g, a.demand, a.pods)
		return false
	}
	a.shrunk = a.ledger.forgetGone(a.g, a.pods) || opened
	if r := a.g.res; r != nil {
		a.current = r.demand
		if r.attempt != a.m.GetAttempt() || r.started && r.claim == nil {
			r.awaitsNobody()
		}
	}
	return true
}

// shrink charges a gang for what it asks for, which is no more than it is charged.
func (a *accepting) shrink() {
	g, r, m := a.g, a.g.res, a.m
	if g.req != nil {
		a.withdraw(g.req)
	}
	kept, preemptible := m.GetKept(), m.GetPreemptible()
	if kept && !r.mayBeFixed() { // it stays what it was when it was charged
		kept, preemptible = false, r.preemptible
	}
	least, less := int(m.GetLeast()), !a.demand.Sub(a.current).IsZero()
	if !less && !a.shrunk && r.least == least && r.attempt == m.GetAttempt() && r.started == m.GetStarted() &&
		r.preemptible == preemptible && r.kept == kept && slices.Equal(r.pods, a.pods) {
		a.sendGranted(a.now, a.b, a.from, g)
		return
	}
	r.attempt, r.started, r.least = m.GetAttempt(), m.GetStarted(), least
	r.preemptible, r.kept = preemptible, kept
	if !g.ref.GetSingle() && len(r.pods) == 0 && !r.forced {
		r.rank.Priority = m.GetPriority() // it was reserved before it had pods, whose priority counts
	}
	if less && !a.shrunk {
		r.queue.departed()
	}
	a.ledger.charge(g, a.demand)
	a.roster.name(g, a.pods)
	a.put(a.b, g)
	a.sendGranted(a.now, a.b, a.from, g)
}

// wait has a request for more wait, in place of what the gang asked for before.
func (a *accepting) wait() {
	g, m, namespace := a.g, a.m, a.g.ref.GetNamespace()
	if g.req != nil && (g.req.namespace != namespace || g.req.vain != m.GetVain()) {
		a.withdraw(g.req) // with what is kept for it
	}
	q := a.tree.at(g.key.queue)
	r := g.req
	if r != nil {
		a.unlist(r)
	} else {
		r = &request{gang: g, queue: q, namespace: namespace, vain: m.GetVain(), arrived: a.now, slot: -1}
		a.enqueue(r)
	}
	r.from, r.serial, r.attempt, r.trace = a.from, m.GetSerial(), m.GetAttempt(), m.GetTrace()
	r.demand, r.delta, r.bound, r.pods = a.demand, a.demand.Sub(a.current), a.bound, a.pods
	r.priority, r.since, r.rank, r.started = m.GetPriority(), m.GetSinceUnixMs(), wire.ToRank(m.GetRank()), m.GetStarted()
	r.order, r.ordered = m.GetOrder(), m.Order != nil
	r.mends, r.preemptible, r.kept = m.GetMends() && g.had(a.demand), m.GetPreemptible(), m.GetKept()
	if r.who = whoSaid(m.GetUser(), m.GetGroups()); g.res != nil {
		r.who = g.res.who
	}
	r.claims, r.least, r.runs = m.GetClaims(), int(m.GetLeast()), max(0, m.GetRunsMs())
	r.term = r.ends()
	if slices.Contains(a.ledger.barring, g) {
		a.ledger.freedFor(g) // it may be entitled to less now
	}
	r.barred = a.rights.right(q, namespace)
	a.list(r)
	a.owe(r) // a new serial wants an answer of its own
	switch {
	case r.barred != nil && !g.hasAll(a.pods): // nor is what somebody else bound in its namespace charged to the queue
	case forces(a.current, a.demand, a.bound):
		a.force(a.now, a.b, r, a.current)
	case r.barred != nil:
	case r == r.demandClass.requests[0] || r.demandClass.denied.queue == nil: // else it is denied as those before it are
		a.turns.makeDue(r.demandClass)
	}
	if a.shrunk && g.batch != a.b.id {
		a.roster.name(g, a.pods)
		g.res.least = r.least
		a.put(a.b, g) // and the rest is judged with the next transaction
	}
}

// forceEntitled charges what is bound of requests whose namespaces were not known, or had no right, when they came.
func (c *Core) forceEntitled(now time.Time, b *batch, most, bytes int) {
	was := c.rights.entitled
	c.rights.entitled = nil
	for _, r := range was {
		g := r.gang
		switch {
		case r.slot < 0 || r.barred != nil || g.req != r:
		case len(b.ops) >= most || g.batch == b.id || !b.fits(reservationBytes(g.ref, r.demand, r.pods), bytes):
			c.rights.entitled = append(c.rights.entitled, r)
		default:
			if others := c.roster.elsewhere(g, r.pods); len(others) > 0 {
				c.refuseElsewhere(now, r.from, g, others, r.pods)
				continue
			}
			if o := c.roster.other(g); o != nil {
				c.withdraw(r)
				c.refuseMoved(now, r.from, g, o)
				continue
			}
			var current api.Resources
			if g.res != nil {
				current = g.res.demand
			}
			if forces(current, r.demand, r.bound) {
				c.force(now, b, r, current)
			}
		}
	}
}

// force grants a request that is bound in part: whole if that is possible, otherwise just what is bound, for that is
// used whatever the limits say. The rest goes on waiting.
func (c *Core) force(now time.Time, b *batch, r *request, charged api.Resources) {
	c.earmarks.rebuild(now)
	if c.judge(r, c.tree.path(r.queue)) == nil {
		c.grant(now, b, r)
		return
	}
	g := r.gang
	use := make(api.Resources, 0, len(r.demand))
	for _, a := range r.demand {
		have := charged.Value(a.Resource)
		if a.Value > have {
			a.Value = max(have, min(a.Value, r.bound.Value(a.Resource)))
		}
		use = append(use, a)
	}
	c.roster.chargedFor(now, reservationFor(c, b, r), r)
	grows := use.Sub(charged).Positive()
	c.ledger.charge(g, use)
	c.roster.name(g, r.pods)
	c.ledger.setForced(g, g.res.forced || c.tree.exceeds(r.queue, grows))
	c.put(b, g)
	rest := r.demand.Sub(use)
	if rest.Fits(nil) {
		c.sendGranted(now, b, r.from, g)
		c.withdraw(r)
		return
	}
	c.unlist(r)
	r.delta = rest
	c.list(r)
	if r.told.IsZero() {
		c.fresh = append(c.fresh, r)
	}
	if r.barred == nil {
		c.turns.makeDue(r.demandClass) // the store takes a key once a transaction: the rest is judged with the next one
	}
}

// repeat answers a request that was acted on before.
func (c *Core) repeat(now time.Time, b *batch, from api.Incarnation, g *gang) {
	switch {
	case g.req != nil:
		g.req.from = from
		if !g.req.told.IsZero() {
			c.owe(g.req)
		}
	case g.res != nil && g.res.closing:
		c.send(from, &wire.Envelope{Body: &wire.Envelope_Denied{Denied: &wire.Denied{GangUid: g.key.uid, Attempt: g.attempt,
			Serial: g.serial, Reason: wire.DenyReason_DENY_CLOSING, Queue: g.key.queue, Message: "its reservation is closing"}}})
	default:
		c.sendGranted(now, b, from, g)
	}
}

// stopsAsking takes back what a gang waits for, by the word of its home, and reports whether it does: the word may be
// late.
func stopsAsking(c *Core, g *gang, m interface {
	GetSerial() uint64
	GetAttempt() uint64
}) bool {
	if m.GetSerial() < g.serial || m.GetAttempt() < g.attempt {
		return false
	}
	g.serial, g.attempt = m.GetSerial(), m.GetAttempt()
	if g.req != nil {
		c.withdraw(g.req)
	}
	return true
}

func (c *Core) unreserve(now time.Time, b *batch, from api.Incarnation, m *wire.Unreserve) {
	g := c.roster.at(m.GetGang())
	if !stopsAsking(c, g, m) {
		return
	}
	if r := g.res; r != nil {
		c.patience.ends(now, g)
		if r.yields == nil && !g.foundNoRoom(now) && !r.demand.IsZero() { // else it asks again, or nothing of it was charged
			r.queue.departed()
		}
		if m.GetLost() {
			claimsInVain(c, now, g.key.uid)
		}
		c.release(g)
		g.batch = b.id
		b.add(DeleteReservation{Queue: g.key.queue, GangUID: g.key.uid}, opBytes+len(g.key.uid))
	}
	b.replies = append(b.replies, reply{from, &wire.Envelope{Body: &wire.Envelope_Unreserved{Unreserved: &wire.Unreserved{
		GangUid: g.key.uid, Attempt: m.GetAttempt(), Serial: m.GetSerial()}}}})
	c.forget(now, g)
}

func (c *Core) close(now time.Time, b *batch, from api.Incarnation, m *wire.Close) {
	g := c.roster.at(m.GetGang())
	if !stopsAsking(c, g, m) {
		return
	}
	if g.res != nil && !g.res.closing {
		if g.res.claim != nil {
			c.ledger.endClaim(g.res.claim)
		}
		g.res.closing = true
		if m.GetRule() == wire.Rule_RULE_STALE {
			yieldsToNobody(c, g, m)
		}
		c.put(b, g)
	}
	b.replies = append(b.replies, reply{from, &wire.Envelope{Body: &wire.Envelope_Closed{Closed: &wire.Closed{
		GangUid: g.key.uid, Attempt: m.GetAttempt(), Serial: m.GetSerial()}}}})
	c.forget(now, g)
}

// reopen opens a closing reservation again if the gang has started after all, which shows when all that was asked for
// it is known, or its minimum is lowered, and nobody waits for its pods to leave; or, under a new attempt, if what is
// left of it cannot be evicted: claims that await that are in vain. Else it is closing still.
func reopen(c *Core, now time.Time, g *gang, m *wire.Reserve, demand api.Resources) (opened, closing bool) {
	r := g.res
	if r == nil || !r.closing {
		return false, false
	}
	if m.GetStays() && m.GetAttempt() > r.attempt && demand.Fits(r.demand) {
		claimsInVain(c, now, g.key.uid)
		staysOn(c, g)
		return true, false
	}
	r.closing = !m.GetStarted() || r.yields != nil || r.leaving || r.claimedBy != nil
	return !r.closing, r.closing
}

// refuseClosing charges a gang that is evicted for what is left of it, for a pod that ends late is not to keep all of
// it, and grants nothing else.
func refuseClosing(now time.Time, c *Core, b *batch, to api.Incarnation, g *gang, demand api.Resources, pods []uint64) {
	if !demand.Equal(g.res.demand) && demand.Fits(g.res.demand) && g.batch != b.id {
		c.ledger.charge(g, demand)
		c.roster.name(g, pods)
		c.put(b, g)
	}
	c.refuse(now, to, g, wire.DenyReason_DENY_CLOSING, "its reservation is closing and ends with its pods")
}
