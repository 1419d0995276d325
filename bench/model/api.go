package model

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1alpha1"
)

// API is an API server with the four kinds that Basalt follows and writes: a clean one, without admission of other people's,
// controllers or kubelets.
type API struct {
	Pods, Nodes, PodGroups, Queues *Kind
	Changed                        func(*Kind, Entry) // called with each change once it is made; may be nil

	now     func() time.Time
	version int64
	uids    int
}

// Kind is what exists of one kind, by nameOf, and all that was since Forget.
type Kind struct {
	Name     string // singular, lower case
	Objects  map[string]Object
	Log      []Entry
	resource schema.GroupResource
	kind     schema.GroupKind
	oldest   int64 // versions before it were forgotten
}

// Object is one version of an object.
type Object struct {
	metav1.Object
	Pod *api.Pod // of a pod: what processes reduce it to
}

// Entry is one change. Of a deletion, Object is the last version, with the version of the deletion.
type Entry struct {
	Type    watch.EventType // Added, Modified or Deleted
	Version int64
	Object
	Old Object // without an Object for Added
}

// NewAPI makes an empty API server; now is for timestamps alone.
func NewAPI(now func() time.Time) *API {
	kind := func(name, group, kind string) *Kind {
		return &Kind{Name: name, Objects: map[string]Object{}, resource: schema.GroupResource{Group: group, Resource: name + "s"}, kind: schema.GroupKind{Group: group, Kind: kind}}
	}
	return &API{now: now, version: 1000, Pods: kind("pod", "", "Pod"), Nodes: kind("node", "", "Node"),
		PodGroups: kind("podgroup", v1alpha1.GroupName, "PodGroup"), Queues: kind("queue", v1alpha1.GroupName, "Queue")}
}

// NameOf is what objects of a kind are found by: namespace/name, or the name of what has no namespace.
func NameOf(o metav1.Object) string { return key(o.GetNamespace(), o.GetName()) }

func key(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// Names are sorted.
func (k *Kind) Names() []string { return slices.Sorted(maps.Keys(k.Objects)) }

// Version is that of the newest change of any kind.
func (a *API) Version() int64 { return a.version }

// Pod and the like return the newest version of an object, nil when there is none. It must not be changed.
func (a *API) Pod(namespace, name string) *corev1.Pod {
	p, _ := a.Pods.Objects[key(namespace, name)].Object.(*corev1.Pod)
	return p
}

func (a *API) Node(name string) *corev1.Node {
	n, _ := a.Nodes.Objects[name].Object.(*corev1.Node)
	return n
}

func (a *API) PodGroup(namespace, name string) *v1alpha1.PodGroup {
	g, _ := a.PodGroups.Objects[key(namespace, name)].Object.(*v1alpha1.PodGroup)
	return g
}

func (a *API) Queue(name string) *v1alpha1.Queue {
	q, _ := a.Queues.Objects[name].Object.(*v1alpha1.Queue)
	return q
}

func (k *Kind) notFound(name string) error { return apierrors.NewNotFound(k.resource, name) }

func (k *Kind) conflict(name, format string, args ...any) error {
	return apierrors.NewConflict(k.resource, name, fmt.Errorf(format, args...))
}

func (k *Kind) invalid(name, message string) error {
	e := apierrors.NewInvalid(k.kind, name, nil)
	e.ErrStatus.Message += ": " + message
	return e
}

// stored makes a version visible. The object is given away.
func (a *API) stored(k *Kind, event watch.EventType, o metav1.Object) {
	a.version++
	o.SetResourceVersion(strconv.FormatInt(a.version, 10))
	e := Entry{Type: event, Version: a.version, Object: Object{Object: o}, Old: k.Objects[NameOf(o)]}
	if p, is := o.(*corev1.Pod); is {
		e.Pod = api.FromPod(p, nil, nil)
	}
	if event == watch.Deleted {
		delete(k.Objects, NameOf(o))
	} else {
		k.Objects[NameOf(o)] = e.Object
	}
	k.Log = append(k.Log, e)
	if a.Changed != nil {
		a.Changed(k, e)
	}
}

// Create makes an object: its UID, generation and version are set here. The object is given away.
func (a *API) Create(k *Kind, o metav1.Object) error {
	if _, is := k.Objects[NameOf(o)]; is {
		return apierrors.NewAlreadyExists(k.resource, o.GetName())
	}
	a.uids++
	o.SetUID(types.UID(fmt.Sprintf("%s#%d", o.GetName(), a.uids)))
	o.SetCreationTimestamp(a.stamp())
	o.SetGeneration(1)
	switch o := o.(type) {
	case *corev1.Pod:
		o.Status = corev1.PodStatus{Phase: corev1.PodPending}
		if len(o.Spec.SchedulingGates) > 0 {
			SetCondition(o, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonSchedulingGated})
		}
	case *corev1.Node: // has none
		o.Generation = 0
	case *v1alpha1.PodGroup:
		o.Status = nil
	case *v1alpha1.Queue:
		o.Status = nil
	}
	a.stored(k, watch.Added, o)
	return nil
}

