package home

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/api/v1alpha1"
	"basalt.dev/basalt/shard/event"
	"basalt.dev/basalt/shard/home/report"
)

// Intake: which pods make which gang, and which queue pays for it.
//
// Both are functions of the objects that exist now, the same at every shard, so that exactly one shard drives a gang:
//
//	pod without a PodGroup          its own label, else its namespace's, else `default`
//	PodGroup with spec.queue        that queue
//	PodGroup without                its pods' queue by the rule above, if they agree; else its namespace's, else `default`
//
// When a gang's queue changes (somebody edits a label), its reservation is given back in the old queue, and the new
// queue's home takes the pods up as they are.
//
// A pod without a node belongs to the PodGroup that has the name in its label now. A bound pod stays with the gang and the
// queue under which it was bound until it ends, for its owner may edit its labels at any time and must not move its charge
// (pinned). For which gang a pod was bound is known, in this order:
//
//	from its Commit                             while the home that committed it lives
//	from the reservation that names it          at a takeover: no label is tamper-proof, the control store is
//	from its labels when it was first seen bound    for a pod that no reservation names
//
// So labels count once, when a pod is first seen with a node: later edits change nothing. A bound pod whose PodGroup does not
// exist is a gang of one, charged to the queue of its own labels. Shards that saw different labels may both claim a pod; the
// coordinator charges it once, and denies the other (DENY_CHARGED_ELSEWHERE). A pod joins a gang only in its own namespace.
//
// One exception: a pod that was made after the present PodGroup, and bound for an earlier one of that name because its home
// had not heard yet that the earlier one was gone, is the present one's where both are in the same queue.

// place is how far a pod has come.
type place uint8

const (
	nowhere   place = iota
	held            // a node shard holds room for it
	committed       // named in a Commit: an intent of it may exist
	bound           // it has a node
)

// pod is a pod that Basalt may have to place or charge.
type pod struct {
	*api.Pod
	version string // newest resourceVersion that is known: of the watch, or of our own last write
	settled string // the one that settling made, "" if none: older ones can no longer be bound

	id     uint64          // api.PodID
	group  name            // of the PodGroup that its label names; zero for a pod of its own; as it was when first seen bound
	queue  string          // LabelQueue, likewise
	payer  string          // of a bound gang of one without that label: the queue of its namespace, likewise
	pinned string          // UID of the gang under which it was committed or seen bound
	sure   bool            // pinned rests on more than LabelGang, which anybody may have written
	voice  *group          // the PodGroup whose queue it has a say in,
	says   string          // and what it says
	gang   *gang           // nil when it is none of ours
	first  time.Time       // when it was first seen
	place  place           //
	shard  api.Incarnation // where it is held or committed,
	node   string          // and on which node
	commit *commit         // that names it; nil for one found in doubt
	doubt  time.Time       // since when its shard is gone with the answer
	prefer api.Incarnation // the shard that failed to bind it and has its room
	gone   bool            // a node shard found no pod of this UID; the watch will say so
	placed bool            // counted in gang.placed

	charged  bool          // part of the gang's reservation
	ours     bool          // bound by Basalt, or charged before: it is charged whatever its node is
	owed     bool          // bound, and to be charged (foreign.go)
	counted  api.Resources // what of it is in foreignOn.sum of its node
	evicting uint64        // ID of the EvictPod that is not answered
	evictAt  time.Time

	told         string    // reason of the PodScheduled=False that it shows, or was written and not yet seen
	explainAgain time.Time // not before, after a write that failed
	writing      bool      // such a write is not answered: its version is about to change
}

// isBound reports whether the pod has a node and uses it.
func (p *pod) isBound() bool { return !p.Finished && (p.Node != "" || p.place == bound) }

// changing tells that the version that is known is not one to commit: a write is not answered, or the watch has not shown
// yet what the pod is since it was settled.
func (p *pod) changing() bool { return p.writing || api.NewerVersion(p.settled, p.version) }

// candidate reports whether the pod may be placed.
func (p *pod) candidate() bool {
	return p.Ours && p.Node == "" && p.place != bound && !p.Finished && !p.Deleting && !p.Gated && !p.gone && p.Refused == nil
}

