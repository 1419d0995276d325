package api

import (
	"math"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
)

func TestFromQuantity(t *testing.T) {
	for _, c := range []struct {
		name, quantity string
		roundUp        bool
		want           int64
		refused        bool
	}{
		{"cpu", "1500m", false, 1500, false},
		{"cpu", "2", false, 2000, false},
		{"cpu", "0.5m", false, 0, true},
		{"cpu", "0.5m", true, 1, false},
		{"cpu", "9E", true, 0, true}, // reads as 0 millicores to careless code
		{"cpu", "1e400", true, 0, true},
		{"memory", "4Gi", false, 4 << 30, false},
		{"memory", "100m", false, 0, true},
		{"memory", "100m", true, 1, false},
		{"memory", "1Ei", false, 1 << 60, false},
		{"memory", "9E", true, 0, true},
		{"memory", "-1", true, 0, true},
		{"nvidia.com/gpu", "3", false, 3, false},
		{"nvidia.com/gpu", "0.5", false, 0, true},
		{"pods", "0", false, 0, false},
	} {
		q, err := resource.ParseQuantity(c.quantity)
		if err != nil {
			t.Fatalf("%s: %v", c.quantity, err)
		}
		got, err := FromQuantity(c.name, q, c.roundUp)
		if (err != nil) != c.refused || got != c.want {
			t.Errorf("FromQuantity(%s, %s, %v) = %d, %v; want %d, refused %v", c.name, c.quantity, c.roundUp, got, err, c.want, c.refused)
		}
	}
}

func TestArithmeticSaturates(t *testing.T) {
	for _, c := range []struct{ a, b, sum int64 }{
		{1, 2, 3}, {math.MaxInt64, 1, math.MaxInt64}, {math.MinInt64, -1, math.MinInt64}, {math.MaxInt64, math.MinInt64, -1}, {5, 0, 5}, {-5, 5, 0},
	} {
		if got := AddSat(c.a, c.b); got != c.sum {
			t.Errorf("AddSat(%d, %d) = %d, want %d", c.a, c.b, got, c.sum)
		}
	}
	if got := MulSat(1<<40, 1<<40); got != math.MaxInt64 {
		t.Errorf("MulSat = %d", got)
	}
	if got := MulSat(-3, 4); got != -12 {
		t.Errorf("MulSat = %d", got)
	}
}

func vector(t *rapid.T, label string) Resources {
	m := rapid.MapOf(rapid.SampledFrom([]string{"cpu", "memory", "pods", "nvidia.com/gpu"}), rapid.Int64Range(-1000, 1000)).Draw(t, label)
	return FromMap(m)
}

func TestVectorsAgreeWithMaps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := vector(t, "a"), vector(t, "b")
		sum, diff := a.Add(b), a.Sub(b)
		for _, n := range []string{"cpu", "memory", "pods", "nvidia.com/gpu"} {
			if sum.Value(n) != a.Value(n)+b.Value(n) || diff.Value(n) != a.Value(n)-b.Value(n) || a.Max(b).Value(n) != max(a.Value(n), b.Value(n)) {
				t.Fatalf("%s: %v + %v = %v, - = %v", n, a, b, sum, diff)
			}
		}
		if !sum.Sub(b).Equal(a) {
			t.Fatalf("(%v + %v) - %v = %v", a, b, b, sum.Sub(b))
		}
		if name, by, exceeds := a.Exceeds(b); exceeds && (by <= 0 || a.Value(name)-by > b.Value(name)) {
			t.Fatalf("%v exceeds %v in %s by %d", a, b, name, by)
		}
	})
}

func TestPodRequestsFollowComponentHelpers(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	list := func(cpu string) v1.ResourceRequirements {
		return v1.ResourceRequirements{Requests: v1.ResourceList{"cpu": resource.MustParse(cpu)}}
	}
	pod := &v1.Pod{Spec: v1.PodSpec{
		SchedulerName:  SchedulerName,
		InitContainers: []v1.Container{{Resources: list("3")}, {Resources: list("500m"), RestartPolicy: &always}},
		Containers:     []v1.Container{{Resources: list("1")}, {Resources: list("1")}},
		Overhead:       v1.ResourceList{"cpu": resource.MustParse("250m")},
	}}
	got, err := PodRequests(pod, nil)
	if err != nil || got.Value("cpu") != 3250 || got.Value("pods") != 1 {
		t.Fatalf("PodRequests = %v, %v", got, err)
	}
	gangs := func() v1.ResourceRequirements {
		return v1.ResourceRequirements{Requests: v1.ResourceList{
			"cpu": resource.MustParse("1"), ResourceGangs: resource.MustParse("7")}}
	}
	for _, containers := range [][]v1.Container{{{Resources: gangs()}}, {{Resources: gangs()}, {Resources: gangs()}}} {
		p := &v1.Pod{Spec: v1.PodSpec{SchedulerName: SchedulerName, Containers: containers}}
		if got, err := PodRequests(p, nil); err != nil || len(got) != 2 || got.Value(ResourceGangs) != 0 {
			t.Fatalf("a pod that asks for gangs requests %v, %v", got, err)
		}
	}
	pod.Spec.Containers[0].Resources = list("9E")
	if p := FromPod(pod, nil, Rules{}); p.Refused == nil || p.Refused.Reason != "NeverFits" {
		t.Fatalf("a pod that asks for 9E cores: %+v", p.Refused)
	}
}

