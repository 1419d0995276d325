// Package reclaim has queues take back what they deserve on a real API server, with real controllers that make evicted pods again, real
// shards and a real coordinator, some of which are killed in the middle of a claim.
package reclaim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/audit"
	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/bench/stage/kubelet"
	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/audittest"
	"basalt.dev/basalt/bench/stage/local/localtest"
)

func TestMain(m *testing.M) { localtest.Run(m) }

const (
	patience = 90 * time.Second // for what must happen but has no time of its own; it ends hung tests only

	nodes = 12 // of 16 cores
	size  = 4  // pods of a gang, of 4 cores
)

type world struct {
	t       *testing.T
	cluster *local.Cluster
	kube    *kube.Clients

	noViolations func() // ends the auditor, which has the test fail for each
	all          []*local.Basalt
}

func (w *world) check(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func start(t *testing.T) *world {
	w := &world{t: t}
	w.cluster = localtest.Cluster(t, local.Options{Basalt: localtest.Basalt(t), ControllerManager: true})
	var err error
	w.kube, err = kube.ConnectConfig(w.cluster.Config(local.Admin), "reclaim")
	w.check(err)
	for i := range nodes {
		n := kubelet.Node(fmt.Sprint("node-", i), "16", "64Gi", 110)
		n.Labels["rack"], n.Labels["clique"] = fmt.Sprint("r", i/3), fmt.Sprint("c", i/2)
		_, err := w.kube.Core.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{})
		w.check(err)
	}
	w.noViolations = audittest.Start(t, w.cluster, audit.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	t.Cleanup(func() { cancel(); wg.Wait() })
	wg.Go(func() { _ = kubelet.Run(ctx, kubelet.Options{Client: w.kube.Core}) })
	w.all, err = w.cluster.StartBasalt(t.Context(), 2, 3, local.BasaltOptions{Restart: true})
	w.check(err)
	w.check(local.WaitReady(t.Context(), w.all))
	w.patchQueue("root", `{"spec":{"reclaimMinRuntime":"0s","preemptMinRuntime":"0s","preemptionDelay":"2s"}}`)
	return w
}

func (w *world) patchQueue(name, patch string) {
	w.t.Helper()
	localtest.Wait(w.t, patience, "queue "+name, func(ctx context.Context) error {
		return w.kube.Basalt.Patch(types.MergePatchType).Resource("queues").Name(name).Body([]byte(patch)).Do(ctx).Error()
	})
}

func (w *world) queue(name string, spec v1beta1.QueueSpec) {
	w.t.Helper()
	w.check(w.kube.Basalt.Post().Resource("queues").Body(&v1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}).Do(w.t.Context()).Error())
}

func cores(n string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(n)}
}

// gang makes a PodGroup and a ReplicaSet of its pods, which makes evicted ones again at once.
func (w *world) gang(name, queue, priority string) { w.elastic(name, queue, priority, size) }

// elastic makes a gang of which so many pods run if there is room for them.
func (w *world) elastic(name, queue, priority string, n int32) {
	w.t.Helper()
	w.makeGang(name, queue, priority, size, n)
}

// makeGang makes a gang with a minimum and so many pods, in topology domains if constraints say so.
func (w *world) makeGang(name, queue, priority string, least, n int32, topology ...v1beta1.TopologyConstraint) {
	w.t.Helper()
	g := &v1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	g.Spec.Queue = queue
	g.Spec.SchedulingPolicy.Gang.MinCount = least
	if len(topology) > 0 {
		g.Spec.SchedulingConstraints = &v1beta1.SchedulingConstraints{Topology: topology}
	}
	w.check(w.kube.Basalt.Post().Namespace("default").Resource("podgroups").Body(g).Do(w.t.Context()).Error())
	grace := int64(1)
	labels := map[string]string{api.LabelPodGroup: name, "team": queue}
	set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.ReplicaSetSpec{Replicas: &n, Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec: corev1.PodSpec{SchedulerName: "basalt", PriorityClassName: priority, TerminationGracePeriodSeconds: &grace,
				Containers: []corev1.Container{{Name: "main", Image: "none", Resources: corev1.ResourceRequirements{Requests: cores("4")}}}}}}}
	_, err := w.kube.Core.AppsV1().ReplicaSets("default").Create(w.t.Context(), set, metav1.CreateOptions{})
	w.check(err)
}

