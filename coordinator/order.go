package coordinator

import (
	"time"
)

// The turn of those who wait: who is next (lines.go) is judged, and granted or denied.

// offer evaluates the demand classes that are due, in order, until the transaction is full or nobody who is left can be granted, and answers
// whoever is new. What it costs grows with what is granted and what is new, and up to a bound with what is asked for differently, not with
// how many wait.
func (c *Core) offer(now time.Time, b *batch) {
	c.earmarks.rebuild(now)
	for _, a := range c.postponed {
		if a.due && a.contest == nil {
			c.turns.enter(a, &c.turns.newcomers)
		}
	}
	clear(c.postponed)
	c.postponed = c.postponed[:0]
	c.turns.wake()
	most := c.turns.scan(now, c.cfg.Asks, c.tree.version)
	c.barLowered(now)
	c.crowded = false
	c.turns.reorder()
	for len(b.ops) < c.cfg.BatchOps && !c.crowded {
		n := c.turns.next()
		if n == nil {
			break
		}
		c.take(now, b, n, most)
		c.turns.reorder()
	}
	c.turns.paces(now, c.cfg.CommitEvery)
	c.answerNew(now)
}

// take evaluates the first demand class of a queue.
func (c *Core) take(now time.Time, b *batch, n *contest, most int) {
	a := n.due[0]
	r := a.requests[0]
	if r.gang.batch == b.id { // its key is in this transaction already
		c.turns.rest(a)
		a.due = true
		c.postponed = append(c.postponed, a)
	} else if o := c.roster.other(r.gang); o != nil { // charged since it asked
		c.withdraw(r)
		c.refuseMoved(now, r.from, r.gang, o)
	} else if denied := c.judge(r, c.tree.path(r.queue)); denied != nil {
		if a.woken {
			c.turns.spend(n, most)
		}
		c.deny(now, a, *denied)
	} else if others := c.roster.elsewhere(r.gang, r.pods); len(others) > 0 { // charged since it asked
		c.withdraw(r)
		c.refuseElsewhere(now, r.from, r.gang, others, r.pods)
	} else if !b.fits(reservationBytes(r.gang.ref, r.demand, r.pods)+r.gang.res.claimBytes(), c.cfg.BatchBytes) {
		c.crowded = true // nobody passes it
	} else {
		c.grant(now, b, r)
	}
}
