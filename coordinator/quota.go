package coordinator

import (
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/labels"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/api/wire"
)

// limits are the limits in force at a queue: what its record says.
type limits struct {
	record     *wire.LimitsRecord
	capability api.Resources
	guarantee  api.Resources
	deserved   api.Resources
	users      []userLimit
	selector   labels.Selector // of the namespaces that may use the queue and what lies below, nil for all (rights.go)
}

// weight of the queue among its siblings.
func (l *limits) weight() uint32 {
	if l == nil {
		return 1
	}
	return weightOf(l.record.Weight)
}

// entitles reports whether the limits say what the queue deserves, or what is guaranteed to it.
func (l *limits) entitles() bool { return l != nil && len(l.guarantee)+len(l.deserved) > 0 }

// policy of the queue, nil for the defaults.
func (l *limits) policy() *wire.QueuePolicy {
	if l == nil {
		return nil
	}
	return l.record.GetPolicy()
}

// personal reports whether limits say what users may have.
func (l *limits) personal() bool { return l != nil && len(l.users) > 0 }

// samePersonal reports whether two limits say the same of users.
func (l *limits) samePersonal(o *limits) bool {
	if !l.personal() || !o.personal() {
		return l.personal() == o.personal()
	}
	return sameUserLimits(l.record.GetUserLimits(), o.record.GetUserLimits())
}

func sameUserLimits(a, b []*wire.UserLimit) bool {
	return slices.EqualFunc(a, b, func(a, b *wire.UserLimit) bool { return proto.Equal(a, b) })
}

// priority of the queue among its siblings.
func (l *limits) priority() int32 {
	if l == nil {
		return 0
	}
	return l.record.GetPriority()
}

func weightOf(w *uint32) uint32 {
	if w == nil {
		return 1
	}
	return *w
}

// queue is a node of the quota tree. One exists for each path that has an object, a record, a reservation, a request, or
// something of these below it.
type queue struct {
	path     string
	level    int      // 0 for root
	parent   *queue   // nil for root
	children []*queue // sorted by path

	object *QueueSeen // as last seen, nil when there is none
	limits *limits    // in force, nil when no record exists

	quota
	members members
	users   *users // nil where no user is limited
	order   order
	report  reported
}

// quota is what a queue may have, has, and will have. It follows from limits, reservations and requests.
type quota struct {
	charged sums    // the whole subtree
	zeros   int     // amounts of charged that became zero since names were last removed
	moves   account // what the subtree will have more once all claims have happened: promised, less what gangs have that are on their way out
	// held is what the subtree needs kept by those below: what its own gangs are charged, and for each child the larger of
	// the child's held and the child's guarantee in force. It is at least charged; the difference is kept free.
	held      sums
	shifts    sums          // by how much held will change with all moves: a guarantee takes up some of what is promised
	forced    sums          // the part of charged that forced reservations hold
	fixed     account       // what gangs have, or are promised, that say that they may not be evicted (borrow.go)
	guarantee api.Resources // in force, after cutting
	deserved  api.Resources // likewise, with the guarantee
	cut       string        // the first resource of which the queue's own guarantee was cut, "" for none
	lessened  string        // likewise of what it deserves
	asked     account       // for what requests in the subtree wait that freed quota can help
	fair      api.Resources // its fair share, of those resources that the parent can give only so much of (shares.go)
	short     [2][]shortOf  // how far it is below what it deserves, and its fair share, since when (lasting.go)
	unbacked  string        // the first resource of its own guarantee that no ancestor limits, "" for none
	effective api.Resources // the smallest capability of the path, for each resource that has one
	pool      api.Resources // the same with what the nodes have: what the queue's children share
	gate      *gate         // of root: for how much gangs are admitted (gate.go)
	expected  account       // for what gangs in the subtree wait that quota admits, and nodes have no room for (supply.go),
	hoped     account       // and those that no node would take
}

