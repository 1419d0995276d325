package coordinator

import (
	"math"
	"slices"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/api/wire"
)

// shortfall is what keeps a request from being granted; nil if nothing does.
type shortfall struct {
	reason   wire.DenyReason
	queue    *queue
	resource string
	short    int64

	capability, charged, requested int64
	kept                           int64        // for guarantees of others, or for older
	afterOthers                    bool         // and there is room until those have started that wait for nodes
	vain                           bool         // of a request that no node would take
	account                        *userAccount // whose limit it is, nil for the queue's
}

// keeper says how much of a resource a queue keeps from who asks, of a capability of limit.
type keeper interface {
	keeps(q *queue, resource string, limit int64) int64
}

// over returns the first queue, from q up, where charging delta would grow a sum beyond a capability; demand is the
// whole of what the gang would then be charged. From is who asks, nil where nothing is kept for others.
func (t *tree) over(q *queue, delta, demand api.Resources, from keeper) *shortfall {
	// First what no waiting can cure: then the rest must not be said, or the gang would hope.
	for _, d := range demand {
		if limit, limited := q.effective.Get(d.Resource); limited && d.Value > limit && delta.Value(d.Resource) > 0 {
			for p := q; p != nil; p = p.parent {
				if limit, limited := p.capability(d.Resource); limited && d.Value > limit {
					return &shortfall{reason: wire.DenyReason_DENY_NEVER_FITS, queue: p, resource: d.Resource,
						short: api.AddSat(d.Value, -limit), capability: limit,
						charged: p.charged.get(d.Resource).amount(), requested: d.Value}
				}
			}
		}
	}
	var found shortfall
	lowest := math.MaxInt
	for _, d := range delta {
		if d.Value <= 0 {
			continue // what does not grow is always possible
		}
		if _, limited := q.effective.Get(d.Resource); !limited {
			continue
		}
		level, grows := 0, wide{}.plus(d.Value)
		later := grows
		for p := q; p != nil && level < lowest; p, level = p.parent, level+1 {
			if p != q && fault.On(fault.AncestorsNotAsked) {
				break
			}
			held := p.held.get(d.Resource).add(grows)
			if limit, limited := p.capability(d.Resource); limited {
				charged := p.charged.get(d.Resource)
				use := charged.plus(d.Value)
				if grows.amount() <= 0 { // inside a guarantee: what is forced elsewhere does not take it away
					use = use.sub(p.forced.get(d.Resource))
				}
				kept := int64(0)
				if from != nil {
					kept = from.keeps(p, d.Resource, limit)
				}
				l := shortfall{queue: p, resource: d.Resource, capability: limit, charged: charged.amount(), requested: d.Value}
				// Inside a guarantee nothing more is taken from others.
				guarded := grows.amount() > 0 && !(level > 1 && fault.On(fault.CousinsGuarantee))
				switch {
				case use.amount() > limit:
					l.reason, l.short = wire.DenyReason_DENY_QUOTA, use.plus(-limit).amount()
				case guarded && held.amount() > limit:
					l.reason, l.short = wire.DenyReason_DENY_GUARANTEE, held.plus(-limit).amount()
					l.kept = p.held.get(d.Resource).sub(charged).amount()
				case len(p.moves.sums)+len(p.shifts) > 0 && p.willUse(d, later).amount() > limit:
					l.reason, l.short = wire.DenyReason_DENY_PROMISED, p.willUse(d, later).plus(-limit).amount()
				case kept > 0 && use.plus(kept).amount() > limit:
					l.reason, l.short = wire.DenyReason_DENY_RESERVED_FOR_OLDER, use.plus(kept).plus(-limit).amount()
				case kept > 0 && guarded && held.plus(kept).amount() > limit:
					l.reason, l.short = wire.DenyReason_DENY_RESERVED_FOR_OLDER, held.plus(kept).plus(-limit).amount()
				}
				if l.reason != 0 {
					if l.reason == wire.DenyReason_DENY_RESERVED_FOR_OLDER {
						l.kept = kept
					}
					found, lowest = l, level
					break
				}
			}
			after := held.max(wide{}.plus(p.guarantee.Value(d.Resource)))
			shifts := len(p.shifts) > 0 || later != grows
			if grows = after.sub(p.need(d.Resource)); shifts {
				later = p.willNeed(d.Resource, later)
			} else {
				later = grows
			}
		}
	}
	if found.queue == nil {
		return nil
	}
	return &found
}

