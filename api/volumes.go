package api

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// Reach is where the volumes of a pod let it run.
type Reach struct {
	Where   []*v1.NodeSelector // all of them have to match a node
	Attach  Resources          // how many of them have to be attached, by CSI driver
	OnePod  []string           // claims of them that one pod at a time may use (ReadWriteOncePod)
	Unbound bool               // some are bound once the node is decided, and before the pod is
	Scarce  []ScarceClaim      // claims of them that need volumes which are there already
	Tied    Tie
	Part    bool   // Where has a part of the nodes only, and will have another one in a while
	Note    string // what keeps the pod to some nodes for now, for its user
}

// ScarceClaim is a claim that is not bound, of a StorageClass that provisions no volumes: it needs one that is there. Where a pod can run is
// in its class; whether there are enough volumes for several pods is not, and decides whether they can start together.
type ScarceClaim struct {
	Claim string // its name, in the namespace of the pod
	Class string // its StorageClass
	Asks  string // equal for claims of a class that ask for the same, and may have the same volumes
	Free  int    // volumes that suit it, and are neither bound nor kept for a claim
}

// VolumesOf is the resource that stands for attached volumes of a CSI driver, where they are counted beside others. No pod can request it by
// this name.
func VolumesOf(driver string) string { return attachPrefix + driver }

// VolumeDriver is the reverse of VolumesOf, "" for any other resource.
func VolumeDriver(resource string) string {
	driver, is := strings.CutPrefix(resource, attachPrefix)
	if !is {
		return ""
	}
	return driver
}

const attachPrefix = "volumes of "

// Room returns all that a pod of the class takes of a node: its requests, and places for its volumes.
func (c *Class) Room() Resources {
	if len(c.Attach) == 0 {
		return c.Requests
	}
	volumes := make(Resources, len(c.Attach))
	for i, a := range c.Attach {
		volumes[i] = Amount{VolumesOf(a.Resource), a.Value}
	}
	return c.Requests.Add(volumes)
}

// Tie is how much the volumes of a pod restrict where it can run. Of a gang, those that can go to few nodes are placed first.
type Tie uint8

const (
	Untied Tie = iota
	ToSome     // to nodes where volumes can be had
	ToOne      // to where a volume is, or is being made
)

// ClaimOf names the PersistentVolumeClaim of a pod's volume, "" for none.
func ClaimOf(p *v1.Pod, v *v1.Volume) string {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil:
		return p.Name + "-" + v.Name
	}
	return ""
}

// namedClaims returns the claims that a pod names, each once.
func namedClaims(p *v1.Pod) (names []string) {
	for i := range p.Spec.Volumes {
		if c := p.Spec.Volumes[i].PersistentVolumeClaim; c != nil && !slices.Contains(names, c.ClaimName) {
			names = append(names, c.ClaimName)
		}
	}
	return names
}

// onePodTerms are the anti-affinity terms that stand for ReadWriteOncePod claims: two pods that use one exclude each other, wherever they are.
// So these terms have no topology key, and the claim in the place of label keys. It is an excess if they have too many bytes.
func onePodTerms(namespace string, claims []string) (terms []v1.PodAffinityTerm, excess string) {
	bytes := 0
	for _, name := range claims {
		t := v1.PodAffinityTerm{Namespaces: []string{namespace}, MatchLabelKeys: []string{name}}
		if bytes += t.Size(); bytes > maxRepelBytes {
			return nil, fmt.Sprintf("spec.volumes: the names of ReadWriteOncePod claims have more bytes than the limit of %d", maxRepelBytes)
		}
		terms = append(terms, t)
	}
	return terms, ""
}

// OnePodClaims returns the ReadWriteOncePod claims of the pods of a class, which are in the pod's namespace.
func OnePodClaims(repels []byte) (claims []string) {
	var a v1.PodAntiAffinity
	if a.Unmarshal(repels) != nil { // a pod of ours with such terms is refused when it is read
		return nil
	}
	for i := range a.RequiredDuringSchedulingIgnoredDuringExecution {
		if t := &a.RequiredDuringSchedulingIgnoredDuringExecution[i]; isOnePod(t) {
			claims = append(claims, t.MatchLabelKeys[0])
		}
	}
	return claims
}

