package home

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/shard/event"
	"basalt.dev/basalt/shard/home/report"
)

// The way back. A gang that retreats (retreat.go) waits until every node shard that was asked for something has
// dropped it, and one that is bound in part for too long is closed at the coordinator before any of its pods is
// evicted.

// awaitWithdrawn waits until each shard has answered, and each Binding that was sent is resolved.
func (c *Core) awaitWithdrawn(g *gang) {
	w := g.withdraw
	shards := make([]api.Incarnation, 0, len(w.waiting))
	for shard := range w.waiting {
		shards = append(shards, shard)
	}
	for uid, shard := range w.sent {
		if p := c.pods[uid]; p != nil && p.Node != "" {
			delete(w.sent, uid)
		} else if w.waiting[shard] == nil && !slices.Contains(shards, shard) {
			shards = append(shards, shard)
			if w.again[shard] == nil {
				w.again[shard] = &call{at: c.now, sent: c.now, every: c.cfg.AskAgain}
			}
		}
	}
	slices.SortFunc(shards, func(a, b api.Incarnation) int { return strings.Compare(string(a), string(b)) })
	for _, shard := range shards {
		if !c.isMember(shard) { // its heirs know now what it had
			c.touchAll(g)
			c.retreat(g, w.why)
			return
		}
	}
	for _, shard := range shards {
		o := w.waiting[shard]
		if o == nil {
			o = w.again[shard]
		}
		if c.dueAtShard(g, o) {
			c.send(shard, &wire.Envelope{Body: &wire.Envelope_Withdraw{Withdraw: &wire.Withdraw{
				Gang: g.message(), Serial: w.serial, TableEpoch: uint64(c.table.Epoch), PodUids: w.pods,
				Keep: w.rooms != roomsGo}}})
		}
	}
	if len(shards) > 0 || len(w.sent) > 0 {
		return
	}
	g.withdraw = nil
	if w.serial != 0 {
		for _, p := range g.pick(func(p *pod) bool { return p.stage == committed }) {
			c.podFree(p)
		}
		g.allResolved()
		g.commits = nil
		switch w.rooms {
		case roomsGo:
			g.search.asksNobody()
		case roomsStayWithAnyone:
			c.touchAll(g)
		}
		g.rooms.keep(w.rooms != roomsGo)
		c.census.recount(g)
	}
	c.resume(g, w.why)
}

func (c *Core) onWithdrawn(from api.Incarnation, m *wire.Withdrawn) {
	g := c.gangs[m.GetGangUid()]
	if g == nil || g.withdraw == nil || m.GetSerial() != g.withdraw.serial {
		return
	}
	w := g.withdraw
	if w.waiting[from] == nil && w.again[from] == nil {
		return
	}
	delete(w.waiting, from)
	delete(w.again, from)
	for uid, shard := range w.sent {
		if shard == from {
			delete(w.sent, uid)
		}
	}
	for _, b := range m.GetBound() {
		p := g.members[b.GetPodUid()]
		if p == nil {
			p = c.claim(g, b.GetPodUid())
		}
		if p != nil && !p.Finished {
			p.own()
			if p.stage != bound {
				c.podBound(p, b.GetNode())
				delete(w.sent, p.UID)
			}
		}
	}
	for _, uid := range m.GetSentPodUids() {
		p := g.members[uid]
		if p != nil && p.stage == bound {
			p.own() // by that Binding
			continue
		}
		w.sent[uid] = from
		if p != nil {
			p.sentBy(from)
			p.pinOwn(g.id)
		}
	}
	c.mark(g)
}

// resume decides how a gang goes on of which no shard has anything but bound pods.
func (c *Core) resume(g *gang, why cause) {
	g.search.stop()
	g.search.mended()
	switch {
	case g.charge.yields != nil && g.state == withdrawing: // since it began to withdraw, maybe
		c.become(g, evicting)
	case why == rollBack && (g.tally.placed < g.minCount() || g.tally.bound == 0):
		c.become(g, evicting)
	case g.leaving():
		c.become(g, collecting) // goAway follows
	case g.started || g.tally.placed >= g.minCount():
		c.start(g)
	case g.tally.alive > 0 && !g.boundSince.IsZero():
		c.become(g, binding)
	case why == giveUp || why == noVolumes:
		switch {
		case why == noVolumes:
			c.searchers.pauseForTrouble(g)
		case g.search.unfit == nil: // else it asks in vain
			c.searchers.sleep(g, false)
		}
		c.become(g, collecting)
		if g.tally.chargeable == 0 {
			c.release(g)
		}
	default:
		g.bindsNothing()
		c.become(g, collecting)
	}
}

// mayEvict reports whether every bound pod of the gang can be evicted and would be made again, and what it asked for is
// not granted.
func (g *gang) mayEvict(now time.Time) bool {
	a := g.charge.reserve
	return g.isReplaced() && whoStays(g, now) == nil && !g.charge.closed && g.charge.reserved() &&
		(a == nil || a.denied != nil)
}

