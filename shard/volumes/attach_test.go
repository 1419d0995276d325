package volumes

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/volume"
	"basalt.dev/basalt/shard/event"
)

// A volume counts once for its node, for as long as a pod there uses it or it is attached; and only volumes of
// drivers that limit them, once a pod of ours has asked for one.
func TestAttached(t *testing.T) {
	s, w := newShown()
	said := map[string]string{}
	s.say = func(ev event.NodeVolumes) { said[ev.Name] = fmt.Sprint(ev.Attachable) }
	expect := func(what, n1, n2 string) {
		t.Helper()
		if said["n1"] != n1 || said["n2"] != n2 {
			t.Errorf("%s: it says %q and %q, not %q and %q", what, said["n1"], said["n2"], n1, n2)
		}
	}
	csiNode := func(name string, limits map[string]int32) *storagev1.CSINode {
		n := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name}}
		for driver, limit := range limits {
			n.Spec.Drivers = append(n.Spec.Drivers, storagev1.CSINodeDriver{Name: driver,
				Allocatable: &storagev1.VolumeNodeResources{Count: &limit}})
		}
		return StripCSINode(n)
	}
	bind := func(claim, driver string) {
		v := volumeOf(claim)
		v.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: driver}
		see(w, volume.StripVolume(v))
		see(w, volume.StripClaim(boundClaim(claim)))
	}
	on := func(p *corev1.Pod, node string) *corev1.Pod { p.Spec.NodeName = node; return p }
	attachment := func(name, claim, node string) *storagev1.VolumeAttachment {
		return StripAttachment(&storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: storagev1.VolumeAttachmentSpec{Attacher: "d", NodeName: node,
				Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: new("v-" + claim)}}})
	}

	bind("a", "d")
	bind("b", "d")
	bind("c", "d")
	bind("e", "endless")
	see(w, csiNode("n1", map[string]int32{"d": 4, "other": 5}))
	see(w, csiNode("n2", map[string]int32{"d": 1}))
	see(w, on(claiming("old-a", "a", 0), "n1"))
	see(w, on(claiming("old-e", "e", 0), "n1"))
	expect("nobody of ours has asked", "", "")
	see(w, claiming("p", "b", 0))
	expect("one has", "[{d 4 1 false}]", "[{d 1 0 false}]")
	if got := s.attach["p"].String(); got != "d=1" {
		t.Errorf("the pod attaches %s", got)
	}
	see(w, on(claiming("too-a", "a", 0), "n1"))
	expect("two pods share a volume", "[{d 4 1 false}]", "[{d 1 0 false}]")
	see(w, on(claiming("p", "b", 0), "n1"))
	expect("the pod is bound", "[{d 4 2 false}]", "[{d 1 0 false}]")
	see(w, attachment("va-b", "b", "n1"))
	see(w, attachment("va-c", "c", "n1"))
	expect("its volume is attached, and one without a pod", "[{d 4 3 false}]", "[{d 1 0 false}]")
	lose(w, on(claiming("p", "b", 0), "n1"))
	expect("the pod is gone, its volume is still attached", "[{d 4 3 false}]", "[{d 1 0 false}]")
	lose(w, attachment("va-b", "b", "n1"))
	expect("it is detached", "[{d 4 2 false}]", "[{d 1 0 false}]")
	list(w, []*storagev1.VolumeAttachment{attachment("va-c", "c", "n2")}...)
	expect("another list", "[{d 4 1 false}]", "[{d 1 1 false}]")
	ended := on(claiming("old-a", "a", 0), "n1")
	ended.Status.Phase = corev1.PodSucceeded
	see(w, ended)
	expect("one of two users has ended", "[{d 4 1 false}]", "[{d 1 1 false}]")
	lose(w, on(claiming("too-a", "a", 0), "n1"))
	expect("the other is gone", "[{d 4 0 false}]", "[{d 1 1 false}]")

	// Volumes that are provisioned later count by their claim, then by their name.
	late := storagev1.VolumeBindingWaitForFirstConsumer
	see(w, volume.StripClass(&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "sc"}, Provisioner: "d",
		VolumeBindingMode: &late}))
	unbound := boundClaim("l")
	unbound.Spec.VolumeName, unbound.Spec.StorageClassName, unbound.Annotations = "", new("sc"), nil
	see(w, volume.StripClaim(unbound))
	see(w, claiming("late", "l", 0))
	if got := s.attach["late"].String(); got != "d=1" {
		t.Errorf("a pod whose volume is provisioned later attaches %s", got)
	}
	see(w, on(claiming("late", "l", 0), "n1"))
	expect("its claim is not seen bound yet", "[{d 4 1 false}]", "[{d 1 1 false}]")
	bind("l", "d")
	expect("it is", "[{d 4 1 false}]", "[{d 1 1 false}]")
	see(w, attachment("va-l", "l", "n1"))
	expect("and attached", "[{d 4 1 false}]", "[{d 1 1 false}]")

	// A driver that has to be installed.
	seeNode(w, &api.Node{Name: "n1"})
	seeNode(w, &api.Node{Name: "n2"})
	needs := StripCSIDriver(&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "endless"},
		Spec: storagev1.CSIDriverSpec{PreventPodSchedulingIfMissing: new(true)}})
	see(w, needs)
	expect("needed, and nobody has asked", "[{d 4 1 false}]", "[{d 1 1 false}]")
	see(w, claiming("q", "e", 0))
	expect("needed", "[{d 4 1 false} {endless 0 0 true}]", "[{d 1 1 false} {endless 0 0 true}]")
	if got := s.attach["q"].String(); got != "endless=1" {
		t.Errorf("the pod attaches %s", got)
	}
	installed := csiNode("n2", map[string]int32{"d": 1})
	installed.Spec.Drivers = append(installed.Spec.Drivers, storagev1.CSINodeDriver{Name: "endless"})
	see(w, StripCSINode(installed))
	expect("installed on a node", "[{d 4 1 false} {endless 0 0 true}]", "[{d 1 1 false}]")
	see(w, csiNode("n2", map[string]int32{"d": 1}))
	expect("and no more", "[{d 4 1 false} {endless 0 0 true}]", "[{d 1 1 false} {endless 0 0 true}]")
	list[*storagev1.CSIDriver](w)
	expect("not needed any more", "[{d 4 1 false}]", "[{d 1 1 false}]")
	if got := s.attach["q"].String(); got != "" {
		t.Errorf("the pod attaches %s", got)
	}
	see(w, needs)
	loseNode(w, "n2")
	expect("a node is gone", "[{d 4 1 false} {endless 0 0 true}]", "[{d 1 1 false}]")
	seeNode(w, &api.Node{Name: "n2"})
	expect("and is back", "[{d 4 1 false} {endless 0 0 true}]", "[{d 1 1 false} {endless 0 0 true}]")
	lose(w, needs)
	lose(w, claiming("q", "e", 0))
	lose(w, on(claiming("old-e", "e", 0), "n1"))

	see(w, csiNode("n1", map[string]int32{"d": 9}))
	expect("another limit", "[{d 9 1 false}]", "[{d 1 1 false}]")
	list(w, []*storagev1.CSINode{csiNode("n2", nil)}...)
	expect("no limits any more", "[]", "[]")
	list[*storagev1.VolumeAttachment](w)

	list[*corev1.Pod](w)
	if n := len(s.drivers) + len(s.migrated) + len(s.limited) + len(s.uses) + len(s.usage) + len(s.onNode) +
		len(s.attachedAs) + len(s.attachedTo) + len(s.attachedOf) + len(s.attached.said); n != 0 {
		t.Errorf("%d things are kept", n)
	}
}

