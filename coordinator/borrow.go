package coordinator

import (
	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

// What may not be taken back may not be borrowed. Gangs whose owners say that they may not be evicted (preemptible: false) stay, all of a
// subtree together, within what its queue deserves, of the resources that Queue.spec.deserved names there; so do the queues above it.
// Otherwise a tenant would keep for ever what its queue has borrowed, by a word. A queue that names nothing restricts nobody, and one that
// names 0 lets such gangs use nothing of that resource.
//
// A gang is taken to be what it was when it was charged: it may be evicted later on, too, if what its queue deserves leaves no room for one
// that may not.
//
// Bare pods, which are not evicted because nothing would make them again, borrow as others do if they say nothing. To restrict them, too, was
// tried: whoever runs bare pods would have to label each of them before a queue that deserves something lends it anything.

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
