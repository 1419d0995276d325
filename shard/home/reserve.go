package home

import (
	"slices"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/shard/event"
	"basalt.dev/basalt/shard/home/report"
)

// Requests to the coordinator: Reserve, Unreserve, Close. At most one of them is open for a gang. It is retransmitted until it is
// answered, and a denied Reserve every Config.ResendEvery and in each new term, for it is the coordinator that keeps the list of
// those who wait. An answer counts only if it names the serial of the open request.

// requestQuota sends a Reserve for what is bound and charged already and the pods given; an earlier request is replaced.
func (c *Core) requestQuota(g *gang, pods []*pod, growth bool) {
	heirs := g.charge.reserve == nil && growth && len(pods) == 1
	if g.started && (g.claim != nil || g.charge.claimed()) && !heirs { // it claims something else
		c.claims.withdrawPlan(g)
	}
	have := g.pick((*pod).isChargeable)
	boundSum := sum(have)
	if growth {
		have = append(have, g.pick(func(p *pod) bool { return p.charged && p.candidate() })...)
	}
	for _, p := range pods {
		if !growth || !p.charged {
			have = append(have, p)
		}
	}
	total := g.demand
	if !growth && len(pods) == 0 {
		total = sumBounded
	}
	demand, excess := total(have)
	if growth && g.charge.current() {
		demand = c.keptFor(g, demand)
	}
	a := &reserveCall{
		demand: demand, bound: boundSum, pods: pods, names: ids(g, have), priority: g.tally.priority, growth: growth,
		started: g.started, least: g.least(),
		runs: c.runsFor(g), order: c.pacing.orderOf(g).message(),
	}
	if c.shards.knowsNodes() {
		a.nodes = c.shards.nodes
	}
	if !growth && len(pods) > 0 && !g.search.vain.None() {
		if a.vain, a.nodes = g.search.vain, c.shards.nodes; g.search.unfit != nil {
			a.nodes = g.search.nodes
		}
	}
	a.user, a.groups = userOf(g)
	if a.serial = c.serial(g); g.state == evicting && whoStays(g, c.now) != nil {
		g.charge.anew()
	}
	g.charge.request(a, c.now)
	if excess && len(pods) > 0 { // what is bound already is charged for its foremost resources
		a.listing = unsent
		c.onDenied(&wire.Denied{GangUid: g.id, Attempt: g.charge.attempt, Serial: a.serial, Reason: wire.DenyReason_DENY_TOO_LARGE,
			Message: report.TooManyResources()})
		return
	}
	c.traceAsked(g)
	c.sendReserve(g)
}

// sendReserve sends the open Reserve, and retransmits it when it is due.
func (c *Core) sendReserve(g *gang) {
	a := g.charge.reserve
	if a.isListed() && fault.On(fault.SleepersForgotten) {
		return
	}
	first := c.cfg.AskAgain
	switch {
	case !a.isListed():
	case a.denied.GetReason() == wire.DenyReason_DENY_CLOSING, a.denied.GetReason() == wire.DenyReason_DENY_CHARGED_ELSEWHERE:
		// The coordinator does not keep it.
	default:
		first = c.cfg.ResendEvery
		a.every = first
	}
	if !c.due(g, &a.call, first, c.cfg.ResendEvery) || a.listing == unsent {
		return
	}
	patient := !g.started && !g.complete.IsZero() && !c.now.Before(g.complete.Add(c.cfg.PatientAfter))
	c.send(event.ToCoordinator, &wire.Envelope{Body: &wire.Envelope_Reserve{Reserve: &wire.Reserve{
		Gang: g.message(), Attempt: g.charge.attempt, Serial: a.serial,
		Demand: wire.FromResources(a.demand), Bound: wire.FromResources(a.bound),
		Priority: a.priority, SinceUnixMs: g.age().UnixMilli(), Rank: g.charge.rank,
		TableEpoch: uint64(c.table.Epoch), Trace: c.traceOf(g, spanReserve),
		Patient: patient, Term: c.term, Pods: a.names, Started: a.started,
		Preemptible: g.preemptible() && !g.charge.opens(a), Kept: g.kept(), Stays: g.charge.opens(a),
		Claims: a.claimsOf(g), Least: uint32(a.least), Vain: !a.vain.None(),
		Mends:  a.started && len(a.pods) > 0 && len(a.pods) <= g.isShortOf(),
		RunsMs: a.runs.Milliseconds(), User: a.user, Groups: api.Groups(a.groups),
		Order: a.order,
	}}})
}

