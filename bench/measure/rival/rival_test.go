package rival

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/bench/measure/scenario"
	"basalt.dev/basalt/bench/measure/workload"
	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/localtest"
)

func TestMain(m *testing.M) { localtest.Run(m) }

const tiny = `
about: a test
nodes: [{count: 3, cpu: "4", memory: 8Gi}]
queues: {fanOut: [1, 2]}
gangs: [{name: g, size: {min: 1, max: 3}, pods: [{cpu: 100m, memory: 64Mi}]}]
arrivals: {open: {podsPerSecond: [40], for: 1s}}
`

// The floor on an API server that is not ours: every pod gets a node, is counted once, and nothing is left behind.
func TestNullOnAnyAPIServer(t *testing.T) {
	c := localtest.Shared(t)
	kubeconfig, err := c.Kubeconfig(local.Admin)
	if err != nil {
		t.Fatal(err)
	}
	s, err := scenario.Parse("tiny.yaml", []byte(tiny))
	if err != nil {
		t.Fatal(err)
	}
	pods := 0
	for g := range s.MakeGangs(5, 40) {
		pods += len(g.Pods)
	}
	var progress bytes.Buffer
	r, err := Run(t.Context(), Options{
		Scenario: s, Seed: 5, Runs: 2, Subjects: []Subject{Null()}, Kubeconfig: kubeconfig, MakeNodes: true,
		Pids: map[string]int{"apiserver": c.APIServerProcess().Pid()}, Out: &progress,
	})
	if err != nil {
		t.Fatal(err)
	}
	name := named(Null(), 40)
	if len(r.Runs) != 2 || len(r.Latencies) != 2 || r.Latencies[0].Count() != int64(2*pods) {
		t.Errorf("%d runs, latencies %+v; %d pods", len(r.Runs), r.Latencies, pods)
	}
	for _, run := range r.Runs {
		v := map[string]float64{}
		for _, value := range run.Values {
			v[value.Name] = value.Value
		}
		if run.Subject != name || v["pods offered"] != float64(pods) || v[notBound] != 0 || v[podsPerSecond] <= 0 || v[bindP99] <= 0 || v[apiCPU] <= 0 {
			t.Errorf("%s: %v", run.Subject, v)
		}
	}
	if len(r.Curves) != 1 || len(r.Curves[0].Points) != 1 || r.Curves[0].Points[0].Rate != 40 || len(r.Series) == 0 {
		t.Errorf("curves %+v, %d series", r.Curves, len(r.Series))
	}
	if !strings.Contains(progress.String(), "run 2 of 2") {
		t.Errorf("progress: %s", progress.String())
	}
	if _, err := r.HTML(); err != nil {
		t.Error(err)
	}
}

