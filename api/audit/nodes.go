package audit

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"basalt.dev/basalt/api"
)

type node struct {
	name        string
	known       bool
	since       time.Time // when it was first seen
	allocatable api.Resources
	uses        [3]api.Resources // by count.as
	states      map[string]*nodeState
	relabelled  time.Time       // when it was last seen with other labels, or to have come back; zero for never
	versions    []nodeVersion   // what decides who may run there: the newest last, and older ones for a while
	ports       map[string]*pod // pods with host ports, by UID
	strangers   map[string]*pod // pods of our scheduler that somebody else bound, by UID
}

// nodeState is one resource of one node.
type nodeState struct {
	prevTotal, prevAvailable int64
	shrank                   time.Time // when what is there for us last became less
	over                     bool
	excused                  bool // it went over because what is there shrank
	grew                     bool // more was added after the shrinking had long been visible
}

func (a *Auditor) node(name string) *node {
	n := a.cluster.nodes[name]
	if n == nil {
		n = &node{name: name, states: map[string]*nodeState{}}
		a.cluster.nodes[name] = n
	}
	return n
}

func (a *Auditor) nodesReplaced(nodes []*v1.Node) {
	there := map[string]bool{}
	for _, n := range nodes {
		there[n.Name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(a.cluster.nodes)) {
		if a.cluster.nodes[name].known && !there[name] {
			a.nodeGone(name)
		}
	}
	for _, n := range nodes {
		a.nodeSeen(n)
	}
}

func (a *Auditor) nodeSeen(o *v1.Node) {
	n := a.node(o.Name)
	allocatable := api.FromNode(api.StripNode(o), a.cfg.Ignore).Allocatable
	a.nodeVersion(n, o)
	if n.known && n.allocatable.Equal(allocatable) {
		return
	}
	for _, x := range allocatable {
		if x.Value > n.allocatable.Value(x.Resource) { // whoever put pods there may have seen this before us
			delete(a.lasting, atOnce(n, x.Resource))
		}
	}
	if !n.known {
		clear(n.states)
		n.since = a.now
	}
	n.known, n.allocatable = true, allocatable
	a.judgeNode(n)
	a.recountStrangers(n)
}

// mustBeCharged reports whether a bound pod has to be charged to a queue. One that somebody else bound has to be when
// it has started on a node that exists: until then its node may have no room for it. Where queues are restricted to
// namespaces it may be charged nowhere, which is not judged here. Nor is one that is being deleted: when it should have
// gone long ago, the one that takes its place is charged instead.
func (a *Auditor) mustBeCharged(p *pod) bool {
	if !p.foreign || p.leaving {
		return !p.leaving
	}
	n := a.cluster.nodes[p.node]
	return n != nil && n.known && p.started && a.store.restricted == 0
}

func (a *Auditor) recountStrangers(n *node) {
	for _, uid := range slices.Sorted(maps.Keys(n.strangers)) {
		a.recount(n.strangers[uid])
	}
}

func (a *Auditor) nodeGone(name string) {
	n := a.cluster.nodes[name]
	if n == nil {
		return
	}
	a.lose(n)
	n.known, n.allocatable, n.relabelled = false, nil, a.now
	a.judgeNode(n)
	a.recountStrangers(n)
	if n.uses[asBound].IsZero() && n.uses[asPending].IsZero() && n.uses[asForeign].IsZero() {
		delete(a.cluster.nodes, name)
	}
}

func atOnce(n *node, resource string) lastingKey {
	return lastingKey{Overcommit, "node " + n.name, resource + " at once"}
}

func forLong(n *node, resource string) lastingKey {
	return lastingKey{Overcommit, "node " + n.name, resource}
}

// judgeNode compares what we put on a node with what is there for us: allocatable without what foreigners use. When
// that shrinks below what we hold, nobody of us is to blame, but for adding more when it had long been visible.
//
// Bound pods come in one stream, so more of them than there is room for is wrong even for a moment; only the node's own
// growth may be late, and is waited for. Intents come in another stream, which may run ahead of the pods that made
// room.
func (a *Auditor) judgeNode(n *node) {
	if a.cluster.deferred != nil {
		a.cluster.deferred[n.name] = true
		return
	}
	for _, name := range resourcesOf(n.allocatable, n.uses[asBound], n.uses[asPending], n.uses[asForeign]) {
		bound, pending := n.uses[asBound].Value(name), n.uses[asPending].Value(name)
		total := api.AddSat(bound, pending)
		available := api.AddSat(n.allocatable.Value(name), -n.uses[asForeign].Value(name))
		st := n.states[name]
		if st == nil {
			st = &nodeState{prevAvailable: available}
			n.states[name] = st
			if n.since.Equal(a.now) &&
				total > available { // what was there when the node came was put there under an older sight of it
				st.shrank = a.now
			}
		}
		if available < st.prevAvailable {
			st.shrank = a.now
		}
		over := n.known && total > available && total > 0 // what others put there alone is not ours to judge
		switch long := a.now.Sub(st.shrank) > a.cfg.Lag; {
		case !over:
			st.excused, st.grew = false, false
		case !st.over:
			st.excused = !long
		case st.excused && long && total > st.prevTotal:
			st.grew = true
		}
		st.over, st.prevTotal, st.prevAvailable = over, total, available
		there, foreign := n.allocatable.Value(name), n.uses[asForeign].Value(name)
		say := func(since time.Time) { // as it was when it began
			a.violate(Violation{Kind: Overcommit, Object: "node " + n.name, Revisions: []int64{a.revision},
				Message: fmt.Sprintf("%s: bound pods take %s, intents %s; there are %s, of which foreign pods take %s; since %s",
					name, api.FormatAmount(name, bound),
					api.FormatAmount(name, pending), api.FormatAmount(name, there), api.FormatAmount(name,
						foreign), since.Format(clock))})
		}
		if over && !st.excused && bound > available {
			a.lasts(atOnce(n, name), true, a.cfg.Lag, say)
		}
		a.lasts(forLong(n, name), over && (!st.excused || st.grew), a.cfg.Lag, say)
	}
}

// offered returns what nodes that are neither cordoned nor ill have of a resource for us, as they were last seen.
func (c *cluster) offered(name string) (sum int64) {
	if len(c.nodes) == 0 || name == api.ResourceGangs { // nobody has said, or they do not decide
		return math.MaxInt64
	}
	for _, n := range c.nodes {
		ill := false
		if v := len(n.versions); v > 0 {
			spec := n.versions[v-1].node.Spec
			ill = spec.Unschedulable || slices.ContainsFunc(spec.Taints, func(t v1.Taint) bool {
				return strings.HasPrefix(t.Key, "node.kubernetes.io/")
			})
		}
		if n.known && !ill {
			sum = api.AddSat(sum, api.AddSat(n.allocatable.Value(name), -n.uses[asForeign].Value(name)))
		}
	}
	return sum
}
