package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/csi-translation-lib/plugins"
)

// open are gaps of Basalt that are known, by what a mismatch begins with. Tests bear with them; `make oracle` does not.
var open = map[string]string{}

func isOpen(m Mismatch) bool {
	for prefix := range open {
		if strings.HasPrefix(m.String(), prefix) {
			return true
		}
	}
	return false
}

// TestTraps asks both sides about small clusters in which the obvious answer is wrong.
func TestTraps(t *testing.T) {
	for _, trap := range []struct {
		name    string
		objects []runtime.Object // the last one is the pod that is asked about
		fits    string           // the names of the nodes that fit
		refused string           // what Basalt's refusal begins with, when it does not judge such pods
		excused string           // by which exception Basalt may answer otherwise
	}{
		{"a spread over an empty selector matches no pods", []runtime.Object{
			aNode("n1", inZone("a")), aNode("n2", inZone("b")), aPod("x", on("n1"), app("a")), aPod("y", on("n1"), app("a")),
			aPod("p", app("a"), spreadOver(zoneKey, &metav1.LabelSelector{})),
		}, "n1 n2", "", ""},
		{"a spread without a selector matches no pods", []runtime.Object{
			aNode("n1", inZone("a")), aNode("n2", inZone("b")), aPod("x", on("n1"), app("a")), aPod("y", on("n1"), app("a")),
			aPod("p", app("a"), spreadOver(zoneKey, nil)),
		}, "n1 n2", "", ""},
		{"an empty zone that is cordoned holds the minimum at zero", []runtime.Object{
			aNode("n1", inZone("a")), aNode("n2", inZone("b")), aNode("n3", inZone("c"), cordoned), aPod("x", on("n1"), app("a")), aPod("y", on("n2"), app("a")),
			aPod("p", app("a"), spreadOver(zoneKey, selecting("a"))),
		}, "", "", ""},
		{"a node without the key of a spread does not fit, and its pods do not count", []runtime.Object{
			aNode("n1", inZone("a")), aNode("n2"), aPod("x", on("n2"), app("a")),
			aPod("p", app("a"), spreadOver(zoneKey, selecting("a"))),
		}, "n1", "", ""},
		{"pods that are being deleted do not count for a spread", []runtime.Object{
			aNode("n1", inZone("a")), aNode("n2", inZone("b")), aPod("x", on("n1"), app("a"), deleting),
			aPod("p", app("a"), spreadOver(zoneKey, selecting("a"))),
		}, "n1 n2", "", ""},
		{"the first pod of a group that is affine to itself goes where the key is", []runtime.Object{
			aNode("n1", inZone("a")), aNode("n2"), aPod("x", on("n2"), app("a")),
			aPod("p", app("a"), affineTo(zoneKey, selecting("a"))),
		}, "n1", "", ""},
		{"one pod must match all terms of an affinity", []runtime.Object{
			aNode("n1", inZone("a")), aPod("x", on("n1"), app("a")), aPod("y", on("n1"), app("b")),
			aPod("p", app("c"), affineTo(zoneKey, selecting("a"), selecting("b"))),
		}, "", "", ""},
		{"a node without the key passes the pod's own anti-affinity", []runtime.Object{
			aNode("n1", inZone("a")), aNode("n2"), aPod("x", on("n1"), app("a")), aPod("y", on("n2"), app("a")),
			aPod("p", averseTo(zoneKey, selecting("a"))),
		}, "n2", "", ""},
		{"pods that are being deleted count for an anti-affinity", []runtime.Object{
			aNode("n1", inZone("a")), aNode("n2", inZone("b")), aPod("x", on("n1"), app("a"), deleting),
			aPod("p", averseTo(zoneKey, selecting("a"))),
		}, "n2", "", ""},
		{"the anti-affinity of a bound pod repels a plain pod", []runtime.Object{
			aNode("n1", inZone("a")), aNode("n2", inZone("a")), aNode("n3", inZone("b")), aNode("n4"), aPod("x", on("n1"), averseTo(zoneKey, selecting("a"))),
			aPod("p", app("a")),
		}, "n3 n4", "", ""},
		{"the anti-affinity of a finished pod repels nobody", []runtime.Object{
			aNode("n1", inZone("a")), aPod("x", on("n1"), averseTo(zoneKey, selecting("a")), phase(v1.PodSucceeded)),
			aPod("p", app("a")),
		}, "n1", "", ""},
		{"too much memory in use does not stop a pod that requests none", []runtime.Object{
			aNode("n1", offers("memory", "1Gi")), aPod("x", on("n1"), requests("memory", "2Gi")),
			aPod("p", requests("cpu", "1")),
		}, "n1", "", "out-of-sync"},
		{"a pod that requests nothing fits a full node", []runtime.Object{
			aNode("n1", offers("cpu", "1")), aNode("n2", offers("pods", "1")), aPod("x", on("n1"), requests("cpu", "1")), aPod("y", on("n2")),
			aPod("p"),
		}, "n1", "", ""},
		{"an own volume that is attached already counts twice", []runtime.Object{
			aNode("n1"), limit("n1", 1), volume("v", nil), claim("c", "v"),
			&storagev1.VolumeAttachment{ObjectMeta: named("va"), Spec: storagev1.VolumeAttachmentSpec{Attacher: driver, NodeName: "n1", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: new("v")}}},
			aPod("p", uses("c")),
		}, "", "", ""},
		{"a volume that is shared on the node", []runtime.Object{
			aNode("n1"), aNode("n2"), limit("n1", 1), limit("n2", 1), volume("v", nil), claim("c", "v"), aPod("x", on("n1"), uses("c")),
			aPod("p", uses("c")),
		}, "n1 n2", "", "shared-volume"},
		{"a volume over the limit of its driver", []runtime.Object{
			aNode("n1"), aNode("n2"), limit("n1", 1), limit("n2", 1), volume("v", nil), claim("c", "v"), volume("w", nil), claim("d", "w"),
			aPod("x", on("n1"), uses("d")),
			aPod("p", uses("c")),
		}, "n2", "", ""},
		{"zone labels of a volume hold where a node has any of them", []runtime.Object{
			aNode("n1", inZone("a")), aNode("n2", inZone("b")), aNode("n3", inZone("c")), aNode("n4"), volume("v", map[string]string{zoneKey: "a__b"}), claim("c", "v"),
			aPod("p", uses("c")),
		}, "n1 n2 n4", "", ""},
		{"one pod in the cluster may use a claim with ReadWriteOncePod", []runtime.Object{
			aNode("n1"), aNode("n2"), once(volume("v", nil)), once(claim("c", "v")), aPod("x", on("n1"), uses("c")),
			aPod("p", uses("c")),
		}, "", "", ""},
		{"a claim without the mark of a complete binding is not bound", []runtime.Object{
			aNode("n1"), volume("v", nil), unmarked(claim("c", "v")),
			aPod("p", uses("c")),
		}, "", "", ""},
		{"where a pod's volume is does not limit which zones its spread counts", []runtime.Object{
			aNode("n1", inZone("a")), aNode("n2", inZone("b")), located(volume("v", nil), "a"), claim("c", "v"), aPod("x", on("n1"), app("a")),
			aPod("p", app("a"), uses("c"), spreadOver(zoneKey, selecting("a"))),
		}, "", "", ""},
		{"a cordon is tolerated like a taint", []runtime.Object{
			aNode("n1", cordoned), aNode("n2", cordoned, tainted("k")),
			aPod("p", tolerates(v1.TaintNodeUnschedulable)),
		}, "n1", "", ""},
		{"a term that cannot be parsed matches nothing, and the others count", []runtime.Object{
			aNode("n1", inZone("a")), aNode("n2", inZone("b")),
			aPod("p", nodeTerms(v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{{Key: zoneKey, Operator: "Sometimes"}}}, v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{{Key: zoneKey, Operator: v1.NodeSelectorOpIn, Values: []string{"b"}}}})),
		}, "n2", "", ""},
		{"a term without requirements matches nothing", []runtime.Object{
			aNode("n1"), aPod("p", nodeTerms(v1.NodeSelectorTerm{})),
		}, "", "", ""},
		{"two names in one term match nothing", []runtime.Object{
			aNode("n1"), aNode("n2"), aPod("p", nodeTerms(v1.NodeSelectorTerm{MatchFields: []v1.NodeSelectorRequirement{
				{Key: "metadata.name", Operator: v1.NodeSelectorOpIn, Values: []string{"n1"}}, {Key: "metadata.name", Operator: v1.NodeSelectorOpIn, Values: []string{"n2"}}}})),
		}, "", "", ""},
		{"a port of any address conflicts with that of each", []runtime.Object{
			aNode("n1"), aNode("n2"), aNode("n3"), aPod("x", on("n1"), port("10.0.0.1", 80)), aPod("y", on("n2"), port("", 80)), aPod("z", on("n3"), port("10.0.0.2", 80)),
			aPod("p", port("10.0.0.1", 80)),
		}, "n3", "", ""},
		{"ports of sidecars count, those of init containers do not", []runtime.Object{
			aNode("n1"), aNode("n2"), aPod("x", on("n1"), initPort(80, true)), aPod("y", on("n2"), initPort(80, false)),
			aPod("p", port("", 80)),
		}, "n2", "", ""},
		{"a resize counts with the most of what is asked for, allocated and in use", []runtime.Object{
			aNode("n1", offers("cpu", "2")), aPod("x", on("n1"), requests("cpu", "500m"), resizedFrom("2")),
			aPod("p", requests("cpu", "1")),
		}, "", "", ""},
		{"a feature that few nodes declare", []runtime.Object{
			aNode("n1"), aNode("n2", declares("UserNamespacesHostNetworkSupport")),
			aPod("p", func(p *v1.Pod) { p.Spec.HostNetwork, p.Spec.HostUsers = true, new(false) }),
		}, "n2", "", ""},
		{"devices stand for an extended resource that the node does not offer", []runtime.Object{
			aNode("n1"), aNode("n2"),
			&resourceapi.DeviceClass{ObjectMeta: named("dra"), Spec: resourceapi.DeviceClassSpec{ExtendedResourceName: new(draResource)}},
			&resourceapi.ResourceSlice{ObjectMeta: named("s"), Spec: resourceapi.ResourceSliceSpec{Driver: "d", NodeName: new("n1"), Pool: resourceapi.ResourcePool{Name: "n1", ResourceSliceCount: 1}, Devices: []resourceapi.Device{{Name: "d0"}}}},
			aPod("p", requests(draResource, "1")),
		}, "n1", "", ""},
		{"a released volume that names a claim without its UID is kept for it", []runtime.Object{
			aNode("n1", inZone("a")), aNode("n2", inZone("b")),
			late("kubernetes.io/no-provisioner"),
			located(released(available("v", "late"), "c"), "b"), available("w", "late"), unbound("c", "late"), aPod("p", uses("c")),
		}, "n2", "", ""},
		{"a claim that is not bound is one of its class's driver, whatever volume is kept for it", []runtime.Object{
			aNode("n1"), aNode("n2"), limit("n2", 10),
			&storagev1.CSIDriver{ObjectMeta: named(driver), Spec: storagev1.CSIDriverSpec{PreventPodSchedulingIfMissing: new(true)}},
			late(driver),
			keptFor("c", volume("v", nil)), unbound("c", "late"), aPod("p", uses("c")),
		}, "n2", "", ""},
		{"a disk in a pod that is the volume which is kept for its claim counts once", []runtime.Object{
			aNode("n1"), limitOf("n1", ebsDriver, 1), late(driver), released(ebs(available("v", "late"), "vol-1"), "c"), unbound("c", "late"),
			aPod("p", uses("c"), disk(v1.VolumeSource{AWSElasticBlockStore: &v1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-1"}})),
		}, "n1", "", ""},
		{"a volume that is kept for a claim counts where pods of the claim run, before the claim is bound", []runtime.Object{
			aNode("n1"), aNode("n2"), limitOf("n1", ebsDriver, 1), limitOf("n2", ebsDriver, 1), late(driver), released(ebs(available("v", "late"), "vol-1"), "c"), unbound("c", "late"),
			aPod("x", on("n1"), uses("c")), aPod("p", disk(v1.VolumeSource{AWSElasticBlockStore: &v1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-2"}})),
		}, "n1 n2", "", "kept-volume"},
		{"but not if the claim cannot have it", []runtime.Object{
			aNode("n1"), aNode("n2"), limitOf("n1", ebsDriver, 1), limitOf("n2", ebsDriver, 1), late(driver), released(ebs(available("v", "other"), "vol-1"), "c"), unbound("c", "late"),
			aPod("x", on("n1"), uses("c")), aPod("p", disk(v1.VolumeSource{AWSElasticBlockStore: &v1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-2"}})),
		}, "n1 n2", "", ""},
		{"the zone of an in-tree volume is a label of its CSI driver where the plugin is migrated, and as it says elsewhere", []runtime.Object{
			labelled(aNode("n1", inZone("b")), ebsZone, "a"), aNode("n2", inZone("a")), labelled(aNode("n3", inZone("a")), ebsZone, "b"), aNode("n4", inZone("b")), labelled(aNode("n5", inZone("b")), ebsZone, "a"), aNode("n6", inZone("a")),
			migrated("n1", plugins.AWSEBSInTreePluginName), migrated("n2", allMigrated), migrated("n3", plugins.CinderInTreePluginName), migrated("n4", ""), migrated("n5", " "+plugins.AWSEBSInTreePluginName),
			ebs(located(volume("v", nil), "a"), "vol-1"), claim("c", "v"), aPod("p", uses("c")),
		}, "n1 n3 n6", "", ""},
		{"an in-tree volume of the older zone label goes to nodes of today", []runtime.Object{
			labelled(aNode("n1"), ebsZone, "a"), aNode("n2", inZone("a")), migrated("n1", allMigrated), migrated("n2", allMigrated),
			ebs(volume("v", map[string]string{v1.LabelFailureDomainBetaZone: "a"}), "vol-1"), claim("c", "v"), aPod("p", uses("c")),
		}, "n1", "", ""},
		{"before it is bound an in-tree volume is where its own affinity says", []runtime.Object{
			labelled(aNode("n1", inZone("b")), ebsZone, "a"), aNode("n2", inZone("a")), labelled(aNode("n3", inZone("a")), ebsZone, "a"),
			migrated("n1", allMigrated), migrated("n2", allMigrated), migrated("n3", allMigrated),
			&storagev1.StorageClass{ObjectMeta: named("static"), Provisioner: "kubernetes.io/no-provisioner", VolumeBindingMode: new(storagev1.VolumeBindingWaitForFirstConsumer)},
			ebs(located(available("v", "static"), "a"), "vol-1"), unbound("c", "static"), aPod("p", uses("c")),
		}, "n2 n3", "", "kept-volume"},
		{"a volume is the same one by a claim, in the pod, and by CSI", []runtime.Object{
			aNode("n1"), limitOf("n1", ebsDriver, 1), ebs(volume("v", nil), "aws:///vol-1"), claim("c", "v"), csi(volume("w", nil), ebsDriver, "vol-1"), claim("d", "w"),
			aPod("p", uses("c"), uses("d"), disk(v1.VolumeSource{AWSElasticBlockStore: &v1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-1"}})),
		}, "n1", "", ""},
		{"volumes of file shares and vSphere count for no driver, nor do their classes", []runtime.Object{
			aNode("n1"), aNode("n2"), limitOf("n1", plugins.AzureFileDriverName, 0), limitOf("n2", plugins.VSphereDriverName, 0),
			&storagev1.StorageClass{ObjectMeta: named("files"), Provisioner: plugins.AzureFileInTreePluginName, VolumeBindingMode: new(storagev1.VolumeBindingWaitForFirstConsumer)},
			unbound("c", "files"),
			aPod("p", uses("c"), disk(v1.VolumeSource{VsphereVolume: &v1.VsphereVirtualDiskVolumeSource{VolumePath: "v", StoragePolicyName: "gold"}}), disk(v1.VolumeSource{AzureFile: &v1.AzureFileVolumeSource{SecretName: "s", ShareName: "v"}})),
		}, "n1 n2", "", ""},
		{"a disk in a pod counts for the driver of its plugin, though the node has not migrated it", []runtime.Object{
			aNode("n1"), aNode("n2"), limitOf("n1", ebsDriver, 1), limitOf("n2", ebsDriver, 2), aPod("x", on("n1"), disk(v1.VolumeSource{AWSElasticBlockStore: &v1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-2"}})),
			aPod("p", disk(v1.VolumeSource{AWSElasticBlockStore: &v1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-1"}})),
		}, "n2", "", ""},
		{"readers share a disk of GCE, and none of EBS; the names of one are compared as they are written", []runtime.Object{
			aNode("n1"), aNode("n2"), aNode("n3"),
			aPod("x", on("n1"), disk(v1.VolumeSource{AWSElasticBlockStore: &v1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-1", ReadOnly: true}})),
			aPod("y", on("n2"), disk(v1.VolumeSource{AWSElasticBlockStore: &v1.AWSElasticBlockStoreVolumeSource{VolumeID: "aws:///vol-1"}})),
			aPod("z", on("n3"), disk(v1.VolumeSource{GCEPersistentDisk: &v1.GCEPersistentDiskVolumeSource{PDName: "disk", ReadOnly: true}})),
			aPod("p", disk(v1.VolumeSource{AWSElasticBlockStore: &v1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-1", ReadOnly: true}}),
				disk(v1.VolumeSource{GCEPersistentDisk: &v1.GCEPersistentDiskVolumeSource{PDName: "disk", ReadOnly: true}})),
		}, "n2 n3", "", ""},
		{"an image of RBD is one by any of its monitors", []runtime.Object{
			aNode("n1"), aNode("n2"), aNode("n3"),
			aPod("x", on("n1"), disk(v1.VolumeSource{RBD: &v1.RBDVolumeSource{CephMonitors: []string{"m1", "m2"}, RBDImage: "i", RBDPool: "rbd"}})),
			aPod("y", on("n2"), disk(v1.VolumeSource{RBD: &v1.RBDVolumeSource{CephMonitors: []string{"m1", "m2"}, RBDImage: "i", RBDPool: "other"}})),
			aPod("z", on("n3"), disk(v1.VolumeSource{ISCSI: &v1.ISCSIVolumeSource{TargetPortal: "t", IQN: "q", ReadOnly: true}})),
			aPod("p", disk(v1.VolumeSource{RBD: &v1.RBDVolumeSource{CephMonitors: []string{"m2", "m3"}, RBDImage: "i", ReadOnly: true}}), disk(v1.VolumeSource{ISCSI: &v1.ISCSIVolumeSource{TargetPortal: "u", IQN: "q"}})),
		}, "n2", "", ""},
		{"a disk whose name is no disk's", []runtime.Object{
			aNode("n1"), limitOf("n1", ebsDriver, 1), aPod("p", disk(v1.VolumeSource{AWSElasticBlockStore: &v1.AWSElasticBlockStoreVolumeSource{VolumeID: "aws://zone"}})),
		}, "", "spec.volumes[0].awsElasticBlockStore.volumeID", ""},
		{"the API server makes a disk of Azure a shared one unless it is said to be managed, and that cannot be translated", []runtime.Object{
			aNode("n1"), limitOf("n1", plugins.AzureDiskDriverName, 1), aPod("p", disk(v1.VolumeSource{AzureDisk: &v1.AzureDiskVolumeSource{DiskName: "d", DataDiskURI: "/d"}})),
		}, "", "spec.volumes[0].azureDisk.kind", ""},
		{"a volume of an in-tree kind that is attached without a pod", []runtime.Object{
			aNode("n1"), limitOf("n1", ebsDriver, 1), ebs(volume("v", nil), "vol-1"), csi(volume("w", nil), ebsDriver, "vol-2"), claim("d", "w"),
			&storagev1.VolumeAttachment{ObjectMeta: named("va"), Spec: storagev1.VolumeAttachmentSpec{Attacher: ebsDriver, NodeName: "n1", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: new("v")}}},
			aPod("p", uses("d")),
		}, "n1", "", "shared-volume"},
		{"a nominated pod of equal priority takes its room", []runtime.Object{
			aNode("n1", offers("cpu", "1")), aNode("n2", offers("cpu", "1")), aPod("x", requests("cpu", "1"), nominatedTo("n1")),
			aPod("p", requests("cpu", "1")),
		}, "n2", "", ""},
	} {
		t.Run(trap.name, func(t *testing.T) {
			c := caseOf(trap.objects...)
			want, err := Feasible(c)
			if err != nil {
				t.Fatal(err)
			}
			if fits := strings.Join(sortedKeys(want.Fits), " "); fits != trap.fits {
				t.Errorf("kube-scheduler takes [%s], want [%s]: %v", fits, trap.fits, want.Why)
			}
			v, err := Compare(c)
			if err != nil {
				t.Fatal(err)
			}
			got, _ := Basalt(c)
			switch {
			case trap.refused != "" && !strings.HasPrefix(got.Refused, trap.refused):
				t.Errorf("Basalt refuses the pod with %q, want %q", got.Refused, trap.refused)
			case trap.refused == "" && got.Refused != "":
				t.Logf("Basalt refuses the pod: %s", got.Refused) // that is never wrong
			case trap.excused != "" && v.Excused[trap.excused] == 0 && !slices.ContainsFunc(v.Mismatches, isOpen):
				t.Errorf("the exception %s does not apply", trap.excused)
			case trap.excused == "" && len(v.Excused) > 0:
				t.Errorf("exceptions apply: %v", v.Excused)
			}
			for _, m := range v.Mismatches {
				if isOpen(m) {
					t.Skipf("open: %v", m)
				}
				t.Error(m)
			}
		})
	}
}

// caseOf sorts objects into a case; the last one is its pod.
func caseOf(objects ...runtime.Object) *Case {
	c := &Case{Pod: objects[len(objects)-1].(*v1.Pod)}
	for _, o := range objects[:len(objects)-1] {
		switch o := o.(type) {
		case *v1.Node:
			c.Nodes = append(c.Nodes, o)
		case *v1.Pod:
			c.Pods = append(c.Pods, o)
		default:
			c.Objects = append(c.Objects, o)
		}
	}
	return c.complete()
}

func aNode(name string, with ...func(*v1.Node)) *v1.Node {
	n := &v1.Node{ObjectMeta: named(name)}
	n.Labels = map[string]string{hostnameKey: name}
	n.Status.Allocatable = v1.ResourceList{"cpu": quantity("8"), "memory": quantity("8Gi"), "pods": quantity("110")}
	for _, w := range with {
		w(n)
	}
	return n
}

func inZone(zone string) func(*v1.Node) { return func(n *v1.Node) { n.Labels[zoneKey] = zone } }
func cordoned(n *v1.Node)               { n.Spec.Unschedulable = true }
func tainted(key string) func(*v1.Node) {
	return func(n *v1.Node) {
		n.Spec.Taints = append(n.Spec.Taints, v1.Taint{Key: key, Effect: v1.TaintEffectNoSchedule})
	}
}
func offers(resource v1.ResourceName, amount string) func(*v1.Node) {
	return func(n *v1.Node) { n.Status.Allocatable[resource] = quantity(amount) }
}
func declares(features ...string) func(*v1.Node) {
	return func(n *v1.Node) { n.Status.DeclaredFeatures = features }
}

func aPod(name string, with ...func(*v1.Pod)) *v1.Pod {
	p := &v1.Pod{ObjectMeta: namedIn("default", name)}
	p.Spec.Containers = []v1.Container{{Name: "c", Image: "i"}}
	p.Status.Phase = v1.PodPending
	for _, w := range with {
		w(p)
	}
	return p
}

func on(node string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.NodeName, p.Status.Phase, p.Status.StartTime = node, v1.PodRunning, &started }
}
func nominatedTo(node string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Status.NominatedNodeName = node }
}
func phase(is v1.PodPhase) func(*v1.Pod) { return func(p *v1.Pod) { p.Status.Phase = is } }
func deleting(p *v1.Pod)                 { p.DeletionTimestamp = &started }
func app(value string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Labels = map[string]string{"app": value} }
}
func selecting(app string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
}
func requests(resource v1.ResourceName, amount string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		l := v1.ResourceList{resource: quantity(amount)}
		p.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: l, Limits: l}
	}
}
func resizedFrom(cpu string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "c", AllocatedResources: v1.ResourceList{"cpu": quantity("500m")}, Resources: &v1.ResourceRequirements{Requests: v1.ResourceList{"cpu": quantity(cpu)}}}}
	}
}
func port(ip string, number int32) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.Containers[0].Ports = []v1.ContainerPort{{ContainerPort: number, HostPort: number, HostIP: ip}}
	}
}
func initPort(number int32, sidecar bool) func(*v1.Pod) {
	return func(p *v1.Pod) {
		c := v1.Container{Name: "i", Image: "i", Ports: []v1.ContainerPort{{ContainerPort: number, HostPort: number}}}
		if sidecar {
			c.RestartPolicy = new(v1.ContainerRestartPolicyAlways)
		}
		p.Spec.InitContainers = []v1.Container{c}
	}
}
func tolerates(key string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.Tolerations = []v1.Toleration{{Key: key, Operator: v1.TolerationOpExists}} }
}
func nodeTerms(terms ...v1.NodeSelectorTerm) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{NodeSelectorTerms: terms}}}
	}
}
func spreadOver(key string, s *metav1.LabelSelector) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: key, WhenUnsatisfiable: v1.DoNotSchedule, LabelSelector: s}}
	}
}
func podTerms(key string, selectors []*metav1.LabelSelector) (out []v1.PodAffinityTerm) {
	for _, s := range selectors {
		out = append(out, v1.PodAffinityTerm{TopologyKey: key, LabelSelector: s})
	}
	return out
}
func affineTo(key string, s ...*metav1.LabelSelector) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.Affinity = &v1.Affinity{PodAffinity: &v1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: podTerms(key, s)}}
	}
}
func averseTo(key string, s ...*metav1.LabelSelector) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: podTerms(key, s)}}
	}
}
func uses(claim string) func(*v1.Pod) {
	return disk(v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim}})
}
func disk(source v1.VolumeSource) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: fmt.Sprint("v", len(p.Spec.Volumes)), VolumeSource: source})
	}
}

