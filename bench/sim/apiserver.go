package sim

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/audit"
	"basalt.dev/basalt/api/v1alpha1"
	"basalt.dev/basalt/shard/event"
)

// apiServer holds pods, nodes, Queues and PodGroups; every version is immutable. Its writes are those of package api/kube
// and those that users, kubelets and controllers make.
type apiServer struct {
	server
	w       *world
	version int64
	uids    int
	pods    *feed
	nodes   *feed
	groups  *feed
	queues  *feed
}

func newAPIServer(w *world) *apiServer {
	return &apiServer{w: w, version: 1000, pods: newFeed(w, "pod"), nodes: newFeed(w, "node"), groups: newFeed(w, "podgroup"), queues: newFeed(w, "queue")}
}

// feed is one kind: what exists, by namespace/name, and all that was.
type feed struct {
	w        *world
	kind     string
	objects  map[string]object
	log      []entry
	watchers []*watcher
}

// object is one version of an object.
type object struct {
	metav1.Object
	pod *api.Pod // with a pod: what processes reduce it to
}

type entry struct {
	gone bool
	object
}

func newFeed(w *world, kind string) *feed {
	return &feed{w: w, kind: kind, objects: map[string]object{}}
}

func nameOf(o metav1.Object) string {
	if o.GetNamespace() == "" {
		return o.GetName()
	}
	return o.GetNamespace() + "/" + o.GetName()
}

func (f *feed) names() []string { return slices.Sorted(maps.Keys(f.objects)) }

// record makes a change visible.
func (f *feed) record(e entry) {
	f.log = append(f.log, e)
	for _, x := range f.watchers {
		x.wake(f.w.delay())
	}
	f.w.check.afterAPI(f, e)
	f.w.heard()
}

// put stores a version; the object is the caller's to give away.
func (a *apiServer) put(f *feed, o metav1.Object) {
	a.version++
	o.SetResourceVersion(strconv.FormatInt(a.version, 10))
	now := object{Object: o}
	switch o := o.(type) {
	case *corev1.Pod:
		now.pod = api.FromPod(o, nil, nil)
		a.w.audit.Observe(a.w.now, audit.PodSeen{Pod: o})
	case *corev1.Node:
		a.w.audit.Observe(a.w.now, audit.NodeSeen{Node: o})
	case *v1alpha1.Queue:
		a.w.audit.Observe(a.w.now, audit.QueueSeen{Queue: o})
	case *v1alpha1.PodGroup:
		a.w.audit.Observe(a.w.now, audit.PodGroupSeen{PodGroup: o})
	}
	f.objects[nameOf(o)] = now
	f.record(entry{object: now})
}

func (a *apiServer) remove(f *feed, o object) {
	a.version++
	delete(f.objects, nameOf(o))
	switch o := o.Object.(type) {
	case *corev1.Pod:
		a.w.audit.Observe(a.w.now, audit.PodGone{Pod: o})
	case *corev1.Node:
		a.w.audit.Observe(a.w.now, audit.NodeGone{Node: o})
	case *v1alpha1.Queue:
		a.w.audit.Observe(a.w.now, audit.QueueGone{Queue: o})
	case *v1alpha1.PodGroup:
		a.w.audit.Observe(a.w.now, audit.PodGroupGone{PodGroup: o})
	}
	a.w.log("api: %s %s (%s) is gone", f.kind, nameOf(o), o.GetUID())
	f.record(entry{gone: true, object: o})
}

func (a *apiServer) create(f *feed, o metav1.Object) {
	a.uids++
	o.SetUID(types.UID(fmt.Sprintf("%s#%d", o.GetName(), a.uids)))
	o.SetGeneration(1)
	o.SetCreationTimestamp(metav1.NewTime(a.w.now.Truncate(time.Second)))
	a.put(f, o)
}

// pod returns a pod by name, nil when there is none.
func (a *apiServer) pod(namespace, name string) *corev1.Pod {
	p, _ := a.pods.objects[namespace+"/"+name].Object.(*corev1.Pod)
	return p
}

