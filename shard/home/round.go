package home

import (
	"cmp"
	"slices"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

// Rounds of a search. A round asks node shards one after another for the pods that have no hold yet. One HoldRequest is open at a
// time: it is retransmitted until its shard answers, leaves the table, or is skipped after Config.SkipAfter. A round ends when
// every pod has a hold, or when no shard is left to ask. Then it says what is missing, and the gang sleeps.

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
			c.tellUnplaced(g, uses, nil)
		}
		if s.ends(); g.tally.held == 0 {
			s.confine(nil)
		} else {
			s.confine(s.area.forgetSurvey())
		}
		return true
	}
	if s.round == nil {
		c.rules.ask(missing)
		if c.searchers.asleep(g) {
			return false
		}
		if at := c.limitBytes(g, missing); !at.IsZero() {
			c.searchers.pauseUntil(g, at)
			c.searchers.freeSlot(g)
			c.wakeAt(g, at)
			return false
		}
		if c.rules.isShut(g, missing) {
			if c.triesOthers(g, missing) {
				return false
			}
			c.reasons.blockedBy(g, missing)
			c.searchers.sleep(g, false)
			return false
		}
		if !c.searchers.takeSlot(g) || !c.confine(g, missing) {
			return false
		}
		s.beginRound(&round{area: s.area, scatters: s.scatters(), asked: map[api.Incarnation]bool{},
			done: map[api.Incarnation]bool{}, refused: map[api.Incarnation]bool{}, more: map[api.Incarnation]int{},
			never: map[gradeKey]bool{}, vain: map[gradeKey]bool{}})
		s.see(c.shards.room, c.shards.nodes)
		s.begin(c.now)
	}
	r := s.round
	if c.awaitsShard(g, r) {
		return false
	}
	if r.refused[r.last] {
		r.rest = nil
	}
	r.rest = slices.DeleteFunc(r.rest, func(p *pod) bool {
		return p.gang != g || !p.charged || !p.candidate() || p.stage != nowhere && !(p.stage == held && p.shard == r.last)
	})
	if len(r.rest) == 0 || !c.isMember(r.last) {
		if r.last != "" && c.rules.barred(g) { // others were placed meanwhile
			c.endRound(g, r, missing)
			return false
		}
		next, found := c.shards.nextShard(g, r, missing)
		if !found && c.rules.mayAskAgain(g, r, missing) {
			next, found = c.shards.nextShard(g, r, missing)
		}
		if !found {
			c.endRound(g, r, missing)
			return false
		}
		r.began(next)
		if s.order > 0 {
			next.pods = inOrderOf(missing, next.pods)
		}
		r.last, r.short = next.shard, len(next.pods) < len(missing) && r.area == nil
		r.rest = append(g.pick(func(p *pod) bool { return p.stage == held && p.shard == next.shard }), next.pods...)
	}
	c.searchers.request(g, r)
	return false
}

// awaitsShard reports whether a round awaits the answer of a shard, which is asked again.
func (c *common) awaitsShard(g *gang, r *round) bool {
	switch {
	case r.shard == "":
	case !c.isMember(r.shard):
		r.refused[r.shard] = true
		r.shard = ""
	case !c.now.Before(r.open.at.Add(c.cfg.SkipAfter)):
		c.skip(g, r)
	default:
		c.sendRequest(g, r)
		return true
	}
	return false
}

// sendRequest sends a round's request if it is due, and has the gang looked at when its shard is to be skipped.
func (c *common) sendRequest(g *gang, r *round) {
	if c.due(g, &r.open, c.cfg.AskAgain, c.cfg.AskAgain) {
		c.send(r.shard, &wire.Envelope{Body: &wire.Envelope_HoldRequest{HoldRequest: r.body}})
	}
	c.wakeAt(g, r.open.at.Add(c.cfg.SkipAfter))
}

