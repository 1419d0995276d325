package home

import (
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/shard/home/report"
)

// A search for capacity as data (hold.go, round.go, sleep.go).

// search is the state of a gang's search for capacity.
type search struct {
	touched map[api.Incarnation]bool // shards that may have holds or intents of the gang
	slot    *int                     // pods for which it took one of Config.InFlight, nil for none
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
	line     line // in searchers.wakes
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
	distrust distrust  // for the Bindings that it rejected

	tried      time.Time // when more than summaries show was requested last,
	triedNodes uint64    // and shards.nodes then
	short      *shortage // of the last round that failed, nil after a search
}

// enters takes note of what a gang of one pod has asked for quota and room as, the zero kin for nothing.
func (s *search) enters(of kin) { s.entered = of }

// listRuled takes note of whether the gang is in rules.ruledSleepers.
func (s *search) listRuled(in bool) { s.inRuled = in }

// sleeps begins a sleep in place of the one that goes on, if one does; nil ends that.
func (s *search) sleeps(to *sleep) {
	if s.sleep = to; s.line == paid {
		s.line = notInLine
	}
}

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
	s.stop()
	s.mended()
	s.explain(nil)
	s.mayFit()
	s.backoff, s.neverFor, s.gaveUp, s.most, s.refusals, s.overtaken = 0, 0, false, 0, 0, 0
	s.area, s.levels, s.vain, s.aside, s.order, s.orders = nil, nil, report.Reason{}, aside{}, 0, 0
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

// firstOrder begins with the first order again: others have come and gone since.
func (s *search) firstOrder() { s.order, s.orders = 0, 0 }

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

// round is one pass over the node shards. It asks each for what its summary shows, once or until the shard says that
// there is no more. A round that tries asks for more, until the shard refuses some.
type round struct {
	asked    map[api.Incarnation]bool
	done     map[api.Incarnation]bool // and did not say that there is more
	refused  map[api.Incarnation]bool // refused something, or did not answer
	vain     map[gradeKey]bool        // refused some of a class, and is asked for others alone
	trying   bool                     // more than summaries say is asked for,
	more     map[api.Incarnation]int  // so many pods of each class next
	graded   map[gradeKey]int         // how often it was asked for nodes of a grade or above,
	least    uint32                   // this grade; 0 for none
	said     map[gradeKey]uint32      // grades in refusals, of classes with leanings
	last     api.Incarnation          // asked last,
	rest     []*pod                   // for these in further messages, each of which has an answer of its own
	short    bool                     // it has too little as far as we know
	shard    api.Incarnation          // that has not answered, "" for none
	open     call
	body     *wire.HoldRequest
	pods     []*pod            // of body
	fresh    []kind            // those of them that had no hold there
	classes  []*api.Class      // of body
	never    map[gradeKey]bool // not even an empty node there would take a pod of the class
	silent   bool              // one did not answer
	area     *area             // that it is confined to, nil for none
	scatters bool              // it asks each shard for some of the pods first
	pauses   bool              // it ends because others were faster
	gained   bool              // a pod got a hold: the place of others of the gang may depend on it
}

// ask takes note that a shard is asked.
func (r *round) ask(shard api.Incarnation) { r.asked[shard] = true }

// doneWith takes note of whether a shard has no more as far as is known.
func (r *round) doneWith(shard api.Incarnation, done bool) { r.done[shard] = done }

// again has the shards asked once more, because what the gang holds now may let others of its pods in.
func (r *round) again() {
	r.gained, r.trying = false, false
	clear(r.done)
	clear(r.refused)
	clear(r.vain)
	if r.area != nil {
		clear(r.asked)
	}
}
