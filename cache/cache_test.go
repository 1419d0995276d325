package cache

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"basalt.dev/basalt/api"
)

func machine(name string, cpu, memory, gpus int64, change ...func(*api.Node)) *api.Node {
	n := &api.Node{Name: name, Allocatable: api.FromMap(map[string]int64{"cpu": cpu, "memory": memory, "pods": 110})}
	if gpus > 0 {
		n.Allocatable = n.Allocatable.Add(api.FromMap(map[string]int64{"example.com/gpu": gpus}))
	}
	for _, f := range change {
		f(n)
	}
	return n
}

func cordoned(n *api.Node) { n.Unschedulable = true }

func withTaint(key, value string, effect v1.TaintEffect) func(*api.Node) {
	return func(n *api.Node) { n.Taints = append(n.Taints, v1.Taint{Key: key, Value: value, Effect: effect}) }
}

func check(t *testing.T, c *Cache) {
	t.Helper()
	if err := c.Check(); err != nil {
		t.Fatal(err)
	}
}

func TestWhy(t *testing.T) {
	c := New(Config{})
	c.SetNode(machine("small", 500, 1<<30, 0))
	c.SetNode(machine("tight", 500, 1<<20, 0))
	c.SetNode(machine("cordoned", 8000, 8<<30, 0, cordoned))
	c.SetNode(machine("team-x", 8000, 8<<30, 0, withTaint("dedicated", "x", v1.TaintEffectNoSchedule)))
	c.SetNode(machine("team-y", 8000, 8<<30, 0, withTaint("slow", "", v1.TaintEffectPreferNoSchedule), withTaint("dedicated", "y", v1.TaintEffectNoExecute)))
	c.SetNode(machine("full", 8000, 8<<30, 0))
	for i := range 110 {
		c.Charge(fmt.Sprint(i), "full", pod(nil, nil), Bound, "", api.Rank{})
	}
	c.SetNode(machine("broken", 8000, 8<<30, 0))
	c.Charge("large", "broken", pod(map[string]string{"cpu": "9"}, nil), Bound, "", api.Rank{})
	c.SetNode(machine("port", 8000, 8<<30, 0))
	c.Charge("port", "port", pod(nil, hostPort(80, "", "")), Bound, "", api.Rank{})
	small := map[string]string{"cpu": "1", "memory": "1Gi"}

	for _, test := range []struct {
		name  string
		class *api.Class
		want  string
		never bool
	}{
		{"nothing special", pod(small, nil), "1/8 nodes are available: 2 Insufficient cpu, 1 Insufficient memory, 1 Too many pods, " +
			"1 node(s) had untolerated taint {dedicated: x}, 1 node(s) had untolerated taint {dedicated: y}, " +
			"1 node(s) were out of sync, with more in use than allocatable, 1 node(s) were unschedulable", false},
		{"port", pod(small, hostPort(80, "", "")), "0/8 nodes are available: 2 Insufficient cpu, 1 Insufficient memory, 1 Too many pods, " +
			"1 node(s) didn't have free ports for the requested pod ports, 1 node(s) had untolerated taint {dedicated: x}, " +
			"1 node(s) had untolerated taint {dedicated: y}, 1 node(s) were out of sync, with more in use than allocatable, 1 node(s) were unschedulable", false},
		{"selector", pod(nil, func(s *v1.PodSpec) {
			s.NodeSelector = map[string]string{"zone": "nowhere"}
			s.Tolerations = []v1.Toleration{{Operator: v1.TolerationOpExists}}
		}), "0/8 nodes are available: 8 node(s) didn't match Pod's node affinity/selector", true},
		{"too large for all", pod(map[string]string{"cpu": "9"}, tolerate(v1.Toleration{Operator: v1.TolerationOpExists})),
			"0/8 nodes are available: 7 Insufficient cpu, 1 Too many pods, 1 node(s) were out of sync, with more in use than allocatable", true},
		{"device that nobody has", pod(map[string]string{"example.com/fpga": "1"}, nil), "0/8 nodes are available: 4 Insufficient example.com/fpga, " +
			"1 Too many pods, 1 node(s) had untolerated taint {dedicated: x}, 1 node(s) had untolerated taint {dedicated: y}, " +
			"1 node(s) were out of sync, with more in use than allocatable, 1 node(s) were unschedulable", true},
		{"unreadable", &api.Class{Key: "bad", Constraints: []byte{0xff}},
			"0/8 nodes are available: 8 node(s) cannot be judged: read pod constraints: unexpected EOF", true},
		{"negative", api.NewClass(api.Resources{{Resource: "cpu", Value: -1}}, nil),
			"0/8 nodes are available: 8 node(s) cannot be judged: the pod requests a negative amount of cpu", true},
		{"no class", nil, "4/8 nodes are available: 1 node(s) had untolerated taint {dedicated: x}, 1 node(s) had untolerated taint {dedicated: y}, " +
			"1 node(s) were out of sync, with more in use than allocatable, 1 node(s) were unschedulable", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := c.Why(test.class)
			if got := r.String(); got != test.want || r.Never != test.never {
				t.Errorf("got  %s (never %t)\nwant %s (never %t)", got, r.Never, test.want, test.never)
			}
		})
	}
	check(t, c)
	for i := range 9 {
		c.SetNode(machine(fmt.Sprint("team", i), 8000, 8<<30, 0, withTaint("team", fmt.Sprint(i), v1.TaintEffectNoSchedule)))
	}
	if got := c.Why(pod(small, nil)).String(); !strings.HasSuffix(got, "{team: 2}, and 8 other reasons") {
		t.Errorf("many reasons: %s", got)
	}
	if got := New(Config{}).Why(pod(nil, nil)); got.String() != "0/0 nodes are available" || !got.Never {
		t.Errorf("an empty cluster: %s, never %t", got, got.Never)
	}
	if got := c.CanPlace(pod(nil, nil), "unknown"); got.Obstacle != NoNode {
		t.Errorf("unknown node: %v", got)
	}
}

