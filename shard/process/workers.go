package process

import (
	"context"
	"sync"
)

// workers carries out calls that wait, n at a time, in the order in which they were asked for. do never blocks: the loop
// that calls it is also the one that takes the answers. The queue has no bound of its own; what a core may have
// outstanding bounds it.
type workers struct {
	mu      sync.Mutex
	waiting []func(context.Context)
	idle    int
	wg      sync.WaitGroup
	ctx     context.Context
}

func newWorkers(ctx context.Context, n int) *workers { return &workers{ctx: ctx, idle: n} }

func (w *workers) do(call func(context.Context)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.idle == 0 {
		w.waiting = append(w.waiting, call)
		return
	}
	w.idle--
	w.wg.Go(func() { w.work(call) })
}

func (w *workers) work(call func(context.Context)) {
	for {
		if w.ctx.Err() == nil {
			call(w.ctx)
		}
		w.mu.Lock()
		if len(w.waiting) == 0 {
			w.idle++
			w.mu.Unlock()
			return
		}
		call = w.waiting[0]
		w.waiting[0] = nil
		w.waiting = w.waiting[1:]
		w.mu.Unlock()
	}
}

// wait returns when nothing runs any more.
func (w *workers) wait() { w.wg.Wait() }