// group is a PodGroup.
type group struct {
	name
	uid        string
	generation int64
	created    time.Time
	seen       time.Time // first
	queue      string    // spec.queue
	minCount   int
	class      string // priorityClassName
	timeout    time.Duration
	deleting   bool
	status     *v1alpha1.PodGroupStatus // as seen, nil when it has none

	says map[string]int // queues that its pods name, "" for none, with the number of pods
}

func comparePods(a, b *pod) int {
	if d := a.Created.Compare(b.Created); d != 0 {
		return d
	}
	if d := strings.Compare(a.Name, b.Name); d != 0 {
		return d
	}
	return strings.Compare(a.UID, b.UID)
}

func (c *Core) onPodsReplaced(e event.PodsReplaced) {
	c.readNames(e.Sequence)
	now := make(map[string]bool, len(e.Pods))
	for _, p := range e.Pods {
		if p != nil {
			now[p.UID] = true
		}
	}
	for _, uid := range sorted(c.pods) {
		if !now[uid] {
			c.onPodGone(uid)
		}
	}
	for _, p := range e.Pods {
		c.versionsWentBack(p)
		c.onPodSeen(p)
	}
	c.activate(e.Sequence)
}

// Keeps reports whether the core keeps a pod: one that it may have to place or to charge. It keeps a bound pod that it knows,
// or that a reservation names, also when the label that made it so is gone.
func Keeps(p *api.Pod) bool { return p.Ours || p.Queue != "" }

// Pods appends all pods for which Keeps holds, as they were last seen, in no order.
func (c *Core) Pods(to []*api.Pod) []*api.Pod {
	for _, p := range c.pods {
		if Keeps(p.Pod) {
			to = append(to, p.Pod)
		}
	}
	return to
}

func (c *Core) onPodSeen(seen *api.Pod) {
	if seen == nil || seen.UID == "" {
		return
	}
	p := c.pods[seen.UID]
	if !Keeps(seen) && !(p != nil && p.Node != "") && c.named[api.PodID(seen.UID)] == nil {
		if p != nil { // it lost its label
			c.onPodGone(seen.UID)
		}
		return
	}
	if seen.Class == nil {
		bare := *seen
		bare.Class = api.NewClass(api.Resources{{Resource: "pods", Value: 1}}, nil)
		seen = &bare
	}
	if p == nil {
		p = &pod{Pod: seen, id: api.PodID(seen.UID), first: c.now, version: seen.ResourceVersion, told: seen.ConditionReason}
		c.pods[seen.UID] = p
		p.group, p.queue = groupOf(seen), seen.Queue
		c.index(p)
		if p.Node != "" {
			c.pin(p)
		}
		c.settlePod(p)
		return
	}
	before, changing := p.Pod, p.changing()
	p.Pod = seen
	p.version = newer(p.version, seen.ResourceVersion)
	if changing && !p.changing() && p.gang != nil {
		c.touch(p.gang)
	}
	if !p.writing && seen.ConditionReason != before.ConditionReason {
		p.told = seen.ConditionReason
	}
	relabelled := false
	if before.Node == "" || fault.On(fault.LabelsMoveBound) { // labels of a bound pod count no more
		if now := groupOf(seen); now != p.group {
			c.unindex(p)
			p.group = now
			c.index(p)
			relabelled = true
			if before.Node != "" {
				p.pinned, p.sure = "", false
			}
		}
		p.queue = seen.Queue
		if seen.Node != "" {
			c.pin(p)
		}
	}
	if !relabelled && before.Node == seen.Node && before.Finished == seen.Finished && before.Deleting == seen.Deleting &&
		before.Started == seen.Started && before.Gated == seen.Gated && before.Queue == seen.Queue && before.Priority == seen.Priority &&
		(before.Refused == nil) == (seen.Refused == nil) && before.Class.Key == seen.Class.Key {
		return
	}
	c.settlePod(p)
	if p.Node != "" && p.gang != nil && p.place != bound {
		c.podBound(p, p.Node)
	}
}

// newer returns the newer of two resourceVersions: the watch may lag behind the answer to our own write.
func newer(a, b string) string {
	if api.NewerVersion(a, b) {
		return a
	}
	return b
}

// versionsWentBack believes a list that shows a pod in an older version than the one that is known: the API server was restored
// from a backup, and no Binding under the version of before could land any more. Where the list only lags behind a write of
// ours, the Binding is refused, and settling tells the version.
func (c *Core) versionsWentBack(listed *api.Pod) {
	if listed == nil {
		return
	}
	p := c.pods[listed.UID]
	if p == nil || p.Pod == listed || !api.NewerVersion(p.version, listed.ResourceVersion) {
		return
	}
	p.version, p.settled = listed.ResourceVersion, ""
	if p.gang != nil {
		c.touch(p.gang)
	}
}

