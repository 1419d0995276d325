package cluster

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/store"
	"basalt.dev/basalt/bench/memory"
	"basalt.dev/basalt/bench/report"
	"basalt.dev/basalt/bench/scenario"
	"basalt.dev/basalt/bench/workload"
)

// Options of a run.
type Options struct {
	Root, Dir string
	Shards    int
	Scenario  *scenario.Scenario
	Seed      uint64
	Policy    string

	// Fill is the percentage of its share of the cluster that each leaf queue's gangs ask for together, at all times. 0: the
	// scenario's own arrivals.
	Fill    int
	Backlog int           // with Fill: no gang is made while so many pods have no node yet
	WarmUp  time.Duration // not measured
	Measure time.Duration
	Drain   time.Duration // for what is there at the end to be placed and to end
	Large   int           // gangs of 10,000 pods in 10 classes, one after the other, beside the load

	Never int // pods, gangs of one, that no node could take if it were empty, from the start on

	Progress func(format string, args ...any) // one line a second; may be nil
	Sample   func(Sample)                     // once a second; may be nil
}

// Sample is what a second looked like.
type Sample struct {
	At                time.Duration
	Bound             int64 // pods, since the start
	Waiting           int   // gangs
	Charged           float64
	Allocated         float64 // of the nodes' CPU, in percent
	Goroutines        int
	Heap              uint64
	StoreSize         int64
	StatusWrites      int64
	StatusConflicts   int64
	Pods, Gangs       int
	StoreReservations float64
	StoreIntents      float64
}

// Result of a run. Figures are of the measured part, but for those that a run must not have at any time.
type Result struct {
	Took         time.Duration
	CPU          CPU
	Pods, Gangs  int64
	Crossing     int64 // gangs with pods on nodes of several shards
	Finished     int64
	Transactions int64 // write transactions of the control store
	Reservations float64
	Messages     map[string]float64
	Holds        map[string]float64 // pods, by what became of a request
	Commits      map[string]float64
	Statuses     map[string]int64 // patches of statuses, by resource
	Conflicts    map[string]int64
	WatchEvents  int64
	Allocated    float64 // CPU that pods hold, mean, percent of the nodes
	Waiting      float64 // gangs, mean

	MadePods, TotalPods int64 // from the beginning to the end

	Refusals, RefusedWrongly int64
	Late                     []string // gangs that waited though the oracle saw room
	Overcommitted            []string // nodes
	Left                     []string // what should not be there after the drain
	Latency                  *report.Latency
	LargeHeld, LargeDurable  *report.Latency
}

type counters struct {
	at                                                time.Time
	cpu                                               CPU
	pods, gangs, crossing, finished, revision, events int64
	messages, holds, commits                          map[string]float64
	grants                                            float64
	statuses, conflicts                               map[string]int64
}

type run struct {
	Options
	api   *memory.Server
	world *world
	plant *Plant
	load  *load
	began time.Time
	late  []string
}

// Run builds everything, runs the load and takes everything down again.
func Run(ctx context.Context, o Options) (res *Result, err error) {
	if o.Progress == nil {
		o.Progress = func(string, ...any) {}
	}
	r := &run{Options: o, api: memory.New(memory.Options{Seed: o.Seed}), began: time.Now()}
	nodes, queues := o.Scenario.MakeNodes(o.Seed), o.Scenario.MakeQueues()
	r.world = newWorld(nodes, queues)
	r.world.kubelet = newKubelet(r.api)
	for _, n := range nodes {
		if _, err := r.api.Create("nodes", n); err != nil {
			return nil, fmt.Errorf("create node %s: %w", n.Name, err)
		}
	}
	for _, q := range queues {
		if _, err := r.api.Create("queues", q); err != nil {
			return nil, fmt.Errorf("create queue %s: %w", q.Name, err)
		}
	}
	r.api.Observe(r.world.observe)
	if r.plant, err = StartPlant(ctx, PlantOptions{Root: o.Root, Dir: o.Dir, Shards: o.Shards, Seed: o.Seed, Policy: o.Policy, API: r.api}); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.plant.Stop()) }()
	return r.run(ctx)
}

