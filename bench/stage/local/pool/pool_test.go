package pool_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/localtest"
	"basalt.dev/basalt/bench/stage/local/pool"
)

// TestLend borrows control planes and gives them back in every way. It takes 30 s because five of them start, and the
// API server of one once more.
func TestLend(t *testing.T) {
	var said bytes.Buffer
	p := pool.New(localtest.Programs(t, "etcd", "kube-apiserver", "kube-controller-manager"), &said)
	socket, stop, err := p.Lend()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		stop()
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(socket); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the socket is there: %v", err)
		}
		if said.Len() > 0 {
			t.Error(said.String())
		}
	}()

	one, back := borrow(t, socket, local.Options{Audit: true})
	use(t, one)
	other, otherBack := borrow(t, socket, local.Options{Audit: true})
	if other.Dir() == one.Dir() {
		t.Error("one control plane was lent to two")
	}
	servers := one.Processes()
	back(true)
	for _, server := range servers {
		if strings.Contains(server.Name(), "control-store") {
			continue // there is another one now
		}
		localtest.Wait(t, time.Minute, "what nobody uses to be paused", func(context.Context) error {
			if state := local.Stat(server.Pid()); state == nil || state[0] != "T" {
				return fmt.Errorf("%s is in state %v", server.Name(), state)
			}
			return nil
		})
	}
	again, back := borrow(t, socket, local.Options{Audit: true})
	if again.Dir() != one.Dir() {
		t.Error("a control plane that came back was not handed on")
	}
	if log, err := os.ReadFile(again.AuditLog()); err != nil || strings.Contains(string(log), "left-behind") {
		t.Errorf("the audit log of the one before: %v\n%s", err, log)
	}
	use(t, again) // it finds nothing of what the one before left behind
	back(false)
	otherBack(true)
	if managed, back := borrow(t, socket, local.Options{ControllerManager: true}); managed.Dir() == other.Dir() {
		t.Error("options differ, and the same control plane was handed on")
	} else {
		back(true)
	}

	// The one that was given back unclean is gone; the other one can be stopped and started from here.
	c, back := borrow(t, socket, local.Options{Audit: true})
	if c.Dir() != other.Dir() {
		t.Error("a control plane that came back was not handed on")
	}
	for _, p := range c.Processes() {
		if local.UsageOf(p.Pid()).Memory == 0 {
			t.Errorf("%s does not run", p.Name())
		}
	}
	if !c.Untouched() {
		t.Error("a new control plane is touched")
	}
	paused := c.ControlStoreMembers()[0].Process()
	if err := errors.Join(paused.Signal(syscall.SIGSTOP), paused.Signal(syscall.SIGCONT)); err != nil {
		t.Error(err)
	}
	if err := errors.Join(c.StopAPIServer(), c.StopControlStore()); err != nil {
		t.Error(err)
	}
	if err := errors.Join(c.StartAPIServer(t.Context()), c.StartControlStore(t.Context())); err != nil {
		t.Error(err)
	}
	use(t, c)
	_ = c.StopAPIServer()
	back(true)
	if next, back := borrow(t, socket, local.Options{Audit: true}); next.Dir() == c.Dir() {
		t.Error("a control plane whose server was stopped was handed on")
	} else {
		back(true)
	}
}

// TestDiesInUse ends a server of a control plane that somebody has, and then the pool. It takes 30 s beside other tests
// because a control plane starts.
func TestDiesInUse(t *testing.T) {
	p := pool.New(localtest.Programs(t, "etcd", "kube-apiserver"), t.Output())
	c, err := p.Take(t.Context(), local.Options{Basalt: "/no/such/first"})
	if err != nil {
		t.Fatal(err)
	}
	p.Give(c, true)
	if c, err = p.Take(t.Context(), local.Options{Basalt: "/no/such/second"}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.StartShard(t.Context(), "shard-0", local.BasaltOptions{}); err == nil ||
		!strings.Contains(err.Error(), "/no/such/second") {
		t.Errorf("whoever came second runs another program: %v", err)
	}
	for _, process := range c.Processes() {
		if strings.Contains(process.Name(), "api-store") {
			_ = syscall.Kill(process.Pid(), syscall.SIGKILL)
			<-process.Done()
		}
	}
	p.Give(c, true)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Take(ctx, local.Options{}); err == nil || !strings.Contains(err.Error(), "canceled") {
		t.Errorf("a dead one was handed on, or another one started: %v", err)
	}
	if err := p.Close(); err != nil {
		t.Errorf("what could not be made as new was told when it was wanted: %v", err)
	}
	if _, err := os.Stat(c.Dir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its folder is there: %v", err)
	}
}

func borrow(t *testing.T, socket string, o local.Options) (*local.Cluster, func(clean bool)) {
	t.Helper()
	c, back, err := pool.Borrow(t.Context(), socket, o)
	if err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	giveBack := func(clean bool) {
		once.Do(func() {
			if err := back(clean); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() { giveBack(true) })
	return c, giveBack
}

// use makes something that a next user must not find.
func use(t *testing.T, c *local.Cluster) {
	t.Helper()
	admin, err := kubernetes.NewForConfig(c.Config(local.Admin))
	if err != nil {
		t.Fatal(err)
	}
	maps := admin.CoreV1().ConfigMaps("default")
	localtest.Wait(t, time.Minute, "the API server to have forgotten", func(ctx context.Context) error {
		_, err := maps.Get(ctx, "left-behind", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(errors.New("it has not"), err)
	})
	left := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "left-behind"}}
	if _, err := maps.Create(t.Context(), left, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}
