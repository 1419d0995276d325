package coordinator

import (
	"container/heap"
	"math"
	"time"

	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/api/wire"
)

// Who is woken. A denial depends only on the sums, the limits and the earmark of the queue that denied, so a demand class is looked at again
// when one of these changes for the better.
//
// Mostly a class is denied because a queue has too little of one resource left. Then it cannot be granted before so much of it is free
// there, whatever else happens. So the queue keeps the classes that lack a resource in a heap, ordered by how much each of them needs, and
// what is freed wakes only those that need no more than what is free then (shortage). A class that is woken is due, and stays due when others
// get what was free: it is judged in its turn, or wakes nobody the next time. So a class costs something once for each of its judgements, and
// not once for each release.
//
// Where the lack cannot be measured, as where quota is kept for an older gang, whatever is freed at the queue has the class looked at. And
// where limits changed, all classes that the queue denied are: what they are told may change, too.
//
// Tried and dropped: to wake all that a queue denied whenever something is freed there. With 1,000 queues whose gangs wait at root, each
// release had all 1,000 judged for the sake of one.

// shortage is what demand classes lack at a queue.
type shortage struct {
	queue    *queue
	resource string
	of       lacked
	account  *userAccount // of a shortage of what a user may have
	asleep   byNeed       // that need more than what is free
	woken    byNeed       // that needed no more when they were woken, and were not judged since
	line     line
	open     bool // in turns.openings: some that are woken need no more than what is free
}

// lacked says of what the classes of a shortage need a part.
type lacked uint8

const (
	ofCapability lacked = iota // without what is charged, and promised
	ofUnheld                   // likewise, and without what is kept for guarantees
	ofNodes
	ofUser
)

// free is how much is left: a class that needs more is denied. It may be more than what the class could really have.
func (s *shortage) free() int64 {
	q := s.queue
	if s.of == ofUser {
		if free, limited := s.account.free(s.resource); limited {
			return free.amount()
		}
		return math.MaxInt64
	}
	limit, limited := q.capability(s.resource)
	used := q.charged.get(s.resource)
	if len(q.moves.sums) > 0 {
		used = used.max(q.has(s.resource))
	}
	switch s.of {
	case ofNodes:
		limit, limited = q.gate.limit(s.resource, nil)
	case ofCapability:
		used = used.sub(q.forced.get(s.resource)) // does not count against what is inside a guarantee
	case ofUnheld:
		used = used.max(q.held.get(s.resource)).max(q.willHold(s.resource))
	}
	if !limited {
		return math.MaxInt64
	}
	return wide{}.plus(limit).sub(used).amount()
}

// suffices reports whether some that are woken might have what they need.
func (s *shortage) suffices() bool { return len(s.woken) > 0 && s.woken[0].lacks <= s.free() }

// measure returns the shortage for which a demand class was denied, and how much it needs, nil where it may be granted before so much is free.
func (l *shortfall) measure(a *demandClass) (*shortage, int64) {
	if a.vain { // it is granted nothing: sweep keeps its words true
		return nil, 0
	}
	of := ofCapability
	switch l.reason {
	case wire.DenyReason_DENY_USER_LIMIT:
		s, needs := l.queue.shortageOf(l.account, l.resource), a.delta.Value(l.resource)
		if needs <= s.free() {
			return nil, 0
		}
		return s, needs
	case wire.DenyReason_DENY_SUPPLY:
		of = ofNodes
	case wire.DenyReason_DENY_QUOTA, wire.DenyReason_DENY_PROMISED, wire.DenyReason_DENY_GUARANTEE:
		inside := fault.On(fault.CousinsGuarantee)
		for q := a.queue; q != l.queue && !inside; q = q.parent {
			inside = q.guarantee.Value(l.resource) > 0
		}
		if !inside { // then all of it is taken from what is kept for nobody
			of = ofUnheld
		} else if l.reason == wire.DenyReason_DENY_GUARANTEE {
			return nil, 0
		}
	default:
		return nil, 0
	}
	needs := a.delta.Value(l.resource)
	s := l.queue.shortage(l.resource, of)
	if needs <= s.free() {
		return nil, 0
	}
	return s, needs
}

// shortage returns what is known of a resource that the queue lacks. The queue keeps one for each resource that a limit or the nodes name.
func (q *queue) shortage(resource string, of lacked) *shortage {
	for _, s := range q.order.shortages {
		if s.of == of && s.resource == resource {
			return s
		}
	}
	s := &shortage{queue: q, resource: resource, of: of}
	q.order.shortages = append(q.order.shortages, s)
	return s
}

// shortageOf returns what is known of a resource of which a user may have no more.
func (q *queue) shortageOf(a *userAccount, resource string) *shortage {
	key := a.key + "\x00" + resource
	s := q.order.ofUsers[key]
	if s == nil {
		if q.order.ofUsers == nil {
			q.order.ofUsers = map[string]*shortage{}
		}
		s = &shortage{queue: q, resource: resource, of: ofUser}
		q.order.ofUsers[key] = s
	}
	s.account = a
	return s
}

