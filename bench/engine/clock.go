package engine

import (
	"time"

	"golang.org/x/sys/unix"
)

// cpuTime is what the calling thread has used of a core: other processes on the machine do not count.
func cpuTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
