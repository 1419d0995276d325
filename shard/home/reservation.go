package home

import (
	"fmt"
	"slices"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/shard/home/report"
)

// charge is what is known of a gang's reservation.
type charge struct {
	attempt  uint64 // of the reservation, or of the one being asked for: the serial of its first Reserve; 0 before it
	record   record
	revision int64 // of the record: what a Commit names
	amounts  api.Resources
	pods     []uint64 // api.PodID of those that amounts are for, sorted; empty for a gang of one
	closed   bool     // state closing: nothing of it passes any more

	rank *wire.Rank // of the first grant, kept over attempts

	started bool      // the record says that the gang had its minimum
	ends    time.Time // it is past its limit then; the zero time if it has none

	origin origin
	found  int64 // pods that it was for when this home took it over

	reserve *reserveCall
	open    *call // Unreserve or Close
	most    int   // pods that one growth may ask for, 0 for any number
	patient bool  // may keep what it holds

	shrunk   time.Time // when less was requested last, or it was closed
	unplaced unplaced  // what the coordinator was told that it does not use

	said  uint64 // serial of the last Reserve, which a Stuck names
	stuck call   // of a Stuck

	mandate     uint64 // number of the last mandate, and its term
	mandateTerm int64
	claim       uint64         // the mandate of the claim in the record, 0 for none
	victims     []string       // names of those that it evicts, nil at an heir
	yields      *wire.Yielding // it is closed so that another gang can start
	recalls     bool           // the status of its PodGroup may say that it has started
	awaits      []string       // UIDs of the gangs whose pods leave for it, and of single pods,
	within      *wire.Label    // and the domain where they do, nil for any
	renounced   bool           // the gang has changed: a new attempt drops the claim

	least     int                      // what the record says (surplus.go)
	condemned map[string]api.Resources // pods that the record condemns, and what it is charged for each
	shrinks   *wire.Yielding           // for whom
}

// record is what is known of the record of a reservation.
type record uint8

const (
	noRecord record = iota // there is none
	current
	outdated // a node shard found another revision: the current one is to be requested
)

// origin is where a reservation comes from.
type origin uint8

const (
	requestedHere origin = iota
	takenOver            // another home requested it
	forcedOn             // likewise, as a charge for pods found bound
)

func (ch *charge) reserved() bool { return ch.record != noRecord }
func (ch *charge) current() bool  { return ch.record == current }

// request takes note of a Reserve that replaces the one that is open, if one is.
func (ch *charge) request(a *reserveCall, now time.Time) {
	if ch.attempt == 0 {
		ch.attempt = a.serial
	}
	ch.said, ch.stuck = a.serial, call{}
	if ch.current() && a.demand.Fits(ch.amounts) {
		ch.shrunk = now
	}
	if ch.reserve = a; ch.record == outdated {
		ch.record = current
	}
}

// anew has the next Reserve begin another attempt.
func (ch *charge) anew() { ch.attempt = 0 }

// asksFewer reports whether the open Reserve was denied, and something smaller takes its place, or nothing.
func (ch *charge) asksFewer() bool {
	a := ch.reserve
	return a != nil && a.denied != nil && a.growth && ch.most > 0 && len(a.pods) > ch.most
}

// opens reports whether a Reserve asks that a closed reservation be opened again: it began an attempt since.
func (ch *charge) opens(a *reserveCall) bool { return ch.closed && ch.attempt == a.serial }

// shrinkPause is how long a gang waits between two requests that only give something back: each writes its whole record
// again, which names every pod.
func shrinkPause(pods int) time.Duration {
	const small, large = 100, 10000
	if pods <= small {
		return 0
	}
	return time.Duration((pods+large-1)/large) * time.Second
}

// dropRequest takes note that the gang wants no answer to its Reserve any more.
func (ch *charge) dropRequest() { ch.reserve = nil }

// awaitAnswer takes note of an Unreserve or a Close, which is sent until it is answered. No Reserve is open beside it.
func (ch *charge) awaitAnswer(serial uint64) { ch.reserve, ch.open = nil, &call{serial: serial} }

// grant takes note that a Reserve was granted. A rank counts for the whole attempt, unless no pod was placed with it.
func (ch *charge) grant(now time.Time, a *reserveCall, m *wire.Granted, amounts api.Resources, early bool) {
	if !ch.reserved() && a.runs > 0 {
		ch.ends = now.Add(a.runs)
	}
	ch.reserve, ch.revision = nil, m.GetReservationRevision()
	ch.holds(amounts)
	ch.patient, ch.started, ch.least = m.GetPatient(), a.started, a.least
	ch.closed, ch.yields, ch.recalls = false, nil, false
	ch.most = 0
	if rank := m.GetRank(); rank != nil && (ch.rank == nil || early) {
		ch.rank = rank
	}
}

