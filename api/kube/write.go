package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	storagehelpers "k8s.io/component-helpers/storage/volume"
	volcanov1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/api/v1beta1"
)

// Every write below names the UID that it is meant for: nothing meant for an object touches another one of its name.

// Pod names a pod for a write.
type Pod struct{ Namespace, Name, UID string }

// Bind sends the Binding of a pod in the version named. A nil answer means that the pod is bound; any other error, a
// conflict included, says nothing about where the pod is: ask Resolve.
func (c *Clients) Bind(
	ctx context.Context, p Pod, resourceVersion, node string, labels, annotations map[string]string,
) error {
	return c.Core.CoreV1().Pods(p.Namespace).Bind(ctx, &v1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: types.UID(p.UID),
			ResourceVersion: resourceVersion, Labels: labels, Annotations: annotations},
		Target: v1.ObjectReference{Kind: "Node", Name: node},
	}, metav1.CreateOptions{})
}

// Resolution is what Resolve found.
type Resolution struct {
	Gone bool   // no pod of this UID
	Node string // where the pod is bound, "" for nowhere: then no Binding that names an earlier version can land any more

	Version string // that the pod has now
}

// Resolve finds out whether a Binding whose answer is unknown took effect, and makes sure that it does not later. version is
// the one that the Binding names, value one that was never used before.
//
// It reads the pod first. A pod without a node whose version is another one is free: a Binding of the old version is refused
// for ever. That is so after a conflict, whoever has edited the pod; a write is needed only where the Binding may still be on
// its way. The write sets a condition in the pod's status, because a shard may write no more of a pod than that, and because
// annotations have a limit that a user can exhaust; it is judged by the pod that comes back. A write that changes nothing keeps
// the version, hence the new value.
//
// An error says that nothing is known, and to try again. That ends: whatever happens to the pod, including a write of Resolve
// whose answer was lost, is found by the next read. What is left is an API server that refuses every write of pods/status.
func (c *Clients) Resolve(ctx context.Context, p Pod, version, value string) (Resolution, error) {
	read := func() (Resolution, bool, error) {
		found, err := c.Look(ctx, p)
		return found, err == nil && (found.Gone || found.Node != "" || found.Version != version), err
	}
	if found, resolved, err := read(); resolved || err != nil {
		return found, err
	}
	var after *v1.Pod
	err := c.patchPodStatus(ctx, p, v1.PodCondition{Type: api.ConditionBindingResolved, Status: v1.ConditionTrue, Message: value}, func(pod *v1.Pod) { after = pod })
	switch {
	case err == nil && string(after.UID) != p.UID:
		return Resolution{Gone: true}, nil
	case err == nil && after.ResourceVersion == version:
		return Resolution{}, fmt.Errorf("resolve pod %s/%s: the API server has left it at version %s", p.Namespace, p.Name, version)
	case err == nil:
		return Resolution{Node: after.Spec.NodeName, Version: after.ResourceVersion}, nil
	}
	if found, resolved, readErr := read(); resolved && readErr == nil { // it was changed or deleted meanwhile
		return found, nil
	}
	return Resolution{}, fmt.Errorf("resolve pod %s/%s: %w", p.Namespace, p.Name, err)
}

