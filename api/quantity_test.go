package api

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Kubernetes takes these for quantities, and compares them for minutes. Without the look at the exponent this test hangs.
var absurd = []string{"1e400", "1e300000000", "1e2000000000", "10e2000000000", "-1e2000000000", strings.Repeat("9", 1000)}

func TestQuantityOfHugeExponent(t *testing.T) {
	for _, text := range absurd {
		for _, roundUp := range []bool{false, true} {
			if v, err := FromQuantity("example.com/gpu", resource.MustParse(text), roundUp); err == nil || len(err.Error()) > 200 {
				t.Errorf("%s: %d, %.200v", text, v, err)
			}
		}
	}
	for text, want := range map[string]int64{"1e3": 1000, "0e2000000000": 0, "15e2": 1500, "1e18": 1e18} {
		if v, err := FromQuantity("example.com/gpu", resource.MustParse(text), false); err != nil || v != want {
			t.Errorf("%s: %d, %v, want %d", text, v, err, want)
		}
	}
}

func TestPodOfHugeExponent(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	for _, text := range absurd {
		ask := v1.ResourceList{"example.com/gpu": resource.MustParse(text), "cpu": resource.MustParse("1")}
		small := v1.Container{Resources: v1.ResourceRequirements{Requests: v1.ResourceList{"example.com/gpu": resource.MustParse("1"), "cpu": resource.MustParse("1")}}}
		big := v1.Container{Resources: v1.ResourceRequirements{Requests: ask}}
		sidecar := big
		sidecar.RestartPolicy = &always
		for field, spec := range map[string]v1.PodSpec{
			"spec.containers[1].resources.requests":     {Containers: []v1.Container{small, big}},
			"spec.initContainers[0].resources.requests": {Containers: []v1.Container{small}, InitContainers: []v1.Container{big}},
			"spec.initContainers[1].resources.requests": {Containers: []v1.Container{small}, InitContainers: []v1.Container{small, sidecar}},
			"spec.overhead":           {Containers: []v1.Container{small}, Overhead: ask},
			"spec.resources.requests": {Containers: []v1.Container{small}, Resources: &v1.ResourceRequirements{Requests: ask}},
		} {
			spec.SchedulerName = SchedulerName
			pod := &v1.Pod{Spec: spec}
			p := FromPod(pod, nil, Rules{})
			if p.Refused == nil || p.Refused.Reason != "NeverFits" || !strings.HasPrefix(p.Refused.Message, field+": example.com/gpu: ") || len(p.Refused.Message) > 250 {
				t.Errorf("%.20s in %s: refused %.250v", text, field, p.Refused)
			}
			if p.Class.Requests.Value("pods") != 1 {
				t.Errorf("%.20s in %s: asks for %v", text, field, p.Class.Requests)
			}
			if p = FromPod(pod, nil, Rules{Ignored: map[string]bool{"example.com/gpu": true}}); p.Refused != nil || p.Class.Requests.Value("cpu") == 0 {
				t.Errorf("%.20s in %s, ignored: %v, refused %v", text, field, p.Class.Requests, p.Refused)
			}
		}
		zero := small
		zero.Resources.Requests = v1.ResourceList{"example.com/gpu": resource.MustParse("0e2000000000")}
		if p := FromPod(&v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{zero}, InitContainers: []v1.Container{small}}}, nil, Rules{}); p.Refused != nil || p.Class.Requests.Value("example.com/gpu") != 1 {
			t.Errorf("an absurd zero: %v, refused %v", p.Class.Requests, p.Refused)
		}
		node := FromNode(&v1.Node{Status: v1.NodeStatus{Allocatable: ask}}, nil)
		if node.Unreadable == "" || node.Allocatable.Value("cpu") != 1000 || node.Allocatable.Value("example.com/gpu") != 0 {
			t.Errorf("%.20s in a node: %v, %.100s", text, node.Allocatable, node.Unreadable)
		}
	}
}

// What is on the ignore list is neither a node's room nor a pod's request, and the pod itself is left as it was.
func TestIgnoredResources(t *testing.T) {
	list := v1.ResourceList{"cpu": resource.MustParse("2"), "example.com/gpu": resource.MustParse("3"), "example.com/nic": resource.MustParse("1")}
	pod := &v1.Pod{Spec: v1.PodSpec{
		Containers:     []v1.Container{{Resources: v1.ResourceRequirements{Requests: list}}},
		InitContainers: []v1.Container{{Resources: v1.ResourceRequirements{Requests: list}}},
		Overhead:       list,
	}}
	before := pod.DeepCopy()
	for _, c := range []struct {
		ignore map[string]bool
		want   Resources
	}{
		{nil, FromMap(map[string]int64{"cpu": 4000, "example.com/gpu": 6, "example.com/nic": 2, "pods": 1})},
		{map[string]bool{"example.com/gpu": true}, FromMap(map[string]int64{"cpu": 4000, "example.com/nic": 2, "pods": 1})},
		{map[string]bool{"example.com/gpu": true, "example.com/nic": true}, FromMap(map[string]int64{"cpu": 4000, "pods": 1})},
	} {
		got, err := PodRequests(pod, c.ignore)
		if err != nil || !got.Equal(c.want) {
			t.Errorf("ignoring %v: %v, %v, want %v", c.ignore, got, err, c.want)
		}
		if p := FromPod(pod, nil, Rules{Ignored: c.ignore}); !p.Class.Requests.Equal(c.want) {
			t.Errorf("ignoring %v: class %v, want %v", c.ignore, p.Class.Requests, c.want)
		}
	}
	if fmt.Sprint(before.Spec) != fmt.Sprint(pod.Spec) {
		t.Errorf("the pod was changed: %v", pod.Spec)
	}
}
