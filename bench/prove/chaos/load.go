package chaos

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/wait"
	"basalt.dev/basalt/bench/stage/kubelet"
)

// load makes gangs until it is told to stop. Each lives on a goroutine of its own, which is its owner: it makes the pods,
// replaces those that go, and takes them away.
type load struct {
	*run
	rand    *rand.Rand
	mix     []string        // kinds of gangs, as often as they are to come
	small   int             // of 10 gangs so many are small
	long    int             // of 10 gangs so many run for long: a node that has too much has it for long enough to be judged
	ctx     context.Context // ends the lives
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	pods    atomic.Int64 // unfinished
	made    atomic.Int64
	mu      sync.Mutex
	results map[string]int
	among   map[string]int // gangs that ended, by what they required
	torn    int
	open    map[*gang]string // what each gang is at
}

// What is done with a gang.
const (
	plain   = "plain"   // runs to its end
	cut     = "cut"     // is deleted in the middle
	again   = "again"   // is deleted and made again under the same name, at once
	grow    = "grow"    // gets more pods than its minimum, later
	orphan  = "orphan"  // loses its PodGroup
	replace = "replace" // loses pods, which are made anew
	owned   = "owned"   // has pods that a controller would make again: they may be evicted
	single  = "single"  // is a pod without PodGroup
	move    = "move"    // is a pod without PodGroup whose queue is changed
	resize  = "resize"  // has its minCount changed, down and up again
	torn    = "torn"    // loses what is not bound when its first pod is, and is given up: its pods are owned
)

type gang struct {
	name      string
	kind      string
	queue     string
	min, size int
	cpu       int64   // of a pod, milli
	runs      float64 // seconds that its pods run at least
	priority  string
	among     among // what its pods require of each other, and of those of other gangs
	rand      *rand.Rand
	uid       types.UID
	pods      map[string]types.UID // the names of its pods that are to run to their end
	next      int                  // number of the next pod
}

func (g *gang) ungrouped() bool { return g.kind == single || g.kind == move }

func newLoad(ctx context.Context, r *run) *load {
	l := &load{run: r, rand: rand.New(rand.NewPCG(r.Seed, 0x10ad)), results: map[string]int{}, among: map[string]int{}, open: map[*gang]string{}}
	l.ctx, l.cancel = context.WithCancel(ctx)
	l.small = 2 + l.rand.IntN(7)
	l.long = []int{0, 3, 7}[l.rand.IntN(3)]
	if r.Long {
		l.long = 7
	}
	for _, kind := range []string{plain, cut, again, grow, orphan, replace, owned, single, move, resize} {
		// Each seed has kinds of its own that it has most of: bugs hide in mixtures that are the same every time.
		for range l.rand.IntN(4) {
			l.mix = append(l.mix, kind)
		}
	}
	l.mix = append(l.mix, plain)
	return l
}

func (l *load) draw(i int) *gang {
	r := rand.New(rand.NewPCG(l.rand.Uint64(), uint64(i)))
	q := leaves[r.IntN(len(leaves))]
	g := &gang{name: fmt.Sprintf("g%04d", i), queue: q.name, rand: r, pods: map[string]types.UID{}}
	g.cpu = []int64{250, 500, 500, 1000, 1500}[r.IntN(5)]
	g.priority = []string{"", "", "", "chaos-low", "chaos-high"}[r.IntN(5)]
	switch n := r.IntN(10); {
	case n < l.small:
		g.size = 1 + r.IntN(4)
	case n < 9:
		g.size = 3 + r.IntN(8)
	default:
		g.size = 8 + r.IntN(13)
	}
	if r.IntN(10) < l.long {
		g.runs = 18
	}
	if g.among = drawAmong(r, g.name); g.among.most > 0 {
		g.size = min(g.size, g.among.most)
	}
	if g.among.together {
		g.size = min(g.size, int(6000/g.cpu)) // half of a zone's room, though a node of it may be away
	}
	// A cut limit still lets it through, or it would wait for the end.
	g.size = min(g.size, int(q.cpu*1000*55/100/g.cpu))
	g.min = g.size
	switch g.kind = l.mix[r.IntN(len(l.mix))]; g.kind {
	case grow:
		g.min = max(1, g.size/2)
	case replace:
		g.min = max(1, g.size*2/3)
	case single, move:
		g.size, g.min = 1, 1
	}
	return g
}

func (l *load) lead(g *gang) {
	defer l.wg.Done()
	defer l.pods.Add(-int64(g.size))
	l.at(g, "being made")
	what := l.live(g)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() == nil {
		delete(l.open, g)
		l.results[g.kind+" "+what]++
		if g.among.value != "" {
			l.among[g.among.what]++
		}
	}
}

