package fair

import (
	"container/heap"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/bench/measure/report"
	"basalt.dev/basalt/bench/measure/workload"
)

// Options of a measurement.
type Options struct {
	Seed     uint64
	Hours    int // of virtual time
	Loads    []float64
	Progress *report.Progress
}

// Of the whole.
const (
	cores  = 100_000
	orgs   = 4
	teams  = 5 // of each
	entail = 0.6
)

// Times of the load.
const (
	busy    = 3 * time.Hour // how long a queue stays as it is, on average
	settled = 15 * time.Minute

	grace = 30 * time.Second // evicted pods take so long to leave
)

// lives is how long gangs run: the median, the deviation of the logarithm, and at most.
type lives struct {
	median  time.Duration
	spread  float64
	longest time.Duration
}

var (
	short = lives{6 * time.Minute, 0.8, time.Hour}
	// ofOpenb is fitted to the pods of openb that were scheduled: half of them ran for less than 10 minutes, a tenth for more than 2 hours.
	// Its tail is cut at 4 hours, so that some hours of virtual time are enough for the load to be what it will be.
	ofOpenb = lives{700 * time.Second, 1.88, 4 * time.Hour}
)

var resources = []string{"cpu", "memory", workload.GPU}

var (
	allNamed = []bool{true, true, true}
	// scarce names what the load is short of: pods of openb request GPUs of which there is not enough, and 0.6 of as many CPUs.
	scarce = []bool{false, false, true}
)

// Measure runs the load once for each of the loads, and reports the distances.
func Measure(ctx context.Context, o Options) (*report.Report, error) {
	r := report.New("fair", "", "shares of queues beside those of a fluid oracle, over virtual time, without evictions and with them", o.Seed)
	r.Set("queues", fmt.Sprintf("%d in 3 levels, of weights 1 to 4; they deserve %.0f %% of %s cores", orgs*teams, entail*100, report.Number(cores)))
	r.Set("virtual time", fmt.Sprintf("%d h for each load", o.Hours))
	r.Set("a gang", fmt.Sprintf("1 to 32 pods of the shapes of openb; runs for %v in the median, at most %v", short.median, short.longest))
	r.Set("a queue", fmt.Sprintf("changes between busy, half busy and idle every %v on average", busy))
	r.Note("A distance is between the dominant share that a queue has and the one that the oracle gives it, in percent of the whole; of all queues with a backlog the largest counts, each 30 s.")
	r.Set("evictions", fmt.Sprintf("%d traces for each load, with seeds from %d on; gangs run for %v in the median, at most %v; queues name GPUs", wasteSeeds, o.Seed, ofOpenb.median, ofOpenb.longest))
	r.Note("Volcano and KAI are models of their rules; the package comment has these. Ratios are of sums over the traces of a load.")
	r.Note("Settled are the moments at which no queue had changed for %v.", settled)
	for n, load := range o.Loads {
		subject := fmt.Sprintf("load %.2f", load)
		run := r.Run(subject, n+1)
		h := newHall(o.Seed+uint64(n), load, short, allNamed, basaltNever)
		for hour := range o.Hours {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			o.Progress.Say("%s: hour %d of %d", subject, hour+1, o.Hours)
			h.until(time.Duration(hour+1) * time.Hour)
		}
		run.Values = h.values()
		r.Medians(subject, reach)
	}
	if err := measureWaste(ctx, o, r); err != nil {
		return nil, err
	}
	measureReturn(o, r)
	return r, nil
}

// reach is what a figure has to reach.
func reach(name string) report.Target {
	switch name {
	case nameMean:
		return report.AtMost(1)
	case nameTail:
		return report.AtMost(2 + 100*float64(32)*largestPod)
	}
	return report.Target{}
}

const (
	nameMean = "settled: largest distance, mean over time"
	nameTail = "settled: largest distance, p95"
)

// largestPod is the part of the whole that the largest pod is.
const largestPod = 128.0 / cores

