package spec

import (
	"fmt"
	"slices"
)

// Weakened is the rules of a model that are not kept. A model has at most 64.
type Weakened[R ~uint8] uint64

// Weak returns a set of rules that are not kept.
func Weak[R ~uint8](rules []R) (w Weakened[R]) {
	for _, r := range rules {
		w |= 1 << r
	}
	return w
}

// Has reports whether a rule is not kept.
func (w Weakened[R]) Has(r R) bool { return w&(1<<r) != 0 }

// Rules returns all rules below an end.
func Rules[R ~uint8](end R) (all []R) {
	for r := range end {
		all = append(all, r)
	}
	return all
}

// Named returns the rule that has a name in a table of them.
func Named[R ~uint8](names []string, name string) (R, error) {
	i := slices.Index(names, name)
	if i < 0 {
		return 0, fmt.Errorf("there is no rule %s", name)
	}
	return R(i), nil
}

// Weaken explores a space with one rule that is not kept, which must be violated after shortest steps or more, and as
// much of the space with all rules, where nothing may be.
func Weaken(rule fmt.Stringer, shortest int, explore func(kept bool, limit int) Result) (Result, error) {
	r := explore(false, 2_000_000)
	if r.Violation == "" || len(r.Trace) < shortest {
		return r, fmt.Errorf("%s is not found: %s", rule, r)
	}
	if kept := explore(true, min(r.States, 200_000)); kept.Violation != "" {
		return r, fmt.Errorf("%s is found although the rule is kept: %s\n%s", rule, kept, kept.Text())
	}
	return r, nil
}
