package coordinator

import (
	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

// Non-preemptible gangs may not borrow. All gangs of a subtree whose owners set preemptible: false together stay within
// the deserved share of its queue, for each resource that Queue.spec.deserved names there; the same holds for the
// queues above it. Otherwise a tenant could keep borrowed quota for ever by setting one field. A queue that names no
// resource restricts nobody, and one that names 0 lets such gangs use none of that resource.
//
// A gang keeps the setting with which it was charged. It may become preemptible later if the deserved share of its
// queue leaves no room for a gang that is not.
//
// Bare pods are not evicted, because nothing would recreate them, but they borrow like others unless they say that they
// are not preemptible. Restricting them as well was tried and dropped: whoever runs bare pods would have to label each
// of them before a queue with a deserved share could lend it anything.

// fix lets a reservation count among those that may not be evicted, or not any more, after something of it has changed.
func (r *reservation) fix() {
	var now api.Resources
	if r.kept {
		if now = r.demand; r.claim != nil {
			now = now.Add(r.claim.promised)
		}
	}
	if len(now)+len(r.fixed) == 0 {
		return
	}
	delta := now.Sub(r.fixed)
	for p := r.queue; p != nil; p = p.parent {
		p.fixed.add(delta, 1)
	}
	r.fixed = now
}

// borrows returns the first queue, from q up, where a gang that may not be evicted would have such gangs use more than the queue deserves;
// nil for none. demand is the whole of what the gang would be charged, fixed what of it counts already. What stays within a guarantee is the
// queue's own, whatever others below its ancestors use.
func (q *queue) borrows(demand, fixed api.Resources) *shortfall {
	for _, d := range demand {
		more := api.AddSat(d.Value, -fixed.Value(d.Resource))
		if more <= 0 {
			continue
		}
		for p := q; p != nil; p = p.parent {
			if p.names(d.Resource) {
				deserved, use := p.deserved.Value(d.Resource), p.fixed.get(d.Resource)
				if over := use.plus(more).plus(-deserved).amount(); over > 0 {
					return &shortfall{reason: wire.DenyReason_DENY_UNPREEMPTIBLE, queue: p, resource: d.Resource, capability: deserved,
						charged: use.amount(), requested: more, short: over}
				}
			}
			if p.charged.get(d.Resource).plus(more).amount() <= p.kept(d.Resource) {
				break
			}
		}
	}
	return nil
}

// borrows says what keeps a request from borrowing, nil for nothing.
func (r *request) borrows() *shortfall {
	if !r.kept {
		return nil
	}
	var fixed api.Resources
	if r.gang.res != nil {
		fixed = r.gang.res.fixed
	}
	return r.queue.borrows(r.demand, fixed)
}

// mayBeFixed reports whether a gang that is charged, and could be evicted, may become one that is not.
func (r *reservation) mayBeFixed() bool { return r.queue.borrows(r.demand, r.fixed) == nil }
