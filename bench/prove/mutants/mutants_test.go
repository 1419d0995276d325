package mutants

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestDraw(t *testing.T) {
	all := []mutant{{file: "a.go", to: 3, new: "x"}, {file: "a.go", to: 3, new: "y"}, {file: "b.go", to: 3}}
	turned := slices.Clone(all)
	slices.Reverse(turned)
	seen := map[string]bool{}
	for seed := range uint64(100) {
		drawn := draw(all, 2, seed)
		if len(drawn) != 2 || !slices.Equal(drawn, draw(turned, 2, seed)) {
			t.Fatalf("seed %d draws %v, and %v from another order", seed, drawn, draw(turned, 2, seed))
		}
		seen[fmt.Sprint(drawn)] = true
	}
	if len(seen) != 3 || len(draw(all, 9, 1)) != 3 {
		t.Errorf("100 seeds draw %d different pairs of three; nine of three are %d", len(seen), len(draw(all, 9, 1)))
	}
}

const program = `package main

import (
	"fmt"
	"time"
)

const fixed = 1 + 2

func main() {
	a, n := 3, 0
	for i := 0; i < a; i++ {
		n += 2
	}
	switch {
	case a > 2 && n == 6:
		fmt.Print("six ")
	case a < 0:
	}
	fmt.Println(n*fixed, -a, time.Duration(a)+time.Second, "a"+fmt.Sprint(a))
}
`

// TestSchemata runs a program with each of its mutants, and without one.
func TestSchemata(t *testing.T) {
	dir := t.TempDir()
	for name, src := range map[string]string{"go.mod": "module program\n\ngo 1.26\n", "main.go": program} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(src), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	all, err := list(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := instrument(dir, all); err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, "program")
	build := exec.Command("go", "build", "-o", bin, ".")
	build.Dir = dir
	if printed, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, printed)
	}
	var got []string
	for id := range len(all) + 1 {
		run := exec.Command(bin)
		run.Env = append(os.Environ(), "BASALT_MUTANT="+strconv.Itoa(id))
		printed := []byte("never ends")
		if id == 0 || all[id-1].new != "i--" {
			if printed, err = run.CombinedOutput(); err != nil {
				t.Fatal(err)
			}
		}
		what := "without a mutant"
		if id > 0 {
			what = all[id-1].old + " -> " + all[id-1].new
		}
		got = append(got, what+": "+strings.TrimSpace(string(printed)))
	}
	want := []string{
		"without a mutant: six 18 -3 1.000000003s a3",
		"i < a -> i <= a: 24 -3 1.000000003s a3",
		"i < a -> i >= a: 0 -3 1.000000003s a3",
		"i++ -> i--: never ends",
		"n += 2 -> n -= 2: -18 -3 1.000000003s a3",
		"a > 2 && n == 6 -> a > 2: six 18 -3 1.000000003s a3",
		"a > 2 && n == 6 -> n == 6: six 18 -3 1.000000003s a3",
		"a > 2 -> a <= 2: 18 -3 1.000000003s a3",
		"a > 2 -> a >= 2: six 18 -3 1.000000003s a3",
		"n == 6 -> n != 6: 18 -3 1.000000003s a3",
		"a < 0 -> a <= 0: six 18 -3 1.000000003s a3",
		"a < 0 -> a >= 0: six 18 -3 1.000000003s a3",
		"n*fixed -> n / fixed: six 2 -3 1.000000003s a3",
		"-a -> a: six 18 3 1.000000003s a3",
		"time.Duration(a)+time.Second -> time.Duration(a) - time.Second: six 18 -3 -999.999997ms a3",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestChanged(t *testing.T) {
	dir := t.TempDir()
	for i, src := range []string{"a\nb\nc\n", "a\nB\nc\nd\ne\n"} {
		if err := os.WriteFile(filepath.Join(dir, "a.go"), []byte(src), 0o644); err != nil {
			t.Fatal(err)
		}
		commit := "-c user.name=a -c user.email=a@localhost commit --quiet --no-verify -m " + strconv.Itoa(i)
		for _, args := range []string{"init --quiet", "add .", commit} {
			git := exec.Command("git", strings.Fields(args)...)
			git.Dir = dir
			if printed, err := git.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, printed)
			}
		}
	}
	lines, err := changed(t.Context(), dir, "HEAD~1")
	want := map[at]bool{{"a.go", 2}: true, {"a.go", 4}: true, {"a.go", 5}: true}
	if err != nil || !maps.Equal(lines, want) {
		t.Errorf("%v, %v; want %v", lines, err, want)
	}
}

func TestFirst(t *testing.T) {
	for printed, want := range map[string]string{
		"--- FAIL: TestA (0.1s)\n    --- FAIL: TestA/b (0.1s)\n": "--- FAIL: TestA/b",
		"panic: index out of range\n":                            "panic: index out of range",
		"nothing":                                                "",
	} {
		if got := first([]byte(printed)); got != want {
			t.Errorf("%q says %q, want %q", printed, got, want)
		}
	}
}
