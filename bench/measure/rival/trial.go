package rival

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"

	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/bench/measure/report"
	"basalt.dev/basalt/bench/measure/scenario"
	"basalt.dev/basalt/bench/measure/workload"
	"basalt.dev/basalt/bench/prove/auditlog"
	"basalt.dev/basalt/bench/stage/kubelet"
	"basalt.dev/basalt/bench/stage/local"
)

// topologyGates has the API server serve PodGroups with a topology, and kube-scheduler heed them.
const topologyGates = "--feature-gates=GenericWorkload=true,TopologyAwareWorkloadScheduling=true"

// trial is one run of one subject.
type trial struct {
	*work
	subject  Subject
	rate     int
	counting bool
	label    string
	gangs    []scenario.Gang
	pods     int
	watch    *podWatch

	cluster   *local.Cluster // nil where the API server is not ours
	clients   *kube.Clients
	admin     rest.Interface               // for /metrics
	namespace string                       // the one without a number, of the scenario's
	served    bool                         // Queues and PodGroups are
	labels    map[string]map[string]string // of the nodes

	begin, end    time.Time // first create, last Binding
	before, after map[string]local.Usage
	apiBefore     metrics
	storeBefore   metrics
	api, store    metrics // what was added
	samples       []sample
	insides       []inside           // where pods end
	idle          map[string]float64 // milli-cores, by group
	late          time.Duration
	conflicts     float64 // of Basalt's status writes
	spans         *spans
	requests      map[string]int // of the subject's user
	failed        map[string]int
}

func newTrial(w *work, s Subject, rate int, counting bool) *trial {
	t := &trial{work: w, subject: s, rate: rate, counting: counting, namespace: "basalt-bench"}
	t.gangs = slices.Collect(w.o.Scenario.MakeGangs(w.o.Seed, rate))
	for i := range t.gangs {
		t.pods += len(t.gangs[i].Pods)
	}
	t.watch = newPodWatch(t.gangs)
	return t
}

func (t *trial) run(ctx context.Context) (err error) {
	t.progress.Say("%s: starting", t.label)
	var config *rest.Config
	if t.o.Kubeconfig == "" {
		o := local.Options{Audit: t.counting, Basalt: t.o.Basalt}
		if t.o.Scenario.Topology() {
			o.APIServerFlags = []string{topologyGates, "--runtime-config=scheduling.k8s.io/v1beta1=true"}
		}
		t.cluster, err = local.Start(ctx, o)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, t.cluster.Stop()) }()
		if err := t.cluster.Install(ctx); err != nil {
			return err
		}
		config = t.cluster.Config(local.Load)
		t.clients, err = kube.ConnectConfig(config, "basalt-bench")
	} else {
		t.namespace = fmt.Sprintf("basalt-bench-%d", time.Now().Unix())
		t.clients, err = kube.Connect(t.o.Kubeconfig, "basalt-bench")
	}
	if err != nil {
		return err
	}
	t.admin = t.clients.Core.CoreV1().RESTClient()

	// What runs beside the load ends before the cluster does.
	beside, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	if t.subject.Volcano != NoVolcano {
		if err := errors.Join(t.cluster.DefineVolcano(ctx, nil), t.cluster.AllowVolcano(ctx)); err != nil {
			return err
		}
	}
	if err := t.prepare(ctx); err != nil {
		return err
	}
	if t.cluster == nil {
		defer func() { err = errors.Join(err, t.clean(context.WithoutCancel(ctx))) }()
	}
	nodes, err := t.nodes(ctx)
	if err != nil {
		return err
	}
	follower := follow(t.clients, t.namespaces(), fields.Everything(), t.watch.handler())
	wg.Go(func() { follower.Run(beside) })
	select {
	case <-follower.Synced():
	case <-ctx.Done():
		return ctx.Err()
	}
	if t.subject == Null() {
		wg.Go(func() { null(beside, t.clients, t.namespaces(), nodes) })
	}
	if t.ends() && t.cluster != nil {
		standIn, err := kube.ConnectConfig(t.cluster.Config(local.NodeStandIn), "node-stand-in")
		if err != nil {
			return err
		}
		wg.Go(func() { _ = kubelet.Run(beside, kubelet.Options{Client: standIn.Core}) })
	}
	if t.ends() {
		t.watch.ended = make(chan *scenario.Gang, len(t.gangs))
		wg.Go(func() { t.reap(beside) })
	}
	if err := t.startScheduler(ctx); err != nil {
		return err
	}
	if t.spans != nil {
		defer t.spans.Stop()
	}
	if err := t.warm(ctx); err != nil {
		return err
	}
	if t.counting {
		if err := t.rest(ctx); err != nil {
			return err
		}
	}
	if err := t.scrape(ctx, &t.apiBefore, &t.storeBefore); err != nil {
		return err
	}
	if err := t.give(ctx); err != nil {
		return err
	}
	var apiAfter, storeAfter metrics
	if err := t.scrape(ctx, &apiAfter, &storeAfter); err != nil {
		return err
	}
	t.api, t.store = apiAfter.minus(t.apiBefore), storeAfter.minus(t.storeBefore)
	if t.counting && t.cluster != nil {
		return t.readAuditLog()
	}
	return nil
}