func TestHostPorts(t *testing.T) {
	for _, test := range []struct {
		a, b      func(*v1.PodSpec)
		conflicts bool
	}{
		{hostPort(80, "", ""), hostPort(80, "", ""), true},
		{hostPort(80, "", ""), hostPort(81, "", ""), false},
		{hostPort(80, "", ""), hostPort(80, "", v1.ProtocolTCP), true},
		{hostPort(80, "", ""), hostPort(80, "", v1.ProtocolUDP), false},
		{hostPort(80, "", ""), hostPort(80, "10.0.0.1", ""), true},
		{hostPort(80, "0.0.0.0", ""), hostPort(80, "10.0.0.1", ""), true},
		{hostPort(80, "10.0.0.2", ""), hostPort(80, "10.0.0.1", ""), false},
		{hostPort(80, "10.0.0.1", ""), hostPort(80, "10.0.0.1", ""), true},
	} {
		for _, kind := range []Kind{Hold, Intent, Bound} {
			for _, order := range [][2]func(*v1.PodSpec){{test.a, test.b}, {test.b, test.a}} {
				c := New(Config{})
				c.SetNode(machine("n", 8000, 8<<30, 0))
				c.Charge("a", "n", pod(nil, order[0]), kind, "", api.Rank{})
				if got := c.CanPlace(pod(nil, order[1]), "n"); (got.Obstacle == HostPort) != test.conflicts {
					t.Errorf("%+v with a %s of %+v: %q, want a conflict: %t", pod(nil, order[1]).Key, kind, pod(nil, order[0]).Key, got, test.conflicts)
				}
				c.Release("a")
				if got := c.CanPlace(pod(nil, order[1]), "n"); !got.Fits() {
					t.Errorf("after its release: %s", got)
				}
				check(t, c)
			}
		}
	}
}