// ranks gives a gang a rank that was granted none.
func (ch *charge) ranks(priority int64, gang string) {
	if ch.rank == nil {
		ch.rank = &wire.Rank{Priority: priority, GangUid: gang}
	}
}

// loseRank takes the rank from a gang whose life is over: it waits behind those that wait already.
func (ch *charge) loseRank() { ch.rank = nil }

// holds takes note of what the record says to be charged.
func (ch *charge) holds(amounts api.Resources) {
	ch.record, ch.amounts = max(ch.record, current), amounts
}

// listPods takes note of which pods the record names. No other gang is charged for them.
func listPods(g *gang, pods []uint64) {
	g.charge.pods = pods
	for _, p := range g.members {
		if p.others != nil && g.charge.names(g, p) {
			p.others = nil
		}
	}
}

// moved takes note of a revision of the record.
func (ch *charge) moved(revision int64) { ch.revision = revision }

// outdate takes note that the record has another revision than is known.
func (ch *charge) outdate() {
	if ch.record == current {
		ch.record = outdated
	}
}

// shut takes note that nothing of the reservation passes any more.
func (ch *charge) shut(now time.Time) {
	if !ch.closed {
		ch.closed, ch.shrunk = true, now
	}
}

// answered takes note that the Unreserve or Close was answered, or matters no more.
func (ch *charge) answered() { ch.open = nil }

// yield takes note that the reservation is closed because others are to start.
func (ch *charge) yield(now time.Time, to *wire.Yielding, recalls bool) {
	ch.shut(now)
	ch.answered()
	ch.endClaim()
	ch.yields, ch.reserve, ch.recalls = to, nil, recalls
}

// giveBack takes note that the reservation is given back. The rank of its first grant is kept.
func (ch *charge) giveBack() { *ch = charge{rank: ch.rank} }

// leaveQueue forgets what was in a queue that the gang leaves.
func (ch *charge) leaveQueue() { *ch = charge{} }

// inherit takes over a record that another shard had asked for. One that cannot be read is requested anew.
func (ch *charge) inherit(
	now time.Time, r *wire.ReservationRecord, revision int64, amounts api.Resources, legible bool,
) {
	*ch = charge{
		attempt: r.GetAttempt(), record: current, revision: revision, amounts: amounts, rank: r.GetRank(),
		pods: r.GetPods(), origin: takenOver, found: amounts.Value("pods"), started: r.GetStarted(),
		claim: r.GetClaim().GetMandate(), awaits: r.GetAwaits(), within: r.GetWithin(), least: int(r.GetLeast()),
		victims: victimNames(r.GetGang().GetNamespace(), r.GetClaim().GetVictims()),
	}
	if r.GetForced() {
		ch.origin = forcedOn
	}
	if !legible {
		ch.outdate()
	}
	if r.GetState() == wire.ReservationState_RESERVATION_CLOSING {
		ch.shut(now)
	}
	if runs := r.GetRunsMs(); runs > 0 && r.GetGrantedUnixMs() > 0 {
		ch.ends = time.UnixMilli(r.GetGrantedUnixMs()).Add(time.Duration(runs) * time.Millisecond)
	}
	if ch.claimed() && amounts.IsZero() && !ch.closed && legible {
		ch.record = noRecord // the record is no more than its claim
	}
}

// findListed takes note of a record of which only the attempt is known.
func (ch *charge) findListed(attempt uint64) {
	*ch = charge{attempt: attempt, record: outdated, origin: takenOver}
}

// findBack takes note that a reservation which was given back is still there.
func (ch *charge) findBack(attempt uint64) { ch.attempt, ch.record = attempt, outdated }

// tries takes note of an attempt that the coordinator names.
func (ch *charge) tries(attempt uint64) { ch.attempt = max(ch.attempt, attempt) }

// growBy bounds how many pods one growth may ask for.
func (ch *charge) growBy(most int) { ch.most = most }

// say takes note of the serial that a Stuck names where no Reserve was sent.
func (ch *charge) say(serial uint64) { ch.said = serial }

// unstick ends the Stuck that is open.
func (ch *charge) unstick() { ch.stuck = call{} }

// takeMandate takes note of the last mandate.
func (ch *charge) takeMandate(m *wire.Mandate) {
	ch.mandate, ch.mandateTerm = m.GetNumber(), m.GetTerm()
}

// claims takes note that a claim was accepted: whom it evicts, and who leaves for the gang, where.
func (ch *charge) claims(mandate uint64, victims, awaits []string, within *wire.Label) {
	ch.claim, ch.victims, ch.awaits, ch.within = mandate, victims, slices.Clone(awaits), within
}

// dropClaim takes note that the record has no claim any more. Those who leave for the gang are still awaited.
func (ch *charge) dropClaim() { ch.claim, ch.victims = 0, nil }

