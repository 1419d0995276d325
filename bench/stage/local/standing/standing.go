// Package standing keeps a local cluster up after the command that made it has ended, and takes it down again.
//
// Up starts a supervisor in a session of its own: the same program with the subcommand that calls Hold. The supervisor holds
// every process of the cluster as its child, plays the nodes' kubelets, and starts dead shards and coordinators again. All
// state lies in .local/ of the repository.
//
// Invariants: there is one standing cluster a repository; a process id is believed only together with its start time; when
// the supervisor dies, however it dies, the kernel ends its children.
package standing

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"basalt.dev/basalt/bench/stage/kubelet"
	"basalt.dev/basalt/bench/stage/local"
)

// Shape is the size of the cluster.
type Shape struct {
	Shards, Coordinators, Nodes int
	// Volcano adds Volcano's definitions and controllers; Basalt is in place of Volcano's scheduler.
	Volcano bool
}

// endWithin is how long Down waits for an orderly end before it kills, and after that again.
const endWithin = time.Minute

// progressFD is where the supervisor writes lines for the person who waits.
const progressFD = 3

// state is what a later command must know, in .local/state.json.
type state struct {
	Pid          int
	Start        string // of the process, as the kernel tells it: a pid alone can be somebody else's by now
	Ready        bool
	Kubeconfig   string
	ControlStore []string
	Visibility   []string // of the shards
	Console      string   // the URL that opens it once
	Shape        Shape
}

func dir(root string) string       { return filepath.Join(root, ".local") }
func statePath(root string) string { return filepath.Join(dir(root), "state.json") }
func logPath(root string) string   { return filepath.Join(dir(root), "supervisor.log") }

// Up brings a cluster up and returns when it is ready for work. If one is up already, it says so and is content. hold are
// the arguments that make this program call Hold with the shape.
func Up(ctx context.Context, root string, out io.Writer, shape Shape, hold []string) error {
	unlock, err := lock(root)
	if err != nil {
		return err
	}
	defer unlock()
	s, err := readState(root)
	if err != nil {
		return err
	}
	if s.alive() {
		fmt.Fprintln(out, "A local cluster is already up.")
		describe(out, root, s)
		return nil
	}
	if err := clear(root); err != nil {
		return err
	}
	programs := []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"}
	if shape.Shards+shape.Coordinators > 0 {
		programs = append(programs, "basalt")
	}
	if shape.Volcano {
		programs = append(programs, local.VolcanoControllers)
	}
	if err := local.Programs(ctx, root, out, programs...); err != nil {
		return err
	}
	if err := startSupervisor(ctx, root, out, hold); err != nil {
		return err
	}
	if s, err = readState(root); err != nil {
		return err
	}
	describe(out, root, s)
	return nil
}

func startSupervisor(ctx context.Context, root string, out io.Writer, hold []string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find our own program: %w", err)
	}
	if err := os.MkdirAll(dir(root), 0o700); err != nil {
		return fmt.Errorf("make state folder: %w", err)
	}
	log, err := os.Create(logPath(root))
	if err != nil {
		return fmt.Errorf("make supervisor log: %w", err)
	}
	defer log.Close()
	read, write, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make pipe: %w", err)
	}
	defer read.Close()
	cmd := exec.Command(self, hold...)
	cmd.Dir = root
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{write}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	write.Close()
	if err != nil {
		return fmt.Errorf("start supervisor: %w", err)
	}
	interrupted := context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })
	defer interrupted()
	for lines := bufio.NewScanner(read); lines.Scan(); { // until the supervisor is ready, or has ended
		fmt.Fprintln(out, lines.Text())
	}
	s, err := readState(root)
	if err != nil || !s.Ready || ctx.Err() != nil {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		ended := cmd.Wait()
		tail := local.Tail(logPath(root), 30)
		if err := clear(root); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("bring the local cluster up: %w", context.Cause(ctx))
		}
		return fmt.Errorf("bring the local cluster up: the supervisor ended (%v):\n%s", ended, tail)
	}
	return cmd.Process.Release()
}

