package coordinator

import (
	"fmt"
	"maps"
	"math/rand"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/bench/prove/lab/loop"
)

// TestRandomHistories drives a core with random requests, edits, deaths and failovers. After every transaction the store
// is checked by rules of its own and the core's sums are compared with sums made again; whenever nothing is in flight,
// nobody waits who could be granted.
func TestRandomHistories(t *testing.T) {
	seeds, steps := int64(40), 600
	if testing.Short() {
		seeds = 5
	}
	grants, denials, elsewhere, barred, supplies, mandates, claims, refused, condemned := 0, 0, 0, 0, 0, 0, 0, 0, uint64(0)
	personal := 0
	for seed := range seeds {
		w := newWorld(seed)
		for range steps {
			w.random()
			if len(w.store.problems) > 0 {
				break
			}
		}
		w.finish()
		personal += w.store.personal
		for _, p := range w.store.problems {
			t.Errorf("seed %d: %s", seed, p)
		}
		if t.Failed() {
			return
		}
		grants, denials, elsewhere, barred, supplies = grants+w.grants, denials+w.denials, elsewhere+w.elsewhere, barred+w.barred, supplies+w.supplies
		mandates, claims, refused = mandates+w.mandates, claims+w.claims, refused+w.refused
		for _, n := range w.core.Claims.Condemned {
			condemned += n
		}
	}
	if claims < int(seeds)/4 || refused < int(seeds)/4 {
		t.Errorf("only %d claims and %d that were refused: the histories show nothing", claims, refused)
	}
	if personal < 200*int(seeds) {
		t.Errorf("only %d sums of users were compared with limits", personal)
	}
	t.Logf("%d mandates, %d claims, %d refused, %d pods condemned", mandates, claims, refused, condemned)
	if grants < 40*int(seeds) || denials < 50*int(seeds) || elsewhere < int(seeds) || barred < 10*int(seeds) || supplies < 3*int(seeds) {
		t.Errorf("only %d grants, %d denials, of them %d for pods charged elsewhere and %d for want of a right, and %d times one waited for nodes: the histories show nothing", grants, denials, elsewhere, barred, supplies)
	}
}

type world struct {
	leader
	rng     *rand.Rand
	flight  *Txn
	version int
	serial  uint64
	shards  map[string]string // name to incarnation
	specs   map[string]QueueSeen
	labels  map[string]map[string]string // of namespaces
	gangs   map[string]*asked
	bound   map[string]bool   // gangs that ever said that pods of theirs are bound
	held    map[limitAt]int64 // what the store's tree held after the last transaction
	fixed   map[limitAt]int64 // and what of it may not be evicted

	grants, denials           int
	barred                    int // denials for want of a right
	supplies                  int // times that one waits for nodes
	elsewhere                 int // denials for pods that another gang has
	mandates, claims, refused int
	contended                 bool // for one limit, with less of what ends claims
	personal                  bool // some queues limit users
	counts                    bool // some queues say how many gangs run
	hears                     func(Output)
}

// asked is what a home remembers of a gang.
type asked struct {
	queue     string
	attempt   uint64
	order     uint64
	demand    api.Resources
	reserved  bool
	priority  int64
	namespace string
	single    bool
	pods      []uint64
	least     uint32
	shrink    *wire.Shrink // not answered
	serial    uint64
	vain      bool // no node would take it, as it says
	keeps     bool // may not be evicted
	bare      bool // likewise, and does not say so
	mandate   *wire.Mandate
	yields    bool
}

var gangName = regexp.MustCompile(`\bg[0-9]+\b`)

var paths = []string{"root", "default", "a", "a.b", "a.b.c", "a.b.d", "a.e", "a.e.f", "a.e.f.g", "a.e.f.h", "i", "i.j", "i.k"}

func newWorld(seed int64) *world {
	w := &world{contended: seed%2 == 1, counts: seed%3 == 0, personal: seed%3 != 1,
		rng: rand.New(rand.NewSource(seed)), leader: newLeader(),
		shards: map[string]string{"s1": "s1-0", "s2": "s2-0", "s3": "s3-0"},
		specs:  map[string]QueueSeen{}, labels: map[string]map[string]string{},
		gangs: map[string]*asked{}, bound: map[string]bool{}}
	w.store.bound = w.bound
	for _, p := range paths {
		w.edit(p)
	}
	for _, name := range namespaces {
		w.relabel(name)
	}
	w.elect()
	return w
}

func (w *world) edit(path string) {
	w.version++
	q := QueueSeen{Name: path, UID: "u-" + path, ResourceVersion: fmt.Sprint(w.version), Generation: int64(w.version), HasFinalizer: true,
		Closed: w.rng.Intn(12) == 0}
	if old, ok := w.specs[path]; ok {
		q.UID = old.UID
		q.Deleting = old.Deleting
	} else {
		q.UID = fmt.Sprintf("u-%s-%d", path, w.version)
	}
	vector := func(most int64) api.Resources {
		m := map[string]int64{}
		for _, r := range []string{"cpu", "memory"} {
			if w.rng.Intn(2) == 0 {
				m[r] = w.rng.Int63n(most) + 1
			}
		}
		if w.counts && w.rng.Intn(4) == 0 {
			m[api.ResourceGangs] = w.rng.Int63n(most)/4 + 1
		}
		return api.FromMap(m)
	}
	if w.contended {
		if path == api.RootQueue {
			q.Capability = api.FromMap(map[string]int64{"cpu": 40, "memory": 40})
		}
		q.Closed = false
	} else if w.rng.Intn(3) > 0 {
		q.Capability = vector(40)
		for i := range q.Capability {
			if w.rng.Intn(12) == 0 {
				q.Capability[i].Value = 0 // nothing of it may be held
			}
		}
	}
	if w.rng.Intn(3) == 0 && (!w.contended || w.rng.Intn(3) == 0) {
		q.Guarantee = vector(15)
	}
	if w.rng.Intn(3) > 0 {
		q.Deserved = vector(30)
	}
	if w.rng.Intn(3) == 0 {
		q.Weight = new(uint32(w.rng.Intn(3)))
	}
	if w.rng.Intn(4) == 0 {
		q.Priority = int32(w.rng.Intn(2))
	}
	q.Policy = w.policy()
	q.Namespaces = w.selector()
	if w.personal && w.rng.Intn(2) == 0 {
		q.UserLimits = w.userLimits()
	}
	w.specs[path] = q
}

