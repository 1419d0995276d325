package volcano

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"basalt.dev/basalt/api"
)

func TestGroup(t *testing.T) {
	hard, soft := &v1beta1.NetworkTopologySpec{Mode: v1beta1.HardNetworkTopologyMode}, &v1beta1.NetworkTopologySpec{Mode: v1beta1.SoftNetworkTopologyMode}
	many := map[string]int32{}
	for i := range maxTasks + 1 {
		many[strings.Repeat("t", i+1)] = 1
	}
	for _, c := range []struct {
		what    string
		spec    v1beta1.PodGroupSpec
		phase   v1beta1.PodGroupPhase
		least   int32
		queue   string
		roles   []api.Role
		started bool
		refused string
	}{
		{what: "of Spark: nothing set", least: 1},
		{what: "of a vcjob", spec: v1beta1.PodGroupSpec{MinMember: 3, Queue: "team", MinTaskMember: map[string]int32{"worker": 2, "master": 1}},
			least: 3, queue: "team", roles: []api.Role{{Name: "master", Min: 1}, {Name: "worker", Min: 2}}},
		{what: "more of tasks than of pods", spec: v1beta1.PodGroupSpec{MinMember: 2, MinTaskMember: map[string]int32{"worker": 2, "master": 1}}, least: 2},
		{what: "a task of none", spec: v1beta1.PodGroupSpec{MinMember: 2, MinTaskMember: map[string]int32{"worker": 2, "spare": 0, "odd": -3}},
			least: 2, roles: []api.Role{{Name: "worker", Min: 2}}},
		{what: "a negative minimum", spec: v1beta1.PodGroupSpec{MinMember: -5}, least: 1},
		{what: "waiting", spec: v1beta1.PodGroupSpec{MinMember: 2}, phase: v1beta1.PodGroupInqueue, least: 2},
		{what: "running", spec: v1beta1.PodGroupSpec{MinMember: 2}, phase: v1beta1.PodGroupRunning, least: 2, started: true},
		{what: "with pods lost", spec: v1beta1.PodGroupSpec{MinMember: 2}, phase: v1beta1.PodGroupUnknown, least: 2, started: true},
		{what: "a phase that nobody knows", spec: v1beta1.PodGroupSpec{MinMember: 2}, phase: "Dancing", least: 2},
		{what: "hard topology", spec: v1beta1.PodGroupSpec{NetworkTopology: hard}, least: 1, refused: "PodGroup ns/g: spec.networkTopology with mode hard"},
		{what: "topology without a mode", spec: v1beta1.PodGroupSpec{NetworkTopology: &v1beta1.NetworkTopologySpec{}}, least: 1, refused: "spec.networkTopology"},
		{what: "soft topology", spec: v1beta1.PodGroupSpec{NetworkTopology: soft}, least: 1},
		{what: "subgroups", spec: v1beta1.PodGroupSpec{SubGroupPolicy: []v1beta1.SubGroupPolicySpec{{Name: "a"}}}, least: 1, refused: "spec.subGroupPolicy"},
		{what: "a queue that no Queue can be called", spec: v1beta1.PodGroupSpec{Queue: strings.Repeat("q", 200)}, least: 1, queue: strings.Repeat("q", 200), refused: "spec.queue"},
		{what: "too many tasks", spec: v1beta1.PodGroupSpec{MinMember: 100000, MinTaskMember: many}, least: 100000, refused: "spec.minTaskMember names 257 tasks, the limit is 256"},
		{what: "amounts that Go cannot compare", least: 1,
			spec: v1beta1.PodGroupSpec{MinResources: &corev1.ResourceList{"cpu": resource.MustParse("1e2000000000"), "count/pods": resource.MustParse("3")}}},
	} {
		g := &v1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "g", UID: "u", ResourceVersion: "7"}, Spec: c.spec, Status: v1beta1.PodGroupStatus{Phase: c.phase}}
		as, more := Group(g)
		if as.Namespace != "ns" || as.Name != "g" || as.UID != "u" || as.ResourceVersion != "7" || as.Status != nil {
			t.Errorf("%s: it is read as %+v", c.what, as)
		}
		if as.Spec.SchedulingPolicy.Gang.MinCount != c.least || as.Spec.Queue != c.queue || !reflect.DeepEqual(more.Roles, c.roles) || more.Started != c.started || more.Kind != api.VolcanoGroup {
			t.Errorf("%s: minimum %d, queue %q, %+v", c.what, as.Spec.SchedulingPolicy.Gang.MinCount, as.Spec.Queue, more)
		}
		switch {
		case c.refused == "" && more.Refused != nil:
			t.Errorf("%s: refused: %s", c.what, more.Refused.Message)
		case c.refused != "" && (more.Refused == nil || !strings.Contains(more.Refused.Message, c.refused) || len(more.Refused.Message) > 1024):
			t.Errorf("%s: refused with %+v, want %q", c.what, more.Refused, c.refused)
		}
	}
}

// FuzzGroup: whatever the API server stores is read, alike before and after it is stripped.
func FuzzGroup(f *testing.F) {
	f.Add([]byte(`{"metadata":{"name":"g","namespace":"ns"},"spec":{"minMember":3,"minTaskMember":{"a":1,"b":2},"queue":"q"},"status":{"phase":"Running"}}`))
	f.Add([]byte(`{"spec":{"minMember":-1,"minTaskMember":{"":2147483647,"x":2147483647},"queue":"root.a","networkTopology":{},"subGroupPolicy":[{}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		g := &v1beta1.PodGroup{}
		if json.Unmarshal(data, g) != nil {
			return
		}
		before := g.DeepCopy()
		as, more := Group(g)
		if as.Spec.SchedulingPolicy.Gang.MinCount < 1 {
			t.Errorf("minimum %d", as.Spec.SchedulingPolicy.Gang.MinCount)
		}
		sum := 0
		for _, r := range more.Roles {
			sum += r.Min
		}
		if sum > int(as.Spec.SchedulingPolicy.Gang.MinCount) {
			t.Errorf("tasks need %d pods, the gang %d", sum, as.Spec.SchedulingPolicy.Gang.MinCount)
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
