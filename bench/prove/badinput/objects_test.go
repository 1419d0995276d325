package badinput

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/bench/stage/kubelet"
	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/localtest"
)

const (
	yes = metav1.ConditionTrue
	no  = metav1.ConditionFalse
)

// objects: bad objects beside each other and beside healthy gangs, all at once.
func (w *world) objects(t *testing.T) {
	w.audited(t, func() {
		t.Run("beside each other", func(t *testing.T) {
			for name, test := range map[string]func(*testing.T){
				"a queue without a parent":                 w.noParent,
				"objects in any order":                     w.anyOrder,
				"a name that is no path":                   w.noPath,
				"amounts":                                  w.amounts,
				"a pod of absurd amounts":                  w.absurdPods,
				"guarantees above the parent's":            w.guarantees,
				"a closed queue":                           w.closedQueue,
				"orders that are none":                     w.badOrders,
				"a queue that may not have our finalizer":  w.unprotected,
				"a queue that is not a leaf":               w.notALeaf,
				"minCount":                                 w.minCount,
				"fewer pods than minCount":                 w.fewPods,
				"pods that name different queues":          w.mismatch,
				"a pod larger than any node":               w.largePod,
				"pods for nodes that do not exist yet":     w.scaledToZero,
				"a gang larger than its queue":             w.largeGang,
				"a group of another namespace":             w.otherNamespace,
				"a queue deleted while it holds something": w.deletedQueue,
				"constraints that are not supported":       w.unsupported,
				"constraints that nothing meets":           w.unmet,
				"host ports":                               w.hostPorts,
				"gated pods":                               w.gated,
				"a namespace relabelled into a selector":   w.relabelled,
			} {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					test(t)
					w.healthy(t)
				})
			}
		})
		t.Run("a node of absurd amounts", w.absurdNode) // which stays, and would be in what others are told of the nodes
	})
}

func (w *world) noParent(t *testing.T) {
	ns := w.namespace(t)
	w.queue(t, "orphan.child.leaf", v1beta1.QueueSpec{})
	w.group(t, ns, "g", "orphan.child.leaf", 1)
	w.pod(t, ns, "p", inGroup("g"))
	w.noQuota(t, ns, "g", v1beta1.ReasonParentNotFound, `"orphan.child"`, "does not exist")
	w.queueSays(t, "orphan.child.leaf", no, v1beta1.ReasonParentMissing, `"orphan.child"`, "does not exist")
	line := lineWith(w.status(t, ns+"/g"), ns+"/g")
	if err := contains(line, []string{"orphan.child.leaf", "1/1", "ParentNotFound", `"orphan.child"`}); err != nil {
		t.Error("basalt status: ", err)
	}
	w.queue(t, "orphan.child", v1beta1.QueueSpec{})
	w.noQuota(t, ns, "g", v1beta1.ReasonParentNotFound, `"orphan"`, "does not exist")
	w.queueSays(t, "orphan.child.leaf", no, v1beta1.ReasonParentMissing, `"orphan"`)
	w.unbound(t, ns, "p")
	w.queue(t, "orphan", v1beta1.QueueSpec{})
	w.bound(t, ns, "p")
	w.queueSays(t, "orphan.child.leaf", yes, v1beta1.ReasonReady)
}

func lineWith(text, word string) string {
	for line := range strings.Lines(text) {
		if strings.Contains(line, word) {
			return line
		}
	}
	return "no line with " + word + " in:\n" + text
}

// anyOrder applies a tree, a group and its pods in every order.
func (w *world) anyOrder(t *testing.T) {
	ns := w.namespace(t)
	steps := []string{"parent", "leaf", "group", "pod"}
	var try func(order []string)
	n := 0
	try = func(order []string) {
		if len(order) < len(steps) {
			for _, s := range steps {
				if !slices.Contains(order, s) {
					try(append(slices.Clone(order), s))
				}
			}
			return
		}
		n++
		parent, name := fmt.Sprintf("order-%d", n), fmt.Sprintf("g-%d", n)
		for _, s := range order {
			switch s {
			case "parent":
				w.queue(t, parent, v1beta1.QueueSpec{})
			case "leaf":
				w.queue(t, parent+".leaf", v1beta1.QueueSpec{})
			case "group":
				w.group(t, ns, name, parent+".leaf", 1)
			case "pod":
				w.pod(t, ns, name, inGroup(name), asks("cpu", "10m"))
			}
		}
	}
	try(nil)
	for i := range n {
		w.bound(t, ns, fmt.Sprintf("g-%d", i+1))
	}
}

func (w *world) createQueue(t *testing.T, name, spec string) error {
	return w.kube.Basalt.Post().Resource("queues").SetHeader("Content-Type", "application/json").
		Body([]byte(fmt.Sprintf(`{"apiVersion":"scheduling.basalt.dev/v1beta1","kind":"Queue","metadata":{"name":%q},"spec":%s}`, name, spec))).Do(t.Context()).Error()
}

