package home

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/api/v1alpha1"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/shard/event"
)

// What a gang says to the coordinator: Reserve, Unreserve, Close; at most one of them is open. An open one is said again
// until it is answered, and a denied Reserve every half minute and in each new term, for it is the coordinator that keeps
// those who wait. An answer counts only if it names the serial of the open one.

// charge is what is known of a gang's reservation.
type charge struct {
	attempt  uint64 // of the reservation, or of the one being asked for: the serial of its first Reserve; 0 before it
	reserved bool
	revision int64 // of the record: what a Commit names
	amounts  api.Resources
	pods     []uint64 // api.PodID of those that amounts are for, sorted; empty for a gang of one
	stale    bool     // a node shard found another revision: ask for the current one
	closed   bool     // state closing: nothing of it passes any more

	rank   *wire.Rank // of the first grant, kept over attempts
	forced bool       // inherited as a charge for pods found bound

	ask     *ask
	open    *open // Unreserve or Close
	most    int   // pods that one growth may ask for, 0 for any number
	giveUps int   // reservations given back for want of room
	patient bool  // may keep what it holds

	shrunk time.Time // when less was asked for last
}

// names reports whether the reservation is for a pod. Of a gang of one it is for the pod that gave the gang its UID.
func (ch *charge) names(g *gang, p *pod) bool {
	if g.single {
		return p.UID == g.id
	}
	_, found := slices.BinarySearch(ch.pods, p.id)
	return found
}

func (ch *charge) namesAll(g *gang, pods []*pod) bool {
	return !slices.ContainsFunc(pods, func(p *pod) bool { return !ch.names(g, p) })
}

// elsewhere reports whether what the gang asks for was denied because its pods are charged to another gang or queue: that one's
// home drives them.
func (ch *charge) elsewhere() bool {
	if ch.reserved || ch.ask == nil || ch.ask.denied == nil {
		return false
	}
	reason := ch.ask.denied.GetReason()
	return reason == wire.DenyReason_DENY_CHARGED_ELSEWHERE || reason == wire.DenyReason_DENY_CLOSING
}

