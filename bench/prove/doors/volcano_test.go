// Package doors runs Basalt behind the objects of other schedulers, on a real API server with their own definitions, and looks where
// their users would.
package doors

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	bus "volcano.sh/apis/pkg/apis/bus/v1alpha1"
	volcanov1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/audit"
	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/bench/stage/kubelet"
	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/audittest"
	"basalt.dev/basalt/bench/stage/local/localtest"
)

// patience is how long anything may take that must happen. It is no measure: CustomResourceDefinitions are looked for twice a minute.
const patience = 150 * time.Second

func TestMain(m *testing.M) { localtest.Run(m) }

type world struct {
	t       *testing.T
	cluster *local.Cluster
	kube    *kube.Clients
	shards  int             // 2 if 0
	all     []*local.Basalt // the coordinator first
}

// install makes a cluster of four nodes in which Basalt is installed.
func install(t *testing.T, o local.Options) *world {
	t.Helper()
	w := &world{t: t}
	o.Basalt = localtest.Basalt(t)
	w.cluster = localtest.Cluster(t, o)
	var err error
	if w.kube, err = kube.ConnectConfig(w.cluster.Config(local.Admin), "doors"); err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		if _, err := w.kube.Core.CoreV1().Nodes().Create(t.Context(), kubelet.Node(fmt.Sprint("node-", i), "4", "8Gi", 20), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// start starts a coordinator and two shards.
func (w *world) start(flags ...string) {
	w.t.Helper()
	w.startWith(local.BasaltOptions{ShardFlags: flags})
}

func (w *world) startWith(o local.BasaltOptions) {
	w.t.Helper()
	o.Restart = true
	var err error
	if w.all, err = w.cluster.StartBasalt(w.t.Context(), 1, cmp.Or(w.shards, 2), o); err != nil {
		w.t.Fatal(err)
	}
	if err := local.WaitReady(w.t.Context(), w.all); err != nil {
		w.t.Fatal(err)
	}
}

// define applies Volcano's definitions.
func (w *world) define() {
	w.t.Helper()
	if err := w.cluster.DefineVolcano(w.t.Context(), func(u *unstructured.Unstructured) bool {
		return strings.HasSuffix(u.GetName(), "."+volcanov1beta1.GroupName) || strings.HasSuffix(u.GetName(), "."+bus.GroupName)
	}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) queue(name, cpu string) {
	w.t.Helper()
	q := &v1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1beta1.QueueSpec{Capability: corev1.ResourceList{"cpu": resource.MustParse(cpu)}}}
	if err := w.kube.Basalt.Post().Resource("queues").Body(q).Do(w.t.Context()).Error(); err != nil {
		w.t.Fatal(err)
	}
}

// TestVolcanoObserve: with --volcano=observe, pods of Volcano's PodGroups are gangs. The objects are read and never written, and
// their definitions may come and go.
func TestVolcanoObserve(t *testing.T) {
	t.Parallel()
	w := install(t, local.Options{})
	if err := local.Apply(t.Context(), w.cluster.Config(local.Admin), "../../../deploy/overlays/volcano-observe", nil); err != nil {
		t.Fatal(err)
	}
	w.startWith(local.BasaltOptions{Flags: []string{"--volcano=observe"}}) // without Volcano's definitions
	found := w.audit()
	w.queue("team", "8")

	w.pod("early", "job", "worker", "1")
	w.waits("early", "PodGroupNotFound", "Volcano PodGroup default/job does not exist (annotation scheduling.k8s.io/group-name)")
	w.define()
	w.volcanoQueue("seen", "", "3")

	// A master and two workers of four pods. The workers came first, and wait for the master.
	first := w.group("job", volcanov1beta1.PodGroupSpec{MinMember: 3, Queue: "team", MinTaskMember: map[string]int32{"master": 1, "worker": 2},
		MinResources: &corev1.ResourceList{"cpu": resource.MustParse("4"), "count/pods": resource.MustParse("3"), "requests.cpu": resource.MustParse("4")}})
	w.pod("worker-1", "job", "worker", "1")
	w.pod("worker-2", "job", "worker", "1")
	w.waits("early", "NotEnoughPodsOfTask", `0 of 1 pods of task "master" can be scheduled`)
	w.pod("master", "job", "master", "2")
	w.bound("master", "early", "worker-1", "worker-2")
	w.charged("team", map[string]string{"cpu": "5", "pods": "4"})

	// Another one does not fit into what is left of the queue: nothing of it is placed, until there is room.
	w.group("second", volcanov1beta1.PodGroupSpec{MinMember: 2, Queue: "team"})
	w.pod("second-0", "second", "", "2")
	w.pod("second-1", "second", "", "2")
	w.waits("second-0", "QuotaExceeded", `queue "team" has insufficient cpu`)
	w.waits("second-1", "QuotaExceeded", `queue "team" has insufficient cpu`)
	w.all[1].Kill() // its heir reads the groups anew

	// The PodGroup goes while its pods run, and is made again, as Volcano's controllers do. The pods stay; one more joins them.
	w.deleteGroup("job")
	again := w.group("job", volcanov1beta1.PodGroupSpec{MinMember: 3, Queue: "team"})
	w.bound("master", "early", "worker-1", "worker-2")
	w.delete("worker-1", "worker-2")
	w.pod("worker-3", "job", "worker", "1")
	w.bound("worker-3")
	w.delete("early", "master", "worker-3")
	w.bound("second-0", "second-1")
	w.charged("team", map[string]string{"cpu": "4", "pods": "2"})

	// What Basalt cannot do is refused with its field; so is a pod of two groups.
	w.group("rack", volcanov1beta1.PodGroupSpec{MinMember: 1, NetworkTopology: &volcanov1beta1.NetworkTopologySpec{Mode: volcanov1beta1.HardNetworkTopologyMode}})
	w.pod("rack-0", "rack", "", "1")
	w.waits("rack-0", "UnsupportedConstraint", "Volcano PodGroup default/rack: spec.networkTopology with mode hard")
	w.pod("both", "second", "", "1", func(p *corev1.Pod) { p.Labels = map[string]string{api.LabelPodGroup: "mine"} })
	w.waits("both", "UnsupportedConstraint", `the PodGroup "mine"`, `the Volcano PodGroup "second"`, "a pod belongs to one group")
	w.pod("alone", "", "", "1", func(p *corev1.Pod) {
		p.Annotations = map[string]string{volcanov1beta1.QueueNameAnnotationKey: "team"}
	})
	w.bound("alone")
	w.charged("team", map[string]string{"cpu": "5", "pods": "3"})

	w.spark()

	w.stand(map[string]string{"seen": "seen"})
	if q := w.findQueue("seen"); q.Status.State != "" || q.Generation != 1 {
		t.Errorf("Queue seen was written: %+v", q)
	}
	for _, g := range []*volcanov1beta1.PodGroup{first, again} {
		now := w.find(g.Name)
		if g == again && (now == nil || now.ResourceVersion != g.ResourceVersion) {
			t.Errorf("PodGroup %s was written: it is %+v", g.Name, now)
		}
	}

	// Without its definition, pods wait, and what runs goes on.
	crd := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	if err := dynamic.NewForConfigOrDie(w.cluster.Config(local.Admin)).Resource(crd).Delete(t.Context(), "podgroups."+volcanov1beta1.GroupName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, b := range w.all[1:] {
		localtest.Wait(t, patience, b.Name()+" to notice", func(context.Context) error {
			text, err := os.ReadFile(b.Log())
			if err == nil && !strings.Contains(string(text), "CRD no longer served") {
				err = errors.New("it does not say so")
			}
			return err
		})
	}
	w.pod("late", "second", "", "1")
	w.waits("late", "PodGroupNotFound", "Volcano PodGroup default/second does not exist")
	w.bound("second-0", "second-1", "alone")
	w.charged("team", map[string]string{"cpu": "5", "pods": "3"})
	found()
}

// spark runs five applications as Spark's operator makes them: a PodGroup with a minimum of one and minResources for all, a driver, and
// executors that the driver makes once it runs. The queue has room for two. Were it charged for drivers alone, it would take five of
// them, and no executor would ever run.
func (w *world) spark() {
	w.t.Helper()
	const apps, executors, atOnce = 5, 3, 2
	w.queue("spark", "9")
	for i := range apps {
		name := fmt.Sprint("spark-", i)
		w.group(name, volcanov1beta1.PodGroupSpec{MinMember: 1, Queue: "spark", MinResources: &corev1.ResourceList{"cpu": resource.MustParse("4"), "requests.cpu": resource.MustParse("4"), "memory": resource.MustParse("0")}})
		w.pod(name+"-driver", name, "", "1")
	}
	ended, made := map[string]bool{}, map[string]bool{}
	for len(ended) < apps {
		localtest.Wait(w.t, patience, "one more application of Spark to end", func(ctx context.Context) error {
			list, err := w.kube.Core.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			drivers, has := []string{}, map[string]int{}
			for i := range list.Items {
				p := &list.Items[i]
				if name := p.Annotations[volcanov1beta1.KubeGroupNameAnnotationKey]; p.Spec.NodeName != "" && strings.HasPrefix(name, "spark-") {
					if has[name]++; strings.HasSuffix(p.Name, "-driver") {
						drivers = append(drivers, name)
					}
				}
			}
			if len(drivers) > atOnce {
				w.t.Fatalf("%d drivers run at once, in a queue with room for %d applications: %v", len(drivers), atOnce, drivers)
			}
			for _, name := range drivers {
				if !made[name] {
					made[name] = true
					for i := range executors {
						w.pod(fmt.Sprint(name, "-exec-", i), name, "", "1")
					}
				}
				if has[name] == 1+executors {
					ended[name] = true
					w.delete(name+"-driver", name+"-exec-0", name+"-exec-1", name+"-exec-2")
					return nil
				}
			}
			return fmt.Errorf("%d have ended, drivers %v run with %v pods", len(ended), drivers, has)
		})
	}
	w.charged("spark", nil)
}

// audit begins to audit; the function that it returns ends that, and reports what was found.
func (w *world) audit(schedulers ...string) (end func()) {
	w.t.Helper()
	return audittest.Start(w.t, w.cluster, audit.Config{Volcano: true, Schedulers: schedulers})
}

func (w *world) group(name string, spec volcanov1beta1.PodGroupSpec) *volcanov1beta1.PodGroup {
	w.t.Helper()
	g := &volcanov1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: spec}
	if err := w.kube.Volcano.Post().Namespace("default").Resource("podgroups").Body(g).Do(w.t.Context()).Into(g); err != nil {
		w.t.Fatal(err)
	}
	return g
}

func (w *world) find(name string) *volcanov1beta1.PodGroup {
	g := &volcanov1beta1.PodGroup{}
	if err := w.kube.Volcano.Get().Namespace("default").Resource("podgroups").Name(name).Do(w.t.Context()).Into(g); err != nil {
		return nil
	}
	return g
}

func (w *world) deleteGroup(name string) {
	w.t.Helper()
	if err := w.kube.Volcano.Delete().Namespace("default").Resource("podgroups").Name(name).Do(w.t.Context()).Error(); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) pod(name, group, task, cpu string, edits ...func(*corev1.Pod)) {
	w.t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Annotations: map[string]string{}}, Spec: corev1.PodSpec{
		SchedulerName: api.SchedulerName,
		Containers: []corev1.Container{{Name: "c", Image: "none", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{"cpu": resource.MustParse(cpu)}}}},
	}}
	if group != "" {
		p.Annotations[volcanov1beta1.KubeGroupNameAnnotationKey] = group
	}
	if task != "" {
		p.Annotations["volcano.sh/task-spec"] = task
	}
	for _, edit := range edits {
		edit(p)
	}
	if _, err := w.kube.Core.CoreV1().Pods("default").Create(w.t.Context(), p, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) delete(names ...string) {
	w.t.Helper()
	now := int64(0)
	for _, name := range names {
		if err := w.kube.Core.CoreV1().Pods("default").Delete(w.t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil && !apierrors.IsNotFound(err) {
			w.t.Fatal(err)
		}
	}
}

// bound waits until pods have nodes.
func (w *world) bound(names ...string) {
	w.t.Helper()
	for _, name := range names {
		localtest.Wait(w.t, patience, "the binding of "+name, func(ctx context.Context) error {
			p, err := w.kube.Core.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
			if err == nil && p.Spec.NodeName == "" {
				err = fmt.Errorf("it has no node: %v", p.Status.Conditions)
			}
			return err
		})
	}
}

// waits waits until a pod without a node says why it waits.
func (w *world) waits(name, reason string, words ...string) {
	w.t.Helper()
	localtest.Wait(w.t, patience, "the reason of "+name, func(ctx context.Context) error {
		p, err := w.kube.Core.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if p.Spec.NodeName != "" {
			w.t.Fatalf("pod %s was bound to %s; it should wait: %s %q", name, p.Spec.NodeName, reason, words)
		}
		for _, c := range p.Status.Conditions {
			if c.Type != corev1.PodScheduled || c.Reason != reason {
				continue
			}
			for _, word := range words {
				if !strings.Contains(c.Message, word) {
					return fmt.Errorf("%q is missing in: %s", word, c.Message)
				}
			}
			return nil
		}
		return fmt.Errorf("conditions %v, want %s", p.Status.Conditions, reason)
	})
}

// charged waits until a Queue's status says what is charged.
func (w *world) charged(queue string, want map[string]string) {
	w.t.Helper()
	localtest.Wait(w.t, patience, "the status of queue "+queue, func(ctx context.Context) error {
		q := &v1beta1.Queue{}
		if err := w.kube.Basalt.Get().Resource("queues").Name(queue).Do(ctx).Into(q); err != nil {
			return err
		}
		if q.Status == nil || len(q.Status.Charged) != len(want) {
			return fmt.Errorf("status %+v, want %v", q.Status, want)
		}
		for name, amount := range want {
			if has := q.Status.Charged[corev1.ResourceName(name)]; has.Cmp(resource.MustParse(amount)) != 0 {
				return fmt.Errorf("charged %v, want %v", q.Status.Charged, want)
			}
		}
		return nil
	})
}
