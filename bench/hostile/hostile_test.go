package hostile_test

import (
	"strings"
	"testing"

	"basalt.dev/basalt/bench/hostile"
)

// Names are in the flags of `basalt-bench hostile`, and in the names of objects.
func TestAttacksHaveNames(t *testing.T) {
	seen := map[string]bool{}
	for _, a := range hostile.Attacks() {
		if a.Name == "" || len(a.Name) > 20 || a.About == "" || seen[a.Name] || strings.ToLower(a.Name) != a.Name {
			t.Errorf("attack %q: it needs a short name of its own, and a line about it", a.Name)
		}
		seen[a.Name] = true
	}
	if chosen, err := hostile.Choose([]string{"affinity", "churn"}); err != nil || len(chosen) != 2 || chosen[1].Name != "churn" {
		t.Errorf("chosen %v, %v", chosen, err)
	}
	if _, err := hostile.Choose([]string{"no-such"}); err == nil {
		t.Error("an unknown name was taken")
	}
}
