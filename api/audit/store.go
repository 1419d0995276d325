package audit

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

// store is the control store as of the newest revision.
type store struct {
	terms
	announced
	snapshot     bool                    // the beginning was a snapshot: what was before is not known
	read         time.Time               // when the last snapshot came, zero for none
	reservations map[string]*reservation // key -> record
	queues       map[string]*queue
	named        map[uint64]*reservation // by api.PodID: which reservation names the pod
	restricted   int                     // queues with a selector in force
	claims       map[string]*reservation // by gang, those with a claim,
	yields       map[string]*reservation // and those that are closing for another gang,
	condemns     map[string]*reservation // or lose single pods to one
}

func newStore() store {
	return store{
		terms:        terms{leaders: map[string]int64{}},
		announced:    announced{intents: map[string]*intents{}, last: map[string]uint64{}},
		reservations: map[string]*reservation{}, queues: map[string]*queue{}, named: map[uint64]*reservation{},
		claims: map[string]*reservation{}, yields: map[string]*reservation{}, condemns: map[string]*reservation{},
	}
}

// storeRevision applies a revision and then judges it. Deletions go first: within a transaction nothing comes before
// anything else, and a record that moves must not look as if it stood twice.
func (a *Auditor) storeRevision(e StoreRevision) {
	s := &a.store
	if e.Snapshot {
		a.forgetStore(e.Replaced)
		s.read = a.now
	}
	s.snapshot = s.snapshot || e.Snapshot
	touched := map[*queue]bool{}
	fenced, coordinated := false, ""
	restored, others := false, false // a process that found the store restored gives it another identity, and marks the table
	// `basalt store forget` deletes the identity and all that was written under it, but for intents.
	emptied := slices.ContainsFunc(e.Changes, func(c StoreChange) bool { return c.Key == "store" && c.Deleted })
	for _, c := range e.Changes {
		kind, _, _ := strings.Cut(c.Key, "/")
		switch kind {
		case "seq":
			fenced = true
		case "table", "queues", "reservations":
			coordinated = c.Key
			others = others || kind != "table"
		case "store":
			restored = c.CreateRevision < c.ModRevision
		}
		if !c.Deleted {
			continue
		}
		switch kind {
		case "leader":
			delete(s.leaders, c.Key)
		case "reservations":
			if r := s.reservations[c.Key]; r != nil {
				a.store.charge(r, -1, touched)
				delete(s.reservations, c.Key)
				s.keep(r, nil)
				if g := a.cluster.gangs[r.gang]; g != nil && g.reservation == r {
					g.reservation = nil
					if r.yields != nil {
						a.startsAnew(g)
					}
					a.judgeGang(g)
				}
				a.renamed = append(a.renamed, renamed{r, nil})
			}
		case "queues":
			q := s.queue(strings.TrimPrefix(c.Key, "queues/"))
			a.store.unlimit(q)
			touched[q] = true
		case "intents":
			a.dropIntents(c.Key)
		case "table":
			if !emptied {
				a.storeViolation(Table, "table", []int64{e.Revision}, "the table was deleted")
			}
		}
	}
	if emptied {
		a.startOver()
	}
	for _, c := range e.Changes { // who leads, and under which table, before what was done under them
		if c.Deleted {
			continue
		}
		switch kind, _, _ := strings.Cut(c.Key, "/"); kind {
		case "leader":
			if s.leaders[c.Key] != c.CreateRevision {
				s.led = a.now
			}
			s.leaders[c.Key] = c.CreateRevision
		case "table":
			a.tablePut(e, c)
		case "seq":
			a.sequencePut(e, c)
		}
	}
	for _, c := range e.Changes {
		if c.Deleted {
			continue
		}
		switch kind, rest, _ := strings.Cut(c.Key, "/"); kind {
		case "queues":
			touched[a.limitsPut(e, c, rest)] = true
		case "reservations":
			a.reservationPut(e, c, rest, touched)
		}
	}
	delete(touched, nil)
	a.judgeClaims(e, touched)
	a.name(e.Revision)
	for _, c := range e.Changes {
		if kind, rest, _ := strings.Cut(c.Key, "/"); kind == "intents" && !c.Deleted {
			a.intentsPut(e, c, rest)
		}
	}
	if coordinated != "" && !fenced && !emptied && !e.Snapshot && (!restored || others) {
		a.storeViolation(Term, coordinated, []int64{e.Revision}, "was written without the coordinator's sequence")
	}
	for _, path := range slices.Sorted(func(yield func(string) bool) {
		for q := range touched {
			if !yield(q.path) {
				return
			}
		}
	}) {
		a.judgeQueue(s.queues[path], e)
		s.queues[path].noteSum(a.now, a.cfg.Grace)
	}
	a.judgeGuarantees(e, touched)
	a.revision = e.Revision
}