func (a *apiServer) podByUID(uid string) *corev1.Pod {
	for _, o := range a.pods.objects {
		if string(o.GetUID()) == uid {
			return o.Object.(*corev1.Pod)
		}
	}
	return nil
}

// edit makes the next version of a pod.
func (a *apiServer) edit(p *corev1.Pod, change func(*corev1.Pod)) *corev1.Pod {
	next := *p
	next.Labels, next.Annotations = maps.Clone(p.Labels), maps.Clone(p.Annotations)
	next.Status.Conditions = slices.Clone(p.Status.Conditions)
	change(&next)
	a.put(a.pods, &next)
	return &next
}

func finished(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// bind is a Binding.
func (a *apiServer) bind(namespace, name, uid, version, node string, labels map[string]string) event.BindOutcome {
	p := a.pod(namespace, name)
	switch {
	case p == nil:
		return event.BindNotFound
	case uid != "" && string(p.UID) != uid, version != "" && p.ResourceVersion != version, p.Spec.NodeName != "", p.DeletionTimestamp != nil:
		return event.BindConflict
	case len(p.Spec.SchedulingGates) > 0:
		return event.BindUnknown // 422
	}
	a.edit(p, func(p *corev1.Pod) {
		p.Spec.NodeName = node
		for k, v := range labels {
			if p.Labels == nil {
				p.Labels = map[string]string{}
			}
			p.Labels[k] = v
		}
		setCondition(p, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue})
	})
	return event.BindOK
}

func setCondition(p *corev1.Pod, c corev1.PodCondition) {
	for i := range p.Status.Conditions {
		if p.Status.Conditions[i].Type == c.Type {
			p.Status.Conditions[i] = c
			return
		}
	}
	p.Status.Conditions = append(p.Status.Conditions, c)
}

// settle is the patch that Settle makes.
func (a *apiServer) settle(o event.SettlePod) event.SettleDone {
	done := event.SettleDone{Row: o.Row, Outcome: event.SettledGone}
	p := a.pod(o.Namespace, o.Name)
	if p == nil || string(p.UID) != o.Row.PodUID {
		return done
	}
	if p.Annotations[api.AnnotationSettle] != o.Value { // a patch that changes nothing makes no version
		p = a.edit(p, func(p *corev1.Pod) {
			if p.Annotations == nil {
				p.Annotations = map[string]string{}
			}
			p.Annotations[api.AnnotationSettle] = o.Value
		})
	}
	done.Outcome = event.SettledFree
	if p.Spec.NodeName != "" {
		done.Outcome, done.Node = event.SettledBound, p.Spec.NodeName
	}
	return done
}

// explain is ExplainPod.
func (a *apiServer) explain(o event.WritePodCondition) event.StatusWritten {
	done := event.StatusWritten{ID: o.ID, Outcome: event.StatusConflict, Error: "conflict"}
	p := a.pod(o.Namespace, o.Name)
	switch {
	case p == nil:
		done.Outcome, done.Error = event.StatusGone, "not found"
	case string(p.UID) == o.UID && p.ResourceVersion == o.ResourceVersion:
		if p.Spec.NodeName != "" {
			a.w.fail("pod %s is told that it waits (%s), and is bound to %s", p.UID, o.Reason, p.Spec.NodeName)
		}
		p = a.edit(p, func(p *corev1.Pod) {
			setCondition(p, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: o.Reason, Message: o.Message})
		})
		done.Outcome, done.Error, done.ResourceVersion = event.StatusOK, "", p.ResourceVersion
	}
	return done
}

// evict is the delete of Evict; its condition comes right before.
func (a *apiServer) evict(who api.Incarnation, o event.EvictPod) event.StatusWritten {
	p := a.pod(o.Namespace, o.Name)
	if p == nil || string(p.UID) != o.UID {
		return event.StatusWritten{ID: o.ID, Outcome: event.StatusOK}
	}
	a.w.check.evicts(who, p)
	a.w.count("evictions")
	p = a.edit(p, func(p *corev1.Pod) {
		setCondition(p, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue})
	})
	a.delete(p)
	return event.StatusWritten{ID: o.ID, Outcome: event.StatusOK}
}

