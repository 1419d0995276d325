package coordinator

import (
	"flag"
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"
	"time"

	"basalt.dev/basalt/api"
)

// small is a world of two levels for the exact search: gangs of one resource, of which b's are charged.
type small struct {
	paths    []string
	deserved map[string]int64 // what the queue says; a parent deserves what its children do, if that is more
	gangs    []smallGang
	capacity int64
}

type smallGang struct {
	name, queue string
	cpu         int64
	priority    int64
}

func drawSmall(rng *rand.Rand) *small {
	w := &small{deserved: map[string]int64{}, capacity: 4 + rng.Int63n(5)}
	leaves := []string{}
	left := w.capacity // what root's children deserve together is there: how it is cut is none of this test's business
	for _, p := range []string{"p", "q", "r"}[:2+rng.Intn(2)] {
		w.paths = append(w.paths, p)
		below := []string{p + ".x", p + ".y", p + ".z"}[:2+rng.Intn(2)]
		for _, leaf := range below {
			w.paths, leaves = append(w.paths, leaf), append(leaves, leaf)
			if rng.Intn(2) == 0 && left > 0 {
				w.deserved[leaf] = 1 + rng.Int63n(left)
				left -= w.deserved[leaf]
				w.deserved[p] += w.deserved[leaf]
			}
		}
	}
	free := w.capacity
	for i := 0; i < 7 && free > 0; i++ {
		g := smallGang{fmt.Sprint("g", i), leaves[rng.Intn(len(leaves))], 1 + rng.Int63n(min(free, 3)), rng.Int63n(3)}
		free -= g.cpu
		w.gangs = append(w.gangs, g)
	}
	return w
}

// sum is what the gangs of a set that are below a queue have.
func (w *small) sum(set uint, path string) (n int64) {
	for i, g := range w.gangs {
		if set>>i&1 == 1 && api.Under(g.queue, path) {
			n += g.cpu
		}
	}
	return n
}

func parentOf(path string) string {
	if i := strings.LastIndexByte(path, '.'); i > 0 {
		return path[:i]
	}
	return api.RootQueue
}

// legal reports whether a set of victims may be reclaimed for a gang, from the rules as policy has them and not as the
// coordinator computes them: every side of the gang ends within what it deserves, where something is taken beside it;
// every side that loses was above, and falls below by less than its smallest victim; and there is room then.
func (w *small) legal(charged, victims uint, g smallGang) bool {
	if w.sum(charged&^victims, api.RootQueue)+g.cpu > w.capacity {
		return false
	}
	for i, v := range w.gangs {
		if victims>>i&1 == 0 {
			continue
		}
		if v.queue == g.queue {
			return false
		}
		mine, other := g.queue, v.queue
		losers := []string{v.queue}
		if parentOf(mine) != parentOf(other) {
			mine, other = parentOf(mine), parentOf(other)
			losers = append(losers, other)
		}
		deserves, named := w.deserved[mine]
		if !named || w.sum(charged&^victims, mine)+g.cpu > deserves {
			return false
		}
		for _, q := range losers {
			t, named := w.deserved[q]
			if !named {
				continue // all of it is borrowed
			}
			smallest := int64(1 << 40)
			for j, o := range w.gangs {
				if victims>>j&1 == 1 && api.Under(o.queue, q) {
					smallest = min(smallest, o.cpu)
				}
			}
			if w.sum(charged, q) <= t || w.sum(charged&^victims, q)+smallest <= t {
				return false
			}
		}
	}
	return true
}

// preempts is the same for preemption in the gang's own queue, where nobody deserves anything: else idle room counts.
func (w *small) preempts(charged, victims uint, g smallGang) bool {
	for i, v := range w.gangs {
		if victims>>i&1 == 1 && (v.queue != g.queue || v.priority >= g.priority) {
			return false
		}
	}
	return len(w.deserved) == 0 && w.sum(charged&^victims, api.RootQueue)+g.cpu <= w.capacity
}

var (
	firstSmall = flag.Int64("first", 0, "the first of the worlds that TestVictimsExact draws")
	smallFlag  = flag.Int64("small", 1000, "how many worlds TestVictimsExact draws")
)

