package apart

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/bench/stage/local/localtest"
)

// TestNodeTiers: where the configuration says so, pods of a class go to nodes of the best tier that has room, as these
// nodes' labels say, also when they change. A shard that starts again says the same.
func TestNodeTiers(t *testing.T) {
	config := filepath.Join(t.TempDir(), "config.yaml")
	text := `apiVersion: config.basalt.dev/v1alpha1
kind: Configuration
nodeTiers:
- name: cheap
  pods: labels[?"app"].orValue("") == "batch"
  nodes: 'int(labels["example.com/cost"]) < 5 ? 0 : 2'
- name: off
  pods: labels[?"app"].orValue("") == "careful"
  nodes: '"example.com/cost" in labels ? 3 : 0'
`
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	w := start(t, 9, "--config="+config)
	w.namespace("tiers")
	w.pod("tiers", "first", pinned("node-8")) // the nodes are packed: without tiers, pods would go where this one is
	w.bound("tiers", "first")
	w.costs(0, "1")
	w.costs(1, "2")
	w.costs(8, "9")

	w.goes("cheap", label("app", "batch"), "node-0", "node-1")
	w.goes("off", label("app", "careful"), "node-2", "node-3", "node-4", "node-5", "node-6", "node-7")
	w.costs(0, "7")
	w.costs(1, "7")
	w.costs(5, "3")
	w.goes("moved", label("app", "batch"), "node-5")
	for _, shard := range w.shards {
		shard.Kill()
	}
	w.goes("again", label("app", "batch"), "node-5")
	w.rests()

	// Of a gang of 40 cores, the 16 of the cheapest node are used first, and nobody waits for them.
	w.podGroup("tiers", "gang", 40)
	for i := range 40 {
		w.pod("tiers", fmt.Sprint("gang-", i), label(api.LabelPodGroup, "gang"), label("app", "batch"), cpu("1"))
	}
	localtest.Wait(t, patience, "the gang", func(context.Context) error {
		if n := len(w.placed("tiers", "gang")); n != 40 {
			return fmt.Errorf("%d of 40 pods have nodes", n)
		}
		return nil
	})
	on := map[string]int{}
	for _, p := range w.seen.pods() {
		if p.Labels[api.LabelPodGroup] == "gang" {
			on[p.Spec.NodeName]++
		}
	}
	if on["node-5"] < 10 { // the pods that are there take some of its cores
		t.Errorf("the gang is on %v", on)
	}

	const failures = "basalt_shard_node_tier_failures_total"
	// Five nodes have no costs, for which the expression of the class cheap fails, and that of the other does not.
	for _, shard := range w.shards {
		all, err := shard.Samples(t.Context())
		w.check(err)
		for name, n := range all {
			if strings.HasPrefix(name, failures) && (name != failures+`{class="cheap",of="node"}` || n < 5) {
				t.Errorf("%s is %v", name, n)
			}
		}
		if all[failures+`{class="cheap",of="node"}`] == 0 {
			t.Error("no failure is counted")
		}
	}
	w.audited()
}

// costs labels a node with what it costs.
func (w *world) costs(node int, amount string) {
	w.t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"labels":{"example.com/cost":%q}}}`, amount)
	_, err := w.kube.Core.CoreV1().Nodes().Patch(w.t.Context(), fmt.Sprint("node-", node),
		"application/strategic-merge-patch+json", []byte(patch), metav1.PatchOptions{})
	w.check(err)
}

// goes makes pods one by one until one goes to some nodes, for shards see labels by a watch, and tell each other a
// moment later. From then on, four more have to.
func (w *world) goes(name string, with edit, nodes ...string) {
	w.t.Helper()
	run := 0
	for i := 0; run <= 4; i++ {
		pod := fmt.Sprint(name, "-", i)
		w.pod("tiers", pod, with, func(p *corev1.Pod) { cpu("100m")(p) })
		w.bound("tiers", pod)
		switch went := w.seen.named("tiers", pod).Spec.NodeName; {
		case slices.Contains(nodes, went):
			run++
		case run > 0 || i == 50:
			w.t.Fatalf("pod %d of %s went to %s, after %d that went to %v", i, name, went, run, nodes)
		}
	}
}
