package console

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/api/v1beta1"
)

// objects are the PodGroups and Queues that are watched, without what no page shows. Nobody changes an object in it.
type objects struct {
	client rest.Interface
	log    *slog.Logger

	mu       sync.RWMutex
	spaces   map[string]*space
	kept     int // PodGroups in all
	left     int // out, about: there were too many
	version  uint64
	queues   map[string]*v1beta1.Queue
	queuesAt uint64 // version of the queues
	sorted   map[string]sorted
	epochs   epochs
	oldests  map[string]oldest
	followed map[string]<-chan struct{} // namespace, "" for all, "queues" has a key of its own -> it is read
}

// space is a namespace.
type space struct {
	gangs   map[string]*v1beta1.PodGroup
	version uint64
}

// sorted are the gangs of some namespaces, the youngest first, as of a version.
type sorted struct {
	version string
	gangs   []*v1beta1.PodGroup
}

// maxSorted bounds how many lists of gangs are kept in order.
const maxSorted = 64

const followedQueues = "/queues" // no namespace

func newObjects(client rest.Interface, log *slog.Logger) *objects {
	return &objects{client: client, log: log, spaces: map[string]*space{}, queues: map[string]*v1beta1.Queue{},
		sorted: map[string]sorted{}, followed: map[string]<-chan struct{}{},
		epochs: epochs{seen: map[int64]time.Time{}}, oldests: map[string]oldest{}}
}

// within is a client whose requests are about one namespace.
type within struct {
	rest.Interface
	namespace string
}

// Get implements rest.Interface.
func (w within) Get() *rest.Request {
	return w.Interface.Get().Prefix("namespaces", w.namespace)
}

// follow watches the PodGroups of a namespace, "" for all, until ctx ends. Whoever calls it has the right.
func (o *objects) follow(ctx context.Context, namespace string) (read <-chan struct{}, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if read, is := o.followed[""]; is {
		return read, nil
	}
	if read, is := o.followed[namespace]; is {
		return read, nil
	}
	client, name := o.client, "podgroups"
	if namespace != "" {
		namespaces := len(o.followed)
		if o.followed[followedQueues] != nil {
			namespaces--
		}
		if namespaces >= maxNamespaces {
			return nil, problem{http.StatusTooManyRequests, fmt.Sprintf("this console follows at most %d namespaces: "+
				"start another one", maxNamespaces)}
		}
		client, name = within{client, namespace}, "podgroups of "+namespace
	}
	f := kube.Follow(client, "podgroups", o.log, kube.Handler[*v1beta1.PodGroup]{
		Replaced: func(all []*v1beta1.PodGroup, _ kube.Ticket) { o.replace(namespace, all) },
		Seen:     o.see, Gone: o.forget,
	})
	f.Named(name)
	f.Strip(stripGang)
	o.followed[namespace] = f.Synced()
	go f.Run(ctx)
	return f.Synced(), nil
}

// followQueues watches Queues until ctx ends.
func (o *objects) followQueues(ctx context.Context) (read <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if read, is := o.followed[followedQueues]; is {
		return read
	}
	change := func(do func()) {
		o.mu.Lock()
		defer o.mu.Unlock()
		do()
		o.queuesAt++
	}
	keep := func(q *v1beta1.Queue) {
		if _, is := o.queues[q.Name]; is || len(o.queues) < maxQueues {
			o.queues[q.Name] = q
		}
	}
	f := kube.Follow(o.client, "queues", o.log, kube.Handler[*v1beta1.Queue]{
		Replaced: func(all []*v1beta1.Queue, _ kube.Ticket) {
			change(func() {
				clear(o.queues)
				for _, q := range all {
					keep(q)
					if q.Status != nil {
						o.epochs.list(q.Status.Epoch)
					}
				}
			})
		},
		Seen: func(q *v1beta1.Queue) {
			change(func() {
				if keep(q); q.Status != nil {
					o.epochs.see(q.Status.Epoch)
				}
			})
		},
		Gone: func(q *v1beta1.Queue) { change(func() { delete(o.queues, q.Name) }) },
	})
	f.Strip(func(q *v1beta1.Queue) *v1beta1.Queue {
		out := *q
		out.ObjectMeta = stripMeta(q.ObjectMeta)
		return &out
	})
	o.followed[followedQueues] = f.Synced()
	go f.Run(ctx)
	return f.Synced()
}

