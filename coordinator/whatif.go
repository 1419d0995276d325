package coordinator

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

// What if. Somebody asks what other specs of Queues would do, and how a gang would stand that does not exist. The functions that decide give
// the answer, on the core itself, between save and the function that save returns. What they write are fields of Core, tree and queue: what is
// in force, fair shares, who is next, when that was found out. These are put back as they were. What the fields refer to is replaced and never
// changed in place. TestWhatIfChangesNothing compares all that a core refers to before and after each question, and its later outputs with
// those of a core that was never asked.
//
// Gangs are judged anew where they are shown, those that are asked about after those that are before them (ahead.go).
// Of the others it is taken that what keeps them from being granted is still of the same kind: a
// gang that could never fit, and could with a larger capability, counts in wanted only once the capability is really larger.
//
// The cost is bounded by the number of queues, and by that of gangs that are looked at for tolls. With 1,000 queues and 100,000 gangs that wait
// it is some ten milliseconds (BenchmarkWhatIf), so the shell answers few questions a second.
//
// Whether a pod has room on a node, and so who would be evicted, only homes and node shards know. A Toll is what quota says of it.
//
// Considered: a copy of the tree. Gangs, requests and denials refer to the queues of the real one, so the rules of
// lines.go and reclaim.go would need a second form, or a copy of everything.

const (
	changesAtMost      = 32
	queuesShown        = 64
	gangsShown         = 16
	tollsLookAt        = 2 * lookedAtMost // gangs, for all tolls together; the last may look at more
	victimsShown       = 10
	plannedPodsAtMost  = 100_000
	plannedNamesAtMost = api.MaxResources
)

// Question is about Changes, and about a gang.
type Question struct {
	Changes []Change
	Queue   string // that the gang is next in,
	GangUID string // unless it is this one of it
	Planned *wire.PlannedGang
}

// Change is another value of a field of a Queue's spec.
type Change struct {
	Queue string
	Apply func(*QueueSeen) // replaces vectors and the policy, and changes none in place
}

// WhatIf answers a question. It changes nothing.
func (c *Core) WhatIf(now time.Time, q Question) *wire.WhatIfReply {
	defer c.save()()
	if n := len(q.Changes); n > changesAtMost {
		return &wire.WhatIfReply{Invalid: fmt.Sprintf("%d changes are asked about at once, the limit is %d", n, changesAtMost)}
	}
	if q.Planned == nil && q.GangUID == "" && q.Queue != "" {
		if about := c.tree.byPath[q.Queue]; about == nil || about.object == nil && about.limits == nil {
			return &wire.WhatIfReply{Invalid: fmt.Sprintf("queue %q does not exist", q.Queue)}
		}
	}
	planned, further, why := c.plan(now, q.Planned)
	if why != "" {
		return &wire.WhatIfReply{Invalid: why}
	}
	if planned != nil {
		planned.req.count()
	}
	x := &whatIf{core: c, now: now, planned: planned, further: further}
	x.refresh()
	x.about(q)
	if len(q.Changes) == 0 {
		x.showGangs(func(o *wire.GangOutlook) **wire.Outlook { return &o.Before })
		return &x.out
	}
	takers, was := x.takers(), map[*queue]inForce{}
	c.tree.root.walk(func(q *queue) { was[q] = q.inForce() })

	back := c.save()
	named, why := c.try(q.Changes)
	if why != "" {
		return &wire.WhatIfReply{Invalid: why}
	}
	x.refresh()
	x.about(q)
	x.aboutTakers(takers, x.takers())
	x.differ(was, named)
	x.showGangs(func(o *wire.GangOutlook) **wire.Outlook { return &o.After })
	x.showQueues(func(o *wire.QueueOutlook) **wire.QueueUsage { return &o.After })
	back()
	x.showGangs(func(o *wire.GangOutlook) **wire.Outlook { return &o.Before })
	x.showQueues(func(o *wire.QueueOutlook) **wire.QueueUsage { return &o.Before })
	return &x.out
}

// save copies what answers write, and returns the function that puts it back.
func (c *Core) save() (restore func()) {
	core, tree := *c, *c.tree
	queues := make([]queue, 0, len(c.tree.byPath))
	c.tree.root.walk(func(q *queue) { queues = append(queues, *q) })
	return func() {
		*c, *c.tree = core, tree
		i := 0
		c.tree.root.walk(func(q *queue) { *q = queues[i]; i++ })
	}
}

