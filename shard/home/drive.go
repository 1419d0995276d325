package home

import (
	"container/heap"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/shard/home/report"
)

// A gang from state to state: what each does next is in the file of that state.

// advance takes a gang as far as it gets with what is known.
func (c *Core) advance(g *gang) {
	if g.dropped() {
		return
	}
	g.next, g.looked = time.Time{}, c.now
	for turns := 0; ; turns++ {
		before := g.state
		if c.census.recount(g); !g.tally.again.IsZero() {
			c.wakeAt(g, g.tally.again)
		}
		c.drive(g)
		if g.dropped() {
			return
		}
		if g.state == before {
			break
		}
		if turns > 16 {
			c.wakeAt(g, c.now.Add(c.cfg.AskAgain))
			break
		}
	}
	if g.tally.chargeable > 0 && !g.charge.reserved() && !g.charge.refused() {
		c.takeover.unchargedBound[g.id] = true
	} else {
		delete(c.takeover.unchargedBound, g.id)
	}
	if g.slot() && g.state != holding && g.state != preparing && g.search.round == nil {
		c.searchers.freeSlot(g)
	}
	c.reasons.judge(g)
	c.reports.publish(g)
	c.reports.queueConditions(g)
	c.reports.tellOrder(g)
	if !g.next.Equal(g.wake) {
		g.wake = g.next
		if !g.wake.IsZero() {
			heap.Push(&c.timers, timer{g.wake, g.id})
		}
	}
}

func (c *Core) drive(g *gang) {
	if len(g.charge.condemned) > 0 {
		c.evictions.evictCondemned(g)
	}
	switch g.state {
	case withdrawing:
		c.awaitWithdrawn(g)
		return
	case releasing:
		c.awaitUnreserved(g)
		return
	case closing:
		c.awaitClosed(g)
		return
	case evicting:
		c.evict(g)
		return
	}
	switch {
	case !g.ownerless.IsZero():
		c.awaitPodGroup(g)
	case g.charge.yields != nil:
		c.retreat(g, rollBack)
	case g.leaving():
		c.retire(g)
	case g.charge.closed && !g.started: // by a predecessor, or by the coordinator
		c.retreat(g, rollBack)
	case c.goesStale(g):
	case g.state == collecting:
		c.collect(g)
	case g.state == waiting:
		c.await(g)
	case g.state == ready:
		c.awaitPermit(g)
	case g.state == holding:
		c.hold(g)
	case g.state == preparing:
		c.prepare(g)
	case g.state == binding:
		c.bind(g)
	case g.state == running:
		c.run(g)
	}
}

// collect waits until the gang can ask for its reservation.
func (c *Core) collect(g *gang) {
	t := &g.tally
	if g.started || g.tally.placed >= g.minCount() || g.finished() { // an heir may learn only now that it was
		c.start(g)
		return
	}
	if g.charge.renounced && t.chargeable == 0 {
		c.release(g)
		return
	}
	why := c.obstacle(g)
	if !why.None() {
		if !g.since.IsZero() { // it was complete
			g.edits.ask()
		}
	} else {
		if c.searchers.asleep(g) { // what was found when it fell asleep still holds
			return
		}
		if c.pacing.limitRestarts(g) {
			return
		}
		g.search.fitNowhere(c.reasons.noNode(g))
		switch {
		case g.search.vain.None():
		case g.boundByUs():
			why = g.search.vain
		case t.chargeable > 0 && !g.chargesBound(): // what is bound is charged, and then the rest is asked for in vain
			g.block(report.Requested())
			c.chargeBound(g)
			return
		case t.chargeable == 0 && (g.charge.reserved() || g.charge.claimed()):
			c.release(g)
			return
		}
	}
	if !why.None() || !g.blocked.Outlasts() {
		g.block(why)
	}
	if !why.None() {
		switch {
		case g.boundByUs(): // it stands in part: completed when pods come, or undone
			if g.boundSince.IsZero() {
				g.bindsFrom(c.now)
			}
			c.become(g, binding)
		case t.chargeable > 0: // bound by somebody else: charged all the same
			c.chargeBound(g)
		case c.admitsEarly(g, why):
			c.admit(g)
		case g.charge.reserved() || g.charge.reserve != nil || g.charge.claimed():
			c.release(g)
		}
		return
	}
	if g.status.MaySayStarted(c.now) { // or an heir would complete what it found bound in part
		c.wakeAt(g, c.now.Add(c.cfg.AskAgain))
		return
	}
	g.admission = admission{}
	if g.since.IsZero() {
		g.since, g.complete = c.completeSince(g), c.now
	}
	if c.adoptCharge(g) {
		c.become(g, ready)
		return
	}
	if g.charge.current() && t.bound == 0 {
		if need, _ := g.demand(g.choose()); !need.Fits(g.charge.amounts) {
			c.release(g) // too small for the pods that are there now
			return
		}
	}
	if g.search.vain.None() && c.comesEarly(g) {
		return
	}
	c.requestQuota(g, g.choose(), false)
	c.become(g, waiting)
}

