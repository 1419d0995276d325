package api

import (
	"slices"

	"github.com/cespare/xxhash/v2"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// End is how a pod ended.
type End struct {
	Succeeded bool // and did not fail
	// When the last of its containers ended, as a Unix time, 0 if nothing says so; of a pod that is being deleted and has
	// not ended, when its grace is over.
	At int64
}

// readLife reads who made a pod, and how it ended.
func (p *Pod) readLife(o *v1.Pod) {
	if metav1.GetControllerOfNoCopy(o) != nil {
		_, uid := controllerOf(o)
		p.Owner = xxhash.Sum64String(uid)
	}
	switch {
	case p.Finished:
		p.End = EndOf(o)
	case p.Deleting:
		p.End.At = o.DeletionTimestamp.Unix()
	}
}

// EndOf returns how a pod ended that has.
func EndOf(o *v1.Pod) End { return End{o.Status.Phase == v1.PodSucceeded, endOf(o)} }

// Owned reports whether a controller would make the pod again.
func (p *Pod) Owned() bool { return p.Owner != 0 }

// endOf returns when the last container of a pod ended, as a Unix time, 0 if none says so.
func endOf(p *v1.Pod) (at int64) {
	for i := range p.Status.ContainerStatuses {
		if t := p.Status.ContainerStatuses[i].State.Terminated; t != nil && !t.FinishedAt.IsZero() {
			at = max(at, t.FinishedAt.Unix())
		}
	}
	return at
}

// stripEnd keeps of a finished pod when it ended.
func stripEnd(out, p *v1.Pod) {
	at := endOf(p)
	if at == 0 || p.Status.Phase != v1.PodSucceeded && p.Status.Phase != v1.PodFailed {
		return
	}
	ended := &v1.ContainerStateTerminated{FinishedAt: metav1.Unix(at, 0)}
	out.Status.ContainerStatuses = append(slices.Clip(out.Status.ContainerStatuses),
		v1.ContainerStatus{State: v1.ContainerState{Terminated: ended}})
}
