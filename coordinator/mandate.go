package coordinator

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

// Mandates. A gang that waits for quota, or has it and finds no room, is told by whose end it may start, if the rules of reclaim.go name
// anybody. Its home makes a plan of that, for only node shards know whether there is room then, and claims (claims.go). A mandate decides
// nothing and is not kept in the store.
//
// Nobody is evicted before the gang has waited for the preemptionDelay of its queue, and its queue has been entitled to what it wants for so
// long (lasting.go): room often frees itself. Meanwhile the gang keeps others from borrowing what it lacks (bar.go).
//
// The work is bounded: each Tick looks at a few gangs of a few queues, each mandate at a bounded number of gangs,
// and all mandates of a Tick together at another. Whatever is bounded and shared, queues and namespaces take in turn
// (doc.go).

const (
	mandatesAtOnce = 64               // that are open,
	mandatesKept   = 16               // of which so many are for tenants that have none
	mandateFor     = 10 * time.Second // a mandate ends if no plan came by then
	stuckFor       = time.Minute      // a home's word is relied on for so long: that a gang is stuck, or spares pods
	pauseFirst     = 10 * time.Second // before a gang for which no plan was found gets another mandate; it doubles up to
	pauseMost      = 60 * pauseFirst  // this
	staleFirst     = pauseFirst / 20  // the same for one whose plan was overtaken by what others did

	consideredAtOnce = 64               // gangs that a Tick looks at, or a queue more
	firstOfTenant    = 16               // those of a namespace in a queue, the first in its order that may get a mandate
	seenOfTenant     = 512              // among so many
	tenantsAtOnce    = 8                // of a queue that may have as many as that; of those that find no room, more
	lookedByTick     = 8 * lookedAtMost // gangs that mandates of a Tick look at, before the last one
)

// mandates are those that are open, and who may be given one.
type mandates struct {
	ledger *ledger
	term   int64
	given  uint64  // in this term
	open   []*gang // with a mandate, in the order in which they were given
	stuck  []*gang // that have quota and find no room
	last   string  // queue that was considered
	found  found
}

// mandate is the one that a gang was given last.
type mandate struct {
	number  uint64
	rule    wire.Rule
	kind    offerKind // of its offer, 0 if none comes after it
	serial  uint64    // of the request that it answers
	until   time.Time
	offered []*gang // those that were offered to it first
}

// stuck is a gang that has its quota and finds no room.
type stuck struct {
	since, seen time.Time
	from        api.Incarnation
	listed      bool // in mandates.stuck
}

// pause is for how long a gang gets no mandate.
type pause struct {
	until  time.Time
	last   time.Duration
	limits uint64    // it ends when limits change
	found  string    // foundYoung, foundTaken or foundStale: the next look may find more, so others are barred meanwhile
	why    string    // beside it, for people
	tried  offerKind // no plan was found for this offer: the next mandate is for one that comes after it
}

const (
	foundYoung = "gangs that may be evicted for it were admitted too recently"
	foundTaken = "gangs that may be evicted for it are already being evicted for other gangs"
	foundStale = "the evictions that were planned for it were overtaken by other changes"
)

// maxWhy bounds what a home says of a plan that it did not find, in bytes.
const maxWhy = 256

const (
	notPreemptible = "it may not be evicted"
	tooYoung       = "it was admitted too recently"
	notCharged     = "it is not charged, or leaves"
	claimedAlready = "it makes room for another gang already"
	displacedIt    = "it took the place of the gang that is to start, directly or through others"
)

// stuckSaid takes note of a gang that finds no room.
func (c *Core) stuckSaid(now time.Time, m Message, s *wire.Stuck) {
	key, ok := c.sender(m)
	g := c.roster.gangs[key]
	if !ok || g == nil || g.res == nil || g.res.closing || g.req != nil ||
		g.res.attempt != s.GetAttempt() || s.GetSerial() < g.serial {
		return
	}
	g.serial = s.GetSerial() // unknown in this term until now, or its home is another

	if g.stuck == nil || !now.Before(g.stuck.seen.Add(2*stuckFor)) { // it gives its quota back now and then, and asks again
		if g.stuck == nil {
			g.stuck = &stuck{}
		}
		g.stuck.since = now
	}
	if !g.stuck.listed {
		g.stuck.listed = true
		c.mandates.stuck = append(c.mandates.stuck, g)
	}
	g.stuck.seen, g.stuck.from = now, m.From
}

