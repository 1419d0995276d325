package main

import (
	"archive/tar"
	"bytes"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx"
	"github.com/spdx/tools-golang/spdxlib"

	"basalt.dev/basalt/api/build"
)

// must fails the test for an error of what is only the way to the point.
func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// Two builds in different surroundings give the same bytes, and these are the image that was meant. With -short there is one platform.
func TestTwoBuilds(t *testing.T) {
	targets := platforms
	if testing.Short() {
		targets = platforms[:1]
	}
	first := buildIn(t, targets, func(t *testing.T) string { return filepath.Join(t.TempDir(), "a") })
	second := buildIn(t, targets, func(t *testing.T) string {
		home := t.TempDir()
		for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOPROXY"} { // found from HOME otherwise
			t.Setenv(name, strings.TrimSpace(must[string](t)(command(t.Context(), ".", nil, "go", "env", name))))
		}
		for name, value := range map[string]string{"HOME": home, "USER": "somebody", "TZ": "Asia/Kathmandu", "LC_ALL": "C", "GOAMD64": "v3", "GOFLAGS": "-tags=faults", "CGO_ENABLED": "1"} {
			t.Setenv(name, value)
		}
		before := syscall.Umask(0o077)
		t.Cleanup(func() { syscall.Umask(before) })
		return filepath.Join(t.TempDir(), "a longer path", "to", "the", "sources")
	})
	for path, content := range first.files {
		if !bytes.Equal(content, second.files[path]) {
			t.Errorf("%s differs between two builds", path)
		}
	}
	if len(first.files) != len(second.files) {
		t.Errorf("%d and %d files", len(first.files), len(second.files))
	}
	first.check(t, targets)
}

// result is what a build left in its output folder.
type result struct {
	dir     string
	version build.Version
	files   map[string][]byte
}

