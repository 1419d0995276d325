package cluster

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"basalt.dev/basalt/bench/report"
	"basalt.dev/basalt/bench/scenario"
	"basalt.dev/basalt/bench/workload"
)

// largeGangs are gangs of 10,000 pods in 10 classes, one at a time beside the load.
type largeGangs struct {
	held, durable *report.Latency
	over          atomic.Bool
}

func (l *largeGangs) done() bool { return l.over.Load() }

const (
	largePods    = 10_000
	largeClasses = 10
)

// startLarge makes the gangs one after the other: the next when the one before is whole and gone.
func (r *run) startLarge(ctx context.Context, wg *sync.WaitGroup) *largeGangs {
	l := &largeGangs{held: report.NewLatency("large gang", "complete to all holds"), durable: report.NewLatency("large gang", "complete to all intents")}
	wg.Go(func() {
		defer l.over.Store(true)
		for i := range r.Large {
			g := &scenario.Gang{Name: fmt.Sprintf("large-%d", i), Kind: "large", Queue: r.load.leaves[i%len(r.load.leaves)], MinCount: largePods, Lifetime: time.Second}
			for j := range largePods {
				g.Pods = append(g.Pods, workload.Shape{MilliCPU: int64(100 * (1 + j%largeClasses)), MemoryMiB: 64})
			}
			whole := make(chan time.Duration, 1)
			r.world.mu.Lock()
			r.world.whole = func(w *gang) {
				if w.Name == g.Name {
					whole <- time.Since(w.complete)
				}
			}
			r.world.mu.Unlock()
			if err := r.load.make(g, true); err != nil {
				return
			}
			select {
			case <-ctx.Done():
				return
			case took := <-whole:
				l.durable.Record(took)
			}
			pause(ctx, 3*time.Second)
		}
	})
	return l
}
