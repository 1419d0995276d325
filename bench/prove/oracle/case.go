package main

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	k8slabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	resourcehelper "k8s.io/component-helpers/resource"
	csitranslation "k8s.io/csi-translation-lib"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/core/install"     // defaults of core/v1
	_ "k8s.io/kubernetes/pkg/apis/resource/install" // and of the other groups
	_ "k8s.io/kubernetes/pkg/apis/storage/install"
	"sigs.k8s.io/yaml"

	"basalt.dev/basalt/api"
	volumes "basalt.dev/basalt/api/volume"
)

// Case is a cluster and one pod that waits in it.
type Case struct {
	Pod     *v1.Pod
	Nodes   []*v1.Node
	Pods    []*v1.Pod        // other pods: bound ones, and nominated ones
	Objects []runtime.Object // everything else: volumes, claims, classes, namespaces
}

// clone copies the lists of a case, so that one may drop elements, but not the objects.
func (c *Case) clone() *Case {
	return &Case{Pod: c.Pod, Nodes: slices.Clone(c.Nodes), Pods: slices.Clone(c.Pods), Objects: slices.Clone(c.Objects)}
}

// all returns every object of a case.
func (c *Case) all() []runtime.Object {
	out := []runtime.Object{}
	for _, n := range c.Nodes {
		out = append(out, n)
	}
	out = append(out, c.Objects...)
	for _, p := range c.Pods {
		out = append(out, p)
	}
	return append(out, c.Pod)
}

// complete gives all objects the defaults of the API server: no scheduler sees an object without them.
func (c *Case) complete() *Case {
	for _, o := range c.all() {
		legacyscheme.Scheme.Default(o)
	}
	return c
}

// byRight returns the case with the required anti-affinity of pods as Basalt counts it: in a namespace without the
// right, it is about pods of the namespace alone. This difference to kube-scheduler is on purpose.
func (c *Case) byRight() *Case {
	out, spaces := c.clone(), map[string]map[string]string{}
	for _, o := range c.Objects {
		if n, is := o.(*v1.Namespace); is {
			spaces[n.Name] = n.Labels
		}
	}
	out.Pod = withinRight(c.Pod, spaces[c.Pod.Namespace])
	for i, p := range c.Pods {
		out.Pods[i] = withinRight(p, spaces[p.Namespace])
	}
	return out
}

// withinRight returns a pod of a namespace with some labels.
func withinRight(p *v1.Pod, of map[string]string) *v1.Pod {
	if of[api.LabelRepelsOthers] == "true" || p.Spec.Affinity == nil || p.Spec.Affinity.PodAntiAffinity == nil {
		return p
	}
	out := p.DeepCopy()
	anti := out.Spec.Affinity.PodAntiAffinity
	var terms []v1.PodAffinityTerm
	for _, t := range anti.RequiredDuringSchedulingIgnoredDuringExecution {
		own := len(t.Namespaces) == 0 && t.NamespaceSelector == nil || slices.Contains(t.Namespaces, p.Namespace)
		if s, err := metav1.LabelSelectorAsSelector(t.NamespaceSelector); err != nil || s.Matches(k8slabels.Set(of)) {
			own = true
		}
		t.Namespaces, t.NamespaceSelector = []string{p.Namespace}, nil
		if own {
			terms = append(terms, t)
		}
	}
	anti.RequiredDuringSchedulingIgnoredDuringExecution = terms
	return out
}

// withoutDisks returns the case with a pod that names no disks itself.
func (c *Case) withoutDisks() *Case {
	out := c.clone()
	out.Pod = c.Pod.DeepCopy()
	out.Pod.Spec.Volumes = slices.DeleteFunc(out.Pod.Spec.Volumes, func(v v1.Volume) bool {
		return v.AWSElasticBlockStore != nil || v.GCEPersistentDisk != nil || v.ISCSI != nil || v.RBD != nil
	})
	return out
}

// withoutNominated returns the case without the pods that are nominated to a node.
func (c *Case) withoutNominated() *Case {
	out := c.clone()
	out.Pods = slices.DeleteFunc(out.Pods, func(p *v1.Pod) bool { return p.Spec.NodeName == "" })
	return out
}

