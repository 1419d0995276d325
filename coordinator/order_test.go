package coordinator

import (
	"cmp"
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

// team is a queue with an endless backlog, or one of so many gangs that run at once.
type team struct {
	path     string
	spec     QueueSeen
	ask      map[string]int64 // of each gang
	priority int64            // likewise
	most     int              // gangs that it has at a time, 0 for a backlog
	want     map[string]int64 // what it is charged in the end
}

// TestShares lets teams compete for 100 CPUs and 1000 bytes of memory, each with gangs of ten seconds, until their shares are steady: what
// root is limited to, and what the nodes have where nothing is limited.
func TestShares(t *testing.T) {
	unit := map[string]int64{"cpu": 1}
	cpu := func(n int64) map[string]int64 { return map[string]int64{"cpu": n} }
	deserved := func(n int64) QueueSeen { return QueueSeen{Deserved: api.FromMap(cpu(n))} }
	weight := func(n uint32) QueueSeen { return QueueSeen{Weight: &n} }
	for _, c := range []struct {
		name  string
		teams []team
	}{
		{"equals", []team{{path: "a", ask: unit, want: cpu(50)}, {path: "b", ask: unit, want: cpu(50)}}},
		{"a gang's priority counts in its own queue alone", []team{{path: "a", ask: unit, priority: 1000, want: cpu(50)}, {path: "b", ask: unit, want: cpu(50)}}},
		{"weights", []team{{path: "a", spec: weight(2), ask: unit, want: cpu(50)}, {path: "b", ask: unit, want: cpu(25)}, {path: "c", ask: unit, want: cpu(25)}}},
		{"what is deserved, and half of the rest each", []team{{path: "a", spec: deserved(70), ask: unit, want: cpu(85)}, {path: "b", ask: unit, want: cpu(15)}}},
		{"what is deserved and not used is lent", []team{{path: "a", spec: deserved(70), ask: unit, most: 20, want: cpu(20)}, {path: "b", ask: unit, want: cpu(80)}}},
		{"the children of one queue deserve more than it has", []team{{path: "a", spec: deserved(150), ask: unit, want: cpu(75)}, {path: "b", spec: deserved(50), ask: unit, want: cpu(25)}}},
		{"priority of a queue", []team{{path: "a", spec: QueueSeen{Priority: 1}, ask: unit, want: cpu(70)}, {path: "b", spec: deserved(30), ask: unit, want: cpu(30)}, {path: "c", spec: weight(9), ask: unit, want: cpu(0)}}},
		{"no weight beside one with a backlog", []team{{path: "a", spec: weight(0), ask: unit, want: cpu(0)}, {path: "b", ask: unit, want: cpu(100)}}},
		{"no weight beside one that wants little", []team{{path: "a", spec: weight(0), ask: unit, want: cpu(70)}, {path: "b", ask: unit, most: 30, want: cpu(30)}}},
		{"no weight costs nothing of what is deserved", []team{{path: "a", spec: QueueSeen{Weight: new(uint32), Deserved: api.FromMap(cpu(40))}, ask: unit, want: cpu(40)}, {path: "b", ask: unit, want: cpu(60)}}},
		{"many leaves are one queue among the siblings of their parent", []team{{path: "a", ask: unit, want: cpu(50)},
			{path: "b.x", ask: unit, want: cpu(10)}, {path: "b.y", ask: unit, want: cpu(10)}, {path: "b.z", spec: weight(3), ask: unit, want: cpu(30)}}},
		{"the sizes of gangs do not matter", []team{{path: "a", ask: cpu(5), want: cpu(50)}, {path: "b", ask: unit, want: cpu(50)}}},
		// hdrf_test.go of Volcano 1.12, "rescaling test": eng has two leaves, of which each uses one resource.
		{"dominant resources in a hierarchy", []team{{path: "sci", ask: map[string]int64{"cpu": 1, "memory": 10}, want: map[string]int64{"cpu": 50, "memory": 500}},
			{path: "eng.dev", ask: unit, want: cpu(50)}, {path: "eng.prod", ask: map[string]int64{"memory": 10}, want: map[string]int64{"memory": 500}}}},
		{"who needs other resources is in nobody's way", []team{{path: "a", ask: unit, want: cpu(100)}, {path: "b", ask: map[string]int64{"memory": 10}, want: map[string]int64{"memory": 1000}}}},
	} {
		divided(t, c.name, c.teams, false)
		divided(t, c.name+", of nodes", c.teams, true)
	}
}

func divided(t *testing.T, name string, teams []team, nodes bool) {
	t.Run(name, func(t *testing.T) {
		h := emptyHall(t)
		all, off := api.FromMap(map[string]int64{"cpu": 100, "memory": 1000}), 0.04
		if nodes {
			h.queue("root", 1, nil)
			off = 0.05 // a little more is admitted than there is
		} else {
			h.queue("root", 1, all)
		}
		made := map[string]bool{}
		for _, team := range teams {
			if up := api.Parent(team.path); up != api.RootQueue && !made[up] {
				made[up] = true
				h.queue(up, 1, nil)
			}
			spec := team.spec
			spec.Name, spec.UID, spec.ResourceVersion, spec.HasFinalizer = team.path, "u-"+team.path, "1", true
			h.step(spec)
		}
		h.open()
		n := 0
		sums := map[string]map[string]int64{}
		const seconds, measured = 120, 60
		for second := range seconds {
			for _, team := range teams {
				have := 0
				for uid := range h.queues {
					if strings.HasPrefix(uid, team.path+" ") {
						have++
					}
				}
				most := team.most
				if most == 0 {
					most = 250
				}
				for ; have < most; have++ {
					n++
					h.asks(fmt.Sprintf("%s %06d", team.path, n), "ns", team.path, team.ask, team.priority, 8*time.Second+time.Duration(n%5)*time.Second)
				}
			}
			if nodes {
				h.supply(all, api.RootQueue)
			}
			h.second()
			if second < seconds-measured {
				continue
			}
			for _, team := range teams {
				if sums[team.path] == nil {
					sums[team.path] = map[string]int64{}
				}
				for name := range team.ask {
					sums[team.path][name] += h.core.tree.at(team.path).charged.get(name).amount()
				}
			}
		}
		for _, team := range teams {
			for name, sum := range sums[team.path] {
				whole := map[string]float64{"cpu": 100, "memory": 1000}[name]
				if is := float64(sum) / measured; max(is-float64(team.want[name]), float64(team.want[name])-is) > off*whole {
					t.Errorf("%s has %.1f of %s, want %d", team.path, is, name, team.want[name])
				}
			}
		}
	})
}

// The tournament picks whom the rules pick when they are applied to all queues anew at each turn.
func TestTournament(t *testing.T) {
	rng := rand.New(rand.NewSource(1))
	for round := range 500 {
		tree := newTree()
		core := &Core{tree: tree, turns: tournament{tree: tree}}
		resources := []string{"cpu", "gpu", "memory"}
		some := func(most int64) api.Resources {
			m := map[string]int64{}
			for _, name := range resources {
				if rng.Intn(2) == 0 {
					m[name] = rng.Int63n(most)
				}
			}
			return api.FromMap(m)
		}
		var paths []string
		for range 1 + rng.Intn(12) {
			path := fmt.Sprint("q", rng.Intn(3))
			for range rng.Intn(3) {
				path += fmt.Sprint(".q", rng.Intn(3))
			}
			q := tree.at(path)
			weight := uint32(rng.Intn(4))
			q.limits = &limits{record: &wire.LimitsRecord{Weight: &weight, Priority: int32(rng.Intn(2))}, capability: some(1000), guarantee: some(20), deserved: some(60)}
			paths = append(paths, path)
		}
		tree.root.limits = &limits{record: &wire.LimitsRecord{}, capability: some(2000)}
		tree.dirty = true
		tree.recompute()
		slices.Sort(paths)
		due := map[*queue][]*demandClass{}
		for n := range 40 {
			q := tree.at(paths[rng.Intn(len(paths))])
			r := &request{gang: &gang{key: gangKey{q.path, fmt.Sprintf("%03d", rng.Intn(1000)*40+n)}}, queue: q, delta: some(10), priority: int64(rng.Intn(2)), since: int64(rng.Intn(5))}
			r.order = int64(rng.Intn(3))
			due[q] = append(due[q], &demandClass{queue: q, requests: []*request{r}, due: true})
		}
		for _, path := range paths {
			if q := tree.at(path); len(q.order.contests) == 0 {
				sortDue(due[q])
				for _, i := range rng.Perm(len(due[q])) {
					core.turns.enter(due[q][i], &core.turns.newcomers)
				}
			}
		}
		var naive func(q *queue) *request
		naive = func(q *queue) *request {
			if len(due[q]) > 0 {
				return due[q][0].requests[0]
			}
			var best *request
			var first standing
			for _, c := range q.children {
				if r := naive(c); r != nil {
					if s := c.standing(r, r.delta); best == nil || s.compare(first) < 0 {
						best, first = r, s
					}
				}
			}
			return best
		}
		root := core.turns.newcomers.root
		for turn := 0; ; turn++ {
			core.turns.reorder()
			want, n := naive(tree.root), root.next()
			if n == nil || want == nil {
				if n != nil || want != nil {
					t.Fatalf("round %d, turn %d: one of both is at its end", round, turn)
				}
				break
			}
			r := n.due[0].requests[0]
			if r != want {
				t.Fatalf("round %d, turn %d: %s of %s is next, want %s of %s", round, turn, r.gang.key.uid, r.queue.path, want.gang.key.uid, want.queue.path)
			}
			if rng.Intn(3) > 0 {
				tree.charge(r.queue, r.delta)
				core.turns.shake(r.queue)
			}
			switch rng.Intn(4) {
			case 0: // a pod of another queue ends meanwhile
				q := tree.at(paths[rng.Intn(len(paths))])
				tree.charge(q, api.Resources(nil).Sub(some(10)))
				core.turns.shake(q)
			case 1: // a limit is changed
				weight := uint32(rng.Intn(4))
				q := tree.at(paths[rng.Intn(len(paths))])
				q.limits = &limits{record: &wire.LimitsRecord{Weight: &weight, Priority: int32(rng.Intn(2))}, capability: some(1000), guarantee: some(20), deserved: some(60)}
				tree.dirty = true
				tree.recompute()
			}
			if rng.Intn(10) > 0 { // else it goes on waiting, and others of its queue pass it when it asks for something else
				core.turns.leave(n.due[0])
				due[r.queue] = due[r.queue][1:]
			} else {
				a := n.due[0]
				r.since, r.delta = r.since+int64(1+rng.Intn(5)), some(10)
				core.turns.moved(a)
				sortDue(due[r.queue])
			}
		}
	}
}

// sortDue sorts as a queue does by its own rules: priority, the place that its expression gives, age, UID.
func sortDue(due []*demandClass) {
	slices.SortFunc(due, func(a, b *demandClass) int {
		x, y := a.requests[0], b.requests[0]
		switch {
		case x.priority != y.priority:
			return cmp.Compare(y.priority, x.priority)
		case x.order != y.order:
			return cmp.Compare(x.order, y.order)
		case x.since != y.since:
			return cmp.Compare(x.since, y.since)
		}
		return cmp.Compare(x.gang.key.uid, y.gang.key.uid)
	})
}

// recount is who is granted when a gang ends, as it was before the tournament was kept: everybody is judged anew who was denied by a queue of
// the path of what ended, the first by the rules first. It changes nothing.
func recount(c *Core, ended *gang) (granted []string) {
	t := c.tree
	var undo []func()
	charge := func(q *queue, delta api.Resources, of *tenant) {
		t.charge(q, delta)
		of.charged.add(delta, 1)
		undo = append(undo, func() {
			t.charge(q, api.Resources(nil).Sub(delta))
			of.charged.add(delta, -1)
		})
	}
	defer func() {
		for _, f := range slices.Backward(undo) {
			f()
		}
	}()
	charge(ended.res.queue, api.Resources(nil).Sub(ended.res.demand), ended.res.tenant)
	due := map[*queue][][]*request{}
	t.root.walk(func(q *queue) {
		for _, a := range inOrder(q.order.classes) {
			if a.denied.queue != nil && api.Under(ended.res.queue.path, a.denied.queue.path) {
				due[q] = append(due[q], slices.Clone(a.requests))
			}
		}
	})
	var next func(q *queue) *request
	next = func(q *queue) *request {
		if len(due[q]) > 0 {
			return slices.MinFunc(due[q], func(a, b []*request) int { return a[0].compare(b[0]) })[0]
		}
		var best *request
		var first standing
		for _, child := range q.children {
			if r := next(child); r != nil {
				if s := child.standing(r, r.delta); best == nil || s.compare(first) < 0 {
					best, first = r, s
				}
			}
		}
		return best
	}
	for r := next(t.root); r != nil; r = next(t.root) {
		q := r.queue
		i := slices.IndexFunc(due[q], func(list []*request) bool { return list[0] == r })
		if c.judge(r, c.tree.path(q)) == nil {
			granted = append(granted, r.gang.key.uid)
			charge(q, r.delta, r.tenant)
			due[q][i] = due[q][i][1:]
		} else {
			due[q][i] = nil
		}
		if len(due[q][i]) == 0 {
			due[q] = slices.Delete(due[q], i, i+1)
		}
	}
	return granted
}

// TestWakingChangesNothing lets gangs come and go in random trees, and compares who is granted whenever one ends, and in which order, with a
// recount of all.
func TestWakingChangesNothing(t *testing.T) {
	offers, granted, others := 0, 0, 0
	for seed := range int64(60) {
		rng := rand.New(rand.NewSource(seed))
		h := emptyHall(t)
		h.core.cfg.EarmarkAfter = 1000 * time.Hour
		resources := []string{"cpu", "memory"}
		alike := seed%2 == 0 // gangs of one queue ask for the same
		vector := func(chance int, least, most int64) api.Resources {
			m := map[string]int64{}
			for _, name := range resources {
				if rng.Intn(100) < chance {
					m[name] = least + rng.Int63n(most)
				}
			}
			return api.FromMap(m)
		}
		h.queue("root", 1, vector(70, 40, 40))
		var leaves []string
		for i := range 2 + rng.Intn(3) {
			mid := fmt.Sprint("m", i)
			spec := func(name string, capability api.Resources) {
				weight := uint32(1 + rng.Intn(3))
				h.step(QueueSeen{Name: name, UID: "u-" + name, ResourceVersion: "1", HasFinalizer: true, Capability: capability, Weight: &weight,
					Guarantee: vector(15, 1, 5), Deserved: vector(30, 1, 15), Priority: int32(rng.Intn(2))})
				h.settle()
			}
			spec(mid, vector(30, 15, 20))
			for j := range 1 + rng.Intn(4) {
				leaf := fmt.Sprintf("%s.l%d", mid, j)
				spec(leaf, vector(20, 8, 10))
				leaves = append(leaves, leaf)
			}
		}
		h.open()
		asks := map[string]api.Resources{}
		for _, leaf := range leaves {
			asks[leaf] = vector(75, 1, 5)
		}
		n := 0
		for range 250 {
			if running := api.SortedKeys(h.granted); rng.Intn(100) < 45 && len(running) > 0 {
				uid := running[rng.Intn(len(running))]
				g := h.core.roster.gangs[gangKey{h.queues[uid], uid}]
				h.core.tree.recompute()
				want := recount(h.core, g)
				h.serial++
				h.step(Message{From: "s1", Body: &wire.Envelope{Body: &wire.Envelope_Unreserve{Unreserve: &wire.Unreserve{
					Gang: &wire.GangRef{Uid: uid, Queue: h.queues[uid]}, Attempt: 1, Serial: h.serial, TableEpoch: 1}}}})
				var got []string
				for h.flight != nil {
					for _, op := range h.flight.Ops {
						if p, ok := op.(PutReservation); ok {
							got = append(got, p.Record.Gang.Uid)
						}
					}
					h.settle()
				}
				delete(h.granted, uid)
				offers, granted = offers+1, granted+len(want)
				if !slices.Equal(got, want) {
					others++
					if alike {
						t.Logf("seed %d: %s ends, and %v are granted, want %v", seed, uid, got, want)
					}
				}
				continue
			}
			leaf := leaves[rng.Intn(len(leaves))]
			demand := asks[leaf]
			if !alike {
				demand = vector(75, 1, 5)
			}
			if demand.IsZero() {
				continue
			}
			n++
			m := map[string]int64{}
			for _, a := range demand {
				m[a.Resource] = a.Value
			}
			h.now = h.now.Add(time.Millisecond)
			h.asks(fmt.Sprintf("g%04d", n), "ns", leaf, m, int64(rng.Intn(2)), time.Hour)
		}
	}
	// Where gangs of one queue ask for different amounts, one that what was freed cannot help does not decide any more how
	// its queue stands. Where they are alike, that happens in 3 of some 10,000 offers, and nobody knows yet why.
	if others > offers/500 || granted < 500 {
		t.Errorf("%d of %d offers differ, in which %d gangs were granted", others, offers, granted)
	}
}
