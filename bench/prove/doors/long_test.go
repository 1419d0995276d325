//go:build doors

package doors

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	batch "volcano.sh/apis/pkg/apis/batch/v1alpha1"
	"volcano.sh/apis/pkg/apis/scheduling/v1beta1"
)

var long = flag.Duration("long", 10*time.Minute, "how long TestLong puts load on a cluster")

const (
	longLimit  = 5                // CPUs that the queue research may have
	longest    = 30 * time.Second // that a pod of a Deployment may wait
	deliveries = 10               // Deployments that are scaled up and down
)

// TestLong: Volcano's controllers with all that Basalt lets run beside it, for some minutes. Jobs come in a tree of Queues four deep of
// which the second level is limited; Deployments whose pods get PodGroups of their own are scaled from one to zero and back; a shard is
// killed every minute. No pod of a Deployment waits long, none that is bound is removed, and no change shows more than the limit. One exception: a pod whose
// PodGroup was deleted while a shard was down waits, for the shard that begins anew did not see what its PodGroup asked for.
func TestLong(t *testing.T) {
	w := installFor(t, "vc-controller-manager")
	w.shards = 3
	w.volcanoQueue("default", "root", "8")
	w.volcanoQueue("research", "root", fmt.Sprint(longLimit))
	w.volcanoQueue("team", "research", "")
	w.volcanoQueue("lab", "team", "")
	found := w.inPlaceOfVolcano()
	w.controller("vc-controller-manager", "--controllers=*,-queue-controller,-sharding-controller", "--leader-elect=false", "--logtostderr", "-v=3")
	w.shows("lab", v1beta1.QueueStateOpen, "", "")
	phases, most := w.follow(), w.recount()

	ctx, cancel := context.WithTimeout(t.Context(), *long)
	defer cancel()
	var load sync.WaitGroup
	var jobs, rounds, kills, orphans, unseen, killed atomic.Int64
	var names sync.Map
	for i := range 3 {
		load.Go(func() {
			for n := 0; ctx.Err() == nil && !t.Failed(); n++ {
				name := fmt.Sprintf("job-%d-%d", i, n)
				w.job(name, "lab", "2")
				w.jobIs(name, batch.Completed)
				if g := w.groupOf(name); g != nil {
					names.Store(g.Name, name)
				}
				if err := w.jobs().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
					t.Error(err)
				}
				jobs.Add(1)
			}
		})
	}
	for i := range deliveries {
		load.Go(func() {
			d := w.delivery(fmt.Sprint("web-", i), &orphans, &unseen, &killed)
			for n := 0; ctx.Err() == nil && !t.Failed(); n++ {
				d.round(n)
				rounds.Add(1)
			}
			d.scale(0)
		})
	}
	load.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Minute):
				killed.Store(time.Now().UnixNano())
				w.all[1+n%3].Kill()
				kills.Add(1)
			}
		}
	})
	load.Wait()
	w.shows("research", v1beta1.QueueStateOpen, "", "")
	w.shows("default", v1beta1.QueueStateOpen, "", "")
	names.Range(func(group, job any) bool {
		for _, p := range phases(group.(string)) {
			if !slices.Contains([]v1beta1.PodGroupPhase{"", v1beta1.PodGroupPending, v1beta1.PodGroupInqueue, v1beta1.PodGroupRunning, v1beta1.PodGroupCompleted}, p) {
				t.Errorf("PodGroup %s of %s was %v", group, job, phases(group.(string)))
			}
		}
		return true
	})
	if milli := most(); milli > longLimit*1000 {
		t.Errorf("pods with %d milli-CPUs of research ran at once, and its limit is %d CPUs", milli, longLimit)
	}
	if lines := w.refusedWrites("queues"); len(lines) > 0 {
		t.Errorf("the API server refused writes of queues: %q", lines)
	}
	t.Logf("%d jobs, %d rounds of Deployments, in %d of which Volcano's controller deleted the PodGroup of the new pod, in %d while a shard was down; %d shards killed; the most that research had at once were %d of %d milli-CPUs; refused writes of PodGroups, of whomever: %q",
		jobs.Load(), rounds.Load(), orphans.Load(), unseen.Load(), kills.Load(), most(), longLimit*1000, w.refusedWrites("podgroups"))
	found()
}

// recount watches the pods of jobs. The function that it returns says how much of them was bound and not finished at any one change.
func (w *world) recount() (most func() int64) {
	w.t.Helper()
	stream, err := w.kube.Core.CoreV1().Pods("default").Watch(w.t.Context(), metav1.ListOptions{LabelSelector: "volcano.sh/job-name"})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(stream.Stop)
	var peak atomic.Int64
	go func() {
		bound := map[types.UID]int64{}
		for e := range stream.ResultChan() {
			p, ok := e.Object.(*corev1.Pod)
			if w.t.Context().Err() != nil {
				return
			}
			if !ok {
				w.t.Errorf("the watch of pods ended: %v", e.Object)
				return
			}
			if e.Type == "DELETED" || p.Spec.NodeName == "" || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
				delete(bound, p.UID)
				continue
			}
			bound[p.UID] = p.Spec.Containers[0].Resources.Requests.Cpu().MilliValue()
			var sum int64
			for _, milli := range bound {
				sum += milli
			}
			peak.Store(max(peak.Load(), sum))
		}
	}()
	return peak.Load
}