// plan makes the gang that does not exist, nil for none, or says what is wrong with it.
func (c *Core) plan(now time.Time, p *wire.PlannedGang) (g *gang, further api.Resources, why string) {
	if p == nil {
		return nil, nil, ""
	}
	bad := func(format string, args ...any) (*gang, api.Resources, string) {
		return nil, nil, "the planned gang: " + fmt.Sprintf(format, args...)
	}
	if err := api.ValidatePath(p.GetQueue()); err != nil {
		return bad("%v", err)
	}
	q := c.tree.byPath[p.GetQueue()]
	if q == nil || !c.tree.exists(q) {
		return bad("queue %q does not exist", p.GetQueue())
	}
	demand, err := wire.ToResources(p.GetDemand())
	if err == nil {
		err = sound(demand)
	}
	if n := len(demand); err == nil && n > plannedNamesAtMost+1 { // and pods
		err = fmt.Errorf("it requests %d resources, the limit is %d", n, plannedNamesAtMost)
	}
	further, wrong := wire.ToResources(p.GetFurther())
	if wrong == nil {
		wrong = sound(further)
	}
	switch pods := p.GetPods(); {
	case err != nil:
		return bad("%v", err)
	case wrong != nil:
		return bad("the pods that follow: %v", wrong)
	case pods == 0 || pods > plannedPodsAtMost:
		return bad("%d pods start together: 1 to %d", pods, plannedPodsAtMost)
	}
	g = &gang{key: gangKey{queue: q.path}, ref: &wire.GangRef{Namespace: p.GetNamespace(), Queue: q.path}}
	if why := g.tooLarge(demand, make([]uint64, p.GetPods())); why != "" {
		return bad("%s", why)
	}
	demand = c.tree.counted(demand)
	tenant := q.members.tenants[p.GetNamespace()]
	g.req = &request{gang: g, queue: q, namespace: p.GetNamespace(), tenant: tenant, demand: demand, delta: demand,
		priority: p.GetPriority(), order: p.GetOrder(), ordered: p.Order != nil,
		since: now.UnixMilli(), arrived: now, claims: p.GetClaims(),
		preemptible: !p.GetKept(), kept: p.GetKept(), runs: max(0, p.GetRunsMs()),
		barred: c.rights.right(q, p.GetNamespace())}
	g.req.term = g.req.ends()
	return g, further, ""
}

// count lets a request that does not wait count among what is wanted: fair shares follow from that.
func (r *request) count() {
	for p := r.queue; p != nil; p = p.parent {
		p.asked.sums = slices.Clone(p.asked.sums)
	}
	r.queue.ask(r.delta, 1)
}

// try puts changes in force, unless a Queue would be invalid.
func (c *Core) try(changes []Change) (named []*queue, why string) {
	for _, change := range changes {
		q := c.tree.byPath[change.Queue]
		switch {
		case (q == nil || q.object == nil) && !c.tree.synced:
			return nil, fmt.Sprintf("queue %q is not known yet: ask again in a moment", change.Queue)
		case q == nil || q.object == nil:
			return nil, fmt.Sprintf("queue %q does not exist", change.Queue)
		case q.object.Deleting:
			return nil, fmt.Sprintf("queue %q is being deleted", change.Queue)
		case q.object.Invalid != "":
			return nil, fmt.Sprintf("queue %q cannot be read: %s", change.Queue, q.object.Invalid)
		case q.limits == nil || q.limits.record.GetDeleted():
			return nil, fmt.Sprintf("queue %q: its limits are not in force yet: ask again in a moment", change.Queue)
		}
		if !slices.Contains(named, q) {
			spec := *q.object
			q.object = &spec
			named = append(named, q)
		}
		change.Apply(q.object)
	}
	for _, q := range named {
		if why := q.object.conflict(); why != "" {
			return nil, fmt.Sprintf("queue %q: %s", q.path, why)
		}
		o, selector := q.object, q.limits.record.NamespaceSelector
		q.limits = &limits{capability: o.Capability, guarantee: o.Guarantee, deserved: o.Deserved, users: q.limits.users,
			selector: q.limits.selector, record: o.record(selector)}
		if c.tree.counting == 0 && q.limits.names(api.ResourceGangs) {
			return nil, fmt.Sprintf("queue %q: gangs are counted once the spec of some queue names %s, and none does",
				q.path, api.ResourceGangs)
		}
		if n := limitsBytes(q.limits.record); n > maxRecordBytes {
			return nil, fmt.Sprintf("queue %q: its record would have %d bytes, the limit is %d", q.path, n, maxRecordBytes)
		}
	}
	c.tree.limitsChanged()
	return named, ""
}

