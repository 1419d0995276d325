package sim

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	volcanov1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/doors/volcano"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/bench/prove/progress"
	"basalt.dev/basalt/shard/event"
)

// Groups of other kinds than Basalt's PodGroup, in runs with the line doors: PodGroups of Volcano's, with a minimum for each role and a
// floor, and groups that only their pods describe. Controllers make them, wait with the pods until they are admitted, delete them and
// make them again. No two kinds use the same names.

// volcanoGroup is the annotation in which a pod names a PodGroup of Volcano's, volcanoTask its role there, and volcanoQueue a queue of
// Volcano's.
const (
	volcanoGroup = "scheduling.k8s.io/group-name"
	volcanoTask  = "volcano.sh/task-spec"
	volcanoQueue = "scheduling.volcano.sh/queue-name"
)

// perController reports whether groups of such a name are made for the pods of a ReplicaSet, each of which starts by itself.
func perController(group string) bool { return strings.HasPrefix(group, api.VolcanoPerController) }

// deliveryQueue is the queue of such a group, and of its pods.
func deliveryQueue(group string) string { return leafNames[int(api.BucketOf(group))%len(leafNames)] }

// lastly is how long ago a pod of an implied group must have been on a node for its home to take the group for one that starts: news
// may be late.
const lastly = 40 * time.Second

// groupNamed is the name of the group that a pod names, "" for none.
func groupNamed(p *corev1.Pod) string {
	return cmp.Or(p.Labels[api.LabelPodGroup], p.Annotations[volcanoGroup], p.Annotations[api.AnnotationGangName])
}

// implies reports whether a pod names a group that only its pods describe.
func implies(p *corev1.Pod) bool {
	return p.Labels[api.LabelPodGroup] == "" && p.Annotations[api.AnnotationGangName] != ""
}

func impliedUID(name string) string { return api.ImpliedUID("ns", name+"/") }

// group is what there is of a group, of whatever kind.
type group struct {
	kind    api.GroupKind
	uid     string
	queue   string
	least   int
	started bool // and its status says so
}

// group returns the group of a name, nil when there is none.
func (a *apiServer) group(name string) *group {
	if g := a.PodGroup("ns", name); g != nil {
		return &group{api.BasaltGroup, string(g.UID), g.Spec.Queue, int(g.Spec.SchedulingPolicy.Gang.MinCount),
			g.Status != nil && meta.IsStatusConditionTrue(g.Status.Conditions, v1beta1.ConditionPodGroupInitiallyScheduled)}
	}
	if g := a.VolcanoGroup("ns", name); g != nil {
		return &group{api.VolcanoGroup, string(g.UID), g.Spec.Queue, int(g.Spec.MinMember), g.Status.Phase == volcanov1beta1.PodGroupRunning}
	}
	var out *group
	for _, o := range a.pods.objects {
		if p := o.Object.(*corev1.Pod); implies(p) && groupNamed(p) == name {
			if out == nil {
				out = &group{kind: api.ImpliedGroup, uid: impliedUID(name)}
			}
			least, _ := strconv.Atoi(p.Annotations[api.AnnotationGangMin])
			out.queue, out.least = max(out.queue, p.Labels[api.LabelQueue]), max(out.least, least)
		}
	}
	return out
}

// member is how a pod of a group says so.
type member struct {
	group string
	kind  api.GroupKind
	role  string // of Volcano's
	least int    // of an implied one
	shape int    // of a pod in a world of lives; 0 elsewhere
}

func (m member) mark(p *corev1.Pod) {
	switch {
	case m.group == "":
	case perController(m.group):
		p.Annotations = map[string]string{volcanoGroup: m.group, volcanoQueue: deliveryQueue(m.group)}
		p.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: m.group, Controller: new(true),
			UID: types.UID(strings.TrimPrefix(m.group, api.VolcanoPerController))}}
	case m.kind == api.VolcanoGroup:
		p.Annotations = map[string]string{volcanoGroup: m.group, volcanoTask: m.role}
	case m.kind == api.ImpliedGroup:
		p.Annotations = map[string]string{api.AnnotationGangName: m.group, api.AnnotationGangMin: strconv.Itoa(m.least)}
	default:
		p.Labels[api.LabelPodGroup] = m.group
	}
}