// delivery is a Deployment of pods for which Volcano's controller makes PodGroups.
type delivery struct {
	*world
	name            string
	orphans, unseen *atomic.Int64 // pods without their PodGroup that were bound, and that waited
	killed          *atomic.Int64 // when a shard was killed last
}

// orphaned reports whether a pod names a PodGroup that Volcano's controller deleted after it had found it for this pod: it deletes those
// of ReplicaSets that had no pods by name, late (volcano-sh/volcano#5972), and nobody makes the PodGroup again.
func (d *delivery) orphaned(p corev1.Pod) bool {
	name := p.Annotations[v1beta1.KubeGroupNameAnnotationKey]
	return name != "" && p.DeletionTimestamp == nil && d.find(name) == nil
}

// lostUnseen reports whether that happened about when a shard was killed.
func (d *delivery) lostUnseen(p corev1.Pod) bool {
	return d.orphaned(p) && p.CreationTimestamp.Sub(time.Unix(0, d.killed.Load())).Abs() < 15*time.Second
}

func (w *world) delivery(name string, orphans, unseen, killed *atomic.Int64) *delivery {
	labels := map[string]string{"app": name}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Replicas: new(int32),
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{SchedulerName: "volcano",
			Containers: []corev1.Container{{Name: "c", Image: "i", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("100m")}}}}}}}}
	if _, err := w.kube.Core.AppsV1().Deployments("default").Create(w.t.Context(), d, metav1.CreateOptions{}); err != nil {
		w.t.Error(err)
	}
	return &delivery{w, name, orphans, unseen, killed}
}

func (d *delivery) scale(replicas int) {
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
	if _, err := d.kube.Core.AppsV1().Deployments("default").Patch(d.t.Context(), d.name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		d.t.Error(err)
	}
}

// round scales from zero to one, sees the pod bound and staying so, and scales to zero. Every third time it does not wait until the pod is gone.
func (d *delivery) round(n int) {
	d.scale(1)
	uid, began := types.UID(""), time.Now()
	for uid == "" {
		if time.Since(began) > longest && slices.ContainsFunc(d.pods(), d.lostUnseen) {
			d.unseen.Add(1)
			d.scale(0)
			return
		}
		if time.Since(began) > longest {
			d.t.Errorf("round %d of %s: no pod is bound after %s: %s", n, d.name, longest, d.describe())
			return
		}
		time.Sleep(100 * time.Millisecond)
		for _, p := range d.pods() {
			if p.Spec.NodeName != "" && p.DeletionTimestamp == nil {
				uid = p.UID
				if d.orphaned(p) {
					d.orphans.Add(1)
				}
			}
		}
	}
	time.Sleep(time.Duration(n%4) * 400 * time.Millisecond)
	stands := func() bool {
		return slices.ContainsFunc(d.pods(), func(p corev1.Pod) bool { return p.UID == uid && p.DeletionTimestamp == nil })
	}
	if !stands() {
		d.t.Errorf("round %d of %s: its bound pod %s was removed", n, d.name, uid)
	}
	d.scale(0)
	for (stands() || n%3 > 0 && len(d.pods()) > 0) && time.Since(began) < 2*longest {
		time.Sleep(100 * time.Millisecond)
	}
}

// describe says why its pods wait.
func (d *delivery) describe() (out []string) {
	for _, p := range d.pods() {
		words := fmt.Sprintf("pod %s made at %s: %v", p.Name, p.CreationTimestamp.Format(time.TimeOnly), p.Status.Conditions)
		if name := p.Annotations[v1beta1.KubeGroupNameAnnotationKey]; name == "" {
			words += ", without a PodGroup"
		} else if g := d.find(name); g == nil {
			words += ", PodGroup " + name + " does not exist"
		} else {
			words += fmt.Sprintf(", PodGroup made at %s: %+v", g.CreationTimestamp.Format(time.TimeOnly), g.Status)
		}
		out = append(out, words)
	}
	return append(out, fmt.Sprint(len(out), " pods"))
}

func (d *delivery) pods() []corev1.Pod {
	list, err := d.kube.Core.CoreV1().Pods("default").List(d.t.Context(), metav1.ListOptions{LabelSelector: "app=" + d.name})
	if err != nil {
		d.t.Error(err)
		return nil
	}
	return list.Items
}
