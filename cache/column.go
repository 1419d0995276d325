package cache

import (
	"math"
	"math/bits"
	"strings"

	v1 "k8s.io/api/core/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/fault"
)

// column is one resource of all slots. What no node offers has no column: a pod can ask for any name, and memory must
// not follow the names that pods make up.
type column struct {
	name   string
	i      int // where it is in the row of a slot
	kind   colKind
	driver string // CSI driver whose volumes these are, "" for a resource: a node has any number of what it does not name
	offers int    // nodes that name it, also with zero of it

	sumAlloc wide
	sumFree  wide // of the positive ones
	largest  int64
	stale    bool // largest may be too large
}

// colKind is what a column counts.
type colKind uint8

const (
	ofResource colKind = iota
	ofDevices          // an extended resource
	ofPods             // their number says nothing about how full a node is
	ofVolumes          // of a CSI driver
)

func kindOf(name string) colKind {
	switch {
	case api.VolumeDriver(name) != "":
		return ofVolumes
	case name == string(v1.ResourcePods):
		return ofPods
	case isDevice(name):
		return ofDevices
	}
	return ofResource
}

// freeOf is what is free of a slot, by column. It lies together: a change looks at all of it.
func (c *Cache) freeOf(s int32) []int64 { return c.frees[int(s)*c.width : (int(s)+1)*c.width] }

// hasOf is what a slot has, by column.
func (c *Cache) hasOf(s int32) []uint64 { return c.shapes.at(c.slots[s].shape) }

// A node that does not limit the volumes of a driver can have so many.
const unlimited = 1 << 40

// isDevice reports whether a resource is an extended one, by the rule of Kubernetes.
func isDevice(name string) bool {
	return api.VolumeDriver(name) == "" && strings.Contains(name, "/") && !strings.Contains(name, "kubernetes.io/")
}

// wide sums amounts that are not negative without losing any.
type wide struct{ hi, lo uint64 }

func (w *wide) add(v int64) {
	var carry uint64
	w.lo, carry = bits.Add64(w.lo, uint64(v), 0)
	w.hi += carry
}

func (w *wide) sub(v int64) {
	var borrow uint64
	w.lo, borrow = bits.Sub64(w.lo, uint64(v), 0)
	w.hi -= borrow
}

func (w wide) saturated() int64 {
	if w.hi != 0 || w.lo > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(w.lo)
}

// lacks reports whether a slot that has free so much of a resource is out of sync. One with fewer devices than are in
// use is not: when one of eight fails, pods that ask for none run as before, the device plugin among them, and whoever
// may create pods may name a node and a device that it does not have. Nor is one with more volumes than its driver's
// limit. Pods that ask for what is short find none of it free.
func (col *column) lacks(free int64) bool {
	return free < 0 && col.kind != ofDevices && col.kind != ofVolumes
}

// of is how much of the column a node has, and how much of it is in use that no charge counts.
func (col *column) of(n *api.Node) (has, used int64) {
	switch {
	case n == nil:
		return 0, 0
	case col.driver == "":
		return max(n.Allocatable.Value(col.name), 0), 0
	}
	for _, a := range n.Attachable {
		if a.Driver == col.driver {
			return a.Limit, a.Used
		}
	}
	return unlimited, 0
}

// setFree writes what is free of one resource of a slot, and everything that is summed from it.
func (c *Cache) setFree(col *column, s int32, v int64) {
	free := &c.frees[int(s)*c.width+col.i]
	old := *free
	if old == v {
		return
	}
	if v < 0 && fault.On(fault.PanicBelowZero) {
		panic("cache: " + col.name + " below zero")
	}
	*free = v
	col.sumFree.add(max(v, 0))
	col.sumFree.sub(max(old, 0))
	if was, is := col.lacks(old), col.lacks(v); was && !is {
		c.addBroken(s, -1)
	} else if is && !was {
		c.addBroken(s, 1)
	}
}

// setShape writes what a slot has whose node is changed, nil for none, keeps what charges use, and reports whether there is more of anything.
func (c *Cache) setShape(s int32, was, node *api.Node) (grew bool) {
	clear(c.shape)
	for _, col := range c.columns {
		if col == nil {
			continue
		}
		old := int64(c.hasOf(s)[col.i])
		v, used := col.of(node)
		_, before := col.of(was)
		c.shape[col.i] = uint64(v)
		attached := used - before
		if v == old && attached == 0 {
			continue
		}
		grew = grew || v-attached > old
		col.sumAlloc.add(v)
		col.sumAlloc.sub(old)
		if v >= col.largest {
			col.largest, col.stale = v, false
		} else if old == col.largest {
			col.stale = true
		}
		c.setFree(col, s, v-(old-c.freeOf(s)[col.i])-attached)
	}
	c.slots[s].shape = c.shapes.swap(c.slots[s].shape, c.shape)
	return grew
}

