package coordinator

import (
	"cmp"
	"container/heap"
	"math"
	"math/bits"
	"slices"
	"strings"
	"time"

	"basalt.dev/basalt/api"
)

// Who is next. Room is offered in a tournament: from root down, the child goes first that stands best among its siblings, and in a leaf
// the first request in static order. So a gang's priority counts in its own leaf and nowhere else, and a queue has one turn among its
// siblings however many leaves, namespaces or requests are below it.
//
// A queue stands among its siblings as its next request would leave it:
//   - in which band: within its guarantee, within what it deserves, or above. Only those resources are judged that the request asks for
//     and the queue names; who names none of them is above, for all that it uses is borrowed;
//   - above what they deserve, by Queue.spec.priority;
//   - by share, the smaller first. Within a guarantee or what is deserved this is the part of it that is used, of the resource of which
//     that is most. Above, it is what the queue has above what it deserves, as a part of the parent's limit, divided by the weight,
//     again of the resource of which that is most: dominant resource fairness.
//   - by age, then by UID.
//
// How a queue stands depends on its own sums and on its own next request. So a turn changes nothing but the standing of the queues on one
// path.

// band says how much right a queue has to what it asks for. The first goes first.
type band uint8

const (
	withinGuarantee band = iota
	withinDeserved
	aboveDeserved
)

// standing is how a queue stands among its siblings.
type standing struct {
	band     band
	priority int32 // of the queue, where it is above what it deserves
	share    int64
	next     *request
	path     string
}

func (s standing) compareQueues(o standing) int {
	return cmp.Or(cmp.Compare(s.band, o.band), cmp.Compare(o.priority, s.priority), cmp.Compare(s.share, o.share))
}

func (s standing) compare(o standing) int {
	return cmp.Or(s.compareQueues(o), cmp.Compare(s.next.since, o.next.since), strings.Compare(s.next.gang.key.uid, o.next.gang.key.uid), strings.Compare(s.path, o.path))
}

