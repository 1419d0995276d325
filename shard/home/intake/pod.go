package intake

import (
	"math"
	"slices"
	"strings"

	"basalt.dev/basalt/api"
)

// Entry is what a pod's labels name. Those of a pod that has a node count as they were when it was first seen with one: its owner
// calls Relabel no more.
type Entry struct {
	*api.Pod
	InGroup Name   // the group that it names; zero for a pod of its own
	InQueue string // the queue that it names
	Payer   string // of a bound pod that names neither: the queue that paid when it was first seen bound

	InVolcano string // the queue of Volcano's that one names which names neither

	least int32 // GroupMin, as it counts
	at    int32 // where it is in its list of Objects

	votesIn *Group // the PodGroup whose queue it votes for,
	vote    string // and its vote: its own queue, "" for none, elsewhere
}

// elsewhere is the vote of a pod that names its queue in another system's words alone. No queue has such a name.
const elsewhere = "?"

func (e *Entry) ballot() string {
	if e.InQueue == "" && e.QueueElsewhere != "" {
		return elsewhere
	}
	return e.InQueue
}

// ComparePods orders pods by age, then by name.
func ComparePods(a, b *api.Pod) int {
	if d := a.Created.Compare(b.Created); d != 0 {
		return d
	}
	if d := strings.Compare(a.Name, b.Name); d != 0 {
		return d
	}
	return strings.Compare(a.UID, b.UID)
}

// groupOf returns the PodGroup that a pod's label names. A pod of another scheduler is charged by itself.
func groupOf(p *api.Pod) Name {
	if p.Group == "" || !p.Ours {
		return Name{}
	}
	return Name{p.Namespace, p.Group, p.GroupKind}
}

func leastOf(p *api.Pod) int32 { return int32(min(p.GroupMin, math.MaxInt32)) }

// Implied are implied groups that came, went or changed: Exists tells which went. Entries may be nil.
type Implied [2]*Group

// Add indexes a pod that was not seen before.
func (o *Objects) Add(e *Entry) Implied {
	e.InGroup, e.InQueue, e.InVolcano = groupOf(e.Pod), e.Queue, e.VolcanoQueue
	o.index(e)
	e.least = leastOf(e.Pod)
	return Implied{o.imply(e.InGroup, e.least, 1)}
}

// Relabel reads the labels of a pod again, and reports whether it names another group than before.
func (o *Objects) Relabel(e *Entry) (moved bool, changed Implied) {
	e.InQueue = e.Queue
	now := groupOf(e.Pod)
	if now == e.InGroup && e.InVolcano == e.VolcanoQueue && e.least == leastOf(e.Pod) {
		return false, changed
	}
	was, least := e.InGroup, e.least
	o.unindex(e)
	e.InGroup, e.InVolcano, e.least = now, e.VolcanoQueue, leastOf(e.Pod)
	o.index(e)
	changed[0] = o.imply(now, e.least, 1) // first, for it may be the same
	changed[1] = o.imply(was, least, -1)
	return now != was, changed
}

// Remove ends a pod. It returns the group whose queue may be another one without its vote, nil for none.
func (o *Objects) Remove(e *Entry) (lost *Group, changed Implied) {
	o.unindex(e)
	changed[0] = o.imply(e.InGroup, e.least, -1)
	return o.Withdraw(e), changed
}

// Naming returns the UIDs of the pods that name a PodGroup, in order.
func (o *Objects) Naming(n Name) []string { return sortedUIDs(o.labelled[n].all()) }

func sortedUIDs(pods []*Entry) []string {
	var out []string
	for _, e := range pods {
		out = append(out, e.UID)
	}
	slices.Sort(out)
	return out
}

func (o *Objects) index(e *Entry) {
	if e.InGroup != (Name{}) {
		put(o.labelled, e.InGroup, e)
	} else {
		put(o.loose, e.Namespace, e)
	}
	if e.InVolcano == "" {
		return
	}
	if o.inVolcano[e.InVolcano] == nil {
		o.inVolcano[e.InVolcano] = map[string]*Entry{}
	}
	o.inVolcano[e.InVolcano][e.UID] = e
}

func (o *Objects) unindex(e *Entry) {
	if e.InGroup != (Name{}) {
		remove(o.labelled, e.InGroup, e)
	} else {
		remove(o.loose, e.Namespace, e)
	}
	if e.InVolcano == "" {
		return
	}
	delete(o.inVolcano[e.InVolcano], e.UID)
	if len(o.inVolcano[e.InVolcano]) == 0 {
		delete(o.inVolcano, e.InVolcano)
	}
}

// entries are pods that have something in common, in no order. Each knows where it is: a map of them, of which there
// is one for each gang of the cluster, takes many times more.
type entries struct{ list []*Entry }

func (l *entries) all() []*Entry {
	if l == nil {
		return nil
	}
	return l.list
}

func put[K comparable](index map[K]*entries, key K, e *Entry) {
	l := index[key]
	if l == nil {
		l = &entries{}
		index[key] = l
	}
	e.at = int32(len(l.list))
	l.list = append(l.list, e)
}

func remove[K comparable](index map[K]*entries, key K, e *Entry) {
	l := index[key]
	last := l.list[len(l.list)-1]
	l.list[e.at], l.list[len(l.list)-1], last.at = last, nil, e.at
	if l.list = l.list[:len(l.list)-1]; len(l.list) == 0 {
		delete(index, key)
	}
}
