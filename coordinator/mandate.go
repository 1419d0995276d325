package coordinator

import (
	"cmp"
	"container/heap"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/api/wire"
)

// Mandates. A gang that waits for quota, or has it and finds no room, is told by whose end it may start, if the rules of reclaim.go name
// anybody. Its home makes a plan of that, for only node shards know whether there is room then, and claims (claims.go). A mandate decides
// nothing and is not kept in the store.
//
// Nobody is evicted before the gang has waited for the preemptionDelay of its queue, and its queue has been entitled to what it wants for so
// long (lasting.go): room often frees itself. From the moment when it is entitled, and until it starts or no plan is found, the gang bars others
// from borrowing what it lacks.
//
// The work is bounded: each Tick looks at a few gangs of a few queues, each mandate at a bounded number of gangs, and all mandates of a Tick
// together at another.

const (
	mandatesAtOnce = 64                     // that are open
	mandateFor     = 10 * time.Second       // a mandate ends if no plan came by then
	stuckFor       = time.Minute            // a gang counts as stuck for so long after it said so
	pauseFirst     = 10 * time.Second       // before a gang for which no plan was found gets another mandate; it doubles up to
	pauseMost      = 10 * time.Minute       // this
	staleFirst     = 500 * time.Millisecond // the same for one whose plan was overtaken by what others did
	preemptDelay   = 10 * time.Second       // defaults of Queue.spec
	minRuntime     = time.Minute

	consideredAtOnce = 64               // gangs that a Tick looks at
	barredAtOnce     = 16               // and a transaction, of queues that have less by then
	firstOfQueue     = 16               // those of a queue, the first in its order that may get a mandate
	seenOfQueue      = 512              // among so many
	candidatesAtMost = 4096             // in a mandate
	lookedAtMost     = 8192             // gangs that are looked at for one,
	lookedByTick     = 8 * lookedAtMost // and in a Tick, before the last one
	plentyGangs      = 64               // candidates that may be enough
)

// mandate is the one that a gang was given last.
type mandate struct {
	number  uint64
	rule    wire.Rule
	serial  uint64 // of the request that it answers
	until   time.Time
	offered []*gang // those that were offered to it first
}

// stuck is a gang that has its quota and finds no room.
type stuck struct {
	since, seen time.Time
	from        api.Incarnation
	listed      bool // in Core.stuck
}

// pause is for how long a gang gets no mandate.
type pause struct {
	until  time.Time
	last   time.Duration
	limits uint64 // it ends when limits change
	found  string // foundYoung, foundTaken or foundStale: the next look may well find more, so others are barred meanwhile
	why    string // beside it, for people
}

const (
	foundYoung = "gangs that may be evicted for it got their quota too short a time ago"
	foundTaken = "gangs that may be evicted for it make room for others already"
	foundStale = "the evictions that were planned for it were overtaken by other changes"
)

// maxWhy bounds what a home says of a plan that it did not find, in bytes.
const maxWhy = 256

// inherited returns what the nearest queue of the path says, starting with q.
func inherited[T any](q *queue, of func(*wire.QueuePolicy) *T, or T) T {
	for ; q != nil; q = q.parent {
		if p := q.limits.policy(); p != nil {
			if v := of(p); v != nil {
				return *v
			}
		}
	}
	return or
}

func (q *queue) preempts() bool {
	return inherited(q, func(p *wire.QueuePolicy) *bool { return p.Preempts }, false)
}

func (q *queue) preemptionDelay() time.Duration {
	return time.Duration(inherited(q, func(p *wire.QueuePolicy) *int64 { return p.PreemptionDelayMs }, preemptDelay.Milliseconds())) * time.Millisecond
}

// minRuntime of the gangs of a queue.
func (q *queue) minRuntime(rule wire.Rule) time.Duration {
	return time.Duration(inherited(q, func(p *wire.QueuePolicy) *int64 {
		if rule == wire.Rule_RULE_PREEMPT {
			return p.PreemptMinRuntimeMs
		}
		return p.ReclaimMinRuntimeMs
	}, minRuntime.Milliseconds())) * time.Millisecond
}

// ask is what a gang wants, as the rules see it.
func (g *gang) ask() ask {
	if r := g.req; r != nil {
		return ask{queue: r.queue, tenant: r.tenant, demand: r.delta, priority: r.priority}
	}
	return ask{queue: g.res.queue, tenant: g.res.tenant, has: g.res.demand, priority: g.res.rank.Priority}
}

// holding is what a gang has, as the rules see it.
func (g *gang) holding() holding {
	return holding{queue: g.res.queue, amounts: g.res.stays(), priority: g.res.rank.Priority}
}