// describe tells a person how to go on.
func describe(out io.Writer, root string, s state) {
	fmt.Fprintf(out, `
  export KUBECONFIG=%s
  export BASALT_SERVER=%s

  kubectl get nodes
  kubectl apply --server-side -f %s   # a queue and a gang
  kubectl get bq,bpg,pods
  %s why default/NAME                # of a PodGroup or a pod
  %s status

Control store: %s   Logs: %s
`, s.Kubeconfig, strings.Join(s.Visibility, ","), filepath.Join(root, "deploy", "examples"),
		filepath.Join(root, "bin", "basalt"), filepath.Join(root, "bin", "basalt"),
		strings.Join(s.ControlStore, ","), filepath.Join(dir(root), "*.log"))
	if s.Console != "" {
		fmt.Fprintf(out, "\nIn a browser, once and within ten minutes, or later with %s console:\n  %s\n",
			filepath.Join(root, "bin", "basalt"), s.Console)
	}
	if s.Shape.Volcano {
		fmt.Fprintf(out, "\nVolcano's controllers run, with Basalt in place of its scheduler. A first job of Volcano's:\n"+
			"  kubectl apply -f %s\n", filepath.Join(root, "deploy", "examples", "volcano"))
	}
	if !s.Ready {
		fmt.Fprintln(out, "It is not ready yet.")
	}
}

