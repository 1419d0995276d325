package coordinator

import (
	"fmt"
	"math"
	"time"

	"basalt.dev/basalt/api/wire"
)

// Backfill. What is kept free for a gang that has waited long (earmarks.go) lies idle until it is enough. Where gangs
// say how long they run, it need not: by their ends it is known when the gang could start at the earliest, and who has
// left by then may have what is kept meanwhile. So short gangs pass a large one without delaying it. That is backfill
// (Lifka 1995) by the ends of gangs alone. An earmark lasts as long as ever, stands against whom it stood, and promises
// no start.
//
// Now and then the gangs that have earmarks are given places in a timetable: each the first time at which it fits
// beside all that run then and those before it. Until then, less the time until somebody looks again, it lends. Where
// a gang without a limit would have to end first, the time is not known, and nothing is lent: as if nobody had a
// limit.
//
// A limit ends nobody, and lies are no advantage for long. Who runs past its limit has no end that is known, so once
// such gangs have what an earmark needs, it lends nothing.
//
// Figures, of TestDays: six days of three queues with 4 % large gangs; minutes for which large and small gangs wait,
// how many of the 265 large ones never started, and the cores in use. Limits are twice the time that gangs run.
//
//	load 0.85          large  never  small     use   whole nodes: large  never  small     use
//	without earmarks     201     66    4.7  78.5 %                  264     83    1.8  73.9 %
//	without limits       205     68   16.2  76.7 %                  315    101    8.9  71.7 %
//	with limits          178     54    4.5  78.2 %                  259     82    2.5  73.6 %
//
// Where the gangs of one queue say 80 seconds, whatever they run, large ones of the others wait 204 and 261, and small
// ones 5.0 and 3.1. At a load of 1.0, large ones wait as long with limits as without (342 and 331, 429 and 435), and
// small ones 8 for 26, 4 for 17.
//
// Tried and dropped, as they moved nothing or made large gangs wait longer: to lend as well to who fits beside the
// gang at its start (184 and 277 minutes on four days, for 140 and 269); to keep windows open while starts are known
// (175 and 272); to plan each gang beside none of the others; to lend nothing to a tenant one of whose gangs runs past
// its limit. To tell gangs when they may expect to start by such a timetable was dropped, too: with exact limits, one
// in five statements was within a quarter of what was left, because nothing holds a start.

// lookAgainEvery is how often it is found out until when earmarks lend.
const lookAgainEvery = 10 * standingsFor

// backfill is what was found out.
type backfill struct {
	next  time.Time
	lends []*request // that have an earmark, and lend
}

// look finds out until when is lent what queues keep that are marked.
func (b *backfill) look(now time.Time, o *roster, marked []*queue, claims []*claim) {
	none := o.limited == 0 || len(marked) == 0
	if now.Before(b.next) || none && len(b.lends) == 0 {
		return
	}
	b.next = now.Add(lookAgainEvery)
	was := map[*request]bool{}
	for _, r := range b.lends {
		was[r], r.lends = true, 0
	}
	if b.lends = nil; none {
		return
	}
	t, placed := byEnds(now, o.ledger.tree.root, marked, claims), map[*request]bool{}
	for _, q := range marked {
		r := q.order.earmark
		if placed[r] {
			continue
		}
		placed[r] = true
		ms := r.gang.lasts(now)
		slot := t.first(r.queue, r.tenant, r.delta, ms)
		if slot == never {
			continue
		}
		t.stay(r.queue, r.delta, slot, ms)
		if r.lends = max(0, t.begins(slot)-lookAgainEvery.Milliseconds()); r.lends == 0 {
			continue
		}
		if b.lends = append(b.lends, r); !was[r] {
			o.ledger.turns.freedAt(q)
		}
	}
}

// byEnds is the timetable of what is charged, and promised to claims.
func byEnds(now time.Time, root *queue, marked []*queue, claims []*claim) *timetable {
	var ask []*queue
	for _, q := range marked {
		ask = append(ask, q.order.earmark.queue)
	}
	for _, x := range claims {
		if x.gang.res != nil {
			ask = append(ask, x.gang.res.queue)
		}
	}
	t := newTimetable(root, ask)
	root.walk(func(q *queue) {
		for _, g := range q.members.reserved {
			r := g.res
			if len(r.condemned) > 0 && !r.closing {
				if ms := r.leavesBy() - now.UnixMilli(); ms > 0 {
					t.leave(q, sumOf(r.condemned), ms)
				}
			}
			if ms, known := r.leavesIn(now); known {
				t.leave(q, r.stays(), ms)
			}
		}
	})
	for _, x := range claims {
		if g := x.gang; g.res != nil && g.res.claim == x {
			t.stay(g.res.queue, x.promised, 0, g.lasts(now))
		}
	}
	return t
}

// leavesIn is in how many ms a gang will have left, as far as that is known.
func (r *reservation) leavesIn(now time.Time) (ms int64, known bool) {
	at := r.pastLimit()
	switch {
	case r.closing && r.overdue:
		return 0, false
	case r.closing:
		at = max(r.leavesBy(), now.UnixMilli()+1)
	}
	return at - now.UnixMilli(), at > now.UnixMilli() && at != math.MaxInt64
}

// lasts is for how many ms a gang has what it waits for once it has it, math.MaxInt64 if that is not known. What grows
// ends with the rest.
func (g *gang) lasts(now time.Time) int64 {
	switch r := g.req; {
	case g.res != nil && !g.res.demand.IsZero():
		if ms, known := g.res.leavesIn(now); known {
			return ms
		}
	case r != nil && r.runs > 0:
		return r.runs
	}
	return math.MaxInt64
}

// ends is the slot in which a gang is past its limit if it has now what it waits for. An edit does not count for one
// that is charged already.
func (r *request) ends() int {
	runs := r.runs
	if res := r.gang.res; res != nil && res.granted != 0 {
		runs = res.runs
	}
	if runs == 0 {
		return never
	}
	return slotAt(runs)
}

// isLent reports whether a gang may have what is kept for another.
func (r *request) isLent(mark *request) bool {
	return mark.lends > 0 && r.term < never && slotStarts[r.term] <= mark.lends
}

// lent says within how many ms of its grant a gang has to be past its limit, so that it is lent what is kept from it;
// or why that is lent to nobody. Nothing is said where nothing is kept from it, or where nobody has a limit.
func (r *request) lent(limited int) (ms int64, never string) {
	l := r.demandClass.lastDenial()
	if l == nil || l.reason != wire.DenyReason_DENY_RESERVED_FOR_OLDER || limited == 0 {
		return 0, ""
	}
	if mark := l.queue.order.earmark; mark != nil {
		ms = slotStarts[slotAt(mark.lends+1)-1]
	}
	if ms == 0 {
		never = "gangs without a limit, or past it, would have to end first, or it may be enough any moment"
	}
	return ms, never
}

// lendsFor says for how long what is kept for a gang is lent, "" for not at all.
func (r *request) lendsFor() string {
	if r.lends == 0 {
		return ""
	}
	return fmt.Sprintf(", and lends it for %v", (time.Duration(r.lends) * time.Millisecond).Round(time.Second))
}
