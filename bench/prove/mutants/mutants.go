// Package mutants changes one expression of a package at a time and lists the changes that no test notices. All drawn
// mutants are compiled into one program (mutant schemata), and an environment variable says which of them is alive: a
// mutant costs a run of the tests and no build. It meets the fast tests first, then the others, then the simulator; the
// first failure ends it.
package mutants

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Options say what is mutated. Since and Sample exclude each other.
type Options struct {
	Root    string // of the repository; what is not committed is not in the copy
	Package string // its folder, relative to Root
	Since   string // only lines that changed since this revision
	Sample  int    // only so many mutants
	Seed    uint64 // of the sample
	Seeds   int    // seeds of the simulator that a mutant meets if the tests miss it
	Only    []int  // numbers of mutants in the list; if empty, all
}

// Run mutates and prints. The packages below Package are left out.
func Run(ctx context.Context, out io.Writer, o Options) error {
	tmp, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	tree := filepath.Join(tmp, "tree")
	if err := run(ctx, out, o.Root, "git", "worktree", "add", "--quiet", "--detach", tree, "HEAD"); err != nil {
		return err
	}
	defer func() {
		_ = run(context.WithoutCancel(ctx), out, o.Root, "git", "worktree", "remove", "--force", tree)
	}()
	c := copied{
		dir: filepath.Join(tree, o.Package), test: filepath.Join(tmp, "test"), sim: filepath.Join(tmp, "sim"), seeds: o.Seeds,
	}
	drawn, err := c.draw(ctx, o)
	if err != nil {
		return err
	}
	if err := instrument(c.dir, drawn); err != nil {
		return err
	}
	if err := c.build(ctx, out, tree); err != nil {
		return err
	}
	return c.judge(ctx, out, drawn, o.Only)
}

func (c *copied) draw(ctx context.Context, o Options) ([]mutant, error) {
	all, err := list(ctx, c.dir)
	if err != nil {
		return nil, err
	}
	if o.Since != "" {
		lines, err := changed(ctx, c.dir, o.Since)
		return slices.DeleteFunc(all, func(m mutant) bool { return !lines[at{m.file, m.line}] }), err
	}
	if o.Sample == 0 {
		return all, nil
	}
	return draw(all, o.Sample, o.Seed), nil
}

// copied is the throw-away copy of the repository, and the programs with all mutants built from it.
type copied struct {
	dir       string // of the package
	test, sim string // paths
	seeds     int
	stages    []stage
}

// stage is a run that may kill a mutant. Its limits are several times what it takes without one.
type stage struct {
	name string
	args []string
	took time.Duration
}

func (c *copied) build(ctx context.Context, out io.Writer, tree string) error {
	if err := run(ctx, out, c.dir, "go", "test", "-c", "-buildvcs=false", "-o", c.test, "."); err != nil {
		return err
	}
	if c.seeds > 0 {
		build := []string{"build", "-buildvcs=false", "-o", c.sim, "./cmd/basalt-bench"}
		if err := run(ctx, out, tree, "go", build...); err != nil {
			return err
		}
	}
	if err := c.tests(ctx); err != nil || c.seeds == 0 {
		return err
	}
	sim := []string{c.sim, "sim", "--shrink", "0s", "--seeds"}
	half := strconv.Itoa((c.seeds + 1) / 2)
	for _, s := range []stage{
		{name: "sim", args: append(slices.Clone(sim), strconv.Itoa(c.seeds))},
		{name: "sim --progress", args: append(slices.Clone(sim), half, "--first", "3000", "--progress")},
	} {
		began := time.Now()
		if err := c.meet(ctx, s, 0); err != nil {
			return fmt.Errorf("%s without a mutant: %w", s.name, err)
		}
		s.took = time.Since(began)
		c.stages = append(c.stages, s)
	}
	return nil
}

var passed = regexp.MustCompile(`(?m)^--- (?:PASS|SKIP): (\S+) \((\S+)s\)`)

// tests runs the tests without a mutant. Those of less than a second make one stage, each other one makes its own, the
// fastest first.
func (c *copied) tests(ctx context.Context) error {
	var printed bytes.Buffer
	if err := run(ctx, &printed, c.dir, c.test, "-test.v"); err != nil {
		return fmt.Errorf("%w\n%s", err, printed.String())
	}
	var fast []string
	var together time.Duration
	for _, m := range passed.FindAllStringSubmatch(printed.String(), -1) {
		took, err := time.ParseDuration(m[2] + "s")
		if err != nil {
			return err
		}
		if took < time.Second {
			fast, together = append(fast, m[1]), together+took
		} else {
			c.stages = append(c.stages, c.testing(m[1], m[1], took))
		}
	}
	slices.SortStableFunc(c.stages, func(a, b stage) int { return cmp.Compare(a.took, b.took) })
	c.stages = slices.Insert(c.stages, 0, c.testing("fast tests", strings.Join(fast, "|"), together))
	return nil
}

