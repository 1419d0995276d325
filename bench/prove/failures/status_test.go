package failures

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/audit"
	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/bench/prove/seeds"
	"basalt.dev/basalt/bench/stage/observe"
)

// Short gangs come and go over many queues while somebody edits the queues all the time. Each queue's status has one writer
// in an epoch, also when a shard dies; none of its writes meets another's; no edit is lost; no status is older than two
// seconds; memory and goroutines stay flat.
func TestStatusStorm(t *testing.T) {
	failure{bug: fault.TwoStatusWriters, evidence: `refused .*queues/status|was written by`, scenario: statusStorm}.show(t)
}

func statusStorm(w *world) {
	ctx := w.t.Context()
	w.strict = true
	for i := range 8 {
		w.node(ctx, fmt.Sprintf("n%d", i), amounts{"cpu": "64", "memory": "256Gi"}, nil)
	}
	var queues, leaves []string
	for i := range 5 {
		parent := fmt.Sprintf("d%d", i)
		queues = append(queues, parent)
		for j := range 7 {
			leaves = append(leaves, fmt.Sprintf("%s.t%d", parent, j))
		}
	}
	queues = append(queues, leaves...)
	for _, q := range queues {
		w.queue(ctx, q, amounts{"cpu": "100"})
	}
	ages := newAges()
	w.mu.Lock()
	w.onEvent = ages.observe
	w.mu.Unlock()
	users := &editors{world: w, queues: queues, edits: map[string]int64{}, last: map[string]v1beta1.QueueSpec{}}
	samples := &samples{world: w, of: map[string][]sample{}}

	// The churn goes on for as long, and until each process was asked for its metrics so many times.
	churn := func(name string, d time.Duration, asked int64) (gangs int) {
		until := time.Now().Add(d * time.Duration(*long))
		var taken atomic.Int64
		goesOn := func() bool {
			return (time.Now().Before(until) || taken.Load() < asked) && !w.found() && ctx.Err() == nil
		}
		var mu sync.Mutex
		var wg sync.WaitGroup
		for worker := range 6 {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(7, uint64(worker)))
				for i := 0; goesOn(); i++ {
					group := fmt.Sprintf("%s-%d-%d", name, worker, i)
					if !w.short(ctx, group, leaves[r.IntN(len(leaves))], 1+r.IntN(3)) {
						return
					}
					mu.Lock()
					gangs++
					mu.Unlock()
				}
			})
		}
		wg.Go(func() {
			for goesOn() {
				users.edit(ctx)
			}
		})
		wg.Go(func() {
			tick := time.NewTicker(500 * time.Millisecond)
			defer tick.Stop()
			for goesOn() {
				samples.take(ctx)
				taken.Add(1)
				<-tick.C
			}
		})
		wg.Wait()
		return gangs
	}

	warm := churn("warm", 4*time.Second, 0) // until then nothing is judged by its size or age
	if w.judgeAuditLog(); w.found() {
		return
	}
	// What is judged by time and size is judged while nobody takes over from anybody: a busy machine can do that to us.
	// How old a status may be depends on the machine, too: beside other tests, only one that is forgotten is found.
	most, mostOften, lasts := 4*time.Second, 2*time.Second, 14*time.Second
	if !seeds.InFull() {
		most, mostOften, lasts = limit, limit, 8*time.Second
	}
	steady, calm := 0, false
	var oldest, often time.Duration
	for try := 0; try < 4 && !calm && !w.found(); try++ {
		epoch, before := w.epoch(), w.restarts()
		samples.clear()
		ages.begin()
		steady += churn(fmt.Sprintf("steady%d", try), lasts, 2*fewest)
		ages.end()
		w.judgeProcesses()
		w.judgeAuditLog()
		oldest, often = ages.worst()
		w.t.Logf("%s: %d gangs, %d edits; statuses were at most %s old, 99 %% of looks at most %s; %s", w.name, warm+steady, users.total(), oldest, often, samples.summary())
		calm = epoch == w.epoch() && before == w.restarts() && often <= mostOften && oldest <= most
	}
	if !calm && !w.found() { // one time in four a machine may stand still for a moment
		w.find("four times, shards lost their buckets though nobody killed them, or a status was old: at last %s, 1 %% of looks above %s", oldest, often)
	}
	if w.found() {
		return
	}
	samples.judge()
	if w.found() {
		return
	}

	// A shard dies: its queues get another writer, in another epoch.
	victim := w.shards[1]
	w.mu.Lock()
	w.ends[victim.Name()]++
	w.mu.Unlock()
	epoch := w.epoch()
	victim.Kill()
	churn("after", 5*time.Second, 0)
	w.wait(limit, "a new epoch after a shard was killed", func(v *view) bool { return v.Table.Epoch > epoch })
	users.judge(ctx)
	w.wait(limit, "every status to say what is charged", func(v *view) bool { return len(v.lies()) == 0 })
}

