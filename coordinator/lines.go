package coordinator

import (
	"cmp"
	"container/heap"
	"slices"
	"strings"
	"time"

	"github.com/google/btree"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/fault"
)

// Fair-share order. Room is offered in a tournament: from root down, the child goes first that stands best among its
// siblings, and in a leaf the first request in static order. So a gang's priority counts in its own leaf and nowhere
// else, and a queue has one turn among its siblings however many leaves, namespaces or requests are below it.
//
// A queue stands among its siblings as its next request would leave it: - in which band: within its guarantee, within
// what it deserves, or above. Only those resources are judged that the request asks for
//     and the queue names; who names none of them is above, for all that it uses is borrowed;
//   - above what they deserve, by Queue.spec.priority;
// - by share, the smaller first. Within a guarantee or what is deserved this is the part of it that is used, of the
// resource of which that is most. Above, it is what the queue has above what it deserves, as a part of the parent's
// limit, divided by the weight,
//     again of the resource of which that is most: dominant resource fairness.
//   - by age, then by UID.
//
// How a queue stands depends on its own sums and on its own next request. So a turn changes nothing but the standing
// of the queues on one path, and the tournament is kept from one transaction to the next: a heap of the children for
// each queue, of those with demand classes that are due there or below (contest). What changes sums, or who is next,
// marks the queues of its path (shake), and these are put in their places again before the next turn (reorder).
//
// A demand class is due from when it is made due, or woken (wake.go), until it is granted for the last time or
// denied. The tournament ends when nobody who is due can be granted. Those who are left were woken for something that
// others got since; they stay where they are, for they are the next when more of it is freed.

// band says how much right a queue has to what it asks for. The first goes first.
type band uint8

const (
	withinGuarantee band = iota
	withinDeserved
	aboveDeserved
)

// order is who waits in a queue, which of them is looked at next, and for whom quota is kept.
type order struct {
	classes       *btree.BTreeG[*demandClass] // of this very queue, in static order (demand.go); nil before the first
	classOf       map[string]*demandClass
	left          int                         // so many are to be looked at, as something changed where they were denied,
	cursor        *request                    // from this one on, nil for the first,
	front         bool                        // and the first of them before
	candidates    *btree.BTreeG[*demandClass] // those with candidates for an earmark, in earmarkOrder (earmarks.go)
	blocked       map[*queue]int              // of the subtree: demand classes whose denial names this queue, if any
	unmeasured    map[*queue]int              // likewise, with those that are looked at whatever is freed here (wake.go)
	shortages     []*shortage                 // what demand classes lack here
	ofUsers       map[string]*shortage        // likewise of what their users may have, by account and resource,
	freedUsers    []*shortage                 // and those of which some was freed since they were denied
	freed         uint64                      // how often something changed here for the better,
	changes       uint64                      // and how often limits did, or something like them
	hasFreed      bool                        // it did since they were denied, and it is in turns.freed
	hasChanged    bool
	listed        bool       // stands in turns.leaves
	contests      []*contest // its parts in the tournaments
	next          *request   // that is next in the queue or below, when somebody asked last, nil for none (standing.go)
	stands        standing   // with it, among its siblings
	earmark       *request   // the request that this queue keeps quota for
	formerEarmark *request   // the one before, while earmarks are decided again
}

// standing is how a queue stands among its siblings.
type standing struct {
	band     band
	priority int32 // of the queue, where it is above what it deserves
	share    int64
	since    int64  // of its next request: a copy, for that may change before the queue is in its place again
	uid      string // likewise
	path     string
}

func (s standing) compareQueues(o standing) int {
	return cmp.Or(cmp.Compare(s.band, o.band), cmp.Compare(o.priority, s.priority), cmp.Compare(s.share, o.share))
}

func (s standing) compare(o standing) int {
	return cmp.Or(s.compareQueues(o), cmp.Compare(s.since, o.since),
		strings.Compare(s.uid, o.uid), strings.Compare(s.path, o.path))
}

// standing is how the queue stands if r, a request of its subtree, is the next, with so much more than it has.
func (q *queue) standing(r *request, more api.Resources) standing {
	s := standing{band: q.band(r.delta), since: r.since, uid: r.gang.key.uid, path: q.path}
	switch s.band {
	case withinGuarantee:
		s.share = q.use(r.delta, more, q.guarantee)
	case withinDeserved:
		s.share = q.use(r.delta, more, q.deserved)
	default:
		s.priority = q.limits.priority()
		if s.share = q.surplus(more); fault.On(fault.WithoutShares) {
			s.share = 0
		}
	}
	return s
}

