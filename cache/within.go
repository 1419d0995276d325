package cache

import (
	"slices"

	"basalt.dev/basalt/api"
)

// Constraints over sets of nodes are judged by the caller (package topology): which domains are open changes with each pod, so no bit of
// the index says it. A class that has any looks at the nodes that it fits in their order, until the caller allows one.

// Number sets by which number the caller knows a node that is there.
func (c *Cache) Number(nodeName string, number int32) {
	if n := c.nodes[nodeName]; n != nil {
		n.number = number
	}
}

// lookCost is what a node that is looked at for the caller counts as, in bytes of constraints compared.
const lookCost = 16

// Look notes what it costs the caller to look at a node beyond that.
func (c *Cache) Look(cost int64) { c.compared += cost }

// PlaceWithin is Place on the nodes that the caller allows by their numbers, nil for all; and where none of them has
// room, it may count away holds of a worse rank than the given one: victims are the UIDs of the pods whose holds have
// to be released first. It charges and releases nothing.
//
// The node chosen is the one whose best-ranked victim ranks worst, then the one with the fewest victims, then the
// lowest slot. A node out of sync is left alone: holds are no remedy for it. It looks at the nodes with holds, and not
// even at those when no hold ranks worse or no node would take the pod if it were empty.
func (c *Cache) PlaceWithin(class *api.Class, rank api.Rank, allow func(number int32) bool) (nodeName string,
	victims []string, ok bool) {
	return c.placeTaking(class, rank, allow, true)
}

func (c *Cache) placeTaking(class *api.Class, rank api.Rank, allow func(number int32) bool, heed bool) (nodeName string, victims []string, ok bool) {
	if nodeName, ok = c.place(class, allow, heed); ok {
		return nodeName, nil, true
	}
	return c.takeHolds(c.plan(class), rank, allow)
}

// bestWithin is best on the nodes that the caller allows.
func (c *Cache) bestWithin(cl *class, allow func(number int32) bool) (best int32, ok bool) {
	if cl.set.pins != nil {
		for _, s := range c.candidates(cl.set.pins) {
			if what, _ := c.obstacle(cl, s, c.verdict(cl, s)); what == Nothing && (!ok || c.keyOf(s) < c.keyOf(best)) && allow(c.bySlot[s].number) {
				best, ok = s, true
			}
		}
		return best, ok
	}
	return c.firstFitting(cl, func(s int32) bool { return allow(c.bySlot[s].number) })
}

// firstFitting returns the first slot of the order that a class fits, whose set is not pinned, and that is to be taken.
func (c *Cache) firstFitting(cl *class, take func(s int32) bool) (first int32, ok bool) {
	if cl.unreadable != "" || slices.ContainsFunc(cl.requests, func(a request) bool { return a.col < 0 }) {
		return -1, false
	}
	c.refresh()
	if cl.bit < 0 && cl.cost > len(c.slots) {
		c.adopt(cl)
	}
	o := &c.index.order
	mask := c.maskOf(cl)
	if cl.bit >= 0 {
		clear(mask)
		mask[cl.bit/64] = 1 << (cl.bit % 64)
	} else {
		cl.cost += searchCost
	}
	var room [leafSize]uint64
	for p := o.next(0, mask); p >= 0; p = o.next(p+1, mask) {
		keys := room[:0]
		for e := range o.covering(o.list[p], mask) {
			keys = append(keys, o.key(e))
		}
		if len(keys) == 0 { // the summary was not tight
			for w, m := range mask {
				if m != 0 {
					o.tidyAll(o.list[p], w)
					o.correct(w, p)
				}
			}
			continue
		}
		slices.Sort(keys)
		for _, key := range keys {
			s := slotOf(key)
			c.compared += lookCost
			if cl.bit < 0 {
				cl.cost++
				if what, _ := c.obstacle(cl, s, c.verdictOf(cl.set, s)); what != Nothing {
					continue
				}
			}
			if take(s) {
				return s, true
			}
		}
	}
	return -1, false
}

// WhyWithin is Why, with the reasons of the caller for the nodes that take a pod otherwise.
func (c *Cache) WhyWithin(class *api.Class, reason func(number int32) string) Reasons {
	cl := c.plan(class)
	why := c.count(cl, reason)
	why.Never = c.never(cl)
	c.compared += lookCost * int64(len(c.slots))
	return why
}
