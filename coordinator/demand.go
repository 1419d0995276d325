package coordinator

import (
	"encoding/binary"
	"slices"

	"github.com/google/btree"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

// demandClass groups identical requests of one tenant in a queue. The same sums and limits apply to each of them, and an earmark
// that stands against the first stands against the others. So only the first is evaluated, and while it is denied, none of the
// others can be granted. The denial of the class is kept up to date; what each of the others was told follows it (inform).
type demandClass struct {
	queue     *queue
	namespace string
	delta     api.Resources
	grows     string // UID of the gang that has a reservation already, which makes it a class of its own
	fixed     bool   // they may not be evicted

	requests      []*request // in static order, never empty
	candidates    []*request // those that may get an earmark, in earmarkOrder
	owed          []*request // those that an answer is owed to once the class was evaluated
	counted       bool       // in the sums of what waits (queue.asked)
	due           bool       // to be judged, and in queue.due unless offer has it
	denied        shortfall  // the last judgement; queue is nil before the first
	limitsVersion uint64     // Core.limitsVersion then
	freed         uint64     // rooms of the queue that denied it then
}

// key identifies a demand class in its queue.
func (a *demandClass) key() []byte {
	b := make([]byte, 0, 128)
	b = append(append(b, a.namespace...), 0)
	b = append(append(b, a.grows...), 0)
	if a.fixed {
		b = append(b, 1) // no name begins so
	}
	for _, d := range a.delta {
		b = append(append(b, d.Resource...), 0)
		b = binary.BigEndian.AppendUint64(b, uint64(d.Value))
	}
	return b
}

// first is the static order of demand classes in a queue, by the first request of each.
func (a *demandClass) first(o *demandClass) int { return a.requests[0].compare(o.requests[0]) }

func (c *Core) list(r *request) {
	if r.barred != nil {
		return
	}
	a := &demandClass{queue: r.queue, namespace: r.namespace, delta: r.delta, fixed: !r.preemptible}
	if r.gang.res != nil {
		a.grows = r.gang.key.uid
	}
	q := r.queue
	if q.classes == nil {
		q.classes, q.classOf = btree.NewG(classDegree, func(a, b *demandClass) bool { return a.first(b) < 0 }), map[string]*demandClass{}
	}
	key := a.key()
	if known := q.classOf[string(key)]; known == nil {
		q.classOf[string(key)] = a
		a.requests = append(a.requests, r)
		q.classes.ReplaceOrInsert(a)
	} else if a = known; r.before(a.requests[0]) {
		q.classes.Delete(a)
		a.requests = slices.Insert(a.requests, 0, r)
		q.classes.ReplaceOrInsert(a)
	} else {
		a.requests = insert(a.requests, r, (*request).compare)
	}
	r.demandClass = a
	if a.counted {
		q.ask(a.delta, 1)
	}
	if r.candidate {
		c.addCandidate(r)
	}
}

// ask adds to what is waited for in a queue and its ancestors.
func (q *queue) ask(delta api.Resources, times int64) {
	for p := q; p != nil; p = p.parent {
		p.asked.add(delta, times)
	}
}

// count lets a demand class count among what waits, or not.
func (a *demandClass) count(counts bool) {
	if a.counted == counts {
		return
	}
	n := int64(len(a.requests))
	if a.counted = counts; !counts {
		n = -n
	}
	a.queue.ask(a.delta, n)
}

func (c *Core) unlist(r *request) {
	c.unexpect(r)
	a := r.demandClass
	if a == nil {
		return
	}
	if r.candidate {
		c.dropCandidate(r)
	}
	if a.counted {
		a.queue.ask(a.delta, -1)
	}
	if r != a.requests[0] {
		a.requests = remove(a.requests, r, (*request).compare)
	} else {
		a.queue.classes.Delete(a)
		if a.requests = remove(a.requests, r, (*request).compare); len(a.requests) > 0 {
			a.queue.classes.ReplaceOrInsert(a)
		} else {
			c.unblock(a)
			delete(a.queue.classOf, string(a.key()))
		}
	}
	r.demandClass = nil
}

// insert and remove keep a list in order. Most come at the end and go from the front, where both cost nothing.
func insert[E any](list []E, e E, compare func(E, E) int) []E {
	i, _ := slices.BinarySearchFunc(list, e, compare)
	return slices.Insert(list, i, e)
}

func remove[E any](list []E, e E, compare func(E, E) int) []E {
	i, found := slices.BinarySearchFunc(list, e, compare)
	switch {
	case !found:
		return list
	case i == 0:
		clear(list[:1])
		return list[1:]
	}
	return slices.Delete(list, i, i+1)
}

func (c *Core) unblock(a *demandClass) {
	if d := a.denied.queue; d != nil {
		if d.blocked[a.queue]--; d.blocked[a.queue] == 0 {
			delete(d.blocked, a.queue)
		}
		a.denied = shortfall{}
	}
}

// freedAt notes that quota was freed at q: requests denied there may be granted now.
func (c *Core) freedAt(q *queue) {
	if len(q.blocked) > 0 && !q.hasFreed {
		q.hasFreed = true
		c.freed = append(c.freed, q)
	}
}

// freedEverywhere notes it of all queues.
func (c *Core) freedEverywhere() { c.tree.root.walk(c.freedAt) }

func (c *Core) makeDue(a *demandClass) {
	if !a.due {
		a.due = true
		c.later(a)
	}
}

// later has a demand class that is due evaluated in the next transaction.
func (c *Core) later(a *demandClass) {
	a.queue.due = append(a.queue.due, a)
	c.listLeaf(a.queue)
}

func (c *Core) listLeaf(q *queue) {
	if !q.listed {
		q.listed = true
		c.leaves = append(c.leaves, q)
	}
}

// wake schedules the queues whose demand classes were denied at a queue in which quota was freed. A denial depends only on the sums,
// the limits and the earmark of the queue that denied, so no other demand class can have become grantable.
func (c *Core) wake() {
	for _, q := range c.freed {
		q.hasFreed = false
		q.freed++
		for leaf := range q.blocked { // in any order: the order of judgement is that of lineups
			leaf.left, leaf.front = leaf.classes.Len(), true
			c.listLeaf(leaf)
		}
	}
	c.freed = nil
}

// stale reports whether a denial may not hold any more.
func (a *demandClass) stale(limitsVersion uint64) bool {
	d := &a.denied
	return d.queue != nil && d.queue.freed != a.freed && (d.reason != wire.DenyReason_DENY_NEVER_FITS || a.limitsVersion != limitsVersion)
}

// A turn's work is bounded, so that somebody who asks for 50,000 different amounts delays nobody else. Of each queue that was woken,
// at most an equal part of Config.Asks, within the bounds below, is looked at for each transaction: half of it the first in static
// order, so that the order is kept among those whose turn it is, and half of it a round through all. Who waits behind n different
// classes of its own queue is judged after at most n divided by that half of transactions; other queues do not notice. What is new is
// judged at once, whoever asks.
const (
	classDegree  = 16  // of the B-trees of demand classes
	mostClasses  = 4   // a queue gets no more than Config.Asks divided by this,
	leastClasses = 128 // and no less than Config.Asks divided by this
)

// collect returns the demand classes of a queue that are to be evaluated now, of those that were woken among the next most.
func (q *queue) collect(most int, limitsVersion uint64) (due []*demandClass) {
	for _, a := range q.due {
		if len(a.requests) > 0 && a.due {
			due = append(due, a)
		}
	}
	clear(q.due)
	q.due = q.due[:0]
	if most -= len(due); q.left == 0 || most <= 0 || q.classes == nil {
		return due
	}
	look := func(a *demandClass) {
		if !a.due && a.stale(limitsVersion) {
			a.due = true
			due = append(due, a)
		}
	}
	if q.classes.Len() <= most {
		q.left, q.front = 0, false
		q.classes.Ascend(func(a *demandClass) bool { look(a); return true })
		return due
	}
	if n := most / 2; q.front && n > 0 {
		q.front = false
		most -= n
		q.classes.Ascend(func(a *demandClass) bool { look(a); n--; return n > 0 })
	}
	for again := false; most > 0 && q.left > 0; again = true {
		next := func(a *demandClass) bool {
			if most == 0 || q.left == 0 {
				q.cursor = a.requests[0].mark()
				return false
			}
			look(a)
			most--
			q.left--
			return true
		}
		if again || q.cursor == nil {
			q.cursor = nil
			q.classes.Ascend(next)
		} else {
			from := &demandClass{requests: []*request{q.cursor}}
			q.cursor = nil
			q.classes.AscendGreaterOrEqual(from, next)
		}
		if q.cursor != nil {
			break
		}
	}
	return due
}

// mark is a request with the same place in the static order.
func (r *request) mark() *request {
	return &request{priority: r.priority, since: r.since, gang: &gang{key: r.gang.key}}
}
