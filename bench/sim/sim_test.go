package sim

import (
	"flag"
	"os"
	"strconv"
	"testing"
)

var (
	seed  = flag.Uint64("seed", 0, "run this seed alone")
	first = flag.Uint64("first", 1, "the first seed")
	seeds = flag.Int("seeds", 30, "how many seeds")
	steps = flag.Int("steps", 5000, "events of each before the faults end")
)

// TestSeeds runs the whole system from many seeds. One that fails is run again with -seed, and with -v it prints every line.
func TestSeeds(t *testing.T) {
	if *seed > 0 {
		cfg := Config{Seed: *seed, Steps: *steps}
		if testing.Verbose() {
			cfg.Out = os.Stdout
		}
		r := Run(cfg)
		if r.Violation != "" {
			t.Fatal(r)
		}
		t.Log(r)
		return
	}
	for i := range uint64(*seeds) {
		t.Run(strconv.FormatUint(*first+i, 10), func(t *testing.T) {
			t.Parallel()
			r := Run(Config{Seed: *first + i, Steps: *steps})
			if r.Violation != "" {
				t.Fatal(r)
			}
			t.Log(r)
		})
	}
}

// TestCalm runs without any fault.
func TestCalm(t *testing.T) {
	r := Run(Config{Seed: 1, Steps: *steps, Calm: true})
	if r.Violation != "" {
		t.Fatal(r)
	}
	if r.Counts["bindings"] < 50 {
		t.Errorf("too little happened: %s", r)
	}
	t.Log(r)
}

// TestSameSeedSameBytes runs one seed twice.
func TestSameSeedSameBytes(t *testing.T) {
	a, b := Run(Config{Seed: 5, Steps: 4000}), Run(Config{Seed: 5, Steps: 4000})
	if a.Hash != b.Hash || a.Steps != b.Steps {
		t.Errorf("one seed, two histories:\n%s\n%s", a, b)
	}
}
