package home

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/shard/fair"
	"basalt.dev/basalt/shard/home/report"
	"basalt.dev/basalt/shard/topology"
)

// Why no node takes a pod. A search asks only the node shards that seem to have room, so what they refuse says little. When it has
// failed, every node shard is asked about the class of one pod that found no room, and the answers are added up: users read one count
// over all nodes, whoever owns them.
//
// These are words, and nothing depends on them. A question is not retransmitted, and a shard that does not answer in time is left out.
// Each class is asked about at most once in explainEvery, for all gangs that have pods of it, and the questions of one namespace have
// a budget.
const (
	explainEvery  = 5 * time.Second // between two questions about a class
	explainWithin = 2 * time.Second // a shard that has not answered by then is left out

	maxConstraints = 3   // of a kind, that are named,
	maxConstraint  = 200 // each with no more bytes

	maxExplained        = 1024 // classes that are remembered
	explainsByNamespace = 20   // questions a second that a namespace may cause, and
	explainsAtOnce      = 40   // at once
)

// explained is what node shards say of a class.
type explained struct {
	class *api.Class
	words string          // of the last question that ended, "" before
	last  api.NodeReasons // what they say

	asked  time.Time
	serial uint64
	open   map[api.Incarnation]bool // have not answered; nil when no question is open
	sum    api.NodeReasons          // of those that have
	later  bool                     // one has not counted
	gangs  map[string]bool          // that wait for the answer
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
	never       bool // not even an empty node would take it

	denied *wire.Denied // of a gang that is not admitted because the nodes lack room, nil else
}

// reason says it, with the words of the node shards.
func (s *shortage) reason(words string) report.Reason {
	if s.denied != nil && !s.never {
		r := report.Denied(s.denied)
		if words != "" {
			r.Message += "; " + words
		}
		return r
	}
	if s.pod.Note != "" {
		words = cmp.Or(words, "no shard has enough free capacity") + "; " + s.pod.Note
	}
	switch {
	case s.never && s.denied != nil:
		return report.InVain(report.FitsNoNode(s.pod, words), s.denied)
	case s.never:
		return report.FitsNoNode(s.pod, words)
	}
	return report.Unschedulable(s.missing, s.of, words)
}

// blockedShort has a gang blocked for want of room, and has node shards asked why there is none.
func (c *Core) blockedShort(g *gang, s *shortage) {
	g.search.short = s
	g.blocked = s.reason(c.whyNoRoom(g, s.class))
}

// whyNoRoom returns what node shards said of a class last, and asks them again if that was some time ago. The gang is told of the answer.
func (c *Core) whyNoRoom(g *gang, class *api.Class) string {
	e := &c.explanations
	x := e.classes[class.Key]
	switch {
	case x != nil && x.open != nil:
		x.gangs[g.id] = true
	case x != nil && c.now.Before(x.asked.Add(explainEvery)):
	case e.spent.Spent(c.now, g.name.Namespace) >= explainsAtOnce || len(class.Key) > smallClass && c.sent.Spent(c.now, g.name.Namespace) >= sentBytes || !e.tokens.Take(c.now):
	default:
		e.spent.Spend(c.now, g.name.Namespace, 1)
		x = c.askWhy(g, class, x)
	}
	if x == nil {
		return ""
	}
	return x.words
}

// awaitsWords reports whether node shards are being asked for the first time why a gang finds no room: its pods are told when they have
// answered.
func (c *Core) awaitsWords(g *gang) bool {
	if g.search.short == nil {
		return false
	}
	x := c.explanations.classes[g.search.short.class.Key]
	return x != nil && x.open != nil && x.words == ""
}