func (w *world) deleteGang(name string) {
	w.t.Helper()
	foreground := metav1.DeletePropagationForeground
	w.check(w.kube.Core.AppsV1().ReplicaSets("default").Delete(w.t.Context(), name, metav1.DeleteOptions{PropagationPolicy: &foreground}))
	w.check(w.kube.Basalt.Delete().Namespace("default").Resource("podgroups").Name(name).Do(w.t.Context()).Error())
}

// running returns for each gang of a team how many of its pods have a node and are not being deleted, and how many pods there are that do
// not stay.
func (w *world) running(ctx context.Context, team string) (bound map[string]int, leaving int, err error) {
	list, err := w.kube.Core.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "team=" + team})
	bound = map[string]int{}
	for _, p := range list.Items {
		switch {
		case p.DeletionTimestamp != nil:
			leaving++
		case p.Spec.NodeName != "" && p.Status.Phase != corev1.PodFailed && p.Status.Phase != corev1.PodSucceeded:
			bound[p.Labels[api.LabelPodGroup]]++
		}
	}
	return bound, leaving, err
}

// settles waits until so many whole gangs of each team run, and none in part.
func (w *world) settles(want map[string]int) {
	w.t.Helper()
	localtest.Wait(w.t, patience, fmt.Sprint("gangs ", want), func(ctx context.Context) error {
		for _, team := range api.SortedKeys(want) {
			bound, leaving, err := w.running(ctx, team)
			if err != nil {
				return err
			}
			for gang, n := range bound {
				if n != size {
					return fmt.Errorf("%d pods of gang %s run", n, gang)
				}
			}
			if len(bound) != want[team] || leaving > 0 {
				return fmt.Errorf("%d gangs of %s run, %d pods leave: %v", len(bound), team, leaving, w.says(ctx))
			}
		}
		return nil
	})
}

// says is what the gangs' statuses say that do not run.
func (w *world) says(ctx context.Context) (out []string) {
	var list v1beta1.PodGroupList
	if err := w.kube.Basalt.Get().Namespace("default").Resource("podgroups").Do(ctx).Into(&list); err != nil {
		return []string{err.Error()}
	}
	for _, g := range list.Items {
		if g.Status != nil && g.Status.Message != "" {
			out = append(out, fmt.Sprintf("%s: %s", g.Name, g.Status.Message))
		}
	}
	return out
}

// twoTeams has teams a and b deserve a half of the cluster each, and so many gangs of b run.
func twoTeams(t *testing.T, gangs int) *world {
	w := start(t)
	w.patchQueue("root", `{"spec":{"capability":{"cpu":"192"}}}`)
	w.queue("a", v1beta1.QueueSpec{Deserved: cores("96")})
	w.queue("b", v1beta1.QueueSpec{Deserved: cores("96")})
	for i := range gangs {
		w.gang(fmt.Sprint("b-", i), "b", "")
	}
	w.settles(map[string]int{"b": gangs})
	return w
}

// runs waits until so many pods of a team's gang run, whoever else does.
func (w *world) runs(team, gang string, pods int, patience time.Duration) {
	w.t.Helper()
	localtest.Wait(w.t, patience, "gang "+gang, func(ctx context.Context) error {
		bound, _, err := w.running(ctx, team)
		if err == nil && bound[gang] != pods {
			err = fmt.Errorf("%d pods run: %v", bound[gang], w.says(ctx))
		}
		return err
	})
}

