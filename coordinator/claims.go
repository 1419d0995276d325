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
// A claim is dropped when it is not lawful any more because limits were edited, when its gang gives up or asks for something else, and
// when it takes too long. Who is not closed by then is spared. Who is closed stays closed. But its pods may never leave, for their node is dead
// or they have a finalizer. Once they are overdue, what they have counts as all else again, so that the gang may be given another victim.

const (
	claimFor   = time.Minute      // a claim may take so much longer than its victims' pods may take to leave,
	graceMost  = time.Hour        // of which no more counts than this
	claimBytes = 480 << 10        // of the names in a claim
	yieldEvery = 5 * time.Second  // between two Yields to a home
	saidFor    = 30 * time.Second // a home is told for so long that a claim was dropped
)

// claim is a standing one: it is in the record of its gang.
type claim struct {
	gang     *gang
	mandate  uint64
	rule     wire.Rule
	victims  []victim
	promised api.Resources // what the gang will be charged more
	lacked   api.Resources // of what the nodes have, when it was made
	until    time.Time
	judged   uint64 // Core.limitsVersion when it was judged
}

// victim is a gang that is to go, or some pods of it. Under another attempt it is none.
type victim struct {
	gang    *gang
	attempt uint64
	pods    []surplus // that go alone; none: all of it goes
	told    bool      // its home was asked for them
}

// open reports whether the victim is not closed, or its pods not condemned, yet.
func (v victim) open() bool {
	return v.gang.res != nil && v.gang.res.attempt == v.attempt && !v.gang.res.closing && !v.gang.res.demand.IsZero() && (!v.single() || len(v.rest()) > 0)
}

// closed reports whether it is on its way out.
func (v victim) closed() bool {
	return v.gang.res != nil && v.gang.res.attempt == v.attempt && (v.gang.res.closing || len(v.going()) > 0)
}

// setLeaving lets what a gang is charged count as on its way out, or not.
func (c *Core) setLeaving(g *gang, leaving bool) {
	r := g.res
	if r.leaving == leaving || fault.On(fault.RealShares) {
		return
	}
	if r.leaving = leaving; leaving {
		c.setUnplaced(g, nil, false) // it does not look for room any more
	}
	c.settle(g)
	if leaving || len(c.barring) > 0 {
		c.freedFor(g)
	}
}

// promise lets what a claim will charge count, or not any more.
func (c *Core) promise(x *claim, times int64) {
	if fault.On(fault.RealShares) {
		return
	}
	x.gang.res.queue.move(x.promised, times)
	if times < 0 {
		c.lower(x.gang.res.queue)
	}
	c.turns.shake(x.gang.res.queue)
	x.gang.res.queue.changed()
	if times < 0 || len(c.barring) > 0 {
		c.freedFor(x.gang)
	}
}