func TestWhatIsNotSupportedIsRefused(t *testing.T) {
	term := []v1.PodAffinityTerm{{TopologyKey: "zone", LabelSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}}}}
	for name, spec := range map[string]v1.PodSpec{
		"spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].labelSelector:": {Affinity: &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: term}}},
		"spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].labelSelector:":     {Affinity: &v1.Affinity{PodAffinity: &v1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: term}}},
		"spec.topologySpreadConstraints[1].labelSelector:":                                               {TopologySpreadConstraints: []v1.TopologySpreadConstraint{{WhenUnsatisfiable: v1.ScheduleAnyway}, {WhenUnsatisfiable: v1.DoNotSchedule, LabelSelector: term[0].LabelSelector}}},
		"spec.resourceClaims":                                {ResourceClaims: []v1.PodResourceClaim{{Name: "gpu"}}},
		"spec.schedulingGroup":                               {SchedulingGroup: &v1.PodSchedulingGroup{}},
		"spec.volumes[1].rbd.monitors":                       {Volumes: []v1.Volume{{}, {VolumeSource: v1.VolumeSource{RBD: &v1.RBDVolumeSource{CephMonitors: make([]string, 17)}}}}},
		"spec.volumes[0].persistentVolumeClaim (claim data)": {Volumes: []v1.Volume{{VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}},
	} {
		spec.SchedulerName = SchedulerName
		p := FromPod(&v1.Pod{Spec: spec}, volumes(notBound), Rules{})
		if p.Refused == nil || p.Refused.Reason != "UnsupportedConstraint" || len(p.Refused.Message) < len(name) || p.Refused.Message[:len(name)] != name {
			t.Errorf("%s: refused %+v", name, p.Refused)
		}
	}
	soft := v1.PodSpec{SchedulerName: SchedulerName, TopologySpreadConstraints: []v1.TopologySpreadConstraint{{WhenUnsatisfiable: v1.ScheduleAnyway}},
		Affinity: &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []v1.WeightedPodAffinityTerm{{}}}}}
	if p := FromPod(&v1.Pod{Spec: soft}, nil, Rules{}); p.Refused != nil {
		t.Errorf("preferred forms are refused: %+v", p.Refused)
	}
}

func TestPaths(t *testing.T) {
	for path, ok := range map[string]bool{
		"root": true, "default": true, "research.vision.train": true, "a-1.b": true, "": false, "Research": false, "a..b": false, ".a": false, "a.": false,
		"-a": false, "a-": false, "root.a": false, "a.b.c.d.e.f.g.h": true, "a.b.c.d.e.f.g.h.i": false, "a_b": false,
		"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa": false,
	} {
		if err := ValidatePath(path); (err == nil) != ok {
			t.Errorf("ValidatePath(%q) = %v", path, err)
		}
	}
	if l := Lineage("a.b.c"); len(l) != 4 || l[0] != "a.b.c" || l[2] != "a" || l[3] != "root" {
		t.Errorf("Lineage = %v", l)
	}
	if !Under("a.b", "a") || Under("ab", "a") || !Under("x", "root") || Under("root", "a") {
		t.Error("Under is wrong")
	}
}

func TestClassesAreEqualWhenTheirPodsAre(t *testing.T) {
	one := FromPod(&v1.Pod{Spec: v1.PodSpec{NodeSelector: map[string]string{"a": "1", "b": "2"}, SchedulerName: SchedulerName}}, nil, Rules{})
	for range 50 { // maps are marshalled in a stable order
		two := FromPod(&v1.Pod{Spec: v1.PodSpec{NodeSelector: map[string]string{"b": "2", "a": "1"}, SchedulerName: SchedulerName}}, nil, Rules{})
		if one.Class.Key != two.Class.Key {
			t.Fatal("equal pods have different classes")
		}
	}
	if spec, err := ReadConstraints(one.Class.Constraints); err != nil || spec.NodeSelector["b"] != "2" {
		t.Fatalf("ReadConstraints = %v, %v", spec, err)
	}
}

// One container is reckoned without the rules for all pods: it must come to the same.
func TestPlainPodsAskForTheSame(t *testing.T) {
	for _, requests := range []v1.ResourceList{
		nil,
		{"cpu": resource.MustParse("1500m"), "memory": resource.MustParse("2Gi")},
		{"cpu": resource.MustParse("1n"), "memory": resource.MustParse("1m"), "nvidia.com/gpu": resource.MustParse("2")},
		{"cpu": resource.MustParse("0"), "pods": resource.MustParse("7"), "ephemeral-storage": resource.MustParse("1G")},
		{"cpu": resource.MustParse("-1")},
		{"cpu": resource.MustParse("9E"), "memory": resource.MustParse("1e400")},
		{"example.com/ignored": resource.MustParse("1e400"), "cpu": resource.MustParse("2")},
	} {
		ignore := map[string]bool{"example.com/ignored": true}
		one := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Resources: v1.ResourceRequirements{Requests: requests}}}}}
		two := &v1.Pod{Spec: v1.PodSpec{Containers: append(one.Spec.Containers, v1.Container{})}}
		a, errA := PodRequests(one, ignore)
		b, errB := PodRequests(two, ignore)
		if !slices.Equal(a, b) || (errA == nil) != (errB == nil) || errA != nil && errA.Error() != errB.Error() {
			t.Errorf("%v: %v, %v with one container; %v, %v with an empty second one", requests, a, errA, b, errB)
		}
	}
}