// forgetStore empties what is known of the store before a snapshot replaces it.
func (a *Auditor) forgetStore(replaced bool) {
	s := &a.store
	if a.revision > 0 { // the intents of pods that were bound meanwhile may have come and gone unseen
		a.gap = a.now.Add(2 * a.cfg.Lag)
		for _, uid := range slices.Sorted(maps.Keys(a.cluster.pods)) {
			a.excuseBinding(a.cluster.pods[uid])
		}
	}
	if replaced {
		a.startOver()
	}
	for _, key := range slices.Sorted(maps.Keys(s.intents)) {
		a.dropIntents(key)
	}
	touched := map[*queue]bool{}
	for _, key := range slices.Sorted(maps.Keys(s.reservations)) {
		r := s.reservations[key]
		a.store.charge(r, -1, touched)
		delete(s.reservations, key)
		s.keep(r, nil)
		if g := a.cluster.gangs[r.gang]; g != nil {
			g.reservation = nil
			a.judgeGang(g)
		}
	}
	for _, q := range s.queues {
		a.store.unlimit(q)
	}
	clear(s.named)
	clear(s.leaders)
}

// startOver forgets what only grows in one store.
func (a *Auditor) startOver() {
	s := &a.store
	s.term, s.sequence, s.sequenced, s.table = 0, 0, false, nil
	clear(s.last)
	for _, g := range a.cluster.gangs {
		g.attempts, g.yielded = nil, nil
	}
	for _, q := range s.queues {
		q.uid, q.generation = "", 0
	}
}

func (a *Auditor) unreadable(e StoreRevision, c StoreChange, err error) {
	a.storeViolation(Record, c.Key, []int64{e.Revision}, "cannot be read: %v", err)
}

func (a *Auditor) limitsPut(e StoreRevision, c StoreChange, path string) *queue {
	var r wire.LimitsRecord
	err := proto.Unmarshal(c.Value, &r)
	limits, err2 := wire.ToResources(r.GetCapability())
	if err == nil {
		err = err2
	}
	guarantee, err2 := wire.ToResources(r.GetGuarantee())
	if err == nil {
		err = err2
	}
	deserved, err2 := wire.ToResources(r.GetDeserved())
	if err == nil {
		err = err2
	}
	if err == nil && r.GetQueue() != path {
		err = fmt.Errorf("it is about queue %q", r.GetQueue())
	}
	if err != nil {
		a.unreadable(e, c, err)
		return nil
	}
	q := a.store.queue(path)
	if q.limited && q.uid == r.GetUid() && r.GetGeneration() < q.generation {
		a.storeViolation(Quota, "queue "+path+" limits", []int64{e.Revision}, "limits of generation %d were replaced by those of generation %d", q.generation, r.GetGeneration())
	}
	q.relimited = true
	if (q.selector != "") != (len(r.GetNamespaceSelector()) > 0) {
		if a.store.restricted++; q.selector != "" {
			a.store.restricted -= 2
		}
	}
	q.limited, q.uid, q.generation, q.limits = true, r.GetUid(), r.GetGeneration(), a.cfg.strip(limits)
	q.guarantee, q.selector, q.closed = a.cfg.strip(guarantee), string(r.GetNamespaceSelector()), r.GetClosed()
	if q.deserved, q.weight, q.priority = a.cfg.strip(deserved), 1, r.GetPriority(); r.Weight != nil {
		q.weight = int32(r.GetWeight())
	}
	q.policy, q.users, q.userMost = policyInForce(r.GetPolicy()), r.GetUserLimits(), nil
	for _, l := range r.GetUserLimits() {
		most, err := wire.ToResources(l.GetCapability())
		if err != nil {
			a.unreadable(e, c, err)
		}
		q.userMost = append(q.userMost, a.cfg.strip(most))
	}
	return q
}

