// Package suite runs the tests of the project: all `go test` runs side by side, one report.
//
// It decides which packages are tested under the race detector, in which order packages begin, and how many run at a
// time. It owns the `go test` processes that it starts and the control planes that test programs borrow (package pool),
// and judges nothing: a package passes if `go test` says so.
//
// Most tests wait, for leases, grace periods and other processes, and some compute. Two things follow:
//   - Packages that start servers begin first, several at a time, so that waiting costs nobody a processor. Those that
//     only compute fill what is left.
//   - Packages whose code has one goroutine run without the race detector, which has nothing to find there and makes
//     them take five times as long. They run beside the others.
//
// Packages that carry out long scenarios take turns: each day a fifth of them runs, and all of them at a landing and
// every night. They are named at the end of a run. A package that is asked for by name always runs.
//
// It refuses to hide anything: output of a test that fails is printed whole, and a run that tested nothing has failed.
package suite

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"basalt.dev/basalt/bench/prove/seeds"
	"basalt.dev/basalt/bench/stage/local/pool"
)

const (
	module = "basalt.dev/basalt/"

	// servers is the package by which tests start servers.
	servers = module + "bench/stage/local/localtest"

	// abreast is how many packages under the race detector run at a time. They keep two cores busy: more of them would
	// only slow each other.
	abreast = 3
)

// pure are packages whose code has one goroutine.
var pure = []string{
	"cache", "coordinator", "shard/home", "shard/home/plan", "shard/node", "bench/measure/fair",
	"bench/prove/bookings", "bench/prove/claims", "bench/prove/devices", "bench/prove/explore", "bench/prove/feed",
	"bench/prove/order", "bench/prove/promised",
	"bench/prove/sim", "bench/prove/spec",
}

// first are the packages that take longest, longest first: a long one that began last would be waited for alone.
var first = []string{
	"bench/prove/doors",
	"deploy",
	"bench/prove/reclaim",
	"bench/prove/apart",
	"bench/prove/volumes",
	"shard/server",
}

// turns are packages of scenarios against real servers that take more than others: those of a day. What they judge, the
// simulator, scripts of the cores and the packages that run each day judge in small.
var turns = [][]string{
	{"bench/prove/failures", "bench/prove/visibility", "bench/prove/apart"},
	{"bench/prove/doors", "bench/prove/store", "bench/prove/unlike"},
	{"deploy", "bench/prove/racks"},
	{"bench/prove/reclaim", "bench/prove/badinput", "bench/prove/tracetest"},
	{
		"bench/prove/chaos", "bench/prove/hostile", "bench/prove/docs", "bench/stage/local/pool", "bench/prove/volumes",
		"bench/prove/upstream", "bench/prove/security",
	},
}

// Options of a run.
type Options struct {
	Root     string        // of the repository
	Full     bool          // in full, as every night
	Rest     bool          // those packages whose turn it is not today, and no others
	Timeout  time.Duration // of one package
	Packages []string      // patterns as the go tool takes them; all packages if empty
	Flags    []string      // further flags of `go test`, such as -run and -count
	Out      io.Writer
	Keep     string // folder that takes the events of `go test -json`; not kept if empty
}

// tested is a package that has tests.
type tested struct {
	ImportPath, Dir           string
	TestGoFiles, XTestGoFiles []string
	TestImports, XTestImports []string
}

// Run runs the tests and prints a line for each package as it ends, what failed, and the report. It returns an error if
// a test failed.
func Run(ctx context.Context, o Options) error {
	packages, err := list(ctx, o)
	if err != nil {
		return err
	}
	packages, later, err := o.ofTheDay(packages)
	if err != nil {
		return err
	}
	if len(packages) == 0 {
		return errors.New("none of these packages has tests")
	}
	if o.Rest || o.all() { // a few packages take little
		if err := room(needed, written(ctx)...); err != nil {
			return err
		}
	}
	day, err := seeds.Day()
	if err != nil {
		return err
	}
	planes := pool.New(o.Root, o.Out)
	socket, stop, err := planes.Lend()
	if err != nil { // the path of the temporary folder may be too long for a socket
		fmt.Fprintf(o.Out, "each test program starts control planes of its own: %v\n", err)
		socket, stop = "", func() {}
	}
	racing, alone := divide(packages)
	r := newReport(o.Out)
	var wg sync.WaitGroup
	failed := make([]error, 2)
	start := func(i int, name string, packages []string, flags ...string) {
		if len(packages) > 0 {
			wg.Go(func() { failed[i] = o.goTest(ctx, r, name, day, socket, append(flags, packages...)) })
		}
	}
	start(0, "race", racing, "-race", "-p", fmt.Sprint(abreast))
	start(1, "pure", alone, "-p", "1")
	wg.Wait()
	stop()
	failed = append(failed, planes.Close())
	r.print(sources(packages))
	if len(later) > 0 {
		fmt.Fprintf(o.Out, "\nnot their turn today (make test-rest runs them): %s\n", strings.Join(later, ", "))
	}
	return errors.Join(append(failed, r.verdict())...)
}

