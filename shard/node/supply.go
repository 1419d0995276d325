package node

import (
	"slices"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/shard/event"
)

// What our nodes have for Basalt's pods, as the coordinator hears it, to divide it among queues that nothing else limits. It hears it when
// it changed, and now and then because a message can be lost; at once in its new term and under a new table, where it waits for all.
// During a takeover nothing is said: not all pods are counted.

// maxSupplied is how many different resources are named.
const maxSupplied = 256

// supplied is what the coordinator was told last.
type supplied struct {
	epoch     api.Epoch // 0: nothing, or another term began
	free, own api.Resources
	at        time.Time
}

func (c *Core) supply() {
	if !c.ready || c.takeover.stage != idle {
		return
	}
	was, since := &c.supplied, c.now.Sub(c.supplied.at)
	anew := was.epoch != c.table.Epoch
	if !anew && since < c.cfg.SummaryPace {
		return
	}
	free, own := c.cache.Supply()
	if len(free) > maxSupplied {
		free, _ = free.Foremost(maxSupplied, nil)
		own = only(own, free)
	}
	if !anew && since < c.cfg.SummaryEvery && slices.Equal(free, was.free) && slices.Equal(own, was.own) {
		return
	}
	c.supplied = supplied{c.table.Epoch, free, own, c.now}
	c.emit(event.Send{To: event.ToCoordinator, Body: &wire.Envelope{Body: &wire.Envelope_Supply{Supply: &wire.Supply{
		TableEpoch: uint64(c.table.Epoch), Free: wire.FromResources(free), Own: wire.FromResources(own)}}}})
}
