package sim

import (
	"context"
	"maps"
	"slices"
	"strings"
)

// Kind says what sort of violation one is: its words up to the first that names an object, a number or a time.
func Kind(violation string) string {
	violation, _, _ = strings.Cut(violation, "\n")
	if late, what, is := strings.Cut(violation, " after the end of the faults: "); is { // how late says nothing, what is left does
		name, _, _ := strings.Cut(late, " ")
		violation = name + " " + what
	}
	var kept []string
	for _, word := range strings.Fields(violation) {
		if len(kept) > 0 && (strings.ContainsAny(word, "0123456789#@\"/[{") || len(kept) >= 8) && !strings.HasPrefix(word, "I") {
			break
		}
		kept = append(kept, word)
	}
	return strings.TrimRight(strings.Join(kept, " "), ":,")
}

// Shrink takes out of a script whatever its violation does not need, by delta debugging (Zeller, Hildebrandt), and returns
// what is left and how many runs that took. It stops early when ctx ends.
func Shrink(ctx context.Context, s *Script) (*Script, int) {
	runs := 0
	first := Run(Config{Script: s})
	kind, brief := Kind(first.Violation), !first.Late
	fails := func(lines []Line) bool {
		runs++
		r := Run(Config{Script: &Script{Jitter: s.Jitter, Lines: lines}, Brief: brief, Tail: 1})
		return r.Violation != "" && Kind(r.Violation) == kind
	}
	lines := slices.Clone(s.Lines)
	if first.Violation == "" || !fails(lines) {
		return s, runs
	}
	without := func(drop func(i int, l Line) bool) bool {
		var rest []Line
		for i, l := range lines {
			if l.verb() == "calm" || !drop(i, l) {
				rest = append(rest, l)
			}
		}
		if len(rest) == len(lines) || ctx.Err() != nil || !fails(rest) {
			return false
		}
		lines = rest
		return true
	}
	verbs := map[string]bool{}
	for _, l := range lines {
		verbs[l.verb()] = true
	}
	if !without(func(_ int, l Line) bool { return l.isMishap() }) {
		for _, v := range mishaps {
			without(func(_ int, l Line) bool { return l.verb() == v })
		}
	}
	for _, v := range slices.Sorted(maps.Keys(verbs)) {
		without(func(_ int, l Line) bool { return l.verb() == v })
	}
	for chunk := (len(lines) + 1) / 2; chunk > 0 && ctx.Err() == nil; {
		progress := false
		for from := 0; from < len(lines) && ctx.Err() == nil; {
			if without(func(i int, _ Line) bool { return i >= from && i < from+chunk }) {
				progress = true
				continue
			}
			from += chunk
		}
		if chunk == 1 && !progress {
			break
		}
		if !progress || chunk > 1 {
			chunk = max(1, chunk/2)
		}
	}
	return &Script{Jitter: s.Jitter, Lines: lines}, runs
}
