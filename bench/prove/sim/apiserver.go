package sim

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	volcanov1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/audit"
	"basalt.dev/basalt/api/doors/volcano"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/bench/prove/model"
	"basalt.dev/basalt/shard/effect"
	"basalt.dev/basalt/shard/event"
)

// apiServer is a model of the API server, and how processes follow it. Its writes are those of package api/kube and those
// that users, kubelets and controllers make.
type apiServer struct {
	server
	*model.API
	w       *world
	pods    *feed
	nodes   *feed
	groups  *feed
	queues  *feed
	volcano *feed // PodGroups of Volcano's
	claims  *feed
	volumes *feed
}

func newAPIServer(w *world) *apiServer {
	a := &apiServer{w: w, API: model.NewAPI(func() time.Time { return w.now })}
	a.pods, a.nodes, a.groups, a.queues = newFeed(w, a.Pods), newFeed(w, a.Nodes), newFeed(w, a.PodGroups), newFeed(w, a.Queues)
	a.volcano = newFeed(w, a.VolcanoGroups)
	a.claims, a.volumes = newFeed(w, a.Claims), newFeed(w, a.Volumes)
	a.Changed = a.changed
	return a
}

// feed is one kind: what exists, by namespace/name, and who follows it.
type feed struct {
	*model.Kind
	w        *world
	kind     string
	objects  map[string]object // the Kind's
	times    []time.Time       // of the Log's entries
	watchers []*watcher
}

type (
	object = model.Object
	entry  = model.Entry
)

func newFeed(w *world, k *model.Kind) *feed {
	return &feed{Kind: k, w: w, kind: k.Name, objects: k.Objects}
}

func nameOf(o metav1.Object) string { return model.NameOf(o) }

func (f *feed) names() []string { return f.Names() }

// audited shows the auditor an object.
func audited[T metav1.Object](w *world, o T, gone bool) {
	if gone {
		w.audit.Observe(w.now, audit.Gone[T]{Object: o})
	} else {
		w.audit.Observe(w.now, audit.Seen[T]{Object: o})
	}
}

// changed hears of each change.
func (a *apiServer) changed(k *model.Kind, e entry) {
	w, f := a.w, a.pods
	gone := e.Type == watch.Deleted
	switch o := e.Object.Object.(type) {
	case *corev1.Pod:
		audited(w, o, gone)
	case *corev1.Node:
		f = a.nodes
		audited(w, o, gone)
	case *v1beta1.Queue:
		f = a.queues
		audited(w, o, gone)
	case *v1beta1.PodGroup:
		if f = a.groups; gone {
			w.audit.Observe(w.now, audit.PodGroupGone{PodGroup: o})
		} else {
			w.audit.Observe(w.now, audit.PodGroupSeen{PodGroup: o})
		}
	case *corev1.PersistentVolumeClaim:
		if f = a.claims; !gone {
			w.load.claimChanged(o)
		}
	case *corev1.PersistentVolume:
		if f = a.volumes; !gone {
			w.load.volumeChanged(o)
		}
	case *volcanov1beta1.PodGroup:
		f = a.volcano
		as, _ := volcano.Group(o, nil, nil)
		if gone {
			w.audit.Observe(w.now, audit.PodGroupGone{PodGroup: as})
		} else {
			floor := corev1.ResourceList{}
			if o.Spec.MinResources != nil {
				floor = *o.Spec.MinResources
			}
			w.audit.Observe(w.now, audit.PodGroupSeen{PodGroup: as, Kind: api.VolcanoGroup, Floor: floor})
		}
	}
	if gone {
		w.log("api: %s %s (%s) is gone", f.kind, nameOf(e), e.GetUID())
	}
	f.times = append(f.times, w.now)
	for _, x := range f.watchers {
		x.wake(x.lag())
	}
	w.check.afterAPI(f, e)
	w.heard()
}

// must is for what the caller has made sure of.
func (a *apiServer) must(err error) {
	if err != nil {
		a.w.fail("API server: %v", err)
	}
}

// put stores a version; the object is the caller's to give away.
func (a *apiServer) put(f *feed, o metav1.Object) { a.must(a.Replace(f.Kind, o)) }

func (a *apiServer) remove(f *feed, o object) {
	now := int64(0)
	a.must(a.Delete(f.Kind, o.GetNamespace(), o.GetName(), "", "", &now))
}

func (a *apiServer) create(f *feed, o metav1.Object) { a.must(a.Create(f.Kind, o)) }

