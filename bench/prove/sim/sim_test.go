package sim

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"basalt.dev/basalt/bench/stage/local/localtest"
)

// run runs the simulator as a program of its own: under the race detector it would be ten times as slow.
func run(t *testing.T, program string, args ...string) string {
	t.Helper()
	root := localtest.Programs(t, program)
	out, err := exec.CommandContext(t.Context(), filepath.Join(root, "bin", program), append([]string{"sim"}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// TestSeeds runs the whole system from 300 seeds, 20,000 steps of each before its faults end. A seed that fails is run again
// with `bin/basalt-bench sim --seed`.
func TestSeeds(t *testing.T) {
	out := run(t, "basalt-bench", "--seeds", "300", "--steps", "20000")
	if !strings.Contains(out, "300 seeds") {
		t.Error("not all seeds were run")
	}
	t.Log(out)
}

// TestBugs switches seeded bugs on, one after another, of those that show in one seed of a few. Which seed that is changes
// with every change of a core.
func TestBugs(t *testing.T) {
	t.Log(run(t, "basalt-bench-faults", "--bugs", "--often", "--seeds", "200"))
}

// TestKept runs the scripts that were kept: of failures that were, and of seeded bugs, which are off here.
func TestKept(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d scripts, %v", len(files), err)
	}
	for _, name := range files {
		t.Run(filepath.Base(name), func(t *testing.T) {
			file, err := os.Open(name)
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			script, err := ReadScript(file)
			if err != nil {
				t.Fatal(err)
			}
			if r := Run(Config{Script: script}); r.Violation != "" {
				t.Error(r)
			}
		})
	}
}

// TestCalm runs without any fault.
func TestCalm(t *testing.T) {
	r := Run(Config{Seed: 1, Calm: true})
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
