// Package chaos runs Basalt's real processes on a real API server and a real control store, loads them with gangs, and does
// to them whatever a bad day does: kills, pauses, restarts, lost and late answers, shards that come and go, limits that
// change, and, where it is asked for, a hostile tenant. An auditor watches from outside all the time. When the faults stop,
// everything must come to rest: every gang that can be bound was bound, nothing is charged or on its way, and no process has
// spoken of a broken invariant.
//
// It decides from one seed what load there is and what happens when; how the processes take it is real, so the same seed
// gives the same attack, not the same run. It owns the cluster that it is given, and judges nothing by itself but the rest
// at the end: package audit judges the way there.
package chaos

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/audit"
	"basalt.dev/basalt/api/audit/follow"
	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/wait"
	"basalt.dev/basalt/bench/stage/kubelet"
	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/network"
)

// Options of a run.
type Options struct {
	Cluster *local.Cluster // started, without Basalt; without an audit log it is faster
	// Network is the cluster's, in which the processes get namespaces of their own. Without it NoNetwork says why, and the
	// faults that need it are skipped.
	Network   *network.Network
	NoNetwork string
	// Old is an older version of Basalt's program, which runs beside the cluster's. Without it NoOld says why.
	Old, NoOld string
	// Points of package api/fault to visit, for programs that have them. The attack goes on after its time, for a few
	// minutes at most, until each was visited; those that were not are a problem.
	Points []fault.Point
	Seed   uint64
	For    time.Duration // how long load and faults last
	Rest   time.Duration // how long the system may take to come to rest after that
	// Faults names the faults to make; all of them if empty. See Kinds.
	Faults []string
	// Backlog is how many unfinished pods the load may have at once.
	Backlog      int
	Shards       int  // at first and at the end; 3 if 0
	MostShards   int  // when scaled up; one more than Shards if 0
	Coordinators int  // 2 if 0
	Long         bool // most pods run for long, whatever the seed says
	Hostile      bool // a tenant attacks, too: see package hostile
	Verbose      bool
	Log          func(format string, args ...any)
}

// Result is what a run found.
type Result struct {
	// Problems are what must not be, each in one line or more; none is a pass.
	Problems   []string
	Violations map[audit.Kind]int
	Faults     map[string]int    // made, by kind
	Skipped    map[string]int    // not made, by kind, for what is missing here
	Missing    map[string]string // why
	Visited    map[fault.Point]int
	// Failovers are the times from SIGKILL, other faults going on: of a shard until the table names its incarnation no more;
	// of the active coordinator until another has granted something.
	ShardFailovers, CoordinatorFailovers []time.Duration
	Revisions                            int64          // of the control store
	Gangs                                map[string]int // by what became of them
	Among                                map[string]int // of them, those that required something of other pods
	Recounts, Spared                     int            // pods whose affinity and spread were judged, and those that could not be
	Attacks                              map[string]int // made by the hostile tenant, by name
	Waited                               map[string]int // gangs that were seen waiting, by reason
	Pods                                 int
	Starts                               int           // of Basalt's processes
	Rested                               time.Duration // from the end of the faults until everything rested
}

func (r *Result) problem(format string, args ...any) {
	r.Problems = append(r.Problems, fmt.Sprintf(format, args...))
}

const namespace = "chaos"

// visitWithin is how much longer an attack may last to visit all crash points.
const visitWithin = 8 * time.Minute

// The nodes are few and small: room is short, and pieces of it are left over.
const (
	nodeCount = 14
	nodeCPU   = 4 // cores
)

type run struct {
	Options
	view    *view
	kube    *kube.Clients
	etcd    *clientv3.Client
	auditor *follow.Auditor
	members []*member
	crashes *crashes
	load    *load
	begin   time.Time
	result  Result
}

