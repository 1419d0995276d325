package kube

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"basalt.dev/basalt/api/wait"
)

// How often the API server is asked whether it serves a kind that is not Basalt's: its CustomResourceDefinition may be
// installed or removed at any time, and the API server restarted with other features. Somebody who has just installed
// one waits for it, so a kind that is absent is asked for more often; and until there was an answer, more often still.
const (
	askServed = 30 * time.Second
	askAbsent = 5 * time.Second
	askAgain  = time.Second
)

// WhileServed calls run each time that the API server begins to serve a resource, with a context that ends when it stops, and waits for
// it to return. It calls absent each time that the API server says that it does not serve it. It returns when ctx ends.
func (c *Clients) WhileServed(ctx context.Context, log *slog.Logger, version schema.GroupVersion, resource string, run func(context.Context), absent func()) {
	stop := func() {}
	serving := false
	for {
		served, err := c.Serves(version, resource)
		again := askServed
		switch {
		case err != nil:
			log.Warn("cannot find out whether a kind is served", "version", version, "resource", resource, "error", err)
			again = askAgain
		case served && !serving:
			during, cancel := context.WithCancel(ctx)
			var wg sync.WaitGroup
			wg.Go(func() { run(during) })
			stop = func() {
				cancel()
				wg.Wait()
			}
		case !served:
			stop()
			stop = func() {}
			absent()
			again = askAbsent
		}
		if err == nil {
			serving = served
		}
		if !wait.For(ctx, again) {
			stop()
			return
		}
	}
}
