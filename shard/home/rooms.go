package home

import (
	"maps"
	"math"
	"slices"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/shard/event"
	"basalt.dev/basalt/shard/home/report"
)

// Rooms of a claim (claim.go): what node shards hold for the pods of a gang, or have promised once others have left.

// rooms is how a gang asks shards for the rooms of a claim: one request to each may be open at a time.
type rooms struct {
	calls map[api.Incarnation]*roomCall
	turn  int       // index of the member that is asked for missing pods next
	tried int       // members asked since a pod was found
	again time.Time // when they are asked once more

	slices map[string]string // of a gang with slices: the domain of each pod, where it is not that of its node
	short  time.Time         // since when some pods have none

	looked, left time.Time // when awaited pods were looked for last, and seen last
	since        time.Time // when the gang, which is charged, began to wait for them, or for nodes to become free

	drains bool // they wait for nodes to become free on their own

	kept bool // node shards may have rooms that no pod is known to have here: those of committed pods, or what another home requested
}

// end forgets what was requested for a claim.
func (r *rooms) end() { *r = rooms{} }

// found takes note that every pod is held. Where the slices are is kept.
func (r *rooms) found() { *r = rooms{slices: r.slices} }

// keep takes note of whether node shards may have rooms that no pod is known to have here.
func (r *rooms) keep(rooms bool) { r.kept = rooms }

// drain takes note that the rooms wait, from now on, for nodes to become free on their own.
func (r *rooms) drain(now time.Time) { r.drains, r.since = true, now }

// await begins to wait for those who leave for an accepted claim.
func (r *rooms) await(slices map[string]string) { r.since, r.slices = time.Time{}, slices }

// roomCall is the last HoldRequest to a shard. Its serial is that of unsolicited replies, too.
type roomCall struct {
	serial   uint64
	sent     time.Time
	answered bool
	pods     []*pod
}

// settled is how long after the last awaited pod is gone promises may take to become holds. Then the missing pods are searched.
const settled = 10 * time.Second

// Awaited pods may take api.Overdue longer than their grace period to leave, of which api.GraceMost counts at most,
// as for a claim at the coordinator. Then a gang that is charged gives all back, and looks for other rooms: the node of
// a pod may be dead.

// worstRank takes no other gang's holds.
func worstRank(g *gang) *wire.Rank {
	return &wire.Rank{Priority: math.MinInt64, Order: math.MaxUint64, GangUid: g.id}
}

// withdrawRooms withdraws all that was requested for a gang.
func (c *claims) withdrawRooms(g *gang) {
	shards := map[api.Incarnation]bool{}
	for shard := range g.rooms.calls {
		shards[shard] = true
	}
	if g.rooms.kept {
		maps.Copy(shards, g.search.touched)
	}
	for _, p := range g.members {
		if p.hasRoom() {
			shards[p.shard] = true
			p.letGo()
		}
	}
	if len(shards) > 0 {
		serial := c.serial(g)
		for _, shard := range api.SortedKeys(shards) {
			if c.isMember(shard) {
				c.sendWithdraw(g, shard, serial, nil)
			}
		}
	}
	g.rooms.end()
	c.census.recount(g)
}