// Nodes that have not migrated an in-tree plugin are marked, once a pod of ours asks for a volume for which that
// makes a difference. Volumes and disks of in-tree kinds count for the driver in the place of their plugin.
func TestUnmigrated(t *testing.T) {
	s, w := newShown()
	said := map[string]string{}
	s.say = func(ev event.NodeVolumes) { said[ev.Name] = fmt.Sprint(ev.Attachable, ev.Unmigrated) }
	expect := func(what, n1, n2 string) {
		t.Helper()
		if said["n1"] != n1 || said["n2"] != n2 {
			t.Errorf("%s: it says %q and %q, not %q and %q", what, said["n1"], said["n2"], n1, n2)
		}
	}
	const plugin = "kubernetes.io/aws-ebs"
	csiNode := func(name, migrated string) *storagev1.CSINode {
		n := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{
			corev1.MigratedPluginsAnnotationKey: migrated}}}
		n.Spec.Drivers = []storagev1.CSINodeDriver{{Name: "ebs.csi.aws.com", Allocatable: &storagev1.VolumeNodeResources{
			Count: new(int32(5))}}}
		return StripCSINode(n)
	}
	bind := func(claim string, zone map[string]string) {
		v := volumeOf(claim)
		v.Labels = zone
		v.Spec.AWSElasticBlockStore = &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: "aws://a/vol-" + claim}
		see(w, volume.StripVolume(v))
		see(w, volume.StripClaim(boundClaim(claim)))
	}
	bind("a", nil)
	bind("b", map[string]string{corev1.LabelTopologyZone: "a"})
	seeNode(w, &api.Node{Name: "n1"})
	seeNode(w, &api.Node{Name: "n2"})
	see(w, csiNode("n1", "kubernetes.io/vsphere-volume,"+plugin))
	other := claiming("other", "a", 0)
	other.Spec.NodeName = "n1"
	other.Spec.Volumes = append(other.Spec.Volumes, corev1.Volume{VolumeSource: corev1.VolumeSource{
		AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-c"}}},
		corev1.Volume{VolumeSource: corev1.VolumeSource{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{
			VolumeID: "vol-a"}}})
	see(w, api.StripPod(other))
	expect("nobody of ours has asked", "", "")
	see(w, claiming("p", "a", 0))
	expect("a volume that is the same for both", "[{ebs.csi.aws.com 5 2 false}] []", "")
	see(w, claiming("q", "b", 0))
	expect("one with a zone", "[{ebs.csi.aws.com 5 2 false}] []", "[] ["+plugin+"]")
	if got := s.attach["q"].String(); got != "ebs.csi.aws.com=1" {
		t.Errorf("the pod attaches %s", got)
	}
	if got := s.unmigrated("n2"); len(got) != 1 {
		t.Errorf("n2 has not migrated %v", got)
	}
	see(w, csiNode("n2", plugin))
	expect("migrated", "[{ebs.csi.aws.com 5 2 false}] []", "[{ebs.csi.aws.com 5 0 false}] []")
	see(w, csiNode("n1", ""))
	expect("migrated no more", "[{ebs.csi.aws.com 5 2 false}] ["+plugin+"]", "[{ebs.csi.aws.com 5 0 false}] []")
	list(w, []*storagev1.CSINode{csiNode("n1", plugin)}...)
	expect("another list", "[{ebs.csi.aws.com 5 2 false}] []", "[] ["+plugin+"]")
	seeNode(w, &api.Node{Name: "n3"})
	if said["n3"] != "[] ["+plugin+"]" {
		t.Errorf("a new node: %q", said["n3"])
	}
	loseNode(w, "n3")
	loseNode(w, "n2")
	expect("a node is gone", "[{ebs.csi.aws.com 5 2 false}] []", "[] []")
}

// A volume that is kept for a claim which is not bound counts where pods use the claim, once with the disks and
// attachments that are the same.
func TestKeptVolumeCounts(t *testing.T) {
	const driver = "pd.csi.storage.gke.io"
	s, w := newShown()
	said := ""
	s.say = func(ev event.NodeVolumes) { said = fmt.Sprint(ev.Attachable) }
	expect := func(what, want string) {
		t.Helper()
		if said != want {
			t.Errorf("%s: it says %q, not %q", what, said, want)
		}
	}
	late := storagev1.VolumeBindingWaitForFirstConsumer
	see(w, volume.StripClass(&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "sc"}, Provisioner: "d",
		VolumeBindingMode: &late}))
	unbound := boundClaim("c")
	unbound.Spec.VolumeName, unbound.Spec.StorageClassName, unbound.Annotations = "", new("sc"), nil
	keep := func(name, class string) *corev1.PersistentVolume {
		v := volumeOf(name)
		v.Spec.StorageClassName, v.Spec.ClaimRef = class, &corev1.ObjectReference{Namespace: "ns", Name: "c"}
		v.Spec.Capacity = corev1.ResourceList{"storage": resource.MustParse("1Gi")}
		v.Spec.GCEPersistentDisk = &corev1.GCEPersistentDiskVolumeSource{PDName: name}
		return volume.StripVolume(v)
	}
	see(w, StripCSINode(&storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: storagev1.CSINodeSpec{
		Drivers: []storagev1.CSINodeDriver{{Name: driver, Allocatable: &storagev1.VolumeNodeResources{
			Count: new(int32(5))}}}}}))
	old := claiming("old", "c", 0)
	old.Spec.NodeName = "n1"
	old.Spec.Volumes = append(old.Spec.Volumes, corev1.Volume{VolumeSource: corev1.VolumeSource{
		GCEPersistentDisk: &corev1.GCEPersistentDiskVolumeSource{PDName: "disk"}}})
	see(w, old)
	see(w, keep("a-of-another-class", "other"))
	see(w, keep("disk", "sc"))
	see(w, volume.StripClaim(unbound))
	see(w, claiming("p", "c", 0))
	if got := s.attach["p"].String(); got != driver+"=1" {
		t.Errorf("a pod with the claim attaches %s", got)
	}
	expect("a disk, and a volume that is the same", "[{"+driver+" 5 1 false}]")
	see(w, StripAttachment(&storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "va"},
		Spec: storagev1.VolumeAttachmentSpec{Attacher: driver, NodeName: "n1",
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: new("v-disk")}}}))
	expect("it is attached", "[{"+driver+" 5 1 false}]")
	lose(w, volume.StripClaim(unbound))
	see(w, keep("second", "sc"))
	expect("kept for a claim that does not exist", "[{"+driver+" 5 1 false}]")
	lose(w, keep("disk", "sc"))
	see(w, volume.StripClaim(unbound))
	expect("another one is kept", "[{"+driver+" 5 2 false}]")
}

