package model

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	storagehelpers "k8s.io/component-helpers/storage/volume"
	volcano "volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/volume"
)

// API is an API server with the kinds that Basalt follows and writes: a clean one, without admission of other people's,
// controllers or kubelets.
type API struct {
	Pods, Nodes, PodGroups, Queues *Kind
	VolcanoGroups                  *Kind              // PodGroups of scheduling.volcano.sh
	Claims, Volumes                *Kind              // PersistentVolumeClaims and PersistentVolumes
	PodRules                       api.Rules          // by which pods are reduced
	Changed                        func(*Kind, Entry) // called with each change once it is made; may be nil

	now     func() time.Time
	version int64
	uids    int
}

// Kind is what exists of one kind, by nameOf, and all that was since Forget.
type Kind struct {
	Rules
	Name    string // singular, lower case
	Objects map[string]Object
	Log     []Entry
	oldest  int64 // versions before it were forgotten
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
		return &Kind{Name: name, Objects: map[string]Object{}, Rules: Rules{schema.GroupResource{Group: group, Resource: name + "s"}, schema.GroupKind{Group: group, Kind: kind}}}
	}
	volcanos := kind("podgroup", volcano.GroupName, "PodGroup")
	volcanos.Name = "volcano-podgroup"
	return &API{now: now, version: 1000, Pods: kind("pod", "", "Pod"), Nodes: kind("node", "", "Node"),
		PodGroups: kind("podgroup", v1beta1.GroupName, "PodGroup"), Queues: kind("queue", v1beta1.GroupName, "Queue"),
		VolcanoGroups: volcanos, Claims: kind("persistentvolumeclaim", "", "PersistentVolumeClaim"),
		Volumes: kind("persistentvolume", "", "PersistentVolume")}
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

func (a *API) PodGroup(namespace, name string) *v1beta1.PodGroup {
	g, _ := a.PodGroups.Objects[key(namespace, name)].Object.(*v1beta1.PodGroup)
	return g
}

func (a *API) VolcanoGroup(namespace, name string) *volcano.PodGroup {
	g, _ := a.VolcanoGroups.Objects[key(namespace, name)].Object.(*volcano.PodGroup)
	return g
}

func (a *API) Queue(name string) *v1beta1.Queue {
	q, _ := a.Queues.Objects[name].Object.(*v1beta1.Queue)
	return q
}

// stored makes a version visible. The object is given away.
func (a *API) stored(k *Kind, event watch.EventType, o metav1.Object) {
	a.version++
	o.SetResourceVersion(strconv.FormatInt(a.version, 10))
	e := Entry{Type: event, Version: a.version, Object: Object{Object: o}, Old: k.Objects[NameOf(o)]}
	if p, is := o.(*corev1.Pod); is {
		e.Pod = api.FromPod(p, nil, a.PodRules)
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
		return apierrors.NewAlreadyExists(k.Resource, o.GetName())
	}
	a.uids++
	k.Rules.Create(o, types.UID(fmt.Sprintf("%s#%d", o.GetName(), a.uids)), a.stamp())
	a.stored(k, watch.Added, o)
	return nil
}

func (a *API) stamp() metav1.Time { return metav1.NewTime(a.now().Truncate(time.Second)) }

// Replace writes the next version of an object, as a user, a kubelet or a controller may have made it. With a
// resourceVersion or a UID it is meant for that one; what changes nothing makes no version. The object is given away.
func (a *API) Replace(k *Kind, next metav1.Object) error {
	old, is := k.Objects[NameOf(next)]
	if !is {
		return k.NotFound(next.GetName())
	}
	changed, gone, err := k.Rules.Replace(old.Object, next)
	switch {
	case err != nil:
		return err
	case gone: // this version is never stored
		a.stored(k, watch.Deleted, Copy(old.Object))
	case changed:
		a.stored(k, watch.Modified, next)
	}
	return nil
}

// EditPod makes the next version of a pod that exists. It returns the pod as it is then.
func (a *API) EditPod(p *corev1.Pod, change func(*corev1.Pod)) *corev1.Pod {
	next := Copy(p).(*corev1.Pod)
	change(next)
	if err := a.Replace(a.Pods, next); err != nil {
		panic(err) // of a version that is not the newest
	}
	return next
}

// EditQueue makes the next version of a Queue that exists.
func (a *API) EditQueue(q *v1beta1.Queue, change func(*v1beta1.Queue)) {
	next := Copy(q).(*v1beta1.Queue)
	change(next)
	if err := a.Replace(a.Queues, next); err != nil {
		panic(err)
	}
}

// Delete deletes an object, as Rules.Delete says.
func (a *API) Delete(k *Kind, namespace, name string, uid types.UID, version string, grace *int64) error {
	old, is := k.Objects[key(namespace, name)]
	if !is {
		return k.NotFound(name)
	}
	marked, gone, err := k.Rules.Delete(old.Object, uid, version, grace, a.stamp())
	if marked != nil {
		a.stored(k, watch.Modified, marked)
	}
	if gone {
		a.stored(k, watch.Deleted, Copy(k.Objects[key(namespace, name)].Object))
	}
	return err
}

