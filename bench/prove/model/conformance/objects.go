package conformance

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1beta1"
)

// kinds are those of the objects that scripts speak of.
var kinds = map[string]struct {
	resource   string
	namespaced bool
	empty      func() metav1.Object
	list       func() runtime.Object
}{
	"pod": {"pods", true, func() metav1.Object { return &corev1.Pod{} },
		func() runtime.Object { return &corev1.PodList{} }},
	"group": {"podgroups", true, func() metav1.Object { return &v1beta1.PodGroup{} },
		func() runtime.Object { return &v1beta1.PodGroupList{} }},
	"queue": {"queues", false, func() metav1.Object { return &v1beta1.Queue{} },
		func() runtime.Object { return &v1beta1.QueueList{} }},
	"claim": {"persistentvolumeclaims", true, func() metav1.Object { return &corev1.PersistentVolumeClaim{} },
		func() runtime.Object { return &corev1.PersistentVolumeClaimList{} }},
	"volume": {"persistentvolumes", false, func() metav1.Object { return &corev1.PersistentVolume{} },
		func() runtime.Object { return &corev1.PersistentVolumeList{} }},
}

func namespace(kind string) string {
	if kinds[kind].namespaced {
		return "ns"
	}
	return ""
}

// describe says of an object what Basalt looks at.
func (x *side) describe(kind string, o metav1.Object) string {
	uid := string(o.GetUID())
	if all := x.uids[kind+"/"+o.GetName()]; !slices.Contains(all, uid) {
		x.uids[kind+"/"+o.GetName()] = append(all, uid)
	}
	n := slices.Index(x.uids[kind+"/"+o.GetName()], uid) + 1
	if !slices.Contains(x.versions[uid], o.GetResourceVersion()) {
		x.versions[uid] = append(x.versions[uid], o.GetResourceVersion())
	}
	v := slices.Index(x.versions[uid], o.GetResourceVersion()) + 1
	s := fmt.Sprintf("%s uid %d version %d generation %d", o.GetName(), n, v, o.GetGeneration())
	if o.GetDeletionTimestamp() != nil {
		s += " deleting"
		if g := o.GetDeletionGracePeriodSeconds(); g != nil {
			s += fmt.Sprintf(" in %d s", *g)
		}
	}
	show := func(what string, m map[string]string) {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			s += fmt.Sprintf(" %s %s=%s", what, strings.TrimPrefix(k, domain), m[k])
		}
	}
	show("label", o.GetLabels())
	show("annotation", o.GetAnnotations())
	for _, f := range o.GetFinalizers() {
		s += " finalizer " + f
	}
	switch o := o.(type) {
	case *corev1.Pod:
		s += fmt.Sprintf(" node %q %s", o.Spec.NodeName, o.Status.Phase)
		for _, g := range o.Spec.SchedulingGates {
			s += " gate " + g.Name
		}
		var conditions []string
		for _, c := range o.Status.Conditions {
			conditions = append(conditions, strings.TrimSpace(fmt.Sprintf(" %s=%s %s", c.Type, c.Status, c.Reason)))
		}
		slices.Sort(conditions) // nobody asks for their order
		for _, c := range conditions {
			s += " " + c
		}
	case *v1beta1.PodGroup:
		s += fmt.Sprintf(" queue %q min %d", o.Spec.Queue, o.Spec.SchedulingPolicy.Gang.MinCount)
		if st := o.Status; st != nil {
			s += fmt.Sprintf(" status %d/%s/%d bound %d", st.Epoch, st.Writer, st.Sequence, st.Bound)
		}
	case *v1beta1.Queue:
		s += " cpu " + o.Spec.Capability.Cpu().String()
		if st := o.Status; st != nil {
			s += fmt.Sprintf(" status %d/%s/%d of generation %d", st.Epoch, st.Writer, st.Sequence, st.ObservedGeneration)
		}
	case *corev1.PersistentVolume:
		if c := o.Spec.ClaimRef; c != nil {
			uid := slices.Index(x.uids["claim/"+c.Name], string(c.UID)) + 1
			version := slices.Index(x.versions[string(c.UID)], c.ResourceVersion) + 1
			s += fmt.Sprintf(" for %s %s %s/%s uid %d version %d", c.APIVersion, c.Kind, c.Namespace, c.Name, uid, version)
		}
	}
	return s
}

func newObject(kind, name string, a args) metav1.Object {
	m := metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: a.pairs("labels"), Finalizers: a.list("finalizers")}
	switch kind {
	case "pod":
		p := &corev1.Pod{ObjectMeta: m, Spec: corev1.PodSpec{SchedulerName: api.SchedulerName, NodeName: a.named["node"],
			Containers: []corev1.Container{{Name: "main", Image: "none"}}}}
		for _, g := range a.list("gates") {
			p.Spec.SchedulingGates = append(p.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: g})
		}
		if _, is := a.named["grace"]; is {
			seconds := a.number("grace")
			p.Spec.TerminationGracePeriodSeconds = &seconds
		}
		return p
	case "group":
		g := &v1beta1.PodGroup{TypeMeta: typeMeta("PodGroup"), ObjectMeta: m}
		g.Spec.Queue, g.Spec.SchedulingPolicy.Gang.MinCount = a.named["queue"], int32(a.number("min"))
		return g
	}
	if kind == "claim" {
		c := &corev1.PersistentVolumeClaim{ObjectMeta: m}
		c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
		c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
		return c
	}
	m.Namespace = ""
	if kind == "volume" {
		v := &corev1.PersistentVolume{ObjectMeta: m}
		v.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
		v.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
		v.Spec.HostPath = &corev1.HostPathVolumeSource{Path: "/none"}
		return v
	}
	q := &v1beta1.Queue{TypeMeta: typeMeta("Queue"), ObjectMeta: m}
	if cpu := a.named["cpu"]; cpu != "" {
		q.Spec.Capability = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
	}
	return q
}

func typeMeta(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: v1beta1.SchemeGroupVersion.String(), Kind: kind}
}

// change makes the object that a user, a kubelet or a controller writes.
func change(o metav1.Object, a args) metav1.Object {
	o = o.(runtime.Object).DeepCopyObject().(metav1.Object)
	if _, is := a.named["labels"]; is {
		o.SetLabels(a.pairs("labels"))
	}
	if _, is := a.named["finalizers"]; is {
		o.SetFinalizers(a.list("finalizers"))
	}
	switch o := o.(type) {
	case *corev1.Pod:
		if phase := a.named["phase"]; phase != "" {
			o.Status.Phase = corev1.PodPhase(phase)
		}
		if _, is := a.named["gates"]; is {
			o.Spec.SchedulingGates = nil
		}
	case *v1beta1.PodGroup:
		if a.named["min"] != "" {
			o.Spec.SchedulingPolicy.Gang.MinCount = int32(a.number("min"))
		}
	case *v1beta1.Queue:
		if cpu := a.named["cpu"]; cpu != "" {
			o.Spec.Capability = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
		}
	}
	return o
}
