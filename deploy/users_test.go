package deploy_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/localtest"
	"basalt.dev/basalt/deploy"
	"basalt.dev/basalt/deploy/install"
)

// workloads are one object of each kind whose user counts, and where in it the user is written.
var workloads = []struct{ resource, object, places string }{
	{"pods", `{apiVersion: v1, kind: Pod, spec: {containers: [{name: c, image: i}]}}`, ""},
	{"podgroups", `{apiVersion: scheduling.basalt.dev/v1beta1, kind: PodGroup,
		spec: {queue: q, schedulingPolicy: {gang: {minCount: 1}}}}`, ""},
	{"replicationcontrollers", `{apiVersion: v1, kind: ReplicationController, spec: {replicas: 1, selector: {a: b},
		template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}}`, "spec.template"},
	{"daemonsets", `{apiVersion: apps/v1, kind: DaemonSet, spec: {selector: {matchLabels: {a: b}},
		template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}}`, "spec.template"},
	{"deployments", `{apiVersion: apps/v1, kind: Deployment, spec: {replicas: 1, selector: {matchLabels: {a: b}},
		template: {metadata: {labels: {a: b}, annotations: {mine: kept}}, spec: {containers: [{name: c, image: i}]}}}}`,
		"spec.template"},
	{"replicasets", `{apiVersion: apps/v1, kind: ReplicaSet, spec: {replicas: 1, selector: {matchLabels: {a: b}},
		template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}}`, "spec.template"},
	{"statefulsets", `{apiVersion: apps/v1, kind: StatefulSet, spec: {replicas: 1, selector: {matchLabels: {a: b}},
		template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}}`, "spec.template"},
	{"jobs", `{apiVersion: batch/v1, kind: Job,
		spec: {suspend: true, template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}`,
		"spec.template"},
	{"cronjobs", `{apiVersion: batch/v1, kind: CronJob, spec: {schedule: "@yearly", jobTemplate: {spec: {template: {
		spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}}}`, "spec.jobTemplate.spec.template"},
	{"jobsets", `{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, spec: {replicatedJobs: [
		{name: a, template: {spec: {template: {spec: {}}}}}, {name: b, template: {spec: {template: {metadata: {}}}}}]}}`,
		"spec.replicatedJobs.0.template.spec.template spec.replicatedJobs.1.template.spec.template"},
	{"rayclusters", `{apiVersion: ray.io/v1, kind: RayCluster, spec: {headGroupSpec: {template: {spec: {}}},
		workerGroupSpecs: [{groupName: a, template: {metadata: {labels: {a: b}}}}]}}`,
		"spec.headGroupSpec.template spec.workerGroupSpecs.0.template"},
	{"rayjobs", `{apiVersion: ray.io/v1, kind: RayJob, spec: {submitterPodTemplate: {spec: {}},
		rayClusterSpec: {headGroupSpec: {template: {spec: {}}}, workerGroupSpecs: [{groupName: a, template: {}}]}}}`,
		"spec.rayClusterSpec.headGroupSpec.template spec.submitterPodTemplate " +
			"spec.rayClusterSpec.workerGroupSpecs.0.template"},
	{"rayservices",
		`{apiVersion: ray.io/v1, kind: RayService, spec: {rayClusterConfig: {headGroupSpec: {template: {}}}}}`,
		"spec.rayClusterConfig.headGroupSpec.template"},
	{"raycronjobs", `{apiVersion: ray.io/v1, kind: RayCronJob, spec: {schedule: x, jobTemplate: {
		submitterPodTemplate: {}, rayClusterSpec: {headGroupSpec: {template: {}}}}}}`,
		"spec.jobTemplate.rayClusterSpec.headGroupSpec.template spec.jobTemplate.submitterPodTemplate"},
	{"pytorchjobs", `{apiVersion: kubeflow.org/v1, kind: PyTorchJob, spec: {pytorchReplicaSpecs: {
		Master: {template: {spec: {}}}, a/b~c: {template: {metadata: {annotations: {mine: kept}}}}}}}`,
		"spec.pytorchReplicaSpecs.Master.template spec.pytorchReplicaSpecs.a/b~c.template"},
	{"mpijobs", `{apiVersion: kubeflow.org/v2beta1, kind: MPIJob, spec: {mpiReplicaSpecs: {Launcher: {template: {}}}}}`,
		"spec.mpiReplicaSpecs.Launcher.template"},
}

