// Package programs builds what runs on this machine into bin/ of the repository: Basalt's own programs, and those of
// others that tests, benchmarks and the demo run beside them, each from a module of its own in bench/stage.
//
// It decides what is up to date and in which order things are built. Programs of one module are built by one call of
// the go tool, so that they share what they have in common, and one is linked while another is compiled. While Basalt's
// own programs are built, the sources of the others are downloaded.
//
// It imports the standard library alone, because on a new machine it is what is built first, to tell a person what is
// going on.
//
// A program is replaced by renaming, so that a running one keeps its file and half a program is never found under its
// name. A lock keeps processes that build at the same time apart.
package programs

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// module is what the repository's go.mod must say for a folder to be its root.
const module = "module basalt.dev/basalt\n"

// Built is an environment variable with names of programs, with spaces between, that are taken for up to date: whoever
// set it has built them. To ask the go tool takes a second each time, and tests ask some hundred times.
const Built = "BASALT_BUILT"

// Default are the programs that the tests need.
var Default = []string{
	"basalt", "basalt-bench", "basalt-race", "basalt-faults", "basalt-faults-race", "basalt-bench-faults",
	"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "helm", "kustomize",
}

// others are the programs of modules in bench/stage, by name. Basalt's own are built from cmd/.
var others = map[string]struct{ module, program string }{
	"etcd":                    {"controlplane", "go.etcd.io/etcd/server/v3"},
	"kube-apiserver":          {"controlplane", "k8s.io/kubernetes/cmd/kube-apiserver"},
	"kube-controller-manager": {"controlplane", "k8s.io/kubernetes/cmd/kube-controller-manager"},
	"kube-scheduler":          {"controlplane", "k8s.io/kubernetes/cmd/kube-scheduler"},
	"kube-apiserver-1.36":     {"controlplane/v1.36", "k8s.io/kubernetes/cmd/kube-apiserver"},
	"kube-apiserver-1.35":     {"controlplane/v1.35", "k8s.io/kubernetes/cmd/kube-apiserver"},
	"vc-controller-manager":   {"volcano", "volcano.sh/volcano/cmd/controller-manager"},
	"kuberay-operator":        {"kuberay", "github.com/ray-project/kuberay/ray-operator"},
	"jobset-controller":       {"jobset", "sigs.k8s.io/jobset"},
	"lws-controller":          {"lws", "sigs.k8s.io/lws/cmd"},
	"kueue":                   {"kueue", "sigs.k8s.io/kueue/cmd/kueue"},
	"mpi-operator":            {"mpi", "github.com/kubeflow/mpi-operator/cmd/mpi-operator"},
	"helm":                    {"helm", "helm.sh/helm/v4/cmd/helm"},
	"kustomize":               {"helm", "sigs.k8s.io/kustomize/kustomize/v5"},
}

// kubernetes are the releases of Kubernetes that modules in bench/stage are of, where that is not the newest.
var kubernetes = map[string]string{"controlplane/v1.36": "v1.36.3", "controlplane/v1.35": "v1.35.4"}

const newest = "v1.37.1"

// linkFlags give programs of a module the version that it is of. Without one the API server calls itself v0.0.0, and
// clients and feature gates judge it by that.
func linkFlags(module string) string {
	version := cmp.Or(kubernetes[module], newest)
	const of = " -X k8s.io/component-base/version.git"
	return fmt.Sprintf("%sVersion=%s%sMajor=1%sMinor=%s", of[1:], version, of, of, strings.Split(version, ".")[1])
}

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

// Path is where a program is.
func Path(root, name string) string { return filepath.Join(root, "bin", name) }

