package home

import (
	"cmp"
	"container/heap"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1alpha1"
	"basalt.dev/basalt/api/wire"
)

// Looking for room: one round asks node shards one after another for what is still without a hold, this process's own
// shard first, then those with the most room. Each is asked for no more than its last summary says it has, less what was
// asked of it since: what a shard refuses is work for nothing, and a gang that crosses shards would be refused something at
// each but the last. Where that is too little, the shard says in its answer what it has now.
//
// Summaries are slightly out of date, and do not count what a gang of better rank may take. So a gang for which they show too
// little requests a little more than they show, now and then: one pod of each class, and twice as many each time that all of it
// was granted.
//
// A round that did not find enough is retried with backoff, once some shard announces that capacity was freed. Gangs search in
// the order of their ranks, a limited number at a time.
//
// A gang keeps its partial holds meanwhile, because where pods come and go, its capacity accumulates bit by bit. But it keeps
// them only while it finds more than it ever had: a gang that sits on partial holds starves gangs that could start with that
// capacity. The one patient gang is the exception.

// search is how a gang looks for room.
type search struct {
	touched map[api.Incarnation]bool // shards that may have something of the gang
	slot    bool                     // one of Config.InFlight
	pods    int                      // that it was taken for, counted in Core.podsInFlight
	queued  bool                     // in Core.ready

	since    time.Time // when this search began, zero when none goes on
	round    *round
	room     uint64 // Core.room and Core.nodes when the last round began
	nodes    uint64
	backoff  time.Duration
	neverFor time.Duration // backoff of a gang that no node would take
	sleep    *sleep
	inLine   bool // in Core.wakes
	gaveUp   bool // further pods found no room and are not charged while it sleeps
	mendBy   time.Time

	most   int       // holds that it had at once,
	gained time.Time // and when it had so many for the first time

	tried      time.Time // when more than summaries say was asked for last,
	triedNodes uint64    // and Core.nodes then
	words      string    // what shards said when they last refused something
}

func (s *search) rest() {
	s.since, s.backoff, s.neverFor, s.mendBy, s.gaveUp, s.most = time.Time{}, 0, 0, time.Time{}, false, 0
}

func (g *gang) slot() bool { return g.search.slot }

// round asks each shard for what it says it has, once or until it says that there is no more, and where it tries, for more
// until it refuses some.
type round struct {
	asked   map[api.Incarnation]bool
	done    map[api.Incarnation]bool // and did not say that there is more
	refused map[api.Incarnation]bool // refused something, or did not answer
	trying  bool                     // more than summaries say is asked for,
	more    map[api.Incarnation]int  // so many pods of each class next
	last    api.Incarnation          // asked last,
	rest    []*pod                   // for these in further messages, each of which has an answer of its own
	short   bool                     // it has too little as far as we know
	shard   api.Incarnation          // that has not answered, "" for none
	open    open
	body    *wire.HoldRequest
	pods    []*pod       // of body
	fresh   []kind       // those of them that had no hold there
	classes []*api.Class // of body
	never   classCount   // of shards where not even an empty node would take a pod of the class
	words   []string     // what shards said
	silent  bool         // one did not answer
}

// sleep ends with a sign of new room, or of new nodes.
type sleep struct {
	room, nodes uint64
	early       time.Time // the best of those who sleep may be woken from then on
	notBefore   time.Time
	latest      time.Time // zero: only nodes that came, or take more than before, end it
	turn        bool      // it is over, and the gang may wake
}

// summary is what a node shard last said of itself.
type summary struct {
	said                       *wire.Summary
	allocatable, free, largest api.Resources

	// What is left of it, without what was asked for since.
	left api.Resources
	room map[uint64]int64 // pods by hash of their class, of those that the shard counted

	asking []*gang // that asked for something since, or before and have no answer
}

// take notes that pods were asked for of what the summary says.
func (s *summary) take(kinds []kind) {
	for _, k := range kinds {
		n, hash := int64(len(k.pods)), k.class.Hash()
		s.left = s.left.Sub(times(k.class.Requests, n)).Positive()
		if room, counted := s.room[hash]; counted {
			s.room[hash] = max(0, room-n)
		}
	}
}

