package api

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestNarrow(t *testing.T) {
	port := []v1.Container{{Ports: []v1.ContainerPort{{ContainerPort: 80, HostPort: 80}}}}
	named := v1.NodeSelectorRequirement{Key: "metadata.name", Operator: v1.NodeSelectorOpIn, Values: []string{"n"}}
	nodes := &v1.NodeSelector{
		NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchFields: []v1.NodeSelectorRequirement{named}}}}
	affinity := &v1.Affinity{
		NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: nodes}}
	usual := []v1.Toleration{{Key: v1.TaintNodeNotReady, Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute}}
	for _, c := range []struct {
		spec v1.PodSpec
		want int
	}{
		{v1.PodSpec{}, 0},
		{v1.PodSpec{Tolerations: usual}, 0},
		{v1.PodSpec{Containers: []v1.Container{{Ports: []v1.ContainerPort{{ContainerPort: 80}}}}}, 0},
		{v1.PodSpec{NodeSelector: map[string]string{"a": "b"}, Tolerations: usual}, 1},
		{v1.PodSpec{Affinity: affinity}, 1},
		{v1.PodSpec{NodeSelector: map[string]string{"a": "b"}, Affinity: affinity}, 1},
		{v1.PodSpec{Containers: port}, 1},
		{v1.PodSpec{Containers: port, NodeSelector: map[string]string{"a": "b"}}, 2},
	} {
		if got := FromPod(&v1.Pod{Spec: c.spec}, nil, Rules{}).Class.Narrow(); got != c.want {
			t.Errorf("%v: %d, want %d", c.spec, got, c.want)
		}
	}
	for _, broken := range []string{"\x3a\xff", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", "\x00"} {
		NewClass(nil, []byte(broken)).Narrow()
	}
}

func BenchmarkNarrow(b *testing.B) {
	usual := []v1.Toleration{
		{Key: v1.TaintNodeNotReady, Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute},
		{Key: v1.TaintNodeUnreachable, Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute}}
	spec := v1.PodSpec{Tolerations: usual, NodeSelector: map[string]string{"a": "b"}}
	class := FromPod(&v1.Pod{Spec: spec}, nil, Rules{}).Class
	for b.Loop() {
		class.Narrow()
	}
}
