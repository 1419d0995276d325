package api

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What is kept of a pod is what its object says.
func TestSchedulerNames(t *testing.T) {
	for name, want := range map[string][2]bool{"basalt": {true, false}, "volcano": {false, true}, "batch": {false, true}, "": {false, false}, "default-scheduler": {false, false}} {
		pod := &v1.Pod{Spec: v1.PodSpec{SchedulerName: name}}
		if got := [2]bool{FromPod(pod, nil, Rules{}).Ours, FromPod(pod, nil, Rules{Schedulers: []string{"volcano", "batch"}}).Ours}; got != want {
			t.Errorf("%q is ours: %v, want %v", name, got, want)
		}
	}
}

func TestFromPod(t *testing.T) {
	yes, no := true, false
	now := metav1.Now()
	for _, c := range []struct {
		what   string
		change func(*v1.Pod)
		is     func(*Pod) bool
	}{
		{"the gang label without a node", func(p *v1.Pod) { p.Labels = map[string]string{LabelGang: "g"} }, func(p *Pod) bool { return p.Gang == "" }},
		{"until with a node and the gang label", func(p *v1.Pod) {
			p.Labels, p.Spec.NodeName = map[string]string{LabelGang: "g"}, "n"
			p.Annotations = map[string]string{AnnotationUntil: FormatUntil(1767225600)}
		}, func(p *Pod) bool { return p.Until == 1767225600 }},
		{"until without the gang label", func(p *v1.Pod) {
			p.Spec.NodeName, p.Annotations = "n", map[string]string{AnnotationUntil: FormatUntil(1767225600)}
		}, func(p *Pod) bool { return p.Until == 0 }},
		{"until without a node", func(p *v1.Pod) {
			p.Labels = map[string]string{LabelGang: "g"}
			p.Annotations = map[string]string{AnnotationUntil: FormatUntil(1767225600)}
		}, func(p *Pod) bool { return p.Until == 0 }},
		{"until that no Binding says", func(p *v1.Pod) {
			p.Labels, p.Spec.NodeName = map[string]string{LabelGang: "g"}, "n"
			p.Annotations = map[string]string{AnnotationUntil: "2026-01-01T00:00:0aZ"}
		}, func(p *Pod) bool { return p.Until == 0 }},
		{"the gang label with a node", func(p *v1.Pod) { p.Labels, p.Spec.NodeName = map[string]string{LabelGang: "g"}, "n" }, func(p *Pod) bool { return p.Gang == "g" && p.Node == "n" }},
		{"the labels of group and queue", func(p *v1.Pod) { p.Labels = map[string]string{LabelPodGroup: "g", LabelQueue: "q"} }, func(p *Pod) bool { return p.Group == "g" && p.Queue == "q" }},
		{"pending", func(*v1.Pod) {}, func(p *Pod) bool {
			return p.Ours && !p.Finished && !p.Started && !p.Deleting && !p.Gated &&
				!p.Owned() && p.Priority == 0 && p.Condition.Reason == ""
		}},
		{"of another scheduler", func(p *v1.Pod) { p.Spec.SchedulerName = "default-scheduler" }, func(p *Pod) bool { return !p.Ours }},
		{"running", func(p *v1.Pod) { p.Status.Phase = v1.PodRunning }, func(p *Pod) bool { return p.Started && !p.Finished }},
		{"accepted", func(p *v1.Pod) { p.Status.StartTime = &now }, func(p *Pod) bool { return p.Started }},
		{"succeeded", func(p *v1.Pod) { p.Status.Phase = v1.PodSucceeded }, func(p *Pod) bool { return p.Finished }},
		{"failed", func(p *v1.Pod) { p.Status.Phase = v1.PodFailed }, func(p *Pod) bool { return p.Finished }},
		{"being deleted", func(p *v1.Pod) { p.DeletionTimestamp = &now }, func(p *Pod) bool { return p.Deleting }},
		{"gated", func(p *v1.Pod) { p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "x"}} }, func(p *Pod) bool { return p.Gated }},
		{"with a controller", func(p *v1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{Controller: &yes}, {Controller: &no}, {}}
		}, func(p *Pod) bool { return p.Owned() }},
		{"with owners that are no controllers", func(p *v1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{Controller: &no}, {}}
		}, func(p *Pod) bool { return !p.Owned() }},
		{"told why it waits", func(p *v1.Pod) {
			p.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: "r", Message: "m"}, {Type: v1.PodReady, Status: v1.ConditionFalse, Reason: "x"}}
		}, func(p *Pod) bool { return p.Condition.Reason == "r" && p.Condition.Message == "m" }},
		{"scheduled", func(p *v1.Pod) {
			p.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionTrue, Reason: "r"}}
		}, func(p *Pod) bool { return p.Condition.Reason == "" }},
	} {
		pod := &v1.Pod{Spec: v1.PodSpec{SchedulerName: SchedulerName}}
		c.change(pod)
		for what, p := range map[string]*Pod{"": FromPod(pod, nil, Rules{}), ", stripped": FromPod(StripPod(pod), nil, Rules{})} {
			if !c.is(p) {
				t.Errorf("%s%s: %+v", c.what, what, p)
			}
		}
	}
}

