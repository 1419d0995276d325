// Package upstream replays cases of kube-scheduler's integration tests on a real API server, with real shards in the place of kube-scheduler.
package upstream

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/localtest"
)

func TestMain(m *testing.M) { localtest.Run(m) }

// every replays one in so many cases: a pod that waits says so after ten seconds. For all: go test ./bench/prove/upstream -every 1
var every = flag.Int("every", 5, "replay one in so many cases")

const patience = 60 * time.Second // for what must happen; it ends hung tests only

// filterCase is a row of a table of test/integration/scheduler/filters, as bench/prove/oracle/export writes it. Tables name their fields as they like.
type filterCase struct {
	Test, Name                    string
	Node                          *corev1.Node
	Nodes                         []*corev1.Node
	ExistingPod, Pod, IncomingPod *corev1.Pod
	ExistingPods, Pods            []*corev1.Pod
	NextPod                       *corev1.Pod
	Fit, Fits                     bool
	ExpectedNode, ErrorType       string
	CandidateNodes                []string
}

// nodes are those of a case. Two tests make theirs in their bodies.
func (c *filterCase) nodes() []*corev1.Node {
	node := func(name string, labels ...string) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}}}
		for i := 0; i < len(labels); i += 2 {
			n.Labels[labels[i]] = labels[i+1]
		}
		return n
	}
	switch c.Test {
	case "TestInterPodAffinity":
		return []*corev1.Node{node("testnode-0", "region", "r1", "zone", "z11", "node", "n1"), node("anothernode-0", "region", "r1", "zone", "z11", "node", "n2")}
	case "TestInterPodAffinityWithNamespaceSelector":
		return []*corev1.Node{node("testnode-0", "region", "r1", "zone", "z11"), node("testnode-1", "region", "r1", "zone", "z11")}
	case "TestNodePortsFilter":
		return []*corev1.Node{node("node-0")}
	}
	if c.Node != nil {
		return []*corev1.Node{c.Node}
	}
	return c.Nodes
}

// elsewhere says why a case is not replayed, "" if it is.
func (c *filterCase) elsewhere() string {
	switch {
	case strings.Contains(c.Name, "feature gate disabled"):
		return "kube-scheduler was tested without a feature that is always there now"
	case strings.Contains(c.Name, "can preempt others"):
		return "a pod preempts others where its queue allows that, and by the priority of its PriorityClass"
	}
	return ""
}

type world struct {
	kube   *kube.Clients
	shards []*local.Basalt
}