func (w *world) createGroup(t *testing.T, ns, name, spec string) error {
	return w.kube.Basalt.Post().Namespace(ns).Resource("podgroups").SetHeader("Content-Type", "application/json").
		Body([]byte(fmt.Sprintf(`{"apiVersion":"scheduling.basalt.dev/v1beta1","kind":"PodGroup","metadata":{"name":%q},"spec":%s}`, name, spec))).Do(t.Context()).Error()
}

func (w *world) noPath(t *testing.T) {
	ns := w.namespace(t)
	for name, says := range map[string]string{
		"Team_A": "metadata.name", "a..b": "metadata.name", "root.a": "omit the leading 'root.'",
		"a.b.c.d.e.f.g.h.i": "at most 8 levels", strings.Repeat("a", 64): "at most 63 characters",
	} {
		refused(t, w.createQueue(t, name, `{}`), "metadata.name", says)
	}
	refused(t, w.createGroup(t, ns, "g", `{"queue":"Team_A","schedulingPolicy":{"gang":{"minCount":1}}}`), "spec.queue", "must be the path of a queue")
	// A label takes what no queue can be called.
	w.pod(t, ns, "p", label(api.LabelQueue, "Team_A"))
	w.group(t, ns, "g", "", 1)
	w.pod(t, ns, "q", inGroup("g"), label(api.LabelQueue, "root.a"))
	w.noQuota(t, ns, "g", v1beta1.ReasonQueueNotFound, `"root.a"`, "children of root")
	w.podSays(t, ns, "p", "QuotaExceeded", `"Team_A"`)
}

func (w *world) amounts(t *testing.T) {
	for spec, says := range map[string][]string{
		`{"capability":{"cpu":"-1"}}`:                            {"spec.capability", "cpu: -1", "is negative"},
		`{"capability":{"cpu":"9E"}}`:                            {"spec.capability", "cpu: 9E", "is above what is accepted"},
		`{"capability":{"cpu":"1e400"}}`:                         {"spec.capability", "cpu: 1e400", "is no amount"},
		`{"guarantee":{"cpu":"1e300000000"}}`:                    {"spec.guarantee", "cpu: 1e300000000", "is no amount"},
		`{"capability":{"example.com/gpu":"0.5"}}`:               {"spec.capability", "example.com/gpu: 0.5", "is not a whole number"},
		`{"capability":{"cpu":"1"},"guarantee":{"cpu":"1001m"}}`: {"spec.guarantee", "cpu: 1001m", "is above spec.capability"},
	} {
		refused(t, w.createQueue(t, "amounts", spec), says...)
	}
	ns := w.namespace(t)
	for request, says := range map[string]string{"-1": "requests", "0.5": "must be an integer"} {
		refused(t, w.createPod(t.Context(), ns, "p", asks("example.com/gpu", request)), "example.com/gpu", says)
	}
}

// absurdPods asks for amounts that the API server accepts.
func (w *world) absurdPods(t *testing.T) {
	ns := w.namespace(t)
	w.group(t, ns, "g", "", 2)
	w.pod(t, ns, "fine", inGroup("g"))
	w.pod(t, ns, "absurd", inGroup("g"), asks("cpu", "9E"))
	w.pod(t, ns, "vast", asks("memory", "1e400"))
	w.pod(t, ns, "device", asks("example.com/gpu", "9E"))
	w.noQuota(t, ns, "g", v1beta1.ReasonNeverFits, "absurd", "spec.containers[0].resources.requests", "cpu: 9E")
	w.podSays(t, ns, "absurd", "NeverFits", "spec.containers[0].resources.requests", "cpu: 9E")
	w.podSays(t, ns, "vast", "NeverFits", "spec.containers[0].resources.requests", "memory: about 1e399")
	w.podSays(t, ns, "device", "NeverFits", "spec.containers[0].resources.requests", "example.com/gpu: 9E")
	w.unbound(t, ns, "fine")
	w.pod(t, ns, "second", inGroup("g"))
	w.bound(t, ns, "fine", "second")
	w.unbound(t, ns, "absurd")
}

// absurdNode says that it has amounts which no machine has: it takes nothing, and says why.
func (w *world) absurdNode(t *testing.T) {
	ns := w.namespace(t)
	n := kubelet.Node("absurd", "1", "1Gi", 10)
	n.Status.Allocatable["cpu"] = resource.MustParse("9E")
	if _, err := w.kube.Core.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	there := func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "absurd"} }
	w.pod(t, ns, "p", there)
	w.podSays(t, ns, "p", "Unschedulable", "Insufficient cpu")
	w.eventOn(t, "Node", "absurd", "cpu: 9E")
	patch := []byte(`{"status":{"allocatable":{"cpu":"1"}}}`)
	if _, err := w.kube.Core.CoreV1().Nodes().Patch(t.Context(), "absurd", types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	w.bound(t, ns, "p")
}

