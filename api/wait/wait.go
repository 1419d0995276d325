// Package wait pauses a goroutine of a shell, for a given time or for the next interval of an exponential backoff, and
// no longer than
// its context lasts. It does not decide what is worth a retry. Cores do not use it: their time is a field of an event.
package wait

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff is an exponential backoff: its intervals double from Min to Max. Only one goroutine may use it at a time.
type Backoff struct {
	Min, Max time.Duration
	// Jitter spreads the pauses: each is its interval and a random part, drawn anew, of Jitter times the interval.
	Jitter float64

	next time.Duration // 0 stands for Min
}

// Reset starts again at Min.
func (b *Backoff) Reset() { b.next = 0 }

// Wait pauses for the next interval. It reports whether that was over before ctx.
func (b *Backoff) Wait(ctx context.Context) bool {
	pause := max(b.next, b.Min)
	b.next = min(2*pause, b.Max)
	return For(ctx, pause+time.Duration(b.Jitter*rand.Float64()*float64(pause)))
}

// For pauses for d. It reports whether that was over before ctx.
func For(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
