// Package seeds draws the seeds of randomised tests by the date: each day has seeds of its own, so that days add up to
// coverage, and all runs of one day test the same.
//
// It decides which seeds a day has and how a test reports them. A test that failed is run again on its day's seeds with
// the environment variable BASALT_SEEDS_OF=2026-11-27. What such a seed found is kept as a script or a seed of its own,
// so that later days test it, too.
package seeds

import (
	"fmt"
	"os"
	"testing"
	"time"
)

// Of is the environment variable that names another day than today.
const Of = "BASALT_SEEDS_OF"

// epoch is the first day that has seeds.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// ByDate returns the first of n consecutive seeds that no other day has, and reports them with the test.
func ByDate(t testing.TB, n int) (first uint64) {
	t.Helper()
	day := time.Now().UTC()
	if of := os.Getenv(Of); of != "" {
		var err error
		if day, err = time.Parse(time.DateOnly, of); err != nil {
			t.Fatalf("%s is not a date such as 2026-11-27: %v", Of, err)
		}
	}
	first = firstOf(day, n)
	t.Attr("seeds", fmt.Sprintf("%d to %d, again with %s=%s", first, first+uint64(n)-1, Of, day.Format(time.DateOnly)))
	return first
}

// firstOf leaves the first thousand seeds to tests that always run the same.
func firstOf(day time.Time, n int) uint64 {
	const fixed = 1000
	return fixed + 1 + uint64(max(0, day.Sub(epoch)/(24*time.Hour)))*uint64(n)
}
