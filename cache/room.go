package cache

import (
	"math"

	"basalt.dev/basalt/api"
)

// Room counts how many more pods of a class the nodes take now if none of another class comes, and stops at most. It looks
// only at nodes that take one.
func (c *Cache) Room(class *api.Class, most int64) int64 {
	cl := c.plan(class)
	if _, ok := c.best(cl); !ok {
		return 0
	}
	if cl.set.pins != nil {
		room := int64(0)
		for _, s := range c.candidates(cl.set.pins) {
			if what, _ := c.obstacle(cl, s, c.verdict(cl, s)); what == Nothing {
				room += c.times(cl, s)
			}
		}
		return min(room, most)
	}
	o := &c.index.order
	mask := c.index.mask
	if cl.bit >= 0 {
		clear(mask)
		mask[cl.bit/64] = 1 << (cl.bit % 64)
	} else {
		mask = c.maskOf(cl)
	}
	room := int64(0)
	for p := o.next(0, mask); p >= 0 && room < most; p = o.next(p+1, mask) {
		for e := range o.covering(o.list[p], mask) {
			s := slotOf(o.key(e))
			if cl.bit < 0 {
				if what, _ := c.obstacle(cl, s, c.verdictOf(cl.set, s)); what != Nothing {
					continue
				}
			}
			room += c.times(cl, s)
		}
	}
	return min(room, most)
}

// times is how many pods of a class go onto a node that takes one.
func (c *Cache) times(cl *class, s int32) int64 {
	if cl.set.once || cl.avoidsItself() {
		return 1
	}
	n := int64(math.MaxInt32)
	for i := range cl.requests {
		n = min(n, c.freeOf(s)[cl.requests[i].col]/cl.requests[i].amount)
	}
	return n
}