// Pods on a node that request devices which the node does not offer, or no node does, keep no other pods off it.
func TestDevicesThatANodeLacks(t *testing.T) {
	c := New(Config{})
	none, some, plain := machine("none", 8000, 8<<30, 0), machine("some", 8000, 8<<30, 4), pod(map[string]string{"cpu": "1"}, nil)
	step := func(what string, fits bool) {
		t.Helper()
		check(t, c)
		if got := c.CanPlace(plain, "none"); got.Fits() != fits || len(c.OutOfSync()) != 0 == fits {
			t.Errorf("%s: %q, out of sync: %v", what, got, c.OutOfSync())
		}
	}
	c.SetNode(none)
	c.Charge("device", "none", pod(map[string]string{"cpu": "1", "example.com/gpu": "1", "example.com/other": "1"}, nil), Bound, "", api.Rank{})
	step("no node offers it", true)
	c.SetNode(some)
	step("another node offers it", true)
	if got := c.CanPlace(pod(map[string]string{"example.com/gpu": "1"}, nil), "none"); got.Fits() {
		t.Error("a pod gets a device of a node that has none")
	}
	c.Charge("more", "none", pod(map[string]string{"example.com/gpu": "1"}, nil), Bound, "", api.Rank{})
	c.SetNode(machine("none", 8000, 8<<30, 1))
	step("the node offers fewer than are requested", true)
	c.SetNode(machine("none", 8000, 8<<30, 2))
	step("the node offers as many", true)
	c.SetNode(none)
	step("it has none again", true)
	c.RemoveNode("some")
	step("and no other node has", true)
	for _, uid := range []string{"device", "more"} {
		if got := c.CanStay(uid); got.Fits() {
			t.Errorf("%s, which requests a device, can stay on a node that has none", uid)
		}
	}
	c.Release("device")
	c.Release("more")
	step("the pods are gone", true)
}

// A node shrinks below its use, takes nothing, and recovers by itself.
func TestShrinkingNode(t *testing.T) {
	c := New(Config{})
	one := pod(map[string]string{"cpu": "1", "example.com/gpu": "1"}, nil)
	c.SetNode(machine("n", 8000, 8<<30, 4))
	for i := range 4 {
		c.Charge(fmt.Sprint(i), "n", one, Bound, "", api.Rank{})
	}
	c.Charge("held", "n", pod(map[string]string{"cpu": "1"}, nil), Hold, "g", api.Rank{})
	room, sync := c.RoomVersion(), c.SyncVersion()
	c.SetNode(machine("n", 3000, 8<<30, 4))
	if got := c.OutOfSync(); len(got) != 1 || c.SyncVersion() == sync || c.RoomVersion() != room {
		t.Fatalf("out of sync: %v, versions %d %d, were %d %d", got, c.RoomVersion(), c.SyncVersion(), room, sync)
	}
	if got := c.CanPlace(pod(nil, nil), "n"); got.Obstacle != OutOfSync {
		t.Errorf("a pod that asks for nothing: %q", got)
	}
	if got := c.CanStay("held"); got.Obstacle != OutOfSync {
		t.Errorf("a hold on it could become an intent: %q", got)
	}
	if node, _, ok := c.PlaceWithin(pod(nil, nil), api.Rank{Priority: 1}, nil); ok {
		t.Errorf("holds were taken on %s", node)
	}
	if view, _ := c.Node("n"); view.Free.Value("cpu") != -2000 || !view.OutOfSync {
		t.Errorf("free %s, out of sync %t", view.Free, view.OutOfSync)
	}
	c.Release("0")
	if c.RoomVersion() != room {
		t.Error("room on a node that is still out of sync")
	}
	c.Release("1")
	if len(c.OutOfSync()) != 0 || c.RoomVersion() == room || !c.CanPlace(pod(nil, nil), "n").Fits() || !c.CanStay("held").Fits() {
		t.Errorf("did not recover: %+v", c.Totals())
	}
	check(t, c)
}

// TestDeviceThatFails: of 4 devices in use one fails. Nobody else is the worse for it, as the device plugin's own pod.
func TestDeviceThatFails(t *testing.T) {
	c := New(Config{})
	one := pod(map[string]string{"cpu": "1", "example.com/gpu": "1"}, nil)
	c.SetNode(machine("n", 8000, 8<<30, 4))
	for i := range 4 {
		c.Charge(fmt.Sprint(i), "n", one, Bound, "", api.Rank{})
	}
	plugin := pod(map[string]string{"cpu": "100m"}, nil)
	c.Charge("held", "n", plugin, Hold, "g", api.Rank{})
	c.SetNode(machine("n", 8000, 8<<30, 3))
	if node, ok := c.Place(plugin); !ok || node != "n" || !c.CanStay("held").Fits() || len(c.OutOfSync()) > 0 {
		t.Errorf("a pod without devices is placed on %q, stays: %q, out of sync: %v", node, c.CanStay("held"), c.OutOfSync())
	}
	if got := c.CanPlace(one, "n"); got.Obstacle != Insufficient {
		t.Errorf("a pod with a device: %q", got)
	}
	c.Release("0")
	if c.CanPlace(one, "n").Fits() {
		t.Error("there is room for a device, and all that work are in use")
	}
	c.Release("1")
	if !c.CanPlace(one, "n").Fits() {
		t.Errorf("no room for a device: %+v", c.Totals())
	}
	check(t, c)
}

