package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/volume"
)

// Storage, in runs with the line volumes. Pods of some gangs have a claim of their own that is bound once their node
// is decided. Some single pods, and the first pods of some gangs, name one of three claims that one pod at a time may
// use (ReadWriteOncePod): so pods of different queues, and so of different homes, wait for one claim, and go for it
// at once when it is free. What a shard makes of it the volumes core decides, as in production. Here is what is
// outside: users who make claims, a volume controller that binds them, and a provisioner, which takes its time, may
// give up, and may go on with what was taken back. When the faults end, volumes can be used anywhere, so that
// everything that fits can be placed.

// Names of the pods' volumes: the claim for one pod, and the pod's own.
const (
	sharedVolume = "data"
	ownVolume    = "own"
)

// StorageClasses: volumes of one are provisioned, of the other made by hand.
const (
	classMade   = "made"
	classByHand = "by-hand"
)

const bindCompleted = "pv.kubernetes.io/bind-completed" // an annotation of a claim that is bound

// volumes draws, in some seeds, whether pods have volumes, before there are any.
func (d *drawer) volumes(die *die) {
	if die.below(2) == 0 {
		d.say("volumes")
	}
}

// hasVolume reports whether the pods of a gang of this key have claims of their own.
func (l *workload) hasVolume(key string) bool { return l.volumes && int(api.BucketOf(key))/12%3 == 0 }

// claimFor is the claim for one pod that a pod names, "" for none.
func (l *workload) claimFor(name string, of member) string {
	key := name
	if of.group != "" {
		if !strings.HasSuffix(name, "-0") { // two pods of a gang could never run together
			return ""
		}
		key = of.group
	}
	if kind := int(api.BucketOf("claim/" + key)); l.volumes && kind%3 == 0 {
		return fmt.Sprint("claim", kind/3%3)
	}
	return ""
}

// mount has a pod name a claim, if it is not "".
func mount(p *corev1.Pod, as, claim string) {
	if claim == "" {
		return
	}
	source := corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: as, VolumeSource: source})
}

// claimOf is the claim for one pod that a pod names, ownClaim that of its own; "" for none.
func claimOf(p *corev1.Pod) string  { return mounted(p, sharedVolume) }
func ownClaim(p *corev1.Pod) string { return mounted(p, ownVolume) }

func mounted(p *corev1.Pod, as string) string {
	for i := range p.Spec.Volumes {
		if p.Spec.Volumes[i].Name == as {
			return p.Spec.Volumes[i].PersistentVolumeClaim.ClaimName
		}
	}
	return ""
}

// storageClasses are the same for all of a run.
func storageClasses() []*storagev1.StorageClass {
	late := storagev1.VolumeBindingWaitForFirstConsumer
	of := func(name, provisioner string) *storagev1.StorageClass {
		return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner,
			VolumeBindingMode: &late}
	}
	return []*storagev1.StorageClass{of(classMade, "made.example.com"), of(classByHand, "kubernetes.io/no-provisioner")}
}

// beginStorage makes the claims for one pod, and volumes by hand.
func (l *workload) beginStorage() {
	l.volumes = true
	for i := range 3 {
		name := fmt.Sprint("claim", i)
		l.makeVolume("of-"+name, "", "", nil)
		c := newClaim(name, "", corev1.ReadWriteOncePod)
		c.Spec.VolumeName = "of-" + name
		c.Annotations = map[string]string{bindCompleted: "yes"}
		l.w.api.create(l.w.api.claims, c)
	}
	for i := range 6 {
		l.makeVolume(fmt.Sprint("by-hand-", i), classByHand, fmt.Sprint("n", i), nil)
	}
}

func newClaim(name, class string, mode corev1.PersistentVolumeAccessMode) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	c.Spec.AccessModes, c.Spec.StorageClassName = []corev1.PersistentVolumeAccessMode{mode}, &class
	c.Spec.Resources.Requests = corev1.ResourceList{"storage": resource.MustParse("1Gi")}
	return c
}

// makeVolume makes a volume that can be used on a node, or with "" anywhere.
func (l *workload) makeVolume(name, class, node string, of *corev1.PersistentVolumeClaim) {
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
	v.Spec.StorageClassName, v.Spec.AccessModes = class, []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	v.Spec.Capacity, v.Status.Phase = corev1.ResourceList{"storage": resource.MustParse("1Gi")}, corev1.VolumeAvailable
	if node != "" {
		on := corev1.NodeSelectorRequirement{Key: api.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{
			node}}
		v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{on}}}}}
	}
	if of != nil {
		v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: of.Namespace, Name: of.Name, UID: of.UID}
	}
	l.w.api.create(l.w.api.volumes, v)
}

