// Package store carries out deploy/docs/store.md under bound pods.
package store

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/audit"
	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/bench/stage/kubelet"
	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/audittest"
	"basalt.dev/basalt/bench/stage/local/localtest"
)

var pods = flag.Int("pods", 1000, "how many pods are bound while the store is lost")

const patience = 2 * time.Minute

func TestMain(m *testing.M) { localtest.Run(m) }

type world struct {
	t       *testing.T
	cluster *local.Cluster
	kube    *kube.Clients
	dir     string
}

// TestRunbook: each section of the document is carried out, and afterwards what was bound is bound where it was, a full queue is still
// full, and new pods are bound.
func TestRunbook(t *testing.T) {
	if _, err := exec.LookPath("kubectl"); err != nil {
		t.Skip("there is no kubectl to run the commands with")
	}
	w := &world{t: t, dir: t.TempDir()}
	w.cluster = localtest.Cluster(t, local.Options{Basalt: localtest.Basalt(t)})
	var err error
	if w.kube, err = kube.ConnectConfig(w.cluster.Config(local.Admin), "store"); err != nil {
		t.Fatal(err)
	}
	for i := range *pods/100 + 1 {
		if _, err := w.kube.Core.CoreV1().Nodes().Create(t.Context(), kubelet.Node(fmt.Sprint("node-", i), "110", "220Gi", 110), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	all, err := w.cluster.StartBasalt(t.Context(), 1, 2, local.BasaltOptions{Restart: true})
	if err == nil {
		err = local.WaitReady(t.Context(), all)
	}
	if err != nil {
		t.Fatal(err)
	}
	judged := w.audit()
	w.queue("full", fmt.Sprint(*pods))
	w.queue("free", "100")
	w.make("full", "in", *pods)
	w.waitBound("in", *pods)
	before := w.nodes("in")
	w.make("full", "over", 1) // the queue has no room for it

	sections, commands := w.read()
	for _, section := range sections {
		var end func()
		switch section {
		case "The alarm NOSPACE":
			w.alarm()
		case "Loss":
			end = w.standIn()
		}
		w.run(section, commands[section])
		if end != nil {
			end()
		}
		w.make("free", "after-"+strings.ToLower(strings.Fields(section)[0])+fmt.Sprint(len(section)), 1)
		w.waitBound("after-"+strings.ToLower(strings.Fields(section)[0])+fmt.Sprint(len(section)), 1)
		if got := w.nodes("over"); len(got) > 0 {
			t.Fatalf("%s: a queue of %d cores took one more: %v", section, *pods, got)
		}
	}
	after := w.nodes("in")
	if len(after) != len(before) {
		t.Errorf("%d pods were bound, and %d are", len(before), len(after))
	}
	for pod, node := range before {
		if after[pod] != node {
			t.Errorf("%s was on %s and is on %q", pod, node, after[pod])
		}
	}
	perNode := map[string]int{}
	for _, node := range after {
		if perNode[node]++; perNode[node] > 110 {
			t.Errorf("%s has %d pods of 110", node, perNode[node])
		}
	}
	w.refilled(all)
	judged()
}

// read returns the sections with commands, in order.
func (w *world) read() (sections []string, commands map[string]string) {
	w.t.Helper()
	text, err := os.ReadFile(filepath.Join(w.cluster.Root(), "deploy", "docs", "store.md"))
	if err != nil {
		w.t.Fatal(err)
	}
	section, inside := "", false
	commands = map[string]string{}
	for line := range strings.Lines(string(text)) {
		switch {
		case strings.HasPrefix(line, "```"):
			inside = strings.HasPrefix(line, "```sh")
		case inside:
			if commands[section] == "" {
				sections = append(sections, section)
			}
			commands[section] += line
		case strings.HasPrefix(line, "## "):
			section = strings.TrimSpace(line[3:])
		}
	}
	if len(sections) != 6 {
		w.t.Fatalf("sections with commands are %q", sections)
	}
	return sections, commands
}

// run carries out commands; basalt gets the flags for this cluster, as the document's own function gives it those for a real one.
func (w *world) run(section, commands string) {
	w.t.Helper()
	kubeconfig, err := w.cluster.Kubeconfig(local.Admin)
	if err != nil {
		w.t.Fatal(err)
	}
	basalt := fmt.Sprintf("basalt() { %s \"$@\" --insecure-plain-text --etcd=%s; }\n", localtest.Basalt(w.t), strings.Join(w.cluster.ControlStore(), ","))
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-eu", "-o", "pipefail", "-c", basalt+"set -x\n"+commands)
	cmd.Dir, cmd.Env = w.dir, append(os.Environ(), "KUBECONFIG="+kubeconfig)
	out, err := cmd.CombinedOutput()
	if err != nil {
		w.t.Fatalf("%s: %v\n%s", section, err, out)
	}
	w.t.Logf("%s:\n%s", section, out)
}

// alarm has the control store refuse writes for lack of space.
func (w *world) alarm() {
	w.t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: w.cluster.ControlStore(), Logger: zap.NewNop()})
	if err != nil {
		w.t.Fatal(err)
	}
	defer c.Close()
	s, err := c.Status(w.t.Context(), w.cluster.ControlStore()[0])
	if err == nil {
		_, err = etcdserverpb.NewMaintenanceClient(c.ActiveConnection()).Alarm(w.t.Context(),
			&etcdserverpb.AlarmRequest{Action: etcdserverpb.AlarmRequest_ACTIVATE, MemberID: s.Header.MemberId, Alarm: etcdserverpb.AlarmType_NOSPACE})
	}
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := c.Put(w.t.Context(), "seq", ""); err == nil {
		w.t.Fatal("a store without space takes writes")
	}
}