func TestPolicy(t *testing.T) {
	for _, test := range []struct {
		name   string
		policy Policy
		class  *api.Class
		want   string
	}{
		{"packs into the fullest", Pack, pod(map[string]string{"cpu": "1"}, nil), "half"},
		{"unless it does not fit", Pack, pod(map[string]string{"cpu": "5"}, nil), "empty"},
		{"strands a device last of all", Pack, pod(map[string]string{"cpu": "9"}, nil), "gpu-full"},
		{"packs devices", Pack, pod(map[string]string{"cpu": "1", "example.com/gpu": "1"}, nil), "gpu-half"},
		{"spreads", Spread, pod(map[string]string{"cpu": "1"}, nil), "gpu-full"},
		{"spreads devices", Spread, pod(map[string]string{"cpu": "1", "example.com/gpu": "1"}, nil), "gpu-full"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := New(Config{Policy: test.policy})
			c.SetNode(machine("gpu-full", 64000, 8<<30, 4))
			c.SetNode(machine("gpu-half", 8000, 8<<30, 4))
			c.Charge("a", "gpu-half", pod(map[string]string{"cpu": "1", "example.com/gpu": "2"}, nil), Bound, "", api.Rank{})
			c.SetNode(machine("empty", 8000, 8<<30, 0))
			c.SetNode(machine("half", 8000, 8<<30, 0))
			c.Charge("b", "half", pod(map[string]string{"cpu": "4"}, nil), Bound, "", api.Rank{})
			if got, _ := c.Place(test.class); got != test.want {
				t.Errorf("Place = %s, want %s", got, test.want)
			}
		})
	}
}

// The node with fewer devices left is the better one, also when it has more of everything else left.
func TestPacksDevicesFirst(t *testing.T) {
	c := New(Config{})
	one := pod(map[string]string{"cpu": "1", "example.com/gpu": "1"}, nil)
	c.SetNode(machine("many devices", 8000, 8<<30, 4))
	c.Charge("cpu", "many devices", pod(map[string]string{"cpu": "6"}, nil), Bound, "", api.Rank{})
	c.SetNode(machine("few devices", 64000, 8<<30, 4))
	c.Charge("gpu", "few devices", one, Bound, "", api.Rank{})
	if got, _ := c.Place(one); got != "few devices" {
		t.Errorf("Place = %s", got)
	}
}

func TestTaking(t *testing.T) {
	c := New(Config{})
	half := pod(map[string]string{"cpu": "4"}, nil)
	rank := func(order uint64) api.Rank { return api.Rank{Order: order, Gang: fmt.Sprint(order)} }
	c.SetNode(machine("n1", 8000, 8<<30, 0))
	c.SetNode(machine("n2", 8000, 8<<30, 0))
	c.Charge("h2", "n1", half, Hold, "2", rank(2))
	c.Charge("h5", "n1", half, Hold, "5", rank(5))
	c.Charge("h6", "n2", half, Hold, "6", rank(6))
	c.Charge("i7", "n2", half, Intent, "7", rank(7))
	whole := pod(map[string]string{"cpu": "8"}, nil)
	for _, test := range []struct {
		class *api.Class
		order uint64
		want  string
	}{
		{half, 1, "n2 [h6] true"},     // the worst rank goes first
		{half, 6, " [] false"},        // not one's own, and never an intent
		{half, 5, "n2 [h6] true"},     //
		{whole, 1, "n1 [h5 h2] true"}, // n2 has an intent
		{whole, 3, " [] false"},
	} {
		node, victims, ok := c.PlaceWithin(test.class, rank(test.order), nil)
		if got := fmt.Sprint(node, " ", victims, " ", ok); got != test.want {
			t.Errorf("order %d: %s, want %s", test.order, got, test.want)
		}
	}
	c.Charge("h6", "n2", half, Intent, "6", rank(6)) // a hold that became an intent
	if node, victims, _ := c.PlaceWithin(half, rank(1), nil); node != "n1" || fmt.Sprint(victims) != "[h5]" {
		t.Errorf("took %v on %s", victims, node)
	}
	check(t, c)
}