func (r *run) run(ctx context.Context) (*Result, error) {
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	wg.Go(func() { r.world.kubelet.run(ctx.Done()) })
	if err := r.followTable(ctx, &wg); err != nil {
		return nil, err
	}
	leaves := r.Scenario.Leaves()
	r.load = &load{world: r.world, api: r.api, leaves: leaves, outstanding: map[string]int64{}, specs: map[workload.Shape]*v1.PodSpec{}, backlog: int64(r.Backlog),
		target: r.world.total.cpu * int64(r.Fill) / 100 / int64(len(leaves))}
	var removals = make(chan string, 1<<20)
	r.world.ended = func(g *gang) {
		r.load.outstanding[g.Queue] -= g.demand.cpu
		if !g.Plain {
			removals <- g.Name
		}
	}
	wg.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case name := <-removals:
				_ = r.api.Delete("podgroups", namespace, name, metav1.DeleteOptions{})
			}
		}
	})
	loading, stop := context.WithCancel(ctx)
	defer stop()
	for i := range r.Never {
		g := &scenario.Gang{Name: fmt.Sprintf("never-%d", i), Kind: "never", Plain: true, Queue: leaves[i%len(leaves)], MinCount: 1, Pods: []workload.Shape{{MilliCPU: 1 << 40, MemoryMiB: 1}}}
		if err := r.load.make(g, true); err != nil {
			return nil, err
		}
	}
	clear(r.load.outstanding) // they are no load of their queues
	r.load.made = 0
	var making sync.WaitGroup
	making.Go(func() {
		var err error
		if r.Fill > 0 {
			err = r.load.closed(loading, r.Scenario.MakeGangs(r.Seed, r.Scenario.Rates()[0]))
		} else {
			err = r.load.open(loading, r.Scenario.MakeGangs(r.Seed, r.Scenario.Rates()[0]))
		}
		if err != nil {
			cancel(err)
		}
	})
	defer making.Wait()
	defer stop()

	res := &Result{Latency: r.world.latency}
	seconds, measured := 0, false
	watchUntil := func(d time.Duration, until func() bool) error {
		end := time.Now().Add(d)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for time.Now().Before(end) && !until() {
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case err := <-r.plant.Died():
				return err
			case <-time.After(time.Until(end)):
			case <-tick.C:
				s := r.sample(ctx)
				if measured {
					continue
				}
				res.Allocated, res.Waiting, seconds = res.Allocated+s.Allocated, res.Waiting+float64(s.Waiting), seconds+1
			}
		}
		return nil
	}
	never := func() bool { return false }
	if err := watchUntil(r.WarmUp, never); err != nil {
		return nil, err
	}
	r.world.mu.Lock()
	r.world.latency = report.NewLatency("basalt", "complete to whole")
	r.world.mu.Unlock()
	res.Allocated, res.Waiting, seconds = 0, 0, 0
	from, err := r.count(ctx)
	if err != nil {
		return nil, err
	}
	var large *largeGangs
	if r.Large > 0 {
		large = r.startLarge(ctx, &wg)
	}
	if err := watchUntil(r.Measure, never); err != nil {
		return nil, err
	}
	to, err := r.count(ctx)
	if err != nil {
		return nil, err
	}
	if measured = true; seconds > 0 {
		res.Allocated, res.Waiting = res.Allocated/float64(seconds), res.Waiting/float64(seconds)
	}
	res.subtract(from, to)
	r.world.mu.Lock()
	res.Latency = r.world.latency
	r.world.latency = report.NewLatency("basalt", "drain")
	r.world.mu.Unlock()
	if large != nil {
		if err := watchUntil(10*time.Minute, large.done); err != nil {
			return nil, err
		}
		res.LargeHeld, res.LargeDurable = large.held, large.durable
	}
	stop()
	making.Wait()
	if r.Drain > 0 {
		if err := watchUntil(r.Drain, r.empty); err != nil {
			return nil, err
		}
		res.Left = r.left()
	}
	r.world.mu.Lock()
	res.MadePods, res.TotalPods = r.load.made, r.world.boundPods
	res.Refusals, res.RefusedWrongly = r.world.refusals, r.world.refusedWrongly
	for _, n := range r.world.nodes {
		if n.overcommit {
			res.Overcommitted = append(res.Overcommitted, n.name)
		}
	}
	r.world.mu.Unlock()
	slices.Sort(res.Overcommitted)
	res.Late = r.late
	return res, nil
}

// followTable keeps the table of buckets, to tell which shard a node is of.
func (r *run) followTable(ctx context.Context, wg *sync.WaitGroup) error {
	s, err := store.Open(ctx, store.Options{Endpoints: r.plant.Etcd.Endpoints()})
	if err != nil {
		return err
	}
	wg.Go(func() {
		defer s.Close()
		_ = s.WatchTable(ctx, func(t *api.Table) {
			r.world.mu.Lock()
			r.world.table = t
			r.world.mu.Unlock()
		})
	})
	return nil
}

