//go:build faults

package coordinator

import (
	"os"
	"strings"
	"testing"

	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/bench/prove/script"
)

// TestFaultsAreSeen: scripts see the bugs of this package that the simulator does not find.
func TestFaultsAreSeen(t *testing.T) {
	for bug, name := range map[fault.Fault]string{fault.BandThreePasses: "barred", fault.CondemnedReplaced: "surplus_died",
		fault.CondemnBelowMinimum: "surplus_refused"} {
		t.Run(string(bug), func(t *testing.T) {
			script.Sees(t, name, func(t *testing.T) script.Player { return newScripted(t).play }, func(on bool) {
				if fault.Set(); on {
					fault.Set(bug)
				}
			})
		})
	}
}

// TestUserPromisesAreSeen: if what is promised to claims does not count for users, the store sees one above his limit
// in the script about it.
func TestUserPromisesAreSeen(t *testing.T) {
	text, err := os.ReadFile("testdata/users_claim.txt")
	if err != nil {
		t.Fatal(err)
	}
	run := func() []string {
		p := newScripted(t)
		for line := range strings.Lines(string(text)) {
			if words := strings.Fields(line); len(words) > 0 && line[0] != ' ' && line[0] != '#' {
				p.do(words)
			}
		}
		return p.store.problems
	}
	if problems := run(); len(problems) > 0 {
		t.Errorf("without the fault: %q", problems)
	}
	fault.Set(fault.UserPromises)
	defer fault.Set()
	if problems := run(); len(problems) == 0 || !strings.Contains(problems[0], "user alice has 4000 of 3000 cpu") {
		t.Errorf("with the fault: %q", problems)
	}
}
