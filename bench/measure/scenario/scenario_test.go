package scenario_test

import (
	"fmt"
	"hash/fnv"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apilabels "k8s.io/apimachinery/pkg/labels"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/bench/measure/scenario"
)

const around = `
about: a test
nodes:
- {count: 2, cpu: "4", memory: 8Gi, taint: example.com/dedicated}
- {count: 3, cpu: "4", memory: 8Gi, csi: {driver: ebs.csi.aws.com, limit: 5, migrated: kubernetes.io/aws-ebs}}
queues: {fanOut: [1]}
gangs:
- {name: a, app: green, size: {min: 2, max: 2}, pods: [{cpu: 100m, memory: 64Mi}], namespaces: 3, around: {apps: 2, antiAffinity: kubernetes.io/hostname, namespaceSelector: true}}
- {name: b, app: green, size: {min: 1, max: 1}, plain: true, pods: [{cpu: 100m, memory: 64Mi}], service: true}
- {name: c, size: {min: 1, max: 1}, plain: true, pods: [{cpu: 100m, memory: 64Mi}], namespaces: 2, service: true, around: {spread: kubernetes.io/hostname, scheduleAnyway: true, nodeTaintsPolicy: Honor}}
- {name: d, size: {min: 1, max: 1}, plain: true, pods: [{cpu: 100m, memory: 64Mi}], volume: ebs.csi.aws.com}
- {name: e, size: {min: 1, max: 1}, plain: true, pods: [{cpu: 100m, memory: 64Mi}], volume: kubernetes.io/aws-ebs}
- {name: f, size: {min: 2, max: 2}, pods: [{cpu: 100m, memory: 64Mi}], secret: true, topology: topology.kubernetes.io/zone}
arrivals: {closed: {gangs: 200}}
`

const good = `
about: a test
nodes: [{count: 2, cpu: "4", memory: 8Gi}]
queues: {fanOut: [2, 3], capabilityPercent: [100, 50]}
gangs:
- {name: a, share: 3, size: {min: 2, max: 4}, minPercent: 50, pods: [{cpu: 100m, memory: 64Mi}], lifetime: {min: 1s, max: 2s}}
- {name: b, size: {min: 1, max: 1}, plain: true, pods: [{openb: true}]}
arrivals: {closed: {gangs: 400}}
`

