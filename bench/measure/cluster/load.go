package cluster

import (
	"context"
	"fmt"
	"iter"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/bench/measure/scenario"
	"basalt.dev/basalt/bench/measure/workload"
	"basalt.dev/basalt/bench/stage/memory"
)

const namespace = "default"

// load makes gangs when the scenario says.
type load struct {
	*world
	api      *memory.Server
	leaves   []string
	shuffled []string // in an order in which neighbours are of different subtrees
	specs    map[workload.Shape]*v1.PodSpec
	made     int64            // pods of the load; the world's lock
	stream   []*scenario.Gang // gangs of the load in the order in which they were made, where that is of interest later
	record   bool
	claims   *scenario.Claims // nil where nobody claims
}

func shapeAmount(s workload.Shape) amount { return amount{s.MilliCPU, s.MemoryMiB << 20, 1, s.GPUs} }

// spec is shared by all pods of a shape: stored objects never change.
func (l *load) spec(g *scenario.Gang, i int) *v1.PodSpec {
	l.mu.Lock()
	defer l.mu.Unlock()
	shape := g.Pods[i]
	s := l.specs[shape]
	if s == nil {
		s = &g.Pod(i, namespace, api.SchedulerName).Spec
		if l.claims != nil {
			s.TerminationGracePeriodSeconds = new(int64(l.claims.Leave.Seconds()))
		}
		l.specs[shape] = s
	}
	return s
}

// make creates a gang's objects and, with the last of them, calls it complete.
func (l *load) make(sg *scenario.Gang, beside bool) error {
	_, err := l.create(sg, beside, func(string) {})
	return err
}

// makeAndName creates a gang beside the load. told hears the UID of its PodGroup before there is a pod.
func (l *load) makeAndName(sg *scenario.Gang, told func(uid string)) (uid string, err error) {
	return l.create(sg, true, told)
}

func (l *load) create(sg *scenario.Gang, beside bool, told func(uid string)) (uid string, err error) {
	g, uid, err := l.begin(sg, beside)
	if err != nil {
		return "", err
	}
	told(uid)
	return uid, l.makePods(g, 0, len(sg.Pods))
}

// begin creates a gang's PodGroup, and returns its UID.
func (l *load) begin(sg *scenario.Gang, beside bool) (g *gang, uid string, err error) {
	g = &gang{Gang: sg, beside: beside}
	for _, s := range sg.Pods {
		g.demand = g.demand.plus(shapeAmount(s), 1)
	}
	l.mu.Lock()
	l.gangs[sg.Name] = g
	if sg.Kind != "never" {
		l.outstanding[sg.Queue] += g.demand.cpu
	}
	if !beside {
		l.waitingPods += int64(len(sg.Pods))
		l.made += int64(len(sg.Pods))
		if l.record {
			l.stream = append(l.stream, sg)
		}
	}
	l.mu.Unlock()
	if sg.Plain {
		return g, "", nil
	}
	group := sg.PodGroup(namespace)
	if l.claims != nil && !beside {
		group.Spec.Preemptible = new(true)
	}
	made, err := l.api.Create("podgroups", group)
	if err != nil {
		return nil, "", fmt.Errorf("create gang %s: %w", sg.Name, err)
	}
	return g, string(made.GetUID()), nil
}

// makePods creates some of a gang's pods.
func (l *load) makePods(g *gang, from, to int) error {
	labels := map[string]string{api.LabelQueue: g.Queue}
	if !g.Plain {
		labels = map[string]string{api.LabelPodGroup: g.Name}
	}
	for i := from; i < to; i++ {
		name := g.Name
		if !g.Plain {
			name = g.PodName(i)
		}
		if i == g.MinCount-1 {
			l.mu.Lock()
			g.complete = time.Now()
			l.mu.Unlock()
		}
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}, Spec: *l.spec(g.Gang, i)}
		if _, err := l.api.Create("pods", pod); err != nil {
			return fmt.Errorf("create pod %s: %w", name, err)
		}
	}
	return nil
}

// smallest is the leaf whose gangs, waiting ones included, ask for least: no subtree is full while others are empty.
func (l *load) smallest() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	best := l.shuffled[0]
	for _, leaf := range l.shuffled {
		if l.outstanding[leaf] < l.outstanding[best] {
			best = leaf
		}
	}
	return best
}

// steady makes gangs while fewer pods than the scenario says wait for a node; filled reports whether the cluster was full
// once, from when on the scenario's rate counts.
func (l *load) steady(ctx context.Context, s *scenario.Steady, gangs iter.Seq[scenario.Gang], filled func() bool) error {
	var began time.Time
	var offered int64
	for g := range gangs {
		for {
			if ctx.Err() != nil {
				return nil
			}
			l.mu.Lock()
			full := l.waitingPods >= int64(s.Waiting)
			l.mu.Unlock()
			room := !full
			if room && s.PodsPerSecond > 0 && filled() {
				if began.IsZero() {
					began = time.Now()
				}
				room = float64(offered) <= time.Since(began).Seconds()*float64(s.PodsPerSecond)
			}
			if room {
				break
			}
			if full && filled() {
				l.stuck(20 * time.Millisecond)
			}
			pause(ctx, time.Millisecond)
		}
		if !began.IsZero() {
			offered += int64(len(g.Pods))
		}
		g.Queue = l.smallest()
		if err := l.make(&g, false); err != nil {
			return err
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
