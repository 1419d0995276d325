package coordinator

import (
	"cmp"
	"container/heap"
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/google/btree"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

// request is a Reserve that waits, or is about to be judged for the first time.
type request struct {
	gang      *gang
	queue     *queue
	namespace string
	tenant    *tenant
	from      api.Incarnation
	serial    uint64
	attempt   uint64
	demand    api.Resources // the whole of what the gang would be charged
	delta     api.Resources // what that is more than now
	pods      []uint64      // those that demand is for (pods.go)
	priority  int64
	since     int64
	rank      api.Rank // of an earlier attempt
	trace     *wire.Trace
	arrived   time.Time
	bound     api.Resources // the part of demand that is bound already
	started   bool          // the gang had its minimum
	barred    *shortfall    // why its namespace may not use the queue, nil when it may (rights.go)

	demandClass *demandClass  // nil while it is barred: it competes with nobody then
	slot        int           // in Core.ring, -1 when it does not wait any more
	place       int           // in requests of its namespace
	lacking     time.Time     // when it was first denied for lack of quota
	candidate   bool          // has been denied for so long that it may get an earmark
	unusedFor   time.Duration // of windows in which quota was kept for it and it did not start (earmarks.go)
	told        time.Time     // when its home was last told, the zero time while an answer is owed
	denial      denialText    // what it was told
}

// demandClass groups identical requests of one tenant in a queue. The same sums and limits apply to each of them, and an earmark
// that stands against the first stands against the others. So only the first is evaluated, and while it is denied, none of the
// others can be granted. The denial of the class is kept up to date; what each of the others was told follows it (inform).
type demandClass struct {
	queue     *queue
	namespace string
	delta     api.Resources
	grows     string // UID of the gang that has a reservation already, which makes it a class of its own

	requests      []*request // in static order, never empty
	candidates    []*request // those that may get an earmark, in earmarkOrder
	owed          []*request // those that an answer is owed to once the class was evaluated
	due           bool       // to be judged, and in queue.due unless offer has it
	denied        shortfall  // the last judgement; queue is nil before the first
	limitsVersion uint64     // Core.limitsVersion then
	freed         uint64     // rooms of the queue that denied it then
}

// key identifies a demand class in its queue.
func (a *demandClass) key() []byte {
	b := make([]byte, 0, 128)
	b = append(append(b, a.namespace...), 0)
	b = append(append(b, a.grows...), 0)
	for _, d := range a.delta {
		b = append(append(b, d.Resource...), 0)
		b = binary.BigEndian.AppendUint64(b, uint64(d.Value))
	}
	return b
}

// first is the static order of demand classes in a queue, by the first request of each.
func (a *demandClass) first(o *demandClass) int { return a.requests[0].compare(o.requests[0]) }

type denialText struct {
	reason   wire.DenyReason
	queue    string
	resource string
	detail   string
	short    int64
	charged  int64
	limit    int64
}

// before is the static order of those who wait: priority, then age, then UID. It says whose earmark stands against whom, and the
// order within one queue.
func (r *request) before(o *request) bool { return r.compare(o) < 0 }

func (r *request) compare(o *request) int {
	if c := cmp.Compare(o.priority, r.priority); c != 0 {
		return c
	}
	if c := cmp.Compare(r.since, o.since); c != 0 {
		return c
	}
	return cmp.Compare(r.gang.key.uid, o.gang.key.uid)
}

// turn is whose turn it is in a queue. order is the one order in which room is offered: higher priority first, then the
// queue with the smallest share, then the older gang, then the lower UID. Fair shares, reclaim and backfill change this
// function and nothing else.
type turn struct {
	request *request
	share   int64 // of the request's queue
}

func (t turn) order(o turn) int {
	if c := cmp.Compare(o.request.priority, t.request.priority); c != 0 {
		return c
	}
	if c := cmp.Compare(t.share, o.share); c != 0 {
		return c
	}
	return cmp.Or(t.request.compare(o.request), strings.Compare(t.request.queue.path, o.request.queue.path))
}

// share of a queue in what it could have, in thousandths: the largest over the resources of charged over the smallest
// limit of its path. Queues that nothing limits are compared by the milli-CPUs they hold; they compete with nobody, for
// two queues that compete have a limited ancestor in common.
func (q *queue) share() int64 {
	if len(q.effective) == 0 {
		return q.charged.get("cpu").amount()
	}
	var most int64
	for _, limit := range q.effective {
		charged := q.charged.get(limit.Resource).amount()
		if charged <= 0 {
			continue
		}
		v := int64(math.MaxInt64)
		if hi, lo := bits.Mul64(uint64(charged), 1000); limit.Value > 0 && hi < uint64(limit.Value) {
			n, _ := bits.Div64(hi, lo, uint64(limit.Value))
			v = int64(min(n, math.MaxInt64))
		}
		most = max(most, v)
	}
	return most
}

// enqueue lets a request wait. list puts it into its queue's order, once its fields are set.
func (c *Core) enqueue(r *request) {
	r.gang.req = r
	r.slot = len(c.ring)
	c.ring = append(c.ring, r)
	n := c.namespace(r.namespace)
	r.place = len(n.requests)
	n.requests = append(n.requests, r)
	r.tenant = r.queue.join(r.namespace)
	for p := r.queue; p != nil; p = p.parent {
		p.waiting++
		p.reported = false
	}
}

func (c *Core) list(r *request) {
	if r.barred != nil {
		return
	}
	a := &demandClass{queue: r.queue, namespace: r.namespace, delta: r.delta}
	if r.gang.res != nil {
		a.grows = r.gang.key.uid
	}
	q := r.queue
	if q.classes == nil {
		q.classes, q.classOf = btree.NewG(classDegree, func(a, b *demandClass) bool { return a.first(b) < 0 }), map[string]*demandClass{}
	}
	key := a.key()
	if known := q.classOf[string(key)]; known == nil {
		q.classOf[string(key)] = a
		a.requests = append(a.requests, r)
		q.classes.ReplaceOrInsert(a)
	} else if a = known; r.before(a.requests[0]) {
		q.classes.Delete(a)
		a.requests = slices.Insert(a.requests, 0, r)
		q.classes.ReplaceOrInsert(a)
	} else {
		a.requests = insert(a.requests, r, (*request).compare)
	}
	r.demandClass = a
	if r.candidate {
		c.addCandidate(r)
	}
}

func (c *Core) unlist(r *request) {
	a := r.demandClass
	if a == nil {
		return
	}
	if r.candidate {
		c.dropCandidate(r)
	}
	if r != a.requests[0] {
		a.requests = remove(a.requests, r, (*request).compare)
	} else {
		a.queue.classes.Delete(a)
		if a.requests = remove(a.requests, r, (*request).compare); len(a.requests) > 0 {
			a.queue.classes.ReplaceOrInsert(a)
		} else {
			c.unblock(a)
			delete(a.queue.classOf, string(a.key()))
		}
	}
	r.demandClass = nil
}

// insert and remove keep a list in order. Most come at the end and go from the front, where both cost nothing.
func insert[E any](list []E, e E, compare func(E, E) int) []E {
	i, _ := slices.BinarySearchFunc(list, e, compare)
	return slices.Insert(list, i, e)
}

func remove[E any](list []E, e E, compare func(E, E) int) []E {
	i, found := slices.BinarySearchFunc(list, e, compare)
	switch {
	case !found:
		return list
	case i == 0:
		clear(list[:1])
		return list[1:]
	}
	return slices.Delete(list, i, i+1)
}

// withdraw ends the waiting of a request, granted or not.
func (c *Core) withdraw(r *request) {
	c.unlist(r)
	last := c.ring[len(c.ring)-1]
	c.ring[r.slot], last.slot = last, r.slot
	c.ring[len(c.ring)-1] = nil
	c.ring = c.ring[:len(c.ring)-1]
	r.slot = -1
	n := c.namespaces[r.namespace]
	moved := n.requests[len(n.requests)-1]
	n.requests[r.place], moved.place = moved, r.place
	n.requests[len(n.requests)-1] = nil
	n.requests = n.requests[:len(n.requests)-1]
	c.dropNamespace(r.namespace, n)
	r.queue.leave(r.tenant)
	r.gang.req = nil
	for p := r.queue; p != nil; p = p.parent {
		p.waiting--
		p.reported = false
	}
	c.tree.prune(r.queue)
}

func (c *Core) unblock(a *demandClass) {
	if d := a.denied.queue; d != nil {
		if d.blocked[a.queue]--; d.blocked[a.queue] == 0 {
			delete(d.blocked, a.queue)
		}
		a.denied = shortfall{}
	}
}

// freedAt notes that quota was freed at q: requests denied there may be granted now.
func (c *Core) freedAt(q *queue) {
	if len(q.blocked) > 0 && !q.hasFreed {
		q.hasFreed = true
		c.freed = append(c.freed, q)
	}
}

// freedEverywhere notes it of all queues.
func (c *Core) freedEverywhere() { c.tree.root.walk(c.freedAt) }

func (c *Core) makeDue(a *demandClass) {
	if !a.due {
		a.due = true
		c.later(a)
	}
}

// later has a demand class that is due evaluated in the next transaction.
func (c *Core) later(a *demandClass) {
	a.queue.due = append(a.queue.due, a)
	c.listLeaf(a.queue)
}

func (c *Core) listLeaf(q *queue) {
	if !q.listed {
		q.listed = true
		c.leaves = append(c.leaves, q)
	}
}

// wake schedules the queues whose demand classes were denied at a queue in which quota was freed. A denial depends only on the sums,
// the limits and the earmark of the queue that denied, so no other demand class can have become grantable.
func (c *Core) wake() {
	for _, q := range c.freed {
		q.hasFreed = false
		q.freed++
		for leaf := range q.blocked { // in any order: the order of judgement is that of lineups
			leaf.left, leaf.front = leaf.classes.Len(), true
			c.listLeaf(leaf)
		}
	}
	c.freed = nil
}

// stale reports whether a denial may not hold any more.
func (a *demandClass) stale(limitsVersion uint64) bool {
	d := &a.denied
	return d.queue != nil && d.queue.freed != a.freed && (d.reason != wire.DenyReason_DENY_NEVER_FITS || a.limitsVersion != limitsVersion)
}

// A turn's work is bounded, so that somebody who asks for 50,000 different amounts delays nobody else. Of each queue that was woken,
// at most an equal part of Config.Asks, within the bounds below, is looked at for each transaction: half of it the first in static
// order, so that the order is kept among those whose turn it is, and half of it a round through all. Who waits behind n different
// classes of its own queue is judged after at most n divided by that half of transactions; other queues do not notice. What is new is
// judged at once, whoever asks.
const (
	classDegree  = 16  // of the B-trees of demand classes
	mostClasses  = 4   // a queue gets no more than Config.Asks divided by this,
	leastClasses = 128 // and no less than Config.Asks divided by this
)

// collect returns the demand classes of a queue that are to be evaluated now, of those that were woken among the next most.
func (q *queue) collect(most int, limitsVersion uint64) (due []*demandClass) {
	for _, a := range q.due {
		if len(a.requests) > 0 && a.due {
			due = append(due, a)
		}
	}
	clear(q.due)
	q.due = q.due[:0]
	if most -= len(due); q.left == 0 || most <= 0 || q.classes == nil {
		return due
	}
	look := func(a *demandClass) {
		if !a.due && a.stale(limitsVersion) {
			a.due = true
			due = append(due, a)
		}
	}
	if q.classes.Len() <= most {
		q.left, q.front = 0, false
		q.classes.Ascend(func(a *demandClass) bool { look(a); return true })
		return due
	}
	if n := most / 2; q.front && n > 0 {
		q.front = false
		most -= n
		q.classes.Ascend(func(a *demandClass) bool { look(a); n--; return n > 0 })
	}
	for again := false; most > 0 && q.left > 0; again = true {
		next := func(a *demandClass) bool {
			if most == 0 || q.left == 0 {
				q.cursor = a.requests[0].mark()
				return false
			}
			look(a)
			most--
			q.left--
			return true
		}
		if again || q.cursor == nil {
			q.cursor = nil
			q.classes.Ascend(next)
		} else {
			from := &demandClass{requests: []*request{q.cursor}}
			q.cursor = nil
			q.classes.AscendGreaterOrEqual(from, next)
		}
		if q.cursor != nil {
			break
		}
	}
	return due
}

// mark is a request with the same place in the static order.
func (r *request) mark() *request {
	return &request{priority: r.priority, since: r.since, gang: &gang{key: r.gang.key}}
}

// lineup holds the demand classes of one queue that are due and not evaluated yet, in static order.
type lineup struct {
	queue *queue
	due   []*demandClass
	turn  turn
	path  *shortfall // what keeps every request of the queue from being granted
}

type lineups []*lineup

func (h lineups) Len() int           { return len(h) }
func (h lineups) Less(i, j int) bool { return h[i].turn.order(h[j].turn) < 0 }
func (h lineups) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *lineups) Push(x any)        { *h = append(*h, x.(*lineup)) }
func (h *lineups) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// offer evaluates the demand classes that are due, in order, until the transaction is full, and answers whoever is new. What it costs grows
// with what is granted and what is new, and up to a bound with what is asked for differently, not with how many wait.
func (c *Core) offer(now time.Time, b *batch) {
	c.rebuildEarmarks(now)
	c.wake()
	leaves := c.leaves
	c.leaves = nil
	h := make(lineups, 0, len(leaves))
	most := 0 // no scan before its time
	if len(leaves) > 0 && !now.Before(c.nextScan) {
		most = max(c.cfg.Asks/leastClasses, 2, min(c.cfg.Asks/mostClasses, c.cfg.Asks/len(leaves)))
	}
	c.behind = false
	for _, q := range leaves {
		q.listed = false
		l := &lineup{queue: q, due: q.collect(most, c.limitsVersion)}
		if q.left > 0 {
			c.behind = true
			c.listLeaf(q)
		}
		if len(l.due) > 0 {
			slices.SortFunc(l.due, (*demandClass).first)
			l.path = c.path(q)
			l.turn = turn{l.due[0].requests[0], q.share()}
			h = append(h, l)
		}
	}
	if c.behind && most > 0 {
		c.nextScan = now.Add(c.cfg.CommitEvery)
	}
	heap.Init(&h)
	c.crowded = false
	for len(h) > 0 {
		l := h[0]
		if len(b.ops) >= c.cfg.BatchOps || c.crowded {
			for _, a := range l.due {
				c.later(a)
			}
			heap.Pop(&h)
			continue
		}
		a := l.due[0]
		l.due = l.due[1:]
		r := a.requests[0]
		if r.gang.batch == b.id {
			c.later(a) // its key is in this transaction already
		} else if o := c.charged[r.gang.key.uid]; o != nil && o != r.gang { // charged since it asked: its queue was changed
			c.withdraw(r)
			c.refuseMoved(now, r.from, r.gang, o)
			l.again(a)
		} else if denied := c.judge(r, l.path); denied != nil {
			c.deny(now, a, *denied)
		} else if n := c.elsewhere(r.gang, r.pods); n > 0 { // charged since it asked
			c.withdraw(r)
			c.refuseElsewhere(now, r.from, r.gang, n, r.pods)
			l.again(a)
		} else if !b.fits(reservationBytes(r.gang.ref, r.demand, r.pods), c.cfg.BatchBytes) {
			c.crowded = true // nobody passes it
			l.again(a)
			continue
		} else {
			c.grant(now, b, r)
			l.turn.share = l.queue.share()
			l.again(a)
		}
		if len(l.due) == 0 {
			heap.Pop(&h)
			continue
		}
		l.turn.request = l.due[0].requests[0]
		heap.Fix(&h, 0)
	}
	c.answerNew(now)
}

