package migrate

import (
	"context"
	"errors"
	"fmt"
	"io"

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

// ReadFile reads what kubectl has printed as YAML or JSON: objects, or lists of them.
func ReadFile(from io.Reader) (*Objects, error) {
	o := &Objects{}
	d := yaml.NewYAMLOrJSONDecoder(from, 4096)
	for {
		u := &unstructured.Unstructured{}
		if err := d.Decode(&u.Object); errors.Is(err, io.EOF) {
			return o, nil
		} else if err != nil {
			return nil, fmt.Errorf("read objects: %w", err)
		}
		if !u.IsList() {
			if err := o.take(u); err != nil {
				return nil, err
			}
			continue
		}
		if err := u.EachListItem(func(item runtime.Object) error { return o.take(item.(*unstructured.Unstructured)) }); err != nil {
			return nil, err
		}
	}
}

// page is how many objects one request lists.
const page = 500

// ReadCluster reads what is there. A kind that the API server does not serve has no objects.
func ReadCluster(ctx context.Context, client dynamic.Interface, configMap, namespace string) (*Objects, error) {
	o := &Objects{}
	for _, kind := range []schema.GroupVersionResource{
		v1beta1.SchemeGroupVersion.WithResource("queues"), v1beta1.SchemeGroupVersion.WithResource("podgroups"),
		batch.SchemeGroupVersion.WithResource("jobs"), corev1.SchemeGroupVersion.WithResource("pods"),
	} {
		options := metav1.ListOptions{Limit: page}
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
