package api

import (
	"bytes"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A quantity is read exactly, rounded up where that is asked for, or refused with the name of its resource.
func FuzzQuantity(f *testing.F) {
	for _, text := range append([]string{"1", "1500m", "4Gi", "0.5m", "9E", "-1", "0e2000000000", "1e18", "1n", ".5", "1Ei"}, absurd...) {
		f.Add("cpu", text, false)
		f.Add("memory", text, true)
	}
	f.Fuzz(func(t *testing.T, name, text string, roundUp bool) {
		if len(text) > 2000 || name == "" {
			return
		}
		// ParseQuantity itself is lost in exponents past int32, in small ones, and in large ones of long numbers.
		if at := strings.LastIndexAny(text, "eE"); at >= 0 {
			if e, err := strconv.ParseInt(text[at+1:], 10, 64); err != nil && len(text) > at+1 || e > math.MaxInt32 || e < -100 || e > 100 && at > 18 {
				return
			}
		}
		q, err := resource.ParseQuantity(text)
		if err != nil {
			return
		}
		v, err := FromQuantity(name, q, roundUp)
		if err != nil {
			if !strings.HasPrefix(err.Error(), name+": ") || len(err.Error()) > len(name)+200 {
				t.Fatalf("%.100q: the error does not name its resource, or is long: %.300v", text, err)
			}
			return
		}
		if v < 0 || v > MaxAmount {
			t.Fatalf("%.100q is %d", text, v)
		}
		if v == 0 {
			if q.Sign() != 0 {
				t.Fatalf("%.100q reads as nothing", text)
			}
			return
		}
		back := Quantity(name, v)
		if c := back.Cmp(q); c < 0 || c > 0 && !roundUp {
			t.Fatalf("%.100q became %s", text, back.String())
		}
		if again, err := FromQuantity(name, back, false); err != nil || again != v {
			t.Fatalf("%d became %d, %v", v, again, err)
		}
	})
}

// seedPod has everything that is looked at.
func seedPod() *v1.Pod {
	always := v1.ContainerRestartPolicyAlways
	priority, seconds := int32(7), int64(300)
	list := v1.ResourceList{"cpu": resource.MustParse("1500m"), "memory": resource.MustParse("4Gi"), "example.com/gpu": resource.MustParse("2")}
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "n", UID: "u", ResourceVersion: "7", Labels: map[string]string{LabelPodGroup: "g", LabelQueue: "a.b", LabelGang: "x"}},
		Spec: v1.PodSpec{
			SchedulerName: SchedulerName, Priority: &priority, NodeSelector: map[string]string{"zone": "a"},
			Containers:     []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{Requests: list}, Ports: []v1.ContainerPort{{HostPort: 80, Protocol: v1.ProtocolTCP, HostIP: "10.0.0.1"}}}},
			InitContainers: []v1.Container{{Name: "i", Resources: v1.ResourceRequirements{Requests: list}}, {Name: "s", RestartPolicy: &always, Resources: v1.ResourceRequirements{Requests: list}}},
			Overhead:       list, Resources: &v1.ResourceRequirements{Requests: list},
			Tolerations: []v1.Toleration{{Key: "k", Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute, TolerationSeconds: &seconds}},
			Affinity: &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
				MatchExpressions: []v1.NodeSelectorRequirement{{Key: "k", Operator: v1.NodeSelectorOpGt, Values: []string{"5"}}}}}}}},
			TopologySpreadConstraints: []v1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: "zone", WhenUnsatisfiable: v1.DoNotSchedule}},
			Volumes:                   []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}}},
			SchedulingGates:           []v1.PodSchedulingGate{{Name: "g"}}, ResourceClaims: []v1.PodResourceClaim{{Name: "r"}},
		},
		Status: v1.PodStatus{Phase: v1.PodPending, Conditions: []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: "r", Message: "m"}}},
	}
}

