package upstream

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1beta1"
)

func TestGroup(t *testing.T) {
	for _, c := range []struct {
		what, object string
		least        int32
		queue        string
		status       api.GroupStatus
		refused      string
		rack         bool
		whole        bool
	}{
		{what: "a gang", object: `{"metadata":{"labels":{"scheduling.basalt.dev/queue":"team.a"}},"spec":{"schedulingPolicy":{"gang":{"minCount":3}}}}`, least: 3, queue: "team.a"},
		{what: "basic", object: `{"spec":{"schedulingPolicy":{"basic":{}},"disruptionMode":{"all":{}},"preemptionPolicy":"Never"}}`, least: 1, whole: true},
		{what: "single", object: `{"spec":{"disruptionMode":{"single":{}}}}`, least: 1},
		{what: "nothing", object: `{}`, least: 1},
		{what: "a negative minimum", object: `{"spec":{"schedulingPolicy":{"gang":{"minCount":-3}}}}`, least: 1},
		{what: "started", least: 2, object: `{"spec":{"schedulingPolicy":{"gang":{"minCount":2}}},"status":{"conditions":[{"type":"PodGroupInitiallyScheduled","status":"True","reason":"Scheduled","message":"m"},{"type":"DisruptionTarget","status":"True"}]}}`,
			status: api.GroupStatus{Scheduled: api.Verdict{Yes: true, Reason: "Scheduled", Message: "m"}}},
		{what: "waiting", least: 1, object: `{"status":{"conditions":[{"type":"QuotaReserved","status":"False","reason":"QuotaExceeded","message":"m"}]}}`,
			status: api.GroupStatus{Reserved: api.Verdict{Reason: "QuotaExceeded", Message: "m"}}},
		{what: "a topology", least: 1, object: `{"spec":{"schedulingConstraints":{"topology":[{"key":"rack"}]}}}`, rack: true},
		{what: "two topologies", least: 1, object: `{"spec":{"schedulingConstraints":{"topology":[{"key":"rack"},{"key":"zone"}]}}}`, refused: "ns/g: spec.schedulingConstraints.topology: more than one"},
		{what: "claims", least: 1, object: `{"spec":{"resourceClaims":[{"name":"a"},{"name":"b"}]}}`, refused: "spec.resourceClaims"},
		{what: "a parent", least: 1, object: `{"spec":{"parentCompositePodGroupName":"p"}}`, refused: "spec.parentCompositePodGroupName"},
		{what: "a queue that no Queue can be called", least: 1, queue: "A B", object: `{"metadata":{"labels":{"scheduling.basalt.dev/queue":"A B"}}}`, refused: "metadata.labels[scheduling.basalt.dev/queue]"},
	} {
		g := &schedulingv1beta1.PodGroup{}
		if err := json.Unmarshal([]byte(c.object), g); err != nil {
			t.Fatal(err)
		}
		g.Namespace, g.Name, g.UID, g.ResourceVersion = "ns", "g", "u", "7"
		as, more := Group(g)
		if as.Namespace != "ns" || as.Name != "g" || as.UID != "u" || as.ResourceVersion != "7" || more.Kind != api.UpstreamGroup ||
			as.Spec.SchedulingPolicy.Gang.MinCount != c.least || as.Spec.Queue != c.queue || more.Status != c.status {
			t.Errorf("%s: it is read as %+v, %+v", c.what, as, more)
		}
		if (as.Spec.DisruptionMode == v1beta1.DisruptPodGroup) != c.whole {
			t.Errorf("%s: its disruption mode is read as %q", c.what, as.Spec.DisruptionMode)
		}
		if in := as.Spec.SchedulingConstraints; (in != nil) != c.rack || c.rack && (len(in.Topology) != 1 || in.Topology[0].Key != "rack") {
			t.Errorf("%s: its topology is read as %+v", c.what, as.Spec.SchedulingConstraints)
		}
		switch {
		case c.refused == "" && more.Refused != nil:
			t.Errorf("%s: refused: %s", c.what, more.Refused.Message)
		case c.refused != "" && (more.Refused == nil || !strings.Contains(more.Refused.Message, c.refused)):
			t.Errorf("%s: refused with %+v, want %q", c.what, more.Refused, c.refused)
		}
	}
}

