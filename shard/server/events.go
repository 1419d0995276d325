package server

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1alpha1"
	"basalt.dev/basalt/shard/event"
)

// recorder writes Kubernetes events: few, and each about something that its user should look at.
type recorder struct{ events.EventRecorder }

func newRecorder(ctx context.Context, client kubernetes.Interface) (*recorder, error) {
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, broadcaster.Shutdown)
	return &recorder{broadcaster.NewRecorder(scheme.Scheme, api.SchedulerName)}, nil
}

func (r *recorder) node(o event.NodeEvent) {
	r.about(&corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: o.Node, UID: types.UID(o.UID)}, o.Warning, o.Reason, "Scheduling", o.Message)
}

func (r *recorder) podGroup(o event.PodGroupEvent) {
	version := v1alpha1.SchemeGroupVersion
	switch o.Kind {
	case api.VolcanoGroup:
		version = v1beta1.SchemeGroupVersion
	case api.UpstreamGroup:
		version = schedulingv1beta1.SchemeGroupVersion
	}
	r.about(&corev1.ObjectReference{APIVersion: version.String(), Kind: "PodGroup", Namespace: o.Namespace, Name: o.Name, UID: types.UID(o.UID)}, o.Warning, o.Reason, "Scheduling", o.Message)
}

// maxNote bounds the note of an event, in bytes: the API server takes no longer one.
const maxNote = 1024

func (r *recorder) about(object runtime.Object, warning bool, reason, action, message string) {
	kind := corev1.EventTypeNormal
	if warning {
		kind = corev1.EventTypeWarning
	}
	r.Eventf(object, nil, kind, reason, action, "%s", api.Shorten(message, maxNote))
}
