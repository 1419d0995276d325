package audit

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	csitranslation "k8s.io/csi-translation-lib"
	"k8s.io/klog/v2"
)

// Volumes. When the watch shows a Binding of ours, the pod is compared with the pods that have a node at that moment: none of them may use a
// claim of it that is ReadWriteOncePod (AntiAffinity), the volumes of its claims have to be usable on its node (Placement), and the volumes
// of the pods on its node may be no more than their CSI driver allows there (Overcommit). Claims, volumes and CSINodes come from watches of
// their own, so they are looked up a little later. What somebody else did counts only if it was seen long before, as for anti-affinity.
//
// Volumes of in-tree kinds are those of their CSI driver, where the CSINode says that the plugin is migrated there.
//
// Not recounted are volumes that are attached to a node without a pod: shards count these, too, so they only allow less.

// claimed is what is known of a PersistentVolumeClaim.
type claimed struct {
	onePod bool
	volume string // that it is bound to, "" for none
	uid    types.UID
	since  time.Time // it was first seen
}

// stored is what is known of a PersistentVolume.
type stored struct {
	driver, handle string
	nodes          *nodeaffinity.NodeSelector // nil for any
	plugin         string                     // of a volume of an in-tree kind,
	translated     *nodeaffinity.NodeSelector // and its nodes where that is migrated
}

// attachable is how many volumes a node takes by driver, as it said last and before.
type attachable struct {
	since       time.Time
	now, before map[string]int32
	migrated    map[string]bool // the in-tree plugins that are migrated now
}

// volumes is part of Auditor.
type volumes struct {
	claims  map[string]claimed // by namespace/name
	volumes map[string]stored
	limits  map[string]*attachable     // by node
	users   map[string]map[string]*pod // by claim that they name, and UID: pods with a node that have not ended
}

func newVolumes() volumes {
	return volumes{claims: map[string]claimed{}, volumes: map[string]stored{}, limits: map[string]*attachable{}, users: map[string]map[string]*pod{}}
}

// storageEvent takes an event of a claim, a volume or a CSINode.
func (a *Auditor) storageEvent(e Event) {
	s := &a.volumes
	switch e := e.(type) {
	case Listed[*v1.PersistentVolumeClaim]:
		old := s.claims
		s.claims = map[string]claimed{}
		for _, c := range e.Objects {
			a.claimSeen(c, old)
		}
	case Seen[*v1.PersistentVolumeClaim]:
		a.claimSeen(e.Object, s.claims)
	case Gone[*v1.PersistentVolumeClaim]:
		delete(s.claims, e.Object.Namespace+"/"+e.Object.Name)
	case Listed[*v1.PersistentVolume]:
		clear(s.volumes)
		for _, v := range e.Objects {
			a.volumeSeen(v)
		}
	case Seen[*v1.PersistentVolume]:
		a.volumeSeen(e.Object)
	case Gone[*v1.PersistentVolume]:
		delete(s.volumes, e.Object.Name)
	case Listed[*storagev1.CSINode]:
		old := s.limits
		s.limits = map[string]*attachable{}
		for _, n := range e.Objects {
			if was := old[n.Name]; was != nil {
				s.limits[n.Name] = was
			}
			a.csiNodeSeen(n)
		}
	case Seen[*storagev1.CSINode]:
		a.csiNodeSeen(e.Object)
	case Gone[*storagev1.CSINode]:
		delete(s.limits, e.Object.Name)
	}
}

func (a *Auditor) claimSeen(c *v1.PersistentVolumeClaim, before map[string]claimed) {
	now := claimed{onePod: slices.Contains(c.Spec.AccessModes, v1.ReadWriteOncePod), uid: c.UID, since: a.now}
	if was, known := before[c.Namespace+"/"+c.Name]; known && was.uid == c.UID {
		now.since = was.since
	}
	if _, complete := c.Annotations["pv.kubernetes.io/bind-completed"]; complete {
		now.volume = c.Spec.VolumeName
	}
	a.volumes.claims[c.Namespace+"/"+c.Name] = now
}

