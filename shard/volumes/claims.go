package volumes

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/volume"
	"basalt.dev/basalt/shard/event"
)

// What the cores are told of a pod, and when they are told again.

// answer is all that what is said about a subject depends on.
type answer struct {
	exists  bool
	claim   volume.Claim
	volume  *volume.Volume // the same one as long as it is equal
	class   *volume.Class  // likewise
	kept    *volume.Volume // likewise
	gone    bool           // the node that was selected is not there
	limited bool           // nodes may not take any number of volumes of its driver
	users   volume.Usage
	device  string
	all     bool // api.Rules.EmptyAll
}

// answers are what is said about subjects on which waiting pods depend.
type answers map[subject]answer

// promptPods is how many pods a subject may have that are shown again at once when it changes; those of others are
// after lateAfter.
const promptPods = 64

// seen reduces a pod and tells it.
func (c *Core) seen(p *corev1.Pod) {
	if len(p.Spec.Volumes) == 0 {
		c.showPod(c.reduce(p))
		return
	}
	before := answers{}
	for i := range p.Spec.Volumes {
		if v := p.Spec.Volumes[i].PersistentVolumeClaim; v != nil {
			c.noteUsage(before, types.NamespacedName{Namespace: p.Namespace, Name: v.ClaimName})
		}
	}
	for _, node := range c.use(p, c.rules) { // before the node core stops to count the pod itself
		c.countVolumes(node)
	}
	c.again.drop(p.UID)
	c.showPod(c.reduce(p))
	others := c.changed(before)
	delete(others, p.UID)
	c.show(others, true)
}

// replaced reduces all pods and tells them.
func (c *Core) replaced(list []*corev1.Pod, ticket uint64) {
	c.forgetAll()
	c.usages = newUsages()
	for _, p := range list { // all of them before anything is said of one
		if len(p.Spec.Volumes) > 0 {
			c.use(p, c.rules)
		}
	}
	c.countAll()
	pods := make([]*api.Pod, len(list))
	for i, p := range list {
		pods[i] = c.reduce(p)
	}
	if c.pods.list(pods, ticket) {
		c.tell(event.PodsListed{Pods: pods, Ticket: ticket})
	}
}

// caughtUp tells that what was told is as good as a list.
func (c *Core) caughtUp(ticket uint64) {
	list, caughtUp := c.current()
	c.tell(event.PodsListed{Pods: list, Ticket: ticket, CaughtUp: caughtUp})
}

func (c *Core) lost(id, namespace, name string) {
	uid := types.UID(id)
	c.forget(uid, c.claim)
	if used := c.uses[uid]; used != nil {
		before := answers{}
		for _, claim := range used.claims {
			c.noteUsage(before, claim.NamespacedName)
		}
		for _, node := range c.unuse(uid) {
			c.countVolumes(node)
		}
		c.show(c.changed(before), true)
	}
	if c.lose(id) {
		c.tell(event.PodGone{UID: id, Namespace: namespace, Name: name})
	}
}

// reduce makes the api.Pod of a pod, and keeps the pod if it may have to be shown again.
func (c *Core) reduce(p *corev1.Pod) *api.Pod {
	if len(c.waits) > 0 {
		c.forget(p.UID, c.claim)
	}
	pod := c.classes.FromPod(p, c, c.rules)
	if !pod.Ours || pod.Node != "" {
		return pod
	}
	if subjects := dependsOn(p, pod); len(subjects) > 0 {
		c.keep(&waitingPod{p, subjects}, c.claim)
	}
	return pod
}

// Volumes implements api.Cluster.
func (c *Core) Volumes(p *corev1.Pod) (reach api.Reach, why string) {
	reach, why = volume.Nodes(p, api.GroupOf(p, c.rules), c)
	if delete(c.inPart, p.UID); reach.Part {
		c.inPart[p.UID] = true
		c.tasks.later(c.now, task{kind: showParts})
	}
	return reach, why
}

func (c *Core) answer(s subject) (a answer) {
	switch s.kind {
	case aDevice:
		a.device = c.DeviceClass(s.name)
	case aRelease:
		a.all = c.rules.EmptyAll
	case aDriver:
		a.limited = c.limits(s.name)
	case aClaim:
		if a.claim, a.exists = c.claim[claimOf(s)]; a.claim.Bound {
			a.volume = c.volume[a.claim.Volume]
		} else if a.claim.Class != "" {
			a.class = c.class[a.claim.Class]
			a.kept = volume.KeptFor(s.namespace, s.name, a.claim, c)
			a.gone = a.claim.Selected != "" && !c.Node(a.claim.Selected)
		}
		limits := func(of volume.Attachment) bool { return c.limits(of.Driver) }
		a.limited = slices.ContainsFunc(c.attachments(claimOf(s)), limits)
		if a.claim.OnePod {
			if u := c.Usage(s.namespace, s.name); u != nil {
				a.users = *u
			}
		}
	}
	return a
}

