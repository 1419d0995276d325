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

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/wait"
	"basalt.dev/basalt/bench/stage/kubelet"
)

// honest makes gangs and single pods of well-behaved tenants at a steady rate, whatever becomes of those before, and takes each
// away when it has run. Beside each item it makes one of as many pods for the control group, which no scheduler is asked for:
// the suite binds these pods itself as soon as its watch shows them. What they wait is what the API server, its watches and this
// machine take from any scheduler, however fast: the floor.
type honest struct {
	kube *kube.Clients
	view *view
	rand *rand.Rand
	rate float64 // items a second
	wg   sync.WaitGroup

	tenants, control items

	mu     sync.Mutex
	gang   string   // UID of a gang of an honest tenant that was just made
	broken []string // what the load could not do
}

// items are what was measured of one kind of load.
type items struct {
	mu      sync.Mutex
	samples []sample
	open    map[string]time.Time // not bound yet, since when
}

// sample is one item: when its last pod was created, and how long it took from then until its last pod was bound.
type sample struct {
	made time.Time
	took time.Duration
}

// begun notes an item whose pods are being created, or, called again, were created at a time.
func (m *items) begun(name string, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.open == nil {
		m.open = map[string]time.Time{}
	}
	m.open[name] = at
}

// done notes that the last pod of an item was bound.
func (m *items) done(name string, last time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	made := m.open[name]
	m.samples = append(m.samples, sample{made, max(0, last.Sub(made))})
	delete(m.open, name)
}

// dropped forgets an item that could not be created.
func (m *items) dropped(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.open, name)
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
		size := []int{1, 1, 2, 2, 3, 4}[r.IntN(6)]
		h.wg.Go(func() { h.live(lives, i, size, r) })
		h.wg.Go(func() { h.liveControl(lives, i, size) })
	}
}

// live is the life of one item: a single pod, or a gang of two to four.
func (h *honest) live(ctx context.Context, i, size int, r *rand.Rand) {
	t := tenants[i%len(tenants)]
	name := fmt.Sprintf("h%d", i)
	cpu := []int64{50, 100, 250}[r.IntN(3)]
	h.tenants.begun(name, time.Now())
	if size > 1 {
		g := &v1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: name}}
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
	pods, ok := h.create(ctx, size, func(j int) *v1.Pod {
		p := plainPod(t.namespace, fmt.Sprintf("%s-%d", name, j), api.SchedulerName, cpu)
		p.Annotations = map[string]string{kubelet.RunSeconds: fmt.Sprintf("%.1f", 0.5+r.Float64())}
		if p.Labels = map[string]string{api.LabelQueue: t.queue}; size > 1 {
			p.Labels = map[string]string{api.LabelPodGroup: name}
		}
		return p
	})
	if !ok {
		return
	}
	h.tenants.begun(name, time.Now())
	last, ok := h.awaitBound(ctx, pods)
	if !ok {
		return
	}
	h.tenants.done(name, last)
	if r.IntN(3) > 0 { // most end by themselves, the others are deleted while they run
		wait.For(ctx, 2*time.Second)
	}
	h.delete(ctx, pods)
	if size > 1 {
		h.try(ctx, "delete PodGroup", func() error {
			err := h.kube.Basalt.Delete().Namespace(t.namespace).Resource("podgroups").Name(name).Do(ctx).Error()
			if apierrors.IsNotFound(err) {
				return nil
			}
			return err
		})
	}
}

// The control group has a namespace and a node of its own: nothing of it takes room from others.
const (
	controlNamespace = "control"
	controlNode      = "control"
)

// liveControl is the life of one item of the control group.
func (h *honest) liveControl(ctx context.Context, i, size int) {
	name := fmt.Sprintf("c%d", i)
	h.control.begun(name, time.Now())
	pods, ok := h.create(ctx, size, func(j int) *v1.Pod {
		return plainPod(controlNamespace, fmt.Sprintf("%s-%d", name, j), "nobody", 10)
	})
	if !ok {
		h.control.dropped(name)
		return
	}
	h.control.begun(name, time.Now())
	for _, p := range pods {
		select {
		case <-h.view.shown(p.UID):
		case <-ctx.Done():
			return
		}
	}
	var wg sync.WaitGroup
	for _, p := range pods {
		wg.Go(func() {
			h.try(ctx, "bind pod of the control group", func() error {
				pod := kube.Pod{Namespace: p.Namespace, Name: p.Name, UID: string(p.UID)}
				err := h.kube.Bind(ctx, pod, "", controlNode, nil, nil)
				if apierrors.IsConflict(err) { // bound by a try whose answer was lost
					return nil
				}
				return err
			})
		})
	}
	last, ok := h.awaitBound(ctx, pods)
	wg.Wait()
	if !ok {
		return
	}
	h.control.done(name, last)
	wait.For(ctx, time.Second)
	h.delete(ctx, pods)
}