// ends reports whether pods end while it is measured: then they live whole lives, and go when their gang has ended.
func (t *trial) ends() bool {
	return slices.ContainsFunc(t.gangs, func(g scenario.Gang) bool { return g.Lifetime > 0 })
}

// namespaces are the names of the scenario's namespaces.
func (t *trial) namespaces() []string {
	var out []string
	for _, n := range t.o.Scenario.MakeNamespaces(t.namespace) {
		out = append(out, n.Name)
	}
	return out
}

// prepare makes namespaces, queues, nodes, and what is of the load and there before it.
func (t *trial) prepare(ctx context.Context) error {
	core := t.clients.Core.CoreV1()
	err := each(ctx, closedWorkers, t.o.Scenario.MakeNamespaces(t.namespace), func(ctx context.Context, n *v1.Namespace) error {
		return create("namespace "+n.Name, func() error {
			_, err := core.Namespaces().Create(ctx, n, metav1.CreateOptions{})
			return err
		})
	})
	if err != nil {
		return err
	}
	for _, s := range t.o.Scenario.MakeServices(t.namespace) {
		err := create(fmt.Sprintf("Service %s/%s", s.Namespace, s.Name), func() error {
			_, err := core.Services(s.Namespace).Create(ctx, s, metav1.CreateOptions{})
			return err
		})
		if err != nil {
			return err
		}
	}
	if err := t.volumes(ctx); err != nil {
		return err
	}
	_, err = t.clients.Core.Discovery().ServerResourcesForGroupVersion(v1beta1.SchemeGroupVersion.String())
	if t.served = err == nil; !t.served && t.subject.Shards > 0 {
		return fmt.Errorf("find Basalt's kinds on the API server: %w", err)
	}
	if t.served {
		for _, q := range t.o.Scenario.MakeQueues() {
			err := create("queue "+q.Name, func() error { return t.clients.Basalt.Post().Resource("queues").Body(q).Do(ctx).Error() })
			if err != nil {
				return err
			}
		}
	}
	if t.cluster == nil && !t.o.MakeNodes {
		return nil
	}
	nodes := t.o.Scenario.MakeNodes(t.o.Seed)
	t.progress.Say("%s: making %d nodes", t.label, len(nodes))
	err = each(ctx, closedWorkers, nodes, func(ctx context.Context, n *v1.Node) error {
		return create("node "+n.Name, func() error {
			_, err := core.Nodes().Create(ctx, n, metav1.CreateOptions{})
			return err
		})
	})
	if err != nil {
		return err
	}
	return each(ctx, closedWorkers, t.o.Scenario.MakeCSINodes(), func(ctx context.Context, n *storagev1.CSINode) error {
		return create("CSINode "+n.Name, func() error {
			_, err := t.clients.Core.StorageV1().CSINodes().Create(ctx, n, metav1.CreateOptions{})
			return err
		})
	})
}