// TestFilters creates the objects of each case, and asks whether its pod is bound, and where, or is told that it cannot be. What the API server does not
// take here, for another feature is enabled, is counted.
func TestFilters(t *testing.T) {
	b, err := os.ReadFile("../oracle/testdata/integration/filters.json")
	if err != nil {
		t.Fatal(err)
	}
	var rows []json.RawMessage
	if err := json.Unmarshal(b, &rows); err != nil {
		t.Fatal(err)
	}
	cluster := localtest.Cluster(t, local.Options{Basalt: localtest.Basalt(t)})
	w := &world{}
	if w.kube, err = kube.ConnectConfig(cluster.Config(local.Admin), "upstream"); err != nil {
		t.Fatal(err)
	}
	all, err := cluster.StartBasalt(t.Context(), 1, 3, local.BasaltOptions{Restart: true})
	if err == nil {
		err = local.WaitReady(t.Context(), all)
	}
	if err != nil {
		t.Fatal(err)
	}
	w.shards = all[1:]
	for name, team := range map[string]string{"ns1": "team1", "ns2": "team1", "ns3": "team2"} {
		labels := map[string]string{"team": team, api.LabelRepelsOthers: "true"}
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
		if _, err := w.kube.Core.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	ran, of := 0, 0
	for i, row := range rows {
		c := &filterCase{}
		if err := json.Unmarshal(row, c); err != nil {
			t.Fatal(err)
		}
		if i%*every > 0 {
			continue
		}
		of++
		if why := c.elsewhere(); why != "" {
			t.Logf("%s: not replayed: %s", c.Name, why)
			continue
		}
		// Nodes of a case have names of their own, so no pod can be bound to those of the one before.
		text := string(row)
		for _, n := range c.nodes() {
			text = strings.ReplaceAll(text, fmt.Sprintf("%q", n.Name), fmt.Sprintf("%q", fmt.Sprintf("%s-of-%d", n.Name, i)))
		}
		nodes := c.nodes()
		c = &filterCase{}
		if err := json.Unmarshal([]byte(text), c); err != nil {
			t.Fatal(err)
		}
		if c.Nodes != nil || c.Node != nil {
			nodes = c.nodes()
		} else {
			for _, n := range nodes {
				n.Name = fmt.Sprintf("%s-of-%d", n.Name, i)
				n.Labels[corev1.LabelHostname] = n.Name
			}
		}
		t.Run(c.Test+"/"+c.Name, func(t *testing.T) {
			if w.replay(t, c, nodes) {
				ran++
			}
		})
	}
	const notTaken, notReplayed = 9, 3 // tolerations with operators that the API server does not take by default; elsewhere
	t.Logf("%d of %d cases", ran, of)
	if ran == 0 || ran < of-notTaken-notReplayed {
		t.Errorf("only %d of %d cases were replayed", ran, of)
	}
}

// replay makes what a case has, and judges what becomes of its pod. It reports whether the API server took all of it.
func (w *world) replay(t *testing.T, c *filterCase, nodes []*corev1.Node) bool {
	ctx := t.Context()
	defer w.clear(t)
	for _, n := range nodes {
		if n.Status.Allocatable == nil {
			n.Status.Capacity = corev1.ResourceList{corev1.ResourcePods: api.Quantity("pods", 32), corev1.ResourceMemory: api.Quantity("memory", 1_000_000_000)}
			n.Status.Allocatable = n.Status.Capacity
		}
		if _, err := w.kube.Core.CoreV1().Nodes().Create(ctx, n, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	w.owned(t, len(nodes))
	create := func(p *corev1.Pod) error {
		if p.Namespace == "" {
			p.Namespace = "ns1"
		}
		p.UID, p.Spec.SchedulerName = "", api.SchedulerName
		made, err := w.kube.Core.CoreV1().Pods(p.Namespace).Create(ctx, p, metav1.CreateOptions{})
		if err == nil {
			*p = *made
		}
		return err
	}
	if c.ExistingPod != nil {
		c.ExistingPods = append(c.ExistingPods, c.ExistingPod)
	}
	for _, p := range slices.Concat(c.ExistingPods, c.Pods) {
		if p.Spec.NodeName == "" && c.Test == "TestInterPodAffinityWithNamespaceSelector" {
			p.Spec.NodeName = nodes[0].Name
		}
		if err := create(p); err != nil {
			t.Fatalf("create a pod that is there before: %v", err)
		}
		w.bound(t, p, nil)
	}
	pod := c.IncomingPod
	if pod == nil {
		pod = c.Pod
	}
	switch err := create(pod); {
	case err != nil && c.ErrorType == "invalidPod" && apierrors.IsInvalid(err):
		return true
	case apierrors.IsInvalid(err):
		t.Skipf("the API server does not take the pod: %v", err)
	case err != nil:
		t.Fatal(err)
	}
	at := c.CandidateNodes
	if c.ExpectedNode != "" {
		at = append(at, c.ExpectedNode)
	}
	if c.Fit || c.Fits || c.ExpectedNode != "" {
		node := w.bound(t, pod, at)
		if c.NextPod != nil {
			if err := create(c.NextPod); err != nil {
				t.Fatal(err)
			}
			w.bound(t, c.NextPod, []string{node})
		}
		return true
	}
	localtest.Wait(t, patience, "the condition of the pod", func(ctx context.Context) error {
		p, err := w.kube.Core.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if p.Spec.NodeName != "" {
			t.Fatalf("the pod is bound to %s, and fits nowhere", p.Spec.NodeName)
		}
		for _, cond := range p.Status.Conditions {
			if cond.Type == corev1.PodScheduled && cond.Status == corev1.ConditionFalse && (cond.Reason == corev1.PodReasonUnschedulable || cond.Reason == v1beta1.ReasonConstraintUnmet) {
				return nil
			}
		}
		return fmt.Errorf("conditions %+v", p.Status.Conditions)
	})
	return true
}

// bound waits until a pod has a node, which has to be one of some, if there are any.
func (w *world) bound(t *testing.T, pod *corev1.Pod, at []string) (node string) {
	t.Helper()
	localtest.Wait(t, patience, "the node of "+pod.Name, func(ctx context.Context) error {
		p, err := w.kube.Core.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		if err == nil && p.Spec.NodeName == "" {
			err = fmt.Errorf("it waits: %+v", p.Status.Conditions)
		}
		if err == nil {
			node = p.Spec.NodeName
		}
		return err
	})
	if len(at) > 0 && !slices.Contains(at, node) {
		t.Errorf("pod %s is bound to %s, and fits only %v", pod.Name, node, at)
	}
	return node
}

// clear deletes the pods and nodes of a case.
func (w *world) clear(t *testing.T) {
	ctx := context.WithoutCancel(t.Context())
	zero := int64(0)
	for _, ns := range []string{"ns1", "ns2", "ns3"} {
		if err := w.kube.Core.CoreV1().Pods(ns).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &zero}, metav1.ListOptions{}); err != nil {
			t.Error(err)
		}
	}
	if err := w.kube.Core.CoreV1().Nodes().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
	w.owned(t, 0)
}

// owned waits until the shards own so many nodes.
func (w *world) owned(t *testing.T, want int) {
	t.Helper()
	localtest.Wait(t, patience, fmt.Sprintf("%d nodes", want), func(ctx context.Context) error {
		n := 0.0
		for _, s := range w.shards {
			samples, err := s.Samples(ctx)
			if err != nil {
				return err
			}
			for name, value := range samples {
				if strings.HasPrefix(name, "basalt_shard_nodes{") {
					n += value
				}
			}
		}
		if int(n) != want {
			return fmt.Errorf("%v nodes are owned", n)
		}
		return nil
	})
}
