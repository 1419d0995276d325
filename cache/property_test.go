package cache

import (
	"fmt"
	"math"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"

	"basalt.dev/basalt/api"
)

func pod(requests map[string]string, change func(*v1.PodSpec)) *api.Class {
	p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Resources: v1.ResourceRequirements{Requests: v1.ResourceList{}}}}}}
	for k, v := range requests {
		p.Spec.Containers[0].Resources.Requests[v1.ResourceName(k)] = resource.MustParse(v)
	}
	if change != nil {
		change(&p.Spec)
	}
	return api.FromPod(p, nil, api.Rules{}).Class
}

func hostPort(number int32, ip string, protocol v1.Protocol) func(*v1.PodSpec) {
	return func(s *v1.PodSpec) {
		s.Containers[0].Ports = []v1.ContainerPort{{HostPort: number, HostIP: ip, Protocol: protocol}}
	}
}

func disks(sources ...v1.VolumeSource) func(*v1.PodSpec) {
	return func(s *v1.PodSpec) {
		for _, source := range sources {
			s.Volumes = append(s.Volumes, v1.Volume{VolumeSource: source})
		}
	}
}

func ebs(id string) v1.VolumeSource {
	return v1.VolumeSource{AWSElasticBlockStore: &v1.AWSElasticBlockStoreVolumeSource{VolumeID: id, ReadOnly: true}}
}

func gce(name string, readOnly bool) v1.VolumeSource {
	return v1.VolumeSource{GCEPersistentDisk: &v1.GCEPersistentDiskVolumeSource{PDName: name, ReadOnly: readOnly}}
}

func rbd(readOnly bool, monitors ...string) v1.VolumeSource {
	return v1.VolumeSource{RBD: &v1.RBDVolumeSource{CephMonitors: monitors, RBDPool: "p", RBDImage: "i", ReadOnly: readOnly}}
}

func iscsi(iqn string, readOnly bool) v1.VolumeSource {
	return v1.VolumeSource{ISCSI: &v1.ISCSIVolumeSource{IQN: iqn, ReadOnly: readOnly}}
}

func tolerate(t ...v1.Toleration) func(*v1.PodSpec) {
	return func(s *v1.PodSpec) { s.Tolerations = t }
}

func affinity(terms ...v1.NodeSelectorTerm) func(*v1.PodSpec) {
	return func(s *v1.PodSpec) {
		s.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{NodeSelectorTerms: terms}}}
	}
}

func expression(key string, op v1.NodeSelectorOperator, values ...string) v1.NodeSelectorTerm {
	return v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{{Key: key, Operator: op, Values: values}}}
}

func nodeName(op v1.NodeSelectorOperator, values ...string) v1.NodeSelectorTerm {
	return v1.NodeSelectorTerm{MatchFields: []v1.NodeSelectorRequirement{{Key: "metadata.name", Operator: op, Values: values}}}
}

