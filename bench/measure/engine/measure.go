package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/bench/measure/report"
	"basalt.dev/basalt/cache"
)

// Options of Measure. Zero values are what the command's flags say.
type Options struct {
	Seed      uint64
	Nodes     []int // sizes of clusters
	Rounds    int   // of each, in turn with the other sizes
	Decisions int   // of a round
	Exact     int   // quality is compared up to so many nodes
	GangNodes int   // of the cluster into which gangs of half as many pods are placed
	Progress  *report.Progress
}

// What figures are called.
const (
	perSecond = "decisions a second on one core"
	perOne    = "CPU a decision"
	p50       = "p50 of a decision"
	p99       = "p99 of a decision"
)

// world is one size.
type world struct {
	nodes   int
	subject string
	core    *stream
	cache   *Core
	exact   *stream // over the same cluster, filled by the same stream
	scan    *Exact
	hist    *hdrhistogram.Histogram
}

// Measure runs the workload at each size, round after round, and hands back the figures.
func Measure(ctx context.Context, o Options) (*report.Report, error) {
	r := report.New("engine", "", "the placement core alone, on one core, beside an exact best-fit scan over all nodes", o.Seed)
	r.Set("nodes", o.Nodes)
	r.Set("rounds", o.Rounds)
	r.Set("decisions a round", o.Decisions)
	r.Set("classes", fmt.Sprintf("%d, and one pod in %d has one of its own", Classes, SingleEvery))
	r.Set("in use", fmt.Sprintf("%d ‰ of the resource that is used up first", Allocated))
	r.Set("a node changes its label or taint", fmt.Sprintf("every %d decisions", ChangeEvery))
	r.Note("A decision is a pod placed and charged, with the release of as many pods as make room for it: about one.")
	r.Note("Rates and costs are of CPU time of the measuring thread, and of the engine's work alone: what the stream will ask is written down before; p50 and p99 are of elapsed time, and feel what else runs on the machine.")
	r.Note("The garbage collector is off while a batch is measured: what the stream makes is not the core's, and of the core's nothing is left to collect.")
	r.Note("Nodes have the shapes of the openb cluster, repeated; of the pods, scaled by 0.5 to 1.5 for 200 distinct classes, half ask for whole GPUs, half are bound to a zone, a GPU model or tolerate a taint.")
	r.Note("The scan is textbook best fit: it minimises the largest share that would remain of what the pod asks for. Its rating differs from the core's, which fills the fullest node that fits.")

	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if slices.Max(o.Nodes) >= 1000 {
		r.Set("a random read from 64 MiB, ns", randomRead(o.Seed).Nanoseconds())
	}
	var worlds []*world
	for _, n := range o.Nodes {
		x, err := newWorld(ctx, o, n)
		if err != nil {
			return nil, err
		}
		worlds = append(worlds, x)
		runtime.GC()
	}
	for round := 1; round <= o.Rounds; round++ {
		for _, x := range worlds {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			o.Progress.Say("round %d of %d, %d nodes", round, o.Rounds, x.nodes)
			x.round(r.Run(x.subject, round), o)
		}
	}
	first, last := worlds[0].subject, worlds[len(worlds)-1].subject
	for _, x := range worlds {
		target := report.Target{}
		if x.subject == first || x.subject == last {
			target = report.AtLeast(500_000)
		}
		r.Median(x.subject, perSecond, target)
		for _, name := range []string{perOne, p50, p99} {
			r.Median(x.subject, name, report.Target{})
		}
		r.Median(x.subject, "allocations a decision, classes known", report.AtMost(0))
		for _, name := range []string{"allocations a decision, all", "refused", "every pod its own class: " + perOne, "exact scan: " + perOne, "exact scan: times slower"} {
			r.Median(x.subject, name, report.Target{})
		}
		o.Progress.Say("%d nodes: quality", x.nodes)
		x.quality(ctx, r, o)
	}
	if len(worlds) > 1 {
		r.Ratio(last, first, perOne, report.AtMost(2))
	}
	worlds = nil
	debug.FreeOSMemory()
	if err := gangs(ctx, r, o); err != nil {
		return nil, err
	}
	return r, ctx.Err()
}