func parse(t *testing.T, content string) *scenario.Scenario {
	t.Helper()
	s, err := scenario.Parse("test.yaml", []byte(content))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestWhatIsUnknownOrWrongIsNamed(t *testing.T) {
	for _, c := range []struct{ old, new, want string }{
		{"example.com/dedicated", "a b", "nodes[0].taint"},
		{"driver: ebs.csi.aws.com", "driver: EBS", "nodes[1].csi.driver"},
		{"driver: ebs.csi.aws.com", "driver: other.example.com", "gangs[3].volume"},
		{", migrated: kubernetes.io/aws-ebs", "", "gangs[4].volume"},
		{"migrated: kubernetes.io/aws-ebs", "migrated: kubernetes.io/gce-pd", "nodes[1].csi.migrated"},
		{"topology: topology.kubernetes.io/zone", "topology: a b", "gangs[5].topology"},
		{"topology: topology", "lifetime: {min: 1s, max: 1s}, topology: topology", "gangs[5].topology"},
		{"limit: 5", "limit: 0", "nodes[1].csi.limit"},
		{"app: green", "app: Green", "gangs[0].app"},
		{"namespaces: 3", "namespaces: -1", "gangs[0].namespaces"},
		{"namespaces: 3", "namespaces: 10001", "gangs[0].namespaces"},
		{"nodeTaintsPolicy: Honor", "nodeTaintsPolicy: honor", "gangs[2].around.nodeTaintsPolicy"},
		{"antiAffinity: kubernetes.io/hostname", "antiAffinity: kubernetes.io/hostname, nodeTaintsPolicy: Honor", "gangs[0].around.nodeTaintsPolicy"},
		{"nodeTaintsPolicy: Honor", "namespaceSelector: true", "gangs[2].around.namespaceSelector"},
		{"namespaceSelector: true", "scheduleAnyway: true", "gangs[0].around.scheduleAnyway"},
		{"about: a test", "abuot: a test", "abuot"},
		{"minPercent: 50", "minpercent: 50, minCount: 3", "minCount"},
		{`cpu: "4"`, `cpu: "4", cpu: "5"`, "cpu"},
		{"count: 2", "count: 0", "nodes[0].count"},
		{`cpu: "4"`, `cpu: 9E`, "nodes[0].cpu"},
		{`cpu: "4"`, `openb: true, cpu: "4"`, "nodes[0].openb"},
		{"memory: 64Mi", "memory: 64", "gangs[0].pods[0]"},
		{"fanOut: [2, 3]", "fanOut: [2, 0]", "queues.fanOut[1]"},
		{"[100, 50]", "[100, 50, 50]", "queues.capabilityPercent"},
		{"name: b", "name: a", "gangs[1].name"},
		{"name: b", "name: B_", "gangs[1].name"},
		{"{min: 2, max: 4}", "{min: 4, max: 2}", "gangs[0].size"},
		{"{min: 2, max: 4}", "{min: 2, max: 4, draw: normal}", "gangs[0].size.draw"},
		{"plain: true", "plain: true, mixed: maybe", "mixed"},
		{"size: {min: 1, max: 1}", "size: {min: 1, max: 2}", "gangs[1].plain"},
		{"max: 2s", "max: 500ms", "gangs[0].lifetime"},
		{"max: 2s", "max: 2", "1m30s"},
		{"closed: {gangs: 400}", "", "arrivals"},
		{"closed: {gangs: 400}", "closed: {gangs: 0}", "arrivals.closed.gangs"},
		{"closed: {gangs: 400}", "open: {podsPerSecond: [5, 0], for: 1s}", "arrivals.open.podsPerSecond[1]"},
		{"closed: {gangs: 400}", "open: {podsPerSecond: [5]}", "arrivals.open.for"},
		{"closed: {gangs: 400}", "closed: {gangs: 400}, steady: {cpuPercent: 95, waiting: 10}", "one of closed, open and steady"},
		{"closed: {gangs: 400}", "steady: {cpuPercent: 101, waiting: 10}", "arrivals.steady.cpuPercent"},
		{"closed: {gangs: 400}", "steady: {cpuPercent: 95, waiting: 10}", "leave lifetime out"},
		{"arrivals:", "beside: {large: -1}\narrivals:", "beside"},
		{"[100, 50]", "[100, 50], deservedPercent: [0, 0, 100]", "queues.deservedPercent"},
		{"[100, 50]", "[100, 50], deservedPercent: [0, -1]", "queues.deservedPercent[1]"},
		{"arrivals:", "claims: {pods: 8, together: 4, leave: 1s}\narrivals:", "with claims there is one kind"},
	} {
		from := good
		if !strings.Contains(good, c.old) {
			from = around
		}
		changed := strings.Replace(from, c.old, c.new, 1)
		if changed == from {
			t.Fatalf("%q is not in the scenario", c.old)
		}
		_, err := scenario.Parse("test.yaml", []byte(changed))
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "test.yaml") {
			t.Errorf("%s: error %v does not name the file and %q", c.new, err, c.want)
		}
	}
}

const claiming = `
about: claims
nodes: [{count: 4, cpu: "8", memory: 32Gi}]
queues: {fanOut: [1, 2, 2], capabilityPercent: [100], deservedPercent: [0, 100]}
gangs:
- {name: lent, size: {min: 2, max: 2}, pods: [{cpu: "1", memory: 64Mi}]}
claims: {pods: 16, together: 4, leave: 2s}
arrivals: {closed: {gangs: 16}}
`

func TestWhatIsWrongWithClaimsIsNamed(t *testing.T) {
	for _, c := range []struct{ old, new, want string }{
		{"closed: {gangs: 16}", "open: {podsPerSecond: [5], for: 1s}", "arrivals.closed"},
		{"[1, 2, 2]", "[1, 1, 3]", "claims: half of the leaves"},
		{"arrivals:", "beside: {never: 1}\narrivals:", "leave beside out"},
		{"64Mi}", "64Mi}, {cpu: 2, memory: 64Mi}", "one shape"},
		{"pods: [", "lifetime: {min: 1s, max: 2s}, pods: [", "lifetime"},
		{"pods: 16", "pods: 0", "claims.pods"},
		{"together: 4", "together: 0", "claims.together"},
		{"together: 4", "together: 3", "claims.together"},
		{"leave: 2s", "leave: 1500ms", "claims.leave"},
		{"leave: 2s", "leave: 0s", "claims.leave"},
	} {
		changed := strings.Replace(claiming, c.old, c.new, 1)
		if changed == claiming {
			t.Fatalf("%q is not in the scenario", c.old)
		}
		if _, err := scenario.Parse("test.yaml", []byte(changed)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v does not name %q", c.new, err, c.want)
		}
	}
}

