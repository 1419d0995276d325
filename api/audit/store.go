package audit

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

// store is the control store as of the newest revision.
type store struct {
	snapshot     bool             // the beginning was a snapshot: what was before is not known
	read         time.Time        // when the last snapshot came, zero for none
	leaders      map[string]int64 // election key -> CreateRevision; the smallest is the term
	term         int64            // the newest that a write carried
	sequence     uint64
	sequenced    bool
	table        *api.Table
	reservations map[string]*reservation // key -> record
	queues       map[string]*queue
	intents      map[string]*intents
	last         map[string]uint64       // incarnation -> the largest n that was written
	named        map[uint64]*reservation // by api.PodID: which reservation names the pod
	restricted   int                     // queues with a selector in force
	led          time.Time               // since when the same coordinator leads
	claims       map[string]*reservation // by gang, those with a claim,
	yields       map[string]*reservation // and those that are closing for another gang,
	condemns     map[string]*reservation // or lose single pods to one
}

type reservation struct {
	key      string
	gang     string
	queue    string
	attempt  uint64
	closing  bool
	forced   bool
	demand   api.Resources
	revision int64
	pods     []uint64 // api.PodID of those that it names

	started     bool // as recorded
	preemptible bool
	kept        bool  // it says that it may not be evicted
	granted     int64 // unix milliseconds, 0 where it is not known
	ranked      bool  // the priority is known
	priority    int64
	claim       *claim
	awaits      []string // UIDs of gangs
	yields      *yielding

	least     int      // it may lose single pods as long as so many are left; 0: all of them or none
	condemned []single // those that it loses
	shrinks   *yielding
}

// parting returns the children of the lowest common ancestor of two queues on the paths to them, "" if one queue is
// above the other.
func parting(x, y string) (to, from string) {
	xs, ys := api.Lineage(x), api.Lineage(y)
	for len(xs) > 0 && len(ys) > 0 && xs[len(xs)-1] == ys[len(ys)-1] {
		xs, ys = xs[:len(xs)-1], ys[:len(ys)-1]
	}
	if len(xs) == 0 || len(ys) == 0 {
		return "", ""
	}
	return xs[len(xs)-1], ys[len(ys)-1]
}

// losers returns the queues from a victim's own up to the child of the lowest common ancestor.
func losers(from, queue string) (out []string) {
	for _, p := range api.Lineage(queue) {
		if out = append(out, p); p == from {
			break
		}
	}
	return out
}

// lacking is how much of a resource has to leave a queue.
type lacking struct {
	path, name string
	short      int64
}

// leavesFirst returns what has to leave sides of a claimant before it is entitled to take from others, and whether all
// of that is known.
func (t virtual) leavesFirst(now *reservation, victims []*reservation) (out []lacking, known bool) {
	known = true
	for _, mine := range api.Lineage(api.Parent(now.queue)) {
		inside := func(v *reservation) bool { return api.Under(v.queue, mine) }
		beside := func(v *reservation) bool { return !inside(v) && api.Under(v.queue, api.Parent(mine)) }
		if mine == api.RootQueue || !slices.ContainsFunc(victims, inside) || !slices.ContainsFunc(victims, beside) {
			continue
		}
		for _, x := range now.demand.Add(now.claim.promised) {
			deserved, is := t.deserves(mine, x.Resource)
			known = known && is && !t.a.fairly(mine)
			after := api.AddSat(t.uses(mine, x.Resource), now.claim.promised.Value(x.Resource))
			if deserved > 0 && after > deserved {
				out = append(out, lacking{mine, x.Resource, after - deserved})
			}
		}
	}
	return out, known
}

// freedBelow is what victims have that are in a queue or below it.
func freedBelow(path, name string, victims []*reservation) (sum int64) {
	for _, v := range victims {
		if api.Under(v.queue, path) {
			sum = api.AddSat(sum, v.demand.Value(name))
		}
	}
	return sum
}

