package cache

import (
	"fmt"
	"slices"

	"basalt.dev/basalt/api"
)

// Check makes everything again from nodes and charges and compares: for tests and the simulator.
func (c *Cache) Check() error {
	there, broken := 0, 0
	refs := map[*class]int{}
	onNodes := 0
	for name, n := range c.nodes {
		if n.name != name {
			return fmt.Errorf("node %s: stored as %s", n.name, name)
		}
		if n.object == nil && (n.slot != -1 || len(n.charges) == 0) {
			return fmt.Errorf("node %s: is not there, and has slot %d and %d charges", name, n.slot, len(n.charges))
		}
		onNodes += len(n.charges)
		holding := 0
		ports := map[port]int{}
		used := map[string]int64{}
		for i, ch := range n.charges {
			if ch.node != n || ch.at != i || c.pods[ch.uid] != ch {
				return fmt.Errorf("node %s: charge %s is not where it says", name, ch.uid)
			}
			if c.classes[ch.class.api.Key] != ch.class {
				return fmt.Errorf("pod %s: its class is not stored", ch.uid)
			}
			refs[ch.class]++
			if ch.kind == Hold {
				holding++
			}
			for _, p := range ch.class.ports {
				ports[p]++
			}
			for _, r := range ch.class.api.Requests { // not asks, which are derived
				used[r.Resource] = api.AddSat(used[r.Resource], max(r.Value, 0))
			}
		}
		if holding != n.holds {
			return fmt.Errorf("node %s: counts %d holds, has %d", name, n.holds, holding)
		}
		if len(ports) != len(n.ports) {
			return fmt.Errorf("node %s: counts %d host ports, has %d", name, len(n.ports), len(ports))
		}
		for _, u := range n.ports {
			if ports[u.port] != u.pods {
				return fmt.Errorf("node %s: counts %d pods on host port %d, has %d", name, u.pods, u.number, ports[u.port])
			}
		}
		if n.object == nil {
			continue
		}
		there++
		if c.slots[n.slot] != n {
			return fmt.Errorf("node %s: its slot %d is another's", name, n.slot)
		}
		bad, free := false, int32(0)
		for _, col := range c.columns {
			if col == nil {
				continue
			}
			alloc := max(n.object.Allocatable.Value(col.name), 0)
			left := alloc - used[col.name]
			delete(used, col.name)
			if col.alloc[n.slot] != alloc || col.free[n.slot] != left {
				return fmt.Errorf("node %s: has %d of %d %s free, not %d of %d", name, left, alloc, col.name, col.free[n.slot], col.alloc[n.slot])
			}
			bad = bad || left < 0
			if col.device && left > 0 {
				free++
			}
		}
		for _, v := range used {
			bad = bad || v > 0
		}
		if bad != (c.broken[n.slot] != 0) || c.broken[n.slot] < 0 {
			return fmt.Errorf("node %s: out of sync is %t, counted is %d", name, bad, c.broken[n.slot])
		}
		if bad {
			broken++
		}
		if free != c.devices[n.slot] {
			return fmt.Errorf("node %s: has free devices of %d kinds, counts %d", name, free, c.devices[n.slot])
		}
	}
	if onNodes != len(c.pods) {
		return fmt.Errorf("%d charges on nodes, %d by UID", onNodes, len(c.pods))
	}
	if there != len(c.slots)-len(c.freeSlots) {
		return fmt.Errorf("%d nodes are there, %d slots of which %d empty", there, len(c.slots), len(c.freeSlots))
	}
	if broken != c.outOfSync {
		return fmt.Errorf("%d nodes are out of sync, counted %d", broken, c.outOfSync)
	}
	if err := c.checkColumns(); err != nil {
		return err
	}
	return c.checkClasses(refs)
}

func (c *Cache) checkColumns() error {
	totals := c.Totals()
	dead := 0
	for i, col := range c.columns {
		if col == nil {
			continue
		}
		if c.byName[col.name] != i || len(col.alloc) != len(c.slots) || len(col.free) != len(c.slots) {
			return fmt.Errorf("column %s: index %d, %d and %d cells for %d slots", col.name, i, len(col.alloc), len(col.free), len(c.slots))
		}
		var alloc, free, largest int64
		offers := 0
		for s, n := range c.slots {
			if n == nil {
				if col.alloc[s] != 0 || col.free[s] != 0 {
					return fmt.Errorf("column %s: the empty slot %d has %d of %d", col.name, s, col.free[s], col.alloc[s])
				}
				continue
			}
			alloc, free = api.AddSat(alloc, col.alloc[s]), api.AddSat(free, max(col.free[s], 0))
			largest = max(largest, col.alloc[s])
			if _, ok := n.object.Allocatable.Get(col.name); ok {
				offers++
			}
		}
		if offers != col.offers {
			return fmt.Errorf("column %s: %d nodes name it, counted %d", col.name, offers, col.offers)
		}
		if offers == 0 {
			dead++
			continue
		}
		if a, f, l := totals.Allocatable.Value(col.name), totals.Free.Value(col.name), totals.Largest.Value(col.name); a != alloc || f != free || l != largest {
			return fmt.Errorf("column %s: allocatable %d free %d largest %d, counted %d, %d, %d", col.name, alloc, free, largest, a, f, l)
		}
	}
	if dead != c.dead || dead > c.limits.dead {
		return fmt.Errorf("%d columns are dead, counted %d", dead, c.dead)
	}
	return nil
}

func (c *Cache) checkClasses(refs map[*class]int) error {
	if len(c.planned) > c.limits.planned {
		return fmt.Errorf("%d classes are planned", len(c.planned))
	}
	for key, cl := range c.classes {
		if cl.api.Key != key || cl.refs != refs[cl] || cl.refs == 0 && !cl.planned || cl.planned != slices.Contains(c.planned, cl) {
			return fmt.Errorf("class %.40q: %d references, counted %d, planned %t", key, refs[cl], cl.refs, cl.planned)
		}
		for _, a := range cl.asks {
			if i, ok := c.byName[a.name]; ok && a.col != i || !ok && a.col != -1 {
				return fmt.Errorf("class %.40q: %s is looked for in column %d", key, a.name, a.col)
			}
		}
		if !cl.planned {
			continue
		}
		behind := map[int32]bool{}
		stale := c.logged-cl.synced > uint64(len(c.log)) || len(cl.tree) < 2*len(c.slots)
		for i := cl.synced; i < c.logged && !stale; i++ {
			behind[c.log[i%uint64(len(c.log))]] = true
		}
		for s, n := range c.slots {
			want := absent
			if n != nil {
				want = c.judge(cl, n.object)
			}
			if cl.verdict[s] != want {
				return fmt.Errorf("class %.40q: slot %d was judged %d, is %d", key, s, cl.verdict[s], want)
			}
			if stale || behind[int32(s)] {
				continue
			}
			if have, want := cl.tree[len(cl.tree)/2+s], c.key(cl, int32(s)); have != want {
				return fmt.Errorf("class %.40q: slot %d has key %x in the tree, is %x", key, s, have, want)
			}
		}
		for i := len(cl.tree)/2 - 1; i > 0; i-- {
			if cl.tree[i] != min(cl.tree[2*i], cl.tree[2*i+1]) {
				return fmt.Errorf("class %.40q: tree is wrong at %d", key, i)
			}
		}
	}
	return nil
}
