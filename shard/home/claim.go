package home

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/shard/event"
	"basalt.dev/basalt/shard/fair"
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
// A gang that requires a topology domain, or slices, is planned for one domain after another (plan.FindTogether), and its requests name the
// domain, as those of a search do (domain.go). The record names it, too, for an heir, but not the domains of slices: their heir begins a new attempt.
// One that prefers a domain is planned for such a domain if no more are evicted for that, and no better ones
// (plan.FindNear). Only the first requests name it: what has no room then may go elsewhere.
//
// A gang that has started claims further pods one by one (driveGrowth).
//
// Not yet: gangs with more than Config.HoldPods pods at one shard, whose requests would not fit into one message, make no claims.

// claims is the work on mandates: which gangs are to leave for another, and the rooms for that.
type claims struct {
	*common
	census    *census
	evictions *evictions
	shards    *shards
	rules     *rules
	domains   *domains
	reports   *reports

	plans      fair.Budget            // work on plans of claims (claim.go)
	probed     recent[string, string] // gangs by serial of their RoomProbes
	roomProbes uint64
}

// claiming is the work on one mandate.
type claiming struct {
	step    claimStep
	mandate *wire.Mandate
	pods    []*pod // that need room

	began time.Time // the step

	// probing
	probe      *wire.RoomProbe
	sent       time.Time
	answers    poll
	kinds      []plan.Class // of its pods, as they were asked about: what a pod asks for may change
	members    [][]*pod     // by kind, and in slices by kind and domain
	nodes      []plan.Node
	near       [][]string             // labels of the domains that its pods would rather have than any that will do
	candidates []*wire.Candidate      // of the mandate, in the order in which they are to go (disrupt.go),
	alike      []int                  // and which of them are as good as each other
	singles    map[int]plan.Candidate // surplus pods of candidates, by index
	strays     map[string]string      // whose pods those are that were named with their gangs (boundGangs)

	// requesting and proposing
	awaits  []string
	within  *wire.Label                // the domain of all pods, nil for any
	closer  *wire.Label                // and the one that is only preferred: for the first requests alone
	slices  map[string]string          // and those of slices, by pod
	asked   map[api.Incarnation][]*pod // what each shard was asked for
	claim   call
	message *wire.Claim
}

// planWork is how much work plans may do for a namespace in a second, in units of plan.Budget: at most a tenth of a second. A plan is made in one
// step, and a hard one takes nearly as long. So each namespace has a budget: while it is spent, its gangs make no plan, and try again.
const planWork = 10_000_000

type claimStep uint8

const (
	probing    claimStep = iota // RoomProbes were sent
	requesting                  // HoldRequests were sent
	proposing                   // a Claim was sent
)

// endClaim ends the work on a mandate.
func (g *gang) endClaim() { g.claim = nil }

