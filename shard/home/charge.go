package home

import (
	"slices"
)

// The charge of a gang: what its reservation is for, and how it is kept at what its pods need. Before a gang starts, it is charged
// for its minimum at once. Later its charge shrinks with its pods, and grows by one request at a time.

// adoptCharge lets a gang use the reservation that it has, if that names its pods and is large enough.
func (c *Core) adoptCharge(g *gang) bool {
	ch := &g.charge
	if !ch.current() || ch.closed || ch.reserve != nil || ch.started && !g.started {
		return false
	}
	pods := g.choose()
	all := append(g.pick((*pod).isChargeable), pods...)
	if total, excess := g.demand(all); excess || !total.Fits(ch.amounts) || !ch.namesAll(g, all) {
		return false
	}
	for _, p := range g.members {
		p.uncharge()
	}
	for _, p := range pods {
		p.charge()
	}
	return true
}

// chargeBound keeps the charge of a gang that waits at what is bound of it.
func (c *Core) chargeBound(g *gang) {
	ch := &g.charge
	have := g.pick((*pod).isChargeable)
	if ch.reserve != nil {
		if len(ch.reserve.pods) == 0 && sum(have).Equal(ch.reserve.demand) && slices.Equal(ids(g, have), ch.reserve.names) {
			c.sendReserve(g)
			return
		}
	} else if g.chargesBound() {
		return
	}
	c.requestQuota(g, nil, false)
}

// chargesBound reports whether what is bound of a gang is charged, and nothing else.
func (g *gang) chargesBound() bool {
	ch, have := &g.charge, g.pick((*pod).isChargeable)
	return ch.reserve == nil && ch.current() && sum(have).Equal(ch.amounts) && ch.namesAll(g, have)
}

