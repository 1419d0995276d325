package coordinator

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/api/wire"
)

// gang is what is known of one gang in one queue.
type gang struct {
	key          gangKey
	ref          *wire.GangRef
	res          *reservation
	offeredTo    *gang     // whose mandate names it among the first (mandate.go)
	serial       uint64    // of the newest message acted on, 0 when none was in this term
	attempt      uint64    // the newest heard of
	asksPatience bool      // to keep what it holds (patience.go)
	inVain       int       // how often it was allowed to, and found no room,
	impatient    time.Time // and until when it is not again
	refused      bool      // the request with this serial was denied and not kept
	own          [1]uint64 // podSet of a gang of one
	req          *request
	batch        uint64 // the last transaction that writes it
	tombstone    uint64 // number of its tombstone, 0 for none

	// mandate.go
	mandate *mandate // the one that is open
	stuck   *stuck
	pause   pause
}

// reservation is a record under reservations/. What decides whether a gang may be evicted comes first, in two cache
// lines: a mandate looks at thousands.
type reservation struct {
	queue       *queue
	demand      api.Resources
	most        api.Resources // that it was charged since it started; nil if that is no more than demand
	attempt     uint64
	revision    int64 // ModRevision; 0 while its transaction is in flight
	granted     int64 // Unix ms of its first charge, 0 before
	runs        int64 // it is past its limit so many ms later; 0: it has none
	closing     bool
	forced      bool
	preemptible bool
	kept        bool      // it says that it may not be evicted
	started     bool      // the gang had its minimum, as its home says
	leaving     bool      // its demand counts as on its way out (claims.go)
	overdue     bool      // what is closed or condemned of it should have left by now, and counts as what it has again
	claim       *claim    // claims.go
	claimedBy   *claim    // of which it is a victim, until it is closed or its pods are condemned
	condemned   []surplus // pods that leave for claims (surplus.go)
	least       int       // it runs, and may lose single pods as long as so many are left; 0: all of them or none
	rank        api.Rank
	tenant      *tenant
	who         *who        // whose gang it is, nil for its namespace's
	personal    []chargedTo // nil where no queue of the path limits its user
	pods        []uint64    // api.PodID of those that demand is for, sorted (roster.go)
	place       int         // in queue.reserved

	// claims.go
	fixed  api.Resources  // what of it counts in queue.fixed (borrow.go)
	awaits []string       // UIDs of gangs whose pods are to leave for it,
	within *wire.Label    // and the topology domain where they do, nil for any
	yields *wire.Yielding // it is closing for a claim, or as it is stale

	// surplus.go
	shrinks  *wire.Yielding // for whom pods are condemned
	asked    []surplus      // pods that a claim takes and that are not condemned yet
	refused  time.Time      // when its home last refused some
	away     api.Resources  // of the demand, what counts as on its way out
	roomless                // supply.go
}

// chargedTo is what a user has in a queue, to which a reservation is charged.
type chargedTo struct {
	queue   *queue
	account *userAccount
}

// becomes changes what a reservation is charged, and remembers the most that it was since its gang started, of as many
// resources as a gang may be charged.
func (r *reservation) becomes(demand api.Resources) {
	if r.started {
		r.most, _ = r.peak().Max(demand).Foremost(api.MaxGangResources, nil)
	}
	if !r.started || r.most.Fits(demand) {
		r.most = nil
	}
	r.demand = demand
}

// peak is the most that the gang was charged since it started.
func (r *reservation) peak() api.Resources { return r.demand.Max(r.most) }

// had reports whether a gang was charged as much before: what it asks for beyond that replaces nothing that it lost.
func (g *gang) had(demand api.Resources) bool { return g.res != nil && demand.Fits(g.res.peak()) }

// ask is what a gang wants, as the rules see it.
func (g *gang) ask() ask {
	if r := g.req; r != nil {
		a := ask{queue: r.queue, tenant: r.tenant, demand: r.delta, priority: r.priority, mends: r.mends}
		if g.res != nil {
			a.has = g.res.demand
		}
		return a
	}
	return ask{queue: g.res.queue, tenant: g.res.tenant, has: g.res.demand, priority: g.res.rank.Priority}
}

