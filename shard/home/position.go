package home

import (
	"slices"

	"basalt.dev/basalt/api"
)

// The place of a gang among those of its queue that wait. Statuses show it of the first shownPositions alone: each gang that is admitted
// moves all that come after it, and to write that down for every one of them would take the whole budget.
const shownPositions = 10

// waits reports whether a gang has its minimum of pods, has not started, and may be admitted without somebody changing an object: only
// others of its queue, quota, or room keep it waiting.
func (c *reports) waits(g *gang) bool {
	return !g.started && g.ownerless.IsZero() && !g.blocked.Hopeless() && g.search.vain.None() && c.obstacle(g).None()
}

// positionOf returns the place of a gang among those of its queue that wait, and how many these are. It is 0 if the gang does not wait.
func (c *reports) positionOf(g *gang) (place, of int) {
	if !c.waits(g) {
		return 0, 0
	}
	place = 1
	for _, other := range c.gangs {
		if other.queue == g.queue && c.waits(other) {
			if of++; inQueue(other, g) < 0 {
				place++
			}
		}
	}
	return place, of
}

// lookAtPositions finds the first gangs of each queue, each explainEvery, and has statuses written of those that moved.
func (c *reports) lookAtPositions() {
	if c.now.Before(c.positionsAt.Add(explainEvery)) {
		return
	}
	c.positionsAt = c.now
	first := map[string][]*gang{} // best first
	for _, g := range c.gangs {
		if g.group == nil || !c.waits(g) {
			continue
		}
		of := first[g.queue]
		at := len(of)
		for at > 0 && inQueue(g, of[at-1]) < 0 {
			at--
		}
		if at == shownPositions {
			continue
		}
		of = slices.Insert(of, at, g)
		first[g.queue] = of[:min(len(of), shownPositions)]
	}
	now := map[*gang]int32{}
	for _, of := range first {
		for i, g := range of {
			now[g] = int32(i + 1)
		}
	}
	for _, g := range c.inPosition {
		if now[g] == 0 && !g.dropped() {
			g.position = 0
			c.touch(g)
		}
	}
	c.inPosition = c.inPosition[:0]
	for _, queue := range api.SortedKeys(first) {
		for _, g := range first[queue] {
			c.inPosition = append(c.inPosition, g)
			if g.position != now[g] {
				g.position = now[g]
				c.touch(g)
			}
		}
	}
}
