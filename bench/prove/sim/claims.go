package sim

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/bench/prove/model"
	"basalt.dev/basalt/bench/prove/progress"
	core "basalt.dev/basalt/coordinator"
)

// What is judged of claims here is what the auditor cannot see: when something has to happen (I16, in quiet worlds alone), and what the
// coordinator knows without writing it (who may be granted something while a mandate is open). Who may be taken from whom, and what was
// promised, the auditor judges from the records.

// startWithin is how long after the last pod that it waits for is gone a claimant may take until its minimum is bound: I16.
const startWithin = 5 * time.Second

// claimant is a gang whose claim was made in a quiet world.
type claimant struct {
	gang, name string
	attempt    uint64
	mandate    uint64
	made       time.Time
	pods       int       // that it was promised quota for: one of a gang that grows; 0 if it lacked room alone
	limits     time.Time // when limits were edited last by then
	awaits     map[string]bool
	evicts     bool      // somebody was evicted for it
	gone       time.Time // since when nobody whom it waits for is there
}

// claimant takes note of a claim.
func (c *check) claimant(r *wire.ReservationRecord) {
	w := c.w
	if c.claimMade != nil {
		c.claimMade(r)
	}
	if !w.load.quiet || w.calm {
		return
	}
	x := &claimant{gang: r.Gang.Uid, name: r.Gang.Name, attempt: r.Attempt, mandate: r.Claim.Mandate, made: w.now,
		limits: c.limited, awaits: map[string]bool{}, pods: int(amountIn(r.Claim.Promised, string(corev1.ResourcePods)))}
	for _, uid := range r.Awaits {
		x.awaits[uid] = true
	}
	for _, v := range r.Claim.Victims {
		if len(v.Pods) == 0 {
			x.awaits[v.Gang.Uid] = true
		}
		for _, p := range v.Pods {
			x.awaits[p.Uid] = true
		}
	}
	c.claimants[x.gang] = x
	c.leaves()
}

// yields takes note of a gang that loses all or some of its pods.
func (c *check) yields(r *wire.ReservationRecord) {
	for _, y := range []*wire.Yielding{r.Yields, r.Shrinks} {
		if x := c.claimants[y.GetTo().GetUid()]; x != nil {
			x.evicts = true
		}
		if to := c.w.store.reservation(y.GetTo().GetUid()); to != nil {
			c.w.load.displaced.Add(r, to)
		}
	}
}

// leaves looks for claimants for whom all others have left.
func (c *check) leaves() {
	w := c.w
	for _, gang := range api.SortedKeys(c.claimants) {
		x := c.claimants[gang]
		here := slices.ContainsFunc(w.load.pods(func(p *corev1.Pod) bool { return p.Spec.NodeName != "" && !finished(p) }), func(p *corev1.Pod) bool {
			return x.awaits[string(p.UID)] || x.awaits[c.bound[string(p.UID)]]
		})
		switch {
		case here:
			x.gone = time.Time{}
		case x.gone.IsZero():
			x.gone = w.now
			w.outside(startWithin, func() { c.started(x) })
		}
	}
}

// started judges that a claimant has its minimum bound, unless its claim was dropped with reason, or it makes room for another gang by then.
func (c *check) started(x *claimant) {
	w := c.w
	if w.calm || c.claimants[x.gang] != x || x.gone.IsZero() || w.now.Sub(x.gone) < startWithin {
		return
	}
	delete(c.claimants, x.gang)
	g, p := w.api.group(x.name), w.api.podByUID(x.gang)
	least := 1
	if g != nil && g.uid == x.gang {
		if least = g.least; x.pods > 0 {
			least = min(least, x.pods)
		}
	} else if p == nil {
		return // it is deleted
	}
	placed := 0
	for uid, gang := range c.bound {
		if gang == x.gang && c.landed[uid].After(x.made) {
			placed++
		}
	}
	if placed >= least {
		w.count("claimants started in time")
		return
	}
	r := w.store.reservation(x.gang)
	switch {
	case r == nil || r.Attempt != x.attempt || r.State == wire.ReservationState_RESERVATION_CLOSING || c.limited.After(x.made):
		w.count("claimants that did not start")
		return
	}
	w.fail("I16: the last pod that gang %s waits for is gone for %s, and %d of its at least %d pods are bound%s", x.gang, startWithin, placed, least, w.load.explain())
}