// makeClaim makes a pod's own claim, mostly before the pod. What is left of a namesake it takes over, or makes anew.
func (l *workload) makeClaim(pod string) (name string) {
	w := l.w
	name = "own-" + pod
	die := w.newDie("claim of " + pod + " " + w.now.Sub(w.start).String())
	if c := w.api.claim(name); c != nil {
		if w.calm || die.below(2) == 0 {
			return name
		}
		w.count("claims made anew")
		l.remade[name] = w.now
		w.api.remove(w.api.claims, w.api.claims.objects[nameOf(c)])
		for _, v := range w.api.volumes.names() {
			if o := w.api.volumes.objects[v]; ref(o) != nil && ref(o).UID == c.UID {
				w.api.remove(w.api.volumes, o)
			}
		}
	}
	class := classMade
	if die.below(3) == 0 {
		class = classByHand
	}
	create := func() {
		if w.api.claim(name) == nil {
			w.api.create(w.api.claims, newClaim(name, class, corev1.ReadWriteOnce))
			if w.calm && class == classByHand {
				l.supply()
			}
		}
	}
	if late := time.Duration(die.below(2000)) * time.Millisecond; die.below(4) == 0 {
		w.after(late, create)
	} else {
		create()
	}
	return name
}

// supply makes one volume by hand that can be used anywhere.
func (l *workload) supply() {
	l.made++
	l.makeVolume(fmt.Sprint("by-hand-more-", l.made), classByHand, "", nil)
}

func ref(o object) *corev1.ObjectReference { return o.Object.(*corev1.PersistentVolume).Spec.ClaimRef }

// claim returns a claim, and volumeNamed a volume; nil when there is none.
func (a *apiServer) claim(name string) *corev1.PersistentVolumeClaim {
	c, _ := a.claims.objects["ns/"+name].Object.(*corev1.PersistentVolumeClaim)
	return c
}

func (a *apiServer) volumeNamed(name string) *corev1.PersistentVolume {
	v, _ := a.volumes.objects[name].Object.(*corev1.PersistentVolume)
	return v
}

// volumeOf is the volume that a claim is bound to, nil for none.
func (a *apiServer) volumeOf(claim string) *corev1.PersistentVolume {
	c := a.claim(claim)
	if c == nil || c.Annotations[bindCompleted] == "" {
		return nil
	}
	return a.volumeNamed(c.Spec.VolumeName)
}

// nodeOf is the only node on which a volume can be used, "" for any.
func nodeOf(v *corev1.PersistentVolume) string {
	if v.Spec.NodeAffinity == nil {
		return ""
	}
	return v.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values[0]
}

// claimChanged has the provisioner see a claim that is to have a volume for a node.
func (l *workload) claimChanged(c *corev1.PersistentVolumeClaim) {
	w, node := l.w, c.Annotations[volume.SelectedNode]
	if node == "" || c.Spec.VolumeName != "" || l.provisioning[c.UID] {
		return
	}
	if l.provisioning == nil {
		l.provisioning = map[types.UID]bool{}
	}
	l.provisioning[c.UID] = true
	l.made++
	number := l.made
	die := w.newDie(fmt.Sprint("volume ", number))
	after := time.Duration(die.below(3000)) * time.Millisecond
	if die.below(12) == 0 {
		after *= 10
	}
	fails, goesOn := die.below(5) == 0, die.below(2) == 0
	w.count("volumes asked for")
	w.after(after, func() {
		delete(l.provisioning, c.UID)
		now := w.api.claim(c.Name)
		switch {
		case now == nil || now.UID != c.UID || now.Spec.VolumeName != "":
		case now.Annotations[volume.SelectedNode] != node && !goesOn:
			w.count("volumes taken back")
			l.claimChanged(now)
		case fails && !w.calm:
			w.count("volumes given up")
			w.api.editClaim(now, func(c *corev1.PersistentVolumeClaim) { delete(c.Annotations, volume.SelectedNode) })
		default:
			if w.calm {
				node = ""
			}
			w.count("volumes provisioned")
			l.makeVolume(fmt.Sprint("made-", number), classMade, node, now)
		}
	})
}

