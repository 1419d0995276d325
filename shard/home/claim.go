package home

import (
	"cmp"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1alpha1"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/shard/event"
	"basalt.dev/basalt/shard/home/plan"
	"basalt.dev/basalt/shard/home/report"
)

// Claims: other gangs, or surplus pods of them (surplus.go), are evicted so that this one can start. bench/prove/claims has the proved rules
// (R1 to R44).
//
// A gang that lacks quota (waiting) or room (holding) may get a Mandate. Its home asks every node shard what room there is and what there
// would be without the candidates (RoomProbe), plans (package plan), and requests the rooms of the plan from all shards at once. A shard
// holds what is free, and promises what is free once the pods of the gangs in HoldRequest.awaits are gone. When every pod is held
// or promised, the home sends a Claim (R20); if anything is refused, it withdraws the whole plan and says that there is none any more (R24).
//
// Once the claim is accepted, the record of the gang names it, and the gangs that it awaits. The rooms are renewed each second
// until every pod is held and the gang is granted (R22); then it is prepared as any other. What the record names stays until the next
// attempt (R26). A gang that is charged keeps its rooms when a further plan fails (R27).
//
// A claim that has no plan, or is refused, changes nothing: the gang waits, or searches, as before.
//
// What keeps a gang from starting but room makes no plan: what its objects lack is no reason to request a reservation (obstacle), and a gang
// whose volumes could not be bound has nobody evicted for a while (volumes.go).
//
// Not yet: gangs with a required topology domain make no claims (a promise would have to be in one domain with all others), nor
// gangs with more than Config.HoldPods pods at one shard, whose requests would not fit into one message.

// claiming is the work on one mandate.
type claiming struct {
	step    claimStep
	mandate *wire.Mandate
	pods    []*pod // that need room

	began time.Time // the step

	// probing
	probe      *wire.RoomProbe
	sent       time.Time
	open       map[api.Incarnation]bool // shards that have not answered
	later      bool                     // one has not counted
	kinds      []plan.Class             // of its pods, as they were asked about: what a pod asks for may change
	members    [][]*pod                 // by kind
	nodes      []plan.Node
	candidates []*wire.Candidate      // of the mandate, in the order in which they are to go (disrupt.go)
	singles    map[int]plan.Candidate // surplus pods of candidates, by index

	// requesting and proposing
	awaits  []string
	asked   map[api.Incarnation][]*pod // what each shard was asked for
	claim   call
	message *wire.Claim
}

type claimStep uint8

const (
	probing    claimStep = iota // RoomProbes were sent
	requesting                  // HoldRequests were sent
	proposing                   // a Claim was sent
)

// rooms is how a gang asks shards for the rooms of a claim: one request to each may be open at a time.
type rooms struct {
	calls map[api.Incarnation]*roomCall
	turn  int       // index of the member that is asked for missing pods next
	tried int       // members asked since a pod was found
	again time.Time // when they are asked once more

	looked, left time.Time // when awaited pods were looked for last, and seen last
	since        time.Time // when the gang, which is charged, began to wait for them
}

// roomCall is the last HoldRequest to a shard. Its serial is that of unsolicited replies, too.
type roomCall struct {
	serial   uint64
	sent     time.Time
	answered bool
	pods     []*pod
}

// settled is how long after the last awaited pod is gone promises may take to become holds. Then the missing pods are searched.
const settled = 10 * time.Second

// leaveFor is how much longer than their grace period awaited pods may take to leave, and graceMost the longest that counts of it: as a claim
// waits at the coordinator. Then a gang that is charged gives all back, and looks for other rooms: the node of a pod may be dead.
const (
	leaveFor  = time.Minute
	graceMost = time.Hour
)

// worstRank takes no other gang's holds.
func worstRank(g *gang) *wire.Rank {
	return &wire.Rank{Priority: math.MinInt64, Order: math.MaxUint64, GangUid: g.id}
}

