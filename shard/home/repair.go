package home

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/shard/home/report"
)

// Repair. A gang that has started and loses pods does no work until it is whole again, so whoever waits must not get
// their place before those that replace them have had time to come: 50 milliseconds for a ReplicaSet, 10 seconds for
// a Job. A gang that is short keeps what its minimum was charged, for repairFor while there is no pod that
// could replace one, or no room for it, and for as long as one is on its way. A pod that takes the place of another
// asks for nothing: the record names it in place of that one. As what is charged counts against what the nodes have
// (DENY_SUPPLY), nobody else is admitted for the room either, where the nodes are full. Where those that replace it
// find no room, as what is free is in pieces, the coordinator hears so again and again, and admits others for the
// pieces.
//
// Nothing is kept for pods that succeeded, above the minimum, for a life that is over (gang.go), and for the floor of
// a Volcano PodGroup.

// Where a queue, or the PodGroup itself, says so (staleAfter), a gang that is short for long is evicted as a whole, as
// one that yields, and starts anew where all of it finds room. Only the time counts in which pods that could replace
// what it lost wait, without a break: what nobody replaces is somebody's will, or a controller's that repairs it.

// A pod that is being deleted may stay for hours: its node is silent, or a finalizer is not taken off. When its grace
// is over and its node is not ready, or a minute later anywhere, it is lost: it counts on its node until it is gone,
// but its gang is not charged for it any more, so another takes its place. Before Kubernetes deletes it nothing
// happens: a node that is silent is not dead.

// isLost reports whether a bound pod is lost, or notes when it will be. One that is lost stays so. A gang of one has
// nothing that would take its place.
func (p *pod) isLost(n *api.Node, now time.Time, again *time.Time) bool {
	if p.absence == lost || !p.Deleting || p.End.At == 0 || p.gang.isPod() {
		return p.absence == lost
	}
	over := time.Unix(p.End.At, 0)
	silent := n != nil && slices.ContainsFunc(n.Taints, func(t v1.Taint) bool {
		return t.Key == v1.TaintNodeNotReady || t.Key == v1.TaintNodeUnreachable
	})
	for _, at := range []time.Time{over, over.Add(api.Overdue)} {
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
	p.absence = lost
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
	if g.isPod() || g.tally.alive == 0 || g.group == nil || g.group.Deleting || g.leaving() {
		return 0
	}
	return max(0, g.minCount()-g.tally.alive-g.tally.succeeded)
}

// keptFor returns what a gang is charged that needs base: with what it lost of its minimum, while that is kept. It says
// so to the coordinator, which takes what is kept for unused otherwise, and has others admitted for it.
func (c *common) keptFor(g *gang, base api.Resources) api.Resources {
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
	found := !g.search.gaveUp || g.search.sleep == nil
	if g.tally.candidates == 0 || !found {
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
	if found {
		c.tellUnplaced(g, repairs, lost)
	} else { // it is rather what waits for room
		c.tellUnplaced(g, noRoom, sum(g.pick(func(p *pod) bool { return p.candidate() && p.stage == nowhere })))
	}
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
	if g.tally.committed > 0 || !g.charge.reserved() || follows[g.state]&(1<<closing) == 0 { // what is on its way first
		return false
	}
	g.repair.stale = report.StaleWords(g.tally.placed, g.minCount(), after, by)
	g.charge.awaitAnswer(c.serial(g))
	c.become(g, closing)
	return true
}

// isReplaced reports whether every bound pod of the gang would be made again.
func (g *gang) isReplaced() bool {
	for _, p := range g.members {
		if p.isBound() && !p.Owned() {
			return false
		}
	}
	return true
}
