// Package intake reads from the objects of a cluster which pods name which PodGroup, and which queue pays for them.
//
// It decides:
//
//   - which PodGroup a pod names, and what a PodGroup asks for (pod.go, group.go);
//
//   - which queue pays, and whether the pods of a PodGroup disagree about it (intake.go, queue.go):
//
//     pod without a PodGroup          its own label, else its Volcano annotation, else its namespace's label, else `default`
//     PodGroup with spec.queue        that queue; of Volcano's PodGroup, the Queue that stands for it
//     PodGroup without                its pods' queue by the rule above, if they agree; else its namespace's, else `default`
//
//     Where that is `default` for want of a word, and a pod names a queue of another system, it is not placed.
//
//   - which groups there are that only their pods describe (implied groups, group.go). Such a group exists while a pod names it, and its
//     UID is a function of its name: it may go and come again under the same UID, as no object does.
//
// It owns what is known of namespaces, PodGroups and the Queues that stand for Volcano's, the index of pods by the PodGroup that they name, and the votes of pods for
// the queue of their PodGroup.
//
// It leaves to package home what follows: whether a pod is in the gang of the PodGroup that it names, for a bound pod stays with
// the gang that it was bound for, and what becomes of a gang whose queue changes. It acts on nothing: a call that may change an
// answer returns whom to ask about again.
//
// Invariants:
//   - The answers are a function of the objects that exist, the same at every shard, so that exactly one shard drives a gang.
//   - A pod has at most one vote, in a PodGroup that exists (Check).
package intake

import (
	"cmp"
	"fmt"
	"slices"

	"basalt.dev/basalt/api"
)

// Objects are the namespaces and PodGroups of a cluster, and the pods that are indexed.
type Objects struct {
	namespaces map[string]string // name -> label of its queue
	groups     map[Name]*Group
	labelled   map[Name]*entries            // pods by the PodGroup that their label names
	loose      map[string]*entries          // pods without a PodGroup, by namespace
	inVolcano  map[string]map[string]*Entry // pods by the queue of Volcano's that they name
	queues     map[string]queue             // that stand for one of Volcano's, by name
	times      map[string]times             // what Queues say, of those that say something
	orders     orders
	standIns   map[string][]api.StandIn // the same by the name of that one; the first does
}

// New returns Objects that know of nothing.
func New() *Objects {
	return &Objects{
		namespaces: map[string]string{},
		groups:     map[Name]*Group{},
		labelled:   map[Name]*entries{},
		loose:      map[string]*entries{},
		inVolcano:  map[string]map[string]*Entry{},
		queues:     map[string]queue{}, times: map[string]times{},
		standIns: map[string][]api.StandIn{},
	}
}

// PodQueue returns the queue that a pod names by itself, and whether that can be known.
func (o *Objects) PodQueue(e *Entry) (string, bool) {
	switch {
	case e.InQueue != "":
		return e.InQueue, true
	case e.Payer != "":
		return e.Payer, true
	}
	if e.InVolcano != "" {
		return o.standIn(e.InVolcano), true
	}
	return o.namespaceQueue(e.Namespace)
}

func (o *Objects) namespaceQueue(namespace string) (string, bool) {
	queue, known := o.namespaces[namespace]
	return cmp.Or(queue, api.DefaultQueue), known
}

// PodElsewhere says in which words of another system a pod names its queue, if it does so in no other and its namespace
// names none: then it would be charged to a queue that nobody chose. It returns "" for none.
func (o *Objects) PodElsewhere(e *Entry) string {
	if o.namespaces[e.Namespace] != "" || e.ballot() != elsewhere {
		return ""
	}
	return e.QueueElsewhere
}

// GroupElsewhere says the same of the first such pod of a PodGroup that names no queue.
func (o *Objects) GroupElsewhere(g *Group) string {
	if o.own(g) != "" || !g.votes.has(elsewhere) {
		return ""
	}
	var first *Entry
	for _, e := range o.labelled[g.Name].all() {
		if e.votesIn == g && e.vote == elsewhere && (first == nil || ComparePods(e.Pod, first.Pod) < 0) {
			first = e
		}
	}
	if first == nil {
		return ""
	}
	words := o.PodElsewhere(first)
	if words == "" {
		return ""
	}
	return fmt.Sprintf("pod %s/%s: %s", first.Namespace, first.Name, words)
}

// GroupQueue returns the queue that pays for a PodGroup, whether that can be known, and whether its pods disagree or
// name it in another system's words alone.
func (o *Objects) GroupQueue(g *Group) (queue string, known, mismatch bool) {
	if own := o.own(g); own != "" {
		for _, vote := range g.votes {
			mismatch = mismatch || vote.of != "" && vote.of != own && vote.of != elsewhere
		}
		return own, true, mismatch
	}
	fallback, known := o.namespaceQueue(g.Name.Namespace)
	if !known {
		return "", false, false
	}
	if g.votes.has(elsewhere) && o.namespaces[g.Name.Namespace] == "" {
		return fallback, true, true
	}
	queue = fallback
	for i, vote := range g.votes {
		said := vote.of
		if said == "" || said == elsewhere {
			said = fallback
		}
		if i > 0 && said != queue {
			return fallback, true, true
		}
		queue = said
	}
	return queue, true, false
}

