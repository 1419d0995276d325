package home

import (
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/shard/home/report"
)

// A search for capacity as data (hold.go, round.go, sleep.go).

// search is the state of a gang's search for capacity.
type search struct {
	touched map[api.Incarnation]bool // shards that may have holds or intents of the gang
	slot    bool                     // one of Config.InFlight
	pods    int                      // that it was taken for, counted in searchers.podsInFlight
	queued  bool                     // in searchers.ready

	since    time.Time // when this search began, zero when none goes on
	round    *round
	room     uint64 // shards.room and shards.nodes when the last round began
	nodes    uint64
	backoff  time.Duration
	neverFor time.Duration // backoff of a gang that no node would take
	vain     report.Reason // why no node would take it, as of its last request; nothing if one might
	unfit    *shortage     // of a search which found that out, nil for none
	sleep    *sleep
	inRuled  bool // in rules.ruledSleepers
	entered  kin  // counted in ruledSleepers.entering, zero if it is not
	inLine   bool // in searchers.wakes
	aside    aside
	order    uint32    // in which its pods are tried (round.go)
	orders   int       // tried since it slept last,
	reorder  time.Time // and when further ones are tried
	gaveUp   bool      // further pods found no capacity and are not charged while it sleeps
	mendBy   time.Time

	area   *area   // that the next round is confined to, nil for none
	levels []tried // what was tried of each level of domains
	count  int     // searches that failed

	most   int       // holds that it had at once,
	gained time.Time // and when it had so many for the first time

	overtaken int // rounds in which others took the nodes that a pod would rather have

	refusals int // Commits that were refused for some of their pods, since the gang last started or got a node

	rejected rejection // of a gang that was undone for it

	tried      time.Time // when more than summaries show was requested last,
	triedNodes uint64    // and shards.nodes then
	short      *shortage // of the last round that failed, nil after a search
}

// enters takes note of what a gang of one pod has asked for quota and room as, the zero kin for nothing.
func (s *search) enters(of kin) { s.entered = of }

// listRuled takes note of whether the gang is in rules.ruledSleepers.
func (s *search) listRuled(in bool) { s.inRuled = in }

// hurry ends the pause between two searches.
func (s *search) hurry(now time.Time) { s.sleep.notBefore, s.backoff = now, 0 }

// asks takes note that a shard may have holds or intents of the gang from now on.
func (s *search) asks(shard api.Incarnation) {
	if s.touched == nil {
		s.touched = map[api.Incarnation]bool{}
	}
	s.touched[shard] = true
}

// ends ends the round that goes on, if one does.
func (s *search) ends() { s.round = nil }

// asksNobody takes note that no shard has a hold or an intent of the gang.
func (s *search) asksNobody() { clear(s.touched) }

// forgetShard takes note that a shard which is gone had neither a hold nor an intent of the gang.
func (s *search) forgetShard(shard api.Incarnation) { delete(s.touched, shard) }

// rest forgets the search of a gang that has what it searched for.
func (s *search) rest() {
	s.since, s.backoff, s.neverFor, s.mendBy, s.gaveUp, s.most, s.short, s.area, s.levels, s.refusals, s.overtaken = time.Time{}, 0, 0, time.Time{}, false, 0, nil, nil, nil, 0, 0
	s.vain, s.unfit, s.aside, s.order, s.orders = report.Reason{}, nil, aside{}, 0, 0
}

// begin begins a search, unless one goes on.
func (s *search) begin(now time.Time) {
	if s.since.IsZero() {
		s.since = now
	}
}

// stop ends the search that goes on.
func (s *search) stop() { s.since = time.Time{} }

// succeed ends a search that found enough.
func (s *search) succeed() { s.since, s.backoff, s.levels = time.Time{}, 0, nil }

// beginRound begins a round of the search.
func (s *search) beginRound(r *round) { s.round = r }

// see takes note of what shards had when a round began.
func (s *search) see(room, nodes uint64) { s.room, s.nodes = room, nodes }

// confine confines the next round to an area, nil for none.
func (s *search) confine(to *area) { s.area = to }

// tryLevels begins to try so many levels of domains.
func (s *search) tryLevels(n int) { s.levels = make([]tried, n) }

// tryMore takes note that more is requested than summaries show.
func (s *search) tryMore(now time.Time, nodes uint64) { s.tried, s.triedNodes = now, nodes }

// gain takes note of how many holds the gang has.
func (s *search) gain(holds int, now time.Time) {
	if holds > s.most {
		s.most, s.gained = holds, now
	}
}

// overtake counts a round in which others took the nodes that a pod would rather have.
func (s *search) overtake() { s.overtaken++ }

// refuse counts a Commit that was refused for some pods, and returns how many were in a row.
func (s *search) refuse() int {
	s.refusals++
	return s.refusals
}

// accept takes note that a pod got a node.
func (s *search) accept() { s.refusals = 0 }

// mendUntil takes note of when a gang that lost a hold gives all back, and mended that it lacks none.
func (s *search) mendUntil(at time.Time) { s.mendBy = at }
func (s *search) mended()                { s.mendBy = time.Time{} }

// giveUp takes note of whether further pods found no capacity, and are not charged while the gang sleeps.
func (s *search) giveUp(charged bool) { s.gaveUp = charged }

// fitNowhere takes note of why no node would take the gang, nothing if one might.
func (s *search) fitNowhere(why report.Reason) { s.vain = why }

// unfits takes note that a search found a pod which no node would take.
func (s *search) unfits(x *shortage) { s.unfit = x }

// mayFit takes note that what such a search found does not hold any more.
func (s *search) mayFit() { s.unfit = nil }

// explain takes note of for what the gang lacks room, nil for nothing.
func (s *search) explain(x *shortage) { s.short = x }

// backOff makes the pause after the next search that fails as long.
func (s *search) backOff(pause time.Duration) { s.backoff = pause }

// tryOrder counts an order of the pods that is tried.
func (s *search) tryOrder() { s.orders++ }

// turnOrder goes on to the next order of the pods, and drawOrder to the next that is drawn.
func (s *search) turnOrder() { s.order++ }
func (s *search) drawOrder() { s.order = max(s.order+1, firstDrawn) }

// searchFor returns for how long a gang may keep its reservation while it does not start: as its PodGroup says, or
// usual.
func (g *gang) searchFor(usual time.Duration) time.Duration {
	if g.group != nil && g.group.Timeout > 0 {
		return g.group.Timeout
	}
	return usual
}
