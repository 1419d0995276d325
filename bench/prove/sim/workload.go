package sim

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/bench/prove/progress"
	core "basalt.dev/basalt/coordinator"
)

// workload is what users, admins, kubelets and controllers do, and who restarts processes.
type workload struct {
	w      *world
	strict map[string]api.Resources       // nodes that only Basalt uses, and what they have
	named  int                            // shards that ever had a name
	names  map[string]bool                // of shards that are to be up
	edited map[string]bool                // pods whose labels a tenant edited
	worn   map[string][]map[string]string // the labels that they had before

	tenant []tenantSince // of the namespace: all it ever had

	lives     bool // gangs live more than once
	policies  []policy
	rest      rest
	displaced progress.Displaced
	remade    map[string]time.Time // claims that were made anew, and when last
	doors     bool                 // there are groups of other kinds
	repels    bool                 // pods repel each other
	domains   bool                 // pods have constraints over topology domains
	together  bool                 // PodGroups require or prefer a zone

	resized  map[string]time.Time // PodGroups whose minimum was edited, and when
	cliqueOf map[string]string    // nodes that are in another clique than they are meant to be, "" for none

	volumes      bool               // pods have volumes
	provisioning map[types.UID]bool // claims for which the provisioner works
	made         int                // volumes, and tries to make one

	holds bool // Basalt holds the Lease of Volcano's scheduler

	quiet         bool          // nothing goes wrong: what has to happen soon is judged
	snatch        bool          // the next gang of which intents are written loses a pod
	rollForward   time.Duration // of home.Config; 0 is what it takes by itself
	shardLimits   string        // small, or what shards take by themselves
	mishaps       int           // what servers are unreliable by as a rule
	gatherIntents time.Duration // node.Config's WriteEvery
	gatherGrants  time.Duration // coordinator.Config's CommitEvery
	limits        core.Config   // what else of it is not as usual
}

var (
	queueNames = []string{"a", "a.x", "a.x.p", "a.x.q", "a.y", "b", "b.z"}
	leafNames  = []string{"a.x.p", "a.x.q", "a.y", "b.z", "default"}
	looseNodes = []string{"l0", "l1", "l2"}
	tenants    = []string{"x", "x", "y"} // values of the label tenant of the namespace; x at first
)

const gpu = "nvidia.com/gpu"

// tenantSince is a value of the namespace's label.
type tenantSince struct {
	value string
	since time.Time
}

func (l *workload) namespaceLabels() map[string]string {
	return map[string]string{"tenant": l.tenant[len(l.tenant)-1].value}
}

// relabelNamespace gives the namespace another label. Coordinators hear of it by a watch that lags.
func (l *workload) relabelNamespace(value string) {
	l.tenant = append(l.tenant, tenantSince{value, l.w.now})
	for _, c := range l.w.coords {
		if t := c.leads(); t != nil {
			t.showNamespace()
		}
	}
	l.w.check.ordered.spaces = l.w.now
	for _, x := range l.w.shards {
		x.later(l.w.between(0, 2*time.Second), x.showNamespace)
	}
}

// begin makes the cluster, and has things happen: as the script says, or as they are drawn.
func (w *world) begin() {
	l := &w.load
	l.w, l.strict, l.names = w, map[string]api.Resources{}, map[string]bool{}
	l.displaced, l.remade = progress.Displaced{}, map[string]time.Time{}
	l.cliqueOf, l.resized = map[string]string{}, map[string]time.Time{}
	l.edited, l.worn = map[string]bool{}, map[string][]map[string]string{}
	for i := range 6 {
		name := fmt.Sprintf("n%d", i)
		l.makeNode(name)
		l.strict[name] = w.api.nodeResources(name)
	}
	for _, name := range looseNodes {
		l.makeNode(name)
	}
	l.tenant = []tenantSince{{"x", w.now}}
	w.startCoordinator("c0")
	w.startCoordinator("c1")
	if !w.cfg.Calm {
		l.mishaps = 3
		w.store.unreliable, w.api.unreliable = l.mishaps, l.mishaps
	}
	if w.script != nil {
		w.playOn()
		return
	}
	d := &drawer{w: w}
	d.begin()
}

