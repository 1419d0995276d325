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

// searchFor returns for how long a gang may keep its reservation while it does not start: as its PodGroup says, or
// usual.
func (g *gang) searchFor(usual time.Duration) time.Duration {
	if g.group != nil && g.group.Timeout > 0 {
		return g.group.Timeout
	}
	return usual
}
