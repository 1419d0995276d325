package sim

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api"
)

// TestWholeNodes: a gang that wants six whole nodes starts although short pods wait all the time that fit what is
// freed, in its queue or in another, and although services stand on nodes that look emptier than those of short pods.
// It takes a minute until it is patient, half of one until it asks again, and then one life of what runs there, 45 s at
// most.
func TestWholeNodes(t *testing.T) {
	for _, one := range []struct {
		others                  string // queue
		shards, nodes, services int
	}{{"q0", 1, 8, 0}, {"q1", 1, 14, 0}, {"q0", 3, 8, 0}, {"q1", 3, 14, 0}, {"q0", 3, 14, 6}} {
		name := fmt.Sprintf("pods of %s, %d shards, %d nodes, %d services", one.others, one.shards, one.nodes, one.services)
		t.Run(name, func(t *testing.T) {
			w := wholeWorld(one.shards, one.nodes)
			for i := range one.services {
				w.plainPod(fmt.Sprintf("service-%d", i), "", "q1", "1")
			}
			w.until(20*time.Minute, func() bool { return false })
			w.besideShortPods(one.others, time.Minute, func() bool { return false })
			w.load.makeGroup("g", "q0", 6, "", false)
			for i := range 6 {
				w.plainPod(fmt.Sprintf("g-%d", i), "g", "q0", "4")
			}
			begin := w.now
			bound := func() int {
				return len(w.load.pods(func(p *corev1.Pod) bool {
					return p.Labels[api.LabelPodGroup] == "g" && p.Spec.NodeName != ""
				}))
			}
			w.besideShortPods(one.others, 10*time.Minute, func() bool { return bound() == 6 })
			took := w.now.Sub(begin)
			t.Logf("%d of 6 pods are bound after %v", bound(), took)
			if bound() < 6 || took > 150*time.Second {
				t.Errorf("want 6 within 150 s")
			}
		})
	}
}

// wholeWorld returns a world of nodes with 4 CPUs and two queues.
func wholeWorld(shards, nodes int) *world {
	w := newWorld(Config{Script: &Script{Jitter: 6}, Tail: 10})
	w.begin()
	w.calm = true
	for _, name := range w.api.nodes.names() {
		w.api.remove(w.api.nodes, w.api.nodes.objects[name])
	}
	for i := range nodes {
		name := fmt.Sprintf("h%d", i)
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{api.LabelHostname: name}}}
		n.Status.Allocatable = list(map[string]string{"cpu": "4", "pods": "100"})
		w.api.create(w.api.nodes, n)
	}
	for i := range 2 {
		w.act(fmt.Sprintf("queue q%d capability - guarantee -", i))
	}
	for i := range shards {
		w.act(fmt.Sprintf("shard s%d", i))
	}
	w.until(10*time.Second, func() bool { return false })
	return w
}

func (w *world) plainPod(name, group, queue, cpu string) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	p.Labels = map[string]string{api.LabelQueue: queue}
	if group != "" {
		p.Labels[api.LabelPodGroup] = group
	}
	p.Spec.SchedulerName = api.SchedulerName
	p.Spec.Containers = []corev1.Container{{Name: "main"}}
	p.Spec.Containers[0].Resources.Requests = list(map[string]string{"cpu": cpu})
	p.Status.Phase = corev1.PodPending
	w.api.create(w.api.pods, p)
}

// besideShortPods goes on until something is done: pods of 1 CPU that run for 5 to 45 s come and go, and twelve of them
// wait all the time.
func (w *world) besideShortPods(queue string, most time.Duration, done func() bool) {
	const waiting = 12
	for end := w.now.Add(most); w.now.Before(end) && !done(); {
		left := waiting
		short := func(p *corev1.Pod) bool { return p.Labels["short"] != "" }
		for _, p := range w.load.pods(short) {
			switch {
			case p.Spec.NodeName == "":
				left--
			case p.Labels["short"] == "new":
				w.markShort(p, queue, "ends")
				w.after(time.Duration(5+api.BucketOf(p.Name)%41)*time.Second, func() {
					w.api.remove(w.api.pods, w.api.pods.objects["ns/"+p.Name])
				})
			}
		}
		for ; left > 0; left-- {
			w.load.named++
			name := fmt.Sprintf("short-%d", w.load.named)
			w.plainPod(name, "", queue, "1")
			w.markShort(w.api.pod("ns", name), queue, "new")
		}
		w.until(time.Second, func() bool { return false })
	}
}

func (w *world) markShort(p *corev1.Pod, queue, as string) {
	w.api.edit(p, func(p *corev1.Pod) { p.Labels = map[string]string{api.LabelQueue: queue, "short": as} })
}