// ids returns what names pods in a reservation, nothing for a gang of one.
func ids(g *gang, pods []*pod) []uint64 {
	if g.single || len(pods) == 0 {
		return nil
	}
	out := make([]uint64, 0, len(pods))
	for _, p := range pods {
		out = append(out, p.id)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// ask is a Reserve.
type ask struct {
	open
	demand, bound api.Resources
	pods          []*pod   // those it would charge anew
	names         []uint64 // api.PodID of all that demand is for
	priority      int64
	growth        bool // of a gang that is reserved already
	patient       bool
	denied        *wire.Denied
	listed        bool // the coordinator of this term has it in its list
	doubted       bool // it was said again because the coordinator names a reservation of the gang
	fewer         bool // it was denied, and something smaller takes its place, or nothing
	unsaid        bool // it is denied without the coordinator: it would be too large for it
}

// open is a request that waits for its answer.
type open struct {
	serial uint64
	at     time.Time // first said
	said   time.Time
	every  time.Duration
}

// again reports whether a request is to be said again now, and asks to be woken when it is.
func (c *Core) again(g *gang, o *open, first, most time.Duration) bool {
	if o.every == 0 {
		o.every = first
	}
	if !o.said.IsZero() && c.now.Before(o.said.Add(o.every)) {
		c.wakeAt(g, o.said.Add(o.every))
		return false
	}
	if o.said.IsZero() {
		o.at = c.now
	} else {
		o.every = min(2*o.every, most)
	}
	o.said = c.now
	c.wakeAt(g, o.said.Add(o.every))
	return true
}

// patiently is again for what a node shard is to do: where much was said to it, its answer is late.
func (c *Core) patiently(g *gang, o *open) bool {
	return c.again(g, o, c.cfg.AskAgain, 8*c.cfg.AskAgain)
}

// sum adds up what pods ask for.
func sum(pods []*pod) api.Resources {
	total, _ := sumBounded(pods)
	return total
}

// sumBounded is sum, and reports whether the pods request more than api.MaxGangResources resources: the sum is of the
// foremost of them then.
func sumBounded(pods []*pod) (total api.Resources, excess bool) {
	var index classIndex
	count := make([]int64, 0, fewClasses)
	for _, p := range pods {
		i, fresh := index.number(p.Class)
		if fresh {
			count = append(count, 0)
		}
		count[i]++
	}
	for i, class := range index.list {
		n := count[i]
		r := class.Requests
		if n > 1 {
			r = r.Clone()
			for i := range r {
				r[i].Value = api.MulSat(r[i].Value, n)
			}
		}
		if total = total.Add(r); len(total) > api.MaxGangResources {
			total, _ = total.Foremost(api.MaxGangResources, nil)
			excess = true
		}
	}
	return total, excess
}

// pick returns the members for which keep holds, in order.
func (g *gang) pick(keep func(*pod) bool) []*pod {
	var out []*pod
	for _, p := range g.inOrder() {
		if keep(p) {
			out = append(out, p)
		}
	}
	return out
}

// inOrder returns the members in order. Sorting thousands for every look at a gang would take longer than everything else
// that is done for it.
func (g *gang) inOrder() []*pod {
	if g.order == nil {
		g.order = slices.SortedFunc(maps.Values(g.members), comparePods)
	}
	return g.order
}

// choose returns the pods that, with those placed already, make the gang's minimum.
func (c *Core) choose(g *gang) []*pod {
	pods := g.pick((*pod).candidate)
	return pods[:min(len(pods), max(0, g.minCount()-g.placed))]
}

// closedToPods says why no further pod of a PodGroup is placed, whatever room and quota there are.
func (c *Core) closedToPods(g *gang) reason {
	switch {
	case g.group == nil:
	case g.mismatch:
		return reason{v1alpha1.ReasonQueueMismatch, c.mismatch(g.group)}
	case g.group.deleting:
		return reason{v1alpha1.ReasonNotEnoughPods, "the PodGroup is being deleted"}
	}
	return reason{}
}

// obstacle says why a gang cannot ask for its reservation, nothing when it can.
func (c *Core) obstacle(g *gang) reason {
	t, least := &g.tally, g.minCount()
	closed := c.closedToPods(g)
	switch {
	case g.orphan:
		return reason{v1alpha1.ReasonNotEnoughPods, fmt.Sprintf("PodGroup %s does not exist (label %s)", c.orphanOf(g), api.LabelPodGroup)}
	case closed.reason != "":
		return closed
	case g.placed+t.candidates >= least:
		return reason{}
	case g.placed+t.candidates+t.refusals >= least:
		return reason{t.refused.Refused.Reason, fmt.Sprintf("pod %s/%s: %s", t.refused.Namespace, t.refused.Name, t.refused.Refused.Message)}
	case g.single:
		return reason{v1alpha1.ReasonNotEnoughPods, "the pod cannot be scheduled: it is gated or being deleted"}
	}
	words := fmt.Sprintf("%d of %d pods can be scheduled", g.placed+t.candidates, least)
	if t.gated > 0 {
		words += fmt.Sprintf(", %d more have scheduling gates", t.gated)
	}
	if t.refused != nil {
		words += fmt.Sprintf(", %d are rejected", t.refusals)
	}
	return reason{v1alpha1.ReasonNotEnoughPods, words}
}

func (c *Core) orphanOf(g *gang) string {
	for _, p := range g.members {
		return p.group.String()
	}
	return g.name.String()
}

// completeSince returns when the gang became complete, from its objects, so that an heir finds the same age.
func (c *Core) completeSince(g *gang) time.Time {
	var at time.Time
	if g.group != nil {
		at = g.group.created
	}
	for _, p := range c.choose(g) {
		if p.Created.After(at) {
			at = p.Created
		}
	}
	if at.IsZero() || at.After(c.now) {
		return c.now
	}
	return at
}

// ask sends a Reserve for what is bound and charged already and the pods given; anything asked before is replaced.
func (c *Core) ask(g *gang, pods []*pod, growth bool) {
	have := g.pick((*pod).isOwed)
	boundSum := sum(have)
	if growth {
		have = append(have, g.pick(func(p *pod) bool { return p.charged && p.candidate() })...)
	}
	for _, p := range pods {
		if !growth || !p.charged {
			have = append(have, p)
		}
	}
	demand, excess := sumBounded(have)
	a := &ask{
		demand: demand, bound: boundSum, pods: pods, names: ids(g, have), priority: g.tally.priority, growth: growth,
		patient: g.charge.giveUps >= c.cfg.PatientAfter,
	}
	a.serial = c.serial(g)
	if g.charge.attempt == 0 {
		g.charge.attempt = a.serial
	}
	if g.charge.reserved && !g.charge.stale && a.demand.Fits(g.charge.amounts) {
		g.charge.shrunk = c.now
	}
	g.charge.ask, g.charge.stale = a, false
	if excess && len(pods) > 0 { // what is bound already is charged for its foremost resources
		a.unsaid = true
		c.onDenied(&wire.Denied{GangUid: g.id, Attempt: g.charge.attempt, Serial: a.serial, Reason: wire.DenyReason_DENY_TOO_LARGE,
			Message: fmt.Sprintf("its pods request more than %d different resources, the limit for a gang", api.MaxGangResources)})
		return
	}
	c.traceAsked(g)
	c.say(g)
}

// say repeats the open Reserve when it is time.
func (c *Core) say(g *gang) {
	a := g.charge.ask
	if a.listed && fault.On(fault.SleepersForgotten) {
		return
	}
	first := c.cfg.AskAgain
	switch {
	case !a.listed:
	case a.denied.GetReason() == wire.DenyReason_DENY_CLOSING, a.denied.GetReason() == wire.DenyReason_DENY_CHARGED_ELSEWHERE:
		// The coordinator does not keep it.
	default:
		first = c.cfg.ResendEvery
		a.every = first
	}
	if !c.again(g, &a.open, first, c.cfg.ResendEvery) || a.unsaid {
		return
	}
	c.send(event.ToCoordinator, &wire.Envelope{Body: &wire.Envelope_Reserve{Reserve: &wire.Reserve{
		Gang: g.message(), Attempt: g.charge.attempt, Serial: a.serial,
		Demand: wire.FromResources(a.demand), Bound: wire.FromResources(a.bound),
		Priority: a.priority, SinceUnixMs: g.age().UnixMilli(), Rank: g.charge.rank,
		TableEpoch: uint64(c.table.Epoch), Trace: c.traceOf(g, spanReserve), Patient: a.patient, Term: c.term, Pods: a.names,
	}}})
}

// await waits for the reservation.
func (c *Core) await(g *gang) {
	a := g.charge.ask
	if a == nil {
		if g.charge.reserved {
			c.become(g, ready)
		} else {
			c.become(g, collecting)
		}
		return
	}
	if g.started || g.placed >= g.minCount() {
		c.become(g, collecting)
		return
	}
	if why := c.obstacle(g); why.reason != "" {
		g.why = why
		g.edits.pending = true
		if g.tally.owed > 0 {
			c.become(g, collecting)
		} else {
			c.release(g)
		}
		return
	}
	if !sum(g.pick((*pod).isOwed)).Equal(a.bound) { // what is not bound any more must not stay charged while the rest waits
		if g.tally.owed == 0 {
			c.release(g)
		} else {
			c.ask(g, c.choose(g), false)
		}
		return
	}
	if a.denied != nil && g.charge.reserved && !g.charge.amounts.Fits(a.bound) { // an earlier request was for one that has left
		if g.tally.owed == 0 {
			c.release(g)
		} else {
			c.ask(g, nil, false)
		}
		return
	}
	if !c.stillAsked(g, a) {
		pods := c.choose(g)
		now := append(g.pick((*pod).isOwed), pods...)
		if !sum(now).Equal(a.demand) || a.priority != g.tally.priority || !slices.Equal(ids(g, now), a.names) {
			if g.edits.pending = true; c.limitRestarts(g) {
				c.say(g)
				return
			}
			c.ask(g, pods, false)
			return
		}
		a.pods = pods
	}
	c.say(g)
}

// stillAsked reports whether the open Reserve asks for what is wanted.
func (c *Core) stillAsked(g *gang, a *ask) bool {
	if a.priority != g.tally.priority || len(a.pods) != g.minCount()-g.placed {
		return false
	}
	for _, p := range a.pods {
		if p.gang != g || !p.candidate() {
			return false
		}
	}
	return true
}

func (c *Core) onGranted(m *wire.Granted) {
	g := c.gangs[m.GetGangUid()]
	if g == nil {
		c.refuse(m.GetGangUid(), m.GetAttempt())
		return
	}
	a := g.charge.ask
	if g.state == releasing && g.charge.open != nil {
		g.charge.open.said = time.Time{} // it crossed our Unreserve
		c.mark(g)
		return
	}
	if a == nil || m.GetSerial() != a.serial || m.GetAttempt() != g.charge.attempt {
		return
	}
	amounts, err := wire.ToResources(m.GetDemand())
	if err != nil || m.GetDemand() == nil {
		amounts = a.demand
	}
	ch := &g.charge
	ch.ask, ch.reserved, ch.revision, ch.amounts, ch.pods = nil, true, m.GetReservationRevision(), amounts, a.names
	ch.patient = m.GetPatient()
	ch.most = 0
	g.edits.vain = g.edits.vain && len(a.pods) == 0
	if ch.rank == nil {
		ch.rank = m.GetRank()
	}
	if ch.rank == nil {
		ch.rank = &wire.Rank{Priority: a.priority, GangUid: g.id}
	}
	for _, p := range g.members {
		p.charged = p.charged && ch.names(g, p)
	}
	for _, p := range a.pods {
		if p.gang == g && p.candidate() {
			p.charged = true
		}
	}
	c.traceGranted(g)
	c.mark(g)
}

func (c *Core) onDenied(m *wire.Denied) {
	g := c.gangs[m.GetGangUid()]
	if g == nil {
		return
	}
	a := g.charge.ask
	if a == nil || m.GetSerial() != a.serial || m.GetAttempt() != g.charge.attempt {
		return
	}
	first := a.denied == nil
	a.denied, a.listed = m, true
	if m.GetReason() == wire.DenyReason_DENY_CLOSING && g.charge.reserved {
		g.charge.closed, g.charge.ask = true, nil
	} else if m.GetReservationRevision() != 0 { // what is bound is charged, whatever becomes of the rest
		if amounts, err := wire.ToResources(m.GetDemand()); err == nil {
			if !g.charge.reserved || !amounts.Equal(g.charge.amounts) { // else the record is as it was
				g.charge.pods = a.names
			}
			g.charge.reserved, g.charge.revision, g.charge.amounts = true, m.GetReservationRevision(), amounts
		}
	}
	g.edits.vain = g.edits.vain || a.growth && len(a.pods) > 0
	if first && a.growth && len(a.pods) > 1 && !g.charge.closed { // further pods are charged one by one: ask for fewer
		g.charge.most = len(a.pods) / 2
		a.fewer = true
	}
	c.mark(g)
}

// refuse gives back a reservation that was granted to a gang we have forgotten.
func (c *Core) refuse(uid string, attempt uint64) {
	ref, known := c.released.get(uid)
	if !known || !c.active[api.BucketOf(ref.GetQueue())] {
		return
	}
	c.counter++
	c.send(event.ToCoordinator, &wire.Envelope{Body: &wire.Envelope_Unreserve{Unreserve: &wire.Unreserve{
		Gang: ref, Attempt: attempt, TableEpoch: uint64(c.table.Epoch),
		Serial: uint64(c.epochs[api.BucketOf(ref.GetQueue())])<<32 + uint64(c.counter)}}})
}

// adoptCharge lets a gang that is about to start use the reservation it has, when that is large enough.
func (c *Core) adoptCharge(g *gang) bool {
	ch := &g.charge
	if !ch.reserved || ch.closed || ch.stale || ch.ask != nil {
		return false
	}
	pods := c.choose(g)
	all := append(g.pick((*pod).isOwed), pods...)
	if total, excess := sumBounded(all); excess || !total.Fits(ch.amounts) || !ch.namesAll(g, all) {
		return false
	}
	for _, p := range g.members {
		p.charged = false
	}
	for _, p := range pods {
		p.charged = true
	}
	return true
}

// chargeBound keeps the charge of a gang that waits at what is bound of it.
func (c *Core) chargeBound(g *gang) {
	ch := &g.charge
	have := g.pick((*pod).isOwed)
	if ch.ask != nil {
		if len(ch.ask.pods) == 0 && sum(have).Equal(ch.ask.demand) && slices.Equal(ids(g, have), ch.ask.names) {
			c.say(g)
			return
		}
	} else if ch.reserved && !ch.stale && sum(have).Equal(ch.amounts) && ch.namesAll(g, have) {
		return
	}
	c.ask(g, nil, false)
}

// adjust keeps the charge of a gang that is being bound, or runs, at what its pods need: smaller at once, larger by one
// growth at a time. Nothing is asked while a Commit is unanswered, for every change of the record moves its revision.
func (c *Core) adjust(g *gang) {
	ch := &g.charge
	if ch.closed {
		if g.tally.bound+g.tally.committed == 0 && len(g.lost) == 0 {
			c.release(g)
		}
		return
	}
	for _, cm := range g.commits {
		if !cm.prepared && c.isMember(cm.shard) {
			if ch.ask != nil {
				c.say(g)
			}
			return
		}
	}
	need := g.pick(func(p *pod) bool { return p.isOwed() || p.place == committed || p.charged && p.candidate() })
	base := sum(need)
	extra := c.extras(g)
	if g.inDoubt && len(need) == 0 && len(g.commits) == 0 {
		c.startWithdraw(g, resume)
		return
	}
	if a := ch.ask; a != nil && a.denied == nil {
		c.say(g)
		return
	}
	if ch.reserved && !ch.stale {
		var replacing []*pod
		for len(extra) > 0 { // a pod may take the place of one that left
			with := base.Add(extra[0].Class.Requests)
			if !with.Fits(ch.amounts) {
				break
			}
			if ch.names(g, extra[0]) {
				extra[0].charged = true
				c.touch(g)
			} else {
				replacing = append(replacing, extra[0])
			}
			base, extra = with, extra[1:]
		}
		if len(replacing) > 0 { // of which the record has to say so
			c.ask(g, replacing, true)
			return
		}
		if g.state == binding && base.Fits(ch.amounts) && c.now.Before(c.rollUntil(g)) {
			base = ch.amounts // what it lacks is kept for a pod that takes the place
		}
	}
	if ch.ask != nil && len(need) == 0 && ch.reserved && !ch.stale && ch.amounts.IsZero() && !g.unsettled() {
		c.release(g) // a record of nothing would keep a deleted queue, which grants nothing any more, for ever
		return
	}
	if a := ch.ask; a != nil && !a.fewer {
		if len(a.pods) == 0 && base.Equal(a.demand) || len(a.pods) > 0 && base.Equal(ch.amounts) && stillExtra(g, a.pods) {
			c.say(g)
			return
		}
	}
	named := !ch.reserved || ch.namesAll(g, need)
	if ch.ask == nil && ch.reserved && !ch.stale && named && len(need) > 0 && len(extra) == 0 && !base.Equal(ch.amounts) && base.Fits(ch.amounts) {
		if at := ch.shrunk.Add(shrinkPause(len(ch.pods))); c.now.Before(at) {
			c.wakeAt(g, at)
			return
		}
	}
	switch {
	case len(need) == 0 && len(extra) == 0 && !g.unsettled() && base.IsZero():
		if ch.reserved || ch.ask != nil {
			c.release(g)
		}
	case ch.stale || ch.reserved && !(named && base.Equal(ch.amounts)) || !ch.reserved && !base.IsZero():
		c.ask(g, nil, true)
	case len(extra) > 0 && (g.tally.committed == g.tally.charged || g.search.sleep != nil): // one growth at a time
		if g.edits.vain && (ch.ask == nil || !ch.ask.fewer) {
			if g.edits.pending = true; c.limitRestarts(g) {
				if ch.ask != nil {
					c.say(g)
				}
				return
			}
		}
		if ch.most > 0 && len(extra) > ch.most {
			extra = extra[:ch.most]
		}
		c.ask(g, extra, true)
	case ch.ask != nil: // what it asked for is not wanted any more
		if ch.reserved {
			c.ask(g, nil, true)
		} else {
			c.release(g)
		}
	}
}

// shrinkPause is how long a gang waits between two requests that only give something back: each writes its whole record again,
// which names every pod.
func shrinkPause(pods int) time.Duration {
	const small, large = 100, 10000
	if pods <= small {
		return 0
	}
	return time.Duration((pods+large-1)/large) * time.Second
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
func (c *Core) extras(g *gang) []*pod {
	if g.leaving() || g.mismatch || g.group != nil && g.group.deleting || g.search.gaveUp && c.asleep(g) {
		return nil
	}
	pods := g.pick(func(p *pod) bool { return p.candidate() && !p.charged && p.place == nowhere })
	if !g.started {
		pods = pods[:min(len(pods), max(0, g.minCount()-g.placed-g.tally.charged))]
	}
	return pods
}

// release gives the reservation, or the request for one, back.
func (c *Core) release(g *gang) {
	if g.unsettled() {
		c.startWithdraw(g, resume)
		return
	}
	if g.tally.owed > 0 {
		c.broken("reservation of a gang with bound pods is not given back")
		return
	}
	g.charge.ask = nil
	g.charge.open = &open{serial: c.serial(g)}
	c.become(g, releasing)
}

func (c *Core) awaitUnreserved(g *gang) {
	o := g.charge.open
	if o == nil { // nothing was asked for
		c.become(g, collecting)
		return
	}
	if c.again(g, o, c.cfg.AskAgain, c.cfg.ResendEvery) {
		c.send(event.ToCoordinator, &wire.Envelope{Body: &wire.Envelope_Unreserve{Unreserve: &wire.Unreserve{
			Gang: g.message(), Attempt: g.charge.attempt, Serial: o.serial, TableEpoch: uint64(c.table.Epoch)}}})
	}
}

func (c *Core) onUnreserved(m *wire.Unreserved) {
	g := c.gangs[m.GetGangUid()]
	if g == nil || g.state != releasing || g.charge.open == nil || m.GetSerial() != g.charge.open.serial {
		return
	}
	g.charge = charge{rank: g.charge.rank, giveUps: g.charge.giveUps}
	for _, p := range g.members {
		p.charged = false
	}
	c.become(g, collecting)
	if !g.started && g.tally.bound == 0 {
		c.fromNothing(g)
	}
	c.mark(g)
}

// fromNothing forgets what the gang had placed, but for pods that have finished: it is all or nothing again.
func (c *Core) fromNothing(g *gang) {
	g.placed, g.firstBound, g.boundSince, g.partly = 0, time.Time{}, time.Time{}, false
	for _, p := range g.members {
		if p.placed = p.placed && p.Finished; p.placed {
			g.placed++
		}
	}
}
