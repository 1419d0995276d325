package home

import (
	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/shard/home/intake"
	"basalt.dev/basalt/shard/home/report"
)

// Why a gang is blocked. Package report has the reasons, their words, and where each one shows. Here is which of them holds, most
// important first:
//
//	obstacle     its objects do not make a gang that may be placed: no reservation is requested
//	judge        its request is denied or not answered. Perhaps no node, nor all of them together, could take it (never.go)
//	endRound     it is reserved and does not fit now (round.go)
//
// gang.blocked holds the reason, and is kept until another one or none holds: that a gang did not fit stays the reason while it
// requests its reservation again. gang.uncharged holds why pods that somebody else bound are not charged.

// closedToPods returns why no further pod of a PodGroup is placed, whatever capacity and quota there are.
func (c *common) closedToPods(g *gang) report.Reason {
	switch {
	case g.group == nil && !g.mismatch:
	case g.mismatch:
		return mismatchWords(c.objects, g)
	case g.group.Deleting:
		return report.Deleted()
	case g.group.Refused != nil:
		return report.GroupRefused(g.group.Refused)
	}
	return report.Reason{}
}

// mismatchWords says why it is not known which queue a gang is for.
func mismatchWords(objects *intake.Objects, g *gang) report.Reason {
	if g.group == nil {
		for _, p := range g.members {
			return report.QueueElsewhere(p.QueueElsewhere)
		}
		return report.Reason{}
	}
	if words := objects.GroupElsewhere(g.group); words != "" {
		return report.QueueElsewhere(words)
	}
	return report.QueueMismatch(objects.Mismatch(g.group))
}

// obstacle returns why a gang cannot request its reservation, nothing if it can.
func (c *common) obstacle(g *gang) report.Reason {
	t, least := &g.tally, g.minCount()
	closed := c.closedToPods(g)
	switch {
	case g.kind == orphanPod:
		missing := g.missingGroup()
		return report.NoPodGroup(missing.Kind, missing.String())
	case !closed.None():
		return closed
	case g.finished():
		return g.endWords()
	case t.placed+t.candidates >= least:
		if role, have := g.lacks(); role != nil {
			return report.NotEnoughOfRole(have, role)
		}
		if why := c.tooLong(g); !why.None() && t.placed == 0 {
			return why
		}
		if why := g.search.rejected.restsAsWhole(g); !why.None() {
			return why
		}
		return g.lacksVolumes()
	case t.placed+t.candidates+t.refusals >= least:
		return t.refused.words()
	case g.isPod() && t.withheld > 0:
		return report.PodWithheld()
	case g.isPod():
		return report.PodNotReady()
	}
	words := report.NotEnoughPods(t.placed+t.candidates, least, report.Kept{Failed: t.failed, Gated: t.gated,
		Withheld: t.withheld, Refused: t.refusals, Elsewhere: t.elsewhere})
	switch pods := len(g.members); {
	case pods >= least:
	case g.name.Kind == api.ImpliedGroup:
		words.Message += report.MadeInTurn(makerOf(g))
	default:
		words.Message += report.TooFewName(pods, g.name.Kind)
	}
	return words
}

// missingGroup returns the PodGroup that the pod of a gang of one names.
func (g *gang) missingGroup() intake.Name {
	for _, p := range g.members {
		return p.InGroup
	}
	return g.name
}

// judge finds out why a gang is blocked that requested something, and ends what was so before.
func (c *reasons) judge(g *gang) {
	a := g.charge.reserve
	g.uncharged = c.judgeUncharged(g)
	others := g.state == running && g.tally.candidates > g.tally.charged
	if a == nil {
		if g.charge.reserved() && g.blocked.OfCharge() {
			g.unblock()
		}
		if others {
			if closed := c.closedToPods(g); !closed.None() {
				g.blocked = closed
			}
		}
		return
	}
	if others && a.denied != nil && len(a.pods) == 0 { // it asks for others once those that have a node are charged
		g.blocked = report.Denied(a.denied)
	}
	grows := (a.growth || g.state == running) && len(a.pods) > 0 // it may have started without what it asked for
	if g.state != waiting && !grows && !(g.state == collecting && a.forNobody()) {
		return
	}
	switch {
	case a.denied != nil && !a.vain.None() && !g.charge.claimed():
		c.blockedInVain(g, a)
	case a.denied.GetReason() == wire.DenyReason_DENY_SUPPLY && !g.charge.claimed():
		c.blockedForSupply(g, a)
	case a.denied != nil:
		if g.blocked = report.Denied(a.denied); g.charge.claimed() {
			g.blocked.Message = report.Claims(g.charge.victims)
		}
	case !a.sent.IsZero() && !c.now.Before(a.at.Add(c.cfg.CoordinatorQuiet)):
		g.blocked = report.NoCoordinator()
	default:
		c.wakeAt(g, a.at.Add(c.cfg.CoordinatorQuiet))
		if !g.blocked.Outlasts() {
			g.blocked = report.Requested()
		}
	}
}

