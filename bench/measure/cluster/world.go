package cluster

import (
	"math/rand/v2"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/bench/measure/report"
	"basalt.dev/basalt/bench/measure/scenario"
	"basalt.dev/basalt/bench/measure/workload"
	"basalt.dev/basalt/bench/stage/memory"
)

// gang is one gang as the API shows it.
type gang struct {
	*scenario.Gang
	demand   amount // of all pods
	complete time.Time
	bound    int // pods that got a node, ever
	finished int
	gone     int
	first    time.Time // first and last Binding of the minimum
	owners   uint64    // bit i: a pod lies on a node of shard i
	seen     int       // samples in a row in which the oracle saw room
	refused  bool      // said to be unschedulable now
	stuck    bool      // counted already
	beside   bool      // beside the load: in no figure of it
	pods     []due     // those with a node, in a steady load
	told     bool      // to end
}

// amount is what the oracle reckons with.
type amount struct{ cpu, memory, pods, gpus int64 }

func (a amount) plus(b amount, times int64) amount {
	return amount{a.cpu + times*b.cpu, a.memory + times*b.memory, a.pods + times*b.pods, a.gpus + times*b.gpus}
}

func (a amount) within(b amount) bool {
	return a.cpu <= b.cpu && a.memory <= b.memory && a.pods <= b.pods && a.gpus <= b.gpus
}

// world is what the API has shown: gangs, and what nodes and queues hold.
type world struct {
	mu     sync.Mutex
	gangs  map[string]*gang
	nodes  map[string]*nodeRoom
	queues map[string]*queueRoom
	used   amount // by all pods that run
	total  amount // of all nodes
	table  *api.Table

	boundPods, boundGangs, crossing, finishedPods, refusedWrongly, refusals int64
	waitingPods                                                             int64            // of the load, without a node
	outstanding                                                             map[string]int64 // milli-cores of a leaf's gangs that exist
	lastBound, unstuck                                                      time.Time

	// In a steady load gangs drawn at random end while pods use more CPU than this.
	keep    int64
	steady  bool
	ending  int64 // CPU of those that were told to end and still use theirs
	apart   int64 // CPU of gangs that end by themselves
	running []*gang
	random  *rand.Rand

	latency *report.Latency
	kubelet *kubelet
	ended   func(*gang) // hears of a gang that is gone; the lock is held
	gone    func(*gang) // so does this
	whole   func(*gang) // hears of a gang that got its minimum; the lock is held

	leave   time.Duration            // how long an evicted pod takes to leave; 0: nobody is evicted
	evicted func(g *gang, p *v1.Pod) // hears of an evicted pod of the load that is gone; the lock is held
}

type nodeRoom struct {
	name       string
	total      amount
	used       amount
	overcommit bool
}

type queueRoom struct {
	limit amount // 0: none
	used  amount
	path  []*queueRoom // it and its ancestors
}

const memoryOf = v1.ResourceMemory

func amountOf(l v1.ResourceList) amount {
	pods := l[v1.ResourcePods]
	gpus := l[workload.GPU]
	return amount{l.Cpu().MilliValue(), l.Memory().Value(), pods.Value(), gpus.Value()}
}

func newWorld(nodes []*v1.Node, queues []*v1beta1.Queue) *world {
	w := &world{gangs: map[string]*gang{}, nodes: map[string]*nodeRoom{}, queues: map[string]*queueRoom{}, outstanding: map[string]int64{}, latency: report.NewLatency("basalt", "complete to whole")}
	for _, n := range nodes {
		r := &nodeRoom{name: n.Name, total: amountOf(n.Status.Allocatable)}
		w.nodes[n.Name] = r
		w.total = w.total.plus(r.total, 1)
	}
	for _, q := range queues {
		w.queues[q.Name] = &queueRoom{limit: amountOf(q.Spec.Capability)}
	}
	w.tree()
	return w
}

// tree finds the ancestors of all queues.
func (w *world) tree() {
	for name, q := range w.queues {
		for path := name; path != ""; path = parentOf(path) {
			if p := w.queues[path]; p != nil {
				q.path = append(q.path, p)
			}
		}
	}
}