// Hold runs a cluster until the context ends, then stops it. It is the supervisor's whole life; an error goes to its log.
func Hold(ctx context.Context, root string, shape Shape) (err error) {
	syscall.CloseOnExec(progressFD) // who waits for its end must not wait for our children
	progress := os.NewFile(progressFD, "progress")
	defer progress.Close()
	say := func(format string, args ...any) { fmt.Fprintf(progress, format+"\n", args...) }
	s := state{Pid: os.Getpid(), Shape: shape}
	if s.Start = startTime(s.Pid); s.Start == "" {
		return errors.New("read our own start time: there is no /proc")
	}
	if err := writeState(root, s); err != nil {
		return err
	}

	say("starting two etcds, kube-apiserver, kube-controller-manager and kube-scheduler")
	c, err := local.Start(ctx, local.Options{Root: root, Dir: dir(root), ControllerManager: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	if err := c.Install(ctx); err != nil {
		return err
	}
	if _, err := c.StartScheduler(ctx, -1, 0); err != nil { // of pods that name no scheduler, or its own
		return err
	}
	if shape.Volcano {
		say("starting Volcano's controllers")
		if _, err := c.StartVolcano(ctx); err != nil {
			return err
		}
	}
	config := c.Config(local.NodeStandIn)
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = config.ContentType + ",application/json"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	say("making %d nodes of 32 cores and 128Gi", shape.Nodes)
	for i := range shape.Nodes {
		node := kubelet.Node(fmt.Sprintf("node-%d", i), "32", "128Gi", 110)
		if _, err := client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("make node %s: %w", node.Name, err)
		}
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	wg.Go(func() {
		if err := kubelet.Run(ctx, kubelet.Options{Client: client, JobRun: 5 * time.Second}); err != nil {
			cancel(err)
		}
	})
	core := c.Processes()
	if err := startBasalt(ctx, c, shape, say); err != nil {
		return err
	}
	for _, p := range core {
		go func() { // ends with the process, which ends with us
			<-p.Done()
			cancel(fmt.Errorf("%s died; the end of its log:\n%s", p.Name(), local.Tail(p.Log(), 15)))
		}()
	}
	if s.Kubeconfig, err = c.Kubeconfig(local.Admin); err != nil {
		return err
	}
	s.Ready, s.ControlStore = true, c.ControlStore()
	s.Visibility = local.Answering(c.Basalts())
	if len(s.Visibility) > 0 {
		if s.Console, err = c.StartConsole(ctx); err != nil {
			return err
		}
	}
	if err := writeState(root, s); err != nil {
		return err
	}
	slog.Info("the local cluster is up", "kubeconfig", s.Kubeconfig)
	progress.Close()
	<-ctx.Done()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

func startBasalt(ctx context.Context, c *local.Cluster, shape Shape, say func(string, ...any)) error {
	if shape.Shards+shape.Coordinators == 0 {
		return nil
	}
	say("starting %d shards and %d coordinators", shape.Shards, shape.Coordinators)
	var o local.BasaltOptions
	if shape.Volcano {
		o = local.VolcanoInPlace()
	}
	o.Restart = true
	all, err := c.StartBasalt(ctx, shape.Coordinators, shape.Shards, o)
	if err != nil {
		return err
	}
	return local.WaitReady(ctx, all)
}

// Down ends the cluster that is up, waits until nothing of it is left, and removes its state.
func Down(root string, out io.Writer) error {
	unlock, err := lock(root)
	if err != nil {
		return err
	}
	defer unlock()
	s, err := readState(root)
	if err != nil {
		return err
	}
	if s.Pid == 0 {
		fmt.Fprintln(out, "No local cluster is up.")
		return clear(root)
	}
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		if !s.alive() {
			break
		}
		if err := syscall.Kill(s.Pid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("end supervisor %d: %w", s.Pid, err)
		}
		waitUntil(func() bool { return !s.alive() })
	}
	if s.alive() {
		return fmt.Errorf("end supervisor %d: it is still there after SIGKILL", s.Pid)
	}
	if err := clear(root); err != nil {
		return err
	}
	fmt.Fprintln(out, "The local cluster is down.")
	return nil
}

// clear removes the state of a cluster whose supervisor is gone. Its children die with it, but not at the same instant.
func clear(root string) error {
	if s, err := readState(root); err == nil && s.Pid != 0 {
		if !waitUntil(func() bool { return len(session(root, s.Pid)) == 0 }) {
			return fmt.Errorf("processes %v of the local cluster are still there", session(root, s.Pid))
		}
	}
	if err := os.RemoveAll(dir(root)); err != nil {
		return fmt.Errorf("remove state: %w", err)
	}
	return nil
}

func waitUntil(done func() bool) bool {
	for deadline := time.Now().Add(endWithin); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if done() {
			return true
		}
	}
	return done()
}

// lock keeps two commands from bringing a cluster up or down at once.
func lock(root string) (unlock func(), err error) {
	bin := filepath.Join(root, "bin") // .local itself comes and goes
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return nil, fmt.Errorf("make %s: %w", bin, err)
	}
	f, err := os.OpenFile(filepath.Join(bin, ".standing.lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, errors.New("another command is bringing the local cluster up or down")
	}
	return func() { f.Close() }, nil
}

// readState returns the zero state where there is none.
func readState(root string) (state, error) {
	var s state
	b, err := os.ReadFile(statePath(root))
	if errors.Is(err, os.ErrNotExist) {
		return s, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	if err != nil {
		return state{}, fmt.Errorf("read the local cluster's state (end its processes by hand and remove %s): %w", dir(root), err)
	}
	return s, nil
}

func writeState(root string, s state) error {
	b, err := json.MarshalIndent(s, "", "  ")
	if err == nil {
		next := statePath(root) + ".new"
		if err = os.WriteFile(next, append(b, '\n'), 0o600); err == nil {
			err = os.Rename(next, statePath(root))
		}
	}
	if err != nil {
		return fmt.Errorf("write state: %w", err)
	}
	return nil
}

// alive reports whether the supervisor runs.
func (s state) alive() bool { return s.Pid > 0 && s.Start != "" && startTime(s.Pid) == s.Start }

// startTime is field 22 of /proc/PID/stat, in ticks since boot, with the boot's own id; "" if the process is gone.
func startTime(pid int) string {
	fields := local.Stat(pid)
	if fields == nil || fields[0] == "Z" { // it has ended, and its parent has not looked yet
		return ""
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return fields[19] + "@" + strings.TrimSpace(string(boot))
}

// session returns the living processes of a session that run a program of this repository.
func session(root string, leader int) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	bin, err := filepath.EvalSymlinks(filepath.Join(root, "bin"))
	if err != nil {
		return nil
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		fields := local.Stat(pid)
		if fields == nil || fields[0] == "Z" || fields[3] != strconv.Itoa(leader) {
			continue
		}
		program, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		if err == nil && strings.HasPrefix(program, bin+string(filepath.Separator)) {
			pids = append(pids, pid)
		}
	}
	return pids
}
