package sim

import (
	corev1 "k8s.io/api/core/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1alpha1"
)

// Gangs in one topology domain, in runs with the line together: some PodGroups require a zone, some prefer a rack, which in runs without the
// line domains no node has, and some require that each two or three of their pods are in one clique, perhaps inside one zone.

const clique = "clique"

// cliques of nodes, which stay what they are; l2 is in none.
var cliques = map[string]string{"n0": "c0", "l0": "c0", "n1": "c0", "n2": "c1", "n3": "c1", "n4": "c2", "n5": "c2", "l1": "c2"}

// keepTogether gives a PodGroup its topology constraints, by its name.
func (l *workload) keepTogether(g *v1alpha1.PodGroup) {
	if !l.together {
		return
	}
	kind := int(api.BucketOf("together/" + g.Name))
	slice := v1alpha1.TopologyConstraint{Key: clique, SliceSize: min(g.Spec.SchedulingPolicy.Gang.MinCount, int32(2+kind/16%2))}
	switch {
	case kind%4 == 0:
		g.Spec.SchedulingConstraints = &v1alpha1.SchedulingConstraints{Topology: []v1alpha1.TopologyConstraint{{Key: rack, Mode: v1alpha1.TopologyPreferred}}}
	case l.repels || l.domains: // with what else their pods ask for, no zone might have room, ever
	case kind%4 == 1:
		g.Spec.SchedulingConstraints = &v1alpha1.SchedulingConstraints{Topology: []v1alpha1.TopologyConstraint{{Key: zone}, {Key: rack, Mode: v1alpha1.TopologyPreferred}}}
	case kind%8 == 2:
		g.Spec.SchedulingConstraints = &v1alpha1.SchedulingConstraints{Topology: []v1alpha1.TopologyConstraint{slice}}
	case kind%8 == 6:
		g.Spec.SchedulingConstraints = &v1alpha1.SchedulingConstraints{Topology: []v1alpha1.TopologyConstraint{{Key: zone}, slice}}
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

// sliced judges, when the last pod of a gang's minimum is bound and none of it has left, that each slice is in one clique: at most one clique
// has a number of its pods that is no multiple of the size. Where nodes moved to another zone meanwhile, their cliques may have been others.
func (c *check) sliced(gang string) {
	w := c.w
	if !w.load.together || gang == "" {
		return
	}
	size, least, keys := 0, 0, []string{clique}
	for _, o := range w.api.groups.objects {
		if g := o.Object.(*v1alpha1.PodGroup); string(g.UID) == gang && g.Spec.SchedulingConstraints != nil {
			for _, t := range g.Spec.SchedulingConstraints.Topology {
				if t.SliceSize > 0 {
					size, least = int(t.SliceSize), int(g.Spec.SchedulingPolicy.Gang.MinCount)
				} else if t.Key == zone {
					keys = append(keys, zone)
				}
			}
		}
	}
	ever := c.gang(gang).ever
	if size == 0 || len(ever) != least {
		return
	}
	has := map[string]int{}
	for uid := range ever {
		p := w.api.podByUID(uid)
		if p == nil || finished(p) || p.Spec.NodeName == "" || w.now.Sub(c.landed[uid]) > late || len(keys) > 1 && c.landed[uid].Sub(c.relabelledAt) < late {
			return
		}
		n := w.api.node(p.Spec.NodeName)
		if n == nil {
			return
		}
		domain := ""
		for _, key := range keys {
			domain += "/" + n.Labels[key]
		}
		if has[domain]++; n.Labels[clique] == "" {
			w.fail("C3: pod %s of a gang with slices is bound to %s, which is in no clique", uid, n.Name)
		}
	}
	w.count("gangs in slices")
	lacking := 0
	for _, n := range has {
		if n%size > 0 {
			lacking++
		}
	}
	if lacking > 1 {
		w.fail("C3: the slices of %d pods of gang %s are divided: %v", size, gang, has)
	}
}

// sliceOf returns the size of the slices of a gang, 0 if it has none.
func sliceOf(g *v1alpha1.PodGroup) int32 {
	if g.Spec.SchedulingConstraints != nil {
		for _, t := range g.Spec.SchedulingConstraints.Topology {
			if t.SliceSize > 0 {
				return t.SliceSize
			}
		}
	}
	return 0
}
