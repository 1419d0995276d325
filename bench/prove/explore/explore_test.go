package explore

import (
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/bench/prove/model"
	"basalt.dev/basalt/bench/prove/seeds"
	"basalt.dev/basalt/coordinator"
	"basalt.dev/basalt/shard/home"
	"basalt.dev/basalt/shard/node"
)

func explored(t *testing.T, cfg Config) Result {
	t.Helper()
	if fault.Built {
		t.Skip("built with bugs")
	}
	r := Run(cfg, time.Now)
	if r.Violation != "" || !r.Complete {
		t.Fatal(r)
	}
	t.Log(r)
	return r
}

// days is in how many of them all configurations of a test have their turn.
const days = 3

// TestTwoGangs: every interleaving of two gangs over two shards, of which one fits at a time.
func TestTwoGangs(t *testing.T) { explored(t, Config{Gangs: 2}) }

// TestLateWatch: any process crashes at any point, and the watch of pods is always the last to be heard. What was resolved
// was then committed under a version that was known to be old, and resolved again, without end.
func TestLateWatch(t *testing.T) {
	explored(t, Config{Gangs: 1, Crashes: 1, Delays: -1, Order: "mcsrlp", Longest: 100})
}

// TestEditedLabels: somebody edits a label of a pod at any point of its gang's life.
func TestEditedLabels(t *testing.T) { explored(t, Config{Gangs: 1, Edits: 1}) }

// TestImplied: gangs that only their pods describe, over two shards; somebody edits a label of a pod, or makes all pods again;
// a home shard crashes before or after that.
func TestImplied(t *testing.T) {
	cfgs := seeds.OfTheDay(t, days, []Config{
		{Gangs: 2}, {Gangs: 1, Edits: 1, Delays: 4},
		{Gangs: 1, Crashes: 1, Victims: "s1", Rested: true, Delays: 4},
		{Gangs: 2, Crashes: 1, Victims: "s1", Rested: true, Delays: 1},
	})
	if seeds.InFull() { // it has 100,000 states
		cfgs = append(cfgs, Config{Gangs: 1, Edits: 1, Crashes: 1, Victims: "s1", Rested: true, Delays: 1})
	}
	for _, cfg := range cfgs {
		cfg.Implied = true
		explored(t, cfg)
	}
}

// TestClaims: a gang claims the room of one that runs, or of one of its pods: in every order without a crash, and in all orders that put off
// so many steps with a crash of any process at any point.
func TestClaims(t *testing.T) {
	for _, cfg := range seeds.OfTheDay(t, days, []Config{
		{Claim: SmallGang}, {Claim: OnePod}, {Claim: WholeGang}, {Claim: SmallGang, Statuses: true},
		{Claim: SmallGang, Crashes: 1, Rested: true, Delays: 1}, {Claim: OnePod, Crashes: 1, Rested: true, Delays: -1},
		{Claim: WholeGang, Crashes: 1, Victims: "s1", Rested: true, Delays: -1},
	}) {
		explored(t, cfg)
	}
}

// TestSameAgain: the coordinator crashes at any point of a gang's life, and starts again at any point; and then that meets the same states again, in whatever order maps are walked. It did not: which of a
// key's rows was forgotten first decided how the others lie in their gang.
func TestSameAgain(t *testing.T) {
	for _, cfg := range []Config{{Gangs: 1, Crashes: 1, Victims: "c"}, {Gangs: 1, Crashes: 1, Victims: "s1", Rested: true, Delays: -1}} {
		one := explored(t, cfg)
		if two := explored(t, cfg); one.Sum != two.Sum || one.States != two.States || !maps.Equal(one.ends, two.ends) {
			t.Errorf("%+v: two runs differ:\n%s\n%s", cfg, one, two)
		}
	}
}

