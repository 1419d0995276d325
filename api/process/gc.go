package process

import (
	"os"
	"runtime/debug"
)

// SetGC has the garbage collected at five times the live heap instead of twice, unless GOGC says otherwise. Much of what
// Basalt's processes allocate lives for one event, beside a heap of some ten MiB: it takes a tenth of a shard's CPU away, for
// a third more memory. GOMEMLIMIT, which deploy/ sets, is what bounds a large cluster's.
func SetGC() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
}
