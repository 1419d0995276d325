package api

import (
	"reflect"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// fill sets each field of a struct to something, a number that counts.
func fill(v reflect.Value, skip map[string]bool, n *int) {
	*n++
	switch v.Kind() {
	case reflect.String:
		v.SetString(string(rune('a'+*n%26)) + "text")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(-int64(*n) * 1000)
	case reflect.Uint8, reflect.Uint64:
		v.SetUint(uint64(*n))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), skip, n)
	case reflect.Struct:
		for i := range v.NumField() {
			if name := v.Type().Field(i).Name; !skip[name] {
				fill(v.Field(i), skip, n)
			}
		}
	default:
		panic(v.Type().String())
	}
}

// TestPacked: every field of a pod arrives, but for those that Packable excludes; and so does one with none of them.
func TestPacked(t *testing.T) {
	excluded := map[string]bool{"Unbound": true, "Tied": true, "Note": true, "Claims": true, "Scarce": true}
	apart := map[string]bool{"Created": true, "Labels": true, "Class": true}
	for name := range excluded {
		apart[name] = true
	}
	var u Unpacker
	full := &Pod{}
	fill(reflect.ValueOf(full).Elem(), apart, new(int))
	full.Created = time.Unix(1700000000, 123)
	full.Labels = NewLabels(map[string]string{"app": "web", "tier": ""})
	full.Class = MakeClass(Class{Requests: Resources{{"cpu", 100}, {"pods", 1}}, Constraints: []byte("c"),
		Repels: []byte("r"), Joins: []byte("j"), Wishes: []byte("w"), Leanings: []byte("l")})
	no := false
	refuses := *full
	refuses.Preemptible, refuses.Ours = &no, false
	for _, p := range []*Pod{full, &refuses, {UID: "u", Class: MakeClass(Class{})}} {
		b := PackPod(nil, p)
		for range 2 { // the second time, class and labels are known
			got, err := u.Pod(b)
			if err != nil || !reflect.DeepEqual(got, p) {
				t.Errorf("%v: got %+v, want %+v", err, got, p)
			}
		}
		later := *p
		later.ResourceVersion = "100"
		if a, b := string(PackedBody(b)), string(PackedBody(PackPod(nil, &later))); a != b {
			t.Error("the body depends on the version")
		}
		later.Started = !p.Started
		if a, b := string(PackedBody(b)), string(PackedBody(PackPod(nil, &later))); a == b {
			t.Error("the body does not depend on what the pod is")
		}
		for n := range b {
			if _, err := u.Pod(b[:n]); err == nil {
				t.Errorf("%d of %d bytes are a pod", n, len(b))
			}
		}
	}
}

// FuzzPacked: no bytes make reading panic, and those of a pod make the same again.
func FuzzPacked(f *testing.F) {
	f.Add(PackPod(nil, FromPod(benchmarkPod(), nil, Rules{})))
	f.Fuzz(func(t *testing.T, b []byte) {
		var u Unpacker
		p, err := u.Pod(b)
		if err != nil {
			return
		}
		if q, err := u.Pod(PackPod(nil, p)); err != nil || !reflect.DeepEqual(p, q) {
			t.Errorf("%v: %+v, and again %+v", err, p, q)
		}
	})
}

// TestPackable: only what depends on no other object is sent packed, and another build or other rules have another
// form.
func TestPackable(t *testing.T) {
	gpu := v1.Container{Resources: v1.ResourceRequirements{Requests: v1.ResourceList{
		"nvidia.com/gpu": resource.MustParse("1")}}}
	spread := v1.TopologySpreadConstraint{MaxSkew: 1, TopologyKey: "zone", WhenUnsatisfiable: v1.DoNotSchedule,
		LabelSelector: &metav1.LabelSelector{}}
	claim := v1.Volume{VolumeSource: v1.VolumeSource{
		PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}}
	for _, c := range []struct {
		what      string
		spec      v1.PodSpec
		is, bound bool
	}{
		{"plain", v1.PodSpec{}, true, true},
		{"device", v1.PodSpec{Containers: []v1.Container{gpu}}, false, true},
		{"empty selector", v1.PodSpec{TopologySpreadConstraints: []v1.TopologySpreadConstraint{spread}}, false, true},
		{"claim", v1.PodSpec{Volumes: []v1.Volume{claim}}, false, false},
	} {
		for node, want := range map[string]bool{"": c.is, "n": c.bound} {
			p := &v1.Pod{Spec: c.spec}
			p.Spec.NodeName, p.Spec.SchedulerName = node, SchedulerName
			if is := Packable(p, FromPod(p, nil, Rules{EmptyAll: true})); is != want {
				t.Errorf("%s on node %q: %v", c.what, node, is)
			}
		}
	}
	forms := map[string]bool{}
	for _, form := range []string{
		PackedForm("1", Rules{}), PackedForm("1", Rules{EmptyAll: true}), PackedForm("2", Rules{}),
		PackedForm("1", Rules{Schedulers: []string{"a"}}), PackedForm("1", Rules{Ignored: map[string]bool{"b": true}}),
	} {
		forms[form] = true
	}
	if len(forms) != 4 {
		t.Errorf("forms %v", forms)
	}
}

func benchmarkPod() *v1.Pod {
	yes := true
	const uid = "0b0e5f6c-5bb1-4f0e-9d3c-2f3f2d1c0b0a"
	labels := map[string]string{LabelPodGroup: "train-1234", "app": "train", "batch.kubernetes.io/job-name": "train-1234"}
	requests := v1.ResourceList{"cpu": resource.MustParse("1"), "memory": resource.MustParse("2Gi")}
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-12", Name: "train-1234-abcde", UID: uid, ResourceVersion: "123456789",
			CreationTimestamp: metav1.Unix(1700000000, 0), Labels: labels,
			OwnerReferences: []metav1.OwnerReference{{Controller: &yes, Kind: "Job", UID: uid}}},
		Spec: v1.PodSpec{SchedulerName: SchedulerName, NodeName: "node-00012",
			Containers: []v1.Container{{Resources: v1.ResourceRequirements{Requests: requests}}}},
		Status: v1.PodStatus{Phase: v1.PodRunning},
	}
}

// BenchmarkPacked is what a process pays to know a pod that another one has watched: packed, and as a stripped v1.Pod.
func BenchmarkPacked(b *testing.B) {
	p := StripPod(benchmarkPod())
	whole, err := p.Marshal()
	if err != nil {
		b.Fatal(err)
	}
	packed := PackPod(nil, FromPod(p, nil, Rules{}))
	b.Run("packed", func(b *testing.B) {
		b.ReportAllocs()
		var u Unpacker
		for b.Loop() {
			if _, err := u.Pod(packed); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(len(packed)), "bytes")
	})
	b.Run("stripped", func(b *testing.B) {
		b.ReportAllocs()
		var c Classes
		for b.Loop() {
			var p v1.Pod
			if err := p.Unmarshal(whole); err != nil {
				b.Fatal(err)
			}
			c.FromPod(&p, nil, Rules{})
		}
		b.ReportMetric(float64(len(whole)), "bytes")
	})
	b.Run("pack", func(b *testing.B) {
		b.ReportAllocs()
		var c Classes
		for b.Loop() {
			PackPod(nil, c.FromPod(p, nil, Rules{}))
		}
	})
}
