//go:build faults

package fault

import (
	"os"
	"slices"
	"strings"
	"sync/atomic"
)

// Built reports whether this build has the bugs.
const Built = true

var on atomic.Pointer[[]Fault]

func init() {
	var faults []Fault
	for name := range strings.SplitSeq(os.Getenv("BASALT_FAULTS"), ",") {
		faults = append(faults, Fault(name))
	}
	Set(faults...)
}

// On reports whether a bug is switched on: by the environment variable BASALT_FAULTS, names separated by commas, or by Set.
func On(f Fault) bool { return slices.Contains(*on.Load(), f) }

// Set switches these bugs on and all others off.
func Set(faults ...Fault) { on.Store(&faults) }