// refilled checks in its log that the coordinator kept admission waiting while the store was refilled after each loss, and that this ended.
func (w *world) refilled(all []*local.Basalt) {
	w.t.Helper()
	text, err := os.ReadFile(all[0].Log())
	if err != nil {
		w.t.Fatal(err)
	}
	if n := strings.Count(string(text), "refilling=true"); n < 3 { // the first start, the loss, and forget
		w.t.Errorf("the store was refilled %d times", n)
	}
	if n := strings.Count(string(text), "msg=refilled "); n < 3 {
		w.t.Errorf("refilling ended %d times", n)
	}
}

// standIn does what the controller of StatefulSets would: without replicas the control store is lost, and it comes back empty.
func (w *world) standIn() (end func()) {
	w.t.Helper()
	sets := w.kube.Core.AppsV1().StatefulSets("basalt-system")
	labels := map[string]string{"app.kubernetes.io/name": "basalt-etcd"}
	three := int32(3)
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "basalt-etcd"}, Spec: appsv1.StatefulSetSpec{Replicas: &three,
		Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "etcd", Image: "none"}}}}}}
	if _, err := sets.Create(w.t.Context(), set, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		lost := false
		for ctx.Err() == nil {
			s, err := sets.Get(ctx, "basalt-etcd", metav1.GetOptions{})
			switch {
			case err != nil:
			case *s.Spec.Replicas == 0 && !lost:
				lost = true
				w.cluster.KillControlStore()
				for _, e := range w.cluster.ControlStoreMembers() {
					if err := os.RemoveAll(e.DataDir()); err != nil {
						w.t.Error(err)
					}
				}
			case *s.Spec.Replicas > 0 && lost:
				if err := w.cluster.StartControlStore(ctx); err != nil {
					w.t.Error(err)
				}
				n := *s.Spec.Replicas
				s.Status = appsv1.StatefulSetStatus{ObservedGeneration: s.Generation, Replicas: n, UpdatedReplicas: n, ReadyReplicas: n, AvailableReplicas: n,
					CurrentReplicas: n, CurrentRevision: "1", UpdateRevision: "1"}
				if _, err := sets.UpdateStatus(ctx, s, metav1.UpdateOptions{}); err != nil && ctx.Err() == nil {
					w.t.Error(err)
				}
				return
			}
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
	return func() { wg.Wait(); cancel() }
}

func (w *world) audit() (end func()) {
	w.t.Helper()
	return audittest.Start(w.t, w.cluster, audit.Config{Schedulers: []string{api.SchedulerName}})
}

func (w *world) queue(name, cpu string) {
	w.t.Helper()
	q := &v1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1beta1.QueueSpec{Capability: corev1.ResourceList{"cpu": resource.MustParse(cpu)}}}
	if err := w.kube.Basalt.Post().Resource("queues").Body(q).Do(w.t.Context()).Error(); err != nil {
		w.t.Fatal(err)
	}
}

// make makes pods of one core each, which are a kind of their own.
func (w *world) make(queue, kind string, n int) {
	w.t.Helper()
	for i := range n {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("%s-%d", kind, i), Labels: map[string]string{api.LabelQueue: queue, "kind": kind}},
			Spec: corev1.PodSpec{SchedulerName: api.SchedulerName, Containers: []corev1.Container{{Name: "c", Image: "none",
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}}}}}}
		if _, err := w.kube.Core.CoreV1().Pods("default").Create(w.t.Context(), p, metav1.CreateOptions{}); err != nil {
			w.t.Fatal(err)
		}
	}
}

// nodes returns where the pods of a kind are that are bound.
func (w *world) nodes(kind string) map[string]string {
	list, err := w.kube.Core.CoreV1().Pods("default").List(w.t.Context(), metav1.ListOptions{LabelSelector: "kind=" + kind})
	if err != nil {
		w.t.Fatal(err)
	}
	out := map[string]string{}
	for _, p := range list.Items {
		if p.Spec.NodeName != "" {
			out[p.Name] = p.Spec.NodeName
		}
	}
	return out
}

func (w *world) waitBound(kind string, n int) {
	w.t.Helper()
	localtest.Wait(w.t, patience, "the pods "+kind, func(context.Context) error {
		if got := len(w.nodes(kind)); got != n {
			return fmt.Errorf("%d of %d are bound", got, n)
		}
		return nil
	})
}
