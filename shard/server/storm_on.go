//go:build faults

package server

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"basalt.dev/basalt/shard/event"
)

// withStorm feeds node updates to the cores below the watch, more than any API server could send: the environment variable
// BASALT_NODE_STORM says how many a second and how many in all, "10000/150000". Each is a variant of a node as the watch
// showed it last, and never has more room than that: less cpu, other labels, an extended resource that vanished or one that
// nobody knew. At the end each node is shown as it is.
func (w *watches) withStorm(ctx context.Context, seen, gone func(*corev1.Node) event.Event) (_, _ func(*corev1.Node) event.Event) {
	rate, all, _ := strings.Cut(os.Getenv("BASALT_NODE_STORM"), "/")
	perSecond, _ := strconv.Atoi(rate)
	total, _ := strconv.Atoi(all)
	if perSecond <= 0 {
		return seen, gone
	}
	var mu sync.Mutex // no variant is handed on after a newer node, or after its end
	nodes := map[string]*corev1.Node{}
	var names []string
	go func() {
		const every = 10 * time.Millisecond
		tick := time.NewTicker(every)
		defer tick.Stop()
		var begin time.Time
		for done := 0; done < total; {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			mu.Lock()
			if len(names) > 0 && begin.IsZero() {
				begin = time.Now()
			}
			for due := int(time.Since(begin).Seconds() * float64(perSecond)); !begin.IsZero() && done < min(due, total) && len(names) > 0; done++ {
				w.storage.take(ctx, seen(variant(nodes[names[done%len(names)]], done)))
				if done%100 == 99 { // the watch has its turn
					mu.Unlock()
					mu.Lock()
				}
			}
			mu.Unlock()
		}
		mu.Lock()
		defer mu.Unlock()
		for _, name := range names {
			w.storage.take(ctx, seen(nodes[name]))
		}
		w.log.Info("node storm is over", "updates", total, "per_second", int(float64(total)/time.Since(begin).Seconds()))
	}()
	stormSeen := func(n *corev1.Node) event.Event {
		mu.Lock()
		defer mu.Unlock()
		if nodes[n.Name] == nil {
			names = append(names, n.Name)
		}
		nodes[n.Name] = n
		return seen(n)
	}
	stormGone := func(n *corev1.Node) event.Event {
		mu.Lock()
		defer mu.Unlock()
		delete(nodes, n.Name)
		names = slices.DeleteFunc(names, func(s string) bool { return s == n.Name })
		return gone(n)
	}
	return stormSeen, stormGone
}

// variant is the node with something else about it.
func variant(n *corev1.Node, i int) *corev1.Node {
	out := &corev1.Node{ObjectMeta: n.ObjectMeta, Spec: n.Spec, Status: n.Status}
	room := maps.Clone(n.Status.Allocatable)
	out.Status.Allocatable = room
	switch i / 7 % 5 {
	case 0:
		cpu := room[corev1.ResourceCPU]
		room[corev1.ResourceCPU] = *resource.NewMilliQuantity(cpu.MilliValue()*3/4, resource.DecimalSI)
	case 1:
		out.Labels = maps.Clone(n.Labels)
		out.Labels["storm"] = strconv.Itoa(i)
	case 2:
		for name := range room {
			if strings.Contains(string(name), "/") && i%2 == 0 {
				delete(room, name)
			}
		}
	case 3:
		room[corev1.ResourceName(fmt.Sprintf("example.com/storm-%d", i%50))] = resource.MustParse("1")
	}
	return out
}
