package coordinator

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

// What users are told of the order, and of evictions. It is found out when somebody asks, and changes nothing that decides. Of the queue of
// a gang its users hear the amounts, of the ancestors how they stand, and of other queues and gangs how many there are.

const (
	standingsFor = 10 * fairEvery // how queues stand is found out no more often, whoever asks
	nextAmong    = 16             // so many demand classes of a queue are looked through for its next gang
	claimsShown  = 10
	usableShown  = 1000 // queues that a namespace may use
)

// Standing says how a gang that waits stands in the order, and by whose end it may start; or the same of a queue and its next gang.
func (c *Core) Standing(now time.Time, m *wire.StandingRequest) *wire.StandingReply {
	c.tree.recompute()
	if uid := m.GetGangUid(); uid != "" {
		g := c.roster.gangs[gangKey{m.GetQueue(), uid}]
		if g == nil {
			return &wire.StandingReply{}
		}
		return c.standingOf(now, g)
	}
	q := c.tree.byPath[m.GetQueue()]
	if q == nil || q.object == nil && q.limits == nil {
		return &wire.StandingReply{}
	}
	c.tree.updateFair(now)
	out := &wire.StandingReply{Known: true}
	c.lineUp(now)
	if r := q.order.next; r != nil && r.slot >= 0 {
		out = c.standingOf(now, r.gang)
		out.Next = r.gang.ref
		if l := r.demandClass.lastDenial(); l != nil && l.short > 0 {
			out.ShortResource, out.Short = l.resource, l.short
			if l.reason != wire.DenyReason_DENY_SUPPLY {
				out.ShortQueue = l.queue.path
			}
		}
	}
	out.Usage = c.usage(q)
	if name := m.GetNamespace(); name != "" {
		out.Admits = c.rights.right(q, name) == nil
		for p := q.parent; p != nil; p = p.parent {
			out.Ancestors = append(out.Ancestors, c.usage(p))
		}
	}
	for _, x := range c.claims {
		note := x.noteOf(q)
		if note == nil {
			continue
		}
		if out.ClaimsTotal++; out.ClaimsTotal <= claimsShown {
			out.Claims = append(out.Claims, note)
		}
	}
	return out
}

// UsableBy says how the queues stand that a namespace may use, and those that are above them.
func (c *Core) UsableBy(now time.Time, m *wire.QueuesRequest) *wire.QueuesReply {
	c.tree.recompute()
	c.tree.updateFair(now)
	out := &wire.QueuesReply{}
	c.tree.root.walk(func(q *queue) {
		if q.object == nil && q.limits == nil || m.GetQueue() != "" && !api.Under(q.path, m.GetQueue()) ||
			c.rights.right(q, m.GetNamespace()) != nil {
			return
		}
		if out.QueuesTotal++; out.QueuesTotal <= usableShown {
			out.Queues = append(out.Queues, c.usage(q))
		}
	})
	return out
}

// lastDenial is why the requests of a class were denied last, nil if they were not.
func (a *demandClass) lastDenial() *shortfall {
	if a == nil || a.denied.queue == nil {
		return nil
	}
	return &a.denied
}

// mayWait reports whether the requests of a class were not denied for something that somebody has to edit first.
func (a *demandClass) mayWait() bool {
	l := a.lastDenial()
	return a != nil && (l == nil || l.waits())
}

func (c *Core) standingOf(now time.Time, g *gang) *wire.StandingReply {
	out := &wire.StandingReply{Known: true}
	if r := g.req; r != nil && r.demandClass.mayWait() && (g.res == nil || g.res.claim == nil) { // a claim has its turn behind it
		c.lineUp(now)
		for q := r.queue; q.parent != nil; q = q.parent {
			out.Turns = append(out.Turns, q.turn(r))
		}
		out.LentMs, out.LentNever = r.lent(c.roster.limited)
	}
	var at time.Time
	if out.Eviction, out.Then, at = c.eviction(now, g); !at.IsZero() {
		out.ThenUnixMs = at.UnixMilli()
	}
	return out
}

// lineUp finds out which gang is next in each queue, and how the queue stands with it. That is what the tournament of
// lines.go would find if it began now with all that wait.
func (c *Core) lineUp(now time.Time) {
	if now.Before(c.tree.linedUp.Add(standingsFor)) {
		return
	}
	c.tree.linedUp = now
	c.tree.root.lineUp()
}

