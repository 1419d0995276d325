package node

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/cache"
)

// Promises: room that becomes a hold once other pods have left it. A gang for which others are evicted (a claimant) names in its HoldRequests
// the gangs whose pods it waits for (awaits), and single pods. A pod that fits a node only once those pods there are gone is promised the room.
//
// What a claimant was promised on one node is one promisedRoom: some promises, and the pods that they wait for together. Each promise is
// charged in the cache as a hold of its pod, with the part of its requests that the awaited pods do not give: that part is free today, and
// nobody else may take it. When an awaited pod leaves, the charges grow by no more than it gave, so they never exceed what is free. The
// host ports and groups of a promised pod are charged from the beginning.
//
// A node whose room grew is looked at in the same step (handOver), before anything else can take the room: a promise that fits becomes a
// hold, and the home is told without being asked.
//
// Invariants:
//   - A pod is awaited by one gang at most (R23 in bench/prove/claims).
//   - Per node, resource and claimant: promised requests are at most what is charged for them, what is free, and what the awaited pods use.
//   - A promise that fits is a hold at the end of the step (R21).
//
// Constraints over sets of nodes (topology.go) are asked of the node without the pods that leave it, as kube-scheduler
// does. Such a promise waits for all of them. If others are in the way then, its hold is lost.
//
// A promise is in memory, as a hold is: it expires, it ends with its pod, its node and its bucket, and a Withdraw ends it. A restarted shard
// learns of it from the next HoldRequest.

// rooms are the rooms that were promised to gangs once others have left.
type rooms struct {
	promised map[string][]*promisedRoom // by node, in their order
	awaited  map[string]*promisedRoom   // by UID of a pod, or name of another charge, that it waits for
	made     uint64                     // promised so far
	untold   map[string]bool            // gangs of which promises became holds
	ends     int                        // bound pods of which it is known when they leave (ends.go)
}

// promise is room promised to a pod.
type promise struct {
	room    *promisedRoom
	uid     string
	class   *api.Class // as it was asked for
	kin     *kin
	ruled   bool // its hold is to be counted by package topology
	serial  uint64
	expires time.Time
	part    api.Resources // of its requests, that is charged
}

// promisedRoom is what a gang was promised on a node. It has promises.
type promisedRoom struct {
	number   uint64 // in the order in which they were made
	gang     *gang
	node     string
	promises []*promise // in the order in which they were made
	awaits   []string   // UIDs of charges on the node
}

// maxAwaited bounds the gangs and pods that a request may name as leaving.
const maxAwaited = 8192

// best goes before all ranks of gangs that have no claim.
func best(uid string) api.Rank { return api.Rank{Priority: math.MaxInt64, Gang: uid} }

// last goes before no rank.
var last = api.Rank{Priority: math.MinInt64, Order: math.MaxUint64, Gang: strings.Repeat("\xff", 64)}

// setRank ranks a gang; while it has a claim, nobody goes before it. Its holds follow, so that it does not take its own.
func (c *Core) setRank(g *gang, rank api.Rank, claimed bool) {
	rank.Gang = g.ref.GetUid()
	if claimed {
		rank = best(rank.Gang)
	}
	changed := rank != g.rank
	g.rank, g.claimed = rank, claimed
	if !changed {
		return
	}
	for _, uid := range api.SortedKeys(g.holds) {
		c.chargeHold(g, uid, g.holds[uid])
	}
	for _, uid := range api.SortedKeys(g.promises) {
		c.chargePart(g.promises[uid])
	}
}

// awaited is the gangs and pods that a request names as leaving.
type awaited map[string]bool

// names reports whether a charge is of one of them.
func (a awaited) names(c *Core, kind cache.Kind, uid, gang string) bool {
	of := c.gangOf(kind, gang)
	return of != "" && (a[wire.Everybody] || a[of] || a[uid])
}

