package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
)

// FieldManager is the name under which Apply owns fields: that of "kubectl apply --server-side", so that whoever
// applies the same manifests by kubectl later meets no conflict.
const FieldManager = "kubectl"

var crds = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// Install applies the folder deploy/ but for its workloads, which here run as plain processes: the CRDs, the namespace, the
// roles and the policies.
func (c *Cluster) Install(ctx context.Context) error {
	deploy := filepath.Join(c.root, "deploy")
	if err := Apply(ctx, c.Config(Admin), filepath.Join(deploy, "crds"), nil); err != nil {
		return err
	}
	workloads := []string{"Deployment", "StatefulSet", "Service", "PodDisruptionBudget", "APIService"}
	return Apply(ctx, c.Config(Admin), deploy, func(u *unstructured.Unstructured) bool {
		return !slices.Contains(workloads, u.GetKind())
	})
}

// Apply does a server-side apply of every object in the YAML files of a folder, in the order of the files' names, and waits
// until a CRD is established before it goes on. Folders inside are left out, so are objects that keep, where given, refuses.
func Apply(ctx context.Context, cfg *rest.Config, dir string, keep func(*unstructured.Unstructured) bool) error {
	objects, err := readObjects(dir)
	if err != nil {
		return err
	}
	// What others live in comes first; among the rest the order of the files holds.
	rank := map[string]int{"CustomResourceDefinition": -2, "Namespace": -1}
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int { return rank[a.GetKind()] - rank[b.GetKind()] })

	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	disc, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(disc))
	for _, u := range objects {
		if keep != nil && !keep(u) {
			continue
		}
		if err := applyOne(ctx, client, mapper, u); err != nil {
			return fmt.Errorf("apply %s %s: %w", u.GetKind(), u.GetName(), err)
		}
	}
	return nil
}

func applyOne(ctx context.Context, client dynamic.Interface, mapper *restmapper.DeferredDiscoveryRESTMapper, u *unstructured.Unstructured) error {
	kind := u.GroupVersionKind()
	// An API that a CRD has just opened may take a moment to be found, and to be served.
	err := retry(ctx, 30*time.Second, func() (again bool, err error) {
		mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			mapper.Reset()
			return meta.IsNoMatchError(err), err
		}
		var to dynamic.ResourceInterface = client.Resource(mapping.Resource)
		if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
			namespace := u.GetNamespace()
			if namespace == "" {
				namespace = metav1.NamespaceDefault
			}
			to = client.Resource(mapping.Resource).Namespace(namespace)
		}
		_, err = to.Apply(ctx, u.GetName(), u, metav1.ApplyOptions{FieldManager: FieldManager, Force: true})
		return apierrors.IsNotFound(err) || apierrors.IsServiceUnavailable(err) || apierrors.IsTooManyRequests(err), err
	})
	if err != nil || kind.Kind != "CustomResourceDefinition" {
		return err
	}
	return retry(ctx, 30*time.Second, func() (bool, error) {
		crd, err := client.Resource(crds).Get(ctx, u.GetName(), metav1.GetOptions{})
		if err != nil {
			return true, err
		}
		conditions, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
		for _, c := range conditions {
			if c, ok := c.(map[string]any); ok && c["type"] == "Established" && c["status"] == "True" {
				return false, nil
			}
		}
		return true, fmt.Errorf("not established: %v", conditions)
	})
}

// retry calls f until it succeeds, says that it need not be tried again, or the limit is over.
func retry(ctx context.Context, limit time.Duration, f func() (again bool, err error)) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		again, err := f()
		if err == nil || !again {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func readObjects(dir string) ([]*unstructured.Unstructured, error) {
	entries, err := os.ReadDir(dir) // sorted
	if err != nil {
		return nil, fmt.Errorf("read manifests: %w", err)
	}
	var all []*unstructured.Unstructured
	for _, e := range entries {
		if e.IsDir() || !strings.HasSuffix(e.Name(), ".yaml") || e.Name() == "kustomization.yaml" {
			continue
		}
		content, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, fmt.Errorf("read manifests: %w", err)
		}
		for documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096); ; {
			u := &unstructured.Unstructured{}
			if err := documents.Decode(u); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return nil, fmt.Errorf("read %s: %w", filepath.Join(dir, e.Name()), err)
			}
			if len(u.Object) == 0 { // a document of comments
				continue
			}
			all = append(all, u)
		}
	}
	return all, nil
}
