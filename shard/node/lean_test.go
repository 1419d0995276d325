package node

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/shard/event"
)

// BenchmarkLeanings is one HoldRequest of one pod that is withdrawn again, with 300 pods of its sort there: without leanings, and with some.
// In "full zone" the zone that is best has no room, so that the search looks at as many nodes as it may.
func BenchmarkLeanings(b *testing.B) {
	app := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}
	spread := func(key string) v1.TopologySpreadConstraint {
		return v1.TopologySpreadConstraint{MaxSkew: 1, TopologyKey: key, WhenUnsatisfiable: v1.ScheduleAnyway, LabelSelector: app}
	}
	apart := func(p *v1.Pod) {
		p.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []v1.WeightedPodAffinityTerm{{
			Weight: 100, PodAffinityTerm: v1.PodAffinityTerm{TopologyKey: api.LabelHostname, LabelSelector: app}}}}}
	}
	zone := func(p *v1.Pod) { p.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{spread("zone")} }
	for _, nodes := range []int{5000, 100000} {
		for _, row := range []struct {
			name string
			lean func(p *v1.Pod)
			full bool
		}{
			{"plain", func(*v1.Pod) {}, false}, {"zone", zone, false}, {"full zone", zone, true}, {"apart by host", apart, false},
			{"zone and host", func(p *v1.Pod) {
				p.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{spread("zone"), spread(api.LabelHostname)}
			}, false},
			{"full zone, apart by host", func(p *v1.Pod) { zone(p); apart(p) }, true},
		} {
			b.Run(fmt.Sprintf("nodes=%d/%s", nodes, row.name), func(b *testing.B) {
				c := logged(New(Config{Self: "a"}))
				now := epoch0
				c.Step(now, event.TableSeen{Table: &api.Table{Epoch: 1, Revision: 1, Members: []api.Member{{Incarnation: "a"}}}})
				for i := range nodes {
					cpu := int64(64000)
					if row.full && i%3 == 0 {
						cpu = 100
					}
					name := fmt.Sprintf("n%06d", i)
					c.Step(now, event.NodeSeen{Node: &api.Node{Name: name, Labels: map[string]string{"zone": fmt.Sprint(i % 3), api.LabelHostname: name}, Allocatable: api.FromMap(map[string]int64{"cpu": cpu, "pods": 110})}})
				}
				c.Step(now, event.StoreRead{Sequence: 1, Revision: 1})
				p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "p", ResourceVersion: "1", Labels: app.MatchLabels}, Spec: v1.PodSpec{SchedulerName: api.SchedulerName}}
				row.lean(p)
				lean := api.FromPod(p, nil, api.Rules{})
				class := api.NewClass(api.FromMap(map[string]int64{"cpu": 1000, "pods": 1}), nil)
				pods := []*api.Pod{{UID: "p", Namespace: "ns", Name: "p", ResourceVersion: "1", Labels: lean.Labels, Class: class}}
				for i := range 300 {
					at := i
					if row.full {
						at = i + i/2 + 1
					}
					uid := fmt.Sprint("old", i)
					pods = append(pods, &api.Pod{UID: uid, Namespace: "ns", Name: uid, ResourceVersion: "1", Labels: lean.Labels, Node: fmt.Sprintf("n%06d", at), Class: class})
				}
				c.Step(now, event.PodsReplaced{Sequence: 1, Pods: pods})
				c.Outputs()
				asked := wireClass(class.Leaning(lean.Class.Leanings))
				gang := &wire.GangRef{Uid: "p", Namespace: "ns", Queue: "q"}
				b.ResetTimer()
				for i := range b.N {
					now = now.Add(10e6) // what a namespace may compare comes back
					c.now = now
					c.Step(now, event.Message{From: "a", Body: &wire.Envelope{Body: &wire.Envelope_HoldRequest{HoldRequest: &wire.HoldRequest{Gang: gang, Serial: uint64(2*i + 1), Classes: asked, Pods: []*wire.PodWant{{PodUid: "p"}}}}}})
					c.Step(now, event.Message{From: "a", Body: &wire.Envelope{Body: &wire.Envelope_Withdraw{Withdraw: &wire.Withdraw{Gang: gang, Serial: uint64(2*i + 2)}}}})
					if i%64 == 0 {
						c.Outputs()
					}
				}
			})
		}
	}
}
