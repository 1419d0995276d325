package deploy_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/v1beta1/client"
	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/localtest"
	"basalt.dev/basalt/deploy"
	"basalt.dev/basalt/deploy/install"
)

func TestMain(m *testing.M) { localtest.Run(m) }

// must fails the test for an error of what is only the way to the point.
func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

var definitions struct {
	once sync.Once
	err  error
}

// cluster is the shared API server with our kinds and our namespace.
func cluster(t *testing.T) *local.Cluster {
	t.Helper()
	c := localtest.Shared(t)
	definitions.once.Do(func() {
		objects, err := deploy.CRDs()
		if err == nil {
			more, e := deploy.Objects("namespace.yaml")
			objects, err = append(objects, more...), e
		}
		if err == nil {
			err = install.Apply(context.Background(), c.Config(local.Admin), objects, false)
		}
		definitions.err = err
	})
	if definitions.err != nil {
		t.Fatal(definitions.err)
	}
	return c
}

func basalt(t *testing.T) *rest.RESTClient {
	return basaltOf(t, cluster(t))
}

func basaltOf(t *testing.T, c *local.Cluster) *rest.RESTClient {
	return must[*rest.RESTClient](t)(client.New(c.Config(local.Admin)))
}

func TestEverythingApplies(t *testing.T) {
	c := cluster(t)
	paths := must[[]string](t)(deploy.Kustomization())
	// No file is forgotten in the kustomization.
	all := must[[]string](t)(fs.Glob(deploy.Files, "*.yaml"))
	all = slices.DeleteFunc(all, func(p string) bool { return p == "kustomization.yaml" })
	listed := slices.Sorted(slices.Values(paths))
	if slices.Sort(all); !slices.Equal(all, listed) {
		t.Errorf("kustomization.yaml lists %v, the folder has %v", listed, all)
	}
	examples := must[[]string](t)(fs.Glob(deploy.Files, "examples/*.yaml"))
	examples = append(examples, must[[]string](t)(fs.Glob(deploy.Files, "examples/production/*.yaml"))...)
	for _, path := range append(paths, examples...) {
		t.Run(path, func(t *testing.T) {
			objects, err := deploy.Objects(path)
			if err != nil || len(objects) == 0 {
				t.Fatalf("%d objects, %v", len(objects), err)
			}
			if err := install.Apply(t.Context(), c.Config(local.Admin), objects, true); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestRights(t *testing.T) {
	c := cluster(t)
	objects, err := deploy.Objects("rbac.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := install.Apply(t.Context(), c.Config(local.Admin), objects, false); err != nil {
		t.Fatal(err)
	}
	admin := must[*kubernetes.Clientset](t)(kubernetes.NewForConfig(c.Config(local.Admin)))
	const shard, coordinator, etcd = local.Shard, local.Coordinator, "system:serviceaccount:basalt-system:basalt-etcd"
	const audit = "system:serviceaccount:basalt-system:basalt-audit"
	ours := v1beta1.GroupName
	for _, row := range []struct {
		user, group, resource, verbs string
		may                          bool
	}{
		{shard, "", "nodes", "list watch", true},
		{shard, "", "pods", "get list watch delete", true},
		{shard, "", "namespaces", "list watch", true},
		{shard, "scheduling.k8s.io", "priorityclasses", "list watch", true},
		{shard, "policy", "poddisruptionbudgets", "list watch", true},
		{shard, "policy", "poddisruptionbudgets", "create update patch delete", false},
		{shard, ours, "queues", "list watch", true},
		{shard, ours, "podgroups", "list watch", true},
		{shard, "scheduling.volcano.sh", "podgroups", "list watch", true},
		{shard, "scheduling.volcano.sh", "podgroups", "create update patch delete", false},
		{shard, "storage.k8s.io", "csistoragecapacities", "list watch", true},
		{shard, "storage.k8s.io", "volumeattachments", "list watch", true},
		{shard, "", "persistentvolumeclaims", "list watch patch", true},
		{shard, "", "persistentvolumeclaims", "create update delete", false},
		{shard, "", "persistentvolumes", "list watch patch", true},
		{shard, "", "persistentvolumes", "create update delete", false},
		{shard, "", "pods/binding", "create", true},
		{shard, "", "pods/status", "patch", true},
		{shard, ours, "queues/status", "patch", true},
		{shard, ours, "podgroups/status", "patch", true},
		{shard, "events.k8s.io", "events", "create patch", true},
		{shard, "", "pods", "create update patch deletecollection", false},
		{shard, "", "pods/ephemeralcontainers", "update patch", false},
		{shard, "", "pods/resize", "update patch", false},
		{shard, "", "pods/status", "update", false},
		{shard, "", "nodes", "create update patch delete", false},
		{shard, "", "secrets", "get list watch", false},
		{shard, ours, "queues", "create update patch delete", false},
		{shard, ours, "podgroups", "create update patch delete", false},
		{shard, ours, "shards", "list", false},
		{shard, ours, "shards/drain", "create", false},
		{coordinator, ours, "queues", "get list watch create patch", true},
		{coordinator, "", "namespaces", "list watch", true},
		{coordinator, "", "namespaces", "get create update patch delete", false},
		{coordinator, ours, "queues", "update delete deletecollection", false},
		{coordinator, ours, "queues/status", "patch update", false},
		{coordinator, ours, "podgroups", "get list watch", false},
		{coordinator, "", "pods", "get list watch patch delete", false},
		{coordinator, "", "pods/binding", "create", false},
		{coordinator, "", "secrets", "get list watch", false},
		{audit, "", "pods", "list watch", true},
		{audit, "", "nodes", "list watch", true},
		{audit, "", "namespaces", "list watch", true},
		{audit, "", "persistentvolumeclaims", "list watch", true},
		{audit, "", "persistentvolumes", "list watch", true},
		{audit, "storage.k8s.io", "csinodes", "list watch", true},
		{audit, ours, "queues", "list watch", true},
		{audit, ours, "podgroups", "list watch", true},
		{audit, "scheduling.volcano.sh", "podgroups", "list watch", true},
		{audit, "", "pods", "create update patch delete", false},
		{audit, "", "pods/binding", "create", false},
		{audit, ours, "queues/status", "patch", false},
		{audit, "", "secrets", "get list watch", false},
		{shard, "apiregistration.k8s.io", "apiservices", "get patch", false},
		{shard, "visibility.basalt.dev", "status", "list", false},
		{etcd, "", "pods", "get list", false},
		{etcd, ours, "queues", "get list", false},
	} {
		for _, verb := range strings.Fields(row.verbs) {
			resource, sub, _ := strings.Cut(row.resource, "/")
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User: row.user, Groups: []string{"system:serviceaccounts", "system:authenticated"},
				ResourceAttributes: &authorizationv1.ResourceAttributes{Group: row.group, Resource: resource, Subresource: sub, Verb: verb, Namespace: "default"},
			}}
			ask := func(ctx context.Context) error {
				got, err := admin.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
				if err == nil && got.Status.Allowed != row.may {
					err = fmt.Errorf("allowed: %v (%s), want %v", got.Status.Allowed, got.Status.Reason, row.may)
				}
				return err
			}
			// The authorizer hears of new roles by watch: rights come within moments, and what it never gets it never had.
			localtest.Wait(t, time.Minute, fmt.Sprintf("%s to %s %s/%s", row.user, verb, row.group, row.resource), ask)
		}
	}
}

// Users ask through the API server where they view, and nowhere else; administrators' questions need roles of their
// own, in the whole cluster.
func TestRightsToAsk(t *testing.T) {
	c := cluster(t)
	objects := must[[]*unstructured.Unstructured](t)(deploy.Objects("rbac.yaml"))
	if err := install.Apply(t.Context(), c.Config(local.Admin), objects, false); err != nil {
		t.Fatal(err)
	}
	admin := must[*kubernetes.Clientset](t)(kubernetes.NewForConfig(c.Config(local.Admin)))
	subject := func(user string) []rbacv1.Subject {
		return []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: user}}
	}
	role := func(name string) rbacv1.RoleRef {
		return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}
	}
	must[*rbacv1.RoleBinding](t)(admin.RbacV1().RoleBindings("default").Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "ask-tenant"}, RoleRef: role("basalt-view"),
		Subjects: subject("ask-tenant")}, metav1.CreateOptions{}))
	must[*rbacv1.RoleBinding](t)(admin.RbacV1().RoleBindings("default").Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "ask-mistaken"}, RoleRef: role("basalt-drain"),
		Subjects: subject("ask-mistaken")}, metav1.CreateOptions{}))
	for user, of := range map[string]string{"ask-viewer": "basalt-view", "ask-watcher": "basalt-status",
		"ask-operator": "basalt-drain"} {
		must[*rbacv1.ClusterRoleBinding](t)(admin.RbacV1().ClusterRoleBindings().Create(t.Context(),
			&rbacv1.ClusterRoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: user}, RoleRef: role(of), Subjects: subject(user)}, metav1.CreateOptions{}))
	}
	// A path of the aggregated API, and who may ask at it.
	for path, may := range map[string]string{
		"get gangs/why default": "ask-tenant ask-viewer", "get queues/why default": "ask-tenant ask-viewer",
		"list queues default":  "ask-tenant ask-viewer",
		"list what-if default": "ask-tenant ask-viewer", "get gangs/why other": "ask-viewer",
		"list what-if other": "ask-viewer", "list queues other": "ask-viewer",
		"get queues/why": "ask-viewer", "list what-if": "ask-viewer", "list status": "ask-watcher ask-operator",
		"get shards/drain": "ask-operator", "update shards/drain": "ask-operator",
		"delete shards/drain": "ask-operator", "create shards/drain": "", "list gangs default": "",
	} {
		words := append(strings.Fields(path), "")
		resource, sub, _ := strings.Cut(words[1], "/")
		for _, user := range []string{"ask-tenant", "ask-mistaken", "ask-viewer", "ask-watcher", "ask-operator"} {
			localtest.Wait(t, time.Minute, user+" to "+path, func(ctx context.Context) error {
				got, err := admin.AuthorizationV1().SubjectAccessReviews().Create(ctx,
					&authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
						User: user, Groups: []string{"system:authenticated"}, ResourceAttributes: &authorizationv1.ResourceAttributes{
							Group: "visibility.basalt.dev", Resource: resource, Subresource: sub, Verb: words[0], Namespace: words[2]},
					}}, metav1.CreateOptions{})
				if want := slices.Contains(strings.Fields(may), user); err == nil && got.Status.Allowed != want {
					err = fmt.Errorf("allowed: %v, want %v", got.Status.Allowed, want)
				}
				return err
			})
		}
	}
	view := must[*rbacv1.ClusterRole](t)(admin.RbacV1().ClusterRoles().Get(t.Context(), "basalt-view",
		metav1.GetOptions{}))
	for _, of := range []string{"view", "edit", "admin"} {
		if view.Labels["rbac.authorization.k8s.io/aggregate-to-"+of] != "true" {
			t.Errorf("%s does not include basalt-view", of)
		}
	}
}

