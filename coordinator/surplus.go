package coordinator

import (
	"fmt"
	"slices"
	"strings"
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

// surplusRests is for how long no single pods are offered of a gang whose home refused some.
const surplusRests = time.Minute

// surplus is a pod above the minimum of its gang.
type surplus struct {
	uid     string
	id      uint64
	amounts api.Resources // that the gang is charged for it
}

func readSurplus(in []*wire.SurplusPod) (out []surplus, err error) {
	for _, w := range in {
		amounts, err := wire.ToResources(w.GetAmounts())
		if err == nil {
			err = sound(amounts)
		}
		if err != nil {
			return nil, err
		}
		out = append(out, surplus{w.GetUid(), api.PodID(w.GetUid()), amounts})
	}
	return out, nil
}

func writeSurplus(in []surplus) (out []*wire.SurplusPod) {
	for _, p := range in {
		out = append(out, &wire.SurplusPod{Uid: p.uid, Amounts: wire.FromResources(p.amounts)})
	}
	return out
}

func sumOf(pods []surplus) (sum api.Resources) {
	for _, p := range pods {
		sum = sum.Add(p.amounts)
	}
	return sum
}

// named reports whether the reservation is for a pod.
func (r *reservation) named(id uint64) bool {
	_, is := slices.BinarySearch(r.pods, id)
	return is
}

func (r *reservation) isCondemned(id uint64) bool {
	return slices.ContainsFunc(r.condemned, func(p surplus) bool { return p.id == id })
}

// spare is how many further pods the gang may lose singly, as far as its record says.
func (r *reservation) spare() int {
	if r.least == 0 {
		return 0
	}
	return max(0, len(r.pods)-len(r.condemned)-r.least)
}

// offers is how many a mandate may offer: none for a while after the gang's home refused some.
func (r *reservation) offers(now time.Time) int {
	if now.Before(r.refused.Add(surplusRests)) {
		return 0
	}
	return r.spare()
}

// stays is what the gang is charged without what is condemned.
func (r *reservation) stays() api.Resources {
	if len(r.condemned) == 0 {
		return r.demand
	}
	return r.demand.Sub(sumOf(r.condemned)).Positive()
}

// settle lets what a gang loses count as on its way out: all of it, or the pods that are condemned, or that a claim takes.
func (c *Core) settle(g *gang) {
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
	c.lower(r.queue)
	c.turns.shake(r.queue)
	r.queue.changed()
	r.away = away
}

// single reports whether the victim is no more than some pods of its gang.
func (v victim) single() bool { return len(v.pods) > 0 }

// rest returns the pods that are still to be condemned: the record may have lost some for other reasons.
func (v victim) rest() (out []surplus) {
	if r := v.gang.res; r != nil && r.attempt == v.attempt && !r.closing {
		for _, p := range v.pods {
			if r.named(p.id) && !r.isCondemned(p.id) {
				out = append(out, p)
			}
		}
	}
	return out
}

// going returns the pods that are condemned and not gone.
func (v victim) going() (out []surplus) {
	if r := v.gang.res; r != nil && r.attempt == v.attempt {
		for _, p := range v.pods {
			if r.isCondemned(p.id) {
				out = append(out, p)
			}
		}
	}
	return out
}

// amounts is what a claim takes of the gang.
func (v victim) amounts() api.Resources {
	if v.single() {
		return sumOf(v.rest()).Add(sumOf(v.going()))
	}
	return v.gang.res.stays()
}

// holdings are what the victim gives, as the rules see it: each pod that may be left out counts by itself.
func (v victim) holdings(awaited func(uid string) bool) (out []holding) {
	h := v.gang.holding()
	if !v.single() {
		h.room = awaited(v.gang.key.uid)
		return []holding{h}
	}
	for _, p := range slices.Concat(v.rest(), v.going()) {
		h.amounts, h.room = p.amounts, awaited(p.uid)
		out = append(out, h)
	}
	return out
}

// uids are what a claim that waits for the victim may name in awaits.
func (v victim) uids() (out []string) {
	if !v.single() {
		return []string{v.gang.key.uid}
	}
	for _, p := range v.pods {
		out = append(out, p.uid)
	}
	return out
}

// setTaken lets a claim count at a victim.
func (c *Core) setTaken(x *claim, v victim) {
	v.gang.res.claimedBy = x
	if v.single() {
		v.gang.res.asked = v.rest()
		c.settle(v.gang)
		c.freedFor(v.gang)
	} else {
		c.setLeaving(v.gang, true)
	}
}

// setSpared ends it for a victim that is not closed or condemned.
func (c *Core) setSpared(x *claim, v victim) {
	if v.gang.res == nil || v.gang.res.claimedBy != x {
		return
	}
	v.gang.res.claimedBy = nil
	if v.single() {
		v.gang.res.asked = nil
		c.settle(v.gang)
		c.freedFor(v.gang)
	} else {
		c.setLeaving(v.gang, false)
	}
}

// ask asks the home of a victim whether it can do without its pods, and reports whether it did. It says who is condemned already, which
// has to be in the store.
func (c *Core) ask(x *claim, v victim) bool {
	home, r := c.owners.Table().OwnerOf(v.gang.key.queue), v.gang.res
	if home == "" || r.revision == 0 {
		return false
	}
	c.send(home, &wire.Envelope{Body: &wire.Envelope_Shrink{Shrink: &wire.Shrink{Gang: v.gang.ref, Attempt: v.attempt, Mandate: x.mandate,
		Pods: writeSurplus(v.rest()), To: c.yieldingTo(x, v.gang), Condemned: writeSurplus(r.condemned), ReservationRevision: r.revision}}})
	return true
}

// shrink tells the home of a gang which of its pods are condemned.
func (g *gang) shrink() *wire.Envelope {
	m := &wire.Shrink{Gang: g.ref, Attempt: g.res.attempt, To: g.res.shrinks, Condemned: writeSurplus(g.res.condemned), ReservationRevision: g.res.revision}
	if m.ReservationRevision == 0 {
		m.ReservationRevision = revisionWritten
	}
	return &wire.Envelope{Body: &wire.Envelope_Shrink{Shrink: m}}
}

// condemn writes which pods of a gang leave for a claim, as its home agrees.
func (c *Core) condemn(now time.Time, b *batch, from api.Incarnation, m *wire.Condemn) {
	g := c.gang(m.GetGang())
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
			x.gang.await(now.Add(staleFirst), c.limitsVersion, foundStale) // it is not its fault
			c.dropClaim(now, b, x, why)
		}
		return
	}
	if slices.ContainsFunc(pods, func(p surplus) bool { return !slices.Contains(m.GetPods(), p.uid) }) {
		return
	}
	r.condemned = slices.Concat(r.condemned, pods)
	r.claimedBy, r.asked, r.overdue = nil, nil, false
	r.shrinks = c.yieldingTo(x, g)
	c.settle(g)
	c.put(b, g)
	c.Claims.Condemned[x.rule] += uint64(len(pods))
	if !slices.Contains(c.yielding, g) {
		c.yielding = append(c.yielding, g)
	}
	b.replies = append(b.replies, reply{from, g.shrink()})
}

