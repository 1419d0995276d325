package doors

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/localtest"
)

// TestRunbook carries out deploy/MIGRATE.md: each of its commands, in its order, by bash and kubectl. What stands in for a real cluster
// obeys the objects that they change: a scheduler in place of Volcano's runs while its Deployment has a replica, and Basalt's processes
// run with the flags that its Deployment and its StatefulSet have.
func TestRunbook(t *testing.T) {
	localtest.Needs(t, "1.36", "the canary's policy")
	t.Parallel()
	if _, err := exec.LookPath("kubectl"); err != nil {
		t.Skip("there is no kubectl to run the commands with")
	}
	w := install(t, local.Options{})
	w.define()
	w.volcanoQueue("root", "", "")
	w.volcanoQueue("default", "root", "")
	w.apply(volcanoInstalled)
	ctx, cancel := context.WithCancel(t.Context())
	stood := w.standIn(ctx)
	defer func() { cancel(); stood() }()
	book := w.open()

	// Before Basalt is there, and while it is beside Volcano's scheduler and has no pods.
	w.places("default", "before", "volcano")
	book.run("1. Look before")
	book.run("2. Install beside Volcano")
	found := w.audit()
	w.places("default", "beside", "volcano")

	// The canary's pods go to its nodes, by Basalt; those of other namespaces stay where they were.
	book.run("3. A canary")
	localtest.Wait(t, patience, "the canary's policy to be in force", func(ctx context.Context) error {
		p, err := w.kube.Core.CoreV1().Pods("team-a").Create(ctx, volcanosPod("team-a", "dry", "dry"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && p.Spec.SchedulerName != "basalt" {
			err = fmt.Errorf("a pod keeps the scheduler %s", p.Spec.SchedulerName)
		}
		return err
	})
	canary := w.places("team-a", "canary", "basalt")
	for _, node := range canary {
		if node != "node-3" {
			t.Errorf("pods of the canary are on %v", canary)
		}
	}
	w.places("default", "others", "volcano")
	w.makeJob("team-a", "large", 5) // no node has room for one of its pods: it waits

	book.run("4. Back from the canary")
	if got := w.nodesOf("team-a", "large"); len(got) > 0 {
		t.Errorf("pods that waited are still there: %v", got)
	}
	w.dropGroup("team-a", "large")
	w.places("team-a", "after", "volcano")
	if now := w.nodesOf("team-a", "canary"); !slices.Equal(now, canary) {
		t.Errorf("pods of the canary were on %v and are on %v", canary, now)
	}
	found()

	// All pods are Basalt's, and what it says of them is in Volcano's words.
	book.run("5. Cut over")
	w.places("default", "over", "basalt")
	w.phaseOf("default", "over", v1beta1.PodGroupRunning)
	if args := w.argsOf("volcano-controllers"); !slices.Contains(args, "--controllers=*,-queue-controller,-pg-controller,-sharding-controller") {
		t.Errorf("Volcano's controllers run with %q", args)
	}

	book.run("6. Back from the cut-over")
	w.places("default", "back", "volcano")
	w.phaseOf("default", "back", v1beta1.PodGroupInqueue)
	if args := w.argsOf("volcano-controllers"); !slices.Equal(args, []string{"--logtostderr"}) {
		t.Errorf("Volcano's controllers run with %q", args)
	}
	book.close()
	w.judgeNodes()
}

// volcanoInstalled is what an installation of Volcano has, as far as the commands see it.
const volcanoInstalled = `
apiVersion: v1
kind: Namespace
metadata: {name: volcano-system}
---
apiVersion: v1
kind: Namespace
metadata: {name: team-a}
---
apiVersion: v1
kind: ConfigMap
metadata: {namespace: volcano-system, name: volcano-scheduler-configmap}
data:
  volcano-scheduler.conf: |
    actions: "enqueue, allocate"
    tiers:
    - plugins: [{name: gang}, {name: capacity}, {name: predicates}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {namespace: volcano-system, name: volcano-scheduler}
spec:
  replicas: 1
  selector: {matchLabels: {app: volcano-scheduler}}
  template: {metadata: {labels: {app: volcano-scheduler}}, spec: {containers: [{name: c, image: none, args: [--logtostderr]}]}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {namespace: volcano-system, name: volcano-controllers}
spec:
  replicas: 1
  selector: {matchLabels: {app: volcano-controllers}}
  template: {metadata: {labels: {app: volcano-controllers}}, spec: {containers: [{name: c, image: none, args: [--logtostderr]}]}}
`

// ---- the document

// runbook is deploy/MIGRATE.md, and the folder in which its commands run.
type runbook struct {
	w     *world
	dir   string
	order []string          // its sections with commands
	text  map[string]string // the commands of each
	ran   int
}

// open reads the document. What it exports at its beginning holds in every section.
func (w *world) open() *runbook {
	w.t.Helper()
	b := &runbook{w: w, dir: w.t.TempDir(), text: map[string]string{}}
	deploy := filepath.Join(w.cluster.Root(), "deploy")
	if err := os.CopyFS(filepath.Join(b.dir, "deploy"), os.DirFS(deploy)); err != nil {
		w.t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(deploy, "MIGRATE.md"))
	if err != nil {
		w.t.Fatal(err)
	}
	section, inside, common := "", false, ""
	for line := range strings.Lines(string(text)) {
		switch {
		case strings.HasPrefix(line, "```"):
			inside = strings.HasPrefix(line, "```sh")
		case inside && section == "":
			common += line
		case inside:
			if b.text[section] == "" {
				b.order = append(b.order, section)
				b.text[section] = common
			}
			b.text[section] += line
		case strings.HasPrefix(line, "## "):
			section = strings.TrimSpace(line[3:])
		}
	}
	return b
}

// run carries out the commands of the next section.
func (b *runbook) run(section string) {
	t := b.w.t
	t.Helper()
	if b.ran >= len(b.order) || b.order[b.ran] != section {
		t.Fatalf("sections with commands are %q, and the one after %d of them is not %q", b.order, b.ran, section)
	}
	b.ran++
	kubeconfig, err := b.w.cluster.Kubeconfig(local.Admin)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-euxo", "pipefail", "-c", b.text[section])
	cmd.Dir = b.dir
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "PATH="+filepath.Join(b.w.cluster.Root(), "bin")+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", section, err, out)
	}
	t.Logf("%s:\n%s", section, out)
}

// close reports sections that were not carried out.
func (b *runbook) close() {
	if left := b.order[b.ran:]; len(left) > 0 {
		b.w.t.Errorf("not carried out: %q", left)
	}
}

// ---- what stands in for a cluster

// standIn has processes obey what the API server shows, until ctx ends; then the function that it returns waits for them.
func (w *world) standIn(ctx context.Context) (wait func()) {
	var wg sync.WaitGroup
	wg.Go(func() {
		nothing := func() {}
		end, scheduling, runs := nothing, false, ""
		defer func() { end() }()
		for ctx.Err() == nil {
			d, err := w.kube.Core.AppsV1().Deployments("volcano-system").Get(ctx, "volcano-scheduler", metav1.GetOptions{})
			if err == nil && (*d.Spec.Replicas > 0) != scheduling {
				end()
				if end, scheduling = nothing, !scheduling; scheduling {
					end = w.volcanoScheduler(ctx)
				}
			}
			runs = w.basaltRuns(ctx, runs)
			select {
			case <-ctx.Done():
			case <-time.After(200 * time.Millisecond):
			}
		}
	})
	return wg.Wait
}

// basaltRuns runs Basalt with the flags of its Deployment and its StatefulSet, and says of these that they are rolled out. It returns
// with which flags Basalt runs.
func (w *world) basaltRuns(ctx context.Context, runs string) string {
	apps := w.kube.Core.AppsV1()
	coordinator, err := apps.Deployments("basalt-system").Get(ctx, "basalt-coordinator", metav1.GetOptions{})
	if err != nil {
		return runs
	}
	shard, err := apps.StatefulSets("basalt-system").Get(ctx, "basalt-shard", metav1.GetOptions{})
	if err != nil || len(ours(shard.Spec.Template)) == 0 || len(ours(coordinator.Spec.Template)) == 0 ||
		ours(shard.Spec.Template)[0] != ours(coordinator.Spec.Template)[0] { // kubectl has not applied all yet
		return runs
	}
	if want := fmt.Sprint(ours(shard.Spec.Template)); want != runs {
		for _, b := range w.all {
			if err := b.Stop(); err != nil {
				w.t.Error(err)
			}
		}
		o := local.BasaltOptions{Restart: true, ShardFlags: ours(shard.Spec.Template), CoordinatorFlags: ours(coordinator.Spec.Template)}
		all, err := w.cluster.StartBasalt(ctx, 1, 2, o)
		if w.all = all; err != nil || local.WaitReady(ctx, all) != nil {
			if ctx.Err() == nil {
				w.t.Errorf("start Basalt with %s: %v", want, err)
			}
			return runs
		}
		runs = want
	}
	n := *coordinator.Spec.Replicas
	if coordinator.Status.ObservedGeneration != coordinator.Generation {
		coordinator.Status = appsv1.DeploymentStatus{ObservedGeneration: coordinator.Generation, Replicas: n, UpdatedReplicas: n, ReadyReplicas: n, AvailableReplicas: n}
		if _, err := apps.Deployments("basalt-system").UpdateStatus(ctx, coordinator, metav1.UpdateOptions{}); err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) {
			w.t.Error(err)
		}
	}
	n = *shard.Spec.Replicas
	if shard.Status.ObservedGeneration != shard.Generation {
		shard.Status = appsv1.StatefulSetStatus{ObservedGeneration: shard.Generation, Replicas: n, UpdatedReplicas: n, ReadyReplicas: n, AvailableReplicas: n,
			CurrentReplicas: n, CurrentRevision: "1", UpdateRevision: "1"}
		if _, err := apps.StatefulSets("basalt-system").UpdateStatus(ctx, shard, metav1.UpdateOptions{}); err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) {
			w.t.Error(err)
		}
	}
	return runs
}

