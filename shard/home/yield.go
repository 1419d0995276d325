package home

import (
	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/shard/home/report"
)

// Yielding: a gang is evicted as a whole so that another one can start, or because it is stale (repair.go). The
// coordinator has closed its reservation, and says so until it is given back. Its home withdraws what it requested,
// evicts its bound pods, also those without a controller (the record said that they may be evicted), and gives the
// reservation back. Then the gang waits as one that has not started: all or nothing again, with its age and its rank.
// Pods of it that are made meanwhile wait for that.
//
// The memory of its start is the status of its PodGroup. It is taken back before the reservation is given back: an heir that finds the
// one without the other would take the gang for started, and place its pods one by one.

// onYield begins to evict a gang.
func (c *Core) onYield(m *wire.Yield) {
	g := c.gangs[m.GetGang().GetUid()]
	if g == nil {
		c.refuse(m.GetGang().GetUid(), m.GetAttempt())
		return
	}
	ch := &g.charge
	switch {
	case m.GetAttempt() != ch.attempt || g.dropped():
		return
	case g.state == releasing:
		ch.open.sent = ch.open.sent.Add(-c.cfg.AskAgain) // it crossed our Unreserve
	case g.state == waiting && !ch.reserved() && ch.reserve != nil && g.tally.bound == 0:
		// A Granted was lost: nothing was placed under it.
		c.release(g)
	case !ch.reserved() || ch.yields != nil:
		return
	default:
		c.yields(g, m.GetTo())
	}
	c.mark(g)
}

// yields closes a gang that runs, and says so.
func (c *Core) yields(g *gang, to *wire.Yielding) {
	c.yield(g, to)
	c.warn(g, g.blocked.Code, report.Short(to.GetWhy()+c.evictions.disrupts(g.pick((*pod).goesWith))))
	switch to.GetRule() {
	case wire.Rule_RULE_STALE:
		c.RolledBack++
	case wire.Rule_RULE_PREEMPT:
		c.Preempted++
	default:
		c.Reclaimed++
	}
}

// yield takes note that a gang is closed because others are to start.
func (c *common) yield(g *gang, to *wire.Yielding) {
	ch := &g.charge
	// No status says so of one that this home knows not to have started.
	ch.yield(c.now, to, g.started || ch.origin != requestedHere)
	g.endClaim()
	g.status.RecallStart(c.now)
	g.life.yields(report.Short(to.GetWhy()))
	g.block(report.Yielded(to))
}

// startForgotten reports whether nothing says any more that a gang has started, once nothing of it is bound.
func (c *common) startForgotten(g *gang) bool {
	g.forgetStart()
	if g.group == nil || g.name.Kind == api.ImpliedGroup || !c.writesGroup(g) {
		return true
	}
	if g.status.StartRecalled(c.now) || !g.charge.recalls || c.cfg.StatusBudget < 0 {
		return true
	}
	g.status.RecallStart(c.now) // of a PodGroup that was not known yet when it had to yield
	return false
}

// whyEvicted returns what is said to the pods of a gang that are evicted.
func (g *gang) whyEvicted() string {
	if to := g.charge.yields; to != nil {
		return report.Short(to.GetWhy())
	}
	return ""
}
