package local

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// module is what the repository's go.mod must say for a folder to be its root.
const module = "module basalt.dev/basalt\n"

// foreign are the programs of nested modules in bench/stage, by name. Basalt's own are built from cmd/.
var foreign = map[string]struct{ module, program string }{
	"etcd":                    {"controlplane", "go.etcd.io/etcd/server/v3"},
	"kube-apiserver":          {"controlplane", "k8s.io/kubernetes/cmd/kube-apiserver"},
	"kube-controller-manager": {"controlplane", "k8s.io/kubernetes/cmd/kube-controller-manager"},
	"kube-scheduler":          {"controlplane", "k8s.io/kubernetes/cmd/kube-scheduler"},
	"vc-controller-manager":   {"volcano", "volcano.sh/volcano/cmd/controller-manager"},
	"kuberay-operator":        {"kuberay", "github.com/ray-project/kuberay/ray-operator"},
	"jobset-controller":       {"jobset", "sigs.k8s.io/jobset"},
	"lws-controller":          {"lws", "sigs.k8s.io/lws/cmd"},
	"kueue":                   {"kueue", "sigs.k8s.io/kueue/cmd/kueue"},
	"mpi-operator":            {"mpi", "github.com/kubeflow/mpi-operator/cmd/mpi-operator"},
	"helm":                    {"helm", "helm.sh/helm/v4/cmd/helm"},
	"kustomize":               {"helm", "sigs.k8s.io/kustomize/kustomize/v5"},
}

// Without a version the API server calls itself v0.0.0, and clients and feature gates judge it by that.
const linkFlags = "-X k8s.io/component-base/version.gitVersion=v1.37.1" +
	" -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=37"

// Root finds the repository: above the working directory, else above the running program.
func Root() (string, error) {
	var starts []string
	if wd, err := os.Getwd(); err == nil {
		starts = append(starts, wd)
	}
	if exe, err := os.Executable(); err == nil {
		starts = append(starts, filepath.Dir(exe))
	}
	for _, dir := range starts {
		for {
			b, err := os.ReadFile(filepath.Join(dir, "go.mod"))
			if err == nil && bytes.HasPrefix(b, []byte(module)) {
				return dir, nil
			}
			parent := filepath.Dir(dir)
			if parent == dir {
				break
			}
			dir = parent
		}
	}
	return "", errors.New("find the repository: neither the working directory nor the program lies in it")
}

func programPath(root, name string) string { return filepath.Join(root, "bin", name) }

// Programs builds programs into bin/ of the repository, those that are not up to date: etcd, kube-apiserver,
// kube-controller-manager and kube-scheduler from bench/stage/controlplane, and others' programs from the folders beside
// it, as the table above says; every other name from cmd/, where the suffix -race asks for the race detector, and -faults before it for the
// bugs of package api/fault. Progress, one line a program built, is for a person. It may be called by several processes at once.
func Programs(ctx context.Context, root string, progress io.Writer, names ...string) error {
	bin := filepath.Join(root, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return fmt.Errorf("make %s: %w", bin, err)
	}
	lock, err := os.OpenFile(filepath.Join(bin, ".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return fmt.Errorf("open build lock: %w", err)
	}
	defer lock.Close() // unlocks
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("take build lock: %w", err)
	}
	for _, name := range names {
		build := buildOwn
		if foreign[name].program != "" {
			build = buildForeign
		}
		if err := build(ctx, root, progress, name); err != nil {
			return fmt.Errorf("build %s: %w", name, err)
		}
	}
	return nil
}

// buildOwn leaves it to the go tool to see what changed.
func buildOwn(ctx context.Context, root string, _ io.Writer, name string) error {
	source, race := strings.CutSuffix(name, "-race")
	source, faults := strings.CutSuffix(source, "-faults")
	// As in the Makefile, or the two would link it anew after each other. What git does not know has an unknown version.
	described, _ := exec.CommandContext(ctx, filepath.Join(root, "api", "build", "describe.sh")).Output()
	stamp := "-X basalt.dev/basalt/api/build.described=" + strings.TrimSpace(string(described))
	args := []string{"build", "-buildvcs=false", "-ldflags", stamp, "-o", programPath(root, name)}
	if race {
		args = append(args, "-race")
	}
	if faults {
		args = append(args, "-tags", "faults")
	}
	return goTool(ctx, root, append(args, "./cmd/"+source)...)
}

// buildForeign remembers what it built from in a file beside the program: the go tool alone would take seconds to find out
// that nothing changed, and would link anew whatever bin/ had lost.
func buildForeign(ctx context.Context, root string, progress io.Writer, name string) error {
	dir := filepath.Join(root, "bench", "stage", foreign[name].module)
	stamp, err := foreignStamp(ctx, dir)
	if err != nil {
		return err
	}
	program := programPath(root, name)
	stampPath := filepath.Join(root, "bin", "."+name+".stamp")
	if old, err := os.ReadFile(stampPath); err == nil && string(old) == stamp {
		if _, err := os.Stat(program); err == nil {
			return nil
		}
	}
	begin := time.Now()
	fmt.Fprintf(progress, "building %s from source; the first time this takes some minutes\n", name)
	// Built beside and moved: a running program keeps its file, and half a program is never found under its name.
	next := filepath.Join(root, "bin", "."+name+".new")
	defer os.Remove(next)
	err = goTool(ctx, dir, "build", "-buildvcs=false", "-ldflags", linkFlags, "-o", next, foreign[name].program)
	if err != nil {
		return err
	}
	if err := os.Rename(next, program); err != nil {
		return err
	}
	fmt.Fprintf(progress, "built %s in %s\n", name, time.Since(begin).Round(time.Second))
	return os.WriteFile(stampPath, []byte(stamp), 0o644)
}

func foreignStamp(ctx context.Context, dir string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "env", "GOVERSION", "GOOS", "GOARCH")
	cmd.Dir = dir
	version, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("ask the go tool for its version: %w", err)
	}
	h := sha256.New()
	fmt.Fprintf(h, "%s%s", version, linkFlags)
	for _, name := range []string{"go.mod", "go.sum"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return "", err
		}
		h.Write(b)
	}
	return fmt.Sprintf("%x\n", h.Sum(nil)), nil
}

func goTool(ctx context.Context, dir string, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("go %s: %w\n%s", args[0], err, bytes.TrimSpace(out))
	}
	return nil
}