// band of a request for so much more.
func (q *queue) band(delta api.Resources) band {
	b := aboveDeserved
	for _, d := range delta {
		deserved, named := q.deserved.Get(d.Resource)
		if !named || d.Value <= 0 {
			continue
		}
		after := q.has(d.Resource).plus(d.Value).amount()
		switch {
		case after > deserved:
			return aboveDeserved
		case after > q.guarantee.Value(d.Resource):
			b = withinDeserved
		case b == aboveDeserved:
			b = withinGuarantee
		}
	}
	return b
}

// use is the largest part of an amount of has that the queue uses with so much more, of what a request asks for.
func (q *queue) use(asked, more, has api.Resources) (most int64) {
	for _, d := range asked {
		if limit, named := has.Get(d.Resource); named && d.Value > 0 {
			most = max(most, part(q.has(d.Resource).plus(more.Value(d.Resource)).amount(), limit))
		}
	}
	return most
}

// tournament is who of those that wait has the next turn, and what wakes them (wake.go).
type tournament struct {
	tree      *tree
	newcomers line        // of demand classes that are to be judged, and not just woken
	openings  []*shortage // of which some that are woken need no more than what is free
	shaken    []*contest  // that are to be put in their places
	ordered   uint64      // tree.made when all were
	lined     int         // queues with demand classes that are due
	firsts    []*contest  // of lines, as next compares them: kept for its memory

	leaves   []*queue   // queues with demand classes that are to be looked at
	freed    []*queue   // queues in which something changed for the better
	spent    []*contest // of queues that had their turns of this round
	round    uint64     // of looking through leaves and of turns
	behind   bool       // some of leaves are not looked through yet, or some are spent
	nextScan time.Time  // when that goes on
}

// line is one tournament. Those who are to be judged stand in one line, and those who were woken in one for each
// shortage (wake.go): so whoever lacks something that is used up again is in nobody's way.
type line struct{ root *contest }

// contest is the part of a queue in a line. It is kept as long as the queue.
type contest struct {
	queue    *queue
	line     *line
	up       *contest // of the parent of the queue
	due      byTurn   // demand classes of this very queue
	rivals   rivals   // contests of children with something due, the one that is next first
	place    int      // in rivals of the parent's contest, -1 when nothing is due
	standing standing // among its siblings, if it has some
	shaken   bool     // in turns.shaken: its standing, or its next request, may be another
	round    uint64   // turns.round in which
	denials  int      // so many demand classes that were woken were denied
	spent    bool     // in turns.spent: its turns of this round are used up
}

// contest returns the contest of a queue, made if need be with those of its ancestors.
func (l *line) contest(q *queue) *contest {
	for _, n := range q.order.contests {
		if n.line == l {
			return n
		}
	}
	n := &contest{queue: q, line: l, place: -1}
	if q.parent == nil {
		l.root = n
	} else {
		n.up = l.contest(q.parent)
	}
	q.order.contests = append(q.order.contests, n)
	return n
}

// next is the contest whose first class has the next turn, nil when nothing is due.
func (n *contest) next() *contest {
	// A queue that has requests and children admits nothing: they are answered first.
	for n != nil && (len(n.due) == 0 || n.spent) {
		if len(n.rivals) == 0 {
			return nil
		}
		n = n.rivals[0]
	}
	return n
}

// stand has the queue stand as its next request would leave it.
func (n *contest) stand() {
	if next := n.next(); next != nil { // else it is about to leave
		r := next.due[0].requests[0]
		n.standing = n.queue.standing(r, r.delta)
	}
}

// enter lets a demand class that is due take part in the tournament of a line.
func (t *tournament) enter(a *demandClass, l *line) {
	n := l.contest(a.queue)
	if len(n.due) == 0 {
		t.lined++
	}
	heap.Push(&n.due, a)
	a.contest = n
	t.shakePath(n)
}

// leave takes a demand class out of the tournament.
func (t *tournament) leave(a *demandClass) {
	n := a.contest
	if n == nil {
		return
	}
	heap.Remove(&n.due, a.turn)
	if len(n.due) == 0 {
		t.lined--
	}
	a.contest = nil
	t.shakePath(n)
}

// moved puts a demand class in its place among those of its queue, after its first request became another.
func (t *tournament) moved(a *demandClass) {
	if n := a.contest; n != nil {
		heap.Fix(&n.due, a.turn)
		t.shakePath(n)
	}
}

