package server

import (
	"context"
	"slices"
	"sync"
	"testing"
)

func TestWorkersKeepOrderAndBound(t *testing.T) {
	w := newWorkers(t.Context(), 1)
	var got []int
	for i := range 100 {
		w.do("a", func(context.Context) { got = append(got, i) }) // one at a time: the race detector would see more
	}
	w.wait()
	if len(got) != 100 || !slices.IsSorted(got) {
		t.Fatalf("order %v", got)
	}

	w = newWorkers(t.Context(), 4)
	var mu sync.Mutex
	running, most := 0, 0
	gate := make(chan struct{})
	for range 20 {
		w.do("a", func(context.Context) {
			mu.Lock()
			running++
			most = max(most, running)
			full := running == 4
			mu.Unlock()
			if full {
				close(gate) // four are in here together
			}
			<-gate
			mu.Lock()
			running = -1 << 20 // nobody closes the gate again
			mu.Unlock()
		})
	}
	w.wait()
	if most != 4 {
		t.Fatalf("%d ran at once, want 4", most)
	}
}

// A tenant with many calls delays those of others by one call each, not by all of its.
func TestWorkersServeTenantsInTurn(t *testing.T) {
	w := newWorkers(t.Context(), 1)
	gate := make(chan struct{})
	w.do("a", func(context.Context) { <-gate }) // the one worker is busy while the others are asked for
	var got []string
	for _, call := range []string{"a1", "a2", "a3", "a4", "b1", "c1", "b2", "a5"} {
		w.do(call[:1], func(context.Context) { got = append(got, call) })
	}
	close(gate)
	w.wait()
	if want := []string{"a1", "b1", "c1", "a2", "b2", "a3", "a4", "a5"}; !slices.Equal(got, want) {
		t.Errorf("order %v, want %v", got, want)
	}
	if !w.waiting.Empty() || w.idle != 1 {
		t.Errorf("left: %+v, %d idle", w.waiting, w.idle)
	}
}

func TestWorkersStopWithTheirContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	w := newWorkers(ctx, 1)
	started := make(chan struct{})
	w.do("a", func(ctx context.Context) { close(started); <-ctx.Done() })
	<-started
	w.do("a", func(context.Context) { t.Error("a call began after the end") })
	cancel()
	w.wait()
}
