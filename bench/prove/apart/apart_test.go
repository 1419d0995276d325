// Package apart has pods that repel each other scheduled by real shards on a real API server, and recounts from the watch, with code of
// its own, that no Binding puts a pod where one is that it repels or that repels it.
package apart

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/audit/follow"
	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/bench/stage/kubelet"
	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/localtest"
)

const (
	patience = 90 * time.Second // for what must happen but has no time of its own; it ends hung tests only
	soon     = 10 * time.Second // for a pod that waits to follow where another one left

	avoiding = "node(s) didn't match pod anti-affinity rules"
	avoided  = "node(s) didn't satisfy existing pods anti-affinity rules"
)

// TestMain lets the parts, which mostly wait, do so together: the default is as many at once as there are processors.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	localtest.Run(m)
}

// world is a cluster with three shards, and nodes in three zones.
type world struct {
	t       *testing.T
	cluster *local.Cluster
	kube    *kube.Clients
	shards  []*local.Basalt
	auditor *follow.Auditor
	seen    *recount
	small   chan struct{} // closed when the cluster may get more nodes
}

// TestApart runs the parts in one cluster. Each has namespaces of its own, so that only its own pods meet.
func TestApart(t *testing.T) {
	w := start(t, 9)
	// What other schedulers bind is there for long before ours are compared with it: shards see it by a watch.
	for _, name := range []string{"alone", "zones", "labelled", "holders", "rollout"} {
		w.namespace(name)
	}
	w.pod("zones", "north", foreign("node-0"), repels(zone, "app", "plain"))
	w.pod("zones", "east", foreign("node-1"), repels(zone, "app", "plain"))

	t.Run("together", func(t *testing.T) {
		t.Run("gangs and single pods", w.gangs)
		t.Run("a zone", w.zone)
		t.Run("a namespace relabelled", w.namespaces)
		t.Run("a shard killed", w.killed)
	})
	t.Run("spread anyway", w.anyway) // while each shard has heard of all others: until then, its own nodes are what it knows

	for _, found := range w.seen.report() {
		t.Error(found)
	}
	w.audited()
}

// gangs has gangs that repel each other and themselves, and more single pods that repel each other than there are nodes.
func (w *world) gangs(t *testing.T) {
	t.Parallel()
	defer close(w.small)
	w = w.in(t)
	for i := range 12 {
		w.pod("alone", fmt.Sprint("single-", i), label("app", "single"), repels(corev1.LabelHostname, "app", "single"))
	}
	for _, gang := range []string{"red", "blue"} {
		w.gang(gang, 4)
	}
	w.count("alone", "app", "single", 9)
	w.count("alone", "app", "gang", 8)
	w.gang("green", 3) // one node is left for it
	waiting := w.waiting("alone", "single")
	if len(waiting) != 3 {
		t.Errorf("%d single pods wait: %v", len(waiting), waiting)
	}
	for _, name := range waiting {
		w.says("alone", name, avoiding)
	}
	w.event("alone", waiting[0], avoiding)
	localtest.Wait(t, patience, "the condition of gang green", func(ctx context.Context) error {
		var g v1beta1.PodGroup
		if err := w.kube.Basalt.Get().Namespace("alone").Resource("podgroups").Name("green").Do(ctx).Into(&g); err != nil {
			return err
		}
		if g.Status == nil || !strings.Contains(g.Status.Message, avoiding) {
			return fmt.Errorf("the status is %+v", g.Status)
		}
		return nil
	})

	before := time.Now()
	w.delete("alone", w.placed("alone", "single")[0])
	localtest.Wait(t, soon, "a single pod that follows", func(context.Context) error {
		if left := len(w.waiting("alone", "single")); left != 2 {
			return fmt.Errorf("%d wait", left)
		}
		return nil
	})
	t.Logf("a waiting pod followed after %s", time.Since(before).Round(time.Millisecond))
	w.count("alone", "app", "single", 9)

	before = time.Now()
	for i := range 4 {
		w.delete("alone", fmt.Sprint("red-", i))
	}
	localtest.Wait(t, soon, "gang green that follows", func(context.Context) error {
		if n := len(w.placed("alone", "green")); n != 3 {
			return fmt.Errorf("%d pods have nodes", n)
		}
		return nil
	})
	t.Logf("a waiting gang followed after %s", time.Since(before).Round(time.Millisecond))
	w.count("alone", "app", "gang", 7)
}

