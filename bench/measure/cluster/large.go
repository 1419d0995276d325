package cluster

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"basalt.dev/basalt/bench/measure/report"
	"basalt.dev/basalt/bench/measure/scenario"
	"basalt.dev/basalt/bench/measure/workload"
)

// Large is what became of the large gangs beside the load. Whole is from the API; the others are what Basalt's own traces
// say. All begin when the last pod was made, but for the two that name another beginning.
type Large struct {
	Reserved, Held, Durable, Whole *report.Latency
	Hold, Commit                   *report.Latency // from the reservation to all holds, and from these to all intents
	Made                           int
	Unseen                         int // gangs whose spans did not arrive
}

// largeGangs makes them, one at a time.
type largeGangs struct {
	Large
	over atomic.Bool
}

func (l *largeGangs) done() bool { return l.over.Load() }

const (
	largePods    = 10_000
	largeClasses = 10
)

func largeGang(i int, queue string) *scenario.Gang {
	g := &scenario.Gang{Name: fmt.Sprintf("large-%d", i), Kind: "large", Queue: queue, MinCount: largePods, Lifetime: time.Second}
	for j := range largePods {
		g.Pods = append(g.Pods, workload.Shape{MilliCPU: int64(100 * (1 + j%largeClasses)), MemoryMiB: 64})
	}
	return g
}

// startLarge makes the gangs one after the other: the next when the one before is whole and gone.
func (r *run) startLarge(ctx context.Context, wg *sync.WaitGroup, count int) *largeGangs {
	latency := func(stage string) *report.Latency { return report.NewLatency("gang of 10,000", stage) }
	l := &largeGangs{Large: Large{
		Reserved: latency("complete to reserved"), Held: latency("complete to all holds"), Durable: latency("complete to all intents durable"),
		Whole: latency("complete to whole"), Hold: latency("reserved to all holds"), Commit: latency("all holds to all intents durable")}}
	wg.Go(func() {
		defer l.over.Store(true)
		for i := range count {
			g := largeGang(i, r.load.leaves[i%len(r.load.leaves)])
			whole, gone := make(chan *gang, 1), make(chan struct{})
			r.world.mu.Lock()
			r.world.whole = func(w *gang) {
				if w.Name == g.Name {
					whole <- w
				}
			}
			r.world.gone = func(w *gang) {
				if w.Name == g.Name {
					close(gone)
				}
			}
			r.world.mu.Unlock()
			uid, err := r.load.makeAndName(g, r.spans.want)
			if err != nil {
				return
			}
			l.Made++
			var complete time.Time
			select {
			case <-ctx.Done():
				return
			case w := <-whole:
				r.world.mu.Lock()
				complete = w.complete
				r.world.mu.Unlock()
				l.Whole.Record(time.Since(complete))
			}
			select {
			case <-ctx.Done():
				return
			case <-gone:
			}
			l.record(ctx, r.spans, uid, complete)
		}
	})
	return l
}

// record waits for a gang's spans, which come in batches of some seconds.
func (l *largeGangs) record(ctx context.Context, s *spans, uid string, complete time.Time) {
	var of map[string]step
	for range 150 {
		of = s.of(uid)
		if _, all := of["gang"]; all || ctx.Err() != nil {
			break
		}
		pause(ctx, 100*time.Millisecond)
	}
	reserve, reserved := of["reserve"]
	hold, held := of["hold"]
	commit, durable := of["commit"]
	if !reserved || !held || !durable {
		l.Unseen++
		return
	}
	l.Reserved.Record(reserve.end.Sub(complete))
	l.Held.Record(hold.end.Sub(complete))
	l.Durable.Record(commit.end.Sub(complete))
	l.Hold.Record(hold.end.Sub(hold.start))
	l.Commit.Record(commit.end.Sub(commit.start))
}
