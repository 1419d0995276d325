//go:build faults

package fault

import (
	"os"
	"path/filepath"
	"syscall"
	"time"
)

var crashes = os.Getenv("BASALT_CRASHES")

// Crash ends the process at a point, where that is asked for.
func Crash(p Point) {
	if armed(p) {
		die()
	}
}

// CrashSoon ends the process while the call that follows is on its way: before it arrives or after, as it happens.
func CrashSoon(p Point) {
	if armed(p) {
		time.AfterFunc(time.Millisecond, die)
	}
}

func armed(p Point) bool { return crashes != "" && os.Remove(filepath.Join(crashes, string(p))) == nil }

func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // until it arrives
}
