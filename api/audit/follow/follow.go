// Package follow is the shell of package audit: it watches the control store and the API server, both read only, and feeds
// what it sees to the auditor on one goroutine. It decides one thing: whether it sees (sight.go). While a server is not
// reached, or a watch was cut, the auditor is told so, for what it misses must not look like what is not there.
//
// It uses client-go's reflectors and not api/kube: what watches the shards should not be deaf where they are.
package follow

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	volcanov1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/audit"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/wait"
)

// Options of an Auditor.
type Options struct {
	Etcd *clientv3.Client
	Kube *rest.Config
	// Prefix of Basalt's keys in the control store; empty: none.
	Prefix string
	// StartRevision is the first revision of the control store that is judged; what was before is read as it stood. 0: from
	// now on. When it is compacted, the first that is kept.
	StartRevision int64
	Judge         audit.Config
	// Found hears each violation once, when it is found. It must not block.
	Found func(audit.Violation)
	// Tap hears each event after it was judged, on the auditor's goroutine, with the time at which it was seen: one decoded
	// watch serves an auditor and a view. What it is given is not to be changed.
	Tap func(time.Time, audit.Event)
	// Registry takes metrics; nil for none.
	Registry prometheus.Registerer
	Log      *slog.Logger
}

// Auditor watches and judges.
type Auditor struct {
	opts   Options
	core   kubernetes.Interface
	ours   dynamic.Interface
	events chan timed

	mu     sync.Mutex
	judge  *audit.Auditor
	sight  sight
	synced chan struct{}
	seen   chan struct{}
}

// timed is an event, or without one the word that the control store's watch has shown all up to a revision.
type timed struct {
	at        time.Time
	event     audit.Event
	confirmed int64
}

// New makes an auditor that has not begun.
func New(o Options) (*Auditor, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	config := rest.CopyConfig(o.Kube)
	config.QPS, config.UserAgent = -1, "basalt-audit"
	builtin := rest.CopyConfig(config)
	builtin.ContentType = runtime.ContentTypeProtobuf
	builtin.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	core, err := kubernetes.NewForConfig(builtin)
	if err != nil {
		return nil, fmt.Errorf("make client for %s: %w", config.Host, err)
	}
	ours, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make client for %s: %w", config.Host, err)
	}
	a := &Auditor{opts: o, core: core, ours: ours, events: make(chan timed, 4096), judge: audit.New(o.Judge), sight: newSight(), synced: make(chan struct{}), seen: make(chan struct{})}
	if o.Registry != nil {
		o.Registry.MustRegister(newMetrics(a))
	}
	return a, nil
}

// Report returns what was found so far.
func (a *Auditor) Report() audit.Report {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.judge.Report()
}

// Synced is closed when the control store and all lists were read once.
func (a *Auditor) Synced() <-chan struct{} { return a.synced }

// Seen is closed when all was read once and judged up to that moment.
func (a *Auditor) Seen() <-chan struct{} { return a.seen }

