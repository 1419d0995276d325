package home

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/shard/home/report"
)

// Intake: which queue is charged for a gang. That is a function of the objects that exist now, the same at every shard, so that
// exactly one shard drives a gang:
//
//	pod without a PodGroup          its own label, else its namespace's, else `default`
//	PodGroup with spec.queue        that queue
//	PodGroup without                its pods' queue by the rule above, if they agree; else its namespace's, else `default`
//
// When a gang's queue changes (somebody edits a label), its reservation is given back in the old queue, and the new
// queue's home takes the pods up as they are.

// podQueue returns the queue that a pod names by itself, and whether that can be known.
func (c *Core) podQueue(p *pod) (string, bool) {
	switch {
	case p.queue != "":
		return p.queue, true
	case p.payer != "":
		return p.payer, true
	}
	return c.namespaceQueue(p.Namespace)
}

func (c *Core) namespaceQueue(namespace string) (string, bool) {
	queue, known := c.namespaces[namespace]
	return cmp.Or(queue, api.DefaultQueue), known
}

// groupQueue returns the queue that pays for a PodGroup, whether that can be known, and whether its pods disagree.
func (c *Core) groupQueue(g *group) (queue string, known, mismatch bool) {
	if g.queue != "" {
		for q := range g.votes {
			mismatch = mismatch || q != "" && q != g.queue
		}
		return g.queue, true, mismatch
	}
	fallback, known := c.namespaceQueue(g.namespace)
	if !known {
		return "", false, false
	}
	said := map[string]bool{}
	for q := range g.votes {
		said[cmp.Or(q, fallback)] = true
	}
	if len(said) == 1 {
		for q := range said {
			return q, true, false
		}
	}
	return fallback, true, len(said) > 1
}

// mismatch says which pods name different queues, or which one another queue than its PodGroup.
func (c *Core) mismatch(g *group) string {
	var first *pod
	queue := g.queue
	says := func(p *pod) string {
		if p.queue == "" && g.queue == "" {
			fallback, _ := c.namespaceQueue(g.namespace)
			return fallback
		}
		return p.queue
	}
	var pods []*pod
	for _, p := range c.labelled[g.name] {
		if p.votesIn == g {
			pods = append(pods, p)
		}
	}
	slices.SortFunc(pods, comparePods)
	for _, p := range pods {
		switch q := says(p); {
		case q == "" || q == queue:
		case queue == "":
			first, queue = p, q
		case first == nil:
			return fmt.Sprintf("pod %s/%s names queue %q (label %s), PodGroup %s is in queue %q", p.Namespace, p.Name, q, api.LabelQueue, g.name, queue)
		default:
			return fmt.Sprintf("PodGroup %s names no queue and its pods name different queues: %s/%s names %q, %s/%s names %q (label %s)",
				g.name, first.Namespace, first.Name, queue, p.Namespace, p.Name, q, api.LabelQueue)
		}
	}
	return fmt.Sprintf("pods of PodGroup %s name different queues", g.name)
}

// castVote counts the queue that a pod names for its PodGroup. Its last vote is taken back first, and both PodGroups are looked at
// when the votes are complete: what becomes of a PodGroup may come back here, for this pod, too.
func (c *Core) castVote(p *pod, g *group) {
	if p.votesIn == g && p.vote == p.queue {
		return
	}
	before := p.votesIn
	changed := uncast(p)
	p.votesIn, p.vote = g, p.queue
	g.votes[p.vote]++
	if changed && before != g && c.groups[before.name] == before {
		c.homeGroup(before)
	}
	if g.votes[p.vote] == 1 || changed && before == g {
		c.homeGroup(g)
	}
}

func (c *Core) withdrawVote(p *pod) {
	if g := p.votesIn; uncast(p) && c.groups[g.name] == g {
		c.homeGroup(g)
	}
}

// uncast takes back the vote of a pod, if it has one, and reports whether no other pod of its PodGroup names that queue.
func uncast(p *pod) bool {
	g := p.votesIn
	if g == nil {
		return false
	}
	p.votesIn = nil
	if g.votes[p.vote]--; g.votes[p.vote] > 0 {
		return false
	}
	delete(g.votes, p.vote)
	return true
}

// homeGroup sees to it that a PodGroup whose queue is ours has a gang, and that its gang knows the queue.
func (c *Core) homeGroup(g *group) {
	queue, known, mismatch := c.groupQueue(g)
	gang := c.gangs[g.uid]
	if gang == nil {
		if !known || !c.active[api.BucketOf(queue)] {
			return
		}
		gang = c.newGang(g.uid, queue)
		gang.name = g.name
		gang.first = c.now
	}
	if gang.group == nil { // new, or inherited before the PodGroup was seen
		gang.group, gang.ownerless, gang.gone = g, time.Time{}, false
		if gang.status == nil {
			gang.status = &report.PodGroup{}
		}
		gang.name = g.name
		c.seenStatus(gang)
		for _, uid := range api.SortedKeys(c.labelled[g.name]) {
			c.resolveMembership(c.labelled[g.name][uid])
		}
		if gang.charge.reserved { // inherited
			gang.tally = c.count(gang)
			gang.startedBefore()
		}
	}
	if known {
		gang.wantQueue = queue
	}
	gang.mismatch = mismatch
	c.touch(gang)
}

func (c *Core) onNamespace(namespace, queue string, exists bool) {
	before, known := c.namespaces[namespace]
	if exists == known && before == queue {
		return
	}
	if exists {
		c.namespaces[namespace] = queue
	} else {
		delete(c.namespaces, namespace)
	}
	var groups []*group
	for _, g := range c.groups {
		if g.namespace == namespace && g.queue == "" {
			groups = append(groups, g)
		}
	}
	slices.SortFunc(groups, func(a, b *group) int { return compareNames(a.name, b.name) })
	for _, g := range groups {
		c.homeGroup(g)
	}
	named := map[string]*pod{} // that ask the namespace for their queue
	maps.Copy(named, c.loose[namespace])
	for n, pods := range c.labelled {
		if n.namespace == namespace && c.groups[n] == nil {
			maps.Copy(named, pods)
		}
	}
	for _, uid := range api.SortedKeys(named) {
		if p := named[uid]; p.queue == "" {
			c.resolveMembership(p)
		}
	}
}
