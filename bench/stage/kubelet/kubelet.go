// Package kubelet stands in for the kubelets of nodes that do not exist: it starts the pods that got a node, ends those that
// have run their time, and lets go of those that are deleted. One process serves all nodes.
//
// It decides a pod's phase from nothing but the pod and the clock. It owns the status of pods that have a node. It knows
// nothing of Basalt, renews no lease and reports no node; it refuses to judge whether a pod fits.
//
// Invariants: each decision is made from the pod's present state, so a cut watch, a restart or a lost write costs time only;
// each write names the pod's UID.
package kubelet

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	resourcehelper "k8s.io/component-helpers/resource"
)

// RunSeconds on a pod says how long it runs before it succeeds, a decimal number. A pod without it runs until it is deleted,
// but for those of Jobs: see Options.JobRun.
const RunSeconds = "bench.basalt.dev/run-seconds"

// Options of the stand-in.
type Options struct {
	// Client makes the writes and the watch.
	Client kubernetes.Interface
	// JobRun is how long the pods of Jobs run that do not say it themselves, by RunSeconds or a command such as
	// `sleep 600`; 0 means until they are deleted.
	JobRun time.Duration
	// SkipRunning leaves out the phase Running: a pod goes from Pending to Succeeded when its time is over, which saves the
	// API server one of the two writes.
	SkipRunning bool
	// Room, where it is set, makes the stand-in admit pods as a kubelet does: it returns what a node has, nil for a node that has
	// no kubelet. A pod that asks for more than what the pods admitted before have left fails, for the reason OutOfcpu for example.
	// The statuses of the others say what their containers have. A resize in place is never carried out: it stays infeasible, or
	// deferred where the node has as much.
	Room func(node string) corev1.ResourceList
	// Workers is how many writes are in flight at most; 8 if 0.
	Workers int
	// Log takes what went wrong; slog.Default if nil.
	Log *slog.Logger
}

// Node describes a node that is ready and empty. Extended resources can be added to its status before it is created.
func Node(name, cpu, memory string, pods int64) *corev1.Node {
	room := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse(cpu),
		corev1.ResourceMemory: resource.MustParse(memory),
		corev1.ResourcePods:   *resource.NewQuantity(pods, resource.DecimalSI),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
		}},
		Status: corev1.NodeStatus{
			Capacity: room, Allocatable: room.DeepCopy(),
			Conditions: []corev1.NodeCondition{{
				Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "StandIn", Message: "this node does not exist",
				LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now(),
			}},
		},
	}
}

type standIn struct {
	Options
	pods  cache.Store
	queue workqueue.TypedRateLimitingInterface[string]

	mu       sync.Mutex
	since    map[types.UID]time.Time                      // when a pod that has a run time began to run
	admitted map[string]map[types.UID]corev1.ResourceList // by node, with Room
	resized  map[types.UID]bool                           // pods whose resize was answered
}

// Run serves every pod that has a node until the context ends. The error is about the options.
func Run(ctx context.Context, o Options) error {
	if o.Client == nil {
		return fmt.Errorf("run node stand-in: no client")
	}
	if o.Workers == 0 {
		o.Workers = 8
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	s := &standIn{
		Options: o, since: map[types.UID]time.Time{}, admitted: map[string]map[types.UID]corev1.ResourceList{}, resized: map[types.UID]bool{},
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](10*time.Millisecond, 5*time.Second)),
	}
	enqueue := func(obj any) {
		if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
			s.queue.Add(key)
		}
	}
	pods, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewFilteredListWatchFromClient(o.Client.CoreV1().RESTClient(), "pods", "",
			func(l *metav1.ListOptions) { l.FieldSelector = "spec.nodeName!=" }),
		ObjectType: &corev1.Pod{},
		Transform:  s.reduce,
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    enqueue,
			UpdateFunc: func(_, obj any) { enqueue(obj) },
			DeleteFunc: func(obj any) {
				if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
					obj = gone.Obj
				}
				if p, ok := obj.(*corev1.Pod); ok {
					s.release(p)
					s.forget(p.UID)
				}
			},
		},
	})
	s.pods = pods
	var wg sync.WaitGroup
	wg.Go(func() { informer.RunWithContext(ctx) })
	for range o.Workers {
		wg.Go(func() {
			for s.serveNext(ctx) {
			}
		})
	}
	<-ctx.Done()
	s.queue.ShutDown()
	wg.Wait()
	return nil
}

