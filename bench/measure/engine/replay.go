package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/bench/measure/report"
	"basalt.dev/basalt/bench/measure/trace"
	"basalt.dev/basalt/bench/measure/workload"
	"basalt.dev/basalt/cache"
)

// Shards is over how many engines a trace is split, beside one over all nodes.
const Shards = 8

// offered is how much of a trace is drawn for inflation, in per cent of the resource that is asked for most.
const offered = 130

// replay is a trace as a World: nodes and classes are the trace's, and nothing changes.
type replay struct {
	w     *World
	pods  []*kind
	at    []trace.Pod
	kinds []*kind // distinct
}

func newReplay(nodes []trace.Node, list []trace.Pod) *replay {
	p := &replay{w: &World{specs: []*v1.PodSpec{{}}, sets: [][]byte{nil}}, at: list}
	for i, n := range nodes {
		m := machine{model: n.Model, has: amounts{cpu: n.MilliCPU, memory: n.MemoryMiB << 20, storage: 1 << 40, gpu: n.GPUs, pods: 1 << 20}}
		p.w.nodes = append(p.w.nodes, m)
		for k, v := range m.has {
			p.w.total[k] += v
		}
		p.w.object(i)
	}
	sets := map[string]int{"": 0}
	kinds := map[string]*kind{}
	for _, o := range list {
		key := strings.Join(o.Models, "|")
		if _, known := sets[key]; !known {
			spec := &v1.PodSpec{Affinity: &v1.Affinity{NodeAffinity: &v1.NodeAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
					MatchExpressions: []v1.NodeSelectorRequirement{{Key: workload.ModelLabel, Operator: v1.NodeSelectorOpIn, Values: o.Models}},
				}}}}}}
			b, err := spec.Marshal()
			if err != nil {
				panic(fmt.Sprintf("engine: %v", err)) // a spec of ours
			}
			sets[key] = len(p.w.sets)
			p.w.specs, p.w.sets = append(p.w.specs, spec), append(p.w.sets, b)
		}
		k := &kind{asks: amounts{cpu: o.MilliCPU, memory: o.MemoryMiB << 20, gpu: o.GPUs, pods: 1}, set: sets[key]}
		p.w.name(k)
		if kinds[k.class.Key] == nil {
			kinds[k.class.Key] = k
			p.kinds = append(p.kinds, k)
		}
		p.pods = append(p.pods, kinds[k.class.Key])
	}
	return p
}

// Sharded splits nodes over cores by the hash of their names, as buckets are, and chooses as a home shard does: its own
// shard first, then those into which most pods of the kind would go by their free totals.
type Sharded struct {
	w      *World
	shards [Shards]*cache.Cache
	r      *rand.Rand // whose home a pod's queue has
	at     int        // the shard of the last placement
	last   string
	of     map[int]int // pod -> shard
}

// NewSharded gives each node to its shard.
func NewSharded(w *World, seed uint64) *Sharded {
	e := &Sharded{w: w, r: rand.New(rand.NewPCG(seed, 9)), of: map[int]int{}}
	for i := range e.shards {
		e.shards[i] = cache.New(cache.Config{})
	}
	for i := range w.nodes {
		e.SetNode(i)
	}
	return e
}

func (e *Sharded) SetNode(i int) {
	n := e.w.nodes[i].object
	e.shards[int(api.BucketOf(n.Name))%Shards].SetNode(n)
}

func (e *Sharded) Place(k *kind) (place, bool) {
	self := e.r.IntN(Shards)
	var asked [Shards]bool
	for range Shards {
		best, most := -1, int64(-1)
		for i, c := range e.shards {
			if asked[i] {
				continue
			}
			fits := int64(1) << 40
			free := c.Totals().Free
			for _, a := range k.class.Requests {
				fits = min(fits, free.Value(a.Resource)/a.Value)
			}
			if fits == 0 {
				continue
			}
			if i == self {
				best = i
				break
			}
			if fits > most {
				best, most = i, fits
			}
		}
		if best < 0 {
			break
		}
		asked[best] = true
		if name, ok := e.shards[best].Place(k.class); ok {
			e.at, e.last = best, name
			return place{name: name}, true
		}
	}
	return place{node: -1}, false
}

