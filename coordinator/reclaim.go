package coordinator

import (
	"slices"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

// Who may be evicted for whom. A gang that waits for quota may take it from gangs that have it, by one of two rules:
//
//   - reclaim: from another queue, when its own side stays within its threshold and the other side is above its own.
//     Sides are the two children of the queue at which the paths to both leaves part; the threshold is what they
//     deserve. If that queue says so, their fair shares are a second one: who stays within what it deserves takes
//     from those who have more than they deserve, whatever their fair shares, for these say nothing of how much of it
//     is in pieces; who has more than that takes from those above their fair shares;
//   - preemption: from gangs of lower priority in its own queue, where the queue allows it.
//
// A gang may need victims of several levels, and its side of the upper one be entitled only once those of the lower
// one are gone, for they belong to that side. Then what these have to free is lacking, too (ask.after): the set as a
// whole leaves each of its sides within its threshold, and none of them can be left out.
//
// Where nobody may reclaim anything (queue.reclaims), a preemption may use what is idle, as any grant may.
//
// One set of victims is taken by one of the rules, never by both: what is taken from its own queue would make others look as if they were
// above their thresholds.
//
// All of it is judged by what queues have once all that is decided has happened: what is charged, without gangs that are on their way out,
// and with what was promised to others (queue.has). So nothing that is under way begins a second move. What is lacking is judged with what is
// kept for the guarantees of others, too (queue.willUse): else a gang that is entitled would wait for ever beside quota that is kept for
// others, and gangs would be evicted for one that guarantees bar.
//
// Judged are only resources that a gang uses and that a queue names. A side that is to be entitled must be so in all of these, also in
// those that nobody lacks: otherwise three gangs, each entitled in the resource that it lacks and above in another, evict each other
// for ever. A side that loses must be above in one of those that are lacking, if it names any of them. A gang of which its queue names
// nothing is borrowed altogether.
//
// Why queues do not take from each other in turn. Look at the queues of one level, and at the sum of what each of them has above its threshold.
// The claimant's side stays within, so it adds nothing; each victim's side was above, so the sum falls. It rises again only by grants above
// a threshold, and there are none in a resource that somebody lacks who may reclaim it (bars). Thresholds change only when gangs come or go,
// or an administrator edits. Preemptions in a queue make its list of priorities larger in lexicographic order.
//
// That is no proof where gangs use several resources: somebody who may reclaim nothing at present bars nobody. Evictions end because gangs take
// nothing from those who displaced them (displacement.go). TestReclaimEnds looks for a counterexample to both together, and finds those of
// the rules that were dropped.

// mayPreemptOthers reports whether gangs of its own queue might be taken: for further pods of one that has started, if
// its minimum lacks them.
func (a ask) mayPreemptOthers() bool {
	return a.queue.preempts() && (len(a.has) == 0 || len(a.demand) == 0 || a.mends)
}

// excess returns what has to leave the queue before it is entitled to what an ask wants, nil if it is never, or is
// already. It may be some of what is lacking only: else gangs would be evicted for the sake of what nobody lacks.
func (q *queue) excess(a ask, lacks []lack, fair bool) (out []lack) {
	threshold := q.threshold(fair)
	for _, d := range a.uses() {
		limit, named := threshold.Get(d.Resource)
		if !named || d.Value <= 0 {
			continue
		}
		if over := q.has(d.Resource).plus(a.demand.Value(d.Resource)).plus(-limit).amount(); over > 0 {
			if !slices.ContainsFunc(lacks, func(l lack) bool { return l.resource == d.Resource }) {
				return nil
			}
			out = append(out, lack{q, d.Resource, over})
		}
	}
	return out
}

// freesFirst returns what has to leave the queue, by one of its thresholds, before an ask may take something from its
// siblings, if that is covered; nil if not.
func (q *queue) freesFirst(a ask, lacks []lack, covered func([]lack) bool) []lack {
	for _, fair := range []bool{false, true} {
		first := q.excess(a, lacks, fair)
		if len(first) == 0 || !covered(first) {
			continue
		}
		if _, may := q.mayTake(a.freeing(first)); may {
			return first
		}
	}
	return nil
}

// freeing returns the ask with what leaves its sides for it, too.
func (a ask) freeing(first []lack) ask {
	a.leaves = slices.Concat(a.leaves, first)
	return a
}

// after returns the ask as it is judged with a set of victims, and what they have to free: where its side is not
// entitled to take from another one, some of them leave its own side first.
func (a ask) after(victims []holding, lacks []lack) (ask, []lack) {
	all := lacks
	for mine := a.queue.parent; mine != nil && mine.parent != nil; mine = mine.parent {
		takes := slices.ContainsFunc(victims, func(h holding) bool {
			return api.Under(h.queue.path, mine.parent.path) && !api.Under(h.queue.path, mine.path)
		})
		if _, may := mine.mayTake(a); may || !takes {
			continue
		}
		if first := mine.freesFirst(a, lacks, func(l []lack) bool { return a.covers(victims, l) }); len(first) > 0 {
			a, all = a.freeing(first), slices.Concat(all, first)
		}
	}
	return a, all
}

// reclaims reports whether the queues below this one may take something from each other.
func (q *queue) reclaims() bool {
	return q.limits.policy().GetReclaim() != wire.Reclaim_RECLAIM_NEVER &&
		slices.ContainsFunc(q.children, func(o *queue) bool { return len(o.most().Positive()) > 0 })
}

// above calls by for each resource that the holding uses and of which the queue is above its threshold, of those that are lacking if it names
// any of these. It reports whether the holding is borrowed: the queue names nothing that it uses.
func (q *queue) above(h holding, lacks []lack, fair bool, by func(resource string)) (borrowed bool) {
	threshold := q.threshold(fair)
	lacking := func(resource string) bool {
		return slices.ContainsFunc(lacks, func(l lack) bool { return l.resource == resource })
	}
	named, namesLacking := false, false
	for i := range h.amounts {
		a := &h.amounts[i]
		if _, is := threshold.Get(a.Resource); is && a.Value > 0 {
			named, namesLacking = true, namesLacking || lacking(a.Resource)
		}
	}
	for i := range h.amounts {
		a := &h.amounts[i]
		limit, is := threshold.Get(a.Resource)
		if is && a.Value > 0 && (!namesLacking || lacking(a.Resource)) && q.has(a.Resource).amount() > limit {
			by(a.Resource)
		}
	}
	return !named
}

// isAbove reports whether the holding is borrowed, or the queue above its threshold in something that counts.
func (q *queue) isAbove(h holding, lacks []lack, fair bool) (is bool) {
	return q.above(h, lacks, fair, func(string) { is = true }) || is
}

// frees reports whether a holding has something of what is lacking, where it is lacking.
func (h holding) frees(lacks []lack) bool {
	return slices.ContainsFunc(lacks, func(l lack) bool { return h.amounts.Value(l.resource) > 0 && api.Under(h.queue.path, l.at.path) })
}

// mayReclaim reports whether the holding of another queue may be taken, alone, for an ask.
func (a ask) mayReclaim(h holding, lacks []lack) bool {
	if h.queue == a.queue {
		return false
	}
	mine, other := apart(a.queue, h.queue)
	fair, may := mine.mayTake(a)
	return may && other.loses(h, lacks, fair)
}

// loses reports whether the holding, of the queue or one below it, has something of what is lacking, and every queue from its own up to
// this one is above its threshold.
func (q *queue) loses(h holding, lacks []lack, fair bool) bool {
	if !h.frees(lacks) {
		return false
	}
	for p := h.queue; ; p = p.parent {
		if p.limits.policy().GetKept() || !p.isAbove(h, lacks, fair) {
			return false
		}
		if p == q {
			return true
		}
	}
}

// mayPreempt reports whether the holding of the same queue may be taken, alone, for an ask.
func (a ask) mayPreempt(h holding, lacks []lack) bool {
	return h.queue == a.queue && h.priority < a.priority && h.frees(lacks)
}

// may reports whether a holding may be taken, alone, by one of the rules.
func (a ask) may(rule wire.Rule, h holding, lacks []lack) bool {
	if rule == wire.Rule_RULE_PREEMPT {
		return a.mayPreempt(h, lacks)
	}
	return a.mayReclaim(h, lacks)
}

// lawful judges a set of victims as a whole: that each may be taken by the rule, that all are needed, and that no queue that loses
// some falls further below its threshold than by less than its smallest victim, or below its guarantee. A victim whose room is needed is
// needed whatever quota it gives. So is one without which a preemption would free less than it has to (atLeast).
func (a ask) lawful(rule wire.Rule, victims []holding) bool {
	lacks := a.lacks()
	if len(lacks) == 0 || len(victims) == 0 {
		return false
	}
	needs := lacks
	switch rule {
	case wire.Rule_RULE_RECLAIM:
		a, lacks = a.after(victims, lacks)
		needs = lacks
	case wire.Rule_RULE_PREEMPT:
		for _, x := range a.atLeast() {
			needs = append(needs, lack{a.queue, x.Resource, x.Value})
		}
	}
	for _, h := range victims {
		if !a.may(rule, h, lacks) {
			return false
		}
	}
	if !a.covers(victims, lacks) || !a.irreducible(victims, needs) {
		return false
	}
	if rule == wire.Rule_RULE_PREEMPT {
		return a.borrowsNoMore(victims)
	}
	return a.leavesEnough(victims, lacks)
}

// borrowsNoMore reports whether a preemption leaves no queue of its path with more above its threshold than it has, nor with more that is
// borrowed altogether. Without that, who preempts a small gang for a large one takes idle room, too, which others then reclaim; and one
// that borrows all that it uses would put one out that is entitled, which comes back at the expense of others. The number of pods is nothing
// that is borrowed, unless a queue limits it: two small pods may take the place of a large one.
func (a ask) borrowsNoMore(victims []holding) bool {
	for q := a.queue; q.parent != nil; q = q.parent {
		if !q.parent.reclaims() {
			continue // nobody takes it back
		}
		threshold := q.threshold(true)
		borrows := !usesAny(threshold, a.demand)
		for _, d := range a.demand {
			limit, named := threshold.Get(d.Resource)
			if d.Value <= 0 || !named && (!borrows || q.isFree(d.Resource)) {
				continue
			}
			more := wide{}.plus(d.Value)
			for _, h := range victims {
				if !borrows || !usesAny(threshold, h.amounts) {
					more = more.plus(-h.amounts.Value(d.Resource))
				}
			}
			if more.amount() > 0 && (borrows || q.has(d.Resource).add(more).amount() > limit) {
				return false
			}
		}
	}
	return true
}

// atLeast is how much a preemption has to free so that no queue of the path has more above its threshold than before.
func (a ask) atLeast() (out api.Resources) {
	for _, d := range a.demand {
		most := int64(0)
		for q := a.queue; q.parent != nil; q = q.parent {
			threshold := q.threshold(true)
			limit, named := threshold.Get(d.Resource)
			switch {
			case !q.parent.reclaims(), !named && q.isFree(d.Resource):
			case !usesAny(threshold, a.demand):
				most = d.Value
			case named:
				most = max(most, min(d.Value, q.has(d.Resource).plus(d.Value).plus(-limit).amount()))
			}
		}
		if most > 0 {
			out = append(out, api.Amount{Resource: d.Resource, Value: most})
		}
	}
	return out
}

// isFree reports whether anybody may borrow as much of a resource as he likes: that is so of pods and gangs, which
// every gang has, where no queue above limits them.
func (q *queue) isFree(resource string) bool {
	if !api.IsCount(resource) {
		return false
	}
	_, limited := q.parent.effective.Get(resource)
	return !limited
}

// covers reports whether the victims free all that is lacking.
func (a ask) covers(victims []holding, lacks []lack) bool {
	for i, freed := range freedBy(victims, lacks) {
		if freed.amount() < lacks[i].short {
			return false
		}
	}
	return true
}

// irreducible reports whether no victim can be left out, but for those whose room is needed.
func (a ask) irreducible(victims []holding, lacks []lack) bool {
	freed := freedBy(victims, lacks)
	return !slices.ContainsFunc(victims, func(h holding) bool {
		for i, l := range lacks {
			if api.Under(h.queue.path, l.at.path) && freed[i].plus(-h.amounts.Value(l.resource)).amount() < l.short {
				return false
			}
		}
		return !h.room
	})
}

// freedBy is what the victims free of each of what is lacking.
func freedBy(victims []holding, lacks []lack) []wide {
	freed := make([]wide, len(lacks))
	for i, l := range lacks {
		for _, h := range victims {
			if api.Under(h.queue.path, l.at.path) {
				freed[i] = freed[i].plus(h.amounts.Value(l.resource))
			}
		}
	}
	return freed
}

// leavesEnough judges what is left to the queues that lose something.
func (a ask) leavesEnough(victims []holding, lacks []lack) bool {
	type loss struct {
		freed    sums
		smallest map[string]int64
		by       map[string]bool
		fair     bool
	}
	losses := map[*queue]*loss{}
	for _, h := range victims {
		mine, other := apart(a.queue, h.queue)
		fair, _ := mine.mayTake(a)
		for q := h.queue; ; q = q.parent {
			l := losses[q]
			if l == nil {
				l = &loss{smallest: map[string]int64{}, by: map[string]bool{}, fair: fair}
				losses[q] = l
			}
			if q.above(h, lacks, fair, func(resource string) { l.by[resource] = true }) {
				l.by[""] = true
			}
			for _, amount := range h.amounts {
				if amount.Value <= 0 {
					continue
				}
				freed := l.freed.at(amount.Resource)
				*freed = freed.plus(amount.Value)
				if s, known := l.smallest[amount.Resource]; !known || amount.Value < s {
					l.smallest[amount.Resource] = amount.Value
				}
			}
			if q == other {
				break
			}
		}
	}
	for q, l := range losses {
		threshold := q.threshold(l.fair)
		enough := l.by[""]
		for name := range l.by {
			if name != "" && q.has(name).sub(l.freed.get(name)).plus(l.smallest[name]).amount() > threshold.Value(name) {
				enough = true
			}
		}
		if !enough {
			return false
		}
		for _, freed := range l.freed {
			if q.has(freed.resource).sub(freed.wide).amount() < q.kept(freed.resource) {
				return false
			}
		}
	}
	return true
}

// bars reports whether an ask of another queue has to wait because this one has a better right to a resource that
// both want. What is free goes to this one first, if that is enough for it. If not, and it may reclaim the rest,
// nobody may borrow meanwhile of what it lacks: what becomes free would be gone bit by bit.
func (a ask) bars(o ask, lacks []lack) bool {
	if a.queue == o.queue {
		return false
	}
	mine, other := apart(a.queue, o.queue)
	if mine.right(a) <= other.right(o) {
		return false
	}
	if len(lacks) == 0 {
		return slices.ContainsFunc(mine.parent.pool, func(limit api.Amount) bool {
			return a.demand.Value(limit.Resource) > 0 && o.demand.Value(limit.Resource) > 0
		})
	}
	return slices.ContainsFunc(lacks, func(l lack) bool { return o.demand.Value(l.resource) > 0 && api.Under(o.queue.path, l.at.path) })
}

// mayTake reports whether the queue may take back what an ask wants, and whether by its fair share: not if what it
// deserves will do.
func (q *queue) mayTake(a ask) (fair, may bool) {
	right := q.right(a)
	lasts := func(fair bool) bool {
		return a.now.IsZero() || !a.now.Before(q.entitledSince(a.now, a, fair).Add(a.queue.preemptionDelay()))
	}
	switch {
	case right == 0 || q.parent.limits.policy().GetReclaim() == wire.Reclaim_RECLAIM_NEVER:
		return false, false
	case right == 2 && lasts(false):
		return false, true
	}
	may = q.byFairShare() && q.entitled(a, true) && lasts(true)
	return may, may
}
