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
// What a run with a crash is complete for: every order of messages delivered, transactions and Bindings carried out, answers
// and watches heard; any one process crashing at any point of that, with each of its calls under way taking effect at any
// later point, or never; the end of its lease at any point after that; a coordinator starting again at any point, a shard
// (Config.Rested) when all else has come to rest, and then again every order of its coming back. Without Rested a shard
// starts again at any point, too, which is a space too large for two gangs.
//
// What a run with an edit is complete for (Config.Edits): somebody changes a label of any pod that has not ended, at any point:
// it names a PodGroup that does not exist, none, the other gang's, or another queue. Judged is that what runs stays charged
// to the gang that it was bound for. At the fair end somebody sets the labels right of pods that have no node, and makes
// pods again that ended in another gang than theirs. Where gangs have no PodGroups (Config.Implied), an edit may also be that all pods of
// a gang are deleted and made again.
//
// What a run with a claim is complete for (Config.Claim, claim.go): one gang runs, and another one, which is denied quota, gets a mandate,
// asks for rooms, plans and claims; the first is evicted as a whole, or loses the one pod that it can do without; the second is bound. All
// of that in every order, with the eviction of each pod carried out at the server, the end of the pod at any later point, and the pod made
// again in the step in which it ends: its gang asks for quota and room while the claim goes on. With an edit, somebody also deletes a
// running pod of the victim at any point. There is one claimant and one victim: who else might take a promised room, or claim the same
// victim, is not there.
//
// What is not explored but done at once, in the step that causes it: summaries and usages, statuses of Queues and PodGroups,
// which no decision of the protocol rests on, and what processes see of nodes, Queues and PodGroups. Time passes by itself
// only while nothing else can happen; that it does earlier is one of the faults.
//
// With Config.Delays ways are tried in the order of how many steps they put off of a fair order (Config.Order), and what was
// explored is complete for that many. Without, the deepest come first, which needs little memory for what is still to do.
//
// What makes it fast (part.go): a core, or a server's object, is told something once in each of its states. A world is a
// tuple of such states and of what is under way, and it has far more states than they have. A step is a few look-ups.
//
// What is merged, and why nothing is missed: a state is a sum of 64 bits over all that can be told of it. Calls lie in no
// order, for servers do not know in which they were asked. Versions are counted for each object, and for each intent key,
// by itself: cores compare versions of one object only, and those of intents for equality only, so that the order in which
// different things were written is told by nothing. (Revisions of all other keys stay one count: ranks and takeovers
// compare them.) A call of the dead that can never take effect any more, because what it compares has moved for good, is
// left out (world.never). Steps that commute then lead to the same state, which is gone into once. There is no further
// partial-order reduction: a process may be told something by any other at any time, so that no small persistent sets were
// found.
//
// That all this is sound is tested: an exploration that merges nothing and remembers no step (Config.Plain) ends in the same
// states and finds the same bugs; processes that were never copied come to the same states by the same steps; and a run
// meets the same states as the one before. The second of these found a message that a core changed after it was shared, which
// had led copies of a coordinator to grants of another revision, and so into states that there are not; the last found rows
// that lie in the order of a map.
//
// Invariants: there is no clock, no randomness and no goroutine. A part is never changed; copies are made whole (clone.go),
// but what the house's rules call immutable is shared.
package explore

