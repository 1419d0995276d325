package volcano

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	volcano "volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1beta1"
)

func TestGroup(t *testing.T) {
	levels := []string{"zone", "block", "rack", "kubernetes.io/hostname"}
	tier := func(n int, name string) *volcano.NetworkTopologySpec {
		t := &volcano.NetworkTopologySpec{Mode: volcano.HardNetworkTopologyMode, HighestTierName: name}
		if name == "" {
			t.HighestTierAllowed = &n
		}
		return t
	}
	hard, soft := &volcano.NetworkTopologySpec{Mode: volcano.HardNetworkTopologyMode}, &volcano.NetworkTopologySpec{Mode: volcano.SoftNetworkTopologyMode}
	many := map[string]int32{}
	for i := range maxTasks + 1 {
		many[strings.Repeat("t", i+1)] = 1
	}
	list := func(pairs ...string) *corev1.ResourceList {
		out := corev1.ResourceList{}
		for i := 0; i < len(pairs); i += 2 {
			out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
		}
		return &out
	}
	var lots []string
	for i := range 1000 {
		lots = append(lots, fmt.Sprintf("example.com/r%d", i), "1")
	}
	for _, c := range []struct {
		what     string
		spec     volcano.PodGroupSpec
		phase    volcano.PodGroupPhase
		least    int32
		queue    string
		roles    []api.Role
		floor    api.Resources
		started  bool
		refused  string
		levels   []string // the configuration's
		topology []v1beta1.TopologyConstraint
	}{
		{what: "of Spark: nothing set", least: 1},
		{what: "of a vcjob", spec: volcano.PodGroupSpec{MinMember: 3, Queue: "team", MinTaskMember: map[string]int32{"worker": 2, "master": 1}},
			least: 3, queue: "team", roles: []api.Role{{Name: "master", Min: 1}, {Name: "worker", Min: 2}}},
		{what: "more of tasks than of pods", spec: volcano.PodGroupSpec{MinMember: 2, MinTaskMember: map[string]int32{"worker": 2, "master": 1}}, least: 2},
		{what: "a task of none", spec: volcano.PodGroupSpec{MinMember: 2, MinTaskMember: map[string]int32{"worker": 2, "spare": 0, "odd": -3}},
			least: 2, roles: []api.Role{{Name: "worker", Min: 2}}},
		{what: "a negative minimum", spec: volcano.PodGroupSpec{MinMember: -5}, least: 1},
		{what: "waiting", spec: volcano.PodGroupSpec{MinMember: 2}, phase: volcano.PodGroupInqueue, least: 2},
		{what: "running", spec: volcano.PodGroupSpec{MinMember: 2}, phase: volcano.PodGroupRunning, least: 2, started: true},
		{what: "with pods lost", spec: volcano.PodGroupSpec{MinMember: 2}, phase: volcano.PodGroupUnknown, least: 2, started: true},
		{what: "a phase that nobody knows", spec: volcano.PodGroupSpec{MinMember: 2}, phase: "Dancing", least: 2},
		{what: "hard topology", spec: volcano.PodGroupSpec{NetworkTopology: hard}, least: 1, refused: "PodGroup ns/g: spec.networkTopology with mode hard"},
		{what: "topology without a mode", spec: volcano.PodGroupSpec{NetworkTopology: &volcano.NetworkTopologySpec{}}, least: 1, refused: "spec.networkTopology"},
		{what: "soft topology", spec: volcano.PodGroupSpec{NetworkTopology: soft}, least: 1},
		{what: "soft topology with levels", spec: volcano.PodGroupSpec{NetworkTopology: soft}, least: 1, levels: levels, topology: []v1beta1.TopologyConstraint{{Key: "rack", Mode: "Preferred"}}},
		{what: "no tier", spec: volcano.PodGroupSpec{NetworkTopology: hard}, least: 1, levels: levels, refused: "spec.networkTopology with mode hard has neither highestTierAllowed nor highestTierName"},
		{what: "tier 1", spec: volcano.PodGroupSpec{NetworkTopology: tier(1, "")}, least: 1, levels: levels, topology: []v1beta1.TopologyConstraint{{Key: "rack", Mode: "Required"}}},
		{what: "tier 3", spec: volcano.PodGroupSpec{NetworkTopology: tier(3, "")}, least: 1, levels: levels, topology: []v1beta1.TopologyConstraint{{Key: "rack", Mode: "Preferred"}, {Key: "zone", Mode: "Required"}}},
		{what: "tier 2 without host names", spec: volcano.PodGroupSpec{NetworkTopology: tier(2, "")}, least: 1, levels: levels[:3], topology: []v1beta1.TopologyConstraint{{Key: "rack", Mode: "Preferred"}, {Key: "block", Mode: "Required"}}},
		{what: "a tier by name", spec: volcano.PodGroupSpec{NetworkTopology: tier(0, "block")}, least: 1, levels: levels, topology: []v1beta1.TopologyConstraint{{Key: "rack", Mode: "Preferred"}, {Key: "block", Mode: "Required"}}},
		{what: "a tier that there is not", spec: volcano.PodGroupSpec{NetworkTopology: tier(4, "")}, least: 1, levels: levels, refused: "spec.networkTopology.highestTierAllowed: there is no tier 4: topologyLevels has labels for tiers 1 to 3"},
		{what: "a name of none", spec: volcano.PodGroupSpec{NetworkTopology: tier(0, "spine")}, least: 1, levels: levels, refused: `spec.networkTopology.highestTierName: "spine" is not one of topologyLevels, which are rack, block, zone`},
		{what: "subgroups", spec: volcano.PodGroupSpec{SubGroupPolicy: []volcano.SubGroupPolicySpec{{Name: "a"}}}, least: 1, refused: "spec.subGroupPolicy"},
		{what: "a queue that no Queue can be called", spec: volcano.PodGroupSpec{Queue: strings.Repeat("q", 200)}, least: 1, queue: strings.Repeat("q", 200), refused: "spec.queue"},
		{what: "too many tasks", spec: volcano.PodGroupSpec{MinMember: 100000, MinTaskMember: many}, least: 100000, refused: "spec.minTaskMember names 257 tasks, the limit is 256"},
		{what: "an amount that Go cannot compare", least: 1, spec: volcano.PodGroupSpec{MinResources: list("cpu", "1e2000000000", "memory", "1Gi")},
			refused: "spec.minResources: cpu: about 1e2000000000 is too large"},
		{what: "such an amount under a key that is ignored", least: 1, spec: volcano.PodGroupSpec{MinResources: list("requests.cpu", "1e2000000000")}},
		{what: "a negative amount", least: 1, spec: volcano.PodGroupSpec{MinResources: list("cpu", "-1")}, refused: "spec.minResources: cpu: -1 is negative"},
		{what: "a vcjob's resources", least: 3, spec: volcano.PodGroupSpec{MinMember: 3, MinResources: list("cpu", "5", "requests.cpu", "5", "limits.memory", "1Gi",
			"requests.storage", "1Gi", "pods", "3", "count/pods", "3", "count/jobs.batch", "1", "example.com/gpu", "2", "requests.example.com/gpu", "2", "services", "1",
			"hugepages-2Mi", "2Mi", "memory", "0", strings.Repeat("x", 400)+"/y", "1")},
			floor: api.Resources{{Resource: "cpu", Value: 5000}, {Resource: "example.com/gpu", Value: 2}, {Resource: "hugepages-2Mi", Value: 2 << 20}, {Resource: "pods", Value: 3}}},
		{what: "a resource that is ignored", least: 1, spec: volcano.PodGroupSpec{MinResources: list("example.com/ignored", "1")}},
		{what: "too many resources", least: 1, spec: volcano.PodGroupSpec{MinResources: list(lots...)}, refused: "spec.minResources names more than 64 resources"},
	} {
		g := &volcano.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "g", UID: "u", ResourceVersion: "7"}, Spec: c.spec, Status: volcano.PodGroupStatus{Phase: c.phase}}
		ignored := map[string]bool{"example.com/ignored": true}
		as, more := Group(g, ignored, c.levels)
		var topology []v1beta1.TopologyConstraint
		if as.Spec.SchedulingConstraints != nil {
			topology = as.Spec.SchedulingConstraints.Topology
		}
		if !reflect.DeepEqual(topology, c.topology) {
			t.Errorf("%s: topology %+v, want %+v", c.what, topology, c.topology)
		}
		if stripped, strippedMore := Group(Strip(g), ignored, c.levels); !reflect.DeepEqual(as, stripped) || !reflect.DeepEqual(more, strippedMore) {
			t.Errorf("%s: stripped, it is read as %+v %+v, not as %+v %+v", c.what, stripped, strippedMore, as, more)
		}
		if len(more.Floor)+len(c.floor) > 0 && !more.Floor.Equal(c.floor) {
			t.Errorf("%s: the floor is %s, want %s", c.what, more.Floor, c.floor)
		}
		if as.Namespace != "ns" || as.Name != "g" || as.UID != "u" || as.ResourceVersion != "7" || as.Status != nil {
			t.Errorf("%s: it is read as %+v", c.what, as)
		}
		if as.Spec.SchedulingPolicy.Gang.MinCount != c.least || as.Spec.Queue != c.queue || !reflect.DeepEqual(more.Roles, c.roles) || more.Status.Scheduled.Yes != c.started || more.Kind != api.VolcanoGroup {
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

// Volcano keeps in an annotation whether a gang may be evicted.
func TestPreemptable(t *testing.T) {
	for value, want := range map[string]*bool{"true": new(true), "false": new(false), "": nil, "yes": nil, "TRUE": nil} {
		g := &volcano.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "g", Annotations: map[string]string{volcano.PodPreemptable: value, "other": "x"}}}
		as, _ := Group(g, nil, nil)
		if stripped, _ := Group(Strip(g), nil, nil); !reflect.DeepEqual(as.Spec.Preemptible, want) || !reflect.DeepEqual(as, stripped) {
			t.Errorf("%q is read as %v, and stripped as %v", value, as.Spec.Preemptible, stripped.Spec.Preemptible)
		}
	}
}

// FuzzGroup: whatever the API server stores is read, alike before and after it is stripped.
func FuzzGroup(f *testing.F) {
	f.Add([]byte(`{"metadata":{"name":"g","namespace":"ns"},"spec":{"minMember":3,"minTaskMember":{"a":1,"b":2},"queue":"q","minResources":{"cpu":"5","count/pods":"3"}},"status":{"phase":"Running"}}`))
	f.Add([]byte(`{"spec":{"minMember":-1,"minTaskMember":{"":2147483647,"x":2147483647},"queue":"root.a","networkTopology":{},"subGroupPolicy":[{}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		g := &volcano.PodGroup{}
		if json.Unmarshal(data, g) != nil {
			return
		}
		before := g.DeepCopy()
		as, more := Group(g, nil, nil)
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
		stripped, strippedMore := Group(Strip(g), nil, nil)
		if !reflect.DeepEqual(as, stripped) || !reflect.DeepEqual(more, strippedMore) {
			t.Errorf("stripped, it is read as %+v %+v, not as %+v %+v", stripped, strippedMore, as, more)
		}
		if !reflect.DeepEqual(before, g) {
			t.Error("it was changed")
		}
	})
}
