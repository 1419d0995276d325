package home

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	k8slabels "k8s.io/apimachinery/pkg/labels"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/shard/fair"
	"basalt.dev/basalt/shard/home/report"
	"basalt.dev/basalt/shard/topology"
)

// reasons is why gangs wait, with what node shards say of it.
type reasons struct {
	*common
	census *census
	shards *shards
	rules  *rules

	explanations explanations
}

// Why no node takes a pod. A search asks only the node shards that seem to have room, so what they refuse says little. When it has
// failed, every node shard is asked about the class of one pod that found no room, and the answers are added up: users read one count
// over all nodes, whoever owns them.
//
// These are words, and nothing depends on them. A question is not retransmitted, and a shard that does not answer in time is left out.
// Each class is asked about at most once in explainEvery, for all gangs that have pods of it, and the questions of one namespace have
// a budget.
const (
	explainEvery = 5 * time.Second   // between two questions about a class, and two looks at positions,
	explainMost  = 12 * explainEvery // and at most, while the last answers are not of all nodes

	maxConstraints = 3   // of a kind, that are named,
	maxConstraint  = 200 // each with no more bytes

	maxExplained        = 1024 // classes that are remembered
	explainsByNamespace = 20   // questions a second that a namespace may cause, and
	explainsAtOnce      = 40   // at once
)

// explained is what node shards say of a class.
type explained struct {
	class *api.Class
	tied  api.Tie         // whether volumes are among its node affinity
	words string          // of the last question that ended, "" before,
	alone string          // and for a pod that waits by itself: it is not told that nodes are available
	last  api.NodeReasons // what they say

	asked   time.Time
	pause   time.Duration // until it is asked again; 0 if all nodes were counted, and none has room
	serial  uint64
	answers poll            // nil when no question is open
	sum     api.NodeReasons // of those that have answered
	asker   string          // the namespace of the gang that asked,
	behind  string          // and of the one for which no shard had counted its nodes when a question ended
	gangs   map[string]bool // that wait for the answer
}

// explanations are what is known of the classes that found no room.
type explanations struct {
	classes map[string]*explained // by api.Class.Key
	open    map[uint64]*explained // by serial
	serial  uint64
	tokens  fair.Tokens
	spent   fair.Budget
}

// shortage is what the last round of a search lacked.
type shortage struct {
	pod         *api.Pod   // one of the pods that found no room,
	class       *api.Class // with what it was asked for
	missing, of int
	lacks       lack

	denied *wire.Denied // of a gang that is not admitted because the nodes lack room, nil else
}

// lack is what there is not for a pod.
type lack uint8

const (
	capacity lack = iota // at all, or for now
	aNode                // that would take it if it were empty
	aDomain              // of a topology: nobody has asked for quota
)

// reason says it, with the words of the node shards.
func (s *shortage) reason(words string) report.Reason {
	if s.denied != nil && s.lacks != aNode {
		r := report.Denied(s.denied)
		if words != "" {
			r.Message += "; " + s.ofOne(words)
		}
		return r
	}
	if s.pod.Note != "" {
		words = cmp.Or(words, "no shard has enough free capacity") + "; " + s.pod.Note
	}
	switch {
	case s.lacks == aNode && s.denied != nil:
		return report.InVain(report.FitsNoNode(s.pod, words), s.denied)
	case s.lacks == aNode:
		return report.FitsNoNode(s.pod, words)
	}
	return report.Unschedulable(s.missing, s.of, s.ofOne(words))
}

// ofOne says that the words are of one pod of a gang: node shards do not know what the others would take.
func (s *shortage) ofOne(words string) string {
	if s.of <= 1 || strings.HasPrefix(words, "0/") {
		return words
	}
	return strings.Replace(words, " nodes are available", " nodes are available to such a pod by itself", 1)
}

// blockedBy has a gang blocked because some of its pods found no room.
func (c *reasons) blockedBy(g *gang, missing []*pod) {
	p := missing[0]
	c.blockedShort(g, &shortage{pod: p.Pod, class: p.asked, missing: len(missing), of: max(len(missing), g.tally.charged)})
}

// blockedShort has a gang blocked for want of room, and has node shards asked why there is none.
func (c *reasons) blockedShort(g *gang, s *shortage) {
	g.search.explain(s)
	g.block(c.whyShort(g, c.whyNoRoom(g, s)))
}

// said returns the words of the node shards, "" before they have answered.
func (x *explained) said(pods int) string {
	switch {
	case x == nil:
		return ""
	case pods <= 1:
		return x.alone
	}
	return x.words
}

// notInTurn is the reason of nodes that would take a pod which waits by itself: it is counted again.
const notInTurn = "node(s) had no room when it was tried"