// reduce keeps of a pod what the stand-in reads: it may hold all pods of a large cluster.
func (s *standIn) reduce(obj any) (any, error) {
	p, ok := obj.(*corev1.Pod)
	if !ok {
		return obj, nil
	}
	small := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: p.Name, Namespace: p.Namespace, UID: p.UID, ResourceVersion: p.ResourceVersion,
			DeletionTimestamp: p.DeletionTimestamp, DeletionGracePeriodSeconds: p.DeletionGracePeriodSeconds,
		},
		Spec:   corev1.PodSpec{NodeName: p.Spec.NodeName},
		Status: corev1.PodStatus{Phase: p.Status.Phase, StartTime: p.Status.StartTime},
	}
	if run, ends := s.runTime(p); ends { // all that commands and owners are read for
		small.Annotations = map[string]string{RunSeconds: strconv.FormatFloat(run.Seconds(), 'f', -1, 64)}
	}
	for _, c := range p.Spec.Containers {
		small.Spec.Containers = append(small.Spec.Containers, corev1.Container{Name: c.Name, Image: c.Image})
		if s.Room != nil {
			small.Spec.Containers[len(small.Spec.Containers)-1].Resources = c.Resources
		}
	}
	if s.Room != nil {
		small.Spec.InitContainers, small.Spec.Overhead, small.Spec.Resources = p.Spec.InitContainers, p.Spec.Overhead, p.Spec.Resources
	}
	return small, nil
}

func (s *standIn) forget(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.since, uid)
}

// runningSince is when we first saw the pod with its node or, after a restart of ours, when it says that it started.
func (s *standIn) runningSince(p *corev1.Pod, now time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t, ok := s.since[p.UID]; ok {
		return t
	}
	t := now
	if p.Status.StartTime != nil && p.Status.StartTime.Time.Before(now) {
		t = p.Status.StartTime.Time
	}
	s.since[p.UID] = t
	return t
}

func (s *standIn) serveNext(ctx context.Context) bool {
	key, down := s.queue.Get()
	if down {
		return false
	}
	defer s.queue.Done(key)
	err := s.serve(ctx, key)
	switch {
	case err == nil, apierrors.IsNotFound(err), apierrors.IsConflict(err): // gone, or another pod of this name: its event comes
		s.queue.Forget(key)
	case ctx.Err() != nil:
	default:
		if s.queue.NumRequeues(key) == 5 {
			s.Log.Warn("node stand-in cannot write a pod, and goes on trying", "pod", key, "error", err)
		}
		s.queue.AddRateLimited(key)
	}
	return true
}

func (s *standIn) serve(ctx context.Context, key string) error {
	obj, exists, err := s.pods.GetByKey(key)
	if err != nil || !exists {
		return err
	}
	p := obj.(*corev1.Pod)
	if s.Room != nil {
		if status, here := s.admit(p); status != nil {
			return s.patch(ctx, p, *status)
		} else if !here {
			return nil
		}
	}
	now := time.Now()
	run, ends := s.runTime(p)
	since := now
	if ends && p.DeletionTimestamp == nil && (p.Status.Phase == corev1.PodPending || p.Status.Phase == corev1.PodRunning) {
		since = s.runningSince(p, now)
	}
	what, wait := next(p, now.Sub(since), run, ends, s.SkipRunning)
	if wait > 0 {
		s.queue.AddAfter(key, wait)
	}
	switch what {
	case start:
		return s.patch(ctx, p, running(p, now, s.Room != nil))
	case finish:
		if err := s.patch(ctx, p, succeeded(p, since, now)); err != nil {
			return err
		}
		s.release(p)
		s.forget(p.UID)
		return nil
	case remove:
		zero := int64(0)
		return s.Client.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{
			GracePeriodSeconds: &zero, Preconditions: &metav1.Preconditions{UID: &p.UID},
		})
	}
	return nil
}

// admit decides whether a pod may start on its node, and what a resize comes to. It returns the status to write, if any, and
// whether the node has a kubelet that goes on with the pod. Pods that are deleted are let go everywhere.
func (s *standIn) admit(p *corev1.Pod) (status *corev1.PodStatus, here bool) {
	if p.DeletionTimestamp != nil || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return nil, true
	}
	room := s.Room(p.Spec.NodeName)
	if room == nil {
		return nil, false
	}
	asked := resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{})
	s.mu.Lock()
	defer s.mu.Unlock()
	node := s.admitted[p.Spec.NodeName]
	if node == nil {
		node = map[types.UID]corev1.ResourceList{}
		s.admitted[p.Spec.NodeName] = node
	}
	if has, admitted := node[p.UID]; admitted {
		if asked.Cpu().Cmp(*has.Cpu()) == 0 || s.resized[p.UID] {
			return nil, true
		}
		s.resized[p.UID] = true
		reason := corev1.PodReasonDeferred
		if asked.Cpu().Cmp(*room.Cpu()) > 0 {
			reason = corev1.PodReasonInfeasible
		}
		return &corev1.PodStatus{Phase: p.Status.Phase, Conditions: []corev1.PodCondition{{
			Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: reason, LastTransitionTime: metav1.Now()}}}, true
	}
	if p.Status.Phase == corev1.PodRunning { // it was admitted before we began
		node[p.UID] = asked
		return nil, true
	}
	for name, all := range room {
		left := all.DeepCopy()
		for _, has := range node {
			left.Sub(has[name])
		}
		if q, named := asked[name]; named && q.Cmp(left) > 0 {
			return &corev1.PodStatus{Phase: corev1.PodFailed, Reason: "OutOf" + string(name), Message: "Pod was rejected: node has no room for it"}, true
		}
	}
	node[p.UID] = asked
	return nil, true
}

