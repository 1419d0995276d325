package audit

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1beta1"
)

// clock is how messages print a time.
const clock = "15:04:05.000"

// keptGone is for how long a gang of which nothing is left is remembered, so that a late write about it is noticed.
const keptGone = 10 * time.Minute

// cluster is what the API server shows.
type cluster struct {
	listed  bool // pods were listed once
	grouped bool // PodGroups were listed once
	pods    map[string]*pod
	nodes   map[string]*node
	gangs   map[string]*gang
	groups  map[string]string          // namespace/name -> UID of the PodGroup that exists
	members map[string]map[string]*pod // namespace/name of a group -> pods that name it, by UID
	stamps  map[string]*stamp
	unseen  map[string]time.Time // pods that only intents spoke of, and since when none does
	// deferred collects the nodes to be judged at the end of a list: its pods come in no order.
	deferred map[string]bool
	queues   map[string]*queueObject
	standIns map[[2]string]bool          // Queue, and queue of Volcano's that it stood for at some time
	ids      map[uint64]*pod             // pods by api.PodID
	denied   map[string]map[string]*gang // queue -> gangs that were told that it lacks room, by UID
	spaces   map[string]space            // namespaces
	on       map[string]map[string]*pod  // node -> its unfinished pods, by UID
	wide     map[string]*pod             // those of them with anti-affinity terms whose domains are larger than nodes

	left     []beside        // pods that are gone, for a while
	leftTo   time.Time       // what was gone by then is forgotten
	lost     map[string]lost // nodes that are gone, likewise
	looked   int             // of late, by mayLook
	recounts int             // pods whose affinity and spread were judged,
	spared   int             // and those for which too little was known
	lookedAt time.Time
}

type pod struct {
	uid       string
	known     bool // seen at the API server and not gone; otherwise only intents speak of it
	version   string
	ours      bool
	group     string // as groupName has it, "" for a gang of one
	least     int    // the minimum that it says of an implied group
	node      string
	label     string // its api.LabelGang
	labelled  bool   // got that label together with its node, as our Bindings do it: anybody may set the label alone
	finished  bool
	started   bool // its phase is past Pending
	leaving   bool // it is being deleted
	priority  int64
	requests  api.Resources
	rows      []*row
	announced map[string]bool // nodes for which an intent was ever seen
	intended  int64           // revision of the last one
	decided   time.Time       // when the last new one was seen, zero for none
	foreign   bool            // bound by somebody else
	counted   *gang           // the gang whose pods ever bound it is counted among
	ports     []port          // host ports that it has on its node
	evicted   string          // the reason of the condition that our evictions set, "" for none
	hopeless  bool            // shows PodScheduled=False with reason Unschedulable
	repulsion *repulsion      // while it is unfinished and has a node
	worn      *repulsion      // its labels before
	place     place           // of its last intent

	gang   *gang
	counts []count // what it adds to nodes now
	share  share   // what it adds to its gang now
}

// count is what a pod adds to a node: as bound by us, as pending by an intent, or as foreign.
type count struct {
	node     string
	as       int
	requests api.Resources
}

const (
	asBound = iota
	asPending
	asForeign
)

type share struct {
	gang    *gang
	live    int           // 1: exists and is not finished
	present int           // 1: exists and has a node, finished or not
	total   api.Resources // when live
	bound   api.Resources // when live and bound
	must    api.Resources // of bound: what has to be charged
	stands  int           // 1: live, bound and not being deleted
	waits   int           // 1: live, not bound and not being deleted
}

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