// delete removes a pod: at once when no kubelet has it, else the kubelet does it after a while.
func (a *apiServer) delete(p *corev1.Pod) {
	if p.Spec.NodeName == "" || finished(p) {
		a.remove(a.pods, a.pods.objects[nameOf(p)])
		return
	}
	if p.DeletionTimestamp != nil {
		return
	}
	a.edit(p, func(p *corev1.Pod) {
		now := metav1.NewTime(a.w.now)
		p.DeletionTimestamp = &now
	})
	uid := string(p.UID)
	a.w.after(a.w.between(0, 5*time.Second), func() {
		if p := a.podByUID(uid); p != nil {
			a.remove(a.pods, a.pods.objects[nameOf(p)])
		}
	})
}

// replaceQueueStatus and replaceGroupStatus obey the CRD's rule.
func (a *apiServer) replaceQueueStatus(o event.WriteQueueStatus) event.StatusOutcome {
	q, _ := a.queues.objects[o.Queue].Object.(*v1alpha1.Queue)
	if q == nil {
		return event.StatusGone
	}
	if string(q.UID) != o.UID {
		return event.StatusConflict
	}
	if q.Status != nil {
		if !accepts(q.Status.Stamp, o.Status.Stamp) && !equality.Semantic.DeepEqual(q.Status, o.Status) {
			return event.StatusConflict
		}
		if equality.Semantic.DeepEqual(q.Status, o.Status) {
			return event.StatusOK
		}
	}
	next := *q
	next.Status = o.Status
	a.put(a.queues, &next)
	return event.StatusOK
}

func (a *apiServer) replaceGroupStatus(o event.WritePodGroupStatus) event.StatusOutcome {
	g, _ := a.groups.objects[o.Namespace+"/"+o.Name].Object.(*v1alpha1.PodGroup)
	if g == nil {
		return event.StatusGone
	}
	if string(g.UID) != o.UID {
		return event.StatusConflict
	}
	if g.Status != nil {
		if !accepts(g.Status.Stamp, o.Status.Stamp) && !equality.Semantic.DeepEqual(g.Status, o.Status) {
			return event.StatusConflict
		}
		if equality.Semantic.DeepEqual(g.Status, o.Status) {
			return event.StatusOK
		}
	}
	next := *g
	next.Status = o.Status
	a.put(a.groups, &next)
	return event.StatusOK
}

func accepts(old, next v1alpha1.Stamp) bool {
	return next.Epoch > old.Epoch || next.Epoch == old.Epoch && next.Writer == old.Writer && next.Sequence > old.Sequence
}

// queue returns a Queue, nil when there is none.
func (a *apiServer) queue(name string) *v1alpha1.Queue {
	q, _ := a.queues.objects[name].Object.(*v1alpha1.Queue)
	return q
}

func (a *apiServer) editQueue(q *v1alpha1.Queue, spec bool, change func(*v1alpha1.Queue)) {
	next := *q
	next.Finalizers = slices.Clone(q.Finalizers)
	change(&next)
	if spec {
		next.Generation++
	}
	if next.DeletionTimestamp != nil && len(next.Finalizers) == 0 {
		a.remove(a.queues, object{Object: &next})
		return
	}
	a.put(a.queues, &next)
}

func (a *apiServer) deleteQueue(q *v1alpha1.Queue) {
	if q.DeletionTimestamp != nil {
		return
	}
	a.editQueue(q, true, func(q *v1alpha1.Queue) {
		now := metav1.NewTime(a.w.now)
		q.DeletionTimestamp = &now
	})
}