func (a *Auditor) volumeSeen(v *v1.PersistentVolume) {
	now := stored{}
	if v.Spec.CSI != nil {
		now.driver, now.handle = v.Spec.CSI.Driver, v.Spec.CSI.VolumeHandle
	}
	now.nodes = requiredBy(v)
	if plugin, err := inTree.GetInTreePluginNameFromSpec(v, nil); err == nil && migrates[plugin] {
		if csi, err := inTree.TranslateInTreePVToCSI(klog.Logger{}, v); err == nil {
			now.driver, now.handle, now.plugin, now.translated = csi.Spec.CSI.Driver, csi.Spec.CSI.VolumeHandle, plugin, requiredBy(csi)
		}
	}
	a.volumes.volumes[v.Name] = now
}

var (
	inTree   = csitranslation.New()
	migrates = map[string]bool{"kubernetes.io/aws-ebs": true, "kubernetes.io/azure-disk": true, "kubernetes.io/cinder": true, "kubernetes.io/gce-pd": true, "kubernetes.io/portworx-volume": true}
)

// requiredBy returns the node affinity of a volume; one that cannot be read is not judged.
func requiredBy(v *v1.PersistentVolume) *nodeaffinity.NodeSelector {
	if v.Spec.NodeAffinity == nil || v.Spec.NodeAffinity.Required == nil {
		return nil
	}
	nodes, _ := nodeaffinity.NewNodeSelector(v.Spec.NodeAffinity.Required)
	return nodes
}

// usable reports whether a volume can be used on a node, or could since the time given, or it is not known.
func (a *Auditor) usable(v *stored, node string, since time.Time) bool {
	own, translated := true, false // which of its affinities holds
	if limits := a.volumes.limits[node]; v.plugin != "" && limits != nil {
		translated = limits.migrated[v.plugin]
		own = !translated
		if limits.since.After(since) { // shards may not have seen it
			own, translated = true, true
		}
	}
	return own && (v.nodes == nil || a.allowed(node, v.nodes, since)) || translated && (v.translated == nil || a.allowed(node, v.translated, since))
}

func (a *Auditor) csiNodeSeen(n *storagev1.CSINode) {
	now := &attachable{since: a.now, now: map[string]int32{}, migrated: map[string]bool{}}
	for plugin := range strings.SplitSeq(n.Annotations[v1.MigratedPluginsAnnotationKey], ",") {
		now.migrated[plugin] = true
	}
	for _, d := range n.Spec.Drivers {
		if d.Allocatable != nil && d.Allocatable.Count != nil {
			now.now[d.Name] = *d.Allocatable.Count
		}
	}
	if old := a.volumes.limits[n.Name]; old != nil {
		now.before = old.now
	}
	a.volumes.limits[n.Name] = now
}

// usesOf returns the claims of a pod: those that it names, and those that were made for it.
func usesOf(o *v1.Pod) (named, made []string) {
	for _, v := range o.Spec.Volumes {
		switch {
		case v.PersistentVolumeClaim != nil:
			named = append(named, o.Namespace+"/"+v.PersistentVolumeClaim.ClaimName)
		case v.Ephemeral != nil:
			made = append(made, o.Namespace+"/"+o.Name+"-"+v.Name)
		}
	}
	return named, made
}

func (a *Auditor) useClaims(p *pod, on bool) {
	for _, claim := range p.repulsion.named {
		users := a.volumes.users[claim]
		switch {
		case !on:
			if delete(users, p.uid); len(users) == 0 {
				delete(a.volumes.users, claim)
			}
		case users == nil:
			a.volumes.users[claim] = map[string]*pod{p.uid: p}
		default:
			users[p.uid] = p
		}
	}
}

// neighbour is a pod that has a node when another one gets its own.
type neighbour struct {
	pod *pod
	*repulsion
}

