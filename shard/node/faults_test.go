//go:build faults

package node

import (
	"testing"

	"basalt.dev/basalt/api/fault"
	scripts "basalt.dev/basalt/bench/prove/script"
)

// TestFaultsAreSeen: scripts see those bugs of this package that the simulator does not find, or hardly ever.
func TestFaultsAreSeen(t *testing.T) {
	for bug, name := range map[fault.Fault]string{
		fault.PromiseReplaced: "promise_claimants", fault.LeftUnjudged: "left_unfit",
		fault.UnsaidLabels: "repel", fault.HeirForgetsTerms: "repel",
	} {
		start := func(t *testing.T) scripts.Player { return newScript(t).checked(func(error) {}) }
		scripts.Sees(t, name, start, func(on bool) {
			if fault.Set(); on {
				fault.Set(bug)
			}
		})
	}
}
