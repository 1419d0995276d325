package server

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"basalt.dev/basalt/api"
)

// A pod whose claim cannot be placed yet is shown again when the claim, or its volume, changes.
func TestPodsAreShownAgainWhenTheirClaimsChange(t *testing.T) {
	var last *api.Pod
	c := newClaims(api.Rules{}, func(p *api.Pod) { last = p }, nil)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"},
		Spec: corev1.PodSpec{SchedulerName: api.SchedulerName, Volumes: []corev1.Volume{{Name: "data",
			VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}},
	}
	refused := func(fragment string) {
		t.Helper()
		if last == nil || last.Refused == nil || last.Refused.Reason != "UnsupportedConstraint" || !strings.Contains(last.Refused.Message, fragment) {
			t.Fatalf("refused %+v, want %q", last.Refused, fragment)
		}
	}
	c.seen(pod)
	refused("does not exist")

	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data"}}
	c.claims().Seen(claim)
	refused("names no StorageClass: it waits for a volume")

	claim = claim.DeepCopy()
	claim.Spec.VolumeName, claim.Status.Phase = "v", corev1.ClaimBound // a status says nothing
	c.claims().Seen(claim)
	refused("not bound to its volume v yet")

	claim = claim.DeepCopy()
	claim.Status.Phase, claim.Annotations = "", map[string]string{"pv.kubernetes.io/bind-completed": "yes"}
	c.claims().Seen(claim)
	refused("volume v does not exist")

	c.volumes().Seen(&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v"}, Spec: corev1.PersistentVolumeSpec{
		PersistentVolumeSource: corev1.PersistentVolumeSource{GCEPersistentDisk: &corev1.GCEPersistentDiskVolumeSource{}}}})
	refused("its volume v: spec.gcePersistentDisk.pdName is empty")

	c.volumes().Seen(&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v", Labels: map[string]string{corev1.LabelTopologyZone: "a"}}})
	if last.Refused != nil || !strings.Contains(string(last.Class.Constraints), corev1.LabelTopologyZone) {
		t.Fatalf("refused %+v, with constraints %q", last.Refused, last.Class.Constraints)
	}

	c.volumes().Seen(&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v"}})
	if last.Refused != nil || len(last.Class.Constraints) > 0 {
		t.Fatalf("refused %+v, with constraints %q", last.Refused, last.Class.Constraints)
	}

	c.gone(pod)
	last = nil
	c.volumes().Gone(&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v"}})
	if last != nil {
		t.Fatal("a pod that is gone was shown again")
	}
}

// Events of claims and volumes cost what depends on them, with 10,000 pods that wait for others: no pod is shown again where
// the answer is the same, and only those that ask for the claim where it is not.
func TestClaimsOfOthersCostNothing(t *testing.T) {
	shown := map[string]int{}
	c := newClaims(api.Rules{}, func(p *api.Pod) { shown[p.UID]++ }, nil)
	waiting := func(i int, claim string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprint("p", i), UID: types.UID(fmt.Sprint("u", i))},
			Spec: corev1.PodSpec{SchedulerName: api.SchedulerName, Volumes: []corev1.Volume{{Name: "data",
				VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}}},
		}
	}
	const pods = 10_000
	began := time.Now()
	for i := range pods {
		c.seen(waiting(i, fmt.Sprint("claim", i)))
	}
	all := time.Since(began)
	claim := func(name, volume string, edit int) *corev1.PersistentVolumeClaim {
		p := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Annotations: map[string]string{"edit": fmt.Sprint(edit)}}}
		if volume != "" {
			p.Spec.VolumeName, p.Annotations["pv.kubernetes.io/bind-completed"] = volume, "yes"
		}
		return p
	}
	count := func(what string, do func(), want ...string) {
		t.Helper()
		clear(shown)
		do()
		if len(shown) != len(want) {
			t.Fatalf("%s: %d pods are shown, want %d", what, len(shown), len(want))
		}
		for _, uid := range want {
			if shown[uid] != 1 {
				t.Fatalf("%s: pod %s is shown %d times", what, uid, shown[uid])
			}
		}
	}
	claims, volumes := c.claims(), c.volumes()
	began = time.Now()
	count("edits of claims that nobody asks for", func() {
		for i := range 20_000 {
			edited := metav1.ObjectMeta{Name: "v", Annotations: map[string]string{"edit": fmt.Sprint(i)}}
			claims.Seen(claim("other", "v", i))
			volumes.Seen(&corev1.PersistentVolume{ObjectMeta: edited})
		}
	})
	// Each by itself took 12 ms. A machine that is busy was so for the pods as well.
	if took := time.Since(began); took > 100*all {
		t.Errorf("40,000 events took %v, and %d pods %v", took, pods, all)
	}
	count("a claim that a pod waits for", func() { claims.Seen(claim("claim7", "", 0)) }, "u7")
	count("an edit of it", func() { claims.Seen(claim("claim7", "", 1)) })
	count("it is bound", func() { claims.Seen(claim("claim7", "v7", 2)) }, "u7")
	count("a volume of nobody", func() { volumes.Seen(&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v8"}}) })
	count("its volume", func() { volumes.Seen(&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v7"}}) }, "u7")
	count("an edit of its volume", func() { volumes.Seen(&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v7"}}) })
	count("another pod of the claim", func() { c.seen(waiting(pods, "claim7")) }, "u10000")
	count("its volume is gone", func() { volumes.Gone(&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v7"}}) }, "u7", "u10000")
	count("the claim is gone", func() { claims.Gone(claim("claim7", "v7", 2)) }, "u7", "u10000")
	count("a list with one claim", func() { claims.Replaced([]*corev1.PersistentVolumeClaim{claim("claim8", "v9", 0)}, 0) }, "u8")
	count("the same list", func() { claims.Replaced([]*corev1.PersistentVolumeClaim{claim("claim8", "v9", 0)}, 0) })
	count("a list of its volume", func() {
		volumes.Replaced([]*corev1.PersistentVolume{{ObjectMeta: metav1.ObjectMeta{Name: "v9"}}}, 0)
	}, "u8")
	bound := waiting(8, "claim8")
	bound.Spec.NodeName = "n"
	count("its pod is bound", func() { c.seen(bound) }, "u8")
	count("the volume of no pod that waits", func() { volumes.Gone(&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v9"}}) })
	for i := range pods + 1 {
		c.gone(waiting(i, "x"))
	}
	if len(c.waiting)+len(c.users)+len(c.bound) != 0 {
		t.Errorf("%d pods, %d claims and %d volumes are kept of pods that are gone", len(c.waiting), len(c.users), len(c.bound))
	}
}

// The pods of a claim are shown at once when it changes, up to so many of them; those of others that change meanwhile go on.
func TestPodsOfAClaimAreShownAtOnce(t *testing.T) {
	for _, pods := range []int{promptPods, promptPods + 1} {
		synctest.Test(t, func(t *testing.T) {
			var shown atomic.Int32
			c := newClaims(api.Rules{}, func(*api.Pod) { shown.Add(1) }, nil)
			for i := range pods {
				c.seen(&corev1.Pod{
					ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprint("p", i), UID: types.UID(fmt.Sprint("u", i))},
					Spec: corev1.PodSpec{SchedulerName: api.SchedulerName, Volumes: []corev1.Volume{{Name: "data",
						VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "shared"}}}}},
				})
			}
			shown.Store(0)
			c.claims().Seen(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "shared"}})
			if now, prompt := int(shown.Load()), pods <= promptPods; prompt != (now == pods) || !prompt && now != 0 {
				t.Errorf("%d of %d pods are shown at once", now, pods)
			}
			time.Sleep(lateAfter + 1)
			synctest.Wait()
			if now := int(shown.Load()); now != pods {
				t.Errorf("%d of %d pods are shown after %s", now, pods, lateAfter)
			}
		})
	}
}

// A claim that is deleted and made again all the time shows the many pods that wait for it once a second, and at last as it is.
func TestClaimOfManyPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shown := 0
		var flushed atomic.Int32
		var last *api.Pod
		c := newClaims(api.Rules{}, func(p *api.Pod) { shown, last = shown+1, p }, func() { flushed.Add(1) })
		const pods = 1000
		for i := range pods {
			c.seen(&corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprint("p", i), UID: types.UID(fmt.Sprint("u", i))},
				Spec: corev1.PodSpec{SchedulerName: api.SchedulerName, Volumes: []corev1.Volume{{Name: "data",
					VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "shared"}}}}},
			})
		}
		shown = 0
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "shared"}}
		for range 500 { // 10 s
			c.claims().Seen(claim)
			time.Sleep(10 * time.Millisecond)
			c.claims().Gone(claim)
			time.Sleep(10 * time.Millisecond)
		}
		c.claims().Seen(claim)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if shown > 12*pods || shown < pods {
			t.Errorf("%d pods were shown %d times in 10 s", pods, shown)
		}
		if last == nil || last.Refused == nil || !strings.Contains(last.Refused.Message, "waits for a volume") || flushed.Load() == 0 {
			t.Errorf("the last that was shown is %+v; handed on %d times", last, flushed.Load())
		}
	})
}