// eventOn waits for an event about an object.
func (w *world) eventOn(t *testing.T, kind, name string, words ...string) {
	t.Helper()
	wait(t, "an event on "+kind+" "+name, func(ctx context.Context) error {
		events, err := w.kube.Core.EventsV1().Events("").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		var notes []string
		for _, e := range events.Items {
			if e.Regarding.Kind == kind && e.Regarding.Name == name {
				if contains(e.Note, words) == nil {
					return nil
				}
				notes = append(notes, e.Reason+": "+e.Note)
			}
		}
		return fmt.Errorf("events: %q", notes)
	})
}

func (w *world) guarantees(t *testing.T) {
	w.queue(t, "kept", v1beta1.QueueSpec{Capability: list("cpu", "4")})
	w.queue(t, "kept.a", v1beta1.QueueSpec{Guarantee: list("cpu", "3")})
	w.queue(t, "kept.b", v1beta1.QueueSpec{Guarantee: list("cpu", "3", "memory", "1Gi")})
	w.queueSays(t, "kept.a", yes, v1beta1.ReasonGuaranteeCut, "cpu", "only 2 of 3 is in force")
	w.queueSays(t, "kept.b", yes, v1beta1.ReasonGuaranteeCut, "cpu", "only 2 of 3 is in force")
	q := v1beta1.Queue{}
	if err := w.kube.Basalt.Get().Resource("queues").Name("kept.a").Do(t.Context()).Into(&q); err != nil || q.Status.Limits.Guarantee.Cpu().String() != "2" {
		t.Errorf("limits in force: %v, %v", q.Status, err)
	}
	w.queue(t, "unkept", v1beta1.QueueSpec{Guarantee: list("example.com/gpu", "3")})
	w.queueSays(t, "unkept", yes, v1beta1.ReasonGuaranteeCut, "example.com/gpu", "has no effect")
	// What is cut still holds: a gang of the one cannot take what is kept for the other.
	ns := w.namespace(t)
	w.group(t, ns, "g", "kept.a", 1)
	w.pod(t, ns, "p", inGroup("g"), asks("cpu", "3"))
	w.noQuota(t, ns, "g", v1beta1.ReasonQuotaExceeded, `"kept"`, "cpu", "guarantees")
	w.patchQueue(t, "kept", `{"spec":{"capability":{"cpu":"6"}}}`)
	w.bound(t, ns, "p")
	w.queueSays(t, "kept.a", yes, v1beta1.ReasonReady)
}

func (w *world) closedQueue(t *testing.T) {
	ns := w.namespace(t)
	w.queue(t, "shut", v1beta1.QueueSpec{Closed: true})
	w.queue(t, "shut.leaf", v1beta1.QueueSpec{})
	w.queueSays(t, "shut", no, v1beta1.ReasonClosed, `"shut"`, "closed")
	w.queueSays(t, "shut.leaf", no, v1beta1.ReasonParentClosed, `"shut"`, "closed")
	w.group(t, ns, "g", "shut.leaf", 1)
	w.pod(t, ns, "p", inGroup("g"))
	w.noQuota(t, ns, "g", v1beta1.ReasonQueueClosed, `"shut"`, "closed")
	w.podSays(t, ns, "p", "QuotaExceeded", `"shut"`, "closed")
	// Who made the pod looks at what made it.
	w.pod(t, ns, "q", label(api.LabelQueue, "shut.leaf"), func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{
			{APIVersion: "batch/v1", Kind: "Job", Name: ns + "-job", UID: "of-a-job", Controller: new(true)}}
	})
	w.eventOn(t, "Job", ns+"-job", "pod q: queue", `"shut"`, "closed")
	w.patchQueue(t, "shut", `{"spec":{"closed":false}}`)
	w.bound(t, ns, "p", "q")
}

// unprotected: somebody's admission policy refuses the finalizer without which nothing is admitted.
func (w *world) unprotected(t *testing.T) {
	ctx := t.Context()
	client, err := kubernetes.NewForConfig(w.cluster.Config(local.Admin))
	if err != nil {
		t.Fatal(err)
	}
	policies := client.AdmissionregistrationV1()
	meta := metav1.ObjectMeta{Name: "no-finalizers"}
	if _, err := policies.ValidatingAdmissionPolicies().Create(ctx, &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: meta,
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionregistrationv1.RuleWithOperations{Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Update},
					Rule: admissionregistrationv1.Rule{APIGroups: []string{v1beta1.SchemeGroupVersion.Group}, APIVersions: []string{"*"}, Resources: []string{"queues"}}}}}},
			Validations: []admissionregistrationv1.Validation{{Expression: "!object.metadata.name.startsWith('bare') || !has(object.metadata.finalizers)"}},
		}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := policies.ValidatingAdmissionPolicyBindings().Create(ctx, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: meta,
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: meta.Name,
			ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.queue(t, "bare-probe", v1beta1.QueueSpec{})
	wait(t, "the policy", func(ctx context.Context) error { // the API server hears of it a little later
		err := w.kube.Basalt.Patch(types.MergePatchType).Resource("queues").Name("bare-probe").
			Body([]byte(`{"metadata":{"finalizers":["example.com/mine"]}}`)).VersionedParams(&metav1.PatchOptions{DryRun: []string{"All"}}, metav1.ParameterCodec).Do(ctx).Error()
		if !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) {
			return fmt.Errorf("the policy lets a finalizer pass: %v", err)
		}
		return nil
	})
	ns := w.namespace(t)
	w.queue(t, "bare", v1beta1.QueueSpec{})
	w.group(t, ns, "g", "bare", 1)
	w.pod(t, ns, "p", inGroup("g"))
	w.queueSays(t, "bare", no, v1beta1.ReasonUnprotected, `"bare"`, v1beta1.FinalizerCharged)
	w.noQuota(t, ns, "g", v1beta1.ReasonQueueClosed, `"bare"`, v1beta1.FinalizerCharged)
	w.unbound(t, ns, "p")
	if err := policies.ValidatingAdmissionPolicyBindings().Delete(ctx, meta.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.bound(t, ns, "p")
	w.queueSays(t, "bare", yes, v1beta1.ReasonReady)
}