// buildIn copies the sources into a folder, with what is not committed, and builds the image there.
func buildIn(t *testing.T, targets []string, surroundings func(t *testing.T) string) (r result) {
	r = result{dir: filepath.Join(t.TempDir(), "image"), files: map[string][]byte{}}
	t.Run("build", func(t *testing.T) {
		root := surroundings(t)
		copySources(t, root)
		var out bytes.Buffer
		begin := time.Now()
		if err := run(t.Context(), []string{"--root", root, "--output", r.dir, "--platforms", strings.Join(targets, ",")}, &out, t.Output()); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s%s", &out, time.Since(begin).Round(time.Second))
		r.version = build.Describe(strings.TrimSpace(must[string](t)(command(t.Context(), root, nil, "api/build/describe.sh"))))
		files := os.DirFS(r.dir)
		err := fs.WalkDir(files, ".", func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				r.files[path], err = fs.ReadFile(files, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	})
	if t.Failed() {
		t.FailNow()
	}
	return r
}

// copySources makes a clone and puts the files of this tree into it.
func copySources(t *testing.T, to string) {
	t.Helper()
	config := filepath.Join(t.TempDir(), "gitconfig")
	if err := os.WriteFile(config, []byte("[safe]\n\tdirectory = *\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GIT_CONFIG_GLOBAL", config)
	from := must[string](t)(filepath.Abs("../.."))
	git := func(args ...string) string {
		t.Helper()
		return must[string](t)(command(t.Context(), from, nil, "git", args...))
	}
	git("clone", "--quiet", "--no-checkout", from, to)
	git("-C", to, "reset", "--quiet")
	for _, name := range strings.Split(strings.TrimSuffix(git("ls-files", "-z", "--cached", "--others", "--exclude-standard"), "\x00"), "\x00") {
		info, err := os.Lstat(filepath.Join(from, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed, and not committed
		}
		if err == nil {
			err = os.MkdirAll(filepath.Join(to, filepath.Dir(name)), 0o777)
		}
		switch {
		case err != nil:
		case info.Mode().Type() == fs.ModeSymlink: // as parts of the chart are
			err = os.Symlink(must[string](t)(os.Readlink(filepath.Join(from, name))), filepath.Join(to, name))
		default:
			content := must[[]byte](t)(os.ReadFile(filepath.Join(from, name)))
			err = os.WriteFile(filepath.Join(to, name), content, info.Mode().Perm()|0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func (r result) check(t *testing.T, targets []string) {
	top := must[v1.ImageIndex](t)(layout.ImageIndexFromPath(filepath.Join(r.dir, layoutName)))
	if err := validate.Index(top); err != nil {
		t.Fatal(err)
	}
	entries := must[*v1.IndexManifest](t)(top.IndexManifest()).Manifests
	if len(entries) != 1 || entries[0].MediaType != types.OCIImageIndex || !strings.HasPrefix(entries[0].Annotations["org.opencontainers.image.ref.name"], r.version.Tag) {
		t.Fatalf("the layout has %v", entries)
	}
	index := must[v1.ImageIndex](t)(top.ImageIndex(entries[0].Digest))
	manifest := must[*v1.IndexManifest](t)(index.IndexManifest())
	checkLabels(t, r.version, manifest.Annotations)
	var got []string
	for _, d := range manifest.Manifests {
		got = append(got, d.Platform.String())
		if d.ArtifactType != "" {
			t.Errorf("%s is an artifact of type %s", d.Platform, d.ArtifactType)
		}
		t.Run(d.Platform.Architecture, func(t *testing.T) { r.checkImage(t, must[v1.Image](t)(index.Image(d.Digest)), *d.Platform) })
	}
	if !slices.Equal(got, targets) {
		t.Errorf("the platforms are %v, want %v", got, targets)
	}
	archive := tar.NewReader(bytes.NewReader(r.files[archiveName]))
	archived := 0
	for header, err := archive.Next(); !errors.Is(err, io.EOF); header, err = archive.Next() {
		if err != nil {
			t.Fatal(err)
		}
		if content := must[[]byte](t)(io.ReadAll(archive)); header.Typeflag == tar.TypeReg {
			archived++
			if original, is := r.files[layoutName+"/"+header.Name]; !is || !bytes.Equal(content, original) {
				t.Errorf("%s: %s is not that of the layout", archiveName, header.Name)
			}
		}
	}
	if want := len(r.files) - 1 - len(targets); archived != want {
		t.Errorf("%s holds %d files, the layout %d", archiveName, archived, want)
	}
}

func checkLabels(t *testing.T, v build.Version, got map[string]string) {
	t.Helper()
	dirty := ""
	if v.Tree == build.Dirty {
		dirty = "-dirty"
	}
	for name, want := range map[string]string{"version": v.Tag + dirty, "revision": v.Commit + dirty, "licenses": "Apache-2.0", "source": "https://basalt.dev/basalt"} {
		if is := got["org.opencontainers.image."+name]; is != want {
			t.Errorf("the label %s is %q, want %q", name, is, want)
		}
	}
	if _, err := time.Parse(time.RFC3339, got["org.opencontainers.image.created"]); err != nil {
		t.Error(err)
	}
}

func (r result) checkImage(t *testing.T, i v1.Image, p v1.Platform) {
	config := must[*v1.ConfigFile](t)(i.ConfigFile())
	if config.OS != p.OS || config.Architecture != p.Architecture {
		t.Errorf("the image for %s is for %s", p, config.Platform())
	}
	if c := config.Config; c.User != "65532:65532" || !slices.Equal(c.Entrypoint, []string{"/basalt"}) || len(c.Cmd) > 0 || !slices.Equal(c.Env, []string{"PATH=/"}) {
		t.Errorf("the configuration is %+v", c)
	}
	checkLabels(t, r.version, config.Config.Labels)
	checkLabels(t, r.version, must[*v1.Manifest](t)(i.Manifest()).Annotations)
	created := must[time.Time](t)(time.Parse(time.RFC3339, config.Config.Labels["org.opencontainers.image.created"]))
	if !config.Created.Equal(created) {
		t.Errorf("created at %s, and its label says %s", config.Created, created)
	}
	layers := must[[]v1.Layer](t)(i.Layers())
	if len(layers) != 1 {
		t.Fatalf("%d layers", len(layers))
	}
	files := checkLayer(t, layers[0], created)
	info := must[*buildinfo.BuildInfo](t)(buildinfo.Read(bytes.NewReader(files["basalt"])))
	for _, s := range info.Settings {
		if want, is := map[string]string{"GOOS": p.OS, "GOARCH": p.Architecture, "CGO_ENABLED": "0", "GOAMD64": "v1", "-tags": "", "-trimpath": "true"}[s.Key]; is && s.Value != want {
			t.Errorf("built with %s=%s", s.Key, s.Value)
		}
	}
	for _, m := range append(info.Deps, standardLibrary(info)) {
		if !slices.ContainsFunc(names(files), func(path string) bool { return strings.HasPrefix(path, licensesOf(m.Path)+"/") }) {
			t.Errorf("there is no licence of %s", m.Path)
		}
	}
	if p.OS == runtime.GOOS && p.Architecture == runtime.GOARCH {
		r.checkProgram(t, files["basalt"])
	}
	checkSBOM(t, r.files[sbomName(p)], info, must[v1.Hash](t)(i.Digest()))
}

func names(files map[string][]byte) (out []string) {
	for name := range files {
		out = append(out, name)
	}
	return out
}

// checkLayer returns the files of a layer. Nothing in it may be written by whom the process runs as.
func checkLayer(t *testing.T, l v1.Layer, created time.Time) map[string][]byte {
	content := must[io.ReadCloser](t)(l.Uncompressed())
	defer content.Close()
	files, folders := map[string][]byte{}, map[string]bool{"": true}
	for r := tar.NewReader(content); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		mode := int64(0o644)
		if h.Typeflag == tar.TypeDir || h.Name == "basalt" {
			mode = 0o755
		}
		if h.Mode != mode || h.Uid != 0 || h.Gid != 0 || h.Uname != "" || h.Gname != "" || !h.ModTime.Equal(created) || len(h.PAXRecords) > 0 {
			t.Errorf("%+v", h)
		}
		name := strings.TrimSuffix(h.Name, "/")
		if above := strings.TrimPrefix(filepath.Dir(name), "."); !folders[above] {
			t.Errorf("%s comes before its folder", h.Name)
		}
		switch h.Typeflag {
		case tar.TypeDir:
			folders[name] = true
		case tar.TypeReg:
			files[name] = must[[]byte](t)(io.ReadAll(r))
		default:
			t.Errorf("%s has type %c", h.Name, h.Typeflag)
		}
	}
	for name, text := range map[string]string{
		"etc/passwd":                         "nonroot:x:65532:65532:",
		"etc/group":                          "nonroot:x:65532:",
		"etc/ssl/certs/ca-certificates.crt":  "-----BEGIN CERTIFICATE-----\n",
		"licenses/basalt.dev/basalt/LICENSE": "Apache License",
		"licenses/stdlib/LICENSE":            "The Go Authors",
	} {
		if !bytes.Contains(files[name], []byte(text)) {
			t.Errorf("%s has no %q", name, text)
		}
	}
	for name := range files {
		if name != "basalt" && !strings.HasPrefix(name, "etc/") && !strings.HasPrefix(name, "licenses/") {
			t.Errorf("%s was not expected", name)
		}
	}
	return files
}

// checkProgram runs the program of the image.
func (r result) checkProgram(t *testing.T, program []byte) {
	path := filepath.Join(t.TempDir(), "basalt")
	if err := os.WriteFile(path, program, 0o700); err != nil {
		t.Fatal(err)
	}
	out := must[string](t)(command(t.Context(), ".", nil, path, "version"))
	if want := fmt.Sprintf("basalt %s (commit %s, %s, %s, %s/%s)\n", r.version.Tag, r.version.Commit, r.version.Tree, runtime.Version(), runtime.GOOS, runtime.GOARCH); out != want {
		t.Errorf("%q, want %q", out, want)
	}
	var exit *exec.ExitError
	if _, err := command(t.Context(), ".", nil, path, "version", "--nonsense"); !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("an unknown flag: %v", err)
	}
}

func checkSBOM(t *testing.T, text []byte, info *buildinfo.BuildInfo, digest v1.Hash) {
	d := must[*spdx.Document](t)(spdxjson.Read(bytes.NewReader(text)))
	if err := spdxlib.ValidateDocument(d); err != nil {
		t.Error(err)
	}
	if d.SPDXVersion != "SPDX-2.3" || d.DataLicense != "CC0-1.0" || !strings.HasSuffix(d.DocumentNamespace, digest.Hex) {
		t.Errorf("%s, %s, %s", d.SPDXVersion, d.DataLicense, d.DocumentNamespace)
	}
	ids, packages := map[string]bool{}, map[string]*spdx.Package{}
	for _, p := range d.Packages {
		if id := string(p.PackageSPDXIdentifier); ids[id] || notInID.MatchString(id) {
			t.Errorf("the id %s is not valid, or not the only one", id)
		}
		ids[string(p.PackageSPDXIdentifier)] = true
		packages[p.PackageName] = p
	}
	if p := packages["basalt-image"]; p == nil || len(p.PackageChecksums) != 1 || p.PackageChecksums[0].Value != digest.Hex {
		t.Errorf("no package for the image %s", digest)
	}
	// What `go version -m` prints, and no more than this, the standard library, the roots, Basalt and the image.
	for _, m := range info.Deps {
		p := packages[m.Path]
		if p == nil || p.PackageVersion != m.Version || p.PackageSourceInfo != "go.sum "+m.Sum || len(p.PackageExternalReferences) != 1 || !strings.HasPrefix(p.PackageExternalReferences[0].Locator, "pkg:golang/") {
			t.Errorf("%s %s: %+v", m.Path, m.Version, p)
		}
	}
	for name, version := range map[string]string{"stdlib": "v" + strings.TrimPrefix(info.GoVersion, "go"), rootsModule: "v0."} {
		if p := packages[name]; p == nil || !strings.HasPrefix(p.PackageVersion, version) {
			t.Errorf("%s: %+v", name, p)
		}
	}
	if want := len(info.Deps) + 4; len(d.Packages) != want {
		t.Errorf("%d packages, want %d", len(d.Packages), want)
	}
}
