package process

import (
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/kube"
)

// claims knows which PersistentVolumeClaims let a pod run anywhere: those bound to a volume without node affinity. It
// keeps the unbound pods of ours that use claims, few as a rule, and shows them again when a claim or volume changes.
type claims struct {
	mu      sync.Mutex
	show    func(*api.Pod)
	ignore  map[string]bool // resources on the ignore list
	classes api.Classes
	volume  map[string]bool                 // by name: has node affinity
	claim   map[types.NamespacedName]string // name of its volume, "" while it is unbound
	waiting map[types.UID]*corev1.Pod
}

func newClaims(ignore map[string]bool, show func(*api.Pod)) *claims {
	return &claims{show: show, ignore: ignore, volume: map[string]bool{}, claim: map[types.NamespacedName]string{}, waiting: map[types.UID]*corev1.Pod{}}
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
	pods := make([]*api.Pod, len(list))
	for i, p := range list {
		pods[i] = c.reduce(p)
	}
	show(pods)
}

// reduce makes the api.Pod of a pod; the lock is held.
func (c *claims) reduce(p *corev1.Pod) *api.Pod {
	if p.Spec.SchedulerName == api.SchedulerName && p.Spec.NodeName == "" && usesClaims(p) {
		c.waiting[p.UID] = p
	} else {
		delete(c.waiting, p.UID)
	}
	return c.classes.FromPod(p, c.why, c.ignore)
}

func usesClaims(p *corev1.Pod) bool {
	for i := range p.Spec.Volumes {
		if v := &p.Spec.Volumes[i]; v.PersistentVolumeClaim != nil || v.Ephemeral != nil {
			return true
		}
	}
	return false
}

// why implements api.Claims; the lock is held.
func (c *claims) why(namespace, name string) string {
	volume, exists := c.claim[types.NamespacedName{Namespace: namespace, Name: name}]
	if !exists {
		return "the claim does not exist"
	}
	if volume == "" {
		return "the claim is not bound to a volume, and Basalt does not provision any yet"
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
	delete(c.waiting, p.UID)
}

// change applies a change and shows the pods whose answer it may have changed.
func (c *claims) change(apply func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	apply()
	for _, p := range c.waiting {
		c.show(c.classes.FromPod(p, c.why, c.ignore))
	}
}

func (c *claims) volumes(flush func()) kube.Handler[*corev1.PersistentVolume] {
	set := func(v *corev1.PersistentVolume) { c.volume[v.Name] = v.Spec.NodeAffinity != nil }
	return kube.Handler[*corev1.PersistentVolume]{
		Replaced: func(list []*corev1.PersistentVolume, _ kube.Ticket) {
			c.change(func() {
				clear(c.volume)
				for _, v := range list {
					set(v)
				}
			})
		},
		Seen:  func(v *corev1.PersistentVolume) { c.change(func() { set(v) }) },
		Gone:  func(v *corev1.PersistentVolume) { c.change(func() { delete(c.volume, v.Name) }) },
		Flush: flush,
	}
}

func (c *claims) claims(flush func()) kube.Handler[*corev1.PersistentVolumeClaim] {
	name := func(p *corev1.PersistentVolumeClaim) types.NamespacedName {
		return types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
	}
	set := func(p *corev1.PersistentVolumeClaim) {
		volume := ""
		if p.Status.Phase == corev1.ClaimBound {
			volume = p.Spec.VolumeName
		}
		c.claim[name(p)] = volume
	}
	return kube.Handler[*corev1.PersistentVolumeClaim]{
		Replaced: func(list []*corev1.PersistentVolumeClaim, _ kube.Ticket) {
			c.change(func() {
				clear(c.claim)
				for _, p := range list {
					set(p)
				}
			})
		},
		Seen:  func(p *corev1.PersistentVolumeClaim) { c.change(func() { set(p) }) },
		Gone:  func(p *corev1.PersistentVolumeClaim) { c.change(func() { delete(c.claim, name(p)) }) },
		Flush: flush,
	}
}