func (s *store) reservation(gang string) *wire.ReservationRecord {
	for _, r := range s.reservations() {
		if r.Gang.Uid == gang {
			return r
		}
	}
	return nil
}

// yielded takes note of gangs that were evicted for others: they start anew, all together or not at all.
func (c *check) yielded(events []model.Event[proto.Message]) {
	for _, e := range events {
		if strings.HasPrefix(e.Key, "queues/") {
			c.limited = c.w.now
		}
		if !strings.HasPrefix(e.Key, "reservations/") || !e.Deleted {
			continue
		}
		if r := e.Prev.Value.(*wire.ReservationRecord); r.Yields != nil {
			g := c.gang(r.Gang.Uid)
			g.durable = map[string]time.Time{}
			for uid := range g.over { // those that have finished count still, however often it is evicted
				g.durable[uid] = c.w.now
			}
			clear(g.placed)
		}
	}
}

// denied is a request for quota that waits, of a gang that may claim. Others are kept from borrowing what it lacks.
type denied struct {
	gang, queue string
	lack        *wire.Lack
	serial      uint64
	term        int64
	at          time.Time
	since       map[string]time.Time // queues of its path that would have no more than they deserve with it, since when
	passed      string               // who borrowed of what it lacks,
	passedAt    time.Time
}

// barsAfter is when whoever waits, and is entitled to it, is known to keep others from borrowing: it is looked at at
// each Tick.
const barsAfter = 300 * time.Millisecond

// said takes note of who waits for quota: in quiet worlds alone, for while shards take over nobody is kept from anything.
func (c *check) said(t *term, o core.Send) {
	w := c.w
	switch b := o.Body.Body.(type) {
	case *wire.Envelope_Mandate:
		w.count("mandates")
		if m := c.waits[b.Mandate.GangUid]; m != nil && m.passed != "" && m.serial == b.Mandate.Serial && b.Mandate.Rule == wire.Rule_RULE_RECLAIM && w.now.Sub(m.at) < restsAfter && !c.limited.After(m.passedAt) {
			w.fail("I17: %s; by now it has a mandate", m.passed) // so it was not resting then: that is known from here alone
		}
	case *wire.Envelope_Denied:
		m := b.Denied
		last := c.waits[m.GangUid]
		g := w.api.group(c.nameOf(m.GangUid))
		if !w.load.quiet || m.Reason != wire.DenyReason_DENY_QUOTA || !c.mayClaim[m.GangUid] || g == nil || g.uid != m.GangUid {
			delete(c.waits, m.GangUid)
		} else if lack := (&wire.Lack{Queue: m.Queue, Resource: m.Resource}); last == nil || last.serial != m.Serial || !proto.Equal(last.lack, lack) {
			c.waits[m.GangUid] = &denied{gang: m.GangUid, queue: g.queue, lack: lack, serial: m.Serial, term: t.number,
				at: w.now, since: map[string]time.Time{}}
			c.entitled()
		}
	case *wire.Envelope_Granted:
		delete(c.waits, b.Granted.GangUid)
	case *wire.Envelope_ClaimReply:
		if !b.ClaimReply.Accepted { // it rests, and is in nobody's way
			w.count("claims refused, dropped or without a plan")
			if x := c.claimants[b.ClaimReply.GangUid]; x != nil && x.attempt == b.ClaimReply.Attempt && x.mandate == b.ClaimReply.Mandate {
				w.count("claims dropped")
				if !x.evicts { // its victims may have ended by themselves before they were asked: what became free is anybody's
					delete(c.claimants, x.gang)
				}
			}
		}
		delete(c.waits, b.ClaimReply.GangUid)
	case *wire.Envelope_Shrink:
		w.count("shrinks")
	}
}

// nameOf is the name of the PodGroup with a UID that was made last, "" for none.
func (c *check) nameOf(uid string) string {
	for name, uids := range c.byName {
		if len(uids) > 0 && uids[len(uids)-1] == uid {
			return name
		}
	}
	return ""
}