// lacksRoom reports whether the gang said lately that it finds no room.
func (g *gang) lacksRoom(now time.Time) bool {
	return g.foundNoRoom(now) && g.res != nil && !g.res.closing && g.req == nil
}

// evicts reports whether some queue may take from others, and all that is charged is known.
func (c *Core) evicts() bool { return c.tree.evicts && c.owners.Complete() && c.tree.synced }

// findMandates looks at the next few gangs that wait, and gives mandates.
func (c *Core) findMandates(now time.Time) {
	c.mandates.endOverdue(now)
	c.mandates.stuck = slices.DeleteFunc(c.mandates.stuck, func(g *gang) bool {
		if !g.lacksRoom(now) {
			g.stuck.listed = false
		}
		return !g.stuck.listed
	})
	c.tree.recompute()
	if !c.evicts() {
		c.ledger.unbar(func(*gang) bool { return true })
		return
	}
	if c.tree.byFairShare {
		c.tree.updateFair(now)
	}
	c.ledger.unbar(func(g *gang) bool {
		return g.req == nil || !g.req.waitsForQuota() || g.idles(now, c.tree.version) || !g.reclaims()
	})
	c.tree.root.observe(now)
	var due []*gang
	for _, g := range c.mandates.considered(now) {
		a := g.ask()
		lacks := a.lacks()
		rule := wire.Rule_RULE_UNKNOWN
		paused := g.paused(now, c.tree.version)
		if !paused || g.pause.found != "" {
			rule, _ = a.prospect(lacks)
		}
		c.ledger.bar(g, rule == wire.Rule_RULE_RECLAIM && g.req != nil)
		if rule == wire.Rule_RULE_UNKNOWN || paused || g.mandate != nil || now.Before(g.lacking().Add(a.queue.preemptionDelay())) {
			continue
		}
		a.now = now
		if lasting, mine := a.prospect(lacks); lasting == rule {
			if rule == wire.Rule_RULE_RECLAIM && g.pause.until.Before(mine.since(now, a)) {
				g.pause = pause{} // no plan was found under circumstances that are over
			}
			due = append(due, g)
		}
	}
	looked, before := 0, inTurn(due, c.mandates.open)
	for _, g := range due {
		most := mandatesAtOnce
		if before[g] > 0 {
			most -= mandatesKept
		}
		if len(c.mandates.open) >= most || looked >= lookedByTick {
			break
		}
		n, said := c.mandates.give(now, g)
		if looked += n; said != nil {
			c.send(said.to, said.body)
		}
	}
}

// inTurn sorts gangs by how long they have lacked something, but takes tenants in turn, and returns how many come
// before each of its own tenant, with those that have a mandate.
func inTurn(due, mandated []*gang) (before map[*gang]int) {
	slices.SortFunc(due, func(a, b *gang) int {
		return cmp.Or(a.lacking().Compare(b.lacking()), strings.Compare(a.key.uid, b.key.uid))
	})
	before = map[*gang]int{}
	open := map[*tenant]int{}
	for _, g := range mandated {
		open[g.ask().tenant]++
	}
	for _, g := range due {
		t := g.ask().tenant
		before[g] = open[t]
		open[t]++
	}
	slices.SortStableFunc(due, func(a, b *gang) int { return cmp.Compare(before[a], before[b]) })
	return before
}

// reclaims reports whether gangs of other queues might be evicted for the gang, as far as sums of queues tell.
func (g *gang) reclaims() bool {
	a := g.ask()
	rule, _ := a.prospect(a.lacks())
	return rule == wire.Rule_RULE_RECLAIM
}

// idles reports whether the gang gets no mandate for now because no plan was found: it stands in nobody's way.
func (g *gang) idles(now time.Time, limits uint64) bool {
	return g.paused(now, limits) && g.pause.found == ""
}

// lacking is since when the gang lacks quota, or room.
func (g *gang) lacking() time.Time {
	if g.req != nil {
		return g.req.lacking
	}
	return g.stuck.since
}

// waitsForQuota reports whether others might be evicted for a request: for whole gangs, and for further pods of gangs
// that have started, whose pods allow it.
func (r *request) waitsForQuota() bool {
	a := r.demandClass
	return r.slot >= 0 && r.claims && a != nil && !r.lacking.IsZero() && a.denied.queue != nil && a.denied.waits() &&
		r.mayClaim() && (r.gang.res == nil || r.gang.res.claim == nil)
}

