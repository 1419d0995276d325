package apart

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/bench/stage/local/localtest"
)

// TestImages: where the configuration says so, pods go to nodes that have their image, as these nodes' statuses say, and elsewhere when
// there is no more room. A shard that starts again says the same.
func TestImages(t *testing.T) {
	config := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(config, []byte("apiVersion: config.basalt.dev/v1alpha1\nkind: Configuration\nimageLocality: true\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w := start(t, 9, "--config="+config)
	w.namespace("images")

	// The nodes are packed, so that without their images the pods would go where the first pod is.
	w.pod("images", "first", pinned("node-8"))
	w.bound("images", "first")
	for i := range 3 {
		w.pull(i, "example.com/model:1")
	}
	w.follows("model", "example.com/model:1", "node-0", "node-1", "node-2")

	// A kubelet pulls an image, whose name has no tag in the pod.
	w.pull(7, "example.com/late:latest")
	w.follows("late", "example.com/late", "node-7")
	w.shards[0].Kill()
	w.shards[1].Kill()
	w.shards[2].Kill()
	w.follows("again", "example.com/late", "node-7")

	for i := range 9 { // each node is served again
		w.pod("images", fmt.Sprint("back-", i), pinned(fmt.Sprint("node-", i)))
		w.bound("images", fmt.Sprint("back-", i))
	}

	w.rests()

	// A gang of 60 cores on three nodes of 16: the nodes with its image are filled, and nobody waits for them.
	w.podGroup("images", "gang", 60)
	for i := range 60 {
		w.pod("images", fmt.Sprint("gang-", i), label(api.LabelPodGroup, "gang"), func(p *corev1.Pod) {
			p.Spec.Containers[0].Image = "example.com/model:1"
			cpu("1")(p)
		})
	}
	localtest.Wait(t, patience, "the gang", func(context.Context) error {
		if n := len(w.placed("images", "gang")); n != 60 {
			return fmt.Errorf("%d of 60 pods have nodes", n)
		}
		return nil
	})
	nodes := map[string]int{}
	for _, p := range w.seen.pods() {
		if p.Labels[api.LabelPodGroup] == "gang" {
			nodes[p.Spec.NodeName]++
		}
	}
	if nodes["node-0"]+nodes["node-1"]+nodes["node-2"] < 42 { // the pods that are there take some of their 48 cores
		t.Errorf("the gang is on %v", nodes)
	}
	w.audited()
}

// pull has a node report an image of 4 GiB, as a kubelet does.
func (w *world) pull(node int, image string) {
	w.t.Helper()
	status := fmt.Sprintf(`{"status":{"images":[{"names":[%q],"sizeBytes":%d}]}}`, image, 4<<30)
	_, err := w.kube.Core.CoreV1().Nodes().Patch(w.t.Context(), fmt.Sprint("node-", node), "application/strategic-merge-patch+json", []byte(status), metav1.PatchOptions{}, "status")
	w.check(err)
}

// follows makes pods one by one until one goes to a node that has its image, for shards see nodes by a watch, and tell each other a moment later.
// From then on, ten more have to.
func (w *world) follows(name, image string, nodes ...string) {
	w.t.Helper()
	run := 0
	for i := 0; run <= 10; i++ {
		pod := fmt.Sprint(name, "-", i)
		w.pod("images", pod, func(p *corev1.Pod) { p.Spec.Containers[0].Image = image })
		w.bound("images", pod)
		switch went := w.seen.named("images", pod).Spec.NodeName; {
		case slices.Contains(nodes, went):
			run++
		case run > 0 || i == 50:
			w.t.Fatalf("pod %d of %s went to %s, after %d that went to %v", i, name, went, run, nodes)
		}
	}
}