// decides judges what a coordinator decided: while a gang waits to take back what its queue deserves, no other gang is granted of what it lacks
// what makes its own queue have more than it deserves.
func (c *check) decides(t *term, o core.Txn) {
	w := c.w
	if len(c.waits) == 0 {
		return
	}
	all := w.store.byGang() // as they are once others have left and been changed, before anybody is granted something
	for _, op := range o.Ops {
		switch op := op.(type) {
		case core.DeleteReservation:
			delete(all, op.GangUID)
		case core.PutReservation:
			if all[op.Record.Gang.Uid] != nil || op.Record.Claim != nil {
				all[op.Record.Gang.Uid] = op.Record
			}
		}
	}
	for _, op := range o.Ops {
		put, is := op.(core.PutReservation)
		if !is || put.Record.Forced || put.Record.Claim != nil || put.Record.State != wire.ReservationState_RESERVATION_OPEN || len(put.Record.Demand) == 0 {
			continue
		}
		r := put.Record
		if w.store.reservation(r.Gang.Uid) != nil || len(c.gang(r.Gang.Uid).ever) > 0 {
			continue
		}
		for _, gang := range api.SortedKeys(c.waits) {
			m := c.waits[gang]
			if now := all[gang]; m.term != t.number || w.now.Sub(m.at) > restsAfter || now != nil {
				delete(c.waits, gang)
				continue
			}
			value := amountIn(r.Demand, m.lack.Resource)
			if gang == r.Gang.Uid || value <= 0 || !api.Under(r.Gang.Queue, m.lack.Queue) {
				continue
			}
			w.count("grants beside a gang that waits")
			if c.borrows(m, r, all) {
				m.passedAt, m.passed = w.now, fmt.Sprintf("I17: gang %s of queue %s is granted %d of %s, of which that queue has more than it deserves, and since %s gang %s waits for %s in queue %s, which its queue %s deserves",
					r.Gang.Uid, r.Gang.Queue, value, m.lack.Resource, m.at.Sub(w.start), gang, m.lack.Resource, m.lack.Queue, m.queue)
			}
		}
	}
}

// entitled takes note of who waits and would leave its side of the tree with no more than that deserves, with each
// change of records.
func (c *check) entitled() {
	if len(c.waits) == 0 {
		return
	}
	all, in := c.w.store.byGang(), c.w.store.shares()
	for _, m := range c.waits {
		for _, p := range api.Lineage(m.queue) {
			if _, was := m.since[p]; has(all, p, m.lack.Resource)+c.asks(m, m.lack.Resource) > in.deserves(p, m.lack.Resource) {
				delete(m.since, p)
			} else if !was {
				m.since[p] = c.w.now
			}
		}
	}
}

// side is the last queue of a path, from its leaf up, that is not on another path too, "" if there is none.
func side(queue, other string) (last string) {
	lineage := api.Lineage(other)
	for _, p := range api.Lineage(queue) {
		if slices.Contains(lineage, p) {
			break
		}
		last = p
	}
	return last
}

// restsAfter is when a gang that waits may have been given a mandate and have made no plan in time.
const restsAfter = 10 * time.Second

// borrows reports whether a grant adds to a side of the tree that has more than it deserves, against a gang whose side has no more with what it asks
// for. Where fair shares count, nothing is certain.
func (c *check) borrows(m *denied, r *wire.ReservationRecord, all map[string]*wire.ReservationRecord) bool {
	l, resource := m.lack, m.lack.Resource
	if limit := amountIn(c.limits(l.Queue).GetCapability(), resource); limit == 0 || has(all, l.Queue, resource)+c.least(m, resource) <= limit {
		return false // enough has become free
	}
	mine, other := side(m.queue, r.Gang.Queue), side(r.Gang.Queue, m.queue)
	if mine == "" || other == "" {
		return false
	}
	since, is := m.since[mine]
	if c.limited.After(since) {
		since = c.limited
	}
	if !is || c.w.now.Sub(since) < barsAfter {
		return false
	}
	if c.limits(api.Parent(mine)).GetPolicy().GetReclaim() != wire.Reclaim_RECLAIM_DESERVED || c.limits(other).GetPolicy().GetKept() {
		return false
	}
	in := c.w.store.shares()
	for _, d := range r.Demand { // it is judged by all that it uses and its side names
		if d.Resource != resource && in.wants(other, d.Resource) > 0 {
			return false
		}
	}
	theirs, ours := in.deserves(other, resource), in.deserves(mine, resource)
	return theirs > 0 && has(all, other, resource) > theirs && has(all, mine, resource)+c.asks(m, resource) <= ours
}

