package sim

import (
	"maps"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestToldBeforeShown: a shard is told that its Binding of b landed, while its watch still shows a, which was deleted before. So a and b
// support what it judges then, although they never were bound at once (seed 51 broke C2 so).
func TestToldBeforeShown(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	o := newOrdered()
	of := func(uid, node string, landing int) *landed {
		l := &landed{&line{uid: uid, node: node, word: &word{}}, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "x"}}}, at(landing)}
		o.landed[uid] = l
		o.history[uid] = []sight{{at: at(landing), labels: l.pod.Labels, node: node}}
		return l
	}
	of("a", "n1", 1)
	o.history["a"] = append(o.history["a"], sight{at: at(4), gone: true})
	of("b", "n2", 5)
	l := of("l", "n3", 7)
	of("late", "n4", 9)
	x := func(labels map[string]string) bool { return labels["app"] == "x" }
	for moment, want := range map[int]map[string]string{3: {"a": "n1", "b": "n2"}, 6: {"b": "n2"}} {
		pods := o.bound(l, at(moment), func(s *sight) bool { return x(s.labels) })
		o.ahead(pods, l, at(moment), x)
		if !maps.Equal(pods, want) {
			t.Errorf("at %d: %v support it, want %v", moment, pods, want)
		}
	}
}

// TestCachedNodes: a list of nodes from a cache of the server's shows none as they were before the run began, nor long ago (seed 57 broke
// C2 so: a shard did not know the racks).
func TestCachedNodes(t *testing.T) {
	w := newWorld(Config{Script: &Script{Jitter: 1}, Tail: 1})
	w.api.create(w.api.nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	put := func(in string) {
		next := *w.api.node("n")
		next.Labels = map[string]string{zone: in}
		w.api.put(w.api.nodes, &next)
	}
	shows := func(want string) {
		t.Helper()
		objects, _ := w.api.nodes.before(40)
		if len(objects) != 1 || objects[0].Object.GetLabels()[zone] != want {
			t.Errorf("%v, want one of zone %s", objects, want)
		}
	}
	put("a")
	w.now = w.start.Add(time.Second)
	put("b")
	shows("a")
	w.now = w.now.Add(cached + 1)
	shows("b")
}
