package kube

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"basalt.dev/basalt/api"
)

// An API server whose etcd was restored from a backup counts resourceVersions again from that of the backup. It accepts a
// watch from a version that it has not reached, sends nothing until it has passed that version, and never sends what
// changed before (kubernetes/kubernetes#107457; the same in 1.37). An API server that has already passed the version resumes
// the watch in another history. So whenever a watch is opened, the API server is asked whether its history contains the
// point from which the watch goes on; where it does not, everything is listed again.

// Mark is the point in an API server's history that a watch of one kind has reached.
type Mark struct {
	Version string
	// The newest object that is known to have been written, and its resourceVersion. Without a name there is none.
	Namespace, Name, Written string
}

// Reach moves the mark to an event. Its object is that of the newest event which is not a deletion.
func (m *Mark) Reach(t watch.EventType, o metav1.Object) {
	m.reach(t, o.GetResourceVersion(), o.GetNamespace(), o.GetName())
}

func (m *Mark) reach(t watch.EventType, version, namespace, name string) {
	m.Version = version
	if t == watch.Added || t == watch.Modified {
		m.Namespace, m.Name, m.Written = namespace, name, version
	}
}

// listed notes an object of a list.
func (m *Mark) listed(o metav1.Object) {
	if v := o.GetResourceVersion(); api.NewerVersion(v, m.Written) {
		m.Namespace, m.Name, m.Written = o.GetNamespace(), o.GetName(), v
	}
}

// ErrRestored is the end of a watch that cannot go on, because the API server's history is another one.
var ErrRestored = errors.New("the API server was restored from an older state")

// Restored asks the API server whether its history contains a mark. The channel is closed when it does not; until ctx ends
// errors are retried. It is called once the watch from the mark is open: a restore after that ends the watch. A request reads
// the mark's object and the store's version, and a second one only follows where that object has changed.
func (f *Follower[T]) Restored(ctx context.Context, at Mark) <-chan struct{} {
	if f.inProcess {
		return nil
	}
	restored := make(chan struct{})
	go func() {
		backoff := newBackoff()
		for ctx.Err() == nil {
			switch gone, err := f.isRestored(ctx, at); {
			case err != nil:
				f.log.Debug("cannot ask whether the API server was restored", "resource", f.what, "error", err)
				backoff.Wait(ctx)
			case gone:
				close(restored)
				return
			default:
				return
			}
		}
	}()
	return restored
}

// relistRestored logs that everything has to be listed again.
func (f *Follower[T]) relistRestored() {
	f.log.Warn("the API server was restored from an older state, listing everything again", "resource", f.what, "version", f.mark.Version)
}

// isRestored reports whether the API server's history does not contain the mark.
func (f *Follower[T]) isRestored(ctx context.Context, at Mark) (bool, error) {
	if at.Name == "" {
		now, err := f.now(ctx)
		return err == nil && api.NewerVersion(at.Version, now), err
	}
	now, written, err := f.readMarked(ctx, at, metav1.ListOptions{})
	switch {
	case err != nil:
		return false, err
	case api.NewerVersion(at.Version, now):
		return true, nil
	case written == at.Written: // no other history has written this object at this version
		return false, nil
	case written != "" && api.NewerVersion(at.Written, written):
		return true, nil
	}
	// Changed or deleted meanwhile, in this history or in another one.
	_, written, err = f.readMarked(ctx, at, metav1.ListOptions{ResourceVersion: at.Written, ResourceVersionMatch: metav1.ResourceVersionMatchExact})
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) { // compacted: as good as a watch can know
		return false, nil
	}
	return err == nil && written != at.Written, err
}

// now is the version that the API server has, consistently.
func (f *Follower[T]) now(ctx context.Context) (version string, err error) {
	version, _, err = f.readMarked(ctx, Mark{}, metav1.ListOptions{Limit: 1})
	return version, err
}

// readOne reads one object by a list, which has the version of the store: consistently, if the options name no version.
// Written is the object's version, "" where it does not exist. Of a mark without an object only the version is read.
func readOne[T runtime.Object](ctx context.Context, client rest.Interface, resource string, at Mark, o metav1.ListOptions) (version, written string, err error) {
	if at.Name != "" {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, at.Name).String()
	}
	request := client.Get().NamespaceIfScoped(at.Namespace, at.Namespace != "").Resource(resource).VersionedParams(&o, metav1.ParameterCodec)
	version, err = listStream(ctx, request, func(d decoded[T]) {
		if !d.there || at.Name == "" {
			return
		}
		if m, err := meta.Accessor(d.object); err == nil && m.GetName() == at.Name && m.GetNamespace() == at.Namespace {
			written = m.GetResourceVersion()
		}
	})
	if err == nil || errors.Is(err, errPart) {
		_, err = strconv.ParseUint(version, 10, 64)
	}
	if err != nil {
		return "", "", fmt.Errorf("read the version of %s, and %s/%s: %w", resource, at.Namespace, at.Name, err)
	}
	return version, written, nil
}