func awaitedOf(uids []string) awaited {
	out := awaited{}
	for _, uid := range uids[:min(len(uids), maxAwaited)] {
		if uid != "" {
			out[uid] = true
		}
	}
	return out
}

// gangOf returns the UID of the gang that a pod is charged to, "" for none.
func (c *Core) gangOf(kind cache.Kind, gang string) string {
	switch kind {
	case cache.Bound, cache.Foreign:
		return gang
	case cache.Intent:
		if g := c.gangs[gang]; g != nil {
			return g.ref.GetUid()
		}
	}
	return ""
}

// roomOf returns what a gang was promised on a node, nil for nothing.
func (c *rooms) roomOf(g *gang, node string) *promisedRoom {
	for _, r := range c.promised[node] {
		if r.gang == g {
			return r
		}
	}
	return nil
}

// newRoom makes a room. A promise has to follow.
func (c *Core) newRoom(g *gang, node string) *promisedRoom {
	c.rooms.made++
	r := &promisedRoom{number: c.rooms.made, gang: g, node: node}
	c.rooms.promised[node] = append(c.rooms.promised[node], r)
	c.cache.Watch(node, true)
	return r
}

func (c *Core) await(r *promisedRoom, uids []string) {
	for _, uid := range uids {
		r.awaits = append(r.awaits, uid)
		c.rooms.awaited[uid] = r
	}
}

func (c *rooms) unawait(r *promisedRoom, uid string) {
	if c.awaited[uid] == r {
		delete(c.awaited, uid)
	}
}

// renameAwaited is called when an awaited charge has got another name.
func (c *rooms) renameAwaited(old, now string) {
	if r := c.awaited[old]; r != nil {
		c.unawait(r, old)
		r.awaits[slices.Index(r.awaits, old)] = now
		c.awaited[now] = r
	}
}

// addPromise adds a promise that fits a room.
func (c *Core) addPromise(r *promisedRoom, p *promise) {
	p.room = r
	p.kin.used = true
	r.promises = append(r.promises, p)
	r.gang.promises[p.uid] = p
	c.holders[r.gang.key] = true
	c.apportion(r, p)
}

// removePromise takes a promise out of its room, and leaves its charge.
func (c *Core) removePromise(p *promise) {
	r := p.room
	delete(r.gang.promises, p.uid)
	r.promises = slices.DeleteFunc(r.promises, func(o *promise) bool { return o == p })
	r.gang.touched = c.now
	if len(r.promises) > 0 {
		return
	}
	for _, uid := range r.awaits {
		c.rooms.unawait(r, uid)
	}
	left := slices.DeleteFunc(slices.Clone(c.rooms.promised[r.node]), func(o *promisedRoom) bool { return o == r })
	if c.rooms.promised[r.node] = left; len(left) == 0 {
		delete(c.rooms.promised, r.node)
		c.cache.Watch(r.node, false)
	}
}

// dropPromise ends a promise without a word.
func (c *Core) dropPromise(p *promise) {
	c.removePromise(p)
	c.cache.Release(p.uid)
}

// apportion charges for each promise of a room what the awaited pods do not give, in order: charges that shrink first, so that the sum
// never exceeds what is free. One may be new.
func (c *Core) apportion(r *promisedRoom, fresh *promise) {
	give := c.given(r)
	parts := make([]api.Resources, len(r.promises))
	for i, p := range r.promises {
		covered := p.class.Requests.Min(give)
		give = give.Sub(covered).Positive()
		parts[i] = p.class.Requests.Sub(covered).Positive()
		if both := p.part.Min(parts[i]).Positive(); p != fresh && !both.Equal(p.part) {
			p.part = both
			c.chargePart(p)
		}
	}
	for i, p := range r.promises {
		if p == fresh || !p.part.Equal(parts[i]) {
			p.part = parts[i]
			c.chargePart(p)
		}
	}
}