// asks is what a gang that was given a mandate asks for at most.
func (c *check) asks(m *denied, resource string) (sum int64) {
	for _, p := range c.w.load.pods(func(p *corev1.Pod) bool { return c.groupName(p) == c.nameOf(m.gang) && !finished(p) }) {
		sum += c.w.api.pods.objects[nameOf(p)].Pod.Class.Requests.Value(resource)
	}
	return sum
}

// least is what it asks for at least: its minimum of its smallest pods.
func (c *check) least(m *denied, resource string) (sum int64) {
	var each []int64
	for _, p := range c.w.load.pods(func(p *corev1.Pod) bool { return c.groupName(p) == c.nameOf(m.gang) && !finished(p) }) {
		each = append(each, c.w.api.pods.objects[nameOf(p)].Pod.Class.Requests.Value(resource))
	}
	slices.Sort(each)
	for _, v := range each[:min(len(each), max(1, c.gang(m.gang).least))] {
		sum += v
	}
	return sum
}

func (c *check) limits(path string) *wire.LimitsRecord {
	kv := c.w.store.Keys[keys.Limits(path)]
	if kv == nil {
		return nil
	}
	return kv.Value.(*wire.LimitsRecord)
}

func (s *store) shares() shares {
	all := shares{}
	for _, key := range s.with("queues/") {
		q := s.Keys[key].Value.(*wire.LimitsRecord)
		all[q.Queue] = q
	}
	return all
}

// has is what is charged below a queue and stays.
func has(all map[string]*wire.ReservationRecord, path, resource string) (sum int64) {
	taken := map[string]bool{}
	for _, r := range all {
		for _, v := range r.GetClaim().GetVictims() {
			if len(v.Pods) == 0 {
				taken[v.Gang.Uid] = true
			}
		}
	}
	for _, r := range all {
		if !api.Under(r.Gang.Queue, path) {
			continue
		}
		if r.State == wire.ReservationState_RESERVATION_OPEN && !taken[r.Gang.Uid] {
			sum += amountIn(r.Demand, resource)
			for _, p := range r.Condemned {
				sum -= amountIn(p.Amounts, resource)
			}
		}
		sum += amountIn(r.GetClaim().GetPromised(), resource)
	}
	return sum
}

// Progress, judged when the faults have ended and nobody has changed anything for a while, before anything is undone:
// whoever waits must be one who cannot start. What a gang lacks is placed by hand (package progress). What this judge
// cannot tell for sure it lets pass: pods with volumes, gangs with slices, queues in which something is guaranteed
// and cut.

// restFor is for how long nobody changes anything before it is judged who waits.
const restFor = 80 * time.Second

// restAgain is after what time it is judged again whether somebody still waits who could start: others may have been
// tried meanwhile that find no room, and were charged. It is judged restTimes times: for longer than a gang may be
// patient, which keeps what it holds.
const (
	restAgain = 50 * time.Second
	restTimes = 4
)

// judge judges who waits, and who stands in part.
func (w *world) judge() {
	before := w.waits
	w.waits, w.waited = map[string]int{}, before
	names := map[string]bool{}
	for _, p := range w.load.pods(ours) {
		if waits(p) && !perController(groupNamed(p)) {
			w.judgeWords(p)
		}
		if name := groupNamed(p); name != "" && !names[name] {
			names[name] = true
			w.judgeRest(name)
		} else if name == "" && waits(p) {
			w.judgePod(p)
		}
	}
	w.judgeClosed()
}

