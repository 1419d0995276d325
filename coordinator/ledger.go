package coordinator

import (
	"slices"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/fault"
)

// ledger writes what queues have: what is charged, what was promised to claims, what is on its way out of that, and
// what is kept from others. It wakes whoever may be granted something by what it writes.
type ledger struct {
	tree          *tree
	turns         *tournament
	barring       []*gang       // that keep others from borrowing what they lack, by queue and UID (bar.go)
	lowered       []*queue      // that have less than before the last transaction
	displacements displacements // who was evicted for whom (displacement.go)
}

// lower notes that a queue has less than it had: its side may be entitled to more now.
func (l *ledger) lower(q *queue) {
	if l.tree.evicts && len(l.lowered) < barredAtOnce && !slices.Contains(l.lowered, q) {
		l.lowered = append(l.lowered, q)
	}
}

// freedFor notes that others may be granted something by what changed for a gang.
func (l *ledger) freedFor(g *gang) {
	if q := l.tree.byPath[g.key.queue]; q != nil {
		for p := q; p != nil; p = p.parent {
			l.turns.freedAt(p)
		}
	}
}

// charge changes what a reservation is charged, at its queue and every ancestor.
func (l *ledger) charge(g *gang, demand api.Resources) {
	q := g.res.queue
	demand = l.tree.counted(demand)
	delta := demand.Sub(g.res.demand)
	g.res.becomes(demand)
	if len(g.res.unplaced) > 0 && !delta.IsZero() {
		l.setUnplaced(g, nil, false)
	}
	l.tree.charge(q, delta)
	g.res.fix()
	l.settle(g)
	g.res.tenant.charged.add(delta, 1)
	l.chargeUsers(g, delta, 1)
	if g.res.forced {
		l.tree.force(q, delta)
	}
	released := slices.ContainsFunc(delta, func(a api.Amount) bool { return a.Value < 0 })
	if released {
		l.lower(q)
	}
	l.turns.shake(q)
	for p := q; p != nil; p = p.parent {
		p.report.reported = false
		mark := p.order.earmark // the more a queue and a tenant have, the less is kept for them
		if released || len(l.barring) > 0 || mark != nil && (mark.tenant == g.res.tenant || p != q && mark.queue == q) {
			l.turns.freedAt(p)
		}
	}
}

// chargeUsers adds to what the gang's user has, in each queue that limits him.
func (l *ledger) chargeUsers(g *gang, delta api.Resources, times int64) {
	r := g.res
	if l.tree.personal == 0 {
		return
	}
	if r.personal == nil {
		l.openAccounts(g)
	}
	for _, at := range r.personal {
		at.account.has.add(delta, times)
		for _, d := range delta {
			if d.Value*times < 0 {
				at.queue.freedOf(at.account, d.Resource)
			}
		}
	}
}

// promiseUsers lets what is promised to a claim count for its user, or not any more.
func (l *ledger) promiseUsers(x *claim, times int64) {
	if !fault.On(fault.UserPromises) {
		l.chargeUsers(x.gang, x.promised, times)
	}
}

// openAccounts finds out to whom a gang is charged.
func (l *ledger) openAccounts(g *gang) {
	for p := range g.res.queue.limiting() {
		if a := p.users.open(g.res.who.named(g.ref.GetNamespace())); a != nil {
			g.res.personal = append(g.res.personal, chargedTo{p, a})
		}
	}
}

// closeAccounts ends it for a gang that is charged nothing any more.
func (l *ledger) closeAccounts(g *gang) {
	for _, at := range g.res.personal {
		at.queue.users.leave(at.account)
	}
	g.res.personal = nil
}

// setForced marks a reservation as one that may exceed a capability, or takes the mark away.
func (l *ledger) setForced(g *gang, forced bool) {
	if g.res.forced == forced {
		return
	}
	g.res.forced = forced
	if !forced {
		l.tree.force(g.res.queue, api.Resources(nil).Sub(g.res.demand))
		return
	}
	l.tree.force(g.res.queue, g.res.demand)
	l.freedFor(g) // for what is inside a guarantee
}

// settle lets what a gang loses count as on its way out: all of it, or the pods that are condemned, or that a claim
// takes.
func (l *ledger) settle(g *gang) {
	r := g.res
	var away api.Resources
	switch {
	case fault.On(fault.RealShares):
	case r.leaving && !(r.closing && r.overdue):
		away = r.demand
	case len(r.condemned)+len(r.asked) > 0:
		if away = sumOf(r.asked); !r.overdue {
			away = away.Add(sumOf(r.condemned))
		}
		away = away.Min(r.demand).Positive()
	}
	if away.Equal(r.away) {
		return
	}
	r.queue.move(r.away, 1)
	r.queue.move(away, -1)
	l.lower(r.queue)
	l.turns.shake(r.queue)
	r.queue.changed()
	r.away = away
}