// TestMergesNothingElse: an exploration that merges nothing, and takes every step each time on copies of the cores, ends in
// the same states.
func TestMergesNothingElse(t *testing.T) {
	for _, cfg := range seeds.OfTheDay(t, days, []Config{
		{Gangs: 1}, {Gangs: 1, Edits: 1, Delays: -1}, {Gangs: 1, Crashes: 1, Victims: "s2", Rested: true, Delays: -1},
	}) {
		merged := explored(t, cfg)
		cfg.Plain = true
		if plain := explored(t, cfg); !maps.Equal(plain.ends, merged.ends) || plain.States < merged.States {
			t.Errorf("%+v: merging ends in %d states, without it there are %d:\n%s\n%s", cfg, len(merged.ends), len(plain.ends), merged, plain)
		}
	}
}

// TestCopies: processes that were never copied, and whose states were never merged, are in the same state after the same
// steps. They were not: a coordinator wrote the revision into a Granted that its copies had, too; and what pointed to a struct within another
// one pointed elsewhere in a copy, so that each request was put into a new line of those who wait.
func TestCopies(t *testing.T) {
	if fault.Built {
		t.Skip("built with bugs")
	}
	for _, cfg := range []Config{{Gangs: 1, Crashes: 1, Victims: "s2", Rested: true, States: 1500}, {Claim: SmallGang, States: 1500}} {
		testCopies(t, cfg)
	}
}

func testCopies(t *testing.T, cfg Config) {
	t.Helper()
	met, gone := 0, 0
	cfg.each = func(first, w *world, s *step) {
		if met++; met%50 != 0 {
			return
		}
		gone++
		alone, copied := begin(first.cfg, true), first
		for _, a := range s.path() {
			what := alone.name(a)
			alone.do(a)
			copied = copied.copied()
			if copied.do(a); alone.sum() != copied.sum() {
				t.Fatalf("after %q of %q the copy is in another state", what, path(first, s))
			}
		}
		if alone.sum() != w.sum() {
			t.Fatalf("%q leads elsewhere", path(first, s))
		}
	}
	if r := Run(cfg, time.Now); r.Violation != "" || gone < 5 {
		t.Errorf("%d of %d states were looked at: %s", gone, met, r)
	}
}

// TestFindsBugs shows that an exploration can fail, and that merging hides nothing: it needs -tags faults, and -v prints
// what each bug took.
func TestFindsBugs(t *testing.T) {
	if !fault.Built {
		t.Skip("built without bugs: go test -tags faults")
	}
	defer fault.Set()
	for _, b := range Bugs {
		fault.Set(b.Fault)
		cfgs := []Config{b.In}
		if b.Plain {
			cfgs = append(cfgs, b.In)
			cfgs[1].Plain = true
		}
		for _, cfg := range cfgs {
			if r := Run(cfg, time.Now); r.Violation == "" {
				t.Errorf("%s is not found: %s", b.Fault, r)
			} else {
				t.Logf("%s: %d states, merged %t: %s", b.Fault, r.States, !cfg.Plain, r.Violation)
			}
		}
	}
}

// TestNamedFieldsExist: the fields that a state leaves out are named as strings, and a renamed field would count again unseen.
func TestNamedFieldsExist(t *testing.T) {
	exist, seen := map[string]bool{}, map[reflect.Type]bool{}
	var visit func(t reflect.Type)
	visit = func(t reflect.Type) {
		if seen[t] {
			return
		}
		seen[t] = true
		switch t.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Array:
			visit(t.Elem())
		case reflect.Map:
			visit(t.Key())
			visit(t.Elem())
		case reflect.Struct:
			name, _, _ := strings.Cut(t.String(), "[")
			for i := range t.NumField() {
				exist[name+"."+t.Field(i).Name] = true
				visit(t.Field(i).Type)
			}
		}
	}
	visit(reflect.TypeFor[home.Core]())
	visit(reflect.TypeFor[node.Core]())
	visit(reflect.TypeFor[coordinator.Core]())
	visit(reflect.TypeFor[model.Store[int]]())
	visit(reflect.TypeFor[model.API]())
	for _, named := range []map[string]bool{skipped, unordered, {"node.row.resolveAt": true, "node.row.phase": true}} {
		for name := range named {
			if !exist[name] {
				t.Errorf("there is no field %s", name)
			}
		}
	}
}
