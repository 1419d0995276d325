package audit

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

// overdue reports whether it may be late by now.
func (a *Auditor) overdue(y *yielding) bool {
	now := a.now
	if !a.cfg.Exact {
		now = now.Add(a.cfg.Lag)
	}
	return y != nil && y.until > 0 && now.UnixMilli() >= y.until
}

// soon judges a claim by both streams: at once where they are seen at once.
func (a *Auditor) soon(key lastingKey, after time.Duration, judge func(since time.Time)) {
	if a.cfg.Exact {
		judge(a.now)
		return
	}
	a.later(key, after, judge)
}

// judgeClaims judges what the reservations of a revision say of claims.
func (a *Auditor) judgeClaims(e StoreRevision, touched map[*queue]bool) {
	s := &a.store
	if e.Snapshot || len(a.renamed) == 0 {
		return
	}
	before := func(gang string) *reservation {
		for _, c := range a.renamed {
			if c.old != nil && c.old.gang == gang {
				return c.old
			}
		}
		for _, c := range a.renamed {
			if c.now != nil && c.now.gang == gang {
				return nil
			}
		}
		if g := a.cluster.gangs[gang]; g != nil {
			return g.reservation
		}
		return nil
	}
	alone := len(a.renamed) == 1
	for q := range touched {
		alone = alone && !q.relimited
	}
	for _, c := range a.renamed {
		old, now := c.old, c.now
		if now == nil {
			a.forgive(old)
			continue
		}
		a.judgeYields(e, old, now, before)
		a.judgeCondemned(e, old, now, before)
		if old != nil && old.claim != nil && now.claim == nil && now.attempt == old.attempt {
			a.judgeEnd(e, old, now)
		}
		if now.claim != nil && (old == nil || old.claim == nil || old.attempt != now.attempt || !within(now.claim, old.claim)) {
			a.judgeReplaced(e, old, now)
			a.judgeClaim(e, now, before, alone)
		}
		if alone && len(s.claims)+len(s.yields) > 0 {
			a.judgePromised(e, old, now)
		}
	}
}

// judgeYields judges that a gang is closed for another one only if that one's claim named it before, and once for each attempt of it.
func (a *Auditor) judgeYields(e StoreRevision, old, now *reservation, before func(string) *reservation) {
	object, was := "gang "+now.gang, old != nil && old.attempt == now.attempt && old.closing
	switch {
	case now.yields != nil && !now.closing:
		a.storeViolation(Reservation, object, []int64{e.Revision}, "yields to gang %s and is not closing", now.yields.to)
		return
	case was && (old.yields == nil) != (now.yields == nil), was && now.yields != nil && old.yields.to != now.yields.to:
		a.storeViolation(Reservation, object, []int64{old.revision, e.Revision}, "was closing, and for whom it is closing has changed: %s, then %s", old.yields.words(), now.yields.words())
		return
	case now.yields == nil || was:
		return
	}
	g := a.gang(now.gang)
	if g.everYielding = true; now.yields.rule == wire.Rule_RULE_STALE && now.yields.to == "" { // for nobody
		if !g.lacks && a.now.Sub(g.lacked) > a.cfg.Lag && a.cluster.listed {
			a.storeViolation(Victim, object, []int64{e.Revision}, "is closed as stale, and %d of its pods run, "+
				"at least %d are to, and %d wait to", g.stand, g.minCount, g.wait)
		}
		return
	}
	by := before(now.yields.to)
	if by == nil || !by.claim.standsFor(now.gang, now.attempt) {
		a.storeViolation(Victim, object, []int64{e.Revision}, "is closed under attempt %d for gang %s, which had no claim at an earlier revision that names it", now.attempt, now.yields.to)
		return
	}
	if by.claim.rule != now.yields.rule {
		a.storeViolation(Victim, object, []int64{by.revision, e.Revision}, "is closed by %s for gang %s, whose claim says %s", now.yields.rule, by.gang, by.claim.rule)
	}
	if last, had := g.yielded[by.gang]; had && last == by.once() {
		a.storeViolation(Victim, object, []int64{by.revision, e.Revision}, "is closed a second time for attempt %d of gang %s", by.attempt, by.gang)
	}
	if g.yielded == nil {
		g.yielded = map[string]uint64{}
	}
	g.yielded[by.gang] = by.once()
}

