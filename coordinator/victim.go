package coordinator

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

// claim is a standing one: it is in the record of its gang.
type claim struct {
	gang     *gang
	mandate  uint64
	rule     wire.Rule
	victims  []victim
	promised api.Resources // what the gang will be charged more
	lacked   api.Resources // of what the nodes have, when it was made
	until    time.Time
	judged   uint64 // tree.version when it was judged
}

// victim is a gang that is to go, or some pods of it. Under another attempt it is none.
type victim struct {
	gang    *gang
	attempt uint64
	pods    []surplus // that go alone; none: all of it goes
	told    bool      // its home was asked for them
}

// open reports whether the victim is not closed, or its pods not condemned, yet.
func (v victim) open() bool {
	return v.gang.res != nil && v.gang.res.attempt == v.attempt && !v.gang.res.closing &&
		!v.gang.res.demand.IsZero() && (!v.single() || len(v.rest()) > 0)
}

// closed reports whether it is on its way out.
func (v victim) closed() bool {
	return v.gang.res != nil && v.gang.res.attempt == v.attempt && (v.gang.res.closing || len(v.going()) > 0)
}

// count adds what a claim changes to what queues will have, so many times.
func (x *claim) count(times int64) {
	x.gang.res.queue.move(x.promised, times)
	for _, v := range x.victims {
		if (v.open() || v.closed()) && len(v.gang.res.away) > 0 {
			v.gang.res.queue.move(v.amounts(), -times)
		}
	}
}

// why tells the users of a gang for what it is evicted.
func (x *claim) why(v *gang) string {
	ref, named := x.gang.ref, x.gang.ref.GetNamespace() == v.ref.GetNamespace()
	to := "evicted so that a gang of another namespace can start"
	if named {
		to = fmt.Sprintf("evicted so that gang %s/%s of queue %q can start",
			ref.GetNamespace(), ref.GetName(), x.gang.key.queue)
	}
	switch preempts := x.rule == wire.Rule_RULE_PREEMPT; {
	case preempts && named:
		mine := v.res.rank.Priority
		return fmt.Sprintf("%s, whose priority is %d and that of this gang %d", to, x.gang.res.rank.Priority, mine)
	case preempts:
		return to + ", whose priority in this gang's queue is higher"
	}
	mine, other := apart(x.gang.res.queue, v.res.queue)
	uses := x.gang.res.demand.Add(x.promised) // which counts in what its queue has already
	has := entitlement(!mine.entitled(ask{queue: x.gang.res.queue, has: uses}, false))
	if !named {
		return fmt.Sprintf("%s: another queue takes back what it %s, and queue %q has more", to, has, other.path)
	}
	return fmt.Sprintf("%s: queue %q takes back what it %s, and queue %q has more than it %s",
		to, x.gang.key.queue, has, other.path, has)
}

// claimRecord is what the store keeps of a claim.
func (r *reservation) claimRecord() *wire.ClaimRecord {
	x := r.claim
	if x == nil {
		return nil
	}
	out := &wire.ClaimRecord{Mandate: x.mandate, Rule: x.rule, Promised: wire.FromResources(uncounted(x.promised)),
		Lacked: wire.FromResources(x.lacked), UntilUnixMs: x.until.UnixMilli()}
	for _, v := range x.victims {
		out.Victims = append(out.Victims, &wire.Victim{Gang: &wire.GangRef{Uid: v.gang.key.uid,
			Queue: v.gang.key.queue}, Attempt: v.attempt, Pods: writeSurplus(v.pods)})
	}
	return out
}

// unlawful says why a claim does not stand any more, "" if it does. After it was made, only edits of limits and time
// count: that its victims go is part of it.
func (x *claim) unlawful(now time.Time, t *tree) string {
	if !now.Before(x.until) {
		return "its claim ended, because pods that were evicted for it were not gone in time"
	}
	if x.judged == t.version {
		return ""
	}
	t.recompute()
	x.judged = t.version
	open := false
	var held []holding
	for _, v := range x.victims {
		if v.open() || v.closed() {
			held = append(held, v.holdings(func(string) bool { return true })...) // that it is needed was decided
			open = open || v.open()
		}
	}
	x.count(-1) // as it was before the claim
	a := ask{queue: x.gang.res.queue, tenant: x.gang.res.tenant, demand: x.promised,
		priority: x.gang.res.rank.Priority, lacked: x.lacked}
	a.has = x.gang.res.demand
	lawful := !open
	if lacks := a.lacks(); open && len(lacks) > 0 {
		if x.rule == wire.Rule_RULE_RECLAIM {
			a, lacks = a.after(held, lacks)
		}
		lawful = !slices.ContainsFunc(held, func(h holding) bool { return !a.may(x.rule, h, lacks) }) &&
			(x.rule == wire.Rule_RULE_PREEMPT && a.queue.preempts() && a.borrowsNoMore(held) ||
				x.rule == wire.Rule_RULE_RECLAIM && a.leavesEnough(held, lacks))
	}
	x.count(1)
	if !lawful {
		return "limits of queues were changed"
	}
	for _, at := range x.gang.res.personal {
		for _, d := range x.promised {
			if free, limited := at.account.free(d.Resource); limited && d.Value > 0 && free.amount() < 0 {
				return fmt.Sprintf("limits of users of queue %q were changed", at.queue.path)
			}
		}
	}
	a.queue.move(x.promised, -1)
	full := ask{queue: a.queue, demand: x.promised}.full()
	if a.queue.move(x.promised, 1); full != nil {
		return fmt.Sprintf("limits were changed, and queue %q does not have what it was promised any more", full.path)
	}
	return ""
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

// yieldingTo says for what a gang loses all or some of its pods.
func (x *claim) yieldingTo(v *gang) *wire.Yielding {
	return &wire.Yielding{To: x.gang.ref, Rule: x.rule, Why: x.why(v), UntilUnixMs: x.until.UnixMilli()}
}