func (c *copied) testing(name, pattern string, took time.Duration) stage {
	args := []string{c.test, "-test.failfast", "-test.timeout=20m", "-test.run", "^(" + pattern + ")$"}
	return stage{name: name, args: args, took: took}
}

// meet runs a stage with one mutant alive. A mutant that never ends meets the limit of processor time; one that grows,
// that of memory.
func (c *copied) meet(ctx context.Context, s stage, id int) error {
	limit := "unlimited"
	if id > 0 {
		limit = strconv.Itoa(int(4*s.took/time.Second) + 5)
	}
	const limited = `ulimit -t "$0" && ulimit -v 12000000 && exec "$@"`
	sh := exec.CommandContext(ctx, "sh", append([]string{"-c", limited, limit}, s.args...)...)
	sh.Dir, sh.Env = c.dir, append(os.Environ(), "BASALT_MUTANT="+strconv.Itoa(id))
	printed, err := sh.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, first(printed))
	}
	return err
}

var failing = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)|^panic: .*|^fatal error: .*|^.*\bseed \d+: .{0,120}`)

// first returns what a failed run says about its first failure: the innermost test, if it is one.
func first(printed []byte) string {
	found := failing.FindAllSubmatch(printed, 3)
	for i, f := range slices.Backward(found) {
		if f[1] != nil || i == 0 {
			return strings.TrimSpace(string(f[0]))
		}
	}
	return ""
}

// judge takes all mutants through one stage before the next: what lives that long is known early.
func (c *copied) judge(ctx context.Context, out io.Writer, drawn []mutant, only []int) error {
	var alive []int
	for i, m := range drawn {
		if id := i + 1; len(only) == 0 || slices.Contains(only, id) {
			alive = append(alive, id)
			fmt.Fprintf(out, "%d %s:%d %s: %s -> %s\n", id, m.file, m.line, m.change, brief(m.old), brief(m.new))
		}
	}
	for _, s := range c.stages {
		if len(alive) == 0 {
			break
		}
		alive = slices.DeleteFunc(alive, func(id int) bool {
			err := c.meet(ctx, s, id)
			if err != nil && ctx.Err() == nil {
				fmt.Fprintf(out, "%d killed by %s: %v\n", id, s.name, err)
			}
			return err != nil
		})
		if ctx.Err() != nil {
			return ctx.Err()
		}
		fmt.Fprintf(out, "after %s %d live: %v\n", s.name, len(alive), alive)
	}
	return nil
}

func brief(code string) string { return strings.Join(strings.Fields(code), " ") }

func run(ctx context.Context, out io.Writer, dir string, name string, args ...string) error {
	c := exec.CommandContext(ctx, name, args...)
	c.Dir, c.Stdout, c.Stderr = dir, out, out
	if err := c.Run(); err != nil {
		return fmt.Errorf("run %s %s: %w", name, args[0], err)
	}
	return nil
}

type at struct {
	file string
	line int
}

var hunk = regexp.MustCompile(`^@@ -\S+ \+(\d+)(?:,(\d+))? @@`)

// changed returns the lines of the package that differ from those of a revision.
func changed(ctx context.Context, dir, since string) (map[at]bool, error) {
	var diff bytes.Buffer
	args := []string{"diff", "-U0", "--relative", "--no-prefix", "--no-color", since, "HEAD", "--", "."}
	if err := run(ctx, &diff, dir, "git", args...); err != nil {
		return nil, errors.New(diff.String())
	}
	lines, file := map[at]bool{}, ""
	for l := range strings.Lines(diff.String()) {
		if name, ok := strings.CutPrefix(l, "+++ "); ok {
			file = strings.TrimSpace(name)
		}
		if m := hunk.FindStringSubmatch(l); m != nil {
			n := 1
			if m[2] != "" {
				n, _ = strconv.Atoi(m[2])
			}
			for first, _ := strconv.Atoi(m[1]); n > 0; n-- {
				lines[at{file, first + n - 1}] = true
			}
		}
	}
	return lines, nil
}

// draw returns n of them, in their order in the package. The same seed draws the same ones as long as the package is
// the same, and a smaller sample is a part of a larger one.
func draw(all []mutant, n int, seed uint64) []mutant {
	all = slices.Clone(all)
	slices.SortStableFunc(all, order)
	rand.New(rand.NewPCG(seed, 0)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	all = all[:min(n, len(all))]
	slices.SortStableFunc(all, order)
	return all
}
