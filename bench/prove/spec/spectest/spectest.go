// Package spectest tests models of package spec, in the same way for each: what is explored with all rules is clean,
// and without any one of them a violation is found.
package spectest

import (
	"fmt"
	"testing"

	"basalt.dev/basalt/bench/prove/seeds"
	"basalt.dev/basalt/bench/prove/spec"
)

// Hold explores spaces with all rules: the exploration has to be complete, and no invariant violated. Each space has
// its turn every third day, and all of them every night: a model changes with its package alone.
func Hold[C any](t *testing.T, spaces []C, explore func(C) spec.Result) {
	t.Helper()
	states := 0
	spaces = seeds.OfTheDay(t, 3, spaces)
	for _, in := range spaces {
		r := explore(in)
		t.Logf("%+v: %s", in, r)
		if !r.Complete {
			t.Errorf("%+v: %s\n%s", in, r, r.Text())
		}
		states += r.States
	}
	t.Logf("%d states in %d spaces", states, len(spaces))
}

// Found breaks each of the rules, in their order, where the model says: a violation has to be found after shortest
// steps or more, and none in as much of the same space with the rule.
func Found[W ~struct {
	Rule R
	In   C
}, R interface {
	comparable
	fmt.Stringer
}, C any](
	t *testing.T, rules []R, all []W, shortest int, explore func(w W, kept bool, limit int) spec.Result,
) {
	t.Helper()
	if len(all) != len(rules) {
		t.Fatalf("%d of %d rules are weakened", len(all), len(rules))
	}
	for i, w := range all {
		of := struct {
			Rule R
			In   C
		}(w)
		if of.Rule != rules[i] {
			t.Errorf("%s stands in the place of %s", of.Rule, rules[i])
		}
		r, err := spec.Weaken(of.Rule, shortest, func(kept bool, limit int) spec.Result { return explore(w, kept, limit) })
		if err != nil {
			t.Errorf("%+v: %v", of.In, err)
		}
		t.Logf("%s: %s\n%s", of.Rule, r, r.Text())
	}
}
