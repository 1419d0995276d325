// Package growth judges in tests how time grows with size, where a time by itself would judge the machine: the same
// amount of work is done in many parts and in one, in turns, and the quickest of three counts for each. Load on the
// machine counts for both, and so do caches and the garbage collector, for both have as much in memory.
//
// It tells about linear from quadratic and worse, and nothing finer.
package growth

import (
	"testing"
	"time"
)

const (
	// parts is in how many parts the work is done: if it is linear, it takes as long as in one, if quadratic a 64th.
	parts = 64
	// most is how many times as long the work may take in one.
	most = 12
	// rounds is how often it is done.
	rounds = 3
)

// Linear fails the test if work for size takes more than 12 times as long as 64 times the work for a 64th of it.
// Prepare returns the work for a size, which is done once; what prepare itself takes does not count. The works share
// no memory. All of it should take a millisecond or more.
func Linear(t testing.TB, size int, prepare func(size int) (work func())) {
	t.Helper()
	var apart, whole time.Duration
	for range rounds {
		apart = quicker(apart, prepared(parts, size/parts, prepare))
		whole = quicker(whole, prepared(1, size, prepare))
	}
	if whole > most*apart {
		t.Errorf("%d take %v, and %d times %d take %v: more than linear", size, whole, parts, size/parts, apart)
	}
}

func prepared(times, size int, prepare func(size int) (work func())) []func() {
	works := make([]func(), times)
	for i := range works {
		works[i] = prepare(size)
	}
	return works
}

// quicker returns what the works take, or best if that is less; a best of 0 is none.
func quicker(best time.Duration, works []func()) time.Duration {
	began := time.Now()
	for _, work := range works {
		work()
	}
	if took := time.Since(began); best == 0 || took < best {
		return took
	}
	return best
}