// standing is how the queue stands if r, a request of its subtree, is the next, with so much more than it has.
func (q *queue) standing(r *request, more api.Resources) standing {
	s := standing{band: q.band(r.delta), next: r, path: q.path}
	switch s.band {
	case withinGuarantee:
		s.share = q.use(r.delta, more, q.guarantee)
	case withinDeserved:
		s.share = q.use(r.delta, more, q.deserved)
	default:
		s.priority = q.limits.priority()
		s.share = q.surplus(more)
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

// shareBits is how finely shares are compared: 1<<shareBits is the whole.
const shareBits = 44

// use is the largest part of an amount of has that the queue uses with so much more, of what a request asks for.
func (q *queue) use(asked, more, has api.Resources) (most int64) {
	for _, d := range asked {
		if limit, named := has.Get(d.Resource); named && d.Value > 0 {
			most = max(most, part(q.has(d.Resource).plus(more.Value(d.Resource)).amount(), limit))
		}
	}
	return most
}

// surplus is the dominant share of what the queue would have above what it deserves, of the limits of its parent, divided by its weight.
// Where nothing limits the parent, siblings compete for nothing, and are compared by their milli-CPUs.
func (q *queue) surplus(more api.Resources) (most int64) {
	var pool api.Resources
	if q.parent != nil {
		pool = q.parent.pool
	}
	above := func(resource string) int64 {
		return max(0, q.has(resource).plus(more.Value(resource)).plus(-q.deserved.Value(resource)).amount())
	}
	for _, limit := range pool {
		most = max(most, part(above(limit.Resource), limit.Value))
	}
	if len(pool) == 0 {
		most = min(above("cpu"), weightless-1)
	}
	if w := q.limits.weight(); w > 0 {
		return most / int64(w)
	}
	return min(weightless+most, math.MaxInt64-1)
}

// weightless is above every share of a queue that has a weight.
const weightless = int64(1) << 62

// part is a of b in units of 1<<-shareBits, saturated below weightless.
func part(a, b int64) int64 {
	switch {
	case a <= 0:
		return 0
	case b <= 0:
		return weightless - 1
	}
	hi, lo := bits.Mul64(uint64(a), 1<<shareBits)
	if hi >= uint64(b) {
		return weightless - 1
	}
	v, _ := bits.Div64(hi, lo, uint64(b))
	return int64(min(v, uint64(weightless-1)))
}

// contest is a queue with demand classes that are due, in it or below it.
type contest struct {
	queue    *queue
	parent   *contest
	place    int            // in rivals of parent
	due      []*demandClass // of this very queue, not evaluated yet, in static order
	path     *shortfall     // what keeps every request of this very queue from being granted
	rivals   rivals         // children, the one that is next first
	standing standing       // among its siblings, up to date where it has some
}

// next is the contest whose first class has the next turn, nil when nothing is due.
func (n *contest) next() *contest {
	for len(n.due) == 0 {
		if len(n.rivals) == 0 {
			return nil
		}
		n = n.rivals[0]
	}
	return n // a queue that has requests and children admits nothing: they are answered first
}

// stand has the queue stand as its next request would leave it.
func (n *contest) stand(next *contest) {
	r := next.due[0].requests[0]
	n.standing = n.queue.standing(r, r.delta)
}

// again lets a demand class take its next turn, if it still has requests.
func (n *contest) again(a *demandClass) {
	if len(a.requests) > 0 {
		n.due = insert(n.due, a, (*demandClass).first)
	}
}

// moved puts the queue and its ancestors in their places again, after what is charged there or what is next has changed.
func (n *contest) moved() {
	for ; n.parent != nil; n = n.parent {
		up := n.parent
		next := n.next()
		if next == nil {
			heap.Remove(&up.rivals, n.place)
			continue
		}
		if len(up.rivals) > 1 {
			n.stand(next)
			heap.Fix(&up.rivals, n.place)
		}
	}
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
	return last
}

// enter lets a queue and its ancestors take part in the tournament.
func (c *Core) enter(q *queue) *contest {
	if q.contest == nil {
		q.contest = &contest{queue: q}
		c.contests = append(c.contests, q.contest)
		if q.parent != nil {
			q.contest.parent = c.enter(q.parent)
			q.contest.parent.rivals.Push(q.contest)
		}
	}
	return q.contest
}

// begin puts all in their places.
func (n *contest) begin() {
	for _, c := range n.rivals {
		c.begin()
	}
	if len(n.rivals) > 1 {
		for _, c := range n.rivals {
			c.stand(c.next())
		}
		heap.Init(&n.rivals)
	}
}

// offer evaluates the demand classes that are due, in order, until the transaction is full, and answers whoever is new. What it costs
// grows with what is granted and what is new, and up to a bound with what is asked for differently, not with how many wait.
func (c *Core) offer(now time.Time, b *batch) {
	c.rebuildEarmarks(now)
	c.wake()
	leaves := c.leaves
	c.leaves = nil
	most := 0 // no scan before its time
	if len(leaves) > 0 && !now.Before(c.nextScan) {
		most = max(c.cfg.Asks/leastClasses, 2, min(c.cfg.Asks/mostClasses, c.cfg.Asks/len(leaves)))
	}
	c.behind = false
	for _, q := range leaves {
		q.listed = false
		due := q.collect(most, c.limitsVersion)
		if q.left > 0 {
			c.behind = true
			c.listLeaf(q)
		}
		if len(due) > 0 {
			slices.SortFunc(due, (*demandClass).first)
			n := c.enter(q)
			n.due, n.path = due, c.path(q)
		}
	}
	if c.behind && most > 0 {
		c.nextScan = now.Add(c.cfg.CommitEvery)
	}
	c.crowded = false
	if root := c.tree.root.contest; root != nil {
		root.begin()
		for n := root.next(); n != nil && len(b.ops) < c.cfg.BatchOps && !c.crowded; n = root.next() {
			c.take(now, b, n)
			n.moved()
		}
	}
	for _, n := range c.contests {
		for _, a := range n.due { // the transaction is full
			c.later(a)
		}
		n.queue.contest = nil
	}
	clear(c.contests)
	c.contests = c.contests[:0]
	c.answerNew(now)
}

// take evaluates the first demand class of a queue.
func (c *Core) take(now time.Time, b *batch, n *contest) {
	a := n.due[0]
	n.due = n.due[1:]
	r := a.requests[0]
	if r.gang.batch == b.id {
		c.later(a) // its key is in this transaction already
	} else if o := c.charged[r.gang.key.uid]; o != nil && o != r.gang { // charged since it asked: its queue was changed
		c.withdraw(r)
		c.refuseMoved(now, r.from, r.gang, o)
		n.again(a)
	} else if denied := c.judge(r, n.path); denied != nil {
		c.deny(now, a, *denied)
	} else if others := c.elsewhere(r.gang, r.pods); others > 0 { // charged since it asked
		c.withdraw(r)
		c.refuseElsewhere(now, r.from, r.gang, others, r.pods)
		n.again(a)
	} else if !b.fits(reservationBytes(r.gang.ref, r.demand, r.pods)+r.gang.res.claimBytes(), c.cfg.BatchBytes) {
		c.crowded = true // nobody passes it
		n.again(a)
	} else {
		c.grant(now, b, r)
		n.again(a)
	}
}
