package main

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/csi-translation-lib/plugins"
	"k8s.io/klog/v2"
)

const (
	draResource  = "example.com/dra"
	driver       = "csi.example.com"
	laterDriver  = "late.example.com"
	ebsDriver    = plugins.AWSEBSDriverName
	boundByUs    = "pv.kubernetes.io/bound-by-controller"
	bindComplete = "pv.kubernetes.io/bind-completed"
	selectedNode = "volume.kubernetes.io/selected-node"
)

// storage adds storage classes, volumes, claims, what nodes say of their drivers, and attachments.
func (g *generator) storage() {
	for _, c := range []struct {
		name, provisioner string
		mode              storagev1.VolumeBindingMode
	}{{"now", driver, storagev1.VolumeBindingImmediate}, {"late", driver, storagev1.VolumeBindingWaitForFirstConsumer}, {"static", "kubernetes.io/no-provisioner", storagev1.VolumeBindingWaitForFirstConsumer}} {
		class := &storagev1.StorageClass{ObjectMeta: named(c.name), Provisioner: c.provisioner, VolumeBindingMode: new(c.mode)}
		if g.oneIn(4) {
			class.AllowedTopologies = []v1.TopologySelectorTerm{{MatchLabelExpressions: []v1.TopologySelectorLabelRequirement{{Key: zoneKey, Values: []string{pick(g, "a", "b")}}}}}
		}
		if !g.oneIn(20) {
			g.add(class)
		}
	}
	if g.oneIn(2) {
		d := &storagev1.CSIDriver{ObjectMeta: named(driver)}
		d.Spec.StorageCapacity = new(g.oneIn(3))
		if g.oneIn(3) {
			d.Spec.PreventPodSchedulingIfMissing = new(true)
		}
		g.add(d)
		for i := range g.IntN(3) {
			g.add(&storagev1.CSIStorageCapacity{ObjectMeta: namedIn("default", fmt.Sprintf("capacity-%d", i)), StorageClassName: pick(g, "now", "late"),
				NodeTopology: &metav1.LabelSelector{MatchLabels: map[string]string{zoneKey: pick(g, "a", "b")}}, Capacity: new(quantity(pick(g, "500Mi", "10Gi")))})
		}
	}
	if g.oneIn(4) {
		g.add(&storagev1.CSIDriver{ObjectMeta: named(ebsDriver), Spec: storagev1.CSIDriverSpec{PreventPodSchedulingIfMissing: new(g.oneIn(2)), StorageCapacity: new(g.oneIn(2))}})
	}
	for _, n := range g.c.Nodes {
		for _, key := range []string{plugins.AWSEBSTopologyKey, plugins.GCEPDTopologyKey, plugins.CinderTopologyKey} {
			if !g.oneIn(3) {
				n.Labels[key] = pick(g, "a", "a", "b", "c")
				if zone := n.Labels[zoneKey]; zone != "" && !g.oneIn(3) {
					n.Labels[key] = zone
				}
			}
		}
		if g.oneIn(5) {
			continue
		}
		csi := &storagev1.CSINode{ObjectMeta: named(n.Name)}
		if !g.oneIn(4) {
			csi.Annotations = map[string]string{v1.MigratedPluginsAnnotationKey: pick(g, "", plugins.AWSEBSInTreePluginName, allMigrated, allMigrated, allMigrated, "kubernetes.io/cinder, kubernetes.io/aws-ebs")}
		}
		for _, name := range []string{ebsDriver, plugins.GCEPDDriverName, plugins.AzureDiskDriverName, plugins.CinderDriverName, plugins.PortworxDriverName, plugins.AzureFileDriverName, plugins.VSphereDriverName} {
			if g.oneIn(4) {
				csi.Spec.Drivers = append(csi.Spec.Drivers, storagev1.CSINodeDriver{Name: name, NodeID: n.Name, Allocatable: &storagev1.VolumeNodeResources{Count: new(pick[int32](g, 0, 1, 1, 2))}})
			}
		}
		if !g.oneIn(5) {
			d := storagev1.CSINodeDriver{Name: driver, NodeID: n.Name}
			if g.oneIn(2) {
				d.Allocatable = &storagev1.VolumeNodeResources{Count: new(pick[int32](g, 0, 1, 2))}
			}
			csi.Spec.Drivers = append(csi.Spec.Drivers, d)
		}
		if g.oneIn(2) {
			csi.Spec.Drivers = append(csi.Spec.Drivers, storagev1.CSINodeDriver{Name: laterDriver, NodeID: n.Name})
		}
		g.add(csi)
	}
	g.claim = map[string][]string{}
	for i := range 2 + g.IntN(6) {
		g.volume(i)
	}
	if g.oneIn(2) {
		g.unbound()
	}
	if g.oneIn(2) {
		for i := range g.IntN(4) {
			name := fmt.Sprintf("pv-%d", g.IntN(4))
			g.add(&storagev1.VolumeAttachment{ObjectMeta: named(fmt.Sprintf("attached-%d", i)), Spec: storagev1.VolumeAttachmentSpec{Attacher: g.attacher(name), NodeName: pick(g, g.c.Nodes...).Name,
				Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &name}}, Status: storagev1.VolumeAttachmentStatus{Attached: true}})
		}
	}
}

