package home

import (
	"cmp"
	"slices"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/shard/home/report"
)

// Rounds of a search. A round asks node shards one after another for the pods that have no hold yet. One HoldRequest is open at a
// time: it is retransmitted until its shard answers, leaves the table, or is skipped after Config.SkipAfter. A round ends when
// every pod has a hold, or when no shard is left to ask. Then it says what is missing, and the gang sleeps.

// round is one pass over the node shards. It asks each for what its summary shows, once or until the shard says that there is no
// more. A round that tries asks for more, until the shard refuses some.
type round struct {
	asked   map[api.Incarnation]bool
	done    map[api.Incarnation]bool // and did not say that there is more
	refused map[api.Incarnation]bool // refused something, or did not answer
	trying  bool                     // more than summaries say is asked for,
	more    map[api.Incarnation]int  // so many pods of each class next
	graded  map[gradeKey]int         // how often it was asked for nodes of a grade or above,
	least   uint32                   // this grade; 0 for none
	said    map[gradeKey]uint32      // grades in refusals, of classes with leanings
	last    api.Incarnation          // asked last,
	rest    []*pod                   // for these in further messages, each of which has an answer of its own
	short   bool                     // it has too little as far as we know
	shard   api.Incarnation          // that has not answered, "" for none
	open    call
	body    *wire.HoldRequest
	pods    []*pod       // of body
	fresh   []kind       // those of them that had no hold there
	classes []*api.Class // of body
	never   classCount   // of shards where not even an empty node would take a pod of the class
	silent  bool         // one did not answer
	area    *area        // that it is confined to, nil for none
	pauses  bool         // it ends because others were faster
	gained  bool         // a pod got a hold: the place of others of the gang may depend on it
}

// seek begins or continues a round, and reports whether every charged pod has a hold, or is committed or bound.
func (c *Core) seek(g *gang) bool {
	s := &g.search
	if s.round == nil {
		g.forgetParts()
	}
	missing := g.pick(g.seeks)
	tiedFirst(missing)
	g.arrange(missing)
	if len(missing) == 0 {
		if !s.gaveUp {
			c.tellUnplaced(g, nil, false)
		}
		if s.round = nil; g.tally.held == 0 {
			s.area = nil
		} else {
			s.area = s.area.forgetSurvey()
		}
		return true
	}
	if s.round == nil {
		c.ask(missing)
		if c.asleep(g) || c.limitBytes(g, missing) {
			return false
		}
		if c.isShut(g, missing) {
			if c.triesOthers(g, missing) {
				return false
			}
			c.blockedShort(g, &shortage{pod: missing[0].Pod, class: missing[0].asked, missing: len(missing), of: max(len(missing), g.tally.charged)})
			c.sleep(g, false)
			return false
		}
		if !c.takeSlot(g) || !c.confine(g, missing) {
			return false
		}
		s.round = &round{area: s.area, asked: map[api.Incarnation]bool{}, done: map[api.Incarnation]bool{}, refused: map[api.Incarnation]bool{}, more: map[api.Incarnation]int{}}
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
			if c.due(g, &r.open, c.cfg.AskAgain, c.cfg.AskAgain) {
				c.send(r.shard, &wire.Envelope{Body: &wire.Envelope_HoldRequest{HoldRequest: r.body}})
			}
			return false
		}
	}
	if r.refused[r.last] {
		r.rest = nil
	}
	r.rest = slices.DeleteFunc(r.rest, func(p *pod) bool {
		return p.gang != g || !p.charged || !p.candidate() || p.stage != nowhere && !(p.stage == held && p.shard == r.last)
	})
	if len(r.rest) == 0 || !c.isMember(r.last) {
		if r.last != "" && c.barred(g) { // others were placed meanwhile
			c.endRound(g, r, missing)
			return false
		}
		next, found := c.nextShard(g, r, missing)
		if !found && c.mayAskAgain(g, r, missing) {
			next, found = c.nextShard(g, r, missing)
		}
		if !found {
			c.endRound(g, r, missing)
			return false
		}
		r.began(next)
		r.last, r.short = next.shard, len(next.pods) < len(missing) && r.area == nil
		r.rest = append(g.pick(func(p *pod) bool { return p.stage == held && p.shard == next.shard }), next.pods...)
	}
	shard := r.last
	r.shard = shard
	r.pods, r.rest = cut(r.rest, c.cfg.HoldPods)
	r.fresh = kindsOf(slices.DeleteFunc(slices.Clone(r.pods), func(p *pod) bool { return p.stage == held }))
	if of := c.summaries[shard]; of != nil {
		of.take(r.fresh)
		of.asking = append(of.asking, g)
	}
	r.open = call{serial: c.serial(g)}
	var classes classes
	r.body = &wire.HoldRequest{
		Gang: g.message(), Serial: r.open.serial, Rank: g.charge.rank, TableEpoch: uint64(c.table.Epoch),
		TtlMs: c.holdFor(g).Milliseconds(), Patient: g.charge.patient, Trace: c.traceOf(g, spanHold), Short: r.short && len(r.rest) == 0, Grade: r.least,
		Order: g.search.order,
	}
	for i, p := range r.pods {
		if p.stage != held {
			p.turn = r.open.serial<<16 + uint64(i)
		}
		r.body.Pods = append(r.body.Pods, &wire.PodWant{PodUid: p.UID, PodClass: classes.of(p.asked)})
	}
	c.confineTo(r.area, r.body, r.pods)
	r.body.Beside = c.beside(g, shard, r.pods)
	r.body.Classes, r.classes = classes.wire, classes.list
	c.countBytes(g.name.Namespace, classes.bytes())
	g.touch(shard)
	c.wakeAt(g, c.now.Add(c.cfg.SkipAfter))
	if c.due(g, &r.open, c.cfg.AskAgain, c.cfg.AskAgain) {
		c.send(shard, &wire.Envelope{Body: &wire.Envelope_HoldRequest{HoldRequest: r.body}})
	}
	return false
}