func (q *queue) lineUp() {
	q.order.next, q.order.stands = nil, standing{}
	if q.order.classes != nil {
		looked := 0
		q.order.classes.Ascend(func(a *demandClass) bool {
			if l := a.lastDenial(); l == nil || l.waits() {
				q.order.next = a.requests[0]
			}
			looked++
			return q.order.next == nil && looked < nextAmong
		})
	}
	var best standing
	for _, child := range q.children {
		child.lineUp()
		// With children, its own requests are answered and not admitted.
		if child.order.next != nil && (best.path == "" || child.order.stands.compare(best) < 0) {
			q.order.next, best = child.order.next, child.order.stands
		}
	}
	if q.order.next != nil && q.parent != nil {
		q.order.stands = q.standing(q.order.next, q.order.next.delta)
	}
}

// turn is how a queue stands among its siblings with a request of its subtree.
func (q *queue) turn(r *request) *wire.Turn {
	s := q.standing(r, r.delta)
	out := &wire.Turn{Queue: q.path, Place: 1, Of: 1, Band: bands[s.band]}
	for _, sibling := range q.parent.children {
		if sibling == q || sibling.order.next == nil {
			continue
		}
		if out.Of++; sibling.order.stands.compare(s) < 0 {
			out.Place++
		}
	}
	if q != r.queue {
		return out
	}
	limits := q.deserved
	if s.band == withinGuarantee {
		limits = q.guarantee
	}
	most := int64(-1)
	for _, d := range r.delta {
		limit, named := limits.Get(d.Resource)
		if !named || d.Value <= 0 {
			continue
		}
		has := q.has(d.Resource).amount()
		if use := part(api.AddSat(has, d.Value), limit); use > most {
			most = use
			out.Resource, out.Has, out.Requests, out.Limit = d.Resource, has, d.Value, limit
		}
	}
	if s.band == aboveDeserved {
		out.WeightedShare = q.weighted(r.delta)
	}
	return out
}

var bands = map[band]wire.Band{withinGuarantee: wire.Band_BAND_GUARANTEE, withinDeserved: wire.Band_BAND_DESERVED, aboveDeserved: wire.Band_BAND_ABOVE}

// eviction says from whom a gang takes what it lacks, or why from nobody, and what happens then and when.
func (c *Core) eviction(now time.Time, g *gang) (words, then string, at time.Time) {
	r := g.req
	switch {
	case g.res != nil && g.res.claim != nil:
		x := g.res.claim
		left := x.left(c.tree.root)
		if left == 0 {
			return "all gangs that made room for it are gone", "it is admitted next", time.Time{}
		}
		return fmt.Sprintf("%s evicted for it in whole or in part, and not gone yet", gangs(left)), "the claim ends", x.until
	case !c.owners.Complete() || !c.tree.evicts || g.res != nil && (g.res.closing || g.res.claimedBy != nil):
		return "", "", time.Time{}
	case r == nil && !g.lacksRoom(now):
		return "", "", time.Time{}
	case r != nil && !r.demandClass.mayWait(): // for an edit of its queue: no gang that ends helps
		return "", "", time.Time{}
	case r != nil && !r.claims:
		return "nobody is evicted for it: it has started in part, or its pods say preemptionPolicy: Never", "", time.Time{}
	case r != nil && !r.waitsForQuota():
		return "", "", time.Time{}
	case g.mandate != nil:
		return "its home looks for gangs without which each of its pods would have a node", "", time.Time{}
	case g.paused(now, c.tree.version) && g.pause.found == foundYoung:
		return foundYoung, "the first of them may be evicted", g.pause.until
	case g.paused(now, c.tree.version):
		switch words = g.pause.found; {
		case words == "":
			words = "nobody is evicted for it now: " + cmp.Or(g.pause.why, "no gangs were found whose eviction would let it start")
		case g.pause.why != "":
			words += ": " + g.pause.why
		}
		return words + overdue(c.yielding, g.ask().lacks()), "it looks again", g.pause.until
	}
	if c.tree.byFairShare {
		c.tree.updateFair(now)
	}
	a := g.ask()
	lacks := a.lacks()
	since := g.lacking()
	switch rule, mine := a.prospect(lacks); rule {
	case wire.Rule_RULE_RECLAIM:
		words = fmt.Sprintf("queue %q may take back for it what it %s", mine.path, entitlement(mine.fair))
		since = api.Later(since, mine.since(now, a))
	case wire.Rule_RULE_PREEMPT:
		words = "gangs of lower priority in its queue may be evicted for it"
	default:
		return "nobody is evicted for it: " + a.whyNobody(lacks) + overdue(c.yielding, lacks), "", time.Time{}
	}
	if at = since.Add(a.queue.preemptionDelay()); now.Before(at) {
		return words, "at the earliest", at
	}
	return words, "it is looked at in its turn", time.Time{}
}