func (w *world) notALeaf(t *testing.T) {
	ns := w.namespace(t)
	w.queue(t, "branch", v1beta1.QueueSpec{})
	w.group(t, ns, "before", "branch", 1)
	w.pod(t, ns, "before", inGroup("before"))
	w.bound(t, ns, "before")
	w.queue(t, "branch.leaf", v1beta1.QueueSpec{})
	w.queueSays(t, "branch.leaf", yes, v1beta1.ReasonReady)
	w.group(t, ns, "after", "branch", 1)
	w.pod(t, ns, "after", inGroup("after"))
	w.noQuota(t, ns, "after", v1beta1.ReasonQueueNotLeaf, `"branch"`, "leaf queues")
	w.group(t, ns, "root", "root", 1)
	w.pod(t, ns, "root", inGroup("root"))
	w.noQuota(t, ns, "root", v1beta1.ReasonQueueNotLeaf, `"root"`)
	w.bound(t, ns, "before") // keeps what it holds
	w.deleteQueue(t, "branch.leaf")
	w.bound(t, ns, "after")
}

func (w *world) minCount(t *testing.T) {
	ns := w.namespace(t)
	for n, says := range map[int]string{0: "greater than or equal to 1", 1_000_000: "less than or equal to 100000", -1: "greater than or equal to 1"} {
		refused(t, w.createGroup(t, ns, "g", fmt.Sprintf(`{"schedulingPolicy":{"gang":{"minCount":%d}}}`, n)), "spec.schedulingPolicy.gang.minCount", says)
	}
	w.group(t, ns, "g", "", 100_000)
	w.pod(t, ns, "p", inGroup("g"))
	w.noQuota(t, ns, "g", v1beta1.ReasonNotEnoughPods, "1 of the 100000 pods")
}

func (w *world) fewPods(t *testing.T) {
	ns := w.namespace(t)
	w.group(t, ns, "g", "", 3)
	w.pod(t, ns, "a", inGroup("g"))
	w.pod(t, ns, "b", inGroup("g"))
	w.noQuota(t, ns, "g", v1beta1.ReasonNotEnoughPods, "2 of the 3 pods",
		"only 2 pods name the PodGroup (label scheduling.basalt.dev/pod-group)")
	w.groupSays(
		t, ns, "g", v1beta1.ConditionPodGroupInitiallyScheduled, no, v1beta1.ReasonNotEnoughPods, "2 of the 3 pods")
	w.podSays(t, ns, "a", "NotEnoughPods", "2 of the 3 pods")
	w.podSays(t, ns, "b", "NotEnoughPods", "2 of the 3 pods")
	line := lineWith(w.status(t, "--gangs=1000"), ns+"/g") // many others wait beside it
	if err := contains(line, []string{"default", "2/3", "NotEnoughPods", "2 of the 3 pods"}); err != nil {
		t.Error("basalt status: ", err)
	}
	w.pod(t, ns, "c", inGroup("g"))
	w.bound(t, ns, "a", "b", "c")
	w.groupSays(t, ns, "g", v1beta1.ConditionPodGroupInitiallyScheduled, yes, v1beta1.ReasonScheduled)
}

