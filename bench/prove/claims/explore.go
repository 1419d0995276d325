package claims

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"
)

// Faults is how often each may happen.
type Faults struct {
	Crash   uint8 // the coordinator is replaced by one of a new term, at most once
	HeirC   uint8 // homes of claimants that are replaced
	HeirV   uint8 // homes of victims that are replaced, and go on
	Restart uint8 // of a node shard
	Timeout uint8 // claims that are dropped before they are granted
	Cancel  uint8 // claimants that are deleted
	Change  uint8 // claimants that ask anew, under another attempt
	Edit    uint8 // of limits, after which no claim is legal
	Cut     uint8 // of the capability, by one pod
	Finish  uint8 // pods of victims that end by themselves
	Lapse   uint8 // holds and promises that are not renewed in time
	Late    uint8 // HoldRequests that arrive after their gang has withdrawn, at a shard that does not remember it
}

func (f Faults) faults() faults {
	return faults{f.Crash, f.HeirC, f.HeirV, f.Restart, f.Timeout, f.Cancel, f.Change, f.Edit, f.Cut, f.Finish, f.Lapse, f.Late}
}

// Config is what is explored; a result is complete for it.
type Config struct {
	World World
	Weak  []Rule // rules that are not kept
	Faults
	Ends  bool // from each state an end has to be reached: nobody goes round for ever
	Exact bool // compare states, not their hashes
	Limit int  // give up after so many states; 0 for never
	Stop  func() bool
}

func (cfg Config) String() string {
	out := cfg.World.Name
	f := cfg.Faults.faults()
	for _, o := range []struct {
		n    uint8
		name string
	}{{f.crash, "crash"}, {f.heirC, "heir of claimant"}, {f.heirV, "heir of victim"}, {f.restart, "restart"}, {f.timeout, "timeout"}, {f.cancel, "cancel"},
		{f.change, "change"}, {f.edit, "edit"}, {f.cut, "cut"}, {f.finish, "finish"}, {f.lapse, "lapse"}, {f.late, "late hold"}} {
		if o.n > 0 {
			out += ", " + o.name
		}
		if o.n > 1 {
			out += fmt.Sprintf(" %d", o.n)
		}
	}
	for _, r := range cfg.Weak {
		out += ", " + r.String()
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

// search is one exploration. It stores a hash of 64 bits of each state: with ten million states, that any two share one has a
// probability of 3 in a million. Each state's first step is kept for the trace.
type search struct {
	*machine
	links []link
	known map[uint64]uint32
	exact map[state]uint32
	edges []edge // with Config.Ends
}

type link struct {
	parent uint32
	step   step
}

type edge struct{ from, to uint32 }

// find returns the number of a state, and whether it is a new one.
func (e *search) find(s *state, parent uint32, st step) (uint32, bool) {
	next := uint32(len(e.links))
	if e.Exact {
		if at, is := e.exact[*s]; is {
			return at, false
		}
		e.exact[*s] = next
	} else {
		h := xxhash.Sum64(s.bytes())
		if at, is := e.known[h]; is {
			return at, false
		}
		e.known[h] = next
	}
	e.links = append(e.links, link{parent, st})
	return next, true
}

// Run explores breadth first, until a violation, the limit, or the end.
func Run(cfg Config, now func() time.Time) Result {
	began := now()
	e := &search{machine: newMachine(cfg), known: map[uint64]uint32{}, exact: map[state]uint32{}}
	var (
		r     Result
		first = e.first()
		layer = []state{first}
		next  []state
		base  uint32 // of the layer in links
		ends  []uint32
		last  uint32 // the state that violates
	)
	e.find(&first, 0, step{})
	for len(layer) > 0 && r.Violation == "" && (cfg.Limit == 0 || len(e.links) < cfg.Limit) && (cfg.Stop == nil || !cfg.Stop()) {
		start := uint32(len(e.links))
		for k := range layer {
			at, any, quiet := base+uint32(k), false, true
			e.next(&layer[k], func(st step, n *state, violation string) {
				any, quiet = true, quiet && st.kind >= slow
				if r.Violation != "" {
					return
				}
				r.Transitions++
				to, isNew := e.find(n, at, st)
				if cfg.Ends {
					e.edges = append(e.edges, edge{at, to})
				}
				if isNew {
					next = append(next, *n)
				}
				if violation != "" {
					r.Violation, last = violation, to
				}
			})
			if r.Violation == "" && quiet {
				r.Violation, last = e.judgeQuiet(&layer[k]), at
			}
			if r.Violation == "" && !any {
				r.Ends++
				ends = append(ends, at)
				r.Violation, last = e.judgeEnd(&layer[k]), at
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
	r.States, r.Complete = len(e.links), len(layer) == 0
	if cfg.Ends && r.Complete && r.Violation == "" {
		if at, is := e.lost(ends); is {
			r.Violation, last = "nothing comes to an end from here", at
		}
	}
	if r.Violation != "" {
		var path []step
		for k := last; k != 0; k = e.links[k].parent {
			path = append(path, e.links[k].step)
		}
		slices.Reverse(path)
		r.Trace, r.Complete = e.trace(path), false
	}
	r.Took = now().Sub(began)
	return r
}

// lost returns the first state from which no end is reached.
func (e *search) lost(ends []uint32) (uint32, bool) {
	start := make([]uint32, len(e.links)+1) // of each state's edges, by their targets
	for _, d := range e.edges {
		start[d.to+1]++
	}
	for k := range len(e.links) {
		start[k+1] += start[k]
	}
	from, at := make([]uint32, len(e.edges)), slices.Clone(start)
	for _, d := range e.edges {
		from[at[d.to]] = d.from
		at[d.to]++
	}
	reaches := make([]bool, len(e.links))
	for _, k := range ends {
		reaches[k] = true
	}
	for todo := slices.Clone(ends); len(todo) > 0; {
		k := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, p := range from[start[k]:start[k+1]] {
			if !reaches[p] {
				reaches[p] = true
				todo = append(todo, p)
			}
		}
	}
	k := slices.Index(reaches, false)
	return uint32(max(k, 0)), k >= 0
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
		out = append(out, fmt.Sprintf("%2d  %s", k+1, m.say(st, &to)))
		s = to
	}
	return out
}

// Text returns the trace, one step a line.
func (r Result) Text() string { return strings.Join(r.Trace, "\n") }
