package main

import (
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// timerSlack is how late the kernel may wake a thread of a shard or coordinator. None of their timers needs to be more precise.
const timerSlack = 5 * time.Millisecond

// usualSlack is the default of Linux.
const usualSlack = 50 * time.Microsecond

// withSlack executes the program again with timerSlack, in the same process. It returns if that was done before, if the process was
// started with another slack than the default, or if it fails.
//
// While anything runs in a Go program, a thread of its runtime (sysmon) wakes up every 20 us, and less often only after a
// millisecond without work. Basalt's processes run some hundred times a second for some 100 us each, so that thread used a fifth of
// a shard's CPU on a busy machine. Slack is per thread, is inherited by the threads that a thread starts, and survives exec. The
// runtime's thread exists before main runs, so only a new start can change its slack.
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
