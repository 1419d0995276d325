package failures

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"basalt.dev/basalt/api/fault"
)

// Allocatable falls below what is used, pods arrive by spec.nodeName, and a second scheduler binds to the same nodes. Such
// a node takes nothing more, everybody can see why, all others go on, and it recovers by itself.
func TestNodeThatShrinks(t *testing.T) {
	failure{bug: fault.PanicBelowZero, evidence: `panic: cache: .* below zero`, scenario: nodeThatShrinks}.show(t)
}

const gpu = "example.com/gpu"

func nodeThatShrinks(w *world) {
	ctx := w.t.Context()
	const nodes = 8
	name := func(i int) string { return fmt.Sprintf("n%d", i) }
	for i := range nodes {
		room := amounts{"cpu": "8", "memory": "32Gi"}
		if i == 3 {
			room[gpu], room["cpu"] = "4", "4500m"
		}
		w.node(ctx, name(i), room, nil)
	}
	w.queue(ctx, "q", nil)
	made := 0
	place := func(what string, n int, like *v1.Pod) ([]types.UID, bool) {
		made++
		uids, err := w.gang(ctx, fmt.Sprintf("g%d", made), "q", n, like)
		w.check(err)
		return uids, w.wait(limit, what, bound(uids...))
	}
	on := func(node string, asks amounts) *v1.Pod {
		p := w.newPod("", "", asks)
		p.Spec.NodeSelector = map[string]string{v1.LabelHostname: node}
		return p
	}
	cpu := func(n string) amounts { return amounts{"cpu": n, "memory": "1Gi"} }

	// Six of eight cores are used on n0 to n2, and all devices of n3.
	for i := range 3 {
		if _, ok := place("pods on "+name(i), 6, on(name(i), cpu("1"))); !ok {
			return
		}
	}
	if _, ok := place("pods with devices on n3", 4, on("n3", amounts{"cpu": "1", gpu: "1"})); !ok {
		return
	}

	// n0 shrinks; pods come to n1 by their spec, a second scheduler binds to n2, devices of n3 die; and pods come to a
	// node that does not exist, and then does, smaller than they are. n4 to n7 are sound.
	w.check(w.setNode(ctx, "n0", map[string]string{"cpu": "2"}, nil))
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range 5 {
			p := w.newPod(fmt.Sprintf("static-%d", i), "", cpu("1"))
			p.Spec.SchedulerName, p.Spec.NodeName = "", "n1"
			w.run(ctx, p)
			p = w.newPod(fmt.Sprintf("early-%d", i), "", cpu("1"))
			p.Spec.NodeName = "late" // ours by name, but bound by nobody of us
			w.run(ctx, p)
		}
		w.node(ctx, "late", amounts{"cpu": "2", "memory": "8Gi"}, nil)
	})
	wg.Go(func() { w.secondScheduler(ctx, "n2", 5, cpu("1")) })
	wg.Go(func() { w.check(w.setNode(ctx, "n3", map[string]string{gpu: "1"}, nil)) })
	wg.Wait()
	bad := []string{"late", "n0", "n1", "n2"}
	if !w.outOfSync(ctx, len(bad)) || !w.events(ctx, "NodeOutOfSync", bad) {
		return
	}
	// Whoever asks for no device is none the worse for those that died, and neither is their plugin.
	plugin := on("n3", amounts{"cpu": "100m", "memory": "1Gi"})
	if _, ok := place("a pod without devices on n3", 1, plugin); !ok {
		return
	}

	// All others go on. They have 32 cores; while they fill up, nothing comes to the bad ones, where memory is plenty.
	elsewhere, ok := place("pods on the sound nodes", 24, w.newPod("", "", cpu("1")))
	if !ok {
		return
	}
	w.mu.Lock()
	for _, uid := range elsewhere {
		if node := w.seen.node[uid]; slices.Contains(bad, node) {
			w.findings = append(w.findings, fmt.Sprintf("a pod was bound to %s, which is out of sync", node))
		}
	}
	w.mu.Unlock()
	// And one that may go nowhere else waits.
	made++
	waiting, err := w.gang(ctx, fmt.Sprintf("g%d", made), "q", 1, on("n0", cpu("1")))
	w.check(err)

	// The second scheduler and Basalt bind to the same nodes at once, and to the brim: who is late is out of sync.
	wg.Go(func() {
		for i := 4; i < nodes; i++ {
			w.secondScheduler(ctx, name(i), 2, cpu("1500m"))
		}
	})
	var racing []types.UID
	for range 4 { // eight pods, as many as the sound nodes have room for: the others are left to those who wait for them
		made++
		p := w.newPod("", "", cpu("1"))
		p.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{
			NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: []v1.NodeSelectorRequirement{
				{Key: v1.LabelHostname, Operator: v1.NodeSelectorOpNotIn, Values: bad}}}}}}}
		uids, err := w.gang(ctx, fmt.Sprintf("g%d", made), "q", 2, p)
		w.check(err)
		racing = append(racing, uids...)
	}
	wg.Wait()
	w.mu.Lock()
	if node := w.seen.node[waiting[0]]; node != "" {
		w.findings = append(w.findings, "the pod for n0 was bound while n0 was out of sync")
	}
	w.mu.Unlock()
	if w.found() {
		return
	}

	// Everything comes back by itself.
	w.check(w.setNode(ctx, "n0", map[string]string{"cpu": "8"}, nil))
	w.check(w.setNode(ctx, "n3", map[string]string{gpu: "4"}, nil))
	w.check(w.setNode(ctx, "late", map[string]string{"cpu": "8"}, nil))
	zero := int64(0)
	w.check(w.kube.Core.CoreV1().Pods(w.name).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &zero}, metav1.ListOptions{LabelSelector: "foreign=yes"}))
	for i := range 5 {
		w.check(w.kube.Core.CoreV1().Pods(w.name).Delete(ctx, fmt.Sprintf("static-%d", i), metav1.DeleteOptions{GracePeriodSeconds: &zero}))
	}
	if !w.outOfSync(ctx, 0) || !w.events(ctx, "NodeInSync", bad) {
		return
	}
	if !w.wait(limit, "the pods that waited", bound(append(waiting, racing...)...)) {
		return
	}
	for _, node := range bad {
		if _, ok := place("a pod on "+node+" again", 1, on(node, cpu("1"))); !ok {
			return
		}
	}
}

