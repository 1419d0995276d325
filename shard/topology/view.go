package topology

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/shard/event"
	"basalt.dev/basalt/shard/fair"
)

// View is made by New. It is not safe for concurrent use.
type View struct {
	now time.Time

	nodes   []node
	byName  map[string]int32
	free    []int32            // numbers of nodes that nobody has seen, and that no pod names any more
	columns map[string]*column // by the label of nodes that it is about
	hosts   map[string]int     // nodes by hostname
	shared  bool               // some had the same: then the terms about hostnames are for this package, too

	spaces  map[string]*space // by namespace
	version string            // of a pod, the newest that the watch has shown

	// The log of intents.
	position   int64 // up to which it was seen; 0: not read yet
	gap        bool  // it was read again, and pods were not listed since: rows that came and went in between are not known
	keys       map[keyID]*logged
	rows       map[string][]*row // by pod UID: those that may not be over
	order      []*row            // in order of their places, those that are over among them
	over       int               // how many
	disordered bool
	blind      map[*row]bool // those whose pod is not known yet as they name it

	last          int
	counters      map[string]*counter // of matching pods, by what they match
	countAnywhere []*counter          // those whose pods may be of any namespace
	everywhere    bool                // there was one: the pods of all namespaces are counted
	repelling
	tallies    []*tally
	filters    map[string]*filter
	rules      map[ruleKey]*Rules
	generation uint64         // of all that rules are made of: those of another are made anew
	made       map[string]int // counters by namespace,
	tallied    map[string]int // tallies of spreads,
	filtered   map[string]int // and bytes of filters
	spent      fair.Budget    // on counting what is new
	swept      time.Time
	busy       fair.Budget     // and on counting changes
	overspent  map[string]bool // namespaces that are to give selectors up
	changed    map[string]bool // namespaces for which something is counted otherwise, so that more may fit
	trials     int             // under way
	asked      Asked           // in a trial: what else there is counts nothing
	there      int             // nodes
	leaning    leaning
	terms      map[string][]*api.Term
	onePod     map[string][]string // claims that one pod at a time may use, by Class.Repels
	joins      map[string]*api.Joins

	Excess map[string]bool // namespaces with more terms of bound pods than are heeded
}

// weight is how a pod counts.
type weight uint8

const (
	bound     weight = iota
	promised         // by a row
	nominated        // by another scheduler, which may never bind it: nothing relies on it
	held             // by a hold of this shard
	weights
)

// counts are numbers of pods by weight.
type counts [weights]int32

func (c *counts) add(o counts, by int32) {
	for i := range c {
		c[i] += by * o[i]
	}
}

func (c *counts) none() bool { return *c == counts{} }

// node is one that exists, or that some pod names.
type node struct {
	name    string
	object  *api.Node // nil: it does not exist
	seen    bool      // it did once,
	version string    // and this is the newest version that was seen
	entries int       // of pods
}

// column says in which domain of a topology key each node is.
type column struct {
	label   string
	of      []int32 // by node: its domain, -1 for none; nodes beyond its end have none
	placed  int     // nodes in some domain
	nodes   []int32 // by domain: its nodes
	domains int     // with nodes
	ids     map[string]int32
	values  []string
}

// space is a namespace.
type space struct {
	name     string
	labels   map[string]string
	pods     map[string]*pod   // by UID
	users    map[string][]user // by claim: those that name it
	counted  bool              // some constraint is about its pods, and so they are counted
	kins     map[kinKey][]*kin
	counters []*counter             // that name it
	carriers []*carrier             // those heeded whose terms name it
	terms    map[string][]*api.Term // what those count as here that its pods carry and that cross namespaces

	concerned  []*carrier // those whose terms select namespaces, and this is one of them,
	compared   int        // as far as carriers have been compared: the serial of the last one
	generation uint64     // of both: rules of another are made anew
}

// pod is one that is not finished.
type pod struct {
	object  *api.Pod
	entries []entry
	uses    []use // the claims that it named when it was first seen: it never names others
}

// use is a claim that a pod names, and where the pod is among its users.
type use struct {
	claim string
	at    int32
}

// user is a pod that names a claim, its k-th.
type user struct {
	pod *pod
	k   int32
}

