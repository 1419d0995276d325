// Package volumes has real shards place pods with unbound claims on a real API server, where kube-controller-manager binds claims and a
// small provisioner makes volumes, or fails to. It recounts from watches that no pod is bound before all volumes of its gang are.
package volumes

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
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/audit/follow"
	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/bench/stage/kubelet"
	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/localtest"
)

const (
	patience = 2 * time.Minute // for what must happen but has no time of its own; it ends hung tests only
	nodes    = 9
	class    = "made"   // of which volumes are provisioned,
	byHand   = "local"  // made by hand,
	limited  = "pooled" // provisioned where a CSIStorageCapacity has room,
	atOnce   = "atonce" // bound whatever pods there are
	fewer    = "fewer"  // of a driver of whose volumes a node can have few
)

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	localtest.Run(m)
}

// world is a cluster with three shards.
type world struct {
	t       *testing.T
	cluster *local.Cluster
	kube    *kube.Clients
	shards  []*local.Basalt
	auditor *follow.Auditor
	seen    *recount
	maker   *provisioner
}

func TestVolumes(t *testing.T) {
	w := start(t)
	t.Run("gang over all shards", w.gang) // alone, for it needs all nodes
	t.Run("together", func(t *testing.T) {
		t.Run("single pods", w.singles)
		t.Run("volumes made by hand", w.static)
		t.Run("storage capacity", w.capacity)
		t.Run("attach limits", w.attach)
		t.Run("a claim deleted", w.deleted)
		t.Run("a claim of two pods", w.shared)
		t.Run("words", w.words)
		t.Run("bad claims", w.badClaims)
		t.Run("a class that leaves", w.classLeaves)
		t.Run("a provisioner that does not exist", w.noProvisioner)
		t.Run("a provisioner that fails for ever", w.broken)
		t.Run("a provisioner that answers for another node", w.astray)
		t.Run("a race for one volume", w.race)
		t.Run("nobody is evicted", w.evictsNobody)
		t.Run("disks", w.disks)
	})
	t.Run("volumes of an in-tree kind", w.inTree)
	t.Run("a zone renamed", w.renamed)
	t.Run("a shard killed", w.killed)

	checked, found := w.seen.judge()
	t.Logf("%d pods with volumes were bound, %d volumes provisioned, %d tries failed", checked, w.maker.made.Load(), w.maker.failed.Load())
	for _, what := range found {
		t.Error(what)
	}
	if checked < 60 || w.maker.failed.Load() < 5 {
		t.Error("that is too little to show anything")
	}
	for _, v := range w.auditor.Report().Violations {
		t.Errorf("auditor: %s", v)
	}
}

// gang has a gang of which each pod needs most of a node of its own.
func (w *world) gang(t *testing.T) {
	w = w.in(t)
	before := time.Now()
	for i := range 3 {
		name := fmt.Sprint("wide-", i)
		w.group(name, 8)
		for k := range 8 {
			pod := fmt.Sprint(name, "-", k)
			w.claim(pod, class)
			w.pod(pod, inGroup(name), cpu("12"), uses(pod))
		}
		w.bound(name+"-", 8)
		t.Logf("gang %d was bound %s after the first was begun", i, time.Since(before).Round(time.Millisecond))
		for k := range 8 {
			w.delete(fmt.Sprint(name, "-", k))
		}
		w.bound(name+"-", 0)
	}
}

func (w *world) singles(t *testing.T) {
	t.Parallel()
	w = w.in(t)
	before := time.Now()
	for i := range 24 {
		name := fmt.Sprint("single-", i)
		w.claim(name, class)
		w.pod(name, uses(name))
	}
	w.bound("single-", 24)
	t.Logf("24 single pods were bound after %s", time.Since(before).Round(time.Millisecond))
}

