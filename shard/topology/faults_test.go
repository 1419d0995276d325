//go:build faults

package topology

import (
	"testing"

	"basalt.dev/basalt/api/fault"
)

// TestFaultsAreSeen: with each fault of this package on, some judgement of TestJudge or TestLogReadAnew is another one.
func TestFaultsAreSeen(t *testing.T) {
	defer fault.Set()
	for _, f := range []fault.Fault{fault.NodesUnsaid, fault.JudgedUnseen, fault.PlainUnjudged, fault.DeletedIsOver, fault.GivenUpUntold, fault.RowTermsIgnored,
		fault.LabelsUnawaited, fault.RowsSupport, fault.ClaimRowsIgnored, fault.LogAnewComplete} {
		fault.Set(f)
		var seen []string
		for name, run := range judgements() {
			if got, want := run(newJudged()); got != want {
				seen = append(seen, name+": "+got)
			}
		}
		if got := logReadAnew().says(8, "q@11>a2"); got != "wait" {
			seen = append(seen, "the log is read anew: "+got)
		}
		if len(seen) == 0 {
			t.Errorf("%s is not seen", f)
		}
		t.Logf("%s: %q", f, seen)
	}
}