// playOn carries out the next lines of the script.
func (w *world) playOn() {
	p := w.script
	for len(p.acts) > 0 && !w.calm && p.acts[0].At <= w.now.Sub(w.start) {
		line := p.acts[0]
		p.acts = p.acts[1:]
		w.record.add(line.At, line.Words)
		w.act(line.Words)
	}
	if len(p.acts) > 0 && !w.calm {
		w.outside(p.acts[0].At-w.now.Sub(w.start), w.playOn)
	}
}

// ---- processes

func (l *workload) join() {
	for l.names[fmt.Sprintf("s%d", l.named)] {
		l.named++
	}
	l.start(fmt.Sprintf("s%d", l.named))
	l.named++
}

func (l *workload) start(name string) {
	l.names[name] = true
	l.w.startShard(name)
}

func (l *workload) shardEnded(x *shard) {
	w := l.w
	if x.leaving || !l.names[x.name] {
		delete(l.names, x.name)
		if len(l.names) == 0 {
			w.after(w.between(0, 3*time.Second), l.join)
		}
		return
	}
	name := x.name
	if !w.calm && w.some(8) { // it comes back as somebody else, or not at all
		delete(l.names, name)
		if len(l.names) == 0 || w.some(2) {
			w.after(w.between(0, 3*time.Second), l.join)
		}
		return
	}
	away := 4 * time.Second
	if w.some(4) { // others take over before it is back
		away = 15 * time.Second
	}
	w.after(w.between(50*time.Millisecond, away), func() { w.startShard(name) })
}

func (l *workload) coordinatorEnded(c *coordinator) {
	name := c.name
	l.w.after(l.w.between(50*time.Millisecond, 4*time.Second), func() { l.w.startCoordinator(name) })
}

// ---- objects

func (l *workload) makeNode(name string) { l.w.api.create(l.w.api.nodes, l.shaped(name)) }

// shape is a node as it is meant to be.
func shape(name string) *corev1.Node {
	amounts := map[string]string{"cpu": "8", "pods": "9"}
	labels := map[string]string{"zone": "a", api.LabelHostname: name}
	switch name {
	case "n0", "n1":
		amounts[gpu] = "4"
	case "n2", "n3":
		labels["zone"] = "b"
	}
	if strings.HasPrefix(name, "l") {
		amounts["cpu"] = "4"
	}
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Status: corev1.NodeStatus{Allocatable: list(amounts)}}
}

func list(amounts map[string]string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for name, v := range amounts {
		out[corev1.ResourceName(name)] = resource.MustParse(v)
	}
	return out
}

func (a *apiServer) node(name string) *corev1.Node {
	n, _ := a.nodes.objects[name].Object.(*corev1.Node)
	return n
}

func (a *apiServer) nodeResources(name string) api.Resources {
	return api.FromNode(a.node(name), nil).Allocatable
}

func (l *workload) makeQueue(name string, spec v1beta1.QueueSpec) {
	l.w.api.create(l.w.api.queues, &v1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec})
}

// spec of a Queue in the words of a script: capability AMOUNTS guarantee AMOUNTS deserved AMOUNTS weight N priority N
// reclaim never|fair preempts yes|no runtime DURATION delay DURATION kept yes order turn|wrong.
func spec(after func(word string) string) v1beta1.QueueSpec {
	s := v1beta1.QueueSpec{Capability: amountsOf(after("capability")), Guarantee: amountsOf(after("guarantee")), Deserved: amountsOf(after("deserved"))}
	if n, err := strconv.Atoi(after("weight")); err == nil {
		s.Weight = new(int32(n))
	}
	if n, err := strconv.Atoi(after("priority")); err == nil {
		s.Priority = int32(n)
	}
	switch after("reclaim") {
	case "never":
		s.ReclaimPolicy = v1beta1.ReclaimNever
	case "fair":
		s.ReclaimPolicy = v1beta1.ReclaimFairShare
	}
	switch after("preempts") {
	case "yes":
		s.PreemptionPolicy = v1beta1.PreemptLowerPriority
	case "no":
		s.PreemptionPolicy = v1beta1.PreemptNever
	}
	if t, err := time.ParseDuration(after("runtime")); err == nil {
		s.ReclaimMinRuntime, s.PreemptMinRuntime = &metav1.Duration{Duration: t}, &metav1.Duration{Duration: t}
	}
	if t, err := time.ParseDuration(after("delay")); err == nil {
		s.PreemptionDelay = &metav1.Duration{Duration: t}
	}
	if t, err := time.ParseDuration(after("stale")); err == nil {
		s.StaleAfter = &metav1.Duration{Duration: t}
	}
	if t, err := time.ParseDuration(after("repair")); err == nil {
		s.RepairFor = &metav1.Duration{Duration: t}
	}
	if after("kept") == "yes" {
		s.Reclaimable = new(false)
	}
	s.Order = ordersOf[after("order")]
	return s
}

