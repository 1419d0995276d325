package api

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	v1 "k8s.io/api/core/v1"
)

// Wishes of pods: what makes a node better for a pod, and keeps it from none. They are part of its class, for they decide where it goes. A
// pod that has a node has no wishes any more, and neither has one that is refused.
//
// A pod beyond a bound is placed all the same, without its wishes, and is told so.
const (
	MaxWishBytes   = 8 << 10 // of the preferred node affinity, encoded
	MaxWishEntries = 256     // terms, expressions and values in it

	fieldPrefers = "spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution"
	// annotationUnheeded is set by StripPod on a pod whose wishes exceed a bound, instead of them.
	annotationUnheeded = "scheduling.basalt.dev/unheeded"
	maxUnheeded        = 256 // bytes of what it says
)

// Grades say how well a node fulfils the wishes of a class, so that home shards can compare the nodes of node shards.
const (
	NoGrade    = 0   // no node has room
	LeastGrade = 1   // no node is less than that
	BestGrade  = 501 // a node that fulfils every wish, for a class that has no class of the configuration's nodeTiers
	// BestLeaning is the grade, of a class with leanings, of a node that no other one of the cluster can be better than.
	BestLeaning = 1 << 24
)

// prefers returns the preferred node affinity terms of a pod that waits, or which bound they exceed.
func prefers(p *v1.Pod) (terms []v1.PreferredSchedulingTerm, excess string) {
	if excess := p.Annotations[annotationUnheeded]; strings.HasPrefix(excess, fieldPrefers) {
		return nil, Shorten(excess, maxUnheeded)
	}
	a := p.Spec.Affinity
	if p.Spec.NodeName != "" || a == nil || a.NodeAffinity == nil {
		return nil, ""
	}
	terms = a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution
	entries := 0
	for i := range terms {
		entries += entriesOf([]v1.NodeSelectorTerm{terms[i].Preference})
	}
	if entries > MaxWishEntries {
		return nil, fmt.Sprintf("%s: it has %d terms, expressions and values, the limit is %d", fieldPrefers, entries, MaxWishEntries)
	}
	if n := wishing(terms).Size(); n > MaxWishBytes {
		return nil, fmt.Sprintf("%s: it has %d bytes, the limit is %d", fieldPrefers, n, MaxWishBytes)
	}
	return terms, ""
}

func wishing(terms []v1.PreferredSchedulingTerm) *v1.PodSpec {
	return &v1.PodSpec{Affinity: &v1.Affinity{NodeAffinity: &v1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: terms}}}
}

// BestGrade returns the grade of a node that fulfils every wish of a class.
func (c *Class) BestGrade() uint32 {
	if bytes.HasPrefix(c.Wishes, tierMark) {
		return BestGrade + LastTier*TierStep
	}
	return BestGrade
}

// The class of the configuration's nodeTiers is spec.runtimeClassName, and stands before the rest, so that it is
// found without reading that. A shard of a build that does not know it leaves it out.
const fieldTierClass = 29

var tierMark = protowire.AppendTag(nil, fieldTierClass, protowire.BytesType)

// Wishes are what Class.Wishes says.
type Wishes struct {
	Terms  []v1.PreferredSchedulingTerm
	Images []string
	Class  string // of nodeTiers, "" for none
}

// wishesOf returns what a pod wishes that waits.
func (r *Rules) wishesOf(p *v1.Pod, as *Pod, terms []v1.PreferredSchedulingTerm, requests Resources) Wishes {
	w := Wishes{Terms: terms}
	if r.Images {
		w.Images = imagesOf(p)
	}
	if r.Tiers != nil {
		w.Class = r.Tiers.OfPod(as, p.Labels, requests)
	}
	return w
}

// Encode returns Class.Wishes: equal bytes for the same terms in any order. Terms that match nothing, or weigh
// nothing, are left out. Images are containers that have nothing else.
func (w Wishes) Encode() []byte {
	rest := encodeTerms(w.Terms, w.Images)
	if w.Class == "" {
		return rest
	}
	return append(protowire.AppendString(slices.Clone(tierMark), w.Class), rest...)
}

func encodeTerms(terms []v1.PreferredSchedulingTerm, images []string) []byte {
	type encoded struct {
		bytes []byte
		term  v1.PreferredSchedulingTerm
	}
	var all []encoded
	for _, t := range terms {
		if t.Weight <= 0 || len(t.Preference.MatchExpressions)+len(t.Preference.MatchFields) == 0 {
			continue
		}
		b, err := t.Marshal()
		if err != nil {
			return nil
		}
		all = append(all, encoded{b, t})
	}
	if len(all)+len(images) == 0 {
		return nil
	}
	slices.SortStableFunc(all, func(a, b encoded) int { return bytes.Compare(a.bytes, b.bytes) })
	sorted := make([]v1.PreferredSchedulingTerm, len(all))
	for i := range all {
		sorted[i] = all[i].term
	}
	spec := &v1.PodSpec{}
	if len(sorted) > 0 {
		spec = wishing(sorted)
	}
	for _, name := range images {
		spec.Containers = append(spec.Containers, v1.Container{Image: name})
	}
	b, err := spec.Marshal()
	if err != nil {
		return nil
	}
	return b
}

// ReadWishes reads Class.Wishes.
func ReadWishes(b []byte) (w Wishes, err error) {
	spec := &v1.PodSpec{}
	if err := spec.Unmarshal(b); err != nil {
		return w, fmt.Errorf("read wishes: %w", err)
	}
	if spec.Affinity != nil && spec.Affinity.NodeAffinity != nil {
		w.Terms = spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution
	}
	for i := range spec.Containers[:min(len(spec.Containers), MaxWishImages)] {
		w.Images = append(w.Images, spec.Containers[i].Image)
	}
	if spec.RuntimeClassName != nil {
		w.Class = *spec.RuntimeClassName
	}
	return w, nil
}

// Wishing returns a class of pods that have these wishes besides.
func (c *Class) Wishing(wishes []byte) *Class {
	out := *c
	out.Wishes = wishes
	return MakeClass(out)
}

// What stands in a key before the wishes and the leanings of a class.
const (
	markWishes   = 2
	markLeanings = 4
)

// appendPart appends to a key what few classes have, after a byte that says what it is.
func appendPart(b []byte, mark byte, part []byte) []byte {
	if len(part) == 0 {
		return b
	}
	return appendSized(append(b, mark), part)
}