// ours returns the flags of a container of Basalt that are about Volcano.
func ours(t corev1.PodTemplateSpec) []string {
	return slices.DeleteFunc(slices.Clone(t.Spec.Containers[0].Args), func(arg string) bool {
		return !strings.HasPrefix(arg, "--volcano=") && !strings.HasPrefix(arg, "--scheduler-names=")
	})
}

// volcanoScheduler starts what stands in for Volcano's scheduler: while it holds its Lease it admits PodGroups, and binds the pods of its
// name, whole PodGroups only, to nodes without a taint that have room. The function that it returns ends it.
func (w *world) volcanoScheduler(ctx context.Context) (end func()) {
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{LeaseMeta: metav1.ObjectMeta{Namespace: "volcano-system", Name: "volcano"}, Client: w.kube.Core.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: "volcano-scheduler-0"}},
		LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
		Callbacks: leaderelection.LeaderCallbacks{OnStoppedLeading: func() {}, OnStartedLeading: func(ctx context.Context) {
			for ctx.Err() == nil {
				if err := w.volcanoRound(ctx); err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) {
					w.t.Errorf("Volcano's scheduler: %v", err)
				}
				select {
				case <-ctx.Done():
				case <-time.After(300 * time.Millisecond):
				}
			}
		}},
	})
	if err != nil {
		w.t.Error(err)
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { elector.Run(ctx) })
	return func() { cancel(); wg.Wait() }
}

