package api

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"pgregory.net/rapid"
)

// volumes is a cluster of which a test says where the volumes of a pod let it run.
type volumes func(p *v1.Pod) ([]*v1.NodeSelector, string)

func (v volumes) Volumes(p *v1.Pod) (Reach, string) {
	where, why := v(p)
	return Reach{Where: where}, why
}
func (v volumes) DeviceClass(resource string) string {
	return map[string]string{"example.com/device": "devices"}[resource]
}

func notBound(*v1.Pod) ([]*v1.NodeSelector, string) {
	return nil, "spec.volumes[0].persistentVolumeClaim (claim data): is not bound"
}

func in(key string, values ...string) v1.NodeSelectorRequirement {
	return v1.NodeSelectorRequirement{Key: key, Operator: v1.NodeSelectorOpIn, Values: values}
}

func anyOf(terms ...[]v1.NodeSelectorRequirement) *v1.NodeSelector {
	s := &v1.NodeSelector{}
	for _, t := range terms {
		s.NodeSelectorTerms = append(s.NodeSelectorTerms, v1.NodeSelectorTerm{MatchExpressions: t})
	}
	return s
}

// AllOf matches a node just where each selector does, whatever they are.
func TestAllOf(t *testing.T) {
	requirement := rapid.Custom(func(t *rapid.T) v1.NodeSelectorRequirement {
		ops := []v1.NodeSelectorOperator{v1.NodeSelectorOpIn, v1.NodeSelectorOpNotIn, v1.NodeSelectorOpExists, v1.NodeSelectorOpDoesNotExist, "Bad"}
		r := v1.NodeSelectorRequirement{Key: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "key"), Operator: rapid.SampledFrom(ops).Draw(t, "op")}
		if r.Operator == v1.NodeSelectorOpIn || r.Operator == v1.NodeSelectorOpNotIn {
			r.Values = rapid.SliceOfN(rapid.SampledFrom([]string{"1", "2", "3"}), 0, 2).Draw(t, "values") // none: cannot be parsed
		}
		return r
	})
	term := rapid.Custom(func(t *rapid.T) v1.NodeSelectorTerm {
		out := v1.NodeSelectorTerm{MatchExpressions: rapid.SliceOfN(requirement, 0, 2).Draw(t, "expressions")}
		if rapid.IntRange(0, 3).Draw(t, "fields") == 0 {
			out.MatchFields = []v1.NodeSelectorRequirement{in("metadata.name", rapid.SampledFrom([]string{"n", "m"}).Draw(t, "name"))}
		}
		return out
	})
	selector := rapid.Custom(func(t *rapid.T) *v1.NodeSelector {
		if rapid.IntRange(0, 4).Draw(t, "none") == 0 {
			return nil
		}
		return &v1.NodeSelector{NodeSelectorTerms: rapid.SliceOfN(term, 0, 3).Draw(t, "terms")}
	})
	match := func(s *v1.NodeSelector, n *v1.Node) bool {
		if s == nil {
			return true
		}
		ok, _ := nodeaffinity.NewLazyErrorNodeSelector(s).Match(n)
		return ok
	}
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOfN(selector, 0, 4).Draw(t, "selectors")
		before := fmt.Sprint(all)
		product, ok := AllOf(all...)
		if !ok {
			t.Fatal("too large")
		}
		if fmt.Sprint(all) != before {
			t.Fatal("its arguments changed")
		}
		for _, labels := range []map[string]string{nil, {"a": "1"}, {"a": "2", "b": "3"}, {"a": "3", "b": "1"}, {"b": "2"}} {
			for _, name := range []string{"n", "o"} {
				n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
				want := true
				for _, s := range all {
					want = want && match(s, n)
				}
				if match(product, n) != want {
					t.Fatalf("a node %s with labels %v: %v, want %v by %+v", name, labels, !want, want, product)
				}
			}
		}
	})
}

