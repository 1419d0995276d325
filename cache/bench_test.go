package cache

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"

	"basalt.dev/basalt/api"
)

// cluster is half full, with a device on each third node.
func cluster(nodes int) *Cache {
	c := New(Config{})
	for i := range nodes {
		gpus := int64(0)
		if i%3 == 0 {
			gpus = 8
		}
		c.SetNode(machine(fmt.Sprintf("node-%05d", i), 96000, 768<<30, gpus, func(n *api.Node) {
			n.Labels = map[string]string{"zone": string('a' + rune(i%4)), "kubernetes.io/hostname": n.Name}
		}))
	}
	for i := range nodes * 4 {
		c.Charge(fmt.Sprintf("old-%d", i), fmt.Sprintf("node-%05d", i*7919%nodes), pod(map[string]string{"cpu": "12", "memory": "90Gi"}, nil), Bound, "", api.Rank{})
	}
	return c
}

func mixed(n int) []*api.Class {
	var out []*api.Class
	for i := range n {
		requests := map[string]string{"cpu": fmt.Sprintf("%dm", 500+i*250), "memory": fmt.Sprintf("%dGi", 1+i)}
		if i%3 == 0 {
			requests["example.com/gpu"] = "1"
		}
		var change func(*v1.PodSpec)
		if i%4 == 1 {
			change = func(s *v1.PodSpec) { s.NodeSelector = map[string]string{"zone": string('a' + rune(i%4))} }
		}
		out = append(out, pod(requests, change))
	}
	return out
}

// BenchmarkDecision is one pod placed, charged, and, a hundred pods later, released. run is how many pods of one class come
// in a row.
func BenchmarkDecision(b *testing.B) {
	for _, nodes := range []int{1523, 20000} {
		for _, shape := range []struct{ classes, run int }{{1, 1}, {20, 20}, {20, 1}, {100, 1}} {
			b.Run(fmt.Sprintf("nodes=%d/classes=%d/run=%d", nodes, shape.classes, shape.run), func(b *testing.B) {
				c := cluster(nodes)
				classes := mixed(shape.classes)
				uids := make([]string, 100)
				for i := range uids {
					uids[i] = fmt.Sprint("new-", i)
				}
				for _, class := range classes {
					c.Place(class)
				}
				b.ReportAllocs()
				b.ResetTimer()
				for i := range b.N {
					class := classes[i/shape.run%len(classes)]
					if !decide(c, class, class, uids[i%len(uids)]) {
						b.Fatal("no room")
					}
				}
			})
		}
	}
}

// BenchmarkGroups is a decision of which one in a hundred is for a pod that keeps away from the others of its group on its node, in turns of 100
// groups, beside the same decisions without groups.
func BenchmarkGroups(b *testing.B) {
	for _, nodes := range []int{1523, 20000} {
		for _, groups := range []uint32{0, 100} {
			b.Run(fmt.Sprintf("nodes=%d/groups=%d", nodes, groups), func(b *testing.B) {
				c := cluster(nodes)
				plain := mixed(20)
				members := make([]*api.Class, 100)
				for i := range members {
					members[i] = plain[i%len(plain)]
					if groups > 0 {
						group := []uint32{uint32(i) + 1}
						members[i] = api.MakeClass(api.Class{Requests: plain[0].Requests, In: group, Avoids: group})
					}
				}
				uids := make([]string, 1000)
				for i := range uids {
					uids[i] = fmt.Sprint("new-", i)
				}
				b.ResetTimer()
				for i := range b.N {
					class := plain[i/20%len(plain)]
					if i%100 == 0 {
						class = members[i/100%len(members)]
					}
					if !decide(c, class, class, uids[i%len(uids)]) {
						b.Fatal("no room")
					}
				}
			})
		}
	}
}

// BenchmarkFirstPlan is a class seen for the first time: verdicts of all nodes and a tree.
func BenchmarkFirstPlan(b *testing.B) {
	for _, nodes := range []int{1523, 20000} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			c := cluster(nodes)
			classes := mixed(defaultLimits.planned * 2)
			b.ResetTimer()
			for i := range b.N {
				c.Place(classes[i%len(classes)])
			}
		})
	}
}

