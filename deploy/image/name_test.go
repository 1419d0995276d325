package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// An archive with a name is called by it: in full for containerd, and in the file that docker load reads.
func TestName(t *testing.T) {
	for called, full := range map[string]string{
		"basalt:dev":                      "docker.io/library/basalt:dev",
		"me/basalt:v1":                    "docker.io/me/basalt:v1",
		"registry.example:5000/a/b/c:1.0": "registry.example:5000/a/b/c:1.0",
	} {
		tag := must[name.Tag](t)(name.NewTag(called))
		targets, err := parsePlatforms("linux/arm64,linux/amd64")
		if err != nil {
			t.Fatal(err)
		}
		var images []*image
		for _, p := range targets {
			one, err := random.Image(1000, 2)
			if err != nil {
				t.Fatal(err)
			}
			images = append(images, &image{Image: one, platform: p})
		}
		dir, archive := filepath.Join(t.TempDir(), "oci"), filepath.Join(t.TempDir(), "basalt.tar")
		if _, err := writeLayout(&source{version: "v1"}, images, &tag, dir); err != nil {
			t.Fatal(err)
		}
		if err := writeManifest(images[0], &tag, dir); err != nil {
			t.Fatal(err)
		}
		if err := writeArchive(&source{version: "v1"}, dir, archive); err != nil {
			t.Fatal(err)
		}
		var index struct {
			Manifests []struct{ Annotations map[string]string }
		}
		if err := json.Unmarshal(must[[]byte](t)(os.ReadFile(filepath.Join(dir, "index.json"))), &index); err != nil {
			t.Fatal(err)
		}
		if got := index.Manifests[0].Annotations["io.containerd.image.name"]; len(index.Manifests) != 1 || got != full {
			t.Errorf("%s: containerd calls it %q, want %q", called, got, full)
		}
		loaded, err := tarball.ImageFromPath(archive, &tag)
		if err != nil {
			t.Fatalf("%s: docker load finds no image of that name: %v", called, err)
		}
		if err := validate.Image(loaded); err != nil {
			t.Errorf("%s: %v", called, err)
		}
		want, err := images[0].ConfigName()
		if err != nil {
			t.Fatal(err)
		}
		got, err := loaded.ConfigName()
		if err != nil {
			t.Fatal(err)
		}
		if want != got {
			t.Errorf("%s: docker load takes %v, not the first platform's %v", called, got, want)
		}
	}
	ended, end := context.WithCancel(t.Context())
	end() // one that is taken for a name builds nothing
	for _, wrong := range []string{"basalt", "Basalt:dev", "basalt:", "basalt:dev:dev", "http://a/b:c",
		"basalt@sha256:" + strings.Repeat("0", 64), ":dev", strings.Repeat("a", 300) + ":dev"} {
		err := run(ended, []string{"--name", wrong}, os.Stderr, os.Stderr)
		if err == nil || !strings.Contains(err.Error(), "is not a name and a tag, such as basalt:dev") {
			t.Errorf("--name %s: %v", wrong, err)
		}
	}
}
