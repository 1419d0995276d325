package api

import (
	"strconv"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The Strip functions return what Basalt reads of an object, so that the rest is neither kept nor sent between processes. They do not
// modify their argument, and share with it what they keep. When FromPod or FromNode starts to read a field, keep it here too; a
// test compares them.

// StripPod keeps what FromPod reads. Indexes in lists stay as they are, for messages name them.
func StripPod(p *v1.Pod) *v1.Pod {
	s := &p.Spec
	affinity, spread := stripAffinity(p)
	out := &v1.Pod{
		ObjectMeta: StripMeta(&p.ObjectMeta, LabelPodGroup, LabelQueue, LabelPreemptible, LabelGang),
		Spec: v1.PodSpec{
			SchedulerName: s.SchedulerName, NodeName: s.NodeName, Priority: s.Priority, PreemptionPolicy: s.PreemptionPolicy, TerminationGracePeriodSeconds: s.TerminationGracePeriodSeconds,
			ActiveDeadlineSeconds: s.ActiveDeadlineSeconds,
			NodeSelector:          s.NodeSelector, Tolerations: s.Tolerations, Affinity: affinity,
			TopologySpreadConstraints: spread, SchedulingGroup: s.SchedulingGroup,
			Overhead: s.Overhead, Containers: stripContainers(s.Containers), InitContainers: stripContainers(s.InitContainers),
		},
		Status: v1.PodStatus{Phase: p.Status.Phase, StartTime: p.Status.StartTime, NominatedNodeName: p.Status.NominatedNodeName},
	}
	if wide := wideLabels(p); wide == "" {
		out.Labels = p.Labels
	} else {
		out.Annotations = map[string]string{annotationWide: wide}
	}
	if n := needsOf(s); n != noNeeds {
		if len(out.Spec.Containers) == 0 {
			out.Spec.Containers = []v1.Container{{}}
		}
		n.put(&out.Spec)
	}
	if len(s.SchedulingGates) > 0 {
		out.Spec.SchedulingGates = []v1.PodSchedulingGate{{}}
	}
	if len(s.ResourceClaims) > 0 {
		out.Spec.ResourceClaims = []v1.PodResourceClaim{{}}
	}
	if owner := metav1.GetControllerOfNoCopy(p); owner != nil {
		_, uid := controllerOf(p)
		out.OwnerReferences = []metav1.OwnerReference{{Controller: owner.Controller, Kind: makerOf(p), UID: types.UID(uid)}}
		if volcanoPerController(p) {
			out.OwnerReferences[0].UID = owner.UID
		}
	}
	if s.Resources != nil {
		out.Spec.Resources = &v1.ResourceRequirements{Requests: s.Resources.Requests}
	}
	out.Spec.Volumes = stripVolumes(s.Volumes)
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse {
			out.Status.Conditions = []v1.PodCondition{{Type: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message}}
		}
	}
	if resized(p) {
		stripStatus(out, p)
	}
	stripEnd(out, p)
	stripExcess(out)
	if _, excess := prefers(p); excess != "" {
		if out.Annotations == nil {
			out.Annotations = map[string]string{}
		}
		out.Annotations[annotationUnheeded] = excess
	}
	stripLeanings(out, p)
	if _, excess := repels(p); excess != "" && out.Status.Reason == "" {
		out.Status.Reason, out.Status.Message = excessConstraints, excess
	}
	if s.NodeName == "" {
		if _, field := joins(p); field != "" {
			out.Spec.TopologySpreadConstraints = nil
			if out.Spec.Affinity != nil {
				out.Spec.Affinity.PodAffinity = nil
			}
			if out.Status.Reason == "" {
				out.Status.Reason, out.Status.Message = excessConstraints, field
			}
		}
	}
	stripGroups(out, p)
	stripUser(out, p)
	if says := p.Annotations[AnnotationMaxRuntime]; says != "" {
		metav1.SetMetaDataAnnotation(&out.ObjectMeta, AnnotationMaxRuntime, Shorten(says, maxRuntimeWord))
	}
	if s.NodeName != "" {
		if cost := deletionCost(p); cost != 0 {
			metav1.SetMetaDataAnnotation(&out.ObjectMeta, v1.PodDeletionCost, strconv.Itoa(int(cost)))
		}
		if until := untilOf(p); until != 0 {
			metav1.SetMetaDataAnnotation(&out.ObjectMeta, AnnotationUntil, FormatUntil(until))
		}
		return out
	}
	if size := p.Size(); size > MaxPodBytes {
		if out.Annotations == nil {
			out.Annotations = map[string]string{}
		}
		out.Annotations[annotationSize] = strconv.Itoa(size)
	}
	return out
}

