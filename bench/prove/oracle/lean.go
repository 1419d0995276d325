package main

import (
	"strconv"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
)

// leaningPlugins are wishPlugins and those about preferred affinity between pods and ScheduleAnyway.
var leaningPlugins = map[string]bool{names.NodeAffinity: true, names.TaintToleration: true, names.InterPodAffinity: true, names.PodTopologySpread: true}

// lean is what the pods of a sequence prefer of the pods around them.
type lean int

const (
	leanNot    lean = iota
	leanSingly      // one thing, and nothing of nodes
	leanMuch        // several things, and nodes
	leanImages      // nothing of pods, but nodes that have its images
)

// onPods reports whether it is about pods at all.
func (l lean) onPods() bool { return l == leanSingly || l == leanMuch }

// leaner gives the pods of an app preferences about the pods of it and of others.
func (g *generator) leaner(s *v1.PodSpec, l lean, app, apps int) {
	of := func(app int) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"app": strconv.Itoa(app)}}
	}
	if l == leanSingly || g.oneIn(2) {
		s.Affinity = nil
	}
	if l == leanSingly {
		s.Tolerations = []v1.Toleration{{Operator: v1.TolerationOpExists}}
	}
	spread := func(key string) {
		s.TopologySpreadConstraints = append(s.TopologySpreadConstraints, v1.TopologySpreadConstraint{MaxSkew: int32(1 + g.IntN(2)), TopologyKey: key, WhenUnsatisfiable: v1.ScheduleAnyway, LabelSelector: of(app)})
	}
	term := func(key string, app int) []v1.WeightedPodAffinityTerm {
		return []v1.WeightedPodAffinityTerm{{Weight: int32(pick(g, 1, 10, 50, 100)), PodAffinityTerm: v1.PodAffinityTerm{TopologyKey: key, LabelSelector: of(app)}}}
	}
	if s.Affinity == nil {
		s.Affinity = &v1.Affinity{}
	}
	kinds := 7
	if l == leanSingly {
		kinds = 4
	}
	switch g.IntN(kinds) {
	case 0:
		spread(zoneKey)
	case 1:
		spread(hostnameKey)
	case 2:
		s.Affinity.PodAntiAffinity = &v1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: term(hostnameKey, app)}
	case 3:
		s.Affinity.PodAffinity = &v1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: term(pick(g, hostnameKey, zoneKey), g.IntN(apps))}
	case 4:
		spread(zoneKey)
		spread(hostnameKey)
	case 5:
		s.Affinity.PodAntiAffinity = &v1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: term(pick(g, hostnameKey, zoneKey), app)}
		spread(zoneKey)
	case 6:
		s.Affinity.PodAffinity = &v1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: term(zoneKey, g.IntN(apps))}
		s.Affinity.PodAntiAffinity = &v1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: term(hostnameKey, app)}
	}
}

// silent returns a case whose pods that are there prefer nothing any more: Basalt does not heed what they prefer.
func (c *Case) silent() *Case {
	out := *c
	out.Pods = nil
	for _, p := range c.Pods {
		p = p.DeepCopy()
		if a := p.Spec.Affinity; a != nil && a.PodAffinity != nil {
			a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution = nil
		}
		if a := p.Spec.Affinity; a != nil && a.PodAntiAffinity != nil {
			a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution = nil
		}
		out.Pods = append(out.Pods, p)
	}
	return &out
}
