// Package failover measures how long Basalt's real processes leave work lying when one of them goes: a shard or the active
// coordinator, killed, or stopped in order as an upgrade does; and how long gossip takes to be whole again after a split.
//
// What is timed is what a user sees, from the signal to a Binding. After the kill of a shard, pods are made in queues that
// were its own and for nodes that were its own, and then in queues of other shards that any node may run: with a topology
// spread constraint of an app of which the killed shard was just placing pods, and without. The time of a round is that of the
// slowest. It judges nothing but that every pod is bound in the end.
//
// The package also measures what the first pod of a group that nobody spread before waits longer than one of a known group.
package failover

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/wait"
	"basalt.dev/basalt/bench/measure/report"
	"basalt.dev/basalt/bench/stage/kubelet"
	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/network"
	"basalt.dev/basalt/bench/stage/observe"
)

// Options of a measurement.
type Options struct {
	Cluster              *local.Cluster // started, without Basalt
	Shards, Coordinators int
	Rounds               int // in which a shard and the active coordinator are killed
	Groups               int // new groups of pods that are spread over zones, each with one pod
	Restarts             int // of each, in order and under load
	// RestartAfter is when a killed process is started again under its name. Longer than a failover, others take over; it
	// is what the figures are about.
	RestartAfter time.Duration
	Rate         float64 // gangs of four pods that are made in a second while processes are restarted in order
	Verbose      bool    // let shards and coordinators log more
	Out          io.Writer
	// Network gives each process a namespace; without it no split is made.
	Network *network.Network
	Splits  int           // into two halves that hear nothing of each other
	Split   time.Duration // that long
	// Gangs that are not bound within Limit are an error; 2 minutes if 0.
	Limit time.Duration
}

// Result holds the times of all rounds, in their order.
type Result struct {
	Shard, Coordinator []time.Duration // from SIGKILL to the last Binding
	// Spread and Plain are the times from creation to Binding of pods of other shards' queues, made when a shard was killed, with and without
	// a constraint: of the slowest in each round.
	Spread, Plain []time.Duration
	// FirstOfGroup and LaterOfGroup are the times from creation to Binding of the first pods of groups, and of pods of a known one.
	FirstOfGroup, LaterOfGroup []time.Duration
	// Quiet are the times from creation to the last Binding of gangs while nothing was restarted; ShardRestart and
	// CoordinatorRestart those of the slowest gang of each restart in order.
	Quiet, ShardRestart, CoordinatorRestart []time.Duration
	// Healed are the times from the end of a split until gossip takes everybody for alive everywhere.
	Healed []time.Duration
}

const (
	namespace  = "failover"
	nodeCount  = 24
	queueCount = 24
	zoneCount  = 3
)

type run struct {
	Options
	kube                 *kube.Clients
	etcd                 *clientv3.Client
	shards, coordinators map[string]*local.Basalt // by name
	serial               int
	made                 map[string]time.Time // probes, by name

	mu    sync.Mutex
	bound map[string]time.Time // pods, by name
	next  chan struct{}        // closed at each Binding
}

// Run measures.
func Run(ctx context.Context, o Options) (*Result, error) {
	if o.Limit == 0 {
		o.Limit = 2 * time.Minute
	}
	ctx, cancel := context.WithCancel(ctx)
	r := &run{Options: o, shards: map[string]*local.Basalt{}, coordinators: map[string]*local.Basalt{}, made: map[string]time.Time{}, bound: map[string]time.Time{}, next: make(chan struct{})}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	if err := r.prepare(ctx, &wg); err != nil {
		return nil, err
	}
	result := &Result{}
	if o.Groups > 0 {
		if err := r.groups(ctx, result); err != nil {
			return result, fmt.Errorf("new groups: %w", err)
		}
	}
	for i := range o.Rounds {
		took, err := r.killShard(ctx, i, result)
		if err != nil {
			return result, fmt.Errorf("round %d: %w", i, err)
		}
		result.Shard = append(result.Shard, took)
		leader, err := r.killLeader(ctx)
		if err != nil {
			return result, fmt.Errorf("round %d: %w", i, err)
		}
		result.Coordinator = append(result.Coordinator, leader)
		fmt.Fprintf(o.Out, "round %d: shard %s, coordinator %s\n", i, took.Round(time.Millisecond), leader.Round(time.Millisecond))
	}
	for range o.Splits {
		took, err := r.split(ctx)
		if err != nil {
			return result, fmt.Errorf("split: %w", err)
		}
		result.Healed = append(result.Healed, took)
		fmt.Fprintf(o.Out, "gossip was whole %s after a split of %s\n", took.Round(time.Millisecond), o.Split)
	}
	if o.Restarts > 0 {
		if err := r.restarts(ctx, result); err != nil {
			return result, err
		}
	}
	return result, nil
}

