package coordinator

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/api/wire"
)

// Claims. A gang that was given a mandate says which gangs are to go, once all of its pods have room then. If that is lawful, one put decides:
// the gang's own record names the victims. Only then are they closed, a transaction after another, and their homes are told to evict their
// pods. When all of them are closed or gone, and what is charged leaves room, the claim becomes demand.
//
// From that put on, what was promised and what is on its way out counts (queue.moves): nobody else is granted what was promised, and nobody
// is evicted for what is on its way.
//
// A victim may also be no more than some pods of a gang that has more than its minimum (surplus.go).
//
// A claim is dropped when it is not lawful any more because limits were edited, when its gang gives up or asks for
// something else, and when it takes too long. Victims that are not closed by then are released; closed ones stay
// closed. Their pods may never leave, because their node is dead or they have a finalizer. Once they are overdue,
// what they have counts as all else again, so that the gang may be given another victim.

const (
	claimBytes = 480 << 10       // of the names in a claim
	yieldEvery = 5 * time.Second // between two Yields to a home
	saidFor    = 6 * yieldEvery  // a home is told for so long that a claim was dropped
)

// claim judges a plan.
func (c *Core) claim(now time.Time, b *batch, from api.Incarnation, m *wire.Claim) {
	g := c.roster.at(m.GetGang())
	if g.res != nil && g.res.claim != nil && g.res.claim.mandate == m.GetMandate() {
		b.replyClaim(from, g, m.GetMandate(), true, "", nil) // a repeat
		return
	}
	refuse := func(why string) {
		c.forget(now, g)
		b.replyClaim(from, g, m.GetMandate(), false, why, nil)
	}
	x := g.mandate
	if x == nil || m.GetTerm() != c.term || m.GetMandate() != x.number || m.GetAttempt() != g.attempt || m.GetSerial() != x.serial {
		refuse("its mandate is over")
		return
	}
	c.mandates.end(g)
	if len(m.GetVictims()) == 0 && (len(m.GetAwaits()) == 0 || g.req == nil) {
		if m.GetStale() {
			g.retry(now, c.tree.version, m.GetWhy())
		} else if g.noPlan(now, c.tree.version, x.kind, m.GetWhy()) {
			c.ledger.bar(g, false)
		}
		refuse("")
		return
	}
	cl, why := c.readClaim(now, g, x, m)
	if why != "" {
		g.retry(now, c.tree.version, why)
		refuse(why)
		return
	}
	c.accept(b, from, cl, m)
}

// readClaim judges a plan by the rules, and says why it does not stand, "" if it does.
func (c *Core) readClaim(now time.Time, g *gang, x *mandate, m *wire.Claim) (*claim, string) {
	c.tree.recompute()
	r := g.req
	switch {
	case r == nil && g.res == nil, g.res != nil && (g.res.closing || g.res.claim != nil):
		return nil, "it is not charged"
	case g.res != nil && g.res.claimedBy != nil: // since it got its mandate
		return nil, "it makes room for another gang itself"
	case r != nil && (r.barred != nil || !r.mayClaim() || r.serial != x.serial || r.borrows() != nil ||
		c.tree.ofUser(r) != nil):
		return nil, "it asks for something else now"
	case r != nil && (len(c.roster.elsewhere(g, r.pods)) > 0 || c.roster.other(g) != nil):
		return nil, "its pods are charged elsewhere"
	}
	cl := &claim{gang: g, mandate: x.number, rule: x.rule, judged: c.tree.version,
		until: now.Add(min(time.Duration(max(0, m.GetGraceMs()))*time.Millisecond, api.GraceMost) + api.Overdue)}
	a := g.ask()
	if r != nil {
		cl.promised, cl.lacked = r.delta, a.lacksOfNodes()
	}
	bytes := 0
	var holdings []holding
	displacedBy := c.ledger.displacedBy(g)
	seen, awaited := map[*gang]bool{}, api.SetOf(m.GetAwaits())
	for _, w := range m.GetVictims() {
		v := victim{gang: c.roster.gangs[gangKey{w.GetGang().GetQueue(), w.GetGang().GetUid()}], attempt: w.GetAttempt()}
		if v.gang == nil || v.gang == g || seen[v.gang] || !v.open() {
			return nil, "a gang that was to go has changed"
		}
		if why, err := v.readSingles(w.GetPods()); err != nil || why != "" {
			return nil, cmp.Or(why, "what pods have that were to go is not readable")
		}
		if why := v.gang.spares(now, x.rule); why != "" {
			return nil, "a gang that was to go stays: " + why
		}
		if displacedBy[v.gang.identity()] {
			return nil, "a gang that was to go stays: " + displacedIt
		}
		seen[v.gang] = true
		cl.victims = append(cl.victims, v)
		holdings = append(holdings, v.holdings(func(uid string) bool { return awaited[uid] })...)
		bytes += len(w.GetGang().GetUid()) + len(w.GetGang().GetQueue()) + 32 + surplusBytes(v.pods)
	}
	for _, uid := range m.GetAwaits() {
		bytes += len(uid) + 4
	}
	bytes += proto.Size(m.GetWithin())
	if bytes > claimBytes || len(m.GetAwaits()) > 2*candidatesAtMost {
		return nil, fmt.Sprintf("it names too many gangs: %d bytes, the limit is %d", bytes, claimBytes)
	}
	if len(holdings) > 0 && !fault.On(fault.PruneUnchecked) && !a.lawful(x.rule, holdings) {
		return nil, "what queues have has changed"
	}
	if r != nil && (!c.fitsWithout(r, cl.victims) || len(holdings) == 0 && slices.ContainsFunc(a.lacks(), func(l lack) bool { return l.short > 0 })) {
		return nil, "what queues have has changed"
	}
	return cl, ""
}

