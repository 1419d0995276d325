package server

import (
	"context"
	"sync"

	"basalt.dev/basalt/shard/fair"
)

// workers carries out calls that wait, n at a time. Tenants take turns: the calls of one begin in the order in which they were
// asked for, and those of others do not wait until all of its are done. In one queue for all, a tenant with thousands of pods to bind,
// which takes an API server many seconds, delayed everybody else's Bindings by as much.
//
// do never blocks: the loop that calls it is also the one that takes the answers. The queues have no bound of their own; what a
// core may have outstanding bounds them.
type workers struct {
	mu      sync.Mutex
	waiting fair.Queues[[]func(context.Context)] // by tenant; none is empty
	idle    int
	wg      sync.WaitGroup
	ctx     context.Context
}

func newWorkers(ctx context.Context, n int) *workers { return &workers{ctx: ctx, idle: n} }

// do carries out a call for a tenant: a namespace, or "" for what belongs to none.
func (w *workers) do(tenant string, call func(context.Context)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.idle > 0 {
		w.idle--
		w.wg.Go(func() { w.work(call) })
		return
	}
	calls := w.waiting.Of(tenant)
	*calls = append(*calls, call)
}

func (w *workers) work(call func(context.Context)) {
	for call != nil {
		if w.ctx.Err() == nil {
			call(w.ctx)
		}
		call = w.next()
	}
}

// next returns the first call of the tenant whose turn it is. When no call waits, it returns nil and the worker is idle.
func (w *workers) next() func(context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	calls := w.waiting.Next()
	if calls == nil {
		w.idle++
		return nil
	}
	call := (*calls)[0]
	(*calls)[0] = nil
	*calls = (*calls)[1:]
	w.waiting.Rotate(len(*calls) == 0)
	return call
}

// wait returns when nothing runs any more.
func (w *workers) wait() { w.wg.Wait() }