// podOf is a pod of a gang.
type podOf struct {
	gang *scenario.Gang
	pod  int
}

// withVolumes returns the pods that have a claim of their own.
func (t *trial) withVolumes() []podOf {
	var out []podOf
	for i := range t.gangs {
		g := &t.gangs[i]
		for j := range g.Pods {
			if g.Volume != "" {
				out = append(out, podOf{g, j})
			}
		}
	}
	return out
}

// volumes makes the claims of the pods and what they are bound to. There is no controller that would bind them.
func (t *trial) volumes(ctx context.Context) error {
	core := t.clients.Core.CoreV1()
	return each(ctx, closedWorkers, t.withVolumes(), func(ctx context.Context, p podOf) error {
		c := p.gang.Claim(p.pod, t.namespace)
		what := fmt.Sprintf("claim %s/%s", c.Namespace, c.Name)
		made, err := core.PersistentVolumeClaims(c.Namespace).Create(ctx, c, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("create %s: %w", what, err)
		}
		v, err := core.PersistentVolumes().Create(ctx, p.gang.PersistentVolume(made), metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("create the volume of %s: %w", what, err)
		}
		v.Status.Phase = v1.VolumeBound
		if _, err := core.PersistentVolumes().UpdateStatus(ctx, v, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("update the status of the volume of %s: %w", what, err)
		}
		made.Status = v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound, AccessModes: v.Spec.AccessModes, Capacity: v.Spec.Capacity}
		if _, err := core.PersistentVolumeClaims(c.Namespace).UpdateStatus(ctx, made, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("update the status of %s: %w", what, err)
		}
		return nil
	})
}

// clean takes away what was made on an API server that is not ours. Namespaces take their pods with them.
func (t *trial) clean(ctx context.Context) error {
	zero := int64(0)
	core := t.clients.Core.CoreV1()
	namespaces := t.namespaces()
	err := each(ctx, closedWorkers, namespaces, func(ctx context.Context, namespace string) error {
		err := core.Pods(namespace).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &zero}, metav1.ListOptions{})
		if t.served {
			err = errors.Join(err, t.clients.Basalt.Delete().Namespace(namespace).Resource("podgroups").Do(ctx).Error())
		}
		return err
	})
	if t.served {
		for _, q := range slices.Backward(t.o.Scenario.MakeQueues()) {
			err = errors.Join(err, t.clients.Basalt.Delete().Resource("queues").Name(q.Name).Do(ctx).Error())
		}
	}
	if t.o.MakeNodes {
		err = errors.Join(err, each(ctx, closedWorkers, t.o.Scenario.MakeNodes(t.o.Seed), func(ctx context.Context, n *v1.Node) error {
			return core.Nodes().Delete(ctx, n.Name, metav1.DeleteOptions{})
		}), each(ctx, closedWorkers, t.o.Scenario.MakeCSINodes(), func(ctx context.Context, n *storagev1.CSINode) error {
			return t.clients.Core.StorageV1().CSINodes().Delete(ctx, n.Name, metav1.DeleteOptions{})
		}))
	}
	return errors.Join(err, each(ctx, closedWorkers, namespaces, func(ctx context.Context, namespace string) error {
		return core.Namespaces().Delete(ctx, namespace, metav1.DeleteOptions{})
	}), each(ctx, closedWorkers, t.withVolumes(), func(ctx context.Context, p podOf) error {
		return core.PersistentVolumes().Delete(ctx, p.gang.Claim(p.pod, t.namespace).Spec.VolumeName, metav1.DeleteOptions{})
	}))
}

