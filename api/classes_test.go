package api

import (
	"fmt"
	"reflect"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Pods that ask for the same have one class between them, the one that each would have by itself, and classes that nobody
// asks for are forgotten.
func TestClasses(t *testing.T) {
	pod := func(cpu int, zone string) *v1.Pod {
		p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Resources: v1.ResourceRequirements{Requests: v1.ResourceList{
			"memory": resource.MustParse("1Gi"), "cpu": *resource.NewMilliQuantity(int64(cpu), resource.DecimalSI)}}}}}}
		if zone != "" {
			p.Spec.NodeSelector = map[string]string{"zone": zone}
		}
		return p
	}
	var c Classes
	one, two := pod(1, "a"), pod(1, "a")
	class := c.FromPod(one, nil, Rules{}).Class
	if again := c.FromPod(two, nil, Rules{}).Class; again != class {
		t.Error("two pods that ask for the same have two classes")
	}
	for _, other := range []*v1.Pod{pod(2, "a"), pod(1, "b"), pod(1, "")} {
		if c.FromPod(other, nil, Rules{}).Class == class {
			t.Errorf("a pod that asks for something else has the class of the first: %v", other.Spec)
		}
	}
	if c.FromPod(one, nil, Rules{Ignored: map[string]bool{"cpu": true}}).Class == class {
		t.Error("without cpu it is the same class")
	}
	for i := range 3 * keptClasses {
		p := pod(10+i, fmt.Sprint(i%7))
		if got, want := c.FromPod(p, nil, Rules{}), FromPod(p, nil, Rules{}); !reflect.DeepEqual(got, want) {
			t.Fatalf("%+v, by itself %+v", got, want)
		}
		if i%1000 == 0 && c.FromPod(one, nil, Rules{}).Class != class {
			t.Fatal("a class was forgotten that pods ask for")
		}
	}
	if n := len(c.recent) + len(c.before); n > 2*keptClasses {
		t.Errorf("%d classes are kept", n)
	}
	for i := range 2 * keptClasses {
		c.FromPod(pod(100000+i, ""), nil, Rules{})
	}
	if c.FromPod(one, nil, Rules{}).Class == class {
		t.Error("a class is kept that nobody asks for")
	}
}
