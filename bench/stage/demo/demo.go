// Package demo shows Basalt at work on a cluster in the shape of a real one, and proves what it claims: it starts a local
// control plane and Basalt's processes, makes nodes, queues and gangs from one seed, kills a shard and the active
// coordinator while the cluster is full, has one team take back what another borrowed, and reports what an auditor found
// that watched from outside.
//
// It decides what load there is and when something is killed. It owns the cluster it starts, and takes it away again. The
// auditor and the audit log judge; the demo only counts.
//
// Pods run on a stand-in for kubelets (package kubelet) that takes a pod from Pending to Succeeded in one write when its
// time is over. kwok would do, too, but it writes each pod two or three times more (and leases, unless told not to), and on
// the two cores that a laptop spares those writes compete with what is shown.
package demo

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api/audit"
	"basalt.dev/basalt/api/audit/follow"
	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/bench/prove/auditlog"
	"basalt.dev/basalt/bench/stage/kubelet"
	"basalt.dev/basalt/bench/stage/local"
)

// Options of a demo.
type Options struct {
	Seed   uint64
	Shards int
	// Scale is the size of everything: 1 for the whole demo, less for a quick look.
	Scale float64
	// Keep leaves everything running after the result until the context ends.
	Keep bool
	Out  io.Writer
	// Report is the file that all of the result is written to; Out has what fits a screen. Empty: none is written.
	Report string
	// Width of the terminal that Out is; 0 when it is none, and then progress is one line now and then.
	Width int

	// system replaces Basalt's processes in tests, and without are the parts that tests leave out.
	system  func(*local.Cluster) system
	without map[int]bool
}

// system is what schedules: Basalt's processes, or a stand-in in the demo's own tests.
type system interface {
	start(ctx context.Context) error
	// shard is the name of the i-th shard, and kill ends a process by name the hard way; something replaces it.
	shard(i int) string
	kill(name string) error
	// command runs the program basalt as a user does, and server is where it finds Basalt.
	command(ctx context.Context, args ...string) (string, error)
	server() string
	stop()
}

// Limits. Parts 1 and 2 must end within 4 minutes; what is not done by then is missing in the result.
const (
	waitReady    = 45 * time.Second
	waitFirst    = 75 * time.Second
	waitFull     = 60 * time.Second
	waitFailover = 40 * time.Second
	waitSettled  = 32 * time.Second // a little more than the auditor's grace, so that what leaks is called a leak
	endBy        = 195 * time.Second
)

type demo struct {
	Options
	plan    *plan
	track   *tracker
	cluster *local.Cluster
	system  system
	kube    *kube.Clients
	etcd    *clientv3.Client
	auditor *follow.Auditor
	begin   time.Time

	pods    atomic.Int64 // created
	phase   atomic.Value // string
	notes   []string     // what went otherwise than planned, for the table
	findsMu sync.Mutex
	finds   []audit.Violation
}

