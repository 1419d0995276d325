package home

import "time"

// open is a request that is retransmitted until it is answered.
type open struct {
	serial uint64
	at     time.Time // when it was first sent
	said   time.Time // when it was last sent
	every  time.Duration
}

// again reports whether a request is to be sent now, for the first time or once more. If not, the gang is looked at when it is.
func (c *Core) again(g *gang, o *open, first, most time.Duration) bool {
	if o.every == 0 {
		o.every = first
	}
	if !o.said.IsZero() && c.now.Before(o.said.Add(o.every)) {
		c.wakeAt(g, o.said.Add(o.every))
		return false
	}
	if o.said.IsZero() {
		o.at = c.now
	} else {
		o.every = min(2*o.every, most)
	}
	o.said = c.now
	c.wakeAt(g, o.said.Add(o.every))
	return true
}

// patiently is again for requests to node shards: one that has much to do answers late.
func (c *Core) patiently(g *gang, o *open) bool {
	return c.again(g, o, c.cfg.AskAgain, 8*c.cfg.AskAgain)
}
