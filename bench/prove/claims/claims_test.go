package claims

import (
	"flag"
	"testing"
	"time"

	"basalt.dev/basalt/bench/prove/spec"
)

var large = flag.Bool("large", false, "explore all that `make claims` explores")

// TestRulesHold: with all rules, no interleaving of what Small lists violates an invariant, and from each state an end is reached.
func TestRulesHold(t *testing.T) {
	cfgs := Small()
	if *large {
		cfgs = append(cfgs, Large()...)
	}
	states := 0
	for _, cfg := range cfgs {
		cfg.Limit = 20_000_000
		r := Run(cfg, time.Now)
		t.Logf("%s: %s", cfg, r)
		if !r.Complete {
			t.Errorf("%s: %s\n%s", cfg, r, r.Text())
		}
		states += r.States
	}
	t.Logf("%d states in %d spaces", states, len(cfgs))
}

// TestWeakenedRulesAreFound: without any one of the rules, an invariant is violated.
func TestWeakenedRulesAreFound(t *testing.T) {
	all := EachWeakened()
	if len(all) != len(Rules()) {
		t.Fatalf("%d of %d rules are weakened", len(all), len(Rules()))
	}
	for i, w := range all {
		if w.Rule != Rules()[i] {
			t.Errorf("%s stands in the place of %s", w.Rule, Rules()[i])
		}
		r, err := spec.Weaken(w.Rule, 4, func(kept bool, limit int) spec.Result {
			if w.In.Limit = limit; kept {
				w.In.Weak = nil
			}
			return Run(w.In, time.Now)
		})
		if err != nil {
			t.Errorf("%s: %v", w.In, err)
		}
		t.Logf("%s: %s\n%s", w.Rule, r, r.Text())
	}
}

// TestHashesMergeNothingElse: an exploration that compares whole states meets as many.
func TestHashesMergeNothingElse(t *testing.T) {
	for _, cfg := range []Config{in("again", Faults{Crash: 1, HeirV: 1}), in("room-rival", Faults{HeirC: 1, Timeout: 1}), in("two-rival", Faults{Change: 1, Finish: 1})} {
		hashed := Run(cfg, time.Now)
		cfg.Exact = true
		if exact := Run(cfg, time.Now); exact.States != hashed.States || exact.Transitions != hashed.Transitions {
			t.Errorf("%s: %s, and with hashes %s", cfg, exact, hashed)
		}
	}
}