// judgeClosed judges that gangs that are evicted are charged for no more than is left of them: a pod may end late.
func (w *world) judgeClosed() {
	for _, r := range w.store.reservations() {
		if r.State != wire.ReservationState_RESERVATION_CLOSING || r.Gang.Single {
			continue
		}
		has := w.cpuOf(w.load.pods(func(p *corev1.Pod) bool {
			return p.Spec.NodeName != "" && !finished(p) && slices.Contains(r.Pods, api.PodID(string(p.UID)))
		}))
		w.count("gangs at rest that end late")
		if charged := amountIn(r.Demand, "cpu"); charged > has {
			w.suspect("closed "+r.Gang.Uid, 2, fmt.Sprintf("%s is evicted, charged cpu %d, has %d", r.Gang.Uid, charged, has))
		}
	}
}

// life is what became of a group since nothing of it was on a node that stays there.
type life struct {
	alive int
	whole bool      // it had its minimum
	short time.Time // since when it has less by the loss of a pod, zero while it has its minimum
	empty time.Time // since when nothing of it is alive, zero while something is
	began time.Time // when something of it was
	lacks time.Time // since when it is short, and a pod waits that would repair it, without a break
	made  int       // how many processes there had been then
}

// since tells the waits of a group apart: one that ran between two looks has not waited from the first to the second.
func (x *life) since(start time.Time) string {
	switch {
	case x.alive > 0:
		return ", which began at " + x.began.Sub(start).String() + ","
	case x.empty.After(start):
		return ", nothing of which is alive since " + x.empty.Sub(start).String() + ","
	}
	return ""
}

// underWay is how long after the last pod of a life others may be bound that belong to it: they were committed before.
const underWay = 3 * time.Second

// lived takes note of a change of a pod of a group.
func (c *check) lived(name string) {
	w := c.w
	g := w.api.group(name)
	if !w.load.lives || g == nil {
		return
	}
	was := c.lives[name]
	now := life{whole: was.whole, short: was.short, empty: was.empty, began: was.began}
	succeeded := 0
	for _, p := range w.load.pods(func(p *corev1.Pod) bool { return groupNamed(p) == name }) {
		switch {
		case running(p):
			now.alive++
		case p.Status.Phase == corev1.PodSucceeded && p.Labels[api.LabelGang] == g.uid:
			succeeded++
		}
	}
	if was.alive == 0 {
		now.began = w.now
	}
	switch {
	case now.alive == 0 && was.empty.IsZero():
		now.empty = w.now
	case now.alive == 0:
	case !was.empty.IsZero() && w.now.Sub(was.empty) > underWay:
		now.whole, now.short, now.empty = now.alive+succeeded >= g.least, time.Time{}, time.Time{}
	case now.alive+succeeded >= g.least:
		now.whole, now.short, now.empty = true, time.Time{}, time.Time{}
	case now.whole && now.alive < was.alive && now.short.IsZero():
		now.short = w.now
	}
	c.lacks(name, was, &now)
	c.lives[name] = now
}

