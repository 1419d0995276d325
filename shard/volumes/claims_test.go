package volumes

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/shard/event"
)

// A pod whose claim cannot be placed yet is shown again when the claim, or its volume, changes.
func TestPodsAreShownAgainWhenTheirClaimsChange(t *testing.T) {
	var last *api.Pod
	w := newWorld(func(p *api.Pod) { last = p })
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"},
		Spec: corev1.PodSpec{SchedulerName: api.SchedulerName, Volumes: []corev1.Volume{{Name: "data",
			VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{
				ClaimName: "data"}}}}},
	}
	refused := func(fragment string) {
		t.Helper()
		if last == nil || last.Refused == nil || last.Refused.Reason != "UnsupportedConstraint" ||
			!strings.Contains(last.Refused.Message, fragment) {
			t.Fatalf("refused %+v, want %q", last.Refused, fragment)
		}
	}
	see(w, pod)
	refused("does not exist")

	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data"}}
	see(w, claim)
	refused("names no StorageClass: it waits for a volume")

	claim = claim.DeepCopy()
	claim.Spec.VolumeName, claim.Status.Phase = "v", corev1.ClaimBound // a status says nothing
	see(w, claim)
	refused("not bound to its volume v yet")

	claim = claim.DeepCopy()
	claim.Status.Phase, claim.Annotations = "", map[string]string{"pv.kubernetes.io/bind-completed": "yes"}
	see(w, claim)
	refused("volume v does not exist")

	see(w, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v"}, Spec: corev1.PersistentVolumeSpec{
		PersistentVolumeSource: corev1.PersistentVolumeSource{GCEPersistentDisk: &corev1.GCEPersistentDiskVolumeSource{}}}})
	refused("its volume v: spec.gcePersistentDisk.pdName is empty")

	see(w, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v", Labels: map[string]string{
		corev1.LabelTopologyZone: "a"}}})
	if last.Refused != nil || !strings.Contains(string(last.Class.Constraints), corev1.LabelTopologyZone) {
		t.Fatalf("refused %+v, with constraints %q", last.Refused, last.Class.Constraints)
	}

	see(w, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v"}})
	if last.Refused != nil || len(last.Class.Constraints) > 0 {
		t.Fatalf("refused %+v, with constraints %q", last.Refused, last.Class.Constraints)
	}

	lose(w, pod)
	last = nil
	lose(w, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v"}})
	if last != nil {
		t.Fatal("a pod that is gone was shown again")
	}
}

// Events of claims and volumes cost what depends on them, with 10,000 pods that wait for others: no pod is shown
// again where the answer is the same, and only those that ask for the claim where it is not.
func TestClaimsOfOthersCostNothing(t *testing.T) {
	shown := map[string]int{}
	w := newWorld(func(p *api.Pod) { shown[p.UID]++ })
	waiting := func(i int, claim string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprint("p", i), UID: types.UID(fmt.Sprint("u", i))},
			Spec: corev1.PodSpec{SchedulerName: api.SchedulerName, Volumes: []corev1.Volume{{Name: "data",
				VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{
					ClaimName: claim}}}}},
		}
	}
	const pods = 10_000
	began := time.Now()
	for i := range pods {
		see(w, waiting(i, fmt.Sprint("claim", i)))
	}
	all := time.Since(began)
	claim := func(name, volume string, edit int) *corev1.PersistentVolumeClaim {
		p := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name,
			Annotations: map[string]string{"edit": fmt.Sprint(edit)}}}
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
	began = time.Now()
	count("edits of claims that nobody asks for", func() {
		for i := range 20_000 {
			edited := metav1.ObjectMeta{Name: "v", Annotations: map[string]string{"edit": fmt.Sprint(i)}}
			see(w, claim("other", "v", i))
			see(w, &corev1.PersistentVolume{ObjectMeta: edited})
		}
	})
	// Each by itself took 12 ms. A machine that is busy was so for the pods as well.
	if took := time.Since(began); took > 100*all {
		t.Errorf("40,000 events took %v, and %d pods %v", took, pods, all)
	}
	count("a claim that a pod waits for", func() { see(w, claim("claim7", "", 0)) }, "u7")
	count("an edit of it", func() { see(w, claim("claim7", "", 1)) })
	count("it is bound", func() { see(w, claim("claim7", "v7", 2)) }, "u7")
	count("a volume of nobody", func() { see(w, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v8"}}) })
	count("its volume", func() { see(w, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v7"}}) }, "u7")
	count("an edit of its volume", func() { see(w, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v7"}}) })
	count("another pod of the claim", func() { see(w, waiting(pods, "claim7")) }, "u10000")
	count("its volume is gone", func() { lose(w, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v7"}}) },
		"u7", "u10000")
	count("the claim is gone", func() { lose(w, claim("claim7", "v7", 2)) }, "u7", "u10000")
	count("a list with one claim", func() { list(w, claim("claim8", "v9", 0)) }, "u8")
	count("the same list", func() { list(w, claim("claim8", "v9", 0)) })
	count("a list of its volume", func() {
		list(w, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v9"}})
	}, "u8")
	bound := waiting(8, "claim8")
	bound.Spec.NodeName = "n"
	count("its pod is bound", func() { see(w, bound) }, "u8")
	count("the volume of no pod that waits", func() {
		lose(w, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{
			Name: "v9"}})
	})
	for i := range pods + 1 {
		lose(w, waiting(i, "x"))
	}
	if len(w.waits)+len(w.users)+len(w.bound) != 0 {
		t.Errorf("%d pods, %d claims and %d volumes are kept of pods that are gone", len(w.waits), len(w.users), len(w.bound))
	}
}

// The pods of a claim are shown at once when it changes, up to so many of them; those of others that change meanwhile
// go on.
func TestPodsOfAClaimAreShownAtOnce(t *testing.T) {
	for _, pods := range []int{promptPods, promptPods + 1} {
		shown := 0
		w := newWorld(func(*api.Pod) { shown++ })
		for i := range pods {
			see(w, claiming(fmt.Sprint("p", i), "shared", 0))
		}
		shown = 0
		see(w, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "shared"}})
		if prompt := pods <= promptPods; prompt != (shown == pods) || !prompt && shown != 0 {
			t.Errorf("%d of %d pods are shown at once", shown, pods)
		}
		w.pass(lateAfter)
		if shown != pods {
			t.Errorf("%d of %d pods are shown after %s", shown, pods, lateAfter)
		}
	}
}

// A claim that is deleted and made again all the time shows the many pods that wait for it once a second, and at last
// as it is.
func TestClaimOfManyPods(t *testing.T) {
	shown := 0
	var last *api.Pod
	w := newWorld(func(p *api.Pod) { shown, last = shown+1, p })
	const pods = 1000
	for i := range pods {
		see(w, claiming(fmt.Sprint("p", i), "shared", 0))
	}
	shown = 0
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "shared"}}
	for range 500 { // 10 s
		see(w, claim)
		w.pass(10 * time.Millisecond)
		lose(w, claim)
		w.pass(10 * time.Millisecond)
	}
	see(w, claim)
	w.pass(5 * time.Second)
	if shown > 12*pods || shown < pods {
		t.Errorf("%d pods were shown %d times in 10 s", pods, shown)
	}
	if last == nil || last.Refused == nil || !strings.Contains(last.Refused.Message, "waits for a volume") {
		t.Errorf("the last that was shown is %+v", last)
	}
}

// The many pods of a claim are shown again a few at a time: what happens meanwhile is taken in between, and is what
// those show that follow.
func TestPodsAreShownAFewAtATime(t *testing.T) {
	var shown []*api.Pod
	w := newWorld(func(p *api.Pod) { shown = append(shown, p) })
	const pods = 10 * atOnce
	for i := range pods {
		see(w, claiming(fmt.Sprintf("p%03d", i), "shared", 0))
	}
	see(w, claiming("other", "other", 0))
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "shared"}}
	see(w, claim)
	shown = nil
	w.now = w.now.Add(lateAfter)
	if w.step(event.Tick{}); len(shown) != atOnce || !w.Due().Equal(w.now) {
		t.Fatalf("%d pods are shown in a step, and the next is due at %v", len(shown), w.Due())
	}
	see(w, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "other"}})
	if shown[atOnce].Name != "other" || len(shown) != 2*atOnce+1 {
		t.Errorf("%d pods are shown, and then %s", len(shown), shown[atOnce].Name)
	}
	lose(w, claiming(fmt.Sprintf("p%03d", pods-1), "shared", 0))
	lose(w, claim)
	w.pass(5 * time.Second)
	last := map[string]string{}
	for _, p := range shown {
		last[p.Name] = p.Refused.Message
	}
	if len(last) != pods {
		t.Errorf("%d pods were shown again, want those that wait, %d", len(last), pods)
	}
	for name, why := range last {
		if name != "other" && !strings.Contains(why, "does not exist") {
			t.Errorf("pod %s is shown as %q", name, why)
		}
	}
}

// Work that is done for many events costs a tenth of the time at most, and that of one tenant or class delays no
// other's.
func TestTasks(t *testing.T) {
	tasks, began, now := newTasks(), time.Unix(1e9, 0), time.Unix(1e9, 0)
	took := map[string]time.Duration{"slow": time.Second}
	done := map[string][]time.Duration{}
	pass := func(d time.Duration) {
		for end := now.Add(d); ; {
			at := tasks.next()
			if at.IsZero() || at.After(end) {
				now = end
				return
			}
			now = at
			for p := tasks.take(now); p != nil; p = tasks.take(now) {
				done[p.of] = append(done[p.of], now.Sub(began))
				tasks.rest(now, p, took[p.of])
			}
		}
	}
	for range 100 { // 50 s
		tasks.later(now, task{showLate, "slow"})
		tasks.later(now, task{showLate, "fast"})
		pass(500 * time.Millisecond)
	}
	pass(time.Hour)
	if fmt.Sprint(done["slow"]) != "[1s 12s 23s 34s 45s 56s]" || len(done["fast"]) != 50 {
		t.Errorf("done at %v, and %d times", done["slow"], len(done["fast"]))
	}
	if len(tasks.of)+len(tasks.queue) != 0 {
		t.Errorf("%v are kept", tasks.of)
	}
}