func (a *Auditor) reservationPut(e StoreRevision, c StoreChange, rest string, touched map[*queue]bool) {
	var rec wire.ReservationRecord
	err := proto.Unmarshal(c.Value, &rec)
	demand, err2 := wire.ToResources(rec.GetDemand())
	bucket, uid, _ := strings.Cut(rest, "/")
	switch {
	case err != nil:
	case err2 != nil:
		err = err2
	case rec.GetGang().GetUid() != uid:
		err = fmt.Errorf("it is about gang %q", rec.GetGang().GetUid())
	case api.ValidatePath(rec.GetGang().GetQueue()) != nil:
		err = api.ValidatePath(rec.GetGang().GetQueue())
	case rec.GetState() != wire.ReservationState_RESERVATION_OPEN && rec.GetState() != wire.ReservationState_RESERVATION_CLOSING:
		err = fmt.Errorf("its state is %s", rec.GetState())
	}
	for _, x := range demand {
		if err == nil && x.Value < 0 {
			err = fmt.Errorf("its demand of %s is negative", x.Resource)
		}
	}
	if err != nil {
		a.unreadable(e, c, err)
		return
	}
	r := &reservation{
		key: c.Key, gang: uid, queue: rec.GetGang().GetQueue(), attempt: rec.GetAttempt(), forced: rec.GetForced(),
		closing: rec.GetState() == wire.ReservationState_RESERVATION_CLOSING, demand: a.cfg.strip(demand),
		revision: e.Revision,
		pods:     rec.GetPods(),
		user:     cmp.Or(rec.GetUser(), api.NamespaceUser(rec.GetGang().GetNamespace())), groups: rec.GetGroups(),
	}
	if err := r.readClaim(&rec, &a.cfg); err != nil {
		a.unreadable(e, c, err)
		return
	}
	if rec.GetGang().GetSingle() {
		r.pods = []uint64{api.PodID(uid)}
	}
	object := "gang " + uid
	a.termWritten(e, c.Key, rec.GetTerm())
	if want := api.BucketOf(r.queue).Label(); bucket != want {
		a.storeViolation(Reservation, object, []int64{e.Revision}, "lies in bucket %s, its queue %s belongs to bucket %s", bucket, r.queue, want)
	}
	g := a.gang(uid)
	if e.Snapshot && rec.GetStarted() { // of what was bound before our time there is no other word
		g.hadMinimum()
	}
	if g.queue != "" && g.queue != r.queue && g.kind != api.VolcanoGroup {
		a.storeViolation(Reservation, object, []int64{e.Revision}, "is charged to queue %s, its PodGroup names %s", r.queue, g.queue)
	}
	old := a.store.reservations[c.Key]
	switch {
	case g.reservation != nil && g.reservation != old:
		a.storeViolation(Reservation, object, []int64{g.reservation.revision, e.Revision}, "has a reservation in %s and one in %s", g.reservation.key, c.Key)
	case old == nil && !e.Snapshot && r.attempt <= g.attempts[r.queue] && g.attempts[r.queue] > 0:
		a.storeViolation(Reservation, object, []int64{e.Revision}, "was reserved again with attempt %d after attempt %d", r.attempt, g.attempts[r.queue])
	case old != nil && r.attempt < old.attempt:
		a.storeViolation(Reservation, object, []int64{old.revision, e.Revision}, "went from attempt %d back to attempt %d", old.attempt, r.attempt)
	case old != nil && old.attempt == r.attempt && old.user != r.user:
		a.storeViolation(Reservation, object, []int64{old.revision, e.Revision},
			"was charged to %s, and is charged to %s under the same attempt", old.user, r.user)
	case old != nil && old.closing && !r.closing && (!r.started || old.yields != nil) && r.attempt == old.attempt:
		a.storeViolation(Reservation, object, []int64{old.revision, e.Revision}, "was closing and is open again")
	case old != nil && old.closing && (r.closing || r.attempt != old.attempt):
		if name, by, more := r.demand.Exceeds(old.demand); more {
			a.storeViolation(Reservation, object, []int64{old.revision, e.Revision},
				"was closing and grew by %s of %s", api.FormatAmount(name, by), name)
		}
	}
	if old != nil {
		a.store.charge(old, -1, touched)
		if old.forced && old.queue == r.queue {
			a.store.kept(old, r)
		}
	}
	a.store.charge(r, 1, touched)
	var had api.Resources
	if old != nil {
		had = old.charges()
	}
	if by := r.charges().Sub(had); !by.Fits(nil) {
		a.grown = append(a.grown, growth{g, r.queue, by, r.forced || old.isCharged() || g.present > 0})
	}
	a.store.reservations[c.Key] = r
	a.store.keep(old, r)
	a.watchClaim(r)
	g.reservation = r
	if g.attempts == nil {
		g.attempts = map[string]uint64{}
	}
	if r.isCharged() {
		g.attempts[r.queue] = max(g.attempts[r.queue], r.attempt)
	}
	g.everHad, g.everClosing, g.everYielding = g.everHad || r.isCharged(), g.everClosing || r.closing, g.everYielding || e.Snapshot && r.yields != nil
	for _, s := range r.condemned {
		if g.everCondemned == nil {
			g.everCondemned = map[string]bool{}
		}
		g.everCondemned[s.uid] = true
	}
	g.closesStarted(a.now, a.cfg, old, r)
	if old == nil && r.isCharged() && !e.Snapshot && !r.forced && !a.namesBound(r) {
		a.judgeOrder(e, g, r, rec.GetGang().GetNamespace(), rec.GetRank().GetPriority())
	}
	a.waitsNot(g)
	a.renamed = append(a.renamed, renamed{old, r})
	a.judgeGang(g)
}

