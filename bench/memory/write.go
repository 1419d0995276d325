package memory

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/watch"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	"basalt.dev/basalt/api/v1alpha1"
)

func (s *Server) refused(k *kind, err error) error {
	s.counts.Conflicts[k.resource]++
	return err
}

// Bind carries out a Binding. The real server refuses for the same reasons with the same code; whether the node exists or has
// room it does not ask either.
func (s *Server) Bind(namespace string, b *corev1.Binding) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.kinds["pods"]
	o, err := k.get(types.NamespacedName{Namespace: namespace, Name: b.Name})
	if err != nil {
		return err
	}
	before := o.(*corev1.Pod)
	conflict := func(format string, args ...any) error {
		return s.refused(k, apierrors.NewConflict(k.group(), b.Name, fmt.Errorf(format, args...)))
	}
	switch {
	case b.UID != "" && b.UID != before.UID:
		return conflict("the UID in the precondition (%s) is not %s", b.UID, before.UID)
	case b.ResourceVersion != "" && b.ResourceVersion != before.ResourceVersion:
		return conflict("the ResourceVersion in the precondition (%s) is not %s", b.ResourceVersion, before.ResourceVersion)
	case before.DeletionTimestamp != nil:
		return conflict("pod %s is being deleted, cannot be assigned to a host", before.Name)
	case before.Spec.NodeName != "":
		return conflict("pod %s is already assigned to node %q", before.Name, before.Spec.NodeName)
	case len(before.Spec.SchedulingGates) > 0:
		return conflict("pod %s has non-empty .spec.schedulingGates", before.Name)
	case b.Target.Kind != "" && b.Target.Kind != "Node", b.Target.Name == "":
		return apierrors.NewBadRequest("target: a Node with a name is needed")
	}
	pod := *before
	pod.Spec.NodeName = b.Target.Name
	pod.Labels, pod.Annotations = merged(before.Labels, b.Labels), merged(before.Annotations, b.Annotations)
	pod.Status.Conditions = withCondition(before.Status.Conditions, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()})
	s.counts.Bindings["pods"]++
	s.commit(k, watch.Modified, before, &pod)
	return nil
}

func merged(a, b map[string]string) map[string]string {
	if len(b) == 0 {
		return a
	}
	out := make(map[string]string, len(a)+len(b))
	maps.Copy(out, a)
	maps.Copy(out, b)
	return out
}

func withCondition(in []corev1.PodCondition, c corev1.PodCondition) []corev1.PodCondition {
	out := make([]corev1.PodCondition, 0, len(in)+1)
	for _, old := range in {
		if old.Type != c.Type {
			out = append(out, old)
		}
	}
	return append(out, c)
}

// Delete removes an object, or marks it where finalizers, or a kubelet that has to end a pod, want to see it first.
func (s *Server) Delete(resource, namespace, name string, o metav1.DeleteOptions) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, err := s.kind(resource)
	if err != nil {
		return err
	}
	before, err := k.get(types.NamespacedName{Namespace: namespace, Name: name})
	if err != nil {
		return err
	}
	if p := o.Preconditions; p != nil {
		if p.UID != nil && *p.UID != before.GetUID() {
			return s.refused(k, apierrors.NewConflict(k.group(), name, fmt.Errorf("the UID in the precondition (%s) is not %s", *p.UID, before.GetUID())))
		}
		if p.ResourceVersion != nil && *p.ResourceVersion != before.GetResourceVersion() {
			return s.refused(k, apierrors.NewConflict(k.group(), name, fmt.Errorf("the ResourceVersion in the precondition (%s) is not %s", *p.ResourceVersion, before.GetResourceVersion())))
		}
	}
	s.counts.Deletes[resource]++
	grace := int64(0)
	if pod, ok := before.(*corev1.Pod); ok {
		grace = corev1.DefaultTerminationGracePeriodSeconds
		if pod.Spec.TerminationGracePeriodSeconds != nil {
			grace = *pod.Spec.TerminationGracePeriodSeconds
		}
		if o.GracePeriodSeconds != nil {
			grace = *o.GracePeriodSeconds
		}
		if pod.Spec.NodeName == "" || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			grace = 0
		}
	}
	after := shallow(before)
	if before.GetDeletionTimestamp() != nil {
		had := before.GetDeletionGracePeriodSeconds()
		if had == nil || *had == 0 || o.GracePeriodSeconds == nil || *o.GracePeriodSeconds >= *had {
			return nil // it is on its way, and at least as soon
		}
	} else {
		after.SetGeneration(before.GetGeneration() + 1)
	}
	at := metav1.NewTime(time.Now().Truncate(time.Second).Add(time.Duration(grace) * time.Second))
	after.SetDeletionTimestamp(&at)
	after.SetDeletionGracePeriodSeconds(&grace)
	if _, pod := after.(*corev1.Pod); over(after) && !pod {
		s.commit(k, watch.Deleted, before, shallow(before))
		return nil
	}
	s.commit(k, watch.Modified, before, after)
	if over(after) { // a pod that goes at once is marked first
		s.commit(k, watch.Deleted, after, shallow(after))
	}
	return nil
}