import (
	"cmp"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// Config is what is explored.
type Config struct {
	Gangs   int    // 1 or 2, each with a pod for both nodes, of which only one has room at a time; 2 if 0
	Implied bool   // their pods say all of them: there are no PodGroups
	Crashes int    // of any process, at any point
	Victims string // the processes that may crash, of s1, s2 and c; all if ""
	Rested  bool   // a shard that crashed starts again when everything else has come to rest; else at any point
	Edits   int    // labels of a pod that somebody changes, at any point (each of Labels)
	Early   int    // times that time passes (each of Leaps) although something is under way
	Lost    int    // calls to a server whose answer is lost, and messages lost
	Waits   int    // times that time passes because nothing else can happen, before the fair schedule; 1 if 0
	Quota   int    // how many gangs the queue's capability admits at once; all if 0
	Ungated bool   // more may be admitted than the nodes have: else these admit one at a time, too

	Claim    Claim // what one of the gangs takes from the other, which runs, if anything
	Statuses bool  // of PodGroups are written, and say that gangs have started

	Order   string // what comes first in the fair order: the letters of FairOrder, which it is if ""
	Delays  int    // times that what comes first in the fair order is put off; 0 for no limit, -1 for never
	Longest int    // steps after which a way that does not end is a violation; 0 for any

	Plain bool // merge nothing and remember no step: to show that nothing is missed by that

	Layer func(Result) // told when every way is done that puts off no more than Result.Delays steps

	States   int           // give up after so many; 0 for never
	For      time.Duration // likewise
	Progress func(Result)  // told now and then
	Stop     func() bool   // asked now and then: give up

	each func(first, w *world, s *step) // told of each state once
}

func (cfg Config) whole() Config {
	cfg.Gangs = cmp.Or(cfg.Gangs, 2)
	cfg.Waits = cmp.Or(cfg.Waits, 1)
	cfg.Order = cmp.Or(cfg.Order, FairOrder)
	if cfg.Claim != "" {
		cfg.Gangs, cfg.Quota = 2, 1
	}
	return cfg
}

// Result is what was explored.
type Result struct {
	States, Transitions, Ends int
	Parts, Steps              int  // different states of single cores and servers, and steps that they took
	Depth                     int  // of the longest way
	Delays                    int  // everything that puts off fewer steps is done
	Complete                  bool // within Config
	Took                      time.Duration
	Sum                       uint64 // of all states, in any order
	Violation                 string
	Path                      []string // that leads to it

	ends map[uint64]bool // by their sums
}

// String is a report for people.
func (r Result) String() string {
	s := fmt.Sprintf("%d states, %d transitions, %d ends, %d steps at most, %d states of single parts and %d steps of theirs, in %s",
		r.States, r.Transitions, r.Ends, r.Depth, r.Parts, r.Steps, r.Took.Round(time.Millisecond))
	if r.Violation != "" {
		return s + "\n" + strings.Join(r.Path, "\n") + "\nviolation: " + r.Violation
	}
	if !r.Complete && r.Delays == 0 {
		return s + ": not complete"
	}
	if !r.Complete {
		return fmt.Sprintf("%s: not complete; complete for orders that put off at most %d steps", s, r.Delays-1)
	}
	return s + ": complete, no violation"
}

// violation ends an exploration.
type violation string

// step is how a state was first met.
type step struct {
	from  *step
	a     action
	depth int32
}

// way is a step that is still to be taken.
type way struct {
	w    *world // before it
	from *step
	a    action
}

// Run explores.
func Run(cfg Config, now func() time.Time) (r Result) {
	cfg = cfg.whole()
	began := now()
	r.ends = map[uint64]bool{}
	var first *world
	var at *step // what is being done
	last := ""
	report := func() Result {
		r.Took = now().Sub(began)
		if first != nil {
			r.Parts, r.Steps = len(first.parts.all), first.parts.misses
		}
		return r
	}
	defer func() {
		report()
		switch failed := recover().(type) {
		case nil:
			return
		case violation:
			r.Violation = string(failed)
		default:
			r.Violation = fmt.Sprintf("panic: %v\n%s", failed, debug.Stack())
		}
		if first == nil {
			return
		}
		r.Path = path(first, at)
		if last != "" {
			r.Path = append(r.Path, "then, without any fault: "+last)
		}
	}()
	first = begin(cfg, false)
	seen, ended := map[uint64]struct{}{}, map[uint64]struct{}{}
	var ways, later []way // later ones put off one step more
	enter := func(w *world, s *step) {
		id := w.id()
		if _, is := seen[id]; is {
			return
		}
		seen[id] = struct{}{}
		r.States++
		r.Sum += mix(w.sum())
		if cfg.each != nil {
			cfg.each(first, w, s)
		}
		if s != nil {
			r.Depth = max(r.Depth, int(s.depth))
		}
		if cfg.Longest > 0 && r.Depth > cfg.Longest {
			fail("there is something to do after %d steps", cfg.Longest)
		}
		if w.atEnd() {
			r.Ends++
			r.ends[w.atRest()] = true
			last = "the fair schedule"
			w.copied().finish(ended)
			last = ""
		}
		for _, a := range w.actions() {
			if !a.delay || cfg.Delays == 0 {
				ways = append(ways, way{w, s, a})
			} else if r.Delays < cfg.Delays {
				later = append(later, way{w, s, a})
			}
		}
	}
	enter(first.copied(), nil)
	for len(ways) > 0 {
		next := ways[len(ways)-1]
		ways[len(ways)-1] = way{}
		ways = ways[:len(ways)-1]
		at = &step{next.from, next.a, 1}
		if next.from != nil {
			at.depth += next.from.depth
		}
		w := next.w.copied()
		r.Transitions++
		w.do(next.a)
		enter(w, at)
		if len(ways) == 0 && len(later) > 0 {
			if cfg.Layer != nil {
				cfg.Layer(report())
			}
			ways, later = later, nil
			r.Delays++
		}
		if r.Transitions%256 == 0 {
			report()
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

// path are the actions that lead to a state.
func (s *step) path() []action {
	var steps []action
	for ; s != nil; s = s.from {
		steps = append(steps, s.a)
	}
	slices.Reverse(steps)
	return steps
}

// path names the steps that lead to a state and through the next one.
func path(w *world, s *step) []string {
	steps := s.path()
	var names []string
	w = w.copied()
	for i, a := range steps {
		names = append(names, w.name(a))
		if i+1 < len(steps) {
			w.do(a)
		}
	}
	return names
}
