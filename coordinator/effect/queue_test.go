package effect

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/coordinator"
)

// The API server refuses all of these; objects may be older than its rules.
func TestQueueSeenNamesWhatCannotBeRead(t *testing.T) {
	list := func(name, amount string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceName(name): resource.MustParse(amount)}
	}
	names := func(n, length int) corev1.ResourceList {
		l := corev1.ResourceList{}
		for i := range n {
			name := fmt.Sprintf("example.com/r%03d", i)
			l[corev1.ResourceName(name+strings.Repeat("x", max(0, length-len(name))))] = resource.MustParse("1")
		}
		return l
	}
	for _, c := range []struct {
		name, queue string
		spec        v1beta1.QueueSpec
		says        string // "" for nothing
	}{
		{"fine", "a.b", v1beta1.QueueSpec{Capability: list("cpu", "2")}, ""},
		{"no path", "A", v1beta1.QueueSpec{}, `"A"`},
		{"negative", "a", v1beta1.QueueSpec{Capability: list("cpu", "-1")}, "spec.capability: cpu"},
		{"zero", "a", v1beta1.QueueSpec{Capability: list("nvidia.com/gpu", "0"), Guarantee: list("memory", "0")}, ""},
		{"as many names as possible", "a", v1beta1.QueueSpec{Capability: names(api.MaxResources, 1)}, ""},
		{"too many names", "a", v1beta1.QueueSpec{Capability: names(api.MaxResources+1, 1)}, "spec.capability: it names 65 resources, the limit is 64"},
		{"as long a name as possible", "a", v1beta1.QueueSpec{Guarantee: names(1, api.MaxResourceName)}, ""},
		{"too long a name", "a", v1beta1.QueueSpec{Guarantee: names(1, api.MaxResourceName+1)}, "has 318 bytes, the limit is 317"},
		{"too large", "a", v1beta1.QueueSpec{Capability: list("cpu", "9E")}, "spec.capability: cpu"},
		{"absurd", "a", v1beta1.QueueSpec{Capability: list("memory", "1e400")}, "spec.capability: memory"},
		{"half a device", "a", v1beta1.QueueSpec{Capability: list("nvidia.com/gpu", "0.5")}, "spec.capability: nvidia.com/gpu"},
	} {
		ev := QueueSeen(&v1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Name: c.queue}, Spec: c.spec})
		if (ev.Invalid == "") != (c.says == "") || !strings.Contains(ev.Invalid, c.says) {
			t.Errorf("%s: invalid %q, want %q in it", c.name, ev.Invalid, c.says)
		}
	}
}

// A capability of zero is a limit, a guarantee of zero is none.
func TestQueueSeenKeepsZeroCapability(t *testing.T) {
	l := corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("0"), "cpu": resource.MustParse("2"), "zz.example.com/z": resource.MustParse("0e9")}
	ev := QueueSeen(&v1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: v1beta1.QueueSpec{Capability: l, Guarantee: l}})
	capability := api.Resources{{Resource: "cpu", Value: 2000}, {Resource: "nvidia.com/gpu"}, {Resource: "zz.example.com/z"}}
	if ev.Invalid != "" || !slices.Equal(ev.Capability, capability) {
		t.Errorf("capability %v, invalid %q, want %v", ev.Capability, ev.Invalid, capability)
	}
	if guarantee := capability[:1]; !slices.Equal(ev.Guarantee, guarantee) {
		t.Errorf("guarantee %v, want %v", ev.Guarantee, guarantee)
	}
}