func (r *run) prepare(ctx context.Context, wg *sync.WaitGroup) (err error) {
	if err := r.Cluster.Install(ctx); err != nil {
		return err
	}
	if r.kube, err = kube.ConnectConfig(r.Cluster.Config(local.Load), "basalt-failover"); err != nil {
		return err
	}
	if r.etcd, err = clientv3.New(clientv3.Config{Endpoints: r.Cluster.ControlStore(), DialTimeout: 10 * time.Second, Logger: zap.NewNop()}); err != nil {
		return fmt.Errorf("connect to the control store: %w", err)
	}
	wg.Go(func() { <-ctx.Done(); _ = r.etcd.Close() })
	if _, err := r.kube.Core.CoreV1().Namespaces().Create(ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create namespace: %w", err)
	}
	for i := range queueCount + 1 {
		q := &v1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Name: "team"}}
		if i > 0 {
			q.Name = queueName(i - 1)
		}
		q.Spec.Capability = v1.ResourceList{"cpu": resource.MustParse("1000")}
		if err := r.kube.Basalt.Post().Resource("queues").Body(q).Do(ctx).Error(); err != nil {
			return fmt.Errorf("create queue %s: %w", q.Name, err)
		}
	}
	for i := range nodeCount {
		node := kubelet.Node(nodeName(i), "32", "128Gi", 200)
		node.Labels[v1.LabelTopologyZone] = fmt.Sprintf("zone-%d", i%zoneCount)
		if _, err := r.kube.Core.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create node: %w", err)
		}
	}
	standIn, err := kube.ConnectConfig(r.Cluster.Config(local.NodeStandIn), "node-stand-in")
	if err != nil {
		return err
	}
	wg.Go(func() { _ = kubelet.Run(ctx, kubelet.Options{Client: standIn.Core}) })
	see := func(p *v1.Pod) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if _, known := r.bound[p.Name]; p.Spec.NodeName != "" && !known {
			r.bound[p.Name] = time.Now()
			close(r.next)
			r.next = make(chan struct{})
		}
	}
	pods := kube.Follow(r.kube.Core.CoreV1().RESTClient(), "pods", slog.New(slog.DiscardHandler), kube.Handler[*v1.Pod]{
		Replaced: func(all []*v1.Pod, _ kube.Ticket) {
			for _, p := range all {
				see(p)
			}
		}, Seen: see, Gone: func(*v1.Pod) {}})
	wg.Go(func() { pods.Run(ctx) })

	var flags []string
	if r.Verbose {
		flags = append(flags, "--verbose")
	}
	start := func(n int, role string, start func(context.Context, string, local.BasaltOptions) (*local.Basalt, error), into map[string]*local.Basalt) error {
		for i := range n {
			name := fmt.Sprintf("%s-%d", role, i)
			var place network.Place
			if r.Network != nil {
				if place, err = r.Network.Join(name); err != nil {
					return err
				}
			}
			b, err := start(ctx, name, local.BasaltOptions{Place: place, Restart: true, RestartAfter: r.RestartAfter, Flags: flags})
			if err != nil {
				return err
			}
			into[name] = b
		}
		return nil
	}
	if err := start(r.Coordinators, "coordinator", r.Cluster.StartCoordinator, r.coordinators); err != nil {
		return err
	}
	if err := start(r.Shards, "shard", r.Cluster.StartShard, r.shards); err != nil {
		return err
	}
	return r.settled(ctx)
}

func queueName(i int) string { return fmt.Sprintf("team.q%02d", i) }
func nodeName(i int) string  { return fmt.Sprintf("node-%02d", i) }

// settled waits until every process is ready and owns its share.
func (r *run) settled(ctx context.Context) error {
	for _, b := range slices.Concat(slices.Collect(maps.Values(r.shards)), slices.Collect(maps.Values(r.coordinators))) {
		if err := b.WaitReady(ctx); err != nil {
			return err
		}
	}
	return r.poll(ctx, "the table to be even", func() (bool, error) {
		s, err := observe.Read(ctx, r.etcd)
		if err != nil || s.Table == nil || len(s.Table.Members) != r.Shards {
			return false, nil
		}
		for _, m := range s.Table.Members {
			if s.Table.Owned(m.Incarnation) < api.Buckets/r.Shards*9/10 {
				return false, nil
			}
		}
		return true, nil
	})
}

