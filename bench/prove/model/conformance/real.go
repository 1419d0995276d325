package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/bench/prove/model"
)

// realAPI is a real one. It gives its run a namespace, and a prefix to names of what has none.
type realAPI struct {
	clients *kube.Clients
	ctx     context.Context
	run     string
	ends    int
}

func (r *realAPI) rest(kind string) rest.Interface {
	if kind == "group" || kind == "queue" {
		return r.clients.Basalt
	}
	return r.clients.Core.CoreV1().RESTClient()
}

// at has a request be about a kind, named about one object of it.
func (r *realAPI) at(kind string, q *rest.Request) *rest.Request {
	return q.NamespaceIfScoped(r.run, kinds[kind].namespaced).Resource(kinds[kind].resource)
}

func (r *realAPI) named(kind, name string, q *rest.Request) *rest.Request {
	return r.at(kind, q).Name(r.there(kind, name))
}

// there and here translate names.
func (r *realAPI) there(kind, name string) string {
	if kinds[kind].namespaced {
		return name
	}
	return r.run + "-" + name
}

func (r *realAPI) here(o metav1.Object) metav1.Object {
	o = o.(runtime.Object).DeepCopyObject().(metav1.Object)
	if o.GetNamespace() == r.run {
		o.SetNamespace("ns")
	}
	o.SetName(strings.TrimPrefix(o.GetName(), r.run+"-"))
	if v, is := o.(*corev1.PersistentVolume); is && v.Spec.ClaimRef != nil && v.Spec.ClaimRef.Namespace == r.run {
		v.Spec.ClaimRef.Namespace = "ns"
	}
	o.SetFinalizers(slices.DeleteFunc(o.GetFinalizers(), func(f string) bool { // of an admission plugin
		return f == "kubernetes.io/pv-protection" || f == "kubernetes.io/pvc-protection"
	}))
	return o
}

func (r *realAPI) sent(kind string, o metav1.Object) runtime.Object {
	o = o.(runtime.Object).DeepCopyObject().(metav1.Object)
	o.SetName(r.there(kind, o.GetName()))
	if namespace(kind) != "" {
		o.SetNamespace(r.run)
	}
	return o.(runtime.Object)
}

func (r *realAPI) Create(kind string, o metav1.Object) error {
	if kind == "pod" {
		_, err := r.clients.Core.CoreV1().Pods(r.run).Create(r.ctx, r.sent(kind, o).(*corev1.Pod), metav1.CreateOptions{})
		return err
	}
	return r.at(kind, r.rest(kind).Post()).Body(r.sent(kind, o)).Do(r.ctx).Error()
}

func (r *realAPI) Get(kind, name string) (metav1.Object, error) {
	if kind == "pod" {
		p, err := r.clients.Core.CoreV1().Pods(r.run).Get(r.ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		return r.here(p), nil
	}
	o := kinds[kind].empty()
	if err := r.named(kind, name, r.rest(kind).Get()).Do(r.ctx).Into(o.(runtime.Object)); err != nil {
		return nil, err
	}
	return r.here(o), nil
}

func (r *realAPI) Replace(kind string, o metav1.Object) error {
	sent := r.sent(kind, o)
	if p, is := sent.(*corev1.Pod); is {
		old, err := r.Get(kind, o.GetName())
		if err != nil {
			return err
		}
		pods := r.clients.Core.CoreV1().Pods(r.run)
		if old.(*corev1.Pod).Status.Phase != p.Status.Phase {
			_, err = pods.UpdateStatus(r.ctx, p, metav1.UpdateOptions{})
		} else {
			_, err = pods.Update(r.ctx, p, metav1.UpdateOptions{})
		}
		return err
	}
	return r.named(kind, o.GetName(), r.rest(kind).Put()).Body(sent).Do(r.ctx).Error()
}

func (r *realAPI) Delete(kind, name, uid, version string, grace *int64) error {
	o := metav1.DeleteOptions{GracePeriodSeconds: grace}
	if uid != "" || version != "" {
		o.Preconditions = &metav1.Preconditions{}
		if uid != "" {
			u := types.UID(uid)
			o.Preconditions.UID = &u
		}
		if version != "" {
			o.Preconditions.ResourceVersion = &version
		}
	}
	if kind == "pod" {
		return r.deletePod(name, o)
	}
	body, err := json.Marshal(struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		metav1.DeleteOptions
	}{"v1", "DeleteOptions", o})
	if err != nil {
		return err
	}
	q := r.named(kind, name, r.rest(kind).Delete()).Body(body).SetHeader("Content-Type", "application/json")
	return q.Do(r.ctx).Error()
}