// spare takes note of gangs that do not leave.
func (ch *charge) spare(gangs []string) {
	spared := api.SetOf(gangs)
	ch.awaits = slices.DeleteFunc(ch.awaits, func(uid string) bool { return spared[uid] })
}

// endClaim takes note that nobody leaves for the gang any more.
func (ch *charge) endClaim() { ch.claim, ch.victims, ch.awaits, ch.within = 0, nil, nil, nil }

// renounce takes note that the gang has changed since it claimed, or may have claimed.
func (ch *charge) renounce() { ch.renounced = true }

// renounceClaim takes note that the gang has changed, if its record names a claim.
func (ch *charge) renounceClaim() { ch.renounced = ch.renounced || ch.claimed() }

func (ch *charge) namesAll(g *gang, pods []*pod) bool {
	return !slices.ContainsFunc(pods, func(p *pod) bool { return !ch.names(g, p) })
}

// namesOthers reports whether the record is charged for these pods alone, and names more: pods that were denied with
// them. Nobody else may be charged for a pod that a record names.
func (ch *charge) namesOthers(pods []*pod) bool {
	return len(ch.pods) > len(pods) && sum(pods).Equal(ch.amounts)
}

// elsewhere reports whether what the gang asks for was denied because its pods are charged to another gang or queue:
// that one's home drives them.
func (ch *charge) elsewhere() bool {
	if ch.reserved() || ch.reserve == nil || ch.reserve.denied == nil {
		return false
	}
	reason := ch.reserve.denied.GetReason()
	return reason == wire.DenyReason_DENY_CHARGED_ELSEWHERE || reason == wire.DenyReason_DENY_CLOSING
}

// othersHave reports whether the last thing that was said of what the gang asks for is that another one is charged for
// pods of it.
func (ch *charge) othersHave() bool {
	return ch.reserve != nil && ch.reserve.denied.GetReason() == wire.DenyReason_DENY_CHARGED_ELSEWHERE
}

// refused reports whether the coordinator has decided that what is bound is not charged to the gang: to another one,
// or to nobody, because its namespace may not use its queue, which anybody can bring about who binds pods himself.
// The coordinator keeps such a request, and charges it when that changes. What a former coordinator said does not
// count.
func (ch *charge) refused() bool {
	if ch.elsewhere() {
		return true
	}
	a := ch.reserve
	if ch.reserved() || a == nil || a.denied == nil || !a.isListed() || a.listing == unsent {
		return false
	}
	switch a.denied.GetReason() {
	case wire.DenyReason_DENY_NOT_ALLOWED, wire.DenyReason_DENY_QUEUE_CLOSED, wire.DenyReason_DENY_TOO_LARGE:
		return true
	}
	return false
}

// claimed reports whether the gang's record names a claim, or gangs that leave for it.
func (ch *charge) claimed() bool { return ch.claim != 0 || len(ch.awaits) > 0 }

// keepsRooms reports whether the gang goes on with the rooms of its claim. One that has renounced it searches as any
// other, if bound pods are charged and there is no new attempt.
func (ch *charge) keepsRooms() bool { return ch.claimed() && !ch.renounced }

// mayClaim reports whether other gangs may be evicted so that this one can start, or so that one that has started gets
// the further pod that it asks for.
func (g *gang) mayClaim() bool {
	if g.group != nil && g.group.Never {
		return false
	}
	if !g.charge.reserve.grows() && (g.started || g.tally.bound > 0 || g.tally.placed > 0) {
		return false
	}
	for _, p := range g.members {
		if p.PreemptionNever && !p.Finished {
			return false
		}
	}
	return true
}

// names reports whether the reservation is for a pod. Of a gang of one it is for the pod that gave the gang its UID.
func (ch *charge) names(g *gang, p *pod) bool {
	if g.isPod() {
		return p.UID == g.id
	}
	_, found := slices.BinarySearch(ch.pods, p.id)
	return found
}

// isElsewhere reports whether another gang is charged for the pod, as far as is known.
func (p *pod) isElsewhere() bool {
	if p.others == nil {
		return false
	}
	ch := &p.gang.charge
	return !ch.reserved() || !ch.names(p.gang, p)
}

// goesWith reports whether a bound pod is evicted with its gang.
func (p *pod) goesWith() bool { return p.isBound() && !p.isElsewhere() }

// whoStays reports whether something of a gang is bound, and none of it can be evicted; if so, one that is.
func whoStays(g *gang, now time.Time) (one *pod) {
	for _, p := range g.members {
		switch {
		case !p.goesWith() || p.absence == lost:
		case !p.stays(now):
			return nil
		case one == nil || comparePods(p, one) < 0:
			one = p
		}
	}
	return one
}

// grows reports whether a Reserve is for one further pod of a gang that has started, and no other.
func (a *reserveCall) grows() bool { return a != nil && a.growth && a.started && len(a.pods) == 1 }

