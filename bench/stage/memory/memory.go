// Package memory is an API server in memory, with the contract of the real one for what Basalt calls, and no more: kinds of
// a fixed list, list and watch with resourceVersions, selectors and bookmarks, Bindings with their preconditions, patches
// of metadata and status, deletion with grace and finalizers. A benchmark of the protocol would otherwise measure the API
// server, which costs fifty times what Basalt does.
//
// It is used in two forms over the same objects. Handler serves HTTP, in JSON or protobuf, to unchanged processes. Clients
// gives a process of the same program the objects themselves: what is called for each pod goes by function call, and what
// is rare goes the way of HTTP, without a network.
//
// It owns the objects: a stored version never changes, and whoever gets one must not change it either. It refuses what it
// does not know (404, 405, 415), and it validates only what the protocol stands on: UIDs, versions, the stamp of statuses.
// Quantities, names, quota and admission it does not look at.
package memory

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"slices"
	"sort"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/bench/prove/model"
)

// Object is a version of any object.
type Object interface {
	metav1.Object
	runtime.Object
}

// fresh is how long changes are kept for watches at least, as kube-apiserver keeps them.
const fresh = 75 * time.Second

// Server holds all objects.
type Server struct {
	mu       sync.Mutex
	version  int64
	uids     *rand.ChaCha8
	kinds    map[string]*kind // by resource
	counts   Counts
	observer Observer
}

// Counts are calls since the start, by resource, and watch events handed out.
type Counts struct {
	Creates, Updates, Deletes, Bindings, StatusPatches map[string]int64
	Conflicts                                          map[string]int64 // writes refused with 409 or 422
	WatchEvents                                        map[string]int64
}

// Observer hears of each change, in order, while the server is locked: it must be quick and must not call the server.
type Observer func(resource string, event watch.EventType, before, after Object)

type kind struct {
	model.Rules
	resource   string
	gvk        schema.GroupVersionKind
	namespaced bool
	make       func() Object
	list       func(version string, objects []Object) runtime.Object

	objects  map[types.NamespacedName]Object
	log      []change // changes, oldest first
	most     int      // log is looked through when it is longer
	dropped  int      // changes that were before log[0]
	oldest   int64    // a watch from a version before this one is too old
	watchers map[*watcher]struct{}
}

type change struct {
	event         watch.EventType
	version       int64
	at            time.Time
	before, after Object // after is, with Deleted, the last state under the version of the deletion
}

// Options of a server.
type Options struct {
	Seed uint64 // of the UIDs
}

