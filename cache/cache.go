package cache

import (
	"iter"
	"maps"
	"math"
	"slices"

	v1 "k8s.io/api/core/v1"

	"basalt.dev/basalt/api"
)

// Cache is made by New. It is not safe for concurrent use.
type Cache struct {
	cfg    Config
	limits limits
	nodes  map[string]*node // there, or with charges
	pods   pods
	chosen int32 // slot, by Place, last; -1 for none

	slots     []slot
	more      [][]uint32 // charges beyond the few of a slot
	bySlot    []*node    // nil for an empty slot
	names     []string
	hosts     map[string][]int32 // slots of the nodes that are there, by host name
	freeSlots []int32
	there     int // nodes
	columns   []*column
	frees     []int64        // by slot and column: allocatable - used; zero in an empty slot
	width     int            // columns that there is room for
	shapes    shared         // what nodes have: allocatable by column
	shape     []uint64       // one that is being made
	byName    map[string]int // index into columns
	dead      int            // columns that no node names

	classes  map[string]*class // by key
	numbered []*class          // by number, nil for none
	unused   []int32           // numbers
	sets     map[string]*set   // by constraints
	planned  []*class          // a ring
	hand     int               // where in planned the next place is looked for
	last     *class            // the class found last: pods of one gang come in a row
	uses     uint64            // counts plannings, to find the class not used for longest
	verdicts [][]verdict       // spare ones
	compared int64             // see Compared

	wishes    map[string]*wish // by key
	reluctant int              // nodes with taints that prefer no pods
	images    map[string]int32 // how many nodes have an image
	sharedOf  int              // so many nodes there were when shares of them were last looked at because nodes came or went

	index index

	partitions map[string]*partition // by joined labels (domains.go)
	closed     map[int32]bool        // slots of nodes that take no pods for now (supply.go)

	watched    map[string]bool // nodes that Freed is to name; true: it will
	freedNodes []string

	holding int      // charges that are holds
	worst   api.Rank // no hold ranks worse; it may be that none ranks so
	held    []int32  // slots with holds, and some that had some

	facts   uint64     // nodes set or changed so far
	changed [256]int32 // their slots, the last ones: fact i at i modulo their number
	changes uint64     // of slots so far
	counted uint64     // classes with counts of Why

	outOfSync    int
	roomVersion  uint64
	nodesVersion uint64
	syncVersion  uint64
}

type node struct {
	name       string
	object     *api.Node // nil while it is not there
	slot       int32
	exclusives []exclusiveUse
	groups     []groupUse
	host       host
	number     int32 // by which the caller knows it
}

type exclusiveUse struct {
	api.Exclusive
	pods int // more than one of a port when somebody else put them there
}

// slot is what is looked at of a node whenever a pod comes or goes: two cache lines, of which the second matters where there
// are many pods. A node has one as long as it is known.
type slot struct {
	broken    int32 // see addBroken
	holds     int32
	shape     int32 // number of Cache.shapes
	admits    int32 // number of index.admits
	there     bool  // the node is
	marked    bool  // is in index.dirty
	exclusive bool  // some exclusives are in use
	held      bool  // is in Cache.held
	n         int32
	few       [fewPods]uint32 // charges, n of them; a node with more has the others in Cache.more
}

const fewPods = 26

// charges of a node, in no order that means anything.
func (c *Cache) charges(n *node) iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		s := &c.slots[n.slot]
		for _, ch := range s.few[:min(s.n, fewPods)] {
			if !yield(ch) {
				return
			}
		}
		for _, ch := range c.more[n.slot] {
			if !yield(ch) {
				return
			}
		}
	}
}

func (c *Cache) addCharge(s int32, number uint32) {
	at := &c.slots[s]
	if at.n < fewPods {
		at.few[at.n] = number
	} else {
		c.more[s] = append(c.more[s], number)
	}
	at.n++
}

// removeCharge puts the last charge of a node in the place of one that goes.
func (c *Cache) removeCharge(s int32, number uint32) {
	at := &c.slots[s]
	few := at.few[:min(at.n, fewPods)]
	at.n--
	last := few[len(few)-1]
	if at.n >= fewPods {
		last = c.more[s][at.n-fewPods]
	}
	if i := slices.Index(few, number); i >= 0 {
		few[i] = last
	} else {
		c.more[s][slices.Index(c.more[s], number)] = last
	}
	if at.n >= fewPods {
		c.more[s] = c.more[s][:at.n-fewPods]
	}
}

