// Package localtest gives tests a real API server and a real etcd, and takes them away again.
//
// It decides when they start and stop: with the test that asked, or, for Shared, with the test program. Basalt's own
// processes run under the race detector when the test does, and a data race or a panic in one of them fails the test.
package localtest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"basalt.dev/basalt/api/wait"
	"basalt.dev/basalt/bench/stage/local"
)

// Etcd starts an etcd of its own for a test, with an empty store, and stops it at the test's end. It takes less than a
// second. The API server is not built for it.
func Etcd(t testing.TB) *local.Etcd {
	t.Helper()
	root := Programs(t, "etcd")
	e, err := local.StartEtcd(t.Context(), local.EtcdOptions{Root: root, Dir: t.TempDir(), Name: "etcd", NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Stop() })
	return e
}

// Cluster gives a test a control plane to itself, and at the test's end stops every Basalt process that was started in
// it. Where the package's TestMain calls Run, it may be one that an earlier test has given back, made as new: most of
// what a control plane costs is its start.
func Cluster(t testing.TB, o local.Options) *local.Cluster {
	t.Helper()
	c := takeIdle(t, o)
	if c == nil {
		dir, err := dirFor(t)
		if err != nil {
			t.Fatal(err)
		}
		if c, err = start(t, o, dir); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		logs := basaltLogs(c)
		if err := c.StopBasalt(); err != nil {
			t.Error(err)
		}
		for _, log := range logs {
			judge(t, log)
		}
		if t.Failed() || !giveBack(c, o) {
			if err := c.Stop(); err != nil {
				t.Error(err)
			}
		}
	})
	return c
}

// idle are control planes that nobody uses now, with what they were made with, and the folders of all that were made.
var idle struct {
	sync.Mutex
	planes []plane
	dirs   []string
}

type plane struct {
	cluster *local.Cluster
	options local.Options
}

// dirFor returns a folder for a control plane, which lasts as long as the test program if others may use it later.
func dirFor(t testing.TB) (string, error) {
	if !shared.runs {
		return t.TempDir(), nil
	}
	dir, err := os.MkdirTemp("", "basalt-cluster-")
	idle.Lock()
	defer idle.Unlock()
	idle.dirs = append(idle.dirs, dir)
	return dir, err
}

// handedOn reports whether control planes with these options serve several tests: not if the API server writes an audit
// log, which tests read from the beginning, or if there is more than one machine.
func handedOn(o local.Options) bool {
	return !o.Audit && o.Network == nil && o.ControlStoreMembers <= 1
}

// giveBack keeps a control plane for other tests, and reports whether it did.
func giveBack(c *local.Cluster, o local.Options) bool {
	if !shared.runs || !handedOn(o) || !c.Untouched() {
		return false
	}
	idle.Lock()
	defer idle.Unlock()
	idle.planes = append(idle.planes, plane{c, o})
	return true
}

// takeIdle returns a control plane with these options that is as new, or nil if there is none.
func takeIdle(t testing.TB, o local.Options) *local.Cluster {
	t.Helper()
	idle.Lock()
	at := slices.IndexFunc(idle.planes, func(p plane) bool {
		has := p.options
		return handedOn(o) && has.ControllerManager == o.ControllerManager &&
			slices.Equal(has.APIServerFlags, o.APIServerFlags)
	})
	if at < 0 {
		idle.Unlock()
		return nil
	}
	c := idle.planes[at].cluster
	idle.planes = slices.Delete(idle.planes, at, at+1)
	idle.Unlock()
	if err := c.Reset(t.Context(), o.Basalt); err != nil {
		t.Errorf("a control plane that another test gave back: %v", errors.Join(err, c.Stop()))
		return nil
	}
	return c
}

// stopIdle stops what no test will use any more.
func stopIdle() error {
	idle.Lock()
	defer idle.Unlock()
	errs := make([]error, len(idle.planes))
	var wg sync.WaitGroup
	for i, p := range idle.planes {
		wg.Go(func() { errs[i] = p.cluster.Stop() })
	}
	wg.Wait()
	for _, dir := range idle.dirs {
		errs = append(errs, os.RemoveAll(dir))
	}
	return errors.Join(errs...)
}

// Basalt builds Basalt's program, with the race detector if the test has it, and returns what local.Options.Basalt
// needs.
func Basalt(t testing.TB) string {
	t.Helper()
	return basalt(t, "basalt")
}

// BasaltWithFaults is Basalt with the bugs of package api/fault in it; the environment variable BASALT_FAULTS of a
// process switches them on.
func BasaltWithFaults(t testing.TB) string {
	t.Helper()
	return basalt(t, "basalt-faults")
}