// fitsWithout reports whether a request could be granted if its victims, and all that is on its way out, were gone, and what was promised
// charged.
func (c *Core) fitsWithout(r *request, victims []victim) bool {
	for _, v := range victims {
		v.gang.res.queue.move(v.amounts(), -1)
	}
	full := r.gang.ask().full()
	for _, v := range victims {
		v.gang.res.queue.move(v.amounts(), 1)
	}
	return full == nil && c.tree.path(r.queue) == nil
}

// accept makes a claim stand, with the put that decides.
func (c *Core) accept(b *batch, from api.Incarnation, x *claim, m *wire.Claim) {
	g := x.gang
	r := g.req
	if g.res == nil {
		reservationFor(c, b, r).follow(r)
		if g.ref.GetSingle() { // its record names its pod
			c.roster.name(g, r.pods)
		}
	}
	g.res.awaits, g.res.within = slices.Clone(m.GetAwaits()), m.GetWithin()
	c.enforce(x)
	c.put(b, g)
	b.replyClaim(from, g, x.mandate, true, "", nil)
	c.Claims.Made++
	if r != nil {
		c.unlist(r) // it is a class of its own now
		c.list(r)
		c.turns.makeDue(r.demandClass)
	}
}

// awaitsNobody is said of a gang that has what it claimed, or asks again.
func (r *reservation) awaitsNobody() { r.awaits, r.within = nil, nil }

// enforce lets a claim count.
func (c *Core) enforce(x *claim) {
	x.gang.res.claim = x
	x.gang.res.fix()
	c.ledger.setUnplaced(x.gang, nil, false) // it has been promised rooms
	c.ledger.promise(x, 1)
	for _, v := range x.victims {
		if v.open() {
			c.ledger.setTaken(x, v)
		}
	}
	c.claims = append(c.claims, x)
	c.ledger.displace(x)
	c.ledger.unbar(func(o *gang) bool { return o == x.gang })
}

// replyClaim says whether a claim stands, once the record is in the store.
func (b *batch) replyClaim(to api.Incarnation, g *gang, mandate uint64, accepted bool, why string, spared []string) {
	m := &wire.ClaimReply{GangUid: g.key.uid, Attempt: g.attempt, Mandate: mandate, Accepted: accepted, Message: why, Spared: spared}
	if g.res != nil {
		m.Awaits = g.res.awaits
		if !g.res.demand.IsZero() {
			if m.ReservationRevision = g.res.revision; m.ReservationRevision == 0 {
				m.ReservationRevision = revisionWritten
			}
		}
	}
	b.replies = append(b.replies, reply{to, &wire.Envelope{Body: &wire.Envelope_ClaimReply{ClaimReply: m}}})
}

// revisionWritten stands for the revision of the transaction that an answer waits for.
const revisionWritten = -1

// advanceClaims goes on with each claim that stands: closes its victims, grants it, or drops it.
func (c *Core) advanceClaims(now time.Time, b *batch) {
	if len(c.claims) == 0 {
		return
	}
	c.claims = slices.DeleteFunc(c.claims, func(x *claim) bool { return x.gang.res == nil || x.gang.res.claim != x })
	c.unclosed = false
	for _, x := range slices.Clone(c.claims) {
		if x.gang.res == nil || x.gang.res.claim != x {
			continue
		}
		if x.gang.batch == b.id || len(b.ops) >= c.cfg.BatchOps {
			c.unclosed = true
			continue
		}
		switch why := x.unlawful(now, c.tree); {
		case why != "":
			x.gang.rest(now, c.tree.version, why)
			c.dropClaim(now, b, x, why)
		case c.closeVictims(now, b, x):
			c.fulfil(now, b, x)
		}
	}
}

