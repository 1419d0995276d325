package home

import (
	"math/bits"
	"slices"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/shard/topology"
)

// Constraints over sets of nodes (package topology). A gang whose rows are at several shards is judged here, when all of them are durable
// and the log of intents was seen up to the last; only then Bind is said. A gang that found no node because of such constraints is woken
// when something is counted otherwise for its namespace. A gang of one pod that no domain takes does not even ask for its quota.

// mayBind reports whether a prepared gang may be bound. If it may not, it starts over.
func (c *Core) mayBind(g *gang) bool {
	if fault.On(fault.GangUnjudged) || !slices.ContainsFunc(g.commits, func(cm *commit) bool { return !cm.judged }) {
		return true
	}
	var members []topology.Member
	place := int64(0)
	for _, cm := range g.commits {
		place = max(place, cm.place)
		for _, p := range cm.pods {
			if p.commit == cm && p.gang == g {
				members = append(members, topology.Member{UID: p.UID, Namespace: p.Namespace, Version: cm.version(p.UID), Node: p.node, Class: p.asked})
			}
		}
	}
	v := c.topology.Judge(place, members)
	switch {
	case v.Wait:
		c.unjudged[g.id] = g
		c.wakeAt(g, c.now.Add(c.cfg.AskAgain))
		return false
	case len(v.Against) > 0:
		delete(c.unjudged, g.id)
		g.nextOrder()
		c.retreat(g, startOver)
		c.pause(g)
		return false
	}
	delete(c.unjudged, g.id)
	for _, cm := range g.commits {
		cm.judged = true
	}
	return true
}

// beside are the pods of a gang that other shards keep nodes for. A shard that is asked for more has to know them: the gang is judged
// as a whole, so they support each other and stand in each other's way. Those of a gang that may be bound in part are judged one Commit
// at a time.
func (c *Core) beside(g *gang, shard api.Incarnation, asked []*pod) (out []*wire.Held) {
	if g.started || !g.boundSince.IsZero() {
		return nil
	}
	others := g.pick(func(p *pod) bool { return (p.stage == held || p.stage == committed) && p.shard != shard })
	if !slices.ContainsFunc(asked, c.ruled) && !slices.ContainsFunc(others, c.ruled) {
		return nil
	}
	for _, p := range others {
		if out = append(out, &wire.Held{PodUid: p.UID, Node: p.node}); len(out) == c.cfg.HoldPods {
			break
		}
	}
	return out
}

// mayAskAgain has a round ask the shards that refused pods once more, if others of the gang have got holds since it began: pods to be
// spread, for one, find room in a domain as soon as all others have as many, and these may be nodes of another shard.
func (c *Core) mayAskAgain(g *gang, r *round, missing []*pod) bool {
	if !r.gained || g.started || !g.boundSince.IsZero() || !slices.ContainsFunc(missing, c.ruled) {
		return false
	}
	r.gained, r.trying = false, false
	clear(r.done)
	clear(r.refused)
	clear(r.vain)
	if r.area != nil {
		clear(r.asked)
	}
	return true
}

// version is the one that a Commit names for a pod.
func (cm *commit) version(uid string) string {
	for _, p := range cm.body.GetPods() {
		if p.GetUid() == uid {
			return p.GetResourceVersion()
		}
	}
	return ""
}

// judgeAgain looks at the gangs that could not be judged yet.
func (c *Core) judgeAgain() {
	for _, id := range api.SortedKeys(c.unjudged) {
		g := c.unjudged[id]
		delete(c.unjudged, id)
		if !g.dropped && g.state == preparing {
			c.touch(g)
		}
	}
}

// ruled reports whether constraints over sets of nodes may keep a pod from nodes.
func (c *Core) ruled(p *pod) bool {
	return c.ruledClass(p.Namespace, p.Class)
}

// ruledClass reports the same about pods of a class. A shard that refuses one may take another as soon as something is counted otherwise.
func (c *Core) ruledClass(namespace string, class *api.Class) bool {
	return isConstrained(class) || c.topology.Concerned(namespace)
}

// isConstrained reports whether pods of a class require something of others themselves.
func isConstrained(class *api.Class) bool { return len(class.Joins)+len(class.Repels) > 0 }

