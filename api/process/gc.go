package process

import (
	"os"
	"runtime/debug"
)

// SetGC makes the garbage collector start at five times the live heap instead of twice, unless GOGC is set. Most of what Basalt's
// processes allocate lives for one event, beside a heap of some ten MiB. This saves a tenth of a shard's CPU and costs a third more
// memory. In a large cluster, GOMEMLIMIT bounds the heap (deploy/ sets it).
func SetGC() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
}