func (c *Core) onPodGone(uid string) {
	p := c.pods[uid]
	if p == nil {
		return
	}
	delete(c.pods, uid)
	c.unindex(p)
	c.unspeak(p)
	c.leave(p)
}

// groupOf returns the PodGroup that a pod's label names. A pod of another scheduler is charged by itself.
func groupOf(p *api.Pod) name {
	if p.Group == "" || !p.Ours {
		return name{}
	}
	return name{p.Namespace, p.Group}
}

func (c *Core) index(p *pod) {
	if p.group != (name{}) {
		m := c.labelled[p.group]
		if m == nil {
			m = map[string]*pod{}
			c.labelled[p.group] = m
		}
		m[p.UID] = p
		return
	}
	m := c.loose[p.Namespace]
	if m == nil {
		m = map[string]*pod{}
		c.loose[p.Namespace] = m
	}
	m[p.UID] = p
}

func (c *Core) unindex(p *pod) {
	if m := c.labelled[p.group]; m != nil {
		delete(m, p.UID)
		if len(m) == 0 {
			delete(c.labelled, p.group)
		}
		return
	}
	if m := c.loose[p.Namespace]; m != nil {
		delete(m, p.UID)
		if len(m) == 0 {
			delete(c.loose, p.Namespace)
		}
	}
}

// pin has a bound pod stay with the gang that it was bound for, as far as its labels tell, and with the queue that pays.
func (c *Core) pin(p *pod) {
	if p.payer == "" && p.queue == "" && p.group == (name{}) {
		p.payer, _ = c.podQueue(p)
	}
	if p.pinned != "" {
		return
	}
	if of := c.named[p.id]; of != nil && of.namespace == p.Namespace {
		p.pinned, p.sure, p.ours = of.uid, true, true
		return
	}
	g := c.groups[p.group]
	switch {
	case g != nil && (p.Gang == "" || p.Gang == g.uid):
		p.pinned, p.sure = g.uid, true
	case p.Gang != "" && p.Gang != p.UID && p.group != (name{}):
		p.pinned = p.Gang
	}
}

// meantFor reports whether a pod that was bound for an earlier PodGroup was made for this one: its home had not heard yet
// that the earlier one was gone. Times of creation are whole seconds; of pods made within that second those count that
// are still there some seconds later.
func (c *Core) meantFor(p *pod, g *group) bool {
	if p.Node == "" {
		return false
	}
	d := p.Created.Compare(g.created.Truncate(time.Second))
	return d > 0 || d == 0 && !p.Deleting && !c.now.Before(g.seen.Add(sameSecond))
}

const sameSecond = 5 * time.Second

// settleYoung looks again at the pods of PodGroups that were first seen a while ago.
func (c *Core) settleYoung() {
	for len(c.young) > 0 && !c.now.Before(c.young[0].seen.Add(sameSecond)) {
		g := c.young[0]
		c.young[0] = nil
		c.young = c.young[1:]
		if c.groups[g.name] != g {
			continue
		}
		for _, uid := range sorted(c.labelled[g.name]) {
			if p := c.labelled[g.name][uid]; p.pinned != "" && p.pinned != g.uid {
				c.settlePod(p)
			}
		}
	}
}

// movesTo reports whether a bound pod that is pinned to an earlier PodGroup belongs to the present one. It does not move to
// another queue, nor away from a gang that another shard has, nor from one whose PodGroup this shard has yet to see: the
// present one may be the earlier of the two, in a list that lags.
func (c *Core) movesTo(p *pod, to *group) bool {
	if !c.meantFor(p, to) {
		return false
	}
	g := c.gangs[p.pinned]
	if g == nil {
		return !p.sure
	}
	if !g.single && !g.stray.IsZero() {
		return false
	}
	queue, known, _ := c.groupQueue(to)
	return known && queue == g.queue && (g.name == to.name || g.single && !p.ours && !g.charge.reserved)
}

