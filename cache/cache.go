package cache

import (
	"maps"
	"math"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"basalt.dev/basalt/api"
)

// Cache is made by New. It is not safe for concurrent use.
type Cache struct {
	cfg    Config
	limits limits
	nodes  map[string]*node // there, or with charges
	pods   pods
	chosen *node // by Place, last

	slots     []*node // nil for an empty slot
	freeSlots []int32
	broken    []int32 // by slot, see addBroken
	columns   []*column
	cells     []cell         // by slot and column
	width     int            // cells of a slot
	byName    map[string]int // index into columns
	dead      int            // columns that no node names

	classes  map[string]*class // by key
	sets     map[string]*set   // by constraints
	planned  []*class          // a ring
	hand     int               // where in planned the next place is looked for
	last     *class            // the class found last: pods of one gang come in a row
	uses     uint64            // counts plannings, to find the class not used for longest
	verdicts [][]verdict       // spare ones
	index    index

	outOfSync   int
	roomVersion uint64
	syncVersion uint64
}

type node struct {
	name    string
	object  *api.Node // nil while it is not there
	slot    int32     // -1 while it is not there
	charges []*charge
	holds   int
	ports   []portUse
}

type portUse struct {
	port
	pods int // more than one when somebody else put them there
}

// claim is who a charge is for, which matters for holds.
type claim struct {
	gang string
	rank api.Rank
}

func (ch *charge) placement() Placement {
	return Placement{UID: ch.uid, Node: ch.node.name, Kind: ch.kind, Gang: ch.claim.gang, Rank: ch.claim.rank, Class: ch.class.api}
}

// New makes an empty cache.
func New(cfg Config) *Cache { return newCache(cfg, defaultLimits) }

func newCache(cfg Config, l limits) *Cache {
	c := &Cache{
		cfg: cfg, limits: l, nodes: map[string]*node{},
		byName: map[string]int{}, classes: map[string]*class{}, sets: map[string]*set{},
	}
	c.index.order.most = l.leaf
	c.fitWords()
	c.reorder()
	return c
}

// SetNode tells what a node is now. Charges on it, also those made while it was unknown, count at once.
func (c *Cache) SetNode(object *api.Node) {
	n := c.nodeOf(object.Name)
	old := n.object
	n.object = object
	room := old == nil
	if old == nil {
		n.slot = c.takeSlot(n)
		c.fill(n)
	}
	changed := old == nil
	if old == nil || !slices.Equal(old.Allocatable, object.Allocatable) {
		changed = true
		room = c.setAllocatable(n, old) || room
	}
	if old == nil || old.Unschedulable != object.Unschedulable || !maps.Equal(old.Labels, object.Labels) || !equalTaints(old.Taints, object.Taints) {
		changed = true
		for _, st := range c.sets { // each by itself
			if st.verdict != nil {
				st.verdict[n.slot] = unknown
			}
		}
		c.admit(n.slot)
		room = room || old.Unschedulable && !object.Unschedulable || !maps.Equal(old.Labels, object.Labels) || !coversTaints(object.Taints, old.Taints)
	}
	if changed { // most updates are heartbeats
		c.touch(n.slot)
	}
	if room && c.broken[n.slot] == 0 {
		c.roomVersion++
	}
}

// RemoveNode tells that a node is gone. Its charges stay remembered and count again if it comes back.
func (c *Cache) RemoveNode(name string) {
	n := c.nodes[name]
	if n == nil || n.object == nil {
		return
	}
	s := n.slot
	for _, col := range c.columns {
		if col != nil {
			c.setAlloc(col, s, 0)
			c.setFree(col, s, 0)
		}
	}
	c.addBroken(s, -c.broken[s]) // what is left of it: requests for what no node offers
	for _, r := range n.object.Allocatable {
		c.offer(c.columnOf(r.Resource), -1)
	}
	for _, st := range c.sets { // each by itself
		if st.verdict != nil {
			st.verdict[s] = unknown
		}
	}
	c.touch(s)
	n.object, n.slot = nil, -1
	c.slots[s] = nil
	c.freeSlots = append(c.freeSlots, s)
	c.forget(n)
	c.dropDead()
}