// over reports whether an object is to be removed now: it is being deleted, and nothing holds it any more.
func over(o Object) bool {
	grace := o.GetDeletionGracePeriodSeconds()
	return o.GetDeletionTimestamp() != nil && len(o.GetFinalizers()) == 0 && (grace == nil || *grace == 0)
}

// shallow copies an object; what it points to stays shared, and is never changed.
func shallow(o Object) Object {
	switch o := o.(type) {
	case *corev1.Pod:
		c := *o
		return &c
	case *v1alpha1.Queue:
		c := *o
		return &c
	case *v1alpha1.PodGroup:
		c := *o
		return &c
	}
	return o.DeepCopyObject().(Object)
}

// ReplaceStatus puts a status into a Queue or PodGroup with this UID: what package kube does by a JSON patch. A nil answer
// means that the object has this status now.
func (s *Server) ReplaceStatus(resource, namespace, name, uid string, status any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, err := s.kind(resource)
	if err != nil {
		return err
	}
	before, err := k.get(types.NamespacedName{Namespace: namespace, Name: name})
	if err != nil {
		return err
	}
	s.counts.StatusPatches[resource]++
	if string(before.GetUID()) != uid {
		return s.refused(k, testFailed(k, name))
	}
	var after Object
	switch before := before.(type) {
	case *v1alpha1.Queue:
		now := *before
		now.Status = status.(*v1alpha1.QueueStatus)
		after = &now
	case *v1alpha1.PodGroup:
		now := *before
		now.Status = status.(*v1alpha1.PodGroupStatus)
		after = &now
	default:
		return apierrors.NewMethodNotSupported(k.group(), "patch")
	}
	return s.replace(k, before, after)
}

// testFailed is the answer to a JSON patch whose test does not hold.
func testFailed(k *kind, name string) error {
	return apierrors.NewInvalid(k.gvk.GroupKind(), name, field.ErrorList{field.Invalid(field.NewPath("metadata", "uid"), nil, "the test of the patch failed")})
}

// Patch applies a patch to an object or, with subresource "status", to its status alone.
func (s *Server) Patch(resource, namespace, name, subresource string, how types.PatchType, patch []byte) (Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, err := s.kind(resource)
	if err != nil {
		return nil, err
	}
	before, err := k.get(types.NamespacedName{Namespace: namespace, Name: name})
	if err != nil {
		return nil, err
	}
	if subresource == "status" {
		s.counts.StatusPatches[resource]++
	} else {
		s.counts.Updates[resource]++
	}
	text, err := json.Marshal(before)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	after := k.make()
	switch how {
	case types.JSONPatchType:
		var p jsonpatch.Patch
		if p, err = jsonpatch.DecodePatch(patch); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		if text, err = p.Apply(text); err != nil {
			return nil, s.refused(k, apierrors.NewInvalid(k.gvk.GroupKind(), name, field.ErrorList{field.Invalid(field.NewPath("patch"), string(patch), err.Error())}))
		}
	case types.MergePatchType:
		text, err = jsonpatch.MergePatch(text, patch)
	case types.StrategicMergePatchType:
		text, err = strategicpatch.StrategicMergePatch(text, patch, after)
	default:
		return nil, apierrors.NewGenericServerResponse(415, "patch", k.group(), name, fmt.Sprintf("patches of type %s are not supported", how), 0, false)
	}
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	d := json.NewDecoder(bytes.NewReader(text))
	if err := d.Decode(after); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	after.GetObjectKind().SetGroupVersionKind(k.gvk)
	stale := after.GetResourceVersion() != "" && after.GetResourceVersion() != before.GetResourceVersion() // a conflict before all else
	if after.GetUID() != before.GetUID() && !stale {
		return nil, s.refused(k, apierrors.NewInvalid(k.gvk.GroupKind(), name, field.ErrorList{field.Invalid(field.NewPath("metadata", "uid"), after.GetUID(), "field is immutable")}))
	}
	return s.changed(k, before, after, subresource)
}

func keepAllButStatus(before, after Object) {
	switch after := after.(type) {
	case *corev1.Pod:
		status := after.Status
		*after = *before.(*corev1.Pod)
		after.Status = status
	case *corev1.Node:
		status := after.Status
		*after = *before.(*corev1.Node)
		after.Status = status
	case *v1alpha1.Queue:
		status := after.Status
		*after = *before.(*v1alpha1.Queue)
		after.Status = status
	case *v1alpha1.PodGroup:
		status := after.Status
		*after = *before.(*v1alpha1.PodGroup)
		after.Status = status
	}
}

