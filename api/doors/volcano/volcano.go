// Package volcano reads PodGroups of scheduling.volcano.sh as Basalt's own, and puts their statuses into Volcano's words. Its functions
// are pure functions of one object: they call nobody, keep nothing, and never fail. A PodGroup that asks for what Basalt cannot do is refused as a whole, with the field: its gang
// waits and says why.
//
// What is read of a PodGroup:
//
//	minMember            how many pods start together; 0 and 1 start each pod by itself
//	minTaskMember        how many of them are of each task (annotation or label volcano.sh/task-spec), where minMember is at least their
//	                     sum; Volcano itself ignores them elsewhere
//	minResources         what the gang is charged at least, so that pods which come later find quota; the keys of a ResourceQuota in it,
//	                     such as requests.cpu and count/pods, say the same twice and are ignored
//	queue                the Queue of scheduling.basalt.dev that stands for it (package mirror), else the one with that name
//	priorityClassName    as in Basalt's PodGroups
//	annotation volcano.sh/preemptable   "true" or "false": whether the gang may be evicted for another; anything else says nothing
//	status.phase         Running, Unknown and Completed mean that the gang has started, Inqueue that its pods may be made
//
//	networkTopology      with topologyLevels in Basalt's configuration, labels of nodes that stand for the tiers of HyperNodes: tier 1 is the
//	                     last of them, or the one before kubernetes.io/hostname, and a tier's name is its label. Mode hard requires a
//	                     domain of the highest tier that is allowed, and prefers smaller ones; mode soft prefers one of tier 1, and
//	                     then larger ones. HyperNodes themselves are not read
//
// What is refused: networkTopology with mode hard whose tier is not one of the levels, and subGroupPolicy. What is not honoured: networkTopology
// with mode soft where there are no levels, and what else Volcano keeps in annotations.
//
// A status that Basalt writes says, in 2 or 3 writes of a gang:
//
//	Pending    its minResources are not reserved: Unschedulable, with the queue, the resource and the amount
//	Inqueue    they are, or it has none, or its pods exist: Volcano's job controller makes pods from here on. Where there is no room
//	           for them, it is Unschedulable all the same
//	Running    its minimum of pods has been bound: Scheduled. It does not become Pending or Unknown after that
//	Completed  all its pods have ended
//
// The counts of pods are not written.
package volcano

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	volcano "volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1beta1"
)

// maxTasks bounds the tasks of a PodGroup: each look at its gang counts the pods of each.
const maxTasks = 256

// Group returns a PodGroup as one of Basalt's, without a status, and what such a one cannot say. Resources that are ignored are not
// part of its floor. levels are the labels that stand for tiers, the largest first.
func Group(g *volcano.PodGroup, ignored map[string]bool, levels []string) (*v1beta1.PodGroup, *api.ForeignGroup) {
	out := &v1beta1.PodGroup{
		ObjectMeta: api.StripMeta(&g.ObjectMeta),
		Spec: v1beta1.PodGroupSpec{Queue: g.Spec.Queue, PriorityClassName: g.Spec.PriorityClassName,
			Preemptible: api.YesOrNo(g.Annotations[volcano.PodPreemptable])},
	}
	out.Spec.SchedulingPolicy.Gang.MinCount = max(1, g.Spec.MinMember)
	more := &api.ForeignGroup{Kind: api.VolcanoGroup}
	more.Status = shown(&g.Status)
	more.Roles = tasks(&g.Spec)
	field := refused(&g.Spec)
	if topology, wrong := within(g.Spec.NetworkTopology, levels); wrong != "" {
		field = cmp.Or(field, wrong)
	} else if len(topology) > 0 {
		out.Spec.SchedulingConstraints = &v1beta1.SchedulingConstraints{Topology: topology}
	}
	if floor, err := floor(&g.Spec, ignored); err == nil {
		more.Floor = floor
	} else if field == "" {
		field = err.Error()
	}
	more.Refused = api.RefuseGroup(more.Kind, g.Namespace, g.Name, field)
	return out, more
}

