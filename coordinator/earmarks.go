package coordinator

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/google/btree"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/fault"
)

// Earmarks. A large gang among small ones would never find all its quota free at once. So after EarmarkAfter, a queue
// keeps what is freed for it: an earmark. Mostly nothing says when the running gangs end, so the schedule of EASY or
// conservative backfill cannot be computed, and quota kept for a gang that cannot start is quota that nobody uses.
// Therefore an earmark is bounded. Where all that would have to end for it says how long it runs, what is kept is lent
// meanwhile (backfill.go).
//
// In time: earmarks are in force in windows. A window lasts EarmarkFor, or 2, 4 or 8 times that, in the order of the
// ruler sequence (1 2 1 4 1 2 1 8 ...), as the restarts of Luby, Sinclair and Zuckerman (1993) do where the run time of
// what is waited for is not known. After each window nothing is kept anywhere for as long, and every gang that fits is
// admitted in the usual order: quota is kept for no more than half of the time. The windows belong to the whole tree,
// not to a gang or a queue. So no tenant can make one begin earlier or last longer, by taking turns, by new names or by
// any priority, and earmarks at several queues of a path cannot fill each other's pauses. A gang that fits waits for an
// earmark no longer than 8 times EarmarkFor, and a gang gets its turn if what it needs is freed within that time. A
// gang whose window passed unused goes behind others (earmarkOrder), and it is told when nothing is kept for it.
//
// Against gangs of other queues an earmark stands only while its queue comes first by the rules of lines.go: it takes
// no queue's share.
//
// In amount: against other tenants (a tenant is a namespace in a queue), no more is kept than half of a queue's capability, less what
// the tenant is charged. So a tenant can keep the others of its queue from no more than half of it, and they do not notice while they
// use less than the other half. Against its own tenant the whole demand is kept: keeping only the missing part would let small gangs
// use up each bit that is freed.
//
// Tried and dropped: an end for each earmark alone, for gangs that take turns keep the quota for ever; a pause for each queue, for
// earmarks at a leaf and above it alternate; keeping half of what is freed, for it grows to all that is free while others run on.

// window is the time during which earmarks are in force, or the pause after it. n counts the windows since the first earmark; 0 means
// that there is none.
type window struct {
	n       int
	resting bool
	until   time.Time
}

const longestWindow = 3 // doublings of EarmarkFor

// earmarks says for whom each queue keeps quota free, and who may be next. Which queue keeps what stands in queueOrder.
type earmarks struct {
	turns           *tournament
	after, shortest time.Duration // Config.EarmarkAfter, EarmarkFor

	window window
	aging  []*request // denied for lack of quota, by the time of the first denial
	leaves []*queue   // that have candidates, by path
	at     []*queue   // that keep quota free
	due    bool       // to be decided again
}

// lasts returns how long earmarks are in force in the n-th window, and how long the pause after it is.
func (e *earmarks) lasts(n int) time.Duration {
	return e.shortest << min(bits.TrailingZeros(uint(n)), longestWindow)
}

// turn ends the window, or the pause after it, when its time has come.
func (e *earmarks) turn(now time.Time) {
	w := &e.window
	switch {
	case w.n == 0 || now.Before(w.until) || !w.resting && fault.On(fault.EndlessEarmark):
	case !w.resting:
		*w = window{n: w.n, resting: true, until: now.Add(e.lasts(w.n))}
		tried := map[*request]bool{}
		for _, q := range e.at {
			if r := q.order.earmark; !tried[r] && r.slot >= 0 && r.demandClass != nil {
				tried[r] = true
				e.drop(r)
				r.unusedFor += e.lasts(w.n)
				e.add(r)
				e.turns.makeDue(r.demandClass) // and told
			}
		}
		e.due = true
	case len(e.leaves) == 0:
		*w = window{}
	default:
		*w = window{n: w.n + 1, until: now.Add(e.lasts(w.n + 1))}
		e.due = true
	}
}

