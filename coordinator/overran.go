package coordinator

import (
	"cmp"
	"math"
	"strings"
	"time"

	"basalt.dev/basalt/api"
)

// Gangs that run past their limits. How long a gang runs at most, its home says with the first request of an attempt.
// That ends nobody. But from then on a gang is offered before all others of its leaf, and no minimum runtime protects
// it.

// pastLimit is when, in Unix ms, the gang runs past its limit: never, if it has none.
func (r *reservation) pastLimit() int64 {
	switch {
	case r.runs <= 0:
		return math.MaxInt64
	case len(r.awaits) > 0: // it may have started when those had left
		return api.AddSat(r.granted, api.AddSat(r.runs, api.GraceMost.Milliseconds()))
	}
	return api.AddSat(r.granted, r.runs)
}

// overran reports whether the gang runs past its limit.
func (r *reservation) overran(now time.Time) bool { return now.UnixMilli() >= r.pastLimit() }

// protectedUntil is until when, in Unix ms, the gang is not evicted where gangs are to run for as long at least.
func (r *reservation) protectedUntil(least time.Duration) int64 {
	return min(api.AddSat(r.granted, least.Milliseconds()), r.pastLimit())
}

// goesFirst is the order in which gangs of one leaf are taken: those that run past their limits, then the lowest
// priority, and of those the one that was granted last.
func goesFirst(a, b *candidate) int {
	if a.overran != b.overran {
		if a.overran {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(a.priority, b.priority), cmp.Compare(b.granted, a.granted), strings.Compare(a.uid, b.uid))
}
