package coordinator

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/google/btree"

	"basalt.dev/basalt/api"
)

// Claims. A large gang among small ones would never find all its room at once, so after ClaimAfter a queue keeps what comes free
// for it. That is backfill without run times: nothing says when the running gangs end, so the schedule of EASY or conservative
// backfill cannot be made, and room kept for a gang that cannot start is room that nobody uses. Therefore a claim is bounded.
//
// In time: claims hold in windows. A window lasts ClaimFor or 2, 4 or 8 times that, in the order of the ruler sequence (1 2 1 4 1 2
// 1 8 ...), as the restarts of Luby, Sinclair and Zuckerman (1993) do where the run time of what one waits for is not known. After
// each window nothing is kept anywhere for ClaimRest, and whoever fits into free room is admitted in the usual order. The windows are
// those of the whole tree, not of a gang or a queue: whoever claims, in turns, under new names or with whatever priority, cannot make
// one begin earlier or last longer, and claims at several queues of a path cannot fill each other's pauses. So nobody for whom there
// is room waits longer for a claim than 8 times ClaimFor, and a gang gets its turn if what it needs comes free within that time. A
// gang whose window ended in vain goes behind others (claimOrder), and it is told when nothing is kept for it.
//
// In amount: against others than its own tenant, a namespace in a queue, no more is kept than half of a queue's capability, less what
// the tenant is charged. So who shares a queue with others can keep them from no more than half of it, and they do not notice while
// they use less than the other half. Against its own tenant the whole demand is kept: keeping just the missing part would let small
// gangs use up each bit that is freed.
//
// Tried and dropped: an end for each claim alone, for gangs that take turns keep the room for ever; a rest for each queue, for claims
// at a leaf and above it alternate; keeping half of what comes free, for it grows to all that is free while others run on.

// window is the time in which claims hold, or the rest after it. n counts windows since somebody claimed; 0 means that nobody does.
type window struct {
	n       int
	resting bool
	until   time.Time
}

const longestWindow = 3 // doublings of ClaimFor

// lasts is how long claims hold in a window.
func (cfg Config) lasts(n int) time.Duration {
	return cfg.ClaimFor << min(bits.TrailingZeros(uint(n)), longestWindow)
}

// turnWindow ends the window, or the rest after it, when its time has come.
func (c *Core) turnWindow(now time.Time) {
	w := &c.window
	switch {
	case w.n == 0 || now.Before(w.until):
	case !w.resting:
		*w = window{n: w.n, resting: true, until: now.Add(c.cfg.ClaimRest)}
		tried := map[*request]bool{}
		for _, q := range c.claimed {
			if r := q.claim; !tried[r] && r.slot >= 0 && r.demandClass != nil {
				tried[r] = true
				c.mayNotClaim(r)
				r.vain += c.cfg.lasts(w.n)
				c.mayClaim(r)
				c.makeDue(r.demandClass) // and told
			}
		}
		c.unclaim = true
	case len(c.oldLeaves) == 0:
		*w = window{}
	default:
		*w = window{n: w.n + 1, until: now.Add(c.cfg.lasts(w.n + 1))}
		c.unclaim = true
	}
}

// note tells a gang that room was kept for it in vain, "" when that is not so.
func (c *Core) note(r *request) string {
	if !c.window.resting || r.vain == 0 {
		return ""
	}
	return fmt.Sprintf("; quota was kept free for it for %v, others are admitted for %v before quota is kept free again", c.cfg.lasts(c.window.n), c.cfg.ClaimRest)
}

// keeps returns how much of a resource the queue keeps from a request for the one that claims room, of a capability of limit.
func (q *queue) keeps(resource string, limit int64, from *request) int64 {
	if q.claim == nil || from == nil || q.claim == from || !q.claim.before(from) {
		return 0
	}
	kept := max(0, q.claim.delta.Value(resource))
	if q.claim.tenant != from.tenant {
		kept = min(kept, max(0, api.AddSat(limit/2, -max(0, q.claim.tenant.charged.get(resource).amount()))))
	}
	return kept
}

// claimOrder is the order in which requests may claim room: the static order, where each window that ended in vain counts as if the
// request had come so much later. Small gangs get what they need at once, so a large one comes before those that came after it for
// most of its time, and large ones share the windows.
func (r *request) claimOrder(o *request) int {
	return cmp.Or(cmp.Compare(o.priority, r.priority), cmp.Compare(r.since+r.vain.Milliseconds(), o.since+o.vain.Milliseconds()), r.compare(o))
}

