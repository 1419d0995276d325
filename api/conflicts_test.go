package api

import (
	"math/rand"
	"slices"
	"strconv"
	"testing"
)

// The conflicts of lists are those of each of one with each of another.
func TestConflictsOf(t *testing.T) {
	rng := rand.New(rand.NewSource(1))
	for range 2000 {
		lists := make([][]Exclusive, 1+rng.Intn(5))
		for i := range lists {
			for range rng.Intn(4) {
				ip := []string{anyIP, "10.0.0.1", "10.0.0.2"}[rng.Intn(3)]
				e := Exclusive{Protocol: "TCP", Number: int32(1 + rng.Intn(2)), IP: ip}
				if rng.Intn(2) == 0 {
					e = Exclusive{Disk: Disk{ID: strconv.Itoa(rng.Intn(2)), ReadOnly: rng.Intn(2) == 0}}
				}
				lists[i] = append(lists[i], e)
			}
		}
		for i, got := range conflictsOf(lists) {
			for k := range lists {
				meets := func(e Exclusive) bool { return slices.ContainsFunc(lists[k], e.Conflicts) }
				want := slices.ContainsFunc(lists[i], meets)
				if got>>k&1 == 1 != want {
					t.Fatalf("%+v: %d and %d: want %t", lists, i, k, want)
				}
			}
		}
	}
}
