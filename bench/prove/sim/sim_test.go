package sim

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/bench/prove/seeds"
	"basalt.dev/basalt/bench/stage/local/localtest"
	"basalt.dev/basalt/shard/event"
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

// TestSeeds runs the whole system from seeds of the day, 20,000 steps of each before its faults end, and in full from
// the first 300 as well. A seed that fails is run again with `bin/basalt-bench sim --seed`. It takes a minute because a
// seed takes a second of a core.
func TestSeeds(t *testing.T) {
	runs := map[string]int{fmt.Sprint(seeds.ByDate(t, 40)): 40}
	if seeds.InFull() {
		runs["1"] = 300
	}
	for first, n := range runs {
		out := run(t, "basalt-bench", "--first", first, "--seeds", fmt.Sprint(n), "--steps", "20000")
		if !strings.Contains(out, fmt.Sprintf("%d seeds", n)) {
			t.Error("not all seeds were run")
		}
		t.Log(out)
	}
}

// TestProgress judges in worlds of lives that nobody waits for ever who could start. Of these seeds one in six found a
// gang that did, before gangs lived more than once; a few in a hundred still do (3053, for one), and are not among
// them. It takes a minute: each world rests until nothing changes. A half of them runs each day, all in full.
func TestProgress(t *testing.T) {
	for _, first := range seeds.OfTheDay(t, 2, []string{"3000", "3026"}) {
		t.Log(run(t, "basalt-bench", "--progress", "--first", first, "--seeds", "26"))
	}
}

// TestBugs switches seeded bugs on, one after another, of those that show in one seed of a few: a sixth of them each
// day, all in full. Which seed that is changes with every change of a core. It takes a minute because a bug takes some
// seeds.
func TestBugs(t *testing.T) {
	often := slices.DeleteFunc(slices.Clone(Bugs), func(bug Bug) bool { return !bug.Often() })
	for _, bug := range seeds.OfTheDay(t, 6, often) {
		t.Log(run(t, "basalt-bench-faults", "--bugs", "--bug", string(bug.Fault), "--seeds", "200"))
	}
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

// TestSameSeedSameBytes runs one seed twice, and without the hash of outputs, which must change nothing.
func TestSameSeedSameBytes(t *testing.T) {
	cfg := Config{Seed: 5, Steps: 4000, Outputs: true}
	a, b, plain := Run(cfg), Run(cfg), Run(Config{Seed: 5, Steps: 4000})
	if a.Hash != b.Hash || a.Steps != b.Steps || a.Outputs != b.Outputs {
		t.Errorf("one seed, two histories:\n%s\n%s", a, b)
	}
	if plain.Hash != a.Hash || plain.Steps != a.Steps || plain.Outputs != 0 || a.Outputs == 0 {
		t.Errorf("the hash of outputs changes a run:\n%s\n%s", a, plain)
	}
}

// TestOutputsAreHashedWhole changes one thing of an output at a time, also what no line of the log shows: each gives
// another hash, and the same values at other addresses give the same.
func TestOutputsAreHashedWhole(t *testing.T) {
	of := func(o any) uint64 {
		h := xxhash.New()
		hashValue(h, reflect.ValueOf(o))
		return h.Sum64()
	}
	status := func(pods int32, message string) event.WritePodGroupStatus {
		s := &v1beta1.PodGroupStatus{Message: message}
		s.Bound = pods
		return event.WritePodGroupStatus{ID: 1, Status: s}
	}
	span := func(at time.Time, attrs ...slog.Attr) event.Span { return event.Span{Start: at, Attributes: attrs} }
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	send := func(attempt uint64) event.Send {
		return event.Send{Body: &wire.Envelope{Body: &wire.Envelope_Reserve{Reserve: &wire.Reserve{Attempt: attempt}}}}
	}
	seen := map[uint64]any{}
	for _, o := range []any{
		event.WritePodGroupStatus{}, status(0, ""), status(1, ""), status(0, "a"), status(0, "b"),
		event.ObjectEvent{About: event.Object{Name: "ab", UID: "c"}},
		event.ObjectEvent{About: event.Object{Name: "a", UID: "bc"}},
		span(at), span(at.Add(1)),
		span(at, slog.String("a", "1")), span(at, slog.String("a", "2")), span(at, slog.Any("a", []string{"1"})),
		send(1), send(2), map[string]int{"a": 1, "b": 2}, map[string]int{"a": 2, "b": 1},
		event.Log{Message: "a"}, event.Log{Message: "a", Attrs: []slog.Attr{slog.Int("n", 1)}},
		v1beta1.QueueSpec{}, v1beta1.QueueSpec{Capability: corev1.ResourceList{"cpu": resource.MustParse("1")}},
		v1beta1.QueueSpec{Capability: corev1.ResourceList{"cpu": resource.MustParse("2")}},
	} {
		if other, is := seen[of(o)]; is {
			t.Errorf("%+v has the hash of %+v", o, other)
		}
		seen[of(o)] = o
	}
	if of(status(1, "a")) != of(status(1, "a")) || of(send(1)) != of(send(1)) {
		t.Error("equal values differ")
	}
	cached := resource.MustParse("1")
	_ = cached.String() // which it keeps
	if of(cached) != of(resource.MustParse("1")) {
		t.Error("a quantity's hash depends on whether somebody has printed it")
	}
}