// closeVictims closes as many victims as the transaction takes, and reports whether none is left open.
func (c *Core) closeVictims(now time.Time, b *batch, x *claim) (all bool) {
	all = true
	rest := x.victims[:0]
	for _, v := range x.victims {
		if !v.open() {
			if v.closed() {
				rest = append(rest, v)
			}
			continue
		}
		r := v.gang.res
		if v.single() {
			if all = false; !v.told {
				v.told = c.ask(x, v)
			}
			rest = append(rest, v)
			continue
		}
		rest = append(rest, v)
		if len(b.ops) >= c.cfg.BatchOps || v.gang.batch == b.id || !b.fits(c.recordBytes(v.gang), c.cfg.BatchBytes) {
			all, c.unclosed = false, true
			continue
		}
		if v.gang.req != nil {
			c.withdraw(v.gang.req)
		}
		r.closing, r.overdue = true, false
		c.yields(v.gang, x.yieldingTo(v.gang))
		c.put(b, v.gang)
		c.Claims.Evicted[x.rule]++
		if home := c.owners.Table().OwnerOf(v.gang.key.queue); home != "" {
			b.replies = append(b.replies, reply{home, v.gang.yield()})
		}
	}
	x.victims = rest
	return all
}

// yields takes note of for whom a closing gang is evicted, nil for one that was not whole.
func (c *Core) yields(g *gang, to *wire.Yielding) {
	if g.res.yields = to; to == nil || !g.res.closing {
		return
	}
	if len(g.res.condemned) == 0 { // else it is in the list
		c.yielding = append(c.yielding, g)
	}
	c.ledger.setLeaving(g, true)
}

// staysOn has a gang that was evicted go on with what is left of it.
func staysOn(c *Core, g *gang) {
	r := g.res
	r.closing, r.overdue, r.yields, r.claimedBy = false, false, nil, nil
	c.ledger.setLeaving(g, false)
}

// yieldsToNobody has a gang leave that its home closes because it was short for too long.
func yieldsToNobody(c *Core, g *gang, m *wire.Close) {
	c.yields(g, &wire.Yielding{Rule: m.GetRule(), Why: api.Shorten(m.GetReason(), maxWhy)})
	c.Claims.Evicted[m.GetRule()]++
}

// tellAgain tells homes again which of their gangs are to go, and which claims were dropped.
func (c *Core) tellAgain(now time.Time) {
	if now.Before(c.nextYields) || c.owners.Table() == nil {
		return
	}
	c.nextYields = now.Add(yieldEvery)
	c.yielding = slices.DeleteFunc(c.yielding, func(g *gang) bool { return g.res == nil || g.res.yields == nil && len(g.res.condemned) == 0 })
	for _, x := range c.claims {
		for _, v := range x.victims {
			if v.single() && v.told && v.open() && x.gang.res != nil && x.gang.res.claim == x {
				c.ask(x, v)
			}
		}
	}
	c.findOverdue(now)
	for _, g := range c.yielding[:min(len(c.yielding), chunk)] {
		if home := c.owners.Table().OwnerOf(g.key.queue); home != "" && g.res.revision != 0 {
			c.send(home, g.yield())
		}
	}
	if n := len(c.yielding); n > chunk { // the others next time
		c.yielding = append(c.yielding[chunk:], c.yielding[:chunk]...)
	}
	c.dropped = slices.DeleteFunc(c.dropped, func(d droppedClaim) bool { return !now.Before(d.until) })
	for _, d := range c.dropped {
		if home := c.owners.Table().OwnerOf(d.queue); home != "" {
			c.send(home, &wire.Envelope{Body: &wire.Envelope_ClaimReply{ClaimReply: d.reply}})
		}
	}
}

// claimsInVain ends the time of claims that await a gang of which pods stay on their nodes.
func claimsInVain(c *Core, now time.Time, gang string) {
	for _, x := range c.claims {
		if r := x.gang.res; r != nil && slices.Contains(r.awaits, gang) {
			x.until = now
		}
	}
}

// findOverdue lets what gangs lose count as what they have again, where it should have left by now.
func (c *Core) findOverdue(now time.Time) {
	for _, g := range c.yielding {
		if until := g.res.leavesBy(); !g.res.overdue && until != 0 && now.UnixMilli() >= until {
			g.res.overdue = true
			c.ledger.settle(g)
		}
	}
}

// droppedClaim is one of which its home is told again for a while: words may be lost.
type droppedClaim struct {
	until time.Time
	queue string
	reply *wire.ClaimReply
}