func (l *load) at(g *gang, what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[g] = what
}

// produce makes gangs until loading ends; their lives go on.
func (l *load) produce(loading context.Context) {
	for i := 0; loading.Err() == nil; i++ {
		g := l.draw(i)
		pause := between(g.rand, 0, 300*time.Millisecond)
		for loading.Err() == nil && l.pods.Load()+int64(g.size) > int64(l.Backlog) {
			wait.For(loading, 50*time.Millisecond)
		}
		if loading.Err() != nil {
			return
		}
		l.pods.Add(int64(g.size))
		l.wg.Add(1)
		go l.lead(g)
		wait.For(loading, pause)
	}
}

// wait returns when every gang has run its course, or time is over.
func (l *load) wait(ctx context.Context) {
	done := make(chan struct{})
	go func() { l.wg.Wait(); close(done) }()
	tick := time.NewTicker(5 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-ctx.Done():
			return
		case <-tick.C:
			l.mu.Lock()
			n := 0
			for g, what := range l.open {
				if n++; n <= 5 {
					l.logf("still there: %s %s (%s, %s, %d pods, %s): %s", g.name, g.uid, g.kind, g.queue, g.size, cmp.Or(g.among.what, "anywhere"), what)
				}
			}
			l.logf("%d gangs are left", n)
			l.mu.Unlock()
		}
	}
}

func (l *load) report() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.result.Waited = l.view.waited()
	l.result.Gangs, l.result.Among, l.result.Pods = l.results, l.among, int(l.made.Load())
	n := 0
	for g, what := range l.open {
		if n++; n <= 12 {
			l.result.problem("gang %s %s (%s, queue %s, %d of at least %d pods with %d m each, %s) never ended: it is %s", g.name, g.uid, g.kind, g.queue, g.size, g.min, g.cpu, cmp.Or(g.among.what, "anywhere"), what)
		}
	}
	if n > 12 {
		l.result.problem("and %d more gangs", n-12)
	}
}

// try repeats a call until it is answered as wanted, or the load's time is over.
func (l *load) try(what string, call func(ctx context.Context) error) bool {
	pause := 50 * time.Millisecond
	for {
		ctx, cancel := context.WithTimeout(l.ctx, 10*time.Second)
		err := call(ctx)
		cancel()
		if err == nil {
			return true
		}
		if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
			l.logf("HARNESS %s: %v", what, err)
			return false
		}
		if !wait.For(l.ctx, pause) {
			return false
		}
		pause = min(2*pause, time.Second)
	}
}

// createGroup makes the PodGroup; old is the one that it replaces.
func (l *load) createGroup(g *gang, old types.UID) bool {
	return l.try("create PodGroup", func(ctx context.Context) error {
		o := &v1beta1.PodGroup{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: g.name},
			Spec:       v1beta1.PodGroupSpec{Queue: g.queue, PriorityClassName: g.priority, SchedulingPolicy: v1beta1.SchedulingPolicy{Gang: v1beta1.GangSchedulingPolicy{MinCount: int32(g.min)}}},
		}
		err := l.kube.Basalt.Post().Namespace(namespace).Resource("podgroups").Body(o).Do(ctx).Into(o)
		if apierrors.IsAlreadyExists(err) { // ours, when an answer was lost
			err = l.kube.Basalt.Get().Namespace(namespace).Resource("podgroups").Name(g.name).Do(ctx).Into(o)
		}
		if err == nil && o.UID == old {
			err = fmt.Errorf("the old one is still there")
		}
		g.uid = o.UID
		return err
	})
}

func (l *load) createPod(g *gang, name string, old types.UID) bool {
	grace := int64(g.rand.IntN(2))
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{api.LabelPodGroup: g.name},
			Annotations: map[string]string{kubelet.RunSeconds: fmt.Sprintf("%.1f", g.runs+0.5+5*g.rand.Float64())}},
		Spec: v1.PodSpec{
			SchedulerName: api.SchedulerName, RestartPolicy: v1.RestartPolicyNever, TerminationGracePeriodSeconds: &grace,
			Containers: []v1.Container{{Name: "main", Image: "none", Resources: v1.ResourceRequirements{Requests: v1.ResourceList{
				v1.ResourceCPU: *resource.NewMilliQuantity(g.cpu, resource.DecimalSI), v1.ResourceMemory: *resource.NewQuantity(g.cpu<<20, resource.BinarySI)}}}},
		},
	}
	if g.ungrouped() {
		p.Labels = map[string]string{api.LabelQueue: g.queue}
	}
	g.among.apply(p)
	if g.kind == owned || g.kind == torn {
		yes := true
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: g.name, UID: types.UID(g.name), Controller: &yes}}
	}
	return l.try("create pod", func(ctx context.Context) error {
		got, err := l.kube.Core.CoreV1().Pods(namespace).Create(ctx, p, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			got, err = l.kube.Core.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		}
		if err != nil {
			return err
		}
		if got.UID == old {
			return fmt.Errorf("the old one is still there")
		}
		g.pods[name] = got.UID
		l.made.Add(1)
		return nil
	})
}