// again is the member that a pod like this is.
func again(p *corev1.Pod) member {
	m := member{group: groupNamed(p)}
	switch {
	case p.Labels[api.LabelPodGroup] != "":
	case p.Annotations[volcanoGroup] != "":
		m.kind, m.role = api.VolcanoGroup, p.Annotations[volcanoTask]
	case implies(p):
		m.kind = api.ImpliedGroup
		m.least, _ = strconv.Atoi(p.Annotations[api.AnnotationGangMin])
	}
	return m
}

// words are those of a line that makes such a pod.
func (m member) words() string {
	switch {
	case m.group == "":
		return ""
	case m.kind == api.VolcanoGroup:
		return " volcano " + m.group + " role " + m.role
	case m.kind == api.ImpliedGroup:
		return fmt.Sprintf(" gang %s least %d", m.group, m.least)
	}
	return " group " + m.group
}

// roleOf is the role of the pod with a number in the group of a job.
func roleOf(i int) string {
	if i == 0 {
		return "master"
	}
	return "worker"
}

// makeVolcanoGroup makes a PodGroup of Volcano's. Roles are "master=1,worker=2" or "-", and so is the floor.
func (l *workload) makeVolcanoGroup(name, queue string, least int, roles, floor string) {
	g := &volcanov1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	g.Spec.MinMember, g.Spec.Queue = int32(least), queue
	for role, n := range amountsOf(roles) {
		if g.Spec.MinTaskMember == nil {
			g.Spec.MinTaskMember = map[string]int32{}
		}
		g.Spec.MinTaskMember[string(role)] = int32(n.Value())
	}
	if amounts := amountsOf(floor); amounts != nil {
		g.Spec.MinResources = &amounts
	}
	g.Status.Phase = volcanov1beta1.PodGroupPending
	l.w.api.create(l.w.api.volcano, g)
	l.w.log("user: Volcano PodGroup %s minMember %d queue %s roles %s floor %s", g.UID, least, queue, roles, floor)
}

// lease says whether Basalt holds the Lease of Volcano's scheduler. Shards hear of it each at its time.
func (l *workload) lease(holds bool) {
	l.holds = holds
	for _, x := range l.w.shards {
		x.later(l.w.between(0, 2*time.Second), x.hearLease)
	}
}

// hearLease tells a shard who writes the statuses of Volcano's PodGroups.
func (x *shard) hearLease() {
	x.writes = x.w.load.holds
	x.step(event.GroupWriter{Kind: api.VolcanoGroup, Writes: x.writes})
}

// writeVolcanoStatus writes the status of a PodGroup of Volcano's. It is Basalt's while it holds the Lease, and Volcano's scheduler's
// otherwise.
func (x *shard) writeVolcanoStatus(o event.WriteGroupStatus) {
	w := x.w
	if !x.writes {
		w.fail("I8: %s writes the status of Volcano PodGroup %s without the Lease of Volcano's scheduler", x.inc, o.UID)
	}
	status := volcano.Status(o.Status, metav1.NewTime(w.now))
	x.write(o.ID, func() event.StatusWritten { return w.api.replaceVolcanoStatus(o, status) })
}

// ---- the load

// controllers draws, in some seeds, whether there are groups of other kinds than Basalt's, before the shards start.
func (d *drawer) controllers(die *die) {
	if die.below(2) == 0 {
		return
	}
	d.say("doors")
	if die.below(3) > 0 {
		d.say("lease true")
	}
	d.control(0)
}

