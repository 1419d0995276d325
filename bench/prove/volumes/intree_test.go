package volumes

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"basalt.dev/basalt/api"
)

const (
	ebs     = "ebs.csi.aws.com"
	ebsZone = "topology." + ebs + "/zone"
	aws     = "kubernetes.io/aws-ebs"
)

// inTree has volumes of an in-tree kind, which name their zone by a label that no node has: where the CSINode says that the plugin is migrated,
// it is that of the CSI driver. It comes alone, for it changes what all nodes say.
func (w *world) inTree(t *testing.T) {
	w = w.in(t)
	for i := range nodes {
		name := fmt.Sprint("node-", i)
		patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, ebsZone, zoneOf(name))
		_, err := w.kube.Core.CoreV1().Nodes().Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		w.check(err)
		w.csiNode(name, func(n *storagev1.CSINode) {
			n.Spec.Drivers = append(n.Spec.Drivers, storagev1.CSINodeDriver{Name: ebs, NodeID: name, Allocatable: &storagev1.VolumeNodeResources{Count: new(int32(1))}})
			if name != "node-2" {
				n.Annotations = map[string]string{corev1.MigratedPluginsAnnotationKey: "kubernetes.io/azure-file," + aws}
			}
		})
	}
	for i := range 3 {
		w.madeOfEBS(fmt.Sprint("intree-", i), fmt.Sprintf("aws://zone-2/vol-%d", i))
	}
	w.group("intree", 2)
	for i := range 2 {
		name := fmt.Sprint("intree-", i)
		w.pod(name, inGroup("intree"), uses(name))
	}
	w.bound("intree-", 2)
	on := map[string]bool{}
	for i := range 2 {
		on[w.seen.named(fmt.Sprint("intree-", i)).Spec.NodeName] = true
	}
	if !on["node-5"] || !on["node-8"] {
		t.Errorf("the pods are on %v; node-2 has not migrated the plugin, and each node takes one volume", on)
	}
	w.pod("intree-2", uses("intree-2"))
	w.says("intree-2", "2 node(s) exceed max volume count")
	w.csiNode("node-2", func(n *storagev1.CSINode) {
		n.Annotations = map[string]string{corev1.MigratedPluginsAnnotationKey: aws}
	})
	w.bound("intree-", 3)

	w.madeOfEBS("nameless", "aws://zone-2/disk")
	w.pod("nameless", uses("nameless"))
	w.says("nameless", "its volume nameless: spec.awsElasticBlockStore.volumeID: it cannot be translated for the CSI driver ebs.csi.aws.com")
}

// disks has pods name a disk that no two of them can have on one node.
func (w *world) disks(t *testing.T) {
	t.Parallel()
	w = w.in(t)
	writes := func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "disk", VolumeSource: corev1.VolumeSource{GCEPersistentDisk: &corev1.GCEPersistentDiskVolumeSource{PDName: "data"}}}}
		p.Spec.NodeSelector = map[string]string{api.LabelHostname: "node-6"}
	}
	w.pod("writer-0", writes)
	w.bound("writer-", 1)
	w.pod("writer-1", writes)
	w.says("writer-1", "1 node(s) had no available disk")
	w.delete("writer-0")
	w.bound("writer-1", 1)
}

// csiNode changes what a node says of its drivers.
func (w *world) csiNode(name string, edit func(*storagev1.CSINode)) {
	w.t.Helper()
	all := w.kube.Core.StorageV1().CSINodes()
	n, err := all.Get(w.t.Context(), name, metav1.GetOptions{})
	w.check(err)
	edit(n)
	_, err = all.Update(w.t.Context(), n, metav1.UpdateOptions{})
	w.check(err)
}

// madeOfEBS makes a volume of the in-tree kind in zone-2, by the older name of the label, and a claim that is bound to it.
func (w *world) madeOfEBS(name, id string) {
	w.t.Helper()
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
	v.Spec = corev1.PersistentVolumeSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, Capacity: corev1.ResourceList{"storage": resource.MustParse("1Gi")},
		PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain, ClaimRef: &corev1.ObjectReference{Namespace: "default", Name: name},
		NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelFailureDomainBetaZone, Operator: corev1.NodeSelectorOpIn, Values: []string{"zone-2"}}}}}}}}
	v.Spec.AWSElasticBlockStore = &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: id}
	_, err := w.kube.Core.CoreV1().PersistentVolumes().Create(w.t.Context(), v, metav1.CreateOptions{})
	w.check(err)
	w.claim(name, "", func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = name })
}