// Of several amounts that cannot be read the same is named at each look, with its field.
func TestBadAmountIsNamed(t *testing.T) {
	list := func(names ...string) v1.ResourceRequirements {
		l := v1.ResourceList{}
		for _, n := range names {
			l[v1.ResourceName(n)] = resource.MustParse("-1")
		}
		return v1.ResourceRequirements{Requests: l}
	}
	p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Resources: list("c", "b", "d", "e")}, {Resources: list("a")}}, Overhead: list("z").Requests,
		Resources: &v1.ResourceRequirements{Requests: list("y").Requests}}}
	for range 20 {
		r, err := PodRequests(p, nil)
		if err == nil || err.Error() != "spec.containers[0].resources.requests: b: -1 is negative" || len(r) != 1 || r.Value("pods") != 1 {
			t.Fatalf("%v, %v", r, err)
		}
	}
	for _, c := range []struct {
		amount, says string
	}{
		{"1e40", "about 1e40 is too large"}, {"-1", "-1 is negative"},
	} {
		_, err := FromQuantity("x", resource.MustParse(c.amount), true)
		if err == nil || err.Error() != "x: "+c.says {
			t.Errorf("%s: %v, want %s", c.amount, err, c.says)
		}
	}
	for size, want := range map[int]string{40: strings.Repeat("1", 40), 41: strings.Repeat("1", 40) + "..."} {
		if got := short(resource.MustParse(strings.Repeat("1", size))); got != want {
			t.Errorf("a quantity of %d digits: %s", size, got)
		}
	}
}

