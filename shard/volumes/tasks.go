package volumes

import (
	"cmp"
	"container/heap"
	"slices"
	"time"
)

// task is work that is done once for many events.
type task struct {
	kind taskKind
	of   string // a namespace, or a StorageClass
}

type taskKind uint8

const (
	showLate     taskKind = iota // the pods of a namespace's subjects that many pods wait for
	showSupplied                 // the pods whose claims may have other volumes of a class now
	showParts                    // pods that are offered a part of what there is
	countNodes                   // the volumes of nodes, where they are many
)

// pause is the shortest time between a first event and the task, and between two of the task.
func (k taskKind) pause() time.Duration {
	return [...]time.Duration{showLate: lateAfter, showSupplied: supplyPause, showParts: partPause,
		countNodes: supplyPause}[k]
}

const (
	lateAfter   = time.Second
	supplyPause = time.Second / 2
	// pods are offered one part of what there is for long enough for a gang to be placed and committed
	partPause = time.Minute
)

// Estimates of what work costs, for a core reads no clocks. Measured were 6 µs to show a pod with a bound claim, and
// 71 µs to show one that is offered 512 places; 3 µs to count on a node with 20 pods of a claim; 0.1 µs to compare a
// node.
const (
	showCost    = 50 * time.Microsecond // to show a pod again
	lookCost    = time.Microsecond      // to look whether a subject is concerned
	countCost   = 20 * time.Microsecond // to count the volumes of a node
	compareCost = 2 * time.Microsecond  // to compare a node with the constraints of a pod
)

// tasks are those that wait, or rest.
type tasks struct {
	of    map[task]*pending
	queue pendings
}

type pending struct {
	task
	at     time.Time
	wanted bool
}

func newTasks() tasks { return tasks{of: map[task]*pending{}} }

// later does a task after a pause, once for all events until then, and again no sooner than after ten times as long
// as it took: it may cost a tenth of the time, however often a tenant has it done.
func (t *tasks) later(now time.Time, of task) {
	if p := t.of[of]; p != nil {
		p.wanted = true
		return
	}
	p := &pending{task: of, at: now.Add(of.kind.pause()), wanted: true}
	t.of[of] = p
	heap.Push(&t.queue, p)
}

// next returns when a task is due, zero for none.
func (t *tasks) next() time.Time {
	if len(t.queue) == 0 {
		return time.Time{}
	}
	return t.queue[0].at
}

// take returns a task that is due and has begun, nil for none. It has to be rested.
func (t *tasks) take(now time.Time) *pending {
	for len(t.queue) > 0 && !t.queue[0].at.After(now) {
		p := heap.Pop(&t.queue).(*pending)
		if p.wanted {
			p.wanted = false
			return p
		}
		delete(t.of, p.task)
	}
	return nil
}

// rest has a task that took so long be done again, if it is wanted by then.
func (t *tasks) rest(now time.Time, p *pending, took time.Duration) {
	p.at = now.Add(max(p.kind.pause(), 11*took)) // from its begin on
	heap.Push(&t.queue, p)
}

// pendings are a heap by time.
type pendings []*pending

func (h pendings) Len() int { return len(h) }
func (h pendings) Less(i, k int) bool {
	a, b := h[i], h[k]
	return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.kind, b.kind), cmp.Compare(a.of, b.of)) < 0
}
func (h pendings) Swap(i, k int) { h[i], h[k] = h[k], h[i] }
func (h *pendings) Push(p any)   { *h = append(*h, p.(*pending)) }
func (h *pendings) Pop() any {
	last := (*h)[len(*h)-1]
	*h = slices.Delete(*h, len(*h)-1, len(*h))
	return last
}

// queue holds what is to be done a little at a time, each once.
type queue[K cmp.Ordered] struct {
	in    map[K]bool
	order []K
}

func newQueue[K cmp.Ordered]() queue[K] { return queue[K]{in: map[K]bool{}} }

func (q *queue[K]) empty() bool { return len(q.in) == 0 }

func (q *queue[K]) add(k K) {
	if !q.in[k] {
		q.in[k] = true
		q.order = append(q.order, k)
	}
}

// drop takes one out whose turn came otherwise.
func (q *queue[K]) drop(k K) { delete(q.in, k) }

func (q *queue[K]) take() (k K, is bool) {
	for len(q.order) > 0 && !is {
		k, is = q.order[0], q.in[q.order[0]]
		q.order = q.order[1:]
	}
	delete(q.in, k)
	if len(q.in) == 0 {
		q.order = nil
	}
	return k, is
}