// judgeVolumes looks at the volumes of a pod that just got its node.
func (a *Auditor) judgeVolumes(p *pod) {
	us := p.repulsion
	if len(us.named)+len(us.made) == 0 {
		return
	}
	var rivals, neighbours []neighbour
	claims := map[string]bool{}
	for _, claim := range us.named {
		claims[claim] = true
		for uid, other := range a.volumes.users[claim] {
			if uid != p.uid && !slices.ContainsFunc(rivals, func(b neighbour) bool { return b.pod == other }) {
				rivals = append(rivals, neighbour{other, other.repulsion})
			}
		}
	}
	for _, other := range a.cluster.on[us.node] {
		if len(other.repulsion.named)+len(other.repulsion.made) > 0 {
			neighbours = append(neighbours, neighbour{other, other.repulsion})
		}
	}
	slices.SortFunc(rivals, func(x, y neighbour) int { return strings.Compare(x.name, y.name) })
	version, seen := p.version, a.now
	a.later(lastingKey{Placement, "pod " + p.uid, "volumes"}, 3*a.cfg.Lag, func(time.Time) {
		decided := p.decided
		if decided.After(seen) {
			decided = seen
		}
		if decided.IsZero() || !p.boundByUs(us.node) {
			return
		}
		before := decided.Add(-a.unseen())
		known := func(b neighbour) bool { return b.pod.boundByUs(b.node) || !b.since.After(before) }
		violate := func(kind Kind, object, format string, args ...any) {
			a.violate(Violation{Kind: kind, Object: object, Versions: []string{version}, Revisions: []int64{p.intended}, Message: fmt.Sprintf(format, args...)})
		}
		for _, b := range rivals {
			i := slices.IndexFunc(b.named, func(claim string) bool { return claims[claim] && a.volumes.claims[claim].onePod })
			if i >= 0 && known(b) {
				violate(AntiAffinity, "pod "+p.uid, "%s was bound to node %s, and %s on node %s uses claim %s, too, which is ReadWriteOncePod", us.name, us.node, b.name, b.node, b.named[i])
			}
		}
		for _, claim := range slices.Concat(us.named, us.made) {
			of := a.volumes.claims[claim]
			name := of.volume
			if of.since.After(seen) {
				continue // it was made anew since: the pod had another one
			}
			if v := a.volumes.volumes[name]; name != "" && !a.usable(&v, us.node, before) {
				violate(Placement, "pod "+p.uid, "%s was bound to node %s, where volume %s of its claim %s cannot be used", us.name, us.node, name, claim)
			}
		}
		a.recountVolumes(us, neighbours, known, before, violate)
	})
}

// allowed reports whether a selector matches a node, or did at some moment since the time given, or it is not known.
func (a *Auditor) allowed(name string, nodes *nodeaffinity.NodeSelector, since time.Time) bool {
	n := a.cluster.nodes[name]
	if n == nil || !n.known || len(n.versions) == 0 {
		return true
	}
	for i := len(n.versions) - 1; i >= 0; i-- {
		o := n.versions[i].node
		if nodes.Match(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: o.Name, Labels: o.Labels}}) {
			return true
		}
		if !n.versions[i].from.After(since) {
			return false
		}
	}
	return n.since.After(since)
}

// recountVolumes counts the volumes of the pods that a node had when one more came, by driver and handle.
func (a *Auditor) recountVolumes(us *repulsion, neighbours []neighbour, known func(neighbour) bool, before time.Time, violate func(kind Kind, object, format string, args ...any)) {
	limits := a.volumes.limits[us.node]
	if limits == nil || limits.before == nil && limits.since.After(before) {
		return
	}
	handles := map[string]map[string]bool{}
	count := func(r *repulsion, drivers func(string) bool) {
		for _, claim := range slices.Concat(r.named, r.made) {
			v := a.volumes.volumes[a.volumes.claims[claim].volume]
			if v.driver == "" || !drivers(v.driver) {
				continue
			}
			if handles[v.driver] == nil {
				handles[v.driver] = map[string]bool{}
			}
			handles[v.driver][v.handle] = true
		}
	}
	count(us, func(string) bool { return true })
	for _, b := range neighbours {
		if known(b) {
			count(b.repulsion, func(driver string) bool { return handles[driver] != nil })
		}
	}
	for driver, of := range handles {
		limit, limited := limits.now[driver]
		if limits.since.After(before) { // shards may not have seen it
			old, was := limits.before[driver]
			limit, limited = max(limit, old), limited && was
		}
		if limited && len(of) > int(limit) {
			violate(Overcommit, "node "+us.node+" volumes of "+driver, "%s was bound to node %s, whose pods have %d volumes of driver %s then; it takes %d", us.name, us.node, len(of), driver, limit)
		}
	}
}