// tasks returns how many pods of each task have to start together, sorted by task.
func tasks(s *volcano.PodGroupSpec) []api.Role {
	var sum int64
	for _, n := range s.MinTaskMember {
		sum += int64(max(0, n))
	}
	if sum == 0 || sum > int64(s.MinMember) || len(s.MinTaskMember) > maxTasks {
		return nil
	}
	var out []api.Role
	for _, name := range slices.Sorted(maps.Keys(s.MinTaskMember)) {
		if n := s.MinTaskMember[name]; n > 0 {
			out = append(out, api.Role{Name: name, Min: int(n)})
		}
	}
	return out
}

// refused names what a spec asks for that Basalt cannot do, "" if there is nothing.
func refused(s *volcano.PodGroupSpec) string {
	if s.Queue != "" {
		if err := api.ValidatePath(s.Queue); err != nil {
			return "spec.queue: " + err.Error()
		}
	}
	if len(s.SubGroupPolicy) > 0 {
		return "spec.subGroupPolicy is not supported yet"
	}
	if len(s.MinTaskMember) > maxTasks {
		return fmt.Sprintf("spec.minTaskMember names %d tasks, the limit is %d", len(s.MinTaskMember), maxTasks)
	}
	return ""
}

// within returns the topology domains that a network topology asks for, or names what it asks for that there is not.
func within(t *volcano.NetworkTopologySpec, levels []string) (out []v1beta1.TopologyConstraint, wrong string) {
	if t == nil {
		return nil, ""
	}
	tiers := slices.Clone(levels) // from tier 1 up
	slices.Reverse(tiers)
	if len(tiers) > 0 && tiers[0] == corev1.LabelHostname { // tier 0
		tiers = tiers[1:]
	}
	if len(tiers) > 0 {
		out = []v1beta1.TopologyConstraint{{Key: tiers[0], Mode: v1beta1.TopologyPreferred}}
	}
	if t.Mode == volcano.SoftNetworkTopologyMode {
		return out, ""
	}
	tier := 0
	switch {
	case len(tiers) == 0:
		return nil, "spec.networkTopology with mode hard: topologyLevels in the configuration of Basalt has no labels for tiers"
	case t.HighestTierName != "":
		if tier = 1 + slices.Index(tiers, t.HighestTierName); tier == 0 {
			return nil, fmt.Sprintf("spec.networkTopology.highestTierName: %q is not one of topologyLevels, which are %s", api.Shorten(t.HighestTierName, 64), strings.Join(tiers, ", "))
		}
	case t.HighestTierAllowed == nil:
		return nil, "spec.networkTopology with mode hard has neither highestTierAllowed nor highestTierName"
	default:
		if tier = *t.HighestTierAllowed; tier < 1 || tier > len(tiers) {
			return nil, fmt.Sprintf("spec.networkTopology.highestTierAllowed: there is no tier %d: topologyLevels has labels for tiers 1 to %d", tier, len(tiers))
		}
	}
	if tier == 1 {
		out = nil
	}
	return append(out, v1beta1.TopologyConstraint{Key: tiers[tier-1], Mode: v1beta1.TopologyRequired}), ""
}

// floor returns what minResources says that the gang is charged at least.
func floor(s *volcano.PodGroupSpec, ignored map[string]bool) (api.Resources, error) {
	if s.MinResources == nil {
		return nil, nil
	}
	counted := corev1.ResourceList{}
	for name, q := range *s.MinResources {
		if charged(string(name)) {
			counted[name] = q
		}
	}
	return api.FloorOf(counted, s.MinMember, ignored)
}

// charged reports whether a pod can be charged for a resource. Others are keys of a ResourceQuota, by which Volcano's controllers say
// once more what they say without a prefix.
func charged(name string) bool {
	if len(name) > api.MaxResourceName {
		return false
	}
	for _, prefix := range []string{"count/", corev1.DefaultResourceRequestsPrefix, "limits."} {
		if strings.HasPrefix(name, prefix) {
			return false
		}
	}
	switch corev1.ResourceName(name) {
	case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, corev1.ResourcePods:
		return true
	}
	return strings.Contains(name, "/") || strings.HasPrefix(name, corev1.ResourceHugePagesPrefix)
}