// classPool has a class of every sort that decides something differently.
func classPool() []*api.Class {
	small := map[string]string{"cpu": "1", "memory": "1Gi"}
	return []*api.Class{
		pod(nil, nil),
		pod(small, nil),
		pod(map[string]string{"cpu": "3"}, nil),
		pod(map[string]string{"cpu": "2500m", "memory": "5Gi", "ephemeral-storage": "1Gi"}, nil),
		pod(map[string]string{"cpu": "1", "example.com/gpu": "1"}, nil),
		pod(map[string]string{"cpu": "4", "example.com/gpu": "3"}, nil),
		pod(map[string]string{"example.com/nic": "1"}, nil),
		pod(map[string]string{"example.com/r0": "1"}, nil),
		pod(map[string]string{"example.com/r0": "2", "example.com/r1": "1", "cpu": "1"}, nil),
		pod(map[string]string{"example.com/nobody-has-it": "1"}, nil),
		pod(map[string]string{"memory": "1Ei"}, nil),
		pod(small, hostPort(80, "", "")),
		pod(small, hostPort(80, "10.0.0.1", v1.ProtocolTCP)),
		pod(small, hostPort(80, "10.0.0.2", v1.ProtocolTCP)),
		pod(small, hostPort(80, "0.0.0.0", v1.ProtocolUDP)),
		pod(small, disks(ebs("v"))),
		pod(small, disks(gce("v", true))),
		pod(small, disks(gce("v", false), gce("v", true), ebs("w"))),
		pod(small, disks(rbd(true, "m1", "m2"), iscsi("q", true))),
		pod(small, disks(rbd(false, "m2", "m3", "m3"))),
		pod(small, disks(iscsi("q", false))),
		pod(small, func(s *v1.PodSpec) { s.NodeSelector = map[string]string{"zone": "a"} }),
		pod(small, tolerate(v1.Toleration{Key: "dedicated", Operator: v1.TolerationOpEqual, Value: "x"})),
		pod(small, tolerate(v1.Toleration{Operator: v1.TolerationOpExists})),
		pod(small, tolerate(v1.Toleration{Key: "node.kubernetes.io/unschedulable", Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoSchedule})),
		pod(small, tolerate(v1.Toleration{Key: "size", Operator: v1.TolerationOpLt, Value: "9"})),
		pod(small, affinity(expression("zone", v1.NodeSelectorOpIn, "a", "b"))),
		pod(small, affinity(expression("zone", v1.NodeSelectorOpNotIn, "a"))),
		pod(small, affinity(expression("zone", v1.NodeSelectorOpDoesNotExist))),
		pod(small, affinity(expression("size", v1.NodeSelectorOpGt, "3"), expression("zone", v1.NodeSelectorOpExists))),
		pod(small, affinity(nodeName(v1.NodeSelectorOpIn, "n1"))),
		pod(small, affinity(nodeName(v1.NodeSelectorOpNotIn, "n1"))),
		pod(small, affinity(nodeName(v1.NodeSelectorOpIn, "n1", "n2"), nodeName(v1.NodeSelectorOpIn, "n3"))), // the first cannot be parsed
		pod(small, affinity(expression("zone", "Near", "a"))),
		pod(small, affinity(v1.NodeSelectorTerm{})),
		pod(small, affinity()),
		api.NewClass(api.Resources{{Resource: "cpu", Value: 1}}, []byte("not a pod spec")),
		pod(small, func(s *v1.PodSpec) { s.NodeSelector = map[string]string{api.LabelHostname: "n1"} }),
		pod(small, func(s *v1.PodSpec) {
			s.NodeSelector = map[string]string{api.LabelHostname: "n1", "zone": "a"}
			s.Containers[0].Ports = []v1.ContainerPort{{HostPort: 80}}
		}),
		pod(map[string]string{"cpu": "2"}, affinity(expression(api.LabelHostname, v1.NodeSelectorOpIn, "n1", "n2"), nodeName(v1.NodeSelectorOpIn, "n3"))),
		pod(small, affinity(expression(api.LabelHostname, v1.NodeSelectorOpIn, "n1"), expression("zone", v1.NodeSelectorOpIn, "a"))),
		grouped(pod(small, nil), []uint32{1}, nil),
		grouped(pod(small, nil), nil, []uint32{1}),
		grouped(pod(small, nil), []uint32{1, 2}, []uint32{1, 2}),
		grouped(pod(map[string]string{"cpu": "3"}, nil), []uint32{2}, []uint32{3}),
		grouped(pod(small, hostPort(80, "", "")), []uint32{3}, []uint32{2}),
		pod(small, prefer(1, expression("zone", v1.NodeSelectorOpIn, "a"))),
		pod(map[string]string{"cpu": "3"}, prefer(1, expression("zone", v1.NodeSelectorOpIn, "a"))),
		pod(small, prefer(100, expression("zone", v1.NodeSelectorOpIn, "a"), expression("zone", v1.NodeSelectorOpIn, "b"), nodeName(v1.NodeSelectorOpIn, "n1"),
			expression("size", v1.NodeSelectorOpExists), nodeName(v1.NodeSelectorOpIn, "n2", "n3"))), // the last cannot be parsed
		pod(small, func(s *v1.PodSpec) {
			s.NodeSelector = map[string]string{"zone": "a"}
			prefer(5, expression("size", v1.NodeSelectorOpGt, "3"), expression(api.LabelHostname, v1.NodeSelectorOpExists))(s)
		}),
		pod(small, func(s *v1.PodSpec) {
			s.Tolerations = []v1.Toleration{{Key: "slow", Operator: v1.TolerationOpExists}}
			s.Containers[0].Ports = []v1.ContainerPort{{HostPort: 80}}
			prefer(7, expression("zone", v1.NodeSelectorOpIn, "a", "b"), expression("size", v1.NodeSelectorOpIn, "5"))(s)
		}),
		pod(small, func(s *v1.PodSpec) {
			s.NodeSelector = map[string]string{api.LabelHostname: "n1"}
			prefer(7, expression("zone", v1.NodeSelectorOpIn, "a"))(s)
		}),
		pod(small, func(s *v1.PodSpec) {
			affinity(nodeName(v1.NodeSelectorOpIn, "n1"), nodeName(v1.NodeSelectorOpIn, "n2"), nodeName(v1.NodeSelectorOpIn, "n3"))(s)
			prefer(7, expression("zone", v1.NodeSelectorOpIn, "a"), expression("zone", v1.NodeSelectorOpIn, "b"))(s)
		}),
		grouped(pod(small, prefer(1, expression("zone", v1.NodeSelectorOpIn, "b"))), []uint32{1, 2}, []uint32{1}),
		pod(small, nil).Wishing([]byte("not a pod spec")),
		tiered(pod(small, nil), "cheap"),
		tiered(pod(map[string]string{"cpu": "3"}, prefer(1, expression("zone", v1.NodeSelectorOpIn, "a"))), "cheap"),
		tiered(pod(small, func(s *v1.PodSpec) {
			s.Tolerations = []v1.Toleration{{Key: "slow", Operator: v1.TolerationOpExists}}
			prefer(100, expression("zone", v1.NodeSelectorOpIn, "a"), expression("zone", v1.NodeSelectorOpIn, "b"),
				expression("size", v1.NodeSelectorOpExists))(s)
		}), "quiet"),
		tiered(pod(small, affinity(nodeName(v1.NodeSelectorOpIn, "n1"), nodeName(v1.NodeSelectorOpIn, "n2"),
			nodeName(v1.NodeSelectorOpIn, "n3"))), "quiet"),
		tiered(grouped(pod(small, nil), []uint32{1}, []uint32{2}), "unknown"),
		attaching(pod(small, nil), "ssd", 1, "hdd", 2),
		attaching(pod(small, hostPort(80, "", "")), "hdd", 1),
		grouped(attaching(pod(small, prefer(1, expression("zone", v1.NodeSelectorOpIn, "a"))), "ssd", 3), []uint32{1}, nil),
	}
}