func (w *world) volcanoRound(ctx context.Context) error {
	groups := &v1beta1.PodGroupList{}
	if err := w.kube.Volcano.Get().Resource("podgroups").Do(ctx).Into(groups); err != nil {
		return err
	}
	for i := range groups.Items {
		if g := &groups.Items[i]; g.Status.Phase == "" {
			patch := []byte(`{"status":{"phase":"Inqueue"}}`)
			if err := w.kube.Volcano.Patch(types.MergePatchType).Namespace(g.Namespace).Resource("podgroups").Name(g.Name).Body(patch).Do(ctx).Error(); err != nil {
				return err
			}
		}
	}
	free, pods, err := w.free(ctx)
	if err != nil {
		return err
	}
	waiting := map[string][]*corev1.Pod{}
	for i := range pods {
		if p := &pods[i]; p.Spec.SchedulerName == "volcano" && p.Spec.NodeName == "" {
			key := p.Namespace + "/" + p.Annotations[v1beta1.KubeGroupNameAnnotationKey]
			waiting[key] = append(waiting[key], p)
		}
	}
	for _, gang := range waiting {
		if len(gang) < 2 {
			continue
		}
		for _, p := range gang {
			for node, cpu := range free {
				if need := p.Spec.Containers[0].Resources.Requests.Cpu().MilliValue(); need <= cpu {
					free[node] -= need
					b := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: p.UID}, Target: corev1.ObjectReference{Kind: "Node", Name: node}}
					if err := w.kube.Core.CoreV1().Pods(p.Namespace).Bind(ctx, b, metav1.CreateOptions{}); err != nil {
						return err
					}
					break
				}
			}
		}
	}
	return nil
}

// free returns the milli-cores that each node without a taint has left, and all pods.
func (w *world) free(ctx context.Context) (free map[string]int64, pods []corev1.Pod, err error) {
	nodes, err := w.kube.Core.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, nil, err
	}
	list, err := w.kube.Core.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, nil, err
	}
	free = map[string]int64{}
	for _, n := range nodes.Items {
		if len(n.Spec.Taints) == 0 {
			free[n.Name] = n.Status.Allocatable.Cpu().MilliValue()
		}
	}
	for _, p := range list.Items {
		if _, counts := free[p.Spec.NodeName]; counts {
			free[p.Spec.NodeName] -= p.Spec.Containers[0].Resources.Requests.Cpu().MilliValue()
		}
	}
	return free, list.Items, nil
}

