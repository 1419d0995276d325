package home

import (
	"container/heap"
	"slices"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/shard/fair"
	"basalt.dev/basalt/shard/home/report"
)

// Waiting for capacity. A gang that found too little sleeps until a summary shows freed capacity or other nodes, and for longer
// after each search that fails. A gang that fits on no node sleeps until nodes come or change. How many gangs wake in a second is
// limited, and namespaces take turns.

// searchers are the gangs that look for room: who searches, and who sleeps until there may be some.
type searchers struct {
	*common
	census *census
	pacing *pacing
	shards *shards
	rules  *rules

	ready        readyQueue
	inFlight     int
	podsInFlight int
	sleepers     map[string]*gang
	lookAgain    time.Time            // when all sleepers may be looked through again
	wakes        fair.Queues[[]*gang] // whose sleep is over, and that wait for wakeTokens
	wakeTokens   fair.Tokens
}

// sleep is a pause that ends when a summary shows freed capacity or other nodes.
type sleep struct {
	room, nodes uint64
	early       time.Time // the gangs of best rank may be woken from then on
	notBefore   time.Time
	latest      time.Time // it ends then in any case; zero: only when nodes are added or change
}

// sleep puts a gang to sleep until capacity is freed, or with never until nodes change.
func (c *searchers) sleep(g *gang, never bool) {
	s := &g.search
	s.sleeps(&sleep{room: s.room, nodes: s.nodes})
	if s.room == 0 && s.nodes == 0 { // nothing was asked: summaries alone said so
		s.sleep.room, s.sleep.nodes = c.shards.room, c.shards.nodes
	}
	if never { // nodes change often where there are many, and seldom for this gang
		s.neverFor = min(max(2*s.neverFor, c.cfg.BackoffMin), c.cfg.RetryRoom)
		s.sleep.notBefore = c.now.Add(s.neverFor)
	} else {
		s.backoff = min(max(2*s.backoff, c.cfg.BackoffMin), c.cfg.BackoffMax)
		if s.sleep.notBefore = c.now.Add(s.backoff); !s.reordered(g) {
			s.sleep.early = c.now.Add(c.cfg.BackoffMin)
		}
		s.sleep.latest = c.now.Add(c.cfg.RetryRoom)
		if s.orders > 0 && g.state == holding && g.tally.placed == 0 { // further orders may do, without any sign of new room
			s.sleep.latest, s.reorder = s.sleep.notBefore, s.sleep.notBefore
		}
	}
	s.orders = 0
	s.fails()
	if !s.since.IsZero() && !c.now.Before(s.since.Add(c.cfg.BackoffMin)) { // not after one search: where many sleep, most have no more
		c.tellUnplaced(g, noRoom, sum(g.pick(waitsNowhere)))
	}
	c.freeSlot(g)
	c.sleepers[g.id] = g
	if !never {
		c.rules.sleepRuled(g)
	}
	if !c.asleep(g) {
		c.touch(g) // an edit of before the search ends it at once, and nothing else would have the gang looked at again
	}
}

// reordered reports whether the gang has tried other orders. Then it lets go of what it holds before it sleeps, which
// would wake it.
func (s *search) reordered(g *gang) bool { return s.order > 0 && !g.started && !g.isPod() }

// fails ends a search that found too little: further domains are tried in the next one.
func (s *search) fails() {
	s.round = nil
	s.count++
	for i := range s.levels {
		s.levels[i].areas = 0
	}
}

// pause puts a gang to sleep for a moment.
func (c *searchers) pause(g *gang) { c.pauseUntil(g, c.now.Add(c.cfg.AskAgain/4)) }

// pauseLonger puts a gang to sleep for a time that doubles so many times, up to the most.
func (c *searchers) pauseLonger(g *gang, first time.Duration, times int, most time.Duration) {
	c.pauseUntil(g, c.now.Add(min(first<<min(times, 8), most)))
}

// pauseUntil puts a gang to sleep until a time.
func (c *searchers) pauseUntil(g *gang, at time.Time) {
	g.search.sleeps(&sleep{room: c.shards.room, nodes: c.shards.nodes, notBefore: at, latest: at})
	c.sleepers[g.id] = g
}

func (c *searchers) wakeUp(g *gang) {
	g.search.sleeps(nil)
	delete(c.sleepers, g.id)
}

// wakesPerSecond is how many gangs wake in a second, however many sleep: each search costs messages to node shards and to the
// coordinator. Namespaces take turns; the best of all gangs are woken early (wakeSleepers).
const wakesPerSecond = 1000

