package coordinator

import (
	"time"

	"basalt.dev/basalt/api/wire"
)

// Core decides. It is not safe for concurrent use.
type Core struct {
	cfg Config
	out []Output
}

// New makes a core for one term.
func New(cfg Config, e Elected) *Core { return &Core{cfg: cfg} }

// Step takes one event. Time never goes back between two calls.
func (c *Core) Step(now time.Time, ev Event) {}

// Outputs returns what is to be done since the last call, in order. The slice is valid until the next Step.
func (c *Core) Outputs() []Output {
	out := c.out
	c.out = nil
	return out
}

// Status describes the term for operators: queues, reservations, table. It changes nothing.
func (c *Core) Status() *wire.StatusReply { return &wire.StatusReply{} }