func (r *run) poll(ctx context.Context, what string, ask func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, r.Limit)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		if ok, err := ask(); err != nil || ok {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", what, ctx.Err())
		case <-tick.C:
		}
	}
}

func (r *run) leader(ctx context.Context) (name string, err error) {
	err = r.poll(ctx, "a coordinator to lead", func() (bool, error) {
		s, err := observe.Read(ctx, r.etcd)
		if err == nil {
			name = s.Leader.GetName()
		}
		return name != "", nil
	})
	return name, err
}

// spread has a pod spread with others of its app over zones.
func spread(app string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Labels["app"] = app
		p.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: v1.LabelTopologyZone, WhenUnsatisfiable: v1.DoNotSchedule,
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}}}
	}
}

// on has a pod run on a node.
func on(node string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{v1.LabelHostname: node} }
}

func anywhere(*v1.Pod) {}

// makePod makes a pod that runs for a moment.
func (r *run) makePod(ctx context.Context, name string, labels map[string]string, where func(*v1.Pod)) error {
	zero := int64(0)
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels, Annotations: map[string]string{kubelet.RunSeconds: "0.5"}},
		Spec: v1.PodSpec{SchedulerName: api.SchedulerName, RestartPolicy: v1.RestartPolicyNever, TerminationGracePeriodSeconds: &zero,
			Containers: []v1.Container{{Name: "main", Image: "none", Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("100m")}}}}}}
	where(p)
	if _, err := r.kube.Core.CoreV1().Pods(namespace).Create(ctx, p, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create pod: %w", err)
	}
	return nil
}

func (r *run) removePod(ctx context.Context, name string) {
	zero := int64(0)
	_ = r.kube.Core.CoreV1().Pods(namespace).Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &zero})
}

// await gives the time at which the last of the pods was seen bound.
func (r *run) await(ctx context.Context, pods []string) (last time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.Limit)
	defer cancel()
	for {
		last = time.Time{}
		var missing []string
		r.mu.Lock()
		next := r.next
		for _, p := range pods {
			if at, ok := r.bound[p]; !ok {
				missing = append(missing, p)
			} else if at.After(last) {
				last = at
			}
		}
		r.mu.Unlock()
		if len(missing) == 0 {
			for _, p := range pods {
				r.removePod(ctx, p)
			}
			return last, nil
		}
		select {
		case <-next:
		case <-ctx.Done():
			return last, fmt.Errorf("pods %v were not bound within %s", missing, r.Limit)
		}
	}
}

// killShard kills a shard and makes a pod in each of some queues that were its own, for nodes that were its own.
func (r *run) killShard(ctx context.Context, round int, result *Result) (time.Duration, error) {
	if err := r.settled(ctx); err != nil {
		return 0, err
	}
	s, err := observe.Read(ctx, r.etcd)
	if err != nil {
		return 0, err
	}
	t := s.Table
	victim := t.Members[round%len(t.Members)]
	divide := func(count int, name func(int) string) (owned, others []string) {
		for i := range count {
			if t.OwnerOf(name(i)) == victim.Incarnation {
				owned = append(owned, name(i))
			} else {
				others = append(others, name(i))
			}
		}
		return owned, others
	}
	queues, others := divide(queueCount, queueName)
	nodes, _ := divide(nodeCount, nodeName)
	if len(queues) == 0 || len(nodes) == 0 || len(others) == 0 {
		return 0, fmt.Errorf("%s owns %d of %d queues and %d of %d nodes", victim.Name, len(queues), queueCount, len(nodes), nodeCount)
	}
	app := fmt.Sprintf("round-%d", round)
	underway, err := r.probes(ctx, len(queues), func(i int) (string, func(*v1.Pod)) { return queues[i], spread(app) })
	if err != nil {
		return 0, err
	}
	began := time.Now()
	r.shards[victim.Name].Kill()
	var all [3][]string
	for kind, of := range []struct {
		queues []string
		where  func(i int) func(*v1.Pod)
	}{
		{queues, func(i int) func(*v1.Pod) { return on(nodes[i%len(nodes)]) }},
		{others, func(int) func(*v1.Pod) { return spread(app) }},
		{others, func(int) func(*v1.Pod) { return anywhere }},
	} {
		if all[kind], err = r.probes(ctx, 8, func(i int) (string, func(*v1.Pod)) { return of.queues[i%len(of.queues)], of.where(i) }); err != nil {
			return 0, err
		}
	}
	last, err := r.await(ctx, all[0])
	for _, others := range [][]string{all[1], all[2], underway} {
		if err == nil {
			_, err = r.await(ctx, others)
		}
	}
	if err != nil {
		return 0, err
	}
	result.Spread, result.Plain = append(result.Spread, r.slowest(all[1])), append(result.Plain, r.slowest(all[2]))
	return last.Sub(began), nil
}

