package coordinator

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"time"

	"basalt.dev/basalt/api"
)

// Fair shares. What a queue could have, if all that is charged and all that waits were divided again: each child of a
// queue gets what it deserves or what it wants, whichever is less. The rest goes to those that want more, the children
// with the highest priority first, and among equals so that their dominant shares of it grow in proportion to their
// weights, until each has what it wants or a resource is used up. Children without a weight come after those that have
// one. From root down, because what a child gets is what its own children divide.
//
// Children of one priority want the vectors a_i above what they have; s_i is the dominant share of a_i, the largest
// part of the queue's limit over the resources that they lack: of which they want more together than is left. At the
// level x each of them has the part min(1, x w_i / s_i) of a_i. So each resource is used up at a level of its own,
// and who wants several resources goes on with those that are left. What nobody lacks costs nobody anything, so it
// makes no share larger: everybody gets what he wants of it.
//
// A share is rounded down, and what is left over by that is nobody's: of 5 GPUs two equal queues have 2 each as their
// fair shares, and the fifth belongs to whoever came first. Were it given to one of them, it would change hands for
// nothing.
//
// A fair share is a target: it depends on what is wanted, and not on who has it now. It is made again at most each fairEvery, and says in
// the meantime what was right a moment ago.

const fairEvery = 100 * time.Millisecond

// updateFair makes the fair shares again if they may have changed and it is time.
func (t *tree) updateFair(now time.Time) {
	if now.Before(t.nextFair) {
		return
	}
	t.nextFair = now.Add(fairEvery)
	t.recompute()
	t.root.fair = t.root.pool
	t.root.divide()
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

// wants is what the queue has of a resource, and what gangs in it wait for that freed quota can help, as far as its
// capability and those of the queues below allow.
func (q *queue) wants(resource string) int64 {
	wanted := q.charged.get(resource).add(q.asked.get(resource))
	for _, c := range q.children {
		if c.charged.get(resource) != (wide{}) || c.asked.get(resource) != (wide{}) {
			wanted = wanted.sub(c.charged.get(resource)).sub(c.asked.get(resource)).plus(c.wants(resource))
		}
	}
	if limit, limited := q.capability(resource); limited {
		return max(0, min(wanted.amount(), limit))
	}
	return max(0, wanted.amount())
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
	has     []int64  // its fair share so far
	more    []int64  // what it wants above
	rate    []uint64 // how fast it takes of each resource, in parts of the parent's limit
	placing int64    // -priority, and children without a weight after all others of the same priority
}

// divide decides the fair shares of the children, of what the queue itself could have.
func (q *queue) divide() {
	if len(q.children) == 0 {
		return
	}
	fair := q.fair
	left := make([]int64, len(fair))
	for i := range fair {
		left[i] = max(0, fair[i].Value)
	}
	takers := make([]taker, len(q.children))
	for n, c := range q.children {
		t := taker{queue: c, has: make([]int64, len(fair)), more: make([]int64, len(fair)), rate: make([]uint64, len(fair))}
		for i, p := range fair {
			wanted := c.wants(p.Resource)
			t.has[i] = min(wanted, c.deserved.Value(p.Resource), left[i]) // all of them together deserve no more than there is
			t.more[i] = wanted - t.has[i]
			left[i] -= t.has[i]
		}
		if t.placing = -2 * int64(c.limits.priority()); c.limits.weight() == 0 {
			t.placing++
		}
		takers[n] = t
	}
	slices.SortStableFunc(takers, func(a, b taker) int { return cmp.Compare(a.placing, b.placing) })
	for from := 0; from < len(takers); {
		to := from + 1
		for to < len(takers) && takers[to].placing == takers[from].placing {
			to++
		}
		q.pace(takers[from:to], left)
		for i := range fair {
			left[i] = max(0, left[i]-fill(takers[from:to], i, left[i]))
		}
		from = to
	}
	for _, t := range takers {
		has := make(api.Resources, len(fair))
		for i := range fair {
			has[i] = api.Amount{Resource: fair[i].Resource, Value: t.has[i]}
		}
		if t.queue.limits != nil {
			has = lower(has, t.queue.limits.capability)
		}
		t.queue.fair = has
		t.queue.divide()
	}
}

// pace decides how fast children of one priority take of each resource: by their weights of the one of which they
// want the largest part of the queue's limit, among those that they lack, and of the others in proportion to what
// they want.
func (q *queue) pace(takers []taker, left []int64) {
	lacked := make([]bool, len(left))
	for i := range left {
		var sum wide
		for n := range takers {
			sum = sum.plus(takers[n].more[i])
		}
		lacked[i] = sum.amount() > left[i]
	}
	for _, t := range takers {
		parts := make([]int64, len(left))
		dominant := int64(1)
		for i, f := range q.fair {
			if limit, _ := q.pool.Get(f.Resource); lacked[i] && limit > 0 {
				parts[i] = part(t.more[i], limit)
				dominant = max(dominant, parts[i])
			}
		}
		weight := uint64(max(1, min(t.queue.limits.weight(), math.MaxUint16)))
		for i := range left {
			hi, lo := bits.Mul64(uint64(parts[i]), 1<<paceBits)
			rate, _ := bits.Div64(hi, lo, uint64(dominant)) // fits: parts[i] <= dominant
			t.rate[i] = weight * max(1, rate)
		}
	}
}

// paceBits is how finely paces are compared: 1<<paceBits is that of a child of weight 1 for its dominant resource.
const paceBits = 32

// fill gives takers their parts of what is left of a resource, and returns how much that is: weighted max-min
// fairness, by water-filling.
func fill(takers []taker, resource int, left int64) (given int64) {
	var order []*taker
	total := uint64(0)
	for n := range takers {
		if t := &takers[n]; t.more[resource] > 0 {
			order = append(order, t)
			total += t.rate[resource]
		}
	}
	slices.SortStableFunc(order, func(a, b *taker) int { // who has all that he wants first
		hi, lo := bits.Mul64(uint64(a.more[resource]), b.rate[resource])
		ohi, olo := bits.Mul64(uint64(b.more[resource]), a.rate[resource])
		return cmp.Or(cmp.Compare(hi, ohi), cmp.Compare(lo, olo))
	})
	whole := left
	for _, t := range order {
		part := min(t.more[resource], portion(whole, t.rate[resource], total))
		if t.has[resource] += part; part == t.more[resource] {
			whole, total = whole-part, total-t.rate[resource] // the others divide the rest
		}
		given += part
	}
	return given
}

// portion is the part rate of total of an amount, rounded down, but for what rounding of rates has taken: 3 of 9 are
// not 2.999.
func portion(amount int64, rate, total uint64) int64 {
	if amount <= 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(amount), rate)
	v, rest := bits.Div64(hi, lo, total) // fits: rate <= total
	if rest >= total-total>>10 {
		v++
	}
	return int64(min(v+v>>30, uint64(amount)))
}

