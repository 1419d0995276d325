package claims

import (
	"flag"
	"testing"
	"time"

	"basalt.dev/basalt/bench/prove/spec"
	"basalt.dev/basalt/bench/prove/spec/spectest"
)

var large = flag.Bool("large", false, "explore all that `make claims` explores")

// TestRulesHold: with all rules, no interleaving of what Small lists violates an invariant, and from each state an end is reached.
func TestRulesHold(t *testing.T) {
	cfgs := Small()
	if *large {
		cfgs = append(cfgs, Large()...)
	}
	spectest.Hold(t, cfgs, func(cfg Config) spec.Result {
		cfg.Limit = 20_000_000
		return Run(cfg, time.Now)
	})
}

// TestWeakenedRulesAreFound: without any one of the rules, an invariant is violated.
func TestWeakenedRulesAreFound(t *testing.T) {
	spectest.Found(t, Rules(), EachWeakened(), 4, func(w Weakened, kept bool, limit int) spec.Result {
		if w.In.Limit = limit; kept {
			w.In.Weak = nil
		}
		return Run(w.In, time.Now)
	})
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
