package memory

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/watch"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/utils/ptr"

	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/bench/prove/model"
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
	if b.Target.Kind != "" && b.Target.Kind != "Node" || b.Target.Name == "" {
		return apierrors.NewBadRequest("target: a Node with a name is needed")
	}
	pod, err := k.Bind(o.(*corev1.Pod), model.Binding{UID: string(b.UID), Version: b.ResourceVersion, Name: b.Name, Node: b.Target.Name, Labels: b.Labels, Annotations: b.Annotations}, now())
	if err != nil {
		return s.refused(k, err)
	}
	s.counts.Bindings["pods"]++
	s.commit(k, watch.Modified, o, pod)
	return nil
}

// now is the time as objects show it.
func now() metav1.Time { return metav1.NewTime(time.Now().Truncate(time.Second)) }

// Delete removes an object, or marks it where finalizers, or a kubelet that has to end a pod, want to see it first.
func (s *Server) Delete(resource, namespace, name string, o metav1.DeleteOptions) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, before, err := s.find(resource, types.NamespacedName{Namespace: namespace, Name: name})
	if err != nil {
		return err
	}
	var uid types.UID
	var version string
	if p := o.Preconditions; p != nil {
		uid, version = ptr.Deref(p.UID, ""), ptr.Deref(p.ResourceVersion, "")
	}
	marked, gone, err := k.Delete(before, uid, version, o.GracePeriodSeconds, now())
	if err != nil {
		return s.refused(k, err)
	}
	s.counts.Deletes[resource]++
	if marked != nil {
		s.commit(k, watch.Modified, before, marked.(Object))
		before = marked.(Object)
	}
	if gone {
		s.commit(k, watch.Deleted, before, model.Copy(before).(Object))
	}
	return nil
}

// ReplaceStatus puts a status into a Queue or PodGroup with this UID: what package kube does by a JSON patch. A nil answer
// means that the object has this status now.
func (s *Server) ReplaceStatus(resource, namespace, name, uid string, status any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, before, err := s.find(resource, types.NamespacedName{Namespace: namespace, Name: name})
	if err != nil {
		return err
	}
	s.counts.StatusPatches[resource]++
	after, err := k.WithStatus(before, uid, status)
	if err != nil {
		return s.refused(k, err)
	}
	_, err = s.replace(k, before, after.(Object))
	return err
}

// Patch applies a patch to an object or, with subresource "status", to its status alone.
func (s *Server) Patch(resource, namespace, name, subresource string, how types.PatchType, patch []byte) (Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, before, err := s.find(resource, types.NamespacedName{Namespace: namespace, Name: name})
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
			return nil, s.refused(k, k.Invalid(name, err.Error()))
		}
	case types.MergePatchType:
		text, err = jsonpatch.MergePatch(text, patch)
	case types.StrategicMergePatchType:
		text, err = strategicpatch.StrategicMergePatch(text, patch, after)
	default:
		return nil, apierrors.NewGenericServerResponse(415, "patch", k.Resource, name, fmt.Sprintf("patches of type %s are not supported", how), 0, false)
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
		return nil, s.refused(k, k.Invalid(name, "metadata.uid: field is immutable"))
	}
	if after.GetResourceVersion() == "" && k.gvk.Group == v1beta1.GroupName {
		return nil, s.refused(k, k.Invalid(name, "metadata.resourceVersion: must be specified for an update"))
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
	case *v1beta1.Queue:
		status := after.Status
		*after = *before.(*v1beta1.Queue)
		after.Status = status
	case *v1beta1.PodGroup:
		status := after.Status
		*after = *before.(*v1beta1.PodGroup)
		after.Status = status
	}
}

func keepStatus(before, after Object) {
	switch after := after.(type) {
	case *corev1.Pod:
		after.Status = before.(*corev1.Pod).Status
	case *corev1.Node:
		after.Status = before.(*corev1.Node).Status
	case *v1beta1.Queue:
		after.Status = before.(*v1beta1.Queue).Status
	case *v1beta1.PodGroup:
		after.Status = before.(*v1beta1.PodGroup).Status
	}
}

// replace stores a changed object, and returns what there is then.
func (s *Server) replace(k *kind, before, after Object) (Object, error) {
	changed, gone, err := k.Replace(before, after)
	switch {
	case err != nil:
		return nil, s.refused(k, err)
	case gone: // with its last finalizer: this version is never stored
		s.commit(k, watch.Deleted, before, model.Copy(before).(Object))
	case changed:
		s.commit(k, watch.Modified, before, after)
	default:
		return before, nil
	}
	return after, nil
}

// Update replaces an object, or with subresource "status" its status alone.
func (s *Server) Update(resource, subresource string, after Object) (Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, before, err := s.find(resource, nameOf(after))
	if err != nil {
		return nil, err
	}
	s.counts.Updates[resource]++
	after.GetObjectKind().SetGroupVersionKind(k.gvk)
	return s.changed(k, before, after, subresource)
}

// changed stores what a patch or an update made of an object, or of its status.
func (s *Server) changed(k *kind, before, after Object, subresource string) (Object, error) {
	if subresource == "status" {
		uid, version := after.GetUID(), after.GetResourceVersion()
		keepAllButStatus(before, after)
		after.SetUID(uid)
		after.SetResourceVersion(version)
	} else {
		keepStatus(before, after)
	}
	return s.replace(k, before, after)
}