// zone keeps plain pods out of the zones where a pod of another scheduler repels them.
func (w *world) zone(t *testing.T) {
	t.Parallel()
	w = w.in(t)
	for i := range 4 {
		w.pod("zones", fmt.Sprint("plain-", i), label("app", "plain"))
	}
	w.count("zones", "app", "plain", 4)
	for _, p := range w.seen.pods() {
		if p.Namespace == "zones" && p.Labels["app"] == "plain" && w.seen.zoneOf(p.Spec.NodeName) != "zone-2" {
			t.Errorf("%s went to %s", p.Name, p.Spec.NodeName)
		}
	}
	in := func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{zone: "zone-0"} }
	w.pod("zones", "inside", label("app", "plain"), in)
	w.pod("zones", "other", label("app", "other"), in)
	w.says("zones", "inside", avoided)
	w.bound("zones", "other")
	before := time.Now()
	w.delete("zones", "north")
	w.within("zones", "inside", soon)
	t.Logf("a pod moved into the zone after %s", time.Since(before).Round(time.Millisecond))
}

// namespaces relabels a namespace into a term and out of it again.
func (w *world) namespaces(t *testing.T) {
	t.Parallel()
	w = w.in(t)
	there := pinned("node-4")
	holder := func(p *corev1.Pod) {
		repels(corev1.LabelHostname, "app", "web")(p)
		p.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "x"}}
		there(p)
	}
	w.pod("holders", "first", holder)
	w.bound("holders", "first")
	w.pod("labelled", "before", label("app", "web"), there)
	w.bound("labelled", "before")

	w.relabel("labelled", "x")
	n := 0
	localtest.Wait(t, patience, "the term to match", func(ctx context.Context) error { // shards see the namespace by a watch of its own
		n++
		name := fmt.Sprint("web-", n)
		w.pod("labelled", name, label("app", "web"), there)
		var last error
		localtest.Wait(t, patience, "pod "+name, func(context.Context) error {
			p := w.seen.named("labelled", name)
			switch {
			case p == nil:
				return errors.New("not seen")
			case p.Spec.NodeName != "":
				last = fmt.Errorf("%s went to %s", name, p.Spec.NodeName)
				return nil
			}
			last = nil
			return says(p, avoided)
		})
		return last
	})
	if n > 10 {
		t.Errorf("%d pods were bound after the namespace had its label", n-1)
	}
	t.Logf("the term matched the relabelled namespace for pod %d", n)
	w.pod("holders", "second", holder) // it repels the pods that are there already
	w.says("holders", "second", avoiding)

	before := time.Now()
	w.relabel("labelled", "")
	w.within("labelled", fmt.Sprint("web-", n), patience)
	w.within("holders", "second", patience)
	t.Logf("pods moved in %s after the namespace had lost its label", time.Since(before).Round(time.Millisecond))
}

// killed kills a shard while it places pods that repel each other.
func (w *world) killed(t *testing.T) {
	t.Parallel()
	<-w.small
	w = w.in(t)
	for i := 9; i < 60; i++ {
		w.node(i)
	}
	before := time.Now()
	var wg sync.WaitGroup
	for k := range 4 {
		wg.Go(func() {
			for i := k; i < 50; i += 4 {
				w.pod("rollout", fmt.Sprint("rollout-", i), label("app", "rollout"), repels(corev1.LabelHostname, "app", "rollout"))
			}
		})
	}
	localtest.Wait(t, patience, "some of the rollout", func(context.Context) error {
		if n := len(w.placed("rollout", "rollout")); n < 5 {
			return fmt.Errorf("%d have nodes", n)
		}
		return nil
	})
	w.shards[1].Kill()
	t.Logf("killed a shard with %d pods placed", len(w.placed("rollout", "rollout")))
	wg.Wait()
	w.count("rollout", "app", "rollout", 50)
	t.Logf("50 pods were placed after %s", time.Since(before).Round(time.Millisecond))
	for i := 50; i < 65; i++ {
		w.pod("rollout", fmt.Sprint("rollout-", i), label("app", "rollout"), repels(corev1.LabelHostname, "app", "rollout"))
	}
	w.count("rollout", "app", "rollout", 60)
	for _, name := range w.waiting("rollout", "rollout") {
		w.says("rollout", name, avoiding)
	}
	if w.shards[1].Starts() < 2 || w.shards[1].WaitReady(t.Context()) != nil {
		t.Error("the shard that was killed is not back")
	}
	t.Logf("60 of 65 after %s", time.Since(before).Round(time.Millisecond))
}

// ---- the cluster