// ebs makes a volume one of the in-tree kind.
func ebs(pv *v1.PersistentVolume, id string) *v1.PersistentVolume {
	pv.Spec.PersistentVolumeSource = v1.PersistentVolumeSource{AWSElasticBlockStore: &v1.AWSElasticBlockStoreVolumeSource{VolumeID: id}}
	return pv
}

func csi(pv *v1.PersistentVolume, driver, handle string) *v1.PersistentVolume {
	pv.Spec.CSI = &v1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: handle}
	return pv
}

// available is a volume that is not bound.
func available(name, class string) *v1.PersistentVolume {
	pv := volume(name, nil)
	pv.Status.Phase, pv.Spec.StorageClassName, pv.Spec.Capacity = v1.VolumeAvailable, class, v1.ResourceList{v1.ResourceStorage: resource.MustParse("10Gi")}
	return pv
}

const ebsZone = plugins.AWSEBSTopologyKey

func labelled(n *v1.Node, key, value string) *v1.Node {
	n.Labels[key] = value
	return n
}

func migrated(node, annotation string) *storagev1.CSINode {
	n := limit(node, 10)
	n.Annotations = map[string]string{v1.MigratedPluginsAnnotationKey: annotation}
	return n
}

// volume is one that is bound to a claim whose name follows in the alphabet of these tests: v to c, w to d.
func volume(name string, labels map[string]string) *v1.PersistentVolume {
	pv := &v1.PersistentVolume{ObjectMeta: named(name)}
	pv.Labels = labels
	pv.Spec.CSI = &v1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: name}
	pv.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}
	pv.Status.Phase = v1.VolumeBound
	return pv
}

