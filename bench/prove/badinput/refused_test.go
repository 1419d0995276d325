package badinput

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/bench/stage/kubelet"
	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/localtest"
)

// TestRefusedBindings: the API server refuses the Bindings of some pods for good. They say so, in its words, and give
// back what others can use. It takes long because a pod that is rejected is tried again after 5 s, and then after 10.
func TestRefusedBindings(t *testing.T) {
	w := &world{program: localtest.Basalt(t)}
	w.cluster = localtest.Cluster(t, local.Options{Basalt: w.program})
	var err error
	if w.kube, err = kube.ConnectConfig(w.cluster.Config(local.Admin), "badinput"); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		n := kubelet.Node(fmt.Sprintf("node-%d", i), "8", "32Gi", 110)
		if _, err := w.kube.Core.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	var beside sync.WaitGroup
	t.Cleanup(func() { cancel(); beside.Wait() })
	beside.Go(func() { _ = kubelet.Run(ctx, kubelet.Options{Client: w.kube.Core}) })
	if _, err := w.cluster.StartBasalt(t.Context(), 1, 2, local.BasaltOptions{}); err != nil {
		t.Fatal(err)
	}
	w.ready(t)
	w.audited(t, func() {
		t.Run("together", func(t *testing.T) {
			t.Run("by a policy", func(t *testing.T) { t.Parallel(); w.refusedBindings(t) })
			t.Run("by a webhook", func(t *testing.T) { t.Parallel(); w.failingWebhook(t) })
			t.Run("of words", func(t *testing.T) { t.Parallel(); w.refusedWords(t) })
		})
	})
}

var bindings = admissionregistrationv1.RuleWithOperations{
	Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
	Rule: admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"*"},
		Resources: []string{"pods/binding"}},
}

// policy has the API server refuse what a rule matches unless an expression holds.
func (w *world) policy(t *testing.T, name, holds, message string, rules ...admissionregistrationv1.RuleWithOperations) {
	t.Helper()
	meta, match := metav1.ObjectMeta{Name: name}, &admissionregistrationv1.MatchResources{}
	for _, rule := range rules {
		named := admissionregistrationv1.NamedRuleWithOperations{RuleWithOperations: rule}
		match.ResourceRules = append(match.ResourceRules, named)
	}
	policies := w.kube.Core.AdmissionregistrationV1()
	p := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: meta}
	p.Spec.MatchConstraints = match
	p.Spec.Validations = []admissionregistrationv1.Validation{{Expression: holds, Message: message}}
	_, err := policies.ValidatingAdmissionPolicies().Create(t.Context(), p, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	deny := []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}
	_, err = policies.ValidatingAdmissionPolicyBindings().Create(t.Context(),
		&admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: meta,
			Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: name, ValidationActions: deny}},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// refusedWords: a policy refuses all that Basalt says in a namespace, in conditions, statuses and events. Its pods are
// placed all the same, others are told what they are to be told, and so are these once they may be.
func (w *world) refusedWords(t *testing.T) {
	ns, other := w.namespace(t), w.namespace(t)
	rule := func(groups, resources []string) (r admissionregistrationv1.RuleWithOperations) {
		r.Operations = []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll}
		r.APIGroups, r.APIVersions, r.Resources = groups, []string{"*"}, resources
		return r
	}
	w.policy(t, "no-words", fmt.Sprintf("request.namespace != %q", ns), "no words here",
		rule([]string{"", "events.k8s.io"}, []string{"pods/status", "events"}),
		rule([]string{v1beta1.GroupName}, []string{"podgroups/status"}))
	large := asks("cpu", "900")
	w.pod(t, ns, "probe", large)
	wait(t, "the policy to refuse", func(ctx context.Context) error {
		patch := []byte(`{"status":{"message":"probe"}}`)
		pods := w.kube.Core.CoreV1().Pods(ns)
		_, err := pods.Patch(ctx, "probe", types.MergePatchType, patch, metav1.PatchOptions{}, "status")
		if err == nil {
			return errors.New("it may be written still")
		}
		return nil
	})
	w.pod(t, ns, "large", large)
	w.pod(t, other, "large", large)
	w.group(t, ns, "silent", "default", 2)
	w.pod(t, ns, "silent-0", inGroup("silent"), asks("cpu", "100m"))
	w.pod(t, ns, "silent-1", inGroup("silent"), asks("cpu", "100m"))
	w.bound(t, ns, "silent-0", "silent-1")
	w.podSays(t, other, "large", v1beta1.ReasonUnschedulable, "900")
	err := w.kube.Core.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().
		Delete(t.Context(), "no-words", metav1.DeleteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.podSays(t, ns, "large", v1beta1.ReasonUnschedulable, "900")
	w.groupSays(t, ns, "silent", v1beta1.ConditionPodGroupInitiallyScheduled, metav1.ConditionTrue,
		v1beta1.ReasonScheduled)
	w.deletePods(t, ns, "probe", "large", "silent-0", "silent-1")
	w.deletePods(t, other, "large")
}