// evictions waits until events say that so many gangs were evicted, and returns them, each as often as it was.
func (w *world) evictions(want int) (out []string) {
	w.t.Helper()
	localtest.Wait(w.t, patience, fmt.Sprintf("events of %d evictions", want), func(context.Context) error {
		if out = w.evicted(); len(out) < want {
			return fmt.Errorf("%v", out)
		}
		return nil
	})
	if len(out) > want {
		w.t.Errorf("%d were to be evicted, and these are: %v", want, out)
	}
	return out
}

func (w *world) evicted() (out []string) {
	w.t.Helper()
	list, err := w.kube.Core.CoreV1().Events("default").List(w.t.Context(), metav1.ListOptions{FieldSelector: "reason=Preempted,involvedObject.kind=PodGroup"})
	w.check(err)
	for _, e := range list.Items {
		n := max(1, e.Count)
		if e.Series != nil {
			n = max(n, e.Series.Count)
		}
		for range n {
			out = append(out, e.InvolvedObject.Name)
		}
	}
	slices.Sort(out)
	return out
}

func (w *world) condition(gang, kind string) *metav1.Condition {
	w.t.Helper()
	var g v1beta1.PodGroup
	w.check(w.kube.Basalt.Get().Namespace("default").Resource("podgroups").Name(gang).Do(w.t.Context()).Into(&g))
	if g.Status == nil {
		return nil
	}
	return meta.FindStatusCondition(g.Status.Conditions, kind)
}

// Team b runs on the whole cluster. Team a comes back, and gets what it deserves: exactly that, in whole gangs. What was evicted waits, and
// starts again as room becomes free. The same where no capability limits anybody, and only room is missing.
func TestReclaim(t *testing.T) {
	t.Parallel()
	w := twoTeams(t, 12)
	asked := time.Now()
	for i := range 6 {
		w.gang(fmt.Sprint("a-", i), "a", "")
	}
	w.settles(map[string]int{"a": 6, "b": 6})
	t.Logf("a has what it deserves %s after it began to ask, with a delay of 2s and a grace period of 1s", time.Since(asked).Round(100*time.Millisecond))
	gone := w.evictions(6)
	if len(slices.Compact(slices.Clone(gone))) != 6 {
		t.Errorf("evicted: %v", gone)
	}
	for _, name := range gone {
		localtest.Wait(t, patience, "the words of "+name, func(context.Context) error {
			initially, quota := w.condition(name, v1beta1.ConditionPodGroupInitiallyScheduled), w.condition(name, v1beta1.ConditionQuotaReserved)
			if initially == nil || initially.Status != metav1.ConditionFalse || quota == nil || quota.Status != metav1.ConditionFalse || !strings.Contains(quota.Message, "insufficient cpu") {
				return fmt.Errorf("initially %+v, quota %+v", initially, quota)
			}
			return nil
		})
	}

	// One of a ends: one that was evicted starts, whole.
	w.deleteGang("a-0")
	w.settles(map[string]int{"a": 5, "b": 7})
	t.Logf("one that was evicted has started again")

	// Without a capability the nodes are what lacks.
	w.patchQueue("root", `{"spec":{"capability":null}}`)
	time.Sleep(3 * time.Second)
	asked = time.Now()
	w.gang("a-6", "a", "")
	w.settles(map[string]int{"a": 6, "b": 6})
	t.Logf("a gang that lacked nothing but room runs %s after it was made", time.Since(asked).Round(100*time.Millisecond))
	w.evictions(7)
	w.noViolations()
}

