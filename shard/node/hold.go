package node

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/cache"
)

// holdRequest holds capacity for as many of the named pods as fit. A HoldRequest is declarative and idempotent: existing holds of
// the named pods are renewed, whatever serial they were requested under, and a retransmission is answered with the current state.
// A hold that a commit would refuse by now is not renewed; otherwise it would be requested and refused in turn, for ever.
func (c *Core) holdRequest(from api.Incarnation, m *wire.HoldRequest) {
	if !c.ready || !c.fromHome(from, m.GetGang()) {
		return
	}
	classes, err := readClasses(m.GetClasses())
	if err != nil {
		c.ignored++
		return
	}
	g := c.gang(m.GetGang())
	if m.GetSerial() < g.requested || m.GetSerial() <= g.withdrawn {
		c.ignored++ // late
		return
	}
	g.requested = m.GetSerial()
	c.setRank(g, wire.ToRank(m.GetRank()), m.GetClaimed())
	rank := g.rank
	if m.GetClaimed() {
		rank = last // others have left for it: it takes no holds
	}
	expires := c.now.Add(c.holdTTL(m))
	namespace := m.GetGang().GetNamespace()
	c.noteRequest(from, namespace, classes)

	reply := &wire.HoldReply{GangUid: m.GetGang().GetUid(), Serial: m.GetSerial()}
	full := make([]bool, len(classes))  // no more pods of the class are placed
	asked := make([]bool, len(classes)) // mayCompare,
	later := make([]bool, len(classes)) // and it said no
	refused := make([]uint32, len(classes))
	kins, counted := make([]*kin, len(classes)), make([]*api.Class, len(classes)) // as the cache counts them
	known := c.groups.last
	for i, class := range classes {
		kins[i] = c.kinOf(namespace, class)
		if placed, ok := c.placed(kins[i], class, true); ok {
			counted[i] = placed
		} else {
			full[i], later[i] = true, true // its namespace has too many terms
		}
	}
	wishing := make([]*api.Class, len(classes)) // counted, with wishes
	for i, class := range classes {             // again, if one of the others has brought a term
		if counted[i] != nil && c.groups.last != known {
			counted[i], _ = c.placed(kins[i], class, true)
		}
		wishing[i] = wished(counted[i], class)
	}
	ruled := make([]bool, len(classes))
	for i := range classes {
		ruled[i] = !full[i]
	}
	plan := c.plan(g, classes, ruled, m)
	domains, named := domainsOf(m)
	if !named {
		c.ignored++
		return
	}
	type place struct{ class, domain int }
	none := map[place]bool{} // no room for another pod of the class in the domain
	defer plan.end(g)
	for i := range classes {
		if !ruled[i] {
			full[i], later[i] = true, true
		}
	}
	room := c.placing(g, m, len(classes), expires)
	more := c.reconsider(g, room.gangs)
	inDoubt := make([]uint32, len(classes)) // pods that are on their way, or bound
	taken := map[string][]string{}          // key of a gang -> pods whose holds were taken
	for _, want := range plan.inTurn(m.GetPods()) {
		uid, i := want.GetPodUid(), int(want.GetPodClass())
		if uid == "" || i >= len(classes) {
			continue
		}
		in, here := domains[want.GetDomain()], place{i, int(want.GetDomain())}
		if h := g.holds[uid]; h != nil {
			if h.class.Key == classes[i].Key && c.cache.CanStay(uid).Fits() && c.isIn(in, h.node) && (!h.ruled || plan.stays(i, uid, h.node)) {
				h.serial = m.GetSerial()
				if expires.After(h.expires) {
					h.expires = expires
				}
				reply.Held = append(reply.Held, &wire.Held{PodUid: uid, Node: h.node})
				continue
			}
			c.dropHold(g, uid)
			plan.dropped = append(plan.dropped, uid)
		}
		if p := g.promises[uid]; p != nil {
			if p.class.Key == classes[i].Key && c.isIn(in, p.room.node) && c.sound(p) {
				p.serial = m.GetSerial()
				if expires.After(p.expires) {
					p.expires = expires
				}
				reply.Promised = append(reply.Promised, &wire.Held{PodUid: uid, Node: p.room.node})
				continue
			}
			c.dropPromise(p)
		}
		if _, charged := c.cache.Lookup(uid); charged || len(c.rows[uid]) > 0 || c.hasEnded(uid) {
			inDoubt[i]++
			continue
		}
		promise := func() {
			var p *promise
			if !later[i] && m.GetGrade() == 0 {
				before := c.cache.Compared()
				p = room.promise(i, uid, classes[i], counted[i], kins[i], in, plan.without(i))
				c.spend(namespace, before)
			}
			if p == nil {
				refused[i]++
				return
			}
			p.ruled = plan.took(uid, p.room.node)
			reply.Promised = append(reply.Promised, &wire.Held{PodUid: uid, Node: p.room.node})
		}
		if full[i] || none[here] {
			promise()
			continue
		}
		if !asked[i] {
			asked[i] = true
			if later[i] = !c.mayCompare(namespace, classes[i]); later[i] {
				full[i] = true
				refused[i]++
				continue
			}
		}
		node, victims, ok := plan.place(i, uid, in, wishing[i], m.GetGrade(), rank)
		if !ok {
			none[here] = true
			promise()
			continue
		}
		for _, v := range victims {
			p, known := c.cache.Lookup(v)
			loser := c.gangs[p.Gang]
			if !known || loser == nil || !c.dropHold(loser, v) {
				c.fault("a hold to be taken is nobody's")
				continue
			}
			taken[p.Gang] = append(taken[p.Gang], v)
		}
		c.cache.Charge(uid, node, counted[i], cache.Hold, g.key, g.rank)
		c.holders[g.key], kins[i].used = true, true
		g.holds[uid] = &hold{node: node, class: classes[i], kin: kins[i], ruled: plan.took(uid, node), serial: m.GetSerial(), expires: expires}
		reply.Held = append(reply.Held, &wire.Held{PodUid: uid, Node: node})
	}
	for i := range classes {
		if refused[i]+inDoubt[i] == 0 {
			continue
		}
		r := &wire.Refusal{PodClass: uint32(i), Pods: refused[i] + inDoubt[i], Later: later[i]}
		if refused[i] > 0 && !later[i] {
			r.Grade = plan.grade(i, wishing[i])
		}
		if refused[i] > 0 && !later[i] && c.takeover.stage == idle && m.GetGrade() == 0 {
			before := c.cache.Compared()
			r.Never = c.cache.Never(counted[i])
			c.spend(namespace, before)
		}
		reply.Refused = append(reply.Refused, r)
	}
	for _, key := range api.SortedKeys(taken) {
		c.sendHoldsLost(c.gangs[key], taken[key])
	}
	if m.GetShort() {
		reply.Left = c.makeSummary()
	}
	c.send(g, &wire.Envelope{Body: &wire.Envelope_HoldReply{HoldReply: reply}})
	if more { // of pods that it does not name, too
		c.sendHeld(g)
	}
	if from != c.cfg.Self && len(reply.Held)+len(reply.Promised) > 0 {
		c.summariseToSelf()
	}
}

