package api

import (
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8slabels "k8s.io/apimachinery/pkg/labels"
)

// Required anti-affinity terms of pods. A pod with such terms repels the pods that they match from its node, or from all nodes with the same
// value of another label; and it goes nowhere where such pods are. A pod that repels nobody is concerned as well, by the terms of others.
// So Basalt reads the labels of every pod.

const (
	maxRepelBytes  = 16 << 10 // of the required anti-affinity terms of a pod, encoded
	maxLabelBytes  = 16 << 10 // of the labels of a pod
	fieldRepels    = "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution"
	annotationWide = "scheduling.basalt.dev/labels" // set by StripPod on a pod whose labels have more bytes, instead of them
)

// repels returns the required anti-affinity terms of a pod, with the namespaces that they mean: those that fit the bound of bytes.
func repels(p *v1.Pod) (terms []v1.PodAffinityTerm, excess string) {
	a := p.Spec.Affinity
	if a == nil || a.PodAntiAffinity == nil || len(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution) == 0 {
		return nil, ""
	}
	bytes := 0
	for _, t := range a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
		out := termOf(&t, p.Namespace)
		if bytes += out.Size(); bytes > maxRepelBytes {
			return terms, fmt.Sprintf("%s: its terms have more bytes than the limit of %d", fieldRepels, maxRepelBytes)
		}
		terms = append(terms, out)
	}
	return terms, ""
}

// unreadableRepels names what cannot be read of some anti-affinity terms, "" for nothing.
func unreadableRepels(terms []v1.PodAffinityTerm) string {
	for i := range terms {
		if bad := unreadableTerm(&terms[i]); bad != "" {
			return fmt.Sprintf("%s[%d].%s", fieldRepels, i, bad)
		}
	}
	return ""
}

// Term is a required anti-affinity term. It is immutable.
type Term struct {
	ID       string // equal for equal terms
	Topology string // the label of nodes whose values are its domains

	namespaces        []string // sorted
	namespaceSelector k8slabels.Selector
	selector          k8slabels.Selector
}

// ReadRepels reads the anti-affinity terms that a class carries, without those that OnePodClaims reads.
func ReadRepels(b []byte) ([]*Term, error) {
	var a v1.PodAntiAffinity
	if err := a.Unmarshal(b); err != nil {
		return nil, fmt.Errorf("read anti-affinity: %w", err)
	}
	terms := make([]*Term, 0, len(a.RequiredDuringSchedulingIgnoredDuringExecution))
	for i := range a.RequiredDuringSchedulingIgnoredDuringExecution {
		if isOnePod(&a.RequiredDuringSchedulingIgnoredDuringExecution[i]) {
			continue
		}
		t, err := readTerm(&a.RequiredDuringSchedulingIgnoredDuringExecution[i])
		if err != nil {
			return nil, fmt.Errorf("read anti-affinity: %w", err)
		}
		terms = append(terms, t)
	}
	return terms, nil
}

func readTerm(t *v1.PodAffinityTerm) (*Term, error) {
	id, err := t.Marshal()
	if err != nil {
		return nil, err
	}
	out := &Term{ID: string(id), Topology: t.TopologyKey, namespaces: t.Namespaces, selector: readSelector(t.LabelSelector)}
	if t.NamespaceSelector != nil {
		out.namespaceSelector = readSelector(t.NamespaceSelector)
	}
	return out, nil
}

// readSelector reads a selector; one that the API server would not take matches everything, so that nothing is overlooked.
func readSelector(s *metav1.LabelSelector) k8slabels.Selector {
	selector, err := Selector(s)
	if err != nil {
		return k8slabels.Everything()
	}
	return selector
}

// Namespaces returns those whose pods the term may match, or that it may match pods of any.
func (t *Term) Namespaces() (named []string, any bool) {
	return t.namespaces, t.namespaceSelector != nil
}

// LabelRepelsOthers is the label of a namespace whose pods may repel those of other namespaces, if its value is "true".
// A term with an empty selector over a label that all nodes share would end scheduling for everybody else, so in any
// other namespace a required anti-affinity term counts for pods of the namespace alone, whoever schedules them.
const LabelRepelsOthers = "scheduling.basalt.dev/cross-namespace-anti-affinity"

// Crosses reports whether the term may match pods of other namespaces than its pods' own.
func (t *Term) Crosses(own string) bool {
	return t.namespaceSelector != nil || slices.ContainsFunc(t.namespaces, func(n string) bool { return n != own })
}

// TermsOf returns which terms count, and as what, of pods of a namespace with some labels.
func TermsOf(terms []*Term, own string, labels map[string]string) []*Term {
	crosses := func(t *Term) bool { return t.Crosses(own) }
	if !slices.ContainsFunc(terms, crosses) || labels[LabelRepelsOthers] == "true" {
		return terms
	}
	var out []*Term
	for _, t := range terms {
		if t.Crosses(own) {
			t = t.within(own, labels)
		}
		if t != nil {
			out = append(out, t)
		}
	}
	return out
}

// IgnoredTerms says which terms of a pod's class count for pods of its own namespace alone, "" for none.
func IgnoredTerms(class *Class, own string, labels map[string]string) string {
	if class == nil || len(class.Repels) == 0 || labels[LabelRepelsOthers] == "true" {
		return ""
	}
	terms, err := ReadRepels(class.Repels)
	if err != nil || !slices.ContainsFunc(terms, func(t *Term) bool { return t.Crosses(own) }) {
		return ""
	}
	return fmt.Sprintf("%s: other namespaces are ignored: namespace %s lacks the label %s=true", fieldRepels, own,
		LabelRepelsOthers)
}