// saysPreemptible returns what the PodGroup of the gang says, or the pod that is a gang of its own; nil for nothing.
func (g *gang) saysPreemptible() *bool {
	if !g.single {
		if g.group == nil {
			return nil
		}
		return g.group.Preemptible
	}
	for _, p := range g.members {
		if !p.Finished && p.Preemptible != nil {
			return p.Preemptible
		}
	}
	return nil
}

// preemptible reports whether the gang's pods may be evicted for another gang: it says so, or a controller makes each of them again.
func (g *gang) preemptible() bool {
	if says := g.saysPreemptible(); says != nil {
		return *says
	}
	for _, p := range g.members {
		if !p.Finished && !p.Owned {
			return false
		}
	}
	return len(g.members) > 0
}

// kept reports whether the gang says that its pods may not be evicted. Then it does not borrow, either.
func (g *gang) kept() bool {
	says := g.saysPreemptible()
	return says != nil && !*says
}

// mayClaim reports whether other gangs may be evicted so that this one can start.
func (g *gang) mayClaim() bool {
	if g.started || g.tally.bound > 0 || g.placed > 0 || g.mustBeTogether() {
		return false
	}
	for _, p := range g.members {
		if p.PreemptionNever && !p.Finished {
			return false
		}
	}
	return true
}

// claimed reports whether the gang's record names a claim, or gangs that leave for it.
func (ch *charge) claimed() bool { return ch.claim != 0 || len(ch.awaits) > 0 }

// renounce has a gang that changed give up its claim, and reports whether it had one: its reservation, or request, is given back,
// and it asks under a new attempt, which drops the claim at the coordinator (R18).
func (c *Core) renounce(g *gang) bool {
	if g.claim == nil && !g.charge.claimed() {
		return false
	}
	if g.charge.claimed() || g.claim.step == proposing {
		g.charge.renounced = true
	}
	if g.outstanding() {
		c.retreat(g, startOver)
		return true
	}
	g.claim = nil
	if !g.charge.renounced || g.tally.chargeable > 0 {
		return false
	}
	c.release(g)
	return true
}

// sayStuck tells the coordinator that a gang which is charged found no room. It may get a mandate.
func (c *Core) sayStuck(g *gang) {
	ch := &g.charge
	if g.claim != nil || !ch.reserved || ch.reserve != nil || g.blocked.None() || ch.forced || !g.mayClaim() || c.table == nil {
		return
	}
	if ch.said == 0 { // an heir has asked for nothing yet
		ch.said = c.serial(g)
	}
	if c.due(g, &ch.stuck, c.cfg.ResendEvery, c.cfg.ResendEvery) {
		c.send(event.ToCoordinator, &wire.Envelope{Body: &wire.Envelope_Stuck{Stuck: &wire.Stuck{
			Gang: g.message(), Attempt: ch.attempt, Serial: ch.said, TableEpoch: uint64(c.table.Epoch)}}})
	}
}