// Whoever has a shard's token runs no image of theirs in anybody's pod: all ways to write a pod are tried. What a shard does
// with pods it may do.
func TestShardsChangeNoSpec(t *testing.T) {
	c := cluster(t)
	objects, err := deploy.Objects("rbac.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := install.Apply(t.Context(), c.Config(local.Admin), objects, false); err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	admin := must[*kubernetes.Clientset](t)(kubernetes.NewForConfig(c.Config(local.Admin)))
	shard := must[*kube.Clients](t)(kube.ConnectConfig(c.Config(local.Shard), "test"))
	pods := admin.CoreV1().Pods("default")
	pod, err := pods.Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "victim", Labels: map[string]string{"app": "a"}},
		Spec:       corev1.PodSpec{SchedulerName: "basalt", Containers: []corev1.Container{{Name: "c", Image: "good"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	localtest.Wait(t, time.Minute, "the shard's rights", func(ctx context.Context) error {
		_, err := shard.Core.CoreV1().Pods("default").Get(ctx, "victim", metav1.GetOptions{})
		return err
	})
	me := kube.Pod{Namespace: "default", Name: "victim", UID: string(pod.UID)}
	const evil = `{"spec":{"containers":[{"name":"c","image":"evil"}]}}`
	for _, how := range []types.PatchType{types.MergePatchType, types.StrategicMergePatchType, types.ApplyPatchType, types.JSONPatchType} {
		for _, sub := range []string{"", "status", "binding", "ephemeralcontainers", "resize", "eviction"} {
			body := evil
			switch how {
			case types.JSONPatchType:
				body = `[{"op":"replace","path":"/spec/containers/0/image","value":"evil"}]`
			case types.ApplyPatchType:
				body = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"victim"},"spec":{"containers":[{"name":"c","image":"evil"}]}}`
			}
			o := metav1.PatchOptions{}
			if how == types.ApplyPatchType {
				force := true
				o.FieldManager, o.Force = "evil", &force
			}
			subresources := strings.Fields(sub)
			_, err := shard.Core.CoreV1().Pods("default").Patch(ctx, "victim", how, []byte(body), o, subresources...)
			if err == nil && sub != "status" {
				t.Errorf("%s of pods/%s is allowed", how, sub)
			}
		}
	}
	bad := pod.DeepCopy()
	bad.Spec.Containers[0].Image = "evil"
	if _, err := shard.Core.CoreV1().Pods("default").Update(ctx, bad, metav1.UpdateOptions{}); err == nil {
		t.Error("an update is allowed")
	}
	if _, err := shard.Core.CoreV1().Pods("default").UpdateStatus(ctx, bad, metav1.UpdateOptions{}); err == nil {
		t.Error("an update of the status is allowed")
	}
	now, err := pods.Get(ctx, "victim", metav1.GetOptions{})
	if err != nil || now.Spec.Containers[0].Image != "good" {
		t.Fatalf("the pod runs %q now, %v", now.Spec.Containers[0].Image, err)
	}
	// Everything that a shard does with a pod.
	if _, err := shard.ExplainPod(ctx, me, now.ResourceVersion, "Unschedulable", "no room"); err != nil {
		t.Error(err)
	}
	if now, err = pods.Get(ctx, "victim", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	found, err := shard.Resolve(ctx, me, now.ResourceVersion, "value")
	if err != nil || found.Version == now.ResourceVersion {
		t.Errorf("Resolve = %+v, %v", found, err)
	}
	if err := shard.Bind(ctx, me, found.Version, "n1", map[string]string{"a": "b"}, nil); err != nil {
		t.Error(err)
	}
	if err := shard.Evict(ctx, me, "test"); err != nil {
		t.Error(err)
	}
}

func TestPolicyKeepsTheGangLabel(t *testing.T) {
	c := cluster(t)
	objects, err := deploy.Objects("rbac.yaml", "policy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := install.Apply(t.Context(), c.Config(local.Admin), objects, false); err != nil {
		t.Fatal(err)
	}
	admin := must[*kubernetes.Clientset](t)(kubernetes.NewForConfig(c.Config(local.Admin))).CoreV1()
	pods := admin.Pods("default")
	shard := must[*kubernetes.Clientset](t)(kubernetes.NewForConfig(c.Config(local.Shard))).CoreV1().Pods("default")
	pod := func(name string, labels map[string]string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
			Spec: corev1.PodSpec{SchedulerName: api.SchedulerName, Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	}
	label := func(key, value string) []byte {
		return []byte(fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, key, value))
	}
	must[*corev1.Node](t)(admin.Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "policy"}}, metav1.CreateOptions{}))
	for _, name := range []string{"labelled", "unlabelled"} {
		must[*corev1.Pod](t)(pods.Create(t.Context(), pod(name, map[string]string{"app": "a"}), metav1.CreateOptions{}))
	}
	// A fresh policy takes a moment to be in force.
	localtest.Wait(t, time.Minute, "the policy to refuse a pod made with the label", func(ctx context.Context) error {
		_, err := pods.Create(ctx, pod("forged", map[string]string{api.LabelGang: "g"}), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil || !strings.Contains(err.Error(), "is set by Basalt alone") {
			return fmt.Errorf("answer: %v", err)
		}
		return nil
	})
	localtest.Wait(t, time.Minute, "the role to let a shard bind a pod", func(ctx context.Context) error {
		return shard.Bind(ctx, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "labelled",
			Labels:      map[string]string{api.LabelGang: "g"},
			Annotations: map[string]string{api.AnnotationUntil: api.FormatUntil(0)}},
			Target: corev1.ObjectReference{Kind: "Node", Name: "policy"}}, metav1.CreateOptions{})
	})
	if p := must[*corev1.Pod](t)(pods.Get(t.Context(), "labelled", metav1.GetOptions{})); p.Labels[api.LabelGang] != "g" ||
		p.Annotations[api.AnnotationUntil] != api.FormatUntil(0) {
		t.Fatalf("the Binding left the labels %v, and the annotations %v", p.Labels, p.Annotations)
	}
	until := func(value string) []byte {
		return []byte(fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, api.AnnotationUntil, value))
	}
	for _, row := range []struct {
		pod, field string
		edit       []byte
	}{
		{"labelled", "metadata.labels", label(api.LabelGang, `"h"`)},
		{"labelled", "metadata.labels", label(api.LabelGang, "null")},
		{"unlabelled", "metadata.labels", label(api.LabelGang, `"g"`)},
		{"labelled", "metadata.annotations", until(`"2027-01-01T00:00:00Z"`)},
		{"labelled", "metadata.annotations", until("null")},
		{"unlabelled", "metadata.annotations", until(`"2027-01-01T00:00:00Z"`)},
	} {
		_, err := pods.Patch(t.Context(), row.pod, types.MergePatchType, row.edit, metav1.PatchOptions{})
		if err == nil || !strings.Contains(err.Error(), row.field) {
			t.Errorf("%s on %s: %v", row.edit, row.pod, err)
		}
	}
	for _, name := range []string{"labelled", "unlabelled"} {
		if _, err := pods.Patch(t.Context(), name, types.MergePatchType, label("app", `"b"`), metav1.PatchOptions{}); err != nil {
			t.Errorf("another label: %v", err)
		}
	}
}

// warnings are those of one request.
type warnings []string

func (w *warnings) HandleWarningHeader(_ int, _ string, text string) { *w = append(*w, text) }

// The policy warns of words that only look like Basalt's, of Basalt's words where nobody reads them, and of pods that
// name no scheduler of Basalt's. It refuses nothing, and says nothing of what others write.
func TestPolicyWarnsOfWords(t *testing.T) {
	c := cluster(t)
	objects := must[[]*unstructured.Unstructured](t)(deploy.Objects("rbac.yaml", "policy.yaml"))
	if err := install.Apply(t.Context(), c.Config(local.Admin), objects, false); err != nil {
		t.Fatal(err)
	}
	var said warnings
	config := rest.CopyConfig(c.Config(local.Admin))
	config.WarningHandler = &said
	admin := must[*kubernetes.Clientset](t)(kubernetes.NewForConfig(config))
	namespaces := admin.CoreV1().Namespaces()
	for name, labels := range map[string]map[string]string{"words": nil, "words-queue": {api.LabelQueue: "q"},
		"words-required": {"scheduling.basalt.dev/scheduler": "required"}} {
		must[*corev1.Namespace](t)(namespaces.Create(t.Context(),
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, metav1.CreateOptions{}))
	}
	type m = map[string]string
	template := func(scheduler string, labels, annotations m) corev1.PodTemplateSpec {
		of := m{"app": "a"}
		maps.Copy(of, labels)
		return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: of, Annotations: annotations},
			Spec: corev1.PodSpec{SchedulerName: scheduler, RestartPolicy: corev1.RestartPolicyAlways,
				Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	}
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	pod := func(ctx context.Context, namespace string, of corev1.PodTemplateSpec, edits ...func(*corev1.Pod)) error {
		p := &corev1.Pod{ObjectMeta: of.ObjectMeta, Spec: of.Spec}
		p.Name = "p"
		for _, edit := range edits {
			edit(p)
		}
		_, err := admin.CoreV1().Pods(namespace).Create(ctx, p, dry)
		return err
	}
	deployment := func(labels m, of corev1.PodTemplateSpec) error {
		_, err := admin.AppsV1().Deployments("words").Create(t.Context(), &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: "d", Labels: labels},
			Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: m{"app": "a"}},
				Template: of}}, dry)
		return err
	}
	cron := func(of corev1.PodTemplateSpec) error {
		of.Spec.RestartPolicy = corev1.RestartPolicyNever
		_, err := admin.BatchV1().CronJobs("words").Create(t.Context(),
			&batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Name: "c"},
				Spec: batchv1.CronJobSpec{Schedule: "* * * * *",
					JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: of}}}}, dry)
		return err
	}
	namespace := func(labels m) error {
		_, err := namespaces.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "dry",
			Labels: labels}}, dry)
		return err
	}
	plain := template("", nil, nil)
	localtest.Wait(t, time.Minute, "the policies to be in force", func(ctx context.Context) error {
		said = nil
		_ = pod(ctx, "words", template("Basalt", nil, nil))
		if err := pod(ctx, "words-required", plain); err == nil || len(said) == 0 {
			return fmt.Errorf("it warns of %v, and refuses with %v", said, err)
		}
		return nil
	})
	all := m{api.LabelPodGroup: "g", api.LabelQueue: "q", api.LabelPreemptible: "true"}
	gang := m{api.AnnotationGangMin: "1", api.AnnotationGangName: "g", api.AnnotationGangLabels: "app"}
	owned := func(kind string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: "o", UID: "u",
				Controller: new(true)}}
		}
	}
	check := func(what string, make func() error, want ...string) {
		t.Helper()
		said = nil
		if err := make(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if len(said) != len(want) {
			t.Errorf("%s: it warns of %q, want %q", what, said, want)
			return
		}
		for _, words := range want {
			if !slices.ContainsFunc(said, func(w string) bool { return strings.Contains(w, words) }) {
				t.Errorf("%s: it warns of %q, want %q", what, said, words)
			}
		}
	}
	ctx := t.Context()
	check("all that there are", func() error { return pod(ctx, "words", template("basalt", all, gang)) })
	check("a pod of nobody's", func() error { return pod(ctx, "words", plain) })
	check("words of others", func() error {
		return pod(ctx, "words", template("other", m{"kueue.x-k8s.io/queue-name": "q", "basalt.dev/pool": "p"},
			m{"example.com/basalt": "x"}))
	})
	check("a slip", func() error {
		return pod(ctx, "words", template("basalt", m{"scheduling.basalt.dev/queues": "q"},
			nil))
	},
		"metadata.labels[scheduling.basalt.dev/queues] is no word of Basalt's")
	check("another domain", func() error {
		return pod(ctx, "words", template("basalt",
			m{"scheduling.basalt.io/queue": "q"}, nil))
	},
		"metadata.labels[scheduling.basalt.io/queue] is no word of Basalt's")
	check("a label as an annotation", func() error { return pod(ctx, "words", template("basalt", nil, all)) },
		"is no word of Basalt's and is ignored: its labels here are scheduling.basalt.dev/pod-group, ")
	check("of a Deployment", func() error {
		return deployment(nil, template("basalt", nil,
			m{"scheduling.basalt.dev/gang-mim": "2"}))
	},
		"spec.template.metadata.annotations[scheduling.basalt.dev/gang-mim] is no word")
	check("of a CronJob", func() error { return cron(template("basalt", m{"scheduling.basalt.dev/Queue": "q"}, nil)) },
		"spec.jobTemplate.spec.template.metadata.labels[scheduling.basalt.dev/Queue] is no word")
	check("on the Deployment itself", func() error {
		return deployment(m{api.LabelQueue: "q"}, template("basalt", nil,
			nil))
	},
		"scheduling.basalt.dev/queue says nothing to Basalt here: write it in spec.template.metadata")
	check("in both places", func() error { return deployment(m{api.LabelQueue: "q"}, template("basalt", all, nil)) })
	for _, name := range []string{"Basalt", "BASALT", "basalt-scheduler", "bassalt", "baslat"} {
		check("scheduler "+name, func() error { return deployment(nil, template(name, nil, nil)) },
			"spec.template.spec.schedulerName is "+name+", which is no scheduler of Basalt's: write basalt")
	}
	for _, name := range []string{"basalt", "basalt-canary", "cobalt", "volcano"} {
		check("scheduler "+name, func() error { return deployment(nil, template(name, nil, nil)) })
	}
	const forgotten = "schedulerName is default-scheduler: Basalt does not place the pod"
	check("a forgotten scheduler", func() error { return pod(ctx, "words", template("", all, nil)) }, forgotten)
	check("that of a Deployment", func() error { return deployment(nil, template("", nil, gang)) }, forgotten)
	check("in a namespace with a queue", func() error { return pod(ctx, "words-queue", plain) }, forgotten)
	check("of a controller's pod", func() error { return pod(ctx, "words-queue", plain, owned("ReplicaSet")) })
	check("a namespace", func() error {
		return namespace(m{api.LabelQueue: "q",
			"scheduling.basalt.dev/gangs": "enabled"})
	})
	check("a namespace's slip", func() error { return namespace(m{"scheduling.basalt.dev/queues": "q"}) },
		"metadata.labels[scheduling.basalt.dev/queues] is no word of Basalt's")

	// Where a scheduler is required, pods without one are refused, but for those that no scheduler of ours is to place.
	if err := pod(ctx, "words-required", plain); err == nil || !strings.Contains(err.Error(),
		"requires one: write basalt") {
		t.Errorf("a pod without a scheduler: %v", err)
	}
	check("with one", func() error { return pod(ctx, "words-required", template("basalt", nil, nil)) })
	check("with another", func() error { return pod(ctx, "words-required", template("other", nil, nil)) })
	check("of a DaemonSet", func() error { return pod(ctx, "words-required", plain, owned("DaemonSet")) })
	localtest.Needs(t, "1.36", "a policy that sets a scheduler")
	objects = must[[]*unstructured.Unstructured](t)(deploy.Objects("gangs/workloads.yaml"))
	if err := install.Apply(ctx, c.Config(local.Admin), objects, false); err != nil {
		t.Fatal(err)
	}
	localtest.Wait(t, time.Minute, "the policy to set a scheduler", func(ctx context.Context) error {
		return pod(ctx,
			"words-required", plain)
	})
}

// A shard's credentials change of claims and volumes what having them bound takes, and nothing else.
func TestPolicyNarrowsPatchesOfVolumes(t *testing.T) {
	c := cluster(t)
	objects := must[[]*unstructured.Unstructured](t)(deploy.Objects("rbac.yaml", "policy.yaml"))
	if err := install.Apply(t.Context(), c.Config(local.Admin), objects, false); err != nil {
		t.Fatal(err)
	}
	admin := must[*kubernetes.Clientset](t)(kubernetes.NewForConfig(c.Config(local.Admin))).CoreV1()
	shard := must[*kubernetes.Clientset](t)(kubernetes.NewForConfig(c.Config(local.Shard))).CoreV1()
	clients := must[*kube.Clients](t)(kube.ConnectConfig(c.Config(local.Shard), "test"))
	size := corev1.ResourceList{"storage": resource.MustParse("1Gi")}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	claim := must[*corev1.PersistentVolumeClaim](t)(admin.PersistentVolumeClaims("default").Create(t.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "narrow", Annotations: map[string]string{"a": "1"}},
		Spec:       corev1.PersistentVolumeClaimSpec{AccessModes: modes, StorageClassName: new("late"), Resources: corev1.VolumeResourceRequirements{Requests: size}}}, metav1.CreateOptions{}))
	volume := must[*corev1.PersistentVolume](t)(admin.PersistentVolumes().Create(t.Context(), &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "narrow", Labels: map[string]string{"disk": "fast"}},
		Spec: corev1.PersistentVolumeSpec{AccessModes: modes, StorageClassName: "late", Capacity: size,
			PersistentVolumeSource: corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "s", Path: "/"}}}}, metav1.CreateOptions{}))
	patchClaim := func(ctx context.Context, patch string) error {
		_, err := shard.PersistentVolumeClaims("default").Patch(ctx, "narrow", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	}
	patchVolume := func(ctx context.Context, patch string) error {
		_, err := shard.PersistentVolumes().Patch(ctx, "narrow", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	}
	const ofClaim, ofVolume = "nothing of a claim but the annotation", "nothing of a volume but spec.claimRef"
	refuses := func(patch func(context.Context, string) error, edit, words string) func(context.Context) error {
		return func(ctx context.Context) error {
			if err := patch(ctx, edit); err == nil || !strings.Contains(err.Error(), words) {
				return fmt.Errorf("answer to %s: %v", edit, err)
			}
			return nil
		}
	}
	// A fresh policy takes a moment to be in force.
	tries := 0
	refusesLabels := func(patch func(context.Context, string) error, words string) func(context.Context) error {
		return func(ctx context.Context) error { // another one each time: what changes nothing is not judged
			tries++
			return refuses(patch, fmt.Sprintf(`{"metadata":{"labels":{"forged":"%d"}}}`, tries), words)(ctx)
		}
	}
	localtest.Wait(t, time.Minute, "the policy to refuse a label of a claim", refusesLabels(patchClaim, ofClaim))
	localtest.Wait(t, time.Minute, "the policy to refuse a label of a volume", refusesLabels(patchVolume, ofVolume))
	for _, edit := range []string{`{"metadata":{"annotations":{"a":"2"}}}`, `{"metadata":{"annotations":{"a":null}}}`, `{"metadata":{"annotations":{"b":"1"}}}`,
		`{"metadata":{"finalizers":["example.com/forged"]}}`, `{"spec":{"volumeName":"narrow"}}`} {
		if err := refuses(patchClaim, edit, ofClaim)(t.Context()); err != nil {
			t.Error(err)
		}
	}
	for _, edit := range []string{`{"metadata":{"annotations":{"b":"1"}}}`, `{"metadata":{"labels":{"disk":null}}}`, `{"spec":{"persistentVolumeReclaimPolicy":"Delete"}}`,
		`{"spec":{"capacity":{"storage":"2Gi"}}}`, `{"spec":{"storageClassName":"other"}}`, `{"spec":{"accessModes":["ReadWriteMany"]}}`, `{"spec":{"mountOptions":["x"]}}`} {
		if err := refuses(patchVolume, edit, ofVolume)(t.Context()); err != nil {
			t.Error(err)
		}
	}
	// What shards do.
	claim = must[*corev1.PersistentVolumeClaim](t)(admin.PersistentVolumeClaims("default").Get(t.Context(), "narrow", metav1.GetOptions{}))
	object := func(o metav1.Object) api.ObjectVersion {
		return api.ObjectVersion{Namespace: o.GetNamespace(), Name: o.GetName(), UID: string(o.GetUID()),
			Version: o.GetResourceVersion()}
	}
	for _, node := range []string{"n1", ""} {
		of := object(claim)
		of.Version = must[*corev1.PersistentVolumeClaim](t)(admin.PersistentVolumeClaims("default").Get(t.Context(), "narrow", metav1.GetOptions{})).ResourceVersion
		if _, err := clients.SelectNode(t.Context(), of, node); err != nil {
			t.Errorf("select node %q: %v", node, err)
		}
	}
	if _, err := clients.KeepVolume(t.Context(), object(volume), object(claim)); err != nil {
		t.Errorf("name the claim in the volume: %v", err)
	}
	if err := refuses(patchVolume, `{"spec":{"claimRef":{"name":"other"}}}`, "a shard may name a claim only in a volume that names none")(t.Context()); err != nil {
		t.Error(err)
	}
	// Nobody else is concerned.
	if _, err := admin.PersistentVolumes().Patch(t.Context(), "narrow", types.MergePatchType, []byte(`{"metadata":{"labels":{"disk":"slow"}}}`), metav1.PatchOptions{}); err != nil {
		t.Errorf("another user: %v", err)
	}
}

func TestPolicyBoundsMetadata(t *testing.T) {
	c := cluster(t)
	objects := must[[]*unstructured.Unstructured](t)(deploy.Objects("rbac.yaml", "policy.yaml"))
	const name = "basalt-metadata-size"
	bindings := must[*kubernetes.Clientset](t)(kubernetes.NewForConfig(c.Config(local.Admin))).AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	if err := bindings.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	object := func(resource, name string, metadata map[string]any) string {
		metadata["name"] = name
		kind, spec := "Queue", map[string]any{}
		if resource == "podgroups" {
			kind, spec = "PodGroup", map[string]any{"schedulingPolicy": map[string]any{"gang": map[string]any{"minCount": 1}}}
		}
		return string(must[[]byte](t)(json.Marshal(map[string]any{"apiVersion": v1beta1.SchemeGroupVersion.String(), "kind": kind, "metadata": metadata, "spec": spec})))
	}
	annotation := func(bytes int) map[string]any {
		return map[string]any{"annotations": map[string]any{"a": strings.Repeat("x", bytes)}}
	}
	many := func(n, each int) map[string]any {
		all := map[string]any{}
		for i := range n {
			text := fmt.Sprintf("x%d", i)
			text += strings.Repeat("y", each-len(text))
			all[text] = text
		}
		return all
	}
	owners, finalizers := []any{}, []any{}
	for i := range 400 {
		owners = append(owners, map[string]any{"apiVersion": "v1", "kind": "Node", "name": fmt.Sprintf("n-%d", i), "uid": strings.Repeat("u", 36)})
		finalizers = append(finalizers, fmt.Sprintf("example.com/%060d", i))
	}
	fields := map[string]any{}
	for key := range many(600, 60) {
		fields["f:"+key] = map[string]any{}
	}
	written := map[string]any{"manager": "m", "operation": "Apply", "apiVersion": v1beta1.SchemeGroupVersion.String(), "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1",
		"fieldsV1": map[string]any{"f:metadata": map[string]any{"f:labels": fields}}}
	full := map[string]any{"labels": many(3_500, 60), "annotations": map[string]any{"a": strings.Repeat("x", 250<<10)}}

	// What is larger already, from before the policy.
	create := func(ctx context.Context, resource, body string, options ...string) error {
		r := basalt(t).Post().Resource(resource).NamespaceIfScoped("default", resource == "podgroups").Body([]byte(body))
		for _, o := range options {
			r = r.Param(o, metav1.DryRunAll)
		}
		return r.Do(ctx).Error()
	}
	large := func() map[string]any {
		return map[string]any{"annotations": annotation(40_000)["annotations"], "finalizers": []any{"example.com/keep"}}
	}
	for _, resource := range []string{"podgroups", "queues"} {
		localtest.Wait(t, time.Minute, "a large object to be allowed without the policy", func(ctx context.Context) error {
			return create(ctx, resource, object(resource, "large", large()))
		})
	}
	if err := install.Apply(t.Context(), c.Config(local.Admin), objects, false); err != nil {
		t.Fatal(err)
	}
	localtest.Wait(t, time.Minute, "the policy to refuse a PodGroup with large annotations", func(ctx context.Context) error {
		err := create(ctx, "podgroups", object("podgroups", "annotated", annotation(16<<10)), "dryRun")
		if err == nil || !strings.Contains(err.Error(), `"annotated"`) || !strings.Contains(err.Error(), "metadata: at most 16384 bytes are allowed") {
			return fmt.Errorf("answer: %v", err)
		}
		return nil
	})
	for _, resource := range []string{"podgroups", "queues"} {
		for _, row := range []struct {
			what     string
			metadata map[string]any
			allowed  bool
		}{
			{"plain", map[string]any{}, true},
			{"ten annotations and labels", map[string]any{"annotations": many(10, 60), "labels": many(10, 60)}, true},
			{"one long annotation", annotation(15_000), true},
			{"labels", map[string]any{"labels": many(300, 60)}, false},
			{"annotations in characters of four bytes", map[string]any{"annotations": map[string]any{"a": strings.Repeat("\U0001F600", 5_000)}}, false},
			{"finalizers", map[string]any{"finalizers": finalizers}, false},
			{"owner references", map[string]any{"ownerReferences": owners}, false},
			{"managed fields", map[string]any{"managedFields": []any{written}}, false},
			{"all that the API server takes", full, false},
		} {
			t.Run(resource+", "+row.what, func(t *testing.T) {
				err := create(t.Context(), resource, object(resource, "sized", row.metadata), "dryRun")
				switch {
				case row.allowed && err != nil:
					t.Error(err)
				case !row.allowed && (!apierrors.IsRequestEntityTooLargeError(err) || !strings.Contains(err.Error(), "metadata: at most 16384 bytes")):
					t.Errorf("answer: %v", err)
				}
			})
		}
		patch := func(user, subresource, body string) error {
			client := must[*rest.RESTClient](t)(client.New(c.Config(user)))
			r := client.Patch(types.MergePatchType).Resource(resource).NamespaceIfScoped("default", resource == "podgroups").Name("large").Body([]byte(body))
			if subresource != "" {
				r = r.SubResource(subresource)
			}
			return r.Do(t.Context()).Error()
		}
		if err := patch(local.Admin, "", `{"metadata":{"labels":{"more":"still-more"}}}`); !apierrors.IsRequestEntityTooLargeError(err) {
			t.Errorf("a large object of %s grows: %v", resource, err)
		}
		if err := patch(local.Shard, "status", `{"status":{"epoch":1,"writer":"w","sequence":1}}`); err != nil {
			t.Errorf("a status of a large object of %s: %v", resource, err)
		}
		if err := patch(local.Admin, "", `{"metadata":{"finalizers":null}}`); err != nil {
			t.Errorf("the finalizers of a large object of %s: %v", resource, err)
		}
		if resource == "queues" {
			if err := patch(local.Coordinator, "", `{"metadata":{"finalizers":["`+v1beta1.FinalizerCharged+`"]}}`); err != nil {
				t.Errorf("Basalt's finalizer: %v", err)
			}
			if err := patch(local.Admin, "", `{"metadata":{"finalizers":null,"annotations":null}}`); err != nil {
				t.Error(err)
			}
		}
	}
}

// create asks the API server what it would say to an object, and keeps nothing.
func create(t *testing.T, resource, body string) error {
	t.Helper()
	r := basalt(t).Post().Resource(resource).Param("dryRun", metav1.DryRunAll).Param("fieldValidation", metav1.FieldValidationStrict)
	if resource == "podgroups" {
		r = r.Namespace("default")
	}
	return r.Body([]byte(body)).Do(t.Context()).Error()
}

func queue(name, spec string) string {
	return fmt.Sprintf(`{"apiVersion":"scheduling.basalt.dev/v1beta1","kind":"Queue","metadata":{"name":%q},"spec":%s}`, name, spec)
}

func podGroup(name, spec string) string {
	return fmt.Sprintf(`{"apiVersion":"scheduling.basalt.dev/v1beta1","kind":"PodGroup","metadata":{"name":%q},"spec":%s}`, name, spec)
}

func TestBadInputIsRefused(t *testing.T) {
	long := strings.Repeat("a", 64)
	many := map[string]string{}
	for i := range 64 {
		many[fmt.Sprintf("%s.example.com/%s-%02d", strings.Repeat("d", 60), strings.Repeat("r", 58), i)] = "-1234567890.123456789e12"
	}
	full, err := json.Marshal(map[string]any{"capability": many, "guarantee": many})
	if err != nil {
		t.Fatal(err)
	}
	many["one.more/resource"] = "1"
	tooMany, err := json.Marshal(map[string]any{"capability": many})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		what, resource, body string
		says                 []string // all of these
	}{
		{"negative", "queues", queue("q", `{"capability":{"memory":"-1Gi"}}`), []string{"spec.capability", "memory: -1Gi", "is negative", "write 0"}},
		{"negative number", "queues", queue("q", `{"capability":{"cpu":-1}}`), []string{"spec.capability", "cpu: -1", "is negative"}},
		{"9E cores", "queues", queue("q", `{"capability":{"cpu":"9E"}}`), []string{"spec.capability", "cpu: 9E", "above what is accepted: 1G cores"}},
		{"9E bytes", "queues", queue("q", `{"guarantee":{"memory":"9E"}}`), []string{"spec.guarantee", "memory: 9E", "1Ei bytes"}},
		{"one core too many", "queues", queue("q", `{"capability":{"cpu":"1000000001"}}`), []string{"spec.capability", "cpu: 1000000001", "above what is accepted"}},
		{"one byte too many", "queues", queue("q", `{"capability":{"ephemeral-storage":"1152921504606846977"}}`), []string{"spec.capability", "ephemeral-storage: 1152921504606846977", "above what is accepted"}},
		{"past int64", "queues", queue("q", `{"capability":{"pods":"99999999999999999999"}}`), []string{"spec.capability", "pods: 99999999999999999999", "above what is accepted"}},
		{"16Ei, which reads as the largest int64", "queues", queue("q", `{"capability":{"memory":"16Ei"}}`), []string{"spec.capability", "memory: 16Ei", "above what is accepted"}},
		{"1e400", "queues", queue("q", `{"capability":{"cpu":"1e400"}}`), []string{"spec.capability", "cpu: 1e400", "is no amount"}},
		{"an exponent that takes minutes to compare", "queues", queue("q", `{"capability":{"cpu":"1e2000000000"},"guarantee":{"cpu":"1e-2000000000"}}`),
			[]string{"spec.capability", "cpu: 1e2000000000", "spec.guarantee", "cpu: 1e-2000000000", "is no amount"}},
		{"an exponent with a fraction", "queues", queue("q", `{"capability":{"cpu":"1e1.5"}}`), []string{"spec.capability", "cpu: 1e1.5", "is no amount"}},
		{"words", "queues", queue("q", `{"capability":{"memory":"lots"}}`), []string{"spec.capability", "memory: lots", "is no amount"}},
		{"nothing", "queues", queue("q", `{"capability":{"memory":""}}`), []string{"spec.capability", "memory: ", "is no amount"}},
		{"a wrong suffix", "queues", queue("q", `{"capability":{"memory":"4GB"}}`), []string{"spec.capability", "memory: 4GB", "is no amount"}},
		{"a JSON fraction", "queues", queue("q", `{"capability":{"cpu":0.5}}`), []string{"spec.capability.cpu", "integer,string"}},
		{"a JSON number past int64", "queues", queue("q", `{"capability":{"cpu":1e400}}`), []string{"1e400"}},
		{"too long", "queues", queue("q", `{"capability":{"cpu":"`+strings.Repeat("1", 33)+`"}}`), []string{"spec.capability.cpu", "Too long"}},
		{"finer than a millicore", "queues", queue("q", `{"capability":{"cpu":"0.0005"}}`), []string{"spec.capability", "cpu: 0.0005", "whole millicores"}},
		{"microcores", "queues", queue("q", `{"guarantee":{"cpu":"1500u"}}`), []string{"spec.guarantee", "cpu: 1500u", "whole millicores"}},
		{"finer than a byte", "queues", queue("q", `{"capability":{"memory":"0.1Gi"}}`), []string{"spec.capability", "memory: 0.1Gi", "whole bytes"}},
		{"millibytes", "queues", queue("q", `{"capability":{"memory":"100m"}}`), []string{"spec.capability", "memory: 100m", "whole bytes"}},
		{"half a device", "queues", queue("q", `{"capability":{"example.com/gpu":"1.5"}}`), []string{"spec.capability", "example.com/gpu: 1.5", "is not a whole number"}},
		{"a milli-device", "queues", queue("q", `{"capability":{"example.com/gpu":"500m"}}`), []string{"spec.capability", "example.com/gpu: 500m", "is not a whole number"}},
		{"half a pod", "queues", queue("q", `{"capability":{"pods":"0.5"}}`), []string{"spec.capability", "pods: 0.5", "is not a whole number"}},
		{"an unknown resource", "queues", queue("q", `{"capability":{"gpu":"1"}}`), []string{"spec.capability", `"gpu"`, "cannot be limited"}},
		{"a quota's name of a resource", "queues", queue("q", `{"guarantee":{"requests.cpu":"1"}}`), []string{"spec.guarantee", `"requests.cpu"`, "cannot be limited"}},
		{"a guarantee above the capability", "queues", queue("q", `{"capability":{"cpu":"1","memory":"4Gi"},"guarantee":{"cpu":"1001m","memory":"4Gi"}}`), []string{"spec.guarantee", "cpu: 1001m", "is above spec.capability"}},
		{"a policy that does not exist", "queues", queue("q", `{"reclaimPolicy":"Always"}`), []string{"spec.reclaimPolicy", `"Deserved", "FairShare", "Never"`}},
		{"preemption by a word of nobody", "queues", queue("q", `{"preemptionPolicy":"never"}`), []string{"spec.preemptionPolicy", `"Never", "PreemptLowerPriority"`}},
		{"a negative duration", "queues", queue("q", `{"reclaimMinRuntime":"-1s"}`), []string{"spec.reclaimMinRuntime", "must be a duration such as 30s, 10m or 1h30m, and not negative"}},
		{"a duration without a unit", "queues", queue("q", `{"preemptMinRuntime":"10"}`), []string{"spec.preemptMinRuntime", "must be a duration such as"}},
		{"a number for a duration", "queues", queue("q", `{"preemptionDelay":10}`), []string{"spec.preemptionDelay", "string"}},
		{"a duration in days", "queues", queue("q", `{"preemptionDelay":"1d"}`), []string{"spec.preemptionDelay", "must be a duration such as"}},
		{"no duration at all", "queues", queue("q", `{"preemptionDelay":""}`), []string{"spec.preemptionDelay", "must be a duration such as"}},
		{"more than a week", "queues", queue("q", `{"reclaimMinRuntime":"168h0m1s"}`), []string{"spec.reclaimMinRuntime", "must be at most 168h"}},
		{"more than a lifetime", "queues", queue("q", `{"reclaimMinRuntime":"999999h999999h999999h999999h"}`), []string{"spec.reclaimMinRuntime"}},
		{"a very long duration", "queues", queue("q", `{"reclaimMinRuntime":"`+strings.Repeat("1h", 17)+`"}`), []string{"spec.reclaimMinRuntime", "Too long"}},
		{"as many bad amounts as can be", "queues", queue("q", string(full)), []string{"spec.capability", "spec.guarantee", "is negative"}},
		{"too many resources", "queues", queue("q", string(tooMany)), []string{"spec.capability", "must have at most 64 items"}},
		{"an unknown field", "queues", queue("q", `{"parent":"root"}`), []string{"spec.parent"}},
		{"a name under root", "queues", queue("root.team", `{}`), []string{"metadata.name", "omit the leading 'root.'"}},
		{"a long name", "queues", queue(long, `{}`), []string{"metadata.name", "at most 63 characters", "64"}},
		{"nine levels", "queues", queue("a.b.c.d.e.f.g.h.i", `{}`), []string{"metadata.name", "at most 8 levels", "9"}},
		{"no path", "queues", queue("Team_A", `{}`), []string{"metadata.name"}},
		{"an empty level", "queues", queue("a..b", `{}`), []string{"metadata.name"}},

		{"minCount of 0", "podgroups", podGroup("g", `{"schedulingPolicy":{"gang":{"minCount":0}}}`), []string{"spec.schedulingPolicy.gang.minCount", "greater than or equal to 1"}},
		{"minCount of a million", "podgroups", podGroup("g", `{"schedulingPolicy":{"gang":{"minCount":1000000}}}`), []string{"spec.schedulingPolicy.gang.minCount", "less than or equal to 100000"}},
		{"minCount past int32", "podgroups", podGroup("g", `{"schedulingPolicy":{"gang":{"minCount":4294967297}}}`), []string{"spec.schedulingPolicy.gang.minCount"}},
		{"no minCount", "podgroups", podGroup("g", `{"schedulingPolicy":{"gang":{}}}`), []string{"spec.schedulingPolicy.gang.minCount", "Required"}},
		{"no policy", "podgroups", podGroup("g", `{"queue":"a"}`), []string{"spec.schedulingPolicy", "Required"}},
		{"no spec", "podgroups", `{"apiVersion":"scheduling.basalt.dev/v1beta1","kind":"PodGroup","metadata":{"name":"g"}}`, []string{"spec", "Required"}},
		{"a queue that is no path", "podgroups", podGroup("g", `{"queue":"Team_A","schedulingPolicy":{"gang":{"minCount":1}}}`), []string{"spec.queue", "must be the path of a queue"}},
		{"a queue under root", "podgroups", podGroup("g", `{"queue":"root.a","schedulingPolicy":{"gang":{"minCount":1}}}`), []string{"spec.queue", "omit the leading 'root.'"}},
		{"a queue of nine levels", "podgroups", podGroup("g", `{"queue":"a.b.c.d.e.f.g.h.i","schedulingPolicy":{"gang":{"minCount":1}}}`), []string{"spec.queue", "at most 8 levels"}},
		{"a long queue", "podgroups", podGroup("g", `{"queue":"`+long+`","schedulingPolicy":{"gang":{"minCount":1}}}`), []string{"spec.queue", "Too long"}},
		{"an empty queue", "podgroups", podGroup("g", `{"queue":"","schedulingPolicy":{"gang":{"minCount":1}}}`), []string{"spec.queue"}},
		{"a priority class that is no name", "podgroups", podGroup("g", `{"priorityClassName":"a b","schedulingPolicy":{"gang":{"minCount":1}}}`), []string{"spec.priorityClassName"}},
		{"a timeout of a day", "podgroups", podGroup("g",
			`{"scheduleTimeoutSeconds":86400,"schedulingPolicy":{"gang":{"minCount":1}}}`),
			[]string{"spec.scheduleTimeoutSeconds", "less than or equal to 600"}},
		{"a minimum that is no amount", "podgroups", podGroup("g",
			`{"minResources":{"cpu":"lots"},"schedulingPolicy":{"gang":{"minCount":1}}}`),
			[]string{"spec.minResources", "cpu: lots", "is no amount"}},
		{"a negative minimum", "podgroups", podGroup("g",
			`{"minResources":{"cpu":"-1"},"schedulingPolicy":{"gang":{"minCount":1}}}`),
			[]string{"spec.minResources", "cpu: -1", "is negative"}},
		{"a minimum of a quota's key", "podgroups", podGroup("g",
			`{"minResources":{"requests.cpu":"1"},"schedulingPolicy":{"gang":{"minCount":1}}}`),
			[]string{"spec.minResources", "requests.cpu", "cannot be limited"}},
		{"repair for ever", "queues", queue("q", `{"repairFor":"169h"}`), []string{"spec.repairFor", "must be at most 168h"}},
		{"a time before the past", "queues", queue("q", `{"staleAfter":"-1m"}`), []string{"spec.staleAfter", "not negative"}},
		{"a limit of more than a year", "queues", queue("q", `{"maxRuntime":"8761h"}`),
			[]string{"spec.maxRuntime", "must be from 1s to 8760h"}},
		{"an order of nothing", "queues", queue("q", `{"order":""}`), []string{"spec.order", "at least 1"}},
		{"an order of blanks", "queues", queue("q", `{"order":" \n\t "}`), []string{"spec.order", "must be an expression"}},
		{"an order that is not printable", "queues", queue("q", `{"order":"1\u0000"}`),
			[]string{"spec.order", "in printable ASCII"}},
		{"an order in other letters", "queues", queue("q", `{"order":"size('\u00e9')"}`),
			[]string{"spec.order", "in printable ASCII"}},
		{"an order of 1,025 bytes", "queues", queue("q", `{"order":"`+strings.Repeat("1", 1025)+`"}`),
			[]string{"spec.order", "1024"}},
		{"a limit of nobody", "queues", queue("q", `{"userLimits":[{"capability":{"cpu":"1"}}]}`),
			[]string{"spec.userLimits[0]", "exactly one of", "users groups each"}},
		{"a limit of two kinds", "queues",
			queue("q", `{"userLimits":[{"users":["alice"],"groups":["staff"],"capability":{"cpu":"1"}}]}`),
			[]string{"spec.userLimits[0]", "exactly one of"}},
		{"a limit of nothing", "queues", queue("q", `{"userLimits":[{"each":true}]}`),
			[]string{"spec.userLimits[0].capability"}},
		{"a negative limit", "queues", queue("q", `{"userLimits":[{"each":true,"capability":{"cpu":"-1"}}]}`),
			[]string{"spec.userLimits[0].capability", "cpu: -1", "is negative"}},
		{"65 limits", "queues",
			queue("q", `{"userLimits":[`+strings.Repeat(`{"each":true,"capability":{"cpu":"1"}},`, 64)+
				`{"each":true,"capability":{"cpu":"1"}}]}`), []string{"spec.userLimits", "64"}},
		{"a user of 254 letters", "queues",
			queue("q", `{"userLimits":[{"users":["`+strings.Repeat("a", 254)+`"],"capability":{"cpu":"1"}}]}`),
			[]string{"spec.userLimits[0].users[0]", "253"}},
		{"half a gang", "queues", queue("q", `{"capability":{"scheduling.basalt.dev/gangs":"1500m"}}`),
			[]string{"spec.capability", "scheduling.basalt.dev/gangs", "1500m"}},
		{"no time at all", "queues", queue("q", `{"defaultRuntime":"0s"}`),
			[]string{"spec.defaultRuntime", "must be from 1s to 8760h"}},
		{"a gang of no time", "podgroups",
			podGroup("g", `{"maxRuntimeSeconds":0,"schedulingPolicy":{"gang":{"minCount":1}}}`),
			[]string{"spec.maxRuntimeSeconds", "greater than or equal to 1"}},
		{"a gate without a domain", "podgroups",
			podGroup("g", `{"gates":["budget"],"schedulingPolicy":{"gang":{"minCount":1}}}`),
			[]string{"spec.gates[0]", "must be a domain, a slash and a name"}},
		{"a gate twice", "podgroups",
			podGroup("g", `{"gates":["a.example/b","a.example/b"],"schedulingPolicy":{"gang":{"minCount":1}}}`),
			[]string{"spec.gates[1]", "Duplicate"}},
		{"nine gates", "podgroups",
			podGroup("g", `{"gates":["a/1","a/2","a/3","a/4","a/5","a/6","a/7","a/8","a/9"],`+
				`"schedulingPolicy":{"gang":{"minCount":1}}}`),
			[]string{"spec.gates", "at most 8"}},
		{"stale at once", "podgroups", podGroup("g", `{"staleAfter":"0s","schedulingPolicy":{"gang":{"minCount":1}}}`),
			[]string{"spec.staleAfter", "must be from 1s to 168h"}},
		{"a timeout of 0", "podgroups", podGroup("g", `{"scheduleTimeoutSeconds":0,"schedulingPolicy":{"gang":{"minCount":1}}}`), []string{"spec.scheduleTimeoutSeconds", "greater than or equal to 1"}},
		{"a name that is no label value", "podgroups", podGroup(long, `{"schedulingPolicy":{"gang":{"minCount":1}}}`), []string{"metadata.name", "at most 63 characters", "64"}},
		{"an unknown field", "podgroups", podGroup("g", `{"minMember":1,"schedulingPolicy":{"gang":{"minCount":1}}}`), []string{"spec.minMember"}},
	} {
		t.Run(row.resource+"/"+row.what, func(t *testing.T) {
			err := create(t, row.resource, row.body)
			if err == nil {
				t.Fatal("accepted")
			}
			for _, s := range row.says {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("%q is missing in: %.2000s", s, err)
				}
			}
		})
	}
}

// Every amount that the API server accepts can be kept exactly in the unit of its resource.
func TestGoodInputIsAccepted(t *testing.T) {
	amounts := map[string]map[string]int64{
		"cpu": {"1": 1000, "1.5": 1500, "0.001": 1, "1.5000": 1500, "1m": 1, "1500m": 1500, "2k": 2e6, "1.25k": 1.25e6, "1G": 1e12, "1e3": 1e6, "+1": 1000, ".5": 500,
			"5.": 5000, "1000000000": 1e12, "0.125Ki": 128e3},
		"memory": {"1": 1, "4Gi": 4 << 30, "1.5Gi": 1536 << 20, "0.25Ti": 1 << 38, "2.125Ki": 2176, "1.5G": 15e8, "1.0": 1, "1Ei": 1 << 60, "1152921504606846976": 1 << 60,
			"1000000000000000001": 1e18 + 1, "128974848": 128974848, "129e6": 129e6, "1.001k": 1001},
		"ephemeral-storage":           {"1E": 1e18, "12.5Pi": 12<<50 + 1<<49},
		"pods":                        {"110": 110, "2k": 2000},
		"hugepages-2Mi":               {"4Mi": 4 << 20},
		"example.com/gpu":             {"8": 8, "1k": 1000},
		"cloud.example.com/Fpga_v2.1": {"3": 3},
	}
	for _, name := range slices.Sorted(maps.Keys(amounts)) {
		for _, text := range slices.Sorted(maps.Keys(amounts[name])) {
			body := queue("q", fmt.Sprintf(`{"capability":{%q:%q},"guarantee":{%q:%q}}`, name, text, name, text))
			if err := create(t, "queues", body); err != nil {
				t.Errorf("%s: %s: %v", name, text, err)
			}
			q := v1beta1.Queue{}
			if err := json.Unmarshal([]byte(body), &q); err != nil {
				t.Fatal(err)
			}
			got, err := api.FromResourceList(q.Spec.Capability, false)
			if want := amounts[name][text]; err != nil || got.Value(name) != want {
				t.Errorf("%s: %s reads as %d (%v), want %d", name, text, got.Value(name), err, want)
			}
		}
	}
	for _, body := range []string{
		queue("root", `{}`), queue("roots.a", `{}`), queue("default", `{"closed":true}`), queue("a.b.c.d.e.f.g.h", `{}`), queue("0-a.b0", `{"capability":{"cpu":4}}`),
		queue(strings.Repeat("a", 63), `{"capability":{"cpu":"1"},"guarantee":{"memory":"1Gi"}}`),
		`{"apiVersion":"scheduling.basalt.dev/v1beta1","kind":"Queue","metadata":{"name":"no-spec"}}`,
		queue("no-gpus", `{"capability":{"nvidia.com/gpu":0,"cpu":"0m","memory":"-0"},"guarantee":{"nvidia.com/gpu":"0","pods":"0e3"}}`),
		queue("policies", `{"reclaimable":false,"reclaimPolicy":"FairShare","preemptionPolicy":"PreemptLowerPriority","reclaimMinRuntime":"168h","preemptMinRuntime":"0s","preemptionDelay":"1h30m0.5s"}`),
		queue("ordered", `{"order":"int(timestamp(annotations[\"example.com/deadline\"]))\n + size('\\u00e9')"}`),
		queue("repairs", `{"repairFor":"0s","staleAfter":"168h"}`),
		queue("users", `{"userLimits":[{"users":["alice","namespace ml"],"capability":{"nvidia.com/gpu":"64"}},`+
			`{"groups":["ml-interns"],"capability":{"scheduling.basalt.dev/gangs":"10"}},`+
			`{"each":true,"capability":{"cpu":"1500m"}}]}`),
		queue("gangs", `{"capability":{"scheduling.basalt.dev/gangs":"20"},"guarantee":{"scheduling.basalt.dev/gangs":2}}`),
		queue("limits", `{"maxRuntime":"8760h","defaultRuntime":"12h30m"}`),
		queue("defaults", `{"reclaimable":true,"reclaimPolicy":"Deserved","preemptionPolicy":"Never","reclaimMinRuntime":"1m0s","preemptionDelay":"10000ms"}`),
		queue("null-is-left-out", `{"capability":{"cpu":null}}`),
	} {
		if err := create(t, "queues", body); err != nil {
			t.Errorf("%s: %v", body, err)
		}
	}
	for _, spec := range []string{
		`{"schedulingPolicy":{"gang":{"minCount":1}}}`,
		`{"queue":"a.b","priorityClassName":"high","scheduleTimeoutSeconds":600,"preemptible":false,` +
			`"disruptionMode":"PodGroup","schedulingPolicy":{"gang":{"minCount":100000}}}`,
		`{"staleAfter":"1m30s","schedulingPolicy":{"gang":{"minCount":1}}}`,
		`{"maxRuntimeSeconds":31536000,"schedulingPolicy":{"gang":{"minCount":1}}}`,
		`{"minResources":{"cpu":"1500m","memory":"4Gi","nvidia.com/gpu":8},"schedulingPolicy":{"gang":{"minCount":1}}}`,
	} {
		if err := create(t, "podgroups", podGroup("g", spec)); err != nil {
			t.Errorf("%s: %v", spec, err)
		}
	}
}

func TestOnlyMinCountChanges(t *testing.T) {
	c := basalt(t)
	pg := &v1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Name: "immutable", Namespace: "default"}}
	pg.Spec.Queue = "a"
	pg.Spec.SchedulingPolicy.Gang.MinCount = 2
	pg.Spec.Gates = []v1beta1.Gate{"example.com/a", "example.com/b"}
	if err := c.Post().Namespace("default").Resource("podgroups").Body(pg).Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
	patch := func(body string) error {
		return c.Patch(types.MergePatchType).Namespace("default").Resource("podgroups").Name("immutable").Body([]byte(body)).Do(t.Context()).Error()
	}
	for field, body := range map[string]string{
		"spec.queue":                  `{"spec":{"queue":"b"}}`,
		"spec.queue ":                 `{"spec":{"queue":null}}`,
		"spec.priorityClassName":      `{"spec":{"priorityClassName":"high"}}`,
		"spec.scheduleTimeoutSeconds": `{"spec":{"scheduleTimeoutSeconds":5}}`,
		"spec.staleAfter":             `{"spec":{"staleAfter":"10m"}}`,
		"spec.minResources":           `{"spec":{"minResources":{"cpu":"2"}}}`,
		"spec.preemptible":            `{"spec":{"preemptible":false}}`,
		"spec.disruptionMode":         `{"spec":{"disruptionMode":"PodGroup"}}`,
	} {
		if err := patch(body); err == nil || !strings.Contains(err.Error(), strings.TrimSpace(field)+" cannot change") {
			t.Errorf("%s: %v", body, err)
		}
	}
	for _, body := range []string{
		`{"spec":{"schedulingPolicy":{"gang":{"minCount":3}}}}`, `{"spec":{"maxRuntimeSeconds":60}}`,
		`{"metadata":{"labels":{"a":"b"}}}`,
		`{"spec":{"gates":["example.com/b"]}}`, `{"spec":{"gates":[]}}`, `{"spec":{"gates":null}}`,
	} {
		if err := patch(body); err != nil {
			t.Errorf("%s: %v", body, err)
		}
	}
	const added = "gates can only be removed"
	if err := patch(`{"spec":{"gates":["example.com/a"]}}`); err == nil || !strings.Contains(err.Error(), added) {
		t.Errorf("a gate comes back: %v", err)
	}
}

// The API server is what keeps two writers of one status apart, and it must not get in the way of anybody else.
func TestStatusHasOneWriter(t *testing.T) {
	c := basalt(t)
	if err := c.Post().Resource("queues").Body([]byte(queue("stamped", `{"capability":{"cpu":"4"}}`))).Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
	if err := c.Post().Namespace("default").Resource("podgroups").Body([]byte(podGroup("stamped", `{"schedulingPolicy":{"gang":{"minCount":2}}}`))).Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
	status := func(epoch int64, writer string, sequence int64, more string) string {
		return fmt.Sprintf(`{"status":{"epoch":%d,"writer":%q,"sequence":%d,%s}}`, epoch, writer, sequence, more)
	}
	for _, kind := range []struct{ resource, namespace, more, other, spec string }{
		{"queues", "", `"charged":{"cpu":"1"},"admittedGangs":1,"waitingGangs":0`, `"charged":{"cpu":"2"},"admittedGangs":1,"waitingGangs":0`, `{"spec":{"capability":{"cpu":"8"}}}`},
		{"podgroups", "default", `"pods":1,"bound":0`, `"pods":2,"bound":0`, `{"spec":{"schedulingPolicy":{"gang":{"minCount":3}}}}`},
	} {
		const stale = "a status is replaced only by one of a larger epoch"
		for _, step := range []struct {
			what, sub, body, refused string
			kind                     types.PatchType
		}{
			{"a status without a stamp", "status", `{"status":{` + kind.more + `}}`, "status.epoch", ""},
			{"the first status", "status", status(5, "one", 7, kind.more), "", ""},
			{"the same again, as after a lost answer", "status", status(5, "one", 7, kind.more), "", ""},
			{"another one under the same stamp", "status", status(5, "one", 7, kind.other), stale, ""},
			{"a later one", "status", status(5, "one", 8, kind.other), "", ""},
			{"an earlier one", "status", status(5, "one", 7, kind.more), stale, ""},
			{"another writer of the epoch", "status", status(5, "two", 9, kind.more), stale, ""},
			{"an earlier epoch", "status", status(4, "two", 100, kind.more), stale, ""},
			{"a field without a stamp", "status", `{"status":{` + kind.more + `}}`, stale, ""},
			{"the removal of the status", "status", `{"status":null}`, "never removed", ""},
			{"a user's edit of the spec", "", kind.spec, "", ""},
			{"an edit that brings a status along", "", `{"metadata":{"labels":{"a":"b"}},"status":{"epoch":99,"writer":"user","sequence":1}}`, "", ""},
			{"the finalizer", "", `{"metadata":{"finalizers":["` + v1beta1.FinalizerCharged + `"]}}`, "", ""},
			{"the finalizer's end", "", `{"metadata":{"finalizers":null}}`, "", ""},
			{"a later epoch", "status", status(6, "two", 1, kind.more), "", ""},
			{"the writer of an epoch that is over", "status", status(5, "one", 50, kind.more), stale, ""},
			{"a whole status, by JSON patch", "status", `[{"op":"add","path":"/status","value":{"epoch":6,"writer":"two","sequence":2,` + kind.other + `}}]`, "", types.JSONPatchType},
			{"a whole stale status, by JSON patch", "status", `[{"op":"add","path":"/status","value":{"epoch":6,"writer":"two","sequence":2,` + kind.more + `}}]`, stale, types.JSONPatchType},
		} {
			as := step.kind
			if as == "" {
				as = types.MergePatchType
			}
			r := c.Patch(as).NamespaceIfScoped(kind.namespace, kind.namespace != "").Resource(kind.resource).Name("stamped")
			if step.sub != "" {
				r = r.SubResource(step.sub)
			}
			err := r.Body([]byte(step.body)).Do(t.Context()).Error()
			switch {
			case step.refused == "" && err != nil:
				t.Errorf("%s: %s: %v", kind.resource, step.what, err)
			case step.refused != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), step.refused)):
				t.Errorf("%s: %s: answer %v, want %q", kind.resource, step.what, err, step.refused)
			}
		}
	}
	q := v1beta1.Queue{}
	if err := c.Get().Resource("queues").Name("stamped").Do(t.Context()).Into(&q); err != nil {
		t.Fatal(err)
	}
	if s := q.Status; s == nil || s.Epoch != 6 || s.Writer != "two" || s.Sequence != 2 || s.Charged.Cpu().String() != "2" || q.Spec.Capability.Cpu().String() != "8" {
		t.Errorf("after all that: %+v %+v", q.Spec, q.Status)
	}
	// An update with the whole object, as clients and kubectl edit send it, leaves the status alone.
	q.Spec.Closed = true
	q.Status = &v1beta1.QueueStatus{Stamp: v1beta1.Stamp{Epoch: 1, Writer: "user"}}
	if err := c.Put().Resource("queues").Name("stamped").Body(&q).Do(t.Context()).Into(&q); err != nil || !q.Spec.Closed || q.Status.Epoch != 6 {
		t.Errorf("update: %v, %+v", err, q)
	}
}

func TestColumns(t *testing.T) {
	c := basalt(t)
	if err := c.Post().Resource("queues").Body([]byte(queue("columns", `{"capability":{"cpu":"4"}}`))).Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
	status := `{"status":{"epoch":1,"writer":"w","sequence":1,"admittedGangs":2,"waitingGangs":3,
		"charged":{"cpu":"3500m","nvidia.com/gpu":"7"},
		"limits":{"capability":{"cpu":"4","scheduling.basalt.dev/gangs":"20"}},
		"conditions":[{"type":"Ready","status":"False","reason":"ParentMissing","message":"m","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`
	if err := c.Patch(types.MergePatchType).Resource("queues").Name("columns").SubResource("status").Body([]byte(status)).Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
	body, err := c.Get().Resource("queues").Name("columns").SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").Do(t.Context()).Raw()
	if err != nil {
		t.Fatal(err)
	}
	table := metav1.Table{}
	if err := json.Unmarshal(body, &table); err != nil || len(table.Rows) != 1 {
		t.Fatalf("%v: %s", err, body)
	}
	got := map[string]string{}
	for i, column := range table.ColumnDefinitions {
		got[column.Name] = fmt.Sprint(table.Rows[0].Cells[i])
	}
	for name, want := range map[string]string{"Name": "columns", "CPU": "3500m", "CPU Limit": "4", "GPU": "7",
		"Admitted": "2", "Limit": "20", "Waiting": "3", "Ready": "False", "Reason": "ParentMissing"} {
		if got[name] != want {
			t.Errorf("column %s shows %q, want %q", name, got[name], want)
		}
	}
}
