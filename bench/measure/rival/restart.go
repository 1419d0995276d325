package rival

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/bench/measure/report"
	"basalt.dev/basalt/bench/measure/scenario"
	"basalt.dev/basalt/bench/stage/local"
)

// lease is the TTL of a shard's session, the longest that a new process may have to wait for a dead one's.
const lease = 6 * time.Second

// Restart measures how long a cluster that is full of Basalt's pods waits for its next Binding when all of Basalt's
// processes are killed and started together: against one bare list of its nodes and pods, the least that any new process
// must read. The options' first subject is used.
func Restart(ctx context.Context, o Options) (r *report.Report, err error) {
	if o.Seed == 0 {
		o.Seed = o.Scenario.Seed
	}
	if o.Patience == 0 {
		o.Patience = time.Hour
	}
	s := o.Subjects[0]
	r = report.New("restart", o.Scenario.Name(), o.Scenario.About, o.Seed)
	w := &work{o: o, report: r}
	if o.Out != nil {
		w.progress = report.NewProgress(o.Out)
		defer w.progress.Done()
	}
	t := newTrial(w, s, 0, false)
	t.label = "restart"
	r.Set("pods", t.pods)
	r.Set("processes", fmt.Sprintf("%d shards, 2 coordinators", s.Shards))
	r.Set("lease of a shard", lease)
	if t.cluster, err = local.Start(ctx, local.Options{Basalt: o.Basalt}); err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, t.cluster.Stop()) }()
	if err := t.cluster.Install(ctx); err != nil {
		return r, err
	}
	if t.clients, err = kube.ConnectConfig(t.cluster.Config(local.Load), "basalt-bench"); err != nil {
		return r, err
	}
	if err := t.prepare(ctx); err != nil {
		return r, err
	}
	beside, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	follower := follow(t.clients, t.namespaces(), fields.Everything(), t.watch.handler())
	wg.Go(func() { follower.Run(beside) })
	if err := t.startScheduler(ctx); err != nil {
		return r, err
	}
	if err := t.give(ctx); err != nil {
		return r, err
	}
	bound, _ := t.watch.count()
	if bound < t.pods {
		return r, fmt.Errorf("fill the cluster: %d of %d pods were bound within %s", bound, t.pods, o.Patience)
	}
	for number := 1; number <= o.Runs; number++ {
		run := r.Run(s.Name, number)
		if err := t.restart(ctx, run, number); err != nil {
			return r, fmt.Errorf("restart %d: %w", number, err)
		}
	}
	r.Medians(s.Name, func(name string) report.Target {
		if name == ofAllowed {
			return report.AtMost(1)
		}
		return report.Target{}
	})
	r.Finish()
	return r, nil
}

const ofAllowed = "first Binding, against 1.3 bare lists and the lease"

func (t *trial) restart(ctx context.Context, run *report.Run, number int) error {
	var dead sync.WaitGroup
	for _, b := range t.cluster.Basalts() {
		dead.Go(b.Kill) // returns when it is gone; nothing if it was
	}
	dead.Wait()

	// The list that the processes themselves will make, by nobody else at the same time.
	begin := time.Now()
	nodes, err := t.clients.Core.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	pods, err := t.clients.Core.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	list := time.Since(begin)
	t.progress.Say("restart %d: a bare list of %d nodes and %d pods took %s", number, len(nodes.Items), len(pods.Items), list.Round(time.Millisecond))

	// One pod for each leaf queue waits; the first to get a node is the first Binding, the last shows that all queues are served.
	var waiting []<-chan struct{}
	for i, leaf := range t.o.Scenario.Leaves() {
		g := scenario.Gang{Name: fmt.Sprintf("after-%d-%d", number, i), Queue: leaf, MinCount: 1, Plain: true, Pods: t.gangs[0].Pods[:1]}
		bound, err := t.probe(ctx, g)
		if err != nil {
			return err
		}
		waiting = append(waiting, bound)
	}
	begin = time.Now()
	o := local.BasaltOptions{Flags: t.o.Flags, NoWait: true}
	if _, err := t.cluster.StartBasalt(ctx, 2, t.subject.Shards, o); err != nil {
		return err
	}
	bound := make(chan time.Duration, len(waiting))
	for _, w := range waiting {
		go func() { // ends with the context at the latest
			select {
			case <-w:
				bound <- time.Since(begin)
			case <-ctx.Done():
			}
		}()
	}
	var first, last time.Duration
	for range waiting {
		select {
		case last = <-bound:
			if first == 0 {
				first = last
			}
		case <-time.After(5 * time.Minute):
			return errors.New("wait for Bindings: none came for 5 minutes")
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	run.Add("one bare list of nodes and pods", "s", list.Seconds())
	run.Add("first Binding after the start of all processes", "s", first.Seconds())
	run.Add("all queues served after the start", "s", last.Seconds())
	run.Add(ofAllowed, "×", first.Seconds()/(1.3*list.Seconds()+lease.Seconds()))
	t.resident(run)
	t.progress.Line("restart %d: bare list %s, first Binding %s, all queues %s", number, list.Round(time.Millisecond), first.Round(time.Millisecond), last.Round(time.Millisecond))
	return nil
}

// resident adds what processes hold in memory after a restart, which has read the whole cluster: of each kind the
// largest.
func (t *trial) resident(run *report.Run) {
	most := map[string]int64{}
	for _, b := range t.cluster.Basalts() {
		if kind, _, _ := strings.Cut(b.Name(), "-"); !b.Exited() {
			most[kind] = max(most[kind], local.UsageOf(b.Pid()).Memory)
		}
	}
	for _, e := range t.cluster.ControlStoreMembers() {
		most["control store"] = max(most["control store"], local.UsageOf(e.Process().Pid()).Memory)
	}
	for _, kind := range slices.Sorted(maps.Keys(most)) {
		run.Add("resident memory: "+kind, "B", float64(most[kind]))
	}
}