// addBroken counts what is wrong with a slot: columns that it lacks, and requests for what no node offers, other than devices.
func (c *Cache) addBroken(s int32, by int32) {
	broken := &c.slots[s].broken
	old := *broken
	*broken += by
	if old == 0 && *broken != 0 {
		c.outOfSync++
		c.syncVersion++
	} else if old != 0 && *broken == 0 {
		c.outOfSync--
		c.syncVersion++
	}
}

// most is what the node with most of it has.
func (c *Cache) most(col *column) int64 {
	if col.stale {
		col.largest, col.stale = 0, false
		for s := range c.slots {
			col.largest = max(col.largest, int64(c.hasOf(int32(s))[col.i]))
		}
	}
	return col.largest
}

// columnOf returns the column of a resource, and makes it when there is none.
func (c *Cache) columnOf(name string) *column {
	if i, ok := c.byName[name]; ok {
		return c.columns[i]
	}
	i := len(c.columns)
	for j, col := range c.columns {
		if col == nil {
			i = j
			break
		}
	}
	col := &column{name: name, i: i, kind: kindOf(name), driver: api.VolumeDriver(name)}
	if i == len(c.columns) {
		c.columns = append(c.columns, col)
		c.widen()
	} else {
		c.columns[i] = col
	}
	c.byName[name] = i
	if col.driver != "" {
		col.offers = 1 // by all nodes: it is kept
		for s := range c.slots {
			if c.slots[s].there {
				c.setShape(int32(s), c.bySlot[s].object, c.bySlot[s].object)
			}
		}
	} else {
		c.dead++ // until a node is counted
	}
	if c.retarget(name, -1, i) {
		c.eachCharge(name, func(s int32, amount int64) {
			c.setFree(col, s, -api.AddSat(-c.freeOf(s)[col.i], amount))
			if col.kind != ofDevices {
				c.addBroken(s, -1)
			}
		})
	}
	return col
}

// widen makes room for another column in the rows of all slots. What is free of a slot is some whole cache lines.
func (c *Cache) widen() {
	if len(c.columns) <= c.width {
		return
	}
	frees, shapes, width := c.frees, c.shapes, c.width
	c.width += 8
	c.frees = large(make([]int64, c.width*len(c.slots), c.width*cap(c.slots)))
	c.shape = make([]uint64, c.width)
	c.shapes.reset(c.width)
	for s := range c.slots {
		copy(c.frees[s*c.width:], frees[s*width:(s+1)*width])
		copy(c.shape, shapes.at(c.slots[s].shape))
		c.slots[s].shape = c.shapes.swap(0, c.shape)
	}
}

// dropDead forgets the columns that no node names any more, when there are many.
func (c *Cache) dropDead() {
	if c.dead <= c.limits.dead {
		return
	}
	for i, col := range c.columns {
		if col == nil || col.offers > 0 {
			continue
		}
		if c.retarget(col.name, i, -1) && col.kind != ofDevices {
			c.eachCharge(col.name, func(s int32, _ int64) { c.addBroken(s, 1) })
		}
		for s := range c.slots {
			c.setFree(col, int32(s), 0)
		}
		delete(c.byName, col.name)
		c.columns[i] = nil
	}
	c.dead = 0
}

// retarget points the requests of all classes for a resource to another column, and reports whether a charged class was
// among them, so that charges have to be counted elsewhere now.
func (c *Cache) retarget(name string, from, to int) (charged bool) {
	c.last, c.index.stale = nil, true
	for _, cl := range c.classes { // in any order: each by itself
		for i := range cl.requests {
			if cl.requests[i].name == name && cl.requests[i].col == from {
				cl.requests[i].col = to
				if cl.refs > 0 {
					charged = true
				}
			}
		}
	}
	return charged
}

// eachCharge walks over the charged amounts of one resource on nodes that are there.
func (c *Cache) eachCharge(name string, f func(s int32, amount int64)) {
	for s := range c.slots {
		if !c.slots[s].there {
			continue
		}
		for ch := range c.charges(c.bySlot[s]) {
			for _, a := range c.classOf(ch).requests {
				if a.name == name {
					f(int32(s), a.amount)
				}
			}
		}
	}
}