// epoch is that of the newest table.
func (w *world) epoch() api.Epoch {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen.Table.Epoch
}

// short runs a gang to its end and takes it away.
func (w *world) short(ctx context.Context, name, queue string, pods int) bool {
	uids, err := w.gang(ctx, name, queue, pods, runsFor(w.newPod("", "", amounts{"cpu": "1", "memory": "1Gi"}), 200*time.Millisecond))
	if err != nil {
		w.find("%v", err)
		return false
	}
	if !w.wait(limit, "gang "+name+" to run to its end", func(v *view) bool {
		return !slices.ContainsFunc(uids, func(uid types.UID) bool { return !v.finished[uid] })
	}) {
		return false
	}
	zero := int64(0)
	for i := range pods {
		if err := w.kube.Core.CoreV1().Pods(w.name).Delete(ctx, fmt.Sprintf("%s-%d", name, i), metav1.DeleteOptions{GracePeriodSeconds: &zero}); err != nil {
			w.find("delete pod of gang %s: %v", name, err)
			return false
		}
	}
	if err := w.kube.Basalt.Delete().Namespace(w.name).Resource("podgroups").Name(name).Do(ctx).Error(); err != nil {
		w.find("delete PodGroup %s: %v", name, err)
		return false
	}
	return true
}

// ---- edits

// editors change queue specs, in both of the ways that users do, and remember what they did.
type editors struct {
	*world
	queues []string
	n      int
	edits  map[string]int64 // by queue
	last   map[string]v1beta1.QueueSpec
}

func (e *editors) edit(ctx context.Context) {
	e.n++
	name := e.queues[e.n%len(e.queues)]
	spec := v1beta1.QueueSpec{Capability: amounts{"cpu": fmt.Sprint(60 + e.n%97), "pods": fmt.Sprint(500 + e.n)}.list(), Guarantee: amounts{"cpu": fmt.Sprint(1 + e.n%3)}.list()}
	var got v1beta1.Queue
	var err error
	if e.n%2 == 0 {
		err = e.kube.Basalt.Patch(types.MergePatchType).Resource("queues").Name(name).Body(mustJSON(map[string]any{"spec": spec})).Do(ctx).Into(&got)
	} else {
		// Read, change, write: the user has to do it again when somebody else, a status writer for example, was faster.
		for range 100 {
			got = v1beta1.Queue{}
			if err = e.kube.Basalt.Get().Resource("queues").Name(name).Do(ctx).Into(&got); err != nil {
				break
			}
			got.Spec = spec
			put := got
			got = v1beta1.Queue{}
			if err = e.kube.Basalt.Put().Resource("queues").Name(name).Body(&put).Do(ctx).Into(&got); !apierrors.IsConflict(err) {
				break
			}
		}
	}
	if err != nil {
		if ctx.Err() == nil {
			e.find("edit queue %s: %v", name, err)
		}
		return
	}
	e.edits[name]++
	e.last[name] = spec
	if got.Generation != e.edits[name]+1 {
		e.find("queue %s has generation %d after %d edits", name, got.Generation, e.edits[name])
	}
}