// forgive forgets whom a gang had closed when its claim is dropped before it was charged: it waits on, and may claim again.
func (a *Auditor) forgive(r *reservation) {
	if r.isCharged() || r.claim == nil {
		return
	}
	for _, v := range r.claim.victims {
		if g := a.cluster.gangs[v.gang]; g != nil {
			delete(g.yielded, r.gang)
		}
	}
}

// judgeEnd judges how a claim ended: it becomes demand when all victims are closed or gone; when it is dropped, those that are
// not are spared, and nobody waits for them.
func (a *Auditor) judgeEnd(e StoreRevision, old, now *reservation) {
	granted := !now.demand.Fits(old.demand)
	for _, v := range old.claim.victims {
		g := a.cluster.gangs[v.gang]
		if g == nil {
			continue
		}
		open := old.claim.opens(v, g.reservation)
		switch {
		case len(open) == 0:
		case granted:
			a.storeViolation(Claim, "gang "+now.gang, []int64{old.revision, e.Revision}, "was admitted while gang %s of its claim is neither closed nor gone", v.gang)
			return
		case slices.ContainsFunc(open, func(uid string) bool { return slices.Contains(now.awaits, cmp.Or(uid, v.gang)) }):
			a.storeViolation(Claim, "gang "+now.gang, []int64{old.revision, e.Revision}, "lost its claim and still waits for gang %s, which is spared", v.gang)
			return
		}
	}
}

// judgeReplaced judges that a claim takes the place of none that stands: that one is granted or dropped first.
func (a *Auditor) judgeReplaced(e StoreRevision, old, now *reservation) {
	if old == nil || old.claim == nil || old.attempt != now.attempt || a.isDone(old.claim) {
		return
	}
	a.storeViolation(Claim, "gang "+now.gang, []int64{old.revision, e.Revision}, "has claim %d, and claim %d of the same attempt was neither granted nor dropped", now.claim.mandate, old.claim.mandate)
}

// judgeClaim judges a claim that is new.
func (a *Auditor) judgeClaim(e StoreRevision, now *reservation, before func(string) *reservation, alone bool) {
	c, object := now.claim, "gang "+now.gang
	wrong := func(k Kind, format string, args ...any) {
		a.storeViolation(k, object, []int64{e.Revision}, "its claim "+format, args...)
	}
	if c.rule != wire.Rule_RULE_RECLAIM && c.rule != wire.Rule_RULE_PREEMPT {
		wrong(Claim, "follows no rule")
		return
	}
	var victims []*reservation
	valid := 0
	seen := map[string]bool{}
	for _, v := range c.victims {
		r := before(v.gang)
		other := a.otherClaim(now.gang, v)
		switch {
		case seen[v.gang]:
			wrong(Claim, "names gang %s twice", v.gang)
		case v.gang == now.gang:
			wrong(Claim, "names itself")
		case !r.open(v.attempt) || !r.isCharged():
			wrong(Claim, "names gang %s under attempt %d, which is not charged and open under it", v.gang, v.attempt)
		case other != "":
			wrong(Claim, "names gang %s, which is in the claim of gang %s", v.gang, other)
		default:
			judgeSingles(c, v, r, wrong)
			a.judgeVictim(now, r, wrong)
			victims = append(victims, c.parts(v, r)...)
			valid++
		}
		seen[v.gang] = true
	}
	if valid < len(c.victims) || !alone {
		return
	}
	found := a.judgeWith(a.virtual(now.gang, false), now, victims, wrong)
	if len(found) > 0 && len(a.judgeWith(a.virtual(now.gang, true), now, victims, wrong)) > 0 {
		for _, say := range found {
			say()
		}
	}
}