// attacher returns the driver of a volume.
func (g *generator) attacher(name string) string {
	for _, o := range g.c.Objects {
		if v, is := o.(*v1.PersistentVolume); is && v.Name == name {
			if csi, err := translator.TranslateInTreePVToCSI(klog.Logger{}, v); err == nil {
				v = csi
			}
			if v.Spec.CSI != nil {
				return v.Spec.CSI.Driver
			}
		}
	}
	return driver
}

// allMigrated is what the annotation of a CSINode of a kubelet of today says.
const allMigrated = "kubernetes.io/aws-ebs,kubernetes.io/azure-disk,kubernetes.io/azure-file,kubernetes.io/cinder,kubernetes.io/gce-pd,kubernetes.io/portworx-volume,kubernetes.io/vsphere-volume"

// inTree gives a volume an in-tree kind; the names are those of disks in pods, and handles of CSI volumes.
func (g *generator) inTree(s *v1.PersistentVolumeSource) {
	switch g.IntN(9) {
	case 0, 1, 2:
		s.AWSElasticBlockStore = &v1.AWSElasticBlockStoreVolumeSource{VolumeID: pick(g, "vol-1", "vol-2", "aws://a/vol-1", "aws:///vol-3")}
	case 3, 4:
		s.GCEPersistentDisk = &v1.GCEPersistentDiskVolumeSource{PDName: pick(g, "disk-1", "disk-2")}
	case 5:
		s.Cinder = &v1.CinderPersistentVolumeSource{VolumeID: pick(g, "vol-1", "vol-2")}
	case 6:
		s.AzureDisk = &v1.AzureDiskVolumeSource{DiskName: "disk", DataDiskURI: pick(g, "/disk-1", "/disk-2"), Kind: new(v1.AzureManagedDisk)}
	case 7:
		s.PortworxVolume = &v1.PortworxVolumeSource{VolumeID: pick(g, "vol-1", "vol-2")}
	default:
		if g.oneIn(2) {
			s.AzureFile = &v1.AzureFilePersistentVolumeSource{SecretName: "s", ShareName: pick(g, "vol-1", "vol-2")}
		} else {
			s.VsphereVolume = &v1.VsphereVirtualDiskVolumeSource{VolumePath: pick(g, "vol-1", "vol-2"), StoragePolicyName: pick(g, "", "gold")}
		}
	}
	if g.oneIn(30) { // what cannot be translated
		switch {
		case s.AWSElasticBlockStore != nil:
			s.AWSElasticBlockStore.VolumeID = "aws://a/disk-1"
		case s.AzureDisk != nil:
			s.AzureDisk.Kind = new(v1.AzureSharedBlobDisk)
		}
	}
}