func newWorld(ctx context.Context, o Options, nodes int) (*world, error) {
	w := NewWorld(o.Seed, nodes)
	x := &world{nodes: nodes, subject: fmt.Sprintf("%s nodes", report.Number(float64(nodes))), hist: hdrhistogram.New(1, int64(time.Minute), 3)}
	x.cache = NewCore(w, cache.Config{})
	x.core = newStream(w, x.cache, o.Seed)
	for i := 0; !x.core.full() && i < 100*nodes; i++ {
		if i%1000 == 0 {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			o.Progress.Say("%d nodes: filling, %d pods", nodes, x.core.placed)
			x.core.prepare(1000)
		}
		x.core.decide()
	}
	// To the steady state: each node has had its pods come and go some times, and the classes have their bits in the index.
	for done := 0; done < max(4*o.Decisions, 10*nodes) && ctx.Err() == nil; done += o.Decisions {
		o.Progress.Say("%d nodes: warming up, %d decisions", nodes, done)
		x.core.run(o.Decisions)
	}
	x.scan = NewExact(w)
	x.exact = x.core.copy(x.scan)
	return x, nil
}

// run makes decisions, with node changes.
func (s *stream) run(decisions int) {
	s.prepare(decisions)
	for i := range decisions {
		s.decide()
		if i%ChangeEvery == ChangeEvery-1 {
			s.e.SetNode(s.w.change(s.r))
		}
	}
}

// costs measures decisions: CPU time of each, and allocations.
func (s *stream) costs(decisions int, changes bool) (perDecision float64, allocations float64) {
	steps := s.plan(decisions)
	defer s.settle(steps)
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began := cpuTime()
	done := 0
	for i := range steps {
		s.do(&steps[i])
		if steps[i].k == nil {
			continue
		}
		if done++; changes && done%ChangeEvery == 0 {
			s.e.SetNode(s.w.change(s.r))
		}
	}
	took := cpuTime() - began
	runtime.ReadMemStats(&after)
	return max(0.1, float64(took.Nanoseconds())/float64(decisions)), float64(after.Mallocs-before.Mallocs) / float64(decisions)
}

func (x *world) round(run *report.Run, o Options) {
	s := x.core
	s.refused = 0
	cost, allocations := s.costs(o.Decisions, true)
	run.Add(perSecond, "", 1e9/cost)
	run.Add(perOne, "ns", cost)
	run.Add("allocations a decision, all", "", allocations)
	run.Add("refused", "%", 100*float64(s.refused)/float64(o.Decisions))

	h := hdrhistogram.New(1, int64(time.Minute), 3)
	steps := s.plan(o.Decisions / 4)
	began := time.Now()
	for i := range steps {
		if s.do(&steps[i]); steps[i].k != nil {
			_ = h.RecordValue(min(time.Since(began).Nanoseconds(), int64(time.Minute))) // in range
			began = time.Now()
		}
	}
	s.settle(steps)
	run.Add(p50, "ns", float64(h.ValueAtPercentile(50)))
	run.Add(p99, "ns", float64(h.ValueAtPercentile(99)))

	s.every = 0
	_, allocations = s.costs(o.Decisions/4, false)
	// What the runtime and the measurement allocate by themselves is not the decisions'.
	if allocations < 0.001 {
		allocations = 0
	}
	run.Add("allocations a decision, classes known", "", allocations)
	s.every = 1
	cost, _ = s.costs(max(100, o.Decisions/40), false)
	run.Add("every pod its own class: "+perOne, "ns", cost)
	s.every = SingleEvery

	scan := min(o.Decisions, max(20, 20_000_000/x.nodes/o.Rounds)) // about half a second a size
	exact, _ := x.exact.costs(scan, false)
	run.Add("exact scan: "+perOne, "ns", exact)
	again, _ := s.costs(o.Decisions, true)
	run.Add("exact scan: times slower", "×", exact/((again+1e9/mustGet(run, perSecond))/2))
}

func mustGet(run *report.Run, name string) float64 {
	v, _ := run.Get(name)
	return v.Value
}

// copy gives another engine the pods of this stream, on the same nodes.
func (s *stream) copy(e Engine) *stream {
	out := *s
	out.e = e
	out.r, out.gone = rand.New(rand.NewPCG(uint64(len(s.pods)), 5)), rand.New(rand.NewPCG(uint64(len(s.pods)), 8))
	out.live = [2][]int32{slices.Clone(s.live[0]), slices.Clone(s.live[1])}
	out.pods = slices.Clone(s.pods)
	out.free = slices.Clone(s.free)
	out.onNode = slices.Clone(s.onNode)
	out.ready = nil
	for _, list := range out.live {
		for _, n := range list {
			p := out.pods[n]
			e.Charge(int(n), p.uid, p.k, place{node: int(p.node)})
		}
	}
	return &out
}

