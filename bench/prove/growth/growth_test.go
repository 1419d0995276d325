package growth

import (
	"testing"
	"testing/synctest"
	"time"
)

// heard is a test that is told of errors, and goes on.
type heard struct {
	testing.TB
	errors int
}

func (h *heard) Helper() {}

func (h *heard) Errorf(string, ...any) { h.errors++ }

// Linear work passes, and quadratic work does not. Time is that of a bubble, so that this test needs no quiet machine.
func TestLinear(t *testing.T) {
	for name, c := range map[string]struct {
		takes  func(size int) time.Duration
		errors int
	}{
		"linear":    {func(size int) time.Duration { return time.Duration(size) * time.Microsecond }, 0},
		"quadratic": {func(size int) time.Duration { return time.Duration(size*size) * time.Microsecond }, 1},
	} {
		h := &heard{TB: t}
		synctest.Test(t, func(*testing.T) {
			Linear(h, 6400, func(size int) func() { return func() { time.Sleep(c.takes(size)) } })
		})
		if h.errors != c.errors {
			t.Errorf("%s: %d errors, want %d", name, h.errors, c.errors)
		}
	}
}

// One slow run of three, on a machine that is busy, is not what counts.
func TestLinearOnABusyMachine(t *testing.T) {
	h, run := &heard{TB: t}, 0
	synctest.Test(t, func(*testing.T) {
		Linear(h, 6400, func(size int) func() {
			run++
			takes := time.Duration(size) * time.Microsecond
			if run <= 2*65 {
				takes *= 50
			}
			return func() { time.Sleep(takes) }
		})
	})
	if h.errors != 0 || run != 3*65 {
		t.Errorf("%d errors after %d runs", h.errors, run)
	}
}
