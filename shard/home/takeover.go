package home

import (
	"log/slog"
	"slices"
	"strings"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/shard/event"
	"basalt.dev/basalt/shard/home/intake"
)

// Takeover of queues. A bucket that the table gives to this shard is active once the store was read, at a revision that
// is not older than the table's, and all pods were listed after that. Then every gang of it is known: the reservations
// that were read, and the pods. What its predecessor had requested from node shards is not known, so it is withdrawn at all of
// them for every reservation that is for more, or for other pods, than are bound.
//
// A bucket that is lost is forgotten at once: the table's fence and the serials make our old requests harmless.

// takeover is what is known of buckets that are being taken over.
type takeover struct {
	*common

	gaining        map[api.BucketID]bool
	gainedAt       int64     // revision of the last table that gave us buckets
	gainingSince   time.Time // when a table gave us buckets while we were not gaining any
	read           *event.StoreRead
	named          map[uint64]*namedBy // by api.PodID: which reservation names a pod; only while a list of pods is taken
	refilled       refill
	astray         map[string]bool // bound pods, by UID, that were in a gang of ours which their labels do not name
	unchargedBound map[string]bool // gangs with bound pods of which the coordinator has not said whether they are charged
	bound          []GangBound     // observe.go
	takeovers      []time.Duration
}

func (c *takeover) onStoreRead(e event.StoreRead) {
	if len(c.gaining) > 0 && e.Revision >= c.gainedAt && (c.read == nil || e.Sequence > c.read.Sequence) {
		c.read = &e
	}
}

func (c *Core) onTable(t *api.Table) {
	if t == nil || c.table != nil && t.Revision <= c.table.Revision {
		return
	}
	c.table, c.shards.tableAt = t, c.now
	c.shards.owned = map[api.Incarnation]int{}
	gained := false
	lost := map[api.BucketID]bool{}
	for b := range api.BucketID(api.Buckets) {
		owner := t.Owner(b)
		if owner != "" {
			c.shards.owned[owner]++
		}
		mine := owner == c.cfg.Self
		if c.active[b] && (!mine || t.Changed[b] != c.epochs[b]) {
			c.active[b] = false
			lost[b] = true
		}
		switch {
		case mine && !c.active[b] && (!c.takeover.gaining[b] || c.epochs[b] != t.Changed[b]):
			c.takeover.gaining[b] = true
			c.epochs[b] = t.Changed[b]
			gained = true
		case !mine:
			delete(c.takeover.gaining, b)
		}
	}
	if gained {
		c.takeover.read, c.takeover.gainedAt = nil, t.Revision // what was read before does not show what happened since
		if c.takeover.gainingSince.IsZero() {
			c.takeover.gainingSince = c.now
		}
	}
	if len(c.takeover.gaining) == 0 {
		c.takeover.gainingSince = time.Time{}
	}
	for incarnation := range c.shards.summaries {
		if !t.Has(incarnation) {
			delete(c.shards.summaries, incarnation)
		}
	}
	for _, uid := range api.SortedKeys(c.gangs) {
		g := c.gangs[uid]
		if g != nil && lost[g.bucket] {
			c.abandon(g)
		} else if g != nil {
			c.shardsLeft(g)
		}
	}
}

// abandon forgets a gang whose queue is another shard's now, and nobody is notified. A gang whose PodGroup names a queue of this shard
// by now begins anew there: the new owner of the old queue gives back what is charged in it. It would find that by itself only
// from a change of the PodGroup or its pods, so also one that stayed in the old queue for its bound pods begins anew.
func (c *Core) abandon(g *gang) {
	c.forget(g)
	members := api.SortedKeys(g.members)
	for _, uid := range members {
		c.leave(g.members[uid])
	}
	if g.group != nil && c.objects.Exists(g.group) {
		c.homeGroup(g.group)
	}
	anew := c.gangs[g.id] != nil
	for _, uid := range members {
		if p := c.pods[uid]; p != nil && p.pinned == g.id && (g.group == nil || p.InGroup != g.name) {
			c.takeover.astray[uid] = true
		}
	}
	for _, uid := range members { // one without a node may be of a later PodGroup, whose gang this shard has
		if p := c.pods[uid]; p != nil && p.gang == nil && (anew || p.Node == "") {
			c.resolveMembership(p)
		}
	}
}

