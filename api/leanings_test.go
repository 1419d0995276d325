package api_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

func app(name string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
}

func toward(weight int32, key, name string) v1.WeightedPodAffinityTerm {
	return v1.WeightedPodAffinityTerm{Weight: weight, PodAffinityTerm: v1.PodAffinityTerm{TopologyKey: key, LabelSelector: app(name)}}
}

func anyway(key, name string) v1.TopologySpreadConstraint {
	return v1.TopologySpreadConstraint{MaxSkew: 1, TopologyKey: key, WhenUnsatisfiable: v1.ScheduleAnyway, LabelSelector: app(name)}
}

func leaning(near, apart []v1.WeightedPodAffinityTerm, spread ...v1.TopologySpreadConstraint) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Labels: map[string]string{"app": "x", "hash": "1"}}, Spec: v1.PodSpec{SchedulerName: api.SchedulerName, TopologySpreadConstraints: spread,
		Affinity: &v1.Affinity{PodAffinity: &v1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: near}, PodAntiAffinity: &v1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: apart}}}}
}

// TestLeanings: what a pod prefers of the pods around it is part of its class, whatever the order, as long as the pod waits.
func TestLeanings(t *testing.T) {
	classOf := func(p *v1.Pod) *api.Class {
		t.Helper()
		got, stripped := api.FromPod(p, nil, api.Rules{}), api.FromPod(api.StripPod(p), nil, api.Rules{})
		if !reflect.DeepEqual(got, stripped) {
			t.Fatalf("stripped, the pod reduces to %+v, not %+v", stripped, got)
		}
		if got.Refused != nil || got.Unheeded != "" {
			t.Fatalf("the pod is refused, %v, or not heeded: %q", got.Refused, got.Unheeded)
		}
		return got.Class
	}
	a, b := toward(10, "zone", "a"), toward(20, "rack", "b")
	near, apart := []v1.WeightedPodAffinityTerm{a, b}, []v1.WeightedPodAffinityTerm{a}
	plain, class := classOf(leaning(nil, nil)), classOf(leaning(near, apart, anyway("zone", "x"), anyway("rack", "x")))
	if len(plain.Leanings) > 0 || plain.Key == class.Key || len(class.Constraints)+len(class.Joins)+len(class.Repels) > 0 {
		t.Errorf("without any the class is %q, with some %q", plain.Key, class.Key)
	}
	read, err := api.ReadLeanings(class.Leanings)
	if err != nil || len(read.Terms) != 3 || len(read.Spread) != 2 {
		t.Fatalf("%+v, %v", read, err)
	}
	if sum := read.Terms[0].Weight + read.Terms[1].Weight + read.Terms[2].Weight; sum != 20 {
		t.Errorf("the weights add up to %d", sum)
	}
	if named, any := read.Terms[0].Namespaces(); any || !slices.Equal(named, []string{"ns"}) {
		t.Errorf("a term is about the pods of %q", named)
	}
	nothing := v1.WeightedPodAffinityTerm{Weight: 5, PodAffinityTerm: v1.PodAffinityTerm{TopologyKey: "zone"}}
	for what, other := range map[string]*v1.Pod{
		"in another order":              leaning([]v1.WeightedPodAffinityTerm{b, a}, apart, anyway("rack", "x"), anyway("zone", "x")),
		"with a term that matches none": leaning([]v1.WeightedPodAffinityTerm{a, nothing, b}, apart, anyway("zone", "x"), anyway("rack", "x")),
	} {
		if got := classOf(other); got.Key != class.Key {
			t.Errorf("%s it is another class", what)
		}
	}
	for what, other := range map[string]*v1.Pod{
		"a term less":       leaning(near[:1], apart, anyway("zone", "x"), anyway("rack", "x")),
		"near for apart":    leaning(apart, near, anyway("zone", "x"), anyway("rack", "x")),
		"a constraint less": leaning(near, apart, anyway("zone", "x")),
	} {
		if got := classOf(other); got.Key == class.Key {
			t.Errorf("%s is the same class", what)
		}
	}
	if other := plain.Leaning(class.Leanings); other.Key != class.Key {
		t.Error("the class without leanings, with these, is another")
	}
	if other := class.With(api.NewLabels(map[string]string{"app": "x"})); !slices.Equal(other.Leanings, class.Leanings) {
		t.Error("with labels it has no leanings")
	}
	if read, err := wire.ToClass(wire.FromClass(class)); err != nil || read.Key != class.Key {
		t.Errorf("sent and read it is %v, %v", read, err)
	}
	keyed := anyway("zone", "x")
	keyed.MatchLabelKeys = []string{"hash", "other"}
	if read, err := api.ReadLeanings(classOf(leaning(nil, nil, keyed)).Leanings); err != nil || read.Spread[0].Counts(api.NewLabels(map[string]string{"app": "x"})) ||
		!read.Spread[0].Counts(api.NewLabels(map[string]string{"app": "x", "hash": "1"})) {
		t.Errorf("matchLabelKeys are not heeded: %+v, %v", read, err)
	}

	required := anyway("zone", "x")
	required.WhenUnsatisfiable = v1.DoNotSchedule
	both := classOf(leaning(near, nil, anyway("rack", "x"), required))
	if joins, err := api.ReadJoins(both.Joins); err != nil || len(joins.Spread) != 1 || joins.Spread[0].Topology != "zone" {
		t.Errorf("beside leanings, what is required is %+v, %v", joins, err)
	}
	bound := leaning(near, apart, anyway("zone", "x"))
	bound.Spec.NodeName = "n1"
	if other := classOf(bound); other.Key != plain.Key || api.StripPod(bound).Spec.TopologySpreadConstraints != nil {
		t.Error("a pod that has a node has leanings")
	}
}

