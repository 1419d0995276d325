package spec

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// walker is on one of 16 fields of a ring, and jumps between them. What it may not step on is bad, and what it cannot
// leave is an end.
type walker struct {
	jumps [16][]uint8
	bad   uint8
	quiet string // what is wrong with a field from which one step leads on
}

type field struct{ at uint8 }

func (w *walker) First() field { return field{} }

func (w *walker) Next(s *field, emit func(uint8, *field, string)) {
	for _, to := range w.jumps[s.at] {
		violation := ""
		if to == w.bad {
			violation = fmt.Sprintf("%d is bad", to)
		}
		emit(to, &field{to}, violation)
	}
}

func (w *walker) Judge(_ *field, steps []uint8) string {
	if len(steps) == 1 {
		return w.quiet
	}
	return ""
}

func (w *walker) Say(step uint8, from, to *field) string {
	return fmt.Sprintf("%d to %d as %d", from.at, to.at, step)
}

func TestRun(t *testing.T) {
	ring := [16][]uint8{0: {1, 2}, 1: {3}, 2: {3}, 3: {4}}
	circle := ring
	circle[4] = []uint8{5}
	circle[5] = []uint8{4}
	const whole = "5 states, 5 transitions, depth 4, 1 ends, 0s: exhausted"
	for _, one := range []struct {
		name  string
		w     walker
		b     Bounds
		want  string
		trace []string
	}{
		{"whole", walker{jumps: ring, bad: 9}, Bounds{Ends: true}, whole, nil},
		{"exact", walker{jumps: ring, bad: 9}, Bounds{Exact: true}, whole, nil},
		{"limit", walker{jumps: ring, bad: 9}, Bounds{Limit: 3},
			"3 states, 2 transitions, depth 1, 0 ends, 0s: not exhausted", nil},
		{"stopped", walker{jumps: ring, bad: 9}, Bounds{Stop: func() bool { return true }},
			"1 states, 0 transitions, depth 0, 0 ends, 0s: not exhausted", nil},
		{"bad step", walker{jumps: ring, bad: 3}, Bounds{}, "4 states, 3 transitions, depth 1, 0 ends, 0s: 3 is bad",
			[]string{" 1  0 to 1 as 1", " 2  1 to 3 as 3"}},
		{"bad step to a known state", walker{jumps: [16][]uint8{0: {1, 2}, 1: {0}}}, Bounds{},
			"4 states, 3 transitions, depth 1, 0 ends, 0s: 0 is bad", []string{" 1  0 to 1 as 1", " 2  1 to 0 as 0"}},
		{"quiet", walker{jumps: ring, bad: 9, quiet: "stuck"}, Bounds{},
			"4 states, 3 transitions, depth 1, 0 ends, 0s: stuck", []string{" 1  0 to 1 as 1"}},
		{"circle", walker{jumps: circle, bad: 9}, Bounds{}, "6 states, 7 transitions, depth 5, 0 ends, 0s: exhausted", nil},
		{"circle without end", walker{jumps: [16][]uint8{0: {1, 2}, 1: {1}}, bad: 9}, Bounds{Ends: true},
			"3 states, 3 transitions, depth 2, 1 ends, 0s: nothing comes to an end from here", []string{" 1  0 to 1 as 1"}},
	} {
		r := Run(&one.w, one.b, func() time.Time { return time.Time{} })
		if r.String() != one.want || !slices.Equal(r.Trace, one.trace) {
			t.Errorf("%s: %s\n%s\nwant %s\n%s", one.name, r, r.Text(), one.want, strings.Join(one.trace, "\n"))
		}
	}
}

type wide struct{ at uint16 }

type wideWalker struct{ Model[wide, uint8] }

// TestStatesAreBytes: a state with padding would be hashed with it.
func TestStatesAreBytes(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a state with a field of two bytes is explored")
		}
	}()
	Run(wideWalker{}, Bounds{}, time.Now)
}

type rule uint8

func (r rule) String() string { return []string{"first", "second"}[r] }

func TestWeaken(t *testing.T) {
	found := Result{Violation: "v", Trace: []string{"a", "b"}, States: 300_000}
	for _, one := range []struct {
		weak, kept Result
		wrong      string
	}{
		{found, Result{}, ""},
		{Result{}, Result{}, "second is not found"},
		{Result{Violation: "v", Trace: []string{"a"}}, Result{}, "second is not found"},
		{found, found, "second is found although the rule is kept"},
	} {
		_, err := Weaken(rule(1), 2, func(kept bool, limit int) Result {
			if kept {
				if limit != 200_000 {
					t.Errorf("with the rule, %d states", limit)
				}
				return one.kept
			}
			return one.weak
		})
		if (err == nil) != (one.wrong == "") || err != nil && !strings.HasPrefix(err.Error(), one.wrong) {
			t.Errorf("%v, want %q", err, one.wrong)
		}
	}
}

func TestRules(t *testing.T) {
	all := Rules(rule(2))
	if w := Weak(all[1:]); !slices.Equal(all, []rule{0, 1}) || w.Has(0) || !w.Has(1) {
		t.Errorf("rules %v, weakened %b", all, w)
	}
	names := []string{"first", "second"}
	if r, err := Named[rule](names, "second"); r != 1 || err != nil {
		t.Errorf("second is %d, %v", r, err)
	}
	if _, err := Named[rule](names, "third"); err == nil || err.Error() != "there is no rule third" {
		t.Errorf("third: %v", err)
	}
}
