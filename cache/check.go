package cache

import (
	"fmt"
	"math/bits"
	"slices"

	"basalt.dev/basalt/api"
)

// Check makes everything again from nodes and charges and compares: for tests and the simulator.
func (c *Cache) Check() error {
	t := &tallied{refs: map[*class]int{}, own: map[*class]int32{}}
	for name, n := range c.nodes {
		if err := t.node(c, name, n); err != nil {
			return err
		}
	}
	if t.onNodes != c.pods.n {
		return fmt.Errorf("%d charges on nodes, %d by UID", t.onNodes, c.pods.n)
	}
	if t.there != c.there || len(c.nodes) != len(c.slots)-len(c.freeSlots) {
		return fmt.Errorf("%d nodes are there, counted %d; %d known, %d slots of which %d empty", t.there, c.there,
			len(c.nodes), len(c.slots), len(c.freeSlots))
	}
	for _, s := range c.freeSlots {
		if at := c.slots[s]; at.there || at.n > 0 || at.holds != 0 || at.broken != 0 || c.bySlot[s] != nil || c.names[s] != "" {
			return fmt.Errorf("slot %d: is empty, and has %+v", s, at)
		}
	}
	if t.held != c.holding {
		return fmt.Errorf("%d holds, counted %d", t.held, c.holding)
	}
	for s := range c.slots {
		if c.slots[s].held != slices.Contains(c.held, int32(s)) {
			return fmt.Errorf("slot %d: is remembered for holds: %t", s, c.slots[s].held)
		}
	}
	if t.broken != c.outOfSync {
		return fmt.Errorf("%d nodes are out of sync, counted %d", t.broken, c.outOfSync)
	}
	if err := c.checkColumns(); err != nil {
		return err
	}
	if err := c.shapes.check(c.slots, func(at *slot) int32 { return at.shape }); err != nil {
		return fmt.Errorf("what nodes have: %w", err)
	}
	if err := c.index.admits.check(c.slots, func(at *slot) int32 { return at.admits }); err != nil {
		return fmt.Errorf("what constraints allow: %w", err)
	}
	if err := c.checkClasses(t.refs); err != nil {
		return err
	}
	if err := c.checkSupply(t.own); err != nil {
		return err
	}
	if err := c.checkWishes(); err != nil {
		return err
	}
	return c.checkIndex()
}

// tallied is what Check counts.
type tallied struct {
	refs                         map[*class]int
	own                          map[*class]int32
	there, broken, held, onNodes int // nodes, of them out of sync; holds; charges
}

// inUse is what the charges on a node come to.
type inUse struct {
	holding    int32
	exclusives map[api.Exclusive]int
	groups     map[uint32]groupUse
	used       map[string]int64 // of resources
}

// node checks one node.
func (t *tallied) node(c *Cache, name string, n *node) error {
	if n.name != name {
		return fmt.Errorf("node %s: stored as %s", n.name, name)
	}
	at := &c.slots[n.slot]
	if c.bySlot[n.slot] != n || c.names[n.slot] != name || at.there != (n.object != nil) {
		return fmt.Errorf("node %s: its slot %d is another's, or it is there: %t", name, n.slot, at.there)
	}
	if n.object == nil && at.n == 0 || len(c.more[n.slot]) != int(max(at.n, fewPods)-fewPods) {
		return fmt.Errorf("node %s: is there: %t, and has %d charges and %d more", name, at.there, at.n, len(c.more[n.slot]))
	}
	t.onNodes += int(at.n)
	u := inUse{exclusives: map[api.Exclusive]int{}, groups: map[uint32]groupUse{}, used: map[string]int64{}}
	for number := range c.charges(n) {
		if err := t.charge(c, n, number, &u); err != nil {
			return err
		}
	}
	t.held += int(u.holding)
	if u.holding != at.holds {
		return fmt.Errorf("node %s: counts %d holds, has %d", name, at.holds, u.holding)
	}
	if len(u.exclusives) != len(n.exclusives) || at.exclusive != (len(u.exclusives) > 0) {
		return fmt.Errorf("node %s: counts %d host ports and disks, has %d", name, len(n.exclusives), len(u.exclusives))
	}
	for _, e := range n.exclusives {
		if pods := u.exclusives[e.Exclusive]; pods != e.pods {
			return fmt.Errorf("node %s: counts %d pods on %v, has %d", name, e.pods, e.Exclusive, pods)
		}
	}
	differs := func(g groupUse) bool { return u.groups[g.group] != g }
	if len(u.groups) != len(n.groups) || slices.ContainsFunc(n.groups, differs) {
		return fmt.Errorf("node %s: counts %v in u.groups, has %v", name, n.groups, u.groups)
	}
	if n.object == nil {
		return nil
	}
	t.there++
	bad := false
	for _, col := range c.columns {
		if col == nil {
			continue
		}
		alloc, attached := col.of(n.object)
		left := alloc - u.used[col.name] - attached
		delete(u.used, col.name)
		if has, free := int64(c.hasOf(n.slot)[col.i]), c.freeOf(n.slot)[col.i]; has != alloc || free != left {
			return fmt.Errorf("node %s: has %d of %d %s free, not %d of %d", name, left, alloc, col.name, free, has)
		}
		bad = bad || col.lacks(left)
	}
	for name, v := range u.used {
		bad = bad || v > 0 && !isDevice(name)
	}
	if bad != (at.broken != 0) || at.broken < 0 {
		return fmt.Errorf("node %s: out of sync is %t, counted is %d", name, bad, at.broken)
	}
	if bad {
		t.broken++
	}
	return nil
}