// BenchmarkNeverFits is a pod that no node would take even if it were empty and that may take holds, beside a load that comes
// and goes.
func BenchmarkNeverFits(b *testing.B) {
	const nodes = 100000
	c := cluster(nodes)
	small, large := pod(map[string]string{"cpu": "1"}, nil), pod(map[string]string{"cpu": "97"}, nil)
	load := func(i int) {
		uid := fmt.Sprint("new-", i%1000)
		c.Release(uid)
		node, _ := c.Place(small)
		c.Charge(uid, node, small, Hold, "gang", api.Rank{Order: 2})
	}
	for i := range 1000 {
		load(i)
	}
	b.ResetTimer()
	for i := range b.N {
		load(i)
		if _, _, ok := c.PlaceWithin(large, api.Rank{Order: 1}, nil); ok || !c.Why(large).Never {
			b.Fatal("fits")
		}
	}
}

func BenchmarkWhy(b *testing.B) {
	for _, nodes := range []int{1523, 20000} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			c := cluster(nodes)
			class := pod(map[string]string{"cpu": "97"}, nil)
			b.ResetTimer()
			for range b.N {
				if c.Why(class).Fit > 0 {
					b.Fatal("fits")
				}
			}
		})
	}
}

// BenchmarkCompare is what constraints of 30 KiB cost for each of their bytes and each node that they are compared with.
func BenchmarkCompare(b *testing.B) {
	node := machine("node-1", 96000, 768<<30, 0, func(n *api.Node) {
		n.Labels = map[string]string{"kubernetes.io/hostname": n.Name}
		for i := range 20 {
			n.Labels[fmt.Sprintf("label-%d", i)] = "value"
		}
		n.Taints = []v1.Taint{{Key: "dedicated", Value: "x", Effect: v1.TaintEffectNoSchedule}}
	})
	terms := func(n int, op v1.NodeSelectorOperator, values int, long int) *v1.PodSpec {
		s := &v1.NodeSelector{}
		for i := range n {
			r := v1.NodeSelectorRequirement{Key: "label-1", Operator: op}
			for k := range values {
				r.Values = append(r.Values, fmt.Sprintf("%0*d", long, i*values+k))
			}
			s.NodeSelectorTerms = append(s.NodeSelectorTerms, v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{r}})
		}
		return &v1.PodSpec{Affinity: &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: s}},
			Tolerations: []v1.Toleration{{Operator: v1.TolerationOpExists}}}
	}
	tolerations := &v1.PodSpec{}
	for i := range 1000 {
		tolerations.Tolerations = append(tolerations.Tolerations, v1.Toleration{Key: "dedicated", Operator: v1.TolerationOpEqual, Value: fmt.Sprintf("%013d", i)})
	}
	for name, spec := range map[string]*v1.PodSpec{"terms": terms(300, v1.NodeSelectorOpIn, 1, 60), "short terms": terms(512, v1.NodeSelectorOpIn, 1, 6),
		"values": terms(1, v1.NodeSelectorOpIn, 500, 50), "does not exist": terms(1000, v1.NodeSelectorOpDoesNotExist, 0, 0), "tolerations": tolerations} {
		b.Run(name, func(b *testing.B) {
			constraints, _ := spec.Marshal()
			st := newSet(constraints)
			st.judge(node)
			b.ResetTimer()
			for range b.N {
				st.judge(node)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(constraints)), "ns/byte")
			b.ReportMetric(float64(len(constraints)), "bytes")
		})
	}
}

// BenchmarkPinned is one pod that names its node, of a class of its own, placed, charged, and released.
func BenchmarkPinned(b *testing.B) {
	for _, nodes := range []int{1523, 100000} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			c := cluster(nodes)
			classes := make([]*api.Class, 10000)
			for i := range classes {
				node := fmt.Sprintf("node-%05d", i*7919%nodes)
				classes[i] = pod(map[string]string{"cpu": "1"}, func(s *v1.PodSpec) { s.NodeSelector = map[string]string{api.LabelHostname: node} })
			}
			for i := 0; b.Loop(); i++ {
				class := classes[i%len(classes)]
				node, ok := c.Place(class)
				if !ok {
					b.Fatal("no room")
				}
				c.Charge("new", node, class, Bound, "", api.Rank{})
				c.Release("new")
			}
		})
	}
}