// skipped returns how many scores the first tier of a class has beside the one that it ends with.
func skipped(c *Cache, class *api.Class) int {
	if w := c.wishes[wishKey(string(class.Constraints), class.Wishes)]; w != nil {
		return w.skip
	}
	return 0
}

// tiered is a class of pods that have a class of the configuration's nodeTiers.
func tiered(c *api.Class, class string) *api.Class {
	w, err := api.ReadWishes(c.Wishes)
	if err != nil {
		panic(err)
	}
	w.Class = class
	return c.Wishing(w.Encode())
}

// attaching is a class of pods with volumes.
func attaching(c *api.Class, drivers ...any) *api.Class {
	out := *c
	attach := map[string]int64{}
	for i := 0; i < len(drivers); i += 2 {
		attach[drivers[i].(string)] = int64(drivers[i+1].(int))
	}
	out.Attach = api.FromMap(attach)
	return api.MakeClass(out)
}

// grouped is a class of pods that belong to groups and avoid some.
func grouped(c *api.Class, in, avoids []uint32) *api.Class {
	return api.MakeClass(api.Class{Requests: c.Requests, Attach: c.Attach, Constraints: c.Constraints, Wishes: c.Wishes, In: in, Avoids: avoids})
}

// prefer has a pod prefer nodes that match terms, the first with a weight, each further one with one less.
func prefer(weight int32, terms ...v1.NodeSelectorTerm) func(*v1.PodSpec) {
	return func(s *v1.PodSpec) {
		s.SchedulerName = api.SchedulerName
		if s.Affinity == nil {
			s.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{}}
		}
		for _, t := range terms {
			s.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution = append(s.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution,
				v1.PreferredSchedulingTerm{Weight: weight, Preference: t})
			weight--
		}
	}
}