// charge checks one charge, and counts it.
func (t *tallied) charge(c *Cache, n *node, number uint32, u *inUse) error {
	name, at := n.name, &c.slots[n.slot]
	ch, uid := c.pods.at(number), c.pods.detail(number).uid
	if cell, found, ok := c.pods.find(uid, hashOf(uid)); ch.slot != n.slot || !ok || found != number ||
		c.pods.cells[cell].slot != n.slot {
		return fmt.Errorf("node %s: charge %s is not where it says", name, uid)
	}
	cl := c.classOf(number)
	if cl == nil || c.classes[cl.api.Key] != cl {
		return fmt.Errorf("pod %s: its class is not stored", uid)
	}
	t.refs[cl]++
	if ch.kind != Nominated && ch.kind != Foreign {
		t.own[cl]++
	}
	if ch.kind == Hold {
		u.holding++
		if r := c.pods.detail(number).rank; c.worst.Before(r) || !at.held {
			return fmt.Errorf("pod %s: its hold has rank %v, the worst is said to be %v; its node is remembered for holds: %t",
				uid, r, c.worst, at.held)
		}
	}
	for _, e := range cl.set.exclusives {
		u.exclusives[e]++
	}
	for _, g := range cl.api.In {
		u.groups[g] = groupUse{g, u.groups[g].in + 1, u.groups[g].avoid}
	}
	for _, g := range cl.api.Avoids {
		u.groups[g] = groupUse{g, u.groups[g].in, u.groups[g].avoid + 1}
	}
	for _, r := range cl.api.Requests { // not asks, which are derived
		u.used[r.Resource] = api.AddSat(u.used[r.Resource], max(r.Value, 0))
	}
	for _, r := range cl.api.Attach {
		u.used[api.VolumesOf(r.Resource)] += max(r.Value, 0)
	}
	return nil
}