// judgeRest judges a group of which pods wait.
func (w *world) judgeRest(name string) {
	l := &w.load
	g := w.api.group(name)
	if g == nil || perController(name) {
		return
	}
	seen := w.check.gang(g.uid)
	if now := w.check.lives[name]; now.alive > 0 && now.alive < g.least && !now.whole && !w.mayBeInPart(name) {
		w.fail("progress: %s %s stands in part at rest: %d of at least %d pods run%s",
			g.kind, name, now.alive, g.least, w.load.explain())
	}
	var waiting []*corev1.Pod
	refused, leaving := false, false
	placed, odd := 0, seen.meddled || seen.inherited && !l.lives || seen.relabelled || seen.floor != nil
	for _, p := range l.pods(func(p *corev1.Pod) bool { return groupNamed(p) == name }) {
		switch {
		case l.edited[string(p.UID)] || len(p.Spec.Volumes) > 0:
			odd = true
		case waits(p) && !l.mayBind(p):
			refused = refused || l.rest.isRefused(p)
		case waits(p):
			waiting = append(waiting, p)
			odd = odd || l.rest.isRefused(p) || // every other one: it pauses
				cmp.Or(p.Labels[api.LabelQueue], g.queue) != g.queue // and its group is told so
		case p.Spec.NodeName == "" && !finished(p):
		case l.policies != nil && p.DeletionTimestamp != nil && !finished(p):
			leaving = true
		case p.Labels[api.LabelGang] != g.uid && (!l.lives || w.check.paid[string(p.UID)] != g.queue):
			odd = true // of a namesake, or bound by hand
		case finished(p) && p.Labels[api.LabelGang] != g.uid:
		case p.Status.Phase != corev1.PodFailed && p.DeletionTimestamp == nil:
			placed++
		}
	}
	lacks := max(1, g.least-placed)
	if refused && !odd && !leaving && placed == 0 && len(waiting) < lacks {
		w.judgeRefused(name, g.uid)
	}
	if w.judgeShort(name, true); len(waiting) == 0 && l.policies == nil {
		w.judgeKept(name, g)
	}
	if odd || len(waiting) < lacks {
		return
	}
	if pg := w.api.PodGroup("ns", name); pg != nil && pg.Spec.SchedulingConstraints != nil {
		for _, t := range pg.Spec.SchedulingConstraints.Topology {
			if t.Mode != v1beta1.TopologyPreferred {
				return
			}
		}
	}
	enough := func(pods []*corev1.Pod) bool {
		for _, r := range seen.roles {
			n := 0
			for _, p := range l.pods(func(p *corev1.Pod) bool { return groupNamed(p) == name }) {
				if p.Annotations[volcanoTask] == r.Name && (!waits(p) || slices.Contains(pods, p)) {
					n++
				}
			}
			if n < r.Min {
				return false
			}
		}
		return len(pods) >= lacks
	}
	x := w.check.lives[name]
	who, queue := g.kind.String()+" "+name+" ("+g.uid+")"+x.since(w.start), cmp.Or(g.queue, api.DefaultQueue)
	w.mayNotWait(who, queue, waiting, enough, time.Time{})
	changed := api.Later(w.check.limited, w.check.relabelledAt)
	if x.alive > 0 && !x.short.IsZero() && placed < g.least && !changed.After(x.short) {
		since := x.short
		w.mayNotWait(who+", which is short since "+since.Sub(w.start).String(), queue, waiting, enough, since)
	}
}

// judgeKept judges that a group that nothing repairs is charged no more than it has when repairFor is over.
func (w *world) judgeKept(name string, g *group) {
	keeps, root := 2*time.Minute, w.api.queue(api.RootQueue)
	if root != nil && root.Spec.RepairFor != nil {
		keeps = root.Spec.RepairFor.Duration
	}
	r, x := w.store.reservation(g.uid), w.check.lives[name]
	if r == nil || x.alive == 0 || x.short.IsZero() || w.now.Sub(x.short) < keeps+restFor {
		return
	}
	has := w.cpuOf(w.load.pods(func(p *corev1.Pod) bool {
		return p.Spec.NodeName != "" && groupNamed(p) == name && !finished(p)
	}))
	w.count("groups judged that nothing repairs")
	if charged := amountIn(r.Demand, "cpu"); charged > has {
		w.fail("progress: %s is short since %s, nothing repairs it, and of cpu it is charged %d and its pods request %d%s",
			name, x.short.Sub(w.start), charged, has, w.load.explain())
	}
}

// evictedBy names what is counted of gangs that are evicted as a whole, by whether they are stale.
var evictedBy = map[bool]string{false: "gangs evicted for others", true: "gangs evicted as stale"}

// mayBeLost reports whether a pod hangs in deletion for so long that its gang need not be charged for it any more.
func (w *world) mayBeLost(p *corev1.Pod) bool {
	return p.DeletionTimestamp != nil && w.now.After(p.DeletionTimestamp.Add(time.Minute-time.Second))
}

// judgeRefused judges who cannot start because a policy refuses its Bindings: most of the time its quota is free. Who
// finds no room, and so has none refused, may keep it while it searches, and who has a claim while others leave for it.
func (w *world) judgeRefused(who, gang string) {
	if r := w.store.reservation(gang); r != nil && (r.Claim != nil || len(r.Awaits) > 0) {
		return
	}
	lasted := w.now.Sub(w.load.rest.since)
	w.count("gangs at rest that a policy refuses")
	if had := w.check.chargedFor(gang) - w.load.rest.before[gang]; had > lasted*3/4 { // also while it searches
		w.fail("progress: a policy refuses the Bindings of %s, and it was charged for %s of %s%s",
			who, had, lasted, w.load.explain())
	}
}