// The field that is named is the one in which the first resource beyond the limit stands.
func TestFieldBeyondTheLimit(t *testing.T) {
	some := func(from, to int) v1.ResourceList {
		l := v1.ResourceList{}
		for i := from; i < to; i++ {
			l[v1.ResourceName(fmt.Sprintf("r%03d", i))] = resource.MustParse("1")
		}
		return l
	}
	in := func(l v1.ResourceList) v1.Container {
		return v1.Container{Resources: v1.ResourceRequirements{Requests: l}}
	}
	for _, c := range []struct {
		want string
		spec v1.PodSpec
	}{
		{"spec.containers[1].resources.requests: the pod requests 65 resources, the limit is 64", v1.PodSpec{Containers: []v1.Container{in(some(0, 64)), in(some(64, 65)), in(some(0, 3))}}},
		{"spec.containers[2].resources.requests: the pod requests 66 resources, the limit is 64", v1.PodSpec{Containers: []v1.Container{in(some(0, 63)), in(some(0, 64)), in(some(60, 66))}}},
		{"spec.overhead: the pod requests 65 resources, the limit is 64", v1.PodSpec{Containers: []v1.Container{in(some(0, 64))}, Overhead: some(64, 65)}},
		{"spec.resources.requests: the pod requests 65 resources, the limit is 64", v1.PodSpec{Containers: []v1.Container{in(some(0, 64))}, Resources: &v1.ResourceRequirements{Requests: some(64, 65)}}},
	} {
		if _, err := PodRequests(&v1.Pod{Spec: c.spec}, nil); err == nil || err.Error() != c.want {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
}

// A status that names the same amounts in other words, or sums of the one container, is not a resize; everything else is.
func TestWhatCountsAsResized(t *testing.T) {
	amount := func(cpu string) v1.ResourceList { return v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)} }
	container := func(name, cpu string) v1.Container {
		return v1.Container{Name: name, Resources: v1.ResourceRequirements{Requests: amount(cpu)}}
	}
	status := func(name, allocated, has string) v1.ContainerStatus {
		s := v1.ContainerStatus{Name: name}
		if allocated != "" {
			s.AllocatedResources = amount(allocated)
		}
		if has != "" {
			s.Resources = &v1.ResourceRequirements{Requests: amount(has)}
		}
		return s
	}
	one := v1.PodSpec{NodeName: "n", Containers: []v1.Container{container("c", "1")}}
	two := v1.PodSpec{NodeName: "n", Containers: []v1.Container{container("c", "1"), container("d", "2")}}
	initial := v1.PodSpec{NodeName: "n", Containers: []v1.Container{container("c", "1")}, InitContainers: []v1.Container{container("i", "2")}}
	itself := one
	itself.Resources = &v1.ResourceRequirements{Requests: amount("1")}
	waits := one
	waits.NodeName = ""
	pending := func(reason string) []v1.PodCondition {
		return []v1.PodCondition{{Type: v1.PodReady}, {Type: v1.PodResizePending, Reason: reason}}
	}
	for _, c := range []struct {
		what   string
		spec   v1.PodSpec
		status v1.PodStatus
		want   bool
	}{
		{"no status", one, v1.PodStatus{}, false},
		{"the same", one, v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{status("c", "1", "1")}}, false},
		{"the same in other words", one, v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{status("c", "1000m", "1.0")}}, false},
		{"more allocated", one, v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{status("c", "2", "1")}}, true},
		{"less at hand", one, v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{status("c", "1", "500m")}}, true},
		{"more allocated, and not on a node", waits, v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{status("c", "2", "1")}}, false},
		{"an unreadable amount", one, v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{status("c", "-1", "")}}, true},
		{"in another order", two, v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{status("d", "2", "2"), status("c", "1", "1")}}, false},
		{"in another order, and more", two, v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{status("d", "2", "3"), status("c", "1", "1")}}, true},
		{"of a container that is not there", one, v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{status("x", "2", "2")}}, false},
		{"an init container", initial, v1.PodStatus{InitContainerStatuses: []v1.ContainerStatus{status("i", "2", "2")}}, false},
		{"a larger init container", initial, v1.PodStatus{InitContainerStatuses: []v1.ContainerStatus{status("i", "3", "2")}}, true},
		{"sums of one container", one, v1.PodStatus{AllocatedResources: amount("1"), Resources: &v1.ResourceRequirements{Requests: amount("1")}}, false},
		{"another sum allocated", one, v1.PodStatus{AllocatedResources: amount("2")}, true},
		{"another sum at hand", one, v1.PodStatus{Resources: &v1.ResourceRequirements{Requests: amount("2")}}, true},
		{"a sum without requests", one, v1.PodStatus{Resources: &v1.ResourceRequirements{}}, false},
		{"sums of two containers", two, v1.PodStatus{AllocatedResources: amount("3")}, true},
		{"sums with an init container", initial, v1.PodStatus{AllocatedResources: amount("1")}, true},
		{"sums of a pod with requests of its own", itself, v1.PodStatus{AllocatedResources: amount("1")}, true},
		{"an infeasible resize", one, v1.PodStatus{Conditions: pending(v1.PodReasonInfeasible)}, true},
		{"an infeasible resize, and a status", one, v1.PodStatus{Conditions: pending(v1.PodReasonInfeasible), ContainerStatuses: []v1.ContainerStatus{status("c", "1", "1")}}, true},
		{"a deferred resize", one, v1.PodStatus{Conditions: pending(v1.PodReasonDeferred)}, false},
	} {
		if got := resized(&v1.Pod{Spec: c.spec, Status: c.status}); got != c.want {
			t.Errorf("%s: %t", c.what, got)
		}
	}
}