// again lets a demand class take its next turn, if it still has requests.
func (l *lineup) again(a *demandClass) {
	if len(a.requests) > 0 {
		l.due = insert(l.due, a, (*demandClass).first)
	}
}

// answerNew answers requests that were not answered yet, once the first of their class was evaluated.
func (c *Core) answerNew(now time.Time) {
	was := c.fresh
	c.fresh = nil
	for _, r := range was {
		switch {
		case r.slot < 0 || !r.told.IsZero():
		case r.demandClass == nil && (r.barred.reason == wire.DenyReason_DENY_UNKNOWN || r.gang.res != nil && r.gang.res.revision == 0):
			c.fresh = append(c.fresh, r) // not known yet, or what is charged is not in the store yet
		case r.demandClass == nil:
			c.rejudge(now, r)
		case r.demandClass.due || r.demandClass.denied.reason == wire.DenyReason_DENY_UNKNOWN:
			r.demandClass.owed = append(r.demandClass.owed, r)
		default:
			c.rejudge(now, r)
		}
	}
}

// judge says what keeps a request from being granted now, nil for nothing. path is what path said of its queue.
func (c *Core) judge(r *request, path *shortfall) *shortfall {
	if r.barred != nil {
		return r.barred
	}
	if c.refilling || c.began != nil {
		return &shortfall{reason: wire.DenyReason_DENY_REFILLING, queue: c.tree.root}
	}
	if path != nil {
		return path
	}
	return c.tree.over(r.queue, r.delta, r.demand, r)
}

