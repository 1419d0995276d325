// Package localtest gives tests a real API server and a real etcd, and takes them away again.
//
// It decides when they start and stop: with the test that asked, or, for Shared, with the test program. Basalt's own
// processes run under the race detector when the test does, and a data race or a panic in one of them fails the test.
package localtest

import (
	"bufio"
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"basalt.dev/basalt/api/wait"
	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/pool"
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

// Cluster gives a test a control plane to itself, with Basalt's CRDs, roles and policies, and at the test's end stops
// every Basalt process that was started in it. It may be one that another test has given back, made as new.
func Cluster(t testing.TB, o local.Options) *local.Cluster {
	t.Helper()
	o.Installed = true
	return Bare(t, o)
}

// Bare is Cluster without anything of Basalt's in it.
func Bare(t testing.TB, o local.Options) *local.Cluster {
	t.Helper()
	c, giveBack, err := take(t, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		logs := basaltLogs(c)
		if err := c.StopBasalt(); err != nil {
			t.Error(err)
		}
		for _, log := range logs {
			judge(t, log)
		}
		if err := giveBack(!t.Failed()); err != nil {
			t.Error(err)
		}
	})
	return c
}

// take returns a control plane: from the pool of the process that runs this test program, from the program's own, or
// one that is stopped when it is given back.
func take(t testing.TB, o local.Options) (c *local.Cluster, giveBack func(clean bool) error, err error) {
	t.Helper()
	names := []string{"etcd", local.APIServer()}
	if o.ControllerManager {
		names = append(names, "kube-controller-manager")
	}
	root := Programs(t, names...)
	switch socket := os.Getenv(pool.Socket); {
	case !pool.Lends(o) || socket == "" && !shared.runs:
		o.Root, o.Dir = root, t.TempDir()
		c, err = local.Start(t.Context(), o)
		return c, func(bool) error { return c.Stop() }, err
	case socket != "":
		return pool.Borrow(t.Context(), socket, o)
	}
	own := ownPool(root)
	c, err = own.Take(t.Context(), o)
	return c, func(clean bool) error { own.Give(c, clean); return nil }, err
}

func ownPool(root string) *pool.Pool {
	shared.Lock()
	defer shared.Unlock()
	if shared.own == nil {
		shared.own = pool.New(root, os.Stderr)
	}
	return shared.own
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

// shared is what the tests of a program share.
var shared struct {
	runs bool // Run was called

	sync.Mutex
	own *pool.Pool

	once     sync.Once
	cluster  *local.Cluster
	giveBack func(clean bool) error
	err      error
}

// Run is for a TestMain: it runs the tests, gives back or stops the control planes that they shared, and exits.
func Run(m *testing.M) {
	shared.runs = true
	code := m.Run()
	end := func(what string, err error) {
		if err != nil {
			os.Stderr.WriteString(what + ": " + err.Error() + "\n")
			code = max(code, 1)
		}
	}
	if shared.cluster != nil {
		err := shared.cluster.StopBasalt()
		end("stop the shared control plane", errors.Join(err, shared.giveBack(code == 0)))
	}
	if shared.own != nil {
		end("stop the control planes", shared.own.Close())
	}
	os.Exit(code)
}

// Shared gives the control plane that all tests of a package share, with Basalt's CRDs, roles and policies and without
// kube-controller-manager. A test uses names
// of its own in it and leaves the processes alone. The package's TestMain must call Run.
func Shared(t testing.TB) *local.Cluster {
	t.Helper()
	if !shared.runs {
		t.Fatal("localtest.Shared needs a TestMain that calls localtest.Run")
	}
	shared.once.Do(func() {
		shared.err = errors.New("the control plane that all tests share did not start") // if building it ends the test
		shared.cluster, shared.giveBack, shared.err = take(t, local.Options{Installed: true})
	})
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

// Needs skips a test of what came with a release of Kubernetes if the API server is of an older one (local.Release).
func Needs(t testing.TB, release, what string) {
	t.Helper()
	if Lacks(release) {
		t.Skipf("%s came with Kubernetes %s, and the API server is of %s", what, release, os.Getenv(local.Release))
	}
}

// Lacks reports whether the API server is of an older release of Kubernetes than this one. Both are of two digits.
func Lacks(release string) bool {
	of := os.Getenv(local.Release)
	return of != "" && of < release
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