// TestVictimsExact compares who is evicted with an exhaustive search: in a small world, a gang asks that is entitled.
// If there is a set of victims that may go, it starts within 15 seconds of calm, and of those that went nobody could
// have been left out. A world is known by its number: -first=727 -small=1.
func TestVictimsExact(t *testing.T) {
	var sum verdict
	for n := *firstSmall; n < *firstSmall+*smallFlag; n++ {
		sum.judge(t, n)
	}
	t.Logf("%+v", sum)
	if *smallFlag >= 1000 && (sum.found < 100 || sum.upper < 5 || sum.preempted < 20) {
		t.Error("too few worlds with victims")
	}
}

// verdict counts worlds with victims, those with victims on two levels, and by preemption.
type verdict struct{ found, upper, preempted int }

func (sum *verdict) judge(t *testing.T, n int64) {
	rng := rand.New(rand.NewSource(n))
	w := drawSmall(rng)
	if n%3 == 0 {
		clear(w.deserved)
	}
	leaf := w.gangs[0].queue
	for _, p := range w.paths {
		if parentOf(p) != api.RootQueue && (w.deserved[p] > 0 && rng.Intn(2) == 0) {
			leaf = p
		}
	}
	g := smallGang{"claimant", leaf, 1 + rng.Int63n(w.capacity), 5}
	if len(w.deserved) > 0 {
		g.priority = -1 // it preempts nobody
	}
	charged := uint(1)<<len(w.gangs) - 1
	if w.sum(charged, api.RootQueue)+g.cpu <= w.capacity {
		return
	}
	var legal []uint
	for set := uint(1); set <= charged; set++ {
		if w.legal(charged, set, g) || w.preempts(charged, set, g) {
			legal = append(legal, set)
		}
	}
	started, evicted := w.play(t, g)
	say := fmt.Sprintf("world %d: %d cpu, deserved %v, gangs %v; %v", n, w.capacity, w.deserved, w.gangs, g)
	if started != (len(legal) > 0) {
		t.Fatalf("%s: started %t, and %d sets of victims are lawful, of %b", say, started, len(legal), legal)
	}
	if !started {
		return
	}
	sum.found++
	set := uint(0)
	for i, o := range w.gangs {
		if slices.Contains(evicted, o.name) {
			set |= 1 << i
		}
	}
	if !slices.Contains(legal, set) {
		t.Fatalf("%s: it started for %v, which is not lawful", say, evicted)
	}
	for _, fewer := range legal {
		if fewer != set && fewer&^set == 0 {
			t.Fatalf("%s: of %v some could be left out: %b would do", say, evicted, fewer)
		}
	}
	side := w.below(parentOf(leaf))
	if len(w.deserved) == 0 {
		sum.preempted++
	} else if set&side != 0 && set&^side != 0 {
		sum.upper++
	}
}

func (w *small) below(path string) (set uint) {
	for i, g := range w.gangs {
		if api.Under(g.queue, path) {
			set |= 1 << i
		}
	}
	return set
}

// play has a coordinator run the world, and returns whether the gang starts, and for whose end.
func (w *small) play(t *testing.T, g smallGang) (started bool, evicted []string) {
	p := &player{t: t, store: newStore(), uids: map[string]string{}, generations: map[string]int64{},
		attempts: map[string]uint64{}}
	p.now = time.UnixMilli(1_000_000)
	do := func(format string, args ...any) { p.do(strings.Fields(fmt.Sprintf(format, args...))) }
	do("start s1")
	do("queue root cap=cpu:%d delay=1s runtime=0s preempts=yes", w.capacity)
	for _, path := range w.paths {
		own := ""
		if parentOf(path) != api.RootQueue && w.deserved[path] > 0 {
			own = fmt.Sprintf(" deserved=cpu:%d", w.deserved[path])
		}
		do("queue %s%s", path, own)
	}
	reserve := func(g smallGang) {
		do("reserve %s queue=%s ask=cpu:%d priority=%d", g.name, g.queue, g.cpu, g.priority)
		do("wait 100ms")
	}
	for _, g := range w.gangs {
		reserve(g)
	}
	reserve(g)
	p.out = nil
	for range 30 {
		p.out = nil
		do("settle 500ms")
		line := p.out[0]
		evicted = append(evicted, strings.Fields(strings.TrimSuffix(strings.TrimPrefix(line, "evicted {"), "}"))...)
		if r := p.core.charged[g.name]; r != nil && r.res != nil && !r.res.demand.IsZero() {
			return true, evicted
		}
	}
	return false, evicted
}