func isOnePod(t *v1.PodAffinityTerm) bool { return t.TopologyKey == "" && len(t.MatchLabelKeys) == 1 }

// counts reports whether a volume may decide where its pod can run: a claim, or a disk that is named in the pod itself.
func counts(v *v1.Volume) bool {
	return v.PersistentVolumeClaim != nil || v.Ephemeral != nil || v.AzureDisk != nil || v.Cinder != nil || v.PortworxVolume != nil || exclusiveDisk(v)
}

// exclusiveDisk reports whether a volume is a disk that two pods on a node cannot always share (kube-scheduler's VolumeRestrictions).
func exclusiveDisk(v *v1.Volume) bool {
	return v.AWSElasticBlockStore != nil || v.GCEPersistentDisk != nil || v.ISCSI != nil || v.RBD != nil
}

// Disk is a disk, or one of the names of one, that a pod names itself and that two pods on a node cannot always share.
type Disk struct {
	ID       string // equal for equal disks
	ReadOnly bool   // who has it so can share it with others who have
}

// DisksOf returns what a volume that a class carries stands for. An image of RBD has a name for each of its monitors.
func DisksOf(v *v1.Volume) (disks []Disk) {
	if d := v.AWSElasticBlockStore; d != nil { // not shared by readers either
		disks = append(disks, Disk{ID: "awsElasticBlockStore " + d.VolumeID})
	}
	if d := v.GCEPersistentDisk; d != nil {
		disks = append(disks, Disk{"gcePersistentDisk " + d.PDName, d.ReadOnly})
	}
	if d := v.ISCSI; d != nil {
		disks = append(disks, Disk{"iscsi " + d.IQN, d.ReadOnly})
	}
	if d := v.RBD; d != nil {
		for _, monitor := range d.CephMonitors {
			disks = append(disks, Disk{fmt.Sprintf("rbd %q %q %q", monitor, d.RBDPool, d.RBDImage), d.ReadOnly})
		}
	}
	return disks
}

// stripDisk keeps what names a disk, and whether it is shared.
func stripDisk(v *v1.Volume) (out v1.VolumeSource) {
	if d := v.AWSElasticBlockStore; d != nil {
		out.AWSElasticBlockStore = &v1.AWSElasticBlockStoreVolumeSource{VolumeID: diskName(d.VolumeID)}
	}
	if d := v.GCEPersistentDisk; d != nil {
		out.GCEPersistentDisk = &v1.GCEPersistentDiskVolumeSource{PDName: diskName(d.PDName), ReadOnly: d.ReadOnly}
	}
	if d := v.ISCSI; d != nil {
		out.ISCSI = &v1.ISCSIVolumeSource{IQN: diskName(d.IQN), ReadOnly: d.ReadOnly}
	}
	if d := v.RBD; d != nil {
		out.RBD = &v1.RBDVolumeSource{RBDPool: diskName(d.RBDPool), RBDImage: diskName(d.RBDImage), ReadOnly: d.ReadOnly}
		for _, monitor := range d.CephMonitors[:min(len(d.CephMonitors), maxMonitors+1)] {
			out.RBD.CephMonitors = append(out.RBD.CephMonitors, diskName(monitor))
		}
	}
	if d := v.AzureDisk; d != nil {
		out.AzureDisk = &v1.AzureDiskVolumeSource{DataDiskURI: diskName(d.DataDiskURI)}
		if d.Kind != nil {
			out.AzureDisk.Kind = new(v1.AzureDataDiskKind(diskName(string(*d.Kind))))
		}
	}
	if d := v.Cinder; d != nil {
		out.Cinder = &v1.CinderVolumeSource{VolumeID: diskName(d.VolumeID)}
	}
	if d := v.PortworxVolume; d != nil {
		out.PortworxVolume = &v1.PortworxVolumeSource{VolumeID: diskName(d.VolumeID)}
	}
	return out
}

