package volumes

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/bench/stage/local/localtest"
)

// Bad input of storage: what users are told of it, that what can be put right is placed as soon as it is, and that nobody else waits for it.

// More StorageClasses.
const (
	fleeting = "fleeting" // is deleted while volumes of it are being provisioned
	nobodys  = "nobodys"  // has a provisioner that does not exist
	raced    = "raced"    // volumes by hand, which several pods want
	paired   = "paired"   // likewise
	absent   = "absent"   // does not exist at first
)

// badClaims has pods whose claims cannot be used, each of which is put right then.
func (w *world) badClaims(t *testing.T) {
	t.Parallel()
	w = w.in(t)
	claims := w.kube.Core.CoreV1().PersistentVolumeClaims("default")
	remake := func(name string) {
		err := claims.Delete(w.t.Context(), name, metav1.DeleteOptions{})
		if !apierrors.IsNotFound(err) {
			w.check(err)
		}
		w.goneClaim(name)
		w.claim(name, class)
	}
	for name, c := range map[string]struct {
		make   func(name string)
		edit   func(name string) edit
		says   string
		repair func(name string)
	}{
		"missing": {says: "spec.volumes[0].persistentVolumeClaim (claim missing): the claim does not exist", repair: func(name string) { w.claim(name, class) }},
		"lost":    {make: w.loseVolume, says: "spec.volumes[0].persistentVolumeClaim (claim lost): the claim is lost: its volume lost-disk does not exist any more", repair: remake},
		"leaving": {make: func(name string) {
			w.claim(name, class, func(c *corev1.PersistentVolumeClaim) { c.Finalizers = []string{"example.com/hold"} })
			w.check(claims.Delete(w.t.Context(), name, metav1.DeleteOptions{}))
		}, says: "spec.volumes[0].persistentVolumeClaim (claim leaving): the claim is being deleted", repair: func(name string) {
			_, err := claims.Patch(w.t.Context(), name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
			w.check(err)
			remake(name)
		}},
		"owned": {make: func(name string) { w.claim(name+"-scratch", class) }, edit: ephemeral,
			says: "spec.volumes[0].ephemeral (claim owned-scratch): the claim was not made for this pod: another object owns it, or none", repair: func(name string) {
				w.check(claims.Delete(w.t.Context(), name+"-scratch", metav1.DeleteOptions{}))
			}},
		"classless": {make: func(name string) { w.claim(name, absent) },
			says: "spec.volumes[0].persistentVolumeClaim (claim classless): the claim is not bound, and its StorageClass absent does not exist", repair: func(string) {
				late := storagev1.VolumeBindingWaitForFirstConsumer
				_, err := w.kube.Core.StorageV1().StorageClasses().Create(w.t.Context(), &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: absent},
					Provisioner: "kubernetes.io/no-provisioner", VolumeBindingMode: &late}, metav1.CreateOptions{})
				w.check(err)
				w.volume("absent-disk", absent, "1Gi", "node-2")
			}},
	} {
		if c.make != nil {
			c.make(name)
		}
		of := uses(name)
		if c.edit != nil {
			of = c.edit(name)
		}
		w.podThatSays(name, c.says, of)
		// In a gang, the gang waits with it, and says which pod it is.
		w.group("of-"+name, 2)
		w.pod("of-"+name+"-fine", inGroup("of-"+name))
		w.pod("of-"+name+"-bad", inGroup("of-"+name), uses("none-"+name))
		w.says("of-"+name+"-fine", "pod default/of-"+name+"-bad: spec.volumes[0].persistentVolumeClaim (claim none-"+name+"): the claim does not exist")
		w.healthy("beside-" + name)
		c.repair(name)
		w.bound(name, 1)
		w.bound("of-"+name, 0)
	}
}

func ephemeral(string) edit {
	return func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
			VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				StorageClassName: new(class), Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{"storage": resource.MustParse("1Gi")}}}}}}}}
	}
}

// loseVolume makes a claim that has a volume, and deletes the volume.
func (w *world) loseVolume(name string) {
	w.t.Helper()
	disk := name + "-disk"
	w.volume(disk, raced, "1Gi", "node-1")
	w.claim(name, raced, func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = disk })
	w.phase(name, corev1.ClaimBound)
	w.check(w.kube.Core.CoreV1().PersistentVolumes().Delete(w.t.Context(), disk, metav1.DeleteOptions{}))
	_, err := w.kube.Core.CoreV1().PersistentVolumes().Patch(w.t.Context(), disk, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	w.check(err)
	w.phase(name, corev1.ClaimLost)
}