// userLimits draws who may have how much.
func (w *world) userLimits() (out []*wire.UserLimit) {
	for range 1 + w.rng.Intn(3) {
		l := &wire.UserLimit{}
		switch w.rng.Intn(3) {
		case 0:
			l.Users = []string{"alice", "namespace n1"}[:1+w.rng.Intn(2)]
		case 1:
			l.Groups = []string{"interns"}
		default:
			l.Each = true
		}
		most := map[string]int64{[]string{"cpu", "memory"}[w.rng.Intn(2)]: 3 + w.rng.Int63n(9)}
		if w.counts {
			most[api.ResourceGangs] = 1 + w.rng.Int63n(4)
		}
		l.Capability = wire.FromResources(api.FromMap(most))
		out = append(out, l)
	}
	return out
}

var namespaces = []string{"n1", "n2", "n3"}

func (w *world) relabel(name string) {
	w.labels[name] = map[string]string{"team": fmt.Sprint(w.rng.Intn(3))}
	if w.rng.Intn(3) == 0 {
		w.labels[name]["stage"] = "test"
	}
}

// policy draws who may be evicted for whom.
func (w *world) policy() *wire.QueuePolicy {
	if w.rng.Intn(3) == 0 {
		return nil
	}
	p := &wire.QueuePolicy{Kept: w.rng.Intn(8) == 0, ReclaimMinRuntimeMs: new(int64(w.rng.Intn(4000))), PreemptionDelayMs: new(int64(w.rng.Intn(3000)))}
	if w.rng.Intn(4) == 0 {
		p.Reclaim = wire.Reclaim_RECLAIM_NEVER
	}
	if w.rng.Intn(2) == 0 {
		p.Preempts = new(w.rng.Intn(3) > 0)
	}
	return p
}

// selector draws who may use a queue: mostly all.
func (w *world) selector() *metav1.LabelSelector {
	team := metav1.LabelSelectorRequirement{Key: "team", Operator: metav1.LabelSelectorOpNotIn, Values: []string{fmt.Sprint(w.rng.Intn(3))}}
	switch w.rng.Intn(20) {
	case 0:
		return &metav1.LabelSelector{}
	case 1:
		return &metav1.LabelSelector{MatchLabels: map[string]string{"stage": "test"}}
	case 2:
		return &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": namespaces[w.rng.Intn(len(namespaces))]}}
	case 3:
		team.Operator = "Resembles"
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{team}}
	case 4, 5:
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{team}}
	}
	return nil
}

// allowed tells by the records of the store, with code of its own, whether a namespace may use a queue.
func (w *world) allowed(name, path string) bool {
	for _, p := range api.Lineage(path) {
		l := w.store.limits[p]
		if l == nil || l.NamespaceSelector == nil {
			continue
		}
		var s metav1.LabelSelector
		if err := s.Unmarshal(l.NamespaceSelector); err != nil {
			return false
		}
		has := func(k string) string {
			if k == "kubernetes.io/metadata.name" {
				return name
			}
			return w.labels[name][k]
		}
		for k, v := range s.MatchLabels {
			if has(k) != v {
				return false
			}
		}
		for _, e := range s.MatchExpressions {
			if e.Operator != metav1.LabelSelectorOpNotIn || has(e.Key) == e.Values[0] {
				return false
			}
		}
	}
	return true
}

// rights checks that a transaction lets no gang hold more whose namespace may not use its queue. It is called before it lands.
func (w *world) rights(t Txn) {
	for _, op := range t.Ops {
		put, is := op.(PutReservation)
		if !is {
			continue
		}
		ref := put.Record.Gang
		was := w.store.reservations[reservationKey(ref.Queue, ref.Uid)]
		demand, _ := wire.ToResources(put.Record.Demand)
		had, _ := wire.ToResources(was.GetDemand())
		resized := was != nil && w.bound[ref.Uid] && (ref.Single || len(put.Record.Pods) > 0)
		for _, p := range put.Record.Pods {
			resized = resized && slices.Contains(was.GetPods(), p)
		}
		if !demand.Sub(had).Fits(nil) && !resized && !w.allowed(ref.Namespace, ref.Queue) {
			w.store.problem("transaction %d: %s of namespace %s may not use queue %s and is charged %v, %v before", t.ID, ref.Uid, ref.Namespace, ref.Queue, demand, had)
		}
	}
}