func (e *Sharded) Charge(pod int, uid string, k *kind, _ place) {
	e.of[pod] = e.at
	e.shards[e.at].Charge(uid, e.last, k.class, cache.Hold, "gang", api.Rank{})
}

func (e *Sharded) Release(pod int, uid string) {
	e.shards[e.of[pod]].Release(uid)
	delete(e.of, pod)
}

var shown = []struct {
	name string
	r    int
}{{"CPU", cpu}, {"memory", memory}, {"GPU", gpu}}

func (s *stream) share(r int) float64 {
	if s.w.total[r] == 0 {
		return 0
	}
	return 100 * float64(s.used[r]) / float64(s.w.total[r])
}

func (s *stream) say(run *report.Run, what string) {
	for _, x := range shown {
		if s.w.total[x.r] > 0 {
			run.Add(x.name+" allocated "+what, "%", s.share(x.r))
		}
	}
}

// stranded is what is free of a resource on nodes that take no pod of the trace that asks for it.
func (s *stream) stranded(p *replay, r int) float64 {
	left := make([]amounts, len(s.w.nodes))
	for i := range left {
		left[i] = s.w.nodes[i].has
	}
	for _, list := range s.live {
		for _, n := range list {
			for k, v := range s.pods[n].k.asks {
				left[int(s.pods[n].node)][k] -= v
			}
		}
	}
	e := NewExact(s.w) // for what constraints say
	sum := int64(0)
	for i, free := range left {
		takes := slices.ContainsFunc(p.kinds, func(k *kind) bool {
			if k.asks[r] == 0 || !e.admits[k.set][i] {
				return false
			}
			for q, v := range k.asks {
				if v > free[q] {
					return false
				}
			}
			return true
		})
		if !takes {
			sum += free[r]
		}
	}
	return 100 * float64(sum) / float64(s.w.total[r])
}

// inflate draws pods at random, with replacement, until what was asked for is 130 % of the resource asked for most.
func (p *replay) inflate(s *stream, seed uint64, run *report.Run) {
	r := rand.New(rand.NewPCG(seed, 10))
	var asked amounts
	first := true
	over := func() bool {
		for _, x := range shown {
			if t := s.w.total[x.r]; t > 0 && asked[x.r] >= t/100*offered+t%100*offered/100 {
				return true
			}
		}
		return false
	}
	refused, drawn := 0, 0
	for !over() {
		k := p.pods[r.IntN(len(p.pods))]
		drawn++
		for q, v := range k.asks {
			asked[q] += v
		}
		at, ok := s.e.Place(k)
		if ok {
			s.enter(k, at)
			continue
		}
		refused++
		if first {
			first = false
			s.say(run, "at the first refusal")
		}
	}
	s.say(run, "at saturation")
	for _, x := range shown {
		if s.w.total[x.r] > 0 {
			run.Add(x.name+" stranded at saturation", "%", s.stranded(p, x.r))
		}
	}
	run.Add("pods drawn", "", float64(drawn))
	run.Add("refused", "%", 100*float64(refused)/float64(drawn))
}

// arrive replays pods in the order of their arrival; each lives as long as it did from when it is placed, or for ever: the
// published pods are a sample that fills a hundredth of the cluster at any time. One that finds no room is refused and does
// not come again.
func (p *replay) arrive(s *stream, run *report.Run, leave bool) {
	order := make([]int, len(p.at))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return int(p.at[a].Created - p.at[b].Created) })
	ends := map[int64][]int{} // time -> pods
	var times heap
	var peak amounts
	refused, first := 0, true
	for _, i := range order {
		for leave && len(times) > 0 && times[0] <= p.at[i].Created {
			t := times.pop()
			for _, n := range ends[t] {
				s.leave(n)
			}
			delete(ends, t)
		}
		at, ok := s.e.Place(p.pods[i])
		if !ok {
			refused++
			if first {
				first = false
				s.say(run, "at the first refusal")
			}
			continue
		}
		n := s.enter(p.pods[i], at)
		end := p.at[i].Created + p.at[i].Lives()
		if ends[end] == nil {
			times.push(end)
		}
		ends[end] = append(ends[end], n)
		for q := range peak {
			peak[q] = max(peak[q], s.used[q])
		}
	}
	for _, x := range shown {
		if s.w.total[x.r] > 0 {
			run.Add(x.name+" allocated at the most", "%", 100*float64(peak[x.r])/float64(s.w.total[x.r]))
		}
	}
	run.Add("pods", "", float64(len(order)))
	run.Add("refused", "%", 100*float64(refused)/float64(len(order)))
}