// volume adds a volume, a claim, or both, which may be bound to each other.
func (g *generator) volume(i int) {
	namespace := pick(g, g.space...)
	class := pick(g, "now", "late", "static")
	mode := pick(g, v1.ReadWriteOnce, v1.ReadWriteOnce, v1.ReadWriteMany, v1.ReadWriteOncePod)
	size := quantity(pick(g, "1Gi", "5Gi"))
	pv := &v1.PersistentVolume{ObjectMeta: named(fmt.Sprintf("pv-%d", i))}
	pv.Spec = v1.PersistentVolumeSpec{AccessModes: []v1.PersistentVolumeAccessMode{mode}, Capacity: v1.ResourceList{"storage": size}, StorageClassName: class,
		PersistentVolumeReclaimPolicy: v1.PersistentVolumeReclaimRetain}
	switch g.IntN(8) {
	case 0, 3:
		g.inTree(&pv.Spec.PersistentVolumeSource)
	case 4:
		pv.Spec.CSI = &v1.CSIPersistentVolumeSource{Driver: ebsDriver, VolumeHandle: pick(g, "vol-1", "vol-2", "vol-3")}
	case 1:
		pv.Spec.Local = &v1.LocalVolumeSource{Path: "/mnt"}
	case 2:
		pv.Spec.NFS = &v1.NFSVolumeSource{Server: "nfs", Path: "/"}
	default:
		pv.Spec.CSI = &v1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: fmt.Sprintf("handle-%d", g.IntN(6))}
	}
	if g.oneIn(3) {
		pv.Labels = map[string]string{pick(g, zoneKey, v1.LabelFailureDomainBetaZone, v1.LabelTopologyRegion): pick(g, "a", "b", "a__b", "r1")}
	}
	if pv.Spec.Local != nil || g.oneIn(4) {
		pv.Spec.NodeAffinity = &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: []v1.NodeSelectorRequirement{
			{Key: pick(g, zoneKey, zoneKey, hostnameKey, v1.LabelFailureDomainBetaZone), Operator: v1.NodeSelectorOpIn, Values: []string{pick(g, "a", "b", "n1"), pick(g, "c", "n2")}}}}}}}
		if g.oneIn(3) {
			terms := &pv.Spec.NodeAffinity.Required.NodeSelectorTerms
			*terms = append(*terms, v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{{Key: pick(g, zoneKey, v1.LabelFailureDomainBetaRegion, hostnameKey), Operator: pick(g, v1.NodeSelectorOpExists, v1.NodeSelectorOpDoesNotExist)}}})
		}
	}
	pvc := &v1.PersistentVolumeClaim{ObjectMeta: namedIn(namespace, fmt.Sprintf("claim-%d", i))}
	pvc.Spec = v1.PersistentVolumeClaimSpec{AccessModes: []v1.PersistentVolumeAccessMode{mode}, StorageClassName: &class, Resources: v1.VolumeResourceRequirements{Requests: v1.ResourceList{"storage": size}}}
	pvc.Status.Phase = v1.ClaimPending
	pvc.Annotations = map[string]string{}
	g.claim[namespace] = append(g.claim[namespace], pvc.Name)
	switch g.IntN(10) {
	case 0: // unbound, with a volume that may match it
		pv.Status.Phase = v1.VolumeAvailable
		if g.oneIn(4) {
			pvc.Annotations[selectedNode] = pick(g, g.c.Nodes...).Name
		}
	case 1: // unbound, without one
		pv = nil
	case 2: // names a volume, and is not bound to it
		pvc.Spec.VolumeName = pv.Name
	case 3: // says that it is bound, without the annotation
		pvc.Spec.VolumeName, pvc.Status.Phase = pv.Name, v1.ClaimBound
	case 4: // lost its volume
		pvc.Spec.VolumeName, pvc.Status.Phase = pv.Name, v1.ClaimLost
		pvc.Annotations[bindComplete] = "yes"
		pv = nil
	default:
		pvc.Spec.VolumeName, pvc.Status.Phase = pv.Name, v1.ClaimBound
		if g.oneIn(12) {
			pvc.Status.Phase = v1.ClaimPending // the controller has not written the status yet
		}
		pvc.Annotations[bindComplete] = "yes"
		pv.Spec.ClaimRef = &v1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: namespace, Name: pvc.Name, UID: pvc.UID}
		pv.Annotations = map[string]string{boundByUs: "yes"}
		pv.Status.Phase = v1.VolumeBound
	}
	if g.oneIn(15) {
		pvc.DeletionTimestamp, pvc.Finalizers = &started, []string{"kubernetes.io/pvc-protection"}
	}
	if pv != nil && !g.oneIn(20) {
		g.add(pv)
	}
	if !g.oneIn(20) {
		g.add(pvc)
	}
}