// within returns what a term says of pods of its own namespace, nil for nothing.
func (t *Term) within(own string, labels map[string]string) *Term {
	var raw v1.PodAffinityTerm
	if err := raw.Unmarshal([]byte(t.ID)); err != nil || !t.Concerns(own, labels) {
		return nil
	}
	raw.Namespaces, raw.NamespaceSelector = []string{own}, nil
	if out, err := readTerm(&raw); err == nil {
		return out
	}
	return nil
}

// Matches reports whether a pod is one that the term repels.
func (t *Term) Matches(namespace string, ofNamespace map[string]string, pod *Labels) bool {
	return t.Concerns(namespace, ofNamespace) && t.selector.Matches(pod.set())
}

// Concerns reports whether the term is about the pods of a namespace with these labels.
func (t *Term) Concerns(namespace string, labelled map[string]string) bool {
	_, named := slices.BinarySearch(t.namespaces, namespace)
	return named || t.namespaceSelector != nil && t.namespaceSelector.Matches(k8slabels.Set(labelled))
}

// String names the pods that the term is about, and its label of nodes.
func (t *Term) String() string {
	switch labels := t.selector.String(); {
	case t.selector.Empty():
		return "any pod by " + t.Topology
	case labels == "":
		return "no pod by " + t.Topology
	default:
		return "pods with " + labels + " by " + t.Topology
	}
}

// Labels are the labels of a pod, immutable and shared by those that have the same. Nil are none.
type Labels struct {
	Of   map[string]string
	Hash uint64 // of Of
}

func (l *Labels) set() k8slabels.Set {
	if l == nil {
		return nil
	}
	return l.Of
}

// Equal compares two of them.
func (l *Labels) Equal(o *Labels) bool {
	return l == o || l != nil && o != nil && l.Hash == o.Hash && maps.Equal(l.Of, o.Of)
}

// NewLabels makes Labels of a map that nobody changes any more.
func NewLabels(of map[string]string) *Labels {
	if len(of) == 0 {
		return nil
	}
	return &Labels{of, hashLabels(of)}
}

// wideLabels returns how many bytes the labels of a pod have if they exceed the bound, "" if not.
func wideLabels(p *v1.Pod) string {
	n := 0
	for k, v := range p.Labels {
		n += len(k) + len(v)
	}
	if n > maxLabelBytes {
		return strconv.Itoa(n)
	}
	return p.Annotations[annotationWide]
}

// hashLabels does not depend on an order. Its seeds are of this process alone: nobody can make labels that collide.
func hashLabels(of map[string]string) (sum uint64) {
	for k, v := range of {
		sum += maphash.String(keySeed, k) * (maphash.String(valueSeed, v) | 1)
	}
	return sum
}

var keySeed, valueSeed = maphash.MakeSeed(), maphash.MakeSeed()

// labelsOf returns the same Labels for all pods with equal ones.
func (c *Classes) labelsOf(of map[string]string) *Labels {
	if c == nil || len(of) == 0 {
		return NewLabels(of)
	}
	hash := hashLabels(of)
	known := c.labels[hash]
	if known != nil && maps.Equal(known.Of, of) {
		return known
	}
	if known = c.labelsBefore[hash]; known == nil || !maps.Equal(known.Of, of) {
		known = &Labels{of, hash}
	}
	if len(c.labels) >= keptClasses || c.labels == nil {
		c.labels, c.labelsBefore = map[uint64]*Labels{}, c.labels
	}
	c.labels[hash] = known
	return known
}

// With returns the class of those of its pods that have these labels.
func (c *Class) With(labels *Labels) *Class {
	return MakeClass(Class{Requests: c.Requests, Attach: c.Attach, Constraints: c.Constraints, Repels: c.Repels, Joins: c.Joins, Wishes: c.Wishes, Leanings: c.Leanings, Labels: labels, Labelled: true})
}

// appendExtras appends what few classes have to a key.
func (c *Class) appendExtras(b []byte) []byte {
	if len(c.Repels)+len(c.Joins) == 0 && !c.Labelled && len(c.In)+len(c.Avoids) == 0 {
		return b
	}
	of := c.Labels.set()
	b = appendSized(appendSized(append(b, '\x01'), c.Repels), c.Joins)
	b = append(strconv.AppendInt(strconv.AppendBool(b, c.Labelled), int64(len(of)), 10), ':')
	for _, k := range slices.Sorted(maps.Keys(of)) {
		b = appendSized(appendSized(b, k), of[k])
	}
	return appendNumbers(append(appendNumbers(b, c.In), ' '), c.Avoids)
}

// appendNumbers appends a list as package fmt shows it, but keeps the class that it is of off the heap.
func appendNumbers(b []byte, list []uint32) []byte {
	b = append(b, '[')
	for i, n := range list {
		if i > 0 {
			b = append(b, ' ')
		}
		b = strconv.AppendUint(b, uint64(n), 10)
	}
	return append(b, ']')
}

// appendSized appends a text after its length.
func appendSized[T string | []byte](b []byte, text T) []byte {
	return append(append(strconv.AppendInt(b, int64(len(text)), 10), ':'), text...)
}
