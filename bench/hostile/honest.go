package hostile

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/api/v1alpha1"
	"basalt.dev/basalt/bench/kubelet"
)

// honest makes gangs and single pods of well-behaved tenants at a steady rate, whatever becomes of those before, and takes each
// away when it has run.
type honest struct {
	kube *kube.Clients
	view *view
	rand *rand.Rand
	rate float64 // items a second
	wg   sync.WaitGroup

	mu      sync.Mutex
	samples []sample
	open    map[string]time.Time // items that are not bound yet, since when
	gang    string               // UID of a gang of an honest tenant that was just made
	broken  []string             // what the load could not do
}

// sample is one item: when its last pod was created, how long it took until its last pod was bound, and how long the API server
// took to create that pod.
type sample struct {
	made   time.Time
	took   time.Duration
	create time.Duration
}

// tenants are the honest ones: a namespace, and the queue that it uses.
var tenants = []struct{ namespace, queue string }{
	{"good-1", "org.good1"}, {"good-2", "org.good2"}, {"good-3", "pool.good"}, {"good-4", "lab.good"},
}

func (h *honest) run(ctx, lives context.Context) {
	tick := time.NewTicker(time.Duration(float64(time.Second) / h.rate))
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		r := rand.New(rand.NewPCG(h.rand.Uint64(), uint64(i)))
		h.wg.Go(func() { h.live(lives, i, r) })
	}
}

// live is the life of one item: a single pod, or a gang of two to four.
func (h *honest) live(ctx context.Context, i int, r *rand.Rand) {
	t := tenants[i%len(tenants)]
	name := fmt.Sprintf("h%d", i)
	size := []int{1, 1, 2, 2, 3, 4}[r.IntN(6)]
	cpu := []int64{50, 100, 250}[r.IntN(3)]
	h.mu.Lock()
	h.open[name] = time.Now()
	h.mu.Unlock()
	if size > 1 {
		g := &v1alpha1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: name}}
		g.Spec.Queue, g.Spec.SchedulingPolicy.Gang.MinCount = t.queue, int32(size)
		if !h.try(ctx, "create PodGroup", func() error {
			return h.kube.Basalt.Post().Namespace(t.namespace).Resource("podgroups").Body(g).Do(ctx).Into(g)
		}) {
			return
		}
		h.mu.Lock()
		h.gang = string(g.UID)
		h.mu.Unlock()
	}
	uids := make([]types.UID, size)
	began := time.Now()
	for j := range size {
		began = time.Now()
		zero, no := int64(0), false
		p := &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: fmt.Sprintf("%s-%d", name, j), Labels: map[string]string{api.LabelQueue: t.queue},
				Annotations: map[string]string{kubelet.RunSeconds: fmt.Sprintf("%.1f", 0.5+r.Float64())}},
			Spec: v1.PodSpec{SchedulerName: api.SchedulerName, RestartPolicy: v1.RestartPolicyNever, TerminationGracePeriodSeconds: &zero, AutomountServiceAccountToken: &no,
				Containers: []v1.Container{{Name: "c", Image: "none", Resources: v1.ResourceRequirements{Requests: milli(cpu)}}}},
		}
		if size > 1 {
			p.Labels = map[string]string{api.LabelPodGroup: name}
		}
		if !h.try(ctx, "create pod", func() error {
			got, err := h.kube.Core.CoreV1().Pods(t.namespace).Create(ctx, p, metav1.CreateOptions{})
			if err == nil {
				uids[j] = got.UID
			}
			return err
		}) {
			return
		}
	}
	made := time.Now()
	create := made.Sub(began)
	h.mu.Lock()
	h.open[name] = made
	h.mu.Unlock()
	last := time.Time{}
	for _, uid := range uids {
		select {
		case at := <-h.view.bound(uid):
			if at.After(last) {
				last = at
			}
		case <-ctx.Done():
			return
		}
	}
	h.mu.Lock()
	h.samples = append(h.samples, sample{made, max(0, last.Sub(made)), create})
	delete(h.open, name)
	h.mu.Unlock()
	if r.IntN(3) > 0 { // most end by themselves, the others are deleted while they run
		pause(ctx, 2*time.Second)
	}
	h.try(ctx, "delete pods", func() error {
		for j := range size {
			if err := h.kube.Core.CoreV1().Pods(t.namespace).Delete(ctx, fmt.Sprintf("%s-%d", name, j), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
				return err
			}
		}
		if size == 1 {
			return nil
		}
		err := h.kube.Basalt.Delete().Namespace(t.namespace).Resource("podgroups").Name(name).Do(ctx).Error()
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}

// try repeats a call for some time; false when it gave up.
func (h *honest) try(ctx context.Context, what string, call func() error) bool {
	for n := 0; ; n++ {
		err := call()
		if err == nil || n > 0 && apierrors.IsAlreadyExists(err) {
			return true
		}
		if !pause(ctx, 100*time.Millisecond) {
			return false
		}
		if n == 50 {
			h.mu.Lock()
			h.broken = append(h.broken, fmt.Sprintf("%s: %v", what, err))
			h.mu.Unlock()
			return false
		}
	}
}

// victim is the UID of a gang that another tenant has made.
func (h *honest) victim() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.gang
}

// waiting returns how many items made up to then are not bound.
func (h *honest) waiting(until time.Time) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, since := range h.open {
		if since.Before(until) {
			n++
		}
	}
	return n
}

// Latency is how long items took from their creation to their last binding.
type Latency struct {
	Items     int
	P50, P99  time.Duration
	Most      time.Duration
	CreateP99 time.Duration // of one request to create a pod: what the API server alone takes
}

func (l Latency) String() string {
	if l.Items == 0 {
		return "-"
	}
	return fmt.Sprintf("%s / %s", l.P50.Round(time.Millisecond), l.P99.Round(time.Millisecond))
}

// between measures the items made in some intervals; one that still waits counts with the time that it has waited so far.
func (h *honest) between(intervals ...[2]time.Time) Latency {
	in := func(t time.Time) bool {
		return slices.ContainsFunc(intervals, func(i [2]time.Time) bool { return !t.Before(i[0]) && t.Before(i[1]) })
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	var all, creates []time.Duration
	for _, s := range h.samples {
		if in(s.made) {
			all, creates = append(all, s.took), append(creates, s.create)
		}
	}
	for _, since := range h.open {
		if in(since) {
			all = append(all, time.Since(since))
		}
	}
	l := latency(all)
	l.CreateP99 = latency(creates).P99
	return l
}

func latency(all []time.Duration) Latency {
	if len(all) == 0 {
		return Latency{}
	}
	slices.Sort(all)
	at := func(part float64) time.Duration { return all[min(len(all)-1, int(part*float64(len(all))))] }
	return Latency{Items: len(all), P50: at(0.5), P99: at(0.99), Most: all[len(all)-1]}
}
