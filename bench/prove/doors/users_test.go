package doors

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/bench/stage/kubelet"
	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/localtest"
	"basalt.dev/basalt/deploy"
)

// TestUserLimits: with deploy/users what a user makes counts for him, over all that he makes and by whichever
// controller, and no annotation of his makes it another's. It takes half a minute: policies are in force late.
func TestUserLimits(t *testing.T) {
	localtest.Needs(t, "1.36", "MutatingAdmissionPolicy")
	t.Parallel()
	w := install(t, local.Options{ControllerManager: true})
	for _, file := range []string{"rbac.yaml", "users.yaml", "users/workloads.yaml"} {
		text, err := deploy.Files.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		w.apply(string(text))
	}
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "edit"},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"}}
	for _, user := range []string{"alice", "bob"} {
		binding.Subjects = append(binding.Subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "User", Name: user})
	}
	_, err := w.kube.Core.RbacV1().RoleBindings("default").Create(t.Context(), binding, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	alice, bob := w.as("alice", "interns"), w.as("bob", "staff")
	localtest.Wait(t, patience, "the policy to write users", func(ctx context.Context) error {
		g, err := alice.group(ctx, "try", nil, metav1.DryRunAll)
		if err == nil && g.Annotations[api.AnnotationUser] != "alice" {
			err = fmt.Errorf("annotations: %v", g.Annotations)
		}
		return err
	})
	w.start()
	go func() { _ = kubelet.Run(t.Context(), kubelet.Options{Client: w.kube.Core}) }()
	found := w.audit()
	q := &v1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Name: "team"}, Spec: v1beta1.QueueSpec{
		UserLimits: []v1beta1.UserLimit{{Each: true, Capability: corev1.ResourceList{"cpu": resource.MustParse("4")}}}}}
	if err := w.kube.Basalt.Post().Resource("queues").Body(q).Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}

	// Her Job's pods are made by a controller, and are hers; so is the record of her gang.
	for _, name := range []string{"first", "second"} {
		if _, err := alice.group(t.Context(), name, nil); err != nil {
			t.Fatal(err)
		}
		alice.job(name, nil)
		if name == "first" { // controllers may make the pods of the second one earlier
			w.jobHas(name, 2, 2)
		}
	}
	w.jobHas("second", 2, 0)
	for _, name := range []string{"first", "second"} {
		pods, err := w.podsOfJob(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range pods {
			if p.Annotations[api.AnnotationUser] != "alice" ||
				p.Annotations[api.AnnotationGroups] != "interns\nsystem:authenticated" {
				t.Errorf("pod %s says %v", p.Name, p.Annotations)
			}
		}
	}
	alice.waitsForLimit("second", `user "alice" has 4 of 4 cpu in queue "team"`)
	if records := w.records(); len(records) != 1 || records[0].GetUser() != "alice" ||
		!slices.Contains(records[0].GetGroups(), "interns") {
		t.Errorf("recorded: %v", records)
	}

	// What she says in the name of another does not help her: neither what she makes anew, nor what she changes.
	forged := map[string]string{api.AnnotationUser: "bob", api.AnnotationGroups: "staff"}
	g, err := alice.group(t.Context(), "forged", forged)
	if err != nil || g.Annotations[api.AnnotationUser] != "alice" {
		t.Errorf("a PodGroup in another's name: %v, %v", g.Annotations, err)
	}
	alice.job("forged", forged)
	alice.waitsForLimit("forged", `user "alice" has 4 of 4 cpu`)
	patch := []byte(`{"metadata":{"annotations":{"scheduling.basalt.dev/user":"bob"}}}`)
	err = alice.kube.Basalt.Patch(types.MergePatchType).Namespace("default").Resource("podgroups").Name("second").
		Body(patch).Do(t.Context()).Error()
	if err == nil || !strings.Contains(err.Error(), "nobody may change them") {
		t.Errorf("a patch of her PodGroup: %v", err)
	}
	_, err = alice.kube.Core.CoreV1().Pods("default").Patch(t.Context(), w.podOf("second"), types.MergePatchType, patch,
		metav1.PatchOptions{})
	if err == nil || !strings.Contains(err.Error(), "nobody may change them") {
		t.Errorf("a patch of her pod: %v", err)
	}

	// Others start meanwhile, and she when she has less.
	if _, err := bob.group(t.Context(), "his", nil); err != nil {
		t.Fatal(err)
	}
	bob.job("his", nil)
	w.jobHas("his", 2, 2)
	background := metav1.DeletePropagationBackground
	if err := alice.kube.Core.BatchV1().Jobs("default").Delete(t.Context(), "first",
		metav1.DeleteOptions{PropagationPolicy: &background}); err != nil {
		t.Fatal(err)
	}
	w.jobHas("second", 2, 2)
	found()
}

