package coordinator

import (
	"container/heap"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

// days play the homes of three queues for a day: of many small gangs and few large ones, which run for minutes to
// hours. All of them say a limit, twice as long, or none of them does. There are nodes of one size, and small pods are
// packed; a gang that finds no room for half a minute gives its quota back and asks again.
type days struct {
	*committing
	gangs    map[string]*dayGang
	running  byEnd
	homeless []*dayGang // charged, and not started
	free     []int64    // cores of each node
	says     saying
	serial   uint64
}

// saying is what limits gangs say.
type saying uint8

const (
	nothing saying = iota
	twice          // as long as they run
	lies           // likewise, and those of one queue 80 seconds
)

func (s saying) String() string { return [...]string{"none", "twice", "lies"}[s] }

type dayGang struct {
	ref            *wire.GangRef
	pods           int
	size           int64 // cores of each
	runs           time.Duration
	asked, charged time.Time
	started        time.Time
	large          bool
	on             []int // nodes
}

type byEnd []*dayGang

func (g *dayGang) end() time.Time  { return g.started.Add(g.runs) }
func (h byEnd) Len() int           { return len(h) }
func (h byEnd) Less(i, j int) bool { return h[i].end().Before(h[j].end()) }
func (h byEnd) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *byEnd) Push(x any)        { *h = append(*h, x.(*dayGang)) }
func (h *byEnd) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

func (d *days) do(ev Event) {
	tell(d.core, d.now, ev, func(o Output) {
		m, _ := o.(Send)
		if g := d.gangs[m.Body.GetGranted().GetGangUid()]; g != nil && g.charged.IsZero() {
			g.charged = d.now
			d.homeless = append(d.homeless, g)
		}
	})
}

func (d *days) ask(g *dayGang) {
	d.serial++
	m := &wire.Reserve{Gang: g.ref, Attempt: d.serial, Serial: d.serial, TableEpoch: 1, SinceUnixMs: g.asked.UnixMilli(),
		Demand: wire.FromResources(api.FromMap(map[string]int64{"cpu": int64(g.pods) * g.size}))}
	switch {
	case d.says == nothing:
	case d.says == lies && g.ref.Queue == "c":
		m.RunsMs = 80_000
	default:
		m.RunsMs = 2 * g.runs.Milliseconds()
	}
	d.do(Message{From: "s1", Body: &wire.Envelope{Body: &wire.Envelope_Reserve{Reserve: m}}})
}

func (d *days) giveBack(g *dayGang) {
	d.serial++
	d.do(Message{From: "s1", Body: &wire.Envelope{Body: &wire.Envelope_Unreserve{Unreserve: &wire.Unreserve{Gang: g.ref,
		Attempt: d.serial, Serial: d.serial, TableEpoch: 1}}}})
	d.leave(g)
}

func (d *days) leave(g *dayGang) {
	for _, n := range g.on {
		d.free[n] += g.size
	}
	g.on = nil
}

// place starts a gang if its pods have room, each on the fullest node that takes it.
func (d *days) place(g *dayGang) bool {
	for range g.pods {
		best := -1
		for n, free := range d.free {
			if free >= g.size && (best < 0 || free < d.free[best]) {
				best = n
			}
		}
		if best < 0 {
			d.leave(g)
			return false
		}
		d.free[best] -= g.size
		g.on = append(g.on, best)
	}
	g.started = d.now
	heap.Push(&d.running, g)
	return true
}

func (d *days) step5() {
	for len(d.running) > 0 && !d.running[0].end().After(d.now) {
		d.giveBack(heap.Pop(&d.running).(*dayGang))
	}
	d.do(Tick{})
	all := d.homeless
	d.homeless = nil
	for _, g := range all {
		switch {
		case d.place(g):
		case d.now.Sub(g.charged) >= 30*time.Second:
			g.charged = time.Time{}
			d.giveBack(g)
			d.ask(g)
		default:
			d.homeless = append(d.homeless, g)
		}
	}
	d.now = d.now.Add(5 * time.Second)
}

// outcome is what a day came to: mean waits in minutes, to its end for who has not started, and the part of the cores
// that was in use.
type outcome struct {
	large, small, use float64
	never, of         int // large gangs
}