// Run runs the demo to its end. ok reports whether nothing was violated and exactly the expected gangs were bound; an error
// is about the demo itself.
func Run(ctx context.Context, o Options) (ok bool, err error) {
	if o.Shards < 1 || o.Shards > 16 {
		return false, fmt.Errorf("--shards %d: 1 to 16 are possible", o.Shards)
	}
	if o.Scale <= 0 || o.Scale > 4 {
		return false, fmt.Errorf("--scale %g: more than 0 and at most 4 is possible", o.Scale)
	}
	d := &demo{Options: o, plan: makePlan(o.Seed, o.Scale), begin: time.Now()}
	d.plan.leaveOut(o.without)
	d.track = newTracker(d.plan)
	d.phase.Store("starting the control plane")
	dir, err := os.MkdirTemp("", "basalt-demo-")
	if err != nil {
		return false, fmt.Errorf("make state folder: %w", err)
	}
	defer func() {
		if e := os.RemoveAll(dir); e != nil && err == nil {
			err = fmt.Errorf("remove state folder: %w", e)
		}
	}()
	if d.cluster, err = local.Start(ctx, local.Options{Dir: dir, Audit: true}); err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, d.cluster.Stop()) }()
	if o.system == nil {
		d.system = &processes{cluster: d.cluster, shards: o.Shards}
	} else {
		d.system = o.system(d.cluster)
	}
	defer d.system.stop()

	// What runs beside the demo ends before the cluster does.
	beside, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	view := newView(d)
	wg.Go(func() { view.run(beside) })

	if err := d.prepare(beside, &wg); err != nil {
		return false, err
	}
	var first firstPart
	var third *thirdPart
	stays := len(d.plan.first)
	if !o.without[1] {
		if first, err = d.partOne(ctx); err != nil {
			return false, err
		}
	}
	if !o.without[2] {
		if err := d.partTwo(ctx); err != nil {
			return false, err
		}
	}
	if !o.without[3] {
		if third, err = d.partThree(ctx); err != nil {
			return false, err
		}
		stays += batchGangs
	}
	d.phase.Store("waiting for what is left to settle")
	_ = d.until(ctx, waitSettled, func() bool { return d.track.settled(stays) })
	if !o.Keep {
		d.system.stop()
	}
	d.catchUp(ctx)
	if err := ctx.Err(); err != nil {
		return false, err
	}
	view.stop()
	ok, err = d.report(first, third)
	if err == nil && o.Keep {
		path, err := d.cluster.Kubeconfig(local.Admin)
		if err != nil {
			return ok, err
		}
		fmt.Fprintf(os.Stderr, "left running until Ctrl-C: export KUBECONFIG=%s BASALT_SERVER=%s\n", path,
			d.system.server())
		if url, err := d.cluster.StartConsole(ctx); err != nil {
			fmt.Fprintln(os.Stderr, "there is no console:", err)
		} else {
			fmt.Fprintln(os.Stderr, "in a browser, once and within ten minutes, or later with basalt console:", url)
		}
		<-ctx.Done()
	}
	return ok, err
}

// until waits for a condition; false when the limit or the context came first.
func (d *demo) until(ctx context.Context, limit time.Duration, holds func() bool) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-ctx.Done():
			return holds()
		case <-tick.C:
		}
	}
	return true
}

func (d *demo) note(format string, args ...any) {
	d.notes = append(d.notes, fmt.Sprintf(format, args...))
}

