package doors

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/bench/stage/kubelet"
	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/localtest"
	"basalt.dev/basalt/deploy"
)

// kubeflow are two kinds of Kubeflow, without their schemas.
const kubeflow = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: pytorchjobs.kubeflow.org}
spec:
  group: kubeflow.org
  names: {kind: PyTorchJob, plural: pytorchjobs, singular: pytorchjob, listKind: PyTorchJobList}
  scope: Namespaced
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: mpijobs.kubeflow.org}
spec:
  group: kubeflow.org
  names: {kind: MPIJob, plural: mpijobs, singular: mpijob, listKind: MPIJobList}
  scope: Namespaced
  versions: [{name: v2beta1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
`

// written are workloads, and what deploy/gangs writes on their pod templates.
var written = []struct {
	what, object string
	templates    []string // paths of the pod templates
	least        []string // gang-min of each, "" for none
	labels       string   // gang-labels
}{
	{"a JobSet", `{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, metadata: {generateName: a-}, spec: {replicatedJobs: [
		{name: driver, template: {spec: {template: {spec: {containers: [{name: c, image: i}], restartPolicy: Never}}}}},
		{name: worker, replicas: 2, template: {spec: {parallelism: 3, completions: 3, template: {metadata: {annotations: {mine: kept}, finalizers: [x/y]}, spec: {containers: [{name: c, image: i}], restartPolicy: Never}}}}}]}}`,
		[]string{"spec.replicatedJobs.0.template.spec.template", "spec.replicatedJobs.1.template.spec.template"}, []string{"7", "7"}, "jobset.sigs.k8s.io/jobset-name,jobset.sigs.k8s.io/jobset-uid"},
	{"a JobSet that starts in order", `{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, metadata: {name: b}, spec: {startupPolicy: {startupPolicyOrder: InOrder}, replicatedJobs: [
		{name: driver, template: {spec: {template: {spec: {containers: [{name: c, image: i}], restartPolicy: Never}}}}},
		{name: worker, replicas: 2, template: {spec: {parallelism: 3, template: {spec: {containers: [{name: c, image: i}], restartPolicy: Never}}}}}]}}`,
		[]string{"spec.replicatedJobs.0.template.spec.template", "spec.replicatedJobs.1.template.spec.template"}, []string{"1", "6"}, "jobset.sigs.k8s.io/jobset-name,jobset.sigs.k8s.io/jobset-uid,jobset.sigs.k8s.io/replicatedjob-name"},
	{"a JobSet that says it itself", `{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, metadata: {name: c}, spec: {replicatedJobs: [
		{name: driver, template: {spec: {template: {spec: {containers: [{name: c, image: i}], restartPolicy: Never}}}}},
		{name: worker, template: {spec: {parallelism: 3, template: {metadata: {annotations: {scheduling.basalt.dev/gang-min: "2"}}, spec: {containers: [{name: c, image: i}], restartPolicy: Never}}}}}]}}`,
		[]string{"spec.replicatedJobs.0.template.spec.template", "spec.replicatedJobs.1.template.spec.template"}, []string{"", "2"}, ""},
	{"a RayCluster", `{apiVersion: ray.io/v1, kind: RayCluster, metadata: {name: a}, spec: {headGroupSpec: {rayStartParams: {}, template: {spec: {containers: [{name: c, image: i}]}}}, workerGroupSpecs: [
		{groupName: small, replicas: 2, minReplicas: 1, maxReplicas: 5, rayStartParams: {}, template: {spec: {containers: [{name: c, image: i}]}}},
		{groupName: wide, replicas: 1, minReplicas: 0, maxReplicas: 5, numOfHosts: 4, rayStartParams: {}, template: {metadata: {labels: {x: z}}, spec: {containers: [{name: c, image: i}]}}}]}}`,
		[]string{"spec.headGroupSpec.template", "spec.workerGroupSpecs.0.template", "spec.workerGroupSpecs.1.template"}, []string{"7", "7", "7"}, "ray.io/cluster"},
	{"a RayCluster that Ray scales", `{apiVersion: ray.io/v1, kind: RayCluster, metadata: {name: b}, spec: {enableInTreeAutoscaling: true, headGroupSpec: {rayStartParams: {}, template: {spec: {containers: [{name: c, image: i}]}}}, workerGroupSpecs: [
		{groupName: small, replicas: 2, minReplicas: 1, maxReplicas: 5, rayStartParams: {}, template: {spec: {containers: [{name: c, image: i}]}}}]}}`,
		[]string{"spec.headGroupSpec.template", "spec.workerGroupSpecs.0.template"}, []string{"2", "2"}, "ray.io/cluster"},
	{"a PyTorchJob", `{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {name: a}, spec: {pytorchReplicaSpecs: {Master: {template: {spec: {}}}, Worker: {replicas: 3, template: {spec: {}}}}}}`,
		[]string{"spec.pytorchReplicaSpecs.Master.template", "spec.pytorchReplicaSpecs.Worker.template"}, []string{"4", "4"}, "training.kubeflow.org/job-name"},
	{"an elastic PyTorchJob", `{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {name: b}, spec: {elasticPolicy: {minReplicas: 2}, pytorchReplicaSpecs: {Worker: {replicas: 8, template: {spec: {}}}}}}`,
		[]string{"spec.pytorchReplicaSpecs.Worker.template"}, []string{"2"}, "training.kubeflow.org/job-name"},
	{"a PyTorchJob with a minimum", `{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {name: c}, spec: {runPolicy: {schedulingPolicy: {minAvailable: 5}}, pytorchReplicaSpecs: {Master: {template: {spec: {}}}, Worker: {replicas: 8, template: {spec: {}}}}}}`,
		[]string{"spec.pytorchReplicaSpecs.Master.template", "spec.pytorchReplicaSpecs.Worker.template"}, []string{"5", "5"}, "training.kubeflow.org/job-name"},
	{"an MPIJob", `{apiVersion: kubeflow.org/v2beta1, kind: MPIJob, metadata: {name: a}, spec: {mpiReplicaSpecs: {Launcher: {template: {spec: {}}}, Worker: {replicas: 3, template: {spec: {}}}}}}`,
		[]string{"spec.mpiReplicaSpecs.Launcher.template", "spec.mpiReplicaSpecs.Worker.template"}, []string{"4", "4"}, "training.kubeflow.org/job-name"},
	{"an MPIJob whose launcher waits", `{apiVersion: kubeflow.org/v2beta1, kind: MPIJob, metadata: {name: b}, spec: {launcherCreationPolicy: WaitForWorkersReady, mpiReplicaSpecs: {Launcher: {template: {spec: {}}}, Worker: {replicas: 3, template: {spec: {}}}}}}`,
		[]string{"spec.mpiReplicaSpecs.Launcher.template", "spec.mpiReplicaSpecs.Worker.template"}, []string{"3", "3"}, "training.kubeflow.org/job-name"},
	{"an Indexed Job", `{apiVersion: batch/v1, kind: Job, metadata: {name: a}, spec: {completionMode: Indexed, parallelism: 4, completions: 4, template: {spec: {containers: [{name: c, image: i}], restartPolicy: Never}}}}`,
		[]string{"spec.template"}, []string{"4"}, "batch.kubernetes.io/controller-uid"},
	{"an Indexed Job of which some run at a time", `{apiVersion: batch/v1, kind: Job, metadata: {name: b}, spec: {completionMode: Indexed, parallelism: 4, completions: 8, template: {spec: {containers: [{name: c, image: i}], restartPolicy: Never}}}}`,
		[]string{"spec.template"}, []string{""}, ""},
	{"a Job of a work queue", `{apiVersion: batch/v1, kind: Job, metadata: {name: c}, spec: {parallelism: 4, template: {spec: {containers: [{name: c, image: i}], restartPolicy: Never}}}}`,
		[]string{"spec.template"}, []string{""}, ""},
	{"a Job with Volcano's annotation", `{apiVersion: batch/v1, kind: Job, metadata: {name: d, annotations: {scheduling.volcano.sh/group-min-member: "2"}}, spec: {parallelism: 4, template: {spec: {containers: [{name: c, image: i}], restartPolicy: Never}}}}`,
		[]string{"spec.template"}, []string{"2"}, ""},
	{"a Deployment with Volcano's annotation", `{apiVersion: apps/v1, kind: Deployment, metadata: {name: a, annotations: {scheduling.volcano.sh/group-min-member: "2"}}, spec: {replicas: 3, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}}`,
		[]string{"spec.template"}, []string{"2"}, ""},
	{"a StatefulSet without it", `{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: a}, spec: {replicas: 3, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}}`,
		[]string{"spec.template"}, []string{""}, ""},
}

// TestGangPolicies: with deploy/gangs the API server says of workloads of controllers that know nothing of gangs which of their pods
// start together, in the namespaces that ask for it.
func TestGangPolicies(t *testing.T) {
	localtest.Needs(t, "1.36", "MutatingAdmissionPolicy")
	t.Parallel()
	w := install(t, local.Options{ControllerManager: true})
	for _, define := range []func(context.Context) error{w.cluster.DefineJobSet, w.cluster.DefineRay} {
		if err := define(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	policies, err := deploy.Files.ReadFile("gangs/workloads.yaml")
	if err != nil {
		t.Fatal(err)
	}
	w.apply(kubeflow)
	w.apply(string(policies))
	w.labelNamespace("default", "gangs", "gangs-of-jobs")
	if _, err := w.kube.Core.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "apart"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	// A policy is in force once the API server has read it.
	localtest.Wait(t, patience, "the policies to be in force", func(context.Context) error {
		for _, c := range written {
			u, err := w.wouldMake(c.object, "default")
			if err != nil {
				return err
			}
			if least, _ := annotationOf(u, c.templates[0], api.AnnotationGangMin); least != c.least[0] {
				return fmt.Errorf("%s has a minimum of %q", c.what, least)
			}
		}
		return nil
	})
	for _, c := range written {
		u, err := w.wouldMake(c.object, "default")
		if err != nil {
			t.Errorf("%s: %v", c.what, err)
			continue
		}
		plain, err := w.wouldMake(c.object, "apart")
		if err != nil {
			t.Errorf("%s, without policies: %v", c.what, err)
			continue
		}
		for i, path := range c.templates {
			least, others := annotationOf(u, path, api.AnnotationGangMin)
			labels, _ := annotationOf(u, path, api.AnnotationGangLabels)
			if least != c.least[i] || labels != c.labels {
				t.Errorf("%s: %s says a minimum of %q by %q, want %q by %q", c.what, path, least, labels, c.least[i], c.labels)
			}
			was, before := annotationOf(plain, path, api.AnnotationGangMin)
			if was != "" && was != least || others != before {
				t.Errorf("%s: %s has the minimum %q and %d other annotations, without policies %q and %d", c.what, path, least, others, was, before)
			}
		}
	}

	// Such Jobs run whole or wait whole, though they say nothing.
	w.start()
	go func() { _ = kubelet.Run(t.Context(), kubelet.Options{Client: w.kube.Core}) }()
	found := w.audit()
	w.queue("team", "7")
	w.indexed("first", 3, "")
	w.jobHas("first", 3, 3)
	w.indexed("second", 3, "")
	w.waits(w.podOf("second"), "QuotaExceeded", `queue "team"`)
	w.all[1].Kill()
	w.jobHas("second", 3, 0)
	background := metav1.DeletePropagationBackground
	if err := w.kube.Core.BatchV1().Jobs("default").Delete(t.Context(), "first", metav1.DeleteOptions{PropagationPolicy: &background}); err != nil {
		t.Fatal(err)
	}
	w.jobHas("second", 3, 3)
	found()

	// Deployments that were there before roll out for nothing that leaves their template as it is, but for the annotation itself.
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.DeploymentSpec{Replicas: new(int32(0)),
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none",
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}}}}}}}}
	if _, err := w.kube.Core.AppsV1().Deployments("default").Create(t.Context(), d, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct{ patch, least string }{
		{`{"metadata":{"annotations":{"note":"x"}}}`, ""},
		{`{"metadata":{"annotations":{"scheduling.volcano.sh/group-min-member":"2"}}}`, "2"},
		{`{"spec":{"template":{"metadata":{"annotations":{"scheduling.basalt.dev/gang-min":null}}}}}`, "2"},
		{`{"metadata":{"annotations":{"scheduling.volcano.sh/group-min-member":"3"}}}`, "2"},
	} {
		d, err := w.kube.Core.AppsV1().Deployments("default").Patch(t.Context(), "web", "application/merge-patch+json", []byte(step.patch), metav1.PatchOptions{})
		if err != nil || d.Spec.Template.Annotations[api.AnnotationGangMin] != step.least {
			t.Errorf("after %s the template says %v, %v", step.patch, d.Spec.Template.Annotations, err)
		}
	}
}

// apply applies some manifests.
func (w *world) apply(text string) {
	w.t.Helper()
	if err := w.tryApply(text); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) tryApply(text string) error {
	dir := w.t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(text), 0o644); err != nil {
		return err
	}
	return local.Apply(w.t.Context(), w.cluster.Config(local.Admin), dir, nil)
}

// labelNamespace enables what labels of Basalt's enable for a namespace.
func (w *world) labelNamespace(name string, keys ...string) {
	w.t.Helper()
	for _, key := range keys {
		patch := fmt.Sprintf(`{"metadata":{"labels":{"scheduling.basalt.dev/%s":"enabled"}}}`, key)
		if _, err := w.kube.Core.CoreV1().Namespaces().Patch(w.t.Context(), name, "application/merge-patch+json", []byte(patch), metav1.PatchOptions{}); err != nil {
			w.t.Fatal(err)
		}
	}
}

// wouldMake returns what the API server makes of a new object, without making it.
func (w *world) wouldMake(object, namespace string) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(object), &u.Object); err != nil {
		return nil, err
	}
	client, err := dynamic.NewForConfig(w.cluster.Config(local.Admin))
	if err != nil {
		return nil, err
	}
	kind := u.GroupVersionKind()
	plural := map[string]string{"JobSet": "jobsets", "RayCluster": "rayclusters", "PyTorchJob": "pytorchjobs", "MPIJob": "mpijobs", "Job": "jobs", "Deployment": "deployments", "StatefulSet": "statefulsets"}
	return client.Resource(schema.GroupVersionResource{Group: kind.Group, Version: kind.Version, Resource: plural[kind.Kind]}).Namespace(namespace).
		Create(w.t.Context(), u, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
}

// annotationOf returns an annotation of a pod template, and how many others it has but for those of package api.
func annotationOf(u *unstructured.Unstructured, path, key string) (value string, others int) {
	var at any = u.Object
	for _, step := range append(strings.Split(path, "."), "metadata", "annotations") {
		switch x := at.(type) {
		case map[string]any:
			at = x[step]
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i >= len(x) {
				return "", 0
			}
			at = x[i]
		default:
			return "", 0
		}
	}
	annotations, _ := at.(map[string]any)
	for k := range annotations {
		if k != api.AnnotationGangMin && k != api.AnnotationGangLabels {
			others++
		}
	}
	value, _ = annotations[key].(string)
	return value, others
}