// Pods in several namespaces, with claims of their own: all are seen by one watch, and all that was made for them is deleted.
func TestNamespacesAndVolumes(t *testing.T) {
	c := localtest.Shared(t)
	kubeconfig, err := c.Kubeconfig(local.Admin)
	if err != nil {
		t.Fatal(err)
	}
	clients, err := kube.ConnectConfig(c.Config(local.Admin), "test")
	if err != nil {
		t.Fatal(err)
	}
	s, err := scenario.Parse("tiny.yaml", []byte(`
about: a test
nodes: [{count: 3, cpu: "4", memory: 8Gi, taint: example.com/a, csi: {driver: ebs.csi.aws.com, limit: 5, migrated: kubernetes.io/aws-ebs}}]
queues: {fanOut: [1]}
gangs:
- {name: a, size: {min: 2, max: 2}, namespaces: 3, service: true, volume: kubernetes.io/aws-ebs, pods: [{cpu: 100m, memory: 64Mi}]}
- {name: b, size: {min: 1, max: 1}, plain: true, volume: ebs.csi.aws.com, pods: [{cpu: 100m, memory: 64Mi}]}
arrivals: {closed: {gangs: 12}}
`))
	if err != nil {
		t.Fatal(err)
	}
	gangs := slices.Collect(s.MakeGangs(5, 0))
	pods := 0
	for _, g := range gangs {
		pods += len(g.Pods)
	}
	r, err := Run(t.Context(), Options{Scenario: s, Seed: 5, Runs: 1, Subjects: []Subject{Null()}, Kubeconfig: kubeconfig, MakeNodes: true})
	if err != nil {
		t.Fatal(err)
	}
	if unbound, _ := r.Runs[0].Get(notBound); unbound.Value != 0 || r.Latencies[0].Count() != int64(pods) {
		t.Errorf("%v pods are not bound, %d of %d were seen", unbound.Value, r.Latencies[0].Count(), pods)
	}
	// What protects volumes and namespaces in use has no controller here: they are there, and will go.
	volumes, err := clients.Core.CoreV1().PersistentVolumes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	inTree := 0
	for _, v := range volumes.Items {
		if v.Status.Phase != v1.VolumeBound || v.DeletionTimestamp == nil {
			t.Errorf("volume %s is %s, deleted at %v", v.Name, v.Status.Phase, v.DeletionTimestamp)
		}
		if v.Spec.AWSElasticBlockStore != nil {
			inTree++
		}
	}
	if len(volumes.Items) != pods || inTree == 0 || inTree == pods {
		t.Errorf("%d volumes of %d pods, %d in-tree", len(volumes.Items), pods, inTree)
	}
	claims, err := clients.Core.CoreV1().PersistentVolumeClaims("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range claims.Items {
		if c.Status.Phase != v1.ClaimBound {
			t.Errorf("claim %s/%s is %s", c.Namespace, c.Name, c.Status.Phase)
		}
	}
	services, err := clients.Core.CoreV1().Services("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	in := map[string]bool{}
	for _, s := range services.Items {
		in[s.Namespace] = s.Name == "a-0" && strings.HasPrefix(s.Namespace, "basalt-bench-")
	}
	if in["default"] = true; len(claims.Items) != pods || len(in) != 4 || slices.Contains(slices.Collect(maps.Values(in)), false) {
		t.Errorf("%d claims of %d pods, Services in %v", len(claims.Items), pods, in)
	}
	csi, err := clients.Core.StorageV1().CSINodes().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(csi.Items) != 0 {
		t.Errorf("%d CSINodes are left: %v", len(csi.Items), err)
	}
}

// The pods of a gang that has ended go when the last has finished, not before, and its PodGroup with them.
func TestReap(t *testing.T) {
	c := localtest.Shared(t)
	clients, err := kube.ConnectConfig(c.Config(local.Admin), "test")
	if err != nil {
		t.Fatal(err)
	}
	shape := workload.Shape{MilliCPU: 1, MemoryMiB: 1}
	gangs := []scenario.Gang{{Name: "ended", Queue: "q", MinCount: 2, Pods: []workload.Shape{shape, shape}}}
	x := &trial{work: &work{}, namespace: "reap", clients: clients, gangs: gangs, watch: newPodWatch(gangs), served: true}
	x.watch.ended = make(chan *scenario.Gang, 1)
	ctx := t.Context()
	if _, err := clients.Core.CoreV1().Namespaces().Create(ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: x.namespace}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := clients.Basalt.Post().Namespace(x.namespace).Resource("podgroups").Body(gangs[0].PodGroup(x.namespace)).Do(ctx).Error(); err != nil {
		t.Fatal(err)
	}
	for j := range gangs[0].Pods {
		if _, err := clients.Core.CoreV1().Pods(x.namespace).Create(ctx, gangs[0].Pod(j, x.namespace, "nobody"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	beside, cancel := context.WithCancel(ctx)
	defer cancel()
	wg.Go(func() { x.reap(beside) })
	finished := func(j int) {
		x.watch.seen(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: gangs[0].PodName(j)}, Status: v1.PodStatus{Phase: v1.PodSucceeded}})
	}
	finished(0)
	finished(0)
	if len(x.watch.ended) != 0 {
		t.Fatal("a gang of two has ended with one pod")
	}
	finished(1)
	localtest.Wait(t, time.Minute, "its pods and its PodGroup are gone", func(ctx context.Context) error {
		pods, err := clients.Core.CoreV1().Pods(x.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		group := clients.Basalt.Get().Namespace(x.namespace).Resource("podgroups").Name("ended").Do(ctx).Error()
		if len(pods.Items) > 0 || !apierrors.IsNotFound(group) {
			return fmt.Errorf("%d pods are left; PodGroup: %v", len(pods.Items), group)
		}
		return nil
	})
}

func TestParseSubjects(t *testing.T) {
	got, err := ParseSubjects([]string{"basalt:3", "null", "kube-scheduler"})
	if err != nil || len(got) != 3 || got[0] != Basalt(3) || got[1] != Null() || got[2] != KubeScheduler() {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range [][]string{nil, {"basalt"}, {"basalt:0"}, {"volcano"}} {
		if got, err := ParseSubjects(bad); err == nil {
			t.Errorf("%q is %v", bad, got)
		}
	}
}

func TestUsageOfThisProcess(t *testing.T) {
	before := local.UsageOf(os.Getpid())
	if before.Memory < 1<<20 {
		t.Fatalf("this process has %d bytes", before.Memory)
	}
	for begin, x := time.Now(), 0; local.UsageOf(os.Getpid()).CPU <= before.CPU; x++ {
		if time.Since(begin) > time.Minute {
			t.Fatal("a minute of work took no CPU")
		}
	}
	if got := local.UsageOf(1 << 30); got != (local.Usage{}) {
		t.Errorf("a process that does not exist uses %+v", got)
	}
}

func TestAPIServerMetricsInWords(t *testing.T) {
	got, err := parseMetrics([]byte(`
# TYPE apiserver_request_total counter
apiserver_request_total{code="201",resource="pods",subresource="binding",verb="POST"} 3
apiserver_request_total{code="409",resource="pods",subresource="binding",verb="POST"} 2
# TYPE other gauge
other 7
`), want{"apiserver_request_total", func(l map[string]string) string { return l["verb"] + " " + l["resource"] }},
		want{"other", func(map[string]string) string { return "o" }}, want{"absent", func(map[string]string) string { return "a" }})
	if err != nil || got["POST pods"] != 5 || got["o"] != 7 || len(got) != 2 {
		t.Errorf("%v, %v", got, err)
	}
	if d := got.minus(metrics{"POST pods": 1, "o": 7}); d["POST pods"] != 4 || len(d) != 1 {
		t.Errorf("difference %v", d)
	}
}