// day plays one of these at a load. With whole, large gangs have pods as large as nodes.
func day(seed uint64, load float64, says saying, whole bool) (out outcome) {
	const nodes, cores = 50, 20
	r := rand.New(rand.NewPCG(seed, 15))
	d := &days{committing: newCommitting(map[string]int64{"cpu": nodes * cores}, "root", "a", "b", "c"),
		gangs: map[string]*dayGang{}, says: says}
	for range nodes {
		d.free = append(d.free, cores)
	}
	begin := d.now
	end := begin.Add(24 * time.Hour)
	for next := begin; d.now.Before(end); d.step5() {
		for ; !next.After(d.now); next = next.Add(time.Duration(r.ExpFloat64() * 67 / load * float64(time.Second))) {
			queue := string('a' + rune(r.IntN(3)))
			g := &dayGang{pods: 1 + r.IntN(6), size: int64(1 + r.IntN(16)), asked: d.now, large: r.IntN(25) == 0,
				runs: time.Duration(min(4*3600, math.Exp(6.55+1.3*r.NormFloat64()))*1000+1000) * time.Millisecond,
				ref:  &wire.GangRef{Uid: fmt.Sprint("g", len(d.gangs)), Queue: queue, Namespace: queue, Name: "g"}}
			if n := 10 + r.IntN(20); g.large && whole {
				g.pods, g.size = n, cores
			} else if g.large {
				g.pods, g.size = 4*n, cores/4
			}
			d.gangs[g.ref.Uid] = g
			d.ask(g)
		}
	}
	small := 0
	for _, g := range d.gangs {
		until := end
		if !g.started.IsZero() {
			until = g.started
			out.use += float64(g.pods) * float64(g.size) * min(g.runs, end.Sub(g.started)).Hours()
		}
		if says == lies && g.ref.Queue == "c" {
			continue // others are judged
		}
		if wait := until.Sub(g.asked).Minutes(); !g.large {
			small++
			out.small += wait
		} else if out.large, out.of = out.large+wait, out.of+1; g.started.IsZero() {
			out.never++
		}
	}
	out.large, out.small, out.use = out.large/float64(out.of), out.small/float64(small), out.use/(24*nodes*cores)
	return out
}

// TestBackfill: the same days, without limits, with limits, and with limits of which those of one queue are lies. With
// limits small gangs wait a part as long and large ones no longer, also where they need whole nodes; and lies cost
// the others nothing. It takes 10 s because it plays six days.
func TestBackfill(t *testing.T) {
	for _, whole := range []bool{false, true} {
		var out [lies + 1]outcome
		for says := range out {
			out[says] = day(0, 0.85, saying(says), whole)
			t.Logf("whole nodes %v, limits %v: %v", whole, saying(says), out[says])
			o, none := out[says], out[nothing]
			if says != int(nothing) && (o.small > 0.7*none.small || o.large > 1.1*none.large) {
				t.Errorf("whole nodes %v: limits (%v) do not help", whole, saying(says))
			}
		}
	}
}

func (o *outcome) add(d outcome, of float64) {
	o.large, o.small, o.use = o.large+d.large/of, o.small+d.small/of, o.use+d.use/of
	o.never, o.of = o.never+d.never, o.of+d.of
}

func (o outcome) String() string {
	return fmt.Sprintf("large gangs wait %.1f min, %d of %d for ever; small ones %.1f min; %.1f %% of the cores in use",
		o.large, o.never, o.of, o.small, 100*o.use)
}

// TestDays prints what backfill.go says of it, and the same at other loads.
func TestDays(t *testing.T) {
	if !*table {
		t.Skip("it is asked for with -days")
	}
	for _, whole := range []bool{false, true} {
		for _, load := range []float64{0.7, 0.85, 1} {
			for says := nothing; says <= lies; says++ {
				const seeds = 6
				var sum outcome
				for seed := range uint64(seeds) {
					sum.add(day(seed, load, says, whole), seeds)
				}
				t.Logf("whole nodes %v, load %.2f, limits %v: %v", whole, load, says, sum)
			}
		}
	}
}

var table = flag.Bool("days", false, "print what limits do at several loads")

// BenchmarkLook finds out until when 64 earmarks lend, with 30,000 gangs in 992 leaves that all have limits.
func BenchmarkLook(b *testing.B) {
	c := newCommitting(nil, "root")
	tree, r := c.core.tree, rand.New(rand.NewPCG(1, 1))
	limit := func(q *queue, most int64) {
		q.limits = &limits{record: &wire.LimitsRecord{}, capability: api.FromMap(cpuMemoryGPU(most))}
	}
	limit(tree.root, 1<<40)
	var leaves []*queue
	for i := range 32 {
		limit(tree.at(fmt.Sprint("q", i)), 1<<36)
		for k := range 31 {
			leaves = append(leaves, tree.at(fmt.Sprintf("q%d.l%d", i, k)))
			limit(leaves[len(leaves)-1], 1<<30)
		}
	}
	tree.dirty = true
	tree.recompute()
	o := &c.core.roster
	for i := range 30_000 {
		g := o.at(&wire.GangRef{Uid: fmt.Sprint("g", i), Queue: leaves[i%len(leaves)].path, Namespace: "ns"})
		o.admit(g, leaves[i%len(leaves)])
		g.res.granted = c.now.UnixMilli()
		o.limit(g.res, 1000+r.Int64N(1<<(12+r.IntN(16))))
		c.core.ledger.charge(g, api.FromMap(cpuMemoryGPU(1<<24)))
	}
	var marked []*queue
	for i := range 64 {
		q := leaves[i*15]
		g := &gang{ref: &wire.GangRef{Uid: fmt.Sprint("m", i)}}
		g.req = &request{gang: g, queue: q, delta: api.FromMap(cpuMemoryGPU(1 << 30)), runs: 3600_000}
		q.order.earmark = g.req
		marked = append(marked, q)
	}
	for b.Loop() {
		c.core.backfill.next = time.Time{}
		c.core.backfill.look(c.now, o, marked, nil)
	}
	if len(c.core.backfill.lends) == 0 {
		b.Fatal("nothing is lent")
	}
}

func cpuMemoryGPU(each int64) map[string]int64 {
	return map[string]int64{"cpu": each, "memory": each, "gpu": each}
}