// ofTheDay returns the packages that run, and which others have their turn on another day.
func (o Options) ofTheDay(all []tested) (now []tested, later []string, err error) {
	if o.Full || !o.all() {
		return all, nil, nil
	}
	turn, err := seeds.TurnToday(len(turns))
	if err != nil {
		return nil, nil, err
	}
	for _, p := range all {
		name := strings.TrimPrefix(p.ImportPath, module)
		of := slices.IndexFunc(turns, func(names []string) bool { return slices.Contains(names, name) })
		switch waits := of >= 0 && of != turn; {
		case waits == o.Rest:
			now = append(now, p)
		case waits:
			later = append(later, name)
		}
	}
	return now, later, nil
}

// everything is the pattern of all packages.
var everything = []string{"./..."}

// all reports whether no package was asked for by name.
func (o Options) all() bool { return len(o.Packages) == 0 || slices.Equal(o.Packages, everything) }

// list returns the packages that have tests.
func list(ctx context.Context, o Options) ([]tested, error) {
	patterns := o.Packages
	if len(patterns) == 0 {
		patterns = everything
	}
	cmd := exec.CommandContext(
		ctx,
		"go",
		append([]string{"list", "-json=ImportPath,Dir,TestGoFiles,XTestGoFiles,TestImports,XTestImports"}, patterns...)...)
	cmd.Dir = o.Root
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list packages: %w\n%s", err, said.Bytes())
	}
	var all []tested
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p tested
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("list packages: %w", err)
		}
		if len(p.TestGoFiles)+len(p.XTestGoFiles) > 0 {
			all = append(all, p)
		}
	}
}

// divide returns the packages for the race detector, those first that begin first, and the others.
func divide(packages []tested) (racing, alone []string) {
	rank := map[string]int{}
	for _, p := range packages {
		name := strings.TrimPrefix(p.ImportPath, module)
		if slices.Contains(pure, name) {
			alone = append(alone, p.ImportPath)
			continue
		}
		racing = append(racing, p.ImportPath)
		switch at := slices.Index(first, name); {
		case at >= 0:
			rank[p.ImportPath] = at - len(first)
		case slices.Contains(p.TestImports, servers) || slices.Contains(p.XTestImports, servers):
			rank[p.ImportPath] = 0
		default:
			rank[p.ImportPath] = 1
		}
	}
	slices.SortStableFunc(racing, func(a, b string) int { return cmp.Compare(rank[a], rank[b]) })
	return racing, alone
}

// goTest runs `go test` and gives the report its events.
func (o Options) goTest(ctx context.Context, r *report, name, day, socket string, args []string) error {
	flags := []string{"test", "-json", "-timeout", o.Timeout.String()}
	if o.Full && o.Keep != "" { // pictures of the console, and what else people may want to look at
		artefacts := filepath.Join(o.Keep, "artefacts")
		if err := os.MkdirAll(artefacts, 0o755); err != nil {
			return err
		}
		flags = append(flags, "-artifacts", "-outputdir", artefacts)
	}
	cmd := exec.CommandContext(ctx, "go", slices.Concat(flags, args, o.Flags)...)
	cmd.Dir = o.Root
	// The day is said: go test may answer with a result that it kept, for the same code and the same environment.
	// Tests and servers are short-lived, and this machine has memory: a collector that runs a quarter as often leaves
	// more of the processors to them. And a program under the race detector need not sleep for a second when it ends.
	cmd.Env = append(os.Environ(),
		"GOGC="+cmp.Or(os.Getenv("GOGC"), "400"), "GORACE=atexit_sleep_ms=100 "+os.Getenv("GORACE"),
		pool.Socket+"="+socket, seeds.Of+"="+day)
	if o.Full {
		cmd.Env = append(cmd.Env, seeds.Full+"=1")
	}
	// go test leaves it to the terminal to tell the test programs that they are to end. They have a group of their own,
	// so that it is said once, whoever says it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = 30 * time.Second
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	keep := io.Discard
	if o.Keep != "" {
		if err := os.MkdirAll(o.Keep, 0o755); err != nil {
			return err
		}
		file, err := os.Create(filepath.Join(o.Keep, name+".json"))
		if err != nil {
			return err
		}
		defer file.Close()
		keep = file
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	lines := bufio.NewReader(io.TeeReader(out, keep))
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			r.line(line)
		}
		if err != nil {
			break
		}
	}
	// A failed test is the report's to tell; go test exits with 1 then.
	var exit *exec.ExitError
	if err := cmd.Wait(); err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1 || said.Len() > 0) {
		return fmt.Errorf("go test (%s): %w\n%s", name, cmp.Or(context.Cause(ctx), err), bytes.TrimSpace(said.Bytes()))
	}
	return nil
}
