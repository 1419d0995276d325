package coordinator

import (
	"encoding/binary"
	"slices"

	"github.com/google/btree"

	"basalt.dev/basalt/api"
)

// demandClass groups identical requests of one tenant in a queue. The same sums and limits apply to each of them, and an earmark
// that stands against the first stands against the others. So only the first is evaluated, and while it is denied, none of the
// others can be granted. The denial of the class is kept up to date; what each of the others was told follows it (inform).
type demandClass struct {
	queue     *queue
	namespace string
	delta     api.Resources
	grows     string // UID of the gang that has a reservation already, which makes it a class of its own
	who       string // whose gangs they are, where that matters
	fixed     bool   // they say that they may not be evicted
	vain      bool   // no node would take them
	term      int    // of each of them

	requests      []*request // in static order, never empty
	candidates    []*request // those that may get an earmark, in earmarkOrder
	owed          []*request // those that an answer is owed to once the class was evaluated
	counted       bool       // in the sums of what waits (queue.asked)
	due           bool       // to be judged, and in the tournament unless it is postponed
	woken         bool       // likewise, for there is enough of what it lacked (wake.go)
	contest       *contest   // where it is due, nil when it is not in the tournament
	turn          int        // in contest.due
	denied        shortfall  // the last judgement; queue is nil before the first
	limitsVersion uint64     // tree.version then
	changed       uint64     // queue.changes of the queue that denied it then,
	freed         uint64     // and queue.freed
	shortage      *shortage  // what it lacks, nil when that is nothing that can be measured
	lacks         int64      // so much of it has to be free
	rank          int        // in the heaps of shortage
	unmeasured    bool       // it is looked at again whatever is freed at the queue that denied it
}

// key identifies a demand class in its queue.
func (a *demandClass) key() []byte {
	b := make([]byte, 0, 128)
	b = append(append(b, a.namespace...), 0)
	b = append(append(b, a.grows...), 0)
	if a.who != "" {
		b = append(append(append(b, 3), a.who...), 3)
	}
	if a.fixed {
		b = append(b, 1) // no name begins so
	}
	if a.vain {
		b = append(b, 2)
	}
	if a.term < never {
		b = append(b, 4, byte(a.term))
	}
	for _, d := range a.delta {
		b = append(append(b, d.Resource...), 0)
		b = binary.BigEndian.AppendUint64(b, uint64(d.Value))
	}
	return b
}

func (c *Core) list(r *request) {
	if r.barred != nil {
		return
	}
	a := &demandClass{queue: r.queue, namespace: r.namespace, delta: r.delta, fixed: r.kept, vain: r.vain, term: r.term}
	if r.gang.res != nil {
		a.grows = r.gang.key.uid
	}
	if q := r.queue; c.tree.personal > 0 && q.limitsUsers() {
		a.who = r.who.key()
	}
	q := r.queue
	if q.order.classes == nil {
		q.order.classes = btree.NewG(classDegree, func(a, b *demandClass) bool { return a.first(b) < 0 })
		q.order.classOf = map[string]*demandClass{}
	}
	key := a.key()
	if known := q.order.classOf[string(key)]; known == nil {
		q.order.classOf[string(key)] = a
		a.requests = append(a.requests, r)
		q.order.classes.ReplaceOrInsert(a)
	} else if a = known; r.before(a.requests[0]) {
		q.order.classes.Delete(a)
		a.requests = slices.Insert(a.requests, 0, r)
		q.order.classes.ReplaceOrInsert(a)
		c.turns.moved(a)
	} else {
		a.requests = insert(a.requests, r, (*request).compare)
	}
	r.demandClass = a
	if a.counted {
		q.ask(a.delta, 1)
	}
	if r.candidate {
		c.earmarks.add(r)
	}
}

// ask adds to what is waited for in a queue and its ancestors.
func (q *queue) ask(delta api.Resources, times int64) {
	for p := q; p != nil; p = p.parent {
		p.asked.add(delta, times)
	}
}

// count lets a demand class count among what waits, or not.
func (a *demandClass) count(counts bool) {
	if a.counted == counts {
		return
	}
	n := int64(len(a.requests))
	if a.counted = counts; !counts {
		n = -n
	}
	a.queue.ask(a.delta, n)
}

func (c *Core) unlist(r *request) {
	r.unexpect()
	a := r.demandClass
	if a == nil {
		return
	}
	if r.candidate {
		c.earmarks.drop(r)
	}
	if a.counted {
		a.queue.ask(a.delta, -1)
	}
	if r != a.requests[0] {
		a.requests = remove(a.requests, r, (*request).compare)
	} else {
		a.queue.order.classes.Delete(a)
		if a.requests = remove(a.requests, r, (*request).compare); len(a.requests) > 0 {
			a.queue.order.classes.ReplaceOrInsert(a)
			c.turns.moved(a)
		} else {
			c.turns.rest(a)
			c.turns.unblock(a)
			delete(a.queue.order.classOf, string(a.key()))
		}
	}
	r.demandClass = nil
}
