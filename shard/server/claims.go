package server

import (
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/kube"
)

// claims knows which PersistentVolumeClaims let a pod run anywhere: those bound to a volume without node affinity. It
// keeps the unbound pods of ours that use claims, few as a rule, and shows them again when what it says of one of their claims
// changes. What an event of a claim or volume costs grows with the pods that wait for it, not with those that wait.
type claims struct {
	mu      sync.Mutex
	show    func(*api.Pod)
	rules   api.Rules
	classes api.Classes
	volume  map[string]bool                          // by name: has node affinity
	claim   map[types.NamespacedName]string          // name of its volume, "" while it is unbound
	bound   map[string]map[types.NamespacedName]bool // the claims of a volume, of those that pods wait for
	waiting map[types.UID]*waitingPod
	users   map[types.NamespacedName]map[types.UID]*waitingPod // the pods that wait for a claim
	late    answers                                            // what was said of claims whose pods are to be shown again later
	flush   func()
}

// waitingPod is an unbound pod that uses claims.
type waitingPod struct {
	pod    *corev1.Pod
	claims []types.NamespacedName
}

func newClaims(rules api.Rules, show func(*api.Pod), flush func()) *claims {
	return &claims{
		show: show, flush: flush, late: answers{}, rules: rules, volume: map[string]bool{}, claim: map[types.NamespacedName]string{}, bound: map[string]map[types.NamespacedName]bool{},
		waiting: map[types.UID]*waitingPod{}, users: map[types.NamespacedName]map[types.UID]*waitingPod{},
	}
}

// seen reduces a pod and hands it on. Handing on happens under the lock, so that an answer of change is never followed by
// an older one.
func (c *claims) seen(p *corev1.Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.show(c.reduce(p))
}

// replaced reduces all pods and hands them on.
func (c *claims) replaced(list []*corev1.Pod, show func([]*api.Pod)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.waiting)
	clear(c.users)
	clear(c.bound)
	pods := make([]*api.Pod, len(list))
	for i, p := range list {
		pods[i] = c.reduce(p)
	}
	show(pods)
}

// reduce makes the api.Pod of a pod; the lock is held.
func (c *claims) reduce(p *corev1.Pod) *api.Pod {
	if len(c.waiting) > 0 {
		c.forget(p.UID)
	}
	if p.Spec.NodeName == "" && c.rules.Ours(p.Spec.SchedulerName) && usesClaims(p) {
		w := &waitingPod{pod: p, claims: claimsOf(p)}
		c.waiting[p.UID] = w
		for _, name := range w.claims {
			if c.users[name] == nil {
				c.users[name] = map[types.UID]*waitingPod{}
				c.bind(name)
			}
			c.users[name][p.UID] = w
		}
	}
	return c.classes.FromPod(p, c.why, c.rules)
}

// forget drops a pod that waits no more.
func (c *claims) forget(uid types.UID) {
	w := c.waiting[uid]
	if w == nil {
		return
	}
	delete(c.waiting, uid)
	for _, name := range w.claims {
		delete(c.users[name], uid)
		if len(c.users[name]) == 0 {
			delete(c.users, name)
			c.unbind(name)
		}
	}
}

// bind indexes a claim under its volume, unbind does the reverse.
func (c *claims) bind(name types.NamespacedName) {
	volume := c.claim[name]
	if volume == "" || c.users[name] == nil {
		return
	}
	if c.bound[volume] == nil {
		c.bound[volume] = map[types.NamespacedName]bool{}
	}
	c.bound[volume][name] = true
}

func (c *claims) unbind(name types.NamespacedName) {
	if volume := c.claim[name]; volume != "" {
		delete(c.bound[volume], name)
		if len(c.bound[volume]) == 0 {
			delete(c.bound, volume)
		}
	}
}

func usesClaims(p *corev1.Pod) bool {
	for i := range p.Spec.Volumes {
		if v := &p.Spec.Volumes[i]; v.PersistentVolumeClaim != nil || v.Ephemeral != nil {
			return true
		}
	}
	return false
}

// claimsOf names the claims of a pod, each once.
func claimsOf(p *corev1.Pod) (all []types.NamespacedName) {
	seen := map[string]bool{}
	for i := range p.Spec.Volumes {
		name := api.ClaimOf(p, &p.Spec.Volumes[i])
		if name != "" && !seen[name] {
			seen[name] = true
			all = append(all, types.NamespacedName{Namespace: p.Namespace, Name: name})
		}
	}
	return all
}

// why implements api.Claims; the lock is held.
func (c *claims) why(namespace, name string) string {
	volume, exists := c.claim[types.NamespacedName{Namespace: namespace, Name: name}]
	if !exists {
		return "the claim does not exist"
	}
	if volume == "" {
		return "the claim is not bound to a volume, and Basalt does not support provisioning yet"
	}
	affinity, exists := c.volume[volume]
	if !exists {
		return fmt.Sprintf("its volume %s does not exist", volume)
	}
	if affinity {
		return fmt.Sprintf("its volume %s has node affinity, which is not supported yet", volume)
	}
	return ""
}