// mayClaim reports whether nothing is charged of the gang that asks, or it has started and loses none of its pods.
func (r *request) mayClaim() bool {
	of := r.gang.res
	return of == nil || of.demand.IsZero() || r.started && len(of.condemned) == 0 && !of.forced
}

func (g *gang) paused(now time.Time, limits uint64) bool {
	return now.Before(g.pause.until) && g.pause.limits == limits
}

// considered are the gangs that this Tick looks at: of a few queues at a time, the first that wait, and some of
// those that are stuck, which come last in the list from then on.
func (m *mandates) considered(now time.Time) (out []*gang) {
	var leaves []*queue
	m.ledger.tree.root.walkWaiting(func(q *queue) {
		if q.order.classes != nil && q.order.classes.Len() > 0 && q.mayClaim() {
			leaves = append(leaves, q)
		}
	})
	stuck := map[*queue][]*gang{}
	for _, g := range m.stuck {
		if q := g.res.queue; g.res.claim == nil && g.mandate == nil && !g.paused(now, m.ledger.tree.version) {
			if stuck[q] == nil {
				leaves = append(leaves, q)
			}
			stuck[q] = append(stuck[q], g)
		}
	}
	slices.SortFunc(leaves, func(a, b *queue) int { return strings.Compare(a.path, b.path) })
	leaves = slices.Compact(leaves)
	from, _ := slices.BinarySearchFunc(leaves, m.last, func(q *queue, path string) int {
		return cmp.Or(strings.Compare(q.path, path), -1) // the first after it
	})
	for i := range leaves {
		q := leaves[(from+i)%len(leaves)]
		if q.order.classes != nil && q.mayClaim() {
			out = firstOf(now, m.ledger.tree.version, q, firstOfTenant, seenOfTenant, out)
		}
		if of := stuck[q]; of != nil {
			of = stuckInTurn(now, of)
			taken := map[*gang]bool{}
			for _, g := range of {
				taken[g] = true
			}
			m.stuck = append(slices.DeleteFunc(m.stuck, func(g *gang) bool { return taken[g] }), of...)
			out = append(out, of...)
		}
		m.last = q.path
		if len(out) >= consideredAtOnce {
			break
		}
	}
	return out
}

// stuckInTurn returns a few of the gangs of a queue that find no room, from as many namespaces as there are.
func stuckInTurn(now time.Time, gangs []*gang) []*gang {
	nth, of := map[*gang]int{}, map[*tenant]int{}
	for _, g := range gangs {
		nth[g] = of[g.res.tenant]
		of[g.res.tenant]++
	}
	slices.SortStableFunc(gangs, func(a, b *gang) int {
		return cmp.Or(cmp.Compare(nth[a], nth[b]), cmp.Compare(a.res.tenant.turn, b.res.tenant.turn))
	})
	gangs = gangs[:min(len(gangs), firstOfTenant)]
	for _, g := range gangs {
		g.res.tenant.turn = now.UnixMilli()
	}
	return gangs
}

// firstOf appends the first gangs of a queue that may be given a mandate: so many of each namespace, among so many.
// Those for which nobody might be evicted stand in nobody's way, nor do those for which no plan was found.
func firstOf(now time.Time, limits uint64, q *queue, most, among int, out []*gang) []*gang {
	type taken struct{ first, seen int }
	by, all := map[string]*taken{}, taken{}
	q.order.classes.Ascend(func(a *demandClass) bool {
		of := by[a.namespace]
		if of == nil {
			of = &taken{}
			by[a.namespace] = of
		}
		judged := false
		for _, r := range a.requests {
			if of.first >= most || of.seen >= among {
				return len(by) < len(q.members.tenants) && all.seen < tenantsAtOnce*among // others of the queue come after it
			}
			of.seen, all.seen = of.seen+1, all.seen+1
			if !r.waitsForQuota() || r.gang.idles(now, limits) {
				continue
			}
			if ask := r.gang.ask(); !judged {
				if rule, _ := ask.prospect(ask.lacks()); rule == wire.Rule_RULE_UNKNOWN {
					of.seen, all.seen = of.seen+7, all.seen+7 // that was more work than a look
					break                                     // nor for others that ask for the same, of no higher priority
				}
				judged = true
			}
			if r.gang.mandate == nil {
				of.first, all.first = of.first+1, all.first+1
			}
			if out = append(out, r.gang); all.first >= tenantsAtOnce*most {
				return false
			}
		}
		return all.seen < tenantsAtOnce*among
	})
	return out
}

