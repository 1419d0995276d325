package home

import (
	"cmp"
	"container/heap"
	"strings"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/api/v1alpha1"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/shard/home/intake"
	"basalt.dev/basalt/shard/home/report"
)

// gang is a gang of a bucket that is ours.
type gang struct {
	id        string // UID of the PodGroup, or of the pod
	name      intake.Name
	single    bool // a pod without a PodGroup,
	orphan    bool // or one whose PodGroup does not exist
	group     *intake.Group
	gone      bool      // its PodGroup is gone
	ownerless time.Time // set for an inherited reservation whose PodGroup was not seen yet: since when

	queue     string // where it asks and is charged
	bucket    api.BucketID
	wantQueue string // what its objects name now
	mismatch  bool
	ref       *wire.GangRef

	members map[string]*pod
	order   []*pod          // members as inOrder sorted them, nil since one came or went
	lost    map[string]bool // UIDs of pods that left while an intent of theirs might exist
	inDoubt bool            // an intent may exist that no shard has reported for long
	unknown map[string]bool // UIDs of pods that had an intent whose outcome nobody has reported: inherited, or in doubt
	tally   tally
	placed  int  // pods that got a node since the gang last started from nothing, and finished ones that were there then
	started bool // had its minimum once

	placedAs map[string]int // of placed, those with a role, by role

	state state
	first time.Time // when it was first seen
	since time.Time // when it was first complete: its age

	inherited bool      // it was there when its queue was taken over
	complete  time.Time // when this shard first found it complete

	charge    charge
	admission admission
	search    search
	edits     edits
	commits   []*commit
	withdraw  *withdraw
	claim     *claiming // the work on a mandate, nil for none
	rooms     rooms     // requested for a claim
	planned   int       // plans that were looked for in domains: the next one looks at others (plan.FindTogether)

	firstBound time.Time // of the current attempt
	boundSince time.Time // when the first Bind went out
	partly     bool      // reported as partly placed

	volumesSince  time.Time // since when the volumes of its pods are being bound, before any of these
	volumesTold   bool      // users were told that this takes long
	volumesFailed int       // how often one failed for pods that joined, one time after another
	trouble       trouble   // with its volumes

	blocked   report.Reason    // why its pods are not placed; zero when nothing is in the way
	uncharged report.Reason    // why pods that have a node are not charged; zero when all of them are
	status    *report.PodGroup // nil before its PodGroup was seen
	position  int32            // among the gangs of its queue that wait, 0 if it is none of the first (position.go)
	yielded   string           // why its gang was evicted for another; until it starts again
	shrunk    string           // why pods beyond its minimum were evicted; until none waits in their place
	told      string           // code of the last event about why it waits
	trace     trace

	explaining bool // in Core.explain

	wake, next            time.Time // the timer that is set; the one being computed
	looked                time.Time // at, last
	dirty, large, dropped bool
}

func (c *Core) newGang(id, queue string) *gang {
	g := &gang{
		id: id, queue: queue, wantQueue: queue, bucket: api.BucketOf(queue),
		members: map[string]*pod{}, lost: map[string]bool{}, first: c.now, inherited: c.activating,
	}
	if pace, known := c.paces.get(id); known {
		g.edits = pace
		g.edits.pending = true
	}
	c.gangs[id] = g
	return g
}

// message returns the gang as messages name it.
func (g *gang) message() *wire.GangRef {
	if g.ref == nil || g.ref.Queue != g.queue || g.ref.Name != g.name.Name {
		g.ref = &wire.GangRef{Uid: g.id, Namespace: g.name.Namespace, Name: g.name.Name, Queue: g.queue, Single: g.single, Kind: uint32(g.name.Kind)}
	}
	return g.ref
}

func (g *gang) minCount() int {
	if g.group != nil {
		return g.group.MinCount
	}
	return 1
}

func (g *gang) label() string {
	if g.single {
		return "pod " + g.name.String()
	}
	return g.name.Kind.String() + " " + g.name.String()
}

// compareGangs orders gangs: priority, age, id.
func compareGangs(a, b *gang) int {
	if d := cmp.Compare(b.tally.priority, a.tally.priority); d != 0 {
		return d
	}
	if d := a.age().Compare(b.age()); d != 0 {
		return d
	}
	return strings.Compare(a.id, b.id)
}

func (g *gang) age() time.Time {
	switch {
	case !g.since.IsZero():
		return g.since
	case g.group != nil && !g.group.Created.IsZero() && g.name.Kind != api.BasaltGroup: // it may be admitted before it has pods, and an heir is to find the same age
		return g.group.Created
	}
	return g.first
}

// leaving reports whether the gang has no business here any more: its object is gone, or another queue is to pay for it.
func (g *gang) leaving() bool {
	if g.single {
		if len(g.members) == 0 {
			return true
		}
		for _, p := range g.members {
			if p.Finished {
				return true
			}
		}
	}
	return g.gone || g.moving()
}

