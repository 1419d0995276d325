package api

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Strip* leave of an object what Basalt reads, so that the rest is neither kept nor passed on between processes. They change
// nothing in what they are given, and share with it what they keep. Who has FromPod or FromNode read another field adds it
// here; a test compares.

// StripPod keeps what FromPod reads. Indexes in lists stay as they are, for messages name them.
func StripPod(p *v1.Pod) *v1.Pod {
	s := &p.Spec
	out := &v1.Pod{
		ObjectMeta: StripMeta(&p.ObjectMeta, LabelPodGroup, LabelQueue, LabelGang),
		Spec: v1.PodSpec{
			SchedulerName: s.SchedulerName, NodeName: s.NodeName, SchedulingGates: s.SchedulingGates, Priority: s.Priority,
			NodeSelector: s.NodeSelector, Tolerations: s.Tolerations, Affinity: s.Affinity,
			TopologySpreadConstraints: s.TopologySpreadConstraints, ResourceClaims: s.ResourceClaims, SchedulingGroup: s.SchedulingGroup,
			Overhead: s.Overhead, Containers: stripContainers(s.Containers), InitContainers: stripContainers(s.InitContainers),
		},
		Status: v1.PodStatus{Phase: p.Status.Phase},
	}
	for i := range p.OwnerReferences {
		if c := p.OwnerReferences[i].Controller; c != nil && *c {
			out.OwnerReferences = []metav1.OwnerReference{{Controller: c}}
		}
	}
	if s.Resources != nil {
		out.Spec.Resources = &v1.ResourceRequirements{Requests: s.Resources.Requests}
	}
	for i := range s.Volumes {
		v := &s.Volumes[i]
		if v.PersistentVolumeClaim == nil && v.Ephemeral == nil {
			continue
		}
		for len(out.Spec.Volumes) < i {
			out.Spec.Volumes = append(out.Spec.Volumes, v1.Volume{})
		}
		kept := v1.Volume{Name: v.Name}
		kept.PersistentVolumeClaim = v.PersistentVolumeClaim
		if v.Ephemeral != nil {
			kept.Ephemeral = &v1.EphemeralVolumeSource{}
		}
		out.Spec.Volumes = append(out.Spec.Volumes, kept)
	}
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse {
			out.Status.Conditions = []v1.PodCondition{{Type: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message}}
		}
	}
	if resized(p) {
		stripStatus(out, p)
	}
	return out
}

func stripContainers(in []v1.Container) []v1.Container {
	if len(in) == 0 {
		return nil
	}
	out := make([]v1.Container, len(in))
	for i := range in {
		c := &in[i]
		out[i] = v1.Container{RestartPolicy: c.RestartPolicy, Resources: v1.ResourceRequirements{Requests: c.Resources.Requests}}
		for _, port := range c.Ports {
			if port.HostPort > 0 {
				out[i].Ports = append(out[i].Ports, v1.ContainerPort{HostPort: port.HostPort, HostIP: port.HostIP, Protocol: port.Protocol})
			}
		}
	}
	return out
}

// StripNode keeps what FromNode reads.
func StripNode(n *v1.Node) *v1.Node {
	out := &v1.Node{
		ObjectMeta: StripMeta(&n.ObjectMeta),
		Spec:       v1.NodeSpec{Taints: n.Spec.Taints, Unschedulable: n.Spec.Unschedulable},
		Status:     v1.NodeStatus{Allocatable: n.Status.Allocatable},
	}
	out.Labels = n.Labels
	return out
}

// StripMeta keeps who an object is, and of its labels those named.
func StripMeta(m *metav1.ObjectMeta, labels ...string) metav1.ObjectMeta {
	out := metav1.ObjectMeta{
		Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion, Generation: m.Generation,
		CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp,
	}
	for _, name := range labels {
		if value, ok := m.Labels[name]; ok {
			if out.Labels == nil {
				out.Labels = make(map[string]string, len(labels))
			}
			out.Labels[name] = value
		}
	}
	return out
}
