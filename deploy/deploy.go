// Package deploy carries what a cluster admin applies, for programs that apply it themselves: local clusters and tests.
// The files are the truth; this package only reads them.
package deploy

import (
	"embed"
	"errors"
	"fmt"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// Files are the manifests of this folder.
//
//go:embed *.yaml crds/*.yaml gangs/*.yaml users/*.yaml examples/*.yaml examples/production/*.yaml
//go:embed overlays/console/console.yaml
var Files embed.FS

// Kustomization returns the files that deploy/kustomization.yaml applies, in its order. The definitions are not among
// them.
func Kustomization() ([]string, error) {
	var k struct {
		Resources []string `json:"resources"`
	}
	b, err := Files.ReadFile("kustomization.yaml")
	if err != nil {
		return nil, fmt.Errorf("read kustomization.yaml: %w", err)
	}
	if err := yaml.Unmarshal(b, &k); err != nil {
		return nil, fmt.Errorf("read kustomization.yaml: %w", err)
	}
	return k.Resources, nil
}

// CRDs returns the definitions of Queue and PodGroup.
func CRDs() ([]*unstructured.Unstructured, error) {
	entries, err := Files.ReadDir("crds")
	if err != nil {
		return nil, fmt.Errorf("read crds: %w", err)
	}
	var paths []string
	for _, e := range entries {
		if e.Name() != "kustomization.yaml" {
			paths = append(paths, "crds/"+e.Name())
		}
	}
	return Objects(paths...)
}

// Objects reads the objects of some files, in order.
func Objects(paths ...string) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	for _, path := range paths {
		b, err := Files.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
		d := yaml.NewYAMLOrJSONDecoder(strings.NewReader(string(b)), 4096)
		for {
			o := &unstructured.Unstructured{}
			if err := d.Decode(&o.Object); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return nil, fmt.Errorf("read %s: %w", path, err)
			}
			if len(o.Object) > 0 { // a document of comments only
				out = append(out, o)
			}
		}
	}
	return out, nil
}