func stripMeta(m metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: m.Name, Namespace: m.Namespace, UID: m.UID,
		ResourceVersion: m.ResourceVersion, Generation: m.Generation,
		CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp}
}

func stripGang(g *v1beta1.PodGroup) *v1beta1.PodGroup {
	return &v1beta1.PodGroup{ObjectMeta: stripMeta(g.ObjectMeta), Status: g.Status, Spec: v1beta1.PodGroupSpec{
		Queue: g.Spec.Queue, SchedulingPolicy: g.Spec.SchedulingPolicy, PriorityClassName: g.Spec.PriorityClassName}}
}

// replace takes what a list says. Namespaces that are as they were keep their version.
func (o *objects) replace(namespace string, all []*v1beta1.PodGroup) {
	o.mu.Lock()
	defer o.mu.Unlock()
	before := o.spaces
	if namespace != "" {
		before = map[string]*space{namespace: o.spaces[namespace]}
	} else {
		o.spaces, o.kept = map[string]*space{}, 0
	}
	if s := before[namespace]; s != nil && namespace != "" {
		o.kept -= len(s.gangs)
		delete(o.spaces, namespace)
	}
	o.left = 0
	for _, g := range all {
		if o.put(g); g.Status != nil {
			o.epochs.list(g.Status.Epoch)
		}
	}
	for name, was := range before {
		is := o.spaces[name]
		if was == nil || is == nil {
			continue
		}
		same := len(was.gangs) == len(is.gangs)
		for n, g := range is.gangs {
			if old := was.gangs[n]; !same || old == nil || old.ResourceVersion != g.ResourceVersion {
				same = false
				break
			}
		}
		if same {
			is.version = was.version
		}
	}
}

// put is called with the lock.
func (o *objects) put(g *v1beta1.PodGroup) {
	s := o.spaces[g.Namespace]
	if s == nil {
		s = &space{gangs: map[string]*v1beta1.PodGroup{}}
		o.spaces[g.Namespace] = s
	}
	if _, is := s.gangs[g.Name]; !is {
		if o.kept >= maxGangs {
			o.left++
			return
		}
		o.kept++
	}
	s.gangs[g.Name] = g
	o.version++
	s.version = o.version
}

func (o *objects) see(g *v1beta1.PodGroup) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.put(g); g.Status != nil {
		o.epochs.see(g.Status.Epoch)
	}
}

// epochSeen returns when a status of an epoch was first seen, zero if none was.
func (o *objects) epochSeen(epoch int64) time.Time {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return o.epochs.seen[epoch]
}

func (o *objects) forget(g *v1beta1.PodGroup) {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.spaces[g.Namespace]
	if s == nil || s.gangs[g.Name] == nil {
		o.left = max(0, o.left-1)
		return
	}
	delete(s.gangs, g.Name)
	o.kept--
	o.version++
	if s.version = o.version; len(s.gangs) == 0 {
		delete(o.spaces, g.Namespace)
	}
}

// gang returns one, nil if it is not there.
func (o *objects) gang(namespace, name string) *v1beta1.PodGroup {
	o.mu.RLock()
	defer o.mu.RUnlock()
	if s := o.spaces[namespace]; s != nil {
		return s.gangs[name]
	}
	return nil
}

// scope is what a viewer may list: all namespaces, or some.
type scope struct {
	all   bool
	names []string // in order
}

// versionOf changes when something of a scope does. It is called with the lock.
func (o *objects) versionOf(in scope) string {
	if in.all {
		return fmt.Sprint(o.version)
	}
	var b strings.Builder
	for _, name := range in.names {
		v := uint64(0)
		if s := o.spaces[name]; s != nil {
			v = s.version
		}
		fmt.Fprint(&b, v, " ")
	}
	return b.String()
}

// seen is versionOf, for a stream that waits for changes.
func (o *objects) seen(in scope) string {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return o.versionOf(in)
}

