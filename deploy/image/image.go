package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	program     = "./cmd/basalt"
	layoutName  = "oci"
	archiveName = "basalt.tar"
)

// image is one platform's.
type image struct {
	v1.Image
	platform             v1.Platform
	unpacked, compressed int64 // bytes of the layer
}

// ArtifactType is empty: an image that runs is none of the artifacts whose type an index gives, and some tools drop the type when they
// copy the index, which changes its digest. Without this method the library would give the type of the configuration.
func (i *image) ArtifactType() (string, error) { return "", nil }

// goEnv sets all that changes what the go tool builds, whatever the caller's environment or `go env -w` says.
func goEnv(p v1.Platform) []string {
	return []string{
		"CGO_ENABLED=0", "GOOS=" + p.OS, "GOARCH=" + p.Architecture, "GOAMD64=v1", "GOARM64=v8.0",
		"GOFLAGS=-mod=readonly", "GOWORK=off", "GOEXPERIMENT=", "GOFIPS140=off",
	}
}

// buildProgram builds the program for a platform, in dir for a moment, and returns it with what the go tool recorded
// in it.
func buildProgram(ctx context.Context, src *source, p v1.Platform, dir string) ([]byte, *debug.BuildInfo, error) {
	binary := filepath.Join(dir, "basalt")
	_, err := command(ctx, src.root, goEnv(p), "go", "build", "-buildvcs=false", "-trimpath",
		"-ldflags", "-s -w -buildid= -X basalt.dev/basalt/api/build.described="+src.described, "-o", binary, program)
	if err != nil {
		return nil, nil, err
	}
	content, err := os.ReadFile(binary)
	if err != nil {
		return nil, nil, err
	}
	if err := os.Remove(binary); err != nil {
		return nil, nil, err
	}
	info, err := buildinfo.Read(bytes.NewReader(content))
	if err != nil {
		return nil, nil, fmt.Errorf("read what the program was built from: %w", err)
	}
	return content, info, nil
}

// buildImage builds the program and returns its image. It leaves the SPDX document in dir, and nothing else.
func buildImage(ctx context.Context, src *source, p v1.Platform, dir string) (*image, error) {
	content, info, err := buildProgram(ctx, src, p, dir)
	if err != nil {
		return nil, err
	}
	licenses, err := readLicenses(ctx, src, goEnv(p))
	if err != nil {
		return nil, fmt.Errorf("read licences: %w", err)
	}
	i := &image{platform: p}
	layer, err := i.layer(files(content, licenses), src)
	if err != nil {
		return nil, fmt.Errorf("write the layer: %w", err)
	}
	if i.Image, err = i.describe(layer, src); err != nil {
		return nil, err
	}
	digest, err := i.Digest()
	if err != nil {
		return nil, err
	}
	return i, writeSBOM(filepath.Join(dir, sbomName(p)), src, p, info, content, digest)
}

func (i *image) layer(files []file, src *source) (v1.Layer, error) {
	var content bytes.Buffer
	if err := writeTar(&content, files, src.time); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content.Bytes())), nil },
		tarball.WithCompressionLevel(gzip.BestCompression), tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	i.unpacked = int64(content.Len())
	i.compressed, err = layer.Size()
	return layer, err
}

// describe makes an image of the layer.
func (i *image) describe(layer v1.Layer, src *source) (v1.Image, error) {
	image, err := mutate.Append(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON), mutate.Addendum{
		Layer:   layer,
		History: v1.History{Created: v1.Time{Time: src.time}, CreatedBy: "make image"},
	})
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.Created = v1.Time{Time: src.time}
	config.OS, config.Architecture, config.Variant = i.platform.OS, i.platform.Architecture, i.platform.Variant
	config.Config = v1.Config{
		User:       userID + ":" + userID, // by number: runAsNonRoot can tell that it is not root
		Env:        []string{"PATH=/"},    // kubectl exec ... -- basalt
		Entrypoint: []string{"/basalt"},
		WorkingDir: "/",
		Labels:     src.labels(),
	}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return nil, err
	}
	return mutate.Annotations(image, src.labels()).(v1.Image), nil
}

// labels are the annotations of the OCI image specification that apply.
func (s *source) labels() map[string]string {
	return map[string]string{
		"org.opencontainers.image.title":       "basalt",
		"org.opencontainers.image.description": "A sharded batch scheduler for very large Kubernetes clusters",
		"org.opencontainers.image.version":     s.version,
		"org.opencontainers.image.revision":    s.commit,
		"org.opencontainers.image.source":      "https://basalt.dev/basalt",
		"org.opencontainers.image.licenses":    "Apache-2.0",
		"org.opencontainers.image.created":     s.time.Format("2006-01-02T15:04:05Z"),
	}
}

// writeLayout writes a layout whose one entry is an index of all platforms, and returns the digest of this index. A tool that is not
// told which entry to copy takes the only one, and copies one platform or all of them.
//
// containerd, and with it kind and k3s, calls the image by the annotation io.containerd.image.name, a full name.
func writeLayout(src *source, images []*image, as *name.Tag, dir string) (v1.Hash, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, i := range images {
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: i, Descriptor: v1.Descriptor{Platform: &i.platform}})
	}
	index = mutate.Annotations(index, src.labels()).(v1.ImageIndex)
	to, err := layout.Write(dir, empty.Index)
	if err != nil {
		return v1.Hash{}, err
	}
	annotations := map[string]string{"org.opencontainers.image.ref.name": src.version}
	if as != nil {
		registry := as.RegistryStr()
		if registry == name.DefaultRegistry { // which containerd calls by another name
			registry = "docker.io"
		}
		annotations["org.opencontainers.image.ref.name"] = as.TagStr()
		annotations["io.containerd.image.name"] = registry + "/" + as.RepositoryStr() + ":" + as.TagStr()
	}
	if err := to.AppendIndex(index, layout.WithAnnotations(annotations)); err != nil {
		return v1.Hash{}, err
	}
	return index.Digest()
}

// writeManifest writes what docker load reads of the archive: a name, and one platform, for it takes no more.
func writeManifest(i *image, as *name.Tag, dir string) error {
	manifest, err := i.Manifest()
	if err != nil {
		return err
	}
	blob := func(h v1.Hash) string { return "blobs/" + h.Algorithm + "/" + h.Hex }
	var layers []string
	for _, l := range manifest.Layers {
		layers = append(layers, blob(l.Digest))
	}
	text, err := json.Marshal([]map[string]any{
		{"Config": blob(manifest.Config.Digest), "RepoTags": []string{as.String()}, "Layers": layers}})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "manifest.json"), text, 0o644)
}

// writeArchive writes the files of the layout into one tar, for tools that import archives.
func writeArchive(src *source, dir, to string) (err error) {
	var files []file
	for _, pattern := range []string{"*", "blobs/sha256/*"} { // sorted
		paths, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return err
		}
		for _, p := range paths {
			name := strings.TrimPrefix(filepath.ToSlash(p), filepath.ToSlash(dir)+"/")
			if name == "blobs" {
				continue
			}
			content, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			files = append(files, file{path: name, content: content})
		}
	}
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	if err := writeTar(out, files, src.time); err != nil {
		_ = out.Close()
		return err
	}
	return out.Close()
}
