package server

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/shard/cores"
	"basalt.dev/basalt/shard/event"
	"basalt.dev/basalt/shard/home"
	"basalt.dev/basalt/shard/node"
	"basalt.dev/basalt/shard/volumes"
)

// TestPodsAreListedFromTheWatch: whenever the cores are told all pods, by a list or because the watch has come as far,
// it is what the watch had shown until then, whoever the pods belong to and whatever of them changed. Without a list
// they are told those on nodes that the shard gains, here all of them, and may ask for others. Before they ask they
// hear nothing.
func TestPodsAreListedFromTheWatch(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 0))
		l := &loop{cores: cores.New("s", home.Config{}, node.Config{})}
		l.cores.Node.Step(time.Unix(1, 0), event.TableSeen{Table: &api.Table{Epoch: 1, Revision: 1,
			Members: []api.Member{{Incarnation: "s", Name: "s"}}}})
		there := map[types.UID]*corev1.Pod{} // as the watch shows them
		type told struct {
			ev   event.Event
			want map[types.UID]*corev1.Pod
		}
		var queue []told // told, and not given to the cores yet
		asked := false
		c := volumes.New(volumes.Config{Keeps: home.Keeps})
		step := func(ev event.Event) {
			c.Step(time.Unix(1, 0), ev)
			for _, o := range c.Outputs() {
				queue = append(queue, told{o.(event.Tell).Event, maps.Clone(there)})
			}
		}
		pack, read := packing(api.Rules{}).Packer(), packing(api.Rules{}).Reader()
		changed := func(pod *corev1.Pod, gone bool) event.Event { // by a relay of this release, and by another one
			if rng.IntN(2) == 0 {
				return event.Changed[*corev1.Pod]{Object: pod, Gone: gone}
			}
			packed, err := read(pack(pod).Bytes)
			if err != nil {
				t.Fatal(err)
			}
			return event.Changed[*api.Pod]{Object: packed.Of.(*api.Pod), Gone: gone}
		}
		drain := func() {
			for _, q := range queue {
				if !asked {
					t.Fatalf("seed %d: %T before anybody asked", seed, q.ev)
				}
				ev := q.ev
				if listed, ok := ev.(event.PodsListed); ok {
					got := l.listed(listed)
					if got.Seen {
						var elsewhere []string
						for uid, pod := range q.want {
							if pod.Spec.NodeName == "" {
								elsewhere = append(elsewhere, string(uid))
							}
						}
						got.Pods = l.cores.Home.Pods(got.Pods, nil, slices.Values(elsewhere))
					}
					if len(got.Pods) != len(q.want) {
						t.Fatalf("seed %d: %d pods are listed, the watch had shown %d", seed, len(got.Pods), len(q.want))
					}
					for _, pod := range got.Pods {
						if want := q.want[types.UID(pod.UID)]; want == nil || want.ResourceVersion != pod.ResourceVersion {
							t.Fatalf("seed %d: pod %s is listed as %+v, the watch had shown %+v", seed, pod.UID, pod, want)
						}
					}
					ev = got
				}
				l.cores.Home.Step(time.Unix(1, 0), ev)
				l.cores.Home.Outputs()
			}
			queue = queue[:0]
		}
		for version := range 300 {
			uid := fmt.Sprint("u", rng.IntN(20))
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", UID: types.UID(uid),
				ResourceVersion: fmt.Sprint(1000 + version), Labels: map[string]string{}}}
			if rng.IntN(2) == 0 {
				pod.Spec.SchedulerName = api.SchedulerName
			}
			if rng.IntN(3) == 0 {
				pod.Labels[api.LabelQueue] = "q"
			}
			if rng.IntN(3) == 0 {
				pod.Spec.NodeName = "n"
			}
			switch n := rng.IntN(20); {
			case n < 12:
				there[pod.UID] = pod
				step(changed(pod, false))
			case n < 16:
				if there[pod.UID] != nil {
					delete(there, pod.UID)
					step(changed(pod, true))
				}
			case n == 16:
				if rng.IntN(2) == 0 {
					delete(there, pod.UID)
				} else {
					there[pod.UID] = pod
				}
				var list []*corev1.Pod
				for _, pod := range there {
					list = append(list, pod)
				}
				ticket := uint64(rng.IntN(2))
				asked = asked || ticket > 0
				step(event.Listed[*corev1.Pod]{Objects: list, Ticket: ticket})
			case n == 17 && version > 30:
				asked = true
				step(event.CaughtUp[*corev1.Pod]{Ticket: 1})
			default:
				drain()
			}
		}
		drain()
	}
}