// ---- what is asked of it

// volcanosPod is a pod of Volcano's, of a job.
func volcanosPod(namespace, job, name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{v1beta1.KubeGroupNameAnnotationKey: job}},
		Spec: corev1.PodSpec{SchedulerName: "volcano", Containers: []corev1.Container{{Name: "c", Image: "none",
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("500m")}}}}}}
}

// makeJob makes a PodGroup of two and its pods, as Volcano's job controller would.
func (w *world) makeJob(namespace, name string, cpu int64) {
	w.t.Helper()
	g := &v1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: v1beta1.PodGroupSpec{MinMember: 2, Queue: "default"}}
	if err := w.kube.Volcano.Post().Namespace(namespace).Resource("podgroups").Body(g).Do(w.t.Context()).Error(); err != nil {
		w.t.Fatal(err)
	}
	for i := range 2 {
		p := volcanosPod(namespace, name, fmt.Sprintf("%s-%d", name, i))
		if cpu > 0 {
			p.Spec.Containers[0].Resources.Requests["cpu"] = *resource.NewQuantity(cpu, resource.DecimalSI)
		}
		if _, err := w.kube.Core.CoreV1().Pods(namespace).Create(w.t.Context(), p, metav1.CreateOptions{}); err != nil {
			w.t.Fatal(err)
		}
	}
}

// places makes a job of two pods, waits until both are bound, and checks by whom. It returns their nodes.
func (w *world) places(namespace, name, by string) (nodes []string) {
	w.t.Helper()
	w.makeJob(namespace, name, 0)
	localtest.Wait(w.t, patience, "the binding of "+name, func(ctx context.Context) error {
		nodes = nil
		for i := range 2 {
			p, err := w.kube.Core.CoreV1().Pods(namespace).Get(ctx, fmt.Sprintf("%s-%d", name, i), metav1.GetOptions{})
			if err != nil || p.Spec.NodeName == "" {
				return fmt.Errorf("pod %d has no node: %v %+v", i, err, p.Status.Conditions)
			}
			nodes = append(nodes, p.Spec.NodeName)
			who := "volcano"
			if p.Labels[api.LabelGang] != "" {
				who = "basalt"
			}
			if who != by {
				w.t.Errorf("pod %s is bound to %s by %s, want %s", p.Name, p.Spec.NodeName, who, by)
			}
		}
		return nil
	})
	return nodes
}

// nodesOf returns the nodes of a job's pods that are there, "" for one that has none.
func (w *world) nodesOf(namespace, name string) (nodes []string) {
	w.t.Helper()
	for i := range 2 {
		p, err := w.kube.Core.CoreV1().Pods(namespace).Get(w.t.Context(), fmt.Sprintf("%s-%d", name, i), metav1.GetOptions{})
		if err == nil {
			nodes = append(nodes, p.Spec.NodeName)
		} else if !apierrors.IsNotFound(err) {
			w.t.Fatal(err)
		}
	}
	return nodes
}

func (w *world) dropGroup(namespace, group string) {
	w.t.Helper()
	if err := w.kube.Volcano.Delete().Namespace(namespace).Resource("podgroups").Name(group).Do(w.t.Context()).Error(); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) phaseOf(namespace, name string, want v1beta1.PodGroupPhase) {
	w.t.Helper()
	localtest.Wait(w.t, patience, fmt.Sprintf("PodGroup %s to be %s", name, want), func(ctx context.Context) error {
		g := &v1beta1.PodGroup{}
		err := w.kube.Volcano.Get().Namespace(namespace).Resource("podgroups").Name(name).Do(ctx).Into(g)
		if err == nil && g.Status.Phase != want {
			err = fmt.Errorf("it is %q", g.Status.Phase)
		}
		return err
	})
}

func (w *world) argsOf(deployment string) []string {
	w.t.Helper()
	d, err := w.kube.Core.AppsV1().Deployments("volcano-system").Get(w.t.Context(), deployment, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return d.Spec.Template.Spec.Containers[0].Args
}

// judgeNodes reports nodes that have more than they can hold.
func (w *world) judgeNodes() {
	w.t.Helper()
	free, _, err := w.free(w.t.Context())
	if err != nil || len(free) != 4 {
		w.t.Fatalf("%v, %v", free, err)
	}
	for node, left := range free {
		if left < 0 {
			w.t.Errorf("%s has %d milli-cores too few", node, -left)
		}
	}
}