// The load fills the cluster from one half of the leaves, and the other half is entitled to what it claims.
func TestClaimants(t *testing.T) {
	s := parse(t, claiming)
	for g := range s.MakeGangs(1, 0) {
		if !strings.HasPrefix(g.Queue, "a0.b0.") {
			t.Errorf("gang %s fills the cluster from queue %s", g.Name, g.Queue)
		}
	}
	for _, count := range []int{1, 4} {
		pods := 0
		for i, g := range s.MakeClaimants("x", count) {
			pods += len(g.Pods)
			if want := fmt.Sprintf("a0.b1.c%d", i%2); g.Queue != want || g.MinCount != len(g.Pods) || g.Name != fmt.Sprintf("x-%d", i) {
				t.Errorf("claimant %s of %s with a minimum of %d of %d, want queue %s", g.Name, g.Queue, g.MinCount, len(g.Pods), want)
			}
		}
		if pods != 16 {
			t.Errorf("%d claimants have %d pods", count, pods)
		}
	}
	queues := s.MakeQueues()
	if q := queues[0].Spec; q.PreemptionDelay == nil || q.PreemptionDelay.Duration != 0 || q.ReclaimMinRuntime == nil || q.Deserved != nil {
		t.Errorf("the uppermost queue says %+v", q)
	}
	if q := queues[2]; q.Name != "a0.b1" || q.Spec.Deserved.Cpu().Value() != 16 || q.Spec.PreemptionDelay != nil {
		t.Errorf("queue %s deserves %v", q.Name, q.Spec.Deserved)
	}
}