// Who may be evicted for whom is read as it is written, and nothing is said of defaults.
func TestQueueSeenPolicy(t *testing.T) {
	d := func(d time.Duration) *metav1.Duration { return &metav1.Duration{Duration: d} }
	for _, c := range []struct {
		name string
		spec v1beta1.QueueSpec
		want *wire.QueuePolicy
		says string // of Invalid
	}{
		{"nothing", v1beta1.QueueSpec{}, nil, ""},
		{"the defaults", v1beta1.QueueSpec{Reclaimable: new(true), ReclaimPolicy: v1beta1.ReclaimDeserved}, nil, ""},
		{"kept", v1beta1.QueueSpec{Reclaimable: new(false)}, &wire.QueuePolicy{Kept: true}, ""},
		{"fair share", v1beta1.QueueSpec{ReclaimPolicy: v1beta1.ReclaimFairShare}, &wire.QueuePolicy{Reclaim: wire.Reclaim_RECLAIM_FAIR_SHARE}, ""},
		{"no reclaim", v1beta1.QueueSpec{ReclaimPolicy: v1beta1.ReclaimNever}, &wire.QueuePolicy{Reclaim: wire.Reclaim_RECLAIM_NEVER}, ""},
		{"preemption", v1beta1.QueueSpec{PreemptionPolicy: v1beta1.PreemptLowerPriority}, &wire.QueuePolicy{Preempts: new(true)}, ""},
		{"no preemption, whatever the parent says", v1beta1.QueueSpec{PreemptionPolicy: v1beta1.PreemptNever}, &wire.QueuePolicy{Preempts: new(false)}, ""},
		{"durations", v1beta1.QueueSpec{ReclaimMinRuntime: d(time.Minute), PreemptMinRuntime: d(0), PreemptionDelay: d(168 * time.Hour)},
			&wire.QueuePolicy{ReclaimMinRuntimeMs: new(int64(60_000)), PreemptMinRuntimeMs: new(int64(0)), PreemptionDelayMs: new(int64(604_800_000))}, ""},
		{"less than a millisecond", v1beta1.QueueSpec{PreemptionDelay: d(time.Nanosecond)}, &wire.QueuePolicy{PreemptionDelayMs: new(int64(1))}, ""},
		{"negative", v1beta1.QueueSpec{Reclaimable: new(false), ReclaimMinRuntime: d(-time.Second)}, nil, "spec.reclaimMinRuntime: it is negative: -1s"},
		{"too long", v1beta1.QueueSpec{PreemptMinRuntime: d(168*time.Hour + 1)}, nil, "spec.preemptMinRuntime: it is 168h0m0.000000001s, the limit is 168h0m0s"},
		{"much too long", v1beta1.QueueSpec{PreemptionDelay: d(math.MaxInt64)}, nil, "spec.preemptionDelay"},
		{"what homes read", v1beta1.QueueSpec{RepairFor: d(0), StaleAfter: d(time.Hour)}, nil, ""},
		{"and cannot", v1beta1.QueueSpec{RepairFor: d(-time.Second)}, nil, "spec.repairFor: it is negative: -1s"},
		{"nor this", v1beta1.QueueSpec{StaleAfter: d(169 * time.Hour)}, nil,
			"spec.staleAfter: it is 169h0m0s, the limit is 168h0m0s"},
		{"nor this either", v1beta1.QueueSpec{MaxRuntime: d(8761 * time.Hour)}, nil,
			"spec.maxRuntime: it is 8761h0m0s, the limit is 8760h0m0s"},
		{"an unknown word", v1beta1.QueueSpec{ReclaimPolicy: "Always"}, nil, `spec.reclaimPolicy: "Always"`},
		{"another", v1beta1.QueueSpec{PreemptionPolicy: "never"}, nil, `spec.preemptionPolicy: "never"`},
	} {
		ev := QueueSeen(&v1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: c.spec})
		if !proto.Equal(ev.Policy, c.want) || (ev.Policy == nil) != (c.want == nil) || (ev.Invalid == "") != (c.says == "") || !strings.Contains(ev.Invalid, c.says) {
			t.Errorf("%s: policy %v, invalid %q, want %v, %q", c.name, ev.Policy, ev.Invalid, c.want, c.says)
		}
	}
}

// What is read of a Queue beside its limits.
func TestQueueSeenFields(t *testing.T) {
	now := metav1.Now()
	for _, c := range []struct {
		what  string
		queue v1beta1.Queue
		want  coordinator.QueueSeen
	}{
		{"nothing", v1beta1.Queue{}, coordinator.QueueSeen{}},
		{"closed", v1beta1.Queue{Spec: v1beta1.QueueSpec{Closed: true}}, coordinator.QueueSeen{Closed: true}},
		{"deleting", v1beta1.Queue{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &now, Finalizers: []string{"x"}}}, coordinator.QueueSeen{Deleting: true}},
		{"ours", v1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Finalizers: []string{"x", v1beta1.FinalizerCharged}}}, coordinator.QueueSeen{HasFinalizer: true}},
		{"an epoch", v1beta1.Queue{Status: &v1beta1.QueueStatus{Stamp: v1beta1.Stamp{Epoch: 7}}}, coordinator.QueueSeen{StatusEpoch: 7}},
		{"an epoch that cannot be", v1beta1.Queue{Status: &v1beta1.QueueStatus{Stamp: v1beta1.Stamp{Epoch: -7}}}, coordinator.QueueSeen{}},
	} {
		c.queue.Name, c.queue.UID, c.queue.ResourceVersion, c.queue.Generation = "a", "u", "3", 4
		got := QueueSeen(&c.queue)
		if got.Name != "a" || got.UID != "u" || got.ResourceVersion != "3" || got.Generation != 4 || got.Invalid != "" || got.Closed != c.want.Closed ||
			got.Deleting != c.want.Deleting || got.HasFinalizer != c.want.HasFinalizer || got.StatusEpoch != c.want.StatusEpoch {
			t.Errorf("%s: %+v", c.what, got)
		}
	}
}