// skip goes on without a shard that does not answer. Holds that it may still grant are withdrawn.
func (c *Core) skip(g *gang, r *round) {
	has := false
	for _, p := range g.members {
		has = has || p.shard == r.shard && (p.stage == held || p.stage == committed)
	}
	if !has {
		c.sendWithdraw(g, r.shard, r.open.serial, nil)
	}
	r.refused[r.shard], r.done[r.shard] = true, true
	r.shard, r.silent = "", true
}

// cut splits pods into those that one message may name and the rest. The bound is a number of pods, and a size of their classes,
// which are up to 64 KiB large.
func cut(pods []*pod, most int) (part, rest []*pod) {
	const classBytes = 500
	size := 0
	var index classIndex
	for i, p := range pods {
		if _, fresh := index.number(p.asked); fresh {
			size += len(p.asked.Key) + 16*len(p.asked.Requests)
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

// endRound ends a round that did not find a hold for every pod: it says why, and puts the gang to sleep.
func (c *Core) endRound(g *gang, r *round, missing []*pod) {
	if r.area != nil {
		c.endInArea(g, r, missing)
		return
	}
	if r.pauses {
		g.search.overtaken++
		g.search.round = nil
		c.pauseUntil(g, c.now.Add(leanedPause))
		c.freeSlot(g)
		c.mark(g)
		return
	}
	if !r.silent && c.reorders(g) {
		return
	}
	if g.search.orders >= g.search.ordersNow() && !g.charge.patient { // another order may need other nodes
		c.releaseHeld(g)
	}
	members := 0
	for _, m := range c.table.Members {
		if c.owned[m.Incarnation] > 0 {
			members++
		}
	}
	var lacking classIndex
	var never *pod
	all := true // of them would find no room at empty nodes
	for _, p := range missing {
		if _, fresh := lacking.number(p.asked); !fresh {
			continue
		}
		none := r.never.of(p.asked)
		for _, m := range c.table.Members { // not asked, but its largest node is too small
			if s := c.summaries[m.Incarnation]; !r.asked[m.Incarnation] && s != nil && c.owned[m.Incarnation] > 0 && !p.Class.Requests.Fits(s.largest) {
				none++
			}
		}
		if none < members || members == 0 || c.now.Before(c.tableAt.Add(c.cfg.NeverAfter)) {
			all = false
		} else if never == nil {
			never = p
		}
	}
	if never != nil && !g.started && c.triesOthers(g, []*pod{never}) {
		return
	}
	if never != nil && (all || !g.started) {
		s := &shortage{pod: never.Pod, class: never.asked, never: true}
		if c.blockedShort(g, s); !g.started && g.state == holding {
			g.search.unfit, g.search.short, g.blocked = s, nil, report.Reason{} // it is said once it is known whether there is quota
			c.retreat(g, giveUp)
			return
		}
		c.sleep(g, true)
		g.search.gaveUp = g.started
		c.uncharge(g)
		return
	}
	if !c.skips(g, r, missing) {
		c.shutFor(g, missing)
	}
	if r.silent { // nobody knows whether there is room: no reason to buy nodes
		g.blocked = report.Reason{}
	} else {
		c.blockedShort(g, &shortage{pod: missing[0].Pod, class: missing[0].asked, missing: len(missing), of: max(len(missing), g.tally.charged)})
	}
	if !r.silent && !c.now.Before(g.search.since.Add(c.cfg.StallAfter)) && c.triesOthers(g, missing) {
		return
	}
	if g.started && !c.now.Before(g.search.since.Add(c.cfg.GiveUpAfter)) {
		c.sleep(g, false)
		g.search.gaveUp = true
		c.uncharge(g)
		return
	}
	c.sleep(g, false)
}

func (c *Core) onHoldReply(from api.Incarnation, m *wire.HoldReply) {
	g := c.gangs[m.GetGangUid()]
	if g == nil {
		return
	}
	if c.onRoomReply(g, from, m) {
		if left := g.pick(waitsNowhere); g.rooms.drains && (len(left) == 0 || !g.rooms.again.IsZero()) {
			c.tellUnplaced(g, sum(left), false) // all shards were asked
		}
		return
	}
	if g.search.round == nil {
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
	back := int64(0)
	if s := c.summaries[from]; s != nil {
		for _, k := range r.fresh {
			refused := int64(0)
			for _, p := range k.pods {
				if _, got := nodes[p.UID]; !got {
					refused++
				}
			}
			s.left = s.left.Add(times(k.class.Requests, refused))
			// The room is still there if it is not good enough, or outside the domains that were asked for, or in domains that take no such pod
			// now. No summary will say so again.
			if room, counted := s.room[k.class.Hash()]; counted && (r.least > 0 || r.area != nil || c.ruledClass(g.name.Namespace, k.class)) {
				s.room[k.class.Hash()] = room + refused
			}
			r.refused[from] = r.refused[from] || refused > 0 && r.least == 0
			back += refused
		}
	}
	var column func(*api.Class) int
	if r.area != nil {
		column = r.area.columns()
	}
	for _, p := range r.pods {
		if p.gang != g || p.stage == committed || p.stage == bound {
			continue
		}
		node, got := nodes[p.UID]
		switch {
		case got && (p.stage == nowhere || p.shard == from):
			r.gained = r.gained || p.stage == nowhere
			p.stage, p.shard, p.node = held, from, node
		case !got && p.stage == held && p.shard == from:
			p.letGo()
		}
		if !got && r.area != nil && c.ruled(p) { // the room is still there
			r.area.roomOf(p).add(from, column(p.asked), 1)
		}
		if !got && p.prefer == from {
			p.prefer = ""
		}
	}
	n := 0
	for _, p := range g.members {
		if p.stage == held {
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
			s, ruled := c.summaries[from], c.ruledClass(g.name.Namespace, class)
			if r.area != nil { // says nothing of nodes outside
			} else if s != nil && r.least == 0 && !ruled {
				s.room[class.Hash()] = 0
			} else if s != nil && r.least > 0 {
				c.learnGrade(r, from, s, class, f.GetGrade())
			}
		}
		if r.refused[from] = r.refused[from] || r.least == 0; r.least > 0 {
			r.rest = nil
		}
	}
	if left := m.GetLeft(); left != nil {
		c.onSummary(from, left)
		r.done[from] = r.refused[from] || r.least > 0 && r.done[from]
	}
	if s := c.summaries[from]; s != nil {
		c.unskip(s, back)
	}
	c.mark(g)
}

func (c *Core) onHoldsLost(from api.Incarnation, m *wire.HoldsLost) {
	g := c.gangs[m.GetGangUid()]
	if g == nil {
		return
	}
	for _, uid := range m.GetPodUids() {
		if p := g.members[uid]; p != nil && p.hasRoom() && p.shard == from {
			p.letGo()
		}
	}
	c.mark(g)
}

// Others of a gang. A gang needs as many pods as its minimum, and has more, or pods that differ: if one of those that
// came first finds no place, or is more than its queue may have, others may do. So pods that were tried in vain are
// set aside while enough others are left, and these are tried. When none are left, the first are asked for again, and
// wait; others are tried again after Config.RetryRoom at the earliest, so that this costs a few requests in half a
// minute, and only where pods differ. Whoever was set aside comes later as a further pod.

// aside are the pods of a gang that are not tried now.
type aside struct {
	pods  map[string]bool
	again time.Time // before that, no further pods are set aside, unless it has more than
	of    int       // so many
}

// triesOthers sets aside the pods that found no room, and those like them, and reports whether others are tried in
// their place.
func (c *Core) triesOthers(g *gang, missing []*pod) bool {
	if !c.setAside(g, func(p *pod) bool {
		return !slices.ContainsFunc(missing, func(m *pod) bool { return m.asked == p.asked || m.Class.Key == p.Class.Key })
	}) {
		return false
	}
	if g.started {
		c.uncharge(g)
	} else {
		c.retreat(g, startOver)
	}
	return true
}

// The order in which the pods of a gang are tried. A round places them one after another, each where it fits best
// then. With pods that differ, or that are tied to one another, this may find no place for the last ones although
// there is one for all: a pod that others have to be beside goes where they do not fit, or small ones fill the only
// node for a large one. So after a round that failed, what it held is let go, and another order is tried at once, up
// to ordersAtOnce of them; then the gang sleeps, and goes on with further orders. The second one is by size, the
// third by size with those first that are tied to others; all that follow are drawn, and node shards take any node
// that takes a pod then, not the best. Each order costs as much as a round, and only gangs whose pods differ or are
// tied pay for it. One that has tried many orders tries one more each time that it wakes; and since what it lets go of
// looks like room that others left, it is not woken before its pause ends (sleep.go).

const (
	ordersAtOnce = 6
	ordersMany   = 8 * ordersAtOnce // some 20 s of searching, with the pauses between
	bySize       = 1
	bySizeTied   = 2
	firstDrawn   = 3
)

// reorders lets go of what a gang holds, and has its pods tried in another order, if that may help.
func (c *Core) reorders(g *gang) bool {
	s := &g.search
	if g.single || g.started || g.charge.claimed() || g.claim != nil || s.orders >= s.ordersNow() || !g.unlike() {
		return false
	}
	s.orders++
	s.order++
	s.round = nil
	c.releaseHeld(g)
	c.mark(g)
	return true
}

// ordersNow is how many orders are tried before the gang sleeps again.
func (s *search) ordersNow() int {
	if s.order > ordersMany {
		return 1
	}
	return ordersAtOnce
}

// arrange sorts pods as they are to be tried.
func (g *gang) arrange(pods []*pod) {
	size := func(p *pod) int64 { return -firstAmount(p.Class.Requests) }
	tied := func(p *pod) int {
		if p.asked != nil && len(p.asked.Joins) > 0 {
			return 0
		}
		return 1
	}
	switch order := g.search.order; {
	case order == 0:
	case order == bySize:
		slices.SortStableFunc(pods, func(a, b *pod) int { return cmp.Compare(size(a), size(b)) })
	case order == bySizeTied:
		slices.SortStableFunc(pods, func(a, b *pod) int {
			return cmp.Or(cmp.Compare(tied(a), tied(b)), cmp.Compare(size(a), size(b)))
		})
	default:
		slices.SortStableFunc(pods, func(a, b *pod) int { return cmp.Compare(drawn(a.UID, order), drawn(b.UID, order)) })
	}
}
