package server

import (
	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/types"
	volcanov1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/shard/event"
)

// recorder writes what the cores have to say about nodes and groups; about a group without an object it is said at one of its pods.
type recorder struct{ *kube.Recorder }

func (r *recorder) node(o event.NodeEvent) {
	r.About(corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: o.Node, UID: types.UID(o.UID)}, o.Warning, o.Reason, "Scheduling", o.Message)
}

func (r *recorder) podGroup(o event.PodGroupEvent) {
	version, kind := v1beta1.SchemeGroupVersion, "PodGroup"
	switch o.Kind {
	case api.ImpliedGroup:
		version, kind = corev1.SchemeGroupVersion, "Pod"
	case api.VolcanoGroup:
		version = volcanov1beta1.SchemeGroupVersion
	case api.UpstreamGroup:
		version = schedulingv1beta1.SchemeGroupVersion
	}
	r.About(corev1.ObjectReference{APIVersion: version.String(), Kind: kind, Namespace: o.Namespace, Name: o.Name, UID: types.UID(o.UID)}, o.Warning, o.Reason, "Scheduling", o.Message)
}
