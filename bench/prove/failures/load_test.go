package failures

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/bench/stage/kubelet"
)

type amounts map[v1.ResourceName]string

func (a amounts) list() v1.ResourceList {
	out := v1.ResourceList{}
	for name, q := range a {
		out[name] = resource.MustParse(q)
	}
	return out
}

// newPod makes a pod for Basalt. What is asked for is limited, too: extended resources want that.
func (w *world) newPod(name, group string, asks amounts) *v1.Pod {
	grace := int64(0)
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.name, Name: name, Labels: map[string]string{}, Annotations: map[string]string{}},
		Spec: v1.PodSpec{
			SchedulerName: api.SchedulerName, RestartPolicy: v1.RestartPolicyNever, TerminationGracePeriodSeconds: &grace,
			Containers: []v1.Container{{Name: "main", Image: "none", Resources: v1.ResourceRequirements{Requests: asks.list(), Limits: asks.list()}}},
		},
	}
	if group != "" {
		p.Labels[api.LabelPodGroup] = group
	}
	return p
}

// runs has a pod finish by itself.
func runsFor(p *v1.Pod, d time.Duration) *v1.Pod {
	p.Annotations[kubelet.RunSeconds] = strconv.FormatFloat(d.Seconds(), 'f', 3, 64)
	return p
}

func (w *world) create(ctx context.Context, p *v1.Pod) (*v1.Pod, error) {
	out, err := w.kube.Core.CoreV1().Pods(p.Namespace).Create(ctx, p, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("create pod %s: %w", p.Name, err)
	}
	return out, nil
}

func (w *world) createGroup(ctx context.Context, name, queue string, minCount int32) (*v1beta1.PodGroup, error) {
	g := &v1beta1.PodGroup{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1beta1.SchemeGroupVersion.String(), Kind: "PodGroup"},
		ObjectMeta: metav1.ObjectMeta{Namespace: w.name, Name: name},
		Spec:       v1beta1.PodGroupSpec{Queue: queue, SchedulingPolicy: v1beta1.SchedulingPolicy{Gang: v1beta1.GangSchedulingPolicy{MinCount: minCount}}},
	}
	out := &v1beta1.PodGroup{}
	if err := w.kube.Basalt.Post().Namespace(w.name).Resource("podgroups").Body(g).Do(ctx).Into(out); err != nil {
		return nil, fmt.Errorf("create PodGroup %s: %w", name, err)
	}
	return out, nil
}

// gang creates a PodGroup and so many pods like the one given, all of them its minimum.
func (w *world) gang(ctx context.Context, name, queue string, pods int, like *v1.Pod) ([]types.UID, error) {
	if _, err := w.createGroup(ctx, name, queue, int32(pods)); err != nil {
		return nil, err
	}
	var uids []types.UID
	for i := range pods {
		p := like.DeepCopy()
		p.Name = fmt.Sprintf("%s-%d", name, i)
		p.Labels[api.LabelPodGroup] = name
		made, err := w.create(ctx, p)
		if err != nil {
			return uids, err
		}
		uids = append(uids, made.UID)
	}
	return uids, nil
}

func (w *world) queue(ctx context.Context, name string, capability amounts) {
	q := &v1beta1.Queue{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1beta1.SchemeGroupVersion.String(), Kind: "Queue"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1beta1.QueueSpec{Capability: capability.list()},
	}
	err := w.kube.Basalt.Post().Resource("queues").Body(q).Do(ctx).Error()
	if apierrors.IsAlreadyExists(err) { // root and default, which a coordinator makes
		err = w.kube.Basalt.Patch(types.MergePatchType).Resource("queues").Name(name).Body(mustJSON(map[string]any{"spec": q.Spec})).Do(ctx).Error()
	}
	w.check(err)
}

func (w *world) node(ctx context.Context, name string, room amounts, labels map[string]string) {
	n := kubelet.Node(name, "1", "1Gi", 110)
	for k, q := range room.list() {
		n.Status.Capacity[k], n.Status.Allocatable[k] = q, q
	}
	for k, v := range labels {
		n.Labels[k] = v
	}
	_, err := w.kube.Core.CoreV1().Nodes().Create(ctx, n, metav1.CreateOptions{})
	w.check(err)
}

// setNode changes a node's allocatable, "" takes a resource away, and its labels.
func (w *world) setNode(ctx context.Context, name string, room map[string]string, labels map[string]string) error {
	if len(room) > 0 {
		status := map[string]any{}
		for k, v := range room {
			status[k] = v
			if v == "" {
				status[k] = nil
			}
		}
		patch := mustJSON(map[string]any{"status": map[string]any{"allocatable": status}})
		if _, err := w.kube.Core.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
			return fmt.Errorf("change allocatable of node %s: %w", name, err)
		}
	}
	if len(labels) > 0 {
		patch := mustJSON(map[string]any{"metadata": map[string]any{"labels": labels}})
		if _, err := w.kube.Core.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return fmt.Errorf("change labels of node %s: %w", name, err)
		}
	}
	return nil
}

// finishPod ends a pod as its kubelet would.
func (w *world) finishPod(ctx context.Context, name string) {
	_, err := w.kube.Core.CoreV1().Pods(w.name).Patch(ctx, name, types.StrategicMergePatchType, []byte(`{"status":{"phase":"Succeeded"}}`), metav1.PatchOptions{}, "status")
	w.check(err)
}

func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// bound reports whether all of these pods have a node.
func bound(uids ...types.UID) func(*view) bool {
	return func(v *view) bool {
		for _, uid := range uids {
			if v.node[uid] == "" {
				return false
			}
		}
		return true
	}
}
