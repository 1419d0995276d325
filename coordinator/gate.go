package coordinator

import (
	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/fault"
)

// tolerated is the part of the pool that is admitted above it: one by this.
const tolerated = 50

// gate says how much is admitted in all.
type gate struct {
	pool     api.Resources // what the nodes have, nil when it is not known
	unplaced account       // of what is charged
	repairs  account       // kept for pods that replace lost ones
	stale    api.Resources // the least of supply.idle
}

// limit returns for how much of a resource gangs are admitted if a tenant asks for more, false for any amount.
func (g *gate) limit(resource string, of *tenant) (int64, bool) {
	pool, offered := g.pool.Get(resource)
	if !offered || fault.On(fault.WithoutSupply) {
		return 0, false
	}
	above := pool / tolerated
	if fault.On(fault.WithoutTolerated) {
		above = 0
	}
	return api.AddSat(pool, max(above, g.idle(resource, of))), true
}

// idle is how much of what is admitted does not count against a tenant.
func (g *gate) idle(resource string, of *tenant) int64 {
	others := g.unplaced.get(resource).plus(g.stale.Value(resource))
	if of != nil {
		others = others.sub(of.unplaced.get(resource))
	}
	return others.amount()
}
