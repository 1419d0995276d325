package sim

import (
	corev1 "k8s.io/api/core/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1alpha1"
)

// Gangs in one topology domain, in runs with the line together: some PodGroups require a zone, some prefer a rack, which in runs without the
// line domains no node has.

// keepTogether gives a PodGroup its topology constraints, by its name.
func (l *workload) keepTogether(g *v1alpha1.PodGroup) {
	if !l.together {
		return
	}
	switch kind := int(api.BucketOf("together/" + g.Name)); {
	case kind%4 == 0:
		g.Spec.SchedulingConstraints = &v1alpha1.SchedulingConstraints{Topology: []v1alpha1.TopologyConstraint{{Key: rack, Mode: v1alpha1.TopologyPreferred}}}
	case l.repels || l.domains: // with what else their pods ask for, no zone might have room, ever
	case kind%4 == 1:
		g.Spec.SchedulingConstraints = &v1alpha1.SchedulingConstraints{Topology: []v1alpha1.TopologyConstraint{{Key: zone}, {Key: rack, Mode: v1alpha1.TopologyPreferred}}}
	default:
		g.Spec.SchedulingConstraints = &v1alpha1.SchedulingConstraints{Topology: []v1alpha1.TopologyConstraint{{Key: zone}}}
	}
}

// together judges that a pod that a Binding of ours bound is in the zone of its gang, if it requires one. Where nodes were relabelled since
// others of the gang were bound, or shortly before, their zone may have been another one.
func (c *check) together(uid, gang string) {
	w := c.w
	p := w.api.podByUID(uid)
	if !w.load.together || p == nil || gang == "" {
		return
	}
	required := false
	for _, o := range w.api.groups.objects {
		if g := o.Object.(*v1alpha1.PodGroup); string(g.UID) == gang && g.Spec.SchedulingConstraints != nil {
			for _, t := range g.Spec.SchedulingConstraints.Topology {
				required = required || t.Key == zone && t.Mode != v1alpha1.TopologyPreferred
			}
		}
	}
	own := w.api.node(p.Spec.NodeName)
	if !required || own == nil || w.now.Sub(c.relabelledAt) < late {
		return
	}
	for _, o := range w.api.pods.objects {
		other := o.Object.(*corev1.Pod)
		if other.UID == p.UID || other.Spec.NodeName == "" || finished(other) || c.bound[string(other.UID)] != gang || !c.gang(gang).ever[string(other.UID)] || c.relabelledAt.After(c.landed[string(other.UID)]) {
			continue
		}
		if n := w.api.node(other.Spec.NodeName); n != nil {
			if w.count("pairs of pods in one zone"); n.Labels[zone] != own.Labels[zone] {
				w.fail("C3: pod %s is bound to %s in zone %s, and pod %s of the same gang is on %s in zone %s", p.UID, own.Name, own.Labels[zone], other.UID, n.Name, n.Labels[zone])
			}
		}
	}
}