func (t *trial) nodes(ctx context.Context) ([]string, error) {
	list, err := t.clients.Core.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	var out []string
	t.labels = map[string]map[string]string{}
	for _, n := range list.Items {
		out = append(out, n.Name)
		t.labels[n.Name] = n.Labels
	}
	if len(out) == 0 {
		return nil, errors.New("the cluster has no nodes")
	}
	return out, nil
}

func (t *trial) startScheduler(ctx context.Context) error {
	if t.cluster == nil {
		return nil
	}
	t.progress.Say("%s: starting the scheduler", t.label)
	switch {
	case t.subject == KubeScheduler():
		var flags []string
		if t.o.Scenario.Topology() {
			flags = append(flags, topologyGates)
		}
		_, err := t.cluster.StartScheduler(ctx, -1, 0, flags...)
		return err
	case t.subject.Shards > 0:
		o := local.BasaltOptions{Flags: t.o.Flags}
		if t.subject.Volcano != NoVolcano {
			o.Flags = append(slices.Clone(o.Flags), "--volcano=write")
		}
		if t.subject.Env != "" {
			o.Env = []string{t.subject.Env}
		}
		if t.counting {
			var err error
			if t.spans, err = listenSpans(); err != nil {
				return err
			}
			o.OTLP = t.spans.Address
		}
		all, err := t.cluster.StartBasalt(ctx, 2, t.subject.Shards, o)
		if err != nil {
			return err
		}
		return t.ready(ctx, all)
	}
	return nil
}

// warm gives a pod to each leaf queue, up to 20, and waits until they have nodes: then any scheduler is awake and has its
// connections.
func (t *trial) warm(ctx context.Context) error {
	leaves := t.o.Scenario.Leaves()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	var waiting []<-chan struct{}
	for i, leaf := range leaves[:min(20, len(leaves))] {
		g := scenario.Gang{Name: fmt.Sprintf("warm-up-%d", i), Queue: leaf, MinCount: 1, Plain: true, Pods: []workload.Shape{{MilliCPU: 1, MemoryMiB: 1}}}
		bound, err := t.probe(ctx, g)
		if err != nil {
			return err
		}
		waiting = append(waiting, bound)
	}
	t.progress.Say("%s: warming up", t.label)
	for _, bound := range waiting {
		select {
		case <-bound:
		case <-ctx.Done():
			return fmt.Errorf("wait for the first pods to be bound by %q: %w", t.subject.Scheduler, ctx.Err())
		}
	}
	return nil
}

// probe makes a gang's only pod, which is not counted, and returns a channel that is closed when the pod has a node.
func (t *trial) probe(ctx context.Context, g scenario.Gang) (<-chan struct{}, error) {
	bound := t.watch.expect(g.PodName(0))
	return bound, create("pod "+g.PodName(0), func() error {
		_, err := t.clients.Core.CoreV1().Pods(t.namespace).Create(ctx, g.Pod(0, t.namespace, t.subject.Scheduler), metav1.CreateOptions{})
		return err
	})
}

// rest measures what the scheduler costs when there is nothing to do.
func (t *trial) rest(ctx context.Context) error {
	groups := groupsOf(t.cluster, t.o.Pids)
	const span = 5 * time.Second
	before := use(groups)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(span):
	}
	after := use(groups)
	t.idle = map[string]float64{}
	for g := range groups {
		t.idle[g] = 1000 * (after[g].CPU - before[g].CPU).Seconds() / span.Seconds()
	}
	return nil
}

// scrape reads metrics where they are counted.
func (t *trial) scrape(ctx context.Context, api, store *metrics) error {
	if !t.counting {
		return nil
	}
	var err error
	if *api, err = apiMetrics(ctx, t.admin); err != nil {
		return err
	}
	if t.subject.Shards > 0 && t.cluster != nil {
		*store, err = etcdMetrics(ctx, t.cluster.ControlStore()[0])
	}
	return err
}

