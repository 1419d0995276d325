package home

import (
	"slices"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/shard/home/report"
)

// charge is what is known of a gang's reservation.
type charge struct {
	attempt  uint64 // of the reservation, or of the one being asked for: the serial of its first Reserve; 0 before it
	reserved bool
	revision int64 // of the record: what a Commit names
	amounts  api.Resources
	pods     []uint64 // api.PodID of those that amounts are for, sorted; empty for a gang of one
	stale    bool     // a node shard found another revision: request the current one
	closed   bool     // state closing: nothing of it passes any more

	rank   *wire.Rank // of the first grant, kept over attempts
	forced bool       // inherited as a charge for pods found bound

	started bool // the record says that the gang had its minimum

	inherited bool  // another home asked for it,
	found     int64 // for so many pods, when this one took it over

	reserve *reserveCall
	open    *call // Unreserve or Close
	most    int   // pods that one growth may ask for, 0 for any number
	patient bool  // may keep what it holds

	shrunk   time.Time // when less was requested last
	unplaced unplaced  // what the coordinator was told to have no room

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
	if ch.reserved || ch.reserve == nil || ch.reserve.denied == nil {
		return false
	}
	reason := ch.reserve.denied.GetReason()
	return reason == wire.DenyReason_DENY_CHARGED_ELSEWHERE || reason == wire.DenyReason_DENY_CLOSING
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
	if ch.reserved || a == nil || a.denied == nil || !a.listed || a.local {
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

// names reports whether the reservation is for a pod. Of a gang of one it is for the pod that gave the gang its UID.
func (ch *charge) names(g *gang, p *pod) bool {
	if g.single {
		return p.UID == g.id
	}
	_, found := slices.BinarySearch(ch.pods, p.id)
	return found
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
	denied        *wire.Denied
	listed        bool          // the coordinator of this term has it in its list
	doubted       bool          // it was retransmitted because the coordinator names a reservation of the gang
	fewer         bool          // it was denied, and something smaller takes its place, or nothing
	judged        bool          // when it was made, or since, it was known whether the gang can ever fit
	vain          report.Reason // why it cannot, nothing if it might
	nodes         uint64        // shards.nodes when that was found out
	local         bool          // it is denied without the coordinator: it would be too large for it
}

// covers reports whether the reservation would name all of these pods, if the request were granted.
func (a *reserveCall) covers(g *gang, pods []*pod) bool {
	return g.single || !slices.ContainsFunc(pods, func(p *pod) bool {
		_, found := slices.BinarySearch(a.names, p.id)
		return !found
	})
}

// forNobody reports whether a request names no pod.
func (a *reserveCall) forNobody() bool { return len(a.names) == 0 }