// settlePod finds the gang of a pod whose state or surroundings changed.
func (c *Core) settlePod(p *pod) {
	pinned := c.gangs[p.pinned]
	forged := pinned != nil && (pinned.namespace != p.Namespace || !p.sure && pinned.name != p.group)
	if p.pinned != "" && p.Node == "" && (p.place == nowhere || p.place == held || pinned == nil) || forged {
		p.pinned, p.sure, pinned = "", false, nil // nothing of that gang can bind it any more, or nobody knows
	}
	grp := c.groups[p.group]
	if p.pinned != "" && (grp == nil || grp.uid != p.pinned && !c.movesTo(p, grp)) {
		switch {
		case pinned != nil:
			c.unspeak(p)
			if pinned.single {
				pinned.stray, pinned.orphan = time.Time{}, false
			}
			c.join(p, pinned)
			return
		case p.sure: // another shard has it
			c.unspeak(p)
			c.leave(p)
			return
		}
		grp = nil // nobody vouches for the gang that the label names: it is claimed as a gang of one
	}
	if grp != nil {
		c.speak(p, grp)
		if g := c.gangs[grp.uid]; g != nil {
			c.join(p, g)
		} else {
			c.leave(p)
		}
		return
	}
	c.unspeak(p)
	// A gang of one, or a pod whose PodGroup does not exist: while it has no node that is only said.
	orphan := p.group != (name{}) && !p.isBound()
	queue, known := c.podQueue(p)
	relevant := !p.Finished && (p.Ours || p.isBound())
	g := c.gangs[p.UID]
	switch {
	case g != nil:
		g.wantQueue = queue
		if !known {
			g.wantQueue = g.queue
		}
		g.orphan, g.stray = orphan, time.Time{}
		c.join(p, g)
	case relevant && known && c.active[api.BucketOf(queue)]:
		g = c.newGang(p.UID, queue)
		g.single, g.orphan, g.first = true, orphan, c.now
		g.name = name{p.Namespace, p.Name}
		c.join(p, g)
	default:
		c.leave(p)
	}
}

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
		for q := range g.says {
			mismatch = mismatch || q != "" && q != g.queue
		}
		return g.queue, true, mismatch
	}
	fallback, known := c.namespaceQueue(g.namespace)
	if !known {
		return "", false, false
	}
	said := map[string]bool{}
	for q := range g.says {
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
		if p.voice == g {
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

// speak counts what a pod says about its PodGroup's queue.
func (c *Core) speak(p *pod, g *group) {
	if p.voice == g && p.says == p.queue {
		return
	}
	c.unspeak(p)
	p.voice, p.says = g, p.queue
	g.says[p.says]++
	if g.says[p.says] == 1 {
		c.homeGroup(g)
	}
}

func (c *Core) unspeak(p *pod) {
	g := p.voice
	if g == nil {
		return
	}
	p.voice = nil
	if g.says[p.says]--; g.says[p.says] <= 0 {
		delete(g.says, p.says)
		if c.groups[g.name] == g {
			c.homeGroup(g)
		}
	}
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
		gang.group, gang.stray, gang.gone = g, time.Time{}, false
		if gang.status == nil {
			gang.status = &report.PodGroup{}
		}
		gang.name = g.name
		c.seenStatus(gang)
		for _, uid := range sorted(c.labelled[g.name]) {
			c.settlePod(c.labelled[g.name][uid])
		}
	}
	if known {
		gang.wantQueue = queue
	}
	gang.mismatch = mismatch
	c.touch(gang)
}

func (c *Core) join(p *pod, g *gang) {
	if p.gang != g {
		c.leave(p)
		p.gang = g
		g.members[p.UID], g.order = p, nil
		c.edited(g) // it may fit now
		if p.Node != "" {
			p.pinned, p.sure = g.id, true
			c.podBound(p, p.Node)
		}
		// The last that a large gang waited for is not looked at later, but now, unless such looks take more than a part of the time.
		if g.state == collecting && len(g.members) == g.minCount() && !c.now.Before(g.looked.Add(time.Duration(len(g.members))*2*time.Microsecond)) {
			c.mark(g)
			return
		}
	}
	c.touch(g)
}

// leave takes a pod out of its gang and forgets what was asked for it there.
func (c *Core) leave(p *pod) {
	g := p.gang
	if g == nil {
		return
	}
	delete(g.members, p.UID)
	g.order = nil
	c.edited(g)
	if p.place == committed && p.Node == "" {
		g.lost[p.UID] = true // an intent may exist: counts as in doubt until a node shard says otherwise
	}
	p.gang, p.commit = nil, nil
	c.disown(p)
	p.charged, p.placed, p.gone = false, false, false
	p.place, p.shard, p.node, p.prefer = nowhere, "", "", ""
	if p.Node != "" {
		p.place = bound
	}
	c.touch(g)
}

// boundAlone reports whether a pod of a gang was bound as a gang of one: it had lost its label before that, and the home that asked
// for the gang's reservation had not seen it. The pod is charged to the gang, but does not count towards its minimum.
func (p *pod) boundAlone() bool { return p.Gang == p.UID && p.gang.id != p.UID }

// podBound takes note that a pod has a node.
func (c *Core) podBound(p *pod, node string) {
	g := p.gang
	p.place, p.node, p.commit, p.doubt, p.shard, p.prefer = bound, node, nil, time.Time{}, "", ""
	p.pinned, p.sure = g.id, true
	p.told = ""
	if !p.placed && !p.boundAlone() {
		p.placed = true
		g.placed++
		if g.firstBound.IsZero() {
			g.firstBound = c.now
		}
	}
	c.touch(g)
}

func (c *Core) onGroupSeen(seen *v1alpha1.PodGroup) {
	if seen == nil || seen.UID == "" {
		return
	}
	if _, gone := c.goneGroups.get(string(seen.UID)); gone {
		return
	}
	n := name{seen.Namespace, seen.Name}
	g := c.groups[n]
	if g != nil && g.uid != string(seen.UID) {
		c.dropGroup(g) // the delete of the one before was missed, or comes late
		g = nil
	}
	fresh := g == nil
	if fresh {
		g = &group{name: n, uid: string(seen.UID), created: seen.CreationTimestamp.Time, seen: c.now, says: map[string]int{}}
		c.groups[n] = g
		c.young = append(c.young, g)
	}
	g.generation = seen.Generation
	g.queue = seen.Spec.Queue
	if least := int(max(1, seen.Spec.SchedulingPolicy.Gang.MinCount)); g.minCount != least {
		g.minCount = least
		if gang := c.gangs[g.uid]; gang != nil {
			c.edited(gang)
		}
	}
	g.class = seen.Spec.PriorityClassName
	g.timeout = 0
	if t := seen.Spec.ScheduleTimeoutSeconds; t != nil && *t > 0 {
		g.timeout = time.Duration(*t) * time.Second
	}
	g.deleting = seen.DeletionTimestamp != nil
	g.status = seen.Status
	if fresh {
		for _, uid := range sorted(c.labelled[n]) {
			p := c.labelled[n][uid]
			if p.Node != "" && p.gang == nil {
				c.pin(p)
			}
			c.settlePod(p)
		}
	}
	c.homeGroup(g)
	if gang := c.gangs[g.uid]; gang != nil {
		c.seenStatus(gang)
	}
}

func (c *Core) onGroupGone(e event.PodGroupGone) {
	if fault.On(fault.NamesNotUIDs) {
		c.goneNames = append(c.goneNames, name{e.Namespace, e.Name})
		return
	}
	c.goneGroups.put(e.UID, struct{}{})
	if g := c.groups[name{e.Namespace, e.Name}]; g != nil && g.uid == e.UID {
		c.dropGroup(g)
	}
}

// dropGroup ends a PodGroup: pods that may be bound stay with its gang, the others have no PodGroup any more.
func (c *Core) dropGroup(g *group) {
	c.goneGroups.put(g.uid, struct{}{})
	delete(c.groups, g.name)
	if gang := c.gangs[g.uid]; gang != nil {
		gang.group, gang.gone, gang.mismatch = nil, true, false
		c.touch(gang)
	}
	for _, uid := range sorted(c.labelled[g.name]) {
		c.settlePod(c.labelled[g.name][uid])
	}
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
	for _, uid := range sorted(named) {
		if p := named[uid]; p.queue == "" {
			c.settlePod(p)
		}
	}
}

func (c *Core) onPriorityClass(class string, value int64, exists bool) {
	if exists {
		c.priorities[class] = value
	} else {
		delete(c.priorities, class)
	}
	for _, uid := range sorted(c.gangs) {
		if g := c.gangs[uid]; g.group != nil && g.group.class == class {
			c.touch(g)
		}
	}
}