// holding is what a gang has, as the rules see it.
func (g *gang) holding() holding {
	return holding{queue: g.res.queue, amounts: g.res.stays(), priority: g.res.rank.Priority}
}

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

// stays is what the gang is charged without what is condemned.
func (r *reservation) stays() api.Resources {
	if len(r.condemned) == 0 {
		return r.demand
	}
	return r.demand.Sub(sumOf(r.condemned)).Positive()
}

// spares says why a gang is nobody's victim now whatever the queues have, "" if it may be one.
func (g *gang) spares(now time.Time, rule wire.Rule) string {
	if g.res == nil {
		return notCharged
	}
	return g.res.spares(now, g.res.queue.minRuntime(rule))
}

// spares is the same with the minRuntime of the reservation's queue.
func (r *reservation) spares(now time.Time, least time.Duration) string {
	switch {
	case r.closing || r.revision == 0 || r.claim != nil || r.demand.IsZero():
		return notCharged
	case r.claimedBy != nil:
		return claimedAlready
	case !r.preemptible || r.forced:
		return notPreemptible
	case now.UnixMilli() < r.protectedUntil(least) && !fault.On(fault.RuntimeForgotten):
		return tooYoung
	}
	return ""
}

// leavesBy is when what claims take of a gang should have left, 0 when that is not known.
func (r *reservation) leavesBy() (unixMs int64) { return cmp.Or(r.yields, r.shrinks).GetUntilUnixMs() }

// yield tells the home of a gang that it is closed, or which of its pods are condemned.
func (g *gang) yield() *wire.Envelope {
	if g.res.yields == nil {
		return g.shrink()
	}
	return &wire.Envelope{Body: &wire.Envelope_Yield{Yield: &wire.Yield{Gang: g.ref, Attempt: g.res.attempt,
		To: g.res.yields}}}
}

// shrink tells the home of a gang which of its pods are condemned.
func (g *gang) shrink() *wire.Envelope {
	m := &wire.Shrink{Gang: g.ref, Attempt: g.res.attempt, To: g.res.shrinks,
		Condemned: writeSurplus(g.res.condemned), ReservationRevision: g.res.revision}
	if m.ReservationRevision == 0 {
		m.ReservationRevision = revisionWritten
	}
	return &wire.Envelope{Body: &wire.Envelope_Shrink{Shrink: m}}
}

// offers is how many a mandate may offer: none for a while after the gang's home refused some.
func (r *reservation) offers(now time.Time) int {
	if now.Before(r.refused.Add(stuckFor)) || fault.On(fault.WithoutSurplus) {
		return 0
	}
	return r.spare()
}

// podSet returns the pods that a request or a record names, sorted. A gang of one has its own pod.
func (g *gang) podSet(named []uint64) ([]uint64, error) {
	if g.ref.GetSingle() {
		if g.own[0] == 0 {
			g.own[0] = api.PodID(g.key.uid)
		}
		return g.own[:], nil
	}
	for i := 1; i < len(named); i++ {
		if named[i-1] >= named[i] {
			return nil, fmt.Errorf("pods: not sorted, or one is named twice")
		}
	}
	return named, nil
}

// hasAll reports whether the gang's reservation names all of these pods: then what is bound of them beyond its demand
// is a growth of pods that were admitted, by a resize in place.
func (g *gang) hasAll(pods []uint64) bool {
	if g.res == nil || len(pods) == 0 {
		return false
	}
	for _, p := range pods {
		if !g.res.named(p) {
			return false
		}
	}
	return true
}

// charged returns the revision and the demand of the gang's record, nothing when there is none in the store.
func (g *gang) charged() (revision int64, demand []*wire.Amount) {
	if g.res == nil || g.res.revision == 0 || g.res.claim != nil && g.res.demand.IsZero() {
		return 0, nil
	}
	return g.res.revision, wire.FromResources(uncounted(g.res.demand))
}