// setFinalizer is the coordinator's.
func (a *apiServer) setFinalizer(name, uid string, want bool) {
	q := a.queue(name)
	if q == nil || string(q.UID) != uid || slices.Contains(q.Finalizers, v1alpha1.FinalizerCharged) == want || want && q.DeletionTimestamp != nil {
		return
	}
	a.editQueue(q, false, func(q *v1alpha1.Queue) {
		if want {
			q.Finalizers = append(q.Finalizers, v1alpha1.FinalizerCharged)
			return
		}
		q.Finalizers = slices.DeleteFunc(q.Finalizers, func(f string) bool { return f == v1alpha1.FinalizerCharged })
	})
}

// ---- watches

// watcher is one process's list and watch of a kind.
type watcher struct {
	p       *process
	feed    *feed
	next    int // of the log
	known   map[string]object
	listing bool
	synced  bool
	asked   uint64
	due     bool
	over    bool
	stalled time.Time

	replaced func([]object, uint64) // nil: what a new list shows becomes seen and gone
	seen     func(object)
	gone     func(object)
	first    func() // after the first list
}

func (p *process) watch(f *feed, x *watcher) *watcher {
	x.p, x.feed, x.known = p, f, map[string]object{}
	p.watchers = append(p.watchers, x)
	f.watchers = append(f.watchers, x)
	x.list()
	return x
}

// relist asks for a list that is made entirely after this.
func (x *watcher) relist() uint64 {
	x.asked++
	if !x.listing {
		x.list()
	}
	return x.asked
}

func (x *watcher) list() {
	x.listing = true
	w := x.p.w
	ticket := x.asked
	var objects []object
	next := 0
	x.p.call(&w.api.server, 10*time.Second, func() {
		objects, next = nil, len(x.feed.log)
		for _, name := range x.feed.names() {
			objects = append(objects, x.feed.objects[name])
		}
	}, func(answered bool) {
		switch {
		case x.over:
		case !answered:
			x.p.later(w.between(25*time.Millisecond, time.Second), func() {
				if !x.over {
					x.list()
				}
			})
		default:
			x.next = next
			x.replace(objects, ticket)
			if x.asked > ticket {
				x.list()
				return
			}
			x.listing = false
			x.wake(w.delay())
		}
	})
}

func (x *watcher) replace(objects []object, ticket uint64) {
	if x.replaced != nil {
		x.replaced(objects, ticket)
	} else {
		now := map[string]object{}
		for _, o := range objects {
			now[string(o.GetUID())] = o
		}
		for _, uid := range sortedKeys(x.known) {
			if _, still := now[uid]; !still {
				x.gone(x.known[uid])
			}
		}
		x.known = now
		for _, o := range objects {
			x.seen(o)
		}
	}
	if !x.synced {
		x.synced = true
		if x.first != nil {
			x.first()
		}
	}
}

func (x *watcher) wake(d time.Duration) {
	if x.due || x.over || x.listing || x.next >= len(x.feed.log) {
		return
	}
	x.due = true
	x.p.later(d, x.pump)
}

func (x *watcher) pump() {
	w := x.p.w
	x.due = false
	if x.over || x.listing {
		return
	}
	until := x.stalled
	for _, t := range []time.Time{x.p.noAPI, w.api.down} {
		if t.After(until) {
			until = t
		}
	}
	if w.now.Before(until) {
		x.wake(until.Sub(w.now))
		return
	}
	for n := 1 + w.die.below(8); n > 0 && x.next < len(x.feed.log) && !x.listing && !x.over && !x.p.dead; n-- {
		e := x.feed.log[x.next]
		x.next++
		if e.gone {
			delete(x.known, string(e.GetUID()))
			x.gone(e.object)
		} else {
			if x.replaced == nil {
				x.known[string(e.GetUID())] = e.object
			}
			x.seen(e.object)
		}
	}
	x.wake(w.delay())
}

func (x *watcher) end() {
	x.over = true
	x.feed.watchers = slices.DeleteFunc(x.feed.watchers, func(o *watcher) bool { return o == x })
}
