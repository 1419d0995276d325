package home

import (
	"basalt.dev/basalt/api"
	"basalt.dev/basalt/shard/home/report"
)

// Gangs that no node would take, not even an empty one: summaries say so, or a search has found out. Whether there is quota for one decides whether
// its pods say Unschedulable, and so whether autoscalers buy nodes for it. So it asks for its reservation all the same, and says that it is in vain
// (Reserve.vain). The coordinator grants nothing and keeps nothing for it, and denies it with DENY_SUPPLY if quota would admit it beside all else that
// waits for nodes. It asks in earnest when nodes come or change.

// noNode returns why no node would take a gang, nothing if one might.
func (c *Core) noNode(g *gang) report.Reason {
	if s := g.search.unfit; s != nil {
		if p := g.members[s.pod.UID]; p != nil && p.candidate() && p.Class.Key == s.pod.Class.Key {
			return s.reason(c.whyNoRoom(g, s.class))
		}
		g.search.unfit = nil
	}
	return c.neverFits(g)
}

// asksAnew asks for the reservation of a gang once more if it is known now that no node would take it, or that one might, and reports whether it does.
func (c *Core) asksAnew(g *gang, a *reserveCall) bool {
	s := &g.search
	switch {
	case a.denied == nil || !c.knowsNodes() || g.claim != nil || g.charge.claimed():
		return false
	case !a.judged: // nodes were not known when it asked
		if at := c.tableAt.Add(c.cfg.NeverAfter); c.now.Before(at) {
			c.wakeAt(g, at)
			return false
		}
		a.judged = true
	case a.vain.None():
		return false
	case s.sleep == nil:
		c.sleepInVain(g, a)
		return false
	case c.asleep(g):
		return false
	case a.nodes != c.nodes: // what a search found may not hold any more
		s.unfit = nil
	}
	s.vain, a.nodes = c.noNode(g), c.nodes
	if s.vain.None() != a.vain.None() {
		c.requestQuota(g, c.choose(g), false)
		return true
	}
	if a.vain = s.vain; !a.vain.None() {
		c.sleepInVain(g, a)
	}
	return false
}

// sleepInVain puts a gang to sleep until nodes are others than those that its request is about.
func (c *Core) sleepInVain(g *gang, a *reserveCall) {
	g.search.room, g.search.nodes = c.room, a.nodes
	c.sleep(g, true)
}

// blockedInVain has a gang blocked that no node would take.
func (c *Core) blockedInVain(g *gang, a *reserveCall) {
	if s := g.search.unfit; s != nil {
		said := *s
		said.denied = a.denied
		c.blockedShort(g, &said)
		return
	}
	g.search.short = nil
	g.blocked = report.InVain(a.vain, a.denied)
}

// neverFits returns why a gang could not be placed even if the whole cluster were empty, as far as summaries show. It returns
// nothing before the nodes are known.
func (c *Core) neverFits(g *gang) report.Reason {
	if !c.knowsNodes() {
		return report.Reason{}
	}
	var total, largest api.Resources
	for _, m := range c.table.Members {
		s := c.summaries[m.Incarnation]
		total, largest = total.Add(s.allocatable), largest.Max(s.largest)
	}
	pods := c.choose(g)
	for _, p := range pods {
		if r, by, exceeds := p.Class.Requests.Exceeds(largest); exceeds {
			want := p.Class.Requests.Value(r)
			return report.PodTooLarge(p.Pod, r, want, want-by)
		}
	}
	demand := sum(pods)
	if r, by, exceeds := demand.Exceeds(total); exceeds {
		want := demand.Value(r)
		return report.GangTooLarge(len(pods), r, want, want-by)
	}
	return report.Reason{}
}
