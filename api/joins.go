package api

import (
	"cmp"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8slabels "k8s.io/apimachinery/pkg/labels"
)

// Required pod affinity and topology spread: where a pod may go depends on which pods are in the topology domain of a node. Both concern
// the pod that carries them alone, so nothing of them is kept of a pod that has a node.

const (
	maxJoinBytes  = 16 << 10 // of the required affinity terms and spread constraints of a pod, encoded
	maxJoins      = 32       // of each kind
	fieldPodTerms = "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution"
	fieldSpread   = "spec.topologySpreadConstraints"
)

// joins returns what a pod without a node requires of the pods around it, or names the field that cannot be honoured.
func joins(p *v1.Pod) (out *v1.PodSpec, field string) {
	var terms []v1.PodAffinityTerm
	if a := p.Spec.Affinity; a != nil && a.PodAffinity != nil {
		terms = a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	if len(terms)+len(p.Spec.TopologySpreadConstraints) == 0 {
		return nil, "" // most pods: a PodSpec is large
	}
	spec := &v1.PodSpec{}
	if len(terms) > 0 {
		spec.Affinity = &v1.Affinity{PodAffinity: &v1.PodAffinity{}}
	}
	for i := range terms {
		if field := unreadableTerm(&terms[i]); field != "" {
			return nil, fmt.Sprintf("%s[%d].%s", fieldPodTerms, i, field)
		}
		spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution = append(spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution, termOf(&terms[i], p.Namespace))
	}
	for i := range p.Spec.TopologySpreadConstraints {
		c := &p.Spec.TopologySpreadConstraints[i]
		if c.WhenUnsatisfiable != v1.DoNotSchedule {
			continue
		}
		if _, err := Selector(c.LabelSelector); err != nil {
			return nil, fmt.Sprintf("%s[%d].labelSelector: %v", fieldSpread, i, err)
		}
		spec.TopologySpreadConstraints = append(spec.TopologySpreadConstraints, spreadOf(c, p.Labels))
	}
	switch {
	case len(terms) > maxJoins:
		return nil, fmt.Sprintf("%s has %d terms, the limit is %d", fieldPodTerms, len(terms), maxJoins)
	case len(spec.TopologySpreadConstraints) > maxJoins:
		return nil, fmt.Sprintf("%s has %d entries with whenUnsatisfiable DoNotSchedule, the limit is %d", fieldSpread, len(spec.TopologySpreadConstraints), maxJoins)
	case len(terms)+len(spec.TopologySpreadConstraints) == 0:
		return nil, ""
	}
	if n := spec.Size(); n > maxJoinBytes {
		return nil, fmt.Sprintf("%s and %s have %d bytes, the limit is %d", fieldPodTerms, fieldSpread, n, maxJoinBytes)
	}
	return spec, ""
}

// termOf keeps of a term what it says, with the namespaces that it means. The API server has merged its label keys into the selector.
func termOf(t *v1.PodAffinityTerm, namespace string) v1.PodAffinityTerm {
	out := v1.PodAffinityTerm{LabelSelector: t.LabelSelector, TopologyKey: t.TopologyKey, NamespaceSelector: t.NamespaceSelector, Namespaces: t.Namespaces}
	if len(out.Namespaces) == 0 && out.NamespaceSelector == nil {
		out.Namespaces = []string{namespace}
	}
	if !slices.IsSorted(out.Namespaces) {
		out.Namespaces = slices.Sorted(slices.Values(out.Namespaces))
	}
	return out
}

func unreadableTerm(t *v1.PodAffinityTerm) string {
	if _, err := Selector(t.LabelSelector); err != nil {
		return "labelSelector: " + err.Error()
	}
	if _, err := Selector(t.NamespaceSelector); err != nil {
		return "namespaceSelector: " + err.Error()
	}
	return ""
}

// spreadOf keeps of a constraint what it says, with its label keys in the selector: an API server before 1.34 leaves that to the
// scheduler.
func spreadOf(c *v1.TopologySpreadConstraint, labels map[string]string) v1.TopologySpreadConstraint {
	out := v1.TopologySpreadConstraint{MaxSkew: c.MaxSkew, TopologyKey: c.TopologyKey, LabelSelector: c.LabelSelector, MinDomains: c.MinDomains,
		NodeAffinityPolicy: c.NodeAffinityPolicy, NodeTaintsPolicy: c.NodeTaintsPolicy}
	if len(c.MatchLabelKeys) == 0 || c.LabelSelector == nil {
		return out
	}
	out.LabelSelector = c.LabelSelector.DeepCopy()
	for _, key := range c.MatchLabelKeys {
		value, has := labels[key]
		if has && !slices.ContainsFunc(out.LabelSelector.MatchExpressions, func(r metav1.LabelSelectorRequirement) bool {
			return r.Key == key && r.Operator == metav1.LabelSelectorOpIn && slices.Equal(r.Values, []string{value})
		}) {
			out.LabelSelector.MatchExpressions = append(out.LabelSelector.MatchExpressions, metav1.LabelSelectorRequirement{
				Key: key, Operator: metav1.LabelSelectorOpIn, Values: []string{value}})
		}
	}
	return out
}

// FromEmpty is the first release of Kubernetes, 1.38, whose kube-scheduler counts all pods of the namespace for a
// spread with an empty selector. Before, it counts none, as for one without a selector.
const FromEmpty = "1.38.0"

// SpreadsByEmpty reports whether a spread constraint of a pod that has no node has an empty selector.
func SpreadsByEmpty(p *v1.Pod) bool {
	return p.Spec.NodeName == "" && slices.ContainsFunc(p.Spec.TopologySpreadConstraints,
		func(c v1.TopologySpreadConstraint) bool { return isEmpty(&c, p.Labels) })
}

// isEmpty reports whether the selector of a constraint, with its label keys, is there and asks for nothing.
func isEmpty(c *v1.TopologySpreadConstraint, labels map[string]string) bool {
	s := c.LabelSelector
	return s != nil && len(s.MatchLabels)+len(s.MatchExpressions) == 0 &&
		!slices.ContainsFunc(c.MatchLabelKeys, func(k string) bool { _, has := labels[k]; return has })
}

// withoutEmpty returns the pod with no selector in place of each empty one.
func withoutEmpty(p *v1.Pod) *v1.Pod {
	out := *p
	out.Spec.TopologySpreadConstraints = slices.Clone(p.Spec.TopologySpreadConstraints)
	for i := range out.Spec.TopologySpreadConstraints {
		if c := &out.Spec.TopologySpreadConstraints[i]; isEmpty(c, p.Labels) {
			c.LabelSelector, c.MatchLabelKeys = nil, nil
		}
	}
	return &out
}

// Spread is a topology spread constraint. It is immutable.
type Spread struct {
	ID         string // equal for equal selectors
	Topology   string // the label of nodes whose values are its domains
	MaxSkew    int64
	MinDomains int64
	Affinity   bool // nodes that the pod's node selector and affinity exclude do not count
	Taints     bool // nor do those with a taint that it does not tolerate

	selector k8slabels.Selector
}

// Counts reports whether the constraint counts a pod of its namespace with these labels.
func (s *Spread) Counts(pod *Labels) bool { return s.selector.Matches(pod.set()) }

// String names its label of nodes and its numbers.
func (s *Spread) String() string {
	if s.MinDomains > 1 {
		return fmt.Sprintf("by %s with maxSkew %d and minDomains %d", s.Topology, s.MaxSkew, s.MinDomains)
	}
	return fmt.Sprintf("by %s with maxSkew %d", s.Topology, s.MaxSkew)
}

// Joins are what the pods of a class require of the pods around them. They are immutable.
type Joins struct {
	Terms  []*Term // of the affinity: a pod of the domain has to match all of them
	Spread []*Spread
	// Own has the node selector and the node affinity of the pods themselves, for a spread that heeds them, where the constraints of the
	// class are also those of volumes: these limit where a pod can go, but not which nodes a spread counts. Nil: those of the class.
	Own *v1.PodSpec
}

// ReadJoins reads what a class carries.
func ReadJoins(b []byte) (*Joins, error) {
	var spec v1.PodSpec
	if err := spec.Unmarshal(b); err != nil {
		return nil, fmt.Errorf("read pod affinity: %w", err)
	}
	out := &Joins{}
	if a := spec.Affinity; a != nil && a.PodAffinity != nil {
		for i := range a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
			t, err := readTerm(&a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution[i])
			if err != nil {
				return nil, fmt.Errorf("read pod affinity: %w", err)
			}
			out.Terms = append(out.Terms, t)
		}
	}
	if a := spec.Affinity; a != nil && a.NodeAffinity != nil {
		out.Own = &v1.PodSpec{NodeSelector: spec.NodeSelector}
		if a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
			out.Own.Affinity = &v1.Affinity{NodeAffinity: a.NodeAffinity}
		}
	}
	var err error
	if out.Spread, err = readSpreads(spec.TopologySpreadConstraints); err != nil {
		return nil, err
	}
	return out, nil
}

