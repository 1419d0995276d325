package topology

import (
	"maps"
	"slices"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/shard/event"
)

// View is made by New. It is not safe for concurrent use.
type View struct {
	now time.Time

	nodeTable
	spaces  map[string]*space // by namespace
	version string            // of a pod, the newest that the watch has shown
	intentLog

	counting
	repelling
	filterSet
	reading
	rules      memo[ruleKey, *Rules]
	leanings   memo[ruleKey, *Leanings]
	generation uint64 // of all that rules are made of: those of another are made anew
	swept      time.Time
	changed    map[string]bool // namespaces for which something is counted otherwise, so that more may fit
	trials     int             // under way
	asked      Asked           // in a trial: what else there is counts nothing

	Excess map[string]bool // namespaces with more terms of bound pods than are heeded
}

// New makes a View that knows nothing yet.
func New() *View {
	return &View{
		nodeTable: nodeTable{byName: map[string]int32{}, columns: map[string]*column{}, hosts: map[string]int{}},
		spaces:    map[string]*space{},
		intentLog: intentLog{keys: map[keyID]*logged{}, rows: map[string][]*row{}, blind: map[*row]bool{}},
		counting:  newCounting(),
		repelling: repelling{carriers: map[string]*carrier{}, carried: map[string]int{}},
		filterSet: filterSet{filters: map[string]*filter{}, filtered: map[string]int{}},
		changed:   map[string]bool{},
		Excess:    map[string]bool{},
	}
}

// Step takes an event; those that do not concern it are ignored.
func (v *View) Step(now time.Time, ev event.Event) {
	if now.After(v.now) {
		v.now = now
	}
	switch ev := ev.(type) {
	case event.PodSeen:
		v.podSeen(ev.Pod)
	case event.PodGone:
		v.podGone(ev.Namespace, ev.UID)
	case event.PodsReplaced:
		if !ev.Seen {
			v.podsReplaced(ev.Pods)
		}
		if ev.AfterLog {
			v.listed()
		}
	case event.NodeSeen:
		v.nodeSeen(ev.Node)
	case event.NodeGone:
		v.nodeGone(ev.Name)
	case event.NamespaceSeen:
		v.namespaceSeen(ev.Name, ev.Labels)
	case event.NamespaceGone:
		v.namespaceSeen(ev.Name, nil)
	case event.LogRead:
		v.logRead(ev)
	case event.LogSeen:
		v.logSeen(ev)
	case event.Tick:
		v.settleBlind()
		v.sweep()
	}
}

func (v *View) podsReplaced(list []*api.Pod) {
	there := make(map[string]bool, len(list))
	for _, p := range list {
		if p != nil {
			there[p.UID] = true
		}
	}
	for _, name := range api.SortedKeys(v.spaces) {
		for _, uid := range api.SortedKeys(v.spaces[name].pods) {
			if !there[uid] {
				v.podGone(name, uid)
			}
		}
	}
	for _, p := range list {
		v.podSeen(p)
	}
}

func (v *View) podSeen(object *api.Pod) {
	if object == nil || object.UID == "" {
		return
	}
	if api.NewerVersion(object.ResourceVersion, v.version) {
		v.version = object.ResourceVersion
	}
	if object.Finished {
		v.podGone(object.Namespace, object.UID)
		return
	}
	s := v.in(object.Namespace)
	p := s.pods[object.UID]
	if p == nil {
		p = &pod{}
		s.pods[object.UID] = p
		for k, claim := range object.Claims {
			p.uses = append(p.uses, use{claim, int32(len(s.users[claim]))})
			s.users[claim] = append(s.users[claim], user{p, int32(k)})
		}
	}
	p.object = object
	v.recount(s, p)
}

func (v *View) podGone(namespace, uid string) {
	p := v.podOf(namespace, uid)
	if p == nil {
		return
	}
	v.set(p, nil)
	s := v.spaces[namespace]
	delete(s.pods, uid)
	for _, u := range p.uses {
		list := s.users[u.claim]
		last := list[len(list)-1]
		list[u.at], last.pod.uses[last.k].at = last, u.at
		list[len(list)-1] = user{}
		if s.users[u.claim] = list[:len(list)-1]; len(list) == 1 {
			delete(s.users, u.claim)
		}
	}
	v.judgeBlind(uid)
}