// given is what the awaited pods of a room use.
func (c *Core) given(r *promisedRoom) (sum api.Resources) {
	for _, uid := range r.awaits {
		if p, charged := c.cache.Lookup(uid); charged && p.Node == r.node {
			sum = sum.Add(p.Class.Requests)
		}
	}
	return sum
}

// chargePart charges a promise.
func (c *Core) chargePart(p *promise) {
	full, _ := c.placed(p.kin, p.class, false)
	part := api.MakeClass(api.Class{Requests: p.part, Attach: full.Attach, Constraints: full.Constraints, In: full.In, Avoids: full.Avoids})
	c.cache.Charge(p.uid, p.room.node, part, cache.Hold, p.room.gang.key, p.room.gang.rank)
}

// sound reports whether a promise may be kept: it fits its node once the awaited pods are gone.
func (c *Core) sound(p *promise) bool {
	full, _ := c.placed(p.kin, p.class, false)
	r := p.room
	return c.cache.FitsWithout(full, r.node, append(slices.Clone(r.awaits), p.uid), c.missing(r, p))
}

// adjust charges for the promises of a room what those who are still there do not give, and drops those that have lost their room. It returns
// the pods of these.
func (c *Core) adjust(r *promisedRoom) (lost []string) {
	r.awaits = slices.DeleteFunc(r.awaits, func(uid string) bool {
		p, charged := c.cache.Lookup(uid)
		if charged && p.Node == r.node && (p.Kind.Seen() || p.Kind == cache.Intent) {
			return false
		}
		c.rooms.unawait(r, uid)
		return true
	})
	for len(r.promises) > 0 && !c.covered(r) { // a pod that is awaited has shrunk, or the node has: the last one goes
		p := r.promises[len(r.promises)-1]
		c.dropPromise(p)
		lost = append(lost, p.uid)
	}
	c.apportion(r, nil)
	return lost
}

// convert makes holds of the promises of a room that fit now, and reports whether there were some. All rooms of the node have to be adjusted
// before: what one of them waited for is not free for another.
func (c *Core) convert(r *promisedRoom) (some bool) {
	for _, p := range slices.Clone(r.promises) {
		full, _ := c.placed(p.kin, p.class, false)
		if p.ruled && len(r.awaits) > 0 || !c.cache.FitsWithout(full, r.node, []string{p.uid}, nil) {
			continue
		}
		c.removePromise(p)
		h := &hold{node: r.node, class: p.class, kin: p.kin, ruled: p.ruled, serial: p.serial, expires: p.expires}
		r.gang.holds[p.uid] = h
		c.holders[r.gang.key] = true
		c.chargeHold(r.gang, p.uid, h)
		if h.ruled {
			c.topology.Hold(r.gang.ref.GetNamespace(), p.uid, h.node)
		}
		some = true
	}
	if some {
		c.apportion(r, nil)
	}
	return some
}

// covered reports whether all promises of a room fit together once the awaited pods are gone, as far as requests are concerned.
func (c *Core) covered(r *promisedRoom) bool {
	give := c.given(r)
	var requests, parts api.Resources
	for _, p := range r.promises {
		requests, parts = requests.Add(p.class.Requests), parts.Add(p.part)
	}
	for _, a := range requests {
		if api.AddSat(api.AddSat(c.cache.Free(r.node, a.Resource), parts.Value(a.Resource)), give.Value(a.Resource)) < a.Value {
			return false
		}
	}
	return true
}

// handOver gives rooms that have come free to the gangs that they were promised to, in the step in which they come free, and tells their homes.
func (c *Core) handOver() {
	if len(c.rooms.promised) == 0 || fault.On(fault.PromiseStolen) {
		c.cache.Freed()
		return
	}
	lost := map[string][]string{}
	for nodes := c.cache.Freed(); len(nodes) > 0; nodes = c.cache.Freed() {
		for _, node := range nodes {
			rooms := slices.Clone(c.rooms.promised[node])
			for _, r := range rooms {
				lost[r.gang.key] = append(lost[r.gang.key], c.adjust(r)...)
			}
			for _, r := range rooms {
				if c.convert(r) {
					c.rooms.untold[r.gang.key] = true
				}
			}
		}
	}
	for _, key := range api.SortedKeys(lost) {
		c.sendHoldsLost(c.gangs[key], lost[key])
	}
	c.tellHeld(false)
}

