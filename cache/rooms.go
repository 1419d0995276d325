package cache

import (
	"cmp"
	"math"
	"slices"

	"basalt.dev/basalt/api"
)

// What nodes would have without some of their pods: for gangs that others make room for. Which pods those are is up to the caller. A pod
// that leaves frees its requests, its host ports, and the groups that it belongs to or avoids.

// FitsWithout reports whether a pod of a class fits a node once the pods named are gone, and with less free than there is. Names that have
// no charge on the node are ignored.
func (c *Cache) FitsWithout(class *api.Class, nodeName string, gone []string, less api.Resources) bool {
	n := c.nodes[nodeName]
	if n == nil || n.object == nil || c.slots[n.slot].broken != 0 {
		return false
	}
	cl := c.find(class)
	if c.verdict(cl, n.slot) != admitted || !c.fitsEmpty(cl, n.slot) {
		return false
	}
	numbers := make([]uint32, 0, len(gone))
	for _, uid := range gone {
		if number, ok := c.pods.get(uid); ok && c.pods.at(number).slot == n.slot {
			numbers = append(numbers, number)
		}
	}
	return c.fitsBeside(cl, n, numbers, less)
}

// Free returns how much of a resource is free on a node that is there, and less than zero if it lacks some.
func (c *Cache) Free(nodeName, resource string) int64 {
	n, i := c.nodes[nodeName], -1
	if j, ok := c.byName[resource]; ok {
		i = j
	}
	if n == nil || n.object == nil || i < 0 {
		return 0
	}
	return c.freeOf(n.slot)[i]
}

// Watch has Freed name a node, or no more.
func (c *Cache) Watch(nodeName string, on bool) {
	if !on {
		delete(c.watched, nodeName)
		return
	}
	if c.watched == nil {
		c.watched = map[string]bool{}
	}
	if _, is := c.watched[nodeName]; !is {
		c.watched[nodeName] = false
	}
}

// freed notes that a charge of a slot is gone, or that its node changed.
func (c *Cache) freed(s int32) {
	if len(c.watched) == 0 {
		return
	}
	name := c.names[s]
	if noted, is := c.watched[name]; is && !noted {
		c.watched[name] = true
		c.freedNodes = append(c.freedNodes, name)
	}
}

// Freed returns the names of the watched nodes that lost a charge or changed since it was called last, sorted.
func (c *Cache) Freed() []string {
	if len(c.freedNodes) == 0 {
		return nil
	}
	out := c.freedNodes
	c.freedNodes = nil
	slices.Sort(out)
	out = slices.Compact(out) // one that was watched anew
	for _, name := range out {
		if c.watched[name] {
			c.watched[name] = false
		}
	}
	return out
}

// NodePods are some of the pods of a node.
type NodePods struct {
	Node string
	UIDs []string // sorted
}

// PodsBy returns the charged pods that the caller picks, by node in the order of slots. Nodes that are not there, or out of sync, are left out.
func (c *Cache) PodsBy(pick func(kind Kind, uid, gang string) bool) []NodePods {
	var out []NodePods
	for s, n := range c.bySlot {
		if at := &c.slots[s]; !at.there || at.broken != 0 {
			continue
		}
		var uids []string
		for ch := range c.charges(n) {
			if of := c.pods.detail(ch); pick(c.pods.at(ch).kind, of.uid, of.gang) {
				uids = append(uids, of.uid)
			}
		}
		if len(uids) > 0 {
			slices.Sort(uids)
			out = append(out, NodePods{n.name, uids})
		}
	}
	return out
}

// Whose says what becomes of a charge in Rooms: a number from 1 on is that of a leaver.
type Whose int32

const (
	Stays Whose = -1
	Own   Whose = 0 // counts as free
)

// NodeRoom is the room of a node, in amounts of the resources that Rooms was asked for.
type NodeRoom struct {
	Node    string
	Free    []int64
	Classes []uint32 // of which a pod fits once all that leaves is gone
	Leaves  []Leaver // in order of their numbers
	Pods    int64    // that fit then, of the class of which most do
}

// Leaver is what one who leaves has on a node.
type Leaver struct {
	Number  Whose
	Pods    uint32
	Amounts []int64
	Bars    []uint32 // classes: no pod of them fits while its pods are there, whatever room there is
}

// Allow reports whether the caller allows a node, by its number, once some pods are gone; nil allows all.
type Allow func(number int32, gone []string) bool