// diskName returns what names a disk; its hash if it has excessive length.
func diskName(s string) string {
	if len(s) <= maxDiskName {
		return s
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(s)))
}

// exclusiveDisks keeps of the volumes of a pod the disks that two pods on a node cannot always share.
func exclusiveDisks(volumes []v1.Volume) (out []v1.Volume) {
	for i := range volumes {
		if exclusiveDisk(&volumes[i]) {
			d := stripDisk(&volumes[i])
			out = append(out, v1.Volume{VolumeSource: v1.VolumeSource{AWSElasticBlockStore: d.AWSElasticBlockStore, GCEPersistentDisk: d.GCEPersistentDisk, ISCSI: d.ISCSI, RBD: d.RBD}})
		}
	}
	return out
}

const (
	maxDiskName = 256 // bytes of what names a disk
	maxMonitors = 16  // of a disk of RBD
)

func usesVolumes(volumes []v1.Volume) bool {
	for i := range volumes {
		if counts(&volumes[i]) {
			return true
		}
	}
	return false
}

// unsupportedVolume names the first volume that cannot be served, whatever other objects say.
func unsupportedVolume(volumes []v1.Volume) string {
	n := 0
	for i := range volumes {
		if counts(&volumes[i]) {
			n++
		}
	}
	if n > MaxVolumeClaims {
		return fmt.Sprintf("spec.volumes: more of them are volume claims or disks than the limit of %d", MaxVolumeClaims)
	}
	for i := range volumes {
		if r := volumes[i].RBD; r != nil && len(r.CephMonitors) > maxMonitors {
			return fmt.Sprintf("spec.volumes[%d].rbd.monitors: there are more of them than the limit of %d", i, maxMonitors)
		}
	}
	return ""
}

// confine adds to the constraints of a pod that all of the selectors have to match the node, or says which bound they exceed then. The
// spec may be nil; it is changed.
func confine(spec *v1.PodSpec, where []*v1.NodeSelector) (out *v1.PodSpec, excess string) {
	if spec == nil {
		spec = &v1.PodSpec{}
	}
	var own *v1.NodeSelector
	if spec.Affinity != nil {
		own = spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	if all, ok := AllOf(append([]*v1.NodeSelector{own}, where...)...); !ok {
		excess = fmt.Sprintf("more than %d entries", MaxConstraintEntries)
	} else if all != nil {
		spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: all}}
		excess = checkConstraints(spec)
	}
	if excess != "" {
		return spec, "spec.volumes: with the node affinity of its volumes, the constraints of the pod are too large: " + excess
	}
	return spec, ""
}

// stripVolumes keeps which volumes decide where a pod can run, up to the limit and the first one beyond it.
func stripVolumes(in []v1.Volume) (out []v1.Volume) {
	for i, kept := 0, 0; i < len(in) && kept <= MaxVolumeClaims; i++ {
		v := &in[i]
		if !counts(v) {
			continue
		}
		kept++
		for len(out) < i {
			out = append(out, v1.Volume{})
		}
		o := v1.Volume{Name: v.Name, VolumeSource: stripDisk(v)}
		o.PersistentVolumeClaim = v.PersistentVolumeClaim
		if v.Ephemeral != nil {
			o.Ephemeral = &v1.EphemeralVolumeSource{}
		}
		out = append(out, o)
	}
	return out
}

// GroupOf names the group of pods that start together which a pod belongs to, "" for none.
func GroupOf(p *v1.Pod, rules Rules) string {
	as := Pod{Ours: rules.Ours(p.Spec.SchedulerName)}
	as.readGroup(p, &rules)
	if as.Group == "" {
		return ""
	}
	return as.GroupKind.String() + " " + as.Group
}
