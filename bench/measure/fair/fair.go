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
	"basalt.dev/basalt/coordinator"
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
	runs    = 6 * time.Minute // the median of how long a gang runs
	spread  = 0.8             // of its logarithm
	longest = time.Hour
	busy    = 3 * time.Hour // how long a queue stays as it is, on average
	settled = 15 * time.Minute
)

var resources = []string{"cpu", "memory", workload.GPU}

// Measure runs the load once for each of the loads, and reports the distances.
func Measure(ctx context.Context, o Options) (*report.Report, error) {
	r := report.New("fair", "", "shares of queues beside those of a fluid oracle, over virtual time, without evictions", o.Seed)
	r.Set("queues", fmt.Sprintf("%d in 3 levels, of weights 1 to 4; they deserve %.0f %% of %s cores", orgs*teams, entail*100, report.Number(cores)))
	r.Set("virtual time", fmt.Sprintf("%d h for each load", o.Hours))
	r.Set("a gang", fmt.Sprintf("1 to 32 pods of the shapes of openb; runs for %v in the median, at most %v", runs, longest))
	r.Set("a queue", fmt.Sprintf("changes between busy, half busy and idle every %v on average", busy))
	r.Note("A distance is between the dominant share that a queue has and the one that the oracle gives it, in percent of the whole; of all queues with a backlog the largest counts, each 30 s.")
	r.Note("Settled are the moments at which no queue had changed for %v.", settled)
	for n, load := range o.Loads {
		subject := fmt.Sprintf("load %.2f", load)
		run := r.Run(subject, n+1)
		h := newHall(o.Seed+uint64(n), load)
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
	rng    *rand.Rand
	core   *coordinator.Core
	now    time.Duration
	start  time.Time
	serial uint64

	whole   []int64 // by resource
	teams   []*team
	root    *node
	events  events
	gangs   map[string]*gang
	changed time.Duration // when a queue last became busy or idle
	planned int           // events

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
	demand  []int64
	came    time.Duration
	runs    time.Duration
	running bool
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

func newHall(seed uint64, load float64) *hall {
	h := &hall{rng: rand.New(rand.NewPCG(seed, 7)), start: time.Unix(1_000_000_000, 0), gangs: map[string]*gang{}}
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
	h.core = coordinator.New(coordinator.Config{}, coordinator.Elected{Now: h.start, Term: 1, Shards: []*wire.ShardRecord{{Name: "s", Incarnation: "s"}}})
	weights := make([]float64, orgs)
	sum := 0.0
	for i := range weights {
		weights[i] = 1 + float64(h.rng.IntN(4))
		sum += weights[i]
	}
	h.root = &node{path: api.RootQueue, wanted: make([]float64, len(resources)), gets: []float64{1, 1, 1}}
	h.queue(h.root, nil, 0, 1)
	mean := h.meanGang()
	for i, w := range weights {
		org := &node{path: fmt.Sprintf("org%d", i), weight: w, wanted: make([]float64, len(resources))}
		h.root.children = append(h.root.children, org)
		h.queue(org, h.part(entail*w/sum), uint32(w), 0)
		own := make([]float64, teams)
		below := 0.0
		for j := range own {
			own[j] = 1 + float64(h.rng.IntN(4))
			below += own[j]
		}
		for j, v := range own {
			n := &node{path: fmt.Sprintf("%s.team%d", org.path, j), weight: v, wanted: make([]float64, len(resources))}
			org.children = append(org.children, n)
			h.queue(n, h.part(entail*w/sum*v/below), uint32(v), 0)
			// Half of the time busy on average: so each wants twice its part of the load while it is.
			t := &team{path: n.path, node: n, charged: make([]int64, 3), waiting: make([]int64, 3)}
			t.rate = 2 * load * (0.3/float64(orgs*teams) + 0.7*w/sum*v/below) / mean
			h.teams = append(h.teams, t)
		}
	}
	h.step(coordinator.QueuesSynced{})
	h.plan(2*time.Second, func() {})
	h.until(3 * time.Second)
	for _, t := range h.teams {
		h.change(t)
	}
	return h
}

// part is so much of the whole.
func (h *hall) part(of float64) api.Resources {
	m := map[string]int64{}
	for i, name := range resources {
		m[name] = int64(of * float64(h.whole[i]))
	}
	return api.FromMap(m)
}

// queue makes a Queue; with limit its capability is that part of the whole.
func (h *hall) queue(n *node, deserved api.Resources, weight uint32, limit float64) {
	ev := coordinator.QueueSeen{Name: n.path, UID: "u-" + n.path, ResourceVersion: "1", HasFinalizer: true, Deserved: deserved}
	if weight > 0 {
		ev.Weight = &weight
	}
	if limit > 0 {
		ev.Capability = h.part(limit)
	}
	n.deserved = make([]float64, len(resources))
	for i, name := range resources {
		n.deserved[i] = float64(deserved.Value(name)) / float64(h.whole[i])
	}
	h.step(ev)
}

// meanGang is how many seconds of the whole a gang takes on average, by its dominant resource.
func (h *hall) meanGang() float64 {
	rng := rand.New(rand.NewPCG(1, 1))
	sums := make([]float64, len(resources))
	const n = 20_000
	for range n {
		demand, runs := h.draw(rng)
		for i := range sums {
			sums[i] += float64(demand[i]) / float64(h.whole[i]) * runs.Seconds()
		}
	}
	return slices.Max(sums) / n
}

func (h *hall) draw(rng *rand.Rand) (demand []int64, d time.Duration) {
	pod := workload.Pick(rng, workload.Pods())
	n := int64(1) << rng.IntN(6)
	d = min(longest, time.Duration(float64(runs)*math.Exp(spread*rng.NormFloat64())))
	return []int64{n * pod.MilliCPU, n * pod.MemoryMiB << 20, n * pod.GPUs}, d
}

// change draws how busy a team is, and when that changes again.
func (h *hall) change(t *team) {
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
		if t.level == 0 {
			return
		}
		demand, runs := h.draw(h.rng)
		h.serial++
		g := &gang{team: t, uid: fmt.Sprintf("g%09d", h.serial), demand: demand, came: h.now, runs: runs}
		h.gangs[g.uid] = g
		t.waits++
		add(t.waiting, g.demand, 1)
		h.say(&wire.Envelope{Body: &wire.Envelope_Reserve{Reserve: &wire.Reserve{Gang: g.ref(), Attempt: 1, Serial: h.serial, TableEpoch: 1,
			SinceUnixMs: h.start.Add(h.now).UnixMilli(), Demand: g.amounts(), Preemptible: true}}})
		h.arrive(t)
	})
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

func (h *hall) say(m *wire.Envelope) { h.step(coordinator.Message{From: "s", Body: m}) }

// step gives the core an event, commits what it decides, and takes note of what it says.
func (h *hall) step(ev coordinator.Event) {
	h.core.Step(h.start.Add(h.now), ev)
	for _, o := range h.core.Outputs() {
		switch o := o.(type) {
		case coordinator.Txn:
			h.step(coordinator.TxnDone{ID: o.ID, Revision: int64(o.ID) + 1})
		case coordinator.Send:
			if m := o.Body.GetGranted(); m != nil {
				h.grant(h.gangs[m.GetGangUid()])
			}
		}
	}
}

func (h *hall) grant(g *gang) {
	if g == nil || g.running {
		return
	}
	g.running = true
	t := g.team
	t.waits--
	add(t.waiting, g.demand, -1)
	add(t.charged, g.demand, 1)
	h.waited = append(h.waited, (h.now - g.came).Minutes())
	h.plan(g.runs, func() {
		delete(h.gangs, g.uid)
		add(t.charged, g.demand, -1)
		h.serial++
		h.say(&wire.Envelope{Body: &wire.Envelope_Unreserve{Unreserve: &wire.Unreserve{Gang: g.ref(), Attempt: 1, Serial: h.serial, TableEpoch: 1}}})
	})
}

// until lets time pass.
func (h *hall) until(end time.Duration) {
	const tick, sample = time.Second, 30 * time.Second
	for h.now < end {
		next := h.now.Truncate(tick) + tick
		for len(h.events) > 0 && h.events[0].at <= next {
			e := heap.Pop(&h.events).(happening)
			h.now = e.at
			e.does()
		}
		h.now = next
		h.step(coordinator.Tick{})
		if h.now%sample == 0 && h.now > time.Hour {
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
	worst := 0.0
	var used [3]float64
	for _, t := range h.teams {
		has, should := 0.0, 0.0
		for i := range resources {
			part := float64(t.charged[i]) / float64(h.whole[i])
			used[i] += part
			has, should = max(has, part), max(should, t.node.gets[i])
		}
		if t.waits > 0 {
			worst = max(worst, math.Abs(has-should))
		}
	}
	h.used += slices.Max(used[:])
	h.all = append(h.all, 100*worst)
	if h.now-h.changed >= settled {
		h.calm = append(h.calm, 100*worst)
	}
}

// values are the figures of the whole time.
func (h *hall) values() []report.Value {
	mean := func(v []float64) (sum float64) {
		for _, x := range v {
			sum += x
		}
		return sum / float64(max(1, len(v)))
	}
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
