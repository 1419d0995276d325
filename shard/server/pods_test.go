package server

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/shard/event"
	"basalt.dev/basalt/shard/home"
)

// TestPodsAreListedFromTheWatch: whenever the cores are told all pods, by a list or because the watch has come as far, it is what
// the watch had shown until then, whoever the pods belong to and whatever of them changed. Before they ask they hear nothing.
func TestPodsAreListedFromTheWatch(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 0))
		l := &loop{home: home.New(home.Config{Self: "s"})}
		there := map[string]*api.Pod{} // as the watch shows them
		type told struct {
			ev   event.Event
			want map[string]*api.Pod
		}
		var queue []told // emitted, and not given to the cores yet
		asked := false
		p := newPods(func(ev event.Event) { queue = append(queue, told{ev, maps.Clone(there)}) })
		drain := func() {
			for _, q := range queue {
				if !asked {
					t.Fatalf("seed %d: %T before anybody asked", seed, q.ev)
				}
				ev := q.ev
				if listed, ok := ev.(podsListed); ok {
					got := l.listed(listed)
					if len(got.Pods) != len(q.want) {
						t.Fatalf("seed %d: %d pods are listed, the watch had shown %d", seed, len(got.Pods), len(q.want))
					}
					for _, pod := range got.Pods {
						if q.want[pod.UID] != pod {
							t.Fatalf("seed %d: pod %s is listed as %+v, the watch had shown %+v", seed, pod.UID, pod, q.want[pod.UID])
						}
					}
					ev = got
				}
				l.home.Step(time.Unix(1, 0), ev)
				l.home.Outputs()
			}
			queue = queue[:0]
		}
		for version := range 300 {
			pod := &api.Pod{UID: fmt.Sprint("u", rng.IntN(20)), ResourceVersion: fmt.Sprint(1000 + version), Namespace: "ns", Ours: rng.IntN(2) == 0, Class: api.NewClass(nil, nil)}
			if rng.IntN(3) == 0 {
				pod.Queue = "q"
			}
			if rng.IntN(3) == 0 {
				pod.Node = "n"
			}
			switch n := rng.IntN(20); {
			case n < 12:
				there[pod.UID] = pod
				p.seen(pod)
			case n < 16:
				if there[pod.UID] != nil {
					delete(there, pod.UID)
					p.gone(pod.UID, "ns", "")
				}
			case n == 16:
				if rng.IntN(2) == 0 {
					delete(there, pod.UID)
				} else {
					there[pod.UID] = pod
				}
				var list []*api.Pod
				for _, pod := range there {
					list = append(list, pod)
				}
				ticket := kube.Ticket(rng.IntN(2))
				asked = asked || ticket > 0
				p.replaced(list, ticket)
			case n == 17 && version > 30:
				asked = true
				p.current(1)
			default:
				drain()
			}
		}
		drain()
	}
}
