package uninstall

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"basalt.dev/basalt/api"
)

// clusterWide are the kinds of cluster-wide objects that an installation has beside its definitions. Those of Basalt
// are called basalt, or basalt- and more; APIServices by their group.
var clusterWide = []struct {
	short    string // for kubectl
	resource schema.GroupVersionResource
}{
	{"clusterrole", v1("rbac.authorization.k8s.io", "clusterroles")},
	{"clusterrolebinding", v1("rbac.authorization.k8s.io", "clusterrolebindings")},
	{"validatingadmissionpolicy", v1("admissionregistration.k8s.io", "validatingadmissionpolicies")},
	{"validatingadmissionpolicybinding", v1("admissionregistration.k8s.io", "validatingadmissionpolicybindings")},
	{"mutatingadmissionpolicy", v1("admissionregistration.k8s.io", "mutatingadmissionpolicies")},
	{"mutatingadmissionpolicybinding", v1("admissionregistration.k8s.io", "mutatingadmissionpolicybindings")},
	{"flowschema", v1("flowcontrol.apiserver.k8s.io", "flowschemas")},
	{"apiservice", v1("apiregistration.k8s.io", "apiservices")},
}

func v1(group, resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: "v1", Resource: resource}
}

// remains tells what is still there, and how to remove it.
func (r *run) remains(ctx context.Context) error {
	var rows [][2]string
	finds := []func(context.Context) ([][2]string, error){r.objects, r.inNamespace, r.volumes, r.wide, r.pods}
	for _, find := range finds {
		found, err := find(ctx)
		if err != nil {
			return err
		}
		rows = append(rows, found...)
	}
	if len(rows) == 0 {
		fmt.Fprintln(r.out, "nothing of Basalt's remains")
		return nil
	}
	fmt.Fprintln(r.out, "\nWhat remains, and how to remove it:")
	w := tabwriter.NewWriter(r.out, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintf(w, "  %s\t%s\n", row[0], row[1])
	}
	return w.Flush()
}

// objects are those of users, where they were kept.
func (r *run) objects(context.Context) (rows [][2]string, err error) {
	if len(r.kinds) == 0 {
		return nil, nil
	}
	what := strings.Replace(r.inventory(), ", and their", ", their", 1)
	return [][2]string{{what, "basalt uninstall --delete-objects --yes"}}, nil
}

// inNamespace are the namespace and the claims in it.
func (r *run) inNamespace(ctx context.Context) (rows [][2]string, err error) {
	claims, err := r.core.CoreV1().PersistentVolumeClaims(r.Namespace).List(ctx,
		metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=basalt-etcd"})
	if err != nil {
		return nil, fmt.Errorf("list claims of volumes: %w", err)
	}
	if n := len(claims.Items); n > 0 {
		rows = append(rows, [2]string{count(n, "volume") + " of the control store",
			fmt.Sprintf("kubectl -n %s delete pvc -l app.kubernetes.io/name=basalt-etcd", r.Namespace)})
	}
	_, err = r.core.CoreV1().Namespaces().Get(ctx, r.Namespace, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return rows, nil
	} else if err != nil {
		return nil, fmt.Errorf("read namespace %s: %w", r.Namespace, err)
	}
	return append(rows, [2]string{"namespace " + r.Namespace, "kubectl delete namespace " + r.Namespace}), nil
}

// volumes are those that nobody claims any more, which their StorageClass keeps.
func (r *run) volumes(ctx context.Context) (rows [][2]string, err error) {
	list, err := r.core.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list volumes: %w", err)
	}
	var names []string
	for _, v := range list.Items {
		claim := v.Spec.ClaimRef
		if v.Status.Phase == corev1.VolumeReleased && claim != nil && claim.Namespace == r.Namespace &&
			strings.HasPrefix(claim.Name, "data-basalt-etcd-") {
			names = append(names, v.Name)
		}
	}
	if len(names) > 0 {
		rows = append(rows, [2]string{count(len(names), "volume") + " that the StorageClass keeps",
			"kubectl delete pv " + strings.Join(names, " ")})
	}
	return rows, nil
}

// wide are the cluster-wide objects.
func (r *run) wide(ctx context.Context) (rows [][2]string, err error) {
	for _, of := range clusterWide {
		list, err := r.meta.Resource(of.resource).List(ctx, metav1.ListOptions{})
		if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) { // not served by this version of Kubernetes
			continue
		} else if err != nil {
			return nil, fmt.Errorf("list %s: %w", of.resource.Resource, err)
		}
		var names []string
		for _, o := range list.Items {
			if o.Name == "basalt" || strings.HasPrefix(o.Name, "basalt-") || of.short == "apiservice" && ours(o.Name, r.kinds) {
				names = append(names, o.Name)
			}
		}
		if len(names) > 0 {
			slices.Sort(names)
			rows = append(rows, [2]string{of.resource.Resource,
				"kubectl delete " + of.short + " " + strings.Join(names, " ")})
		}
	}
	return rows, nil
}

// ours reports whether an APIService is of a group of Basalt's that it does not have by a definition.
func ours(name string, kinds []*kind) bool {
	for _, k := range kinds {
		if strings.HasSuffix(name, "."+k.resource.Group) {
			return false
		}
	}
	return strings.HasSuffix(name, ".basalt.dev") && !strings.HasSuffix(name, ".scheduling.basalt.dev")
}

// pods are those that wait for Basalt, which nobody places.
func (r *run) pods(ctx context.Context) (rows [][2]string, err error) {
	const waiting = "spec.schedulerName=" + api.SchedulerName + ",spec.nodeName="
	list, err := r.meta.Resource(corev1.SchemeGroupVersion.WithResource("pods")).List(ctx,
		metav1.ListOptions{FieldSelector: waiting, Limit: page})
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	n := fmt.Sprintf("%d pods that wait for Basalt", len(list.Items))
	switch {
	case len(list.Items) == 0:
		return nil, nil
	case len(list.Items) == 1:
		n = "1 pod that waits for Basalt"
	case list.Continue != "":
		n = fmt.Sprintf("more than %d pods that wait for Basalt", page)
	}
	return [][2]string{{n, "kubectl get pods -A --field-selector=" + waiting}}, nil
}