// Build builds programs into bin/ of the repository, those that are not up to date: others' programs from the folders
// of bench/stage that the table above names, and every other name from cmd/, where the suffix -race asks for the race
// detector, and -faults before it for the bugs of package api/fault. Where the environment variable KUBEBUILDER_ASSETS
// names a folder with an etcd or a kube-apiserver of a version that fits, these are used and not built. Progress is for
// a person: what is built, and how far that is.
func Build(ctx context.Context, root string, progress io.Writer, names ...string) error {
	built := strings.Fields(os.Getenv(Built))
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(built, name) })
	if len(names) == 0 {
		return nil
	}
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
	b := builder{ctx: ctx, root: root, bin: bin, progress: progress}
	own, foreign, err := b.due(names)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	downloaded := make(chan struct{})
	go func() {
		defer close(downloaded)
		for _, dir := range slices.Sorted(maps.Keys(foreign)) {
			if len(own) > 0 {
				_, _ = b.packages(ctx, filepath.Join(root, "bench", "stage", dir), packagesOf(foreign[dir]))
			}
		}
	}()
	defer func() { stop(); <-downloaded }()
	for _, variant := range slices.Sorted(maps.Keys(own)) {
		if err := b.own(variant, own[variant]); err != nil {
			return err
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(foreign)) {
		if err := b.foreign(dir, foreign[dir]); err != nil {
			return err
		}
	}
	return nil
}

type builder struct {
	ctx       context.Context
	root, bin string
	progress  io.Writer
}

// due returns Basalt's own programs by variant, and of the others those that are not up to date, by module.
func (b *builder) due(names []string) (own, foreign map[string][]string, err error) {
	own, foreign = map[string][]string{}, map[string][]string{}
	stamps := map[string]string{} // by module
	for _, name := range names {
		of, is := others[name]
		if !is {
			program, race := strings.CutSuffix(name, "-race")
			program, faults := strings.CutSuffix(program, "-faults")
			variant := ""
			if faults {
				variant += "-faults"
			}
			if race {
				variant += "-race"
			}
			own[variant] = append(own[variant], program)
			continue
		}
		if asset := b.asset(name); asset != "" {
			if err := b.use(name, asset); err != nil {
				return nil, nil, fmt.Errorf("use %s: %w", asset, err)
			}
			continue
		}
		if stamps[of.module] == "" {
			if stamps[of.module], err = b.stamp(of.module); err != nil {
				return nil, nil, fmt.Errorf("build %s: %w", name, err)
			}
		}
		if !b.isStamped(name, stamps[of.module]) {
			foreign[of.module] = append(foreign[of.module], name)
		}
	}
	return own, foreign, nil
}

// own builds Basalt's programs of one variant. It leaves it to the go tool to see what changed.
func (b *builder) own(variant string, names []string) error {
	args := []string{"-buildvcs=false"}
	if strings.HasSuffix(variant, "-race") {
		args = append(args, "-race")
	}
	if strings.HasPrefix(variant, "-faults") {
		args = append(args, "-tags", "faults")
	} else { // programs with bugs need not know their version, and are not linked again for each commit
		described, _ := exec.CommandContext(b.ctx, filepath.Join(b.root, "api", "build", "describe.sh")).Output()
		version := strings.TrimSpace(string(described)) // of what git does not know, there is none
		args = append(args, "-ldflags", "-X basalt.dev/basalt/api/build.described="+version)
	}
	var packages, called []string
	for _, name := range names {
		packages, called = append(packages, "./cmd/"+name), append(called, name+variant)
	}
	what := strings.Join(called, ", ")
	if variant == "" { // these two have the names that the go tool gives them
		return b.build(b.root, what, append(append(args, "-o", b.bin+"/"), packages...), packages)
	}
	for i, name := range called {
		err := b.build(
			b.root,
			name,
			append(slices.Clone(args), "-o", filepath.Join(b.bin, name), packages[i]),
			packages[i:i+1],
		)
		if err != nil {
			return err
		}
	}
	return nil
}

