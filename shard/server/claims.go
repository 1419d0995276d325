package server

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/volume"
)

// claims answers what FromPod asks about objects other than the pod: where its volumes let it run (package volume), and whether a
// DeviceClass stands behind a resource. It keeps the unbound pods of ours whose reduction depends on such an object, few as a rule, and
// shows them again when what it says of one of their subjects changes. What an event costs grows with the pods that depend on its
// object, not with those that wait.
type claims struct {
	mu      sync.Mutex
	show    func(*api.Pod)
	rules   api.Rules
	classes api.Classes
	storage
	usages
	attached
	devices
	bindings
	bound   map[string]map[types.NamespacedName]bool // the claims of a volume, of those that pods wait for
	waiting map[types.UID]*waitingPod
	users   map[subject]map[types.UID]*waitingPod // the pods that wait for it
	inPart  map[types.UID]bool                    // pods that wait and are offered a part of what there is (api.Reach)
	turn    uint64                                // see volume.Cluster
	late    answers                               // what was said of subjects whose pods are to be shown again later
	tasks   map[task]bool                         // see later
	flush   func()
}

// subject is what an answer is about.
type subject struct {
	kind            kind
	namespace, name string
}

type kind uint8

const (
	aClaim   kind = iota // a PersistentVolumeClaim
	aDriver              // a CSI driver, of a disk that a pod names itself
	aDevice              // a resource that may be a DeviceClass's
	aRelease             // the release of Kubernetes whose rules hold
)

func (s subject) claim() types.NamespacedName {
	return types.NamespacedName{Namespace: s.namespace, Name: s.name}
}

// waitingPod is an unbound pod that depends on subjects.
type waitingPod struct {
	pod      *corev1.Pod
	subjects []subject
}

func newClaims(rules api.Rules, show func(*api.Pod), flush func()) *claims {
	return &claims{
		show: show, flush: flush, inPart: map[types.UID]bool{}, late: answers{}, tasks: map[task]bool{}, rules: rules, storage: newStorage(), usages: newUsages(), attached: newAttached(), devices: newDevices(), bindings: newBindings(),
		bound: map[string]map[types.NamespacedName]bool{}, waiting: map[types.UID]*waitingPod{}, users: map[subject]map[types.UID]*waitingPod{},
	}
}

// seen reduces a pod and hands it on. Handing on happens under the lock, so that an answer of change is never followed by
// an older one.
func (c *claims) seen(p *corev1.Pod) { c.showPods(c.seenFirst(p)) }

// seenFirst hands a pod on, and returns those that are to be shown again because of it.
func (c *claims) seenFirst(p *corev1.Pod) (others map[types.UID]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(p.Spec.Volumes) == 0 {
		c.show(c.reduce(p))
		return nil
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
	c.show(c.reduce(p))
	others = c.again(before)
	delete(others, p.UID)
	return others
}

// replaced reduces all pods and hands them on.
func (c *claims) replaced(list []*corev1.Pod, show func([]*api.Pod)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.waiting)
	clear(c.inPart)
	clear(c.users)
	clear(c.bound)
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
	show(pods)
}

func (c *claims) gone(p *corev1.Pod) { c.showPods(c.goneFirst(p)) }

func (c *claims) goneFirst(p *corev1.Pod) (others map[types.UID]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget(p.UID)
	used := c.uses[p.UID]
	if used == nil {
		return nil
	}
	before := answers{}
	for _, claim := range used.claims {
		c.noteUsage(before, claim.NamespacedName)
	}
	for _, node := range c.unuse(p.UID) {
		c.countVolumes(node)
	}
	return c.again(before)
}

// reduce makes the api.Pod of a pod, and keeps the pod if it may have to be shown again; the lock is held.
func (c *claims) reduce(p *corev1.Pod) *api.Pod {
	if len(c.waiting) > 0 {
		c.forget(p.UID)
	}
	pod := c.classes.FromPod(p, c, c.rules)
	if !pod.Ours || pod.Node != "" {
		return pod
	}
	w := &waitingPod{}
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		if name := api.ClaimOf(p, v); name != "" {
			w.subjects = append(w.subjects, subject{aClaim, p.Namespace, name})
		} else if driver, _, _ := volume.Disk(v); driver != "" {
			w.subjects = append(w.subjects, subject{kind: aDriver, name: driver})
		}
	}
	for _, r := range pod.Class.Requests {
		if strings.IndexByte(r.Resource, '/') > 0 {
			w.subjects = append(w.subjects, subject{kind: aDevice, name: r.Resource})
		}
	}
	if api.SpreadsByEmpty(p) {
		w.subjects = append(w.subjects, subject{kind: aRelease})
	}
	if len(w.subjects) > 0 {
		w.pod = p
		c.keep(w)
	}
	return pod
}