func (e *editors) total() (n int64) {
	for _, v := range e.edits {
		n += v
	}
	return n
}

// judge waits until the last edit of each queue stands in the spec, in the limits in force and in the status.
func (e *editors) judge(context.Context) {
	missing := ""
	ok := e.wait(limit, "every edit to be in force and in its status", func(v *view) bool {
		missing = ""
		for _, name := range slices.Sorted(maps.Keys(e.last)) {
			want, _ := api.FromResourceList(e.last[name].Capability, false)
			q, limits := v.queues[name], v.Limits[name]
			switch {
			case q == nil || limits == nil:
				missing = name + " is not there"
			case q.Generation != e.edits[name]+1:
				missing = fmt.Sprintf("%s has generation %d after %d edits", name, q.Generation, e.edits[name])
			case !sameList(q.Spec.Capability, want):
				missing = fmt.Sprintf("%s has capability %v, the last edit said %v", name, q.Spec.Capability, want)
			case limits.GetGeneration() != q.Generation:
				missing = fmt.Sprintf("limits of generation %d are in force at %s, which has %d", limits.GetGeneration(), name, q.Generation)
			case q.Status == nil || q.Status.ObservedGeneration != q.Generation || !sameList(q.Status.Limits.Capability, want):
				missing = fmt.Sprintf("the status of %s does not speak of generation %d: %+v", name, q.Generation, q.Status)
			default:
				continue
			}
			return false
		}
		return true
	})
	if !ok && missing != "" {
		e.find("an edit was lost: %s", missing)
	}
}

func sameList(l v1.ResourceList, want api.Resources) bool {
	got, err := api.FromResourceList(l, false)
	return err == nil && got.Equal(want)
}

// ---- ages of statuses

// charge is what a queue's subtree holds.
type charge struct {
	cpu, pods int64
	gangs     int
}

// charges sums the reservations of every subtree.
func charges(s *observe.Store) map[string]charge {
	out := map[string]charge{}
	for _, r := range s.Reservations {
		demand, err := wire.ToResources(r.GetDemand())
		if err != nil {
			continue
		}
		for _, path := range api.Lineage(r.GetGang().GetQueue()) {
			c := out[path]
			out[path] = charge{c.cpu + demand.Value("cpu"), c.pods + demand.Value("pods"), c.gangs + 1}
		}
	}
	return out
}

func said(q *v1beta1.Queue) charge {
	if q.Status == nil {
		return charge{}
	}
	cpu, pods := q.Status.Charged[v1.ResourceCPU], q.Status.Charged[v1.ResourcePods]
	return charge{cpu.MilliValue(), pods.Value(), int(q.Status.AdmittedGangs)}
}

// lies names the queues whose status says something else than the reservations.
func (v *view) lies() []string {
	truth := charges(&v.Store)
	var out []string
	for name, q := range v.queues {
		if said(q) != truth[name] {
			out = append(out, name)
		}
	}
	return out
}

// ages measures how old statuses are: a status is as old as the last moment at which what it says was so. Truth and status
// come by the auditor's two watches; what they differ in is charged to the status.
type ages struct {
	mu      sync.Mutex
	judging bool
	store   observe.Store
	truth   map[string]charge
	queues  map[string]charge               // what each status says
	was     map[string]map[charge]time.Time // until when the truth was another than it is now
	all     []time.Duration
}

func newAges() *ages {
	return &ages{truth: map[string]charge{}, queues: map[string]charge{}, was: map[string]map[charge]time.Time{}}
}

func (a *ages) begin() { a.mu.Lock(); defer a.mu.Unlock(); a.judging, a.all = true, nil }
func (a *ages) end()   { a.mu.Lock(); defer a.mu.Unlock(); a.judging = false }