// plainPod describes a pod as both groups have it.
func plainPod(namespace, name, scheduler string, cpu int64) *v1.Pod {
	zero, no := int64(0), false
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1.PodSpec{SchedulerName: scheduler, RestartPolicy: v1.RestartPolicyNever, TerminationGracePeriodSeconds: &zero, AutomountServiceAccountToken: &no,
			Containers: []v1.Container{{Name: "c", Image: "none", Resources: v1.ResourceRequirements{Requests: milli(cpu)}}}},
	}
}

// create creates the pods of an item one after another; false when one could not be created.
func (h *honest) create(ctx context.Context, n int, pod func(j int) *v1.Pod) (made []*v1.Pod, ok bool) {
	for j := range n {
		p := pod(j)
		if !h.try(ctx, "create pod", func() error {
			got, err := h.kube.Core.CoreV1().Pods(p.Namespace).Create(ctx, p, metav1.CreateOptions{})
			if apierrors.IsAlreadyExists(err) { // the answer to an earlier try was lost
				got, err = h.kube.Core.CoreV1().Pods(p.Namespace).Get(ctx, p.Name, metav1.GetOptions{})
			}
			if err == nil {
				made = append(made, got)
			}
			return err
		}) {
			return nil, false
		}
	}
	return made, true
}

// awaitBound waits until all pods of an item are bound, and returns when the last was; false when the context ended first.
func (h *honest) awaitBound(ctx context.Context, pods []*v1.Pod) (last time.Time, ok bool) {
	for _, p := range pods {
		select {
		case at := <-h.view.bound(p.UID):
			if at.After(last) {
				last = at
			}
		case <-ctx.Done():
			return last, false
		}
	}
	return last, true
}

func (h *honest) delete(ctx context.Context, pods []*v1.Pod) {
	for _, p := range pods {
		h.try(ctx, "delete pod", func() error {
			err := h.kube.Core.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return err
		})
	}
}

// try repeats a call for some time; false when it gave up.
func (h *honest) try(ctx context.Context, what string, call func() error) bool {
	for n := 0; ; n++ {
		err := call()
		if err == nil || n > 0 && apierrors.IsAlreadyExists(err) {
			return true
		}
		if !wait.For(ctx, 100*time.Millisecond) {
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
func (m *items) waiting(until time.Time) (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, since := range m.open {
		if since.Before(until) {
			n++
		}
	}
	return n
}

// Latency is how long items took from their creation to their last binding.
type Latency struct {
	Items    int
	P50, P99 time.Duration
	Most     time.Duration
}

func (l Latency) String() string {
	if l.Items == 0 {
		return "-"
	}
	return fmt.Sprintf("%s / %s", l.P50.Round(time.Millisecond), l.P99.Round(time.Millisecond))
}

// Waits are how long items of the honest tenants took, and the floor: how long those of the control group did meanwhile.
type Waits struct{ Tenants, Floor Latency }

// between measures the items made in some intervals.
func (h *honest) between(intervals ...[2]time.Time) Waits {
	return Waits{h.tenants.between(intervals...), h.control.between(intervals...)}
}

// between measures the items made in some intervals; one that still waits counts with the time that it has waited so far.
func (m *items) between(intervals ...[2]time.Time) Latency {
	in := func(t time.Time) bool {
		return slices.ContainsFunc(intervals, func(i [2]time.Time) bool { return !t.Before(i[0]) && t.Before(i[1]) })
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []time.Duration
	for _, s := range m.samples {
		if in(s.made) {
			all = append(all, s.took)
		}
	}
	for _, since := range m.open {
		if in(since) {
			all = append(all, time.Since(since))
		}
	}
	return latency(all)
}

func latency(all []time.Duration) Latency {
	if len(all) == 0 {
		return Latency{}
	}
	slices.Sort(all)
	at := func(part float64) time.Duration { return all[min(len(all)-1, int(part*float64(len(all))))] }
	return Latency{Items: len(all), P50: at(0.5), P99: at(0.99), Most: all[len(all)-1]}
}