// entry is a pod where it counts.
type entry struct {
	node   int32
	kin    *kin
	weight weight
}

type kinKey struct {
	labels   uint64
	unlisted bool
	deleting bool
	repels   string
}

// kin are the pods of a namespace that count alike.
type kin struct {
	space    *space
	labels   *api.Labels
	unlisted bool // their labels are not known: they match whatever is said of them
	deleting bool
	terms    []*carrier // that they carry
	in       []*counter
	dear     []price // of a change
	on       map[int32]counts
}

// price is what a change of a pod costs a namespace: so many selectors beyond freeCounts.
type price struct {
	maker string
	n     int64
}

// New makes a View that knows nothing yet.
func New() *View {
	v := &View{
		byName: map[string]int32{}, hosts: map[string]int{}, columns: map[string]*column{}, spaces: map[string]*space{},
		keys: map[keyID]*logged{}, rows: map[string][]*row{}, blind: map[*row]bool{}, counters: map[string]*counter{},
		filters: map[string]*filter{}, rules: map[ruleKey]*Rules{}, made: map[string]int{}, tallied: map[string]int{},
		filtered: map[string]int{}, changed: map[string]bool{}, overspent: map[string]bool{}, Excess: map[string]bool{},
		terms: map[string][]*api.Term{}, onePod: map[string][]string{}, joins: map[string]*api.Joins{},
	}
	v.carriers, v.carried = map[string]*carrier{}, map[string]int{}
	v.spent, v.busy = fair.Budget{Rate: countedRate}, fair.Budget{Rate: countedRate}
	return v
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
		v.podsReplaced(ev.Pods)
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
		v.sweep()
	}
}

// ---- nodes

// nodeOf returns the number of a node, which it gets if it has none yet.
func (v *View) nodeOf(name string) int32 {
	n, known := v.byName[name]
	if !known {
		if n = int32(len(v.nodes)); len(v.free) > 0 {
			n, v.free = v.free[len(v.free)-1], v.free[:len(v.free)-1]
			v.byName[name], v.nodes[n] = n, node{name: name}
			return n
		}
		v.byName[name] = n
		v.nodes = append(v.nodes, node{name: name})
		for _, f := range v.filters {
			f.admits = append(f.admits, false)
		}
	}
	return n
}

// Node returns the number of a node, for Rules.Obstacle.
func (v *View) Node(name string) int32 { return v.nodeOf(name) }

func (v *View) nodeSeen(object *api.Node) {
	if object == nil || object.Name == "" {
		return
	}
	n := v.nodeOf(object.Name)
	if api.NewerVersion(object.ResourceVersion, v.nodes[n].version) {
		v.nodes[n].version = object.ResourceVersion
	}
	before := v.nodes[n].object
	if before != nil && maps.Equal(before.Labels, object.Labels) && slices.EqualFunc(before.Taints, object.Taints, sameTaint) {
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
	v.noteHost(v.nodes[n].object, object)
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
		f.judge(v, n)
	}
	for _, t := range v.tallies {
		t.put(n, 1)
		v.open(t.counter, "")
	}
	heedThoseInDomains(v)
}

// noteHost counts nodes by hostname. The shard of a node decides about terms whose domains are hostnames, but of the pods on nodes of
// other shards it does not know the terms. So when two nodes share a hostname, which is somebody's mistake, these terms are like others.
func (v *View) noteHost(before, now *api.Node) {
	if before != nil {
		if host, has := before.Labels[api.LabelHostname]; has {
			if v.hosts[host]--; v.hosts[host] == 0 {
				delete(v.hosts, host)
			}
		}
	}
	if now == nil {
		return
	}
	host, has := now.Labels[api.LabelHostname]
	if !has {
		return
	}
	if v.hosts[host]++; v.hosts[host] > 1 && !v.shared {
		v.shared = true
		v.readTermsAgain()
	}
}

// readTermsAgain counts all pods anew, by all terms that they carry.
func (v *View) readTermsAgain() {
	clear(v.terms)
	for _, name := range api.SortedKeys(v.spaces) {
		v.spaces[name].readTermsAgain(v)
	}
}

