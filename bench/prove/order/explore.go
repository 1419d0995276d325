package order

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"
)

// Config is what is explored; a result is complete for it.
type Config struct {
	World     World
	Weak      []Rule // rules that are not kept
	Edits     uint8  // of pods without a node, at most one of each
	Deletes   uint8  // of pods
	Deaths    uint8  // of Victim, at most 1: it is fenced, has an heir, and goes on
	Victim    uint8
	Breaks    uint8 // of watches of the log
	Late      bool  // no shard has seen the pods at the start
	Clean     bool  // rows are removed once their outcome is known
	Timeouts  bool  // node shards give up prepared rows of gangs over several whenever they like
	Refusals  bool  // node shards refuse Commits of such gangs whenever they like
	NewNode   bool  // the node of the first pod is created late, and shards see it as late as they like
	Drops     bool  // node shards give up one row of a gang after it was judged fit
	MovedNode bool  // it was in another domain before the pod's shard placed the pod, and shards see the change as late as they like
	PointsWin bool  // a gang is not judged against one whose point is behind its own
	Progress  bool  // somebody has to be placed in the end
	Exact     bool  // compare states, not their hashes
	Limit     int   // give up after so many states; 0 for never
	Stop      func() bool
}

func (cfg Config) String() string {
	out := cfg.World.Name
	for _, o := range []struct {
		n    uint8
		name string
	}{{cfg.Edits, "edits"}, {cfg.Deletes, "deletes"}, {cfg.Breaks, "breaks"}} {
		if o.n > 0 {
			out += fmt.Sprintf(", %s %d", o.name, o.n)
		}
	}
	if cfg.Deaths > 0 {
		out += ", death of " + letter(cfg.Victim)
	}
	for _, o := range []struct {
		on   bool
		name string
	}{{cfg.Late, "late"}, {cfg.Clean, "clean"}, {cfg.Timeouts, "timeouts"}, {cfg.Refusals, "refusals"}, {cfg.Drops, "drops"}, {cfg.NewNode, "new node"}, {cfg.MovedNode, "moved node"}, {cfg.PointsWin, "points win"}, {cfg.Progress, "progress"}} {
		if o.on {
			out += ", " + o.name
		}
	}
	if cfg.World.Most != [units]uint8{} {
		out += fmt.Sprintf(", commits %v", cfg.World.Most[:len(cfg.World.Gangs)])
	}
	return out
}

// Result of an exploration.
type Result struct {
	States, Transitions, Depth, Ends int
	Complete                         bool
	Violation                        string
	Trace                            []string // steps that lead to it, the shortest
	Took                             time.Duration
}

func (r Result) String() string {
	out := fmt.Sprintf("%d states, %d transitions, depth %d, %d ends, %s", r.States, r.Transitions, r.Depth, r.Ends, r.Took.Round(time.Millisecond))
	switch {
	case r.Violation != "":
		out += ": " + r.Violation
	case r.Complete:
		out += ": exhausted"
	default:
		out += ": not exhausted"
	}
	return out
}

// Run explores breadth first, until a violation, the limit, or the end. It stores a hash of 64 bits of each state: with ten million
// states, that any two share one has a probability of 3 in a million. Each state's first step is kept for the trace.
func Run(cfg Config, now func() time.Time) Result {
	type link struct {
		parent uint32
		step   step
	}
	began := now()
	m := newMachine(cfg)
	first := m.first()
	var (
		r     Result
		links = []link{{}}
		known = map[uint64]struct{}{xxhash.Sum64(first.bytes()): {}}
		exact = map[state]struct{}{first: {}}
		layer = []state{first}
		base  = uint32(0) // of the layer in links
		at    uint32
		any   bool
		next  []state
		last  uint32 // the state that violates
	)
	visit := func(st step, n *state, violation string) {
		any = true
		if r.Violation != "" {
			return
		}
		r.Transitions++
		if cfg.Exact {
			if _, is := exact[*n]; is && violation == "" {
				return
			}
			exact[*n] = struct{}{}
		} else {
			h := xxhash.Sum64(n.bytes())
			if _, is := known[h]; is && violation == "" {
				return
			}
			known[h] = struct{}{}
		}
		links = append(links, link{at, st})
		next = append(next, *n)
		r.Violation, last = violation, uint32(len(links)-1)
	}
	for len(layer) > 0 && r.Violation == "" && (cfg.Limit == 0 || len(links) < cfg.Limit) && (cfg.Stop == nil || !cfg.Stop()) {
		start := uint32(len(links))
		for k := range layer {
			at, any = base+uint32(k), false
			m.next(&layer[k], visit)
			if !any {
				r.Ends++
				if v := m.judgeEnd(&layer[k]); v != "" {
					r.Violation, last = v, at
				}
			}
			if r.Violation != "" {
				break
			}
		}
		if r.Violation == "" {
			layer, next, base = next, layer[:0], start
			r.Depth++
		}
	}
	r.States, r.Complete = len(links), len(layer) == 0
	if r.Violation != "" {
		var path []step
		for k := last; k != 0; k = links[k].parent {
			path = append(path, links[k].step)
		}
		slices.Reverse(path)
		r.Trace, r.Complete = m.trace(path), false
	}
	r.Took = now().Sub(began)
	return r
}

// trace says a path in words.
func (m *machine) trace(path []step) []string {
	s := m.first()
	var out []string
	for k, st := range path {
		var to state
		m.next(&s, func(is step, n *state, _ string) {
			if is == st {
				to = *n
			}
		})
		out = append(out, fmt.Sprintf("%2d  %s", k+1, m.say(st, &s, &to)))
		s = to
	}
	return out
}

// Text returns the trace, one step a line.
func (r Result) Text() string { return strings.Join(r.Trace, "\n") }
