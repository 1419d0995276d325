package cluster

import (
	"cmp"
	"container/heap"
	"slices"
)

// view is what one global scheduler would see: all nodes by free CPU, all queues. Its best fit is exact in CPU, the scarce
// resource of the scenarios, and first fit in the others.
type view struct {
	byFree [][]*freeNode // index: whole free cores
	queues map[string]*queueRoom
}

type freeNode struct{ free amount }

// view copies what nodes have free now. Queues are shared: place changes neither.
func (w *world) view() *view {
	v := &view{queues: w.queues}
	for _, n := range w.nodes {
		v.put(&freeNode{n.total.plus(n.used, -1)})
	}
	return v
}

func (v *view) put(n *freeNode) {
	at := int(max(n.free.cpu, 0) / 1000)
	for len(v.byFree) <= at {
		v.byFree = append(v.byFree, nil)
	}
	v.byFree[at] = append(v.byFree[at], n)
}

// place reports whether a gang's minimum fits the nodes, and takes the room if it does.
func (v *view) place(g *gang) bool {
	type move struct {
		node *freeNode
		by   amount
	}
	var moves []move
	for i := range g.MinCount {
		need := shapeAmount(g.Pods[i])
		n := v.take(need)
		if n == nil {
			for _, m := range moves { // give back; nodes stay in the order of a while ago, which take looks after
				m.node.free = m.node.free.plus(m.by, 1)
			}
			if len(moves) > 0 {
				v.sort()
			}
			return false
		}
		moves = append(moves, move{n, need})
	}
	return true
}

// take finds the node with the least free CPU that has room.
func (v *view) take(need amount) *freeNode {
	for at := int(need.cpu / 1000); at < len(v.byFree); at++ {
		for i, n := range v.byFree[at] {
			if need.within(n.free) {
				list := v.byFree[at]
				list[i] = list[len(list)-1]
				v.byFree[at] = list[:len(list)-1]
				n.free = n.free.plus(need, -1)
				v.put(n)
				return n
			}
		}
	}
	return nil
}

func (v *view) sort() {
	all := slices.Concat(v.byFree...)
	v.byFree = nil
	for _, n := range all {
		v.put(n)
	}
}

// share is the largest part that a queue holds of what it could have, in thousandths, as the coordinator reckons it.
func (q *queueRoom) share() int64 {
	var limit amount
	least := func(a, b int64) int64 {
		if a == 0 || b != 0 && b < a {
			return b
		}
		return a
	}
	for _, p := range q.path {
		limit = amount{cpu: least(limit.cpu, p.limit.cpu), memory: least(limit.memory, p.limit.memory), gpus: least(limit.gpus, p.limit.gpus)}
	}
	if limit == (amount{}) {
		return q.used.cpu
	}
	part := func(used, of int64) int64 {
		if of == 0 {
			return 0
		}
		return 1000 * used / of // 2^63 / 1000 is eight petabytes
	}
	return max(part(q.used.cpu, limit.cpu), part(q.used.memory, limit.memory), part(q.used.gpus, limit.gpus))
}

// line is the waiting gangs of one queue, oldest first.
type line struct {
	queue *queueRoom
	gangs []*gang
	share int64
}

type lines []*line

func older(a, b *gang) int {
	return cmp.Or(a.complete.Compare(b.complete), cmp.Compare(a.Name, b.Name))
}

func (l lines) Len() int { return len(l) }
func (l lines) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(l[i].share, l[j].share), older(l[i].gangs[0], l[j].gangs[0])) < 0
}
func (l lines) Swap(i, j int) { l[i], l[j] = l[j], l[i] }
func (l *lines) Push(x any)   { *l = append(*l, x.(*line)) }
func (l *lines) Pop() any {
	last := (*l)[len(*l)-1]
	*l = (*l)[:len(*l)-1]
	return last
}

// room tells which of the waiting gangs one global scheduler would admit and place now. It goes in the order in which
// Basalt says that it offers room: the queue with the smallest share first, in it the oldest. In the order of age alone a
// queue with thousands of waiting gangs would seem to be owed what its siblings get.
func (w *world) room() map[*gang]bool {
	of := map[*queueRoom]*line{}
	var all lines
	for _, g := range w.gangs {
		q := w.queues[g.Queue]
		if q == nil || g.complete.IsZero() || g.bound >= g.MinCount {
			continue
		}
		if of[q] == nil {
			of[q] = &line{queue: q, share: q.share()}
			all = append(all, of[q])
		}
		of[q].gangs = append(of[q].gangs, g)
	}
	if len(all) == 0 {
		return nil
	}
	for _, l := range all {
		slices.SortFunc(l.gangs, older)
	}
	heap.Init(&all)
	v, out := w.view(), map[*gang]bool{}
	var charged []*gang
	for len(all) > 0 {
		l := all[0]
		g := l.gangs[0]
		if l.queue.fits(g.demand) && v.place(g) {
			l.queue.add(g.demand, 1)
			charged = append(charged, g)
			out[g] = true
			l.share = l.queue.share()
		}
		if l.gangs = l.gangs[1:]; len(l.gangs) == 0 {
			heap.Pop(&all)
		} else {
			heap.Fix(&all, 0)
		}
	}
	for _, g := range charged {
		w.queues[g.Queue].add(g.demand, -1)
	}
	return out
}

// sample asks the oracle once a second: a gang for which it saw room in more than five samples in a row waits too long. It
// returns how many gangs wait, and the names of those newly found.
func (w *world) sample() (waiting int, late []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	room := w.room()
	for _, g := range w.gangs {
		if g.complete.IsZero() || g.bound >= g.MinCount {
			continue
		}
		waiting++
		if !room[g] {
			g.seen = 0
			continue
		}
		if g.seen++; g.seen > 5 && !g.stuck {
			g.stuck = true
			late = append(late, g.Name)
		}
	}
	slices.Sort(late)
	return waiting, late
}

// Best compares what a batch of pods that never end took with what one global best fit takes of the same gangs, offered in
// the same order: percentages of the nodes.
type Best struct{ CPU, GPU, BestCPU, BestGPU float64 }

func (r *run) best() *Best {
	r.world.mu.Lock()
	defer r.world.mu.Unlock()
	w := newWorld(nil, nil)
	for name, n := range r.world.nodes {
		w.nodes[name] = &nodeRoom{name: name, total: n.total}
	}
	for name, q := range r.world.queues {
		w.queues[name] = &queueRoom{limit: q.limit}
	}
	w.tree()
	v := w.view()
	var took amount
	for _, sg := range r.load.stream {
		if sg.Lifetime > 0 {
			return nil
		}
		g := &gang{Gang: sg}
		for _, p := range sg.Pods {
			g.demand = g.demand.plus(shapeAmount(p), 1)
		}
		q := w.queues[sg.Queue]
		if q == nil || !q.fits(g.demand) || !v.place(g) {
			continue
		}
		q.add(g.demand, 1)
		took = took.plus(g.demand, 1)
	}
	percent := func(of, whole int64) float64 { return 100 * float64(of) / float64(max(1, whole)) }
	used, total := r.world.used, r.world.total
	return &Best{CPU: percent(used.cpu, total.cpu), GPU: percent(used.gpus, total.gpus), BestCPU: percent(took.cpu, total.cpu), BestGPU: percent(took.gpus, total.gpus)}
}