// mayBind reports whether a pod that nobody would make again may be bound before the gang is closed. It would be evicted then.
func (g *gang) mayBind() bool {
	for uid, p := range g.members {
		if !p.Owned() && !p.isBound() && !p.Finished && (p.stage == committed || g.unknown[uid]) {
			return true
		}
	}
	return false
}

// close begins to roll back a gang that is bound in part.
func (c *Core) close(g *gang) {
	c.RolledBack++
	g.restAsWhole(c.now, g.tally.rejected.words())
	c.warn(g, v1beta1.ReasonRolledBack, c.partWords(g).Message+
		": evicting its bound pods so that the gang can be rescheduled as a whole")
	if fault.On(fault.EvictOpen) {
		c.retreat(g, rollBack)
		return
	}
	g.charge.awaitAnswer(c.serial(g))
	c.become(g, closing)
}

func (c *Core) awaitClosed(g *gang) {
	if g.charge.closed {
		if !g.ownerless.IsZero() {
			c.touchAll(g)
		}
		c.retreat(g, rollBack)
		return
	}
	reason, rule := "the gang could not be completed", wire.Rule_RULE_UNKNOWN
	if g.repair.stale != "" {
		reason, rule = g.repair.stale, wire.Rule_RULE_STALE
	}
	if c.due(g, g.charge.open, c.cfg.AskAgain, c.cfg.ResendEvery) {
		c.send(event.ToCoordinator, &wire.Envelope{Body: &wire.Envelope_Close{Close: &wire.Close{
			Gang: g.message(), Attempt: g.charge.attempt, Serial: g.charge.open.serial, TableEpoch: uint64(c.table.Epoch),
			Reason: reason, Rule: rule}}})
	}
}

func (c *Core) onClosed(m *wire.Closed) {
	g := c.gangs[m.GetGangUid()]
	if g == nil || g.state != closing || g.charge.open == nil || m.GetSerial() != g.charge.open.serial {
		return
	}
	g.charge.shut(c.now)
	g.charge.answered()
	if g.repair.stale != "" {
		c.yields(g, &wire.Yielding{Rule: wire.Rule_RULE_STALE, Why: g.repair.stale})
	}
	c.mark(g)
}

// evict removes the bound pods of a closed gang, and gives its reservation back when none is left.
func (c *Core) evict(g *gang) {
	if g.started && g.tally.bound > 0 && g.charge.yields == nil { // it was completed before it was closed: nothing of it is removed
		c.become(g, running)
		return
	}
	if !g.charge.closed && !fault.On(fault.EvictOpen) { // it was opened again, for what is left of it stays
		g.attemptEnds()
		g.bindsFrom(c.now)
		if p := whoStays(g, c.now); p != nil {
			g.reportPartly()
			c.warn(g, "EvictionRefused", report.Stays(p.Pod, p.few.remains.why))
		}
		for _, p := range g.pick((*pod).goesWith) { // its PodGroup may have been made again meanwhile
			c.resolveMembership(p)
		}
		c.become(g, binding)
		return
	}
	if a := g.charge.reserve; a != nil {
		if c.sendReserve(g); g.charge.opens(a) {
			return
		}
	}
	if g.tally.bound == g.tally.lost { // those are not waited for, and a claim that does learns that it is in vain
		if !g.ownerless.IsZero() {
			c.endStray(g)
		}
		if g.group == nil && !g.isPod() {
			g.vanish()
		}
		if g.charge.yields != nil && !c.startForgotten(g) {
			keepLess(c, g)
			return
		}
		c.release(g)
		return
	}
	for _, p := range g.pick((*pod).goesWith) {
		c.evictions.evictPod(g, p, cmp.Or(g.whyEvicted(), g.search.rejected.words(),
			fmt.Sprintf("%s could not be placed as a whole within %s of its first Binding", g.label(), c.cfg.RollForward)))
	}
	keepLess(c, g)
}

// lingersAfter is how many times AskAgain a closed gang has to be gone before what is left of it is charged alone.
const lingersAfter = 5

// keepLess has a closed gang be charged for no more than is left of it, so that a pod which ends late does not keep
// what the others had. Most gangs are gone within the pause, and need no such request. Where nothing of what is left
// can be evicted, the gang asks to be opened again, and goes on with it, as one that is bound in part: pods that its
// controllers made meanwhile would wait for ever.
func keepLess(c *Core, g *gang) {
	ch := &g.charge
	if g.isPod() || !ch.closed || ch.record == outdated || ch.reserve != nil {
		return
	}
	left := sum(g.pick((*pod).isChargeable))
	if left.Equal(ch.amounts) && whoStays(g, c.now) == nil || !left.Fits(ch.amounts) {
		return
	}
	if at := ch.shrunk.Add(max(lingersAfter*c.cfg.AskAgain, shrinkPause(len(ch.pods)))); c.now.Before(at) {
		c.wakeAt(g, at)
		return
	}
	c.requestQuota(g, nil, false)
}
