package effect

import (
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
)

// A change leaves a Queue as one whose spec was written so.
func TestChanges(t *testing.T) {
	list := func(of ...string) corev1.ResourceList {
		l := corev1.ResourceList{}
		for i := 0; i < len(of); i += 2 {
			l[corev1.ResourceName(of[i])] = resource.MustParse(of[i+1])
		}
		return l
	}
	spec := func() v1beta1.QueueSpec {
		return v1beta1.QueueSpec{Capability: list("cpu", "8", "memory", "4Gi"), Deserved: list("cpu", "4"), Weight: new(int32(3)), Reclaimable: new(false), PreemptionDelay: &metav1.Duration{Duration: time.Second}}
	}
	for _, row := range []struct {
		field, resource, value string
		write                  func(*v1beta1.QueueSpec)
	}{
		{"capability", "cpu", "1500m", func(s *v1beta1.QueueSpec) { s.Capability["cpu"] = resource.MustParse("1500m") }},
		{"capability", "nvidia.com/gpu", "0", func(s *v1beta1.QueueSpec) { s.Capability["nvidia.com/gpu"] = resource.MustParse("0") }},
		{"capability", "memory", "", func(s *v1beta1.QueueSpec) { delete(s.Capability, "memory") }},
		{"guarantee", "memory", "1Gi", func(s *v1beta1.QueueSpec) { s.Guarantee = list("memory", "1Gi") }},
		{"deserved", "cpu", "", func(s *v1beta1.QueueSpec) { s.Deserved = nil }},
		{"weight", "", "0", func(s *v1beta1.QueueSpec) { s.Weight = new(int32) }},
		{"weight", "", "", func(s *v1beta1.QueueSpec) { s.Weight = nil }},
		{"priority", "", "-7", func(s *v1beta1.QueueSpec) { s.Priority = -7 }},
		{"closed", "", "true", func(s *v1beta1.QueueSpec) { s.Closed = true }},
		{"reclaimable", "", "true", func(s *v1beta1.QueueSpec) { s.Reclaimable = nil }},
		{"reclaimable", "", "", func(s *v1beta1.QueueSpec) { s.Reclaimable = nil }},
		{"reclaimPolicy", "", "FairShare", func(s *v1beta1.QueueSpec) { s.ReclaimPolicy = "FairShare" }},
		{"preemptionPolicy", "", "PreemptLowerPriority", func(s *v1beta1.QueueSpec) { s.PreemptionPolicy = "PreemptLowerPriority" }},
		{"preemptionPolicy", "", "Never", func(s *v1beta1.QueueSpec) { s.PreemptionPolicy = "Never" }},
		{"reclaimMinRuntime", "", "10m", func(s *v1beta1.QueueSpec) { s.ReclaimMinRuntime = &metav1.Duration{Duration: 10 * time.Minute} }},
		{"preemptMinRuntime", "", "0s", func(s *v1beta1.QueueSpec) { s.PreemptMinRuntime = &metav1.Duration{} }},
		{"preemptionDelay", "", "", func(s *v1beta1.QueueSpec) { s.PreemptionDelay = nil }},
	} {
		before := spec()
		was, got := QueueSeen(&v1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Name: "a.b"}, Spec: before}), QueueSeen(&v1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Name: "a.b"}, Spec: before})
		shared := got
		changes, err := ReadChanges([]*wire.QueueChange{{Queue: "a.b", Field: row.field, Resource: row.resource, Value: row.value}})
		if err != nil {
			t.Errorf("%s.%s=%s: %v", row.field, row.resource, row.value, err)
			continue
		}
		changes[0].Apply(&got)
		written := spec()
		row.write(&written)
		want := QueueSeen(&v1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Name: "a.b"}, Spec: written})
		if want.Invalid != "" || !equal(got.Capability, want.Capability) || !equal(got.Guarantee, want.Guarantee) || !equal(got.Deserved, want.Deserved) || got.Priority != want.Priority || got.Closed != want.Closed ||
			(got.Weight == nil) != (want.Weight == nil) || got.Weight != nil && *got.Weight != *want.Weight || !samePolicy(got.Policy, want.Policy) {
			t.Errorf("%s.%s=%s: %+v, want %+v", row.field, row.resource, row.value, got, want)
		}
		if !equal(shared.Capability, was.Capability) || !equal(shared.Deserved, was.Deserved) || !samePolicy(shared.Policy, was.Policy) {
			t.Errorf("%s.%s=%s is done in place", row.field, row.resource, row.value)
		}
	}
}

func equal(a, b api.Resources) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// samePolicy compares what policies say: one that says nothing is none.
func samePolicy(a, b *wire.QueuePolicy) bool {
	if a == nil {
		a = &wire.QueuePolicy{}
	}
	if b == nil {
		b = &wire.QueuePolicy{}
	}
	return proto.Equal(a, b)
}

// What is wrong with a change is said with the queue and the field.
func TestBadChanges(t *testing.T) {
	for _, row := range []struct{ queue, field, resource, value, says string }{
		{"a..b", "weight", "", "1", `queue name "a..b"`},
		{"a", "capability", "", "1", `queue "a": spec.capability: it names no resource: write capability.cpu=8`},
		{"a", "capability", "gpus", "1", `queue "a": spec.capability: "gpus" cannot be limited`},
		{"a", "deserved", "cpu", "much", `queue "a": spec.deserved: cpu: "much" is no amount`},
		{"a", "deserved", "cpu", "1e2000000000", `is no amount`},
		{"a", "deserved", "cpu", "-1", `queue "a": spec.deserved: cpu: -1 is negative`},
		{"a", "deserved", "pods", "1.5", `queue "a": spec.deserved: pods`},
		{"a", "deserved", "memory", "2Ei", `queue "a": spec.deserved: memory`},
		{"a", "weight", "", "65536", `queue "a": spec.weight: "65536" is not a number from 0 to 65535`},
		{"a", "weight", "cpu", "1", `queue "a": spec.weight: it names no resources`},
		{"a", "priority", "", "high", `queue "a": spec.priority: "high" is not a number`},
		{"a", "closed", "", "yes", `queue "a": spec.closed: "yes" is not true or false`},
		{"a", "reclaimPolicy", "", "Always", `queue "a": spec.reclaimPolicy: "Always" is not one of Deserved, FairShare and Never`},
		{"a", "preemptionPolicy", "", "Always", `queue "a": spec.preemptionPolicy: "Always" is not one of`},
		{"a", "preemptionDelay", "", "soon", `queue "a": spec.preemptionDelay: "soon" is not a duration`},
		{"a", "preemptionDelay", "", "-1s", `queue "a": spec.preemptionDelay: it is negative`},
		{"a", "reclaimMinRuntime", "", "200h", `queue "a": spec.reclaimMinRuntime: it is 200h0m0s, the limit is 168h0m0s`},
		{"a", "capabilty", "cpu", "8", `queue "a": spec.capabilty: there is no such field; did you mean capability?`},
		{"a", "Weight", "", "8", `queue "a": spec.Weight: there is no such field; did you mean weight?`},
		{"a", "namespaceSelector", "", "x", `queue "a": spec.namespaceSelector: it is not one of capability.RESOURCE`},
	} {
		_, err := ReadChanges([]*wire.QueueChange{{Queue: row.queue, Field: row.field, Resource: row.resource, Value: row.value}})
		if err == nil || !strings.Contains(err.Error(), row.says) {
			t.Errorf("%s:%s.%s=%s: %v, want %q", row.queue, row.field, row.resource, row.value, err, row.says)
		}
	}
}