// Node returns a copy of what is known of a node that is there.
func (c *Cache) Node(name string) (NodeView, bool) {
	n := c.nodes[name]
	if n == nil || n.object == nil {
		return NodeView{}, false
	}
	view := NodeView{Node: n.object, OutOfSync: c.broken[n.slot] != 0, Pods: make([]Placement, 0, len(n.charges))}
	used := map[string]int64{}
	for _, ch := range n.charges {
		view.Pods = append(view.Pods, ch.placement())
		for _, a := range ch.class.asks {
			used[a.name] = api.AddSat(used[a.name], a.amount)
		}
	}
	slices.SortFunc(view.Pods, func(a, b Placement) int { return strings.Compare(a.UID, b.UID) })
	view.Used = api.FromMap(used)
	view.Free = n.object.Allocatable.Sub(view.Used)
	return view, true
}

// Charge puts a pod onto a node, in place of an earlier charge of the same UID, on whatever node that was. It never
// refuses: what fits is asked before. The node may be unknown yet. Gang and rank matter for holds.
func (c *Cache) Charge(uid, nodeName string, a *api.Class, kind Kind, gang string, rank api.Rank) {
	cl := c.find(a)
	if ch := c.pods.get(uid); ch != nil {
		if ch.node.name == nodeName && ch.class.api.Key == cl.api.Key {
			ch.node.holds += holds(kind) - holds(ch.kind)
			ch.kind, ch.claim = kind, claim{gang, rank}
			return
		}
		c.Release(uid)
	}
	cl = c.find(a) // again: the release may have forgotten it
	c.keep(cl)
	cl.refs++
	n := c.nodeOf(nodeName)
	ch := c.pods.add(uid)
	ch.node, ch.at, ch.class, ch.kind, ch.claim = n, int32(len(n.charges)), cl, kind, claim{gang, rank}
	n.charges = append(n.charges, ch)
	n.holds += holds(kind)
	for _, p := range cl.set.ports {
		n.usePort(p, 1)
	}
	if n.object == nil {
		return
	}
	c.take(n.slot, cl)
	c.touch(n.slot)
}

// Release takes a pod's charge away, and tells whether there was one.
func (c *Cache) Release(uid string) bool {
	ch := c.pods.get(uid)
	if ch == nil {
		return false
	}
	n, cl := ch.node, ch.class
	last := n.charges[len(n.charges)-1]
	n.charges[ch.at], last.at = last, ch.at
	n.charges[len(n.charges)-1] = nil
	n.charges = n.charges[:len(n.charges)-1]
	n.holds -= holds(ch.kind)
	for _, p := range cl.set.ports {
		n.usePort(p, -1)
	}
	c.pods.remove(ch)
	if n.object != nil {
		c.give(n, cl)
		c.touch(n.slot)
		if c.broken[n.slot] == 0 {
			c.roomVersion++
		}
	}
	cl.refs--
	c.letGo(cl)
	c.forget(n)
	return true
}

// Lookup returns a pod's charge.
func (c *Cache) Lookup(uid string) (Placement, bool) {
	ch := c.pods.get(uid)
	if ch == nil {
		return Placement{}, false
	}
	return ch.placement(), true
}

// Totals of the nodes that are there.
func (c *Cache) Totals() Totals {
	t := Totals{Nodes: len(c.slots) - len(c.freeSlots), OutOfSync: c.outOfSync, RoomVersion: c.roomVersion, SyncVersion: c.syncVersion}
	for _, col := range c.columns {
		if col == nil || col.offers == 0 {
			continue
		}
		t.Allocatable = append(t.Allocatable, api.Amount{Resource: col.name, Value: col.sumAlloc.saturated()})
		t.Free = append(t.Free, api.Amount{Resource: col.name, Value: col.sumFree.saturated()})
		t.Largest = append(t.Largest, api.Amount{Resource: col.name, Value: c.most(col)})
	}
	for _, r := range []api.Resources{t.Allocatable, t.Free, t.Largest} {
		slices.SortFunc(r, func(a, b api.Amount) int { return strings.Compare(a.Resource, b.Resource) })
	}
	return t
}

// RoomVersion is Totals().RoomVersion, for less.
func (c *Cache) RoomVersion() uint64 { return c.roomVersion }

// SyncVersion is Totals().SyncVersion, for less.
func (c *Cache) SyncVersion() uint64 { return c.syncVersion }

// OutOfSync returns the names of the nodes that are out of sync, sorted.
func (c *Cache) OutOfSync() []string {
	var out []string
	for s, n := range c.slots {
		if n != nil && c.broken[s] != 0 {
			out = append(out, n.name)
		}
	}
	slices.Sort(out)
	return out
}