// A claim may be used on all nodes: what changes nothing of it costs the same then, and what does is counted once for
// many events.
func TestClaimOnManyNodes(t *testing.T) {
	s, w := newShown()
	said := map[string]string{}
	s.say = func(ev event.NodeVolumes) { said[ev.Name] = fmt.Sprint(ev.Attachable) }
	bind := func(claim, edit string) {
		c := boundClaim(claim, corev1.ReadWriteMany)
		c.Annotations["edit"] = edit
		see(w, volume.StripClaim(c))
	}
	const nodes = 200
	for i := range nodes {
		name := fmt.Sprint("n", i)
		see(w, StripCSINode(&storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storagev1.CSINodeSpec{
			Drivers: []storagev1.CSINodeDriver{{Name: "d", Allocatable: &storagev1.VolumeNodeResources{
				Count: new(int32(5))}}}}}))
		p := claiming("on-"+name, "many", 0)
		p.Spec.NodeName = name
		see(w, p)
	}
	few := claiming("few", "few", 0)
	few.Spec.NodeName = "n0"
	see(w, few)
	for _, claim := range []string{"many", "few"} {
		v := volumeOf(claim)
		v.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: claim}
		see(w, volume.StripVolume(v))
	}
	bind("few", "")
	see(w, claiming("p", "few", 0)) // has the nodes counted
	look := func() (counted int, n0, n1 string, dirty int) {
		defer clear(said)
		return len(said), said["n0"], said["n1"], len(s.dirty)
	}
	w.pass(time.Minute)
	if _, n0, n1, _ := look(); n0 != "[{d 5 1 false}]" || n1 != "[{d 5 0 false}]" {
		t.Fatalf("%q, %q", n0, n1)
	}
	bind("many", "")
	if counted, _, _, dirty := look(); counted != 0 || dirty != nodes {
		t.Errorf("it is bound, and %d nodes are counted at once, %d later", counted, dirty)
	}
	w.pass(time.Minute)
	if counted, n0, n1, _ := look(); counted != nodes || n0 != "[{d 5 2 false}]" || n1 != "[{d 5 1 false}]" {
		t.Errorf("a minute later %d nodes are counted: %q, %q", counted, n0, n1)
	}
	edits := 0
	edit := func(claim string) float64 {
		return testing.AllocsPerRun(20, func() { edits++; bind(claim, fmt.Sprint(edits)) })
	}
	one, all := edit("few"), edit("many")
	if _, _, _, dirty := look(); all > one+2 || dirty != 0 {
		t.Errorf("an edit that matters nothing allocates %v times for a claim on one node, "+
			"and %v times for one on %d; %d are counted later", one, all, nodes, dirty)
	}
}