// prepare makes everything up to the moment at which load can come.
func (d *demo) prepare(ctx context.Context, wg *sync.WaitGroup) error {
	if err := d.cluster.Install(ctx); err != nil {
		return err
	}
	var err error
	if d.kube, err = kube.ConnectConfig(d.cluster.Config(local.Load), "basalt-demo"); err != nil {
		return err
	}
	d.etcd, err = clientv3.New(clientv3.Config{Endpoints: d.cluster.ControlStore(), DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		return fmt.Errorf("connect to the control store: %w", err)
	}
	wg.Go(func() { <-ctx.Done(); _ = d.etcd.Close() })

	// The auditor is there before anything that it judges.
	d.auditor, err = follow.New(follow.Options{
		Etcd: d.etcd, Kube: d.cluster.Config(local.Admin), StartRevision: 1, Tap: d.track.observe,
		Found: func(v audit.Violation) { d.findsMu.Lock(); defer d.findsMu.Unlock(); d.finds = append(d.finds, v) },
	})
	if err != nil {
		return err
	}
	auditCtx, stopAudit := context.WithCancel(ctx)
	failed := make(chan error, 1)
	wg.Go(func() {
		defer stopAudit()
		if err := d.auditor.Run(auditCtx); err != nil {
			failed <- err
		}
	})
	select {
	case <-d.auditor.Synced():
	case err := <-failed:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}

	d.phase.Store("making nodes and queues")
	for _, name := range []string{namespace, teamsNamespace} {
		if _, err := d.kube.Core.CoreV1().Namespaces().Create(ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create namespace %s: %w", name, err)
		}
	}
	for _, q := range d.plan.queues {
		if err := d.kube.Basalt.Post().Resource("queues").Body(q).Do(ctx).Error(); err != nil {
			return fmt.Errorf("create queue %s: %w", q.Name, err)
		}
	}
	err = parallel(ctx, 16, d.plan.nodes, func(ctx context.Context, n *v1.Node) error {
		if _, err := d.kube.Core.CoreV1().Nodes().Create(ctx, n, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create node %s: %w", n.Name, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	standIn, err := kube.ConnectConfig(d.cluster.Config(local.NodeStandIn), "node-stand-in")
	if err != nil {
		return err
	}
	wg.Go(func() { _ = kubelet.Run(ctx, kubelet.Options{Client: standIn.Core, SkipRunning: true}) })

	d.phase.Store("starting shards and coordinators")
	if err := d.system.start(ctx); err != nil {
		return err
	}
	if !d.until(ctx, waitReady, func() bool { return d.track.spread(d.Shards) && d.track.ready(d.plan.queues) }) {
		if ctx.Err() == nil {
			return fmt.Errorf("wait for %d shards with their buckets and for the limits of %d queues: not within %s", d.Shards, len(d.plan.queues), waitReady)
		}
	}
	return ctx.Err()
}

// firstPart is what part 1 measured.
type firstPart struct {
	rate     float64 // pods/s
	p50, p99 time.Duration
}

func (d *demo) partOne(ctx context.Context) (firstPart, error) {
	d.phase.Store("part 1: no limits in the way")
	begin := time.Now()
	if err := d.create(ctx, 32, d.plan.first, nil); err != nil {
		return firstPart{}, err
	}
	d.until(ctx, waitFirst, func() bool { return d.track.missing(d.plan.first, false) == 0 })
	if n := d.track.missing(d.plan.first, false); n > 0 && ctx.Err() == nil {
		d.note("part 1: %d gangs were not bound within %s", n, waitFirst)
	}
	sorted, whole := d.track.latencies(begin, d.plan.first)
	r := firstPart{}
	if len(sorted) > 0 {
		r = firstPart{float64(len(sorted)) / whole.Seconds(), sorted[len(sorted)/2], sorted[min(len(sorted)-1, len(sorted)*99/100)]}
	}
	return r, ctx.Err()
}

func (d *demo) partTwo(ctx context.Context) error {
	d.phase.Store("part 2: filling the cluster")
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	loaded := make(chan error, 2)
	var made atomic.Bool
	wg.Go(func() { loaded <- d.create(ctx, 16, d.plan.second, nil); made.Store(true) })

	// At its fullest is when nearly all is charged that the limits allow, or when it has not become fuller for a while.
	d.until(ctx, waitFull, func() bool {
		cpu, since := d.track.use()
		share, still := float64(cpu)/float64(d.plan.cores*1000), time.Since(since)
		return share > 0.78 || share > 0.72 && still > 1500*time.Millisecond || made.Load() && still > 4*time.Second
	})
	if cpu, _ := d.track.use(); cpu < d.plan.cores*700 && ctx.Err() == nil {
		d.note("%s of the CPU was allocated when the shard was killed", fmt.Sprintf("%.1f %%", d.share(cpu)))
	}

	// The stream goes on through both failovers: fast at first, so that the measures are fine, then slower, so that it lasts.
	var fast atomic.Int64 // until when, in Unix nanoseconds
	var hurry atomic.Bool
	fast.Store(time.Now().Add(10 * time.Second).UnixNano())
	wg.Go(func() {
		loaded <- d.create(ctx, 4, d.plan.stream, func() {
			pause := 300 * time.Millisecond
			if hurry.Load() {
				pause = 10 * time.Millisecond
			} else if time.Now().UnixNano() < fast.Load() {
				pause = 80 * time.Millisecond
			}
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
		})
	})

	name := d.system.shard(int(d.Seed % uint64(d.Shards)))
	d.phase.Store("part 2: " + name + " was killed")
	if !d.track.shardKilled(name, time.Now()) {
		d.note("no table named %s when it was to be killed", name)
	}
	if err := d.system.kill(name); err != nil {
		return fmt.Errorf("kill %s: %w", name, err)
	}
	if !d.until(ctx, waitFailover, func() bool { return d.track.shardFailover() > 0 && d.track.shardReplaced() }) && ctx.Err() == nil {
		d.note("after %s was killed, its share was not taken up within %s", name, waitFailover)
	}

	if name = d.track.activeCoordinator(); name == "" {
		d.note("nobody led when the coordinator was to be killed")
	} else {
		d.phase.Store("part 2: " + name + ", the active coordinator, was killed")
		fast.Store(time.Now().Add(10 * time.Second).UnixNano())
		d.track.coordinatorKilled(time.Now())
		if err := d.system.kill(name); err != nil {
			return fmt.Errorf("kill %s: %w", name, err)
		}
		if !d.until(ctx, waitFailover, func() bool { return d.track.coordinatorFailover() > 0 }) && ctx.Err() == nil {
			d.note("after %s was killed, nothing was admitted within %s", name, waitFailover)
		}
	}
	hurry.Store(true)
	d.phase.Store("part 2: running the rest")
	for range 2 {
		select {
		case err := <-loaded:
			if err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	rest := append(append([]*gang(nil), d.plan.second...), d.plan.stream...)
	if !d.until(ctx, max(time.Second, endBy-time.Since(d.begin)), func() bool { return d.track.missing(rest, true) == 0 }) && ctx.Err() == nil {
		d.note("%d gangs of part 2 had not run to their end after %s", d.track.missing(rest, true), endBy)
	}
	return ctx.Err()
}

// create makes gangs in order with so many calls in flight; before each gang it calls pace, if given. The pods of a gang go
// round all workers, so that a large gang is not slower to come than a small one.
func (d *demo) create(ctx context.Context, workers int, gangs []*gang, pace func()) error {
	type task struct {
		gang  *gang
		pod   int           // -1 for its PodGroup
		ready chan struct{} // closed when the PodGroup is there
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	tasks := make(chan task)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for t := range tasks {
				if err := d.createOne(ctx, t.gang, t.pod, t.ready); err != nil {
					cancel(err)
				}
			}
		})
	}
	for _, g := range gangs {
		if pace != nil {
			pace()
		}
		ready := make(chan struct{})
		first := -1
		if g.single {
			close(ready)
			first = 0
		}
		for i := first; i < len(g.pods) && ctx.Err() == nil; i++ {
			select {
			case tasks <- task{g, i, ready}:
			case <-ctx.Done():
			}
		}
	}
	close(tasks)
	wg.Wait()
	return context.Cause(ctx)
}

func (d *demo) createOne(ctx context.Context, g *gang, pod int, ready chan struct{}) error {
	if pod < 0 {
		defer close(ready)
		if err := d.kube.Basalt.Post().Namespace(namespace).Resource("podgroups").Body(g.podGroup()).Do(ctx).Error(); err != nil {
			return fmt.Errorf("create PodGroup %s: %w", g.name, err)
		}
		return nil
	}
	select {
	case <-ready:
	case <-ctx.Done():
		return ctx.Err()
	}
	p := g.pods[pod]
	_, err := d.kube.Core.CoreV1().Pods(namespace).Create(ctx, p, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) { // a call repeated by the client after a cut connection
		return fmt.Errorf("create pod %s: %w", p.Name, err)
	}
	d.track.created(p.Name, time.Now())
	d.pods.Add(1)
	return nil
}

// catchUp waits until the auditor has judged all that is in the control store.
func (d *demo) catchUp(ctx context.Context) {
	r, err := d.etcd.Get(ctx, "store")
	if err != nil {
		d.note("the control store could not be read at the end: %v", err)
		return
	}
	if !d.until(ctx, 10*time.Second, func() bool {
		// Reads give the store's revision; the newest change of ours may be older.
		return d.auditor.Report().Revision >= r.Header.Revision || d.track.quiet(3*time.Second)
	}) {
		d.note("the auditor was behind at the end")
	}
}

func (d *demo) violations() []audit.Violation {
	d.findsMu.Lock()
	defer d.findsMu.Unlock()
	return append([]audit.Violation(nil), d.finds...)
}

// readAuditLog reads what the API server logged.
func (d *demo) readAuditLog() (*auditlog.Report, error) {
	f, err := os.Open(filepath.Clean(d.cluster.AuditLog()))
	if err != nil {
		return nil, fmt.Errorf("open audit log: %w", err)
	}
	defer f.Close()
	d.track.mu.Lock()
	defer d.track.mu.Unlock()
	return auditlog.Read(bufio.NewReader(f), d.track.intents)
}

func parallel[T any](ctx context.Context, workers int, items []T, f func(context.Context, T) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	todo := make(chan T)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for t := range todo {
				if err := f(ctx, t); err != nil {
					cancel(err)
				}
			}
		})
	}
	for _, t := range items {
		select {
		case todo <- t:
		case <-ctx.Done():
		}
	}
	close(todo)
	wg.Wait()
	return context.Cause(ctx)
}