func (w *world) elect() {
	w.flight = nil
	var shards []*wire.ShardRecord
	for _, name := range api.SortedKeys(w.shards) {
		shards = append(shards, &wire.ShardRecord{Name: name, Incarnation: w.shards[name]})
	}
	e := w.reads(shards...)
	w.leads(Config{BatchOps: 7, EarmarkAfter: 5 * time.Second, EarmarkFor: 10 * time.Second, JoinEvery: time.Second,
		Quiet: time.Second, WordsEvery: time.Second, Sweep: 2, Asks: []int{0, 8, 16}[w.term%3],
		FirstTable: 100 * time.Millisecond}, e)
	w.held = nil
	for _, path := range api.SortedKeys(w.specs) {
		w.step(w.specs[path])
	}
	w.step(QueuesSynced{})
	if w.rng.Intn(3) > 0 {
		w.namespacesSeen()
	} else {
		defer w.namespacesSeen()
	}
	for _, name := range api.SortedKeys(w.shards) {
		w.step(ShardLinked{Incarnation: api.Incarnation(w.shards[name])})
	}
	for range 3 {
		w.tick()
		w.land()
	}
	// Homes ask again in a new term.
	for _, uid := range api.SortedKeys(w.gangs) {
		g := w.gangs[uid]
		r := w.store.reservations[reservationKey(g.queue, uid)]
		g.reserved = r != nil
		if r != nil {
			g.attempt, g.order = r.Attempt, r.Rank.Order
		}
		w.reserve(uid, g, nil)
	}
}

func (w *world) namespacesSeen() {
	for _, name := range namespaces {
		w.step(NamespaceSeen{Name: name, Labels: w.labels[name]})
	}
	w.step(NamespacesSynced{})
}

func (w *world) tick() {
	w.now = w.now.Add(time.Duration(100+w.rng.Intn(900)) * time.Millisecond)
	w.step(Tick{})
}

func (w *world) step(ev Event) {
	w.tell(ev, w.carry)
	switch {
	case w.flight != nil:
	case w.core.turns.behind: // it goes on by itself
		w.step(Gathered{})
	default:
		w.nobodyForgotten()
	}
}

// carry returns what the core is told at once of an output.
func (w *world) carry(o Output) []Event {
	if w.hears != nil {
		w.hears(o)
	}
	switch o := o.(type) {
	case Txn:
		if w.flight != nil {
			w.store.problem("transaction %d while %d is in flight", o.ID, w.flight.ID)
		}
		w.flight = &o
	case Send:
		w.deliver(o)
	case CreateQueue:
		if _, there := w.specs[o.Name]; !there {
			w.edit(o.Name)
			return []Event{w.specs[o.Name]}
		}
	case RemoveFinalizer:
		if q, there := w.specs[o.Queue]; there && q.UID == o.UID {
			if !q.Deleting {
				w.store.problem("finalizer of %s, which is not being deleted, removed", o.Queue)
			}
			for _, r := range w.store.reservations {
				if api.Under(r.Gang.Queue, o.Queue) {
					w.store.problem("finalizer of %s removed, %s is charged", o.Queue, r.Gang.Uid)
				}
			}
			delete(w.specs, o.Queue)
			return []Event{QueueGone{Name: o.Queue, UID: o.UID}}
		}
	}
	return nil
}

func (w *world) deliver(o Send) {
	switch m := o.Body.GetBody().(type) {
	case *wire.Envelope_Granted:
		w.grants++
		if g := w.gangs[m.Granted.GangUid]; g != nil {
			if g.vain && m.Granted.GetSerial() == g.serial && !g.reserved && !w.bound[m.Granted.GangUid] {
				w.store.problem("%s is granted, which no node would take", m.Granted.GangUid)
			}
			g.reserved, g.order = true, m.Granted.Rank.Order
			key := reservationKey(g.queue, m.Granted.GangUid)
			if at := w.store.revisions[key]; w.store.reservations[key] != nil && at != m.Granted.ReservationRevision {
				w.store.problem("granted %s at revision %d, the record is of %d",
					m.Granted.GangUid, m.Granted.ReservationRevision, at)
			}
		}
	case *wire.Envelope_Mandate:
		if g := w.gangs[m.Mandate.GangUid]; g != nil {
			if g.vain && m.Mandate.GetSerial() == g.serial && !g.reserved {
				w.store.problem("others would be evicted for %s, which no node would take", m.Mandate.GangUid)
			}
			g.mandate = m.Mandate
			w.mandates++
		}
	case *wire.Envelope_Yield:
		if g := w.gangs[m.Yield.Gang.Uid]; g != nil {
			g.yields = true
		}
	case *wire.Envelope_Shrink:
		if g := w.gangs[m.Shrink.Gang.Uid]; g != nil {
			g.shrink = m.Shrink
		}
	case *wire.Envelope_ClaimReply:
		if m.ClaimReply.Accepted {
			w.claims++
		} else {
			w.refused++
		}
	case *wire.Envelope_Denied:
		w.denials++
		if m.Denied.Reason == wire.DenyReason_DENY_NOT_ALLOWED {
			w.barred++
		}
		if m.Denied.Reason == wire.DenyReason_DENY_CHARGED_ELSEWHERE {
			w.elsewhere++
		}
		if m.Denied.Message == "" || m.Denied.Reason == 0 {
			w.store.problem("denied %s without words", m.Denied.GangUid)
		}
		if name := gangName.FindString(m.Denied.Message); name != "" {
			w.store.problem("a denial of %s names %s: %s", m.Denied.GangUid, name, m.Denied.Message)
		}
	}
}

// land commits what is in flight and answers.
func (w *world) land() {
	t := w.flight
	if t == nil {
		return
	}
	w.flight = nil
	w.rights(*t)
	done := w.commit(*t)
	w.coverable(*t)
	w.step(done)
}