// sendRooms requests rooms from a shard, or renews them.
func (c *claims) sendRooms(g *gang, shard api.Incarnation, pods []*pod, awaits []string, stands bool) {
	if g.rooms.calls == nil {
		g.rooms.calls = map[api.Incarnation]*roomCall{}
	}
	if g.claim == nil && g.rooms.drains && !g.charge.claimed() {
		awaits, stands = []string{wire.Everybody}, false
	}
	o := &roomCall{serial: c.serial(g), sent: c.now, pods: pods}
	g.rooms.calls[shard] = o
	rank := g.charge.rank
	if rank == nil || (!g.charge.reserved() || g.charge.reserve.grows()) && !stands {
		rank = worstRank(g)
	}
	if strays := c.evictions.strays(awaits); len(strays) > 0 {
		awaits = slices.Concat(awaits, strays)
	}
	var list classes
	m := &wire.HoldRequest{Gang: g.message(), Serial: o.serial, Rank: rank, TableEpoch: uint64(c.table.Epoch),
		TtlMs: c.cfg.HoldFor.Milliseconds(), Trace: c.traceOf(g, spanHold), Awaits: awaits, Claimed: stands}
	for _, p := range pods {
		m.Pods = append(m.Pods, &wire.PodWant{PodUid: p.UID, PodClass: list.of(p.asked)})
	}
	m.Classes, m.Beside = list.wire, c.rules.beside(g, shard, pods)
	c.census.confineTo(c.roomArea(g, pods), m, pods)
	c.countBytes(g.name.Namespace, list.bytes())
	g.search.asks(shard)
	c.wakeAt(g, c.now.Add(c.cfg.AskAgain))
	c.send(shard, &wire.Envelope{Body: &wire.Envelope_HoldRequest{HoldRequest: m}})
}

// roomArea is the domain that the rooms of a gang are to be in, nil for any, and those of the slices of some pods.
func (c *claims) roomArea(g *gang, pods []*pod) *area {
	within, of := []*wire.Label{g.charge.within}, g.rooms.slices
	if g.claim != nil {
		within, of = []*wire.Label{g.claim.closer, g.claim.within}, g.claim.slices
	}
	_, inner := g.domainKeys()
	a := &area{survey: &survey{}}
	for _, l := range within {
		if l != nil {
			a.keys, a.values = append(a.keys, l.GetKey()), append(a.values, l.GetValue())
		}
	}
	if len(a.keys) == 0 && inner == "" {
		return nil
	}
	if inner != "" {
		a.keys, a.of = append(a.keys, inner), map[string]*room{}
		for _, p := range pods {
			if value, known := of[p.UID]; known {
				a.of[p.UID] = &room{values: []string{value}}
			}
		}
	}
	return a
}

