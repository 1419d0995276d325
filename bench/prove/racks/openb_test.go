package racks

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/bench/measure/workload"
	"basalt.dev/basalt/bench/prove/lab"
	"basalt.dev/basalt/shard/event"
	"basalt.dev/basalt/shard/home"
	"basalt.dev/basalt/shard/node"
)

// fleet is some shards over the nodes of the trace.
type fleet struct {
	*lab.Fleet
	refused int // HoldRequests that did not get all they named
}

func newFleet(die *rand.Rand, shards int, nodes []*api.Node, pods []*api.Pod) *fleet {
	f := &fleet{Fleet: lab.NewFleet(shards, home.Config{Strict: true, InFlight: 8}, node.Config{Strict: true},
		func(api.BucketID) int { return die.IntN(shards) })}
	for _, p := range pods {
		f.Pods[p.UID] = p
	}
	f.Sent = func(send event.Send) {
		if r := send.Body.GetHoldReply(); r != nil && len(r.GetRefused()) > 0 {
			f.refused++
		}
	}
	f.Begin("default", nodes)
	return f
}

// ---- the trace, fragmented

func requests(s workload.Shape) api.Resources {
	out := api.Resources{{Resource: "cpu", Value: s.MilliCPU}, {Resource: "memory", Value: s.MemoryMiB << 20}}
	if s.GPUs > 0 {
		out = append(out, api.Amount{Resource: workload.GPU, Value: s.GPUs})
	}
	return append(out, api.Amount{Resource: "pods", Value: 1})
}

// bin is a node as one global scheduler sees it.
type bin struct {
	name, rack string
	free       api.Resources
}

// takes returns how many pods fit.
func (b *bin) takes(pod api.Resources) int {
	n := math.MaxInt32
	for _, a := range pod {
		n = min(n, int(b.free.Value(a.Resource)/a.Value))
	}
	return n
}

// fragmented returns the 1,523 nodes of the trace in racks of 16, of which pods of the trace fill an unequal part each.
func fragmented(die *rand.Rand) (nodes []*api.Node, pods []*api.Pod, bins []*bin) {
	for _, s := range workload.Nodes() {
		for range s.Count {
			free := append(requests(s), api.Amount{})[:0]
			for _, a := range requests(s) {
				if a.Resource == "pods" {
					a.Value = 110
				}
				free = append(free, a)
			}
			bins = append(bins, &bin{free: free})
		}
	}
	die.Shuffle(len(bins), func(i, j int) { bins[i], bins[j] = bins[j], bins[i] })
	var full float64
	for i, b := range bins {
		if i%16 == 0 {
			full = 0.4 + 0.6*die.Float64() // of this rack
		}
		b.name, b.rack = fmt.Sprintf("n%04d", i), fmt.Sprintf("r%03d", i/16)
		nodes = append(nodes, &api.Node{Name: b.name, UID: b.name, Labels: map[string]string{rack: b.rack, api.LabelHostname: b.name}, Allocatable: b.free})
		cpu := b.free.Value("cpu")
		for tries := 0; tries < 20 && float64(b.free.Value("cpu")) > (1-full)*float64(cpu); tries++ {
			if need := requests(workload.Pick(die, workload.Pods())); b.takes(need) > 0 {
				b.free = b.free.Sub(need)
				uid := fmt.Sprintf("there-%d", len(pods))
				pods = append(pods, &api.Pod{UID: uid, Namespace: "default", Name: uid, ResourceVersion: "1", Node: b.name, Class: api.NewClass(need, nil)})
			}
		}
	}
	return nodes, pods, bins
}

// ask is a gang: pods that are alike, of which each so many are to be in one rack.
type ask struct {
	name        string
	pods, slice int
	need        api.Resources
}

// best places gangs one after another where one global scheduler would: each slice into the rack that it fills best, and its pods onto the
// nodes that they fill best. It returns how many gangs it placed, and how many pods these have.
func best(bins []*bin, asks []ask) (placed, pods int) {
	racks := map[string][]*bin{}
	for _, b := range bins {
		racks[b.rack] = append(racks[b.rack], b)
	}
	for _, a := range asks {
		before := map[*bin]api.Resources{}
		ok := true
		for left := a.pods; left > 0 && ok; left -= a.slice {
			n := min(left, a.slice)
			at, tight := "", math.MaxInt
			for _, id := range api.SortedKeys(racks) {
				room := 0
				for _, b := range racks[id] {
					room += b.takes(a.need)
				}
				if room >= n && room < tight {
					at, tight = id, room
				}
			}
			in := slices.Clone(racks[at])
			slices.SortStableFunc(in, func(x, y *bin) int {
				return cmp.Or(cmp.Compare(x.free.Value(workload.GPU), y.free.Value(workload.GPU)), cmp.Compare(x.free.Value("cpu"), y.free.Value("cpu")))
			})
			for _, b := range in {
				if k := min(n, b.takes(a.need)); k > 0 {
					if before[b] == nil {
						before[b] = b.free
					}
					for range k {
						b.free = b.free.Sub(a.need)
					}
					n -= k
				}
			}
			ok = n == 0
		}
		if ok {
			placed, pods = placed+1, pods+a.pods
			continue
		}
		for b, free := range before { // in any order: each is its own
			b.free = free
		}
	}
	return placed, pods
}