// judgeWith judges a claim and all of its victims by what queues will have, and returns what is to be said of it.
func (a *Auditor) judgeWith(t virtual, now *reservation, victims []*reservation, say func(Kind, string, ...any)) (found []func()) {
	wrong := func(k Kind, format string, args ...any) {
		found = append(found, func() { say(k, format, args...) })
	}
	t.branch()
	if now.claim.rule == wire.Rule_RULE_PREEMPT {
		a.judgePreemption(now, victims, wrong)
	} else if a.judgeReclaim(now, victims, t, wrong) {
		a.judgeLosses(now, victims, t, wrong)
	}
	a.judgeNeeded(now, victims, t, wrong)
	return found
}

// otherClaim returns whose other claim a victim is in, "" for none.
func (a *Auditor) otherClaim(but string, v victim) string {
	for _, gang := range slices.Sorted(maps.Keys(a.store.claims)) {
		c := a.store.claims[gang].claim
		if g := a.cluster.gangs[v.gang]; gang != but && c.named[v] && g != nil && (len(c.singles[v]) == 0 || len(c.opens(v, g.reservation)) > 0) {
			return gang
		}
	}
	return ""
}

// judgeVictim judges that a victim is not protected by its own record. The claim was made before it ends, and before it was seen; the
// clocks of the coordinator and the auditor may be apart as the streams may.
func (a *Auditor) judgeVictim(now, v *reservation, wrong func(Kind, string, ...any)) {
	switch {
	case !v.preemptible:
		wrong(Victim, "names gang %s, which is not preemptible", v.gang)
	case v.forced:
		wrong(Victim, "names gang %s, whose pods were bound by others", v.gang)
	}
	of := func(p policy) int64 { return p.reclaimMin }
	if now.claim.rule == wire.Rule_RULE_PREEMPT {
		of = func(p policy) int64 { return p.preemptMin }
	}
	least := a.store.inherited(v.queue, of, defaultMinRuntime)
	latest := a.now.UnixMilli()
	if !a.cfg.Exact {
		latest = a.now.Add(a.cfg.Lag).UnixMilli()
	}
	if until := now.claim.until; until > 0 {
		latest = min(latest, until)
	}
	if ran := latest - v.granted; v.granted > 0 && ran < least && (v.runs <= 0 || ran < v.runs) {
		wrong(Victim, "names gang %s, which was admitted at %s and is safe for %d ms", v.gang, time.UnixMilli(v.granted).Format(clock), least)
	}
}

// judgePreemption judges victims of the same queue.
func (a *Auditor) judgePreemption(now *reservation, victims []*reservation, wrong func(Kind, string, ...any)) {
	if len(victims) > 0 && a.store.inherited(now.queue, func(p policy) int64 { return int64(p.preempts) }, 0) != 1 {
		wrong(Claim, "preempts in queue %s, whose policy does not allow it", now.queue)
	}
	for _, v := range victims {
		switch {
		case v.queue != now.queue:
			wrong(Claim, "preempts gang %s of queue %s, which is not its own queue", v.gang, v.queue)
		case v.ranked && now.ranked && v.priority >= now.priority:
			wrong(Claim, "preempts gang %s of priority %d, and its own is %d", v.gang, v.priority, now.priority)
		}
	}
}