type gang struct {
	uid      string
	name     string // namespace/name of its PodGroup, "" while it was not seen
	group    bool   // a PodGroup, and not a gang of one
	exists   bool   // its PodGroup does
	kind     api.GroupKind
	minCount int32
	queue    string // spec.queue
	complete bool   // had its minimum bound once
	ever     int32  // distinct pods that were ever bound

	live, present int
	stand, wait   int       // pods that run, and that might run with them
	lacks         bool      // fewer run than its minimum, and others wait
	lacked        time.Time // when that was so last
	total, bound  api.Resources
	floor         api.Resources // it may be charged that for fewer pods
	must          api.Resources // of bound: what has to be charged

	reservation *reservation
	attempts    map[string]uint64 // queue -> the largest: where a gang's queue is changed, another shard counts
	charged     share             // what it adds to the queues' bound sums
	chargedTo   string            // queue
	rest        api.Resources     // of a forced reservation: what no bound pod explains
	restAt      string            // queue
	idle        time.Time         // since when nothing is left of it

	first       time.Time // when it was first seen
	everHad     bool      // a reservation
	everClosing bool      // its reservation was
	waits       waits

	everYielding  bool              // it was closing for another gang
	yielded       map[string]uint64 // for whom it was closed, and under which attempt of theirs
	everCondemned map[string]bool   // pods that left for a claim
	told          time.Time         // since when its PodGroup says of this life that it has its minimum, or zero
	startedUnder  uint64            // the attempt under which a record said so
	startedFirst  bool              // either was so before the reservation was closed for nobody
	again         bool              // it was evicted: its minimum counts anew

	shape    shape     // what its PodGroup requires of where it is,
	reshaped time.Time // and when that was last changed, zero for never
}

type stamp struct {
	epoch    int64
	writer   string
	sequence int64
	status   any
	version  string
}

func newCluster() cluster {
	return cluster{
		pods: map[string]*pod{}, nodes: map[string]*node{}, gangs: map[string]*gang{},
		groups: map[string]string{}, members: map[string]map[string]*pod{}, stamps: map[string]*stamp{},
		unseen: map[string]time.Time{}, queues: map[string]*queueObject{}, standIns: map[[2]string]bool{}, ids: map[uint64]*pod{}, denied: map[string]map[string]*gang{},
		spaces: map[string]space{}, on: map[string]map[string]*pod{}, wide: map[string]*pod{}, lost: map[string]lost{},
	}
}

func (a *Auditor) pod(uid string) *pod {
	p := a.cluster.pods[uid]
	if p == nil {
		p = &pod{uid: uid, announced: map[string]bool{}}
		a.cluster.pods[uid] = p
		a.cluster.ids[api.PodID(uid)] = p
	}
	return p
}

func (a *Auditor) gang(uid string) *gang {
	g := a.cluster.gangs[uid]
	if g == nil {
		g = &gang{uid: uid, first: a.now}
		a.cluster.gangs[uid] = g
	}
	return g
}

func (a *Auditor) node(name string) *node {
	n := a.cluster.nodes[name]
	if n == nil {
		n = &node{name: name, states: map[string]*nodeState{}}
		a.cluster.nodes[name] = n
	}
	return n
}

// ---- pods

func (a *Auditor) podsReplaced(pods []*v1.Pod) {
	a.cluster.deferred = map[string]bool{}
	there := map[string]bool{}
	for _, p := range pods {
		there[string(p.UID)] = true
	}
	for _, uid := range slices.Sorted(maps.Keys(a.cluster.pods)) {
		if a.cluster.pods[uid].known && !there[uid] {
			a.podGone(uid)
		}
	}
	first := !a.cluster.listed
	a.cluster.listed = true
	for _, p := range pods {
		if first && a.store.snapshot && p.Spec.NodeName != "" { // its intent was before our time
			a.pod(string(p.UID)).announced[p.Spec.NodeName] = true
		}
		a.podSeen(p)
	}
	deferred := a.cluster.deferred
	a.cluster.deferred = nil
	for _, name := range slices.Sorted(maps.Keys(deferred)) {
		a.judgeNode(a.node(name))
	}
}

