package cache

import (
	"math/bits"
	"slices"
	"strings"

	"basalt.dev/basalt/api"
)

// What the cache tells of nodes and pods.

// Node returns a copy of what is known of a node that is there.
func (c *Cache) Node(name string) (NodeView, bool) {
	n := c.nodes[name]
	if n == nil || n.object == nil {
		return NodeView{}, false
	}
	view := NodeView{Node: n.object, OutOfSync: c.slots[n.slot].broken != 0, Pods: make([]Placement, 0, c.slots[n.slot].n)}
	used := map[string]int64{}
	for ch := range c.charges(n) {
		view.Pods = append(view.Pods, c.placement(ch))
		for _, a := range c.classOf(ch).requests {
			if api.VolumeDriver(a.name) == "" {
				used[a.name] = api.AddSat(used[a.name], a.amount)
			}
		}
	}
	slices.SortFunc(view.Pods, func(a, b Placement) int { return strings.Compare(a.UID, b.UID) })
	view.Used = api.FromMap(used)
	view.Free = n.object.Allocatable.Sub(view.Used)
	return view, true
}

// Lookup returns a pod's charge.
func (c *Cache) Lookup(uid string) (Placement, bool) {
	number, ok := c.pods.get(uid)
	if !ok {
		return Placement{}, false
	}
	return c.placement(number), true
}

// Totals of the nodes that are there.
func (c *Cache) Totals() Totals {
	t := Totals{Nodes: c.there, OutOfSync: c.outOfSync, RoomVersion: c.roomVersion, NodesVersion: c.nodesVersion,
		SyncVersion: c.syncVersion}
	for _, col := range c.columns {
		if col == nil || col.offers == 0 || col.driver != "" {
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
	for s := range c.slots {
		if c.slots[s].broken != 0 {
			out = append(out, c.names[s])
		}
	}
	slices.Sort(out)
	return out
}

// Shares returns the nodes that are there, in no order, and the percentage of the allocatable that is free there, of
// each of the given resources of one node after the other.
func Shares(c *Cache, of []string) (nodes []string, free []byte) {
	columns := make([]*column, len(of))
	for i, name := range of {
		if at, is := c.byName[name]; is {
			columns[i] = c.columns[at]
		}
	}
	nodes, free = make([]string, 0, c.there), make([]byte, 0, c.there*len(of))
	for s := range c.slots {
		if !c.slots[s].there {
			continue
		}
		nodes = append(nodes, c.names[s])
		has, left := c.hasOf(int32(s)), c.freeOf(int32(s))
		for _, col := range columns {
			switch {
			case c.slots[s].broken != 0:
				free = append(free, api.ShareUnknown)
			case col == nil || has[col.i] == 0:
				free = append(free, api.ShareOfNone)
			default:
				hi, lo := bits.Mul64(min(uint64(max(left[col.i], 0)), has[col.i]), 100)
				percent, _ := bits.Div64(hi, lo, has[col.i])
				free = append(free, byte(percent))
			}
		}
	}
	return nodes, free
}
