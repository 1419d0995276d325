package node

import (
	"log/slog"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/shard/topology"
)

// Constraints over sets of nodes (package topology). When room is held, they only keep this shard from choosing nodes in vain: others
// place pods at the same time. They are enforced when the rows are durable and the log of intents was seen up to them: a commit that
// binds at once is judged here, one that waits for Bind by its home shard.

// planned is what a request for holds has to respect.
type planned struct {
	core      *Core
	namespace string
	rules     []*topology.Rules // by class
	asked     []*api.Class
	leaned    []leaned        // by class; nil if none leans
	trial     *topology.Trial // nil while no class has rules or leans
	dropped   []string        // pods whose holds ended during the trial
}

// plan reads the rules of classes. It is not ok for a class whose namespace has too much counted.
func (c *Core) plan(g *gang, classes []*api.Class, ok []bool, beside []*wire.Held) planned {
	p := planned{core: c, namespace: g.ref.GetNamespace(), rules: make([]*topology.Rules, len(classes))}
	some := false
	for range 2 { // again, if one of the others has brought a term
		for i, class := range classes {
			if ok[i] {
				p.rules[i], ok[i] = c.topology.RulesOf(p.namespace, class)
				some = some || p.rules[i] != nil
			}
		}
		if !some {
			break
		}
	}
	if leans := p.lean(classes, ok); !some && !leans {
		return p
	}
	p.trial = c.topology.Try()
	for _, uid := range api.SortedKeys(g.holds) { // what the gang has supports the rest of it
		if h := g.holds[uid]; h.ruled {
			p.trial.Add(p.namespace, uid, h.node)
		}
	}
	for _, h := range beside {
		if g.holds[h.GetPodUid()] == nil {
			p.trial.Add(p.namespace, h.GetPodUid(), h.GetNode())
		}
	}
	for _, r := range g.rows {
		if r.phase != done && r.phase != dropped {
			p.trial.Add(r.ns, r.uid, r.node)
		}
	}
	return p
}

// allow returns what the cache asks about nodes for a class, nil if any will do.
func (p *planned) allow(class int) func(number int32) bool {
	r := p.rules[class]
	if r == nil {
		return nil
	}
	return func(number int32) bool { return r.Obstacle(number, true) == topology.None }
}

// stays reports whether a pod may keep its hold.
func (p *planned) stays(class int, uid, node string) bool {
	if p.rules[class] == nil {
		return true
	}
	p.trial.Without(p.namespace, uid)
	if p.rules[class].Obstacle(p.core.topology.Node(node), true) != topology.None {
		return false
	}
	p.trial.Add(p.namespace, uid, node)
	return true
}

// took notes that a pod got a hold.
func (p *planned) took(class int, uid, node string) (ruled bool) {
	if p.rules[class] == nil && !p.leans(class) {
		return false
	}
	p.trial.Add(p.namespace, uid, node)
	return true
}

// end counts the gang's holds as holds.
func (p *planned) end(g *gang) {
	if p.trial == nil {
		return
	}
	p.trial.End()
	for _, uid := range p.dropped {
		p.core.topology.Hold(p.namespace, uid, "")
	}
	for _, uid := range api.SortedKeys(g.holds) {
		if h := g.holds[uid]; h.ruled {
			p.core.topology.Hold(p.namespace, uid, h.node)
		}
	}
}

// unhold ends what a hold, or a row that the log does not show yet, counts as.
func (c *Core) unhold(ruled bool, namespace, uid string) {
	if ruled {
		c.topology.Hold(namespace, uid, "")
	}
}

// judge decides about a durable commit that binds at once, and reports whether it may go on. It may be too early to tell.
func (c *Core) judge(m *commit) bool {
	members := make([]topology.Member, 0, len(m.rows))
	for _, r := range m.rows {
		if r.phase == prepared {
			members = append(members, topology.Member{UID: r.uid, Namespace: r.ns, Version: r.rv, Node: r.node, Class: r.class})
		}
	}
	v := c.topology.Judge(m.place(), members)
	if v.Wait {
		if !c.unjudged[m] {
			c.unjudged[m] = true
			m.deadline = c.now.Add(c.cfg.PreparedLimit)
		} else if !c.now.Before(m.deadline) {
			c.refuseAll(m, "the log of intents was not seen in time")
		}
		return false
	}
	delete(c.unjudged, m)
	if len(v.Against) > 0 {
		c.refuseAll(m, "node "+v.Node+": "+v.Obstacle.String())
		return false
	}
	m.judged = true
	return true
}

// place is the last place of its rows in the log of intents.
func (m *commit) place() (last int64) {
	for _, r := range m.rows {
		if r.key != nil {
			last = max(last, r.key.place)
		}
	}
	return last
}

func (c *Core) refuseAll(m *commit, why string) {
	delete(c.unjudged, m)
	uids := make([]string, len(m.rows))
	for i, r := range m.rows {
		uids[i] = r.uid
	}
	c.refuse(m, wire.CommitOutcome_COMMIT_HOLD_GONE, why, uids)
}

// judgeAll looks again at what could not be judged before.
func (c *Core) judgeAll() {
	if len(c.unjudged) == 0 {
		return
	}
	var all []*commit
	for m := range c.unjudged {
		if m.reply != nil {
			delete(c.unjudged, m)
		} else {
			all = append(all, m)
		}
	}
	sortCommits(all)
	for _, m := range all {
		if m.place() <= c.topology.Position() || !c.now.Before(m.deadline) {
			c.decided(m)
		}
	}
}

// tellExcess names the namespaces whose bound pods carry more terms than are heeded.
func (c *Core) tellExcess() {
	for _, namespace := range api.SortedKeys(c.topology.Excess) {
		delete(c.topology.Excess, namespace)
		c.log(slog.LevelError, "pods of a namespace carry too many different anti-affinity terms: one of a bound pod is not heeded", slog.String("namespace", namespace))
	}
}