func (c *Core) holdTTL(m *wire.HoldRequest) time.Duration {
	limit := c.cfg.MaxHoldTTL
	if m.GetPatient() {
		limit = c.cfg.MaxPatientTTL
	}
	if m.GetTtlMs() <= 0 {
		return c.cfg.HoldTTL
	}
	if m.GetTtlMs() >= limit.Milliseconds() {
		return limit
	}
	return time.Duration(m.GetTtlMs()) * time.Millisecond
}

// dropHold ends a hold or a promise without a word, and reports whether the gang had one for the pod.
func (c *Core) dropHold(g *gang, uid string) bool {
	if p := g.promises[uid]; p != nil {
		c.dropPromise(p)
		return true
	}
	h := g.holds[uid]
	if h == nil {
		return false
	}
	c.unhold(h.ruled, g.ref.GetNamespace(), uid)
	delete(g.holds, uid)
	c.cache.Release(uid)
	g.touched = c.now
	return true
}

// dropHolds ends a gang's holds and promises that were asked for up to a serial.
func (c *Core) dropHolds(g *gang, serial uint64) {
	for _, uid := range api.SortedKeys(g.holds) {
		if g.holds[uid].serial <= serial {
			c.dropHold(g, uid)
		}
	}
	for _, uid := range api.SortedKeys(g.promises) {
		if g.promises[uid].serial <= serial {
			c.dropHold(g, uid)
		}
	}
	g.claimed = false
}

