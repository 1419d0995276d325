package console

import (
	"context"
	"sync"
	"time"
)

// shared is an answer that is the same for everybody who may have it. One at a time asks for it, for all who wait,
// and it counts for a while. Whoever is given it was reviewed before.
type shared[T any] struct {
	mu    sync.Mutex
	until time.Time // the answer counts
	value T
	err   error
	busy  chan struct{} // closed when the question under way has been answered
}

// get returns the answer, which counts for so long. A question goes on when the viewer who began it is gone.
func (s *shared[T]) get(ctx context.Context, within time.Duration, ask func() (T, error)) (T, error) {
	s.mu.Lock()
	if time.Now().Before(s.until) {
		defer s.mu.Unlock()
		return s.value, s.err
	}
	busy := s.busy
	if busy == nil {
		busy = make(chan struct{})
		s.busy = busy
		go func() {
			value, err := ask()
			s.mu.Lock()
			defer s.mu.Unlock()
			if err != nil { // of one who asked: another may be answered
				within = time.Second
			}
			s.until, s.value, s.err, s.busy = time.Now().Add(within), value, err, nil
			close(busy)
		}()
	}
	s.mu.Unlock()
	select {
	case <-busy:
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.value, s.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}