func TestLoad(t *testing.T) {
	for _, name := range scenario.Names() {
		s, err := scenario.Load(name)
		if err != nil {
			t.Error(err)
			continue
		}
		if s.About == "" {
			t.Errorf("%s does not say what it is for", name)
		}
		for _, q := range s.MakeQueues() {
			if err := api.ValidatePath(q.Name); err != nil {
				t.Error(err)
			}
		}
	}
	if _, err := scenario.Load("no-such"); err == nil || !strings.Contains(err.Error(), "kube-short") {
		t.Errorf("error %v does not say what there is", err)
	}
	path := filepath.Join(t.TempDir(), "mine.yaml")
	if err := os.WriteFile(path, []byte(good), 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err := scenario.Load(path); err != nil || s.Name() != path {
		t.Errorf("Load of a file: %v", err)
	}
}

func TestGeneratedObjects(t *testing.T) {
	s := parse(t, good)
	if nodes := s.MakeNodes(7); len(nodes) != 2 || nodes[0].Status.Allocatable.Cpu().MilliValue() != 4000 {
		t.Errorf("nodes %v", nodes)
	}
	queues := s.MakeQueues()
	if len(queues) != 8 || queues[0].Name != "a0" || queues[2].Name != "a0.b0" || queues[0].Spec.Capability.Cpu().MilliValue() != 4000 ||
		queues[7].Name != "a1.b2" || queues[7].Spec.Capability.Cpu().MilliValue() != 8000*50/100/6 {
		t.Errorf("queues %v", queues)
	}
	kinds, leaves := map[string]int{}, map[string]int{}
	for g := range s.MakeGangs(7, 0) {
		kinds[g.Kind]++
		leaves[g.Queue]++
		switch g.Kind {
		case "a":
			if n := len(g.Pods); n < 2 || n > 4 || g.MinCount != (n+1)/2 || g.Lifetime < 1e9 || g.Lifetime > 2e9 || g.Pods[0].MilliCPU != 100 {
				t.Fatalf("gang %+v", g)
			}
			pod := g.Pod(1, "ns", "other")
			if pod.Labels[api.LabelPodGroup] != g.Name || pod.Spec.SchedulerName != "other" || g.PodGroup("ns").Spec.Queue != g.Queue {
				t.Fatalf("pod %v", pod)
			}
		case "b":
			if len(g.Pods) != 1 || g.MinCount != 1 || g.Lifetime != 0 || g.Pod(0, "ns", "s").Labels[api.LabelQueue] != g.Queue {
				t.Fatalf("gang %+v", g)
			}
		}
	}
	if kinds["a"]+kinds["b"] != 400 || kinds["a"] < 260 || kinds["a"] > 340 || len(leaves) != 6 {
		t.Errorf("kinds %v, leaves %v", kinds, leaves)
	}
}

// What gangs are of by their kinds: apps that kinds share, namespaces, Services, volumes.
func TestObjectsAroundPods(t *testing.T) {
	s := parse(t, around)
	tainted := 0
	for _, n := range s.MakeNodes(7) {
		for _, taint := range n.Spec.Taints {
			if taint.Key != "example.com/dedicated" || taint.Effect != v1.TaintEffectNoSchedule || !strings.HasPrefix(n.Name, "node-0-") {
				t.Errorf("node %s has the taint %v", n.Name, taint)
			}
			tainted++
		}
	}
	if tainted != 2 {
		t.Errorf("%d nodes are tainted", tainted)
	}
	nodes := map[string]bool{}
	for _, n := range s.MakeNodes(7) {
		nodes[n.Name] = true
	}
	csi := s.MakeCSINodes()
	for _, n := range csi {
		if d := n.Spec.Drivers[0]; !nodes[n.Name] || d.Name != "ebs.csi.aws.com" || d.NodeID == "" || *d.Allocatable.Count != 5 || n.Annotations[v1.MigratedPluginsAnnotationKey] != "kubernetes.io/aws-ebs" {
			t.Errorf("CSINode %v", n)
		}
	}
	if len(csi) != 3 {
		t.Errorf("%d CSINodes", len(csi))
	}
	spaces := map[string]map[string]string{}
	for _, n := range s.MakeNamespaces("base") {
		spaces[n.Name] = n.Labels
	}
	if want := []string{"base", "base-1", "base-2", "base-3"}; !slices.Equal(slices.Sorted(maps.Keys(spaces)), want) {
		t.Errorf("namespaces %v", spaces)
	}
	var services []string
	for _, svc := range s.MakeServices("base") {
		services = append(services, svc.Namespace+"/"+svc.Name)
		if svc.Spec.ClusterIP != v1.ClusterIPNone || svc.Spec.Selector["app"] != svc.Name || len(svc.Spec.Ports) == 0 {
			t.Errorf("Service %v", svc)
		}
	}
	if want := []string{"base/green-0", "base-1/c-0", "base-2/c-0"}; !slices.Equal(services, want) {
		t.Errorf("Services %v, want %v", services, want)
	}

	seen, volumes := map[string]int{}, map[string]bool{}
	for g := range s.MakeGangs(7, 0) {
		p := g.Pod(0, "base", "s")
		seen[fmt.Sprint(g.Kind, " ", p.Namespace, " ", p.Labels["app"])]++
		if !g.Plain && g.PodGroup("base").Namespace != p.Namespace || spaces[p.Namespace] == nil || p.Namespace != g.Namespace("base") {
			t.Fatalf("pod %v is not where its PodGroup is, or in no namespace", p)
		}
		switch g.Kind {
		case "a":
			term := p.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0]
			for name, labels := range spaces {
				if of, err := metav1.LabelSelectorAsSelector(term.NamespaceSelector); err != nil || !of.Matches(apilabels.Set(labels)) {
					t.Fatalf("the term %v is not about namespace %s: %v", term, name, err)
				}
			}
			if term.TopologyKey != v1.LabelHostname || term.LabelSelector.MatchLabels["app"] != p.Labels["app"] {
				t.Fatalf("term %v of a pod with the labels %v", term, p.Labels)
			}
		case "b":
			if p.Spec.Affinity != nil || p.Spec.TopologySpreadConstraints != nil {
				t.Fatalf("pod %v requires something of others", p.Spec)
			}
		case "c":
			if c := p.Spec.TopologySpreadConstraints[0]; c.NodeTaintsPolicy == nil || *c.NodeTaintsPolicy != v1.NodeInclusionPolicyHonor || c.MaxSkew != 1 || c.WhenUnsatisfiable != v1.ScheduleAnyway {
				t.Fatalf("constraint %v", c)
			}
		case "d", "e":
			c := g.Claim(0, "base")
			c.UID = "the-claim"
			v := g.PersistentVolume(c)
			if p.Spec.Volumes[0].PersistentVolumeClaim.ClaimName != c.Name || c.Namespace != p.Namespace || c.Spec.VolumeName != v.Name || c.Annotations["pv.kubernetes.io/bind-completed"] == "" ||
				v.Spec.ClaimRef.UID != "the-claim" || v.Spec.ClaimRef.Name != c.Name || v.Spec.ClaimRef.Namespace != c.Namespace || volumes[v.Name] {
				t.Fatalf("pod %v, claim %v, volume %v", p, c, v)
			}
			volumes[v.Name] = true
			if of := v.Spec.CSI; g.Kind == "d" && (of == nil || of.Driver != "ebs.csi.aws.com" || of.VolumeHandle != v.Name) {
				t.Fatalf("volume %v", v)
			}
			if of := v.Spec.AWSElasticBlockStore; g.Kind == "e" && (of == nil || of.VolumeID != v.Name) {
				t.Fatalf("volume %v", v)
			}
		case "f":
			group := g.KubernetesPodGroup("base")
			if p.Spec.Volumes[0].Secret == nil || *p.Spec.SchedulingGroup.PodGroupName != group.Name || group.Namespace != p.Namespace || p.Labels[api.LabelPodGroup] != "" ||
				group.Spec.SchedulingPolicy.Gang.MinCount != 2 || group.Spec.SchedulingConstraints.Topology[0].Key != v1.LabelTopologyZone || group.Labels[api.LabelQueue] != g.Queue {
				t.Fatalf("pod %v, PodGroup %v", p, group)
			}
		}
		if strings.ContainsAny(g.Kind, "abc") == (p.Spec.Volumes != nil) {
			t.Fatalf("pod %v of kind %s", p, g.Kind)
		}
	}
	want := []string{"a base-1 green-0", "a base-1 green-1", "a base-2 green-0", "a base-2 green-1", "a base-3 green-0", "a base-3 green-1", "b base green-0", "c base-1 c-0", "c base-2 c-0", "d base ", "e base ", "f base "}
	if got := slices.Sorted(maps.Keys(seen)); !slices.Equal(got, want) {
		t.Errorf("gangs of %q, want %q", got, want)
	}
}

