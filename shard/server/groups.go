package server

import (
	"context"
	"sync"

	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	volcanov1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/doors/upstream"
	"basalt.dev/basalt/api/doors/volcano"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/shard/event"
)

// foreignGroups follows groups of another kind than Basalt's for as long as the API server serves them.
type foreignGroups[T interface {
	metav1.Object
	runtime.Object
}] struct {
	*watches
	kind    api.GroupKind
	version schema.GroupVersion // in which there is a resource podgroups
	client  rest.Interface
	strip   func(T) T
	read    func(T) (*v1beta1.PodGroup, *api.ForeignGroup)

	synced chan struct{} // closed when they were listed, or there are none
	once   sync.Once
}

func (w *watches) volcanoGroups() *foreignGroups[*volcanov1beta1.PodGroup] {
	return &foreignGroups[*volcanov1beta1.PodGroup]{watches: w, kind: api.VolcanoGroup, version: volcanov1beta1.SchemeGroupVersion, client: w.clients.Volcano, strip: volcano.Strip,
		read: func(g *volcanov1beta1.PodGroup) (*v1beta1.PodGroup, *api.ForeignGroup) {
			return volcano.Group(g, w.rules.Ignored, w.rules.Levels)
		},
		synced: make(chan struct{})}
}

// holdVolcano holds the Lease of Volcano's scheduler, whether there are Volcano's PodGroups or not: names of schedulers are lent with it.
func (w *watches) holdVolcano(ctx context.Context) {
	w.clients.HoldVolcano(ctx, w.log, func(holds bool) {
		w.post([]event.Event{event.GroupWriter{Kind: api.VolcanoGroup, Writes: holds}})
	})
}

func (w *watches) upstreamGroups() *foreignGroups[*schedulingv1beta1.PodGroup] {
	return &foreignGroups[*schedulingv1beta1.PodGroup]{watches: w, kind: api.UpstreamGroup, version: schedulingv1beta1.SchemeGroupVersion,
		client: w.clients.Core.SchedulingV1beta1().RESTClient(), strip: upstream.Strip, read: upstream.Group, synced: make(chan struct{})}
}

func (v *foreignGroups[T]) run(ctx context.Context) {
	v.clients.WhileServed(ctx, v.log, v.version, "podgroups", func(served context.Context) {
		v.log.Info("following groups of a kind", "kind", v.kind)
		v.follow(served)
		if ctx.Err() == nil {
			v.log.Warn("CRD no longer served; its pods stay pending", "kind", v.kind)
		}
	}, v.listed)
}

// follow follows them until ctx ends, and reports all of them as gone then.
func (v *foreignGroups[T]) follow(ctx context.Context) {
	gone := func(g T) event.Event {
		return event.PodGroupGone{UID: string(g.GetUID()), Namespace: g.GetNamespace(), Name: g.GetName(), Kind: v.kind}
	}
	seen := func(g T) event.Event {
		as, foreign := v.read(g)
		return event.PodGroupSeen{PodGroup: as, Foreign: foreign}
	}
	f, forget := followAs(v.watches, v.client, "podgroups", "podgroups."+v.version.Group, v.post, v.strip, seen, gone)
	var wg sync.WaitGroup
	wg.Go(func() { f.Run(ctx) })
	select {
	case <-f.Synced():
		v.listed()
	case <-ctx.Done():
	}
	wg.Wait()
	forget()
}

// listed says that all there are were listed.
func (v *foreignGroups[T]) listed() { v.once.Do(func() { close(v.synced) }) }
