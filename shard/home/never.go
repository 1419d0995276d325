package home

import (
	"slices"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/shard/home/report"
)

// Gangs that no node would take, not even an empty one: summaries say so, or a search has found out, or there are too few topology domains for a pod,
// or those before it in a spread find no room. Whether there is quota for one decides whether
// its pods say Unschedulable, and so whether autoscalers buy nodes for it. So it asks for its reservation all the same, and says that it is in vain
// (Reserve.vain). The coordinator grants nothing and keeps nothing for it, and denies it with DENY_SUPPLY if quota would admit it beside all else that
// waits for nodes. It asks in earnest when nodes come or change.

// noNode returns why no node would take a gang, nothing if one might.
func (c *reasons) noNode(g *gang) report.Reason {
	s := g.search.unfit
	fits := func(p *pod) bool { return p.Class.Key != s.class.Key && p.UID != s.pod.UID }
	if g.isUnfit() && (g.started || !c.setAside(g, fits)) {
		return s.reason(c.whyNoRoom(g, s).said(1))
	}
	g.search.mayFit()
	for {
		r, of, lacks := c.rules.neverFits(g)
		if r.None() {
			break
		}
		keep := func(p *pod) bool { return p.Class.Key != of.Class.Key }
		if of == nil {
			keep = smallest(g, g.choose(), lacks)
		}
		some := len(g.search.aside.pods) > 0
		switch {
		case g.started:
			return r
		case keep != nil && c.setAside(g, keep):
		case !some || !c.rules.drawOthers(g): // some that were set aside may fit with some of these
			return r
		}
	}
	return c.rules.behindStuck(g)
}

// behindStuck says of a pod by itself that no domain lets it in before others of its kind, and that these find no room. A node for them would help
// it, too, and so would one that is a domain of its own: an autoscaler that hears of a few of a thousand pods buys a few nodes at a time.
func (c *rules) behindStuck(g *gang) report.Reason {
	p := g.alone()
	if p == nil || len(p.Class.Joins) == 0 || g.charge.reserved() || g.search.entered != (kin{}) ||
		!c.shards.knowsNodes() {
		return report.Reason{}
	}
	of := g.kinOf(p)
	if last, _ := c.ruledSleepers.turns.get(of); !last.stuck || c.mayEnter(p, of, 0) || c.unsupported(g, p.Pod) {
		return report.Reason{}
	}
	return report.BehindStuck()
}

// isUnfit reports whether a search has found that no node would take a pod of the gang as it is.
func (g *gang) isUnfit() bool {
	s := g.search.unfit
	if s == nil {
		return false
	}
	p := g.members[s.pod.UID]
	return p != nil && p.candidate() && p.Class.Key == s.pod.Class.Key && slices.Contains(g.choose(), p)
}

// askAnew asks for the reservation of a gang once more, for the pods that it has now. vain is what noNode says of it.
func (c *Core) askAnew(g *gang, pods []*pod, vain report.Reason) {
	if g.search.fitNowhere(vain); vain.None() {
		c.searchers.wakeUp(g)
	}
	c.requestQuota(g, pods, false)
}