// shardsLeft lets go of what shards that left the table had promised, but not of what they may have written.
func (c *common) shardsLeft(g *gang) {
	left := false
	for shard := range g.search.touched {
		if c.table.Has(shard) {
			continue
		}
		left = true
		wrote := false
		for _, p := range g.members {
			if p.shard != shard {
				continue
			}
			switch p.stage {
			case held, promised:
				p.letGo()
			case committed:
				wrote = true
			}
		}
		if !wrote && len(g.lost) == 0 && g.state != withdrawing {
			g.search.forgetShard(shard)
		}
	}
	if left {
		c.touch(g)
	}
}

// namedBy is the gang of a reservation.
type namedBy struct {
	uid, namespace string
	pods           []string // of it that are bound
}

// readNames learns from the reservations which gang each pod is charged to, before the pods of a takeover are looked at.
func (c *takeover) readNames(sequence uint64) {
	c.named = nil
	if c.table == nil || c.read == nil || c.read.Sequence != sequence || len(c.gaining) == 0 {
		return
	}
	c.named = make(map[uint64]*namedBy, len(c.read.Reservations))
	for _, r := range c.read.Reservations {
		ref := r.Record.GetGang()
		by := &namedBy{uid: ref.GetUid(), namespace: ref.GetNamespace()}
		if ref.GetSingle() {
			c.named[api.PodID(ref.GetUid())] = by
		}
		for _, id := range r.Record.GetPods() {
			c.named[id] = by
		}
	}
}

// pinAnew pins a bound pod to the gang whose reservation names it. A reservation that this shard holds itself, in a bucket
// that it did not just gain, counts more than what was read: the read may be older. Anything else that this shard saw counts
// only for gangs that it has, and that no reservation contradicts.
func (c *Core) pinAnew(p *pod, gained map[api.BucketID]bool) {
	if p.Node == "" {
		return
	}
	if g := c.gangs[p.pinned]; g != nil && !gained[g.bucket] && g.charge.reserved() && g.charge.names(g, p) {
		return
	}
	if by := c.takeover.named[p.id]; by != nil && by.namespace == p.Namespace {
		p.pinOwn(by.uid)
		by.pods = append(by.pods, p.UID)
		return
	}
	if c.gangs[p.pinned] == nil {
		p.unpin()
		c.pin(p)
	}
}

// concerned returns the groups and the pods that a takeover of some buckets concerns, both in order: those whose queue
// is in one, and the pods that a reservation names, or that were in a gang of this shard which their labels do not
// name.
func (c *takeover) concerned(gained map[api.BucketID]bool) (groups []*intake.Group, uids []string) {
	found := map[string]bool{}
	for b := range gained {
		for g := range c.index.groups[b] {
			groups = append(groups, g)
			for _, uid := range c.objects.Naming(g.Name) {
				found[uid] = true
			}
		}
		for _, p := range c.index.loose.pods[b] {
			found[p.UID] = true
		}
	}
	for id := range c.named {
		if p := c.index.ids[id]; p != nil {
			found[p.UID] = true
		}
	}
	for uid := range c.astray {
		found[uid] = true
	}
	slices.SortFunc(groups, intake.CompareGroups)
	return groups, api.SortedKeys(found)
}

// activate takes up the buckets that were gained, when the list of pods just seen is the one after the read.
func (c *Core) activate(sequence uint64) {
	if c.table == nil || c.takeover.read == nil || c.takeover.read.Sequence != sequence || len(c.takeover.gaining) == 0 {
		return
	}
	found, intents := c.takeover.read.Reservations, c.takeover.read.Intents
	c.takeover.read = nil
	gained := c.takeover.gaining
	c.takeover.gaining = map[api.BucketID]bool{}
	c.takeover.observeTakeover()
	for b := range gained {
		c.active[b] = true
	}
	groups, uids := c.takeover.concerned(gained)
	clear(c.takeover.astray)
	for _, uid := range uids {
		c.pinAnew(c.pods[uid], gained)
	}
	for _, g := range groups {
		c.homeGroup(g)
	}
	for _, uid := range uids {
		c.resolveMembership(c.pods[uid])
	}
	rows := map[string][]string{} // gang -> pods that have an intent
	for _, key := range intents {
		gangs := key.Record.GetGangs()
		for _, r := range key.Record.GetRows() {
			if int(r.GetGang()) < len(gangs) {
				uid := gangs[r.GetGang()].GetUid()
				rows[uid] = append(rows[uid], r.GetPodUid())
			}
		}
	}
	inherited := 0
	slices.SortFunc(found, func(a, b event.StoredReservation) int {
		return strings.Compare(a.Record.GetGang().GetUid(), b.Record.GetGang().GetUid())
	})
	for _, r := range found {
		ref := r.Record.GetGang()
		if ref.GetUid() == "" {
			continue // unreadable: the coordinator says so
		}
		if b := api.BucketOf(ref.GetQueue()); gained[b] {
			c.inherit(r.Record, r.ModRevision, rows[ref.GetUid()])
			inherited++
		}
	}
	c.takeover.named = nil
	for _, g := range c.gangs {
		if gained[g.bucket] {
			g.inherited = true
		}
	}
	c.log(slog.LevelInfo, "took over queues", slog.Int("buckets", len(gained)), slog.Int("reservations", inherited),
		slog.Uint64("epoch", uint64(c.table.Epoch)))
}

