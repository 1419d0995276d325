// Package volume says on which nodes a pod's volumes let it run, and which volume a claim gets that is not bound yet. It follows the rules of
// kube-scheduler's filters VolumeBinding, VolumeZone, VolumeRestrictions and NodeVolumeLimits, and names what it cannot judge: a pod is
// never placed where one of these filters would not let it.
//
// Volumes of in-tree kinds that Kubernetes migrates to CSI, and such disks in a pod, are those of their CSI driver here (see intree.go).
//
// It is pure: what other objects say comes from a Cluster. It keeps of each object what the rules read, in values that can be
// compared, so that a caller can tell which events change nothing.
//
// A claim that is not bound, of a StorageClass with WaitForFirstConsumer, lets its pod run where a volume fits it, or can be provisioned
// (Choose); which volume it gets is decided when the node is (Step).
//
// Refused by name:
//   - claims that are not bound, of a StorageClass with binding mode Immediate: they wait for a volume whatever pods there are;
//   - volumes and disks of in-tree kinds that cannot be translated into those of a CSI driver;
//   - a ReadWriteOncePod claim that another pod uses (Usage). Which of several pods that wait for one gets it is not decided here.
package volume

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"basalt.dev/basalt/api"
)

// Claim is what the rules read of a PersistentVolumeClaim.
type Claim struct {
	Volume   string    // spec.volumeName
	Bound    bool      // the binding to that volume is complete
	Lost     bool      // the volume is gone for good
	Deleting bool      // has a deletion timestamp
	OnePod   bool      // has the access mode ReadWriteOncePod
	Class    string    // name of its StorageClass
	Owner    types.UID // of the object that controls it

	// Of one that is not bound, and names no volume:
	UID      types.UID
	Request  string // what it asks for, as Ask reads it
	Refused  string // why that cannot be served
	Selected string // the node for which its volume is to be provisioned, "" for none
}

// bindCompleted is an annotation of a claim whose binding the volume controller has completed. The phase is a status: it may be behind.
const bindCompleted = "pv.kubernetes.io/bind-completed"

// ReadClaim reduces a claim.
func ReadClaim(c *v1.PersistentVolumeClaim) Claim {
	_, completed := c.Annotations[bindCompleted]
	out := Claim{
		Volume: c.Spec.VolumeName, Bound: completed && c.Spec.VolumeName != "", Lost: c.Status.Phase == v1.ClaimLost,
		Deleting: c.DeletionTimestamp != nil, OnePod: slices.Contains(c.Spec.AccessModes, v1.ReadWriteOncePod),
	}
	if class, ok := c.Annotations[v1.BetaStorageClassAnnotation]; ok {
		out.Class = class
	} else if c.Spec.StorageClassName != nil {
		out.Class = *c.Spec.StorageClassName
	}
	if owner := metav1.GetControllerOfNoCopy(c); owner != nil {
		out.Owner = owner.UID
	}
	if out.Volume == "" && !out.Lost {
		out.UID, out.Selected = c.UID, c.Annotations[SelectedNode]
		if out.Request, out.Refused = request(c); out.Refused != "" {
			out.Selected = ""
		}
	}
	return out
}

// StripClaim keeps what ReadClaim reads.
func StripClaim(c *v1.PersistentVolumeClaim) *v1.PersistentVolumeClaim {
	out := &v1.PersistentVolumeClaim{ObjectMeta: api.StripMeta(&c.ObjectMeta)}
	annotate := func(name, value string) {
		if out.Annotations == nil {
			out.Annotations = map[string]string{}
		}
		out.Annotations[name] = value
	}
	for _, name := range []string{bindCompleted, v1.BetaStorageClassAnnotation} {
		if value, ok := c.Annotations[name]; ok {
			annotate(name, value)
		}
	}
	if owner := metav1.GetControllerOfNoCopy(c); owner != nil {
		out.OwnerReferences = []metav1.OwnerReference{{Controller: owner.Controller, UID: owner.UID}}
	}
	out.Spec.VolumeName, out.Spec.StorageClassName = c.Spec.VolumeName, c.Spec.StorageClassName
	if slices.Contains(c.Spec.AccessModes, v1.ReadWriteOncePod) {
		out.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}
	}
	if c.Status.Phase == v1.ClaimLost {
		out.Status.Phase = v1.ClaimLost
		return out
	}
	if c.Spec.VolumeName != "" {
		return out
	}
	if _, why := request(c); why != "" {
		annotate(refused, why)
		return out
	}
	out.Spec = *requested(c)
	out.Spec.StorageClassName = c.Spec.StorageClassName
	if node := c.Annotations[SelectedNode]; node != "" {
		annotate(SelectedNode, node)
	}
	return out
}

