package api

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
)

// foreignGroup is a label or annotation by which other schedulers and queueing systems put a pod into a group. A pod that has one
// expects to start together with the others of that group, or to be counted with them. Bound as a pod of its own it would start
// alone and without their quota, so it is refused for as long as Basalt does not serve groups of that kind.
type foreignGroup struct {
	key        string
	annotation bool
	kind       string // for users
}

var foreignGroups = []foreignGroup{
	{"scheduling.k8s.io/group-name", true, "Volcano PodGroup"},
	{"scheduling.volcano.sh/group-name", true, "Volcano PodGroup"},
	{"kueue.x-k8s.io/pod-group-name", false, "Kueue pod group"},
	{"scheduling.x-k8s.io/pod-group", false, "PodGroup of the coscheduling plugin"},
	{"pod-group.scheduling.sigs.k8s.io", false, "PodGroup of the coscheduling plugin"},
	{"pod-group.scheduling.sigs.k8s.io/name", false, "PodGroup of the coscheduling plugin"},
	{"gang.scheduling.koordinator.sh/name", true, "Koordinator gang"},
	{"yunikorn.apache.org/task-group-name", true, "YuniKorn task group"},
}

// maxGroupName is how much of a group's name is repeated to a user: an annotation may have 256 KiB.
const maxGroupName = 253

// name returns which group a pod names, "" for none.
func (f *foreignGroup) name(m *v1.Pod) string {
	from := m.Labels
	if f.annotation {
		from = m.Annotations
	}
	return Shorten(from[f.key], maxGroupName)
}

func (f *foreignGroup) field() string {
	if f.annotation {
		return "metadata.annotations[" + f.key + "]"
	}
	return "metadata.labels[" + f.key + "]"
}

// unservedGroup says which group of a kind that Basalt does not serve a pod names, "" for none.
func unservedGroup(p *v1.Pod) string {
	field, kind, name := "", "", ""
	if g := p.Spec.SchedulingGroup; g != nil {
		field, kind = "spec.schedulingGroup", "PodGroup of scheduling.k8s.io"
		if g.PodGroupName != nil {
			name = Shorten(*g.PodGroupName, maxGroupName)
		}
	}
	for i := range foreignGroups {
		if f := &foreignGroups[i]; field == "" && f.name(p) != "" {
			field, kind, name = f.field(), f.kind, f.name(p)
		}
	}
	switch own := p.Labels[LabelPodGroup]; {
	case field == "":
		return ""
	case own != "":
		return fmt.Sprintf("%s names the %s %q, and the label %s names PodGroup %q: a pod belongs to one group", field, kind, name, LabelPodGroup, own)
	}
	return fmt.Sprintf("%s names the %s %q: Basalt does not serve such groups yet and does not bind the pod alone. "+
		"To place it with others, name a PodGroup of scheduling.basalt.dev in the label %s", field, kind, name, LabelPodGroup)
}

// stripGroups keeps what unservedGroup reads of labels and annotations.
func stripGroups(to, p *v1.Pod) {
	keep := func(m *map[string]string, key, value string) {
		if *m == nil {
			*m = map[string]string{}
		}
		(*m)[key] = value
	}
	for i := range foreignGroups {
		f := &foreignGroups[i]
		switch name := f.name(p); {
		case name == "":
		case f.annotation:
			keep(&to.Annotations, f.key, name)
		default:
			keep(&to.Labels, f.key, name)
		}
	}
}