// await waits for the reservation.
func (c *Core) await(g *gang) {
	a := g.charge.reserve
	if a == nil {
		if g.charge.reserved() {
			c.become(g, ready)
		} else {
			c.become(g, collecting)
		}
		return
	}
	if g.started || g.tally.placed >= g.minCount() {
		if !c.renounce(g) {
			c.become(g, collecting)
		}
		return
	}
	if why := c.obstacle(g); !why.None() {
		if c.renounce(g) {
			return
		}
		g.block(why)
		g.edits.ask()
		if g.tally.chargeable > 0 {
			c.become(g, collecting)
		} else {
			c.release(g)
		}
		return
	}
	if !sum(g.pick((*pod).isChargeable)).Equal(a.bound) { // what is not bound any more must not stay charged while the rest waits
		if c.renounce(g) {
			return
		}
		if g.tally.chargeable == 0 {
			c.release(g)
		} else {
			c.askAnew(g, g.choose(), c.reasons.noNode(g))
		}
		return
	}
	if a.denied != nil && g.charge.reserved() && !g.charge.amounts.Fits(a.bound) {
		// An earlier request was for one that has left.
		if g.tally.chargeable == 0 {
			c.release(g)
		} else {
			c.requestQuota(g, nil, false)
		}
		return
	}
	order := c.pacing.orderOf(g)
	moved := !a.sameOrder(order.message()) && g.claim == nil && !g.charge.claimed()
	if moved || !g.stillWanted(a) {
		pods := g.choose()
		now := append(g.pick((*pod).isChargeable), pods...)
		if demand, _ := g.demand(now); moved || !demand.Equal(a.demand) || a.priority != g.tally.priority ||
			!slices.Equal(ids(g, now), a.names) {
			if g.edits.ask(); c.pacing.limitRestarts(g) {
				c.sendReserve(g)
				return
			}
			if !c.renounce(g) {
				c.askAnew(g, pods, c.reasons.noNode(g))
			}
			return
		}
		a.pods = pods
	}
	if c.turns(g, a) {
		return
	}
	if a.denied != nil && a.vain.None() && c.rules.triesFewer(g, a) {
		c.askAnew(g, g.choose(), c.reasons.noNode(g))
		return
	}
	c.sendReserve(g)
	switch {
	case g.claim != nil:
		c.claims.driveClaim(g)
	case g.charge.claimed():
		c.keepRooms(g)
	}
}

// stillWanted reports whether the open Reserve asks for what is wanted.
func (g *gang) stillWanted(a *reserveCall) bool {
	if !a.vain.None() || a.priority != g.tally.priority || len(a.pods) != g.minCount()-g.tally.placed {
		return false
	}
	if g.group != nil && (len(g.group.Roles) > 0 || len(g.group.Floor) > 0) {
		return false
	}
	for _, p := range a.pods {
		if p.gang != g || !p.candidate() {
			return false
		}
	}
	return true
}

func (c *Core) onGranted(m *wire.Granted) {
	g := c.gangs[m.GetGangUid()]
	if g == nil {
		c.refuse(m.GetGangUid(), m.GetAttempt())
		return
	}
	a := g.charge.reserve
	if g.state == releasing {
		g.charge.open.sent = time.Time{} // it crossed our Unreserve
		c.mark(g)
		return
	}
	if ch := &g.charge; a == nil && ch.reserved() && ch.claim != 0 && m.GetAttempt() == ch.attempt &&
		m.GetReservationRevision() > ch.revision { // it was charged before, and lacked room
		ch.moved(m.GetReservationRevision())
		ch.dropClaim()
		c.mark(g)
		return
	}
	if a == nil || m.GetSerial() != a.serial || m.GetAttempt() != g.charge.attempt {
		return
	}
	if g.claim != nil && g.claim.step != proposing {
		c.claims.withdrawPlan(g) // it needs nobody's quota any more
	}
	g.charge.dropClaim()
	amounts, err := wire.ToResources(m.GetDemand())
	if err != nil || m.GetDemand() == nil {
		amounts = a.demand
	}
	ch := &g.charge
	early := !g.isPod() && len(ch.pods) == 0 // no pod was placed with that rank
	ch.grant(c.now, a, m, amounts, early)
	ch.forgetCondemned()
	if len(a.pods) > 0 {
		g.edits.allow()
	}
	ch.ranks(a.priority, g.id)
	chargeFor(g, a.names)
	c.searchers.hastenUnlike(g, a.pods)
	for _, p := range a.pods {
		if p.gang == g && p.candidate() {
			p.charge()
		}
	}
	c.traceGranted(g)
	c.mark(g)
	if !a.vain.None() && g.tally.chargeable == 0 { // an older coordinator does so
		c.searchers.pauseUntil(g, c.now.Add(c.cfg.RetryRoom))
		c.release(g)
	}
}