// classLeaves deletes a StorageClass while a volume of it is being provisioned.
func (w *world) classLeaves(t *testing.T) {
	t.Parallel()
	w = w.in(t)
	w.maker.hold("fleeting")
	w.claim("fleeting", fleeting)
	w.pod("fleeting", uses("fleeting"))
	w.selected("fleeting", true)
	classes := w.kube.Core.StorageV1().StorageClasses()
	of, err := classes.Get(t.Context(), fleeting, metav1.GetOptions{})
	w.check(err)
	w.check(classes.Delete(t.Context(), fleeting, metav1.DeleteOptions{}))
	w.says("fleeting", "spec.volumes[0].persistentVolumeClaim (claim fleeting): the claim is not bound, and its StorageClass fleeting does not exist")
	w.healthy("beside-fleeting")
	of.ObjectMeta = metav1.ObjectMeta{Name: fleeting}
	_, err = classes.Create(t.Context(), of, metav1.CreateOptions{})
	w.check(err)
	w.maker.release("fleeting")
	w.bound("fleeting", 1)
}

// noProvisioner has a gang of which one volume is never provisioned. It says what it waits for, and keeps the volume that was provisioned.
func (w *world) noProvisioner(t *testing.T) {
	t.Parallel()
	w = w.in(t)
	w.maker.trust("nobody-0")
	w.group("nobody", 2)
	for name, of := range map[string]string{"nobody-0": class, "nobody-1": nobodys} {
		w.claim(name, of)
		w.pod(name, inGroup("nobody"), uses(name))
	}
	w.phase("nobody-0", corev1.ClaimBound)
	w.selected("nobody-1", true)
	w.event("nobody-1", v1beta1.ReasonWaitingForVolumes, "it waits for claim nobody-1 to be bound")
	w.groupSays("nobody", v1beta1.ConditionPodGroupInitiallyScheduled, "the volumes of", "pod default/nobody-1 waits on node node-", "for claim nobody-1")
	w.healthy("beside-nobody")
	w.bound("nobody-", 0)
	w.delete("nobody-0")
	w.delete("nobody-1")
	w.phase("nobody-0", corev1.ClaimBound)
}

// broken has a gang of which one volume can never be provisioned, until it can. After a while it does not keep its quota.
func (w *world) broken(t *testing.T) {
	t.Parallel()
	w = w.in(t)
	w.maker.refuse("broken-0")
	w.maker.trust("broken-1")
	w.group("broken", 2)
	for _, name := range []string{"broken-0", "broken-1"} {
		w.claim(name, class)
		w.pod(name, inGroup("broken"), uses(name))
	}
	for _, name := range []string{"broken-0", "broken-1"} {
		w.says(name, "pod default/broken-0: claim broken-0: no volume could be provisioned for node")
	}
	w.groupSays("broken", v1beta1.ConditionQuotaReserved, "released because pod default/broken-0: claim broken-0: no volume could be provisioned for node")
	w.phase("broken-1", corev1.ClaimBound) // stays, and decides where its pod can go
	w.healthy("beside-broken")
	w.bound("broken-", 0)
	w.maker.release("broken-0")
	w.bound("broken-", 2)
}

// astray has a volume provisioned for another node than was chosen: the pod follows it.
func (w *world) astray(t *testing.T) {
	t.Parallel()
	w = w.in(t)
	w.maker.mislead("astray")
	w.group("astray", 3)
	for i := range 3 {
		name := fmt.Sprint("astray-", i)
		w.claim(name, class)
		w.pod(name, inGroup("astray"), uses(name))
	}
	w.bound("astray-", 3)
	if n := w.maker.misled.Load(); n < 3 {
		t.Errorf("%d volumes were made elsewhere", n)
	}
}

// race has two pods want the one volume that there is, and then makes another one.
func (w *world) race(t *testing.T) {
	t.Parallel()
	w = w.in(t)
	w.volume("raced-disk", raced, "5Gi", "node-6")
	for _, name := range []string{"raced-0", "raced-1"} {
		w.claim(name, raced, size("5Gi"))
		w.pod(name, uses(name))
	}
	w.bound("raced-", 1)
	loser := "raced-0"
	if w.seen.named(loser).Spec.NodeName != "" {
		loser = "raced-1"
	}
	w.says(loser, "(claim "+loser+"): the claim is not bound: no PersistentVolume of StorageClass raced suits it, and the class provisions none")
	w.volume("raced-other", raced, "5Gi", "node-7")
	w.bound("raced-", 2)
	if node := w.seen.named(loser).Spec.NodeName; node != "node-7" {
		t.Errorf("%s is on %s", loser, node)
	}
}

// unharmed is for how long a pod is watched that must not be evicted: the coordinator may mandate a claim every few seconds.
const unharmed = 15 * time.Second