func (c *claims) keep(w *waitingPod) {
	c.waiting[w.pod.UID] = w
	for _, s := range w.subjects {
		if c.users[s] == nil {
			c.users[s] = map[types.UID]*waitingPod{}
			if s.kind == aClaim {
				c.bind(s.claim())
			}
		}
		c.users[s][w.pod.UID] = w
	}
}

// forget drops a pod that waits no more.
func (c *claims) forget(uid types.UID) {
	w := c.waiting[uid]
	if w == nil {
		return
	}
	delete(c.waiting, uid)
	delete(c.inPart, uid)
	for _, s := range w.subjects {
		if delete(c.users[s], uid); len(c.users[s]) == 0 {
			delete(c.users, s)
			if s.kind == aClaim {
				c.unbind(s.claim())
			}
		}
	}
}

// bind indexes a claim that pods wait for under its volume, unbind does the reverse.
func (c *claims) bind(name types.NamespacedName) {
	volume := c.claim[name].Volume
	if volume == "" || c.users[subject{aClaim, name.Namespace, name.Name}] == nil {
		return
	}
	if c.bound[volume] == nil {
		c.bound[volume] = map[types.NamespacedName]bool{}
	}
	c.bound[volume][name] = true
}

func (c *claims) unbind(name types.NamespacedName) {
	if volume := c.claim[name].Volume; volume != "" {
		delete(c.bound[volume], name)
		if len(c.bound[volume]) == 0 {
			delete(c.bound, volume)
		}
	}
}

// Volumes implements api.Cluster; the lock is held.
func (c *claims) Volumes(p *corev1.Pod) (reach api.Reach, why string) {
	reach, why = volume.Nodes(p, api.GroupOf(p, c.rules), c)
	if delete(c.inPart, p.UID); reach.Part {
		c.inPart[p.UID] = true
		c.later(task{kind: showParts}, partPause, c.showParts)
	}
	return reach, why
}

// Turn implements volume.Cluster.
func (c *claims) Turn() uint64 { return c.turn }

// partPause is how long pods are offered one part of what there is. It is long enough for a gang to be placed and committed.
const partPause = time.Minute

// showParts offers pods that wait another part of what there is.
func (c *claims) showParts() time.Duration {
	c.mu.Lock()
	c.turn++
	pods := maps.Clone(c.inPart)
	c.mu.Unlock()
	return c.showPods(pods)
}

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

func (c *claims) answer(s subject) (a answer) {
	switch s.kind {
	case aDevice:
		a.device = c.DeviceClass(s.name)
	case aRelease:
		a.all = c.rules.EmptyAll
	case aDriver:
		a.limited = c.limits(s.name)
	case aClaim:
		if a.claim, a.exists = c.claim[s.claim()]; a.claim.Bound {
			a.volume = c.volume[a.claim.Volume]
		} else if a.claim.Class != "" {
			a.class = c.class[a.claim.Class]
			a.kept = volume.KeptFor(s.namespace, s.name, a.claim, c)
			a.gone = a.claim.Selected != "" && !c.Node(a.claim.Selected)
		}
		if a.exists {
			a.limited = slices.ContainsFunc(volume.AttachmentsOf(s.namespace, s.name, a.claim, c), func(of volume.Attachment) bool { return c.limits(of.Driver) })
		}
		if a.claim.OnePod {
			if u := c.Usage(s.namespace, s.name); u != nil {
				a.users = *u
			}
		}
	}
	return a
}

// answers are what is said about subjects on which waiting pods depend.
type answers map[subject]answer

func (c *claims) note(before answers, s subject) {
	if _, known := before[s]; !known && len(c.users[s]) > 0 {
		before[s] = c.answer(s)
	}
}

// noteUsage notes a claim for which it matters who uses it.
func (c *claims) noteUsage(before answers, name types.NamespacedName) {
	if c.claim[name].OnePod {
		c.note(before, subject{aClaim, name.Namespace, name.Name})
	}
}

