package coordinator

import (
	"slices"
	"time"
)

// The turn of those who wait: who is next (lines.go) is judged, and granted or denied.

// offer evaluates the demand classes that are due, in order, until the transaction is full or nobody who is left can be granted, and answers
// whoever is new. What it costs grows with what is granted and what is new, and up to a bound with what is asked for differently, not with
// how many wait.
func (c *Core) offer(now time.Time, b *batch) {
	c.rebuildEarmarks(now)
	for _, a := range c.postponed {
		if a.due && a.contest == nil {
			c.enter(a, &c.newcomers)
		}
	}
	clear(c.postponed)
	c.postponed = c.postponed[:0]
	c.wake()
	most := c.scan(now)
	c.barLowered(now)
	c.crowded = false
	c.reorder()
	for len(b.ops) < c.cfg.BatchOps && !c.crowded {
		n := c.next()
		if n == nil {
			break
		}
		c.take(now, b, n, most)
		c.reorder()
	}
	if c.behind = len(c.leaves)+len(c.spent) > 0; c.behind && !now.Before(c.nextScan) {
		c.nextScan = now.Add(c.cfg.CommitEvery)
	}
	c.answerNew(now)
}

// next is the contest whose first class has the next turn, nil when nobody who is due can be granted: of the first of each line that somebody
// is left in who might be, the one that the rules put first.
func (c *Core) next() *contest {
	c.openings = slices.DeleteFunc(c.openings, func(s *shortage) bool {
		s.open = s.suffices()
		return !s.open
	})
	firsts := c.firsts[:0]
	if n := c.newcomers.root.next(); n != nil {
		firsts = append(firsts, n)
	}
	for _, s := range c.openings {
		if n := s.line.root.next(); n != nil {
			firsts = append(firsts, n)
		}
	}
	c.firsts = firsts
	if len(firsts) == 0 {
		return nil
	}
	if len(firsts) > 1 {
		for i, n := range firsts {
			firsts[i] = c.earliest(n)
		}
	}
	return first(c.tree.root, firsts)
}

// earliest is the contest of the same queue, in a line that takes part, whose first class comes first in static order.
func (c *Core) earliest(n *contest) *contest {
	for _, o := range n.queue.order.contests {
		takesPart := o.line == &c.newcomers || slices.ContainsFunc(c.openings, func(s *shortage) bool { return o.line == &s.line })
		if takesPart && len(o.due) > 0 && !o.spent && o.due[0].first(n.due[0]) < 0 {
			n = o
		}
	}
	return n
}

// first is the one of some contests of a subtree that is the first in a tournament between them. All that are of one
// queue are the same. It reorders them.
func first(q *queue, of []*contest) *contest {
	if len(of) == 1 {
		return of[0]
	}
	for _, n := range of { // a queue that has requests and children: see contest.next
		if n.queue == q {
			return n
		}
	}
	var best *contest
	var stands standing
	for len(of) > 0 {
		child, same := of[0].queue.ancestor(q.level+1), 0
		for i, n := range of {
			if n.queue.ancestor(q.level+1) == child {
				of[i], of[same] = of[same], of[i]
				same++
			}
		}
		n := first(child, of[:same])
		r := n.due[0].requests[0]
		if s := child.standing(r, r.delta); best == nil || s.compare(stands) < 0 {
			best, stands = n, s
		}
		of = of[same:]
	}
	return best
}

// take evaluates the first demand class of a queue.
func (c *Core) take(now time.Time, b *batch, n *contest, most int) {
	a := n.due[0]
	r := a.requests[0]
	if r.gang.batch == b.id { // its key is in this transaction already
		c.rest(a)
		a.due = true
		c.postponed = append(c.postponed, a)
	} else if o := c.charged[r.gang.key.uid]; o != nil && o != r.gang { // charged since it asked: its queue was changed
		c.withdraw(r)
		c.refuseMoved(now, r.from, r.gang, o)
	} else if denied := c.judge(r, c.path(r.queue)); denied != nil {
		if a.woken {
			c.spend(n, most)
		}
		c.deny(now, a, *denied)
	} else if others := c.elsewhere(r.gang, r.pods); others > 0 { // charged since it asked
		c.withdraw(r)
		c.refuseElsewhere(now, r.from, r.gang, others, r.pods)
	} else if !b.fits(reservationBytes(r.gang.ref, r.demand, r.pods)+r.gang.res.claimBytes(), c.cfg.BatchBytes) {
		c.crowded = true // nobody passes it
	} else {
		c.grant(now, b, r)
	}
}
