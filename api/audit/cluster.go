package audit

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"basalt.dev/basalt/api"
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
		g.exists = false
		g.begins()
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
