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
			w, took := waves(one.apps, one.queues, pods)
			rate, refused := pods/took.Seconds(), w.counts["rows given up"]
			t.Logf("%.0f pods a second, %d rows given up", rate, refused)
			if bound := w.counts["bindings"]; bound != pods || rate < one.least || refused > pods/10 {
				t.Errorf("%d of %d pods bound, %.0f a second, %d rows given up; want %.0f a second, at most %d rows", bound, pods, rate, refused, one.least, pods/10)
			}
		})
	}
}

// waves has pods of apps bound, and returns how long it took.
func waves(apps, queues, pods int) (*world, time.Duration) {
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
	until := func(most time.Duration, done func() bool) {
		for end := w.now.Add(most); !done() && !w.events[0].at.After(end); {
			w.next()
		}
	}
	until(10*time.Second, func() bool { return false })
	begin := w.now
	for i := range pods {
		w.after(time.Duration(i)*time.Second/400, func() {
			app := fmt.Sprint(i % apps)
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprintf("p%d", i),
				Labels: map[string]string{"app": app, api.LabelQueue: fmt.Sprintf("q%d", i/apps%queues)}}}
			p.Spec.SchedulerName = api.SchedulerName
			p.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: list(map[string]string{"cpu": "1"})}}}
			p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: "hall", WhenUnsatisfiable: corev1.DoNotSchedule,
				LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}}}
			p.Status.Phase = corev1.PodPending
			w.api.create(w.api.pods, p)
		})
	}
	until(time.Minute, func() bool { return w.counts["bindings"] == pods })
	return w, w.now.Sub(begin)
}
