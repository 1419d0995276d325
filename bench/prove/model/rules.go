package model

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	volcano "volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"basalt.dev/basalt/api/v1beta1"
)

// Rules are what the API server holds the objects of a kind to, wherever they are stored: API stores them for the simulator and
// the explorer, package memory for benchmarks. An object that is stored is never changed.
type Rules struct {
	Resource schema.GroupResource
	Kind     schema.GroupKind
}

// NotFound is the answer to a request for an object that does not exist.
func (r Rules) NotFound(name string) error { return apierrors.NewNotFound(r.Resource, name) }

// Conflict is the answer to a request whose precondition does not hold.
func (r Rules) Conflict(name, format string, args ...any) error {
	return apierrors.NewConflict(r.Resource, name, fmt.Errorf(format, args...))
}

// Invalid is the answer to a change that the server does not accept.
func (r Rules) Invalid(name, message string) error {
	e := apierrors.NewInvalid(r.Kind, name, nil)
	e.ErrStatus.Message += ": " + message
	return e
}

// meets returns a conflict unless an object has a UID and a version; "" stands for any.
func (r Rules) meets(o metav1.Object, uid types.UID, version string) error {
	switch {
	case uid != "" && uid != o.GetUID():
		return r.Conflict(o.GetName(), "the UID in the precondition is %s, that of the object %s", uid, o.GetUID())
	case version != "" && version != o.GetResourceVersion():
		return r.Conflict(o.GetName(), "the version in the precondition is %s, that of the object %s", version, o.GetResourceVersion())
	}
	return nil
}

// Create makes of an object that a user sends one to store.
func (r Rules) Create(o metav1.Object, uid types.UID, at metav1.Time) {
	o.SetUID(uid)
	o.SetCreationTimestamp(at)
	o.SetDeletionTimestamp(nil)
	o.SetGeneration(1)
	switch o := o.(type) {
	case *corev1.Pod:
		o.Status = corev1.PodStatus{Phase: corev1.PodPending}
		if len(o.Spec.SchedulingGates) > 0 {
			o.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonSchedulingGated,
				Message: "Scheduling is blocked due to non-empty scheduling gates"}}
		}
	case *corev1.Node, *corev1.PersistentVolumeClaim, *corev1.PersistentVolume: // have none
		o.SetGeneration(0)
	case *v1beta1.PodGroup:
		o.Status = nil
	case *v1beta1.Queue:
		o.Status = nil
	}
}

// WithStatus returns the next version of a Queue or PodGroup, with another status, for Replace: a JSON patch with a test on the UID.
// A test that fails is invalid, not a conflict.
func (r Rules) WithStatus(o metav1.Object, uid string, status any) (metav1.Object, error) {
	if string(o.GetUID()) != uid {
		return nil, r.Invalid(o.GetName(), "testing value /metadata/uid failed")
	}
	next := Copy(o)
	switch next := next.(type) {
	case *v1beta1.Queue:
		next.Status = status.(*v1beta1.QueueStatus)
	case *v1beta1.PodGroup:
		next.Status = status.(*v1beta1.PodGroupStatus)
	case *volcano.PodGroup:
		next.Status = *status.(*volcano.PodGroupStatus)
	default:
		return nil, apierrors.NewMethodNotSupported(r.Resource, "patch")
	}
	return next, nil
}

// Replace makes of a version that a user, a kubelet or a controller sends the next one to store, and reports whether it differs
// from the old one, and whether the object is gone then instead: with its last finalizer. With a resourceVersion or a UID it is
// meant for that one.
func (r Rules) Replace(old, next metav1.Object) (changed, gone bool, err error) {
	if err := r.meets(old, next.GetUID(), next.GetResourceVersion()); err != nil {
		return false, false, err
	}
	if old.GetDeletionTimestamp() != nil {
		for _, f := range next.GetFinalizers() {
			if !slices.Contains(old.GetFinalizers(), f) {
				return false, false, r.Invalid(next.GetName(), "no new finalizers can be added while it is being deleted")
			}
		}
	}
	next.SetUID(old.GetUID())
	next.SetResourceVersion(old.GetResourceVersion())
	next.SetCreationTimestamp(old.GetCreationTimestamp())
	next.SetDeletionTimestamp(old.GetDeletionTimestamp())
	next.SetDeletionGracePeriodSeconds(old.GetDeletionGracePeriodSeconds())
	next.SetGeneration(old.GetGeneration())
	if old.GetGeneration() > 0 && !equality.Semantic.DeepEqual(spec(old), spec(next)) {
		next.SetGeneration(old.GetGeneration() + 1)
	}
	was, is := stamp(old), stamp(next)
	newer := was != nil && is != nil && accepts(*was, *is)
	if !newer && equality.Semantic.DeepEqual(old, next) {
		return false, false, nil
	}
	if was != nil && !newer && !(is != nil && equality.Semantic.DeepEqual(status(old), status(next))) {
		return false, false, r.Invalid(next.GetName(), "a status is replaced only by one of a larger epoch, or of the same epoch and writer with a larger sequence")
	}
	return true, over(next), nil
}

func spec(o metav1.Object) any {
	switch o := o.(type) {
	case *corev1.Pod:
		return o.Spec
	case *v1beta1.PodGroup:
		return o.Spec
	case *v1beta1.Queue:
		return o.Spec
	case *volcano.PodGroup: // its status is no resource of its own, and counts
		return []any{o.Spec, o.Status}
	}
	return nil
}