// list returns the gangs of a scope, the youngest first, and how many were left out because there are too many. The
// list is shared: nobody changes it.
func (o *objects) list(in scope) (gangs []*v1beta1.PodGroup, left int) {
	of := "\x00"
	if !in.all {
		of = strings.Join(in.names, ",")
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	version := o.versionOf(in)
	if s, is := o.sorted[of]; is && s.version == version {
		return s.gangs, o.left
	}
	take := func(s *space) {
		for _, g := range s.gangs {
			gangs = append(gangs, g)
		}
	}
	if in.all {
		gangs = make([]*v1beta1.PodGroup, 0, o.kept)
		for _, s := range o.spaces {
			take(s)
		}
	}
	for _, name := range in.names {
		if s := o.spaces[name]; s != nil && !in.all {
			take(s)
		}
	}
	slices.SortFunc(gangs, func(a, b *v1beta1.PodGroup) int {
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace),
			cmp.Compare(a.Name, b.Name))
	})
	if len(o.sorted) >= maxSorted {
		clear(o.sorted)
	}
	o.sorted[of] = sorted{version, gangs}
	return gangs, o.left
}

// tree returns the Queues in the order of their paths, root first.
func (o *objects) tree() []*v1beta1.Queue {
	o.mu.RLock()
	out := make([]*v1beta1.Queue, 0, len(o.queues))
	for _, q := range o.queues {
		out = append(out, q)
	}
	o.mu.RUnlock()
	slices.SortFunc(out, func(a, b *v1beta1.Queue) int { return comparePaths(a.Name, b.Name) })
	return out
}

// comparePaths puts root first, and each queue before those below it.
func comparePaths(a, b string) int {
	if (a == api.RootQueue) != (b == api.RootQueue) {
		return map[bool]int{true: -1, false: 1}[a == api.RootQueue]
	}
	return slices.Compare(strings.Split(a, "."), strings.Split(b, "."))
}

func (o *objects) queue(name string) *v1beta1.Queue {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return o.queues[name]
}

func (o *objects) queuesSeen() string {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return fmt.Sprint(o.queuesAt)
}

// until waits for a list to be read.
func until(ctx context.Context, read <-chan struct{}) error {
	select {
	case <-read:
		return nil
	case <-ctx.Done():
	case <-time.After(pageWithin / 3):
	}
	return problem{http.StatusServiceUnavailable, "the objects are being read: ask again in a moment"}
}

// reads are closed when what is followed has been read.
func (o *objects) reads() map[string]<-chan struct{} {
	o.mu.RLock()
	defer o.mu.RUnlock()
	out := map[string]<-chan struct{}{}
	for name, read := range o.followed {
		out[name] = read
	}
	return out
}

// oldest are the gangs of a scope that wait for longest, by queue, in it or below it.
type oldest struct {
	at  time.Time
	all map[string]*v1beta1.PodGroup
}

// oldestFor is how long these count: they change seldom.
const oldestFor = 5 * time.Second

// oldestOf returns the gangs of a scope that wait for longest, by queue. The map is shared: nobody changes it.
func (o *objects) oldestOf(in scope) map[string]*v1beta1.PodGroup {
	of := "\x00"
	if !in.all {
		of = strings.Join(in.names, ",")
	}
	o.mu.RLock()
	had, is := o.oldests[of]
	o.mu.RUnlock()
	if is && time.Since(had.at) < oldestFor {
		return had.all
	}
	all, _ := o.list(in)
	out := map[string]*v1beta1.PodGroup{}
	for _, g := range all { // the youngest first
		queue := g.Spec.Queue
		if g.Status != nil && g.Status.Queue != "" {
			queue = g.Status.Queue
		}
		if stateOf(g) == stateWaits && queue != "" {
			out[queue] = g
		}
	}
	for _, queue := range api.SortedKeys(out) { // of several that are as old always the same
		g := out[queue]
		for _, above := range api.Lineage(queue) {
			if was := out[above]; was == nil || g.CreationTimestamp.Before(&was.CreationTimestamp) {
				out[above] = g
			}
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.oldests) >= maxSorted {
		clear(o.oldests)
	}
	o.oldests[of] = oldest{time.Now(), out}
	return out
}
