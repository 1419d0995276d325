package kube

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"basalt.dev/basalt/api/wait"
)

// The Lease of Volcano's scheduler, and how long its holder may be silent: as Volcano has them.
const (
	volcanoNamespace = "volcano-system"
	volcanoLease     = "volcano" // api.VolcanoLease
	leaseDuration    = 15 * time.Second
	renewDeadline    = 10 * time.Second
	renewEvery       = 2 * time.Second
)

// basaltHolds is who holds it: all shards together. Each renews it, so that none of them matters; when they end, or are started
// without --volcano=write, it expires.
const basaltHolds = "basalt"

// HoldVolcano has Basalt hold the Lease of Volcano's scheduler, which then schedules nothing, until ctx ends, and says whether it does:
// the statuses of Volcano's objects have one writer.
func (c *Clients) HoldVolcano(ctx context.Context, log *slog.Logger, say func(holds bool)) {
	var holding sync.Mutex // a callback may begin before the one of an earlier time has ended
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: volcanoNamespace, Name: volcanoLease}, Client: c.Core.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: basaltHolds},
		},
		LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: renewEvery,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				holding.Lock()
				defer holding.Unlock()
				log.Info("holding the Lease of Volcano's scheduler: statuses of Volcano's PodGroups are written")
				say(true)
				<-ctx.Done()
				log.Warn("not holding the Lease of Volcano's scheduler any more: statuses of Volcano's PodGroups are not written")
				say(false)
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		panic(err) // the configuration is ours
	}
	ctx = klog.NewContext(ctx, logr.FromSlogHandler(log.Handler()))
	for ctx.Err() == nil {
		elector.Run(ctx) // until it is lost
		wait.For(ctx, renewEvery)
	}
}

// HoldsVolcano reports whether Basalt holds the Lease of Volcano's scheduler. One that was not renewed in time, it does not hold.
func (c *Clients) HoldsVolcano(ctx context.Context) (bool, error) {
	lease, err := c.Core.CoordinationV1().Leases(volcanoNamespace).Get(ctx, volcanoLease, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read the Lease %s/%s: %w", volcanoNamespace, volcanoLease, err)
	}
	holder, renewed := lease.Spec.HolderIdentity, lease.Spec.RenewTime
	return holder != nil && *holder == basaltHolds && renewed != nil && time.Since(renewed.Time) < leaseDuration, nil
}
