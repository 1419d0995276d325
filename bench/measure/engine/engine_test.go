package engine

import (
	"context"
	"os"
	"slices"
	"testing"

	"basalt.dev/basalt/bench/measure/report"
	"basalt.dev/basalt/bench/measure/trace"
	"basalt.dev/basalt/cache"
)

// checked is an Engine of which every placement is looked at by the scan, which knows the same charges.
type checked struct {
	t *testing.T
	Engine
	scan *Exact
}

func (c checked) SetNode(i int) { c.Engine.SetNode(i); c.scan.SetNode(i) }

func (c checked) Place(k *kind) (place, bool) {
	at, ok := c.Engine.Place(k)
	if _, room := c.scan.Place(k); ok != room {
		c.t.Fatalf("placed %t, the scan finds room: %t", ok, room)
	}
	if !ok {
		return at, ok
	}
	node := at.index()
	if !c.scan.admits[k.set][node] {
		c.t.Fatalf("node %d does not admit the pod", node)
	}
	for r, v := range k.asks {
		if c.scan.free[r][node] < v {
			c.t.Fatalf("node %d has %d %s, the pod asks for %d", node, c.scan.free[r][node], names[r], v)
		}
	}
	return at, ok
}

func (c checked) Charge(pod int, uid string, k *kind, at place) {
	c.Engine.Charge(pod, uid, k, at)
	c.scan.Charge(pod, uid, k, place{node: at.index()})
}

func (c checked) Release(pod int, uid string) {
	c.Engine.Release(pod, uid)
	c.scan.Release(pod, uid)
}

// Whatever the stream does, the core places exactly when the scan finds room, and where the pod fits; and needs no more
// nodes than one in a hundred above best fit.
func TestCoreAgainstScan(t *testing.T) {
	w := NewWorld(1, 300)
	core := newStream(w, checked{t, NewCore(w, cache.Config{}), NewExact(w)}, 1)
	other := NewWorld(1, 300)
	exact := newStream(other, NewExact(other), 1)
	core.setLevel(500)
	exact.setLevel(500)
	used := [2]int{}
	for range 10 {
		core.run(1000)
		exact.run(1000)
		used[0] += core.inUse
		used[1] += exact.inUse
	}
	if float64(used[0]) > 1.01*float64(used[1]) {
		t.Errorf("%d nodes in use on average, best fit has %d", used[0]/10, used[1]/10)
	}
	core.setLevel(990) // where pods are refused
	core.run(20000)
	if core.refused == 0 {
		t.Error("nothing was refused")
	}
	core.every = 1 // every pod its own class
	core.run(2000)
	if err := core.e.(checked).Engine.(*Core).cache.Check(); err != nil {
		t.Error(err)
	}
}

// Steps written down before leave the same books as the decisions would, also where pods are refused.
func TestPlannedSteps(t *testing.T) {
	w := NewWorld(1, 100)
	core, scan := NewCore(w, cache.Config{}), NewExact(w)
	s := newStream(w, checked{t, core, scan}, 1)
	s.setLevel(990)
	s.run(5000)
	refused := s.refused
	for range 5 {
		s.costs(2000, true)
	}
	if s.refused == refused {
		t.Error("nothing was refused")
	}
	live, onNode, inUse := 0, make([]int32, len(w.nodes)), 0
	var used amounts
	for list := range s.live {
		for at, n := range s.live[list] {
			p := s.pods[n]
			if int(p.at) != at || scan.pods[int(n)].node != int(p.node) || scan.pods[int(n)].asks != p.k.asks {
				t.Fatalf("pod %d: %+v, the scan has %+v", n, p, scan.pods[int(n)])
			}
			if placed, _ := core.cache.Lookup(p.uid); placed.Node != nodeName(int(p.node)) {
				t.Fatalf("pod %d is on node %d, the core has it on %q", n, p.node, placed.Node)
			}
			live++
			onNode[p.node]++
			for r, v := range p.k.asks {
				used[r] += v
			}
		}
	}
	for _, n := range onNode {
		if n > 0 {
			inUse++
		}
	}
	if live != len(scan.pods) || used != s.used || inUse != s.inUse || !slices.Equal(onNode, s.onNode) {
		t.Errorf("%d pods live, charged %d; in use are %v, %d nodes, counted %v, %d", live, len(scan.pods), used, inUse, s.used, s.inUse)
	}
}

// The same seed gives the same stream and the same nodes.
func TestSameSeed(t *testing.T) {
	run := func() []int {
		w := NewWorld(7, 100)
		s := newStream(w, NewCore(w, cache.Config{}), 7)
		s.run(5000)
		var out []int
		for _, p := range s.pods {
			out = append(out, int(p.node))
		}
		return append(out, s.placed, s.refused)
	}
	if a, b := run(), run(); !slices.Equal(a, b) {
		t.Error("two runs differ")
	}
}

func TestMeasure(t *testing.T) {
	r, err := Measure(context.Background(), Options{Seed: 1, Nodes: []int{50, 100}, Rounds: 2, Decisions: 400, Exact: 50, GangNodes: 200})
	if err != nil {
		t.Fatal(err)
	}
	for _, subject := range []string{"50 nodes", "100 nodes"} {
		if !slices.ContainsFunc(r.Figures, func(f report.Figure) bool {
			return f.Subject == subject && f.Name == perSecond && f.N == 2 && f.Value > 0
		}) {
			t.Errorf("%s: no decisions a second of two rounds", subject)
		}
	}
}

func TestReplay(t *testing.T) {
	nodes, pods, err := trace.Openb("../trace/testdata/openb", "default")
	if err != nil {
		t.Fatal(err)
	}
	r, err := Replay(context.Background(), nodes, pods, 1, 2, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"core", "exact best fit", "core, 8 engines"} {
		i := slices.IndexFunc(r.Runs, func(run *report.Run) bool { return run.Subject == "arrival, "+name })
		// Pods a and b are there together, then b and c, and all three as long as a lives.
		if v, _ := r.Runs[i].Get("CPU allocated at the most"); v.Value != 100*14.0/40 {
			t.Errorf("%s: %v at the most", name, v)
		}
		i = slices.IndexFunc(r.Runs, func(run *report.Run) bool { return run.Subject == "inflation, "+name })
		if v, _ := r.Runs[i].Get("CPU allocated at saturation"); v.Value <= 0 || v.Value > 100 {
			t.Errorf("%s: %v at saturation", name, v)
		}
	}
}

// The published lists, where they are: BASALT_OPENB names their folder.
func TestPublishedOpenb(t *testing.T) {
	dir := os.Getenv("BASALT_OPENB")
	if dir == "" {
		t.Skip("BASALT_OPENB does not name a folder with the openb lists")
	}
	nodes, pods, err := trace.Openb(dir, "default")
	if err != nil {
		t.Fatal(err)
	}
	r, err := Replay(context.Background(), nodes, pods, 1, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range r.Figures {
		if f.Reach != "" && !f.Met {
			t.Errorf("%s: %s %.2f, %s", f.Subject, f.Name, f.Value, f.Reach)
		}
	}
}