func (a *Auditor) podSeen(o *v1.Pod) {
	p := a.pod(string(o.UID))
	if p.node != "" && p.node != o.Spec.NodeName {
		a.violate(Violation{Kind: Binding, Object: "pod " + p.uid, Versions: []string{p.version, o.ResourceVersion},
			Message: fmt.Sprintf("%s/%s was on node %s and is on node %q", o.Namespace, o.Name, p.node, o.Spec.NodeName)})
	}
	fresh, wasBound := p.version == "", p.node != ""
	p.known, p.version = true, o.ResourceVersion
	p.ours, p.node = slices.Contains(a.cfg.Schedulers, o.Spec.SchedulerName), o.Spec.NodeName
	p.finished = o.Status.Phase == v1.PodSucceeded || o.Status.Phase == v1.PodFailed
	if label := o.Labels[api.LabelGang]; label != p.label {
		p.labelled = p.labelled || !fresh && !wasBound && p.node != "" && label != ""
		p.label = label
	}
	group := ""
	if name := o.Labels[api.LabelPodGroup]; name != "" && p.ours {
		group = groupName(api.BasaltGroup, o.Namespace, name)
	} else if name := cmp.Or(o.Annotations["scheduling.k8s.io/group-name"], o.Annotations["scheduling.volcano.sh/group-name"]); name != "" && p.ours && a.cfg.Volcano {
		group = groupName(api.VolcanoGroup, o.Namespace, name)
	}
	if g := o.Spec.SchedulingGroup; g != nil && g.PodGroupName != nil && *g.PodGroupName != "" && group == "" && p.ours {
		group = groupName(api.UpstreamGroup, o.Namespace, *g.PodGroupName)
	}
	if name, least := api.Implied(o); name != "" && group == "" && p.ours {
		a.joinImplied(p, o.Namespace, name, least)
	} else {
		a.join(p, group)
	}
	if requests := a.requestsOf(o); !p.requests.Equal(requests) {
		p.requests = requests
	}
	p.leaving = o.DeletionTimestamp != nil
	p.started = o.Status.Phase != v1.PodPending && o.Status.Phase != ""
	p.priority = 0
	if o.Spec.Priority != nil {
		p.priority = int64(*o.Spec.Priority)
	}
	if a.now.Before(a.gap) {
		a.excuseBinding(p)
	}
	a.recount(p)
	a.podWaits(p, o)
	a.judgePod(p, o, fresh, wasBound)
}

// excuseBinding takes it that the intent of a bound pod was missed.
func (a *Auditor) excuseBinding(p *pod) {
	if p.known && p.node != "" && p.label != "" && !p.announced[p.node] {
		p.announced[p.node] = true
		a.recount(p)
	}
}

// strip leaves out the resources that are ignored.
func (a *Auditor) strip(r api.Resources) api.Resources {
	if len(a.cfg.Ignore) == 0 {
		return r
	}
	return slices.DeleteFunc(slices.Clone(r), func(x api.Amount) bool { return a.cfg.Ignore[x.Resource] })
}

func (a *Auditor) podGone(uid string) {
	p := a.cluster.pods[uid]
	if p == nil {
		return
	}
	a.leave(p)
	p.known = false
	a.join(p, "")
	a.recount(p)
	a.unjudgePod(p)
	a.dropPod(p)
}

func (a *Auditor) forgetPod(uid string) {
	delete(a.cluster.pods, uid)
	if id := api.PodID(uid); a.cluster.ids[id] != nil && a.cluster.ids[id].uid == uid {
		delete(a.cluster.ids, id)
	}
}

// dropPod forgets a pod that neither the API server nor an intent speaks of. One that was never seen is kept for a while:
// on a busy day its intent comes and goes before the watch shows that it exists.
func (a *Auditor) dropPod(p *pod) {
	switch {
	case p.known || len(p.rows) > 0:
	case p.seenBefore():
		a.forgetPod(p.uid)
		delete(a.lasting, limbo(p))
	default:
		a.cluster.unseen[p.uid] = a.now
	}
}

// joinImplied has a pod join the group that only its pods describe.
func (a *Auditor) joinImplied(p *pod, namespace, group string, least int) {
	name := groupName(api.ImpliedGroup, namespace, group)
	p.least = least
	a.join(p, name)
	g := a.gang(api.ImpliedUID(namespace, group))
	g.kind, g.group, g.name = api.ImpliedGroup, true, name
	a.cluster.groups[name] = g.uid
	a.sizeImplied(name)
	if !g.exists {
		g.exists = true
		a.regroup(name)
	}
	a.judgeGang(g)
}

// sizeImplied takes note of what the pods of an implied group say of its minimum. The group ends with the last of them: one that comes
// again is another gang.
func (a *Auditor) sizeImplied(name string) {
	g := a.cluster.gangs[a.cluster.groups[name]]
	if g == nil || g.kind != api.ImpliedGroup {
		return
	}
	g.minCount = 1
	for _, m := range a.cluster.members[name] {
		g.minCount = max(g.minCount, int32(m.least))
	}
	if len(a.cluster.members[name]) == 0 {
		delete(a.cluster.groups, name)
		g.exists, g.complete, g.ever = false, false, 0
		g.endsLife()
		a.judgeGang(g)
	}
}