// static has gangs choose volumes that are there, of which each node has few.
func (w *world) static(t *testing.T) {
	t.Parallel()
	w = w.in(t)
	for i := range 6 {
		w.volume(fmt.Sprint("disk-", i), byHand, "10Gi", fmt.Sprint("node-", i))
	}
	w.volume("disk-large", byHand, "100Gi", "node-0")
	before := time.Now()
	w.group("disks", 6)
	for i := range 6 {
		name := fmt.Sprint("disks-", i)
		w.claim(name, byHand)
		w.pod(name, inGroup("disks"), uses(name))
	}
	w.bound("disks-", 6)
	t.Logf("a gang of 6 with volumes on one node each was bound after %s", time.Since(before).Round(time.Millisecond))

	w.claim("huge", byHand, size("1Ti"))
	w.pod("huge", uses("huge"))
	w.says("huge", "no PersistentVolume of StorageClass local suits it")
	before = time.Now()
	w.volume("disk-huge", byHand, "2Ti", "node-8")
	w.bound("huge", 1)
	t.Logf("a pod followed its volume after %s", time.Since(before).Round(time.Millisecond))
	if node := w.seen.named("huge").Spec.NodeName; node != "node-8" {
		t.Errorf("huge is on %s", node)
	}
}

// capacity has pods go where a CSIStorageCapacity has room for their volumes.
func (w *world) capacity(t *testing.T) {
	t.Parallel()
	w = w.in(t)
	w.claim("pooled-0", limited)
	w.pod("pooled-0", uses("pooled-0"))
	w.says("pooled-0", "no CSIStorageCapacity of StorageClass pooled has room")
	most := resource.MustParse("5Gi")
	has := &storagev1.CSIStorageCapacity{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "few"}, StorageClassName: limited, Capacity: &most,
		NodeTopology: &metav1.LabelSelector{MatchLabels: map[string]string{"example.com/zone": "zone-1"}}}
	_, err := w.kube.Core.StorageV1().CSIStorageCapacities("default").Create(t.Context(), has, metav1.CreateOptions{})
	w.check(err)
	for i := 1; i < 4; i++ {
		name := fmt.Sprint("pooled-", i)
		w.claim(name, limited)
		w.pod(name, uses(name))
	}
	w.bound("pooled-", 4)
	for i := range 4 {
		if node := w.seen.named(fmt.Sprint("pooled-", i)).Spec.NodeName; zoneOf(node) != "zone-1" {
			t.Errorf("pooled-%d is on %s", i, node)
		}
	}
	w.claim("excess", limited, size("6Gi"))
	w.pod("excess", uses("excess"))
	w.says("excess", "no CSIStorageCapacity of StorageClass pooled has room for a volume of 6Gi")
}

// attach has nodes that can have few volumes attached, of a driver whose volumes are provisioned once the node of a pod is decided.
func (w *world) attach(t *testing.T) {
	t.Parallel()
	w = w.in(t)
	limits := map[string]int32{"node-3": 2, "node-4": 1}
	for i := range nodes {
		name := fmt.Sprint("node-", i)
		n := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name}}
		n.Spec.Drivers = []storagev1.CSINodeDriver{{Name: few, NodeID: name, Allocatable: &storagev1.VolumeNodeResources{Count: new(limits[name])}}}
		_, err := w.kube.Core.StorageV1().CSINodes().Create(t.Context(), n, metav1.CreateOptions{})
		w.check(err)
	}
	var claims []string
	for i := range 3 {
		claims = append(claims, fmt.Sprint("many-", i))
		w.claim(claims[i], fewer)
	}
	w.pod("many", uses(claims...))
	w.says("many", "9 node(s) exceed max volume count")
	w.group("fews", 3)
	for i := range 4 {
		name := fmt.Sprint("fews-", i)
		w.claim(name, fewer)
		if i < 3 {
			w.pod(name, inGroup("fews"), uses(name))
		}
	}
	w.bound("fews-", 3)
	on := map[string]int32{}
	for i := range 3 {
		on[w.seen.named(fmt.Sprint("fews-", i)).Spec.NodeName]++
	}
	if on["node-3"] != 2 || on["node-4"] != 1 {
		t.Errorf("the pods are on %v", on)
	}
	w.pod("fews-3", uses("fews-3"))
	w.says("fews-3", "9 node(s) exceed max volume count")
	w.delete("fews-0")
	w.bound("fews-3", 1)
}