// ofUser returns the first queue of the path that lets the user of a request have no more, nil for none.
func (t *tree) ofUser(r *request) *shortfall {
	if t.personal == 0 {
		return nil
	}
	judge := func(q *queue, a *userAccount) *shortfall {
		resource, short, never := a.lacks(r.delta, r.demand)
		if resource == "" {
			return nil
		}
		l := &shortfall{reason: wire.DenyReason_DENY_USER_LIMIT, queue: q, resource: resource, short: short, account: a,
			capability: a.limit.capability.Value(resource), charged: a.has.get(resource).amount(),
			requested: r.delta.Value(resource)}
		if never {
			l.reason, l.requested = wire.DenyReason_DENY_NEVER_FITS, r.demand.Value(resource)
		}
		return l
	}
	if res := r.gang.res; res != nil && (res.personal != nil || !res.demand.IsZero()) {
		for _, at := range res.personal {
			if l := judge(at.queue, at.account); l != nil {
				return l
			}
		}
		return nil
	}
	for p := range r.queue.limiting() {
		if a := p.users.of(r.who.named(r.namespace)); a != nil {
			if l := judge(p, a); l != nil {
				return l
			}
		}
	}
	return nil
}

// exceeds reports whether a capability of the path is exceeded in a resource that demand names, with what is kept for
// guarantees.
func (t *tree) exceeds(q *queue, demand api.Resources) bool {
	for p := q; p != nil; p = p.parent {
		for _, d := range demand {
			if limit, limited := p.capability(d.Resource); limited && d.Value > 0 && p.held.get(d.Resource).amount() > limit {
				return true
			}
		}
	}
	return false
}

// waits reports whether freed quota, or gangs that end, can end a shortfall, so that something may be kept free.
func (l *shortfall) waits() bool {
	switch l.reason {
	case wire.DenyReason_DENY_QUOTA, wire.DenyReason_DENY_GUARANTEE, wire.DenyReason_DENY_PROMISED,
		wire.DenyReason_DENY_RESERVED_FOR_OLDER:
		return !l.vain
	case wire.DenyReason_DENY_SUPPLY:
		return !l.vain && l.requested <= l.capability
	}
	return false
}

// path says what keeps every gang of a queue from being admitted, nil for nothing. A reason of DENY_UNKNOWN means
// that it is not known yet.
func (t *tree) path(q *queue) *shortfall {
	for p := q; p != nil; p = p.parent {
		l := shortfall{queue: p}
		switch {
		case !t.exists(p) && p.parent != nil && !t.synced:
			// not judged to be missing before the first list
		case !t.exists(p) && p == q && p.parent != nil:
			l.reason = wire.DenyReason_DENY_QUEUE_NOT_FOUND
		case !t.exists(p) && p.parent != nil:
			l.reason = wire.DenyReason_DENY_PARENT_NOT_FOUND
		case p.closedReason() != "":
			l.reason = wire.DenyReason_DENY_QUEUE_CLOSED
		case p.object != nil && (p.limits == nil || p.limits.record.GetDeleted()), p.limits == nil && !t.synced:
			// its limits are being written, or may be
		default:
			continue
		}
		return &l
	}
	if q.parent == nil || slices.ContainsFunc(q.children, t.exists) {
		return &shortfall{queue: q, reason: wire.DenyReason_DENY_QUEUE_NOT_LEAF}
	}
	return nil
}

// exists reports whether there is a Queue object, or was when the last coordinator looked.
func (t *tree) exists(q *queue) bool {
	return q.object != nil || !t.synced && q.limits != nil && !q.limits.record.GetDeleted()
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
