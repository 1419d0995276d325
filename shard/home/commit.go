package home

import (
	"cmp"
	"slices"
	"strings"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/api/wire"
)

// Committing: holds become intents, and intents Bindings.
//
// A gang that has not started is prepared first at every shard involved, and bound only when all have answered; where one
// shard has room for all of it, one Commit that binds at once says the same. A Commit names so many pods at most that it is
// no larger than a message may be: more of them go to one shard as to several, in a gang of 100,000 pods for example. Pods
// that come later (a gang in part, or running) are committed as they find room, each shard by itself.

// commit is a Commit that was sent.
type commit struct {
	call
	shard   api.Incarnation
	pods    []*pod
	body    *wire.Commit
	place   *int64 // of the last of its intents in their log, nil before they are durable
	cleared clearance
	bind    call // of the Bind
	volumes
}

// clearance is how far a commit may go.
type clearance uint8

const (
	unjudged clearance = iota
	judged             // its pods may be bound, as far as other pods are concerned
	told               // Bindings may be on their way: a Bind was sent, or the Commit said so
)

// commit sends a Commit for pods held by one shard.
func (c *Core) commit(g *gang, shard api.Incarnation, pods []*pod, bindNow bool) {
	if bindNow && !g.started && g.boundSince.IsZero() && g.tally.placed+len(pods) < g.minCount() {
		c.broken("a commit that binds at once has less than the minimum")
		return
	}
	slices.SortStableFunc(pods, func(a, b *pod) int { return cmp.Compare(a.turn, b.turn) })
	var k classes
	cm := &commit{shard: shard, pods: pods}
	if bindNow {
		cm.cleared = told // it is judged by its shard
	}
	if slices.ContainsFunc(pods, func(p *pod) bool { return p.Unbound }) {
		cm.step, cm.cleared = toBind, min(cm.cleared, judged)
	}
	cm.serial = c.serial(g)
	cm.body = &wire.Commit{
		Gang: g.message(), Serial: cm.serial, ReservationRevision: g.charge.revision, TableRevision: c.table.Revision,
		Bind: cm.cleared == told, Judge: cm.cleared != unjudged, Rank: g.charge.rank, Trace: c.traceOf(g, spanCommit),
		UntilUnixMs: leavesBy(g),
	}
	for _, p := range pods {
		p.commits(cm)
		p.pinOwn(g.id)
		cm.body.Pods = append(cm.body.Pods, &wire.PodRef{
			Uid: p.UID, ResourceVersion: p.version, Namespace: p.Namespace, Name: p.Name, Node: p.node, PodClass: k.of(p.asked), Unbound: p.Unbound})
	}
	cm.body.Classes = k.wire
	g.commits = append(g.commits, cm)
	g.search.asks(shard)
	if cm.cleared == told && g.boundSince.IsZero() {
		g.bindsFrom(c.now)
	}
	c.sendCommit(g, cm)
}

func (c *common) sendCommit(g *gang, cm *commit) {
	if c.dueAtShard(g, &cm.call) {
		c.send(cm.shard, &wire.Envelope{Body: &wire.Envelope_Commit{Commit: cm.body}})
	}
}

func (c *common) sendBind(g *gang, cm *commit) {
	if cm.bind.sent.IsZero() && cm.body.Bind { // the Commit asked for it already
		cm.bind.at, cm.bind.sent, cm.bind.every = cm.at, c.now, c.cfg.AskAgain
	}
	if c.dueAtShard(g, &cm.bind) {
		c.send(cm.shard, &wire.Envelope{Body: &wire.Envelope_Bind{Bind: &wire.Bind{GangUid: g.id, Serial: cm.serial}}})
	}
}

// heldBy groups the pods that have a hold by shard, shards in order.
func (g *gang) heldBy() (shards []api.Incarnation, pods map[api.Incarnation][]*pod) {
	pods = map[api.Incarnation][]*pod{}
	for _, p := range g.pick(func(p *pod) bool { return p.charged && p.candidate() && p.stage == held }) {
		if len(pods[p.shard]) == 0 {
			shards = append(shards, p.shard)
		}
		pods[p.shard] = append(pods[p.shard], p)
	}
	slices.SortFunc(shards, func(a, b api.Incarnation) int { return strings.Compare(string(a), string(b)) })
	return shards, pods
}