// ruledSleepers are the gangs that sleep although such constraints may be what they wait for, by namespace, in the order in which they
// went to sleep.
type ruledSleepers struct {
	of     map[string][]*gang
	opened map[string]bool // something is counted otherwise
	left   map[string]int  // so many of the first are still to wake because of that
	again  map[string]time.Time
	next   time.Time
	shut   map[string]map[uint64]shut // by namespace, and hash of a class and of its company

	entering map[kin]int       // gangs of one pod that have asked for quota and have no room yet
	turns    recent[kin, turn] // what came of those that asked before
}

// turn is what came of the last gang of one pod that asked for quota and room.
type turn struct {
	room  time.Time // when one found room last
	stuck bool      // the last one gave up
}

// kin are the pods of a namespace with equal classes, in one queue and of one priority: what one of them waits for at the coordinator, all do.
type kin struct {
	namespace, queue string
	priority         int64
	class            uint64 // its hash
}

func (g *gang) kinOf(p *pod) kin { return kin{p.Namespace, g.queue, p.Priority, p.asked.Hash()} }

// shut says that no pod of a class found a node.
type shut struct {
	room uint64 // Core.room then
	at   time.Time
}

// A change lets few pods in, and each search costs messages. So few gangs of a namespace wake at once, and the others little by little:
// those of a class for which there is no node any more do not ask. After a change of which node shards may have heard later than this
// one, they wake once more.
const (
	ruledAtOnce = 64
	ruledMore   = 20
	ruledEvery  = 25 * time.Millisecond
	ruledShut   = 1024 // classes of a namespace that are known to find no node
)

// sleepRuled notes that a gang sleeps.
func (c *Core) sleepRuled(g *gang) {
	s := &c.ruledSleepers
	for _, p := range g.members {
		if p.candidate() && p.stage == nowhere && c.ruled(p) {
			c.topology.RulesOf(p.Namespace, p.asked) // or it would not be counted here, but at the node shards alone
			if !g.search.inRuled {
				g.search.inRuled = true
				s.of[g.name.Namespace] = append(s.of[g.name.Namespace], g)
			}
		}
	}
}

// openRuled notes that more may fit for a namespace.
func (c *Core) openRuled(namespace string) {
	s := &c.ruledSleepers
	s.opened[namespace] = true
	s.again[namespace] = c.now.Add(c.cfg.AskAgain)
}

// shutFor notes that no pod of some was placed: others of their classes need not ask until something changes.
func (c *Core) shutFor(g *gang, missing []*pod) {
	missing = slices.DeleteFunc(slices.Clone(missing), func(p *pod) bool { return !c.ruled(p) })
	if len(missing) == 0 {
		return
	}
	beside := g.company()
	for _, p := range missing {
		of := c.ruledSleepers.shut[p.Namespace]
		if of == nil || len(of) >= ruledShut {
			of = map[uint64]shut{}
			c.ruledSleepers.shut[p.Namespace] = of
		}
		of[p.asked.Hash()+beside] = shut{c.room, c.now}
	}
}

// company tells gangs apart whose pods are of several classes, 0 for all others: what a pod finds no node beside in one
// of them, it may in another.
func (g *gang) company() (sum uint64) {
	of := askedBy(g.members)
	if len(of) < 2 {
		return 0
	}
	for class := range of {
		sum += bits.RotateLeft64(class, 1)
	}
	return sum
}

// open returns how many pods like one may be placed now, as far as domains are concerned; with more, if others are placed before them.
func (c *Core) open(p *pod, most, more int) int {
	if len(p.Class.Joins) == 0 {
		return most
	}
	rules, ok := c.topology.RulesOf(p.Namespace, c.repellers.labelledAs(p))
	if !ok || rules == nil {
		return most
	}
	return rules.Open(most, more)
}

// Pods of an app that are no gang may require one another, too. The first one then chooses the domain for all that are
// to come, and nobody knows how many: it goes where most pods like it have room, not where it fits best. Apps that come
// at once would all choose the same domain, so its room is divided among those that may still grow there. What other
// namespaces do counts little: else one could drive the apps of the others from the best domains.