// alone is what is said of nodes to a pod that waits by itself.
func alone(r api.NodeReasons) string {
	if r.Fit > 0 {
		r.Counts = append(slices.Clone(r.Counts), api.ReasonCount{Reason: notInTurn, Nodes: r.Fit})
		r.Fit = 0
		r.Sort()
	}
	return r.String()
}

// recount asks again about the class of a pod that a gang has no room for, if what was said last was not said of all
// nodes, or is no longer true: nodes had room.
func (c *reasons) recount(g *gang) {
	s := g.search.short
	if s == nil {
		return
	}
	x := c.explanations.classes[s.class.Key]
	if x == nil || x.answers != nil || x.pause == 0 {
		return
	}
	again := x.asked.Add(x.pause)
	if !c.now.Before(again) {
		if c.whyNoRoom(g, s); x.answers != nil {
			return
		}
		again = c.now.Add(explainEvery) // the namespace has asked enough
	}
	c.wakeAt(g, again)
}

// whyShort says why a gang found no room, with what node shards say of the class of its pod, nil for nothing.
func (c *reasons) whyShort(g *gang, x *explained) report.Reason {
	s := g.search.short
	is := s.reason(x.said(s.of))
	switch {
	case !is.NoRoom():
	case x != nil && x.behind == g.name.Namespace:
		return report.Uncompared(g.name.Namespace, c.rules.topology.Full(g.name.Namespace))
	case c.rules.unsupported(g, s.pod):
		return is.Unmet("; a new node alone would not help: the pods that spec.affinity.podAffinity requires are in no domain")
	case s.lacks == aDomain: // nobody knows whether there is quota: no reason to buy nodes
		return is.Unmet("; it asks for quota when a topology domain takes it")
	}
	return is
}

// unsupported reports whether nodes alone would not help a gang: a pod of it requires pods that are nowhere, and none of its own.
func (c *rules) unsupported(g *gang, of *api.Pod) bool {
	p := c.pods[of.UID]
	if p == nil || len(p.Class.Joins) == 0 {
		return false
	}
	for _, other := range g.members {
		if other.candidate() && other.asked.Key != p.asked.Key {
			return false // it may be one of those
		}
	}
	rules, ok := c.topology.RulesOf(p.Namespace, c.repellers.labelledAs(p))
	return ok && rules != nil && rules.Unsupported()
}

// whyNoRoom asks node shards about the class of a pod that found no room, if that was some time ago, and returns what they said last, nil for
// nothing. The gang is told of the answer.
func (c *reasons) whyNoRoom(g *gang, s *shortage) *explained {
	class := s.class
	e := &c.explanations
	x := e.classes[class.Key]
	switch {
	case x != nil && x.answers != nil:
		x.gangs[g.id] = true
	case x != nil && c.now.Before(x.asked.Add(explainEvery)):
	case e.spent.Spent(c.now, g.name.Namespace) >= explainsAtOnce || len(class.Key) > smallClass && c.sent.Spent(c.now, g.name.Namespace) >= sentBytes || !e.tokens.Take(c.now):
	default:
		e.spent.Spend(c.now, g.name.Namespace, 1)
		x = c.askWhy(g, s, x)
	}
	return x
}

// awaitsWords reports whether node shards are being asked for the first time why a gang finds no room: its pods are told when they have
// answered.
func (c *reasons) awaitsWords(g *gang) bool {
	if g.search.short == nil {
		return false
	}
	x := c.explanations.classes[g.search.short.class.Key]
	return x != nil && x.answers != nil && x.words == ""
}

// askWhy asks all node shards about the class of a pod; x is what is known of it, or nil.
func (c *reasons) askWhy(g *gang, s *shortage, x *explained) *explained {
	e, class := &c.explanations, s.class
	if x == nil {
		if len(e.classes) >= maxExplained {
			for key, old := range e.classes {
				if old.answers == nil {
					delete(e.classes, key)
				}
			}
		}
		x = &explained{class: class}
		e.classes[class.Key] = x
	}
	e.serial++
	x.tied, x.asker = s.pod.Tied, g.name.Namespace
	x.asked, x.serial = c.now, e.serial
	x.sum, x.gangs = api.NodeReasons{}, map[string]bool{g.id: true}
	e.open[x.serial] = x
	var classes classes
	classes.of(class)
	x.answers = c.shards.poll(g.name.Namespace, &classes)
	for _, shard := range c.silent(x.answers) {
		c.send(shard, &wire.Envelope{Body: &wire.Envelope_Explain{Explain: &wire.Explain{
			Namespace: g.name.Namespace, PodClass: classes.wire[0], Serial: x.serial}}})
	}
	return x
}