// located says that a volume can be used in one zone only.
func located(pv *v1.PersistentVolume, zone string) *v1.PersistentVolume {
	pv.Spec.NodeAffinity = &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: []v1.NodeSelectorRequirement{
		{Key: zoneKey, Operator: v1.NodeSelectorOpIn, Values: []string{zone}}}}}}}
	return pv
}

func claim(name, volume string) *v1.PersistentVolumeClaim {
	pvc := &v1.PersistentVolumeClaim{ObjectMeta: namedIn("default", name)}
	pvc.Annotations = map[string]string{bindComplete: "yes"}
	pvc.Spec = v1.PersistentVolumeClaimSpec{VolumeName: volume, StorageClassName: new(""), AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}}
	pvc.Status.Phase = v1.ClaimBound
	return pvc
}

// late is the StorageClass of that name.
func late(provisioner string) *storagev1.StorageClass {
	return &storagev1.StorageClass{ObjectMeta: named("late"), Provisioner: provisioner, VolumeBindingMode: new(storagev1.VolumeBindingWaitForFirstConsumer)}
}

// keptFor has a volume without a driver, and of no class, wait for a claim.
func keptFor(claim string, pv *v1.PersistentVolume) *v1.PersistentVolume {
	pv.Spec.CSI, pv.Spec.Capacity = nil, v1.ResourceList{v1.ResourceStorage: resource.MustParse("10Gi")}
	pv.Spec.ClaimRef = &v1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: "default", Name: claim}
	pv.Status.Phase = v1.VolumePending
	return pv
}