// give gives the load and waits until all of it is bound, or patience is over.
func (t *trial) give(ctx context.Context) error {
	groups := groupsOf(t.cluster, t.o.Pids)
	beside, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	if t.counting && t.o.Profiles != "" {
		if err := t.profile(beside, &wg); err != nil {
			return err
		}
	}
	t.before = use(groups)
	t.begin = time.Now()
	wg.Go(func() {
		t.samples = look(beside, t.begin, groups, t.watch)
	})
	if t.ends() && t.cluster != nil && t.subject.Shards > 0 {
		wg.Go(func() { t.insides = lookInside(beside, t.begin, t.cluster.Basalts()) })
	}
	l := &load{clients: t.clients, namespace: t.namespace, scheduler: t.subject.Scheduler, groups: t.served, volcano: t.subject.Volcano == VolcanoGroups, workers: closedWorkers}
	if t.rate > 0 {
		l.workers = openWorkers
	}
	loaded := make(chan error, 1)
	wg.Go(func() { loaded <- l.run(beside, t.begin, t.gangs) })
	patience := time.NewTimer(t.gangs[len(t.gangs)-1].At + t.o.Patience)
	defer patience.Stop()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for running := true; running; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-loaded:
			if err != nil {
				return err
			}
			loaded = nil
		case <-tick.C:
			n, _ := t.watch.count()
			t.progress.Say("%s: %d of %d pods created, %d bound", t.label, l.made.Load(), t.pods, n)
		case <-t.watch.done:
			running = false
		case <-patience.C:
			running = false
		}
	}
	_, t.end = t.watch.count()
	select {
	case <-time.After(time.Until(t.end.Add(settle))):
	case <-ctx.Done():
		return ctx.Err()
	}
	t.after = use(groups)
	t.late = time.Duration(l.late.Load())
	if t.cluster != nil && t.subject.Shards > 0 {
		if err := t.countConflicts(ctx); err != nil {
			return err
		}
	}
	cancel()
	wg.Wait()
	return nil
}

// countConflicts asks Basalt's shards how many of their writes of statuses were refused for a conflict.
func (t *trial) countConflicts(ctx context.Context) error {
	for _, b := range t.cluster.Basalts() {
		samples, err := b.Samples(ctx)
		if err != nil {
			return err
		}
		for name, n := range samples {
			if strings.HasPrefix(name, "basalt_shard_api_writes_total{") && strings.Contains(name, `outcome="conflict"`) {
				t.conflicts += n
			}
		}
	}
	return nil
}

// cpu is what a group used in the window.
func (t *trial) cpu(groups ...string) time.Duration {
	var sum time.Duration
	for _, g := range groups {
		sum += t.after[g].CPU - t.before[g].CPU
	}
	return sum
}

func (t *trial) peak(groups ...string) (most int64) {
	for _, s := range t.samples {
		var sum int64
		for _, g := range groups {
			sum += s.use[g].Memory
		}
		most = max(most, sum)
	}
	return most
}

// own are the groups that are the scheduler's. The control store runs for all, and works for Basalt alone.
func (t *trial) own() []string {
	if t.subject.Shards > 0 {
		return []string{shards, coordinator, control}
	}
	return []string{scheduler}
}

