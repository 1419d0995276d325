package v1beta1_test

import (
	"encoding/json"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/yaml"

	"basalt.dev/basalt/api/v1beta1"
)

func condition(kind, reason string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: "m", ObservedGeneration: 3, LastTransitionTime: metav1.NewTime(time.Unix(1700000000, 0))}
}

func minutes(n int) *metav1.Duration {
	return &metav1.Duration{Duration: time.Duration(n) * time.Minute}
}

// Objects with every field set.
var (
	amounts  = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1500m"), "example.com/gpu": resource.MustParse("8")}
	seconds  = int32(30)
	stamp    = v1beta1.Stamp{Epoch: 1 << 40, Writer: "w", Sequence: 1 << 41}
	metadata = metav1.ObjectMeta{Name: "a.b", Finalizers: []string{v1beta1.FinalizerCharged}}
	queue    = &v1beta1.Queue{
		TypeMeta: metav1.TypeMeta{APIVersion: "scheduling.basalt.dev/v1beta1", Kind: "Queue"}, ObjectMeta: metadata,
		Spec: v1beta1.QueueSpec{Capability: amounts, Guarantee: amounts, Deserved: amounts, Weight: new(int32(2)), Priority: 1, Closed: true,
			Reclaimable: new(false), ReclaimPolicy: v1beta1.ReclaimFairShare, PreemptionPolicy: v1beta1.PreemptLowerPriority,
			ReclaimMinRuntime: minutes(10), PreemptMinRuntime: minutes(0), PreemptionDelay: minutes(90),
			Order:     "priority",
			RepairFor: minutes(1), StaleAfter: minutes(20), MaxRuntime: minutes(600), DefaultRuntime: minutes(60),
			UserLimits: []v1beta1.UserLimit{
				{Users: []string{"alice"}, Groups: []string{"interns"}, Each: true, Capability: amounts},
			},
			NamespaceSelector: &metav1.LabelSelector{
				MatchLabels:      map[string]string{"team": "research"},
				MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpIn, Values: []string{"a"}}}}},
		Status: &v1beta1.QueueStatus{Stamp: stamp, ObservedGeneration: 3, Conditions: []metav1.Condition{condition(v1beta1.ConditionReady, v1beta1.ReasonClosed)},
			Charged: amounts, Limits: v1beta1.LimitsInForce{Capability: amounts, Guarantee: amounts, Deserved: amounts}, AdmittedGangs: 1, WaitingGangs: 2,
			Yielding: amounts, Promised: amounts, Wanted: amounts, FairShare: amounts, WeightedShare: 5},
	}
	podGroup = &v1beta1.PodGroup{
		TypeMeta: metav1.TypeMeta{APIVersion: "scheduling.basalt.dev/v1beta1", Kind: "PodGroup"}, ObjectMeta: metadata,
		Spec: v1beta1.PodGroupSpec{Queue: "a", PriorityClassName: "p", ScheduleTimeoutSeconds: &seconds, Preemptible: new(true), DisruptionMode: v1beta1.DisruptPod,
			SchedulingPolicy:      v1beta1.SchedulingPolicy{Gang: v1beta1.GangSchedulingPolicy{MinCount: 4}},
			StaleAfter:            minutes(5),
			MaxRuntimeSeconds:     new(int32(60)),
			Gates:                 []v1beta1.Gate{"example.com/budget"},
			MinResources:          corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")},
			SchedulingConstraints: &v1beta1.SchedulingConstraints{Topology: []v1beta1.TopologyConstraint{{Key: "rack", Mode: v1beta1.TopologyRequired, SliceSize: 2}}}},
		Status: &v1beta1.PodGroupStatus{Stamp: stamp, ObservedGeneration: 3, Conditions: []metav1.Condition{condition(v1beta1.ConditionQuotaReserved, v1beta1.ReasonQuotaExceeded)},
			Queue: "a", Pods: 3, Bound: 2, Reason: v1beta1.ReasonQuotaExceeded, Message: "m", Position: 1},
	}
)