func (a *ages) observe(now time.Time, e audit.Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch e := e.(type) {
	case audit.StoreRevision:
		before := a.truth
		a.store.Observe(e)
		a.truth = charges(&a.store)
		for name, c := range before {
			if a.truth[name] != c {
				a.until(name, c, now)
			}
		}
		for name, c := range a.truth {
			if _, had := before[name]; !had && c != (charge{}) {
				a.until(name, charge{}, now)
			}
		}
	case audit.Seen[*v1beta1.Queue]:
		a.queues[e.Object.Name] = said(e.Object)
	case audit.Tick:
		for name, says := range a.queues {
			if !a.judging {
				continue
			}
			age := time.Duration(0)
			if says != a.truth[name] {
				at, was := a.was[name][says]
				if !was { // it never was so, or the watch of the control store is behind: from now on it grows old
					a.until(name, says, now)
					at = now
				}
				age = now.Sub(at)
			}
			a.all = append(a.all, age)
		}
	}
}

func (a *ages) until(name string, c charge, now time.Time) {
	if a.was[name] == nil {
		a.was[name] = map[charge]time.Time{}
	}
	a.was[name][c] = now
}

func (a *ages) worst() (oldest, p99 time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.all) == 0 {
		return 0, 0
	}
	slices.Sort(a.all)
	return a.all[len(a.all)-1].Round(time.Millisecond), a.all[len(a.all)*99/100].Round(time.Millisecond)
}

// ---- memory and goroutines

// fewest is how many samples of a process are compared at least.
const fewest = 8

type sample struct{ goroutines, heap, resident float64 }

type samples struct {
	*world
	of map[string][]sample
}

func (s *samples) clear() { clear(s.of) }

func (s *samples) take(ctx context.Context) {
	for _, b := range s.all {
		if m, err := b.Samples(ctx); err == nil {
			s.of[b.Name()] = append(s.of[b.Name()], sample{m["go_goroutines"], m["go_memstats_heap_inuse_bytes"], m["process_resident_memory_bytes"]})
		}
	}
}

// halves returns the most goroutines and the least heap, which is what garbage leaves, of both halves of the time.
func (s *samples) halves(name string) (first, second sample) {
	all := s.of[name]
	sum := func(part []sample) (out sample) {
		for i, x := range part {
			out.goroutines = max(out.goroutines, x.goroutines)
			if i == 0 || x.heap < out.heap {
				out.heap = x.heap
			}
			out.resident = max(out.resident, x.resident)
		}
		return out
	}
	return sum(all[:len(all)/2]), sum(all[len(all)/2:])
}

func (s *samples) summary() string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(s.of)) {
		a, b := s.halves(name)
		out = append(out, fmt.Sprintf("%s: goroutines %g, %g, heap %.1f, %.1f MB, resident %.0f, %.0f MB", name[strings.IndexByte(name, '-')+1:], a.goroutines, b.goroutines, a.heap/1e6, b.heap/1e6, a.resident/1e6, b.resident/1e6))
	}
	return strings.Join(out, "; ")
}

func (s *samples) judge() {
	for _, name := range slices.Sorted(maps.Keys(s.of)) {
		if len(s.of[name]) < fewest {
			s.find("%s: only %d samples of its metrics", name, len(s.of[name]))
			continue
		}
		a, b := s.halves(name)
		if b.goroutines > a.goroutines+40 {
			s.find("%s: goroutines grew from %g to %g", name, a.goroutines, b.goroutines)
		}
		if b.heap > 1.5*a.heap+8e6 {
			s.find("%s: the heap grew from %g to %g MB", name, a.heap/1e6, b.heap/1e6)
		}
		if b.resident > 1.5*a.resident+32e6 {
			s.find("%s: memory grew from %g to %g MB", name, a.resident/1e6, b.resident/1e6)
		}
	}
}
