package intake

import (
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

	least int // GroupMin, as it counts

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

// Implied are implied groups that came, went or changed: Exists tells which went. Entries may be nil.
type Implied [2]*Group

// Add indexes a pod that was not seen before.
func (o *Objects) Add(e *Entry) Implied {
	e.InGroup, e.InQueue, e.InVolcano = groupOf(e.Pod), e.Queue, e.VolcanoQueue
	o.index(e)
	e.least = e.GroupMin
	return Implied{o.imply(e.InGroup, e.least, 1)}
}

// Relabel reads the labels of a pod again, and reports whether it names another group than before.
func (o *Objects) Relabel(e *Entry) (moved bool, changed Implied) {
	e.InQueue = e.Queue
	now := groupOf(e.Pod)
	if now == e.InGroup && e.InVolcano == e.VolcanoQueue && e.least == e.GroupMin {
		return false, changed
	}
	was, least := e.InGroup, e.least
	o.unindex(e)
	e.InGroup, e.InVolcano, e.least = now, e.VolcanoQueue, e.GroupMin
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
func (o *Objects) Naming(n Name) []string { return api.SortedKeys(o.labelled[n]) }

func (o *Objects) index(e *Entry) {
	if e.InGroup != (Name{}) {
		put(o.labelled, e.InGroup, e)
	} else {
		put(o.loose, e.Namespace, e)
	}
	if e.InVolcano != "" {
		put(o.inVolcano, e.InVolcano, e)
	}
}

func (o *Objects) unindex(e *Entry) {
	if e.InGroup != (Name{}) {
		remove(o.labelled, e.InGroup, e)
	} else {
		remove(o.loose, e.Namespace, e)
	}
	if e.InVolcano != "" {
		remove(o.inVolcano, e.InVolcano, e)
	}
}

func put[K comparable](index map[K]map[string]*Entry, key K, e *Entry) {
	m := index[key]
	if m == nil {
		m = map[string]*Entry{}
		index[key] = m
	}
	m[e.UID] = e
}

func remove[K comparable](index map[K]map[string]*Entry, key K, e *Entry) {
	delete(index[key], e.UID)
	if len(index[key]) == 0 {
		delete(index, key)
	}
}