// reserveCall is a Reserve.
type reserveCall struct {
	call
	demand, bound api.Resources
	pods          []*pod   // those it would charge anew
	names         []uint64 // api.PodID of all that demand is for
	priority      int64
	growth        bool // of a gang that is reserved already
	started       bool
	least         int
	runs          time.Duration // so long after it is granted the gang is past its limit; 0 for never
	user, groups  string        // whose gang it is
	order         *int64        // its place by the queue's spec.order, nil for none
	denied        *wire.Denied
	listing       listing
	vain          report.Reason // why the gang can never fit, nothing if it might
	nodes         uint64        // shards.nodes when that was found out, 0 while it is not known
}

// listing is what is known of a Reserve at the coordinator of this term, which has denied it.
type listing uint8

const (
	unlisted    listing = iota // it may not know it
	listed                     // it has it in its list
	doubted                    // it names a reservation of the gang, so the Reserve was retransmitted
	listedAgain                // it has it in its list all the same
	unsent                     // denied without it: the Reserve would be too large
)

// isListed reports whether the Reserve need not be sent soon.
func (a *reserveCall) isListed() bool { return a.listing != unlisted && a.listing != doubted }

// deny takes note of a denial, and reports whether it is the first.
func (a *reserveCall) deny(m *wire.Denied) (first bool) {
	first, a.denied = a.denied == nil, m
	switch a.listing {
	case unlisted:
		a.listing = listed
	case doubted:
		a.listing = listedAgain
	}
	return first
}

// doubt has the Reserve retransmitted because the coordinator names a reservation of the gang, and reports whether that
// is news.
func (a *reserveCall) doubt() (news bool) {
	if news = a.listing == unlisted || a.listing == listed; news {
		a.listing = doubted
		a.again()
	}
	return news
}

// unlist has it retransmitted because the coordinator is another one.
func (a *reserveCall) unlist() {
	switch a.listing {
	case listed:
		a.listing = unlisted
	case listedAgain:
		a.listing = doubted
	}
	a.again()
}

// covers reports whether the reservation would name all of these pods, if the request were granted.
func (a *reserveCall) covers(g *gang, pods []*pod) bool {
	return g.isPod() || !slices.ContainsFunc(pods, func(p *pod) bool {
		_, found := slices.BinarySearch(a.names, p.id)
		return !found
	})
}

// forNobody reports whether a request names no pod.
func (a *reserveCall) forNobody() bool { return len(a.names) == 0 }

// victimNames returns whom users of a namespace are told of. Who may get a gang there may not get those of others:
// they are counted.
func victimNames(namespace string, victims []*wire.Victim) (out []string) {
	others := 0
	for _, v := range victims {
		if v.GetGang().GetNamespace() == namespace {
			out = append(out, victimName(v))
		} else {
			others++
		}
	}
	switch {
	case others == 1:
		out = append(out, "1 gang of another namespace")
	case others > 0:
		out = append(out, fmt.Sprintf("%d gangs of other namespaces", others))
	}
	return out
}

// victimName names a victim for people.
func victimName(v *wire.Victim) string {
	of := v.GetGang()
	name := "gang " + of.GetNamespace() + "/" + api.GroupTitle(api.GroupKind(of.GetKind()), of.GetName())
	switch n := len(v.GetPods()); n {
	case 0:
		return name
	case 1:
		return "1 pod of " + name
	default:
		return fmt.Sprintf("%d pods of %s", n, name)
	}
}

// demand returns what the gang is charged for some of its pods: what they request, and no less than its floor. It
// reports an excess as sumBounded does.
func (g *gang) demand(pods []*pod) (total api.Resources, excess bool) {
	total, excess = sumBounded(pods)
	if total = g.withFloor(total); len(total) > api.MaxGangResources {
		total, _ = total.Foremost(api.MaxGangResources, nil)
		excess = true
	}
	return total, excess
}

// withFloor returns amounts that are no less than the gang's floor.
func (g *gang) withFloor(amounts api.Resources) api.Resources {
	if floor := g.floor(); len(floor) > 0 && !fault.On(fault.FloorLost) {
		return amounts.Max(floor)
	}
	return amounts
}

// floor returns the least that the gang is charged, whatever its pods request: a Volcano PodGroup says so for pods
// that come later, as the executors of a Spark driver do. Once pods are bound, what was granted of it is kept, as
// long as enough of them are not finished, and nothing more of it is requested.
func (g *gang) floor() api.Resources {
	switch t := &g.tally; {
	case g.group == nil || len(g.group.Floor) == 0 || g.leaving():
		return nil
	case !g.started && g.state != binding && g.state != running:
		return g.group.Floor
	case t.unfinished < g.minCount() || t.bound+t.committed == 0:
		return nil
	}
	return g.group.Floor.Min(g.charge.amounts).Positive()
}
