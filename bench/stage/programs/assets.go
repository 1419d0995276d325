package programs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
)

// fits says which versions of a program can stand in for the one that would be built.
var fits = map[string]struct {
	version *regexp.Regexp // in what the program prints when asked for its version
	want    string
}{
	"kube-apiserver": {regexp.MustCompile(`Kubernetes v1\.37\.\d+\b`), "v1.37"},
	"etcd":           {regexp.MustCompile(`etcd Version: 3\.[67]\.\d+\b`), "3.6 or 3.7"},
}

// assets finds programs in the folder that KUBEBUILDER_ASSETS names, as setup-envtest and others make it.
type assets struct {
	dir      string
	progress io.Writer
	found    map[string]string // by name; empty for one that does not fit
}

func newAssets(progress io.Writer) *assets {
	return &assets{dir: os.Getenv("KUBEBUILDER_ASSETS"), progress: progress, found: map[string]string{}}
}

// find returns the path of a program, or nothing if there is none whose version fits; then it says why.
func (a *assets) find(ctx context.Context, name string) string {
	want, known := fits[name]
	if a.dir == "" || !known {
		return ""
	}
	if path, asked := a.found[name]; asked {
		return path
	}
	a.found[name] = ""
	path := filepath.Join(a.dir, name)
	said, err := exec.CommandContext(ctx, path, "--version").CombinedOutput()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		fmt.Fprintf(a.progress, "KUBEBUILDER_ASSETS has no %s\n", name)
	case err != nil:
		fmt.Fprintf(a.progress, "%s --version: %v\n", path, err)
	case !want.version.Match(said):
		fmt.Fprintf(a.progress, "%s is not of version %s, and is not used\n", path, want.want)
	default:
		if full, err := filepath.Abs(path); err == nil {
			a.found[name] = full
		}
	}
	return a.found[name]
}

// use makes a program of bin/ a link to one that is there already.
func (b *builder) use(name, asset string) error {
	if to, err := os.Readlink(Path(b.root, name)); err == nil && to == asset {
		return nil
	}
	next, err := os.MkdirTemp(b.bin, ".new-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(next)
	link := filepath.Join(next, name)
	if err := os.Symlink(asset, link); err != nil {
		return err
	}
	fmt.Fprintf(b.progress, "using %s\n", asset)
	return b.replace(name, link, asset)
}
