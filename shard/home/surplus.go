package home

import (
	"maps"
	"slices"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/shard/event"
	"basalt.dev/basalt/shard/home/plan"
	"basalt.dev/basalt/shard/home/report"
)

// Surplus pods: a gang that runs with more pods than its minimum gives up single pods for a claim, and runs on. The order is that of
// Kubernetes' controllers: the lowest deletion cost first, then the youngest.
//
// The claimant's home chooses, from what it sees of the pods. The gang's own home has the last word (onShrink): it agrees only if each pod is
// bound and what it is said to be, and the gang has its minimum without them. Then the coordinator writes that they are condemned, and
// only after that they are evicted, by whichever home reads the record. A condemned pod stays so until it is gone, and its place is
// nobody's: a pod that replaces it is growth.

// surplusAtMost bounds the single pods that are asked about for one mandate.
const surplusAtMost = 3072

// least is how many pods of a gang have to stay when it gives up single ones, 0 if it is evicted as a whole or not at all: it has not started,
// says so, or counts its minimum otherwise.
func (g *gang) least() int {
	if !g.started || g.isPod() || g.group == nil || g.kind == goneGroup ||
		g.group.Whole || len(g.group.Roles) > 0 || len(g.group.Floor) > 0 || !g.preemptible() {
		return 0
	}
	return g.minCount()
}

// saysLeast reports whether the record says something else of that, and it matters: the gang has more than its minimum, or had.
func (g *gang) saysLeast() bool {
	ch := &g.charge
	return ch.least != g.least() && (ch.least > 0 || len(ch.pods) > g.minCount())
}

// spares reports whether a pod of a gang of another home counts when that gang may lose single ones. One that somebody else bound counts only
// once its kubelet has accepted it, and none on a node that does not exist: its gang need not be charged for it (foreign.go). Else anybody who
// may create pods could keep all of his others from going: plans would take pods that their home refuses to give.
func (c *census) spares(p *pod) bool {
	return c.clusterNodes[p.Node] != nil && (p.Started || p.Gang != "")
}

// onShrink answers whether a gang can do without some pods, or evicts those that are condemned.
func (c *claims) onShrink(m *wire.Shrink) {
	g := c.gangs[m.GetGang().GetUid()]
	if g == nil || g.dropped() || c.table == nil {
		return
	}
	ch := &g.charge
	if m.GetAttempt() != ch.attempt || !ch.reserved() || ch.closed {
		return
	}
	if m.GetReservationRevision() > ch.revision {
		ch.moved(m.GetReservationRevision())
	}
	c.evictions.condemned(g, m.GetCondemned(), m.GetTo())
	if len(m.GetPods()) == 0 {
		return
	}
	reply := &wire.Condemn{Gang: g.message(), Attempt: ch.attempt, Serial: c.serial(g), TableEpoch: uint64(c.table.Epoch),
		Mandate: m.GetMandate(), Term: c.term, Refused: g.needs(m.GetPods())}
	for _, p := range m.GetPods() {
		if reply.Refused == "" {
			reply.Pods = append(reply.Pods, p.GetUid())
		}
	}
	c.send(event.ToCoordinator, &wire.Envelope{Body: &wire.Envelope_Condemn{Condemn: reply}})
	if fault.On(fault.CondemnUnwritten) && reply.Refused == "" {
		c.evictions.condemned(g, m.GetPods(), m.GetTo())
	}
}

// needs says why a gang cannot do without some pods, "" if it can.
func (g *gang) needs(pods []*wire.SurplusPod) string {
	least := g.least()
	if least == 0 {
		return "a gang that was to lose single pods is evicted as a whole or not at all"
	}
	least = max(least, g.charge.least) // where it was lowered, the record is to say so first
	stay := map[string]bool{}          // what the gang is not charged for, as it may never run (foreign.go), does not make up for what leaves
	for uid, p := range g.members {
		stay[uid] = p.maySpare() && g.charge.names(g, p) && g.charge.condemned[uid] == nil
	}
	for _, w := range pods {
		p := g.members[w.GetUid()]
		if amounts, err := wire.ToResources(w.GetAmounts()); err != nil || p == nil || !stay[p.UID] || !p.Class.Requests.Equal(amounts) {
			return "a pod that was to go has changed"
		}
		stay[p.UID] = false
	}
	left := 0
	for _, stays := range stay {
		if stays {
			left++
		}
	}
	if left < least && !fault.On(fault.CondemnBelowMinimum) {
		return "a gang that was to lose pods needs them"
	}
	return ""
}