// onMandate begins to make a plan.
func (c *Core) onMandate(m *wire.Mandate) {
	g := c.gangs[m.GetGangUid()]
	if g == nil || g.dropped || c.table == nil {
		return
	}
	ch := &g.charge
	if m.GetAttempt() != ch.attempt || ch.attempt == 0 || m.GetTerm() != c.term || m.GetNumber() <= ch.mandate && ch.mandateTerm == m.GetTerm() || !g.mayClaim() {
		return
	}
	switch {
	case g.state == waiting && ch.reserve != nil && ch.reserve.serial == m.GetSerial() && !ch.claimed():
	case g.state == holding && ch.reserve == nil && ch.said == m.GetSerial():
	default:
		return
	}
	if g.claim != nil {
		if g.claim.step == proposing && len(g.claim.message.GetVictims()) > 0 {
			return // it may have been accepted
		}
		c.withdrawPlan(g)
	}
	ch.mandate, ch.mandateTerm = m.GetNumber(), m.GetTerm()
	g.search.round = nil
	x := &claiming{mandate: m, pods: g.roomless(), began: c.now, open: map[api.Incarnation]bool{}}
	g.claim = x
	var list classes
	for _, p := range x.pods {
		i := int(list.of(p.asked))
		if i == len(x.kinds) {
			x.kinds, x.members = append(x.kinds, plan.Class{Requests: p.asked.Room(), Apart: len(p.asked.Repels) > 0}), append(x.members, nil)
		}
		x.kinds[i].Pods++
		x.members[i] = append(x.members[i], p)
	}
	if len(x.kinds) > plan.MaxClasses {
		c.sayNoPlan(g, fmt.Sprintf("its pods are of %d different kinds, the limit is %d", len(x.kinds), plan.MaxClasses))
		c.mark(g)
		return
	}
	if why := c.distrusts(g); why != "" {
		c.sayNoPlan(g, why)
		c.mark(g)
		return
	}
	c.roomProbes++
	x.probe = &wire.RoomProbe{Namespace: g.name.Namespace, Classes: list.wire, Serial: c.roomProbes, GangUid: g.id}
	bound := c.victimPods(m.GetCandidates())
	x.candidates = c.inTurn(m.GetCandidates(), bound)
	x.singles = c.surplusOf(x.candidates, bound)
	for i, of := range x.candidates {
		x.probe.Candidates = append(x.probe.Candidates, of.GetGang().GetUid())
		for _, p := range x.singles[i].Pods {
			x.probe.Candidates = append(x.probe.Candidates, p.UID)
		}
	}
	for _, uid := range ch.awaits {
		if !slices.Contains(x.probe.Candidates, uid) {
			x.probe.Candidates = append(x.probe.Candidates, uid)
		}
	}
	for _, member := range c.table.Members {
		if c.owned[member.Incarnation] > 0 {
			x.open[member.Incarnation] = true
			c.countBytes(g.name.Namespace, list.bytes())
		}
	}
	c.probed.put(fmt.Sprint(x.probe.Serial), g.id)
	c.mark(g)
}

// roomless returns the pods of a gang that are to be placed and have no intent.
func (g *gang) roomless() []*pod {
	if a := g.charge.reserve; g.state == waiting && a != nil {
		return a.pods
	}
	return g.pick(func(p *pod) bool { return p.charged && p.candidate() && p.stage != committed })
}

func (c *Core) onRooms(from api.Incarnation, m *wire.Rooms) {
	id, _ := c.probed.get(fmt.Sprint(m.GetSerial()))
	g := c.gangs[id]
	if g == nil || g.claim == nil || g.claim.step != probing || g.claim.probe.GetSerial() != m.GetSerial() || !g.claim.open[from] {
		return
	}
	x := g.claim
	delete(x.open, from)
	x.later = x.later || m.GetLater()
	awaited := api.SetOf(g.charge.awaits)
	for _, n := range m.GetNodes() {
		free, err := wire.ToResources(n.GetFree())
		if err != nil {
			continue
		}
		of := plan.Node{Shard: from, Free: free, Classes: n.GetClasses()}
		for _, l := range n.GetLeaves() {
			if amounts, err := wire.ToResources(l.GetAmounts()); err == nil {
				of.Leaves = append(of.Leaves, plan.Leaves{Gang: l.GetGangUid(), Amounts: amounts,
					Anyway: l.GetAnyway() || awaited[l.GetGangUid()]})
			}
		}
		x.nodes = append(x.nodes, of)
	}
	if len(x.open) == 0 {
		c.mark(g)
	}
}

// driveClaim takes the work on a mandate as far as it gets.
func (c *Core) driveClaim(g *gang) {
	x := g.claim
	if !g.mayClaim() {
		c.withdrawPlan(g)
		return
	}
	if x.step == probing && !c.awaitRooms(g, x) {
		return
	}
	c.driveAnswered(g)
}

