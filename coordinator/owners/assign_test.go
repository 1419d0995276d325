package owners

import (
	"fmt"
	"math/rand"
	"testing"

	"basalt.dev/basalt/api"
)

func shardsNamed(names ...string) []Shard {
	var out []Shard
	for _, n := range names {
		out = append(out, Shard{Incarnation: api.Incarnation(n + "1"), Name: n})
	}
	return out
}

func TestAssignMovesOnlyWhatMustMove(t *testing.T) {
	for n := 2; n <= 40; n += 7 {
		var names []string
		for i := range n {
			names = append(names, fmt.Sprintf("shard-%d", i))
		}
		shards := shardsNamed(names...)
		first, _ := Assign(nil, shards, false, 0)
		bound := (5*api.Buckets + 4*n - 1) / (4 * n)
		for _, s := range shards {
			if load := first.Owned(s.Incarnation); load > bound || load == 0 {
				t.Errorf("%d shards: %s has %d buckets, bound is %d", n, s.Name, load, bound)
			}
		}
		if next, _ := Assign(first, shards, false, 64); next != nil {
			t.Errorf("%d shards: a second assignment changes something", n)
		}
		after, move := Assign(first, shards[1:], false, 64)
		if move.Moved != 0 || move.Taken != first.Owned(shards[0].Incarnation) {
			t.Errorf("%d shards: %+v when one with %d buckets dies", n, move, first.Owned(shards[0].Incarnation))
		}
		for b := range api.BucketID(api.Buckets) {
			was, is := first.Owner(b), after.Owner(b)
			if was != shards[0].Incarnation && is != was {
				t.Fatalf("%d shards: bucket %d of living %s went to %s", n, b, was, is)
			}
			if changed := after.Changed[b] == after.Epoch; changed != (was != is) || is == "" {
				t.Fatalf("%d shards: bucket %d from %s to %s, changed at %d", n, b, was, is, after.Changed[b])
			}
		}
		again := append(shardsNamed("shard-0"), shards[1:]...)
		again[0].Incarnation = "shard-0-again"
		heir, _ := Assign(first, again, false, 0)
		if got, want := heir.Owned("shard-0-again"), first.Owned(shards[0].Incarnation); got != want {
			t.Errorf("%d shards: the new incarnation has %d of its predecessor's %d buckets", n, got, want)
		}
	}
}

func TestAssignKeepsEveryBucketOwned(t *testing.T) {
	for seed := range int64(20) {
		rng := rand.New(rand.NewSource(seed))
		var table *api.Table
		shards := map[string]Shard{}
		for round := range 200 {
			name := fmt.Sprintf("s%d", rng.Intn(8))
			switch s, up := shards[name]; {
			case !up || rng.Intn(4) == 0:
				shards[name] = Shard{Incarnation: api.Incarnation(fmt.Sprintf("%s-%d", name, round)), Name: name, Joining: true}
			case rng.Intn(3) == 0:
				s.Draining = !s.Draining
				shards[name] = s
			case len(shards) > 1:
				delete(shards, name)
			}
			var list []Shard
			for _, s := range shards {
				list = append(list, s)
			}
			next, move := Assign(table, list, false, 64)
			if move.Moved > 64 {
				t.Fatalf("seed %d: %d buckets moved in a step", seed, move.Moved)
			}
			if next == nil {
				continue
			}
			if err := next.Validate(); err != nil {
				t.Fatal(err)
			}
			if table != nil && next.Epoch <= table.Epoch {
				t.Fatalf("seed %d: epoch %d after %d", seed, next.Epoch, table.Epoch)
			}
			table = next
			living := map[api.Incarnation]bool{}
			for _, s := range list {
				living[s.Incarnation] = true
			}
			for b := range api.BucketID(api.Buckets) {
				if !living[table.Owner(b)] {
					t.Fatalf("seed %d: bucket %d belongs to %q", seed, b, table.Owner(b))
				}
			}
		}
	}
}

// Shards that take over what others drain get no more than a quarter above the average, however the scores fall.
func TestAssignDrainsWithinTheBound(t *testing.T) {
	for _, takers := range []int{1, 2, 7, 30, 100} {
		var names []string
		for i := range 2 * takers {
			names = append(names, fmt.Sprintf("shard-%d", i))
		}
		shards := shardsNamed(names...)
		table, _ := Assign(nil, shards, false, 0)
		for i := range takers {
			shards[i].Draining = true
		}
		bound, moved := (5*api.Buckets+4*takers-1)/(4*takers), 0
		for range api.Buckets {
			next, move := Assign(table, shards, false, 100)
			if next == nil {
				break
			}
			if table, moved = next, moved+move.Moved; move.Moved > 100 || move.Taken != 0 {
				t.Fatalf("%d shards drain: %+v", takers, move)
			}
			for _, s := range shards[takers:] {
				if load := table.Owned(s.Incarnation); load > bound {
					t.Fatalf("%d shards drain: %s has %d buckets, the bound is %d", takers, s.Name, load, bound)
				}
			}
		}
		for _, s := range shards[:takers] {
			if left := table.Owned(s.Incarnation); left != 0 {
				t.Errorf("%d shards drain: %s has %d buckets left after %d moves", takers, s.Name, left, moved)
			}
		}
	}
}