// request asks the shard that a round has chosen for the next of its pods.
func (c *searchers) request(g *gang, r *round) {
	shard := r.last
	r.shard = shard
	r.pods, r.rest = cut(r.rest, c.cfg.HoldPods)
	r.fresh = kindsOf(slices.DeleteFunc(slices.Clone(r.pods), func(p *pod) bool { return p.stage == held }))
	if of := c.shards.summaries[shard]; of != nil {
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
	c.census.confineTo(r.area, r.body, r.pods)
	r.body.Beside = c.rules.beside(g, shard, r.pods)
	r.body.Classes, r.classes = classes.wire, classes.list
	c.countBytes(g.name.Namespace, classes.bytes())
	g.search.asks(shard)
	c.sendRequest(g, r)
}

// skip goes on without a shard that does not answer. Holds that it may still grant are withdrawn.
func (c *common) skip(g *gang, r *round) {
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

// endRound ends a round that did not find a hold for every pod: it says why, and puts the gang to sleep.
func (c *Core) endRound(g *gang, r *round, missing []*pod) {
	if r.area != nil {
		c.domains.endInArea(g, r, missing)
		return
	}
	if r.pauses {
		g.search.overtake()
		g.search.ends()
		c.searchers.pauseUntil(g, c.now.Add(leanedPause))
		c.searchers.freeSlot(g)
		c.mark(g)
		return
	}
	never, all := c.shards.neverTaken(r, missing)
	if never == nil && !r.silent && c.searchers.reorders(g) {
		return
	}
	if g.search.orders >= g.search.ordersNow() && !g.charge.patient { // another order may need other nodes
		c.searchers.releaseHeld(g)
	}
	if never != nil && !g.started && c.triesOthers(g, []*pod{never}) {
		return
	}
	if never != nil && (all || !g.started) {
		s := &shortage{pod: never.Pod, class: never.asked, lacks: aNode}
		if c.reasons.blockedShort(g, s); !g.started && g.state == holding {
			g.search.unfits(s)
			g.search.explain(nil)
			g.unblock() // it is said once it is known whether there is quota
			c.retreat(g, giveUp)
			return
		}
		c.searchers.sleep(g, true)
		g.search.giveUp(g.started)
		c.uncharge(g)
		return
	}
	if !c.shards.skips(g, r, missing) {
		c.rules.shutFor(g, missing)
	}
	if r.silent { // nobody knows whether there is room: no reason to buy nodes
		g.unblock()
	} else {
		c.reasons.blockedBy(g, missing)
	}
	// All that may be tried of these pods has been.
	tried := g.tally.placed == 0 && (g.search.orders >= g.search.ordersNow() || !unlike(g, false))
	if (tried || !c.now.Before(g.search.since.Add(c.cfg.StallAfter))) && !r.silent && c.triesOthers(g, missing) {
		return
	}
	if g.started && !c.now.Before(g.search.since.Add(c.cfg.GiveUpAfter)) {
		c.searchers.sleep(g, false)
		g.search.giveUp(true)
		c.uncharge(g)
		return
	}
	c.searchers.sleep(g, false)
}

// drainedInVain reports whether a gang that waits for nodes to become free lets go of them, and tries its pods in all
// orders anew: where these differ, what it keeps may be in its own way, while there is room for all by now. It waits
// for as long as it had searched before, so nodes have more time each time.
func (c *searchers) drainedInVain(g *gang) bool {
	if !unlike(g, false) {
		return false
	}
	since := g.rooms.since
	at := since.Add(max(c.cfg.BackoffMax, since.Sub(g.search.since)))
	if c.now.Before(at) {
		c.wakeAt(g, at)
		return false
	}
	return true
}

// neverTaken returns a missing pod that no node takes, not even an empty one, nil for none, and whether none takes any.
func (c *shards) neverTaken(r *round, missing []*pod) (never *pod, all bool) {
	members := 0
	for _, m := range c.table.Members {
		if c.owned[m.Incarnation] > 0 {
			members++
		}
	}
	var lacking classIndex
	all = true
	for _, p := range missing {
		if _, fresh := lacking.number(p.asked); !fresh {
			continue
		}
		none := 0
		for _, m := range c.table.Members {
			s := c.summaries[m.Incarnation] // if it was not asked, its largest node may be too small
			if c.owned[m.Incarnation] > 0 && (r.never[gradeKey{m.Incarnation, p.asked.Hash()}] ||
				!r.asked[m.Incarnation] && s != nil && !p.Class.Requests.Fits(s.largest)) {
				none++
			}
		}
		if none < members || members == 0 || c.now.Before(c.tableAt.Add(c.cfg.NeverAfter)) {
			all = false
			continue
		}
		never = cmp.Or(never, p)
	}
	return never, all
}

func (c *Core) onHoldReply(from api.Incarnation, m *wire.HoldReply) {
	g := c.gangs[m.GetGangUid()]
	if g == nil {
		return
	}
	if c.claims.onRoomReply(g, from, m) {
		if left := g.pick(waitsNowhere); g.rooms.drains && (len(left) == 0 || !g.rooms.again.IsZero()) {
			c.tellUnplaced(g, noRoom, sum(left)) // all shards were asked
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
	if s := c.shards.summaries[from]; s != nil {
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
			if room, counted := s.room[k.class.Hash()]; counted && (r.least > 0 || r.area != nil ||
				c.rules.ruledClass(g.name.Namespace, k.class)) {
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
			p.hold(from, node)
		case !got && p.stage == held && p.shard == from:
			p.letGo()
		}
		if !got && r.area != nil && c.rules.ruled(p) { // the room is still there
			r.area.roomOf(p).add(from, column(p.asked), 1)
		}
		if !got && r.least == 0 {
			r.vain[gradeKey{from, p.asked.Hash()}] = true
		}
		if !got && p.seldom().prefer == from {
			p.preferAt("")
		}
	}
	n := 0
	for _, p := range g.members {
		if p.stage == held {
			n++
		}
	}
	g.search.gain(n, c.now)
	for _, f := range m.GetRefused() {
		if int(f.GetPodClass()) < len(r.classes) {
			class := r.classes[f.GetPodClass()]
			if f.GetNever() {
				r.never[gradeKey{from, class.Hash()}] = true
			}
			s, ruled := c.shards.summaries[from], c.rules.ruledClass(g.name.Namespace, class)
			if r.area != nil { // says nothing of nodes outside
			} else if s != nil && r.least == 0 && !ruled {
				s.room[class.Hash()] = 0
			} else if s != nil && r.least > 0 {
				c.shards.learnGrade(r, from, s, class, f.GetGrade())
			}
		}
		if r.refused[from] = r.refused[from] || r.least == 0; r.least > 0 {
			r.rest = nil
		}
	}
	if left := m.GetLeft(); left != nil {
		c.shards.onSummary(from, left)
		r.done[from] = r.refused[from] && !r.mayTakeOthers(g, from) || r.least > 0 && r.done[from]
	}
	if s := c.shards.summaries[from]; s != nil {
		c.searchers.unskip(s, back)
	}
	c.mark(g)
}

// mayTakeOthers reports whether pods are missing of classes that a shard has not refused.
func (r *round) mayTakeOthers(g *gang, shard api.Incarnation) bool {
	if r.area != nil {
		return false
	}
	kinds := kindsOf(g.pick(g.seeks))
	return len(kinds) <= fewKinds && len(r.notVain(shard, kinds)) > 0
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
