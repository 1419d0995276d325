package coordinator

import (
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/fault"
)

// How long a queue has been short. A gang may have waited for hours before its queue becomes entitled to what it wants: another gang of the
// queue ends, or another queue's backlog, and fair shares change. Room often becomes free by itself then, so preemptionDelay counts from that
// moment on, and begins anew when the right was interrupted.
//
// It is the queue that is observed, and not each gang: of the gangs that wait only the first few are looked at in a Tick. For each resource of its
// threshold a queue keeps since when it has had at least so much less than that, as a staircase: what lacks longest is the least. That is the
// monotonic queue of a sliding-window minimum, for windows of all lengths. (Every gang has the preemptionDelay of its own leaf.)
//
// Tried and dropped: to count from the first denial alone. Who had waited for long evicted others in the moment in which one of its queue's own
// gangs ended, or a fair share moved (the package comment of bench/measure/fair has what that wasted).

// lasting is by how much a queue has been below its threshold, and since when: both grow from step to step.
type lasting []lastingStep

type lastingStep struct {
	since time.Time
	short int64 // at least, without a break; negative where it is above
}

// lastingSteps bounds how many steps are kept of a resource. Beyond, some rights count as younger than they are.
const lastingSteps = 32

// observe takes note of how much is short now.
func (l *lasting) observe(now time.Time, short int64) {
	steps, since := *l, now
	for n := len(steps) - 1; n >= 0 && steps[n].short >= short; n-- {
		since, steps = steps[n].since, steps[:n]
	}
	if len(steps) == lastingSteps { // those two are made one that are closest in time
		closest := 1
		for n := range steps[1:] {
			if gap := steps[n+1].since.Sub(steps[n].since); gap < steps[closest].since.Sub(steps[closest-1].since) {
				closest = n + 1
			}
		}
		steps = append(steps[:closest-1], steps[closest:]...)
	}
	*l = append(steps, lastingStep{since, short})
}

// since returns since when so much is short, without a break; now if it is not, as far as is known.
func (l lasting) since(now time.Time, short int64) time.Time {
	for _, step := range l {
		if step.short >= short {
			return step.since
		}
	}
	return now
}

// shortOf is what a queue lacks of one resource.
type shortOf struct {
	resource string
	lasting
}

// observe takes note of what the queue, and those below it, are short of their thresholds.
func (q *queue) observe(now time.Time) {
	if q.parent != nil {
		for n, threshold := range []api.Resources{q.deserved, q.threshold(true)} {
			q.short[n] = q.observeOf(now, threshold, q.short[n])
		}
	}
	for _, c := range q.children {
		c.observe(now)
	}
}

func (q *queue) observeOf(now time.Time, threshold api.Resources, short []shortOf) []shortOf {
	if len(short) != len(threshold) {
		short = short[:0]
	}
	for n, t := range threshold {
		switch {
		case n == len(short):
			short = append(short, shortOf{resource: t.Resource})
		case short[n].resource != t.Resource:
			short[n] = shortOf{resource: t.Resource}
		}
		short[n].observe(now, wide{}.plus(t.Value).sub(q.has(t.Resource)).amount())
	}
	return short
}

// entitledSince returns since when the queue, which is entitled to what an ask wants, has been so without a break.
func (q *queue) entitledSince(now time.Time, a ask, fair bool) (since time.Time) {
	short := q.short[0]
	if fair {
		short = q.short[1]
	}
	if fault.On(fault.WithoutLasting) {
		return since
	}
	for _, d := range a.uses() {
		for _, s := range short {
			if s.resource == d.Resource && d.Value > 0 {
				since = api.Later(since, s.since(now, a.adds(q, d.Resource)))
			}
		}
	}
	return since
}

// lackLooks is how many demand classes of a queue lackDeserved judges: the first in the queue's order.
const lackLooks = 8

// lackDeserved returns, of this queue and those below it, which lack what they deserve, and since when: a gang waits
// for quota that the queue, with it, deserves. Gangs that no node would take do not count. Of a path it is the lowest
// queue that deserves anything of what the gang uses which decides.
func (q *queue) lackDeserved(now time.Time) map[*queue]time.Time {
	lack := map[*queue]time.Time{}
	q.walk(func(leaf *queue) {
		if leaf.order.classes == nil {
			return
		}
		looks := lackLooks
		leaf.order.classes.Ascend(func(d *demandClass) bool {
			if at, since := d.requests[0].deservedAt(now); at != nil {
				if first, known := lack[at]; !known || since.Before(first) {
					lack[at] = since
				}
			}
			looks--
			return looks > 0
		})
	})
	return lack
}

// deservedAt returns the queue that lacks what it deserves because the request waits, and since when; nil if none does.
func (r *request) deservedAt(now time.Time) (*queue, time.Time) {
	if r.vain || r.lacking.IsZero() {
		return nil, time.Time{}
	}
	a := r.gang.ask()
	for q := r.queue; q.parent != nil; q = q.parent {
		if !usesAny(q.deserved, a.uses()) {
			continue
		}
		if !q.entitled(a, false) {
			break
		}
		return q, api.Later(r.lacking, q.entitledSince(now, a, false))
	}
	return nil, time.Time{}
}
