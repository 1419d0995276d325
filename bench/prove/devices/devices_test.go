package devices

import (
	"testing"
	"time"

	"basalt.dev/basalt/bench/prove/spec"
	"basalt.dev/basalt/bench/prove/spec/spectest"
)

// TestRulesHold: with all rules, no interleaving of what Small lists violates an invariant, and from each state an end
// is reached.
func TestRulesHold(t *testing.T) {
	spectest.Hold(t, Small(), func(cfg Config) spec.Result { return Run(cfg, time.Now) })
}

// TestWeakenedRulesAreFound: without any one of the rules, an invariant is violated, or something is never done.
func TestWeakenedRulesAreFound(t *testing.T) {
	spectest.Found(t, Rules(), EachWeakened(), 4, func(w Weakened, kept bool, limit int) spec.Result {
		if w.In.Limit = limit; kept {
			w.In.Weak = nil
		}
		return Run(w.In, time.Now)
	})
}