// Look finds out what became of a Binding that the API server has answered: nothing comes of it later.
func (c *Clients) Look(ctx context.Context, p Pod) (Resolution, error) {
	// Without a version, the answer is never from a cache.
	pod, err := c.Core.CoreV1().Pods(p.Namespace).Get(ctx, p.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), err == nil && string(pod.UID) != p.UID:
		return Resolution{Gone: true}, nil
	case err != nil:
		return Resolution{}, fmt.Errorf("resolve pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	return Resolution{Node: pod.Spec.NodeName, Version: pod.ResourceVersion}, nil
}

// Controller returns which object controls a pod, nil if none does or the pod is gone.
func (c *Clients) Controller(ctx context.Context, p Pod) (*v1.ObjectReference, error) {
	pod, err := c.Core.CoreV1().Pods(p.Namespace).Get(ctx, p.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), err == nil && string(pod.UID) != p.UID:
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	owner := metav1.GetControllerOf(pod)
	if owner == nil {
		return nil, nil
	}
	return &v1.ObjectReference{
		APIVersion: owner.APIVersion, Kind: owner.Kind, Namespace: p.Namespace, Name: owner.Name, UID: owner.UID,
	}, nil
}

// Evict removes a pod the way kube-scheduler preempts: the condition first, then the delete. A pod that is gone is no
// error. Where the API server refuses the condition for good, the pod is deleted without it.
func (c *Clients) Evict(ctx context.Context, p Pod, message string) error {
	err := c.patchPodStatus(ctx, p, v1.PodCondition{
		Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: v1beta1.ReasonRolledBack, Message: message, LastTransitionTime: metav1.Now()}, nil)
	if err != nil && !gone(err) && !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
		return fmt.Errorf("mark pod %s/%s for eviction: %w", p.Namespace, p.Name, err)
	}
	fault.Crash(fault.EvictionMarked)
	uid := types.UID(p.UID)
	err = c.Core.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if err != nil && !gone(err) {
		return fmt.Errorf("evict pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	fault.Crash(fault.EvictionSent)
	return nil
}

// gone: not found, or found with another UID, which is a conflict to some verbs and an immutable field to others. What
// an admission policy denies is invalid, too, and names no field.
func gone(err error) bool {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return true
	}
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(status.Status().Details.Causes, func(cause metav1.StatusCause) bool {
		return cause.Field == "metadata.uid"
	})
}

// ExplainPod writes PodScheduled=False with a reason and returns the pod's new resourceVersion. It names the version
// that the pod must have: a pod that was bound meanwhile must not be told that it is waiting.
func (c *Clients) ExplainPod(ctx context.Context, p Pod, resourceVersion, reason, message string) (string, error) {
	var after v1.Pod
	err := c.patchPodStatus(ctx, p, v1.PodCondition{
		Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: reason, Message: message, LastTransitionTime: metav1.Now()}, func(got *v1.Pod) { after = *got }, resourceVersion)
	if err != nil {
		return "", fmt.Errorf("explain pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	return after.ResourceVersion, nil
}

func (c *Clients) patchPodStatus(ctx context.Context, p Pod, condition v1.PodCondition, result func(*v1.Pod), resourceVersion ...string) error {
	metadata := map[string]any{"uid": p.UID}
	for _, v := range resourceVersion {
		metadata["resourceVersion"] = v
	}
	patch := mustJSON(map[string]any{"metadata": metadata, "status": map[string]any{"conditions": []v1.PodCondition{condition}}})
	got, err := c.Core.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err == nil && result != nil {
		result(got)
	}
	return err
}

// SelectNode annotates a claim with the node for which a volume is to be provisioned, or with "" takes the annotation
// off. It returns the claim's new resourceVersion.
func (c *Clients) SelectNode(ctx context.Context, claim api.ObjectVersion, node string) (string, error) {
	var value any
	if node != "" {
		value = node
	}
	patch := mustJSON(map[string]any{"metadata": map[string]any{"uid": claim.UID, "resourceVersion": claim.Version,
		"annotations": map[string]any{storagehelpers.AnnSelectedNode: value}}})
	claims := c.Core.CoreV1().PersistentVolumeClaims(claim.Namespace)
	got, err := claims.Patch(ctx, claim.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return "", fmt.Errorf("select a node for claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	return got.ResourceVersion, nil
}

// KeepVolume names a claim in a volume, as kube-scheduler does; kube-controller-manager binds them then. It returns the
// volume's new resourceVersion.
func (c *Clients) KeepVolume(ctx context.Context, volume, claim api.ObjectVersion) (string, error) {
	patch := mustJSON(map[string]any{
		"metadata": map[string]any{"uid": volume.UID, "resourceVersion": volume.Version,
			"annotations": map[string]any{storagehelpers.AnnBoundByController: "yes"}},
		"spec": map[string]any{"claimRef": map[string]any{"apiVersion": "v1", "kind": "PersistentVolumeClaim",
			"namespace": claim.Namespace, "name": claim.Name, "uid": claim.UID, "resourceVersion": claim.Version}}})
	got, err := c.Core.CoreV1().PersistentVolumes().Patch(ctx, volume.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return "", fmt.Errorf("keep volume %s for claim %s/%s: %w", volume.Name, claim.Namespace, claim.Name, err)
	}
	return got.ResourceVersion, nil
}

// StatusReplacer is a client that replaces statuses in other ways than by requests: an API server in the same process.
type StatusReplacer interface {
	ReplaceStatus(ctx context.Context, resource, namespace, name, uid string, status any) error
}

// ReplaceStatus puts a status, whole, into /status of a Queue (namespace "") or PodGroup, without naming a version: the
// CRD's rule on epoch, writer and sequence is what keeps two writers apart. A merge patch would keep resources that the
// new status no longer names.
func (c *Clients) ReplaceStatus(ctx context.Context, resource, namespace, name, uid string, status any) error {
	if r, ok := c.Basalt.(StatusReplacer); ok {
		return r.ReplaceStatus(ctx, resource, namespace, name, uid, status)
	}
	patch := mustJSON([]map[string]any{
		{"op": "test", "path": "/metadata/uid", "value": uid},
		{"op": "add", "path": "/status", "value": status}})
	err := c.Basalt.Patch(types.JSONPatchType).NamespaceIfScoped(namespace, namespace != "").Resource(resource).Name(name).SubResource("status").
		Param("fieldValidation", metav1.FieldValidationIgnore). // or it is read once more for warnings that nobody reads
		Body(patch).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("write status of %s %s: %w", resource, name, err)
	}
	return nil
}

// WriteVolcanoStatus puts a status, whole, into a PodGroup of Volcano's, which has no /status of its own.
func (c *Clients) WriteVolcanoStatus(ctx context.Context, namespace, name, uid string, status *volcanov1beta1.PodGroupStatus) error {
	patch := mustJSON([]map[string]any{
		{"op": "test", "path": "/metadata/uid", "value": uid},
		{"op": "add", "path": "/status", "value": status}})
	err := c.Volcano.Patch(types.JSONPatchType).Namespace(namespace).Resource("podgroups").Name(name).
		Param("fieldValidation", metav1.FieldValidationIgnore).Body(patch).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("write status of Volcano PodGroup %s: %w", name, err)
	}
	return nil
}

// WriteUpstreamConditions merges conditions into those of a PodGroup of scheduling.k8s.io. Others, and what else is in its status, stay.
func (c *Clients) WriteUpstreamConditions(ctx context.Context, namespace, name, uid string, conditions []map[string]any) error {
	patch := mustJSON(map[string]any{"metadata": map[string]any{"uid": uid}, "status": map[string]any{"conditions": conditions}})
	if _, err := c.Core.SchedulingV1beta1().PodGroups(namespace).Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		return fmt.Errorf("write status of %s %s: %w", api.UpstreamGroup, name, err)
	}
	return nil
}

func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // maps and API types of our own making
	}
	return b
}
