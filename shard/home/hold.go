package home

import (
	"slices"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/shard/home/report"
)

// The search for capacity. A gang that is reserved searches when its turn comes (sleep.go), round by round (round.go),
// until every charged pod has a hold, in several orders, and with others of its pods (others.go). Which node shard is
// asked next, and for which pods, follows from their summaries (choose.go, summary.go).
//
// A round that does not find enough is followed by a pause (sleep.go) and another round. Meanwhile the gang keeps its partial
// holds, because where pods come and go, its capacity accumulates bit by bit. But it keeps them only while it finds more than it
// ever had: a gang that sits on partial holds starves gangs that could start with that capacity. The one patient gang is the
// exception. A gang that does not find enough within Config.GiveUpAfter gives its reservation back.

// valid reports whether what is reserved is still what is to be placed.
func (c *common) valid(g *gang) bool {
	return g.charge.current() && g.charge.reserve == nil && c.obstacle(g).None() &&
		g.tally.placed+g.tally.charged == g.minCount() && len(g.lost) == 0
}

// awaitPermit waits until the gang has a slot.
func (c *Core) awaitPermit(g *gang) {
	if !c.valid(g) {
		c.retreat(g, edited)
		return
	}
	if g.tally.placed >= g.minCount() { // somebody else bound it
		c.retreat(g, startOver)
		return
	}
	switch {
	case g.claim != nil:
		c.claims.driveClaim(g)
	case g.charge.keepsRooms():
		c.searchers.wakeUp(g)
		c.keepRooms(g)
	}
	if c.searchers.asleep(g) || !c.rules.barred(g) && !c.searchers.takeSlot(g) {
		return
	}
	g.search.begin(c.now)
	c.become(g, holding)
}

// hold searches until every charged pod has a hold.
func (c *Core) hold(g *gang) {
	if !c.valid(g) {
		c.retreat(g, edited)
		return
	}
	if g.tally.placed >= g.minCount() {
		c.retreat(g, startOver)
		return
	}
	if g.claim != nil {
		if c.claims.driveClaim(g); g.claim != nil {
			c.searchers.freeSlot(g)
			return
		}
	}
	switch {
	case g.charge.keepsRooms(): // GiveUpAfter and StallAfter do not count: others leave for it
		if !c.keepRooms(g) {
			c.searchers.freeSlot(g)
			return
		}
	case c.giveUpIfOverdue(g):
		return
	case c.searchers.drains(g):
		if !c.keepRooms(g) {
			c.claims.sayStuck(g)
			c.searchers.freeSlot(g)
			if c.searchers.drainedInVain(g) {
				c.claims.withdrawRooms(g)
				g.search.firstOrder()
				c.mark(g)
			}
			return
		}
	default:
		c.searchers.releaseStalled(g)
		if c.searchers.asleep(g) {
			c.claims.sayStuck(g)
			return
		}
		if !c.seek(g) {
			c.searchers.releaseStalled(g)
			if g.state == holding && g.search.sleep != nil {
				c.claims.sayStuck(g)
				if c.searchers.drains(g) {
					c.mark(g)
				}
			}
			return
		}
	}
	if !c.together(g) {
		return
	}
	c.traceHeld(g)
	g.search.mended()
	c.become(g, preparing)
}

// drains reports whether the gang waits for nodes to become free on their own: the patient one, once a round found too
// little. What is free then stays free for it where it waits, and as those leave who run there, it gets all of the
// node. Otherwise a gang of whole nodes would never start beside short pods: there are always some on every node.
func (c *searchers) drains(g *gang) bool {
	switch {
	case !g.charge.patient || g.charge.claimed(): // another leaves for it
		return false
	case g.rooms.drains:
		return true
	case g.state != holding || g.search.sleep == nil || g.search.round != nil:
		return false
	case g.group != nil && (g.group.Required != "" || g.group.Slice.Key != "" || g.group.Preferred != ""):
		return false
	}
	if c.rules.topology.Concerned(g.name.Namespace) || slices.ContainsFunc(g.pick(waitsNowhere), func(p *pod) bool {
		return len(p.Class.Joins)+len(p.Class.Repels) > 0
	}) {
		return false // they are promised nothing
	}
	c.wakeUp(g)
	g.rooms.drain(c.now)
	return true
}

// giveUpAt returns when a gang that finds no room is given up. A patient one keeps what it holds: for how long is not
// for its PodGroup to say, for the next gang is the patient one by then.
func (c *common) giveUpAt(g *gang) time.Time {
	if g.charge.patient {
		return g.search.since.Add(c.cfg.PatientFor)
	}
	return g.search.since.Add(g.searchFor(c.cfg.GiveUpAfter))
}

// holdFor returns how long holds are requested for. Those of a patient gang last until it is given up: it may sleep for longer
// than Config.HoldFor, and nothing renews them meanwhile.
func (c *common) holdFor(g *gang) time.Duration {
	if !g.charge.patient {
		return c.cfg.HoldFor
	}
	return max(c.cfg.HoldFor, c.giveUpAt(g).Sub(c.now))
}

// giveUpIfOverdue gives up a gang that did not find enough capacity in time, and reports whether it did.
func (c *Core) giveUpIfOverdue(g *gang) bool {
	at := c.giveUpAt(g)
	if c.now.Before(at) {
		c.wakeAt(g, at)
		return false
	}
	c.GaveUp++
	if g.blocked.None() {
		g.block(report.SilentShards())
	}
	c.rules.noteStuck(g)
	c.retreat(g, giveUp)
	return true
}

// releaseStalled withdraws the partial holds of a gang that sleeps, once they have not grown for Config.StallAfter. The next search comes
// after the longest pause.
func (c *searchers) releaseStalled(g *gang) {
	s := &g.search
	if s.sleep == nil || g.charge.patient || fault.On(fault.WithoutStall) {
		return
	}
	if len(g.pick(isHeld)) == 0 {
		return
	}
	if at := s.gained.Add(c.cfg.StallAfter); c.now.Before(at) {
		c.wakeAt(g, at)
		return
	}
	c.releaseHeld(g)
	s.backOff(c.cfg.BackoffMax)
	s.sleep.notBefore = c.now.Add(s.backoff)
	s.sleep.early = s.sleep.notBefore
	c.touch(g)
}

// releaseHeld withdraws what a gang holds.
func (c *searchers) releaseHeld(g *gang) {
	of := map[api.Incarnation][]*pod{}
	for _, p := range g.pick(isHeld) {
		of[p.shard] = append(of[p.shard], p)
	}
	serial, classes := c.serial(g), askedBy(g.members)
	for _, shard := range api.SortedKeys(of) {
		c.shards.summaries[shard].giveBack(of[shard], classes)
		for _, p := range of[shard] {
			p.letGo()
		}
		if c.isMember(shard) {
			c.sendWithdraw(g, shard, serial, nil)
		}
	}
	c.census.recount(g)
}

// uncharge ends the charge of further pods of a started gang that find no capacity. They are charged again when the gang wakes.
func (c *common) uncharge(g *gang) {
	if !g.started {
		return
	}
	for _, p := range g.members {
		if p.charged && p.stage == nowhere {
			p.uncharge()
		}
	}
	g.search.stop()
	c.touch(g)
}
