package api

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func asking(names int, amount string) v1.Container {
	l := v1.ResourceList{}
	for i := range names {
		l[v1.ResourceName(fmt.Sprintf("example.com/r%05d", i))] = resource.MustParse(amount)
	}
	return v1.Container{Resources: v1.ResourceRequirements{Requests: l}}
}

func selecting(values, length int) *v1.Affinity {
	r := v1.NodeSelectorRequirement{Key: "kubernetes.io/hostname", Operator: v1.NodeSelectorOpNotIn}
	for i := range values {
		r.Values = append(r.Values, fmt.Sprintf("%0*d", length, i))
	}
	return &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{
		NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: []v1.NodeSelectorRequirement{r}}}}}}
}

func tolerating(n, length int) (out []v1.Toleration) {
	for i := range n {
		out = append(out, v1.Toleration{Key: fmt.Sprintf("%0*d", length, i), Operator: v1.TolerationOpExists})
	}
	return out
}

func listening(n int, ip string) v1.Container {
	c := v1.Container{}
	for i := range n {
		c.Ports = append(c.Ports, v1.ContainerPort{ContainerPort: int32(i + 1), HostPort: int32(i + 1), HostIP: ip, Protocol: v1.ProtocolTCP})
	}
	return c
}

func claiming(n int) (out []v1.Volume) {
	for i := range n {
		v := v1.Volume{Name: fmt.Sprintf("v%d", i)}
		if i%2 == 0 {
			v.PersistentVolumeClaim = &v1.PersistentVolumeClaimVolumeSource{ClaimName: strings.Repeat("c", 200)}
		} else {
			v.Ephemeral = &v1.EphemeralVolumeSource{}
		}
		out = append(out, v, v1.Volume{Name: "no-claim"})
	}
	return out
}

func labels(n, length int) map[string]string {
	out := map[string]string{}
	for i := range n {
		out[fmt.Sprintf("%0*d", length, i)] = ""
	}
	return out
}

