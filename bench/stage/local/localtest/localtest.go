// Package localtest gives tests a real API server and a real etcd, and takes them away again.
//
// It decides when they start and stop: with the test that asked, or, for Shared, with the test program. Basalt's own
// processes run under the race detector when the test does, and a data race or a panic in one of them fails the test.
package localtest

import (
	"bufio"
	"context"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

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

// Cluster starts a control plane of its own for a test and stops it at the test's end, with every Basalt process that the
// test started in it.
func Cluster(t testing.TB, o local.Options) *local.Cluster {
	t.Helper()
	c, err := start(t, o, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		logs := basaltLogs(c)
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
		for _, log := range logs {
			judge(t, log)
		}
	})
	return c
}

// Basalt builds Basalt's program, with the race detector if the test has it, and returns what local.Options.Basalt needs.
func Basalt(t testing.TB) string {
	t.Helper()
	return basalt(t, "basalt")
}

// BasaltWithFaults is Basalt with the bugs of package api/fault in it; the environment variable BASALT_FAULTS of a process
// switches them on.
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

// Shared gives the control plane that all tests of a package share, without kube-controller-manager. A test uses names of
// its own in it and leaves the processes alone. The package's TestMain must call Run.
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

// Wait asks until the answer is no error, and fails the test if that takes longer than the limit. The limit is for a hung
// test, not a measure: give it generously.
func Wait(t testing.TB, limit time.Duration, what string, ask func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var last error // the one that the limit itself causes says nothing
	for {
		err := ask(ctx)
		if err == nil {
			return
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			t.Fatalf("waited %s for %s: %v", limit, what, last)
		case <-tick.C:
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
	return local.Start(t.Context(), o)
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
