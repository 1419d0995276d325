package demo

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sort"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/bench/measure/workload"
	"basalt.dev/basalt/bench/stage/kubelet"
)

// namespace holds everything that the demo schedules.
const namespace = "demo"

// bigModel is the GPU model of more than a third of the nodes. GPU jobs of part 2 ask for it, CPU jobs stay away from it,
// as clusters keep such nodes: otherwise CPU jobs would sit beside idle GPUs.
const bigModel = "G2"

// plan is everything that the demo makes, from one seed.
type plan struct {
	nodes  []*v1.Node
	cores  int64
	queues []*v1beta1.Queue // parents first
	first  []*gang          // part 1
	second []*gang          // part 2, in the order of being created
	stream []*gang          // part 2, spread over the time of the failovers
}

// gang is one gang as it is meant: whether it is to be bound is marked when it is made.
type gang struct {
	name   string
	queue  string
	single bool // a pod without a PodGroup
	min    int
	never  string // why it can never be bound, "" for a gang that is to be bound
	pods   []*v1.Pod
	part   int
}

func (g *gang) podGroup() *v1beta1.PodGroup {
	return &v1beta1.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: g.name},
		Spec:       v1beta1.PodGroupSpec{Queue: g.queue, SchedulingPolicy: v1beta1.SchedulingPolicy{Gang: v1beta1.GangSchedulingPolicy{MinCount: int32(g.min)}}},
	}
}

// size says how much of everything there is; scale 1 is the whole demo.
type size struct {
	scale                        float64
	pace                         float64 // of how long pods run: a small cluster is full sooner
	part1, research, batch, flow int     // pods
}

func sizeOf(scale float64) size {
	n := func(whole int) int { return max(1, int(math.Round(float64(whole)*scale))) }
	return size{scale, min(1, max(0.12, 4*scale)), n(2000), n(1700), n(1900), max(120, n(400))}
}

// Names of the queues. Part 1 uses the ones without limits; they are many so that every shard is home to some.
const (
	company, research, batch, service = "acme", "acme.research", "acme.batch", "acme.service"
	unlimited                         = "open"
	leavesUnlimited, leavesService    = 16, 24
)