// spares says why a gang is nobody's victim now whatever the queues have, "" if it may be one.
func (c *Core) spares(now time.Time, g *gang, rule wire.Rule) string {
	if g.res == nil {
		return notCharged
	}
	return g.res.spares(now, g.res.queue.minRuntime(rule))
}

// spares is the same with the minRuntime of the reservation's queue.
func (r *reservation) spares(now time.Time, least time.Duration) string {
	switch {
	case r.closing || r.revision == 0 || r.claim != nil || r.demand.IsZero():
		return notCharged
	case r.claimedBy != nil:
		return claimedAlready
	case !r.preemptible || r.forced:
		return notPreemptible
	case now.UnixMilli()-r.granted < least.Milliseconds() && !fault.On(fault.RuntimeForgotten):
		return tooYoung
	}
	return ""
}

const (
	notPreemptible = "it may not be evicted"
	tooYoung       = "it started too short a time ago"
	notCharged     = "it is not charged, or leaves"
	claimedAlready = "it makes room for another gang already"
	displacedIt    = "it took the place of the gang that is to start, directly or through others"
)

// stuckSaid takes note of a gang that finds no room.
func (c *Core) stuckSaid(now time.Time, m Message, s *wire.Stuck) {
	key, ok := c.sender(m)
	g := c.gangs[key]
	if !ok || g == nil || g.res == nil || g.res.closing || g.req != nil || g.res.attempt != s.GetAttempt() || g.serial != s.GetSerial() {
		return
	}
	if g.stuck == nil || !now.Before(g.stuck.seen.Add(2*stuckFor)) { // it gives its quota back now and then, and asks again
		if g.stuck == nil {
			g.stuck = &stuck{}
		}
		g.stuck.since = now
	}
	if !g.stuck.listed {
		g.stuck.listed = true
		c.stuck = append(c.stuck, g)
	}
	g.stuck.seen, g.stuck.from = now, m.From
}

// lacksRoom reports whether the gang said lately that it finds no room.
func (g *gang) lacksRoom(now time.Time) bool {
	return g.stuck != nil && g.res != nil && !g.res.closing && g.req == nil && now.Before(g.stuck.seen.Add(stuckFor))
}

// evicts reports whether some queue may take from others, and all that is charged is known.
func (c *Core) evicts() bool { return c.tree.evicts && !c.refilling && c.began == nil && c.synced }

// findMandates looks at the next few gangs that wait, and gives mandates.
func (c *Core) findMandates(now time.Time) {
	c.endMandates(now)
	c.stuck = slices.DeleteFunc(c.stuck, func(g *gang) bool {
		if !g.lacksRoom(now) {
			g.stuck.listed = false
		}
		return !g.stuck.listed
	})
	c.tree.recompute()
	if !c.evicts() {
		c.unbar(func(*gang) bool { return true })
		return
	}
	if c.tree.byFairShare {
		c.updateFair(now)
	}
	c.unbar(func(g *gang) bool {
		return g.req == nil || !g.req.waitsForQuota() || g.paused(now, c.limitsVersion) && g.pause.found == ""
	})
	c.tree.root.observe(now)
	var due []*gang
	for _, g := range c.considered(now) {
		a := g.ask()
		lacks := a.lacks()
		rule := wire.Rule_RULE_UNKNOWN
		paused := g.paused(now, c.limitsVersion)
		if !paused || g.pause.found != "" {
			rule, _ = a.prospect(lacks)
		}
		c.bar(g, rule == wire.Rule_RULE_RECLAIM && g.req != nil)
		if rule == wire.Rule_RULE_UNKNOWN || paused || g.mandate != nil || now.Before(g.lacking().Add(a.queue.preemptionDelay())) {
			continue
		}
		a.now = now
		if lasting, mine := a.prospect(lacks); lasting == rule {
			if rule == wire.Rule_RULE_RECLAIM && g.pause.until.Before(mine.entitledSince(now, a)) {
				g.pause = pause{} // no plan was found under circumstances that are over
			}
			due = append(due, g)
		}
	}
	slices.SortFunc(due, func(a, b *gang) int {
		return cmp.Or(a.lacking().Compare(b.lacking()), strings.Compare(a.key.uid, b.key.uid))
	})
	looked := 0
	for _, g := range due {
		if len(c.mandated) >= mandatesAtOnce || looked >= lookedByTick {
			break
		}
		looked += c.giveMandate(now, g)
	}
}

// lacking is since when the gang lacks quota, or room.
func (g *gang) lacking() time.Time {
	if g.req != nil {
		return g.req.lacking
	}
	return g.stuck.since
}