// said is an error that is put into words when it is printed.
type said func() string

func (s said) Error() string { return s() }

// claimsOf says where the volumes of claims are, or are asked for.
func (w *world) claimsOf(prefix string) (out string) {
	list, err := w.kube.Core.CoreV1().PersistentVolumeClaims("default").List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		return err.Error()
	}
	for _, c := range list.Items {
		if !strings.HasPrefix(c.Name, prefix) {
			continue
		}
		at := c.Annotations[selectedNode]
		out += fmt.Sprintf("\nclaim %s: selected node %q, volume %q", c.Name, at, c.Spec.VolumeName)
		v, err := w.kube.Core.CoreV1().PersistentVolumes().Get(w.t.Context(), c.Spec.VolumeName, metav1.GetOptions{})
		if err == nil && v.Spec.NodeAffinity != nil {
			out += fmt.Sprint(" on ", v.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions)
		}
	}
	return out
}

// deleted deletes a claim while the volumes of its gang are being provisioned.
func (w *world) deleted(t *testing.T) {
	t.Parallel()
	w = w.in(t)
	w.maker.hold("torn")
	w.group("torn", 2)
	for _, name := range []string{"torn-0", "torn-1"} {
		w.claim(name, class)
		w.pod(name, inGroup("torn"), uses(name))
	}
	w.selected("torn-0", true)
	w.selected("torn-1", true)
	w.check(w.kube.Core.CoreV1().PersistentVolumeClaims("default").Delete(t.Context(), "torn-1", metav1.DeleteOptions{}))
	w.says("torn-1", "the claim")
	w.maker.release("torn")
	w.goneClaim("torn-1")
	w.claim("torn-1", class)
	w.bound("torn-", 2)
}

// shared has two pods of a gang use one claim, whose volume is on one node.
func (w *world) shared(t *testing.T) {
	t.Parallel()
	w = w.in(t)
	w.claim("both", class)
	w.group("both", 3)
	for i := range 3 {
		w.pod(fmt.Sprint("both-", i), inGroup("both"), uses("both"))
	}
	w.bound("both-", 3)
	one := w.seen.named("both-0").Spec.NodeName
	for i := range 3 {
		if node := w.seen.named(fmt.Sprint("both-", i)).Spec.NodeName; node != one {
			t.Errorf("both-%d is on %s, and the volume on %s", i, node, one)
		}
	}
}

// words has pods wait that cannot have their volumes.
func (w *world) words(t *testing.T) {
	t.Parallel()
	w = w.in(t)
	w.claim("soon", atOnce)
	w.pod("soon", uses("soon"))
	w.says("soon", "it waits for its volume to be provisioned by StorageClass atonce")
	w.maker.hold("never")
	w.claim("never", class)
	w.pod("never", uses("never"))
	w.selected("never", true)
	w.maker.refuse("never")
	w.says("never", "no volume could be provisioned for node")
	w.maker.release("never")
	w.bound("never", 1)
}

// killed kills a shard while the volumes of gangs are being provisioned.
func (w *world) killed(t *testing.T) {
	w = w.in(t)
	w.maker.hold("killed")
	w.group("killed", 8)
	for i := range 8 {
		name := fmt.Sprint("killed-", i)
		w.claim(name, class)
		w.pod(name, inGroup("killed"), cpu("9"), uses(name))
	}
	for i := range 8 {
		w.selected(fmt.Sprint("killed-", i), true)
	}
	w.shards[1].Kill()
	before := time.Now()
	time.Sleep(time.Duration(w.maker.random(1000)) * time.Millisecond)
	w.maker.release("killed")
	w.bound("killed-", 8)
	t.Logf("the gang was bound %s after a shard was killed", time.Since(before).Round(time.Millisecond))
	if w.shards[1].Starts() < 2 || w.shards[1].WaitReady(t.Context()) != nil {
		t.Error("the shard that was killed is not back")
	}
}