func TestSameAmounts(t *testing.T) {
	list := func(words ...string) v1.ResourceList {
		l := v1.ResourceList{}
		for _, w := range words {
			name, q, _ := strings.Cut(w, "=")
			l[v1.ResourceName(name)] = resource.MustParse(q)
		}
		return l
	}
	for _, c := range []struct {
		a, b v1.ResourceList
		want bool
	}{
		{nil, nil, true},
		{list("cpu=1"), list("cpu=1"), true},
		{list("cpu=1"), list("cpu=1000m"), true},
		{list("cpu=1"), list("cpu=2"), false},
		{list("cpu=1"), list("memory=1"), false},
		{list("cpu=1"), list("cpu=1", "memory=1"), false},
		{list("cpu=0"), list("cpu=0m"), true},
		{list("x=0e2000000000"), list("x=0"), true},
		{list("x=1e2000000000"), list("x=1"), false},
		{list("x=1"), list("x=1e2000000000"), false},
		{list("x=-1"), list("x=-1.0"), false},
		{list("x=5"), list("x=0"), false},
	} {
		if got := sameAmounts(c.a, c.b); got != c.want {
			t.Errorf("%v and %v: %t", c.a, c.b, got)
		}
	}
}

// A pod that is read is left as it is, whatever of it is not counted.
func TestPodIsLeftAsItIs(t *testing.T) {
	list := func() v1.ResourceList {
		return v1.ResourceList{v1.ResourceCPU: resource.MustParse("2"), "ignored": resource.MustParse("1"), "zero": resource.MustParse("0")}
	}
	p := &v1.Pod{Spec: v1.PodSpec{NodeName: "n", Containers: []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{Requests: list()}}}, Overhead: list()},
		Status: v1.PodStatus{AllocatedResources: list(), Resources: &v1.ResourceRequirements{Requests: list()},
			ContainerStatuses: []v1.ContainerStatus{{Name: "c", AllocatedResources: list(), Resources: &v1.ResourceRequirements{Requests: list()}}}}}
	p.Status.ContainerStatuses[0].AllocatedResources[v1.ResourceCPU] = resource.MustParse("3")
	before := p.DeepCopy()
	if r, err := PodRequests(p, map[string]bool{"ignored": true}); err != nil || len(r) != 2 || r.Value("ignored") != 0 {
		t.Errorf("%v, %v", r, err)
	}
	for what, pair := range map[string][2]v1.ResourceList{
		"requests":           {p.Spec.Containers[0].Resources.Requests, before.Spec.Containers[0].Resources.Requests},
		"overhead":           {p.Spec.Overhead, before.Spec.Overhead},
		"allocated":          {p.Status.AllocatedResources, before.Status.AllocatedResources},
		"at hand":            {p.Status.Resources.Requests, before.Status.Resources.Requests},
		"of a container":     {p.Status.ContainerStatuses[0].AllocatedResources, before.Status.ContainerStatuses[0].AllocatedResources},
		"a container's own ": {p.Status.ContainerStatuses[0].Resources.Requests, before.Status.ContainerStatuses[0].Resources.Requests},
	} {
		if !maps.EqualFunc(pair[0], pair[1], resource.Quantity.Equal) {
			t.Errorf("%s became %v", what, pair[0])
		}
	}
}

