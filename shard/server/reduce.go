package server

import (
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/volume"
	"basalt.dev/basalt/shard/event"
)

// Reduce returns pods as the cores are shown them once the watches have seen all objects of a cluster: stripped as at a relay, and
// with what their volumes and devices need looked up; and what is said of the volumes of nodes. bench/prove/oracle judges by it what a
// shard makes of a pod.
func Reduce(rules api.Rules, nodes []*corev1.Node, objects []runtime.Object, pods []*corev1.Pod) (out []*api.Pod, volumes []event.NodeVolumes) {
	c := newClaims(rules, func(*api.Pod) {}, nil)
	c.say = func(ev event.NodeVolumes) { volumes = append(volumes, ev) }
	for _, n := range nodes {
		c.node(api.FromNode(rules.StripNode(n), nil))
	}
	for _, o := range objects {
		switch o := o.(type) {
		case *corev1.PersistentVolume:
			c.volumes().Seen(volume.StripVolume(o))
		case *corev1.PersistentVolumeClaim:
			c.claims().Seen(volume.StripClaim(o))
		case *storagev1.StorageClass:
			c.storageClasses().Seen(o)
		case *storagev1.CSINode:
			c.csiNodes().Seen(stripCSINode(o))
		case *storagev1.VolumeAttachment:
			c.volumeAttachments().Seen(stripAttachment(o))
		case *storagev1.CSIDriver:
			c.csiDrivers().Seen(o)
		case *storagev1.CSIStorageCapacity:
			c.capacities().Seen(volume.StripCapacity(o))
		case *resourcev1.DeviceClass:
			c.deviceClasses().Seen(o)
		}
	}
	stripped := make([]*corev1.Pod, len(pods))
	for i, p := range pods {
		stripped[i] = rules.StripPod(p)
	}
	c.replaced(stripped, func(list []*api.Pod) { out = list })
	return out, volumes
}
