// Package install applies manifests to an API server, as `kubectl apply --server-side` does. It decides nothing: what to
// apply is its caller's, and what was there before is the API server's to merge.
package install

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
)

// fieldManager owns the fields that are applied.
const fieldManager = "basalt-install"

// establishWithin is how long a fresh definition may take until its kind is served.
const establishWithin = time.Minute

// Apply applies objects in order, and waits after a CustomResourceDefinition until its kind is served. With dryRun the
// API server checks everything, unknown fields too, and keeps nothing; nothing is waited for then.
func Apply(ctx context.Context, config *rest.Config, objects []*unstructured.Unstructured, dryRun bool) error {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	disco, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(disco))
	force := true
	options := metav1.PatchOptions{FieldManager: fieldManager, Force: &force, FieldValidation: metav1.FieldValidationStrict}
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	for _, o := range objects {
		subject := fmt.Sprintf("%s %s", o.GetKind(), o.GetName())
		gvk := o.GroupVersionKind()
		mapping, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
		if err != nil {
			return fmt.Errorf("apply %s: %w", subject, err)
		}
		resource := dynamic.ResourceInterface(client.Resource(mapping.Resource))
		if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
			resource = client.Resource(mapping.Resource).Namespace(o.GetNamespace())
		}
		body, err := o.MarshalJSON()
		if err != nil {
			return fmt.Errorf("apply %s: %w", subject, err)
		}
		if _, err := resource.Patch(ctx, o.GetName(), types.ApplyPatchType, body, options); err != nil {
			return fmt.Errorf("apply %s: %w", subject, err)
		}
		if gvk.Kind == "CustomResourceDefinition" && !dryRun {
			if err := served(ctx, client, disco, o); err != nil {
				return fmt.Errorf("apply %s: %w", subject, err)
			}
			mapper.Reset()
		}
	}
	return nil
}

// served waits until the kinds of a definition answer: Established comes first, discovery and the handler after it.
func served(ctx context.Context, client dynamic.Interface, disco discovery.DiscoveryInterface, crd *unstructured.Unstructured) error {
	group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
	plural, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "plural")
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	var last error
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, establishWithin, true, func(ctx context.Context) (bool, error) {
		for _, v := range versions {
			fields, _ := v.(map[string]any)
			version, _, _ := unstructured.NestedString(fields, "name")
			gv := schema.GroupVersion{Group: group, Version: version}
			list, err := disco.ServerResourcesForGroupVersion(gv.String())
			if last = err; err != nil {
				return false, nil
			}
			found := false
			for _, r := range list.APIResources {
				found = found || r.Name == plural
			}
			if !found {
				last = fmt.Errorf("%s lacks %s", gv, plural)
				return false, nil
			}
			if _, last = client.Resource(gv.WithResource(plural)).List(ctx, metav1.ListOptions{Limit: 1}); last != nil {
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil && last != nil {
		return fmt.Errorf("%w: %w", err, last)
	}
	return err
}
