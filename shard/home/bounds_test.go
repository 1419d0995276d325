package home

import (
	"testing"
	"time"
)

// A budget starts full, grows by its rate, never holds more than a second's worth, and counts no moment twice.
func TestTokens(t *testing.T) {
	for _, rate := range []int{0, -1} {
		if none := (&tokens{rate: rate}); none.take(epoch0) {
			t.Errorf("a budget of %d a second gave something", rate)
		}
	}
	b := tokens{rate: 4}
	for _, step := range []struct {
		after time.Duration
		gives int
	}{
		{0, 4}, {249 * time.Millisecond, 0}, {time.Millisecond, 1}, {999 * time.Millisecond, 3}, {time.Millisecond, 1},
		{time.Hour, 4}, {0, 0}, {1500 * time.Millisecond, 4},
	} {
		now := b.last.Add(step.after)
		if b.last.IsZero() {
			now = epoch0
		}
		gives := 0
		for b.take(now) {
			gives++
		}
		if gives != step.gives {
			t.Errorf("%s later the budget gives %d, want %d", step.after, gives, step.gives)
		}
	}
	// In steps smaller than, as large as, and larger than a millisecond.
	for _, step := range []time.Duration{100 * time.Microsecond, time.Millisecond, 1100 * time.Microsecond} {
		b := tokens{rate: 10}
		for b.take(epoch0) {
		}
		gives := 0
		for at := step; at <= 10*time.Second; at += step {
			if b.take(epoch0.Add(at)) {
				gives++
			}
		}
		if gives > 100 || gives < 90 {
			t.Errorf("in steps of %s a budget of 10 a second gave %d in 10 s", step, gives)
		}
	}
}

// Refusals of the same words are added up, in the order of the words; words without a number are kept once.
func TestMergeWords(t *testing.T) {
	for _, test := range []struct {
		refused []string
		want    string
	}{
		{nil, ""},
		{[]string{""}, ""},
		{[]string{"2 insufficient cpu, 3 node(s) had untolerated taint", "5 insufficient cpu"}, "7 insufficient cpu, 3 node(s) had untolerated taint"},
		{[]string{"no nodes", "no nodes", "", "1 insufficient cpu"}, "1 insufficient cpu, no nodes"},
		{[]string{"12", "x 1", "-1 y"}, "12, x 1, y"},
		{[]string{"0 z"}, "z"},
	} {
		if got := mergeWords(test.refused); got != test.want {
			t.Errorf("%q: %q, want %q", test.refused, got, test.want)
		}
	}
}