// toldAtOnce is the largest gang, in pods here, whose home is told of each room at once. An answer names all pods that hold room here: with one for
// each pod that leaves, large gangs would cost the square of their size.
const toldAtOnce = 64

// tellHeld tells homes that promises became holds: all of them, or those that have to be told at once.
func (c *Core) tellHeld(all bool) {
	if len(c.rooms.untold) == 0 {
		return
	}
	for _, key := range api.SortedKeys(c.rooms.untold) {
		g := c.gangs[key]
		if g != nil && !all && len(g.promises) > 0 && len(g.holds)+len(g.promises) > toldAtOnce {
			continue // until nothing else is to be done, or the next tick
		}
		delete(c.rooms.untold, key)
		if g != nil {
			c.sendHeld(g)
		}
	}
}

// sendHeld says all that a gang holds here and was promised, without being asked.
func (c *Core) sendHeld(g *gang) {
	reply := &wire.HoldReply{GangUid: g.ref.GetUid(), Serial: g.requested}
	for _, uid := range api.SortedKeys(g.holds) {
		reply.Held = append(reply.Held, &wire.Held{PodUid: uid, Node: g.holds[uid].node})
	}
	for _, uid := range api.SortedKeys(g.promises) {
		reply.Promised = append(reply.Promised, &wire.Held{PodUid: uid, Node: g.promises[uid].room.node})
	}
	c.send(g, &wire.Envelope{Body: &wire.Envelope_HoldReply{HoldReply: reply}})
}

// reconsider looks at what a gang was promised when it names anew who leaves: pods of gangs that do not leave any more are not awaited. It
// reports whether promises became holds.
func (c *Core) reconsider(g *gang, gangs awaited) (some bool) {
	if len(g.promises) == 0 {
		return false
	}
	var lost []string
	for _, r := range c.roomsOf(g) {
		r.awaits = slices.DeleteFunc(r.awaits, func(uid string) bool {
			p, charged := c.cache.Lookup(uid)
			if charged && (p.Gang == g.key || gangs.names(c, p.Kind, uid, p.Gang)) {
				return false
			}
			c.rooms.unawait(r, uid)
			return true
		})
		lost = append(lost, c.adjust(r)...)
		some = c.convert(r) || some
	}
	if len(lost) > 0 {
		c.sendHoldsLost(g, lost)
	}
	return some
}

// roomsOf are the rooms of a gang, in their order.
func (c *Core) roomsOf(g *gang) []*promisedRoom {
	out := make([]*promisedRoom, 0, len(g.promises))
	for _, p := range g.promises {
		out = append(out, p.room)
	}
	slices.SortFunc(out, func(a, b *promisedRoom) int { return cmp.Compare(a.number, b.number) })
	return slices.Compact(out)
}

// keepRoom gives the room of a row that ended without a Binding to its pod, if others have left for the gang: at once if it is free, else
// when the row has left the control store.
func (c *Core) keepRoom(r *row) {
	m := r.commit
	if m == nil || !m.keep && (!r.gang.claimed || len(r.class.Joins) > 0) {
		return
	}
	g := r.gang
	if c.isCharged(r.uid) || len(c.rows[r.uid]) > 0 || c.hasEnded(r.uid) || c.rooms.awaited[r.uid] != nil ||
		c.rooms.awaited[r.charge] != nil || c.sync.out[r.node] || c.nodes[r.node] == nil ||
		c.buckets[api.BucketOf(r.node)] != active {
		return
	}
	p := &promise{uid: r.uid, class: r.class, kin: r.kin, ruled: r.ruled, serial: max(m.serial, g.requested, g.withdrawn), expires: c.now.Add(c.cfg.MaxHoldTTL)}
	room := c.rooms.roomOf(g, r.node)
	if room == nil {
		room = c.newRoom(g, r.node)
	}
	if r.charge != "" {
		c.await(room, []string{r.charge})
	}
	c.addPromise(room, p)
	if !c.covered(room) { // somebody else has bound a pod there
		c.dropPromise(p)
		return
	}
	c.adjust(room)
	c.convert(room)
}