func (c *Cache) classOf(number uint32) *class { return c.numbered[c.pods.at(number).class] }

func (c *Cache) placement(number uint32) Placement {
	ch, of := c.pods.at(number), c.pods.detail(number)
	return Placement{UID: of.uid, Node: c.names[ch.slot], Kind: ch.kind, Gang: of.gang, Rank: of.rank, Class: c.classOf(number).api}
}

// New makes an empty cache.
func New(cfg Config) *Cache { return newCache(cfg, defaultLimits) }

func newCache(cfg Config, l limits) *Cache {
	c := &Cache{
		cfg: cfg, limits: l, chosen: -1, nodes: map[string]*node{}, pods: newPods(),
		byName: map[string]int{}, hosts: map[string][]int32{}, classes: map[string]*class{}, sets: map[string]*set{}, wishes: map[string]*wish{}, images: map[string]int32{},
		closed: map[int32]bool{},
	}
	c.index.order.most = l.leaf
	c.shapes.reset(0)
	c.fitWords()
	c.reorder()
	return c
}

// SetNode adds or changes a node. Charges on it, also those made while it was unknown, count at once.
func (c *Cache) SetNode(object *api.Node) {
	n := c.bySlot[c.slotFor(object.Name)]
	old := n.object
	n.object = object
	n.setHost()
	before := ""
	if old != nil {
		before = old.Labels[api.LabelHostname]
	}
	c.setHostOf(n.slot, before, object.Labels[api.LabelHostname])
	c.relocate(n.slot)
	room := old == nil
	if old == nil {
		c.slots[n.slot].there = true
		c.there++
		for ch := range c.charges(n) {
			c.take(n.slot, c.classOf(ch))
		}
	}
	changed := old == nil
	if old == nil || !slices.Equal(old.Allocatable, object.Allocatable) || !slices.Equal(old.Attachable, object.Attachable) {
		changed = true
		room = c.setAllocatable(n, old) || room
	}
	if old == nil || old.Unschedulable != object.Unschedulable || !maps.Equal(old.Labels, object.Labels) || !equalTaints(old.Taints, object.Taints) ||
		!slices.Equal(old.Features, object.Features) || !slices.Equal(old.Tiers, object.Tiers) {
		changed = true
		for _, st := range c.sets { // each by itself
			st.forgetVerdict(n.slot)
		}
		c.countReluctant(old, object)
		c.regrade(n.slot)
		c.admit(n.slot)
		c.close(n.slot, isClosed(object))
		room = room || old.Unschedulable && !object.Unschedulable || !maps.Equal(old.Labels, object.Labels) || !coversTaints(object.Taints, old.Taints) ||
			!slices.Equal(old.Features, object.Features)
	}
	if c.countImages(old, object) {
		c.seenImages(n.slot)
	} else if old == nil {
		c.countedNodes()
	}
	if changed { // most updates are heartbeats
		c.touch(n.slot)
		c.freed(n.slot)
		c.changed[c.facts%uint64(len(c.changed))] = n.slot
		c.facts++
	}
	if room {
		c.nodesVersion++
		if c.slots[n.slot].broken == 0 {
			c.roomVersion++
		}
	}
}

// RemoveNode removes a node. Its charges stay remembered and count again if it comes back.
func (c *Cache) RemoveNode(name string) {
	n := c.nodes[name]
	if n == nil || n.object == nil {
		return
	}
	s := n.slot
	c.setShape(s, n.object, nil)
	for _, col := range c.columns {
		if col != nil {
			c.setFree(col, s, 0)
		}
	}
	c.addBroken(s, -c.slots[s].broken) // what is left of it: requests for what no node offers
	for _, r := range n.object.Allocatable {
		c.offer(c.columnOf(r.Resource), -1)
	}
	for _, st := range c.sets { // each by itself
		st.forgetVerdict(s)
	}
	c.touch(s)
	c.setHostOf(s, n.object.Labels[api.LabelHostname], "")
	c.countReluctant(n.object, nil)
	c.countImages(n.object, nil)
	n.object, n.host, c.slots[s].there = nil, nameless, false
	c.close(s, false)
	c.relocate(s)
	c.there--
	c.regrade(s)
	c.countedNodes()
	c.forget(n)
	c.dropDead()
}

