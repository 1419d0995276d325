package coordinator

import (
	"encoding/binary"
	"maps"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/fault"
)

// Displacements. It is remembered for whom each gang was evicted, and a gang takes nothing from those who displaced it: the gang for which it was
// evicted, the gang for which that one was evicted, and so on. So A evicts B evicts A does not happen, with any number of others between the two.
//
// Why evictions end, whatever else the rules allow. Take each gang that was evicted as a node, with one edge to the gang for which it was evicted
// last. A claim adds edges from its victims to the claimant. None of them can be reached from there, so no cycle is closed: the edges are a forest
// at all times. Now let finitely many gangs evict each other for ever. Those that claim again and again are evicted again and again, and from some
// time on only for each other. So each of them has an edge to another of them, and there is a cycle.
//
// The rules of reclaim.go alone leave circles, though few: 1 of 1,000,000 drawn worlds. What a queue deserves of one resource says nothing of
// the others that its gangs use, so a queue that deserves GPUs and one that deserves CPU can both be entitled in turn, if gangs start above a
// threshold or preempt each other in between. To judge each queue by a threshold of every limited resource was dropped: what no queue names
// rides along with what it deserves, and GPUs without CPUs are worth nothing. So was to lend nothing that an entitled gang wants: it would be
// idle as long as that gang lacks something else.
//
// A displacement is void once the side that lost the gang, which is the child of the lowest common ancestor of both queues, may have a right
// that it did not have then: one of its gangs ended or became smaller, its threshold has grown, or limits were edited. Evictions do none of
// that, so the argument stands as long as nothing changes from outside.
//
// Displacements are in memory alone. A coordinator that takes over knows those of the claims that stand, and a failover counts as a change, too.

// displacementsAtMost bounds how many are remembered. Beyond, all are forgotten.
const displacementsAtMost = 1 << 15

// identity is what a gang is known by when it comes back after an eviction: its UID, or for a pod without a PodGroup, which comes back under
// another name, its namespace, queue, priority, and what it requests.
type identity string

func (g *gang) identity() identity {
	if !g.ref.GetSingle() {
		return identity(g.key.uid)
	}
	var demand api.Resources
	priority := int64(0)
	switch {
	case g.req != nil:
		demand, priority = g.req.demand, g.req.priority
	case g.res != nil:
		demand, priority = g.res.demand, g.res.rank.Priority
	}
	b := append([]byte(nil), g.key.queue...) // which has a separator that no UID has
	b = append(append(b, '/'), g.ref.GetNamespace()...)
	b = binary.BigEndian.AppendUint64(append(b, 0), uint64(priority))
	for _, d := range demand {
		b = append(append(b, d.Resource...), 0)
		b = binary.BigEndian.AppendUint64(b, uint64(d.Value))
	}
	return identity(b)
}

// displacement is the last eviction of a gang for another one.
type displacement struct {
	by         identity
	side       *queue        // that lost it: a child of the lowest common ancestor, or the queue of both
	departures uint64        // side.departures then,
	threshold  api.Resources // the most that side may have,
	limits     uint64        // and tree.version
}

// displacements are those that are remembered, by the gang that was evicted.
type displacements map[identity]displacement

// add takes note of an eviction.
func (d displacements) add(victim, claimant identity, side *queue, limits uint64) {
	last := displacement{by: claimant, side: side, departures: side.members.departures, limits: limits}
	if side.parent != nil {
		last.threshold = side.most()
	}
	d[victim] = last
}

// before returns those who displaced a gang, directly or through others, as far as that holds.
func (d displacements) before(g identity, holds func(displacement) bool) (out map[identity]bool) {
	for {
		last, was := d[g]
		if !was || !holds(last) || out[last.by] {
			return out
		}
		if out == nil {
			out = map[identity]bool{}
		}
		g = last.by
		out[g] = true
	}
}

// displacedBy returns those from whom a gang takes nothing because they displaced it.
func (l *ledger) displacedBy(g *gang) map[identity]bool {
	if len(l.displacements) == 0 {
		return nil
	}
	return l.displacements.before(g.identity(), l.holds)
}

// holds reports whether a displacement is not void.
func (l *ledger) holds(d displacement) bool {
	if d.limits != l.tree.version || l.tree.byPath[d.side.path] != d.side || d.side.members.departures != d.departures {
		return false
	}
	if d.side.parent != nil {
		for _, t := range d.side.most() {
			if t.Value > d.threshold.Value(t.Resource) {
				return false
			}
		}
	}
	return true
}

// displace takes note of the gangs that a claim evicts, and of those that lose surplus pods, which they ask for again.
func (l *ledger) displace(x *claim) {
	if fault.On(fault.WithoutDisplacement) {
		return
	}
	tooMany := func() bool { return len(l.displacements)+len(x.victims) > displacementsAtMost }
	if tooMany() {
		maps.DeleteFunc(l.displacements, func(_ identity, d displacement) bool { return !l.holds(d) })
	}
	if tooMany() {
		clear(l.displacements)
	}
	claimant := x.gang.identity()
	for _, v := range x.victims {
		if v.gang.res != nil {
			side := v.gang.res.queue
			if side != x.gang.res.queue {
				_, side = apart(x.gang.res.queue, side)
			}
			l.displacements.add(v.gang.identity(), claimant, side, l.tree.version)
		}
	}
}

// undisplace forgets that a claim evicts a gang that stays.
func (l *ledger) undisplace(x *claim, v victim) {
	if id := v.gang.identity(); l.displacements[id].by == x.gang.identity() {
		delete(l.displacements, id)
	}
}

// departed takes note that the queue has less for good.
func (q *queue) departed() {
	for ; q != nil; q = q.parent {
		q.members.departures++
	}
}
