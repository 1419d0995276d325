package node

import (
	"fmt"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/cache"
)

// What is known of pods here, and of what messages name.

// readClasses reads what a home shard says about its pods; only a broken one says what cannot be read.
func readClasses(in []*wire.PodClass) ([]*api.Class, error) {
	out := make([]*api.Class, len(in))
	for i, p := range in {
		class, err := wire.ToClass(p)
		if err != nil {
			return nil, fmt.Errorf("read pod class %d: %w", i, err)
		}
		for _, list := range []api.Resources{class.Requests, class.Attach} {
			for _, a := range list {
				if a.Value < 0 {
					return nil, fmt.Errorf("read pod class %d: %s is negative", i, a.Resource)
				}
			}
		}
		out[i] = class
	}
	return out, nil
}

func (c *Core) isCharged(uid string) bool {
	_, charged := c.cache.Lookup(uid)
	return charged
}

// chargeHold counts a hold that was there before.
func (c *Core) chargeHold(g *gang, uid string, h *hold) {
	class, _ := c.placed(h.kin, h.class, false)
	c.cache.Charge(uid, h.node, class, cache.Hold, g.key, g.rank)
}

// hasEnded: an event that shows the pod once more is late.
func (c *Core) hasEnded(uid string) bool {
	return c.ended[0][uid] || c.ended[1][uid]
}

// leavesSoon reports whether a bound pod is being deleted, and not overdue.
func (c *Core) leavesSoon(uid string) bool {
	overdue, leaving := c.leaving[uid]
	return leaving && c.now.Before(overdue)
}

// leaves notes whether a bound pod is being deleted, and when it is overdue.
func (c *Core) leaves(p *api.Pod) {
	if !p.Deleting {
		delete(c.leaving, p.UID)
	} else if _, known := c.leaving[p.UID]; !known {
		c.leaving[p.UID] = c.now.Add(time.Duration(p.GraceSeconds)*time.Second + api.Overdue)
	}
}