// Whatever a pod holds, it becomes one of ours, the same each time, and asks for at least itself.
func FuzzPod(f *testing.F) {
	packable := seedPod()
	packable.Spec.Volumes, packable.Spec.NodeName = nil, "n"
	for _, p := range []*v1.Pod{{}, seedPod(), packable} {
		b, err := p.Marshal()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		pod := &v1.Pod{}
		if len(b) > 20000 || pod.Unmarshal(b) != nil {
			return
		}
		claims := volumes(notBound)
		one, two := FromPod(pod, claims, Rules{}), FromPod(pod.DeepCopy(), claims, Rules{})
		if one.Class == nil || one.Class.Key != two.Class.Key {
			t.Fatalf("the same pod has the classes %v and %v", one.Class, two.Class)
		}
		if one.Class.Requests.Value("pods") < 1 {
			t.Fatalf("it asks for %v", one.Class.Requests)
		}
		for i, a := range one.Class.Requests {
			if a.Value < 0 || i > 0 && one.Class.Requests[i-1].Resource >= a.Resource {
				t.Fatalf("it asks for %v", one.Class.Requests)
			}
		}
		if one.Refused != nil && one.Refused.Message == "" {
			t.Fatal("it is refused without a word")
		}
		if Packable(pod, one) {
			packed, err := new(Unpacker).Pod(PackPod(nil, one))
			if err != nil || packed.Class.Key != one.Class.Key {
				t.Fatalf("%v: packed, it is %+v", err, packed)
			}
			if packed.Class = one.Class; !reflect.DeepEqual(packed, one) {
				t.Fatalf("packed, it is %+v and not %+v", packed, one)
			}
		}
		spec, err := ReadConstraints(one.Class.Constraints)
		if err != nil {
			t.Fatalf("constraints that we wrote: %v", err)
		}
		if again, err := spec.Marshal(); len(one.Class.Constraints) > 0 && (err != nil || !bytes.Equal(again, one.Class.Constraints)) {
			t.Fatalf("constraints changed on the way, %v", err)
		}
		if three := FromPod(pod, claims, Rules{Ignored: map[string]bool{"cpu": true, "memory": true}}); three.Class.Requests.Value("cpu") != 0 {
			t.Fatalf("ignored cpu counts: %v", three.Class.Requests)
		}
	})
}

// Whatever a node holds, it becomes one of ours, with room that is not negative.
func FuzzNode(f *testing.F) {
	for _, n := range []*v1.Node{{}, {
		ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u", Labels: map[string]string{"zone": "a"}},
		Spec:       v1.NodeSpec{Unschedulable: true, Taints: []v1.Taint{{Key: "k", Value: "v", Effect: v1.TaintEffectNoSchedule}}},
		Status:     v1.NodeStatus{Allocatable: v1.ResourceList{"cpu": resource.MustParse("9E"), "pods": resource.MustParse("110"), "memory": resource.MustParse("4Gi")}},
	}} {
		b, err := n.Marshal()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		node := &v1.Node{}
		if len(b) > 20000 || node.Unmarshal(b) != nil {
			return
		}
		n := FromNode(node, nil)
		for i, a := range n.Allocatable {
			if a.Value < 0 || i > 0 && n.Allocatable[i-1].Resource >= a.Resource {
				t.Fatalf("it has %v", n.Allocatable)
			}
		}
		if again := FromNode(node.DeepCopy(), nil); !again.Allocatable.Equal(n.Allocatable) || again.Unreadable != n.Unreadable {
			t.Fatalf("the same node has %v, %s and %v, %s", n.Allocatable, n.Unreadable, again.Allocatable, again.Unreadable)
		}
	})
}

// A name that is a path leads to root within its levels.
func FuzzPath(f *testing.F) {
	for _, s := range []string{"root", "default", "a.b-c.d", "root.a", "a..b", "", "-a", "A", "a.b.c.d.e.f.g.h", "a.b.c.d.e.f.g.h.i", strings.Repeat("a", 64)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, path string) {
		if BucketOf(path) >= Buckets {
			t.Fatal("no such bucket")
		}
		if err := ValidatePath(path); err != nil {
			if len(err.Error()) > 600 {
				t.Fatalf("%d bytes of error", len(err.Error()))
			}
			return
		}
		line := Lineage(path)
		if len(line) > MaxPathLevels+1 || line[0] != path || line[len(line)-1] != RootQueue && path != RootQueue {
			t.Fatalf("%q: %v", path, line)
		}
		for _, above := range line {
			if !Under(path, above) || ValidatePath(above) != nil {
				t.Fatalf("%q is not under %q", path, above)
			}
		}
		if !slices.Contains(line, RootQueue) {
			t.Fatalf("%q does not lead to root: %v", path, line)
		}
	})
}
