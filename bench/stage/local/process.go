package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// command says how a process is run.
type command struct {
	name         string // for people
	path         string
	args         []string
	namespace    string        // a network namespace to run in, by the program ip; empty for the starter's
	env          []string      // added to the environment
	log          string        // takes both outputs; appended to, so that a restart keeps what was before
	restartAfter time.Duration // 0: a process that ends stays ended
	grace        time.Duration // from SIGTERM to SIGKILL; 0 means 30 s
}

// Process is a child process, or with restartAfter a line of them, as a StatefulSet would keep.
type Process struct {
	command
	stop chan struct{} // closed by Stop
	done chan struct{} // closed when the last process of the line has ended

	mu      sync.Mutex
	cmd     *exec.Cmd
	exited  chan struct{} // closed when cmd has ended and was reaped
	starts  int
	stopped bool
	err     error
}

// onStarter runs f on one thread that never ends. Linux sends the parent-death signal when the *thread* that forked ends,
// so a child started from any goroutine could be killed while its parent lives on.
var onStarter = func() func(f func()) {
	var once sync.Once
	work := make(chan func())
	return func(f func()) {
		once.Do(func() {
			go func() {
				runtime.LockOSThread()
				for f := range work {
					f()
				}
			}()
		})
		done := make(chan struct{})
		work <- func() { defer close(done); f() }
		<-done
	}
}()

// noSignal asks whether a process is there.
const noSignal = syscall.Signal(0)

func startProcess(c command) (*Process, error) {
	p := newProcess(c)
	if err := p.spawn(); err != nil {
		return nil, err
	}
	go p.keep(func() error { return p.cmd.Wait() })
	return p, nil
}

func newProcess(c command) *Process {
	if c.grace == 0 {
		c.grace = 30 * time.Second
	}
	return &Process{command: c, stop: make(chan struct{}), done: make(chan struct{})}
}

func (p *Process) spawn() error {
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open log of %s: %w", p.name, err)
	}
	defer log.Close() // the child has its own
	cmd := exec.Command(p.path, p.args...)
	if p.namespace != "" { // ip becomes the program: it keeps the pid, and dies with its parent
		cmd = exec.Command("ip", append([]string{"netns", "exec", p.namespace, p.path}, p.args...)...)
	}
	cmd.Env = append(os.Environ(), p.env...)
	cmd.Stdout, cmd.Stderr = log, log
	// A group of its own: Ctrl-C on the terminal reaches the parent alone, which then ends its children in order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	onStarter(func() { err = cmd.Start() })
	if err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cmd, p.exited = cmd, make(chan struct{})
	p.starts++
	if p.stopped { // Stop came between the death of the last one and this start
		_ = cmd.Process.Kill()
	}
	return nil
}

// keep waits for the process and, where asked, starts it again.
func (p *Process) keep(await func() error) {
	defer close(p.done)
	for {
		err := await()
		p.mu.Lock()
		close(p.exited)
		p.err = err
		p.mu.Unlock()
		if p.restartAfter == 0 {
			return
		}
		select {
		case <-p.stop:
			return
		case <-time.After(p.restartAfter):
		}
		if err := p.spawn(); err != nil {
			p.mu.Lock()
			p.err = err
			p.mu.Unlock()
			return
		}
	}
}

// Name is what the process is called.
func (p *Process) Name() string { return p.name }

// Log is the path of the file with both its outputs.
func (p *Process) Log() string { return p.log }

// Pid is the id of the process, of the latest where it is restarted.
func (p *Process) Pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd.Process.Pid
}

// Starts counts how often the process was started.
func (p *Process) Starts() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.starts
}

// Done is closed when the process has ended and will not be started again.
func (p *Process) Done() <-chan struct{} { return p.done }

// Exited reports whether Done is closed.
func (p *Process) Exited() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// deaths counts how often the process has ended.
func (p *Process) deaths() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.exited:
		return p.starts
	default:
		return p.starts - 1
	}
}

// Stopped reports whether Stop or Kill was called, so that an end is no surprise.
func (p *Process) Stopped() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stopped
}

// Err says how the process ended, after Done or after a death that is followed by a restart.
func (p *Process) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// Signal sends a signal, for example SIGSTOP; os.ErrProcessDone if the process has ended.
func (p *Process) Signal(s os.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd.Process.Signal(s)
}

// Kill sends SIGKILL and returns when the process is gone. With restartAfter another one follows.
func (p *Process) Kill() {
	p.mu.Lock()
	if p.restartAfter == 0 {
		p.stopped = true
	}
	exited := p.exited
	_ = p.cmd.Process.Kill()
	p.mu.Unlock()
	<-exited
	if p.restartAfter == 0 {
		<-p.done
	}
}