// conflict says what the API server would refuse in a spec, "" for nothing: see api/generate/crds.
func (o *QueueSeen) conflict() string {
	lists := []struct {
		field string
		list  api.Resources
	}{{"guarantee", o.Guarantee}, {"deserved", o.Deserved}, {"capability", o.Capability}}
	for i, low := range lists {
		if len(low.list) > api.MaxResources {
			return fmt.Sprintf("spec.%s: it names %d resources, the limit is %d", low.field, len(low.list), api.MaxResources)
		}
		for _, high := range lists[i+1:] {
			for _, a := range low.list {
				if most, named := high.list.Get(a.Resource); named && a.Value > most {
					return fmt.Sprintf("spec.%s: %s: %s is above spec.%s, which is %s", low.field, a.Resource, api.FormatAmount(a.Resource, a.Value),
						high.field, api.FormatAmount(a.Resource, most))
				}
			}
		}
	}
	return ""
}

// whatIf is an answer that is being made.
type whatIf struct {
	core    *Core
	now     time.Time
	planned *gang
	further api.Resources // that pods of it request which do not start with the others
	gangs   []*gang       // nil for one that the coordinator does not know
	queues  []*queue
	asked   int // the first of gangs: those that the question is about
	looked  int // gangs, for tolls
	found   found
	out     wire.WhatIfReply
}

// refresh makes anew what follows from limits and requests.
func (x *whatIf) refresh() {
	c := x.core
	c.tree.nextFair, c.tree.linedUp = time.Time{}, time.Time{}
	c.tree.recompute()
	c.tree.updateFair(x.now)
	c.lineUp(x.now)
}

// inForce is what changes of other queues may do to one.
type inForce struct {
	guarantee, deserved api.Resources
	shares              shares
}

func (q *queue) inForce() inForce {
	return inForce{guarantee: q.guarantee, deserved: q.deserved, shares: q.shares()}
}

func (a inForce) equal(b inForce) bool {
	return a.guarantee.Equal(b.guarantee) && a.deserved.Equal(b.deserved) && a.shares.equal(b.shares)
}

// differ finds the queues that are shown: those named, and those that differ from what they were.
func (x *whatIf) differ(was map[*queue]inForce, named []*queue) {
	x.queues = slices.Clone(named)
	x.core.tree.root.walk(func(q *queue) {
		if q.object != nil && !slices.Contains(named, q) && !q.inForce().equal(was[q]) {
			x.queues = append(x.queues, q)
		}
	})
	x.out.QueuesTotal = uint32(len(x.queues))
	x.queues = x.queues[:min(len(x.queues), queuesShown)]
	slices.SortStableFunc(x.queues, byTree)
	for _, q := range x.queues {
		x.out.Queues = append(x.out.Queues, &wire.QueueOutlook{Named: slices.Contains(named, q)})
	}
}

func (x *whatIf) showQueues(side func(*wire.QueueOutlook) **wire.QueueUsage) {
	for i, q := range x.queues {
		*side(x.out.Queues[i]) = x.core.usage(q)
	}
}

// about adds the gangs that are asked about.
func (x *whatIf) about(q Question) {
	next := func(path string) {
		q := x.core.tree.byPath[path]
		if q == nil {
			return
		}
		if q.order.next != nil {
			x.show(q.order.next.gang)
		}
		x.hopeless(q)
	}
	switch {
	case x.planned != nil:
		x.show(x.planned)
	case q.GangUID != "":
		g := x.core.roster.gangs[gangKey{q.Queue, q.GangUID}]
		if g == nil || g.req == nil && g.res == nil {
			g = nil
		}
		x.show(g)
	case q.Queue != "":
		next(q.Queue)
	default:
		for _, change := range q.Changes {
			next(change.Queue)
		}
	}
	x.asked = len(x.gangs)
}

func (x *whatIf) show(g *gang) {
	if slices.Contains(x.gangs, g) {
		return
	}
	x.out.GangsTotal++
	if len(x.gangs) == gangsShown {
		return
	}
	x.gangs = append(x.gangs, g)
	out := &wire.GangOutlook{}
	if g != nil {
		out.Gang = g.ref
	}
	x.out.Gangs = append(x.out.Gangs, out)
}

// takers says of the first gang of each queue by which rule others may be evicted for it.
func (x *whatIf) takers() map[*gang]wire.Rule {
	out := map[*gang]wire.Rule{}
	x.core.tree.root.walkWaiting(func(q *queue) {
		if r := q.order.next; r != nil && r.queue == q {
			g, l := x.core.judged(x.now, r.gang)
			out[r.gang] = x.core.ruleFor(g, l)
		}
	})
	return out
}