// judgePod judges a pod that waits by itself.
func (w *world) judgePod(p *corev1.Pod) {
	if w.load.edited[string(p.UID)] || len(p.Spec.Volumes) > 0 {
		return
	}
	if refused := w.load.rest.refused[p.Name]; refused || !w.load.mayBind(p) {
		if refused && !w.load.mayBind(p) { // else every other one is refused, and it pauses
			w.judgeRefused("pod "+p.Name, string(p.UID))
		}
		return
	}
	queue := cmp.Or(p.Labels[api.LabelQueue], api.DefaultQueue)
	w.mayNotWait("pod "+string(p.UID), queue, []*corev1.Pod{p}, progress.Least(1), time.Time{})
}

// mayNotWait fails if nothing is in the way of some of the pods, but for what came since a time, unless that is zero.
func (w *world) mayNotWait(who, queue string, pods []*corev1.Pod, enough func([]*corev1.Pod) bool, since time.Time) {
	if w.load.shutTo(queue) {
		return
	}
	nodes, err := w.cluster(func(p *corev1.Pod) bool { return !w.came(p, since) }).Start(pods, enough)
	if errors.Is(err, progress.ErrTooMany) {
		w.count("gangs at rest with too many ways")
		return
	}
	if nodes == nil {
		w.count("gangs at rest that fit nowhere")
		w.judgeEntitled(who, queue, pods)
		return
	}
	var demand api.Resources
	var at []string
	for _, p := range pods {
		if node := nodes[p.Name]; node != "" {
			demand = demand.Add(w.api.pods.objects[nameOf(p)].Pod.Class.Requests)
			at = append(at, p.Name+" on "+node)
		}
	}
	if !w.hasQuota(queue, demand, since) {
		w.count("gangs at rest without quota")
		w.judgeEntitled(who, queue, pods)
		return
	}
	if !since.IsZero() { // nothing but supply keeps its room on a node
		w.count("gangs short at rest whose place others took")
		return
	}
	w.suspect(who, restTimes,
		fmt.Sprintf("%s of queue %s waits at rest, and could start: %s", who, queue, strings.Join(at, ", ")))
}

// entitledTimes is how often in a row a gang is seen to wait at rest that is entitled to what others have: one that
// found no plan before that rests for 10 minutes at most, and then has two more offers.
const entitledTimes = 15

// judgeEntitled fails if such a gang waits for long.
func (w *world) judgeEntitled(who, queue string, pods []*corev1.Pod) {
	r := progress.Records{Now: w.now, Reservations: w.store.reservations(), Displaced: w.load.displaced,
		Limits: map[string]*wire.LimitsRecord{}}
	for _, key := range w.store.with("queues/") {
		path := strings.TrimPrefix(key, "queues/")
		r.Limits[path] = w.check.limits(path)
	}
	switch words, err := w.entitled(&r, queue, pods); {
	case err != nil:
		w.count("gangs at rest that may take of too many")
	case words != "":
		w.count("gangs at rest that are entitled")
		w.suspect("entitled "+who, entitledTimes, fmt.Sprintf("%s of queue %s waits at rest, and %s", who, queue, words))
	}
}

// suspect fails once something is seen at rest so many times that must not last.
func (w *world) suspect(what string, times int, words string) {
	if w.waits[what] = w.waited[what] + 1; w.waits[what] == times {
		w.fail("progress: %s%s", words, w.load.explain())
	}
}

// came reports whether a pod was bound in the two minutes after a time that is not zero, for a gang that was granted
// its quota since then: so long nobody else is to have what a gang lost.
func (w *world) came(p *corev1.Pod, since time.Time) bool {
	landed, granted := w.check.landed[string(p.UID)], w.check.granted[w.check.bound[string(p.UID)]]
	return !since.IsZero() && landed.After(since) && landed.Before(since.Add(2*time.Minute)) && granted.After(since)
}