func readSpreads(constraints []v1.TopologySpreadConstraint) (out []*Spread, err error) {
	for i := range constraints {
		s, err := readSpread(&constraints[i])
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

func readSpread(c *v1.TopologySpreadConstraint) (*Spread, error) {
	selector, err := Selector(c.LabelSelector)
	if err != nil {
		return nil, fmt.Errorf("read topology spread: %w", err)
	}
	s := &Spread{ID: "nil", Topology: c.TopologyKey, MaxSkew: int64(c.MaxSkew), MinDomains: 1, selector: selector}
	if c.MinDomains != nil {
		s.MinDomains = int64(*c.MinDomains)
	}
	s.Affinity = c.NodeAffinityPolicy == nil || *c.NodeAffinityPolicy == v1.NodeInclusionPolicyHonor
	s.Taints = c.NodeTaintsPolicy != nil && *c.NodeTaintsPolicy == v1.NodeInclusionPolicyHonor
	if c.LabelSelector != nil {
		id, err := c.LabelSelector.Marshal()
		if err != nil {
			return nil, fmt.Errorf("read topology spread: %w", err)
		}
		s.ID = string(id)
	}
	return s, nil
}

// stripJoins keeps what joins reads, each at its place in its list.
func stripJoins(p *v1.Pod) (affinity *v1.PodAffinity, spread []v1.TopologySpreadConstraint) {
	if p.Spec.NodeName != "" {
		return nil, nil
	}
	if a := p.Spec.Affinity; a != nil && a.PodAffinity != nil && len(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0 {
		affinity = &v1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution}
	}
	for i := range p.Spec.TopologySpreadConstraints {
		if c := &p.Spec.TopologySpreadConstraints[i]; c.WhenUnsatisfiable == v1.DoNotSchedule {
			if spread == nil {
				spread = make([]v1.TopologySpreadConstraint, len(p.Spec.TopologySpreadConstraints))
			}
			spread[i] = *c
		}
	}
	return affinity, spread
}

// joinsOf is joins, encoded for a class. For a pod whose constraints are also those of its volumes, it has the pod's own selectors.
func joinsOf(p *v1.Pod, volumes bool) (encoded []byte, field string) {
	spec, field := joins(p)
	if spec == nil {
		return nil, field
	}
	if volumes && len(spec.TopologySpreadConstraints) > 0 {
		own := &v1.NodeAffinity{}
		if a := p.Spec.Affinity; a != nil && a.NodeAffinity != nil {
			own.RequiredDuringSchedulingIgnoredDuringExecution = a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
		}
		if spec.Affinity == nil {
			spec.Affinity = &v1.Affinity{}
		}
		spec.NodeSelector, spec.Affinity.NodeAffinity = p.Spec.NodeSelector, own
	}
	encoded, err := spec.Marshal()
	if err != nil {
		return nil, cmp.Or(field, fieldPodTerms+": "+err.Error())
	}
	return encoded, field
}
