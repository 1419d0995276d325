package home

import (
	"slices"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/shard/home/report"
)

// Status describes the gangs that wait, best first and at most 1,000, for operators. It changes nothing.
func (c *Core) Status() *wire.StatusReply {
	out := &wire.StatusReply{Incarnation: string(c.cfg.Self), Role: "shard", GangsTotal: uint32(len(c.gangs)), Term: uint64(max(0, c.term))}
	if c.table != nil {
		out.TableEpoch = uint64(c.table.Epoch)
	}
	for _, active := range c.active {
		if active {
			out.Buckets++
		}
	}
	var waiting []*gang
	for _, g := range c.gangs {
		if g.charge.reserved() {
			out.Reservations++
		}
		if g.placedWell() {
			continue
		}
		waiting = append(waiting, g)
	}
	slices.SortFunc(waiting, compareGangs)
	for _, g := range waiting[:min(len(waiting), 1000)] {
		out.Gangs = append(out.Gangs, &wire.GangStatus{
			Gang: g.message(), State: g.state.String(), Reason: g.words().Code, Message: report.Short(g.words().Message), SinceUnixMs: g.age().UnixMilli(),
			Pods: uint32(g.tally.unfinished), Bound: uint32(g.tally.bound), MinCount: uint32(g.minCount()),
		})
	}
	return out
}

// Counts are numbers for metrics, cheap enough to be asked for each second.
type Counts struct {
	Gangs   int // known
	Waiting int // of them those that Status would name
	Buckets int // owned
	Epoch   api.Epoch

	ByState  map[string]int // gangs, in all states
	ByReason map[string]int // those that wait
	// Oldest is since when the oldest of those that wait for a reason, and have not started, has been complete. One
	// that is not complete does not count.
	Oldest map[string]time.Time
}

// Counts of this moment.
func (c *Core) Counts() Counts {
	n := Counts{Gangs: len(c.gangs), ByState: make(map[string]int, len(follows)), ByReason: map[string]int{},
		Oldest: map[string]time.Time{}}
	if c.table != nil {
		n.Epoch = c.table.Epoch
	}
	for _, active := range c.active {
		if active {
			n.Buckets++
		}
	}
	var states [len(follows)]int
	for _, g := range c.gangs {
		states[g.state]++
		if !g.placedWell() {
			n.Waiting++
			reason := g.waitReason()
			n.ByReason[reason]++
			oldest, known := n.Oldest[reason]
			if !g.charge.started && !g.since.IsZero() && (!known || g.since.Before(oldest)) {
				n.Oldest[reason] = g.since
			}
		}
	}
	for s, gangs := range states {
		n.ByState[state(s).String()] = gangs
	}
	return n
}

// placedWell reports whether nothing of the gang waits for anything: none of its pods does, or it has none any more.
func (g *gang) placedWell() bool {
	switch {
	case g.state == collecting && g.tally.unfinished == 0 && !g.charge.reserved() && !g.leaving():
		return true
	case g.state != running:
		return false
	}
	return g.words().None() || g.finished()
}