// withoutRefused returns the case without the pods on a node that have not started, if all its pods together request more than it has.
func (c *Case) withoutRefused(node string) *Case {
	requested := v1.ResourceList{}
	for _, p := range c.Pods {
		if p.Spec.NodeName == node && p.Status.Phase != v1.PodSucceeded && p.Status.Phase != v1.PodFailed {
			requested = sum(requested, resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{UseStatusResources: true, InPlacePodLevelResourcesVerticalScalingEnabled: true}))
			requested = sum(requested, v1.ResourceList{"pods": quantity("1")})
		}
	}
	for _, n := range c.Nodes {
		if n.Name == node && fits(requested, nil, n.Status.Allocatable) {
			return c
		}
	}
	out := c.clone()
	out.Pods = slices.DeleteFunc(out.Pods, func(p *v1.Pod) bool {
		return p.Spec.NodeName == node && p.Status.Phase != v1.PodRunning && p.Status.StartTime == nil
	})
	return out
}

// sharesVolume reports whether a pod on a node has a volume of the case's pod, by whatever claim, or as a disk of its own.
func (c *Case) sharesVolume(node string) bool {
	own := c.handlesOf(c.Pod)
	return slices.ContainsFunc(c.Pods, func(p *v1.Pod) bool {
		return p.Spec.NodeName == node && slices.ContainsFunc(c.handlesOf(p), func(handle string) bool { return slices.Contains(own, handle) })
	})
}

// handlesOf names the volumes of a pod as their CSI drivers do, those of in-tree kinds included.
func (c *Case) handlesOf(p *v1.Pod) (out []string) {
	for _, claim := range claimsOf(c, p) {
		handle := claim.Namespace + "/" + claim.Name
		for _, o := range c.Objects {
			v, is := o.(*v1.PersistentVolume)
			if !is || v.Name != claim.Spec.VolumeName {
				continue
			}
			if csi, err := translator.TranslateInTreePVToCSI(klog.Logger{}, v); err == nil {
				v = csi
			}
			if v.Spec.CSI != nil {
				handle = v.Spec.CSI.VolumeHandle
			}
		}
		out = append(out, handle)
	}
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		if v.VsphereVolume == nil && translator.IsInlineMigratable(v) { // to translate that one panics
			if csi, err := translator.TranslateInTreeInlineVolumeToCSI(klog.Logger{}, v, p.Namespace); err == nil {
				out = append(out, csi.Spec.CSI.VolumeHandle)
			}
		}
	}
	return out
}

var translator = csitranslation.New()

// attachesInTree reports whether a volume of an in-tree kind is attached to a node.
func (c *Case) attachesInTree(node string) bool {
	return slices.ContainsFunc(c.Objects, func(o runtime.Object) bool {
		a, is := o.(*storagev1.VolumeAttachment)
		return is && a.Spec.NodeName == node && slices.ContainsFunc(c.Objects, func(o runtime.Object) bool {
			v, is := o.(*v1.PersistentVolume)
			return is && v.Name == *a.Spec.Source.PersistentVolumeName && translator.IsPVMigratable(v)
		})
	})
}

func (c *Case) hasCSINode(node string) bool {
	return slices.ContainsFunc(c.Objects, func(o runtime.Object) bool {
		n, is := o.(*storagev1.CSINode)
		return is && n.Name == node
	})
}

// claims returns the claims of a case's pod, each once.
func (c *Case) claims() []*v1.PersistentVolumeClaim { return claimsOf(c, c.Pod) }

func claimsOf(c *Case, p *v1.Pod) (out []*v1.PersistentVolumeClaim) {
	for _, o := range c.Objects {
		pvc, is := o.(*v1.PersistentVolumeClaim)
		if is && pvc.Namespace == p.Namespace && slices.ContainsFunc(p.Spec.Volumes, func(v v1.Volume) bool { return api.ClaimOf(p, &v) == pvc.Name }) {
			out = append(out, pvc)
		}
	}
	return out
}

