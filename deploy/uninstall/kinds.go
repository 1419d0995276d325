package uninstall

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"basalt.dev/basalt/api/v1beta1"
)

// kind is one of Basalt's that the API server has a definition of.
type kind struct {
	name, definition string
	resource         schema.GroupVersionResource // of the version that is stored
	deleting         bool
	objects          int
}

var definitions = schema.GroupVersionResource{
	Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// nudged is the annotation that is written on a definition that is being deleted, for nothing but its change: the API
// server looks again at once, and not only minutes later, as it does when it has failed often.
const nudged = "scheduling.basalt.dev/uninstall"

// kind returns one by its name, nil if the API server has no definition of it.
func (r *run) kind(name string) *kind {
	for _, k := range r.kinds {
		if k.name == name {
			return k
		}
	}
	return nil
}

// look finds the definitions, and counts their objects.
func (r *run) look(ctx context.Context) error {
	client, err := dynamic.NewForConfig(r.config)
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	r.kinds = nil
	for _, resource := range []string{"podgroups", "queues"} {
		name := resource + "." + v1beta1.GroupName
		o, err := client.Resource(definitions).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue
		} else if err != nil {
			return fmt.Errorf("read CustomResourceDefinition %s: %w", name, err)
		}
		k := &kind{definition: name, deleting: o.GetDeletionTimestamp() != nil}
		k.name, _, _ = unstructured.NestedString(o.Object, "spec", "names", "kind")
		versions, _, _ := unstructured.NestedSlice(o.Object, "spec", "versions")
		for _, v := range versions {
			if v, is := v.(map[string]any); is && v["storage"] == true {
				k.resource = schema.GroupVersionResource{
					Group: v1beta1.GroupName, Version: fmt.Sprint(v["name"]), Resource: resource}
			}
		}
		if k.objects, _, err = r.first(ctx, k); err != nil {
			return err
		}
		r.kinds = append(r.kinds, k)
	}
	return nil
}

// first returns how many objects a kind has, and the first of them.
func (r *run) first(ctx context.Context, k *kind) (n int, some []metav1.PartialObjectMetadata, err error) {
	list, err := r.meta.Resource(k.resource).List(ctx, metav1.ListOptions{Limit: page})
	if apierrors.IsNotFound(err) {
		return 0, nil, nil
	} else if err != nil {
		return 0, nil, fmt.Errorf("list %ss: %w", k.name, err)
	}
	n = len(list.Items)
	if more := list.RemainingItemCount; more != nil {
		n += int(*more)
	}
	return n, list.Items, nil
}

// each calls do for all objects of a kind, of all namespaces, page by page. A kind that is not served has none.
func (r *run) each(ctx context.Context, k *kind, do func(*metav1.PartialObjectMetadata) error) error {
	o := metav1.ListOptions{Limit: page}
	for {
		list, err := r.meta.Resource(k.resource).List(ctx, o)
		switch {
		case apierrors.IsNotFound(err): // the definition went meanwhile, or is not established yet
			return nil
		case apierrors.IsResourceExpired(err) && o.Continue != "": // etcd was compacted between two pages: from the beginning
			o.Continue = ""
			continue
		case err != nil:
			return fmt.Errorf("list %ss: %w", k.name, err)
		}
		for i := range list.Items {
			if err := do(&list.Items[i]); err != nil {
				return err
			}
		}
		if o.Continue = list.Continue; o.Continue == "" {
			return nil
		}
	}
}

// save writes all objects to a new file as they can be applied again. If it fails there is no file.
func (r *run) save(ctx context.Context) error {
	file, err := os.OpenFile(r.Save, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("save objects: %w", err)
	}
	saved, err := r.write(ctx, file)
	if err = errors.Join(err, file.Close()); err != nil {
		return errors.Join(fmt.Errorf("save objects: %w", err), os.Remove(r.Save))
	}
	fmt.Fprintf(r.out, "saved %s in %s\n", count(saved, "object"), r.Save)
	return nil
}