// pod returns a pod by name, nil when there is none.
func (a *apiServer) pod(namespace, name string) *corev1.Pod { return a.Pod(namespace, name) }

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
	return a.EditPod(p, change)
}

func finished(p *corev1.Pod) bool { return model.Finished(p) }

// bind is a Binding.
func (a *apiServer) bind(b model.Binding) error {
	if err := a.refuses("binding", b.Name, b.Node); err != nil {
		return err
	}
	return a.Bind(b)
}

// bindingOf is the Binding that a core asks for.
func bindingOf(o event.BindPod) model.Binding {
	labels, annotations := o.Marks()
	return model.Binding{Namespace: o.Namespace, Name: o.Name, UID: o.Row.PodUID, Version: o.ResourceVersion,
		Node: o.Node, Labels: labels, Annotations: annotations}
}

// policy is an admission policy that refuses a kind of write about some pods and their PodGroup, as long as the world
// is not calm: binding, eviction or status.
type policy struct {
	verb, prefix string // of the names of pods
	which        string // all, half for every other write, or the name of a node
}

// refuses returns why a write is refused, nil if it is not.
func (a *apiServer) refuses(verb, pod, node string) error {
	for _, p := range a.w.load.policies {
		if p.verb != verb || !strings.HasPrefix(pod, p.prefix) ||
			p.which != "all" && p.which != node && (p.which != "half" || a.Version()%2 == 0) {
			continue
		}
		a.w.count("writes refused by a policy: " + verb)
		if r := &a.w.load.rest; verb == "binding" && r.refused != nil {
			r.refused[p.prefix], r.refused[pod] = true, true
		}
		why := fmt.Sprintf("ValidatingAdmissionPolicy 'p' with binding 'p' denied request: no %s of %s", verb, p.prefix)
		if api.BucketOf(p.prefix)%2 == 0 {
			return a.Pods.Invalid(pod, why)
		}
		return apierrors.NewForbidden(a.Pods.Resource, pod, errors.New(why))
	}
	return nil
}

// mayBind reports whether no policy is in the way of a pod's Binding, wherever it goes.
func (l *workload) mayBind(p *corev1.Pod) bool {
	return !slices.ContainsFunc(l.policies, func(x policy) bool {
		return x.verb == "binding" && x.which != "half" && strings.HasPrefix(p.Name, x.prefix)
	})
}

// resolve is what package kube does.
func (a *apiServer) resolve(o event.ResolveBinding) event.ResolveDone {
	p, err := a.Resolve(o.Namespace, o.Name, o.Row.PodUID, o.ResourceVersion, o.Value)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err), apierrors.IsInvalid(err): // another UID, as the read after it shows
		return effect.ResolveDone(o, effect.Found{Gone: true}, nil)
	case err != nil:
		return effect.ResolveDone(o, effect.Found{}, err)
	}
	return effect.ResolveDone(o, effect.Found{Node: p.Spec.NodeName, Version: p.ResourceVersion}, nil)
}

// explain is ExplainPod.
func (a *apiServer) explain(o event.WritePodCondition) event.StatusWritten {
	a.w.count("conditions written")
	if err := a.refuses("status", o.Name, ""); err != nil {
		return effect.StatusWritten(o.ID, "", err)
	}
	p, err := a.PatchCondition(o.Namespace, o.Name, o.UID, o.ResourceVersion, corev1.PodCondition{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: o.Reason, Message: o.Message, LastTransitionTime: metav1.NewTime(a.w.now)})
	version := ""
	if err == nil {
		if version = p.ResourceVersion; p.Spec.NodeName != "" {
			a.w.fail("pod %s is told that it waits (%s), and is bound to %s", p.UID, o.Reason, p.Spec.NodeName)
		}
	}
	return effect.StatusWritten(o.ID, version, err)
}

// evict is the delete of Evict; its condition comes right before.
func (a *apiServer) evict(who api.Incarnation, o event.EvictPod) event.StatusWritten {
	p := a.pod(o.Namespace, o.Name)
	if p == nil || string(p.UID) != o.UID {
		return event.StatusWritten{ID: o.ID, Outcome: event.StatusOK}
	}
	a.w.check.evicts(who, p)
	if err := a.refuses("eviction", o.Name, ""); err != nil {
		return effect.StatusWritten(o.ID, "", err)
	}
	a.w.count("evictions")
	p, err := a.PatchCondition(o.Namespace, o.Name, o.UID, "", corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: v1beta1.ReasonRolledBack, Message: o.Message, LastTransitionTime: metav1.NewTime(a.w.now)})
	a.must(err)
	drawn, stays := a.w.some(8), a.w.between(30*time.Second, 4*time.Minute)
	if stays, is := a.w.mishap(drawn, "stays", p.Name, stays); is && !a.w.calm {
		a.w.count("evicted pods that stay for long")
		a.deleteIn(p, stays)
	} else {
		a.delete(p)
	}
	return event.StatusWritten{ID: o.ID, Outcome: event.StatusOK}
}

