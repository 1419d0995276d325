package server

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wait"
	"basalt.dev/basalt/shard/event"
)

// The Lease of Volcano's scheduler, and how long its holder may be silent: as Volcano has them.
const (
	volcanoNamespace = "volcano-system"
	volcanoLease     = "volcano"
	leaseDuration    = 15 * time.Second
	renewDeadline    = 10 * time.Second
	renewEvery       = 2 * time.Second
)

// basaltHolds is who holds it: all shards together. Each renews it, so that none of them matters; when they end, or are started
// without --volcano=write, it expires.
const basaltHolds = "basalt"

// holdVolcanoLease has Basalt hold the Lease of Volcano's scheduler, which then schedules nothing, and tells the core whether it does: the
// statuses of Volcano's PodGroups have one writer.
func (w *watches) holdVolcanoLease(ctx context.Context) {
	say := func(writes bool) {
		w.emit(event.GroupWriter{Kind: api.VolcanoGroup, Writes: writes})
		w.flush()
	}
	var holding sync.Mutex // a callback may begin before the one of an earlier time has ended
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: volcanoNamespace, Name: volcanoLease}, Client: w.clients.Core.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: basaltHolds},
		},
		LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: renewEvery,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				holding.Lock()
				defer holding.Unlock()
				w.log.Info("holding the Lease of Volcano's scheduler: statuses of Volcano's PodGroups are written")
				say(true)
				<-ctx.Done()
				w.log.Warn("not holding the Lease of Volcano's scheduler any more: statuses of Volcano's PodGroups are not written")
				say(false)
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		panic(err) // the configuration is ours
	}
	ctx = klog.NewContext(ctx, logr.FromSlogHandler(w.log.Handler()))
	for ctx.Err() == nil {
		elector.Run(ctx) // until it is lost
		wait.For(ctx, renewEvery)
	}
}