func (l *workload) makeGroup(name, queue string, least int, priority string, whole bool) {
	g := &v1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	if turn := int(api.BucketOf(name)) % 7; turn > 0 { // by which some queues order their gangs
		g.Annotations = map[string]string{"example.com/turn": strconv.Itoa(turn - 3)}
	}
	g.Spec.Queue = queue
	g.Spec.SchedulingPolicy.Gang.MinCount = int32(least)
	g.Spec.PriorityClassName = priority
	if whole {
		g.Spec.DisruptionMode = v1beta1.DisruptPodGroup
	}
	if api.BucketOf(name)%2 == 1 {
		g.Spec.StaleAfter = &metav1.Duration{Duration: 6 * time.Second}
	}
	if api.BucketOf(name)%7 == 3 {
		g.Spec.MaxRuntimeSeconds = new(int32(20))
	}
	l.keepTogether(g)
	l.w.api.create(l.w.api.groups, g)
	l.w.log("user: PodGroup %s minCount %d queue %s", g.UID, least, queue)
}

// makePod makes a pod of a gang. Its shape depends on the gang's name, so that pods that controllers recreate are the same.
func (l *workload) makePod(name string, of member, queue string, gated bool) {
	w := l.w
	if w.api.pod("ns", name) != nil {
		return
	}
	key := cmp.Or(of.group, name)
	kind := int(api.BucketOf(key))
	amounts := map[string]string{"cpu": []string{"1", "500m", "2", "1"}[kind%4]}
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: map[string]string{}}}
	switch kind / 4 % 6 {
	case 0:
		amounts[gpu] = "1"
	case 1:
		p.Spec.NodeSelector = map[string]string{"zone": "a"}
	case 2:
		p.Spec.NodeSelector = map[string]string{"zone": "b"}
	}
	of.mark(p)
	if of.shape > 0 {
		l.makeShaped(p, of, queue)
		return
	}
	mount(p, sharedVolume, l.claimFor(name, of))
	l.repel(p, key, api.LabelHostname)
	if l.hasVolume(key) && p.Spec.Affinity == nil { // a volume that comes late can tie two pods to one node for good
		mount(p, ownVolume, l.makeClaim(name))
	} else {
		l.tie(p, key)
	}
	if queue != "" {
		p.Labels[api.LabelQueue] = queue
	}
	if kind%3 > 0 && p.OwnerReferences == nil {
		yes := true
		p.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Name: key, UID: "job", Controller: &yes}}
	}
	p.Spec.SchedulerName = api.SchedulerName
	p.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: list(amounts)}}}
	if gated {
		p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "wait"}}
	}
	p.Status.Phase = corev1.PodPending
	w.api.create(w.api.pods, p)
	w.log("user: pod %s version %s", p.UID, p.ResourceVersion)
}

// prioritize gives a pod the priority of its group, as its controller does.
func (l *workload) prioritize(p *corev1.Pod) {
	if g := l.w.api.PodGroup("ns", groupNamed(p)); g != nil && g.Spec.PriorityClassName != "" {
		p.Spec.PriorityClassName, p.Spec.Priority = g.Spec.PriorityClassName, new(highPriority)
	}
}

// highPriority is the value of the only PriorityClass.
const highPriority int32 = 10