// A pod at a bound is accepted, one beyond it is refused in words that name the field, what it has and the limit. With a node
// it is counted, and weighs no more than any other.
func TestPodsAreBounded(t *testing.T) {
	one := asking(1, "1")
	claims := volumes(func(*v1.Pod) ([]*v1.NodeSelector, string) { return nil, "" }) // all are bound
	many := func(n int, c v1.Container) []v1.Container { return slices.Repeat([]v1.Container{c}, n) }
	always := v1.ContainerRestartPolicyAlways
	sidecars := func(n int) []v1.Container {
		c := asking(64, "1")
		c.RestartPolicy = &always
		return many(n, c)
	}
	for _, c := range []struct {
		what string
		spec v1.PodSpec
		says []string // nothing: accepted
	}{
		{"64 resources", v1.PodSpec{Containers: []v1.Container{asking(64, "1")}}, nil},
		{"65 resources", v1.PodSpec{Containers: []v1.Container{asking(65, "1")}}, []string{"spec.containers[0].resources.requests", "requests 65 resources", "limit is 64"}},
		{"65 resources in two containers", v1.PodSpec{Containers: []v1.Container{asking(3, "1"), asking(65, "1")}}, []string{"spec.containers[1].resources.requests", "65 resources"}},
		{"65 resources in an init container", v1.PodSpec{Containers: many(1, one), InitContainers: []v1.Container{asking(65, "1")}}, []string{"spec.initContainers[0].resources.requests", "65 resources"}},
		{"65 resources in the overhead", v1.PodSpec{Containers: many(1, one), Overhead: asking(65, "1").Resources.Requests}, []string{"spec.overhead", "65 resources"}},
		{"65 resources of the pod", v1.PodSpec{Containers: many(1, one), Resources: &v1.ResourceRequirements{Requests: asking(65, "1").Resources.Requests}}, []string{"spec.resources.requests", "65 resources"}},
		{"65 resources, all zero", v1.PodSpec{Containers: []v1.Container{asking(65, "0")}}, nil},
		{"100,000 resources", v1.PodSpec{Containers: []v1.Container{asking(99999, "1")}}, []string{"spec.containers[*].resources.requests", "99999 amounts", "limit is 1024"}},
		{"16 containers of 64 resources", v1.PodSpec{Containers: many(16, asking(64, "1"))}, nil},
		{"17 containers of 64 resources", v1.PodSpec{Containers: many(17, asking(64, "1"))}, []string{"1088 amounts", "limit is 1024"}},
		{"16 sidecars of 64 resources", v1.PodSpec{Containers: many(1, one), InitContainers: sidecars(16)}, []string{"1025 amounts", "limit is 1024"}},
		{"256 containers", v1.PodSpec{Containers: many(200, one), InitContainers: many(56, one)}, nil},
		{"257 containers", v1.PodSpec{Containers: many(200, v1.Container{}), InitContainers: many(57, v1.Container{})}, []string{"spec.containers", "257 containers", "limit is 256"}},

		{"many values", v1.PodSpec{Affinity: selecting(1022, 20)}, nil},
		{"too many values", v1.PodSpec{Affinity: selecting(1023, 1)}, []string{fieldAffinity, "1025 entries", "limit is 1024"}},
		{"long values", v1.PodSpec{Affinity: selecting(500, 63)}, nil},
		{"too long values", v1.PodSpec{Affinity: selecting(1000, 63), NodeSelector: labels(3, 10)}, []string{fieldAffinity, "bytes together", "limit is 32768"}},
		{"one huge value", v1.PodSpec{Affinity: selecting(1, 1e6)}, []string{fieldAffinity, "bytes together", "limit is 32768"}},
		{"tolerations", v1.PodSpec{Tolerations: tolerating(1024, 10)}, nil},
		{"too many tolerations", v1.PodSpec{Tolerations: tolerating(1025, 1)}, []string{"spec.tolerations", "1025 entries"}},
		{"half a megabyte of tolerations", v1.PodSpec{Tolerations: tolerating(1000, 512)}, []string{"spec.tolerations", "bytes together"}},
		{"too many labels", v1.PodSpec{NodeSelector: labels(1025, 5)}, []string{"spec.nodeSelector", "1025 entries"}},
		{"too long labels", v1.PodSpec{NodeSelector: labels(200, 200)}, []string{"spec.nodeSelector", "bytes together"}},
		{"half of each", v1.PodSpec{NodeSelector: labels(400, 5), Tolerations: tolerating(400, 5), Affinity: selecting(400, 5)}, []string{fieldAffinity, "1202 entries"}},
		{"256 host ports", v1.PodSpec{Containers: []v1.Container{listening(100, ""), listening(156, "10.0.0.1")}}, nil},
		{"257 host ports", v1.PodSpec{Containers: []v1.Container{listening(100, ""), listening(157, "10.0.0.1")}}, []string{"spec.containers[*].ports", "257 host ports", "limit is 256"}},
		{"256 volume claims", v1.PodSpec{Volumes: claiming(256)}, nil},
		{"257 volume claims", v1.PodSpec{Volumes: claiming(257)}, []string{"spec.volumes", "the limit of 256"}},
		{"10,000 volume claims", v1.PodSpec{Volumes: claiming(10000)}, []string{"spec.volumes", "the limit of 256"}},
		{"absurd host addresses", v1.PodSpec{Containers: []v1.Container{listening(200, strings.Repeat("1", 1000))}}, []string{"spec.containers[*].ports", "bytes together"}},
	} {
		if len(c.spec.Containers) == 0 {
			c.spec.Containers = many(1, one)
		}
		c.spec.SchedulerName = SchedulerName
		p := FromPod(&v1.Pod{Spec: c.spec}, claims, Rules{})
		if (p.Refused != nil) != (len(c.says) > 0) {
			t.Errorf("%s: refused %v", c.what, p.Refused)
			continue
		}
		for _, s := range c.says {
			if !strings.Contains(p.Refused.Message, s) {
				t.Errorf("%s: %q is missing in %.300q", c.what, s, p.Refused.Message)
			}
		}
		if p.Refused != nil && len(p.Refused.Message) > 300 {
			t.Errorf("%s: words of %d bytes", c.what, len(p.Refused.Message))
		}
		c.spec.NodeName = "n"
		bound := FromPod(&v1.Pod{Spec: c.spec}, claims, Rules{})
		for _, node := range []string{"", "n"} { // what the relay passes on is small, and reduces to the same
			c.spec.NodeName = node
			whole := &v1.Pod{Spec: c.spec}
			stripped := StripPod(whole)
			if got, want := FromPod(stripped, claims, Rules{}), FromPod(whole, claims, Rules{}); !reflect.DeepEqual(got, want) {
				t.Errorf("%s on node %q: stripped, it reduces to %+v, not %+v", c.what, node, got, want)
			}
			if size := stripped.Size(); size > MaxConstraintBytes+MaxPodAmounts*100 && node == "" {
				t.Errorf("%s: stripped, it has %d bytes", c.what, size)
			}
		}
		for who, p := range map[string]*Pod{"": p, " bound": bound} {
			if n := len(p.Class.Requests); n > MaxPodResources+1 || p.Class.Requests.Value("pods") != 1 {
				t.Errorf("%s%s: asks for %d resources, pods=%d", c.what, who, n, p.Class.Requests.Value("pods"))
			}
			if n := len(p.Class.Constraints); n > MaxConstraintBytes {
				t.Errorf("%s%s: constraints of %d bytes", c.what, who, n)
			}
		}
		if strings.Contains(c.what, "resources") && !strings.Contains(c.what, "zero") && len(bound.Class.Requests) != MaxPodResources+1 {
			t.Errorf("%s: bound, it is counted as %v", c.what, bound.Class.Requests)
		}
		if strings.Contains(c.what, "host ports") {
			spec, err := ReadConstraints(bound.Class.Constraints)
			if err != nil || len(spec.Containers) != 1 || len(spec.Containers[0].Ports) != MaxHostPorts {
				t.Errorf("%s: bound, it has %v, %v", c.what, spec, err)
			}
		}
	}
}

