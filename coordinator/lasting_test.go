package coordinator

import (
	"math/rand"
	"testing"
	"time"
)

// Since when so much is short is what a look at everything that was observed says. Where more steps would be needed than are kept, it may be
// later, and never earlier.
func TestLasting(t *testing.T) {
	at := func(n int) time.Time { return time.UnixMilli(int64(n) * 100) }
	for _, c := range []struct {
		name  string
		rooms int64 // so many different amounts
		exact bool
	}{{"few amounts", lastingSteps, true}, {"many", 10_000, false}} {
		rng := rand.New(rand.NewSource(1))
		later := 0
		for range 200 {
			var l lasting
			var seen []int64
			drift := rng.Int63n(3) - 1
			for now := range 300 {
				short := rng.Int63n(c.rooms)
				if drift != 0 && len(seen) > 0 { // mostly one way: many steps, or few
					short = max(0, min(c.rooms-1, seen[len(seen)-1]+drift*rng.Int63n(c.rooms/16)-rng.Int63n(3)))
				}
				seen = append(seen, short)
				l.observe(at(now), short)
				if len(l) > lastingSteps {
					t.Fatalf("%s: %d steps are kept", c.name, len(l))
				}
				ask := rng.Int63n(c.rooms)
				want := at(now)
				for n := len(seen) - 1; n >= 0 && seen[n] >= ask; n-- {
					want = at(n)
				}
				switch got := l.since(at(now), ask); {
				case got.Before(want) || c.exact && !got.Equal(want):
					t.Fatalf("%s: %d is short since %v, want %v; observed: %v", c.name, ask, got, want, seen)
				case got.After(want):
					later++
				}
			}
		}
		if !c.exact && later == 0 {
			t.Errorf("%s: never were more steps needed than are kept", c.name)
		}
	}
}