// unbound adds claims that wait for the node of their pod, volumes that may suit them, and capacity for others.
func (g *generator) unbound() {
	class := &storagev1.StorageClass{ObjectMeta: named("later"), Provisioner: pick(g, laterDriver, laterDriver, "kubernetes.io/no-provisioner", "kubernetes.io/cinder", "kubernetes.io/aws-ebs", "kubernetes.io/azure-file"), VolumeBindingMode: new(storagev1.VolumeBindingWaitForFirstConsumer)}
	zones := func() []string { return []string{pick(g, "a", "b"), pick(g, "b", "c")} }
	for range g.IntN(3) {
		t := v1.TopologySelectorTerm{}
		for range g.IntN(3) {
			t.MatchLabelExpressions = append(t.MatchLabelExpressions, v1.TopologySelectorLabelRequirement{Key: pick(g, zoneKey, hostnameKey, v1.LabelTopologyRegion), Values: append(zones(), g.c.Nodes[0].Name)})
		}
		class.AllowedTopologies = append(class.AllowedTopologies, t)
	}
	g.add(class)
	if g.oneIn(2) {
		g.add(&storagev1.CSIDriver{ObjectMeta: named(laterDriver), Spec: storagev1.CSIDriverSpec{StorageCapacity: new(!g.oneIn(3)), PreventPodSchedulingIfMissing: new(g.oneIn(3))}})
	}
	for i := range g.IntN(4) {
		o := &storagev1.CSIStorageCapacity{ObjectMeta: namedIn("default", fmt.Sprintf("later-%d", i)), StorageClassName: pick(g, "later", "later", "late"), Capacity: new(quantity(pick(g, "500Mi", "2Gi", "10Gi")))}
		switch g.IntN(5) {
		case 0:
			o.NodeTopology = &metav1.LabelSelector{}
		case 1:
			o.NodeTopology = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: pick(g, zoneKey, hostnameKey), Operator: pick(g, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpIn), Values: zones()}, {Key: zoneKey, Operator: metav1.LabelSelectorOpExists}}}
		case 2: // nowhere
		default:
			o.NodeTopology = &metav1.LabelSelector{MatchLabels: map[string]string{zoneKey: pick(g, "a", "b", "c")}}
		}
		if g.oneIn(3) {
			o.MaximumVolumeSize = new(quantity(pick(g, "1Gi", "5Gi")))
		}
		g.add(o)
	}
	var names []string
	namespace := pick(g, g.space...)
	for i := range 1 + g.IntN(3) {
		c := &v1.PersistentVolumeClaim{ObjectMeta: namedIn(namespace, fmt.Sprintf("later-%d", i))}
		c.Spec = v1.PersistentVolumeClaimSpec{AccessModes: []v1.PersistentVolumeAccessMode{pick(g, v1.ReadWriteOnce, v1.ReadWriteMany)}, StorageClassName: new("later"),
			Resources: v1.VolumeResourceRequirements{Requests: v1.ResourceList{"storage": quantity(pick(g, "1Gi", "2Gi", "5Gi"))}}}
		c.Status.Phase = v1.ClaimPending
		if g.oneIn(3) {
			c.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"disk": "fast"}}
		}
		if g.oneIn(6) {
			c.Spec.VolumeMode = new(v1.PersistentVolumeBlock)
		}
		if g.oneIn(6) {
			c.Spec.VolumeAttributesClassName = new("gold")
		}
		if g.oneIn(6) {
			c.Annotations = map[string]string{selectedNode: pick(g, g.c.Nodes...).Name}
		}
		names = append(names, c.Name)
		g.claim[namespace] = append(g.claim[namespace], c.Name, c.Name)
		g.add(c)
	}
	local := g.oneIn(2) // each volume on one node
	for i := range g.IntN(6) {
		v := &v1.PersistentVolume{ObjectMeta: named(fmt.Sprintf("later-%d", i)), Status: v1.PersistentVolumeStatus{Phase: pick(g, v1.VolumeAvailable, v1.VolumeAvailable, v1.VolumeAvailable, v1.VolumePending, v1.VolumeReleased)}}
		v.Spec = v1.PersistentVolumeSpec{AccessModes: []v1.PersistentVolumeAccessMode{pick(g, v1.ReadWriteOnce, v1.ReadWriteMany), v1.ReadOnlyMany}, StorageClassName: pick(g, "later", "later", "later", "static"),
			Capacity: v1.ResourceList{"storage": quantity(pick(g, "1Gi", "2Gi", "10Gi"))}, PersistentVolumeSource: v1.PersistentVolumeSource{NFS: &v1.NFSVolumeSource{Server: "nfs", Path: "/"}}}
		if g.oneIn(6) {
			v.Spec.PersistentVolumeSource = v1.PersistentVolumeSource{}
			g.inTree(&v.Spec.PersistentVolumeSource)
		}
		if g.oneIn(2) {
			v.Labels = map[string]string{"disk": pick(g, "fast", "slow")}
		}
		switch {
		case local:
			v.Spec.NodeAffinity = &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: []v1.NodeSelectorRequirement{
				{Key: hostnameKey, Operator: v1.NodeSelectorOpIn, Values: []string{pick(g, g.c.Nodes[:min(2, len(g.c.Nodes))]...).Name}}}}}}}
		case !g.oneIn(4):
			v.Spec.NodeAffinity = &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{}}
			for range 1 + g.IntN(2) {
				v.Spec.NodeAffinity.Required.NodeSelectorTerms = append(v.Spec.NodeAffinity.Required.NodeSelectorTerms, v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{
					{Key: pick(g, zoneKey, hostnameKey), Operator: pick(g, v1.NodeSelectorOpIn, v1.NodeSelectorOpIn, v1.NodeSelectorOpNotIn), Values: append(zones(), pick(g, g.c.Nodes...).Name)}}})
			}
		}
		if g.oneIn(6) {
			v.Spec.VolumeMode = new(v1.PersistentVolumeBlock)
		}
		if g.oneIn(6) {
			v.Spec.VolumeAttributesClassName = new("gold")
		}
		if g.oneIn(5) {
			v.Spec.ClaimRef = &v1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: namespace, Name: pick(g, names...)}
		}
		g.add(v)
	}
}