// A pod whose own constraints are too large is refused for them, and reduces to the same when it was stripped of them.
func TestVolumesBesideConstraintsThatAreTooLarge(t *testing.T) {
	p := &v1.Pod{Spec: v1.PodSpec{SchedulerName: SchedulerName, Tolerations: make([]v1.Toleration, MaxConstraintEntries+1), Volumes: []v1.Volume{{
		VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}}}}}
	inZone := volumes(func(*v1.Pod) ([]*v1.NodeSelector, string) {
		return []*v1.NodeSelector{anyOf([]v1.NodeSelectorRequirement{in("zone", "a")})}, ""
	})
	whole, small := FromPod(p, inZone, Rules{}), FromPod(StripPod(p), inZone, Rules{})
	if whole.Refused == nil || !strings.HasPrefix(whole.Refused.Message, "spec.tolerations") || !reflect.DeepEqual(whole, small) {
		t.Errorf("refused %v, stripped %v; the classes have %d and %d bytes", whole.Refused, small.Refused, len(whole.Class.Constraints), len(small.Class.Constraints))
	}
}

// A term without requirements matches nothing, also where it is multiplied with one that has some.
func TestAllOfEmptyTerms(t *testing.T) {
	empty, some := anyOf(nil), anyOf([]v1.NodeSelectorRequirement{in("a", "1")})
	for _, all := range [][]*v1.NodeSelector{{empty, some}, {some, empty}, {empty}, {{}, some}, {some, nil, empty}} {
		product, ok := AllOf(all...)
		if match, _ := nodeaffinity.NewLazyErrorNodeSelector(product).Match(&v1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "1"}}}); !ok || match {
			t.Errorf("%v match a node", all)
		}
	}
}

// The product of selectors is refused before it is made.
func TestAllOfIsBounded(t *testing.T) {
	many := func(terms int) *v1.NodeSelector {
		var all [][]v1.NodeSelectorRequirement
		for i := range terms {
			all = append(all, []v1.NodeSelectorRequirement{in("k", fmt.Sprint(i))})
		}
		return anyOf(all...)
	}
	for _, c := range []struct {
		selectors []*v1.NodeSelector
		ok        bool
	}{
		{[]*v1.NodeSelector{many(341)}, true}, // a term, a requirement and a value each
		{[]*v1.NodeSelector{many(342)}, false},
		{[]*v1.NodeSelector{many(14), many(14)}, true}, // 196 terms of 5 entries
		{[]*v1.NodeSelector{many(15), many(15)}, false},
		{[]*v1.NodeSelector{many(100), many(100), many(100), many(100)}, false},
		{[]*v1.NodeSelector{many(200), many(1)}, true},
		{[]*v1.NodeSelector{many(2), many(2), many(2), many(2), many(2)}, true}, // 32 terms of 11 entries
	} {
		product, ok := AllOf(c.selectors...)
		if ok != c.ok {
			t.Errorf("%d selectors, the first of %d terms: %v, want %v", len(c.selectors), len(c.selectors[0].NodeSelectorTerms), ok, c.ok)
		}
		if ok && entriesOf(product.NodeSelectorTerms) > MaxConstraintEntries {
			t.Errorf("%d entries", entriesOf(product.NodeSelectorTerms))
		}
	}
}