// surplus is the dominant share of what the queue would have above what it deserves, of the limits of its parent,
// divided by its weight. Where nothing limits the parent, siblings compete for nothing, and are compared by their
// milli-CPUs.
func (q *queue) surplus(more api.Resources) (most int64) {
	var pool api.Resources
	if q.parent != nil {
		pool = q.parent.pool
	}
	above := func(resource string) int64 {
		return max(0, q.has(resource).plus(more.Value(resource)).plus(-q.deserved.Value(resource)).amount())
	}
	for _, limit := range pool {
		most = max(most, part(above(limit.Resource), limit.Value))
	}
	if len(pool) == 0 {
		most = min(above("cpu"), weightless-1)
	}
	if w := q.limits.weight(); w > 0 {
		return most / int64(w)
	}
	return min(weightless+most, math.MaxInt64-1)
}

// weightless is above every share of a queue that has a weight.
const weightless = int64(1) << 62

// shareBits is how finely shares are compared: 1<<shareBits is the whole.
const shareBits = 44

// part is a of b in units of 1<<-shareBits, saturated below weightless.
func part(a, b int64) int64 {
	switch {
	case a <= 0:
		return 0
	case b <= 0:
		return weightless - 1
	}
	hi, lo := bits.Mul64(uint64(a), 1<<shareBits)
	if hi >= uint64(b) {
		return weightless - 1
	}
	v, _ := bits.Div64(hi, lo, uint64(b))
	return int64(min(v, uint64(weightless-1)))
}