// tree is the quota tree with its sums. They follow from the reservations alone.
//
// A guarantee in force is a queue's own, or the sum of its children's where it says nothing, cut to what the
// ancestors can keep. What a queue deserves in force is likewise, cut to what root has of nodes, too. Coverable
// means: at each queue with a capability, held <= capability. The obvious rule, to sum max(charged, guarantee) over
// the children, was dropped: where a child without a capability of its own has one child that uses the other's
// guarantee, it finds charged = guarantee there and gives the room away a level higher.
//
// Forced reservations are for pods that somebody bound without asking; they may make held larger than a capability. Then
// nothing more is granted there but inside a guarantee, against which only what is not forced counts: so a forced charge
// in one queue takes nothing from the guarantee of another, and what is not forced stays within the capability.
type tree struct {
	root   *queue
	byPath map[string]*queue
	made   uint64 // how often guarantees and the like were made
	dirty  bool   // limits, or what the nodes have, changed: guarantees, effective and held are to be made again
	evicts bool   // some queue says something by which others may be evicted

	byFairShare bool      // some queue says that its children take back their fair shares
	nextFair    time.Time // when fair shares may be made again (shares.go)
	linedUp     time.Time // when it was found out last how queues stand (standing.go)
	version     uint64    // grows with each change of a limit
	counting    int       // queues whose limits name gangs (counts.go),
	personal    int       // or limit users (users.go)
	synced      bool      // all Queues of the first list were delivered
}

func newTree() *tree {
	t := &tree{byPath: map[string]*queue{}}
	t.root = &queue{path: api.RootQueue, quota: quota{gate: &gate{}}}
	t.byPath[api.RootQueue] = t.root
	return t
}

// limitsChanged has what follows from limits made again, and what was judged by them judged again.
func (t *tree) limitsChanged() { t.dirty, t.version = true, t.version+1 }

// at returns the queue of a path, made if need be with its ancestors.
func (t *tree) at(path string) *queue {
	if q := t.byPath[path]; q != nil {
		return q
	}
	parent := t.at(api.Parent(path))
	q := &queue{path: path, level: parent.level + 1, parent: parent,
		quota: quota{effective: parent.effective, pool: parent.pool}}
	i, _ := slices.BinarySearchFunc(parent.children, path, func(c *queue, p string) int { return strings.Compare(c.path, p) })
	parent.children = slices.Insert(parent.children, i, q)
	t.byPath[path] = q
	return q
}

// walk visits the queue and all below it, parents first, in the order of their paths.
func (q *queue) walk(visit func(*queue)) {
	visit(q)
	for _, c := range q.children {
		c.walk(visit)
	}
}

// prune removes the queue, and then its ancestors, while nothing needs them.
func (t *tree) prune(q *queue) {
	for q.parent != nil && q.object == nil && q.limits == nil &&
		q.members.admitted == 0 && q.members.waiting == 0 && len(q.children) == 0 {
		delete(t.byPath, q.path)
		q.parent.children = slices.DeleteFunc(q.parent.children, func(c *queue) bool { return c == q })
		q = q.parent
	}
}

// has is what the queue will have of a resource once everything that is decided has happened.
func (q *queue) has(resource string) wide {
	charged := q.charged.get(resource)
	if len(q.moves.sums) == 0 {
		return charged
	}
	return charged.add(q.moves.get(resource))
}

// need is what must be kept of one resource in the ancestors for this queue's subtree.
func (q *queue) need(resource string) wide {
	return q.held.get(resource).max(wide{}.plus(q.guarantee.Value(resource)))
}

