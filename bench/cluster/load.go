package cluster

import (
	"context"
	"fmt"
	"iter"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/bench/memory"
	"basalt.dev/basalt/bench/scenario"
	"basalt.dev/basalt/bench/workload"
)

const namespace = "default"

// load makes gangs: in an open loop at the scenario's times, in a closed one so that what each leaf queue has outstanding
// stays at a percentage of its share of the cluster.
type load struct {
	*world
	api         *memory.Server
	leaves      []string
	outstanding map[string]int64 // milli-cores of gangs that exist; the world's lock
	target      int64            // of a leaf
	specs       map[workload.Shape]*v1.PodSpec
	made        int64 // pods
	backlog     int64 // pods that may wait for a node, in a closed loop
}

func shapeAmount(s workload.Shape) amount { return amount{s.MilliCPU, s.MemoryMiB << 20, 1} }

// spec is shared by all pods of a shape: stored objects never change.
func (l *load) spec(g *scenario.Gang, i int) *v1.PodSpec {
	shape := g.Pods[i]
	s := l.specs[shape]
	if s == nil {
		s = &g.Pod(i, namespace, api.SchedulerName).Spec
		l.specs[shape] = s
	}
	return s
}

// make creates a gang's objects and, with the last of them, calls it complete.
func (l *load) make(sg *scenario.Gang, large bool) error {
	g := &gang{Gang: sg, large: large}
	for _, s := range sg.Pods {
		g.demand = g.demand.plus(shapeAmount(s), 1)
	}
	l.mu.Lock()
	l.gangs[sg.Name] = g
	l.outstanding[sg.Queue] += g.demand.cpu
	l.mu.Unlock()
	labels := map[string]string{api.LabelQueue: sg.Queue}
	if !sg.Plain {
		labels = map[string]string{api.LabelPodGroup: sg.Name}
		group := sg.PodGroup(namespace)
		if _, err := l.api.Create("podgroups", group); err != nil {
			return fmt.Errorf("create gang %s: %w", sg.Name, err)
		}
	}
	for i := range sg.Pods {
		name := sg.Name
		if !sg.Plain {
			name = sg.PodName(i)
		}
		if i == sg.MinCount-1 {
			l.mu.Lock()
			g.complete = time.Now()
			l.mu.Unlock()
		}
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}, Spec: *l.spec(sg, i)}
		if _, err := l.api.Create("pods", pod); err != nil {
			return fmt.Errorf("create pod %s: %w", name, err)
		}
	}
	l.mu.Lock()
	l.made += int64(len(sg.Pods))
	l.mu.Unlock()
	return nil
}

// closed keeps what each leaf has outstanding at the target, one gang a leaf and round.
func (l *load) closed(ctx context.Context, gangs iter.Seq[scenario.Gang]) error {
	next, stop := iter.Pull(gangs)
	defer stop()
	for ctx.Err() == nil {
		idle := true
		for _, leaf := range l.leaves {
			l.mu.Lock()
			short := l.outstanding[leaf] < l.target && l.made-l.boundPods < l.backlog
			l.mu.Unlock()
			if !short {
				continue
			}
			g, ok := next()
			if !ok {
				return nil
			}
			idle, g.Queue = false, leaf
			if err := l.make(&g, false); err != nil {
				return err
			}
			if ctx.Err() != nil {
				return nil
			}
		}
		if idle {
			pause(ctx, 2*time.Millisecond)
		}
	}
	return nil
}

// open makes gangs when their time has come, however far behind the scheduler is.
func (l *load) open(ctx context.Context, gangs iter.Seq[scenario.Gang]) error {
	began := time.Now()
	for g := range gangs {
		if wait := g.At - time.Since(began); wait > 0 {
			pause(ctx, wait)
		}
		if ctx.Err() != nil {
			return nil
		}
		if err := l.make(&g, false); err != nil {
			return err
		}
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
