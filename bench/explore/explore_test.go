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

// TestTwoGangs: two gangs of which one fits at a time, with one step put off at any point.
func TestTwoGangs(t *testing.T) { explored(t, Config{Gangs: 2, Delays: 1}) }

// TestFindsBug shows that an exploration can fail; it needs -tags faults.
func TestFindsBug(t *testing.T) {
	if !fault.Built {
		t.Skip("built without bugs: go test -tags faults")
	}
	fault.Set(fault.BindBeforePrepared)
	defer fault.Set()
	if r := Run(Config{Gangs: 1}, time.Now); r.Violation == "" {
		t.Fatalf("not found: %s", r)
	} else {
		t.Log(r)
	}
}
