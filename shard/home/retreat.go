package home

import (
	"maps"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

// What was requested from node shards for a gang is withdrawn at every one of them before anything else is decided
// (closing.go): a retreat only notes what for, so that whoever sees that a gang cannot go on may say so, and is not
// called by what follows from it.

// cause is what a gang retreats for. It decides how the gang goes on when nothing but bound pods is left of it.
type cause uint8

const (
	startOver cause = iota // from what is bound
	edited                 // likewise: it is not what its reservation is for any more (pacing.go limits how often)
	giveUp                 // there is no capacity: the reservation is given back, and the gang sleeps
	noVolumes              // its volumes fail: likewise, and no room that is freed wakes it
	rollBack               // it is closed: what is bound is evicted
)

// stays is what becomes of the rooms of a gang that retreats.
type stays uint8

const (
	roomsGo             stays = iota
	roomsStay                 // others left for the gang (R29)
	roomsStayWithAnyone       // likewise, and a shard that has some may be gone: its heirs have them
)

// withdraw is a Withdraw that was sent to several shards.
type withdraw struct {
	why     cause
	serial  uint64 // 0 if nobody was asked for anything
	rooms   stays
	waiting map[api.Incarnation]*call
	again   map[api.Incarnation]*call  // shards with Bindings to resolve, asked once more: BindResults may be lost
	sent    map[string]api.Incarnation // pods whose Bindings were sent, and the shard that will resolve them
	pods    []string                   // whose intents have no known outcome: each shard reports which of them are bound
}

// retreat begins to take back what was requested for a gang from node shards: every shard that was asked has to drop
// it. A gang that starts over, and for which none was asked, awaits nobody.
func (c *Core) retreat(g *gang, why cause) {
	if why == edited {
		g.charge.renounceClaim()
		g.edits.ask()
		why = startOver
	}
	if x := g.claim; x != nil && x.step == proposing && len(x.message.GetVictims()) > 0 {
		g.charge.renounce() // it may be accepted
	}
	g.endClaim()
	keep := why == startOver && g.charge.keepsRooms() && !g.leaving()
	switch {
	case !keep:
	case g.tally.alive > 0 && g.mustBeTogether(): // it searches by Probe, which counts what is kept for it as used
		keep = false
	case g.lostSlices(): // it could not request them again
		keep = false
		g.charge.renounce()
	}
	asked := why != startOver || len(g.search.touched) > 0 || g.outstanding()
	c.become(g, withdrawing)
	c.touch(g)
	if !asked {
		g.withdraw = &withdraw{why: why}
		return
	}
	w := &withdraw{why: why, serial: c.serial(g),
		waiting: map[api.Incarnation]*call{}, again: map[api.Incarnation]*call{}, sent: map[string]api.Incarnation{}}
	all := false // are asked: what a shard that is gone wrote is with its heirs
	for shard := range g.search.touched {
		all = all || !c.isMember(shard)
	}
	unknown := maps.Clone(g.unknown)
	if unknown == nil {
		unknown = map[string]bool{}
	}
	maps.Copy(unknown, g.lost)
	for _, p := range g.members {
		all = all || p.stage == committed && !c.isMember(p.shard)
		if p.stage == committed {
			unknown[p.UID] = true
		} else if p.stage == bound {
			delete(unknown, p.UID)
		}
	}
	w.pods = api.SortedKeys(unknown)
	if c.table != nil {
		for _, m := range c.table.Members {
			if all || g.search.touched[m.Incarnation] {
				w.waiting[m.Incarnation] = &call{}
			}
		}
	}
	switch {
	case keep && all:
		w.rooms = roomsStayWithAnyone
	case keep:
		w.rooms = roomsStay
	}
	g.withdraw = w
	g.search.ends()
	c.searchers.freeSlot(g)
	for _, p := range g.members {
		if p.hasRoom() && !keep {
			p.letGo()
		}
	}
	if !keep {
		g.rooms.end()
	}
}

// touchAll counts every member of the table as asked: another home may have asked any of them.
func (c *common) touchAll(g *gang) {
	for _, m := range c.table.Members {
		g.search.asks(m.Incarnation)
	}
}

// lostSlices reports whether nothing says in which domains the slices of a gang were to be, as at an heir.
func (g *gang) lostSlices() bool {
	_, inner := g.domainKeys()
	return inner != "" && len(g.pick(func(p *pod) bool {
		_, known := g.rooms.slices[p.UID]
		return known || p.hasRoom()
	})) == 0
}

// sendWithdraw has a shard give up what was asked of it for a gang up to a serial, and report which of some pods are
// bound.
func (c *common) sendWithdraw(g *gang, shard api.Incarnation, serial uint64, pods []string) {
	c.send(shard, &wire.Envelope{Body: &wire.Envelope_Withdraw{Withdraw: &wire.Withdraw{
		Gang: g.message(), Serial: serial, TableEpoch: uint64(c.table.Epoch), PodUids: pods}}})
}
