// Package engine measures the placement core (package cache) alone, on one core, and beside it an exact best-fit scan over
// all nodes on the same stream of pods.
//
// It decides what the stream is: place and release drawn at random at a level of allocation, some hundred classes
// and a few pods with a class of their own, a node's label or taint changed now and then; and two replays of a
// trace. It owns no decision of the product. Everything is made from a seed: the same seed gives the same stream
// on any machine, only times differ.
package engine

import (
	"fmt"
	"math/rand/v2"
	"slices"

	v1 "k8s.io/api/core/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/bench/measure/workload"
	"basalt.dev/basalt/cache"
)

// Shape of the stream: what the table says.
const (
	Classes     = 200  // besides those of single pods
	SingleEvery = 100  // one pod in so many has a class of its own
	ChangeEvery = 1000 // one node changes its label or taint each so many decisions
	Allocated   = 950  // per mille of each resource that is in use in the steady state
)

// The resources that pods ask for, in api order (by name); pods is the last.
const (
	cpu = iota
	storage
	memory
	gpu
	pods
	resources
)

var names = [resources]string{"cpu", "ephemeral-storage", "memory", workload.GPU, "pods"}

type amounts [resources]int64

func (a amounts) api() api.Resources {
	m := map[string]int64{}
	for i, v := range a {
		if v > 0 {
			m[names[i]] = v
		}
	}
	return api.FromMap(m)
}

// Engine places pods: the core, or an exact scan.
type Engine interface {
	SetNode(i int)
	Place(k *kind) (at place, ok bool)
	Charge(pod int, uid string, k *kind, at place)
	Release(pod int, uid string)
}

// place is a node, by name where that is not empty. Who reads the name waits for memory, and that is not the engine's work.
type place struct {
	node int
	name string
}

func (p place) index() int {
	if p.name != "" {
		return nodeIndex(p.name)
	}
	return p.node
}

// kind is a class of pods.
type kind struct {
	class *api.Class
	asks  amounts
	set   int // index in World.sets
}

// machine is a node as the stream knows it.
type machine struct {
	has    amounts
	zone   int
	model  string
	taint  bool
	object *api.Node
}

// World is a cluster and what pods are drawn for it. It changes as nodes do.
type World struct {
	nodes []machine
	sets  [][]byte // constraints
	specs []*v1.PodSpec
	kinds []*kind
	total amounts
}

const zones = 4

// NewWorld makes nodes of the openb shapes, as often as that cluster has them, and classes of its pod shapes.
func NewWorld(seed uint64, nodes int) *World {
	r := rand.New(rand.NewPCG(seed, 1))
	w := &World{}
	var shapes []workload.Shape
	for _, s := range workload.Nodes() {
		for range s.Count {
			shapes = append(shapes, s)
		}
	}
	r.Shuffle(len(shapes), func(i, j int) { shapes[i], shapes[j] = shapes[j], shapes[i] })
	for i := range nodes {
		s := shapes[i%len(shapes)]
		m := machine{zone: r.IntN(zones), model: s.Model, taint: r.IntN(20) == 0}
		m.has = amounts{cpu: s.MilliCPU, memory: s.MemoryMiB << 20, storage: max(200<<30, s.MilliCPU/1000*12<<30), gpu: s.GPUs, pods: 110}
		w.nodes = append(w.nodes, m)
		for k, v := range m.has {
			w.total[k] += v
		}
		w.object(i)
	}

	tolerate := []v1.Toleration{{Key: "dedicated", Operator: v1.TolerationOpEqual, Value: "batch", Effect: v1.TaintEffectNoSchedule}}
	w.specs = append(w.specs, &v1.PodSpec{}, &v1.PodSpec{Tolerations: tolerate})
	for z := range zones {
		selector := map[string]string{"zone": zoneName(z)}
		w.specs = append(w.specs, &v1.PodSpec{NodeSelector: selector}, &v1.PodSpec{NodeSelector: selector, Tolerations: tolerate})
	}
	for _, terms := range [][]string{{"G2", "G3"}, {"T4", "P100", "G2"}, {"G2", "V100M16", "V100M32", "T4"}} {
		w.specs = append(w.specs, &v1.PodSpec{Affinity: &v1.Affinity{NodeAffinity: &v1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
				MatchExpressions: []v1.NodeSelectorRequirement{{Key: workload.ModelLabel, Operator: v1.NodeSelectorOpIn, Values: terms}},
			}}}}}})
	}
	for _, spec := range w.specs {
		b, err := spec.Marshal()
		if err != nil {
			panic(fmt.Sprintf("engine: %v", err)) // a spec of ours
		}
		w.sets = append(w.sets, b)
	}
	for len(w.kinds) < Classes {
		k := w.draw(r)
		if !slices.ContainsFunc(w.kinds, func(o *kind) bool { return o.class.Key == k.class.Key }) {
			w.kinds = append(w.kinds, k)
		}
	}
	return w
}

