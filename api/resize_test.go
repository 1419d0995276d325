package api_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/bench/prove/growth"
)

func cpu(milli int64) v1.ResourceList {
	return v1.ResourceList{v1.ResourceCPU: *resource.NewMilliQuantity(milli, resource.DecimalSI)}
}

// The cases of an in-place resize of a container with one core.
func TestRequestsOfAResizedPod(t *testing.T) {
	infeasible := []v1.PodCondition{{Type: v1.PodResizePending, Status: v1.ConditionTrue, Reason: v1.PodReasonInfeasible}}
	deferred := []v1.PodCondition{{Type: v1.PodResizePending, Status: v1.ConditionTrue, Reason: v1.PodReasonDeferred}}
	for _, test := range []struct {
		what              string
		spec              int64
		allocated, actual int64 // 0 for none
		conditions        []v1.PodCondition
		pending           bool
		want              int64
	}{
		{"nothing is known", 1000, 0, 0, nil, false, 1000},
		{"nothing was changed", 1000, 1000, 1000, nil, false, 1000},
		{"down, not seen by the kubelet", 100, 1000, 1000, nil, false, 1000},
		{"down, allocated and not done", 100, 100, 1000, nil, false, 1000},
		{"down, done", 100, 100, 100, nil, false, 100},
		{"up, not seen by the kubelet", 4000, 1000, 1000, nil, false, 4000},
		{"up, deferred", 4000, 1000, 1000, deferred, false, 4000},
		{"up, infeasible", 1_000_000_000, 1000, 1000, infeasible, false, 1000},
		{"up, allocated and not done", 4000, 4000, 1000, nil, false, 4000},
		{"a pod without a node is what it asks for", 100, 1000, 1000, infeasible, true, 100},
	} {
		p := &v1.Pod{Spec: v1.PodSpec{NodeName: "n", Containers: []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{Requests: cpu(test.spec)}}}}}
		p.Status.Conditions = test.conditions
		if test.pending {
			p.Spec.NodeName = ""
		}
		s := v1.ContainerStatus{Name: "c"}
		if test.allocated > 0 {
			s.AllocatedResources = cpu(test.allocated)
		}
		if test.actual > 0 {
			s.Resources = &v1.ResourceRequirements{Requests: cpu(test.actual)}
		}
		p.Status.ContainerStatuses = []v1.ContainerStatus{s}
		for what, pod := range map[string]*v1.Pod{"": p, ", stripped": api.StripPod(p)} {
			got, err := api.PodRequests(pod, nil)
			if err != nil || got.Value("cpu") != test.want {
				t.Errorf("%s%s: %v, %v, want %dm", test.what, what, got, err, test.want)
			}
		}
	}
}

// randomResized is a pod whose status says any of what a kubelet may say.
func randomResized(rng *rand.Rand) *v1.Pod {
	list := func() v1.ResourceList {
		l := v1.ResourceList{}
		for _, name := range []v1.ResourceName{"cpu", "memory", "hugepages-2Mi", "example.com/gpu"} {
			if rng.IntN(2) == 0 {
				l[name] = *resource.NewMilliQuantity(int64(rng.IntN(4))*500, resource.DecimalSI)
			}
		}
		if rng.IntN(4) == 0 {
			return nil
		}
		return l
	}
	p := &v1.Pod{}
	if rng.IntN(5) > 0 {
		p.Spec.NodeName = "n"
	}
	add := func(containers *[]v1.Container, statuses *[]v1.ContainerStatus, name string) {
		c := v1.Container{Name: name, Resources: v1.ResourceRequirements{Requests: list()}}
		if rng.IntN(2) == 0 {
			always := v1.ContainerRestartPolicyAlways
			c.RestartPolicy = &always
		}
		*containers = append(*containers, c)
		s := v1.ContainerStatus{Name: name, AllocatedResources: list()}
		switch rng.IntN(5) {
		case 0:
			return
		case 1:
			s.AllocatedResources = c.Resources.Requests
			s.Resources = &v1.ResourceRequirements{Requests: c.Resources.Requests}
		case 2:
			s.AllocatedResources = c.Resources.Requests
		case 3:
			s.Resources = &v1.ResourceRequirements{Requests: list()}
		}
		*statuses = append(*statuses, s)
	}
	for i := range 1 + rng.IntN(2) {
		add(&p.Spec.Containers, &p.Status.ContainerStatuses, fmt.Sprint("c", i))
	}
	for i := range rng.IntN(3) {
		add(&p.Spec.InitContainers, &p.Status.InitContainerStatuses, fmt.Sprint("i", i))
	}
	rng.Shuffle(len(p.Status.ContainerStatuses), reflect.Swapper(p.Status.ContainerStatuses))
	if rng.IntN(3) == 0 {
		p.Spec.Overhead = list()
	}
	if rng.IntN(3) == 0 {
		p.Spec.Resources = &v1.ResourceRequirements{Requests: positive(list())}
	}
	if rng.IntN(3) == 0 {
		p.Status.AllocatedResources = positive(list())
		p.Status.Resources = &v1.ResourceRequirements{Requests: positive(list())}
	}
	if rng.IntN(3) == 0 {
		p.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled}, {Type: v1.PodResizePending, Reason: []string{v1.PodReasonInfeasible, v1.PodReasonDeferred}[rng.IntN(2)]}}
	}
	return p
}