// coverable checks that no grant made a queue hold more than it may, guarantees that are kept included.
func (w *world) coverable(t Txn) {
	e := w.store.elected(w.now, 1)
	w.store.seq--
	w.store.revision--
	c := New(Config{}, e)
	c.tree.recompute()
	held, fixed := map[limitAt]int64{}, map[limitAt]int64{}
	grants, guaranteed := true, false
	for _, op := range t.Ops {
		switch op := op.(type) {
		case PutLimits, DeleteLimits:
			grants = false
		case PutReservation:
			grants = grants && !w.bound[op.Record.Gang.Uid]
		}
	}
	c.tree.root.walk(func(q *queue) { guaranteed = guaranteed || len(q.guarantee) > 0 })
	c.tree.root.walk(func(q *queue) {
		if q.limits == nil {
			return
		}
		for _, a := range q.limits.capability {
			at := limitAt{q.path, a.Resource}
			held[at] = q.held.get(a.Resource).amount()
			if before, ok := w.held[at]; grants && ok && held[at] > a.Value && held[at] > before {
				w.store.problem("transaction %d: queue %s must keep %d %s of %d", t.ID, q.path, held[at], a.Resource, a.Value)
			}
		}
		for _, a := range q.limits.deserved {
			at := limitAt{q.path, a.Resource}
			fixed[at] = q.fixed.get(a.Resource).amount()
			if before, ok := w.fixed[at]; grants && ok && fixed[at] > max(before, q.deserved.Value(a.Resource)) && !guaranteed {
				w.store.problem("transaction %d: queue %s has lent %d %s to gangs that may not be evicted, and deserves %d", t.ID, q.path, fixed[at], a.Resource, q.deserved.Value(a.Resource))
			}
		}
	})
	w.held, w.fixed = held, fixed
}

// nobodyForgotten: with nothing in flight, whoever waits lacks something.
func (w *world) nobodyForgotten() {
	c := w.core
	c.tree.recompute()
	window := c.earmarks.window
	if longest := c.cfg.EarmarkFor << longestWindow; window.n > 0 && window.until.Sub(w.now) > longest {
		w.store.problem("a window of claims is open until %v, the longest is %v", window.until.Sub(w.now), longest)
	}
	for _, r := range c.ring {
		l := c.judge(r, c.tree.path(r.queue))
		if l == nil {
			w.store.problem("%s waits in %s and could be granted; it was last told %v", r.gang.key.uid, r.queue.path, r.denial)
		}
		if r.vain && (r.candidate || slices.Contains(c.ledger.barring, r.gang) || r.demandClass != nil &&
			r.demandClass.counted) {
			w.store.problem("something is kept in %s for %s, which no node would take", r.queue.path, r.gang.key.uid)
		}
		w.guaranteed(r, l)
		if l != nil && l.reason == wire.DenyReason_DENY_SUPPLY {
			w.supplies++
		}
		if l != nil && l.reason == wire.DenyReason_DENY_RESERVED_FOR_OLDER && (window.n == 0 || window.resting) {
			w.store.problem("%s waits in %s for a claim, and no window is open", r.gang.key.uid, r.queue.path)
		}
		if l != nil && l.reason != wire.DenyReason_DENY_UNKNOWN && r.told.IsZero() {
			w.store.problem("%s waits in %s and was told nothing", r.gang.key.uid, r.queue.path)
		}
		if r.demandClass != nil && r.demandClass.due && !r.demandClass.woken {
			w.store.problem("%s is due and nothing is in flight", r.gang.key.uid)
		}
	}
}

// guaranteed: what stays inside the guarantee of a queue is not denied above that queue for what is forced elsewhere. It is
// denied where the rest of what is charged exceeds, as after a cut, and where room is kept for an older gang.
func (w *world) guaranteed(r *request, l *shortfall) {
	if l == nil || l.reason != wire.DenyReason_DENY_QUOTA && l.reason != wire.DenyReason_DENY_GUARANTEE {
		return
	}
	d := r.delta.Value(l.resource)
	for p := r.queue; p != l.queue; p = p.parent {
		limit, _ := l.queue.capability(l.resource)
		sum, forced := w.store.sum(l.queue.path, l.resource)
		if p.held.get(l.resource).plus(d).amount() > p.guarantee.Value(l.resource) {
			continue
		}
		if sum-forced+d <= limit {
			w.store.problem("%s asks for %d %s inside the guarantee of %s, and %s denies it for %v: limit %d, charged %d, of which %d are forced", r.gang.key.uid, d, l.resource, p.path, l.queue.path, l.reason, limit, sum, forced)
		}
	}
}

func (w *world) owner(queue string) api.Incarnation { return w.store.table.OwnerOf(queue) }

func (w *world) epoch() uint64 {
	if w.store.table == nil {
		return 0
	}
	return uint64(w.store.table.Epoch)
}

func (w *world) ref(uid string, g *asked) *wire.GangRef {
	return &wire.GangRef{Uid: uid, Namespace: g.namespace, Name: uid, Queue: g.queue, Single: g.single}
}

func (w *world) nextSerial() uint64 {
	w.serial++
	return w.epoch()<<32 + w.serial
}

