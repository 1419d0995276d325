package promised

import (
	"flag"
	"testing"
	"time"

	"basalt.dev/basalt/bench/prove/spec"
	"basalt.dev/basalt/bench/prove/spec/spectest"
)

var drawn = flag.Int("drawn", 10, "draw so many worlds")

// TestRulesHold: with all rules, no interleaving of what Small lists violates an invariant.
func TestRulesHold(t *testing.T) {
	spectest.Hold(t, Small(), func(cfg Config) spec.Result {
		return Run(cfg, time.Now)
	})
}

// TestDrawn: nor in worlds that are drawn, each up to a number of states.
func TestDrawn(t *testing.T) {
	states := 0
	for seed := range uint64(*drawn) {
		cfg := Drawn(seed)
		cfg.Limit = 200_000
		r := Run(cfg, time.Now)
		if states += r.States; r.Violation != "" {
			t.Errorf("%+v, faults %v: %s\n%s", cfg.World, cfg.faults, r, r.Text())
		}
	}
	t.Logf("%d states", states)
}

// TestWeakenedRulesAreFound: without any one of the rules, an invariant is violated.
func TestWeakenedRulesAreFound(t *testing.T) {
	spectest.Found(t, Rules(), EachWeakened(), 8, func(w Weakened, kept bool, limit int) spec.Result {
		if w.In.Limit = limit; kept {
			w.In.Weak = nil
		}
		return Run(w.In, time.Now)
	})
}