// join keeps the index of the pods that name a group.
func (a *Auditor) join(p *pod, group string) {
	if was := p.group; was != group {
		delete(a.cluster.members[was], p.uid)
		p.group = group
		if len(a.cluster.members[was]) == 0 {
			delete(a.cluster.members, was)
		}
		a.sizeImplied(was)
	}
	if group == "" {
		return
	}
	m := a.cluster.members[group]
	if m == nil {
		m = map[string]*pod{}
		a.cluster.members[group] = m
	}
	m[p.uid] = p
}

// belongs says which gang a pod is of. An intent says it; else the reservation that names the pod, whatever its labels say;
// else the group that exists under the name. A pod that is bound stays with the gang it was bound in, and one that is bound
// and of no group is a gang of one.
func (a *Auditor) belongs(p *pod) *gang {
	switch {
	case len(p.rows) > 0:
		return a.gang(p.rows[len(p.rows)-1].gang)
	case !p.known:
		return p.gang
	case p.node != "" && a.store.named[api.PodID(p.uid)] != nil:
		return a.gang(a.store.named[api.PodID(p.uid)].gang)
	case !p.ours:
		return nil
	case p.gang != nil && p.node != "":
		return p.gang
	case p.group == "":
		return a.gang(p.uid)
	}
	if uid := a.cluster.groups[p.group]; uid != "" {
		return a.gang(uid)
	}
	if p.node != "" {
		return a.gang(p.uid)
	}
	return nil
}

func limbo(p *pod) lastingKey { return lastingKey{Binding, "pod " + p.uid, "unannounced"} }

// recount works out anew what a pod adds to nodes and to its gang, and judges both.
func (a *Auditor) recount(p *pod) {
	old := p.counts
	p.counts = nil
	live := p.known && !p.finished
	if p.node != "" && p.known && p.ours && !p.foreign && !p.announced[p.node] {
		// Its intent may be on its way to us: the streams are not ordered. Until then it counts for nobody.
		a.lasts(limbo(p), true, 2*a.cfg.Lag, func(time.Time) { a.unannounced(p) })
	} else {
		delete(a.lasting, limbo(p))
	}
	switch {
	case p.node != "":
		as := asBound
		if !p.ours || p.foreign {
			as = asForeign
		}
		if live && (as == asForeign || p.announced[p.node]) {
			p.counts = append(p.counts, count{p.node, as, p.requests})
		}
		if n := a.node(p.node); p.foreign && live {
			if n.strangers == nil {
				n.strangers = map[string]*pod{}
			}
			n.strangers[p.uid] = p
		} else {
			delete(n.strangers, p.uid)
		}
	case !p.finished && (p.known || !p.seenBefore()):
		for i, r := range p.rows {
			if !slices.ContainsFunc(p.rows[:i], func(o *row) bool { return o.node == r.node }) {
				p.counts = append(p.counts, count{r.node, asPending, r.demand})
			}
		}
	}
	for _, c := range old {
		n := a.node(c.node)
		n.uses[c.as] = n.uses[c.as].Sub(c.requests)
	}
	for _, c := range p.counts {
		n := a.node(c.node)
		n.uses[c.as] = n.uses[c.as].Add(c.requests)
	}
	for _, c := range old {
		a.judgeNode(a.node(c.node))
	}
	for _, c := range p.counts {
		a.judgeNode(a.node(c.node))
	}

	g := a.belongs(p)
	if p.node != "" && p.known && g != p.counted && g != nil {
		if p.counted != nil {
			p.counted.ever--
		}
		p.counted = g
		g.ever++
	}
	was := p.share
	p.gang = g
	p.share = share{gang: g}
	if p.known && g != nil {
		if p.node != "" {
			p.share.present = 1
		}
		if live {
			p.share.live, p.share.total = 1, p.requests
			switch {
			case p.leaving:
			case p.node != "":
				p.share.stands = 1
			default:
				p.share.waits = 1
			}
			if p.node != "" {
				p.share.bound = p.requests
				if a.mustBeCharged(p) {
					p.share.must = p.requests
				}
			}
		}
	}
	if was.gang != nil {
		was.gang.live -= was.live
		was.gang.stand, was.gang.wait = was.gang.stand-was.stands, was.gang.wait-was.waits
		was.gang.present -= was.present
		was.gang.total = was.gang.total.Sub(was.total)
		was.gang.bound = was.gang.bound.Sub(was.bound)
		was.gang.must = was.gang.must.Sub(was.must)
	}
	if g != nil {
		g.live += p.share.live
		g.stand, g.wait = g.stand+p.share.stands, g.wait+p.share.waits
		g.present += p.share.present
		g.total = g.total.Add(p.share.total)
		g.bound = g.bound.Add(p.share.bound)
		g.must = g.must.Add(p.share.must)
		a.judgeGang(g)
	}
	was.gang.endsLife()
	g.endsLife()
	if was.gang != nil && was.gang != g {
		a.judgeGang(was.gang)
	}
}

