package home

import (
	"math/bits"
	"slices"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/shard/topology"
)

// Gangs whose pods affinity, anti-affinity or spread may keep from nodes: who of them asks, in which order, and who
// sleeps.

// rules is what is known here of constraints over sets of nodes, and which gangs they keep waiting.
type rules struct {
	*common
	shards *shards

	topology      *topology.View
	unjudged      map[string]*gang // prepared, and not judged yet
	ruledSleepers ruledSleepers
	repellers     repellers
}

// leaveEntry notes that a gang that asked for quota and room has it, or gives up.
func (c *rules) leaveEntry(g *gang, to state) {
	s := &c.ruledSleepers
	of := g.search.entered
	if of == (kin{}) {
		return
	}
	g.search.enters(kin{})
	if s.entering[of]--; s.entering[of] == 0 {
		delete(s.entering, of)
	}
	if to == preparing {
		s.turns.put(of, turn{room: c.now})
	}
}

// noteStuck notes that a gang gives up.
func (c *rules) noteStuck(g *gang) {
	if of := g.search.entered; of != (kin{}) {
		last, _ := c.ruledSleepers.turns.get(of)
		c.ruledSleepers.turns.put(of, turn{room: last.room, stuck: true})
	}
}

// ruled reports whether constraints over sets of nodes may keep a pod from nodes.
func (c *rules) ruled(p *pod) bool {
	return c.ruledClass(p.Namespace, p.Class)
}

// ruledClass reports the same about pods of a class. A shard that refuses one may take another as soon as something
// is counted otherwise.
func (c *rules) ruledClass(namespace string, class *api.Class) bool {
	return isConstrained(class) || c.topology.Concerned(namespace)
}

// isConstrained reports whether pods of a class require something of others themselves.
func isConstrained(class *api.Class) bool { return len(class.Joins)+len(class.Repels) > 0 }

// ruledSleepers are the gangs that sleep although such constraints may be what they wait for, by namespace, in the
// order in which they went to sleep.
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

// kin are the pods of a namespace with equal classes, in one queue and of one priority: what one of them waits for at
// the coordinator, all do.
type kin struct {
	namespace, queue string
	priority         int64
	class            uint64 // its hash
}

func (g *gang) kinOf(p *pod) kin { return kin{p.Namespace, g.queue, p.Priority, p.asked.Hash()} }

// shut says that no pod of a class found a node.
type shut struct {
	room uint64 // shards.room then
	at   time.Time
}

// sleepRuled notes that a gang sleeps.
func (c *rules) sleepRuled(g *gang) {
	s := &c.ruledSleepers
	for _, p := range g.members {
		if p.candidate() && p.stage == nowhere && c.ruled(p) {
			c.topology.RulesOf(p.Namespace, p.asked) // or it would not be counted here, but at the node shards alone
			if !g.search.inRuled {
				g.search.listRuled(true)
				s.of[g.name.Namespace] = append(s.of[g.name.Namespace], g)
			}
		}
	}
}

// openRuled notes that more may fit for a namespace.
func (c *rules) openRuled(namespace string) {
	s := &c.ruledSleepers
	s.opened[namespace] = true
	s.again[namespace] = c.now.Add(c.cfg.AskAgain)
}

// ruledShut bounds the classes of a namespace that are known to find no node.
const ruledShut = 1024

// shutFor notes that no pod of some was placed: others of their classes need not ask until something changes.
func (c *rules) shutFor(g *gang, missing []*pod) {
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
		of[p.asked.Hash()+beside] = shut{c.shards.room, c.now}
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

// open returns how many pods like one may be placed now, as far as domains are concerned; with more, if others are
// placed before them.
func (c *rules) open(p *pod, most, more int) int {
	if len(p.Class.Joins) == 0 {
		return most
	}
	rules, ok := c.topology.RulesOf(p.Namespace, c.repellers.labelledAs(p))
	if !ok || rules == nil {
		return most
	}
	return rules.Open(most, more)
}

// barred reports whether no domain takes the pod of a gang of one now, whatever room nodes have. The node shards
// count the same pods, so none of them is asked. Such a gang takes no slot: many may wait, and others get theirs.
func (c *rules) barred(g *gang) bool {
	p := g.alone()
	return p != nil && c.open(p, 1, 0) == 0
}

// mayEnter reports whether a pod may ask for quota beside those that have, and some more. Others will be bound before
// it has room, so it may come some waves early; but not if the last one found none.
func (c *rules) mayEnter(p *pod, of kin, more int) bool {
	n, early := c.ruledSleepers.entering[of]+more, topology.Ahead
	if last, _ := c.ruledSleepers.turns.get(of); last.stuck {
		early = 0
	}
	return c.open(p, n+1, early) > n
}

// kinMoved returns when a pod like one that may have to wait for others found room last, the zero time for never.
func (c *rules) kinMoved(g *gang, p *pod) time.Time {
	if len(p.Class.Joins) == 0 {
		return time.Time{}
	}
	last, _ := c.ruledSleepers.turns.get(g.kinOf(p))
	return last.room
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

// isShut reports whether a search for pods is in vain. Not for long: what keeps a pod from a node may be a hold that
// only its shard knows.
func (c *rules) isShut(g *gang, missing []*pod) bool {
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
		if shut && s.room == c.shards.room && c.now.Before(s.at.Add(c.cfg.BackoffMax)) {
			return true
		}
	}
	return false
}