// podVolumes gives a pod claims of its namespace and disks.
func (g *generator) podVolumes(p *v1.Pod) {
	for i := range 1 + g.IntN(2) {
		v := v1.Volume{Name: fmt.Sprintf("v%d", i)}
		claims := g.claim[p.Namespace]
		switch k := g.IntN(13); {
		case k == 12:
			switch g.IntN(5) {
			case 0:
				v.Cinder = &v1.CinderVolumeSource{VolumeID: pick(g, "vol-1", "vol-2")}
			case 1:
				v.AzureDisk = &v1.AzureDiskVolumeSource{DiskName: "disk", DataDiskURI: pick(g, "/disk-1", "/disk-2")}
				if !g.oneIn(10) { // the API server makes it a shared one else
					v.AzureDisk.Kind = new(v1.AzureManagedDisk)
				}
			case 2:
				v.PortworxVolume = &v1.PortworxVolumeSource{VolumeID: pick(g, "vol-1", "vol-2")}
			case 3:
				v.AzureFile = &v1.AzureFileVolumeSource{SecretName: "s", ShareName: "vol-1"}
			default:
				v.VsphereVolume = &v1.VsphereVirtualDiskVolumeSource{VolumePath: "vol-1", StoragePolicyName: "gold"}
			}
		case k == 0:
			v.GCEPersistentDisk = &v1.GCEPersistentDiskVolumeSource{PDName: pick(g, "disk-1", "disk-2"), ReadOnly: g.oneIn(2)}
		case k == 1:
			v.AWSElasticBlockStore = &v1.AWSElasticBlockStoreVolumeSource{VolumeID: pick(g, "vol-1", "vol-2", "vol-2", "aws://a/vol-1"), ReadOnly: g.oneIn(2)}
			if g.oneIn(40) {
				v.AWSElasticBlockStore.VolumeID = "aws://a"
			}
		case k == 2:
			v.ISCSI = &v1.ISCSIVolumeSource{TargetPortal: "portal", IQN: pick(g, "iqn-1", "iqn-2"), ReadOnly: g.oneIn(2)}
		case k == 3:
			v.RBD = &v1.RBDVolumeSource{CephMonitors: some(g, "m1", "m2", "m3"), RBDImage: pick(g, "i1", "i2"), RBDPool: "rbd", ReadOnly: g.oneIn(2)}
		case k == 4:
			v.CSI = &v1.CSIVolumeSource{Driver: driver}
		case k == 5:
			v.Ephemeral = &v1.EphemeralVolumeSource{VolumeClaimTemplate: &v1.PersistentVolumeClaimTemplate{Spec: v1.PersistentVolumeClaimSpec{
				AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}, StorageClassName: new(pick(g, "now", "late")), Resources: v1.VolumeResourceRequirements{Requests: v1.ResourceList{"storage": quantity("1Gi")}}}}}
			g.ephemeral(p, v.Name)
		case k == 6 || len(claims) == 0:
			v.EmptyDir = &v1.EmptyDirVolumeSource{}
		default:
			v.PersistentVolumeClaim = &v1.PersistentVolumeClaimVolumeSource{ClaimName: pick(g, claims...), ReadOnly: g.oneIn(4)}
		}
		p.Spec.Volumes = append(p.Spec.Volumes, v)
	}
}