// askWhy asks all node shards about a class; x is what is known of it, or nil.
func (c *Core) askWhy(g *gang, class *api.Class, x *explained) *explained {
	e := &c.explanations
	if x == nil {
		if len(e.classes) >= maxExplained {
			for key, old := range e.classes {
				if old.open == nil {
					delete(e.classes, key)
				}
			}
		}
		x = &explained{class: class}
		e.classes[class.Key] = x
	}
	e.serial++
	x.asked, x.serial, x.later = c.now, e.serial, false
	x.sum, x.open, x.gangs = api.NodeReasons{}, map[api.Incarnation]bool{}, map[string]bool{g.id: true}
	e.open[x.serial] = x
	var classes classes
	classes.of(class)
	for _, m := range c.table.Members {
		if c.owned[m.Incarnation] > 0 {
			x.open[m.Incarnation] = true
			c.countBytes(g.name.Namespace, classes.bytes())
			c.send(m.Incarnation, &wire.Envelope{Body: &wire.Envelope_Explain{Explain: &wire.Explain{
				Namespace: g.name.Namespace, PodClass: classes.wire[0], Serial: x.serial}}})
		}
	}
	return x
}

func (c *Core) onExplained(from api.Incarnation, m *wire.Explained) {
	x := c.explanations.open[m.GetSerial()]
	if x == nil || !x.open[from] {
		return
	}
	delete(x.open, from)
	x.later = x.later || m.GetLater()
	part := api.NodeReasons{Nodes: int(m.GetNodes()), Fit: int(m.GetFit())}
	for _, r := range m.GetReasons() {
		part.Counts = append(part.Counts, api.ReasonCount{Reason: r.GetReason(), Nodes: int(r.GetNodes())})
	}
	if x.sum.Add(part); len(x.open) == 0 {
		c.endExplained(x)
	}
}

// endExplained ends a question: all have answered, or it took too long.
func (c *Core) endExplained(x *explained) {
	switch {
	case x.later:
		x.words = "its constraints are not compared with all nodes yet, because those of the pods in its namespace take too much time"
	case x.sum.Nodes > 0 || len(x.open) == 0:
		x.words, x.last = x.sum.String()+constraintsIn(x.sum, x.class), x.sum
		if n := len(x.open); n > 0 {
			x.words += fmt.Sprintf(" (%d shards have not answered)", n)
		}
	}
	gangs := api.SortedKeys(x.gangs)
	delete(c.explanations.open, x.serial)
	x.open, x.gangs = nil, nil
	for _, id := range gangs {
		g := c.gangs[id]
		if g == nil || g.search.short == nil || g.search.short.class.Key != x.class.Key {
			continue
		}
		if is := g.search.short.reason(x.words); g.blocked.Is(is.Code) {
			g.blocked = is
		}
		c.touch(g)
	}
}

// constraintsIn names the constraints of a class because of which nodes do not take its pods. The reasons are kube-scheduler's sentences, which
// people and programs know, and which do not say what is asked for.
func constraintsIn(why api.NodeReasons, class *api.Class) (words string) {
	said := func(o topology.Obstacle) bool {
		return slices.ContainsFunc(why.Counts, func(r api.ReasonCount) bool { return strings.HasPrefix(r.Reason, o.String()) })
	}
	if joins, err := api.ReadJoins(class.Joins); err == nil {
		if said(topology.Skewed) {
			words += named("topologySpreadConstraints", joins.Spread)
		}
		if said(topology.Lonely) {
			words += named("podAffinity", joins.Terms)
		}
	}
	if terms, err := api.ReadRepels(class.Repels); err == nil && said(topology.Avoids) {
		words += named("podAntiAffinity", terms)
	}
	return words
}

// named names the first constraints of a field.
func named[T fmt.Stringer](field string, constraints []T) (words string) {
	for _, one := range constraints[:min(len(constraints), maxConstraints)] {
		words += "; " + api.Shorten(field+": "+one.String(), maxConstraint)
	}
	return words
}

// endLateExplained ends the questions that took too long.
func (c *Core) endLateExplained() {
	for _, serial := range api.SortedKeys(c.explanations.open) {
		x := c.explanations.open[serial]
		if !c.now.Before(x.asked.Add(explainWithin)) {
			c.endExplained(x)
		}
	}
	c.explanations.spent.Forget(c.now)
}