// ---- what Basalt writes

// Bind gives a pod its node, once.
func (a *API) Bind(b Binding) error {
	p := a.Pod(b.Namespace, b.Name)
	if p == nil {
		return a.Pods.NotFound(b.Name)
	}
	next, err := a.Pods.Rules.Bind(p, b, a.stamp())
	if err == nil {
		a.stored(a.Pods, watch.Modified, next)
	}
	return err
}

// patched finds the object of a patch that names a UID, and with a version that too: another version is a conflict,
// another UID a field that cannot change.
func (k *Kind) patched(namespace, name, uid, version string) (Object, error) {
	o, is := k.Objects[key(namespace, name)]
	switch {
	case !is:
		return Object{}, k.NotFound(name)
	case version != "" && version != o.GetResourceVersion():
		return Object{}, k.Conflict(name, "the object has been modified")
	case uid != string(o.GetUID()):
		return Object{}, k.Invalid(name, "metadata.uid: field is immutable")
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

// Resolve is what package kube does to resolve a Binding that names a version: a read, and where the pod has that version and no
// node, a patch of its status to a value. It returns the pod as it is then.
func (a *API) Resolve(namespace, name, uid, version, value string) (*corev1.Pod, error) {
	o, err := a.Pods.patched(namespace, name, uid, "")
	if err != nil {
		return nil, err
	}
	if p := o.Object.(*corev1.Pod); p.Spec.NodeName != "" || p.ResourceVersion != version {
		return p, nil
	}
	return a.PatchCondition(namespace, name, uid, "", corev1.PodCondition{Type: api.ConditionBindingResolved, Status: corev1.ConditionTrue, Message: value})
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
// rule of the CRDs on its stamp.
func (a *API) ReplaceQueueStatus(name, uid string, status *v1beta1.QueueStatus) error {
	return a.replaceStatus(a.Queues, name, key("", name), uid, status)
}

func (a *API) ReplacePodGroupStatus(namespace, name, uid string, status *v1beta1.PodGroupStatus) error {
	return a.replaceStatus(a.PodGroups, name, key(namespace, name), uid, status)
}

// ReplaceVolcanoStatus puts a status in the place of the old one, with a test on the UID. There is no rule on it.
func (a *API) ReplaceVolcanoStatus(namespace, name, uid string, status *volcano.PodGroupStatus) error {
	return a.replaceStatus(a.VolcanoGroups, name, key(namespace, name), uid, status)
}

func (a *API) replaceStatus(k *Kind, name, key, uid string, status any) error {
	o, is := k.Objects[key]
	if !is {
		return k.NotFound(name)
	}
	next, err := k.WithStatus(o.Object, uid, status)
	if err != nil {
		return err
	}
	return a.Replace(k, next)
}

// SetFinalizers is a merge patch of a Queue's finalizers with UID and version.
func (a *API) SetFinalizers(name, uid, version string, finalizers []string) error {
	o, err := a.Queues.patched("", name, uid, version)
	if err != nil {
		return err
	}
	if version == "" { // of a custom resource it is
		return a.Queues.Invalid(name, "metadata.resourceVersion: must be specified for an update")
	}
	next := Copy(o.Object).(*v1beta1.Queue)
	next.Finalizers = finalizers
	return a.Replace(a.Queues, next)
}

// SelectNode is a merge patch of the annotation with the node for which a claim is to have a volume, "" for none, with
// UID and version. It returns the version that there is then.
func (a *API) SelectNode(claim api.ObjectVersion, node string) (string, error) {
	o, err := a.Claims.patched(claim.Namespace, claim.Name, claim.UID, claim.Version)
	if err != nil {
		return "", err
	}
	next := Copy(o.Object).(*corev1.PersistentVolumeClaim)
	if delete(next.Annotations, volume.SelectedNode); node != "" {
		metav1.SetMetaDataAnnotation(&next.ObjectMeta, volume.SelectedNode, node)
	}
	if err := a.Replace(a.Claims, next); err != nil {
		return "", err
	}
	return a.Claims.Objects[NameOf(o)].GetResourceVersion(), nil
}

// KeepVolume is a merge patch that names a claim in a volume, with UID and version. It returns the version that there
// is then.
func (a *API) KeepVolume(of, claim api.ObjectVersion) (string, error) {
	o, err := a.Volumes.patched("", of.Name, of.UID, of.Version)
	if err != nil {
		return "", err
	}
	next := Copy(o.Object).(*corev1.PersistentVolume)
	metav1.SetMetaDataAnnotation(&next.ObjectMeta, storagehelpers.AnnBoundByController, "yes")
	next.Spec.ClaimRef = &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim",
		Namespace: claim.Namespace, Name: claim.Name, UID: types.UID(claim.UID), ResourceVersion: claim.Version}
	if err := a.Replace(a.Volumes, next); err != nil {
		return "", err
	}
	return a.Volumes.Objects[of.Name].GetResourceVersion(), nil
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
				gone := Copy(e.Old.Object)
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