// once says for what a gang has another one closed only once: for an attempt, or if it has started, for a claim of a
// further pod.
func (r *reservation) once() uint64 {
	if len(r.demand) > 0 && !r.claim.promised.IsZero() {
		return r.claim.mandate
	}
	return r.attempt
}

// queue is one queue's part of the sums: what is at and under it.
type queue struct {
	path       string
	limited    bool // a record of limits exists
	uid        string
	generation int64
	limits     api.Resources
	guarantee  api.Resources // as recorded, before cuts
	deserved   api.Resources // likewise
	weight     int32         // as recorded
	priority   int32
	policy     policy
	selector   string // in force, "" for none
	closed     bool
	admitted   int // reservations at and under it that are charged
	sums       []sum
	reserved   api.Resources // by reservations that are not forced
	forced     api.Resources
	bound      api.Resources // by unfinished pods of gangs with a reservation that is not forced

	// As of the revision judged before.
	prevLimits   api.Resources
	prevReserved api.Resources
	prevForced   api.Resources
	freed        api.Resources   // of prevForced, in this transaction
	rest         api.Resources   // by forced reservations, of what no bound pod explains
	cut          map[string]bool // the limit was lowered below what was charged
	relimited    bool            // its limits changed in the revision being judged
	excused      map[string]bool // above the limit because the limit was cut
	over         map[string]bool // bound is above, for the clearing of what lasts
}

type intents struct {
	key         string
	incarnation string
	rows        []*row
}

type row struct {
	pod    string // UID
	node   string
	gang   string
	demand api.Resources
}

func newStore() store {
	return store{
		leaders: map[string]int64{}, reservations: map[string]*reservation{}, queues: map[string]*queue{},
		intents: map[string]*intents{}, last: map[string]uint64{}, named: map[uint64]*reservation{},
		claims: map[string]*reservation{}, yields: map[string]*reservation{}, condemns: map[string]*reservation{},
	}
}

func (s *store) queue(path string) *queue {
	q := s.queues[path]
	if q == nil {
		q = &queue{path: path, policy: noPolicy, excused: map[string]bool{}, over: map[string]bool{}, cut: map[string]bool{}}
		s.queues[path] = q
	}
	return q
}

// leader returns the term that is in force, 0 when nobody leads.
func (s *store) leader() int64 {
	term := int64(0)
	for _, r := range s.leaders {
		if term == 0 || r < term {
			term = r
		}
	}
	return term
}