func parentOf(path string) string {
	for i := len(path) - 1; i >= 0; i-- {
		if path[i] == '.' {
			return path[:i]
		}
	}
	return ""
}

func podAmount(p *v1.Pod) amount {
	a := amount{pods: 1}
	for i := range p.Spec.Containers {
		r := p.Spec.Containers[i].Resources.Requests
		a.cpu += r.Cpu().MilliValue()
		a.memory += r.Memory().Value()
		if q, asks := r[workload.GPU]; asks {
			a.gpus += q.Value()
		}
	}
	return a
}

// fits reports whether the queue and its ancestors have room for more.
func (q *queueRoom) fits(more amount) bool {
	for _, p := range q.path {
		u := p.used.plus(more, 1)
		if l := p.limit; l.cpu > 0 && u.cpu > l.cpu || l.memory > 0 && u.memory > l.memory || l.gpus > 0 && u.gpus > l.gpus {
			return false
		}
	}
	return true
}

func (q *queueRoom) add(more amount, times int64) {
	for _, p := range q.path {
		p.used = p.used.plus(more, times)
	}
}

// observe hears of every change, while the API is locked.
func (w *world) observe(resource string, event watch.EventType, before, after memory.Object) {
	switch o := after.(type) {
	case *v1.Pod:
		var old *v1.Pod
		if before != nil {
			old = before.(*v1.Pod)
		}
		w.pod(event, old, o)
	case *v1beta1.PodGroup:
		if event == watch.Modified && o.Status != nil {
			w.group(o)
		}
	}
}

func (w *world) pod(event watch.EventType, old, p *v1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	g := w.gangs[gangOf(p)]
	if g == nil {
		return
	}
	done := func(p *v1.Pod) bool { return p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed }
	switch {
	case event == watch.Modified && old.Spec.NodeName == "" && p.Spec.NodeName != "":
		w.take(g, p, 1)
		g.bound++
		w.boundPods++
		w.lastBound = time.Now()
		if !g.beside {
			w.waitingPods--
		}
		if w.table != nil {
			g.owners |= 1 << uint(w.table.Owners[api.BucketOf(p.Spec.NodeName)])
		}
		if g.bound == g.MinCount {
			if !g.beside {
				w.boundGangs++
				w.latency.Record(time.Since(g.complete))
				if g.owners&(g.owners-1) != 0 {
					w.crossing++
				}
			}
			if w.whole != nil {
				w.whole(g)
			}
		}
		if g.Lifetime > 0 {
			w.kubelet.finishLater(podDue(p), g.Lifetime)
		} else if w.steady {
			g.pods = append(g.pods, podDue(p))
			if len(g.pods) == len(g.Pods) {
				w.running = append(w.running, g)
			}
			w.endSome()
		}
	case event == watch.Modified && !done(old) && done(p):
		if p.Spec.NodeName != "" {
			w.take(g, p, -1)
			w.finishedPods++
			if g.told {
				w.ending -= podAmount(p).cpu
			}
		}
		g.finished++
	case event == watch.Modified && w.leave > 0 && old.DeletionTimestamp == nil && p.DeletionTimestamp != nil && p.Spec.NodeName != "" && !done(p):
		w.kubelet.removeLater(podDue(p), w.leave)
	case event == watch.Deleted && w.evicted != nil && !g.beside && !done(p): // its controller makes it again
		if p.Spec.NodeName != "" {
			w.take(g, p, -1)
			w.waitingPods++
			if g.bound--; g.bound == 0 {
				g.owners = 0
			}
		}
		w.evicted(g, p)
	case event == watch.Deleted:
		if p.Spec.NodeName != "" && !done(p) {
			w.take(g, p, -1)
		}
		if g.gone++; g.gone == len(g.Pods) {
			delete(w.gangs, g.Name)
			w.outstanding[g.Queue] -= g.demand.cpu
			if w.ended != nil {
				w.ended(g)
			}
			if w.gone != nil {
				w.gone(g)
			}
		}
	}
}

// endSome ends gangs drawn at random while too much is in use.
func (w *world) endSome() {
	for w.used.cpu-w.apart-w.ending > w.keep && len(w.running) > 0 {
		w.endOne()
	}
}

