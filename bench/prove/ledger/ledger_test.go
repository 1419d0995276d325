package ledger

import (
	"strings"
	"testing"
	"time"
)

func TestTry(t *testing.T) {
	for _, p := range Patterns {
		for _, late := range []bool{false, true} {
			p.Late = late
			r := Run(Config{Pattern: p, Changes: 1, Attempts: 1, Limit: 10000000}, time.Now)
			t.Logf("%s late %t: %s\n%s", p.Name, late, r, strings.Join(r.Trace, "\n"))
		}
	}
}

func TestTryWeak(t *testing.T) {
	for _, w := range Rules() {
		var got []string
		for _, p := range Patterns {
			for _, late := range []bool{false, true} {
				p.Late = late
				r := Run(Config{Pattern: p, Weak: []Rule{w}, Changes: 1, Attempts: 1, Limit: 600000}, time.Now)
				v := "-"
				if r.Violation != "" {
					v = r.Violation[:3]
				} else if r.Complete {
					v = "exhausted"
				}
				got = append(got, v)
			}
		}
		t.Log(w, got)
	}
}