// A command that gives only part of a scenario to the scheduler refuses the others.
func TestWhatOnlyKubeGives(t *testing.T) {
	for name, want := range map[string]string{"soak": "", "mixed": "", "around-spread": "gangs[0].around", "around-service": "gangs[0].service", "volumes-csi": "nodes[0].csi", "secrets": "gangs[0].secret", "racks": "gangs[0].topology"} {
		s, err := scenario.Load(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.OnlyKube(); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// An open loop has the same gangs at every rate, earlier or later, and about as many pods as the rate says.
func TestOpenLoop(t *testing.T) {
	s := parse(t, strings.Replace(good, "closed: {gangs: 400}", "open: {podsPerSecond: [100], for: 100s}", 1))
	count := func(rate int) (pods int, names []string) {
		last := -1.0
		for g := range s.MakeGangs(3, rate) {
			if g.At.Seconds() < last {
				t.Fatalf("%s comes at %s, before the one before it", g.Name, g.At)
			}
			last = g.At.Seconds()
			pods += len(g.Pods)
			names = append(names, fmt.Sprint(g.Name, g.Queue, g.Pods, g.Lifetime))
		}
		return
	}
	slow, slowNames := count(100)
	fast, fastNames := count(200)
	if slow < 9000 || slow > 11000 || fast < 18000 || fast > 22000 {
		t.Errorf("%d and %d pods at 100 and 200 a second for 100 s", slow, fast)
	}
	for i := range slowNames {
		if slowNames[i] != fastNames[i] {
			t.Fatalf("gang %d is %s at one rate and %s at another", i, slowNames[i], fastNames[i])
		}
	}
}

// Figures are had again from scenario and seed, also with a later program: what changes the objects must change this sum.
func TestTheSameSeedMakesTheSameObjects(t *testing.T) {
	sum := func(seed uint64) uint64 {
		s, err := scenario.Load("mixed")
		if err != nil {
			t.Fatal(err)
		}
		h := fnv.New64a()
		for _, n := range s.MakeNodes(seed) {
			fmt.Fprintln(h, n.Name, n.Labels, n.Status.Allocatable.Cpu(), n.Status.Allocatable.Memory())
		}
		for _, q := range s.MakeQueues() {
			fmt.Fprintln(h, q.Name, q.Spec.Capability.Cpu(), q.Spec.Capability.Memory())
		}
		for g := range s.MakeGangs(seed, 100) {
			g.At = g.At.Truncate(time.Millisecond) // processors differ in the last bit of a logarithm
			fmt.Fprintln(h, g)
		}
		return h.Sum64()
	}
	if sum(1) == sum(2) {
		t.Error("two seeds make the same objects")
	}
	if got, want := sum(1), uint64(0xd18369c05e4a85bf); got != want {
		t.Errorf("seed 1 makes objects with the sum %#x, want %#x", got, want)
	}
}