// makeShaped makes a pod that need not be like others of its gang.
func (l *workload) makeShaped(p *corev1.Pod, of member, queue string) {
	p.Spec.NodeSelector = nil
	shapePod(p, of.group, of.shape)
	l.prioritize(p)
	if queue != "" {
		p.Labels[api.LabelQueue] = queue
	}
	owner := metav1.OwnerReference{Kind: "Job", Name: cmp.Or(of.group, p.Name), UID: "job", Controller: new(true)}
	p.OwnerReferences = []metav1.OwnerReference{owner}
	p.Spec.SchedulerName = api.SchedulerName
	p.Status.Phase = corev1.PodPending
	l.w.api.create(l.w.api.pods, p)
	l.w.log("user: pod %s version %s shape %d", p.UID, p.ResourceVersion, of.shape)
}

func (l *workload) pods(ok func(*corev1.Pod) bool) []*corev1.Pod {
	var out []*corev1.Pod
	for _, name := range l.w.api.pods.names() {
		if p := l.w.api.pods.objects[name].Object.(*corev1.Pod); ok(p) {
			out = append(out, p)
		}
	}
	return out
}

func running(p *corev1.Pod) bool {
	return p.Spec.NodeName != "" && !finished(p) && p.DeletionTimestamp == nil
}

// snatches deletes a pod of a gang between its intent and its Binding, if that was asked for.
func (l *workload) snatches(r *wire.IntentsRecord) {
	w := l.w
	if !l.snatch || len(r.Rows) < 2 || w.calm {
		return
	}
	l.snatch = false
	for _, row := range r.Rows {
		if p := w.api.podByUID(row.PodUid); p != nil && p.Spec.NodeName == "" {
			w.count("pods deleted between intent and Binding")
			w.after(0, func() {
				if p := w.api.podByUID(row.PodUid); p != nil {
					w.log("user: deletes pod %s", p.UID)
					w.api.delete(p)
				}
			})
			return
		}
	}
}

// underway reports whether a pod has an intent and no node.
func (l *workload) underway(p *corev1.Pod) bool {
	if !ours(p) || p.Spec.NodeName != "" {
		return false
	}
	for _, key := range l.w.store.with("intents/") {
		for _, r := range l.w.store.Keys[key].Value.(*wire.IntentsRecord).Rows {
			if r.PodUid == string(p.UID) {
				return true
			}
		}
	}
	return false
}

func ours(p *corev1.Pod) bool { return p.Spec.SchedulerName == api.SchedulerName }

func (l *workload) finish(p *corev1.Pod, phase corev1.PodPhase) {
	l.w.api.edit(p, func(p *corev1.Pod) {
		if p.Status.Phase = phase; l.lives {
			ended := &corev1.ContainerStateTerminated{FinishedAt: metav1.NewTime(l.w.now)}
			p.Status.ContainerStatuses = []corev1.ContainerStatus{
				{Name: "main", State: corev1.ContainerState{Terminated: ended}}}
		}
	})
	l.w.log("kubelet: pod %s ends", p.UID)
}

// starts has the kubelet start a pod that was just bound.
func (l *workload) starts(uid string) {
	l.w.after(l.w.between(0, 2*time.Second), func() {
		if p := l.w.api.podByUID(uid); p != nil && !finished(p) && p.Status.StartTime == nil {
			l.w.api.edit(p, func(p *corev1.Pod) { p.Status.StartTime = &metav1.Time{Time: l.w.now} })
		}
	})
}

// ---- the end of a run

// settleWithin is how long everything may take once the faults have ended.
const settleWithin = 15 * time.Minute

// settle ends the faults, lets every gang have its room in turn, and judges what is left: I6, I9 and I10.
func (w *world) settle() {
	w.die = w.newDie("settle")
	l := &w.load
	w.endFaults()
	if l.lives { // what waits there may never fit: it is judged already
		l.endLives()
	} else {
		w.rest()
	}
	began, first := w.now, w.step
	for round := 0; ; round++ {
		until := w.now.Add(500 * time.Millisecond)
		for w.now.Before(until) {
			w.next()
		}
		l.help(round)
		left := l.left()
		if left == "" {
			break
		}
		if w.now.Sub(began) > settleWithin || w.step > first+200_000 {
			w.fail("I10: %s after the end of the faults: %s%s", w.now.Sub(began), left, l.explain())
		}
	}
	w.counts["seconds to settle"] = int(w.now.Sub(began).Seconds())
}