// commitHeld sends Commits for the pods that have a hold, and reports whether it sent any. They bind at once if the gang may be
// bound in part, each shard by itself, or if one Commit names all of the gang.
func (c *Core) commitHeld(g *gang, inPart bool) bool {
	type portion struct {
		shard api.Incarnation
		pods  []*pod
	}
	var all []portion
	var wait map[*pod]bool
	if inPart {
		g.dropUncharged()
		c.census.dropOutside(g)
		wait = c.census.awaitSlices(g)
	}
	shards, pods := g.heldBy()
	for _, shard := range shards {
		now := pods[shard]
		if inPart {
			if !c.isMember(shard) {
				continue
			}
			now = slices.DeleteFunc(now, func(p *pod) bool { return p.changing() || wait[p] })
		}
		for _, some := range apart(now, inPart) {
			for part, rest := cut(some, c.cfg.CommitPods); len(part) > 0; part, rest = cut(rest, c.cfg.CommitPods) {
				all = append(all, portion{shard, part})
			}
		}
	}
	whole := len(all) == 1 && len(g.commits) == 0
	for _, one := range all {
		c.commit(g, one.shard, one.pods, inPart || whole)
	}
	return len(all) > 0
}

// dropUncharged forgets the holds of pods of a started gang that are not to be placed any more: a claim that one of them names is in use, for
// example. They expire. Such a pod is charged and asked for again when it may be placed.
func (g *gang) dropUncharged() {
	for _, p := range g.pick((*pod).hasRoom) {
		if a := g.charge.reserve; !p.charged && !(a.grows() && a.pods[0] == p) || !p.candidate() {
			p.letGo()
		}
	}
}

// prepare commits every hold of a gang, and binds when all of it is prepared.
func (c *Core) prepare(g *gang) {
	s := &g.search
	g.forget()
	if !c.valid(g) && !g.toldAny() {
		c.retreat(g, edited)
		return
	}
	if g.toldAny() { // one Commit for all of it, which binds at once
		if g.tally.alive > 0 || g.allPrepared() {
			c.traceCommitted(g)
			c.become(g, binding)
			return
		}
	}
	if g.tally.placed >= g.minCount() { // somebody else bound it
		c.retreat(g, startOver)
		return
	}
	for _, cm := range g.commits {
		switch {
		case cm.prepared():
		case !c.isMember(cm.shard) || !c.now.Before(cm.at.Add(c.cfg.PrepareFor)):
			c.retreat(g, startOver)
			return
		default:
			c.wakeAt(g, cm.at.Add(c.cfg.PrepareFor))
			c.sendCommit(g, cm)
			if fault.On(fault.OthersTried) && c.now.Sub(cm.at) > c.cfg.AskAgain/2 {
				c.tryOthers(g, cm)
				c.census.recount(g)
			}
		}
	}
	lost := func(p *pod) bool { return p.charged && p.candidate() && p.stage != held && p.stage != committed }
	if slices.ContainsFunc(g.inOrder(), lost) { // its hold: find another
		if len(g.commits) == 0 {
			c.become(g, holding)
			return
		}
		if s.mendBy.IsZero() {
			s.mendUntil(c.now.Add(c.cfg.MendWithin))
		}
		if !c.now.Before(s.mendBy) || fault.On(fault.WithoutMend) {
			c.retreat(g, startOver)
			return
		}
		c.wakeAt(g, s.mendBy)
		if !c.seek(g) {
			return
		}
	}
	c.reports.tellChosen(g)
	if g.tally.changing > 0 { // a version is about to change; the answer, or the watch, wakes the gang
		return
	}
	if g.tally.held > 0 && !c.together(g) { // a node was relabelled since
		return
	}
	sent := c.commitHeld(g, false)
	if sent || !g.allPrepared() || !c.mayBind(g) || !c.volumesReady(g) {
		return
	}
	if g.tally.placed+g.tally.committed < g.minCount() || g.tally.committed != g.tally.charged {
		c.broken("a gang is to be bound of which less than the minimum is prepared")
		c.retreat(g, startOver)
		return
	}
	c.traceCommitted(g)
	g.bindsFrom(c.now)
	for _, cm := range g.commits {
		cm.cleared = told
		c.sendBind(g, cm)
	}
	c.become(g, binding)
}