// ---- the cluster

func start(t *testing.T) *world {
	w := &world{t: t}
	w.cluster = localtest.Cluster(t, local.Options{Basalt: localtest.Basalt(t), ControllerManager: true})
	var err error
	w.kube, err = kube.ConnectConfig(w.cluster.Config(local.Admin), "volumes")
	w.check(err)
	for i := range nodes {
		n := kubelet.Node(fmt.Sprint("node-", i), "16", "64Gi", 110)
		n.Labels["example.com/zone"] = zoneOf(n.Name)
		_, err := w.kube.Core.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{})
		w.check(err)
	}
	late, soon := storagev1.VolumeBindingWaitForFirstConsumer, storagev1.VolumeBindingImmediate
	for _, c := range []struct {
		name, provisioner string
		mode              *storagev1.VolumeBindingMode
	}{{class, driver, &late}, {fewer, few, &late}, {limited, pool, &late}, {byHand, "kubernetes.io/no-provisioner", &late}, {atOnce, "example.com/nobody", &soon},
		{fleeting, driver, &late}, {nobodys, "example.com/nobody", &late}, {raced, "kubernetes.io/no-provisioner", &late}, {paired, "kubernetes.io/no-provisioner", &late}} {
		_, err := w.kube.Core.StorageV1().StorageClasses().Create(t.Context(), &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: c.name}, Provisioner: c.provisioner, VolumeBindingMode: c.mode}, metav1.CreateOptions{})
		w.check(err)
	}
	_, err = w.kube.Core.StorageV1().CSIDrivers().Create(t.Context(), &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: pool}, Spec: storagev1.CSIDriverSpec{StorageCapacity: new(true)}}, metav1.CreateOptions{})
	w.check(err)
	w.seen = newRecount()
	w.maker = newProvisioner(w.kube.Core)
	etcd, err := clientv3.New(clientv3.Config{Endpoints: w.cluster.ControlStore(), DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
	w.check(err)
	w.auditor, err = follow.New(follow.Options{Etcd: etcd, Kube: w.cluster.Config(local.Admin)})
	w.check(err)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	t.Cleanup(func() { cancel(); wg.Wait(); _ = etcd.Close() })
	run := func(f func(context.Context) error) {
		wg.Go(func() {
			if err := f(ctx); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		})
	}
	run(w.auditor.Run)
	run(func(ctx context.Context) error { return w.seen.follow(ctx, w.kube.Core) })
	run(w.maker.run)
	wg.Go(func() { _ = kubelet.Run(ctx, kubelet.Options{Client: w.kube.Core}) })
	<-w.auditor.Synced()
	all, err := w.cluster.StartBasalt(t.Context(), 1, 3, local.BasaltOptions{Restart: true})
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

// zoneOf is the zone of a node by its name.
func zoneOf(node string) string {
	i := 0
	_, _ = fmt.Sscanf(node, "node-%d", &i)
	return fmt.Sprint("zone-", i%3)
}

// ---- what users do

type edit func(*corev1.Pod)

func inGroup(name string) edit {
	return func(p *corev1.Pod) { p.Labels = map[string]string{api.LabelPodGroup: name} }
}

func cpu(n string) edit {
	return func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse(n)}
	}
}

func uses(claims ...string) edit {
	return func(p *corev1.Pod) {
		for _, name := range claims {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}})
		}
	}
}