// virtual counts all claims but that of one gang. What should have left by now and has not counts as on its way out until the coordinator notices
// that it is overdue. When that is, is not known here.
func (a *Auditor) virtual(but string, noticed bool) virtual {
	t := virtual{&a.store, &a.cluster, map[string]map[string]int64{}, map[string][]string{}, map[amountOf]int64{}}
	add := func(queue string, r api.Resources, sign int64) {
		for _, path := range api.Lineage(queue) {
			if t.more[path] == nil {
				t.more[path] = map[string]int64{}
			}
			for _, x := range r {
				t.more[path][x.Resource] = api.AddSat(t.more[path][x.Resource], sign*x.Value)
			}
		}
	}
	leaves := map[string]*reservation{}
	for gang, r := range a.store.yields {
		if !noticed || !a.overdue(r.yields) {
			leaves[gang] = r
		}
	}
	for _, gang := range slices.Sorted(maps.Keys(a.store.claims)) {
		r := a.store.claims[gang]
		if gang == but || a.isDone(r.claim) {
			continue
		}
		add(r.queue, r.claim.promised, 1)
		for _, v := range r.claim.victims {
			if g := a.cluster.gangs[v.gang]; g != nil && g.reservation != nil && g.reservation.attempt == v.attempt && len(r.claim.singles[v]) == 0 {
				leaves[v.gang] = g.reservation
			}
		}
	}
	for _, r := range leaves {
		add(r.queue, r.charges(), -1)
	}
	a.lessSingles(but, noticed, leaves, add)
	return t
}

// isDone reports whether a claim has nothing left to do: it was for room alone, and no victim is open. The record may still have it.
func (a *Auditor) isDone(c *claim) bool {
	return c.promised.IsZero() && !slices.ContainsFunc(c.victims, func(v victim) bool {
		g := a.cluster.gangs[v.gang]
		return g != nil && len(c.opens(v, g.reservation)) > 0
	})
}

// watchClaim judges that a claim ends when it has to: it becomes demand, or is dropped, while somebody leads.
func (a *Auditor) watchClaim(r *reservation) {
	key := lastingKey{Leak, "gang " + r.gang, "claim"}
	delete(a.lasting, key)
	if r.claim == nil || r.claim.until == 0 {
		return
	}
	until := time.UnixMilli(r.claim.until)
	var judge func(time.Time)
	judge = func(time.Time) {
		switch {
		case a.store.claims[r.gang] != r || a.isDone(r.claim):
		case a.store.leader() == 0 || a.now.Sub(a.store.led) <= 2*a.cfg.Grace:
			a.later(key, a.cfg.Grace, judge)
		default:
			a.storeViolation(Leak, key.object, []int64{r.revision, a.revision}, "has a claim that had to end at %s", until.Format(clock))
		}
	}
	a.later(key, max(0, until.Sub(a.now))+2*a.cfg.Grace, judge)
}

// judgeReclaim judges, for each victim of another queue by itself, that its side has more than its threshold, and that the claimant's
// stays within its own, once victims of its own side are gone. It reports whether that is so.
func (a *Auditor) judgeReclaim(now *reservation, victims []*reservation, t virtual, wrong func(Kind, string, ...any)) bool {
	for _, v := range victims {
		mine, from := parting(now.queue, v.queue)
		if mine == "" {
			wrong(Claim, "reclaims gang %s from queue %s, which is its own", v.gang, v.queue)
			return false
		}
		p := api.Parent(mine)
		if a.store.policyAt(p).reclaim == wire.Reclaim_RECLAIM_NEVER {
			wrong(Claim, "reclaims gang %s, and between children of queue %s nothing is reclaimed", v.gang, p)
			return false
		}
		for _, path := range losers(from, v.queue) {
			if a.store.policyAt(path).kept {
				wrong(Claim, "reclaims gang %s from queue %s, which is not reclaimable", v.gang, path)
				return false
			}
			if !a.store.fairly(path) && !a.above(path, v, t) {
				wrong(Claim, "reclaims gang %s from queue %s, which has no more than it deserves of what the gang uses", v.gang, path)
				return false
			}
		}
		if a.store.fairly(mine) {
			continue
		}
		judged, known := false, true
		uses := now.charges().Max(now.demand.Add(now.claim.promised))
		for _, x := range uses {
			deserved, is := t.deserves(mine, x.Resource)
			known = known && is
			if !is || deserved <= 0 || x.Value <= 0 {
				continue
			}
			judged = true
			promised := now.claim.promised.Value(x.Resource) - freedBelow(mine, x.Resource, victims)
			if after := api.AddSat(t.uses(mine, x.Resource), promised); after > deserved {
				wrong(Claim, "reclaims gang %s for queue %s, which would have %s of %s and deserves %s", v.gang, mine,
					api.FormatAmount(x.Resource, after), x.Resource, api.FormatAmount(x.Resource, deserved))
				return false
			}
		}
		if !judged && known {
			wrong(Claim, "reclaims gang %s for queue %s, which deserves nothing of what the claimant asks for", v.gang, mine)
			return false
		}
	}
	return true
}