// evictsNobody has a queue that is full, and gangs of higher priority that lack more than room: too few volumes, a claim that another pod uses, a
// class that is gone. Nobody is evicted for them, until one lacks room alone.
func (w *world) evictsNobody(t *testing.T) {
	t.Parallel()
	w = w.in(t)
	_, err := w.kube.Core.SchedulingV1().PriorityClasses().Create(t.Context(), &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "keen"}, Value: 1000}, metav1.CreateOptions{})
	w.check(err)
	q := &v1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Name: "keen"}}
	q.Spec.Capability, q.Spec.PreemptionPolicy = corev1.ResourceList{"cpu": resource.MustParse("1")}, v1beta1.PreemptLowerPriority
	q.Spec.PreemptionDelay, q.Spec.PreemptMinRuntime = &metav1.Duration{}, &metav1.Duration{}
	w.check(w.kube.Basalt.Post().Resource("queues").Body(q).Do(t.Context()).Error())
	in := func(p *corev1.Pod) {
		if p.Labels == nil {
			p.Labels = map[string]string{}
		}
		p.Labels[api.LabelQueue] = "keen"
	}
	keen := func(p *corev1.Pod) { p.Spec.PriorityClassName = "keen" }
	idle := []string{"idle-0"} // fewer than the gang has pods: how many there are is nothing that is borrowed
	for _, name := range idle {
		w.pod(name, in, cpu("900m"), func(p *corev1.Pod) { p.Labels[api.LabelPreemptible] = "true" })
	}
	w.bound("idle-", 1)
	w.claim("sole", class, func(c *corev1.PersistentVolumeClaim) {
		c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
	})
	w.pod("sole-user", uses("sole"))
	w.bound("sole-user", 1)

	w.pod("keen-sole", in, keen, cpu("900m"), uses("sole"))
	w.claim("keen-classless", "never-made")
	w.pod("keen-classless", in, keen, cpu("900m"), uses("keen-classless"))
	w.volume("pair-disk-0", paired, "1Gi", "node-5")
	w.group("pair", 2, func(g *v1beta1.PodGroup) { g.Spec.Queue = "keen" })
	for _, name := range []string{"pair-0", "pair-1"} {
		w.claim(name, paired)
		w.pod(name, inGroup("pair"), keen, cpu("400m"), uses(name))
	}
	w.says("keen-sole", "(claim sole): the claim is ReadWriteOncePod, and pod sole-user uses it")
	w.says("keen-classless", "(claim keen-classless): the claim is not bound, and its StorageClass never-made does not exist")
	for _, name := range []string{"pair-0", "pair-1"} {
		w.says(name, "2 of its pods need 2 free PersistentVolumes of StorageClass paired to start together, there is 1, and the class provisions none")
	}
	w.groupSays("pair", v1beta1.ConditionQuotaReserved, "2 of its pods need 2 free PersistentVolumes of StorageClass paired")
	is := map[string]types.UID{}
	for _, name := range idle {
		is[name] = w.seen.named(name).UID
	}
	for until := time.Now().Add(unharmed); time.Now().Before(until); time.Sleep(100 * time.Millisecond) {
		for _, name := range idle {
			if p := w.seen.named(name); p == nil || p.UID != is[name] || p.DeletionTimestamp != nil {
				t.Fatalf("%s was evicted: %+v", name, p)
			}
		}
	}
	v, err := w.kube.Core.CoreV1().PersistentVolumes().Get(t.Context(), "pair-disk-0", metav1.GetOptions{})
	if w.check(err); v.Spec.ClaimRef != nil {
		t.Errorf("the volume was taken for a gang that cannot start: %+v", v.Spec.ClaimRef)
	}
	w.volume("pair-disk-1", paired, "1Gi", "node-6")
	w.bound("pair-", 2)
	w.bound("idle-", 0)
	w.delete("sole-user")
}