// waitsForQuota reports whether others might be evicted for a request: for whole gangs, whose pods allow it.
func (r *request) waitsForQuota() bool {
	a := r.demandClass
	return r.slot >= 0 && r.claims && a != nil && !r.lacking.IsZero() && a.denied.queue != nil && a.denied.waits() &&
		(r.gang.res == nil || r.gang.res.demand.IsZero() && r.gang.res.claim == nil)
}

func (g *gang) paused(now time.Time, limits uint64) bool {
	return now.Before(g.pause.until) && g.pause.limits == limits
}

// considered are the gangs that this Tick looks at: the first of each queue that waits, a few queues at a time, and those that are stuck.
func (c *Core) considered(now time.Time) (out []*gang) {
	var leaves []*queue
	c.tree.root.walkWaiting(func(q *queue) {
		if q.classes != nil && q.classes.Len() > 0 && q.mayClaim() {
			leaves = append(leaves, q)
		}
	})
	from, _ := slices.BinarySearchFunc(leaves, c.consideredLast, func(q *queue, path string) int {
		return cmp.Or(strings.Compare(q.path, path), -1) // the first after it
	})
	for i := range leaves {
		q := leaves[(from+i)%len(leaves)]
		out = c.firstOf(now, q, seenOfQueue, out)
		c.consideredLast = q.path
		if len(out) >= consideredAtOnce {
			break
		}
	}
	for _, g := range c.stuck {
		if len(out) < 2*consideredAtOnce && g.res.claim == nil {
			out = append(out, g)
		}
	}
	return out
}

// firstOf appends the first gangs of a queue that may be given a mandate, among so many.
func (c *Core) firstOf(now time.Time, q *queue, among int, out []*gang) []*gang {
	n, looked := 0, 0
	q.classes.Ascend(func(a *demandClass) bool {
		for _, r := range a.requests {
			if looked++; n == firstOfQueue || looked > among {
				return false
			}
			if r.waitsForQuota() && (!r.gang.paused(now, c.limitsVersion) || r.gang.pause.found != "") { // those for whom no plan was found stand in nobody's way
				if r.gang.mandate == nil {
					n++
				}
				out = append(out, r.gang)
			}
		}
		return true
	})
	return out
}

// walkWaiting calls f for the queues in which requests wait, in the order of their paths.
func (q *queue) walkWaiting(f func(*queue)) {
	if q.waiting == 0 {
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
		for _, a := range p.threshold() {
			if p.has(a.Resource).amount() < a.Value {
				return true
			}
		}
	}
	return false
}

// mayLose reports whether something may be taken from a queue by what it has: it is above its threshold, or has something that it does not
// name.
func (q *queue) mayLose() bool {
	if q.admitted == 0 || q.limits.policy().GetKept() {
		return false
	}
	threshold := q.threshold()
	for _, a := range q.charged {
		limit, named := threshold.Get(a.resource)
		if has := q.has(a.resource).amount(); has > 0 && (!named && (a.resource != "pods" || len(threshold) == 0) || named && has > limit) {
			return true
		}
	}
	return false
}

// prospect says by which rule others might be evicted for an ask, as far as sums of queues tell, and which queue is entitled to it.
func (a ask) prospect(lacks []lack) (wire.Rule, *queue) {
	if len(lacks) == 0 {
		return wire.Rule_RULE_UNKNOWN, nil
	}
	for mine := a.queue; mine.parent != nil; mine = mine.parent {
		helps := slices.ContainsFunc(lacks, func(l lack) bool { return api.Under(mine.parent.path, l.at.path) })
		if !helps || !mine.mayTake(a) {
			continue
		}
		if slices.ContainsFunc(mine.parent.children, func(o *queue) bool { return o != mine && o.mayLose() }) {
			return wire.Rule_RULE_RECLAIM, mine
		}
	}
	if a.queue.preempts() && slices.ContainsFunc(a.queue.reserved, func(g *gang) bool { return g.res.rank.Priority < a.priority && g.res.preemptible }) {
		return wire.Rule_RULE_PREEMPT, a.queue
	}
	return wire.Rule_RULE_UNKNOWN, nil
}

// bar has a gang keep others from borrowing what it lacks, or not any more.
func (c *Core) bar(g *gang, bars bool) {
	at, found := slices.BinarySearchFunc(c.barring, g, compareKeys)
	switch {
	case bars && !found && len(c.barring) < consideredAtOnce && !fault.On(fault.BandThreePasses):
		c.barring = slices.Insert(c.barring, at, g)
	case !bars && found:
		c.barring = slices.Delete(c.barring, at, at+1)
		c.freedFor(g)
	}
}

// lower notes that a queue has less than it had: its side may be entitled to more now.
func (c *Core) lower(q *queue) {
	if c.tree.evicts && len(c.lowered) < barredAtOnce && !slices.Contains(c.lowered, q) {
		c.lowered = append(c.lowered, q)
	}
}