func (c *reasons) onExplained(from api.Incarnation, m *wire.Explained) {
	x := c.explanations.open[m.GetSerial()]
	if x == nil || !x.answers.take(from, m.GetLater()) {
		return
	}
	part := api.NodeReasons{Nodes: int(m.GetNodes()), Fit: int(m.GetFit())}
	for _, r := range m.GetReasons() {
		part.Counts = append(part.Counts, api.ReasonCount{Reason: r.GetReason(), Nodes: int(r.GetNodes())})
	}
	for _, b := range m.GetBy() {
		by := api.RoomBy{Pods: int(b.GetPods())}
		if ms := b.GetUnixMs(); ms > 0 {
			by.At = time.UnixMilli(ms)
		}
		part.By = append(part.By, by)
	}
	if x.sum.Add(part); !x.answers.open() {
		c.endExplained(x)
	}
}

// endExplained ends a question: all have answered, or it took too long.
func (c *reasons) endExplained(x *explained) {
	later, silent := x.answers.later(), x.answers.count(awaited)
	switch {
	case later && x.sum.Nodes == 0:
		x.behind = x.asker
	case silent == 0:
		x.behind = ""
	}
	switch {
	case (later || silent > 0) && x.last.Nodes > x.sum.Nodes: // what was found before may still be so
		x.behind = ""
	case later:
		x.words = report.Uncompared("", false).Message
		x.alone = x.words
	case x.sum.Nodes > 0 || silent == 0:
		rest := c.rules.constraintsIn(x)
		if silent > 0 {
			rest += fmt.Sprintf(" (%d shards have not answered)", silent)
		}
		x.words, x.alone, x.last = x.sum.String()+rest, alone(x.sum)+rest, x.sum
	}
	switch {
	case x.sum.Nodes == 0 && !later: // nobody has answered: no words are wrong
	case silent == 0 && !later && x.sum.Fit == 0 && x.sum.Nodes >= len(c.census.clusterNodes):
		x.pause = 0
	default:
		x.pause = min(max(2*x.pause, explainEvery), explainMost)
	}
	gangs := api.SortedKeys(x.gangs)
	delete(c.explanations.open, x.serial)
	x.answers, x.gangs = nil, nil
	for _, id := range gangs {
		g := c.gangs[id]
		if g == nil || g.search.short == nil || g.search.short.class.Key != x.class.Key {
			continue
		}
		if is := c.whyShort(g, x); g.blocked.Is(is.Code) || g.blocked.NoRoom() && is.NoRoom() {
			g.block(is)
		}
		c.touch(g)
	}
}

// constraintsIn names the constraints of a class because of which nodes do not take its pods. The reasons are kube-scheduler's sentences, which
// people and programs know, and which do not say what is asked for. Where volumes are among the node affinity, a note of the pod names them.
func (c *rules) constraintsIn(x *explained) (words string) {
	said := func(reason string) bool {
		return slices.ContainsFunc(x.sum.Counts, func(r api.ReasonCount) bool { return strings.HasPrefix(r.Reason, reason) })
	}
	if spec, err := api.ReadConstraints(x.class.Constraints); err == nil && said(api.NotOfNodeAffinity) {
		if len(spec.NodeSelector) > 0 {
			words += named("nodeSelector", k8slabels.Set(spec.NodeSelector).String())
		}
		if a := spec.Affinity; a != nil && a.NodeAffinity != nil && x.tied == api.Untied {
			words += named("nodeAffinity", api.NodesIn(a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution))
		}
	}
	if joins, err := api.ReadJoins(x.class.Joins); err == nil {
		if said(topology.Skewed.String()) || said(topology.NoDomain.String()) {
			for _, s := range joins.Spread[:min(len(joins.Spread), maxConstraints)] {
				words += named("topologySpreadConstraints", s.String()+c.nowhere(s.Topology))
			}
		}
		if said(topology.Lonely.String()) {
			words += c.terms("podAffinity", joins.Terms)
		}
	}
	if terms, err := api.ReadRepels(x.class.Repels); err == nil && said(topology.Avoids.String()) {
		words += c.terms("podAntiAffinity", terms)
	}
	return words
}

// terms names the first terms of a field.
func (c *rules) terms(field string, terms []*api.Term) (words string) {
	for _, t := range terms[:min(len(terms), maxConstraints)] {
		words += named(field, t.String()+c.nowhere(t.Topology))
	}
	return words
}

// nowhere says that no node has a label.
func (c *rules) nowhere(label string) string {
	if c.topology.Labelled(label) {
		return ""
	}
	return ", a label that no node has"
}

// named names a constraint of a field.
func named(field, constraint string) string {
	return "; " + api.Shorten(field+": "+constraint, maxConstraint)
}

// endLateExplained ends the questions that took too long.
func (c *reasons) endLateExplained() {
	for _, serial := range api.SortedKeys(c.explanations.open) {
		x := c.explanations.open[serial]
		if !c.now.Before(x.asked.Add(c.cfg.SkipAfter)) {
			c.endExplained(x)
		}
	}
	c.explanations.spent.Forget(c.now)
}
