package migrate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	batch "volcano.sh/apis/pkg/apis/batch/v1alpha1"
	"volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"basalt.dev/basalt/api"
)

// take adds an object, if it is of a kind that is checked.
func (o *Objects) take(u *unstructured.Unstructured) error {
	var err error
	read := func(to any) { err = runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, to) }
	switch (schema.GroupKind{Group: u.GroupVersionKind().Group, Kind: u.GetKind()}) {
	case schema.GroupKind{Group: v1beta1.GroupName, Kind: "Queue"}:
		o.Queues = append(o.Queues, v1beta1.Queue{})
		read(&o.Queues[len(o.Queues)-1])
	case schema.GroupKind{Group: v1beta1.GroupName, Kind: "PodGroup"}:
		o.PodGroups = append(o.PodGroups, v1beta1.PodGroup{})
		read(&o.PodGroups[len(o.PodGroups)-1])
	case schema.GroupKind{Group: batch.GroupName, Kind: "Job"}:
		o.Jobs = append(o.Jobs, batch.Job{})
		read(&o.Jobs[len(o.Jobs)-1])
	case schema.GroupKind{Kind: "Pod"}:
		o.Pods = append(o.Pods, corev1.Pod{})
		read(&o.Pods[len(o.Pods)-1])
	case schema.GroupKind{Kind: "ConfigMap"}:
		if text, found, _ := unstructured.NestedString(u.Object, "data", schedulerKey); found {
			o.Scheduler = text
		}
	}
	if err != nil {
		return fmt.Errorf("read %s %s/%s: %w", u.GetKind(), u.GetNamespace(), u.GetName(), err)
	}
	return nil
}

// schedulerKey is where the ConfigMap of Volcano's scheduler has its configuration.
const schedulerKey = "volcano-scheduler.conf"

// maxFile is how many bytes a file may have: some 100,000 pods as YAML.
const maxFile = 1 << 30

// bounded reads no more than so many bytes, and fails where there are more.
type bounded struct {
	from io.Reader
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, fmt.Errorf("it is larger than %d MiB: check the namespaces one after another", maxFile>>20)
	}
	n, err := b.from.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

// ReadFile reads what kubectl has printed as YAML or JSON: objects, or lists of them. A file without any object that
// is checked, such as a table, is an error: it would look like a cluster that uses nothing of Volcano's.
func ReadFile(from io.Reader) (*Objects, error) {
	o := &Objects{}
	d := yaml.NewYAMLOrJSONDecoder(&bounded{from, maxFile}, 4096)
	kinds, empty := map[string]bool{}, false
	for document := 1; ; document++ {
		u := &unstructured.Unstructured{}
		err := d.Decode(&u.Object)
		switch {
		case errors.Is(err, io.EOF) && o.none() && (len(kinds) > 0 || !empty):
			return nil, fmt.Errorf(
				"it has none of Volcano's Queues, PodGroups and Jobs, and no pod%s; --help says which command writes it",
				found(kinds),
			)
		case errors.Is(err, io.EOF):
			return o, nil
		case err != nil:
			return nil, fmt.Errorf("document %d is no object as kubectl prints it with -o yaml or -o json: %w", document, err)
		case u.Object == nil: // nothing between two separators
			continue
		}
		if !u.IsList() {
			kinds[u.GetKind()] = true
			err = o.take(u)
		} else {
			empty = true // kubectl's words for nothing, unless items follow
			err = u.EachListItem(func(item runtime.Object) error {
				object, is := item.(*unstructured.Unstructured)
				if !is {
					return errors.New("an item is no object")
				}
				kinds[object.GetKind()] = true
				return o.take(object)
			})
		}
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", document, err)
		}
	}
}

// none reports whether there is nothing to check.
func (o *Objects) none() bool {
	return len(o.Queues)+len(o.PodGroups)+len(o.Jobs)+len(o.Pods) == 0 && o.Scheduler == ""
}

// found names some of the kinds of objects that were found instead.
func found(kinds map[string]bool) string {
	delete(kinds, "")
	names := slices.Sorted(maps.Keys(kinds))
	if len(names) == 0 {
		return ""
	}
	return ", but " + api.Shorten(strings.Join(names, ", "), 200)
}

// perRequest is how many objects one request lists.
const perRequest = 500

// ReadCluster reads what is there. A kind that the API server does not serve has no objects.
func ReadCluster(ctx context.Context, client dynamic.Interface, configMap, namespace string) (*Objects, error) {
	o := &Objects{}
	for _, kind := range []schema.GroupVersionResource{
		v1beta1.SchemeGroupVersion.WithResource("queues"), v1beta1.SchemeGroupVersion.WithResource("podgroups"),
		batch.SchemeGroupVersion.WithResource("jobs"), corev1.SchemeGroupVersion.WithResource("pods"),
	} {
		options := metav1.ListOptions{Limit: perRequest}
		for {
			list, err := client.Resource(kind).List(ctx, options)
			if apierrors.IsNotFound(err) {
				break
			}
			if err != nil {
				return nil, fmt.Errorf("list %s: %w", kind.GroupResource(), err)
			}
			for i := range list.Items {
				if err := o.take(&list.Items[i]); err != nil {
					return nil, err
				}
			}
			if options.Continue = list.GetContinue(); options.Continue == "" {
				break
			}
		}
	}
	u, err := client.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace(namespace).Get(ctx, configMap, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return o, nil
	case err != nil:
		return nil, fmt.Errorf("get ConfigMap %s/%s: %w", namespace, configMap, err)
	}
	return o, o.take(u)
}