// ephemeral adds the claim of an ephemeral volume, or one of that name which is not the pod's, or none.
func (g *generator) ephemeral(p *v1.Pod, volume string) {
	if g.oneIn(4) {
		return
	}
	name := p.Name + "-" + volume
	pvc := &v1.PersistentVolumeClaim{ObjectMeta: namedIn(p.Namespace, name)}
	if !g.oneIn(4) {
		pvc.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: p.UID, Controller: new(true)}}
	}
	pvc.Spec = v1.PersistentVolumeClaimSpec{AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}, StorageClassName: new("now"),
		Resources: v1.VolumeResourceRequirements{Requests: v1.ResourceList{"storage": quantity("1Gi")}}, VolumeName: "pv-of-" + name}
	pvc.Annotations = map[string]string{bindComplete: "yes"}
	pvc.Status.Phase = v1.ClaimBound
	pv := &v1.PersistentVolume{ObjectMeta: named("pv-of-" + name)}
	pv.Spec = v1.PersistentVolumeSpec{AccessModes: pvc.Spec.AccessModes, Capacity: v1.ResourceList{"storage": quantity("1Gi")}, StorageClassName: "now",
		PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: "handle-of-" + name}},
		ClaimRef:               &v1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: p.Namespace, Name: name, UID: pvc.UID}}
	pv.Status.Phase = v1.VolumeBound
	g.add(pv)
	g.add(pvc)
}

// devices adds a class of devices that stands for an extended resource, slices of some nodes, and a claim.
func (g *generator) devices() {
	g.add(&resourceapi.DeviceClass{ObjectMeta: named("dra"), Spec: resourceapi.DeviceClassSpec{ExtendedResourceName: new(draResource)}})
	for _, n := range g.c.Nodes {
		if g.oneIn(2) {
			continue
		}
		slice := &resourceapi.ResourceSlice{ObjectMeta: named("slice-" + n.Name)}
		slice.Spec = resourceapi.ResourceSliceSpec{Driver: "dra.example.com", NodeName: new(n.Name), Pool: resourceapi.ResourcePool{Name: n.Name, ResourceSliceCount: 1}}
		for i := range 1 + g.IntN(2) {
			slice.Spec.Devices = append(slice.Spec.Devices, resourceapi.Device{Name: fmt.Sprintf("d%d", i)})
		}
		g.add(slice)
	}
	for _, namespace := range g.space {
		g.add(&resourceapi.ResourceClaim{ObjectMeta: namedIn(namespace, "claim"), Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{
			{Name: "r", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: "dra", AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1}}}}}})
	}
}