func (r *run) count(ctx context.Context) (counters, error) {
	revision, _, err := r.plant.storeState(ctx)
	if err != nil {
		return counters{}, err
	}
	n := r.api.Counts()
	c := counters{
		at: time.Now(), cpu: r.plant.cpu(), revision: revision, statuses: n.StatusPatches, conflicts: n.Conflicts,
		messages: r.plant.metric("basalt_shard_messages_total").byLabel, holds: r.plant.metric("basalt_shard_holds_total").byLabel,
		commits: r.plant.metric("basalt_shard_commits_total").byLabel, grants: r.plant.metric("basalt_coordinator_grants_total").sum,
	}
	for kind, n := range r.plant.metric("basalt_coordinator_messages_total").byLabel {
		c.messages["coordinator "+kind] += n
	}
	for _, events := range n.WatchEvents {
		c.events += events
	}
	r.world.mu.Lock()
	defer r.world.mu.Unlock()
	c.pods, c.gangs, c.crossing, c.finished = r.world.boundPods, r.world.boundGangs, r.world.crossing, r.world.finishedPods
	return c, nil
}

func (r *Result) subtract(from, to counters) {
	r.Took = to.at.Sub(from.at)
	r.CPU = CPU{to.cpu.Program - from.cpu.Program, to.cpu.Etcd - from.cpu.Etcd}
	r.Pods, r.Gangs, r.Crossing, r.Finished = to.pods-from.pods, to.gangs-from.gangs, to.crossing-from.crossing, to.finished-from.finished
	r.Transactions, r.WatchEvents, r.Reservations = to.revision-from.revision, to.events-from.events, to.grants-from.grants
	r.Messages, r.Holds, r.Commits = less(to.messages, from.messages), less(to.holds, from.holds), less(to.commits, from.commits)
	r.Statuses, r.Conflicts = less(to.statuses, from.statuses), less(to.conflicts, from.conflicts)
}

func less[N int64 | float64](a, b map[string]N) map[string]N {
	out := map[string]N{}
	for k, v := range a {
		if d := v - b[k]; d != 0 {
			out[k] = d
		}
	}
	return out
}

// sample looks once a second.
func (r *run) sample(ctx context.Context) Sample {
	waiting, late := r.world.sample()
	r.late = append(r.late, late...)
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	n := r.api.Counts()
	s := Sample{At: time.Since(r.began), Waiting: waiting, Goroutines: runtime.NumGoroutine(), Heap: mem.HeapAlloc, StatusWrites: n.StatusPatches["queues"], StatusConflicts: n.Conflicts["queues"] + n.Conflicts["podgroups"],
		StoreReservations: r.plant.metric("basalt_coordinator_reservations").sum, StoreIntents: r.plant.metric("basalt_shard_intents").sum}
	_, s.StoreSize, _ = r.plant.storeState(ctx)
	s.Pods = r.api.Len("pods")
	r.world.mu.Lock()
	s.Bound, s.Gangs = r.world.boundPods, len(r.world.gangs)
	s.Allocated = 100 * float64(r.world.used.cpu) / math.Max(1, float64(r.world.total.cpu))
	r.world.mu.Unlock()
	r.Progress("%4.0fs  %9d pods bound  %5.1f%% of CPU allocated  %5d gangs wait  %6d pods exist  %4.0f MB heap  %d late", s.At.Seconds(), s.Bound, s.Allocated, s.Waiting, s.Pods, float64(s.Heap)/1e6, len(r.late))
	if r.Sample != nil {
		r.Sample(s)
	}
	return s
}

// empty tells whether everything is over and nothing is left.
func (r *run) empty() bool { return len(r.left()) == 0 }

func (r *run) left() (out []string) {
	r.world.mu.Lock()
	for name, g := range r.world.gangs {
		if g.Kind != "never" && (g.Lifetime > 0 || g.bound < g.MinCount) {
			out = append(out, fmt.Sprintf("gang %s: %d of %d pods bound", name, g.bound, len(g.Pods)))
		}
	}
	r.world.mu.Unlock()
	slices.Sort(out)
	if len(out) > 5 {
		out = append(out[:5], fmt.Sprintf("and %d more gangs", len(out)-5))
	}
	if n := r.plant.metric("basalt_shard_intents").sum; n > 0 {
		out = append(out, fmt.Sprintf("%.0f intent rows", n))
	}
	if n := r.plant.metric("basalt_coordinator_reservations").sum; n > 0 {
		out = append(out, fmt.Sprintf("%.0f reservations", n))
	}
	return out
}