// inherit takes a reservation over that another shard had asked for. Pods with an intent may be bound later than the list
// of pods shows, by a shard that has left the table and reports to nobody: node shards are asked about them.
func (c *Core) inherit(r *wire.ReservationRecord, revision int64, intents []string) {
	ref := r.GetGang()
	g := c.gangs[ref.GetUid()]
	if g == nil {
		g = c.newStray(ref, len(r.GetPods()) == 0)
	}
	for _, uid := range c.takeover.boundOf(r) {
		c.resolveMembership(c.pods[uid])
	}
	if g.queue != ref.GetQueue() { // its queue was changed since: given back there first
		g.queue, g.bucket = ref.GetQueue(), api.BucketOf(ref.GetQueue())
	}
	amounts, err := wire.ToResources(r.GetDemand())
	if err != nil {
		amounts = nil
	}
	g.charge.inherit(c.now, r, revision, amounts, err == nil)
	g.charge.condemn(r.GetCondemned(), r.GetShrinks())
	for _, uid := range intents {
		g.hasIntent(uid)
	}
	c.census.recount(g)
	g.startedBefore()
	if to := r.GetYields(); to != nil && g.charge.closed {
		c.yield(g, to)
	}
	wholly := sum(g.pick((*pod).isChargeable)).Equal(amounts)
	started := g.started || g.tally.placed >= g.minCount() && g.ownerless.IsZero()
	awaits := g.state == releasing || g.state == closing // an answer, in another queue, and there is none any more
	if started && wholly && g.charge.yields == nil && !awaits {
		c.touch(g)
		return // it goes on as it is
	}
	if !started && g.tally.alive > 0 && (g.boundByUs() || !wholly) { // it was being placed
		g.bindsFrom(c.now)
	}
	for _, p := range g.members {
		if p.stage != bound {
			p.letGo()
		}
	}
	g.rooms.keep(g.charge.claimed())
	switch {
	case g.charge.closed:
		c.touchAll(g)
		c.retreat(g, rollBack)
	case g.ownerless.IsZero() || awaits:
		c.touchAll(g)
		c.retreat(g, startOver)
	case g.rooms.kept: // until its PodGroup is seen
		c.touchAll(g)
	}
	c.touch(g)
}

// boundOf returns the bound pods that a reservation names.
func (c *takeover) boundOf(r *wire.ReservationRecord) []string {
	id := api.PodID(r.GetGang().GetUid())
	if len(r.GetPods()) > 0 {
		id = r.GetPods()[0]
	}
	if by := c.named[id]; by != nil && by.uid == r.GetGang().GetUid() {
		return by.pods
	}
	return nil
}

// newStray makes a gang of a reservation whose PodGroup, or pod, is not there. Where the reservation does not name its pods,
// their labels do.
func (c *Core) newStray(ref *wire.GangRef, labels bool) *gang {
	g := c.newGang(ref.GetUid(), ref.GetQueue(),
		intake.Name{Namespace: ref.GetNamespace(), Name: ref.GetName(), Kind: api.GroupKind(ref.GetKind())})
	g.strays(c.now)
	if ref.GetSingle() {
		g.becomePod(false)
	}
	if g.isPod() || g.name.Kind == api.ImpliedGroup { // all pods are known: it is gone
		g.strays(c.now.Add(-c.cfg.StrayAfter))
	}
	if grp := c.objects.Group(g.name); grp != nil && grp.UID == g.id {
		c.homeGroup(grp) // its queue is another one now
		return g
	}
	if !labels || g.isPod() {
		return g
	}
	// Pods that were bound for it, when its PodGroup is gone, are still charged to it.
	if c.objects.Group(g.name) == nil {
		for _, uid := range c.objects.Naming(g.name) {
			if p := c.pods[uid]; p.isBound() && (p.pinned == "" || p.pinned == g.id) {
				p.pinAsSaid(g.id)
				c.resolveMembership(p)
			}
		}
	}
	for _, uid := range c.objects.Naming(g.name) {
		if p := c.pods[uid]; p.pinned == g.id {
			c.resolveMembership(p)
		}
	}
	return g
}