// start takes note that the gang has its minimum.
func (c *Core) start(g *gang) {
	if g.starts() {
		g.status.Starts()
		c.Placed++
		c.takeover.observeBound(g)
		c.traceStarted(g)
		c.reports.tellStarted(g)
	}
	c.become(g, running)
	g.endClaim()
	g.rooms.end()
	if ch := &g.charge; ch.origin == requestedHere || !ch.started { // else what is awaited is for a further pod
		ch.endClaim()
	} else if ch.claim != 0 {
		ch.growBy(1) // it asks for that one alone
	}
	g.unblock()
	g.search.rest()
}

// run keeps a started gang's charge in line with its pods and places further ones.
func (c *Core) run(g *gang) {
	if c.reports.ends(g) {
		c.become(g, collecting)
		return
	}
	if !g.started { // one that has not started was here for its bound pods, as it had no PodGroup, and has one again
		c.retreat(g, startOver)
		return
	}
	if len(g.charge.condemned) == 0 && g.tally.candidates == 0 {
		g.shrunk = ""
	}
	c.fill(g, !c.driveGrowth(g))
	c.adjust(g)
}

// ends takes back that a gang has started, once its life is over: pods that come now are placed all or nothing.
func (c *reports) ends(g *gang) bool {
	t := &g.tally
	if g.isPod() || g.group == nil || t.alive > 0 || t.placed >= g.minCount() || g.finished() {
		return false
	}
	if g.outstanding() || fault.On(fault.StartKept) {
		return false
	}
	c.beginAnew(g)
	g.since, g.complete = time.Time{}, time.Time{} // it waits behind those that wait already
	g.charge.loseRank()
	// The status is the memory of the start.
	if g.status != nil && g.minCount() > 1 && c.cfg.StatusBudget >= 0 && c.writesGroup(g) {
		g.status.RecallStart(c.now)
	}
	return true
}

// bind completes a gang of which something may be bound, or closes it when that takes too long.
func (c *Core) bind(g *gang) {
	if g.tally.placed >= g.minCount() {
		c.start(g)
		return
	}
	if g.tally.rejected.pod != nil {
		g.forget() // or nothing would have it looked at again
	}
	if g.tally.alive == 0 && g.tally.committed == 0 && len(g.lost) == 0 && len(g.commits) == 0 {
		c.retreat(g, startOver) // every pod came back: from the start, all or nothing again
		return
	}
	limit := c.rollUntil(g)
	if !c.now.Before(limit) || g.isRejected() && !c.obstacle(g).None() {
		if g.mayEvict(c.now) {
			if g.mayBind() {
				c.retreat(g, startOver) // and then look again
			} else {
				c.close(g)
			}
			return
		}
		if p := whoStays(g, c.now); p != nil {
			c.wakeAt(g, p.seldom().evictAt.Add(rejectedMost))
		} else if !g.partly && !g.isReplaced() {
			g.reportPartly()
			c.warn(g, "PartlyPlaced", c.partWords(g).Message+"; pods without a controller are not evicted")
		}
	} else {
		c.wakeAt(g, limit)
	}
	c.fill(g, true)
	c.adjust(g)
}

// retire ends a gang here: nothing of it at node shards, then no reservation, then no gang. Bound pods of a PodGroup
// that is gone stay charged until they end.
func (c *Core) retire(g *gang) {
	g.unblock()
	c.searchers.wakeUp(g)
	switch {
	case g.outstanding():
		c.retreat(g, startOver)
	case g.tally.bound > 0:
		g.bindsNothing() // nothing is to be completed; if its group shows again, the time for that starts anew
		c.become(g, running)
		c.adjust(g)
	case g.charge.reserved() || g.charge.reserve != nil || g.charge.claimed():
		c.release(g)
	case !g.moving() || !c.active[api.BucketOf(g.wantQueue)]:
		c.drop(g)
	default:
		g.queue, g.bucket = g.wantQueue, api.BucketOf(g.wantQueue)
		c.become(g, collecting)
		g.charge.leaveQueue()
		g.edits.ask()
		c.touch(g)
	}
}

// forget takes a gang out of all that counts gangs.
func (c *Core) forget(g *gang) {
	g.drop()
	c.rules.leaveEntry(g, collecting)
	c.searchers.freeSlot(g)
	c.searchers.wakeUp(g)
	g.status.Forget()
	delete(c.gangs, g.id)
	delete(c.takeover.unchargedBound, g.id)
}

// drop forgets a gang that is over.
func (c *Core) drop(g *gang) {
	c.keepPace(g)
	c.forget(g)
	c.released.put(g.id, g.message())
	for _, uid := range api.SortedKeys(g.members) {
		p := g.members[uid]
		c.leave(p)
		if c.pods[uid] == p && c.gangs[p.UID] == nil {
			c.resolveMembership(p)
		}
	}
}