// Room on a port is taken with the hold that has it.
func TestTakingPorts(t *testing.T) {
	c := New(Config{})
	c.SetNode(machine("n", 8000, 8<<30, 0))
	c.Charge("other", "n", pod(map[string]string{"cpu": "4"}, nil), Hold, "g", api.Rank{Order: 9})
	c.Charge("port", "n", pod(nil, hostPort(80, "", "")), Hold, "g", api.Rank{Order: 8})
	for _, test := range []struct {
		cpu  string
		want string
	}{{"1", "[port]"}, {"5", "[other port]"}, {"9", "[]"}} {
		of := pod(map[string]string{"cpu": test.cpu}, hostPort(80, "10.0.0.1", ""))
		_, victims, _ := c.PlaceWithin(of, api.Rank{Order: 1}, nil)
		if got := fmt.Sprint(victims); got != test.want {
			t.Errorf("cpu %s: took %s, want %s", test.cpu, got, test.want)
		}
	}
}

// Whoever waits for room tries again when the version grows, and not on every heartbeat.
func TestRoomVersion(t *testing.T) {
	base := func() *api.Node { return machine("n", 4000, 8<<30, 0) }
	label := func(v string) func(*api.Node) { return func(n *api.Node) { n.Labels = map[string]string{"zone": v} } }
	taint := withTaint("a", "b", v1.TaintEffectNoSchedule)
	other := withTaint("c", "", v1.TaintEffectNoSchedule)
	one := pod(map[string]string{"cpu": "1"}, nil)
	for _, test := range []struct {
		name   string
		before *api.Node
		change func(*Cache)
		grows  bool // RoomVersion
		nodes  bool // NodesVersion
	}{
		{"heartbeat", base(), func(c *Cache) { c.SetNode(base()) }, false, false},
		{"another node", base(), func(c *Cache) { c.SetNode(machine("m", 1, 1, 0)) }, true, true},
		{"gone", base(), func(c *Cache) { c.RemoveNode("n") }, false, false},
		{"grows", base(), func(c *Cache) { c.SetNode(machine("n", 5000, 8<<30, 0)) }, true, true},
		{"shrinks", base(), func(c *Cache) { c.SetNode(machine("n", 3000, 8<<30, 0)) }, false, false},
		{"has a device", base(), func(c *Cache) { c.SetNode(machine("n", 4000, 8<<30, 1)) }, true, true},
		{"cordoned", base(), func(c *Cache) { n := base(); cordoned(n); c.SetNode(n) }, false, false},
		{"uncordoned", machine("n", 4000, 8<<30, 0, cordoned), func(c *Cache) { c.SetNode(base()) }, true, true},
		{"tainted", base(), func(c *Cache) { n := base(); taint(n); c.SetNode(n) }, false, false},
		{"another taint", machine("n", 4000, 8<<30, 0, taint), func(c *Cache) { n := base(); taint(n); other(n); c.SetNode(n) }, false, false},
		{"taint removed", machine("n", 4000, 8<<30, 0, taint, other), func(c *Cache) { n := base(); taint(n); c.SetNode(n) }, true, true},
		{"relabelled", base(), func(c *Cache) { n := base(); label("a")(n); c.SetNode(n) }, true, true},
		{"charged", base(), func(c *Cache) { c.Charge("new", "n", one, Hold, "", api.Rank{}) }, false, false},
		{"a hold becomes an intent", base(), func(c *Cache) { c.Charge("held", "n", one, Intent, "", api.Rank{}) }, false, false},
		{"moved away", base(), func(c *Cache) { c.Charge("held", "elsewhere", one, Bound, "", api.Rank{}) }, true, false},
		{"released", base(), func(c *Cache) { c.Release("held") }, true, false},
		{"nothing to release", base(), func(c *Cache) { c.Release("new") }, false, false},
		{"released elsewhere", base(), func(c *Cache) { c.Release("away") }, false, false},
	} {
		c := New(Config{})
		c.SetNode(test.before)
		c.Charge("held", "n", one, Hold, "", api.Rank{})
		c.Charge("away", "unknown", one, Bound, "", api.Rank{})
		before, nodes := c.RoomVersion(), c.Totals().NodesVersion
		test.change(c)
		if got := c.Totals().NodesVersion > nodes; got != test.nodes {
			t.Errorf("%s: NodesVersion grows %t, want %t", test.name, got, test.nodes)
		}
		if got := c.RoomVersion() > before; got != test.grows {
			t.Errorf("%s: grows %t, want %t", test.name, got, test.grows)
		}
		check(t, c)
	}
}