// A bound pod beyond a bound is counted in full for what matters most, and never less than the rules for all pods say.
func TestCoarseRequestsCoverTheRules(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	always := v1.ContainerRestartPolicyAlways
	for range 300 {
		list := func() v1.ResourceList {
			l := v1.ResourceList{}
			for range r.IntN(5) {
				name := []string{"cpu", "memory", "ephemeral-storage", "a.example.com/x", "z.example.com/y", "pods"}[r.IntN(6)]
				l[v1.ResourceName(name)] = *resource.NewMilliQuantity(r.Int64N(5000), resource.DecimalSI)
			}
			return l
		}
		p := &v1.Pod{}
		for range 1 + r.IntN(4) {
			p.Spec.Containers = append(p.Spec.Containers, v1.Container{Resources: v1.ResourceRequirements{Requests: list()}})
		}
		for range r.IntN(4) {
			c := v1.Container{Resources: v1.ResourceRequirements{Requests: list()}}
			if r.IntN(2) == 0 {
				c.RestartPolicy = &always
			}
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		}
		p.Spec.Overhead = list()
		rules, err := PodRequests(p, nil)
		if err != nil {
			t.Fatal(err)
		}
		if coarse := coarseRequests(p, nil); !rules.Fits(coarse) {
			t.Fatalf("%v by the rules, %v counted", rules, coarse)
		}
	}
	// What does not count is what comes last.
	p := &v1.Pod{Spec: v1.PodSpec{NodeName: "n", Containers: []v1.Container{asking(5000, "1"), {Resources: v1.ResourceRequirements{Requests: v1.ResourceList{
		"zz.example.com/z": resource.MustParse("1"), "memory": resource.MustParse("1Gi"), "cpu": resource.MustParse("2"), "ephemeral-storage": resource.MustParse("1")}}}}}}
	got := FromPod(p, nil, Rules{}).Class.Requests
	for name, want := range map[string]int64{"cpu": 2000, "memory": 1 << 30, "ephemeral-storage": 1, "pods": 1, "example.com/r00060": 1, "example.com/r00061": 0, "zz.example.com/z": 0} {
		if got.Value(name) != want {
			t.Errorf("%s is counted as %d, want %d", name, got.Value(name), want)
		}
	}
}

func TestNodesAreBounded(t *testing.T) {
	l := asking(MaxNodeResources+50, "2").Resources.Requests
	l["memory"] = resource.MustParse("1Gi")
	n := FromNode(&v1.Node{Status: v1.NodeStatus{Allocatable: l}}, nil)
	if len(n.Allocatable) != MaxNodeResources || n.Allocatable.Value("memory") != 1<<30 || n.Unreadable != "status.allocatable names 307 resources, the limit is 256: the others count as zero" {
		t.Errorf("%d resources, memory %d, %q", len(n.Allocatable), n.Allocatable.Value("memory"), n.Unreadable)
	}
}

func TestForemost(t *testing.T) {
	r := FromMap(map[string]int64{"a": 1, "b": 2, "cpu": 3, "m": 4, "memory": 5, "pods": 6, "z": 7})
	for _, c := range []struct {
		n         int
		important Resources
		kept      string
		left      int
	}{
		{7, nil, "a=1 b=2 cpu=3m m=4 memory=5 pods=6 z=7", 0},
		{5, nil, "a=1 b=2 cpu=3m memory=5 pods=6", 2},
		{5, Resources{{"z", 0}}, "a=1 cpu=3m memory=5 pods=6 z=7", 2},
		{2, nil, "cpu=3m memory=5", 5},
		{4, Resources{{"a", 0}, {"b", 0}, {"m", 0}, {"z", 0}}, "a=1 cpu=3m memory=5 pods=6", 3},
		{0, nil, "", 7},
	} {
		if kept, left := r.Foremost(c.n, c.important); kept.String() != c.kept || left != c.left {
			t.Errorf("foremost %d beside %v: %q and %d more, want %q and %d", c.n, c.important, kept, left, c.kept, c.left)
		}
	}
}