func (c *Cache) checkColumns() error {
	totals := c.Totals()
	dead := 0
	for i, col := range c.columns {
		if col == nil {
			continue
		}
		if c.byName[col.name] != i || col.i != i || len(c.frees) != c.width*len(c.slots) {
			return fmt.Errorf("column %s: index %d, calls itself %d, %d amounts for %d slots", col.name, i, col.i, len(c.frees), len(c.slots))
		}
		var alloc, free, largest int64
		offers := 0
		for s, n := range c.bySlot {
			has, left := int64(c.hasOf(int32(s))[col.i]), c.freeOf(int32(s))[col.i]
			if !c.slots[s].there {
				if has != 0 || left != 0 {
					return fmt.Errorf("column %s: the empty slot %d has %d of %d", col.name, s, left, has)
				}
				continue
			}
			alloc, free = api.AddSat(alloc, has), api.AddSat(free, max(left, 0))
			largest = max(largest, has)
			if _, ok := n.object.Allocatable.Get(col.name); ok {
				offers++
			}
		}
		if col.driver != "" {
			offers = 1
		}
		if offers != col.offers {
			return fmt.Errorf("column %s: %d nodes name it, counted %d", col.name, offers, col.offers)
		}
		if offers == 0 {
			dead++
			continue
		}
		if col.driver != "" {
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
	classes, planned := map[*set]int{}, map[*set]int{}
	for key, cl := range c.classes {
		if cl.api.Key != key || cl.refs != refs[cl] || c.numbered[cl.number] != cl || cl.refs == 0 && !cl.planned || cl.planned != slices.Contains(c.planned, cl) {
			return fmt.Errorf("class %.40q: %d references, counted %d, planned %t", key, refs[cl], cl.refs, cl.planned)
		}
		if c.sets[cl.set.key] != cl.set || cl.set.wish == nil && cl.set.key != string(cl.api.Constraints) || cl.set.wish != nil && cl.set.wish.dead {
			return fmt.Errorf("class %.40q: its constraints are not stored", key)
		}
		classes[cl.set]++
		if cl.planned {
			planned[cl.set]++
		}
		if cl.bit >= 0 && (!cl.planned || c.index.owners[cl.bit-rungBits] != cl) {
			return fmt.Errorf("class %.40q: bit %d is another's", key, cl.bit)
		}
		for _, a := range cl.requests {
			if i, ok := c.byName[a.name]; ok && a.col != i || !ok && a.col != -1 {
				return fmt.Errorf("class %.40q: %s is looked for in column %d", key, a.name, a.col)
			}
		}
	}
	for key, st := range c.sets {
		if st.key != key || st.classes != classes[st] || st.planned != planned[st] || (st.verdict != nil) != (st.planned > 0 && st.pins == nil && st.wish == nil) {
			return fmt.Errorf("constraints %.40q: of %d classes, %d planned, counted %d and %d", key, classes[st], planned[st], st.classes, st.planned)
		}
		judged := 0
		for s := range st.verdict {
			if st.verdict[s] != unknown {
				judged++
			}
			if n := c.bySlot[s]; st.verdict[s] != unknown && (n == nil || n.object == nil || st.verdict[s] != st.judge(n.object)) {
				return fmt.Errorf("constraints %.40q: slot %d was judged %d", key, s, st.verdict[s])
			}
		}
		if judged != st.judged {
			return fmt.Errorf("constraints %.40q: %d slots were judged, %d are counted", key, judged, st.judged)
		}
	}
	return nil
}

// checkSupply sums what is free, and what own pods request, by nodes and charges.
func (c *Cache) checkSupply(counted map[*class]int32) error {
	for _, cl := range c.classes {
		if cl.own != counted[cl] {
			return fmt.Errorf("class %.40q: %d charges are of own pods, counted %d", cl.api.Key, counted[cl], cl.own)
		}
	}
	free, own := map[string]int64{}, map[string]int64{}
	for cl, n := range counted {
		for _, r := range cl.api.Requests {
			for range n {
				own[r.Resource] = api.AddSat(own[r.Resource], max(r.Value, 0))
			}
		}
	}
	closed := 0
	for _, n := range c.nodes {
		if n.object == nil {
			continue
		}
		if isClosed(n.object) {
			closed++
			continue
		}
		for _, r := range n.object.Allocatable {
			free[r.Resource] = api.AddSat(free[r.Resource], max(0, c.freeOf(n.slot)[c.byName[r.Resource]]))
		}
	}
	if closed != len(c.closed) {
		return fmt.Errorf("%d nodes are closed, counted %d", closed, len(c.closed))
	}
	hasFree, hasOwn := c.Supply()
	for i, a := range hasFree {
		if o := hasOwn[i]; a.Value != free[a.Resource] || o.Resource != a.Resource || o.Value != own[a.Resource] {
			return fmt.Errorf("supply of %s: %d free and %d own, counted %d and %d of %s", a.Resource, free[a.Resource], own[a.Resource], a.Value, o.Value, o.Resource)
		}
		delete(free, a.Resource)
	}
	if len(free) > 0 {
		return fmt.Errorf("supply lacks %v", free)
	}
	return nil
}

// check counts who has which row.
func (t *shared) check(slots []slot, of func(*slot) int32) error {
	users, used := make([]int32, len(t.users)), 0
	for s := range slots {
		users[of(&slots[s])]++
	}
	users[0] = 0
	for number, n := range users {
		if n != t.users[number] {
			return fmt.Errorf("row %d has %d users, counted %d", number, n, t.users[number])
		}
		if n > 0 {
			used++
			if found := t.byRow[keyOfRow(t.at(int32(number)))]; found != int32(number) {
				return fmt.Errorf("row %d is found as %d", number, found)
			}
		}
	}
	if used != len(t.byRow) || used+len(t.spare) != len(users)-1 {
		return fmt.Errorf("%d rows are used, %d are found, %d of %d are spare", used, len(t.byRow), len(t.spare), len(users)-1)
	}
	return nil
}

func (c *Cache) checkIndex() error {
	x := &c.index
	owners := 0
	for i, cl := range x.owners {
		if cl == nil {
			continue
		}
		owners++
		if cl.bit != i+rungBits || c.classes[cl.api.Key] != cl || !slices.Contains(x.sets, cl.set) {
			return fmt.Errorf("bit %d: its class has bit %d", i+rungBits, cl.bit)
		}
	}
	if owners > c.limits.bits {
		return fmt.Errorf("%d classes have bits", owners)
	}
	for s := range c.slots {
		if c.slots[s].marked != slices.Contains(x.dirty, int32(s)) {
			return fmt.Errorf("slot %d: marked %t", s, c.slots[s].marked)
		}
	}
	if err := x.order.check(); err != nil || x.stale {
		return err
	}
	for s, n := range c.bySlot {
		at := x.order.where[s]
		if c.slots[s].marked {
			continue
		}
		if in := c.slots[s].there && c.slots[s].broken == 0; in != (at != 0) {
			return fmt.Errorf("slot %d: in the order %t", s, !in)
		} else if !in {
			continue
		}
		e := uint(at - 1)
		if key := x.order.key(e); key != c.keyOf(int32(s)) {
			return fmt.Errorf("slot %d: stands at %x, not at %x", s, key, c.keyOf(int32(s)))
		}
		has := func(bit int) bool { return *x.order.word(e, bit/64)>>(bit%64)&1 == 1 }
		for i, r := range x.rungs {
			if free := c.freeOf(int32(s))[r.col]; has(i) != (free >= r.amount) {
				return fmt.Errorf("slot %d: has %d, rung of %d is %t", s, free, r.amount, has(i))
			}
		}
		for _, cl := range x.owners {
			if cl == nil {
				continue
			}
			of := cl.set.judge
			if cl.set.wish != nil {
				of = func(*api.Node) verdict { return cl.set.tierVerdict(int32(s)) }
			}
			what, _ := c.obstacle(cl, int32(s), of(n.object))
			if has(cl.bit) != (what == Nothing) {
				return fmt.Errorf("slot %d: bit %d is %t, in the way is %d", s, cl.bit, has(cl.bit), what)
			}
		}
	}
	return nil
}

func (o *order) check() error {
	entries := 0
	for p, l := range o.list {
		at := o.leaves[l]
		if int(at.at) != p || bits.Len64(at.used) > o.most || at.used == 0 && len(o.list) > 1 {
			return fmt.Errorf("leaf %d: has entries %b, stands at %d", p, at.used, at.at)
		}
		for e := range o.each(l) {
			entries++
			key := o.key(e)
			if uint(o.where[slotOf(key)]) != e+1 || key < o.low[p] || p+1 < len(o.low) && key >= o.low[p+1] {
				return fmt.Errorf("leaf %d: key %x is not in its place", p, key)
			}
		}
		for w := range o.words {
			for e := range o.each(l) {
				if *o.word(e, w)&^o.sums(l, w)[e/blockSize%blocks] != 0 {
					return fmt.Errorf("leaf %d: word %d of an entry has more than is promised of its block", p, w)
				}
			}
			if o.sums(l, w).or()&^o.levels[0].bits[w*o.levels[0].room+p] != 0 {
				return fmt.Errorf("leaf %d: word %d has more than is promised", p, w)
			}
		}
	}
	for _, at := range o.where {
		if at != 0 {
			entries--
		}
	}
	if len(o.list)+len(o.spare) != len(o.leaves) {
		return fmt.Errorf("order: %d leaves, of which %d are in the list and %d spare", len(o.leaves), len(o.list), len(o.spare))
	}
	if entries != 0 || o.low[0] != 0 || o.levels[0].n != len(o.list) || o.levels[len(o.levels)-1].room != fan {
		return fmt.Errorf("order: %d leaves, %d counted, %d slots too many", len(o.list), o.levels[0].n, entries)
	}
	for k := range o.levels {
		lv := &o.levels[k]
		for w := range o.words {
			for p := range lv.room {
				want := uint64(0)
				if k == 0 && p < lv.n {
					continue
				} else if p < lv.n {
					want = o.levels[k-1].or(w, p)
				}
				if lv.bits[w*lv.room+p] != want {
					return fmt.Errorf("level %d: word %d of position %d is wrong", k, w, p)
				}
			}
		}
	}
	return nil
}
