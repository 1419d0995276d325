package leadership

import (
	"maps"
	"slices"
	"time"

	"basalt.dev/basalt/api"
)

const (
	// CallAgain is the pause after each call that a suspected shard did not answer.
	CallAgain = 300 * time.Millisecond
	// ReviseEvery is how often shards that are taken for down are called again.
	ReviseEvery = 10 * CallAgain

	calls = 3 // that a suspected shard must not answer
)

// Suspicions are the shards that gossip or a broken stream says are gone. One that does not answer several calls is down,
// whatever its lease says: the table's fence makes moving its buckets early safe. One that is down is called from time to time,
// and is up again when it answers and still holds its lease.
type Suspicions struct {
	unanswered map[api.Incarnation]int  // of those that are suspected: calls so far
	down       map[api.Incarnation]bool // may still hold their lease
}

// NewSuspicions returns no suspicions.
func NewSuspicions() *Suspicions {
	return &Suspicions{unanswered: map[api.Incarnation]int{}, down: map[api.Incarnation]bool{}}
}

// TermBegins forgets which shards are down: the core of a term begins with all that hold a lease.
func (s *Suspicions) TermBegins() { clear(s.down) }

// Suspect reports that a shard seems to be gone. It returns true when the shard is to be called, and the result
// reported to Called.
func (s *Suspicions) Suspect(who api.Incarnation) bool {
	if _, already := s.unanswered[who]; already || s.down[who] {
		return false
	}
	s.unanswered[who] = 0
	return true
}

// Called reports whether a suspected shard answered a call. It returns true when the shard did not: then Waited is called after
// CallAgain.
func (s *Suspicions) Called(who api.Incarnation, answered bool) (wait bool) {
	if answered {
		delete(s.unanswered, who)
		return false
	}
	s.unanswered[who]++
	return true
}

// Waited returns true when the shard is down, for the core, and false when it is to be called again.
func (s *Suspicions) Waited(who api.Incarnation) (down bool) {
	if s.unanswered[who] < calls {
		return false
	}
	delete(s.unanswered, who)
	s.down[who] = true
	return true
}

// Down returns the shards that are down, sorted: those that are still registered are to be called every ReviseEvery, and
// what became of it reported to Revised.
func (s *Suspicions) Down() []api.Incarnation { return slices.Sorted(maps.Keys(s.down)) }

// Revised reports whether a shard that is down is still registered, and answered. It returns true when the shard is up again,
// for the core.
func (s *Suspicions) Revised(who api.Incarnation, registered, answered bool) bool {
	if registered && !answered {
		return false
	}
	delete(s.down, who)
	return registered
}
