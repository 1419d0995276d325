package server

import (
	"log/slog"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"basalt.dev/basalt/api/tiers"
)

// maxTold is of how many objects of a class the log says that an expression failed for them.
const maxTold = 16

// tierFailures are expressions of nodeTiers that failed for some object. All are counted, and the log has the first
// ones.
type tierFailures struct {
	log    *slog.Logger
	counts *prometheus.CounterVec
	mu     sync.Mutex // objects are read by several goroutines
	told   map[string]int
}

func (f *tierFailures) tell(failed tiers.Failure) {
	f.counts.WithLabelValues(failed.Class, failed.Of).Inc()
	key := failed.Of + "/" + failed.Class
	f.mu.Lock()
	n := f.told[key]
	if n < maxTold {
		f.told[key] = n + 1
	}
	f.mu.Unlock()
	if n >= maxTold {
		return
	}
	becomes := "it is in the last tier"
	if failed.Of == tiers.OfPod {
		becomes = "it is not of the class"
	}
	f.log.Warn("nodeTiers: cannot evaluate the expression for a "+failed.Of+": "+becomes,
		"class", failed.Class, failed.Of, failed.Object, "error", failed.Err, "logged", n+1, "of", maxTold)
}