// control has controllers do something every while: they make groups, wait until these are admitted before they make their pods, and
// delete and make again now the one and now the other.
func (d *drawer) control(i int) {
	w, l := d.w, &d.w.load
	die := w.newDie(fmt.Sprint("control ", i))
	w.outside(50*time.Millisecond+time.Duration(die.below(1500))*time.Millisecond, func() {
		if w.calm {
			return
		}
		some := func(n int) bool { return die.below(n) == 0 }
		switch {
		case some(40):
			d.say("lease %t", !l.holds)
		case some(4):
			d.delivery(fmt.Sprintf("%sd%d", api.VolcanoPerController, die.below(3)), some)
		case some(2):
			d.volcanoJob(fmt.Sprintf("v%d", die.below(5)), die, some)
		default:
			d.gangOfPods(fmt.Sprintf("k%d", die.below(5)), die, some)
		}
		d.control(i + 1)
	})
}

// volcanoJob is what Volcano's controllers do for a job.
func (d *drawer) volcanoJob(name string, die *die, some func(int) bool) {
	l, a := &d.w.load, d.w.api
	g, pods := a.VolcanoGroup("ns", name), d.podsOf(name)
	create := func() {
		least := min(1+die.below(4), l.most(name))
		if some(3) {
			least = 1 + die.below(l.most(name))
		}
		roles, floor := "-", "-"
		if least > 1 && !some(3) {
			roles = fmt.Sprintf("master=1,worker=%d", 1+die.below(least-1))
		}
		if some(2) {
			floor = fmt.Sprintf("cpu=%d", 1+die.below(2*least))
		}
		d.say("volcano-group %s queue %s least %d roles %s floor %s", name, leafNames[die.below(len(leafNames))], least, roles, floor)
	}
	switch {
	case g == nil:
		create()
	case len(pods) == 0 && some(8):
		d.say("delete-podgroup %s", name)
	case len(pods) == 0:
		if g.Status.Phase == volcanov1beta1.PodGroupPending && l.holds && !some(8) {
			return // not admitted yet
		}
		from := 0
		if some(3) {
			from = 1 // the workers before their master
		}
		for i := from; i < int(g.Spec.MinMember)+die.below(2); i++ {
			d.say("pod %s-%d%s", name, i, member{group: name, kind: api.VolcanoGroup, role: roleOf(i)}.words())
		}
	case some(6):
		d.say("delete-podgroup %s", name)
		if some(2) {
			for _, p := range pods {
				d.say("delete %s", p.Name)
			}
		}
		if some(2) {
			create()
		}
	case some(3):
		d.say("delete %s", pods[die.below(len(pods))].Name)
	default:
		for i := range int(g.Spec.MinMember) {
			d.say("pod %s-%d%s", name, i, member{group: name, kind: api.VolcanoGroup, role: roleOf(i)}.words())
		}
	}
}

// delivery scales a ReplicaSet up and down, and does what Volcano's podgroup controller does with its PodGroup: it makes it for a pod, and
// deletes it by name, often when another pod is there already, for which it is not made again.
func (d *drawer) delivery(name string, some func(int) bool) {
	g, pods := d.w.api.VolcanoGroup("ns", name), d.podsOf(name)
	create := func() {
		d.say("volcano-group %s queue %s least 1 roles - floor -", name, deliveryQueue(name))
	}
	scale := func() {
		for i := range 2 {
			if some(2) {
				d.say("pod %s-%d%s", name, i, member{group: name, kind: api.VolcanoGroup, role: "-"}.words())
			}
		}
	}
	switch {
	case len(pods) == 0 && g == nil && some(2):
		scale()
		create()
	case len(pods) == 0 && g == nil:
		create()
		scale()
	case g != nil && some(2):
		if some(2) {
			scale()
		}
		d.say("delete-podgroup %s", name)
	case g == nil && some(6):
		create()
	case some(2) && len(pods) > 0:
		d.say("delete %s", pods[0].Name)
	default:
		scale()
	}
}

