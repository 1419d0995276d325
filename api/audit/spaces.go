package audit

import (
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8slabels "k8s.io/apimachinery/pkg/labels"

	"basalt.dev/basalt/api"
)

// Namespaces matter to the terms that select them by their labels. A judge may not have seen for a while that labels changed, so a
// namespace that was labelled anew of late counts as one that such a term may be about.

// space is a namespace.
type space struct {
	labels map[string]string
	since  time.Time // it was seen with them
}

func (a *Auditor) spaceSeen(o *v1.Namespace) {
	if known, is := a.cluster.spaces[o.Name]; !is || !maps.Equal(known.labels, o.Labels) {
		a.cluster.spaces[o.Name] = space{o.Labels, a.now}
	}
}

func (a *Auditor) spacesReplaced(list []*v1.Namespace) {
	there := map[string]bool{}
	for _, o := range list {
		there[o.Name] = true
		a.spaceSeen(o)
	}
	maps.DeleteFunc(a.cluster.spaces, func(name string, _ space) bool { return !there[name] })
}

// about reports whether a term of a pod is about the pods of a namespace, and since when that has been known.
func (a *Auditor) about(t *v1.PodAffinityTerm, own, other string) (yes bool, since time.Time) {
	switch {
	case slices.Contains(t.Namespaces, other):
		return true, time.Time{}
	case t.NamespaceSelector == nil:
		return len(t.Namespaces) == 0 && own == other, time.Time{}
	}
	selector, err := metav1.LabelSelectorAsSelector(t.NamespaceSelector)
	if err != nil || selector.Empty() {
		return err == nil, time.Time{}
	}
	s, known := a.cluster.spaces[other]
	if !known {
		return false, a.now
	}
	return selector.Matches(k8slabels.Set(s.labels)), s.since
}

// repelsIn is about for a term of anti-affinity: about other namespaces it is only by right.
func repelsIn(a *Auditor, t *v1.PodAffinityTerm, own, other string) (yes bool, since time.Time) {
	if yes, since = a.about(t, own, other); own == other || !yes {
		return yes, since
	}
	s, known := a.cluster.spaces[own]
	if !known || s.labels[api.LabelRepelsOthers] != "true" {
		return false, a.now
	}
	if s.since.After(since) {
		since = s.since
	}
	return true, since
}
