package claims

import (
	"testing"
	"time"

	"basalt.dev/basalt/bench/prove/spec"
)

// TestSurplusRulesHold: with all rules, no interleaving violates an invariant.
func TestSurplusRulesHold(t *testing.T) {
	states := 0
	for _, f := range []SurplusFaults{{}, {Crash: 1, Heir: 1, Edit: 1}, {Crash: 1, Die: 1, Timeout: 1}, {Heir: 1, Die: 1, Timeout: 1}, {Heir: 1, Die: 1, Edit: 1}, {Crash: 1, Die: 1, Edit: 1}, {Die: 2, Edit: 1}, {Heir: 1, Timeout: 2}, {Die: 1, Edit: 1, Timeout: 1}} {
		r := RunSurplus(f, time.Now)
		t.Logf("%+v: %s", f, r)
		if !r.Complete {
			t.Errorf("%+v: %s\n%s", f, r, r.Text())
		}
		states += r.States
	}
	t.Logf("%d states", states)
}

// TestWeakenedSurplusRulesAreFound: without any one of the rules, an invariant is violated.
func TestWeakenedSurplusRulesAreFound(t *testing.T) {
	in := [surplusRules]SurplusFaults{LateCondemn: {Die: 1}, CondemnOfOldTerm: {Crash: 1, Die: 1}, CondemnUnclaimed: {Timeout: 1}, MinimumUnrecorded: {Die: 1, Edit: 1},
		CondemnedSpared: {Timeout: 1}, GrantBeforeCondemned: {Die: 1}, CondemnBelowMinimum: {Edit: 1}, ClaimedReplaced: {Die: 1}, CondemnedUntold: {Die: 1, Edit: 1, Timeout: 1}}
	for _, rule := range SurplusRules() {
		r, err := spec.Weaken(rule, 1, func(kept bool, _ int) spec.Result {
			if kept {
				return RunSurplus(in[rule], time.Now)
			}
			return RunSurplus(in[rule], time.Now, rule)
		})
		if err != nil {
			t.Error(err)
		}
		t.Logf("%s: %s\n%s", rule, r, r.Text())
	}
}