// note tells a gang that quota was kept for it and it did not start, "" when that is not so.
func (e *earmarks) note(r *request) string {
	if !e.window.resting || r.unusedFor == 0 {
		return ""
	}
	return fmt.Sprintf("; quota was kept free for it for %v, others are admitted for as long "+
		"before quota is kept free again", e.lasts(e.window.n))
}

// keeps returns how much of a resource a queue keeps from the request for the one that has its earmark, of a
// capability of limit. What it lends is not kept.
func (from *request) keeps(q *queue, resource string, limit int64) int64 {
	mark := q.order.earmark
	if mark == nil || mark == from || from.isLent(mark) || !mark.standsAgainst(from) {
		return 0
	}
	kept := max(0, mark.delta.Value(resource))
	if mark.tenant != from.tenant {
		kept = min(kept, max(0, api.AddSat(limit/2, -max(0, mark.tenant.charged.get(resource).amount()))))
	}
	return kept
}

// standsAgainst reports whether what is kept for r is kept from o: in their own queue, when o comes after it in the
// static order; in different queues, unless the queue of o comes first by the rules of lines.go, judged by what both
// have now. So an earmark does not take from anybody's share, and still a gang that is larger than the share of its
// queue gets its turn, for its queue has little while the gang waits.
func (r *request) standsAgainst(o *request) bool {
	if r.queue == o.queue {
		return r.before(o)
	}
	a, b := apart(r.queue, o.queue)
	return a.standing(r, nil).compareQueues(b.standing(o, nil)) <= 0
}

// earmarkOrder is the order in which requests of one queue get earmarks: the static order, where each window that
// passed unused counts as if the request had come so much later. Small gangs get what they need at once, so a large one
// comes before those that came after it for most of its time, and large ones share the windows. So they do where the
// queue's expression orders them: who left less of them unused goes first, whatever the expression says. Otherwise one
// that finds no room would keep the earmark for ever.
func (r *request) earmarkOrder(o *request) int {
	return cmp.Or(cmp.Compare(o.priority, r.priority), cmp.Compare(r.unusedInOrder(), o.unusedInOrder()),
		cmp.Compare(r.order, o.order), cmp.Compare(r.earmarkSince(), o.earmarkSince()), r.compare(o))
}

func (r *request) unusedInOrder() time.Duration {
	if !r.ordered {
		return 0
	}
	return r.unusedFor
}

func (r *request) earmarkSince() int64 { return r.since + r.unusedFor.Milliseconds() }

// oldest is the order of demand classes by the first candidate of each.
func (a *demandClass) oldest(o *demandClass) int {
	return a.candidates[0].earmarkOrder(o.candidates[0])
}

// add and drop keep the candidates of queues: the requests that were denied for long enough to get an earmark. What
// was kept for one that is dropped is free for others, also when it comes back: it may ask for less then, or stand
// after others.
func (e *earmarks) add(r *request) {
	a, q := r.demandClass, r.queue
	if q.order.candidates == nil {
		q.order.candidates = btree.NewG(classDegree, func(a, b *demandClass) bool { return a.oldest(b) < 0 })
	}
	if q.order.candidates.Len() == 0 {
		e.leaves = insert(e.leaves, q, byPath)
	}
	if len(a.candidates) > 0 {
		q.order.candidates.Delete(a)
	}
	a.candidates = insert(a.candidates, r, (*request).earmarkOrder)
	q.order.candidates.ReplaceOrInsert(a)
	e.due = true
}

func (e *earmarks) drop(r *request) {
	a, q := r.demandClass, r.queue
	q.order.candidates.Delete(a)
	if a.candidates = remove(a.candidates, r, (*request).earmarkOrder); len(a.candidates) > 0 {
		q.order.candidates.ReplaceOrInsert(a)
	} else if q.order.candidates.Len() == 0 {
		e.leaves = remove(e.leaves, q, byPath)
	}
	e.due = true
	for p := r.queue; p != nil; p = p.parent {
		if p.order.earmark == r {
			e.turns.freedAt(p)
		}
	}
}