// selects reports whether a volume is being provisioned on a node for a claim of the pod.
func (c *Case) selects(node string) bool {
	return slices.ContainsFunc(c.claims(), func(p *v1.PersistentVolumeClaim) bool {
		return p.Spec.VolumeName == "" && p.Annotations[selectedNode] == node
	})
}

// offersInTree reports whether there is a volume of an in-tree kind that is not bound, and cannot be used on all nodes that it names.
func (c *Case) offersInTree() bool {
	return slices.ContainsFunc(c.Objects, func(o runtime.Object) bool {
		v, is := o.(*v1.PersistentVolume)
		if !is || v.Status.Phase == v1.VolumeBound {
			return false
		}
		read := volumes.ReadVolume(v)
		return read.Refused != "" || read.Plugin != ""
	})
}

// keeps reports whether a volume is kept for an unbound claim of the pod.
func (c *Case) keeps() bool {
	return slices.ContainsFunc(c.Objects, func(o runtime.Object) bool { return isKept(o, c.claims()) })
}

// isKept reports whether an object is a volume that is kept for one of some claims, which is not bound.
func isKept(o runtime.Object, claims []*v1.PersistentVolumeClaim) bool {
	v, is := o.(*v1.PersistentVolume)
	return is && v.Spec.ClaimRef != nil && slices.ContainsFunc(claims, func(p *v1.PersistentVolumeClaim) bool {
		return p.Spec.VolumeName == "" && v.Spec.ClaimRef.Namespace == p.Namespace && v.Spec.ClaimRef.Name == p.Name
	})
}

// anyKept reports whether several volumes are kept for an unbound claim of the pod, and there is no mismatch if one of them is the only one.
func (c *Case) anyKept(m Mismatch) bool {
	for _, claim := range c.claims() {
		kept := slices.DeleteFunc(slices.Clone(c.Objects), func(o runtime.Object) bool { return !isKept(o, []*v1.PersistentVolumeClaim{claim}) })
		if len(kept) > 1 && slices.ContainsFunc(kept, func(only runtime.Object) bool {
			out := c.clone()
			out.Objects = slices.DeleteFunc(out.Objects, func(o runtime.Object) bool { return o != only && slices.Contains(kept, o) })
			return passes(out, m)
		}) {
			return true
		}
	}
	return false
}

// attachesKept reports whether there is no mismatch without the volumes that are kept for unbound claims of pods on its node.
func (c *Case) attachesKept(m Mismatch) bool {
	without := c.clone()
	for _, p := range c.Pods {
		if cmp.Or(p.Spec.NodeName, p.Status.NominatedNodeName) == m.Node {
			claims := claimsOf(c, p)
			without.Objects = slices.DeleteFunc(without.Objects, func(o runtime.Object) bool { return isKept(o, claims) })
		}
	}
	if len(without.Objects) == len(c.Objects) {
		return false
	}
	if m.Kind == Strict {
		return takes(without, m.Node)
	}
	why := BasaltWhy(without, m.Node)
	a, err := Feasible(without)
	return err == nil && !a.Fits[m.Node] && (strings.Contains(why, a.Why[m.Node].Message) || alsoTrue(without, m.Node, why))
}

// withoutCapacities returns the case with drivers whose capacity is not checked.
func (c *Case) withoutCapacities() *Case {
	out := c.clone()
	for i, o := range out.Objects {
		if d, is := o.(*storagev1.CSIDriver); is {
			d = d.DeepCopy()
			d.Spec.StorageCapacity = nil
			out.Objects[i] = d
		}
	}
	return out
}

// withClaimsOnce returns the case with a pod that names each claim once.
func (c *Case) withClaimsOnce() *Case {
	out := c.clone()
	out.Pod = c.Pod.DeepCopy()
	seen := map[string]bool{}
	out.Pod.Spec.Volumes = slices.DeleteFunc(out.Pod.Spec.Volumes, func(v v1.Volume) bool {
		name := api.ClaimOf(out.Pod, &v)
		again := name != "" && seen[name]
		seen[name] = true
		return again
	})
	return out
}