// share returns those of some pods that a shard has room for as far as its summary tells, those first of which it has least
// room. Of another shard than this one it leaves an eighth: its own gangs have taken some since.
func (s *summary) share(kinds []kind, own bool) (pods []*pod) {
	keep := func(n int64) int64 {
		if own {
			return n
		}
		return n - n/8
	}
	type part struct {
		kind
		most int64
	}
	parts := make([]part, 0, len(kinds))
	for _, k := range kinds {
		p := part{k, math.MaxInt64}
		if room, counted := s.room[k.class.Hash()]; counted {
			p.most = keep(room)
		}
		parts = append(parts, p)
	}
	slices.SortStableFunc(parts, func(a, b part) int { return cmp.Compare(a.most, b.most) })
	left := s.left
	for _, p := range parts {
		if n := min(int64(len(p.pods)), p.most, keep(often(p.class.Requests, left))); n > 0 {
			pods = append(pods, p.pods[:n]...)
			left = left.Sub(times(p.class.Requests, n))
		}
	}
	return pods
}

// often returns how many times requests go into so much free room.
func often(requests, free api.Resources) int64 {
	n := int64(math.MaxInt64)
	for _, a := range requests {
		if a.Value > 0 {
			n = min(n, max(0, free.Value(a.Resource))/a.Value)
		}
	}
	return n
}

func times(r api.Resources, n int64) api.Resources {
	out := r.Clone()
	for i := range out {
		out[i].Value = api.MulSat(out[i].Value, n)
	}
	return out
}

// kind is pods of one class.
type kind struct {
	class *api.Class
	pods  []*pod
}

// kindsOf sorts pods by class, in the order of the first of each.
func kindsOf(pods []*pod) (kinds []kind) {
	var index classIndex
	for _, p := range pods {
		i, fresh := index.number(p.Class)
		if fresh {
			kinds = append(kinds, kind{class: p.Class})
		}
		kinds[i].pods = append(kinds[i].pods, p)
	}
	return kinds
}

func (c *Core) onSummary(from api.Incarnation, m *wire.Summary) {
	s := &summary{said: m}
	var errs [3]error
	s.allocatable, errs[0] = wire.ToResources(m.GetAllocatable())
	s.free, errs[1] = wire.ToResources(m.GetFree())
	s.largest, errs[2] = wire.ToResources(m.GetLargest())
	for _, err := range errs {
		if err != nil {
			return
		}
	}
	old := c.summaries[from]
	if c.table != nil && !c.table.Has(from) {
		return
	}
	s.left, s.room = s.free, make(map[uint64]int64, len(m.GetRoom()))
	for _, r := range m.GetRoom() {
		if !r.GetMore() {
			s.room[r.GetPodClass()] = int64(r.GetPods())
		}
	}
	if old != nil { // what is not answered is not counted in it: answers and summaries come in their order
		for _, g := range old.asking {
			if r := g.search.round; !g.dropped && r != nil && r.shard == from && !slices.Contains(s.asking, g) {
				s.take(r.fresh)
				s.asking = append(s.asking, g)
			}
		}
	}
	c.summaries[from] = s
	if old == nil || m.GetRoomVersion() != old.said.GetRoomVersion() {
		c.room++
		c.roomGrew = true
	}
	if old == nil || m.GetNodes() != old.said.GetNodes() || !s.allocatable.Equal(old.allocatable) || !s.largest.Equal(old.largest) ||
		m.GetNodesVersion() != old.said.GetNodesVersion() || m.GetTableEpoch() != old.said.GetTableEpoch() {
		c.nodes++
		c.nodesMoved = true
	}
}

