package rival

import (
	"sort"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/bench/measure/report"
	"basalt.dev/basalt/bench/measure/scenario"
)

// podWatch keeps what the one watch shows that times are taken from.
type podWatch struct {
	mu      sync.Mutex
	pods    map[string]*podTimes // by name
	gangs   []*gangTimes
	boundAt []time.Time   // of each Binding, in order
	exist   int           // pods that are on the API server
	lists   int           // more than one: the watch was cut
	done    chan struct{} // closed when all pods have a node
	warmed  map[string]chan struct{}
	ended   chan *scenario.Gang // those of which every pod has finished; nil where nobody asks
}

type podTimes struct {
	gang           *gangTimes
	created, bound time.Time
	node           string
	finished       bool
	exists         bool
}

type gangTimes struct {
	*scenario.Gang
	size, bound, finished  int
	lastCreated, lastBound time.Time
}

func newPodWatch(gangs []scenario.Gang) *podWatch {
	w := &podWatch{pods: map[string]*podTimes{}, done: make(chan struct{}), warmed: map[string]chan struct{}{}}
	for i := range gangs {
		g := &gangTimes{Gang: &gangs[i], size: len(gangs[i].Pods)}
		w.gangs = append(w.gangs, g)
		for j := range gangs[i].Pods {
			w.pods[gangs[i].PodName(j)] = &podTimes{gang: g}
		}
	}
	return w
}

// expect returns a channel that is closed when a pod that is not counted has a node.
func (w *podWatch) expect(name string) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.warmed[name] = make(chan struct{})
	return w.warmed[name]
}

func (w *podWatch) handler() kube.Handler[*v1.Pod] {
	return kube.Handler[*v1.Pod]{
		Replaced: func(pods []*v1.Pod, _ kube.Ticket) {
			w.mu.Lock()
			w.lists++
			w.exist = 0
			for _, t := range w.pods {
				t.exists = false
			}
			w.mu.Unlock()
			for _, p := range pods {
				w.seen(p)
			}
		},
		Seen: w.seen,
		Gone: w.gone,
	}
}

func (w *podWatch) gone(p *v1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t := w.pods[p.Name]; t != nil && t.exists {
		t.exists = false
		w.exist--
	}
}

func (w *podWatch) seen(p *v1.Pod) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.pods[p.Name]
	if t == nil {
		if c := w.warmed[p.Name]; c != nil && p.Spec.NodeName != "" {
			close(c)
			delete(w.warmed, p.Name)
		}
		return
	}
	if !t.exists {
		t.exists = true
		w.exist++
	}
	if t.created.IsZero() {
		t.created, t.gang.lastCreated = now, now
	}
	if p.Spec.NodeName != "" && t.bound.IsZero() {
		t.bound, t.gang.lastBound, t.node = now, now, p.Spec.NodeName
		t.gang.bound++
		if w.boundAt = append(w.boundAt, now); len(w.boundAt) == len(w.pods) {
			close(w.done)
		}
	}
	if !t.finished && (p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed) {
		t.finished = true
		if t.gang.finished++; t.gang.finished == t.gang.size && w.ended != nil {
			w.ended <- t.gang.Gang
		}
	}
}

// latencies adds what this run's pods and gangs took. Only gangs that are bound whole have a last Binding.
func (w *podWatch) latencies(pods, gangs *report.Latency) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.pods {
		if !p.bound.IsZero() {
			pods.Record(p.bound.Sub(p.created))
		}
	}
	for _, g := range w.gangs {
		if g.bound == g.size {
			gangs.Record(g.lastBound.Sub(g.lastCreated))
		}
	}
}

// split counts the gangs whose pods are in more than one domain of their topology, or on nodes that are in none.
func (w *podWatch) split(labels map[string]map[string]string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	in := map[*gangTimes]string{}
	split := map[*gangTimes]bool{}
	for _, p := range w.pods {
		if p.gang.Topology == "" || p.node == "" {
			continue
		}
		domain := labels[p.node][p.gang.Topology]
		if before, ok := in[p.gang]; domain == "" || ok && before != domain {
			split[p.gang] = true
		}
		in[p.gang] = domain
	}
	return len(split)
}

// boundBy counts the Bindings until a time.
func (w *podWatch) boundBy(at time.Time) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return sort.Search(len(w.boundAt), func(i int) bool { return w.boundAt[i].After(at) })
}

// existing returns how many of the load's pods are on the API server, whatever their phase.
func (w *podWatch) existing() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.exist
}

// count returns how many pods have a node, and since when the last of them.
func (w *podWatch) count() (bound int, last time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := len(w.boundAt); n > 0 {
		last = w.boundAt[n-1]
	}
	return len(w.boundAt), last
}
