package order

import (
	"testing"
	"time"
)

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
		r := Run(w.In, time.Now)
		if r.Violation == "" || len(r.Trace) < 5 {
			t.Errorf("%s is not found: %s: %s", w.Rule, w.In, r)
			continue
		}
		t.Logf("%s: %s: %s\n%s", w.Rule, w.In, r, r.Text())
		w.In.Weak = nil
		w.In.Limit = 2 * r.States
		if kept := Run(w.In, time.Now); kept.Violation != "" {
			t.Errorf("%s is found although the rule is kept: %s\n%s", w.Rule, kept, kept.Text())
		}
	}
}
