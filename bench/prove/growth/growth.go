// Package growth judges in tests how time grows with size, where a time by itself would judge the machine: the same
// work is done at two sizes in one run, and the quickest of three counts for each, so that load on the machine counts
// for both.
//
// It tells about linear from quadratic and worse, and nothing finer.
package growth

import (
	"testing"
	"time"
)

const (
	// times is how many times as much the larger work is: linear work takes 8 times as long, quadratic 64 times.
	times = 8
	// most is the largest growth of time that passes.
	most = 30
)

// Linear fails the test if work for 8 times as much takes more than 30 times as long as for size. Prepare returns the
// work for a size, which is done once; what prepare itself takes does not count. Work for size should take a
// millisecond or more.
func Linear(t testing.TB, size int, prepare func(size int) (work func())) {
	t.Helper()
	few, many := quickest(size, prepare), quickest(times*size, prepare)
	if many > most*few {
		t.Errorf("%d take %v, and %d take %v: more than linear", times*size, many, size, few)
	}
}

func quickest(size int, prepare func(int) func()) (took time.Duration) {
	for range 3 {
		work := prepare(size)
		began := time.Now()
		work()
		if once := time.Since(began); took == 0 || once < took {
			took = once
		}
	}
	return took
}