// moving reports whether another queue is to pay for the gang. While a pod of it is bound it stays where it is.
func (g *gang) moving() bool {
	return !g.gone && g.ownerless.IsZero() && g.wantQueue != g.queue && g.tally.bound == 0
}

// advance takes a gang as far as it gets with what is known.
func (c *Core) advance(g *gang) {
	if g.dropped {
		return
	}
	g.next, g.looked = time.Time{}, c.now
	for turns := 0; ; turns++ {
		before := g.state
		g.tally = c.count(g)
		c.drive(g)
		if g.dropped {
			return
		}
		if g.state == before {
			break
		}
		if turns > 16 {
			c.wakeAt(g, c.now.Add(c.cfg.AskAgain))
			break
		}
	}
	if g.tally.chargeable > 0 && !g.charge.reserved && !g.charge.refused() {
		c.unchargedBound[g.id] = true
	} else {
		delete(c.unchargedBound, g.id)
	}
	if g.slot() && g.state != holding && g.state != preparing && g.search.round == nil {
		c.freeSlot(g)
	}
	c.judge(g)
	c.publish(g)
	c.queueConditions(g)
	if !g.next.Equal(g.wake) {
		g.wake = g.next
		if !g.wake.IsZero() {
			heap.Push(&c.timers, timer{g.wake, g.id})
		}
	}
}

func (c *Core) drive(g *gang) {
	if len(g.charge.condemned) > 0 {
		c.evictCondemned(g)
	}
	switch g.state {
	case withdrawing:
		c.awaitWithdrawn(g)
		return
	case releasing:
		c.awaitUnreserved(g)
		return
	case closing:
		c.awaitClosed(g)
		return
	case evicting:
		c.evict(g)
		return
	}
	if g.placed > 0 && g.tally.bound == 0 && !g.started && g.boundSince.IsZero() {
		c.fromNothing(g) // pods that are gone do not count: an heir would not know of them
	}
	switch {
	case !g.ownerless.IsZero():
		c.awaitPodGroup(g)
	case g.charge.yields != nil:
		c.retreat(g, rollBack)
	case g.leaving():
		c.retire(g)
	case g.charge.closed && !g.started: // by a predecessor, or by the coordinator
		c.retreat(g, rollBack)
	case g.state == collecting:
		c.collect(g)
	case g.state == waiting:
		c.await(g)
	case g.state == ready:
		c.awaitPermit(g)
	case g.state == holding:
		c.hold(g)
	case g.state == preparing:
		c.prepare(g)
	case g.state == binding:
		c.bind(g)
	case g.state == running:
		c.run(g)
	}
}

// collect waits until the gang can ask for its reservation.
func (c *Core) collect(g *gang) {
	t := &g.tally
	if g.started || g.placed >= g.minCount() {
		c.start(g)
		return
	}
	if g.charge.renounced && t.chargeable == 0 {
		c.release(g)
		return
	}
	why := c.obstacle(g)
	if !why.None() {
		g.edits.pending = g.edits.pending || !g.since.IsZero() // it was complete
	} else {
		if c.asleep(g) { // what was found when it fell asleep still holds
			return
		}
		if c.limitRestarts(g) {
			return
		}
		g.search.vain = c.noNode(g)
		switch {
		case g.search.vain.None():
		case t.bound > 0 && g.boundByUs():
			why = g.search.vain
		case t.chargeable > 0 && !c.chargesBound(g): // what is bound is charged, and then the rest is asked for in vain
			g.blocked = report.Requested()
			c.chargeBound(g)
			return
		case t.chargeable == 0 && (g.charge.reserved || g.charge.claimed()):
			c.release(g)
			return
		}
	}
	if !why.None() || !g.blocked.NoRoom() && !g.blocked.Is(v1alpha1.ReasonVolumesNotBound) {
		g.blocked = why
	}
	if !why.None() {
		switch {
		case t.bound > 0 && g.boundByUs(): // it stands in part: completed when pods come, or undone
			if g.boundSince.IsZero() {
				g.boundSince = c.now
			}
			c.become(g, binding)
		case t.chargeable > 0: // bound by somebody else: charged all the same
			c.chargeBound(g)
		case c.admitsEarly(g, why):
			c.admit(g)
		case g.charge.reserved || g.charge.reserve != nil || g.charge.claimed():
			c.release(g)
		}
		return
	}
	g.admission = admission{}
	if g.since.IsZero() {
		g.since, g.complete = c.completeSince(g), c.now
	}
	if c.adoptCharge(g) {
		c.become(g, ready)
		return
	}
	if g.charge.reserved && !g.charge.stale && t.bound == 0 {
		if need, _ := g.demand(c.choose(g)); !need.Fits(g.charge.amounts) {
			c.release(g) // too small for the pods that are there now
			return
		}
	}
	if g.search.vain.None() && c.comesEarly(g) {
		return
	}
	c.requestQuota(g, c.choose(g), false)
	c.become(g, waiting)
}