// shutTo reports whether a queue, or one above it, takes nothing from the namespace.
func (l *workload) shutTo(queue string) bool {
	for _, path := range api.Lineage(queue) {
		q := l.w.api.queue(path)
		if q == nil && path != api.RootQueue || q != nil && (q.Spec.Closed || q.DeletionTimestamp != nil) {
			return true
		}
		if q == nil || q.Spec.NamespaceSelector == nil {
			continue
		}
		if q.Spec.NamespaceSelector.MatchLabels["tenant"] != l.namespaceLabels()["tenant"] {
			return true
		}
	}
	return false
}

// hasQuota reports whether a queue and all above it surely have so much left, what is guaranteed to others included.
func (w *world) hasQuota(queue string, demand api.Resources, since time.Time) bool {
	for _, path := range api.Lineage(queue) {
		limits := w.check.limits(path)
		if len(limits.GetCapability()) == 0 {
			continue
		}
		for _, d := range demand {
			limit := amountIn(limits.GetCapability(), d.Resource)
			if !slices.ContainsFunc(limits.GetCapability(), func(a *wire.Amount) bool { return a.Resource == d.Resource }) {
				continue
			}
			if w.held(path, queue, d.Resource)-w.tookSince(path, d.Resource, since)+d.Value > limit {
				return false
			}
		}
	}
	return true
}

// tookSince is what pods request below a queue that were bound since a time.
func (w *world) tookSince(path, resource string, since time.Time) (sum int64) {
	for _, p := range w.load.pods(func(p *corev1.Pod) bool { return !finished(p) && w.came(p, since) }) {
		if api.Under(w.check.paid[string(p.UID)], path) {
			sum += w.api.pods.objects[nameOf(p)].Pod.Class.Requests.Value(resource)
		}
	}
	return sum
}

// held is what is charged below a queue, and what is guaranteed there to others than a queue.
func (w *world) held(path, but, resource string) int64 {
	own, below := int64(0), int64(0)
	for _, r := range w.store.reservations() {
		if r.Gang.Queue == path {
			own += amountIn(r.Demand, resource) + amountIn(r.GetClaim().GetPromised(), resource)
		}
	}
	children := map[string]bool{}
	add := func(queue string) {
		for queue != path && api.Under(queue, path) {
			if api.Parent(queue) == path {
				children[queue] = true
				return
			}
			queue = api.Parent(queue)
		}
	}
	for _, r := range w.store.reservations() {
		add(r.Gang.Queue)
	}
	for _, key := range w.store.with("queues/") {
		add(strings.TrimPrefix(key, "queues/"))
	}
	for _, child := range api.SortedKeys(children) {
		below += w.held(child, but, resource)
	}
	sum := own + below
	if path != api.RootQueue && !api.Under(but, path) {
		sum = max(sum, amountIn(w.check.limits(path).GetGuarantee(), resource))
	}
	return sum
}

// grants takes note that a reservation is there, or is not.
func (c *check) grants(gang string, there bool) {
	c.entitled()
	switch {
	case !there:
		r := &c.w.load.rest
		if r.charged == nil {
			r.charged = map[string]time.Duration{}
		}
		r.charged[gang] = c.chargedFor(gang)
		delete(c.granted, gang)
	case c.granted[gang].IsZero():
		c.granted[gang] = c.w.now
	}
}

// present is the gang that a pod of a gang is of by now: its PodGroup may have been replaced while it ran.
func (c *check) present(p *corev1.Pod, gang string) string {
	if g := c.w.api.group(c.groupName(p)); g != nil && c.gang(gang).gone > 0 {
		return g.uid
	}
	return gang
}

// firstCharges judges the reservations that a transaction made.
func (c *check) firstCharges(events []model.Event[proto.Message]) {
	var fresh []*wire.ReservationRecord
	for _, e := range events {
		if !strings.HasPrefix(e.Key, "reservations/") || e.Deleted {
			continue
		}
		r := e.Value.(*wire.ReservationRecord)
		g := c.gang(r.Gang.Uid)
		if r.Forced || e.Prev != nil || g.meddled || g.inherited || len(g.ever) > 0 {
			return // what is bound is charged whatever is guaranteed, and that may come after in the same transaction
		}
		fresh = append(fresh, r)
	}
	for _, r := range fresh {
		c.floors(r)
		d, _ := wire.ToResources(r.Demand)
		c.guarantees(r.Gang, d)
	}
}
