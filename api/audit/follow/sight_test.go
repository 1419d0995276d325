package follow

import (
	"testing"
	"time"

	"basalt.dev/basalt/api/audit"
)

// The member of the control store that serves the watch is behind the others, and says that it has shown all that
// it has: that is no sight of the present.
func TestStaleMemberIsBlind(t *testing.T) {
	began := time.Unix(1000, 0)
	at := func(seconds int) time.Time { return began.Add(time.Duration(seconds) * time.Second) }
	s := newSight()
	for _, resource := range []string{"pods", "nodes", "queues", "podgroups"} {
		s.watches[resource] = at(-10)
	}
	blind := func(second int, want bool) {
		t.Helper()
		s.apiServer = at(second)
		if got := s.blind(at(second)); got != want {
			t.Errorf("after %d s: blind %v, want %v", second, got, want)
		}
	}
	blind(0, true)
	s.found(at(0), 10)
	s.shown(audit.StoreRevision{Revision: 10})
	blind(1, false)
	for second := 1; second < 8; second++ {
		s.found(at(second), int64(10+second))
		s.confirmed(10)
	}
	blind(4, false)
	blind(8, true)
	s.shown(audit.StoreRevision{Revision: 11}) // what there was at 1 s
	blind(8, true)
	s.found(at(8), 18)
	s.confirmed(18)
	blind(8, false)

	s.watches["podgroups"] = time.Time{} // closed, whatever others are open
	blind(8, true)
	s.watches["podgroups"] = at(0)
	s.found(at(9), 19)
	s.shown(audit.StoreRevision{Revision: 2, Snapshot: true, Replaced: true}) // restored
	s.found(at(10), 5)
	s.confirmed(4)
	blind(14, true)
	s.confirmed(5)
	blind(14, false)
}