// TestLeaningBounds: a pod whose leanings exceed a bound is placed without them, stripped or not, and keeps its wishes.
func TestLeaningBounds(t *testing.T) {
	var many []v1.WeightedPodAffinityTerm
	for i := range api.MaxLeanings + 1 {
		many = append(many, toward(1, "zone", fmt.Sprint(i)))
	}
	bad := toward(1, "zone", "x")
	bad.PodAffinityTerm.LabelSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like"}}}
	wide := toward(1, "zone", "x")
	for i := range 200 {
		wide.PodAffinityTerm.Namespaces = append(wide.PodAffinityTerm.Namespaces, fmt.Sprintf("%040d", i))
	}
	const all = "preferred terms of pod affinity and anti-affinity, and topology spread with ScheduleAnyway: "
	for want, p := range map[string]*v1.Pod{
		all + "there are 33, the limit is 32":           leaning(many, nil),
		all + "there are 34, the limit is 32 ":          leaning(many[:20], many[:13], anyway("zone", "x")),
		all + "they have 8461 bytes, the limit is 8192": leaning([]v1.WeightedPodAffinityTerm{wide}, nil),
		`spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[1].podAffinityTerm.labelSelector: "Like" is not a valid label selector operator`: leaning(nil, []v1.WeightedPodAffinityTerm{many[0], bad}),
	} {
		p.Spec.Affinity.NodeAffinity = &v1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []v1.PreferredSchedulingTerm{preferred(1, "k", "v")}}
		for _, p := range []*v1.Pod{p, api.StripPod(p), api.StripPod(api.StripPod(p))} {
			got := api.FromPod(p, nil, api.Rules{})
			if got.Refused != nil || len(got.Class.Leanings) > 0 || got.Unheeded != strings.TrimSpace(want) || len(got.Class.Wishes) == 0 {
				t.Errorf("refused %v, leanings %d bytes, wishes %d bytes, unheeded %q, want %q", got.Refused, len(got.Class.Leanings), len(got.Class.Wishes), got.Unheeded, want)
			}
		}
	}
	if got := api.FromPod(leaning(many[:20], many[:12]), nil, api.Rules{}); got.Unheeded != "" || len(got.Class.Leanings) == 0 {
		t.Errorf("at the limit: %q", got.Unheeded)
	}
	forged := leaning(many[:1], nil)
	forged.Annotations = map[string]string{"scheduling.basalt.dev/unheeded-pods": "spec." + strings.Repeat("x", 1000)}
	if got := api.FromPod(forged, nil, api.Rules{}); len(got.Unheeded) > 256 {
		t.Errorf("%d bytes are said of a pod by its author", len(got.Unheeded))
	}
}