// keepHolds is Withdraw with keep: what a gang holds and was promised stays until its heir asks for it.
func (c *Core) keepHolds(g *gang) {
	until := c.now.Add(c.cfg.MaxHoldTTL)
	for _, h := range g.holds {
		if until.After(h.expires) {
			h.expires = until
		}
	}
	for _, p := range g.promises {
		if until.After(p.expires) {
			p.expires = until
		}
	}
}

// checkPromises is the part of Check about promises.
func (c *Core) checkPromises() error {
	promises := 0
	for key, g := range c.gangs {
		promises += len(g.promises)
		for uid, p := range g.promises {
			at, ok := c.cache.Lookup(uid)
			if !ok || at.Kind != cache.Hold || at.Node != p.room.node || at.Gang != key || !at.Class.Requests.Equal(p.part) {
				return fmt.Errorf("promise to pod %s of gang %s on %s: the cache has %+v", uid, key, p.room.node, at)
			}
			if p.uid != uid || !slices.Contains(p.room.promises, p) || !slices.Contains(c.rooms.promised[p.room.node],
				p.room) || p.room.gang != g {
				return fmt.Errorf("promise to pod %s of gang %s is in no room of its gang", uid, key)
			}
		}
	}
	awaits := map[string]*promisedRoom{}
	for node, rooms := range c.rooms.promised {
		gangs := map[*gang]bool{}
		for _, r := range rooms {
			if len(r.promises) == 0 || r.node != node || gangs[r.gang] {
				return fmt.Errorf("node %s: a room with %d promises, of node %s", node, len(r.promises), r.node)
			}
			gangs[r.gang] = true
			promises -= len(r.promises)
			for _, uid := range r.awaits {
				if other := awaits[uid]; other != nil && !fault.On(fault.PromiseReplaced) {
					return fmt.Errorf("pod %s on %s is awaited by gangs %s and %s", uid, node, other.gang.key, r.gang.key)
				}
				awaits[uid] = r
				if c.rooms.awaited[uid] != r && !fault.On(fault.PromiseReplaced) {
					return fmt.Errorf("pod %s on %s is awaited, and not listed", uid, node)
				}
			}
			if fault.On(fault.PromiseStolen) {
				continue
			}
			if !c.covered(r) {
				return fmt.Errorf("node %s: gang %s was promised more than there will be", node, r.gang.key)
			}
			for _, p := range r.promises {
				full, _ := c.placed(p.kin, p.class, false)
				if !(p.ruled && len(r.awaits) > 0) && c.cache.FitsWithout(full, node, []string{p.uid}, nil) {
					return fmt.Errorf("node %s: pod %s was promised room, and has it", node, p.uid)
				}
			}
		}
	}
	if promises != 0 {
		return fmt.Errorf("%d more promises of gangs than on nodes", promises)
	}
	for uid := range c.rooms.awaited {
		if awaits[uid] == nil {
			return fmt.Errorf("pod %s is listed as awaited, and no room waits for it", uid)
		}
	}
	for uid := range c.leaving {
		if _, bound := c.bound[uid]; !bound {
			return fmt.Errorf("pod %s is leaving, and not bound", uid)
		}
	}
	return nil
}

// missing is what promises of a room but one request more than is charged for them.
func (c *Core) missing(room *promisedRoom, but *promise) (sum api.Resources) {
	for _, p := range room.promises {
		if p != but {
			sum = sum.Add(p.class.Requests.Sub(p.part).Positive())
		}
	}
	return sum
}