// help undoes what users and admins did to the cluster, and does what kubelets and controllers do.
func (l *workload) help(round int) {
	w, a := l.w, l.w.api
	if round == 0 {
		clear(l.cliqueOf)
	}
	for _, name := range append(slices.Sorted(maps.Keys(l.strict)), looseNodes...) {
		if a.node(name) == nil {
			l.makeNode(name)
		} else if round == 0 {
			next := l.shaped(name)
			next.UID = a.node(name).UID
			a.put(a.nodes, next)
		}
	}
	for _, name := range append([]string{api.RootQueue, api.DefaultQueue}, queueNames...) {
		q := a.queue(name)
		switch {
		case q == nil && name != api.RootQueue && name != api.DefaultQueue:
			a.create(a.queues, &v1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Name: name}})
		case q != nil && q.DeletionTimestamp == nil && (q.Spec.Closed || q.Spec.NamespaceSelector != nil || len(q.Spec.Capability) > 0 && round == 0):
			a.editQueue(q, true, func(q *v1beta1.Queue) {
				q.Spec = v1beta1.QueueSpec{}
				if w.some(2) {
					q.Spec.Capability = list(map[string]string{"cpu": fmt.Sprint(30 + w.die.below(20))})
				}
			})
		}
	}
	provided := l.provide()
	groups := map[string][]*corev1.Pod{}
	for _, p := range l.pods(func(*corev1.Pod) bool { return true }) {
		switch group := groupNamed(p); {
		case !ours(p), finished(p):
			if p.DeletionTimestamp == nil {
				a.delete(p)
			}
		case len(p.Spec.SchedulingGates) > 0:
			a.edit(p, func(p *corev1.Pod) { p.Spec.SchedulingGates = nil })
		case p.DeletionTimestamp != nil:
		case (l.edited[string(p.UID)] || group != "" && !implies(p) && p.Labels[api.LabelQueue] != "") && p.Spec.NodeName == "": // its labels may contradict its gang's
			a.delete(p)
		case l.edited[string(p.UID)]:
			l.finish(p, corev1.PodSucceeded)
		case implies(p) && p.Spec.NodeName == "" && p.Labels[api.LabelQueue] != a.group(group).queue: // made after one that was labelled anew
			a.delete(p)
		case group != "":
			groups[group] = append(groups[group], p)
		case l.provides(p, provided):
		case l.closing(p.Labels[api.LabelQueue]) && running(p): // the queue waits for it
			l.finish(p, corev1.PodSucceeded)
		case p.Spec.NodeName != "" && w.now.Sub(w.check.landed[string(p.UID)]) > 4*time.Second:
			l.finish(p, corev1.PodSucceeded)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		pods := groups[name]
		g := a.group(name)
		if g == nil {
			queue, least := leafNames[w.die.below(len(leafNames))], min(len(pods), 4, l.most(name))
			if kindOf(name) == api.VolcanoGroup {
				l.makeVolcanoGroup(name, queue, least, "-", "-")
			} else {
				l.makeGroup(name, queue, least, "", false)
			}
			continue
		}
		claims := map[string]bool{}
		pods = slices.DeleteFunc(pods, func(p *corev1.Pod) bool { // one was labelled into the group: they could never run together
			claim := claimOf(p)
			again := claims[claim] && claim != "" && p.Spec.NodeName == ""
			if claims[claim] = true; again {
				a.delete(p)
			}
			return again
		})
		waiting, mine, last := 0, 0, time.Time{}
		for _, p := range pods {
			at := w.check.landed[string(p.UID)]
			switch {
			case p.Spec.NodeName == "":
				waiting++
				mine++
			case p.Labels[api.LabelGang] != g.uid && w.now.Sub(at) > 4*time.Second: // of a namesake, or bound by hand
				l.finish(p, corev1.PodSucceeded)
			case l.strayed(p) && w.now.Sub(at) > 4*time.Second: // where it ties its gang to, the others may not go
				l.finish(p, corev1.PodSucceeded)
			default:
				mine++
				if at.After(last) {
					last = at
				}
			}
		}
		closing := l.closing(g.queue)
		told := g.started && (g.kind != api.VolcanoGroup || l.holds)                                                                 // or nobody takes it back
		started := told || g.kind != api.BasaltGroup && (mine-waiting >= g.least || mine > waiting && w.now.Sub(last) > time.Minute) // those may tell nobody
		if (waiting == 0 || started) && w.now.Sub(last) > 4*time.Second || closing {
			for _, p := range pods {
				if p = a.podByUID(string(p.UID)); p != nil && running(p) {
					l.finish(p, corev1.PodSucceeded)
				}
			}
		} else if waiting > 0 {
			like := again(pods[0])
			for i := 0; (mine < g.least || g.kind == api.VolcanoGroup && i < g.least) && i < 40; i++ { // of each role enough
				pod := fmt.Sprintf("%s-%d", name, i)
				if claim := l.claimFor(pod, like); a.pod("ns", pod) == nil && (claim == "" || !claims[claim]) {
					if like.kind == api.VolcanoGroup {
						like.role = roleOf(i)
					}
					queue := ""
					if like.kind == api.ImpliedGroup {
						queue = g.queue
					}
					l.makePod(pod, like, queue, false)
					mine++
				}
			}
		}
	}
	for _, name := range a.volcano.names() { // one that was admitted has a reservation for pods that come
		if g := a.volcano.objects[name]; groups[g.GetName()] == nil {
			a.remove(a.volcano, g)
		}
	}
}