func (c *claims) gone(p *corev1.Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget(p.UID)
}

// answers are what why says of claims that pods wait for.
type answers map[types.NamespacedName]string

func (c *claims) note(before answers, name types.NamespacedName) {
	if _, known := before[name]; !known && len(c.users[name]) > 0 {
		before[name] = c.why(name.Namespace, name.Name)
	}
}

// again shows the pods of those claims of which it says something else now, each pod once. Claims that many pods wait for
// have their turn a little later: whoever deletes such a claim and makes it again all the time must not cost a shard its time.
func (c *claims) again(before answers) {
	shown := map[types.UID]bool{}
	for name, why := range before {
		if len(c.users[name]) > promptPods {
			if _, late := c.late[name]; !late {
				if len(c.late) == 0 {
					time.AfterFunc(lateAfter, c.showLate)
				}
				c.late[name] = why
			}
			continue
		}
		c.showAgain(name, why, shown)
	}
}

// Pods of a claim that are shown again at once when it changes, and when those of others are.
const (
	promptPods = 64
	lateAfter  = time.Second
)

// showLate shows the pods of claims that had to wait.
func (c *claims) showLate() {
	c.mu.Lock()
	shown := map[types.UID]bool{}
	for name, why := range c.late {
		c.showAgain(name, why, shown)
	}
	clear(c.late)
	flush := c.flush
	c.mu.Unlock()
	if flush != nil {
		flush()
	}
}

// showAgain shows the pods of a claim if something else is said of it now than why.
func (c *claims) showAgain(name types.NamespacedName, why string, shown map[types.UID]bool) {
	if c.why(name.Namespace, name.Name) == why {
		return
	}
	for uid, w := range c.users[name] {
		if !shown[uid] {
			shown[uid] = true
			c.show(c.classes.FromPod(w.pod, c.why, c.rules))
		}
	}
}

// setVolume takes a volume, or that it is gone.
func (c *claims) setVolume(name string, there, affinity bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := answers{}
	for claim := range c.bound[name] {
		c.note(before, claim)
	}
	if there {
		c.volume[name] = affinity
	} else {
		delete(c.volume, name)
	}
	c.again(before)
}

// setClaim takes a claim, or that it is gone.
func (c *claims) setClaim(name types.NamespacedName, there bool, volume string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := answers{}
	c.note(before, name)
	c.unbind(name)
	if there {
		c.claim[name] = volume
	} else {
		delete(c.claim, name)
	}
	c.bind(name)
	c.again(before)
}

// replace takes a new list of claims or volumes, which apply does.
func (c *claims) replace(apply func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := answers{}
	for name := range c.users {
		c.note(before, name)
	}
	apply()
	clear(c.bound)
	for name := range c.users {
		c.bind(name)
	}
	c.again(before)
}

func (c *claims) volumes() kube.Handler[*corev1.PersistentVolume] {
	affinity := func(v *corev1.PersistentVolume) bool { return v.Spec.NodeAffinity != nil }
	return kube.Handler[*corev1.PersistentVolume]{
		Replaced: func(list []*corev1.PersistentVolume, _ kube.Ticket) {
			c.replace(func() {
				clear(c.volume)
				for _, v := range list {
					c.volume[v.Name] = affinity(v)
				}
			})
		},
		Seen:  func(v *corev1.PersistentVolume) { c.setVolume(v.Name, true, affinity(v)) },
		Gone:  func(v *corev1.PersistentVolume) { c.setVolume(v.Name, false, false) },
		Flush: c.flush,
	}
}

func (c *claims) claims() kube.Handler[*corev1.PersistentVolumeClaim] {
	name := func(p *corev1.PersistentVolumeClaim) types.NamespacedName {
		return types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
	}
	volume := func(p *corev1.PersistentVolumeClaim) string {
		if p.Status.Phase == corev1.ClaimBound {
			return p.Spec.VolumeName
		}
		return ""
	}
	return kube.Handler[*corev1.PersistentVolumeClaim]{
		Replaced: func(list []*corev1.PersistentVolumeClaim, _ kube.Ticket) {
			c.replace(func() {
				clear(c.claim)
				for _, p := range list {
					c.claim[name(p)] = volume(p)
				}
			})
		},
		Seen:  func(p *corev1.PersistentVolumeClaim) { c.setClaim(name(p), true, volume(p)) },
		Gone:  func(p *corev1.PersistentVolumeClaim) { c.setClaim(name(p), false, "") },
		Flush: c.flush,
	}
}