// walkWaiting calls f for the queues in which requests wait, in the order of their paths.
func (q *queue) walkWaiting(f func(*queue)) {
	if q.members.waiting == 0 {
		return
	}
	f(q)
	for _, c := range q.children {
		c.walkWaiting(f)
	}
}

// mayClaim reports whether a gang of the queue might take something from others: it allows preemption, or some queue of its path has less
// than its threshold.
func (q *queue) mayClaim() bool {
	if q.preempts() {
		return true
	}
	for p := q; p.parent != nil; p = p.parent {
		for _, a := range p.most() {
			if p.has(a.Resource).amount() < a.Value {
				return true
			}
		}
	}
	return false
}

// title is a queue that is entitled to something, by its fair share or by what it deserves.
type title struct {
	*queue
	fair bool
}

func (t title) since(now time.Time, a ask) time.Time { return t.entitledSince(now, a, t.fair) }

// prospect says by which rule others might be evicted for an ask, as far as sums of queues tell, and which queue is entitled to it.
func (a ask) prospect(lacks []lack) (wire.Rule, title) {
	if len(lacks) == 0 {
		return wire.Rule_RULE_UNKNOWN, title{}
	}
	for mine := a.queue; mine.parent != nil; mine = mine.parent {
		helps := slices.ContainsFunc(lacks, func(l lack) bool { return api.Under(mine.parent.path, l.at.path) })
		fair, may := mine.mayTake(a)
		if helps && may && mine.besideLose(fair) {
			return wire.Rule_RULE_RECLAIM, title{mine, fair}
		}
	}
	lower := func(g *gang) bool { return g.res.rank.Priority < a.priority && g.res.preemptible }
	if a.mayPreemptOthers() && slices.ContainsFunc(a.queue.members.reserved, lower) {
		return wire.Rule_RULE_PREEMPT, title{queue: a.queue}
	}
	return wire.Rule_RULE_UNKNOWN, title{}
}

// endOverdue ends those of which no plan came.
func (m *mandates) endOverdue(now time.Time) {
	for _, g := range slices.Clone(m.open) {
		if !now.Before(g.mandate.until) {
			m.end(g)
			g.rest(now, m.ledger.tree.version, "its home made no plan in time")
		}
	}
}

// end takes away the mandate of a gang, if it has one.
func (m *mandates) end(g *gang) {
	if g.mandate == nil {
		return
	}
	for _, o := range g.mandate.offered {
		if o.offeredTo == g {
			o.offeredTo = nil
		}
	}
	g.mandate = nil
	m.open = slices.DeleteFunc(m.open, func(o *gang) bool { return o == g })
}

// lastUnder is how long the last pause was, 0 where limits have changed since.
func (p *pause) lastUnder(limits uint64) time.Duration {
	if p.limits != limits {
		return 0
	}
	return p.last
}

// rest gives a gang no mandate for a while: no plan was found, or none came.
func (g *gang) rest(now time.Time, limits uint64, why string) {
	g.pauseFor(now, limits, pauseFirst, why)
}

// retry does so for a short while at first: others changed what its plan was made of. Where many claim at once that happens to all of them,
// and the next plan may well do. Later it may be for a reason that plans do not know: nobody is kept waiting for it.
func (g *gang) retry(now time.Time, limits uint64, why string) {
	if g.pauseFor(now, limits, staleFirst, why); g.pause.last <= pauseFirst {
		g.pause.found = foundStale
	}
}

func (g *gang) pauseFor(now time.Time, limits uint64, first time.Duration, why string) {
	last := min(max(2*g.pause.lastUnder(limits), first), pauseMost)
	g.pause = pause{until: now.Add(last), last: last, limits: limits, why: api.Shorten(why, maxWhy)}
}