// What the volumes of a pod say is part of its class, beside what the pod says, until it has a node.
func TestVolumesAreConstraints(t *testing.T) {
	claim := []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}}}
	zone := anyOf([]v1.NodeSelectorRequirement{in("zone", "a")})
	inZone := volumes(func(*v1.Pod) ([]*v1.NodeSelector, string) { return []*v1.NodeSelector{zone}, "" })
	required := func(s *v1.NodeSelector) *v1.Affinity {
		return &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: s}}
	}
	own := anyOf([]v1.NodeSelectorRequirement{in("disk", "ssd")}, []v1.NodeSelectorRequirement{in("disk", "nvme")})
	for what, c := range map[string]struct {
		spec v1.PodSpec
		want *v1.NodeSelector
	}{
		"a pod that says nothing": {v1.PodSpec{Volumes: claim}, zone},
		"one with a selector":     {v1.PodSpec{Volumes: claim, NodeSelector: map[string]string{"a": "b"}}, zone},
		"one with node affinity": {v1.PodSpec{Volumes: claim, Affinity: required(own)},
			anyOf([]v1.NodeSelectorRequirement{in("disk", "ssd"), in("zone", "a")}, []v1.NodeSelectorRequirement{in("disk", "nvme"), in("zone", "a")})},
		"one without a claim": {v1.PodSpec{}, nil},
		"one with a node":     {v1.PodSpec{Volumes: claim, NodeName: "n"}, nil},
	} {
		c.spec.SchedulerName = SchedulerName
		p := FromPod(&v1.Pod{Spec: c.spec}, inZone, Rules{})
		if p.Refused != nil {
			t.Errorf("%s: refused %v", what, p.Refused)
		}
		spec, err := ReadConstraints(p.Class.Constraints)
		if err != nil {
			t.Fatal(err)
		}
		var got *v1.NodeSelector
		if spec.Affinity != nil {
			got = spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
		}
		if !reflect.DeepEqual(got, c.want) || !reflect.DeepEqual(spec.NodeSelector, c.spec.NodeSelector) {
			t.Errorf("%s: its class has %v and node selector %v, want %v", what, got, spec.NodeSelector, c.want)
		}
	}
	if len(own.NodeSelectorTerms[0].MatchExpressions) != 1 || len(zone.NodeSelectorTerms[0].MatchExpressions) != 1 {
		t.Error("the objects were changed")
	}
	wide := anyOf()
	for i := range 300 {
		wide.NodeSelectorTerms = append(wide.NodeSelectorTerms, anyOf([]v1.NodeSelectorRequirement{in("k", fmt.Sprint(i))}).NodeSelectorTerms[0])
	}
	p := FromPod(&v1.Pod{Spec: v1.PodSpec{SchedulerName: SchedulerName, Volumes: claim, Affinity: required(own)}},
		volumes(func(*v1.Pod) ([]*v1.NodeSelector, string) { return []*v1.NodeSelector{wide}, "" }), Rules{})
	if p.Refused == nil || p.Refused.Reason != "UnsupportedConstraint" || !strings.HasPrefix(p.Refused.Message, "spec.volumes: ") || len(p.Class.Constraints) != 0 {
		t.Errorf("600 terms: refused %v, with constraints of %d bytes", p.Refused, len(p.Class.Constraints))
	}
}

// A resource that only a DeviceClass offers is refused by name, where the pod could ask for nothing else.
func TestDevicesAreRefused(t *testing.T) {
	for resource, want := range map[v1.ResourceName]bool{"example.com/device": true, "example.com/other": false, "cpu": false} {
		spec := v1.PodSpec{SchedulerName: SchedulerName, Containers: []v1.Container{{Resources: v1.ResourceRequirements{Requests: v1.ResourceList{resource: Quantity("pods", 1)}}}}}
		p := FromPod(&v1.Pod{Spec: spec}, volumes(nil), Rules{})
		if (p.Refused != nil) != want || want && (p.Refused.Reason != "UnsupportedConstraint" ||
			!strings.HasPrefix(p.Refused.Message, "spec.containers[*].resources.requests: example.com/device is offered by DeviceClass devices")) {
			t.Errorf("%s: refused %+v", resource, p.Refused)
		}
		if p := FromPod(&v1.Pod{Spec: spec}, volumes(nil), Rules{Ignored: map[string]bool{string(resource): true}}); p.Refused != nil {
			t.Errorf("%s is ignored: refused %+v", resource, p.Refused)
		}
		spec.NodeName = "n"
		if p := FromPod(&v1.Pod{Spec: spec}, volumes(nil), Rules{}); p.Refused != nil {
			t.Errorf("%s, with a node: refused %+v", resource, p.Refused)
		}
	}
}