func (w *world) mismatch(t *testing.T) {
	ns := w.namespace(t)
	for _, name := range []string{"mismatch-a", "mismatch-b"} {
		w.queue(t, name, v1beta1.QueueSpec{})
	}
	w.group(t, ns, "named", "mismatch-a", 2)
	w.pod(t, ns, "named-1", inGroup("named"))
	w.pod(t, ns, "named-2", inGroup("named"), label(api.LabelQueue, "mismatch-b"))
	w.noQuota(t, ns, "named", v1beta1.ReasonQueueMismatch, ns+"/named-2", "mismatch-a", "mismatch-b")
	w.group(t, ns, "unnamed", "", 2)
	w.pod(t, ns, "unnamed-1", inGroup("unnamed"), label(api.LabelQueue, "mismatch-a"))
	w.pod(t, ns, "unnamed-2", inGroup("unnamed"), label(api.LabelQueue, "mismatch-b"))
	w.noQuota(t, ns, "unnamed", v1beta1.ReasonQueueMismatch, ns+"/unnamed-1", ns+"/unnamed-2", "mismatch-a", "mismatch-b")
	w.podSays(t, ns, "unnamed-1", v1beta1.ReasonQuotaExceeded, "mismatch-a", "mismatch-b")
	w.unbound(t, ns, "named-1", "named-2", "unnamed-1", "unnamed-2")
	patch := mustJSON(map[string]any{"metadata": map[string]any{"labels": map[string]string{api.LabelQueue: "mismatch-a"}}})
	for _, name := range []string{"named-2", "unnamed-2"} {
		if _, err := w.kube.Core.CoreV1().Pods(ns).Patch(t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	w.bound(t, ns, "named-1", "named-2", "unnamed-1", "unnamed-2")
}

func (w *world) largePod(t *testing.T) {
	ns := w.namespace(t)
	w.group(t, ns, "g", "", 1)
	w.pod(t, ns, "p", inGroup("g"), asks("example.com/large", "2"))
	w.noQuota(t, ns, "g", v1beta1.ReasonNoNodeFits, ns+"/p", "example.com/large=2", "the largest node has 0")
	w.groupSays(t, ns, "g", v1beta1.ConditionPodGroupInitiallyScheduled, no, v1beta1.ReasonNoNodeFits)
	w.podSays(t, ns, "p", "Unschedulable", "example.com/large=2")
	w.pod(t, ns, "cores", asks("cpu", "1000"))
	w.podSays(t, ns, "cores", "Unschedulable", "cpu=1000")
	// Not tried until nodes change; then it is.
	patch := []byte(`{"status":{"capacity":{"example.com/large":"2"},"allocatable":{"example.com/large":"2"}}}`)
	if _, err := w.kube.Core.CoreV1().Nodes().Patch(t.Context(), "node-0", types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	w.bound(t, ns, "p")
}

// scaledToZero has pods wait for nodes that do not exist yet. No more of them say so than quota admits together: an autoscaler buys a node for each. What
// fits beside them is not kept waiting.
func (w *world) scaledToZero(t *testing.T) {
	ns := w.namespace(t)
	w.queue(t, "scaled", v1beta1.QueueSpec{Capability: list("cpu", "2")})
	pool := func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"example.com/pool": "empty"} }
	for i := range 4 {
		w.pod(t, ns, fmt.Sprint("scaled-", i), label(api.LabelQueue, "scaled"), asks("cpu", "1"), pool)
	}
	say := func(want map[string]int) {
		t.Helper()
		wait(t, fmt.Sprintf("pods to say %v", want), func(ctx context.Context) error {
			list, err := w.kube.Core.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			says, words := map[string]int{}, ""
			for _, p := range list.Items {
				for _, c := range p.Status.Conditions {
					if c.Type == corev1.PodScheduled {
						says[c.Reason]++
						words += "\n" + p.Name + ": " + c.Message
					}
				}
			}
			if !maps.Equal(says, want) {
				return fmt.Errorf("they say %v%s", says, words)
			}
			return nil
		})
	}
	say(map[string]int{corev1.PodReasonUnschedulable: 2, v1beta1.ReasonQuotaExceeded: 2})
	w.pod(t, ns, "plain", label(api.LabelQueue, "scaled"), asks("cpu", "2"))
	w.bound(t, ns, "plain")
	say(map[string]int{"": 1, v1beta1.ReasonQuotaExceeded: 4})
	w.deletePods(t, ns, "plain")
	say(map[string]int{corev1.PodReasonUnschedulable: 2, v1beta1.ReasonQuotaExceeded: 2})
}

func (w *world) largeGang(t *testing.T) {
	ns := w.namespace(t)
	w.queue(t, "narrow", v1beta1.QueueSpec{Capability: list("cpu", "1")})
	w.queue(t, "narrow.leaf", v1beta1.QueueSpec{})
	w.group(t, ns, "g", "narrow.leaf", 2)
	for _, name := range []string{"a", "b"} {
		w.pod(t, ns, name, inGroup("g"), asks("cpu", "600m"))
	}
	w.noQuota(t, ns, "g", v1beta1.ReasonNeverFits, `"narrow"`, "cpu", "1200m", "capability 1")
	w.podSays(t, ns, "a", "NeverFits", `"narrow"`, "1200m")
	w.patchQueue(t, "narrow", `{"spec":{"capability":{"cpu":"2"}}}`)
	w.bound(t, ns, "a", "b")
}

func (w *world) otherNamespace(t *testing.T) {
	here, there := w.namespace(t), w.namespace(t)
	w.group(t, there, "g", "", 2)
	w.pod(t, there, "own", inGroup("g"))
	w.pod(t, here, "stranger", inGroup("g"))
	w.noQuota(t, there, "g", v1beta1.ReasonNotEnoughPods, "1 of the 2 pods")
	w.podSays(t, here, "stranger", "PodGroupNotFound", "PodGroup "+here+"/g does not exist", api.LabelPodGroup)
	w.unbound(t, there, "own")
	w.pod(t, there, "second", inGroup("g"))
	w.bound(t, there, "own", "second")
	w.unbound(t, here, "stranger")
	w.group(t, here, "g", "", 1)
	w.bound(t, here, "stranger")
}

func (w *world) deletedQueue(t *testing.T) {
	ns := w.namespace(t)
	w.queue(t, "leaving", v1beta1.QueueSpec{Capability: list("cpu", "1")})
	w.group(t, ns, "g", "leaving", 1)
	w.pod(t, ns, "p", inGroup("g"))
	w.bound(t, ns, "p")
	w.deleteQueue(t, "leaving")
	w.queueSays(t, "leaving", no, v1beta1.ReasonDeleting, "1 gang")
	w.group(t, ns, "late", "leaving", 1)
	w.pod(t, ns, "late", inGroup("late"))
	w.noQuota(t, ns, "late", v1beta1.ReasonQueueClosed, `"leaving"`, "deleted")
	q := v1beta1.Queue{}
	if err := w.kube.Basalt.Get().Resource("queues").Name("leaving").Do(t.Context()).Into(&q); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(q.Finalizers, v1beta1.FinalizerCharged) || q.Status.Limits.Capability.Cpu().String() != "1" || q.Status.Charged.Cpu().String() != "100m" {
		t.Errorf("finalizers %v, limits %v, charged %v", q.Finalizers, q.Status.Limits, q.Status.Charged)
	}
	if err := contains(lineWith(w.status(t, "--queue=leaving"), "leaving"), []string{"100m/1", "Deleting"}); err != nil {
		t.Error("basalt status: ", err)
	}
	w.unbound(t, ns, "late")
	w.deletePods(t, ns, "p")
	wait(t, "the queue to go", func(ctx context.Context) error {
		err := w.kube.Basalt.Get().Resource("queues").Name("leaving").Do(ctx).Into(&q)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, fmt.Errorf("still there: %+v", q.Status))
	})
	w.noQuota(t, ns, "late", v1beta1.ReasonQueueNotFound, `"leaving"`)
	w.queue(t, "leaving", v1beta1.QueueSpec{}) // and a new one of that name begins from nothing
	w.bound(t, ns, "late")
}