// again returns the pods of those subjects of which it says something else now: they are to be shown again. Subjects that many pods wait
// for have their turn a little later: whoever deletes such a claim and makes it again all the time must not cost a shard its time.
func (c *claims) again(before answers) (pods map[types.UID]bool) {
	for s, was := range before {
		if len(c.users[s]) <= promptPods {
			pods = c.addChanged(pods, s, was)
		} else if _, late := c.late[s]; !late {
			c.late[s] = was
			c.later(task{showLate, s.namespace}, lateAfter, func() time.Duration { return c.showLate(s.namespace) })
		}
	}
	return pods
}

// Pods of a subject that are shown again at once when it changes, and when those of others are.
const (
	promptPods = 64
	lateAfter  = time.Second
)

// addChanged adds the pods of a subject if something else is said of it now.
func (c *claims) addChanged(pods map[types.UID]bool, s subject, was answer) map[types.UID]bool {
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

// showLate shows the pods of subjects in a namespace that had to wait.
func (c *claims) showLate(namespace string) time.Duration {
	c.mu.Lock()
	began := time.Now()
	var pods map[types.UID]bool
	for s, was := range c.late {
		if s.namespace == namespace {
			pods = c.addChanged(pods, s, was)
			delete(c.late, s)
		}
	}
	looked := time.Since(began)
	c.mu.Unlock()
	return looked + c.showPods(pods)
}

// showPods shows pods again that still wait, by what is known when it is their turn. The lock is held for one pod at a time, so that nothing
// else waits for all of them: a pod may have been shown by newer facts meanwhile, but never is by older ones. It returns for how long the lock was held.
func (c *claims) showPods(pods map[types.UID]bool) (took time.Duration) {
	for uid := range pods {
		c.mu.Lock()
		began := time.Now()
		if w := c.waiting[uid]; w != nil {
			c.show(c.classes.FromPod(w.pod, c, c.rules))
		}
		took += time.Since(began)
		c.mu.Unlock()
	}
	return took
}

// task is work that is done once for many events.
type task struct {
	kind taskKind
	of   string // a namespace, or a StorageClass
}

type taskKind uint8

const (
	showLate     taskKind = iota // the pods of a namespace's subjects that many pods wait for
	showSupplied                 // the pods whose claims may have other volumes of a class now
	showParts                    // pods that are offered a part of what there is
	countNodes                   // the volumes of the nodes in attached.dirty
)

// later does a task after a pause, once for all events until then, and again no sooner than after ten times as long as it took: it may
// cost a tenth of the time, however often a tenant has it done. The lock is held; work is called without it, and returns how long it held it.
func (c *claims) later(t task, pause time.Duration, work func() time.Duration) {
	_, rests := c.tasks[t]
	if c.tasks[t] = true; !rests {
		time.AfterFunc(pause, func() { c.do(t, pause, work) })
	}
}

func (c *claims) do(t task, pause time.Duration, work func() time.Duration) {
	c.mu.Lock()
	wanted := c.tasks[t]
	if c.tasks[t] = false; !wanted {
		delete(c.tasks, t)
	}
	c.mu.Unlock()
	if !wanted {
		return
	}
	took := work()
	if c.flush != nil {
		c.flush()
	}
	time.AfterFunc(max(pause, 10*took), func() { c.do(t, pause, work) })
}

// change makes a change after which something else may be said of some subjects.
func (c *claims) change(apply func(), subjects ...subject) {
	c.mu.Lock()
	before := answers{}
	for _, s := range subjects {
		c.note(before, s)
	}
	apply()
	pods := c.again(before)
	c.mu.Unlock()
	c.showPods(pods)
}

// setRelease takes what holds in the release of the API server.
func (c *claims) setRelease(emptyAll bool) {
	c.change(func() { c.rules.EmptyAll = emptyAll }, subject{kind: aRelease})
}

// changeAny makes a change after which something else may be said of anything: a new list, or what an administrator changed.
func (c *claims) changeAny(apply func()) {
	c.mu.Lock()
	before := answers{}
	for s := range c.users {
		c.note(before, s)
	}
	apply()
	clear(c.bound)
	for s := range c.users {
		if s.kind == aClaim {
			c.bind(s.claim())
		}
	}
	pods := c.again(before)
	c.mu.Unlock()
	c.showPods(pods)
}
