// Package badinput feeds bad input to real processes of Basalt on a real API server and a real etcd, and looks where a user
// would: at the API server's answer, at conditions, at what a process says when it ends, and at `basalt status`.
//
// Each test shows that the words name the field or object, and that a healthy gang beside it is still scheduled.
package badinput

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/audit/follow"
	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/bench/prove/auditlog"
	"basalt.dev/basalt/bench/stage/kubelet"
	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/localtest"
)

// patience is how long anything may take that must happen. It is no measure.
const patience = 90 * time.Second

// TestMain lets tests that mostly wait do so together: the default is as many at once as there are processors.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "32"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// wait is localtest.Wait, but at the end it tells the last answer and not that there was none in time.
func wait(t *testing.T, what string, ask func(context.Context) error) {
	t.Helper()
	var last error
	localtest.Wait(t, patience, what, func(ctx context.Context) error {
		err := ask(ctx)
		if err != nil && ctx.Err() != nil && last != nil {
			return last
		}
		last = err
		return err
	})
}

// world is the control plane that all tests share, with two shards and a coordinator.
type world struct {
	cluster *local.Cluster
	program string
	kube    *kube.Clients
	shards  []*local.Basalt
	leader  *local.Basalt
}

func TestBadInput(t *testing.T) {
	w := &world{program: localtest.Basalt(t)}
	w.cluster = localtest.Bare(t, local.Options{Basalt: w.program, Audit: true})
	var err error
	if w.kube, err = kube.ConnectConfig(w.cluster.Config(local.Admin), "badinput"); err != nil {
		t.Fatal(err)
	}
	w.start(t)
	t.Run("processes", w.processes)
	t.Run("objects", w.objects)
	t.Run("store", w.store)
	w.noHarm(t)
}

