package kube

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"

	"basalt.dev/basalt/api"
)

// Recorder writes Kubernetes events: few, and each about something that its user should look at.
type Recorder struct{ recorder events.EventRecorder }

// Recorder makes one, which works until ctx ends.
func (c *Clients) Recorder(ctx context.Context) (*Recorder, error) {
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: c.Core.EventsV1()})
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, broadcaster.Shutdown)
	return &Recorder{broadcaster.NewRecorder(scheme.Scheme, api.SchedulerName)}, nil
}

// maxNote bounds the note of an event, in bytes: the API server takes no longer one.
const maxNote = 1024

// About writes an event about an object.
func (r *Recorder) About(object corev1.ObjectReference, warning bool, reason, action, message string) {
	kind := corev1.EventTypeNormal
	if warning {
		kind = corev1.EventTypeWarning
	}
	r.recorder.Eventf(&object, nil, kind, reason, action, "%s", api.Shorten(message, maxNote))
}
