package volumes

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/volume"
)

// dependents are the unbound pods of ours whose reduction depends on objects other than the pod: few as a rule. They
// are shown again when what is said of one of their subjects changes. What an event costs grows with the pods that
// depend on its object, not with those that wait.
type dependents struct {
	waits  map[types.UID]*waitingPod
	users  map[subject]map[types.UID]*waitingPod    // the pods that wait for it
	bound  map[string]map[types.NamespacedName]bool // the claims of a volume, of those that pods wait for
	inPart map[types.UID]bool                       // pods that wait and are offered a part of what there is (api.Reach)
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

// waitingPod is an unbound pod that depends on subjects.
type waitingPod struct {
	pod      *corev1.Pod
	subjects []subject
}

func newDependents() dependents {
	return dependents{waits: map[types.UID]*waitingPod{}, users: map[subject]map[types.UID]*waitingPod{},
		bound: map[string]map[types.NamespacedName]bool{}, inPart: map[types.UID]bool{}}
}

func claimOf(s subject) types.NamespacedName {
	return types.NamespacedName{Namespace: s.namespace, Name: s.name}
}

// dependsOn returns the subjects of a pod.
func dependsOn(p *corev1.Pod, as *api.Pod) (out []subject) {
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		if name := api.ClaimOf(p, v); name != "" {
			out = append(out, subject{aClaim, p.Namespace, name})
		} else if driver, _, _ := volume.Disk(v); driver != "" {
			out = append(out, subject{kind: aDriver, name: driver})
		}
	}
	for _, r := range as.Class.Requests {
		if strings.IndexByte(r.Resource, '/') > 0 {
			out = append(out, subject{kind: aDevice, name: r.Resource})
		}
	}
	if api.SpreadsByEmpty(p) {
		out = append(out, subject{kind: aRelease})
	}
	return out
}

// keep takes a pod that waits.
func (d *dependents) keep(w *waitingPod, claims map[types.NamespacedName]volume.Claim) {
	d.waits[w.pod.UID] = w
	for _, s := range w.subjects {
		if d.users[s] == nil {
			d.users[s] = map[types.UID]*waitingPod{}
			if s.kind == aClaim {
				d.bind(claimOf(s), claims[claimOf(s)].Volume)
			}
		}
		d.users[s][w.pod.UID] = w
	}
}

// forget drops a pod that waits no more.
func (d *dependents) forget(uid types.UID, claims map[types.NamespacedName]volume.Claim) {
	w := d.waits[uid]
	if w == nil {
		return
	}
	delete(d.waits, uid)
	delete(d.inPart, uid)
	for _, s := range w.subjects {
		if delete(d.users[s], uid); len(d.users[s]) == 0 {
			delete(d.users, s)
			if s.kind == aClaim {
				d.unbind(claimOf(s), claims[claimOf(s)].Volume)
			}
		}
	}
}

func (d *dependents) forgetAll() {
	clear(d.waits)
	clear(d.inPart)
	clear(d.users)
	clear(d.bound)
}

// bind indexes a claim that pods wait for under its volume, unbind does the reverse.
func (d *dependents) bind(name types.NamespacedName, volume string) {
	if volume == "" || d.users[subject{aClaim, name.Namespace, name.Name}] == nil {
		return
	}
	put(d.bound, volume, name, true)
}

func (d *dependents) unbind(name types.NamespacedName, volume string) {
	if volume != "" {
		remove(d.bound, volume, name)
	}
}

// bindAll is bind for all claims that pods wait for.
func (d *dependents) bindAll(claims map[types.NamespacedName]volume.Claim) {
	clear(d.bound)
	for s := range d.users {
		if s.kind == aClaim {
			d.bind(claimOf(s), claims[claimOf(s)].Volume)
		}
	}
}