func (w *world) unsupported(t *testing.T) {
	ns := w.namespace(t)
	volume := func(source corev1.VolumeSource) edit {
		return func(p *corev1.Pod) { p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: source}} }
	}
	claim := func(name string) edit {
		return volume(corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}})
	}
	size := corev1.VolumeResourceRequirements{Requests: list("storage", "1Gi")}
	mode := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	newClaim := func(name, volume string, modes ...corev1.PersistentVolumeAccessMode) {
		t.Helper()
		class := ""
		if len(modes) == 0 {
			modes = mode
		}
		c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if volume != "" { // as the volume controller marks it
			c.Annotations = map[string]string{"pv.kubernetes.io/bind-completed": "yes"}
		}
		c.Spec = corev1.PersistentVolumeClaimSpec{VolumeName: volume, AccessModes: modes, Resources: size, StorageClassName: &class}
		if _, err := w.kube.Core.CoreV1().PersistentVolumeClaims(ns).Create(t.Context(), c, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	newVolume := func(name string, source corev1.PersistentVolumeSource, affinity *corev1.VolumeNodeAffinity) {
		t.Helper()
		v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{
			Capacity: list("storage", "1Gi"), AccessModes: mode, NodeAffinity: affinity, PersistentVolumeSource: source,
		}}
		if _, err := w.kube.Core.CoreV1().PersistentVolumes().Create(t.Context(), v, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	nfs := corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "nowhere", Path: "/"}}
	csi := corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "needed.example.com", VolumeHandle: "h"}}
	needed := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "needed.example.com"}, Spec: storagev1.CSIDriverSpec{PreventPodSchedulingIfMissing: new(true)}}
	if _, err := w.kube.Core.StorageV1().CSIDrivers().Create(t.Context(), needed, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	late := storagev1.VolumeBindingWaitForFirstConsumer
	if _, err := w.kube.Core.StorageV1().StorageClasses().Create(t.Context(), &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "late"}, Provisioner: "none",
		VolumeBindingMode: &late}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.kube.Core.ResourceV1().DeviceClasses().Create(t.Context(), &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "devices"},
		Spec: resourcev1.DeviceClassSpec{ExtendedResourceName: new("example.com/device")}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	newVolume("local", nfs, &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{"node-1"}}}}}}})
	newVolume("one", nfs, nil)
	newVolume("needing", csi, nil)
	newClaim("local", "local")
	newClaim("one", "one", corev1.ReadWriteOncePod)
	newClaim("needing", "needing")
	newClaim("pending", "")

	pods := map[string]struct {
		edit  edit
		field string
	}{
		"device-claim": {func(p *corev1.Pod) {
			p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: new("gpu")}}
		}, "spec.resourceClaims"},
		"volcano-group": {func(p *corev1.Pod) { p.Annotations = map[string]string{"scheduling.k8s.io/group-name": "job-1"} },
			`metadata.annotations[scheduling.k8s.io/group-name] names the Volcano PodGroup "job-1"`},
		"kueue-group": {label("kueue.x-k8s.io/pod-group-name", "set"),
			`metadata.labels[kueue.x-k8s.io/pod-group-name] names the Kueue pod group "set"`},
		"two-groups": {func(p *corev1.Pod) {
			inGroup("two-groups")(p)
			p.Annotations = map[string]string{"scheduling.k8s.io/group-name": "job-1"}
		}, `metadata.annotations[scheduling.k8s.io/group-name] names the Volcano PodGroup "job-1": a pod belongs to one group`},
		"no-claim":      {claim("missing"), "spec.volumes[0].persistentVolumeClaim (claim missing): the claim does not exist"},
		"unbound-claim": {claim("pending"), "spec.volumes[0].persistentVolumeClaim (claim pending): the claim is not bound, and names no StorageClass"},
		"disk":          {volume(corev1.VolumeSource{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: "aws://zone"}}), "spec.volumes[0].awsElasticBlockStore.volumeID: it cannot be translated"},
		"device": {func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests, p.Spec.Containers[0].Resources.Limits = list("example.com/device", "1"), list("example.com/device", "1")
		}, "spec.containers[*].resources.requests: example.com/device is offered by DeviceClass devices"},
		"ephemeral": {volume(corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{
			Spec: corev1.PersistentVolumeClaimSpec{AccessModes: mode, Resources: size, StorageClassName: new("late")}}}}), "spec.volumes[0].ephemeral (claim ephemeral-data): the claim is not "},
	}
	if localtest.Lacks("1.36") { // before, an API server does not keep extendedResourceName of a DeviceClass
		delete(pods, "device")
	}
	w.group(t, ns, "two-groups", "", 1)
	for name, row := range pods {
		w.pod(t, ns, name, row.edit)
	}
	if !localtest.Lacks("1.37") { // whose predecessors do not keep preventPodSchedulingIfMissing
		w.pod(t, ns, "needing", claim("needing"))
		w.podSays(t, ns, "needing", "Unschedulable", "needed.example.com CSI driver is not installed on the node")
		w.unbound(t, ns, "needing")
	}
	// In a gang, the gang waits with it, and says which pod it is.
	w.group(t, ns, "g", "", 2)
	w.pod(t, ns, "g-fine", inGroup("g"))
	w.pod(t, ns, "g-bad", inGroup("g"), pods["device-claim"].edit)
	for name, row := range pods {
		w.podSays(t, ns, name, "UnsupportedConstraint", row.field)
	}
	w.noQuota(t, ns, "g", v1beta1.ReasonUnsupportedConstraint, ns+"/g-bad", "spec.resourceClaims")
	w.podSays(t, ns, "g-bad", "UnsupportedConstraint", "spec.resourceClaims")
	w.healthy(t)
	w.unbound(t, ns, "g-fine")
	// A claim that is bound lets its pod go: to the nodes that its volume allows.
	newVolume("nfs", nfs, nil)
	newClaim("missing", "nfs")
	w.bound(t, ns, "no-claim")
	for i := range 3 {
		name := fmt.Sprint("local-", i)
		w.pod(t, ns, name, claim("local"))
		w.bound(t, ns, name)
		if p, err := w.kube.Core.CoreV1().Pods(ns).Get(t.Context(), name, metav1.GetOptions{}); err != nil || p.Spec.NodeName != "node-1" {
			t.Errorf("%v: pod %s is on node %s, its volume on node-1", err, name, p.Spec.NodeName)
		}
	}
	// One pod at a time has a claim that is for one.
	w.pod(t, ns, "one-1", claim("one"))
	w.bound(t, ns, "one-1")
	w.pod(t, ns, "one-2", claim("one"))
	w.podSays(t, ns, "one-2", "UnsupportedConstraint", "spec.volumes[0].persistentVolumeClaim (claim one): the claim is ReadWriteOncePod, and pod one-1 uses it")
	w.deletePods(t, ns, "one-1")
	w.bound(t, ns, "one-2")
	for name := range pods {
		if name != "no-claim" {
			w.unbound(t, ns, name)
		}
	}
}

