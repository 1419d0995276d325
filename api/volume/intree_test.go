package volume

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api"
)

// What counts for a driver, and as which volume: a volume of an in-tree kind is the same as one of CSI, or a disk, that names it.
func TestTranslated(t *testing.T) {
	for _, c := range []struct {
		source         v1.PersistentVolumeSource
		zones          string
		driver, handle string
	}{
		{v1.PersistentVolumeSource{AWSElasticBlockStore: &v1.AWSElasticBlockStoreVolumeSource{VolumeID: "aws://us-east-1a/vol-1"}}, "a", "ebs.csi.aws.com", "vol-1"},
		{v1.PersistentVolumeSource{AWSElasticBlockStore: &v1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-2"}}, "", "ebs.csi.aws.com", "vol-2"},
		{v1.PersistentVolumeSource{GCEPersistentDisk: &v1.GCEPersistentDiskVolumeSource{PDName: "d"}}, "", "pd.csi.storage.gke.io", "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d"},
		{v1.PersistentVolumeSource{GCEPersistentDisk: &v1.GCEPersistentDiskVolumeSource{PDName: "d"}}, "z", "pd.csi.storage.gke.io", "projects/UNSPECIFIED/zones/z/disks/d"},
		{v1.PersistentVolumeSource{GCEPersistentDisk: &v1.GCEPersistentDiskVolumeSource{PDName: "d"}}, "us-east1-a__us-east1-b", "pd.csi.storage.gke.io", "projects/UNSPECIFIED/regions/us-east1/disks/d"},
		{v1.PersistentVolumeSource{AzureDisk: &v1.AzureDiskVolumeSource{DataDiskURI: "/disks/d", Kind: new(v1.AzureManagedDisk)}}, "a", "disk.csi.azure.com", "/disks/d"},
		{v1.PersistentVolumeSource{Cinder: &v1.CinderPersistentVolumeSource{VolumeID: "d"}}, "a", "cinder.csi.openstack.org", "d"},
		{v1.PersistentVolumeSource{PortworxVolume: &v1.PortworxVolumeSource{VolumeID: "d"}}, "a", "pxd.portworx.com", "d"},
		{v1.PersistentVolumeSource{AzureFile: &v1.AzureFilePersistentVolumeSource{ShareName: "s", SecretName: "s"}}, "a", "", ""}, // isCSIMigrationOn of kube-scheduler lacks the plugin
		{v1.PersistentVolumeSource{VsphereVolume: &v1.VsphereVirtualDiskVolumeSource{VolumePath: "p", StoragePolicyName: "s"}}, "a", "", ""},
	} {
		pv := &v1.PersistentVolume{Spec: v1.PersistentVolumeSpec{PersistentVolumeSource: c.source}}
		if c.zones != "" {
			pv.Labels = map[string]string{v1.LabelTopologyZone: c.zones}
		}
		before := pv.DeepCopy()
		if v := ReadVolume(StripVolume(pv)); v.Driver != c.driver || v.Handle != c.handle || v.Refused != "" {
			t.Errorf("%s: driver %q, handle %q, refused %q; want %q, %q", pv.String(), v.Driver, v.Handle, v.Refused, c.driver, c.handle)
		}
		if pv.String() != before.String() {
			t.Errorf("the object has changed: %v", pv)
		}
	}
	for _, c := range []struct {
		source         v1.VolumeSource
		driver, handle string
	}{
		{v1.VolumeSource{AWSElasticBlockStore: &v1.AWSElasticBlockStoreVolumeSource{VolumeID: "aws://us-east-1a/vol-1"}}, "ebs.csi.aws.com", "vol-1"},
		{v1.VolumeSource{GCEPersistentDisk: &v1.GCEPersistentDiskVolumeSource{PDName: "d"}}, "pd.csi.storage.gke.io", "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d"},
		{v1.VolumeSource{AzureDisk: &v1.AzureDiskVolumeSource{DataDiskURI: "/disks/d"}}, "disk.csi.azure.com", "/disks/d"},
		{v1.VolumeSource{Cinder: &v1.CinderVolumeSource{VolumeID: "d"}}, "cinder.csi.openstack.org", "d"},
		{v1.VolumeSource{PortworxVolume: &v1.PortworxVolumeSource{VolumeID: "d"}}, "pxd.portworx.com", "d"},
		{v1.VolumeSource{AzureFile: &v1.AzureFileVolumeSource{ShareName: "s"}}, "", ""},
		{v1.VolumeSource{VsphereVolume: &v1.VsphereVirtualDiskVolumeSource{VolumePath: "p", StoragePolicyName: "s"}}, "", ""}, // to translate it would panic
		{v1.VolumeSource{ISCSI: &v1.ISCSIVolumeSource{}}, "", ""},
	} {
		if driver, handle, why := Disk(&v1.Volume{VolumeSource: c.source}); driver != c.driver || handle != c.handle || why != "" {
			t.Errorf("%v: driver %q, handle %q, %q; want %q, %q", c.source, driver, handle, why, c.driver, c.handle)
		}
	}
	for provisioner, driver := range map[string]string{"kubernetes.io/aws-ebs": "ebs.csi.aws.com", "kubernetes.io/azure-file": "", "kubernetes.io/vsphere-volume": "", "ebs.csi.aws.com": "ebs.csi.aws.com", "": ""} {
		if got := ReadClass(StripClass(&storagev1.StorageClass{Provisioner: provisioner})).Driver(); got != driver {
			t.Errorf("the volumes of provisioner %q count for driver %q, want %q", provisioner, got, driver)
		}
	}
}

// One volume that a pod has in three ways counts once.
func TestTranslatedOnce(t *testing.T) {
	ebs := &v1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-1"}
	all := cluster{limited: map[string]bool{"ebs.csi.aws.com": true}, claims: map[string]*v1.PersistentVolumeClaim{}, volumes: map[string]*v1.PersistentVolume{
		"v": {Spec: v1.PersistentVolumeSpec{PersistentVolumeSource: v1.PersistentVolumeSource{AWSElasticBlockStore: ebs}}},
		"w": {Spec: v1.PersistentVolumeSpec{PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: "ebs.csi.aws.com", VolumeHandle: "vol-1"}}}}}}
	all.claims["c"], all.claims["d"] = claim(nil), claim(func(p *v1.PersistentVolumeClaim) { p.Spec.VolumeName = "w" })
	other := v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "d"}}
	reach, why := Nodes(podOf(byClaim, other, v1.VolumeSource{AWSElasticBlockStore: ebs}), "", all)
	if why != "" || len(reach.Attach) != 1 || reach.Attach[0].Value != 1 {
		t.Errorf("counts %v (%q)", reach.Attach, why)
	}
	reach, why = Nodes(podOf(byClaim, v1.VolumeSource{AWSElasticBlockStore: &v1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-2"}}), "", all)
	if why != "" || len(reach.Attach) != 1 || reach.Attach[0].Value != 2 {
		t.Errorf("two volumes count %v (%q)", reach.Attach, why)
	}
}

// A volume that is kept for a claim counts as what it is, and once, if its driver is not that of the claim's class. The class counts, too.
func TestKeptAttachment(t *testing.T) {
	const driver = "pd.csi.storage.gke.io"
	disk := func(name string) v1.VolumeSource {
		return v1.VolumeSource{GCEPersistentDisk: &v1.GCEPersistentDiskVolumeSource{PDName: name}}
	}
	for _, c := range []struct {
		what, provisioner, size string
		disks                   []v1.VolumeSource
		attach                  string
	}{
		{"the claim alone", "d", "2Gi", nil, "d=1 " + driver + "=1"},
		{"a disk that is the same", "d", "2Gi", []v1.VolumeSource{disk("a")}, "d=1 " + driver + "=1"},
		{"another disk", "d", "2Gi", []v1.VolumeSource{disk("b")}, "d=1 " + driver + "=2"},
		{"the volume is too small, so the claim does not get it", "d", "1Gi", nil, "d=1"},
		{"kube-scheduler counts the claim and the disk", "kubernetes.io/gce-pd", "2Gi", []v1.VolumeSource{disk("a")}, driver + "=2"},
	} {
		all := cluster{marks: map[string]bool{}, limited: map[string]bool{"d": true, driver: true},
			claims: map[string]*v1.PersistentVolumeClaim{"c": unboundOf("sc")},
			volumes: map[string]*v1.PersistentVolume{"v": {ObjectMeta: metav1.ObjectMeta{Name: "v"}, Spec: v1.PersistentVolumeSpec{StorageClassName: "sc", ClaimRef: &v1.ObjectReference{Namespace: "ns", Name: "c"},
				Capacity: v1.ResourceList{"storage": resource.MustParse(c.size)}, PersistentVolumeSource: v1.PersistentVolumeSource{GCEPersistentDisk: disk("a").GCEPersistentDisk}}}},
			classes: map[string]*storagev1.StorageClass{"sc": {ObjectMeta: metav1.ObjectMeta{Name: "sc"}, Provisioner: c.provisioner, VolumeBindingMode: new(storagev1.VolumeBindingWaitForFirstConsumer)}}}
		all.claims["c"].Spec.Resources.Requests = v1.ResourceList{"storage": resource.MustParse("2Gi")}
		reach, why := Nodes(podOf(append(c.disks, byClaim)...), "", all)
		if got := reach.Attach.String(); got != c.attach || why != "" {
			t.Errorf("%s: attaches %q, want %q (%q)", c.what, got, c.attach, why)
		}
	}
}

// The zone of an in-tree volume is a label of its CSI driver on nodes that have migrated the plugin, and the label that it names on others.
func TestUnmigrated(t *testing.T) {
	zone := func(key string) *v1.VolumeNodeAffinity {
		return &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: []v1.NodeSelectorRequirement{{Key: key, Operator: "In", Values: []string{"a"}}}}}}}
	}
	const csi, plugin = "topology.ebs.csi.aws.com/zone", "kubernetes.io/aws-ebs"
	pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v"}, Spec: v1.PersistentVolumeSpec{NodeAffinity: zone(v1.LabelFailureDomainBetaZone),
		PersistentVolumeSource: v1.PersistentVolumeSource{AWSElasticBlockStore: &v1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-1"}}}}
	all := cluster{marks: map[string]bool{}, volumes: map[string]*v1.PersistentVolume{"v": pv}, claims: map[string]*v1.PersistentVolumeClaim{"c": claim(nil)}}
	type labels = map[string]string
	for _, c := range []struct {
		labels   labels
		migrated bool
		bound    bool // may run there
		offered  bool // may be bound there
	}{
		{labels{csi: "a"}, true, true, false}, // what a node of today has
		{labels{csi: "a", v1.LabelFailureDomainBetaZone: "a"}, true, true, true},
		{labels{csi: "b", v1.LabelFailureDomainBetaZone: "a"}, true, false, false},
		{labels{v1.LabelFailureDomainBetaZone: "a"}, true, false, false},
		{labels{v1.LabelFailureDomainBetaZone: "a"}, false, true, true},
		{labels{csi: "a"}, false, false, false},
	} {
		seen := c.labels
		if !c.migrated {
			seen = api.WithMarks(c.labels, []string{plugin})
		}
		if got := allows(t, podOf(byClaim), all, seen); got != c.bound {
			t.Errorf("a node with %v, migrated %t: %t", c.labels, c.migrated, got)
		}
		if got := matches(ReadVolume(pv).at.where, &v1.Node{ObjectMeta: metav1.ObjectMeta{Labels: seen}}); got != c.offered {
			t.Errorf("a node with %v, migrated %t, before the volume is bound: %t", c.labels, c.migrated, got)
		}
	}
	if len(all.marks) != 1 || !all.marks[plugin] {
		t.Errorf("asked for marks of %v", all.marks)
	}
	const note = "claim c: its volume v can be used only on nodes with topology.ebs.csi.aws.com/zone in (a) and aws-ebs migrated to CSI, or failure-domain.beta.kubernetes.io/zone in (a) and aws-ebs not migrated to CSI"
	if reach, why := Nodes(podOf(byClaim), "", all); why != "" || reach.Note != note {
		t.Errorf("the note is %q %s, want %q", reach.Note, why, note)
	}
	clear(all.marks)
	pv.Spec.NodeAffinity = nil
	if !allows(t, podOf(byClaim), all, nil) || len(all.marks) > 0 {
		t.Errorf("a volume without zones asks for marks of %v", all.marks)
	}
}

func TestMigratedPlugins(t *testing.T) {
	for annotation, want := range map[string]int{"": 0, "kubernetes.io/aws-ebs": 1, "kubernetes.io/aws-ebs,kubernetes.io/gce-pd,kubernetes.io/vsphere-volume,x": 2, " kubernetes.io/aws-ebs": 0, "kubernetes.io/aws-ebs,kubernetes.io/aws-ebs": 1} {
		if got := MigratedPlugins(map[string]string{v1.MigratedPluginsAnnotationKey: annotation}); len(got) != want {
			t.Errorf("%q: %v", annotation, got)
		}
	}
}