// Run watches until the context ends. An error is about the beginning: the control store cannot be read. Later failures
// are logged and tried again.
func (a *Auditor) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	next, err := a.begin(ctx)
	if err != nil && ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	wg.Go(func() { a.watchStore(ctx, next) })
	wg.Go(func() { a.askAPIServer(ctx) })

	klogCtx := klog.NewContext(ctx, logr.FromSlogHandler(a.opts.Log.Handler()))
	var lists []chan struct{}
	start := func(run func(ctx context.Context), listed chan struct{}) {
		lists = append(lists, listed)
		wg.Go(func() { run(klogCtx) })
	}
	coreClient := a.core.CoreV1().RESTClient()
	start(reflect(a, coreClient, "nodes", &v1.Node{}))
	start(reflect(a, coreClient, "pods", &v1.Pod{}))
	start(reflect(a, coreClient, "namespaces", &v1.Namespace{}))
	start(reflect(a, coreClient, "persistentvolumeclaims", &v1.PersistentVolumeClaim{}))
	start(reflect(a, coreClient, "persistentvolumes", &v1.PersistentVolume{}))
	start(reflect(a, a.core.StorageV1().RESTClient(), "csinodes", &storagev1.CSINode{}))
	start(reflectOurs(a, "queues", listed[*v1beta1.Queue], seen[*v1beta1.Queue], gone[*v1beta1.Queue]))
	start(reflectOurs(a, "podgroups",
		func(l []*v1beta1.PodGroup) audit.Event { return audit.PodGroupsReplaced{PodGroups: l} },
		func(o *v1beta1.PodGroup) audit.Event { return audit.PodGroupSeen{PodGroup: o} },
		func(o *v1beta1.PodGroup) audit.Event { return audit.PodGroupGone{PodGroup: o} }))
	wg.Go(func() { a.followUpstream(klogCtx) })
	if a.opts.Judge.Volcano {
		wg.Go(func() { a.followVolcano(klogCtx) })
	}
	wg.Go(func() {
		for _, l := range lists {
			select {
			case <-l:
			case <-ctx.Done():
				return
			}
		}
		close(a.synced)
	})

	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	found := 0
	for {
		var e timed
		select {
		case <-ctx.Done():
			return nil
		case e = <-a.events:
		case now := <-tick.C:
			a.mu.Lock()
			before := a.sight.seen
			e = timed{at: now, event: audit.Tick{Blind: a.sight.blind(now)}}
			if !before && a.sight.seen {
				close(a.seen)
				a.opts.Log.Info("initial read complete, checking changes", "from_revision", a.sight.From)
			}
			a.mu.Unlock()
		}
		if e.event == nil {
			a.mu.Lock()
			a.sight.confirmed(e.confirmed)
			a.mu.Unlock()
			continue
		}
		a.mu.Lock()
		if r, ok := e.event.(audit.StoreRevision); ok {
			a.sight.shown(r)
		}
		a.judge.Observe(e.at, e.event)
		fresh := a.judge.Found(found)
		a.mu.Unlock()
		found += len(fresh)
		if a.opts.Found != nil {
			for _, v := range fresh {
				a.opts.Found(v)
			}
		}
		if a.opts.Tap != nil {
			a.opts.Tap(e.at, e.event)
		}
	}
}

func (a *Auditor) send(ctx context.Context, e audit.Event) {
	select {
	case a.events <- timed{at: time.Now(), event: e}:
	case <-ctx.Done():
	}
}

// ---- the control store

// begin reads what was before the first revision to judge, and returns that revision.
func (a *Auditor) begin(ctx context.Context) (next int64, err error) {
	within, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	if next = a.opts.StartRevision; next == 1 { // from the first revision on there was nothing before
		_, err = a.opts.Etcd.Get(within, a.opts.Prefix+"store", clientv3.WithRev(1))
	} else {
		next, err = a.snapshot(within, max(next-1, 0), false)
	}
	if err != nil {
		var compacted int64
		if err == rpctypes.ErrCompacted {
			if compacted, err = a.compacted(within); err == nil {
				a.opts.Log.Warn("the requested revision was compacted, starting at the oldest available", "asked", a.opts.StartRevision, "first", compacted+1)
				next, err = a.snapshot(within, compacted, false)
			}
		}
		if err != nil {
			return 0, fmt.Errorf("read control store: %w", err)
		}
	}
	a.mu.Lock()
	a.sight.From = next
	a.mu.Unlock()
	return next, nil
}

// compacted returns the newest revision that was compacted away: what stood at it can still be read.
func (a *Auditor) compacted(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for r := range a.opts.Etcd.Watch(ctx, a.opts.Prefix, clientv3.WithPrefix(), clientv3.WithRev(1)) {
		if r.CompactRevision > 0 {
			return r.CompactRevision, nil
		}
		if err := r.Err(); err != nil {
			return 0, err
		}
	}
	return 0, ctx.Err()
}