// driveAnswered goes on with a mandate when all rooms are known.
func (c *Core) driveAnswered(g *gang) {
	x := g.claim
	if x == nil {
		return
	}
	if x.step == requesting {
		waits := false
		for _, shard := range api.SortedKeys(x.asked) {
			o := g.rooms.calls[shard]
			switch late := x.began.Add(c.cfg.SkipAfter); {
			case !c.isMember(shard) || o == nil:
				c.failPlan(g, "a shard of the plan has left")
				return
			case o.answered:
			case !c.now.Before(late):
				c.failPlan(g, "a shard of the plan did not answer")
				return
			default:
				waits = true
				c.wakeAt(g, late)
				if at := o.sent.Add(c.cfg.AskAgain); !c.now.Before(at) {
					c.sendRooms(g, shard, o.pods, x.awaits, false)
				} else {
					c.wakeAt(g, at)
				}
			}
		}
		if waits {
			return
		}
		for _, p := range x.pods {
			if p.gang != g || p.stage != held && p.stage != promised {
				c.failPlan(g, "what was free, or was to become free, has changed since")
				return
			}
		}
		c.traceClaim(g, x, spanPlan, slog.Int("victims", len(x.message.GetVictims())), slog.Int("pods", len(x.pods)))
		x.step, x.began = proposing, c.now
		x.claim = call{}
	}
	if x.step == proposing {
		if len(x.message.GetVictims()) > 0 {
			c.renewRooms(g, x.awaits, g.charge.claimed())
		}
		if c.due(g, &x.claim, c.cfg.AskAgain, c.cfg.ResendEvery) {
			c.send(event.ToCoordinator, &wire.Envelope{Body: &wire.Envelope_Claim{Claim: x.message}})
		}
	}
}

// awaitRooms waits for the answers to RoomProbes, makes the plan, and requests its rooms. It reports whether there is more to do.
func (c *Core) awaitRooms(g *gang, x *claiming) bool {
	for shard := range x.open {
		if !c.isMember(shard) {
			delete(x.open, shard)
		}
	}
	if until := x.began.Add(c.cfg.SkipAfter); len(x.open) > 0 && c.now.Before(until) {
		if again := x.sent.Add(c.cfg.AskAgain); x.sent.IsZero() || !c.now.Before(again) {
			x.sent = c.now
			for _, m := range c.table.Members {
				if x.open[m.Incarnation] {
					c.send(m.Incarnation, &wire.Envelope{Body: &wire.Envelope_RoomProbe{RoomProbe: x.probe}})
				}
			}
		}
		c.wakeAt(g, x.sent.Add(c.cfg.AskAgain))
		c.wakeAt(g, until)
		return false
	}
	c.traceClaim(g, x, spanProbe, slog.Int("candidates", len(x.candidates)), slog.Int("nodes", len(x.nodes)))
	x.began = c.now
	if x.later {
		c.sayNoPlan(g, "the constraints of its namespace take too much time to compare")
		return true
	}
	m := &plan.Mandate{AtLeast: amounts(x.mandate.GetAtLeast())}
	for _, l := range x.mandate.GetLacks() {
		m.Lacks = append(m.Lacks, plan.Lack{Queue: l.GetQueue(), Resource: l.GetResource(), Short: l.GetShort()})
	}
	for _, s := range x.mandate.GetSides() {
		m.Sides = append(m.Sides, plan.Side{Parent: int(s.GetParent()), Above: amounts(s.GetAbove()), Spare: amounts(s.GetSpare()), Borrowed: s.GetBorrowed()})
	}
	for i, of := range x.candidates {
		m.Candidates = append(m.Candidates, plan.Candidate{Gang: of.GetGang().GetUid(), Queue: of.GetGang().GetQueue(), Demand: amounts(of.GetDemand()), Side: int(of.GetSide()),
			Surplus: x.singles[i].Surplus, Pods: x.singles[i].Pods})
	}
	slices.SortStableFunc(x.nodes, func(a, b plan.Node) int { return cmp.Compare(a.Shard, b.Shard) })
	found, result := plan.Find(x.kinds, x.nodes, m, 0)
	x.nodes = nil
	if result != plan.Found {
		c.sayNoPlan(g, found.Why)
		return true
	}
	x.awaits = union(g.charge.awaits, found.Awaits)
	x.message = c.claimMessage(g, x)
	x.message.Awaits = x.awaits
	x.message.Victims = victimsOf(x.candidates, x.singles, &found)
	x.message.GraceMs = c.graceOf(x.awaits).Milliseconds()
	x.asked = assign(found.Shares, x.members)
	x.step = requesting
	for _, shard := range api.SortedKeys(x.asked) {
		if len(x.asked[shard]) > c.cfg.HoldPods {
			c.sayNoPlan(g, fmt.Sprintf("more than %d of its pods would go to one shard, the limit of a request", c.cfg.HoldPods))
			return true
		}
	}
	for _, shard := range api.SortedKeys(x.asked) {
		c.sendRooms(g, shard, x.asked[shard], x.awaits, false)
	}
	return true
}

