package sim

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api"
)

// TestWaves: how fast the pods of apps that are spread over three zones with maxSkew 1 are bound, in virtual time. A Binding takes 9 ms in the
// mean, a wave of one app has three of them, and each waits for the wave before. Nodes of a zone belong to all of three shards. With several
// queues several homes place pods of one app, and plan without knowing each other's holds.
func TestWaves(t *testing.T) {
	for _, one := range []struct {
		apps, queues int
		least        float64 // pods a second; they come at 400
	}{{1, 1, 150}, {1, 6, 150}, {10, 6, 200}} {
		t.Run(fmt.Sprintf("%d apps of %d queues", one.apps, one.queues), func(t *testing.T) {
			const pods = 300
			w := waveWorld(one.queues)
			begin := w.now
			spreadPods(w, one.apps, one.queues, pods)
			w.until(time.Minute, func() bool { return w.counts["bindings"] == pods })
			took := w.now.Sub(begin)
			rate, refused := pods/took.Seconds(), w.counts["rows given up"]
			t.Logf("%.0f pods a second, %d rows given up", rate, refused)
			if bound := w.counts["bindings"]; bound != pods || rate < one.least || refused > pods/10 {
				t.Errorf("%d of %d pods bound, %.0f a second, %d rows given up; want %.0f a second, at most %d rows", bound, pods, rate, refused, one.least, pods/10)
			}
		})
	}
}

// TestSlowWaves: where a Binding takes 200 ms in the mean, a wave of one app takes 300 ms. Rows wait for the waves before theirs, however long that
// takes, and pods whose turn comes later are not said to be unschedulable: no new node would help.
func TestSlowWaves(t *testing.T) {
	const pods = 150
	w := waveWorld(1)
	w.slow["bind"] = 400 * time.Millisecond
	spreadPods(w, 1, 1, pods)
	w.until(30*time.Second, func() bool { return w.counts["bindings"] == pods })
	if bound, refused, told := w.counts["bindings"], w.counts["rows given up"], w.counts["conditions written"]; bound != pods || refused+told > 0 {
		t.Errorf("%d of %d pods bound, %d rows given up, %d pods told that they wait", bound, pods, refused, told)
	}
}

// TestBarredAskNothing: the nodes of one zone are full, so with maxSkew 1 two pods of an app are bound, and the others wait for a pod in that zone.
// They do not take quota meanwhile, but for the one that looks whether there is room, and all are bound once there is. The others ask in vain, so that
// autoscalers are told of as many as there is quota for.
func TestBarredAskNothing(t *testing.T) {
	const pods = 60
	w := waveWorld(1)
	full := func(cpu string) {
		for i := 2; i < 9; i += 3 {
			n := *w.api.nodes.objects[fmt.Sprintf("h%d", i)].Object.(*corev1.Node)
			n.Status.Allocatable = list(map[string]string{"cpu": cpu, "pods": "1000"})
			w.api.put(w.api.nodes, &n)
		}
	}
	full("0")
	spreadPods(w, 1, 1, pods)
	w.until(30*time.Second, func() bool { return false })
	if n := w.counts["bindings"]; n != 2 {
		t.Fatalf("%d pods are bound, want 2", n)
	}
	if n := w.counts["conditions written"]; n < pods-2 {
		t.Errorf("%d conditions were written, want one for each of the %d pods that wait", n, pods-2)
	}
	first, vain := w.counts["reservations requested"], w.counts["reservations requested in vain"]
	w.until(time.Minute, func() bool { return false })
	if n := w.counts["reservations requested"] - first; first > pods || n > 10 {
		t.Errorf("%d reservations were requested in the first 30 s, and %d in the minute after; want at most one a pod, and then one in 10 s", first, n)
	}
	if n := w.counts["reservations requested in vain"] - vain; n < pods-3 || n > 3*pods {
		t.Errorf("%d reservations were requested in vain in that minute, want one a pod in 30 s", n)
	}
	full("1000")
	w.until(20*time.Second, func() bool { return w.counts["bindings"] == pods })
	if n := w.counts["bindings"]; n != pods {
		t.Errorf("%d of %d pods are bound 20 s after there was room", n, pods)
	}
}

// TestHopelessOrders: a gang of unlike pods that are spread over zones, of which one has no room, tries other orders,
// and lets go of what it holds each time. That is no news for itself: it searches often in its first half minute, and
// then now and then.
func TestHopelessOrders(t *testing.T) {
	w := waveWorld(1)
	for i := 2; i < 9; i += 3 {
		n := *w.api.nodes.objects[fmt.Sprintf("h%d", i)].Object.(*corev1.Node)
		n.Status.Allocatable = list(map[string]string{"cpu": "0", "pods": "1000"})
		w.api.put(w.api.nodes, &n)
	}
	w.act("podgroup g least 4 queue q0")
	for i, cpu := range []string{"1", "1", "2", "3"} {
		spreadPod(w, fmt.Sprintf("p%d", i), "0", cpu, map[string]string{api.LabelPodGroup: "g"})
	}
	w.until(30*time.Second, func() bool { return false })
	first := w.counts["holds requested"]
	w.until(time.Minute, func() bool { return false })
	if n := w.counts["holds requested"] - first; first > 900 || n > 300 || w.counts["bindings"] > 0 {
		t.Errorf("%d holds were requested in the first 30 s, and %d in the minute after; %d pods are bound",
			first, n, w.counts["bindings"])
	}
}

func (w *world) until(most time.Duration, done func() bool) {
	for end := w.now.Add(most); !done() && !w.events[0].at.After(end); {
		w.next()
	}
}

// waveWorld returns a world of three shards and three zones, each with three nodes, some of any shard.
func waveWorld(queues int) *world {
	w := newWorld(Config{Script: &Script{Jitter: 6}, Tail: 10})
	w.begin()
	w.calm = true
	w.act("gather 50ms 25ms")
	for i := range 9 {
		name := fmt.Sprintf("h%d", i)
		w.api.create(w.api.nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"hall": fmt.Sprint(i % 3), api.LabelHostname: name}},
			Status: corev1.NodeStatus{Allocatable: list(map[string]string{"cpu": "1000", "pods": "1000"})}})
	}
	for i := range queues {
		w.act(fmt.Sprintf("queue q%d capability - guarantee -", i))
	}
	for i := range 3 {
		w.act(fmt.Sprintf("shard s%d", i))
	}
	w.until(10*time.Second, func() bool { return false })
	return w
}

// spreadPods has pods of apps made, 400 in a second.
func spreadPods(w *world, apps, queues, pods int) {
	for i := range pods {
		w.after(time.Duration(i)*time.Second/400, func() {
			queue := fmt.Sprintf("q%d", i/apps%queues)
			spreadPod(w, fmt.Sprintf("p%d", i), fmt.Sprint(i%apps), "1", map[string]string{api.LabelQueue: queue})
		})
	}
}

// spreadPod has a pod of an app made.
func spreadPod(w *world, name, app, cpu string, labels map[string]string) {
	labels["app"] = app
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: labels}}
	p.Spec.SchedulerName = api.SchedulerName
	requests := corev1.ResourceRequirements{Requests: list(map[string]string{"cpu": cpu})}
	p.Spec.Containers = []corev1.Container{{Name: "main", Resources: requests}}
	p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
		MaxSkew: 1, TopologyKey: "hall", WhenUnsatisfiable: corev1.DoNotSchedule,
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}}}
	p.Status.Phase = corev1.PodPending
	w.api.create(w.api.pods, p)
}
