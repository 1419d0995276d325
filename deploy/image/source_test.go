package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"basalt.dev/basalt/api/build"
)

// What is wrong is said before anything is built or removed.
func TestBadInput(t *testing.T) {
	foreign := t.TempDir()
	if err := os.WriteFile(filepath.Join(foreign, "thesis.tex"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	free := filepath.Join(t.TempDir(), "image")
	for _, row := range []struct {
		args, epoch, says string
	}{
		{args: "--platforms linux/s390x", says: `there is no image for the platform "linux/s390x", only for linux/amd64 and linux/arm64`},
		{args: "--platforms linux/amd64,windows/amd64", says: `"windows/amd64"`},
		{args: "--platforms amd64", says: `"amd64"`},
		{args: "--platforms=", says: `the platform ""`},
		{args: "--push", says: "flag provided but not defined: -push"},
		{args: "now", says: `unexpected argument "now"`},
		{args: "--output " + foreign, says: "holds something else than an image"},
		{args: "--output " + filepath.Join(foreign, "thesis.tex"), says: "not a directory"},
		{args: "--root " + filepath.Join(foreign, "none"), says: "no such file"},
		{epoch: "yesterday", says: `SOURCE_DATE_EPOCH is "yesterday", not a number of seconds`},
		{epoch: "-1", says: `SOURCE_DATE_EPOCH is "-1"`},
		{epoch: "99999999999", says: `SOURCE_DATE_EPOCH is "99999999999"`},
	} {
		t.Setenv("SOURCE_DATE_EPOCH", row.epoch)
		var out bytes.Buffer
		err := run(t.Context(), append([]string{"--output", free}, strings.Fields(row.args)...), &out, t.Output())
		if err == nil || !strings.Contains(err.Error(), row.says) {
			t.Errorf("%s: %v, want %q", row.args, err, row.says)
		}
	}
	if _, err := os.Stat(filepath.Join(foreign, "thesis.tex")); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(free); err == nil {
		t.Error("something was built")
	}
}

// The version follows a small tree from before its first commit to after its first tag.
func TestVersionOfTheSources(t *testing.T) {
	t.Setenv("GIT_CONFIG_GLOBAL", os.DevNull)
	around := t.TempDir()
	root := filepath.Join(around, "sources")
	script := must[[]byte](t)(os.ReadFile("../../api/build/describe.sh"))
	if err := os.MkdirAll(filepath.Join(root, "api", "build"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "api", "build", "describe.sh"), script, 0o755); err != nil {
		t.Fatal(err)
	}
	git := func(dir string, args ...string) {
		t.Helper()
		env := []string{"GIT_COMMITTER_DATE=@1700000000 +0545", "GIT_AUTHOR_DATE=@1 +0000"}
		must[string](t)(command(t.Context(), dir, env, "git", append([]string{"-c", "user.name=t", "-c", "user.email=t@localhost"}, args...)...))
	}
	write := func(name string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(root, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	see := func(what, version string, seconds int64, warning string) *source {
		t.Helper()
		var warnings bytes.Buffer
		s, err := readSource(t.Context(), root, &warnings)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		is := s.version
		if v := build.Describe(s.described); v.Commit != build.Unknown {
			is = strings.ReplaceAll(is, v.Commit[:12], "COMMIT")
		}
		if is != version || s.time.Unix() != seconds || !strings.Contains(warnings.String(), warning) || (warning == "") != (warnings.Len() == 0) {
			t.Errorf("%s: %s at %d, %q", what, s.version, s.time.Unix(), &warnings)
		}
		return s
	}
	see("no repository", "unknown", 0, "not a git repository")
	git(around, "init", "--quiet")
	git(around, "commit", "--quiet", "--allow-empty", "-m", "another project")
	see("a repository around", "unknown", 0, "not a git repository")
	git(root, "init", "--quiet")
	see("no commit", "unknown", 0, "the version will be")
	git(root, "add", ".")
	git(root, "commit", "--quiet", "-m", "first")
	see("no tag", "untagged", 1700000000, "")
	git(root, "tag", "v0.1.0")
	git(root, "tag", "nightly")
	see("a tag", "v0.1.0", 1700000000, "")
	write("new.go")
	if s := see("a new file", "v0.1.0-dirty", 1700000000, "differ from the commit"); !strings.HasSuffix(s.commit, "-dirty") {
		t.Errorf("the revision is %s", s.commit)
	}
	git(root, "add", ".")
	git(root, "commit", "--quiet", "-m", "second")
	see("a commit after a tag", "v0.1.0-1-gCOMMIT", 1700000000, "")
	t.Setenv("SOURCE_DATE_EPOCH", "1600000000")
	see("a given time", "v0.1.0-1-gCOMMIT", 1600000000, "")
	t.Setenv("SOURCE_DATE_EPOCH", "")
	write("new.go")
	if err := os.Remove(filepath.Join(root, "api", "build", "describe.sh")); err != nil {
		t.Fatal(err)
	}
	see("no script", "unknown", 0, "no such file")
	if err := os.WriteFile(filepath.Join(root, "api", "build", "describe.sh"), script, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", "")
	see("no git", "unknown", 0, "the version will be")
}
