package coordinator

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/wire"
)

// One message lists at most chunk queues or gangs, and at most so many bytes of queues.
const (
	chunk      = 500
	chunkBytes = 1 << 20
)

// One gang that comes or goes changes the fair shares of all queues that compete with its own, so statuses do not
// follow each change. Shares are sent along with other changes of a queue. Where it has wanted something else lately,
// which only its own gangs can do, they are compared with what was sent every wantedEvery, and else every
// sharesEvery. So 1,000 queues that compete add at most 17 writes a second, and queues that have all they want add
// none.
const (
	wantedEvery = 5 * time.Second
	sharesEvery = 12 * wantedEvery
)

// reported is what was said of a queue to its home, and to the Queue's finalizers.
type reported struct {
	reported        bool          // nothing changed since the last report
	said            shares        // in it
	wanted          api.Resources // when shares were last looked at
	version         uint64
	askedAt         int64 // unix ms of the last SetFinalizer, RemoveFinalizer or CreateQueue
	finalizerFailed bool  // its object was to get our finalizer, and did not
}

// reports is when homes are told what, and how often they were.
type reports struct {
	next    time.Time
	wanted  time.Time // when shares are looked at again of queues that want something else,
	shares  time.Time // and of all others
	known   time.Time
	round   round
	version uint64
}

// lookAtShares has queues reported whose status says other shares than they have.
func (r *reports) lookAtShares(now time.Time, t *tree) {
	if now.Before(r.wanted) {
		return
	}
	r.wanted = now.Add(wantedEvery)
	all := !now.Before(r.shares)
	if all {
		r.shares = now.Add(sharesEvery)
	}
	t.updateFair(now)
	t.root.walk(func(q *queue) {
		s := q.shares()
		if (all || !s.wanted.Equal(q.report.wanted)) && !s.equal(q.report.said) {
			q.report.reported = false
		}
		q.report.wanted = s.wanted
	})
}

// report sends each queue that changed to its home.
func (c *Core) report(now time.Time) {
	if now.Before(c.reports.next) || c.owners.Table() == nil {
		return
	}
	c.reports.next = now.Add(c.cfg.ReportEvery)
	c.tree.recompute()
	c.reports.lookAtShares(now, c.tree)
	usages := map[string][]*wire.QueueUsage{}
	c.tree.root.walk(func(q *queue) {
		if q.report.reported || q.object == nil || q.limits == nil && q.object.Invalid == "" && !q.unprotected() {
			return
		}
		home := c.owners.Table().OwnerOf(q.path)
		if home == "" {
			return
		}
		q.report.reported = true
		c.reports.version++
		q.report.version = c.reports.version
		q.report.said = q.shares()
		usages[string(home)] = append(usages[string(home)], c.usage(q))
	})
	for _, home := range api.SortedKeys(usages) {
		for part, rest := cut(usages[home]); len(part) > 0; part, rest = cut(rest) {
			c.send(api.Incarnation(home), &wire.Envelope{Body: &wire.Envelope_QueueUsages{
				QueueUsages: &wire.QueueUsages{Term: uint64(c.term), Queues: part}}})
		}
	}
}

// cut takes off the first of some queues what one message lists.
func cut(usages []*wire.QueueUsage) (part, rest []*wire.QueueUsage) {
	size := 0
	for i, u := range usages {
		if size += proto.Size(u) + 8; i > 0 && (i == chunk || size > chunkBytes) {
			return usages[:i:i], usages[i:]
		}
	}
	return usages, nil
}

// usage describes a queue. It names at most api.MaxResources resources in each list, first those that are limited
// here, for a status has room for no more; the message says how many are left out.
func (c *Core) usage(q *queue) *wire.QueueUsage {
	var limited api.Resources
	if q.limits != nil {
		limited = q.limits.capability.Max(q.limits.guarantee).Max(q.limits.deserved)
	}
	charged, unnamed := q.charged.amounts().Foremost(api.MaxResources, limited)
	guarantee, _ := q.guarantee.Positive().Foremost(api.MaxResources, limited)
	deserved, _ := q.deserved.Foremost(api.MaxResources, limited)
	shares := q.shares()
	wanted, _ := shares.wanted.Foremost(api.MaxResources, limited)
	fair, _ := shares.fair.Foremost(api.MaxResources, limited)
	claiming, promised := c.claimsUnder(q)
	// What a queue will have more (moves) is what is promised to it, less what is on its way out.
	yielding, _ := promised.Sub(q.moves.amounts()).Positive().Foremost(api.MaxResources, limited)
	promised, _ = promised.Foremost(api.MaxResources, limited)
	u := &wire.QueueUsage{
		Queue: q.path, Charged: wire.FromResources(charged), Guarantee: wire.FromResources(guarantee), Deserved: wire.FromResources(deserved),
		Admitted: int32(q.members.admitted - claiming), Waiting: int32(q.members.waiting), Version: q.report.version,
		Wanted: wire.FromResources(wanted), FairShare: wire.FromResources(fair), WeightedShare: shares.weighted,
		Promised: wire.FromResources(promised), Yielding: wire.FromResources(yielding),
	}
	if q.limits != nil {
		r := q.limits.record
		u.Uid, u.Generation, u.Capability = r.GetUid(), r.GetGeneration(), r.GetCapability()
	}
	if o := q.object; o != nil {
		u.Uid = o.UID
		if o.Invalid != "" || q.unprotected() {
			u.Generation = o.Generation // what the message is about
		}
	}
	u.ReadyReason, u.Message = c.ready(q)
	if unnamed > 0 {
		u.Message = fmt.Sprintf("%s; %d more charged resources are not among the %d listed", u.Message, unnamed, len(charged))
	}
	return u
}