// toldPlaced reports whether a PodGroup says that it once had its minimum.
func (a *apiServer) toldPlaced(uid string) bool {
	for _, f := range []*feed{a.groups, a.volcano} {
		for _, o := range f.objects {
			if string(o.GetUID()) == uid {
				return a.group(o.GetName()).started
			}
		}
	}
	return false
}

// delete removes a pod: at once when no kubelet has it, else the kubelet does it after a while.
func (a *apiServer) delete(p *corev1.Pod) { a.deleteIn(p, a.w.between(0, 5*time.Second)) }

func (a *apiServer) deleteIn(p *corev1.Pod, stays time.Duration) {
	a.must(a.Delete(a.Pods, p.Namespace, p.Name, p.UID, "", nil))
	uid := string(p.UID)
	if p.DeletionTimestamp != nil || a.podByUID(uid) == nil {
		return
	}
	a.w.after(stays, func() {
		if p := a.podByUID(uid); p != nil {
			a.remove(a.pods, a.pods.objects[nameOf(p)])
		}
	})
}

// replaceQueueStatus and replaceGroupStatus are ReplaceStatus.
func (a *apiServer) replaceQueueStatus(o event.WriteQueueStatus) event.StatusWritten {
	return effect.StatusWritten(o.ID, "", a.ReplaceQueueStatus(o.Queue, o.UID, o.Status))
}

func (a *apiServer) replaceGroupStatus(o event.WritePodGroupStatus) event.StatusWritten {
	if err := a.refuses("status", o.Name+"-", ""); err != nil {
		return effect.StatusWritten(o.ID, "", err)
	}
	return effect.StatusWritten(o.ID, "", a.ReplacePodGroupStatus(o.Namespace, o.Name, o.UID, o.Status))
}

func (a *apiServer) replaceVolcanoStatus(o event.WriteGroupStatus, status *volcanov1beta1.PodGroupStatus) event.StatusWritten {
	return effect.StatusWritten(o.ID, "", a.ReplaceVolcanoStatus(o.Namespace, o.Name, o.UID, status))
}

// queue returns a Queue, nil when there is none.
func (a *apiServer) queue(name string) *v1beta1.Queue { return a.Queue(name) }

func (a *apiServer) editQueue(q *v1beta1.Queue, _ bool, change func(*v1beta1.Queue)) {
	a.EditQueue(q, change)
}

func (a *apiServer) deleteQueue(q *v1beta1.Queue) {
	a.must(a.Delete(a.Queues, "", q.Name, q.UID, "", nil))
}

// setFinalizer is the coordinator's.
func (a *apiServer) setFinalizer(name, uid string, want bool) {
	q := a.queue(name)
	if q == nil || string(q.UID) != uid || slices.Contains(q.Finalizers, v1beta1.FinalizerCharged) == want {
		return
	}
	finalizers := slices.DeleteFunc(slices.Clone(q.Finalizers), func(f string) bool { return f == v1beta1.FinalizerCharged })
	if want {
		finalizers = append(finalizers, v1beta1.FinalizerCharged)
	}
	if err := a.SetFinalizers(name, uid, q.ResourceVersion, finalizers); err != nil && !apierrors.IsInvalid(err) { // it is being deleted
		a.must(err)
	}
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
	lags    bool // when watches do

	replaced func([]object, uint64) // nil: what a new list shows becomes seen and gone
	seen     func(object)
	gone     func(object)
	first    func()       // after the first list
	anew     bool         // the next list is one, whatever the watch has shown
	current  func(uint64) // what was heard is what a list would say; nil: there is always a list
}