func makePlan(seed uint64, scale float64) *plan {
	r := rand.New(rand.NewPCG(seed, 0xba5a17))
	p := &plan{}
	s := sizeOf(scale)
	var bigCores, otherCores, bigGPUs int64
	for i, shape := range workload.Nodes() {
		for j := range max(1, int(math.Ceil(float64(shape.Count)*scale))) {
			n := kubelet.Node(fmt.Sprintf("node-%02d-%03d", i, j), "0", "0", 256)
			n.Labels[workload.ModelLabel] = shape.Model
			for name, q := range shape.Resources() {
				n.Status.Allocatable[name], n.Status.Capacity[name] = q, q
			}
			p.nodes = append(p.nodes, n)
			p.cores += shape.MilliCPU
			if shape.Model == bigModel {
				bigCores, bigGPUs = bigCores+shape.MilliCPU, bigGPUs+shape.GPUs
			} else {
				otherCores += shape.MilliCPU
			}
		}
	}
	p.cores /= 1000
	// Shards find out by name what they own; creation in random order spreads the work.
	r.Shuffle(len(p.nodes), func(i, j int) { p.nodes[i], p.nodes[j] = p.nodes[j], p.nodes[i] })

	researchCap, batchCap := bigCores*66/100, otherCores*63/100
	queue := func(name string, milli, gpus int64) {
		q := &v1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if milli > 0 {
			q.Spec.Capability = v1.ResourceList{"cpu": *resource.NewMilliQuantity(milli, resource.DecimalSI)}
			if gpus > 0 {
				q.Spec.Capability[workload.GPU] = *resource.NewQuantity(gpus, resource.DecimalSI)
			}
		}
		p.queues = append(p.queues, q)
	}
	queue(company, researchCap+batchCap+otherCores/10, 0)
	queue(research, researchCap, bigGPUs*80/100)
	queue(batch, batchCap, 0)
	queue(service, otherCores/10, 0)
	researchLeaves := []string{research + ".vision", research + ".speech", research + ".language"}
	batchLeaves := []string{batch + ".etl", batch + ".reports", batch + ".spark"}
	for _, l := range researchLeaves { // together more than the parent has: both levels deny
		queue(l, researchCap*45/100, 0)
	}
	for _, l := range batchLeaves {
		queue(l, batchCap*45/100, 0)
	}
	queue(batch+".small", 64_000, 0)
	var serviceLeaves, open []string
	for i := range leavesService {
		serviceLeaves = append(serviceLeaves, fmt.Sprintf("%s.s%02d", service, i))
		queue(serviceLeaves[i], 0, 0)
	}
	queue(company+".archive", 0, 0)
	queue(company+".archive.cold", 0, 0)
	p.queues[len(p.queues)-1].Spec.Closed = true
	queue(unlimited, 0, 0)
	for i := range leavesUnlimited {
		open = append(open, fmt.Sprintf("%s.q%02d", unlimited, i))
		queue(open[i], 0, 0)
	}
	p.queues = append(p.queues, teamQueues()...)

	// Part 1: the trace's pods as they are, in gangs, no limits. They stay: a cluster is never empty.
	shapes := workload.Pods()
	for left, i := s.part1, 0; left > 0; i++ {
		n := min(left, gangSize(r, 32))
		g := &gang{name: fmt.Sprintf("one-%04d", i), queue: open[r.IntN(len(open))], min: n, part: 1}
		for range n {
			g.add(workload.Pick(r, shapes), 0, nil)
		}
		p.first = append(p.first, g)
		left -= n
	}

	// Part 2: pods that run several of the trace's pods each, so that few thousand fill the cluster.
	big := pick(shapes, [3]int64{11908, 47104, 1}, [3]int64{11400, 48128, 1}, [3]int64{8000, 30517, 1}, [3]int64{11300, 49152, 1})
	plain := pick(shapes, [3]int64{12500, 57344, 0}, [3]int64{32000, 49152, 0}, [3]int64{15400, 51200, 0}, [3]int64{16500, 51200, 0})
	onBig := &v1.PodSpec{NodeSelector: map[string]string{workload.ModelLabel: bigModel}}
	offBig := &v1.PodSpec{Affinity: &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{
		NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: []v1.NodeSelectorRequirement{{Key: workload.ModelLabel, Operator: v1.NodeSelectorOpNotIn, Values: []string{bigModel}}}}}}}}}
	tree := func(prefix string, pods int, leaves []string, limit int64, bundle func() workload.Shape, where *v1.PodSpec) []*gang {
		var out []*gang
		for left, i := pods, 0; left > 0; i++ {
			shape := bundle()
			n := gangSize(r, 200)
			if i == 0 {
				n = 200 // one of the largest, whatever is drawn
			}
			n = min(left, n, max(1, int(limit*45/100*7/10/shape.MilliCPU)))
			g := &gang{name: fmt.Sprintf("%s-%04d", prefix, i), queue: leaves[r.IntN(len(leaves))], min: n, part: 2}
			if n >= 10 && r.IntN(10) == 0 {
				g.min = n * 8 / 10 // the rest are charged and placed one by one
			}
			for range n {
				g.add(shape, 0, where)
			}
			out = append(out, g)
			left -= n
		}
		// The largest go first: at the end of the day they would only wait for each other.
		sort.SliceStable(out, func(i, j int) bool { return len(out[i].pods) > 100 && len(out[j].pods) <= 100 })
		// What fills the cluster runs until it has been full for a while; what comes after is shorter.
		var sum int64
		for _, g := range out {
			low, high := 5.0, 10.0
			if sum < limit {
				low, high = 24, 32
			}
			run := fmt.Sprintf("%.1f", s.pace*(low+r.Float64()*(high-low)))
			for _, pod := range g.pods {
				pod.Annotations = map[string]string{kubelet.RunSeconds: run}
				sum += pod.Spec.Containers[0].Resources.Requests.Cpu().MilliValue()
			}
		}
		return out
	}
	a := tree("train", s.research, researchLeaves, researchCap, func() workload.Shape { return workload.Pick(r, big).Times([]int64{2, 4, 4}[r.IntN(3)]) }, onBig)
	b := tree("batch", s.batch, batchLeaves, batchCap, func() workload.Shape {
		shape := workload.Pick(r, plain)
		return shape.Times(1 + r.Int64N(100_000/shape.MilliCPU)%4)
	}, offBig)
	for len(a)+len(b) > 0 { // interleaved by what is left
		if r.IntN(len(a)+len(b)) < len(a) {
			p.second, a = append(p.second, a[0]), a[1:]
		} else {
			p.second, b = append(p.second, b[0]), b[1:]
		}
	}

	// What can never be bound, each for another reason.
	small := shapes[0]
	never := func(name, queue, why string, n, min int, shape workload.Shape, where *v1.PodSpec) {
		g := &gang{name: "never-" + name, queue: queue, min: min, never: why, part: 2}
		for range n {
			g.add(shape, 0, where)
		}
		p.second = slices.Insert(p.second, r.IntN(len(p.second)+1), g)
	}
	never("above-capability", batch+".small", "asks for more than its queue's capability", 8, 8, workload.Shape{MilliCPU: 32_000, MemoryMiB: 1024}, nil)
	never("above-ancestor", serviceLeaves[0], "asks for more than an ancestor's capability", 4, 4, workload.Shape{MilliCPU: otherCores / 10 / 3, MemoryMiB: 1024}, nil)
	never("above-any-node", serviceLeaves[1], "has a pod larger than any node", 1, 1, workload.Shape{MilliCPU: 130_000, MemoryMiB: 1024}, nil)
	never("closed", company+".archive.cold", "names a closed queue", 2, 2, small, nil)
	never("no-queue", service+".nowhere", "names a queue that does not exist", 2, 2, small, nil)
	never("too-few", serviceLeaves[2], "has fewer pods than its minimum", 3, 5, small, nil)
	never("device", serviceLeaves[3], "uses a constraint that is not supported", 2, 2, small, &v1.PodSpec{
		ResourceClaims: []v1.PodResourceClaim{{Name: "device", ResourceClaimName: new("of-nobody")}}})

	// A stream of small gangs for the time of the failovers, round all service queues; each second one without a PodGroup.
	for i := range s.flow {
		g := &gang{name: fmt.Sprintf("call-%04d", i), queue: serviceLeaves[i%len(serviceLeaves)], min: 1, single: i%2 == 1, part: 2}
		g.add(workload.Shape{MilliCPU: 1000, MemoryMiB: 2048}, s.pace*(4+r.Float64()*4), nil)
		p.stream = append(p.stream, g)
	}
	return p
}

