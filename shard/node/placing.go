package node

import (
	"cmp"
	"math/bits"
	"slices"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/cache"
)

// Which room a pod is promised that others have to leave first.

// placing is what a request with awaits looks for.
type placing struct {
	core    *Core
	gang    *gang
	gangs   awaited
	nodes   []cache.NodePods // with pods of those gangs; nil: not looked for yet
	sought  bool
	next    []int // by class: the nodes before have no room, now and for the rest of the request
	expires time.Time
	serial  uint64
}

// promise finds room for a pod of a class, which is counted as another one, on nodes with pods that leave.
func (l *placing) promise(i int, uid string, class, counted *api.Class, k *kin, in *domain, may mayNode) *promise {
	c := l.core
	if len(l.gangs) == 0 {
		return nil
	}
	if !l.sought {
		l.sought = true
		l.nodes = c.cache.PodsBy(func(kind cache.Kind, uid, gang string) bool {
			return l.gangs.names(c, kind, uid, gang)
		})
		if l.gangs[wire.Everybody] {
			l.soonestFirst()
		}
	}
	for ; l.next[i] < len(l.nodes); l.next[i]++ {
		at := &l.nodes[l.next[i]]
		if !c.isIn(in, at.Node) {
			continue
		}
		room := c.rooms.roomOf(l.gang, at.Node)
		awaits, ok := c.wouldFit(l.gang, room, at, counted, may)
		if !ok {
			continue
		}
		if room == nil {
			room = c.newRoom(l.gang, at.Node)
		}
		c.await(room, awaits)
		p := &promise{uid: uid, class: class, kin: k, serial: l.serial, expires: l.expires}
		c.addPromise(room, p)
		return p
	}
	return nil
}

// wouldFit returns which pods of a node a pod has to wait for beside those that its gang's room (nil: none) waits for.
func (c *Core) wouldFit(g *gang, room *promisedRoom, at *cache.NodePods, of *api.Class, may mayNode) ([]string, bool) {
	var before []string
	var less api.Resources
	if room != nil {
		before, less = room.awaits, c.missing(room, nil)
	}
	fits := func(more []string) bool {
		gone := slices.Concat(before, more)
		return c.cache.FitsWithout(of, at.Node, gone, less) && may(at.Node, gone)
	}
	if len(before) > 0 && fits(nil) {
		return nil, true
	}
	var more []string
	for _, deleting := range []bool{true, false} { // those that leave anyway first
		for _, uid := range at.UIDs {
			if other := c.rooms.awaited[uid]; other != nil && (other.gang == g || !fault.On(fault.PromiseReplaced)) {
				continue
			}
			if c.leavesSoon(uid) == deleting && c.isCharged(uid) {
				more = append(more, uid)
			}
		}
	}
	if len(more) == 0 || !fits(more) {
		return nil, false
	}
	n := 1 + slices.IndexFunc(more, func(uid string) bool { return fits(more[:slices.Index(more, uid)+1]) })
	more = slices.Clone(more[:n])
	for i := len(more) - 2; i >= 0; i-- { // none that is not needed; without the last it does not fit
		if spared := slices.Delete(slices.Clone(more), i, i+1); fits(spared) {
			more = spared
		}
	}
	return more, true
}

func (c *Core) placing(g *gang, m *wire.HoldRequest, classes int, expires time.Time) *placing {
	l := &placing{core: c, gang: g, gangs: awaitedOf(m.GetAwaits()), next: make([]int, classes), expires: expires,
		serial: m.GetSerial()}
	if g.drains = l.gangs[wire.Everybody]; !g.drains {
		l.yield()
	}
	return l
}

// yield ends what patient gangs were promised in place of pods that a claimant names.
func (l *placing) yield() {
	c := l.core
	if len(c.rooms.awaited) == 0 || len(l.gangs) == 0 {
		return
	}
	rooms := map[string]*promisedRoom{} // by node and gang
	for uid, r := range c.rooms.awaited {
		p, charged := c.cache.Lookup(uid)
		if charged && r.gang.drains && r.gang != l.gang && l.gangs.names(c, p.Kind, uid, p.Gang) {
			rooms[r.node+" "+r.gang.key] = r
		}
	}
	for _, key := range api.SortedKeys(rooms) {
		r, lost := rooms[key], []string(nil)
		for _, p := range slices.Clone(r.promises) {
			c.dropPromise(p)
			lost = append(lost, p.uid)
		}
		c.sendHoldsLost(r.gang, lost)
	}
}

// soonestFirst leaves out nodes of services, and sorts the others by when their pods may be expected to leave. Nothing
// says so, but what has run for long runs for longer: nodes whose oldest pod is the youngest, within a factor of two,
// come first, and of these the ones with the least to leave.
func (l *placing) soonestFirst() {
	c := l.core
	type order struct {
		age, use int64
	}
	orders := make(map[string]order, len(l.nodes))
	for _, at := range l.nodes {
		var o order
		for _, uid := range at.UIDs {
			p, _ := c.cache.Lookup(uid)
			if b, seen := c.bound[uid]; seen {
				o.age = max(o.age, c.now.Unix()-b.since)
			}
			o.use += p.Class.Requests.Value("cpu")
		}
		orders[at.Node] = o
	}
	l.nodes = slices.DeleteFunc(l.nodes, func(at cache.NodePods) bool { return orders[at.Node].age >= lasting })
	kind := func(age int64) int { return bits.Len64(uint64(max(0, age)) / youngest) }
	slices.SortStableFunc(l.nodes, func(a, b cache.NodePods) int {
		x, y := orders[a.Node], orders[b.Node]
		return cmp.Or(cmp.Compare(kind(x.age), kind(y.age)), cmp.Compare(x.use, y.use))
	})
}