// founding is a choice of a domain that was made of late.
type founding struct {
	by     kin
	domain string // labels and values
	at     time.Time
}

const (
	growsFor   = 10 * time.Second // an app is taken to grow after its first pod has chosen
	maxFounded = 256              // choices that are remembered
)

// founds returns the domains of which a single pod chooses one for others, as those that it requires are like it, and
// there is none yet.
func founds(c *Core, g *gang) []domainLevel {
	p := g.alone()
	if p == nil || len(p.Class.Joins) == 0 {
		return nil
	}
	rules, _ := c.topology.RulesOf(p.Namespace, c.repellers.labelledAs(p))
	keys := rules.Founds()
	if len(keys) == 0 || len(keys) > maxFoundingKeys {
		return nil
	}
	return []domainLevel{{keys: keys}}
}

// maxFoundingKeys is how many labels a Probe may name.
const maxFoundingKeys = 3

// found notes a choice.
func (s *surveys) found(now time.Time, by kin, domain string) {
	s.founded = slices.DeleteFunc(s.founded, func(f founding) bool { return f.by == by || now.Sub(f.at) >= growsFor })
	if n := len(s.founded); n >= maxFounded {
		s.founded = s.founded[n-maxFounded+1:]
	}
	s.founded = append(s.founded, founding{by, domain, now})
}

// sharersWith returns how many may want the room of a domain beside pods of one kind: other apps of the namespace, and
// other namespaces.
func (s *surveys) sharersWith(now time.Time, own kin) map[string]int64 {
	type who struct{ domain, namespace string }
	known, n := map[who]bool{}, map[string]int64{}
	for _, f := range s.founded {
		if f.by == own || now.Sub(f.at) >= growsFor {
			continue
		}
		if by := (who{f.domain, f.by.namespace}); f.by.namespace == own.namespace || !known[by] {
			known[by] = true
			n[f.domain]++
		}
	}
	return n
}

// isShut reports whether a search for pods is in vain. Not for long: what keeps a pod from a node may be a hold that only its shard knows.
func (c *Core) isShut(g *gang, missing []*pod) bool {
	if len(missing) == 1 && c.open(missing[0], 1, 0) == 0 {
		return true
	}
	of := c.ruledSleepers.shut[g.name.Namespace]
	if len(of) == 0 {
		return false
	}
	beside := g.company()
	for _, p := range missing {
		s, shut := of[p.asked.Hash()+beside]
		if shut && s.room == c.room && c.now.Before(s.at.Add(c.cfg.BackoffMax)) {
			return true
		}
	}
	return false
}

// barred reports whether no domain takes the pod of a gang of one now, whatever room nodes have. The node shards count the same pods, so none
// of them is asked. Such a gang takes no slot: many may wait, and others get theirs.
func (c *Core) barred(g *gang) bool {
	p := g.alone()
	return p != nil && c.open(p, 1, 0) == 0
}

// comesEarly reports whether no domain takes the pod of a gang of one yet, besides those of its kind that have asked for quota and find room
// before it. It sleeps then, and asks nobody: others get the quota, which can use it.
func (c *Core) comesEarly(g *gang) bool {
	p := g.alone()
	if p == nil || len(p.Class.Joins) == 0 || g.charge.reserved || g.charge.reserve != nil || g.charge.claimed() {
		return false
	}
	c.ask([]*pod{p})
	of := g.kinOf(p)
	if !c.mayEnter(p, of, 0) {
		c.blockedShort(g, &shortage{pod: p.Pod, class: p.asked, missing: 1, of: 1, early: true})
		c.sleep(g, false)
		return true
	}
	g.search.entered = of
	c.ruledSleepers.entering[of]++
	return false
}

// mayEnter reports whether a pod may ask for quota beside those that have, and some more. Others will be bound before it has room, so it may
// come some waves early; but not if the last one found none.
func (c *Core) mayEnter(p *pod, of kin, more int) bool {
	n, early := c.ruledSleepers.entering[of]+more, topology.Ahead
	if last, _ := c.ruledSleepers.turns.get(of); last.stuck {
		early = 0
	}
	return c.open(p, n+1, early) > n
}