// readTermsAgain does it for a namespace.
func (s *space) readTermsAgain(v *View) {
	s.terms = nil
	clear(v.rules)
	v.generation++
	for _, r := range v.order {
		if r.namespace == s.name {
			r.terms = v.wide(s.name, r.repels)
		}
	}
	uids := api.SortedKeys(s.pods)
	before := make([][]entry, len(uids))
	for i, uid := range uids {
		before[i] = s.pods[uid].entries
		v.set(s.pods[uid], nil)
	}
	for _, list := range s.kins {
		for _, k := range list {
			for _, c := range k.terms {
				c.kins--
			}
		}
	}
	clear(s.kins)
	for i, uid := range uids {
		p := s.pods[uid]
		if e := before[i]; len(e) > 0 && e[0].weight == held {
			v.set(p, []entry{{node: e[0].node, kin: v.kinOf(s, p.object), weight: held}})
		}
		v.recount(s, p)
	}
}

// Labelled reports whether some node has a label.
func (v *View) Labelled(label string) bool {
	return slices.ContainsFunc(v.nodes, func(n node) bool {
		if n.object == nil {
			return false
		}
		_, has := n.object.Labels[label]
		return has
	})
}

// columnOf returns the column of a label, which it makes if it is new.
func (v *View) columnOf(label string) *column {
	c := v.columns[label]
	if c == nil {
		c = &column{label: label, ids: map[string]int32{}}
		for n := range v.nodes {
			c.place(int32(n), v.nodes[n].object)
		}
		v.columns[label] = c
	}
	return c
}

// at returns the domain of a node, -1 for none.
func (c *column) at(n int32) int32 {
	if int(n) >= len(c.of) {
		return -1
	}
	return c.of[n]
}

func (c *column) place(n int32, object *api.Node) {
	if d := c.at(n); d >= 0 {
		c.of[n] = -1
		c.placed--
		if c.nodes[d]--; c.nodes[d] == 0 {
			c.domains--
		}
	}
	if object == nil {
		return
	}
	value, has := object.Labels[c.label]
	if !has {
		return
	}
	id, known := c.ids[value]
	if !known {
		id = int32(len(c.values))
		c.ids[value] = id
		c.values, c.nodes = append(c.values, value), append(c.nodes, 0)
	}
	for int(n) >= len(c.of) {
		c.of = append(c.of, -1)
	}
	c.of[n] = id
	c.placed++
	if c.nodes[id]++; c.nodes[id] == 1 {
		c.domains++
	}
}

// ---- pods

// in returns a namespace, which it makes if it is new.
func (v *View) in(namespace string) *space {
	s := v.spaces[namespace]
	if s == nil {
		s = &space{name: namespace, pods: map[string]*pod{}, users: map[string][]user{}, kins: map[kinKey][]*kin{}, counted: v.everywhere}
		v.spaces[namespace] = s
	}
	return s
}

// podOf returns a pod, nil if it is not known.
func (v *View) podOf(namespace, uid string) *pod {
	if s := v.spaces[namespace]; s != nil {
		return s.pods[uid]
	}
	return nil
}

// Knows reports whether the pod watch has shown a pod.
func (v *View) Knows(namespace, uid string) bool { return v.podOf(namespace, uid) != nil }

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

// watch has the pods of a namespace counted from now on.
func (v *View) watch(s *space) {
	if s.counted {
		return
	}
	s.counted = true
	for _, uid := range api.SortedKeys(s.pods) {
		v.recount(s, s.pods[uid])
	}
}

// recount counts a pod where it is, or may come to be.
func (v *View) recount(s *space, p *pod) {
	rows := v.rows[p.object.UID]
	if len(rows) > 0 {
		v.endRows(p)
		rows = v.rows[p.object.UID]
	}
	if !s.counted && (p.object.Class == nil || len(v.wide(s.name, string(p.object.Class.Repels))) == 0) {
		return
	}
	at := cmp.Or(p.object.Node, p.object.Nominated)
	if at == "" && len(rows)+len(p.entries) == 0 {
		return
	}
	k := v.kinOf(s, p.object)
	var now []entry
	switch {
	case p.object.Node != "":
		now = []entry{{node: v.nodeOf(at), kin: k, weight: bound}}
	case at != "":
		now = []entry{{node: v.nodeOf(at), kin: k, weight: nominated}}
	default:
		for _, r := range rows {
			e := entry{node: v.nodeOf(r.node), kin: k, weight: promised}
			if r.bound {
				e.weight = bound
			}
			now = append(now, e)
		}
		if len(now) == 0 && p.entries[0].weight == held { // without rows it has entries
			now = []entry{{node: p.entries[0].node, kin: k, weight: held}}
		}
	}
	v.set(p, now)
}

