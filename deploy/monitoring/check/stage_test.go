// Package check judges metrics, dashboards, alerts and their documentation: against Prometheus' own parser and engine, and against
// scrapes of real processes. It is a module of its own, because Prometheus brings many dependencies. `make metrics-check` runs it.
package check

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	dto "github.com/prometheus/client_model/go"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/bench/stage/kubelet"
	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/localtest"
)

// A tree of 500 queues: top-level ones with children. Basalt adds root and default. With -top 500 -children 0 all are top-level, which
// makes the most series.
var (
	topQueues = flag.Int("top", 20, "top-level queues")
	children  = flag.Int("children", 24, "children of each")
)

// leaves is the number of queues that admit gangs.
func leaves() int { return *topQueues * max(1, *children) }

// leaf names one of them; neighbours are in different top-level queues.
func leaf(i int) string {
	if *children == 0 {
		return fmt.Sprintf("team-%d", i%*topQueues)
	}
	return fmt.Sprintf("team-%d.group-%d", i%*topQueues, i / *topQueues % *children)
}

// stage is a real Basalt under some load.
type stage struct {
	t       *testing.T
	cluster *local.Cluster
	core    kubernetes.Interface
	basalt  rest.Interface
	targets []target
	scrapes []scrape
}

type target struct {
	pod string
	get func(context.Context) (*http.Response, error)
}

// scrape is what all processes showed at about one moment.
type scrape struct {
	at       time.Time
	families map[string][]*dto.MetricFamily // by pod
	text     map[string][]byte
}

func newStage(t *testing.T) *stage {
	program := localtest.Basalt(t)
	c := localtest.Cluster(t, local.Options{Basalt: program})
	clients, err := kube.ConnectConfig(c.Config(local.Load), "metrics-check")
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{t: t, cluster: c, core: clients.Core, basalt: clients.Basalt}
	s.startAuditor(program)
	s.startBeside("certs", program, "certs", "--dir="+t.TempDir(), "--every=1h")
	all, err := c.StartBasalt(t.Context(), 2, 3, local.BasaltOptions{Restart: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := local.WaitReady(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	for _, b := range all {
		s.targets = append(s.targets, target{b.Name(), func(ctx context.Context) (*http.Response, error) { return b.Get(ctx, "/metrics") }})
	}
	return s
}

// startAuditor runs `basalt audit` as deploy/audit.yaml does.
func (s *stage) startAuditor(program string) {
	s.t.Helper()
	config, err := s.cluster.Kubeconfig(local.Admin)
	if err != nil {
		s.t.Fatal(err)
	}
	s.startBeside("audit", program,
		"audit", "--insecure-plain-text", "--etcd="+s.cluster.ControlStore()[0], "--kubeconfig="+config)
}

// startBeside starts a process that is none of the cluster's own, and scrapes it.
func (s *stage) startBeside(name, program string, args ...string) {
	s.t.Helper()
	ports, err := local.FreePorts(1)
	if err != nil {
		s.t.Fatal(err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", ports[0])
	log, err := os.Create(filepath.Join(s.t.TempDir(), name+".log"))
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, program, append(args, "--metrics="+address)...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { stop(); _ = cmd.Wait(); _ = log.Close() })
	get := func(path string) func(context.Context) (*http.Response, error) {
		return func(ctx context.Context) (*http.Response, error) {
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
			if err != nil {
				return nil, err
			}
			return http.DefaultClient.Do(r)
		}
	}
	s.targets = append(s.targets, target{name, get("/metrics")})
}

// load makes 12 nodes of 64 cores and 500 queues with limits, a gang in each leaf, and gangs that wait for each of several reasons. It is
// scraped when the first gangs are bound, for a rate is seen only from the second sample of a series.
func (s *stage) load() {
	s.nodes(12)
	s.queues()
	s.pods(0, *topQueues)
	s.bound(*topQueues)
	s.scrape()
	s.pods(*topQueues, leaves())
	if *children == 0 {
		s.pods(leaves(), 2*leaves())
	}
	for i := range 10 {
		s.gang(fmt.Sprint("four-", i), leaf(i), 4, 4, "500m", "64Mi")
	}
	if *children > 0 {
		s.gang("over-quota", leaf(0), 2, 2, "3900m", "64Mi") // of 8 cores, some of which are charged
	}
	s.gang("without-room", leaf(1), 1, 1, "1", "300Gi")   // no node has so much memory
	s.gang("incomplete", leaf(2), 3, 1, "100m", "64Mi")   // two pods are missing
	s.gang("no-queue", "absent.queue", 1, 1, "1", "64Mi") // its queue does not exist
	if *children == 0 {
		s.bound(2*leaves() + 40)
	} else {
		s.bound(leaves() + 40)
	}
}

// pods makes gangs of one, each in the next leaf.
func (s *stage) pods(from, to int) {
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for i := from + worker; i < to; i += 8 {
				s.pod(fmt.Sprint("one-", i), leaf(i), "", "100m", "64Mi")
			}
		})
	}
	wg.Wait()
}

func (s *stage) bound(want int) {
	s.t.Helper()
	s.until("the pods of the gangs that can be placed to be bound", func(ctx context.Context) error {
		pods, err := s.core.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		bound := 0
		for _, p := range pods.Items {
			if p.Spec.NodeName != "" {
				bound++
			}
		}
		if bound != want {
			return fmt.Errorf("%d of %d are", bound, want)
		}
		return nil
	})
}

func (s *stage) nodes(n int) {
	for i := range n {
		node := kubelet.Node(fmt.Sprint("node-", i), "64", "256Gi", 110)
		made, err := s.core.CoreV1().Nodes().Create(s.t.Context(), node, metav1.CreateOptions{})
		if err != nil {
			s.t.Fatal(err)
		}
		made.Status = node.Status
		if _, err := s.core.CoreV1().Nodes().UpdateStatus(s.t.Context(), made, metav1.UpdateOptions{}); err != nil {
			s.t.Fatal(err)
		}
	}
}

func (s *stage) queues() {
	queue := func(name, cpu, memory, guarantee string) {
		q := &v1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Name: name}}
		q.Spec.Capability = corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse(memory), "pods": resource.MustParse("200")}
		if guarantee != "" {
			q.Spec.Guarantee = corev1.ResourceList{"cpu": resource.MustParse(guarantee)}
			q.Spec.Deserved = corev1.ResourceList{"cpu": resource.MustParse("2")}
		}
		if err := s.basalt.Post().Resource("queues").Body(q).Do(s.t.Context()).Error(); err != nil {
			s.t.Fatal(err)
		}
	}
	for i := range *topQueues {
		queue(fmt.Sprint("team-", i), "200", "1Ti", "")
		for j := range *children {
			queue(fmt.Sprintf("team-%d.group-%d", i, j), "8", "512Gi", "1")
		}
	}
}