// Mismatch says which pods name different queues, or which one another queue than its PodGroup.
func (o *Objects) Mismatch(g *Group) string {
	var first *Entry
	queue := o.own(g)
	says := func(e *Entry) string {
		if e.InQueue == "" && g.Queue == "" {
			fallback, _ := o.namespaceQueue(g.Name.Namespace)
			return fallback
		}
		return e.InQueue
	}
	var pods []*Entry
	for _, e := range o.labelled[g.Name].all() {
		if e.votesIn == g {
			pods = append(pods, e)
		}
	}
	slices.SortFunc(pods, func(a, b *Entry) int { return ComparePods(a.Pod, b.Pod) })
	for _, e := range pods {
		switch q := says(e); {
		case q == "" || q == queue:
		case queue == "":
			first, queue = e, q
		case first == nil:
			return fmt.Sprintf("pod %s/%s names queue %q (label %s), %s %s is in queue %q", e.Namespace, e.Name, q, api.LabelQueue, g.Name.Kind, g.Name, queue)
		default:
			return fmt.Sprintf("%s %s names no queue and its pods name different queues: %s/%s names %q, %s/%s names %q (label %s)",
				g.Name.Kind, g.Name, first.Namespace, first.Name, queue, e.Namespace, e.Name, q, api.LabelQueue)
		}
	}
	return fmt.Sprintf("pods of %s %s name different queues", g.Name.Kind, g.Name)
}

// Cast gives the vote of a pod to the PodGroup that it names: its last one is taken back, wherever it was. It returns the PodGroups
// whose queue may be another one now, first the one that lost the vote; nil for none.
func (o *Objects) Cast(e *Entry, g *Group) (lost, got *Group) {
	vote := e.ballot()
	if e.votesIn == g && e.vote == vote {
		return nil, nil
	}
	lost = o.Withdraw(e)
	e.votesIn, e.vote = g, vote
	if now := g.votes.add(vote, 1); now == 1 || lost == g {
		got = g
	}
	if lost == g {
		lost = nil
	}
	return lost, got
}

// Withdraw takes back the vote of a pod, if it has one. It returns its PodGroup if no other pod there names that queue.
func (o *Objects) Withdraw(e *Entry) *Group {
	g := e.votesIn
	if g == nil {
		return nil
	}
	e.votesIn = nil
	if g.votes.add(e.vote, -1) > 0 {
		return nil
	}
	if o.groups[g.Name] != g {
		return nil // it is gone
	}
	return g
}

// SetNamespace takes note of a namespace and the queue that its label names. It returns the PodGroups and the pods, in order, that
// ask the namespace for their queue.
func (o *Objects) SetNamespace(namespace, queue string, exists bool) (groups []*Group, pods []string) {
	before, known := o.namespaces[namespace]
	if exists == known && before == queue {
		return nil, nil
	}
	if exists {
		o.namespaces[namespace] = queue
	} else {
		delete(o.namespaces, namespace)
	}
	for _, g := range o.groups {
		if g.Name.Namespace == namespace && g.Queue == "" {
			groups = append(groups, g)
		}
	}
	slices.SortFunc(groups, CompareGroups)
	named := slices.Clone(o.loose[namespace].all())
	for n, l := range o.labelled {
		if n.Namespace == namespace && o.groups[n] == nil {
			named = append(named, l.list...)
		}
	}
	named = slices.DeleteFunc(named, func(e *Entry) bool { return e.InQueue != "" || e.InVolcano != "" })
	return groups, sortedUIDs(named)
}

// Check returns an error if the votes are not those of the pods.
func (o *Objects) Check() error {
	votes := map[*Group]counts[string]{}
	count := func(l *entries) error {
		for i, e := range l.list {
			g, uid := e.votesIn, e.UID
			if int(e.at) != i {
				return fmt.Errorf("pod %s is at %d of its list, not at %d", uid, i, e.at)
			}
			switch {
			case g == nil:
				continue
			case o.groups[g.Name] != g:
				return fmt.Errorf("pod %s votes in PodGroup %s, which is gone", uid, g.UID)
			}
			of := votes[g]
			of.add(e.vote, 1)
			votes[g] = of
		}
		return nil
	}
	for n, entries := range o.labelled {
		if n.Kind == api.ImpliedGroup && o.groups[n] == nil {
			return fmt.Errorf("gang %s is missing: pods name it", n)
		}
		if err := count(entries); err != nil {
			return err
		}
	}
	for _, entries := range o.loose {
		if err := count(entries); err != nil {
			return err
		}
	}
	for n, g := range o.groups {
		mins, most := counts[int32](nil), 1
		if n.Kind == api.ImpliedGroup {
			for _, e := range o.labelled[n].all() {
				mins.add(e.least, 1)
				most = max(most, int(e.least))
			}
		}
		if !same(g.mins, mins) || n.Kind == api.ImpliedGroup && (len(mins) == 0 || g.MinCount != most) {
			return fmt.Errorf("gang %s has the minimum %d of %v, its pods say %v", g.UID, g.MinCount, g.mins, mins)
		}
		if !same(g.votes, votes[g]) {
			return fmt.Errorf("PodGroup %s has the votes %v, of its pods %v", g.UID, g.votes, votes[g])
		}
	}
	return nil
}

// same reports whether two count the same, in whatever order.
func same[K comparable](a, b counts[K]) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(x count[K]) bool { return !slices.Contains(b, x) })
}
