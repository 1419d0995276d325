package kube

import (
	"context"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/metrics"

	"basalt.dev/basalt/api/metric"
)

// Metrics of all clients and followers of the program, for client-go knows only one listener. A process registers Collectors.
var (
	requests      = metric.KubeRequests.Counters()
	durations     = metric.KubeRequestDuration.Histograms()
	watchProgress = metric.WatchProgress.Gauges()
	watchLists    = metric.WatchLists.Counters()
	watchFailures = metric.WatchFailures.Counters()
)

// Collectors returns what a process registers.
func Collectors() []prometheus.Collector {
	return []prometheus.Collector{requests, durations, watchProgress, watchLists, watchFailures, Unread}
}

// init registers with client-go, which reports requests to whoever registers first, and reads its listener without a
// lock: it has to be there before any client.
func init() {
	metrics.Register(metrics.RegisterOpts{RequestLatency: latency{}, RequestResult: result{}})
}

type (
	latency struct{}
	result  struct{}
)

func (latency) Observe(_ context.Context, method string, _ url.URL, took time.Duration) {
	durations.WithLabelValues(method).Observe(took.Seconds())
}

func (result) Increment(_ context.Context, code, method, _ string) {
	requests.WithLabelValues(method, code).Inc()
}