func (w *world) reserve(uid string, g *asked, bound api.Resources) {
	g.serial, g.vain = w.nextSerial(), w.rng.Intn(20) == 0
	m := &wire.Reserve{Gang: w.ref(uid, g), Attempt: g.attempt, Serial: g.serial, Demand: wire.FromResources(g.demand), Bound: wire.FromResources(bound),
		Priority: g.priority, SinceUnixMs: w.now.UnixMilli(), TableEpoch: w.epoch(), Pods: g.pods, Preemptible: !g.keeps && !g.bare, Kept: g.keeps, Claims: bound == nil, Least: g.least, Vain: g.vain}
	if w.personal { // mostly the same, by its name
		m.User = []string{"", "alice", "bob", "carol"}[(len(uid)+int(uid[len(uid)-1])+w.rng.Intn(8)/7)%4]
		if m.User == "bob" || m.User == "carol" {
			m.Groups = []string{"staff", "interns"}[:1+w.rng.Intn(2)]
		}
	}
	if n := len(uid) + int(uid[len(uid)-1]); len(g.queue)%2 == 0 && n%3 > 0 { // by its name
		m.Order = new(int64(n%5 - 2))
	}
	if g.order > 0 {
		m.Rank = &wire.Rank{Priority: g.priority, Order: g.order, GangUid: uid}
	}
	if bound != nil {
		w.bound[uid] = true
	}
	ev := Message{From: w.owner(g.queue), Body: &wire.Envelope{Body: &wire.Envelope_Reserve{Reserve: m}}}
	w.step(ev)
	if w.rng.Intn(5) == 0 {
		w.step(ev)
	}
}

const podNumbers = 200

// pods draws a set from few enough that sets meet; some pods are those of gangs of one.
func (w *world) pods() []uint64 {
	set := map[uint64]bool{}
	for range w.rng.Intn(4) {
		if uids := api.SortedKeys(w.gangs); len(uids) > 0 && w.rng.Intn(20) == 0 {
			set[api.PodID(uids[w.rng.Intn(len(uids))])] = true
		} else {
			set[api.PodID(fmt.Sprint("p", w.rng.Intn(podNumbers)))] = true
		}
	}
	return slices.Sorted(maps.Keys(set))
}

// demand is like others as often as not.
func (w *world) demand() api.Resources {
	m := map[string]int64{"cpu": w.rng.Int63n(6), "pods": 1}
	if w.rng.Intn(2) == 0 {
		m["cpu"] = 1 + 3*w.rng.Int63n(2)
	} else if w.rng.Intn(2) == 0 {
		m["memory"] = w.rng.Int63n(6)
	}
	return api.FromMap(m)
}

func (w *world) random() {
	uids := api.SortedKeys(w.gangs)
	pick := func() (string, *asked) {
		if len(uids) == 0 {
			return "", nil
		}
		uid := uids[w.rng.Intn(len(uids))]
		return uid, w.gangs[uid]
	}
	n := w.rng.Intn(100)
	if w.contended && (n >= 35 && n < 55 || n >= 58 && n < 68) && w.rng.Intn(4) > 0 {
		n = 84 + 16*w.rng.Intn(2) // more time, and less of what ends claims
	}
	switch {
	case n < 3: // what nodes have changes seldom, and often they have enough
		for _, name := range api.SortedKeys(w.shards) {
			w.supply(name, w.rng.Int63n(10), w.rng.Int63n(10))
		}
	case n < 5:
		name := api.SortedKeys(w.shards)
		w.supply(name[w.rng.Intn(len(name))], w.rng.Int63n(20), w.rng.Int63n(20))
	case n < 8:
		if uid, g := pick(); g != nil {
			w.step(Message{From: w.owner(g.queue), Body: &wire.Envelope{Body: &wire.Envelope_Unplaced{Unplaced: &wire.Unplaced{GangUid: uid, Attempt: g.attempt,
				Demand: wire.FromResources(w.demand())}}}})
		}
	case n < 25:
		uid := fmt.Sprintf("g%d", w.version*1000+w.rng.Intn(1000))
		w.version++
		g := &asked{queue: paths[w.rng.Intn(len(paths))], attempt: 1, demand: w.demand(), priority: int64(w.rng.Intn(2)), namespace: namespaces[w.rng.Intn(len(namespaces))], single: w.rng.Intn(3) == 0, keeps: w.rng.Intn(10) == 0, bare: w.rng.Intn(10) == 0}
		if !g.single {
			g.pods = w.pods()
			if g.least = uint32(w.version % 3); w.contended && w.rng.Intn(8) == 0 { // several that may be lost
				g.demand = api.FromMap(map[string]int64{"cpu": 4, "pods": 1})
				for len(g.pods) < 6 {
					g.pods = slices.Compact(slices.Sorted(slices.Values(append(g.pods, w.pods()...))))
				}
			}
		}
		w.gangs[uid] = g
		var bound api.Resources
		if w.rng.Intn(10) == 0 {
			bound = g.demand
		}
		w.reserve(uid, g, bound)
	case n < 35:
		if uid, g := pick(); g != nil {
			if w.rng.Intn(2) == 0 {
				g.demand = w.demand()
			}
			if !g.single && w.rng.Intn(2) == 0 {
				g.pods = w.pods()
			}
			var bound api.Resources
			if w.rng.Intn(8) == 0 {
				bound = api.Resources{{Resource: "cpu", Value: 2}}
			}
			w.reserve(uid, g, bound)
		}
	case n < 55:
		if uid, g := pick(); g != nil {
			m := Message{From: w.owner(g.queue), Body: &wire.Envelope{Body: &wire.Envelope_Unreserve{Unreserve: &wire.Unreserve{
				Gang: w.ref(uid, g), Attempt: g.attempt, Serial: w.nextSerial(), TableEpoch: w.epoch()}}}}
			w.step(m)
			g.reserved = false
			if w.rng.Intn(3) == 0 {
				g.attempt++
				w.reserve(uid, g, nil)
			} else {
				delete(w.gangs, uid)
			}
		}
	case n < 58:
		if uid, g := pick(); g != nil {
			w.step(Message{From: w.owner(g.queue), Body: &wire.Envelope{Body: &wire.Envelope_Close{Close: &wire.Close{
				Gang: w.ref(uid, g), Attempt: g.attempt, Serial: w.nextSerial(), TableEpoch: w.epoch()}}}})
		}
	case n < 64:
		path := paths[w.rng.Intn(len(paths))]
		if q, there := w.specs[path]; !there || !q.Deleting {
			w.edit(path)
			w.step(w.specs[path])
		}
	case n < 66:
		if q, there := w.specs[paths[2+w.rng.Intn(len(paths)-2)]]; there {
			w.version++
			q.Deleting, q.ResourceVersion, q.Generation = true, fmt.Sprint(w.version), int64(w.version)
			w.specs[q.Name] = q
			w.step(q)
		}
	case n < 67 && w.rng.Intn(2) == 0:
		if name := namespaces[w.rng.Intn(len(namespaces))]; w.flight == nil { // else what is in flight was judged by what was
			if w.relabel(name); w.rng.Intn(4) == 0 {
				w.step(NamespaceGone{Name: name})
			}
			w.step(NamespaceSeen{Name: name, Labels: w.labels[name]})
		}
	case n < 67:
		names := api.SortedKeys(w.shards)
		name := names[w.rng.Intn(len(names))]
		w.step(ShardDown{Incarnation: api.Incarnation(w.shards[name])})
		w.version++
		w.shards[name] = fmt.Sprintf("%s-%d", name, w.version)
		for range w.rng.Intn(40) {
			w.tick()
		}
		w.step(ShardUp{Record: &wire.ShardRecord{Name: name, Incarnation: w.shards[name]}})
		w.step(ShardLinked{Incarnation: api.Incarnation(w.shards[name])})
		for range 3 {
			w.land()
		}
		for _, uid := range api.SortedKeys(w.gangs) {
			w.reserve(uid, w.gangs[uid], nil)
		}
	case n < 68:
		if w.flight != nil && w.rng.Intn(2) == 0 {
			w.rights(*w.flight)
			w.store.commit(*w.flight) // and nobody hears of it
		}
		w.elect()
	case n < 85:
		w.land()
	case n < 91:
		for _, uid := range uids {
			if g := w.gangs[uid]; g.mandate != nil && w.rng.Intn(3) > 0 {
				m := g.mandate
				g.mandate = nil
				victims := planOf(m, w.surplusOf)
				if w.rng.Intn(10) == 0 && len(m.Candidates) > 0 {
					v := m.Candidates[w.rng.Intn(len(m.Candidates))]
					victims = append(victims, &wire.Victim{Gang: v.Gang, Attempt: v.Attempt})
				}
				x := &wire.Claim{Gang: w.ref(uid, g), Attempt: m.Attempt, Serial: m.Serial, Mandate: m.Number, Term: m.Term, TableEpoch: w.epoch(), Victims: victims,
					Stale: len(victims) == 0 && m.Number%2 == 0}
				for _, v := range victims {
					x.Awaits = append(x.Awaits, v.Gang.Uid)
				}
				w.step(Message{From: w.owner(g.queue), Body: &wire.Envelope{Body: &wire.Envelope_Claim{Claim: x}}})
			} else if g.shrink != nil && w.rng.Intn(2) == 0 {
				w.answer(uid, g)
			} else if g.yields && w.rng.Intn(2) == 0 {
				w.unreserve(g.queue, uid, g.attempt)
				g.yields = false
				g.attempt++
				w.reserve(uid, g, nil)
			}
		}
	case n < 92:
		if uid, g := pick(); g != nil {
			w.step(Message{From: w.owner(g.queue), Body: &wire.Envelope{Body: &wire.Envelope_Stuck{Stuck: &wire.Stuck{
				Gang: w.ref(uid, g), Attempt: g.attempt, Serial: g.serial, TableEpoch: w.epoch()}}}})
		}
	default:
		w.tick()
	}
}

