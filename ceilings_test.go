package basalt

import (
	"testing"

	"basalt.dev/basalt/bench/prove/gauge"
)

// TestCeilings holds packages and types to the limits of the house, and what is over them to a ceiling that only falls.
// It takes 25 s because it reads the types of every package.
func TestCeilings(t *testing.T) {
	wrong, err := gauge.Check(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range wrong {
		t.Error(w)
	}
	raised, err := gauge.Raised(".")
	if err != nil {
		t.Skipf("whether a ceiling was raised could not be seen: %v", err)
	}
	for _, r := range raised {
		t.Error(r)
	}
}

// TestChangedLinesAreNotWide: lines that were wide before the rule may stay until somebody changes them.
func TestChangedLinesAreNotWide(t *testing.T) {
	wide, err := gauge.Wide(".", gauge.Since)
	if err != nil {
		t.Skipf("which lines were changed could not be seen: %v", err)
	}
	for _, w := range wide {
		t.Error(w)
	}
}
