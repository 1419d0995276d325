// Package audittest has an auditor follow a cluster during a test.
//
// It is not part of localtest, which tests of the control store's client use: the auditor reads that store with that client.
package audittest

import (
	"context"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"basalt.dev/basalt/api/audit"
	"basalt.dev/basalt/api/audit/follow"
	"basalt.dev/basalt/bench/stage/local"
)

// Start has an auditor follow a cluster. The function that it returns ends it, and has the test fail for each violation.
func Start(t testing.TB, c *local.Cluster, judge audit.Config) (end func()) {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: c.ControlStore(), Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	a, err := follow.New(follow.Options{Etcd: client, Kube: c.Config(local.Admin), Judge: judge})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := a.Run(ctx); err != nil && ctx.Err() == nil {
			t.Error(err)
		}
	})
	<-a.Synced()
	return func() {
		cancel()
		wg.Wait()
		_ = client.Close()
		for _, v := range a.Report().Violations {
			t.Errorf("auditor: %s", v)
		}
	}
}