// renounce has a gang that changed give up its claim, and reports whether it had one: its reservation, or request, is given back,
// and it asks under a new attempt, which drops the claim at the coordinator (R18).
func (c *Core) renounce(g *gang) bool {
	if g.claim == nil && !g.charge.claimed() {
		return false
	}
	if g.charge.claimed() || g.claim.step == proposing {
		g.charge.renounce()
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

// roomless returns the pods of a gang that are to be placed and have no intent.
func (g *gang) roomless() []*pod {
	if a := g.charge.reserve; a != nil && (g.state == waiting || a.grows()) {
		return a.pods
	}
	return g.pick(func(p *pod) bool { return p.charged && p.candidate() && p.stage != committed })
}

// driveClaim takes the work on a mandate as far as it gets.
func (c *claims) driveClaim(g *gang) {
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
func (c *claims) driveAnswered(g *gang) {
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
			if p.gang != g || !p.hasRoom() {
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
func (c *claims) awaitRooms(g *gang, x *claiming) bool {
	c.forgetLeft(x.answers)
	if until := x.began.Add(c.cfg.SkipAfter); x.answers.open() && c.now.Before(until) {
		if again := x.sent.Add(c.cfg.AskAgain); x.sent.IsZero() || !c.now.Before(again) {
			x.sent = c.now
			for _, shard := range c.silent(x.answers) {
				c.send(shard, &wire.Envelope{Body: &wire.Envelope_RoomProbe{RoomProbe: x.probe}})
			}
		}
		c.wakeAt(g, x.sent.Add(c.cfg.AskAgain))
		c.wakeAt(g, until)
		return false
	}
	c.traceClaim(g, x, spanProbe, slog.Int("candidates", len(x.candidates)), slog.Int("nodes", len(x.nodes)))
	x.began = c.now
	if x.answers.later() {
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
		m.Candidates = append(m.Candidates, plan.Candidate{
			Gang: of.GetGang().GetUid(), Queue: of.GetGang().GetQueue(), Demand: amounts(of.GetDemand()),
			Side: int(of.GetSide()), Alike: x.alike[i], Surplus: x.singles[i].Surplus, Pods: x.singles[i].Pods,
		})
	}
	slices.SortStableFunc(x.nodes, func(a, b plan.Node) int { return cmp.Compare(a.Shard, b.Shard) })
	found, shares, ok := c.findPlan(g, x, m)
	x.nodes = nil
	if !ok {
		c.sayNoPlan(g, found.Why)
		return true
	}
	x.awaits = union(g.charge.awaits, found.Awaits)
	x.message = c.claimMessage(g, x)
	x.message.Awaits, x.message.Within = x.awaits, x.within
	x.message.Victims = victimsOf(x.candidates, x.singles, &found)
	x.message.GraceMs = c.evictions.graceOf(x.awaits).Milliseconds()
	x.asked = assign(shares, x.members)
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

func (c *claims) claimMessage(g *gang, x *claiming) *wire.Claim {
	return &wire.Claim{Gang: g.message(), Attempt: g.charge.attempt, Serial: x.mandate.GetSerial(), Mandate: x.mandate.GetNumber(),
		Term: x.mandate.GetTerm(), TableEpoch: uint64(c.table.Epoch)}
}

// sayNoPlan answers a mandate without victims.
func (c *claims) sayNoPlan(g *gang, why string) {
	x := g.claim
	c.ClaimsUnplanned++
	x.step, x.claim, x.awaits, x.within, x.closer, x.slices = proposing, call{}, nil, nil, nil, nil
	x.message = c.claimMessage(g, x)
	x.message.Why = report.Short(why)
}

// failPlan gives a plan up that a shard refused in part (R24).
func (c *claims) failPlan(g *gang, why string) {
	x := g.claim
	c.withdrawPlan(g)
	g.claim = x
	c.sayNoPlan(g, why)
	x.message.Stale = true
	c.driveAnswered(g)
}

// withdrawPlan ends the work on a mandate. Its rooms are withdrawn, unless the gang is charged and has rooms by an
// earlier claim: what others left for it stays (R27). Of a gang that has started it ends the claim, too; the rooms of
// its further pod are withdrawn where none of other pods would go with them, and expire elsewhere.
func (c *claims) withdrawPlan(g *gang) {
	g.claim = nil
	ch := &g.charge
	if !g.started {
		if !ch.claimed() && !g.rooms.drains {
			c.withdrawRooms(g)
		}
		return
	}
	at := map[api.Incarnation]bool{}
	for _, p := range g.pick(func(p *pod) bool { return p.stage == promised || p.stage == held && !p.charged }) {
		at[p.shard] = true
		p.letGo()
	}
	for _, p := range g.pick(func(p *pod) bool { return p.stage == held || p.stage == committed }) {
		delete(at, p.shard)
	}
	for _, shard := range api.SortedKeys(at) {
		if c.isMember(shard) {
			c.sendWithdraw(g, shard, c.serial(g), nil)
		}
	}
	g.rooms.end()
	ch.endClaim()
	c.census.recount(g)
}

func (c *claims) onClaimReply(m *wire.ClaimReply) {
	g := c.gangs[m.GetGangUid()]
	if g == nil || m.GetAttempt() != g.charge.attempt {
		return
	}
	ch, x := &g.charge, g.claim
	open := x != nil && x.step == proposing && x.mandate.GetNumber() == m.GetMandate()
	if !open && ch.claim != m.GetMandate() {
		return
	}
	if m.GetReservationRevision() > ch.revision && ch.reserved() && (ch.reserve == nil || g.started) {
		ch.moved(m.GetReservationRevision())
	}
	c.mark(g)
	ch.unstick()
	if open {
		c.traceClaim(g, x, spanClaim, slog.Bool("accepted", m.GetAccepted()), slog.String("message", m.GetMessage()))
	}
	if m.GetAccepted() {
		if open && len(x.message.GetVictims()) > 0 {
			c.ClaimsMade++
			c.evictions.claimedPods(x.message.GetVictims(), time.Duration(x.message.GetGraceMs())*time.Millisecond)
			ch.claims(m.GetMandate(), victimNames(g.name.Namespace, x.message.GetVictims()), x.awaits, x.within)
			g.endClaim()
			g.rooms.await(x.slices)
			c.reports.tellClaimed(g)
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
	ch.dropClaim()
	ch.spare(m.GetSpared())
	if g.started {
		c.withdrawPlan(g)
	} else if !ch.reserved() {
		ch.endClaim()
		g.claim = nil
		c.withdrawRooms(g)
	}
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
	return len(a.pods) > 0 && (!a.growth || a.grows() && g.charge.reserved()) && a.vain.None() && g.mayClaim()
}

// Further pods of a gang that has started. It asks for them one by one in the end (charge.most), as long as they are
// denied, and each may be claimed as the pods of a gang that waits: the rooms are those of a pod that is not charged.
// When it is granted, what is held is committed, and what is promised is waited for. Whatever the gang asks for instead
// ends the claim, here and at the coordinator.

// driveGrowth takes a claim for a further pod as far as it gets, and reports whether rooms of it are still to come.
func (c *Core) driveGrowth(g *gang) (waits bool) {
	ch := &g.charge
	if g.claim != nil {
		c.claims.driveClaim(g)
	}
	switch {
	case g.claim != nil, !ch.claimed() && len(g.rooms.calls) == 0:
		return false
	case ch.claim != 0 && ch.reserve == nil: // an heir has not asked yet
		return false
	case ch.claimed() && len(g.roomless()) > 0 && !(ch.claim == 0 && c.evictions.inVain(g)):
		c.keepRooms(g)
		return true
	}
	c.claims.withdrawPlan(g) // it is over: what is held is charged by now
	return false
}

// onMandate begins to make a plan.
func (c *claims) onMandate(m *wire.Mandate) {
	g := c.gangs[m.GetGangUid()]
	if g == nil || g.dropped() || c.table == nil {
		return
	}
	ch := &g.charge
	if m.GetAttempt() != ch.attempt || ch.attempt == 0 || m.GetTerm() != c.term || m.GetNumber() <= ch.mandate &&
		ch.mandateTerm == m.GetTerm() || !g.mayClaim() {
		return
	}
	switch {
	case g.state != waiting && g.state != running && g.state != holding:
		return
	case ch.reserve != nil && ch.reserve.serial == m.GetSerial() && !ch.claimed():
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
	ch.takeMandate(m)
	g.search.ends()
	x := &claiming{mandate: m, pods: g.roomless(), began: c.now}
	g.claim = x
	c.rules.ask(x.pods)
	var list classes
	for _, p := range x.pods {
		i := int(list.of(p.asked))
		if i == len(x.kinds) {
			x.kinds, x.members = append(x.kinds, plan.Class{Requests: p.asked.Room()}),
				append(x.members, nil)
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
	if c.plans.Spent(c.now, g.name.Namespace) >= planWork {
		c.sayNoPlan(g, "plans for other gangs of its namespace take too much time")
		x.message.Stale = true
		c.mark(g)
		return
	}
	of := make([]*api.Class, len(x.kinds))
	for i := range of {
		of[i] = x.members[i][0].asked
	}
	for i, shuns := range api.Shuns(of, g.name.Namespace) {
		x.kinds[i].Shuns = shuns
	}
	c.roomProbes++
	x.probe = &wire.RoomProbe{Namespace: g.name.Namespace, Classes: list.wire, Serial: c.roomProbes, GangUid: g.id}
	bound := c.evictions.victimPods(m.GetCandidates())
	x.candidates, x.alike = c.evictions.inTurn(m.GetCandidates(), bound)
	if g.group != nil {
		x.near = slices.DeleteFunc(c.domains.levels(g), g.requires)
	}
	x.singles = c.census.surplusOf(x.candidates, bound)
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
	named := api.SetOf(x.probe.Candidates)
	x.strays = map[string]string{}
	for _, uid := range c.evictions.strays(x.probe.Candidates) {
		if p := c.pods[uid]; p != nil && !p.Deleting && !named[uid] {
			x.strays[uid] = c.gangOf(p)
			x.probe.Candidates = append(x.probe.Candidates, uid)
		}
	}
	x.answers = c.shards.poll(g.name.Namespace, &list)
	c.probed.put(fmt.Sprint(x.probe.Serial), g.id)
	c.mark(g)
}

func (c *claims) onRooms(from api.Incarnation, m *wire.Rooms) {
	id, _ := c.probed.get(fmt.Sprint(m.GetSerial()))
	g := c.gangs[id]
	if g == nil || g.claim == nil || g.claim.step != probing || g.claim.probe.GetSerial() != m.GetSerial() ||
		!g.claim.answers.take(from, m.GetLater()) {
		return
	}
	x := g.claim
	leaves := api.SetOf(g.charge.awaits)
	outer, inner := g.domainKeys()
	outerKeys, innerKeys := domainKeys(outer, ""), domainKeys(inner, "")
	for _, n := range m.GetNodes() {
		free, err := wire.ToResources(n.GetFree())
		if err != nil {
			continue
		}
		of := plan.Node{Shard: from, Free: free, Classes: n.GetClasses(),
			Domain: c.census.domainOf(n.GetNode(), outerKeys), Part: c.census.domainOf(n.GetNode(), innerKeys)}
		for _, keys := range x.near {
			of.Near = append(of.Near, c.census.domainOf(n.GetNode(), keys))
		}
		for _, l := range n.GetLeaves() {
			if amounts, err := wire.ToResources(l.GetAmounts()); err == nil {
				gang := cmp.Or(x.strays[l.GetGangUid()], l.GetGangUid())
				of.Leaves = append(of.Leaves, plan.Leaves{Gang: gang, Amounts: amounts,
					Anyway: l.GetAnyway() || leaves[gang], Bars: l.GetBars()})
			}
		}
		x.nodes = append(x.nodes, of)
	}
	if !x.answers.open() {
		c.mark(g)
	}
}