// claim judges a plan.
func (c *Core) claim(now time.Time, b *batch, from api.Incarnation, m *wire.Claim) {
	g := c.gang(m.GetGang())
	if g.res != nil && g.res.claim != nil && g.res.claim.mandate == m.GetMandate() {
		c.replyClaim(b, from, g, m.GetMandate(), true, "", nil) // a repeat
		return
	}
	refuse := func(why string) {
		c.forget(now, g)
		c.replyClaim(b, from, g, m.GetMandate(), false, why, nil)
	}
	x := g.mandate
	if x == nil || m.GetTerm() != c.term || m.GetMandate() != x.number || m.GetAttempt() != g.attempt || m.GetSerial() != x.serial {
		refuse("its mandate is over")
		return
	}
	c.endMandate(g)
	if len(m.GetVictims()) == 0 && (len(m.GetAwaits()) == 0 || g.req == nil) {
		if m.GetStale() {
			g.retry(now, c.limitsVersion, m.GetWhy())
		} else if g.noPlan(now, c.limitsVersion, x.kind, m.GetWhy()) {
			c.bar(g, false)
		}
		refuse("")
		return
	}
	cl, why := c.readClaim(now, g, x, m)
	if why != "" {
		g.retry(now, c.limitsVersion, why)
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
	case r != nil && (r.barred != nil || !r.mayClaim() || r.serial != x.serial || r.borrows() != nil):
		return nil, "it asks for something else now"
	case r != nil && (c.elsewhere(g, r.pods) > 0 || c.charged[g.key.uid] != nil && c.charged[g.key.uid] != g):
		return nil, "its pods are charged elsewhere"
	}
	cl := &claim{gang: g, mandate: x.number, rule: x.rule, judged: c.limitsVersion,
		until: now.Add(min(time.Duration(max(0, m.GetGraceMs()))*time.Millisecond, graceMost) + claimFor)}
	a := g.ask()
	if r != nil {
		cl.promised, cl.lacked = r.delta, a.lacksOfNodes()
	}
	bytes := 0
	var holdings []holding
	displacedBy := c.displacedBy(g)
	seen, awaited := map[*gang]bool{}, api.SetOf(m.GetAwaits())
	for _, w := range m.GetVictims() {
		v := victim{gang: c.gangs[gangKey{w.GetGang().GetQueue(), w.GetGang().GetUid()}], attempt: w.GetAttempt()}
		if v.gang == nil || v.gang == g || seen[v.gang] || !v.open() {
			return nil, "a gang that was to go has changed"
		}
		if why, err := v.readSingles(w.GetPods()); err != nil || why != "" {
			return nil, cmp.Or(why, "what pods have that were to go is not readable")
		}
		if why := c.spares(now, v.gang, x.rule); why != "" {
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
	return full == nil && c.path(r.queue) == nil
}

// accept makes a claim stand, with the put that decides.
func (c *Core) accept(b *batch, from api.Incarnation, x *claim, m *wire.Claim) {
	g := x.gang
	r := g.req
	if g.res == nil {
		reservationFor(c, b, r).follow(r)
		if g.ref.GetSingle() { // its record names its pod
			c.name(g, r.pods)
		}
	}
	g.res.awaits, g.res.within = slices.Clone(m.GetAwaits()), m.GetWithin()
	c.enforce(x)
	c.put(b, g)
	c.replyClaim(b, from, g, x.mandate, true, "", nil)
	c.Claims.Made++
	if r != nil {
		c.unlist(r) // it is a class of its own now
		c.list(r)
		c.turns.makeDue(r.demandClass)
	}
}

// enforce lets a claim count.
func (c *Core) enforce(x *claim) {
	x.gang.res.claim = x
	x.gang.res.fix()
	c.setUnplaced(x.gang, nil, false) // it has been promised rooms
	c.promise(x, 1)
	for _, v := range x.victims {
		if v.open() {
			c.setTaken(x, v)
		}
	}
	c.claims = append(c.claims, x)
	c.displace(x)
	c.unbar(func(o *gang) bool { return o == x.gang })
}

// replyClaim says whether a claim stands, once the record is in the store.
func (c *Core) replyClaim(b *batch, to api.Incarnation, g *gang, mandate uint64, accepted bool, why string, spared []string) {
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
		switch why := c.unlawful(now, x); {
		case why != "":
			x.gang.rest(now, c.limitsVersion, why)
			c.dropClaim(now, b, x, why)
		case c.closeVictims(now, b, x):
			c.fulfil(now, b, x)
		}
	}
}

// unlawful says why a claim does not stand any more, "" if it does. After it was made, only edits of limits and time count: that its
// victims go is part of it.
func (c *Core) unlawful(now time.Time, x *claim) string {
	if !now.Before(x.until) {
		return "its claim ended, because pods that were evicted for it were not gone in time"
	}
	if x.judged == c.limitsVersion {
		return ""
	}
	c.tree.recompute()
	x.judged = c.limitsVersion
	open := false
	var held []holding
	for _, v := range x.victims {
		if v.open() || v.closed() {
			held = append(held, v.holdings(func(string) bool { return true })...) // that it is needed was decided
			open = open || v.open()
		}
	}
	x.count(-1) // as it was before the claim
	a := ask{queue: x.gang.res.queue, tenant: x.gang.res.tenant, demand: x.promised, priority: x.gang.res.rank.Priority, lacked: x.lacked}
	a.has = x.gang.res.demand
	lawful := !open
	if lacks := a.lacks(); open && len(lacks) > 0 {
		if x.rule == wire.Rule_RULE_RECLAIM {
			a, lacks = a.after(held, lacks)
		}
		lawful = !slices.ContainsFunc(held, func(h holding) bool { return !a.may(x.rule, h, lacks) }) &&
			(x.rule == wire.Rule_RULE_PREEMPT && a.queue.preempts() && a.borrowsNoMore(held) || x.rule == wire.Rule_RULE_RECLAIM && a.leavesEnough(held, lacks))
	}
	x.count(1)
	if !lawful {
		return "limits of queues were changed"
	}
	a.queue.move(x.promised, -1)
	full := ask{queue: a.queue, demand: x.promised}.full()
	if a.queue.move(x.promised, 1); full != nil {
		return fmt.Sprintf("limits were changed, and queue %q does not have what it was promised any more", full.path)
	}
	return ""
}

// count adds what a claim changes to what queues will have, so many times.
func (x *claim) count(times int64) {
	x.gang.res.queue.move(x.promised, times)
	for _, v := range x.victims {
		if (v.open() || v.closed()) && len(v.gang.res.away) > 0 {
			v.gang.res.queue.move(v.amounts(), -times)
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
		c.yields(v.gang, c.yieldingTo(x, v.gang))
		c.put(b, v.gang)
		c.Claims.Evicted[x.rule]++
		if home := c.owners.Table().OwnerOf(v.gang.key.queue); home != "" {
			b.replies = append(b.replies, reply{home, v.gang.yield()})
		}
	}
	x.victims = rest
	return all
}

// why tells the users of a gang for what it is evicted.
func (c *Core) why(x *claim, v *gang) string {
	ref, named := x.gang.ref, x.gang.ref.GetNamespace() == v.ref.GetNamespace()
	to := "evicted so that a gang of another namespace can start"
	if named {
		to = fmt.Sprintf("evicted so that gang %s/%s of queue %q can start",
			ref.GetNamespace(), ref.GetName(), x.gang.key.queue)
	}
	switch preempts := x.rule == wire.Rule_RULE_PREEMPT; {
	case preempts && named:
		mine := v.res.rank.Priority
		return fmt.Sprintf("%s, whose priority is %d and that of this gang %d", to, x.gang.res.rank.Priority, mine)
	case preempts:
		return to + ", whose priority in this gang's queue is higher"
	}
	mine, other := apart(x.gang.res.queue, v.res.queue)
	uses := x.gang.res.demand.Add(x.promised) // which counts in what its queue has already
	has := entitlement(!mine.entitled(ask{queue: x.gang.res.queue, has: uses}, false))
	if !named {
		return fmt.Sprintf("%s: another queue takes back what it %s, and queue %q has more", to, has, other.path)
	}
	return fmt.Sprintf("%s: queue %q takes back what it %s, and queue %q has more than it %s",
		to, x.gang.key.queue, has, other.path, has)
}

// yields takes note of for whom a closing gang is evicted, nil for one that was not whole.
func (c *Core) yields(g *gang, to *wire.Yielding) {
	if g.res.yields = to; to == nil || !g.res.closing {
		return
	}
	if len(g.res.condemned) == 0 { // else it is in the list
		c.yielding = append(c.yielding, g)
	}
	c.setLeaving(g, true)
}

// reopen opens a closing reservation again if the gang has started after all, which shows when all that was asked for
// it is known, or its minimum is lowered, and nobody waits for its pods to leave. Else it is closing still.
func (r *reservation) reopen(m *wire.Reserve) (opened, closing bool) {
	if r == nil || !r.closing {
		return false, false
	}
	r.closing = !m.GetStarted() || r.yields != nil || r.leaving || r.claimedBy != nil
	return !r.closing, r.closing
}

// refuseClosing charges a gang that is evicted for what is left of it, for a pod that ends late is not to keep all of
// it, and grants nothing else.
func refuseClosing(now time.Time, c *Core, b *batch, to api.Incarnation, g *gang, demand api.Resources, pods []uint64) {
	if !demand.Equal(g.res.demand) && demand.Fits(g.res.demand) && g.batch != b.id {
		c.charge(g, demand)
		c.name(g, pods)
		c.put(b, g)
	}
	c.refuse(now, to, g, wire.DenyReason_DENY_CLOSING, "its reservation is closing and ends with its pods")
}

// yieldsToNobody has a gang leave that its home closes because it was short for too long.
func yieldsToNobody(c *Core, g *gang, m *wire.Close) {
	c.yields(g, &wire.Yielding{Rule: m.GetRule(), Why: api.Shorten(m.GetReason(), maxWhy)})
	c.Claims.Evicted[m.GetRule()]++
}

// yield tells the home of a gang that it is closed, or which of its pods are condemned.
func (g *gang) yield() *wire.Envelope {
	if g.res.yields == nil {
		return g.shrink()
	}
	return &wire.Envelope{Body: &wire.Envelope_Yield{Yield: &wire.Yield{Gang: g.ref, Attempt: g.res.attempt, To: g.res.yields}}}
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
			c.settle(g)
		}
	}
}

