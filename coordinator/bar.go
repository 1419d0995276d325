package coordinator

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/api/wire"
)

// Bars. From the moment when a gang is entitled to what it lacks, and until it starts or no plan is found, nobody borrows that: what others are
// lent meanwhile would be evicted again.

const barsAtMost = 64 // gangs that keep others from borrowing

const barredAtOnce = 16 // gangs that a transaction looks at, of queues that have less by then

// bar has a gang keep others from borrowing what it lacks, or not any more.
func (c *Core) bar(g *gang, bars bool) {
	at, found := slices.BinarySearchFunc(c.barring, g, compareKeys)
	switch {
	case bars && !found && !fault.On(fault.BandThreePasses):
		ends, is := placeFor(g, c.barring)
		if !is {
			return
		}
		if ends != nil {
			c.bar(ends, false)
			at, _ = slices.BinarySearchFunc(c.barring, g, compareKeys)
		}
		c.barring = slices.Insert(c.barring, at, g)
	case !bars && found:
		c.barring = slices.Delete(c.barring, at, at+1)
		c.freedFor(g)
	}
}

// placeFor reports whether another gang may keep others from borrowing, and who ends it for that where there are
// enough: one of the queue that has the most of them, if that has more than this gang's own queue will have.
func placeFor(g *gang, barring []*gang) (ends *gang, is bool) {
	if len(barring) < barsAtMost {
		return nil, true
	}
	mine, most, last := 1, 0, -1
	for i, n := 0, 0; i < len(barring); i++ {
		q := barring[i].key.queue
		if n++; i > 0 && barring[i-1].key.queue != q {
			n = 1
		}
		if q == g.key.queue {
			mine++
		}
		if n > most {
			most, last = n, i
		}
	}
	return barring[last], most > mine
}

// lower notes that a queue has less than it had: its side may be entitled to more now.
func (c *Core) lower(q *queue) {
	if c.tree.evicts && len(c.lowered) < barredAtOnce && !slices.Contains(c.lowered, q) {
		c.lowered = append(c.lowered, q)
	}
}

// barLowered has gangs of such queues, and of those beside them, keep others from borrowing from this transaction on. The next Tick would be too late:
// what has become free would be lent in the meantime, and evicted again. Not by fair shares, which are made anew at a Tick: by those of before, gangs
// were kept waiting that were entitled, and others evicted later on.
func (c *Core) barLowered(now time.Time) {
	lowered := c.lowered
	c.lowered = c.lowered[:0]
	if len(lowered) == 0 || !c.evicts() {
		return
	}
	var few [4]*gang
	looked := 0
	look := func(q *queue) {
		if looked >= barredAtOnce || q.order.classes == nil || q.order.classes.Len() == 0 || !q.mayClaim() {
			return
		}
		for _, g := range c.firstOf(now, q, len(few), len(few), few[:0]) {
			if looked++; looked > barredAtOnce {
				return
			}
			a := g.ask()
			if rule, mine := a.prospect(a.lacks()); rule == wire.Rule_RULE_RECLAIM && !mine.fair {
				c.bar(g, true)
			}
		}
	}
	for _, q := range lowered {
		look(q)
		side := q.ancestor(min(q.level, 1))
		if side != q {
			side.walkWaiting(look)
		}
	}
	clear(lowered)
}

func compareKeys(a, b *gang) int {
	return cmp.Or(strings.Compare(a.key.queue, b.key.queue), strings.Compare(a.key.uid, b.key.uid))
}

// unbar ends it for those of which f reports that.
func (c *Core) unbar(f func(*gang) bool) {
	c.barring = slices.DeleteFunc(c.barring, func(g *gang) bool {
		if !f(g) {
			return false
		}
		c.freedFor(g)
		return true
	})
}

// freedFor notes that others may be granted what a gang kept from them.
func (c *Core) freedFor(g *gang) {
	if q := c.tree.byPath[g.key.queue]; q != nil {
		for p := q; p != nil; p = p.parent {
			c.turns.freedAt(p)
		}
	}
}

// barred returns by whom a request is kept from borrowing, nil for nobody.
func (c *Core) barred(r *request) *shortfall {
	for _, g := range c.barring {
		if g.req == nil || g.req == r {
			continue
		}
		a := g.ask()
		lacks := a.lacks()
		if len(lacks) == 0 || !a.bars(r.gang.ask(), lacks) {
			continue
		}
		mine, _ := apart(a.queue, r.queue)
		l := lacks[slices.IndexFunc(lacks, func(l lack) bool { return r.delta.Value(l.resource) > 0 })]
		return &shortfall{reason: wire.DenyReason_DENY_PROMISED, queue: mine.parent, resource: l.resource, short: r.delta.Value(l.resource), requested: r.delta.Value(l.resource)}
	}
	return nil
}
