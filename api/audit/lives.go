package audit

import (
	"cmp"
	"fmt"
	"time"

	"basalt.dev/basalt/api/v1beta1"
)

// The lives of a gang: whether it had started in this one, when its reservation was closed and its pods evicted.

// startsAnew takes note that a gang was evicted: it starts all together or not at all again. Its pods that have
// finished count still.
func (a *Auditor) startsAnew(g *gang) {
	g.again = true
	g.begins()
	for _, p := range a.cluster.members[g.name] {
		if p.counted == g && p.known && p.finished {
			g.ever++
		}
	}
}

// tellStarted takes note of what a PodGroup says of the start of its gang, in a life that has begun.
func (g *gang) tellStarted(now time.Time, started bool) {
	switch {
	case !started || g.stand == 0:
		g.told = time.Time{}
	case g.told.IsZero():
		g.told = now
	}
}

// closesStarted judges whether a reservation is closed of a gang that had started. That shows after it, too, as a
// Binding was on its way: then the gang runs on, and what was evicted before was not wrong.
func (g *gang) closesStarted(now time.Time, c Config, old, r *reservation) {
	switch {
	case !r.closing && r.started:
		g.startedUnder = r.attempt
	case r.closing && old != nil && !old.closing:
		long := !g.told.IsZero() && (c.Exact || now.Sub(g.told) > c.Lag)
		g.startedFirst = r.yields == nil && (long || g.startedUnder == r.attempt)
	}
}

// evictedFor names by which reason a pod was evicted, "" for none of ours.
func evictedFor(reason string) string {
	if reason == v1beta1.ReasonRolledBack || reason == v1beta1.ReasonPreempted {
		return reason
	}
	return ""
}

// endsLife takes note that a gang, or nil, has no pod that stands any more.
func (g *gang) endsLife() {
	if g != nil && g.stand == 0 {
		g.told = time.Time{}
	}
}

// wronglyEvicted says what is wrong with the eviction of a pod, "" for nothing: a gang that had its minimum is evicted
// only for another one.
func (g *gang) wronglyEvicted(pod, reason string) string {
	switch {
	case g != nil && g.everCondemned[pod]:
		return ""
	case g == nil || !g.everClosing:
		return "the reservation of its gang was never closing, and never condemned it"
	case reason == v1beta1.ReasonPreempted && !g.everYielding:
		return "the reservation of its gang was never closing for another gang"
	case reason == v1beta1.ReasonRolledBack && g.startedFirst && !g.everYielding:
		return fmt.Sprintf("its gang (%s) had started and yields to nobody", cmp.Or(g.name, g.uid))
	}
	return ""
}
