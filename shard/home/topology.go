package home

import (
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
	fresh := func(cm *commit) bool { return cm.cleared == unjudged }
	if fault.On(fault.GangUnjudged) || !slices.ContainsFunc(g.commits, fresh) {
		return true
	}
	var members []topology.Member
	place := int64(0)
	for _, cm := range g.commits {
		if cm.prepared() {
			place = max(place, *cm.place)
		}
		for _, p := range cm.pods {
			if p.commit == cm && p.gang == g {
				members = append(members, topology.Member{UID: p.UID, Namespace: p.Namespace, Version: cm.version(p.UID), Node: p.node, Class: p.asked})
			}
		}
	}
	v := c.rules.topology.Judge(place, members)
	switch {
	case v.Wait:
		c.rules.unjudged[g.id] = g
		c.wakeAt(g, c.now.Add(c.cfg.AskAgain))
		return false
	case len(v.Against) > 0:
		delete(c.rules.unjudged, g.id)
		g.nextOrder()
		c.retreat(g, startOver)
		c.searchers.pause(g)
		return false
	}
	delete(c.rules.unjudged, g.id)
	for _, cm := range g.commits {
		cm.cleared = max(cm.cleared, judged)
	}
	return true
}

// beside are the pods of a gang that other shards keep nodes for. A shard that is asked for more has to know them: the gang is judged
// as a whole, so they support each other and stand in each other's way. Those of a gang that may be bound in part are judged one Commit
// at a time.
func (c *rules) beside(g *gang, shard api.Incarnation, asked []*pod) (out []*wire.Held) {
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
func (c *rules) mayAskAgain(g *gang, r *round, missing []*pod) bool {
	if !r.gained || g.started || !g.boundSince.IsZero() || !slices.ContainsFunc(missing, c.ruled) {
		return false
	}
	r.again()
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
func (c *rules) judgeAgain() {
	for _, id := range api.SortedKeys(c.unjudged) {
		g := c.unjudged[id]
		delete(c.unjudged, id)
		if !g.dropped() && g.state == preparing {
			c.touch(g)
		}
	}
}

// A change lets few pods in, and each search costs messages. So few gangs of a namespace wake at once, and the others little by little:
// those of a class for which there is no node any more do not ask. After a change of which node shards may have heard later than this
// one, they wake once more.
const (
	ruledAtOnce = 64
	ruledMore   = 20
	ruledEvery  = 25 * time.Millisecond
)

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
func (c *rules) founds(g *gang) [][]string {
	p := g.alone()
	if p == nil || len(p.Class.Joins) == 0 {
		return nil
	}
	rules, _ := c.topology.RulesOf(p.Namespace, c.repellers.labelledAs(p))
	keys := rules.Founds()
	if len(keys) == 0 || len(keys) > maxFoundingKeys {
		return nil
	}
	return [][]string{keys}
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

// comesEarly reports whether no domain takes the pod of a gang of one yet, besides those of its kind that have asked for quota and find room
// before it. It sleeps then, and asks nobody: others get the quota, which can use it.
func (c *Core) comesEarly(g *gang) bool {
	p := g.alone()
	if p == nil || len(p.Class.Joins) == 0 || g.charge.reserved() || g.charge.reserve != nil || g.charge.claimed() {
		return false
	}
	c.rules.ask([]*pod{p})
	of := g.kinOf(p)
	if !c.rules.mayEnter(p, of, 0) {
		c.reasons.blockedShort(g, &shortage{pod: p.Pod, class: p.asked, missing: 1, of: 1, lacks: aDomain})
		c.searchers.sleep(g, false)
		return true
	}
	c.rules.ruledSleepers.entering[of]++
	g.search.enters(of)
	return false
}

// wakeRuled wakes some of them.
func (c *searchers) wakeRuled() {
	s := &c.rules.ruledSleepers
	if n := c.rules.topology.Strangers; c.rules.repellers.strangers != n {
		c.rules.wakeUnsaid(n)
	}
	for namespace, own := range c.rules.topology.Opened() {
		if _, soon := s.again[namespace]; own {
			c.rules.openRuled(namespace)
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
			g.search.listRuled(false)
			if g.dropped() || g.search.sleep == nil {
				continue
			}
			a := g.charge.reserve
			vain := a != nil && !a.vain.None()
			if p := g.alone(); p != nil {
				of := g.kinOf(p)
				n, may := woken[of], false
				if g.state == collecting || vain {
					may = c.rules.mayEnter(p, of, n)
				} else {
					may = c.rules.open(p, n+1, 1) > n
				}
				if !may {
					g.search.listRuled(true)
					list = append(list, g)
					continue
				}
				woken[of]++
			}
			g.search.sleep.nodes = c.shards.nodes - 1 // it is over, and others of other namespaces have their turn, too
			if !g.search.reordered(g) {
				g.search.hurry(c.now)
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

// tellTopology takes a shard's word that pods are bound, before the watch shows them.
func (c *rules) tellTopology(g *gang, m *wire.BindResults) {
	for _, r := range m.GetResults() {
		if r.GetOutcome() == wire.BindOutcome_BIND_BOUND {
			c.topology.Bound(g.name.Namespace, r.GetPodUid(), r.GetNode())
		}
	}
}
