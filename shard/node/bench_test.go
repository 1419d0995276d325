package node

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/shard/event"
)

// BenchmarkPodLife is what one pod of its own costs the core from hold to deleted intent, on 5,000 nodes, with 256 pods
// on their way at a time and everything answered at once; also where one pod in a hundred is of one of 100 groups of
// its namespace: each is spread over three zones, or keeps away from another app; and where a stranger is bound that
// repels every pod by a label that no node has.
func BenchmarkPodLife(b *testing.B) {
	for _, groups := range []int{0, 100} {
		b.Run(fmt.Sprintf("groups=%d", groups), func(b *testing.B) { podLife(b, groups, nil) })
	}
	b.Run("stranger", func(b *testing.B) { podLife(b, 0, stranger("no-such-label")) })
}

// stranger is a pod of another namespace, bound to n0, that repels every pod by a label of nodes.
func stranger(label string) *api.Pod {
	p := &v1.Pod{Spec: v1.PodSpec{SchedulerName: api.SchedulerName, NodeName: "n0"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "stranger", UID: "stranger", ResourceVersion: "1"}}
	p.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{
			{TopologyKey: label, LabelSelector: &metav1.LabelSelector{}, NamespaceSelector: &metav1.LabelSelector{}}}}}
	return api.FromPod(p, nil, api.Rules{})
}

func podLife(b *testing.B, groups int, other *api.Pod) {
	c := logged(New(Config{Self: "a"}))
	t := &api.Table{Epoch: 1, Revision: 1, Members: []api.Member{{Incarnation: "a"}}}
	now := epoch0
	c.Step(now, event.TableSeen{Table: t})
	for i := range 5000 {
		c.Step(now, event.NodeSeen{Node: &api.Node{Name: fmt.Sprint("n", i), Labels: map[string]string{"zone": fmt.Sprint(i % 3)}, Allocatable: api.FromMap(map[string]int64{"cpu": 64000, "pods": 110})}})
	}
	c.Step(now, event.StoreRead{Sequence: 1, Revision: 1})
	c.Step(now, event.PodsReplaced{Sequence: 1})
	if other != nil {
		c.Step(now, event.PodSeen{Pod: other})
	}
	c.Outputs()
	plain := grouped(groups, 0)
	members := make([]*api.Pod, groups)
	for i := range members {
		members[i] = grouped(groups, i+1)
	}
	like := map[string]*api.Pod{} // of the pods that are members
	of := func(uid string) *api.Pod {
		if p := like[uid]; p != nil {
			return p
		}
		return plain
	}
	seen := func(uid, node string) event.Event {
		p := *of(uid)
		p.UID, p.Name, p.Node = uid, uid, node
		return event.PodSeen{Pod: &p}
	}
	say := func(body *wire.Envelope) { c.Step(now, event.Message{From: "a", Body: body}) }
	var ends []string
	next, underWay := 0, 0
	b.ResetTimer()
	for done := 0; done < b.N; {
		for ; underWay < 256; underWay++ {
			next++
			gang := &wire.GangRef{Uid: fmt.Sprint("p", next), Namespace: "ns", Queue: "q"}
			if groups > 0 && next%100 == 0 {
				like[gang.Uid] = members[next/100%groups]
			}
			c.Step(now, seen(gang.Uid, ""))
			say(&wire.Envelope{Body: &wire.Envelope_HoldRequest{HoldRequest: &wire.HoldRequest{Gang: gang, Serial: 1, Classes: wireClass(of(gang.Uid).Class), Pods: []*wire.PodWant{{PodUid: gang.Uid}}}}})
		}
		now = now.Add(20 * time.Millisecond)
		c.Step(now, event.Tick{})
		for out := c.Outputs(); len(out) > 0; out = c.Outputs() {
			for _, o := range out {
				switch o := o.(type) {
				case event.Send:
					if r := o.Body.GetHoldReply(); r != nil && len(r.Held) == 1 {
						uid := r.Held[0].PodUid
						say(&wire.Envelope{Body: &wire.Envelope_Commit{Commit: &wire.Commit{Gang: &wire.GangRef{Uid: uid, Namespace: "ns", Queue: "q"}, Serial: 2, TableRevision: 1, ReservationRevision: 1,
							Classes: wireClass(of(uid).Class), Bind: true, Pods: []*wire.PodRef{{Uid: uid, ResourceVersion: "1", Namespace: "ns", Name: uid, Node: r.Held[0].Node}}}}})
					}
				case event.WriteIntents:
					c.Step(now, event.IntentsWritten{N: o.N, Outcome: event.Written, ModRevision: 9})
				case event.BindPod:
					c.Step(now, event.BindDone{Row: o.Row, Outcome: event.BindOK})
					c.Step(now, seen(o.Row.PodUID, o.Node))
					ends = append(ends, o.Row.PodUID)
					underWay--
					done++
				case event.DeleteIntents:
					var keys []event.IntentKey
					for _, k := range o.Keys {
						keys = append(keys, event.IntentKey{N: k.N})
					}
					c.Step(now, event.IntentsDeleted{Keys: keys})
				}
			}
		}
		if len(ends) > 20000 {
			for _, uid := range ends[:10000] {
				c.Step(now, event.PodGone{UID: uid, Namespace: "ns", Name: uid})
				delete(like, uid)
			}
			ends = append(ends[:0:0], ends[10000:]...)
		}
	}
}

// grouped is a pod that asks for a core: of a group, or 0 of none. Where there are groups, home shards say labels.
func grouped(groups, group int) *api.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Labels: map[string]string{"app": fmt.Sprint("app", group)}, ResourceVersion: "1"}, Spec: v1.PodSpec{SchedulerName: api.SchedulerName,
		Containers: []v1.Container{{Resources: v1.ResourceRequirements{Requests: v1.ResourceList{"cpu": resource.MustParse("1")}}}}}}
	switch {
	case group == 0:
	case group%2 == 0:
		p.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: "zone", WhenUnsatisfiable: v1.DoNotSchedule, LabelSelector: &metav1.LabelSelector{MatchLabels: p.Labels}}}
	default:
		p.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{TopologyKey: "zone", LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": fmt.Sprint("enemy", group)}}}}}}
	}
	out := api.FromPod(p, nil, api.Rules{})
	if groups > 0 {
		out.Class = out.Class.With(out.Labels)
	}
	return out
}