// Run makes one run. An error is about the harness; what Basalt did wrong is in the result.
func Run(ctx context.Context, o Options) (_ *Result, err error) {
	if o.Shards == 0 {
		o.Shards = 3
	}
	if o.MostShards == 0 {
		o.MostShards = o.Shards + 1
	}
	if o.Coordinators == 0 {
		o.Coordinators = 2
	}
	if o.Backlog == 0 {
		o.Backlog = 220
	}
	r := &run{Options: o, view: newView(), begin: time.Now(), result: Result{
		Faults: map[string]int{}, Skipped: map[string]int{}, Missing: map[string]string{}, Gangs: map[string]int{}}}
	if r.crashes, err = newCrashes(o.Cluster.Dir()); err != nil {
		return nil, err
	}
	if err := o.Cluster.Install(ctx); err != nil {
		return nil, err
	}
	beside, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	if err := r.prepare(beside, &wg); err != nil {
		return nil, err
	}
	if o.Hostile {
		if err := r.restrict(ctx); err != nil {
			return nil, err
		}
	}
	defer r.stopMembers()
	if err := r.startMembers(beside, &wg); err != nil {
		return nil, err
	}

	loading, stopLoad := context.WithCancel(ctx)
	defer stopLoad()
	load := newLoad(ctx, r)
	r.load = load
	var attack sync.WaitGroup
	attack.Go(func() {
		defer stopLoad()
		wait.For(loading, o.For)
		within, cancel := context.WithTimeout(loading, visitWithin)
		defer cancel()
		_ = poll(within, func() error {
			if left := r.crashes.missing(o.Points); len(left) > 0 {
				return fmt.Errorf("crash points %v were not visited", left)
			}
			return nil
		})
	})
	attack.Go(func() { load.produce(loading) })
	var harassed error
	if o.Hostile {
		attack.Go(func() { harassed = r.harass(loading) })
	}
	err = r.attack(loading, ctx)
	r.crashes.disarm()
	r.Log("the faults end")
	rest, stopRest := context.WithTimeout(ctx, o.Rest)
	defer stopRest()
	end := time.Now()
	if left := r.crashes.missing(o.Points); len(left) > 0 {
		r.result.problem("crash points %v were not visited", left)
	}
	if err == nil {
		err = r.heal(rest)
	}
	if err != nil {
		stopLoad()
		load.cancel()
		attack.Wait()
		return nil, err
	}
	attack.Wait() // no new gangs
	if harassed != nil {
		r.result.problem("the hostile tenant: %v", harassed)
	}
	load.wait(rest)
	load.cancel()
	r.rest(rest)
	r.result.Rested = time.Since(end)
	load.report()
	r.judge()
	return &r.result, ctx.Err()
}

func (r *run) logf(format string, args ...any) {
	r.Log("%7.2fs %s", time.Since(r.begin).Seconds(), fmt.Sprintf(format, args...))
}

// queueSpec is one queue of the tree: three levels, and the limits of each level bind.
type queueSpec struct {
	name      string
	cpu       int64 // cores
	memory    string
	guarantee int64
}

var queues = []queueSpec{
	{name: "org", cpu: 52},
	{name: "org.a", cpu: 32, memory: "40Gi"},
	{name: "org.a.x", cpu: 18}, {name: "org.a.y", cpu: 18}, {name: "org.a.z", cpu: 12, guarantee: 3},
	{name: "org.b", cpu: 30},
	{name: "org.b.x", cpu: 16}, {name: "org.b.y", cpu: 20, memory: "24Gi"},
	{name: "lab"}, // no limit at the top
	{name: "lab.m", cpu: 26},
	{name: "lab.m.p", cpu: 14}, {name: "lab.m.q", cpu: 20},
}

var leaves = []queueSpec{queues[2], queues[3], queues[4], queues[6], queues[7], queues[10], queues[11]}

