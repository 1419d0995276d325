package home

import (
	"container/heap"

	"basalt.dev/basalt/api/wire"
)

// Slots bound how many gangs, and how many of their pods, search at once (Config.InFlight, Config.PodsInFlight). Gangs that wait
// for a slot get one in the order of their ranks.

func (g *gang) slot() bool { return g.search.slot }

// readyQueue holds the gangs that wait for a slot.
type readyQueue []*gang

func (r readyQueue) Len() int { return len(r) }
func (r readyQueue) Less(i, j int) bool {
	a, b := wire.ToRank(r[i].charge.rank), wire.ToRank(r[j].charge.rank)
	if d := a.Compare(b); d != 0 {
		return d < 0
	}
	return r[i].id < r[j].id
}
func (r readyQueue) Swap(i, j int) { r[i], r[j] = r[j], r[i] }
func (r *readyQueue) Push(x any)   { *r = append(*r, x.(*gang)) }
func (r *readyQueue) Pop() any {
	old := *r
	x := old[len(old)-1]
	old[len(old)-1] = nil
	*r = old[:len(old)-1]
	return x
}

func (c *Core) takeSlot(g *gang) bool {
	s := &g.search
	if s.slot {
		return true
	}
	if c.inFlight >= c.cfg.InFlight || c.podsInFlight >= c.cfg.PodsInFlight {
		if !s.queued {
			s.queued = true
			heap.Push(&c.ready, g)
		}
		return false
	}
	s.slot, s.pods = true, g.tally.charged
	c.inFlight++
	c.podsInFlight += s.pods
	return true
}

func (c *Core) freeSlot(g *gang) {
	if g.search.slot {
		g.search.slot = false
		c.inFlight--
		c.podsInFlight -= g.search.pods
		c.feed()
	}
}

// feed wakes the best of the gangs that wait for a slot, as many as there are slots.
func (c *Core) feed() {
	gangs, pods := c.inFlight, c.podsInFlight
	for gangs < c.cfg.InFlight && pods < c.cfg.PodsInFlight && len(c.ready) > 0 {
		g := heap.Pop(&c.ready).(*gang)
		g.search.queued = false
		if !c.barred(g) {
			gangs, pods = gangs+1, pods+g.tally.charged
		}
		c.touch(g)
	}
}