// strayed reports whether a bound pod's node got other labels than it selects: so do the other pods of its gang.
func (l *workload) strayed(p *corev1.Pod) bool {
	n := l.w.api.node(p.Spec.NodeName)
	return n != nil && !labels.SelectorFromSet(p.Spec.NodeSelector).Matches(labels.Set(n.Labels))
}

// queueOf is the queue that a pod is charged to, "" while nobody can know.
func (l *workload) queueOf(p *corev1.Pod) string {
	if name := groupNamed(p); name != "" && !implies(p) {
		if g := l.w.api.group(name); g != nil {
			return g.queue
		}
	}
	return p.Labels[api.LabelQueue]
}

// closing reports whether a queue or one above it is being deleted: it waits for what runs in it.
func (l *workload) closing(queue string) bool {
	for _, name := range api.Lineage(queue) {
		if q := l.w.api.queue(name); q != nil && q.DeletionTimestamp != nil {
			return true
		}
	}
	return false
}

// left says what is still to be done, "" when nothing is.
func (l *workload) left() string {
	w := l.w
	for _, p := range l.pods(ours) {
		if !finished(p) {
			return fmt.Sprintf("pod %s of group %q is not done (node %q)", p.UID, groupNamed(p), p.Spec.NodeName)
		}
	}
	for _, key := range w.store.with("reservations/") {
		return fmt.Sprintf("I9: %s is left: %s", key, describeRecord(w.store.Keys[key].Value))
	}
	for _, key := range w.store.with("intents/") {
		return fmt.Sprintf("I9: %s is left: %s", key, describeRecord(w.store.Keys[key].Value))
	}
	for _, x := range w.shards {
		if st := x.cores.Node.Stats(); !st.Ready && w.store.table().Has(x.inc) || st.Holds+st.Rows+st.Keys+st.Waiting > 0 {
			return fmt.Sprintf("%s has not settled: %+v", x.inc, st)
		}
	}
	if len(w.shards) < len(l.names) || len(w.coords) < 2 {
		return "processes are missing"
	}
	if apart := w.gossip.apart(); apart != "" {
		return "I11: gossip is apart: " + apart
	}
	table := w.store.table()
	for b := range api.BucketID(api.Buckets) {
		if x := w.process(table.Owner(b)); x == nil {
			return fmt.Sprintf("bucket %d belongs to %q, which is gone", b, table.Owner(b))
		}
	}
	for _, name := range w.api.queues.names() {
		q := w.api.queue(name)
		if q.DeletionTimestamp != nil {
			return fmt.Sprintf("queue %s is being deleted", q.UID)
		}
		if q.Status == nil || q.Status.ObservedGeneration != q.Generation || len(q.Status.Charged) > 0 || q.Status.AdmittedGangs+q.Status.WaitingGangs > 0 || !meta.IsStatusConditionTrue(q.Status.Conditions, v1beta1.ConditionReady) {
			return fmt.Sprintf("queue %s generation %d says %+v", q.UID, q.Generation, q.Status)
		}
	}
	return ""
}

