// Package image_test tests what names a build: the container image, and the version in the programs.
package image_test

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"basalt.dev/basalt/api/build"
	"basalt.dev/basalt/bench/prove/seeds"
	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/localtest"
)

// deploy/image is a module of its own, with its own tests. Here they build one platform; `make image-test` builds all.
// It takes minutes because it builds the programs twice, in different surroundings: not for changes of every day.
func TestImage(t *testing.T) {
	if !seeds.InFull() {
		t.Skip("it builds the programs twice")
	}
	root, err := local.Root()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "test", "-short", "-count", "1", "-timeout", "30m", ".")
	cmd.Dir = filepath.Join(root, "deploy", "image")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestProgramsKnowTheirCommit(t *testing.T) {
	root, err := local.Root()
	if err != nil {
		t.Fatal(err)
	}
	described, _ := exec.CommandContext(t.Context(), filepath.Join(root, "api", "build", "describe.sh")).Output() // git may not trust the tree
	want := build.Describe(strings.TrimSpace(string(described)))
	out, err := exec.CommandContext(t.Context(), localtest.Basalt(t), "version", "-o", "json").Output()
	var got build.Version
	if err != nil || json.Unmarshal(out, &got) != nil || got.Tag != want.Tag || got.Commit != want.Commit || got.Tree != want.Tree {
		t.Errorf("%s, %v, want %s", out, err, want)
	}
}