// adjust keeps the charge of a gang that is being bound, or runs, at what its pods need. It shrinks at once, and grows by one
// request at a time. Nothing is requested while a Commit is unanswered, because each change of the record moves its revision.
func (c *Core) adjust(g *gang) {
	ch := &g.charge
	if ch.closed {
		if g.tally.bound+g.tally.committed == 0 && len(g.lost) == 0 {
			c.release(g)
		} else if g.started {
			askToOpen(c, g)
		}
		return
	}
	for _, cm := range g.commits {
		if !cm.prepared() && c.isMember(cm.shard) {
			if ch.reserve != nil {
				c.sendReserve(g)
			}
			return
		}
	}
	need := g.pick(func(p *pod) bool { return p.isChargeable() || p.stage == committed || p.charged && p.candidate() })
	base := sum(need)
	if a := ch.reserve; a.grows() && a.pods[0].hasRoom() && base.Add(a.pods[0].Class.Requests).Fits(ch.amounts) {
		a.pods[0].letGo() // it takes the place of a pod that left, and claims nothing
	}
	extra := c.searchers.extras(g)
	if len(g.inDoubt) > 0 && len(need) == 0 && len(g.commits) == 0 {
		c.retreat(g, startOver)
		return
	}
	if a := ch.reserve; a != nil && a.denied == nil {
		c.sendReserve(g)
		return
	}
	if ch.current() {
		room := ch.amounts.Sub(g.goneCondemned()) // the place of those is nobody's
		var replacing []*pod
		for len(extra) > 0 { // a pod may take the place of one that left
			with := base.Add(extra[0].Class.Requests)
			if !with.Fits(room) {
				break
			}
			if ch.names(g, extra[0]) && (ch.reserve == nil || ch.reserve.covers(g, extra[:1])) { // an open request may be granted yet
				extra[0].charge()
				c.touch(g)
			} else {
				replacing = append(replacing, extra[0])
			}
			base, extra = with, extra[1:]
		}
		if len(replacing) > 0 { // of which the record has to say so
			c.requestQuota(g, replacing, true)
			return
		}
		if g.state == binding && base.Fits(ch.amounts) && c.now.Before(c.rollUntil(g)) {
			base = ch.amounts // what it lacks is kept for a pod that takes the place
		}
		base = c.keptFor(g, base)
	}
	base = g.withFloor(base)
	if ch.reserve != nil && len(need) == 0 && ch.current() && ch.amounts.IsZero() && !g.outstanding() {
		c.release(g) // a record of nothing would keep a deleted queue, which grants nothing any more, for ever
		return
	}
	claims := g.claim != nil || ch.claim != 0
	if a := ch.reserve; a != nil && a.growth && g.started && !claims && ch.current() &&
		c.rules.triesFewer(g, a) {
		if extra = c.searchers.extras(g); len(extra) > 0 {
			c.requestQuota(g, extra[:1], true)
			return
		}
	}
	if a := ch.reserve; a != nil && a.vain.None() && !ch.asksFewer() && a.covers(g, need) {
		if len(a.pods) == 0 && base.Equal(a.demand) || len(a.pods) > 0 && base.Equal(ch.amounts) && stillExtra(g, a.pods) {
			c.sendReserve(g)
			return
		}
	}
	named := !ch.reserved() || ch.namesAll(g, need)
	if ch.reserve == nil && ch.current() && named && len(need) > 0 && len(extra) == 0 &&
		!base.Equal(ch.amounts) && base.Fits(ch.amounts) {
		if at := ch.shrunk.Add(shrinkPause(len(ch.pods))); c.now.Before(at) {
			c.wakeAt(g, at)
			return
		}
	}
	switch {
	case len(extra) == 0 && !g.outstanding() && base.IsZero():
		if ch.reserved() || ch.reserve != nil {
			c.release(g)
		}
	case ch.record == outdated, ch.reserved() && (!named || !base.Equal(ch.amounts) || g.saysLeast()),
		!ch.reserved() && !base.IsZero(),
		ch.reserved() && ch.reserve == nil && (c.unremembered(g) || ch.namesOthers(need)):
		c.requestQuota(g, nil, true)
	case len(extra) > 0 && (g.tally.committed == g.tally.charged || g.search.sleep != nil): // one growth at a time
		if g.edits.growthDenied && !ch.asksFewer() {
			if g.edits.ask(); c.pacing.limitRestarts(g) {
				if ch.reserve != nil {
					c.sendReserve(g)
				}
				return
			}
		}
		if ch.most > 0 && len(extra) > ch.most {
			extra = extra[:ch.most]
		}
		c.requestQuota(g, extra, true)
	case ch.reserve != nil: // what it requested is not wanted any more
		if ch.reserved() {
			c.requestQuota(g, nil, true)
		} else {
			c.release(g)
		}
	}
}

// askToOpen has a gang go on that was completed, or whose minimum was lowered, while it was closed: a Reserve that says
// that it has started opens its reservation again, unless it is to yield.
func askToOpen(c *Core, g *gang) {
	if a := g.charge.reserve; a != nil && sum(g.pick((*pod).isChargeable)).Equal(a.bound) {
		c.sendReserve(g)
		return
	}
	c.requestQuota(g, nil, true)
}

// unremembered reports whether no heir would know that the gang has started: its record does not say so, and there is no object with a
// status of Basalt's that does.
func (c *common) unremembered(g *gang) bool {
	return g.started && !g.charge.started && !g.isPod() && g.group != nil && !c.writesGroup(g)
}

func stillExtra(g *gang, pods []*pod) bool {
	for _, p := range pods {
		if p.gang != g || !p.candidate() || p.charged {
			return false
		}
	}
	return true
}

// extras returns the pods that could be charged in addition, oldest first: all of a started gang, as many as its minimum
// lacks of another.
func (c *searchers) extras(g *gang) []*pod {
	if g.leaving() || g.mismatch || g.group != nil && g.group.Deleting || g.search.gaveUp && c.asleep(g) {
		return nil
	}
	pods := slices.DeleteFunc(g.candidates(), func(p *pod) bool { return p.charged || p.stage != nowhere })
	if !g.started {
		pods = g.foremost(pods, g.minCount()-g.tally.placed-g.tally.charged, true)
	}
	return pods
}
