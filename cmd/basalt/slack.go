package main

import (
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// timerSlack is how late the kernel may wake a thread of a shard or coordinator. No timer of theirs is finer.
const timerSlack = 5 * time.Millisecond

// usualSlack is what Linux gives to a process that nobody said anything about.
const usualSlack = 50 * time.Microsecond

// withSlack starts the program over with timerSlack, in the same process; it returns if that was done before, if whoever
// started the process chose a slack, or if it cannot be done.
//
// Why: while anything runs in a Go program, a thread of its runtime (sysmon) looks after it every 20 us, and only after a
// millisecond without need less often. These processes wake some hundred times a second for some 100 us each, so that
// nothing else woke that much: a fifth of a shard's CPU on a busy machine. Slack belongs to a thread, goes on to those that
// it starts and outlives exec; the runtime's thread is there before main is, so nothing short of a new start changes its own.
func withSlack() {
	if now, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0); err != nil || time.Duration(now) != usualSlack {
		return
	}
	program, err := os.Executable()
	if err != nil {
		return
	}
	runtime.LockOSThread() // exec keeps the slack of the thread that calls it
	defer runtime.UnlockOSThread()
	if unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(timerSlack), 0, 0, 0) == nil {
		_ = syscall.Exec(program, os.Args, os.Environ())
	}
}