// hasten ends a gang's wait for room as soon as it may search again: one of its pods is another than was searched for.
func (c *searchers) hasten(g *gang) {
	s := g.search.sleep
	switch {
	case s == nil:
		return
	case s.latest.IsZero(): // it does not wait for room
		s.nodes, c.shards.changed = c.shards.nodes-1, true
	default:
		s.room = c.shards.room - 1 // which only grows
	}
	c.touch(g)
}

// mayWake reports whether a gang whose sleep is over may wake now. If not, it is looked at again when its turn comes.
func (c *searchers) mayWake(g *gang) bool {
	s := &g.search
	switch {
	case s.line == paid:
		return true
	case c.wakes.Empty() && c.wakeTokens.Take(c.now):
		return true
	case s.line == notInLine:
		s.line = waitsInLine
		q := c.wakes.Of(g.name.Namespace)
		*q = append(*q, g)
	}
	return false
}

// wakeNext wakes gangs whose sleep is over, namespaces in turn.
func (c *searchers) wakeNext() {
	for q := c.wakes.Next(); q != nil; q = c.wakes.Next() {
		g := (*q)[0]
		s := &g.search
		valid := !g.dropped() && s.sleep != nil && c.over(s.sleep)
		if valid {
			if !c.wakeTokens.Take(c.now) {
				return
			}
			s.line = paid
			c.touch(g)
		} else {
			s.line = notInLine
		}
		(*q)[0] = nil
		if *q = (*q)[1:]; len(*q) == 0 {
			c.wakes.Rotate(true)
		} else if valid {
			c.wakes.Rotate(false)
		}
	}
}

// asleep reports whether a gang sleeps. A sleep that is over ends here.
func (c *searchers) asleep(g *gang) bool {
	s := g.search.sleep
	if s == nil {
		return false
	}
	if g.edits.line != notInLine && !c.pacing.limitRestarts(g) {
		c.wakeUp(g)
		return false
	}
	if !c.over(s) {
		if !s.latest.IsZero() {
			if c.now.Before(s.notBefore) {
				c.wakeAt(g, s.notBefore)
			} else {
				c.wakeAt(g, s.latest)
			}
		}
		return true
	}
	if !c.mayWake(g) {
		return true
	}
	c.wakeUp(g)
	return false
}

func (c *searchers) over(s *sleep) bool {
	switch {
	case s.nodes != c.shards.nodes:
		return !c.now.Before(s.notBefore)
	case s.latest.IsZero():
		return false
	}
	return !c.now.Before(s.latest) || s.room != c.shards.room && !c.now.Before(s.notBefore)
}

// wakeSleepers wakes a few of the gangs that may fit now, best first. The pause between two searches grows to spare node shards.
// The best gangs, with as many pods as may search at once, need not wait until it ends: where few gangs wait, capacity would be
// idle meanwhile.
//
// It examines all sleepers, the less often the more there are, and sorts only the best of them, so the cost does not grow with
// their number.
func (c *searchers) wakeSleepers() {
	c.feed()
	c.wakeNext()
	if !c.shards.changed || c.now.Before(c.lookAgain) {
		return
	}
	c.lookAgain = c.now.Add(time.Duration(len(c.sleepers)) * lookPerSleeper)
	c.shards.changed = false
	awake, asleep := best{most: 64}, best{most: c.cfg.InFlight}
	for _, g := range c.sleepers {
		switch s := g.search.sleep; {
		case c.over(s):
			if g.search.line != waitsInLine {
				awake.add(g)
			}
		case !s.early.IsZero() && s.room != c.shards.room && s.early.Before(s.notBefore):
			asleep.add(g)
		case s.latest.IsZero() && s.nodes != c.shards.nodes:
			c.shards.changed = true // not yet
		}
	}
	pods := c.podsInFlight
	for _, g := range asleep.sorted() {
		if pods += max(g.tally.charged, g.minCount()); pods > c.cfg.PodsInFlight {
			break
		}
		g.search.sleep.notBefore = g.search.sleep.early
		c.touch(g)
	}
	for _, g := range awake.sorted() {
		c.touch(g)
	}
	c.shards.changed = c.shards.changed || awake.full()
}

// lookPerSleeper is the pause between two examinations of all sleepers, for each of them: some 100 times what one costs.
const lookPerSleeper = 10 * time.Microsecond

// best keeps the best of many gangs, in a heap with the worst of those that it keeps on top.
type best struct {
	most  int
	gangs []*gang
}

func (b *best) Len() int           { return len(b.gangs) }
func (b *best) Less(i, j int) bool { return compareGangs(b.gangs[i], b.gangs[j]) > 0 }
func (b *best) Swap(i, j int)      { b.gangs[i], b.gangs[j] = b.gangs[j], b.gangs[i] }
func (b *best) Push(x any)         { b.gangs = append(b.gangs, x.(*gang)) }
func (b *best) Pop() any {
	g := b.gangs[len(b.gangs)-1]
	b.gangs = b.gangs[:len(b.gangs)-1]
	return g
}