// Sums that left int64 come back without a trace.
func TestSaturation(t *testing.T) {
	c := New(Config{})
	huge := pod(map[string]string{"memory": "1Ei"}, nil)
	for i := range 20 {
		c.SetNode(machine(fmt.Sprint("n", i), 1000, 1<<60, 0))
	}
	for i := range 20 {
		c.Charge(fmt.Sprint(i), "n0", huge, Bound, "", api.Rank{})
	}
	check(t, c)
	view, _ := c.Node("n0")
	if view.Free.Value("memory") != 1<<60-math.MaxInt64 || c.Totals().Allocatable.Value("memory") != math.MaxInt64 {
		t.Errorf("free %d, allocatable of all %d", view.Free.Value("memory"), c.Totals().Allocatable.Value("memory"))
	}
	for i := range 20 {
		c.Release(fmt.Sprint(i))
		check(t, c)
	}
	for i := range 15 {
		c.RemoveNode(fmt.Sprint("n", i))
	}
	if got := c.Totals(); got.Free.Value("memory") != 5<<60 || got.Nodes != 5 || got.OutOfSync != 0 {
		t.Errorf("totals %+v", got)
	}
	check(t, c)
}

// Names that pods and nodes make up leave nothing behind.
func TestMemoryIsBounded(t *testing.T) {
	c := New(Config{})
	c.SetNode(machine("n", 1000, 1<<30, 0))
	for i := range 5000 {
		name := fmt.Sprintf("example.com/r%d", i)
		class := pod(map[string]string{name: "1"}, nil)
		c.Place(class)
		c.CanPlace(class, "n")
		c.Charge("p", fmt.Sprintf("node-%d", i%2), class, Bound, "", api.Rank{})
		n := machine("flaky", 1000, 1<<30, 0)
		n.Allocatable = append(n.Allocatable[:0:0], api.Amount{Resource: name, Value: 1})
		c.SetNode(n)
	}
	for i := range 5000 { // machines are replaced by others
		c.SetNode(machine(fmt.Sprint("m", i), 1000, 1<<30, 0))
		c.RemoveNode(fmt.Sprint("m", i))
	}
	if len(c.slots) != 4 { // one was for the machines
		t.Errorf("%d slots", len(c.slots))
	}
	check(t, c)
	if len(c.classes) > defaultLimits.planned+1 || len(c.columns) > defaultLimits.dead+8 || len(c.nodes) != 3 || len(c.pods.spare) > 1 {
		t.Errorf("%d classes, %d columns, %d nodes, %d spare charges", len(c.classes), len(c.columns), len(c.nodes), len(c.pods.spare))
	}
}

func TestWords(t *testing.T) {
	for _, test := range []struct{ got, want string }{
		{fmt.Sprint(Hold, Intent, Bound, Kind(9)), "Hold Intent Bound Kind(9)"},
		{Misfit{}.String(), ""},
		{Misfit{Obstacle: NoNode}.String(), "node does not exist"},
		{Misfit{Obstacle: 99}.String(), "Obstacle(99)"},
		{Misfit{Obstacle: Insufficient, Subject: "pods"}.String(), "Too many pods"},
	} {
		if test.got != test.want {
			t.Errorf("got %q, want %q", test.got, test.want)
		}
	}
}

// TestPackLeavesLargeNodesWhole: devices are taken where the fewest are free, by number and not by share.
func TestPackLeavesLargeNodesWhole(t *testing.T) {
	c := New(Config{})
	c.SetNode(machine("eight", 64000, 64<<30, 8))
	c.SetNode(machine("none", 64000, 64<<30, 0))
	c.SetNode(machine("two", 64000, 64<<30, 2))
	for i, test := range []struct{ gpus, want string }{{"", "none"}, {"1", "two"}, {"1", "two"}, {"", "two"}, {"1", "eight"}} {
		requests := map[string]string{"cpu": "1"}
		if test.gpus != "" {
			requests["example.com/gpu"] = test.gpus
		}
		class := pod(requests, nil)
		node, _ := c.Place(class)
		if i != 3 && node != test.want || i == 3 && node == "eight" { // then two nodes have none free
			t.Errorf("pod %d, devices %q, goes to %s, want %s", i, test.gpus, node, test.want)
		}
		c.Charge(fmt.Sprint(i), node, class, Bound, "", api.Rank{})
	}
	check(t, c)
}