// path says what keeps every gang of a queue from being admitted, nil for nothing. A reason of DENY_UNKNOWN means that it
// is not known yet.
func (c *Core) path(q *queue) *shortfall {
	for p := q; p != nil; p = p.parent {
		l := shortfall{queue: p}
		switch {
		case !c.exists(p) && p.parent != nil && !c.synced:
			// not judged to be missing before the first list
		case !c.exists(p) && p == q && p.parent != nil:
			l.reason = wire.DenyReason_DENY_QUEUE_NOT_FOUND
		case !c.exists(p) && p.parent != nil:
			l.reason = wire.DenyReason_DENY_PARENT_NOT_FOUND
		case p.closedReason() != "":
			l.reason = wire.DenyReason_DENY_QUEUE_CLOSED
		case p.object != nil && (p.limits == nil || p.limits.record.GetDeleted()), p.limits == nil && !c.synced:
			// its limits are being written, or may be
		default:
			continue
		}
		return &l
	}
	if q.parent == nil || slices.ContainsFunc(q.children, c.exists) {
		return &shortfall{queue: q, reason: wire.DenyReason_DENY_QUEUE_NOT_LEAF}
	}
	return nil
}

// exists reports whether there is a Queue object, or was when the last coordinator looked.
func (c *Core) exists(q *queue) bool {
	return q.object != nil || !c.synced && q.limits != nil && !q.limits.record.GetDeleted()
}