// growth is what a reservation grew by in the revision being judged.
type growth struct {
	gang   *gang
	queue  string
	by     api.Resources
	forced bool // may be what is bound, which is charged whatever is guaranteed
}

// renamed is a reservation as it was and as it is, nil for none.
type renamed struct{ old, now *reservation }

// name takes note of which pods the reservations of a revision name, and judges that no two name the same.
func (a *Auditor) name(revision int64) {
	moved := map[uint64]string{}
	for _, r := range a.renamed {
		if r.old == nil {
			continue
		}
		for _, id := range r.old.pods {
			if a.store.named[id] == r.old {
				delete(a.store.named, id)
				moved[id] = r.old.gang
			}
		}
	}
	for _, r := range a.renamed {
		if r.now == nil {
			continue
		}
		for _, id := range r.now.pods {
			if o := a.store.named[id]; o != nil {
				a.storeViolation(Reservation, "gang "+r.now.gang, []int64{o.revision, revision}, "names a pod (id %016x) that the reservation of gang %s names", id, o.gang)
			}
			a.store.named[id] = r.now
			if moved[id] == r.now.gang {
				delete(moved, id)
			} else {
				moved[id] = ""
			}
		}
	}
	a.renamed = a.renamed[:0]
	for _, id := range slices.Sorted(maps.Keys(moved)) {
		if p := a.cluster.ids[id]; p != nil && p.known {
			a.recount(p)
		}
	}
}