// TestWhyIsBounded: where a class was counted before, counts wait for enough changes; whether it ever fits does not.
func TestWhyIsBounded(t *testing.T) {
	l := defaultLimits
	l.exact, l.counted = 0, 4
	c := newCache(Config{}, l)
	const nodes = 400
	for i := range nodes {
		c.SetNode(machine(fmt.Sprint("n", i), 4000, 1<<30, 0))
	}
	small, large := pod(map[string]string{"cpu": "1"}, nil), pod(map[string]string{"cpu": "5"}, nil)
	if why := c.Why(large); !why.Never || why.Counts[0].Nodes != nodes {
		t.Errorf("%+v", why)
	}
	c.SetNode(machine("large", 6000, 1<<30, 0))
	if why := c.Why(large); why.Never || why.Fit != 1 || why.Nodes != nodes+1 {
		t.Errorf("a node came that would take one: %+v", why)
	}
	c.Charge("p", "large", large, Bound, "", api.Rank{})
	if why := c.Why(large); why.Never || why.Fit != 0 {
		t.Errorf("it is full: %+v", why)
	}
	c.RemoveNode("n0")
	if why := c.Why(large); why.Nodes != nodes+1 {
		t.Errorf("counted again after one change: %+v", why)
	}
	for i := range nodes / 2 {
		c.Charge(fmt.Sprint(i), fmt.Sprint("n", 1+i), small, Bound, "", api.Rank{})
	}
	if why := c.Why(large); why.Nodes != nodes || why.Never {
		t.Errorf("not counted again: %+v", why)
	}
	c.RemoveNode("large")
	if why := c.Why(large); !why.Never || why.Nodes != nodes-1 {
		t.Errorf("the large one is gone: %+v", why)
	}
	check(t, c)
}

// TestTakingLooksAtHolds: PlaceWithin forgets nodes whose holds are gone, and the rank of the worst.
func TestTakingLooksAtHolds(t *testing.T) {
	c := New(Config{})
	class := pod(map[string]string{"cpu": "3"}, nil)
	good, middle, bad := api.Rank{Order: 1}, api.Rank{Order: 2}, api.Rank{Order: 3}
	for i, rank := range []api.Rank{bad, middle, {}} {
		name := fmt.Sprint("n", i)
		c.SetNode(machine(name, 4000, 1<<30, 0))
		c.Charge(name, name, class, Hold, "g", rank)
	}
	node, victims, ok := c.PlaceWithin(class, good, nil)
	if !ok || node != "n0" || !slices.Equal(victims, []string{"n0"}) {
		t.Errorf("took %v on %s, %t", victims, node, ok)
	}
	c.Release("n0")
	c.Charge("bound", "n0", class, Bound, "", api.Rank{})
	if _, _, ok := c.PlaceWithin(class, middle, nil); ok {
		t.Error("took a hold of the same rank")
	}
	if len(c.held) != 2 || c.worst != middle {
		t.Errorf("%d nodes with holds, the worst has %v", len(c.held), c.worst)
	}
	check(t, c)
	if node, _, ok := c.PlaceWithin(class, good, nil); !ok || node != "n1" {
		t.Errorf("took one on %s, %t", node, ok)
	}
}

// TestBitsOutlastAStorm: pods of a class of their own, more of them than are remembered, do not take the bits of the classes
// that are asked for often, and a class that is not asked for any more loses its own to who needs one.
func TestBitsOutlastAStorm(t *testing.T) {
	l := defaultLimits
	l.planned, l.bits, l.idle = 16, 2, 200
	c := newCache(Config{}, l)
	for i := range 4 {
		c.SetNode(machine(fmt.Sprint("n", i), 64000, 64<<30, 0))
	}
	class := func(milli int) *api.Class { return pod(map[string]string{"cpu": fmt.Sprintf("%dm", milli)}, nil) }
	often := func(a *api.Class) {
		for range 100 {
			c.Place(a)
		}
	}
	first, second, third := class(1), class(2), class(3)
	often(first)
	often(second)
	for i := range 3 * l.planned {
		c.Place(class(1000 + i))
	}
	for _, a := range []*api.Class{first, second} {
		if cl := c.find(a); cl.bit < 0 {
			t.Errorf("%v lost its bit", a.Requests)
		}
	}
	check(t, c)
	for range 2 {
		often(first)
		often(third)
	}
	if c.find(first).bit < 0 || c.find(second).bit >= 0 || c.find(third).bit < 0 {
		t.Error("the bit of a class that nobody asks for was not given to another")
	}
	for i := range 20 * l.planned {
		c.Place(class(1000 + i))
	}
	if c.find(first).planned || c.find(third).planned {
		t.Error("classes that nobody asks for are remembered for ever")
	}
	check(t, c)
}