func (w *world) hostPorts(t *testing.T) {
	ns := w.namespace(t)
	wants := func(ip string) edit {
		return func(p *corev1.Pod) {
			p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "node-1"}
			p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 8080, HostPort: 8080, HostIP: ip}}
		}
	}
	w.pod(t, ns, "first", wants(""))
	w.bound(t, ns, "first")
	w.pod(t, ns, "second", wants("10.0.0.1"))
	w.podSays(t, ns, "second", "Unschedulable", "port")
	w.deletePods(t, ns, "first")
	w.bound(t, ns, "second")
}

// unmet has pods wait for what no node offers, and for other pods: each is told which of its constraints that is, and ConstraintUnmet where no
// new node would help.
func (w *world) unmet(t *testing.T) {
	ns := w.namespace(t)
	const rack = "example.com/rack" // which no node has
	near := func(app, key string) edit {
		return func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
				{TopologyKey: key, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}}}}}
		}
	}
	only := func(r corev1.NodeSelectorRequirement) edit {
		return func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{r}}}}}}
		}
	}
	on := func(node string) edit {
		return func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node} }
	}
	says := map[string]struct {
		edits  []edit
		reason string
		words  []string
	}{
		"no-such-pod": {[]edit{near("nobody", corev1.LabelHostname)}, v1beta1.ReasonConstraintUnmet,
			[]string{"didn't match pod affinity rules; podAffinity: pods with app=nobody by kubernetes.io/hostname", "a new node alone would not help"}},
		"own-rack": {[]edit{label("app", "own"), near("own", rack)}, "Unschedulable",
			[]string{"no node has the label example.com/rack of spec.affinity.podAffinity of pod"}},
		"over-racks": {[]edit{label("app", "over"), func(p *corev1.Pod) {
			p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: rack, WhenUnsatisfiable: corev1.DoNotSchedule,
				LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "over"}}}}
		}}, "Unschedulable", []string{"no node that pod", "may use has the label example.com/rack of its spec.topologySpreadConstraints"}},
		"contradiction": {[]edit{on("node-1"), only(corev1.NodeSelectorRequirement{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpNotIn, Values: []string{"node-1"}})}, "Unschedulable",
			[]string{"didn't match Pod's node affinity/selector; nodeSelector: kubernetes.io/hostname=node-1; nodeAffinity: kubernetes.io/hostname notin (node-1)"}},
		"no-number": {[]edit{only(corev1.NodeSelectorRequirement{Key: "example.com/cores", Operator: corev1.NodeSelectorOpGt, Values: []string{"many"}})}, "Unschedulable",
			[]string{`nodeAffinity: example.com/cores Gt ["many"], which cannot be read`}},
	}
	for name, c := range says {
		w.pod(t, ns, name, c.edits...)
	}
	w.pod(t, ns, "anywhere", label("app", "any"), func(p *corev1.Pod) { // a node without the label is in no domain
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
			{TopologyKey: rack, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "any"}}}}}}
	})
	w.bound(t, ns, "anywhere")
	for name, c := range says {
		w.podSays(t, ns, name, c.reason, c.words...)
	}
	w.pod(t, ns, "somebody", label("app", "nobody"))
	w.bound(t, ns, "somebody", "no-such-pod")
}