func (a *API) stamp() metav1.Time { return metav1.NewTime(a.now().Truncate(time.Second)) }

// Replace writes the next version of an object, as a user, a kubelet or a controller may have made it. With a
// resourceVersion or a UID it is meant for that one; what changes nothing makes no version. The object is given away.
func (a *API) Replace(k *Kind, next metav1.Object) error {
	old, is := k.Objects[NameOf(next)]
	switch {
	case !is:
		return k.notFound(next.GetName())
	case next.GetUID() != "" && next.GetUID() != old.GetUID():
		return k.conflict(next.GetName(), "the UID in the precondition is %s, that of the object %s", next.GetUID(), old.GetUID())
	case next.GetResourceVersion() != "" && next.GetResourceVersion() != old.GetResourceVersion():
		return k.conflict(next.GetName(), "the object has been modified")
	}
	next.SetUID(old.GetUID())
	if old.GetDeletionTimestamp() != nil {
		for _, f := range next.GetFinalizers() {
			if !slices.Contains(old.GetFinalizers(), f) {
				return k.invalid(next.GetName(), "no new finalizers can be added while it is being deleted")
			}
		}
	}
	next.SetCreationTimestamp(old.GetCreationTimestamp())
	next.SetGeneration(old.GetGeneration())
	if old.GetGeneration() > 0 && !equality.Semantic.DeepEqual(spec(old.Object), spec(next)) {
		next.SetGeneration(old.GetGeneration() + 1)
	}
	next.SetResourceVersion(old.GetResourceVersion())
	if equality.Semantic.DeepEqual(old.Object, next) {
		return nil
	}
	if over(next) { // with its last finalizer: this version is never stored
		a.stored(k, watch.Deleted, copied(old.Object))
		return nil
	}
	a.stored(k, watch.Modified, next)
	return nil
}

func spec(o metav1.Object) any {
	switch o := o.(type) {
	case *corev1.Pod:
		return o.Spec
	case *v1alpha1.PodGroup:
		return o.Spec
	case *v1alpha1.Queue:
		return o.Spec
	}
	return nil
}

// over reports whether an object is to be removed now: it is being deleted, and nothing holds it any more.
func over(o metav1.Object) bool {
	grace := o.GetDeletionGracePeriodSeconds()
	return o.GetDeletionTimestamp() != nil && len(o.GetFinalizers()) == 0 && (grace == nil || *grace == 0)
}

// copied returns a new version of an object that shares with the old one what this package never changes in place.
func copied(o metav1.Object) metav1.Object {
	v := reflect.New(reflect.TypeOf(o).Elem())
	v.Elem().Set(reflect.ValueOf(o).Elem())
	c := v.Interface().(metav1.Object)
	c.SetLabels(maps.Clone(o.GetLabels()))
	c.SetAnnotations(maps.Clone(o.GetAnnotations()))
	c.SetFinalizers(slices.Clone(o.GetFinalizers()))
	if p, is := c.(*corev1.Pod); is {
		p.Status.Conditions = slices.Clone(p.Status.Conditions)
	}
	return c
}