// snapshot reads the store as it stood at a revision, 0 for now, and returns the revision to watch from.
func (a *Auditor) snapshot(ctx context.Context, revision int64, replaced bool) (next int64, err error) {
	// No paging: Basalt's store holds what is in flight, a few MB at most.
	r, err := a.opts.Etcd.Get(ctx, a.opts.Prefix, clientv3.WithPrefix(), clientv3.WithRev(revision))
	if err != nil {
		return 0, err
	}
	if revision == 0 {
		revision = r.Header.Revision
	}
	e := audit.StoreRevision{Revision: revision, Snapshot: true, Replaced: replaced}
	for _, kv := range r.Kvs {
		e.Changes = append(e.Changes, a.change(kv, false))
	}
	a.send(ctx, e)
	return revision + 1, nil
}

func (a *Auditor) change(kv *mvccpb.KeyValue, deleted bool) audit.StoreChange {
	return audit.StoreChange{Key: string(kv.Key[len(a.opts.Prefix):]), Value: kv.Value, Deleted: deleted, CreateRevision: kv.CreateRevision, ModRevision: kv.ModRevision}
}

// watchStore follows every revision from the one given. Only a compaction, or another store in the place of this one, makes
// it skip some, and it says so.
func (a *Auditor) watchStore(ctx context.Context, next int64) {
	var seen identity
	for ctx.Err() == nil {
		next = a.watchStoreOnce(ctx, next, &seen)
		select {
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// identity is that of the store which was seen last.
type identity struct {
	cluster uint64 // etcd's id
	record  []byte // Basalt's key, nil before it was read
}

// changed takes note of Basalt's key, and reports whether it was another one. A store that was restored gets another one from whoever finds out
// first. By then it may have more revisions again than before, so that nothing else shows it.
func (s *identity) changed(record []byte) bool {
	was := s.record
	s.record = record
	return was != nil && !bytes.Equal(was, record)
}

func (a *Auditor) watchStoreOnce(ctx context.Context, next int64, seen *identity) int64 {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	again := func(replaced bool) int64 {
		a.mu.Lock()
		a.sight.Gaps++
		a.mu.Unlock()
		within, stop := context.WithTimeout(ctx, 10*time.Second)
		defer stop()
		if n, err := a.snapshot(within, 0, replaced); err == nil {
			*seen = identity{}
			return n
		}
		if replaced {
			seen.record = []byte{} // of no store: it is found to be another one again
		}
		return next
	}
	watch := a.opts.Etcd.Watch(ctx, a.opts.Prefix, clientv3.WithPrefix(), clientv3.WithRev(next))
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return next
		case <-tick.C:
			// A watch from a revision that the store does not have waits for it, silently: so the store itself is asked.
			asked := time.Now()
			within, stop := context.WithTimeout(ctx, 2*time.Second)
			now, err := a.opts.Etcd.Get(within, a.opts.Prefix+"store")
			stop()
			if err != nil {
				continue
			}
			seen.cluster = cmp.Or(seen.cluster, now.Header.ClusterId)
			changed := len(now.Kvs) > 0 && now.Kvs[0].ModRevision < next && seen.changed(now.Kvs[0].Value) // the watch brings what is later
			if changed || now.Header.ClusterId != seen.cluster || now.Header.Revision < next-1 {
				a.opts.Log.Warn("the control store was replaced or restored, starting over", "expected", next-1, "found", now.Header.Revision)
				return again(true)
			}
			a.mu.Lock()
			a.sight.found(asked, now.Header.Revision)
			a.mu.Unlock()
			if now.Header.Revision == next-1 { // nothing is left to see, and etcd answers no watch below its first revision
				a.confirm(ctx, next-1)
				continue
			}
			_ = a.opts.Etcd.RequestProgress(ctx) // answered on the watch, when it is up to date
		case r, open := <-watch:
			if !open {
				return next
			}
			if r.CompactRevision > 0 {
				a.opts.Log.Warn("revisions were compacted before they could be checked", "from", next, "to", r.CompactRevision)
				return again(false)
			}
			if err := r.Err(); err != nil {
				a.opts.Log.Warn("control store watch ended, restarting it", "error", err)
				return next
			}
			for i := 0; i < len(r.Events); {
				e := audit.StoreRevision{Revision: r.Events[i].Kv.ModRevision}
				for ; i < len(r.Events) && r.Events[i].Kv.ModRevision == e.Revision; i++ {
					e.Changes = append(e.Changes, a.change(r.Events[i].Kv, r.Events[i].Type == mvccpb.DELETE))
				}
				a.send(ctx, e)
				next = e.Revision + 1
				for _, c := range e.Changes {
					if c.Key == "store" && c.Deleted {
						seen.record = nil
					} else if c.Key == "store" && seen.changed(c.Value) {
						a.opts.Log.Warn("the control store has another identity, starting over", "revision", e.Revision)
						return again(true)
					}
				}
			}
			if r.IsProgressNotify() {
				a.confirm(ctx, r.Header.Revision)
			}
		}
	}
}

// ---- the API server

func listed[T metav1.Object](l []T) audit.Event { return audit.Listed[T]{Objects: l} }
func seen[T metav1.Object](o T) audit.Event     { return audit.Seen[T]{Object: o} }
func gone[T metav1.Object](o T) audit.Event     { return audit.Gone[T]{Object: o} }

func reflect[T interface {
	metav1.Object
	runtime.Object
}](a *Auditor, client rest.Interface, resource string, kind T) (run func(context.Context), done chan struct{}) {
	lw := cache.NewListWatchFromClient(client, resource, metav1.NamespaceAll, fields.Everything())
	return reflectFrom(a, lw, resource, kind, listed[T], seen[T], gone[T])
}

func reflectFrom[T runtime.Object](a *Auditor, lw *cache.ListWatch, resource string, kind T, replaced func([]T) audit.Event, seen, gone func(T) audit.Event) (run func(context.Context), listed chan struct{}) {
	listed = make(chan struct{})
	lw = a.seeing(resource, lw)
	return func(ctx context.Context) {
		first := sync.OnceFunc(func() { close(listed) })
		s := sink[T]{
			replaced: func(l []T) {
				a.mu.Lock()
				a.sight.relists[resource]++
				a.mu.Unlock()
				a.send(ctx, replaced(l))
				first()
			},
			seen: func(o T) { a.send(ctx, seen(o)) },
			gone: func(o T) { a.send(ctx, gone(o)) },
		}
		cache.NewReflectorWithOptions(lw, kind, s, cache.ReflectorOptions{Name: "audit " + resource}).RunWithContext(ctx)
	}, listed
}

// reflectOurs watches one of our own kinds. The API server accepts a few values there that Go does not, and one object must not
// hide the others: each is decoded by itself.
func reflectOurs[T any, P interface {
	*T
	metav1.Object
	runtime.Object
}](a *Auditor, resource string, replaced func([]P) audit.Event, seen, gone func(P) audit.Event) (run func(context.Context), listed chan struct{}) {
	return reflectCustom(a, v1beta1.SchemeGroupVersion.WithResource(resource), replaced, seen, gone)
}

// followVolcano watches Volcano's PodGroups once the API server serves them.
func (a *Auditor) followVolcano(ctx context.Context) {
	followForeign(ctx, a, api.VolcanoGroup, volcanov1beta1.SchemeGroupVersion,
		func(o *volcanov1beta1.PodGroup) *v1beta1.PodGroup {
			g := &v1beta1.PodGroup{ObjectMeta: o.ObjectMeta, Spec: v1beta1.PodGroupSpec{Queue: o.Spec.Queue}}
			g.Spec.SchedulingPolicy.Gang.MinCount = max(1, o.Spec.MinMember)
			return g
		},
		func(o *volcanov1beta1.PodGroup) v1.ResourceList {
			if o.Spec.MinResources == nil {
				return nil
			}
			return *o.Spec.MinResources
		})
}

// followUpstream watches the PodGroups of scheduling.k8s.io once the API server serves them.
func (a *Auditor) followUpstream(ctx context.Context) {
	followForeign(ctx, a, api.UpstreamGroup, schedulingv1beta1.SchemeGroupVersion,
		func(o *schedulingv1beta1.PodGroup) *v1beta1.PodGroup {
			g := &v1beta1.PodGroup{ObjectMeta: o.ObjectMeta, Spec: v1beta1.PodGroupSpec{Queue: o.Labels[api.LabelQueue]}}
			g.Spec.SchedulingPolicy.Gang.MinCount = 1
			if gang := o.Spec.SchedulingPolicy.Gang; gang != nil {
				g.Spec.SchedulingPolicy.Gang.MinCount = max(1, gang.MinCount)
			}
			return g
		},
		func(*schedulingv1beta1.PodGroup) v1.ResourceList { return nil })
}

// followForeign watches groups of another kind than Basalt's once the API server serves them.
func followForeign[T any, P interface {
	*T
	metav1.Object
	runtime.Object
}](ctx context.Context, a *Auditor, kind api.GroupKind, version schema.GroupVersion, as func(P) *v1beta1.PodGroup, floor func(P) v1.ResourceList) {
	for {
		list, err := a.core.Discovery().ServerResourcesForGroupVersion(version.String())
		if err == nil && slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == "podgroups" }) {
			break
		}
		if !wait.For(ctx, time.Minute) {
			return
		}
	}
	run, _ := reflectCustom(a, version.WithResource("podgroups"),
		func(l []P) audit.Event {
			e := audit.PodGroupsReplaced{Kind: kind, Floors: map[types.UID]v1.ResourceList{}}
			for _, o := range l {
				e.PodGroups = append(e.PodGroups, as(o))
				e.Floors[o.GetUID()] = floor(o)
			}
			return e
		},
		func(o P) audit.Event { return audit.PodGroupSeen{PodGroup: as(o), Kind: kind, Floor: floor(o)} },
		func(o P) audit.Event { return audit.PodGroupGone{PodGroup: as(o)} })
	run(ctx)
}