// surplusOf names pods that a gang may lose, of one core each.
func (w *world) surplusOf(v *wire.Candidate) (out []*wire.SurplusPod) {
	g := w.gangs[v.Gang.Uid]
	if g == nil {
		return nil
	}
	for n := range podNumbers {
		uid := fmt.Sprint("p", n)
		if _, named := slices.BinarySearch(g.pods, api.PodID(uid)); named && len(out) < len(g.pods)-int(v.Least)-len(v.Condemned) && !slices.Contains(v.Condemned, api.PodID(uid)) {
			out = append(out, &wire.SurplusPod{Uid: uid, Amounts: []*wire.Amount{{Resource: "cpu", Value: 1}}})
		}
	}
	return out
}

// answer says whether a gang can do without pods, or that some are gone. Others may take their places.
func (w *world) answer(uid string, g *asked) {
	m := g.shrink
	g.shrink = nil
	if len(m.Pods) > 0 {
		x := &wire.Condemn{Gang: w.ref(uid, g), Attempt: g.attempt, Serial: w.nextSerial(), TableEpoch: w.epoch(), Mandate: m.Mandate, Term: w.term}
		for _, p := range m.Pods {
			x.Pods = append(x.Pods, p.Uid)
		}
		if w.rng.Intn(4) == 0 {
			x.Refused = "it needs them"
		}
		w.step(Message{From: w.owner(g.queue), Body: &wire.Envelope{Body: &wire.Envelope_Condemn{Condemn: x}}})
	}
	pods := slices.Clone(g.pods)
	for _, p := range m.Condemned {
		if at, named := slices.BinarySearch(pods, api.PodID(p.Uid)); named && w.rng.Intn(4) > 0 {
			pods = slices.Delete(pods, at, at+1)
			if w.rng.Intn(2) == 0 {
				g.demand = g.demand.Sub(api.Resources{{Resource: "cpu", Value: 1}}).Positive()
			}
		}
	}
	if len(pods) < len(g.pods) {
		g.pods = pods
		w.reserve(uid, g, nil)
	}
}

