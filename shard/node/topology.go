package node

import (
	"cmp"
	"log/slog"
	"slices"
	"strings"
	"time"

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
	alone     bool            // it is for a gang of one, whose row may wait for others: those of a gang at several shards may not
}

// plan reads the rules of classes. It is not ok for a class whose namespace has too much counted.
func (c *Core) plan(g *gang, classes []*api.Class, ok []bool, m *wire.HoldRequest) planned {
	p := planned{core: c, asked: classes, namespace: g.ref.GetNamespace(), rules: make([]*topology.Rules, len(classes)), alone: len(m.GetPods()) == 1 && m.GetPods()[0].GetPodUid() == g.ref.GetUid()}
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
	for _, h := range m.GetBeside() {
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

// place finds a node for a pod of a class that is counted as another one. Where none may take it now, one will do that may once the pods
// that are on their way are bound: its row waits for them.
func (p *planned) place(class int, in *domain, counted *api.Class, least uint32, rank api.Rank) (node string, victims []string, ok bool) {
	if node, victims, ok = p.placeWhere(class, in, counted, least, rank, p.allow(class)); ok {
		return node, victims, true
	}
	r := p.rules[class]
	if r == nil || !r.Spreads() || !p.alone || p.core.now.Before(p.core.doubts[doubtKey{p.namespace, string(p.asked[class].Joins)}].until) {
		return "", nil, false
	}
	return p.placeWhere(class, in, counted, least, rank, func(number int32) bool { return r.Later(number, true) == topology.None })
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
	r, n := p.rules[class], p.core.topology.Node(node)
	if r.Obstacle(n, true) != topology.None && !(p.alone && r.Later(n, true) == topology.None) {
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

// behindLimit is for how long the rows of a commit wait for others before them. Elsewhere there may be room meanwhile.
const behindLimit = 2 * time.Second

// behind is what a commit waits for that may be bound once earlier rows have bound their pods.
type behind struct {
	rules *topology.Rules // nil: it does not
	stamp uint64          // of them, when it was looked at
}

// doubt is a pause in which no hold relies on what is on its way. That may be holds of others, of which no rows are in the log when a row that
// relies on them is judged. So when a spread has refused many rows, their like get no such holds for a while, for longer each time, until a row
// has waited with success.
type doubt struct {
	many  int // rows that were refused since
	until time.Time
	pause time.Duration
}

// doubtKey says which pods are alike.
type doubtKey struct{ namespace, joins string }

const (
	doubtMin = 250 * time.Millisecond
	doubtMax = 4 * time.Second
	doubted  = 64 // rows that are refused before there is a pause
)

// doubt begins a pause for pods like those of a commit.
func (c *Core) doubt(m *commit) {
	key := doubtKey{m.rows[0].ns, string(m.rows[0].class.Joins)}
	d := c.doubts[key]
	if d.many++; d.many <= doubted {
		d.until = c.now
	} else if !c.now.Before(d.until) { // else others of them were refused for the same reason
		d.pause = min(max(2*d.pause, doubtMin), doubtMax)
		d.until = c.now.Add(d.pause)
	}
	c.doubts[key] = d
}

func (b *behind) still() bool { return b.rules != nil && b.rules.Stamp() == b.stamp }

// judge decides about a durable commit that binds at once, and reports whether it may go on. It may be too early to tell.
func (c *Core) judge(m *commit) bool {
	members := make([]topology.Member, 0, len(m.rows))
	for _, r := range m.rows {
		if r.phase == prepared {
			members = append(members, topology.Member{UID: r.uid, Namespace: r.ns, Version: r.rv, Node: r.node, Class: r.class})
		}
	}
	v := c.topology.Judge(m.place(), members)
	waited := m.behind.rules != nil
	m.behind.rules = v.Behind
	if v.Wait {
		if v.Behind != nil {
			m.behind.stamp = v.Behind.Stamp()
		}
		if !c.unjudged[m] {
			c.unjudged[m] = true
			m.deadline = c.now.Add(c.cfg.PreparedLimit)
		} else if v.Behind != nil && !c.now.Before(m.deadline.Add(behindLimit-c.cfg.PreparedLimit)) {
			c.doubt(m)
			c.refuseAll(m, "node "+m.rows[0].node+": "+topology.Skewed.String())
		} else if !c.now.Before(m.deadline) {
			c.refuseAll(m, "the log of intents was not seen in time")
		}
		return false
	}
	delete(c.unjudged, m)
	if len(v.Against) > 0 {
		if v.Obstacle == topology.Skewed {
			c.doubt(m)
		}
		c.refuseAll(m, "node "+v.Node+": "+v.Obstacle.String())
		return false
	}
	if m.judged = true; waited {
		delete(c.doubts, doubtKey{m.rows[0].ns, string(m.rows[0].class.Joins)})
	}
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

// judgeAll looks again at what could not be judged before. Of those that wait for earlier rows because of the same rules, the first is looked
// at until it may go on, and only when something was counted otherwise. Now and then all of them are.
func (c *Core) judgeAll(each bool) {
	if len(c.unjudged) == 0 {
		return
	}
	var all []*commit
	for m := range c.unjudged {
		if m.reply != nil {
			delete(c.unjudged, m)
		} else if each || !m.behind.still() {
			all = append(all, m)
		}
	}
	slices.SortFunc(all, func(a, b *commit) int {
		return cmp.Or(cmp.Compare(a.place(), b.place()), cmp.Compare(a.rows[0].index, b.rows[0].index), strings.Compare(a.gang.ref.GetUid(), b.gang.ref.GetUid()), cmp.Compare(a.serial, b.serial))
	})
	waits := map[*topology.Rules]bool{}
	for _, m := range all {
		if b := &m.behind; b.rules != nil && waits[b.rules] && !each {
			b.stamp = b.rules.Stamp()
			continue
		}
		if m.place() <= c.topology.Position() || !c.now.Before(m.deadline) {
			c.decided(m)
		}
		if m.behind.rules != nil {
			waits[m.behind.rules] = true
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