// Stop sends SIGTERM, after the grace SIGKILL, and returns when the process is gone for good. It reports an exit status
// that is not 0, and the need for SIGKILL.
func (p *Process) Stop() error {
	p.mu.Lock()
	first := !p.stopped
	p.stopped = true
	if first {
		close(p.stop)
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	_ = p.cmd.Process.Signal(syscall.SIGCONT) // it may be paused
	p.mu.Unlock()
	select {
	case <-p.done:
	case <-time.After(p.grace):
		p.mu.Lock()
		_ = p.cmd.Process.Kill()
		p.mu.Unlock()
		<-p.done
		if first {
			return p.deathError(fmt.Sprintf("did not end within %s of SIGTERM", p.grace))
		}
	}
	if err := p.Err(); first && err != nil && !endedBy(err, syscall.SIGTERM) {
		return p.deathError("ended badly")
	}
	return nil
}

func endedBy(err error, s syscall.Signal) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == s
}

// deathError says what happened to a process and quotes its last words.
func (p *Process) deathError(what string) error {
	return fmt.Errorf("%s %s (%v); the end of %s:\n%s", p.name, what, p.Err(), p.log, Tail(p.log, 15))
}

// waitReady asks until the answer is yes, the process has ended for good or more often than it may, counted from its first
// start, the context ends, or readyWithin is over.
func (p *Process) waitReady(ctx context.Context, mayDie int, ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		ask, cancelAsk := context.WithTimeout(ctx, 5*time.Second)
		err := ready(ask)
		cancelAsk()
		if p.Exited() || p.deaths() > mayDie { // first: somebody else may have answered on our port
			return p.deathError("died while starting")
		}
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
		case <-tick.C:
		case <-ctx.Done():
			return p.deathError(fmt.Sprintf("did not become ready: %v (%v)", err, context.Cause(ctx)))
		}
	}
}

// Tail returns the last lines of a file, at most 8 KiB of them.
func Tail(path string, lines int) string {
	f, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	const most = 8 << 10
	if size, err := f.Seek(0, io.SeekEnd); err == nil {
		_, _ = f.Seek(max(0, size-most), io.SeekStart)
	}
	b, _ := io.ReadAll(io.LimitReader(f, most))
	all := strings.Split(strings.TrimRight(string(b), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// freePorts returns ports that nobody listens on at this moment. They are taken from below the range that the kernel gives
// to outgoing connections: there, a program that is restarted on its port could find a client's connection sitting on it.
func freePorts(n int) ([]int, error) {
	const low, high = 15000, 32000
	ports := map[int]bool{}
	var found []int
	for range 1000 {
		port := low + rand.IntN(high-low)
		if ports[port] {
			continue
		}
		ports[port] = true
		if !claim(port) {
			continue
		}
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		l.Close()
		if u, err := net.ListenPacket("udp", fmt.Sprintf("127.0.0.1:%d", port)); err != nil { // gossip wants both
			continue
		} else {
			u.Close()
		}
		if found = append(found, port); len(found) == n {
			return found, nil
		}
	}
	return nil, errors.New("find free ports: none among 1000")
}

// claims are the ports that this process has given out. Between finding a port free and a program's listening on it,
// somebody else may find it free, too: another goroutine, or another test program that runs beside.
var claims struct {
	sync.Mutex
	held map[int]net.Listener
}

// claim takes a port for as long as this process lives, by a name in Linux' abstract socket namespace: it needs no file, and
// is gone with the process.
func claim(port int) bool {
	claims.Lock()
	defer claims.Unlock()
	if claims.held[port] != nil {
		return false
	}
	l, err := net.Listen("unix", fmt.Sprintf("@basalt-local-port-%d", port))
	if err != nil {
		return false
	}
	if claims.held == nil {
		claims.held = map[int]net.Listener{}
	}
	claims.held[port] = l
	return true
}

// onFreePorts runs start with n free ports, again with others if somebody was faster. With keep it runs once, with nil.
func onFreePorts(keep bool, n int, start func(ports []int) error) error {
	if keep {
		return start(nil)
	}
	for attempt := 1; ; attempt++ {
		ports, err := freePorts(n)
		if err != nil {
			return err
		}
		err = start(ports)
		if err == nil || attempt == 5 || !strings.Contains(err.Error(), "address already in use") {
			return err
		}
	}
}
