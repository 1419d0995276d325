//go:build faults

package node

import (
	"testing"

	"basalt.dev/basalt/api/fault"
	scripts "basalt.dev/basalt/bench/prove/script"
)

// TestFaultsAreSeen: a script sees the bug of this package that the simulator does not find.
func TestFaultsAreSeen(t *testing.T) {
	start := func(t *testing.T) scripts.Player { return newScript(t).checked(func(error) {}) }
	scripts.Sees(t, "promise_claimants", start, func(on bool) {
		if fault.Set(); on {
			fault.Set(fault.PromiseReplaced)
		}
	})
}
