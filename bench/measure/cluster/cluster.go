package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/store"
	"basalt.dev/basalt/bench/measure/report"
	"basalt.dev/basalt/bench/measure/scenario"
	"basalt.dev/basalt/bench/measure/workload"
	"basalt.dev/basalt/bench/stage/memory"
)

// Options of a run.
type Options struct {
	Root, Dir string
	Shards    int
	Scenario  *scenario.Scenario
	Seed      uint64
	Policy    string
	Wire      bool // shards read over the wire, through their relay

	WarmUp  time.Duration // not measured; a steady load is measured from when the cluster was full and so much longer
	Measure time.Duration // of a batch that is there at once at most so long: until nothing is bound any more
	Drain   time.Duration // for what is there at the end to be placed and to end

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
	Large                    *Large
	Claims                   *Claims
	Best                     *Best // of a batch whose pods never end
	Profile                  []byte
}

type counters struct {
	at                                                time.Time
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
	spans *spans
	began time.Time
	late  []string
}

// settled is how long nothing is bound before a batch is taken to be placed as far as it will be. A gang that found no room
// gives up after 10 s, and others come to their turn.
const settled = 15 * time.Second

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
	plant := PlantOptions{Root: o.Root, Dir: o.Dir, Shards: o.Shards, Coordinators: 1, Seed: o.Seed,
		Policy: o.Policy, API: r.api, Wire: o.Wire}
	if c := o.Scenario.Claims; c != nil {
		plant.Coordinators, r.world.leave = 2, c.Leave.Duration
	}
	if o.Scenario.Beside.Large > 0 || o.Scenario.Claims != nil {
		if r.spans, err = receiveSpans(); err != nil {
			return nil, err
		}
		defer r.spans.Stop()
		plant.OTLP = r.spans.Address
	}
	if r.plant, err = StartPlant(ctx, plant); err != nil {
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
	steady, beside := r.Scenario.Arrivals.Steady, r.Scenario.Beside
	r.load = &load{world: r.world, api: r.api, leaves: r.Scenario.Leaves(), specs: map[workload.Shape]*v1.PodSpec{}, record: r.Scenario.Arrivals.Closed != nil, claims: r.Scenario.Claims}
	r.world.random = rand.New(rand.NewPCG(r.Seed, 0))
	r.load.shuffled = slices.Clone(r.load.leaves)
	r.world.random.Shuffle(len(r.load.shuffled), func(i, j int) {
		r.load.shuffled[i], r.load.shuffled[j] = r.load.shuffled[j], r.load.shuffled[i]
	})
	var full atomic.Bool // a steady load's cluster was, once
	if r.world.steady = steady != nil; steady != nil {
		r.world.keep = r.world.total.cpu * int64(steady.CPUPercent) / 100
	} else {
		full.Store(true)
	}
	removals := make(chan string, 1<<20)
	r.world.ended = func(g *gang) {
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
	for i := range beside.Never {
		g := &scenario.Gang{Name: fmt.Sprintf("never-%d", i), Kind: "never", Plain: true, Queue: r.load.leaves[i%len(r.load.leaves)], MinCount: 1, Pods: []workload.Shape{{MilliCPU: 1 << 40, MemoryMiB: 1}}}
		if err := r.load.make(g, true); err != nil {
			return nil, err
		}
	}
	if beside.Crowd > 0 {
		i := 0
		for g := range r.Scenario.MakeGangs(r.Seed+1, r.Scenario.Rates()[0]) {
			if i++; i > beside.Crowd {
				break
			}
			g.Name, g.Queue = "crowd-"+g.Name, r.load.leaves[0]
			if err := r.load.make(&g, true); err != nil {
				return nil, err
			}
		}
	}
	var making sync.WaitGroup
	var made atomic.Bool
	making.Go(func() {
		defer made.Store(true)
		gangs := r.Scenario.MakeGangs(r.Seed, r.Scenario.Rates()[0])
		make := func() error { return r.load.open(loading, gangs) } // a batch is an open loop in which everything comes at once
		if steady != nil {
			make = func() error { return r.load.steady(loading, steady, gangs, full.Load) }
		}
		if err := make(); err != nil {
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
	if steady != nil {
		if err := watchUntil(fillWithin, func() bool {
			r.world.mu.Lock()
			defer r.world.mu.Unlock()
			if r.world.used.cpu >= r.world.keep-r.world.total.cpu/100 {
				full.Store(true)
			}
			return full.Load()
		}); err != nil {
			return nil, err
		}
		if !full.Load() {
			return nil, fmt.Errorf("the cluster was not filled to %d %% of its CPU within %s", steady.CPUPercent, fillWithin)
		}
	}
	if r.Scenario.Claims != nil {
		full := func() bool {
			r.world.mu.Lock()
			defer r.world.mu.Unlock()
			return made.Load() && r.world.waitingPods == 0
		}
		if err := watchUntil(fillWithin, full); err != nil {
			return nil, err
		}
		if !full() {
			return nil, fmt.Errorf("the gangs that fill the cluster did not all start within %s", fillWithin)
		}
	}
	if r.Scenario.Arrivals.Closed != nil {
		r.WarmUp = 0 // a batch is measured from its beginning
	}
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
	meter, err := r.plant.startMeter()
	if err != nil {
		return nil, err
	}
	until := never
	var large *largeGangs
	var claims *claimants
	switch {
	case r.Scenario.Claims != nil:
		if claims, err = r.startClaims(ctx, &wg, cancel); err != nil {
			return nil, err
		}
		until = claims.done
	case beside.Large > 0:
		large = r.startLarge(ctx, &wg, beside.Large)
		until = large.done
	case r.Scenario.Arrivals.Closed != nil:
		until = func() bool {
			r.world.mu.Lock()
			defer r.world.mu.Unlock()
			return made.Load() && (r.world.waitingPods == 0 || time.Since(r.world.lastBound) > settled)
		}
	}
	if err := watchUntil(r.Measure, until); err != nil {
		return nil, err
	}
	to, err := r.count(ctx)
	if err != nil {
		return nil, err
	}
	if res.CPU, res.Profile, err = meter.stop(); err != nil {
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
		res.Large = &large.Large
	}
	if claims != nil {
		if err := watchUntil(5*roundWithin, claims.done); err != nil {
			return nil, err
		}
		if !claims.done() || claims.failed != nil {
			return nil, cmp.Or(claims.failed, errors.New("the rounds of claims are not over"))
		}
		res.Claims = &claims.Claims
	} else if r.Scenario.Arrivals.Closed != nil {
		res.Best = r.best()
	}
	stop()
	making.Wait()
	if steady != nil {
		r.world.endAll()
	}
	if r.Drain > 0 {
		if err := watchUntil(r.Drain, r.empty); err != nil {
			return nil, err
		}
		res.Left = r.left()
	}
	r.world.mu.Lock()
	res.MadePods, res.TotalPods = r.load.made, r.load.made-r.world.waitingPods
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

// fillWithin is how long a steady load may take to fill the cluster.
const fillWithin = 10 * time.Minute

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
		at: time.Now(), revision: revision, statuses: n.StatusPatches, conflicts: n.Conflicts,
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

// empty reports whether everything is over and nothing is left.
func (r *run) empty() bool { return len(r.left()) == 0 }

func (r *run) left() (out []string) {
	r.world.mu.Lock()
	for name, g := range r.world.gangs {
		if g.Kind != "never" && (r.world.steady || g.Lifetime > 0 || g.bound < g.MinCount && r.Scenario.Arrivals.Closed == nil) {
			out = append(out, fmt.Sprintf("gang %s: %d of %d pods bound", name, g.bound, len(g.Pods)))
		}
	}
	gangs := len(r.world.gangs)
	r.world.mu.Unlock()
	slices.Sort(out)
	if len(out) > 5 {
		out = append(out[:5], fmt.Sprintf("and %d more gangs", len(out)-5))
	}
	if n := r.plant.metric("basalt_shard_intents").sum; n > 0 {
		out = append(out, fmt.Sprintf("%.0f intent rows", n))
	}
	if n := r.plant.metric("basalt_coordinator_reservations").sum; n > 0 && gangs == 0 {
		out = append(out, fmt.Sprintf("%.0f reservations", n))
	}
	return out
}