// Charge puts a pod onto a node, in place of an earlier charge of the same UID, on whatever node that was. It never
// refuses: what fits is asked before. The node may be unknown yet. The rank matters for holds; the gang is
// the caller's.
func (c *Cache) Charge(uid, nodeName string, a *api.Class, kind Kind, gang string, rank api.Rank) {
	cl := c.find(a)
	hash := hashOf(uid)
	cell, number, ok := c.pods.find(uid, hash)
	if ok {
		ch := c.pods.at(number)
		if counted := c.classOf(number); c.names[ch.slot] == nodeName && counted.api.Key == cl.api.Key {
			of := c.pods.detail(number)
			counted.own += ours(kind) - ours(ch.kind)
			c.hold(ch.slot, holds(kind)-holds(ch.kind), kind, rank)
			ch.kind, of.gang, of.rank = kind, gang, rank
			return
		}
		c.Release(uid)
		cl = c.find(a) // again: the release may have forgotten it
		cell, _, _ = c.pods.find(uid, hash)
	}
	c.keep(cl)
	cl.refs++
	cl.own += ours(kind)
	s := c.slotFor(nodeName)
	number = c.pods.add(cell, uid, hash, s)
	ch, of := c.pods.at(number), c.pods.detail(number)
	ch.class, ch.kind = cl.number, kind
	of.gang, of.rank = gang, rank
	c.addCharge(s, number)
	c.hold(s, holds(kind), kind, rank)
	for _, e := range cl.set.exclusives {
		c.useExclusive(s, e, 1)
	}
	c.useGroups(s, cl, 1)
	if c.slots[s].there {
		c.take(s, cl)
		c.touch(s)
	}
}

// Release takes a pod's charge away, and reports whether there was one.
func (c *Cache) Release(uid string) bool {
	cell, number, ok := c.pods.find(uid, hashOf(uid))
	if !ok {
		return false
	}
	s := c.pods.cells[cell].slot
	c.fetch(s, number)
	ch, at := c.pods.at(number), &c.slots[s]
	cl := c.numbered[ch.class]
	cl.own -= ours(ch.kind)
	c.removeCharge(s, number)
	at.holds -= holds(ch.kind)
	c.holding -= int(holds(ch.kind))
	for _, e := range cl.set.exclusives {
		c.useExclusive(s, e, -1)
	}
	c.useGroups(s, cl, -1)
	c.pods.remove(cell)
	c.freed(s)
	if at.there {
		c.give(s, cl)
		c.touch(s)
		if at.broken == 0 {
			c.roomVersion++
		}
	} else {
		c.forget(c.bySlot[s])
	}
	cl.refs--
	c.letGo(cl)
	return true
}

func holds(k Kind) int32 {
	if k == Hold {
		return 1
	}
	return 0
}

// hold counts holds on a slot, and remembers what PlaceWithin looks for.
func (c *Cache) hold(s, by int32, kind Kind, rank api.Rank) {
	at := &c.slots[s]
	at.holds += by
	c.holding += int(by)
	if kind != Hold {
		return
	}
	if c.holding == 1 && by == 1 || c.worst.Before(rank) {
		c.worst = rank
	}
	if !at.held {
		at.held = true
		c.held = append(c.held, s)
	}
}

// slotFor returns the slot of a node, and makes one for a name that is not known.
func (c *Cache) slotFor(name string) int32 {
	if c.chosen >= 0 && c.names[c.chosen] == name { // a pod is charged where it was just placed
		return c.chosen
	}
	n := c.nodes[name]
	if n == nil {
		n = &node{name: name}
		n.slot = c.takeSlot(n)
		c.nodes[name] = n
	}
	return n.slot
}

// forget drops a node that is not there and has no charges.
func (c *Cache) forget(n *node) {
	if n.object == nil && c.slots[n.slot].n == 0 {
		delete(c.nodes, n.name)
		c.bySlot[n.slot], c.names[n.slot] = nil, ""
		c.freeSlots = append(c.freeSlots, n.slot)
		if c.chosen == n.slot {
			c.chosen = -1
		}
	}
}