func (r *run) write(ctx context.Context, out io.Writer) (saved int, err error) {
	client, err := dynamic.NewForConfig(r.config)
	if err != nil {
		return 0, err
	}
	for _, k := range r.kinds {
		o := metav1.ListOptions{Limit: page}
		for {
			list, err := client.Resource(k.resource).List(ctx, o)
			if err != nil {
				return saved, err
			}
			for _, found := range list.Items {
				text, err := yaml.Marshal(manifest(found.Object))
				if err == nil {
					_, err = fmt.Fprintf(out, "---\n%s", text)
				}
				if err != nil {
					return saved, err
				}
				saved++
			}
			if o.Continue = list.GetContinue(); o.Continue == "" {
				break
			}
		}
	}
	return saved, nil
}

// manifest is what a user would write to get an object: without status, and without what the API server added. An
// owner that is there no more takes the object along.
func manifest(object map[string]any) map[string]any {
	out := map[string]any{"apiVersion": object["apiVersion"], "kind": object["kind"], "spec": object["spec"]}
	metadata, _ := object["metadata"].(map[string]any)
	kept := map[string]any{}
	for _, field := range []string{"name", "namespace", "labels", "annotations", "ownerReferences"} {
		if value, there := metadata[field]; there {
			kept[field] = value
		}
	}
	out["metadata"] = kept
	return out
}

// deleteKinds deletes the definitions, and with them the API server deletes their objects; no finalizer of ours is in
// the way.
func (r *run) deleteKinds(ctx context.Context) error {
	if k := r.kind("Queue"); k != nil {
		if _, _, err := r.strip(ctx, k); err != nil {
			return err
		}
	}
	for _, k := range r.kinds {
		err := r.meta.Resource(definitions).Delete(ctx, k.definition, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete CustomResourceDefinition %s: %w", k.definition, err)
		}
	}
	for _, k := range r.kinds {
		if k.deleting {
			if err := r.nudge(ctx, k); err != nil {
				return err
			}
		}
		if err := r.until(ctx, func() (string, error) { return r.held(ctx, k) }); err != nil {
			return err
		}
		fmt.Fprintf(r.out, "deleted the definition of %s and %s\n", k.name, count(k.objects, k.name))
	}
	if len(r.kinds) == 0 {
		fmt.Fprintln(r.out, "there are no Queues and PodGroups: their definitions are gone")
	}
	return nil
}

// nudge has the API server look again at a definition that was being deleted before.
func (r *run) nudge(ctx context.Context, k *kind) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"annotations": map[string]any{nudged: time.Now().UTC().Format(time.RFC3339Nano)}}})
	if err != nil {
		return err
	}
	_, err = r.meta.Resource(definitions).Patch(ctx, k.definition, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("touch CustomResourceDefinition %s: %w", k.definition, err)
	}
	return nil
}

// held says what a definition that is being deleted waits for, "" when it is gone.
func (r *run) held(ctx context.Context, k *kind) (string, error) {
	_, err := r.meta.Resource(definitions).Get(ctx, k.definition, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", nil
	} else if err != nil {
		return "", fmt.Errorf("read CustomResourceDefinition %s: %w", k.definition, err)
	}
	n, some, err := r.first(ctx, k)
	if err != nil {
		return "", err
	}
	var by []string
	for _, o := range some {
		if len(o.Finalizers) > 0 && len(by) < named {
			name := o.Name
			if o.Namespace != "" {
				name = o.Namespace + "/" + name
			}
			by = append(by, fmt.Sprintf("%s has %s", name, strings.Join(o.Finalizers, ", ")))
		}
	}
	says := fmt.Sprintf("the definition of %s is still being deleted, with %s", k.name, count(n, "object"))
	if len(by) > 0 {
		says += "; finalizers hold " + strings.Join(by, "; ")
	}
	return says, nil
}