func start(t *testing.T, nodes int, flags ...string) *world {
	w := &world{t: t, small: make(chan struct{})}
	w.cluster = localtest.Cluster(t, local.Options{Basalt: localtest.Basalt(t)})
	var err error
	w.kube, err = kube.ConnectConfig(w.cluster.Config(local.Admin), "apart")
	w.check(err)
	for i := range nodes {
		w.node(i)
	}
	w.seen = &recount{known: map[types.UID]*corev1.Pod{}, since: map[types.UID]time.Time{}, namespaces: map[string]map[string]string{}}
	etcd, err := clientv3.New(clientv3.Config{Endpoints: w.cluster.ControlStore(), DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
	w.check(err)
	w.auditor, err = follow.New(follow.Options{Etcd: etcd, Kube: w.cluster.Config(local.Admin)})
	w.check(err)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	t.Cleanup(func() { cancel(); wg.Wait(); _ = etcd.Close() })
	wg.Go(func() {
		if err := w.auditor.Run(ctx); err != nil && ctx.Err() == nil {
			t.Error(err)
		}
	})
	wg.Go(func() {
		if err := w.seen.follow(ctx, w.kube.Core); err != nil && ctx.Err() == nil {
			t.Error(err)
		}
	})
	wg.Go(func() { _ = kubelet.Run(ctx, kubelet.Options{Client: w.kube.Core}) })
	<-w.auditor.Synced()
	all, err := w.cluster.StartBasalt(t.Context(), 1, 3, local.BasaltOptions{Restart: true, Flags: flags})
	w.check(err)
	w.check(local.WaitReady(t.Context(), all))
	w.shards = all[1:]
	return w
}

// in is the world for a part of the test.
func (w *world) in(t *testing.T) *world {
	part := *w
	part.t = t
	return &part
}

func (w *world) check(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) node(i int) {
	w.t.Helper()
	n := kubelet.Node(fmt.Sprint("node-", i), "16", "64Gi", 110)
	n.Labels[zone] = zoneOf(i)
	_, err := w.kube.Core.CoreV1().Nodes().Create(w.t.Context(), n, metav1.CreateOptions{})
	w.check(err)
}

// zone is the label of nodes by which the tests divide them.
const zone = "example.com/zone"

func zoneOf(i int) string { return fmt.Sprint("zone-", i%3) }

func (w *world) namespace(name string) {
	w.t.Helper()
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	space.Labels = map[string]string{api.LabelRepelsOthers: "true"}
	_, err := w.kube.Core.CoreV1().Namespaces().Create(w.t.Context(), space, metav1.CreateOptions{})
	w.check(err)
}

// relabel gives a namespace a team, "" for none.
func (w *world) relabel(name, team string) {
	w.t.Helper()
	value := "null"
	if team != "" {
		value = fmt.Sprintf("%q", team)
	}
	_, err := w.kube.Core.CoreV1().Namespaces().Patch(w.t.Context(), name, types.MergePatchType, []byte(`{"metadata":{"labels":{"team":`+value+`}}}`), metav1.PatchOptions{})
	w.check(err)
}

// ---- what users do

type edit func(*corev1.Pod)

func label(key, value string) edit { return func(p *corev1.Pod) { p.Labels[key] = value } }

// repels gives a pod a required term about the pods with a label.
func repels(topology, key, value string) edit {
	return func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
			{TopologyKey: topology, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}}}}}
	}
}

// requires gives a pod a required term of affinity to the pods with a label.
func requires(topology, key, value string) edit {
	return func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
			{TopologyKey: topology, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}}}}}
	}
}

func cpu(amount string) edit {
	return func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse(amount) }
}

// pinned selects a node by its host name.
func pinned(node string) edit {
	return func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node} }
}

// foreign has another scheduler bind a pod.
func foreign(node string) edit {
	return func(p *corev1.Pod) { p.Spec.SchedulerName, p.Spec.NodeName = "other", node }
}

func (w *world) pod(namespace, name string, edits ...edit) {
	w.t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{}}, Spec: corev1.PodSpec{SchedulerName: api.SchedulerName,
		Containers: []corev1.Container{{Name: "c", Image: "none", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("100m")}}}}}}
	for _, e := range edits {
		e(p)
	}
	if _, err := w.kube.Core.CoreV1().Pods(namespace).Create(w.t.Context(), p, metav1.CreateOptions{}); err != nil {
		w.t.Error(err)
	}
}

func (w *world) podGroup(namespace, name string, size int32, topology ...v1beta1.TopologyConstraint) {
	w.t.Helper()
	g := &v1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	g.Spec.SchedulingPolicy.Gang.MinCount = size
	if len(topology) > 0 {
		g.Spec.SchedulingConstraints = &v1beta1.SchedulingConstraints{Topology: topology}
	}
	w.check(w.kube.Basalt.Post().Namespace(namespace).Resource("podgroups").Body(g).Do(w.t.Context()).Error())
}