// hall is the coordinator's core with a world of queues around it.
type hall struct {
	rng   *rand.Rand
	sched scheduler
	now   time.Duration
	start time.Time
	drawn uint64 // gangs
	tick  time.Duration
	lives lives

	whole   []int64 // by resource
	named   []bool  // by resource: queues say what they deserve of it
	teams   []*team
	root    *node
	events  events
	gangs   map[string]*gang
	changed time.Duration // when a queue last became busy or idle
	planned int           // events
	closed  bool          // nothing comes or ends any more

	ended     []time.Duration // evictions, by when they were decided
	wasted    []float64       // what evicted gangs had, times how long they ran: by resource, in parts of the whole times hours
	lacking   []float64       // what queues with a backlog lack of what they deserve, summed over queues
	below     []float64       // and of what the oracle gives them
	idle      []float64       // what is free though a gang that waits would fit
	completed int

	all, calm []float64 // largest distances
	used      float64   // of the dominant resource, summed over samples
	waited    []float64 // of gangs, in minutes
}

// team is a leaf.
type team struct {
	path    string
	node    *node
	rate    float64 // of its arrivals while it is busy, in gangs a second
	level   float64 // how busy it is: 0, 0.5 or 1
	charged []int64
	waiting []int64
	waits   int
}

type gang struct {
	team    *team
	uid     string
	demand  []int64 // of all its pods, which are alike
	pods    int64
	came    time.Duration
	runs    time.Duration
	running bool
	began   time.Duration
	tries   uint64 // how often it has asked
	leaving bool   // it was evicted, and its pods are not gone
}

// scheduler is who decides. It is told what happens, and tells the hall whom it grants what they asked for (hall.grant) and whom it
// evicts (hall.evict).
type scheduler interface {
	ask(g *gang)  // a gang waits, from now on or again
	left(g *gang) // all of its pods are gone
	tick()        // after each tick of the hall
}

// happening is something at a time: a gang that comes to a team or ends, or a team that changes.
type happening struct {
	at   time.Duration
	n    int // ties are in the order in which they were planned
	does func()
}

type events []happening

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].n < e[j].n
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(happening)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

func (h *hall) plan(after time.Duration, does func()) {
	h.planned++
	heap.Push(&h.events, happening{h.now + after, h.planned, does})
}

// empty is a hall without queues.
func empty(seed uint64) *hall {
	h := &hall{rng: rand.New(rand.NewPCG(seed, 7)), start: time.Unix(1_000_000_000, 0), gangs: map[string]*gang{}, tick: time.Second, wasted: make([]float64, len(resources)), named: allNamed}
	var all [3]int64
	for _, n := range workload.Nodes() {
		all[0] += n.MilliCPU * int64(n.Count)
		all[1] += n.MemoryMiB << 20 * int64(n.Count)
		all[2] += n.GPUs * int64(n.Count)
	}
	factor := float64(cores*1000) / float64(all[0])
	for _, v := range all {
		h.whole = append(h.whole, int64(float64(v)*factor))
	}
	h.root = &node{path: api.RootQueue, wanted: make([]float64, len(resources)), gets: []float64{1, 1, 1}}
	return h
}

// newHall makes one with the queues of the load, and who decides there. Queues deserve a part of what is named.
func newHall(seed uint64, load float64, of lives, named []bool, by func(*hall) scheduler) *hall {
	h := empty(seed)
	h.lives, h.named = of, named
	weights := make([]float64, orgs)
	sum := 0.0
	for i := range weights {
		weights[i] = 1 + float64(h.rng.IntN(4))
		sum += weights[i]
	}
	mean := h.meanGang()
	for i, w := range weights {
		org := h.queue(h.root, fmt.Sprintf("org%d", i), entail*w/sum, w)
		own := make([]float64, teams)
		below := 0.0
		for j := range own {
			own[j] = 1 + float64(h.rng.IntN(4))
			below += own[j]
		}
		for j, v := range own {
			// Half of the time busy on average: so each wants twice its part of the load while it is.
			t := h.team(org, fmt.Sprintf("%s.team%d", org.path, j), entail*w/sum*v/below, v)
			t.rate = 2 * load * (0.3/float64(orgs*teams) + 0.7*w/sum*v/below) / mean
		}
	}
	h.sched = by(h)
	h.until(3 * time.Second)
	for _, t := range h.teams {
		h.change(t)
	}
	return h
}

// team makes a leaf.
func (h *hall) team(parent *node, path string, deserved, weight float64) *team {
	t := &team{path: path, node: h.queue(parent, path, deserved, weight), charged: make([]int64, 3), waiting: make([]int64, 3)}
	h.teams = append(h.teams, t)
	return t
}