// leavesBy is when what claims take of a gang should have left, 0 when that is not known.
func (r *reservation) leavesBy() (unixMs int64) { return cmp.Or(r.yields, r.shrinks).GetUntilUnixMs() }

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
		c.leaveAlone(x)
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
	denied := c.path(r.queue)
	if denied == nil {
		denied = c.tree.over(r.queue, r.delta, r.demand, nil)
	}
	if denied != nil || c.elsewhere(g, r.pods) > 0 || !b.fits(c.recordBytes(g)+reservationBytes(g.ref, r.demand, r.pods), c.cfg.BatchBytes) {
		if g.res.claim = x; !real {
			g.res.queue.move(x.promised, 1)
		}
		return
	}
	c.leaveAlone(x)
	g.pause = pause{}
	c.grant(now, b, r)
}

// dropClaim ends a claim before it is granted.
func (c *Core) dropClaim(now time.Time, b *batch, x *claim, why string) {
	g := x.gang
	spared := c.endClaim(x)
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
	c.replyClaim(b, to, g, x.mandate, false, why, spared)
	c.forget(now, g)
}

// leaveAlone lets gangs count as any that are closing, if they were closed by their homes and not for the claim.
func (c *Core) leaveAlone(x *claim) {
	for _, v := range x.victims {
		if v.single() {
			c.setSpared(x, v)
		} else if v.closed() && v.gang.res.yields == nil {
			c.setLeaving(v.gang, false)
		}
	}
}

