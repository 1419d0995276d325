//go:build faults

package coordinator

import (
	"os"
	"strings"
	"testing"
	"time"

	"basalt.dev/basalt/api/fault"
)

// TestUserPromisesAreSeen: if what is promised to claims does not count for users, the store sees one above his limit
// in the script about it.
func TestUserPromisesAreSeen(t *testing.T) {
	text, err := os.ReadFile("testdata/users_claim.txt")
	if err != nil {
		t.Fatal(err)
	}
	run := func() []string {
		p := &player{t: t, store: newStore(), now: time.UnixMilli(1_000_000), uids: map[string]string{},
			generations: map[string]int64{}, attempts: map[string]uint64{}}
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