// gang makes a PodGroup and pods of it.
func (s *stage) gang(name, queue string, least int32, pods int, cpu, memory string) {
	s.t.Helper()
	g := &v1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: v1beta1.PodGroupSpec{Queue: queue, SchedulingPolicy: v1beta1.SchedulingPolicy{Gang: v1beta1.GangSchedulingPolicy{MinCount: least}}}}
	if err := s.basalt.Post().Namespace("default").Resource("podgroups").Body(g).Do(s.t.Context()).Error(); err != nil {
		s.t.Error(err)
	}
	for i := range pods {
		s.pod(fmt.Sprint(name, "-", i), "", name, cpu, memory)
	}
}

func (s *stage) pod(name, queue, group, cpu, memory string) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{}},
		Spec: corev1.PodSpec{SchedulerName: api.SchedulerName, Containers: []corev1.Container{{Name: "c", Image: "none",
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse(memory)}}}}}}
	if queue != "" {
		p.Labels[api.LabelQueue] = queue
	}
	if group != "" {
		p.Labels[api.LabelPodGroup] = group
	}
	if _, err := s.core.CoreV1().Pods("default").Create(s.t.Context(), p, metav1.CreateOptions{}); err != nil {
		s.t.Error(err)
	}
}

func (s *stage) until(what string, ready func(context.Context) error) {
	s.t.Helper()
	localtest.Wait(s.t, 5*time.Minute, what, ready)
}

// failover kills a shard and the coordinator that leads, and waits until others have their place.
func (s *stage) failover() {
	before := s.sum("basalt_coordinator_terms_total")
	for _, b := range s.cluster.Basalts() {
		if b.Name() == "shard-0" || s.value(b.Name(), "basalt_coordinator_leading") == 1 {
			b.Kill()
		}
	}
	s.until("a new leader and an owner of all buckets", func(context.Context) error {
		if err := s.try(); err != nil {
			return err
		}
		if leading, buckets := s.sum("basalt_coordinator_leading"), s.sum("basalt_shard_buckets"); leading != 1 || buckets != 1024 || before == 0 {
			return fmt.Errorf("%g lead, %g buckets have an owner; %g terms before", leading, buckets, before)
		}
		return nil
	})
}

// scrape adds what all processes show now.
func (s *stage) scrape() {
	s.t.Helper()
	s.until("all processes to be scraped", func(context.Context) error { return s.try() })
}

func (s *stage) try() error {
	now := scrape{at: time.Now(), families: map[string][]*dto.MetricFamily{}, text: map[string][]byte{}}
	for _, t := range s.targets {
		ctx, cancel := context.WithTimeout(s.t.Context(), 5*time.Second)
		families, text, err := read(ctx, t)
		cancel()
		if err != nil {
			return fmt.Errorf("%s: %w", t.pod, err)
		}
		now.families[t.pod], now.text[t.pod] = families, text
	}
	s.scrapes = append(s.scrapes, now)
	return nil
}

func read(ctx context.Context, t target) (out []*dto.MetricFamily, text []byte, err error) {
	resp, err := t.get(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	if text, err = io.ReadAll(resp.Body); err != nil {
		return nil, nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, nil, fmt.Errorf("the answer is %s", resp.Status)
	}
	p := expfmt.NewTextParser(model.UTF8Validation)
	families, err := p.TextToMetricFamilies(bytes.NewReader(text))
	for _, f := range families {
		out = append(out, f)
	}
	return out, text, err
}

func (s *stage) last() scrape { return s.scrapes[len(s.scrapes)-1] }

// sum adds a metric up over all processes, as they were scraped last.
func (s *stage) sum(name string) (total float64) {
	for _, t := range s.targets {
		total += s.value(t.pod, name)
	}
	return total
}

func (s *stage) value(pod, name string) (total float64) {
	if len(s.scrapes) == 0 {
		return 0
	}
	for _, f := range s.last().families[pod] {
		if f.GetName() == name {
			for _, m := range f.Metric {
				total += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return total
}