// New makes a server with the namespace default.
func New(o Options) *Server {
	s := &Server{version: 1, uids: rand.NewChaCha8([32]byte{byte(o.Seed), byte(o.Seed >> 8), byte(o.Seed >> 16)}), kinds: map[string]*kind{}}
	s.counts = Counts{Creates: map[string]int64{}, Updates: map[string]int64{}, Deletes: map[string]int64{}, Bindings: map[string]int64{},
		StatusPatches: map[string]int64{}, Conflicts: map[string]int64{}, WatchEvents: map[string]int64{}}
	core, ours := corev1.SchemeGroupVersion, v1beta1.SchemeGroupVersion
	addKind(s, "pods", core, "Pod", true, func(m metav1.ListMeta, in []corev1.Pod) runtime.Object {
		return &corev1.PodList{ListMeta: m, Items: in}
	})
	addKind(s, "nodes", core, "Node", false, func(m metav1.ListMeta, in []corev1.Node) runtime.Object {
		return &corev1.NodeList{ListMeta: m, Items: in}
	})
	addKind(s, "namespaces", core, "Namespace", false, func(m metav1.ListMeta, in []corev1.Namespace) runtime.Object {
		return &corev1.NamespaceList{ListMeta: m, Items: in}
	})
	addKind(s, "persistentvolumes", core, "PersistentVolume", false, func(m metav1.ListMeta, in []corev1.PersistentVolume) runtime.Object {
		return &corev1.PersistentVolumeList{ListMeta: m, Items: in}
	})
	addKind(s, "persistentvolumeclaims", core, "PersistentVolumeClaim", true, func(m metav1.ListMeta, in []corev1.PersistentVolumeClaim) runtime.Object {
		return &corev1.PersistentVolumeClaimList{ListMeta: m, Items: in}
	})
	addKind(s, "storageclasses", storagev1.SchemeGroupVersion, "StorageClass", false, func(m metav1.ListMeta, in []storagev1.StorageClass) runtime.Object {
		return &storagev1.StorageClassList{ListMeta: m, Items: in}
	})
	addKind(s, "csinodes", storagev1.SchemeGroupVersion, "CSINode", false, func(m metav1.ListMeta, in []storagev1.CSINode) runtime.Object {
		return &storagev1.CSINodeList{ListMeta: m, Items: in}
	})
	addKind(s, "csidrivers", storagev1.SchemeGroupVersion, "CSIDriver", false, func(m metav1.ListMeta, in []storagev1.CSIDriver) runtime.Object {
		return &storagev1.CSIDriverList{ListMeta: m, Items: in}
	})
	addKind(s, "csistoragecapacities", storagev1.SchemeGroupVersion, "CSIStorageCapacity", true, func(m metav1.ListMeta, in []storagev1.CSIStorageCapacity) runtime.Object {
		return &storagev1.CSIStorageCapacityList{ListMeta: m, Items: in}
	})
	addKind(s, "volumeattachments", storagev1.SchemeGroupVersion, "VolumeAttachment", false, func(m metav1.ListMeta, in []storagev1.VolumeAttachment) runtime.Object {
		return &storagev1.VolumeAttachmentList{ListMeta: m, Items: in}
	})
	addKind(s, "poddisruptionbudgets", policyv1.SchemeGroupVersion, "PodDisruptionBudget", true, func(m metav1.ListMeta, in []policyv1.PodDisruptionBudget) runtime.Object {
		return &policyv1.PodDisruptionBudgetList{ListMeta: m, Items: in}
	})
	addKind(s, "priorityclasses", schedulingv1.SchemeGroupVersion, "PriorityClass", false, func(m metav1.ListMeta, in []schedulingv1.PriorityClass) runtime.Object {
		return &schedulingv1.PriorityClassList{ListMeta: m, Items: in}
	})
	addKind(s, "events", eventsv1.SchemeGroupVersion, "Event", true, func(m metav1.ListMeta, in []eventsv1.Event) runtime.Object {
		return &eventsv1.EventList{ListMeta: m, Items: in}
	})
	addKind(s, "queues", ours, "Queue", false, func(m metav1.ListMeta, in []v1beta1.Queue) runtime.Object {
		return &v1beta1.QueueList{ListMeta: m, Items: in}
	})
	addKind(s, "podgroups", ours, "PodGroup", true, func(m metav1.ListMeta, in []v1beta1.PodGroup) runtime.Object {
		return &v1beta1.PodGroupList{ListMeta: m, Items: in}
	})
	if _, err := s.Create("namespaces", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}); err != nil {
		panic(err)
	}
	return s
}

// addKind adds a kind whose objects are *T.
func addKind[T any, P interface {
	*T
	Object
}](s *Server, resource string, gv schema.GroupVersion, name string, namespaced bool, list func(metav1.ListMeta, []T) runtime.Object) {
	k := &kind{Rules: model.Rules{Resource: schema.GroupResource{Group: gv.Group, Resource: resource}, Kind: schema.GroupKind{Group: gv.Group, Kind: name}}, resource: resource, gvk: gv.WithKind(name), namespaced: namespaced, objects: map[types.NamespacedName]Object{}, watchers: map[*watcher]struct{}{}}
	k.make = func() Object {
		o := P(new(T))
		o.GetObjectKind().SetGroupVersionKind(k.gvk)
		return o
	}
	k.list = func(version string, objects []Object) runtime.Object {
		items := make([]T, len(objects))
		for i, o := range objects {
			items[i] = *(o.(P))
		}
		l := list(metav1.ListMeta{ResourceVersion: version}, items)
		l.GetObjectKind().SetGroupVersionKind(gv.WithKind(name + "List"))
		return l
	}
	s.kinds[resource] = k
}

// Observe sets who hears of changes. Call it before anything changes.
func (s *Server) Observe(o Observer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.observer = o
}

// Counts returns a copy of the counts.
func (s *Server) Counts() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.counts
	for _, m := range []*map[string]int64{&c.Creates, &c.Updates, &c.Deletes, &c.Bindings, &c.StatusPatches, &c.Conflicts, &c.WatchEvents} {
		*m = maps.Clone(*m)
	}
	return c
}

// Len is how many objects of a kind exist.
func (s *Server) Len(resource string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.kinds[resource].objects)
}

func (s *Server) kind(resource string) (*kind, error) {
	k := s.kinds[resource]
	if k == nil {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: resource}, "")
	}
	return k, nil
}

