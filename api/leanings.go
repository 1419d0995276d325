package api

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// Leanings of pods: preferred pod affinity and anti-affinity, and topology spread with ScheduleAnyway. Like wishes they make some nodes
// better for a pod and keep it from none, but which nodes depends on the pods around them. They are part of the class of a pod that waits.
//
// A pod beyond a bound is placed without its leanings, and is told so.
const (
	MaxLeaningBytes = 8 << 10 // encoded
	MaxLeanings     = 32      // terms and constraints
	MaxTermWeight   = 100     // kube-apiserver admits no more; what is more is read as this

	fieldPrefersPods    = "spec.affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution"
	fieldPrefersNoPods  = "spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution"
	fieldScheduleAnyway = "preferred terms of pod affinity and anti-affinity, and topology spread with ScheduleAnyway"
	// annotationUnleaned is set by StripPod on a pod whose leanings exceed a bound, instead of them.
	annotationUnleaned = "scheduling.basalt.dev/unheeded-pods"
)

// leans returns the leanings of a pod that waits, or why they are left out. Equal ones are equal, in whatever order they were.
func leans(p *v1.Pod) (spec *v1.PodSpec, excess string) {
	if p.Spec.NodeName != "" {
		return nil, ""
	}
	if excess := p.Annotations[annotationUnleaned]; strings.HasPrefix(excess, "spec.") || strings.HasPrefix(excess, fieldScheduleAnyway) {
		return nil, Shorten(excess, maxUnheeded)
	}
	var near, apart []v1.WeightedPodAffinityTerm
	var field string
	if a := p.Spec.Affinity; a != nil && a.PodAffinity != nil {
		near, field = weighted(p, fieldPrefersPods, a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if a := p.Spec.Affinity; a != nil && a.PodAntiAffinity != nil && field == "" {
		apart, field = weighted(p, fieldPrefersNoPods, a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if field != "" {
		return nil, Shorten(field, maxUnheeded)
	}
	var spreads []v1.TopologySpreadConstraint
	for i := range p.Spec.TopologySpreadConstraints {
		c := &p.Spec.TopologySpreadConstraints[i]
		if c.WhenUnsatisfiable != v1.ScheduleAnyway {
			continue
		}
		if _, err := Selector(c.LabelSelector); err != nil {
			return nil, Shorten(fmt.Sprintf("%s[%d].labelSelector: %v", fieldSpread, i, err), maxUnheeded)
		}
		s := spreadOf(c, p.Labels)
		s.MinDomains = nil
		spreads = append(spreads, s)
	}
	n := len(near) + len(apart) + len(spreads)
	switch {
	case n == 0:
		return nil, ""
	case n > MaxLeanings:
		return nil, fmt.Sprintf("%s: there are %d, the limit is %d", fieldScheduleAnyway, n, MaxLeanings)
	}
	spec = &v1.PodSpec{TopologySpreadConstraints: spreads}
	if len(near)+len(apart) > 0 {
		spec.Affinity = &v1.Affinity{}
	}
	if len(near) > 0 {
		spec.Affinity.PodAffinity = &v1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: sorted(near)}
	}
	if len(apart) > 0 {
		spec.Affinity.PodAntiAffinity = &v1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: sorted(apart)}
	}
	spec.TopologySpreadConstraints = sorted(spec.TopologySpreadConstraints)
	if n := spec.Size(); n > MaxLeaningBytes {
		return nil, fmt.Sprintf("%s: they have %d bytes, the limit is %d", fieldScheduleAnyway, n, MaxLeaningBytes)
	}
	return spec, ""
}

// weighted returns the terms that count, with the namespaces that they mean, or names one that cannot be read.
func weighted(p *v1.Pod, field string, terms []v1.WeightedPodAffinityTerm) (out []v1.WeightedPodAffinityTerm, unreadable string) {
	for i := range terms {
		t := &terms[i]
		if bad := unreadableTerm(&t.PodAffinityTerm); bad != "" {
			return nil, fmt.Sprintf("%s[%d].podAffinityTerm.%s", field, i, bad)
		}
		if t.Weight > 0 && t.PodAffinityTerm.LabelSelector != nil { // one without a selector matches no pod
			out = append(out, v1.WeightedPodAffinityTerm{Weight: t.Weight, PodAffinityTerm: termOf(&t.PodAffinityTerm, p.Namespace)})
		}
	}
	return out, ""
}

// sorted sorts by encoded bytes.
func sorted[T any, P interface {
	*T
	Marshal() ([]byte, error)
}](in []T) []T {
	type encoded struct {
		bytes []byte
		item  T
	}
	all := make([]encoded, len(in))
	for i := range in {
		b, _ := P(&in[i]).Marshal()
		all[i] = encoded{b, in[i]}
	}
	slices.SortStableFunc(all, func(a, b encoded) int { return bytes.Compare(a.bytes, b.bytes) })
	for i := range all {
		in[i] = all[i].item
	}
	return in
}

// encodeLeanings returns Class.Leanings, or why they are left out.
func encodeLeanings(p *v1.Pod) (encoded []byte, excess string) {
	spec, excess := leans(p)
	if spec == nil {
		return nil, excess
	}
	encoded, err := spec.Marshal()
	if err != nil {
		return nil, Shorten(fieldScheduleAnyway+": "+err.Error(), maxUnheeded)
	}
	return encoded, ""
}

// stripLeanings keeps what leans reads, each spread constraint at its place in the list, or says why it is left out.
func stripLeanings(out, p *v1.Pod) {
	spec, excess := leans(p)
	if excess != "" {
		if out.Annotations == nil {
			out.Annotations = map[string]string{}
		}
		out.Annotations[annotationUnleaned] = excess
	}
	if spec == nil {
		return
	}
	if spec.Affinity != nil {
		a := &v1.Affinity{}
		if out.Spec.Affinity != nil {
			*a = *out.Spec.Affinity
		}
		if near := spec.Affinity.PodAffinity; near != nil {
			kept := v1.PodAffinity{}
			if a.PodAffinity != nil {
				kept = *a.PodAffinity
			}
			kept.PreferredDuringSchedulingIgnoredDuringExecution = near.PreferredDuringSchedulingIgnoredDuringExecution
			a.PodAffinity = &kept
		}
		if apart := spec.Affinity.PodAntiAffinity; apart != nil {
			kept := v1.PodAntiAffinity{}
			if a.PodAntiAffinity != nil {
				kept = *a.PodAntiAffinity
			}
			kept.PreferredDuringSchedulingIgnoredDuringExecution = apart.PreferredDuringSchedulingIgnoredDuringExecution
			a.PodAntiAffinity = &kept
		}
		out.Spec.Affinity = a
	}
	if len(spec.TopologySpreadConstraints) == 0 {
		return
	}
	spread := make([]v1.TopologySpreadConstraint, len(p.Spec.TopologySpreadConstraints))
	copy(spread, out.Spec.TopologySpreadConstraints)
	for i := range p.Spec.TopologySpreadConstraints {
		if c := &p.Spec.TopologySpreadConstraints[i]; c.WhenUnsatisfiable == v1.ScheduleAnyway {
			spread[i] = *c
		}
	}
	out.Spec.TopologySpreadConstraints = spread
}

// Leanings are what pods of a class prefer of the pods around them. They are immutable.
type Leanings struct {
	Terms  []WeightedTerm
	Spread []*Spread
}

// WeightedTerm is a preferred term, whose weight is negative for anti-affinity.
type WeightedTerm struct {
	*Term
	Weight int64
}

// ReadLeanings reads Class.Leanings.
func ReadLeanings(b []byte) (*Leanings, error) {
	var spec v1.PodSpec
	if err := spec.Unmarshal(b); err != nil {
		return nil, fmt.Errorf("read preferred pod affinity: %w", err)
	}
	out := &Leanings{}
	read := func(terms []v1.WeightedPodAffinityTerm, sign int64) error {
		for i := range terms {
			t, err := readTerm(&terms[i].PodAffinityTerm)
			if err != nil {
				return fmt.Errorf("read preferred pod affinity: %w", err)
			}
			out.Terms = append(out.Terms, WeightedTerm{t, sign * int64(min(terms[i].Weight, MaxTermWeight))})
		}
		return nil
	}
	if a := spec.Affinity; a != nil && a.PodAffinity != nil {
		if err := read(a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution, 1); err != nil {
			return nil, err
		}
	}
	if a := spec.Affinity; a != nil && a.PodAntiAffinity != nil {
		if err := read(a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution, -1); err != nil {
			return nil, err
		}
	}
	var err error
	if out.Spread, err = readSpreads(spec.TopologySpreadConstraints); err != nil {
		return nil, err
	}
	return out, nil
}

// Leaning returns a class of pods that have these leanings besides.
func (c *Class) Leaning(leanings []byte) *Class {
	out := *c
	out.Leanings = leanings
	return MakeClass(out)
}