// above reports whether a queue has more than it deserves of something that the victim uses, or deserves nothing of it; or it is not known.
func (a *Auditor) above(path string, v *reservation, t virtual) bool {
	names := false
	for _, x := range v.demand {
		deserved, known := t.deserves(path, x.Resource)
		if !known {
			return true
		}
		names = names || deserved > 0 && x.Value > 0
		if deserved > 0 && x.Value > 0 && t.uses(path, x.Resource) > deserved {
			return true
		}
	}
	return !names
}

// judgeLosses judges what is left to each queue that loses something.
func (a *Auditor) judgeLosses(now *reservation, victims []*reservation, t virtual, wrong func(Kind, string, ...any)) {
	freed, smallest := map[string]api.Resources{}, map[string]map[string]int64{}
	borrows := map[string]bool{} // a victim uses nothing that the queue names
	for _, v := range victims {
		_, from := parting(now.queue, v.queue)
		for _, path := range losers(from, v.queue) {
			freed[path] = freed[path].Add(v.demand)
			if smallest[path] == nil {
				smallest[path] = map[string]int64{}
			}
			names := false
			for _, x := range v.demand {
				if least, had := smallest[path][x.Resource]; x.Value > 0 && (!had || x.Value < least) {
					smallest[path][x.Resource] = x.Value
				}
				deserved, known := t.deserves(path, x.Resource)
				names = names || known && deserved > 0 && x.Value > 0
			}
			borrows[path] = borrows[path] || !names
		}
	}
	for _, path := range slices.Sorted(maps.Keys(freed)) {
		enough := borrows[path] || a.store.fairly(path)
		for _, x := range freed[path] {
			left := api.AddSat(t.uses(path, x.Resource), -x.Value)
			deserved, known := t.deserves(path, x.Resource)
			guarantee, is := t.inForce(amountOf{path, x.Resource, false}) // it counts as far as the queue deserves it
			if least := min(guarantee, deserved); known && is && x.Value > 0 && left < least {
				wrong(Claim, "leaves queue %s %d of %s, and %d are guaranteed", path, left, x.Resource, least)
			}
			enough = enough || !known || deserved > 0 && x.Value > 0 && api.AddSat(left, smallest[path][x.Resource]) > deserved
		}
		if !enough {
			wrong(Claim, "takes {%s} from queue %s, which then has less than it deserves by its smallest victim or more", freed[path], path)
		}
	}
}