func (c *Core) note(before answers, s subject) {
	if _, known := before[s]; !known && len(c.users[s]) > 0 {
		before[s] = c.answer(s)
	}
}

// noteUsage notes a claim for which it matters who uses it.
func (c *Core) noteUsage(before answers, name types.NamespacedName) {
	if c.claim[name].OnePod {
		c.note(before, subject{aClaim, name.Namespace, name.Name})
	}
}

// change makes a change after which something else may be said of some subjects.
func (c *Core) change(apply func(), subjects ...subject) {
	before := answers{}
	for _, s := range subjects {
		c.note(before, s)
	}
	apply()
	c.show(c.changed(before), true)
}

// changeAny makes a change after which something else may be said of anything: a new list, or what an administrator
// changed.
func (c *Core) changeAny(apply func()) {
	before := answers{}
	for s := range c.users {
		c.note(before, s)
	}
	apply()
	c.bindAll(c.claim)
	c.show(c.changed(before), true)
}

// changed returns the pods of those subjects of which it says something else now: they are to be shown again.
// Subjects that many pods wait for have their turn a little later: whoever deletes such a claim and makes it again
// all the time must not cost a shard its time.
func (c *Core) changed(before answers) (pods map[types.UID]bool) {
	for s, was := range before {
		if len(c.users[s]) <= promptPods {
			pods = c.addChanged(pods, s, was)
		} else if _, late := c.late[s]; !late {
			c.late[s] = was
			c.tasks.later(c.now, task{showLate, s.namespace})
		}
	}
	return pods
}

// addChanged adds the pods of a subject if something else is said of it now.
func (c *Core) addChanged(pods map[types.UID]bool, s subject, was answer) map[types.UID]bool {
	if c.answer(s) == was {
		return pods
	}
	return addUsers(pods, c.users[s])
}

func addUsers(pods map[types.UID]bool, users map[types.UID]*waitingPod) map[types.UID]bool {
	if pods == nil {
		pods = make(map[types.UID]bool, len(users))
	}
	for uid := range users {
		pods[uid] = true
	}
	return pods
}

// show shows pods again that still wait, by what is known when it is their turn. The first of them have it now if soon.
func (c *Core) show(pods map[types.UID]bool, soon bool) {
	for i, uid := range api.SortedKeys(pods) {
		if soon && i < atOnce {
			c.again.drop(uid)
			c.showAgain(uid)
		} else {
			c.again.add(uid)
		}
	}
}

// showAgain shows a pod again, if it still waits.
func (c *Core) showAgain(uid types.UID) {
	if w := c.waits[uid]; w != nil {
		c.showPod(c.classes.FromPod(w.pod, c, c.rules))
	}
}

func (c *Core) showPod(p *api.Pod) {
	if c.see(p) {
		c.tell(event.PodSeen{Pod: p})
	}
}

// showLate shows the pods of subjects in a namespace that had to wait, and estimates what that costs.
func (c *Core) showLate(namespace string) time.Duration {
	var pods map[types.UID]bool
	looked := len(c.late)
	for s, was := range c.late {
		if s.namespace == namespace {
			pods = c.addChanged(pods, s, was)
			delete(c.late, s)
		}
	}
	c.show(pods, false)
	return time.Duration(looked)*lookCost + time.Duration(len(pods))*showCost
}

// showSupplied shows the pods again whose claims may have other volumes of a class now.
func (c *Core) showSupplied(class string) time.Duration {
	var pods map[types.UID]bool
	for s, users := range c.users {
		if s.kind != aClaim {
			continue
		}
		if claim := c.claim[claimOf(s)]; claim.UID != "" && claim.Class == class {
			pods = addUsers(pods, users)
		}
	}
	c.show(pods, false)
	return time.Duration(len(c.users))*lookCost + time.Duration(len(pods))*showCost
}

// showParts offers pods that wait another part of what there is.
func (c *Core) showParts() time.Duration {
	c.choices.turn++
	c.show(c.inPart, false)
	return time.Duration(len(c.inPart)) * showCost
}