// release takes what an admitted pod has from its node.
func (s *standIn) release(p *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.admitted[p.Spec.NodeName], p.UID)
	delete(s.resized, p.UID)
}

// runTime is how long a pod runs, and whether it ends by itself at all.
func (s *standIn) runTime(p *corev1.Pod) (time.Duration, bool) {
	if text, ok := p.Annotations[RunSeconds]; ok {
		seconds, err := strconv.ParseFloat(text, 64)
		if err != nil || !(seconds >= 0 && seconds <= 1e9) {
			return 0, false
		}
		return time.Duration(seconds * float64(time.Second)), true
	}
	owner := metav1.GetControllerOfNoCopy(p)
	if owner == nil || owner.Kind != "Job" || s.JobRun == 0 {
		return 0, false
	}
	longest, sleeps := 0.0, false
	for _, c := range p.Spec.Containers {
		if seconds, sleep := sleepTime(slices.Concat(c.Command, c.Args)); sleep {
			longest, sleeps = max(longest, seconds), true
		}
	}
	if !sleeps {
		return s.JobRun, true
	}
	return time.Duration(longest * float64(time.Second)), longest <= 1e9
}

// sleepTime is for how many seconds a command sleeps, such as `sleep 600`, `sleep 10m` or `sh -c "echo x; sleep 600"`,
// and whether it does.
func sleepTime(command []string) (seconds float64, sleeps bool) {
	if len(command) < 2 {
		return 0, false
	}
	if path.Base(command[0]) == "sleep" {
		for _, arg := range command[1:] {
			number := strings.TrimRight(arg, "smhd")
			unit, is := map[string]float64{"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}[arg[len(number):]]
			n, err := strconv.ParseFloat(number, 64)
			if err != nil || !is || !(n >= 0) {
				return 0, false
			}
			seconds += n * unit
		}
		return seconds, true
	}
	if command[1] != "-c" || len(command) < 3 {
		return 0, false
	}
	for _, part := range strings.FieldsFunc(command[2], func(r rune) bool { return strings.ContainsRune(";&\n", r) }) {
		if n, sleep := sleepTime(strings.Fields(part)); sleep {
			seconds, sleeps = seconds+n, true
		}
	}
	return seconds, sleeps
}

type step int

const (
	nothing step = iota
	start
	finish
	remove
)

// next is the one decision: what to do with a pod now, and when to look again (0: at its next event). ran is how long it has
// had its node, run how long it is to run if it ends.
func next(p *corev1.Pod, ran, run time.Duration, ends, skipRunning bool) (step, time.Duration) {
	finished := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
	switch {
	case p.DeletionTimestamp != nil:
		if g := p.DeletionGracePeriodSeconds; g != nil && *g == 0 {
			return nothing, 0 // we did our part; a finalizer of somebody keeps it
		}
		return remove, 0
	case finished:
		return nothing, 0
	case ends && ran >= run && (skipRunning || p.Status.Phase == corev1.PodRunning):
		return finish, 0
	case p.Status.Phase != corev1.PodRunning && !skipRunning:
		return start, 0 // the event of this write brings the pod back
	case ends:
		return nothing, run - ran
	default:
		return nothing, 0
	}
}

func (s *standIn) patch(ctx context.Context, p *corev1.Pod, status corev1.PodStatus) error {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": p.UID}, "status": status})
	if err != nil {
		return fmt.Errorf("encode status of %s/%s: %w", p.Namespace, p.Name, err)
	}
	_, err = s.Client.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status")
	return err
}

func running(p *corev1.Pod, now time.Time, resources bool) corev1.PodStatus {
	t := metav1.NewTime(now)
	yes := true
	status := corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &t}
	for _, kind := range []corev1.PodConditionType{corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		status.Conditions = append(status.Conditions,
			corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: t})
	}
	for _, c := range p.Spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, Ready: true, Started: &yes,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: t}},
		})
		if resources && len(c.Resources.Requests) <= 64 { // of more, the answer would be larger than what the API server keeps
			last := &status.ContainerStatuses[len(status.ContainerStatuses)-1]
			last.Resources = &corev1.ResourceRequirements{Requests: c.Resources.Requests, Limits: c.Resources.Limits}
			last.AllocatedResources = c.Resources.Requests
		}
	}
	return status
}

func succeeded(p *corev1.Pod, since, now time.Time) corev1.PodStatus {
	t := metav1.NewTime(now)
	status := corev1.PodStatus{Phase: corev1.PodSucceeded}
	for _, kind := range []corev1.PodConditionType{corev1.ContainersReady, corev1.PodReady} {
		status.Conditions = append(status.Conditions,
			corev1.PodCondition{Type: kind, Status: corev1.ConditionFalse, Reason: "PodCompleted", LastTransitionTime: t})
	}
	for _, c := range p.Spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image,
			State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				Reason: "Completed", StartedAt: metav1.NewTime(since), FinishedAt: t,
			}},
		})
	}
	return status
}