func (c *Core) sendHoldsLost(g *gang, pods []string) {
	slices.Sort(pods)
	for part := range slices.Chunk(pods, c.cfg.MaxNamed) {
		c.send(g, &wire.Envelope{Body: &wire.Envelope_HoldsLost{HoldsLost: &wire.HoldsLost{GangUid: g.ref.GetUid(), Serial: g.requested, PodUids: part}}})
	}
}

// loseHold ends the hold or the promise of a pod, if it has one, and tells.
func (c *Core) loseHold(uid string) {
	if p, ok := c.cache.Lookup(uid); ok && p.Kind == cache.Hold {
		if g := c.gangs[p.Gang]; g != nil && c.dropHold(g, uid) {
			c.sendHoldsLost(g, []string{uid})
		}
	}
}

// loseHoldsOn ends all holds and promises on a node, and tells.
func (c *Core) loseHoldsOn(node string) {
	view, ok := c.cache.Node(node)
	if !ok {
		return
	}
	lost := map[string][]string{}
	for _, p := range view.Pods {
		if g := c.gangs[p.Gang]; p.Kind == cache.Hold && g != nil && c.dropHold(g, p.UID) {
			lost[p.Gang] = append(lost[p.Gang], p.UID)
		}
	}
	for _, key := range api.SortedKeys(lost) {
		c.sendHoldsLost(c.gangs[key], lost[key])
	}
}

func (c *Core) expireHolds() {
	if fault.On(fault.LeakedHold) {
		return
	}
	lost := map[string][]string{}
	for key := range c.holders {
		g := c.gangs[key]
		if g == nil || len(g.holds)+len(g.promises) == 0 {
			delete(c.holders, key)
			continue
		}
		for pod, h := range g.holds {
			if !c.now.Before(h.expires) {
				lost[key] = append(lost[key], pod)
			}
		}
		for pod, p := range g.promises {
			if !c.now.Before(p.expires) {
				lost[key] = append(lost[key], pod)
			}
		}
		slices.Sort(lost[key])
	}
	for _, key := range api.SortedKeys(lost) {
		g := c.gangs[key]
		for _, pod := range lost[key] {
			c.dropHold(g, pod)
		}
		c.sendHoldsLost(g, lost[key])
	}
}

// Nodes that become free on their own. A patient gang waits for whoever is there (wire.Everybody), as a claimant does
// for those that it has evicted. It is promised the same, but for that whoever is entitled to such pods comes first.

// Pods are all taken for young, in seconds, up to the first, and for services from the second on: few of those that
// have run for ten minutes end within the two that a gang is patient.
const (
	youngest = 60
	lasting  = 600
)

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
	if len(c.awaited) == 0 || len(l.gangs) == 0 {
		return
	}
	rooms := map[string]*promisedRoom{} // by node and gang
	for uid, r := range c.awaited {
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

// readClasses reads what a home shard says about its pods; only a broken one says what cannot be read.
func readClasses(in []*wire.PodClass) ([]*api.Class, error) {
	out := make([]*api.Class, len(in))
	for i, p := range in {
		class, err := wire.ToClass(p)
		if err != nil {
			return nil, fmt.Errorf("read pod class %d: %w", i, err)
		}
		for _, list := range []api.Resources{class.Requests, class.Attach} {
			for _, a := range list {
				if a.Value < 0 {
					return nil, fmt.Errorf("read pod class %d: %s is negative", i, a.Resource)
				}
			}
		}
		out[i] = class
	}
	return out, nil
}
