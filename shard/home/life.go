package home

import (
	"math"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/shard/home/report"
)

// The lives of a gang. A PodGroup may outlive its pods: a Job is suspended and resumed, runs each night, or restarts
// after a failure. A life begins when nothing of the gang is bound, all or nothing, and lasts while a pod is bound
// that is not on its way out. What counts towards its minimum are those, and pods that have succeeded, as pods of an
// Indexed Job do one by one. Pods that failed never count, nor do those that succeeded in a life that got as many of
// them as its minimum: that one is over, and who comes later, as for the next night's run, is of another one. Who was
// made before they ended, or by the same controller, is of the same.
//
// Pods of the former life that are on their way out stay charged until they are gone, and hold the nodes that they
// are on. They belong to the new life no more than pods that somebody else bound.
//
// All of this is what the members show, so that an heir comes to the same. Only that a gang has started is
// remembered, for one that lost pods is completed, not undone: in its reservation, and in the status of its PodGroup.
// When a life ends, the status is made to say so before another one is charged; if that cannot be written, it is not
// waited for longer than 10 seconds (report.PodGroup).

// lives reports whether a pod is bound and counts for the present life.
func (g *gang) lives(p *pod) bool {
	return p.goesWith() && (!p.Deleting || g.isPod()) && !p.boundAlone()
}

// place counts a pod towards the minimum.
func (t *tally) place(p *pod) {
	t.placed++
	if p.Role != "" {
		if t.placedAs == nil {
			t.placedAs = map[string]int{}
		}
		t.placedAs[p.Role]++
	}
}

// countSucceeded counts the pods that have succeeded, if they are of the present life.
func (g *gang) countSucceeded(t *tally) {
	if t.succeeded == 0 {
		return
	}
	owners, oldest := map[uint64]bool{}, int64(math.MaxInt64) // of those that have not ended
	for _, p := range g.members {
		if !p.Finished {
			owners[p.Owner] = p.Owner != 0
			oldest = min(oldest, p.Created.Unix())
		}
	}
	for _, p := range g.members {
		if !p.End.Succeeded || p.Node == "" || p.boundAlone() {
			continue
		}
		if t.succeeded < g.minCount() || owners[p.Owner] || p.End.At == 0 || oldest <= p.End.At {
			t.place(p)
		}
	}
}

// finished reports whether the gang's last life got what it needed, and nothing is there for another one.
func (g *gang) finished() bool {
	return !g.isPod() && g.group != nil && g.tally.unfinished == 0 && g.tally.succeeded >= g.minCount()
}

// endWords says how the pods of a gang have ended that has finished.
func (g *gang) endWords() report.Reason {
	at := int64(0)
	for _, p := range g.members {
		at = max(at, p.End.At)
	}
	return report.Finished(g.tally.succeeded, g.tally.failed, at)
}

// life is what is remembered of a gang's present life, and of its attempt to start.
type life struct {
	started bool   // it had its minimum in this life
	repair  repair // of one that has less

	boundSince time.Time // when the first Bind of this attempt went out
	firstBound time.Time // when a pod of it was bound first
	partly     bool      // reported as partly placed

	yielded string // why its gang was evicted for another; until it starts again
}

// starts takes note that the gang has its minimum, and reports whether that is news.
func (l *life) starts() (news bool) {
	news = !l.started
	l.started, l.partly, l.yielded = true, false, ""
	return news
}

// hadMinimum takes note that the gang had its minimum before this shard knew it.
func (l *life) hadMinimum() { l.started = true }

// over ends a life.
func (l *life) over() { *l = life{started: l.started && fault.On(fault.StartKept), yielded: l.yielded} }

// yields takes back that the gang has started, because it is evicted as a whole.
func (l *life) yields(why string) { l.started, l.repair, l.yielded = false, repair{}, why }

// forgetStart takes back that the gang has started.
func (l *life) forgetStart() { l.started = false }

// wasEvicted takes note of why a predecessor of this shard evicted the gang.
func (l *life) wasEvicted(why string) { l.yielded = why }

// bindsFrom takes note that Bindings may be on their way.
func (l *life) bindsFrom(now time.Time) { l.boundSince = now }

// bindsNothing takes note that no Binding is on its way any more, nor anything to be completed.
func (l *life) bindsNothing() { l.boundSince = time.Time{} }

// binds takes note that a pod of it was bound.
func (l *life) binds(now time.Time) {
	if l.firstBound.IsZero() {
		l.firstBound = now
	}
}

// attemptEnds forgets when what was bound: the next attempt to start has time of its own.
func (l *life) attemptEnds() { l.firstBound, l.boundSince = time.Time{}, time.Time{} }

// reportPartly takes note that users were told that the gang is bound in part.
func (l *life) reportPartly() { l.partly = true }

// rollUntil is when a gang of which Bindings were asked for is given up. While no pod of it has a node, nothing is in
// part: the Bindings may only be behind many others, at an API server that is slower than Basalt.
func (c *common) rollUntil(g *gang) time.Time {
	if g.firstBound.IsZero() {
		return g.boundSince.Add(3 * c.cfg.RollForward)
	}
	return api.Later(g.boundSince, g.firstBound).Add(c.cfg.RollForward)
}

// startedBefore takes note that an inherited gang had its minimum, if its reservation says so, also by being for
// less: while a gang is completed it keeps its whole reservation. Its PodGroup, or the status of it that is seen,
// may be older than the list of pods. What this home has given back since says nothing: it may not have known of the
// PodGroup then.
func (g *gang) startedBefore() {
	ch := &g.charge
	fewer := ch.origin == takenOver && !ch.closed && ch.found < int64(g.minCount())
	if g.group != nil && ch.yields == nil && ch.reserved() && g.tally.bound > 0 && (ch.started || fewer) {
		g.hadMinimum()
	}
}

// boundByUs reports whether a pod of the gang's present life was bound by Basalt, for this gang.
func (g *gang) boundByUs() bool {
	for _, p := range g.members {
		if g.lives(p) && (p.burden == byUs && p.Gang == g.id || p.Node == "") {
			return true
		}
	}
	return false
}

// words returns what operators are told about a gang: why it is blocked, or why some of its pods that have a node are
// not charged.
func (g *gang) words() report.Reason {
	switch {
	case g.finished():
		return g.endWords()
	case !g.blocked.None():
		return g.blocked
	}
	return g.uncharged
}