// gangSize draws mostly small gangs and a few as large as most.
func gangSize(r *rand.Rand, most int) int {
	switch n := r.IntN(100); {
	case n < 60:
		return 1 + r.IntN(min(8, most))
	case n < 90 || most < 65:
		return min(most, 9+r.IntN(56))
	default:
		return 65 + r.IntN(most-64)
	}
}

func pick(shapes []workload.Shape, wanted ...[3]int64) []workload.Shape {
	var out []workload.Shape
	for _, w := range wanted {
		i := slices.IndexFunc(shapes, func(s workload.Shape) bool { return [3]int64{s.MilliCPU, s.MemoryMiB, s.GPUs} == w })
		if i < 0 {
			panic(fmt.Sprintf("demo: the trace has no pod shape %v", w))
		}
		out = append(out, shapes[i])
	}
	return out
}

// add gives a gang one more pod of a shape; run is in seconds, 0 for as long as the demo.
func (g *gang) add(shape workload.Shape, run float64, where *v1.PodSpec) {
	grace := int64(0)
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s-%03d", g.name, len(g.pods)), Labels: map[string]string{}},
		Spec: v1.PodSpec{
			SchedulerName: api.SchedulerName, RestartPolicy: v1.RestartPolicyNever, TerminationGracePeriodSeconds: &grace,
			Containers: []v1.Container{{Name: "main", Image: "none", Resources: v1.ResourceRequirements{Requests: shape.Resources()}}},
		},
	}
	if shape.GPUs > 0 { // an extended resource wants its limit to be the same
		p.Spec.Containers[0].Resources.Limits = v1.ResourceList{workload.GPU: *resource.NewQuantity(shape.GPUs, resource.DecimalSI)}
	}
	if g.single {
		p.Labels[api.LabelQueue] = g.queue
	} else {
		p.Labels[api.LabelPodGroup] = g.name
	}
	if run > 0 {
		p.Annotations = map[string]string{kubelet.RunSeconds: fmt.Sprintf("%.1f", run)}
	}
	if where != nil {
		p.Spec.NodeSelector, p.Spec.Affinity, p.Spec.ResourceClaims = where.NodeSelector, where.Affinity, where.ResourceClaims
	}
	g.pods = append(g.pods, p)
}

// leaveOut forgets the gangs of parts that are left out. The gangs of part 3 are no part of a plan (teams.go).
func (p *plan) leaveOut(parts map[int]bool) {
	if parts[1] {
		p.first = nil
	}
	if parts[2] {
		p.second, p.stream = nil, nil
	}
}

// all returns every gang of parts 1 and 2.
func (p *plan) all() []*gang { return slices.Concat(p.first, p.second, p.stream) }

// paths returns the queues in the order of the tree.
func (p *plan) paths() []string {
	var out []string
	for _, q := range p.queues {
		out = append(out, q.Name)
	}
	slices.Sort(out)
	return out
}