// aboutTakers adds those for which others may be evicted only before or only after.
func (x *whatIf) aboutTakers(before, after map[*gang]wire.Rule) {
	x.core.tree.root.walkWaiting(func(q *queue) {
		if q.order.next == nil || q.order.next.queue != q {
			return
		}
		if g := q.order.next.gang; (before[g] == wire.Rule_RULE_UNKNOWN) != (after[g] == wire.Rule_RULE_UNKNOWN) {
			x.show(g)
		}
	})
}

// judged judges the request of a gang. It returns a copy of the gang whose demand class was denied just so: the class may have been judged when
// limits were others, and a planned gang has none.
func (c *Core) judged(now time.Time, g *gang) (*gang, *shortfall) {
	out, r := *g, *g.req
	out.req, r.gang = &r, &out
	l := c.judge(g.req, c.tree.path(g.req.queue))
	if r.barred == nil {
		r.demandClass = &demandClass{queue: r.queue, namespace: r.namespace, delta: r.delta, requests: []*request{&r}}
		if l != nil {
			r.demandClass.denied = *l
		}
	}
	if r.lacking.IsZero() {
		r.lacking = now
	}
	return &out, l
}

// ruleFor says by which rule others may be evicted for a gang that was judged just now, as far as sums of queues tell.
func (c *Core) ruleFor(g *gang, l *shortfall) wire.Rule {
	if l == nil || !l.waits() || !c.tree.evicts || !c.owners.Complete() || !g.req.waitsForQuota() {
		return wire.Rule_RULE_UNKNOWN
	}
	a := g.ask()
	rule, _ := a.prospect(a.lacks())
	return rule
}

func (x *whatIf) showGangs(side func(*wire.GangOutlook) **wire.Outlook) {
	for i, g := range x.gangs {
		out := &wire.Outlook{}
		switch {
		case g == nil:
		case g.req != nil:
			x.waits(out, g, i < x.asked)
		default:
			out.Known, out.Charged = true, true
			out.Standing = x.core.standingOf(x.now, g)
			out.Exposed = x.core.exposed(x.now, g)
		}
		*side(x.out.Gangs[i]) = out
	}
}

// waits says how a gang stands that waits for quota; of one that is asked about, once those before it have had their
// turns.
func (x *whatIf) waits(out *wire.Outlook, g *gang, asked bool) {
	c := x.core
	copy, l := c.judged(x.now, g)
	r := copy.req
	out.Known, out.Charged = true, g.res != nil && !g.res.demand.IsZero()
	out.Place, out.Waiting = g.req.position(g == x.planned)
	if r.ordered {
		out.Order = new(r.order)
	}
	if l == nil || l.waits() || l.reason == wire.DenyReason_DENY_CLAIMING { // others have no turn
		out.Standing = c.standingOf(x.now, copy)
	}
	if l == nil && asked {
		var ahead []*gang
		if ahead, l, out.Message = x.inTurn(g); l != nil {
			out.Standing.Eviction, out.Standing.Then, out.Standing.ThenUnixMs = "", "", 0
			out.Reason, out.Queue, out.Resource, out.Short = l.reason, l.queue.path, l.resource, l.short
		}
		out.AheadTotal = uint32(len(ahead))
		for _, h := range ahead[:min(len(ahead), aheadShown)] {
			out.Ahead = append(out.Ahead, h.ref)
		}
		if l != nil {
			return
		}
	}
	if l == nil {
		out.Granted = true
		out.Standing.Eviction, out.Standing.Then, out.Standing.ThenUnixMs = "", "", 0
		if g == x.planned && len(x.further) > 0 {
			whole := *g.req
			whole.demand = whole.demand.Add(x.further)
			whole.delta = whole.demand
			if l := c.judge(&whole, c.tree.path(whole.queue)); l != nil {
				out.Further = l.message(&whole, c.text(&whole, l))
			}
		}
		return
	}
	out.Reason, out.Queue, out.Resource, out.Short = l.reason, l.queue.path, l.resource, l.short
	if out.Message = l.message(r, c.text(r, l)); l.reason == wire.DenyReason_DENY_UNKNOWN {
		out.Message = fmt.Sprintf("the limits of queue %q are not in force yet, or the labels of the namespace not known: ask again in a moment", l.queue.path)
	}
	if c.ruleFor(copy, l) != wire.Rule_RULE_UNKNOWN {
		out.Toll = x.toll(copy)
	}
}