// noPlan takes note that no plan was found, and reports whether the gang rests now: not if an offer comes after the one
// that was tried.
func (g *gang) noPlan(now time.Time, limits uint64, tried offerKind, why string) (rests bool) {
	if tried == 0 {
		g.rest(now, limits, why)
		return true
	}
	last := g.pause.lastUnder(limits)
	g.pause = pause{until: now, last: last, limits: limits, why: api.Shorten(why, maxWhy), tried: tried}
	return false
}

// await gives a gang no mandate until gangs may be evicted for it that may not be now.
func (g *gang) await(until time.Time, limits uint64, found string) {
	g.pause = pause{until: until, last: g.pause.lastUnder(limits), limits: limits, found: found}
}

// give tells a gang from whom it may take what it lacks. It returns at how many gangs it looked, and what is sent, nil
// for nothing.
func (m *mandates) give(now time.Time, g *gang) (looked int, said *reply) {
	version := m.ledger.tree.version
	a := g.ask()
	a.now = now
	lacks := a.lacks()
	to, serial := g.home()
	rule, s := m.ledger.offerFor(now, g, a, lacks, g.pause.tried, &m.found)
	defer m.found.clear()
	if !s.enough && g.pause.tried > 0 {
		g.rest(now, version, g.pause.why)
		m.ledger.bar(g, false)
		return s.looked, nil
	}
	if !s.enough {
		if !s.soonest.IsZero() {
			g.await(s.soonest, version, foundYoung)
			return s.looked, nil
		}
		if s.taken { // it failed for no reason of its own, so the next pause is no longer
			g.await(now.Add(pauseFirst), version, foundTaken)
			return s.looked, nil
		}
		if m.ledger.bar(g, false); s.displaced {
			g.await(now.Add(pauseFirst), version, "")
			g.pause.why = "gangs that have what it lacks took its place"
			return s.looked, nil
		}
		g.rest(now, version, s.tooLittle())
		return s.looked, nil
	}
	m.given++
	number := uint64(m.term)<<24 + m.given // no other term gives it
	out := &wire.Mandate{GangUid: g.key.uid, Attempt: g.attempt, Serial: serial, Number: number,
		Term: m.term, Rule: rule}
	for _, l := range s.lacks {
		if l.short > 0 {
			out.Lacks = append(out.Lacks, &wire.Lack{Queue: l.at.path, Resource: l.resource, Short: l.short})
		}
	}
	s.fill(a, rule, out)
	g.mandate = &mandate{number: number, rule: rule, serial: serial, until: now.Add(mandateFor)}
	if s.narrow || rule == wire.Rule_RULE_RECLAIM && a.mayPreemptOthers() {
		g.mandate.kind = s.kind
	}
	m.open = append(m.open, g)
	for _, v := range s.first() {
		v.gang.offeredTo = g
		g.mandate.offered = append(g.mandate.offered, v.gang)
	}
	return s.looked, &reply{to, &wire.Envelope{Body: &wire.Envelope_Mandate{Mandate: out}}}
}

// home is where a gang's last request came from, and its serial.
func (g *gang) home() (api.Incarnation, uint64) {
	if g.req != nil {
		return g.req.from, g.req.serial
	}
	return g.stuck.from, g.serial
}

// barLowered has gangs of such queues, and of those beside them, keep others from borrowing from this transaction on.
// The next Tick would be too late: what has become free would be lent in the meantime, and evicted again. Not by fair
// shares, which are recomputed at a Tick: by those of before, gangs were kept waiting that were entitled, and others
// evicted later on.
func (c *Core) barLowered(now time.Time) {
	lowered := c.ledger.lowered
	c.ledger.lowered = c.ledger.lowered[:0]
	if len(lowered) == 0 || !c.evicts() {
		return
	}
	var few [4]*gang
	looked := 0
	look := func(q *queue) {
		if looked >= barredAtOnce || q.order.classes == nil || q.order.classes.Len() == 0 || !q.mayClaim() {
			return
		}
		for _, g := range firstOf(now, c.tree.version, q, len(few), len(few), few[:0]) {
			if looked++; looked > barredAtOnce {
				return
			}
			a := g.ask()
			if rule, mine := a.prospect(a.lacks()); rule == wire.Rule_RULE_RECLAIM && !mine.fair {
				c.ledger.bar(g, true)
			}
		}
	}
	for _, q := range lowered {
		look(q)
		side := q.ancestor(min(q.level, 1))
		if side != q {
			side.walkWaiting(look)
		}
	}
	clear(lowered)
}