func (w *world) pod(name string, edits ...edit) {
	w.t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{SchedulerName: api.SchedulerName,
		Containers: []corev1.Container{{Name: "c", Image: "none", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("100m")}}}}}}
	for _, e := range edits {
		e(p)
	}
	_, err := w.kube.Core.CoreV1().Pods("default").Create(w.t.Context(), p, metav1.CreateOptions{})
	w.check(err)
}

func (w *world) group(name string, least int32, edits ...func(*v1beta1.PodGroup)) {
	w.t.Helper()
	g := &v1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	g.Spec.SchedulingPolicy.Gang.MinCount = least
	for _, edit := range edits {
		edit(g)
	}
	w.check(w.kube.Basalt.Post().Namespace("default").Resource("podgroups").Body(g).Do(w.t.Context()).Error())
}

func size(q string) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) {
		c.Spec.Resources.Requests = corev1.ResourceList{"storage": resource.MustParse(q)}
	}
}

func (w *world) claim(name, class string, edits ...func(*corev1.PersistentVolumeClaim)) {
	w.t.Helper()
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &class,
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}}}
	size("1Gi")(c)
	for _, e := range edits {
		e(c)
	}
	_, err := w.kube.Core.CoreV1().PersistentVolumeClaims("default").Create(w.t.Context(), c, metav1.CreateOptions{})
	w.check(err)
}

// volume makes one by hand.
func (w *world) volume(name, class, size, node string) {
	w.t.Helper()
	v := volumeOn(name, class, resource.MustParse(size), node)
	v.Spec.Local = &corev1.LocalVolumeSource{Path: "/mnt/" + name}
	_, err := w.kube.Core.CoreV1().PersistentVolumes().Create(w.t.Context(), v, metav1.CreateOptions{})
	w.check(err)
}

func (w *world) delete(name string) {
	w.t.Helper()
	now := int64(0)
	w.check(w.kube.Core.CoreV1().Pods("default").Delete(w.t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &now}))
}

// ---- what users see

// bound waits until so many pods whose names begin so have nodes.
func (w *world) bound(prefix string, want int) {
	w.t.Helper()
	localtest.Wait(w.t, patience, fmt.Sprintf("%d pods %s", want, prefix), func(context.Context) error {
		n := 0
		words := ""
		for _, p := range w.seen.pods() {
			if !strings.HasPrefix(p.Name, prefix) {
				continue
			}
			if p.Spec.NodeName != "" {
				n++
			}
			for _, c := range p.Status.Conditions {
				if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
					words += "\n" + p.Name + ": " + c.Reason + ": " + c.Message
				}
			}
		}
		if n != want {
			return said(func() string { return fmt.Sprintf("%d have nodes%s%s", n, words, w.claimsOf(prefix)) })
		}
		return nil
	})
}

// selected waits until a claim is annotated with a node, or is not any more.
func (w *world) selected(claim string, want bool) {
	w.t.Helper()
	localtest.Wait(w.t, patience, fmt.Sprintf("the annotation of claim %s: %t", claim, want), func(ctx context.Context) error {
		c, err := w.kube.Core.CoreV1().PersistentVolumeClaims("default").Get(ctx, claim, metav1.GetOptions{})
		if err == nil && (c.Annotations[selectedNode] != "") != want {
			err = fmt.Errorf("it is %q", c.Annotations[selectedNode])
		}
		return err
	})
}

// says waits until a pod without a node says why.
func (w *world) says(name, words string) {
	w.t.Helper()
	localtest.Wait(w.t, patience, "the condition of "+name, func(context.Context) error { return w.waits(name, words) })
}

// waits returns an error if a pod does not say why it waits.
func (w *world) waits(name, words string) error {
	p := w.seen.named(name)
	if p == nil {
		return errors.New("not seen")
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && strings.Contains(c.Message, words) {
			return nil
		}
	}
	return fmt.Errorf("it is on %q: %v", p.Spec.NodeName, p.Status.Conditions)
}
