package deploy_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/localtest"
	"basalt.dev/basalt/deploy"
	"basalt.dev/basalt/deploy/install"
)

// Pods of ours, and templates of such, may not repel other namespaces, or everybody of their own, without the right.
// It takes 20 s: a real API server is started, and takes its time to know each policy.
func TestPolicyBoundsAntiAffinity(t *testing.T) {
	c := cluster(t)
	objects := must[[]*unstructured.Unstructured](t)(deploy.Objects("policy.yaml"))
	if err := install.Apply(t.Context(), c.Config(local.Admin), objects, false); err != nil {
		t.Fatal(err)
	}
	admin := must[*kubernetes.Clientset](t)(kubernetes.NewForConfig(c.Config(local.Admin)))
	right := map[string]string{api.LabelRepelsOthers: "true"}
	for name, labels := range map[string]map[string]string{"apart": nil, "apart-by-right": right} {
		n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
		if _, err := admin.CoreV1().Namespaces().Create(t.Context(), n, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	spec := func(scheduler string, term corev1.PodAffinityTerm) corev1.PodSpec {
		return corev1.PodSpec{SchedulerName: scheduler, Containers: []corev1.Container{{Name: "c", Image: "i"}},
			Affinity: &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term}}}}
	}
	pod := func(ctx context.Context, namespace, scheduler string, term corev1.PodAffinityTerm) error {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: spec(scheduler, term)}
		_, err := admin.CoreV1().Pods(namespace).Create(ctx, p, dry)
		return err
	}
	app := map[string]string{"app": "a"}
	template := func(term corev1.PodAffinityTerm) *appsv1.Deployment {
		return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "d"}, Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: app},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: app}, Spec: spec("basalt", term)}}}
	}
	all, some := &metav1.LabelSelector{}, &metav1.LabelSelector{MatchLabels: app}
	term := func(key string, of, in *metav1.LabelSelector, namespaces ...string) corev1.PodAffinityTerm {
		return corev1.PodAffinityTerm{TopologyKey: key, LabelSelector: of, NamespaceSelector: in, Namespaces: namespaces}
	}
	host, zone := api.LabelHostname, corev1.LabelTopologyZone
	everybody := term("kubernetes.io/os", all, all)
	const others, many = "a term selects other namespaces", "repels all pods by another label"
	localtest.Wait(t, time.Minute, "the policy to be in force", func(ctx context.Context) error {
		if err := pod(ctx, "apart", "basalt", everybody); err == nil || !strings.Contains(err.Error(), others) {
			return fmt.Errorf("answer: %v", err)
		}
		return nil
	})
	for _, o := range []struct {
		name string
		term corev1.PodAffinityTerm
		in   string // of the answer, "" for none
	}{
		{"everybody", everybody, others},
		{"everybody by host name", term(host, all, all), others},
		{"some of others", term(host, some, some), others},
		{"a named namespace", term(host, some, nil, "apart", "default"), others},
		{"all of its own, by zone", term(zone, all, nil), many},
		{"all of its own, by host name", term(host, all, nil), ""},
		{"some of its own, by zone", term(zone, some, nil, "apart"), ""},
		{"nobody", term(zone, nil, nil), ""},
	} {
		_, ofTemplate := admin.AppsV1().Deployments("apart").Create(t.Context(), template(o.term), dry)
		ofPod := pod(t.Context(), "apart", "basalt", o.term)
		for what, err := range map[string]error{"pod": ofPod, "template": ofTemplate} {
			if (err == nil) != (o.in == "") || err != nil && !strings.Contains(err.Error(), o.in) {
				t.Errorf("%s, %s: %v, want %q", o.name, what, err, o.in)
			}
		}
		if err := pod(t.Context(), "apart", "default-scheduler", o.term); err != nil {
			t.Errorf("%s, of another scheduler: %v", o.name, err)
		}
		if err := pod(t.Context(), "apart-by-right", "basalt", o.term); err != nil {
			t.Errorf("%s, of a namespace with the right: %v", o.name, err)
		}
	}
}