// condemned takes note of pods that the record of a gang condemns, and says so.
func (c *evictions) condemned(g *gang, pods []*wire.SurplusPod, to *wire.Yielding) {
	n := g.charge.condemn(pods, to)
	if n == 0 {
		return
	}
	c.Condemned += uint64(n)
	g.shrunk = report.Shrunk(n, to.GetWhy())
	disrupts := c.disrupts(g.pick(func(p *pod) bool { return p.isBound() && g.charge.condemned[p.UID] != nil }))
	c.warn(g, v1beta1.ReasonShrunk, report.Short(g.shrunk+disrupts))
	c.mark(g)
}

// condemn notes what the record condemns, and returns how many of it are new.
func (ch *charge) condemn(pods []*wire.SurplusPod, to *wire.Yielding) (n int) {
	for _, w := range pods {
		if amounts, err := wire.ToResources(w.GetAmounts()); err == nil && ch.condemned[w.GetUid()] == nil {
			if ch.condemned == nil {
				ch.condemned = map[string]api.Resources{}
			}
			ch.condemned[w.GetUid()] = amounts
			n++
		}
	}
	if n > 0 {
		ch.shrinks = to
	}
	return n
}

// evictCondemned evicts what is condemned of a gang.
func (c *evictions) evictCondemned(g *gang) {
	for _, uid := range api.SortedKeys(g.charge.condemned) {
		if p := g.members[uid]; p != nil && p.isBound() {
			c.evictPod(g, p, report.Short(g.charge.shrinks.GetWhy()))
		}
	}
}

// goneCondemned is what the reservation is still charged for condemned pods that are gone.
func (g *gang) goneCondemned() (sum api.Resources) {
	for uid, amounts := range g.charge.condemned {
		if p := g.members[uid]; p == nil || !p.isBound() || p.absence == lost {
			sum = sum.Add(amounts)
		}
	}
	return sum
}

// forgetCondemned forgets pods that the reservation does not name any more.
func (ch *charge) forgetCondemned() {
	maps.DeleteFunc(ch.condemned, func(uid string, _ api.Resources) bool {
		_, named := slices.BinarySearch(ch.pods, api.PodID(uid))
		return !named
	})
}

// surplusOf finds the single pods of candidates that may go, by index of candidate, among their bound pods.
func (c *census) surplusOf(candidates []*wire.Candidate, bound map[string][]*pod) map[int]plan.Candidate {
	out := map[int]plan.Candidate{}
	left := surplusAtMost
	for i, of := range candidates {
		if of.GetLeast() == 0 {
			continue
		}
		var pods []*pod
		for _, p := range bound[of.GetGang().GetUid()] {
			if c.spares(p) {
				pods = append(pods, p)
			}
		}
		if len(pods) <= int(of.GetLeast()) {
			continue
		}
		found := plan.Candidate{Surplus: len(pods) - int(of.GetLeast())}
		for _, p := range pods[:min(left, len(pods))] {
			found.Pods = append(found.Pods, plan.Pod{UID: p.UID, Amounts: p.Class.Requests})
		}
		left -= len(found.Pods)
		out[i] = found
	}
	return out
}

// victimsOf writes down what a plan takes: gangs, and single pods of others.
func victimsOf(candidates []*wire.Candidate, singles map[int]plan.Candidate, found *plan.Plan) (out []*wire.Victim) {
	for _, v := range found.Victims {
		of := candidates[v]
		out = append(out, &wire.Victim{Gang: of.GetGang(), Attempt: of.GetAttempt()})
	}
	last := -1
	for _, s := range found.Pods {
		if of := candidates[s.Candidate]; s.Candidate != last {
			last = s.Candidate
			out = append(out, &wire.Victim{Gang: of.GetGang(), Attempt: of.GetAttempt()})
		}
		v, p := out[len(out)-1], singles[s.Candidate].Pods[s.Pod]
		v.Pods = append(v.Pods, &wire.SurplusPod{Uid: p.UID, Amounts: wire.FromResources(p.Amounts)})
	}
	return out
}