// closedReason returns why the queue and its descendants admit nothing, "" if they do.
func (q *queue) closedReason() string {
	switch o := q.object; {
	case q.parent == nil && (o == nil || o.Deleting):
		return "" // without a root there are just no limits at the root
	case o != nil && o.Deleting:
		return "is being deleted"
	case o == nil && q.limits != nil && q.limits.record.GetDeleted():
		return "was deleted"
	case o != nil && o.Closed || q.limits != nil && q.limits.record.GetClosed():
		return "is closed"
	case o != nil && o.Invalid != "" && q.limits == nil:
		return "cannot be read: " + o.Invalid
	case q.unprotected():
		return noFinalizer
	}
	return ""
}

// waits reports whether freed quota can end a shortfall, so that quota may be kept free.
func (l *shortfall) waits() bool {
	switch l.reason {
	case wire.DenyReason_DENY_QUOTA, wire.DenyReason_DENY_GUARANTEE, wire.DenyReason_DENY_RESERVED_FOR_OLDER:
		return true
	}
	return false
}

// deny lets all who ask for the same wait on, by the judgement of the first.
func (c *Core) deny(now time.Time, a *demandClass, l shortfall) {
	a.due, a.limitsVersion, a.freed = false, c.limitsVersion, l.queue.freed
	if len(a.owed) > 0 && l.reason != wire.DenyReason_DENY_UNKNOWN {
		c.fresh, a.owed = append(c.fresh, a.owed...), nil
	}
	if a.denied.queue != l.queue {
		c.unblock(a)
		if l.queue.blocked == nil {
			l.queue.blocked = map[*queue]int{}
		}
		l.queue.blocked[a.queue]++
		c.earmarksDue = c.earmarksDue || len(a.candidates) > 0
	} else if len(a.candidates) > 0 && a.denied.waits() != l.waits() {
		c.earmarksDue = true
	}
	a.denied = l
	c.inform(now, a.requests[0], &l)
}