func (q queueSpec) object(cpuPercent int64) *v1beta1.Queue {
	o := &v1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Name: q.name}}
	if q.cpu > 0 {
		o.Spec.Capability = v1.ResourceList{"cpu": *resource.NewMilliQuantity(q.cpu*10*cpuPercent, resource.DecimalSI)}
	}
	if q.memory != "" {
		o.Spec.Capability[v1.ResourceMemory] = resource.MustParse(q.memory)
	}
	if q.guarantee > 0 {
		o.Spec.Guarantee = v1.ResourceList{"cpu": *resource.NewQuantity(q.guarantee, resource.DecimalSI)}
	}
	return o
}

func (r *run) prepare(ctx context.Context, wg *sync.WaitGroup) (err error) {
	if r.kube, err = kube.ConnectConfig(r.Cluster.Config(local.Load), "basalt-chaos"); err != nil {
		return err
	}
	r.etcd, err = clientv3.New(clientv3.Config{Endpoints: r.Cluster.ControlStore(), DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		return fmt.Errorf("connect to the control store: %w", err)
	}
	wg.Go(func() { <-ctx.Done(); _ = r.etcd.Close() })
	longest := r.For
	if len(r.Points) > 0 {
		longest += visitWithin
	}
	r.auditor, err = follow.New(follow.Options{
		Etcd: r.etcd, Kube: r.Cluster.Config(local.Admin), StartRevision: 1, Tap: r.view.observe,
		// While faults last, the streams may be apart for as long as one of their servers is away, and no limit of time holds:
		// with a leader killed every few seconds a reservation outlives its gang for as long as it goes on (seed 900).
		Judge: audit.Config{Lag: 12 * time.Second, Grace: longest + 45*time.Second, Unresolved: longest + 60*time.Second},
		Found: func(v audit.Violation) { r.logf("VIOLATION %s", v) },
	})
	if err != nil {
		return err
	}
	failed := make(chan error, 1)
	wg.Go(func() { failed <- r.auditor.Run(ctx) })
	select {
	case <-r.auditor.Synced():
	case err := <-failed:
		return errors.Join(err, ctx.Err())
	}
	space := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	space.Labels = map[string]string{api.LabelRepelsOthers: "true"}
	_, err = r.kube.Core.CoreV1().Namespaces().Create(ctx, space, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create namespace: %w", err)
	}
	for _, q := range queues {
		if err := r.kube.Basalt.Post().Resource("queues").Body(q.object(100)).Do(ctx).Error(); err != nil {
			return fmt.Errorf("create queue %s: %w", q.name, err)
		}
	}
	for i := range nodeCount {
		n := newNode(fmt.Sprintf("node-%02d", i))
		if _, err := r.kube.Core.CoreV1().Nodes().Create(ctx, n, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create node %s: %w", n.Name, err)
		}
	}
	for name, value := range map[string]int32{"chaos-low": -10, "chaos-high": 1000} {
		p := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value}
		if _, err := r.kube.Core.SchedulingV1().PriorityClasses().Create(ctx, p, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create priority class %s: %w", name, err)
		}
	}
	standIn, err := kube.ConnectConfig(r.Cluster.Config(local.NodeStandIn), "node-stand-in")
	if err != nil {
		return err
	}
	wg.Go(func() { _ = kubelet.Run(ctx, kubelet.Options{Client: standIn.Core}) })
	return nil
}

func newNode(name string) *v1.Node {
	n := kubelet.Node(name, strconv.Itoa(nodeCPU), "8Gi", 12)
	n.Labels[v1.LabelTopologyZone] = zoneOf(name)
	return n
}

// zoneOf returns the zone of a node, while nobody moves it.
func zoneOf(node string) string {
	i, _ := strconv.Atoi(strings.TrimPrefix(node, "node-"))
	return fmt.Sprintf("zone-%d", i%zones)
}

// poll asks until there is no complaint, and returns the last one when time is over.
func poll(ctx context.Context, ask func() error) error {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ask()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}

