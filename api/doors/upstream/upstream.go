// Package upstream reads PodGroups of scheduling.k8s.io, Kubernetes' own, as Basalt's, and puts their statuses into Kubernetes' words.
// Its functions are pure functions of one object: they call nobody, keep nothing, and never fail. A PodGroup that asks for what Basalt
// cannot do is refused as a whole, with the field: its gang waits and says why.
//
// What is read of a PodGroup:
//
//	schedulingPolicy.gang.minCount   how many pods start together
//	schedulingPolicy.basic           each pod starts by itself
//	schedulingConstraints.topology   one label of nodes: the gang is in one domain of it, as required in Basalt's PodGroups
//	priorityClassName                as in Basalt's PodGroups
//	disruptionMode.all               the gang is evicted as a whole or not at all
//	label scheduling.basalt.dev/queue   the queue that pays; without it, that of the pods or of the namespace
//	label scheduling.basalt.dev/preemptible   "true" or "false": whether the gang may be evicted for another; anything else says nothing
//	preemptionPolicy                 Never: nobody is evicted for it; nor is anybody if one of its pods says so
//
// What is refused: more than one topology constraint, resourceClaims and parentCompositePodGroupName.
//
// A status that Basalt writes has the condition PodGroupInitiallyScheduled, with Kubernetes' reasons Scheduled and Unschedulable where they
// fit, and one of its own, QuotaReserved. Unschedulable is said only of a gang that has quota, or would get it if there were nodes, for
// autoscalers buy nodes for it. Other conditions and fields of the status are not touched: they have other writers.
package upstream

import (
	"fmt"

	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1beta1"
)

// Group returns a PodGroup as one of Basalt's, without a status, and what such a one cannot say.
func Group(g *schedulingv1beta1.PodGroup) (*v1beta1.PodGroup, *api.ForeignGroup) {
	out := &v1beta1.PodGroup{
		ObjectMeta: api.StripMeta(&g.ObjectMeta),
		Spec: v1beta1.PodGroupSpec{Queue: g.Labels[api.LabelQueue], PriorityClassName: g.Spec.PriorityClassName,
			Preemptible: api.YesOrNo(g.Labels[api.LabelPreemptible])},
	}
	out.Spec.SchedulingPolicy.Gang.MinCount = 1
	if gang := g.Spec.SchedulingPolicy.Gang; gang != nil {
		out.Spec.SchedulingPolicy.Gang.MinCount = max(1, gang.MinCount)
	}
	if d := g.Spec.DisruptionMode; d != nil && d.All != nil {
		out.Spec.DisruptionMode = v1beta1.DisruptPodGroup
	}
	if c := g.Spec.SchedulingConstraints; c != nil && len(c.Topology) == 1 {
		out.Spec.SchedulingConstraints = &v1beta1.SchedulingConstraints{Topology: []v1beta1.TopologyConstraint{{Key: c.Topology[0].Key}}}
	}
	never := g.Spec.PreemptionPolicy != nil && *g.Spec.PreemptionPolicy == schedulingv1beta1.PreemptNever
	return out, &api.ForeignGroup{Kind: api.UpstreamGroup, Never: never, Status: shown(&g.Status),
		Refused: api.RefuseGroup(api.UpstreamGroup, g.Namespace, g.Name, refused(g))}
}

// refused names what a PodGroup asks for that Basalt cannot do, "" if there is nothing.
func refused(g *schedulingv1beta1.PodGroup) string {
	s := &g.Spec
	if queue := g.Labels[api.LabelQueue]; queue != "" {
		if err := api.ValidatePath(queue); err != nil {
			return fmt.Sprintf("metadata.labels[%s]: %s", api.LabelQueue, err)
		}
	}
	switch {
	case s.SchedulingConstraints != nil && len(s.SchedulingConstraints.Topology) > 1:
		return "spec.schedulingConstraints.topology: more than one constraint is not supported yet"
	case len(s.ResourceClaims) > 0:
		return "spec.resourceClaims is not supported yet"
	case s.ParentCompositePodGroupName != nil && *s.ParentCompositePodGroupName != "":
		return "spec.parentCompositePodGroupName is not supported yet"
	}
	return ""
}

// Strip returns what Group reads of a PodGroup. It shares with its argument what it keeps.
func Strip(g *schedulingv1beta1.PodGroup) *schedulingv1beta1.PodGroup {
	out := &schedulingv1beta1.PodGroup{ObjectMeta: api.StripMeta(&g.ObjectMeta)}
	for _, label := range []string{api.LabelQueue, api.LabelPreemptible} {
		if value := g.Labels[label]; value != "" {
			metav1.SetMetaDataLabel(&out.ObjectMeta, label, value)
		}
	}
	s := &g.Spec
	out.Spec = schedulingv1beta1.PodGroupSpec{SchedulingPolicy: s.SchedulingPolicy, PriorityClassName: s.PriorityClassName, ParentCompositePodGroupName: s.ParentCompositePodGroupName,
		DisruptionMode: s.DisruptionMode, PreemptionPolicy: s.PreemptionPolicy}
	if c := s.SchedulingConstraints; c != nil {
		out.Spec.SchedulingConstraints = &schedulingv1beta1.PodGroupSchedulingConstraints{Topology: c.Topology[:min(2, len(c.Topology))]}
	}
	out.Spec.ResourceClaims = s.ResourceClaims[:min(1, len(s.ResourceClaims))]
	for i := range g.Status.Conditions {
		if c := &g.Status.Conditions[i]; c.Type == v1beta1.ConditionQuotaReserved || c.Type == schedulingv1beta1.PodGroupInitiallyScheduled {
			short := *c
			short.Message = api.Shorten(c.Message, api.MaxGroupMessage)
			out.Status.Conditions = append(out.Status.Conditions, short)
		}
	}
	return out
}

// shown returns what a status says.
func shown(s *schedulingv1beta1.PodGroupStatus) api.GroupStatus {
	of := func(kind string) api.Verdict {
		c := meta.FindStatusCondition(s.Conditions, kind)
		if c == nil {
			return api.Verdict{}
		}
		return api.Verdict{Yes: c.Status == metav1.ConditionTrue, Reason: c.Reason, Message: api.Shorten(c.Message, api.MaxGroupMessage)}
	}
	return api.GroupStatus{Reserved: of(v1beta1.ConditionQuotaReserved), Scheduled: of(schedulingv1beta1.PodGroupInitiallyScheduled)}
}

// Conditions returns the conditions that say something of a generation of a PodGroup. The transition of one that turns, from what was
// seen to what is to be said, is now. That of another one is left out of the patch, so that it stays.
func Conditions(say, seen api.GroupStatus, generation int64, now metav1.Time) []map[string]any {
	condition := func(kind string, say, seen api.Verdict) map[string]any {
		status := metav1.ConditionFalse
		if say.Yes {
			status = metav1.ConditionTrue
		}
		out := map[string]any{"type": kind, "status": status, "reason": say.Reason, "message": say.Message, "observedGeneration": generation}
		if seen.Reason == "" || seen.Yes != say.Yes {
			out["lastTransitionTime"] = now
		}
		return out
	}
	return []map[string]any{
		condition(v1beta1.ConditionQuotaReserved, say.Reserved, seen.Reserved),
		condition(schedulingv1beta1.PodGroupInitiallyScheduled, say.Scheduled, seen.Scheduled),
	}
}