// TestFragmented compares how many gangs 8 shards place, which ask at once and see no more than summaries and answers, with how many one
// global scheduler places that takes them one after another and sees everything. There is room for a part of them.
func TestFragmented(t *testing.T) {
	for _, c := range []struct {
		what string
		size func(die *rand.Rand) (pods, slice int)
	}{
		{"one rack", func(die *rand.Rand) (int, int) { n := 4 + die.IntN(29); return n, n }},
		{"slices of 8", func(die *rand.Rand) (int, int) { return 8 * (2 + die.IntN(7)), 8 }},
	} {
		ours, theirs := 0, 0
		for seed := range uint64(1) { // more of them say the same
			die := rand.New(rand.NewPCG(seed, 1))
			nodes, there, bins := fragmented(die)
			f := newFleet(die, 8, nodes, there)
			var asks []ask
			for i := range 400 {
				a := ask{name: fmt.Sprintf("g%03d", i), need: requests(workload.Pick(die, workload.Pods()))}
				a.pods, a.slice = c.size(die)
				asks = append(asks, a)
			}
			want, wantPods := best(bins, asks)
			began := time.Now()
			for i, a := range asks {
				f.create(a, fmt.Sprint("q", i%40))
				if i%8 == 7 {
					f.Pass(100 * time.Millisecond)
				}
			}
			for f.Bound = f.Now; f.Now.Sub(f.Bound) < 20*time.Second; {
				f.Pass(time.Second)
			}
			got, gotPods := f.placed(t, asks, nodes)
			t.Logf("%s, seed %d: %d gangs, best fit places %d with %d pods, 8 shards %d with %d (%.3f); %d answers lacked something; %s", c.what, seed, len(asks), want, wantPods, got, gotPods, float64(got)/float64(want), f.refused, time.Since(began).Round(time.Millisecond))
			ours, theirs = ours+got, theirs+want
			if want == len(asks) {
				t.Errorf("%s: there is room for all", c.what)
			}
		}
		if t.Logf("%s: %.3f", c.what, float64(ours)/float64(theirs)); 100*ours < 98*theirs {
			t.Errorf("%s: 8 shards place %d gangs, and best fit %d", c.what, ours, theirs)
		}
	}
}

func (f *fleet) create(a ask, queue string) {
	g := &v1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: a.name, UID: types.UID(a.name),
		Generation: 1, CreationTimestamp: metav1.NewTime(f.Now)}}
	g.Spec.Queue = queue
	g.Spec.SchedulingPolicy.Gang.MinCount = int32(a.pods)
	constraint := v1beta1.TopologyConstraint{Key: rack}
	if a.slice < a.pods {
		constraint.SliceSize = int32(a.slice)
	}
	g.Spec.SchedulingConstraints = &v1beta1.SchedulingConstraints{Topology: []v1beta1.TopologyConstraint{constraint}}
	f.Tell(event.PodGroupSeen{PodGroup: g})
	for i := range a.pods {
		uid := fmt.Sprint(a.name, "-", i)
		p := &api.Pod{UID: uid, Namespace: "default", Name: uid, ResourceVersion: "1", Created: f.Now, Ours: true,
			Group: a.name, Class: api.NewClass(a.need, nil)}
		f.Show(p)
	}
}

// placed returns how many gangs have all of their pods on nodes, and how many pods that is, and checks that none has some, that each slice is in one rack, and that no node has too much.
func (f *fleet) placed(t *testing.T, asks []ask, nodes []*api.Node) (placed, pods int) {
	at, free := map[string]string{}, map[string]api.Resources{}
	for _, n := range nodes {
		at[n.Name], free[n.Name] = n.Labels[rack], n.Allocatable
	}
	for _, p := range f.Pods {
		if p.Node != "" {
			free[p.Node] = free[p.Node].Sub(p.Class.Requests)
		}
	}
	for name, left := range free {
		for _, a := range left {
			if a.Value < 0 {
				t.Errorf("node %s has %s too little %s", name, strconv.FormatInt(-a.Value, 10), a.Resource)
			}
		}
	}
	for _, a := range asks {
		in, n := map[string]int{}, 0
		for i := range a.pods {
			if p := f.Pods[fmt.Sprint(a.name, "-", i)]; p.Node != "" {
				in[at[p.Node]]++
				n++
			}
		}
		for _, k := range in {
			if n == a.pods && k%a.slice > 0 {
				t.Errorf("gang %s of slices of %d is in %v", a.name, a.slice, in)
			}
		}
		if n == a.pods {
			placed, pods = placed+1, pods+n
		} else if n > 0 {
			t.Errorf("gang %s has %d of %d pods", a.name, n, a.pods)
		}
	}
	return placed, pods
}
