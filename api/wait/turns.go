package wait

import (
	"context"
	"slices"
	"sync"

	"golang.org/x/time/rate"
)

// Turns lets a limited number of requests a second go on, whoever asks. While there are more, those that ask go on in
// turn,
// however many each of them has: a round-robin over the keys that wait. A token bucket alone goes to whoever asks most.
type Turns struct {
	limit *rate.Limiter
	most  int // that one key may have waiting

	mu      sync.Mutex
	waiting map[string][]chan struct{} // closed when the turn has come
	keys    []string                   // of those that wait, the next one first
	serving bool                       // serve runs
}

// NewTurns lets perSecond requests go on in a second, and atOnce after a pause. Of each key, most may wait.
func NewTurns(perSecond rate.Limit, atOnce, most int) *Turns {
	return &Turns{limit: rate.NewLimiter(perSecond, atOnce), most: most, waiting: map[string][]chan struct{}{}}
}

// maxKeys bounds the keys that wait.
const maxKeys = 1024

// Wait waits for a turn of the key. It reports whether it came before ctx ended; it does not wait behind too many
// others.
func (t *Turns) Wait(ctx context.Context, key string) bool {
	t.mu.Lock()
	if len(t.keys) == 0 && t.limit.Allow() {
		t.mu.Unlock()
		return true
	}
	if len(t.waiting[key]) >= t.most || len(t.waiting[key]) == 0 && len(t.keys) >= maxKeys {
		t.mu.Unlock()
		return false
	}
	if !t.serving {
		t.serving = true
		go t.serve()
	}
	if len(t.waiting[key]) == 0 {
		t.keys = append(t.keys, key)
	}
	turn := make(chan struct{})
	t.waiting[key] = append(t.waiting[key], turn)
	t.mu.Unlock()
	select {
	case <-turn:
		return true
	case <-ctx.Done():
		return t.left(key, turn)
	}
}

// serve gives turns while anybody waits.
func (t *Turns) serve() {
	for {
		_ = t.limit.Wait(context.Background())
		t.mu.Lock()
		if len(t.keys) > 0 {
			key := t.keys[0]
			t.keys = t.keys[1:]
			close(t.waiting[key][0])
			if t.waiting[key] = t.waiting[key][1:]; len(t.waiting[key]) > 0 {
				t.keys = append(t.keys, key)
			} else {
				delete(t.waiting, key)
			}
		}
		done := len(t.keys) == 0
		t.serving = !done
		t.mu.Unlock()
		if done {
			return
		}
	}
}

// left takes one out that waits no more. It reports whether its turn has come meanwhile.
func (t *Turns) left(key string, turn chan struct{}) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, other := range t.waiting[key] {
		if other == turn {
			if t.waiting[key] = slices.Delete(t.waiting[key], i, i+1); len(t.waiting[key]) == 0 {
				delete(t.waiting, key)
				t.keys = slices.DeleteFunc(t.keys, func(k string) bool { return k == key })
			}
			return false
		}
	}
	return true
}
