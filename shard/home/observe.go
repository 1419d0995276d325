package home

import (
	"time"

	"basalt.dev/basalt/api/v1beta1"
)

// Durations for metrics. The core only collects them; a shell that does not ask costs a few kilobytes.

// observedAtMost bounds what is kept between two calls of Observed; the rest is not observed.
const observedAtMost = 4096

// GangBound says how long a gang took to get its minimum.
type GangBound struct {
	Queue         string
	SinceSeen     time.Duration // since it was first seen, by whichever shard
	SinceComplete time.Duration // since its minimum could be placed
}

// Observed returns the gangs that got their minimum since the last call, and how long each takeover took. The slices are valid until
// the next Step.
func (c *Core) Observed() (bound []GangBound, takeovers []time.Duration) {
	bound, takeovers = c.takeover.bound, c.takeover.takeovers
	c.takeover.bound, c.takeover.takeovers = c.takeover.bound[:0], c.takeover.takeovers[:0]
	return bound, takeovers
}

// observeBound takes note of a gang that has its minimum now. One that was there when its queue was taken over had begun to wait before:
// then its objects' times of creation count, which have seconds only.
func (c *takeover) observeBound(g *gang) {
	if len(c.bound) >= observedAtMost || g.inherited && g.boundSince.IsZero() { // its predecessor had bound it
		return
	}
	seen, complete := g.first, g.complete
	if g.inherited {
		complete = g.since
		if created := g.created(); !created.IsZero() {
			seen = created
		}
	}
	if complete.IsZero() { // it was bound in part when it was taken over, or by somebody else
		complete = seen
	}
	c.bound = append(c.bound, GangBound{Queue: g.queue, SinceSeen: max(0, c.now.Sub(seen)), SinceComplete: max(0, c.now.Sub(complete))})
}

// created returns when the object of a gang was made, the zero time if that is not known.
func (g *gang) created() time.Time {
	if g.group != nil {
		return g.group.Created
	}
	for _, p := range g.members { // a gang of one
		return p.Created
	}
	return time.Time{}
}

func (c *takeover) observeTakeover() {
	if !c.gainingSince.IsZero() && len(c.takeovers) < observedAtMost {
		c.takeovers = append(c.takeovers, c.now.Sub(c.gainingSince))
	}
	c.gainingSince = time.Time{}
}

// waitReason returns why a gang waits, as a code of package v1beta1.
func (g *gang) waitReason() string {
	if w := g.words(); !w.None() {
		return w.Code
	}
	return v1beta1.ReasonWaiting
}
