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

// recorder writes what the cores have to say about objects.
type recorder struct{ *kube.Recorder }

func (r *recorder) tell(o event.ObjectEvent) {
	version, kind := corev1.SchemeGroupVersion, "PodGroup"
	switch {
	case o.About.Kind == event.Node:
		kind = "Node"
	case o.About.Kind == event.Pod:
		kind = "Pod"
	case o.About.Group == api.VolcanoGroup:
		version = volcanov1beta1.SchemeGroupVersion
	case o.About.Group == api.UpstreamGroup:
		version = schedulingv1beta1.SchemeGroupVersion
	default:
		version = v1beta1.SchemeGroupVersion
	}
	about := corev1.ObjectReference{APIVersion: version.String(), Kind: kind,
		Namespace: o.About.Namespace, Name: o.About.Name, UID: types.UID(o.About.UID)}
	r.About(about, o.Warning, o.Reason, "Scheduling", o.Message)
}
