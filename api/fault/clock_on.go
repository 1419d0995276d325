//go:build faults

package fault

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"
)

// offset is by how many seconds the wall clock is wrong.
var offset atomic.Int64

func init() {
	path := os.Getenv("BASALT_CLOCK")
	if path == "" {
		return
	}
	go func() {
		for {
			if text, err := os.ReadFile(path); err == nil {
				if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil {
					offset.Store(n)
				}
			}
			time.Sleep(100 * time.Millisecond)
		}
	}()
}

// Now is time.Now with a wall clock that is wrong by as many seconds as the file that BASALT_CLOCK names says. The monotonic
// clock is right, as it is when the clock of a machine is stepped.
func Now() time.Time {
	t := time.Now()
	if by := offset.Load(); by != 0 {
		// With a monotonic reading, a Time's first word is a flag, 33 bits of seconds, and 30 bits of nanoseconds. Add would
		// move both clocks.
		wall := (*uint64)(unsafe.Pointer(&t))
		*wall += uint64(by << 30)
	}
	return t
}
