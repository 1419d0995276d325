package seeds

import (
	"testing"
	"time"
)

func TestDaysShareNoSeed(t *testing.T) {
	const n = 60
	seen := map[uint64]string{}
	for day := epoch.Add(-time.Hour); day.Before(epoch.AddDate(2, 0, 0)); day = day.AddDate(0, 0, 1) {
		first := firstOf(day, n)
		for seed := first; seed < first+n; seed++ {
			if other := seen[seed]; other != "" && !day.Before(epoch.AddDate(0, 0, 1)) {
				t.Fatalf("%s and %s have the seed %d", other, day, seed)
			}
			seen[seed] = day.String()
		}
	}
	if seen[1000] != "" || seen[1001] == "" {
		t.Error("the fixed seeds end elsewhere")
	}
}

// TestShare: in as many days as there are parts, each thing has its turn once; all have it in full.
func TestShare(t *testing.T) {
	all, seen := []int{0, 1, 2, 3, 4, 5, 6}, map[int]int{}
	for turn := range 3 {
		for _, one := range share(all, 3, turn) {
			seen[one]++
		}
	}
	for _, one := range all {
		if seen[one] != 1 {
			t.Errorf("%d had its turn %d times in three days", one, seen[one])
		}
	}
	t.Setenv(Full, "1")
	if n := len(OfTheDay(t, 3, all)); n != len(all) {
		t.Errorf("in full there are %d of %d", n, len(all))
	}
}

func TestDayOfAnotherRun(t *testing.T) {
	t.Setenv(Of, "2026-01-03")
	day := today(t)
	if first, n := firstOf(day, 10), number(day); first != 1021 || n != 2 {
		t.Errorf("the third day has number %d and begins with seed %d", n, first)
	}
}