// A gang runs with more pods than its minimum. It gives them up one by one, those first that cost the least, runs on with its minimum, and
// grows again when there is room, at nobody's expense.
func TestReclaimSurplus(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.patchQueue("root", `{"spec":{"capability":{"cpu":"48"}}}`)
	w.queue("a", v1beta1.QueueSpec{Deserved: cores("40")})
	w.queue("b", v1beta1.QueueSpec{})
	w.elastic("b-0", "b", "", 12)
	runs := func(want map[string]int) {
		t.Helper()
		localtest.Wait(t, patience, fmt.Sprint("pods ", want), func(ctx context.Context) error {
			for _, team := range []string{"a", "b"} {
				bound, leaving, err := w.running(ctx, team)
				if err != nil {
					return err
				}
				for gang, n := range bound {
					if n != want[gang] {
						return fmt.Errorf("%d pods of %s run: %v", n, gang, w.says(ctx))
					}
				}
				if leaving > 0 {
					return fmt.Errorf("%d pods leave", leaving)
				}
				for gang := range want {
					if gang[:1] == team && bound[gang] == 0 {
						return fmt.Errorf("%s does not run: %v", gang, w.says(ctx))
					}
				}
			}
			return nil
		})
	}
	runs(map[string]int{"b-0": 12})
	list, err := w.kube.Core.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "team=b"})
	w.check(err)
	var cheap []types.UID
	for _, p := range list.Items[:size] {
		cheap = append(cheap, p.UID)
		_, err := w.kube.Core.CoreV1().Pods("default").Patch(t.Context(), p.Name, types.MergePatchType, []byte(`{"metadata":{"annotations":{"controller.kubernetes.io/pod-deletion-cost":"-10"}}}`), metav1.PatchOptions{})
		w.check(err)
	}
	time.Sleep(2 * time.Second) // until all homes have seen it
	asked := time.Now()
	w.gang("a-0", "a", "")
	runs(map[string]int{"a-0": size, "b-0": 8})
	t.Logf("a gang took surplus pods %s after it was made", time.Since(asked).Round(100*time.Millisecond))
	list, err = w.kube.Core.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "team=b"})
	w.check(err)
	for _, p := range list.Items {
		if slices.Contains(cheap, p.UID) {
			t.Errorf("pod %s runs on, whose deletion costs the least", p.Name)
		}
	}
	w.gang("a-1", "a", "")
	runs(map[string]int{"a-0": size, "a-1": size, "b-0": size})
	w.deleteGang("a-0")
	runs(map[string]int{"a-1": size, "b-0": 8})
	if gone := w.evicted(); len(gone) > 0 {
		t.Errorf("evicted as a whole: %v", gone)
	}
	events, err := w.kube.Core.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "reason=Shrunk,involvedObject.name=b-0"})
	w.check(err)
	if len(events.Items) == 0 {
		t.Error("nobody says that b-0 lost pods")
	}
	w.noViolations()
}

// A gang that loses a pod is repaired. Then two elastic gangs, each of more pods than there is room for: the second
// takes back its fair share pod by pod, beyond its minimum, and then neither takes anything from the other.
// It takes half a minute: the Job controller waits for 10 s before it makes a lost pod again, and pods are taken one at
// a time.
func TestReclaimGrowth(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.repairs()
	w.patchQueue("root", `{"spec":{"capability":{"cpu":"32"},"reclaimPolicy":"FairShare"}}`)
	w.queue("a", v1beta1.QueueSpec{})
	w.queue("b", v1beta1.QueueSpec{})
	w.makeGang("b-0", "b", "", 1, 10)
	w.runs("b", "b-0", 8, patience)
	asked := time.Now()
	w.makeGang("a-0", "a", "", 1, 10)
	w.runs("a", "a-0", 4, patience)
	w.runs("b", "b-0", 4, patience)
	t.Logf("it had its fair share %s after it was made", time.Since(asked).Round(100*time.Millisecond))
	have := w.bound()
	time.Sleep(10 * time.Second)
	if now := w.bound(); !slices.Equal(now, have) {
		t.Errorf("pods changed hands: %v, then %v", have, now)
	}
	w.noViolations()
}