// part is so much of the whole, by resource.
func (h *hall) part(of []float64) api.Resources {
	m := map[string]int64{}
	for i, name := range resources {
		if of[i] > 0 {
			m[name] = int64(of[i] * float64(h.whole[i]))
		}
	}
	return api.FromMap(m)
}

// queue makes a queue that deserves a part of the whole, of all resources that are named.
func (h *hall) queue(parent *node, path string, deserved, weight float64) *node {
	n := &node{path: path, weight: weight, wanted: make([]float64, len(resources)), deserved: make([]float64, len(resources))}
	for i := range n.deserved {
		if h.named[i] {
			n.deserved[i] = deserved
		}
	}
	parent.children = append(parent.children, n)
	return n
}

// meanGang is how many seconds of the whole a gang takes on average, by its dominant resource.
func (h *hall) meanGang() float64 {
	rng := rand.New(rand.NewPCG(1, 1))
	sums := make([]float64, len(resources))
	const n = 20_000
	for range n {
		demand, _, runs := h.draw(rng)
		for i := range sums {
			sums[i] += float64(demand[i]) / float64(h.whole[i]) * runs.Seconds()
		}
	}
	return slices.Max(sums) / n
}

func (h *hall) draw(rng *rand.Rand) (demand []int64, n int64, d time.Duration) {
	pod := workload.Pick(rng, workload.Pods())
	n = int64(1) << rng.IntN(6)
	d = min(h.lives.longest, time.Duration(float64(h.lives.median)*math.Exp(h.lives.spread*rng.NormFloat64())))
	return []int64{n * pod.MilliCPU, n * pod.MemoryMiB << 20, n * pod.GPUs}, n, d
}

// change draws how busy a team is, and when that changes again.
func (h *hall) change(t *team) {
	if h.closed {
		return
	}
	was := t.level
	t.level = float64(h.rng.IntN(3)) / 2
	h.changed = h.now
	if was == 0 && t.level > 0 {
		h.arrive(t)
	}
	h.plan(time.Duration(float64(busy)*h.rng.ExpFloat64()), func() { h.change(t) })
}

// arrive plans the next gang of a team.
func (h *hall) arrive(t *team) {
	h.plan(time.Duration(h.rng.ExpFloat64()/(t.rate*max(t.level, 0.5))*float64(time.Second)), func() {
		if t.level == 0 || h.closed {
			return
		}
		demand, pods, runs := h.draw(h.rng)
		h.come(t, demand, pods, runs)
		h.arrive(t)
	})
}

// come has a gang come to a team.
func (h *hall) come(t *team, demand []int64, pods int64, runs time.Duration) {
	h.drawn++
	g := &gang{team: t, uid: fmt.Sprintf("g%09d", h.drawn), demand: demand, pods: pods, came: h.now, runs: runs}
	h.gangs[g.uid] = g
	h.wait(g)
}

func (h *hall) wait(g *gang) {
	g.tries++
	g.team.waits++
	add(g.team.waiting, g.demand, 1)
	h.sched.ask(g)
}

func (g *gang) ref() *wire.GangRef {
	return &wire.GangRef{Uid: g.uid, Namespace: strings.ReplaceAll(g.team.path, ".", "-"), Name: g.uid, Queue: g.team.path}
}

func (g *gang) amounts() []*wire.Amount {
	m := map[string]int64{}
	for i, name := range resources {
		m[name] = g.demand[i]
	}
	return wire.FromResources(api.FromMap(m).Positive())
}

func add(to, v []int64, times int64) {
	for i := range to {
		to[i] += v[i] * times
	}
}

// grant has a gang run.
func (h *hall) grant(g *gang) {
	if g == nil || g.running {
		return
	}
	g.running, g.began = true, h.now
	t, try := g.team, g.tries
	t.waits--
	add(t.waiting, g.demand, -1)
	add(t.charged, g.demand, 1)
	if try == 1 {
		h.waited = append(h.waited, (h.now - g.came).Minutes())
	}
	h.plan(g.runs, func() {
		if g.tries != try || g.leaving || h.closed {
			return
		}
		h.completed++
		delete(h.gangs, g.uid)
		h.leave(g)
	})
}

func (h *hall) leave(g *gang) {
	g.running = false
	add(g.team.charged, g.demand, -1)
	h.sched.left(g)
}