// oldest is the order of demand classes by the first request that may claim room.
func (a *demandClass) oldest(o *demandClass) int { return a.old[0].claimOrder(o.old[0]) }

// mayClaim and mayNotClaim keep queue.old, and Core.oldLeaves: the demand classes with requests that are old enough to claim room. What was kept for one is
// room, also when it comes again: it may ask for less then, or stand after others.
func (c *Core) mayClaim(r *request) {
	a, q := r.demandClass, r.queue
	if q.old == nil {
		q.old = btree.NewG(classDegree, func(a, b *demandClass) bool { return a.oldest(b) < 0 })
	}
	if q.old.Len() == 0 {
		c.oldLeaves = insert(c.oldLeaves, q, byPath)
	}
	if len(a.old) > 0 {
		q.old.Delete(a)
	}
	a.old = insert(a.old, r, (*request).claimOrder)
	q.old.ReplaceOrInsert(a)
	c.unclaim = true
}

func (c *Core) mayNotClaim(r *request) {
	a, q := r.demandClass, r.queue
	q.old.Delete(a)
	if a.old = remove(a.old, r, (*request).claimOrder); len(a.old) > 0 {
		q.old.ReplaceOrInsert(a)
	} else if q.old.Len() == 0 {
		c.oldLeaves = remove(c.oldLeaves, q, byPath)
	}
	c.unclaim = true
	for p := r.queue; p != nil; p = p.parent {
		if p.claim == r {
			c.roomAt(p)
		}
	}
}

func byPath(a, b *queue) int { return strings.Compare(a.path, b.path) }

// ageing is how many requests may claim room for the first time in one Tick.
const ageing = 1000

// age lets those claim room who lacked it for long enough.
func (c *Core) age(now time.Time) {
	n := 0
	for ; n < min(len(c.ageing), ageing) && now.Sub(c.ageing[n].lacking) >= c.cfg.ClaimAfter; n++ {
		if r := c.ageing[n]; r.slot >= 0 && !r.old {
			if r.old = true; r.demandClass != nil {
				c.mayClaim(r)
			}
		}
	}
	c.ageing = c.ageing[n:]
}

// settleClaims decides for which request each queue keeps room while a window lasts: the first, in claimOrder, of those old enough
// that lack room there or above. It is kept from its own queue up to the one that denied it, against all that come after it in the
// static order. One claim a queue is enough, for each becomes the first in time; more would close the queue for gangs that fit
// beside the first.
func (c *Core) settleClaims(now time.Time) {
	if !c.unclaim {
		return
	}
	c.unclaim = false
	for _, q := range c.claimed {
		q.claimed, q.claim = q.claim, nil
	}
	was := c.claimed
	c.claimed = nil
	if !c.window.resting {
		for _, a := range c.claimants() {
			c.claim(a)
		}
	}
	if c.window.n == 0 && len(c.claimed) > 0 {
		c.window = window{n: 1, until: now.Add(c.cfg.lasts(1))}
	}
	for _, q := range was {
		if q.claimed != q.claim {
			c.roomAt(q)
		}
		q.claimed = nil
	}
}

// claimants are the demand classes that may claim room, in claimOrder. Of a queue a few are enough: the first that lacks room somewhere claims
// it on the whole path up to there, and later ones only what is above.
func (c *Core) claimants() (out []*demandClass) {
	for _, q := range c.oldLeaves {
		looked, found := 0, 0
		q.old.Ascend(func(a *demandClass) bool {
			looked++
			if a.denied.waits() {
				found++
				out = append(out, a)
			}
			return looked < claimsLooked && found < claimsFound
		})
	}
	slices.SortFunc(out, func(a, b *demandClass) int { return cmp.Or(a.oldest(b), byPath(a.queue, b.queue)) })
	return out
}

const (
	claimsLooked = 256
	claimsFound  = 16
)

// claim lets the queues up to the one that denied a demand class keep room for it, but those that do for another.
func (c *Core) claim(a *demandClass) {
	for p := a.queue; p != nil && a.denied.waits(); p = p.parent {
		if p.claim == nil {
			p.claim = a.old[0]
			c.claimed = append(c.claimed, p)
		}
		if p == a.denied.queue {
			break
		}
	}
}
