package bookings

import (
	"flag"
	"testing"
	"time"

	"basalt.dev/basalt/bench/prove/spec"
)

var drawn = flag.Int("drawn", 10, "draw so many worlds")

// TestRulesHold: with all rules, no interleaving of what Small lists violates an invariant.
// It takes 20 s to meet ten million states.
func TestRulesHold(t *testing.T) {
	states := 0
	for _, cfg := range Small() {
		r := Run(cfg, time.Now)
		t.Logf("%s: %s", cfg, r)
		if !r.Complete {
			t.Errorf("%s: %s\n%s", cfg, r, r.Text())
		}
		states += r.States
	}
	t.Logf("%d states", states)
}

// TestDrawn: nor in worlds that are drawn, each up to a number of states.
func TestDrawn(t *testing.T) {
	states := 0
	for seed := range uint64(*drawn) {
		cfg := Drawn(seed)
		cfg.Limit = 200_000
		r := Run(cfg, time.Now)
		if states += r.States; r.Violation != "" {
			t.Errorf("%+v: %s\n%s", cfg.World, r, r.Text())
		}
	}
	t.Logf("%d states", states)
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