// assign decides which pods are requested from which shard: those that are held there already first.
func assign(shares []plan.Share, members [][]*pod) map[api.Incarnation][]*pod {
	out := map[api.Incarnation][]*pod{}
	taken := map[*pod]bool{}
	take := func(s plan.Share, left int, wanted func(*pod) bool) int {
		for _, p := range members[s.Class] {
			if left > 0 && !taken[p] && wanted(p) {
				taken[p] = true
				out[s.Shard] = append(out[s.Shard], p)
				left--
			}
		}
		return left
	}
	left := make([]int, len(shares))
	for i, s := range shares {
		left[i] = take(s, s.Pods, func(p *pod) bool { return (p.stage == held || p.stage == promised) && p.shard == s.Shard })
	}
	for _, anywhere := range []bool{false, true} {
		for i, s := range shares {
			left[i] = take(s, left[i], func(p *pod) bool { return anywhere || p.stage == nowhere })
		}
	}
	return out
}

// graceOf returns the longest that one of some pods, or a pod of some gangs, may take to leave.
func (c *Core) graceOf(awaits []string) (longest time.Duration) {
	graces := c.boundGangs()
	for _, uid := range awaits {
		longest = max(longest, graces[uid])
		if p := c.pods[uid]; p != nil {
			longest = max(longest, time.Duration(p.GraceSeconds)*time.Second)
		}
	}
	return longest
}

// boundGangs are the gangs that have bound pods, and how long these may take to leave. It is a look at all pods of the cluster, so one a
// second serves all claims.
func (c *Core) boundGangs() map[string]time.Duration {
	if c.graces != nil && c.now.Before(c.gracesAt.Add(c.cfg.AskAgain)) {
		return c.graces
	}
	c.gracesAt, c.graces = c.now, map[string]time.Duration{}
	for _, p := range c.pods {
		if p.isBound() {
			uid := gangOf(p)
			c.graces[uid] = max(c.graces[uid], time.Duration(p.GraceSeconds)*time.Second)
		}
	}
	return c.graces
}

// gangOf returns the UID of the gang that a bound pod counts for, as far as this shard knows.
func gangOf(p *pod) string {
	if p.pinned != "" {
		return p.pinned
	}
	return p.Gang
}

func (c *Core) claimMessage(g *gang, x *claiming) *wire.Claim {
	return &wire.Claim{Gang: g.message(), Attempt: g.charge.attempt, Serial: x.mandate.GetSerial(), Mandate: x.mandate.GetNumber(),
		Term: x.mandate.GetTerm(), TableEpoch: uint64(c.table.Epoch)}
}

// sayNoPlan answers a mandate without victims.
func (c *Core) sayNoPlan(g *gang, why string) {
	x := g.claim
	c.ClaimsUnplanned++
	x.step, x.claim, x.awaits = proposing, call{}, nil
	x.message = c.claimMessage(g, x)
	x.message.Why = report.Short(why)
}

// failPlan gives a plan up that a shard refused in part (R24).
func (c *Core) failPlan(g *gang, why string) {
	x := g.claim
	c.withdrawPlan(g)
	g.claim = x
	c.sayNoPlan(g, why)
	x.message.Stale = true
	c.driveAnswered(g)
}

