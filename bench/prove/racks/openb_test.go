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

// fleet is the shipping cores of several shards over the nodes of the trace, with a network that delivers in order and
// the lab's Outside.
type fleet struct {
	now     time.Time
	shards  []*shard
	table   *api.Table
	outside lab.Outside
	version int // of pods
	pods    map[string]*api.Pod
	landed  time.Time // when the last pod was bound
	refused int       // HoldRequests that did not get all they named
}

type shard struct {
	*lab.Shard
	inbox []event.Event
}

func newFleet(die *rand.Rand, shards int, nodes []*api.Node, pods []*api.Pod) *fleet {
	f := &fleet{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		outside: lab.Outside{Revision: 10}, version: 10, pods: map[string]*api.Pod{}}
	f.table = &api.Table{Epoch: 1, Revision: 10}
	for i := range shards {
		inc := api.Incarnation("s" + strconv.Itoa(i))
		f.table.Members = append(f.table.Members, api.Member{Incarnation: inc, Name: string(inc)})
		x := &shard{Shard: lab.NewShard(inc, home.Config{Strict: true, InFlight: 8}, node.Config{Strict: true})}
		f.shards = append(f.shards, x)
	}
	for b := range f.table.Owners {
		f.table.Owners[b], f.table.Changed[b] = uint16(die.IntN(shards)), 1
	}
	for _, p := range pods {
		f.pods[p.UID] = p
	}
	f.toAll(event.NamespaceSeen{Name: "default"})
	for _, n := range nodes {
		f.toAll(event.NodeSeen{Node: n})
	}
	f.toAll(event.LogRead{Revision: 10})
	f.toAll(event.CoordinatorSeen{Term: 1, Incarnation: "coordinator"})
	f.toAll(event.TableSeen{Table: f.table})
	f.pass(time.Second)
	return f
}

func (f *fleet) toAll(ev event.Event) {
	for _, x := range f.shards {
		x.inbox = append(x.inbox, ev)
	}
}

// pass lets time pass.
func (f *fleet) pass(d time.Duration) {
	for end := f.now.Add(d); f.now.Before(end); f.now = f.now.Add(100 * time.Millisecond) {
		for some := true; some; {
			some = false
			for _, x := range f.shards {
				all := x.inbox
				x.inbox = nil
				for _, ev := range append(all, event.Drained{}) {
					some = some || ev != event.Event(event.Drained{})
					if err := x.Step(f.now, ev, func(o event.Output) { f.carryOut(x, o) }); err != nil {
						panic(err)
					}
				}
			}
		}
		f.toAll(event.Tick{})
	}
}

func (f *fleet) carryOut(x *shard, o event.Output) {
	result := func(ev event.Event) { x.inbox = append(x.inbox, ev) }
	if answer, log, known := f.outside.Answer(x.Inc, o); known {
		for _, seen := range log {
			f.toAll(seen)
		}
		if answer != nil {
			result(answer)
		}
		return
	}
	switch o := o.(type) {
	case event.Send:
		if r := o.Body.GetHoldReply(); r != nil && len(r.GetRefused()) > 0 {
			f.refused++
		}
		for _, to := range f.shards {
			if to.Inc == o.To {
				to.inbox = append(to.inbox, event.Message{From: x.Inc, Body: o.Body})
			}
		}
	case event.ListPods:
		ev := event.PodsReplaced{Sequence: o.Sequence}
		for _, uid := range api.SortedKeys(f.pods) {
			ev.Pods = append(ev.Pods, f.pods[uid])
		}
		result(ev)
	case event.BindPod:
		p := *f.pods[o.Row.PodUID]
		f.version++
		p.Node, p.Gang, p.ResourceVersion = o.Node, o.Gang, strconv.Itoa(f.version)
		f.pods[p.UID], f.landed = &p, f.now
		f.toAll(event.PodSeen{Pod: &p})
		result(event.BindDone{Row: o.Row, Outcome: event.BindOK})
	case event.WritePodCondition:
		p := *f.pods[o.UID]
		f.version++
		p.ResourceVersion, p.Condition.Reason = strconv.Itoa(f.version), o.Reason
		f.pods[p.UID] = &p
		f.toAll(event.PodSeen{Pod: &p})
		result(event.StatusWritten{ID: o.ID, Outcome: event.StatusOK, ResourceVersion: p.ResourceVersion})
	}
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
					f.pass(100 * time.Millisecond)
				}
			}
			for f.landed = f.now; f.now.Sub(f.landed) < 20*time.Second; {
				f.pass(time.Second)
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
	g := &v1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: a.name, UID: types.UID(a.name), Generation: 1, CreationTimestamp: metav1.NewTime(f.now)}}
	g.Spec.Queue = queue
	g.Spec.SchedulingPolicy.Gang.MinCount = int32(a.pods)
	constraint := v1beta1.TopologyConstraint{Key: rack}
	if a.slice < a.pods {
		constraint.SliceSize = int32(a.slice)
	}
	g.Spec.SchedulingConstraints = &v1beta1.SchedulingConstraints{Topology: []v1beta1.TopologyConstraint{constraint}}
	f.toAll(event.PodGroupSeen{PodGroup: g})
	for i := range a.pods {
		uid := fmt.Sprint(a.name, "-", i)
		p := &api.Pod{UID: uid, Namespace: "default", Name: uid, ResourceVersion: "1", Created: f.now, Ours: true, Group: a.name, Class: api.NewClass(a.need, nil)}
		f.pods[uid] = p
		f.toAll(event.PodSeen{Pod: p})
	}
}

// placed returns how many gangs have all of their pods on nodes, and how many pods that is, and checks that none has some, that each slice is in one rack, and that no node has too much.
func (f *fleet) placed(t *testing.T, asks []ask, nodes []*api.Node) (placed, pods int) {
	at, free := map[string]string{}, map[string]api.Resources{}
	for _, n := range nodes {
		at[n.Name], free[n.Name] = n.Labels[rack], n.Allocatable
	}
	for _, p := range f.pods {
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
			if p := f.pods[fmt.Sprint(a.name, "-", i)]; p.Node != "" {
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