// rest waits until nothing is left: that is what must follow when every gang has finished.
func (r *run) rest(ctx context.Context) {
	for _, what := range []struct {
		name string
		ask  func(context.Context) error
	}{
		{"control store", r.storeAtRest}, {"auditor", r.auditorAtRest}, {"queues", r.queuesAtRest}, {"groups", r.groupsAtRest}, {"shards", r.shardsAtRest},
	} {
		// Even when the time is over each gets a last chance: the complaints of all are wanted.
		if err := poll(ctx, func() error {
			one, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
			defer cancel()
			return what.ask(one)
		}); err != nil {
			r.result.problem("at the end, %s: %v", what.name, err)
		}
	}
}

func (r *run) storeAtRest(ctx context.Context) error {
	for _, prefix := range []string{"reservations/", "intents/"} {
		got, err := r.etcd.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
		if err != nil {
			return err
		}
		if len(got.Kvs) > 0 {
			var keys []string
			for _, kv := range got.Kvs {
				keys = append(keys, fmt.Sprintf("%s@%d", kv.Key, kv.ModRevision))
			}
			return fmt.Errorf("%d keys are left: %s", len(keys), strings.Join(keys[:min(8, len(keys))], " "))
		}
	}
	return nil
}

// auditorAtRest waits until the auditor has seen all that there was to see.
func (r *run) auditorAtRest(ctx context.Context) error {
	got, err := r.etcd.Get(ctx, "seq") // the newest change of all, when nothing else is left
	if err != nil {
		return err
	}
	if seen := r.auditor.Report().Revision; len(got.Kvs) == 1 && seen < got.Kvs[0].ModRevision {
		return fmt.Errorf("it has seen revision %d, there is %d", seen, got.Kvs[0].ModRevision)
	}
	return nil
}

func (r *run) queuesAtRest(ctx context.Context) error {
	var list v1beta1.QueueList
	if err := r.kube.Basalt.Get().Resource("queues").Do(ctx).Into(&list); err != nil {
		return err
	}
	for _, q := range list.Items {
		s := q.Status
		if s == nil {
			if q.Name == "root" {
				continue
			}
			return fmt.Errorf("%s has no status", q.Name)
		}
		for name, amount := range s.Charged {
			if !amount.IsZero() {
				return fmt.Errorf("the status of %s says that %s of %s are charged", q.Name, amount.String(), name)
			}
		}
		if s.AdmittedGangs != 0 || s.WaitingGangs != 0 {
			return fmt.Errorf("the status of %s speaks of %d admitted and %d waiting gangs", q.Name, s.AdmittedGangs, s.WaitingGangs)
		}
		if !meta.IsStatusConditionTrue(s.Conditions, v1beta1.ConditionReady) {
			return fmt.Errorf("queue %s is not ready: %v", q.Name, s.Conditions)
		}
		if want, got := q.Spec.Capability.Cpu(), s.Limits.Capability.Cpu(); want.Cmp(*got) != 0 {
			return fmt.Errorf("the status of %s names a limit of %s, its spec %s", q.Name, got, want)
		}
	}
	return nil
}

// groupsAtRest compares the statuses of groups with the pods that exist.
func (r *run) groupsAtRest(ctx context.Context) error {
	var list v1beta1.PodGroupList
	if err := r.kube.Basalt.Get().Namespace(namespace).Resource("podgroups").Do(ctx).Into(&list); err != nil {
		return err
	}
	for _, g := range list.Items {
		if g.Status == nil {
			return fmt.Errorf("%s has no status", g.Name)
		}
		if !meta.IsStatusConditionTrue(g.Status.Conditions, v1beta1.ConditionPodGroupInitiallyScheduled) {
			return fmt.Errorf("%s is not said to be scheduled: %+v", g.Name, g.Status)
		}
	}
	return nil
}