func (w *world) endOne() {
	i, last := w.random.IntN(len(w.running)), len(w.running)-1
	g := w.running[i]
	w.running[i], w.running[last] = w.running[last], nil
	w.running = w.running[:last]
	for _, p := range g.pods {
		w.kubelet.finishLater(p, 0)
	}
	w.ending += g.demand.cpu
	g.pods, g.told = nil, true
}

// stuck ends a gang when nothing was bound for a while: what waits may fit in no room that is left, and pods of others end
// all the same.
func (w *world) stuck(after time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if time.Since(w.lastBound) > after && time.Since(w.unstuck) > after && len(w.running) > 0 {
		w.unstuck = time.Now()
		w.endOne()
	}
}

// endAll ends a steady load: what runs ends, and what is placed from now on.
func (w *world) endAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.keep = 0
	w.endSome()
}

// take charges what a pod takes to its node and its queues, or gives it back.
func (w *world) take(g *gang, p *v1.Pod, times int64) {
	a := podAmount(p)
	w.used = w.used.plus(a, times)
	if g.Lifetime > 0 {
		w.apart += times * a.cpu
	}
	if n := w.nodes[p.Spec.NodeName]; n != nil {
		n.used = n.used.plus(a, times)
		if !n.used.within(n.total) {
			n.overcommit = true
		}
	}
	if q := w.queues[g.Queue]; q != nil {
		q.add(a, times)
	}
}

// group hears of statuses: a gang that is called unschedulable is checked against the whole cluster at that moment.
func (w *world) group(o *v1beta1.PodGroup) {
	refused := false
	for _, c := range o.Status.Conditions {
		refused = refused || c.Type == v1beta1.ConditionPodGroupInitiallyScheduled && c.Reason == v1beta1.ReasonUnschedulable
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	g := w.gangs[o.Name]
	if g == nil || refused == g.refused {
		return
	}
	if g.refused = refused; refused {
		w.refusals++
		if v := w.view(); v.place(g) {
			w.refusedWrongly++
		}
	}
}

func gangOf(p *v1.Pod) string {
	if name := p.Labels[api.LabelPodGroup]; name != "" {
		return name
	}
	return p.Name
}

// kubelet ends pods when their time is over and removes them a moment later.
type kubelet struct {
	api  *memory.Server
	mu   sync.Mutex
	now  int64 // slot that was served last
	slot map[int64][]due
}

type due struct {
	namespace, name string
	uid             types.UID
	remove          bool
}

func podDue(p *v1.Pod) due { return due{namespace: p.Namespace, name: p.Name, uid: p.UID} }

const (
	slotLength  = 10 * time.Millisecond
	removeAfter = 20 // slots
)

func slotOf(t time.Time) int64 { return t.UnixNano() / int64(slotLength) }

func newKubelet(api *memory.Server) *kubelet {
	return &kubelet{api: api, now: slotOf(time.Now()), slot: map[int64][]due{}}
}

func (k *kubelet) finishLater(p due, after time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	at := max(slotOf(time.Now().Add(after)), k.now+1)
	k.slot[at] = append(k.slot[at], p)
}

func (k *kubelet) removeLater(p due, after time.Duration) {
	p.remove = true
	k.finishLater(p, after)
}

func (k *kubelet) run(done <-chan struct{}) {
	tick := time.NewTicker(slotLength)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		now := slotOf(time.Now())
		for {
			k.mu.Lock()
			if k.now >= now {
				k.mu.Unlock()
				break
			}
			k.now++
			work := k.slot[k.now]
			delete(k.slot, k.now)
			var later []due
			for _, d := range work {
				if !d.remove {
					d.remove = true
					later = append(later, d)
				}
			}
			if later != nil {
				k.slot[k.now+removeAfter] = append(k.slot[k.now+removeAfter], later...)
			}
			k.mu.Unlock()
			for _, d := range work {
				if d.remove {
					_ = k.api.Remove(d.namespace, d.name, d.uid) // gone already is as good
				} else {
					_ = k.api.UpdatePod(d.namespace, d.name, d.uid, func(p *v1.Pod) { p.Status.Phase = v1.PodSucceeded })
				}
			}
		}
	}
}