// Volume is what the rules read of a PersistentVolume. It is immutable once made.
type Volume struct {
	Driver  string           // its CSI driver, "" for none
	Handle  string           // of that driver: two objects may stand for one volume
	Nodes   *v1.NodeSelector // required node affinity as the rules understand it; nil for any node
	Plugin  string           // the in-tree plugin whose marks of nodes Nodes names, "" for none
	Zones   [zones][]string  // by index in zoneLabels: the values of which a node's label has to be one; nil for a label that it lacks
	Refused string           // why no pod can use it yet, for users
	offer   *v1.PersistentVolume
	size    int64  // of what it offers, in bytes
	at      site   // where it is offered
	key     string // differs between volumes that differ
	nodes   string // the same for Nodes alone
}

// site is where a volume can be bound to a claim.
type site struct {
	where *v1.NodeSelector // nil for any node
	key   string           // differs between sites that differ
	label string           // see labelOf
}

// zoneLabels are the labels of volumes, and of nodes, that VolumeZone compares. The former two are older names of the latter two.
var zoneLabels = [zones]string{v1.LabelFailureDomainBetaZone, v1.LabelFailureDomainBetaRegion, v1.LabelTopologyZone, v1.LabelTopologyRegion}

const zones = 4

// stripped is written by StripVolume in the place of a node affinity that is beyond the bounds.
const stripped = "scheduling.basalt.dev/node-affinity"

// ReadVolume reduces a volume.
func ReadVolume(v *v1.PersistentVolume) *Volume {
	out := &Volume{}
	excess := excessOf(v)
	if excess != "" {
		v = &v1.PersistentVolume{ObjectMeta: v.ObjectMeta, Spec: v.Spec, Status: v.Status}
		v.Spec.NodeAffinity = nil
	}
	csi, plugin, why := translate(v)
	if out.Refused = cmp.Or(why, excess); why != "" {
		csi = v
	}
	if csi.Spec.CSI != nil {
		out.Driver, out.Handle = csi.Spec.CSI.Driver, csi.Spec.CSI.VolumeHandle
	}
	if out.Refused == "" {
		out.Refused = out.place(plugin, affinityOf(csi), affinityOf(v))
	}
	for i, label := range zoneLabels {
		if value, ok := v.Labels[label]; ok {
			out.Zones[i] = zonesOf(value)
		}
	}
	out.key = fmt.Sprintf("%q %q %q %q %q %q", out.Driver, out.Handle, out.Refused, out.Zones, out.nodes, out.at.key)
	if out.offer = offer(v); out.offer != nil {
		if b, err := out.offer.Marshal(); err == nil {
			out.key += string(b)
			q := out.offer.Spec.Capacity[v1.ResourceStorage]
			out.size = q.Value()
		} else {
			out.offer = nil
		}
	}
	return out
}

// affinityOf returns the required node affinity of a volume, as the rules understand it.
func affinityOf(v *v1.PersistentVolume) *v1.NodeSelector {
	if v.Spec.NodeAffinity == nil {
		return nil
	}
	return withoutFields(v.Spec.NodeAffinity.Required)
}

// place takes where a volume can be used: by its node affinity as it was translated where its plugin is migrated, and as it is elsewhere. It
// says why that cannot be served.
//
// Until it is bound kube-scheduler looks at the affinity as it is, on all nodes. But if it could not be used once it is bound, its pod would
// have to go elsewhere. So it is offered where both match.
func (v *Volume) place(plugin string, translated, own *v1.NodeSelector) (why string) {
	for _, s := range []*v1.NodeSelector{translated, own} {
		if _, err := marshal(s); err != nil {
			return "its node affinity cannot be read: " + err.Error()
		}
	}
	v.Nodes = own
	v.nodes = encode(own)
	v.at = site{own, v.nodes, labelOf(own)}
	if plugin == "" || encode(translated) == v.nodes {
		return ""
	}
	nodes, ok := marked(plugin, translated, own)
	both, fits := api.AllOf(own, nodes)
	if !ok || !fits {
		v.Nodes, v.nodes, v.at = nil, "", site{}
		return fmt.Sprintf("its node affinity, translated for its CSI driver, has more than %d entries", api.MaxConstraintEntries)
	}
	v.Plugin, v.Nodes, v.nodes = plugin, nodes, encode(nodes)
	v.at.where, v.at.key = both, encode(both)
	return ""
}

// Equal reports whether the rules cannot tell two volumes apart.
func (v *Volume) Equal(o *Volume) bool { return v.key == o.key }