// gang makes a PodGroup in the namespace alone whose pods repel those of all such gangs.
func (w *world) gang(name string, size int) {
	w.t.Helper()
	w.podGroup("alone", name, int32(size))
	for i := range size {
		w.pod("alone", fmt.Sprint(name, "-", i), label("app", "gang"), label(api.LabelPodGroup, name), repels(corev1.LabelHostname, "app", "gang"))
	}
}

func (w *world) delete(namespace, name string) {
	w.t.Helper()
	now := int64(0)
	w.check(w.kube.Core.CoreV1().Pods(namespace).Delete(w.t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &now}))
}

// ---- what users see

// count waits until so many pods with a label have nodes, and each a node of its own if they repel each other.
func (w *world) count(namespace, key, value string, want int) {
	w.t.Helper()
	localtest.Wait(w.t, patience, fmt.Sprintf("%d pods %s=%s", want, key, value), func(context.Context) error {
		n, nodes, apart := 0, map[string]bool{}, false
		for _, p := range w.seen.pods() {
			if p.Namespace == namespace && p.Labels[key] == value && p.Spec.NodeName != "" {
				n++
				nodes[p.Spec.NodeName] = true
				apart = p.Spec.Affinity != nil
			}
		}
		if apart && len(nodes) != n {
			w.t.Fatalf("%d pods %s=%s are on %d nodes", n, key, value, len(nodes))
		}
		if n != want {
			return fmt.Errorf("%d have nodes", n)
		}
		return nil
	})
}

// waiting and placed return the names of pods whose names begin so, without and with a node.
func (w *world) waiting(namespace, prefix string) []string { return w.some(namespace, prefix, false) }
func (w *world) placed(namespace, prefix string) []string  { return w.some(namespace, prefix, true) }

func (w *world) some(namespace, prefix string, bound bool) (names []string) {
	for _, p := range w.seen.pods() {
		if p.Namespace == namespace && strings.HasPrefix(p.Name, prefix) && (p.Spec.NodeName != "") == bound {
			names = append(names, p.Name)
		}
	}
	return names
}

// nobodyWaits waits until all pods whose names begin so have nodes.
func (w *world) nobodyWaits(namespace, prefix string) {
	w.t.Helper()
	localtest.Wait(w.t, patience, "all pods "+namespace+"/"+prefix, func(context.Context) error {
		if left := w.waiting(namespace, prefix); len(left) > 0 {
			return fmt.Errorf("%d wait, %s", len(left), left[0])
		}
		return nil
	})
}

// audited reports what the auditor has found.
func (w *world) audited() {
	w.t.Helper()
	for _, v := range w.auditor.Report().Violations {
		w.t.Errorf("auditor: %s", v)
	}
}

func (w *world) bound(namespace, name string) { w.t.Helper(); w.within(namespace, name, patience) }

func (w *world) within(namespace, name string, limit time.Duration) {
	w.t.Helper()
	localtest.Wait(w.t, limit, "a node for "+namespace+"/"+name, func(context.Context) error {
		switch p := w.seen.named(namespace, name); {
		case p == nil:
			return errors.New("not seen")
		case p.Spec.NodeName == "":
			return fmt.Errorf("it has none: %v", p.Status.Conditions)
		}
		return nil
	})
}

// says waits until a pod without a node says why.
func (w *world) says(namespace, name, words string) {
	w.t.Helper()
	localtest.Wait(w.t, patience, "the condition of "+namespace+"/"+name, func(context.Context) error {
		p := w.seen.named(namespace, name)
		if p == nil {
			return errors.New("not seen")
		}
		if p.Spec.NodeName != "" {
			w.t.Fatalf("pod %s/%s was bound to %s", namespace, name, p.Spec.NodeName)
		}
		return says(p, words)
	})
}

func says(p *corev1.Pod, words string) error {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && strings.Contains(c.Message, words) {
			return nil
		}
	}
	return fmt.Errorf("conditions of %s: %v", p.Name, p.Status.Conditions)
}

// event waits for a FailedScheduling event of a pod.
func (w *world) event(namespace, name, words string) {
	w.t.Helper()
	localtest.Wait(w.t, patience, "an event of "+name, func(ctx context.Context) error {
		events, err := w.kube.Core.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "reason=FailedScheduling,involvedObject.name=" + name})
		if err != nil {
			return err
		}
		for _, e := range events.Items {
			if strings.Contains(e.Message, words) {
				return nil
			}
		}
		return fmt.Errorf("%d events FailedScheduling", len(events.Items))
	})
}
