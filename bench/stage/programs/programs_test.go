package programs

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// repository has a program of its own and a module with an etcd, as small as they can be.
func repository(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":               module + "\ngo 1.26\n",
		"cmd/basalt/main.go":   "package main\n\nfunc main() { println(\"basalt\") }\n",
		"cmd/basalt/faults.go": "//go:build faults\n\npackage main\n\nfunc init() { println(\"faults\") }\n",
		"bench/stage/controlplane/go.mod": "module x\n\ngo 1.26\n\nrequire go.etcd.io/etcd/server/v3 v3.0.0\n\n" +
			"replace go.etcd.io/etcd/server/v3 => ./etcd\n",
		"bench/stage/controlplane/go.sum":      "",
		"bench/stage/controlplane/etcd/go.mod": "module go.etcd.io/etcd/server/v3\n\ngo 1.26\n",
		"bench/stage/controlplane/etcd/m.go":   "package main\n\nfunc main() { println(\"built\") }\n",
	} {
		write(t, filepath.Join(root, name), text, 0o644)
	}
	return root
}

func write(t *testing.T, file, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

func build(t *testing.T, root string, names ...string) (progress string, err error) {
	t.Helper()
	var out bytes.Buffer
	err = Build(t.Context(), root, &out, names...)
	return out.String(), err
}

func TestBuild(t *testing.T) {
	t.Setenv("KUBEBUILDER_ASSETS", "")
	t.Setenv(Built, "")
	root := repository(t)
	if _, err := build(t, root, "basalt", "basalt-faults", "etcd"); err != nil {
		t.Fatal(err)
	}
	made := map[string]os.FileInfo{}
	for _, name := range []string{"basalt", "basalt-faults", "etcd"} {
		info, err := os.Stat(Path(root, name))
		if err != nil || info.Mode()&0o111 == 0 {
			t.Fatalf("%s: %v %v", name, info, err)
		}
		made[name] = info
	}

	// What is up to date stays; what it is made from counts, and that it is there.
	again := func(name string) bool {
		t.Helper()
		if _, err := build(t, root, "basalt", "etcd"); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(Path(root, name))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { made[name] = info }()
		return !info.ModTime().Equal(made[name].ModTime())
	}
	if again("etcd") {
		t.Error("an etcd that is up to date was built again")
	}
	write(t, filepath.Join(root, "bench/stage/controlplane/go.sum"), "\n", 0o644)
	if !again("etcd") {
		t.Error("an etcd of other versions stays")
	}
	if err := os.Remove(Path(root, "etcd")); err != nil {
		t.Fatal(err)
	}
	if !again("etcd") {
		t.Error("an etcd that is gone stays away")
	}
	left, err := filepath.Glob(filepath.Join(root, "bin", ".new-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}

	write(t, filepath.Join(root, "cmd/basalt/main.go"), "package main\n\nfunc main() { undefined() }\n", 0o644)
	if _, err := build(t, root, "basalt"); err == nil || !strings.Contains(err.Error(), "build basalt: ") ||
		!strings.Contains(err.Error(), "undefined: undefined") {
		t.Errorf("a program that does not compile: %v", err)
	}
	t.Setenv(Built, "etcd basalt")
	if _, err := build(t, root, "basalt"); err != nil {
		t.Errorf("told that it is built: %v", err)
	}
	if _, err := build(t, root, "basalt", "basalt-faults"); err == nil {
		t.Error("told that another one is built")
	}
}

// TestAssets: programs that the machine has are used, if their version fits.
func TestAssets(t *testing.T) {
	t.Setenv(Built, "")
	root, dir := repository(t), t.TempDir()
	t.Setenv("KUBEBUILDER_ASSETS", dir)
	for _, c := range []struct {
		name, script, says string
		used               bool
	}{
		{"none", "", "KUBEBUILDER_ASSETS has no etcd", false},
		{"older", "#!/bin/sh\necho etcd Version: 3.4.1\n", "is not of version 3.6 or 3.7", false},
		{"broken", "#!/bin/sh\nexit 3\n", "exit status 3", false},
		{"fits", "#!/bin/sh\necho etcd Version: 3.6.12\n", "using " + filepath.Join(dir, "etcd"), true},
	} {
		if c.script != "" {
			write(t, filepath.Join(dir, "etcd"), c.script, 0o755)
		}
		said, err := build(t, root, "etcd")
		if err != nil || !strings.Contains(said, c.says) {
			t.Errorf("%s: %v %q", c.name, err, said)
		}
		if to, err := os.Readlink(Path(root, "etcd")); (err == nil) != c.used || c.used && to != filepath.Join(dir, "etcd") {
			t.Errorf("%s: bin/etcd is a link to %q: %v", c.name, to, err)
		}
	}
	if said, err := build(t, root, "etcd"); err != nil || said != "" {
		t.Errorf("used already: %v %q", err, said)
	}
	for _, dir := range []string{"", filepath.Dir(Path(root, "etcd"))} { // gone, and the folder of what is built here
		t.Setenv("KUBEBUILDER_ASSETS", dir)
		if _, err := build(t, root, "etcd"); err != nil {
			t.Fatal(err)
		}
		if to, err := os.Readlink(Path(root, "etcd")); err == nil {
			t.Errorf("KUBEBUILDER_ASSETS=%q: bin/etcd is a link to %q", dir, to)
		}
	}
}

// TestReleases: what programs say that they are is what they are built from.
func TestReleases(t *testing.T) {
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	modules := map[string]string{"controlplane": newest}
	maps.Copy(modules, kubernetes)
	for module, version := range modules {
		mod, err := os.ReadFile(filepath.Join(root, "bench", "stage", module, "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		staged := "k8s.io/apiserver => k8s.io/apiserver v0" + version[2:]
		for _, line := range []string{"k8s.io/kubernetes " + version, staged} {
			if !regexp.MustCompile(regexp.QuoteMeta(line) + `\s`).Match(mod) {
				t.Errorf("%s: go.mod does not say %q", module, line)
			}
		}
		if flags := linkFlags(module); !strings.Contains(flags, "gitVersion="+version+" ") ||
			!strings.HasSuffix(flags, ".gitMajor=1 -X k8s.io/component-base/version.gitMinor="+version[3:5]) {
			t.Errorf("%s: %s", module, flags)
		}
	}
}

func TestExecutable(t *testing.T) {
	for pkg, want := range map[string]string{
		"go.etcd.io/etcd/server/v3":            "server",
		"k8s.io/kubernetes/cmd/kube-apiserver": "kube-apiserver",
		"sigs.k8s.io/lws/cmd":                  "cmd",
	} {
		if got := executable(pkg); got != want {
			t.Errorf("%s makes %s, not %s", pkg, got, want)
		}
	}
}
