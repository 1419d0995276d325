package explore

import (
	"testing"
	"time"

	"basalt.dev/basalt/api/fault"
)

func explored(t *testing.T, cfg Config) {
	t.Helper()
	if fault.Built {
		t.Skip("built with bugs")
	}
	r := Run(cfg, time.Now)
	if r.Violation != "" || !r.Complete {
		t.Fatal(r)
	}
	t.Log(r)
}

// TestOneGang: every interleaving of a gang over two shards.
func TestOneGang(t *testing.T) { explored(t, Config{Gangs: 1}) }

// TestTwoGangs: two gangs of which one fits at a time, and any four steps put off. `make explore` does all.
func TestTwoGangs(t *testing.T) { explored(t, Config{Gangs: 2, Delays: 4}) }

// TestLateWatch: any process crashes at any point, and the watch of pods is always the last to be heard. What was settled was then committed under a version that
// was known to be old, and settled again, without end.
func TestLateWatch(t *testing.T) {
	explored(t, Config{Gangs: 1, Crashes: 1, Delays: -1, Order: "mcsrlp", Longest: 100})
}

// TestFindsBugs shows that an exploration can fail; it needs -tags faults, and -v prints what it took.
func TestFindsBugs(t *testing.T) {
	if !fault.Built {
		t.Skip("built without bugs: go test -tags faults")
	}
	defer fault.Set()
	for bug, cfg := range map[fault.Fault]Config{
		fault.BindBeforePrepared: {Gangs: 1},
		fault.InheritedFree:      {Crashes: 1},
		fault.SkippedAncestor:    {Quota: 1},
		fault.AncestorsNotAsked:  {Quota: 1},
	} {
		fault.Set(bug)
		if r := Run(cfg, time.Now); r.Violation == "" {
			t.Errorf("%s is not found: %s", bug, r)
		} else {
			t.Logf("%s: %d states: %s", bug, r.States, r.Violation)
		}
	}
}