func (w *world) gated(t *testing.T) {
	ns := w.namespace(t)
	gate := func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/later"}} }
	w.group(t, ns, "g", "", 2)
	w.pod(t, ns, "open", inGroup("g"))
	w.pod(t, ns, "gated", inGroup("g"), gate)
	w.pod(t, ns, "alone", gate)
	w.noQuota(t, ns, "g", v1beta1.ReasonNotEnoughPods, "1 of the 2 pods", "1 more has scheduling gates")
	w.healthy(t)
	w.unbound(t, ns, "open", "gated", "alone")
	for _, name := range []string{"gated", "alone"} {
		if _, err := w.kube.Core.CoreV1().Pods(ns).Patch(t.Context(), name, types.JSONPatchType, []byte(`[{"op":"remove","path":"/spec/schedulingGates"}]`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	w.bound(t, ns, "open", "gated", "alone")
}

// relabelled labels a namespace so that a queue's selector matches it, and then not any more: what runs stays, and nothing further is admitted.
func (w *world) relabelled(t *testing.T) {
	ns := w.namespace(t)
	w.queue(t, "for-some", v1beta1.QueueSpec{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "some"}}})
	w.group(t, ns, "g", "for-some", 2)
	w.pod(t, ns, "a", inGroup("g"))
	w.pod(t, ns, "b", inGroup("g"))
	says := fmt.Sprintf("namespace %q may not use queue %q: the namespaceSelector of queue %q does not match its labels", ns, "for-some", "for-some")
	w.noQuota(t, ns, "g", v1beta1.ReasonQueueNotAllowed, says)
	w.podSays(t, ns, "a", v1beta1.ReasonQueueNotAllowed, says)
	label := func(value string) {
		t.Helper()
		patch := []byte(`{"metadata":{"labels":{"team":` + value + `}}}`)
		if _, err := w.kube.Core.CoreV1().Namespaces().Patch(t.Context(), ns, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	label(`"some"`)
	w.bound(t, ns, "a", "b")
	label("null")
	w.group(t, ns, "late", "for-some", 1)
	w.pod(t, ns, "late", inGroup("late"))
	w.noQuota(t, ns, "late", v1beta1.ReasonQueueNotAllowed, says)
	w.bound(t, ns, "a", "b")
	w.unbound(t, ns, "late")
}