// heap of times, the earliest first.
type heap []int64

func (h *heap) push(t int64) {
	*h = append(*h, t)
	for i := len(*h) - 1; i > 0 && (*h)[i] < (*h)[(i-1)/2]; i = (i - 1) / 2 {
		(*h)[i], (*h)[(i-1)/2] = (*h)[(i-1)/2], (*h)[i]
	}
}

func (h *heap) pop() int64 {
	old := *h
	t := old[0]
	old[0] = old[len(old)-1]
	*h = old[:len(old)-1]
	for i := 0; ; {
		k := i
		for c := 2*i + 1; c <= 2*i+2 && c < len(*h); c++ {
			if (*h)[c] < (*h)[k] {
				k = c
			}
		}
		if k == i {
			return t
		}
		(*h)[i], (*h)[k] = (*h)[k], (*h)[i]
		i = k
	}
}

// Replay runs an openb trace both ways, for the core, for the core split over shards, and for exact best fit.
func Replay(ctx context.Context, nodes []trace.Node, podsOf []trace.Pod, seed uint64, seeds int, progress *report.Progress) (*report.Report, error) {
	r := report.New("engine", "openb", "an openb trace by inflation and in the order of arrival", seed)
	r.Set("nodes", len(nodes))
	r.Set("pods", len(podsOf))
	r.Set("seeds", seeds)
	r.Note("GPU model: whole GPUs. A pod that asked for a part of one (gpu_milli) takes a whole one, for Kubernetes knows no parts of an extended resource; gpu_spec is a node affinity.")
	r.Note("Inflation: pods drawn at random with replacement until what was asked for is %d %% of the resource asked for most. Stranded: free on nodes that take no pod of the trace that asks for it.", offered)
	r.Note("%d engines: nodes split by the hash of their names; a pod goes to a home shard drawn at random, then to those with the most free room, until one takes it.", Shards)
	p := newReplay(nodes, podsOf)
	engines := []struct {
		name string
		make func(seed uint64) Engine
	}{
		{"core", func(uint64) Engine { return NewCore(p.w, cache.Config{}) }},
		{"exact best fit", func(uint64) Engine { return NewExact(p.w) }},
		{fmt.Sprintf("core, %d engines", Shards), func(seed uint64) Engine { return NewSharded(p.w, seed) }},
	}
	for i := range seeds {
		for _, e := range engines {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			progress.Say("seed %d of %d: inflation, %s", i+1, seeds, e.name)
			s := newStream(p.w, e.make(seed+uint64(i)), seed)
			p.inflate(s, seed+uint64(i), r.Run("inflation, "+e.name, i+1))
		}
	}
	for _, e := range engines {
		progress.Say("arrival, %s", e.name)
		p.arrive(newStream(p.w, e.make(seed), seed), r.Run("arrival, "+e.name, 1), true)
		p.arrive(newStream(p.w, e.make(seed), seed), r.Run("arrival, none leaves, "+e.name, 1), false)
	}
	for _, way := range []string{"inflation, ", "arrival, ", "arrival, none leaves, "} {
		for _, e := range engines {
			r.Medians(way+e.name, nil)
		}
	}
	for _, pair := range [][2]string{{engines[2].name, engines[0].name}, {engines[2].name, engines[1].name}, {engines[0].name, engines[1].name}} {
		for _, x := range shown {
			name := x.name + " allocated at saturation"
			var less []float64
			for _, a := range r.Runs {
				for _, b := range r.Runs {
					if a.Subject == "inflation, "+pair[0] && b.Subject == "inflation, "+pair[1] && a.Number == b.Number {
						va, okA := a.Get(name)
						vb, okB := b.Get(name)
						if okA && okB {
							less = append(less, vb.Value-va.Value)
						}
					}
				}
			}
			r.Figure(pair[0]+" below "+pair[1], name, "points", less, report.AtMost(1))
		}
	}
	return r, nil
}
