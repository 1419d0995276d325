package coordinator

import (
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

// request is a Reserve that waits, or is about to be judged for the first time.
type request struct {
	gang      *gang
	queue     *queue
	namespace string
	tenant    *tenant
	who       *who
	from      api.Incarnation
	serial    uint64
	attempt   uint64
	demand    api.Resources // the whole of what the gang would be charged
	delta     api.Resources // what that is more than now
	pods      []uint64      // those that demand is for (roster.go)
	priority  int64
	order     int64 // of those of its priority in its queue, the smaller first, where its spec.order says so (ordered)
	since     int64
	rank      api.Rank // of an earlier attempt
	trace     *wire.Trace
	arrived   time.Time
	bound     api.Resources // the part of demand that is bound already
	least     int
	runs      int64      // ms after which it is past its limit, from when it is granted; 0: it has none
	barred    *shortfall // why its namespace may not use the queue, nil when it may (rights.go)

	demandClass *demandClass  // nil while it is barred: it competes with nobody then
	slot        int           // in Core.ring, -1 when it does not wait any more
	place       int           // in requests of its namespace
	lacking     time.Time     // when it was first denied for lack of quota
	unusedFor   time.Duration // of windows in which quota was kept for it and it did not start (earmarks.go)
	told        time.Time     // when its home was last told, the zero time while an answer is owed
	denial      denialText    // what it was told
	term        int           // the slot in which it would be past its limit if it started now, or never (backfill.go)
	lends       int64         // for so many ms others may have what is kept for it, 0 for not at all

	// Side by side, so that a request fits into 512 bytes.
	started     bool // the gang had its minimum
	preemptible bool
	kept        bool // it says that it may not be evicted
	claims      bool // others may be evicted for it
	vain        bool // no node would take it
	mends       bool // it asks for pods of its minimum that it lost: without them it does nothing with all it has
	ordered     bool
	expected    bool // counts in queue.expected or queue.hoped (supply.go)
	candidate   bool // has been denied for so long that it may get an earmark
}

// enqueue lets a request wait. list puts it into its queue's order, once its fields are set.
func (c *Core) enqueue(r *request) {
	r.gang.req = r
	r.slot = len(c.ring)
	c.ring = append(c.ring, r)
	n := c.rights.at(r.namespace)
	r.place = len(n.requests)
	n.requests = append(n.requests, r)
	r.tenant = r.queue.join(r.namespace)
	r.queue.waits(1)
}

// withdraw ends the waiting of a request, granted or not.
func (c *Core) withdraw(r *request) {
	c.unlist(r)
	last := c.ring[len(c.ring)-1]
	c.ring[r.slot], last.slot = last, r.slot
	c.ring[len(c.ring)-1] = nil
	c.ring = c.ring[:len(c.ring)-1]
	r.slot = -1
	c.ledger.bar(r.gang, false)
	n := c.rights.names[r.namespace]
	moved := n.requests[len(n.requests)-1]
	n.requests[r.place], moved.place = moved, r.place
	n.requests[len(n.requests)-1] = nil
	n.requests = n.requests[:len(n.requests)-1]
	c.rights.drop(r.namespace, n)
	r.queue.leave(r.tenant)
	r.gang.req = nil
	r.queue.waits(-1)
	c.tree.prune(r.queue)
}

// owe has a request told what keeps it, whatever it was told before.
func (c *Core) owe(r *request) {
	r.told = time.Time{}
	c.fresh = append(c.fresh, r)
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
		case r.demandClass.due && !r.demandClass.woken || r.demandClass.denied.reason == wire.DenyReason_DENY_UNKNOWN:
			r.demandClass.owed = append(r.demandClass.owed, r)
		default:
			c.rejudge(now, r)
		}
	}
}

// rejudge judges one of those who wait once more. What it finds grantable is granted in its turn.
func (c *Core) rejudge(now time.Time, r *request) {
	switch l := c.judge(r, c.tree.path(r.queue)); {
	case l == nil:
		c.turns.makeDue(r.demandClass)
	case r.demandClass != nil && r == r.demandClass.requests[0]:
		c.deny(now, r.demandClass, *l)
	default:
		c.inform(now, r, l)
	}
}

// sweep judges a few of those who wait again at each Tick, so that their words stay true and nothing hangs on a wake-up
// that was forgotten.
func (c *Core) sweep(now time.Time) {
	c.tree.recompute()
	c.earmarks.rebuild(now)
	for n := min(c.cfg.Sweep, len(c.ring)); n > 0; n-- {
		if c.cursor >= len(c.ring) {
			c.cursor = 0
		}
		r := c.ring[c.cursor]
		c.cursor++
		if r.demandClass == nil || !r.demandClass.due || r.demandClass.woken {
			c.rejudge(now, r)
		}
	}
}

// rejudgeRights looks again at the rights of requests that wait.
func (c *Core) rejudgeRights(requests []*request) {
	for _, r := range requests {
		now := c.rights.right(r.queue, r.namespace)
		if now == nil && r.barred == nil || now != nil && r.barred != nil && *now == *r.barred {
			continue
		}
		c.unlist(r)
		r.barred = now
		c.list(r)
		c.owe(r)
		if now == nil {
			c.turns.makeDue(r.demandClass)
			if len(r.bound) > 0 {
				c.rights.entitled = append(c.rights.entitled, r)
			}
		}
	}
}

// rightsChanged is called when the selector in force at q is another.
func (c *Core) rightsChanged(q *queue) {
	if q.members.waiting == 0 {
		return
	}
	var below []*request
	for _, r := range c.ring {
		for p := r.queue; p != nil; p = p.parent {
			if p == q {
				below = append(below, r)
				break
			}
		}
	}
	c.rejudgeRights(below)
}

// rightsSynced: all namespaces of the first list were delivered.
func (c *Core) rightsSynced() {
	if !c.rights.synced {
		c.rights.synced = true
		c.rejudgeRights(c.ring)
	}
}