// Rooms returns what room nodes have for pods of some classes, now and once pods leave: for each node on which a pod of
// some class fits once all that leaves is gone. The resources are all that the classes request. Of more nodes than
// most, those that fit the most pods of one class come first, and the rest is left out; more reports whether there is
// such a rest. Allow is by class.
func (c *Cache) Rooms(classes []*api.Class, resources []string, allow []Allow,
	whose func(kind Kind, uid, gang string) Whose, most int,
) (rooms []NodeRoom, more bool) {
	type want struct {
		at     int // in resources
		amount int64
	}
	cls, wants := make([]*class, len(classes)), make([][]want, len(classes))
	for i, class := range classes {
		cls[i] = c.plan(class)
		if allow[i] != nil {
			c.compared += lookCost * int64(len(c.slots))
		}
	}
	cols := make([]int, len(resources))
	at := make([]int, len(c.columns)) // by column: index in resources plus 1
	for r, name := range resources {
		cols[r] = -1
		if i, ok := c.byName[name]; ok {
			cols[r], at[i] = i, r+1
		}
	}
	for i, cl := range cls {
		for j := range cl.requests {
			if a := &cl.requests[j]; a.col >= 0 && at[a.col] > 0 {
				wants[i] = append(wants[i], want{at[a.col] - 1, a.amount})
			}
		}
	}
	var gone []uint32
	var whom []Whose // they are, by index of gone
	var leaves []Leaver
	may := make([]bool, len(cls))
	free, all := make([]int64, len(resources)), make([]int64, len(resources))
	for s := range c.bySlot {
		slot := &c.slots[s]
		if !slot.there || slot.broken != 0 {
			continue
		}
		some := false
		for i, cl := range cls {
			may[i] = c.fitsEmpty(cl, int32(s)) && c.verdict(cl, int32(s)) == admitted
			some = some || may[i]
		}
		if !some {
			continue
		}
		n, frees := c.bySlot[s], c.freeOf(int32(s))
		for r, col := range cols {
			free[r] = 0
			if col >= 0 {
				free[r] = frees[col]
			}
		}
		copy(all, free)
		gone, whom, leaves = gone[:0], whom[:0], leaves[:0]
		for ch := range c.charges(n) {
			of := c.pods.detail(ch)
			who := whose(c.pods.at(ch).kind, of.uid, of.gang)
			if who == Stays {
				continue
			}
			gone, whom = append(gone, ch), append(whom, who)
			amounts := free
			if who != Own {
				i, found := slices.BinarySearchFunc(leaves, who, func(l Leaver, who Whose) int { return cmp.Compare(l.Number, who) })
				if !found {
					leaves = slices.Insert(leaves, i, Leaver{Number: who, Amounts: make([]int64, len(resources))})
				}
				leaves[i].Pods++
				amounts = leaves[i].Amounts
			}
			for _, a := range c.classOf(ch).requests {
				if a.col >= 0 && at[a.col] > 0 {
					amounts[at[a.col]-1] = api.AddSat(amounts[at[a.col]-1], a.amount)
					all[at[a.col]-1] = api.AddSat(all[at[a.col]-1], a.amount)
				}
			}
		}
		room := NodeRoom{Node: n.name}
		for i, cl := range cls {
			if !may[i] {
				continue
			}
			pods := int64(math.MaxInt32)
			for _, w := range wants[i] {
				pods = min(pods, max(all[w.at], 0)/w.amount)
			}
			fits := func(stays Whose) bool { return fitsBut(c, cl, n, gone, whom, stays, allow[i]) }
			if pods == 0 || !fits(Stays) {
				continue
			}
			if !fits(Own) {
				bar(uint32(i), leaves, whom, fits)
			}
			if cl.set.once || cl.avoidsItself() {
				pods = 1
			}
			room.Classes, room.Pods = append(room.Classes, uint32(i)), max(room.Pods, pods)
		}
		if len(room.Classes) > 0 {
			room.Free, room.Leaves = slices.Clone(free), slices.Clone(leaves)
			rooms = append(rooms, room)
		}
	}
	slices.SortFunc(rooms, func(a, b NodeRoom) int {
		return cmp.Or(cmp.Compare(b.Pods, a.Pods), cmp.Compare(a.Node, b.Node))
	})
	if more = len(rooms) > most; more {
		rooms = slices.Clip(rooms[:most])
	}
	return rooms, more
}

// fitsBut reports whether a class fits a node, as far as anything but room is concerned, once all charges of gone are,
// but those that stay: with Own all that are not the gang's own. A leaver is out if its number is negative in whom.
func fitsBut(c *Cache, cl *class, n *node, gone []uint32, whom []Whose, stays Whose, allow Allow) bool {
	left := make([]uint32, 0, len(gone))
	for k, ch := range gone {
		if whom[k] == Own || stays != Own && whom[k] > 0 {
			left = append(left, ch)
		}
	}
	if c.exclusiveConflict(n, cl.set.exclusives, left) != Nothing {
		return false
	}
	if cl.grouped && c.groupsConflict(n, cl, left) != Nothing {
		return false
	}
	if allow == nil {
		return true
	}
	uids := make([]string, len(left))
	for k, ch := range left {
		uids[k] = c.pods.detail(ch).uid
	}
	return allow(n.number, uids)
}

// bar finds the leavers that have to go so that a class fits: all of them but those without whom it does. The last are
// spared first.
func bar(class uint32, leaves []Leaver, whom []Whose, fits func(stays Whose) bool) {
	turn := func(who Whose) { // whether it stays
		for k := range whom {
			if whom[k] == who {
				whom[k] = -who
			}
		}
	}
	for l := len(leaves) - 1; l >= 0; l-- {
		who := leaves[l].Number
		if turn(who); !fits(Stays) {
			turn(-who)
			leaves[l].Bars = append(leaves[l].Bars, class)
		}
	}
	for k := range whom {
		whom[k] = max(whom[k], -whom[k])
	}
}
