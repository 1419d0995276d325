package node

import (
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
	domains, named := domainsOf(m)
	if err != nil || !named {
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
	a := &holding{Core: c, m: m, g: g, rank: g.rank, expires: c.now.Add(c.holdTTL(m)),
		namespace: m.GetGang().GetNamespace(), domains: domains, none: map[spot]bool{}, taken: map[string][]string{},
		reply: &wire.HoldReply{GangUid: m.GetGang().GetUid(), Serial: m.GetSerial()}}
	if m.GetClaimed() {
		a.rank = last // others have left for it: it takes no holds
	}
	c.noteRequest(from, a.namespace, classes)
	a.take(classes)
	defer a.planned.end(g)
	a.room = c.placing(g, m, len(classes), a.expires)
	more := c.reconsider(g, a.room.gangs)
	for _, want := range a.planned.inTurn(m.GetPods()) {
		if i := int(want.GetPodClass()); want.GetPodUid() != "" && i < len(classes) && !a.keeps(want, &a.kinds[i]) {
			a.place(want, &a.kinds[i])
		}
	}
	a.refuse()
	for _, key := range api.SortedKeys(a.taken) {
		c.sendHoldsLost(c.gangs[key], a.taken[key])
	}
	if m.GetShort() {
		a.reply.Left = c.makeSummary()
	}
	c.send(g, &wire.Envelope{Body: &wire.Envelope_HoldReply{HoldReply: a.reply}})
	if more { // of pods that it does not name, too
		c.sendHeld(g)
	}
	if from != c.cfg.Self && len(a.reply.Held)+len(a.reply.Promised) > 0 {
		c.summariseToSelf()
	}
}

// holding is a HoldRequest that is being answered.
type holding struct {
	*Core
	m         *wire.HoldRequest
	g         *gang
	namespace string
	rank      api.Rank
	expires   time.Time
	kinds     []wanted  // by class
	domains   []*domain // that pods are to be in, nil for any
	planned   planned
	room      *placing
	none      map[spot]bool       // no room for another pod there
	taken     map[string][]string // key of a gang -> pods whose holds were taken
	reply     *wire.HoldReply
}

// spot is a class of a HoldRequest, and one of its domains.
type spot struct{ class, domain int }

// wanted is a class of which a HoldRequest names pods.
type wanted struct {
	number   int
	class    *api.Class
	kin      *kin
	counted  *api.Class // as the cache counts it, nil if its namespace has too many terms
	wishing  *api.Class // likewise, with wishes
	full     bool       // no more pods of it are placed
	compared bool       // it was asked whether its constraints may be compared,
	later    bool       // and they may not, for now
	refused  uint32
	inDoubt  uint32 // pods that are on their way, or bound
}

// take reads the classes, and their rules.
func (a *holding) take(classes []*api.Class) {
	a.kinds = make([]wanted, len(classes))
	known := a.groups.last
	ruled := make([]bool, len(classes))
	for i, class := range classes {
		k := &a.kinds[i]
		k.number, k.class, k.kin = i, class, a.kinOf(a.namespace, class)
		if k.counted, ruled[i] = a.placed(k.kin, class, true); !ruled[i] {
			k.counted = nil
		}
	}
	for i := range a.kinds {
		k := &a.kinds[i]
		if k.counted != nil && a.groups.last != known { // again, if one of the others has brought a term
			k.counted, _ = a.placed(k.kin, k.class, true)
		}
		k.wishing = wished(k.counted, k.class)
	}
	a.planned = a.plan(a.g, classes, ruled, a.m)
	for i := range a.kinds {
		if !ruled[i] {
			a.kinds[i].full, a.kinds[i].later = true, true
		}
	}
}

// keeps renews what a pod has, and reports whether nothing is to be found for it: it has a hold or a promise, or is on
// its way. What may not stay ends.
func (a *holding) keeps(want *wire.PodWant, k *wanted) bool {
	uid, in := want.GetPodUid(), a.domains[want.GetDomain()]
	if h := a.g.holds[uid]; h != nil {
		if h.class.Key == k.class.Key && a.cache.CanStay(uid).Fits() && a.isIn(in, h.node) &&
			(!h.ruled || a.planned.stays(k.number, uid, h.node)) {
			h.serial, h.expires = a.m.GetSerial(), api.Later(h.expires, a.expires)
			a.reply.Held = append(a.reply.Held, &wire.Held{PodUid: uid, Node: h.node})
			return true
		}
		a.dropHold(a.g, uid)
		a.planned.dropped = append(a.planned.dropped, uid)
	}
	if p := a.g.promises[uid]; p != nil {
		if p.class.Key == k.class.Key && a.isIn(in, p.room.node) && a.sound(p) {
			p.serial, p.expires = a.m.GetSerial(), api.Later(p.expires, a.expires)
			a.reply.Promised = append(a.reply.Promised, &wire.Held{PodUid: uid, Node: p.room.node})
			return true
		}
		a.dropPromise(p)
	}
	if _, charged := a.cache.Lookup(uid); charged || len(a.rows[uid]) > 0 || a.hasEnded(uid) {
		k.inDoubt++
		return true
	}
	return false
}

// place holds a node for a pod, or promises one, or refuses it.
func (a *holding) place(want *wire.PodWant, k *wanted) {
	uid, in, here := want.GetPodUid(), a.domains[want.GetDomain()], spot{k.number, int(want.GetDomain())}
	if k.full || a.none[here] {
		a.promise(uid, in, k)
		return
	}
	if !k.compared {
		k.compared = true
		if k.later = !a.mayCompare(a.namespace, k.class); k.later {
			k.full = true
			k.refused++
			return
		}
	}
	node, victims, ok := a.planned.place(k.number, uid, in, k.wishing, a.m.GetGrade(), a.rank)
	if !ok {
		a.none[here] = true
		a.promise(uid, in, k)
		return
	}
	for _, v := range victims {
		p, known := a.cache.Lookup(v)
		loser := a.gangs[p.Gang]
		if !known || loser == nil || !a.dropHold(loser, v) {
			a.fault("a hold to be taken is nobody's")
			continue
		}
		a.taken[p.Gang] = append(a.taken[p.Gang], v)
	}
	a.cache.Charge(uid, node, k.counted, cache.Hold, a.g.key, a.g.rank)
	a.holders[a.g.key], k.kin.used = true, true
	a.g.holds[uid] = &hold{node: node, class: k.class, kin: k.kin, ruled: a.planned.took(uid, node),
		serial: a.m.GetSerial(), expires: a.expires}
	a.reply.Held = append(a.reply.Held, &wire.Held{PodUid: uid, Node: node})
}

// promise promises room that others have to leave, or refuses the pod.
func (a *holding) promise(uid string, in *domain, k *wanted) {
	var p *promise
	if !k.later && a.m.GetGrade() == 0 {
		before := a.cache.Compared()
		p = a.room.promise(k.number, uid, k.class, k.counted, k.kin, in, a.planned.without(k.number))
		a.spend(a.namespace, before)
	}
	if p == nil {
		k.refused++
		return
	}
	p.ruled = a.planned.took(uid, p.room.node)
	a.reply.Promised = append(a.reply.Promised, &wire.Held{PodUid: uid, Node: p.room.node})
}

// refuse says of which classes pods got nothing, and what else is known of those.
func (a *holding) refuse() {
	for i := range a.kinds {
		k := &a.kinds[i]
		if k.refused+k.inDoubt == 0 {
			continue
		}
		r := &wire.Refusal{PodClass: uint32(i), Pods: k.refused + k.inDoubt, Later: k.later}
		if k.refused > 0 && !k.later {
			r.Grade = a.planned.grade(i, k.wishing)
		}
		if k.refused > 0 && !k.later && a.takeover.stage == idle && a.m.GetGrade() == 0 {
			before := a.cache.Compared()
			r.Never = a.cache.Never(k.counted)
			a.spend(a.namespace, before)
		}
		a.reply.Refused = append(a.reply.Refused, r)
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
// have run for ten minutes end within the two that a gang is patient. Who is to have left soon by its limit does within
// those two, as far as it keeps it: what it may have looked for nodes, its grace period, and what is added to that are
// included.
const (
	youngest = 60
	lasting  = 600
	soon     = 300
)