// barLowered has gangs of such queues, and of those beside them, keep others from borrowing from this transaction on. The next Tick would be too late:
// what has become free would be lent in the meantime, and evicted again. Not by fair shares, which are made anew at a Tick: by those of before, gangs
// were kept waiting that were entitled, and others evicted later on.
func (c *Core) barLowered(now time.Time) {
	lowered := c.lowered
	c.lowered = c.lowered[:0]
	if len(lowered) == 0 || !c.evicts() {
		return
	}
	var few [4]*gang
	looked := 0
	look := func(q *queue) {
		if looked >= barredAtOnce || q.classes == nil || q.classes.Len() == 0 || !q.mayClaim() {
			return
		}
		for _, g := range c.firstOf(now, q, len(few), few[:0]) {
			if looked++; looked > barredAtOnce {
				return
			}
			a := g.ask()
			if rule, mine := a.prospect(a.lacks()); rule == wire.Rule_RULE_RECLAIM && !mine.byFairShare() {
				c.bar(g, true)
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

func compareKeys(a, b *gang) int {
	return cmp.Or(strings.Compare(a.key.queue, b.key.queue), strings.Compare(a.key.uid, b.key.uid))
}

// unbar ends it for those of which f reports that.
func (c *Core) unbar(f func(*gang) bool) {
	c.barring = slices.DeleteFunc(c.barring, func(g *gang) bool {
		if !f(g) {
			return false
		}
		c.freedFor(g)
		return true
	})
}

// freedFor notes that others may be granted what a gang kept from them.
func (c *Core) freedFor(g *gang) {
	if q := c.tree.byPath[g.key.queue]; q != nil {
		for p := q; p != nil; p = p.parent {
			c.freedAt(p)
		}
	}
}

// barred returns by whom a request is kept from borrowing, nil for nobody.
func (c *Core) barred(r *request) *shortfall {
	for _, g := range c.barring {
		if g.req == nil || g.req == r {
			continue
		}
		a := g.ask()
		lacks := a.lacks()
		if len(lacks) == 0 || !a.bars(r.gang.ask(), lacks) {
			continue
		}
		mine, _ := apart(a.queue, r.queue)
		l := lacks[slices.IndexFunc(lacks, func(l lack) bool { return r.delta.Value(l.resource) > 0 })]
		return &shortfall{reason: wire.DenyReason_DENY_PROMISED, queue: mine.parent, resource: l.resource, short: r.delta.Value(l.resource), requested: r.delta.Value(l.resource)}
	}
	return nil
}

// endMandates ends those of which no plan came.
func (c *Core) endMandates(now time.Time) {
	for _, g := range slices.Clone(c.mandated) {
		if !now.Before(g.mandate.until) {
			c.endMandate(g)
			g.rest(now, c.limitsVersion, "its home made no plan in time")
		}
	}
}

func (c *Core) endMandate(g *gang) {
	if g.mandate == nil {
		return
	}
	for _, o := range g.mandate.offered {
		if o.offeredTo == g {
			o.offeredTo = nil
		}
	}
	g.mandate = nil
	c.mandated = slices.DeleteFunc(c.mandated, func(o *gang) bool { return o == g })
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
// and the next plan may well do.
func (g *gang) retry(now time.Time, limits uint64, why string) {
	g.pauseFor(now, limits, staleFirst, why)
	g.pause.found = foundStale
}

func (g *gang) pauseFor(now time.Time, limits uint64, first time.Duration, why string) {
	last := min(max(2*g.pause.lastUnder(limits), first), pauseMost)
	g.pause = pause{until: now.Add(last), last: last, limits: limits, why: api.Shorten(why, maxWhy)}
}

// await gives a gang no mandate until gangs may be evicted for it that may not be now.
func (g *gang) await(until time.Time, limits uint64, found string) {
	g.pause = pause{until: until, last: g.pause.lastUnder(limits), limits: limits, found: found}
}

// giveMandate tells a gang from whom it may take what it lacks. It returns at how many gangs it looked.
func (c *Core) giveMandate(now time.Time, g *gang) (looked int) {
	a := g.ask()
	a.now = now
	lacks := a.lacks()
	to, serial := g.home()
	rule, s := c.offerFor(now, g, a, lacks, &c.found)
	defer c.found.clear()
	if !s.enough {
		if !s.soonest.IsZero() {
			g.await(s.soonest, c.limitsVersion, foundYoung)
			return s.looked
		}
		if s.taken { // it failed for no reason of its own, so the next pause is no longer
			g.await(now.Add(pauseFirst), c.limitsVersion, foundTaken)
			return s.looked
		}
		if c.bar(g, false); s.displaced {
			g.await(now.Add(pauseFirst), c.limitsVersion, "")
			g.pause.why = "gangs that have what it lacks took its place"
			return s.looked
		}
		g.rest(now, c.limitsVersion, s.tooLittle())
		return s.looked
	}
	c.mandates++
	number := uint64(c.term)<<24 + c.mandates // no other term gives it
	m := &wire.Mandate{GangUid: g.key.uid, Attempt: g.attempt, Serial: serial, Number: number, Term: c.term, Rule: rule}
	for _, l := range lacks {
		if l.short > 0 {
			m.Lacks = append(m.Lacks, &wire.Lack{Queue: l.at.path, Resource: l.resource, Short: l.short})
		}
	}
	s.fill(a, rule, m)
	g.mandate = &mandate{number: number, rule: rule, serial: serial, until: now.Add(mandateFor)}
	c.mandated = append(c.mandated, g)
	for _, v := range s.first() {
		v.gang.offeredTo = g
		g.mandate.offered = append(g.mandate.offered, v.gang)
	}
	c.send(to, &wire.Envelope{Body: &wire.Envelope_Mandate{Mandate: m}})
	return s.looked
}

// home is where a gang's last request came from, and its serial.
func (g *gang) home() (api.Incarnation, uint64) {
	if g.req != nil {
		return g.req.from, g.req.serial
	}
	return g.stuck.from, g.serial
}

// ---- who may be taken

// offer is who may be taken for an ask, in order.
type offer struct {
	found  *found
	gangs  []*candidate
	need   int     // so many of them would be taken if all had room where it is needed
	enough bool    // all of them would free what is lacking
	sides  []*side // a parent before its children

	displacers map[identity]bool // not taken: those who displaced it
	displaced  bool              // some of those that were looked at are among them

	looked  int       // gangs, to find them,
	each    int       // of each queue at most
	taken   bool      // some of those that were looked at make room for others already, or were offered to them
	freed   []int64   // by them, of each of what is lacking
	exempt  int       // how many of them may not be evicted,
	some    bool      // and that some may
	soonest time.Time // when the first may go of those that started too short a time ago, the zero time for none
}

// first returns those that would be taken if all had room where it is needed.
func (s *offer) first() []*candidate { return s.gangs[:s.need] }

// candidate is a gang that may be taken. It repeats what decides, because a mandate is about thousands of gangs that lie scattered in memory:
// each is looked at once.
type candidate struct {
	gang     *gang
	ref      *wire.GangRef
	side     *side
	amounts  api.Resources // that it would free
	priority int64
	granted  int64
	uid      string
	attempt  uint64
	spare    int
}

// found is the memory of an offer's candidates, which the next offer uses again.
type found struct {
	all   []candidate // never changed, so a pointer into it stays good when it grows
	order []*candidate
}

// add returns a gang with a reservation as a candidate.
func (f *found) add(g *gang, d *side, h holding) {
	f.all = append(f.all, candidate{g, g.ref, d, h.amounts, h.priority, g.res.granted, g.key.uid, g.res.attempt, g.res.spare()})
	f.order = append(f.order, &f.all[len(f.all)-1])
}

// clear forgets what was found, and the gangs with it.
func (f *found) clear() {
	clear(f.all)
	clear(f.order)
	f.all, f.order = f.all[:0], f.order[:0]
}

// side is a queue that would lose something.
type side struct {
	queue    *queue
	parent   *side
	number   int // -1 for the queue of a preemption, which is none of the mandate's sides
	children sides
	gangs    []*candidate  // of a leaf, the first to go first
	judged   api.Resources // of its threshold
	offered  sums          // what others would take by their mandates
	freed    sums          // what this one would
	share    int64         // over
	borrowed bool          // by all of them

	standings []standingOf   // of its gangs in the mandate
	amounts   api.Resources  // of the last of these,
	wire      []*wire.Amount // and the same for the mandate
}

// standingOf is the number by which a mandate names all gangs of a queue and a priority.
type standingOf struct {
	priority int64
	number   uint32
}

// sides is a heap of sides, first the one that is most above its threshold.
type sides []*side

func (h sides) Len() int { return len(h) }
func (h sides) Less(i, j int) bool {
	return h[i].share > h[j].share || h[i].share == h[j].share && h[i].number < h[j].number
}
func (h sides) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *sides) Push(x any)   { *h = append(*h, x.(*side)) }
func (h *sides) Pop() any     { panic("sides stay, with nothing to give") }

// plenty reports whether the offer is large enough to choose from: it would free several times what is lacking.
func (s *offer) plenty(lacks []lack) bool {
	if len(s.gangs) < plentyGangs {
		return false
	}
	for n, l := range lacks {
		if l.short <= 0 || s.freed[n] < api.AddSat(l.short, 3*min(l.short, math.MaxInt64/4)) {
			return false
		}
	}
	return true
}

// admits reports whether a gang with a reservation may go now, and notes when it may if it has not run for long enough.
func (s *offer) admits(now time.Time, g *gang, least time.Duration) bool {
	switch g.res.spares(now, least) {
	case "":
		if len(s.displacers) == 0 || !s.displacers[g.identity()] {
			return true
		}
		s.displaced = true
	case claimedAlready:
		s.taken = true
	case notPreemptible:
		s.exempt++
	case tooYoung:
		if at := time.UnixMilli(g.res.granted).Add(least); s.soonest.IsZero() || at.Before(s.soonest) {
			s.soonest = at
		}
	}
	return false
}

// tooLittle says that an offer does not have what an ask lacks.
func (s *offer) tooLittle() string {
	const exempt = "because of preemptible: false or of pods without a controller"
	switch {
	case s.exempt == 0:
		return "the gangs that may be evicted do not have what it lacks"
	case !s.some:
		return "none of the gangs that have what it lacks may be evicted, " + exempt
	}
	return fmt.Sprintf("the gangs that may be evicted do not have what it lacks; those that may not be, %s: %d", exempt, s.exempt)
}

// offerFor returns who may be taken for an ask: of other queues, or if these do not have what it lacks, of its own. The offer is valid
// until the next one in the same memory.
func (c *Core) offerFor(now time.Time, g *gang, a ask, lacks []lack, f *found) (wire.Rule, *offer) {
	f.clear()
	displacers := c.displacedBy(g)
	s := reclaimable(now, a, lacks, &offer{found: f, displacers: displacers, freed: make([]int64, len(lacks))})
	if s.enough = s.cover(lacks); s.enough {
		return wire.Rule_RULE_RECLAIM, s
	}
	others, some := *s, len(s.gangs) > 0
	f.clear()
	if s = preemptible(now, a, lacks, &offer{found: f, displacers: displacers}); s.soonest.IsZero() || !others.soonest.IsZero() && others.soonest.Before(s.soonest) {
		s.soonest = others.soonest
	}
	s.looked, s.exempt, s.some = s.looked+others.looked, s.exempt+others.exempt, some || len(s.gangs) > 0
	s.taken, s.displaced = s.taken || others.taken, s.displaced || others.displaced
	s.enough = s.cover(lacks)
	return wire.Rule_RULE_PREEMPT, s
}

// cover reports whether all of them would free what is lacking.
func (s *offer) cover(lacks []lack) bool {
	for _, l := range lacks {
		var freed wide
		for i := range s.gangs {
			if v := s.gangs[i]; api.Under(v.side.queue.path, l.at.path) {
				freed = freed.plus(v.amounts.Value(l.resource))
			}
		}
		if freed.amount() < l.short {
			return false
		}
	}
	return len(s.gangs) > 0 && len(lacks) > 0
}

// goesFirst is the order in which gangs of one leaf are taken: the lowest priority, and of those the one that was granted last.
func goesFirst(a, b *candidate) int {
	return cmp.Or(cmp.Compare(a.priority, b.priority), cmp.Compare(b.granted, a.granted), strings.Compare(a.uid, b.uid))
}

// preemptible returns the gangs that may be preempted for an ask.
func preemptible(now time.Time, a ask, lacks []lack, s *offer) *offer {
	if !a.queue.preempts() {
		return s
	}
	borrows := false // then only who borrows all that it uses may be put out
	for q := a.queue; q.parent != nil; q = q.parent {
		borrows = borrows || !usesAny(q.threshold(), a.demand)
	}
	d, least := &side{queue: a.queue, number: -1}, a.queue.minRuntime(wire.Rule_RULE_PREEMPT)
	for _, g := range newest(a.queue.reserved, lookedAtMost) {
		s.looked++
		h := g.holding()
		if s.taken = s.taken || g.offeredTo != nil; !a.mayPreempt(h, lacks) || g.offeredTo != nil || !s.admits(now, g, least) {
			continue
		}
		if borrows && len(a.demand) > 0 && usesAny(a.queue.threshold(), h.amounts) {
			continue
		}
		s.found.add(g, d, h)
	}
	s.gangs = s.found.order
	slices.SortFunc(s.gangs, goesFirst)
	s.gangs = s.gangs[:min(len(s.gangs), candidatesAtMost)]
	s.chooseFirst(lacks)
	return s
}

// chooseFirst notes how many of the gangs are enough for what is lacking.
func (s *offer) chooseFirst(lacks []lack) {
	short := slices.Clone(lacks)
	for i := range s.gangs {
		v, enough := s.gangs[i], true
		for n := range short {
			if api.Under(v.side.queue.path, short[n].at.path) {
				short[n].short -= max(0, v.amounts.Value(short[n].resource))
			}
			enough = enough && short[n].short <= 0
		}
		if s.need = i + 1; enough {
			return
		}
	}
}

// reclaimable returns the gangs of other queues that may be taken for an ask: those of the nearest queues first, of these the ones that are
// most above their thresholds, level by level.
func reclaimable(now time.Time, a ask, lacks []lack, s *offer) *offer {
	for mine := a.queue; mine.parent != nil && s.looked < lookedAtMost; mine = mine.parent {
		if !mine.mayTake(a) {
			continue
		}
		s.divide(mine)
		var tops sides
		for _, other := range mine.parent.children {
			if other == mine {
				continue
			}
			if t := s.sidesOf(now, lacks, nil, other, other); t != nil {
				tops = append(tops, t)
			}
		}
		heap.Init(&tops)
		for len(s.gangs) < candidatesAtMost && !s.plenty(lacks) {
			v := next(&tops)
			if v == nil {
				break
			}
			s.gangs = append(s.gangs, v)
			for n := range s.freed {
				if api.Under(v.side.queue.path, lacks[n].at.path) {
					s.freed[n] = api.AddSat(s.freed[n], max(0, v.amounts.Value(lacks[n].resource)))
				}
			}
		}
	}
	s.chooseFirst(lacks)
	for _, d := range s.sides { // others would do as well, if these are not where room is needed, and what is surplus goes before all gangs
		plenty := s.plenty(lacks)
		for _, v := range d.gangs {
			if len(s.gangs) < candidatesAtMost && (!plenty || v.spare > 0) {
				s.gangs = append(s.gangs, v)
			}
		}
	}
	return s
}

// divide notes at how many gangs of each queue the offer looks that is beside one, or below such a queue. If they have too many together, it
// is at as many of each, and at all where there are fewer: the first queues in the order of their paths would use up the others' part.
func (s *offer) divide(mine *queue) {
	left := lookedAtMost - s.looked
	if s.each = left; mine.parent.admitted-mine.admitted <= left {
		return
	}
	var counts []int
	var walk func(q *queue)
	walk = func(q *queue) {
		if q == mine || !q.mayLose() {
			return
		}
		if n := len(q.reserved); n > 0 {
			counts = append(counts, n)
		}
		for _, child := range q.children {
			walk(child)
		}
	}
	for _, other := range mine.parent.children {
		walk(other)
	}
	slices.Sort(counts)
	for i, n := range counts {
		if each := left / (len(counts) - i); n > each {
			s.each = max(1, each)
			return
		}
		left -= n
	}
}

// newest returns so many of a queue's gangs, most of which got their quota later than the others.
func newest(reserved []*gang, most int) []*gang {
	return reserved[max(0, len(reserved)-max(0, most)):]
}

// sidesOf makes the side of a queue and those below it, nil if nothing can be taken there. The ask is entitled to take from other, which
// the queue is or is below.
func (s *offer) sidesOf(now time.Time, lacks []lack, parent *side, other, q *queue) *side {
	if !q.mayLose() || s.looked >= lookedAtMost {
		return nil
	}
	d := &side{queue: q, parent: parent, number: len(s.sides), judged: q.judgedBy(lacks), borrowed: true}
	s.sides = append(s.sides, d)
	for _, child := range q.children {
		if t := s.sidesOf(now, lacks, d, other, child); t != nil {
			d.children = append(d.children, t)
			d.borrowed = d.borrowed && t.borrowed
		}
	}
	least := q.minRuntime(wire.Rule_RULE_RECLAIM)
	var last api.Resources // gangs of a queue are often alike
	loses, borrowed, from := false, false, len(s.found.order)
	for _, g := range newest(q.reserved, min(s.each, lookedAtMost-s.looked)) {
		s.looked++
		h := g.holding()
		if g.offeredTo != nil { // it counts as gone: else many mandates would have one queue lose more than it may
			s.taken = true
			for p := d; p != nil; p = p.parent {
				p.offered = add(p.offered, h.amounts)
			}
			continue
		}
		if last == nil || !slices.Equal(h.amounts, last) {
			last, loses, borrowed = h.amounts, other.loses(h, lacks), !usesAny(q.threshold(), h.amounts)
		}
		if loses && s.admits(now, g, least) {
			s.found.add(g, d, h)
			d.borrowed = d.borrowed && borrowed
		}
	}
	d.gangs = s.found.order[from:]
	if len(d.gangs)+len(d.children) == 0 {
		s.sides = s.sides[:d.number]
		return nil
	}
	slices.SortFunc(d.gangs, goesFirst)
	d.share = d.over()
	heap.Init(&d.children)
	return d
}

// next takes the next gang from the sides that are still above their thresholds.
func next(all *sides) *candidate {
	for len(*all) > 0 && (*all)[0].share >= 0 {
		best := (*all)[0]
		v := next(&best.children)
		if v == nil && len(best.gangs) > 0 {
			v, best.gangs = best.gangs[0], best.gangs[1:]
		}
		if v == nil {
			best.share = -1 // nothing more is taken here
		} else {
			best.freed = add(best.freed, v.amounts)
			best.share = best.over()
		}
		if heap.Fix(all, 0); v != nil {
			return v
		}
	}
	return nil
}

func add(s sums, amounts api.Resources) sums {
	for _, a := range amounts {
		at := s.at(a.Resource)
		*at = at.plus(a.Value)
	}
	return s
}

// judgedBy is the part of a queue's threshold that counts: what is lacking, if it names any of that.
func (q *queue) judgedBy(lacks []lack) api.Resources {
	threshold := q.threshold()
	lacking := slices.DeleteFunc(slices.Clone(threshold), func(t api.Amount) bool {
		return !slices.ContainsFunc(lacks, func(l lack) bool { return l.resource == t.Resource })
	})
	if len(lacking) > 0 {
		return lacking
	}
	return threshold
}

// has is what the queue will have once all mandates that were given are claims whose victims are gone.
func (d *side) has(resource string) wide {
	return d.queue.has(resource).sub(d.offered.get(resource))
}

// over is how much of its threshold a side would have, as a part of it, of the resource of which that is most; -1 if it is not above any.
func (d *side) over() int64 {
	if d.borrowed {
		return weightless
	}
	most := int64(-1)
	for _, t := range d.judged {
		if has := d.has(t.Resource).sub(d.freed.get(t.Resource)).amount(); has > t.Value {
			most = max(most, part(has, t.Value))
		}
	}
	return most
}

// fill writes an offer into a mandate.
func (s *offer) fill(a ask, rule wire.Rule, m *wire.Mandate) {
	for _, d := range s.sides {
		w := &wire.Side{Queue: d.queue.path, Borrowed: d.borrowed}
		if d.parent != nil {
			w.Parent = uint32(d.parent.number) + 1
		}
		for _, t := range d.judged {
			if above := d.has(t.Resource).plus(-t.Value).amount(); above > 0 {
				w.Above = append(w.Above, &wire.Amount{Resource: t.Resource, Value: above})
			}
		}
		for _, t := range d.queue.guarantee {
			if t.Value > 0 {
				w.Spare = append(w.Spare, &wire.Amount{Resource: t.Resource, Value: d.has(t.Resource).plus(-t.Value).amount()})
			}
		}
		m.Sides = append(m.Sides, w)
	}
	block := make([]wire.Candidate, len(s.gangs))
	m.Candidates = make([]*wire.Candidate, len(s.gangs))
	standings := uint32(0)
	for i := range s.gangs {
		v, w := s.gangs[i], &block[i]
		d := v.side
		at := slices.IndexFunc(d.standings, func(o standingOf) bool { return o.priority == v.priority })
		if at < 0 {
			standings++
			at, d.standings = len(d.standings), append(d.standings, standingOf{v.priority, standings})
		}
		if d.wire == nil || !slices.Equal(d.amounts, v.amounts) {
			d.amounts, d.wire = v.amounts, wire.FromResources(v.amounts)
		}
		w.Gang, w.Attempt, w.Demand = v.ref, v.attempt, d.wire
		w.Standing, w.Side = d.standings[at].number, uint32(d.number+1)
		if v.spare > 0 {
			w.Least = uint32(v.gang.res.least)
			for _, p := range v.gang.res.condemned {
				w.Condemned = append(w.Condemned, p.id)
			}
		}
		m.Candidates[i] = w
	}
	if rule == wire.Rule_RULE_PREEMPT {
		m.AtLeast = wire.FromResources(a.atLeast())
	}
}

// atLeast is how much a preemption has to free so that no queue of the path has more above its threshold than before.
func (a ask) atLeast() (out api.Resources) {
	for _, d := range a.demand {
		most := int64(0)
		for q := a.queue; q.parent != nil; q = q.parent {
			threshold := q.threshold()
			limit, named := threshold.Get(d.Resource)
			switch {
			case !named && q.isFree(d.Resource):
			case !usesAny(threshold, a.demand):
				most = d.Value
			case named:
				most = max(most, min(d.Value, q.has(d.Resource).plus(d.Value).plus(-limit).amount()))
			}
		}
		if most > 0 {
			out = append(out, api.Amount{Resource: d.Resource, Value: most})
		}
	}
	return out
}