func (p *process) watch(f *feed, x *watcher) *watcher {
	x.p, x.feed, x.known = p, f, map[string]object{}
	p.as(func() { x.lags = p.w.some(2) })
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
	catchUp := x.current != nil && x.synced && !x.anew && ticket%2 == 0 // kube.Follower.catchUp
	x.anew = false
	var objects []object
	next := 0
	x.p.call(&w.api.server, "list", 10*time.Second, func() {
		objects, next = nil, len(x.feed.Log)
		if lags := w.some(4); lags && !x.synced && x.feed != w.api.pods { // from a cache of the server's
			objects, next = x.feed.before(w.die.below(40))
			return
		}
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
			take := func() {
				if x.over {
					return
				}
				if catchUp {
					for x.next < next && !x.over && !x.p.dead {
						x.take()
					}
					if x.over || x.p.dead {
						return
					}
					x.current(ticket)
				} else {
					x.next = next
					x.replace(objects, ticket)
				}
				if x.asked > ticket {
					x.list()
					return
				}
				x.listing = false
				if w.calm || !w.some(3) {
					x.wake(x.lag())
				} else { // the watch has yet to begin
					x.wake(w.between(0, 2*time.Second))
				}
			}
			if w.calm || !w.some(4) {
				take()
				return
			}
			x.p.later(w.between(0, 3*time.Second), take) // of a large cluster
		}
	})
}

// cached is how old a list of nodes from a cache of the server's may be. The judges of domains allow for that.
const cached = 10 * time.Second

// before is what there was so many changes ago, and the place in the log. Nodes are as they were when the run began, or later.
func (f *feed) before(changes int) (objects []object, next int) {
	next = max(0, len(f.Log)-changes)
	if f == f.w.api.nodes {
		for next < len(f.Log) && (!f.times[next].After(f.w.start) || f.w.now.Sub(f.times[next]) > cached) {
			next++
		}
	}
	was := map[string]object{}
	for _, e := range f.Log[:next] {
		if e.Type == watch.Deleted {
			delete(was, nameOf(e.Object))
		} else {
			was[nameOf(e.Object)] = e.Object
		}
	}
	for _, name := range slices.Sorted(maps.Keys(was)) {
		objects = append(objects, was[name])
	}
	return objects, next
}

func (x *watcher) replace(objects []object, ticket uint64) {
	if x.replaced != nil {
		x.replaced(objects, ticket)
	} else {
		now := map[string]object{}
		for _, o := range objects {
			now[string(o.GetUID())] = o
		}
		for _, uid := range slices.Sorted(maps.Keys(x.known)) {
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

// lag is how long news take to reach a watcher.
func (x *watcher) lag() time.Duration {
	if x.lags {
		return x.p.w.slowness("watch", x.p.w.delay())
	}
	return x.p.w.delay()
}

func (x *watcher) wake(d time.Duration) {
	if x.due || x.over || x.listing || x.next >= len(x.feed.Log) {
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
	n := 1 + w.die.below(8)
	if x.lags && w.slow["watch"] > 0 {
		n = len(x.feed.Log) // it lags, and does not fall behind ever more
	}
	for ; n > 0 && x.next < len(x.feed.Log) && !x.listing && !x.over && !x.p.dead; n-- {
		x.take()
	}
	x.wake(x.lag())
}

// take hears of the next change.
func (x *watcher) take() {
	e := x.feed.Log[x.next]
	x.next++
	if e.Type == watch.Deleted {
		delete(x.known, string(e.GetUID()))
		x.gone(e.Object)
		return
	}
	if x.replaced == nil {
		x.known[string(e.GetUID())] = e.Object
	}
	x.seen(e.Object)
}

func (x *watcher) end() {
	x.over = true
	x.feed.watchers = slices.DeleteFunc(x.feed.watchers, func(o *watcher) bool { return o == x })
}

// rest is for how long gangs were charged in all, and before nothing changed any more.
type rest struct {
	charged, before map[string]time.Duration
	since           time.Time
	refused         map[string]bool // prefixes of pods whose Bindings a policy has refused since then
}

// isRefused reports whether a policy has refused the Binding of a pod, or of another one of its job.
func (r *rest) isRefused(p *corev1.Pod) (is bool) {
	for prefix := range r.refused {
		is = is || strings.HasPrefix(p.Name, prefix)
	}
	return is
}

// rests takes note that nothing changes from now on.
func (c *check) rests() {
	r := &c.w.load.rest
	r.since, r.before, r.refused = c.w.now, map[string]time.Duration{}, map[string]bool{}
	for gang := range r.charged {
		r.before[gang] = c.chargedFor(gang)
	}
	for gang := range c.granted {
		r.before[gang] = c.chargedFor(gang)
	}
}

// chargedFor is for how long a gang was charged.
func (c *check) chargedFor(gang string) time.Duration {
	if since := c.granted[gang]; !since.IsZero() {
		return c.w.load.rest.charged[gang] + c.w.now.Sub(since)
	}
	return c.w.load.rest.charged[gang]
}
