package engine

import (
	"math/rand/v2"
	"strings"
)

// stream drives one engine through the workload.
type stream struct {
	w      *World
	e      Engine
	r      *rand.Rand // what comes
	gone   *rand.Rand // what leaves: apart, so that the same pods come whatever was refused
	level  int64      // per mille of each resource to be in use
	used   amounts
	limit  amounts
	live   [2][]int32 // pods, without and with GPUs
	pods   []pod      // by number
	free   []int      // numbers not in use
	onNode []int32    // pods of each node
	inUse  int        // nodes with a pod
	ready  []*kind    // single classes made beforehand
	every  int        // one pod in so many takes one of them

	placed, refused int

	planning bool   // what the engine has to do is written down in steps, and not done
	steps    []step // see plan
}

// step is one thing that an engine has to do: release a pod, or place and charge one.
type step struct {
	k     *kind // nil for a release
	pod   int32
	uid   string
	place place // answer
	ok    bool
}

type pod struct {
	k    *kind
	uid  string
	node int32
	at   int32 // in live
}

func newStream(w *World, e Engine, seed uint64) *stream {
	s := &stream{w: w, e: e, r: rand.New(rand.NewPCG(seed, 2)), gone: rand.New(rand.NewPCG(seed, 7)), every: SingleEvery, onNode: make([]int32, len(w.nodes))}
	s.setLevel(Allocated)
	return s
}

func (s *stream) setLevel(perMille int64) {
	s.level = perMille
	for k, v := range s.w.total {
		s.limit[k] = v/1000*perMille + v%1000*perMille/1000
	}
}

// prepare makes the classes of single pods for the next decisions: they are the pods', not the engine's work.
func (s *stream) prepare(decisions int) {
	s.ready = s.ready[:0]
	if s.every == 0 {
		return
	}
	for range decisions/s.every + decisions/s.every/2 + 50 {
		s.ready = append(s.ready, s.w.single(s.r))
	}
}

// next draws a pod's class.
func (s *stream) next() *kind {
	if s.every > 0 && len(s.ready) > 0 && s.r.IntN(s.every) == 0 {
		k := s.ready[len(s.ready)-1]
		s.ready = s.ready[:len(s.ready)-1]
		return k
	}
	return s.w.kinds[s.r.IntN(len(s.w.kinds))]
}

// decide is one decision: pods drawn at random leave until one more of a class drawn at random stays within the level, and
// that one is placed.
func (s *stream) decide() (k *kind, ok bool) {
	k = s.next()
	for r, v := range k.asks {
		for s.used[r]+v > s.limit[r] {
			list, all := 1, len(s.live[0])+len(s.live[1])
			if r != gpu && all > 0 && s.gone.IntN(all) >= len(s.live[1]) {
				list = 0
			}
			if len(s.live[list]) == 0 {
				break // a small cluster: one pod is above the level
			}
			s.leave(int(s.live[list][s.gone.IntN(len(s.live[list]))]))
		}
	}
	if s.planning {
		s.enter(k, place{node: -1})
		return k, true
	}
	at, ok := s.e.Place(k)
	if !ok {
		s.refused++
		return k, false
	}
	s.placed++
	s.enter(k, at)
	return k, true
}

func (s *stream) enter(k *kind, at place) int {
	n := len(s.pods)
	if i := len(s.free) - 1; i >= 0 {
		n, s.free = s.free[i], s.free[:i]
	} else {
		s.pods = append(s.pods, pod{uid: uidOf(n), node: -1})
	}
	list := &s.live[0]
	if k.asks[gpu] > 0 {
		list = &s.live[1]
	}
	p := &s.pods[n]
	p.k, p.at = k, int32(len(*list))
	*list = append(*list, int32(n))
	for r, v := range k.asks {
		s.used[r] += v
	}
	if s.planning {
		s.steps = append(s.steps, step{k: k, pod: int32(n), uid: strings.Clone(p.uid)})
		return n
	}
	s.stand(n, at.index())
	s.e.Charge(n, p.uid, k, at)
	return n
}

// stand notes on which node a pod is now, -1 for none.
func (s *stream) stand(n, node int) {
	p := &s.pods[n]
	if p.node >= 0 {
		if s.onNode[p.node]--; s.onNode[p.node] == 0 {
			s.inUse--
		}
	}
	if p.node = int32(node); node >= 0 {
		if s.onNode[node]++; s.onNode[node] == 1 {
			s.inUse++
		}
	}
}

func (s *stream) leave(n int) {
	s.unlist(n)
	if s.planning {
		s.steps = append(s.steps, step{pod: int32(n), uid: strings.Clone(s.pods[n].uid)})
		return
	}
	s.stand(n, -1)
	s.e.Release(n, s.pods[n].uid)
}

// unlist takes a pod out of the books.
func (s *stream) unlist(n int) {
	p := s.pods[n]
	list := s.live[0]
	if p.k.asks[gpu] > 0 {
		list = s.live[1]
	}
	last := list[len(list)-1]
	list[p.at], s.pods[last].at = last, p.at
	if p.k.asks[gpu] > 0 {
		s.live[1] = list[:len(list)-1]
	} else {
		s.live[0] = list[:len(list)-1]
	}
	for r, v := range p.k.asks {
		s.used[r] -= v
	}
	s.free = append(s.free, n)
}

// plan writes down what decisions to come ask of the engine, as if all pods found room, so that they can be measured without
// the stream's own work. UIDs are copies, next to each other: a caller of the engine has just read them in a message.
func (s *stream) plan(decisions int) []step {
	s.prepare(decisions)
	s.planning, s.steps = true, make([]step, 0, 4*decisions)
	for range decisions {
		s.decide()
	}
	s.planning = false
	return s.steps
}

// do does one step.
func (s *stream) do(t *step) {
	if t.k == nil {
		s.e.Release(int(t.pod), t.uid)
	} else if t.place, t.ok = s.e.Place(t.k); t.ok {
		s.e.Charge(int(t.pod), t.uid, t.k, t.place)
	}
}

// settle brings the books up to what became of the steps.
func (s *stream) settle(steps []step) {
	without := map[int32]bool{} // live pods that were refused
	for i := range steps {
		switch t := &steps[i]; {
		case t.k == nil:
			s.stand(int(t.pod), -1)
			delete(without, t.pod)
		case t.ok:
			s.placed++
			s.stand(int(t.pod), t.place.index())
		default:
			s.refused++
			without[t.pod] = true
		}
	}
	for i := range steps { // in their order, that the same seed does the same
		if n := steps[i].pod; without[n] {
			delete(without, n)
			s.unlist(int(n))
		}
	}
}

// full reports whether the next pod of some class may not stay within the level: that the steady state is reached.
func (s *stream) full() bool { return s.used[cpu] > s.limit[cpu]-s.limit[cpu]/100 }