// seenBefore reports whether the API server showed the pod once: then one that is not known now is gone.
func (p *pod) seenBefore() bool { return p.version != "" }

// unannounced is called when no intent was ever seen for a bound pod of ours.
func (a *Auditor) unannounced(p *pod) {
	if p.labelled {
		a.violate(Violation{Kind: Binding, Object: "pod " + p.uid, Versions: []string{p.version},
			Message: fmt.Sprintf("was bound to node %s with our labels, and no intent of it was ever seen", p.node)})
	}
	p.foreign = true
	a.recount(p)
}

// ---- nodes

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

// judgeNode compares what we put on a node with what is there for us: allocatable without what foreigners use. When that
// shrinks below what we hold, nobody of us is to blame, but for adding more when it had long been visible.
//
// Bound pods come in one stream, so more of them than there is room for is wrong even for a moment; only the node's own
// growth may be late, and is waited for. Intents come in another stream, which may run ahead of the pods that made room.
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
			if n.since.Equal(a.now) && total > available { // what was there when the node came was put there under an older sight of it
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
				Message: fmt.Sprintf("%s: bound pods take %s, intents %s; there are %s, of which foreign pods take %s; since %s", name, api.FormatAmount(name, bound),
					api.FormatAmount(name, pending), api.FormatAmount(name, there), api.FormatAmount(name, foreign), since.Format(clock))})
		}
		if over && !st.excused && bound > available {
			a.lasts(atOnce(n, name), true, a.cfg.Lag, say)
		}
		a.lasts(forLong(n, name), over && (!st.excused || st.grew), a.cfg.Lag, say)
	}
}

// ---- gangs

func (a *Auditor) podGroupsReplaced(e PodGroupsReplaced) {
	groups, kind := e.PodGroups, e.Kind
	there := map[string]bool{}
	for _, g := range groups {
		there[string(g.UID)] = true
	}
	for _, uid := range slices.Sorted(maps.Keys(a.cluster.gangs)) {
		if g := a.cluster.gangs[uid]; g.exists && g.kind == kind && !there[uid] {
			a.podGroupGone(uid)
		}
	}
	first := !a.cluster.grouped
	a.cluster.grouped = a.cluster.grouped || kind == api.BasaltGroup
	for _, g := range groups {
		// What was bound before our time may be gone: here, and only here, the status is believed.
		if first && g.Status != nil && meta.IsStatusConditionTrue(g.Status.Conditions, v1beta1.ConditionPodGroupInitiallyScheduled) {
			a.gang(string(g.UID)).complete = true
		}
		a.podGroupSeen(g, kind, e.Floors[g.UID])
	}
}

// groupName is how a group is known by name: of two kinds there may be one of the same.
func groupName(kind api.GroupKind, namespace, name string) string {
	if kind == api.BasaltGroup {
		return namespace + "/" + name
	}
	return kind.String() + " " + namespace + "/" + name
}

func (a *Auditor) podGroupSeen(o *v1beta1.PodGroup, kind api.GroupKind, floor v1.ResourceList) {
	g := a.gang(string(o.UID))
	if kind == api.BasaltGroup {
		floor = o.Spec.MinResources
	}
	if g.floor = a.floorOf(floor); len(g.floor) > 0 {
		g.floor = g.floor.Max(api.Resources{{Resource: pods, Value: max(1, int64(o.Spec.SchedulingPolicy.Gang.MinCount))}})
	}
	g.shaped(a.now, shapeOf(o), g.group)
	g.kind, g.group, g.minCount, g.queue = kind, true, o.Spec.SchedulingPolicy.Gang.MinCount, o.Spec.Queue
	if name := groupName(kind, o.Namespace, o.Name); !g.exists || g.name != name {
		g.exists, g.name = true, name
		a.cluster.groups[name] = g.uid
		a.regroup(name)
	}
	if o.Status != nil {
		a.stamped("podgroup "+g.name+" "+g.uid, o.Status.Stamp, o.Status, o.ResourceVersion)
		g.tellStarted(a.now, meta.IsStatusConditionTrue(o.Status.Conditions, v1beta1.ConditionPodGroupInitiallyScheduled))
	}
	a.groupWaits(g, o)
	a.judgeGang(g)
}

