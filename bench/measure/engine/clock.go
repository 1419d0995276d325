package engine

import (
	"math/rand/v2"
	"time"

	"golang.org/x/sys/unix"
)

// cpuTime is what the calling thread has used of a core: other processes on the machine do not count. (What getrusage says
// of a thread goes in steps of a scheduler's tick.)
func cpuTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// randomRead is how long one read takes that depends on the one before, somewhere in 64 MiB: what a large cluster's decisions
// are made of, and what other programs on the machine make slow.
func randomRead(seed uint64) time.Duration {
	const cells, reads = 1 << 24, 1 << 18
	r := rand.New(rand.NewPCG(seed, 11))
	next := make([]uint32, cells)
	for i := range next {
		next[i] = uint32(i)
	}
	for i := len(next) - 1; i > 0; i-- { // Sattolo: one cycle
		j := r.IntN(i)
		next[i], next[j] = next[j], next[i]
	}
	at, began := uint32(0), cpuTime()
	for range reads {
		at = next[at]
	}
	took := cpuTime() - began
	if at == cells { // never: for the compiler
		return 0
	}
	return took / reads
}