func (r *realAPI) Bind(b model.Binding) error {
	pod := kube.Pod{Namespace: r.run, Name: b.Name, UID: b.UID}
	return r.clients.Bind(r.ctx, pod, b.Version, b.Node, b.Labels, b.Annotations)
}

// patch sends what package kube sends, for what it does not offer by itself.
func (r *realAPI) patch(kind, name string, how types.PatchType, body any, subresources ...string) error {
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	if kind == "pod" {
		_, err = r.clients.Core.CoreV1().Pods(r.run).Patch(r.ctx, name, how, b, metav1.PatchOptions{}, subresources...)
		return err
	}
	return r.named(kind, name, r.rest(kind).Patch(how)).SubResource(subresources...).Body(b).Do(r.ctx).Error()
}

func (r *realAPI) Annotate(name, uid, value string) error {
	return r.patch("pod", name, types.MergePatchType, map[string]any{"metadata": map[string]any{"uid": uid,
		"annotations": map[string]string{domain + "note": value}}})
}

func (r *realAPI) Resolve(name, uid, version, value string) error {
	found, err := r.clients.Resolve(r.ctx, kube.Pod{Namespace: r.run, Name: name, UID: uid}, version, value)
	if err == nil && found.Gone {
		err = apierrors.NewNotFound(corev1.Resource("pods"), name)
	}
	return err
}

func (r *realAPI) Condition(name, uid, version string, c corev1.PodCondition) error {
	m := map[string]any{"uid": uid}
	if version != "" {
		m["resourceVersion"] = version
	}
	return r.patch("pod", name, types.StrategicMergePatchType, map[string]any{"metadata": m,
		"status": map[string]any{"conditions": []corev1.PodCondition{c}}}, "status")
}

func (r *realAPI) GroupStatus(name, uid string, s *v1beta1.PodGroupStatus) error {
	return unwrap(r.clients.ReplaceStatus(r.ctx, "podgroups", r.run, name, uid, s))
}

func (r *realAPI) QueueStatus(name, uid string, s *v1beta1.QueueStatus) error {
	return unwrap(r.clients.ReplaceStatus(r.ctx, "queues", "", r.there("queue", name), uid, s))
}

// unwrap takes away what package kube says for people.
func unwrap(err error) error {
	for err != nil {
		if _, is := err.(apierrors.APIStatus); is {
			return err
		}
		w, is := err.(interface{ Unwrap() error })
		if !is {
			return err
		}
		err = w.Unwrap()
	}
	return nil
}

func (r *realAPI) Finalizers(name, uid, version string, finalizers []string) error {
	return r.patch("queue", name, types.MergePatchType, map[string]any{"metadata": map[string]any{"uid": uid,
		"resourceVersion": version, "finalizers": finalizers}})
}

func (r *realAPI) SelectNode(claim api.ObjectVersion, node string) error {
	claim.Namespace = r.run
	_, err := r.clients.SelectNode(r.ctx, claim, node)
	return unwrap(err)
}

func (r *realAPI) KeepVolume(volume, claim api.ObjectVersion) error {
	volume.Name, claim.Namespace = r.there("volume", volume.Name), r.run
	_, err := r.clients.KeepVolume(r.ctx, volume, claim)
	return unwrap(err)
}

func (r *realAPI) options(s model.Selector) (o metav1.ListOptions) {
	if s.Labels != nil {
		o.LabelSelector = s.Labels.String()
	}
	if s.Fields != nil {
		o.FieldSelector = s.Fields.String()
	}
	return o
}

func (r *realAPI) lister(kind string) *rest.Request {
	return r.at(kind, r.rest(kind).Get())
}

