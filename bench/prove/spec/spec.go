// Package spec explores models of a protocol: a state that is a value, the steps that may follow it, and what must
// hold. It is the engine of the packages claims and order, as TLC is one of TLA+: these have states, steps and judges,
// and nothing of the search.
//
// The search is breadth first, so that a trace is a shortest one, and complete unless it says that it is not. A model
// can weaken its rules, each of which must then be violated (Weaken); a rule that can be weakened unnoticed is not
// needed, or not judged.
package spec

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/cespare/xxhash/v2"
)

// Model is what is explored. S is the state: it has fields of one byte only, so that its memory is its canonical
// encoding. T is a step.
type Model[S, T comparable] interface {
	// First returns the state at the start.
	First() S
	// Next calls emit with each step that may follow a state, the state that it leads to, and what the step violates.
	Next(s *S, emit func(step T, to *S, violation string))
	// Judge returns what is wrong with a state from which these steps lead on; without any, it is an end.
	Judge(s *S, steps []T) string
	// Say describes a step.
	Say(step T, from, to *S) string
}

// Bounds limit a search.
type Bounds struct {
	Ends  bool        // an end must be reachable from each state: nobody goes round for ever
	Exact bool        // compare states, not their hashes
	Limit int         // give up after so many states; 0 for never
	Stop  func() bool // give up once it returns true
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
	out := fmt.Sprintf("%d states, %d transitions, depth %d, %d ends, %s", r.States, r.Transitions, r.Depth, r.Ends,
		r.Took.Round(time.Millisecond))
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

// Text returns the trace, one step a line.
func (r Result) Text() string { return strings.Join(r.Trace, "\n") }

// search is one exploration. It stores a hash of 64 bits of each state: with ten million states, that any two share
// one has a probability of 3 in a million. Each state's first step is kept for the trace.
type search[S, T comparable] struct {
	Model[S, T]
	Bounds
	links []link[T]
	known map[uint64]uint32
	exact map[S]uint32
	edges []edge // with Bounds.Ends
}

type link[T any] struct {
	parent uint32
	step   T
}

type edge struct{ from, to uint32 }

// find returns the number of a state, and whether it is a new one. A state that a violation leads to is always new:
// its trace ends with the step that violates.
func (e *search[S, T]) find(s *S, parent uint32, st T, violates bool) (uint32, bool) {
	next := uint32(len(e.links))
	if e.Exact {
		if at, is := e.exact[*s]; is && !violates {
			return at, false
		}
		e.exact[*s] = next
	} else {
		h := xxhash.Sum64(unsafe.Slice((*byte)(unsafe.Pointer(s)), unsafe.Sizeof(*s)))
		if at, is := e.known[h]; is && !violates {
			return at, false
		}
		e.known[h] = next
	}
	e.links = append(e.links, link[T]{parent, st})
	return next, true
}

// Run explores breadth first, until a violation, a bound, or the end.
func Run[S, T comparable](m Model[S, T], b Bounds, now func() time.Time) Result {
	ofBytes(reflect.TypeFor[S]())
	began := now()
	e := &search[S, T]{Model: m, Bounds: b, known: map[uint64]uint32{}, exact: map[S]uint32{}}
	var (
		r     Result
		first = e.First()
		layer = []S{first}
		next  []S
		base  uint32 // of the layer in links
		at    uint32
		steps []T
		ends  []uint32
		last  uint32 // the state that violates
	)
	visit := func(st T, to *S, violation string) {
		if steps = append(steps, st); r.Violation != "" {
			return
		}
		r.Transitions++
		found, isNew := e.find(to, at, st, violation != "")
		if e.Ends {
			e.edges = append(e.edges, edge{at, found})
		}
		if isNew {
			next = append(next, *to)
		}
		if violation != "" {
			r.Violation, last = violation, found
		}
	}
	var none T
	e.find(&first, 0, none, false)
	for len(layer) > 0 && r.Violation == "" && (e.Limit == 0 || len(e.links) < e.Limit) && (e.Stop == nil || !e.Stop()) {
		start := uint32(len(e.links))
		for k := range layer {
			at, steps = base+uint32(k), steps[:0]
			if e.Next(&layer[k], visit); r.Violation != "" {
				break
			}
			if len(steps) == 0 {
				r.Ends++
				ends = append(ends, at)
			}
			if r.Violation, last = e.Judge(&layer[k], steps), at; r.Violation != "" {
				break
			}
		}
		if r.Violation == "" {
			layer, next, base = next, layer[:0], start
			r.Depth++
		}
	}
	r.States, r.Complete = len(e.links), len(layer) == 0
	if e.Ends && r.Complete && r.Violation == "" {
		if lost, is := e.lost(ends); is {
			r.Violation, last = "nothing comes to an end from here", lost
		}
	}
	if r.Violation != "" {
		r.Trace, r.Complete = e.trace(last), false
	}
	r.Took = now().Sub(began)
	return r
}

// ofBytes panics unless the memory of a type is nothing but its bytes: padding and pointers would be hashed, too.
func ofBytes(t reflect.Type) {
	switch t.Kind() {
	case reflect.Uint8, reflect.Bool:
	case reflect.Array:
		ofBytes(t.Elem())
	case reflect.Struct:
		for k := range t.NumField() {
			ofBytes(t.Field(k).Type)
		}
	default:
		panic("the state of a model has a field of more than one byte: " + t.String())
	}
}

// lost returns the first state from which no end is reached.
func (e *search[S, T]) lost(ends []uint32) (uint32, bool) {
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

// trace describes the path to a state.
func (e *search[S, T]) trace(last uint32) (out []string) {
	var path []T
	for k := last; k != 0; k = e.links[k].parent {
		path = append(path, e.links[k].step)
	}
	s := e.First()
	for k, st := range slices.Backward(path) {
		var to S
		e.Next(&s, func(is T, next *S, _ string) {
			if is == st {
				to = *next
			}
		})
		out = append(out, fmt.Sprintf("%2d  %s", len(path)-k, e.Say(st, &s, &to)))
		s = to
	}
	return out
}