// gangOfPods is what controllers do that know of no groups: they make pods.
func (d *drawer) gangOfPods(name string, die *die, some func(int) bool) {
	pods := d.podsOf(name)
	m := member{group: name, kind: api.ImpliedGroup, least: min(1+die.below(4), d.w.load.most(name))}
	queue := leafNames[die.below(len(leafNames))]
	if len(pods) > 0 {
		m, queue = again(pods[0]), pods[0].Labels[api.LabelQueue]
	} else if some(3) {
		m.least = 1 + die.below(d.w.load.most(name))
	}
	create := func(n int) {
		for i := range n {
			d.say("pod %s-%d%s queue %s", name, i, m.words(), queue)
		}
	}
	switch {
	case len(pods) == 0 && some(4):
		create(1 + die.below(m.least))
	case len(pods) == 0:
		create(m.least + die.below(2))
	case some(4):
		for _, p := range pods {
			d.say("delete %s", p.Name)
		}
		if some(2) {
			create(m.least)
		}
	case some(3):
		d.say("delete %s", pods[die.below(len(pods))].Name)
	default:
		create(m.least)
	}
}

// podsOf are the pods that name a group.
func (d *drawer) podsOf(name string) []*corev1.Pod {
	return d.w.load.pods(func(p *corev1.Pod) bool { return groupNamed(p) == name })
}

// ---- the judge

// sawPod takes note of what a pod says of an implied group: one of which there was no pod is another one than before, by the same UID.
func (c *check) sawPod(p *corev1.Pod, added bool) {
	uid, name := string(p.UID), groupNamed(p)
	c.roles[uid] = p.Annotations[volcanoTask]
	if p.Spec.NodeName != "" {
		c.placedAt[c.groupName(p)] = c.w.now
	}
	if !implies(p) {
		return
	}
	least, _ := strconv.Atoi(p.Annotations[api.AnnotationGangMin])
	gang := impliedUID(name)
	others := func() bool {
		for _, o := range c.w.api.pods.objects {
			if q := o.Object.(*corev1.Pod); q.UID != p.UID && implies(q) && groupNamed(q) == name {
				return true
			}
		}
		return false
	}
	if was := c.gangs[gang]; was == nil || added && !others() {
		delete(c.gangs, gang)
		g := c.gang(gang)
		g.implied, g.name = true, name
		if was != nil { // who sees it late may still bind for that one, or for one before it
			g.durable, g.before, g.began = was.durable, c.minimum(was), c.w.now
		}
		g.meddled, g.relabelled, g.inherited = c.strange[name], c.relabelled[name], c.used[name]
		if !slices.Contains(c.byName[name], gang) {
			c.byName[name] = append(c.byName[name], gang)
		}
	}
	g := c.gangs[gang]
	if g.least == 0 {
		g.least = least
	}
	g.least, g.most = min(g.least, least), max(g.most, least)
}

// minimum is the least that a gang needs to start; of an implied group that is known by now, or of the one before.
func (c *check) minimum(g *gangSeen) int {
	if g.before > 0 && c.w.now.Sub(g.began) < lastly {
		return min(g.before, g.least)
	}
	return g.least
}

// starts reports whether the pods of an implied group that are bound now start it: nothing of it was on a node of late.
func (c *check) starts(g *gangSeen) bool {
	for _, o := range c.w.api.pods.objects {
		if p := o.Object.(*corev1.Pod); p.Spec.NodeName != "" && c.groupName(p) == g.name {
			return false
		}
	}
	last, ever := c.placedAt[g.name]
	return !ever || c.w.now.Sub(last) > lastly
}

// hasRoles judges that a gang that starts has enough pods of each role.
func (c *check) hasRoles(x *shard, gang string, g *gangSeen, pods map[string]bool) {
	for _, role := range g.roles {
		n := 0
		for uid := range pods {
			if c.roles[uid] == role.Name {
				n++
			}
		}
		if n < role.Min {
			c.w.fail("I6: %s binds gang %s with %d of at least %d pods of role %s durable", x.inc, gang, n, role.Min, role.Name)
		}
	}
}

// alone judges that a pod which names a group is bound by itself only if the group is of those that start each pod so.
func (c *check) alone(uid, gang string) {
	p := c.w.api.podByUID(uid)
	if uid != gang || p == nil || groupNamed(p) == "" || c.w.load.edited[uid] {
		return
	}
	if !perController(groupNamed(p)) {
		c.w.fail("I6: pod %s of group %q is bound by itself", uid, groupNamed(p))
	}
	c.w.count("pods bound whose PodGroup is gone")
}

