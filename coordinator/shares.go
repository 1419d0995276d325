package coordinator

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"sort"
	"time"

	"basalt.dev/basalt/api"
)

// Fair shares. What a queue could have, if all that is charged and all that waits were divided anew: each child of a queue gets what it
// deserves or what it wants, whichever is less. The rest goes to those that want more, the children with the highest priority first,
// and among equals so that their dominant shares of it grow in proportion to their weights, until each has what it wants or a resource
// is used up. Children without a weight come after those that have one. From root down, for what a child gets is what its own children
// divide.
//
// Children of one priority want the vectors a_i above what they have; s_i is the dominant share of a_i, the largest part of the queue's
// limit over its resources. At the level x each of them has the part min(1, x w_i / s_i) of a_i. So each resource is used up at a level of
// its own, and who wants several resources goes on with those that are left.
//
// A fair share is a target: it depends on what is wanted, and not on who has it now. It is made again at most each fairEvery, and says in
// the meantime what was right a moment ago.

const fairEvery = 100 * time.Millisecond

// updateFair makes the fair shares again if they may have changed and it is time.
func (c *Core) updateFair(now time.Time) {
	if now.Before(c.nextFair) {
		return
	}
	c.nextFair = now.Add(fairEvery)
	c.tree.recompute()
	c.tree.root.fair = c.tree.root.pool
	c.tree.root.divide()
}

// underFair reports whether the queue has less than its fair share of each resource of which a request wants more.
func (q *queue) underFair(delta api.Resources) bool {
	for _, d := range delta {
		if fair, limited := q.fair.Get(d.Resource); limited && d.Value > 0 && q.has(d.Resource).amount() >= fair {
			return false
		}
	}
	return true
}

// wants is what the queue has of a resource, and what gangs in it wait for that freed quota can help.
func (q *queue) wants(resource string) int64 {
	wanted := max(0, q.charged.get(resource).add(q.asked.get(resource)).amount())
	if limit, limited := q.capability(resource); limited {
		wanted = min(wanted, limit)
	}
	return wanted
}

// shares are how much of what its parent has a queue wants and has, as its status says it.
type shares struct {
	wanted   api.Resources
	fair     api.Resources // of what is wanted
	weighted int32         // thousandths
}

func (s shares) equal(o shares) bool {
	return s.wanted.Equal(o.wanted) && s.fair.Equal(o.fair) && s.weighted == o.weighted
}

func (q *queue) shares() (s shares) {
	for _, a := range q.charged.amounts().Add(q.asked.amounts()) {
		wanted := q.wants(a.Resource)
		if wanted <= 0 {
			continue
		}
		s.wanted = append(s.wanted, api.Amount{Resource: a.Resource, Value: wanted})
		if fair, limited := q.fair.Get(a.Resource); limited && q.parent != nil {
			s.fair = append(s.fair, api.Amount{Resource: a.Resource, Value: fair})
		}
	}
	s.weighted = q.weighted(nil)
	return s
}

// weighted is the share by which the queue is compared with its siblings above what they deserve, with so much more than it has, in
// thousandths. It is not divided where the queue has no weight.
func (q *queue) weighted(more api.Resources) int32 {
	if q.parent == nil || len(q.parent.pool) == 0 {
		return 0
	}
	share := q.surplus(more)
	if share >= weightless {
		share -= weightless
	}
	return int32(min((share>>(shareBits-20)*1000+1<<19)>>20, weightedAtMost))
}

// weightedAtMost bounds a share that is shown: a parent that may have nothing makes it infinite.
const weightedAtMost = 1_000_000

// taker is a child as its fair share is found; its vectors have the order of the resources of the parent.
type taker struct {
	queue   *queue
	has     []int64 // its fair share so far
	more    []int64 // what it wants above
	level   int64   // at which it has all that it wants
	placing int64   // -priority, and children without a weight after all others of the same priority
}

// divide decides the fair shares of the children, of what the queue itself could have.
func (q *queue) divide() {
	if len(q.children) == 0 {
		return
	}
	pool := q.fair
	left := make([]int64, len(pool))
	for i := range pool {
		left[i] = max(0, pool[i].Value)
	}
	takers := make([]taker, len(q.children))
	for n, c := range q.children {
		t := taker{queue: c, has: make([]int64, len(pool)), more: make([]int64, len(pool))}
		for i, p := range pool {
			wanted := c.wants(p.Resource)
			t.has[i] = min(wanted, c.deserved.Value(p.Resource), left[i])
			t.more[i] = wanted - t.has[i]
			left[i] -= t.has[i]
			if t.more[i] > 0 {
				t.level = max(t.level, 1, part(t.more[i], p.Value))
			}
		}
		t.placing = -2 * int64(c.limits.priority())
		if w := c.limits.weight(); w > 0 {
			t.level = (t.level + int64(w) - 1) / int64(w)
		} else {
			t.placing++
		}
		takers[n] = t
	}
	slices.SortStableFunc(takers, func(a, b taker) int {
		return cmp.Or(cmp.Compare(a.placing, b.placing), cmp.Compare(a.level, b.level))
	})
	for from := 0; from < len(takers); {
		to := from + 1
		for to < len(takers) && takers[to].placing == takers[from].placing {
			to++
		}
		for i := range pool {
			left[i] -= fill(takers[from:to], i, left[i])
		}
		from = to
	}
	for _, t := range takers {
		fair := make(api.Resources, len(pool))
		for i := range pool {
			fair[i] = api.Amount{Resource: pool[i].Resource, Value: t.has[i]}
		}
		if t.queue.limits != nil {
			fair = lower(fair, t.queue.limits.capability)
		}
		t.queue.fair = fair
		t.queue.divide()
	}
}

// at is what the child gets of a resource at a level.
func (t *taker) at(resource int, level int64) int64 {
	if level >= t.level {
		return t.more[resource]
	}
	hi, lo := bits.Mul64(uint64(t.more[resource]), uint64(level))
	v, _ := bits.Div64(hi, lo, uint64(t.level)) // fits: level < t.level
	return int64(v)
}

// fill gives takers, who are in the order of their levels, their parts of what is left of a resource, and returns how much that is.
func fill(takers []taker, resource int, left int64) (given int64) {
	sum := func(level int64) wide {
		var w wide
		for n := range takers {
			w = w.plus(takers[n].at(resource, level))
		}
		return w
	}
	// The first of them that does not get all, by its level.
	n := sort.Search(len(takers), func(n int) bool { return sum(takers[n].level).amount() > left })
	level := int64(math.MaxInt64)
	if n < len(takers) {
		// Between two levels the sum is a straight line, but for rounding.
		var low, high int64 = 0, takers[n].level
		if n > 0 {
			low = takers[n-1].level
		}
		from, to := sum(low), sum(high)
		level = low + share(high-low, left-from.amount(), to.sub(from))
	}
	for n := range takers {
		part := min(takers[n].at(resource, level), left-given)
		takers[n].has[resource] += part
		given += part
	}
	for ; n < len(takers); n++ { // what was lost by rounding: 9 among three are 3 for each
		rest, among := left-given, int64(len(takers)-n)
		part := min(takers[n].more[resource]-takers[n].at(resource, level), rest/among+min(1, rest%among))
		takers[n].has[resource] += part
		given += part
	}
	return given
}