func (r *run) killLeader(ctx context.Context) (time.Duration, error) {
	if err := r.settled(ctx); err != nil {
		return 0, err
	}
	name, err := r.leader(ctx)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	r.coordinators[name].Kill()
	pods, err := r.probes(ctx, 8, func(i int) (string, func(*v1.Pod)) { return queueName(i * 3), anywhere })
	if err != nil {
		return 0, err
	}
	last, err := r.await(ctx, pods)
	return last.Sub(began), err
}

// probes makes some pods.
func (r *run) probes(ctx context.Context, count int, of func(i int) (queue string, where func(*v1.Pod))) (pods []string, err error) {
	for i := range count {
		r.serial++
		name := fmt.Sprintf("probe-%d", r.serial)
		pods = append(pods, name)
		r.made[name] = time.Now()
		queue, where := of(i)
		if err := r.makePod(ctx, name, map[string]string{api.LabelQueue: queue}, where); err != nil {
			return nil, err
		}
	}
	return pods, nil
}

// slowest returns the longest time from the creation of one of the pods, which are bound, to its Binding.
func (r *run) slowest(pods []string) (most time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range pods {
		most = max(most, r.bound[p].Sub(r.made[p]))
	}
	return most
}

// groups makes one pod after another, in turn the first of a new group and one of a group that is known, while nothing else happens.
func (r *run) groups(ctx context.Context, result *Result) error {
	if err := r.settled(ctx); err != nil {
		return err
	}
	one := func(app string) (time.Duration, error) {
		pods, err := r.probes(ctx, 1, func(int) (string, func(*v1.Pod)) { return queueName(r.serial % queueCount), spread(app) })
		if err != nil {
			return 0, err
		}
		_, err = r.await(ctx, pods)
		return r.slowest(pods), err
	}
	if _, err := one("known"); err != nil {
		return err
	}
	for i := range r.Groups {
		first, err := one(fmt.Sprintf("new-%d", i))
		if err != nil {
			return err
		}
		later, err := one("known")
		if err != nil {
			return err
		}
		result.FirstOfGroup, result.LaterOfGroup = append(result.FirstOfGroup, first), append(result.LaterOfGroup, later)
	}
	return nil
}

// split cuts half of the processes from the others, and measures how long gossip needs when the cut has healed.
func (r *run) split(ctx context.Context) (time.Duration, error) {
	if err := r.settled(ctx); err != nil {
		return 0, err
	}
	all := maps.Clone(r.shards)
	maps.Copy(all, r.coordinators)
	names := slices.Sorted(maps.Keys(all))
	var paths []network.Path
	for i, a := range names {
		for j, b := range names {
			if i%2 != j%2 {
				paths = append(paths, network.Path{From: a, To: b})
			}
		}
	}
	whole := func() (bool, error) {
		for _, b := range all {
			samples, err := b.Samples(ctx)
			if err != nil || samples["basalt_gossip_peers"] != float64(len(all)-1) {
				return false, nil
			}
		}
		return true, nil
	}
	if err := r.poll(ctx, "gossip to be whole", whole); err != nil {
		return 0, err
	}
	if err := r.Network.Break(100, paths...); err != nil {
		return 0, err
	}
	if !wait.For(ctx, r.Split) {
		return 0, ctx.Err()
	}
	if ok, _ := whole(); ok {
		return 0, errors.New("gossip did not notice")
	}
	if err := r.Network.Mend(100, paths...); err != nil {
		return 0, err
	}
	began := time.Now()
	err := r.poll(ctx, "gossip to be whole again", whole)
	return time.Since(began), err
}

// gang is one of the load's.
type gang struct {
	begun time.Time
	done  bool
	took  time.Duration // from its last pod's creation to its last Binding
	err   error
}

const gangSize = 4