func (c *Cache) takeSlot(n *node) int32 {
	if k := len(c.freeSlots) - 1; k >= 0 {
		s := c.freeSlots[k]
		c.freeSlots = c.freeSlots[:k]
		c.bySlot[s], c.names[s] = n, n.name
		return s
	}
	c.slots, c.more = append(grown(c.slots, 1), slot{}), append(grown(c.more, 1), nil)
	c.bySlot, c.names = append(c.bySlot, n), append(grown(c.names, 1), n.name)
	c.frees = append(grown(c.frees, c.width), make([]int64, c.width)...)
	for _, st := range c.sets { // each by itself
		if st.verdict != nil {
			st.verdict = append(st.verdict, unknown)
		}
	}
	for _, w := range c.wishes { // each by itself
		w.kind = append(w.kind, 0)
	}
	c.verdicts = nil // of another length
	c.index.order.where = append(c.index.order.where, 0)
	return int32(len(c.slots) - 1)
}

// setAllocatable enters what a node has now into the columns, and reports whether it has more of anything.
func (c *Cache) setAllocatable(n *node, old *api.Node) (grew bool) {
	for _, r := range n.object.Allocatable { // before the old ones are let go, so that a column that stays is not dropped
		c.offer(c.columnOf(r.Resource), 1)
	}
	if old != nil {
		for _, r := range old.Allocatable {
			c.offer(c.columnOf(r.Resource), -1)
		}
	}
	for _, a := range n.object.Attachable {
		c.columnOf(api.VolumesOf(a.Driver))
	}
	grew = c.setShape(n.slot, old, n.object)
	c.dropDead()
	return grew
}

func (c *Cache) offer(col *column, by int) {
	if col.offers == 0 {
		c.dead--
	}
	col.offers += by
	if col.offers == 0 {
		c.dead++
	}
}

// take counts one pod of a class onto a slot.
func (c *Cache) take(s int32, cl *class) {
	has, free := c.hasOf(s), c.freeOf(s)
	for i := range cl.requests {
		a := &cl.requests[i]
		if a.col < 0 {
			if !isDevice(a.name) {
				c.addBroken(s, 1)
			}
			continue
		}
		alloc := int64(has[a.col])
		c.setFree(c.columns[a.col], s, alloc-api.AddSat(alloc-free[a.col], a.amount))
	}
}

// give counts one pod of a class off a slot, whose charges do not contain it any more.
func (c *Cache) give(s int32, cl *class) {
	has, free := c.hasOf(s), c.freeOf(s)
	for i := range cl.requests {
		a := &cl.requests[i]
		if a.col < 0 {
			if !isDevice(a.name) {
				c.addBroken(s, -1)
			}
			continue
		}
		alloc := int64(has[a.col])
		used := alloc - free[a.col]
		if used == math.MaxInt64 {
			used = c.used(s, a.name)
		} else {
			used -= a.amount
		}
		c.setFree(c.columns[a.col], s, alloc-used)
	}
}

// used sums what the charges of a node ask of one resource.
func (c *Cache) used(s int32, name string) int64 {
	sum := int64(0)
	for ch := range c.charges(c.bySlot[s]) {
		for _, a := range c.classOf(ch).requests {
			if a.name == name {
				sum = api.AddSat(sum, a.amount)
			}
		}
	}
	return sum
}

func (c *Cache) useExclusive(s int32, e api.Exclusive, by int) {
	n := c.bySlot[s]
	i := slices.IndexFunc(n.exclusives, func(u exclusiveUse) bool { return u.Exclusive == e })
	if i < 0 {
		n.exclusives = append(n.exclusives, exclusiveUse{Exclusive: e, pods: by})
	} else if n.exclusives[i].pods += by; n.exclusives[i].pods == 0 {
		n.exclusives = slices.Delete(n.exclusives, i, i+1)
	}
	c.slots[s].exclusive = len(n.exclusives) > 0
}

func equalTaints(a, b []v1.Taint) bool {
	return coversTaints(a, b) && coversTaints(b, a) && len(a) == len(b)
}

// coversTaints reports whether every taint of b is in a: whether who is kept away by b is kept away by a too.
func coversTaints(a, b []v1.Taint) bool {
	for i := range b {
		if !slices.ContainsFunc(a, func(t v1.Taint) bool { return t.Key == b[i].Key && t.Value == b[i].Value && t.Effect == b[i].Effect }) {
			return false
		}
	}
	return true
}
