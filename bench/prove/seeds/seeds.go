// Package seeds draws the seeds of randomised tests by the date: each day has seeds of its own, so that days add up to
// coverage, and all runs of one day test the same.
//
// Every night all parts of such tests run, and more seeds (InFull). That is not -short, which libraries understand as
// well.
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

// Full is the environment variable that has tests run in full.
const Full = "BASALT_FULL"

// InFull reports whether tests run in full.
func InFull() bool { return os.Getenv(Full) != "" }

// epoch is the first day that has seeds.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// ByDate returns the first of n consecutive seeds that no other day has, and reports them with the test.
func ByDate(t testing.TB, n int) (first uint64) {
	t.Helper()
	day := today(t)
	first = firstOf(day, n)
	t.Attr("seeds", fmt.Sprintf("%d to %d, %s", first, first+uint64(n)-1, again(day)))
	return first
}

// Turn returns whose turn it is of n parts of a test: each day the next one's.
func Turn(t testing.TB, n int) int {
	t.Helper()
	day := today(t)
	turn := number(day) % n
	t.Attr("part", fmt.Sprintf("%d of %d, %s", turn+1, n, again(day)))
	return turn
}

// OfTheDay returns those of all whose turn it is of n parts, or all of them in full.
func OfTheDay[T any](t testing.TB, n int, all []T) []T {
	t.Helper()
	if InFull() {
		return all
	}
	return share(all, n, Turn(t, n))
}

func share[T any](all []T, n, turn int) (some []T) {
	for i, one := range all {
		if i%n == turn {
			some = append(some, one)
		}
	}
	return some
}

func today(t testing.TB) time.Time {
	t.Helper()
	day, err := theDay()
	if err != nil {
		t.Fatal(err)
	}
	return day
}

func theDay() (time.Time, error) {
	of := os.Getenv(Of)
	if of == "" {
		return time.Now().UTC(), nil
	}
	day, err := time.Parse(time.DateOnly, of)
	if err != nil {
		return day, fmt.Errorf("%s is not a date such as 2026-11-27: %w", Of, err)
	}
	return day, nil
}

// Day returns the day whose seeds are tested, as Of says it. It fails if the environment names a day that is none.
func Day() (string, error) {
	day, err := theDay()
	return day.Format(time.DateOnly), err
}

// TurnToday is Turn for what is no test. It fails if the environment names a day that is none.
func TurnToday(n int) (turn int, err error) {
	day, err := theDay()
	return number(day) % n, err
}

func again(day time.Time) string {
	return fmt.Sprintf("again with %s=%s", Of, day.Format(time.DateOnly))
}

// number counts days.
func number(day time.Time) int { return int(max(0, day.Sub(epoch)/(24*time.Hour))) }

// firstOf leaves the first thousand seeds to tests that always run the same.
func firstOf(day time.Time, n int) uint64 { return 1001 + uint64(number(day)*n) }
