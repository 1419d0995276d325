package topology

import (
	"fmt"
	"runtime"
	"strconv"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/shard/event"
)

// BenchmarkPods is what a pod costs a View from its creation to its end: with no constraint in the cluster, with some
// in other namespaces, and with a spread over three zones, or over all hosts, that counts it and judges its row.
func BenchmarkPods(b *testing.B) {
	for _, kind := range []string{"plain", "others constrained", "spread", "spread over hosts"} {
		b.Run(kind, func(b *testing.B) {
			now, v := time.Unix(1000, 0), New()
			v.Step(now, event.LogRead{Revision: 1})
			seeNodes(v, now, 5000)
			template := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Labels: map[string]string{"app": "web"}}, Spec: v1.PodSpec{SchedulerName: api.SchedulerName}}
			spread := template.DeepCopy()
			spread.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{{MaxSkew: 1000000, TopologyKey: "zone", WhenUnsatisfiable: v1.DoNotSchedule, LabelSelector: &metav1.LabelSelector{MatchLabels: template.Labels}}}
			switch kind {
			case "others constrained":
				other := api.FromPod(spread, nil, api.Rules{})
				for i := range 100 {
					v.RulesOf(fmt.Sprintf("other%d", i), other.Class.With(other.Labels))
				}
			case "spread":
				template = spread
			case "spread over hosts":
				template = spread
				template.Spec.TopologySpreadConstraints[0].TopologyKey = "host"
			}
			made := make([]*api.Pod, b.N)
			done := make([]*api.Pod, b.N)
			var classes api.Classes
			for i := range made {
				p := template.DeepCopy()
				p.Name, p.UID, p.ResourceVersion = strconv.Itoa(i), types.UID(strconv.Itoa(i)), strconv.Itoa(2*i+1)
				made[i] = classes.FromPod(p, nil, api.Rules{})
				p.Spec.NodeName, p.ResourceVersion = fmt.Sprintf("n%d", i%5000), strconv.Itoa(2*i+2)
				done[i] = classes.FromPod(p, nil, api.Rules{})
			}
			b.ResetTimer()
			for i, p := range made {
				v.Step(now, event.PodSeen{Pod: p})
				v.Step(now, event.LogSeen{Revision: int64(i) + 2, Intents: []event.LoggedIntents{{Incarnation: "s", N: uint64(i), Place: int64(i) + 2, Record: &wire.IntentsRecord{
					Rows: []*wire.IntentRow{{PodUid: p.UID, PodResourceVersion: p.ResourceVersion, Namespace: "a", Name: p.Name, Node: done[i].Node}}}}}})
				if r := v.Judge(int64(i)+2, []Member{{UID: p.UID, Namespace: "a", Version: p.ResourceVersion, Node: done[i].Node, Class: p.Class}}); r.Wait || len(r.Against) > 0 {
					b.Fatal(r)
				}
				v.Step(now, event.PodSeen{Pod: done[i]})
				v.Step(now, event.LogSeen{Revision: int64(i) + 2, Intents: []event.LoggedIntents{{Incarnation: "s", N: uint64(i)}}})
				if i >= 1000 {
					v.Step(now, event.PodGone{UID: made[i-1000].UID, Namespace: "a", Name: made[i-1000].Name})
				}
			}
		})
	}
}

// BenchmarkMemory is what a View keeps for each of 1,000,000 bound pods of 1,000 apps in 100 namespaces, beside the
// pods themselves, which all parts of a process share: with no constraint in the cluster, and with one of each app's
// about zones or hosts.
func BenchmarkMemory(b *testing.B) {
	const pods, apps, nodes = 1_000_000, 1000, 10_000
	for _, topology := range []string{"", "zone", "host"} {
		b.Run("topology="+topology, func(b *testing.B) {
			for range b.N {
				var classes api.Classes
				of := func(i int, node string) *api.Pod {
					p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprintf("team-%d", i%100), Name: strconv.Itoa(i), UID: types.UID(strconv.Itoa(i)), ResourceVersion: strconv.Itoa(i + 1),
						Labels: map[string]string{"app": strconv.Itoa(i % apps)}}, Spec: v1.PodSpec{SchedulerName: api.SchedulerName, NodeName: node}}
					if topology != "" {
						p.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: topology, WhenUnsatisfiable: v1.DoNotSchedule, LabelSelector: &metav1.LabelSelector{MatchLabels: p.Labels}}}
					}
					return classes.FromPod(p, nil, api.Rules{})
				}
				made := make([]*api.Pod, pods)
				for i := range made {
					made[i] = of(i, fmt.Sprintf("n%d", i%nodes))
				}
				before := heap()
				v := New()
				seeNodes(v, time.Unix(1000, 0), nodes)
				for _, p := range made {
					v.Step(time.Unix(1000, 0), event.PodSeen{Pod: p})
				}
				if topology != "" {
					for i := range apps {
						v.Step(time.Unix(int64(2000+60*i), 0), event.Tick{}) // what counting costs is paid in time
						p := of(i, "")
						if r, ok := v.RulesOf(p.Namespace, p.Class.With(p.Labels)); !ok || r == nil {
							b.Fatal("the app is not counted")
						}
					}
				}
				b.ReportMetric(float64(heap()-before)/pods, "B/pod")
				runtime.KeepAlive(v)
				runtime.KeepAlive(made)
			}
		})
	}
}

// seeNodes shows a View nodes in three zones, each a host of its own.
func seeNodes(v *View, now time.Time, nodes int) {
	for i := range nodes {
		v.Step(now, event.NodeSeen{Node: api.FromNode(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%d", i), Labels: map[string]string{"zone": strconv.Itoa(i % 3), "host": strconv.Itoa(i)}}}, nil)})
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