// renamed renames a zone under the pods of a gang that requires one. They stay, and a further pod follows them.
func (w *world) renamed(t *testing.T) {
	w = w.in(t)
	w.group("moved", 2, func(g *v1beta1.PodGroup) {
		g.Spec.SchedulingConstraints = &v1beta1.SchedulingConstraints{Topology: []v1beta1.TopologyConstraint{{Key: "example.com/zone", Mode: v1beta1.TopologyRequired}}}
	})
	for _, name := range []string{"moved-0", "moved-1"} {
		w.pod(name, inGroup("moved"))
	}
	w.bound("moved-", 2)
	was := zoneOf(w.seen.named("moved-0").Spec.NodeName)
	if other := zoneOf(w.seen.named("moved-1").Spec.NodeName); other != was {
		t.Fatalf("the gang is in %s and %s", was, other)
	}
	for i := range nodes {
		if name := fmt.Sprint("node-", i); zoneOf(name) == was {
			_, err := w.kube.Core.CoreV1().Nodes().Patch(t.Context(), name, types.MergePatchType, []byte(`{"metadata":{"labels":{"example.com/zone":"renamed"}}}`), metav1.PatchOptions{})
			w.check(err)
			w.pod("seen-"+name, func(p *corev1.Pod) { // its shard knows
				p.Spec.NodeSelector = map[string]string{"example.com/zone": "renamed", corev1.LabelHostname: name}
			})
		}
	}
	w.bound("seen-", nodes/3)
	w.pod("left-behind", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"example.com/zone": was} })
	w.says("left-behind", "node affinity/selector")
	w.pod("moved-2", inGroup("moved"))
	w.bound("moved-", 3)
	if node := w.seen.named("moved-2").Spec.NodeName; zoneOf(node) != was {
		t.Errorf("the further pod is on %s, in another zone than the gang", node)
	}
	w.healthy("beside-moved")
}

// ---- what users do and see

// healthy places a gang with volumes: what it stands beside does not delay it.
func (w *world) healthy(name string) {
	w.t.Helper()
	before := time.Now()
	w.group(name, 2)
	for i := range 2 {
		pod := fmt.Sprint(name, "-", i)
		w.claim(pod, class)
		w.pod(pod, inGroup(name), uses(pod))
	}
	w.bound(name+"-", 2)
	w.t.Logf("%s was bound after %s", name, time.Since(before).Round(time.Millisecond))
}

// podThatSays makes a pod that waits, and says why. A shard may hear of the pod before it hears what is wrong with its claim, and place it by what was
// so before, as any scheduler would; then the pod is made again.
func (w *world) podThatSays(name, words string, edits ...edit) {
	w.t.Helper()
	w.pod(name, edits...)
	var placed types.UID
	localtest.Wait(w.t, patience, "pod "+name+" to wait", func(context.Context) error {
		if p := w.seen.named(name); p != nil && p.UID != placed && p.Spec.NodeName != "" {
			placed = p.UID
			w.seen.forget(p) // its claim gets another volume
			w.delete(name)
			w.pod(name, edits...)
		}
		return w.waits(name, words)
	})
}

// goneClaim waits until a claim is gone.
func (w *world) goneClaim(name string) {
	w.t.Helper()
	localtest.Wait(w.t, patience, "claim "+name+" to be gone", func(ctx context.Context) error {
		_, err := w.kube.Core.CoreV1().PersistentVolumeClaims("default").Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is there: %v", err)
	})
}

func (w *world) phase(claim string, want corev1.PersistentVolumeClaimPhase) {
	w.t.Helper()
	localtest.Wait(w.t, patience, fmt.Sprintf("claim %s to be %s", claim, want), func(ctx context.Context) error {
		c, err := w.kube.Core.CoreV1().PersistentVolumeClaims("default").Get(ctx, claim, metav1.GetOptions{})
		if err == nil && c.Status.Phase != want {
			err = fmt.Errorf("it is %s", c.Status.Phase)
		}
		return err
	})
}

// event waits for an event on a pod.
func (w *world) event(pod, reason, words string) {
	w.t.Helper()
	localtest.Wait(w.t, patience, fmt.Sprintf("event %s on pod %s", reason, pod), func(ctx context.Context) error {
		list, err := w.kube.Core.CoreV1().Events("default").List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + pod})
		if err != nil {
			return err
		}
		var others []string
		for _, e := range list.Items {
			if e.Reason == reason && strings.Contains(e.Message, words) {
				return nil
			}
			others = append(others, e.Reason+": "+e.Message)
		}
		return fmt.Errorf("other events: %q", others)
	})
}

// groupSays waits until a condition of a PodGroup is false, and says so.
func (w *world) groupSays(name, kind string, words ...string) {
	w.t.Helper()
	localtest.Wait(w.t, patience, "condition "+kind+" of PodGroup "+name, func(ctx context.Context) error {
		g := v1beta1.PodGroup{}
		if err := w.kube.Basalt.Get().Namespace("default").Resource("podgroups").Name(name).Do(ctx).Into(&g); err != nil {
			return err
		}
		if g.Status == nil {
			return errors.New("no status")
		}
		for _, c := range g.Status.Conditions {
			if c.Type != kind || c.Status != metav1.ConditionFalse {
				continue
			}
			for _, word := range words {
				if !strings.Contains(c.Message, word) {
					return fmt.Errorf("%q is missing in: %s", word, c.Message)
				}
			}
			return nil
		}
		return fmt.Errorf("conditions %v", g.Status.Conditions)
	})
}