// explain describes what the processes believe.
func (l *workload) explain() string {
	var b strings.Builder
	for _, x := range l.w.shards {
		st := x.cores.Home.Status()
		fmt.Fprintf(&b, "\n%s: epoch %d buckets %d node %+v", x.inc, st.TableEpoch, st.Buckets, x.cores.Node.Stats())
		for _, g := range st.Gangs {
			fmt.Fprintf(&b, "\n  gang %s queue %s state %s reason %s message %q pods %d bound %d min %d", g.Gang.Uid, g.Gang.Queue, g.State, g.Reason, g.Message, g.Pods, g.Bound, g.MinCount)
		}
	}
	for _, c := range l.w.coords {
		if t := c.leads(); t != nil {
			st := t.core.Status()
			fmt.Fprintf(&b, "\n%s: term %d epoch %d reservations %d waiting %d", c.inc, st.Term, st.TableEpoch, st.Reservations, st.GangsTotal)
		}
	}
	for _, r := range l.w.store.reservations() {
		fmt.Fprintf(&b, "\n  %s: %s", r.Gang.Uid, describeRecord(r))
	}
	for _, p := range l.pods(func(p *corev1.Pod) bool { return p.Spec.NodeName == "" }) {
		fmt.Fprintf(&b, "\n  pod %s labels %v annotations %v selector %v affinity %v spread %v requests %v", p.UID, p.Labels, p.Annotations, p.Spec.NodeSelector, p.Spec.Affinity, p.Spec.TopologySpreadConstraints, p.Spec.Containers[0].Resources.Requests)
		for _, x := range l.w.shards {
			if seen := x.shown[string(p.UID)]; seen != nil && seen.Refused != nil {
				fmt.Fprintf(&b, "\n    %s is shown: %s", x.inc, seen.Refused.Message)
			}
		}
	}
	for _, name := range l.w.api.nodes.names() {
		n := l.w.api.node(name)
		fmt.Fprintf(&b, "\n  node %s labels %v allocatable %v taints %v unschedulable %t", name, n.Labels, n.Status.Allocatable, n.Spec.Taints, n.Spec.Unschedulable)
	}
	return b.String()
}

// shapes is how many kinds of pods there are.
const shapes = 6 * 8 * 4

// shapePod gives a pod of a job a shape by its number, from 1: what it requests, where it may go, and what it must be
// beside, or apart from.
func shapePod(p *corev1.Pod, job string, n int) {
	n--
	if p.Labels == nil {
		p.Labels = map[string]string{}
	}
	amounts := map[string]string{"cpu": []string{"100m", "500m", "1", "2", "3", "4"}[n%6]}
	own := &metav1.LabelSelector{MatchLabels: map[string]string{"job": job}}
	p.Labels["job"] = job
	main := corev1.Container{Name: "main"}
	switch n / 6 % 8 {
	case 4:
		p.Spec.NodeSelector = map[string]string{zone: "a"}
	case 5:
		p.Spec.NodeSelector = map[string]string{zone: "b"}
	case 6:
		main.Ports = []corev1.ContainerPort{{ContainerPort: 8080, HostPort: 8080}}
	case 7:
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
				{TopologyKey: api.LabelHostname, LabelSelector: own}}}}
	}
	switch n / 48 {
	case 2:
		if p.Spec.Affinity == nil {
			p.Spec.Affinity = &corev1.Affinity{}
		}
		p.Spec.Affinity.PodAffinity = &corev1.PodAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{TopologyKey: zone, LabelSelector: own}}}
	case 3:
		p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{
			{MaxSkew: 1, TopologyKey: zone, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: own}}
	}
	main.Resources.Requests = list(amounts)
	p.Spec.Containers = []corev1.Container{main}
}

// endLives deletes all pods and PodGroups.
func (l *workload) endLives() {
	for _, p := range l.pods(func(p *corev1.Pod) bool { return p.DeletionTimestamp == nil }) {
		l.w.api.delete(p)
	}
	for _, name := range l.w.api.groups.names() {
		l.w.api.remove(l.w.api.groups, l.w.api.groups.objects[name])
	}
}

