package home

import (
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/shard/event"
	"basalt.dev/basalt/shard/home/report"
)

// The coordinator admits no more than the nodes have (coordinator/supply.go). What it admits may find no room all the same: no node
// matches, or what is free is in pieces. It hears so, for others are admitted meanwhile.

// unplacedAgain is how soon the same is said again.
const unplacedAgain = 5 * time.Second

// unplaced is what the coordinator was told last of what a gang is charged and has no room for.
type unplaced struct {
	demand api.Resources
	at     time.Time
}

// tellUnplaced tells the coordinator for which pods of a reserved gang a search found no room, none for a search that succeeded.
func (c *Core) tellUnplaced(g *gang, missing []*pod) {
	was := &g.charge.unplaced
	if !g.charge.reserved || len(missing) == 0 && was.at.IsZero() {
		return
	}
	demand := sum(missing)
	if len(missing) > 0 && demand.Equal(was.demand) && c.now.Before(was.at.Add(unplacedAgain)) {
		return
	}
	if *was = (unplaced{}); len(missing) > 0 {
		*was = unplaced{demand, c.now}
	}
	c.send(event.ToCoordinator, &wire.Envelope{Body: &wire.Envelope_Unplaced{Unplaced: &wire.Unplaced{
		GangUid: g.id, Attempt: g.charge.attempt, Demand: wire.FromResources(demand)}}})
}

// blockedForSupply has a gang blocked that is not admitted because the nodes lack room. Once it has waited for a while, node shards are
// asked why none of them takes one of its pods.
func (c *Core) blockedForSupply(g *gang, a *reserveCall) {
	g.unexplain()
	if explain := a.at.Add(c.cfg.ConditionAfter / 2); c.now.Before(explain) {
		c.wakeAt(g, explain)
	} else if len(a.pods) > 0 {
		c.ask(a.pods[:1])
		c.blockedShort(g, &shortage{pod: a.pods[0].Pod, class: a.pods[0].asked, of: len(a.pods), denied: a.denied})
		return
	}
	g.blocked = report.Denied(a.denied)
}
