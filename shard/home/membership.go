package home

import (
	"strings"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/shard/home/intake"
)

// Membership: which gang a pod belongs to.
//
// A pod without a node belongs to the PodGroup that has the name in its label now. A bound pod stays with the gang and the queue
// under which it was bound until it ends, for its owner may edit its labels at any time and must not move its charge (pinned). For
// which gang a pod was bound is known, in this order:
//
//	from its Commit                             while the home that committed it lives
//	from the word that its Binding landed       at a home that did not commit it, until its watch shows the pod bound (claim)
//	from the reservation that names it          at a takeover: no label is tamper-proof, the control store is
//	from its labels when it was first seen bound    for a pod that no reservation names
//
// So labels count once, when a pod is first seen with a node: later edits change nothing. A bound pod whose PodGroup does not exist
// is a gang of one, charged to the queue of its own labels. Shards that saw different labels may both claim a pod; the coordinator
// charges it once, and denies the other (DENY_CHARGED_ELSEWHERE). A pod joins a gang only in its own namespace.
//
// Two exceptions, both where the old and the new queue are the same: a pod that was made after the present PodGroup,
// and bound for an earlier one of that name because its home had not heard yet that the earlier one was gone, is the
// present one's. So is every bound pod of a PodGroup that is made again, at once if it is Volcano's, whose
// controllers do that under running pods, and else if it still runs after a while: whoever deletes a PodGroup and its
// pods and makes both again starts anew.

// pin has a bound pod stay with the gang that it was bound for, as far as its labels tell, and with the queue that pays.
func (c *Core) pin(p *pod) {
	if p.Payer == "" && p.InQueue == "" && p.InGroup == (intake.Name{}) {
		p.Payer, _ = c.objects.PodQueue(p.Entry)
	}
	if p.pinned != "" {
		return
	}
	if of := c.takeover.named[p.id]; of != nil && of.namespace == p.Namespace {
		p.pinOwn(of.uid)
		return
	}
	g := c.objects.Group(p.InGroup)
	switch {
	case g != nil && (p.Gang == "" || p.Gang == g.UID):
		p.pin(g.UID)
	case p.Gang != "" && p.Gang != p.UID && p.InGroup != (intake.Name{}):
		p.pinAsSaid(p.Gang)
	}
}

// recheckYoung looks again at the pods of PodGroups that were first seen a while ago.
func (c *Core) recheckYoung() {
	for len(c.young) > 0 && !c.now.Before(c.young[0].Seen.Add(outlives)) {
		g := c.young[0]
		c.young[0] = nil
		c.young = c.young[1:]
		if !c.objects.Exists(g) {
			continue
		}
		for _, uid := range c.objects.Naming(g.Name) {
			if p := c.pods[uid]; p.pinned != "" && p.pinned != g.UID {
				c.resolveMembership(p)
			}
		}
	}
}

// movesTo reports whether a bound pod that is pinned to an earlier PodGroup belongs to the present one. It does not move to
// another queue, nor away from a gang that another shard has, nor from one whose PodGroup this shard has yet to see: the
// present one may be the earlier of the two, in a list that lags. Nor does it move once its eviction was asked for: that may come about
// at any time, under the reservation that was closed, or condemned it, until that is opened again.
func (c *Core) movesTo(p *pod, to *intake.Group) bool {
	g := c.gangs[p.pinned]
	opened := !p.seldom().remains.since.IsZero() && g != nil && !g.charge.closed && g.charge.condemned[p.UID] == nil
	if !c.meantFor(p, to) || p.seldom().evicting != 0 || !p.seldom().evictAt.IsZero() && !opened {
		return false
	}
	if g == nil {
		return !p.sure
	}
	if !g.isPod() && !g.ownerless.IsZero() {
		return false
	}
	queue, known, _ := c.objects.GroupQueue(to)
	return known && queue == g.queue && (g.name == to.Name || g.isPod() && p.burden != byUs && !g.charge.reserved())
}