// floors judges that a gang's first charge is no less than its group asks for.
func (c *check) floors(r *wire.ReservationRecord) {
	g := c.gang(r.Gang.Uid)
	if r.Forced || g.meddled || g.inherited || len(g.ever) > 0 || len(r.Demand) == 0 && r.Claim != nil {
		return
	}
	demand, _ := wire.ToResources(r.Demand)
	if what, by, under := g.floor.Exceeds(demand); under {
		c.w.fail("gang %s is charged %s, and its PodGroup asks for no less than %s: %d of %s are missing", r.Gang.Uid, demand, g.floor, by, what)
	}
}

// parseMember reads who a pod is from the words of a line.
func parseMember(after func(string) string) member {
	m := parseGroup(after)
	m.shape, _ = strconv.Atoi(after("shape"))
	return m
}

func parseGroup(after func(string) string) member {
	if name := after("volcano"); name != "" {
		return member{group: name, kind: api.VolcanoGroup, role: after("role")}
	}
	if name := after("gang"); name != "" {
		least, _ := strconv.Atoi(after("least"))
		return member{group: name, kind: api.ImpliedGroup, least: least}
	}
	return member{group: after("group")}
}

// kindOf is the kind of the groups with such names.
func kindOf(name string) api.GroupKind {
	switch {
	case strings.HasPrefix(name, "v"), perController(name):
		return api.VolcanoGroup
	case strings.HasPrefix(name, "k"):
		return api.ImpliedGroup
	}
	return api.BasaltGroup
}

// asksToEvict notes for which gang a pod is to be evicted that none of our Bindings tells it of: when the call lands,
// its PodGroup may have gone and a namesake may have come. And it notes whether the gang's status did not say then that
// it had its minimum: what a predecessor writes may land between the call and the eviction.
func (c *check) asksToEvict(uid string) {
	p := c.w.api.podByUID(uid)
	if p == nil {
		return
	}
	gang := c.bound[uid]
	if gang == "" {
		if gang = c.closingOf(p); gang != "" {
			c.going[uid] = gang
		}
	}
	if !c.w.api.toldPlaced(gang) {
		c.untold[uid] = true
	}
}

// entitled says what others have that a gang of a world of lives is entitled to, which has nothing: "" for nothing.
func (w *world) entitled(r *progress.Records, queue string, pods []*corev1.Pod) (words string, err error) {
	name := groupNamed(pods[0])
	gang, ask := string(pods[0].UID), progress.Charged{Queue: queue, Amount: w.cpuOf(pods)}
	ask.Priority = int64(highPriority)
	identity := progress.SingleIdentity(queue, ask.Amount)
	if name != "" {
		gang = w.api.group(name).uid
		identity = gang
	}
	here := func(p *corev1.Pod) bool { return groupNamed(p) == name && name != "" && !waits(p) && !finished(p) }
	if !w.load.lives || len(w.load.pods(here)) > 0 {
		return "", nil
	}
	for _, node := range w.api.nodes.names() {
		r.Supply += w.api.nodeResources(node).Value("cpu")
	}
	r.Asks = map[string]int64{}
	for _, p := range w.load.pods(waits) {
		of := p.Labels[api.LabelQueue]
		if g := w.api.group(groupNamed(p)); g != nil {
			of = g.queue
		}
		r.Asks[cmp.Or(of, api.DefaultQueue)] += w.cpuOf([]*corev1.Pod{p})
	}
	for _, p := range pods {
		if p.Spec.Priority == nil {
			ask.Priority = 0
		}
	}
	return r.Entitled(gang, identity, ask, pods, w.cluster(func(*corev1.Pod) bool { return true }))
}

func (w *world) cpuOf(pods []*corev1.Pod) (sum int64) {
	for _, p := range pods {
		sum += w.api.pods.objects[nameOf(p)].Pod.Class.Requests.Value("cpu")
	}
	return sum
}