// withdrawPlan ends the work on a mandate. Its rooms are withdrawn, unless the gang is charged and has rooms by an earlier claim: what
// others left for it stays (R27).
func (c *Core) withdrawPlan(g *gang) {
	g.claim = nil
	if g.charge.claimed() {
		return
	}
	c.withdrawRooms(g)
}

// withdrawRooms withdraws all that was requested for a gang.
func (c *Core) withdrawRooms(g *gang) {
	shards := map[api.Incarnation]bool{}
	for shard := range g.rooms.calls {
		shards[shard] = true
	}
	for _, p := range g.members {
		if p.stage == held || p.stage == promised {
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
	g.rooms = rooms{}
	g.tally = c.count(g)
}

// sendRooms requests rooms from a shard, or renews them.
func (c *Core) sendRooms(g *gang, shard api.Incarnation, pods []*pod, awaits []string, stands bool) {
	if g.rooms.calls == nil {
		g.rooms.calls = map[api.Incarnation]*roomCall{}
	}
	o := &roomCall{serial: c.serial(g), sent: c.now, pods: pods}
	g.rooms.calls[shard] = o
	rank := g.charge.rank
	if rank == nil || !g.charge.reserved && !stands {
		rank = worstRank(g)
	}
	var list classes
	m := &wire.HoldRequest{Gang: g.message(), Serial: o.serial, Rank: rank, TableEpoch: uint64(c.table.Epoch),
		TtlMs: c.cfg.HoldFor.Milliseconds(), Trace: c.traceOf(g, spanHold), Awaits: awaits, Claimed: stands}
	for _, p := range pods {
		m.Pods = append(m.Pods, &wire.PodWant{PodUid: p.UID, PodClass: list.of(p.asked)})
	}
	m.Classes, m.Beside = list.wire, c.beside(g, shard, pods)
	c.countBytes(g.name.Namespace, list.bytes())
	g.touch(shard)
	c.wakeAt(g, c.now.Add(c.cfg.AskAgain))
	c.send(shard, &wire.Envelope{Body: &wire.Envelope_HoldRequest{HoldRequest: m}})
}

// renewRooms repeats the requests for what is held or promised each second: it renews holds, and asks whether promises have become holds.
func (c *Core) renewRooms(g *gang, awaits []string, stands bool) {
	at := map[api.Incarnation][]*pod{}
	for _, p := range g.roomless() {
		if p.stage == held || p.stage == promised {
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
		g.rooms = rooms{}
		if g.blocked.Is(v1alpha1.ReasonWaiting) {
			g.blocked = report.Reason{}
		}
		return true
	}
	if g.state == holding {
		g.blocked = report.Reason{Code: v1alpha1.ReasonWaiting, Message: report.Claims(ch.victims)}
	}
	if g.state == holding && g.tally.promised > 0 && c.awaitsInVain(g) {
		c.renounce(g)
		return false
	}
	if g.tally.promised > 0 && c.haveLeft(g) {
		for _, p := range pods {
			if p.stage == promised {
				p.letGo()
				missing = append(missing, p)
			}
		}
	}
	if len(missing) > 0 {
		c.findRooms(g, missing)
	}
	c.renewRooms(g, ch.awaits, true)
	return false
}

// findRooms requests rooms for pods that have none, from one shard after another. When all were asked, it says that the gang is stuck,
// and begins anew after a while.
func (c *Core) findRooms(g *gang, missing []*pod) {
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
	for range n {
		shard := c.table.Members[r.turn%n].Incarnation
		r.turn, r.tried = r.turn%n+1, r.tried+1
		if c.owned[shard] > 0 {
			if ask := append(g.pick(func(p *pod) bool { return p.shard == shard && (p.stage == held || p.stage == promised) }), missing...); len(ask) <= c.cfg.HoldPods {
				c.sendRooms(g, shard, ask, ch.awaits, true)
			}
			return
		}
	}
}

// haveLeft reports whether the pods that a gang awaits have been gone for so long that a promise which is not a hold was lost.
func (c *Core) haveLeft(g *gang) bool {
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

// stay reports whether one of some pods, or a pod of some gangs, is still there.
func (c *Core) stay(awaits []string) bool {
	bound := c.boundGangs()
	return slices.ContainsFunc(awaits, func(uid string) bool {
		_, gang := bound[uid]
		return gang || c.pods[uid] != nil && c.pods[uid].isBound()
	})
}

// awaitsInVain reports whether pods that a charged gang awaits are still there, and all of these have had the time to leave.
func (c *Core) awaitsInVain(g *gang) bool {
	r := &g.rooms
	if r.since.IsZero() {
		r.since = c.now
	}
	at := r.since.Add(leaveFor)
	if !c.now.Before(at) {
		at = at.Add(min(c.graceOf(g.charge.awaits), graceMost))
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
func (c *Core) onRoomReply(g *gang, from api.Incarnation, m *wire.HoldReply) bool {
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
			p.stage, p.shard, p.node = held, from, node
		} else if node, got := promises[p.UID]; got {
			p.stage, p.shard, p.node = promised, from, node
		} else {
			p.letGo()
		}
		if was == nowhere && p.stage != nowhere {
			g.rooms.tried = 0
		}
	}
	g.tally = c.count(g)
	c.mark(g)
	return true
}

func (c *Core) onClaimReply(m *wire.ClaimReply) {
	g := c.gangs[m.GetGangUid()]
	if g == nil || m.GetAttempt() != g.charge.attempt {
		return
	}
	ch, x := &g.charge, g.claim
	open := x != nil && x.step == proposing && x.mandate.GetNumber() == m.GetMandate()
	if !open && ch.claim != m.GetMandate() {
		return
	}
	if m.GetReservationRevision() > ch.revision && ch.reserved && ch.reserve == nil {
		ch.revision = m.GetReservationRevision()
	}
	c.mark(g)
	ch.stuck = call{}
	if open {
		c.traceClaim(g, x, spanClaim, slog.Bool("accepted", m.GetAccepted()), slog.String("message", m.GetMessage()))
	}
	if m.GetAccepted() {
		if open && len(x.message.GetVictims()) > 0 {
			c.ClaimsMade++
			c.claimedPods(x.message.GetVictims(), time.Duration(x.message.GetGraceMs())*time.Millisecond)
			ch.claim, ch.victims = m.GetMandate(), victimNames(x.message.GetVictims())
			ch.awaits = slices.Clone(x.awaits)
			g.claim, g.rooms.since = nil, time.Time{}
			c.tellClaimed(g)
		}
		return
	}
	if open {
		if len(x.message.GetVictims()) > 0 {
			c.ClaimsRefused++
		}
		c.withdrawPlan(g)
		return
	}
	c.ClaimsDropped++
	ch.claim, ch.victims = 0, nil
	spared := api.SetOf(m.GetSpared())
	ch.awaits = slices.DeleteFunc(ch.awaits, func(uid string) bool { return spared[uid] })
	if !ch.reserved {
		ch.awaits = nil
		g.claim = nil
		c.withdrawRooms(g)
	}
}

func victimNames(victims []*wire.Victim) (out []string) {
	for _, v := range victims {
		out = append(out, victimName(v))
	}
	return out
}

// union returns the strings of both, each once.
func union(a, b []string) []string {
	out := slices.Clone(a)
	known := api.SetOf(a)
	for _, s := range b {
		if !known[s] {
			known[s] = true
			out = append(out, s)
		}
	}
	return out
}

func amounts(in []*wire.Amount) api.Resources {
	out, err := wire.ToResources(in)
	if err != nil {
		return nil
	}
	return out
}

// claimsOf reports whether a Reserve says that others may be evicted for the gang.
func (a *reserveCall) claimsOf(g *gang) bool {
	return len(a.pods) > 0 && !a.growth && g.mayClaim()
}