// live carries a line of a world of lives out.
func (w *world) live(f []string) {
	w.load.lives = true
	switch f[0] {
	case "policy":
		w.load.policies = append(w.load.policies, policy{f[1], f[2], f[3]})
	case "rests":
		w.check.rests()
	case "judge":
		w.judge()
	}
}

// rest lets time pass, and judges who waits then.
func (w *world) rest() {
	if !w.cfg.Progress || w.load.limits.EarmarkAfter == 0 { // else who fits may have to wait for minutes
		return
	}
	until := w.now.Add(restFor)
	for w.now.Before(until) {
		w.next()
	}
	for w.judge(); len(w.waits) > 0; w.judge() {
		for until := w.now.Add(restAgain); w.now.Before(until); {
			w.next()
		}
	}
}

// namedAs reports whether a pod names its group as one of a kind.
func namedAs(p *corev1.Pod, kind api.GroupKind) bool {
	return (p.Labels[api.LabelPodGroup] != "") == (kind == api.BasaltGroup)
}

// judgeWords judges what a pod says that waits.
func (w *world) judgeWords(p *corev1.Pod) {
	refused := func(x policy) bool { return strings.HasPrefix(p.Name, x.prefix) }
	if w.load.edited[string(p.UID)] || slices.ContainsFunc(w.load.policies, refused) {
		return
	}
	mates, queue := []*corev1.Pod{p}, cmp.Or(p.Labels[api.LabelQueue], api.DefaultQueue)
	facts := progress.Facts{Nodes: len(w.api.nodes.names())}
	if name := groupNamed(p); name != "" {
		mates = w.load.pods(func(o *corev1.Pod) bool { return groupNamed(o) == name && (waits(o) || running(o)) })
		if g := w.api.group(name); g != nil {
			facts.Group, facts.Least, queue = namedAs(p, g.kind), g.least, cmp.Or(g.queue, api.DefaultQueue)
			facts.Floor = w.check.gang(g.uid).floor != nil
		}
	}
	var demand api.Resources
	for _, p := range mates {
		demand = demand.Add(w.api.pods.objects[nameOf(p)].Pod.Class.Requests)
	}
	facts.Admits = !w.load.shutTo(queue)
	facts.Quota = w.hasQuota(queue, demand, time.Time{})
	facts.Fits = !slices.ContainsFunc(api.Lineage(queue), func(path string) bool {
		return slices.ContainsFunc(w.check.limits(path).GetCapability(), func(a *wire.Amount) bool {
			return demand.Value(a.Resource) > a.Value
		})
	})
	for _, x := range w.shards {
		why := x.cores.Home.Why(&wire.WhyRequest{Namespace: "ns", Name: p.Name, PodUid: string(p.UID)})
		if why.Home == "" && why.Known && why.GangUid != "" {
			facts.Why = why.Reason
		}
	}
	w.count("words at rest")
	said := progress.Said(p)
	if wrong := facts.Untrue(said); wrong != "" {
		w.suspect("words of pod "+string(p.UID), restTimes,
			fmt.Sprintf("pod %s says %s, %q: %s", p.UID, said.Reason, said.Message, wrong))
	}
}

// onTheWay returns the pods of a gang with a row in the store that have no node yet, and the node of their row.
func (l *workload) onTheWay(gang string) map[string]string {
	on := map[string]string{}
	for _, key := range l.w.store.with("intents/") {
		rec := l.w.store.Keys[key].Value.(*wire.IntentsRecord)
		for _, r := range rec.Rows {
			if p := l.w.api.podByUID(r.PodUid); rec.Gangs[r.Gang].Uid == gang && p != nil && p.Spec.NodeName == "" &&
				p.DeletionTimestamp == nil {
				on[r.PodUid] = r.Node
			}
		}
	}
	return on
}

// condemned reports whether the record of one of some gangs condemns a pod: its own, and those of the same name before
// it, for a PodGroup that is made again under pods that run has them a while later.
func (l *workload) condemned(p *corev1.Pod, gangs []string) bool {
	return slices.ContainsFunc(l.w.store.reservations(), func(r *wire.ReservationRecord) bool {
		return slices.Contains(gangs, r.Gang.Uid) &&
			slices.ContainsFunc(r.Condemned, func(s *wire.SurplusPod) bool { return s.Uid == string(p.UID) })
	})
}