// values are the figures of a run.
func (t *trial) values(run *report.Run) {
	bound, _ := t.watch.count()
	pods := float64(max(1, bound))
	run.Add(podsPerSecond, "", float64(bound)/max(1e-3, t.end.Sub(t.begin).Seconds()))
	whole, gang := report.NewLatency("", ""), report.NewLatency("", "")
	t.watch.latencies(whole, gang)
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	run.Add(bindP50, "ms", ms(whole.Percentile(50)))
	run.Add(bindP99, "ms", ms(whole.Percentile(99)))
	run.Add(gangP50, "ms", ms(gang.Percentile(50)))
	run.Add(gangP99, "ms", ms(gang.Percentile(99)))
	if t.rate > 0 {
		end := t.o.Scenario.Arrivals.Open.For.Duration
		run.Add("pods offered", "", float64(t.pods))
		run.Add(inTime, "", float64(t.watch.boundBy(t.begin.Add(end))))
		run.Add("creates answered late by at most", "ms", ms(t.late))
	}
	if own := t.cpu(t.own()...); own > 0 {
		run.Add(schedulerCPU, "ms", ms(own)/pods)
	}
	if own := t.cpu(apiServer, apiEtcd); own > 0 {
		run.Add(apiCPU, "ms", ms(own)/pods)
	}
	for _, g := range append(t.own(), apiServer, apiEtcd, loader) {
		if own := t.cpu(g); own > 0 {
			run.Add("CPU a pod: "+g, "ms", ms(own)/pods)
		}
	}
	if most := t.peak(t.own()...); most > 0 {
		run.Add("memory at most: scheduler, with its store", "B", float64(most))
	}
	if most := t.peak(apiServer); most > 0 {
		run.Add("memory at most: API server", "B", float64(most))
	}
	if t.cluster != nil && t.subject.Shards > 0 {
		run.Add("status conflicts", "", t.conflicts)
	}
	run.Add(notBound, "", float64(t.pods-bound))
	if t.o.Scenario.Topology() {
		run.Add("gangs in more than one domain", "", float64(t.watch.split(t.labels)))
	}
	if bound < t.pods {
		run.Note = fmt.Sprintf("%d of %d pods were not bound within %s", t.pods-bound, t.pods, t.o.Patience)
	}
	if t.watch.lists > 1 {
		run.Note = strings.TrimPrefix(fmt.Sprintf("%s; the measuring watch was cut %d times", run.Note, t.watch.lists-1), "; ")
	}
}

// slope reports whether what the scheduler keeps grows over a run in which pods come and go, and beside it whether the pods that
// there are do: what is kept for each of them is no leak.
func (t *trial) slope(run *report.Run) {
	var at []time.Duration
	var existing []float64
	own := map[string][]float64{}
	for _, s := range t.samples {
		if s.at > t.end.Sub(t.begin) {
			break
		}
		at = append(at, s.at)
		existing = append(existing, float64(s.existing))
		for _, g := range t.own() {
			own[g] = append(own[g], float64(s.use[g].Memory)/1e6)
		}
	}
	if len(at) == 0 {
		return
	}
	t.report.Slope(run, "pods that exist", "pods", at, existing)
	for _, g := range t.own() {
		if t.peak(g) > 0 {
			t.report.Slope(run, "memory of "+g, "MB", at, own[g])
		}
	}
	at = nil
	var heap, goroutines []float64
	for _, i := range t.insides {
		if i.at > t.end.Sub(t.begin) {
			break
		}
		at, heap, goroutines = append(at, i.at), append(heap, i.heap/1e6), append(goroutines, i.goroutines)
	}
	if len(at) > 0 {
		t.report.Slope(run, "heap in use of shards and coordinators", "MB", at, heap)
		t.report.Slope(run, "goroutines of shards and coordinators", "goroutines", at, goroutines)
	}
}

// counts are the values of the run that counts.
func (t *trial) counts(run *report.Run) {
	bound, _ := t.watch.count()
	pods := float64(max(1, bound))
	if t.requests != nil {
		sum := 0
		for _, n := range t.requests {
			sum += n
		}
		run.Add(writesPerPod, "", float64(sum)/pods)
		for _, what := range slices.Sorted(maps.Keys(t.requests)) {
			run.Add("its writes a pod: "+what, "", float64(t.requests[what])/pods)
		}
		for _, what := range slices.Sorted(maps.Keys(t.failed)) {
			run.Add("its writes that failed: "+what, "", float64(t.failed[what]))
		}
	}
	for _, g := range t.own() {
		if t.idle[g] > 0 {
			run.Add("CPU when idle: "+g, "milli-cores", t.idle[g])
		}
	}
	if t.subject.Shards > 0 {
		run.Add(storeWrites, "", t.store[etcdRevision]/pods)
		run.Add(storeKeys, "", t.store[etcdKeys]/pods)
	}
	for _, what := range slices.Sorted(maps.Keys(t.api)) {
		if strings.HasPrefix(what, "answers ") {
			run.Add(what, "", t.api[what])
		} else if n := t.api[what] / pods; n >= 0.005 { // less is the server's own
			run.Add("a pod: "+what, "", n)
		}
	}
}