// judgeNeeded judges that the victims free what is lacking, and that of those whose room is not waited for none could be left out. What
// guarantees keep free is not counted: where there are any, more may be lacking than is known here.
func (a *Auditor) judgeNeeded(now *reservation, victims []*reservation, t virtual, wrong func(Kind, string, ...any)) {
	type need struct {
		path, name   string
		short, freed int64
	}
	var needs []need
	exact := true
	for _, path := range api.Lineage(now.queue) {
		q := a.store.queue(path)
		for _, x := range now.claim.promised {
			limit, limited := q.limits.Get(x.Resource)
			if !limited || x.Value <= 0 {
				continue
			}
			exact = exact && !a.store.guaranteedBelow(path, x.Resource)
			n := need{path: path, name: x.Resource, short: api.AddSat(api.AddSat(t.atLeast(path, x.Resource), x.Value), -limit)}
			if n.short <= 0 {
				continue
			}
			for _, v := range victims {
				if api.Under(v.queue, path) {
					n.freed = api.AddSat(n.freed, v.demand.Value(x.Resource))
				}
			}
			if n.freed < n.short {
				wrong(Claim, "frees %s of %s in queue %s, and %s are lacking", api.FormatAmount(x.Resource, n.freed), x.Resource, path, api.FormatAmount(x.Resource, n.short))
				return
			}
			needs = append(needs, n)
		}
	}
	for _, x := range now.claim.lacked { // only the coordinator knows what it had admitted for the nodes
		n := need{path: api.RootQueue, name: x.Resource, short: x.Value}
		for _, v := range victims {
			n.freed = api.AddSat(n.freed, v.demand.Value(x.Resource))
		}
		if n.freed < n.short {
			wrong(Claim, "frees %s of %s, and the nodes lack %s", api.FormatAmount(x.Resource, n.freed), x.Resource, api.FormatAmount(x.Resource, n.short))
			return
		}
		needs = append(needs, n)
	}
	first, known := t.leavesFirst(now, victims)
	for _, l := range first {
		needs = append(needs, need{l.path, l.name, l.short, freedBelow(l.path, l.name, victims)})
	}
	if !exact || !known {
		return
	}
	if now.claim.rule == wire.Rule_RULE_PREEMPT { // it may have to free as much as it gets
		for _, x := range now.claim.promised {
			if x.Resource == api.ResourceGangs && !a.store.countsGangs() {
				continue
			}
			n := need{path: now.queue, name: x.Resource, short: x.Value}
			for _, v := range victims {
				n.freed = api.AddSat(n.freed, v.demand.Value(x.Resource))
			}
			needs = append(needs, n)
		}
	}
	for _, v := range victims {
		if slices.Contains(now.awaits, v.gang) {
			continue
		}
		if !slices.ContainsFunc(needs, func(n need) bool {
			return api.Under(v.queue, n.path) && api.AddSat(n.freed, -v.demand.Value(n.name)) < n.short
		}) {
			wrong(Claim, "names gang %s, without which as much quota would be free as it needs, and whose room it does not wait for", v.gang)
		}
	}
}

// judgePromised judges that what grew in a revision took nothing of what claims were promised. What may be bound already is charged
// whatever is promised, and a claim that becomes demand is charged what it was promised itself.
func (a *Auditor) judgePromised(e StoreRevision, old, now *reservation) {
	var had api.Resources
	if old != nil {
		had = old.charges()
		for _, s := range old.condemned {
			if !now.condemns(s.id) { // what it had for that pod is not for another one
				had = had.Sub(s.demand).Positive()
			}
		}
	}
	grew := now.charges().Sub(had).Positive()
	g := a.cluster.gangs[now.gang]
	if len(grew) == 0 || now.forced || old != nil && (old.forced || old.claim != nil) || g == nil || g.present > 0 || a.namesBound(now) {
		return
	}
	t := a.virtual("", false)
	for _, path := range api.Lineage(now.queue) {
		q := a.store.queue(path)
		for _, x := range grew {
			limit, limited := q.limits.Get(x.Resource)
			if uses := t.atLeast(path, x.Resource); limited && uses > limit {
				key := lastingKey{Quota, "queue " + path + " " + x.Resource, "promised, revision " + strconv.FormatInt(e.Revision, 10)}
				a.soon(key, 3*a.cfg.Lag, func(time.Time) {
					if a.admitted([]*gang{g}, e.Revision) && !a.namesGone(now) {
						a.storeViolation(Quota, key.object, []int64{e.Revision}, "gang %s was admitted with %s although, with what is promised to claims, %s would be charged of the capability of %s",
							now.gang, api.FormatAmount(x.Resource, x.Value), api.FormatAmount(x.Resource, uses), api.FormatAmount(x.Resource, limit))
					}
				})
				return
			}
		}
	}
}
