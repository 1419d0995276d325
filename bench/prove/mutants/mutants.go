// Package mutants mutates one line of a package at a time and lists the mutants that its tests miss. The mutants are those of
// gremlins; this package prepares a throw-away copy of the repository for it. In the copy, every condition of a case becomes a
// function literal, because Go's coverage has no block for it and gremlins runs no mutant that it takes for not covered. A whole
// package takes hours: a sample is drawn from the list of a dry run, and the copy gets a commit that changes the drawn lines by a
// blank, so that gremlins, told to mutate only what this commit changed, mutates only these.
package mutants

import (
	"bytes"
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const gremlins = "github.com/go-gremlins/gremlins/cmd/gremlins@v0.6.0"

// Options say which lines are mutated. Since and Sample exclude each other.
type Options struct {
	Root    string // of the repository; what is not committed is not in the copy
	Package string // its folder, relative to Root
	Since   string // only lines that changed since this revision
	Sample  int    // only so many mutants, and what shares a line with them
	Seed    uint64 // of the sample
}

// Run mutates and prints. The packages below Package are left out, unless Since is given.
func Run(ctx context.Context, out io.Writer, o Options) (err error) {
	tmp, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	tree := filepath.Join(tmp, "tree")
	if err := run(ctx, out, o.Root, "git", "worktree", "add", "--quiet", "--detach", tree, "HEAD"); err != nil {
		return err
	}
	defer func() { _ = run(context.WithoutCancel(ctx), out, o.Root, "git", "worktree", "remove", "--force", tree) }()
	dir := filepath.Join(tree, o.Package)
	since := o.Since
	if o.Sample > 0 || since == "" {
		if err := prepare(dir); err != nil {
			return err
		}
	}
	if o.Sample > 0 {
		var listed bytes.Buffer
		if err := gremlin(ctx, &listed, dir, "--dry-run"); err != nil {
			return fmt.Errorf("%w\n%s", err, listed.String())
		}
		drawn := draw(parse(listed.String()), o.Sample, o.Seed)
		fmt.Fprintf(out, "drawn with SEED=%d:\n", o.Seed)
		for _, m := range drawn {
			fmt.Fprintf(out, "%s at %s:%d\n", m.change, m.file, m.line)
		}
		if err := commit(ctx, out, tree, "conditions of cases"); err != nil {
			return err
		}
		if err := mark(dir, drawn); err != nil {
			return err
		}
		if err := commit(ctx, out, tree, "sample"); err != nil {
			return err
		}
		since = "HEAD~1"
	}
	args := []string{"--timeout-coefficient", "10", "--output-statuses", "lct"}
	if since != "" {
		args = append(args, "--diff", since)
	}
	return gremlin(ctx, out, dir, args...)
}

func commit(ctx context.Context, out io.Writer, tree, subject string) error {
	return run(ctx, out, tree, "git", "-c", "user.name=mutants", "-c", "user.email=mutants@localhost", "commit", "--quiet", "--no-verify", "--allow-empty", "-am", subject)
}

// gremlin runs gremlins inside the package's folder: its paths are relative to there, and so have those of the diff to be.
// A coverage run out of the test cache would take no time, and every mutant would be too slow.
func gremlin(ctx context.Context, out io.Writer, dir string, args ...string) error {
	return run(ctx, out, dir, "go", append([]string{"run", gremlins, "unleash", "--workers", "1"}, args...)...)
}

func run(ctx context.Context, out io.Writer, dir, name string, args ...string) error {
	c := exec.CommandContext(ctx, name, args...)
	c.Dir, c.Stdout, c.Stderr = dir, out, out
	c.Env = append(os.Environ(), "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=diff.relative", "GIT_CONFIG_VALUE_0=true", "GOFLAGS="+os.Getenv("GOFLAGS")+" -buildvcs=false -count=1")
	if err := c.Run(); err != nil {
		return fmt.Errorf("run %s %s: %w", name, args[0], err)
	}
	return nil
}

type mutant struct {
	change, file string
	line         int
}

var runnable = regexp.MustCompile(`(?m)^\s*(?:RUNNABLE|NOT COVERED) (\S+) at ([^:/\s]+):(\d+):\d+`)

// parse reads the list of a dry run. Mutants of packages below have a slash in their names.
func parse(listed string) []mutant {
	var out []mutant
	for _, m := range runnable.FindAllStringSubmatch(listed, -1) {
		line, _ := strconv.Atoi(m[3])
		out = append(out, mutant{change: m[1], file: m[2], line: line})
	}
	return out
}

// draw returns n of them, in their order in the package. The same seed draws the same ones as long as the package is the same.
func draw(all []mutant, n int, seed uint64) []mutant {
	order := func(a, b mutant) int {
		return strings.Compare(fmt.Sprintf("%s:%06d %s", a.file, a.line, a.change), fmt.Sprintf("%s:%06d %s", b.file, b.line, b.change))
	}
	all = slices.Clone(all)
	slices.SortFunc(all, order) // gremlins lists them as they end
	rand.New(rand.NewPCG(seed, 0)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	all = all[:min(n, len(all))]
	slices.SortFunc(all, order)
	return all
}

// mark appends a blank to the drawn lines. A line that ends inside a string of several lines has to stay as it is.
func mark(dir string, drawn []mutant) error {
	lines := map[string]map[int]bool{}
	for _, m := range drawn {
		if lines[m.file] == nil {
			lines[m.file] = map[int]bool{}
		}
		lines[m.file][m.line] = true
	}
	for file, marked := range lines {
		err := rewrite(filepath.Join(dir, file), func(src []byte) []byte {
			out := bytes.Split(src, []byte("\n"))
			for line := range marked {
				if l := out[line-1]; bytes.Count(l, []byte("`"))%2 == 0 {
					out[line-1] = append(slices.Clone(l), ' ')
				}
			}
			return bytes.Join(out, []byte("\n"))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// prepare rewrites the package's own files, and removes the tests of the packages below.
func prepare(dir string) error {
	return filepath.WalkDir(dir, func(file string, d os.DirEntry, err error) error {
		switch own := filepath.Dir(file) == filepath.Clean(dir); {
		case err != nil:
			return err
		case d.IsDir() || !strings.HasSuffix(file, ".go"):
			return nil
		case !own && strings.HasSuffix(file, "_test.go"):
			return os.Remove(file)
		case !own || strings.HasSuffix(file, "_test.go"):
			return nil
		}
		return rewrite(file, cases)
	})
}

func rewrite(file string, by func([]byte) []byte) error {
	src, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return os.WriteFile(file, by(src), 0o644)
}

// cases turns the conditions of switches without a tag into function literals. It keeps the lines.
func cases(src []byte) []byte {
	set := token.NewFileSet()
	tree, err := parser.ParseFile(set, "", src, parser.SkipObjectResolution|parser.ParseComments)
	if err != nil || ast.IsGenerated(tree) {
		return src
	}
	add := map[int]string{} // by offset
	ast.Inspect(tree, func(n ast.Node) bool {
		s, ok := n.(*ast.SwitchStmt)
		if !ok || s.Tag != nil {
			return true
		}
		for _, c := range s.Body.List {
			for _, cond := range c.(*ast.CaseClause).List {
				add[set.Position(cond.Pos()).Offset] += "func() bool { return "
				add[set.Position(cond.End()).Offset] = " }()" + add[set.Position(cond.End()).Offset]
			}
		}
		return true
	})
	var out bytes.Buffer
	for i, b := range src {
		out.WriteString(add[i])
		out.WriteByte(b)
	}
	return out.Bytes()
}
