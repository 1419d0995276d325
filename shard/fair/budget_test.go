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