// draw makes a class: a shape of the trace, more or less, half of them with GPUs, so that CPU and GPUs are both used up.
func (w *World) draw(r *rand.Rand) *kind {
	wantGPU := r.IntN(2) == 0
	shape := workload.Pick(r, workload.Pods())
	for (shape.GPUs > 0) != wantGPU {
		shape = workload.Pick(r, workload.Pods())
	}
	scale := int64(50 + r.IntN(101)) // per cent
	k := &kind{asks: amounts{
		cpu: max(100, shape.MilliCPU*scale/100/10*10), memory: max(64, shape.MemoryMiB*scale/100) << 20,
		storage: int64(1+r.IntN(64)) << 30, gpu: shape.GPUs, pods: 1,
	}}
	if wantGPU && r.IntN(8) == 0 {
		k.asks[gpu] = int64(1) << r.IntN(4)
	}
	// Half of the classes may go anywhere, as most pods may.
	if r.IntN(2) == 0 {
		k.set = 1 + r.IntN(len(w.sets)-1)
		if !wantGPU && k.set >= len(w.sets)-3 {
			k.set = 0
		}
	}
	w.name(k)
	return k
}

func (w *World) name(k *kind) { k.class = api.NewClass(k.asks.api(), w.sets[k.set]) }

// single makes a class that no other pod has.
func (w *World) single(r *rand.Rand) *kind {
	k := *w.kinds[r.IntN(len(w.kinds))]
	k.asks[cpu] += int64(1 + r.IntN(997))
	k.asks[memory] += int64(1+r.IntN(1<<16)) << 10
	w.name(&k)
	return &k
}

// object makes what the API server would say of a node now.
func (w *World) object(i int) {
	m := &w.nodes[i]
	n := &api.Node{Name: nodeName(i), Allocatable: m.has.api(), Labels: map[string]string{
		"zone": zoneName(m.zone), workload.ModelLabel: m.model, "kubernetes.io/hostname": nodeName(i)}}
	if m.taint {
		n.Taints = []v1.Taint{{Key: "dedicated", Value: "batch", Effect: v1.TaintEffectNoSchedule}}
	}
	m.object = n
}

// change moves a node to another zone or gives or takes its taint.
func (w *World) change(r *rand.Rand) int {
	i := r.IntN(len(w.nodes))
	m := &w.nodes[i]
	switch r.IntN(4) {
	case 0:
		m.taint = !m.taint && r.IntN(10) == 0
	default:
		m.zone = r.IntN(zones)
	}
	w.object(i)
	return i
}

// uidOf makes a pod's UID of its number.
func uidOf(pod int) string {
	return fmt.Sprintf("%08x-7d1f-4c3a-9b5e-%012x", uint32(pod*2654435761), pod)
}

func nodeName(i int) string { return fmt.Sprintf("node-%06d", i) }

// nodeIndex is the reverse of nodeName, without a map: a map of all nodes would cost more than the placement.
func nodeIndex(name string) int {
	i := 0
	for _, d := range []byte(name[len("node-"):]) {
		i = 10*i + int(d-'0')
	}
	return i
}

