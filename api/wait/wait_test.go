package wait

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A backoff doubles from Min to Max, begins anew after a reset, and ends with the context.
func TestBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := Backoff{Min: 20 * time.Millisecond, Max: time.Second}
		next := func() time.Duration {
			began := time.Now()
			if !b.Wait(t.Context()) {
				t.Error("the context has ended")
			}
			return time.Since(began)
		}
		for _, want := range []int{20, 40, 80, 160, 320, 640, 1000, 1000} {
			if got := next(); got != time.Duration(want)*time.Millisecond {
				t.Errorf("waits %v, want %d ms", got, want)
			}
		}
		b.Reset()
		if got := next(); got != 20*time.Millisecond {
			t.Errorf("waits %v after a reset", got)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if b.Wait(ctx) {
			t.Error("waits longer than its context")
		}
	})
}

// Jitter makes pauses longer by no more than its part, and does not add up.
func TestJitter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := Backoff{Min: 100 * time.Millisecond, Max: 200 * time.Millisecond, Jitter: 0.5}
		least, most := time.Hour, time.Duration(0)
		for i := range 1000 {
			began := time.Now()
			b.Wait(t.Context())
			if took := time.Since(began); i > 0 {
				least, most = min(least, took), max(most, took)
			}
		}
		if least < 200*time.Millisecond || least > 210*time.Millisecond || most > 300*time.Millisecond || most < 290*time.Millisecond {
			t.Errorf("pauses of %v to %v, want 200 to 300 ms", least, most)
		}
	})
}

// For ends with its time or with the context, whichever comes first.
func TestFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		if !For(ctx, time.Second) || time.Since(began) != time.Second {
			t.Errorf("slept %v, want 1s", time.Since(began))
		}
		time.AfterFunc(time.Second, cancel)
		if For(ctx, time.Hour) || time.Since(began) != 2*time.Second {
			t.Errorf("slept until %v, though the context ended after 2s", time.Since(began))
		}
	})
}

// Whoever asks most gets no more turns than others, waits no longer than its context, and does not wait behind too
// many.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := NewTurns(2, 4, 3)
		for range 4 {
			if !turns.Wait(t.Context(), "many") {
				t.Error("the first ones do not go on at once")
			}
		}
		var got []string
		var mu sync.Mutex
		ask := func(ctx context.Context, key string) {
			go func() {
				went := turns.Wait(ctx, key)
				mu.Lock()
				defer mu.Unlock()
				if went {
					got = append(got, key)
				} else {
					got = append(got, "not "+key)
				}
			}()
			synctest.Wait()
		}
		check := func(want ...string) {
			t.Helper()
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(got, want) {
				t.Errorf("turns of %q, want %q", got, want)
			}
			got = nil
		}
		for range 4 {
			ask(t.Context(), "many")
		}
		check("not many")
		short, cancel := context.WithCancel(t.Context())
		ask(short, "gone")
		ask(t.Context(), "few")
		cancel()
		synctest.Wait()
		check("not gone")
		time.Sleep(1100 * time.Millisecond)
		check("many", "few")
		time.Sleep(time.Second)
		check("many", "many")
		time.Sleep(time.Second) // and then tokens are there again
		for range 2 {
			if !turns.Wait(t.Context(), "few") {
				t.Error("a turn is refused while nobody waits")
			}
		}
	})
}
