package local

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func gone(pid int) bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

func TestKilledProcessIsStartedAgain(t *testing.T) {
	p, err := startProcess(command{
		name: "sleeper", path: "/bin/sh", args: []string{"-c", "exec sleep 1000"},
		log: filepath.Join(t.TempDir(), "log"), restartAfter: time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	first := p.Pid()
	p.Kill()
	if !gone(first) {
		t.Errorf("Kill returned before process %d was gone", first)
	}
	for deadline := time.Now().Add(time.Minute); p.Starts() < 2 && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
	}
	if p.Starts() != 2 || p.Pid() == first || p.Exited() {
		t.Fatalf("after Kill: started %d times, pid %d (was %d), ended %v", p.Starts(), p.Pid(), first, p.Exited())
	}
	if err := p.Signal(syscall.SIGSTOP); err != nil { // a paused process must be stoppable, too
		t.Fatal(err)
	}
	second := p.Pid()
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
	if !gone(second) || !p.Exited() || p.Starts() != 2 {
		t.Errorf("after Stop: gone %v, ended %v, started %d times", gone(second), p.Exited(), p.Starts())
	}
	if err := p.Stop(); err != nil {
		t.Errorf("second Stop: %v", err)
	}
}

func TestStopKillsWhatDoesNotEnd(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	p, err := startProcess(command{
		name: "deaf", path: "/bin/sh", args: []string{"-c", "trap '' TERM; echo listening; while :; do sleep 1; done"},
		log: log, grace: 50 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); Tail(log, 1) != "listening" && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
	}
	pid := p.Pid()
	err = p.Stop()
	if err == nil || !strings.Contains(err.Error(), "deaf did not end") || !strings.Contains(err.Error(), "listening") {
		t.Errorf("error %v", err)
	}
	if !gone(pid) {
		t.Error("still there")
	}
}

// Waiting for the successor of a killed process is no error; waiting for one that dies at every start is.
func TestWaitReadyCountsDeaths(t *testing.T) {
	p, err := startProcess(command{
		name: "mayfly", path: "/bin/sh", args: []string{"-c", "echo born; exit 3"},
		log: filepath.Join(t.TempDir(), "log"), restartAfter: time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Stop() }()
	err = p.waitReady(t.Context(), 2, func(context.Context) error {
		if p.Starts() < 100 {
			return errors.New("not yet")
		}
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), "mayfly died while starting (exit status 3)") || p.Starts() < 3 {
		t.Errorf("error %v after %d starts", err, p.Starts())
	}
	err = p.waitReady(t.Context(), p.Starts()+1000, func(context.Context) error {
		if p.Starts() < 20 {
			return errors.New("not yet")
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