// turns asks anew if it is known now that no node would take a gang which is denied, or that one might, and reports whether it did. A gang that asks
// in vain sleeps until nodes change.
func (c *Core) turns(g *gang, a *reserveCall) bool {
	s := &g.search
	if a.denied == nil || a.nodes != 0 && a.vain.None() || g.claim != nil || g.charge.claimed() {
		return false
	}
	if at := c.shards.tableAt.Add(c.cfg.NeverAfter); c.now.Before(at) { // not all nodes are known
		c.wakeAt(g, at)
		return false
	}
	if !c.shards.knowsNodes() {
		return false
	}
	p := g.alone()
	joins := p != nil && len(p.Class.Joins) > 0
	switch {
	case a.vain.None():
		a.nodes = c.shards.nodes
	case s.sleep == nil && p != nil && !joins: // else pods may have come, or left, before it was denied
		c.searchers.sleepInVain(g, a)
		return false
	case s.sleep != nil && (s.unfit == nil || g.isUnfit()) && c.searchers.asleep(g):
		return false
	case a.nodes != c.shards.nodes: // what a search found may not hold any more
		s.mayFit()
	}
	vain := c.reasons.noNode(g)
	if vain.None() && !a.vain.None() && joins && g.tally.chargeable == 0 {
		c.release(g) // others of its kind may come first (comesEarly)
		return true
	}
	if vain.None() != a.vain.None() {
		c.askAnew(g, g.choose(), vain)
		return true
	}
	s.fitNowhere(vain)
	a.vain, a.nodes = vain, c.shards.nodes
	if !vain.None() {
		c.searchers.sleepInVain(g, a)
	}
	return false
}

// sleepInVain puts a gang to sleep until nodes are others than those that its request is about.
func (c *searchers) sleepInVain(g *gang, a *reserveCall) {
	g.search.see(c.shards.room, a.nodes)
	c.sleep(g, true)
	if others := g.search.aside; others.drawn > 0 {
		g.search.sleep.latest = others.again // when others of its pods are drawn
	}
	if p := g.alone(); p != nil && (!c.rules.tooFewDomains(g, p).None() || !c.rules.behindStuck(g).None()) {
		c.rules.sleepRuled(g) // there may be enough once pods have left
	}
}

// blockedInVain has a gang blocked that no node would take.
func (c *reasons) blockedInVain(g *gang, a *reserveCall) {
	if s := g.search.unfit; s != nil {
		said := *s
		said.denied = a.denied
		c.blockedShort(g, &said)
		return
	}
	g.search.explain(nil)
	g.block(report.InVain(a.vain, a.denied))
}

// tooFewDomains says of which label the nodes have too few domains for a pod, nothing if they have enough. Where there are some, which let some
// pods in, it says so only of a gang of one, for others may place pods of their own there.
func (c *rules) tooFewDomains(g *gang, p *pod) report.Reason {
	if len(p.Class.Joins) == 0 {
		return report.Reason{}
	}
	rules, ok := c.topology.RulesOf(p.Namespace, c.repellers.labelledAs(p))
	if !ok || rules == nil {
		return report.Reason{}
	}
	l, some := rules.Lacks()
	switch {
	case !some || l.Has > 0 && g.alone() != p:
		return report.Reason{}
	case !l.Spread:
		return report.NoDomainToJoin(p.Pod, l.Label)
	}
	return report.TooFewDomains(p.Pod, l.Label, l.Has, l.Need)
}

// neverFits returns why a gang could not be placed even if the whole cluster were empty, as far as summaries show,
// and the pod that is why, if it is one, or of what all nodes together have too little. It returns nothing before the
// nodes are known.
func (c *rules) neverFits(g *gang) (why report.Reason, of *pod, lacks string) {
	if !c.shards.knowsNodes() {
		return report.Reason{}, nil, ""
	}
	var total, largest api.Resources
	for _, m := range c.table.Members {
		s := c.shards.summaries[m.Incarnation]
		total, largest = total.Add(s.allocatable), largest.Max(s.largest)
	}
	pods := g.choose()
	for _, p := range pods {
		if r, by, exceeds := p.Class.Requests.Exceeds(largest); exceeds {
			want := p.Class.Requests.Value(r)
			return report.PodTooLarge(p.Pod, r, want, want-by), p, r
		}
		if r := c.tooFewDomains(g, p); !r.None() {
			return r, p, ""
		}
	}
	demand := sum(pods)
	if r, by, exceeds := demand.Exceeds(total); exceeds {
		want := demand.Value(r)
		return report.GangTooLarge(len(pods), r, want, want-by), nil, r
	}
	return report.Reason{}, nil, ""
}