// shakePath marks a contest and those above it: who is next there may be another.
func (t *tournament) shakePath(n *contest) {
	for ; n.up != nil; n = n.up {
		t.mark(n)
	}
}

// shake marks the contests of a queue and its ancestors: how these stand may be different.
func (t *tournament) shake(q *queue) {
	for ; q.parent != nil; q = q.parent {
		for _, n := range q.order.contests {
			if n.place >= 0 {
				t.mark(n)
			}
		}
	}
}

func (t *tournament) mark(n *contest) {
	if !n.shaken {
		n.shaken = true
		t.shaken = append(t.shaken, n)
	}
}

// reorder puts the contests that were marked in their places, and all of them after limits changed.
func (t *tournament) reorder() {
	if t.ordered != t.tree.made {
		t.ordered = t.tree.made
		for _, root := range t.tree.root.order.contests {
			t.shakeAll(root)
		}
	}
	if len(t.shaken) == 0 {
		return
	}
	// What is below decides who is next.
	slices.SortFunc(t.shaken, func(a, b *contest) int { return cmp.Compare(b.queue.level, a.queue.level) })
	for i, n := range t.shaken {
		n.settle()
		n.shaken = false
		t.shaken[i] = nil
	}
	t.shaken = t.shaken[:0]
}

func (t *tournament) shakeAll(n *contest) {
	if n.up != nil {
		t.mark(n)
	}
	for _, below := range n.rivals {
		t.shakeAll(below)
	}
}

// settle puts the queue in its place among its siblings. Who has none does not need a standing.
func (n *contest) settle() {
	up := n.up
	switch due := n.next() != nil; {
	case !due && n.place >= 0:
		heap.Remove(&up.rivals, n.place)
	case !due:
	case n.place < 0:
		if len(up.rivals) == 1 {
			up.rivals[0].stand()
		}
		if len(up.rivals) > 0 {
			n.stand()
		}
		heap.Push(&up.rivals, n)
	case len(up.rivals) > 1:
		n.stand()
		heap.Fix(&up.rivals, n.place)
	}
}

// first is the static order of demand classes in a queue, by the first request of each.
func (a *demandClass) first(o *demandClass) int { return a.requests[0].compare(o.requests[0]) }

// byTurn is a heap of the demand classes of a queue that are due, the first in static order first.
type byTurn []*demandClass

func (h byTurn) Len() int           { return len(h) }
func (h byTurn) Less(i, j int) bool { return h[i].first(h[j]) < 0 }
func (h byTurn) Swap(i, j int)      { h[i], h[j] = h[j], h[i]; h[i].turn, h[j].turn = i, j }
func (h *byTurn) Push(x any) {
	a := x.(*demandClass)
	a.turn = len(*h)
	*h = append(*h, a)
}
func (h *byTurn) Pop() any {
	last := (*h)[len(*h)-1]
	(*h)[len(*h)-1] = nil
	*h = (*h)[:len(*h)-1]
	return last
}

type rivals []*contest

func (h rivals) Len() int           { return len(h) }
func (h rivals) Less(i, j int) bool { return h[i].standing.compare(h[j].standing) < 0 }
func (h rivals) Swap(i, j int)      { h[i], h[j] = h[j], h[i]; h[i].place, h[j].place = i, j }
func (h *rivals) Push(x any) {
	n := x.(*contest)
	n.place = len(*h)
	*h = append(*h, n)
}
func (h *rivals) Pop() any {
	last := (*h)[len(*h)-1]
	(*h)[len(*h)-1] = nil
	*h = (*h)[:len(*h)-1]
	last.place = -1
	return last
}

// before is the static order of those who wait in one queue: gangs that mend, then priority, then the place that the
// queue's expression gives (Queue.spec.order), then age, then UID. It says whose earmark stands against whom there.
// Requests of different queues are never compared: nothing that a queue says of its gangs matters elsewhere.
func (r *request) before(o *request) bool { return r.compare(o) < 0 }

func (r *request) compare(o *request) int {
	if r.mends != o.mends {
		if r.mends {
			return -1
		}
		return 1
	}
	if c := cmp.Compare(o.priority, r.priority); c != 0 {
		return c
	}
	if c := cmp.Compare(r.order, o.order); c != 0 {
		return c
	}
	if c := cmp.Compare(r.since, o.since); c != 0 {
		return c
	}
	return cmp.Compare(r.gang.key.uid, o.gang.key.uid)
}