// resolveMembership finds the gang of a pod whose state or surroundings changed.
func (c *Core) resolveMembership(p *pod) {
	pinned := c.gangs[p.pinned]
	forged := pinned != nil && (pinned.name.Namespace != p.Namespace || !p.sure && pinned.name != p.InGroup)
	if p.pinned != "" && p.Node == "" && (p.stage == nowhere || p.stage == held || p.stage == promised || pinned == nil) || forged {
		pinned = nil
		p.unpin() // nothing of that gang can bind it any more, or nobody knows
	}
	grp := c.objects.Group(p.InGroup)
	if p.pinned != "" && (grp == nil || grp.UID != p.pinned && !c.movesTo(p, grp)) {
		c.fileLoose(p, grp)
		switch {
		case pinned != nil:
			c.revote(c.objects.Withdraw(p.Entry))
			if pinned.isPod() {
				pinned.found()
				pinned.becomePod(false)
			}
			c.join(p, pinned)
			return
		case p.sure: // another shard has it
			c.revote(c.objects.Withdraw(p.Entry))
			c.leave(p)
			return
		}
		grp = nil // nobody vouches for the gang that the label names: it is claimed as a gang of one
	}
	c.fileLoose(p, grp)
	if grp != nil {
		p.alone = false
		c.revote(c.objects.Cast(p.Entry, grp))
		if g := c.gangs[grp.UID]; g != nil {
			c.join(p, g)
		} else {
			c.leave(p)
		}
		return
	}
	c.revote(c.objects.Withdraw(p.Entry))
	// A gang of one, or a pod whose PodGroup does not exist: while it has no node, that is only reported.
	orphan := p.InGroup != (intake.Name{}) && !p.isBound() && !c.startsAlone(p)
	queue, known := c.objects.PodQueue(p.Entry)
	relevant := !p.Finished && (p.Ours || p.isBound())
	g := c.gangs[p.UID]
	switch {
	case g != nil:
		if !known {
			queue = g.queue
		}
		g.found()
		g.becomePod(orphan)
		g.seeQueue(queue, c.objects.PodElsewhere(p.Entry) != "")
		c.join(p, g)
	case relevant && known && c.active[api.BucketOf(queue)]:
		g = c.newGang(p.UID, queue, intake.Name{Namespace: p.Namespace, Name: p.Name})
		g.first = c.now
		g.becomePod(orphan)
		g.seeQueue(queue, c.objects.PodElsewhere(p.Entry) != "")
		c.join(p, g)
	default:
		c.leave(p)
	}
}

// Volcano's podgroup controller makes a PodGroup for the pods of a ReplicaSet or a StatefulSet, named after the UID of that one, and
// deletes it by name when that one has no pods. It may do so late, when a new pod already names it, and then nobody makes it again
// (volcano-sh/volcano#5972). Such a pod would wait for ever. It is placed by itself if that is what its PodGroup asked for: a minimum of
// one pod. What a PodGroup asked for is known only where it was seen; elsewhere the pod waits, and says for what.

// rememberLost takes note of a PodGroup that is gone, if a pod that names it may be placed by itself.
func (c *Core) rememberLost(g *intake.Group) {
	if g.Name.Kind == api.VolcanoGroup && strings.HasPrefix(g.Name.Name, api.VolcanoPerController) && g.MinCount == 1 && g.Refused == nil {
		c.lostGroups.put(lostKey(g.Name), struct{}{})
	}
}

// startsAlone reports whether a pod whose PodGroup does not exist is placed by itself. The answer is remembered with the pod, because
// names are forgotten when many others follow them.
func (c *Core) startsAlone(p *pod) bool {
	if !p.PerController {
		return false
	}
	if !p.alone {
		_, p.alone = c.lostGroups.get(lostKey(p.InGroup))
	}
	return p.alone
}

func lostKey(n intake.Name) string { return n.Namespace + "/" + n.Name }

// claim has a pod join the gang that it was bound for, if its labels say otherwise: its PodGroup was deleted, or its label edited,
// while the Binding was on its way, and the watch has not shown yet that it is bound. Until it does, nothing else would say that
// the gang has to stay charged for it. Only a pod that the gang's reservation names can have been bound for it. It returns nil if
// there is nothing to claim.
func (c *Core) claim(g *gang, uid string) *pod {
	p := c.pods[uid]
	if p == nil || p.Node != "" || p.stage == bound || p.Finished || p.Namespace != g.name.Namespace || !g.charge.names(g, p) {
		return nil
	}
	c.leave(p)
	p.commits(nil)
	p.pinOwn(g.id)
	if c.resolveMembership(p); p.gang != g {
		p.letGo()
		return nil
	}
	return p
}

func (c *Core) join(p *pod, g *gang) {
	if p.gang != g {
		c.leave(p)
		p.gang = g
		g.members[p.UID], g.order = p, nil
		g.edited() // it may fit now
		c.reports.tellUnheeded(p)
		if p.Node != "" {
			p.pin(g.id)
			c.podBound(p, p.Node)
		} else {
			c.searchers.hasten(g) // another may find room where those that came before found none
		}
		// The last that a large gang waited for is not looked at later, but now, unless such looks take more than a part of the time.
		if g.state == collecting && len(g.members) == g.minCount() && !c.now.Before(g.looked.Add(time.Duration(len(g.members))*2*time.Microsecond)) {
			c.mark(g)
			return
		}
	}
	c.touch(g)
}

// leave takes a pod out of its gang and forgets what was asked for it there.
func (c *Core) leave(p *pod) {
	g := p.gang
	if g == nil {
		return
	}
	delete(g.members, p.UID)
	g.order = nil
	g.edited()
	if p.stage == committed && p.Node == "" {
		g.leftWithIntent(p.UID)
	}
	p.gang, p.others = nil, nil
	c.census.forgetCharge(p)
	p.leave()
	c.touch(g)
}

// podBound takes note that a pod has a node.
func (c *common) podBound(p *pod, node string) {
	g := p.gang
	p.bind(node)
	p.pin(g.id)
	if g.lives(p) {
		g.binds(c.now)
	}
	c.touch(g)
}