// awaitPodGroup gives the watch of PodGroups time to show the one of an inherited reservation. Then it is gone: its bound
// pods run on and stay charged; without any it is closed and given back.
func (c *Core) awaitPodGroup(g *gang) {
	deleted, _ := c.deleted.get(g.id) // then nothing is to be waited for, unless bound pods are to find another PodGroup
	if at := g.ownerless.Add(c.cfg.StrayAfter); c.now.Before(at) && (!deleted || g.tally.bound > 0) {
		c.wakeAt(g, at)
		return
	}
	if g.tally.bound > 0 {
		g.vanish()
		c.endStray(g)
		c.touchAll(g)
		c.retreat(g, startOver)
		return
	}
	if g.charge.closed {
		c.touchAll(g)
		c.retreat(g, rollBack)
		return
	}
	g.charge.awaitAnswer(c.serial(g))
	c.become(g, closing)
}

// endStray stops waiting for the PodGroup of a gang. Its bound pods, finished ones included, may belong to a PodGroup that was
// made under the same name.
func (c *Core) endStray(g *gang) {
	g.found()
	for _, uid := range api.SortedKeys(g.members) {
		c.resolveMembership(g.members[uid])
	}
}

// onKnown hears of all reservations in our buckets; one of which we do not know is closed and given back.
func (c *Core) onKnown(m *wire.Known) {
	for i, ref := range m.GetGangs() {
		if ref.GetUid() == "" || !c.active[api.BucketOf(ref.GetQueue())] || i >= len(m.GetAttempts()) {
			continue
		}
		attempt := m.GetAttempts()[i]
		g := c.gangs[ref.GetUid()]
		switch {
		case g != nil && attempt == g.charge.attempt && (g.charge.claimed() || g.claim != nil): // the record may be no more than its claim
		case g == nil:
			g = c.newStray(ref, true)
			g.charge.findListed(attempt)
			c.touch(g)
		case g.queue == ref.GetQueue() && (g.state == collecting || g.state == running || g.state == binding) &&
			!g.charge.reserved() && g.charge.reserve == nil && !g.leaving():
			g.charge.findBack(attempt) // we gave it back, and it is still there
			if g.state == collecting && g.tally.bound == 0 {
				c.release(g)
			}
			c.touch(g)
		case g.queue == ref.GetQueue() && g.state == waiting && !g.charge.reserved() && g.charge.reserve != nil &&
			g.charge.reserve.denied != nil && g.tally.bound == 0 && !g.leaving():
			// A Granted was lost. If it was for what is asked now, saying that again brings it; if it was for less, it is
			// charged for nobody, and is given back.
			if !g.charge.reserve.doubt() {
				g.charge.tries(attempt)
				c.release(g)
			}
			c.touch(g)
		}
	}
}

func (c *Core) onCoordinator(e event.CoordinatorSeen) {
	if e.Term <= c.term {
		return
	}
	c.term = e.Term
	var open []*gang
	for _, g := range c.gangs {
		if g.charge.reserve != nil || g.charge.open != nil || g.claim != nil || !g.charge.stuck.sent.IsZero() {
			open = append(open, g)
		}
	}
	slices.SortFunc(open, compareGangs)
	for _, g := range open {
		if a := g.charge.reserve; a != nil && !fault.On(fault.SleepersForgotten) {
			a.unlist()
		}
		if o := g.charge.open; o != nil {
			o.again()
		}
		g.charge.unstick()
		if x := g.claim; x != nil && x.step == proposing && len(x.message.GetVictims()) > 0 {
			x.claim = call{} // the former one may have accepted it
		} else if x != nil {
			c.claims.withdrawPlan(g)
		}
		c.touch(g)
	}
}

// refill is what was reported to the coordinator about bound pods.
type refill struct {
	epoch api.Epoch
	term  int64
	at    time.Time
}

// reportRefilled ends the refilling of a new store: everything bound in our buckets is charged, or the coordinator has refused to.
func (c *takeover) reportRefilled() {
	if c.table == nil || !c.table.Has(c.cfg.Self) || c.term == 0 || len(c.gaining) > 0 || len(c.unchargedBound) > 0 {
		return
	}
	now := refill{epoch: c.table.Epoch, term: c.term, at: c.refilled.at}
	if now == c.refilled && c.now.Before(c.refilled.at.Add(c.cfg.ResendEvery)) {
		return
	}
	now.at = c.now
	c.refilled = now
	c.send(event.ToCoordinator, &wire.Envelope{Body: &wire.Envelope_Refilled{Refilled: &wire.Refilled{TableEpoch: uint64(c.table.Epoch)}}})
}