// The pods of a claim are shown again one by one: whoever needs the lock meanwhile gets it, and who is gone by then is not shown.
func TestPodsAreShownOneByOne(t *testing.T) {
	var c *claims
	var got atomic.Bool
	shown := 0
	c = newClaims(api.Rules{}, func(*api.Pod) {
		if shown++; shown == promptPods+1 { // the first that is shown again
			go func() {
				c.mu.Lock()
				defer c.mu.Unlock()
				got.Store(true)
			}()
		}
		if shown > promptPods && !got.Load() {
			time.Sleep(5 * time.Millisecond) // a mutex is handed to who has waited for one
		}
	}, nil)
	for i := range promptPods {
		c.seen(claiming(fmt.Sprint("p", i), "shared", 0))
	}
	c.claims().Seen(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "shared"}})
	if shown != 2*promptPods || !got.Load() {
		t.Errorf("shown %d times, and the lock was free meanwhile: %v", shown, got.Load())
	}
	c.gone(claiming("p0", "shared", 0))
	if c.showPods(map[types.UID]bool{"p0": true, "p1": true}); shown != 2*promptPods+1 {
		t.Errorf("a pod that is gone was shown: %d", shown)
	}
}

// Work that is done for many events costs a tenth of the time at most, and that of one tenant or class delays no other's.
func TestTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClaims(api.Rules{}, func(*api.Pod) {}, nil)
		var mu sync.Mutex
		done := map[task][]time.Duration{}
		began := time.Now()
		ask := func(of string, took time.Duration) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.later(task{showSupplied, of}, time.Second, func() time.Duration {
				mu.Lock()
				defer mu.Unlock()
				done[task{showSupplied, of}] = append(done[task{showSupplied, of}], time.Since(began))
				return took
			})
		}
		for range 100 { // 50 s
			ask("slow", time.Second)
			ask("fast", 0)
			time.Sleep(500 * time.Millisecond)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if slow, fast := done[task{showSupplied, "slow"}], done[task{showSupplied, "fast"}]; fmt.Sprint(slow) != "[1s 11s 21s 31s 41s 51s]" || len(fast) != 50 {
			t.Errorf("done at %v, and %d times", slow, len(fast))
		}
		if len(c.tasks) != 0 {
			t.Errorf("%v are kept", c.tasks)
		}
	})
}
