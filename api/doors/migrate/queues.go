package migrate

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"basalt.dev/basalt/api/v1alpha1"
)

// Queues returns Basalt's Queues for those of Volcano that are not below another: with the same name, and the limits that both know.
func Queues(of []v1beta1.Queue) []*v1alpha1.Queue {
	var out []*v1alpha1.Queue
	for i := range of {
		q := &of[i]
		if q.Name == "root" || q.Spec.Parent != "" && q.Spec.Parent != "root" {
			continue
		}
		out = append(out, &v1alpha1.Queue{
			TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "Queue"},
			ObjectMeta: metav1.ObjectMeta{Name: q.Name},
			Spec: v1alpha1.QueueSpec{
				Capability: q.Spec.Capability, Guarantee: q.Spec.Guarantee.Resource,
				Closed: q.Status.State == v1beta1.QueueStateClosed || q.Status.State == v1beta1.QueueStateClosing,
			},
		})
	}
	slices.SortFunc(out, func(a, b *v1alpha1.Queue) int { return strings.Compare(a.Name, b.Name) })
	return out
}
