package fair

import (
	"testing"
	"time"
)

// Each namespace gets back what it spent at its own rate, down to the fraction of a second, owes no more than the limit, and is
// forgotten when it owes nothing.
func TestBudget(t *testing.T) {
	b, now := Budget{Rate: 2000, Most: 9000}, time.Unix(0, 0)
	is := func(a, z int64, known int) {
		t.Helper()
		if got := b.Spent(now, "a"); got != a {
			t.Errorf("a has spent %d, want %d", got, a)
		}
		if got := b.Spent(now, "z"); got != z {
			t.Errorf("z has spent %d, want %d", got, z)
		}
		if b.Forget(now); len(b.spent) != known {
			t.Errorf("%d namespaces are known, want %d", len(b.spent), known)
		}
	}
	is(0, 0, 0)
	b.Spend(now, "a", 3000)
	b.Spend(now, "z", 100)
	is(3000, 100, 2)
	now = now.Add(49*time.Millisecond + 600*time.Microsecond)
	is(2902, 2, 2)
	now = now.Add(400 * time.Microsecond)
	is(2900, 0, 1)
	b.Spend(now, "a", 50000)
	is(9000, 0, 1)
	now = now.Add(4 * time.Second)
	b.Spend(now, "a", 1)
	is(1001, 0, 1)
	now = now.Add(time.Hour)
	is(0, 0, 0)

	unlimited := Budget{Rate: 1}
	unlimited.Spend(now, "a", 1<<40)
	if got := unlimited.Spent(now, "a"); got != 1<<40 {
		t.Errorf("%d was spent, want %d", got, int64(1<<40))
	}
}

// A budget starts full, grows by its rate, never holds more than a second's worth, and counts no moment twice.
func TestTokens(t *testing.T) {
	epoch := time.Unix(0, 0)
	for _, rate := range []int{0, -1} {
		if none := (&Tokens{Rate: rate}); none.Take(epoch) {
			t.Errorf("a budget of %d a second gave something", rate)
		}
	}
	b, now := Tokens{Rate: 4}, epoch
	for _, step := range []struct {
		after time.Duration
		gives int
	}{
		{0, 4}, {249 * time.Millisecond, 0}, {time.Millisecond, 1}, {999 * time.Millisecond, 3}, {time.Millisecond, 1},
		{time.Hour, 4}, {0, 0}, {1500 * time.Millisecond, 4},
	} {
		now = now.Add(step.after)
		gives := 0
		for b.Take(now) {
			gives++
		}
		if gives != step.gives {
			t.Errorf("%s later the budget gives %d, want %d", step.after, gives, step.gives)
		}
	}
	// In steps smaller than, as large as, and larger than a millisecond.
	for _, step := range []time.Duration{100 * time.Microsecond, time.Millisecond, 1100 * time.Microsecond} {
		b := Tokens{Rate: 10}
		for b.Take(epoch) {
		}
		gives := 0
		for at := step; at <= 10*time.Second; at += step {
			if b.Take(epoch.Add(at)) {
				gives++
			}
		}
		if gives < 99 || gives > 100 {
			t.Errorf("in steps of %s a budget of 10 a second gave %d in 10 s", step, gives)
		}
	}
}