// Reasons of status that only StripPod writes: the pod exceeds a bound, status.message says which, and what exceeds it is
// left out. Pods of a megabyte would fill the relay's window and keep every shard busy with reading them.
const (
	excessRequests    = "scheduling.basalt.dev/requests"
	excessConstraints = "scheduling.basalt.dev/constraints"
)

// stripWords are the annotations that only StripPod writes.
var stripWords = []string{annotationUnheeded, annotationUnleaned, annotationWide, annotationSize}

// stripExcess replaces what exceeds a bound by words. The host ports and disks that a node counts stay, and so do the requests of a pod
// that has a node.
func stripExcess(p *v1.Pod) {
	s := &p.Spec
	ports := []v1.Container(nil)
	constraints := constrain(s)
	if constraints != nil {
		if excess := checkConstraints(constraints); excess != "" {
			p.Status.Reason, p.Status.Message = excessConstraints, excess
			constraints = onlyExclusive(constraints)
			s.NodeSelector, s.Tolerations, s.HostUsers = nil, nil, nil
			if s.Affinity != nil {
				s.Affinity.NodeAffinity = nil
			}
			for _, list := range [][]v1.Container{s.Containers, s.InitContainers} {
				for i := range list {
					list[i].Ports, list[i].RestartPolicyRules, list[i].VolumeMounts = nil, nil, nil
				}
			}
			if len(s.Containers) > 0 && constraints != nil && len(constraints.Containers) > 0 {
				s.Containers[0].Ports = constraints.Containers[0].Ports
			}
			kept := 0
			if constraints != nil {
				kept = len(constraints.Volumes)
			}
			for i := range s.Volumes {
				if !exclusiveDisk(&s.Volumes[i]) {
					continue
				}
				if kept--; kept < 0 {
					s.Volumes[i] = v1.Volume{}
				}
			}
		}
		if constraints != nil {
			ports = constraints.Containers
		}
	}
	if s.NodeName != "" {
		return
	}
	if _, err := checkCounts(p); err != nil {
		p.Status.Reason, p.Status.Message = excessRequests, err.Error()
		s.Containers, s.InitContainers, s.Overhead, s.Resources = ports, nil, nil, nil
	}
}

// stripAffinity keeps what is required of nodes, and of the pods around, and what is preferred of nodes.
func stripAffinity(p *v1.Pod) (*v1.Affinity, []v1.TopologySpreadConstraint) {
	joined, spread := stripJoins(p)
	a := p.Spec.Affinity
	if a == nil {
		return nil, spread
	}
	out := &v1.Affinity{PodAffinity: joined}
	preferred, _ := prefers(p)
	if n := a.NodeAffinity; n != nil && (n.RequiredDuringSchedulingIgnoredDuringExecution != nil || len(preferred) > 0) {
		out.NodeAffinity = &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: n.RequiredDuringSchedulingIgnoredDuringExecution,
			PreferredDuringSchedulingIgnoredDuringExecution: preferred}
	}
	if terms, _ := repels(p); len(terms) > 0 {
		out.PodAntiAffinity = &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms}
	}
	return out, spread
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
		Status:     v1.NodeStatus{Allocatable: n.Status.Allocatable, DeclaredFeatures: n.Status.DeclaredFeatures},
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