// add makes so many pods more.
func (l *load) add(g *gang, n int) bool {
	for range n {
		if !l.createPod(g, fmt.Sprintf("%s-%02d", g.name, g.next), "") {
			return false
		}
		g.next++
	}
	return true
}

func (l *load) deletePod(name string, uid types.UID, atOnce bool) bool {
	return l.try("delete pod", func(ctx context.Context) error {
		o := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}
		if atOnce {
			zero := int64(0)
			o.GracePeriodSeconds = &zero
		}
		err := l.kube.Core.CoreV1().Pods(namespace).Delete(ctx, name, o)
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return nil
		}
		return err
	})
}

func (l *load) deleteGroup(g *gang) bool {
	if g.ungrouped() {
		return true
	}
	return l.try("delete PodGroup", func(ctx context.Context) error {
		err := l.kube.Basalt.Delete().Namespace(namespace).Resource("podgroups").Name(g.name).
			Body(&metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &g.uid}}).Do(ctx).Error()
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return nil
		}
		return err
	})
}

func (l *load) setMin(g *gang, n int) bool {
	return l.try("set minCount", func(ctx context.Context) error {
		body := fmt.Sprintf(`{"spec":{"schedulingPolicy":{"gang":{"minCount":%d}}}}`, n)
		return l.kube.Basalt.Patch(types.MergePatchType).Namespace(namespace).Resource("podgroups").Name(g.name).Body([]byte(body)).Do(ctx).Error()
	})
}

// remove takes a gang away, in either order.
func (l *load) remove(g *gang, atOnce bool) bool {
	groupFirst := g.rand.IntN(2) == 0
	if groupFirst && !l.deleteGroup(g) {
		return false
	}
	for name, uid := range g.pods {
		if !l.deletePod(name, uid, atOnce) {
			return false
		}
	}
	return groupFirst || l.deleteGroup(g)
}

// until waits until a condition on the pods holds.
func (l *load) until(limit time.Duration, holds func() bool) bool {
	ctx, cancel := context.WithTimeout(l.ctx, limit)
	defer cancel()
	for {
		next := l.view.next()
		if holds() {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-next:
		case <-time.After(time.Second):
		}
	}
}

const noLimit = time.Hour

// finish reports whether every pod has run to its end, and recreates those that somebody else removed.
func (l *load) finish(g *gang) bool {
	return l.until(noLimit, func() bool {
		left, bound := 0, 0
		for name, uid := range g.pods {
			p, there := l.view.pod(string(uid))
			switch {
			case !there && g.kind == owned && l.gone(name, uid):
				delete(g.pods, name)
				l.logf("%s of %s was removed, made anew", name, g.name)
				l.add(g, 1)
				left++
			case !there || !p.finished:
				left++
				if p.node != "" {
					bound++
				}
			}
		}
		l.at(g, fmt.Sprintf("waiting for %d pods, of which %d are bound", left, bound))
		return left == 0
	})
}

// gone asks the API server: the view may not have seen the pod yet.
func (l *load) gone(name string, uid types.UID) bool {
	ctx, cancel := context.WithTimeout(l.ctx, 5*time.Second)
	defer cancel()
	p, err := l.kube.Core.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	return apierrors.IsNotFound(err) || err == nil && p.UID != uid
}