// boundByUs reports whether Basalt bound a pod of the gang for this gang.
func (g *gang) boundByUs() bool {
	for _, p := range g.members {
		if p.isBound() && (p.ours && p.Gang == g.id || p.Node == "") {
			return true
		}
	}
	return false
}

// start takes note that the gang has its minimum.
func (c *Core) start(g *gang) {
	if !g.started {
		g.started = true
		c.Placed++
		c.observeBound(g)
		c.traceStarted(g)
		c.tellStarted(g)
	}
	c.become(g, running)
	g.claim, g.rooms, g.charge.awaits, g.charge.within, g.charge.claim, g.charge.victims = nil, rooms{}, nil, nil, 0, nil
	g.partly, g.yielded = false, ""
	g.blocked = report.Reason{}
	g.search.rest()
}

// run keeps a started gang's charge in line with its pods and places further ones.
func (c *Core) run(g *gang) {
	if !g.started || c.beginsAnew(g) { // one that has not started was here for its bound pods, as it had no PodGroup, and has one again
		c.retreat(g, startOver)
		return
	}
	if len(g.charge.condemned) == 0 && g.tally.candidates == 0 {
		g.shrunk = ""
	}
	c.fill(g)
	c.adjust(g)
}

// beginsAnew takes back that an implied gang has started, once nothing of it is bound and it lacks its minimum: pods that come now are
// a new gang by the same name.
func (c *Core) beginsAnew(g *gang) bool {
	if g.name.Kind != api.ImpliedGroup || g.tally.bound > 0 || g.outstanding() || fault.On(fault.StartKept) {
		return false
	}
	if c.fromNothing(g); g.placed >= g.minCount() {
		return false
	}
	g.started = false
	return true
}

// bind completes a gang of which something may be bound, or closes it when that takes too long.
func (c *Core) bind(g *gang) {
	if g.placed >= g.minCount() {
		c.start(g)
		return
	}
	if g.placed == 0 && g.tally.committed == 0 && len(g.lost) == 0 && len(g.commits) == 0 {
		c.retreat(g, startOver) // every pod came back: from the start, all or nothing again
		return
	}
	limit := c.rollUntil(g)
	if !c.now.Before(limit) {
		if c.mayEvict(g) {
			if g.mayBind() {
				c.retreat(g, startOver) // and then look again
			} else {
				c.close(g)
			}
			return
		}
		if !g.partly && !g.isReplaced() {
			g.partly = true
			c.warn(g, "PartlyPlaced", c.partWords(g).Message+"; pods without a controller are not evicted")
		}
	} else {
		c.wakeAt(g, limit)
	}
	c.fill(g)
	c.adjust(g)
}

// rollUntil is when a gang of which Bindings were asked for is given up. While no pod of it has a node, nothing is in part:
// the Bindings may only be behind many others, at an API server that is slower than Basalt.
func (c *Core) rollUntil(g *gang) time.Time {
	if g.firstBound.IsZero() {
		return g.boundSince.Add(3 * c.cfg.RollForward)
	}
	return latest(g.boundSince, g.firstBound).Add(c.cfg.RollForward)
}

// outstanding reports whether a node shard may have something of the gang.
func (g *gang) outstanding() bool {
	return g.inDoubt || g.search.round != nil || len(g.rooms.calls) > 0 || g.rooms.kept || g.tally.held+g.tally.promised > 0 || g.tally.committed > 0 || len(g.lost) > 0 || len(g.commits) > 0
}

// retire ends a gang here: nothing of it at node shards, then no reservation, then no gang. Bound pods of a PodGroup that is
// gone stay charged until they end.
func (c *Core) retire(g *gang) {
	g.blocked = report.Reason{}
	c.wakeUp(g)
	switch {
	case g.outstanding():
		c.retreat(g, startOver)
	case g.tally.bound > 0:
		g.boundSince = time.Time{} // nothing is to be completed; if its group shows again, the time for that starts anew
		c.become(g, running)
		c.adjust(g)
	case g.charge.reserved || g.charge.reserve != nil || g.charge.claimed():
		c.release(g)
	case !g.moving() || !c.active[api.BucketOf(g.wantQueue)]:
		c.drop(g)
	default:
		g.queue, g.bucket = g.wantQueue, api.BucketOf(g.wantQueue)
		c.become(g, collecting)
		g.charge = charge{}
		g.edits.pending = true
		c.touch(g)
	}
}

// forget takes a gang out of all that counts gangs.
func (c *Core) forget(g *gang) {
	g.dropped = true
	c.leaveEntry(g, collecting)
	c.freeSlot(g)
	c.wakeUp(g)
	g.status.Forget()
	delete(c.gangs, g.id)
	delete(c.unchargedBound, g.id)
}

// drop forgets a gang that is over.
func (c *Core) drop(g *gang) {
	c.keepPace(g)
	c.forget(g)
	c.released.put(g.id, g.message())
	for _, uid := range api.SortedKeys(g.members) {
		p := g.members[uid]
		c.leave(p)
		if c.pods[uid] == p && c.gangs[p.UID] == nil {
			c.resolveMembership(p)
		}
	}
}