func (w *world) unreserve(queue, uid string, attempt uint64) {
	w.step(Message{From: w.owner(queue), Body: &wire.Envelope{Body: &wire.Envelope_Unreserve{Unreserve: &wire.Unreserve{
		Gang: &wire.GangRef{Uid: uid, Queue: queue}, Attempt: attempt, Serial: w.nextSerial(), TableEpoch: w.epoch()}}}})
}

// finish lets everything come to rest, ends all gangs, and sees that nothing is left.
func (w *world) finish() {
	for range 3 { // homes say it again: what the table overtook is not heard
		for range 40 {
			w.tick()
			w.land()
		}
		for _, uid := range api.SortedKeys(w.store.reservations) {
			r := w.store.reservations[uid]
			w.unreserve(r.Gang.Queue, r.Gang.Uid, r.Attempt)
		}
		for _, uid := range api.SortedKeys(w.gangs) {
			w.unreserve(w.gangs[uid].queue, uid, w.gangs[uid].attempt+1)
		}
	}
	for range 1200 {
		w.tick()
		w.land()
	}
	if n := len(w.store.reservations); n > 0 || len(w.core.ring) > 0 || w.core.roster.open > 0 {
		w.store.problem("%d reservations, %d in memory and %d requests are left", n, w.core.roster.open, len(w.core.ring))
	}
	rights, roster := &w.core.rights, &w.core.roster
	if n, m := len(rights.names), len(rights.entitled); n != len(namespaces) || m > 0 {
		w.store.problem("%d namespaces, %d requests with new rights are remembered", n, m)
	}
	if len(roster.gangs) > 0 || len(roster.charged) > 0 || len(w.core.inbox) > 0 || len(roster.pods) > 0 {
		w.store.problem("%d gangs, %d messages, %d pods are remembered for ever",
			len(roster.gangs), len(w.core.inbox), len(roster.pods))
	}
	if g := w.core.tree.root.gate; len(w.core.supply.unsaid) > 0 || !g.stale.IsZero() || len(g.unplaced.amounts()) > 0 {
		w.store.problem("of the supply is remembered: %v stale, %v unplaced", g.stale, g.unplaced.amounts())
	}
	for path, q := range w.core.tree.byPath {
		if len(q.expected.amounts()) > 0 {
			w.store.problem("queue %s expects %v", path, q.expected.amounts())
		}
		if _, there := w.specs[path]; !there && q.object == nil && len(q.children) == 0 && path != api.RootQueue {
			w.store.problem("queue %s is remembered and nothing is there", path)
		}
	}
}

func (w *world) supply(name string, free, own int64) {
	w.step(Message{From: api.Incarnation(w.shards[name]), Body: &wire.Envelope{Body: &wire.Envelope_Supply{Supply: &wire.Supply{TableEpoch: w.epoch(),
		Free: wire.FromResources(api.FromMap(map[string]int64{"cpu": free, "memory": 2 * free})),
		Own:  wire.FromResources(api.FromMap(map[string]int64{"cpu": own, "memory": own}))}}}})
}

// TestSameEventsSameOutputs runs one history twice.
func TestSameEventsSameOutputs(t *testing.T) {
	run := func() []string {
		w := newWorld(7)
		for range 300 {
			w.random()
		}
		var out []string
		for _, key := range api.SortedKeys(w.store.reservations) {
			out = append(out, fmt.Sprint(key, w.store.revisions[key], w.store.reservations[key]))
		}
		return append(out, fmt.Sprint(w.store.revision, w.grants, w.denials))
	}
	if a, b := run(), run(); !slices.Equal(a, b) {
		t.Errorf("two runs differ:\n%v\n%v", a, b)
	}
}

