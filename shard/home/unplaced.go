package home

import (
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/shard/event"
)

// unplacedAgain is how soon the same is said again.
const unplacedAgain = api.UnplacedFor / 3

// unplaced is what the coordinator was told last of what a gang is charged and does not use.
type unplaced struct {
	why    unused
	demand api.Resources
	at     time.Time
}

// unused is why a gang does not use what it is charged.
type unused uint8

const (
	uses    unused = iota // it does, as far as the coordinator was told
	noRoom                // a search found no room
	repairs               // it is kept for pods that replace lost ones
)

// tellUnplaced tells the coordinator what a reserved gang does not use, nothing of one whose search succeeded.
func (c *common) tellUnplaced(g *gang, why unused, demand api.Resources) {
	if demand.IsZero() {
		why = uses
	}
	was := &g.charge.unplaced
	if !g.charge.reserved() || why == uses && was.why != noRoom { // what it keeps is forgotten soon
		return
	}
	if why != uses && why == was.why && demand.Equal(was.demand) && c.now.Before(was.at.Add(unplacedAgain)) {
		return
	}
	if *was = (unplaced{}); why != uses {
		*was = unplaced{why, demand, c.now}
	}
	c.send(event.ToCoordinator, &wire.Envelope{Body: &wire.Envelope_Unplaced{Unplaced: &wire.Unplaced{
		GangUid: g.id, Attempt: g.charge.attempt, Demand: wire.FromResources(demand), Repairs: why == repairs}}})
}