func nameOf(o Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

func (k *kind) get(name types.NamespacedName) (Object, error) {
	if o := k.objects[name]; o != nil {
		return o, nil
	}
	return nil, k.NotFound(name.Name)
}

// Get returns the present version.
func (s *Server) Get(resource, namespace, name string) (Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, o, err := s.find(resource, types.NamespacedName{Namespace: namespace, Name: name})
	return o, err
}

// find returns an object and its kind.
func (s *Server) find(resource string, name types.NamespacedName) (*kind, Object, error) {
	k, err := s.kind(resource)
	if err != nil {
		return nil, nil, err
	}
	o, err := k.get(name)
	return k, o, err
}

// List returns the present objects that a filter lets pass, by name, and the version that they are of.
func (s *Server) List(resource, namespace string, keep filter) ([]Object, string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, err := s.kind(resource)
	if err != nil {
		return nil, "", err
	}
	out := make([]Object, 0, len(k.objects))
	for name, o := range k.objects {
		if (namespace == "" || name.Namespace == namespace) && keep.matches(o) {
			out = append(out, o)
		}
	}
	slices.SortFunc(out, func(a, b Object) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
	return out, strconv.FormatInt(s.version, 10), nil
}

// commit makes a new version of an object visible; s is locked, after is the caller's to change until now.
func (s *Server) commit(k *kind, event watch.EventType, before, after Object) {
	s.version++
	after.SetResourceVersion(strconv.FormatInt(s.version, 10))
	if event == watch.Deleted {
		delete(k.objects, nameOf(after))
	} else {
		k.objects[nameOf(after)] = after
	}
	now := time.Now()
	k.log = append(k.log, change{event: event, version: s.version, at: now, before: before, after: after})
	if len(k.log) > k.most { // at times, not each time
		drop := sort.Search(len(k.log)-1, func(i int) bool { return now.Sub(k.log[i].at) < fresh })
		if drop > 0 {
			k.oldest = k.log[drop-1].version
			k.dropped += drop
		}
		kept := len(k.log) - drop
		k.most = max(2*kept, 1024)
		k.log = append(make([]change, 0, k.most+1), k.log[drop:]...)
	}
	for w := range k.watchers {
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
	if s.observer != nil {
		s.observer(k.resource, event, before, after)
	}
}

// uid makes a random UID; s is locked.
func (s *Server) uid() types.UID {
	const hex = "0123456789abcdef"
	var b [36]byte
	hi, lo := s.uids.Uint64(), s.uids.Uint64()
	for i := range b {
		switch i {
		case 8, 13, 18, 23:
			b[i] = '-'
			continue
		}
		if i < 18 {
			b[i], hi = hex[hi&15], hi>>4
		} else {
			b[i], lo = hex[lo&15], lo>>4
		}
	}
	b[14], b[19] = '4', 'a'
	return types.UID(b[:])
}

// Create stores a new object, which is the server's from now on, and returns it.
func (s *Server) Create(resource string, o Object) (Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, err := s.kind(resource)
	if err != nil {
		return nil, err
	}
	name := nameOf(o)
	if name.Name == "" {
		return nil, apierrors.NewInvalid(k.gvk.GroupKind(), "", nil)
	}
	if k.namespaced && s.kinds["namespaces"].objects[types.NamespacedName{Name: name.Namespace}] == nil {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, name.Namespace)
	}
	if k.objects[name] != nil {
		return nil, apierrors.NewAlreadyExists(k.Resource, name.Name)
	}
	k.Rules.Create(o, s.uid(), now())
	o.GetObjectKind().SetGroupVersionKind(k.gvk)
	s.counts.Creates[resource]++
	s.commit(k, watch.Added, nil, o)
	return o, nil
}

// UpdatePod changes a pod by a function that gets a shallow copy, if it still has the UID: what kubelets do.
func (s *Server) UpdatePod(namespace, name string, uid types.UID, change func(*corev1.Pod)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.kinds["pods"]
	o, err := k.get(types.NamespacedName{Namespace: namespace, Name: name})
	if err != nil {
		return err
	}
	if o.GetUID() != uid {
		return k.Conflict(name, "the UID in the precondition (%s) is not %s", uid, o.GetUID())
	}
	pod := *o.(*corev1.Pod)
	change(&pod)
	s.counts.Updates["pods"]++
	s.commit(k, watch.Modified, o, &pod)
	return nil
}

// Remove deletes a pod with this UID at once: what kubelets and controllers do in the end.
func (s *Server) Remove(namespace, name string, uid types.UID) error {
	now := int64(0)
	return s.Delete("pods", namespace, name, metav1.DeleteOptions{GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &uid}})
}