// threadTime is what this thread has used: other processes may share the machine.
func threadTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_THREAD, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func BenchmarkRelease(b *testing.B) {
	for _, shape := range []struct {
		name            string
		waiting, queues int
		unlike          int  // demands in a queue
		deserve         bool // each its part
	}{
		{"1000", 1000, 200, 1, false}, {"10000", 10000, 200, 1, false}, {"40000", 40000, 200, 1, false}, {"100000 for 200 demands in 1000 queues", 100000, 1000, 200, false}, {"100000 for 200 demands in 1000 queues that deserve as much", 100000, 1000, 200, true}, {"100000 for 100 demands in each of 1000 queues", 100000, 1000, 199, false},
		{"10000 in one queue", 10000, 1, 1, false}, {"10000 for 100 demands in one queue", 10000, 1, 100, false}, {"10000 for as many demands in one queue", 10000, 1, 1 << 30, false}, {"50000 for as many demands in one queue", 50000, 1, 1 << 30, false},
	} {
		waiting, queues := shape.waiting, shape.queues
		b.Run(shape.name, func(b *testing.B) {
			now := time.UnixMilli(1_000_000)
			c := New(Config{}, Elected{Now: now, Term: 1, Shards: []*wire.ShardRecord{{Name: "s1", Incarnation: "s1"}}})
			var flight Txn
			carry := func(o Output) []Event {
				if t, ok := o.(Txn); ok {
					flight = t
				}
				return nil
			}
			step := func(ev Event) { loop.Tell(c, now, ev, carry) }
			rev := int64(1)
			settle := func() {
				for flight.ID != 0 {
					id := flight.ID
					flight = Txn{}
					rev++
					step(TxnDone{ID: id, Revision: rev})
				}
			}
			path := func(i int) string { return fmt.Sprintf("q%d.x%d", i%queues%20, i%queues) }
			demand := func(i int) api.Resources {
				return api.FromMap(map[string]int64{"cpu": 1000, "memory": 1<<30 + int64(i%shape.unlike), "pods": 1})
			}
			step(QueueSeen{Name: "root", UID: "u", ResourceVersion: "1", HasFinalizer: true, Capability: api.FromMap(map[string]int64{"cpu": 1200 * 1000, "memory": 1 << 50})})
			for i := range queues {
				var parent, own api.Resources
				if shape.deserve {
					parent, own = api.FromMap(map[string]int64{"cpu": 60_000}), api.FromMap(map[string]int64{"cpu": 1_200_000 / int64(queues)})
				}
				step(QueueSeen{Name: api.Parent(path(i)), UID: "u", ResourceVersion: "1", HasFinalizer: true, Deserved: parent})
				step(QueueSeen{Name: path(i), UID: "u", ResourceVersion: "1", HasFinalizer: true, Deserved: own})
			}
			step(QueuesSynced{})
			settle()
			now = now.Add(2 * time.Second)
			step(Tick{})
			settle()
			serial := uint64(0)
			reserve := func(i int) {
				serial++
				step(Message{From: "s1", Body: &wire.Envelope{Body: &wire.Envelope_Reserve{Reserve: &wire.Reserve{
					Gang: &wire.GangRef{Uid: fmt.Sprint("g", i), Queue: path(i)}, Attempt: 1, Serial: serial, TableEpoch: 1, SinceUnixMs: int64(i),
					Demand: wire.FromResources(demand(i)), Preemptible: true, Claims: true}}}})
			}
			for i := range waiting + 1200 {
				reserve(i)
				settle()
			}
			if len(c.ring) != waiting {
				b.Fatalf("%d wait", len(c.ring))
			}
			oldest, next := 0, waiting+1200
			open := []int{}
			for key := range c.roster.gangs {
				var i int
				_, _ = fmt.Sscanf(key.uid, "g%d", &i)
				if c.roster.gangs[key].res != nil {
					open = append(open, i)
				}
			}
			slices.Sort(open)
			var spent []time.Duration // for each transaction
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			b.ResetTimer()
			for range b.N {
				// 60 gangs end while a transaction is in flight, as many are granted, as many come.
				b.StopTimer()
				before := c.roster.open
				for range 60 {
					i := open[oldest]
					oldest++
					serial++
					c.inbox = append(c.inbox, Message{From: "s1", Body: &wire.Envelope{Body: &wire.Envelope_Unreserve{Unreserve: &wire.Unreserve{
						Gang: &wire.GangRef{Uid: fmt.Sprint("g", i), Queue: path(i)}, Attempt: 1, Serial: serial, TableEpoch: 1}}}})
				}
				b.StartTimer()
				began := threadTime()
				step(nil)
				granted := flight.Ops
				settle()
				spent = append(spent, threadTime()-began)
				b.StopTimer()
				if c.roster.open != before {
					b.Fatalf("%d reservations, %d before", c.roster.open, before)
				}
				for _, op := range granted {
					if put, ok := op.(PutReservation); ok {
						i, err := strconv.Atoi(put.Record.Gang.Uid[1:])
						if err != nil {
							b.Fatal(err)
						}
						open = append(open, i)
					}
				}
				for range 60 {
					reserve(next)
					settle()
					next++
				}
				b.StartTimer()
			}
			var sum time.Duration
			for _, d := range spent {
				sum += d
			}
			slices.Sort(spent)
			b.ReportMetric(float64(sum.Microseconds())/float64(len(spent))/60, "cpu-us/decision")
			b.ReportMetric(float64(spent[len(spent)/2].Microseconds()), "p50-cpu-us/offer")
			b.ReportMetric(float64(spent[len(spent)*99/100].Microseconds()), "p99-cpu-us/offer")
		})
	}
}

// BenchmarkGrant charges gangs, one in a transaction.
func BenchmarkGrant(b *testing.B) {
	for _, size := range []int{0, 1, 8, 100, 1000} { // pods; 0 for a gang of one
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			now := time.UnixMilli(1_000_000)
			c := New(Config{}, Elected{Now: now, Term: 1, Shards: []*wire.ShardRecord{{Name: "s1", Incarnation: "s1"}}})
			step := func(ev Event) { tell(c, now, ev, nil) }
			for _, name := range []string{"root", "a", "a.b"} {
				step(QueueSeen{Name: name, UID: "u", ResourceVersion: "1", HasFinalizer: true, Capability: api.FromMap(map[string]int64{"cpu": 1 << 50, "memory": 1 << 60})})
			}
			step(QueuesSynced{})
			now = now.Add(2 * time.Second)
			step(Tick{})
			pod, serial := uint64(0), uint64(0)
			demand := wire.FromResources(api.FromMap(map[string]int64{"cpu": 1000, "memory": 1 << 30, "pods": int64(max(1, size))}))
			b.ReportAllocs()
			for i := range b.N {
				serial++
				ref := &wire.GangRef{Uid: fmt.Sprint("g", i), Queue: "a.b", Single: size == 0}
				pods := make([]uint64, size)
				for j := range pods {
					pod++
					pods[j] = pod
				}
				step(Message{From: "s1", Body: &wire.Envelope{Body: &wire.Envelope_Reserve{Reserve: &wire.Reserve{
					Gang: ref, Attempt: 1, Serial: serial, TableEpoch: 1, SinceUnixMs: int64(i), Demand: demand, Pods: pods}}}})
				if i%1000 == 999 {
					now = now.Add(time.Hour)
					step(Tick{})
				}
			}
			b.StopTimer()
			if c.roster.open != b.N {
				b.Fatalf("%d granted of %d", c.roster.open, b.N)
			}
		})
	}
}