// definition is one of a kind whose fields nobody checks.
const definition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[1]s.%[2]s}
spec:
  group: %[2]s
  names: {kind: %[3]s, plural: %[1]s, listKind: %[3]sList}
  scope: Namespaced
  versions: [{name: %[4]s, served: true, storage: true,
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
`

// namesIn returns the users and groups that are written in an object.
func namesIn(o *unstructured.Unstructured, places string) (users, groups []string) {
	for _, place := range strings.Split(places, " ") {
		annotations, _ := at(o, place)["annotations"].(map[string]any)
		user, _ := annotations[api.AnnotationUser].(string)
		group, _ := annotations[api.AnnotationGroups].(string)
		users, groups = append(users, user), append(groups, group)
	}
	return slices.Compact(users), slices.Compact(groups)
}

// at returns the metadata of a template, which is made if there is none.
func at(o *unstructured.Unstructured, place string) map[string]any {
	var here any = o.Object
	for step := range strings.SplitSeq(place, ".") {
		if list, ok := here.([]any); ok {
			i, _ := strconv.Atoi(step)
			here = list[i]
		} else if step != "" {
			here = here.(map[string]any)[step]
		}
	}
	template := here.(map[string]any)
	if template["metadata"] == nil {
		template["metadata"] = map[string]any{}
	}
	return template["metadata"].(map[string]any)
}

// name writes a user and groups into the last template of an object: one is enough for a forger.
func name(o *unstructured.Unstructured, places, user, groups string) *unstructured.Unstructured {
	o = o.DeepCopy()
	meta := at(o, places[strings.LastIndex(places, " ")+1:])
	if meta["annotations"] == nil {
		meta["annotations"] = map[string]any{}
	}
	meta["annotations"].(map[string]any)[api.AnnotationUser] = user
	meta["annotations"].(map[string]any)[api.AnnotationGroups] = groups
	return o
}

// TestUsers: nobody writes the name of another user into what he makes or changes, whatever the kind and the way, and
// with deploy/users each has his own there. It takes half a minute: a new policy is in
// force late.
func TestUsers(t *testing.T) {
	c := cluster(t)
	ctx := t.Context()
	const namespace, forged, nobody = "users", "say who made an object", "may write no name"
	objects := parse(t, fmt.Sprintf(`{apiVersion: v1, kind: Namespace, metadata: {name: %s}}`, namespace))
	for _, kind := range [][4]string{{"jobsets", "jobset.x-k8s.io", "JobSet", "v1alpha2"},
		{"rayclusters", "ray.io", "RayCluster", "v1"}, {"rayjobs", "ray.io", "RayJob", "v1"},
		{"rayservices", "ray.io", "RayService", "v1"}, {"raycronjobs", "ray.io", "RayCronJob", "v1"},
		{"pytorchjobs", "kubeflow.org", "PyTorchJob", "v1"}, {"mpijobs", "kubeflow.org", "MPIJob", "v2beta1"}} {
		objects = append(objects, parse(t, fmt.Sprintf(definition, kind[0], kind[1], kind[2], kind[3]))...)
	}
	policies := must[[]*unstructured.Unstructured](t)(deploy.Objects("rbac.yaml", "policy.yaml", "users.yaml"))
	objects = append(objects, policies...)
	if err := install.Apply(ctx, c.Config(local.Admin), objects, false); err != nil {
		t.Fatal(err)
	}
	admin := must[*kubernetes.Clientset](t)(kubernetes.NewForConfig(c.Config(local.Admin)))
	bind := func(role string, subjects ...string) {
		b := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "users-" + role},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}}
		for _, s := range subjects {
			b.Subjects = append(b.Subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "User", Name: s})
		}
		must[*rbacv1.ClusterRoleBinding](t)(admin.RbacV1().ClusterRoleBindings().Create(ctx, b, metav1.CreateOptions{}))
		t.Cleanup(func() {
			_ = admin.RbacV1().ClusterRoleBindings().Delete(context.Background(), b.Name, metav1.DeleteOptions{})
		})
	}
	const account = "system:serviceaccount:"
	const jobs, robot, cd = account + "kube-system:job-controller", account + "users:robot", account + "cd:argo"
	long := strings.Repeat("l", 300)
	must[*rbacv1.ClusterRole](t)(admin.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "users-edit"}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{"*"},
			Resources: []string{"*"}, Verbs: []string{"create", "update", "patch", "get"}}}}, metav1.CreateOptions{}))
	bind("users-edit", "alice", "bob", long, "crowd", "a:b", "xsystem:serviceaccount:kube-system:job-controller", jobs,
		robot, account+"kube-system:job-controller2", account+"users:job-controller")
	bind("cluster-admin", cd)

	as := func(user string, groups ...string) dynamic.Interface {
		config := c.Config(local.Admin)
		config.WarningHandler = rest.NoWarnings{}
		config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: append(groups, "system:authenticated")}
		return must[*dynamic.DynamicClient](t)(dynamic.NewForConfig(config))
	}
	alice, bob := as("alice", "staff", "interns"), as("bob", "staff")
	of := func(client dynamic.Interface, resource string, o *unstructured.Unstructured) dynamic.ResourceInterface {
		return client.Resource(schema.GroupVersionResource{Group: o.GroupVersionKind().Group,
			Version: o.GroupVersionKind().Version, Resource: resource}).Namespace(namespace)
	}
	read := func(text string) *unstructured.Unstructured {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
			t.Fatal(err)
		}
		o.SetName("made")
		return o
	}
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	refused := func(what string, err error, words string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v, want %q", what, err, words)
		}
	}
	pod := read(workloads[0].object)
	inForce := func(what string, client dynamic.Interface, done func(error) bool) {
		localtest.Wait(t, time.Minute, what, func(ctx context.Context) error {
			forge := name(pod, "", "bob", "")
			if _, err := of(client, "pods", forge).Create(ctx, forge, dry); !done(err) {
				return fmt.Errorf("answer: %v", err)
			}
			return nil
		})
	}
	inForce("the policy to refuse another's name", alice, func(err error) bool {
		return err != nil && strings.Contains(err.Error(), forged)
	})
	inForce("the controllers to be known", as(jobs), func(err error) bool { return err == nil })

	// Without the policies that write, who writes his own name may, and nobody writes another's.
	for _, w := range workloads {
		o := read(w.object)
		_, err := of(alice, w.resource, o).Create(ctx, name(o, w.places, "bob", ""), dry)
		refused(w.resource+" in another's name", err, "alice is somebody else")
		_, err = of(alice, w.resource, o).Create(ctx, name(o, w.places, "alice", "interns\nvip"), dry)
		refused(w.resource+" with another's group", err, forged)
		_, err = of(alice, w.resource, o).Create(ctx, name(o, w.places, "", "vip"), dry)
		refused(w.resource+" with another's group alone", err, forged)
		if _, err := of(alice, w.resource, o).Create(ctx, name(o, w.places, "alice", "interns"), dry); err != nil {
			t.Errorf("%s in her own name: %v", w.resource, err)
		}
		for _, who := range []string{robot, cd, account + "kube-system:job-controller2", account + "users:job-controller"} {
			_, err = of(as(who), w.resource, o).Create(ctx, name(o, w.places, "bob", ""), dry)
			refused(w.resource+" by "+who, err, nobody)
			_, err = of(as(who), w.resource, o).Create(ctx, name(o, w.places, who, ""), dry)
			refused(w.resource+" in its own name by "+who, err, nobody)
		}
		if _, err := of(as(robot), w.resource, o).Create(ctx, o, dry); err != nil {
			t.Errorf("%s by a service account: %v", w.resource, err)
		}
		if _, err := of(as(jobs), w.resource, o).Create(ctx, name(o, w.places, "bob", "staff"), dry); err != nil {
			t.Errorf("%s by a controller: %v", w.resource, err)
		}
	}
	alike := of(as("xsystem:serviceaccount:kube-system:job-controller"), "pods", pod)
	_, err := alike.Create(ctx, name(pod, "", "bob", ""), dry)
	refused("a user whose name ends as a controller's", err, "is somebody else")

	// With them, each has his own name there whatever he wrote; that of this test are in force in its namespace alone.
	localtest.Needs(t, "1.36", "a policy that writes names")
	objects = must[[]*unstructured.Unstructured](t)(deploy.Objects("users/workloads.yaml"))
	for _, o := range objects {
		if o.GetKind() == "MutatingAdmissionPolicyBinding" {
			if err := unstructured.SetNestedField(o.Object, map[string]any{"matchLabels": map[string]any{
				"kubernetes.io/metadata.name": namespace}}, "spec", "matchResources", "namespaceSelector"); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := install.Apply(ctx, c.Config(local.Admin), objects, false); err != nil {
		t.Fatal(err)
	}
	for _, w := range workloads { // it learns of each kind by itself
		localtest.Wait(t, time.Minute, "the policy to write the user of "+w.resource, func(ctx context.Context) error {
			o, err := of(alice, w.resource, read(w.object)).Create(ctx, read(w.object), dry)
			if err != nil {
				return err
			}
			if users, _ := namesIn(o, w.places); users[0] != "alice" {
				return fmt.Errorf("users: %q", users)
			}
			return nil
		})
	}
	check := func(what, places, user, groups string, o *unstructured.Unstructured, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", what, err)
			return
		}
		if u, g := namesIn(o, places); !slices.Equal(u, []string{user}) || !slices.Equal(g, []string{groups}) {
			t.Errorf("%s: the user is %q of %q, want %q of %q", what, u, g, user, groups)
		}
	}
	const hers = "interns\nstaff\nsystem:authenticated"
	for _, w := range workloads {
		o := read(w.object)
		create := func(client dynamic.Interface, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
			return of(client, w.resource, o).Create(ctx, o, dry)
		}
		got, err := create(alice, name(o, w.places, "bob", "vip"))
		check(w.resource+" in another's name", w.places, "alice", hers, got, err)
		got, err = create(as(robot), name(o, w.places, "bob", "vip"))
		check(w.resource+" by a service account", w.places, "", "", got, err)
		got, err = create(as(cd), name(o, w.places, "bob", "vip"))
		check(w.resource+" by an account that may do everything", w.places, "", "", got, err)
		last := w.places[strings.LastIndex(w.places, " ")+1:]
		got, err = create(as(jobs), name(o, w.places, "bob", "staff"))
		check(w.resource+" by a controller", last, "bob", "staff", got, err)

		// Her object stays hers: others may edit it, not whose it is.
		got, err = of(alice, w.resource, o).Create(ctx, o, metav1.CreateOptions{})
		check(w.resource, w.places, "alice", hers, got, err)
		if err != nil {
			continue
		}
		for _, client := range []dynamic.Interface{alice, bob, as(robot), as(cd)} {
			_, err = of(client, w.resource, o).Update(ctx, name(got, w.places, "bob", "staff\nsystem:authenticated"),
				metav1.UpdateOptions{})
			refused("update of "+w.resource, err, forged)
			_, err = of(client, w.resource, o).Update(ctx, name(got, w.places, "alice", "vip"), metav1.UpdateOptions{})
			refused("update of "+w.resource, err, forged)
		}
		edited := got.DeepCopy()
		for place := range strings.SplitSeq(w.places, " ") {
			meta := at(edited, place)["annotations"].(map[string]any)
			delete(meta, api.AnnotationUser)
			delete(meta, api.AnnotationGroups)
		}
		edited.SetLabels(map[string]string{"edited": "yes"})
		got, err = of(bob, w.resource, o).Update(ctx, edited, metav1.UpdateOptions{})
		check(w.resource+" replaced by another", w.places, "alice", hers, got, err)
		if err == nil && w.places == "spec.template" {
			_, err = of(bob, w.resource, o).Patch(ctx, "made", types.MergePatchType, []byte(`{"spec":{"template":`+
				`{"metadata":{"annotations":{"scheduling.basalt.dev/user":"bob"}}}}}`), metav1.PatchOptions{})
			refused("a patch of "+w.resource, err, forged)
			apply := read(w.object)
			_, err = of(bob, w.resource, o).Apply(ctx, "made", name(apply, w.places, "bob", ""),
				metav1.ApplyOptions{FieldManager: "bob", Force: true})
			refused("an apply of "+w.resource, err, forged)
		}
	}
	// Replicas are whoever's who made the template: his limit is not what keeps others from his objects.
	deployment := read(workloads[4].object)
	if _, err := of(bob, "deployments", deployment).Patch(ctx, "made", types.MergePatchType,
		[]byte(`{"spec":{"replicas":3}}`), metav1.PatchOptions{}, "scale"); err != nil {
		t.Error(err)
	}
	set, err := of(bob, "deployments", deployment).Get(ctx, "made", metav1.GetOptions{})
	check("a Deployment that another scaled", "spec.template", "alice", hers, set, err)
	// A worker group that is added to a RayCluster is its owner's.
	ray := read(workloads[10].object)
	added, err := of(bob, "rayclusters", ray).Patch(ctx, "made", types.JSONPatchType, []byte(
		`[{"op":"add","path":"/spec/workerGroupSpecs/-","value":{"groupName":"b","template":{"spec":{}}}}]`),
		metav1.PatchOptions{})
	check("a group added to a RayCluster", workloads[10].places+" spec.workerGroupSpecs.1.template", "alice", hers,
		added, err)

	// Names of every length, and more groups than are kept.
	pod.SetName("another")
	got, err := of(as(long), "pods", pod).Create(ctx, pod, dry)
	check("a long name", "", long, "system:authenticated", got, err)
	got, err = of(as("a:b"), "pods", pod).Create(ctx, pod, dry)
	check("a name with colons", "", "a:b", "system:authenticated", got, err)
	var groups, kept []string
	for i := range 40 {
		groups = append(groups, fmt.Sprintf("g%02d", 39-i))
		kept = append(kept, fmt.Sprintf("g%02d", i)) // one of 254 letters, which would be the first of all, is not read
	}
	got, err = of(as("crowd", append(groups, strings.Repeat("b", 254))...), "pods", pod).Create(ctx, pod, dry)
	check("a user of many groups", "", "crowd", strings.Join(kept[:32], "\n"), got, err)
}
