package home

import (
	"cmp"
	"container/heap"
	"math"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

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
	started bool   // had its minimum in this life (below)
	repair  repair // of one that has less (below)

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
		if g.tally = c.count(g); !g.tally.again.IsZero() {
			c.wakeAt(g, g.tally.again)
		}
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
	switch {
	case !g.ownerless.IsZero():
		c.awaitPodGroup(g)
	case g.charge.yields != nil:
		c.retreat(g, rollBack)
	case g.leaving():
		c.retire(g)
	case g.charge.closed && !g.started: // by a predecessor, or by the coordinator
		c.retreat(g, rollBack)
	case c.goesStale(g):
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
	if g.started || g.tally.placed >= g.minCount() || g.finished() { // an heir may learn only now that it was
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
		case g.boundByUs():
			why = g.search.vain
		case t.chargeable > 0 && !g.chargesBound(): // what is bound is charged, and then the rest is asked for in vain
			g.blocked = report.Requested()
			c.chargeBound(g)
			return
		case t.chargeable == 0 && (g.charge.reserved || g.charge.claimed()):
			c.release(g)
			return
		}
	}
	if !why.None() || !g.blocked.Outlasts() {
		g.blocked = why
	}
	if !why.None() {
		switch {
		case g.boundByUs(): // it stands in part: completed when pods come, or undone
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
	if g.status.MaySayStarted(c.now) { // or an heir would complete what it found bound in part
		c.wakeAt(g, c.now.Add(c.cfg.AskAgain))
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
		if need, _ := g.demand(g.choose()); !need.Fits(g.charge.amounts) {
			c.release(g) // too small for the pods that are there now
			return
		}
	}
	if g.search.vain.None() && c.comesEarly(g) {
		return
	}
	c.requestQuota(g, g.choose(), false)
	c.become(g, waiting)
}

// boundByUs reports whether a pod of the gang's present life was bound by Basalt, for this gang.
func (g *gang) boundByUs() bool {
	for _, p := range g.members {
		if g.lives(p) && (p.ours && p.Gang == g.id || p.Node == "") {
			return true
		}
	}
	return false
}

// start takes note that the gang has its minimum.
func (c *Core) start(g *gang) {
	if !g.started {
		g.started = true
		g.status.Starts()
		c.Placed++
		c.observeBound(g)
		c.traceStarted(g)
		c.tellStarted(g)
	}
	c.become(g, running)
	g.claim, g.rooms = nil, rooms{}
	if ch := &g.charge; !ch.inherited || !ch.started { // else what is awaited is for a further pod
		ch.awaits, ch.within, ch.claim, ch.victims = nil, nil, 0, nil
	} else if ch.claim != 0 {
		ch.most = 1 // it asks for that one alone
	}
	g.partly, g.yielded = false, ""
	g.blocked = report.Reason{}
	g.search.rest()
}

// run keeps a started gang's charge in line with its pods and places further ones.
func (c *Core) run(g *gang) {
	if c.ends(g) {
		c.become(g, collecting)
		return
	}
	if !g.started { // one that has not started was here for its bound pods, as it had no PodGroup, and has one again
		c.retreat(g, startOver)
		return
	}
	if len(g.charge.condemned) == 0 && g.tally.candidates == 0 {
		g.shrunk = ""
	}
	c.fill(g, !c.driveGrowth(g))
	c.adjust(g)
}

// ends takes back that a gang has started, once its life is over: pods that come now are placed all or nothing.
func (c *Core) ends(g *gang) bool {
	t := &g.tally
	if g.single || g.group == nil || t.alive > 0 || t.placed >= g.minCount() || g.finished() {
		return false
	}
	if g.outstanding() || fault.On(fault.StartKept) {
		return false
	}
	c.beginAnew(g)
	g.since, g.complete, g.charge.rank = time.Time{}, time.Time{}, nil // it waits behind those that wait already
	// The status is the memory of the start.
	if g.status != nil && g.minCount() > 1 && c.cfg.StatusBudget >= 0 && c.writesGroup(g) {
		g.status.RecallStart(c.now)
	}
	return true
}

// beginAnew forgets what was of a life that is over.
func (c *Core) beginAnew(g *gang) {
	g.started = g.started && fault.On(fault.StartKept)
	g.firstBound, g.boundSince, g.partly, g.repair = time.Time{}, time.Time{}, false, repair{}
	g.tally = c.count(g)
}

// bind completes a gang of which something may be bound, or closes it when that takes too long.
func (c *Core) bind(g *gang) {
	if g.tally.placed >= g.minCount() {
		c.start(g)
		return
	}
	if g.tally.rejected != nil {
		g.forget() // or nothing would have it looked at again
	}
	if g.tally.alive == 0 && g.tally.committed == 0 && len(g.lost) == 0 && len(g.commits) == 0 {
		c.retreat(g, startOver) // every pod came back: from the start, all or nothing again
		return
	}
	limit := c.rollUntil(g)
	if !c.now.Before(limit) || g.isRejected() && !c.obstacle(g).None() {
		if g.mayEvict() {
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
	c.fill(g, true)
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

// The lives of a gang. A PodGroup may outlive its pods: a Job is suspended and resumed, runs each night, or restarts
// after a failure. A life begins when nothing of the gang is bound, all or nothing, and lasts while a pod is bound
// that is not on its way out. What counts towards its minimum are those, and pods that have succeeded, as pods of an
// Indexed Job do one by one. Pods that failed never count, nor do those that succeeded in a life that got as many of
// them as its minimum: that one is over, and who comes later, as for the next night's run, is of another one. Who was
// made before they ended, or by the same controller, is of the same.
//
// Pods of the former life that are on their way out stay charged until they are gone, and hold the nodes that they
// are on. They belong to the new life no more than pods that somebody else bound.
//
// All of this is what the members show, so that an heir comes to the same. Only that a gang has started is
// remembered, for one that lost pods is completed, not undone: in its reservation, and in the status of its PodGroup.
// When a life ends, the status is made to say so before another one is charged; if that cannot be written, it is not
// waited for longer than 10 seconds (report.PodGroup).

// lives reports whether a pod is bound and counts for the present life.
func (g *gang) lives(p *pod) bool { return p.isBound() && (!p.Deleting || g.single) && !p.boundAlone() }

// place counts a pod towards the minimum.
func (t *tally) place(p *pod) {
	t.placed++
	if p.Role != "" {
		if t.placedAs == nil {
			t.placedAs = map[string]int{}
		}
		t.placedAs[p.Role]++
	}
}

// countSucceeded counts the pods that have succeeded, if they are of the present life.
func (g *gang) countSucceeded(t *tally) {
	if t.succeeded == 0 {
		return
	}
	owners, oldest := map[uint64]bool{}, int64(math.MaxInt64) // of those that have not ended
	for _, p := range g.members {
		if !p.Finished {
			owners[p.Owner] = p.Owner != 0
			oldest = min(oldest, p.Created.Unix())
		}
	}
	for _, p := range g.members {
		if !p.End.Succeeded || p.Node == "" || p.boundAlone() {
			continue
		}
		if t.succeeded < g.minCount() || owners[p.Owner] || p.End.At == 0 || oldest <= p.End.At {
			t.place(p)
		}
	}
}

// finished reports whether the gang's last life got what it needed, and nothing is there for another one.
func (g *gang) finished() bool {
	return !g.single && g.group != nil && g.tally.unfinished == 0 && g.tally.succeeded >= g.minCount()
}

// endWords says how the pods of a gang have ended that has finished.
func (g *gang) endWords() report.Reason {
	at := int64(0)
	for _, p := range g.members {
		at = max(at, p.End.At)
	}
	return report.Finished(g.tally.succeeded, g.tally.failed, at)
}

// Repair. A gang that has started and loses pods does no work until it is whole again, so whoever waits must not get
// their place before those that replace them have had time to come: 50 milliseconds for a ReplicaSet, 10 seconds for
// a Job. A gang that is short keeps what its minimum was charged, for repairFor while there is no pod that
// could replace one, or no room for it, and for as long as one is on its way. A pod that takes the place of another
// asks for nothing: the record names it in place of that one. As what is charged counts against what the nodes have
// (DENY_SUPPLY), nobody else is admitted for the room either, where the nodes are full. Where those that replace it
// find no room, as what is free is in pieces, the coordinator hears so again and again, and admits others for the
// pieces.
//
// Nothing is kept for pods that succeeded, above the minimum, for a life that is over (below), and for the floor of
// a Volcano PodGroup.

// Where a queue, or the PodGroup itself, says so (staleAfter), a gang that is short for long is evicted as a whole, as
// one that yields, and starts anew where all of it finds room. Only the time counts in which pods that could replace
// what it lost wait, without a break: what nobody replaces is somebody's will, or a controller's that repairs it.

// A pod that is being deleted may stay for hours: its node is silent, or a finalizer is not taken off. When its grace
// is over and its node is not ready, or a minute later anywhere, it is lost: it counts on its node until it is gone,
// but its gang is not charged for it any more, so another takes its place. Before Kubernetes deletes it nothing
// happens: a node that is silent is not dead.

// lostAfter is how long a pod stays past its grace until it is lost, though its node is ready.
const lostAfter = time.Minute

// isLost reports whether a bound pod is lost, or notes when it will be. One that is lost stays so. A gang of one has
// nothing that would take its place.
func (p *pod) isLost(n *api.Node, now time.Time, again *time.Time) bool {
	if p.lost || !p.Deleting || p.End.At == 0 || p.gang.single {
		return p.lost
	}
	over := time.Unix(p.End.At, 0)
	silent := n != nil && slices.ContainsFunc(n.Taints, func(t v1.Taint) bool {
		return t.Key == v1.TaintNodeNotReady || t.Key == v1.TaintNodeUnreachable
	})
	for _, at := range []time.Time{over, over.Add(lostAfter)} {
		if now.Before(at) {
			if again.IsZero() || at.Before(*again) {
				*again = at
			}
			return false
		}
		if silent {
			break
		}
	}
	p.lost = true
	return true
}

// repair is what is known of a gang that has less than its minimum.
type repair struct {
	kept  int64     // pods of it whose charge is kept,
	since time.Time // since the last of them was lost
	waits time.Time // since when pods that could replace what it lost wait
	stale string    // why it is closed as stale, "" for one that is not
}

// isShortOf returns how many pods a gang of which some run has less than its minimum, unless it is being completed.
// Those that succeeded are not missing. One that has not started may have pods of another that was deleted, or that
// others bound.
func (g *gang) isShortOf() int {
	if !g.started && g.state == binding && !g.partly {
		return 0
	}
	if g.single || g.tally.alive == 0 || g.group == nil || g.group.Deleting || g.leaving() {
		return 0
	}
	return max(0, g.minCount()-g.tally.alive-g.tally.succeeded)
}

// keptFor returns what a gang is charged that needs base: with what it lost of its minimum, while that is kept. It says
// so to the coordinator, which takes what is kept for unused otherwise, and has others admitted for it.
func (c *Core) keptFor(g *gang, base api.Resources) api.Resources {
	missing, amounts := int64(g.isShortOf()), g.charge.amounts
	if !g.started {
		missing = 0
	}
	lost := amounts.Sub(base)
	n := lost.Value("pods")
	whole := missing == 0 || len(g.group.Floor) > 0
	if whole {
		g.repair.kept = 0
	}
	if whole || !base.Fits(amounts) || n == 0 { // where another pod takes the place, it may give it up again
		return base
	}
	if n > g.repair.kept {
		g.repair.since, g.repair.kept = c.now, n
	}
	noRoom := g.search.gaveUp && g.search.sleep != nil
	if g.tally.candidates == 0 || noRoom {
		until := g.repair.since.Add(c.objects.RepairFor(g.queue))
		if !c.now.Before(until) {
			return base
		}
		c.wakeAt(g, until)
	}
	if n > missing { // the others were above its minimum
		for i := range lost {
			lost[i].Value = lost[i].Value / n * missing
		}
	}
	unplaced := lost // or rather what waits for room, if that is so
	if noRoom {
		unplaced = sum(g.pick(func(p *pod) bool { return p.candidate() && p.stage == nowhere }))
	}
	c.tellUnplaced(g, unplaced, !noRoom)
	c.wakeAt(g, c.now.Add(unplacedAgain))
	return base.Add(lost)
}

// goesStale begins to close a gang that has been short for too long, and reports whether it did. One of which not all
// pods would be made again is evicted only if its PodGroup says that it may be.
func (c *Core) goesStale(g *gang) bool {
	missing := g.isShortOf()
	if missing == 0 || g.tally.candidates == 0 || g.charge.closed {
		g.repair.waits = time.Time{}
		return false
	}
	if g.repair.waits.IsZero() {
		g.repair.waits = c.now
	}
	after, by := c.objects.StaleAfter(g.queue, g.group)
	asks := g.group.StaleAfter > 0 || g.group.Preemptible != nil && *g.group.Preemptible
	if after == 0 || !asks && !g.isReplaced() {
		return false
	}
	if at := g.repair.waits.Add(after); c.now.Before(at) {
		c.wakeAt(g, at)
		return false
	}
	if g.tally.committed > 0 || !g.charge.reserved || follows[g.state]&(1<<closing) == 0 { // what is on its way first
		return false
	}
	g.repair.stale = report.StaleWords(g.tally.placed, g.minCount(), after, by)
	g.charge.reserve, g.charge.open = nil, &call{serial: c.serial(g)}
	c.become(g, closing)
	return true
}

// seeRepair takes note of what a Queue says of gangs that lost pods, nil for one that is gone.
func (c *Core) seeRepair(queue, uid string, spec *v1alpha1.QueueSpec) {
	if !c.objects.SeeRepair(queue, uid, spec) {
		return
	}
	for _, g := range c.gangs {
		if api.Under(g.queue, queue) && g.isShortOf() > 0 {
			c.touch(g)
		}
	}
}