// With preemptionPolicy Never, nobody is evicted for a gang.
func TestPreemptionPolicy(t *testing.T) {
	for text, want := range map[string]bool{`{}`: false, `{"spec":{"preemptionPolicy":"Never"}}`: true,
		`{"spec":{"preemptionPolicy":"PreemptLowerPriority"}}`: false} {
		g := &schedulingv1beta1.PodGroup{}
		if err := json.Unmarshal([]byte(text), g); err != nil {
			t.Fatal(err)
		}
		_, as := Group(g)
		if _, stripped := Group(Strip(g)); as.Never != want || stripped.Never != want {
			t.Errorf("%s is read as %t, and stripped as %t", text, as.Never, stripped.Never)
		}
	}
}

// A label says whether a gang may be evicted: Kubernetes' own PodGroup has no field for it.
func TestPreemptible(t *testing.T) {
	for value, want := range map[string]*bool{"true": new(true), "false": new(false), "": nil, "yes": nil} {
		g := &schedulingv1beta1.PodGroup{}
		g.Labels = map[string]string{api.LabelPreemptible: value, "other": "x"}
		as, _ := Group(g)
		if stripped, _ := Group(Strip(g)); !reflect.DeepEqual(as.Spec.Preemptible, want) || !reflect.DeepEqual(as, stripped) {
			t.Errorf("%q is read as %v, and stripped as %v", value, as.Spec.Preemptible, stripped.Spec.Preemptible)
		}
	}
}

// What turned gets a new time, and what did not keeps its own.
func TestConditions(t *testing.T) {
	now := metav1.NewTime(time.Unix(1000, 0))
	waits, has := api.Verdict{Reason: "QuotaExceeded", Message: "a"}, api.Verdict{Yes: true, Reason: "Reserved"}
	for _, c := range []struct {
		say, seen api.Verdict
		turned    bool
	}{{waits, api.Verdict{}, true}, {waits, waits, false}, {api.Verdict{Reason: "QueueClosed"}, waits, false}, {has, waits, true}, {waits, has, true}, {has, has, false}} {
		list := Conditions(api.GroupStatus{Reserved: c.say, Scheduled: has}, api.GroupStatus{Reserved: c.seen, Scheduled: has}, 4, now)
		if _, turned := list[0]["lastTransitionTime"]; turned != c.turned || list[0]["reason"] != c.say.Reason || list[0]["observedGeneration"] != int64(4) {
			t.Errorf("%+v after %+v: %v", c.say, c.seen, list[0])
		}
		if _, turned := list[1]["lastTransitionTime"]; turned || list[1]["status"] != metav1.ConditionTrue {
			t.Errorf("the other: %v", list[1])
		}
	}
}

// FuzzGroup: whatever the API server stores is read, alike before and after it is stripped.
func FuzzGroup(f *testing.F) {
	f.Add([]byte(`{"metadata":{"labels":{"scheduling.basalt.dev/queue":"q"}},"spec":{"schedulingPolicy":{"gang":{"minCount":3}},"resourceClaims":[{},{}]},"status":{"conditions":[{"type":"QuotaReserved","status":"True"}]}}`))
	f.Add([]byte(`{"spec":{"schedulingConstraints":{"topology":[{},{}]},"parentCompositePodGroupName":""}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		g := &schedulingv1beta1.PodGroup{}
		if json.Unmarshal(data, g) != nil {
			return
		}
		before := g.DeepCopy()
		as, more := Group(g)
		if as.Spec.SchedulingPolicy.Gang.MinCount < 1 {
			t.Errorf("minimum %d", as.Spec.SchedulingPolicy.Gang.MinCount)
		}
		stripped, strippedMore := Group(Strip(g))
		if !reflect.DeepEqual(as, stripped) || !reflect.DeepEqual(more, strippedMore) {
			t.Errorf("stripped, it is read as %+v %+v, not as %+v %+v", stripped, strippedMore, as, more)
		}
		if !reflect.DeepEqual(before, g) {
			t.Error("it was changed")
		}
	})
}