// charge adds delta, which may be negative, to the queue and every ancestor.
func (t *tree) charge(q *queue, delta api.Resources) {
	if len(delta) > keptZeros {
		for p := q; p != nil; p = p.parent {
			p.charged.name(delta)
			p.held.name(delta)
		}
	}
	for _, a := range delta {
		if a.Value == 0 {
			continue
		}
		grows := wide{}.plus(a.Value)
		later := grows
		for p := q; p != nil; p = p.parent {
			if p == q.parent && fault.On(fault.SkippedAncestor) {
				continue
			}
			charged := p.charged.at(a.Resource)
			*charged = charged.plus(a.Value)
			if *charged == (wide{}) {
				p.zeros++
			}
			guarantee := wide{}.plus(p.guarantee.Value(a.Resource))
			held := p.held.at(a.Resource)
			before := held.max(guarantee)
			shifts := len(p.shifts) > 0 || later != grows
			if shifts {
				later = p.shift(a.Resource, later, grows)
			}
			*held = held.add(grows)
			if grows = held.max(guarantee).sub(before); !shifts {
				later = grows
			}
		}
	}
	for p := q; p != nil; p = p.parent {
		if p.zeros > keptZeros && 2*p.zeros > len(p.charged) { // constant time per amount in the long run
			p.zeros = 0
			p.charged.trim()
			p.held.trim()
		}
	}
}

// willHold is what held will be once all that is decided has happened.
func (q *queue) willHold(resource string) wide {
	held := q.held.get(resource)
	if len(q.shifts) == 0 {
		return held
	}
	return held.add(q.shifts.get(resource))
}

// willUse is how much of the queue's capability is used, or kept for guarantees, once all that is decided has happened and it is charged d
// more, for which it will hold so much more. Inside a guarantee what is forced elsewhere does not count.
func (q *queue) willUse(d api.Amount, more wide) wide {
	if more.amount() > 0 {
		return q.willHold(d.Resource).add(more)
	}
	return q.has(d.Resource).plus(d.Value).sub(q.forced.get(d.Resource))
}

// willNeed returns by how much more of the parent's the queue will need once it has so much more below.
func (q *queue) willNeed(resource string, more wide) wide {
	guarantee, held := wide{}.plus(q.guarantee.Value(resource)), q.willHold(resource)
	return held.add(more).max(guarantee).sub(held.max(guarantee))
}

// move lets amounts count, so many times, in what the queue and its ancestors will have.
func (q *queue) move(amounts api.Resources, times int64) {
	for p := q; p != nil; p = p.parent {
		p.moves.add(amounts, times)
		if len(p.moves.sums) > 0 && !p.moves.some() {
			p.moves = account{}
		}
	}
	for _, a := range amounts {
		later := product(a.Value, times)
		for p := q; p != nil && later != (wide{}); p = p.parent {
			later = p.shift(a.Resource, later, wide{})
		}
	}
}

// shift lets what the queue will hold grow by later, while what it holds is about to grow by now. It returns by how much more of the
// parent's it will need.
func (q *queue) shift(resource string, later, now wide) wide {
	more := q.willNeed(resource, later)
	s := q.shifts.at(resource)
	if *s = s.add(later).sub(now); *s == (wide{}) && !q.shifts.some() {
		q.shifts = nil
	}
	return more
}

// force adds delta to what forced reservations hold at the queue and every ancestor. It is in charged already.
func (t *tree) force(q *queue, delta api.Resources) {
	for p := q; p != nil; p = p.parent {
		for _, a := range delta {
			forced := p.forced.at(a.Resource)
			*forced = forced.plus(a.Value)
		}
		p.forced = slices.DeleteFunc(p.forced, func(t total) bool { return t.wide == wide{} })
	}
}

func (q *queue) capability(resource string) (int64, bool) {
	if q.limits == nil {
		return 0, false
	}
	return q.limits.capability.Get(resource)
}