// A pod without containers, which no API server has, is stripped like any other.
func TestStripWithoutContainers(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	sidecar := v1.Container{RestartPolicy: &always}
	for i := range MaxHostPorts + 1 {
		sidecar.Ports = append(sidecar.Ports, v1.ContainerPort{HostPort: int32(i + 1)})
	}
	p := StripPod(&v1.Pod{Spec: v1.PodSpec{SchedulerName: SchedulerName, InitContainers: []v1.Container{sidecar}}})
	if p.Status.Reason != excessConstraints || !strings.Contains(p.Status.Message, "257 host ports") {
		t.Errorf("%s: %s", p.Status.Reason, p.Status.Message)
	}
}

// Whether a pod may be evicted is read from its label alike before and after it is stripped, also if it has too many labels.
func TestPreemptible(t *testing.T) {
	for value, want := range map[string]*bool{"true": new(true), "false": new(false), "": nil, "yes": nil} {
		for _, others := range []int{0, 5000} {
			p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{LabelPreemptible: value}}, Spec: v1.PodSpec{SchedulerName: SchedulerName}}
			for i := range others {
				p.Labels[fmt.Sprintf("example.com/label-%d", i)] = "x"
			}
			for what, pod := range map[string]*v1.Pod{"whole": p, "stripped": StripPod(p)} {
				if got := FromPod(pod, nil, Rules{}).Preemptible; (got == nil) != (want == nil) || got != nil && *got != *want {
					t.Errorf("%q among %d other labels, %s: %v", value, others, what, got)
				}
			}
		}
	}
}

// Whom a spread with an empty selector counts depends on the release of Kubernetes; all other selectors mean the same.
func TestEmptySpread(t *testing.T) {
	app := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}
	for _, c := range []struct {
		what         string
		selector     *metav1.LabelSelector
		keys         []string
		before, from bool // 1.38: whether it counts a pod without labels
		own          bool // whether it counts one with the labels of the pod, in both
	}{
		{"none", nil, nil, false, false, false},
		{"empty", &metav1.LabelSelector{}, nil, false, true, false},
		{"an empty list", &metav1.LabelSelector{MatchLabels: map[string]string{}}, nil, false, true, false},
		{"a label", app, nil, false, false, true},
		{"empty, and a key that the pod has", &metav1.LabelSelector{}, []string{"app"}, false, false, true},
		{"empty, and a key that the pod lacks", &metav1.LabelSelector{}, []string{"hash"}, false, true, false},
	} {
		for _, when := range []v1.UnsatisfiableConstraintAction{v1.DoNotSchedule, v1.ScheduleAnyway} {
			p := &v1.Pod{Spec: v1.PodSpec{SchedulerName: "basalt", TopologySpreadConstraints: []v1.TopologySpreadConstraint{
				{MaxSkew: 1, TopologyKey: "a", WhenUnsatisfiable: when, LabelSelector: app},
				{MaxSkew: 1, TopologyKey: "z", WhenUnsatisfiable: when, LabelSelector: c.selector, MatchLabelKeys: c.keys}}}}
			p.Labels = map[string]string{"app": "x"}
			for _, all := range []bool{false, true} {
				rules := Rules{EmptyAll: all}
				out := FromPod(rules.StripPod(p), nil, rules)
				var read []*Spread
				if when == v1.DoNotSchedule {
					joins, err := ReadJoins(out.Class.Joins)
					if err != nil {
						t.Fatal(err)
					}
					read = joins.Spread
				} else {
					leanings, err := ReadLeanings(out.Class.Leanings)
					if err != nil {
						t.Fatal(err)
					}
					for i := range leanings.Spread {
						read = append(read, leanings.Spread[i])
					}
				}
				want, spread := c.before, read[len(read)-1]
				if all {
					want = c.from
				}
				if spread.Topology != "z" || spread.Counts(NewLabels(nil)) != want ||
					spread.Counts(NewLabels(p.Labels)) != (c.own || want) {
					t.Errorf("%s, %s, all %t: %v counts others: %t", c.what, when, all, spread, !want)
				}
			}
			if p.Spec.TopologySpreadConstraints[1].LabelSelector != c.selector {
				t.Errorf("%s: the pod was changed", c.what)
			}
		}
	}
}