// TestMany: more charges on a node than its slot has room for, more resources than a row, and nodes of many kinds.
func TestMany(t *testing.T) {
	for seed := range uint64(5) {
		r := rand.New(rand.NewPCG(seed, 9))
		c := New(Config{})
		where := map[string]string{}
		for i := range 4000 {
			uid, name := fmt.Sprint("pod-", r.IntN(300)), fmt.Sprint("node-", r.IntN(4))
			extended := fmt.Sprintf("example.com/r%d", r.IntN(1+i/100)) // there are ever more
			switch r.IntN(12) {
			case 0:
				n := machine(name, 1000*r.Int64N(40), 1<<30, r.Int64N(3))
				n.Allocatable = n.Allocatable.Add(api.FromMap(map[string]int64{extended: r.Int64N(100)}))
				n.Labels = map[string]string{"zone": fmt.Sprint(r.IntN(20))}
				c.SetNode(n)
			case 1:
				if r.IntN(10) == 0 {
					c.RemoveNode(name)
				}
			case 2, 3, 4, 5:
				if c.Release(uid) != (where[uid] != "") {
					t.Fatalf("seed %d, step %d: %s is on %q", seed, i, uid, where[uid])
				}
				delete(where, uid)
			case 6:
				class := pod(map[string]string{extended: "1"}, affinity(expression("zone", v1.NodeSelectorOpIn, fmt.Sprint(r.IntN(20)))))
				if name, ok := c.Place(class); ok {
					c.Charge(uid, name, class, Bound, "", api.Rank{})
					where[uid] = name
				}
			default:
				c.Charge(uid, name, pod(map[string]string{"cpu": "1", extended: "1"}, nil), Bound, "", api.Rank{})
				where[uid] = name
			}
			if i%20 == 0 {
				check(t, c)
			}
		}
		for uid, name := range where {
			if p, ok := c.Lookup(uid); !ok || p.Node != name {
				t.Fatalf("seed %d: %s is on %q, not on %q", seed, uid, p.Node, name)
			}
		}
		check(t, c)
	}
}

// TestPolicyNames: each policy is read by its name, and other names are none.
// TestFreeShares: what is free of each node, of its own allocatable.
func TestFreeShares(t *testing.T) {
	c := New(Config{})
	c.SetNode(machine("empty", 8000, 1<<30, 0))
	c.SetNode(machine("used", 8000, 1<<30, 4))
	c.Charge("a", "used", pod(map[string]string{"cpu": "1m", "example.com/gpu": "4"}, nil), Bound, "", api.Rank{})
	c.SetNode(machine("nothing", 0, 1<<30, 0))
	c.SetNode(machine("broken", 8000, 1<<30, 0))
	c.Charge("b", "broken", pod(map[string]string{"cpu": "9"}, nil), Bound, "", api.Rank{})
	c.SetNode(machine("gone", 8000, 1<<30, 0))
	c.RemoveNode("gone")
	c.Charge("c", "never there", pod(map[string]string{"cpu": "1"}, nil), Bound, "", api.Rank{})
	nodes, free := Shares(c, []string{"cpu", "example.com/gpu", "example.com/unknown"})
	got := map[string][]byte{}
	for i, name := range nodes {
		got[name] = free[3*i : 3*i+3]
	}
	const none, unknown = api.ShareOfNone, api.ShareUnknown
	want := map[string][]byte{"empty": {100, none, none}, "used": {99, 0, none}, "nothing": {none, none, none},
		"broken": {unknown, unknown, unknown}}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestPolicyNames(t *testing.T) {
	for p := Pack; p <= MostAllocated; p++ {
		if got, ok := ReadPolicy(p.String()); !ok || got != p {
			t.Errorf("%s is read as %s, %t", p, got, ok)
		}
	}
	for name, want := range map[string]bool{"": true, "best": false, "Policy(4)": false} {
		if got, ok := ReadPolicy(name); ok != want || got != Pack {
			t.Errorf("%q is read as %s, %t", name, got, ok)
		}
	}
}