// overlap reports whether volumes may be usable on one node although their node affinities differ.
func (c *Case) overlap() bool {
	label := ""
	return slices.ContainsFunc(c.Objects, func(o runtime.Object) bool {
		v, is := o.(*v1.PersistentVolume)
		if !is || v.Spec.NodeAffinity == nil || v.Status.Phase != v1.VolumeAvailable {
			return false
		}
		terms := v.Spec.NodeAffinity.Required.NodeSelectorTerms
		if len(terms) != 1 || len(terms[0].MatchExpressions) != 1 || terms[0].MatchExpressions[0].Operator != v1.NodeSelectorOpIn || len(terms[0].MatchExpressions[0].Values) != 1 {
			return true
		}
		differs := label != "" && label != terms[0].MatchExpressions[0].Key
		label = terms[0].MatchExpressions[0].Key
		return differs
	})
}

// together reports whether each claim of the pod that is not bound lets it run on a node, by itself.
func (c *Case) together(m Mismatch) bool {
	late := slices.DeleteFunc(c.claims(), func(p *v1.PersistentVolumeClaim) bool { return p.Spec.VolumeName != "" })
	return len(late) > 1 && !slices.ContainsFunc(late, func(only *v1.PersistentVolumeClaim) bool {
		out := c.clone()
		out.Pod = c.Pod.DeepCopy()
		out.Pod.Spec.Volumes = slices.DeleteFunc(out.Pod.Spec.Volumes, func(v v1.Volume) bool {
			name := api.ClaimOf(out.Pod, &v)
			return name != only.Name && slices.ContainsFunc(late, func(p *v1.PersistentVolumeClaim) bool { return p.Name == name })
		})
		return !passes(out, m)
	})
}

// nodeNames returns the names of the nodes of a case.
func (c *Case) nodeNames() []string {
	var out []string
	for _, n := range c.Nodes {
		out = append(out, n.Name)
	}
	return out
}

// YAML is a case as the API server would show it; the pod that is asked about comes last.
func (c *Case) YAML() string {
	var out bytes.Buffer
	for _, o := range c.all() {
		o = o.DeepCopyObject()
		if kinds, _, err := scheme.Scheme.ObjectKinds(o); err == nil {
			o.GetObjectKind().SetGroupVersionKind(kinds[0])
		}
		tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		if err != nil {
			return fmt.Sprintf("cannot write the case: %v", err)
		}
		trim(tree)
		b, err := yaml.Marshal(tree)
		if err != nil {
			return fmt.Sprintf("cannot write the case: %v", err)
		}
		fmt.Fprintf(&out, "---\n%s", b)
	}
	return out.String()
}

// noise are fields that say nothing about where a pod may go.
var noise = [][]string{
	{"metadata", "creationTimestamp"}, {"metadata", "resourceVersion"}, {"status", "daemonEndpoints"}, {"status", "nodeInfo"}, {"status", "capacity"}, {"status", "loadBalancer"},
	{"spec", "dnsPolicy"}, {"spec", "schedulerName"}, {"spec", "securityContext"}, {"spec", "terminationGracePeriodSeconds"}, {"spec", "enableServiceLinks"}, {"spec", "restartPolicy"},
	{"spec", "preemptionPolicy"},
}

// trim leaves noise out of an object.
func trim(tree map[string]any) {
	for _, path := range noise {
		if tree["kind"] != "PersistentVolume" {
			unstructured.RemoveNestedField(tree, path...)
		}
	}
	for _, list := range []string{"containers", "initContainers"} {
		all, _, _ := unstructured.NestedSlice(tree, "spec", list)
		for _, c := range all {
			c := c.(map[string]any)
			for _, key := range []string{"image", "imagePullPolicy", "terminationMessagePath", "terminationMessagePolicy"} {
				delete(c, key)
			}
			if r, is := c["resources"].(map[string]any); is && len(r) == 0 {
				delete(c, "resources")
			}
		}
		if len(all) > 0 {
			tree["spec"].(map[string]any)[list] = all
		}
	}
	for _, part := range []string{"spec", "status"} {
		if fields, is := tree[part].(map[string]any); is && len(fields) == 0 {
			delete(tree, part)
		}
	}
}