func drawNode(t *rapid.T) *api.Node {
	n := &api.Node{Name: fmt.Sprintf("n%d", rapid.IntRange(0, 7).Draw(t, "node")), Labels: map[string]string{}}
	a := map[string]int64{"pods": rapid.SampledFrom([]int64{10, 5, 2, 0}).Draw(t, "pods")}
	a["cpu"] = rapid.SampledFrom([]int64{8000, 4000, 2000, 0}).Draw(t, "cpu")
	a["memory"] = rapid.SampledFrom([]int64{32 << 30, 8 << 30, 1 << 30, 1<<60 - 1, 1 << 60}).Draw(t, "memory")
	for _, name := range []string{"ephemeral-storage", "example.com/gpu", "example.com/nic", "example.com/other"} {
		if rapid.Bool().Draw(t, name) {
			a[name] = rapid.SampledFrom([]int64{0, 1, 4, 1 << 31}).Draw(t, name)
		}
	}
	for i := range 4 { // resources that come and go
		if rapid.IntRange(0, 9).Draw(t, "rare") == 0 {
			a[fmt.Sprintf("example.com/r%d", i)] = int64(rapid.IntRange(0, 2).Draw(t, "rare"))
		}
	}
	n.Allocatable = api.FromMap(a)
	for _, driver := range []string{"hdd", "never asked for", "ssd"} {
		if limit := rapid.IntRange(0, 5).Draw(t, driver); limit < 5 {
			n.Attachable = append(n.Attachable, api.Attachable{Driver: driver, Limit: int64(limit), Used: int64(rapid.IntRange(0, 2).Draw(t, "used"))})
		}
	}
	if z := rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, "zone"); z != "" {
		n.Labels["zone"] = z
	}
	if rapid.IntRange(0, 7).Draw(t, "nameless") > 0 {
		n.Labels[api.LabelHostname] = n.Name
	}
	if z := rapid.SampledFrom([]string{"", "2", "5", "big"}).Draw(t, "size"); z != "" {
		n.Labels["size"] = z
	}
	for _, taint := range []v1.Taint{
		{Key: "dedicated", Value: "x", Effect: v1.TaintEffectNoSchedule},
		{Key: "dedicated", Value: "y", Effect: v1.TaintEffectNoExecute},
		{Key: "size", Value: "5", Effect: v1.TaintEffectNoSchedule},
		{Key: "slow", Effect: v1.TaintEffectPreferNoSchedule},
		{Key: "spot", Value: "x", Effect: v1.TaintEffectPreferNoSchedule},
	} {
		if rapid.IntRange(0, 7).Draw(t, "taint") == 0 {
			n.Taints = append(n.Taints, taint)
		}
	}
	for _, class := range []string{"cheap", "quiet"} {
		if tier := rapid.IntRange(0, api.LastTier+1).Draw(t, class); tier <= api.LastTier {
			n.Tiers = append(n.Tiers, api.Tier{Class: class, Tier: uint8(tier)})
		}
	}
	n.Unschedulable = rapid.IntRange(0, 9).Draw(t, "cordon") == 0
	return n
}