// rejudge judges one of those who wait once more. What it finds grantable is granted in its turn.
func (c *Core) rejudge(now time.Time, r *request) {
	switch l := c.judge(r, c.path(r.queue)); {
	case l == nil:
		c.makeDue(r.demandClass)
	case r.demandClass != nil && r == r.demandClass.requests[0]:
		c.deny(now, r.demandClass, *l)
	default:
		c.inform(now, r, l)
	}
}

// owe has a request told what keeps it, whatever it was told before.
func (c *Core) owe(r *request) {
	r.told = time.Time{}
	c.fresh = append(c.fresh, r)
}

// inform takes note of what keeps a request from being granted, and tells its home when the words changed.
func (c *Core) inform(now time.Time, r *request, l *shortfall) {
	if l.reason == wire.DenyReason_DENY_UNKNOWN {
		return
	}
	if l.waits() && r.lacking.IsZero() {
		r.lacking = now
		c.aging = append(c.aging, r)
	}
	w, old := l.text(r.queue), r.denial
	if l.waits() {
		w.detail = c.earmarkNote(r)
	}
	news := w.reason != old.reason || w.queue != old.queue || w.resource != old.resource || w.detail != old.detail
	if r.told.IsZero() || news && now.Sub(r.told) >= c.cfg.WordsEvery || w != old && now.Sub(r.told) >= 30*c.cfg.WordsEvery {
		r.told, r.denial = now, w
		c.sendDenied(r, l)
	}
}