// somebody makes objects as a user.
type somebody struct {
	*world
	kube *kube.Clients
}

// as returns what a user does.
func (w *world) as(name string, groups ...string) somebody {
	w.t.Helper()
	config := w.cluster.Config(local.Admin)
	config.Impersonate = rest.ImpersonationConfig{UserName: name, Groups: append(groups, "system:authenticated")}
	clients, err := kube.ConnectConfig(config, name)
	if err != nil {
		w.t.Fatal(err)
	}
	return somebody{w, clients}
}

// group makes a PodGroup of two pods, and returns it as it then is.
func (s somebody) group(ctx context.Context, name string, annotations map[string]string, dry ...string) (
	*v1beta1.PodGroup, error) {
	g := &v1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}}
	g.Spec.Queue, g.Spec.SchedulingPolicy.Gang.MinCount = "team", 2
	request := s.kube.Basalt.Post().Namespace("default").Resource("podgroups").Body(g)
	for _, d := range dry {
		request.Param("dryRun", d)
	}
	err := request.Do(ctx).Into(g)
	return g, err
}

// job makes a Job of two pods with two cores each, that are of the PodGroup of its name.
func (s somebody) job(name string, annotations map[string]string) {
	s.t.Helper()
	said := map[string]string{kubelet.RunSeconds: "600"}
	maps.Copy(said, annotations)
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: batchv1.JobSpec{Parallelism: new(int32(2)),
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{api.LabelPodGroup: name}, Annotations: said},
			Spec: corev1.PodSpec{SchedulerName: api.SchedulerName, RestartPolicy: corev1.RestartPolicyNever,
				Containers: []corev1.Container{{Name: "c", Image: "none", Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{"cpu": resource.MustParse("2")}}}}}}}}
	if _, err := s.kube.Core.BatchV1().Jobs("default").Create(s.t.Context(), j, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

// waitsForLimit waits until a PodGroup says that its user may have no more.
func (s somebody) waitsForLimit(name, words string) {
	s.t.Helper()
	localtest.Wait(s.t, patience, "PodGroup "+name+" to say that it waits for its user", func(ctx context.Context) error {
		g := &v1beta1.PodGroup{}
		err := s.kube.Basalt.Get().Namespace("default").Resource("podgroups").Name(name).Do(ctx).Into(g)
		if err != nil || g.Status == nil {
			return fmt.Errorf("no status: %v", err)
		}
		for _, c := range g.Status.Conditions {
			if c.Reason == v1beta1.ReasonUserLimit && strings.Contains(c.Message, words) {
				s.t.Logf("PodGroup %s: %s=%s, %s: %s", name, c.Type, c.Status, c.Reason, c.Message)
				return nil
			}
		}
		return fmt.Errorf("its conditions are %v", g.Status.Conditions)
	})
}

// records returns all reservations.
func (w *world) records() (out []*wire.ReservationRecord) {
	w.t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: w.cluster.ControlStore()})
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	got, err := client.Get(w.t.Context(), "reservations/", clientv3.WithPrefix())
	if err != nil {
		w.t.Fatal(err)
	}
	for _, kv := range got.Kvs {
		r := &wire.ReservationRecord{}
		if err := proto.Unmarshal(kv.Value, r); err != nil {
			w.t.Fatal(err)
		}
		out = append(out, r)
	}
	return out
}