// start starts Basalt before its roles and kinds exist: it says which are missing, and goes on when they are there.
func (w *world) start(t *testing.T) {
	all, err := w.cluster.StartBasalt(t.Context(), 1, 2, local.BasaltOptions{Restart: true, NoWait: true})
	if err != nil {
		t.Fatal(err)
	}
	w.leader, w.shards = all[0], all[1:]
	for _, b := range all {
		w.logged(t, b, 0, "apply deploy/rbac.yaml first", "queues.scheduling.basalt.dev is forbidden")
	}
	roles := []string{"Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding"}
	err = local.Apply(t.Context(), w.cluster.Config(local.Admin), filepath.Join(w.cluster.Root(), "deploy"), func(u *unstructured.Unstructured) bool {
		return slices.Contains(roles, u.GetKind())
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range w.cluster.Basalts() {
		w.logged(t, b, 0, "does not know Queue scheduling.basalt.dev/v1beta1: apply deploy/crds first")
	}
	if err := w.cluster.Install(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range 6 {
		n := kubelet.Node(fmt.Sprintf("node-%d", i), "8", "32Gi", 110)
		if _, err := w.kube.Core.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	w.ready(t)
}

func (w *world) ready(t *testing.T) {
	t.Helper()
	for _, b := range w.cluster.Basalts() {
		if err := b.WaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// ---- what users do

// namespace makes one for a test.
func (w *world) namespace(t *testing.T) string {
	t.Helper()
	ns, err := w.kube.Core.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "t-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return ns.Name
}

func list(pairs ...string) corev1.ResourceList {
	l := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		l[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return l
}

func (w *world) queue(t *testing.T, name string, spec v1beta1.QueueSpec) {
	t.Helper()
	q := &v1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
	if err := w.kube.Basalt.Post().Resource("queues").Body(q).Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
}

func (w *world) patchQueue(t *testing.T, name, patch string) {
	t.Helper()
	if err := w.kube.Basalt.Patch(types.MergePatchType).Resource("queues").Name(name).Body([]byte(patch)).Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
}

func (w *world) deleteQueue(t *testing.T, name string) {
	t.Helper()
	if err := w.kube.Basalt.Delete().Resource("queues").Name(name).Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
}

func (w *world) group(t *testing.T, ns, name, queue string, minCount int32) {
	t.Helper()
	g := &v1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
	g.Spec.Queue, g.Spec.SchedulingPolicy.Gang.MinCount = queue, minCount
	if err := w.kube.Basalt.Post().Namespace(ns).Resource("podgroups").Body(g).Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
}

type edit func(*corev1.Pod)

func label(key, value string) edit { return func(p *corev1.Pod) { p.Labels[key] = value } }

func inGroup(name string) edit { return label(api.LabelPodGroup, name) }

func asks(pairs ...string) edit {
	return func(p *corev1.Pod) {
		r := list(pairs...)
		p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: r}
		for name, q := range r {
			if strings.Contains(string(name), "/") { // the API server wants limits for these
				if p.Spec.Containers[0].Resources.Limits == nil {
					p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{}
				}
				p.Spec.Containers[0].Resources.Limits[name] = q
			}
		}
	}
}

func (w *world) createPod(ctx context.Context, ns, name string, edits ...edit) error {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: map[string]string{}}, Spec: corev1.PodSpec{
		SchedulerName: api.SchedulerName,
		Containers:    []corev1.Container{{Name: "c", Image: "none", Resources: corev1.ResourceRequirements{Requests: list("cpu", "100m")}}},
	}}
	for _, e := range edits {
		e(p)
	}
	_, err := w.kube.Core.CoreV1().Pods(ns).Create(ctx, p, metav1.CreateOptions{})
	return err
}

func (w *world) pod(t *testing.T, ns, name string, edits ...edit) {
	t.Helper()
	if err := w.createPod(t.Context(), ns, name, edits...); err != nil {
		t.Fatal(err)
	}
}

func (w *world) deletePods(t *testing.T, ns string, names ...string) {
	t.Helper()
	now := int64(0)
	for _, name := range names {
		err := w.kube.Core.CoreV1().Pods(ns).Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &now})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
	}
}

// ---- what users see

func contains(text string, words []string) error {
	for _, word := range words {
		if !strings.Contains(text, word) {
			return fmt.Errorf("%q is missing in: %s", word, text)
		}
	}
	return nil
}

// refused wants an error of the API server that says these words.
func refused(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("accepted; wanted an error with %q", words)
	} else if err := contains(err.Error(), words); err != nil {
		t.Error(err)
	}
}

func verdict(conditions []metav1.Condition, kind string, status metav1.ConditionStatus, generation int64, reason string, words []string) error {
	for _, c := range conditions {
		if c.Type != kind {
			continue
		}
		if c.Status != status || c.Reason != reason {
			return fmt.Errorf("%s is %s: %s: %s; want %s: %s", kind, c.Status, c.Reason, c.Message, status, reason)
		}
		if c.ObservedGeneration != generation {
			return fmt.Errorf("%s is about generation %d of %d", kind, c.ObservedGeneration, generation)
		}
		return contains(c.Message, words)
	}
	return fmt.Errorf("no condition %s", kind)
}

// queueSays waits for a Queue's Ready condition.
func (w *world) queueSays(t *testing.T, name string, status metav1.ConditionStatus, reason string, words ...string) {
	t.Helper()
	w.queueCondition(t, name, v1beta1.ConditionReady, status, reason, words...)
}

// queueCondition waits for a condition of a Queue.
func (w *world) queueCondition(
	t *testing.T, name, kind string, status metav1.ConditionStatus, reason string, words ...string,
) {
	t.Helper()
	wait(t, "the condition "+kind+" of queue "+name, func(ctx context.Context) error {
		q := v1beta1.Queue{}
		if err := w.kube.Basalt.Get().Resource("queues").Name(name).Do(ctx).Into(&q); err != nil {
			return err
		}
		if q.Status == nil {
			return errors.New("no status")
		}
		return verdict(q.Status.Conditions, kind, status, q.Generation, reason, words)
	})
}

func (w *world) groupSays(t *testing.T, ns, name, kind string, status metav1.ConditionStatus, reason string, words ...string) {
	t.Helper()
	wait(t, "PodGroup "+ns+"/"+name, func(ctx context.Context) error {
		g := v1beta1.PodGroup{}
		if err := w.kube.Basalt.Get().Namespace(ns).Resource("podgroups").Name(name).Do(ctx).Into(&g); err != nil {
			return err
		}
		if g.Status == nil {
			return errors.New("no status")
		}
		return verdict(g.Status.Conditions, kind, status, g.Generation, reason, words)
	})
}

// noQuota waits for QuotaReserved=False.
func (w *world) noQuota(t *testing.T, ns, name, reason string, words ...string) {
	t.Helper()
	w.groupSays(t, ns, name, v1beta1.ConditionQuotaReserved, metav1.ConditionFalse, reason, words...)
}

// podSays waits for PodScheduled=False of a pod without a node.
func (w *world) podSays(t *testing.T, ns, name, reason string, words ...string) {
	t.Helper()
	wait(t, "pod "+ns+"/"+name, func(ctx context.Context) error {
		p, err := w.kube.Core.CoreV1().Pods(ns).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if p.Spec.NodeName != "" {
			t.Fatalf("pod %s/%s was bound to %s; wanted %s %q", ns, name, p.Spec.NodeName, reason, words)
		}
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == reason {
				return contains(c.Message, words)
			}
		}
		return fmt.Errorf("conditions %v, want %s", p.Status.Conditions, reason)
	})
}

// bound waits until each of the pods has a node.
func (w *world) bound(t *testing.T, ns string, names ...string) {
	t.Helper()
	for _, name := range names {
		wait(t, "the binding of "+ns+"/"+name, func(ctx context.Context) error {
			p, err := w.kube.Core.CoreV1().Pods(ns).Get(ctx, name, metav1.GetOptions{})
			if err == nil && p.Spec.NodeName == "" {
				err = fmt.Errorf("no node; conditions %v", p.Status.Conditions)
			}
			return err
		})
	}
}