// leaveEntry notes that a gang that asked for quota and room has it, or gives up.
func (c *Core) leaveEntry(g *gang, to state) {
	s := &c.ruledSleepers
	of := g.search.entered
	if of == (kin{}) {
		return
	}
	g.search.entered = kin{}
	if s.entering[of]--; s.entering[of] == 0 {
		delete(s.entering, of)
	}
	if to == preparing {
		s.turns.put(of, turn{room: c.now})
	}
}

// noteStuck notes that a gang gives up.
func (c *Core) noteStuck(g *gang) {
	if of := g.search.entered; of != (kin{}) {
		last, _ := c.ruledSleepers.turns.get(of)
		c.ruledSleepers.turns.put(of, turn{room: last.room, stuck: true})
	}
}

// kinMoved returns when a pod like one that may have to wait for others found room last, the zero time for never.
func (c *Core) kinMoved(g *gang, p *pod) time.Time {
	if len(p.Class.Joins) == 0 {
		return time.Time{}
	}
	last, _ := c.ruledSleepers.turns.get(g.kinOf(p))
	return last.room
}

// wakeRuled wakes some of them.
func (c *Core) wakeRuled() {
	s := &c.ruledSleepers
	if n := c.topology.Strangers; c.repellers.strangers != n {
		c.wakeUnsaid(n)
	}
	for namespace, own := range c.topology.Opened() {
		if _, soon := s.again[namespace]; own {
			c.openRuled(namespace)
		} else if !soon { // pods of others come and go as these like
			s.again[namespace] = c.now.Add(c.cfg.AskAgain)
		}
	}
	if len(s.opened)+len(s.again)+len(s.left) == 0 || c.now.Before(s.next) {
		return
	}
	s.next = c.now.Add(ruledEvery)
	for namespace, at := range s.again {
		if !c.now.Before(at) {
			delete(s.again, namespace)
			s.opened[namespace] = true
		}
	}
	for namespace := range s.opened {
		s.left[namespace] = len(s.of[namespace])
	}
	for _, namespace := range api.SortedKeys(s.left) {
		most := ruledMore
		if s.opened[namespace] {
			delete(s.opened, namespace)
			delete(s.shut, namespace)
			most = ruledAtOnce
		}
		woken := map[kin]int{}
		list := s.of[namespace]
		for looked := 0; len(list) > 0 && s.left[namespace] > 0 && looked < most; looked++ {
			g := list[0]
			s.left[namespace]--
			list[0], list = nil, list[1:]
			g.search.inRuled = false
			if g.dropped || g.search.sleep == nil {
				continue
			}
			a := g.charge.reserve
			vain := a != nil && !a.vain.None()
			if p := g.alone(); p != nil {
				of := g.kinOf(p)
				n, may := woken[of], false
				if g.state == collecting || vain {
					may = c.mayEnter(p, of, n)
				} else {
					may = c.open(p, n+1, 1) > n
				}
				if !may {
					g.search.inRuled = true
					list = append(list, g)
					continue
				}
				woken[of]++
			}
			g.search.sleep.nodes = c.nodes - 1 // it is over, and others of other namespaces have their turn, too
			if !g.search.reordered(g) {
				g.search.sleep.notBefore, g.search.backoff = c.now, 0
			}
			c.touch(g)
		}
		if s.of[namespace] = list; len(list) == 0 {
			delete(s.of, namespace)
		}
		if len(list) == 0 || s.left[namespace] == 0 {
			delete(s.left, namespace)
		}
	}
}

// alone returns the pod of a gang that has no other.
func (g *gang) alone() *pod {
	if len(g.members) == 1 {
		for _, p := range g.members {
			return p
		}
	}
	return nil
}

// tellTopology takes a shard's word that pods are bound, before the watch shows them.
func (c *Core) tellTopology(g *gang, m *wire.BindResults) {
	for _, r := range m.GetResults() {
		if r.GetOutcome() == wire.BindOutcome_BIND_BOUND {
			c.topology.Bound(g.name.Namespace, r.GetPodUid(), r.GetNode())
		}
	}
}