// inSlice returns those of some pods without a room of which it is known in which domain their slice is.
func (c *claims) inSlice(g *gang, missing []*pod) []*pod {
	outer, inner := g.domainKeys()
	if inner == "" {
		return missing
	}
	if g.rooms.slices == nil {
		g.rooms.slices = map[string]string{}
	}
	for _, o := range c.census.partsOf(g, domainKeys(outer, inner), missing) {
		if o.in == "" {
			continue
		}
		for _, p := range o.pods {
			if _, known := g.rooms.slices[p.UID]; !known {
				g.rooms.slices[p.UID] = valueOf(o.in)
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(missing), func(p *pod) bool { _, known := g.rooms.slices[p.UID]; return !known })
}

// renewRooms repeats the requests for what is held or promised each second: it renews holds, and asks whether promises have become holds.
func (c *claims) renewRooms(g *gang, awaits []string, stands bool) {
	at := map[api.Incarnation][]*pod{}
	for _, p := range g.roomless() {
		if p.hasRoom() {
			at[p.shard] = append(at[p.shard], p)
		}
	}
	for _, shard := range api.SortedKeys(at) {
		if o := g.rooms.calls[shard]; o != nil && c.now.Before(o.sent.Add(c.cfg.AskAgain)) {
			c.wakeAt(g, o.sent.Add(c.cfg.AskAgain))
		} else if c.isMember(shard) {
			c.sendRooms(g, shard, at[shard], awaits, stands)
		}
	}
}

// keepRooms keeps the rooms of a gang whose claim stands, or stood, and reports whether every pod is held. Pods without a room, as an
// heir's are, or those whose promise was lost, are requested from all shards in turn.
func (c *Core) keepRooms(g *gang) bool {
	ch := &g.charge
	pods := g.roomless()
	all := true
	var missing []*pod
	for _, p := range pods {
		all = all && (p.stage == held)
		if p.stage == nowhere {
			missing = append(missing, p)
		}
	}
	if all && g.state == holding {
		g.rooms.found() // if a Commit is refused, the rooms are requested in the same domains
		if g.blocked.Is(v1beta1.ReasonWaiting) {
			g.unblock()
		}
		return true
	}
	if g.state == holding && ch.claimed() {
		g.block(report.Reason{Code: v1beta1.ReasonWaiting, Message: report.Claims(ch.victims)})
	}
	if g.state == holding && ch.claimed() && c.evictions.inVain(g) {
		c.renounce(g)
		return false
	}
	if g.tally.promised > 0 && ch.claimed() && c.evictions.haveLeft(g) {
		for _, p := range pods {
			if p.stage == promised {
				p.letGo()
				missing = append(missing, p)
			}
		}
	}
	switch {
	case len(missing) == 0:
		g.rooms.short = time.Time{}
	case g.rooms.short.IsZero():
		g.rooms.short = c.now
	}
	// Of a gang that must be together there may be room in other domains, or nothing says which ones.
	if len(missing) > 0 && g.mustBeTogether() && g.state == holding && g.tally.promised == 0 &&
		len(c.claims.inSlice(g, missing)) == 0 {
		c.renounce(g)
		return false
	}
	if len(missing) > 0 {
		c.claims.findRooms(g, missing)
	}
	c.claims.renewRooms(g, ch.awaits, true)
	return false
}

// findRooms requests rooms for pods that have none, from one shard after another. When all were asked, it says that the gang is stuck,
// and begins anew after a while.
func (c *claims) findRooms(g *gang, missing []*pod) {
	ch := &g.charge
	r, n := &g.rooms, len(c.table.Members)
	if o := r.calls[r.asked(c.table.Members)]; o != nil && !o.answered && c.now.Before(o.sent.Add(c.cfg.AskAgain)) {
		c.wakeAt(g, o.sent.Add(c.cfg.AskAgain))
		return
	}
	if r.tried >= n {
		if r.again.IsZero() {
			r.again = c.now.Add(c.cfg.AskAgain)
		}
		if c.now.Before(r.again) {
			c.wakeAt(g, r.again)
			c.sayStuck(g)
			return
		}
		r.tried, r.again = 0, time.Time{}
	}
	missing = c.inSlice(g, missing)
	c.rules.ask(missing)
	for range n {
		shard := c.table.Members[r.turn%n].Incarnation
		r.turn, r.tried = r.turn%n+1, r.tried+1
		if c.shards.owned[shard] > 0 && len(missing) > 0 {
			if ask := append(g.pick(func(p *pod) bool { return p.shard == shard && p.hasRoom() }), missing...); len(ask) <= c.cfg.HoldPods {
				c.sendRooms(g, shard, ask, ch.awaits, true)
			}
			return
		}
	}
}

// haveLeft reports whether the pods that a gang awaits have been gone for so long that a promise which is not a hold was lost.
func (c *evictions) haveLeft(g *gang) bool {
	r := &g.rooms
	if r.left.IsZero() {
		r.left = c.now
	}
	if c.now.Before(r.looked.Add(c.cfg.AskAgain)) {
		return false
	}
	r.looked = c.now
	if c.stay(g.charge.awaits) {
		r.left = c.now
		return false
	}
	if c.now.Before(r.left.Add(settled)) {
		return false
	}
	r.left = c.now
	return true
}

// inVain reports whether a gang that is charged waits in vain for the rooms of a claim: for promises, as pods stay that
// should have left; or for none, because the room of those who leave, or have left, is somebody's.
func (c *evictions) inVain(g *gang) bool {
	if g.tally.promised > 0 {
		return c.awaitsInVain(g)
	}
	if g.rooms.short.IsZero() {
		return false
	}
	at := g.rooms.short.Add(api.Overdue)
	if c.now.Before(at) {
		c.wakeAt(g, at)
		return false
	}
	return true
}

// stay reports whether one of some pods, or a pod of some gangs, is still there.
func (c *evictions) stay(awaits []string) bool {
	bound := c.boundGangs()
	return slices.ContainsFunc(awaits, func(uid string) bool {
		_, gang := bound[uid]
		return gang || c.pods[uid] != nil && c.pods[uid].isBound()
	})
}

// awaitsInVain reports whether pods that a charged gang awaits are still there, and all of these have had the time to leave.
func (c *evictions) awaitsInVain(g *gang) bool {
	r := &g.rooms
	if r.since.IsZero() {
		r.since = c.now
	}
	at := r.since.Add(api.Overdue)
	if !c.now.Before(at) {
		at = at.Add(min(c.graceOf(g.charge.awaits), api.GraceMost))
	}
	if c.now.Before(at) {
		c.wakeAt(g, at)
		return false
	}
	return c.stay(g.charge.awaits)
}

// asked returns the member that was asked last for missing pods.
func (r *rooms) asked(members []api.Member) api.Incarnation {
	if r.turn == 0 || r.turn > len(members) {
		return ""
	}
	return members[r.turn-1].Incarnation
}

// onRoomReply takes the answer to a request for rooms, also one that was sent unasked because a promise has become a hold. It reports
// whether it was one.
func (c *claims) onRoomReply(g *gang, from api.Incarnation, m *wire.HoldReply) bool {
	o := g.rooms.calls[from]
	if o == nil || o.serial != m.GetSerial() {
		return false
	}
	o.answered = true
	if g.withdraw != nil {
		return true
	}
	nodes, promises := map[string]string{}, map[string]string{}
	for _, h := range m.GetHeld() {
		nodes[h.GetPodUid()] = h.GetNode()
	}
	for _, h := range m.GetPromised() {
		promises[h.GetPodUid()] = h.GetNode()
	}
	for _, p := range o.pods {
		if p.gang != g || p.stage == committed || p.stage == bound || p.stage != nowhere && p.shard != from {
			continue
		}
		was := p.stage
		if node, got := nodes[p.UID]; got {
			p.hold(from, node)
		} else if node, got := promises[p.UID]; got {
			p.promise(from, node)
		} else {
			p.letGo()
		}
		if was == nowhere && p.stage != nowhere {
			g.rooms.tried = 0
		}
	}
	c.census.recount(g)
	c.mark(g)
	return true
}

// graceOf returns the longest that one of some pods, or a pod of some gangs, may take to leave.
func (c *evictions) graceOf(awaits []string) (longest time.Duration) {
	bound := c.boundGangs()
	for _, uid := range awaits {
		if g := bound[uid]; g != nil {
			longest = max(longest, g.grace)
		}
		if p := c.pods[uid]; p != nil {
			longest = max(longest, time.Duration(p.GraceSeconds)*time.Second)
		}
	}
	return longest
}

// sayStuck tells the coordinator that a gang which is charged found no room. It may get a mandate.
func (c *claims) sayStuck(g *gang) {
	ch := &g.charge
	if g.claim != nil || !ch.reserved() || ch.reserve != nil || ch.origin == forcedOn || g.blocked.None() ||
		c.table == nil {
		return
	}
	if !g.mayClaim() && !ch.patient { // it is patient for as long as it says so
		return
	}
	if ch.said == 0 { // an heir has asked for nothing yet
		ch.say(c.serial(g))
	}
	if c.due(g, &ch.stuck, c.cfg.ResendEvery, c.cfg.ResendEvery) {
		c.send(event.ToCoordinator, &wire.Envelope{Body: &wire.Envelope_Stuck{Stuck: &wire.Stuck{
			Gang: g.message(), Attempt: ch.attempt, Serial: ch.said, TableEpoch: uint64(c.table.Epoch)}}})
	}
}