// freedOf notes that a user has less of a resource.
func (q *queue) freedOf(a *userAccount, resource string) {
	if s := q.order.ofUsers[a.key+"\x00"+resource]; s != nil {
		q.order.freedUsers = append(q.order.freedUsers, s)
	}
}

// forget drops what is known of the shortage of a user for which nobody waits any more.
func (s *shortage) forget() {
	if key := s.account.key + "\x00" + s.resource; len(s.asleep)+len(s.woken) == 0 && s.queue.order.ofUsers[key] == s {
		delete(s.queue.order.ofUsers, key)
	}
}

// sleep has a demand class that was denied wait for what it lacks.
func (t *tournament) sleep(a *demandClass) {
	s, needs := a.denied.measure(a)
	if unmeasured := s == nil && a.denied.reason != wire.DenyReason_DENY_NEVER_FITS && !a.vain; unmeasured != a.unmeasured {
		a.unmeasured = unmeasured
		count(&a.denied.queue.order.unmeasured, a.queue, unmeasured)
	}
	if s != nil {
		a.shortage, a.lacks = s, needs
		heap.Push(&s.asleep, a)
	}
}

// rest takes a demand class out of the tournament, and out of the shortage that it waits for.
func (t *tournament) rest(a *demandClass) {
	t.leave(a)
	if s := a.shortage; s != nil {
		h := &s.asleep
		if a.woken {
			h = &s.woken
		}
		heap.Remove(h, a.rank)
		if a.shortage = nil; s.of == ofUser {
			s.forget()
		}
	}
	a.due, a.woken = false, false
}

func (t *tournament) unblock(a *demandClass) {
	if d := a.denied.queue; d != nil {
		count(&d.order.blocked, a.queue, false)
		if a.unmeasured {
			count(&d.order.unmeasured, a.queue, false)
		}
		a.denied, a.unmeasured = shortfall{}, false
	}
}

// count adds one to what is counted for a queue, or takes one away.
func count(counts *map[*queue]int, q *queue, more bool) {
	switch {
	case more && *counts == nil:
		*counts = map[*queue]int{q: 1}
	case more:
		(*counts)[q]++
	case (*counts)[q] > 1:
		(*counts)[q]--
	default:
		delete(*counts, q)
	}
}

// freedAt notes that quota was freed at q: requests denied there may be granted now.
func (t *tournament) freedAt(q *queue) {
	if len(q.order.blocked) > 0 && !q.order.hasFreed {
		q.order.hasFreed = true
		t.freed = append(t.freed, q)
	}
}

// changedAt notes that q may deny for other reasons than before.
func (t *tournament) changedAt(q *queue) {
	if t.freedAt(q); q.order.hasFreed {
		q.order.hasChanged = true
	}
}

// changedEverywhere notes it of all queues.
func (t *tournament) changedEverywhere() { t.tree.root.walk(t.changedAt) }

// makeDue has a demand class judged with the next transaction.
func (t *tournament) makeDue(a *demandClass) {
	if !a.due || a.woken {
		t.rest(a)
		a.due = true
		t.enter(a, &t.newcomers)
	}
}

func (t *tournament) listLeaf(q *queue) {
	if !q.order.listed {
		q.order.listed = true
		t.leaves = append(t.leaves, q)
	}
}

// wake makes those due for whom enough was freed, and lists the queues with demand classes that are to be looked at.
func (t *tournament) wake() {
	for _, q := range t.freed {
		leaves := q.order.unmeasured
		if q.order.freed++; q.order.hasChanged {
			q.order.changes++
			leaves = q.order.blocked
		}
		for leaf := range leaves { // in any order: the order of judgement is that of the tournament
			leaf.order.left, leaf.order.front = leaf.order.classes.Len(), true
			t.listLeaf(leaf)
		}
		for _, s := range q.order.shortages {
			t.wakeFor(s)
		}
		for _, s := range q.order.freedUsers {
			t.wakeFor(s)
		}
		q.order.freedUsers = nil
		q.order.hasFreed, q.order.hasChanged = false, false
	}
	clear(t.freed)
	t.freed = t.freed[:0]
}

func (t *tournament) wakeFor(s *shortage) {
	if len(s.asleep)+len(s.woken) == 0 {
		return
	}
	for free := s.free(); len(s.asleep) > 0 && s.asleep[0].lacks <= free; {
		a := heap.Pop(&s.asleep).(*demandClass)
		heap.Push(&s.woken, a)
		a.due, a.woken = true, true
		t.enter(a, &s.line)
	}
	if !s.open && s.suffices() {
		s.open = true
		t.openings = append(t.openings, s)
	}
}

// byNeed is a heap of demand classes, the one that needs least first.
type byNeed []*demandClass