// secondScheduler binds pods of its own to a node without asking what is there.
func (w *world) secondScheduler(ctx context.Context, node string, n int, asks amounts) {
	for i := range n {
		p := w.newPod(fmt.Sprintf("foreign-%s-%d", node, i), "", asks)
		p.Spec.SchedulerName = "another"
		p.Labels["foreign"] = "yes"
		made, err := w.create(ctx, p)
		if err == nil {
			err = w.kube.Core.CoreV1().Pods(w.name).Bind(ctx, &v1.Binding{
				ObjectMeta: metav1.ObjectMeta{Namespace: w.name, Name: made.Name, UID: made.UID}, Target: v1.ObjectReference{Kind: "Node", Name: node}}, metav1.CreateOptions{})
		}
		if err == nil {
			err = w.started(ctx, made.Name)
		}
		if err != nil && !apierrors.IsConflict(err) {
			w.find("second scheduler: %v", err)
		}
	}
}

// run creates a pod that names its node, and has it started there.
func (w *world) run(ctx context.Context, p *v1.Pod) {
	made, err := w.create(ctx, p)
	if err == nil {
		err = w.started(ctx, made.Name)
	}
	if err != nil {
		w.find("%v", err)
	}
}

// started does what a kubelet does that accepts a pod: one that it has not accepted, and has no room for, counts for nothing.
func (w *world) started(ctx context.Context, pod string) error {
	_, err := w.kube.Core.CoreV1().Pods(w.name).Patch(ctx, pod, types.MergePatchType, []byte(`{"status":{"phase":"Running"}}`), metav1.PatchOptions{}, "status")
	return err
}

// outOfSync waits until the shards count so many nodes out of sync.
func (w *world) outOfSync(ctx context.Context, want int) bool {
	return w.wait(limit, fmt.Sprintf("metrics to show %d nodes out of sync", want), func(*view) bool {
		n := 0.0
		for _, s := range w.shards {
			m, err := s.Samples(ctx)
			if err != nil {
				return false
			}
			n += m[`basalt_shard_nodes{state="out_of_sync"}`]
		}
		return int(n) == want
	})
}

// events waits until there is an event with the reason on each node.
func (w *world) events(ctx context.Context, reason string, nodes []string) bool {
	missing := slices.Clone(nodes)
	return w.wait(limit, "events "+reason+" on nodes", func(*view) bool {
		list, err := w.kube.Core.EventsV1().Events(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false
		}
		for _, e := range list.Items {
			if e.Reason == reason && e.Regarding.Kind == "Node" && e.CreationTimestamp.Time.After(w.begin.Add(-2e9)) {
				missing = slices.DeleteFunc(missing, func(n string) bool { return n == e.Regarding.Name })
			}
		}
		return len(missing) == 0 || len(w.ends) > 0 // who takes over does not know what was before
	})
}