func holds(k Kind) int {
	if k == Hold {
		return 1
	}
	return 0
}

func (c *Cache) nodeOf(name string) *node {
	if c.chosen != nil && c.chosen.name == name { // a pod is charged where it was just placed
		return c.chosen
	}
	n := c.nodes[name]
	if n == nil {
		n = &node{name: name, slot: -1}
		c.nodes[name] = n
	}
	return n
}

// forget drops a node that is not there and has no charges.
func (c *Cache) forget(n *node) {
	if n.object == nil && len(n.charges) == 0 {
		delete(c.nodes, n.name)
		if c.chosen == n {
			c.chosen = nil
		}
	}
}

func (c *Cache) takeSlot(n *node) int32 {
	if k := len(c.freeSlots) - 1; k >= 0 {
		s := c.freeSlots[k]
		c.freeSlots = c.freeSlots[:k]
		c.slots[s] = n
		return s
	}
	c.slots = append(c.slots, n)
	c.broken = append(c.broken, 0)
	c.cells = append(c.cells, make([]cell, c.width)...)
	for _, st := range c.sets { // each by itself
		if st.verdict != nil {
			st.verdict = append(st.verdict, unknown)
		}
	}
	c.verdicts = nil // of another length
	x := &c.index
	x.marked = append(x.marked, false)
	x.admits = append(x.admits, make([]uint64, x.words)...)
	x.order.where = append(x.order.where, spot{})
	return int32(len(c.slots) - 1)
}

// fill counts the charges of a node that has just got its slot.
func (c *Cache) fill(n *node) {
	for _, ch := range n.charges {
		c.take(n.slot, ch.class)
	}
}

// setAllocatable writes a node's cells of alloc, and tells whether one grew.
func (c *Cache) setAllocatable(n *node, old *api.Node) (grew bool) {
	for _, r := range n.object.Allocatable { // before the old ones are let go, so that a column that stays is not dropped
		c.offer(c.columnOf(r.Resource), 1)
	}
	if old != nil {
		for _, r := range old.Allocatable {
			c.offer(c.columnOf(r.Resource), -1)
		}
	}
	for _, col := range c.columns {
		if col == nil {
			continue
		}
		v := max(n.object.Allocatable.Value(col.name), 0)
		grew = grew || v > c.cell(col, n.slot).alloc
		c.setAlloc(col, n.slot, v)
	}
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
	for i := range cl.asks {
		a := &cl.asks[i]
		if a.col < 0 {
			c.addBroken(s, 1)
			continue
		}
		col := c.columns[a.col]
		cell := c.cell(col, s)
		c.setFree(col, s, cell.alloc-api.AddSat(cell.alloc-cell.free, a.amount))
	}
}

// give counts one pod of a class off a node, whose charges do not contain it any more.
func (c *Cache) give(n *node, cl *class) {
	s := n.slot
	for i := range cl.asks {
		a := &cl.asks[i]
		if a.col < 0 {
			c.addBroken(s, -1)
			continue
		}
		col := c.columns[a.col]
		cell := c.cell(col, s)
		used := cell.alloc - cell.free
		if used == math.MaxInt64 {
			used = n.used(a.name)
		} else {
			used -= a.amount
		}
		c.setFree(col, s, cell.alloc-used)
	}
}

// used sums what the charges of a node ask of one resource.
func (n *node) used(name string) int64 {
	sum := int64(0)
	for _, ch := range n.charges {
		for _, a := range ch.class.asks {
			if a.name == name {
				sum = api.AddSat(sum, a.amount)
			}
		}
	}
	return sum
}

func (n *node) usePort(p port, by int) {
	for i := range n.ports {
		if u := &n.ports[i]; u.port == p {
			if u.pods += by; u.pods == 0 {
				n.ports = slices.Delete(n.ports, i, i+1)
			}
			return
		}
	}
	n.ports = append(n.ports, portUse{port: p, pods: by})
}

func equalTaints(a, b []v1.Taint) bool {
	return coversTaints(a, b) && coversTaints(b, a) && len(a) == len(b)
}

// coversTaints tells whether every taint of b is in a: whether who is kept away by b is kept away by a too.
func coversTaints(a, b []v1.Taint) bool {
	for i := range b {
		if !slices.ContainsFunc(a, func(t v1.Taint) bool { return t.Key == b[i].Key && t.Value == b[i].Value && t.Effect == b[i].Effect }) {
			return false
		}
	}
	return true
}
