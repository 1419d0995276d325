package programs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// fits says which versions of a program can stand in for the one that would be built.
var fits = map[string]struct {
	version *regexp.Regexp // in what the program prints when asked for its version
	want    string
}{
	"kube-apiserver":      {regexp.MustCompile(`Kubernetes v1\.37\.\d+\b`), "v1.37"},
	"kube-apiserver-1.36": {regexp.MustCompile(`Kubernetes v1\.36\.\d+\b`), "v1.36"},
	"kube-apiserver-1.35": {regexp.MustCompile(`Kubernetes v1\.35\.\d+\b`), "v1.35"},
	"etcd":                {regexp.MustCompile(`etcd Version: 3\.[67]\.\d+\b`), "3.6 or 3.7"},
}

// asset returns the path of a program in the folder that KUBEBUILDER_ASSETS names, as setup-envtest and others make it.
// It returns nothing if there is none whose version fits; then it says why.
func (b *builder) asset(name string) string {
	dir := os.Getenv("KUBEBUILDER_ASSETS")
	want, known := fits[name]
	if dir == "" || !known || sameFolder(dir, b.bin) { // what is built here would be a link to itself
		return ""
	}
	name, _, _ = strings.Cut(name, "-1.")
	path := filepath.Join(dir, name)
	said, err := exec.CommandContext(b.ctx, path, "--version").CombinedOutput()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		fmt.Fprintf(b.progress, "KUBEBUILDER_ASSETS has no %s\n", name)
	case err != nil:
		fmt.Fprintf(b.progress, "%s --version: %v\n", path, err)
	case !want.version.Match(said):
		fmt.Fprintf(b.progress, "%s is not of version %s, and is not used\n", path, want.want)
	default:
		if full, err := filepath.Abs(path); err == nil {
			return full
		}
	}
	return ""
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

func sameFolder(a, b string) bool {
	x, errA := os.Stat(a)
	y, errB := os.Stat(b)
	return errA == nil && errB == nil && os.SameFile(x, y)
}