// sleep has a gang wait for room, or with never for other nodes.
func (c *Core) sleep(g *gang, never bool) {
	s := &g.search
	s.sleep = &sleep{room: s.room, nodes: s.nodes}
	if s.room == 0 && s.nodes == 0 { // nothing was asked: summaries alone said so
		s.sleep.room, s.sleep.nodes = c.room, c.nodes
	}
	if never { // nodes change often where there are many, and seldom for this gang
		s.neverFor = min(max(2*s.neverFor, c.cfg.BackoffMin), c.cfg.RetryRoom)
		s.sleep.notBefore = c.now.Add(s.neverFor)
	} else {
		s.backoff = min(max(2*s.backoff, c.cfg.BackoffMin), c.cfg.BackoffMax)
		s.sleep.early, s.sleep.notBefore = c.now.Add(c.cfg.BackoffMin), c.now.Add(s.backoff)
		s.sleep.latest = c.now.Add(c.cfg.RetryRoom)
	}
	s.round = nil
	c.freeSlot(g)
	c.sleepers[g.id] = g
	c.asleep(g)
}

func (c *Core) wakeUp(g *gang) {
	g.search.sleep = nil
	delete(c.sleepers, g.id)
}

// wakesPerSecond is how many gangs wake in a second, however many sleep: each search costs messages to node shards and to the
// coordinator. Namespaces take turns; the best of all gangs are woken early (wakeSleepers).
const wakesPerSecond = 1000

// mayWake reports whether a gang whose sleep is over may wake now. If not, it is looked at again when its turn comes.
func (c *Core) mayWake(g *gang) bool {
	s := &g.search
	switch {
	case s.sleep.turn:
		return true
	case c.wakes.Empty() && c.wakeTokens.take(c.now):
		return true
	case !s.inLine:
		s.inLine = true
		q := c.wakes.Of(g.namespace)
		*q = append(*q, g)
	}
	return false
}

// wakeNext gives their turns to gangs whose sleep is over.
func (c *Core) wakeNext() {
	for q := c.wakes.Next(); q != nil; q = c.wakes.Next() {
		g := (*q)[0]
		s := &g.search
		valid := !g.dropped && s.sleep != nil && c.over(s.sleep)
		if valid {
			if !c.wakeTokens.take(c.now) {
				return
			}
			s.sleep.turn = true
			c.touch(g)
		}
		s.inLine = false
		(*q)[0] = nil
		if *q = (*q)[1:]; len(*q) == 0 {
			c.wakes.Rotate(true)
		} else if valid {
			c.wakes.Rotate(false)
		}
	}
}