// chargeFor takes note of which pods the reservation is for.
func chargeFor(g *gang, pods []uint64) {
	listPods(g, pods)
	for _, p := range g.members {
		p.charged = p.charged && g.charge.names(g, p)
	}
}

func (c *Core) onDenied(m *wire.Denied) {
	g := c.gangs[m.GetGangUid()]
	if g == nil {
		return
	}
	a := g.charge.reserve
	if a == nil || m.GetSerial() != a.serial || m.GetAttempt() != g.charge.attempt {
		return
	}
	first := a.deny(m)
	if others := m.GetElsewhere(); len(others) > 0 {
		for _, p := range g.members {
			if _, named := slices.BinarySearch(others, p.id); named && p.isBound() {
				p.othersHave(c.now, c.cfg.AskAgain, c.cfg.ResendEvery)
			}
		}
	}
	if m.GetReason() == wire.DenyReason_DENY_CLOSING && g.charge.reserved() {
		if g.charge.shut(c.now); !g.started || g.charge.yields != nil { // else it asks until it is opened again
			g.charge.dropRequest()
		}
		if amounts, err := wire.ToResources(m.GetDemand()); err == nil && amounts.Equal(a.demand) {
			g.charge.holds(amounts) // it is charged for what is left
			chargeFor(g, a.names)
		}
	} else if m.GetReservationRevision() != 0 { // what is bound is charged, whatever becomes of the rest
		if amounts, err := wire.ToResources(m.GetDemand()); err == nil {
			if !g.charge.reserved() || !amounts.Equal(g.charge.amounts) { // else the record is as it was
				listPods(g, a.names)
			}
			g.charge.holds(amounts)
			g.charge.moved(m.GetReservationRevision())
		}
	}
	if a.growth && len(a.pods) > 0 {
		g.edits.deny()
	}
	if first && a.growth && len(a.pods) > 1 && !g.charge.closed { // further pods are charged one by one: ask for fewer
		g.charge.growBy(len(a.pods) / 2)
	}
	c.mark(g)
}

// refuse gives back a reservation that was granted to a gang we have forgotten.
func (c *Core) refuse(uid string, attempt uint64) {
	ref, known := c.released.get(uid)
	if !known || !c.active[api.BucketOf(ref.GetQueue())] {
		return
	}
	c.send(event.ToCoordinator, &wire.Envelope{Body: &wire.Envelope_Unreserve{Unreserve: &wire.Unreserve{
		Gang: ref, Attempt: attempt, TableEpoch: uint64(c.table.Epoch),
		Serial: c.serialIn(api.BucketOf(ref.GetQueue()))}}})
}

// release gives back the reservation, or withdraws the request for one.
func (c *Core) release(g *gang) {
	g.charge.renounceClaim()
	if g.outstanding() {
		c.retreat(g, startOver)
		return
	}
	c.census.postponeOthers(g)
	if g.tally.chargeable > 0 {
		c.broken("reservation of a gang with bound pods is not given back")
		return
	}
	g.endClaim()
	g.charge.awaitAnswer(c.serial(g))
	c.become(g, releasing)
}

func (c *Core) awaitUnreserved(g *gang) {
	o := g.charge.open
	if c.due(g, o, c.cfg.AskAgain, c.cfg.ResendEvery) {
		c.send(event.ToCoordinator, &wire.Envelope{Body: &wire.Envelope_Unreserve{Unreserve: &wire.Unreserve{
			Gang: g.message(), Attempt: g.charge.attempt, Serial: o.serial, TableEpoch: uint64(c.table.Epoch),
			Lost: g.tally.lost > 0}}})
	}
}

func (c *Core) onUnreserved(m *wire.Unreserved) {
	g := c.gangs[m.GetGangUid()]
	if g == nil || g.state != releasing || m.GetSerial() != g.charge.open.serial {
		return
	}
	g.charge.giveBack()
	g.rooms.end()
	g.attemptEnds()
	for _, p := range g.members {
		p.uncharge()
	}
	c.become(g, collecting)
	c.mark(g)
}
