package home

import (
	"container/heap"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/shard/event"
	"basalt.dev/basalt/shard/home/report"
)

// PodScheduled=False: what a pod that waits is told, once its wait is long or its reason is of its own making. It is
// written when the reason changes, within a budget: namespaces take turns, and in each the pods of the oldest gangs
// come first. When its words change, it is written again after a while: the node that lacked cpu may have become one
// that is in the wrong zone. Where only the numbers in them change, as they do for all that wait in a busy cluster,
// that while is longer, and there is no event. It is never written to a pod that may be bound any moment, for the write
// changes the pod's version.

const (
	kinWithin     = time.Minute // for which a pod is told nothing while others like it find room
	retellAfter   = time.Minute // between two messages of one reason; twice that where only numbers have changed
	retellPause   = 2 * time.Second
	retellsAtOnce = 5 // such writes a second
)

// explainees are a gang and its pods that are to be told something: picked when its turn comes, and told as the budget allows.
// To pick them again at each tick would take a large gang's shard a half of its time.
type explainees struct {
	*gang
	pods []*pod // nil before they are picked
}

// explainQueue holds the gangs with pods to be told something.
type explainQueue []*explainees

func (q explainQueue) Len() int { return len(q) }
func (q explainQueue) Less(i, j int) bool {
	if d := q[i].age().Compare(q[j].age()); d != 0 {
		return d < 0
	}
	return q[i].id < q[j].id
}
func (q explainQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *explainQueue) Push(x any)   { *q = append(*q, x.(*explainees)) }
func (q *explainQueue) Pop() any {
	old := *q
	x := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	return x
}

// explainAt returns when a pod is to be told its reason, the zero time for never.
func (c *reports) explainAt(g *gang, p *pod) (report.Reason, time.Time) {
	r := g.podReason(p)
	if r.None() || p.changing() || r.Is(p.told) && report.Short(r.Message) == p.words {
		return report.Reason{}, time.Time{}
	}
	at := p.first
	if !p.Created.IsZero() && p.Created.Before(at) {
		at = p.Created
	}
	// While pods like it are placed, its turn comes, and no new node would help.
	if moved := c.rules.kinMoved(g, p); r.NoRoom() && moved.After(at) {
		if at = at.Add(kinWithin); moved.Before(at) {
			at = moved
		}
	}
	of := r
	if p.refusal() == nil {
		of = g.blocked
	}
	at = at.Add(c.patience(g, of))
	if p.retells(r) {
		at = api.Later(at, p.retellAt)
		if c.gist(r.Message) == p.gist {
			at = api.Later(at, p.retellAt.Add(retellAfter))
		}
	}
	return r, api.Later(at, p.explainAgain)
}

// retells reports whether a reason that the pod shows already is to be written in other words. Somebody acts on what is wrong with the
// pod itself, so that is not put off.
func (p *pod) retells(r report.Reason) bool { return r.Is(p.told) && p.Refused == nil && !r.AtOnce() }

// gist is gistOf, made once for the pods of a gang, which are told the same.
func (c *reports) gist(words string) uint64 {
	if words != c.gistWords {
		c.gistWords, c.lastGist = words, gistOf(words)
	}
	return c.lastGist
}

// queueConditions has the pods of a gang told why they wait, now or when they have waited long enough.
func (c *reports) queueConditions(g *gang) {
	c.reasons.recount(g)
	if g.blocked.None() && g.tally.refusals == 0 || g.explaining != nil || c.reasons.awaitsWords(g) {
		return
	}
	var first time.Time
	for _, p := range g.members {
		if r, at := c.explainAt(g, p); !r.None() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	switch {
	case first.IsZero():
	case c.now.Before(first):
		c.wakeAt(g, first)
	default:
		g.explaining = &explainees{gang: g}
		heap.Push(c.explain.Of(g.name.Namespace), g.explaining)
	}
}

// writeConditions spends the budget: a write for each namespace in turn.
func (c *reports) writeConditions() (all bool) {
	for q := c.explain.Next(); q != nil; q = c.explain.Next() {
		e := (*q)[0]
		g := e.gang
		due := func(p *pod) bool {
			r, at := c.explainAt(g, p)
			return !r.None() && !c.now.Before(at) && !g.dropped() && !c.reasons.awaitsWords(g)
		}
		if e.pods == nil { // if none is due, it is popped
			e.pods = g.pick(due)
		}
		for len(e.pods) > 0 && (e.pods[0].gang != g || !due(e.pods[0])) { // since it was picked
			e.pods = e.pods[1:]
		}
		if len(e.pods) > 0 {
			p := e.pods[0]
			r := g.podReason(p)
			if p.retells(r) && !c.retells.Take(c.now) {
				p.explainAgain = c.now.Add(retellPause)
				e.pods = e.pods[1:]
				continue
			}
			if !c.explains.Take(c.now) {
				return false
			}
			e.pods = e.pods[1:]
			c.writeCondition(p, r)
			c.explain.Rotate(false)
			continue
		}
		heap.Pop(q)
		g.explaining = nil
		if !g.dropped() {
			c.touch(g)
		}
		if len(*q) == 0 {
			c.explain.Rotate(true)
		}
	}
	return true
}

// tellChosen has pods say that their nodes are chosen which have volumes to be bound there, and say Unschedulable still: that takes long, and
// autoscalers would buy nodes for them meanwhile. It is written before the Commit, which names their versions.
func (c *reports) tellChosen(g *gang) {
	for _, p := range g.pick(func(p *pod) bool {
		return p.stage == held && p.Unbound && p.told == v1beta1.ReasonUnschedulable && !p.changing() && !c.now.Before(p.explainAgain)
	}) {
		if !c.explains.Take(c.now) {
			return
		}
		c.writeCondition(p, report.Chosen(p.node, p.claims()))
		g.tally.change()
	}
}

func (c *reports) writeCondition(p *pod, r report.Reason) {
	p.writing = true
	id := c.nextWrite(write{kind: writeCondition, uid: p.UID, reason: r.Code, message: r.Message})
	c.emit(event.WritePodCondition{ID: id, Namespace: p.Namespace, Name: p.Name, UID: p.UID,
		ResourceVersion: p.version, Reason: r.Code, Message: report.Short(r.Message)})
}

func (c *reports) conditionWritten(w write, e event.StatusWritten) {
	p := c.pods[w.uid]
	if p == nil {
		return
	}
	p.writing = false
	switch e.Outcome {
	case event.StatusOK:
		again := p.told == w.reason
		if again { // however often the words change
			p.explainAgain = c.now.Add(c.cfg.ConditionAfter)
		}
		gist := gistOf(w.message)
		same := again && gist == p.gist
		p.tell(w.reason, report.Short(w.message), gist)
		p.retellAt = c.now.Add(retellAfter)
		p.version = newer(p.version, e.ResourceVersion)
		switch {
		case w.reason == v1beta1.ReasonWaiting, w.reason == v1beta1.ReasonPending, same: // nothing failed, or nothing else
		case again && c.eventsSpent.Spent(c.now, p.Namespace) >= eventsByNamespace: // the rest of what is allowed is for what is told first
			c.EventsDropped++
		default:
			c.tellPod(p, w.reason, w.message)
		}
	default: // it may have been written
		p.shows()
		p.explainAgain = c.now.Add(5 * c.cfg.AskAgain)
	}
	if p.gang != nil {
		c.touch(p.gang)
	}
}
