package volumes

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/volume"
	"basalt.dev/basalt/shard/event"
)

// Reduce returns pods as the cores are shown them once the watches have seen all objects of a cluster: stripped as at
// a relay, and with what their volumes and devices need looked up; and what is told of the volumes of nodes.
// bench/prove/oracle judges by it what a shard makes of a pod.
func Reduce(rules api.Rules, nodes []*corev1.Node, objects []runtime.Object, pods []*corev1.Pod) (out []*api.Pod,
	volumes []event.NodeVolumes) {
	c := New(Config{Rules: rules, Keeps: func(*api.Pod) bool { return true }})
	now := time.Unix(0, 0)
	for _, n := range nodes {
		c.Step(now, event.NodeSeen{Node: api.FromNode(rules.StripNode(n), nil)})
	}
	for _, o := range objects {
		if ev := changed(o); ev != nil {
			c.Step(now, ev)
		}
	}
	stripped := make([]*corev1.Pod, len(pods))
	for i, p := range pods {
		stripped[i] = rules.StripPod(p)
	}
	c.Step(now, event.Listed[*corev1.Pod]{Objects: stripped, Ticket: 1})
	for _, o := range c.Outputs() {
		switch ev := o.(event.Tell).Event.(type) {
		case event.NodeVolumes:
			volumes = append(volumes, ev)
		case event.PodsListed:
			out = ev.Pods
		}
	}
	return out, volumes
}

// changed is the event of an object, stripped as at a relay.
func changed(o runtime.Object) event.Event {
	switch o := o.(type) {
	case *corev1.PersistentVolume:
		return event.Changed[*corev1.PersistentVolume]{Object: volume.StripVolume(o)}
	case *corev1.PersistentVolumeClaim:
		return event.Changed[*corev1.PersistentVolumeClaim]{Object: volume.StripClaim(o)}
	case *storagev1.StorageClass:
		return event.Changed[*storagev1.StorageClass]{Object: volume.StripClass(o)}
	case *storagev1.CSINode:
		return event.Changed[*storagev1.CSINode]{Object: StripCSINode(o)}
	case *storagev1.VolumeAttachment:
		return event.Changed[*storagev1.VolumeAttachment]{Object: StripAttachment(o)}
	case *storagev1.CSIDriver:
		return event.Changed[*storagev1.CSIDriver]{Object: StripCSIDriver(o)}
	case *storagev1.CSIStorageCapacity:
		return event.Changed[*storagev1.CSIStorageCapacity]{Object: volume.StripCapacity(o)}
	case *resourcev1.DeviceClass:
		return event.Changed[*resourcev1.DeviceClass]{Object: StripDeviceClass(o)}
	}
	return nil
}