// EditPod makes the next version of a pod that exists. It returns the pod as it is then.
func (a *API) EditPod(p *corev1.Pod, change func(*corev1.Pod)) *corev1.Pod {
	next := copied(p).(*corev1.Pod)
	change(next)
	if err := a.Replace(a.Pods, next); err != nil {
		panic(err) // of a version that is not the newest
	}
	return next
}

// EditQueue makes the next version of a Queue that exists.
func (a *API) EditQueue(q *v1alpha1.Queue, change func(*v1alpha1.Queue)) {
	next := copied(q).(*v1alpha1.Queue)
	change(next)
	if err := a.Replace(a.Queues, next); err != nil {
		panic(err)
	}
}

// Finished reports whether a pod has run to its end.
func Finished(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// DefaultGrace is the seconds that a pod gets whose deletion names none.
const DefaultGrace = 30

// Delete deletes an object, of the UID or version named if any. A pod that a kubelet may have started stays, marked, until
// it is deleted with a grace of 0, which is what the kubelet does; what has finalizers stays until they are gone.
func (a *API) Delete(k *Kind, namespace, name string, uid types.UID, version string, grace *int64) error {
	old, is := k.Objects[key(namespace, name)]
	switch {
	case !is:
		return k.notFound(name)
	case uid != "" && uid != old.GetUID():
		return k.conflict(name, "the UID in the precondition is %s, that of the object %s", uid, old.GetUID())
	case version != "" && version != old.GetResourceVersion():
		return k.conflict(name, "the version in the precondition is %s, that of the object %s", version, old.GetResourceVersion())
	}
	var seconds int64
	if p, is := old.Object.(*corev1.Pod); is {
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
	next := copied(old.Object)
	if had := old.GetDeletionTimestamp(); had != nil {
		if before := old.GetDeletionGracePeriodSeconds(); before == nil || *before == 0 || grace == nil || *grace >= *before {
			return nil // it is being deleted already, and at least as soon
		}
	} else if g := next.GetGeneration(); g > 0 {
		next.SetGeneration(g + 1)
	}
	at := metav1.NewTime(a.stamp().Add(time.Duration(seconds) * time.Second))
	next.SetDeletionTimestamp(&at)
	next.SetDeletionGracePeriodSeconds(&seconds)
	if _, is := next.(*corev1.Pod); over(next) && !is {
		a.stored(k, watch.Deleted, copied(old.Object))
		return nil
	}
	a.stored(k, watch.Modified, next)
	if over(next) { // a pod that goes at once was marked first
		a.stored(k, watch.Deleted, copied(next))
	}
	return nil
}

// ---- what Basalt writes

// Binding is a Binding of a pod; UID and Version "" stand for any.
type Binding struct {
	Namespace, Name, UID, Version, Node string
	Labels                              map[string]string
}

// Bind gives a pod its node, once.
func (a *API) Bind(b Binding) error {
	k, p := a.Pods, a.Pod(b.Namespace, b.Name)
	switch {
	case p == nil:
		return k.notFound(b.Name)
	case b.UID != "" && string(p.UID) != b.UID:
		return k.conflict(b.Name, "the UID in the precondition is %s, that of the object %s", b.UID, p.UID)
	case b.Version != "" && p.ResourceVersion != b.Version:
		return k.conflict(b.Name, "the version in the precondition is %s, that of the object %s", b.Version, p.ResourceVersion)
	case p.DeletionTimestamp != nil:
		return k.conflict(b.Name, "pod %s is being deleted, cannot be assigned to a host", b.Name)
	case p.Spec.NodeName != "":
		return k.conflict(b.Name, "pod %s is already assigned to node %q", b.Name, p.Spec.NodeName)
	case len(p.Spec.SchedulingGates) > 0:
		return k.conflict(b.Name, "pod %s has non-empty .spec.schedulingGates", b.Name)
	}
	next := copied(p).(*corev1.Pod)
	next.Spec.NodeName = b.Node
	for name, v := range b.Labels {
		metav1.SetMetaDataLabel(&next.ObjectMeta, name, v)
	}
	c := corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: a.stamp()}
	SetCondition(next, c)
	a.stored(k, watch.Modified, next)
	return nil
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

// patched finds the object of a patch that names a UID, and with a version that too: another version is a conflict,
// another UID a field that cannot change.
func (k *Kind) patched(namespace, name, uid, version string) (Object, error) {
	o, is := k.Objects[key(namespace, name)]
	switch {
	case !is:
		return Object{}, k.notFound(name)
	case version != "" && version != o.GetResourceVersion():
		return Object{}, k.conflict(name, "the object has been modified")
	case uid != string(o.GetUID()):
		return Object{}, k.invalid(name, "metadata.uid: field is immutable")
	}
	return o, nil
}

// Annotate is a merge patch of one annotation with the UID; it returns the pod as it is then.
func (a *API) Annotate(namespace, name, uid, annotation, value string) (*corev1.Pod, error) {
	o, err := a.Pods.patched(namespace, name, uid, "")
	if err != nil {
		return nil, err
	}
	return a.EditPod(o.Object.(*corev1.Pod), func(p *corev1.Pod) { metav1.SetMetaDataAnnotation(&p.ObjectMeta, annotation, value) }), nil
}

// Settle is what package kube does to settle a Binding that names a version: a read, and where the pod has that version and no
// node, a patch of its status to a value. It returns the pod as it is then.
func (a *API) Settle(namespace, name, uid, version, value string) (*corev1.Pod, error) {
	o, err := a.Pods.patched(namespace, name, uid, "")
	if err != nil {
		return nil, err
	}
	if p := o.Object.(*corev1.Pod); p.Spec.NodeName != "" || p.ResourceVersion != version {
		return p, nil
	}
	return a.PatchCondition(namespace, name, uid, "", corev1.PodCondition{Type: api.ConditionSettled, Status: corev1.ConditionTrue, Message: value})
}

// PatchCondition is a strategic merge patch of a pod's status with one condition, the UID, and a version unless it is "".
func (a *API) PatchCondition(namespace, name, uid, version string, c corev1.PodCondition) (*corev1.Pod, error) {
	o, err := a.Pods.patched(namespace, name, uid, version)
	if err != nil {
		return nil, err
	}
	c.LastTransitionTime = metav1.NewTime(c.LastTransitionTime.Truncate(time.Second))
	return a.EditPod(o.Object.(*corev1.Pod), func(p *corev1.Pod) {
		for i, old := range p.Status.Conditions {
			if old.Type == c.Type { // what the patch leaves out stays
				c = merged(old, c)
				p.Status.Conditions[i] = c
				return
			}
		}
		p.Status.Conditions = append(p.Status.Conditions, c)
	}), nil
}

func merged(old, c corev1.PodCondition) corev1.PodCondition {
	keep := func(s *string, was string) {
		if *s == "" {
			*s = was
		}
	}
	keep(&c.Reason, old.Reason)
	keep(&c.Message, old.Message)
	if c.ObservedGeneration == 0 {
		c.ObservedGeneration = old.ObservedGeneration
	}
	return c
}

// ReplaceQueueStatus and ReplacePodGroupStatus put a status in the place of the old one, with a test on the UID, under the
// rule of the CRDs on its stamp. A test that fails is invalid, not a conflict.
func (a *API) ReplaceQueueStatus(name, uid string, status *v1alpha1.QueueStatus) error {
	q := a.Queue(name)
	switch {
	case q == nil:
		return a.Queues.notFound(name)
	case string(q.UID) != uid:
		return a.Queues.invalid(name, "testing value /metadata/uid failed")
	case equality.Semantic.DeepEqual(q.Status, status):
		return nil
	case q.Status != nil && !accepts(q.Status.Stamp, status.Stamp):
		return a.Queues.invalid(name, "a status is replaced only by one of a larger epoch, or of the same epoch and writer with a larger sequence")
	}
	next := copied(q).(*v1alpha1.Queue)
	next.Status = status
	a.stored(a.Queues, watch.Modified, next)
	return nil
}

func (a *API) ReplacePodGroupStatus(namespace, name, uid string, status *v1alpha1.PodGroupStatus) error {
	g := a.PodGroup(namespace, name)
	switch {
	case g == nil:
		return a.PodGroups.notFound(name)
	case string(g.UID) != uid:
		return a.PodGroups.invalid(name, "testing value /metadata/uid failed")
	case equality.Semantic.DeepEqual(g.Status, status):
		return nil
	case g.Status != nil && !accepts(g.Status.Stamp, status.Stamp):
		return a.PodGroups.invalid(name, "a status is replaced only by one of a larger epoch, or of the same epoch and writer with a larger sequence")
	}
	next := copied(g).(*v1alpha1.PodGroup)
	next.Status = status
	a.stored(a.PodGroups, watch.Modified, next)
	return nil
}

func accepts(old, next v1alpha1.Stamp) bool {
	return next.Epoch > old.Epoch || next.Epoch == old.Epoch && next.Writer == old.Writer && next.Sequence > old.Sequence
}

// SetFinalizers is a merge patch of a Queue's finalizers with UID and version.
func (a *API) SetFinalizers(name, uid, version string, finalizers []string) error {
	o, err := a.Queues.patched("", name, uid, version)
	if err != nil {
		return err
	}
	next := copied(o.Object).(*v1alpha1.Queue)
	next.Finalizers = finalizers
	return a.Replace(a.Queues, next)
}

// ---- lists and watches

// List returns what matches, by name, and the version from which a watch goes on.
func (a *API) List(k *Kind, match Selector) ([]Object, int64) {
	var out []Object
	for _, name := range k.Names() {
		if o := k.Objects[name]; match.is(o.Object) {
			out = append(out, o)
		}
	}
	return out, a.version
}

// Selector narrows a list or a watch; a nil field selects everything.
type Selector struct {
	Labels labels.Selector
	Fields fields.Selector // of a pod: metadata.name, metadata.namespace, spec.nodeName, spec.schedulerName, status.phase
}

func (s Selector) is(o metav1.Object) bool {
	if o == nil || s.Labels != nil && !s.Labels.Matches(labels.Set(o.GetLabels())) {
		return false
	}
	if s.Fields == nil {
		return true
	}
	set := fields.Set{"metadata.name": o.GetName(), "metadata.namespace": o.GetNamespace()}
	if p, is := o.(*corev1.Pod); is {
		set["spec.nodeName"], set["spec.schedulerName"], set["status.phase"] = p.Spec.NodeName, p.Spec.SchedulerName, string(p.Status.Phase)
	}
	return s.Fields.Matches(set)
}

// Watch returns what a watch from a version, which is seen already, shows until now. Who leaves the selection is deleted
// to that watch: it shows the object as it was, with the version at which it left.
func (a *API) Watch(k *Kind, match Selector, from int64) ([]Entry, error) {
	if from < k.oldest {
		return nil, apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", from, k.oldest))
	}
	var out []Entry
	for _, e := range k.Log {
		if e.Version <= from {
			continue
		}
		before, after := match.is(e.Old.Object), e.Type != watch.Deleted && match.is(e.Object.Object)
		switch {
		case before && after:
			e.Type = watch.Modified
		case after:
			e.Type = watch.Added
		case before:
			if e.Type != watch.Deleted {
				gone := copied(e.Old.Object)
				gone.SetResourceVersion(strconv.FormatInt(e.Version, 10))
				e.Object = Object{gone, e.Old.Pod}
			}
			e.Type = watch.Deleted
		default:
			continue
		}
		out = append(out, e)
	}
	return out, nil
}

// Forget drops a kind's history up to now: a watch from before is told 410.
func (a *API) Forget(k *Kind) { k.oldest, k.Log = a.version, nil }

// Refused is the status of what came back, "" for success.
func Refused(err error) metav1.StatusReason {
	var status apierrors.APIStatus
	if err == nil {
		return ""
	}
	if errors.As(err, &status) {
		return status.Status().Reason
	}
	return metav1.StatusReason(err.Error())
}