// recompute makes effective limits, guarantees and what is deserved in force, and held again after limits changed. It
// is linear in the tree.
func (t *tree) recompute() {
	if !t.dirty {
		return
	}
	t.dirty = false
	t.made++
	t.evicts, t.byFairShare = false, false
	t.root.walk(func(q *queue) {
		p := q.limits.policy()
		t.byFairShare = t.byFairShare || p.GetReclaim() == wire.Reclaim_RECLAIM_FAIR_SHARE
		t.evicts = t.evicts || t.byFairShare || q.limits.entitles() || p.GetPreempts()
	})
	w := wants{guarantee: map[*queue]api.Resources{}, deserved: map[*queue]api.Resources{}}
	t.root.want(w)
	t.root.guarantee, t.root.deserved = w.guarantee[t.root], within(w.deserved[t.root], t.root.gate.pool)
	t.root.cut, t.root.lessened, t.root.unbacked = "", "", ""
	t.root.recompute(nil, w, t.root.gate.pool)
}

// wants are what each queue would have in force if it fitted.
type wants struct{ guarantee, deserved map[*queue]api.Resources }

// want finds what a queue and those below it would have in force if it fitted: what the queue says of a resource, and
// what its children want together of those of which it says nothing; within its capability. What it says it deserves
// bounds what is guaranteed below, too.
func (q *queue) want(w wants) {
	var guarantee, deserved api.Resources
	for _, c := range q.children {
		c.want(w)
		guarantee, deserved = guarantee.Add(w.guarantee[c]), deserved.Add(w.deserved[c])
	}
	if l := q.limits; l != nil {
		own := l.guarantee.Max(l.deserved)
		guarantee = within(instead(within(guarantee, own), l.guarantee), l.capability)
		deserved = within(instead(deserved, own), l.capability)
	}
	if len(guarantee) > 0 {
		w.guarantee[q] = guarantee
	}
	if len(deserved) > 0 {
		w.deserved[q] = deserved
	}
}

// parts cuts what each child wants where all of them together want more than the queue has in force. Those of which
// an administrator has said what they deserve go first: whoever may write a queue below one that says nothing takes
// nothing from the siblings of that. Among each of the two kinds every child keeps its floor, and what is left is
// divided in proportion to what they want beyond.
func (q *queue) parts(has api.Resources, wanted map[*queue]api.Resources, floors []api.Resources) []api.Resources {
	type sum struct{ kept, beyond sums }
	var of [2]sum
	for n, c := range q.children {
		for _, a := range wanted[c] {
			k, o := min(a.Value, floors[n].Value(a.Resource)), &of[c.says(a.Resource)]
			kept, beyond := o.kept.at(a.Resource), o.beyond.at(a.Resource)
			*kept, *beyond = kept.plus(k), beyond.plus(a.Value-k)
		}
	}
	out := make([]api.Resources, len(q.children))
	for n, c := range q.children {
		out[n] = slices.Clone(wanted[c])
		for i, a := range out[n] {
			which, left := c.says(a.Resource), wide{}.plus(has.Value(a.Resource))
			if which == 1 {
				left = left.sub(of[0].kept.get(a.Resource)).sub(of[0].beyond.get(a.Resource))
			}
			k, kept := min(a.Value, floors[n].Value(a.Resource)), of[which].kept.get(a.Resource)
			beyond := share(a.Value-k, left.sub(kept).amount(), of[which].beyond.get(a.Resource))
			out[n][i].Value = share(k, left.amount(), kept) + beyond
		}
	}
	return out
}

// says is 0 if the queue says what it deserves of a resource, or what is guaranteed to it, and 1 if its children do.
func (q *queue) says(resource string) int {
	if q.limits != nil {
		if _, named := q.limits.guarantee.Get(resource); named || q.names(resource) {
			return 0
		}
	}
	return 1
}