// reflectCustom watches a kind that a CustomResourceDefinition defines.
func reflectCustom[T any, P interface {
	*T
	metav1.Object
	runtime.Object
}](a *Auditor, kind schema.GroupVersionResource, replaced func([]P) audit.Event, seen, gone func(P) audit.Event) (run func(context.Context), listed chan struct{}) {
	resource := kind.Resource
	if kind.Group != v1beta1.SchemeGroupVersion.Group {
		resource = kind.GroupResource().String()
	}
	client := a.ours.Resource(kind)
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return client.List(ctx, o) },
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return client.Watch(ctx, o)
		},
	}
	read := func(u *unstructured.Unstructured) P {
		o, err := decode[T](u.Object)
		if err != nil {
			a.opts.Log.Warn("cannot decode part of an object, checking the rest", "resource", resource, "object", u.GetNamespace()+"/"+u.GetName(), "version", u.GetResourceVersion(), "error", err)
		}
		return P(o)
	}
	return reflectFrom(a, lw, resource, &unstructured.Unstructured{},
		func(l []*unstructured.Unstructured) audit.Event {
			var all []P
			for _, u := range l {
				all = append(all, read(u))
			}
			return replaced(all)
		},
		func(u *unstructured.Unstructured) audit.Event { return seen(read(u)) },
		func(u *unstructured.Unstructured) audit.Event { return gone(read(u)) })
}
