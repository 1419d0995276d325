package coordinator

import (
	"fmt"
	"maps"
	"math/rand"
	"slices"
	"testing"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

// Whatever else is allowed, gangs that take nothing from those who displaced them cannot evict each other for ever.
func TestDisplacementsEnd(t *testing.T) {
	const gangs = 6
	root := newTree().root
	always := func(displacement) bool { return true }
	most := 0
	for seed := range int64(2000) {
		rng := rand.New(rand.NewSource(seed))
		d := displacements{}
		charged := map[identity]bool{}
		moves := 0
		for ; moves < 1000; moves++ {
			type claim struct{ claimant, victim identity }
			var claims []claim
			for i := range gangs {
				a := identity(fmt.Sprint(i))
				if charged[a] {
					continue
				}
				before := d.before(a, always)
				for _, v := range slices.Sorted(maps.Keys(charged)) {
					if !before[v] {
						claims = append(claims, claim{a, v})
					}
				}
			}
			if len(charged) == 0 || len(charged) < gangs-1 && rng.Intn(3) == 0 { // somebody starts, with nobody evicted
				charged[identity(fmt.Sprint(rng.Intn(gangs)))] = true
				continue
			}
			if len(claims) == 0 {
				break
			}
			x := claims[rng.Intn(len(claims))]
			delete(charged, x.victim)
			charged[x.claimant] = true
			d.add(x.victim, x.claimant, root, 0)
		}
		if most = max(most, moves); moves == 1000 {
			t.Fatalf("seed %d: evictions go on: %v", seed, d)
		}
	}
	t.Logf("at most %d moves", most)
}

// Beyond so many all are forgotten, for they may hold for ever.
func TestDisplacementsAreBounded(t *testing.T) {
	core := New(Config{}, Elected{})
	a, b := core.tree.at("a"), core.tree.at("b")
	for i := range displacementsAtMost {
		core.ledger.displacements.add(identity(fmt.Sprint(i)), "c", a, core.tree.version)
	}
	gang := func(q *queue, uid string) *gang {
		return &gang{key: gangKey{q.path, uid}, ref: &wire.GangRef{Uid: uid, Queue: q.path}, res: &reservation{queue: q}}
	}
	core.ledger.displace(&claim{gang: gang(b, "c"), victims: []victim{{gang: gang(a, "v")}}})
	if n := len(core.ledger.displacements); n != 1 {
		t.Errorf("%d are remembered", n)
	}
}

func TestDisplacementsAreVoid(t *testing.T) {
	resources := func(cpu int64) api.Resources { return api.FromMap(map[string]int64{"cpu": cpu}) }
	for _, c := range []struct {
		name  string
		then  func(c *Core, a, b *queue)
		holds bool
	}{
		{"nothing has changed", func(*Core, *queue, *queue) {}, true},
		{"a gang of the queue has ended", func(_ *Core, a, _ *queue) { a.departed() }, false},
		{"a gang of the other queue has ended", func(_ *Core, _, b *queue) { b.departed() }, true},
		{"limits were edited", func(c *Core, _, _ *queue) { c.tree.version++ }, false},
		{"the queue deserves more", func(_ *Core, a, _ *queue) { a.parent.deserved = resources(4) }, false},
		{"the queue deserves less", func(_ *Core, a, _ *queue) { a.parent.deserved = resources(2) }, true},
		{"the queue deserves something else, too", func(_ *Core, a, _ *queue) { a.parent.deserved = api.FromMap(map[string]int64{"cpu": 3, "gpu": 1}) }, false},
		{"the queue was deleted", func(c *Core, a, _ *queue) { c.tree.prune(a); c.tree.at("a.x") }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			core := New(Config{}, Elected{})
			a, b := core.tree.at("a.x"), core.tree.at("b")
			a.parent.deserved = resources(3)
			gang := func(q *queue, uid string, single bool) *gang {
				g := &gang{key: gangKey{q.path, uid}, ref: &wire.GangRef{Uid: uid, Queue: q.path, Single: single}}
				g.res = &reservation{queue: q, demand: resources(1)}
				return g
			}
			evicted, claimant := gang(a, "v", true), gang(b, "c", false)
			takes := []victim{{gang: evicted}}
			core.ledger.displace(&claim{gang: claimant, victims: takes})
			again := gang(a, "v2", true) // under another name
			c.then(core, a, b)
			if by := core.ledger.displacedBy(again); by["c"] != c.holds {
				t.Errorf("displaced by %v, want that it holds: %t", by, c.holds)
			}
			if by := core.ledger.displacedBy(claimant); len(by) > 0 {
				t.Errorf("the claimant is displaced by %v", by)
			}
		})
	}
}
