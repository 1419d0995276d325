package coordinator

import (
	"slices"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

// ask is a gang that waits, as these rules see it.
type ask struct {
	queue    *queue
	tenant   *tenant       // nil where it does not matter
	demand   api.Resources // what it would be charged more
	has      api.Resources // what it is charged already: it lacks room, or asks for more
	priority int64
	lacked   api.Resources // of what the nodes have, as the record of its claim says; nil: what it lacks now
	leaves   []lack        // what leaves its side of a level first, before it takes something from the other side there
	mends    bool          // its gang has started, and has less than its minimum
	now      time.Time     // only what its queues have been entitled to for the preemptionDelay counts; zero: all
}

// uses are the resources that it is about.
func (a ask) uses() api.Resources {
	switch {
	case len(a.has) == 0:
		return a.demand
	case len(a.demand) == 0:
		return a.has
	}
	return a.has.Add(a.demand)
}

// holding is a gang that has quota.
type holding struct {
	queue    *queue
	amounts  api.Resources
	priority int64
	room     bool // the ask waits for its room
}

// lack is quota that is missing at a queue, or at root what the nodes are missing.
type lack struct {
	at       *queue
	resource string
	short    int64
}

// lacks returns what is missing for an ask, from its queue up. Nothing is short of it where only room is missing. Of
// what the nodes have it is no more than the ask demands: if they have become fewer, pods leave those that are gone,
// whoever starts.
func (a ask) lacks() (out []lack) {
	a.climb(func(p *queue, d api.Amount, short int64) {
		if p.gate != nil {
			short = max(short, a.shortOfNodes(p, d))
		}
		if short > 0 {
			out = append(out, lack{p, d.Resource, short})
		}
	})
	if len(out) == 0 && len(a.demand) == 0 {
		for _, u := range a.has { // any of it, anywhere
			if u.Value > 0 {
				out = append(out, lack{at: top(a.queue), resource: u.Resource})
			}
		}
	}
	return out
}

// climb calls f for each queue of the path, from the ask's own up, and each resource that it demands, with how much
// of the queue's capability is missing for it, once all that is decided has happened; 0 or less for nothing.
func (a ask) climb(f func(p *queue, d api.Amount, short int64)) {
	var few [8]wide
	more := few[:0] // by how much each queue of the path will hold more
	for _, d := range a.demand {
		more = append(more, wide{}.plus(d.Value))
	}
	for p := a.queue; p != nil; p = p.parent {
		for i, d := range a.demand {
			if d.Value <= 0 {
				continue
			}
			short := int64(0)
			if limit, limited := p.capability(d.Resource); limited {
				short = p.willUse(d, more[i]).plus(-limit).amount()
			}
			f(p, d, short)
			more[i] = p.willNeed(d.Resource, more[i])
		}
	}
}

// full returns the lowest queue of the path of which capability is missing, nil for none.
func (a ask) full() (at *queue) {
	a.climb(func(p *queue, _ api.Amount, short int64) {
		if at == nil && short > 0 {
			at = p
		}
	})
	return at
}

func (a ask) shortOfNodes(root *queue, d api.Amount) int64 {
	if a.lacked != nil {
		return a.lacked.Value(d.Resource)
	}
	limit, limited := root.gate.limit(d.Resource, a.tenant)
	if !limited {
		return 0
	}
	return min(d.Value, root.has(d.Resource).plus(d.Value).plus(-limit).amount())
}

// lacksOfNodes returns what it lacks of what the nodes have.
func (a ask) lacksOfNodes() (out api.Resources) {
	root := top(a.queue)
	for _, d := range a.demand {
		if short := a.shortOfNodes(root, d); d.Value > 0 && short > 0 {
			out = append(out, api.Amount{Resource: d.Resource, Value: short})
		}
	}
	return out
}

func top(q *queue) *queue {
	for q.parent != nil {
		q = q.parent
	}
	return q
}

// threshold is what a queue may have before its siblings may take something away: its fair share, if that is what is
// judged and it has a right to it, or else what it deserves.
func (q *queue) threshold(fair bool) api.Resources {
	if fair && q.byFairShare() {
		return q.fair
	}
	return q.deserved
}

// most is the larger of both.
func (q *queue) most() api.Resources { return q.deserved.Max(q.threshold(true)) }

// byFairShare reports whether the queue and its siblings take back their fair shares, too.
func (q *queue) byFairShare() bool {
	return q.parent.limits.policy().GetReclaim() == wire.Reclaim_RECLAIM_FAIR_SHARE
}

// entitled reports whether the queue stays within its threshold in all that it names and the ask uses, which is
// something.
func (q *queue) entitled(a ask, fair bool) bool {
	judged := false
	threshold := q.threshold(fair)
	for _, d := range a.uses() {
		limit, named := threshold.Get(d.Resource)
		if !named || d.Value <= 0 {
			continue
		}
		if judged = true; q.has(d.Resource).plus(a.adds(q, d.Resource)).amount() > limit {
			return false
		}
	}
	return judged
}

// entitlement names a threshold of a queue.
func entitlement(fair bool) string {
	if fair {
		return "has as its fair share"
	}
	return "deserves"
}

// right is 2 if the queue is entitled to what an ask wants by what it deserves, 1 by its fair share, 0 if it is not.
func (q *queue) right(a ask) int {
	switch {
	case q.entitled(a, false):
		return 2
	case q.byFairShare() && q.entitled(a, true):
		return 1
	}
	return 0
}

// adds is by how much the queue grows for an ask, without what leaves it for the same.
func (a ask) adds(q *queue, resource string) int64 {
	more := a.demand.Value(resource)
	for _, l := range a.leaves {
		if l.at == q && l.resource == resource {
			more -= l.short
		}
	}
	return more
}

// mayLose reports whether something may be taken from a queue by what it has: it is above its threshold, or has
// something that it does not name.
func (q *queue) mayLose(fair bool) bool {
	if q.members.admitted == 0 || q.limits.policy().GetKept() {
		return false
	}
	threshold := q.threshold(fair)
	for _, a := range q.charged {
		limit, named := threshold.Get(a.resource)
		if has := q.has(a.resource).amount(); has > 0 && (!named && (!api.IsCount(a.resource) || len(threshold) == 0) ||
			named && has > limit) {
			return true
		}
	}
	return false
}

// besideLose reports whether something may be taken from a queue beside this one.
func (q *queue) besideLose(fair bool) bool {
	return slices.ContainsFunc(q.parent.children, func(o *queue) bool { return o != q && o.mayLose(fair) })
}

// usesAny reports whether a threshold names something that is used.
func usesAny(threshold, uses api.Resources) bool {
	return slices.ContainsFunc(uses, func(a api.Amount) bool {
		_, named := threshold.Get(a.Resource)
		return named && a.Value > 0
	})
}
