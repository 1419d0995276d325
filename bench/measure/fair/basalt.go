package fair

import (
	"fmt"
	"slices"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/bench/prove/lab"
	"basalt.dev/basalt/coordinator"
	"basalt.dev/basalt/shard/home/plan"
)

// basalt decides with the coordinator's core, and makes plans with the home's planner. There are no nodes: what a plan needs is quota alone.
type basalt struct {
	hall     *hall
	core     lab.Term
	claims   bool              // gangs may be evicted
	policy   *wire.QueuePolicy // of all queues
	serial   uint64
	edits    int
	mandates []*wire.Mandate // not answered
}

// basaltNever evicts nobody.
func basaltNever(h *hall) scheduler { return newBasalt(h, false, wire.Reclaim_RECLAIM_NEVER) }

// basaltDeserved has queues take back what they deserve.
func basaltDeserved(h *hall) scheduler { return newBasalt(h, true, wire.Reclaim_RECLAIM_DESERVED) }

// basaltFair has queues take back their fair shares.
func basaltFair(h *hall) scheduler { return newBasalt(h, true, wire.Reclaim_RECLAIM_FAIR_SHARE) }

// basaltDeservedAtOnce and basaltFairAtOnce do so without a delay, as the others.
func basaltDeservedAtOnce(h *hall) scheduler {
	return newBasaltOf(h, true, &wire.QueuePolicy{Reclaim: wire.Reclaim_RECLAIM_DESERVED, PreemptionDelayMs: new(int64)})
}

func basaltFairAtOnce(h *hall) scheduler {
	return newBasaltOf(h, true, &wire.QueuePolicy{Reclaim: wire.Reclaim_RECLAIM_FAIR_SHARE, PreemptionDelayMs: new(int64)})
}

func newBasalt(h *hall, claims bool, reclaim wire.Reclaim) *basalt {
	return newBasaltOf(h, claims, &wire.QueuePolicy{Reclaim: reclaim})
}

func newBasaltOf(h *hall, claims bool, policy *wire.QueuePolicy) *basalt {
	b := &basalt{hall: h, claims: claims, policy: policy}
	b.core = lab.NewTerm(coordinator.Config{}, coordinator.Elected{Now: h.start,
		Shards: []*wire.ShardRecord{{Name: "s", Incarnation: "s"}}})
	b.queue(h.root)
	b.step(coordinator.QueuesSynced{})
	return b
}

// queue shows the core a queue and those below it.
func (b *basalt) queue(n *node) {
	b.edit(n)
	for _, c := range n.children {
		b.queue(c)
	}
}

// edit shows the core a queue as it is now.
func (b *basalt) edit(n *node) {
	b.edits++
	ev := coordinator.QueueSeen{Name: n.path, UID: "u-" + n.path, ResourceVersion: fmt.Sprint(b.edits), Generation: int64(b.edits), HasFinalizer: true, Policy: b.policy}
	if n == b.hall.root {
		ev.Capability = b.hall.part([]float64{1, 1, 1})
	} else {
		weight := uint32(n.weight)
		ev.Weight = &weight
		if slices.Max(n.deserved) > 0 {
			ev.Deserved = b.hall.part(n.deserved)
		}
	}
	b.step(ev)
}

func (b *basalt) say(m *wire.Envelope) { b.step(coordinator.Message{From: "s", Body: m}) }

// step gives the core an event, and takes note of what it says.
func (b *basalt) step(ev coordinator.Event) {
	b.core.Step(b.hall.start.Add(b.hall.now), ev, func(o coordinator.Output) {
		send, _ := o.(coordinator.Send)
		switch m := send.Body.GetBody().(type) {
		case *wire.Envelope_Granted:
			b.hall.grant(b.hall.gangs[m.Granted.GetGangUid()])
		case *wire.Envelope_Mandate:
			b.mandates = append(b.mandates, m.Mandate)
		case *wire.Envelope_Yield:
			if g := b.hall.gangs[m.Yield.GetGang().GetUid()]; g != nil && g.tries == m.Yield.GetAttempt() {
				b.hall.evict(g)
			}
		}
	})
}

func (b *basalt) ask(g *gang) {
	b.serial++
	b.say(&wire.Envelope{Body: &wire.Envelope_Reserve{Reserve: &wire.Reserve{Gang: g.ref(), Attempt: g.tries, Serial: b.serial, TableEpoch: 1,
		SinceUnixMs: b.hall.start.Add(g.came).UnixMilli(), Demand: g.amounts(), Preemptible: true, Claims: b.claims}}})
}

func (b *basalt) left(g *gang) {
	b.serial++
	b.say(&wire.Envelope{Body: &wire.Envelope_Unreserve{Unreserve: &wire.Unreserve{Gang: g.ref(), Attempt: g.tries, Serial: b.serial, TableEpoch: 1}}})
}

// tick answers the mandates of the tick before: what a home asks node shards, and they answer, takes about as long.
func (b *basalt) tick() {
	mandates := b.mandates
	b.mandates = nil
	for _, m := range mandates {
		b.claim(m)
	}
	b.step(coordinator.Tick{})
}

// claim answers a mandate as a home does, but that it needs no rooms.
func (b *basalt) claim(m *wire.Mandate) {
	g := b.hall.gangs[m.GetGangUid()]
	if g == nil || g.running {
		return
	}
	of := plan.Mandate{AtLeast: amounts(m.GetAtLeast())}
	for _, l := range m.GetLacks() {
		of.Lacks = append(of.Lacks, plan.Lack{Queue: l.GetQueue(), Resource: l.GetResource(), Short: l.GetShort()})
	}
	for _, s := range m.GetSides() {
		of.Sides = append(of.Sides, plan.Side{Parent: int(s.GetParent()), Above: amounts(s.GetAbove()), Spare: amounts(s.GetSpare()), Borrowed: s.GetBorrowed()})
	}
	for _, c := range m.GetCandidates() {
		of.Candidates = append(of.Candidates, plan.Candidate{Gang: c.GetGang().GetUid(), Queue: c.GetGang().GetQueue(), Demand: amounts(c.GetDemand()), Side: int(c.GetSide())})
	}
	x := &wire.Claim{Gang: g.ref(), Attempt: m.GetAttempt(), Serial: m.GetSerial(), Mandate: m.GetNumber(), Term: m.GetTerm(), TableEpoch: 1, GraceMs: grace.Milliseconds()}
	found, result := plan.Find(nil, nil, &of, 0)
	if x.Why = found.Why; result == plan.Found {
		for _, v := range found.Victims {
			c := m.GetCandidates()[v]
			x.Victims = append(x.Victims, &wire.Victim{Gang: c.GetGang(), Attempt: c.GetAttempt()})
		}
	}
	b.say(&wire.Envelope{Body: &wire.Envelope_Claim{Claim: x}})
}

func amounts(in []*wire.Amount) api.Resources {
	out, err := wire.ToResources(in)
	if err != nil {
		panic(err)
	}
	return out
}