func gangs(n int) string {
	if n == 1 {
		return "1 gang is"
	}
	return fmt.Sprintf("%d gangs are", n)
}

// overdue adds to such words which gang was evicted, has something of what is lacking, and is not gone though it should be.
func overdue(yielding []*gang, lacks []lack) string {
	words, more := "", 0
	for _, g := range yielding {
		r := g.res
		switch {
		case r == nil || !r.overdue || !(holding{queue: r.queue, amounts: r.demand}).frees(lacks):
		case words != "":
			more++
		default:
			words = fmt.Sprintf("; pods of gang %s/%s of queue %q, which were evicted, should have been gone at %s and are still there",
				g.ref.GetNamespace(), g.ref.GetName(), g.key.queue, time.UnixMilli(r.leavesBy()).UTC().Format(time.RFC3339))
		}
	}
	if more > 0 {
		words += fmt.Sprintf(", and so are pods of %d more", more)
	}
	return words
}

// whyNobody says why others may not be evicted for an ask that has no prospect: of reclaim, at the level at which it comes closest.
func (a ask) whyNobody(lacks []lack) string {
	if len(lacks) == 0 {
		if p := a.leaving(); p != nil {
			return fmt.Sprintf("gangs below queue %q that were evicted have what it lacks, and their pods are not gone yet", p.path)
		}
		return "what it lacks is kept for guarantees, or for gangs that have waited longer"
	}
	reclaim, closest := "its queue has no siblings", 0
	found := func(close int, format string, args ...any) {
		if close > closest {
			reclaim, closest = fmt.Sprintf(format, args...), close
		}
	}
	for mine := a.queue; mine.parent != nil; mine = mine.parent {
		switch {
		case len(mine.parent.children) == 1:
		case !slices.ContainsFunc(lacks, func(l lack) bool { return api.Under(mine.parent.path, l.at.path) }):
			found(1, "it is the capability of queue %q that it lacks", lacks[0].at.path)
		case mine.parent.limits.policy().GetReclaim() == wire.Reclaim_RECLAIM_NEVER:
			found(2, "the reclaimPolicy of queue %q is Never", mine.parent.path)
		case !usesAny(mine.most(), a.uses()):
			found(3, "queue %q deserves nothing of what it requests", mine.path)
		case mine.right(a) == 0:
			found(4, "queue %q would have more than it %s", mine.path, entitlement(mine.byFairShare()))
		default:
			found(5, "no other reclaimable queue below %q has more than it %s",
				mine.parent.path, entitlement(mine.right(a) == 1))
		}
	}
	if a.queue.preempts() {
		return reclaim + ", and no gang in its queue has a lower priority"
	}
	return reclaim + ", and its queue does not allow preemption"
}

// leaving returns the lowest queue of the path from which more of what is asked for is on its way out than was promised, nil for none.
func (a ask) leaving() *queue {
	for p := a.queue; p != nil; p = p.parent {
		for _, d := range a.demand {
			if d.Value > 0 && p.moves.get(d.Resource).amount() < 0 {
				return p
			}
		}
	}
	return nil
}

// left counts the victims of a claim that are not gone, below a queue.
func (x *claim) left(q *queue) (n int) {
	for _, v := range x.victims {
		if (v.open() || v.closed()) && api.Under(v.gang.key.queue, q.path) {
			n++
		}
	}
	return n
}

// noteOf says what a claim gives to a queue or takes from it, nil for neither.
func (x *claim) noteOf(q *queue) *wire.ClaimNote {
	if x.gang.res == nil || x.gang.res.claim != x {
		return nil
	}
	if api.Under(x.gang.key.queue, q.path) {
		return &wire.ClaimNote{Gang: x.gang.ref, Victims: uint32(x.left(top(q)))}
	}
	if n := x.left(q); n > 0 {
		return &wire.ClaimNote{Gang: x.gang.ref, Victims: uint32(n), Takes: true}
	}
	return nil
}
