package node

import (
	"cmp"
	"encoding/binary"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/fault"
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
	order     uint32          // as in the HoldRequest
	alone     bool            // it is for a gang of one, whose row may wait for others: those of a gang at several shards may not
}

// plan reads the rules of classes. It is not ok for a class whose namespace has too much counted.
func (c *Core) plan(g *gang, classes []*api.Class, ok []bool, m *wire.HoldRequest) planned {
	p := planned{core: c, order: m.GetOrder(), asked: classes, namespace: g.ref.GetNamespace(),
		alone: len(m.GetPods()) == 1 && m.GetPods()[0].GetPodUid() == g.ref.GetUid()}
	var beside []string
	for _, h := range m.GetBeside() {
		beside = append(beside, h.GetPodUid())
	}
	p.rules = c.topology.RulesAmong(p.namespace, classes, beside, ok)
	some := slices.ContainsFunc(p.rules, func(r *topology.Rules) bool { return r != nil })
	if leans := p.lean(classes, ok); !some && !leans {
		return p
	}
	asked := p.tries(g, m, ok)
	if asked == nil {
		return p
	}
	p.trial = c.topology.Try(asked)
	for _, uid := range api.SortedKeys(g.holds) { // what the gang has supports the rest of it
		h := g.holds[uid]
		h.ruled = true
		p.trial.Add(p.namespace, uid, h.node)
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

// tries returns what a trial asks, nil for nothing. Where so much is asked about each pod that the trial would take too long, leanings are not
// heeded, nor are classes with rules.
func (p *planned) tries(g *gang, m *wire.HoldRequest, ok []bool) topology.Asked {
	uids := api.SortedKeys(g.holds)
	for _, w := range m.GetPods() {
		uids = append(uids, w.GetPodUid())
	}
	rules, all := topology.Asked{}, topology.Asked{}
	for i := range p.asked {
		rules.Rules(p.rules[i])
		all.Rules(p.rules[i])
		all.Leanings(p.leaningsOf(i))
	}
	if !p.core.topology.Heavy(all, p.namespace, uids) {
		return all
	}
	p.leaned = nil
	if !p.core.topology.Heavy(rules, p.namespace, uids) {
		return rules
	}
	for i := range p.rules {
		ok[i] = ok[i] && p.rules[i] == nil
		p.rules[i] = nil
	}
	return nil
}

// place finds a node for a pod of a class that is counted as another one. Where none may take it now, one will do that may once the pods
// that are on their way are bound: its row waits for them.
func (p *planned) place(class int, uid string, in *domain, counted *api.Class, least uint32, rank api.Rank) (
	node string, victims []string, ok bool,
) {
	if p.order >= drawn {
		if node, victims, ok = p.placeWhere(class, in, counted, least, rank, p.some(uid, p.allow(class))); ok {
			return node, victims, true
		}
	}
	if node, victims, ok = p.placeWhere(class, in, counted, least, rank, p.allow(class)); ok {
		return node, victims, true
	}
	r := p.rules[class]
	if r == nil || !r.Spreads() || !p.alone {
		return "", nil, false
	}
	return p.placeWhere(class, in, counted, least, rank, func(number int32) bool {
		p.core.cache.Look(r.Cost())
		return r.Later(number, true) == topology.None
	})
}

// allow returns what the cache asks about nodes for a class, nil if any will do.
func (p *planned) allow(class int) func(number int32) bool {
	r := p.rules[class]
	if r == nil {
		return nil
	}
	return func(number int32) bool {
		p.core.cache.Look(r.Cost())
		return r.Obstacle(number, true) == topology.None
	}
}

// without returns how to ask whether a class may have a pod on a node once pods there are gone.
func (p *planned) without(class int) mayNode {
	r := p.rules[class]
	return func(node string, gone []string) bool {
		return r == nil || mayWithout(p.core, p.trial, r, p.core.topology.Node(node), gone)
	}
}

// drawn is the first order in which a pod goes to any node that takes it: where the best nodes leave no room for
// others, these may.
const drawn = 3

// some allows every other node that is allowed, as the order and the pod have it.
func (p *planned) some(uid string, allow func(number int32) bool) func(number int32) bool {
	seed := binary.LittleEndian.AppendUint32([]byte(uid), p.order)
	return func(number int32) bool {
		named := append(slices.Clip(seed), topology.NameOf(p.core.topology, number)...)
		return xxhash.Sum64(named)%2 == 0 && (allow == nil || allow(number))
	}
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

// inTurn returns pods in the order in which they are placed: first those that ask for no others, which may be whom the rest asks for.
func (p *planned) inTurn(pods []*wire.PodWant) []*wire.PodWant {
	asks := func(w *wire.PodWant) int {
		if i := int(w.GetPodClass()); i < len(p.rules) && p.rules[i].AsksForOthers() {
			return 1
		}
		return 0
	}
	if p.order > 0 || p.trial == nil || !slices.ContainsFunc(p.rules, (*topology.Rules).AsksForOthers) {
		return pods
	}
	return slices.SortedStableFunc(slices.Values(pods), func(a, b *wire.PodWant) int { return cmp.Compare(asks(a), asks(b)) })
}

// took notes that a pod got a hold. One without constraints counts, too: others of its gang may ask for it, or avoid it.
func (p *planned) took(uid, node string) (ruled bool) {
	if p.trial == nil {
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

// For how long the rows of a commit wait without any change for other domains to have as many pods. Shards plan at the same time, and rows are
// in the log as it happens: pods of one domain may come before those that they rely on, or be more than were meant to be. Later pods go to
// the other domains, so such rows are bound before long, and to refuse them costs each pod a new search, and the log two entries. Where no pod
// is on its way to the other domains, as far as is known here, the wait is brief: maybe none will come.
const (
	behindLimit = 2 * time.Second
	behindBrief = behindLimit / 8
)

// behind is what a commit waits for.
type behind struct {
	topology.Behind
	stamp   uint64    // of it, when it was looked at
	changed time.Time // then the stamp was seen to be another one
}

// look notes what a commit waits for now.
func (b *behind) look(now time.Time, at topology.Behind) {
	if stamp := at.Stamp(); b.None() || b.stamp != stamp {
		b.stamp, b.changed = stamp, now
	}
	b.Behind = at
}

// limit returns until when a commit waits unless something changes.
func (b *behind) limit() time.Time {
	if b.Rises() {
		return b.changed.Add(behindLimit)
	}
	return b.changed.Add(behindBrief)
}

func (b *behind) still() bool { return !b.None() && b.Stamp() == b.stamp }

// judge decides about a durable commit that binds at once, and reports whether it may go on. It may be too early to tell.
func (c *Core) judge(m *commit) bool {
	v := c.topology.Judge(m.place(), m.members())
	if v.Behind.None() {
		m.behind = behind{}
	} else {
		m.behind.look(c.now, v.Behind)
	}
	if v.Wait {
		if !c.unjudged[m] {
			c.unjudged[m] = true
			m.deadline = c.now.Add(c.cfg.PreparedLimit)
		}
		switch {
		case !c.waitedLong(m):
		case v.Behind.None():
			c.refuseAll(m, "the log of intents was not seen in time")
		default:
			c.refuseAll(m, "node "+m.rows[0].node+": "+topology.Skewed.String())
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

// members are the pods that are to be bound.
func (m *commit) members() []topology.Member {
	members := make([]topology.Member, 0, len(m.rows))
	for _, r := range m.rows {
		if r.phase == prepared {
			members = append(members, topology.Member{UID: r.uid, Namespace: r.ns, Version: r.rv, Node: r.node, Class: r.class})
		}
	}
	return members
}

// dropUnfit gives up the rows of a commit that relied on rows of it which were given up since it was judged. Rows at other shards count
// for none of them then: where they are enough, the pods find their places at the next try.
func (c *Core) dropUnfit(m *commit) {
	left := m.members()
	if len(left) == len(m.rows) || fault.On(fault.LeftUnjudged) {
		return
	}
	unfit := c.topology.Unfit(m.place(), left)
	c.dropWhere(m, func(r *row) bool { return unfit[r.uid] })
}

// waitedLong reports whether a commit that cannot be judged yet is to wait no longer.
func (c *Core) waitedLong(m *commit) bool {
	return !c.now.Before(m.deadline) || !m.behind.None() && !c.now.Before(m.behind.limit())
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

// judgeAll looks again at what could not be judged before. Of those that wait because of one domain, the first is looked at until it may go
// on, and only when something was counted otherwise. At each tick those are that waited for long enough.
func (c *Core) judgeAll(tick bool) {
	if len(c.unjudged) == 0 {
		return
	}
	var all []*commit
	for m := range c.unjudged {
		if m.reply != nil {
			delete(c.unjudged, m)
		} else if !m.behind.still() || tick && c.waitedLong(m) {
			all = append(all, m)
		}
	}
	slices.SortFunc(all, func(a, b *commit) int {
		return cmp.Or(cmp.Compare(a.place(), b.place()), cmp.Compare(a.rows[0].index, b.rows[0].index), strings.Compare(a.gang.ref.GetUid(), b.gang.ref.GetUid()), cmp.Compare(a.serial, b.serial))
	})
	waits := map[topology.Behind]bool{}
	for _, m := range all {
		if b := &m.behind; waits[b.Behind] && !c.waitedLong(m) {
			b.look(c.now, b.Behind)
			continue
		}
		if m.place() <= c.topology.Position() || !c.now.Before(m.deadline) {
			c.decided(m)
		}
		if !m.behind.None() {
			waits[m.behind.Behind] = true
		}
	}
}

// tellExcess names the namespaces whose bound pods carry more terms than are heeded.
func (c *Core) tellExcess() {
	for _, namespace := range api.SortedKeys(c.topology.Excess) {
		delete(c.topology.Excess, namespace)
		c.log(slog.LevelError, "namespace exceeds its limit of anti-affinity terms; ignoring one",
			slog.String("namespace", namespace))
	}
}