// evict has the pods of a gang leave. When they are gone it has lost what it did, and waits again as a controller makes its pods anew.
func (h *hall) evict(g *gang) {
	if g == nil || !g.running || g.leaving {
		return
	}
	g.leaving = true
	h.ended = append(h.ended, h.now)
	h.plan(grace, func() {
		for i, amount := range g.demand {
			h.wasted[i] += float64(amount) / float64(h.whole[i]) * (h.now - g.began).Hours()
		}
		g.leaving = false
		h.leave(g)
		h.wait(g)
	})
}

// until lets time pass.
func (h *hall) until(end time.Duration) {
	const sample = 30 * time.Second
	for h.now < end {
		next := h.now.Truncate(h.tick) + h.tick
		for len(h.events) > 0 && h.events[0].at <= next {
			e := heap.Pop(&h.events).(happening)
			h.now = e.at
			e.does()
		}
		h.now = next
		h.sched.tick()
		if h.now%sample == 0 && h.now > time.Hour && !h.closed {
			h.sample()
		}
	}
}

// sample compares what each queue has with what the oracle gives it.
func (h *hall) sample() {
	for _, t := range h.teams {
		for i := range resources {
			t.node.wanted[i] = float64(t.charged[i]+t.waiting[i]) / float64(h.whole[i])
		}
	}
	h.root.sum()
	h.root.gets = []float64{1, 1, 1}
	h.root.pour()
	worst, lacking, below := 0.0, 0.0, 0.0
	var used [3]float64
	for _, t := range h.teams {
		has, should, lacks := 0.0, 0.0, 0.0
		for i := range resources {
			part := float64(t.charged[i]) / float64(h.whole[i])
			used[i] += part
			has, should = max(has, part), max(should, t.node.gets[i])
			lacks = max(lacks, min(t.node.deserved[i], t.node.wanted[i])-part)
		}
		lacking += lacks
		if t.waits > 0 {
			worst = max(worst, math.Abs(has-should))
			below += max(0, should-has)
		}
	}
	h.used += slices.Max(used[:])
	h.lacking = append(h.lacking, 100*lacking)
	h.below = append(h.below, 100*below)
	h.idle = append(h.idle, 100*h.unused(used[:]))
	h.all = append(h.all, 100*worst)
	if h.now-h.changed >= settled {
		h.calm = append(h.calm, 100*worst)
	}
}

// unused is the part of the whole, of the resource used most, that would be in use if all gangs that wait started which fit into what is
// free, the oldest first.
func (h *hall) unused(used []float64) float64 {
	most := 0
	free := make([]float64, len(used))
	for i, u := range used {
		if free[i] = 1 - u; u > used[most] {
			most = i
		}
	}
	before := free[most]
	for _, uid := range api.SortedKeys(h.gangs) {
		g := h.gangs[uid]
		if g.running {
			continue
		}
		fits := true
		for i, d := range g.demand {
			fits = fits && float64(d)/float64(h.whole[i]) <= free[i]
		}
		if fits {
			for i, d := range g.demand {
				free[i] -= float64(d) / float64(h.whole[i])
			}
		}
	}
	return before - free[most]
}

func mean(v []float64) (sum float64) {
	for _, x := range v {
		sum += x
	}
	return sum / float64(max(1, len(v)))
}

// values are the figures of the whole time.
func (h *hall) values() []report.Value {
	tail := func(v []float64, at float64) float64 {
		if len(v) == 0 {
			return 0
		}
		s := slices.Sorted(slices.Values(v))
		return s[int(at*float64(len(s)-1))]
	}
	return []report.Value{
		{Name: nameMean, Unit: "%", Value: mean(h.calm)},
		{Name: nameTail, Unit: "%", Value: tail(h.calm, 0.95)},
		{Name: "largest distance, mean over time", Unit: "%", Value: mean(h.all)},
		{Name: "largest distance, p95", Unit: "%", Value: tail(h.all, 0.95)},
		{Name: "in use, of the resource used most", Unit: "%", Value: 100 * h.used / float64(max(1, len(h.all)))},
		{Name: "gangs that were admitted", Value: float64(len(h.waited))},
		{Name: "a gang waits, p50", Unit: "min", Value: tail(h.waited, 0.5)},
		{Name: "a gang waits, p99", Unit: "min", Value: tail(h.waited, 0.99)},
	}
}
