// Package explore runs every interleaving of a small Basalt: the production cores of two shards and of a coordinator around
// the models of package model. Where package sim draws one of many things that could happen next, this package takes them
// all: each message delivered, each transaction and each Binding carried out at the server, each answer and each change of
// the store and of pods heard, each process crashed and started again, in every order. A state that was seen before is not
// gone into twice.
//
// It decides nothing about Basalt. It owns what can happen next and how often (Config): that is what a result is complete
// for, and it is printed with it. After every step the invariants are judged (check.go), and from every state at the edge of
// what is explored a fair schedule without faults leads to the end, where each gang must have had its pods and nothing may
// be left.
//
// What is not explored but done at once, in the step that causes it: summaries and usages, statuses of Queues and PodGroups,
// which no decision of the protocol rests on, and what processes see of nodes, Queues and PodGroups. Time passes by itself
// only while nothing else can happen; that it does earlier is one of the faults.
//
// Invariants: there is no clock, no randomness and no goroutine. A world is copied whole (clone.go); what the house's rules
// call immutable is shared.
package explore

import (
	"fmt"
	"runtime/debug"
	"strings"
	"time"
)

// Config is what is explored.
type Config struct {
	Gangs   int // 1 or 2, each with a pod for both nodes, of which only one has room at a time; 2 if 0
	Crashes int // of any process, at any point
	Early   int // times that time passes (each of Leaps) although something is under way
	Lost    int // calls to a server whose answer is lost, and messages lost
	Waits   int // times that time passes because nothing else can happen, before the fair schedule; 1 if 0
	Quota   int // how many gangs the queue's capability admits at once; all if 0

	Delays int // times that what comes first in a fair order is put off; 0 for no limit

	Longest int // steps after which a way that does not end is a violation; 0 for any

	States   int           // give up after so many; 0 for never
	For      time.Duration // likewise
	Progress func(Result)  // told now and then
	Stop     func() bool   // asked now and then: give up
}

// Result is what was explored.
type Result struct {
	States, Transitions, Ends int
	Parts, Steps              int // different states of single cores and servers, and steps that they took
	Depth                     int
	Complete                  bool // within Config
	Took                      time.Duration
	Violation                 string
	Path                      []string // that leads to it
}

// String is a report for people.
func (r Result) String() string {
	s := fmt.Sprintf("%d states, %d transitions, %d ends, depth %d, %d states of single parts and %d steps of theirs, in %s", r.States, r.Transitions, r.Ends, r.Depth, r.Parts, r.Steps, r.Took.Round(time.Millisecond))
	if r.Violation != "" {
		return s + "\n" + strings.Join(r.Path, "\n") + "\nviolation: " + r.Violation
	}
	if !r.Complete {
		return s + ": not complete"
	}
	return s + ": complete, no violation"
}

// violation ends an exploration.
type violation string

// frame is a state on the way, and what of it is still to be tried.
type frame struct {
	w       *world
	actions []action
	next    int
}

// Run explores.
func Run(cfg Config, now func() time.Time) (r Result) {
	if cfg.Gangs == 0 {
		cfg.Gangs = 2
	}
	if cfg.Waits == 0 {
		cfg.Waits = 1
	}
	began := now()
	var stack []frame
	var last string
	var known *known
	defer func() {
		r.Took = now().Sub(began)
		if known != nil {
			r.Parts, r.Steps = len(known.parts.all), known.parts.misses
		}
		switch failed := recover().(type) {
		case nil:
			return
		case violation:
			r.Violation = string(failed)
		default:
			r.Violation = fmt.Sprintf("panic: %v\n%s", failed, debug.Stack())
		}
		for _, f := range stack {
			if f.next > 0 {
				r.Path = append(r.Path, f.w.name(f.actions[f.next-1]))
			}
		}
		if last != "" {
			r.Path = append(r.Path, "then, without any fault: "+last)
		}
	}()
	first := begin(cfg)
	known = first.known
	seen, ended := map[uint64]struct{}{}, map[uint64]struct{}{}
	enter := func(w *world) {
		sum := w.sum()
		if _, is := seen[sum]; is {
			return
		}
		seen[sum] = struct{}{}
		r.States++
		actions := w.actions()
		if w.atEnd() {
			r.Ends++
			last = "the fair schedule"
			w.copied().finish(ended)
			last = ""
		}
		if len(actions) == 0 {
			return
		}
		stack = append(stack, frame{w: w, actions: actions})
		r.Depth = max(r.Depth, len(stack))
		if cfg.Longest > 0 && len(stack) > cfg.Longest {
			fail("there is something to do after %d steps", cfg.Longest)
		}
	}
	enter(first)
	for len(stack) > 0 {
		f := &stack[len(stack)-1]
		if f.next == len(f.actions) {
			stack[len(stack)-1] = frame{}
			stack = stack[:len(stack)-1]
			continue
		}
		w := f.w.copied()
		a := f.actions[f.next]
		f.next++
		r.Transitions++
		w.do(a)
		enter(w)
		if r.Transitions%256 == 0 {
			r.Took, r.Parts, r.Steps = now().Sub(began), len(known.parts.all), known.parts.misses
			if cfg.States > 0 && r.States >= cfg.States || cfg.For > 0 && r.Took > cfg.For || cfg.Stop != nil && cfg.Stop() {
				return r
			}
			if cfg.Progress != nil {
				cfg.Progress(r)
			}
		}
	}
	r.Complete = true
	return r
}