func basalt(t testing.TB, name string) string {
	t.Helper()
	if raceDetector {
		name += "-race"
	}
	return Programs(t, name) + "/bin/" + name
}

var shared struct {
	sync.Mutex
	runs    bool
	cluster *local.Cluster
	err     error
	dir     string
}

// Run is for a TestMain: it runs the tests, stops the shared cluster and exits.
func Run(m *testing.M) {
	shared.runs = true
	code := m.Run()
	if err := stopIdle(); err != nil {
		os.Stderr.WriteString("stop the control planes: " + err.Error() + "\n")
		code = max(code, 1)
	}
	if shared.cluster != nil {
		if err := shared.cluster.Stop(); err != nil {
			os.Stderr.WriteString("stop the shared cluster: " + err.Error() + "\n")
			code = max(code, 1)
		}
	}
	if shared.dir != "" {
		_ = os.RemoveAll(shared.dir)
	}
	os.Exit(code)
}

// Shared gives the control plane that all tests of a package share, without kube-controller-manager. A test uses names
// of its own in it and leaves the processes alone. The package's TestMain must call Run.
func Shared(t testing.TB) *local.Cluster {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if !shared.runs {
		t.Fatal("localtest.Shared needs a TestMain that calls localtest.Run")
	}
	if shared.cluster == nil && shared.err == nil {
		if shared.dir, shared.err = os.MkdirTemp("", "basalt-shared-"); shared.err == nil {
			shared.cluster, shared.err = start(t, local.Options{Audit: true}, shared.dir)
		}
	}
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.cluster
}

// Wait asks until the answer is no error, and fails the test if that takes longer than the limit. The limit is for a
// hung test, not a measure: give it generously.
func Wait(t testing.TB, limit time.Duration, what string, ask func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	const first, longest = 20 * time.Millisecond, 250 * time.Millisecond // to ask costs others time, too
	var last error                                                       // the limit itself causes one that says nothing
	for pause := first; ; pause = min(2*pause, longest) {
		err := ask(ctx)
		if err == nil {
			return
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		if !wait.For(ctx, pause) {
			t.Fatalf("waited %s for %s: %v", limit, what, last)
		}
	}
}

func start(t testing.TB, o local.Options, dir string) (*local.Cluster, error) {
	t.Helper()
	names := []string{"etcd", "kube-apiserver"}
	if o.ControllerManager {
		names = append(names, "kube-controller-manager")
	}
	o.Root, o.Dir = Programs(t, names...), dir
	started, err := startTurn(t.Context(), o.Root)
	if err != nil {
		return nil, err
	}
	defer started()
	return local.Start(t.Context(), o)
}

// starting is how many control planes start at a time, of all test programs in this checkout. A start takes a processor
// for seconds: with more of them at once, all would be late.
const starting = 2

// startTurn waits until fewer than that many others start, and returns what lets the next one begin.
func startTurn(ctx context.Context, root string) (started func(), err error) {
	for {
		for i := range starting {
			name := filepath.Join(root, "bin", fmt.Sprint(".start-", i))
			file, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o644)
			if err != nil {
				return nil, err
			}
			if syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
				return func() { _ = file.Close() }, nil // which unlocks it, as the end of this process does
			}
			_ = file.Close()
		}
		if !wait.For(ctx, 50*time.Millisecond) {
			return nil, fmt.Errorf("wait for others to start: %w", context.Cause(ctx))
		}
	}
}

// Programs builds programs, as local.Programs does, and returns the root of the repository, in whose bin/ they are.
func Programs(t testing.TB, names ...string) string {
	t.Helper()
	root, err := local.Root()
	if err != nil {
		t.Fatal(err)
	}
	if err := local.Programs(t.Context(), root, t.Output(), names...); err != nil {
		t.Fatal(err)
	}
	return root
}

func basaltLogs(c *local.Cluster) []string {
	var logs []string
	for _, b := range c.Basalts() {
		logs = append(logs, b.Log())
	}
	return logs
}

// judge fails the test for what no process of ours may do, and shows the end of the log of a test that failed.
func judge(t testing.TB, log string) {
	f, err := os.Open(log)
	if err != nil {
		t.Error(err)
		return
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if !strings.Contains(line, "WARNING: DATA RACE") && !strings.HasPrefix(line, "panic: ") && !strings.HasPrefix(line, "fatal error: ") {
			continue
		}
		words := []string{line}
		for len(words) < 60 && lines.Scan() {
			words = append(words, lines.Text())
		}
		t.Errorf("%s:\n%s", log, strings.Join(words, "\n"))
		return
	}
	if t.Failed() {
		t.Logf("the end of %s:\n%s", log, local.Tail(log, 30))
	}
}