// bound returns the pods that have a node.
func (w *world) bound() (out []string) {
	w.t.Helper()
	list, err := w.kube.Core.CoreV1().Pods("default").List(w.t.Context(), metav1.ListOptions{})
	w.check(err)
	for _, p := range list.Items {
		if p.Spec.NodeName != "" {
			out = append(out, p.Name)
		}
	}
	slices.Sort(out)
	return out
}

// A budget of the owners of b does not allow any of its pods to be evicted but those of its oldest gangs. These go, though others are
// younger. When none of them is left, the youngest goes all the same, and an event says so.
func TestReclaimBudgets(t *testing.T) {
	t.Parallel()
	w := twoTeams(t, 2)
	for i := 2; i < 12; i++ {
		w.gang(fmt.Sprint("b-", i), "b", "")
	}
	w.settles(map[string]int{"b": 12})
	all := intstr.FromInt32(10 * size)
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "trainers"}, Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: &all,
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "b"}, MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: api.LabelPodGroup, Operator: metav1.LabelSelectorOpNotIn, Values: []string{"b-0", "b-1"}}}}}}
	_, err := w.kube.Core.PolicyV1().PodDisruptionBudgets("default").Create(t.Context(), budget, metav1.CreateOptions{})
	w.check(err)
	localtest.Wait(t, patience, "the budget's controller", func(ctx context.Context) error {
		b, err := w.kube.Core.PolicyV1().PodDisruptionBudgets("default").Get(ctx, "trainers", metav1.GetOptions{})
		if err == nil && (b.Status.CurrentHealthy != 10*size || b.Status.DisruptionsAllowed != 0) {
			err = fmt.Errorf("%+v", b.Status)
		}
		return err
	})
	time.Sleep(2 * time.Second) // until all homes have seen it
	w.gang("a-0", "a", "")
	w.gang("a-1", "a", "")
	w.settles(map[string]int{"a": 2, "b": 10})
	if gone := w.evictions(2); !slices.Equal(gone, []string{"b-0", "b-1"}) {
		t.Errorf("the budget allows that b-0 and b-1 are evicted, and these were: %v", gone)
	}
	if says := w.mentions("PodDisruptionBudget"); says != "" {
		t.Errorf("the budget allowed it: %s", says)
	}
	w.gang("a-2", "a", "")
	w.settles(map[string]int{"a": 3, "b": 9})
	w.evictions(3)
	localtest.Wait(t, patience, "an event that names the budget", func(context.Context) error {
		if says := w.mentions("PodDisruptionBudget trainers does not allow it for 4 of its pods"); says == "" {
			return errors.New("there is none")
		}
		return nil
	})
	w.noViolations()
}

// mentions returns the message of an event of an eviction with these words in it.
func (w *world) mentions(words string) string {
	w.t.Helper()
	list, err := w.kube.Core.CoreV1().Events("default").List(w.t.Context(), metav1.ListOptions{FieldSelector: "reason=Preempted,involvedObject.kind=PodGroup"})
	w.check(err)
	for _, e := range list.Items {
		if strings.Contains(e.Message, words) {
			return e.Message
		}
	}
	return ""
}