// forgetGone takes pods that claims take out of a record if a request does not name them any more, with what was charged for them: a pod
// that takes the place of one of them has to be admitted. It reports whether there was one.
func (c *Core) forgetGone(g *gang, pods []uint64) bool {
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
	r.condemned, r.asked = slices.DeleteFunc(slices.Clone(r.condemned), left), slices.DeleteFunc(slices.Clone(r.asked), left)
	if len(r.condemned) == 0 {
		r.shrinks, r.overdue = nil, r.overdue && r.closing
	}
	if !fault.On(fault.CondemnedReplaced) {
		c.charge(g, r.demand.Sub(sumOf(gone)).Positive())
	}
	c.settle(g)
	return true
}

// readSingles reads which pods of a gang a plan takes, and says why it may not, "" if it may.
func (v *victim) readSingles(in []*wire.SurplusPod) (why string, err error) {
	if v.pods, err = readSurplus(in); err != nil || len(in) == 0 {
		return "", err
	}
	r := v.gang.res
	slices.SortFunc(v.pods, func(a, b surplus) int { return strings.Compare(a.uid, b.uid) })
	for i, p := range v.pods {
		if i > 0 && v.pods[i-1].uid == p.uid || !r.named(p.id) || r.isCondemned(p.id) || p.amounts.IsZero() {
			return "a pod that was to go has changed", nil
		}
	}
	if len(v.pods) > r.spare() || !sumOf(v.pods).Fits(r.stays()) {
		return "a gang that was to lose pods needs them", nil
	}
	return "", nil
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
		c.settle(g)
	}
	if r.most, err = wire.ToResources(w.GetMost()); err != nil {
		return fmt.Errorf("most: %w", err)
	}
	return nil
}

// yieldingTo says for what a gang loses all or some of its pods.
func (c *Core) yieldingTo(x *claim, v *gang) *wire.Yielding {
	return &wire.Yielding{To: x.gang.ref, Rule: x.rule, Why: c.why(x, v), UntilUnixMs: x.until.UnixMilli()}
}