func TestShorten(t *testing.T) {
	for _, c := range []struct {
		text string
		most int
		want string
	}{
		{"", 0, ""}, {"abc", 3, "abc"}, {"abcd", 3, "..."}, {"abcdef", 5, "ab..."},
		{"a\u00e4\u00e4\u00e4\u00e4", 6, "a\u00e4..."}, {"a\u00e4\u00e4\u00e4\u00e4", 7, "a\u00e4..."}, {"a\u00e4\u00e4\u00e4\u00e4", 8, "a\u00e4\u00e4..."},
	} {
		if got := Shorten(c.text, c.most); got != c.want {
			t.Errorf("%q in %d bytes: %q, want %q", c.text, c.most, got, c.want)
		}
	}
}

// Classes of pods that are read do not pile up by their size either.
func TestClassesAreBoundedByBytes(t *testing.T) {
	var c Classes
	for i := range 3000 {
		p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{asking(1, "1")}, NodeSelector: map[string]string{"a": fmt.Sprintf("%030000d", i)}}}
		if c.FromPod(p, nil, Rules{}).Refused != nil {
			t.Fatal("refused")
		}
	}
	size := 0
	for _, m := range []map[string]*Class{c.recent, c.before} {
		for key := range m {
			size += len(key)
		}
	}
	if size > 2*keptBytes+1<<20 {
		t.Errorf("classes of %d bytes are kept", size)
	}
	if len(c.recent)+len(c.before) < 500 {
		t.Errorf("only %d classes are kept", len(c.recent)+len(c.before))
	}
}

// Equal pods have equal classes, also beyond a bound.
func TestClassesBeyondABoundAreEqual(t *testing.T) {
	pod := &v1.Pod{Spec: v1.PodSpec{NodeName: "n", Containers: []v1.Container{asking(500, "3"), listening(300, "")}}}
	first := FromPod(pod, nil, Rules{}).Class
	for range 20 {
		if again := FromPod(pod.DeepCopy(), nil, Rules{}).Class; again.Key != first.Key || !bytes.Equal(again.Constraints, first.Constraints) {
			t.Fatal("the same pod has two classes")
		}
	}
}

func BenchmarkFromPod(b *testing.B) {
	small := v1.Container{Resources: v1.ResourceRequirements{Requests: v1.ResourceList{"cpu": resource.MustParse("1500m"), "memory": resource.MustParse("2Gi")}}}
	for _, c := range []struct {
		name string
		spec v1.PodSpec
	}{
		{"plain", v1.PodSpec{Containers: []v1.Container{small}}},
		{"two containers", v1.PodSpec{Containers: []v1.Container{small, small}}},
		{"constraints", v1.PodSpec{Containers: []v1.Container{small}, NodeSelector: labels(2, 20), Tolerations: tolerating(3, 20), Affinity: selecting(10, 20)}},
		{"5,000 resources", v1.PodSpec{Containers: []v1.Container{asking(5000, "1")}}},
		{"5,000 resources, bound", v1.PodSpec{NodeName: "n", Containers: []v1.Container{asking(5000, "1")}}},
		{"megabyte of affinity", v1.PodSpec{Containers: []v1.Container{small}, Affinity: selecting(16000, 63)}},
	} {
		pod := &v1.Pod{Spec: c.spec}
		pod.Spec.SchedulerName = SchedulerName
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			var classes Classes
			for b.Loop() {
				classes.FromPod(pod, nil, Rules{})
			}
		})
	}
}

// A pod that is too large to be bound is refused, also where most of it was left out; one with a node is not.
func TestPodSize(t *testing.T) {
	for _, test := range []struct {
		bytes int
		node  string
		want  string
	}{
		{MaxPodBytes - 1000, "", ""},
		{MaxPodBytes + 1, "", "bytes, the limit is 1048576"},
		{MaxPodBytes + 1, "n", ""},
	} {
		p := &v1.Pod{Spec: v1.PodSpec{SchedulerName: SchedulerName, NodeName: test.node, Containers: []v1.Container{{Name: "c", Args: []string{strings.Repeat("x", test.bytes)}}}}}
		stripped := StripPod(p)
		if stripped.Size() > 1000 {
			t.Fatalf("stripped, it has %d bytes", stripped.Size())
		}
		got := ""
		if r := FromPod(stripped, nil, Rules{}).Refused; r != nil {
			got = r.Message
		}
		if got == "" != (test.want == "") || !strings.Contains(got, test.want) {
			t.Errorf("%d bytes, node %q: refused %q, want %q", test.bytes, test.node, got, test.want)
		}
	}
}