func (g *gang) allPrepared() bool {
	for _, cm := range g.commits {
		if !cm.prepared() && !fault.On(fault.BindBeforePrepared) {
			return false
		}
	}
	return len(g.commits) > 0
}

func (g *gang) toldAny() bool {
	for _, cm := range g.commits {
		if cm.cleared == told {
			return true
		}
	}
	return false
}

// forget drops commits of which no pod is open any more.
func (g *gang) forget() {
	g.commits = slices.DeleteFunc(g.commits, func(cm *commit) bool {
		for _, p := range cm.pods {
			if p.commit == cm || p.gang != g && g.lost[p.UID] {
				return false
			}
		}
		return true
	})
}

// fill places what is charged and not placed of a gang that is bound in part, or runs. Unless it has rooms to come, it
// seeks for more.
func (c *Core) fill(g *gang, seeks bool) {
	g.forget()
	for _, cm := range g.commits {
		switch {
		case !c.isMember(cm.shard):
		case !cm.prepared():
			c.sendCommit(g, cm)
		case !c.searchers.fillVolumes(g, cm):
			continue
		default:
			c.sendBind(g, cm)
		}
		c.doubt(g, cm)
	}
	g.forget()
	ch := &g.charge
	if ch.closed || !ch.reserved() || g.leaving() {
		return
	}
	if ch.current() && (ch.reserve == nil || ch.reserve.denied != nil) { // nothing that moves the revision is on its way
		c.reports.tellChosen(g)
		c.commitHeld(g, true)
		c.census.recount(g)
	}
	if seeks && c.seek(g) {
		g.search.succeed()
		if g.tally.candidates == g.tally.charged && g.started && (g.volumesFailed == 0 || g.tally.candidates == 0) {
			g.unblock()
		}
	}
}

// doubt takes pods back of a commit that has not been answered for long: their shard left the table or does not report
// them. Only they may be tried again elsewhere, for only one Binding of a pod can win. The gang's reservation stays until
// every shard was asked.
func (c *Core) doubt(g *gang, cm *commit) {
	if fault.On(fault.OthersTried) && !cm.prepared() && c.now.Sub(cm.at) > c.cfg.AskAgain/2 {
		c.tryOthers(g, cm)
	}
	for _, p := range cm.pods {
		if p.gang != g && g.lost[p.UID] {
			if at := cm.at.Add(c.cfg.DoubtFor); c.now.Before(at) {
				c.wakeAt(g, at)
			} else {
				g.doubted(p.UID)
			}
		}
		if p.gang != g || p.commit != cm {
			continue
		}
		if p.seldom().doubt.IsZero() {
			p.some().doubt = c.now
		}
		if at := p.few.doubt.Add(c.cfg.DoubtFor); c.now.Before(at) {
			c.wakeAt(g, at)
		} else {
			c.podFree(p)
			g.doubted(p.UID)
		}
	}
}

// tryOthers is fault.OthersTried.
func (c *Core) tryOthers(g *gang, cm *commit) {
	others := g.pick(func(p *pod) bool { return p.candidate() && !p.charged && p.stage == nowhere })
	for _, p := range cm.pods {
		if len(others) == 0 {
			return
		}
		if p.gang == g && p.commit == cm && others[0].Class.Key == p.Class.Key {
			c.podFree(p)
			p.uncharge()
			others[0].charge()
			others = others[1:]
		}
	}
}

// podFree takes note that a pod has neither hold nor intent.
func (c *Core) podFree(p *pod) {
	if p.stage == bound {
		return
	}
	p.free()
	if g := p.gang; g != nil {
		if g.group == nil || c.objects.Group(p.InGroup) != g.group {
			c.resolveMembership(p)
		}
		c.touch(g)
	}
}

