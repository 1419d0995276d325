package home

import "time"

// call is a request that is retransmitted until it is answered.
type call struct {
	serial uint64
	at     time.Time // when it was first sent
	sent   time.Time // when it was last sent
	every  time.Duration
}

// again has a request sent at once, as if it had not been sent yet.
func (o *call) again() { o.sent, o.every = time.Time{}, 0 }

// due reports whether a request is to be sent now, for the first time or once more. If not, the gang is looked at when it is.
func (c *common) due(g *gang, o *call, first, most time.Duration) bool {
	if o.every == 0 {
		o.every = first
	}
	if !o.sent.IsZero() && c.now.Before(o.sent.Add(o.every)) {
		c.wakeAt(g, o.sent.Add(o.every))
		return false
	}
	if o.sent.IsZero() {
		o.at = c.now
	} else {
		o.every = min(2*o.every, most)
	}
	o.sent = c.now
	c.wakeAt(g, o.sent.Add(o.every))
	return true
}

// dueAtShard is due for requests to node shards: one that has much to do answers late.
func (c *common) dueAtShard(g *gang, o *call) bool {
	return c.due(g, o, c.cfg.AskAgain, 8*c.cfg.AskAgain)
}