func keepStatus(before, after Object) {
	after.SetCreationTimestamp(before.GetCreationTimestamp())
	after.SetDeletionTimestamp(before.GetDeletionTimestamp())
	after.SetGeneration(before.GetGeneration())
	spec := func(a, b any) {
		if !equality.Semantic.DeepEqual(a, b) {
			after.SetGeneration(before.GetGeneration() + 1)
		}
	}
	switch after := after.(type) {
	case *corev1.Pod:
		after.Status = before.(*corev1.Pod).Status
		spec(before.(*corev1.Pod).Spec, after.Spec)
	case *corev1.Node:
		after.Status = before.(*corev1.Node).Status
	case *v1alpha1.Queue:
		after.Status = before.(*v1alpha1.Queue).Status
		spec(before.(*v1alpha1.Queue).Spec, after.Spec)
	case *v1alpha1.PodGroup:
		after.Status = before.(*v1alpha1.PodGroup).Status
		spec(before.(*v1alpha1.PodGroup).Spec, after.Spec)
	}
}

// replace stores a changed object, if it is changed and its stamp allows it.
func (s *Server) replace(k *kind, before, after Object) error {
	var old, now *v1alpha1.Stamp
	switch after := after.(type) {
	case *v1alpha1.Queue:
		old, now = queueStamp(before), queueStamp(after)
	case *v1alpha1.PodGroup:
		old, now = groupStamp(before), groupStamp(after)
	}
	after.SetResourceVersion(before.GetResourceVersion())
	same := unchanged(before, after)
	if old != nil && !same {
		allowed := now != nil && (*now == *old && statusEqual(before, after) || now.Epoch > old.Epoch || now.Epoch == old.Epoch && now.Writer == old.Writer && now.Sequence > old.Sequence)
		if !allowed {
			return s.refused(k, apierrors.NewInvalid(k.gvk.GroupKind(), after.GetName(), field.ErrorList{field.Forbidden(field.NewPath("status"), "a status is replaced only by one of a larger epoch, or of the same epoch and writer and a larger sequence")}))
		}
	}
	if same {
		return nil
	}
	if over(after) { // with its last finalizer: this version is never stored
		s.commit(k, watch.Deleted, before, shallow(before))
		return nil
	}
	s.commit(k, watch.Modified, before, after)
	return nil
}

// Update replaces an object, or with subresource "status" its status alone.
func (s *Server) Update(resource, subresource string, after Object) (Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, err := s.kind(resource)
	if err != nil {
		return nil, err
	}
	before, err := k.get(nameOf(after))
	if err != nil {
		return nil, err
	}
	s.counts.Updates[resource]++
	if uid := after.GetUID(); uid != "" && uid != before.GetUID() {
		return nil, s.refused(k, apierrors.NewConflict(k.group(), after.GetName(), fmt.Errorf("the UID in the precondition (%s) is not %s", uid, before.GetUID())))
	}
	after.SetUID(before.GetUID())
	after.GetObjectKind().SetGroupVersionKind(k.gvk)
	return s.changed(k, before, after, subresource)
}

// changed stores what a patch or an update made of an object.
func (s *Server) changed(k *kind, before, after Object, subresource string) (Object, error) {
	if v := after.GetResourceVersion(); v != before.GetResourceVersion() && v != "" {
		return nil, s.refused(k, apierrors.NewConflict(k.group(), after.GetName(), fmt.Errorf("the object has been modified; please apply your changes to the latest version and try again")))
	}
	if subresource == "status" {
		keepAllButStatus(before, after)
	} else {
		keepStatus(before, after)
	}
	if before.GetDeletionTimestamp() != nil {
		for _, f := range after.GetFinalizers() {
			if !slices.Contains(before.GetFinalizers(), f) {
				return nil, s.refused(k, apierrors.NewInvalid(k.gvk.GroupKind(), after.GetName(), field.ErrorList{field.Forbidden(field.NewPath("metadata", "finalizers"), "no new finalizers can be added if the object is being deleted")}))
			}
		}
	}
	if err := s.replace(k, before, after); err != nil {
		return nil, err
	}
	if now := k.objects[nameOf(after)]; now != nil {
		return now, nil
	}
	return after, nil // the last finalizer went
}

// unchanged reports whether two versions say the same; a stamp that differs is the quick answer.
func unchanged(before, after Object) bool {
	switch after := after.(type) {
	case *v1alpha1.Queue:
		if a, b := queueStamp(before), queueStamp(after); a == nil != (b == nil) || a != nil && *a != *b {
			return false
		}
	case *v1alpha1.PodGroup:
		if a, b := groupStamp(before), groupStamp(after); a == nil != (b == nil) || a != nil && *a != *b {
			return false
		}
	}
	return equality.Semantic.DeepEqual(before, after)
}

func statusEqual(before, after Object) bool {
	switch after := after.(type) {
	case *v1alpha1.Queue:
		return equality.Semantic.DeepEqual(before.(*v1alpha1.Queue).Status, after.Status)
	case *v1alpha1.PodGroup:
		return equality.Semantic.DeepEqual(before.(*v1alpha1.PodGroup).Status, after.Status)
	}
	return false
}

func queueStamp(o Object) *v1alpha1.Stamp {
	if status := o.(*v1alpha1.Queue).Status; status != nil {
		return &status.Stamp
	}
	return nil
}

func groupStamp(o Object) *v1alpha1.Stamp {
	if status := o.(*v1alpha1.PodGroup).Status; status != nil {
		return &status.Stamp
	}
	return nil
}