func (v *View) namespaceSeen(name string, labels map[string]string) {
	s := v.in(name)
	if maps.Equal(s.labels, labels) {
		return
	}
	s.labels = labels
	if s.concerned, s.compared = nil, 0; s.terms != nil {
		s.readTermsAgain(v)
	}
	s.generation++
	v.changed[name] = true // other terms may be about its own pods
	for _, key := range sortedKeys(s.kins) {
		for _, k := range s.kins[key] {
			before := k.in
			v.sort(k)
			if slices.Equal(before, k.in) {
				continue
			}
			for _, c := range before {
				c.addAll(k, -1)
				v.open(c, name)
			}
			for _, c := range k.in {
				c.addAll(k, 1)
				v.open(c, name)
			}
		}
	}
}

// ---- what this shard's own cores know

// Hold counts a pod that a node of this shard is held for, "" when it is not any more.
func (v *View) Hold(namespace, uid, name string) {
	p := v.podOf(namespace, uid)
	if p == nil || len(p.entries) > 0 && p.entries[0].weight != held {
		return
	}
	asked := v.asked
	v.asked = nil // during a trial holds of other gangs may end: everybody has to count that
	defer func() { v.asked = asked }()
	if name == "" {
		v.set(p, nil)
		return
	}
	v.set(p, []entry{{node: v.nodeOf(name), kin: v.kinOf(v.in(namespace), p.object), weight: held}})
}

// Bound takes a shard's word that a pod was bound by its row, before the watch shows it.
func (v *View) Bound(namespace, uid, name string) {
	p := v.podOf(namespace, uid)
	for _, r := range v.rows[uid] {
		if r.node == name && !r.bound {
			r.bound = true
			if p != nil {
				v.recount(v.spaces[namespace], p)
			}
		}
	}
}

// Opened returns the namespaces for which something is counted otherwise since the last call, so that a pod may fit
// that did not before: true where that is because of the nodes or of its own pods, false where others' pods alone
// came or went.
func (v *View) Opened() map[string]bool {
	if len(v.changed) == 0 {
		return nil
	}
	out := v.changed
	v.changed = map[string]bool{}
	return out
}

func (v *View) nodeSeen(object *api.Node) {
	if object == nil || object.Name == "" {
		return
	}
	n := v.nodeOf(object.Name)
	if api.NewerVersion(object.ResourceVersion, v.nodes[n].version) {
		v.nodes[n].version = object.ResourceVersion
	}
	before := v.nodes[n].object
	if before != nil && maps.Equal(before.Labels, object.Labels) &&
		slices.EqualFunc(before.Taints, object.Taints, sameTaint) {
		v.nodes[n].object = object
		return
	}
	v.move(n, object)
}

func (v *View) nodeGone(name string) {
	if n, known := v.byName[name]; known && v.nodes[n].object != nil {
		v.move(n, nil)
	}
}

// move takes a node as it is now. What is counted on it moves to the domains that it is in.
func (v *View) move(n int32, object *api.Node) {
	if v.noteHost(v.nodes[n].object, object) {
		v.readTermsAgain()
	}
	for _, t := range v.tallies {
		t.put(n, -1)
	}
	v.there += int(flag(object != nil)) - int(flag(v.nodes[n].object != nil))
	v.nodes[n].object = object
	v.nodes[n].seen = v.nodes[n].seen || object != nil
	for _, c := range v.columns {
		fresh := c.placed == 0
		if c.place(n, object); fresh && c.placed > 0 { // terms about it matter now
			v.generation++
		}
	}
	for _, f := range v.filters {
		f.admits[n] = f.admit(object)
	}
	for _, t := range v.tallies {
		t.put(n, 1)
		v.open(t.counter, "")
	}
	heedThoseInDomains(v)
}