// judgeUncharged returns why some pods of a gang have a node and no charge: the coordinator denies it, as for a namespace that may
// not use the queue, or they cannot run (foreign.go).
func (c *common) judgeUncharged(g *gang) report.Reason {
	ch := &g.charge
	a := ch.reserve
	switch {
	case g.tally.bound == 0 || ch.elsewhere():
		return report.Reason{}
	case a != nil && a.denied != nil && !a.bound.IsZero() && !(ch.reserved() && a.bound.Fits(ch.amounts)):
		return report.Uncharged(report.Denied(a.denied))
	case g.tally.bound-g.tally.lost > g.tally.chargeable:
		return report.Unusable()
	}
	return report.Reason{}
}

// reservedVerdict returns the condition QuotaReserved of a gang.
func (g *gang) reservedVerdict() report.Verdict {
	placing := g.state == ready || g.state == holding || g.state == preparing || g.state == binding || g.state == running
	switch {
	case !g.uncharged.None() && !g.charge.reserved():
		return report.Verdict{Reason: g.uncharged}
	case g.charge.reserved() && (placing || g.state == withdrawing) || g.started && g.charge.reserve == nil:
		v := report.Verdict{Yes: true, Reason: report.Reserved(g.queue)}
		if !g.uncharged.None() {
			v.Message += "; " + g.uncharged.Message
		}
		return v
	case g.blocked.NoRoom():
		return report.Verdict{Reason: report.NoCapacity()}
	case g.blocked.Outlasts():
		return report.Verdict{Reason: report.ReleasedFor(g.blocked)}
	case !g.blocked.None():
		return report.Verdict{Reason: g.blocked}
	}
	return report.Verdict{Reason: report.NotRequested()}
}

// scheduledVerdict returns the condition PodGroupInitiallyScheduled of a gang.
func (c *common) scheduledVerdict(g *gang) report.Verdict {
	switch {
	case g.started:
		return report.Verdict{Yes: true, Reason: report.Scheduled(g.minCount())}
	case g.partly:
		return report.Verdict{Reason: c.partWords(g)}
	case g.blocked.OfPlacing() || g.blocked.Is(v1beta1.ReasonWaiting):
		return report.Verdict{Reason: g.blocked}
	}
	return report.Verdict{Reason: report.NotPlaced()}
}

// nowReason returns of the conditions of a gang, and of what keeps further pods of it waiting, what matters to its users now.
func nowReason(g *gang, reserved, scheduled report.Verdict) report.Reason {
	switch {
	case g.finished(), scheduled.Yes && !g.words().None():
		return g.words()
	case scheduled.Yes:
		return report.Reason{Code: scheduled.Code}
	case !scheduled.Is(v1beta1.ReasonWaiting):
		return scheduled.Reason
	case !reserved.Yes:
		return reserved.Reason
	}
	return scheduled.Reason
}

// partWords says that a gang was bound in part for too long.
func (c *common) partWords(g *gang) report.Reason {
	if why := g.tally.rejected.words(); !why.None() {
		return report.PartlyRejected(g.tally.placed, g.minCount(), why)
	}
	if whoStays(g, c.now) != nil {
		return report.PartlyStays(g.tally.placed, g.minCount())
	}
	return report.Partly(g.tally.placed, g.minCount(), c.cfg.RollForward)
}

// podReason returns what PodScheduled=False of a pod is to say, nothing if it is not to be written.
func (g *gang) podReason(p *pod) report.Reason {
	switch {
	case p.Node != "" || p.Finished || p.Deleting || p.Gated || !p.Ours || p.withheld || p.absence == gone:
		return report.Reason{}
	case p.refusal() != nil:
		return report.Reason{Code: p.refusal().Reason, Message: p.refusal().Message}
	case p.stage == committed || p.stage == bound || g.state == preparing:
		return report.Reason{}
	case g.state == binding && (!g.partly || p.stage != nowhere):
		return report.Reason{}
	}
	switch {
	case p.told != "" && g.blocked.Is(v1beta1.ReasonWaiting):
		return g.blocked // others leave for it: no node is to be bought, and quota is not what it lacks
	case g.blocked.Is(v1beta1.ReasonPending) && g.charge.othersHave():
		return g.blocked // it lasts as long as the pods of the other gang
	}
	return g.blocked.OnPod()
}

// restsAsWhole returns why a gang that was undone rests, nothing if it does not.
func (x *rejection) restsAsWhole(g *gang) report.Reason {
	if x.why != nil && g.group != nil && g.group.Generation == x.group {
		for _, p := range g.members {
			if p.Node == "" && !p.Finished && !p.Deleting && p.Owner == x.owner {
				return report.Reason{Code: x.why.Reason, Message: x.why.Message}
			}
		}
	}
	return report.Reason{}
}
