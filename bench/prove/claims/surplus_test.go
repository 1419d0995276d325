package claims

import (
	"testing"
	"time"

	"basalt.dev/basalt/bench/prove/spec"
	"basalt.dev/basalt/bench/prove/spec/spectest"
)

// TestSurplusRulesHold: with all rules, no interleaving violates an invariant.
func TestSurplusRulesHold(t *testing.T) {
	spectest.Hold(t, []SurplusFaults{
		{}, {Crash: 1, Heir: 1, Edit: 1}, {Crash: 1, Die: 1, Timeout: 1}, {Heir: 1, Die: 1, Timeout: 1},
		{Heir: 1, Die: 1, Edit: 1}, {Crash: 1, Die: 1, Edit: 1}, {Die: 2, Edit: 1}, {Heir: 1, Timeout: 2},
		{Die: 1, Edit: 1, Timeout: 1},
	}, func(f SurplusFaults) spec.Result { return RunSurplus(f, time.Now) })
}

// TestWeakenedSurplusRulesAreFound: without any one of the rules, an invariant is violated.
func TestWeakenedSurplusRulesAreFound(t *testing.T) {
	in := [surplusRules]SurplusFaults{LateCondemn: {Die: 1}, CondemnOfOldTerm: {Crash: 1, Die: 1}, CondemnUnclaimed: {Timeout: 1}, MinimumUnrecorded: {Die: 1, Edit: 1},
		CondemnedSpared: {Timeout: 1}, GrantBeforeCondemned: {Die: 1}, CondemnBelowMinimum: {Edit: 1}, ClaimedReplaced: {Die: 1}, CondemnedUntold: {Die: 1, Edit: 1, Timeout: 1}}
	type broken struct {
		Rule SurplusRule
		In   SurplusFaults
	}
	var all []broken
	for _, rule := range SurplusRules() {
		all = append(all, broken{rule, in[rule]})
	}
	spectest.Found(t, SurplusRules(), all, 1, func(w broken, kept bool, _ int) spec.Result {
		if kept {
			return RunSurplus(w.In, time.Now)
		}
		return RunSurplus(w.In, time.Now, w.Rule)
	})
}
