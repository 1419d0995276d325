package chaos

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"
)

// The sequential quota tree: what reserve and release may do one after another, for porcupine to hold histories of
// concurrent calls against. It has nothing of the coordinator's code: a queue's charge is the sum over the gangs below it.

// quotaTree is the limits: milli-cores by the path of a queue. Its ancestors are the prefixes that end before a dot.
type quotaTree map[string]int64

type verb uint8

const (
	reserved verb = iota + 1 // was granted
	perhaps                  // was asked for and taken back before an answer came: it may have been granted meanwhile
	denied                   // was told that a queue lacks room
	released                 // was acknowledged; what is not charged is released, too
	observed                 // somebody read all reservations
)

// call is one call of a history.
type call struct {
	verb   verb
	gang   string
	queue  string
	demand int64
	seen   string // with observed: see charges.String
}

func (c call) String() string {
	switch c.verb {
	case observed:
		return "observe " + c.seen
	case reserved, perhaps, denied:
		return fmt.Sprintf("%s %s %d m in %s", map[verb]string{reserved: "reserve", perhaps: "perhaps reserve", denied: "deny"}[c.verb], c.gang, c.demand, c.queue)
	}
	return "release " + c.gang
}

// charges are the gangs that are charged: name -> queue and demand.
type charges map[string]charge

type charge struct {
	queue  string
	demand int64
}

// String is the same for the same charges.
func (s charges) String() string {
	var b strings.Builder
	for _, g := range slices.Sorted(maps.Keys(s)) {
		fmt.Fprintf(&b, "%s=%s/%d ", g, s[g].queue, s[g].demand)
	}
	return b.String()
}

// fits reports whether a queue and all its ancestors have room.
func (t quotaTree) fits(s charges, queue string, demand int64) bool {
	for limited, limit := range t {
		if queue != limited && !strings.HasPrefix(queue, limited+".") {
			continue
		}
		sum := demand
		for _, c := range s {
			if c.queue == limited || strings.HasPrefix(c.queue, limited+".") {
				sum += c.demand
			}
		}
		if sum > limit {
			return false
		}
	}
	return true
}

// model is the tree as porcupine wants it. A state is what is charged; from one state a call that may or may not have
// taken effect leads to two.
func (t quotaTree) model() porcupine.Model {
	m := porcupine.NondeterministicModel{
		Init: func() []any { return []any{charges{}} },
		Step: func(state, input, _ any) []any {
			s, c := state.(charges), input.(call)
			_, charged := s[c.gang]
			with := func() []any {
				next := maps.Clone(s)
				next[c.gang] = charge{c.queue, c.demand}
				return []any{next}
			}
			fits := !charged && c.verb != observed && t.fits(s, c.queue, c.demand)
			switch c.verb {
			case reserved:
				if fits {
					return with()
				}
				return nil
			case perhaps:
				if fits {
					return append(with(), s)
				}
				return []any{s}
			case denied:
				if charged || fits {
					return nil
				}
				return []any{s}
			case released:
				next := maps.Clone(s)
				delete(next, c.gang)
				return []any{next}
			}
			if c.seen == s.String() {
				return []any{s}
			}
			return nil
		},
		Equal: func(a, b any) bool { return maps.Equal(a.(charges), b.(charges)) },
	}
	return m.ToModel()
}