// released has a volume remember a claim by name.
func released(pv *v1.PersistentVolume, claim string) *v1.PersistentVolume {
	pv.Spec.ClaimRef, pv.Status.Phase = &v1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: "default", Name: claim}, v1.VolumeReleased
	return pv
}

func unbound(name, class string) *v1.PersistentVolumeClaim {
	pvc := claim(name, "")
	pvc.Annotations, pvc.Spec.StorageClassName, pvc.Status.Phase = nil, &class, v1.ClaimPending
	return pvc
}

func unmarked(pvc *v1.PersistentVolumeClaim) *v1.PersistentVolumeClaim {
	pvc.Annotations = nil
	return pvc
}

// once gives a volume or a claim the mode ReadWriteOncePod.
func once(o runtime.Object) runtime.Object {
	modes := []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}
	switch o := o.(type) {
	case *v1.PersistentVolume:
		o.Spec.AccessModes = modes
	case *v1.PersistentVolumeClaim:
		o.Spec.AccessModes = modes
	}
	return o
}

func limit(node string, count int32) *storagev1.CSINode { return limitOf(node, driver, count) }

func limitOf(node, driver string, count int32) *storagev1.CSINode {
	return &storagev1.CSINode{ObjectMeta: named(node), Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: driver, NodeID: node, Allocatable: &storagev1.VolumeNodeResources{Count: &count}}}}}
}
