package home

import (
	"basalt.dev/basalt/shard/home/report"
)

// The coordinator admits no more than the nodes have (coordinator/supply.go). What it admits may find no room all the same: no node
// matches, or what is free is in pieces. It hears so, for others are admitted meanwhile.

// blockedForSupply has a gang blocked that is not admitted because the nodes lack room. Once it has waited for a while, node shards are
// asked why none of them takes one of its pods.
func (c *reasons) blockedForSupply(g *gang, a *reserveCall) {
	g.search.explain(nil)
	if explain := a.at.Add(c.cfg.ConditionAfter / 2); c.now.Before(explain) {
		c.wakeAt(g, explain)
	} else if len(a.pods) > 0 {
		c.rules.ask(a.pods[:1])
		c.blockedShort(g, &shortage{pod: a.pods[0].Pod, class: a.pods[0].asked, of: len(a.pods), denied: a.denied})
		return
	}
	g.block(report.Denied(a.denied))
}