// asleep reports whether a gang is to wait longer, and asks to be woken when it may not.
func (c *Core) asleep(g *gang) bool {
	s := g.search.sleep
	if s == nil {
		return false
	}
	if g.edits.pending && !c.limitRestarts(g) {
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

func (c *Core) over(s *sleep) bool {
	switch {
	case s.nodes != c.nodes:
		return !c.now.Before(s.notBefore)
	case s.latest.IsZero():
		return false
	}
	return !c.now.Before(s.latest) || s.room != c.room && !c.now.Before(s.notBefore)
}

// wakeSleepers wakes a few of the gangs for which there may be room now, best first. The pause between two searches grows
// for the sake of the node shards, and so the best, with as many pods as may look for room at once, need not wait it out:
// where few gangs wait, room would stand empty meanwhile.
//
// All sleepers are looked through for it, the less often the more there are, and only the best of them are sorted: what they
// cost does not grow with their number.
func (c *Core) wakeSleepers() {
	c.feed()
	c.wakeNext()
	if !c.roomGrew && !c.nodesMoved || c.now.Before(c.lookAgain) {
		return
	}
	c.lookAgain = c.now.Add(time.Duration(len(c.sleepers)) * lookPerSleeper)
	c.roomGrew, c.nodesMoved = false, false
	awake, asleep := best{most: 64}, best{most: c.cfg.InFlight}
	for _, g := range c.sleepers {
		switch s := g.search.sleep; {
		case c.over(s):
			if !g.search.inLine {
				awake.add(g)
			}
		case !s.early.IsZero() && s.room != c.room && s.early.Before(s.notBefore):
			asleep.add(g)
		case s.latest.IsZero() && s.nodes != c.nodes:
			c.nodesMoved = true // not yet
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
	c.roomGrew = awake.full()
}

// lookPerSleeper is the pause between two looks at all sleepers, for each of them: some 100 times what looking costs.
const lookPerSleeper = 10 * time.Microsecond

// best keeps the best of many gangs: a heap with the worst of those that it keeps on top.
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
	} else if b.most > 0 && compareGangs(g, b.gangs[0]) < 0 {
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

func (c *Core) takeSlot(g *gang) bool {
	s := &g.search
	if s.slot {
		return true
	}
	if c.full() {
		if !s.queued {
			s.queued = true
			heap.Push(&c.ready, g)
		}
		return false
	}
	s.slot, s.pods = true, g.tally.charged
	c.inFlight++
	c.podsInFlight += s.pods
	return true
}

// full reports whether enough gangs look for room. The last one may be a large one: it is never passed by for its size.
func (c *Core) full() bool {
	return c.inFlight >= c.cfg.InFlight || c.podsInFlight >= c.cfg.PodsInFlight
}

func (c *Core) freeSlot(g *gang) {
	if g.search.slot {
		g.search.slot = false
		c.inFlight--
		c.podsInFlight -= g.search.pods
		c.feed()
	}
}

// feed takes up the best of those who wait for a slot.
func (c *Core) feed() {
	gangs, pods := c.inFlight, c.podsInFlight
	for gangs < c.cfg.InFlight && pods < c.cfg.PodsInFlight && len(c.ready) > 0 {
		g := heap.Pop(&c.ready).(*gang)
		g.search.queued = false
		gangs, pods = gangs+1, pods+g.tally.charged
		c.touch(g)
	}
}

// neverFits says why a gang could not be placed if the whole cluster were empty, as far as summaries tell. It says
// nothing unless every shard has spoken of the current table, and the table has stood still.
func (c *Core) neverFits(g *gang) reason {
	if c.table == nil || c.now.Before(c.tableAt.Add(c.cfg.NeverAfter)) {
		return reason{}
	}
	var total, largest api.Resources
	for _, m := range c.table.Members {
		s := c.summaries[m.Incarnation]
		if s == nil || s.said.GetTableEpoch() != uint64(c.table.Epoch) {
			return reason{}
		}
		total, largest = total.Add(s.allocatable), largest.Max(s.largest)
	}
	pods := c.choose(g)
	for _, p := range pods {
		if r, by, exceeds := p.Class.Requests.Exceeds(largest); exceeds {
			want := p.Class.Requests.Value(r)
			return reason{v1alpha1.ReasonNeverFits, fmt.Sprintf("pod %s/%s requests %s=%s, the largest node has %s",
				p.Namespace, p.Name, r, api.FormatAmount(r, want), api.FormatAmount(r, want-by))}
		}
	}
	demand := sum(pods)
	if r, by, exceeds := demand.Exceeds(total); exceeds {
		want := demand.Value(r)
		return reason{v1alpha1.ReasonNeverFits, fmt.Sprintf("%d pods request %s=%s in total, all nodes have %s in total",
			len(pods), r, api.FormatAmount(r, want), api.FormatAmount(r, want-by))}
	}
	return reason{}
}

// valid reports whether what is reserved is still what is to be placed.
func (c *Core) valid(g *gang) bool {
	return g.charge.reserved && g.charge.ask == nil && !g.charge.stale && c.obstacle(g).reason == "" &&
		g.placed+g.tally.charged == g.minCount() && len(g.lost) == 0
}

// queueUp waits for a slot.
func (c *Core) queueUp(g *gang) {
	if !c.valid(g) {
		c.startOver(g)
		return
	}
	if g.placed >= g.minCount() { // somebody else bound it
		c.restart(g)
		return
	}
	if c.asleep(g) || !c.takeSlot(g) {
		return
	}
	if g.search.since.IsZero() {
		g.search.since = c.now
	}
	c.become(g, holding)
}

// hold looks for room for all of a gang.
func (c *Core) hold(g *gang) {
	if !c.valid(g) {
		c.startOver(g)
		return
	}
	if g.placed >= g.minCount() {
		c.restart(g)
		return
	}
	if c.tooLong(g) {
		return
	}
	c.letGo(g)
	if c.asleep(g) {
		return
	}
	if !c.seek(g) {
		c.letGo(g)
		return
	}
	c.traceHeld(g)
	g.search.mendBy = time.Time{}
	c.become(g, preparing)
}

// giveUpAt returns when a gang that finds no room is given up.
func (c *Core) giveUpAt(g *gang) time.Time {
	limit := c.cfg.GiveUpAfter
	if g.group != nil && g.group.timeout > 0 {
		limit = g.group.timeout
	}
	if g.charge.patient {
		limit = max(limit, c.cfg.PatientFor)
	}
	return g.search.since.Add(limit)
}

// holdFor returns how long holds are requested for. Those of a patient gang last until it is given up: it may sleep for longer
// than Config.HoldFor, and nothing renews them meanwhile.
func (c *Core) holdFor(g *gang) time.Duration {
	if !g.charge.patient {
		return c.cfg.HoldFor
	}
	return max(c.cfg.HoldFor, c.giveUpAt(g).Sub(c.now))
}

// tooLong gives a gang up that found no room in time.
func (c *Core) tooLong(g *gang) bool {
	at := c.giveUpAt(g)
	if c.now.Before(at) {
		c.wakeAt(g, at)
		return false
	}
	c.GaveUp++
	g.charge.giveUps++
	if g.why.reason == "" {
		g.why = reason{v1alpha1.ReasonPending, "reservation released: shards that may have capacity did not respond"}
	}
	c.startWithdraw(g, giveUp)
	return true
}

// letGo lets others have what a gang holds, which is not enough for it and has not become more for some time. It looks again
// after the longest pause.
func (c *Core) letGo(g *gang) {
	s := &g.search
	if s.sleep == nil || g.charge.patient {
		return
	}
	holding := g.pick(func(p *pod) bool { return p.place == held })
	if len(holding) == 0 {
		return
	}
	if at := s.gained.Add(c.cfg.StallAfter); c.now.Before(at) {
		c.wakeAt(g, at)
		return
	}
	shards := map[api.Incarnation]bool{}
	for _, p := range holding {
		shards[p.shard] = true
		p.place, p.shard, p.node = nowhere, "", ""
	}
	serial := c.serial(g)
	for _, shard := range slices.Sorted(maps.Keys(shards)) {
		c.sendWithdraw(g, shard, serial, nil)
	}
	s.backoff = c.cfg.BackoffMax
	s.sleep.notBefore = c.now.Add(s.backoff)
	s.sleep.early = s.sleep.notBefore
	c.touch(g)
}

// seek goes on with a round, or begins one, and reports whether every pod that is charged has a hold or more.
func (c *Core) seek(g *gang) bool {
	missing := g.pick(func(p *pod) bool { return p.charged && p.candidate() && p.place == nowhere })
	s := &g.search
	if len(missing) == 0 {
		s.round = nil
		return true
	}
	if s.round == nil {
		if c.asleep(g) || c.limitBytes(g, missing) || !c.takeSlot(g) {
			return false
		}
		s.round = &round{asked: map[api.Incarnation]bool{}, done: map[api.Incarnation]bool{}, refused: map[api.Incarnation]bool{}, more: map[api.Incarnation]int{}}
		s.room, s.nodes = c.room, c.nodes
		if s.since.IsZero() {
			s.since = c.now
		}
	}
	r := s.round
	if r.shard != "" {
		switch {
		case !c.isMember(r.shard):
			r.refused[r.shard] = true
			r.shard = ""
		case !c.now.Before(r.open.at.Add(c.cfg.SkipAfter)):
			c.skip(g, r)
		default:
			c.wakeAt(g, r.open.at.Add(c.cfg.SkipAfter))
			if c.again(g, &r.open, c.cfg.AskAgain, c.cfg.AskAgain) {
				c.send(r.shard, &wire.Envelope{Body: &wire.Envelope_HoldRequest{HoldRequest: r.body}})
			}
			return false
		}
	}
	if r.refused[r.last] {
		r.rest = nil
	}
	r.rest = slices.DeleteFunc(r.rest, func(p *pod) bool {
		return p.gang != g || !p.charged || !p.candidate() || p.place != nowhere && !(p.place == held && p.shard == r.last)
	})
	if len(r.rest) == 0 || !c.isMember(r.last) {
		next, found := c.nextShard(g, r, missing)
		if !found {
			c.endRound(g, r, missing)
			return false
		}
		r.asked[next.shard], r.done[next.shard] = true, true
		r.last, r.short = next.shard, len(next.pods) < len(missing)
		r.rest = append(g.pick(func(p *pod) bool { return p.place == held && p.shard == next.shard }), next.pods...)
	}
	shard := r.last
	r.shard = shard
	r.pods, r.rest = cut(r.rest, c.cfg.HoldPods)
	r.fresh = kindsOf(slices.DeleteFunc(slices.Clone(r.pods), func(p *pod) bool { return p.place == held }))
	if of := c.summaries[shard]; of != nil {
		of.take(r.fresh)
		of.asking = append(of.asking, g)
	}
	r.open = open{serial: c.serial(g)}
	var classes classes
	r.body = &wire.HoldRequest{
		Gang: g.message(), Serial: r.open.serial, Rank: g.charge.rank, TableEpoch: uint64(c.table.Epoch),
		TtlMs: c.holdFor(g).Milliseconds(), Patient: g.charge.patient, Trace: c.traceOf(g, spanHold), Short: r.short && len(r.rest) == 0,
	}
	for _, p := range r.pods {
		r.body.Pods = append(r.body.Pods, &wire.PodWant{PodUid: p.UID, PodClass: classes.of(p.Class)})
	}
	r.body.Classes, r.classes = classes.wire, classes.list
	c.countBytes(g.namespace, classes.bytes())
	g.touch(shard)
	c.wakeAt(g, c.now.Add(c.cfg.SkipAfter))
	if c.again(g, &r.open, c.cfg.AskAgain, c.cfg.AskAgain) {
		c.send(shard, &wire.Envelope{Body: &wire.Envelope_HoldRequest{HoldRequest: r.body}})
	}
	return false
}

// skip passes over a shard that does not answer; what it may still promise is declined.
func (c *Core) skip(g *gang, r *round) {
	has := false
	for _, p := range g.members {
		has = has || p.shard == r.shard && (p.place == held || p.place == committed)
	}
	if !has {
		c.sendWithdraw(g, r.shard, r.open.serial, nil)
	}
	r.refused[r.shard] = true
	r.shard, r.silent = "", true
}

// maxRefusals is how many refusals of a round are kept for its words.
const maxRefusals = 256

// cut takes off the first of some pods what one message may name: so many of them at most, and of classes, which are up to
// 64 KiB large, so much that it does not count beside that many pods.
func cut(pods []*pod, most int) (part, rest []*pod) {
	const classBytes = 500
	size := 0
	var index classIndex
	for i, p := range pods {
		if _, fresh := index.number(p.Class); fresh {
			size += len(p.Class.Key) + 16*len(p.Class.Requests)
		}
		if i > 0 && (i == most || size > most*classBytes) {
			return pods[:i:i], pods[i:]
		}
	}
	return pods, nil
}

func (g *gang) touch(shard api.Incarnation) {
	if g.search.touched == nil {
		g.search.touched = map[api.Incarnation]bool{}
	}
	g.search.touched[shard] = true
}

// option is a shard that may be asked, and for what.
type option struct {
	shard api.Incarnation
	class int // 0 had room for a pod of ours and failed to bind it, 1 self, 2 others
	pods  []*pod
	room  int64
}

func (o option) before(p option) bool {
	return cmp.Or(cmp.Compare(o.class, p.class), cmp.Compare(len(p.pods), len(o.pods)), cmp.Compare(p.room, o.room), strings.Compare(string(o.shard), string(p.shard))) < 0
}

// nextShard returns the shard to ask next, and for which pods, or that the round is over. This shard is asked though it had
// nothing a moment ago, for it costs nothing to hear what it has now; so is one at which the gang holds something, which is
// to live on.
func (c *Core) nextShard(g *gang, r *round, missing []*pod) (next option, found bool) {
	kinds := kindsOf(missing)
	preferred := map[api.Incarnation][]*pod{}
	for _, p := range missing {
		if p.prefer != "" {
			preferred[p.prefer] = append(preferred[p.prefer], p)
		}
	}
	for _, m := range c.table.Members {
		o := option{shard: m.Incarnation, class: 2}
		if r.done[o.shard] || c.owned[o.shard] == 0 {
			continue
		}
		if o.shard == c.cfg.Self {
			o.class = 1
		}
		if s := c.summaries[o.shard]; s != nil {
			o.pods, o.room = s.share(kinds, o.shard == c.cfg.Self), fits(s.left, kinds)
		} else {
			o.pods = missing
		}
		if few := preferred[o.shard]; len(few) > 0 {
			if o.class = 0; len(o.pods) < len(missing) {
				o.pods = append(few, slices.DeleteFunc(o.pods, func(p *pod) bool { return p.prefer == o.shard })...)
			}
		}
		if (len(o.pods) > 0 || !r.asked[o.shard] && (o.class == 1 || g.holdsAt(o.shard))) && (!found || o.before(next)) {
			next, found = o, true
		}
	}
	if found || !c.mayTry(g, r) {
		return next, found
	}
	for _, m := range c.table.Members {
		o := option{shard: m.Incarnation, class: 2}
		s := c.summaries[o.shard]
		if r.refused[o.shard] || c.owned[o.shard] == 0 || s == nil {
			continue
		}
		if o.room = fits(s.free, kinds); o.room == 0 {
			continue
		}
		if o.shard == c.cfg.Self {
			o.class = 1
		}
		for _, k := range kinds {
			o.pods = append(o.pods, k.pods[:min(len(k.pods), max(1, r.more[o.shard]))]...)
		}
		if !found || o.before(next) {
			next, found = o, true
		}
	}
	if found {
		r.more[next.shard] = 2 * max(1, r.more[next.shard])
	}
	return next, found
}

// mayTry reports whether more may be asked for than summaries say: not often, for most of it is refused, unless there are
// other nodes now.
func (c *Core) mayTry(g *gang, r *round) bool {
	s := &g.search
	if !r.trying && (s.tried.IsZero() || s.triedNodes != c.nodes || !c.now.Before(s.tried.Add(c.cfg.TryEvery))) {
		r.trying, s.tried, s.triedNodes, s.words = true, c.now, c.nodes, ""
	}
	return r.trying
}

func (g *gang) holdsAt(shard api.Incarnation) bool {
	if g.search.touched[shard] {
		for _, p := range g.members {
			if p.place == held && p.shard == shard {
				return true
			}
		}
	}
	return false
}

// fits returns how many pods of the kind that fits most often go into so much free room.
func fits(free api.Resources, kinds []kind) int64 {
	var most int64
	for _, k := range kinds[:min(len(kinds), 8)] {
		most = max(most, often(k.class.Requests, free))
	}
	return most
}

// endRound draws the conclusion of a round in which not every pod found room.
func (c *Core) endRound(g *gang, r *round, missing []*pod) {
	members := 0
	for _, m := range c.table.Members {
		if c.owned[m.Incarnation] > 0 {
			members++
		}
	}
	if words := mergeWords(r.words); words != "" {
		g.search.words = words
	}
	words := cmp.Or(g.search.words, "no shard has enough free capacity")
	var lacking classIndex
	for _, p := range missing {
		if _, fresh := lacking.number(p.Class); !fresh {
			continue
		}
		none := r.never.of(p.Class)
		for _, m := range c.table.Members { // not asked, but its largest node is too small
			if s := c.summaries[m.Incarnation]; !r.asked[m.Incarnation] && s != nil && c.owned[m.Incarnation] > 0 && !p.Class.Requests.Fits(s.largest) {
				none++
			}
		}
		if none >= members && members > 0 && !c.now.Before(c.tableAt.Add(c.cfg.NeverAfter)) {
			g.why = reason{v1alpha1.ReasonNeverFits, fmt.Sprintf("pod %s/%s would not fit on any node even if the node were empty: %s", p.Namespace, p.Name, words)}
			if !g.started && g.state == holding {
				c.startWithdraw(g, giveUp)
				return
			}
			c.sleep(g, true)
			g.search.gaveUp = g.started
			c.uncharge(g)
			return
		}
	}
	if r.silent { // nobody knows whether there is room: no reason to buy nodes
		g.why = reason{}
	} else {
		g.why = reason{v1alpha1.ReasonUnschedulable, fmt.Sprintf("%d of %d pods do not fit: %s", len(missing), max(len(missing), g.tally.charged), words)}
	}
	if g.started && !c.now.Before(g.search.since.Add(c.cfg.GiveUpAfter)) {
		c.sleep(g, false)
		g.search.gaveUp = true
		c.uncharge(g)
		return
	}
	c.sleep(g, false)
}

// uncharge gives up room for further pods of a started gang that find none; they ask again when they wake.
func (c *Core) uncharge(g *gang) {
	if !g.started {
		return
	}
	for _, p := range g.members {
		if p.charged && p.place == nowhere {
			p.charged = false
		}
	}
	g.search.since = time.Time{}
	c.touch(g)
}

// mergeWords adds up refusals of the form "12 insufficient cpu, 3 node(s) had untolerated taint".
func mergeWords(refused []string) string {
	counts := map[string]int64{}
	for _, words := range refused {
		for _, part := range strings.Split(words, ", ") {
			n, what, found := strings.Cut(part, " ")
			if v, err := strconv.ParseInt(n, 10, 64); err == nil && found {
				counts[what] = api.AddSat(counts[what], v)
			} else if part != "" {
				counts[part] += 0
			}
		}
	}
	var out []string
	for _, what := range sorted(counts) {
		if counts[what] > 0 {
			what = fmt.Sprintf("%d %s", counts[what], what)
		}
		out = append(out, what)
	}
	return strings.Join(out, ", ")
}

func (c *Core) onHoldReply(from api.Incarnation, m *wire.HoldReply) {
	g := c.gangs[m.GetGangUid()]
	if g == nil || g.search.round == nil {
		return
	}
	r := g.search.round
	if r.shard != from || r.open.serial != m.GetSerial() {
		return
	}
	r.shard = ""
	nodes := make(map[string]string, len(m.GetHeld()))
	for _, h := range m.GetHeld() {
		nodes[h.GetPodUid()] = h.GetNode()
	}
	if s := c.summaries[from]; s != nil {
		for _, k := range r.fresh {
			refused := int64(0)
			for _, p := range k.pods {
				if _, got := nodes[p.UID]; !got {
					refused++
				}
			}
			s.left = s.left.Add(times(k.class.Requests, refused))
			r.refused[from] = r.refused[from] || refused > 0
		}
	}
	for _, p := range r.pods {
		if p.gang != g || p.place == committed || p.place == bound {
			continue
		}
		node, got := nodes[p.UID]
		switch {
		case got && (p.place == nowhere || p.shard == from):
			p.place, p.shard, p.node = held, from, node
		case !got && p.place == held && p.shard == from:
			p.place, p.shard, p.node = nowhere, "", ""
		}
		if !got && p.prefer == from {
			p.prefer = ""
		}
	}
	n := 0
	for _, p := range g.members {
		if p.place == held {
			n++
		}
	}
	if n > g.search.most {
		g.search.most, g.search.gained = n, c.now
	}
	for _, f := range m.GetRefused() {
		if int(f.GetPodClass()) < len(r.classes) {
			class := r.classes[f.GetPodClass()]
			if f.GetNever() {
				r.never.add(class)
			}
			if s := c.summaries[from]; s != nil {
				s.room[class.Hash()] = 0
			}
		}
		if r.refused[from] = true; f.GetMessage() != "" && len(r.words) < maxRefusals {
			r.words = append(r.words, short(f.GetMessage()))
		}
	}
	if left := m.GetLeft(); left != nil {
		c.onSummary(from, left)
		r.done[from] = r.refused[from]
	}
	c.mark(g)
}

func (c *Core) onHoldsLost(from api.Incarnation, m *wire.HoldsLost) {
	g := c.gangs[m.GetGangUid()]
	if g == nil {
		return
	}
	for _, uid := range m.GetPodUids() {
		if p := g.members[uid]; p != nil && p.place == held && p.shard == from {
			p.place, p.shard, p.node = nowhere, "", ""
		}
	}
	c.mark(g)
}