// endClaim takes a claim away, and returns the gangs that it does not wait for any more: those that stay.
func (c *Core) endClaim(x *claim) (spared []string) {
	g := x.gang
	if g.res.claim != x {
		return nil
	}
	c.promise(x, -1)
	g.res.claim = nil
	g.res.fix()
	for _, v := range x.victims {
		if v.open() && v.gang.res.claimedBy == x {
			c.setSpared(x, v)
			c.undisplace(x, v)
			spared = append(spared, v.uids()...)
		}
	}
	c.leaveAlone(x)
	stay := api.SetOf(spared)
	g.res.awaits = slices.DeleteFunc(g.res.awaits, func(uid string) bool { return stay[uid] })
	return spared
}

// claimRecord is what the store keeps of a claim.
func (r *reservation) claimRecord() *wire.ClaimRecord {
	x := r.claim
	if x == nil {
		return nil
	}
	out := &wire.ClaimRecord{Mandate: x.mandate, Rule: x.rule, Promised: wire.FromResources(x.promised), Lacked: wire.FromResources(x.lacked), UntilUnixMs: x.until.UnixMilli()}
	for _, v := range x.victims {
		out.Victims = append(out.Victims, &wire.Victim{Gang: &wire.GangRef{Uid: v.gang.key.uid, Queue: v.gang.key.queue}, Attempt: v.attempt, Pods: writeSurplus(v.pods)})
	}
	return out
}

// loadClaims lets the claims of a former term go on. All reservations are loaded.
func (c *Core) loadClaims(records []StoredReservation) {
	for _, s := range records {
		w := s.Record.GetClaim()
		g := c.gangs[gangKey{s.Record.GetGang().GetQueue(), s.Record.GetGang().GetUid()}]
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
		x := &claim{gang: g, lacked: lacked, mandate: w.GetMandate(), rule: w.GetRule(), promised: promised, until: time.UnixMilli(w.GetUntilUnixMs())}
		for _, v := range w.GetVictims() {
			of := victim{gang: c.gangs[gangKey{v.GetGang().GetQueue(), v.GetGang().GetUid()}], attempt: v.GetAttempt()}
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
				c.setLeaving(v.gang, true)
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