func (c *Core) onCommitReply(from api.Incarnation, m *wire.CommitReply) {
	g := c.gangs[m.GetGangUid()]
	if g == nil {
		return
	}
	i := slices.IndexFunc(g.commits, func(cm *commit) bool { return cm.serial == m.GetSerial() && cm.shard == from })
	if i < 0 || m.GetOutcome() == wire.CommitOutcome_COMMIT_UNKNOWN {
		return
	}
	cm := g.commits[i]
	c.mark(g)
	if m.GetOutcome() == wire.CommitOutcome_COMMIT_PREPARED {
		cm.place = new(m.GetPlace())
		return
	}
	// Nothing of it was written, or, when it was prepared before, nothing of it is left.
	g.commits = slices.Delete(g.commits, i, i+1)
	without := map[string]bool{}
	for _, uid := range m.GetPodUids() {
		without[uid] = true
	}
	kept := m.GetOutcome() == wire.CommitOutcome_COMMIT_HOLD_GONE
	for _, p := range cm.pods {
		if p.gang != g || p.commit != cm {
			g.leftWithout(p.UID)
			continue
		}
		if kept && !without[p.UID] && len(without) > 0 && g.state != withdrawing { // a Withdraw drops holds
			p.keepsHold()
		} else {
			c.podFree(p)
		}
	}
	if g.state == preparing && g.tally.alive == 0 {
		g.bindsNothing()
	}
	switch m.GetOutcome() {
	case wire.CommitOutcome_COMMIT_RESERVATION_MOVED:
		if a := g.charge.reserve; a == nil || a.denied != nil {
			g.charge.outdate()
		}
		c.searchers.pause(g)
	case wire.CommitOutcome_COMMIT_WITHDRAWN:
		if !cm.prepared() { // by somebody whose serials are ahead of ours
			c.skipSerials()
		}
	case wire.CommitOutcome_COMMIT_TABLE_MOVED:
		if c.table.Revision == cm.body.TableRevision { // the shard knows a newer one, which is on its way here
			c.searchers.pause(g)
		}
	}
	if kept {
		if len(without) > 0 {
			c.searchers.refused(g)
		}
		return
	}
	if g.state == preparing {
		c.retreat(g, startOver)
	}
}

// refused has a gang try again after a Commit was refused for some of its pods: at once at first, for others were faster, and then later and
// later. Several gangs that exclude each other would refuse each other for ever: each finds rows of others in the log that are about to be
// refused as well.
func (c *searchers) refused(g *gang) {
	s := &g.search
	g.nextOrder()
	if s.refuse() <= refusedAtOnce {
		return
	}
	c.pauseLonger(g, c.cfg.BackoffMin, s.refusals-refusedAtOnce-1, c.cfg.BackoffMax)
	c.freeSlot(g)
}

// refusedAtOnce is after how many refusals in a row a gang tries again at once.
const refusedAtOnce = 2

func (c *Core) onBindResults(m *wire.BindResults) {
	g := c.gangs[m.GetGangUid()]
	if g == nil {
		return
	}
	c.rules.tellTopology(g, m)
	for _, r := range m.GetResults() {
		p := g.members[r.GetPodUid()]
		if p == nil && r.GetOutcome() == wire.BindOutcome_BIND_BOUND {
			p = c.claim(g, r.GetPodUid())
		}
		if p == nil {
			g.leftWithout(r.GetPodUid())
			if g.withdraw != nil {
				delete(g.withdraw.sent, r.GetPodUid())
			}
			continue
		}
		p.resolved = newer(p.resolved, r.GetResourceVersion())
		if m.GetSerial() != 0 && p.commit != nil && p.commit.serial != m.GetSerial() && r.GetOutcome() != wire.BindOutcome_BIND_BOUND {
			continue // of an earlier commit: a later one is open
		}
		if m.GetSerial() == 0 && p.commit != nil && c.isMember(p.commit.shard) && r.GetOutcome() != wire.BindOutcome_BIND_BOUND {
			continue // of an intent that a dead shard left; a later commit is open elsewhere
		}
		if p.stage != committed && r.GetOutcome() != wire.BindOutcome_BIND_BOUND {
			continue
		}
		if g.withdraw != nil {
			delete(g.withdraw.sent, p.UID)
		}
		switch r.GetOutcome() {
		case wire.BindOutcome_BIND_BOUND:
			if !p.isBound() {
				c.tellBound(p, r.GetNode())
			}
			p.own()
			g.search.accept()
			c.podBound(p, r.GetNode())
		case wire.BindOutcome_BIND_FREE:
			shard := p.shard
			if c.podFree(p); r.GetRejected() != "" {
				g.reject(p, c.now, r.GetRejected())
			} else {
				p.preferAt(shard)
			}
		case wire.BindOutcome_BIND_GONE:
			p.vanish()
			c.podFree(p)
		}
	}
	c.touch(g)
}
