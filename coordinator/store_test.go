package coordinator

import (
	"fmt"
	"maps"
	"slices"
	"sort"
	"time"

	"github.com/google/btree"
	"google.golang.org/protobuf/proto"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

// records are the control store as a test sees it: what transactions wrote, and nothing that the core thinks.
type records struct {
	revision     int64
	seq          uint64
	limits       map[string]*wire.LimitsRecord
	reservations map[string]*wire.ReservationRecord // by reservationKey
	revisions    map[string]int64
	table        *api.Table
}

func newRecords() records {
	return records{revision: 10, limits: map[string]*wire.LimitsRecord{},
		reservations: map[string]*wire.ReservationRecord{}, revisions: map[string]int64{}}
}

func reservationKey(queue, uid string) string { return "reservations/" + queue + "/" + uid }

// begin begins a transaction, and returns its revision.
func (s *records) begin(t Txn) int64 {
	s.seq = t.ID
	s.revision++
	return s.revision
}

// write carries out an operation of the transaction that was begun last.
func (s *records) write(op Op) {
	switch op := op.(type) {
	case PutReservation:
		key := reservationKey(op.Record.Gang.Queue, op.Record.Gang.Uid)
		s.reservations[key], s.revisions[key] = op.Record, s.revision
	case DeleteReservation:
		delete(s.reservations, reservationKey(op.Queue, op.GangUID))
	case PutLimits:
		s.limits[op.Record.Queue], s.revisions["queues/"+op.Record.Queue] = op.Record, s.revision
	case DeleteLimits:
		delete(s.limits, op.Queue)
	case PutTable:
		copied := *op.Table
		copied.Revision = s.revision
		s.table = &copied
	}
}

// commit applies a transaction and says at which revision.
func (s *records) commit(t Txn) int64 {
	at := s.begin(t)
	for _, op := range t.Ops {
		s.write(op)
	}
	return at
}

// store is records that check each transaction by rules that share nothing with the core but the words.
type store struct {
	records
	versions map[string]string // of each limit ever written: newest resourceVersion
	problems []string
	bound    map[string]bool // gangs that ever said that pods of theirs are bound
	personal int             // sums of users that were compared with their limits
}

func newStore() *store { return &store{records: newRecords(), versions: map[string]string{}} }

func (s *store) problem(format string, args ...any) {
	s.problems = append(s.problems, fmt.Sprintf(format, args...))
}

// sum of what is charged under a queue, and the part of it that is forced.
func (s *store) sum(queue, resource string) (sum, forced int64) {
	for _, r := range s.reservations {
		if api.Under(r.Gang.Queue, queue) {
			demand := r.Demand
			if slices.ContainsFunc(demand, func(a *wire.Amount) bool { return a.Value > 0 }) {
				demand = append(slices.Clone(demand), &wire.Amount{Resource: api.ResourceGangs, Value: 1})
			}
			for _, a := range demand {
				if a.Resource == resource {
					sum += a.Value
					if r.Forced {
						forced += a.Value
					}
				}
			}
		}
	}
	return sum, forced
}

type limitAt struct{ queue, resource string }

func (s *store) sums() map[limitAt]int64 {
	out := map[limitAt]int64{}
	for _, l := range s.limits {
		for _, a := range l.Capability {
			out[limitAt{l.Queue, a.Resource}], _ = s.sum(l.Queue, a.Resource)
		}
	}
	return out
}

// guaranteed reports whether a queue below has a guarantee: what is inside it may be charged beside what is forced.
func (s *store) guaranteed(queue, resource string) bool {
	for _, l := range s.limits {
		for _, a := range l.Guarantee {
			if a.Resource == resource && l.Queue != queue && api.Under(l.Queue, queue) {
				return true
			}
		}
	}
	return false
}

// commit is that of the records, and checks it.
func (s *store) commit(t Txn) int64 {
	if t.ID != s.seq+1 {
		s.problem("transaction %d after %d", t.ID, s.seq)
	}
	s.begin(t)
	before, had := s.sums(), map[string]api.Resources{}
	keys := map[string]bool{}
	once := func(key string) string {
		if keys[key] {
			s.problem("transaction %d writes %s twice", t.ID, key)
		}
		keys[key] = true
		return key
	}
	var limits, reservations, forced int
	for _, op := range t.Ops {
		switch op := op.(type) {
		case PutReservation:
			reservations++
			r := op.Record
			key := once(reservationKey(r.Gang.Queue, r.Gang.Uid))
			had[r.Gang.Uid] = counted(s.reservations[key])
			if old := s.reservations[key]; old != nil {
				if old.Attempt == r.Attempt && old.User != r.User {
					s.problem("%s changed its user under one attempt", key)
				}
				if old.State == wire.ReservationState_RESERVATION_CLOSING && r.State != old.State &&
					(!r.Started || old.Yields != nil) && r.Attempt == old.Attempt {
					s.problem("%s left closing", key)
				}
				if !proto.Equal(old.Rank, r.Rank) || r.Attempt < old.Attempt {
					s.problem("%s changed rank or went back", key)
				}
			}
			for k, o := range s.reservations {
				if o.Gang.Uid == r.Gang.Uid && k != key {
					s.problem("%s: the gang has %s too", key, k)
				}
			}
			if r.Forced {
				forced++
			}
		case DeleteReservation:
			reservations++
			key := once(reservationKey(op.Queue, op.GangUID))
			if s.reservations[key] == nil {
				s.problem("%s deleted, is not there", key)
			}
		case PutLimits:
			limits++
			once("queues/" + op.Record.Queue)
			if newer(s.versions[op.Record.Queue], op.Record.ResourceVersion) {
				s.problem("limits of %s went back", op.Record.Queue)
			}
			s.versions[op.Record.Queue] = op.Record.ResourceVersion
		case DeleteLimits:
			limits++
			once("queues/" + op.Queue)
			if s.limits[op.Queue] == nil {
				s.problem("limits of %s deleted, are not there", op.Queue)
			}
			for _, r := range s.reservations {
				if api.Under(r.Gang.Queue, op.Queue) {
					s.problem("limits of %s deleted, %s is charged", op.Queue, r.Gang.Uid)
				}
			}
		case PutTable:
			once("table")
			if s.table != nil && op.Table.Epoch <= s.table.Epoch {
				s.problem("epoch %d after %d", op.Table.Epoch, s.table.Epoch)
			}
			if err := op.Table.Validate(); err != nil {
				s.problem("%v", err)
			}
		}
		s.write(op)
	}
	if limits > 0 && reservations > 0 {
		s.problem("transaction %d changes limits and reservations", t.ID)
	}
	if len(t.Ops) == 0 || len(t.Ops) > 120 {
		s.problem("transaction %d has %d operations", t.ID, len(t.Ops))
	}
	s.podSets()
	for _, l := range s.limits {
		for _, a := range l.Capability {
			sum, over := s.sum(l.Queue, a.Resource)
			old, ok := before[limitAt{l.Queue, a.Resource}]
			if ok && sum > a.Value && sum > old && forced == 0 && (sum-over > a.Value || !s.guaranteed(l.Queue, a.Resource)) {
				s.problem("transaction %d: queue %s grew to %d of %d %s", t.ID, l.Queue, sum, a.Value, a.Resource)
			}
		}
	}
	s.userLimits(t, had)
	return s.revision
}

// subject returns whom a reservation is charged to where a queue limits users, and the limit; "" for nobody.
func subject(l *wire.LimitsRecord, r *wire.ReservationRecord) (string, []*wire.Amount) {
	user := r.User
	if user == "" {
		user = "namespace " + r.Gang.Namespace
	}
	for i, entry := range l.UserLimits {
		member := slices.ContainsFunc(entry.Groups, func(g string) bool { return slices.Contains(r.Groups, g) })
		switch {
		case entry.Each, slices.Contains(entry.Users, user):
			return "user " + user, entry.Capability
		case member:
			return fmt.Sprint("entry ", i), entry.Capability
		}
	}
	return "", nil
}

// userLimits checks that what a transaction grants leaves users within their limits, but for what is bound already. had
// is what the gangs that it writes had before.
func (s *store) userLimits(t Txn, had map[string]api.Resources) {
	for _, l := range s.limits {
		sums, limits, grown := map[limitAt]int64{}, map[limitAt]int64{}, map[limitAt]bool{}
		for _, r := range s.reservations {
			who, limit := subject(l, r)
			if who == "" || !api.Under(r.Gang.Queue, l.Queue) {
				continue
			}
			demand := counted(r)
			before, written := had[r.Gang.Uid]
			for _, a := range limit {
				at := limitAt{who, a.Resource}
				switch grows := written && demand.Value(a.Resource) > before.Value(a.Resource); {
				case grows && s.bound[r.Gang.Uid]:
					continue // perhaps after the others
				case grows:
					grown[at] = true
				}
				sums[at] += demand.Value(a.Resource)
				limits[at] = a.Value
			}
		}
		for at, sum := range sums {
			if grown[at] && sum > limits[at] {
				s.problem("transaction %d: in queue %s %s has %d of %d %s", t.ID, l.Queue, at.queue, sum, limits[at], at.resource)
			}
			s.personal++
		}
	}
}

// counted is what a record charges, with the gang.
func counted(r *wire.ReservationRecord) api.Resources {
	demand, _ := wire.ToResources(r.GetDemand())
	if demand.IsZero() {
		return nil
	}
	return demand.Add(api.Resources{{Resource: api.ResourceGangs, Value: 1}})
}

// podSets checks that no two reservations name the same pod.
func (s *store) podSets() {
	named := map[uint64]string{}
	for key, r := range s.reservations {
		if !slices.IsSorted(r.Pods) || r.Gang.Single && len(r.Pods) > 0 {
			s.problem("%s: pods %v", key, r.Pods)
		}
		pods := r.Pods
		if r.Gang.Single {
			pods = []uint64{api.PodID(r.Gang.Uid)}
		}
		for _, p := range pods {
			if other := named[p]; other != "" {
				s.problem("pod %d is charged to %s and to %s", p, key, other)
			}
			named[p] = key
		}
	}
}

// elected is what a new leader reads.
func (s *records) elected(now time.Time, term int64) Elected {
	e := Elected{Now: now, Term: term, Incarnation: api.Incarnation(fmt.Sprintf("c%d", term)), Table: s.table}
	s.seq++ // the leader's no-op
	s.revision++
	e.Sequence = s.seq
	for key, l := range s.limits {
		e.Limits = append(e.Limits, StoredLimits{Key: key, Revision: s.revisions["queues/"+key], Record: l})
	}
	sort.Slice(e.Limits, func(i, j int) bool { return e.Limits[i].Key < e.Limits[j].Key })
	for key, r := range s.reservations {
		e.Reservations = append(e.Reservations, StoredReservation{Key: key, Revision: s.revisions[key], Record: r})
	}
	sort.Slice(e.Reservations, func(i, j int) bool { return e.Reservations[i].Key < e.Reservations[j].Key })
	return e
}

// rebuilt compares the core's sums with those of a core made from what the store holds.
func (s *store) rebuilt(c *Core) {
	e := s.elected(time.Time{}, 1)
	s.seq--
	s.revision--
	fresh := New(Config{}, e)
	for key, g := range c.roster.gangs {
		if f := fresh.roster.gangs[key]; f != nil && f.res != nil && g.res != nil &&
			g.res.overdue { // by the time that has passed
			f.res.overdue = true
			fresh.ledger.settle(f)
		}
	}
	fresh.tree.recompute()
	c.tree.recompute()
	c.tree.root.walk(func(q *queue) {
		f := fresh.tree.byPath[q.path]
		if f == nil {
			f = &queue{}
		}
		if a, b := q.charged.amounts(), f.charged.amounts(); !a.Equal(b) {
			s.problem("queue %s: charged %v in memory, %v in the store", q.path, a, b)
		}
		if a, b := q.held.amounts(), f.held.amounts(); !a.Equal(b) {
			s.problem("queue %s: held %v in memory, %v made again", q.path, a, b)
		}
		if a, b := q.forced.amounts(), f.forced.amounts(); !a.Equal(b) {
			s.problem("queue %s: %v is forced in memory, %v in the store", q.path, a, b)
		}
		if a, b := q.fixed.amounts(), f.fixed.amounts(); !a.Equal(b) {
			s.problem("queue %s: %v may not be evicted in memory, %v in the store", q.path, a, b)
		}
		if a, b := q.moves.amounts(), f.moves.amounts(); !a.Equal(b) {
			s.problem("queue %s: %v more once all claims have happened in memory, %v in the store", q.path, a, b)
		}
		if a, b := q.shifts.amounts(), f.shifts.amounts(); !a.Equal(b) {
			s.problem("queue %s: %v more held once all claims have happened in memory, %v in the store", q.path, a, b)
		}
		if q.members.admitted != f.members.admitted {
			s.problem("queue %s: %d admitted in memory, %d in the store", q.path, q.members.admitted, f.members.admitted)
		}
		waiting, blocked := 0, 0
		for _, r := range c.ring {
			if api.Under(r.queue.path, q.path) {
				waiting++
			}
		}
		q.walk(func(below *queue) {
			for _, a := range below.order.classOf {
				if a.denied.queue == q {
					blocked++
				}
			}
		})
		counted := 0
		for _, n := range q.order.blocked {
			counted += n
		}
		if waiting != q.members.waiting || blocked != counted {
			s.problem("queue %s: waiting %d blocked %d, counted %d and %d", q.path, q.members.waiting, counted, waiting, blocked)
		}
	})
	s.asks(c)
	s.lines(c)
	holder := func(g *gang) string { return fmt.Sprint(g.key) }
	if !maps.EqualFunc(c.roster.pods, fresh.roster.pods, func(a, b *gang) bool { return holder(a) == holder(b) }) {
		s.problem("%d pods are charged in memory, %d in the store, or others", len(c.roster.pods), len(fresh.roster.pods))
	}
	for path, f := range fresh.tree.byPath {
		if c.tree.byPath[path] == nil && f.members.admitted > 0 {
			s.problem("queue %s is charged and not in memory", path)
		}
	}
}

// asks checks that whoever waits stands where its ask is, and that orders are kept.
func (s *store) asks(c *Core) {
	listed, claimants := 0, 0
	waiting := map[string]int{}
	for _, r := range c.ring {
		if r.barred != nil {
			listed++
			if r.demandClass != nil {
				s.problem("%s is barred from queue %s and stands among those who ask", r.gang.key.uid, r.queue.path)
			}
		}
		if now := c.rights.right(r.queue, r.namespace); (now == nil) != (r.barred == nil) || now != nil && *now != *r.barred {
			s.problem("%s: right of namespace %s to queue %s is %v, remembered %v", r.gang.key.uid, r.namespace, r.queue.path, now, r.barred)
		}
		waiting[r.namespace]++
	}
	for name, n := range c.rights.names {
		if len(n.requests) != waiting[name] || !n.seen && len(n.requests) == 0 {
			s.problem("namespace %s has %d requests, %d are listed", name, waiting[name], len(n.requests))
		}
	}
	asked := map[*queue]*account{}
	for _, r := range c.ring {
		if a := r.demandClass; a != nil && a.counted {
			for q := r.queue; q != nil; q = q.parent {
				if asked[q] == nil {
					asked[q] = &account{}
				}
				asked[q].add(r.delta, 1)
			}
		}
	}
	selectors := 0
	for _, q := range c.tree.byPath {
		want := &account{}
		if asked[q] != nil {
			want = asked[q]
		}
		if got := q.asked.amounts(); !got.Equal(want.amounts()) {
			s.problem("queue %s: %v is waited for, remembered is %v", q.path, want.amounts(), got)
		}
		if q.limits.restricts() {
			selectors++
		}
	}
	if selectors != c.rights.selectors {
		s.problem("%d selectors are in force, %d counted", selectors, c.rights.selectors)
	}
	c.tree.root.walk(func(q *queue) {
		for _, a := range inOrder(q.order.classes) {
			if known := q.order.classOf[string(a.key())]; known != a {
				s.problem("queue %s: its asks are in disorder", q.path)
			}
			listed += len(a.requests)
			if len(a.requests) == 0 || !slices.IsSortedFunc(a.requests, (*request).compare) || !slices.IsSortedFunc(a.candidates, (*request).earmarkOrder) {
				s.problem("queue %s: requests for %v are none or out of order", q.path, a.delta)
			}
			old := 0
			for _, r := range a.requests {
				if r.demandClass != a || r.slot < 0 || c.ring[r.slot] != r || !r.delta.Equal(a.delta) || (r.gang.res != nil) != (a.grows != "") {
					s.problem("queue %s: request of %s for %v stands where %v is asked for", q.path, r.gang.key.uid, r.delta, a.delta)
				}
				if r.candidate {
					old++
				}
			}
			if old > 0 {
				claimants++
			}
			listed := slices.Contains(inOrder(q.order.candidates), a) && slices.Contains(c.earmarks.leaves, q)
			if old != len(a.candidates) || old > 0 && !listed {
				s.problem("queue %s: %d that ask for %v may claim room, %d are listed", q.path, old, a.delta, len(a.candidates))
			}
		}
	})
	var old []*demandClass
	var lists [][]*demandClass
	c.tree.root.walk(func(q *queue) {
		if !slices.IsSortedFunc(inOrder(q.order.classes), (*demandClass).first) ||
			!slices.IsSortedFunc(inOrder(q.order.candidates), (*demandClass).oldest) ||
			len(inOrder(q.order.classes)) != len(q.order.classOf) {
			s.problem("queue %s: its asks are out of order", q.path)
		}
		old = append(old, inOrder(q.order.candidates)...)
		denied := func(a *demandClass) bool { return !a.denied.waits() }
		if waits := slices.DeleteFunc(inOrder(q.order.candidates), denied); len(waits) > 0 {
			lists = append(lists, waits)
		}
	})
	if listed != len(c.ring) || claimants != len(old) {
		s.problem("%d requests listed of %d, %d asks with claims of %d", listed, len(c.ring), claimants, len(old))
	}
	if c.earmarks.due {
		return // made again before the next judgement
	}
	// Who comes first above its leaf depends on fair shares that may have changed since: any may that is the first of its own order, or the first
	// there to ask for these resources.
	claims := map[*queue][]*request{}
	for _, list := range lists {
		first := map[*queue]map[string]bool{}
		for _, a := range list {
			names := ""
			for _, d := range a.delta {
				if d.Value > 0 {
					names += d.Resource + " "
				}
			}
			for p := a.queue; p != nil && !c.earmarks.window.resting; p = p.parent {
				if first[p] == nil || p != a.queue && !first[p][names] {
					claims[p] = append(claims[p], a.candidates[0])
				}
				if first[p] == nil {
					first[p] = map[string]bool{}
				}
				first[p][names] = true
				if p == a.denied.queue {
					break
				}
			}
		}
	}
	c.tree.root.walk(func(q *queue) {
		mark := q.order.earmark
		if mark == nil && len(claims[q]) > 0 || mark != nil && !slices.Contains(claims[q], mark) {
			s.problem("queue %s keeps room for another than the first that may claim it", q.path)
		}
	})
}

func inOrder(tree *btree.BTreeG[*demandClass]) (out []*demandClass) {
	if tree != nil {
		tree.Ascend(func(a *demandClass) bool { out = append(out, a); return true })
	}
	return out
}

// lines checks that whoever was denied waits for what it lacks, and that whoever is due stands in the tournament where the rules say.
func (s *store) lines(c *Core) {
	c.tree.root.walk(func(q *queue) {
		for _, a := range inOrder(q.order.classes) {
			switch sh := a.shortage; {
			case a.due && (a.woken != (sh != nil) || a.contest == nil && !slices.Contains(c.postponed, a)):
				s.problem("queue %s: who asks for %v is due and not in the tournament", q.path, a.delta)
			case !a.due && a.contest != nil:
				s.problem("queue %s: who asks for %v is in the tournament and not due", q.path, a.delta)
			case a.contest != nil && (a.contest.queue != q || a.contest.due[a.turn] != a ||
				(a.contest.line == &c.turns.newcomers) == a.woken || a.woken && a.contest.line != &sh.line):
				s.problem("queue %s: who asks for %v is in a wrong line", q.path, a.delta)
			case !a.due && a.denied.queue == nil, a.unmeasured && sh != nil:
				s.problem("queue %s: who asks for %v is forgotten", q.path, a.delta)
			case !a.due && sh == nil && !a.unmeasured && a.denied.reason != wire.DenyReason_DENY_NEVER_FITS && !a.vain:
				s.problem("queue %s: nothing wakes who asks for %v", q.path, a.delta)
			case sh == nil:
			case sh.queue != a.denied.queue || sh.resource != a.denied.resource || a.lacks != a.delta.Value(sh.resource):
				s.problem("queue %s: who asks for %v waits for something else", q.path, a.delta)
			case a.woken && sh.woken[a.rank] != a || !a.woken && sh.asleep[a.rank] != a:
				s.problem("queue %s: who asks for %v is not where it waits", q.path, a.delta)
			case !a.woken && a.lacks <= sh.free() && !sh.queue.order.hasFreed && !c.tree.dirty:
				s.problem("queue %s: who asks for %v sleeps while there is enough %s at %s", q.path, a.delta, sh.resource, sh.queue.path)
			}
		}
		unmeasured := map[*queue]int{}
		q.walk(func(below *queue) {
			for _, a := range below.order.classOf {
				if a.unmeasured && a.denied.queue == q {
					unmeasured[below]++
				}
			}
		})
		if !maps.Equal(unmeasured, q.order.unmeasured) {
			s.problem("queue %s: %v are looked at with each release, remembered are %v", q.path, unmeasured, q.order.unmeasured)
		}
	})
	if c.tree.dirty {
		return
	}
	c.turns.reorder()
	var inPlace func(n *contest)
	inPlace = func(n *contest) {
		for i, r := range n.rivals {
			was := r.standing
			if r.stand(); r.next() == nil || r.place != i || len(n.rivals) > 1 && r.standing != was || i > 0 && n.rivals[(i-1)/2].standing.compare(was) > 0 {
				s.problem("queue %s does not stand where it should among its siblings", r.queue.path)
			}
			r.standing = was
			inPlace(r)
		}
	}
	for _, root := range c.tree.root.order.contests {
		inPlace(root)
	}
}
