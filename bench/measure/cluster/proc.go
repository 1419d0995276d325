package cluster

import (
	"runtime"
)

// HeapInUse is what the program's live objects take, in bytes, right after a collection.
func HeapInUse() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