// live is the life of a gang. It returns what became of it.
func (l *load) live(g *gang) string {
	if !g.ungrouped() && !l.createGroup(g, "") {
		return "failed"
	}
	first := g.size
	if g.kind == grow {
		first = g.min
	}
	if !l.add(g, first) {
		return "failed"
	}
	switch g.kind {
	case cut:
		l.at(g, "to be deleted")
		if !wait.For(l.ctx, between(g.rand, 0, 4*time.Second)) || !l.remove(g, g.rand.IntN(2) == 0) {
			return "failed"
		}
		l.at(g, "deleted")
		l.until(noLimit, func() bool { return l.left(g) == 0 })
		return "deleted"
	case again:
		wait.For(l.ctx, between(g.rand, 0, 4*time.Second))
		if !l.remove(g, true) {
			return "failed"
		}
		if g.rand.IntN(3) == 0 { // also under another queue, which another shard may be home to
			g.queue = l.otherQueue(g)
		}
		if !l.createGroup(g, g.uid) {
			return "failed"
		}
		old := g.pods
		g.pods = map[string]types.UID{}
		for i := range first {
			name := fmt.Sprintf("%s-%02d", g.name, i)
			if !l.createPod(g, name, old[name]) {
				return "failed"
			}
		}
	case move:
		wait.For(l.ctx, between(g.rand, 0, 2*time.Second))
		g.queue = l.otherQueue(g)
		l.try("move pod", func(ctx context.Context) error {
			body := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, api.LabelQueue, g.queue)
			_, err := l.kube.Core.CoreV1().Pods(namespace).Patch(ctx, g.name+"-00", types.MergePatchType, body, metav1.PatchOptions{})
			return err
		})
	case grow:
		if g.rand.IntN(2) == 0 {
			l.until(20*time.Second, func() bool { return l.bound(g) >= g.min })
		}
		wait.For(l.ctx, between(g.rand, 0, 2*time.Second))
		l.add(g, g.size-first)
	case replace:
		l.until(20*time.Second, func() bool { return l.bound(g) >= g.min })
		for name, uid := range g.pods {
			if p, _ := l.view.pod(string(uid)); !p.finished && g.rand.IntN(3) == 0 {
				l.deletePod(name, uid, g.rand.IntN(2) == 0)
				delete(g.pods, name)
				l.add(g, 1)
				break
			}
		}
	case torn:
		l.until(time.Minute, func() bool { return l.bound(g) > 0 })
		for name, uid := range g.pods {
			if p, _ := l.view.pod(string(uid)); p.node == "" {
				l.deletePod(name, uid, true)
			}
		}
		l.at(g, "torn")
		l.until(noLimit, func() bool { return l.left(g) == l.done(g) })
		l.deleteGroup(g)
		return "torn"
	case resize:
		wait.For(l.ctx, between(g.rand, 0, 3*time.Second))
		l.setMin(g, 1+g.rand.IntN(g.size))
		wait.For(l.ctx, between(g.rand, 0, 3*time.Second))
		l.setMin(g, g.size)
	case orphan:
		l.until(20*time.Second, func() bool { return l.bound(g) > 0 })
		l.deleteGroup(g)
		wait.For(l.ctx, between(g.rand, 0, 3*time.Second))
		for name, uid := range g.pods { // nobody will ever bind them
			if p, _ := l.view.pod(string(uid)); p.node == "" {
				l.deletePod(name, uid, true)
				delete(g.pods, name)
			}
		}
	}
	if !l.finish(g) {
		return "failed"
	}
	if g.kind == orphan || g.rand.IntN(3) > 0 {
		l.remove(g, true)
		return "finished and removed"
	}
	return "finished"
}

// tearing makes gangs that will be torn; see attack.tear.
func (l *load) tearing(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for range n {
		l.torn++
		g := &gang{name: fmt.Sprintf("torn%04d", l.torn), kind: torn, queue: leaves[l.torn%len(leaves)].name, min: 4, size: 4, cpu: 1000, runs: 60, priority: "chaos-high",
			rand: rand.New(rand.NewPCG(l.Seed, uint64(l.torn))), pods: map[string]types.UID{}}
		l.pods.Add(int64(g.size))
		l.wg.Add(1)
		go l.lead(g)
	}
}

func (l *load) done(g *gang) (n int) {
	for _, uid := range g.pods {
		if p, ok := l.view.pod(string(uid)); ok && p.finished {
			n++
		}
	}
	return n
}

// otherQueue draws a leaf in which the gang's minimum fits.
func (l *load) otherQueue(g *gang) string {
	for {
		if q := leaves[g.rand.IntN(len(leaves))]; q.cpu*1000*55/100 >= int64(g.size)*g.cpu {
			return q.name
		}
	}
}

func (l *load) bound(g *gang) (n int) {
	for _, uid := range g.pods {
		if p, ok := l.view.pod(string(uid)); ok && p.node != "" {
			n++
		}
	}
	return n
}

func (l *load) left(g *gang) (n int) {
	for _, uid := range g.pods {
		if _, ok := l.view.pod(string(uid)); ok {
			n++
		}
	}
	return n
}