func (w *world) unbound(t *testing.T, ns string, names ...string) {
	t.Helper()
	for _, name := range names {
		p, err := w.kube.Core.CoreV1().Pods(ns).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil || p.Spec.NodeName != "" {
			t.Errorf("pod %s/%s: node %q, %v", ns, name, p.Spec.NodeName, err)
		}
	}
}

// healthy places a gang of two on any nodes: what it stands beside does it no harm.
func (w *world) healthy(t *testing.T) {
	t.Helper()
	ns := w.namespace(t)
	w.group(t, ns, "healthy", "", 2)
	w.pod(t, ns, "one", inGroup("healthy"))
	w.pod(t, ns, "two", inGroup("healthy"))
	w.bound(t, ns, "one", "two")
	w.deletePods(t, ns, "one", "two")
}

// logged waits until a process has logged some words in one line after an offset, and returns the line.
func (w *world) logged(t *testing.T, b *local.Basalt, offset int64, words ...string) string {
	t.Helper()
	var found string
	wait(t, fmt.Sprintf("%q in the log of %s", words, b.Name()), func(context.Context) error {
		text, err := os.ReadFile(b.Log())
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(text[min(offset, int64(len(text))):])) {
			if contains(line, words) == nil {
				found = line
				return nil
			}
		}
		return errors.New("no such line")
	})
	return found
}

func (w *world) logSize(t *testing.T, b *local.Basalt) int64 {
	t.Helper()
	s, err := os.Stat(b.Log())
	if err != nil {
		t.Fatal(err)
	}
	return s.Size()
}

// run runs a command of basalt to its end and returns what it says and how it ended.
func (w *world) run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if slices.Contains([]string{"shard", "coordinator", "status"}, args[0]) {
		args = append(args, "--insecure-plain-text")
	}
	out, err := exec.CommandContext(ctx, w.program, args...).CombinedOutput()
	if ctx.Err() != nil {
		t.Errorf("basalt %v did not end:\n%s", args, out)
	}
	return string(out), err
}

// status runs `basalt status`.
func (w *world) status(t *testing.T, args ...string) string {
	t.Helper()
	out, err := w.run(t, append([]string{"status", "--etcd=" + strings.Join(w.cluster.ControlStore(), ",")}, args...)...)
	if err != nil {
		t.Errorf("basalt status: %v\n%s", err, out)
	}
	return out
}

// audited runs a part under the auditor, which must find nothing.
func (w *world) audited(t *testing.T, run func()) {
	t.Helper()
	client := w.etcd(t)
	auditor, err := follow.New(follow.Options{Etcd: client, Kube: w.cluster.Config(local.Admin)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := auditor.Run(ctx); err != nil && ctx.Err() == nil {
			t.Error(err)
		}
	})
	<-auditor.Synced()
	run()
	cancel()
	wg.Wait()
	for _, v := range auditor.Report().Violations {
		t.Errorf("auditor: %s", v)
	}
}

// noHarm judges the whole run: no pod was sent to two nodes, and no node holds more than it has.
func (w *world) noHarm(t *testing.T) {
	f, err := os.Open(w.cluster.AuditLog())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	report, err := auditlog.Read(f, nil)
	if err != nil {
		t.Fatal(err)
	}
	if report.Bound == 0 || len(report.TwoNodes)+len(report.NoUID) > 0 {
		t.Errorf("%d Bindings; to two nodes: %v, without UID: %v", report.Bound, report.TwoNodes, report.NoUID)
	}
	w.noOvercommit(t)
}

func (w *world) noOvercommit(t *testing.T) {
	t.Helper()
	nodes, err := w.kube.Core.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pods, err := w.kube.Core.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]api.Resources{}
	for i := range pods.Items {
		p := api.FromPod(&pods.Items[i], nil, api.Rules{})
		if p.Node != "" && !p.Finished {
			used[p.Node] = used[p.Node].Add(p.Class.Requests)
		}
	}
	for i := range nodes.Items {
		n := api.FromNode(&nodes.Items[i], nil)
		if r, by, exceeds := used[n.Name].Exceeds(n.Allocatable); exceeds {
			t.Errorf("node %s: %s is over-committed by %s", n.Name, r, api.FormatAmount(r, by))
		}
	}
}

// kubeconfig writes one with other words in it.
func (w *world) kubeconfig(t *testing.T, user string, replace ...string) string {
	t.Helper()
	path, err := w.cluster.Kubeconfig(user)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(replace); i += 2 {
		if !bytes.Contains(text, []byte(replace[i])) {
			t.Fatalf("%q is not in the kubeconfig", replace[i])
		}
		text = bytes.ReplaceAll(text, []byte(replace[i]), []byte(replace[i+1]))
	}
	path = filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}