// positive leaves zeros out: the API server takes no pod that asks for less than its containers, so that none is a zero.
func positive(l v1.ResourceList) v1.ResourceList {
	maps.DeleteFunc(l, func(_ v1.ResourceName, q resource.Quantity) bool { return q.IsZero() })
	return l
}

// Whatever a status says, the requests are what Kubernetes' own rules make of it, also of a pod that was stripped, written and
// read again.
func TestRequestsFollowKubernetes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	more := 0
	for i := range 5000 {
		p := randomResized(rng)
		spec := resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{})
		list := spec
		if p.Spec.NodeName != "" {
			list = resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{UseStatusResources: true, InPlacePodLevelResourcesVerticalScalingEnabled: true})
		}
		list[v1.ResourcePods] = resource.MustParse("1")
		want, err := api.FromResourceList(list, true)
		if err != nil {
			t.Fatal(err)
		}
		stripped := api.StripPod(p)
		b, err := stripped.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		read := &v1.Pod{}
		if err := read.Unmarshal(b); err != nil {
			t.Fatal(err)
		}
		for what, pod := range map[string]*v1.Pod{"as it is": p, "stripped": stripped} {
			if got, err := api.PodRequests(pod, nil); err != nil || !got.Equal(want) {
				t.Fatalf("pod %d, %s: %v, %v, want %v\n%+v", i, what, got, err, want, p)
			}
		}
		if got, err := api.PodRequests(read, nil); err != nil || !got.Equal(want) && !emptyList(p) {
			t.Fatalf("pod %d, written and read: %v, %v, want %v\n%+v", i, got, err, want, p)
		}
		if plain, _ := api.FromResourceList(spec, true); p.Spec.NodeName != "" && !plain.Fits(want) && !want.Fits(plain) {
			more++
		}
	}
	if more == 0 {
		t.Error("no status made a difference")
	}
}

// emptyList reports whether a pod has a list that is there and names nothing: protobuf does not know such a list.
func emptyList(p *v1.Pod) bool {
	empty := func(l v1.ResourceList) bool { return l != nil && len(l) == 0 }
	for _, list := range [][]v1.ContainerStatus{p.Status.ContainerStatuses, p.Status.InitContainerStatuses} {
		for i := range list {
			if empty(list[i].AllocatedResources) || list[i].Resources != nil && empty(list[i].Resources.Requests) {
				return true
			}
		}
	}
	return empty(p.Status.AllocatedResources) || p.Status.Resources != nil && empty(p.Status.Resources.Requests)
}

// A pod with thousands of containers that were resized is counted in about linear time, and not below what the rules
// say.
func TestRequestsOfManyResizedContainers(t *testing.T) {
	growth.Linear(t, 12_800, func(containers int) func() {
		p := &v1.Pod{Spec: v1.PodSpec{NodeName: "n"}}
		for i := range containers {
			name := fmt.Sprintf("container-with-a-long-name-%04d", i)
			p.Spec.Containers = append(
				p.Spec.Containers,
				v1.Container{Name: name, Resources: v1.ResourceRequirements{Requests: cpu(100)}},
			)
			p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, v1.ContainerStatus{
				Name: name, AllocatedResources: cpu(200), Resources: &v1.ResourceRequirements{Requests: cpu(300)},
			})
		}
		return func() {
			got, err := api.PodRequests(p, nil)
			if err != nil || got.Value("cpu") != 300*int64(containers) {
				t.Errorf("%v, %v, want %d times 0.3 cores", got, err, containers)
			}
		}
	})
}

// A status that says what the spec says is not passed on: every pod that runs has one.
func TestStatusOfAnUnchangedPodIsStripped(t *testing.T) {
	p := &v1.Pod{Spec: v1.PodSpec{NodeName: "n"}}
	for i := range 3 {
		name := fmt.Sprint("c", i)
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: name, Resources: v1.ResourceRequirements{Requests: cpu(100)}})
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, v1.ContainerStatus{Name: name, AllocatedResources: cpu(100),
			Resources: &v1.ResourceRequirements{Requests: cpu(100)}})
	}
	if s := api.StripPod(p); len(s.Status.ContainerStatuses) != 0 {
		t.Errorf("kept: %+v", s.Status)
	}
	p.Status.ContainerStatuses[2].AllocatedResources = cpu(101)
	if s := api.StripPod(p); len(s.Status.ContainerStatuses) != 3 || s.Spec.Containers[2].Name != "c2" {
		t.Errorf("lost: %+v", s)
	}
}

func BenchmarkRequestsOfARunningPod(b *testing.B) {
	p := &v1.Pod{Spec: v1.PodSpec{NodeName: "n", Containers: []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{Requests: cpu(100)}}}}}
	p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "c", AllocatedResources: cpu(100), Resources: &v1.ResourceRequirements{Requests: cpu(100)}}}
	for b.Loop() {
		_, _ = api.PodRequests(p, nil)
	}
}