func (a *Auditor) storeViolation(k Kind, object string, revisions []int64, format string, args ...any) {
	a.violate(Violation{Kind: k, Object: object, Message: fmt.Sprintf(format, args...), Revisions: revisions})
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
				a.charge(r, -1, touched)
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
			a.unlimit(q)
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
		a.charge(r, -1, touched)
		delete(s.reservations, key)
		s.keep(r, nil)
		if g := a.cluster.gangs[r.gang]; g != nil {
			g.reservation = nil
			a.judgeGang(g)
		}
	}
	for _, q := range s.queues {
		a.unlimit(q)
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

func (a *Auditor) sequencePut(e StoreRevision, c StoreChange) {
	var r wire.Sequence
	if err := proto.Unmarshal(c.Value, &r); err != nil {
		a.unreadable(e, c, err)
		return
	}
	if !e.Snapshot && a.store.sequenced && r.GetValue() <= a.store.sequence {
		a.storeViolation(Term, "seq", []int64{e.Revision}, "the sequence went from %d to %d", a.store.sequence, r.GetValue())
	}
	a.store.sequence, a.store.sequenced = r.GetValue(), true
	a.termWritten(e, c.Key, r.GetTerm())
}

// termWritten judges the term that a coordinator's write carries.
func (a *Auditor) termWritten(e StoreRevision, key string, term uint64) {
	s := &a.store
	if e.Snapshot {
		s.term = max(s.term, int64(term))
		return
	}
	switch leader := s.leader(); {
	case int64(term) < s.term:
		a.storeViolation(Term, key, []int64{e.Revision}, "carries term %d after a write of term %d", term, s.term)
	case leader != 0 && int64(term) != leader:
		a.storeViolation(Term, key, []int64{e.Revision}, "carries term %d while the leader's is %d", term, leader)
	case leader == 0:
		a.storeViolation(Term, key, []int64{e.Revision}, "carries term %d while nobody leads", term)
	}
	s.term = max(s.term, int64(term))
}

func (a *Auditor) tablePut(e StoreRevision, c StoreChange) {
	var r wire.TableRecord
	if err := proto.Unmarshal(c.Value, &r); err != nil {
		a.unreadable(e, c, err)
		return
	}
	t, err := wire.ToTable(&r, e.Revision)
	if err != nil {
		a.unreadable(e, c, err)
		return
	}
	if old := a.store.table; old != nil && !e.Snapshot {
		if t.Epoch <= old.Epoch {
			a.storeViolation(Table, "table", []int64{old.Revision, e.Revision}, "epoch %d was followed by epoch %d", old.Epoch, t.Epoch)
		}
		for b := range api.BucketID(api.Buckets) {
			moved, marked := t.Owner(b) != old.Owner(b), t.Changed[b] == t.Epoch
			if moved && !marked {
				a.storeViolation(Table, "bucket "+b.Label(), []int64{old.Revision, e.Revision}, "went from %q to %q at epoch %d, but is said to have changed hands at epoch %d", old.Owner(b), t.Owner(b), t.Epoch, t.Changed[b])
			}
			if !moved && t.Changed[b] < old.Changed[b] {
				a.storeViolation(Table, "bucket "+b.Label(), []int64{old.Revision, e.Revision}, "changed hands at epoch %d, then it is said to have done so at epoch %d", old.Changed[b], t.Changed[b])
			}
		}
	}
	seen := map[api.Incarnation]bool{}
	for _, m := range t.Members {
		if seen[m.Incarnation] {
			a.storeViolation(Table, "table", []int64{e.Revision}, "epoch %d names %q twice", t.Epoch, m.Incarnation)
		}
		seen[m.Incarnation] = true
	}
	a.store.table = t
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
	q.limited, q.uid, q.generation, q.limits = true, r.GetUid(), r.GetGeneration(), a.strip(limits)
	q.guarantee, q.selector, q.closed = a.strip(guarantee), string(r.GetNamespaceSelector()), r.GetClosed()
	if q.deserved, q.weight, q.priority = a.strip(deserved), 1, r.GetPriority(); r.Weight != nil {
		q.weight = int32(r.GetWeight())
	}
	q.policy = policyInForce(r.GetPolicy())
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
		closing: rec.GetState() == wire.ReservationState_RESERVATION_CLOSING, demand: a.strip(demand), revision: e.Revision,
		pods: rec.GetPods(),
	}
	if err := a.readClaim(r, &rec); err != nil {
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
	g.complete = g.complete || e.Snapshot && rec.GetStarted() // of what was bound before our time there is no other word
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
	case old != nil && old.closing && !r.closing && (!r.started || old.yields != nil):
		a.storeViolation(Reservation, object, []int64{old.revision, e.Revision}, "was closing and is open again")
	case old != nil && old.closing && r.closing:
		if name, by, more := r.demand.Exceeds(old.demand); more {
			a.storeViolation(Reservation, object, []int64{old.revision, e.Revision}, "is closing and grew by %s of %s", api.FormatAmount(name, by), name)
		}
	}
	if old != nil {
		a.charge(old, -1, touched)
		if old.forced && old.queue == r.queue {
			a.kept(old, r)
		}
	}
	a.charge(r, 1, touched)
	var had api.Resources
	if old != nil {
		had = old.demand
	}
	if by := r.demand.Sub(had); !by.Fits(nil) {
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

func (a *Auditor) unlimit(q *queue) {
	if q.selector != "" {
		a.store.restricted--
	}
	q.relimited = true
	q.limited, q.limits, q.guarantee, q.deserved, q.policy, q.selector, q.closed = false, nil, nil, nil, noPolicy, "", false
}

// charge adds a reservation to the sums of its queue and of every ancestor, or takes it off.
func (a *Auditor) charge(r *reservation, sign int64, touched map[*queue]bool) {
	for _, path := range api.Lineage(r.queue) {
		q := a.store.queue(path)
		touched[q] = true
		if r.isCharged() {
			q.admitted += int(sign)
		}
		to := &q.reserved
		if r.forced {
			to = &q.forced
			if sign < 0 {
				q.freed = q.freed.Add(r.demand)
			}
		}
		*to = add(*to, r.demand, sign)
	}
}

// kept takes note of what a forced reservation has that it had already: it was not freed, and when it is not forced any more
// it is no growth of the others.
func (a *Auditor) kept(old, r *reservation) {
	kept := old.demand.Sub(old.demand.Sub(r.demand).Positive())
	for _, path := range api.Lineage(r.queue) {
		q := a.store.queue(path)
		if q.freed = q.freed.Sub(kept); !r.forced {
			q.prevReserved, q.prevForced = q.prevReserved.Add(kept), q.prevForced.Sub(kept)
		}
	}
}

func add(r, o api.Resources, sign int64) api.Resources {
	if sign < 0 {
		return r.Sub(o)
	}
	return r.Add(o)
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
			if wasLimited && sum > prev && forced <= prevForced && api.AddSat(prev, prevForced) > prevLimit && api.AddSat(sum, between) > limit && !a.guaranteedBelow(q.path, name) {
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

func (a *Auditor) intentsPut(e StoreRevision, c StoreChange, rest string) {
	incarnation, hex, _ := strings.Cut(rest, "/")
	n, err := strconv.ParseUint(hex, 16, 64)
	if err != nil {
		a.unreadable(e, c, err)
		return
	}
	var rec wire.IntentsRecord
	if err := proto.Unmarshal(c.Value, &rec); err != nil {
		a.unreadable(e, c, err)
		return
	}
	demands := make([]api.Resources, len(rec.GetDemands()))
	for i, d := range rec.GetDemands() {
		if demands[i], err = wire.ToResources(d.GetAmounts()); err != nil {
			a.unreadable(e, c, err)
			return
		}
	}
	in := &intents{key: c.Key, incarnation: incarnation}
	for _, r := range rec.GetRows() {
		if int(r.GetGang()) >= len(rec.GetGangs()) || int(r.GetDemand()) >= len(demands) {
			a.unreadable(e, c, fmt.Errorf("the row of pod %s names gang %d of %d and demand %d of %d", r.GetPodUid(), r.GetGang(), len(rec.GetGangs()), r.GetDemand(), len(demands)))
			return
		}
		in.rows = append(in.rows, &row{pod: r.GetPodUid(), node: r.GetNode(), gang: rec.GetGangs()[r.GetGang()].GetUid(), demand: a.strip(demands[r.GetDemand()])})
	}
	s := &a.store
	old := s.intents[c.Key]
	switch {
	case e.Snapshot:
	case old != nil: // an heir may leave rows out, nothing else
		had := map[[3]string]bool{}
		for _, r := range old.rows {
			had[[3]string{r.pod, r.node, r.gang}] = true
		}
		for _, r := range in.rows {
			if !had[[3]string{r.pod, r.node, r.gang}] {
				a.storeViolation(Intent, c.Key, []int64{c.CreateRevision, e.Revision}, "was written again with a row for pod %s on node %s that it did not have", r.pod, r.node)
			}
		}
	default:
		if last, had := s.last[incarnation]; had && n <= last {
			a.storeViolation(Intent, c.Key, []int64{e.Revision}, "was written after %s wrote number %d", incarnation, last)
		}
		a.judgeIntents(e, in, rec.GetTableEpoch())
	}
	s.last[incarnation] = max(s.last[incarnation], n)
	a.dropIntents(c.Key)
	s.intents[c.Key] = in
	for i, r := range in.rows {
		p := a.pod(r.pod)
		p.rows = append(p.rows, r)
		p.announced[r.node], p.intended = true, e.Revision
		if old == nil && !e.Snapshot {
			p.decided, p.place = a.now, place{c.CreateRevision, i}
		}
		a.recount(p)
	}
	unresolved := lastingKey{Leak, c.Key, "intents unresolved"}
	violate := func(since time.Time) {
		a.storeViolation(Leak, c.Key, []int64{c.CreateRevision, e.Revision}, "has %d intents unresolved since %s", len(in.rows), since.Format(clock))
	}
	a.lasts(unresolved, len(in.rows) > 0, a.cfg.Unresolved, func(since time.Time) {
		if !a.awaitsVolumes(in) {
			violate(since)
			return
		}
		delete(a.lasting, unresolved)
		a.lasts(unresolved, true, volumesTake, violate)
	})
}

// volumesTake is how much longer intents may stand where volumes are being bound: a gang is given 10 minutes for its volumes.
const volumesTake = 12 * time.Minute

// awaitsVolumes reports whether intents are of a gang of which some pod has a claim that is not bound: no pod of it is bound before.
func (a *Auditor) awaitsVolumes(in *intents) bool {
	gangs := map[string]bool{}
	for _, r := range in.rows {
		gangs[r.gang] = true
	}
	for _, other := range a.store.intents {
		for _, r := range other.rows {
			p := a.cluster.pods[r.pod]
			if !gangs[r.gang] || p == nil || p.worn == nil {
				continue
			}
			for _, claim := range slices.Concat(p.worn.named, p.worn.made) {
				if c, known := a.volumes.claims[claim]; known && c.volume == "" {
					return true
				}
			}
		}
	}
	return false
}

// judgeIntents judges intents that are new.
func (a *Auditor) judgeIntents(e StoreRevision, in *intents, epoch uint64) {
	if len(in.rows) == 0 {
		return
	}
	t := a.store.table
	if t == nil {
		if !a.store.snapshot {
			a.storeViolation(Intent, in.key, []int64{e.Revision}, "was written when there was no table")
		}
		return
	}
	if api.Epoch(epoch) != t.Epoch {
		a.storeViolation(Intent, in.key, []int64{t.Revision, e.Revision}, "was decided under table epoch %d, the table has epoch %d", epoch, t.Epoch)
	}
	for _, r := range in.rows {
		if owner := t.OwnerOf(r.node); string(owner) != in.incarnation {
			a.storeViolation(Intent, in.key, []int64{t.Revision, e.Revision}, "has a row for node %s, which belongs to %q", r.node, owner)
		}
		res := a.gang(r.gang).reservation
		if res == nil {
			a.storeViolation(Intent, in.key, []int64{e.Revision}, "has a row for pod %s of gang %s, which has no reservation", r.pod, r.gang)
		} else if !res.isCharged() {
			a.storeViolation(Intent, in.key, []int64{res.revision, e.Revision}, "has a row for pod %s of gang %s, which has a claim and no quota yet", r.pod, r.gang)
		} else if res.closing {
			a.storeViolation(Intent, in.key, []int64{res.revision, e.Revision}, "has a row for pod %s of gang %s, which is closing", r.pod, r.gang)
		}
	}
}

func (a *Auditor) dropIntents(key string) {
	in := a.store.intents[key]
	if in == nil {
		return
	}
	delete(a.store.intents, key)
	delete(a.lasting, lastingKey{Leak, key, "intents unresolved"})
	for _, r := range in.rows {
		if p := a.cluster.pods[r.pod]; p != nil {
			p.rows = slices.DeleteFunc(p.rows, func(o *row) bool { return o == r })
			a.recount(p)
			a.dropPod(p)
		}
	}
}