// restarts stops shards and the leader in order under load, one after another, and notes the slowest gang of each time.
func (r *run) restarts(ctx context.Context, result *Result) error {
	if err := r.settled(ctx); err != nil {
		return err
	}
	loading, stop := context.WithCancel(ctx)
	var mu sync.Mutex
	var gangs []*gang
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	wg.Go(func() {
		tick := time.NewTicker(time.Duration(float64(time.Second) / r.Rate))
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-loading.Done():
				return
			case <-tick.C:
			}
			g := &gang{begun: time.Now()}
			mu.Lock()
			gangs = append(gangs, g)
			mu.Unlock()
			wg.Go(func() {
				took, err := r.oneGang(ctx, i)
				mu.Lock()
				defer mu.Unlock()
				g.done, g.took, g.err = true, took, err
			})
		}
	})
	// collect waits until every gang that was begun between two times is bound.
	collect := func(from, to time.Time) (times []time.Duration, err error) {
		err = r.poll(ctx, "gangs to be bound", func() (bool, error) {
			mu.Lock()
			defer mu.Unlock()
			times = times[:0]
			done := time.Now().After(to)
			for _, g := range gangs {
				if g.begun.Before(from) || g.begun.After(to) {
					continue
				}
				if g.err != nil {
					return false, g.err
				}
				times = append(times, g.took)
				done = done && g.done
			}
			return done, nil
		})
		if err == nil && len(times) == 0 {
			err = errors.New("no gang was made")
		}
		return times, err
	}
	// restart stops a process in order, and returns the time of the slowest gang of half a second before and 8 s after.
	restart := func(b *local.Basalt) (time.Duration, error) {
		began := time.Now()
		_ = b.Signal(syscall.SIGTERM)
		times, err := collect(began.Add(-500*time.Millisecond), began.Add(8*time.Second))
		if err != nil {
			return 0, err
		}
		return slices.Max(times), r.settled(ctx)
	}
	for round := range r.Restarts {
		quiet, err := collect(time.Now(), time.Now().Add(3*time.Second))
		if err != nil {
			return err
		}
		result.Quiet = append(result.Quiet, quiet...)
		shard, err := restart(r.shards[fmt.Sprintf("shard-%d", round%r.Shards)])
		if err != nil {
			return err
		}
		name, err := r.leader(ctx)
		if err != nil {
			return err
		}
		coordinator, err := restart(r.coordinators[name])
		if err != nil {
			return err
		}
		result.ShardRestart, result.CoordinatorRestart = append(result.ShardRestart, shard), append(result.CoordinatorRestart, coordinator)
		fmt.Fprintf(r.Out, "%s restart %d: slowest gang of the shard's %s, of the coordinator's %s, when quiet %s of %d\n", time.Now().Format("15:04:05.000"), round,
			shard.Round(time.Millisecond), coordinator.Round(time.Millisecond), slices.Max(quiet).Round(time.Millisecond), len(quiet))
	}
	stop()
	return nil
}

// oneGang makes a gang and waits until it is bound.
func (r *run) oneGang(ctx context.Context, i int) (time.Duration, error) {
	name := fmt.Sprintf("g%d", i)
	o := &v1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1beta1.PodGroupSpec{Queue: queueName(i % queueCount), SchedulingPolicy: v1beta1.SchedulingPolicy{Gang: v1beta1.GangSchedulingPolicy{MinCount: gangSize}}}}
	if err := r.kube.Basalt.Post().Namespace(namespace).Resource("podgroups").Body(o).Do(ctx).Error(); err != nil {
		return 0, fmt.Errorf("create PodGroup: %w", err)
	}
	var pods []string
	for k := range gangSize {
		pod := fmt.Sprintf("%s-%d", name, k)
		pods = append(pods, pod)
		if err := r.makePod(ctx, pod, map[string]string{api.LabelPodGroup: name}, anywhere); err != nil {
			return 0, err
		}
	}
	made := time.Now()
	last, err := r.await(ctx, pods)
	_ = r.kube.Basalt.Delete().Namespace(namespace).Resource("podgroups").Name(name).Do(ctx).Error()
	return max(0, last.Sub(made)), err
}

// Write prints the percentiles.
func (r *Result) Write(w io.Writer) {
	for _, line := range []struct {
		what  string
		times []time.Duration
	}{
		{"shard killed: its queues and nodes are served again after", r.Shard},
		{"shard killed: pods of other queues, spread over zones, are bound after", r.Spread},
		{"shard killed: pods of other queues without constraints are bound after", r.Plain},
		{"coordinator killed: admission resumes after", r.Coordinator},
		{"gossip split: everybody is heard again after", r.Healed},
		{"first pod of a group that is spread over zones: bound after", r.FirstOfGroup},
		{"pod of a group that is known: bound after", r.LaterOfGroup},
		{"no restart: a gang is bound after", r.Quiet},
		{"shard restarted in order: the slowest gang is bound after", r.ShardRestart},
		{"coordinator restarted in order: the slowest gang is bound after", r.CoordinatorRestart},
	} {
		if len(line.times) > 0 {
			fmt.Fprintf(w, "  %-71s %s\n", line.what, report.Percentiles(line.times))
		}
	}
}