// Limits returns what of a Queue's capability or guarantee can be a limit.
func Limits(of corev1.ResourceList) corev1.ResourceList {
	out := corev1.ResourceList{}
	for name, q := range of {
		if charged(string(name)) {
			out[name] = q
		}
	}
	return out
}

// Strip returns what Group reads of a PodGroup. It shares with its argument what it keeps.
func Strip(g *volcano.PodGroup) *volcano.PodGroup {
	out := &volcano.PodGroup{ObjectMeta: api.StripMeta(&g.ObjectMeta), Spec: g.Spec, Status: *Status(shown(&g.Status), metav1.Time{})}
	out.Status.Phase = g.Status.Phase
	if value := g.Annotations[volcano.PodPreemptable]; api.YesOrNo(value) != nil {
		out.Annotations = map[string]string{volcano.PodPreemptable: value}
	}
	if g.Spec.MinResources != nil {
		out.Spec.MinResources = &corev1.ResourceList{}
		for _, name := range slices.Sorted(maps.Keys(*g.Spec.MinResources)) {
			if charged(string(name)) && len(*out.Spec.MinResources) <= 2*api.MaxResources {
				(*out.Spec.MinResources)[name] = (*g.Spec.MinResources)[name]
			}
		}
	}
	return out
}

// shown returns what a status says.
func shown(s *volcano.PodGroupStatus) api.GroupStatus {
	var out api.GroupStatus
	switch s.Phase {
	case volcano.PodGroupCompleted:
		out.Ended = true
		fallthrough
	case volcano.PodGroupRunning, volcano.PodGroupUnknown:
		out.Scheduled.Yes = true
		fallthrough
	case volcano.PodGroupInqueue:
		out.Reserved.Yes = true
	}
	for i := range s.Conditions {
		if c := &s.Conditions[i]; c.Type == volcano.PodGroupUnschedulableType && c.Status == corev1.ConditionTrue && c.Message != "" && !out.Scheduled.Yes {
			out.Reserved.Message, out.Reserved.Reason = api.Shorten(c.Message, api.MaxGroupMessage), ""
			if c.Reason == volcano.NotEnoughPodsOfTaskReason {
				out.Reserved.Reason = v1beta1.ReasonNotEnoughPodsOfTask
			}
		}
	}
	return out
}

// Status returns the status that says something, as Volcano's controllers and users read it. They take the condition that changed last.
func Status(say api.GroupStatus, now metav1.Time) *volcano.PodGroupStatus {
	out := &volcano.PodGroupStatus{Phase: volcano.PodGroupPending}
	condition := func(kind volcano.PodGroupConditionType, status corev1.ConditionStatus, at metav1.Time, reason, message string) {
		out.Conditions = append(out.Conditions, volcano.PodGroupCondition{
			Type: kind, Status: status, LastTransitionTime: at, TransitionID: "basalt", Reason: reason, Message: message})
	}
	switch {
	case say.Ended:
		out.Phase = volcano.PodGroupCompleted
	case say.Scheduled.Yes:
		out.Phase = volcano.PodGroupRunning
	case say.Reserved.Yes:
		out.Phase = volcano.PodGroupInqueue
	}
	switch {
	case say.Scheduled.Yes:
		condition(volcano.PodGroupScheduled, corev1.ConditionTrue, now, "tasks in gang are ready to be scheduled", "its minimum of pods was bound")
	case say.Reserved.Message != "":
		reason := volcano.NotEnoughResourcesReason
		if say.Reserved.Reason == v1beta1.ReasonNotEnoughPodsOfTask {
			reason = volcano.NotEnoughPodsOfTaskReason
		}
		condition(volcano.PodGroupUnschedulableType, corev1.ConditionTrue, now, reason, say.Reserved.Message)
	}
	return out
}
