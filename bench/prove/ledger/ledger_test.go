package ledger

import (
	"strings"
	"testing"
	"time"
)

func TestTryWeak(t *testing.T) {
	for _, w := range Rules() {
		best := ""
		bestN := 1 << 30
		for _, p := range Patterns {
			for _, late := range []bool{false, true} {
				for _, att := range []uint8{1, 2} {
					all := p.Next
					for k := range all {
						for ch := uint8(0); ch < 2; ch++ {
							if ch == 0 && k > 0 {
								continue
							}
							q := p
							q.Late, q.Next = late, all[k:k+1]
							r := Run(Config{Pattern: q, Weak: []Rule{w}, Changes: ch, Attempts: att, Limit: min(bestN, 150000), OnlyC2: w != CountOutlivesTicket}, time.Now)
							if r.Violation != "" && r.States < bestN {
								bestN = r.States
								best = p.Name + " " + q.Next[0].String() + " late " + map[bool]string{true: "y", false: "n"}[late] + " att " + string('0'+rune(att)) + " ch " + string('0'+rune(ch)) + ": " + r.String() + "\n" + strings.Join(r.Trace, "\n")
							}
						}
					}
				}
			}
		}
		t.Log(w, best)
	}
}
