// Package cores is a shard's cores as one: the view of topology domains, the home core and the node core. An event goes
// to each of them in this order, and what the two cores send each other follows, in order, as events of its own. The
// shell, the simulator and the drivers of package lab step shards with it. Package explore does not: it copies each
// core by itself.
//
// It decides nothing. What the cores ask for is its caller's to carry out; so is how long they may talk.
package cores

import (
	"errors"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/shard/event"
	"basalt.dev/basalt/shard/home"
	"basalt.dev/basalt/shard/node"
	"basalt.dev/basalt/shard/topology"
)

// Cores are those of one shard.
type Cores struct {
	self api.Incarnation
	View *topology.View
	Home *home.Core
	Node *node.Core

	waiting []event.Event
	room    [8]event.Event // for waiting, as a rule
}

// New makes the cores of a shard that owns nothing.
func New(self api.Incarnation, h home.Config, n node.Config) *Cores {
	view := topology.New()
	h.Self, n.Self, h.Topology, n.Topology = self, self, view, view
	return &Cores{self: self, View: view, Home: home.New(h), Node: node.New(n)}
}

// Put has events wait behind those that wait already.
func (c *Cores) Put(events ...event.Event) {
	if len(c.waiting) == 0 {
		c.waiting = c.room[:0]
	}
	c.waiting = append(c.waiting, events...)
}

// Waiting returns how many events wait.
func (c *Cores) Waiting() int { return len(c.waiting) }

// Take removes the oldest event that waits, of which there is one.
func (c *Cores) Take() event.Event {
	ev := c.waiting[0]
	c.waiting = c.waiting[1:]
	return ev
}

// Step gives the cores an event. It calls carry with each output, in order, until carry returns false. What they send
// each other waits then, too.
func (c *Cores) Step(now time.Time, ev event.Event, carry func(event.Output) bool) {
	c.View.Step(now, ev)
	c.Home.Step(now, ev)
	if c.each(c.Home.Outputs(), carry) {
		c.Node.Step(now, ev)
		c.each(c.Node.Outputs(), carry)
	}
}

// Check says which invariant of the cores does not hold, for tests and the simulator: it walks everything.
func (c *Cores) Check() error { return errors.Join(c.Home.Check(), c.Node.Check()) }

func (c *Cores) each(all []event.Output, carry func(event.Output) bool) bool {
	for _, o := range all {
		if !carry(o) {
			return false
		}
		if send, is := o.(event.Send); is && send.To == c.self {
			c.Put(event.Message{From: c.self, Body: send.Body})
		}
	}
	return true
}
