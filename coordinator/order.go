package coordinator

import (
	"cmp"
	"container/heap"
	"math"
	"math/bits"
	"slices"
	"strings"
	"time"
)

// turn is whose turn it is in a queue. order is the one order in which room is offered: higher priority first, then the
// queue with the smallest share, then the older gang, then the lower UID. Fair shares, reclaim and backfill change this
// function and nothing else.
type turn struct {
	request *request
	share   int64 // of the request's queue
}

func (t turn) order(o turn) int {
	if c := cmp.Compare(o.request.priority, t.request.priority); c != 0 {
		return c
	}
	if c := cmp.Compare(t.share, o.share); c != 0 {
		return c
	}
	return cmp.Or(t.request.compare(o.request), strings.Compare(t.request.queue.path, o.request.queue.path))
}

// share of a queue in what it could have, in thousandths: the largest over the resources of charged over the smallest
// limit of its path. Queues that nothing limits are compared by the milli-CPUs they hold; they compete with nobody, for
// two queues that compete have a limited ancestor in common.
func (q *queue) share() int64 {
	if len(q.effective) == 0 {
		return q.charged.get("cpu").amount()
	}
	var most int64
	for _, limit := range q.effective {
		charged := q.charged.get(limit.Resource).amount()
		if charged <= 0 {
			continue
		}
		v := int64(math.MaxInt64)
		if hi, lo := bits.Mul64(uint64(charged), 1000); limit.Value > 0 && hi < uint64(limit.Value) {
			n, _ := bits.Div64(hi, lo, uint64(limit.Value))
			v = int64(min(n, math.MaxInt64))
		}
		most = max(most, v)
	}
	return most
}

// lineup holds the demand classes of one queue that are due and not evaluated yet, in static order.
type lineup struct {
	queue *queue
	due   []*demandClass
	turn  turn
	path  *shortfall // what keeps every request of the queue from being granted
}

type lineups []*lineup

func (h lineups) Len() int { return len(h) }

func (h lineups) Less(i, j int) bool { return h[i].turn.order(h[j].turn) < 0 }

func (h lineups) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

func (h *lineups) Push(x any) { *h = append(*h, x.(*lineup)) }

func (h *lineups) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// offer evaluates the demand classes that are due, in order, until the transaction is full, and answers whoever is new. What it costs grows
// with what is granted and what is new, and up to a bound with what is asked for differently, not with how many wait.
func (c *Core) offer(now time.Time, b *batch) {
	c.rebuildEarmarks(now)
	c.wake()
	leaves := c.leaves
	c.leaves = nil
	h := make(lineups, 0, len(leaves))
	most := 0 // no scan before its time
	if len(leaves) > 0 && !now.Before(c.nextScan) {
		most = max(c.cfg.Asks/leastClasses, 2, min(c.cfg.Asks/mostClasses, c.cfg.Asks/len(leaves)))
	}
	c.behind = false
	for _, q := range leaves {
		q.listed = false
		l := &lineup{queue: q, due: q.collect(most, c.limitsVersion)}
		if q.left > 0 {
			c.behind = true
			c.listLeaf(q)
		}
		if len(l.due) > 0 {
			slices.SortFunc(l.due, (*demandClass).first)
			l.path = c.path(q)
			l.turn = turn{l.due[0].requests[0], q.share()}
			h = append(h, l)
		}
	}
	if c.behind && most > 0 {
		c.nextScan = now.Add(c.cfg.CommitEvery)
	}
	heap.Init(&h)
	c.crowded = false
	for len(h) > 0 {
		l := h[0]
		if len(b.ops) >= c.cfg.BatchOps || c.crowded {
			for _, a := range l.due {
				c.later(a)
			}
			heap.Pop(&h)
			continue
		}
		a := l.due[0]
		l.due = l.due[1:]
		r := a.requests[0]
		if r.gang.batch == b.id {
			c.later(a) // its key is in this transaction already
		} else if o := c.charged[r.gang.key.uid]; o != nil && o != r.gang { // charged since it asked: its queue was changed
			c.withdraw(r)
			c.refuseMoved(now, r.from, r.gang, o)
			l.again(a)
		} else if denied := c.judge(r, l.path); denied != nil {
			c.deny(now, a, *denied)
		} else if n := c.elsewhere(r.gang, r.pods); n > 0 { // charged since it asked
			c.withdraw(r)
			c.refuseElsewhere(now, r.from, r.gang, n, r.pods)
			l.again(a)
		} else if !b.fits(reservationBytes(r.gang.ref, r.demand, r.pods), c.cfg.BatchBytes) {
			c.crowded = true // nobody passes it
			l.again(a)
			continue
		} else {
			c.grant(now, b, r)
			l.turn.share = l.queue.share()
			l.again(a)
		}
		if len(l.due) == 0 {
			heap.Pop(&h)
			continue
		}
		l.turn.request = l.due[0].requests[0]
		heap.Fix(&h, 0)
	}
	c.answerNew(now)
}

// again lets a demand class take its next turn, if it still has requests.
func (l *lineup) again(a *demandClass) {
	if len(a.requests) > 0 {
		l.due = insert(l.due, a, (*demandClass).first)
	}
}