// judgeQueue compares the sums of a queue with the limits in force at this revision. After a cut they may stay above, but
// not grow, until they have fitted once.
func (a *Auditor) judgeQueue(q *queue, e StoreRevision) {
	for _, x := range q.limits {
		name, limit := x.Resource, x.Value
		sum, prev := q.reserved.Value(name), q.prevReserved.Value(name)
		forced, prevForced := q.forced.Value(name), q.prevForced.Value(name)
		prevLimit, wasLimited := q.prevLimits.Get(name)
		object := "queue " + q.path + " " + name
		format := func(v int64) string { return api.FormatAmount(name, v) }
		switch {
		case e.Snapshot:
			q.excused[name] = sum > limit
		case sum > limit:
			if !wasLimited || limit < prevLimit {
				q.excused[name] = true
			}
			if !q.excused[name] {
				a.storeViolation(Quota, object, []int64{e.Revision}, "reservations of %s are above the capability of %s", format(sum), format(limit))
			} else if sum > prev {
				a.storeViolation(Quota, object, []int64{e.Revision}, "reservations grew from %s to %s while above the capability of %s", format(prev), format(sum), format(limit))
			}
		default:
			delete(q.excused, name)
			// What is forced may exceed, and then nothing else is admitted until all of it fits. Within a transaction others may
			// have been admitted after something forced was freed, and before something else was forced. With guarantees below,
			// what is inside one is admitted all the same: then judgeGuarantees judges.
			between := min(forced, prevForced-q.freed.Value(name))
			if wasLimited && sum > prev && forced <= prevForced && api.AddSat(prev, prevForced) > prevLimit && api.AddSat(sum,
				between) > limit && !a.store.guaranteedBelow(q.path, name) {
				a.storeViolation(Quota, object, []int64{e.Revision}, "reservations grew from %s to %s while forced ones of %s leave nothing of the capability of %s", format(prev), format(sum), format(forced), format(limit))
			}
		}
	}
	for _, x := range q.limits {
		charged := api.AddSat(q.reserved.Value(x.Resource), q.forced.Value(x.Resource))
		switch before, was := q.prevLimits.Get(x.Resource); {
		case charged <= x.Value:
			delete(q.cut, x.Resource)
		case !was || x.Value < before || e.Snapshot:
			q.cut[x.Resource] = true
		}
	}
	q.prevLimits, q.prevReserved, q.prevForced, q.freed = q.limits, q.reserved, q.forced, nil
	a.judgeBound(q)
	a.judgeForced(q)
}

func queueOf(r *reservation) string {
	if r == nil || !r.forced {
		return ""
	}
	return r.queue
}

// judgeForced judges that a queue is above its limit only by pods that are bound: a reservation's own word that it is forced
// is not taken.
func (a *Auditor) judgeForced(q *queue) {
	for _, x := range q.limits {
		name := x.Resource
		sum := api.AddSat(q.reserved.Value(name), q.rest.Value(name))
		over := q.rest.Value(name) > 0 && sum > x.Value && !q.cut[name]
		key := lastingKey{Quota, "queue " + q.path + " " + name, "forced"}
		if !over && a.lasting[key] == nil {
			continue
		}
		a.lasts(key, over, a.cfg.Grace, func(since time.Time) {
			a.storeViolation(Quota, key.object, []int64{a.revision}, "reservations of %s, without what bound pods explain, are above the capability of %s since %s", api.FormatAmount(name, sum), api.FormatAmount(name, x.Value), since.Format(clock))
		})
	}
}

// judgeBound compares bound pods with the limits. Above what is reserved is what the reservations do not explain (a cut
// limit leaves both above).
func (a *Auditor) judgeBound(q *queue) {
	for _, x := range q.limits {
		name := x.Resource
		over := q.bound.Value(name) > x.Value && q.bound.Value(name) > q.reserved.Value(name)
		if !over && !q.over[name] {
			continue
		}
		q.over[name] = over
		object := "queue " + q.path + " " + name
		a.lasts(lastingKey{Quota, object, "bound"}, over, a.cfg.Lag, func(since time.Time) {
			a.storeViolation(Quota, object, []int64{a.revision}, "bound pods of %s are above the capability of %s since %s", api.FormatAmount(name, q.bound.Value(name)), api.FormatAmount(name, q.limits.Value(name)), since.Format(clock))
		})
	}
}