// series are the time lines of a run: rates over the last second, cores in use, memory.
func (t *trial) series(r *report.Report, name string) {
	throughput := r.NewSeries(report.Throughput, name, "pods/s")
	memory := r.NewSeries(report.Memory, name, "B")
	cores := r.NewSeries(report.Utilisation, name+": scheduler", "cores")
	server := r.NewSeries(report.Utilisation, name+": API server and its etcd", "cores")
	var existing *report.Series
	if t.ends() {
		existing = r.NewSeries("pods that exist over time", name, "pods")
	}
	if len(t.insides) > 0 {
		heap := r.NewSeries(report.Memory, name+": heap in use, without the store's", "B")
		goroutines := r.NewSeries("goroutines over time", name, "goroutines")
		for _, i := range t.insides {
			heap.Add(i.at, i.heap)
			goroutines.Add(i.at, i.goroutines)
		}
	}
	sum := func(s sample, groups ...string) (u local.Usage) {
		for _, g := range groups {
			u = u.Plus(s.use[g])
		}
		return u
	}
	for i, s := range t.samples {
		memory.Add(s.at, float64(sum(s, t.own()...).Memory))
		if existing != nil {
			existing.Add(s.at, float64(s.existing))
		}
		if i < 4 {
			continue
		}
		before := t.samples[i-4]
		span := (s.at - before.at).Seconds()
		throughput.Add(s.at, float64(s.bound-before.bound)/span)
		cores.Add(s.at, (sum(s, t.own()...).CPU-sum(before, t.own()...).CPU).Seconds()/span)
		server.Add(s.at, (sum(s, apiServer, apiEtcd).CPU-sum(before, apiServer, apiEtcd).CPU).Seconds()/span)
	}
}

// readAuditLog counts the writes of the subject's users. Every line of a request is written before its handler ends.
func (t *trial) readAuditLog() error {
	var of func(user string) bool
	switch {
	case t.subject.Shards > 0:
		of = func(user string) bool { return strings.HasPrefix(user, auditlog.Users) }
	case t.subject == KubeScheduler():
		of = func(user string) bool { return user == local.Scheduler }
	default:
		return nil // null's Bindings are the load's
	}
	f, err := os.Open(t.cluster.AuditLog())
	if err != nil {
		return fmt.Errorf("open audit log: %w", err)
	}
	defer f.Close()
	// What came before the load (the warm-up, the first statuses) is not of it.
	t.requests, t.failed, err = auditlog.Requests(bufio.NewReader(f), t.begin, of)
	return err
}

// profile takes CPU profiles from soon after the beginning, 8 s long.
func (t *trial) profile(ctx context.Context, wg *sync.WaitGroup) error {
	dir := filepath.Join(t.o.Profiles, strings.NewReplacer(", ", "-", " ", "-").Replace(t.subject.Name))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make folder for profiles: %w", err)
	}
	var basalts []*local.Basalt
	if t.cluster != nil {
		basalts = t.cluster.Basalts()
	}
	wg.Go(func() {
		select {
		case <-ctx.Done():
		case <-time.After(2 * time.Second):
			_ = local.Profiles(ctx, dir, 8*time.Second, t.admin, basalts) // those that can be had
		}
	})
	return nil
}
