package docs

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"basalt.dev/basalt/bench/stage/local"
)

// columns is how wide the terminal of a day is.
const columns = 100

var days = []string{"day-tenant.md", "day-administrator.md"}

// TestDaysAreNarrow: the transcripts are no wider than the terminal that they are of.
func TestDaysAreNarrow(t *testing.T) {
	root, err := local.Root()
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range days {
		for _, b := range read(t, filepath.Join(root, "deploy", "docs", page)) {
			for i, line := range strings.Split(b.text, "\n") {
				if utf8.RuneCountInString(line) > columns {
					t.Errorf("%s, line %d is wider than %d columns: %s", page, b.line+1+i, columns, line)
				}
			}
		}
	}
}

// tenant is Ana's view: an account with the ClusterRole edit in the namespace camera, and a terminal.
func (w *world) tenant(t *testing.T) *world {
	t.Helper()
	if w.ana != nil {
		return w.ana
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	const made = `kubectl create namespace camera; kubectl -n camera create serviceaccount ana
kubectl -n camera create rolebinding ana --clusterrole=edit --serviceaccount=camera:ana
kubectl config view --raw --flatten > ana.yaml; token=$(kubectl -n camera create token ana)
mine() { kubectl --kubeconfig=ana.yaml "$@"; }
mine config set-credentials ana --token="$token"; mine config set-context --current --user=ana --namespace=camera
until mine auth can-i create podgroups.scheduling.basalt.dev; do sleep 1; done`
	if out, err := w.bash(ctx, made); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	ana := *w
	ana.narrow, ana.env = true, append(slices.Clone(w.env), "KUBECONFIG="+filepath.Join(w.dir, "ana.yaml"))
	w.ana = &ana
	return w.ana
}

// terminal runs commands as bash does, in a terminal of so many columns.
func (w *world) terminal(ctx context.Context, commands string) (string, error) {
	here, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	defer here.Close()
	var there *os.File
	control, err := here.SyscallConn()
	if err != nil {
		return "", err
	}
	failed := control.Control(func(fd uintptr) {
		if err = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); err != nil {
			return
		}
		var number int
		if number, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN); err != nil {
			return
		}
		if there, err = os.OpenFile(fmt.Sprint("/dev/pts/", number), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
			return
		}
		err = unix.IoctlSetWinsize(int(there.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 40, Col: columns})
	})
	if failed != nil || err != nil {
		return "", fmt.Errorf("open a terminal: %v, %w", failed, err)
	}
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", commands)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = w.dir, append(w.env, "TERM=dumb"), there, there
	if err := cmd.Start(); err != nil {
		return "", err
	}
	printed := make(chan []byte)
	go func() {
		var all bytes.Buffer
		_, _ = all.ReadFrom(here) // ends with an error when nobody has the other end
		printed <- all.Bytes()
	}()
	err = cmd.Wait()
	there.Close()
	return strings.ReplaceAll(string(<-printed), "\r\n", "\n"), err
}

// TestTerminal: what runs there sees how wide it is, and what it prints is all seen.
func TestTerminal(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	w := &world{dir: t.TempDir(), env: os.Environ()}
	out, err := w.terminal(ctx, "stty size <&1; seq 3000 | tail -1; exit 3")
	if err == nil || !strings.Contains(err.Error(), "exit status 3") || out != fmt.Sprintf("40 %d\n3000\n", columns) {
		t.Errorf("%v, %q", err, out)
	}
}
