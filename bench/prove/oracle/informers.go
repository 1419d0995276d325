package main

import (
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/informers/apps"
	"k8s.io/client-go/informers/core"
	"k8s.io/client-go/informers/internalinterfaces"
	"k8s.io/client-go/informers/policy"
	"k8s.io/client-go/informers/resource"
	"k8s.io/client-go/informers/scheduling"
	"k8s.io/client-go/informers/storage"
	"k8s.io/client-go/tools/cache"
)

// factory makes informers that are in sync from the start: their stores hold the objects of a case, and a handler has heard of all
// of them when it has been added. Real informers hear by goroutines, and a plugin does not say when its caches are filled.
type factory struct {
	informers.SharedInformerFactory // nil: no plugin calls the rest
	objects                         map[reflect.Type][]runtime.Object
	made                            map[reflect.Type]*informer
}

func newFactory(c *Case) *factory {
	f := &factory{objects: map[reflect.Type][]runtime.Object{}, made: map[reflect.Type]*informer{}}
	for _, o := range c.all() {
		f.objects[reflect.TypeOf(o)] = append(f.objects[reflect.TypeOf(o)], o)
	}
	return f
}

func (f *factory) Apps() apps.Interface              { return apps.New(f, "", nil) }
func (f *factory) Core() core.Interface              { return core.New(f, "", nil) }
func (f *factory) Policy() policy.Interface          { return policy.New(f, "", nil) }
func (f *factory) Resource() resource.Interface      { return resource.New(f, "", nil) }
func (f *factory) Scheduling() scheduling.Interface  { return scheduling.New(f, "", nil) }
func (f *factory) Storage() storage.Interface        { return storage.New(f, "", nil) }
func (f *factory) InformerName() *cache.InformerName { return nil }
func (f *factory) Start(<-chan struct{})             {}
func (f *factory) InformerFor(o runtime.Object, _ internalinterfaces.NewInformerFunc) cache.SharedIndexInformer {
	kind := reflect.TypeOf(o)
	if f.made[kind] == nil {
		i := &informer{indexer: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})}
		for _, o := range f.objects[kind] {
			if err := i.indexer.Add(o); err != nil {
				panic(err) // an object without metadata
			}
		}
		f.made[kind] = i
	}
	return f.made[kind]
}

// informer is one that heard everything already.
type informer struct {
	cache.SharedIndexInformer // nil: nobody calls the rest
	indexer                   cache.Indexer
}

func (i *informer) GetStore() cache.Store                 { return i.indexer }
func (i *informer) GetIndexer() cache.Indexer             { return i.indexer }
func (i *informer) AddIndexers(more cache.Indexers) error { return i.indexer.AddIndexers(more) }
func (i *informer) HasSynced() bool                       { return true }
func (i *informer) HasSyncedChecker() cache.DoneChecker   { return synced{} }
func (i *informer) LastSyncResourceVersion() string       { return "1" }
func (i *informer) IsStopped() bool                       { return false }
func (i *informer) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	for _, key := range i.indexer.ListKeys() {
		if o, exists, _ := i.indexer.GetByKey(key); exists {
			h.OnAdd(o, true)
		}
	}
	return synced{}, nil
}
func (i *informer) AddEventHandlerWithResyncPeriod(h cache.ResourceEventHandler, _ time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandler(h)
}
func (i *informer) AddEventHandlerWithOptions(h cache.ResourceEventHandler, _ cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandler(h)
}

// synced is a registration, and a check, of something that is in sync.
type synced struct{}

var closed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

func (synced) HasSynced() bool                     { return true }
func (synced) HasSyncedChecker() cache.DoneChecker { return synced{} }
func (synced) Name() string                        { return "case" }
func (synced) Done() <-chan struct{}               { return closed }