// excessOf says which bound the node affinity of a volume exceeds.
func excessOf(v *v1.PersistentVolume) string {
	if v.Status.Reason == stripped {
		return v.Status.Message
	}
	if v.Spec.NodeAffinity == nil || v.Spec.NodeAffinity.Required == nil {
		return ""
	}
	if _, ok := api.AllOf(v.Spec.NodeAffinity.Required); !ok {
		return fmt.Sprintf("its node affinity has more than %d entries", api.MaxConstraintEntries)
	}
	if n := v.Spec.NodeAffinity.Required.Size(); n > api.MaxConstraintBytes {
		return fmt.Sprintf("its node affinity has %d bytes, the limit is %d", n, api.MaxConstraintBytes)
	}
	return ""
}

// StripVolume keeps what ReadVolume reads.
func StripVolume(v *v1.PersistentVolume) *v1.PersistentVolume {
	out := &v1.PersistentVolume{ObjectMeta: api.StripMeta(&v.ObjectMeta, zoneLabels[:]...)}
	if o := offer(v); o != nil {
		out.Spec, out.Status.Phase = o.Spec, o.Status.Phase // where a class of an annotation is in the spec
		if o.Labels != nil {
			out.Labels = o.Labels
		}
	}
	if out.Spec.NodeAffinity = v.Spec.NodeAffinity; v.Spec.NodeAffinity != nil {
		if excess := excessOf(v); excess != "" {
			out.Spec.NodeAffinity, out.Status.Reason, out.Status.Message = nil, stripped, excess
		}
	}
	if v.Spec.CSI != nil {
		out.Spec.CSI = &v1.CSIPersistentVolumeSource{Driver: v.Spec.CSI.Driver, VolumeHandle: v.Spec.CSI.VolumeHandle}
		return out
	}
	out.Spec.PersistentVolumeSource = stripSource(&v.Spec.PersistentVolumeSource)
	return out
}

// withoutFields makes of a volume's node affinity what it means for a pod's. kube-scheduler compares it with the labels of a node
// alone: fields are not looked at, but a term whose fields cannot be parsed matches nothing.
func withoutFields(s *v1.NodeSelector) *v1.NodeSelector {
	if s == nil {
		return nil
	}
	out := &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{}}
	for _, t := range s.NodeSelectorTerms {
		if len(t.MatchFields) > 0 {
			if _, err := nodeaffinity.NewNodeSelector(&v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchFields: t.MatchFields}}}); err != nil {
				continue
			}
			if len(t.MatchExpressions) == 0 {
				return nil // matches every node
			}
		}
		out.NodeSelectorTerms = append(out.NodeSelectorTerms, v1.NodeSelectorTerm{MatchExpressions: t.MatchExpressions})
	}
	return out
}

// zonesOf reads a label's value: zones separated by "__". A value with an empty part is as good as none, and a part that no label of
// a node can have matches none.
func zonesOf(value string) []string {
	out := []string{}
	for part := range strings.SplitSeq(value, "__") {
		if part = strings.TrimSpace(part); part == "" {
			return nil
		}
		if len(validation.IsValidLabelValue(part)) == 0 {
			out = append(out, part)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// zoneSelector is the selector of nodes that are in the zones of some volumes: for each label of one of them the node has that label,
// or else the newer one of the same meaning, with one of its values. A node with none of the four labels may be anywhere.
func zoneSelector(all [zones][]string) *v1.NodeSelector {
	nowhere := v1.NodeSelectorTerm{}
	product := []v1.NodeSelectorTerm{{}}
	for i, values := range all {
		nowhere.MatchExpressions = append(nowhere.MatchExpressions, v1.NodeSelectorRequirement{Key: zoneLabels[i], Operator: v1.NodeSelectorOpDoesNotExist})
		if values == nil {
			continue
		}
		var ways [][]v1.NodeSelectorRequirement
		if len(values) > 0 {
			ways = [][]v1.NodeSelectorRequirement{{{Key: zoneLabels[i], Operator: v1.NodeSelectorOpIn, Values: values}}}
			if newer := i + 2; newer < zones {
				ways = append(ways, []v1.NodeSelectorRequirement{{Key: zoneLabels[i], Operator: v1.NodeSelectorOpDoesNotExist},
					{Key: zoneLabels[newer], Operator: v1.NodeSelectorOpIn, Values: values}})
			}
		}
		var next []v1.NodeSelectorTerm
		for _, t := range product {
			for _, way := range ways {
				next = append(next, v1.NodeSelectorTerm{MatchExpressions: append(slices.Clone(t.MatchExpressions), way...)})
			}
		}
		product = next
	}
	return &v1.NodeSelector{NodeSelectorTerms: append([]v1.NodeSelectorTerm{nowhere}, product...)}
}

// Mode says when volumes of a StorageClass are bound.
type Mode uint8

const (
	Immediate Mode = iota // as soon as there is a claim
	Late                  // WaitForFirstConsumer: once a pod that uses the claim is to be placed
)