// refusedBindings: a policy refuses the Bindings of some pods. They say so, and give back what others can use.
func (w *world) refusedBindings(t *testing.T) {
	ctx, policies := t.Context(), w.kube.Core.AdmissionregistrationV1()
	w.policy(t, "no-bindings", "!object.metadata.name.startsWith('deny-')", "not this one", bindings)
	ns := w.namespace(t)
	w.refuses(t, ns, "deny-probe", "not this one")

	// The queue has room for one of these: it goes to the pod that can use it.
	w.queue(t, "refused", v1beta1.QueueSpec{Capability: list("cpu", "300m")})
	in := label(api.LabelQueue, "refused")
	w.pod(t, ns, "deny-1", in, asks("cpu", "300m"))
	w.podSays(t, ns, "deny-1", v1beta1.ReasonBindingRejected, "the API server rejects its Binding", "not this one")
	w.pod(t, ns, "innocent", in, asks("cpu", "300m"))
	w.bound(t, ns, "innocent")
	w.deletePods(t, ns, "innocent", "deny-1")

	// One of a gang: nothing of it stays bound, as its pods are made again, and another gang runs.
	w.group(t, ns, "g", "refused", 3)
	for _, name := range []string{"allow-1", "deny-2", "allow-3"} {
		w.pod(t, ns, name, inGroup("g"), asks("cpu", "100m"), owned)
	}
	for _, name := range []string{"allow-1", "allow-3"} {
		wait(t, "the eviction of "+name, func(ctx context.Context) error {
			_, err := w.kube.Core.CoreV1().Pods(ns).Get(ctx, name, metav1.GetOptions{})
			if err == nil {
				return errors.New("it is there")
			}
			if apierrors.IsNotFound(err) {
				return nil
			}
			return err
		})
		w.pod(t, ns, name+"-again", inGroup("g"), asks("cpu", "100m"), owned)
	}
	w.groupSays(t, ns, "g", v1beta1.ConditionPodGroupInitiallyScheduled, metav1.ConditionFalse,
		v1beta1.ReasonBindingRejected, "deny-2", "not this one")
	w.group(t, ns, "h", "refused", 3)
	for i := range 3 {
		w.pod(t, ns, fmt.Sprint("h-", i), inGroup("h"), asks("cpu", "100m"))
	}
	w.bound(t, ns, "h-0", "h-1", "h-2")

	// It is bound once it may be.
	w.deletePods(t, ns, "h-0", "h-1", "h-2")
	err := policies.ValidatingAdmissionPolicyBindings().Delete(ctx, "no-bindings", metav1.DeleteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.bound(t, ns, "deny-2", "allow-1-again", "allow-3-again")
}

func owned(p *corev1.Pod) {
	yes := true
	p.OwnerReferences = []metav1.OwnerReference{
		{APIVersion: "batch/v1", Kind: "Job", Name: "job", UID: "a-job", Controller: &yes}}
}

// refuses waits until the API server refuses the Binding of a pod of another scheduler.
func (w *world) refuses(t *testing.T, ns, name, words string) {
	t.Helper()
	w.pod(t, ns, name, func(p *corev1.Pod) { p.Spec.SchedulerName = "other" })
	binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		Target: corev1.ObjectReference{Kind: "Node", Name: "node-0"}}
	wait(t, words, func(ctx context.Context) error { // the API server hears of it a little later
		err := w.kube.Core.CoreV1().Pods(ns).Bind(ctx, binding, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil {
			return fmt.Errorf("the Binding of %s is let pass", name)
		}
		return contains(err.Error(), []string{words})
	})
	w.deletePods(t, ns, name)
}

// failingWebhook: a webhook denies every second Binding, and then fails closed, for good.
func (w *world) failingWebhook(t *testing.T) {
	ns := w.namespace(t)
	asked := atomic.Int64{}
	server := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(rw, err.Error(), http.StatusBadRequest)
			return
		}
		dry := review.Request.DryRun != nil && *review.Request.DryRun
		allowed := !dry && asked.Add(1)%2 == 0
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: allowed,
			Result: &metav1.Status{Message: "not this time"}}
		_ = json.NewEncoder(rw).Encode(review)
	}))
	defer server.Close()
	fail, none, limit := admissionregistrationv1.Fail, admissionregistrationv1.SideEffectClassNone, int32(2)
	url := server.URL + "/"
	hook := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "bindings"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "bindings.example.com", FailurePolicy: &fail, SideEffects: &none, TimeoutSeconds: &limit,
			AdmissionReviewVersions: []string{"v1"},
			Rules:                   []admissionregistrationv1.RuleWithOperations{bindings},
			NamespaceSelector: &metav1.LabelSelector{
				MatchLabels: map[string]string{corev1.LabelMetadataName: ns}},
			ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: pem.EncodeToMemory(
				&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})},
		}}}
	hooks := w.kube.Core.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	if _, err := hooks.Create(t.Context(), hook, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		err := hooks.Delete(context.WithoutCancel(t.Context()), hook.Name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	}()
	w.refuses(t, ns, "probe", "not this time")
	for i := range 4 {
		w.pod(t, ns, fmt.Sprint("single-", i))
	}
	w.bound(t, ns, "single-0", "single-1", "single-2", "single-3")
	if asked.Load() < 8 {
		t.Errorf("the webhook was asked %d times about 4 pods", asked.Load())
	}

	server.Close()
	w.queue(t, "hooked", v1beta1.QueueSpec{Capability: list("cpu", "300m")})
	in := label(api.LabelQueue, "hooked")
	w.pod(t, ns, "waits", in, asks("cpu", "300m"))
	w.podSays(t, ns, "waits", v1beta1.ReasonBindingRejected, "failed calling webhook")
	free := w.namespace(t)
	w.pod(t, free, "innocent", in, asks("cpu", "300m"))
	w.bound(t, free, "innocent")
	w.deletePods(t, free, "innocent")
	if err := hooks.Delete(t.Context(), hook.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.bound(t, ns, "waits")
}
