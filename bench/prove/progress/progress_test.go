package progress

import (
	"errors"
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func node(name, zone, cpu string) *v1.Node {
	return &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"zone": zone, v1.LabelHostname: name}},
		Status: v1.NodeStatus{Allocatable: v1.ResourceList{
			v1.ResourceCPU: resource.MustParse(cpu), v1.ResourcePods: resource.MustParse("10")}}}
}

func pod(name, cpu string, change ...func(*v1.Pod)) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: map[string]string{"app": "a"}}}
	p.Spec.Containers = []v1.Container{{Name: "main", Resources: v1.ResourceRequirements{
		Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}}}}
	for _, c := range change {
		c(p)
	}
	return p
}

var own = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}

func term(key string) []v1.PodAffinityTerm {
	return []v1.PodAffinityTerm{{TopologyKey: key, LabelSelector: own}}
}

func beside(key string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.Affinity = &v1.Affinity{
			PodAffinity: &v1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: term(key)}}
	}
}

func apart(key string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.Affinity = &v1.Affinity{
			PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: term(key)}}
	}
}

func even(p *v1.Pod) {
	p.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{
		{MaxSkew: 1, TopologyKey: "zone", WhenUnsatisfiable: v1.DoNotSchedule, LabelSelector: own}}
}

func port(p *v1.Pod) { p.Spec.Containers[0].Ports = []v1.ContainerPort{{HostPort: 80}} }

func in(zone string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{"zone": zone} }
}

func on(node string) func(*v1.Pod) { return func(p *v1.Pod) { p.Spec.NodeName = node } }

// TestStart judges small gangs of which it is plain whether they can start. Two of them can only in one order.
func TestStart(t *testing.T) {
	nodes := []*v1.Node{node("a1", "a", "2"), node("a2", "a", "2"), node("b1", "b", "2")}
	for name, c := range map[string]struct {
		there, pods []*v1.Pod
		least       int
		starts      bool
	}{
		"fits":         {nil, []*v1.Pod{pod("p", "2"), pod("q", "2"), pod("r", "2")}, 3, true},
		"one too many": {nil, []*v1.Pod{pod("p", "2"), pod("q", "2"), pod("r", "2"), pod("s", "1")}, 4, false},
		"any of them":  {nil, []*v1.Pod{pod("p", "3"), pod("q", "2"), pod("r", "2")}, 2, true},
		"beside what is there": {[]*v1.Pod{pod("x", "1", on("a1"))},
			[]*v1.Pod{pod("p", "2"), pod("q", "2"), pod("r", "2")}, 3, false},
		"the large one first": {nil, []*v1.Pod{pod("p", "1"), pod("q", "1"), pod("r", "2"), pod("s", "2")}, 4, true},
		"ports":               {nil, []*v1.Pod{pod("p", "1", port), pod("q", "1", port), pod("r", "1", port)}, 3, true},
		"too many ports": {nil, []*v1.Pod{
			pod("p", "1m", port), pod("q", "1m", port), pod("r", "1m", port), pod("s", "1m", port)}, 4, false},
		"selectors":            {nil, []*v1.Pod{pod("p", "2", in("b")), pod("q", "1", in("b"))}, 2, false},
		"apart":                {nil, []*v1.Pod{pod("p", "1", apart("zone")), pod("q", "1", apart("zone"))}, 2, true},
		"apart, no third zone": {nil, []*v1.Pod{pod("p", "1", apart("zone")), pod("q", "1"), pod("r", "1")}, 3, true},
		"nobody beside":        {nil, []*v1.Pod{pod("p", "1", apart("zone"), in("b")), pod("q", "1", in("b"))}, 2, false},
		"beside one another":   {nil, []*v1.Pod{pod("p", "2", beside("zone")), pod("q", "2", beside("zone"))}, 2, true},
		"no zone has room": {nil, []*v1.Pod{
			pod("p", "2", beside("zone")), pod("q", "2", beside("zone")), pod("r", "2", beside("zone"))}, 3, false},
		"the other comes first": {nil, []*v1.Pod{pod("p", "2", in("b")), pod("q", "1", beside("zone"))}, 2, true},
		"even":                  {nil, []*v1.Pod{pod("p", "1", even), pod("q", "1", even), pod("r", "1", even)}, 3, true},
		"even, and b is full": {[]*v1.Pod{pod("x", "2", on("b1"), func(p *v1.Pod) { p.Labels = nil })},
			[]*v1.Pod{pod("p", "1", even), pod("q", "1", even)}, 2, false},
		"even before it is not": {nil,
			[]*v1.Pod{pod("p", "1", even, in("a")), pod("q", "1", in("a")), pod("r", "1", in("a"))}, 3, true},
	} {
		cluster := &Cluster{Nodes: nodes, Pods: c.there}
		at, err := cluster.Start(c.pods, Least(c.least))
		if err != nil || (at != nil) != c.starts || at != nil && len(at) != c.least {
			t.Errorf("%s: %v, %v; starts %t", name, at, err, c.starts)
		}
	}
}

// TestTooMany: it says so when it has not gone through all ways.
func TestTooMany(t *testing.T) {
	cluster := &Cluster{}
	var pods []*v1.Pod
	for i := range 12 {
		cluster.Nodes = append(cluster.Nodes, node(fmt.Sprint("n", i), "a", "2"))
		pods = append(pods, pod(fmt.Sprint("p", i), "1", func(p *v1.Pod) { p.Labels["own"] = fmt.Sprint(i) }))
	}
	if at, err := cluster.Start(pods, Least(25)); at != nil || !errors.Is(err, ErrTooMany) {
		t.Errorf("%v, %v", at, err)
	}
}