// The pods of a gang that is evicted stay: they have a finalizer, or their node is dead. When they should have been gone for a minute, the
// claimant is given another gang, and starts beside them.
func TestReclaimPodsThatStay(t *testing.T) {
	t.Parallel()
	w := twoTeams(t, 11)
	w.gang("b-stays", "b", "") // the youngest goes first
	w.settles(map[string]int{"b": 12})
	pods := w.kube.Core.CoreV1().Pods("default")
	hold := func(finalizers string) {
		t.Helper()
		list, err := pods.List(t.Context(), metav1.ListOptions{LabelSelector: api.LabelPodGroup + "=b-stays"})
		w.check(err)
		for _, p := range list.Items {
			if finalizers == "null" && p.DeletionTimestamp == nil {
				continue
			}
			_, err := pods.Patch(t.Context(), p.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":`+finalizers+`}}`), metav1.PatchOptions{})
			w.check(err)
		}
	}
	hold(`["example.com/hold"]`)
	asked := time.Now()
	w.gang("a-0", "a", "")
	w.runs("a", "a-0", size, 3*time.Minute)
	t.Logf("a gang runs %s after it was made, beside pods that were evicted for it and stay", time.Since(asked).Round(100*time.Millisecond))
	if gone := w.evictions(2); !slices.Contains(gone, "b-stays") {
		t.Errorf("evicted: %v", gone)
	}
	if _, leaving, err := w.running(t.Context(), "b"); err != nil || leaving != size {
		t.Errorf("%d pods stay, error %v", leaving, err)
	}
	hold("null")
	w.settles(map[string]int{"a": 1, "b": 11})
	w.evictions(2)
	w.noViolations()
}

// Team a comes back with a gang that has to be in one rack, and one in slices, each of which has to be in one clique: exactly those are evicted who
// have the room there.
func TestReclaimOneDomain(t *testing.T) {
	t.Parallel()
	w := twoTeams(t, 12)
	nodesOf := func(gang, label string) map[string]int {
		t.Helper()
		list, err := w.kube.Core.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: api.LabelPodGroup + "=" + gang})
		w.check(err)
		out := map[string]int{}
		for _, p := range list.Items {
			n, err := w.kube.Core.CoreV1().Nodes().Get(t.Context(), p.Spec.NodeName, metav1.GetOptions{})
			w.check(err)
			out[n.Labels[label]]++
		}
		return out
	}
	w.makeGang("a-rack", "a", "", 8, 8, v1beta1.TopologyConstraint{Key: "rack"})
	w.runs("a", "a-rack", 8, patience)
	if at := nodesOf("a-rack", "rack"); len(at) != 1 {
		t.Errorf("the pods of a gang that requires one rack are in %v", at)
	}
	w.evictions(2)
	w.makeGang("a-slices", "a", "", 16, 16, v1beta1.TopologyConstraint{Key: "clique", SliceSize: 8})
	w.runs("a", "a-slices", 16, patience)
	if at := nodesOf("a-slices", "clique"); len(at) != 2 {
		t.Errorf("the pods of a gang in two slices are in %v", at)
	}
	w.evictions(6)
	w.settles(map[string]int{"b": 6})
	w.noViolations()
}

// Processes are killed while claims stand: the leading coordinator, and every shard in turn.
func TestReclaimWhileProcessesDie(t *testing.T) {
	t.Parallel()
	w := twoTeams(t, 12)
	for i := range 6 {
		w.gang(fmt.Sprint("a-", i), "a", "")
		time.Sleep(time.Duration(1500+300*i) * time.Millisecond)
		w.all[i%len(w.all)].Kill()
	}
	w.settles(map[string]int{"a": 6, "b": 6})
	if gone := w.evicted(); len(gone) > 12 {
		t.Errorf("evicted: %v", gone)
	}
	w.noViolations()
}

// A gang of high priority takes the place of one of lower priority in its queue, where that is allowed.
func TestPreempt(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.patchQueue("root", `{"spec":{"capability":{"cpu":"64"}}}`)
	w.queue("a", v1beta1.QueueSpec{PreemptionPolicy: v1beta1.PreemptLowerPriority})
	for name, value := range map[string]int32{"low": 1, "high": 1000} {
		_, err := w.kube.Core.SchedulingV1().PriorityClasses().Create(t.Context(), &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value}, metav1.CreateOptions{})
		w.check(err)
	}
	for i := range 4 {
		w.gang(fmt.Sprint("low-", i), "a", "low")
	}
	w.settles(map[string]int{"a": 4})
	w.gang("high", "a", "high")
	w.runs("a", "high", size, patience)
	w.settles(map[string]int{"a": 4})
	w.evictions(1)
	w.noViolations()
}