// recompute takes what the queue itself has in force as decided, decides what its children have, and sums what they
// hold.
func (q *queue) recompute(above api.Resources, w wants, supply api.Resources) {
	q.effective = above
	if q.limits != nil {
		q.effective = lower(above, q.limits.capability)
	}
	q.pool = lower(q.effective, supply)
	guarantees := q.parts(q.guarantee, w.guarantee, make([]api.Resources, len(q.children)))
	deserved := q.parts(q.deserved, w.deserved, guarantees)
	q.held, q.shifts = slices.Clone(q.charged), slices.Clone(q.moves.sums)
	for n, c := range q.children {
		before, entitled, cut, lessened, unbacked := c.guarantee, c.deserved, c.cut, c.lessened, c.unbacked
		c.guarantee, c.deserved = guarantees[n], deserved[n]
		c.cut, c.lessened, c.unbacked = "", "", ""
		if c.limits != nil {
			for _, a := range c.limits.guarantee {
				if _, limited := q.effective.Get(a.Resource); !limited && c.unbacked == "" && a.Value > 0 {
					c.unbacked = a.Resource
				}
				if c.guarantee.Value(a.Resource) < a.Value && c.cut == "" {
					c.cut = a.Resource
				}
			}
			for _, a := range c.limits.deserved {
				if c.deserved.Value(a.Resource) < a.Value && c.lessened == "" {
					c.lessened = a.Resource
				}
			}
		}
		if !before.Equal(c.guarantee) || !entitled.Equal(c.deserved) ||
			cut != c.cut || lessened != c.lessened || unbacked != c.unbacked {
			c.report.reported = false
		}
		c.recompute(q.effective, w, supply)
		for _, a := range c.charged {
			if a.wide != (wide{}) {
				h := q.held.at(a.resource)
				*h = h.sub(a.wide)
			}
		}
		for i := range c.held {
			if need := c.need(c.held[i].resource); need != (wide{}) {
				h := q.held.at(c.held[i].resource)
				*h = h.add(need)
			}
		}
		for _, a := range c.guarantee {
			if _, found := c.held.find(a.Resource); !found {
				h := q.held.at(a.Resource)
				*h = h.plus(a.Value)
			}
		}
		for _, m := range c.moves.sums {
			s := q.shifts.at(m.resource)
			*s = s.sub(m.wide)
		}
		for _, m := range c.shifts {
			guarantee := wide{}.plus(c.guarantee.Value(m.resource))
			s := q.shifts.at(m.resource)
			*s = s.add(c.willHold(m.resource).max(guarantee)).sub(c.need(m.resource))
		}
	}
	if !q.shifts.some() {
		q.shifts = nil
	}
}

// names reports whether the queue says what it deserves of a resource.
func (q *queue) names(resource string) bool {
	if q.limits == nil {
		return false
	}
	_, named := q.limits.deserved.Get(resource)
	return named
}

// kept is what nobody takes of a queue: what is guaranteed to it, as far as it deserves it.
func (q *queue) kept(resource string) int64 {
	return min(q.guarantee.Value(resource), q.deserved.Value(resource))
}

// unheld reports whether the limits of the object have to wait for its finalizer: what nothing holds could be gone
// with the next word.
func (q *queue) unheld() bool {
	o := q.object
	return o != nil && !o.HasFinalizer && !o.Deleting && (q.limits == nil || q.limits.record.GetUid() != o.UID)
}

// ended reports whether the control store says that this very object is deleted. The finalizer waits for that: a
// patch is not fenced, so a leader that was replaced and does not know may send one, and the record keeps its
// successor, whose watch may lag, from admitting anything to the queue.
func (q *queue) ended() bool {
	return q.limits != nil && q.limits.record.GetDeleted() && q.limits.record.GetUid() == q.object.UID
}

// unprotected reports whether that finalizer was asked for in vain, so that nothing is admitted.
func (q *queue) unprotected() bool { return q.report.finalizerFailed && q.unheld() }

// apart returns the siblings that the paths to two different queues lead through, or the queues themselves where one
// is below the other.
func apart(a, b *queue) (*queue, *queue) {
	for a.level > b.level {
		a = a.parent
	}
	for b.level > a.level {
		b = b.parent
	}
	for a.parent != b.parent {
		a, b = a.parent, b.parent
	}
	return a, b
}

// ancestor is the queue of the path at a level.
func (q *queue) ancestor(level int) *queue {
	for q.level > level {
		q = q.parent
	}
	return q
}