// quality sends one stream to the core and to the scan, each on an empty cluster of its own, and compares how many nodes
// they need and what they refuse.
func (x *world) quality(ctx context.Context, r *report.Report, o Options) {
	nodes := x.nodes
	if nodes > o.Exact {
		r.Note("quality was not compared at %d nodes: filling them by scans grows with their square; --exact-up-to says where that ends", nodes)
		return
	}
	streams := [2]*stream{}
	for i := range streams {
		w := NewWorld(o.Seed, nodes)
		if i == 0 {
			streams[i] = newStream(w, NewCore(w, cache.Config{}), o.Seed)
		} else {
			streams[i] = newStream(w, NewExact(w), o.Seed)
		}
	}
	run := r.Run(x.subject+", quality", 1)
	// Nodes in use matter while not all are: on the way up, and after churn, at half of the capacity.
	for _, level := range []int64{250, 500, 750, Allocated} {
		var used, refused [2]float64
		missed := 0 // refused by the core, placed by the scan
		for _, s := range streams {
			s.setLevel(level)
			s.refused = 0
		}
		steps := nodes * 10
		for step := range steps {
			if step%500 == 0 {
				if ctx.Err() != nil {
					return
				}
				for _, s := range streams {
					s.prepare(500)
				}
			}
			_, a := streams[0].decide()
			_, b := streams[1].decide()
			if !a && b {
				missed++
			}
			if step >= steps/2 {
				used[0] += float64(streams[0].inUse)
				used[1] += float64(streams[1].inUse)
			}
		}
		for i, s := range streams {
			refused[i] = float64(s.refused)
		}
		name := fmt.Sprintf("at %d %% in use", level/10)
		target := report.AtMost(1)
		r.Figure(x.subject, "nodes used over exact best fit, "+name, "%", []float64{100 * (used[0]/used[1] - 1)}, target)
		run.Add("nodes used, core, "+name, "", used[0]/float64(steps-steps/2))
		run.Add("nodes used, exact, "+name, "", used[1]/float64(steps-steps/2))
		run.Add("refused, core, "+name, "", refused[0])
		run.Add("refused, exact, "+name, "", refused[1])
		run.Add("refused that exact placed, "+name, "", float64(missed))
	}
	for _, v := range run.Values {
		if len(v.Name) > 7 && v.Name[:7] == "refused" {
			r.Figure(x.subject, v.Name, "", []float64{v.Value}, report.Target{})
		}
	}
}

// gangs places gangs of pods in 10 classes at 80 %.
func gangs(ctx context.Context, r *report.Report, o Options) error {
	const kinds, level, rounds = 10, 800, 20
	nodes, size := o.GangNodes, o.GangNodes/2
	w := NewWorld(o.Seed, nodes)
	e := NewCore(w, cache.Config{})
	s := newStream(w, e, o.Seed)
	s.setLevel(level)
	for i := 0; !s.full() && i < 100*nodes; i++ {
		if i%1000 == 0 {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			o.Progress.Say("gangs: filling, %d pods", s.placed)
			s.prepare(1000)
		}
		s.decide()
	}
	subject := fmt.Sprintf("gang of %s in 10 classes, %s nodes, 80 %% in use", report.Number(float64(size)), report.Number(float64(nodes)))
	random := rand.New(rand.NewPCG(o.Seed, 6))
	uids := make([]string, size)
	for i := range uids {
		uids[i] = fmt.Sprintf("gang-%05d-4c3a-9b5e-%012x", i, i)
	}
	for round := 1; round <= rounds; round++ {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		var classes []*kind
		for len(classes) < kinds {
			if k := w.draw(random); k.asks[gpu] == 0 && k.set == 0 { // CPU pods of new classes that may go anywhere
				k.asks[cpu], k.asks[memory] = 1000+k.asks[cpu]%1000, 2<<30
				w.name(k)
				classes = append(classes, k)
			}
		}
		placed := 0
		began, cpuBegan := time.Now(), cpuTime()
		for i, uid := range uids {
			k := classes[i*kinds/size]
			node, ok := e.cache.Place(k.class)
			if !ok {
				continue
			}
			e.cache.Charge(uid, node, k.class, cache.Hold, "gang", api.Rank{Order: uint64(round), Gang: "gang"})
			placed++
		}
		took, used := time.Since(began), cpuTime()-cpuBegan
		run := r.Run(subject, round)
		run.Add("CPU of placing it", "ms", float64(used.Microseconds())/1000)
		run.Add("time of placing it", "ms", float64(took.Microseconds())/1000)
		run.Add("pods placed", "", float64(placed))
		for _, uid := range uids {
			e.cache.Release(uid)
		}
		s.run(2000)
	}
	r.Medians(subject, nil)
	return nil
}
