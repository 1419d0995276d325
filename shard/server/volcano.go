package server

import (
	"context"
	"sync"
	"time"

	"volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/doors/volcano"
	"basalt.dev/basalt/api/wait"
	"basalt.dev/basalt/shard/event"
)

// How often the API server is asked whether it serves Volcano's PodGroups: their CustomResourceDefinition may be installed or
// removed at any time. Until it has answered once, it is asked more often.
const (
	askServed      = 30 * time.Second
	askServedFirst = time.Second
)

// volcanoGroups follows Volcano's PodGroups for as long as the API server serves them.
type volcanoGroups struct {
	*watches
	synced chan struct{} // closed when they were listed, or there are none
	once   sync.Once
	write  bool // also their statuses, while Basalt holds the Lease of Volcano's scheduler
}

func (v *volcanoGroups) run(ctx context.Context) {
	var stop func() // not nil while they are followed
	for {
		served, err := v.clients.Serves(v1beta1.SchemeGroupVersion, "podgroups")
		again := askServed
		switch {
		case err != nil:
			v.log.Warn("cannot find out whether Volcano's PodGroups are served", "error", err)
			again = askServedFirst
		case served && stop == nil:
			v.log.Info("following Volcano's PodGroups")
			stop = v.follow(ctx)
		case !served && stop != nil:
			v.log.Warn("the API server does not serve Volcano's PodGroups any more: their pods wait")
			stop()
			stop = nil
		case !served:
			v.once.Do(func() { close(v.synced) })
		}
		if !wait.For(ctx, again) {
			if stop != nil {
				stop()
			}
			return
		}
	}
}

// follow begins to follow them. The function that it returns ends that, and reports all of them as gone.
func (v *volcanoGroups) follow(ctx context.Context) (stop func()) {
	gone := func(g *v1beta1.PodGroup) event.Event {
		return event.PodGroupGone{UID: string(g.UID), Namespace: g.Namespace, Name: g.Name, Kind: api.VolcanoGroup}
	}
	seen := func(g *v1beta1.PodGroup) event.Event {
		as, foreign := volcano.Group(g, v.rules.Ignored)
		return event.PodGroupSeen{PodGroup: as, Foreign: foreign}
	}
	f, forget := followAs(v.watches, v.clients.Volcano, "podgroups", "podgroups."+v1beta1.GroupName, volcano.Strip, seen, gone)
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { f.Run(ctx) })
	if v.write {
		wg.Go(func() { v.holdLease(ctx) })
	}
	wg.Go(func() {
		select {
		case <-f.Synced():
			v.once.Do(func() { close(v.synced) })
		case <-ctx.Done():
		}
	})
	return func() {
		cancel()
		wg.Wait()
		forget()
	}
}