func (b *best) full() bool { return len(b.gangs) >= b.most }

func (b *best) add(g *gang) {
	if !b.full() {
		heap.Push(b, g)
	} else if compareGangs(g, b.gangs[0]) < 0 {
		b.gangs[0] = g
		heap.Fix(b, 0)
	}
}

// sorted returns them, the best first, and keeps them.
func (b *best) sorted() []*gang {
	out := slices.Clone(b.gangs)
	slices.SortFunc(out, compareGangs)
	return out
}

// reject takes note that the API server rejected the Binding of a pod.
func (g *gang) reject(p *pod, now time.Time, words string) {
	x := &p.some().rejected
	x.rest(now, report.Rejected(words), rejectedAtOnce)
	if x.why != nil {
		if p.uncharge(); g.charge.claimed() {
			g.search.distrust.fails(now, x.why.Message, true, g.charge.attempt)
		}
	}
	g.search.drawOrder()
}

// triesAnew has a gang forget what the API server said: it was edited, or a pod of it.
func (g *gang) triesAnew(pods map[string]*pod) {
	for _, p := range pods {
		if p.few != nil {
			p.few.rejected = rejection{}
		}
	}
	if g.search.rejected.times > 0 {
		g.edits.ask()
	}
	g.search.rejected, g.search.distrust = rejection{}, distrust{}
}

// restAsWhole has a gang that is about to be undone rest if Bindings of it are rejected.
func (g *gang) restAsWhole(now time.Time, words report.Reason) {
	x := &g.search.rejected
	if words.None() || g.group == nil {
		*x = rejection{}
		return
	}
	x.owner, x.group = g.tally.rejected.Owner, g.group.Generation
	x.rest(now, &api.Refusal{Reason: words.Code, Message: words.Message}, 0)
}

// Slots bound how many gangs, and how many of their pods, search at once (Config.InFlight, Config.PodsInFlight). Gangs
// that wait for a slot get one in the order of their ranks.

func (g *gang) slot() bool { return g.search.slot != nil }

// readyQueue holds the gangs that wait for a slot.
type readyQueue []*gang

func (r readyQueue) Len() int { return len(r) }
func (r readyQueue) Less(i, j int) bool {
	a, b := wire.ToRank(r[i].charge.rank), wire.ToRank(r[j].charge.rank)
	if d := a.Compare(b); d != 0 {
		return d < 0
	}
	return r[i].id < r[j].id
}
func (r readyQueue) Swap(i, j int) { r[i], r[j] = r[j], r[i] }
func (r *readyQueue) Push(x any)   { *r = append(*r, x.(*gang)) }
func (r *readyQueue) Pop() any {
	old := *r
	x := old[len(old)-1]
	old[len(old)-1] = nil
	*r = old[:len(old)-1]
	return x
}

func (c *searchers) takeSlot(g *gang) bool {
	s := &g.search
	if g.slot() {
		return true
	}
	// The last gang that gets a slot may exceed the number of pods: no gang is passed over for its size.
	if c.inFlight >= c.cfg.InFlight || c.podsInFlight >= c.cfg.PodsInFlight {
		if !s.queued {
			s.queued = true
			heap.Push(&c.ready, g)
		}
		return false
	}
	s.slot = new(g.tally.charged)
	c.inFlight++
	c.podsInFlight += *s.slot
	return true
}

func (c *searchers) freeSlot(g *gang) {
	if g.slot() {
		c.inFlight--
		c.podsInFlight -= *g.search.slot
		g.search.slot = nil
		c.feed()
	}
}

// feed wakes the best of the gangs that wait for a slot, as many as there are slots.
func (c *searchers) feed() {
	gangs, pods := c.inFlight, c.podsInFlight
	for gangs < c.cfg.InFlight && pods < c.cfg.PodsInFlight && len(c.ready) > 0 {
		g := heap.Pop(&c.ready).(*gang)
		g.search.queued = false
		if !c.rules.barred(g) {
			gangs, pods = gangs+1, pods+g.tally.charged
		}
		c.touch(g)
	}
}

// hastenUnlike ends a gang's wait for room before pods are charged of which one is unlike those that found none.
func (c *searchers) hastenUnlike(g *gang, pods []*pod) {
	if g.search.sleep == nil {
		return
	}
	var slept classIndex
	for _, p := range g.pick(waitsNowhere) {
		slept.number(p.Class)
	}
	unlike := func(p *pod) bool { return p.gang == g && slept.find(p.Class) < 0 }
	if len(slept.list) > 0 && slices.ContainsFunc(pods, unlike) {
		c.hasten(g)
	}
}