func status(o metav1.Object) any {
	switch o := o.(type) {
	case *v1beta1.PodGroup:
		return o.Status
	case *v1beta1.Queue:
		return o.Status
	}
	return nil
}

// stamp returns the stamp of the status of a PodGroup or a Queue, nil for none.
func stamp(o metav1.Object) *v1beta1.Stamp {
	switch o := o.(type) {
	case *v1beta1.PodGroup:
		if o.Status != nil {
			return &o.Status.Stamp
		}
	case *v1beta1.Queue:
		if o.Status != nil {
			return &o.Status.Stamp
		}
	}
	return nil
}

// accepts is the rule of the CRDs on the stamp of a status.
func accepts(old, next v1beta1.Stamp) bool {
	return next.Epoch > old.Epoch || next.Epoch == old.Epoch && next.Writer == old.Writer && next.Sequence > old.Sequence
}

// DefaultGrace is the seconds that a pod gets whose deletion names none.
const DefaultGrace = corev1.DefaultTerminationGracePeriodSeconds

// Delete deletes an object, of the UID or version named if any. A pod that a kubelet may have started stays, marked, until it is
// deleted with a grace of 0, which is what the kubelet does; what has finalizers stays until they are gone. It returns the marked
// version, nil for none, and whether the object is gone after that.
func (r Rules) Delete(o metav1.Object, uid types.UID, version string, grace *int64, now metav1.Time) (marked metav1.Object, gone bool, err error) {
	if err := r.meets(o, uid, version); err != nil {
		return nil, false, err
	}
	var seconds int64
	p, isPod := o.(*corev1.Pod)
	if isPod {
		seconds = DefaultGrace
		if s := p.Spec.TerminationGracePeriodSeconds; s != nil {
			seconds = *s
		}
		if grace != nil {
			seconds = *grace
		}
		if p.Spec.NodeName == "" || Finished(p) {
			seconds = 0
		}
	}
	had := o.GetDeletionTimestamp() != nil
	if had {
		if before := o.GetDeletionGracePeriodSeconds(); before == nil || *before == 0 || grace == nil || *grace >= *before {
			return nil, false, nil // it is being deleted already, and at least as soon
		}
	}
	next := Copy(o)
	if g := next.GetGeneration(); !had && g > 0 {
		next.SetGeneration(g + 1)
	}
	at := metav1.NewTime(now.Add(time.Duration(seconds) * time.Second))
	next.SetDeletionTimestamp(&at)
	next.SetDeletionGracePeriodSeconds(&seconds)
	if over(next) && !isPod {
		return nil, true, nil
	}
	return next, over(next), nil // a pod that goes at once is marked first
}

// over reports whether an object is to be removed now: it is being deleted, and nothing holds it any more.
func over(o metav1.Object) bool {
	grace := o.GetDeletionGracePeriodSeconds()
	return o.GetDeletionTimestamp() != nil && len(o.GetFinalizers()) == 0 && (grace == nil || *grace == 0)
}

// Finished reports whether a pod has run to its end.
func Finished(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// Binding is a Binding of a pod; UID and Version "" stand for any.
type Binding struct {
	Namespace, Name, UID, Version, Node string
	Labels, Annotations                 map[string]string
}

// Bind gives a pod its node, once. Whether the node exists or has room the server does not ask.
func (r Rules) Bind(p *corev1.Pod, b Binding, at metav1.Time) (*corev1.Pod, error) {
	if err := r.meets(p, types.UID(b.UID), b.Version); err != nil {
		return nil, err
	}
	switch {
	case p.DeletionTimestamp != nil:
		return nil, r.Conflict(b.Name, "pod %s is being deleted, cannot be assigned to a host", b.Name)
	case p.Spec.NodeName != "":
		return nil, r.Conflict(b.Name, "pod %s is already assigned to node %q", b.Name, p.Spec.NodeName)
	case len(p.Spec.SchedulingGates) > 0:
		return nil, r.Conflict(b.Name, "pod %s has non-empty .spec.schedulingGates", b.Name)
	}
	next := Copy(p).(*corev1.Pod)
	next.Spec.NodeName = b.Node
	for name, v := range b.Labels {
		metav1.SetMetaDataLabel(&next.ObjectMeta, name, v)
	}
	for name, v := range b.Annotations {
		metav1.SetMetaDataAnnotation(&next.ObjectMeta, name, v)
	}
	SetCondition(next, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: at})
	return next, nil
}

// SetCondition puts a condition in the place of the one of its type.
func SetCondition(p *corev1.Pod, c corev1.PodCondition) {
	for i := range p.Status.Conditions {
		if p.Status.Conditions[i].Type == c.Type {
			p.Status.Conditions[i] = c
			return
		}
	}
	p.Status.Conditions = append(p.Status.Conditions, c)
}

// Copy returns a new version of an object that shares with the old one what is never changed in place.
func Copy(o metav1.Object) metav1.Object {
	var c metav1.Object
	switch o := o.(type) { // the frequent ones
	case *corev1.Pod:
		p := *o
		p.Status.Conditions = slices.Clone(p.Status.Conditions)
		c = &p
	case *v1beta1.PodGroup:
		g := *o
		c = &g
	default:
		v := reflect.New(reflect.TypeOf(o).Elem())
		v.Elem().Set(reflect.ValueOf(o).Elem())
		c = v.Interface().(metav1.Object)
	}
	c.SetLabels(maps.Clone(o.GetLabels()))
	c.SetAnnotations(maps.Clone(o.GetAnnotations()))
	c.SetFinalizers(slices.Clone(o.GetFinalizers()))
	return c
}