// foreign builds programs of a module in bench/stage. What they were built from is kept in files beside them: the go
// tool alone would take seconds to see that nothing changed, and would link again whatever bin/ had lost.
func (b *builder) foreign(dir string, names []string) error {
	stamp, err := b.stamp(dir)
	if err != nil {
		return err
	}
	next, err := os.MkdirTemp(b.bin, ".new-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(next)
	packages := packagesOf(names)
	args := append([]string{"-buildvcs=false", "-ldflags", linkFlags(dir), "-o", next + "/"}, packages...)
	err = b.build(filepath.Join(b.root, "bench", "stage", dir), strings.Join(names, ", "), args, packages)
	if err != nil {
		return err
	}
	for i, name := range names {
		if err := b.replace(name, filepath.Join(next, executable(packages[i])), stamp); err != nil {
			return err
		}
	}
	return nil
}

func packagesOf(names []string) (out []string) {
	for _, name := range names {
		out = append(out, others[name].program)
	}
	return out
}

// executable is the name that the go tool gives a program: the last element of its path that is no major version.
func executable(pkg string) string {
	if dir, last := filepath.Split(pkg); regexp.MustCompile(`^v[0-9]+$`).MatchString(last) {
		return filepath.Base(dir)
	}
	return filepath.Base(pkg)
}

// replace puts a program into bin/ and notes what it was made from.
func (b *builder) replace(name, from, stamp string) error {
	if err := os.Rename(from, Path(b.root, name)); err != nil {
		return err
	}
	return os.WriteFile(b.stampPath(name), []byte(stamp), 0o644)
}

func (b *builder) stampPath(name string) string { return filepath.Join(b.bin, "."+name+".stamp") }

func (b *builder) isStamped(name, stamp string) bool {
	old, err := os.ReadFile(b.stampPath(name))
	if err != nil || string(old) != stamp {
		return false
	}
	_, err = os.Stat(Path(b.root, name))
	return err == nil
}

func (b *builder) stamp(dir string) (string, error) {
	flags, dir := linkFlags(dir), filepath.Join(b.root, "bench", "stage", dir)
	cmd := exec.CommandContext(b.ctx, "go", "env", "GOVERSION", "GOOS", "GOARCH")
	cmd.Dir = dir
	version, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("ask the go tool for its version: %w", err)
	}
	h := sha256.New()
	fmt.Fprintf(h, "%s%s", version, flags)
	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return "", err
		}
		h.Write(text)
	}
	return fmt.Sprintf("%x\n", h.Sum(nil)), nil
}

// build runs `go build`. A build that takes longer than a moment says what it builds, how far it is, and in the end how
// long it took.
func (b *builder) build(dir, what string, args, packages []string) error {
	begin := time.Now()
	cmd := exec.CommandContext(
		b.ctx,
		"go",
		append([]string{"build", "-v"}, args...)...) // -v prints each package that it compiles
	cmd.Dir = dir
	said, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("build %s: %w", what, err)
	}
	compiled := make(chan struct{}, 1000)
	var failed bytes.Buffer
	go func() {
		defer close(compiled)
		for lines := bufio.NewScanner(said); lines.Scan(); {
			if importPath.MatchString(lines.Text()) {
				compiled <- struct{}{}
			} else {
				fmt.Fprintln(&failed, lines.Text())
			}
		}
	}()
	told := b.follow(dir, what, packages, compiled)
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", what, err, bytes.TrimSpace(failed.Bytes()))
	}
	if told {
		fmt.Fprintf(b.progress, "built %s in %s\n", what, time.Since(begin).Round(time.Second))
	}
	return nil
}

// importPath is a line of `go build -v`.
var importPath = regexp.MustCompile(`^[a-zA-Z0-9][^\s:]*$`)

// follow prints how far a build is until it ends, and reports whether it printed anything.
func (b *builder) follow(dir, what string, packages []string, compiled <-chan struct{}) (told bool) {
	const (
		moment = 5 * time.Second
		every  = 15 * time.Second
	)
	next := time.NewTimer(moment)
	defer next.Stop()
	n, of := 0, ""
	for {
		select {
		case _, more := <-compiled:
			if !more {
				return told
			}
			n++
		case <-next.C:
			if !told {
				fmt.Fprintf(b.progress, "building %s from source; the first time this takes some minutes\n", what)
				if all, err := b.packages(b.ctx, dir, packages); err == nil {
					of = fmt.Sprintf(" of at most %d", all)
				}
				told = true
			}
			fmt.Fprintf(b.progress, "  %d%s packages compiled\n", n, of)
			next.Reset(every)
		}
	}
}

// packages counts what programs consist of, and downloads it.
func (b *builder) packages(ctx context.Context, dir string, programs []string) (int, error) {
	cmd := exec.CommandContext(ctx, "go", append([]string{"list", "-deps"}, programs...)...)
	cmd.Dir = dir
	out, err := cmd.Output()
	return bytes.Count(out, []byte("\n")), err
}