func TestObjectsSurviveTheWire(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1beta1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	codecs := serializer.NewCodecFactory(scheme).WithoutConversion() // what REST clients use
	info, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), runtime.ContentTypeJSON)
	if !ok {
		t.Fatal("no JSON")
	}
	encoder := codecs.EncoderForVersion(info.Serializer, v1beta1.SchemeGroupVersion)
	decoder := codecs.DecoderToVersion(info.Serializer, v1beta1.SchemeGroupVersion)
	for _, want := range []runtime.Object{queue, podGroup} {
		b, err := runtime.Encode(encoder, want.DeepCopyObject())
		if err != nil {
			t.Fatal(err)
		}
		got, err := runtime.Decode(decoder, b)
		if err != nil {
			t.Fatal(err)
		}
		got.GetObjectKind().SetGroupVersionKind(want.GetObjectKind().GroupVersionKind())
		if !equality.Semantic.DeepEqual(want, got) {
			t.Errorf("want %+v\ngot  %+v", want, got)
		}
		if copied := want.DeepCopyObject(); !equality.Semantic.DeepEqual(want, copied) {
			t.Errorf("want %+v\ncopy %+v", want, copied)
		}
	}
}

// A spec that says little is sent as little: what is absent must not come back as a zero that the API server would refuse.
func TestAbsentStaysAbsent(t *testing.T) {
	for want, object := range map[string]any{
		`{}`: v1beta1.QueueSpec{},
		`{"schedulingPolicy":{"gang":{"minCount":1}}}`:                            v1beta1.PodGroupSpec{SchedulingPolicy: v1beta1.SchedulingPolicy{Gang: v1beta1.GangSchedulingPolicy{MinCount: 1}}},
		`{"epoch":0,"writer":"","sequence":0,"admittedGangs":0,"waitingGangs":0}`: v1beta1.QueueStatus{},
		`{"epoch":0,"writer":"","sequence":0,"pods":0,"bound":0}`:                 v1beta1.PodGroupStatus{},
	} {
		if got, err := json.Marshal(object); err != nil || string(got) != want {
			t.Errorf("%T is %s (%v), want %s", object, got, err, want)
		}
	}
}

// The CRDs have been generated from the types as they are: every field that Go writes is in the schema, and no other.
func TestDefinitionsAreCurrent(t *testing.T) {
	for path, object := range map[string]any{
		"../../deploy/crds/scheduling.basalt.dev_queues.yaml":    queue,
		"../../deploy/crds/scheduling.basalt.dev_podgroups.yaml": podGroup,
	} {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var crd struct {
			Spec struct {
				Versions []struct {
					Schema struct {
						OpenAPIV3Schema map[string]any `json:"openAPIV3Schema"`
					} `json:"schema"`
				} `json:"versions"`
			} `json:"spec"`
		}
		if err := yaml.Unmarshal(b, &crd); err != nil {
			t.Fatal(err)
		}
		b, err = json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		fields := map[string]any{}
		if err := json.Unmarshal(b, &fields); err != nil {
			t.Fatal(err)
		}
		fields["metadata"] = map[string]any{}
		compare(t, reflect.TypeOf(object).Elem().Name(), crd.Spec.Versions[0].Schema.OpenAPIV3Schema, fields)
	}
}

func compare(t *testing.T, at string, schema map[string]any, value any) {
	t.Helper()
	switch value := value.(type) {
	case []any:
		items, _ := schema["items"].(map[string]any)
		compare(t, at+"[]", items, value[0])
	case map[string]any:
		if schema["additionalProperties"] != nil {
			return
		}
		properties, _ := schema["properties"].(map[string]any)
		for name, v := range value {
			p, ok := properties[name].(map[string]any)
			if !ok {
				t.Errorf("%s.%s is not in the schema: run go generate in api/generate", at, name)
				continue
			}
			compare(t, at+"."+name, p, v)
		}
		for name := range properties {
			if _, ok := value[name]; !ok {
				t.Errorf("%s.%s is in the schema and not in the type (or not set in this test): run go generate in api/generate", at, name)
			}
		}
	}
}

// Reasons are what the API server accepts as a condition's reason, and none is spelled twice.
func TestReasons(t *testing.T) {
	source, err := os.ReadFile("words.go")
	if err != nil {
		t.Fatal(err)
	}
	var values []string
	for _, m := range regexp.MustCompile(`(?m)^\tReason(\w+) += "(\w*)"`).FindAllStringSubmatch(string(source), -1) {
		if m[1] != m[2] || !regexp.MustCompile(`^[A-Z][A-Za-z]+$`).MatchString(m[2]) {
			t.Errorf("Reason%s is %q", m[1], m[2])
		}
		values = append(values, m[2])
	}
	if len(values) != strings.Count(string(source), "\tReason") {
		t.Errorf("%d reasons read of %d", len(values), strings.Count(string(source), "\tReason"))
	}
	slices.Sort(values)
	if got := slices.Compact(slices.Clone(values)); len(got) != len(values) {
		t.Errorf("a reason is spelled twice: %v", values)
	}
}
