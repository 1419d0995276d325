package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestTwoReleases builds a release twice, in different folders with other settings, and compares all of it. With
// -short there is one platform.
// It takes some minutes for each platform: each program is compiled and linked without anything that names the machine.
func TestTwoReleases(t *testing.T) {
	targets, programs := strings.Join(platforms, ","), programPlatforms
	if testing.Short() {
		targets, programs = platforms[0], programPlatforms[:1]
	}
	const version = "v0.1.0"
	releaseIn := func(root string) map[string][]byte {
		t.Helper()
		copySources(t, root)
		to := filepath.Join(t.TempDir(), "release")
		var out bytes.Buffer
		err := run(t.Context(), []string{"--root", root, "--output", to, "--release", version, "--dirty",
			"--platforms", targets, "--programs", strings.Join(programs, ",")}, &out, t.Output())
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s", &out)
		got := map[string][]byte{}
		for _, e := range must[[]fs.DirEntry](t)(os.ReadDir(to)) {
			got[e.Name()] = must[[]byte](t)(os.ReadFile(filepath.Join(to, e.Name())))
		}
		return got
	}
	first := releaseIn(filepath.Join(t.TempDir(), "a"))
	for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOPROXY"} { // found from HOME otherwise
		t.Setenv(name, strings.TrimSpace(must[string](t)(command(t.Context(), ".", nil, "go", "env", name))))
	}
	for name, value := range map[string]string{
		"HOME": t.TempDir(), "USER": "somebody", "TZ": "Asia/Kathmandu", "GOAMD64": "v3", "GOFLAGS": "-tags=faults"} {
		t.Setenv(name, value)
	}
	second := releaseIn(filepath.Join(t.TempDir(), "a longer path", "to", "the", "sources"))
	for name, content := range first {
		if !bytes.Equal(content, second[name]) {
			t.Errorf("%s differs between two builds", name)
		}
	}
	if len(first) != len(second) {
		t.Errorf("%d and %d files", len(first), len(second))
	}
	wantRelease(t, first, version, programs)
}

// wantRelease judges the files of a release.
func wantRelease(t *testing.T, files map[string][]byte, version string, programs []string) {
	t.Helper()
	want := []string{"NOTES.md", "SHA256SUMS", "basalt-0.1.0.tgz", "basalt-image-" + version + ".tar", "basalt.yaml"}
	for _, p := range programs {
		as := version + "_" + strings.ReplaceAll(p, "/", "_")
		want = append(want, "basalt_"+as+".tar.gz", "basalt_"+as+".spdx.json", "kubectl-basalt_"+as+".tar.gz")
		plugin := files["kubectl-basalt_"+as+".tar.gz"]
		named := fmt.Sprintf("%s/kubectl-basalt_%s.tar.gz\n    sha256: %x\n", version, as, sha256.Sum256(plugin))
		if !strings.Contains(string(files["basalt.yaml"]), named) {
			t.Errorf("the krew manifest does not name the plugin for %s:\n%s", p, files["basalt.yaml"])
		}
		in := untar(t, plugin)
		if len(in["kubectl-basalt"]) == 0 || len(in["LICENSE"]) == 0 ||
			!bytes.Contains(in["kubectl-basalt"], []byte(version+"-0-g")) ||
			!bytes.Equal(in["kubectl-basalt"], untar(t, files["basalt_"+as+".tar.gz"])["basalt"]) {
			t.Errorf("the plugin for %s has %d files", p, len(in))
		}
	}
	for name, content := range files {
		images := strings.HasPrefix(name, "basalt-image-") && strings.HasSuffix(name, ".spdx.json")
		if !images && !slices.Contains(want, name) {
			t.Errorf("%s is not to be there", name)
		}
		if name != sums && !strings.Contains(string(files[sums]), fmt.Sprintf("%x  %s\n", sha256.Sum256(content), name)) {
			t.Errorf("%s does not have %s", sums, name)
		}
	}
	for _, name := range want {
		if len(files[name]) == 0 {
			t.Errorf("there is no %s", name)
		}
	}
	chart := untar(t, files["basalt-0.1.0.tgz"])
	if text := string(chart["basalt/Chart.yaml"]); !strings.Contains(text, "\nversion: 0.1.0\n") ||
		!strings.Contains(text, "\nappVersion: "+version+"\n") ||
		len(chart["basalt/base/rbac.yaml"]) == 0 || len(chart["basalt/base/gangs/workloads.yaml"]) == 0 ||
		len(chart["basalt/base/users/workloads.yaml"]) == 0 {
		t.Errorf("the chart has %d files; Chart.yaml:\n%s", len(chart), text)
	}
}

// untar returns the files of a tar.gz, whose times and owners say nothing of the machine.
func untar(t *testing.T, archive []byte) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	z := must[*gzip.Reader](t)(gzip.NewReader(bytes.NewReader(archive)))
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Uid != 0 || h.Uname != "" || h.Typeflag != tar.TypeReg && h.Typeflag != tar.TypeDir {
			t.Errorf("%+v", h)
		}
		files[h.Name] = must[[]byte](t)(io.ReadAll(r))
	}
}

// A release that cannot be right is refused before anything is built.
func TestReleaseRefuses(t *testing.T) {
	t.Setenv("GIT_CONFIG_GLOBAL", os.DevNull)
	root := filepath.Join(t.TempDir(), "sources")
	write := func(name, text string, mode os.FileMode) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	git := func(args ...string) {
		t.Helper()
		args = append([]string{"-c", "user.name=a", "-c", "user.email=a@b"}, args...)
		must[string](t)(command(t.Context(), root, nil, "git", args...))
	}
	write("api/build/describe.sh", string(must[[]byte](t)(os.ReadFile("../../api/build/describe.sh"))), 0o755)
	write("CHANGELOG.md", "# Changes\n\n## v0.2.0\nSomething.\n\n## v0.1.0\n\n", 0o644)
	foreign := t.TempDir()
	if err := os.WriteFile(filepath.Join(foreign, "thesis.tex"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	refuses := func(says string, args ...string) {
		t.Helper()
		var out bytes.Buffer
		to := filepath.Join(t.TempDir(), "release")
		err := run(t.Context(), append([]string{"--root", root, "--output", to}, args...), &out, io.Discard)
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", args, err, says)
		}
		if _, err := os.Stat(to); err == nil {
			t.Errorf("%q: something was built", args)
		}
	}
	refuses("git does not know this folder", "--release", "v0.2.0")
	git("init", "--quiet")
	git("add", ".")
	git("commit", "--quiet", "-m", "one")
	for _, bad := range []string{
		"0.2.0", "v0.2", "v0.2.0;reboot", "v0.2.0/..", "v00.2.0", "latest", "v0.2.0-" + strings.Repeat("x", 253)} {
		refuses("is no version", "--release", bad)
	}
	refuses(`CHANGELOG.md has no section "## v0.3.0", or an empty one`, "--release", "v0.3.0")
	refuses(`CHANGELOG.md has no section "## v0.1.0", or an empty one`, "--release", "v0.1.0")
	refuses(`there is no program for the platform "windows/amd64"`,
		"--release", "v0.2.0", "--programs", "linux/amd64,windows/amd64")
	refuses("holds something else than an earlier release", "--release", "v0.2.0", "--output", foreign)
	git("tag", "v0.2.0")
	write("more", "x", 0o644)
	refuses("files differ from the commit", "--release", "v0.2.0")
	git("add", ".")
	git("commit", "--quiet", "-m", "two")
	refuses("v0.2.0 is the tag of another commit", "--release", "v0.2.0")
}