// text returns what a tenant may hear: of its own queue the amounts, of the queues above what is missing there, and of other
// gangs no more than how many there are.
func (l *shortfall) text(own *queue) denialText {
	w := denialText{reason: l.reason, queue: l.queue.path, resource: l.resource, short: l.short}
	if l.queue == own {
		w.charged, w.limit = l.charged, l.capability
	}
	if l.reason == wire.DenyReason_DENY_QUEUE_CLOSED {
		w.detail = l.queue.closedReason()
	}
	return w
}

// sendDenied sends a judgement to the gang's home.
func (c *Core) sendDenied(r *request, l *shortfall) {
	amount := func(v int64) string { return api.FormatAmount(l.resource, v) }
	asks := fmt.Sprintf("gang requests %s", amount(l.requested))
	if r.gang.res != nil {
		asks += " more"
	}
	if l.queue == r.queue {
		asks = fmt.Sprintf("capability %s, charged %s, %s", amount(l.capability), amount(l.charged), asks)
	}
	text := ""
	switch q := l.queue.path; l.reason {
	case wire.DenyReason_DENY_QUOTA:
		text = fmt.Sprintf("queue %q has insufficient %s: %s short (%s)", q, l.resource, amount(l.short), asks)
	case wire.DenyReason_DENY_GUARANTEE:
		text = fmt.Sprintf("queue %q keeps %s free for the guarantees of other queues: %s short (%s)", q, l.resource, amount(l.short), asks)
	case wire.DenyReason_DENY_RESERVED_FOR_OLDER:
		text = fmt.Sprintf("queue %q keeps %s %s free for 1 gang that has waited longer: %s short (%s)", q, amount(l.kept), l.resource, amount(l.short), asks)
	case wire.DenyReason_DENY_NEVER_FITS:
		text = fmt.Sprintf("queue %q can never admit it: gang requests %s %s, capability %s", q, l.resource, amount(l.requested), amount(l.capability))
	case wire.DenyReason_DENY_QUEUE_NOT_FOUND:
		text = fmt.Sprintf("queue %q does not exist", q)
	case wire.DenyReason_DENY_PARENT_NOT_FOUND:
		text = fmt.Sprintf("queue %q, an ancestor of %q, does not exist", q, r.gang.key.queue)
	case wire.DenyReason_DENY_QUEUE_CLOSED:
		text = fmt.Sprintf("queue %q %s", q, r.denial.detail)
	case wire.DenyReason_DENY_NOT_ALLOWED:
		text = fmt.Sprintf("namespace %q may not use queue %q: the namespaceSelector of queue %q does not match its labels", r.namespace, r.gang.key.queue, q)
	case wire.DenyReason_DENY_QUEUE_NOT_LEAF:
		text = fmt.Sprintf("queue %q has child queues: only leaf queues admit gangs", q)
	case wire.DenyReason_DENY_REFILLING:
		text = "shards are still reporting what is bound: the control store is new, was restored or lost a record, or all shards started over"
	}
	if l.waits() {
		text += r.denial.detail
	}
	denied := &wire.Denied{GangUid: r.gang.key.uid, Attempt: r.attempt, Serial: r.serial, Reason: l.reason, Queue: l.queue.path,
		Resource: l.resource, Short: l.short, Message: text}
	denied.ReservationRevision, denied.Demand = r.gang.charged()
	c.send(r.from, &wire.Envelope{Body: &wire.Envelope_Denied{Denied: denied}})
}

// sweep judges a few of those who wait again at each Tick, so that their words stay true and nothing hangs on a wake-up
// that was forgotten.
func (c *Core) sweep(now time.Time) {
	c.tree.recompute()
	c.rebuildEarmarks(now)
	for n := min(c.cfg.Sweep, len(c.ring)); n > 0; n-- {
		if c.cursor >= len(c.ring) {
			c.cursor = 0
		}
		r := c.ring[c.cursor]
		c.cursor++
		if r.demandClass == nil || !r.demandClass.due {
			c.rejudge(now, r)
		}
	}
}