// claimsUnder counts the reservations under a queue that charge nothing yet, and adds up what is promised there.
func (c *Core) claimsUnder(q *queue) (chargeNothing int, promised api.Resources) {
	for _, x := range c.claims {
		g := x.gang
		if g.res == nil || g.res.claim != x || !api.Under(g.key.queue, q.path) {
			continue
		}
		promised = promised.Add(x.promised)
		if g.res.demand.IsZero() {
			chargeNothing++
		}
	}
	return chargeNothing, promised
}

// ready is the Ready condition of a queue.
func (c *Core) ready(q *queue) (reason, message string) {
	if o := q.object; o != nil && o.Deleting {
		return v1beta1.ReasonDeleting, fmt.Sprintf("being deleted; %d gangs are still charged", q.members.admitted)
	}
	if o := q.object; o != nil && o.Invalid != "" {
		if q.limits == nil {
			return v1beta1.ReasonInvalid, o.Invalid + "; nothing is admitted"
		}
		return v1beta1.ReasonInvalid, fmt.Sprintf("%s; the limits of generation %d remain in force", o.Invalid, q.limits.record.GetGeneration())
	}
	if q.unprotected() {
		return v1beta1.ReasonUnprotected, fmt.Sprintf("queue %q %s; see the coordinator's log", q.path, noFinalizer)
	}
	if closed := q.closedReason(); closed != "" {
		return v1beta1.ReasonClosed, fmt.Sprintf("queue %q %s", q.path, closed)
	}
	for p := q.parent; p != nil; p = p.parent {
		if !c.tree.exists(p) && p.parent != nil && c.tree.synced {
			return v1beta1.ReasonParentMissing, fmt.Sprintf("queue %q does not exist: limits are in force, nothing is admitted", p.path)
		}
		if closed := p.closedReason(); closed != "" {
			return v1beta1.ReasonParentClosed, fmt.Sprintf("queue %q %s", p.path, closed)
		}
	}
	own := api.Resources(nil)
	if q.limits != nil {
		own = q.limits.guarantee
	}
	if r := q.cut; r != "" {
		return v1beta1.ReasonGuaranteeCut, fmt.Sprintf("guarantee of %s: only %s of %s is in force, "+
			"because a queue on the path is not guaranteed so much, or may not have it",
			r, api.FormatAmount(r, q.guarantee.Value(r)), api.FormatAmount(r, own.Value(r)))
	}
	if r := q.unbacked; r != "" {
		return v1beta1.ReasonGuaranteeCut, fmt.Sprintf("guarantee of %s has no effect: no ancestor limits %s", r, r)
	}
	if r := q.lessened; r != "" {
		return v1beta1.ReasonReady, fmt.Sprintf(v1beta1.MessageReady+"%s; deserved of %s: only %s of %s is in force, "+
			"because its siblings and it deserve more together than queue %q deserves or has",
			q.who(), r, api.FormatAmount(r, q.deserved.Value(r)), api.FormatAmount(r, q.limits.deserved.Value(r)), q.parent.path)
	}
	return v1beta1.ReasonReady, v1beta1.MessageReady + q.who()
}

// known tells each home the gangs of its buckets that have a reservation, so that it closes those it does not know:
// some of them in a step, so that no step takes longer however many there are. A round begins every KnownEvery, or as
// soon as the last one is over.
func (c *Core) known(now time.Time) {
	if c.owners.Table() == nil {
		return
	}
	if r := &c.reports.round; r.over() && !now.Before(c.reports.known) {
		c.reports.known = now.Add(c.cfg.KnownEvery)
		r.left = -1
		c.tree.root.walk(func(q *queue) {
			if len(q.members.reserved) > 0 {
				r.queues = append(r.queues, q)
			}
		})
	}
	gangs := map[string][]*gang{}
	for range toldInStep {
		g := c.reports.round.next()
		if g == nil {
			break
		}
		home := string(c.owners.Table().OwnerOf(g.key.queue))
		if home == "" || g.res.revision == 0 || g.res.claim != nil && g.res.demand.IsZero() {
			continue // its home has not heard of it yet, or charges nothing
		}
		gangs[home] = append(gangs[home], g)
	}
	for _, home := range api.SortedKeys(gangs) {
		list := gangs[home]
		slices.SortFunc(list, func(a, b *gang) int {
			return cmp.Or(cmp.Compare(a.key.queue, b.key.queue), cmp.Compare(a.key.uid, b.key.uid))
		})
		for part := range slices.Chunk(list, chunk) {
			k := &wire.Known{}
			for _, g := range part {
				k.Gangs = append(k.Gangs, g.ref)
				k.Attempts = append(k.Attempts, g.res.attempt)
			}
			c.send(api.Incarnation(home), &wire.Envelope{Body: &wire.Envelope_Known{Known: k}})
		}
	}
}

// toldInStep is how many reservations one step tells their homes of. Each takes 1 to 3 us.
const toldInStep = 1000

// round goes over all reservations. One that is there from the beginning of a round to its end is told in it, one that
// moves perhaps twice.
type round struct {
	queues []*queue // those that are left, the first one first
	left   int      // reservations of the first one that are left; -1: all
}

func (r *round) over() bool { return len(r.queues) == 0 }

// next returns the next gang, nil when the round is over. It goes over a queue from the end: what takes the place of
// one that is gone comes from there.
func (r *round) next() *gang {
	for len(r.queues) > 0 {
		all := r.queues[0].members.reserved
		if r.left < 0 || r.left > len(all) {
			r.left = len(all)
		}
		if r.left > 0 {
			r.left--
			return all[r.left]
		}
		r.queues, r.left = r.queues[1:], -1
	}
	return nil
}