// shardsAtRest asks the shards themselves, by their metrics.
func (r *run) shardsAtRest(ctx context.Context) error {
	sums := map[string]float64{}
	for _, m := range r.members {
		b := m.running()
		if m.role != "shard" || b == nil {
			continue
		}
		samples, err := b.Samples(ctx)
		if err != nil {
			return err
		}
		for name, v := range asNow(samples) {
			if strings.HasPrefix(name, "basalt_shard_waiting_gangs{") {
				name = "basalt_shard_waiting_gangs"
			}
			sums[name] += v
		}
	}
	want := map[string]float64{
		`basalt_shard_buckets`: 1024, `basalt_shard_intents`: 0, `basalt_shard_waiting_gangs`: 0,
		`basalt_shard_nodes{state="in_sync"}`: nodeCount, `basalt_shard_nodes{state="out_of_sync"}`: 0,
		`basalt_shard_free{resource="cpu",unit="core"}`: nodeCount * nodeCPU, `basalt_shard_broken_invariants_total`: 0,
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if sums[name] != want[name] {
			return fmt.Errorf("%s is %g, not %g", name, sums[name], want[name])
		}
	}
	return nil
}

// asNow returns the samples of a shard under the names and in the units of today, for those that shardsAtRest reads: a run with --old has
// shards from before they were renamed (see "Renamed" in deploy/docs/metrics.md).
func asNow(samples map[string]float64) map[string]float64 {
	out := maps.Clone(samples)
	if _, old := samples[`basalt_shard_gangs{state="known"}`]; old { // state="waiting" is of one state of a gang's life now
		out["basalt_shard_waiting_gangs"] = samples[`basalt_shard_gangs{state="waiting"}`]
	}
	if n, old := samples[`basalt_shard_nodes{state="owned"}`]; old {
		out[`basalt_shard_nodes{state="in_sync"}`] = n - samples[`basalt_shard_nodes{state="out_of_sync"}`]
	}
	if milli, old := samples[`basalt_shard_free{resource="cpu"}`]; old {
		out[`basalt_shard_free{resource="cpu",unit="core"}`] = milli / 1000
	}
	return out
}

// ready asks a process once.
func ready(ctx context.Context, b *local.Basalt) bool {
	resp, err := b.Get(ctx, "/readyz")
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// judge adds what the auditor and the logs say.
func (r *run) judge() {
	report := r.auditor.Report()
	r.result.Violations, r.result.Revisions = report.Counts, report.Revision
	r.result.Recounts, r.result.Spared = report.Recounts, report.Spared
	r.result.Visited = r.crashes.visited
	r.result.ShardFailovers, r.result.CoordinatorFailovers = r.view.failovers()
	for _, v := range report.Violations {
		r.result.problem("audit: %s", v)
	}
	for _, m := range r.members {
		for _, line := range complaints(m.log()) {
			r.result.problem("%s: %s", m.name, line)
		}
		r.result.Starts += m.starts()
	}
}

// complaints finds in a log what no process of ours may say, whatever is done to it.
func complaints(path string) (found []string) {
	if path == "" {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return []string{err.Error()}
	}
	defer f.Close()
	lines := bufio.NewReaderSize(f, 1<<20)
	for len(found) < 10 {
		line, err := lines.ReadString('\n')
		line = strings.TrimSpace(line)
		bad := strings.Contains(line, "level=ERROR") || strings.Contains(line, "WARNING: DATA RACE") ||
			strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ")
		if bad {
			if !strings.Contains(line, "level=ERROR") {
				for range 40 {
					more, err := lines.ReadString('\n')
					line += "\n" + strings.TrimSpace(more)
					if err != nil {
						break
					}
				}
			}
			found = append(found, line)
		}
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return append(found, err.Error())
		}
	}
	return found
}

// between draws a duration.
func between(r *rand.Rand, low, high time.Duration) time.Duration {
	return low + time.Duration(r.Int64N(int64(high-low)+1))
}
