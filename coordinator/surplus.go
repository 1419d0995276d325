package coordinator

import (
	"fmt"
	"slices"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/api/wire"
)

// Surplus pods. A gang that runs with more pods than its minimum (least in its record) may lose single pods to a
// claim, and runs on. The claim names them. Whether the gang can do without them only its home knows, so it is asked
// (Shrink); if it agrees (Condemn), they are written into the gang's own record, and only then evicted. If it does
// not, the claim is dropped, and its gang gets another mandate at once, which does not offer that surplus.
//
// Who is condemned stays condemned until it is gone: a home that was replaced may be about to delete it, whatever became of the claim.
// A Condemn is void once the gang has asked for something else: its minimum may have been raised.
//
// A gang may claim a further pod, too (request.mayClaim), but only one of whose pods nobody takes any. It takes nothing
// from those to whom it lost surplus pods (displacement.go).
//
// What is condemned counts as on its way out until the record does not name the pod any more, and then it is not charged: another pod of
// the gang does not get its place, but asks for it as any other that is to be added.

// ask asks the home of a victim whether it can do without its pods, and reports whether it did. It says who is condemned already, which
// has to be in the store.
func (c *Core) ask(x *claim, v victim) bool {
	home, r := c.owners.Table().OwnerOf(v.gang.key.queue), v.gang.res
	if home == "" || r.revision == 0 {
		return false
	}
	c.send(home, &wire.Envelope{Body: &wire.Envelope_Shrink{Shrink: &wire.Shrink{Gang: v.gang.ref, Attempt: v.attempt, Mandate: x.mandate,
		Pods: writeSurplus(v.rest()), To: x.yieldingTo(v.gang), Condemned: writeSurplus(r.condemned),
		ReservationRevision: r.revision}}})
	return true
}

// condemn writes which pods of a gang leave for a claim, as its home agrees.
func (c *Core) condemn(now time.Time, b *batch, from api.Incarnation, m *wire.Condemn) {
	g := c.roster.at(m.GetGang())
	r := g.res
	if r == nil || r.closing || r.revision == 0 || m.GetTerm() != c.term || r.attempt != m.GetAttempt() || m.GetSerial() < g.serial || r.claimedBy == nil || r.claimedBy.mandate != m.GetMandate() {
		return // late
	}
	x := r.claimedBy
	at := slices.IndexFunc(x.victims, func(v victim) bool { return v.gang == g })
	if at < 0 || !x.victims[at].single() {
		return
	}
	pods := x.victims[at].rest()
	why := m.GetRefused()
	if r.spare() < len(pods) && !fault.On(fault.CondemnBelowMinimum) {
		why = "a gang that was to lose pods needs them"
	}
	if why != "" {
		r.refused = now
		if x.gang.batch != b.id && x.gang.res.revision != 0 {
			x.gang.await(now.Add(staleFirst), c.tree.version, foundStale) // it is not its fault
			c.dropClaim(now, b, x, why)
		}
		return
	}
	if slices.ContainsFunc(pods, func(p surplus) bool { return !slices.Contains(m.GetPods(), p.uid) }) {
		return
	}
	r.condemned = slices.Concat(r.condemned, pods)
	r.claimedBy, r.asked, r.overdue = nil, nil, false
	r.shrinks = x.yieldingTo(g)
	c.ledger.settle(g)
	c.put(b, g)
	c.Claims.Condemned[x.rule] += uint64(len(pods))
	if !slices.Contains(c.yielding, g) {
		c.yielding = append(c.yielding, g)
	}
	b.replies = append(b.replies, reply{from, g.shrink()})
}

// loadSurplus reads what a record says of pods that are condemned, and of what its gang was charged at most.
func (c *Core) loadSurplus(g *gang, w *wire.ReservationRecord) error {
	r := g.res
	r.least = int(w.GetLeast())
	condemned, err := readSurplus(w.GetCondemned())
	if err != nil {
		return fmt.Errorf("condemned: %w", err)
	}
	if r.condemned, r.shrinks = condemned, w.GetShrinks(); len(condemned) > 0 {
		c.yielding = append(c.yielding, g)
		c.ledger.settle(g)
	}
	if r.most, err = wire.ToResources(w.GetMost()); err != nil {
		return fmt.Errorf("most: %w", err)
	}
	r.most = c.tree.counted(r.most)
	return nil
}