// volumeChanged has the volume controller see a volume that names a claim: it binds the claim to it a little later.
func (l *workload) volumeChanged(v *corev1.PersistentVolume) {
	of := v.Spec.ClaimRef
	if of == nil {
		return
	}
	w := l.w
	after := time.Duration(w.newDie("bind "+v.Name).below(500)) * time.Millisecond
	w.after(after, func() {
		c := w.api.claim(of.Name)
		if c == nil || c.UID != of.UID || c.Spec.VolumeName != "" || w.api.volumeNamed(v.Name) == nil {
			return
		}
		w.count("volumes bound")
		w.log("claim %s is bound to volume %s for %q", c.Name, v.Name, nodeOf(v))
		w.api.editClaim(c, func(c *corev1.PersistentVolumeClaim) {
			c.Spec.VolumeName = v.Name
			metav1.SetMetaDataAnnotation(&c.ObjectMeta, bindCompleted, "yes")
		})
	})
}

func (a *apiServer) editClaim(c *corev1.PersistentVolumeClaim, change func(*corev1.PersistentVolumeClaim)) {
	next := *c
	next.Annotations = map[string]string{}
	for k, v := range c.Annotations {
		next.Annotations[k] = v
	}
	change(&next)
	a.put(a.claims, &next)
}

// freeVolumes has volumes be used anywhere, and makes one by hand for each claim that is to have such a one.
func (w *world) freeVolumes() {
	for _, name := range w.api.volumes.names() {
		if v := *w.api.volumeNamed(name); v.Spec.NodeAffinity != nil {
			v.Spec.NodeAffinity = nil
			w.api.put(w.api.volumes, &v)
		}
	}
	for _, name := range w.api.claims.names() {
		c := w.api.claims.objects[name].Object.(*corev1.PersistentVolumeClaim)
		if c.Spec.VolumeName == "" && *c.Spec.StorageClassName == classByHand {
			w.load.supply()
		}
	}
}

// provided judges that a pod is bound where its volume is, and no gang starts before the volumes of its minimum are
// bound.
func (c *check) provided(uid, node, gang string, first bool) {
	w := c.w
	p := w.api.podByUID(uid)
	if p == nil || ownClaim(p) == "" {
		return
	}
	if at, anew := w.load.remade[ownClaim(p)]; anew && w.now.Sub(at) < 3*time.Second {
		return // who bound the pod knew the claim before it, as kube-scheduler would
	}
	if v := w.api.volumeOf(ownClaim(p)); v == nil || nodeOf(v) != "" && nodeOf(v) != node {
		w.fail("V1: pod %s is bound to %s, and its volume is %+v", uid, node, v)
	}
	g := c.gang(gang)
	if !first || g.meddled || g.inherited {
		return
	}
	have := 0
	for row := range g.durable {
		o := w.api.podByUID(row)
		if o == nil || ownClaim(o) == "" || w.api.volumeOf(ownClaim(o)) != nil { // one may go at this moment
			have++
		}
	}
	if have < g.least {
		w.fail("V2: pod %s is the first of gang %s, and %d of %d pods have their volumes", uid, gang, have, g.least)
	}
}

// alreadyUsed judges that nobody uses a claim of a pod that a Binding of ours bound. What others bound lately its
// shard need not have seen.
func (c *check) alreadyUsed(x *shard, uid string) {
	w := c.w
	p := w.api.podByUID(uid)
	if p == nil || claimOf(p) == "" {
		return
	}
	w.count("pods bound with a claim for one pod")
	waiting := slices.ContainsFunc(w.load.pods(ours), func(o *corev1.Pod) bool {
		return o.UID != p.UID && claimOf(o) == claimOf(p) && o.Spec.NodeName == "" && !finished(o)
	})
	if waiting {
		w.count("pods bound with a claim that others wait for")
	}
	for _, o := range w.api.pods.objects {
		other := o.Object.(*corev1.Pod)
		if other.UID == p.UID || claimOf(other) != claimOf(p) || other.Spec.NodeName == "" || finished(other) {
			continue
		}
		seen, shown := x.bound[string(other.UID)]
		if c.bound[string(other.UID)] == "" && (!shown || w.now.Sub(seen) < late) {
			continue
		}
		w.fail("V3: pod %s is bound to %s, and pod %s, which is on %s since %s, uses %s, too", p.UID, p.Spec.NodeName,
			other.UID,
			other.Spec.NodeName, c.since[string(other.UID)].Sub(w.start).Round(time.Millisecond), claimOf(p))
	}
}