func (h byNeed) Len() int           { return len(h) }
func (h byNeed) Less(i, j int) bool { return h[i].lacks < h[j].lacks }
func (h byNeed) Swap(i, j int)      { h[i], h[j] = h[j], h[i]; h[i].rank, h[j].rank = i, j }
func (h *byNeed) Push(x any) {
	a := x.(*demandClass)
	a.rank = len(*h)
	*h = append(*h, a)
}
func (h *byNeed) Pop() any {
	last := (*h)[len(*h)-1]
	(*h)[len(*h)-1] = nil
	*h = (*h)[:len(*h)-1]
	return last
}

// A turn's work is bounded, so that somebody who asks for 50,000 different amounts delays nobody else. Of each queue with demand classes
// that are to be looked at, at most an equal part of Config.Asks, within the bounds below, is looked at for each transaction: half of it the
// first in static order, so that the order is kept among those whose turn it is, and half of it a round through all. Who waits behind n
// different classes of its own queue is judged after at most n divided by that half of transactions; other queues do not notice. Likewise a
// queue leaves the tournament until the next round when so many of its classes that were woken were denied. What is new is judged at once,
// whoever asks.
const (
	classDegree  = 16  // of the B-trees of demand classes
	mostClasses  = 4   // a queue gets no more than Config.Asks divided by this,
	leastClasses = 128 // and no less than Config.Asks divided by this
)

// spend takes note that a demand class of a queue is denied that was woken, of which there may be so many in a round.
func (t *tournament) spend(n *contest, most int) {
	if n.round != t.round {
		n.round, n.denials = t.round, 0
	}
	if n.denials++; n.denials >= most && !n.spent {
		n.spent = true
		t.spent = append(t.spent, n)
		t.shakePath(n)
	}
}

// scan begins a round if it is time: it makes those due that are to be looked at, and lets queues take part again that had spent their turns.
// It returns how many turns each has.
func (t *tournament) scan(now time.Time, asks int, limitsVersion uint64) (most int) {
	most = max(asks/leastClasses, 2, min(asks/mostClasses, asks/max(1, t.lined, len(t.leaves))))
	if now.Before(t.nextScan) {
		return most
	}
	t.round++
	for i, n := range t.spent {
		n.spent = false
		t.shakePath(n)
		t.spent[i] = nil
	}
	t.spent = t.spent[:0]
	leaves := t.leaves
	t.leaves = nil
	for _, q := range leaves {
		q.order.listed = false
		for _, a := range q.collect(most, limitsVersion) {
			t.makeDue(a)
		}
		if q.order.left > 0 {
			t.listLeaf(q)
		}
	}
	return most
}

// paces notes whether some are left to be looked at, and when that goes on, once a transaction has been made.
func (t *tournament) paces(now time.Time, every time.Duration) {
	if t.behind = len(t.leaves)+len(t.spent) > 0; t.behind && !now.Before(t.nextScan) {
		t.nextScan = now.Add(every)
	}
}

// stale reports whether a denial may not hold any more.
func (a *demandClass) stale(limitsVersion uint64) bool {
	d := &a.denied
	return d.queue != nil && (!a.due || a.woken) &&
		(d.queue.order.changes != a.changed || a.unmeasured && d.queue.order.freed != a.freed) &&
		(d.reason != wire.DenyReason_DENY_NEVER_FITS || a.limitsVersion != limitsVersion)
}

// collect returns the demand classes of a queue that are to be evaluated now, of those whose denial may not hold any more among the next most.
func (q *queue) collect(most int, limitsVersion uint64) (due []*demandClass) {
	if q.order.left == 0 || q.order.classes == nil {
		q.order.left, q.order.front = 0, false
		return nil
	}
	look := func(a *demandClass) {
		if a.stale(limitsVersion) {
			due = append(due, a)
		}
	}
	if q.order.classes.Len() <= most {
		q.order.left, q.order.front = 0, false
		q.order.classes.Ascend(func(a *demandClass) bool { look(a); return true })
		return due
	}
	if n := most / 2; q.order.front && n > 0 {
		q.order.front = false
		most -= n
		q.order.classes.Ascend(func(a *demandClass) bool { look(a); n--; return n > 0 })
	}
	for again := false; most > 0 && q.order.left > 0; again = true {
		next := func(a *demandClass) bool {
			if most == 0 || q.order.left == 0 {
				q.order.cursor = a.requests[0].mark()
				return false
			}
			look(a)
			most--
			q.order.left--
			return true
		}
		if again || q.order.cursor == nil {
			q.order.cursor = nil
			q.order.classes.Ascend(next)
		} else {
			from := &demandClass{requests: []*request{q.order.cursor}}
			q.order.cursor = nil
			q.order.classes.AscendGreaterOrEqual(from, next)
		}
		if q.order.cursor != nil {
			break
		}
	}
	return due
}

// mark is a request with the same place in the static order.
func (r *request) mark() *request {
	return &request{mends: r.mends, priority: r.priority, order: r.order, since: r.since, gang: &gang{key: r.gang.key}}
}