func (r *realAPI) List(kind string, s model.Selector) ([]metav1.Object, int64, error) {
	list := kinds[kind].list()
	o := r.options(s)
	if err := r.lister(kind).VersionedParams(&o, metav1.ParameterCodec).Do(r.ctx).Into(list); err != nil {
		return nil, 0, err
	}
	items, err := meta.ExtractList(list)
	if err != nil {
		return nil, 0, err
	}
	var out []metav1.Object
	for _, item := range items {
		o := item.(metav1.Object)
		if !kinds[kind].namespaced && !strings.HasPrefix(o.GetName(), r.run) {
			continue
		}
		if o = r.here(o); !strings.HasPrefix(o.GetName(), "end-") { // of a watch: a claim stays a while after its deletion
			out = append(out, o)
		}
	}
	l, err := meta.ListAccessor(list)
	if err != nil {
		return nil, 0, err
	}
	version, err := strconv.ParseInt(l.GetResourceVersion(), 10, 64)
	return out, version, err
}

// Watch reads until the watch shows an object that is made for that, after all else and so that it is selected.
func (r *realAPI) Watch(kind string, s model.Selector, from int64) ([]model.Entry, error) {
	ctx, cancel := context.WithTimeout(r.ctx, patience)
	defer cancel()
	o := r.options(s)
	o.Watch, o.ResourceVersion = true, strconv.FormatInt(from, 10)
	w, err := r.lister(kind).VersionedParams(&o, metav1.ParameterCodec).Watch(ctx)
	if err != nil {
		return nil, err
	}
	defer w.Stop()
	r.ends++
	end := newObject(kind, fmt.Sprintf("end-%d", r.ends), args{named: map[string]string{"min": "1"}})
	if s.Labels != nil {
		wanted := map[string]string{}
		all, _ := s.Labels.Requirements()
		for _, q := range all {
			if q.Operator() == selection.In || q.Operator() == selection.Equals {
				wanted[q.Key()] = slices.Sorted(maps.Keys(q.Values()))[0]
			} else if q.Operator() == selection.Exists {
				wanted[q.Key()] = "end"
			}
		}
		end.SetLabels(wanted)
	}
	if p, is := end.(*corev1.Pod); is && s.Fields != nil {
		p.Spec.NodeName, _ = s.Fields.RequiresExactMatch("spec.nodeName")
	}
	if err := r.Create(kind, end); err != nil {
		return nil, err
	}
	defer func() {
		now := int64(0)
		_ = r.Delete(kind, end.GetName(), "", "", &now)
	}()
	var out []model.Entry
	var last int64
	for {
		select {
		case <-ctx.Done():
			return out, ctx.Err()
		case e, open := <-w.ResultChan():
			if !open {
				return out, fmt.Errorf("the watch ended after %d events", len(out))
			}
			if e.Type == watch.Error {
				return nil, apierrors.FromObject(e.Object)
			}
			o := e.Object.(metav1.Object)
			version, _ := strconv.ParseInt(o.GetResourceVersion(), 10, 64)
			if version < last {
				return out, fmt.Errorf("version %d comes after %d", version, last)
			}
			last = version
			if !kinds[kind].namespaced && !strings.HasPrefix(o.GetName(), r.run) {
				continue
			}
			here := r.here(o)
			if here.GetName() == end.GetName() {
				return out, nil
			}
			if strings.HasPrefix(here.GetName(), "end-") { // of an earlier watch
				continue
			}
			out = append(out, model.Entry{Type: e.Type, Version: version, Object: model.Object{Object: here}})
		}
	}
}

// deletePod waits until the API server's watch cache has the pod as it is. A deletion first looks there: a pod that was
// bound a moment ago may have no node there yet, and would go at once, without grace.
func (r *realAPI) deletePod(name string, o metav1.DeleteOptions) error {
	pods := r.clients.Core.CoreV1().Pods(r.run)
	if p, err := pods.Get(r.ctx, name, metav1.GetOptions{}); err == nil {
		_, _ = pods.Get(r.ctx, name, metav1.GetOptions{ResourceVersion: p.ResourceVersion})
	}
	return pods.Delete(r.ctx, name, o)
}
