package sim

import (
	"slices"
	"strings"
	"time"

	"basalt.dev/basalt/api"
)

// gossip is what memberlist tells processes of each other, as far as anything hangs on it: who takes whom for dead. It
// splits into two halves, which forget each other; when the cut has healed they stay apart until somebody joins, by an
// address from the control store, one that it takes for dead. What the halves say over gRPC meanwhile passes, or does not,
// or in part. Without a split it says nothing here: deaths are told where streams break (network.go).
type gossip struct {
	w     *world
	die   *die
	until time.Time                   // then the last split heals
	dead  map[[2]api.Incarnation]bool // who takes whom for dead
	joins map[api.Incarnation]bool    // whose rejoin loop is under way
}

const (
	gossipNotices = 2500 * time.Millisecond                  // a probe, and the time of suspicion
	gossipRejoins = 3 * time.Second                          // gossip.Options.RejoinEvery
	gossipAgrees  = gossipRejoins + 5*time.Second + storeTry // of which the last for a list of the shards that was lost
)

func newGossip(w *world) *gossip {
	return &gossip{w: w, die: w.newDie("gossip"), dead: map[[2]api.Incarnation]bool{}, joins: map[api.Incarnation]bool{}}
}

// divide cuts the processes of these names off from the others; links says what of gRPC passes: all, some or none.
func (g *gossip) divide(lasts time.Duration, links string, names []string) {
	w := g.w
	half := map[api.Incarnation]bool{}
	for _, name := range names {
		if p := w.named(name); p != nil {
			half[p.inc] = true
		}
	}
	if len(half) == 0 || len(half) == len(w.processes) || w.now.Before(g.until) {
		return
	}
	w.count("gossip splits, with " + links + " of gRPC")
	defer func(was *die) { w.die = was }(w.die)
	g.until = w.now.Add(lasts)
	w.die = g.die
	for _, p := range slices.Clone(w.processes) {
		for _, q := range slices.Clone(w.processes) {
			if half[p.inc] == half[q.inc] {
				continue
			}
			if links == "none" || links == "some" && w.some(2) {
				c := w.net.conn(p, q)
				if c.cut.Before(g.until) {
					c.cut = g.until
				}
				w.net.breaks(c)
			}
			w.after(w.between(gossipNotices/2, gossipNotices+time.Second), func() { g.misses(p, q) })
		}
	}
	w.after(lasts, g.begin)
}

// begin begins the loops in which those find each other again that the split left apart.
func (g *gossip) begin() {
	for _, p := range slices.Clone(g.w.processes) {
		g.rejoins(p)
	}
}

// heal ends a split with the faults. From then on everyone is found again within a limit.
func (g *gossip) heal() {
	w := g.w
	if w.now.Before(g.until) {
		g.until = w.now
		g.begin()
	}
	w.after(gossipAgrees, func() {
		if apart := g.apart(); apart != "" {
			w.fail("I11: %s after the heal gossip is apart: %s", gossipAgrees, apart)
		}
	})
}

// misses has p take q, of the other half, for dead.
func (g *gossip) misses(p, q *process) {
	w := g.w
	if !w.now.Before(g.until) || p.dead || g.dead[[2]api.Incarnation{p.inc, q.inc}] {
		return
	}
	w.log("gossip: %s takes %s for dead", p.inc, q.inc)
	w.count("members that gossip lost")
	g.dead[[2]api.Incarnation{p.inc, q.inc}] = true
	if c := w.coordinator(p); c != nil {
		p.run(func() { c.suspect(q.inc) })
	}
}

// rejoins is the loop of a process: it joins whom it takes for dead and the control store does not.
func (g *gossip) rejoins(p *process) {
	if g.joins[p.inc] {
		return
	}
	g.joins[p.inc] = true
	var again func()
	next := func(d time.Duration) { p.later(d, again) }
	again = func() {
		w := g.w
		var missed []*process
		for _, q := range w.processes {
			if g.dead[[2]api.Incarnation{p.inc, q.inc}] {
				missed = append(missed, q)
			}
		}
		if len(missed) == 0 {
			delete(g.joins, p.inc)
			return
		}
		if !w.now.Before(g.until) {
			for _, q := range missed {
				if p.book[q.inc] && !q.paused {
					g.join(p, q)
				}
			}
		}
		next(gossipRejoins)
	}
	w := g.w
	was := w.die
	w.die = g.die
	d := w.between(0, gossipRejoins)
	w.die = was
	next(d)
}

// join lets everyone whom either knows know everyone of the other.
func (g *gossip) join(p, q *process) {
	w := g.w
	if !g.dead[[2]api.Incarnation{p.inc, q.inc}] {
		return
	}
	w.log("gossip: %s joins %s", p.inc, q.inc)
	w.count("gossip splits healed by joining")
	knows := func(a *process) (out []api.Incarnation) {
		for _, o := range w.processes {
			if !g.dead[[2]api.Incarnation{a.inc, o.inc}] {
				out = append(out, o.inc)
			}
		}
		return out
	}
	mine, theirs := knows(p), knows(q)
	for _, a := range mine {
		for _, b := range theirs {
			delete(g.dead, [2]api.Incarnation{a, b})
			delete(g.dead, [2]api.Incarnation{b, a})
		}
	}
}

// apart names two that run and of which one takes the other for dead, "" when there are none: I11.
func (g *gossip) apart() string {
	var out []string
	for _, p := range g.w.processes {
		for _, q := range g.w.processes {
			if g.dead[[2]api.Incarnation{p.inc, q.inc}] && p.book[q.inc] {
				out = append(out, string(p.inc)+" takes "+string(q.inc)+" for dead")
			}
		}
	}
	return strings.Join(out, ", ")
}
