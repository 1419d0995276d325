package audit

import (
	"slices"
	"strconv"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

// queue is one queue's part of the sums: what is at and under it.
type queue struct {
	path       string
	limited    bool // a record of limits exists
	uid        string
	generation int64
	limits     api.Resources
	guarantee  api.Resources // as recorded, before cuts
	deserved   api.Resources // likewise
	weight     int32         // as recorded
	priority   int32
	policy     policy
	selector   string // in force, "" for none
	users      []*wire.UserLimit
	userMost   []api.Resources // by entry of users
	closed     bool
	admitted   int // reservations at and under it that are charged
	sums       []sum
	reserved   api.Resources // by reservations that are not forced
	forced     api.Resources
	bound      api.Resources // by unfinished pods of gangs with a reservation that is not forced

	// As of the revision judged before.
	prevLimits   api.Resources
	prevReserved api.Resources
	prevForced   api.Resources
	freed        api.Resources   // of prevForced, in this transaction
	rest         api.Resources   // by forced reservations, of what no bound pod explains
	cut          map[string]bool // the limit was lowered below what was charged
	relimited    bool            // its limits changed in the revision being judged
	excused      map[string]bool // above the limit because the limit was cut
	over         map[string]bool // bound is above, for the clearing of what lasts
}

// sum is what was charged to a queue, and below it, from a moment on.
type sum struct {
	from  time.Time
	words string
}

func (s *store) queue(path string) *queue {
	q := s.queues[path]
	if q == nil {
		q = &queue{path: path, policy: noPolicy, excused: map[string]bool{}, over: map[string]bool{}, cut: map[string]bool{}}
		s.queues[path] = q
	}
	return q
}

// says returns what a queue says that it deserves of a resource, at least its guarantee, and whether it says anything.
func (q *queue) says(name string) (amount int64, named bool) {
	guarantee, is := q.guarantee.Get(name)
	deserved, too := q.deserved.Get(name)
	return max(guarantee, deserved), is || too
}

// wants returns what a queue would have of its limits if it fitted, where its children would have so much together.
func (q *queue) wants(of amountOf, below int64) int64 {
	says, named := q.says(of.name)
	guarantee, is := q.guarantee.Get(of.name)
	switch {
	case of.deserved && named:
		return says
	case !of.deserved && is:
		return guarantee
	case named:
		return min(below, says)
	}
	return below
}

// words is a sum as a string, without zeros. Gangs that are charged as a resource are the same as those admitted.
func words(r api.Resources, gangs int) string {
	var b []byte
	for _, x := range r {
		if x.Value != 0 && x.Resource != api.ResourceGangs {
			b = append(b, x.Resource...)
			b = append(b, '=')
			b = strconv.AppendInt(b, x.Value, 36)
			b = append(b, ' ')
		}
	}
	return string(strconv.AppendInt(b, int64(gangs), 36))
}

// noteSum keeps what is charged now, and what was within the time given.
func (q *queue) noteSum(now time.Time, keep time.Duration) {
	q.sums = append(q.sums, sum{now, words(q.reserved.Add(q.forced), q.admitted)})
	old := 0
	for old+1 < len(q.sums) && now.Sub(q.sums[old+1].from) > keep {
		old++
	}
	q.sums = slices.Delete(q.sums, 0, old)
}

// hadSum reports whether the sum was so at some moment since the time given.
func (q *queue) hadSum(words string, since time.Time) bool {
	for i, s := range q.sums {
		if s.words == words && (i+1 == len(q.sums) || q.sums[i+1].from.After(since)) {
			return true
		}
	}
	return len(q.sums) == 0 && words == "0"
}

// countsGangs reports whether the limits of a queue name gangs, so that how many are charged matters.
func (s *store) countsGangs() bool {
	for _, q := range s.queues {
		_, limited := q.limits.Get(api.ResourceGangs)
		if _, named := q.says(api.ResourceGangs); limited || named {
			return true
		}
	}
	return false
}

func (s *store) guaranteed() bool {
	for _, q := range s.queues {
		if len(q.guarantee) > 0 {
			return true
		}
	}
	return false
}

// guaranteedBelow reports whether a queue below has a guarantee of a resource.
func (s *store) guaranteedBelow(path, name string) bool {
	for _, q := range s.queues {
		if q.guarantee.Value(name) > 0 && q.path != path && api.Under(q.path, path) {
			return true
		}
	}
	return false
}

func (s *store) unlimit(q *queue) {
	if q.selector != "" {
		s.restricted--
	}
	q.relimited = true
	q.limited, q.limits, q.guarantee, q.deserved = false, nil, nil, nil
	q.policy, q.selector, q.closed, q.users, q.userMost = noPolicy, "", false, nil, nil
}

// charge adds a reservation to the sums of its queue and of every ancestor, or takes it off.
func (s *store) charge(r *reservation, sign int64, touched map[*queue]bool) {
	for _, path := range api.Lineage(r.queue) {
		q := s.queue(path)
		touched[q] = true
		if r.isCharged() {
			q.admitted += int(sign)
		}
		to := &q.reserved
		if r.forced {
			to = &q.forced
			if sign < 0 {
				q.freed = q.freed.Add(r.charges())
			}
		}
		*to = add(*to, r.charges(), sign)
	}
}

// kept takes note of what a forced reservation has that it had already: it was not freed, and when it is not forced any
// more it is no growth of the others.
func (s *store) kept(old, r *reservation) {
	kept := old.charges().Sub(old.charges().Sub(r.charges()).Positive())
	for _, path := range api.Lineage(r.queue) {
		q := s.queue(path)
		if q.freed = q.freed.Sub(kept); !r.forced {
			q.prevReserved, q.prevForced = q.prevReserved.Add(kept), q.prevForced.Sub(kept)
		}
	}
}

func add(r, o api.Resources, sign int64) api.Resources {
	if sign < 0 {
		return r.Sub(o)
	}
	return r.Add(o)
}