// position is the place of a request among those of its queue, and how many these are.
func (r *request) position(planned bool) (place, of uint32) {
	ahead := 0
	if r.queue.order.classes != nil {
		r.queue.order.classes.Ascend(func(a *demandClass) bool {
			n, _ := slices.BinarySearchFunc(a.requests, r, (*request).compare)
			ahead += n
			return n > 0
		})
	}
	of = uint32(r.queue.members.waiting)
	if planned {
		of++
	}
	return uint32(ahead) + 1, of
}

// toll says who would be evicted first for a gang; nil if they are not enough now, or too many were looked at for others.
func (x *whatIf) toll(g *gang) *wire.Toll {
	if x.looked >= tollsLookAt {
		return nil
	}
	a := g.ask()
	lacks := a.lacks()
	rule, s := x.core.ledger.offerFor(x.now, g, a, lacks, 0, &x.found)
	x.looked += s.looked
	if !s.enough {
		return nil
	}
	out := &wire.Toll{Rule: rule, GangsTotal: uint32(s.need), Candidates: uint32(len(s.gangs))}
	var freed api.Resources
	for i, v := range s.first() {
		if i < victimsShown {
			out.Gangs = append(out.Gangs, v.ref)
		}
		if v.spare > 0 {
			out.Shrinkable++
		}
		freed = freed.Add(v.amounts)
		out.Pods += uint32(max(0, v.amounts.Value("pods")))
		out.CoreSeconds = api.AddSat(out.CoreSeconds, api.MulSat(v.amounts.Value("cpu")/1000, max(0, x.now.UnixMilli()-v.granted)/1000))
	}
	foremost, _ := freed.Positive().Foremost(api.MaxResources, a.demand)
	out.Freed = wire.FromResources(foremost)
	return out
}

// exposed says whether a gang that is charged may be evicted for others.
func (c *Core) exposed(now time.Time, g *gang) string {
	var words []string
	if why := g.spares(now, wire.Rule_RULE_RECLAIM); why != "" && why != tooYoung {
		return "nobody may have it evicted: " + why
	}
	if why, by := g.reclaimers(); by != nil {
		words = append(words, fmt.Sprintf("queues below %q that are to have what it uses may take it back: %s", by.path, why))
		if r := g.res; now.UnixMilli() < r.protectedUntil(r.queue.minRuntime(wire.Rule_RULE_RECLAIM)) {
			words[0] += fmt.Sprintf("; not before it has run for %v", r.queue.minRuntime(wire.Rule_RULE_RECLAIM))
		}
	} else {
		words = append(words, "other queues may not take it back: "+why)
	}
	if g.res.queue.preempts() {
		words = append(words, "gangs of its queue with a higher priority may have it evicted")
	}
	return strings.Join(words, "; ")
}

// beside reports whether f holds of one of the queue's siblings.
func (q *queue) beside(f func(*queue) bool) bool {
	return slices.ContainsFunc(q.parent.children, func(o *queue) bool { return o != q && f(o) })
}

// reclaimers returns the lowest queue below which others may take back what a gang is charged, nil for none, and says why.
func (g *gang) reclaimers() (why string, by *queue) {
	h := g.holding()
	var lacks []lack
	for _, a := range h.amounts {
		lacks = append(lacks, lack{at: top(h.queue), resource: a.Resource})
	}
	why = "no other queue is to have anything of what it uses"
	for q := h.queue; q.parent != nil; q = q.parent {
		switch {
		case q.limits.policy().GetKept():
			return fmt.Sprintf("queue %q is not reclaimable", q.path), nil
		case !q.isAbove(h, lacks, false):
			return fmt.Sprintf("queue %q has no more than it %s", q.path, entitlement(false)), nil
		case q.parent.limits.policy().GetReclaim() == wire.Reclaim_RECLAIM_NEVER:
			why = fmt.Sprintf("the reclaimPolicy of queue %q is Never", q.parent.path)
		case q.beside(func(o *queue) bool { return usesAny(o.deserved.Positive(), h.amounts) }):
			return fmt.Sprintf("queue %q has more than it %s", q.path, entitlement(false)), q.parent
		case !q.byFairShare():
		case !q.isAbove(h, lacks, true):
			return fmt.Sprintf("queue %q has no more than it %s", q.path, entitlement(true)), nil
		case q.beside(func(o *queue) bool { return usesAny(o.fair.Positive(), h.amounts) }):
			return fmt.Sprintf("queue %q has more than it %s", q.path, entitlement(true)), q.parent
		}
	}
	return why, nil
}