func (a *Auditor) podGroupGone(uid string) {
	g := a.cluster.gangs[uid]
	if g == nil {
		return
	}
	g.exists = false
	a.waitsNot(g)
	delete(a.cluster.stamps, "podgroup "+g.name+" "+g.uid)
	if a.cluster.groups[g.name] == uid {
		delete(a.cluster.groups, g.name)
		a.regroup(g.name)
	}
	a.judgeGang(g)
}

// regroup recounts the pods that name a group which came or went.
func (a *Auditor) regroup(name string) {
	for _, uid := range slices.Sorted(maps.Keys(a.cluster.members[name])) {
		a.recount(a.cluster.members[name][uid])
	}
}

// maxEarly is how long a gang may be charged before it has its pods.
const maxEarly = 6 * time.Minute

// maxKept is how long a gang may be charged for pods of its minimum that it lost.
const maxKept = 2 * time.Minute

// judgeGang judges what needs the pods, the group and the reservation of a gang together; and brings the queues' sums of
// bound pods up to date.
func (a *Auditor) judgeGang(g *gang) {
	r := g.reservation
	// The queues, from what this gang's bound pods take.
	to, bound := "", api.Resources(nil)
	if r != nil && !r.forced {
		to, bound = r.queue, g.must
	}
	if to != g.chargedTo || !bound.Equal(g.charged.bound) {
		for _, path := range api.Lineage(g.chargedTo) {
			q := a.store.queue(path)
			q.bound = q.bound.Sub(g.charged.bound)
		}
		for _, path := range api.Lineage(to) {
			q := a.store.queue(path)
			q.bound = q.bound.Add(bound)
		}
		for _, path := range api.Lineage(g.chargedTo) {
			a.judgeBound(a.store.queue(path))
		}
		for _, path := range api.Lineage(to) {
			a.judgeBound(a.store.queue(path))
		}
		g.chargedTo, g.charged.bound = to, bound
	}
	// A charge may exceed a limit only for pods that are bound: what a forced reservation has beside them is as any other.
	var rest api.Resources
	if r != nil && r.forced {
		rest = r.demand.Sub(g.bound).Positive()
	}
	if forcedTo := queueOf(r); forcedTo != g.restAt || !rest.Equal(g.rest) {
		for _, path := range api.Lineage(g.restAt) {
			q := a.store.queue(path)
			q.rest = q.rest.Sub(g.rest)
		}
		for _, path := range api.Lineage(forcedTo) {
			q := a.store.queue(path)
			q.rest = q.rest.Add(rest)
		}
		for _, path := range append(api.Lineage(g.restAt), api.Lineage(forcedTo)...) {
			a.judgeForced(a.store.queue(path))
		}
		g.rest, g.restAt = rest, forcedTo
	}

	if g.complete = g.complete || g.group && g.ever >= g.minCount; g.lacks {
		g.lacked = a.now
	}
	g.lacks = g.group && g.stand < int(g.minCount) && g.wait > 0
	object := "gang " + g.uid
	if g.name != "" {
		object += " (" + g.name + ")"
	}
	a.lasts(lastingKey{Partial, object, "gang without its minimum"}, g.group && g.exists && !g.complete && g.present > 0 && (!g.again || !g.bound.IsZero()), a.cfg.Grace, func(since time.Time) {
		a.violate(Violation{Kind: Partial, Object: object, Revisions: []int64{a.revision}, Message: fmt.Sprintf("%d of at least %d pods were bound since %s", g.ever, g.minCount, since.Format(clock))})
	})
	// Volcano's PodGroup names its queue without its ancestors. Watches of several kinds come in any order.
	elsewhere := r != nil && g.exists && g.kind == api.VolcanoGroup && g.queue != "" && g.queue != r.queue && !a.cluster.standIns[[2]string{r.queue, g.queue}]
	a.lasts(lastingKey{Reservation, object, "queue"}, elsewhere, a.cfg.Grace, func(since time.Time) {
		a.violate(Violation{Kind: Reservation, Object: object, Revisions: []int64{g.reservation.revision, a.revision},
			Message: fmt.Sprintf("is charged to queue %s, which does not stand for queue %s of its PodGroup, since %s", g.reservation.queue, g.queue, since.Format(clock))})
	})
	leak := func(what string, holds bool, message func(since time.Time) string) {
		a.lasts(lastingKey{Leak, "gang " + g.uid, what}, holds, a.cfg.Grace, func(since time.Time) {
			v := Violation{Kind: Leak, Object: object, Message: message(since), Revisions: []int64{a.revision}}
			if r := g.reservation; r != nil {
				v.Revisions = []int64{r.revision, a.revision}
			}
			a.violate(v)
		})
	}
	// Where Basalt admits Volcano's PodGroups, it reserves their floor before they have pods, for some minutes.
	early := r.isCharged() && g.exists && g.present == 0 && len(g.floor) > 0 && r.demand.Fits(g.total.Max(g.floor))
	a.lasts(lastingKey{Leak, "gang " + g.uid, "reservation before its pods"}, early && g.live < int(g.minCount), maxEarly, func(since time.Time) {
		a.violate(Violation{Kind: Leak, Object: object, Revisions: []int64{g.reservation.revision, a.revision},
			Message: fmt.Sprintf("%s is charged to queue %s and has %d of %d pods since %s", g.reservation.demand, g.reservation.queue, g.live, g.minCount, since.Format(clock))})
	})
	leak("reservation without pods", r != nil && g.live == 0 && !early, func(since time.Time) string {
		return fmt.Sprintf("%s is charged to queue %s and has no unfinished pod since %s", g.reservation.demand, g.reservation.queue, since.Format(clock))
	})
	leak("pods without reservation", r == nil && !g.must.IsZero(), func(since time.Time) string {
		return fmt.Sprintf("has bound pods with %s and no reservation since %s", g.must, since.Format(clock))
	})
	leak("more bound than charged", r != nil && !g.must.Fits(r.demand), func(since time.Time) string {
		return fmt.Sprintf("has bound pods with %s and is charged %s since %s", g.must, g.reservation.demand, since.Format(clock))
	})
	asked := g.total
	if g.live >= int(g.minCount) {
		asked = asked.Max(g.floor)
	}
	more := func(since time.Time) string {
		return fmt.Sprintf("is charged %s and its unfinished pods ask for %s since %s",
			g.reservation.demand, asked, since.Format(clock))
	}
	grown := r != nil && g.live > 0 && !r.demand.Fits(asked) && !early
	short := grown && g.group && g.exists && g.live < int(g.minCount) && r.demand.Value("pods") <= int64(g.minCount)
	leak("more charged than asked for", grown && !short, more)
	// What a gang lost of its minimum is kept for those that replace it.
	a.lasts(lastingKey{Leak, "gang " + g.uid, "what it lost"}, short, maxKept+a.cfg.Grace, func(since time.Time) {
		a.violate(Violation{Kind: Leak, Object: object, Message: more(since),
			Revisions: []int64{g.reservation.revision, a.revision}})
	})
	if g.live == 0 && g.present == 0 && !g.exists && r == nil {
		if g.idle.IsZero() {
			g.idle = a.now
		}
	} else {
		g.idle = time.Time{}
	}
}

// forget drops gangs of which nothing has been left for long, and pods that were never seen.
func (a *Auditor) forget() {
	for uid, since := range a.cluster.unseen {
		p := a.cluster.pods[uid]
		switch {
		case p == nil || p.known || len(p.rows) > 0:
			delete(a.cluster.unseen, uid)
		case a.now.Sub(since) > keptGone:
			delete(a.cluster.unseen, uid)
			a.forgetPod(uid)
		}
	}
	for uid, g := range a.cluster.gangs {
		if !g.idle.IsZero() && a.now.Sub(g.idle) > keptGone {
			delete(a.cluster.gangs, uid)
		}
	}
}
