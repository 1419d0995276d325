package home

import (
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/shard/event"
)

// unplacedAgain is how soon the same is said again.
const unplacedAgain = api.UnplacedFor / 3

// unplaced is what the coordinator was told last of what a gang is charged and has no room for.
type unplaced struct {
	demand  api.Resources
	repairs bool
	at      time.Time
}

// tell takes note of what the coordinator is told, nothing for no demand.
func (u *unplaced) tell(demand api.Resources, repairs bool, now time.Time) {
	if *u = (unplaced{}); !demand.IsZero() {
		*u = unplaced{demand, repairs, now}
	}
}

// tellUnplaced tells the coordinator for what of a reserved gang a search found no room, for nothing after one that
// succeeded; or that it repairs: it keeps so much for pods that replace lost ones.
func (c *common) tellUnplaced(g *gang, demand api.Resources, repairs bool) {
	was := &g.charge.unplaced
	if !g.charge.reserved() || demand.IsZero() && (was.at.IsZero() || was.repairs) { // what it keeps is forgotten soon
		return
	}
	same := repairs == was.repairs && demand.Equal(was.demand)
	if !demand.IsZero() && same && c.now.Before(was.at.Add(unplacedAgain)) {
		return
	}
	was.tell(demand, repairs, c.now)
	c.send(event.ToCoordinator, &wire.Envelope{Body: &wire.Envelope_Unplaced{Unplaced: &wire.Unplaced{
		GangUid: g.id, Attempt: g.charge.attempt, Demand: wire.FromResources(demand), Repairs: repairs}}})
}
