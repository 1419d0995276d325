package suite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"basalt.dev/basalt/bench/prove/seeds"
	"basalt.dev/basalt/bench/stage/local"
)

// project is a module with packages that pass, fail, do not build, and have no tests.
func project(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module basalt.dev/basalt\n\ngo 1.26\n",
		"good/a_test.go": `package good

import (
	"os"
	"testing"
)

func TestA(t *testing.T) { t.Log("hidden"); t.Attr("seeds", "1 to 3") }
func TestFull(t *testing.T) {
	if os.Getenv("BASALT_FULL") == "" {
		t.Skip("long")
	}
}
`,
		"cache/a_test.go": `package cache

import "testing"

func TestSub(t *testing.T) { t.Run("one", func(*testing.T) {}) }
`,
		"bad/a_test.go": `package bad

import "testing"

func TestGood(t *testing.T) { t.Log("hidden") }
func TestBad(t *testing.T)  { t.Log("before"); t.Run("sub", func(t *testing.T) { t.Error("because") }) }
`,
		"broken/a_test.go": "package broken\n\nfunc x() { undefined() }\n",
		"panicky/a_test.go": `package panicky

import "testing"

func TestPanics(*testing.T) { panic("at the disco") }
`,
		"nothing/nothing.go": "package nothing\n",
		"hangs/a_test.go": `package hangs

import (
	"fmt"
	"os"
	"testing"
	"time"
)

func TestHangs(*testing.T) {
	os.WriteFile("pid", fmt.Append(nil, os.Getpid()), 0o644)
	time.Sleep(time.Hour)
}
`,
	} {
		if err := os.MkdirAll(filepath.Join(root, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// TestTurns: each package that takes turns exists, runs on one day of a round, and is among the rest on the others.
func TestTurns(t *testing.T) {
	root, err := local.Root()
	if err != nil {
		t.Fatal(err)
	}
	all, err := list(t.Context(), Options{Root: root})
	if err != nil {
		t.Fatal(err)
	}
	runs, rest := map[string]int{}, map[string]int{}
	for i := range turns {
		day := fmt.Sprintf("2026-11-%d", 20+i)
		t.Setenv(seeds.Of, day)
		now, later, err := Options{Packages: []string{"./..."}}.ofTheDay(all)
		if err != nil || len(now)+len(later) != len(all) {
			t.Fatalf("%s: %d run, %d wait, of %d: %v", day, len(now), len(later), len(all), err)
		}
		others, _, err := Options{Rest: true}.ofTheDay(all)
		if err != nil || len(others) != len(later) {
			t.Fatalf("%s: the rest are %d, and %d wait: %v", day, len(others), len(later), err)
		}
		for _, p := range now {
			runs[strings.TrimPrefix(p.ImportPath, module)]++
		}
		for _, p := range others {
			rest[strings.TrimPrefix(p.ImportPath, module)]++
		}
	}
	takes := map[string]bool{}
	for _, name := range slices.Concat(turns...) {
		takes[name] = true
		if runs[name] != 1 || rest[name] != len(turns)-1 {
			t.Errorf("%s runs on %d days of %d, and is among the rest on %d", name, runs[name], len(turns), rest[name])
		}
	}
	for name, days := range runs {
		if !takes[name] && (days != len(turns) || rest[name] > 0) {
			t.Errorf("%s runs on %d days of %d, and is among the rest on %d", name, days, len(turns), rest[name])
		}
	}
	t.Setenv(seeds.Of, "yesterday")
	if _, _, err := (Options{}).ofTheDay(all); err == nil {
		t.Error("a day that is none is taken")
	}
	for _, o := range []Options{{Full: true}, {Packages: []string{"./bench/prove/reclaim"}}} {
		if now, later, err := o.ofTheDay(all); err != nil || len(now) != len(all) || len(later) > 0 {
			t.Errorf("%+v: %d of %d run, %v", o, len(now), len(all), err)
		}
	}
}

// TestRun runs `go test` on packages that end in every way, and reads the report.
func TestRun(t *testing.T) {
	t.Setenv(seeds.Full, "")
	root := project(t)
	run := func(o Options) (string, error) {
		var out bytes.Buffer
		o.Root, o.Timeout, o.Out = root, time.Minute, &out
		err := Run(t.Context(), o)
		return out.String(), err
	}
	has := func(out string, all ...string) {
		t.Helper()
		for _, want := range all {
			if !strings.Contains(out, want) {
				t.Errorf("no %q in\n%s", want, out)
			}
		}
	}
	keep := filepath.Join(t.TempDir(), "events")
	out, err := run(Options{Packages: []string{"./good", "./cache", "./nothing"}, Keep: keep})
	if err != nil {
		t.Fatal(err, out)
	}
	has(
		out,
		"ok  \tbasalt.dev/basalt/good\t",
		"ok  \tbasalt.dev/basalt/cache\t",
		"slowest packages",
		"slowest tests",
		"good TestA: seeds 1 to 3",
		"2 packages in ",
		"\n3 passed, 0 failed, 1 skipped\n",
	)
	if strings.Contains(out, "hidden") {
		t.Errorf("a test that passed is quoted:\n%s", out)
	}
	for _, name := range []string{"race.json", "pure.json"} {
		if b, err := os.ReadFile(filepath.Join(keep, name)); err != nil || !bytes.Contains(b, []byte(`"Action":"pass"`)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if out, err = run(Options{Packages: []string{"./good"}, Full: true}); err != nil ||
		!strings.Contains(out, "2 passed, 0 failed, 0 skipped") {
		t.Errorf("in full: %v\n%s", err, out)
	}

	out, err = run(Options{Packages: []string{"./bad", "./broken", "./panicky", "./good"}})
	if err == nil || !strings.Contains(err.Error(), "3 packages failed") {
		t.Errorf("the error is %v", err)
	}
	has(
		out,
		"because",
		"before",
		"--- FAIL: TestBad",
		"undefined: undefined",
		"panic: at the disco",
		"FAIL\tbasalt.dev/basalt/bad\t",
		"4 packages in",
		"3 of them failed",
	)
	if strings.Contains(out, "hidden") {
		t.Errorf("a test that passed is quoted:\n%s", out)
	}

	if _, err = run(Options{Packages: []string{"./nothing"}}); err == nil || !strings.Contains(err.Error(), "has tests") {
		t.Errorf("no tests: %v", err)
	}
	if _, err = run(Options{Packages: []string{"./good"}, Flags: []string{"-run", "None"}}); err == nil ||
		!strings.Contains(err.Error(), "no test was run") {
		t.Errorf("no test was run, and the error is %v", err)
	}
	if out, err = run(Options{Packages: []string{"./good"}, Flags: []string{"-nonsense"}}); err == nil ||
		!strings.Contains(out, "flag provided but not defined: -nonsense") {
		t.Errorf("a wrong flag: %v\n%s", err, out)
	}
	if _, err = run(Options{Packages: []string{"./gone"}}); err == nil || !strings.Contains(err.Error(), "gone") {
		t.Errorf("a package that is not there: %v", err)
	}
}

// TestInterrupt ends a run while a test hangs: nothing of it is left.
func TestInterrupt(t *testing.T) {
	root := project(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error)
	go func() {
		ended <- Run(ctx, Options{Root: root, Timeout: time.Minute, Out: io.Discard, Packages: []string{"./hangs"}})
	}()
	pid := 0
	for deadline := time.Now().Add(time.Minute); pid == 0; time.Sleep(10 * time.Millisecond) {
		text, _ := os.ReadFile(filepath.Join(root, "hangs", "pid"))
		if pid, _ = strconv.Atoi(string(text)); pid == 0 && time.Now().After(deadline) {
			t.Fatal("the test did not begin")
		}
	}
	cancel()
	if err := <-ended; err == nil {
		t.Error("a run that was interrupted has passed")
	}
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the test program runs on: %v", err)
	}
}

func TestDivide(t *testing.T) {
	racing, alone := divide([]tested{
		{
			ImportPath: module + "api",
		}, {ImportPath: module + "api/kube", XTestImports: []string{servers}}, {ImportPath: module + "cache"},
		{
			ImportPath:  module + "deploy",
			TestImports: []string{servers},
		}, {ImportPath: module + "bench/prove/doors", TestImports: []string{servers}},
	})
	want := []string{module + "bench/prove/doors", module + "deploy", module + "api/kube", module + "api"}
	if !slices.Equal(racing, want) {
		t.Errorf("with the race detector: %v, want %v", racing, want)
	}
	if !slices.Equal(alone, []string{module + "cache"}) {
		t.Errorf("without: %v", alone)
	}
}

// TestListsNameWhatExists: a package that was renamed would lose its place in silence.
func TestListsNameWhatExists(t *testing.T) {
	for _, name := range append(slices.Clone(pure), first...) {
		if files, err := filepath.Glob(filepath.Join("../../..", name, "*_test.go")); err != nil || len(files) == 0 {
			t.Errorf("%s has no tests: %v", name, err)
		}
	}
}

// TestLongTestsSayWhy: a test that takes long and does not say why is named.
func TestLongTestsSayWhy(t *testing.T) {
	var out bytes.Buffer
	r := newReport(&out)
	for _, line := range []string{
		`{"Action":"pass","Package":"p","Test":"TestLong","Elapsed":21}`,
		`{"Action":"pass","Package":"p","Test":"TestExplained","Elapsed":30}`,
		`{"Action":"pass","Package":"p","Test":"TestFast","Elapsed":1}`, `{"Action":"pass","Package":"p","Elapsed":52}`,
		`{"Action":"pass","Package":"basalt.dev/basalt/bench/prove/chaos","Test":"TestChaos","Elapsed":60}`,
	} {
		r.line([]byte(line))
	}
	r.print(
		map[string]string{"p TestLong": "is long", "p TestExplained": "It takes 30 s because leases end.", "p TestFast": ""},
	)
	if got := strings.Count(out.String(), "does not say why"); got != 1 ||
		!strings.Contains(out.String(), "p TestLong is new and took 21 s") {
		t.Error(out.String())
	}
}

func TestRoom(t *testing.T) {
	folder := t.TempDir()
	if err := room(1, folder, "/no/such/folder"); err != nil {
		t.Error(err)
	}
	err := room(1<<62, folder)
	if err == nil || !strings.Contains(err.Error(), folder+" has ") || !strings.Contains(err.Error(), "go clean") {
		t.Errorf("error %v, want one that names the folder and the way out", err)
	}
	if dirs := written(t.Context()); len(dirs) != 2 {
		t.Errorf("tests write to %q, want the temporary folder and Go's cache", dirs)
	}
}