// TestAgainstReference drives two caches and the reference with the same facts. One cache is asked after each step, the
// other now and then, so that its classes come to their bits by other ways: both and the reference must agree.
func TestAgainstReference(t *testing.T) {
	pool := classPool()
	rapid.Check(t, func(t *rapid.T) {
		policy := rapid.SampledFrom([]Policy{Pack, Spread, LeastAllocated, MostAllocated}).Draw(t, "policy")
		limit := limits{
			planned: rapid.SampledFrom([]int{1, 5, 100}).Draw(t, "planned"), bits: rapid.SampledFrom([]int{1, 3, 100}).Draw(t, "bits"),
			idle: rapid.SampledFrom([]uint64{0, 10, 1000}).Draw(t, "idle"), leaf: rapid.SampledFrom([]int{2, 4, leafSize}).Draw(t, "leaf"),
			wishes: rapid.SampledFrom([]int{1, 3, 100}).Draw(t, "wishes"),
			dead:   rapid.SampledFrom([]int{0, 1, 32}).Draw(t, "dead"), exact: rapid.SampledFrom([]uint64{0, 100}).Draw(t, "exact"), counted: 1,
		}
		eager, lazy, ref := newCache(Config{Policy: policy}, limit), newCache(Config{Policy: policy}, defaultLimits), newReference(policy)
		class := func() *api.Class { return pool[rapid.IntRange(0, len(pool)-1).Draw(t, "class")] }
		rank := func() api.Rank {
			return api.Rank{Priority: int64(rapid.IntRange(0, 1).Draw(t, "priority")), Order: uint64(rapid.IntRange(0, 3).Draw(t, "order")), Gang: rapid.SampledFrom([]string{"g", "h"}).Draw(t, "gang")}
		}
		charge := func(p Placement) {
			eager.Charge(p.UID, p.Node, p.Class, p.Kind, p.Gang, p.Rank)
			lazy.Charge(p.UID, p.Node, p.Class, p.Kind, p.Gang, p.Rank)
			ref.pods[p.UID] = p
		}
		release := func(uid string) {
			_, want := ref.pods[uid]
			delete(ref.pods, uid)
			if a, b := eager.Release(uid), lazy.Release(uid); a != want || b != want {
				t.Fatalf("Release(%s) = %t, %t, want %t", uid, a, b, want)
			}
		}
		draw := func() Placement {
			return Placement{
				UID:  fmt.Sprintf("p%d", rapid.IntRange(0, 40).Draw(t, "pod")),
				Kind: rapid.SampledFrom([]Kind{Hold, Intent, Bound, Foreign, Nominated}).Draw(t, "kind"), Rank: rank(), Class: class(), Gang: "g",
			}
		}
		fitted := make([]bool, len(pool))
		var unsynced []string
		var room, sync uint64

		for range rapid.IntRange(0, 6).Draw(t, "nodes") { // chance alone takes long to make a cluster
			n := drawNode(t)
			eager.SetNode(n)
			lazy.SetNode(n)
			ref.nodes[n.Name] = n
		}
		t.Repeat(map[string]func(*rapid.T){
			"set node": func(t *rapid.T) {
				n := drawNode(t)
				eager.SetNode(n)
				lazy.SetNode(n)
				if ref.nodes[n.Name] = n; n.Labels[api.LabelHostname] == "" {
					delete(ref.doubtful, n.Name)
				}
			},
			"remove node": func(t *rapid.T) {
				name := fmt.Sprintf("n%d", rapid.IntRange(0, 7).Draw(t, "node"))
				eager.RemoveNode(name)
				lazy.RemoveNode(name)
				delete(ref.nodes, name)
				delete(ref.doubtful, name)
			},
			"doubt": func(t *rapid.T) {
				name, doubt := fmt.Sprintf("n%d", rapid.IntRange(0, 7).Draw(t, "node")), rapid.Bool().Draw(t, "doubt")
				eager.Doubt(name, doubt)
				lazy.Doubt(name, doubt)
				if n := ref.nodes[name]; n != nil && n.Labels[api.LabelHostname] != "" {
					ref.doubtful[name] = doubt
				}
			},
			"charge anywhere": func(t *rapid.T) {
				p := draw()
				p.Node = fmt.Sprintf("n%d", rapid.IntRange(0, 8).Draw(t, "node"))
				charge(p)
			},
			"flood": func(t *rapid.T) { // sums leave int64
				node, c := fmt.Sprintf("n%d", rapid.IntRange(0, 8).Draw(t, "node")), class()
				for i := range rapid.IntRange(1, 20).Draw(t, "pods") {
					charge(Placement{UID: fmt.Sprintf("p%d", i), Node: node, Class: c, Kind: Bound})
				}
			},
			"stay": func(t *rapid.T) {
				uid := fmt.Sprintf("p%d", rapid.IntRange(0, 40).Draw(t, "pod"))
				p, charged := ref.pods[uid]
				got, ok := eager.Lookup(uid)
				if ok != charged || got.Node != p.Node || got.Kind != p.Kind || got.Rank != p.Rank || got.Gang != p.Gang {
					t.Fatalf("Lookup(%s) = %+v %t, want %+v %t", uid, got, ok, p, charged)
				}
				if want := charged && ref.fits(p.Class, p.Node, uid); eager.CanStay(uid).Fits() != want {
					t.Fatalf("CanStay(%s) = %q, want %t", uid, eager.CanStay(uid), want)
				}
			},
			"place": func(t *rapid.T) {
				for range rapid.IntRange(1, 6).Draw(t, "pods") {
					p := draw()
					if _, charged := ref.pods[p.UID]; charged {
						continue
					}
					node, ok := eager.Place(p.Class)
					if !ok {
						continue
					}
					p.Node = node
					charge(p)
					if why := eager.CanStay(p.UID); !why.Fits() {
						t.Fatalf("pod %s was just placed on %s and cannot stay: %s", p.UID, node, why)
					}
				}
			},
			"take": func(t *rapid.T) {
				p := draw()
				if _, charged := ref.pods[p.UID]; charged {
					return
				}
				_, free := ref.best(nil, p.Class)
				worst, taking := ref.worstBestVictim(p.Class, p.Rank)
				node, victims, ok := eager.PlaceWithin(p.Class, p.Rank, nil)
				if ok != (free || taking) || free != (ok && len(victims) == 0) {
					t.Fatalf("PlaceWithin = %s %v %t, there is room: %t, with holds taken: %t", node, victims, ok, free, taking)
				}
				if !ok {
					return
				}
				if !ref.fits(p.Class, node, victims...) {
					t.Fatalf("PlaceWithin chose %s, which does not fit without %v", node, victims)
				}
				for i, uid := range victims {
					v := ref.pods[uid]
					if v.Node != node || v.Kind != Hold || !p.Rank.Before(v.Rank) {
						t.Fatalf("rank %v took %+v on %s", p.Rank, v, node)
					}
					if ref.fits(p.Class, node, slices.Delete(slices.Clone(victims), i, i+1)...) {
						t.Fatalf("victim %s is not needed", uid)
					}
					if v.Rank.Before(worst) {
						t.Fatalf("victim %s has rank %v, none better than %v is needed", uid, v.Rank, worst)
					}
				}
				for _, uid := range victims {
					release(uid)
				}
				p.Node = node
				charge(p)
			},
			"release": func(t *rapid.T) {
				for range rapid.IntRange(1, 8).Draw(t, "pods") {
					release(fmt.Sprintf("p%d", rapid.IntRange(0, 40).Draw(t, "pod")))
				}
			},
			"": func(t *rapid.T) {
				// In this order: asking makes plans, which are to be checked too.
				var fits []bool
				for i, c := range pool {
					tiers := ref.tiers(c, skipped(eager, c)) // as they are before: to place a pod may move them
					node, ok := eager.Place(c)
					want, wantOK := ref.best(tiers, c)
					if ok != wantOK {
						t.Fatalf("class %d: Place = %s %t, want %t", i, node, ok, wantOK)
					}
					if ok && (!ref.fits(c, node) || ref.rank(tiers, node) != want) {
						t.Fatalf("class %d: Place = %s, tier and score %v, best is %v", i, node, ref.rank(tiers, node), want)
					}
					if ok && ref.configured(c, ref.nodes[node]) != ref.bestConfigured(c) {
						t.Fatalf("class %d: Place = %s, and there is room in a better tier of the configuration", i, node)
					}
					fits = append(fits, ok)
					if !fitted[i] && ok && eager.RoomVersion() == room {
						t.Fatalf("class %d fits now, and no room came into being", i)
					}
				}
				c := class()
				if rapid.IntRange(0, 9).Draw(t, "ask lazy") == 0 {
					same := skipped(eager, c) == skipped(lazy, c)
					a, _ := eager.Place(c)
					if b, _ := lazy.Place(c); a != b && same {
						t.Fatalf("asked often it is %s, asked rarely %s", a, b)
					}
				}
				why := eager.Why(c)
				fit, more := 0, int64(0)
				for _, name := range ref.names() {
					want := ref.fits(c, name)
					if want {
						more += ref.times(c, name)
					}
					for _, cache := range []*Cache{eager, lazy} {
						if m := cache.CanPlace(c, name); m.Fits() != want {
							t.Fatalf("CanPlace on %s: %q, want %t", name, m, want)
						}
					}
					if want {
						fit++
					}
				}
				for _, most := range []int64{math.MaxInt64, 3} {
					if a, b := eager.Room(c, most), lazy.Room(c, most); a != min(more, most) || b != a {
						t.Fatalf("Room up to %d = %d, %d, want %d", most, a, b, more)
					}
				}
				if limit.exact == 0 { // counts may be old, what matters may not
					why.Nodes, why.Fit, fit = len(ref.nodes), min(why.Fit, 1), min(fit, 1)
				}
				if why.Nodes != len(ref.nodes) || why.Fit != fit || why.Never != ref.never(c) {
					t.Fatalf("Why = %+v, want %d/%d, never %t", why, fit, len(ref.nodes), ref.never(c))
				}
				var out []string
				for _, name := range ref.names() {
					if ref.outOfSync(name) {
						out = append(out, name)
					}
					view, ok := eager.Node(name)
					if !ok || !slices.EqualFunc(view.Pods, ref.on(name), func(a, b Placement) bool { return a.UID == b.UID && a.Kind == b.Kind && a.Rank == b.Rank }) {
						t.Fatalf("node %s: %+v, want %v", name, view, ref.on(name))
					}
					for r, v := range ref.free(name) {
						if view.Free.Value(r) != v.Int64() {
							t.Fatalf("node %s: %d %s free, want %s", name, view.Free.Value(r), r, v)
						}
					}
				}
				totals := eager.Totals()
				if got := eager.OutOfSync(); !slices.Equal(got, out) || totals.OutOfSync != len(out) {
					t.Fatalf("OutOfSync = %v, want %v", got, out)
				}
				if !slices.Equal(out, unsynced) && totals.SyncVersion == sync {
					t.Fatalf("out of sync were %v, are %v, and the version stayed", unsynced, out)
				}
				fitted, unsynced, room, sync = fits, out, totals.RoomVersion, totals.SyncVersion
				for _, cache := range []*Cache{eager, lazy} {
					if err := cache.Check(); err != nil {
						t.Fatal(err)
					}
				}
			},
		})
	})
}