// waits reports whether a pod may be placed, and has no node.
func waits(p *corev1.Pod) bool {
	return p.Spec.NodeName == "" && p.DeletionTimestamp == nil && !finished(p) && len(p.Spec.SchedulingGates) == 0
}

// cluster is what there is, of the pods that have a node those for which ok is true.
func (w *world) cluster(ok func(*corev1.Pod) bool) *progress.Cluster {
	c := &progress.Cluster{Namespaces: map[string]map[string]string{"ns": w.load.namespaceLabels()}}
	for _, name := range w.api.nodes.names() {
		c.Nodes = append(c.Nodes, w.api.node(name))
	}
	c.Pods = w.load.pods(func(p *corev1.Pod) bool { return p.Spec.NodeName != "" && !finished(p) && ok(p) })
	return c
}

// lacks takes note of since when a group is short though pods wait that would repair it, and has it judged in time.
func (c *check) lacks(name string, was life, now *life) {
	w := c.w
	repairs := func(p *corev1.Pod) bool { return groupNamed(p) == name && waits(p) && w.load.mayBind(p) }
	if now.short.IsZero() || len(w.load.pods(repairs)) == 0 {
		return
	}
	if now.lacks, now.made = was.lacks, was.made; now.lacks.IsZero() {
		now.lacks, now.made = w.now, w.begun()
		w.outside(w.spare(w.api.PodGroup("ns", name))+partFor, func() { w.judgeShort(name, false) })
	}
}

// begun is how many processes there have been.
func (w *world) begun() (sum int) {
	for _, n := range w.made {
		sum += n
	}
	return sum
}

// spare is the staleAfter in force for a group, 0 for none: its own, if that is shorter than what its queue says.
func (w *world) spare(g *v1beta1.PodGroup) (after time.Duration) {
	if g == nil {
		return 0
	}
	for _, path := range api.Lineage(g.Spec.Queue) {
		if q := w.api.queue(path); q != nil && q.Spec.StaleAfter != nil {
			after = q.Spec.StaleAfter.Duration
			break
		}
	}
	if own := g.Spec.StaleAfter; own != nil && (after == 0 || own.Duration < after) {
		after = own.Duration
	}
	return after
}

// judgeShort judges that a group whose staleAfter is over does not stand in part, though pods wait that would make it
// whole. Who begins counts anew, so a group is judged at rest, or if no process began since it was short and all its
// pods are its own: one that takes over what is left of a namesake does not know that this had started.
func (w *world) judgeShort(name string, rests bool) {
	g, x := w.api.PodGroup("ns", name), w.check.lives[name]
	if g == nil || x.alive == 0 || x.short.IsZero() || w.calm || w.mayBeInPart(name) {
		return
	}
	own := true
	for _, p := range w.load.pods(func(p *corev1.Pod) bool { return running(p) && groupNamed(p) == name }) {
		own = own && p.Labels[api.LabelGang] == string(g.UID)
	}
	after := w.spare(g)
	if !x.lacks.IsZero() {
		if late := w.now.Sub(x.lacks); after > 0 && late >= after+partFor && (rests || own && w.begun() == x.made) {
			w.fail("progress: PodGroup %s stands in part since %s, past its staleAfter of %s: %d pods run%s",
				name, x.lacks.Sub(w.start), after, x.alive, w.load.explain())
		}
		w.count("groups judged that are short")
	}
}

// mayBeInPart reports whether a policy is why a group stands in part: for a moment it may, until it is undone.
func (w *world) mayBeInPart(name string) bool {
	for _, p := range w.load.policies {
		began := w.check.lives[name].began
		if strings.HasPrefix(p.prefix, name+"-") && (p.verb == "eviction" || w.now.Sub(began) < partFor) {
			return true
		}
	}
	return false
}

// partFor is how long a group may stand in part that a policy keeps from starting: it is bound, told no a few times,
// closed and evicted, and its kubelets take up to 5 seconds.
const partFor = 15 * time.Second