// fulfil turns a claim into demand, once what is charged leaves room.
func (c *Core) fulfil(now time.Time, b *batch, x *claim) {
	g := x.gang
	r := g.req
	if len(x.promised) == 0 { // it had its quota, and lacked room. The record says more than it needs to, until it is written for something else
		g.res.claim = nil
		c.ledger.leaveAlone(x)
		g.pause = pause{}
		if g.stuck != nil {
			g.stuck.since = now // if it finds no room all the same
		}
		return
	}
	if r == nil || !r.delta.Equal(x.promised) || r.barred != nil {
		return // its home has not asked in this term
	}
	real := fault.On(fault.RealShares)
	if g.res.claim = nil; !real {
		g.res.queue.move(x.promised, -1)
	}
	denied := c.tree.path(r.queue)
	if denied == nil {
		denied = c.tree.over(r.queue, r.delta, r.demand, nil)
	}
	bytes := c.recordBytes(g) + reservationBytes(g.ref, r.demand, r.pods)
	if denied != nil || len(c.roster.elsewhere(g, r.pods)) > 0 || !b.fits(bytes, c.cfg.BatchBytes) {
		if g.res.claim = x; !real {
			g.res.queue.move(x.promised, 1)
		}
		return
	}
	c.ledger.leaveAlone(x)
	g.pause = pause{}
	c.grant(now, b, r)
}

// dropClaim ends a claim before it is granted.
func (c *Core) dropClaim(now time.Time, b *batch, x *claim, why string) {
	g := x.gang
	spared := c.ledger.endClaim(x)
	c.Claims.Dropped++
	to := c.owners.Table().OwnerOf(g.key.queue)
	c.dropped = append(c.dropped, droppedClaim{now.Add(saidFor), g.key.queue, &wire.ClaimReply{GangUid: g.key.uid, Attempt: g.res.attempt, Mandate: x.mandate, Message: why, Spared: spared, Awaits: slices.Clone(g.res.awaits)}})
	r := g.req
	if r != nil {
		c.unlist(r)
	}
	if !g.res.demand.IsZero() {
		c.put(b, g)
	} else {
		c.release(g)
		g.batch = b.id
		b.add(DeleteReservation{Queue: g.key.queue, GangUID: g.key.uid}, opBytes+len(g.key.uid))
	}
	if r != nil {
		c.list(r)
		if r.demandClass != nil {
			c.turns.makeDue(r.demandClass)
		}
	}
	b.replyClaim(to, g, x.mandate, false, why, spared)
	c.forget(now, g)
}

// loadClaims lets the claims of a former term go on. All reservations are loaded.
func (c *Core) loadClaims(records []StoredReservation) {
	for _, s := range records {
		w := s.Record.GetClaim()
		g := c.roster.gangs[gangKey{s.Record.GetGang().GetQueue(), s.Record.GetGang().GetUid()}]
		if w == nil || g == nil || g.res == nil || g.res.closing || fault.On(fault.ClaimForgotten) {
			continue
		}
		promised, err := wire.ToResources(w.GetPromised())
		if err != nil || sound(promised) != nil {
			c.log(LevelError, "claim ignored", "gang", g.key.uid, "error", err)
			continue
		}
		lacked, err := wire.ToResources(w.GetLacked())
		if err != nil || sound(lacked) != nil {
			lacked = nil
		}
		x := &claim{gang: g, lacked: lacked, mandate: w.GetMandate(), rule: w.GetRule(),
			promised: c.tree.promises(promised, g.res.demand), until: time.UnixMilli(w.GetUntilUnixMs())}
		for _, v := range w.GetVictims() {
			of := victim{gang: c.roster.gangs[gangKey{v.GetGang().GetQueue(), v.GetGang().GetUid()}], attempt: v.GetAttempt()}
			if of.pods, err = readSurplus(v.GetPods()); err != nil {
				c.log(LevelError, "victim ignored", "gang", g.key.uid, "error", err)
				continue
			}
			if of.gang != nil && (of.open() && of.gang.res.claimedBy == nil || of.closed()) {
				x.victims = append(x.victims, of)
			}
		}
		if len(promised) == 0 && !slices.ContainsFunc(x.victims, victim.open) {
			continue // it is done
		}
		for _, v := range x.victims {
			if !v.single() {
				c.ledger.setLeaving(v.gang, true)
			}
		}
		c.enforce(x)
	}
	slices.SortFunc(c.claims, func(a, b *claim) int { return strings.Compare(a.gang.key.uid, b.gang.key.uid) })
}

// ClaimCounts are for metrics.
type ClaimCounts struct {
	Made, Dropped      uint64
	Evicted, Condemned ByRule // gangs, and surplus pods
}

// ByRule has a count for each wire.Rule.
type ByRule [wire.Rule_RULE_STALE + 1]uint64