func byPath(a, b *queue) int { return strings.Compare(a.path, b.path) }

// agingPerTick is how many requests may become candidates for an earmark in one Tick.
const agingPerTick = 1000

// age makes those requests candidates that have been denied for EarmarkAfter.
func (e *earmarks) age(now time.Time) {
	n := 0
	for ; n < min(len(e.aging), agingPerTick) && now.Sub(e.aging[n].lacking) >= e.after; n++ {
		if r := e.aging[n]; r.slot >= 0 && !r.candidate {
			if r.candidate = true; r.demandClass != nil {
				e.add(r)
			}
		}
	}
	e.aging = e.aging[n:]
}

// rebuild decides for which request each queue keeps quota while a window lasts: the first candidate that lacks quota
// there or above, first among those of children that have less than their fair share. It is kept from its own queue
// up to the one that denied it, against all that come after it in the static order. One earmark a queue is enough,
// for each candidate becomes the first in time; more would close the queue for gangs that fit beside the first.
func (e *earmarks) rebuild(now time.Time) {
	if !e.due {
		return
	}
	e.due = false
	for _, q := range e.at {
		q.order.formerEarmark, q.order.earmark = q.order.earmark, nil
	}
	was := e.at
	e.at = nil
	if !e.window.resting && len(e.leaves) > 0 && !fault.On(fault.WithoutEarmarks) {
		e.turns.tree.updateFair(now)
		candidates := e.chosen()
		for _, a := range candidates {
			e.put(a, true)
		}
		for _, a := range candidates {
			e.put(a, false)
		}
	}
	if e.window.n == 0 && len(e.at) > 0 {
		e.window = window{n: 1, until: now.Add(e.lasts(1))}
	}
	for _, q := range was {
		if q.order.formerEarmark != q.order.earmark {
			e.turns.freedAt(q)
		}
		q.order.formerEarmark = nil
	}
}

// chosen are the demand classes that may get an earmark: of one queue in earmarkOrder, of different queues by age, for
// priorities count in one queue only. A few of each queue are enough: the first that
// lacks quota somewhere gets an earmark on the whole path up to there, and later ones only above it.
func (e *earmarks) chosen() (out []*demandClass) {
	turn := map[*demandClass]int64{} // the age by which it comes, not before those of its queue that come first
	for _, q := range e.leaves {
		looked, all, found := map[string]int{}, 0, 0 // by namespace: one would hide others
		latest := int64(math.MinInt64)
		q.order.candidates.Ascend(func(a *demandClass) bool {
			n := looked[a.namespace]
			all++
			if looked[a.namespace]++; n < candidatesLooked && a.denied.waits() {
				found++
				latest = max(latest, a.candidates[0].earmarkSince())
				turn[a] = latest
				out = append(out, a)
			}
			return found < candidatesFound && all < 8*candidatesLooked &&
				(n < candidatesLooked || len(looked) < len(q.members.tenants))
		})
	}
	slices.SortStableFunc(out, func(a, b *demandClass) int { return cmp.Compare(turn[a], turn[b]) })
	return out
}

const (
	candidatesLooked = 256
	candidatesFound  = 16
)

// put lets the queues up to the one that denied a demand class keep quota for it, except those that keep it for
// another; with under, only those where it comes from a child that has less than its fair share.
func (e *earmarks) put(a *demandClass, under bool) {
	var child *queue
	for p := a.queue; p != nil && a.denied.waits(); child, p = p, p.parent {
		if p.order.earmark == nil && (!under || child == nil || child.underFair(a.delta)) {
			p.order.earmark = a.candidates[0]
			e.at = append(e.at, p)
		}
		if p == a.denied.queue {
			break
		}
	}
}