// set replaces what a pod counts as.
func (v *View) set(p *pod, now []entry) {
	if slices.Equal(p.entries, now) {
		return
	}
	for _, e := range now {
		v.count(e, 1)
	}
	for _, e := range p.entries {
		v.count(e, -1)
	}
	p.entries = now
	if v.trials == 0 {
		v.giveUp()
	}
}

func (v *View) count(e entry, by int32) {
	var c counts
	c[e.weight] = 1
	k := e.kin
	v.nodes[e.node].entries += int(by)
	on := k.on[e.node]
	on.add(c, by)
	if on.none() {
		delete(k.on, e.node)
	} else {
		k.on[e.node] = on
	}
	opens := by < 0 || e.weight == bound
	if v.asked == nil {
		for _, p := range k.dear {
			v.charge(p.maker, p.n)
		}
	}
	for _, s := range k.in {
		if v.asked != nil && !v.asked[s] {
			continue
		}
		s.add(e.node, c, by)
		if opens {
			v.open(s, k.space.name)
		}
	}
	for _, s := range k.terms {
		if v.asked != nil && !v.asked[&s.counter] {
			continue
		}
		s.add(e.node, c, by)
		s.heed(v)
		if opens {
			v.open(&s.counter, k.space.name)
		}
	}
}

// kinOf returns the kin of a pod, which it makes if it is new.
func (v *View) kinOf(s *space, p *api.Pod) *kin {
	key := kinKey{unlisted: p.Unlisted, deleting: p.Deleting}
	if p.Class != nil {
		key.repels = string(p.Class.Repels)
	}
	if p.Labels != nil {
		key.labels = p.Labels.Hash
	}
	for _, k := range s.kins[key] {
		if k.labels.Equal(p.Labels) {
			return k
		}
	}
	k := &kin{space: s, labels: p.Labels, unlisted: p.Unlisted, deleting: p.Deleting, on: map[int32]counts{}}
	for _, t := range v.wide(s.name, key.repels) {
		if c := v.carrierOf(t, s.name, carriedByNamespace); c != nil {
			k.terms = append(k.terms, c)
			c.kins++
		} else {
			v.Excess[s.name] = true
		}
	}
	v.sort(k)
	s.kins[key] = append(s.kins[key], k)
	return k
}

// sort finds the counters that a kin belongs to.
func (v *View) sort(k *kin) {
	k.in = nil
	for _, list := range [][]*counter{k.space.counters, v.countAnywhere} {
		for _, s := range list {
			if s.matches(k) {
				k.in = append(k.in, s)
			}
		}
	}
	slices.SortFunc(k.in, func(a, b *counter) int { return cmp.Compare(a.number, b.number) })
	k.weigh()
	if n := len(k.space.counters); n > freeCounts {
		v.charge(k.space.name, int64(n)/4) // to compare costs a quarter of what counting does
	}
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

func sortedKeys(m map[kinKey][]*kin) []kinKey {
	return slices.SortedFunc(maps.Keys(m), func(a, b kinKey) int {
		return cmp.Or(cmp.Compare(a.labels, b.labels), cmp.Compare(a.repels, b.repels), compareBool(a.unlisted, b.unlisted), compareBool(a.deleting, b.deleting))
	})
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
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

// Opened returns the namespaces for which something is counted otherwise since the last call, so that a pod may fit that did not before: true
// where that is because of the nodes or of its own pods, false where others' pods alone came or went.
func (v *View) Opened() map[string]bool {
	if len(v.changed) == 0 {
		return nil
	}
	out := v.changed
	v.changed = map[string]bool{}
	return out
}

// open notes that something is counted otherwise because of a pod of a namespace, or with "" of a node.
func (v *View) open(s *counter, because string) {
	if v.trials > 0 {
		return
	}
	s.opened++
	for namespace := range s.by {
		v.changed[namespace] = v.changed[namespace] || because == "" || because == namespace
	}
}