func zoneName(z int) string { return string(rune('a' + z)) }

// Core is package cache as an Engine.
type Core struct {
	w     *World
	cache *cache.Cache
}

// NewCore gives all nodes to an empty cache.
func NewCore(w *World, cfg cache.Config) *Core {
	c := &Core{w: w, cache: cache.New(cfg)}
	for i := range w.nodes {
		c.SetNode(i)
	}
	return c
}

func (c *Core) SetNode(i int) { c.cache.SetNode(c.w.nodes[i].object) }

func (c *Core) Place(k *kind) (place, bool) {
	name, ok := c.cache.Place(k.class)
	return place{node: -1, name: name}, ok
}

func (c *Core) Charge(_ int, uid string, k *kind, at place) {
	c.cache.Charge(uid, at.name, k.class, cache.Hold, "gang", api.Rank{})
}

func (c *Core) Release(_ int, uid string) { c.cache.Release(uid) }

// Exact is textbook best fit by a scan over all nodes, and shares no code with the cache: of the nodes that take a pod, the
// one on which least would remain of what the pod asks for, as a share of what the node has, taking the resource of which
// most remains. Devices go first: a pod that asks for none avoids nodes with free ones, and for one that asks for some, their
// share counts before the others'.
type Exact struct {
	w      *World
	free   [resources][]int64
	has    [resources][]int64
	admits [][]bool // by set and node
	pods   map[int]charged
}

type charged struct {
	asks amounts
	node int
}

// NewExact has all nodes empty.
func NewExact(w *World) *Exact {
	e := &Exact{w: w, pods: map[int]charged{}}
	for k := range resources {
		for i := range w.nodes {
			e.free[k] = append(e.free[k], w.nodes[i].has[k])
			e.has[k] = append(e.has[k], max(w.nodes[i].has[k], 1))
		}
	}
	for range w.sets {
		e.admits = append(e.admits, make([]bool, len(w.nodes)))
	}
	for i := range w.nodes {
		e.SetNode(i)
	}
	return e
}

func (e *Exact) SetNode(i int) {
	m := &e.w.nodes[i]
	for s, spec := range e.w.specs {
		ok := !m.taint || len(spec.Tolerations) > 0
		if z, named := spec.NodeSelector["zone"]; named {
			ok = ok && z == zoneName(m.zone)
		}
		if spec.Affinity != nil {
			terms := spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
			ok = ok && slices.Contains(terms[0].MatchExpressions[0].Values, m.model)
		}
		e.admits[s][i] = ok
	}
}

func (e *Exact) Place(k *kind) (place, bool) {
	best, at := int64(1)<<62, -1
	admits := e.admits[k.set]
	c, m, s, g, p := e.free[cpu], e.free[memory], e.free[storage], e.free[gpu], e.free[pods]
	for i := range c {
		if c[i] < k.asks[cpu] || m[i] < k.asks[memory] || s[i] < k.asks[storage] || g[i] < k.asks[gpu] || p[i] < 1 || !admits[i] {
			continue
		}
		score := max((c[i]-k.asks[cpu])*1000/e.has[cpu][i], (m[i]-k.asks[memory])*1000/e.has[memory][i], (s[i]-k.asks[storage])*1000/e.has[storage][i])
		if k.asks[gpu] > 0 {
			score += (g[i] - k.asks[gpu]) * 1000 / e.has[gpu][i] << 10
		} else if g[i] > 0 {
			score += 1 << 20
		}
		if score < best {
			best, at = score, i
		}
	}
	return place{node: at}, at >= 0
}

func (e *Exact) Charge(pod int, _ string, k *kind, at place) {
	e.pods[pod] = charged{k.asks, at.index()}
	for r, v := range k.asks {
		e.free[r][at.index()] -= v
	}
}

func (e *Exact) Release(pod int, _ string) {
	p, ok := e.pods[pod]
	if !ok { // was refused
		return
	}
	delete(e.pods, pod)
	for r, v := range p.asks {
		e.free[r][p.node] += v
	}
}