// setLeaving lets what a gang is charged count as on its way out, or not.
func (l *ledger) setLeaving(g *gang, leaving bool) {
	r := g.res
	if r.leaving == leaving || fault.On(fault.RealShares) {
		return
	}
	if r.leaving = leaving; leaving {
		l.setUnplaced(g, nil, false) // it does not look for room any more
	}
	l.settle(g)
	if leaving || len(l.barring) > 0 {
		l.freedFor(g)
	}
}

// promise lets what a claim will charge count, or not any more.
func (l *ledger) promise(x *claim, times int64) {
	if fault.On(fault.RealShares) {
		return
	}
	x.gang.res.queue.move(x.promised, times)
	l.promiseUsers(x, times)
	if times < 0 {
		l.lower(x.gang.res.queue)
	}
	l.turns.shake(x.gang.res.queue)
	x.gang.res.queue.changed()
	if times < 0 || len(l.barring) > 0 {
		l.freedFor(x.gang)
	}
}

func (l *ledger) setUnplaced(g *gang, demand api.Resources, repairs bool) {
	r, gate := g.res, l.tree.root.gate
	was, now := r.unplaced, demand // of what others have meanwhile
	if r.repairs {
		gate.repairs.add(was, -1)
		was = nil
	}
	if r.unplaced, r.repairs = demand, repairs; repairs {
		gate.repairs.add(now, 1)
		now = nil
	}
	more := now.Sub(was)
	gate.unplaced.add(more, 1)
	r.tenant.unplaced.add(more, 1)
	if !more.Fits(nil) {
		l.turns.freedAt(l.tree.root)
	}
}

// setTaken lets a claim count at a victim.
func (l *ledger) setTaken(x *claim, v victim) {
	v.gang.res.claimedBy = x
	if v.single() {
		v.gang.res.asked = v.rest()
		l.settle(v.gang)
		l.freedFor(v.gang)
	} else {
		l.setLeaving(v.gang, true)
	}
}

// setSpared ends it for a victim that is not closed or condemned.
func (l *ledger) setSpared(x *claim, v victim) {
	if v.gang.res == nil || v.gang.res.claimedBy != x {
		return
	}
	v.gang.res.claimedBy = nil
	if v.single() {
		v.gang.res.asked = nil
		l.settle(v.gang)
		l.freedFor(v.gang)
	} else {
		l.setLeaving(v.gang, false)
	}
}

// forgetGone takes pods that claims take out of a record if a request does not name them any more, with what was
// charged for them: a pod that takes the place of one of them has to be admitted. It reports whether there was one.
func (l *ledger) forgetGone(g *gang, pods []uint64) bool {
	r := g.res
	if r == nil {
		return false
	}
	gone := slices.DeleteFunc(slices.Concat(r.condemned, r.asked), func(p surplus) bool {
		_, named := slices.BinarySearch(pods, p.id)
		return named
	})
	if len(gone) == 0 {
		return false
	}
	left := func(p surplus) bool { return slices.ContainsFunc(gone, func(o surplus) bool { return o.id == p.id }) }
	r.condemned, r.asked = slices.DeleteFunc(slices.Clone(r.condemned), left),
		slices.DeleteFunc(slices.Clone(r.asked), left)
	if len(r.condemned) == 0 {
		r.shrinks, r.overdue = nil, r.overdue && r.closing
	}
	if !fault.On(fault.CondemnedReplaced) {
		l.charge(g, r.demand.Sub(sumOf(gone)).Positive())
	}
	l.settle(g)
	return true
}

// leaveAlone lets gangs count as any that are closing, if they were closed by their homes and not for the claim.
func (l *ledger) leaveAlone(x *claim) {
	for _, v := range x.victims {
		if v.single() {
			l.setSpared(x, v)
		} else if v.closed() && v.gang.res.yields == nil {
			l.setLeaving(v.gang, false)
		}
	}
}

// endClaim takes a claim away, and returns the gangs that it does not wait for any more: those that stay.
func (l *ledger) endClaim(x *claim) (spared []string) {
	g := x.gang
	if g.res.claim != x {
		return nil
	}
	l.promise(x, -1)
	g.res.claim = nil
	g.res.fix()
	for _, v := range x.victims {
		if v.open() && v.gang.res.claimedBy == x {
			l.setSpared(x, v)
			l.undisplace(x, v)
			spared = append(spared, v.uids()...)
		}
	}
	l.leaveAlone(x)
	stay := api.SetOf(spared)
	g.res.awaits = slices.DeleteFunc(g.res.awaits, func(uid string) bool { return stay[uid] })
	return spared
}
